//! Which axes of a product of 16-bit numbers are made longer, so that a library multiplies fast.
//!
//! In: [`ProductLengths`], how long the axes are and how matrices lie, and a device. Out: [`Widened`],
//! the axes that are to be multiples of [`MULTIPLE`] elements, if that pays.
//!
//! A library has its fast kernels where every matrix has rows (or columns, whatever lies side by
//! side) of a multiple of 16 bytes: on an H200 a longer pitch alone changed nothing. What is made longer
//! has to be copied, unless a kernel writes the operand, or reads the result, anyway; so time for
//! copies stands against time for products at the rates that alignments have.
//!
//! Sizes are only known about, since calls with other ones shall be made the same of.

use super::matrix::Order;
use crate::options::DeviceDesc;

/// What widened axes are multiples of, in elements: 16 bytes.
pub const MULTIPLE: i64 = 8;
/// Bytes of an element.
const BYTES: f64 = 2.0;
/// What copies and products reach of the bandwidth of the datasheet, as a part of it.
const REACHED: f64 = 0.75;
/// Seconds that a kernel takes for being there.
const LAUNCH: f64 = 3e-6;
/// As a part of what it took before, at most so much is worth it.
const WORTH: f64 = 0.9;

/// How long an axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length {
    /// About how many elements: within a quarter.
    pub about: i64,
    /// The largest power of two that divides the length, up to [`MULTIPLE`].
    pub align: i64,
}

impl Length {
    /// What is known of an axis of so many elements.
    pub fn of(size: i64) -> Self {
        let align = 1 << size.trailing_zeros().min(MULTIPLE.trailing_zeros());
        // The two leading bits, and the middle of what the others may be.
        let dropped = (i64::BITS - size.leading_zeros()).saturating_sub(2);
        let about = if dropped == 0 { size } else { (size >> dropped << dropped) + (1 << dropped >> 1) };
        Self { about, align }
    }
}

/// A product of stacks of matrices, `m` by `k` and `k` by `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductLengths {
    /// Rows of the left operand and of the result.
    pub m: Length,
    /// Columns of the right operand and of the result.
    pub n: Length,
    /// Terms of a sum.
    pub k: Length,
    /// About how many matrices are in the stack of the left operand, of the right one, and of the result.
    pub stacks: [i64; 3],
    /// What lies side by side in both operands.
    pub orders: [Order; 2],
    /// Whether it costs nothing to make the left operand, the right one, and the result longer: a kernel is there that
    /// writes or reads it anyway.
    pub is_free: [bool; 3],
    /// Whether a vector of `n` elements is added.
    pub has_bias: bool,
}

/// The axes of a product that are made longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Widened {
    /// The rows of the left operand and of the result.
    pub m: bool,
    /// The columns of the right operand and of the result.
    pub n: bool,
    /// What is summed over: by zeros, in both operands.
    pub k: bool,
}

/// The axes that are made longer, if any: those with which it takes the least time.
pub fn widen(product: &ProductLengths, device: &DeviceDesc) -> Option<Widened> {
    let time = |widened: &Widened| product.time(device, *widened);
    let ways = (1..8).map(|bits: u8| Widened { m: bits & 1 != 0, n: bits & 2 != 0, k: bits & 4 != 0 });
    let best = ways.filter(|way| product.could_be(*way)).min_by(|a, b| time(a).total_cmp(&time(b)))?;
    (time(&best) <= WORTH * time(&Widened::default())).then_some(best)
}

impl ProductLengths {
    /// Whether all axes that are made longer need it: there are several elements, not a multiple already.
    fn could_be(&self, widened: Widened) -> bool {
        let needs = |is_widened: bool, length: Length| !is_widened || (length.align < MULTIPLE && length.about > 1);
        needs(widened.m, self.m) && needs(widened.n, self.n) && needs(widened.k, self.k)
    }

    /// Seconds for the product and all copies for it.
    fn time(&self, device: &DeviceDesc, widened: Widened) -> f64 {
        let Self { m, n, k, stacks, is_free, .. } = self;
        let of = |rows: &Length, columns: &Length, stack: i64| {
            BYTES * rows.about as f64 * columns.about as f64 * stack as f64
        };
        let bytes = [of(m, k, stacks[0]), of(k, n, stacks[1]), of(m, n, stacks[2])];
        let bandwidth = REACHED * device.memory_bandwidth as f64;
        let sums = of(m, n, stacks[2]) * k.about as f64;
        let rate = device.product_rates[self.align(widened).trailing_zeros() as usize] as f64;
        let product = (sums / rate).max(bytes.iter().sum::<f64>() / bandwidth);
        let is_copied = [widened.m || widened.k, widened.n || widened.k, widened.m || widened.n];
        let copied = (0..3).filter(|side| is_copied[*side] && !is_free[*side]);
        let copies: f64 = copied.map(|side| 2.0 * bytes[side] / bandwidth + LAUNCH).sum();
        product + copies + if widened.n && self.has_bias { LAUNCH } else { 0.0 }
    }

    /// What the places are multiples of, in elements, at which rows of all three matrices start.
    fn align(&self, widened: Widened) -> i64 {
        let align = |length: Length, is_widened: bool| if is_widened { MULTIPLE } else { length.align };
        let (m, n, k) = (align(self.m, widened.m), align(self.n, widened.n), align(self.k, widened.k));
        let left = if self.orders[0] == Order::Rows { k } else { m };
        let right = if self.orders[1] == Order::Rows { n } else { k };
        left.min(right).min(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The axes that are made longer of a product of arguments whose result is returned, by name.
    fn widened([m, n, k]: [i64; 3], orders: [Order; 2], is_free: [bool; 3]) -> String {
        let [m, n, k] = [m, n, k].map(Length::of);
        let product = ProductLengths { m, n, k, stacks: [1; 3], orders, is_free, has_bias: false };
        let found = widen(&product, &DeviceDesc::h200()).unwrap_or_default();
        [("m", found.m), ("n", found.n), ("k", found.k)].iter().filter(|axis| axis.1).map(|axis| axis.0).collect()
    }

    #[test]
    fn large_products_at_odd_places_are_widened() {
        #[track_caller]
        fn check(sizes: [i64; 3], orders: [Order; 2], expected: &str) {
            assert_eq!(widened(sizes, orders, [false; 3]), expected, "{sizes:?} {orders:?}");
        }
        use Order::{Columns, Rows};
        check([8063, 3373, 3181], [Rows, Columns], "nk");
        check([764, 4848, 10669], [Rows, Columns], "k");
        check([668, 2067, 20232], [Rows, Columns], "n");
        check([3253, 3624, 3738], [Rows, Columns], "k");
        check([4096, 4095, 4096], [Rows, Rows], "n");
        check([4095, 4096, 4095], [Columns, Rows], "m");
        check([4095, 4095, 4095], [Columns, Rows], "mn");
        check([4095, 4096, 4095], [Columns, Columns], "mk");
        check([4095, 4096, 4096], [Rows, Columns], "");
        check([4096, 4096, 4096], [Rows, Columns], "");
    }

    #[test]
    fn what_copies_would_outweigh_stays() {
        let order = [Order::Rows, Order::Columns];
        for small in [[64, 63, 63], [255, 255, 255], [1, 8191, 8191], [16, 8191, 8191], [100_003, 64, 33]] {
            assert_eq!(widened(small, order, [false; 3]), "", "{small:?}");
        }
        // Here kernels write both operands.
        assert_eq!(widened([2048, 255, 333], order, [false; 3]), "");
        assert_eq!(widened([2048, 256, 333], order, [true; 3]), "k");
    }

    #[test]
    fn lengths_are_known_about() {
        for size in (1..5000_i64).chain([1 << 40, i64::from(i32::MAX)]) {
            let Length { about, align } = Length::of(size);
            assert!((about - size).abs() * 4 <= size, "{size} {about}");
            assert!(size % align == 0 && (align == MULTIPLE || size % (2 * align) != 0), "{size} {align}");
        }
    }
}
