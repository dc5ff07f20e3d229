//! Where slots get their work: the queue of `run`, or whatever a command that
//! repeats cases decides next.

use super::job::Job;
use crate::outcome::{CaseResult, Conclusion};

/// What a slot gets.
#[derive(Debug)]
pub(crate) enum Take {
    Job(Box<Job>),
    /// Nothing at the moment, but there may be later.
    Wait,
    /// Nothing any more.
    Done,
}

/// What a slot has when it asks for jobs ahead.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Jobs that were taken ahead.
    pub(crate) jobs: usize,
    /// How long they, and the one that begins, are expected to take.
    pub(crate) expected_ns: u64,
}

/// What becomes of a case after an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Settled {
    /// It is run again.
    Again,
    /// Its verdict is known.
    Concluded(Box<Conclusion>),
    /// The source keeps its own account.
    Noted,
}

/// A source of work. Each job that is taken is either settled or put back, once.
/// Called from the threads of all slots.
pub(crate) trait Source: Sync {
    /// The next job for a slot.
    fn take(&self, slot: usize) -> Take;

    /// Jobs that a slot holds ahead for each of its threads that compile. Neighbours often share a kernel, which one
    /// thread compiles: a wide look keeps all busy.
    fn ahead_a_thread(&self) -> usize {
        6
    }

    /// Jobs that this slot will most likely run next, so that they can be
    /// prepared; they are taken as by [`Source::take`]. The slot wants `wanted` such jobs in all.
    fn ahead(&self, slot: usize, held: Held, wanted: usize) -> Vec<Job> {
        let _ = (slot, held, wanted);
        Vec::new()
    }

    /// Whether the jobs that a slot took ahead may run in another order than they came.
    fn in_any_order(&self) -> bool {
        false
    }

    /// Whether no further job is to be started, although some were taken ahead.
    fn closed(&self) -> bool {
        false
    }

    /// An attempt has ended. The source may change how its outcome is judged.
    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled;

    /// The job was not run: its worker or device was lost before, or the run is stopped.
    fn put_back(&self, job: Job);

    /// The slot takes no more jobs.
    fn leave(&self, slot: usize) {
        let _ = slot;
    }

    /// Jobs that nobody took, once all slots have ended. `stopped` tells a stop
    /// by signal from the loss of all slots, for `reason`.
    fn rest(&self, stopped: bool, reason: &str) -> Vec<Conclusion> {
        let _ = (stopped, reason);
        Vec::new()
    }
}
