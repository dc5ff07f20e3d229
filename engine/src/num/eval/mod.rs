//! The meaning of one scalar operation, computed on the host.
//!
//! Floats: computed in `f64` and rounded once to the type, so `f32` results are
//! (but for rare double rounding) the correctly rounded ones. Integers: exact,
//! then wrapped to the width of the type. An operation on a type that it does
//! not accept (see `accepts` of its table) still gives a definite value, never
//! a panic; nothing builds such an operation.

mod float;
mod int;
mod special;

pub use float::{binary_f64, maximum, minimum, predicate_f64, relation_f64, ternary_f64, unary_f64};
pub use int::wrap;

use super::convert::{bf16_to_f64, f16_to_f64, f64_to_bf16, f64_to_f16, i64_to_f64_odd};
use super::{BinaryOp, DType, DTypeClass, ReduceOp, TernaryOp, UnaryOp, Value};

/// Rounds to a floating-point type; the identity for other types.
pub fn round_float(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16_to_f64(f64_to_f16(value)),
        DType::BF16 => bf16_to_f64(f64_to_bf16(value)),
        _ => value,
    }
}

/// Conversion. Rounds once to nearest even; floats to integers truncate and
/// saturate, NaN gives 0; integers to integers wrap; to `bool` is "not zero",
/// which NaN is not.
pub fn cast(from: DType, to: DType, value: Value) -> Value {
    debug_assert_eq!(from.class(), value.class(), "{value:?} is no {from}");
    match to {
        DType::Bool => Value::Bool(value.as_bool()),
        _ if to.is_float() => Value::Float(match value {
            Value::Int(v) if to == DType::F64 => v as f64,
            Value::Int(v) => round_float(to, i64_to_f64_odd(v)),
            _ => round_float(to, value.as_f64()),
        }),
        _ => Value::Int(match value {
            Value::Float(v) => int::saturate(to, v),
            _ => int::wrap(to, value.as_i64()),
        }),
    }
}

/// The type in which an operation that has no integer form computes.
fn float_type(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

/// One operand of type `dtype`. The result has that type, or `bool` for
/// predicates, or `f32` where an integer operand is promoted.
pub fn unary(op: UnaryOp, dtype: DType, a: Value) -> Value {
    if op.is_predicate() {
        return Value::Bool(match a {
            Value::Float(v) => float::predicate_f64(op)(v),
            _ => int::predicate(op, a.as_i64()),
        });
    }
    match a.class() {
        _ if dtype.is_float() || op.promotes_int_to_float() => {
            Value::Float(round_float(float_type(dtype), float::unary_f64(op)(a.as_f64())))
        }
        DTypeClass::Bool => Value::Bool(a.as_bool() ^ (op == UnaryOp::BitwiseNot)),
        _ => Value::Int(int::unary(op, dtype, a.as_i64())),
    }
}

/// Two operands of type `dtype`. The result has that type, or `bool` for
/// predicates, or `f32` where integer operands are promoted.
pub fn binary(op: BinaryOp, dtype: DType, a: Value, b: Value) -> Value {
    if op.is_predicate() {
        return Value::Bool(match dtype.class() {
            DTypeClass::Float => float::relation_f64(op)(a.as_f64(), b.as_f64()),
            _ => int::relation(op)(a.as_i64(), b.as_i64()),
        });
    }
    match dtype.class() {
        _ if dtype.is_float() || op.promotes_int_to_float() => {
            let to = float_type(dtype);
            Value::Float(round_float(to, float::binary_f64(op, to)(a.as_f64(), b.as_f64())))
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
        DTypeClass::Int => Value::Int(int::ternary(op, dtype, a.as_i64(), b.as_i64(), c.as_i64())),
        DTypeClass::Bool => Value::Bool(int::ternary(op, DType::I8, a.as_i64(), b.as_i64(), c.as_i64()) != 0),
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
        (ReduceOp::Sum | ReduceOp::Max, DTypeClass::Bool) => Value::Bool(false),
        (ReduceOp::Prod | ReduceOp::Min, DTypeClass::Bool) => Value::Bool(true),
    }
}

#[cfg(test)]
mod tests;
