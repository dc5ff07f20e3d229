//! Times on a played GPU, so that what is made of times is tried without a GPU.
//!
//! Inputs: what the simulator counted, and how the machine's file says that times vary. Output: a median with its
//! spread. The same case and seed take the same time.

use crate::outcome::Perf;
use crate::proto::PlayedTimes;
use crate::rng::Rng;
use crate::select::Filter;

/// Nanoseconds of a launch, of a sector of memory and of an instruction of a warp.
const LAUNCH: f64 = 2000.0;
const SECTOR: f64 = 1.0;
const INSTRUCTION: f64 = 0.1;
const SAMPLES: u64 = 50;

/// Puts times into a measurement that has counters.
pub(super) fn play(times: &PlayedTimes, case_id: &str, seed: u64, perf: &mut Perf) {
    let count = |name: &str| perf.counters.get(name).copied().unwrap_or(0) as f64;
    let sectors = count("load_sectors") + count("store_sectors");
    let ideal = LAUNCH + SECTOR * sectors + INSTRUCTION * count("instructions");
    let slow = times.slow.iter().filter(|(at, _)| Filter::parse(at).is_ok_and(|filter| filter.matches(case_id)));
    let factor: f64 = slow.map(|(_, thousandths)| f64::from(*thousandths) / 1000.0).product();
    let noise = f64::from(times.noise_ppm) / 1e6;
    let mut rng = Rng::new(seed ^ u64::from(crc32fast::hash(case_id.as_bytes())));
    let median = ideal * factor * (noise * rng.normal()).exp();
    perf.samples = SAMPLES;
    perf.median_ns = Some(median);
    perf.mean_ns = Some(median);
    perf.p10_ns = Some(median * (1.0 - noise));
    perf.p90_ns = Some(median * (1.0 + noise));
    perf.gbps = Some(perf.bytes as f64 / median);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_seed() {
        let times = PlayedTimes { noise_ppm: 10_000, slow: vec![("A.slow*".into(), 1500)] };
        let of = |id: &str, seed| {
            let counters = [("load_sectors".to_string(), 8000)].into();
            let mut perf = Perf { bytes: 256_000, counters, ..Perf::default() };
            play(&times, id, seed, &mut perf);
            perf.median_ns.expect("a time")
        };
        assert_eq!(of("A.a", 1), of("A.a", 1));
        assert!(of("A.a", 1) != of("A.a", 2) && (of("A.a", 2) / 10_000.0).ln().abs() < 0.06);
        assert!((of("A.slow", 3) / 15_000.0).ln().abs() < 0.06);
    }
}
