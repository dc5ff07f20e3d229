//! Walks over statements and the expressions in them.

use super::ir::{Block, ExprId, Stmt, StmtKind};

/// Calls `f` with each statement, a nested block's after its own.
pub(super) fn for_each_stmt<'a>(block: &'a Block, f: &mut impl FnMut(&'a Stmt)) {
    let mut open = vec![block.iter()];
    while let Some(statements) = open.last_mut() {
        let Some(stmt) = statements.next() else {
            open.pop();
            continue;
        };
        f(stmt);
        match &stmt.kind {
            StmtKind::For { body, .. } => open.push(body.iter()),
            StmtKind::If { then, otherwise, .. } => {
                open.push(otherwise.iter());
                open.push(then.iter());
            }
            _ => {}
        }
    }
}

/// Calls `f` with each expression that a statement itself evaluates.
pub(crate) fn statement_exprs(kind: &StmtKind, f: &mut impl FnMut(ExprId)) {
    match kind {
        StmtKind::Let { value, .. } => f(*value),
        StmtKind::Load { from, .. } => f(from.index),
        StmtKind::Store { to, value, .. } | StmtKind::Atomic { to, value, .. } => {
            f(to.index);
            f(*value);
        }
        StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => {
            f(to.index);
            f(from.index);
        }
        StmtKind::For { start, end, .. } => {
            f(*start);
            f(*end);
        }
        StmtKind::If { condition, .. } => f(*condition),
        StmtKind::Shuffle { value, lane, .. } => {
            f(*value);
            f(*lane);
        }
        StmtKind::Random { seed, offset, subsequence, .. } => {
            f(*seed);
            f(*offset);
            f(*subsequence);
        }
        StmtKind::Sync(_) | StmtKind::Fence(_) | StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
    }
}

/// Replaces each expression of the statements of a block, nested ones included.
pub(super) fn map_exprs(block: &mut Block, f: &impl Fn(ExprId) -> ExprId) {
    for stmt in block {
        match &mut stmt.kind {
            StmtKind::Let { value, .. } => *value = f(*value),
            StmtKind::Load { from, .. } => from.index = f(from.index),
            StmtKind::Store { to, value, .. } | StmtKind::Atomic { to, value, .. } => {
                to.index = f(to.index);
                *value = f(*value);
            }
            StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => {
                to.index = f(to.index);
                from.index = f(from.index);
            }
            StmtKind::For { start, end, body, .. } => {
                *start = f(*start);
                *end = f(*end);
                map_exprs(body, f);
            }
            StmtKind::If { condition, then, otherwise } => {
                *condition = f(*condition);
                map_exprs(then, f);
                map_exprs(otherwise, f);
            }
            StmtKind::Shuffle { value, lane, .. } => {
                *value = f(*value);
                *lane = f(*lane);
            }
            StmtKind::Random { seed, offset, subsequence, .. } => {
                *seed = f(*seed);
                *offset = f(*offset);
                *subsequence = f(*subsequence);
            }
            StmtKind::Sync(_) | StmtKind::Fence(_) | StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
        }
    }
}
