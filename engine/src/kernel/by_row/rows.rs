//! How the index of a lane is by rows: its quotients and remainders by one length, and what terms ask of both rows.

use super::DIVISION;
use crate::kernel::exprs::ExprArena;
use crate::kernel::ir::{Expr, ExprId, IndexOp, VarId};
use crate::kernel::lane_masks::substitute::variables;
use crate::kernel::lane_masks::{End, is_lane_of};
use crate::util::set_of;
use std::collections::BTreeSet;

/// What a loop over lanes divides: an index of the lane, by the length of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) index: ExprId,
    pub(super) length: ExprId,
}

/// How an index depends on the lane.
pub(super) struct Use {
    pub(super) rows: Rows,
    /// The quotients and remainders in it.
    pub(super) quotients: BTreeSet<ExprId>,
    pub(super) remainders: BTreeSet<ExprId>,
    /// Instructions that it takes, about.
    pub(super) cost: i64,
}

impl Use {
    /// That of an index and of terms, where it is by the row of the lane and its place in that, and the terms ask for the end of
    /// lanes or for the row.
    pub(super) fn of(exprs: &ExprArena, counter: VarId, index: ExprId, terms: &[ExprId]) -> Option<Self> {
        let found = Divided::of(exprs, counter, index)?;
        let (rows, asks) = (found.rows?, |term: &&ExprId| variables(exprs, **term).contains(&counter));
        for &term in terms.iter().filter(asks).filter(|term| !is_end(exprs, **term, counter)) {
            let asked = Divided::of(exprs, counter, term)?;
            // Lanes that load at two places each do not ask for more.
            if asked.rows != Some(rows) || !asked.remainders.is_empty() || !found.remainders.is_empty() {
                return None;
            }
        }
        let Divided { quotients, remainders, cost, .. } = found;
        Some(Self { rows, quotients, remainders, cost })
    }
}

/// The quotients and remainders of a lane's index in an expression, all by one length.
#[derive(Default)]
struct Divided {
    rows: Option<Rows>,
    quotients: BTreeSet<ExprId>,
    remainders: BTreeSet<ExprId>,
    cost: i64,
}

impl Divided {
    /// Of an expression; none if it depends on the lane otherwise.
    fn of(exprs: &ExprArena, counter: VarId, root: ExprId) -> Option<Self> {
        let mut found = Self::default();
        let (mut open, mut seen) = (vec![root], set_of([root]));
        while let Some(id) = open.pop() {
            if !variables(exprs, id).contains(&counter) {
                continue;
            }
            let expr = exprs[id].expr;
            found.cost += match expr {
                Expr::Index(IndexOp::Div | IndexOp::Mod | IndexOp::CeilDiv, ..) => DIVISION,
                _ => 1,
            };
            match expr {
                Expr::Var(_) => return None,
                Expr::Index(op @ (IndexOp::Div | IndexOp::Mod), index, length)
                    if is_lane_of(exprs, index, counter) && is_sized(exprs, length) =>
                {
                    let own = Rows { index, length };
                    if *found.rows.get_or_insert(own) != own {
                        return None;
                    }
                    let terms = if op == IndexOp::Div { &mut found.quotients } else { &mut found.remainders };
                    terms.insert(id);
                }
                other => open.extend(other.operands().filter(|operand| seen.insert(*operand))),
            }
        }
        Some(found)
    }
}

/// A quotient of a quotient of a lane's index.
pub(super) struct Chain {
    pub(super) id: ExprId,
    pub(super) index: ExprId,
    pub(super) lengths: [ExprId; 2],
}

/// The first one in an expression.
pub(super) fn chain_in(exprs: &ExprArena, counter: VarId, root: ExprId) -> Option<Chain> {
    let (mut open, mut seen) = (vec![root], set_of([root]));
    while let Some(id) = open.pop() {
        if let Expr::Index(IndexOp::Div, inner, second) = exprs[id].expr
            && let Expr::Index(IndexOp::Div, index, first) = exprs[inner].expr
            && is_lane_of(exprs, index, counter)
            && [first, second].iter().all(|length| is_sized(exprs, *length))
        {
            return Some(Chain { id, index, lengths: [first, second] });
        }
        open.extend(exprs[id].expr.operands().filter(|operand| seen.insert(*operand)));
    }
    None
}

/// Whether a term is `e + v < m`.
pub(super) fn is_end(exprs: &ExprArena, term: ExprId, counter: VarId) -> bool {
    match End::of(exprs, term) {
        Some(End::Upper(index, end)) => is_lane_of(exprs, index, counter) && !variables(exprs, end).contains(&counter),
        _ => false,
    }
}

/// Whether an expression is the same in all threads.
pub(super) fn is_sized(exprs: &ExprArena, root: ExprId) -> bool {
    let (mut open, mut seen) = (vec![root], set_of([root]));
    while let Some(id) = open.pop() {
        match exprs[id].expr {
            Expr::Var(_) | Expr::Special(_) => return false,
            other => open.extend(other.operands().filter(|operand| seen.insert(*operand))),
        }
    }
    true
}
