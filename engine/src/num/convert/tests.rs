//! Every code of every format, and rounding between neighbours.

use super::*;
use crate::num::{DType, Value, eval, storage};

/// A format as its definition states it.
struct Layout {
    exponent_bits: u32,
    fraction_bits: u32,
    /// The greatest exponent field belongs to infinities and NaNs.
    has_infinity: bool,
    /// The code of all ones is NaN.
    has_nan: bool,
    greatest: u16,
    widen: fn(u16) -> f64,
    narrow: fn(f64) -> u16,
}

const F16: Layout = Layout {
    exponent_bits: 5,
    fraction_bits: 10,
    has_infinity: true,
    has_nan: true,
    greatest: 0x7bff,
    widen: f16_to_f64,
    narrow: f64_to_f16,
};
const BF16: Layout = Layout {
    exponent_bits: 8,
    fraction_bits: 7,
    has_infinity: true,
    has_nan: true,
    greatest: 0x7f7f,
    widen: bf16_to_f64,
    narrow: f64_to_bf16,
};
const F8E5M2: Layout = Layout {
    exponent_bits: 5,
    fraction_bits: 2,
    has_infinity: true,
    has_nan: true,
    greatest: 0x7b,
    widen: |code| f8e5m2_to_f32(code as u8).into(),
    narrow: |value| f64_to_f8e5m2(value).into(),
};
const F8E4M3FN: Layout = Layout {
    exponent_bits: 4,
    fraction_bits: 3,
    has_infinity: false,
    has_nan: true,
    greatest: 0x7e,
    widen: |code| f8e4m3fn_to_f32(code as u8).into(),
    narrow: |value| f64_to_f8e4m3fn(value).into(),
};
const F4E2M1FN: Layout = Layout {
    exponent_bits: 2,
    fraction_bits: 1,
    has_infinity: false,
    has_nan: false,
    greatest: 7,
    widen: |code| f4e2m1fn_to_f32(code as u8).into(),
    narrow: |value| f64_to_f4e2m1fn(value).into(),
};
const LAYOUTS: [&Layout; 5] = [&F16, &BF16, &F8E5M2, &F8E4M3FN, &F4E2M1FN];

impl Layout {
    fn sign(&self) -> u16 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    /// The value of a code by the definition of the format.
    fn value(&self, code: u16) -> f64 {
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let sign = if code & self.sign() == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from(code >> self.fraction_bits) & ((1 << self.exponent_bits) - 1);
        let ones = (1 << self.fraction_bits) - 1;
        let fraction = f64::from(code & ones) / f64::from(ones + 1);
        if exponent == (1 << self.exponent_bits) - 1 {
            if self.has_infinity {
                return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
            }
            if self.has_nan && code & ones == ones {
                return f64::NAN;
            }
        }
        if exponent == 0 {
            return sign * fraction * 2f64.powi(1 - bias);
        }
        sign * (1.0 + fraction) * 2f64.powi(exponent - bias)
    }

    /// Every code widens to its value and narrows back to itself.
    fn check_round_trip(&self) {
        for code in 0..=self.sign() | (self.sign() - 1) {
            let (value, expected) = ((self.widen)(code), self.value(code));
            if expected.is_nan() {
                let back = (self.narrow)(value);
                assert!(value.is_nan() && (self.widen)(back).is_nan());
                assert_eq!(back & self.sign(), code & self.sign(), "NaN keeps its sign");
            } else {
                assert_eq!(value.to_bits(), expected.to_bits(), "{code:#06x}");
                assert_eq!((self.narrow)(value), code, "{code:#06x}");
            }
        }
    }

    /// Between two neighbours everything goes to the nearer one, the middle to
    /// the even one; values grow with their codes.
    fn check_rounding(&self) {
        for code in 0..self.greatest {
            let (low, high) = ((self.widen)(code), (self.widen)(code + 1));
            assert!(low < high, "{code:#06x}");
            let middle = (low + high) / 2.0;
            let even = if code & 1 == 0 { code } else { code + 1 };
            for (value, expected) in
                [(middle, even), (middle.next_down(), code), (middle.next_up(), code + 1), (low.next_up(), code)]
            {
                assert_eq!((self.narrow)(value), expected, "{value:e} between {low:e} and {high:e}");
                assert_eq!((self.narrow)(-value), expected | self.sign());
            }
        }
        assert_eq!((self.narrow)(f64::from_bits(1)), 0);
        assert_eq!((self.narrow)(-0.0), self.sign());
    }

    /// The unit continues above the greatest value: half a unit more is above it.
    fn check_overflow(&self, above: u16) {
        let narrow = |value: f64| (self.narrow)(value);
        let greatest = (self.widen)(self.greatest);
        let tie = greatest + (greatest - (self.widen)(self.greatest - 1)) / 2.0;
        assert_eq!(narrow(tie.next_down()), self.greatest);
        assert_eq!(narrow(tie), if self.greatest & 1 == 0 { self.greatest } else { above });
        for value in [tie.next_up(), 2.0 * greatest, f64::MAX, f64::INFINITY] {
            assert_eq!(narrow(value), above, "{value:e}");
            assert_eq!(narrow(-value), above | self.sign(), "{value:e}");
        }
    }
}

#[test]
fn every_code_round_trips_and_every_tie_goes_to_even() {
    for layout in LAYOUTS {
        layout.check_round_trip();
        layout.check_rounding();
    }
    for bits in 0..=u16::MAX {
        assert_eq!(f16_to_f32(bits).is_nan(), f16_to_f64(bits).is_nan());
        assert!(f16_to_f32(bits).is_nan() || f32_to_f16(f16_to_f32(bits)) == bits);
    }
}

#[test]
fn what_is_out_of_range_is_infinite_nan_or_the_greatest() {
    F16.check_overflow(0x7c00);
    BF16.check_overflow(0x7f80);
    F8E5M2.check_overflow(0x7c);
    F8E4M3FN.check_overflow(0x7f);
    F4E2M1FN.check_overflow(7);
    assert_eq!([f64_to_f8e4m3fn(464.0), f64_to_f8e4m3fn(464.1), f64_to_f8e4m3fn(-480.0)], [0x7e, 0x7f, 0xff]);
    assert_eq!([f64_to_f8e5m2(61439.9), f64_to_f8e5m2(61440.0), f64_to_f8e5m2(f64::NAN)], [0x7b, 0x7c, 0x7f]);
    for nan in [f64::NAN, -f64::NAN] {
        assert_eq!(f64_to_f4e2m1fn(nan), 7);
    }
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(f4e2m1fn_to_f32), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
}

/// Every value of the formats of 16 bits, and `f32` values around ties of all
/// narrower formats.
fn values_of(from: DType) -> Vec<Value> {
    let read = |bits: u16| storage::read(from, &bits.to_le_bytes(), 0).unwrap();
    match from {
        DType::F32 => [0u32, 1, 0x7fff, 0x8000, 0xffff]
            .into_iter()
            .flat_map(|low| (0..=u16::MAX).map(move |high| f32::from_bits(u32::from(high) << 16 | low)))
            .map(|value| Value::Float(value.into()))
            .collect(),
        DType::I32 => (-32768..32768i32).map(|i| Value::Int(i.wrapping_mul(77_777).into())).collect(),
        _ => (0..=u16::MAX).map(read).collect(),
    }
}

/// FNV-1a of what PyTorch 2.11 gives; NaN in a format of 16 bits, whose sign it
/// does not keep, counted as 0.
#[test]
fn conversions_give_the_bits_of_pytorch() {
    for (from, to, expected) in [
        (DType::F16, DType::F8E4M3FN, 0xbd571fcbcd351aa5),
        (DType::BF16, DType::F8E4M3FN, 0xfcf9b06835fb1295),
        (DType::F32, DType::F8E4M3FN, 0xe68aa6fab2879055),
        (DType::I32, DType::F8E4M3FN, 0x47f68a4a135afdda),
        (DType::F16, DType::F8E5M2, 0x087ccdde80d93f25),
        (DType::BF16, DType::F8E5M2, 0xe1c140aa89ae5765),
        (DType::F32, DType::F8E5M2, 0x2b8803acc6fa8b65),
        (DType::I32, DType::F8E5M2, 0xebca106ec9ba26d9),
        (DType::F16, DType::F8E8M0FNU, 0xcd5025e4709847b5),
        (DType::BF16, DType::F8E8M0FNU, 0xd4ce5d89cb1a0ca5),
        (DType::F32, DType::F8E8M0FNU, 0xae3fa7cb46989ea5),
        (DType::I32, DType::F8E8M0FNU, 0xf8709df8d0c1a2ab),
        (DType::F16, DType::F16, 0xd8bc50a72cc423a5),
        (DType::BF16, DType::F16, 0x73c8ecb994398b65),
        (DType::F32, DType::F16, 0xd68229cd76284265),
        (DType::I32, DType::F16, 0x57accfddb042a2d1),
        (DType::F16, DType::BF16, 0x5cff2d22dc5c6675),
        (DType::BF16, DType::BF16, 0xc381cf3ea66387a5),
        (DType::F32, DType::BF16, 0x0d8ed0df483d39a5),
        (DType::I32, DType::BF16, 0x84e843c38a291e37),
    ] {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for value in values_of(from) {
            let cast = eval::cast(from, to, value);
            let cast = if to.bytes() == 2 && cast.as_f64().is_nan() { Value::Float(0.0) } else { cast };
            for byte in &storage::encode(to, cast)[..to.bytes()] {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        assert_eq!(hash, expected, "{from} to {to}");
    }
}

#[test]
fn scales_are_powers_of_two() {
    for code in 0..255 {
        let value = f64::from(f8e8m0fnu_to_f32(code));
        assert_eq!(value, 2f64.powi(i32::from(code) - 127));
        assert_eq!([f64_to_f8e8m0fnu(value), f64_to_f8e8m0fnu(-value)], [code; 2]);
        // Half of the way to the next one goes up; from 2^-127 everything does.
        let half = if code == 0 { value.next_up() } else { 1.5 * value };
        assert_eq!([f64_to_f8e8m0fnu(half), f64_to_f8e8m0fnu(half.next_down())], [code + 1, code]);
    }
    assert_eq!([0.0, -0.0, 1e-300, 1e300, f64::INFINITY, f64::NAN].map(f64_to_f8e8m0fnu), [0, 0, 0, 255, 255, 255]);
    assert!(f8e8m0fnu_to_f32(255).is_nan());
}

#[test]
fn packing_puts_the_first_of_two_in_the_low_half() {
    assert_eq!(pack_f4e2m1fn(&[0x1, 0x2, 0xf, 0x0]), Some(vec![0x21, 0x0f]));
    assert_eq!(pack_f4e2m1fn(&[0xf1, 0x2]), Some(vec![0x21]));
    assert_eq!(pack_f4e2m1fn(&[1, 2, 3]), None);
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(pack_f4e2m1fn(&unpack_f4e2m1fn(&bytes)), Some(bytes));
}

#[test]
fn narrowing_f32_to_bf16_agrees_with_the_general_routine() {
    crate::property::property(|u| {
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
    crate::property::property(|u| {
        let value: i64 = u.arbitrary()?;
        let shifted = value >> u.int_in_range(0..=63)?;
        assert_eq!(i64_to_f64_odd(shifted) as f32, shifted as f32, "{shifted}");
        Ok(())
    });
    assert_eq!(i64_to_f64_odd(i64::MIN), i64::MIN as f64);
    assert_eq!(i64_to_f64_odd(i64::MAX) as f32, i64::MAX as f32);
    assert_eq!(u64_to_f64_odd(u64::MAX) as f32, u64::MAX as f32);
    assert_eq!(u64_to_f64_odd((1 << 63) + 1).to_bits(), ((1u64 << 63) as f64).to_bits() + 1);
}
