//! Comparisons with a constant that come out the same for all numbers.
//!
//! `abs(x) >= -1` asks whether `x` is a number, and says so after this pass: it
//! becomes `y == y`. It is not only shorter: an assembler has been seen to take such
//! a comparison for true without asking, once it knows the range of `y`.
//!
//! Invariant: the intervals hold every number that is computed, rounded as it may be
//! ([`Fact::rounded`](super::fact::Fact::rounded)), so no comparison that could fail is replaced.

use super::errors::Flow;
use super::rewrite;
use crate::kernel::ExprArena;
use crate::kernel::ir::{Expr, ExprId, Kernel};
use crate::num::{BinaryOp, DType, Value};

/// Replaces them, wherever the flow of values shows it.
pub(super) fn decide(kernel: &mut Kernel) {
    if !kernel.exprs.iter().any(|(id, _)| with_constant(&kernel.exprs, id).is_some()) {
        return;
    }
    let facts = Flow::new(kernel).facts();
    rewrite(kernel, |exprs, id, now| {
        let (op, a, b) = with_constant(exprs, id)?;
        let (first, second) = (facts[a]?, facts[b]?);
        let is_true = match op {
            BinaryOp::Ge => first.lo >= second.hi,
            BinaryOp::Gt => first.lo > second.hi,
            BinaryOp::Le => first.hi <= second.lo,
            _ => first.hi < second.lo,
        };
        let number = if is_number(exprs, a) { b } else { a };
        is_true.then(|| Expr::Binary(BinaryOp::Eq, now(number), now(number)))
    });
}

/// An ordered comparison of `f32` of which one is a constant.
fn with_constant(exprs: &ExprArena, id: ExprId) -> Option<(BinaryOp, ExprId, ExprId)> {
    let Expr::Binary(op, a, b) = exprs[id].expr else { return None };
    let is_ordered = matches!(op, BinaryOp::Ge | BinaryOp::Gt | BinaryOp::Le | BinaryOp::Lt);
    let one = is_number(exprs, a) != is_number(exprs, b);
    (is_ordered && exprs.dtype(a) == DType::F32 && one).then_some((op, a, b))
}

/// Whether it is a constant other than NaN.
fn is_number(exprs: &ExprArena, id: ExprId) -> bool {
    matches!(exprs[id].expr, Expr::Const(Value::Float(value)) if !value.is_nan())
}
