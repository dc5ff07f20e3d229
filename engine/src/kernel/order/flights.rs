//! Asynchronous copies that have not been waited for.
//!
//! A copy writes its elements at some moment between its start and the wait for its group, so it counts as a write
//! of its thread at either end, and in between nobody may touch the elements.

use super::guards::GuardId;
use super::mask::Mask;
use rustc_hash::FxHashMap;

/// A copy that some threads have not waited for.
struct Flight {
    /// The first element of each thread, and how many follow each other.
    first: Vec<u64>,
    lanes: u32,
    stmt: u32,
    /// Threads that have not waited.
    threads: Mask,
    /// The number of each thread's group.
    group: Vec<u32>,
}

/// What is on its way to an element.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    pub(super) thread: u16,
    pub(super) stmt: u32,
    pub(super) guard: GuardId,
}

/// What landed: a thread, its first element, how many follow, and the copy's statement.
pub(super) struct Landed {
    pub(super) thread: usize,
    pub(super) first: u64,
    pub(super) lanes: u32,
    pub(super) stmt: u32,
}

/// The copies of a block.
#[derive(Default)]
pub(super) struct Flights {
    open: Vec<Flight>,
    /// Looked up only.
    coming: FxHashMap<u64, Coming>,
    /// Groups that each thread ended.
    ended: Vec<u32>,
}

impl Flights {
    pub(super) fn new(threads: usize) -> Self {
        Self { ended: vec![0; threads], ..Self::default() }
    }

    /// Threads start copies to elements, `first` of each thread and the next ones.
    pub(super) fn start(&mut self, first: Vec<u64>, lanes: u32, threads: &Mask, stmt: u32, guard: GuardId) {
        threads.each(|t| {
            for element in first[t]..first[t] + u64::from(lanes) {
                self.coming.insert(element, Coming { thread: t as u16, stmt, guard });
            }
        });
        let group = self.ended.clone();
        self.open.push(Flight { first, lanes, stmt, threads: threads.clone(), group });
    }

    /// Ends the groups of some threads.
    pub(super) fn end(&mut self, threads: &Mask) {
        threads.each(|t| self.ended[t] += 1);
    }

    /// Threads wait until at most their latest `open` groups have not landed.
    pub(super) fn wait(&mut self, waiting: &Mask, open: u32) -> Vec<Landed> {
        let mut landed = Vec::new();
        let (ended, coming) = (&self.ended, &mut self.coming);
        for flight in &mut self.open {
            let done = waiting.filter(|t| flight.threads.has(t) && flight.group[t] + open < ended[t]);
            done.each(|t| {
                let (first, lanes) = (flight.first[t], flight.lanes);
                for element in first..first + u64::from(lanes) {
                    coming.remove(&element);
                }
                landed.push(Landed { thread: t, first, lanes, stmt: flight.stmt });
            });
            flight.threads = flight.threads.filter(|t| !done.has(t));
        }
        self.open.retain(|flight| !flight.threads.is_empty());
        landed
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.coming.is_empty()
    }

    /// What is on its way to an element.
    pub(super) fn over(&self, element: u64) -> Option<Coming> {
        self.coming.get(&element).copied()
    }
}
