//! Seeded disturbance of timing: at the entry and exit of spans a case may spin,
//! yield or sleep for up to 200 us. It moves threads against each other, which
//! both exposes races and hides them; a rate that changes with it tells of one.
//!
//! Each pause is a function of the seed, the case and the number of the span, so
//! a seed repeats it as far as the case itself enters the same spans in the same
//! order. Where a case is compiled ahead, it has other pauses than where it runs,
//! whichever thread takes it; and each thread that compiles has pauses of its own
//! before it takes a case, by its number. Without a seed, the cost is one
//! comparison a span.

use crate::rng::scramble;
use engine::options::{Phase, Trace};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest pause.
const MOST: Duration = Duration::from_micros(200);

/// The disturbance of one case.
#[derive(Debug)]
pub(super) struct Jitter {
    key: u64,
    spans: AtomicU64,
}

/// What happens at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Nothing,
    Yield,
    Spin(Duration),
    Sleep(Duration),
}

impl Jitter {
    /// Of a case where it runs.
    pub(super) fn new(seed: Option<u64>, case_id: &str) -> Option<Self> {
        Self::of(seed, case_id)
    }

    /// Of a case where it is compiled ahead.
    pub(super) fn ahead(seed: Option<u64>, case_id: &str) -> Option<Self> {
        Self::of(seed, &format!("{case_id} ahead"))
    }

    /// Of a thread that compiles, between two cases.
    pub(super) fn between(seed: Option<u64>, thread: u32) -> Option<Self> {
        Self::of(seed, &format!("thread {thread}"))
    }

    fn of(seed: Option<u64>, whose: &str) -> Option<Self> {
        let id = u64::from(crc32fast::hash(whose.as_bytes()));
        seed.map(|seed| Self { key: scramble(seed ^ scramble(id)), spans: AtomicU64::new(0) })
    }

    /// The entry or the exit of a span.
    pub(super) fn point(&self) {
        let number = self.spans.fetch_add(1, Ordering::Relaxed);
        match pause(self.key, number) {
            Pause::Nothing => {}
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(time) => std::thread::sleep(time),
            Pause::Spin(time) => {
                let start = Instant::now();
                while start.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// Spans with a pause after each entry and before each exit, so that what a span
/// covers takes longer.
pub(super) struct Disturbed<T> {
    pub(super) spans: T,
    pub(super) jitter: Option<Jitter>,
}

impl<T: Trace> Trace for Disturbed<T> {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        self.spans.enter(phase, name, id);
        self.jitter.iter().for_each(Jitter::point);
    }
    fn exit(&self, phase: Phase) {
        self.jitter.iter().for_each(Jitter::point);
        self.spans.exit(phase);
    }
}

/// Nothing in half of the points, else one of the three ways.
fn pause(key: u64, number: u64) -> Pause {
    let bits = scramble(key.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let time = MOST.mul_f64((bits >> 32) as f64 / (1u64 << 32) as f64);
    match bits % 6 {
        0..3 => Pause::Nothing,
        3 => Pause::Yield,
        4 => Pause::Spin(time),
        _ => Pause::Sleep(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_function_of_seed_case_and_number() {
        let pauses = |seed, id: &str| {
            let jitter = Jitter::new(Some(seed), id).expect("a seed is given");
            (0..600).map(|n| pause(jitter.key, n)).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1, "A.b"), pauses(1, "A.b"));
        assert_ne!(pauses(1, "A.b"), pauses(2, "A.b"));
        assert_ne!(pauses(1, "A.b"), pauses(1, "A.c"));
        assert!(Jitter::new(None, "A.b").is_none());
        let keys = [Jitter::new(Some(1), "A.b"), Jitter::ahead(Some(1), "A.b"), Jitter::between(Some(1), 0)];
        let keys: std::collections::BTreeSet<u64> = keys.iter().flatten().map(|jitter| jitter.key).collect();
        assert_eq!(keys.len(), 3);
        let all = pauses(3, "A.b");
        let count = |wanted: fn(&Pause) -> bool| all.iter().filter(|pause| wanted(pause)).count();
        let (nothing, yields) = (count(|p| *p == Pause::Nothing), count(|p| *p == Pause::Yield));
        assert!((240..360).contains(&nothing) && (60..140).contains(&yields), "{nothing} {yields}");
        let times = all.iter().filter_map(|pause| match pause {
            Pause::Spin(time) | Pause::Sleep(time) => Some(*time),
            _ => None,
        });
        let (least, most) = (times.clone().min(), times.max());
        assert!(least < Some(MOST / 10) && most > Some(MOST * 9 / 10) && most <= Some(MOST), "{least:?} {most:?}");
    }

    /// A count that two threads read when a span begins and write when it ends.
    struct Careless<'a>(&'a AtomicU64, AtomicU64);

    impl Trace for Careless<'_> {
        fn enter(&self, _: Phase, _: &str, _: u64) {
            self.1.store(self.0.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        fn exit(&self, _: Phase) {
            self.0.store(self.1.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        }
    }

    /// Spans of two threads overlap, however short they are and however few cores
    /// there are: a sleep gives way.
    #[test]
    fn a_race_between_threads_that_compile_shows() {
        const SPANS: u64 = 200;
        let count = AtomicU64::new(0);
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for case in ["A.b", "A.c"] {
                let spans = Careless(&count, AtomicU64::new(0));
                let spans = Disturbed { spans, jitter: Jitter::ahead(Some(5), case) };
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..SPANS {
                        spans.enter(Phase::Lower, "", 0);
                        spans.exit(Phase::Lower);
                    }
                });
            }
        });
        let found = count.load(Ordering::SeqCst);
        assert!((1..2 * SPANS).contains(&found), "{found}: no update was lost");
    }
}
