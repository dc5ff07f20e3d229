//! Comparisons with a constant that come out the same for all numbers.
//!
//! `abs(x) >= -1` asks whether `x` is a number, and says so after this pass: it
//! becomes `y == y`. It is not only shorter: an assembler has been seen to take such
//! a comparison for true without asking, once it knows the range of `y`.

use super::errors::Flow;
use super::fact::Fact;
use super::rewrite;
use crate::kernel::ExprArena;
use crate::kernel::ir::{Expr, ExprId, Kernel};
use crate::num::BinaryOp;

/// Roundings on the way to a value move it by less than this share of itself.
const ROUNDING: f64 = 1.0 / 65536.0;

/// Replaces them, wherever the flow of values shows it.
pub(super) fn decide(kernel: &mut Kernel) {
    if !kernel.exprs.iter().any(|(id, _)| with_constant(&kernel.exprs, id).is_some()) {
        return;
    }
    let facts = Flow::new(kernel).facts();
    rewrite(kernel, |exprs, id| {
        let (op, a, b) = with_constant(exprs, id)?;
        let (first, second) = (facts[a]?, facts[b]?);
        let is_true = match op {
            BinaryOp::Ge => is_above(first, second, true),
            BinaryOp::Gt => is_above(first, second, false),
            BinaryOp::Le => is_above(second, first, true),
            _ => is_above(second, first, false),
        };
        let number = if is_constant(exprs, a) { b } else { a };
        is_true.then_some(Expr::Binary(BinaryOp::Eq, number, number))
    });
}

/// An ordered comparison of floats of which one is a constant.
fn with_constant(exprs: &ExprArena, id: ExprId) -> Option<(BinaryOp, ExprId, ExprId)> {
    let Expr::Binary(op, a, b) = exprs[id].expr else { return None };
    let is_ordered = matches!(op, BinaryOp::Ge | BinaryOp::Gt | BinaryOp::Le | BinaryOp::Lt);
    let one = is_constant(exprs, a) != is_constant(exprs, b);
    (is_ordered && exprs.dtype(a).is_float() && one).then_some((op, a, b))
}

fn is_constant(exprs: &ExprArena, id: ExprId) -> bool {
    matches!(exprs[id].expr, Expr::Const(_))
}

/// Whether all numbers of one value are above those of another, or equal to them,
/// however they were rounded: rounding keeps signs.
fn is_above(high: Fact, low: Fact, or_equal: bool) -> bool {
    let by_sign = high.lo >= 0.0 && (low.hi < 0.0 || or_equal && low.hi <= 0.0);
    let (most, least) = (low.hi, high.lo);
    by_sign || most.is_finite() && least.is_finite() && least - most > ROUNDING * (most.abs() + least.abs())
}
