//! Tables of hand-computed values, and identities on random ones.

mod complex;

use super::*;
use Value::{Bool, Float, Int};

fn check_unary(op: UnaryOp, dtype: DType, cases: &[(Value, Value)]) {
    for &(a, expected) in cases {
        assert_eq!(unary(op, dtype, a), expected, "{op}({a:?}) as {dtype}");
    }
}

fn check_binary(op: BinaryOp, dtype: DType, cases: &[(Value, Value, Value)]) {
    for &(a, b, expected) in cases {
        assert_eq!(binary(op, dtype, a, b), expected, "{op}({a:?}, {b:?}) as {dtype}");
    }
}

/// Relative error below `1e-14` in `f64`.
fn check_close(op: UnaryOp, cases: &[(f64, f64)]) {
    for &(x, expected) in cases {
        let actual = unary(op, DType::F64, Float(x)).as_f64();
        let error = ((actual - expected) / expected).abs();
        assert!(actual == expected || error < 2e-15, "{op}({x:e}) = {actual:e}, expected {expected:e}");
    }
}

fn floats(pairs: &[(f64, f64)]) -> Vec<(Value, Value)> {
    pairs.iter().map(|&(a, b)| (Float(a), Float(b))).collect()
}

const INF: f64 = f64::INFINITY;

#[test]
fn roundings_go_where_they_say() {
    let f32_cases = |op, cases: &[(f64, f64)]| check_unary(op, DType::F32, &floats(cases));
    f32_cases(UnaryOp::Round, &[(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-2.5, -2.0), (2.6, 3.0)]);
    f32_cases(UnaryOp::Floor, &[(1.5, 1.0), (-1.5, -2.0)]);
    f32_cases(UnaryOp::Ceil, &[(1.5, 2.0), (-1.5, -1.0)]);
    f32_cases(UnaryOp::Trunc, &[(1.5, 1.0), (-1.5, -1.0)]);
    f32_cases(UnaryOp::Frac, &[(1.5, 0.5), (-1.5, -0.5)]);
    f32_cases(UnaryOp::Sign, &[(3.0, 1.0), (-0.5, -1.0), (0.0, 0.0), (f64::NAN, 0.0)]);
    f32_cases(UnaryOp::Relu, &[(-1.0, 0.0), (2.0, 2.0)]);
    f32_cases(UnaryOp::Rsqrt, &[(4.0, 0.5), (0.0, INF)]);
    f32_cases(UnaryOp::Reciprocal, &[(3.0, f64::from(1.0f32 / 3.0)), (-0.0, -INF)]);
    f32_cases(UnaryOp::Exp, &[(0.0, 1.0), (89.0, INF), (1.0, f64::from(std::f32::consts::E))]);
    assert!(unary(UnaryOp::Relu, DType::F32, Float(f64::NAN)).as_f64().is_nan());
}

#[test]
fn special_functions_are_accurate() {
    check_close(UnaryOp::Erf, &[(0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (-6.0, -1.0)]);
    check_close(UnaryOp::Erfc, &[(1.0, 0.157_299_207_050_285_13), (10.0, 2.088_487_583_762_545e-45)]);
    check_close(UnaryOp::Lgamma, &[(0.5, 0.572_364_942_924_700_1), (10.0, 12.801_827_480_081_469), (1.0, 0.0)]);
    check_close(UnaryOp::Erfinv, &[(0.5, 0.476_936_276_204_469_9), (0.0, 0.0), (1.0, INF), (-1.0, -INF)]);
    check_close(UnaryOp::Erfcinv, &[(1.0, 0.0), (1.5, -0.476_936_276_204_469_9), (0.0, INF), (2.0, -INF)]);
    check_close(UnaryOp::Asinh, &[(1.0, 0.881_373_587_019_543), (-1e-9, -1e-9)]);
    check_close(UnaryOp::Sigmoid, &[(0.0, 0.5), (-1000.0, 0.0), (40.0, 1.0)]);
    for outside in [1.5, -1.0001] {
        assert!(unary(UnaryOp::Erfinv, DType::F64, Float(outside)).as_f64().is_nan());
    }
}

#[test]
fn inverse_error_functions_invert() {
    crate::property::property(|u| {
        // Exponents from -300 to 0, so that the far tail is met.
        let exponent = f64::from(u.int_in_range(-300..=0)?);
        let mantissa = f64::from(u.int_in_range(1_000_000..=9_999_999)?) / 1e7;
        let q = mantissa * 10f64.powf(exponent);
        let x = special::erfcinv(q);
        // The condition number of erfc is about 2x^2.
        let error = ((libm::erfc(x) - q) / q).abs();
        assert!(error < 1e-15 * (4.0 + 2.0 * x * x), "erfc(erfcinv({q:e})) is off by {error:e}");
        let y = special::erfinv(mantissa);
        assert!((libm::erf(y) - mantissa).abs() < 4e-16, "erf(erfinv({mantissa}))");
        assert_eq!(special::erfinv(-mantissa), -y);
        Ok(())
    });
    // The asymptotic form meets the iterated one.
    let (below, above) = (special::erfcinv(0.999_999e-280), special::erfcinv(1.000_001e-280));
    assert!(below > above && below - above < 1e-7);
}

#[test]
fn integer_operations_wrap_in_their_width() {
    use BinaryOp::*;
    let ints = |cases: &[(i64, i64, i64)]| cases.iter().map(|&(a, b, c)| (Int(a), Int(b), Int(c))).collect::<Vec<_>>();
    check_binary(Add, DType::I8, &ints(&[(127, 1, -128), (-128, -1, 127)]));
    check_binary(Add, DType::U8, &ints(&[(255, 1, 0)]));
    check_binary(Sub, DType::U8, &ints(&[(0, 1, 255)]));
    check_binary(Mul, DType::I32, &ints(&[(1 << 31, 2, 0), (65_536, 65_536, 0), (i32::MAX.into(), 2, -2)]));
    check_binary(Mul, DType::I64, &ints(&[(i64::MAX, 2, -2)]));
    check_binary(Div, DType::I32, &ints(&[(7, -2, -3), (5, 0, 0), (i32::MIN.into(), -1, i32::MIN.into())]));
    check_binary(Div, DType::I64, &ints(&[(i64::MIN, -1, i64::MIN)]));
    check_binary(Mod, DType::I32, &ints(&[(7, -2, 1), (-7, 2, -1), (7, 0, 0)]));
    check_binary(Fmod, DType::I32, &ints(&[(-7, 2, -1)]));
    check_binary(Remainder, DType::I32, &ints(&[(-7, 2, 1), (7, -2, -1), (-6, 2, 0), (1, 0, 0)]));
    check_binary(Pow, DType::I32, &ints(&[(3, 4, 81), (2, 32, 0), (2, -1, 0), (-1, -3, -1), (-1, -2, 1), (0, 0, 1)]));
    check_binary(ShiftLeft, DType::I32, &ints(&[(1, 31, i32::MIN.into()), (1, 32, 0), (1, -1, 0)]));
    check_binary(ShiftRight, DType::I8, &ints(&[(-8, 1, -4), (-8, 8, -1), (8, 99, 0), (-1, -1, -1)]));
    check_binary(LogicalShiftRight, DType::I8, &ints(&[(-1, 1, 127), (-1, 8, 0), (-128, 7, 1)]));
    check_binary(LogicalShiftRight, DType::I64, &ints(&[(-1, 1, i64::MAX), (-1, 0, -1)]));
    check_binary(Gcd, DType::I32, &ints(&[(12, -18, 6), (0, 0, 0), (0, -5, 5)]));
    check_binary(CeilDiv, DType::I64, &ints(&[(7, 2, 4), (8, 2, 4), (0, 3, 0), (i64::MAX, 2, 1 << 62)]));
    check_binary(BitwiseXor, DType::U8, &ints(&[(0b1100, 0b1010, 0b0110)]));
    check_unary(UnaryOp::Abs, DType::I8, &[(Int(-128), Int(-128)), (Int(-5), Int(5))]);
    check_unary(UnaryOp::Neg, DType::U8, &[(Int(1), Int(255))]);
    check_unary(UnaryOp::BitwiseNot, DType::U8, &[(Int(1), Int(254))]);
    check_unary(UnaryOp::BitwiseNot, DType::Bool, &[(Bool(true), Bool(false))]);
    check_unary(UnaryOp::Exp, DType::I32, &[(Int(0), Float(1.0))]);
    check_binary(Truediv, DType::I32, &[(Int(1), Int(2), Float(0.5))]);
    check_binary(Add, DType::Bool, &[(Bool(true), Bool(true), Bool(true))]);
}

#[test]
fn nan_wins_in_extrema_and_loses_in_relations() {
    use BinaryOp::*;
    for op in [Minimum, Maximum] {
        for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert!(binary(op, DType::F32, Float(a), Float(b)).as_f64().is_nan());
        }
    }
    check_binary(Maximum, DType::F32, &[(Float(1.0), Float(2.0), Float(2.0)), (Float(-INF), Float(1.0), Float(1.0))]);
    for op in [Eq, Ge, Gt, Le, Lt] {
        check_binary(op, DType::F32, &[(Float(f64::NAN), Float(f64::NAN), Bool(false))]);
    }
    check_binary(Ne, DType::F32, &[(Float(f64::NAN), Float(f64::NAN), Bool(true))]);
    let clamped = ternary(TernaryOp::Clamp, DType::F32, Float(f64::NAN), Float(0.0), Float(1.0));
    assert!(clamped.as_f64().is_nan());
    check_unary(UnaryOp::IsNan, DType::F32, &[(Float(f64::NAN), Bool(true)), (Float(INF), Bool(false))]);
    check_unary(UnaryOp::Signbit, DType::F32, &[(Float(-0.0), Bool(true)), (Float(0.0), Bool(false))]);
    check_unary(UnaryOp::LogicalNot, DType::F32, &[(Float(f64::NAN), Bool(false)), (Float(-0.0), Bool(true))]);
}

#[test]
fn float_remainders_take_the_documented_sign() {
    let cases = [(-7.0, 2.0, 1.0), (7.0, -2.0, -1.0), (7.5, 2.0, 1.5), (-1.0, INF, INF)];
    for (a, b, expected) in cases {
        check_binary(BinaryOp::Remainder, DType::F32, &[(Float(a), Float(b), Float(expected))]);
    }
    check_binary(BinaryOp::Fmod, DType::F32, &[(Float(-7.0), Float(2.0), Float(-1.0))]);
}

#[test]
fn nextafter_steps_on_the_grid_of_the_type() {
    let tiny = f64::from(f32::from_bits(1));
    let f32_cases = [
        (1.0, 2.0, f64::from(1.0f32.next_up())),
        (1.0, 0.0, f64::from(1.0f32.next_down())),
        (0.0, 1.0, tiny),
        (0.0, -1.0, -tiny),
        (tiny, -1.0, 0.0),
        (-1.0, 0.0, f64::from((-1.0f32).next_up())),
        (f64::from(f32::MAX), INF, INF),
        (3.0, 3.0, 3.0),
    ];
    for (a, b, expected) in f32_cases {
        check_binary(BinaryOp::Nextafter, DType::F32, &[(Float(a), Float(b), Float(expected))]);
    }
    check_binary(BinaryOp::Nextafter, DType::F64, &[(Float(1.0), Float(2.0), Float(1.0f64.next_up()))]);
    check_binary(BinaryOp::Nextafter, DType::BF16, &[(Float(1.0), Float(2.0), Float(1.0 + 1.0 / 128.0))]);
    check_binary(BinaryOp::Nextafter, DType::F16, &[(Float(1.0), Float(0.0), Float(1.0 - 1.0 / 2048.0))]);
}

#[test]
fn ternaries_pick_and_blend() {
    let three = |op, dtype, a, b, c| ternary(op, dtype, a, b, c);
    assert_eq!(three(TernaryOp::Where, DType::I32, Bool(true), Int(1), Int(2)), Int(1));
    assert_eq!(three(TernaryOp::Where, DType::BF16, Bool(false), Float(1.0), Float(2.0)), Float(2.0));
    assert_eq!(three(TernaryOp::Clamp, DType::I8, Int(100), Int(-5), Int(5)), Int(5));
    assert_eq!(three(TernaryOp::Clamp, DType::F32, Float(0.0), Float(2.0), Float(1.0)), Float(1.0));
    assert_eq!(three(TernaryOp::Threshold, DType::F32, Float(1.0), Float(1.0), Float(9.0)), Float(9.0));
    // Exact at both ends even where end - start is not.
    let (start, end) = (Float(1e8), Float(1e-8));
    assert_eq!(three(TernaryOp::Lerp, DType::F64, start, end, Float(1.0)), end);
    assert_eq!(three(TernaryOp::Lerp, DType::F64, start, end, Float(0.0)), start);
}

#[test]
fn casts_round_once_truncate_and_saturate() {
    use DType::*;
    for (from, to, value, expected) in [
        (F32, I32, Float(-1.9), Int(-1)),
        (F32, I32, Float(3e9), Int(i32::MAX.into())),
        (F32, I8, Float(-1000.0), Int(-128)),
        (F32, U8, Float(-1.0), Int(0)),
        (F32, U8, Float(256.0), Int(255)),
        (F64, I64, Float(INF), Int(i64::MAX)),
        (F64, I64, Float(f64::NAN), Int(0)),
        (I64, I32, Int(1 << 32 | 5), Int(5)),
        (I32, U8, Int(-1), Int(255)),
        (I64, F32, Int((1 << 24) + 1), Float(16_777_216.0)),
        (I64, F16, Int(70_000), Float(INF)),
        (F64, F16, Float(1.0 + 1.0 / 2048.0), Float(1.0)),
        (F64, F16, Float((1.0f64 + 1.0 / 2048.0).next_up()), Float(1.0 + 1.0 / 1024.0)),
        (F64, BF16, Float(1.0 + 3.0 / 256.0), Float(1.0 + 1.0 / 64.0)),
        (Bool, F32, Value::Bool(true), Float(1.0)),
        (Bool, I8, Value::Bool(true), Int(1)),
        (F32, Bool, Float(f64::NAN), Value::Bool(true)),
        (F32, Bool, Float(-0.0), Value::Bool(false)),
    ] {
        assert_eq!(cast(from, to, value), expected, "{value:?} from {from} to {to}");
    }
}

/// A random value of a type, extremes included.
fn arbitrary_value(u: &mut arbtest::arbitrary::Unstructured<'_>, dtype: DType) -> arbtest::arbitrary::Result<Value> {
    let bits: u128 = u.arbitrary()?;
    Ok(crate::num::storage::read(dtype, &bits.to_le_bytes(), 0).expect("sixteen bytes hold every type"))
}

#[test]
fn results_are_values_of_the_result_type() {
    crate::property::property(|u| {
        let dtype = *u.choose(DType::ALL)?;
        let (a, b) = (arbitrary_value(u, dtype)?, arbitrary_value(u, dtype)?);
        let op = *u.choose(BinaryOp::ALL)?;
        if op.accepts(dtype) {
            let result_type = op.result_dtype(dtype);
            let result = binary(op, dtype, a, b);
            assert_eq!(result.class(), result_type.class());
            check_representable(result_type, result);
        }
        let op = *u.choose(UnaryOp::ALL)?;
        if op.accepts(dtype) {
            let result_type = op.result_dtype(dtype);
            check_representable(result_type, unary(op, dtype, a));
        }
        let to = *u.choose(DType::ALL)?;
        let cast_once = cast(dtype, to, a);
        check_representable(to, cast_once);
        if crate::num::promote(dtype, to) == to && dtype.class() == to.class() && a == a {
            let back = cast(to, dtype, cast_once);
            assert!(same(back, a), "{dtype} to {to} and back: {a:?} became {back:?}");
        }
        Ok(())
    });
}

fn same(a: Value, b: Value) -> bool {
    let part = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let ((x, y), (v, w)) = (a.as_complex(), b.as_complex());
    a == b || (a.class() == b.class() && !matches!(a, Int(_) | Bool(_)) && part(x, v) && part(y, w))
}

/// Storing and reading back gives the same value.
fn check_representable(dtype: DType, value: Value) {
    let bytes = crate::num::storage::encode(dtype, value);
    let back = crate::num::storage::read(dtype, &bytes, 0).expect("sixteen bytes hold every type");
    assert!(same(back, value), "{value:?} is no {dtype}");
}

#[test]
fn identities_are_neutral() {
    crate::property::property(|u| {
        let dtype = *u.choose(DType::ALL)?;
        let op = *u.choose(ReduceOp::ALL)?;
        if op.accepts(dtype) {
            let value = arbitrary_value(u, dtype)?;
            let combined = combine(op, dtype, reduce_identity(op, dtype), value);
            let ((x, y), (v, w)) = (combined.as_complex(), value.as_complex());
            // The product formula makes NaN of an infinite part, and zeros lose their signs.
            let infinite = dtype.is_complex() && !(v.is_finite() && w.is_finite());
            assert!(infinite || same(combined, value) || (x == v && y == w), "{op} {value:?}");
        }
        Ok(())
    });
}

#[test]
fn unsigned_numbers_use_all_their_bits() {
    use BinaryOp::*;
    let most = u64::MAX.cast_signed();
    let high = (1u64 << 63).cast_signed();
    for (op, a, b, expected) in [
        (Add, most, 1, 0),
        (Sub, 0, 1, most),
        (Div, most, 2, i64::MAX),
        (Div, 5, most, 0),
        (Div, most, 0, 0),
        (Fmod, most, 10, 5),
        (Remainder, high, 3, 2),
        (Minimum, most, 1, 1),
        (Maximum, most, 1, most),
        (ShiftRight, most, 60, 15),
        (ShiftRight, most, 64, 0),
        (ShiftRight, most, most, 0),
        (ShiftLeft, 1, 63, high),
        (LogicalShiftRight, high, 63, 1),
        (Gcd, high, 6, 2),
        (CeilDiv, most, 2, high),
        (Pow, 3, 41, 36_472_996_377_170_786_403u128 as u64 as i64),
        (Pow, -1, -1, -1),
    ] {
        check_binary(op, DType::U64, &[(Int(a), Int(b), Int(expected))]);
    }
    for (op, expected) in [(Lt, false), (Gt, true), (Le, false), (Ge, true), (Eq, false), (Ne, true)] {
        check_binary(op, DType::U64, &[(Int(most), Int(1), Bool(expected))]);
    }
    check_unary(UnaryOp::Abs, DType::U64, &[(Int(most), Int(most))]);
    check_unary(UnaryOp::Sign, DType::U64, &[(Int(most), Int(1)), (Int(0), Int(0))]);
    check_unary(UnaryOp::Relu, DType::U64, &[(Int(most), Int(most))]);
    check_unary(UnaryOp::Signbit, DType::U64, &[(Int(most), Bool(false))]);
    check_unary(UnaryOp::Neg, DType::U16, &[(Int(1), Int(65_535))]);
    check_binary(Mul, DType::U32, &[(Int(1 << 16), Int(1 << 16), Int(0))]);
    check_binary(Add, DType::I16, &[(Int(32_767), Int(1), Int(-32_768))]);
    assert_eq!(ternary(TernaryOp::Clamp, DType::U64, Int(most), Int(1), Int(high)), Int(high));
    assert_eq!(ternary(TernaryOp::Threshold, DType::U64, Int(most), Int(1), Int(7)), Int(most));
    for (from, to, value, expected) in [
        (DType::U64, DType::F64, Int(most), Float(18_446_744_073_709_551_616.0)),
        (DType::U64, DType::F32, Int(high + 1), Float(9_223_372_036_854_775_808.0)),
        (DType::U64, DType::C128, Int(most), Value::Complex(18_446_744_073_709_551_616.0, 0.0)),
        (DType::F64, DType::U64, Float(1e30), Int(most)),
        (DType::F64, DType::U64, Float(1e19), Int(10_000_000_000_000_000_000u64.cast_signed())),
        (DType::F64, DType::U64, Float(-1.0), Int(0)),
        (DType::U64, DType::I32, Int(most), Int(-1)),
        (DType::I8, DType::U32, Int(-1), Int(4_294_967_295)),
        (DType::F32, DType::U16, Float(70_000.0), Int(65_535)),
        (DType::I64, DType::Index, Int(-5), Int(-5)),
        (DType::C64, DType::F32, Value::Complex(1.5, 2.0), Float(1.5)),
        (DType::C64, DType::I8, Value::Complex(-3.7, 2.0), Int(-3)),
        (DType::C64, DType::Bool, Value::Complex(0.0, 2.0), Bool(true)),
        (DType::C128, DType::C64, Value::Complex(0.1, -0.1), Value::Complex(0.1f32.into(), (-0.1f32).into())),
        (DType::Bool, DType::C64, Bool(true), Value::Complex(1.0, 0.0)),
    ] {
        assert_eq!(cast(from, to, value), expected, "{value:?} from {from} to {to}");
    }
}
