//! Complex operations on pairs of `f64`. Products are the plain formula and
//! quotients scale by the larger part of the divisor, as PyTorch's do: neither
//! recovers infinities from NaN parts. Elementary functions follow the branch
//! cuts of C (continuous with the side that the sign of a zero names) and
//! avoid overflow and cancellation in between.

use crate::num::{BinaryOp, ReduceOp, TernaryOp, UnaryOp};
use std::f64::consts::{FRAC_PI_2, LN_2, LN_10};

/// Real and imaginary part.
pub type Complex = (f64, f64);

const NAN: Complex = (f64::NAN, f64::NAN);
/// Above this the square of a part may overflow.
const LARGE: f64 = 1e150;
/// Above this `exp` may overflow.
const EXP_LARGE: f64 = 700.0;

/// The function of a unary operation with a complex result; NaN for what has none.
pub fn unary_complex(op: UnaryOp) -> fn(Complex) -> Complex {
    use UnaryOp::*;
    match op {
        Acos => acos,
        Acosh => acosh,
        Asin => |z| unrotated(asinh(rotated(z))),
        Asinh => asinh,
        Atan => |z| unrotated(atanh(rotated(z))),
        Atanh => atanh,
        Cos => |z| cosh(rotated(z)),
        Cosh => cosh,
        Exp => exp,
        Exp2 => |(x, y)| exp_of(x * LN_2, x.exp2(), y * LN_2),
        Expm1 => expm1,
        Log => log,
        Log10 => |z| scaled(log(z), 1.0 / LN_10),
        Log1p => log1p,
        Log2 => |z| scaled(log(z), 1.0 / LN_2),
        Neg => |(x, y)| (-x, -y),
        Reciprocal => |z| div((1.0, 0.0), z),
        Rsqrt => |z| div((1.0, 0.0), sqrt(z)),
        Sigmoid => sigmoid,
        Silu => |z| mul(z, sigmoid(z)),
        Sin => |z| unrotated(sinh(rotated(z))),
        Sinh => sinh,
        Sqrt => sqrt,
        Tan => |z| unrotated(tanh(rotated(z))),
        Tanh => tanh,
        Abs | Ceil | Erf | Erfc | Erfinv | Erfcinv | Floor | Frac | Lgamma | LogicalNot | BitwiseNot | Relu | Round
        | Sign | Signbit | Trunc | IsFinite | IsInf | IsNan | IsNegInf | IsPosInf | IsReal | Real | Imag => |_| NAN,
    }
}

/// The function of a unary operation on a complex number with a real result;
/// NaN for what has none.
pub fn part_complex(op: UnaryOp) -> fn(Complex) -> f64 {
    match op {
        UnaryOp::Abs => |(x, y)| x.hypot(y),
        UnaryOp::Real => |(x, _)| x,
        UnaryOp::Imag => |(_, y)| y,
        _ => |_| f64::NAN,
    }
}

/// The function of a unary predicate; false for other operations.
pub fn predicate_complex(op: UnaryOp) -> fn(Complex) -> bool {
    use UnaryOp::*;
    match op {
        LogicalNot => |(x, y)| x == 0.0 && y == 0.0,
        IsFinite => |(x, y)| x.is_finite() && y.is_finite(),
        IsInf => |(x, y)| x.is_infinite() || y.is_infinite(),
        IsNan => |(x, y)| x.is_nan() || y.is_nan(),
        IsReal => |(_, y)| y == 0.0,
        _ => |_| false,
    }
}

/// The function of a binary operation; NaN for what has no complex form.
pub fn binary_complex(op: BinaryOp) -> fn(Complex, Complex) -> Complex {
    use BinaryOp::*;
    match op {
        Add => add,
        Sub => sub,
        Mul => mul,
        Div | Truediv => div,
        Pow => pow,
        _ => |_, _| NAN,
    }
}

/// The function that combines two partial results of a reduction; NaN for what has no complex form.
pub fn combine_complex(op: ReduceOp) -> fn(Complex, Complex) -> Complex {
    match op {
        ReduceOp::MaxSumExp => max_sum_exp,
        _ => op.combine().map_or(|_, _| NAN, binary_complex),
    }
}

/// `(max(m, n), s * exp(m - max) + t * exp(n - max))`. What is infinitely below the maximum is nothing, and a sum of
/// something below an infinite one is NaN.
fn max_sum_exp((m, s): Complex, (n, t): Complex) -> Complex {
    let max = super::maximum(m, n);
    let scaled = |sum: f64, own: f64| match (own - max).exp() {
        _ if own == max => sum,
        0.0 => 0.0,
        factor => sum * factor,
    };
    let sum = scaled(s, m) + scaled(t, n);
    (max, if sum == 0.0 || max.is_finite() { sum } else { f64::NAN })
}

/// The function of a binary predicate; false for other operations.
pub fn relation_complex(op: BinaryOp) -> fn(Complex, Complex) -> bool {
    match op {
        BinaryOp::Eq => |a, b| a == b,
        BinaryOp::Ne => |a, b| a != b,
        BinaryOp::LogicalAnd => |a, b| nonzero(a) && nonzero(b),
        BinaryOp::LogicalOr => |a, b| nonzero(a) || nonzero(b),
        _ => |_, _| false,
    }
}

/// The function of a ternary operation; `where` takes its condition as "not
/// zero", NaN for what has no complex form.
pub fn ternary_complex(op: TernaryOp) -> fn(Complex, Complex, Complex) -> Complex {
    match op {
        TernaryOp::Where => |c, a, b| if nonzero(c) { a } else { b },
        TernaryOp::Lerp => |start, end, weight| {
            // As for floats: the second form is exact at weight 1.
            let span = sub(end, start);
            if weight.0.hypot(weight.1) < 0.5 {
                add(start, mul(weight, span))
            } else {
                sub(end, mul(span, sub((1.0, 0.0), weight)))
            }
        },
        TernaryOp::Clamp | TernaryOp::Threshold => |_, _, _| NAN,
    }
}

fn nonzero((x, y): Complex) -> bool {
    x != 0.0 || y != 0.0
}
fn add(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}
fn sub(a: Complex, b: Complex) -> Complex {
    (a.0 - b.0, a.1 - b.1)
}
fn mul((a, b): Complex, (c, d): Complex) -> Complex {
    (a * c - b * d, a * d + b * c)
}
fn scaled((x, y): Complex, by: f64) -> Complex {
    (x * by, y * by)
}
/// `i z`.
fn rotated((x, y): Complex) -> Complex {
    (-y, x)
}
/// `-i z`.
fn unrotated((x, y): Complex) -> Complex {
    (y, -x)
}

/// Divides both by the larger part of the divisor first.
fn div((a, b): Complex, (c, d): Complex) -> Complex {
    if c == 0.0 && d == 0.0 {
        return (a / c.abs(), b / d.abs());
    }
    if c.abs() >= d.abs() {
        let ratio = d / c;
        let scale = c + d * ratio;
        ((a + b * ratio) / scale, (b - a * ratio) / scale)
    } else {
        let ratio = c / d;
        let scale = d + c * ratio;
        ((a * ratio + b) / scale, (b * ratio - a) / scale)
    }
}

/// `z^w = exp(w log z)`; small whole powers by multiplication. As in PyTorch,
/// 0 to the power 0 is NaN.
fn pow(z: Complex, w: Complex) -> Complex {
    if !nonzero(z) {
        return match w.0 {
            re if re > 0.0 => (0.0, 0.0),
            re if re < 0.0 => (f64::INFINITY, f64::NAN),
            _ => NAN,
        };
    }
    if w.1 == 0.0 && w.0.fract() == 0.0 && w.0.abs() <= 64.0 {
        let power = whole_pow(z, w.0.abs() as u32);
        return if w.0 < 0.0 { div((1.0, 0.0), power) } else { power };
    }
    exp(mul(w, log(z)))
}

fn whole_pow(z: Complex, mut n: u32) -> Complex {
    let (mut result, mut square) = (None, z);
    while n > 0 {
        if n & 1 == 1 {
            result = Some(result.map_or(square, |result| mul(result, square)));
        }
        n >>= 1;
        if n > 0 {
            square = mul(square, square);
        }
    }
    result.unwrap_or((1.0, 0.0))
}

/// With the exponential that does not overflow.
fn sigmoid((x, y): Complex) -> Complex {
    if x < 0.0 {
        let exp = exp((x, y));
        return div(exp, add((1.0, 0.0), exp));
    }
    div((1.0, 0.0), add((1.0, 0.0), exp((-x, -y))))
}

fn exp((x, y): Complex) -> Complex {
    exp_of(x, x.exp(), y)
}

/// `e^x (cos y + i sin y)`, given `e^x` too.
fn exp_of(x: f64, exp_x: f64, y: f64) -> Complex {
    if y == 0.0 {
        return (exp_x, y);
    }
    if x.is_infinite() && !y.is_finite() {
        return if x > 0.0 { (f64::INFINITY, f64::NAN) } else { (0.0, 0.0) };
    }
    if x > EXP_LARGE && x.is_finite() {
        let half = (x / 2.0).exp();
        return (half * y.cos() * half, half * y.sin() * half);
    }
    (exp_x * y.cos(), exp_x * y.sin())
}

fn expm1((x, y): Complex) -> Complex {
    if y == 0.0 {
        return (x.exp_m1(), y);
    }
    let (re, im) = exp((x, y));
    if x.abs() > 1.0 || !x.is_finite() || !y.is_finite() {
        return (re - 1.0, im);
    }
    // e^x cos y - 1 = (e^x - 1) cos y - 2 sin^2(y / 2).
    let half = (y / 2.0).sin();
    (x.exp_m1() * y.cos() - 2.0 * half * half, im)
}

/// `ln |z|`: near the unit circle through `|z|^2 - 1`.
fn log_abs(x: f64, y: f64) -> f64 {
    let (low, high) = if x.abs() < y.abs() { (x.abs(), y.abs()) } else { (y.abs(), x.abs()) };
    if (0.5..2.0).contains(&high) && low < 2.0 {
        return ((high - 1.0) * (high + 1.0) + low * low).ln_1p() / 2.0;
    }
    if high > LARGE && high.is_finite() {
        return (x / 2.0).hypot(y / 2.0).ln() + LN_2;
    }
    x.hypot(y).ln()
}

fn log((x, y): Complex) -> Complex {
    (log_abs(x, y), y.atan2(x))
}

fn log1p((x, y): Complex) -> Complex {
    let angle = y.atan2(1.0 + x);
    if x.abs() < 0.5 && y.abs() < 0.5 {
        // |1 + z|^2 - 1 = x (2 + x) + y^2.
        return ((x * (2.0 + x) + y * y).ln_1p() / 2.0, angle);
    }
    (log_abs(1.0 + x, y), angle)
}

fn sqrt((x, y): Complex) -> Complex {
    if x == 0.0 && y == 0.0 {
        return (0.0, y);
    }
    if y.is_infinite() {
        return (f64::INFINITY, y);
    }
    if x.is_infinite() {
        let other = if y.is_nan() { y } else { 0.0f64.copysign(y) };
        return if x > 0.0 { (x, other) } else { (other.abs(), f64::INFINITY.copysign(y)) };
    }
    // Scaled by a power of 4, so that the sum neither overflows nor is subnormal.
    let high = x.abs().max(y.abs());
    let (scale, back) = match high {
        _ if high > 1e300 => (0.0625, 4.0),
        _ if high < 1e-290 => (2f64.powi(108), 2f64.powi(-54)),
        _ => (1.0, 1.0),
    };
    let (x, y) = (x * scale, y * scale);
    let root = ((x.abs() + x.hypot(y)) / 2.0).sqrt();
    let other = y / (2.0 * root);
    if x >= 0.0 { (root * back, other * back) } else { (other.abs() * back, root.copysign(y) * back) }
}

/// `cosh x` and `sinh x` times two factors, without overflow in between.
fn hyperbolic(x: f64, cosh_by: f64, sinh_by: f64) -> (f64, f64) {
    if x.abs() > EXP_LARGE && x.is_finite() {
        let half = (x.abs() / 2.0).exp();
        return (half / 2.0 * cosh_by * half, half.copysign(x) / 2.0 * sinh_by * half);
    }
    (x.cosh() * cosh_by, x.sinh() * sinh_by)
}

fn sinh((x, y): Complex) -> Complex {
    if y == 0.0 {
        return (x.sinh(), y);
    }
    if x == 0.0 {
        return (x, y.sin());
    }
    // Which infinity is left open by C; as device libraries do, that of the operand.
    if x.is_infinite() && !y.is_finite() {
        return (x, f64::NAN);
    }
    let (im, re) = hyperbolic(x, y.sin(), y.cos());
    (re, im)
}

fn cosh((x, y): Complex) -> Complex {
    if y == 0.0 {
        return (x.cosh(), if x.is_nan() { y } else { y * 1f64.copysign(x) });
    }
    if x == 0.0 {
        return (y.cos(), if y.is_finite() { x * y.sin() } else { x });
    }
    if x.is_infinite() && !y.is_finite() {
        return (f64::INFINITY, f64::NAN);
    }
    hyperbolic(x, y.cos(), y.sin())
}

fn tanh((x, y): Complex) -> Complex {
    if y == 0.0 {
        return (x.tanh(), y);
    }
    if x.is_infinite() {
        let sign = if y.is_finite() { (2.0 * y).sin() } else { 1.0 };
        return (1f64.copysign(x), 0f64.copysign(sign));
    }
    if !y.is_finite() {
        return if x == 0.0 { (x, f64::NAN) } else { NAN };
    }
    if x.abs() > 20.0 {
        // sin 2y / (cosh 2x + cos 2y) with cosh 2x = e^2|x| / 2.
        let small = (-x.abs()).exp();
        return (1f64.copysign(x), 4.0 * y.sin() * y.cos() * small * small);
    }
    let (t, s) = (y.tan(), x.sinh());
    let beta = 1.0 + t * t;
    let rho = (1.0 + s * s).sqrt();
    let scale = 1.0 + beta * s * s;
    (beta * rho * s / scale, t / scale)
}

/// `ln |2z|` of a large number.
fn log_double(x: f64, y: f64) -> f64 {
    (x / 2.0).hypot(y / 2.0).ln() + 2.0 * LN_2
}

fn is_large((x, y): Complex) -> bool {
    x.abs() > LARGE || y.abs() > LARGE
}

/// With the roots of `1 - z` and `1 + z`: the real part is twice the angle of
/// the roots' real parts, the imaginary one the `asinh` of a cross product,
/// neither of which cancels.
fn acos(z: Complex) -> Complex {
    let (x, y) = z;
    if y.is_nan() && (x.is_infinite() || x == 0.0) {
        return if x == 0.0 { (FRAC_PI_2, y) } else { (y, x) };
    }
    if is_large(z) {
        return (y.abs().atan2(x), -log_double(x, y).copysign(y));
    }
    let (minus, plus) = (sqrt((1.0 - x, -y)), sqrt((1.0 + x, y)));
    (2.0 * minus.0.atan2(plus.0), libm::asinh(plus.0 * minus.1 - plus.1 * minus.0))
}

fn acosh(z: Complex) -> Complex {
    let (x, y) = z;
    if is_large(z) {
        return (log_double(x, y), y.atan2(x));
    }
    let (minus, plus) = (sqrt((x - 1.0, y)), sqrt((x + 1.0, y)));
    (libm::asinh(minus.0 * plus.0 + minus.1 * plus.1), 2.0 * minus.1.atan2(plus.0))
}

fn asinh(z: Complex) -> Complex {
    let (x, y) = z;
    if x.is_nan() && (y.is_infinite() || y == 0.0) {
        return if y == 0.0 { z } else { (y, x) };
    }
    if is_large(z) {
        return (log_double(x, y).copysign(x), y.atan2(x.abs()));
    }
    let (plus, minus) = (sqrt((1.0 + y, -x)), sqrt((1.0 - y, x)));
    (libm::asinh(plus.0 * minus.1 - minus.0 * plus.1), y.atan2(plus.0 * minus.0 - plus.1 * minus.1))
}

fn atanh(z: Complex) -> Complex {
    let (x, y) = z;
    if x.is_sign_negative() && !x.is_nan() {
        let (re, im) = atanh((-x, -y));
        return (-re, -im);
    }
    if x.is_infinite() || y.is_infinite() {
        return (0.0, if y.is_nan() { y } else { FRAC_PI_2.copysign(y) });
    }
    if is_large(z) && !y.is_nan() {
        let half = (x / 2.0).hypot(y / 2.0);
        return (x / 4.0 / half / half, FRAC_PI_2.copysign(y));
    }
    if x == 1.0 && y == 0.0 {
        return (f64::INFINITY, y);
    }
    if x == 1.0 && y.abs() < 1e-150 {
        return (-(y.abs().sqrt() / y.hypot(2.0).sqrt()).ln(), (2.0f64.atan2(-y.abs()) / 2.0).copysign(y));
    }
    let re = (4.0 * x / ((1.0 - x) * (1.0 - x) + y * y)).ln_1p() / 4.0;
    (re, -(-2.0 * y).atan2((1.0 - x) * (1.0 + x) - y * y) / 2.0)
}
