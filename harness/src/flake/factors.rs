//! Which condition changes the rate of a failure.
//!
//! One condition at a time is changed, starting from the conditions under which
//! the failure was seen. Crashes of this kind need several conditions at once (a
//! certain neighbour, and threads, and timing); from that corner each one that is
//! needed shows its whole effect when it alone is taken away: from 61 % to 0 %.
//! In a fractional factorial, where half of all runs lack it and half of those
//! lack the next, the same effect is diluted with every further condition. What
//! a sweep from one corner cannot say is whether the needed ones are enough; so
//! they are tried together at the end with all others taken away.

use super::class::{p_value, shown};
use super::rule::Tally;
use crate::stats::{fisher, freeman_halton, holm};

/// One condition changed.
#[derive(Clone, Debug)]
pub(crate) struct FactorChange {
    pub(crate) factor: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) before: Tally,
    pub(crate) after: Tally,
    pub(crate) p: f64,
    /// After Holm's correction for all changes that were tried.
    pub(crate) corrected: f64,
}

/// The chance of any false row in a table.
pub(crate) const LEVEL: f64 = 0.01;

impl FactorChange {
    pub(crate) fn new(factor: &str, from: &str, to: &str, before: Tally, after: Tally) -> Self {
        let p = fisher(before.count(), after.count());
        let [factor, from, to] = [factor, from, to].map(String::from);
        Self { factor, from, to, before, after, p, corrected: 1.0 }
    }

    /// A comparison of several conditions that were there at once.
    pub(crate) fn among(factor: &str, counts: &[(String, Tally)]) -> Option<Self> {
        let ran: Vec<_> = counts.iter().filter(|(_, tally)| tally.runs() > 0).collect();
        let worst = ran.iter().max_by(|a, b| a.1.rate().total_cmp(&b.1.rate()))?;
        let best = ran.iter().min_by(|a, b| a.1.rate().total_cmp(&b.1.rate()))?;
        let table: Vec<(u64, u64)> = ran.iter().map(|(_, tally)| tally.count()).collect();
        let p = freeman_halton(&table);
        (ran.len() > 1).then(|| Self {
            factor: factor.into(),
            from: worst.0.clone(),
            to: best.0.clone(),
            before: worst.1,
            after: best.1,
            p,
            corrected: 1.0,
        })
    }

    pub(crate) fn significant(&self) -> bool {
        self.corrected < LEVEL
    }

    /// Whether the failure needs the condition that was taken away: without it,
    /// the rate is a small part of what it was.
    pub(crate) fn needed(&self) -> bool {
        self.significant() && self.after.rate() < self.before.rate() / 4.0
    }

    /// `compile_threads 4 -> 0: 61 % [48, 73] -> 0 % [0, 4.9], p = 3e-6 (corrected)`.
    pub(crate) fn words(&self) -> String {
        let Self { factor, from, to, before, after, corrected, .. } = self;
        format!(
            "{factor} {from} -> {to}: {} -> {}, p = {} (corrected)",
            shown(*before),
            shown(*after),
            p_value(*corrected)
        )
    }
}

/// Corrects for the number of changes and puts the clearest first.
pub(crate) fn correct(mut changes: Vec<FactorChange>) -> Vec<FactorChange> {
    let corrected = holm(&changes.iter().map(|change| change.p).collect::<Vec<f64>>());
    changes.iter_mut().zip(corrected).for_each(|(change, p)| change.corrected = p);
    changes.sort_by(|a, b| a.p.total_cmp(&b.p));
    changes
}

/// Runs after which a change that takes the failure away is significant among
/// that many changes; at most `most`.
pub(crate) fn runs_needed(before: Tally, changes: usize, most: u64) -> u64 {
    let clear = |runs: u64| fisher(before.count(), (0, runs)) * changes as f64 <= LEVEL / 2.0;
    let (mut low, mut high) = (5, most.max(5));
    while low < high {
        let middle = (low + high) / 2;
        if clear(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// What a table without any significant row leaves open, in words: which change
/// would have been seen, and what would show smaller ones.
pub(crate) fn unseen(before: Tally, runs: u64, changes: usize) -> String {
    let seen = |failures: u64| fisher(before.count(), (failures, runs)) * changes as f64 <= LEVEL;
    let most =
        (0..=runs).take_while(|failures| *failures as f64 <= before.rate() * runs as f64).filter(|k| seen(*k)).max();
    match most {
        Some(failures) => format!(
            "a fall from {} to {} would have shown in {runs} runs; --repeat {} shows smaller ones",
            super::rule::percent(before.rate()),
            super::rule::percent(failures as f64 / runs as f64),
            4 * runs
        ),
        None => {
            let needed = (1..20).map(|i| runs << i).find(|n| {
                let scaled =
                    Tally { failures: before.failures * n / runs.max(1), passes: before.passes * n / runs.max(1) };
                fisher(scaled.count(), (0, *n)) * changes as f64 <= LEVEL
            });
            match needed {
                Some(needed) => {
                    format!("{runs} runs each cannot show even the end of the failure; --repeat {needed} would")
                }
                None => "it fails too rarely for any number of runs that can be made".into(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(failures: u64, runs: u64) -> Tally {
        Tally { failures, passes: runs - failures }
    }

    #[test]
    fn rows_are_sorted_and_corrected() {
        let base = tally(37, 61);
        let rows = correct(vec![
            FactorChange::new("jitter", "off", "7", base, tally(13, 20)),
            FactorChange::new("compile_threads", "4", "0", base, tally(0, 73)),
            FactorChange::new("load", "off", "on", base, tally(12, 20)),
        ]);
        assert_eq!(rows[0].words(), "compile_threads 4 -> 0: 61 % [47, 73] -> 0 % [0, 4.9], p = 1e-16 (corrected)");
        assert!(rows[0].needed() && !rows[1].significant());
        assert_eq!(rows[2].corrected, 1.0);
        let devices = [
            ("gpu0".to_string(), tally(0, 40)),
            ("gpu1".to_string(), tally(20, 40)),
            ("gpu2".to_string(), tally(22, 40)),
        ];
        let row = FactorChange::among("device", &devices).expect("a row");
        assert_eq!((row.from.as_str(), row.to.as_str()), ("gpu2", "gpu0"));
        assert!(row.p < 1e-7, "{}", row.p);
        assert!(FactorChange::among("device", &devices[..1]).is_none());
    }

    #[test]
    fn enough_runs_and_not_more() {
        for (failures, runs) in [(18, 30), (30, 30), (10, 100), (3, 100)] {
            let base = tally(failures, runs);
            let needed = runs_needed(base, 8, 400);
            let p = |n: u64| fisher(base.count(), (0, n)) * 8.0;
            assert!(p(needed) <= LEVEL || needed == 400, "{failures} of {runs}: {needed}");
            assert!(needed <= 5 || p(needed - 1) > LEVEL / 2.0, "{failures} of {runs}: {needed}");
        }
    }

    #[test]
    fn what_is_unseen_is_said() {
        assert_eq!(
            unseen(tally(18, 30), 20, 6),
            "a fall from 60 % to 10 % would have shown in 20 runs; --repeat 80 shows smaller ones"
        );
        assert_eq!(
            unseen(tally(2, 40), 40, 6),
            "40 runs each cannot show even the end of the failure; --repeat 320 would"
        );
    }
}
