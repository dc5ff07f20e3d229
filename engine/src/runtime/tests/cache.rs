//! The cache by itself: what stays, what goes, and who makes what.

use super::super::cache::Cache;
use crate::diag::{Diagnostic, Result, code};
use crate::util::Hash128;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

fn key(n: u128) -> Hash128 {
    Hash128(n)
}

/// Asks for a value that is its key; whether it was made now.
#[track_caller]
fn ask(cache: &Cache<u128>, n: u128) -> bool {
    let mut made = false;
    let value = cache.get_or_try(key(n), || {
        made = true;
        Ok(n)
    });
    assert_eq!(value.as_deref(), Ok(&n));
    made
}

#[test]
fn what_is_asked_for_again_and_again_stays() {
    let cache = Cache::new(3);
    for n in 1..1000 {
        assert_eq!(ask(&cache, 0), n == 1, "the hot one");
        assert!(ask(&cache, n));
        assert_eq!(cache.len(), 3.min(n as usize + 1));
    }
    // The two that were asked for last beside it, and no other.
    assert!(cache.has(key(998)) && cache.has(key(999)) && !cache.has(key(997)));
    assert!(!ask(&cache, 998));
    // To look is not to use.
    assert!(cache.has(key(0)));
    assert!(ask(&cache, 1000) && !cache.has(key(0)));
}

fn refusal() -> Box<Diagnostic> {
    Diagnostic::unsupported(code::OP_NOT_LOWERED, "no kernel")
}

#[test]
fn a_refusal_is_remembered_and_an_error_is_not() {
    let cache: Cache<u128> = Cache::new(2);
    let asked = AtomicU32::new(0);
    let fail = |n: u128, error: &dyn Fn() -> Box<Diagnostic>| {
        let made = cache.get_or_try(key(n), || {
            asked.fetch_add(1, Ordering::SeqCst);
            Err(error())
        });
        (made.unwrap_err(), asked.load(Ordering::SeqCst))
    };
    assert_eq!(fail(1, &refusal), (refusal(), 1));
    assert_eq!(fail(1, &refusal), (refusal(), 1));
    let bug = || Diagnostic::bug("no memory");
    assert_eq!(fail(2, &bug).1, 2);
    assert_eq!(fail(2, &bug).1, 3);
    // It takes the place of a value, is none itself, and goes when others are asked for.
    assert!((cache.len(), cache.has(key(1))) == (0, false));
    assert!(ask(&cache, 3) && ask(&cache, 4));
    assert_eq!(fail(1, &refusal).1, 4);
    assert!(!ask(&cache, 4) && ask(&cache, 3));
}

/// Says when it is dropped whether its cache was locked then.
struct Looks(Weak<Cache<Looks>>, Arc<Mutex<Vec<bool>>>);

impl Drop for Looks {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.upgrade().is_some_and(|cache| cache.is_locked()));
    }
}

#[test]
fn what_goes_is_dropped_outside_the_lock() {
    let (cache, seen) = (Arc::new(Cache::new(1)), Arc::new(Mutex::new(Vec::new())));
    for n in 0..3 {
        cache.get_or_try(key(n), || Ok(Looks(Arc::downgrade(&cache), seen.clone()))).unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [false, false]);
}

#[test]
fn threads_share_what_one_of_them_makes() {
    for makes in [|| Ok(5), || Err(refusal())] as [fn() -> Result<u32>; 2] {
        let cache = Cache::new(4);
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = cache.get_or_try(key(1), || {
                        made.fetch_add(1, Ordering::SeqCst);
                        assert!(cache.is_pending(key(1)) && !cache.is_pending(key(2)));
                        std::thread::sleep(Duration::from_millis(20));
                        makes()
                    });
                    assert_eq!(value.map(|value| *value), makes());
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        assert!(!cache.is_pending(key(1)));
    }
}

#[test]
fn who_waits_for_a_failure_or_a_panic_tries_again() {
    let cache: Cache<u32> = Cache::new(4);
    let panicked = catch_unwind(AssertUnwindSafe(|| cache.get_or_try(key(1), || panic!("asked to"))));
    assert!(panicked.is_err());
    assert!(cache.get_or_try(key(1), || Err(Diagnostic::bug("no"))).is_err());
    assert_eq!(cache.get_or_try(key(1), || Ok(3)).as_deref(), Ok(&3));
}
