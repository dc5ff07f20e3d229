//! A bounded map from keys to shared values that are made where they are missing.

use super::sorted::SortedMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the values that were asked for last. Who needs one that is missing makes it, outside
/// the lock: two that do so at once make equal values, and share the first.
#[derive(Debug)]
pub struct Memo<K, V> {
    capacity: usize,
    state: Mutex<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    /// Each with the time when it was last asked for.
    values: SortedMap<K, (Arc<V>, u64)>,
    now: u64,
}

impl<K: Ord + Clone, V> Memo<K, V> {
    /// An empty one for so many values.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::new(State { values: SortedMap::new(), now: 0 }) }
    }

    /// The value under a key, made if it is not there.
    pub fn get_or_try<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        if let Some(known) = self.find(key) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        Ok(self.insert(key, made))
    }

    fn find(&self, key: &K) -> Option<Arc<V>> {
        // A panic elsewhere leaves the map as it was before or after an insertion.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now += 1;
        let now = state.now;
        let (value, used) = state.values.get_mut(key)?;
        *used = now;
        Some(Arc::clone(value))
    }

    fn insert(&self, key: &K, made: Arc<V>) -> Arc<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((first, _)) = state.values.get(key) {
            return Arc::clone(first);
        }
        let now = state.now;
        state.values.insert(key.clone(), (Arc::clone(&made), now));
        let is_full = state.values.len() > self.capacity;
        let gone = if is_full { state.values.remove_least(|(_, used)| *used) } else { None };
        // What it holds is dropped outside the lock.
        drop(state);
        drop(gone);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_last_stays() {
        let memo = Memo::new(2);
        let get = |key: i32| *memo.get_or_try(&key, || Ok::<_, ()>(key * 10)).unwrap();
        let has = |key: i32| memo.get_or_try(&key, || Err(())).is_ok();
        assert_eq!((get(1), get(2), get(1), get(3)), (10, 20, 10, 30));
        assert_eq!((has(1), has(2), has(3)), (true, false, true));
        assert_eq!(memo.get_or_try(&2, || Err("no")), Err("no"));
    }
}
