//! Floating-point operations, as functions that loops over slices can call.

use super::special::{erfcinv, erfinv, nextafter};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp};

/// The function of a unary operation; NaN for what has no floating-point form.
/// Predicates are in [`predicate_f64`].
pub fn unary_f64(op: UnaryOp) -> fn(f64) -> f64 {
    use UnaryOp::*;
    match op {
        Abs => f64::abs,
        Acos => f64::acos,
        // Undefined below 1, where the library gives some number.
        Acosh => |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) },
        Asin => f64::asin,
        Asinh => libm::asinh,
        Atan => f64::atan,
        Atanh => libm::atanh,
        Ceil => f64::ceil,
        Cos => f64::cos,
        Cosh => f64::cosh,
        Exp => f64::exp,
        Exp2 => f64::exp2,
        Expm1 => f64::exp_m1,
        Erf => libm::erf,
        Erfc => libm::erfc,
        Erfinv => erfinv,
        Erfcinv => erfcinv,
        Floor => f64::floor,
        Frac => |x| x - x.trunc(),
        Lgamma => libm::lgamma,
        Log => f64::ln,
        Log10 => f64::log10,
        Log1p => f64::ln_1p,
        Log2 => f64::log2,
        Neg => |x| -x,
        Relu => |x| if x <= 0.0 { 0.0 } else { x },
        Reciprocal => |x| 1.0 / x,
        Round => f64::round_ties_even,
        Rsqrt => |x| 1.0 / x.sqrt(),
        Sign => |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        Sigmoid => sigmoid,
        Silu => |x| x * sigmoid(x),
        Sin => f64::sin,
        Sinh => f64::sinh,
        Sqrt => f64::sqrt,
        Tan => f64::tan,
        Tanh => f64::tanh,
        Trunc => f64::trunc,
        Real => |x| x,
        Imag => |_| 0.0,
        BitwiseNot | LogicalNot | Signbit | IsFinite | IsInf | IsNan | IsNegInf | IsPosInf | IsReal => |_| f64::NAN,
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The function of a unary predicate; false for other operations.
pub fn predicate_f64(op: UnaryOp) -> fn(f64) -> bool {
    use UnaryOp::*;
    match op {
        LogicalNot => |x| x == 0.0,
        Signbit => f64::is_sign_negative,
        IsFinite => f64::is_finite,
        IsInf => f64::is_infinite,
        IsNan => f64::is_nan,
        IsNegInf => |x| x == f64::NEG_INFINITY,
        IsPosInf => |x| x == f64::INFINITY,
        IsReal => |_| true,
        _ => |_| false,
    }
}

/// The larger one; NaN wins, and +0 is larger than -0.
pub fn maximum(a: f64, b: f64) -> f64 {
    if a == b {
        // The same bits but for two zeros.
        return f64::from_bits(a.to_bits() & b.to_bits());
    }
    if a.is_nan() || a >= b { a } else { b }
}

/// The smaller one; NaN wins, and -0 is smaller than +0.
pub fn minimum(a: f64, b: f64) -> f64 {
    if a == b {
        return f64::from_bits(a.to_bits() | b.to_bits());
    }
    if a.is_nan() || a <= b { a } else { b }
}

fn remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// The function of a binary operation on values of a type; NaN for what has no
/// floating-point form. Predicates are in [`relation_f64`].
pub fn binary_f64(op: BinaryOp, dtype: DType) -> fn(f64, f64) -> f64 {
    use BinaryOp::*;
    match op {
        Add => |a, b| a + b,
        Sub => |a, b| a - b,
        Mul => |a, b| a * b,
        Div | Truediv => |a, b| a / b,
        Atan2 => f64::atan2,
        Fmod | Mod => |a, b| a % b,
        Remainder => remainder,
        Pow => f64::powf,
        Minimum => minimum,
        Maximum => maximum,
        Nextafter => match dtype {
            DType::F64 => |a, b| nextafter(DType::F64, a, b),
            DType::F16 => |a, b| nextafter(DType::F16, a, b),
            DType::BF16 => |a, b| nextafter(DType::BF16, a, b),
            _ => |a, b| nextafter(DType::F32, a, b),
        },
        Eq | Ge | Gt | Le | Lt | Ne | LogicalAnd | LogicalOr | BitwiseAnd | BitwiseOr | BitwiseXor | ShiftLeft
        | ShiftRight | LogicalShiftRight | Gcd | CeilDiv | Complex => |_, _| f64::NAN,
    }
}

/// The function of a binary predicate; false for other operations.
pub fn relation_f64(op: BinaryOp) -> fn(f64, f64) -> bool {
    use BinaryOp::*;
    match op {
        Eq => |a, b| a == b,
        Ge => |a, b| a >= b,
        Gt => |a, b| a > b,
        Le => |a, b| a <= b,
        Lt => |a, b| a < b,
        Ne => |a, b| a != b,
        LogicalAnd => |a, b| a != 0.0 && b != 0.0,
        LogicalOr => |a, b| a != 0.0 || b != 0.0,
        _ => |_, _| false,
    }
}

/// The function of a ternary operation; `where` takes its condition as "not zero".
pub fn ternary_f64(op: TernaryOp) -> fn(f64, f64, f64) -> f64 {
    match op {
        TernaryOp::Where => |c, a, b| if c != 0.0 { a } else { b },
        TernaryOp::Clamp => |x, low, high| minimum(maximum(x, low), high),
        TernaryOp::Lerp => |start, end, weight| {
            // The second form keeps the result exact at weight 1.
            let span = end - start;
            if weight.abs() < 0.5 { start + weight * span } else { end - span * (1.0 - weight) }
        },
        TernaryOp::Threshold => |x, t, v| if x > t { x } else { v },
    }
}
