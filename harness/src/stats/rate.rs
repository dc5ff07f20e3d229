//! What counts say about a rate, by Clopper and Pearson: never too narrow.
//!
//! All take `failures` of `runs` and a confidence such as 0.95; with no runs,
//! everything is possible.

use super::special::beta_quantile;

/// From `low` to `high`, both rates of 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The exact interval: covers the true rate with at least the confidence.
pub(crate) fn clopper_pearson(failures: u64, runs: u64, confidence: f64) -> Interval {
    let half = (1.0 - confidence) / 2.0;
    let (k, n) = (failures as f64, runs as f64);
    Interval {
        low: if failures == 0 { 0.0 } else { beta_quantile(k, n - k + 1.0, half) },
        high: if failures >= runs { 1.0 } else { beta_quantile(k + 1.0, n - k, 1.0 - half) },
    }
}

/// The rate that is exceeded with at most the remaining probability.
pub(crate) fn upper_bound(failures: u64, runs: u64, confidence: f64) -> f64 {
    clopper_pearson(failures, runs, 2.0 * confidence - 1.0).high
}

/// The rate below which the truth lies with at most the remaining probability.
pub(crate) fn at_least_bound(failures: u64, runs: u64, confidence: f64) -> f64 {
    clopper_pearson(failures, runs, 2.0 * confidence - 1.0).low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: Interval, wanted: (f64, f64), digits: i32) {
        let near = |a: f64, b: f64| (a - b).abs() <= 0.51 * 10f64.powi(-digits);
        assert!(near(got.low, wanted.0) && near(got.high, wanted.1), "{got:?} where {wanted:?} is due");
    }

    /// The four examples of Newcombe's comparison (Statistics in Medicine 17,
    /// 1998, table I), by the exact method.
    #[test]
    fn published_intervals() {
        let rows = [
            (81, 263, (0.2527, 0.3676)),
            (15, 148, (0.0578, 0.1617)),
            (0, 20, (0.0, 0.1684)),
            (1, 29, (0.0009, 0.1776)),
        ];
        for (k, n, exact) in rows {
            check(clopper_pearson(k, n, 0.95), exact, 4);
        }
    }

    #[test]
    fn all_and_nothing() {
        for (k, n) in [(0, 0), (0, 1), (1, 1), (300, 300)] {
            let interval = clopper_pearson(k, n, 0.95);
            let p = if n == 0 { 0.5 } else { k as f64 / n as f64 };
            assert!(interval.low <= p + 1e-12 && p <= interval.high + 1e-12, "{k} of {n}: {interval:?}");
        }
        // No failure in n runs: 1 - 0.05^(1/n).
        for (n, percent) in [(10, 25.887), (59, 4.951), (100, 2.951), (299, 0.9969), (2995, 0.09998)] {
            assert!((100.0 * upper_bound(0, n, 0.95) - percent).abs() < 0.001, "{n}: {}", upper_bound(0, n, 0.95));
        }
        assert!((at_least_bound(10, 10, 0.95) - 0.05f64.powf(0.1)).abs() < 1e-12);
    }

    /// The exact interval covers at least as often as it claims, by summing the
    /// distribution.
    #[test]
    fn coverage() {
        let n = 40u64;
        for step in 1..50 {
            let p = f64::from(step) / 50.0;
            let mut covered = 0.0;
            for k in 0..=n {
                let weight =
                    (super::super::special::ln_choose(n, k) + k as f64 * p.ln() + (n - k) as f64 * f64::ln_1p(-p))
                        .exp();
                let interval = clopper_pearson(k, n, 0.95);
                if interval.low <= p && p <= interval.high {
                    covered += weight;
                }
            }
            assert!(covered >= 0.95 - 1e-9, "rate {p}: {covered}");
        }
    }
}
