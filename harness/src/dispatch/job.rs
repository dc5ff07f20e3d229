//! One thing to run.

use crate::case::Case;
use crate::outcome::{CaseResult, Outcome};
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
    /// How long it took before, in nanoseconds; 0 where nobody knows.
    pub(crate) expected_ns: u64,
    /// Whether it failed the last time: such a case comes first.
    pub(crate) failed_before: bool,
}

/// A case that is expected to take so long on a GPU is one whose inputs, reference and comparison use all threads of a
/// worker and the memory of the host: others go well beside it, not more of its kind.
pub(super) const LONG_NS: u64 = 30_000_000;

impl Job {
    /// Whether it takes much longer than most.
    pub(super) fn is_long(&self) -> bool {
        self.expected_ns >= LONG_NS
    }

    /// The first attempt at a case.
    pub(crate) fn new(case: Arc<Case>, seed: u64) -> Self {
        Self {
            case,
            attempt: 0,
            repeat: 0,
            seed,
            fresh: false,
            alone: false,
            avoid: None,
            pin: None,
            strikes: 0,
            expected_ns: 0,
            failed_before: false,
        }
    }

    /// Whether it is the same attempt at the same case.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.case, &other.case) && (self.attempt, self.repeat) == (other.attempt, other.repeat)
    }

    /// A result of this job that no worker gave.
    pub(crate) fn result(&self, outcome: Outcome) -> CaseResult {
        let (attempt, repeat) = (self.attempt, self.repeat);
        CaseResult { attempt, repeat, ..CaseResult::without_worker(self.case.clone(), self.seed, outcome) }
    }
}
