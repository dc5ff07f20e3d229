//! Every code of every format, and rounding between neighbours.

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
