//! Orders of threads that no ordinary test meets, for what threads share: the cache with its single
//! flight and its bound, and the memory of devices that calls are given.
//!
//! The files themselves are built here once more, with locks that say where another thread may come
//! in. By `shuttle` and not `loom`: nothing here rests on weak orders of memory, which only `loom`
//! knows, but on locks and waiting, and `shuttle` tries larger cases in the same time. It draws
//! orders from fixed seeds, evenly and by few changes of priority, and finds lost wake-ups as
//! threads that all wait.

mod sync {
    pub(super) use shuttle::sync::atomic::AtomicU64;
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
}
#[path = "../cache.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "the file itself, with other locks; not all of it is tried"
)]
mod cache;
#[path = "../../backend/sim/heap.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "the file itself, with other locks; not all of it is tried"
)]
mod heap;
#[path = "../../backend/cuda/pool.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "the file itself, with other locks; not all of it is tried"
)]
mod pool;

use self::cache::Cache;
use self::heap::Heap;
use self::pool::MemoryPool;
use crate::diag::{Diagnostic, Result, code};
use crate::util::Hash128;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Runner, thread};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Orders that are drawn for each model, in either way.
const ORDERS: usize = 1000;
/// Changes of priority in an order of the second way.
const CHANGES: usize = 3;
/// Where the draws begin.
const SEED: u64 = 0x5eed;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    Runner::new(RandomScheduler::new_from_seed(SEED, ORDERS), shuttle::Config::default()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(SEED, CHANGES, ORDERS), shuttle::Config::default()).run(model);
}

/// Runs threads with numbers, and joins them.
fn threads(count: u64, work: impl Fn(u64) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let start = |number| {
        let work = Arc::clone(&work);
        thread::spawn(move || work(number))
    };
    let handles: Vec<_> = (0..count).map(start).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

/// A thread that makes what others wait for, with time for them to come in.
fn make<V>(makers: &AtomicU64, made: Result<V>) -> Result<V> {
    assert_eq!(makers.fetch_add(1, Ordering::SeqCst), 0, "two make one value");
    thread::yield_now();
    makers.fetch_sub(1, Ordering::SeqCst);
    made
}

#[test]
fn one_thread_makes_a_value_and_all_have_it() {
    check(|| {
        let (cache, makers, made) = (Cache::new(4), AtomicU64::new(0), AtomicU64::new(0));
        threads(4, move |_| {
            let value = cache.get_or_try(Hash128(1), || make(&makers, Ok(made.fetch_add(1, Ordering::SeqCst))));
            assert_eq!(value.as_deref(), Ok(&0));
            assert!(cache.has(Hash128(1)));
        });
    });
}

#[test]
fn a_refusal_is_found_out_once() {
    check(|| {
        let (cache, makers, made) = (Cache::<u64>::new(4), AtomicU64::new(0), AtomicU64::new(0));
        threads(3, move |_| {
            let refused = cache.get_or_try(Hash128(1), || {
                assert_eq!(made.fetch_add(1, Ordering::SeqCst), 0, "asked twice");
                make(&makers, Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, "no kernel")))
            });
            assert!(refused.is_err());
        });
    });
}

#[test]
fn who_waited_for_a_failure_tries_itself() {
    check(|| {
        let (cache, makers, tried) = (Cache::new(4), AtomicU64::new(0), AtomicU64::new(0));
        let values = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&values);
        threads(4, move |_| {
            let value = cache.get_or_try(Hash128(1), || {
                let number = tried.fetch_add(1, Ordering::SeqCst);
                make(&makers, if number < 2 { Err(Diagnostic::bug("not yet")) } else { Ok(number) })
            });
            seen.lock().unwrap().push(value.map(|value| *value).ok());
        });
        let mut values = values.lock().unwrap().clone();
        values.sort_unstable();
        assert_eq!(values, [None, None, Some(2), Some(2)]);
    });
}

#[test]
fn a_full_cache_gives_everybody_what_was_asked_for() {
    check(|| {
        let cache = Cache::new(2);
        let makers: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        threads(3, move |number| {
            for step in 0..3 {
                let wanted = (number + step) % 3;
                let value = cache.get_or_try(Hash128(wanted.into()), || make(&makers[wanted as usize], Ok(wanted)));
                assert_eq!(value.as_deref(), Ok(&wanted));
                assert!(cache.len() <= 2 && !(cache.is_pending(Hash128(9))));
            }
        });
    });
}

/// The driver of a device: which addresses it gave and did not get back, and who has them.
#[derive(Default)]
struct Driver {
    next: u64,
    allocated: BTreeSet<u64>,
    in_use: BTreeSet<u64>,
}

/// What a device does with its pool, on a driver that looks.
struct Memory {
    pool: MemoryPool<u64>,
    driver: Mutex<Driver>,
}

const BYTES: usize = 512;

impl Memory {
    fn take(&self, stream: u64) -> u64 {
        let address = self.pool.take(stream, BYTES, false).unwrap_or_else(|| {
            let mut driver = self.driver.lock().unwrap();
            driver.next += 1;
            let address = driver.next;
            driver.allocated.insert(address);
            drop(driver);
            self.pool.add(BYTES, false);
            address
        });
        let mut driver = self.driver.lock().unwrap();
        assert!(driver.allocated.contains(&address), "memory is used that was freed");
        assert!(driver.in_use.insert(address), "two have one address");
        address
    }

    fn give_back(&self, stream: u64, address: u64) {
        assert!(self.driver.lock().unwrap().in_use.remove(&address));
        self.pool.give_back(stream, BYTES, false, address);
    }

    fn trim(&self) {
        for address in self.pool.drain() {
            let mut driver = self.driver.lock().unwrap();
            assert!(!driver.in_use.contains(&address), "memory is freed that somebody has");
            assert!(driver.allocated.remove(&address), "memory is freed twice");
        }
    }
}

#[test]
fn memory_is_one_calls_at_a_time_and_freed_once() {
    check(|| {
        let memory = Arc::new(Memory { pool: MemoryPool::default(), driver: Mutex::default() });
        let shared = Arc::clone(&memory);
        threads(4, move |number| {
            let stream = number % 2;
            for _ in 0..2 {
                let (a, b) = (shared.take(stream), shared.take(stream));
                shared.give_back(stream, a);
                if number == 3 {
                    shared.trim();
                }
                shared.give_back(stream, b);
            }
        });
        let (used, left) = (memory.pool.used(), memory.driver.lock().unwrap().allocated.len());
        assert_eq!((used.live, used.kept, used.cached), (0, 0, left * BYTES));
        memory.trim();
        assert_eq!((memory.pool.used().total(), memory.driver.lock().unwrap().allocated.len()), (0, 0));
    });
}

#[test]
fn a_simulated_device_never_gives_more_than_it_has() {
    check(|| {
        let heap: Arc<Heap> = Arc::default();
        let shared = Arc::clone(&heap);
        threads(4, move |number| {
            let part = Heap::total() / 3 + number;
            for _ in 0..3 {
                let share = shared.take(part);
                assert!(shared.live() <= Heap::total() && (share.is_none() || shared.live() >= part));
                thread::yield_now();
            }
        });
        assert_eq!(heap.live(), 0);
    });
}
