//! Exact tests: does the rate differ between conditions?

use super::special::ln_choose;

/// Tables whose probability is within this of the observed one count as equally
/// likely: their logarithms differ in the last digits only.
const TIE: f64 = 1e-7;
/// Tables that are enumerated before [`freeman_halton`] takes a bound instead.
const MAX_TABLES: u64 = 2_000_000;

/// Failures and runs under one condition.
pub(crate) type Count = (u64, u64);

/// Fisher's exact test, two-sided: the probability, if both conditions have one
/// rate, of a table that is at most as likely as this one.
pub(crate) fn fisher(a: Count, b: Count) -> f64 {
    let (failures, runs) = (a.0 + b.0, a.1 + b.1);
    let ln_p = |k: u64| ln_choose(a.1, k) + ln_choose(b.1, failures - k) - ln_choose(runs, failures);
    let limit = ln_p(a.0) + TIE;
    let from = failures.saturating_sub(b.1);
    let tail: f64 = (from..=failures.min(a.1)).map(ln_p).filter(|ln| *ln <= limit).map(f64::exp).sum();
    tail.min(1.0)
}

/// The same for any number of conditions (Freeman and Halton). With more tables
/// than can be enumerated: each condition against all others, the smallest
/// p-value times their number, which is never too small.
pub(crate) fn freeman_halton(counts: &[Count]) -> f64 {
    let counts: Vec<Count> = counts.iter().copied().filter(|(_, runs)| *runs > 0).collect();
    let (failures, runs) = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    match counts.as_slice() {
        [] | [_] => 1.0,
        [a, b] => fisher(*a, *b),
        _ if tables(&counts, failures) > MAX_TABLES => {
            let rest = |c: &Count| fisher(*c, (failures - c.0, runs - c.1));
            (counts.iter().map(rest).fold(1.0, f64::min) * counts.len() as f64).min(1.0)
        }
        _ => {
            let all = ln_choose(runs, failures);
            let observed: f64 = counts.iter().map(|(k, n)| ln_choose(*n, *k)).sum();
            let mut tail = 0.0;
            enumerate(&counts, failures, -all, observed - all + TIE, &mut tail);
            tail.min(1.0)
        }
    }
}

/// An upper bound of the number of tables with these margins.
fn tables(counts: &[Count], failures: u64) -> u64 {
    let choices = counts.iter().skip(1).map(|(_, runs)| failures.min(*runs) + 1);
    choices.fold(1, |product: u64, n| product.saturating_mul(n))
}

/// Adds up the tables that are at most as likely as the limit says.
fn enumerate(counts: &[Count], left: u64, ln_p: f64, limit: f64, tail: &mut f64) {
    let Some(((_, runs), rest)) = counts.split_first() else { return };
    if rest.is_empty() {
        let ln_p = ln_p + ln_choose(*runs, left);
        if ln_p <= limit {
            *tail += ln_p.exp();
        }
        return;
    }
    let room: u64 = rest.iter().map(|(_, n)| n).sum();
    for k in left.saturating_sub(room)..=left.min(*runs) {
        enumerate(rest, left - k, ln_p + ln_choose(*runs, k), limit, tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: Count, b: Count, wanted: f64) {
        for p in [fisher(a, b), fisher(b, a), fisher((a.1 - a.0, a.1), (b.1 - b.0, b.1))] {
            assert!((p / wanted - 1.0).abs() < 1e-6, "{a:?} {b:?}: {p} where {wanted} is due");
        }
    }

    /// Tables from the literature: Fisher's tea (3 of 4 against 1 of 4), the
    /// convictions of twins, and the examples of two statistics packages' manuals.
    #[test]
    fn published_tables() {
        check((3, 4), (1, 4), 0.485_714_285_7);
        check((2, 17), (10, 13), 0.000_536_724_1);
        check((1, 10), (11, 14), 0.002_759_456_2);
        check((8, 10), (1, 6), 0.034_965_035_0);
        check((0, 0), (3, 9), 1.0);
        check((0, 50), (0, 70), 1.0);
    }

    #[test]
    fn more_than_two_conditions() {
        // Three failures in one of three groups of three: 3 of 84 tables' weight.
        assert!((freeman_halton(&[(3, 3), (0, 3), (0, 3)]) - 3.0 / 84.0).abs() < 1e-12);
        assert!((freeman_halton(&[(3, 4), (1, 4), (0, 0)]) - fisher((3, 4), (1, 4))).abs() < 1e-12);
        assert_eq!(freeman_halton(&[(5, 9)]), 1.0);
        assert!((freeman_halton(&[(1, 3), (1, 3), (1, 3)]) - 1.0).abs() < 1e-9);
        // Too many tables: the bound is above no honest level for a clear difference, and at most 1.
        let many: Vec<Count> = (0..40).map(|i| (if i == 0 { 60 } else { 30 }, 100)).collect();
        let p = freeman_halton(&many);
        assert!(p > 0.0 && p < 1e-4, "{p}");
        assert_eq!(freeman_halton(&[(30, 100); 40]), 1.0);
    }

    /// Under one rate, p-values of at most 5 % come in at most 5 % of tables.
    #[test]
    fn the_level_is_held() {
        let (n, m) = (12u64, 9u64);
        for failures in 0..=n + m {
            let weight = |k: u64| (ln_choose(n, k) + ln_choose(m, failures - k) - ln_choose(n + m, failures)).exp();
            let range = failures.saturating_sub(m)..=failures.min(n);
            let rejected: f64 = range.filter(|k| fisher((*k, n), (failures - k, m)) <= 0.05).map(weight).sum();
            assert!(rejected <= 0.05 + 1e-9, "{failures}: {rejected}");
        }
    }
}
