//! Mutants of a kernel: one change each.
//!
//! Barriers, fences, ends of groups and waits are removed one by one, and waits leave one group more open. Each term of
//! a condition that guards a statement, or selects a value by indices, is removed, and made to hold for one value less.
//! Each index is moved to the next element and to the one before, that of a vector by a whole vector. Each sum under a
//! remainder, and each exclusive or, in an index of shared memory, which is how tiles are rotated, loses either operand.

use engine::kernel::{Access, Block, Expr, ExprArena, ExprId, IndexOp, Kernel, Space, Stmt, StmtKind, print_stmt};
use engine::num::{BinaryOp, DType, TernaryOp};
use std::collections::BTreeMap;

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// A barrier was removed.
    Barrier,
    /// A fence was removed.
    Fence,
    /// The end of a group of asynchronous copies, or the wait for groups, was removed or weakened.
    Group,
    /// A term of a predicate was removed.
    Term,
    /// A term of a predicate holds for fewer values.
    Narrowed,
    /// An index points to the next element, or to the one before.
    Index,
    /// A rotation or an exclusive or of an index of shared memory was removed.
    Swizzle,
}

/// A part of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// All of it.
    Statement,
    /// Where it writes.
    To,
    /// Where it reads.
    From,
    /// A rotation of either index.
    Swizzle(ExprId),
    /// A term of a condition.
    Condition(ExprId),
}

/// The number of a statement in preorder, and a part of it.
pub(crate) type Site = (usize, Part);

/// A kernel with one change.
pub(crate) struct Mutant {
    pub(crate) change: Change,
    /// The statement before the change.
    pub(crate) place: String,
    /// Its number in preorder.
    pub(crate) number: usize,
    pub(crate) kernel: Kernel,
    /// The expression that was changed, and what it became; none of a removed statement.
    pub(crate) exprs: Option<(ExprId, ExprId)>,
    /// What it is about: a statement, or a part of one. Several changes may be made to one.
    pub(crate) site: Site,
}

/// Every mutant, in the order of the statements.
pub(crate) fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    let mut all = Vec::new();
    loop {
        let mut mutant = kernel.clone();
        let mut editor = Editor {
            original: kernel,
            exprs: &mut mutant.exprs,
            wanted: all.len(),
            seen: 0,
            number: 0,
            done: None,
            changed: None,
            part: Part::Statement,
        };
        editor.block(&mut mutant.body);
        match editor.done {
            Some((change, place)) => {
                let (number, exprs) = (editor.number - 1, editor.changed);
                let site = (number, editor.part);
                all.push(Mutant { change, place, number, kernel: mutant, exprs, site });
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
    changed: Option<(ExprId, ExprId)>,
    part: Part,
}

impl Editor<'_> {
    /// Whether the change to make is the next one.
    fn hit(&mut self, change: Change, place: &Stmt) -> bool {
        self.seen += 1;
        if self.seen - 1 != self.wanted {
            return false;
        }
        self.done = Some((change, print_stmt(self.original, place)));
        true
    }

    fn block(&mut self, block: &mut Block) {
        let mut position = 0;
        while position < block.len() {
            self.number += 1;
            let place = block[position].clone();
            let change = match &place.kind {
                StmtKind::Sync(_) => Some(Change::Barrier),
                StmtKind::Fence(_) => Some(Change::Fence),
                StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => Some(Change::Group),
                _ => None,
            };
            if change.is_some_and(|change| self.hit(change, &place)) {
                block.remove(position);
                return;
            }
            if let StmtKind::WaitGroup { open } = &mut block[position].kind
                && self.hit(Change::Group, &place)
            {
                *open += 1;
                return;
            }
            self.statement(&mut block[position].kind, &place);
            if self.done.is_some() {
                return;
            }
            position += 1;
        }
    }

    fn statement(&mut self, kind: &mut StmtKind, place: &Stmt) {
        match kind {
            StmtKind::Let { value, .. } | StmtKind::Shuffle { value, .. } => self.selects(value, place),
            StmtKind::Load { from, .. } => [1, -1].into_iter().for_each(|by| self.index(from, by, place, Part::From)),
            StmtKind::Store { to, value, .. } | StmtKind::Atomic { to, value, .. } => {
                [1, -1].into_iter().for_each(|by| self.index(to, by, place, Part::To));
                self.selects(value, place);
            }
            StmtKind::Move { to, from, lanes, .. } | StmtKind::CopyAsync { to, from, lanes, .. } => {
                let vector = i64::from(*lanes);
                for by in [vector, -vector] {
                    self.index(to, by, place, Part::To);
                    self.index(from, by, place, Part::From);
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

    fn index(&mut self, access: &mut Access, by: i64, place: &Stmt, part: Part) {
        if self.done.is_none() && self.hit(Change::Index, place) {
            let distance = self.exprs.int(by, self.exprs.dtype(access.index));
            let moved = self.exprs.add(access.index, distance);
            self.part = part;
            self.change(&mut access.index, moved);
        }
        if by > 0 && self.original.buffers[access.buffer].space == Space::Shared {
            for (whole, part) in swizzles(self.exprs, access.index) {
                if self.done.is_none() && self.hit(Change::Swizzle, place) {
                    let without = replace(self.exprs, access.index, whole, part, &mut BTreeMap::new());
                    self.part = Part::Swizzle(whole);
                    self.change(&mut access.index, without);
                }
            }
        }
    }

    fn change(&mut self, expr: &mut ExprId, new: ExprId) {
        self.changed = Some((*expr, new));
        *expr = new;
    }

    /// Removes and narrows each term of the conjunction `condition`, which is part of `whole`.
    fn predicate(&mut self, whole: &mut ExprId, condition: ExprId, place: &Stmt) {
        for leaf in leaves(self.exprs, condition) {
            for change in [Change::Term, Change::Narrowed] {
                if self.done.is_none() && self.hit(change, place) {
                    let new = if change == Change::Term { self.exprs.bool(true) } else { shrink(self.exprs, leaf) };
                    let judged = replace(self.exprs, condition, leaf, new, &mut BTreeMap::new());
                    *whole = replace(self.exprs, *whole, condition, judged, &mut BTreeMap::new());
                    self.changed = Some((condition, judged));
                    self.part = Part::Condition(leaf);
                }
            }
        }
    }

    /// Shrinks the predicates on indices by which an expression selects.
    fn selects(&mut self, value: &mut ExprId, place: &Stmt) {
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
    // A conjunction is what is left of it.
    let new = match expr {
        Expr::Binary(BinaryOp::LogicalAnd, a, b) => exprs.and(a, b),
        _ => exprs.intern(expr, node.dtype),
    };
    memo.insert(id, new);
    new
}

/// The sums under remainders and the exclusive ors of an index, each with either of its operands.
fn swizzles(exprs: &ExprArena, index: ExprId) -> Vec<(ExprId, ExprId)> {
    let (mut found, mut open) = (Vec::new(), vec![index]);
    while let Some(id) = open.pop() {
        let parts = match exprs[id].expr {
            Expr::Index(IndexOp::Mod, sum, _) => match exprs[sum].expr {
                Expr::Index(IndexOp::Add, a, b) => Some((sum, a, b)),
                _ => None,
            },
            Expr::Binary(BinaryOp::BitwiseXor, a, b) => Some((id, a, b)),
            _ => None,
        };
        if let Some((whole, a, b)) = parts {
            found.extend([(whole, a), (whole, b)]);
        }
        open.extend(exprs[id].expr.operands());
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether an index of shared memory is rotated.
pub(crate) fn has_swizzle(kernel: &Kernel) -> bool {
    fn any(kernel: &Kernel, block: &Block) -> bool {
        let of = |access: &Access| {
            kernel.buffers[access.buffer].space == Space::Shared && !swizzles(&kernel.exprs, access.index).is_empty()
        };
        block.iter().any(|stmt| match &stmt.kind {
            StmtKind::Load { from, .. } => of(from),
            StmtKind::Store { to, .. } => of(to),
            StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => of(to) || of(from),
            StmtKind::For { body, .. } => any(kernel, body),
            StmtKind::If { then, otherwise, .. } => any(kernel, then) || any(kernel, otherwise),
            _ => false,
        })
    }
    any(kernel, &kernel.body)
}
