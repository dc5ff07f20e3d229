//! The sums of a block's places: what its threads read, add and write.
//!
//! A thread has a vector of columns of a place, or of a part of its run, and reads the rows of some positions before it adds
//! any. Sums of these few are of the type that elements are computed in, and `f32` ones are added up in `f64`: however
//! many rows a place gets, sums lose no more than those of a few do.

use super::super::share::{self, as_data, as_index};
use super::memory::{Acc, Memory, Rows};
use super::{ROWS, Shape, THREADS};
use crate::kernel::{BufId, CacheHint, Dim, ExprId, IndexOp, KernelBuilder, Scope, Unroll};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, eval};

/// What emits the sums of places.
pub(super) struct Adder<'a> {
    memory: &'a Memory,
    shape: Shape,
    dtype: DType,
    /// The type of sums of a few rows, and that of all.
    few: DType,
    sum: DType,
    thread: ExprId,
    /// Which of the threads along columns this is, which part of a run it has, and of which place.
    pub(super) across: ExprId,
    part: ExprId,
    slot: ExprId,
    /// Where runs start: one more than the block has places.
    starts: BufId,
    /// Of a thread: rows on their way, and sums.
    rows: BufId,
    sums: BufId,
    /// Sums of other parts.
    others: Option<BufId>,
}

impl<'a> Adder<'a> {
    pub(super) fn new(b: &mut KernelBuilder, memory: &'a Memory, shape: Shape, dtype: DType, starts: BufId) -> Self {
        let thread = share::thread(b, Dim::X);
        let [across, parts] = [shape.across, shape.parts].map(|n| b.int(n.into()));
        let rest = b.exprs().div(thread, across);
        let numbers = [b.exprs().rem(thread, across), b.exprs().rem(rest, parts), b.exprs().div(rest, parts)];
        let [across, part, slot] = numbers.map(|number| b.let_("own", number));
        let few = dtype.compute();
        // Sums of many rows lose nothing that sums of a few have.
        let sum = if few == DType::F32 { DType::F64 } else { few };
        let vector = i64::from(shape.vector);
        Self {
            memory,
            shape,
            dtype,
            few,
            sum,
            thread,
            across,
            part,
            slot,
            starts,
            rows: b.local("rows", dtype, ROWS * vector),
            sums: b.local("sums", sum, vector),
            others: (shape.parts > 1).then(|| b.shared("others", sum, THREADS * vector, 16)),
        }
    }

    fn zero(&self, b: &mut KernelBuilder, dtype: DType) -> ExprId {
        b.exprs().value(eval::reduce_identity(ReduceOp::Sum, dtype), dtype)
    }

    /// Emits a turn of the block: each group of threads has a part of the run of a place, at a column of value, operand and
    /// result.
    pub(super) fn turn(&self, b: &mut KernelBuilder, [first, turn]: [ExprId; 2], column: ExprId, at: [ExprId; 3]) {
        let is_column = b.exprs().lt(column, self.memory.columns);
        let (slots, zero, one) = (b.int(self.shape.slots.into()), b.int(0), b.int(1));
        let own = b.exprs().mul(turn, slots);
        let own = b.exprs().add(own, self.slot);
        let own = b.let_("own_place", own);
        let behind = b.exprs().add(own, one);
        let [start, end] = [own, behind].map(|which| {
            let start = b.load("run", self.starts, which);
            as_index(b, start)
        });
        // Who has no column has no rows.
        let end = b.exprs().ternary(TernaryOp::Where, is_column, end, start);
        let end = b.let_("end", end);
        let vector = b.int(self.shape.vector.into());
        let nothing = self.zero(b, self.sum);
        b.count("j", vector, Unroll::Full, |b, j| b.store(self.sums, j, nothing));
        let step = ROWS * i64::from(self.shape.parts);
        b.for_("position", (start, end, step), Unroll::No, |b, position| self.add(b, position, end, at[0]));
        self.add_others(b);
        let place = b.exprs().add(first, own);
        let place = b.let_("row", place);
        let is_place = b.exprs().lt(place, self.memory.places);
        let is_first = b.exprs().binary(BinaryOp::Eq, self.part, zero);
        let is_written = b.exprs().and(is_place, is_column);
        let is_written = b.exprs().and(is_first, is_written);
        b.if_(is_written, |b| self.write(b, place, column, at));
    }

    /// Adds the rows that a thread has of the next positions.
    fn add(&self, b: &mut KernelBuilder, position: ExprId, end: ExprId, column: ExprId) {
        let (memory, vector) = (self.memory, i64::from(self.shape.vector));
        let nothing = self.zero(b, self.few);
        let nothing = b.exprs().cast(nothing, self.dtype);
        let all = b.int(ROWS * vector);
        b.count("j", all, Unroll::Full, |b, j| b.store(self.rows, j, nothing));
        let one = b.int(1);
        let last = b.exprs().sub(end, one);
        // Which rows these are is known of all before one is read.
        let from = std::array::from_fn::<_, { ROWS as usize }, _>(|i| {
            let i = i as i64;
            let ahead = b.int(i * i64::from(self.shape.parts));
            let own = b.exprs().add(position, ahead);
            let own = b.exprs().add(own, self.part);
            let own = b.let_("own", own);
            let is_row = b.exprs().lt(own, end);
            let inside = b.exprs().index(IndexOp::Min, own, last);
            (i, is_row, self.row(b, inside))
        });
        for (i, is_row, row) in from {
            b.if_(is_row, |b| {
                let to = b.int(i * vector);
                let start = b.exprs().mul(row, memory.value.row);
                let start = b.exprs().add(start, column);
                self.read(b, (self.rows, to), (memory.value.buffer, start));
            });
        }
        let count = b.int(vector);
        b.count("j", count, Unroll::Full, |b, j| {
            let mut sum = None;
            for i in 0..ROWS {
                let row = b.int(i * vector);
                let at = b.exprs().add(row, j);
                let x = b.load("x", self.rows, at);
                let x = b.exprs().cast(x, self.few);
                sum = Some(match sum {
                    None => x,
                    Some(sum) => b.exprs().binary(BinaryOp::Add, sum, x),
                });
            }
            let Some(few) = sum else { return };
            let few = b.exprs().cast(few, self.sum);
            let held = b.load("held", self.sums, j);
            let sum = b.exprs().binary(BinaryOp::Add, held, few);
            b.store(self.sums, j, sum);
        });
    }

    /// The row at a position, whatever is written there.
    fn row(&self, b: &mut KernelBuilder, position: ExprId) -> ExprId {
        let (line, one) = (&self.memory.order, b.int(1));
        let at = b.exprs().mul(position, line.step);
        let row = b.load("order", line.buffer, at);
        let row = b.exprs().cast(row, DType::I64);
        let most = b.exprs().sub(self.memory.length, one);
        let (least, most) = (b.exprs().int(0, DType::I64), as_data(b, most, DType::I64));
        let row = b.exprs().binary(BinaryOp::Minimum, row, most);
        let row = b.exprs().binary(BinaryOp::Maximum, row, least);
        let row = as_index(b, row);
        b.let_("row", row)
    }

    /// Adds the sums of other parts to those of the first: half of the parts to the other half, until one is left.
    fn add_others(&self, b: &mut KernelBuilder) {
        let Some(others) = self.others else { return };
        // What was added in the turn before has been read.
        b.sync(Scope::Block);
        let (vector, threads) = (b.int(self.shape.vector.into()), b.int(THREADS));
        let place = |b: &mut KernelBuilder, j: ExprId, thread: ExprId| {
            let ahead = b.exprs().mul(j, threads);
            b.exprs().add(ahead, thread)
        };
        let mut half = i64::from(self.shape.parts) / 2;
        while half > 0 {
            let (some, all) = (b.int(half), b.int(2 * half));
            let is_some = b.exprs().lt(self.part, some);
            let is_all = b.exprs().lt(self.part, all);
            let is_other = b.exprs().unary(UnaryOp::LogicalNot, is_some);
            let is_other = b.exprs().and(is_other, is_all);
            b.if_(is_other, |b| {
                b.count("j", vector, Unroll::Full, |b, j| {
                    let sum = b.load("sum", self.sums, j);
                    let to = place(b, j, self.thread);
                    b.store(others, to, sum);
                });
            });
            b.sync(Scope::Block);
            b.if_(is_some, |b| {
                let ahead = b.int(half * i64::from(self.shape.across));
                let other = b.exprs().add(self.thread, ahead);
                b.count("j", vector, Unroll::Full, |b, j| {
                    let from = place(b, j, other);
                    let more = b.load("more", others, from);
                    let sum = b.load("sum", self.sums, j);
                    let sum = b.exprs().binary(BinaryOp::Add, sum, more);
                    b.store(self.sums, j, sum);
                });
            });
            half /= 2;
        }
    }

    /// Writes the row of a place: the operand's, or one of a number, with the sums added.
    fn write(&self, b: &mut KernelBuilder, place: ExprId, column: ExprId, [_, from, to]: [ExprId; 3]) {
        let (memory, zero, vector) = (self.memory, b.int(0), b.int(self.shape.vector.into()));
        let start = |b: &mut KernelBuilder, rows: &Rows, column: ExprId| {
            let start = b.exprs().mul(place, rows.row);
            b.exprs().add(start, column)
        };
        let to = start(b, &memory.to, to);
        if let Acc::Rows(acc) = &memory.acc {
            let from = start(b, acc, from);
            self.read(b, (self.rows, zero), (acc.buffer, from));
        }
        b.count("j", vector, Unroll::Full, |b, j| {
            let x = match memory.acc {
                Acc::Rows(_) => b.load("x", self.rows, j),
                Acc::Number(number) => number,
            };
            let x = b.exprs().cast(x, self.few);
            let x = b.exprs().cast(x, self.sum);
            let sum = b.load("sum", self.sums, j);
            let sum = b.exprs().binary(BinaryOp::Add, x, sum);
            let sum = b.exprs().cast(sum, self.dtype);
            b.store(self.rows, j, sum);
        });
        self.store(b, column, to);
    }

    /// Stores a vector of a thread, as far as the row is long.
    fn store(&self, b: &mut KernelBuilder, column: ExprId, to: ExprId) {
        let (zero, lanes, result) = (b.int(0), self.shape.vector, self.memory.to.buffer);
        match (lanes, self.shape.aligned) {
            (1, _) => {
                let sum = b.load("sum", self.rows, zero);
                return b.store(result, to, sum);
            }
            (_, true) => return b.mov((result, to), (self.rows, zero), lanes, CacheHint::Default),
            (_, false) => {}
        }
        let vector = b.int(lanes.into());
        let end = b.exprs().add(column, vector);
        let is_whole = b.exprs().binary(BinaryOp::Le, end, self.memory.columns);
        let whole = |b: &mut KernelBuilder| {
            b.mov_unaligned((result, to), (self.rows, zero), lanes, CacheHint::Default);
        };
        b.if_else(is_whole, whole, |b| {
            b.count("j", vector, Unroll::Full, |b, j| {
                let own = b.exprs().add(column, j);
                let is_column = b.exprs().lt(own, self.memory.columns);
                b.if_(is_column, |b| {
                    let sum = b.load("sum", self.rows, j);
                    let to = b.exprs().add(to, j);
                    b.store(result, to, sum);
                });
            });
        });
    }

    /// Reads a vector of a thread.
    fn read(&self, b: &mut KernelBuilder, to: (BufId, ExprId), from: (BufId, ExprId)) {
        match (self.shape.vector, self.shape.aligned) {
            (1, _) => {}
            (lanes, true) => return b.mov(to, from, lanes, CacheHint::Default),
            // What lies behind the row is read and added, but not written.
            (lanes, false) => return b.mov_unaligned(to, from, lanes, CacheHint::Default),
        }
        let x = b.load("x", from.0, from.1);
        b.store(to.0, to.1, x);
    }
}
