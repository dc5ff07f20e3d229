//! Bit-exact conversions of floating-point formats, rounding to nearest even.
//!
//! A binary format of at most 16 bits is described by its exponent and
//! fraction widths; one routine rounds an `f64` into any of them and one
//! widens back. Widening is exact; a narrowing from `f64` or `f32` rounds
//! once. NaNs stay quiet NaNs and keep their sign.

/// A binary interchange format of 16 bits.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

const F16: Format = Format { exponent_bits: 5, fraction_bits: 10 };
const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7 };

const F64_FRACTION: u32 = 52;
const F64_BIAS: i32 = 1023;

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Rounds to the format.
    ///
    /// With the value `m * 2^(e - 52)`, `m` of 53 bits, the result's unit in
    /// the last place is `2^(max(e, 1 - bias) - fraction_bits)`. The quotient
    /// of the two is rounded as an integer; adding it to the exponent field
    /// carries into the next binade, and from the largest one into infinity.
    const fn narrow(self, value: f64) -> u16 {
        let bits = value.to_bits();
        let sign = ((bits >> 63) as u16) << 15;
        let exponent = ((bits >> F64_FRACTION) & 0x7ff) as i32;
        let fraction = bits & ((1 << F64_FRACTION) - 1);
        let infinity = ((1u16 << self.exponent_bits) - 1) << self.fraction_bits;
        if exponent == 0x7ff {
            return sign | infinity | if fraction == 0 { 0 } else { 1 << (self.fraction_bits - 1) };
        }
        // Subnormal f64 values are far below half of any 16-bit format's unit.
        if exponent == 0 {
            return sign;
        }
        let e = exponent - F64_BIAS;
        if e > self.bias() {
            return sign | infinity;
        }
        let least = 1 - self.bias();
        let unit = if e < least { least } else { e };
        // The shift that turns the 53-bit significand into units of the result.
        let shift = (F64_FRACTION - self.fraction_bits) as i32 + (unit - e);
        if shift > F64_FRACTION as i32 + 1 {
            return sign;
        }
        let significand = fraction | (1 << F64_FRACTION);
        let quotient = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        let up = rest > half || (rest == half && quotient & 1 == 1);
        let rounded = quotient as u16 + up as u16;
        // A normal quotient has its hidden bit set, which counts one exponent step.
        sign | ((((unit - least) as u16) << self.fraction_bits) + rounded)
    }

    /// The exact value.
    const fn widen(self, bits: u16) -> f64 {
        let sign = ((bits >> 15) as u64) << 63;
        let exponent = (bits >> self.fraction_bits) as i32 & ((1 << self.exponent_bits) - 1);
        let fraction = (bits & ((1 << self.fraction_bits) - 1)) as u64;
        let widened = fraction << (F64_FRACTION - self.fraction_bits);
        if exponent == (1 << self.exponent_bits) - 1 {
            return f64::from_bits(sign | (0x7ff << F64_FRACTION) | widened);
        }
        if exponent == 0 {
            // fraction * 2^(1 - bias - fraction_bits), a normal f64.
            let unit = F64_BIAS + 1 - self.bias() - self.fraction_bits as i32;
            let magnitude = fraction as f64 * f64::from_bits((unit as u64) << F64_FRACTION);
            return f64::from_bits(sign | magnitude.to_bits());
        }
        let shifted = (exponent - self.bias() + F64_BIAS) as u64;
        f64::from_bits(sign | (shifted << F64_FRACTION) | widened)
    }
}

/// Rounds to `f16`.
pub const fn f64_to_f16(value: f64) -> u16 {
    F16.narrow(value)
}
/// Rounds to `f16`.
pub const fn f32_to_f16(value: f32) -> u16 {
    F16.narrow(value as f64)
}
/// The exact value of an `f16`.
pub const fn f16_to_f64(bits: u16) -> f64 {
    F16.widen(bits)
}
/// The exact value of an `f16`.
pub const fn f16_to_f32(bits: u16) -> f32 {
    F16.widen(bits) as f32
}
/// Rounds to `bf16`, once.
pub const fn f64_to_bf16(value: f64) -> u16 {
    BF16.narrow(value)
}
/// Rounds to `bf16`: adds just below half a unit, and half when that breaks a
/// tie towards an even result.
pub const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 & 0x8000 | 0x7fc0;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}
/// The exact value of a `bf16`.
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}
/// The exact value of a `bf16`.
pub const fn bf16_to_f64(bits: u16) -> f64 {
    bf16_to_f32(bits) as f64
}

/// An `f64` near the integer that rounds to the same `f32`, `f16` or `bf16` as
/// the integer itself: inexact results are rounded to odd, so that the second
/// rounding sees on which side of a tie the integer lies.
pub const fn i64_to_f64_odd(value: i64) -> f64 {
    let magnitude = value.unsigned_abs();
    let excess = 64 - F64_FRACTION as i32 - 1 - magnitude.leading_zeros() as i32;
    if excess <= 0 {
        return value as f64;
    }
    let kept = magnitude >> excess;
    let sticky = (kept << excess != magnitude) as u64;
    let odd = ((kept | sticky) << excess) as f64;
    if value < 0 { -odd } else { odd }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value of a 16-bit pattern by the definition of the format.
    fn by_definition(bits: u16, exponent_bits: u32) -> f64 {
        let fraction_bits = 15 - exponent_bits;
        let bias = (1 << (exponent_bits - 1)) - 1;
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let exponent = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        if exponent == (1 << exponent_bits) - 1 {
            return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
        }
        if exponent == 0 {
            return sign * fraction * 2f64.powi(1 - bias);
        }
        sign * (1.0 + fraction) * 2f64.powi(exponent - bias)
    }

    /// Every pattern widens to its value and narrows back to itself.
    fn check_round_trip(exponent_bits: u32, widen: fn(u16) -> f64, narrow: fn(f64) -> u16) {
        for bits in 0..=u16::MAX {
            let value = widen(bits);
            let expected = by_definition(bits, exponent_bits);
            if expected.is_nan() {
                assert!(value.is_nan() && widen(narrow(value)).is_nan());
                assert_eq!(narrow(value) >> 15, bits >> 15, "NaN keeps its sign");
            } else {
                assert_eq!(value.to_bits(), expected.to_bits(), "{bits:#06x}");
                assert_eq!(narrow(value), bits, "{bits:#06x}");
            }
        }
    }

    /// Between two neighbours everything goes to the nearer one, the middle to
    /// the even one.
    fn check_rounding(widen: fn(u16) -> f64, narrow: fn(f64) -> u16, greatest: u16) {
        for bits in 0..greatest {
            let (low, high) = (widen(bits), widen(bits + 1));
            let middle = (low + high) / 2.0;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            for (value, expected) in
                [(middle, even), (middle.next_down(), bits), (middle.next_up(), bits + 1), (low.next_up(), bits)]
            {
                assert_eq!(narrow(value), expected, "{value:e} between {low:e} and {high:e}");
                assert_eq!(narrow(-value), expected | 0x8000);
            }
        }
        // The unit continues above the greatest value: half a unit more is infinity.
        let unit = widen(greatest) - widen(greatest - 1);
        let tie = widen(greatest) + unit / 2.0;
        assert_eq!(narrow(tie.next_down()), greatest);
        assert_eq!(narrow(tie), greatest + 1);
        assert_eq!(narrow(f64::MAX), greatest + 1);
        assert_eq!(narrow(f64::from_bits(1)), 0);
        assert_eq!(narrow(-0.0), 0x8000);
    }

    #[test]
    fn every_f16_pattern_round_trips_and_rounds() {
        check_round_trip(5, f16_to_f64, f64_to_f16);
        check_rounding(f16_to_f64, f64_to_f16, 0x7bff);
        for bits in 0..=u16::MAX {
            assert_eq!(f16_to_f32(bits).is_nan(), f16_to_f64(bits).is_nan());
            assert!(f16_to_f32(bits).is_nan() || f32_to_f16(f16_to_f32(bits)) == bits);
        }
    }

    #[test]
    fn every_bf16_pattern_round_trips_and_rounds() {
        check_round_trip(8, bf16_to_f64, f64_to_bf16);
        check_rounding(bf16_to_f64, f64_to_bf16, 0x7f7f);
    }

    #[test]
    fn narrowing_f32_to_bf16_agrees_with_the_general_routine() {
        arbtest::arbtest(|u| {
            let value = f32::from_bits(u.arbitrary()?);
            assert_eq!(f32_to_bf16(value), f64_to_bf16(value.into()), "{value:e}");
            Ok(())
        });
        for high in 0..=u16::MAX {
            for low in [0u16, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(high) << 16 | u32::from(low));
                assert_eq!(f32_to_bf16(value), f64_to_bf16(value.into()), "{value:e}");
            }
        }
    }

    #[test]
    fn integers_round_once() {
        // 2^55 + 2^47 is a tie of bf16; one more must round up, which a
        // rounding through f64 would lose.
        let tie = (1i64 << 55) + (1 << 47);
        assert_eq!(f64_to_bf16(i64_to_f64_odd(tie)), f64_to_bf16((1i64 << 55) as f64));
        assert_eq!(f64_to_bf16(i64_to_f64_odd(tie + 1)), f64_to_bf16((1i64 << 55) as f64) + 1);
        assert_eq!(f64_to_bf16((tie + 1) as f64), f64_to_bf16((1i64 << 55) as f64));
        arbtest::arbtest(|u| {
            let value: i64 = u.arbitrary()?;
            let shifted = value >> u.int_in_range(0..=63)?;
            assert_eq!(i64_to_f64_odd(shifted) as f32, shifted as f32, "{shifted}");
            Ok(())
        });
        assert_eq!(i64_to_f64_odd(i64::MIN), i64::MIN as f64);
        assert_eq!(i64_to_f64_odd(i64::MAX) as f32, i64::MAX as f32);
    }
}
