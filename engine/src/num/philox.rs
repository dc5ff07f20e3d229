//! Philox 4x32-10: random words that depend on a key and a counter only, after
//! Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3"
//! (SC 2011). One block is four words of 32 bits; any block can be computed
//! alone, so every element of a tensor has its numbers in any order of work.

use super::DType;

/// What random numbers are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// Equally dense between two numbers, the second one excluded.
    Uniform,
    /// Normal with a mean and a standard deviation.
    Normal,
}

/// Rounds of one block.
pub const ROUNDS: usize = 10;
/// What the counter's words 0 and 2 are multiplied by.
pub const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What the key's words grow by after each round.
pub const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// How many numbers of a type, `f32` or `f64`, one block gives.
pub const fn numbers(dtype: DType) -> usize {
    match dtype {
        DType::F64 => 2,
        _ => 4,
    }
}

/// One block.
pub fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [c0, c1, c2, c3] = counter;
        let (high0, low0) = halves(u64::from(MULTIPLIERS[0]) * u64::from(c0));
        let (high1, low1) = halves(u64::from(MULTIPLIERS[1]) * u64::from(c2));
        counter = [high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The block of a seed (the key), an offset (counter words 0 and 1) and a
/// subsequence (counter words 2 and 3), low words first.
pub fn block(seed: u64, offset: u64, subsequence: u64) -> [u32; 4] {
    let ((k1, k0), (c1, c0), (c3, c2)) = (halves(seed), halves(offset), halves(subsequence));
    philox([k0, k1], [c0, c1, c2, c3])
}

/// A number in (0, 1] from a word: `x / 2^32 + 2^-33` in `f32` arithmetic.
pub fn unit_f32(x: u32) -> f32 {
    const STEP: f32 = 1.0 / 4_294_967_296.0;
    x as f32 * STEP + STEP / 2.0
}

/// A number in (0, 1] from two words: the 53 bits `x ^ (y << 21)` scaled like
/// [`unit_f32`]'s.
pub fn unit_f64(x: u32, y: u32) -> f64 {
    const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;
    let bits = u64::from(x) ^ (u64::from(y) << 21);
    bits as f64 * STEP + STEP / 2.0
}

/// The high and the low word.
fn halves(x: u64) -> (u32, u32) {
    ((x >> 32) as u32, x as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that the authors of the paper publish with their code.
    #[test]
    fn blocks_are_those_of_the_known_answer_test() {
        let check = |counter, key, expected| assert_eq!(philox(key, counter), expected);
        check([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        check([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
        let by_halves = block(0x299f_31d0_a409_3822, 0x85a3_08d3_243f_6a88, 0x0370_7344_1319_8a2e);
        assert_eq!(by_halves, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn unit_numbers_span_the_interval() {
        assert_eq!(unit_f32(0), 2f32.powi(-33));
        assert_eq!(unit_f32(u32::MAX), 1.0);
        assert_eq!(unit_f32(1 << 31), 0.5);
        assert_eq!(unit_f64(0, 0), 2f64.powi(-54));
        assert_eq!(unit_f64(0, 1 << 31), 0.5);
        assert_eq!(unit_f64(u32::MAX ^ (u32::MAX << 21), u32::MAX), 1.0);
    }
}
