//! Instruction selection: which bytecode computes an operation on a data type.
//!
//! Every data type lives in registers as follows: `c128` in the 128-bit file, its real
//! part in the low half; `f64 i64 u64 index` in the 64-bit file, and `c64`, its real part
//! in the low half; `f32 i32 u32` in the 32-bit file;
//! `i8 i16` sign-extended and `u8 u16` zero-extended to 32 bits; `bool` as 0 or 1;
//! floats of at most 16 bits as their pattern. An operation that has no bytecode is called on the host through
//! `num::eval`, so its meaning is the reference's by construction. Kernels hold the
//! types of `DType::FUSION` only; others have an arbitrary form here.

use crate::num::{BinaryOp, DType, DTypeClass, UnaryOp, Value, storage};
use simcore::{File, Opcode};

/// The file that values of a type are in.
pub(super) fn file(dtype: DType) -> File {
    match dtype.bytes() {
        16 => File::R128,
        8 => File::R64,
        _ => File::R32,
    }
}

/// Whether values of a type, an index for example, are in the 64-bit file.
pub(super) fn wide(dtype: DType) -> bool {
    file(dtype) == File::R64
}

/// What copies a register of a file.
pub(super) fn mov(file: File) -> Opcode {
    match file {
        File::R32 => Opcode::Mov32,
        File::R64 => Opcode::Mov64,
        File::R128 => Opcode::Mov128,
    }
}

/// What chooses between two registers of a file.
pub(super) fn select(file: File) -> Opcode {
    match file {
        File::R32 => Opcode::Select32,
        File::R64 => Opcode::Select64,
        File::R128 => Opcode::Select128,
    }
}

/// A value as register bits.
pub(super) fn to_bits(dtype: DType, value: Value) -> u128 {
    match dtype {
        // Sign-extended to the register.
        DType::I8 => u128::from(i32::from(value.as_i64() as i8) as u32),
        DType::I16 => u128::from(i32::from(value.as_i64() as i16) as u32),
        _ => u128::from_le_bytes(storage::encode(dtype, value)),
    }
}

/// Register bits as a value.
pub(super) fn from_bits(dtype: DType, bits: u128) -> Value {
    // A register has no fewer bytes than an element of a type that kernels hold.
    storage::read(dtype, &bits.to_le_bytes(), 0).unwrap_or(Value::Int(bits as i64))
}

/// How a type computes in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rep {
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
    Other,
}

fn rep(dtype: DType) -> Rep {
    match dtype {
        DType::F32 => Rep::F32,
        DType::F64 => Rep::F64,
        DType::I64 | DType::Index => Rep::I64,
        DType::U64 => Rep::U64,
        DType::U32 => Rep::U32,
        // What is narrower than a register has its value as one with a sign.
        DType::I32 | DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => Rep::I32,
        _ => Rep::Other,
    }
}

/// What brings a 32-bit result back into a narrow type.
pub(super) fn narrow(dtype: DType) -> Option<Opcode> {
    match dtype {
        DType::I8 => Some(Opcode::SignExtend8),
        DType::U8 => Some(Opcode::ZeroExtend8),
        DType::I16 => Some(Opcode::SignExtend16),
        DType::U16 => Some(Opcode::ZeroExtend16),
        _ => None,
    }
}

/// The instruction of a unary operation, if there is one. Its result must still
/// be [`narrow`]ed unless the operation is a predicate.
pub(super) fn unary(op: UnaryOp, dtype: DType) -> Option<Opcode> {
    use UnaryOp::*;
    if dtype == DType::Bool {
        return matches!(op, LogicalNot | BitwiseNot).then_some(Opcode::IsZeroI32);
    }
    Some(match (op, rep(dtype)) {
        (Neg, Rep::F32) => Opcode::NegF32,
        (Neg, Rep::F64) => Opcode::NegF64,
        (Neg, Rep::I32 | Rep::U32) => Opcode::NegI32,
        (Neg, Rep::I64 | Rep::U64) => Opcode::NegI64,
        (Abs, Rep::F32) => Opcode::AbsF32,
        (Abs, Rep::F64) => Opcode::AbsF64,
        (Abs, Rep::I32) => Opcode::AbsI32,
        (Abs, Rep::I64) => Opcode::AbsI64,
        (Sqrt, Rep::F32) => Opcode::SqrtF32,
        (Sqrt, Rep::F64) => Opcode::SqrtF64,
        (Rsqrt, Rep::F32) => Opcode::RsqrtF32,
        (Reciprocal, Rep::F32) => Opcode::RecipF32,
        (Reciprocal, Rep::F64) => Opcode::RecipF64,
        (Floor, Rep::F32) => Opcode::FloorF32,
        (Ceil, Rep::F32) => Opcode::CeilF32,
        (Trunc, Rep::F32) => Opcode::TruncF32,
        (Round, Rep::F32) => Opcode::RoundF32,
        (Relu, Rep::F32) => Opcode::ReluF32,
        (Relu, Rep::F64) => Opcode::ReluF64,
        (BitwiseNot, Rep::I32 | Rep::U32) => Opcode::NotI32,
        (BitwiseNot, Rep::I64 | Rep::U64) => Opcode::NotI64,
        (LogicalNot, Rep::F32) => Opcode::IsZeroF32,
        (LogicalNot, Rep::F64) => Opcode::IsZeroF64,
        (LogicalNot, Rep::I32 | Rep::U32) => Opcode::IsZeroI32,
        (LogicalNot, Rep::I64 | Rep::U64) => Opcode::IsZeroI64,
        (IsNan, Rep::F32) => Opcode::IsNanF32,
        (IsFinite, Rep::F32) => Opcode::IsFiniteF32,
        _ => return None,
    })
}

/// The instruction of a binary operation, and whether its operands are swapped.
/// Its result must still be [`narrow`]ed unless the operation is a predicate.
pub(super) fn binary(op: BinaryOp, dtype: DType) -> Option<(Opcode, bool)> {
    use BinaryOp::*;
    if dtype == DType::Bool {
        return match op {
            Add | Maximum | BitwiseOr | LogicalOr => Some((Opcode::OrI32, false)),
            Mul | Minimum | BitwiseAnd | LogicalAnd => Some((Opcode::AndI32, false)),
            Eq => Some((Opcode::EqI32, false)),
            Ne | Sub | BitwiseXor => Some((Opcode::XorI32, false)),
            Lt => Some((Opcode::LtI32, false)),
            Gt => Some((Opcode::LtI32, true)),
            Le => Some((Opcode::LeI32, false)),
            Ge => Some((Opcode::LeI32, true)),
            _ => None,
        };
    }
    macro_rules! by_rep {
        ($f32:expr, $f64:expr, $i32:expr, $i64:expr) => {
            by_rep!($f32, $f64, $i32, $i64, $i32, $i64)
        };
        ($f32:expr, $f64:expr, $i32:expr, $i64:expr, $u32:expr, $u64:expr) => {
            match rep(dtype) {
                Rep::F32 => $f32,
                Rep::F64 => $f64,
                Rep::I32 => $i32,
                Rep::I64 => $i64,
                Rep::U32 => $u32,
                Rep::U64 => $u64,
                Rep::Other => None,
            }
        };
    }
    let swapped = matches!(op, Gt | Ge);
    let selected = match op {
        Add => by_rep!(Some(Opcode::AddF32), Some(Opcode::AddF64), Some(Opcode::AddI32), Some(Opcode::AddI64)),
        Sub => by_rep!(Some(Opcode::SubF32), Some(Opcode::SubF64), Some(Opcode::SubI32), Some(Opcode::SubI64)),
        Mul => by_rep!(Some(Opcode::MulF32), Some(Opcode::MulF64), Some(Opcode::MulI32), Some(Opcode::MulI64)),
        Div => {
            by_rep!(Some(Opcode::DivF32), Some(Opcode::DivF64), Some(Opcode::DivI32), Some(Opcode::DivI64), None, None)
        }
        Truediv => by_rep!(Some(Opcode::DivF32), Some(Opcode::DivF64), None, None),
        Mod | Fmod => by_rep!(None, None, Some(Opcode::RemI32), Some(Opcode::RemI64), None, None),
        CeilDiv => by_rep!(None, None, Some(Opcode::CeilDivI32), Some(Opcode::CeilDivI64), None, None),
        Minimum => by_rep!(
            Some(Opcode::MinF32),
            Some(Opcode::MinF64),
            Some(Opcode::MinI32),
            Some(Opcode::MinI64),
            Some(Opcode::MinU32),
            Some(Opcode::MinU64)
        ),
        Maximum => by_rep!(
            Some(Opcode::MaxF32),
            Some(Opcode::MaxF64),
            Some(Opcode::MaxI32),
            Some(Opcode::MaxI64),
            Some(Opcode::MaxU32),
            Some(Opcode::MaxU64)
        ),
        BitwiseAnd => by_rep!(None, None, Some(Opcode::AndI32), Some(Opcode::AndI64)),
        BitwiseOr => by_rep!(None, None, Some(Opcode::OrI32), Some(Opcode::OrI64)),
        BitwiseXor => by_rep!(None, None, Some(Opcode::XorI32), Some(Opcode::XorI64)),
        Eq => by_rep!(Some(Opcode::EqF32), Some(Opcode::EqF64), Some(Opcode::EqI32), Some(Opcode::EqI64)),
        Ne => by_rep!(Some(Opcode::NeF32), Some(Opcode::NeF64), Some(Opcode::NeI32), Some(Opcode::NeI64)),
        Lt | Gt => by_rep!(
            Some(Opcode::LtF32),
            Some(Opcode::LtF64),
            Some(Opcode::LtI32),
            Some(Opcode::LtI64),
            Some(Opcode::LtU32),
            Some(Opcode::LtU64)
        ),
        Le | Ge => by_rep!(
            Some(Opcode::LeF32),
            Some(Opcode::LeF64),
            Some(Opcode::LeI32),
            Some(Opcode::LeI64),
            Some(Opcode::LeU32),
            Some(Opcode::LeU64)
        ),
        _ => None,
    };
    selected.map(|op| (op, swapped))
}

/// The instruction between `f32` and a narrower float: from it, and to it.
fn of_f32(dtype: DType) -> Option<(Opcode, Opcode)> {
    Some(match dtype {
        DType::F16 => (Opcode::F32ToF16, Opcode::F16ToF32),
        DType::BF16 => (Opcode::F32ToBf16, Opcode::Bf16ToF32),
        DType::F8E4M3FN => (Opcode::F32ToF8E4M3, Opcode::F8E4M3ToF32),
        DType::F8E5M2 => (Opcode::F32ToF8E5M2, Opcode::F8E5M2ToF32),
        DType::F8E8M0FNU => (Opcode::F32ToF8E8M0, Opcode::F8E8M0ToF32),
        DType::F4E2M1FN => (Opcode::F32ToF4E2M1, Opcode::F4E2M1ToF32),
        _ => return None,
    })
}

/// The instructions of a conversion, in order; none inside for those that only
/// the host does.
pub(super) fn cast(from: DType, to: DType) -> Option<Vec<Opcode>> {
    use DType::*;
    if from == to {
        return Some(Vec::new());
    }
    if to == Bool {
        return match rep(from) {
            Rep::F32 => Some(vec![Opcode::NonZeroF32]),
            Rep::F64 => Some(vec![Opcode::NonZeroF64]),
            Rep::I32 | Rep::U32 => Some(vec![Opcode::NonZeroI32]),
            Rep::I64 | Rep::U64 => Some(vec![Opcode::NonZeroI64]),
            Rep::Other => chain(from, F32, to),
        };
    }
    match (of_f32(from), of_f32(to)) {
        // Widening is exact, so going through f32 is too.
        (Some((_, widen)), _) => {
            let mut ops = vec![widen];
            ops.extend(cast(F32, to)?);
            return Some(ops);
        }
        (None, Some((narrow, _))) if from == F32 => return Some(vec![narrow]),
        // Integers of at most 16 bits are exact in f32.
        (None, Some(_)) if from.bytes() <= 2 => return chain(from, F32, to),
        (None, Some(_)) => return None,
        (None, None) => {}
    }
    match (to.class(), rep(from)) {
        (DTypeClass::Float, from) => float_of(from, to),
        (DTypeClass::Int, Rep::F32 | Rep::F64) => int_of_float(from, to),
        (DTypeClass::Int, from) => int_of_int(from, to),
        _ => None,
    }
}

/// What makes `f32` or `f64` of a number.
fn float_of(from: Rep, to: DType) -> Option<Vec<Opcode>> {
    let double = to == DType::F64;
    let op = |single, wide| Some(vec![if double { wide } else { single }]);
    match from {
        Rep::F32 if double => Some(vec![Opcode::F32ToF64]),
        Rep::F64 if !double => Some(vec![Opcode::F64ToF32]),
        Rep::I32 => op(Opcode::I32ToF32, Opcode::I32ToF64),
        Rep::I64 => op(Opcode::I64ToF32, Opcode::I64ToF64),
        Rep::U32 => op(Opcode::U32ToF32, Opcode::U32ToF64),
        Rep::U64 => op(Opcode::U64ToF32, Opcode::U64ToF64),
        Rep::F32 | Rep::F64 | Rep::Other => None,
    }
}

/// What makes an integer of `f32` or `f64`: truncates and saturates.
fn int_of_float(from: DType, to: DType) -> Option<Vec<Opcode>> {
    use DType::*;
    let op = match (from, to) {
        (F32, I32) => Opcode::F32ToI32,
        (F32, I64 | Index) => Opcode::F32ToI64,
        (F32, I8) => Opcode::F32ToI8,
        (F32, U8) => Opcode::F32ToU8,
        (F32, I16) => Opcode::F32ToI16,
        (F32, U16) => Opcode::F32ToU16,
        (F32, U32) => Opcode::F32ToU32,
        (F32, U64) => Opcode::F32ToU64,
        (F64, I32) => Opcode::F64ToI32,
        (F64, I64 | Index) => Opcode::F64ToI64,
        (F64, U32) => Opcode::F64ToU32,
        (F64, U64) => Opcode::F64ToU64,
        _ => return None,
    };
    Some(vec![op])
}

/// What makes an integer of an integer: the low bits.
fn int_of_int(from: Rep, to: DType) -> Option<Vec<Opcode>> {
    let mut ops = match (from, wide(to)) {
        (Rep::I32, true) => vec![Opcode::I32ToI64],
        (Rep::U32, true) => vec![Opcode::U32ToU64],
        (Rep::I64 | Rep::U64, false) => vec![Opcode::I64ToI32],
        (Rep::I32 | Rep::U32, false) | (Rep::I64 | Rep::U64, true) => Vec::new(),
        (Rep::F32 | Rep::F64 | Rep::Other, _) => return None,
    };
    // A value of a narrower type that has the register's form already is its own: not worth telling apart.
    ops.extend(narrow(to));
    Some(ops)
}

fn chain(from: DType, through: DType, to: DType) -> Option<Vec<Opcode>> {
    let mut ops = cast(from, through)?;
    ops.extend(cast(through, to)?);
    Some(ops)
}

/// Whether an operation on a float type is one function of `f64` rounded once.
pub(super) fn is_float_function(op: UnaryOp, dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64) && dtype.class() == DTypeClass::Float && !op.is_predicate()
}
