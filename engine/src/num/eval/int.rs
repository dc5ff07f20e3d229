//! Integer and `bool` operations. Values of every width are held as `i64`;
//! results are computed with wrapping 64-bit arithmetic and reduced to the width.

use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp};

/// Reduces to the width of an integer type; the identity for other types.
pub fn wrap(dtype: DType, value: i64) -> i64 {
    match dtype {
        DType::I32 => i64::from(value as i32),
        DType::I8 => i64::from(value as i8),
        DType::U8 => i64::from(value as u8),
        _ => value,
    }
}

/// The least value of a type.
pub(super) fn least(dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i32::MIN.into(),
        DType::I8 => i8::MIN.into(),
        DType::U8 | DType::Bool => 0,
        _ => i64::MIN,
    }
}

/// The greatest value of a type.
pub(super) fn greatest(dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i32::MAX.into(),
        DType::I8 => i8::MAX.into(),
        DType::U8 => u8::MAX.into(),
        DType::Bool => 1,
        _ => i64::MAX,
    }
}

/// Truncates a float; out of range gives the nearest value, NaN gives 0.
pub(super) fn saturate(dtype: DType, value: f64) -> i64 {
    (value as i64).clamp(least(dtype), greatest(dtype))
}

fn bits(dtype: DType) -> i64 {
    8 * dtype.bytes() as i64
}

pub(super) fn unary(op: UnaryOp, dtype: DType, a: i64) -> i64 {
    use UnaryOp::*;
    let result = match op {
        Abs => a.wrapping_abs(),
        Neg => a.wrapping_neg(),
        BitwiseNot => !a,
        Relu => a.max(0),
        Sign => a.signum(),
        _ => a,
    };
    wrap(dtype, result)
}

pub(super) fn predicate(op: UnaryOp, a: i64) -> bool {
    use UnaryOp::*;
    match op {
        LogicalNot => a == 0,
        Signbit => a < 0,
        IsFinite | IsReal => true,
        _ => false,
    }
}

pub(super) fn relation(op: BinaryOp) -> fn(i64, i64) -> bool {
    use BinaryOp::*;
    match op {
        Eq => |a, b| a == b,
        Ge => |a, b| a >= b,
        Gt => |a, b| a > b,
        Le => |a, b| a <= b,
        Lt => |a, b| a < b,
        Ne => |a, b| a != b,
        LogicalAnd => |a, b| a != 0 && b != 0,
        LogicalOr => |a, b| a != 0 || b != 0,
        _ => |_, _| false,
    }
}

pub(super) fn binary(op: BinaryOp, dtype: DType, a: i64, b: i64) -> i64 {
    use BinaryOp::*;
    let in_width = (0..bits(dtype)).contains(&b);
    let result = match op {
        Add => a.wrapping_add(b),
        Sub => a.wrapping_sub(b),
        Mul => a.wrapping_mul(b),
        Div | Truediv => checked(a, b, i64::wrapping_div),
        Fmod | Mod => checked(a, b, i64::wrapping_rem),
        Remainder => checked(a, b, remainder),
        Pow => power(a, b),
        Minimum => a.min(b),
        Maximum => a.max(b),
        BitwiseAnd => a & b,
        BitwiseOr => a | b,
        BitwiseXor => a ^ b,
        ShiftLeft if in_width => a << b,
        ShiftRight => a >> if in_width { b } else { 63 },
        LogicalShiftRight if in_width => (a & mask(dtype)).cast_unsigned().wrapping_shr(b as u32).cast_signed(),
        ShiftLeft | LogicalShiftRight => 0,
        Gcd => gcd(a, b),
        CeilDiv => checked(a, b, |a, b| a.wrapping_div(b).wrapping_add((a.wrapping_rem(b) != 0).into())),
        // No integer form: promoted to floats before it gets here.
        Atan2 | Nextafter | Eq | Ge | Gt | Le | Lt | Ne | LogicalAnd | LogicalOr => 0,
    };
    wrap(dtype, result)
}

/// The bits of a type's width.
fn mask(dtype: DType) -> i64 {
    if bits(dtype) == 64 { -1 } else { (1 << bits(dtype)) - 1 }
}

/// A division, 0 where the divisor is.
fn checked(a: i64, b: i64, divide: fn(i64, i64) -> i64) -> i64 {
    if b == 0 { 0 } else { divide(a, b) }
}

fn remainder(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest.wrapping_add(b) } else { rest }
}

/// Wrapping power by squaring; a negative exponent truncates 1 / a^-b.
fn power(a: i64, b: i64) -> i64 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 => 1 - 2 * (b & 1),
            _ => 0,
        };
    }
    let (mut result, mut factor, mut rest) = (1i64, a, b);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(factor);
        }
        factor = factor.wrapping_mul(factor);
        rest >>= 1;
    }
    result
}

/// Euclid on magnitudes; only `gcd(MIN, 0 or MIN)` does not fit and wraps.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.cast_signed()
}

pub(super) fn binary_bool(op: BinaryOp, a: bool, b: bool) -> bool {
    use BinaryOp::*;
    match op {
        Add | Maximum | BitwiseOr | LogicalOr => a | b,
        Mul | Minimum | BitwiseAnd | LogicalAnd => a & b,
        _ => a ^ b,
    }
}

pub(super) fn ternary(op: TernaryOp, dtype: DType, a: i64, b: i64, c: i64) -> i64 {
    match op {
        TernaryOp::Where => {
            if a != 0 {
                b
            } else {
                c
            }
        }
        TernaryOp::Clamp => a.max(b).min(c),
        TernaryOp::Threshold => {
            if a > b {
                a
            } else {
                c
            }
        }
        TernaryOp::Lerp => wrap(dtype, a.wrapping_add(c.wrapping_mul(b.wrapping_sub(a)))),
    }
}
