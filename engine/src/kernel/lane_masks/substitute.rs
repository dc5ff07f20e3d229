//! Expressions with other expressions in the place of variables.

use crate::kernel::exprs::ExprArena;
use crate::kernel::ir::{Expr, ExprId, VarId};
use crate::util::{map_of, set_of};
use std::collections::BTreeMap;

/// An expression in which variables are replaced, folded as lowering would have.
pub(in crate::kernel) fn substitute(exprs: &mut ExprArena, root: ExprId, by: &BTreeMap<VarId, ExprId>) -> ExprId {
    substituted(exprs, root, by, BTreeMap::new())
}

/// The same, and one of its values in the place of a choice.
pub(in crate::kernel) fn substitute_choice(
    exprs: &mut ExprArena,
    root: ExprId,
    by: &BTreeMap<VarId, ExprId>,
    (chosen, side): (ExprId, ExprId),
) -> ExprId {
    let side = substitute(exprs, side, by);
    substituted(exprs, root, by, map_of([(chosen, side)]))
}

/// An expression of which some parts have become others.
fn substituted(
    exprs: &mut ExprArena,
    root: ExprId,
    by: &BTreeMap<VarId, ExprId>,
    mut done: BTreeMap<ExprId, ExprId>,
) -> ExprId {
    // An expression is rebuilt behind its operands.
    let mut open = vec![root];
    while let Some(&id) = open.last() {
        if done.contains_key(&id) {
            open.pop();
            continue;
        }
        let expr = exprs[id].expr;
        let missing: Vec<ExprId> = expr.operands().filter(|operand| !done.contains_key(operand)).collect();
        if missing.is_empty() {
            open.pop();
            let new = match expr {
                Expr::Var(var) => by.get(&var).copied().unwrap_or(id),
                _ if expr.operands().all(|operand| done[&operand] == operand) => id,
                _ => rebuilt(exprs, id, expr.map_operands(|operand| done[&operand])),
            };
            done.insert(id, new);
        } else {
            open.extend(missing);
        }
    }
    done[&root]
}

/// An expression of new operands, of the type of an old one.
fn rebuilt(exprs: &mut ExprArena, old: ExprId, expr: Expr) -> ExprId {
    let dtype = exprs.dtype(old);
    match expr {
        Expr::Unary(op, a) => exprs.unary(op, a),
        Expr::Binary(op, a, b) => exprs.binary(op, a, b),
        Expr::Ternary(op, a, b, c) => exprs.ternary(op, a, b, c),
        Expr::Index(op, a, b) => exprs.index(op, a, b),
        Expr::Cast(a) => exprs.cast(a, dtype),
        Expr::Rounded(a) => exprs.rounded(a),
        Expr::AsData(a) => exprs.as_data(a),
        Expr::AsIndex(a) => exprs.as_index(a),
        Expr::Approx(op, a) => exprs.approx(op, a),
        Expr::Const(_) | Expr::Param(_) | Expr::Special(_) | Expr::Var(_) => old,
    }
}

/// The variables that an expression reads.
pub(in crate::kernel) fn variables(exprs: &ExprArena, root: ExprId) -> Vec<VarId> {
    let (mut open, mut seen, mut found) = (vec![root], set_of([root]), Vec::new());
    while let Some(id) = open.pop() {
        match exprs[id].expr {
            Expr::Var(var) => found.push(var),
            other => open.extend(other.operands().filter(|operand| seen.insert(*operand))),
        }
    }
    found
}
