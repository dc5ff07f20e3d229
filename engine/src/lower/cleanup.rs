//! Joins what the emission of one element at a time left apart: neighbouring
//! branches on one condition become one, and a loop whose body is a branch on a
//! condition that does not change becomes a branch around the loop. Reads of
//! registers that only the branch uses move into it. Of nested loops that are
//! unrolled, the outer ones are not where all together would be too many copies.

use crate::kernel::{Block, Expr, ExprArena, ExprId, Stmt, StmtKind, Unroll, VarId};
use std::collections::BTreeSet;

/// Copies of one statement that unrolled loops around it may make: more than
/// any heuristic asks for. With more the assembler takes minutes, for arrays that
/// lie in local memory anyway.
const MAX_COPIES: i64 = 256;

/// Rewrites a block.
pub(super) fn cleanup(block: Block, exprs: &ExprArena) -> Block {
    let mut out = join(block.into_iter().map(|stmt| cleanup_stmt(stmt, exprs)).collect());
    // Joining may have made new neighbours inside; they are short, one more round is enough.
    for stmt in &mut out {
        if let StmtKind::If { then, otherwise, .. } = &mut stmt.kind {
            *then = join(std::mem::take(then));
            *otherwise = join(std::mem::take(otherwise));
        }
    }
    out
}

/// Joins neighbouring branches on one condition.
fn join(block: Block) -> Block {
    let mut out: Block = Vec::with_capacity(block.len());
    for stmt in block {
        match (out.last_mut(), stmt) {
            (
                Some(Stmt { kind: StmtKind::If { condition: a, then, otherwise }, .. }),
                Stmt { kind: StmtKind::If { condition: b, then: more, otherwise: more_otherwise }, .. },
            ) if *a == b => {
                then.extend(more);
                otherwise.extend(more_otherwise);
            }
            (_, stmt) => out.push(stmt),
        }
    }
    out
}

fn cleanup_stmt(stmt: Stmt, exprs: &ExprArena) -> Stmt {
    let origin = stmt.origin;
    let kind = match stmt.kind {
        StmtKind::If { condition, then, otherwise } => {
            StmtKind::If { condition, then: cleanup(then, exprs), otherwise: cleanup(otherwise, exprs) }
        }
        StmtKind::For { var, start, end, step, unroll, body } => {
            let body = sink(cleanup(body, exprs), exprs);
            let many = || trips(start, end, step, exprs).saturating_mul(copies(&body, exprs)) > MAX_COPIES;
            let unroll = if unroll == Unroll::Full && many() { Unroll::No } else { unroll };
            match <[Stmt; 1]>::try_from(body) {
                Ok([Stmt { kind: StmtKind::If { condition, then, otherwise }, .. }])
                    if otherwise.is_empty() && !variables(condition, exprs).contains(&var) =>
                {
                    let inner = Stmt { kind: StmtKind::For { var, start, end, step, unroll, body: then }, origin };
                    StmtKind::If { condition, then: vec![inner], otherwise }
                }
                Ok(body) => StmtKind::For { var, start, end, step, unroll, body: body.into() },
                Err(body) => StmtKind::For { var, start, end, step, unroll, body },
            }
        }
        other => other,
    };
    Stmt { kind, origin }
}

/// How often a loop of constant bounds runs; once where they are not.
fn trips(start: ExprId, end: ExprId, step: i64, exprs: &ExprArena) -> i64 {
    match (exprs.as_int(start), exprs.as_int(end)) {
        (Some(start), Some(end)) => (end.saturating_sub(start) / step.max(1)).max(1),
        _ => 1,
    }
}

/// The most copies that unrolled loops in a block make of any of its statements.
fn copies(block: &Block, exprs: &ExprArena) -> i64 {
    let of = |stmt: &Stmt| match &stmt.kind {
        StmtKind::For { start, end, step, unroll: Unroll::Full, body, .. } => {
            trips(*start, *end, *step, exprs).saturating_mul(copies(body, exprs))
        }
        StmtKind::For { body, .. } => copies(body, exprs),
        StmtKind::If { then, otherwise, .. } => copies(then, exprs).max(copies(otherwise, exprs)),
        _ => 1,
    };
    block.iter().map(of).max().unwrap_or(1)
}

/// Moves reads and names into the branch that ends a block, if nothing else
/// can use them: `[v = a[i]; if c { f(v) }]` becomes `[if c { v = a[i]; f(v) }]`.
fn sink(mut body: Block, exprs: &ExprArena) -> Block {
    let Some(Stmt { kind: StmtKind::If { condition, otherwise, .. }, .. }) = body.last() else { return body };
    let used = variables(*condition, exprs);
    let movable = otherwise.is_empty()
        && body[..body.len() - 1].iter().all(|stmt| match stmt.kind {
            StmtKind::Let { var, .. } | StmtKind::Load { var, .. } => !used.contains(&var),
            _ => false,
        });
    if !movable || body.len() == 1 {
        return body;
    }
    let last = body.pop();
    if let Some(Stmt { kind: StmtKind::If { condition, then, otherwise }, origin }) = last {
        body.extend(then);
        return vec![Stmt { kind: StmtKind::If { condition, then: body, otherwise }, origin }];
    }
    body
}

/// The variables of an expression.
fn variables(expr: ExprId, exprs: &ExprArena) -> BTreeSet<VarId> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut stack = vec![expr];
    while let Some(expr) = stack.pop() {
        if !seen.insert(expr) {
            continue;
        }
        if let Expr::Var(var) = exprs[expr].expr {
            found.insert(var);
        }
        stack.extend(exprs[expr].expr.operands());
    }
    found
}
