//! Operations that a device computes by a formula of several steps, each rounded
//! to the type in which it computes.
//!
//! The meaning of an operation ([`eval`]) is rounded once, and the reference
//! computes that. A device rounds the exponential of a logistic function, its sum
//! and its quotient, and loses digits where one of them is subnormal or too large.
//! These are the formulas of the device library's sections of the same names,
//! step for step, for who is held to a device: the simulator. A device's own
//! exponential may differ in its last bits, and it may fuse a product and a sum.

use super::{DType, TernaryOp, UnaryOp, Value, eval};

/// A unary operation on values of a float type, as a device computes it.
pub fn unary_f64(op: UnaryOp, dtype: DType) -> fn(f64) -> f64 {
    formula(op, dtype).unwrap_or_else(|| eval::unary_f64(op))
}

/// One unary operation, as a device computes it.
pub fn unary(op: UnaryOp, dtype: DType, x: Value) -> Value {
    match formula(op, dtype) {
        Some(formula) => rounded(dtype, formula(x.as_f64())),
        None => eval::unary(op, dtype, x),
    }
}

/// One ternary operation, as a device computes it.
pub fn ternary(op: TernaryOp, dtype: DType, a: Value, b: Value, c: Value) -> Value {
    let (x, y, z) = (a.as_f64(), b.as_f64(), c.as_f64());
    match (op, dtype) {
        (TernaryOp::Lerp, DType::F64) => Value::Float(lerp_f64(x, y, z)),
        (TernaryOp::Lerp, _) if dtype.is_float() => rounded(dtype, lerp_f32(x as f32, y as f32, z as f32).into()),
        _ => eval::ternary(op, dtype, a, b, c),
    }
}

/// A result of `f32` as a type holds it.
fn rounded(dtype: DType, value: f64) -> Value {
    let value = Value::Float(value);
    if dtype.is_reduced_float() { eval::cast(DType::F32, dtype, value) } else { value }
}

fn formula(op: UnaryOp, dtype: DType) -> Option<fn(f64) -> f64> {
    match (op, dtype) {
        (UnaryOp::Sigmoid, DType::F64) => Some(sigmoid_f64),
        (UnaryOp::Silu, DType::F64) => Some(|x| x * sigmoid_f64(x)),
        // The maximum with 0, which takes the first of two zeros.
        (UnaryOp::Relu, DType::F64) => Some(|x| if x < 0.0 { 0.0 } else { x }),
        // Numbers of 16 bits compute in `f32`.
        (UnaryOp::Sigmoid, _) if dtype.is_float() => Some(|x| sigmoid_f32(x as f32).into()),
        (UnaryOp::Silu, _) if dtype.is_float() => Some(|x| (x as f32 * sigmoid_f32(x as f32)).into()),
        _ => None,
    }
}

/// The formulas on a type of the device, each step rounded to it. The exponential of
/// an `f32` is that of an `f64`, rounded: what a device's own is nearest to.
macro_rules! formulas {
    ($sigmoid:ident, $lerp:ident, $float:ty) => {
        fn $sigmoid(x: $float) -> $float {
            let e = (-f64::from(x.abs())).exp() as $float;
            (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
        }

        fn $lerp(start: $float, end: $float, weight: $float) -> $float {
            let span = end - start;
            if weight.abs() < 0.5 { start + weight * span } else { end - span * (1.0 - weight) }
        }
    };
}

formulas!(sigmoid_f32, lerp_f32, f32);
formulas!(sigmoid_f64, lerp_f64, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_near_the_operations() {
        for op in [UnaryOp::Sigmoid, UnaryOp::Silu] {
            for step in -800..=800 {
                let x = f64::from(step) / 10.0;
                let exact = eval::unary_f64(op)(x);
                let check = |dtype, bits: i32| {
                    let error = (unary_f64(op, dtype)(x) - exact).abs();
                    assert!(error <= exact.abs() * 2f64.powi(-bits), "{op}({x}) of {dtype} is off by {error}");
                };
                check(DType::F64, 51);
                // The argument is of the type, too: |x| 2^-24 of the result.
                check(DType::F32, 16);
            }
        }
    }

    #[test]
    fn a_step_that_overflows_is_infinite() {
        let [most, half] = [f64::from(f32::MAX), 0.25].map(Value::Float);
        let lerp = |dtype| ternary(TernaryOp::Lerp, dtype, Value::Float(-most.as_f64()), most, half).as_f64();
        assert_eq!(lerp(DType::F32), f64::INFINITY);
        assert_eq!(lerp(DType::F64), -most.as_f64() / 2.0);
    }
}
