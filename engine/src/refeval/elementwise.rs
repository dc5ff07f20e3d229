//! Elementwise operations on whole tensors. The common operations on `f32` are
//! written out: IEEE `f32` arithmetic is what `f64` arithmetic rounded once
//! gives. The others call `num::eval` through a function pointer, or per
//! element for most operations on integers.
//!
//! A result of `f32` takes the place of a dense operand that nothing else reads:
//! new storage costs more time than the arithmetic.

use crate::array::nest::{Nest, map1, map2, map3, update1, update2};
use crate::array::{Data, Element, Elements, View};
use crate::diag::{Diagnostic, Result};
use crate::num::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value, eval};
use std::sync::Arc;

/// The elements of a dense operand of `f32` that nothing else reads: the result
/// may take their place.
fn own_f32<'a>(x: &'a mut View, sizes: &[usize]) -> Option<&'a mut [f32]> {
    if x.sizes != sizes || x.offset != 0 || !x.is_dense() {
        return None;
    }
    let len = x.len();
    match Arc::get_mut(&mut x.data) {
        Some(Data::F32(a)) if a.len() == len => Some(a),
        _ => None,
    }
}

/// `op(x)`. The operand may be overwritten.
pub(super) fn unary(op: UnaryOp, x: &mut View) -> Result<View> {
    if op == UnaryOp::Real && !x.dtype.is_complex() {
        return Ok(x.to_dense());
    }
    let dtype = op.result_dtype(x.dtype);
    let sizes = x.sizes.clone();
    if dtype == x.dtype
        && let Some(own) = own_f32(x, &sizes)
    {
        unary_f32(op, Elements1::Own(own));
        return Ok(x.clone());
    }
    let nest = Nest::new(&x.sizes, [&x.strides]);
    let data = match x.elements() {
        Elements::F32(a) if op.is_predicate() => {
            let f = eval::predicate_f64(op);
            Data::Bool(map1(&nest, a, |v| f(v.into())))
        }
        Elements::F64(a) if op.is_predicate() => Data::Bool(map1(&nest, a, eval::predicate_f64(op))),
        Elements::F32(a) => Data::F32(unary_f32(op, Elements1::New(&nest, a))),
        Elements::F64(a) => Data::F64(map1(&nest, a, eval::unary_f64(op))),
        Elements::Complex(a) => unary_complex(op, x.dtype, &nest, a),
        Elements::Int(a) if op.is_predicate() => {
            Data::Bool(map1(&nest, a, |v| eval::unary(op, x.dtype, Value::Int(v)).as_bool()))
        }
        Elements::Int(a) => Data::Int(map1(&nest, a, |v| eval::unary(op, x.dtype, Value::Int(v)).as_i64())),
        Elements::Bool(a) => Data::Bool(map1(&nest, a, |v| eval::unary(op, x.dtype, Value::Bool(v)).as_bool())),
    };
    Ok(View::dense(dtype, x.sizes.clone(), data))
}

fn unary_complex(op: UnaryOp, dtype: DType, nest: &Nest<1>, a: &[eval::Complex]) -> Data {
    match op.result_dtype(dtype) {
        DType::Bool => Data::Bool(map1(nest, a, eval::predicate_complex(op))),
        DType::F32 => {
            let f = eval::part_complex(op);
            Data::F32(map1(nest, a, |v| f(v) as f32))
        }
        DType::F64 => Data::F64(map1(nest, a, eval::part_complex(op))),
        _ => {
            let f = eval::unary_complex(op);
            Data::Complex(map1(nest, a, |v| eval::round_complex(dtype, f(v))))
        }
    }
}

/// Operands of a function of one element, and where its results go.
enum Elements1<'a> {
    /// To a new vector.
    New(&'a Nest<1>, &'a [f32]),
    /// Into the operand's place.
    Own(&'a mut [f32]),
}

impl Elements1<'_> {
    /// The new vector; empty if there is none.
    fn map(self, f: impl Fn(f32) -> f32 + Sync) -> Vec<f32> {
        match self {
            Self::New(nest, a) => map1(nest, a, f),
            Self::Own(a) => {
                update1(a, f);
                Vec::new()
            }
        }
    }
}

fn unary_f32(op: UnaryOp, a: Elements1<'_>) -> Vec<f32> {
    match op {
        UnaryOp::Neg => a.map(|v| -v),
        UnaryOp::Abs => a.map(f32::abs),
        UnaryOp::Sqrt => a.map(f32::sqrt),
        UnaryOp::Reciprocal => a.map(|v| 1.0 / v),
        UnaryOp::Relu => a.map(|v| if v <= 0.0 { 0.0 } else { v }),
        UnaryOp::Exp => a.map(|v| f64::from(v).exp() as f32),
        UnaryOp::Tanh => a.map(|v| f64::from(v).tanh() as f32),
        _ => {
            let f = eval::unary_f64(op);
            a.map(|v| f(v.into()) as f32)
        }
    }
}

/// `op(a, b)` over `sizes`. One of the operands may be overwritten.
pub(super) fn binary(op: BinaryOp, sizes: &[usize], a: &mut View, b: &mut View) -> Result<View> {
    let dtype = op.result_dtype(a.dtype);
    let (sa, sb) = (a.strides_in(sizes), b.strides_in(sizes));
    if dtype == a.dtype && dtype == b.dtype {
        if let (Some(x), Elements::F32(y)) = (own_f32(a, sizes), b.elements()) {
            binary_f32(op, Elements2::Left(&Nest::new(sizes, [&sa, &sb]), x, y));
            return Ok(a.clone());
        }
        if let (Elements::F32(x), Some(y)) = (a.elements(), own_f32(b, sizes)) {
            binary_f32(op, Elements2::Right(&Nest::new(sizes, [&sb, &sa]), x, y));
            return Ok(b.clone());
        }
    }
    let nest = Nest::new(sizes, [&sa, &sb]);
    let data = match (a.elements(), b.elements()) {
        (Elements::F32(x), Elements::F32(y)) if op.is_predicate() => {
            let f = eval::relation_f64(op);
            Data::Bool(map2(&nest, x, y, |x, y| f(x.into(), y.into())))
        }
        (Elements::F64(x), Elements::F64(y)) if op.is_predicate() => {
            Data::Bool(map2(&nest, x, y, eval::relation_f64(op)))
        }
        (Elements::F32(x), Elements::F32(y)) if op == BinaryOp::Complex => {
            Data::Complex(map2(&nest, x, y, |x, y| (x.into(), y.into())))
        }
        (Elements::F64(x), Elements::F64(y)) if op == BinaryOp::Complex => {
            Data::Complex(map2(&nest, x, y, |x, y| (x, y)))
        }
        (Elements::Complex(x), Elements::Complex(y)) if op.is_predicate() => {
            Data::Bool(map2(&nest, x, y, eval::relation_complex(op)))
        }
        (Elements::Complex(x), Elements::Complex(y)) => {
            let f = eval::binary_complex(op);
            Data::Complex(map2(&nest, x, y, |x, y| eval::round_complex(dtype, f(x, y))))
        }
        (Elements::F32(x), Elements::F32(y)) => Data::F32(binary_f32(op, Elements2::New(&nest, x, y))),
        (Elements::F64(x), Elements::F64(y)) => Data::F64(map2(&nest, x, y, eval::binary_f64(op, a.dtype))),
        (Elements::Int(x), Elements::Int(y)) if op.is_predicate() => {
            Data::Bool(map2(&nest, x, y, eval::relation_int(op, a.dtype)))
        }
        (Elements::Int(x), Elements::Int(y)) => Data::Int(match eval::binary_i64(op, a.dtype) {
            Some(f) => map2(&nest, x, y, f),
            None => map2(&nest, x, y, |x, y| eval::binary(op, a.dtype, Value::Int(x), Value::Int(y)).as_i64()),
        }),
        (Elements::Bool(x), Elements::Bool(y)) => {
            let f = |x, y| eval::binary(op, DType::Bool, Value::Bool(x), Value::Bool(y));
            Data::Bool(map2(&nest, x, y, |x, y| f(x, y).as_bool()))
        }
        _ => return Err(mixed(op.name())),
    };
    Ok(View::dense(dtype, sizes.to_vec(), data))
}

fn mixed(name: &str) -> Box<Diagnostic> {
    Diagnostic::bug(format!("operands of {name} differ in type after binding"))
}

/// Operands of a function of two elements, and where its results go.
enum Elements2<'a> {
    /// To a new vector.
    New(&'a Nest<2>, &'a [f32], &'a [f32]),
    /// Into the left operand's place.
    Left(&'a Nest<2>, &'a mut [f32], &'a [f32]),
    /// Into the right operand's place; the nest has it first.
    Right(&'a Nest<2>, &'a [f32], &'a mut [f32]),
}

impl Elements2<'_> {
    /// The new vector; empty if there is none.
    fn map(self, f: impl Fn(f32, f32) -> f32 + Sync) -> Vec<f32> {
        match self {
            Self::New(nest, x, y) => return map2(nest, x, y, f),
            Self::Left(nest, x, y) => update2(nest, x, y, f),
            Self::Right(nest, x, y) => update2(nest, y, x, |y, x| f(x, y)),
        }
        Vec::new()
    }
}

fn binary_f32(op: BinaryOp, operands: Elements2<'_>) -> Vec<f32> {
    match op {
        BinaryOp::Add => operands.map(|x, y| x + y),
        BinaryOp::Sub => operands.map(|x, y| x - y),
        BinaryOp::Mul => operands.map(|x, y| x * y),
        BinaryOp::Div | BinaryOp::Truediv => operands.map(|x, y| x / y),
        _ => {
            let f = eval::binary_f64(op, DType::F32);
            operands.map(|x, y| f(x.into(), y.into()) as f32)
        }
    }
}

/// `op(a, b, c)` over `sizes`.
pub(super) fn ternary(op: TernaryOp, sizes: &[usize], a: &View, b: &View, c: &View) -> Result<View> {
    let strides = [a, b, c].map(|v| v.strides_in(sizes));
    let nest = Nest::new(sizes, std::array::from_fn(|n| strides[n].as_slice()));
    let data = match (a.elements(), b.elements(), c.elements()) {
        (Elements::Bool(_), Elements::Bool(_), Elements::Bool(_)) if op == TernaryOp::Where => {
            select::<bool>(&nest, a, b, c)?
        }
        (Elements::Bool(_), Elements::F32(_), _) if op == TernaryOp::Where => select::<f32>(&nest, a, b, c)?,
        (Elements::Bool(_), Elements::F64(_), _) if op == TernaryOp::Where => select::<f64>(&nest, a, b, c)?,
        (Elements::Bool(_), Elements::Int(_), _) if op == TernaryOp::Where => select::<i64>(&nest, a, b, c)?,
        (Elements::Bool(_), Elements::Complex(_), _) if op == TernaryOp::Where => {
            select::<eval::Complex>(&nest, a, b, c)?
        }
        (Elements::Complex(x), Elements::Complex(y), Elements::Complex(z)) => {
            let f = eval::ternary_complex(op);
            Data::Complex(map3(&nest, x, y, z, |x, y, z| eval::round_complex(c.dtype, f(x, y, z))))
        }
        (Elements::F32(x), Elements::F32(y), Elements::F32(z)) => {
            let f = eval::ternary_f64(op);
            Data::F32(map3(&nest, x, y, z, |x, y, z| f(x.into(), y.into(), z.into()) as f32))
        }
        (Elements::F64(x), Elements::F64(y), Elements::F64(z)) => {
            Data::F64(map3(&nest, x, y, z, eval::ternary_f64(op)))
        }
        (Elements::Int(x), Elements::Int(y), Elements::Int(z)) => {
            let f = |x, y, z| eval::ternary(op, a.dtype, Value::Int(x), Value::Int(y), Value::Int(z));
            Data::Int(map3(&nest, x, y, z, |x, y, z| f(x, y, z).as_i64()))
        }
        _ => return Err(mixed(op.name())),
    };
    Ok(View::dense(c.dtype, sizes.to_vec(), data))
}

fn select<T: Element>(nest: &Nest<3>, condition: &View, a: &View, b: &View) -> Result<Data> {
    let (a, b) = (a.slice::<T>()?, b.slice::<T>()?);
    Ok(T::wrap(map3(nest, condition.slice::<bool>()?, a, b, |c, a, b| if c { a } else { b })))
}

/// Conversion.
pub(super) fn cast(to: DType, x: &View) -> Result<View> {
    let from = x.dtype;
    // The elements of narrower floats are held as f32 already.
    if from == to || (from.is_reduced_float() && to == DType::F32) {
        let same = if x.is_dense() { x.clone() } else { x.to_dense() };
        return Ok(View { dtype: to, ..same });
    }
    let nest = Nest::new(&x.sizes, [&x.strides]);
    let data = match x.elements() {
        Elements::F32(a) => cast_f32(to, &nest, a),
        Elements::F64(a) => cast_f64(to, &nest, a),
        Elements::Int(a) => cast_value(to, &nest, a, |v| eval::cast(from, to, Value::Int(v))),
        Elements::Bool(a) => cast_value(to, &nest, a, |v| eval::cast(from, to, Value::Bool(v))),
        Elements::Complex(a) => cast_value(to, &nest, a, |(re, im)| eval::cast(from, to, Value::Complex(re, im))),
    };
    Ok(View::dense(to, x.sizes.clone(), data))
}

fn cast_f32(to: DType, nest: &Nest<1>, a: &[f32]) -> Data {
    match to {
        DType::F64 => Data::F64(map1(nest, a, f64::from)),
        DType::F16 => Data::F32(map1(nest, a, |v| f16_to_f32(f32_to_f16(v)))),
        DType::BF16 => Data::F32(map1(nest, a, |v| bf16_to_f32(f32_to_bf16(v)))),
        _ => cast_value(to, nest, a, |v| eval::cast(DType::F32, to, Value::Float(v.into()))),
    }
}

fn cast_f64(to: DType, nest: &Nest<1>, a: &[f64]) -> Data {
    match to {
        DType::F32 => Data::F32(map1(nest, a, |v| v as f32)),
        DType::F16 => Data::F32(map1(nest, a, |v| f16_to_f32(f64_to_f16(v)))),
        DType::BF16 => Data::F32(map1(nest, a, |v| bf16_to_f32(f64_to_bf16(v)))),
        _ => cast_value(to, nest, a, |v| eval::cast(DType::F64, to, Value::Float(v))),
    }
}

fn cast_value<A: Copy + Sync>(to: DType, nest: &Nest<1>, a: &[A], f: impl Fn(A) -> Value + Sync) -> Data {
    match to {
        DType::F64 => Data::F64(map1(nest, a, |v| f(v).as_f64())),
        _ if to.is_float() => Data::F32(map1(nest, a, |v| f(v).as_f64() as f32)),
        DType::Bool => Data::Bool(map1(nest, a, |v| f(v).as_bool())),
        _ if to.is_complex() => Data::Complex(map1(nest, a, |v| f(v).as_complex())),
        _ => Data::Int(map1(nest, a, |v| f(v).as_i64())),
    }
}
