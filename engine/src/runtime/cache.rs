//! A bounded map from content hashes to shared values, or to why there are none.

use super::sync::{Condvar, Mutex, MutexGuard};
use crate::diag::{Diagnostic, DiagnosticKind, Result};
use crate::util::{Hash128, SortedMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

/// Keeps the `capacity` values that were asked for last, and what refuses others: a refusal costs
/// as much as a value to find out, and is as certain. Values are shared, so one that is dropped
/// from the cache lives on for those who hold it.
pub(super) struct Cache<V> {
    capacity: usize,
    state: Mutex<CacheState<V>>,
    /// A value was made, or given up.
    made: Condvar,
}

struct CacheState<V> {
    entries: SortedMap<Hash128, Entry<V>>,
    /// Keys of entries by when they were asked for last.
    by_use: BTreeMap<u64, Hash128>,
    /// How often entries were asked for.
    uses: u64,
    /// Keys whose value is being made.
    pending: BTreeSet<Hash128>,
}

struct Entry<V> {
    found: Result<Arc<V>>,
    used: u64,
}

impl<V> CacheState<V> {
    /// What is under a key, which counts as used now.
    fn find(&mut self, key: Hash128) -> Option<Result<Arc<V>>> {
        let entry = self.entries.get_mut(&key)?;
        self.by_use.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.by_use.insert(entry.used, key);
        Some(entry.found.clone())
    }

    /// Adds what nothing was known of. Returns what goes for it.
    fn add(&mut self, key: Hash128, found: Result<Arc<V>>, capacity: usize) -> Option<Entry<V>> {
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, Entry { found, used: self.uses });
        let full = self.entries.len() > capacity;
        let (_, oldest) = if full { self.by_use.pop_first() } else { None }?;
        self.entries.remove(&oldest)
    }
}

impl<V> Cache<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let (entries, by_use, pending) = (SortedMap::new(), BTreeMap::new(), BTreeSet::new());
        let state = CacheState { entries, by_use, uses: 0, pending };
        Self { capacity: capacity.max(1), state: Mutex::new(state), made: Condvar::new() }
    }

    // A panic elsewhere leaves the maps as they were before or after an insertion.
    fn lock(&self) -> MutexGuard<'_, CacheState<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value under a key, made outside the lock if it is not there. A thread
    /// that wants what another one is making waits for it; where that fails, it
    /// tries itself, but for a refusal, which is everybody's.
    pub(super) fn get_or_try(&self, key: Hash128, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let mut state = self.lock();
        loop {
            if let Some(found) = state.find(key) {
                return found;
            }
            if state.pending.insert(key) {
                break;
            }
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // Dropped on a panic too, so that nobody waits for ever.
        let _pending = Pending { cache: self, key };
        let found = make().map(Arc::new);
        if found.as_ref().is_err_and(|error| !is_certain(error)) {
            return found;
        }
        let gone = self.lock().add(key, found.clone(), self.capacity);
        // To drop a loaded kernel may mean to wait for the device: not under the lock.
        drop(gone);
        found
    }

    /// Whether there is a value under a key.
    pub(super) fn has(&self, key: Hash128) -> bool {
        self.lock().entries.get(&key).is_some_and(|entry| entry.found.is_ok())
    }

    /// Whether there is a value or a refusal under a key.
    pub(super) fn knows(&self, key: Hash128) -> bool {
        self.lock().entries.get(&key).is_some()
    }

    /// Whether a thread is making the value under a key.
    pub(super) fn is_pending(&self, key: Hash128) -> bool {
        self.lock().pending.contains(&key)
    }

    /// Values, without refusals.
    pub(super) fn len(&self) -> usize {
        self.lock().entries.values().filter(|entry| entry.found.is_ok()).count()
    }

    /// Whether somebody holds the lock.
    #[cfg(test)]
    pub(super) fn is_locked(&self) -> bool {
        self.state.try_lock().is_err()
    }
}

/// Whether the same will come of it again.
fn is_certain(error: &Diagnostic) -> bool {
    error.kind == DiagnosticKind::Unsupported
}

/// A value under way.
struct Pending<'a, V> {
    cache: &'a Cache<V>,
    key: Hash128,
}

impl<V> Drop for Pending<'_, V> {
    fn drop(&mut self) {
        self.cache.lock().pending.remove(&self.key);
        self.cache.made.notify_all();
    }
}
