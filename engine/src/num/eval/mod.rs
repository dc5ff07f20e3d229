//! The meaning of one scalar operation, computed on the host.
//!
//! Floats: computed in `f64` and rounded once to the type, so `f32` results are
//! (but for rare double rounding) the correctly rounded ones; complex numbers
//! likewise, part by part. Integers: exact, then wrapped to the width of the
//! type; `u64` is unsigned throughout. An operation on a type that it does not
//! accept (see `accepts` of its table) still gives a definite value, never a
//! panic; nothing builds such an operation.

mod complex;
mod float;
mod int;
mod special;

pub use complex::{
    Complex, binary_complex, combine_complex, part_complex, predicate_complex, relation_complex, ternary_complex,
    unary_complex,
};
pub use float::{binary_f64, maximum, minimum, predicate_f64, relation_f64, ternary_f64, unary_f64};
pub use int::{
    binary_i64, compare as compare_int, greatest as greatest_int, least as least_int, relation as relation_int, wrap,
};

use super::convert::{
    bf16_to_f64, f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e5m2_to_f32, f8e8m0fnu_to_f32, f16_to_f64, f64_to_bf16,
    f64_to_f4e2m1fn, f64_to_f8e4m3fn, f64_to_f8e5m2, f64_to_f8e8m0fnu, f64_to_f16, i64_to_f64_odd, u64_to_f64_odd,
};
use super::{BinaryOp, DType, DTypeClass, ReduceOp, TernaryOp, UnaryOp, Value};
use crate::util::self_check;

/// Rounds to a floating-point type; the identity for other types.
pub fn round_float(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16_to_f64(f64_to_f16(value)),
        DType::BF16 => bf16_to_f64(f64_to_bf16(value)),
        DType::F8E4M3FN => f8e4m3fn_to_f32(f64_to_f8e4m3fn(value)).into(),
        DType::F8E5M2 => f8e5m2_to_f32(f64_to_f8e5m2(value)).into(),
        DType::F8E8M0FNU => f8e8m0fnu_to_f32(f64_to_f8e8m0fnu(value)).into(),
        DType::F4E2M1FN => f4e2m1fn_to_f32(f64_to_f4e2m1fn(value)).into(),
        _ => value,
    }
}

/// Rounds both parts to those of a complex type.
pub fn round_complex(dtype: DType, (re, im): Complex) -> Complex {
    (round_float(dtype.part(), re), round_float(dtype.part(), im))
}

/// A value of a type as a float; the nearest one for large integers.
pub fn to_f64(dtype: DType, value: Value) -> f64 {
    match value {
        Value::Int(v) if dtype == DType::U64 => v.cast_unsigned() as f64,
        _ => value.as_f64(),
    }
}

/// Conversion. Rounds once to nearest even; floats to integers truncate and
/// saturate, NaN gives 0; integers to integers wrap; to `bool` is "not zero",
/// which NaN is not; complex to real drops the imaginary part.
pub fn cast(from: DType, to: DType, value: Value) -> Value {
    self_check!(from.class() == value.class(), "{value:?} is no {from}");
    match to.class() {
        DTypeClass::Bool => Value::Bool(value.as_bool()),
        DTypeClass::Float => Value::Float(cast_float(from, to, value)),
        DTypeClass::Complex => match value {
            Value::Complex(re, im) => {
                let (re, im) = round_complex(to, (re, im));
                Value::Complex(re, im)
            }
            _ => Value::Complex(cast_float(from, to.part(), value), 0.0),
        },
        DTypeClass::Int => Value::Int(match value {
            Value::Float(v) | Value::Complex(v, _) => int::saturate(to, v),
            _ => int::wrap(to, value.as_i64()),
        }),
    }
}

fn cast_float(from: DType, to: DType, value: Value) -> f64 {
    match value {
        Value::Int(_) if to == DType::F64 => to_f64(from, value),
        Value::Int(v) if from == DType::U64 => round_float(to, u64_to_f64_odd(v.cast_unsigned())),
        Value::Int(v) => round_float(to, i64_to_f64_odd(v)),
        _ => round_float(to, value.as_f64()),
    }
}

/// The type in which an operation that has no integer form computes.
fn float_type(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

/// One operand of type `dtype`. The result has the operation's
/// `result_dtype`, or is `f32` where an integer operand is promoted.
pub fn unary(op: UnaryOp, dtype: DType, a: Value) -> Value {
    if let Value::Complex(re, im) = a {
        return unary_of_complex(op, dtype, (re, im));
    }
    if op.is_predicate() {
        return Value::Bool(match a {
            Value::Float(v) => float::predicate_f64(op)(v),
            _ => int::predicate(op, dtype, a.as_i64()),
        });
    }
    match a.class() {
        _ if dtype.is_float() || op.promotes_int_to_float() => {
            Value::Float(round_float(float_type(dtype), float::unary_f64(op)(to_f64(dtype, a))))
        }
        DTypeClass::Bool => Value::Bool(a.as_bool() ^ (op == UnaryOp::BitwiseNot)),
        _ => Value::Int(int::unary(op, dtype, a.as_i64())),
    }
}

fn unary_of_complex(op: UnaryOp, dtype: DType, z: Complex) -> Value {
    if op.is_predicate() {
        return Value::Bool(complex::predicate_complex(op)(z));
    }
    if op.result_dtype(dtype) != dtype {
        return Value::Float(round_float(dtype.part(), complex::part_complex(op)(z)));
    }
    let (re, im) = round_complex(dtype, complex::unary_complex(op)(z));
    Value::Complex(re, im)
}

/// Two operands of type `dtype`. The result has the operation's
/// `result_dtype`, or is `f32` where integer operands are promoted.
pub fn binary(op: BinaryOp, dtype: DType, a: Value, b: Value) -> Value {
    if op.is_predicate() {
        return Value::Bool(match dtype.class() {
            DTypeClass::Float => float::relation_f64(op)(a.as_f64(), b.as_f64()),
            DTypeClass::Complex => complex::relation_complex(op)(a.as_complex(), b.as_complex()),
            _ => int::relation(op, dtype)(a.as_i64(), b.as_i64()),
        });
    }
    match dtype.class() {
        _ if op == BinaryOp::Complex => Value::Complex(to_f64(dtype, a), to_f64(dtype, b)),
        DTypeClass::Complex => {
            let (re, im) = round_complex(dtype, complex::binary_complex(op)(a.as_complex(), b.as_complex()));
            Value::Complex(re, im)
        }
        _ if dtype.is_float() || op.promotes_int_to_float() => {
            let to = float_type(dtype);
            Value::Float(round_float(to, float::binary_f64(op, to)(to_f64(dtype, a), to_f64(dtype, b))))
        }
        DTypeClass::Bool => Value::Bool(int::binary_bool(op, a.as_bool(), b.as_bool())),
        _ => Value::Int(int::binary(op, dtype, a.as_i64(), b.as_i64())),
    }
}

/// Three operands of type `dtype`, but for the condition of `where`, which is
/// `bool`. The result has that type.
pub fn ternary(op: TernaryOp, dtype: DType, a: Value, b: Value, c: Value) -> Value {
    if op == TernaryOp::Where {
        return if a.as_bool() { b } else { c };
    }
    match dtype.class() {
        DTypeClass::Float => {
            Value::Float(round_float(dtype, float::ternary_f64(op)(a.as_f64(), b.as_f64(), c.as_f64())))
        }
        DTypeClass::Complex => {
            let f = complex::ternary_complex(op);
            let (re, im) = round_complex(dtype, f(a.as_complex(), b.as_complex(), c.as_complex()));
            Value::Complex(re, im)
        }
        DTypeClass::Int => Value::Int(int::ternary(op, dtype, a.as_i64(), b.as_i64(), c.as_i64())),
        DTypeClass::Bool => Value::Bool(int::ternary(op, DType::I8, a.as_i64(), b.as_i64(), c.as_i64()) != 0),
    }
}

/// Two partial results of a reduction combined.
pub fn combine(op: ReduceOp, dtype: DType, a: Value, b: Value) -> Value {
    match op.combine() {
        Some(op) => binary(op, dtype, a, b),
        None => {
            let (re, im) = round_complex(dtype, complex::combine_complex(op)(a.as_complex(), b.as_complex()));
            Value::Complex(re, im)
        }
    }
}

/// The neutral element of a reduction over elements of a type.
pub fn reduce_identity(op: ReduceOp, dtype: DType) -> Value {
    match (op, dtype.class()) {
        (ReduceOp::Sum, DTypeClass::Float) => Value::Float(0.0),
        (ReduceOp::Prod, DTypeClass::Float) => Value::Float(1.0),
        (ReduceOp::Max, DTypeClass::Float) => Value::Float(f64::NEG_INFINITY),
        (ReduceOp::Min, DTypeClass::Float) => Value::Float(f64::INFINITY),
        (ReduceOp::Sum, DTypeClass::Int) => Value::Int(0),
        (ReduceOp::Prod, DTypeClass::Int) => Value::Int(1),
        (ReduceOp::Max, DTypeClass::Int) => Value::Int(int::least(dtype)),
        (ReduceOp::Min, DTypeClass::Int) => Value::Int(int::greatest(dtype)),
        (ReduceOp::Prod, DTypeClass::Complex) => Value::Complex(1.0, 0.0),
        (ReduceOp::MaxSumExp, _) => Value::Complex(f64::NEG_INFINITY, 0.0),
        (_, DTypeClass::Complex) => Value::Complex(0.0, 0.0),
        (ReduceOp::Sum | ReduceOp::Max, DTypeClass::Bool) => Value::Bool(false),
        (ReduceOp::Prod | ReduceOp::Min, DTypeClass::Bool) => Value::Bool(true),
    }
}

#[cfg(test)]
mod tests;
