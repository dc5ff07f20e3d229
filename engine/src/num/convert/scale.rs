//! `f8e8m0fnu`: `code` means `2^(code - 127)`, 255 is NaN.

use super::format::{F64_BIAS, F64_FRACTION};

const BIAS: i32 = 127;
const NAN: u8 = 255;

/// Rounds the magnitude to a power of two. Ties go up, since the bit that
/// would be even or odd is the one before the point, which is 1; only below
/// 2^-126, where it is 0 like in a subnormal `f32`, 2^-127 stays itself.
pub const fn f64_to_f8e8m0fnu(value: f64) -> u8 {
    let bits = value.to_bits();
    let exponent = ((bits >> F64_FRACTION) & 0x7ff) as i32;
    let fraction = bits & ((1 << F64_FRACTION) - 1);
    if exponent == 0x7ff {
        return NAN;
    }
    let e = exponent - F64_BIAS;
    if e < -BIAS {
        return 0;
    }
    let up = if e == -BIAS { fraction != 0 } else { fraction >> (F64_FRACTION - 1) != 0 };
    let code = e + BIAS + up as i32;
    if code >= NAN as i32 { NAN } else { code as u8 }
}

/// The exact value.
pub const fn f8e8m0fnu_to_f32(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(0x0040_0000),
        NAN => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}
