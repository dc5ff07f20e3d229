//! A tile of a product: threads hold sums in registers, and share the factors of some terms at a time.
//!
//! A thread has sums of `parts` times 4 rows and as many columns; parts lie apart, so that threads beside each other read
//! vectors beside each other. The factors of [`DEPTH`] terms lie in shared memory in the type of sums, term by term, in
//! two stages: while one is multiplied, what the next one holds is on its way into registers.
//!
//! Rows of a tile in shared memory are 4 elements longer than the tile, so that lanes that read along the summed axis
//! write into different banks, at most two each into one.

use super::super::share;
use super::memory::Memory;
use super::side::{Part, Side};
use super::{DEPTH, SIDE, Shape, THREADS};
use crate::kernel::{BufId, CacheHint, Dim, ExprId, KernelBuilder, MAX_ACCESS_BYTES, Scope, Unroll};
use crate::num::{UnaryOp, Value};

/// What is summed and written of a tile.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// The rows, from one up to another; of others nothing is read or written.
    pub(super) rows: [ExprId; 2],
    /// The terms.
    pub(super) terms: [ExprId; 2],
    /// A multiple of [`DEPTH`], the last one that is not behind the first term.
    pub(super) start: ExprId,
}

/// What emits a tile.
pub(super) struct Product<'a> {
    pub(super) memory: &'a Memory,
    /// Of rows and of columns.
    sides: [Side<'a>; 2],
    /// Parts of rows and of columns of a thread.
    parts: i64,
    sums: BufId,
}

impl<'a> Product<'a> {
    /// Declares what a tile needs that starts at a row and a column.
    pub(super) fn new(b: &mut KernelBuilder, memory: &'a Memory, shape: Shape, [row, column]: [ExprId; 2]) -> Self {
        let (down, parts) = (i64::from(shape.across), i64::from(shape.parts));
        let right = THREADS / down;
        let (thread, by) = (share::thread(b, Dim::X), b.int(right));
        let (ty, tx) = (b.exprs().div(thread, by), b.exprs().rem(thread, by));
        let (ty, tx) = (b.let_("ty", ty), b.let_("tx", tx));
        let [height, width] = shape.tile();
        let splits_sums = memory.right.group.is_none();
        let (left, other) = (&memory.left, &memory.right);
        let sides = [
            // Groups end anywhere along what they split.
            Side::new(b, left, "a", memory.work, [height, down, parts], [row, ty], splits_sums == left.is_along),
            Side::new(b, other, "b", memory.work, [width, right, parts], [column, tx], splits_sums && other.is_along),
        ];
        let sums = b.local("sums", memory.work, SIDE * parts * SIDE * parts);
        Self { memory, sides, parts, sums }
    }

    /// Emits the sums of a window for a group, and writes them.
    pub(super) fn tile(&self, b: &mut KernelBuilder, group: ExprId, window: Window) {
        self.sum(b, group, window);
        self.write(b, group, window);
    }

    fn sum(&self, b: &mut KernelBuilder, group: ExprId, window: Window) {
        let all = b.int(SIDE * self.parts * SIDE * self.parts);
        let nothing = b.exprs().value(Value::Float(0.0), self.memory.work);
        b.count("i", all, Unroll::Full, |b, i| b.store(self.sums, i, nothing));
        let columns = [b.int(0), self.memory.columns];
        let parts = [(&self.sides[0], window.rows), (&self.sides[1], columns)].map(|(side, across)| {
            let start = side.start(b, group);
            (side, Part { start, across, terms: window.terms })
        });
        parts.iter().for_each(|(side, part)| side.fetch(b, part, window.start));
        let has_rows = self.has_rows(b, window);
        b.for_("k", (window.start, window.terms[1], DEPTH), Unroll::No, |b, k| {
            let (depth, two) = (b.int(DEPTH), b.int(2));
            let stage = b.exprs().div(k, depth);
            let stage = b.exprs().rem(stage, two);
            let stage = b.let_("stage", stage);
            parts.iter().for_each(|(side, part)| side.put(b, part, k, stage));
            // Who writes a stage again has come by here once more, so that nobody reads it.
            b.sync(Scope::Block);
            let next = b.exprs().add(k, depth);
            let next = b.let_("next", next);
            parts.iter().for_each(|(side, part)| side.fetch(b, part, next));
            b.if_(has_rows, |b| self.multiply(b, stage));
        });
    }

    /// Whether a thread has rows of the window, perhaps between parts.
    fn has_rows(&self, b: &mut KernelBuilder, window: Window) -> ExprId {
        let side = &self.sides[0];
        let (first, zero) = (b.int(0), b.int(0));
        let first = side.place(b, first, zero);
        let more = b.int((self.parts - 1) * side.threads * SIDE + SIDE);
        let behind = b.exprs().add(first, more);
        let (is_before, is_behind) = (b.exprs().lt(first, window.rows[1]), b.exprs().lt(window.rows[0], behind));
        let has_rows = b.exprs().and(is_before, is_behind);
        b.let_("has_rows", has_rows)
    }

    /// Adds the products of the terms of a stage.
    fn multiply(&self, b: &mut KernelBuilder, stage: ExprId) {
        let (depth, own) = (b.int(DEPTH), b.int(SIDE * self.parts));
        b.count("term", depth, Unroll::Full, |b, term| {
            self.sides.iter().for_each(|side| side.hold(b, stage, term));
            b.count("i", own, Unroll::Full, |b, i| {
                let x = b.load("x", self.sides[0].held, i);
                b.count("j", own, Unroll::Full, |b, j| {
                    let y = b.load("y", self.sides[1].held, j);
                    let at = b.exprs().mul(i, own);
                    let at = b.exprs().add(at, j);
                    let sum = b.load("sum", self.sums, at);
                    let product = b.exprs().mul(x, y);
                    let sum = b.exprs().add(sum, product);
                    b.store(self.sums, at, sum);
                });
            });
        });
    }

    /// Writes the rows of the window.
    fn write(&self, b: &mut KernelBuilder, group: ExprId, window: Window) {
        let to = &self.memory.to;
        let start = match to.group {
            Some(step) => b.exprs().mul(group, step),
            None => b.int(0),
        };
        let start = b.let_("target", start);
        let (parts, four) = (b.int(self.parts), b.int(SIDE));
        b.count("part", parts, Unroll::Full, |b, part| {
            b.count("i", four, Unroll::Full, |b, i| {
                let row = self.sides[0].place(b, part, i);
                let (is_behind, is_before) = (b.exprs().lt(row, window.rows[0]), b.exprs().lt(row, window.rows[1]));
                let is_behind = b.exprs().unary(UnaryOp::LogicalNot, is_behind);
                let is_own = b.exprs().and(is_behind, is_before);
                b.if_(is_own, |b| {
                    let ahead = b.exprs().mul(row, to.row);
                    let start = b.exprs().add(start, ahead);
                    let own = b.exprs().mul(part, four);
                    let own = b.exprs().add(own, i);
                    b.count("column", parts, Unroll::Full, |b, column| self.write_four(b, start, own, column));
                });
            });
        });
    }

    /// Writes the columns of a part of a row that starts somewhere.
    fn write_four(&self, b: &mut KernelBuilder, start: ExprId, row: ExprId, part: ExprId) {
        let (to, four, zero) = (&self.memory.to, b.int(SIDE), b.int(0));
        let width = b.int(SIDE * self.parts);
        let held = b.exprs().mul(row, width);
        let ahead = b.exprs().mul(part, four);
        let held = b.exprs().add(held, ahead);
        let first = self.sides[1].place(b, part, zero);
        let lanes = if to.is_wide { MAX_ACCESS_BYTES / self.memory.work.bytes() as i64 } else { 1 };
        let lanes = lanes.min(SIDE);
        b.for_("j", (zero, four, lanes), Unroll::Full, |b, j| {
            let column = b.exprs().add(first, j);
            let is_column = b.exprs().lt(column, self.memory.columns);
            b.if_(is_column, |b| {
                let ahead = b.exprs().mul(column, to.column);
                let index = b.exprs().add(start, ahead);
                let held = b.exprs().add(held, j);
                if lanes > 1 {
                    b.mov((to.buffer, index), (self.sums, held), lanes as u32, CacheHint::Default);
                } else {
                    let sum = b.load("sum", self.sums, held);
                    b.store(to.buffer, index, sum);
                }
            });
        });
    }
}
