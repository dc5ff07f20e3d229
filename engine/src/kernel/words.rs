//! The words of the text form, which printer and parser share.

use super::exprs::ExprArena;
use super::ir::{AtomicOp, CacheHint, Dim, ExprId, IndexOp, Scope, ShuffleMode, Space, Special, ValueKind};
use crate::num::BinaryOp;

/// What converts an index to data, and data to an index.
pub(super) const AS_DATA: &str = "as_data";
/// See [`AS_DATA`].
pub(super) const AS_INDEX: &str = "as_index";
/// A product by itself.
pub(super) const ROUNDED: &str = "rounded";
/// Starts the name of index arithmetic where operands do not tell it.
pub(super) const OF_INDICES: &str = "index.";
/// The same of operations on data.
pub(super) const OF_DATA: &str = "data.";

/// The index arithmetic that an operation on two operands stands for: one of
/// them is an index, and none is data.
pub(super) fn index_op(exprs: &ExprArena, op: BinaryOp, a: ExprId, b: ExprId) -> Option<IndexOp> {
    let is_index = exprs.kind(a).max(exprs.kind(b)) == ValueKind::Index && exprs.dtype(a) != crate::num::DType::Bool;
    IndexOp::from_binary(op).filter(|_| is_index)
}

/// Infix operators with their binding strength; higher binds tighter, and all
/// associate to the left.
pub(super) const INFIX: &[(BinaryOp, &str, u8)] = &[
    (BinaryOp::LogicalOr, "||", 1),
    (BinaryOp::LogicalAnd, "&&", 2),
    (BinaryOp::BitwiseOr, "|", 3),
    (BinaryOp::BitwiseXor, "^", 4),
    (BinaryOp::BitwiseAnd, "&", 5),
    (BinaryOp::Eq, "==", 6),
    (BinaryOp::Ne, "!=", 6),
    (BinaryOp::Le, "<=", 7),
    (BinaryOp::Ge, ">=", 7),
    (BinaryOp::Lt, "<", 7),
    (BinaryOp::Gt, ">", 7),
    (BinaryOp::Add, "+", 9),
    (BinaryOp::Sub, "-", 9),
    (BinaryOp::Mul, "*", 10),
    (BinaryOp::Div, "/", 10),
    (BinaryOp::Mod, "%", 10),
];

pub(super) const SPACES: &[(Space, &str)] =
    &[(Space::Global, "global"), (Space::Shared, "shared"), (Space::Local, "local")];

pub(super) const SCOPES: &[(Scope, &str)] =
    &[(Scope::Warp, "warp"), (Scope::Block, "block"), (Scope::Team, "team"), (Scope::Grid, "grid")];

/// Suffixes of `load`, `store` and `move`.
pub(super) const HINTS: &[(CacheHint, &str)] = &[
    (CacheHint::Default, ""),
    (CacheHint::Streaming, ".streaming"),
    (CacheHint::Global, ".global"),
    (CacheHint::Again, ".again"),
    (CacheHint::Held, ".held"),
];

pub(super) const SHUFFLES: &[(ShuffleMode, &str)] =
    &[(ShuffleMode::Xor, "xor"), (ShuffleMode::Up, "up"), (ShuffleMode::Down, "down"), (ShuffleMode::Index, "index")];

pub(super) const ATOMICS: &[(AtomicOp, &str)] =
    &[(AtomicOp::Add, "add"), (AtomicOp::Inc, "inc"), (AtomicOp::Max, "max"), (AtomicOp::Min, "min")];

pub(super) const SPECIALS: &[(Special, &str)] = &[
    (Special::ThreadIdx(Dim::X), "threadIdx.x"),
    (Special::ThreadIdx(Dim::Y), "threadIdx.y"),
    (Special::ThreadIdx(Dim::Z), "threadIdx.z"),
    (Special::BlockIdx(Dim::X), "blockIdx.x"),
    (Special::BlockIdx(Dim::Y), "blockIdx.y"),
    (Special::BlockIdx(Dim::Z), "blockIdx.z"),
    (Special::BlockDim(Dim::X), "blockDim.x"),
    (Special::BlockDim(Dim::Y), "blockDim.y"),
    (Special::BlockDim(Dim::Z), "blockDim.z"),
    (Special::GridDim(Dim::X), "gridDim.x"),
    (Special::GridDim(Dim::Y), "gridDim.y"),
    (Special::GridDim(Dim::Z), "gridDim.z"),
];

/// The word of a value.
pub(super) fn word<T: PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find(|(other, _)| *other == value).map_or("?", |(_, word)| word)
}

/// The value of a word.
pub(super) fn value<T: Copy>(table: &[(T, &str)], word: &str) -> Option<T> {
    table.iter().find(|(_, other)| *other == word).map(|(value, _)| *value)
}
