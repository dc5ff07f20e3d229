//! Bit-exact conversions of number formats, rounding once to nearest even.
//!
//! Formats of at most 16 bits have a sign, an exponent and a fraction (all but
//! `f8e8m0fnu`); one routine rounds an `f64` into any of them and one widens back.
//! Widening is exact. What is out of range:
//!
//! | type | above the greatest | NaN |
//! |---|---|---|
//! | `f16`, `bf16` | infinity | quiet NaN, sign kept |
//! | `f8e5m2` | infinity | `0x7f`, sign kept |
//! | `f8e4m3fn` | NaN, as PyTorch converts (hardware offers saturation) | `0x7f`, sign kept |
//! | `f4e2m1fn` | the greatest, 6 | +6, as the hardware's only conversion |
//! | `f8e8m0fnu` | NaN, infinities too | `0xff` |
//!
//! `f8e8m0fnu` keeps the exponent only: the sign is dropped, a fraction of one
//! half or more goes to the next power, 0 becomes 2^-127.

mod format;
mod integer;
mod packed;
mod scale;

pub use format::{
    bf16_to_f32, bf16_to_f64, f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e5m2_to_f32, f16_to_f32, f16_to_f64, f32_to_bf16,
    f32_to_f16, f64_to_bf16, f64_to_f4e2m1fn, f64_to_f8e4m3fn, f64_to_f8e5m2, f64_to_f16,
};
pub use integer::{i64_to_f64_odd, u64_to_f64_odd};
pub use packed::{pack_f4e2m1fn, unpack_f4e2m1fn};
pub use scale::{f8e8m0fnu_to_f32, f64_to_f8e8m0fnu};

#[cfg(test)]
mod tests;
