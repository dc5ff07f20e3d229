//! Order made by fences and atomics between threads that share no barrier.
//!
//! A thread that executed a fence and then updates a location atomically
//! *releases*: whatever was ordered before its fence. A thread that updates the
//! same location later and then executes a fence *acquires* all releases made
//! at that location before its update. Barriers pass on what one thread
//! acquired to its block. This is the fence-fence synchronisation of the PTX
//! memory model with relaxed atomics; as there, an atomic without fences orders
//! nothing.
//!
//! Releases at a location are kept in order, so what a thread acquired is just
//! the location and how many of them it saw.
//!
//! One leniency: a fence that a thread executed before a block barrier also
//! covers that thread's writes when another thread of the block, after the
//! barrier, fences or has fenced and updates the location. Hardware behaves so.

use crate::shadow::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// A location: position in [`Clocks::locations`].
type Location = u32;

/// The first `seen` releases at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    location: Location,
    seen: u32,
}

/// What one atomic after a fence made known.
#[derive(Debug)]
struct Release {
    /// Accesses of the block before this event.
    base: u64,
    /// Accesses of `thread` before this event.
    thread: u32,
    upto: u64,
    /// Accesses of each thread before its own fence, itself before a barrier.
    fenced: Option<Rc<[u64]>>,
    /// What the releasing thread had acquired.
    acquired: Vec<Seen>,
}

#[derive(Debug, Default)]
struct ReleaseLog {
    releases: Vec<Release>,
    // Look-up only.
    by_block: HashMap<u32, Vec<u32>>,
    /// Releases that pass on acquired knowledge.
    chained: Vec<u32>,
}

/// All locations that were updated atomically after a fence.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    locations: Vec<ReleaseLog>,
    // Look-up only: (buffer, element, block for shared memory).
    ids: HashMap<(u16, u64, u32), Location>,
}

/// What a thread of a block acquired, or will by its next fence.
#[derive(Clone, Copy, Debug)]
struct ThreadSeen {
    thread: u32,
    seen: Seen,
    acquired: bool,
}

/// The part of the state that belongs to a block.
#[derive(Debug, Default)]
pub(crate) struct BlockSync {
    /// For each thread that fenced since the block began: (base, upto).
    fences: Vec<(u64, u64)>,
    fenced_since_barrier: bool,
    fenced: Option<Rc<[u64]>>,
    acquired: Vec<Seen>,
    pending: Vec<Seen>,
    threads: Vec<ThreadSeen>,
}

impl BlockSync {
    pub(crate) fn new(threads: u32) -> Self {
        Self { fences: vec![(0, 0); threads as usize], ..Self::default() }
    }

    /// A grid-scope fence by a thread, when the next event is `next`.
    pub(crate) fn fence(&mut self, thread: u32, block_base: u64, next: u64) {
        self.fences[thread as usize] = (block_base, next);
        self.fenced_since_barrier = true;
        for entry in self.threads.iter_mut().filter(|entry| entry.thread == thread) {
            entry.acquired = true;
        }
        for &seen in &self.pending {
            self.threads.push(ThreadSeen { thread, seen, acquired: true });
        }
    }

    /// A barrier of the block completes.
    pub(crate) fn barrier(&mut self) {
        if self.fenced_since_barrier {
            self.fenced = Some(self.fences.iter().map(|&(_, upto)| upto).collect());
            self.fenced_since_barrier = false;
        }
        for entry in std::mem::take(&mut self.threads) {
            let list = if entry.acquired { &mut self.acquired } else { &mut self.pending };
            merge(list, entry.seen);
        }
    }

    fn known(&self, thread: u32) -> impl Iterator<Item = Seen> + '_ {
        let own = self.threads.iter().filter(move |entry| entry.acquired && entry.thread == thread);
        self.acquired.iter().copied().chain(own.map(|entry| entry.seen))
    }
}

fn merge(list: &mut Vec<Seen>, new: Seen) {
    match list.iter_mut().find(|old| old.location == new.location) {
        Some(old) => old.seen = old.seen.max(new.seen),
        None => list.push(new),
    }
}

impl Clocks {
    /// A thread updates a location: it sees the releases made there so far, and
    /// releases if it fenced before.
    pub(crate) fn atomic(&mut self, sync: &mut BlockSync, key: (u16, u64, u32), block: u32, thread: u32) {
        let next = self.locations.len() as Location;
        let location = *self.ids.entry(key).or_insert(next);
        if location == next {
            self.locations.push(ReleaseLog::default());
        }
        let log = &mut self.locations[location as usize];
        let seen = Seen { location, seen: log.releases.len() as u32 };
        let (base, upto) = sync.fences[thread as usize];
        if upto > 0 {
            let acquired: Vec<Seen> = sync.known(thread).collect();
            let id = log.releases.len() as u32;
            log.by_block.entry(block).or_default().push(id);
            if !acquired.is_empty() {
                log.chained.push(id);
            }
            log.releases.push(Release { base, thread, upto, fenced: sync.fenced.clone(), acquired });
        }
        if seen.seen > 0 {
            match sync.threads.iter_mut().find(|e| e.thread == thread && !e.acquired && e.seen.location == location) {
                Some(entry) => entry.seen = seen,
                None => sync.threads.push(ThreadSeen { thread, seen, acquired: false }),
            }
        }
    }

    /// Whether the access of a cell is among what a thread acquired.
    pub(crate) fn ordered(&self, sync: &BlockSync, cell: Cell, thread: u32) -> bool {
        let mut visited = Vec::new();
        sync.known(thread).any(|seen| self.covered(seen, cell, &mut visited))
    }

    fn covered(&self, seen: Seen, cell: Cell, visited: &mut Vec<Seen>) -> bool {
        if visited.iter().any(|v| v.location == seen.location && v.seen >= seen.seen) {
            return false;
        }
        visited.push(seen);
        let log = &self.locations[seen.location as usize];
        let event = cell.event();
        let covers = |release: &Release| {
            // A set of several threads is covered only as a whole, by the barrier.
            event < release.base
                || cell.many() == 0
                    && (cell.thread() == release.thread && event < release.upto
                        || release.fenced.as_ref().is_some_and(|fenced| event < fenced[cell.thread() as usize]))
        };
        let direct = log.by_block.get(&cell.block()).is_some_and(|ids| {
            ids.iter().take_while(|&&id| id < seen.seen).any(|&id| covers(&log.releases[id as usize]))
        });
        direct && cell.many() < 3
            || log
                .chained
                .iter()
                .take_while(|&&id| id < seen.seen)
                .any(|&id| log.releases[id as usize].acquired.iter().any(|&next| self.covered(next, cell, visited)))
    }
}
