//! Functions of tiny and huge arguments whose results are scaled back: where an
//! approximation loses what is tiny, the product shows it.

use super::{DrawKind, Drawn, Measure, tensor};
use crate::data::{Draw, held};
use engine::fusion::ops::{self, Args};
use engine::fusion::{AxisDecl, FusionBuilder, Operand};
use engine::num::{BinaryOp, DType, DTypeClass, UnaryOp, Value, eval};
use engine::options::Options;
use engine::tensor::{Arg, HostTensor};

/// A function with the arguments for which a result has all its digits.
struct Function {
    name: &'static str,
    low: f64,
    high: f64,
    /// The function itself.
    value: fn(f64) -> f64,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f64) -> f64 {
    x * (1.0 + eval::unary_f64(UnaryOp::Erf)(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0
}

fn tanh_gelu(x: f64) -> f64 {
    x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0
}

/// Where results are subnormal numbers of `f32`, as much is lost in the
/// reference; those are drawn for results of 16 bits only.
const FUNCTIONS: &[Function] = &[
    Function { name: "exp", low: -85.0, high: 85.0, value: f64::exp },
    Function { name: "exp2", low: -125.0, high: 125.0, value: f64::exp2 },
    Function { name: "sigmoid", low: -85.0, high: 200.0, value: sigmoid },
    Function { name: "silu", low: -80.0, high: 200.0, value: |x| x * sigmoid(x) },
    Function { name: "tanh", low: -1e-3, high: 1e-3, value: f64::tanh },
    Function { name: "erf", low: -1e-3, high: 1e-3, value: |x| eval::unary_f64(UnaryOp::Erf)(x) },
    Function { name: "tanh", low: -200.0, high: 200.0, value: f64::tanh },
    Function { name: "erf", low: -200.0, high: 200.0, value: |x| eval::unary_f64(UnaryOp::Erf)(x) },
    Function { name: "gelu", low: -1.0, high: 200.0, value: gelu },
    Function { name: "tanh_gelu", low: -1.0, high: 200.0, value: tanh_gelu },
    Function { name: "expm1", low: -1e-3, high: 1e-3, value: f64::exp_m1 },
    Function { name: "log1p", low: -1e-3, high: 1e-3, value: f64::ln_1p },
    Function { name: "sin", low: -1e-3, high: 1e-3, value: f64::sin },
];
/// Results that are subnormal.
const TINY: &[Function] = &[
    Function { name: "exp", low: -95.0, high: -87.5, value: f64::exp },
    Function { name: "exp2", low: -137.0, high: -126.5, value: f64::exp2 },
    Function { name: "sigmoid", low: -95.0, high: -87.5, value: sigmoid },
];

/// `f(x)` times or divided by something that makes it moderate, or its share of
/// a sum of its like.
pub(super) fn scaled(draw: &mut Draw) -> Option<Drawn> {
    let narrow = draw.below(3) > 0;
    let tiny = narrow && draw.once_in(3);
    let function = &(if tiny { TINY } else { FUNCTIONS })[draw.below(if tiny { TINY.len() } else { FUNCTIONS.len() })];
    let dtype = if narrow { draw.choose(&[DType::BF16, DType::F32, DType::F16]) } else { DType::F32 };
    let sizes = [draw.choose(&[1, 3, 8]), draw.choose(&[4, 33, 64, 256])];
    let ratio = draw.once_in(3) && function.low < -10.0;
    let mut b = FusionBuilder::new("scaled");
    let x = b.tensor("x", dtype, &[AxisDecl::Symbolic, AxisDecl::Symbolic]).ok()?;
    let row = ops::find(function.name)?;
    let y = *b.apply(&Args::new(row).value("x", x)).ok()?.first()?;
    let (result, args) = match ratio {
        true => share(&mut b, draw, function, y, (dtype, &sizes))?,
        false => moderate(&mut b, draw, function, y, (dtype, &sizes))?,
    };
    let to = if narrow { draw.choose(&[DType::BF16, DType::F16]) } else { DType::F32 };
    let result = b.cast(result, to).ok()?;
    b.output(result).ok()?;
    let fusion = b.finish().ok()?;
    let options = Options { self_check: false, ..Options::default() };
    // Arguments of a hundred lose seven bits in an exponential; a subnormal result has few.
    let share = if tiny { 1.0 / 64.0 } else { 1.0 / 32768.0 };
    Some(Drawn { kind: DrawKind::Scaled, fusion, args, options, measure: Measure::Relative(share) })
}

fn between(draw: &mut Draw, low: f64, high: f64) -> f64 {
    low + (high - low) * draw.below(1 << 20) as f64 / f64::from((1 << 20) - 1)
}

/// A magnitude between 2^-24 of the bound and the bound where it is small, else any.
fn argument(draw: &mut Draw, function: &Function, dtype: DType) -> f64 {
    let x = between(draw, function.low, function.high);
    let x = if function.high < 1.0 { x * 2f64.powi(-(draw.below(60) as i32)) } else { x };
    let held = |x: f64| held(dtype, Value::Float(x)).as_f64();
    let x = held(x);
    // Of 16 bits the nearest may lie outside of the range, or be nothing.
    if x == 0.0 || !(function.low..=function.high).contains(&x) { held(function.low / 2.0) } else { x }
}

type Made = (Operand, Vec<Arg>);

/// Divided by the sum of a row whose elements are near each other.
fn share(
    b: &mut FusionBuilder,
    draw: &mut Draw,
    function: &Function,
    y: Operand,
    (dtype, sizes): (DType, &[i64; 2]),
) -> Option<Made> {
    let sum = b.sum(y, &[1], true).ok()?;
    let result = b.binary(BinaryOp::Div, y, sum).ok()?;
    let (low, high) = (function.low.max(-95.0), function.high.min(20.0).min(function.low + 60.0));
    let base = between(draw, low, high - 1.0);
    let x = tensor(dtype, sizes, || Value::Float(between(draw, base, base + 1.0)))?;
    Some((result, vec![Arg::Tensor(x)]))
}

/// Times or divided by the other input.
fn moderate(
    b: &mut FusionBuilder,
    draw: &mut Draw,
    function: &Function,
    y: Operand,
    (dtype, sizes): (DType, &[i64; 2]),
) -> Option<Made> {
    let to = draw.choose(&[DType::F32, DType::BF16]);
    let z = b.tensor("y", to, &[AxisDecl::Symbolic, AxisDecl::Symbolic]).ok()?;
    let divides = draw.once_in(2);
    let result = if divides { b.binary(BinaryOp::Div, y, z) } else { b.binary(BinaryOp::Mul, y, z) }.ok()?;
    let x = tensor(dtype, sizes, || Value::Float(argument(draw, function, dtype)))?;
    let scale = |value: Value| {
        let number = (function.value)(value.as_f64());
        let wanted = 1.5 + draw.below(1000) as f64 / 500.0;
        let factor = if divides { number / wanted } else { wanted / number };
        // Within what both types hold; the result is then smaller or larger.
        Value::Float(factor.signum() * factor.abs().clamp(1e-36, 1e36))
    };
    let factors: Vec<Value> = x.values().map(scale).collect();
    assert_eq!(to.class(), DTypeClass::Float);
    let mut next = factors.into_iter();
    let y = HostTensor::from_fn(to, sizes, |_| next.next().unwrap_or(Value::Float(1.0))).ok()?;
    Some((result, vec![Arg::Tensor(x), Arg::Tensor(y)]))
}
