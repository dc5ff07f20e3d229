//! One thing to run, and what came of it.

use super::{Death, Output};
use crate::case::Case;
use crate::verdict::{Outcome, Verdict};
use std::sync::Arc;

/// A case that waits for a worker.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) case: Arc<Case>,
    /// Retries of this case before this one.
    pub(crate) attempt: u32,
    /// The how manyth repetition, where a case is run many times.
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
    /// Needs a worker that has run nothing before.
    pub(crate) fresh: bool,
    /// The worker ends after it.
    pub(crate) alone: bool,
    /// A slot whose device should not take it while another one can.
    pub(crate) avoid: Option<usize>,
    /// The only slot that may take it.
    pub(crate) pin: Option<usize>,
    /// Workers that died on receiving it, before it began.
    pub(crate) strikes: u32,
}

impl Job {
    /// The first attempt at a case.
    pub(crate) fn new(case: Arc<Case>, seed: u64) -> Self {
        Self { case, attempt: 0, repeat: 0, seed, fresh: false, alone: false, avoid: None, pin: None, strikes: 0 }
    }

    /// A result of this job that no worker gave.
    pub(crate) fn result(&self, outcome: Outcome) -> CaseResult {
        CaseResult {
            case: self.case.clone(),
            slot: usize::MAX,
            worker: String::new(),
            attempt: self.attempt,
            repeat: self.repeat,
            seed: self.seed,
            position: 0,
            start_ns: 0,
            dur_ns: 0,
            outcome,
            death: None,
            output: Box::default(),
            carried_from: None,
        }
    }
}

/// One finished attempt.
#[derive(Clone, Debug)]
pub(crate) struct CaseResult {
    pub(crate) case: Arc<Case>,
    /// `usize::MAX` where no slot had a part in it.
    pub(crate) slot: usize,
    pub(crate) worker: String,
    pub(crate) attempt: u32,
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
    /// The how manyth case of its worker, from 0.
    pub(crate) position: u64,
    pub(crate) start_ns: u64,
    pub(crate) dur_ns: u64,
    pub(crate) outcome: Outcome,
    pub(crate) death: Option<Death>,
    /// What the worker wrote, of a failed attempt.
    pub(crate) output: Box<Output>,
    /// The run that made it, where a later one goes on with the case.
    pub(crate) carried_from: Option<String>,
}

/// The verdict on a case, from all its attempts.
#[derive(Clone, Debug)]
pub(crate) struct Conclusion {
    pub(crate) case: Arc<Case>,
    pub(crate) verdict: Verdict,
    /// Outcome names of the attempts, in order.
    pub(crate) outcomes: Vec<String>,
    /// Attempts that failed.
    pub(crate) failures: u32,
    /// The attempt that stands for the case: the worst failed one, or else the last.
    pub(crate) result: CaseResult,
}

impl Conclusion {
    /// A case with one attempt.
    pub(crate) fn single(result: CaseResult) -> Self {
        let verdict = result.outcome.verdict;
        Self {
            case: result.case.clone(),
            verdict,
            outcomes: vec![result.outcome.outcome.clone()],
            failures: u32::from(verdict.is_failure()),
            result,
        }
    }

    /// What is said of a case whose further attempts a stop of the run prevents. A
    /// failure that would have been tried again is no verdict yet: the case stays
    /// open, and whoever goes on with the run begins at the attempts that are recorded.
    pub(super) fn interrupted(mut self) -> Self {
        let Outcome { outcome, detail, .. } = &self.result.outcome;
        let times = if self.failures == 1 { "once".into() } else { format!("{} times", self.failures) };
        let why = "the run was stopped before the case had all its attempts";
        let detail = format!("{why}\nit failed {times}, by {outcome}: {detail}");
        let outcome = Outcome::of(Verdict::Skip, "not_run.interrupted", detail.trim_end_matches(": "));
        self.result = Job::new(self.case.clone(), self.result.seed).result(outcome);
        self.verdict = Verdict::Skip;
        self
    }
}
