//! Mutants of a kernel: one change each.
//!
//! Barriers, fences, ends of groups and waits are removed one by one; each comparison that guards a
//! statement is made to hold for one value less; each index is moved to the
//! next element (of a vector move: also to the next vector).

use engine::kernel::{Access, Block, Expr, ExprArena, ExprId, Kernel, StmtKind, print_stmt};
use engine::num::{BinaryOp, DType, TernaryOp};
use std::collections::BTreeMap;

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// A barrier was removed.
    Barrier,
    /// A fence was removed.
    Fence,
    /// The end of a group of asynchronous copies, or the wait for groups, was removed.
    Group,
    /// A predicate holds for fewer values.
    Predicate,
    /// An index points to the next element.
    Index,
}

/// A kernel with one change.
pub(crate) struct Mutant {
    pub(crate) change: Change,
    /// The statement before the change.
    pub(crate) place: String,
    /// Its number in preorder.
    pub(crate) number: usize,
    pub(crate) kernel: Kernel,
}

/// Every mutant, in the order of the statements.
pub(crate) fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    let mut all = Vec::new();
    loop {
        let mut mutant = kernel.clone();
        let mut editor =
            Editor { original: kernel, exprs: &mut mutant.exprs, wanted: all.len(), seen: 0, number: 0, done: None };
        editor.block(&mut mutant.body);
        match editor.done {
            Some((change, place)) => {
                let number = editor.number - 1;
                all.push(Mutant { change, place, number, kernel: mutant });
            }
            None => return all,
        }
    }
}

/// Walks a kernel and makes the `wanted`-th change.
struct Editor<'a> {
    original: &'a Kernel,
    exprs: &'a mut ExprArena,
    wanted: usize,
    seen: usize,
    /// Statements entered so far, in preorder.
    number: usize,
    done: Option<(Change, String)>,
}

impl Editor<'_> {
    /// Whether the change to make is the next one.
    fn hit(&mut self, change: Change, place: &str) -> bool {
        self.seen += 1;
        if self.seen - 1 != self.wanted {
            return false;
        }
        self.done = Some((change, place.to_owned()));
        true
    }

    fn block(&mut self, block: &mut Block) {
        let mut position = 0;
        while position < block.len() {
            self.number += 1;
            let place = print_stmt(self.original, &block[position]);
            let change = match &block[position].kind {
                StmtKind::Sync(_) => Some(Change::Barrier),
                StmtKind::Fence(_) => Some(Change::Fence),
                StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => Some(Change::Group),
                _ => None,
            };
            if change.is_some_and(|change| self.hit(change, &place)) {
                block.remove(position);
                return;
            }
            self.statement(&mut block[position].kind, &place);
            if self.done.is_some() {
                return;
            }
            position += 1;
        }
    }

    fn statement(&mut self, kind: &mut StmtKind, place: &str) {
        match kind {
            StmtKind::Let { value, .. } | StmtKind::Shuffle { value, .. } => self.selects(value, place),
            StmtKind::Load { from, .. } => self.index(from, 1, place),
            StmtKind::Store { to, value, .. } | StmtKind::Atomic { to, value, .. } => {
                self.index(to, 1, place);
                self.selects(value, place);
            }
            StmtKind::Move { to, from, lanes, .. } | StmtKind::CopyAsync { to, from, lanes, .. } => {
                for distance in [1, i64::from(*lanes)] {
                    self.index(to, distance, place);
                    self.index(from, distance, place);
                }
            }
            StmtKind::For { body, .. } => self.block(body),
            StmtKind::If { condition, then, otherwise } => {
                self.predicate(condition, *condition, place);
                self.block(then);
                self.block(otherwise);
            }
            StmtKind::Random { subsequence, .. } => self.selects(subsequence, place),
            StmtKind::Sync(_) | StmtKind::Fence(_) | StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
        }
    }

    fn index(&mut self, access: &mut Access, distance: i64, place: &str) {
        if self.done.is_none() && self.hit(Change::Index, place) {
            let distance = self.exprs.int(distance, self.exprs.dtype(access.index));
            access.index = self.exprs.add(access.index, distance);
        }
    }

    /// Shrinks each comparison of the conjunction `condition`, which is part of `whole`.
    fn predicate(&mut self, whole: &mut ExprId, condition: ExprId, place: &str) {
        for leaf in leaves(self.exprs, condition) {
            if self.done.is_none() && self.hit(Change::Predicate, place) {
                let smaller = shrink(self.exprs, leaf);
                *whole = replace(self.exprs, *whole, leaf, smaller, &mut BTreeMap::new());
            }
        }
    }

    /// Shrinks the predicates on indices by which an expression selects.
    fn selects(&mut self, value: &mut ExprId, place: &str) {
        let mut conditions = Vec::new();
        find_selects(self.exprs, *value, &mut conditions);
        for condition in conditions {
            self.predicate(value, condition, place);
        }
    }
}

/// The comparisons whose conjunction an expression is.
fn leaves(exprs: &ExprArena, condition: ExprId) -> Vec<ExprId> {
    match exprs[condition].expr {
        Expr::Binary(BinaryOp::LogicalAnd, a, b) => {
            let mut all = leaves(exprs, a);
            all.extend(leaves(exprs, b));
            all.sort_unstable();
            all.dedup();
            all
        }
        _ => vec![condition],
    }
}

/// A comparison that holds for one value less.
fn shrink(exprs: &mut ExprArena, leaf: ExprId) -> ExprId {
    if let Expr::Binary(op, a, b) = exprs[leaf].expr
        && matches!(exprs.dtype(a), DType::I32 | DType::I64)
    {
        let one = exprs.int(1, exprs.dtype(a));
        match op {
            BinaryOp::Lt | BinaryOp::Le => {
                let a = exprs.add(a, one);
                return exprs.binary(op, a, b);
            }
            BinaryOp::Gt | BinaryOp::Ge => {
                let b = exprs.add(b, one);
                return exprs.binary(op, a, b);
            }
            _ => {}
        }
    }
    exprs.bool(false)
}

fn find_selects(exprs: &ExprArena, id: ExprId, found: &mut Vec<ExprId>) {
    let expr = exprs[id].expr;
    if let Expr::Ternary(TernaryOp::Where, condition, ..) = expr {
        let on_indices = leaves(exprs, condition).iter().all(|&leaf| match exprs[leaf].expr {
            Expr::Binary(_, a, _) => matches!(exprs.dtype(a), DType::I32 | DType::I64) && !reads_memory(exprs, a),
            _ => false,
        });
        if on_indices && !found.contains(&condition) {
            found.push(condition);
        }
    }
    expr.operands().for_each(|operand| find_selects(exprs, operand, found));
}

/// Whether an expression depends on a variable that is no index. Without data
/// flow: index variables come from loops and `let`, and so does data; a
/// predicate on integers is taken for one on indices.
fn reads_memory(exprs: &ExprArena, id: ExprId) -> bool {
    matches!(exprs[id].expr, Expr::Cast(a) if exprs.dtype(a).is_float())
}

/// `id` with every use of `from` replaced by `to`.
fn replace(exprs: &mut ExprArena, id: ExprId, from: ExprId, to: ExprId, memo: &mut BTreeMap<ExprId, ExprId>) -> ExprId {
    if id == from {
        return to;
    }
    if let Some(&done) = memo.get(&id) {
        return done;
    }
    let node = exprs[id];
    let expr = node.expr.map_operands(|operand| replace(exprs, operand, from, to, memo));
    let new = exprs.intern(expr, node.dtype);
    memo.insert(id, new);
    new
}
