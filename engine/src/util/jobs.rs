//! Jobs on threads of their own, all of which have ended when the results are there.
//!
//! Not on the pool that loops share: who waits for a job there may be given another
//! caller's, which may wait for what the first one is making. And jobs wait for other
//! processes, which threads of a pool should not.
//!
//! Invariant: results stand in the order of jobs, whoever ran them.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};

/// The name of the threads.
const THREAD: &str = "compile";

/// What `job` returns for each number below `count`, in order. `threads` work at most, of which the
/// caller's is one; with one, or one job, nothing is started.
pub(crate) fn run_jobs<R: Send>(threads: usize, count: usize, job: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count);
        std::iter::from_fn(take).map(|number| (number, job(number))).collect::<Vec<_>>()
    };
    if threads <= 1 || count <= 1 {
        return work().into_iter().map(|(_, result)| result).collect();
    }
    let results = std::thread::scope(|scope| {
        let start = |_| Builder::new().name(THREAD.into()).spawn_scoped(scope, work).ok();
        // Threads that cannot be had leave their share to the others.
        let others: Vec<ScopedJoinHandle<'_, _>> = (1..threads.min(count)).map_while(start).collect();
        let mut results = work();
        for other in others {
            // Joined one by one: the end of a scope waits for jobs only, not for their threads.
            results.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        results
    });
    let mut in_order: Vec<Option<R>> = (0..count).map(|_| None).collect();
    for (number, result) in results {
        in_order[number] = Some(result);
    }
    in_order.into_iter().flatten().collect()
}

/// What both make, the second one on a thread of its own where one can be had: of who waits for a driver, a disk or a process.
pub fn run_beside<A, B: Send>(here: impl FnOnce() -> A, there: impl Fn() -> B + Sync) -> (A, B) {
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, &there);
        let made = here();
        let beside = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => there(),
        };
        (made, beside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::sync::Barrier;

    #[test]
    fn results_stand_in_the_order_of_jobs() {
        for threads in [0, 1, 2, 7, 100] {
            for count in [0, 1, 2, 33] {
                let squares = run_jobs(threads, count, &|number| number * number);
                assert_eq!(squares, (0..count).map(|number| number * number).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn so_many_work_at_once_and_jobs_may_have_jobs() {
        let all = Barrier::new(4);
        let inner = run_jobs(4, 4, &|number| {
            all.wait();
            run_jobs(2, 3, &|own| 10 * number + own).iter().sum::<usize>()
        });
        assert_eq!(inner, [3, 33, 63, 93]);
    }

    #[test]
    fn a_panic_comes_to_the_caller_when_all_have_ended() {
        for threads in [1, 3] {
            let panicked = catch_unwind(|| run_jobs(threads, 8, &|number| assert!(number != 5, "asked to")));
            assert!(panicked.is_err());
        }
    }
}
