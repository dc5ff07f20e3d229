//! How often a failure recurs behind the cases that ran before it, and which of
//! them it needs. Pure: trials come from outside.
//!
//! What fails each time is searched with one trial for each answer, all else with
//! sequential tests between two rates: behind all prior cases, and alone. So a
//! case that also fails alone, but less often, has its polluters found too. No set
//! is named unless the case fails more often after it than alone by an exact test.

use super::factors::{LEVEL, runs_needed};
use super::minimize::{Probe, decide_by_trials, minimize};
use super::rule::Tally;
use super::trials::{Ending, Halt};
use crate::stats::fisher;
use std::collections::BTreeMap;

/// Replays before anything is concluded: a failure that recurs in each of them is
/// taken for certain, until it is seen not to be.
const FIRST: u64 = 3;
/// Replays that look for a failure that has not recurred yet.
const MOST: u64 = 60;
/// Failures that give a rate to search with.
const ENOUGH: u64 = 5;
/// Trials in a row that do not reach the case, after which its prior cases count
/// as a set after which it does not fail.
const UNREACHED: u64 = 10;
/// Trials with the found set at the end, where the failure is taken for certain.
const CONFIRM: u64 = 5;
/// Trials of one side of a comparison at most.
const MOST_CONFIRM: u64 = 400;
/// Trials of each side after which it is looked whether a case that fails alone
/// fails more often behind its prior cases.
const LOOKS: [u64; 5] = [8, 16, 32, 64, 128];
/// Trials alone before its rate is searched with.
const KNOWN: u64 = 32;
/// Failures that tell rates apart well enough to see that they are not.
const ALIKE: u64 = 10;

/// Runs the watched case behind some of its prior cases, by their indices in
/// order, so often, each time in a fresh worker. Gives what ended, and why not all did.
pub(crate) type Runner<'a> = &'a mut dyn FnMut(&[usize], u64) -> (Vec<Ending>, Option<Halt>);

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replayed {
    /// Behind all prior cases.
    pub(crate) full: Tally,
    /// In a fresh worker.
    pub(crate) alone: Tally,
    /// The prior cases that are needed.
    pub(crate) set: Option<Vec<usize>>,
    /// Behind these.
    pub(crate) confirmed: Tally,
    pub(crate) trials: u64,
    pub(crate) endings: BTreeMap<String, u64>,
    /// Trials that ended at a prior case, with what happened to it.
    pub(crate) early: BTreeMap<(usize, String), u64>,
    /// A set after which it does not fail significantly more often than alone, with the p-value.
    pub(crate) doubt: Option<(Vec<usize>, f64)>,
    /// Why there is no set.
    pub(crate) gave_up: Option<String>,
}

/// The search for what the failure needs.
pub(crate) struct Search<'a> {
    run: Runner<'a>,
    /// The prior cases.
    all: Vec<usize>,
    /// Trials that run at a time.
    slots: u64,
    /// Rate to search with; none while the failure is taken for certain.
    rate: Option<f64>,
    found: Replayed,
}

impl Probe for Search<'_> {
    fn fails(&mut self, priors: &[usize]) -> Option<bool> {
        match self.rate {
            None => Some(self.reach(priors, 1)?.failures > 0),
            Some(rate) => Some(self.judge(priors, (self.found.alone.rate(), rate))?.0),
        }
    }
}

impl<'a> Search<'a> {
    pub(crate) fn new(priors: usize, slots: usize, run: Runner<'a>) -> Self {
        let slots = slots.max(1) as u64;
        Self { run, all: (0..priors).collect(), slots, rate: None, found: Replayed::default() }
    }

    /// Replays, `count` times if that is given, and minimizes if that is wanted.
    pub(crate) fn go(mut self, minimized: bool, count: Option<u64>) -> Replayed {
        if self.replay(count).is_some() && minimized && self.found.full.failures > 0 {
            self.minimize();
        }
        self.found
    }

    /// How often it recurs.
    fn replay(&mut self, count: Option<u64>) -> Option<()> {
        self.more_full(count.unwrap_or(FIRST))?;
        while count.is_none() && self.found.full.failures == 0 && self.found.trials < MOST {
            self.more_full(self.slots)?;
        }
        if self.found.full.runs() == 0 {
            self.give_up(format!("none of {} replays reached it", self.found.trials));
            return None;
        }
        Some(())
    }

    fn minimize(&mut self) -> Option<()> {
        if self.all.is_empty() {
            (self.found.alone, self.found.confirmed) = (self.found.full, self.found.full);
            self.found.set = Some(Vec::new());
            return Some(());
        }
        if self.found.full.passes == 0 {
            self.found.alone = self.judge(&[], (0.0, 1.0))?.1;
            // One trial answers where the failure never comes alone.
            if self.found.alone.failures == 0 {
                self.search()?;
                if self.found.set.is_some() && self.found.confirmed.passes == 0 {
                    return Some(());
                }
                // What passed where it should have failed was not certain after all.
                (self.found.set, self.found.doubt) = (None, None);
            }
        }
        self.learn_rate()?;
        if self.is_raised()? {
            // Every answer rests on both rates, and counts that stop at a difference flatter it.
            let alone = self.found.alone.runs();
            self.more_alone(alone.max(KNOWN.saturating_sub(alone)))?;
            if self.found.alone.failures > 0 {
                self.more_full(self.found.full.runs())?;
            }
            self.rate = Some(self.found.full.rate());
            self.search()?;
            // One wrong answer of many leads astray; the same one twice is rare.
            if self.found.set.is_none() {
                self.search()?;
            }
            return Some(());
        }
        self.found.set = Some(Vec::new());
        self.found.confirmed = self.found.alone;
        Some(())
    }

    /// Replays until there are failures enough for a rate.
    fn learn_rate(&mut self) -> Option<()> {
        let before = self.found.trials;
        while self.found.full.failures < ENOUGH && self.found.trials - before < 4 * MOST {
            self.more_full(self.slots)?;
        }
        Some(())
    }

    /// Whether it fails more often behind all prior cases than alone. Both sides get
    /// more trials until they differ or are alike; where neither is seen in the end,
    /// half the rate is the border.
    fn is_raised(&mut self) -> Option<bool> {
        for runs in LOOKS {
            self.more_alone(runs.saturating_sub(self.found.alone.runs()))?;
            self.more_full(runs.saturating_sub(self.found.full.runs()))?;
            let Replayed { full, alone, .. } = self.found;
            if full.rate() > alone.rate() && fisher(full.count(), alone.count()) < LEVEL / LOOKS.len() as f64 {
                return Some(true);
            }
            if alone.passes == 0 || full.failures >= ALIKE && alone.rate() >= full.rate() {
                return Some(false);
            }
        }
        Some(self.found.alone.rate() < self.found.full.rate() / 2.0)
    }

    /// The set, where it can be told from none.
    fn search(&mut self) -> Option<()> {
        let set = minimize(self.all.len(), self)?;
        let times = match self.rate {
            None => CONFIRM,
            Some(rate) => runs_to_tell(rate, self.found.alone.rate()).max((20.0 / rate).ceil() as u64),
        };
        let times = times.min(MOST_CONFIRM);
        let (confirmed, halt) = self.try_times(&set, times);
        self.found.confirmed = confirmed;
        self.goes_on(halt)?;
        let wanted = runs_needed(confirmed, 1, MOST_CONFIRM.min(2 * times)).max(times);
        self.more_alone(wanted.saturating_sub(self.found.alone.runs()))?;
        // A single wrong answer leads to an innocent case: only a difference that chance does not make is told.
        let (after, alone) = (self.found.confirmed, self.found.alone);
        let p = fisher(after.count(), alone.count());
        match after.rate() > alone.rate() && p < LEVEL {
            true => (self.found.set, self.found.doubt) = (Some(set), None),
            false => self.found.doubt = Some((set, p)),
        }
        Some(())
    }

    /// Trials of one list, until some reach the case. None of them did where the
    /// tally stays empty.
    fn reach(&mut self, priors: &[usize], count: u64) -> Option<Tally> {
        let before = self.found.trials;
        loop {
            let (tally, halt) = self.try_times(priors, count);
            self.goes_on(halt)?;
            if tally.runs() > 0 || self.found.trials - before >= UNREACHED {
                return Some(tally);
            }
        }
    }

    /// Whether the failure occurs about as often as the higher of two rates, by a
    /// sequential test, and what was seen. A case that is not reached does not fail.
    fn judge(&mut self, priors: &[usize], rates: (f64, f64)) -> Option<(bool, Tally)> {
        let (mut all, mut unreached) = (Tally::default(), false);
        let at_once = self.slots;
        let fails = decide_by_trials(rates, &mut || {
            let tally = self.reach(priors, at_once)?;
            unreached = tally.runs() == 0;
            all += tally;
            let failed = std::iter::repeat_n(true, tally.failures as usize);
            (!unreached).then(|| failed.chain(std::iter::repeat_n(false, tally.passes as usize)).collect())
        });
        if unreached { Some((false, all)) } else { Some((fails?, all)) }
    }

    fn more_full(&mut self, count: u64) -> Option<()> {
        let all = self.all.clone();
        let (more, halt) = self.try_times(&all, count);
        self.found.full += more;
        self.goes_on(halt)
    }

    fn more_alone(&mut self, count: u64) -> Option<()> {
        let (more, halt) = self.try_times(&[], count);
        self.found.alone += more;
        self.goes_on(halt)
    }

    /// Trials of one list, of which those count that reach the case, and why there
    /// is no sense in more of them.
    fn try_times(&mut self, priors: &[usize], count: u64) -> (Tally, Option<String>) {
        let mut tally = Tally::default();
        if count == 0 {
            return (tally, None);
        }
        let (endings, halt) = (self.run)(priors, count);
        let mut why = halt.map(|halt| halt.why().to_string());
        for ending in endings {
            self.found.trials += 1;
            match ending {
                Ending::Passed => tally.add(false),
                Ending::Failed(outcome) => {
                    tally.add(true);
                    *self.found.endings.entry(outcome).or_default() += 1;
                }
                // The case itself was not reached; another one broke its worker first. That is no pass.
                Ending::Early(at, outcome) => {
                    let at = priors.get(at).copied().unwrap_or(self.all.len());
                    *self.found.early.entry((at, outcome)).or_default() += 1;
                }
                Ending::Spoiled(outcome) => why = why.or(Some(format!("a trial could not be made: {outcome}"))),
            }
        }
        (tally, why)
    }

    fn goes_on(&mut self, halt: Option<String>) -> Option<()> {
        match halt {
            None => Some(()),
            Some(why) => {
                self.give_up(why);
                None
            }
        }
    }

    fn give_up(&mut self, why: String) {
        self.found.gave_up.get_or_insert(why);
    }
}

/// Trials of each of two rates after which they are told apart, with room for
/// rates that are a little nearer than they seem.
fn runs_to_tell(high: f64, low: f64) -> u64 {
    let count = |rate: f64, runs: u64| ((rate * runs as f64).round() as u64, runs);
    let clear = |runs: &u64| fisher(count(high, *runs), count(low, *runs)) < LEVEL / 10.0;
    (1..=MOST_CONFIRM).find(clear).unwrap_or(MOST_CONFIRM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn failed(failed: bool) -> Ending {
        if failed { Ending::Failed("fail.assert".into()) } else { Ending::Passed }
    }

    /// What the search finds among 40 prior cases, where the watched case fails at
    /// `own` by itself and at `after` when case 7 came before it.
    fn found(own: f64, after: f64, seed: u64) -> Replayed {
        let mut rng = Rng::new(seed + 1);
        let mut run = |priors: &[usize], count: u64| {
            let rate = if priors.contains(&7) { after } else { own };
            ((0..count).map(|_| failed(rng.unit() < rate)).collect(), None)
        };
        Search::new(40, 2, &mut run).go(true, None)
    }

    /// How many of 100 searches blame prior cases, and how many of them case 7 alone.
    fn blamed(own: f64, after: f64) -> (usize, usize) {
        let sets: Vec<_> = (0..100).filter_map(|seed| found(own, after, seed).set).collect();
        let of = |wanted: &dyn Fn(&Vec<usize>) -> bool| sets.iter().filter(|set| wanted(set)).count();
        (of(&|set| !set.is_empty()), of(&|set| *set == [7]))
    }

    #[test]
    fn innocent_cases_are_not_blamed() {
        for rate in [1.0, 0.9, 0.6, 0.4, 0.1] {
            let (any, _) = blamed(rate, rate);
            assert!(any <= 1, "at {rate}, {any} of 100 blame a case");
        }
    }

    #[test]
    fn guilty_cases_are_not_cleared() {
        for (own, after, least) in [(0.0, 1.0, 100), (0.0, 0.5, 95), (0.0, 0.2, 95), (0.02, 1.0, 95), (0.02, 0.6, 95)] {
            let (any, right) = blamed(own, after);
            assert!(right >= least, "{own} -> {after}: {right} right of {any} of 100");
        }
    }

    /// A case that also fails alone, less often, is no excuse for the one that raises its rate.
    #[test]
    fn guilty_cases_are_found_beside_a_rate_of_its_own() {
        for (own, after) in [(0.4, 1.0), (0.2, 0.8), (0.1, 0.4), (0.1, 1.0), (0.6, 1.0)] {
            let (any, right) = blamed(own, after);
            assert!(right >= 95, "{own} -> {after}: {right} right of {any} of 100");
        }
    }

    /// What fails each time alone is said soon.
    #[test]
    fn a_broken_case_takes_few_trials() {
        let found = found(1.0, 1.0, 3);
        assert_eq!(found.set.as_deref(), Some(&[][..]));
        assert!(found.trials <= 16, "{}", found.trials);
    }

    /// Behind nothing there is nothing to search.
    #[test]
    fn a_first_case_is_alone() {
        let mut run = |_: &[usize], count: u64| ((0..count).map(|n| failed(n % 2 == 0)).collect(), None);
        let found = Search::new(0, 2, &mut run).go(true, Some(6));
        assert_eq!((found.set.as_deref(), found.trials, found.alone), (Some(&[][..]), 6, found.full));
    }

    /// What has ended when the time is over counts.
    #[test]
    fn what_was_seen_is_told() {
        let mut run = |_: &[usize], _: u64| (vec![failed(true); 4], Some(Halt::Late));
        let found = Search::new(3, 2, &mut run).go(true, Some(1000));
        assert_eq!((found.full.failures, found.trials), (4, 4));
        assert_eq!(found.gave_up.as_deref(), Some("the time of --budget was over"));
    }
}
