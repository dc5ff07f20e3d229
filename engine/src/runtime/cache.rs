//! A bounded map from content hashes to shared values.

use crate::util::Hash128;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Keeps the newest `capacity` values. Values are shared, so one that is
/// dropped from the cache lives on for those who hold it.
pub(super) struct Cache<V: ?Sized> {
    capacity: usize,
    state: Mutex<CacheState<V>>,
    /// A value was made, or given up.
    made: Condvar,
}

struct CacheState<V: ?Sized> {
    values: BTreeMap<Hash128, Arc<V>>,
    // Keys, oldest first.
    order: VecDeque<Hash128>,
    /// Keys whose value is being made.
    pending: BTreeSet<Hash128>,
}

impl<V> Cache<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = CacheState { values: BTreeMap::new(), order: VecDeque::new(), pending: BTreeSet::new() };
        Self { capacity: capacity.max(1), state: Mutex::new(state), made: Condvar::new() }
    }

    // A panic elsewhere leaves the maps as they were before or after an insertion.
    fn lock(&self) -> MutexGuard<'_, CacheState<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn get(&self, key: Hash128) -> Option<Arc<V>> {
        self.lock().values.get(&key).cloned()
    }

    /// The value under a key: the one that is there, or else this one.
    pub(super) fn insert(&self, key: Hash128, value: Arc<V>) -> Arc<V> {
        let mut state = self.lock();
        if let Some(first) = state.values.get(&key) {
            return first.clone();
        }
        state.values.insert(key, value.clone());
        state.order.push_back(key);
        let full = state.order.len() > self.capacity;
        let oldest = if full { state.order.pop_front() } else { None };
        let evicted = oldest.and_then(|oldest| state.values.remove(&oldest));
        // To drop a loaded kernel may mean to wait for the device: not under the lock.
        drop(state);
        drop(evicted);
        value
    }

    /// The value under a key, made outside the lock if it is not there. A thread
    /// that wants what another one is making waits for it; where that fails, it
    /// tries itself.
    pub(super) fn get_or_try<E>(&self, key: Hash128, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut state = self.lock();
        loop {
            if let Some(value) = state.values.get(&key) {
                return Ok(value.clone());
            }
            if state.pending.insert(key) {
                break;
            }
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // Dropped on a panic too, so that nobody waits for ever.
        let _pending = Pending { cache: self, key };
        Ok(self.insert(key, Arc::new(make()?)))
    }

    /// Whether there is a value under a key.
    pub(super) fn has(&self, key: Hash128) -> bool {
        self.lock().values.contains_key(&key)
    }

    /// Whether a thread is making the value under a key.
    pub(super) fn is_pending(&self, key: Hash128) -> bool {
        self.lock().pending.contains(&key)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().values.len()
    }
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

    /// Says when it is dropped whether its cache was locked then.
    struct Looks(std::sync::Weak<Cache<Looks>>, Arc<Mutex<Vec<bool>>>);

    impl Drop for Looks {
        fn drop(&mut self) {
            let locked = self.0.upgrade().is_some_and(|cache| cache.state.try_lock().is_err());
            self.1.lock().unwrap().push(locked);
        }
    }

    #[test]
    fn what_goes_is_dropped_outside_the_lock() {
        let (cache, seen) = (Arc::new(Cache::new(1)), Arc::new(Mutex::new(Vec::new())));
        for n in 0..3 {
            cache.insert(key(n), Arc::new(Looks(Arc::downgrade(&cache), seen.clone())));
        }
        assert_eq!(*seen.lock().unwrap(), [false, false]);
    }

    #[test]
    fn threads_share_what_one_of_them_makes() {
        let cache = Cache::new(4);
        let made = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = cache.get_or_try(key(1), || {
                        made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert!(cache.is_pending(key(1)) && !cache.is_pending(key(2)));
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok::<_, ()>(5)
                    });
                    assert_eq!(value.as_deref(), Ok(&5));
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        assert!(!cache.is_pending(key(1)));
    }

    #[test]
    fn who_waits_for_a_failure_or_a_panic_tries_again() {
        let cache: Cache<u32> = Cache::new(4);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cache.get_or_try::<()>(key(1), || panic!("asked to"))
        }));
        assert!(panicked.is_err());
        assert_eq!(cache.get_or_try(key(1), || Err("no")), Err("no"));
        assert_eq!(cache.get_or_try(key(1), || Ok::<_, ()>(3)).as_deref(), Ok(&3));
    }
}
