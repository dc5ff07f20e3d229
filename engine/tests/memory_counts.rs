//! Sectors and wavefronts, which the simulator counts in closed forms, against a count of bytes and words one by one.

use simcore::counters::{sectors, wavefronts};
use std::collections::BTreeSet;

/// Addresses in a range, by a generator of Lehmer's.
fn drawn(seed: u64, count: usize, range: u64, step: u64) -> Vec<u64> {
    let mut state = seed * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(0xda94_2042_e4dd_58b5);
        (state >> 33) % range * step
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn sectors_are_those_that_bytes_lie_in() {
    let check = |addresses: &[u64], bytes: u64| {
        let distinct: BTreeSet<u64> = addresses.iter().copied().collect();
        let touched: BTreeSet<u64> = addresses.iter().flat_map(|a| (*a..a + bytes).map(|byte| byte / 32)).collect();
        let expected = (touched.len() as u64, (distinct.len() as u64 * bytes).div_ceil(32));
        assert_eq!(sectors(&mut addresses.to_vec(), bytes), expected, "{bytes} bytes at {addresses:?}");
    };
    for bytes in [1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64] {
        check(&[], bytes);
        check(&[1 << 45], bytes);
        check(&[32; 32], bytes);
        check(&(0..32).map(|l| l * bytes).collect::<Vec<_>>(), bytes);
        check(&(0..32).rev().map(|l| l * 2 * bytes + 4).collect::<Vec<_>>(), bytes);
        for seed in 0..200 {
            let step = if seed % 2 == 0 { bytes } else { 1 };
            check(&drawn(seed, seed as usize % 33, 1 << (seed % 12), step), bytes);
        }
    }
}

#[test]
fn wavefronts_are_the_most_words_that_a_bank_gives_a_group() {
    let check = |lanes: &[(u32, u64)], bytes: u64| {
        let group_lanes = if bytes <= 4 { 32 } else { 128 / bytes as u32 };
        let groups: BTreeSet<u32> = lanes.iter().map(|(lane, _)| lane / group_lanes).collect();
        let passes = groups.iter().map(|group| {
            let own = lanes.iter().filter(|(lane, _)| lane / group_lanes == *group);
            let words: BTreeSet<u64> = own.flat_map(|(_, a)| a / 4..=(a + bytes - 1) / 4).collect();
            (0..32).map(|bank| words.iter().filter(|word| **word % 32 == bank).count() as u64).max().unwrap_or(0)
        });
        let total: u64 = passes.sum();
        assert_eq!(wavefronts(lanes, bytes), (total, total - groups.len() as u64), "{bytes} bytes at {lanes:?}");
    };
    for bytes in [1, 2, 4, 8, 16] {
        for seed in 0..300u64 {
            // Some lanes are off: at the ends, in the middle, all but one.
            let mask = [u64::MAX, 0xffff_0000, 0x8000_0001, 1 << 31, 0x00ff_ff00, 0xa5a5_0ff0][seed as usize % 6];
            let addresses = drawn(seed, 32, 1 << (seed % 8), bytes);
            let on = (0..32).filter(|lane| mask >> lane & 1 == 1);
            check(&on.map(|lane| (lane, addresses[lane as usize])).collect::<Vec<_>>(), bytes);
        }
    }
}
