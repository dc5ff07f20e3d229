//! Every operation on every type agrees with `num::eval`, bit for bit.

use super::*;
use crate::num::storage::{encode, read};
use crate::num::{ApproxOp, DTypeClass, TernaryOp, UnaryOp, Value, eval, stepwise};

const N: usize = 2048;

/// Special values first, then random ones of all magnitudes.
fn samples(dtype: DType) -> Vec<Value> {
    let mut state = 0x1234_5678_9abc_def0u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^ (state >> 29)
    };
    let special: Vec<Value> = match dtype.class() {
        DTypeClass::Float => {
            [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-40, 1e-310, 6e-8, 65519.9, 65520.0, 3e38, 1e300]
                .into_iter()
                .chain([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 127.5, -128.9, 255.9, 2147483648.0, -9.3e18])
                .map(Value::Float)
                .collect()
        }
        DTypeClass::Int => [0, 1, -1, 2, 3, 7, 15, 16, 31, 32, 63, 64, 127, 128, 255, -128, i64::MAX, i64::MIN]
            .into_iter()
            .chain([
                i32::MAX.into(),
                i32::MIN.into(),
                u32::MAX.into(),
                32767,
                -32768,
                65535,
                464,
                465,
                61440,
                1 << 24,
                (1 << 24) + 1,
                (1 << 53) + 1,
                (1 << 62) + 3,
            ])
            .map(Value::Int)
            .collect(),
        DTypeClass::Bool => vec![Value::Bool(false), Value::Bool(true)],
        DTypeClass::Complex => [0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
            .into_iter()
            .flat_map(|re| [0.0, -0.0, 2.0, f64::INFINITY, f64::NAN].map(|im| Value::Complex(re, im)))
            .collect(),
    };
    (0..N)
        .map(|i| {
            let random = next();
            match dtype.class() {
                _ if i < special.len() => special[i],
                // Half of them small, where functions are interesting.
                DTypeClass::Float if i % 2 == 0 => Value::Float((random >> 40) as f64 / 1e6 - 8.0),
                DTypeClass::Float => Value::Float(f64::from(f32::from_bits(random as u32))),
                DTypeClass::Int if i % 2 == 0 => Value::Int((random % 200) as i64 - 100),
                DTypeClass::Int => Value::Int(random as i64 >> (random % 48)),
                DTypeClass::Bool => Value::Bool(random & 1 == 1),
                DTypeClass::Complex => {
                    let part = |bits: u64| (bits & 0xf_ffff) as f64 / 65536.0 - 8.0;
                    Value::Complex(part(random >> 40), part(random >> 20))
                }
            }
        })
        .map(|value| read(dtype, &encode(dtype, value), 0).unwrap())
        .collect()
}

/// Positions of the operands of element `i`.
fn operands(i: usize) -> [usize; 3] {
    [i, (i * 7 + 3) % N, (i * 13 + 11) % N]
}

/// `y[i] = f(x[operands(i)])` on the simulator equals `expected`.
fn check_op(
    what: &str,
    dtype: DType,
    out: DType,
    f: impl Fn(&mut KernelBuilder, [ExprId; 3]) -> ExprId,
    expected: impl Fn([Value; 3]) -> Value,
) {
    let kernel = vector_kernel(dtype, out, (N / 64) as i64, 64, |b, x, y, n| {
        let i = global_thread(b, 64);
        let loads = [(1, 0), (7, 3), (13, 11)].map(|(scale, offset)| {
            let (scale, offset) = (b.int(scale), b.int(offset));
            let scaled = b.exprs().mul(i, scale);
            let shifted = b.exprs().add(scaled, offset);
            let at = b.exprs().rem(shifted, n);
            b.load("v", x, at)
        });
        let value = f(b, loads);
        b.store(y, i, value);
    });
    verify(&kernel).unwrap_or_else(|error| panic!("{what}: {error}"));
    let values = samples(dtype);
    let bytes: Vec<u8> = values.iter().flat_map(|&v| encode(dtype, v)[..dtype.bytes()].to_vec()).collect();
    let prepared = Prepared::new(kernel, dtype, N, bytes);
    let options = SimOptions { threads: 1, ..SimOptions::default() };
    let (result, _) = prepared.run(&options).unwrap_or_else(|error| panic!("{what}: {error}"));
    for i in 0..N {
        let inputs = operands(i).map(|k| values[k]);
        let (actual, wanted) = (read(out, &result, i).unwrap(), expected(inputs));
        let wanted = read(out, &encode(out, wanted), 0).unwrap();
        let parts = |value: Value| {
            let (re, im) = value.as_complex();
            [re, im].map(|part| if part.is_nan() { f64::NAN.to_bits() } else { part.to_bits() })
        };
        let is_int = matches!(wanted, Value::Int(_));
        let alike = if is_int { actual == wanted } else { parts(actual) == parts(wanted) };
        assert!(alike, "{what} on {inputs:?}: {actual:?}, expected {wanted:?}");
    }
}

#[test]
fn unary_operations() {
    for dtype in DType::FUSION.iter().copied() {
        for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            let out = op.result_dtype(dtype);
            let what = format!("{op} on {dtype}");
            check_op(&what, dtype, out, |b, [a, ..]| b.exprs().unary(op, a), |[a, ..]| stepwise::unary(op, dtype, a));
        }
    }
}

#[test]
fn approximations() {
    for &op in ApproxOp::ALL {
        let expected = |[a, ..]: [Value; 3]| Value::Float(op.eval()(a.as_f64()));
        check_op(op.name(), DType::F32, DType::F32, |b, [a, ..]| b.exprs().approx(op, a), expected);
    }
}

#[test]
fn binary_operations() {
    for dtype in DType::FUSION.iter().copied() {
        for &op in BinaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            let out = op.result_dtype(dtype);
            let what = format!("{op} on {dtype}");
            let expected = |[a, b, _]: [Value; 3]| eval::binary(op, dtype, a, b);
            check_op(&what, dtype, out, |b, [x, y, _]| b.exprs().binary(op, x, y), expected);
        }
    }
}

#[test]
fn ternary_operations() {
    for dtype in DType::FUSION.iter().copied() {
        for &op in TernaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            let what = format!("{op} on {dtype}");
            if op == TernaryOp::Where {
                let select = |b: &mut KernelBuilder, [x, y, z]: [ExprId; 3]| {
                    let same = b.exprs().binary(BinaryOp::Eq, x, z);
                    b.exprs().ternary(op, same, y, z)
                };
                if !dtype.is_reduced_float() {
                    check_op(&what, dtype, dtype, select, |[x, y, z]| {
                        let same = eval::binary(BinaryOp::Eq, dtype, x, z).as_bool();
                        if same { y } else { z }
                    });
                }
                continue;
            }
            let expected = |[x, y, z]: [Value; 3]| stepwise::ternary(op, dtype, x, y, z);
            check_op(&what, dtype, dtype, |b, [x, y, z]| b.exprs().ternary(op, x, y, z), expected);
        }
    }
}

#[test]
fn conversions() {
    for from in DType::FUSION.iter().copied() {
        for to in DType::FUSION.iter().copied() {
            let what = format!("{from} to {to}");
            check_op(&what, from, to, |b, [a, ..]| b.exprs().cast(a, to), |[a, ..]| eval::cast(from, to, a));
        }
    }
}

#[test]
fn sixteen_bit_conversions_agree_on_every_pattern() {
    use crate::num::convert;
    for bits in 0..=u16::MAX {
        let pairs = [
            (simcore::convert::f16_to_f32(bits.into()), convert::f16_to_f32(bits)),
            (simcore::convert::bf16_to_f32(bits.into()), convert::bf16_to_f32(bits)),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#06x}");
        }
    }
    // All exponents, and fractions around every rounding boundary of both types.
    for exponent in 0..512u32 {
        for fraction in (0..1u32 << 23).step_by(0x0fff) {
            for nudge in [0, 1, u32::MAX] {
                let value = f32::from_bits((exponent << 23 | fraction).wrapping_add(nudge));
                assert_eq!(simcore::convert::f32_to_f16(value), convert::f32_to_f16(value).into(), "{value:e}");
                assert_eq!(simcore::convert::f32_to_bf16(value), convert::f32_to_bf16(value).into(), "{value:e}");
            }
        }
    }
}

/// A conversion from `f32` on every exponent and around every rounding boundary of 8 bits agrees with the reference.
fn check_narrow(dtype: DType, narrow: fn(f32) -> u32, widen: fn(u32) -> f32) {
    for exponent in 0..512u32 {
        for fraction in (0..1u32 << 23).step_by(1 << 18) {
            for nudge in [0, 1, u32::MAX] {
                let value = f32::from_bits((exponent << 23 | fraction).wrapping_add(nudge));
                let wanted = encode(dtype, Value::Float(value.into()))[0];
                assert_eq!(narrow(value), wanted.into(), "{value:e} as {dtype}");
            }
        }
    }
    for code in 0..=u8::MAX {
        let wanted = read(dtype, &[code], 0).unwrap().as_f64() as f32;
        assert_eq!(widen(code.into()).to_bits(), wanted.to_bits(), "{code:#04x} of {dtype}");
    }
}

#[test]
fn conversions_of_eight_bits_agree_with_the_reference() {
    use simcore::convert::*;
    check_narrow(DType::F8E4M3FN, f32_to_f8e4m3fn, f8e4m3fn_to_f32);
    check_narrow(DType::F8E5M2, f32_to_f8e5m2, f8e5m2_to_f32);
    check_narrow(DType::F8E8M0FNU, f32_to_f8e8m0fnu, f8e8m0fnu_to_f32);
    check_narrow(DType::F4E2M1FN, f32_to_f4e2m1fn, f4e2m1fn_to_f32);
}

#[test]
fn random_blocks_agree_with_the_definition() {
    use crate::num::philox;
    let numbers = [0, 1, 2, 0xffff_ffff, 1 << 32, 0x1_0000_0001, u64::MAX >> 1, u64::MAX, 0x243f_6a88_85a3_08d3];
    for seed in numbers {
        for offset in numbers {
            for subsequence in numbers {
                let words = simcore::random::block(seed, offset, subsequence);
                assert_eq!(words, philox::block(seed, offset, subsequence), "{seed} {offset} {subsequence}");
                let [a, b, ..] = words;
                assert_eq!(simcore::random::unit_f32(a).to_bits(), philox::unit_f32(a).to_bits());
                assert_eq!(simcore::random::unit_f64(a, b).to_bits(), philox::unit_f64(a, b).to_bits());
            }
        }
    }
}

#[test]
fn random_numbers_of_subsequences_beyond_32_bits() {
    use crate::num::philox::{block, unit_f32, unit_f64};
    let (seed, offset, first) = (0x1234_5678_9abc_def0, 7, (1 << 40) - 3);
    let kernel = |dtype: DType| {
        vector_kernel(DType::F32, dtype, 2, 32, |b, _, y, _| {
            let thread = global_thread(b, 32);
            let [seed, offset, first] = [seed, offset, first].map(|word| b.exprs().int(word, DType::I64));
            let thread_wide = b.exprs().cast(thread, DType::I64);
            let thread_wide = b.exprs().as_data(thread_wide);
            let subsequence = b.exprs().add(first, thread_wide);
            let numbers = b.random("u", dtype, seed, offset, subsequence);
            let count = b.int(numbers.len() as i64);
            let place = b.exprs().mul(thread, count);
            for (i, number) in numbers.into_iter().enumerate() {
                let i = b.int(i as i64);
                let place = b.exprs().add(place, i);
                b.store(y, place, number);
            }
        })
    };
    let words: Vec<[u32; 4]> = (0..64).map(|i| block(seed as u64, offset as u64, first as u64 + i)).collect();
    let singles: Vec<f32> = words.iter().flatten().map(|word| unit_f32(*word)).collect();
    check_values(kernel(DType::F32), &[0.0; 256], &singles);
    let doubles: Vec<u8> =
        words.iter().flat_map(|w| [unit_f64(w[0], w[1]), unit_f64(w[2], w[3])]).flat_map(f64::to_le_bytes).collect();
    let prepared = Prepared::new(kernel(DType::F64), DType::F32, 128, f32_bytes(&[0.0; 128]));
    crate::kernel::verify(&prepared.kernel).unwrap();
    assert_eq!(prepared.run(&SimOptions::default()).unwrap().0, doubles);
}
