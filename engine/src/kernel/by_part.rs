//! Loops over the lanes of a vector that choose between two values by their place, as those over joined tensors do, compute one of
//! the two where that much is known before.
//!
//! `y[v] = where(c(v), f(v), g(v))` computes both. But most vectors lie in one part: so a thread asks whether `c` holds of all
//! lanes or of none, and goes through a loop that has one of the values, and nothing that the other alone needs:
//!
//! ```text
//! if c(0) && c(W - 1) { for v { y[v] = f(v) } } else if none { for v { y[v] = g(v) } } else { as it was }
//! ```
//!
//! `c` is a conjunction of `e + v >= 0`, `e + v < n` and what does not depend on `v`: each term holds of lanes at one end, so of all
//! if it holds of the first and the last one, and of none if it holds of neither.
//!
//! Taken where the loop computes much for one of the values alone. Invariant: what is written is the same.

use super::exprs::ExprArena;
use super::ir::{Block, Expr, ExprId, Kernel, Stmt, StmtKind, ValueKind, VarId};
use super::lane_masks::find::{at_lane, bound_in, unrolled};
use super::lane_masks::substitute::{substitute_choice, variables};
use super::lane_masks::{End, Unrolled, conjuncts, is_lane_of};
use super::visit::statement_exprs;
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp};
use crate::util::set_of;
use std::collections::{BTreeMap, BTreeSet};

/// Instructions of a lane, about, that one of the values takes alone and from which on a branch pays.
const LEAST: i64 = 24;
/// Those of a function.
const FUNCTION: i64 = 12;

/// Gives such loops a branch.
pub fn branch_by_part(kernel: &mut Kernel) {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(kernel, body);
}

fn block(kernel: &mut Kernel, block: Block) -> Block {
    block.into_iter().map(|stmt| statement(kernel, stmt)).collect()
}

fn statement(kernel: &mut Kernel, mut stmt: Stmt) -> Stmt {
    let own = unrolled(kernel, &stmt.kind);
    match &mut stmt.kind {
        StmtKind::For { body, .. } => match own.and_then(|own| Choice::of(kernel, own, body)) {
            Some(choice) => return choice.branch(kernel, stmt),
            None => *body = self::block(kernel, std::mem::take(body)),
        },
        StmtKind::If { then, otherwise, .. } => {
            *then = self::block(kernel, std::mem::take(then));
            *otherwise = self::block(kernel, std::mem::take(otherwise));
        }
        _ => {}
    }
    stmt
}

/// A choice by place in a loop over lanes.
struct Choice {
    lanes: Unrolled,
    /// `where(condition, sides[0], sides[1])`.
    chosen: ExprId,
    condition: ExprId,
    sides: [ExprId; 2],
}

impl Choice {
    /// The first one in a loop of loads, values and stores that is worth a branch.
    fn of(kernel: &Kernel, lanes: Unrolled, body: &Block) -> Option<Self> {
        let is_plain =
            |stmt: &Stmt| matches!(stmt.kind, StmtKind::Let { .. } | StmtKind::Load { .. } | StmtKind::Store { .. });
        if !body.iter().all(is_plain) {
            return None;
        }
        let mut inner = bound_in(lanes.counter, body);
        inner.remove(&lanes.counter);
        let mut choices = Vec::new();
        for stmt in body {
            statement_exprs(&stmt.kind, &mut |root| choices_in(kernel, lanes, root, &mut choices));
        }
        choices.into_iter().find(|choice| {
            let is_outside = !variables(&kernel.exprs, choice.condition).iter().any(|var| inner.contains(var));
            let all = Live::of(kernel, body, None).cost;
            let parts = choice.sides.map(|side| Live::of(kernel, body, Some((choice.chosen, side))).cost);
            is_outside && choice.is_by_place(&kernel.exprs) && parts.iter().any(|part| all - part >= LEAST)
        })
    }

    /// Whether each term holds of lanes at one end.
    fn is_by_place(&self, exprs: &ExprArena) -> bool {
        let varies = |id: ExprId| variables(exprs, id).contains(&self.lanes.counter);
        conjuncts(exprs, self.condition).into_iter().all(|term| match End::of(exprs, term) {
            _ if !varies(term) => true,
            Some(End::Lower(index)) => is_lane_of(exprs, index, self.lanes.counter),
            Some(End::Upper(index, extent)) => !varies(extent) && is_lane_of(exprs, index, self.lanes.counter),
            None => false,
        })
    }

    /// The loop, one of its two parts where the place is known to be in one.
    fn branch(&self, kernel: &mut Kernel, stmt: Stmt) -> Stmt {
        let origin = stmt.origin;
        let [first, second] = self.sides.map(|side| vec![self.part(kernel, &stmt, side)]);
        let branch = |condition: ExprId, then: Block, otherwise: Block| Stmt {
            kind: StmtKind::If { condition, then, otherwise },
            origin,
        };
        let (mut all, mut none) = (kernel.exprs.bool(true), kernel.exprs.bool(false));
        let mut varies = false;
        for term in conjuncts(&kernel.exprs, self.condition) {
            let ends = [0, self.lanes.extent - 1].map(|lane| at_lane(kernel, term, self.lanes.counter, lane));
            varies |= ends[0] != ends[1];
            let exprs = &mut kernel.exprs;
            let neither = ends.map(|end| exprs.unary(UnaryOp::LogicalNot, end));
            let (both, neither) = (exprs.and(ends[0], ends[1]), exprs.and(neither[0], neither[1]));
            (all, none) = (exprs.and(all, both), exprs.binary(BinaryOp::LogicalOr, none, neither));
        }
        if !varies {
            return branch(self.condition, first, second);
        }
        branch(all, first, vec![branch(none, second, vec![stmt])])
    }

    /// The loop with one of the values, of other variables.
    fn part(&self, kernel: &mut Kernel, stmt: &Stmt, side: ExprId) -> Stmt {
        let StmtKind::For { var, start, end, step, unroll, body } = &stmt.kind else { return stmt.clone() };
        let live = Live::of(kernel, body, Some((self.chosen, side)));
        let mut by = BTreeMap::new();
        let counter = renamed(kernel, *var, ValueKind::Index, &mut by);
        let mut part = Block::new();
        for (own, _) in body.iter().zip(live.statements).filter(|(_, is_live)| *is_live) {
            let now =
                |kernel: &mut Kernel, id: ExprId| substitute_choice(&mut kernel.exprs, id, &by, (self.chosen, side));
            let mut kind = own.kind.clone();
            match &mut kind {
                StmtKind::Let { var, value } => {
                    *value = now(kernel, *value);
                    // One of the two values may be a constant, where the choice is data.
                    let holds = kernel.exprs.kind(*value);
                    *var = renamed(kernel, *var, holds, &mut by);
                }
                StmtKind::Load { var, from, .. } => {
                    from.index = now(kernel, from.index);
                    *var = renamed(kernel, *var, ValueKind::Data, &mut by);
                }
                StmtKind::Store { to, value, .. } => {
                    to.index = now(kernel, to.index);
                    *value = now(kernel, *value);
                }
                _ => {}
            }
            part.push(Stmt { kind, origin: own.origin });
        }
        let (start, end, step, unroll) = (*start, *end, *step, *unroll);
        Stmt { kind: StmtKind::For { var: counter, start, end, step, unroll, body: part }, origin: stmt.origin }
    }
}

/// A variable like another one, for values of a kind, which stands for it from now on.
fn renamed(kernel: &mut Kernel, var: VarId, kind: ValueKind, by: &mut BTreeMap<VarId, ExprId>) -> VarId {
    let like = kernel.vars[var].clone();
    let dtype = like.dtype;
    let new = kernel.vars.push(like);
    by.insert(var, kernel.exprs.var(new, dtype, kind));
    new
}

/// The choices by an index in an expression.
fn choices_in(kernel: &Kernel, lanes: Unrolled, root: ExprId, choices: &mut Vec<Choice>) {
    let (mut open, mut seen) = (vec![root], set_of([root]));
    while let Some(id) = open.pop() {
        let expr = kernel.exprs[id].expr;
        if let Expr::Ternary(TernaryOp::Where, condition, first, second) = expr
            && kernel.exprs.kind(condition) == ValueKind::Index
        {
            choices.push(Choice { lanes, chosen: id, condition, sides: [first, second] });
        }
        open.extend(expr.operands().filter(|operand| seen.insert(*operand)));
    }
}

/// Which statements of a loop are needed, and what they cost, where a choice comes to one of its values.
struct Live {
    statements: Vec<bool>,
    cost: i64,
}

impl Live {
    fn of(kernel: &Kernel, body: &Block, choice: Option<(ExprId, ExprId)>) -> Self {
        let (mut needed, mut cost) = (BTreeSet::new(), 0);
        let mut statements: Vec<bool> = Vec::with_capacity(body.len());
        for stmt in body.iter().rev() {
            let is_live = match &stmt.kind {
                StmtKind::Let { var, .. } | StmtKind::Load { var, .. } => needed.contains(var),
                _ => true,
            };
            statements.push(is_live);
            if !is_live {
                continue;
            }
            let (mut open, mut seen) = (Vec::new(), BTreeSet::new());
            statement_exprs(&stmt.kind, &mut |root| open.push(root));
            while let Some(id) = open.pop() {
                let id = choice.filter(|(chosen, _)| *chosen == id).map_or(id, |(_, side)| side);
                if !seen.insert(id) {
                    continue;
                }
                let node = kernel.exprs[id];
                if let Expr::Var(var) = node.expr {
                    needed.insert(var);
                }
                cost += instructions(node.expr, node.dtype);
                open.extend(node.expr.operands());
            }
        }
        statements.reverse();
        Self { statements, cost }
    }
}

/// Instructions, about, for an expression of values; those of indices are shared among lanes.
fn instructions(expr: Expr, dtype: DType) -> i64 {
    match expr {
        Expr::Binary(BinaryOp::Div | BinaryOp::Truediv | BinaryOp::Pow, ..) | Expr::Approx(..) => FUNCTION,
        Expr::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::LogicalNot | UnaryOp::Relu, _) => 1,
        Expr::Unary(..) if dtype.is_float() => FUNCTION,
        Expr::Unary(..) | Expr::Binary(..) | Expr::Ternary(..) | Expr::Cast(_) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::branch_by_part;
    use crate::kernel::same_terms::{check_same_terms, kernel_of_rows};
    use crate::kernel::{Kernel, print, verify};

    /// Rows of `2 n`, one a block, of which a thread computes four elements at `shift` from where they are aligned: a power of
    /// those before `n`, and the sine of the others.
    fn read(shift: &str, chosen: &str) -> Kernel {
        let index = format!("threadIdx.x * 4 + v - {shift}");
        let declared = "  global y: f32[m * (n * 2)] align 16
  local a: f32[4] align 16
  local b: f32[4] align 16
  launch grid (m, 1, 1) block (16, 1, 1) max_threads 16 min_blocks 1
";
        let body = format!(
            "\
  for u: i32 in 0..4 unroll {{
    if threadIdx.x * 4 + u - {shift} >= 0 && threadIdx.x * 4 + u - {shift} < n {{
      let r: f32 = load x[blockIdx.x * n + (threadIdx.x * 4 + u - {shift})]
      store a[u] = r
    }}
    else {{
      store a[u] = 0.0f32
    }}
  }}
  for v: i32 in 0..4 unroll {{
    let t: f32 = load a[v]
    let s: f32 = sin(t) + 1.0f32
    let e: f32 = exp(t) / 3.0f32
    store b[v] = where({}, e, s)
  }}
  for w: i32 in 0..4 unroll {{
    let o: f32 = load b[w]
    if threadIdx.x * 4 + w - {shift} >= 0 && threadIdx.x * 4 + w - {shift} < n * 2 {{
      store y[blockIdx.x * (n * 2) + (threadIdx.x * 4 + w - {shift})] = o
    }}
  }}",
            chosen.replace("$v", &index)
        );
        kernel_of_rows(declared, &body)
    }

    /// The kernel has so many loops of each value alone, and of both, and writes what it wrote.
    #[track_caller]
    fn check(shift: &str, chosen: &str, counts: [usize; 2]) {
        let before = read(shift, chosen);
        let mut after = before.clone();
        branch_by_part(&mut after);
        verify(&after).unwrap_or_else(|error| panic!("{error}"));
        let text = print(&after);
        assert_eq!([text.matches("exp(").count(), text.matches("where(").count()], counts, "{text}");
        for (m, n) in [(3, 5), (2, 29), (4, 16), (1, 1), (2, 3)] {
            check_same_terms(&before, &after, [m, n]);
        }
    }

    #[test]
    fn vectors_of_one_part_compute_one_value() {
        check("blockIdx.x * n % 4", "$v < n", [2, 1]);
        check("blockIdx.x * n % 4", "$v >= 0 && $v < n", [2, 1]);
        // All lanes are in one part.
        check("0", "threadIdx.x * 4 < n", [1, 0]);
        check("0", "blockIdx.x % 2 >= 1", [1, 0]);
    }

    #[test]
    fn what_is_no_end_of_the_lanes_is_asked_of_each() {
        check("0", "v % 2 < 1", [1, 1]);
        check("0", "$v != n", [1, 1]);
    }
}
