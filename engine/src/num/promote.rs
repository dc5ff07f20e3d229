//! Type promotion: the common type that operands of different types are cast
//! to. PyTorch's lattice where PyTorch has one:
//!
//! * the higher class of bool, integer, float, complex wins; a complex result
//!   is `c128` if either side has parts of 64 bits, so `f64` with `c64` is `c128`;
//! * `u8` with a signed integer is the least signed type that holds both;
//! * two different floats of at most 16 bits give `f32`.
//!
//! PyTorch refuses three kinds of pairs, which have a common type here: floats
//! of 8 and 4 bits follow the last rule, as in nvFuser; `u16 u32 u64` with
//! other integers follow the rule of `u8`, except that `u64` with a signed
//! integer is `u64`, as in C++; `index` with an integer is `index`.
//!
//! A *scalar* decides the class of the result but not its width: an `f16`
//! tensor times an `f64` scalar stays `f16`, an `i32` tensor times one becomes
//! `f32`, a `bool` tensor plus an integer scalar becomes `i64`. A float tensor
//! with a complex scalar becomes the complex type with the tensor's width,
//! which for `f16` is `c64`, there being no narrower one.

use super::{DType, DTypeClass};

/// The common type of two tensors' types.
pub fn promote(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    match (a.class(), b.class()) {
        (DTypeClass::Complex, _) | (_, DTypeClass::Complex) => {
            if a.part() == DType::F64 || b.part() == DType::F64 {
                DType::C128
            } else {
                DType::C64
            }
        }
        (x, y) if x > y => a,
        (x, y) if x < y => b,
        (DTypeClass::Float, _) => float(a, b),
        _ => integer(a, b),
    }
}

fn float(a: DType, b: DType) -> DType {
    if a == DType::F64 || b == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Of two different integer types.
fn integer(a: DType, b: DType) -> DType {
    let (wide, narrow) = if a.bytes() >= b.bytes() { (a, b) } else { (b, a) };
    match (wide, narrow) {
        (DType::Index, _) | (_, DType::Index) => DType::Index,
        (DType::U64, _) | (_, DType::U64) => DType::U64,
        // A signed type holds narrower unsigned ones.
        _ if wide.is_unsigned() == narrow.is_unsigned() || wide.bytes() > narrow.bytes() && !wide.is_unsigned() => wide,
        _ => match wide.bytes() {
            1 => DType::I16,
            2 => DType::I32,
            _ => DType::I64,
        },
    }
}

/// The type that a scalar of this class has when it meets tensors of a lower one.
fn default_of_class(class: DTypeClass) -> DType {
    match class {
        DTypeClass::Complex => DType::C64,
        DTypeClass::Float => DType::F32,
        DTypeClass::Int => DType::I64,
        DTypeClass::Bool => DType::Bool,
    }
}

/// The common type of tensors and scalars. Scalars only count when their class
/// is above that of all tensors; without tensors they promote among themselves.
/// `None` when there is no operand.
pub fn promote_all(tensors: &[DType], scalars: &[DType]) -> Option<DType> {
    let tensor = tensors.iter().copied().reduce(promote);
    let scalar = scalars.iter().copied().reduce(promote);
    match (tensor, scalar) {
        (Some(t), Some(s)) if s.class() > t.class() => Some(promote(default_of_class(s.class()), t)),
        (Some(t), _) => Some(t),
        (None, s) => s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn tensors_promote_by_class_then_width() {
        for (a, b, expected) in [
            (F32, F16, F32),
            (F16, BF16, F32),
            (BF16, F64, F64),
            (BF16, I64, BF16),
            (I32, F16, F16),
            (I64, I32, I64),
            (U8, I8, I16),
            (U8, I32, I32),
            (Bool, I8, I8),
            (Bool, F16, F16),
            (Bool, Bool, Bool),
        ] {
            assert_eq!(promote(a, b), expected, "{a} with {b}");
            assert_eq!(promote(b, a), expected, "{b} with {a}");
        }
    }

    #[test]
    fn promotion_is_a_join() {
        for &a in DType::ALL {
            assert_eq!(promote(a, a), a);
            for &b in DType::ALL {
                let joined = promote(a, b);
                assert_eq!(promote(joined, a), joined, "{a} is below {a} with {b}");
            }
        }
    }

    #[test]
    fn scalars_decide_the_class_only() {
        for (tensors, scalars, expected) in [
            (&[F16][..], &[F64][..], Some(F16)),
            (&[I32], &[F64], Some(F32)),
            (&[I32], &[I64], Some(I32)),
            (&[U8], &[Bool], Some(U8)),
            (&[Bool], &[I64], Some(I64)),
            (&[Bool, F16], &[I64], Some(F16)),
            (&[], &[I64, F64], Some(F64)),
            (&[], &[], None),
        ] {
            assert_eq!(promote_all(tensors, scalars), expected, "{tensors:?} {scalars:?}");
        }
    }
}
