//! Elementwise operations on whole tensors. The common operations on `f32` are
//! written out: IEEE `f32` arithmetic is what `f64` arithmetic rounded once
//! gives. The others call `num::eval` through a function pointer, or per
//! element for integers.

use crate::array::nest::{Nest, map1, map2, map3};
use crate::array::{Data, Element, Elements, View};
use crate::diag::{Diagnostic, Result};
use crate::num::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value, eval};

/// `op(x)`.
pub(super) fn unary(op: UnaryOp, x: &View) -> Result<View> {
    if op == UnaryOp::Real && !x.dtype.is_complex() {
        return Ok(x.to_dense());
    }
    let dtype = op.result_dtype(x.dtype);
    let nest = Nest::new(&x.sizes, [&x.strides]);
    let data = match x.elements() {
        Elements::F32(a) if op.is_predicate() => {
            let f = eval::predicate_f64(op);
            Data::Bool(map1(&nest, a, |v| f(v.into())))
        }
        Elements::F64(a) if op.is_predicate() => Data::Bool(map1(&nest, a, eval::predicate_f64(op))),
        Elements::F32(a) => Data::F32(unary_f32(op, &nest, a)),
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

fn unary_f32(op: UnaryOp, nest: &Nest<1>, a: &[f32]) -> Vec<f32> {
    match op {
        UnaryOp::Neg => map1(nest, a, |v| -v),
        UnaryOp::Abs => map1(nest, a, f32::abs),
        UnaryOp::Sqrt => map1(nest, a, f32::sqrt),
        UnaryOp::Reciprocal => map1(nest, a, |v| 1.0 / v),
        UnaryOp::Relu => map1(nest, a, |v| if v <= 0.0 { 0.0 } else { v }),
        UnaryOp::Exp => map1(nest, a, |v| f64::from(v).exp() as f32),
        UnaryOp::Tanh => map1(nest, a, |v| f64::from(v).tanh() as f32),
        _ => {
            let f = eval::unary_f64(op);
            map1(nest, a, |v| f(v.into()) as f32)
        }
    }
}

/// `op(a, b)` over `sizes`.
pub(super) fn binary(op: BinaryOp, sizes: &[usize], a: &View, b: &View) -> Result<View> {
    let dtype = op.result_dtype(a.dtype);
    let (sa, sb) = (a.strides_in(sizes), b.strides_in(sizes));
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
        (Elements::F32(x), Elements::F32(y)) => Data::F32(binary_f32(op, &nest, x, y)),
        (Elements::F64(x), Elements::F64(y)) => Data::F64(map2(&nest, x, y, eval::binary_f64(op, a.dtype))),
        (Elements::Int(x), Elements::Int(y)) => {
            let f = |x, y| eval::binary(op, a.dtype, Value::Int(x), Value::Int(y));
            if op.is_predicate() {
                Data::Bool(map2(&nest, x, y, |x, y| f(x, y).as_bool()))
            } else {
                Data::Int(map2(&nest, x, y, |x, y| f(x, y).as_i64()))
            }
        }
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

fn binary_f32(op: BinaryOp, nest: &Nest<2>, x: &[f32], y: &[f32]) -> Vec<f32> {
    match op {
        BinaryOp::Add => map2(nest, x, y, |x, y| x + y),
        BinaryOp::Sub => map2(nest, x, y, |x, y| x - y),
        BinaryOp::Mul => map2(nest, x, y, |x, y| x * y),
        BinaryOp::Div | BinaryOp::Truediv => map2(nest, x, y, |x, y| x / y),
        _ => {
            let f = eval::binary_f64(op, DType::F32);
            map2(nest, x, y, |x, y| f(x.into(), y.into()) as f32)
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
