//! Promotion: the common type of an operation's operands, and the type in
//! which the operation is done. The shape rule itself is [`super::meta`].
//!
//! A tensor's type wins over a scalar's unless the scalar's class is higher. A
//! number without a type (a literal) is weaker still: next to a typed scalar
//! it takes that scalar's type, alone the default type of its class.

use super::builder::Src;
use super::scalars::ScalarPool;
use super::{Tensor, TensorId};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{DType, DTypeClass, Value, eval, promote, promote_all};
use crate::util::PrimaryMap;

/// The common type of operands, before any rule of an operation. `literal`
/// gives the type of a lone number.
pub(super) fn common_type(
    tensors: &PrimaryMap<TensorId, Tensor>,
    scalars: &ScalarPool,
    operands: &[Src],
    literal: fn(Value) -> DType,
) -> DType {
    let mut strong = Vec::new();
    let mut typed = Vec::new();
    let mut numbers = Vec::new();
    for operand in operands {
        match *operand {
            Src::Tensor(t) => strong.push(tensors[t].dtype),
            Src::Scalar(s) => typed.push(scalars.dtype(s)),
            Src::Number(value) => numbers.push(literal(value)),
        }
    }
    if strong.is_empty() {
        strong = std::mem::take(&mut typed);
    }
    let weak: Vec<DType> = typed.into_iter().chain(numbers).collect();
    promote_all(&strong, &weak).unwrap_or(DType::F32)
}

/// The type of a number that meets no typed operand but shapes a tensor.
pub(super) fn literal_default(value: Value) -> DType {
    match value.class() {
        DTypeClass::Complex => DType::C64,
        DTypeClass::Float => DType::F32,
        DTypeClass::Int => DType::I64,
        DTypeClass::Bool => DType::Bool,
    }
}

/// The type of a number in arithmetic on numbers alone: exact.
pub(super) fn literal_exact(value: Value) -> DType {
    value.home_type()
}

/// The type in which an operation works: reduced floats compute in `f32`, and
/// so do integers where the operation is one on floats.
pub(super) fn working_type(common: DType, int_to_float: bool) -> DType {
    match common.class() {
        DTypeClass::Float | DTypeClass::Complex => common.compute(),
        _ if int_to_float => DType::F32,
        _ => common,
    }
}

/// The type in which `sum` and `prod` accumulate: small integers and `bool`
/// widen to `i64`, reduced floats to `f32`.
pub(super) fn accumulation_type(dtype: DType) -> DType {
    match dtype.class() {
        DTypeClass::Float | DTypeClass::Complex => dtype.compute(),
        _ => promote(DType::I64, dtype),
    }
}

/// Refuses a type that no tensor or scalar of a fusion may have.
pub(super) fn check_type(name: &str, dtype: DType) -> Result<()> {
    if !dtype.is_packed() {
        return Ok(());
    }
    Err(Diagnostic::user(code::DTYPE, format!("{name}: {dtype} is packed, a fusion cannot compute with it"))
        .note("use f4e2m1fn, with twice the size along the innermost axis: packed arguments are unpacked first"))
}

/// Refuses a number that its type cannot hold: a fraction or what is out of
/// range for integers, an imaginary part for real types. A negative integer
/// for `u64` stands for its 64 bits.
pub(super) fn check_number(name: &str, value: Value, dtype: DType) -> Result<()> {
    let refuse = |note: String| {
        let message = format!("{name}: {} is not a number of {dtype}", shown(value));
        Err(Diagnostic::user(code::BAD_NUMBER, message).note(note))
    };
    match value {
        Value::Complex(_, im) if !dtype.is_complex() && im != 0.0 => {
            return refuse(format!("{dtype} holds real numbers; cast to {} first", dtype.to_complex()));
        }
        _ if !dtype.is_int() => return Ok(()),
        _ => {}
    }
    let (low, high) = (eval::least_int(dtype), eval::greatest_int(dtype));
    let bound = |v: i64| eval::to_f64(dtype, Value::Int(v));
    let fits = match value {
        Value::Int(v) => eval::wrap(dtype, v) == v,
        Value::Float(v) | Value::Complex(v, _) => v.fract() == 0.0 && v >= bound(low) && v <= bound(high),
        Value::Bool(_) => true,
    };
    if fits {
        return Ok(());
    }
    let high = if dtype == DType::U64 { high.cast_unsigned().to_string() } else { high.to_string() };
    refuse(format!("{dtype} holds the integers from {low} to {high}"))
}

/// A value for a message.
pub(super) fn shown(value: Value) -> String {
    value.shown(value.home_type())
}
