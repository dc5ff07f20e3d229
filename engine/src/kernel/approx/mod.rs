//! Chooses approximations: which functions of a kernel are computed in fewer
//! instructions than their exact form takes.
//!
//! Input: a kernel whose functions are exact, but for exponentials of sums below a maximum. Output: the same kernel with some
//! of them replaced by [`Expr::Approx`], which both back ends execute as it says.
//!
//! `erf`, `erf + 1` and the slope of GELU are replaced everywhere, since their approximations are as
//! good as the exact forms ([`join`]). The others, and a short form of `erf + 1`, lose digits, and some lose what is below
//! the least normal number. One of those is taken only where the flow of values
//! ([`errors`]) shows that every result stays within what its type needs,
//! whatever the inputs: errors are followed through variables, arrays, shuffles,
//! shared and scratch memory, and what is not known to keep them small keeps the
//! exact form. So an exponential that becomes a factor, a divisor, a difference
//! or a condition is as exact as its use demands.
//!
//! By the same flow quotients become products where results allow it ([`quotients`]).
//!
//! The same flow tells comparisons that every number passes, which then ask for a
//! number ([`compare`]).

mod compare;
mod errors;
mod fact;
mod join;
mod quotients;
mod reads;
#[cfg(test)]
mod tests;

use super::ir::{Expr, ExprId, Kernel, StmtKind, VarId};
use super::visit::{for_each_stmt, map_exprs, statement_exprs};
use crate::num::{ApproxOp, BinaryOp, DType, UnaryOp};
use crate::util::SecondaryMap;
use errors::Flow;

/// So many functions are decided one by one; more only all together.
const MOST_SINGLE: usize = 32;

/// The quotients that are products.
type Quotients = SecondaryMap<ExprId, bool>;

/// What is computed in fewer instructions.
#[derive(Default)]
struct Choice {
    /// The approximation of each function that gets one.
    functions: SecondaryMap<ExprId, Option<ApproxOp>>,
    quotients: Quotients,
}

/// Replaces functions by approximations where results allow it, and comparisons that
/// every number passes by the question whether it is one.
pub fn approximate(kernel: &mut Kernel) {
    join::join(kernel);
    let mut choice = Choice::default();
    let mut coarse = Vec::new();
    let uses = Uses::new(kernel);
    for (id, node) in kernel.exprs.iter().filter(|(id, node)| node.dtype == DType::F32 && uses.count[*id] > 0) {
        match node.expr {
            Expr::Unary(UnaryOp::Erf, _) => choice.functions.set(id, Some(ApproxOp::Erf)),
            Expr::Unary(op, _) if !ApproxOp::coarse(op).is_empty() => coarse.push((id, ApproxOp::coarse(op))),
            Expr::Approx(ApproxOp::ErfPlusOne, _) => coarse.push((id, &[ApproxOp::ErfPlusOneShort])),
            _ => {}
        }
    }
    quotients::choose(kernel, &uses, &mut choice);
    choose(kernel, &coarse, &mut choice);
    rewrite(kernel, |exprs, id, now| match exprs[id].expr {
        Expr::Unary(_, a) | Expr::Approx(_, a) => choice.functions[id].map(|op| Expr::Approx(op, now(a))),
        Expr::Binary(_, a, b) if choice.quotients[id] => {
            let by = exprs.intern(Expr::Unary(UnaryOp::Reciprocal, now(b)), DType::F32);
            Some(Expr::Binary(BinaryOp::Mul, now(a), by))
        }
        _ => None,
    });
    compare::decide(kernel);
}

/// The conversions of `f32` to floats of 8 bits and a sign of which the flow of values shows that no number is beyond the greatest
/// one.
pub fn casts_within(kernel: &Kernel) -> SecondaryMap<ExprId, bool> {
    let most = |dtype: DType| match dtype {
        DType::F8E4M3FN => Some(448.0),
        DType::F8E5M2 => Some(57344.0),
        _ => None,
    };
    let narrowing = |(id, node): (ExprId, &super::ExprNode)| match node.expr {
        Expr::Cast(a) if kernel.exprs.dtype(a) == DType::F32 => Some((id, a, most(node.dtype)?)),
        _ => None,
    };
    let casts: Vec<(ExprId, ExprId, f64)> = kernel.exprs.iter().filter_map(narrowing).collect();
    let mut within = SecondaryMap::new();
    if !casts.is_empty() {
        let facts = Flow::new(kernel).facts();
        for (id, a, most) in casts {
            within.set(id, facts[a].is_some_and(|fact| -most <= fact.lo && fact.hi <= most));
        }
    }
    within
}

/// Chooses among the coarse approximations of functions, cheapest first.
fn choose(kernel: &Kernel, coarse: &[(ExprId, &'static [ApproxOp])], choice: &mut Choice) {
    if coarse.is_empty() {
        return;
    }
    let flow = Flow::new(kernel);
    let most = coarse.iter().map(|(_, forms)| forms.len()).max().unwrap_or(0);
    for rank in 0..most {
        coarse.iter().for_each(|&(id, forms)| choice.functions.set(id, forms.get(rank).copied()));
        if flow.is_good_enough(choice) {
            return;
        }
    }
    coarse.iter().for_each(|&(id, _)| choice.functions.set(id, None));
    if coarse.len() > MOST_SINGLE {
        return;
    }
    for &(id, forms) in coarse {
        for &form in forms {
            choice.functions.set(id, Some(form));
            if flow.is_good_enough(choice) {
                break;
            }
            choice.functions.set(id, None);
        }
    }
}

/// How often expressions that a statement needs are used, and what names them.
struct Uses {
    count: SecondaryMap<ExprId, u32>,
    lets: SecondaryMap<VarId, Option<ExprId>>,
}

impl Uses {
    fn new(kernel: &Kernel) -> Self {
        let mut uses = Self { count: SecondaryMap::new(), lets: SecondaryMap::new() };
        for_each_stmt(&kernel.body, &mut |stmt| {
            statement_exprs(&stmt.kind, &mut |expr| uses.count[expr] += 1);
            if let StmtKind::Let { var, value } = stmt.kind {
                uses.lets.set(var, Some(value));
            }
        });
        // Operands come before users.
        let ids: Vec<ExprId> = kernel.exprs.iter().map(|(id, _)| id).collect();
        for id in ids.into_iter().rev() {
            if uses.count[id] > 0 {
                kernel.exprs[id].expr.operands().for_each(|operand| uses.count[operand] += 1);
            }
        }
        uses
    }

    /// The definition of an expression whose only use this is, through the
    /// variable that names it or itself.
    fn sole_definition(&self, kernel: &Kernel, id: ExprId) -> Option<ExprId> {
        let definition = match kernel.exprs[id].expr {
            Expr::Var(var) if self.count[id] == 1 => self.lets[var]?,
            _ => id,
        };
        (self.count[definition] == 1).then_some(definition)
    }
}

/// Replaces expressions by others of their type: `with` says by which, of an expression as it was, and gets what stands for
/// an operand now.
fn rewrite(
    kernel: &mut Kernel,
    with: impl Fn(&mut super::ExprArena, ExprId, &dyn Fn(ExprId) -> ExprId) -> Option<Expr>,
) {
    let ids: Vec<ExprId> = kernel.exprs.iter().map(|(id, _)| id).collect();
    let mut new = SecondaryMap::<ExprId, Option<ExprId>>::new();
    let mut changed = false;
    for id in ids {
        let node = kernel.exprs[id];
        let now = |operand: ExprId| new[operand].unwrap_or(operand);
        let expr = with(&mut kernel.exprs, id, &now).unwrap_or_else(|| node.expr.map_operands(now));
        if expr != node.expr {
            changed = true;
            new.set(id, Some(kernel.exprs.intern(expr, node.dtype)));
        }
    }
    if changed {
        map_exprs(&mut kernel.body, &|expr| new[expr].unwrap_or(expr));
    }
}
