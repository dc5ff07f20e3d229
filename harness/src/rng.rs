//! A small generator for shuffles and simulations: the same everywhere, so that
//! a seed on the command line repeats an order.

/// Steps through a counter and mixes it (the finaliser of SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// From 0 to `n - 1`; 0 for `n` = 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // The bias of a product of 64 bits is far below anything measurable.
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Puts items into an order that the seed decides.
pub(crate) fn shuffle<T>(items: &mut [T], seed: u64) {
    Rng::new(seed).shuffle(items);
}

/// Spreads every bit of a number over all bits of the result.
pub(crate) fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_are_seeded_and_fair() {
        let order = |seed| {
            let mut items: Vec<usize> = (0..50).collect();
            Rng::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        // Each of three items comes first in a third of the orders.
        let mut first = [0; 3];
        let mut rng = Rng::new(1);
        for _ in 0..30_000 {
            let mut items = [0, 1, 2];
            rng.shuffle(&mut items);
            first[items[0]] += 1;
        }
        assert!(first.iter().all(|n| (9_700..10_300).contains(n)), "{first:?}");
        assert_eq!(rng.below(0), 0);
    }
}
