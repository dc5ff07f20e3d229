//! Integer and `bool` operations. Values of every width are held as `i64`;
//! results are computed with wrapping 64-bit arithmetic and reduced to the
//! width. Values of `u64` are the same bits: what depends on the sign has an
//! unsigned form for them.

use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp};
use std::cmp::Ordering;

/// Reduces to the width of an integer type; the identity for other types.
pub fn wrap(dtype: DType, value: i64) -> i64 {
    match dtype {
        DType::I32 => i64::from(value as i32),
        DType::I16 => i64::from(value as i16),
        DType::I8 => i64::from(value as i8),
        DType::U32 => i64::from(value as u32),
        DType::U16 => i64::from(value as u16),
        DType::U8 | DType::F4E2M1FNX2 => i64::from(value as u8),
        _ => value,
    }
}

/// The least value of a type.
pub fn least(dtype: DType) -> i64 {
    if dtype == DType::U64 { 0 } else { dtype.int_range().0 }
}

/// The greatest value of a type; for `u64`, its bits.
pub fn greatest(dtype: DType) -> i64 {
    if dtype == DType::U64 { -1 } else { dtype.int_range().1 }
}

/// Truncates a float; out of range gives the nearest value, NaN gives 0.
pub(super) fn saturate(dtype: DType, value: f64) -> i64 {
    match dtype {
        DType::U64 => (value as u64).cast_signed(),
        _ => (value as i64).clamp(least(dtype), greatest(dtype)),
    }
}

/// Which of two values of a type is greater.
pub fn compare(dtype: DType, a: i64, b: i64) -> Ordering {
    match dtype {
        DType::U64 => a.cast_unsigned().cmp(&b.cast_unsigned()),
        _ => a.cmp(&b),
    }
}

fn bits(dtype: DType) -> i64 {
    8 * dtype.bytes() as i64
}

pub(super) fn unary(op: UnaryOp, dtype: DType, a: i64) -> i64 {
    use UnaryOp::*;
    let result = match op {
        Abs | Relu if dtype == DType::U64 => a,
        Sign if dtype == DType::U64 => (a != 0).into(),
        Abs => a.wrapping_abs(),
        Neg => a.wrapping_neg(),
        BitwiseNot => !a,
        Relu => a.max(0),
        Sign => a.signum(),
        _ => a,
    };
    wrap(dtype, result)
}

pub(super) fn predicate(op: UnaryOp, dtype: DType, a: i64) -> bool {
    use UnaryOp::*;
    match op {
        LogicalNot => a == 0,
        Signbit => a < 0 && dtype != DType::U64,
        IsFinite | IsReal => true,
        _ => false,
    }
}

/// A relation of integers of a type.
pub fn relation(op: BinaryOp, dtype: DType) -> fn(i64, i64) -> bool {
    use BinaryOp::*;
    match (op, dtype) {
        (Ge, DType::U64) => |a, b| a.cast_unsigned() >= b.cast_unsigned(),
        (Gt, DType::U64) => |a, b| a.cast_unsigned() > b.cast_unsigned(),
        (Le, DType::U64) => |a, b| a.cast_unsigned() <= b.cast_unsigned(),
        (Lt, DType::U64) => |a, b| a.cast_unsigned() < b.cast_unsigned(),
        (Eq, _) => |a, b| a == b,
        (Ge, _) => |a, b| a >= b,
        (Gt, _) => |a, b| a > b,
        (Le, _) => |a, b| a <= b,
        (Lt, _) => |a, b| a < b,
        (Ne, _) => |a, b| a != b,
        (LogicalAnd, _) => |a, b| a != 0 && b != 0,
        (LogicalOr, _) => |a, b| a != 0 || b != 0,
        _ => |_, _| false,
    }
}

/// The arithmetic of indices as functions of their own, for whole tensors: of `i64` there is nothing to reduce.
pub fn binary_i64(op: BinaryOp, dtype: DType) -> Option<fn(i64, i64) -> i64> {
    use BinaryOp::*;
    match op {
        _ if dtype != DType::I64 => None,
        Add => Some(i64::wrapping_add),
        Sub => Some(i64::wrapping_sub),
        Mul => Some(i64::wrapping_mul),
        Div => Some(|a, b| checked(a, b, i64::wrapping_div)),
        Fmod | Mod => Some(|a, b| checked(a, b, i64::wrapping_rem)),
        Remainder => Some(|a, b| checked(a, b, remainder)),
        Minimum => Some(|a, b| a.min(b)),
        Maximum => Some(|a, b| a.max(b)),
        _ => None,
    }
}

pub(super) fn binary(op: BinaryOp, dtype: DType, a: i64, b: i64) -> i64 {
    use BinaryOp::*;
    if dtype == DType::U64
        && let Some(result) = binary_u64(op, a.cast_unsigned(), b.cast_unsigned())
    {
        return result.cast_signed();
    }
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
        Gcd => gcd(a.unsigned_abs(), b.unsigned_abs()).cast_signed(),
        CeilDiv => checked(a, b, |a, b| a.wrapping_div(b).wrapping_add((a.wrapping_rem(b) != 0).into())),
        // No integer form: promoted to floats before it gets here.
        Atan2 | Nextafter | Complex | Eq | Ge | Gt | Le | Lt | Ne | LogicalAnd | LogicalOr => 0,
    };
    wrap(dtype, result)
}

/// What differs on unsigned 64-bit values; `None` for what does not.
fn binary_u64(op: BinaryOp, a: u64, b: u64) -> Option<u64> {
    use BinaryOp::*;
    Some(match op {
        Div | Truediv => a.checked_div(b).unwrap_or(0),
        Fmod | Mod | Remainder => a.checked_rem(b).unwrap_or(0),
        CeilDiv if b == 0 => 0,
        CeilDiv => a.div_ceil(b),
        Pow => power_unsigned(a, b),
        Minimum => a.min(b),
        Maximum => a.max(b),
        ShiftRight => u32::try_from(b).ok().and_then(|b| a.checked_shr(b)).unwrap_or(0),
        Gcd => gcd(a, b),
        _ => return None,
    })
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
    power_unsigned(a.cast_unsigned(), b.cast_unsigned()).cast_signed()
}

/// Wrapping products have the same low bits for either sign.
fn power_unsigned(a: u64, b: u64) -> u64 {
    let (mut result, mut factor, mut rest) = (1u64, a, b);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(factor);
        }
        factor = factor.wrapping_mul(factor);
        rest >>= 1;
    }
    result
}

/// Euclid on magnitudes; of signed ones only `gcd(MIN, 0 or MIN)` does not fit and wraps.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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
        TernaryOp::Clamp => {
            let low = if compare(dtype, a, b) == Ordering::Less { b } else { a };
            if compare(dtype, low, c) == Ordering::Greater { c } else { low }
        }
        TernaryOp::Threshold => {
            if compare(dtype, a, b) == Ordering::Greater {
                a
            } else {
                c
            }
        }
        TernaryOp::Lerp => wrap(dtype, a.wrapping_add(c.wrapping_mul(b.wrapping_sub(a)))),
    }
}
