//! A stable 128-bit content hash.
//!
//! Names and cache keys are content hashes, never counters or addresses, so the
//! same input gives the same key on every machine and in every process. The
//! function is two independently seeded 64-bit multiply-fold lanes; it is not
//! cryptographic and never meets untrusted keys.

/// A 128-bit content hash; prints as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash128(pub u128);

impl std::fmt::Display for Hash128 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::fmt::Debug for Hash128 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Hash128 {
    /// The hash of a byte string.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = StableHasher::new();
        hasher.write_bytes(bytes);
        hasher.finish128()
    }

    /// The first 8 hex digits, for names that people read.
    pub fn short(self) -> String {
        format!("{:08x}", (self.0 >> 96) as u32)
    }
}

/// Feeds values into a [`Hash128`]. Implements [`std::hash::Hasher`], so any
/// `#[derive(Hash)]` type of fixed-width fields can be hashed stably.
#[derive(Clone, Debug)]
pub struct StableHasher {
    lanes: [u64; 2],
    length: u64,
}

const SEEDS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
const MULTIPLIERS: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

fn fold_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl StableHasher {
    /// An empty hasher.
    pub fn new() -> Self {
        Self { lanes: SEEDS, length: 0 }
    }

    fn word(&mut self, word: u64) {
        for (lane, multiplier) in self.lanes.iter_mut().zip(MULTIPLIERS) {
            *lane = fold_multiply(*lane ^ word, multiplier).rotate_left(23) ^ word;
        }
        self.length = self.length.wrapping_add(1);
    }

    /// Hashes a byte string with its length, so that concatenations differ.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// The hash of everything written so far.
    pub fn finish128(&self) -> Hash128 {
        let high = fold_multiply(self.lanes[0] ^ self.length, MULTIPLIERS[1]);
        let low = fold_multiply(self.lanes[1] ^ self.lanes[0].rotate_left(32), MULTIPLIERS[0]);
        Hash128((u128::from(high) << 64) | u128::from(low))
    }
}

impl Default for StableHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl std::hash::Hasher for StableHasher {
    fn finish(&self) -> u64 {
        (self.finish128().0 >> 64) as u64
    }
    fn write(&mut self, bytes: &[u8]) {
        self.write_bytes(bytes);
    }
    fn write_u8(&mut self, value: u8) {
        self.word(value.into());
    }
    fn write_u32(&mut self, value: u32) {
        self.word(value.into());
    }
    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }
    // Lengths and discriminants: fixed width, so that 32-bit hosts agree.
    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_a_fixed_function_of_the_bytes() {
        assert_eq!(Hash128::of(b"fusion"), Hash128::of(b"fusion"));
        assert_ne!(Hash128::of(b"fusion"), Hash128::of(b"fusioo"));
        assert_ne!(Hash128::of(b""), Hash128::of(b"\0"));
    }

    #[test]
    fn no_collision_among_many_short_strings() {
        let hashes: std::collections::BTreeSet<_> =
            (0..20_000u32).map(|i| Hash128::of(format!("k{i}").as_bytes())).collect();
        assert_eq!(hashes.len(), 20_000);
    }
}
