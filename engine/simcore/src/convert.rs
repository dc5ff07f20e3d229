//! Conversions of floats of at most 16 bits, branch-free so that loops over lanes
//! vectorise. They agree bit for bit with the engine's `num::convert`; a test
//! there compares them.

/// The exact value of a `bf16` pattern.
#[inline(always)]
pub fn bf16_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// Rounds to `bf16`, ties to even; NaN becomes the quiet one with its sign.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = ((bits >> 16) & 0x8000) | 0x7fc0;
    if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }
}

/// The exact value of an `f16` pattern.
#[inline(always)]
pub fn f16_to_f32(bits: u32) -> f32 {
    // Exponent and fraction moved into place read as value * 2^-112.
    let magnitude = (bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits((254 - 15) << 23);
    let quiet = if magnitude > 0x7c00 << 13 { 0x0040_0000 } else { 0 };
    let special = f32::from_bits(magnitude | 0x7f80_0000 | quiet);
    let value = if magnitude >= 0x7c00 << 13 { special } else { scaled };
    f32::from_bits(value.to_bits() | ((bits & 0x8000) << 16))
}

/// Rounds to `f16`, ties to even; NaN becomes the quiet one with its sign.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Subnormal results: adding 0.5 aligns the fraction to units of 2^-24, and
    // the addition itself rounds to nearest even.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    // Normal results: rebias the exponent and round at bit 13.
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let small = if magnitude < 113 << 23 { subnormal } else { normal };
    let finite = if magnitude >= 143 << 23 { 0x7c00 } else { small };
    let result = if magnitude > 0x7f80_0000 { 0x7e00 } else { finite };
    sign | result
}

/// The exact value of exponent and fraction, of which `FRACTION` bits are the fraction, without what is special.
#[inline(always)]
fn widen<const FRACTION: u32, const BIAS: u32>(magnitude: u32) -> f32 {
    // Moved into place they read as a value that is 2^(127 - bias) too small.
    f32::from_bits(magnitude << (23 - FRACTION)) * f32::from_bits((254 - BIAS) << 23)
}

/// Rounds the pattern of a magnitude to exponent and fraction, ties to even; what is out of range gives a code
/// that is too large.
#[inline(always)]
fn narrow<const FRACTION: u32, const BIAS: u32>(magnitude: u32) -> u32 {
    // The addition aligns the fraction to units of the least subnormal number, and rounds.
    let aligned = f32::from_bits((127 + 24 - BIAS - FRACTION) << 23);
    let subnormal = (f32::from_bits(magnitude) + aligned).to_bits().wrapping_sub(aligned.to_bits());
    let shift = 23 - FRACTION;
    let odd = (magnitude >> shift) & 1;
    let normal = magnitude.wrapping_sub((127 - BIAS) << 23).wrapping_add((1 << (shift - 1)) - 1 + odd) >> shift;
    if magnitude < (128 - BIAS) << 23 { subnormal } else { normal }
}

/// The exact value of an `f8e4m3fn` pattern.
#[inline(always)]
pub fn f8e4m3fn_to_f32(bits: u32) -> f32 {
    let value = widen::<3, 7>(bits & 0x7f);
    let magnitude = if bits & 0x7f == 0x7f { 0x7fc0_0000 } else { value.to_bits() };
    f32::from_bits(magnitude | (bits & 0x80) << 24)
}

/// Rounds to `f8e4m3fn`, ties to even; NaN above the greatest number.
#[inline(always)]
pub fn f32_to_f8e4m3fn(value: f32) -> u32 {
    let bits = value.to_bits();
    narrow::<3, 7>(bits & 0x7fff_ffff).min(0x7f) | (bits >> 24) & 0x80
}

/// The exact value of an `f8e5m2` pattern.
#[inline(always)]
pub fn f8e5m2_to_f32(bits: u32) -> f32 {
    let value = widen::<2, 15>(bits & 0x7f);
    let special = if bits & 0x7f > 0x7c { 0x7fc0_0000 } else { 0x7f80_0000 };
    let magnitude = if bits & 0x7f >= 0x7c { special } else { value.to_bits() };
    f32::from_bits(magnitude | (bits & 0x80) << 24)
}

/// Rounds to `f8e5m2`, ties to even; infinite above the greatest number.
#[inline(always)]
pub fn f32_to_f8e5m2(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let code = if magnitude > 0x7f80_0000 { 0x7f } else { narrow::<2, 15>(magnitude).min(0x7c) };
    code | (bits >> 24) & 0x80
}

/// The exact value of an `f8e8m0fnu` pattern.
#[inline(always)]
pub fn f8e8m0fnu_to_f32(bits: u32) -> f32 {
    let normal = if bits == 0xff { 0x7fc0_0000 } else { bits << 23 };
    f32::from_bits(if bits == 0 { 0x0040_0000 } else { normal })
}

/// Rounds the magnitude to `f8e8m0fnu`, ties up; NaN above the greatest power.
#[inline(always)]
pub fn f32_to_f8e8m0fnu(value: f32) -> u32 {
    let magnitude = value.to_bits() & 0x7fff_ffff;
    let normal = (magnitude + 0x0040_0000) >> 23;
    let subnormal = u32::from(magnitude > 0x0040_0000);
    let code = if magnitude < 0x0080_0000 { subnormal } else { normal };
    if magnitude >= 0x7f80_0000 { 0xff } else { code }
}

/// The exact value of an `f4e2m1fn` pattern; the high half is ignored.
#[inline(always)]
pub fn f4e2m1fn_to_f32(bits: u32) -> f32 {
    f32::from_bits(widen::<1, 1>(bits & 7).to_bits() | (bits & 8) << 28)
}

/// Rounds to `f4e2m1fn`, ties to even, at most 6 in magnitude; NaN becomes 6.
#[inline(always)]
pub fn f32_to_f4e2m1fn(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let code = narrow::<1, 1>(magnitude).min(7) | (bits >> 28) & 8;
    if magnitude > 0x7f80_0000 { 7 } else { code }
}
