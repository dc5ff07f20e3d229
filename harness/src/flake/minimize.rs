//! Delta debugging: from the cases that a worker ran before a failure to the few
//! that the failure needs.
//!
//! Halves are probed by bisection: the shortest tail that still fails begins
//! with a case that is needed. It is kept, and the same is done with what
//! follows it, until the kept ones fail alone. That is `k (log2 n + 1)` probes for
//! `k` cases among `n`, where partitions and their complements (ddmin) take
//! several times that for `k` of 2 or more. Every step rests on sets that were
//! seen to fail and to pass, so it needs no assumption on how cases interact; at
//! the end each kept case is left out once, and what is not needed goes. The
//! result is as minimal as that of ddmin: without any one of its cases, it passes.

use super::rule::Tally;
use crate::stats::{Decision, Sprt};

/// Looks whether the failure occurs after these prior cases, by their indices in
/// order. `None` when no more can be tried; the search ends then.
pub(crate) trait Probe {
    fn fails(&mut self, priors: &[usize]) -> Option<bool>;
}

/// The smallest set of priors found after which the failure occurs, where it
/// occurs after all `count` of them and does not without any. None if the probe
/// gave up.
pub(crate) fn minimize(count: usize, probe: &mut dyn Probe) -> Option<Vec<usize>> {
    let mut kept: Vec<usize> = Vec::new();
    let mut rest: Vec<usize> = (0..count).collect();
    loop {
        // `kept` with all of `rest` fails, `kept` with none of it passes.
        let (mut fails, mut passes) = (0, rest.len());
        while passes - fails > 1 {
            let middle = (fails + passes) / 2;
            let mut tried = kept.clone();
            tried.extend(&rest[middle..]);
            match probe.fails(&tried)? {
                true => fails = middle,
                false => passes = middle,
            }
        }
        let Some(needed) = rest.get(fails) else { break };
        kept.push(*needed);
        rest.drain(..=fails);
        if rest.is_empty() || probe.fails(&kept)? {
            break;
        }
    }
    // A case that was needed beside others may not be needed beside those found later.
    let mut at = 0;
    while kept.len() > 1 && at < kept.len() {
        let mut tried = kept.clone();
        tried.remove(at);
        match probe.fails(&tried)? {
            true => (kept, at) = (tried, 0),
            false => at += 1,
        }
    }
    Some(kept)
}

/// Errors of each answer where the failure does not always occur.
const PROBE_ERROR: f64 = 0.005;
/// Trials of one probe at most.
const MOST_TRIALS: u64 = 400;

/// Answers by repeated trials: does the failure occur about as often as with all
/// priors, `high`, or at most as often as `low`?
pub(crate) fn decide_by_trials((low, high): (f64, f64), trials: &mut dyn FnMut() -> Option<Vec<bool>>) -> Option<bool> {
    let high = high.clamp(0.02, 0.95);
    let low = low.clamp(high / 20.0, 0.8 * high);
    let sprt = Sprt::new(low, high, PROBE_ERROR, PROBE_ERROR)?;
    let mut tally = Tally::default();
    loop {
        for failed in trials()? {
            tally.add(failed);
        }
        match sprt.decide(tally.failures, tally.passes) {
            Decision::High => return Some(true),
            Decision::Low => return Some(false),
            Decision::Open if tally.runs() >= MOST_TRIALS => return Some(tally.rate() > (low * high).sqrt()),
            Decision::Open => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Fails if all polluters of one of the sets are there, with the given rate.
    struct Planted {
        sets: Vec<Vec<usize>>,
        rate: f64,
        rng: Rng,
        runs: u64,
    }

    impl Planted {
        fn new(sets: &[&[usize]], rate: f64) -> Self {
            Self { sets: sets.iter().map(|set| set.to_vec()).collect(), rate, rng: Rng::new(11), runs: 0 }
        }
        fn trial(&mut self, priors: &[usize]) -> bool {
            self.runs += 1;
            let polluted = self.sets.iter().any(|set| set.iter().all(|case| priors.contains(case)));
            polluted && self.rng.unit() < self.rate
        }
    }

    impl Probe for Planted {
        fn fails(&mut self, priors: &[usize]) -> Option<bool> {
            assert!(priors.is_sorted(), "the order must be kept: {priors:?}");
            if self.rate == 1.0 {
                return Some(self.trial(priors));
            }
            decide_by_trials((0.0, self.rate), &mut || Some(vec![self.trial(priors)]))
        }
    }

    #[track_caller]
    fn check(count: usize, set: &[usize], most: u64) {
        let mut planted = Planted::new(&[set], 1.0);
        let found = minimize(count, &mut planted);
        assert_eq!(found.as_deref(), Some(set), "among {count}");
        assert!(planted.runs <= most, "{} runs for {set:?} among {count}", planted.runs);
    }

    /// One polluter among 200 within 2 log2(200) + 10 runs, two within 60; five
    /// runs are left for the replays before and after.
    #[test]
    fn polluters_are_found_in_few_runs() {
        for polluter in 0..200 {
            check(200, &[polluter], 25 - 7);
        }
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let (a, b) = (rng.below(200), rng.below(200));
            if a != b {
                check(200, &[a.min(b), a.max(b)], 60 - 7);
            }
        }
        check(200, &[0, 1, 198, 199], 60);
        check(1, &[0], 2);
        check(2, &[0, 1], 6);
        check(5000, &[4999], 20);
    }

    /// Whatever the interaction, the result fails and none of its cases can go.
    #[test]
    fn results_are_minimal_without_any_assumption() {
        struct Any(u64);
        impl Probe for Any {
            fn fails(&mut self, priors: &[usize]) -> Option<bool> {
                let key = priors.iter().fold(self.0, |hash, case| crate::rng::scramble(hash ^ *case as u64));
                Some(priors.len() == 30 || (!priors.is_empty() && key.is_multiple_of(3)))
            }
        }
        for seed in 0..200 {
            let mut any = Any(seed);
            let found = minimize(30, &mut any).expect("it never gives up");
            assert_eq!(any.fails(&found), Some(true), "{found:?}");
            for at in 0..found.len() {
                let mut less = found.clone();
                less.remove(at);
                assert!(found.len() == 1 || any.fails(&less) == Some(false), "{found:?} without {at}");
            }
        }
    }

    #[test]
    fn either_of_two_polluters_is_enough() {
        let mut planted = Planted::new(&[&[20], &[150, 160]], 1.0);
        let found = minimize(200, &mut planted).expect("found");
        assert!(found == [20] || found == [150, 160], "{found:?}");
    }

    /// A failure that occurs in a part of the trials: the answers are rarely wrong.
    #[test]
    fn failures_that_are_not_deterministic() {
        for rate in [0.9, 0.5, 0.2] {
            let right = (0..40).filter(|seed| {
                let mut planted = Planted::new(&[&[63]], rate);
                planted.rng = Rng::new(*seed);
                minimize(200, &mut planted).as_deref() == Some(&[63])
            });
            let right = right.count();
            assert!(right >= 36, "rate {rate}: {right} of 40");
        }
    }

    #[test]
    fn a_probe_that_gives_up_ends_the_search() {
        struct Few(u32);
        impl Probe for Few {
            fn fails(&mut self, _: &[usize]) -> Option<bool> {
                self.0 = self.0.checked_sub(1)?;
                Some(false)
            }
        }
        assert_eq!(minimize(200, &mut Few(3)), None);
    }
}
