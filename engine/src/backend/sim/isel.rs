//! Instruction selection: which bytecode computes an operation on a data type.
//!
//! Every data type lives in registers as follows: `f64 i64` in the 64-bit file;
//! `f32 i32` in the 32-bit file; `i8` sign-extended and `u8` zero-extended to 32
//! bits; `bool` as 0 or 1; `f16 bf16` as their pattern. An operation that has no
//! bytecode is called on the host through `num::eval`, so its meaning is the
//! reference's by construction. Kernels hold the types of `DType::KERNEL` only;
//! others have an arbitrary form here.

use crate::num::convert::{bf16_to_f64, f16_to_f64, f64_to_bf16, f64_to_f16};
use crate::num::{BinaryOp, DType, DTypeClass, UnaryOp, Value};
use simcore::Opcode;

/// Whether values of a type are in the 64-bit file.
pub(super) fn wide(dtype: DType) -> bool {
    dtype.bytes() == 8
}

/// A value as register bits.
pub(super) fn to_bits(dtype: DType, value: Value) -> u64 {
    match dtype {
        DType::F64 => value.as_f64().to_bits(),
        DType::F32 => (value.as_f64() as f32).to_bits().into(),
        DType::F16 => f64_to_f16(value.as_f64()).into(),
        DType::BF16 => f64_to_bf16(value.as_f64()).into(),
        DType::I64 => value.as_i64() as u64,
        DType::I32 => u64::from(value.as_i64() as u32),
        DType::I8 => u64::from(i32::from(value.as_i64() as i8) as u32),
        DType::U8 => u64::from(value.as_i64() as u8),
        DType::Bool => value.as_bool().into(),
        _ => value.as_i64() as u64,
    }
}

/// Register bits as a value.
pub(super) fn from_bits(dtype: DType, bits: u64) -> Value {
    match dtype {
        DType::F64 => Value::Float(f64::from_bits(bits)),
        DType::F32 => Value::Float(f32::from_bits(bits as u32).into()),
        DType::F16 => Value::Float(f16_to_f64(bits as u16)),
        DType::BF16 => Value::Float(bf16_to_f64(bits as u16)),
        DType::I64 => Value::Int(bits as i64),
        DType::I32 | DType::I8 => Value::Int((bits as i32).into()),
        DType::U8 => Value::Int(i64::from(bits as u8)),
        DType::Bool => Value::Bool(bits != 0),
        _ => Value::Int(bits as i64),
    }
}

/// How a type computes in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rep {
    F32,
    F64,
    I32,
    I64,
    Other,
}

fn rep(dtype: DType) -> Rep {
    match dtype {
        DType::F32 => Rep::F32,
        DType::F64 => Rep::F64,
        DType::I64 => Rep::I64,
        DType::I32 | DType::I8 | DType::U8 | DType::Bool => Rep::I32,
        _ => Rep::Other,
    }
}

/// What brings a 32-bit result back into a narrow type.
pub(super) fn narrow(dtype: DType) -> Option<Opcode> {
    match dtype {
        DType::I8 => Some(Opcode::SignExtend8),
        DType::U8 => Some(Opcode::ZeroExtend8),
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
        (Neg, Rep::I32) => Opcode::NegI32,
        (Neg, Rep::I64) => Opcode::NegI64,
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
        (BitwiseNot, Rep::I32) => Opcode::NotI32,
        (BitwiseNot, Rep::I64) => Opcode::NotI64,
        (LogicalNot, Rep::F32) => Opcode::IsZeroF32,
        (LogicalNot, Rep::F64) => Opcode::IsZeroF64,
        (LogicalNot, Rep::I32) => Opcode::IsZeroI32,
        (LogicalNot, Rep::I64) => Opcode::IsZeroI64,
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
            match rep(dtype) {
                Rep::F32 => $f32,
                Rep::F64 => $f64,
                Rep::I32 => $i32,
                Rep::I64 => $i64,
                Rep::Other => None,
            }
        };
    }
    let swapped = matches!(op, Gt | Ge);
    let selected = match op {
        Add => by_rep!(Some(Opcode::AddF32), Some(Opcode::AddF64), Some(Opcode::AddI32), Some(Opcode::AddI64)),
        Sub => by_rep!(Some(Opcode::SubF32), Some(Opcode::SubF64), Some(Opcode::SubI32), Some(Opcode::SubI64)),
        Mul => by_rep!(Some(Opcode::MulF32), Some(Opcode::MulF64), Some(Opcode::MulI32), Some(Opcode::MulI64)),
        Div => by_rep!(Some(Opcode::DivF32), Some(Opcode::DivF64), Some(Opcode::DivI32), Some(Opcode::DivI64)),
        Truediv => by_rep!(Some(Opcode::DivF32), Some(Opcode::DivF64), None, None),
        Mod => by_rep!(None, None, Some(Opcode::RemI32), Some(Opcode::RemI64)),
        Fmod => by_rep!(None, None, Some(Opcode::RemI32), Some(Opcode::RemI64)),
        CeilDiv => by_rep!(None, None, Some(Opcode::CeilDivI32), Some(Opcode::CeilDivI64)),
        Minimum => by_rep!(Some(Opcode::MinF32), Some(Opcode::MinF64), Some(Opcode::MinI32), Some(Opcode::MinI64)),
        Maximum => by_rep!(Some(Opcode::MaxF32), Some(Opcode::MaxF64), Some(Opcode::MaxI32), Some(Opcode::MaxI64)),
        BitwiseAnd => by_rep!(None, None, Some(Opcode::AndI32), Some(Opcode::AndI64)),
        BitwiseOr => by_rep!(None, None, Some(Opcode::OrI32), Some(Opcode::OrI64)),
        BitwiseXor => by_rep!(None, None, Some(Opcode::XorI32), Some(Opcode::XorI64)),
        Eq => by_rep!(Some(Opcode::EqF32), Some(Opcode::EqF64), Some(Opcode::EqI32), Some(Opcode::EqI64)),
        Ne => by_rep!(Some(Opcode::NeF32), Some(Opcode::NeF64), Some(Opcode::NeI32), Some(Opcode::NeI64)),
        Lt | Gt => by_rep!(Some(Opcode::LtF32), Some(Opcode::LtF64), Some(Opcode::LtI32), Some(Opcode::LtI64)),
        Le | Ge => by_rep!(Some(Opcode::LeF32), Some(Opcode::LeF64), Some(Opcode::LeI32), Some(Opcode::LeI64)),
        _ => None,
    };
    selected.map(|op| (op, swapped))
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
            Rep::I32 => Some(vec![Opcode::NonZeroI32]),
            Rep::I64 => Some(vec![Opcode::NonZeroI64]),
            Rep::Other => chain(from, F32, to),
        };
    }
    let one = |op| Some(vec![op]);
    match (from, to) {
        (F16, F32) => one(Opcode::F16ToF32),
        (BF16, F32) => one(Opcode::Bf16ToF32),
        (F32, F16) => one(Opcode::F32ToF16),
        (F32, BF16) => one(Opcode::F32ToBf16),
        // Widening is exact, so going through f32 is too.
        (F16 | BF16, _) => chain(from, F32, to),
        (F64, F16 | BF16) => None,
        (F32, F64) => one(Opcode::F32ToF64),
        (F64, F32) => one(Opcode::F64ToF32),
        (F32, I32) => one(Opcode::F32ToI32),
        (F32, I64) => one(Opcode::F32ToI64),
        (F64, I32) => one(Opcode::F64ToI32),
        (F64, I64) => one(Opcode::F64ToI64),
        (F32, I8) => one(Opcode::F32ToI8),
        (F32, U8) => one(Opcode::F32ToU8),
        (I64, F32) => one(Opcode::I64ToF32),
        (I64, F64) => one(Opcode::I64ToF64),
        (I64, I32) => one(Opcode::I64ToI32),
        (I64, I8 | U8) => chain(from, I32, to),
        (I32 | I8 | U8 | Bool, F32) => one(Opcode::I32ToF32),
        (I32 | I8 | U8 | Bool, F64) => one(Opcode::I32ToF64),
        (I32 | I8 | U8 | Bool, I64) => one(Opcode::I32ToI64),
        (I8 | U8 | Bool, I32) => Some(Vec::new()),
        (I32 | I8 | U8 | Bool, I8 | U8) => one(narrow(to)?),
        // Integers of at most 8 bits are exact in f32.
        (I8 | U8 | Bool, F16 | BF16) => chain(from, F32, to),
        _ => None,
    }
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
