//! A bounded map from content hashes to shared values.

use crate::util::Hash128;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps the newest `capacity` values. Values are shared, so one that is
/// dropped from the cache lives on for those who hold it.
pub(super) struct Cache<V: ?Sized> {
    capacity: usize,
    state: Mutex<State<V>>,
}

struct State<V: ?Sized> {
    values: BTreeMap<Hash128, Arc<V>>,
    // Keys, oldest first.
    order: VecDeque<Hash128>,
}

impl<V> Cache<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { values: BTreeMap::new(), order: VecDeque::new() };
        Self { capacity: capacity.max(1), state: Mutex::new(state) }
    }

    // A panic elsewhere leaves the maps as they were before or after an insertion.
    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: Hash128) -> Option<Arc<V>> {
        self.lock().values.get(&key).cloned()
    }

    /// The value under a key: the one that is there, or else this one. When two
    /// threads make a value at once, both get the first.
    pub(super) fn insert(&self, key: Hash128, value: Arc<V>) -> Arc<V> {
        let mut state = self.lock();
        if let Some(first) = state.values.get(&key) {
            return first.clone();
        }
        state.values.insert(key, value.clone());
        state.order.push_back(key);
        if state.order.len() > self.capacity
            && let Some(oldest) = state.order.pop_front()
        {
            state.values.remove(&oldest);
        }
        value
    }

    /// The value under a key, made outside the lock if it is not there.
    pub(super) fn get_or_try<E>(&self, key: Hash128, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        match self.get(key) {
            Some(value) => Ok(value),
            None => Ok(self.insert(key, Arc::new(make()?))),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u128) -> Hash128 {
        Hash128(n)
    }

    #[test]
    fn the_first_value_stays_and_the_oldest_goes() {
        let cache = Cache::new(2);
        assert_eq!(*cache.insert(key(1), Arc::new("a")), "a");
        assert_eq!(*cache.insert(key(1), Arc::new("b")), "a");
        assert_eq!(*cache.get_or_try(key(2), || Ok::<_, ()>("c")).unwrap(), "c");
        assert_eq!(cache.get_or_try(key(3), || Err("no")), Err("no"));
        cache.insert(key(3), Arc::new("d"));
        assert_eq!((cache.get(key(1)), cache.len()), (None, 2));
        assert_eq!(*cache.get(key(3)).unwrap(), "d");
    }
}
