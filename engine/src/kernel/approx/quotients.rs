//! Quotients as products: `a / b` is `a (1 / b)` where no result shows the difference. Rounded as a quotient is, it takes ten
//! instructions; of a divisor that many elements have in common the reciprocal is computed once, and of any other in fewer.
//!
//! The product is off by two roundings, and by what a reciprocal loses that is no normal number: `b` must be known to be positive
//! and no less than the least normal number, and for what it may be above the reciprocal of that, `a` to be small.
//!
//! In: a kernel. Out: the quotients that become products, all of them or as many as results allow, one after the other.

use super::errors::Flow;
use super::{Choice, MOST_SINGLE, Quotients, Uses};
use crate::kernel::ir::{Expr, ExprId, Kernel};
use crate::num::{BinaryOp, DType};

/// Chooses them.
pub(super) fn choose(kernel: &Kernel, uses: &Uses, choice: &mut Choice) {
    let all: Vec<(ExprId, ExprId)> = kernel.exprs.iter().filter_map(|(id, _)| quotient(kernel, id)).collect();
    if !all.iter().any(|(id, _)| uses.count[*id] > 0) {
        return;
    }
    let flow = Flow::new(kernel);
    let facts = flow.facts();
    let is_fit = |&&(id, by): &&(ExprId, ExprId)| uses.count[id] > 0 && facts[by].is_some_and(|by| by.has_reciprocal());
    let fit: Vec<ExprId> = all.iter().filter(is_fit).map(|(id, _)| *id).collect();
    fit.iter().for_each(|id| choice.quotients.set(*id, true));
    if fit.is_empty() || flow.is_good_enough(choice) {
        return;
    }
    choice.quotients = Quotients::new();
    for id in fit.into_iter().take(MOST_SINGLE) {
        choice.quotients.set(id, true);
        if !flow.is_good_enough(choice) {
            choice.quotients.set(id, false);
        }
    }
}

/// A quotient of numbers of `f32`, with its divisor.
fn quotient(kernel: &Kernel, id: ExprId) -> Option<(ExprId, ExprId)> {
    match kernel.exprs[id].expr {
        Expr::Binary(BinaryOp::Div | BinaryOp::Truediv, _, b) if kernel.exprs.dtype(id) == DType::F32 => Some((id, b)),
        _ => None,
    }
}
