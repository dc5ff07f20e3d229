//! Formats of at most 16 bits with sign, exponent and fraction.

/// A format. A code's lowest bits are the fraction, above them the exponent,
/// above it the sign.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
    /// The code of the greatest value.
    greatest: u16,
    /// The code of values that round above it.
    overflow: u16,
    /// What NaN becomes, which is a NaN where [`Self::has_nan`].
    nan: u16,
    /// Whether codes above the greatest are NaN (with a fraction) or infinite.
    has_nan: bool,
}

/// A format with infinities: the greatest exponent is theirs and NaN's.
const fn ieee(exponent_bits: u32, fraction_bits: u32, nan: u16) -> Format {
    let infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    Format { exponent_bits, fraction_bits, greatest: infinity - 1, overflow: infinity, nan, has_nan: true }
}

const F16: Format = ieee(5, 10, 0x7e00);
const BF16: Format = ieee(8, 7, 0x7fc0);
const F8E5M2: Format = ieee(5, 2, 0x7f);
const F8E4M3FN: Format =
    Format { exponent_bits: 4, fraction_bits: 3, greatest: 0x7e, overflow: 0x7f, nan: 0x7f, has_nan: true };
const F4E2M1FN: Format =
    Format { exponent_bits: 2, fraction_bits: 1, greatest: 7, overflow: 7, nan: 7, has_nan: false };

pub(super) const F64_FRACTION: u32 = 52;
pub(super) const F64_BIAS: i32 = 1023;

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }
    const fn sign(self) -> u16 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    /// Rounds to the format.
    ///
    /// With the value `m * 2^(e - 52)`, `m` of 53 bits, the result's unit in
    /// the last place is `2^(max(e, 1 - bias) - fraction_bits)`. The quotient
    /// of the two is rounded as an integer; adding it to the exponent field
    /// carries into the next binade, and from the greatest value above it.
    #[inline]
    const fn narrow(self, value: f64) -> u16 {
        let bits = value.to_bits();
        let sign = if bits >> 63 == 1 { self.sign() } else { 0 };
        let exponent = ((bits >> F64_FRACTION) & 0x7ff) as i32;
        let fraction = bits & ((1 << F64_FRACTION) - 1);
        if exponent == 0x7ff && fraction != 0 {
            return if self.has_nan { sign | self.nan } else { self.nan };
        }
        // Subnormal f64 values are far below half of any of these formats' units.
        if exponent == 0 {
            return sign;
        }
        let e = exponent - F64_BIAS;
        if e > self.bias() + 1 {
            return sign | self.overflow;
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
        // A normal quotient has its hidden bit set, which counts one exponent step.
        let code = (((unit - least) as u32) << self.fraction_bits) + quotient as u32 + up as u32;
        sign | if code > self.greatest as u32 { self.overflow } else { code as u16 }
    }

    /// The exact value.
    #[inline]
    const fn widen(self, code: u16) -> f64 {
        let sign = ((code & self.sign() != 0) as u64) << 63;
        let magnitude = code & (self.sign() - 1);
        if magnitude > self.greatest {
            // A NaN's fraction is not zero, an infinity's is.
            let payload = ((magnitude & ((1 << self.fraction_bits) - 1)) as u64) << (F64_FRACTION - self.fraction_bits);
            return f64::from_bits(sign | (0x7ff << F64_FRACTION) | payload);
        }
        let exponent = (magnitude >> self.fraction_bits) as i32;
        let fraction = (magnitude & ((1 << self.fraction_bits) - 1)) as u64;
        if exponent == 0 {
            // fraction * 2^(1 - bias - fraction_bits), a normal f64.
            let unit = F64_BIAS + 1 - self.bias() - self.fraction_bits as i32;
            let magnitude = fraction as f64 * f64::from_bits((unit as u64) << F64_FRACTION);
            return f64::from_bits(sign | magnitude.to_bits());
        }
        let shifted = (exponent - self.bias() + F64_BIAS) as u64;
        f64::from_bits(sign | (shifted << F64_FRACTION) | (fraction << (F64_FRACTION - self.fraction_bits)))
    }

    /// The values of all codes of a format of at most 8 bits.
    const fn table(self) -> [f32; 256] {
        let mut values = [0.0; 256];
        let mut code = 0;
        while code < 256 {
            let value = self.widen(code as u16 & (2 * self.sign() - 1));
            // While compiling, a conversion may drop the sign of a NaN.
            let nan = ((value.to_bits() >> 63) as u32) << 31 | 0x7fc0_0000;
            values[code] = if value.is_nan() { f32::from_bits(nan) } else { value as f32 };
            code += 1;
        }
        values
    }
}

static F8E4M3FN_VALUES: [f32; 256] = F8E4M3FN.table();
static F8E5M2_VALUES: [f32; 256] = F8E5M2.table();
static F4E2M1FN_VALUES: [f32; 256] = F4E2M1FN.table();

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
/// Rounds to `f8e4m3fn`; NaN above 464.
pub const fn f64_to_f8e4m3fn(value: f64) -> u8 {
    F8E4M3FN.narrow(value) as u8
}
/// The exact value of an `f8e4m3fn`.
pub const fn f8e4m3fn_to_f32(code: u8) -> f32 {
    F8E4M3FN_VALUES[code as usize]
}
/// Rounds to `f8e5m2`; infinite from 61440.
pub const fn f64_to_f8e5m2(value: f64) -> u8 {
    F8E5M2.narrow(value) as u8
}
/// The exact value of an `f8e5m2`.
pub const fn f8e5m2_to_f32(code: u8) -> f32 {
    F8E5M2_VALUES[code as usize]
}
/// Rounds to `f4e2m1fn`, at most 6 in magnitude.
pub const fn f64_to_f4e2m1fn(value: f64) -> u8 {
    F4E2M1FN.narrow(value) as u8
}
/// The exact value of an `f4e2m1fn`; the high half is ignored.
pub const fn f4e2m1fn_to_f32(code: u8) -> f32 {
    F4E2M1FN_VALUES[code as usize]
}
