//! What came of one attempt at a case, and the verdict from all of them.

use super::{Death, Outcome, PassedBy, Verdict, WorkerOutput};
use crate::case::Case;
use std::sync::Arc;

/// One finished attempt.
#[derive(Clone, Debug)]
pub(crate) struct CaseResult {
    pub(crate) case: Arc<Case>,
    /// The slot whose worker ran it; `None` where none had a part in it.
    pub(crate) slot: Option<usize>,
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
    pub(crate) output: Box<WorkerOutput>,
    /// The run that made it, where a later one goes on with the case.
    pub(crate) carried_from: Option<String>,
}

impl CaseResult {
    /// Of a first attempt in which no worker had a part.
    pub(crate) fn without_worker(case: Arc<Case>, seed: u64, outcome: Outcome) -> Self {
        Self {
            case,
            slot: None,
            worker: String::new(),
            attempt: 0,
            repeat: 0,
            seed,
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
    /// What the case passed by, if it did.
    pub(crate) fn passed_by(&self) -> Option<PassedBy> {
        self.result.outcome.passed_by().filter(|_| self.verdict == Verdict::Pass)
    }

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
    pub(crate) fn interrupted(mut self) -> Self {
        let Outcome { outcome, detail, .. } = &self.result.outcome;
        let times = if self.failures == 1 { "once".into() } else { format!("{} times", self.failures) };
        let why = "the run was stopped before the case had all its attempts";
        let detail = format!("{why}\nit failed {times}, by {outcome}: {detail}");
        let outcome = Outcome::of(Verdict::Skip, "not_run.interrupted", detail.trim_end_matches(": "));
        self.result = CaseResult::without_worker(self.case.clone(), self.result.seed, outcome);
        self.verdict = Verdict::Skip;
        self
    }
}
