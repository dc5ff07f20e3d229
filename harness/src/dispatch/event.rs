//! What slots tell whoever records and shows a run.

use super::WorkerEnd;
use crate::case::Case;
use crate::crumb::Page;
use crate::outcome::{CaseResult, Conclusion};
use std::sync::Arc;

/// What happens during a run, in order for each slot.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Spawned {
        slot: usize,
        worker: String,
        pid: u32,
        /// Where it says what it is at.
        page: Arc<Page>,
    },
    Ready {
        slot: usize,
        worker: String,
        device: String,
        notes: Vec<String>,
        ready_ns: u64,
    },
    Started {
        slot: usize,
        case: Arc<Case>,
    },
    /// An attempt has ended.
    Finished(Box<CaseResult>),
    /// The verdict on a case is known.
    Concluded(Box<Conclusion>),
    Ended {
        slot: usize,
        worker: String,
        reason: String,
        cases_run: u64,
        worker_end: WorkerEnd,
    },
    /// The slot takes no more cases.
    Retired {
        slot: usize,
        code: String,
        reason: String,
    },
    /// Something for the record, and perhaps for people.
    Record {
        kind: &'static str,
        fields: serde_json::Value,
        say: Option<String>,
    },
    /// Nothing happened for a while.
    Tick,
}
