//! The order of cases and the queue that all slots share.

use crate::case::Case;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// A case that waits.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) case: Arc<Case>,
    /// Times that a worker died on receiving it, before the case began.
    pub(super) strikes: u32,
}

/// The shared queue.
pub(super) struct Queue(Mutex<VecDeque<Job>>);

impl Queue {
    pub(super) fn new(cases: &[Arc<Case>]) -> Self {
        Self(Mutex::new(cases.iter().map(|case| Job { case: case.clone(), strikes: 0 }).collect()))
    }
    pub(super) fn pop(&self) -> Option<Job> {
        self.lock().pop_front()
    }
    pub(super) fn put_back(&self, job: Job) {
        self.lock().push_front(job);
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Job>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What earlier runs say about a case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) dur_ns: Option<u64>,
    pub(crate) failed: bool,
}

/// Failed first, then unknown ones, then the longest first, so that no long case
/// is left for the end; ties keep the order of the files.
pub(crate) fn order(cases: &mut [Arc<Case>], known: &BTreeMap<String, Known>) {
    cases.sort_by_cached_key(|case| {
        let known = known.get(&case.id).copied().unwrap_or_default();
        (!known.failed, std::cmp::Reverse(known.dur_ns.unwrap_or(u64::MAX)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_then_unknown_then_longest() {
        let case = |id: &str| Arc::new(Case { id: id.into(), ..Case::default() });
        let mut cases: Vec<_> = ["short", "new", "long", "broken", "newer"].map(case).to_vec();
        let entry = |id: &str, dur_ns, failed| (id.to_string(), Known { dur_ns: Some(dur_ns), failed });
        let known = BTreeMap::from([entry("short", 1, false), entry("long", 9, false), entry("broken", 5, true)]);
        order(&mut cases, &known);
        let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids, ["broken", "new", "newer", "long", "short"]);
    }
}
