//! Tests of the lanes of a vector become bits of a mask.
//!
//! Where rows start at odd places, each lane of a vector asks at two ends whether it is inside of its row. A thread's
//! vectors lie alike in all of its rows, so the answers are the same in each; but eight answers a vector fit no
//! predicate registers, and are computed again wherever they are asked.
//!
//! In: a kernel. Out: the same, where unrolled loops over lanes `v` of `0..W` ask `e + v >= 0 && e + v < n` of what a
//! thread knows at its start. There an array gets, for each vector of the thread,
//!
//! ```text
//! lanes = bits(min(max(n - e, 0), W)) & ~bits(min(max(0 - e, 0), W))          bits(k) = 2^k - 1
//! ```
//!
//! and the tests become `lanes & 2^v != 0`. Lane `v` is inside exactly if `0 - e <= v < n - e`; bit `v` of `bits(k)` is
//! set exactly if `v < k`, and there is no lane beyond `W`. With that, all lanes are inside, `e >= 0 && e + W - 1 < n`,
//! exactly if `lanes = 2^W - 1`; and some lane is, `e + W - 1 >= 0 && e < n`, exactly if it is not 0 (but for `n = 0`,
//! where nothing is inside whatever these two say).
//!
//! Invariant: which lanes are computed, read and written is the same, but that nothing is read of a row of no elements.

pub(super) mod find;
mod rewrite;
pub(super) mod substitute;
#[cfg(test)]
mod tests;

use super::exprs::ExprArena;
use super::ir::{BufId, Expr, ExprId, IndexOp, Kernel, StmtKind, VarId};
use super::visit::for_each_stmt;
use crate::num::BinaryOp;

/// Lanes of a mask, at most.
const MOST_LANES: i64 = 16;
/// Masks of a thread, at most: each is a register.
const MOST_MASKS: i64 = 16;

/// Replaces the tests of lanes in a kernel that reduces across threads. Others load and store a vector once:
/// they ask too little for the mask to pay (transposes of bytes lost a tenth by it on an H200).
pub fn mask_lanes(kernel: &mut Kernel) {
    let mut reduces = false;
    for_each_stmt(&kernel.body, &mut |stmt| reduces |= matches!(stmt.kind, StmtKind::Shuffle { .. }));
    if reduces {
        replace_tests(kernel);
    }
}

fn replace_tests(kernel: &mut Kernel) {
    let masks = find::find(kernel);
    if !masks.is_empty() {
        rewrite::rewrite(kernel, masks);
    }
}

/// A loop that is unrolled completely, from 0 in steps of 1.
#[derive(Clone, Copy)]
pub(super) struct Unrolled {
    pub(super) counter: VarId,
    pub(super) extent: i64,
}

/// The masks of all vectors of a thread that are tested alike.
struct LaneMasks {
    /// Indices of the first and the last lane, and what they are to be below: of the
    /// counters of `loops` and of what does not change in a thread.
    first: ExprId,
    last: ExprId,
    extent: ExprId,
    width: i64,
    /// Loops over the vectors, which fill the array.
    loops: Vec<Unrolled>,
    array: BufId,
}

/// The index and the bound of a test at the lower end (`index >= 0`) or the upper one (`index < extent`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Lower(ExprId),
    Upper(ExprId, ExprId),
}

impl End {
    pub(super) fn of(exprs: &ExprArena, term: ExprId) -> Option<Self> {
        match exprs[term].expr {
            Expr::Binary(BinaryOp::Ge, index, zero) if exprs.as_int(zero) == Some(0) => Some(End::Lower(index)),
            Expr::Binary(BinaryOp::Lt, index, extent) => Some(End::Upper(index, extent)),
            _ => None,
        }
    }
}

/// Whether an index is `e + v`, `v` a counter and `e` without it.
pub(super) fn is_lane_of(exprs: &ExprArena, mut index: ExprId, counter: VarId) -> bool {
    let has = |id: ExprId| substitute::variables(exprs, id).contains(&counter);
    loop {
        index = match exprs[index].expr {
            Expr::Var(var) => return var == counter,
            Expr::Index(IndexOp::Add, a, b) if has(a) != has(b) => {
                if has(a) {
                    a
                } else {
                    b
                }
            }
            Expr::Index(IndexOp::Sub, a, b) if !has(b) => a,
            _ => return false,
        };
    }
}

/// The terms of a conjunction, in order.
pub(super) fn conjuncts(exprs: &ExprArena, condition: ExprId) -> Vec<ExprId> {
    let (mut open, mut terms) = (vec![condition], Vec::new());
    while let Some(id) = open.pop() {
        match exprs[id].expr {
            Expr::Binary(BinaryOp::LogicalAnd, a, b) => open.extend([b, a]),
            _ => terms.push(id),
        }
    }
    terms
}
