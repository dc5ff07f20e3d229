//! Type promotion: the common type that operands of different types are cast
//! to. PyTorch's lattice over the types there are, with two differences where
//! its answer is a type that does not exist here: `u8` with `i8` is `i32`, and
//! as in PyTorch, `f16` with `bf16` is `f32`.
//!
//! A *scalar* decides the class of the result but not its width: an `f16`
//! tensor times an `f64` scalar stays `f16`, an `i32` tensor times one becomes
//! `f32`, a `bool` tensor plus an integer scalar becomes `i64`.

use super::{DType, DTypeClass};

/// The common type of two tensors' types.
pub fn promote(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    match (a.class(), b.class()) {
        (DTypeClass::Bool, _) => return b,
        (_, DTypeClass::Bool) => return a,
        (DTypeClass::Float, DTypeClass::Int) => return a,
        (DTypeClass::Int, DTypeClass::Float) => return b,
        _ => {}
    }
    match (a, b) {
        (F16, BF16) | (BF16, F16) => F32,
        (U8, I8) | (I8, U8) => I32,
        _ if a.bytes() > b.bytes() => a,
        _ => b,
    }
}

/// The type that a scalar of this type has when it meets tensors of a lower
/// class: the default type of the scalar's class.
fn default_of_class(class: DTypeClass) -> DType {
    match class {
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
        (Some(t), Some(s)) if s.class() > t.class() => Some(default_of_class(s.class())),
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
            (U8, I8, I32),
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
