//! The verdict on a case from its attempts. Pure: attempts in, the next step out.
//!
//! A failure is tried again in a fresh worker, then on another device. The same
//! failure each time is the verdict; a pass after a failure is `flaky`, never
//! `pass`, and is repeated some more times for a rate. What the machine did
//! wrong (`infra`) is tried elsewhere and never counts against the case.

use crate::outcome::{CaseResult, Conclusion, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// How often a case may be tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    /// After a failure.
    pub(crate) after_failure: u32,
    /// After the loss of a worker or device.
    pub(crate) after_infra: u32,
    /// Runs of a case that failed and then passed, all attempts counted.
    pub(crate) flaky_runs: u32,
    /// Time that such runs may take together.
    pub(crate) flaky_time: Duration,
}

impl Retries {
    /// Each case once.
    pub(crate) const NONE: Self = Self { after_failure: 0, after_infra: 0, flaky_runs: 0, flaky_time: Duration::ZERO };

    /// What `run` does by default.
    pub(crate) const USUAL: Self =
        Self { after_failure: 2, after_infra: 3, flaky_runs: 20, flaky_time: Duration::from_secs(30) };
}

/// Workers that a case may kill before it runs alone in a worker.
const POISON: u32 = 2;

/// What has happened to one case.
#[derive(Debug, Default)]
pub(super) struct Track {
    outcomes: Vec<String>,
    /// Attempts, without those that the machine spoiled.
    judged: u32,
    failures: u32,
    infra: u32,
    kills: u32,
    spent_ns: u64,
    /// The worst failed attempt, the first of equals, or else the last one.
    shown: Option<CaseResult>,
}

/// How bad a failure is: a dead worker tells more than a judgement, and the
/// machine's fault says least about the case.
pub(super) fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Crash => 4,
        Verdict::Hang => 3,
        Verdict::Fail => 2,
        Verdict::Infra => 1,
        _ => 0,
    }
}

/// What to do with a case.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Run it again.
    Again(Again),
    Conclude(Box<Conclusion>),
}

/// How to run it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) fresh: bool,
    pub(super) alone: bool,
    /// On another device, where there is one.
    pub(super) elsewhere: bool,
    /// A repetition to learn a rate, not a retry.
    pub(super) repeat: bool,
}

impl Track {
    /// Takes in an attempt. `may_retry` is false where the run has retried enough.
    pub(super) fn step(&mut self, result: &CaseResult, retries: &Retries, may_retry: bool) -> NextStep {
        let verdict = result.outcome.verdict;
        self.outcomes.push(result.outcome.outcome.clone());
        self.spent_ns = self.spent_ns.saturating_add(result.dur_ns);
        if verdict == Verdict::Infra {
            self.infra += 1;
            if self.infra <= retries.after_infra {
                return self.again(true, false);
            }
            // What the case itself did is not forgotten over what the machine did.
            let verdict = match (self.failures, self.judged - self.failures) {
                (0, _) => Verdict::Infra,
                (_, 0) => self.failed_as(),
                _ => Verdict::Flaky,
            };
            return self.conclude(verdict, result);
        }
        self.judged += 1;
        self.kills += u32::from(matches!(verdict, Verdict::Crash | Verdict::Hang));
        let failed = verdict.is_failure();
        let worse = self.shown.as_ref().is_none_or(|shown| rank(verdict) > rank(shown.outcome.verdict));
        if self.failures == 0 || failed && worse {
            self.shown = Some(result.clone());
        }
        self.failures += u32::from(failed);
        match (self.failures, self.judged - self.failures) {
            (0, _) => self.conclude(verdict, result),
            (failures, 0) if may_retry && failures <= retries.after_failure => self.again(failures > 1, false),
            (_, 0) => self.conclude(self.failed_as(), result),
            _ if self.judged < retries.flaky_runs && self.spent_ns < retries.flaky_time.as_nanos() as u64 => {
                self.again(false, true)
            }
            _ => self.conclude(Verdict::Flaky, result),
        }
    }

    /// Whether the case has failed before.
    pub(super) fn retried(&self) -> bool {
        self.failures > 0
    }

    /// The verdict if there will be no further attempt; none without a judged one.
    pub(super) fn so_far(mut self) -> Option<Conclusion> {
        let verdict = if self.judged == self.failures { self.failed_as() } else { Verdict::Flaky };
        let shown = self.shown.clone().filter(|_| self.failures > 0)?;
        match self.conclude(verdict, &shown) {
            NextStep::Conclude(conclusion) => Some(*conclusion),
            NextStep::Again(_) => None,
        }
    }

    fn again(&self, elsewhere: bool, repeat: bool) -> NextStep {
        let alone = self.kills >= POISON;
        NextStep::Again(Again { fresh: !repeat || alone, alone, elsewhere, repeat })
    }

    /// The verdict on a case that failed each time: that of its worst failure.
    fn failed_as(&self) -> Verdict {
        self.shown.as_ref().map_or(Verdict::Fail, |shown| shown.outcome.verdict)
    }

    fn conclude(&mut self, verdict: Verdict, last: &CaseResult) -> NextStep {
        let result = self.shown.take().unwrap_or_else(|| last.clone());
        NextStep::Conclude(Box::new(Conclusion {
            case: Arc::clone(&result.case),
            verdict,
            outcomes: std::mem::take(&mut self.outcomes),
            failures: self.failures,
            result,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::*;
    use crate::case::Case;
    use crate::outcome::Outcome;

    /// Feeds outcomes until a conclusion: the verdict, the attempts used, and the
    /// steps between as letters (f fresh, a alone, e elsewhere, r repetition).
    #[track_caller]
    fn check(outcomes: &[Verdict], retries: &Retries, wanted: (Verdict, usize, &str)) {
        let job = Job::new(Arc::new(Case::default()), 0);
        let mut track = Track::default();
        let mut steps = Vec::new();
        for (used, verdict) in outcomes.iter().enumerate() {
            let result = job.result(Outcome::of(*verdict, verdict.name(), ""));
            match track.step(&result, retries, true) {
                NextStep::Again(again) => {
                    let Again { fresh, alone, elsewhere, repeat } = again;
                    let letters = [(fresh, 'f'), (alone, 'a'), (elsewhere, 'e'), (repeat, 'r')];
                    steps.push(letters.iter().filter(|(on, _)| *on).map(|(_, c)| *c).collect::<String>());
                }
                NextStep::Conclude(conclusion) => {
                    let steps = steps.join(" ");
                    assert_eq!((conclusion.verdict, used + 1, steps.as_str()), wanted);
                    assert_eq!(conclusion.outcomes.len(), used + 1);
                    return;
                }
            }
        }
        panic!("no conclusion after {} attempts", outcomes.len());
    }

    #[test]
    fn the_verdict_follows_from_the_attempts() {
        use Verdict::{Crash, Fail, Flaky, Infra, Pass, Skip};
        let usual = Retries { flaky_runs: 4, ..Retries::USUAL };
        check(&[Pass], &usual, (Pass, 1, ""));
        check(&[Skip], &usual, (Skip, 1, ""));
        check(&[Fail], &Retries::NONE, (Fail, 1, ""));
        check(&[Fail, Fail, Fail], &usual, (Fail, 3, "f fe"));
        check(&[Fail, Pass, Pass, Pass], &usual, (Flaky, 4, "f r r"));
        check(&[Fail, Fail, Pass, Pass], &usual, (Flaky, 4, "f fe r"));
        check(&[Crash, Crash, Crash], &usual, (Crash, 3, "f fae"));
        check(&[Infra, Infra, Pass], &usual, (Pass, 3, "fe fe"));
        check(&[Infra; 4], &usual, (Infra, 4, "fe fe fe"));
        check(&[Fail, Crash, Crash], &usual, (Crash, 3, "f fe"));
        check(&[Crash, Infra, Infra, Infra, Infra], &usual, (Crash, 5, "f fe fe fe"));
        check(&[Infra, Fail, Infra, Fail, Fail], &usual, (Fail, 5, "fe f fe fe"));
        check(&[Fail, Pass], &Retries { flaky_runs: 0, ..usual }, (Flaky, 2, "f"));
    }

    #[test]
    fn a_run_that_has_retried_enough_judges_at_once() {
        let job = Job::new(Arc::new(Case::default()), 0);
        let failed = job.result(Outcome::fail("fail.numerics", ""));
        let step = Track::default().step(&failed, &Retries::USUAL, false);
        assert!(matches!(step, NextStep::Conclude(conclusion) if conclusion.verdict == Verdict::Fail));
    }
}
