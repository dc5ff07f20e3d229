//! Which memory of a device is free, for which stream, and how much is held.
//!
//! In: addresses that the driver gave and that buffers gave back. Out: addresses, each for one
//! buffer at a time. Knows nothing of the driver, who allocates and frees.
//!
//! Invariants: an address is in the pool or with one buffer, or was drained and comes no more; the
//! figures are the sums of what is where.

use super::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Memory that was given back, by stream and size.
#[derive(Debug)]
pub(super) struct MemoryPool<S> {
    state: Mutex<PoolState<S>>,
}

#[derive(Debug)]
struct PoolState<S> {
    /// Most recently given back last.
    free: BTreeMap<(S, usize), Vec<u64>>,
    used: MemoryUse,
}

/// Bytes of device memory that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// In buffers of calls: nothing between two calls.
    pub live: usize,
    /// In buffers that outlive calls: of loaded kernels, of the timer.
    pub kept: usize,
    /// Given back, and ready to be handed out again.
    pub cached: usize,
}

impl MemoryUse {
    /// Everything that was asked of the driver.
    pub fn total(&self) -> usize {
        self.live + self.kept + self.cached
    }
    fn of(&mut self, kept: bool) -> &mut usize {
        if kept { &mut self.kept } else { &mut self.live }
    }
}

impl<S> Default for MemoryPool<S> {
    fn default() -> Self {
        Self { state: Mutex::new(PoolState { free: BTreeMap::new(), used: MemoryUse::default() }) }
    }
}

impl<S: Ord> MemoryPool<S> {
    // Nothing in here panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, PoolState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much is where.
    pub(super) fn used(&self) -> MemoryUse {
        self.lock().used
    }

    /// Memory of that size which work on the stream may have at once, if there is some.
    pub(super) fn take(&self, stream: S, capacity: usize, kept: bool) -> Option<u64> {
        let mut state = self.lock();
        let address = state.free.get_mut(&(stream, capacity))?.pop()?;
        state.used.cached -= capacity;
        *state.used.of(kept) += capacity;
        Some(address)
    }

    /// A buffer has memory that the driver gave.
    pub(super) fn add(&self, capacity: usize, kept: bool) {
        *self.lock().used.of(kept) += capacity;
    }

    /// A buffer ends.
    pub(super) fn give_back(&self, stream: S, capacity: usize, kept: bool, address: u64) {
        let mut state = self.lock();
        *state.used.of(kept) -= capacity;
        state.used.cached += capacity;
        state.free.entry((stream, capacity)).or_default().push(address);
    }

    /// All free memory, which is the caller's from now on.
    pub(super) fn drain(&self) -> Vec<u64> {
        let mut state = self.lock();
        state.used.cached = 0;
        std::mem::take(&mut state.free).into_values().flatten().collect()
    }
}
