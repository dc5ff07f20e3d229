//! A digest of bytes that is made of sums over their words, so that any number of threads, of the host or of a GPU, can
//! make it in any order.
//!
//! Input: bytes. Output: 128 bits that stand for them. Bytes are words of 16, the last one filled up with zeros. A word
//! and its number are scrambled to two times 64 bits in two ways; the sums of these, and the number of bytes, are scrambled
//! once more. Not cryptographic: that other bytes have the same digest is chance, of about one in 2^128, unless somebody seeks them.
//!
//! Invariants: words that differ in one half alone, however much, are told apart for certain where all others are equal
//! (each step on the way of either half is one to one); what a GPU computes is made of the constants that stand here
//! ([`CONSTANTS`]), by the same steps.

use super::Hash128;

/// Bytes of a word.
pub const WORD: usize = 16;

/// The numbers of the function by their names in the text of a kernel: two odd multipliers, and how the first and the second
/// half of a word depend on the word's number, by a step and a start.
pub const CONSTANTS: [(&str, u64); 6] = [
    ("FIRST_FACTOR", FACTORS[0]),
    ("SECOND_FACTOR", FACTORS[1]),
    ("LOW_STEP", STEPS[0]),
    ("HIGH_STEP", STEPS[1]),
    ("LOW_START", STARTS[0]),
    ("HIGH_START", STARTS[1]),
];

const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
const STEPS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
const STARTS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];

fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(FACTORS[0]);
    x ^ (x >> 29)
}

fn scramble_more(x: u64) -> u64 {
    let x = scramble(x).wrapping_mul(FACTORS[1]);
    x ^ (x >> 32)
}

/// What the words of some bytes add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordSums(pub [u64; 2]);

impl WordSums {
    /// Of bytes in front of which so many words stand.
    pub fn of(words_before: u64, bytes: &[u8]) -> Self {
        let (mut sums, mut number) = (Self::default(), words_before);
        let words = bytes.chunks_exact(WORD);
        let rest = words.remainder();
        for word in words {
            sums.add(number, word.first_chunk().copied().unwrap_or_default());
            number = number.wrapping_add(1);
        }
        if !rest.is_empty() {
            let mut word = [0; WORD];
            word[..rest.len()].copy_from_slice(rest);
            sums.add(number, word);
        }
        sums
    }

    fn add(&mut self, number: u64, word: [u8; WORD]) {
        let word = u128::from_le_bytes(word);
        let keyed =
            |half: u64, which: usize| half.wrapping_add(number.wrapping_mul(STEPS[which])).wrapping_add(STARTS[which]);
        let (low, high) = (keyed(word as u64, 0), keyed((word >> 64) as u64, 1));
        let scrambled =
            [scramble_more(scramble(low).wrapping_add(high)), scramble_more(scramble(high).wrapping_add(low))];
        *self = self.and(Self(scrambled));
    }

    /// Of these words and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self([0, 1].map(|half| self.0[half].wrapping_add(other.0[half])))
    }

    /// The digest of so many bytes, whose words all are in the sums.
    pub fn digest(self, bytes: u64) -> Hash128 {
        let [high, low] = [0, 1].map(|half| scramble_more(self.0[half].wrapping_add(bytes.wrapping_mul(STEPS[half]))));
        Hash128((u128::from(high) << 64) | u128::from(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
    }

    fn of(bytes: &[u8]) -> Hash128 {
        WordSums::of(0, bytes).digest(bytes.len() as u64)
    }

    /// The definition, straight on in numbers of 128 bits, with remainders for what wraps.
    fn defined(bytes: &[u8]) -> Hash128 {
        const WRAP: u128 = 1 << 64;
        let scramble = |x: u128| {
            let x = (x ^ (x >> 32)) * u128::from(FACTORS[0]) % WRAP;
            x ^ (x >> 29)
        };
        let more = |x: u128| {
            let x = scramble(x) * u128::from(FACTORS[1]) % WRAP;
            x ^ (x >> 32)
        };
        let mut sums = [0; 2];
        for number in 0..bytes.len().div_ceil(16) {
            let half = |which: usize| {
                let byte = |i: usize| bytes.get(number * 16 + which * 8 + i).copied().unwrap_or(0);
                let half: u128 = (0..8).map(|i| u128::from(byte(i)) << (8 * i)).sum();
                (half + number as u128 * u128::from(STEPS[which]) + u128::from(STARTS[which])) % WRAP
            };
            let (low, high) = (half(0), half(1));
            sums[0] += more((scramble(low) + high) % WRAP);
            sums[1] += more((scramble(high) + low) % WRAP);
        }
        let end = |half: usize| more((sums[half] + bytes.len() as u128 * u128::from(STEPS[half])) % WRAP);
        Hash128((end(0) << 64) | end(1))
    }

    #[test]
    fn the_digest_is_what_is_defined_whoever_has_which_part() {
        for len in [0, 1, 7, 8, 15, 16, 17, 31, 32, 1000, 4099] {
            let bytes = bytes(len);
            assert_eq!(of(&bytes), defined(&bytes), "{len}");
            for words in [1, 2, 61] {
                let parts = bytes.chunks(words * WORD).enumerate().rev();
                let sums = parts.map(|(i, part)| WordSums::of((i * words) as u64, part));
                assert_eq!(sums.fold(WordSums::default(), WordSums::and).digest(len as u64), of(&bytes), "{len}");
            }
        }
    }

    #[test]
    fn bytes_lengths_and_places_are_told_apart() {
        let mut seen: BTreeSet<Hash128> = (0..100).map(|len| of(&vec![0; len])).collect();
        assert_eq!(seen.len(), 100);
        let given = bytes(512);
        seen.insert(of(&given));
        // Each bit; each pair of words that change places; each byte that is added to one and taken from another.
        let mut others = 0;
        for bit in 0..8 * given.len() {
            let mut other = given.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            others += usize::from(seen.insert(of(&other)));
        }
        for (a, b) in (0..32).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let mut other = given.clone();
            (0..WORD).for_each(|i| other.swap(a * WORD + i, b * WORD + i));
            others += usize::from(seen.insert(of(&other)));
            let mut other = given.clone();
            (other[a * WORD + 3], other[b * WORD + 3]) =
                (other[a * WORD + 3].wrapping_add(1), other[b * WORD + 3].wrapping_sub(1));
            others += usize::from(seen.insert(of(&other)));
        }
        assert_eq!(others, 4096 + 2 * 496);
    }
}
