//! Conversions of 16-bit floats, branch-free so that loops over lanes
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
