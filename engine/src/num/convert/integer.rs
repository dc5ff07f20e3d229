//! Integers to floats.

use super::format::F64_FRACTION;

/// An `f64` near the integer that rounds to the same value of any narrower
/// format as the integer itself: inexact results are rounded to odd, so that
/// the second rounding sees on which side of a tie the integer lies.
pub const fn i64_to_f64_odd(value: i64) -> f64 {
    let magnitude = u64_to_f64_odd(value.unsigned_abs());
    if value < 0 { -magnitude } else { magnitude }
}

/// The same for an unsigned integer.
pub const fn u64_to_f64_odd(value: u64) -> f64 {
    let excess = 64 - F64_FRACTION as i32 - 1 - value.leading_zeros() as i32;
    if excess <= 0 {
        return value as f64;
    }
    let kept = value >> excess;
    let sticky = (kept << excess != value) as u64;
    ((kept | sticky) << excess) as f64
}
