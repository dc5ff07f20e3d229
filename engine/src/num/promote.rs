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

    /// `torch.promote_types` of PyTorch 2.11 for every pair of its types, in the
    /// order of the first column; `-` where it refuses.
    const PYTORCH: &str = "
    f64       f64       f64       f64       f64       f64       f64       f64       f64       f64       c128      c128      -         -         -         f64       f64       f64       f64
    f32       f64       f32       f32       f32       f32       f32       f32       f32       f32       c64       c128      -         -         -         f32       f32       f32       f32
    f16       f64       f32       f16       f32       f16       f16       f16       f16       f16       c64       c128      -         -         -         f16       f16       f16       f16
    bf16      f64       f32       f32       bf16      bf16      bf16      bf16      bf16      bf16      c64       c128      -         -         -         bf16      bf16      bf16      bf16
    i64       f64       f32       f16       bf16      i64       i64       i64       i64       i64       c64       c128      -         -         -         i64       -         -         -
    i32       f64       f32       f16       bf16      i64       i32       i32       i32       i32       c64       c128      -         -         -         i32       -         -         -
    i8        f64       f32       f16       bf16      i64       i32       i8        i16       i8        c64       c128      -         -         -         i16       -         -         -
    u8        f64       f32       f16       bf16      i64       i32       i16       u8        u8        c64       c128      -         -         -         i16       -         -         -
    bool      f64       f32       f16       bf16      i64       i32       i8        u8        bool      c64       c128      -         -         -         i16       -         -         -
    c64       c128      c64       c64       c64       c64       c64       c64       c64       c64       c64       c128      -         -         -         c64       -         -         -
    c128      c128      c128      c128      c128      c128      c128      c128      c128      c128      c128      c128      -         -         -         c128      -         -         -
    f8e4m3fn  -         -         -         -         -         -         -         -         -         -         -         f8e4m3fn  -         -         -         -         -         -
    f8e5m2    -         -         -         -         -         -         -         -         -         -         -         -         f8e5m2    -         -         -         -         -
    f8e8m0fnu -         -         -         -         -         -         -         -         -         -         -         -         -         f8e8m0fnu -         -         -         -
    i16       f64       f32       f16       bf16      i64       i32       i16       i16       i16       c64       c128      -         -         -         i16       -         -         -
    u16       f64       f32       f16       bf16      -         -         -         -         -         -         -         -         -         -         -         u16       -         -
    u32       f64       f32       f16       bf16      -         -         -         -         -         -         -         -         -         -         -         -         u32       -
    u64       f64       f32       f16       bf16      -         -         -         -         -         -         -         -         -         -         -         -         -         u64
    ";

    /// `torch.result_type` of a tensor with the scalars `True`, `1`, `1.0`, `1j`;
    /// for `f16` with `1j` it is complex with parts of 16 bits, which is not a type here.
    const PYTORCH_SCALARS: &str = "
    f64       f64       f64       f64       c128
    f32       f32       f32       f32       c64
    f16       f16       f16       f16       c64
    bf16      bf16      bf16      bf16      c64
    i64       i64       i64       f32       c64
    i32       i32       i32       f32       c64
    i8        i8        i8        f32       c64
    u8        u8        u8        f32       c64
    bool      bool      i64       f32       c64
    c64       c64       c64       c64       c64
    c128      c128      c128      c128      c128
    i16       i16       i16       f32       c64
    u16       u16       u16       f32       c64
    u32       u32       u32       f32       c64
    u64       u64       u64       f32       c64
    ";

    fn rows(table: &str) -> Vec<Vec<&str>> {
        table.trim().lines().map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn pairs_promote_as_in_pytorch() {
        let rows = rows(PYTORCH);
        let types: Vec<DType> = rows.iter().map(|row| DType::from_name(row[0]).unwrap()).collect();
        let missing: Vec<_> = DType::FUSION.iter().filter(|dtype| !types.contains(dtype)).collect();
        assert_eq!(missing, [&F4E2M1FN, &Index], "PyTorch has no promotion of these");
        let mut refused = 0;
        for (row, &a) in rows.iter().zip(&types) {
            for (cell, &b) in row[1..].iter().zip(&types) {
                match DType::from_name(cell) {
                    Some(expected) => assert_eq!(promote(a, b), expected, "{a} with {b}"),
                    None => refused += 1,
                }
            }
        }
        // Pairs with an 8-bit float, and of u16, u32 or u64 with other integers, bool and complex.
        assert_eq!(refused, 3 * 17 + 15 * 3 + 3 * 10 + 8 * 3);
    }

    #[test]
    fn pairs_that_pytorch_refuses_have_the_documented_type() {
        let small = [F16, BF16, F8E4M3FN, F8E5M2, F8E8M0FNU, F4E2M1FN];
        for &a in &small {
            for &b in DType::FUSION {
                let expected = match b {
                    _ if a == b => a,
                    F64 => F64,
                    C64 | C128 => b,
                    _ if b.is_float() => F32,
                    _ => a,
                };
                assert_eq!((promote(a, b), promote(b, a)), (expected, expected), "{a} with {b}");
            }
        }
        for (a, b, expected) in [
            (U8, U16, U16),
            (U16, U32, U32),
            (U32, U64, U64),
            (U16, I8, I32),
            (U16, I16, I32),
            (U16, I32, I32),
            (U32, I8, I64),
            (U32, I32, I64),
            (U32, I64, I64),
            (U64, I8, U64),
            (U64, I64, U64),
            (U64, Index, Index),
            (I8, Index, Index),
            (Bool, Index, Index),
            (Bool, U16, U16),
            (U64, C64, C64),
            (Index, F16, F16),
        ] {
            assert_eq!((promote(a, b), promote(b, a)), (expected, expected), "{a} with {b}");
        }
    }

    #[test]
    fn scalars_promote_as_in_pytorch() {
        for row in rows(PYTORCH_SCALARS) {
            let types: Vec<DType> = row.iter().map(|name| DType::from_name(name).unwrap()).collect();
            for (scalar, &expected) in [Bool, I64, F64, C128].into_iter().zip(&types[1..]) {
                assert_eq!(promote_all(&types[..1], &[scalar]), Some(expected), "{} with a scalar {scalar}", types[0]);
            }
        }
    }

    #[test]
    fn promotion_is_a_join() {
        for &a in DType::FUSION {
            assert_eq!(promote(a, a), a);
            for &b in DType::FUSION {
                let joined = promote(a, b);
                assert_eq!((promote(joined, a), promote(b, a)), (joined, joined), "{a} is below {a} with {b}");
                for &c in DType::FUSION {
                    assert_eq!(promote(joined, c), promote(a, promote(b, c)), "{a}, {b} and {c} in any order");
                }
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
