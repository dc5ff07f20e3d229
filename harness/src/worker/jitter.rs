//! Seeded disturbance of timing: at the entry and exit of spans a case may spin,
//! yield or sleep for up to 200 us. It moves threads against each other, which
//! both exposes races and hides them; a rate that changes with it tells of one.
//!
//! Each pause is a function of the seed, the case and the number of the span, so
//! a seed repeats it as far as the case itself enters the same spans in the same
//! order. Without a seed, the cost is one comparison a span.

use crate::flake::scramble;
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
    pub(super) fn new(seed: Option<u64>, case_id: &str) -> Option<Self> {
        let id = u64::from(crate::crc::crc32(case_id.as_bytes()));
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
}
