//! The sums of a block's places: what its threads read, add and write.
//!
//! A thread has a vector of columns of a place, or of a part of its run, and reads the rows of some positions before it adds
//! any. Sums of these few are of the type that elements are computed in, and `f32` ones are added up in `f64`: however
//! many rows a place gets, sums lose no more than those of a few do. A place that has one row takes no `f64`, whose
//! conversions are slow.

use super::super::share::{self, as_data, as_index};
use super::memory::{Acc, Memory, Rows, Types};
use super::{ROWS, Shape, THREADS};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, CacheHint, Dim, ExprId, IndexOp, KernelBuilder, MAX_ACCESS_BYTES, Scope, Unroll};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value, eval};

/// An index of which no vector has an element of a buffer.
const NOWHERE: i64 = -2 * MAX_ACCESS_BYTES;

/// What emits the sums of places.
pub(super) struct Adder<'a> {
    memory: &'a Memory,
    shape: Shape,
    types: Types,
    /// What adds: truths are joined.
    add: BinaryOp,
    /// The type of sums of a few rows, and that of all.
    few: DType,
    sum: DType,
    thread: ExprId,
    /// Which of the threads along columns this is, which part of a run it has, and of which place.
    pub(super) across: ExprId,
    part: ExprId,
    slot: ExprId,
    /// Of a thread: rows on their way, sums, and what is written.
    rows: BufId,
    sums: BufId,
    written: BufId,
    /// Sums of other parts.
    others: Option<BufId>,
}

/// What a thread has of several places.
struct Near {
    /// Their first rows, and the rows that these are added to.
    firsts: BufId,
    olds: BufId,
    /// The sum of one place, and that of a group.
    little: BufId,
    total: BufId,
}

/// A group of places, or a place, of a thread.
struct Group {
    own: ExprId,
    /// Whether there is such a one.
    has_rows: ExprId,
    places: Vec<Place>,
}

/// A place of a thread: its run, the first row of it, and what it counts.
struct Place {
    start: ExprId,
    end: ExprId,
    row: ExprId,
    weight: Option<ExprId>,
}

impl<'a> Adder<'a> {
    pub(super) fn new(b: &mut KernelBuilder, memory: &'a Memory, shape: Shape, types: Types) -> Result<Self> {
        let thread = share::thread(b, Dim::X);
        let [across, parts] = [shape.across, shape.parts].map(|n| b.int(n.into()));
        let rest = b.exprs().div(thread, across);
        let numbers = [b.exprs().rem(thread, across), b.exprs().rem(rest, parts), b.exprs().div(rest, parts)];
        let [across, part, slot] = numbers.map(|number| b.let_("own", number));
        let few = types.result.compute();
        // Sums of many rows lose nothing that sums of a few have.
        let sum = if few == DType::F32 { DType::F64 } else { few };
        let vector = i64::from(shape.vector);
        let rows = b.local("rows", types.rows, ROWS * vector);
        let sums = b.local("sums", sum, vector);
        let is_alike = types.rows == types.result;
        let add = ReduceOp::Sum.combine_on(few).ok_or_else(|| Diagnostic::bug(format!("sums of {}", types.result)))?;
        Ok(Self {
            memory,
            shape,
            types,
            add,
            few,
            sum,
            thread,
            across,
            part,
            slot,
            rows,
            sums,
            // All rows are added by then.
            written: if is_alike { rows } else { b.local("written", types.result, vector) },
            others: (shape.parts > 1).then(|| b.shared("others", sum, THREADS * vector, 16)),
        })
    }

    /// What sums start from. Where they are added to what a place had before, -0.0: it leaves each number as it is, while
    /// 0.0 would take the sign of a place with -0.0 that nobody adds to.
    fn nothing(&self, b: &mut KernelBuilder, dtype: DType) -> ExprId {
        let is_added = !matches!(self.memory.acc, Acc::Nothing) && self.memory.weight.is_none();
        let value = match eval::reduce_identity(ReduceOp::Sum, dtype) {
            Value::Float(_) if is_added => Value::Float(-0.0),
            value => value,
        };
        b.exprs().value(value, dtype)
    }

    /// Emits what groups of threads do that each have a part of the run of a place, at a column of value, operand and
    /// result.
    pub(super) fn share(&self, b: &mut KernelBuilder, first: ExprId, column: ExprId, at: [ExprId; 3]) {
        let is_column = b.exprs().lt(column, self.memory.columns);
        let zero = b.int(0);
        let place = b.exprs().add(first, self.slot);
        let place = b.let_("row", place);
        let is_place = b.exprs().lt(place, self.memory.places);
        // Who has no column has no rows.
        let has_rows = b.exprs().and(is_place, is_column);
        let start = self.start(b, place);
        let end = self.end(b, place, start, has_rows);
        self.clear(b, self.sums, self.sum);
        let step = ROWS * i64::from(self.shape.parts);
        b.for_("position", (start, end, step), Unroll::No, |b, position| self.add(b, position, end, at[0]));
        self.add_others(b);
        let is_first = b.exprs().binary(BinaryOp::Eq, self.part, zero);
        let is_written = b.exprs().and(is_first, has_rows);
        b.if_(is_written, |b| self.write(b, place, column, at));
    }

    /// Emits what a thread does with several groups of places, or several places, at a column of value, operand and result.
    pub(super) fn several(&self, b: &mut KernelBuilder, first: ExprId, column: ExprId, at: [ExprId; 3]) {
        let (memory, shape) = (self.memory, self.shape);
        let is_column = b.exprs().lt(column, memory.columns);
        let (vector, places) = (i64::from(shape.vector), i64::from(shape.batch * shape.group));
        let near = Near {
            firsts: b.local("firsts", self.types.rows, places * vector),
            olds: b.local("olds", self.types.result, i64::from(shape.batch) * vector),
            little: b.local("little", self.few, vector),
            total: b.local("total", self.few, vector),
        };
        let mut groups = Vec::new();
        for i in 0..shape.batch {
            let ahead = b.int((i * shape.slots).into());
            let own = b.exprs().add(first, ahead);
            let own = b.exprs().add(own, self.slot);
            let own = b.let_("row", own);
            let is_group = b.exprs().lt(own, memory.groups);
            let has_rows = b.exprs().and(is_group, is_column);
            let has_rows = b.let_("has_rows", has_rows);
            groups.push(Group { own, has_rows, places: self.places(b, own, has_rows) });
        }
        // Of all places the first row is on its way before one is added.
        self.clear_rows(b, near.firsts, places);
        for (i, group) in (0..).zip(&groups) {
            for (k, place) in (0..).zip(&group.places) {
                let is_row = b.exprs().lt(place.start, place.end);
                let to = b.int((i * i64::from(shape.group) + k) * vector);
                let from = b.exprs().mul(place.row, memory.value.row);
                let from = b.exprs().add(from, at[0]);
                self.read_if(b, is_row, (near.firsts, to), (memory.value.buffer, from));
            }
            if let Acc::Rows(acc) = &memory.acc {
                b.if_(group.has_rows, |b| {
                    let to = b.int(i * vector);
                    let from = b.exprs().mul(group.own, acc.row);
                    let from = b.exprs().add(from, at[1]);
                    self.read(b, (near.olds, to), (acc.buffer, from));
                });
            }
        }
        let are_rows = groups.iter().flat_map(|group| &group.places).map(|place| b.exprs().lt(place.start, place.end));
        let are_rows: Vec<ExprId> = are_rows.collect();
        self.clear_others(b, near.firsts, are_rows);
        for (i, group) in (0..).zip(&groups) {
            self.group(b, &near, i, group, column, at);
        }
    }

    /// What adds nothing, as rows have it.
    fn no_row(&self, b: &mut KernelBuilder) -> ExprId {
        let nothing = self.nothing(b, self.few);
        b.exprs().cast(nothing, self.types.rows)
    }

    /// Sets vectors of so many rows to what adds nothing, unless [`Self::clear_others`] does it later.
    fn clear_rows(&self, b: &mut KernelBuilder, rows: BufId, count: i64) {
        if self.reads_anywhere() {
            return;
        }
        let (all, nothing) = (b.int(count * i64::from(self.shape.vector)), self.no_row(b));
        b.count("j", all, Unroll::Full, |b, j| b.store(rows, j, nothing));
    }

    /// Reads a vector of a row, if there is one.
    fn read_if(&self, b: &mut KernelBuilder, is_row: ExprId, to: (BufId, ExprId), (buffer, from): (BufId, ExprId)) {
        if self.reads_anywhere() {
            // A branch around what puts the words together would wait for each vector before it goes on to the next.
            let nowhere = b.int(NOWHERE);
            let from = b.exprs().ternary(TernaryOp::Where, is_row, from, nowhere);
            self.read(b, to, (buffer, from));
        } else {
            b.if_(is_row, |b| self.read(b, to, (buffer, from)));
        }
    }

    /// Sets vectors that were read where there is no row to what adds nothing.
    fn clear_others(&self, b: &mut KernelBuilder, rows: BufId, are_rows: impl IntoIterator<Item = ExprId>) {
        if !self.reads_anywhere() {
            return;
        }
        let (vector, nothing) = (i64::from(self.shape.vector), self.no_row(b));
        for (i, is_row) in (0..).zip(are_rows) {
            let is_none = b.exprs().unary(UnaryOp::LogicalNot, is_row);
            b.if_(is_none, |b| {
                for j in 0..vector {
                    let at = b.int(i * vector + j);
                    b.store(rows, at, nothing);
                }
            });
        }
    }

    /// Whether vectors are read wherever they start, and so from nowhere, too.
    fn reads_anywhere(&self) -> bool {
        self.shape.vector > 1 && !self.shape.aligned
    }

    /// The places of a group: where their runs are, the first row of each, and what it counts.
    fn places(&self, b: &mut KernelBuilder, own: ExprId, has_rows: ExprId) -> Vec<Place> {
        let (memory, size) = (self.memory, b.int(self.shape.group.into()));
        let one = b.int(1);
        let before = b.exprs().mul(own, size);
        let last = b.exprs().sub(memory.length, one);
        let last_group = b.exprs().sub(memory.groups, one);
        let group = b.exprs().index(IndexOp::Min, own, last_group);
        let mut start = self.start(b, before);
        let mut places = Vec::new();
        for k in 0..self.shape.group {
            let ahead = b.int(k.into());
            let place = b.exprs().add(before, ahead);
            let end = self.end(b, place, start, has_rows);
            let inside = b.exprs().index(IndexOp::Min, start, last);
            let row = self.row(b, inside);
            let weight = memory.weight.as_ref().map(|weight| {
                let at = b.exprs().mul(group, weight.steps[0]);
                let own = b.exprs().mul(ahead, weight.steps[1]);
                let at = b.exprs().add(at, own);
                b.load("weight", weight.buffer, at)
            });
            places.push(Place { start, end, row, weight });
            start = end;
        }
        places
    }

    /// Where the run of a place starts: where that of the place before ends.
    fn start(&self, b: &mut KernelBuilder, place: ExprId) -> ExprId {
        let (zero, one) = (b.int(0), b.int(1));
        let before = b.exprs().sub(place, one);
        let before = b.exprs().index(IndexOp::Max, before, zero);
        let start = self.end_of(b, before);
        let is_first = b.exprs().lt(place, one);
        let start = b.exprs().ternary(TernaryOp::Where, is_first, zero, start);
        b.let_("run", start)
    }

    /// Where the run of a place ends that starts somewhere: there, if nobody has it.
    fn end(&self, b: &mut KernelBuilder, place: ExprId, start: ExprId, has_rows: ExprId) -> ExprId {
        let end = self.end_of(b, place);
        let end = b.exprs().ternary(TernaryOp::Where, has_rows, end, start);
        b.let_("end", end)
    }

    /// The end of a run, of a place that there is or the last one, as it is written, but that it is the position of a row or
    /// the one behind.
    fn end_of(&self, b: &mut KernelBuilder, place: ExprId) -> ExprId {
        let (memory, one) = (self.memory, b.int(1));
        let last = b.exprs().sub(memory.places, one);
        let place = b.exprs().index(IndexOp::Min, place, last);
        let at = b.exprs().mul(place, memory.ends.step);
        let end = b.load("run_end", memory.ends.buffer, at);
        let end = b.exprs().cast(end, DType::I64);
        self.between(b, end, memory.length)
    }

    /// What data holds as an index from 0 up to another one.
    fn between(&self, b: &mut KernelBuilder, data: ExprId, most: ExprId) -> ExprId {
        let (least, most) = (b.exprs().int(0, DType::I64), as_data(b, most, DType::I64));
        let data = b.exprs().binary(BinaryOp::Minimum, data, most);
        let data = b.exprs().binary(BinaryOp::Maximum, data, least);
        as_index(b, data)
    }

    /// Sets a thread's vector to what sums start from.
    fn clear(&self, b: &mut KernelBuilder, buffer: BufId, dtype: DType) {
        let (vector, nothing) = (b.int(self.shape.vector.into()), self.nothing(b, dtype));
        b.count("j", vector, Unroll::Full, |b, j| b.store(buffer, j, nothing));
    }

    /// Adds what a group has, and writes its row.
    fn group(&self, b: &mut KernelBuilder, near: &Near, number: i64, group: &Group, column: ExprId, at: [ExprId; 3]) {
        let vector = b.int(self.shape.vector.into());
        let is_weighted = self.memory.weight.is_some();
        if is_weighted {
            self.clear(b, near.total, self.few);
        }
        for (k, place) in (0..).zip(&group.places) {
            self.place(b, near, number * i64::from(self.shape.group) + k, place, at[0]);
            let Some(weight) = place.weight else { continue };
            let weight = b.exprs().cast(weight, self.few);
            b.count("j", vector, Unroll::Full, |b, j| {
                let sum = b.load("sum", near.little, j);
                // As if it was written, and read again.
                let sum = b.exprs().cast(sum, self.types.result);
                let sum = b.exprs().cast(sum, self.few);
                let product = b.exprs().binary(BinaryOp::Mul, sum, weight);
                let total = b.load("total", near.total, j);
                let total = b.exprs().binary(self.add, total, product);
                b.store(near.total, j, total);
            });
        }
        b.if_(group.has_rows, |b| {
            let sums = if is_weighted { near.total } else { near.little };
            b.count("j", vector, Unroll::Full, |b, j| {
                let sum = b.load("sum", sums, j);
                let old = match self.memory.acc {
                    Acc::Rows(_) => {
                        let before = b.int(number * i64::from(self.shape.vector));
                        let from = b.exprs().add(before, j);
                        Some(b.load("old", near.olds, from))
                    }
                    Acc::Number(number) => Some(number),
                    Acc::Nothing => None,
                };
                let sum = match old {
                    Some(old) => {
                        let old = b.exprs().cast(old, self.few);
                        b.exprs().binary(self.add, old, sum)
                    }
                    None => sum,
                };
                let sum = b.exprs().cast(sum, self.types.result);
                b.store(self.written, j, sum);
            });
            let to = b.exprs().mul(group.own, self.memory.to.row);
            let to = b.exprs().add(to, at[2]);
            self.store(b, column, to);
        });
    }

    /// Adds up the rows of a place, of which the first one is here.
    fn place(&self, b: &mut KernelBuilder, near: &Near, number: i64, place: &Place, column: ExprId) {
        let (vector, one) = (b.int(self.shape.vector.into()), b.int(1));
        b.count("j", vector, Unroll::Full, |b, j| {
            let before = b.int(number * i64::from(self.shape.vector));
            let from = b.exprs().add(before, j);
            let x = b.load("x", near.firsts, from);
            let x = b.exprs().cast(x, self.few);
            b.store(near.little, j, x);
        });
        let second = b.exprs().add(place.start, one);
        let is_more = b.exprs().lt(second, place.end);
        b.if_(is_more, |b| {
            self.clear(b, self.sums, self.sum);
            b.for_("position", (second, place.end, ROWS), Unroll::No, |b, position| {
                self.add(b, position, place.end, column);
            });
            b.count("j", vector, Unroll::Full, |b, j| {
                let (first, more) = (b.load("first", near.little, j), b.load("more", self.sums, j));
                let first = b.exprs().cast(first, self.sum);
                let sum = b.exprs().binary(self.add, first, more);
                let sum = b.exprs().cast(sum, self.few);
                b.store(near.little, j, sum);
            });
        });
    }

    /// Adds the rows that a thread has of the next positions.
    fn add(&self, b: &mut KernelBuilder, position: ExprId, end: ExprId, column: ExprId) {
        let (memory, vector) = (self.memory, i64::from(self.shape.vector));
        self.clear_rows(b, self.rows, ROWS);
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
            let to = b.int(i * vector);
            let start = b.exprs().mul(row, memory.value.row);
            let start = b.exprs().add(start, column);
            self.read_if(b, is_row, (self.rows, to), (memory.value.buffer, start));
        }
        self.clear_others(b, self.rows, from.map(|(_, is_row, _)| is_row));
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
                    Some(sum) => b.exprs().binary(self.add, sum, x),
                });
            }
            let Some(few) = sum else { return };
            let few = b.exprs().cast(few, self.sum);
            let held = b.load("held", self.sums, j);
            let sum = b.exprs().binary(self.add, held, few);
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
        let row = self.between(b, row, most);
        b.let_("row", row)
    }

    /// Adds the sums of other parts to those of the first: half of the parts to the other half, until one is left.
    fn add_others(&self, b: &mut KernelBuilder) {
        let Some(others) = self.others else { return };
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
                    let sum = b.exprs().binary(self.add, sum, more);
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
            self.read(b, (self.written, zero), (acc.buffer, from));
        }
        b.count("j", vector, Unroll::Full, |b, j| {
            let x = match memory.acc {
                Acc::Rows(_) => b.load("x", self.written, j),
                Acc::Number(number) => number,
                Acc::Nothing => self.nothing(b, self.few),
            };
            let x = b.exprs().cast(x, self.few);
            let x = b.exprs().cast(x, self.sum);
            let sum = b.load("sum", self.sums, j);
            let sum = b.exprs().binary(self.add, x, sum);
            let sum = b.exprs().cast(sum, self.types.result);
            b.store(self.written, j, sum);
        });
        self.store(b, column, to);
    }

    /// Stores a vector of a thread, as far as the row is long.
    fn store(&self, b: &mut KernelBuilder, column: ExprId, to: ExprId) {
        let (zero, lanes, result) = (b.int(0), self.shape.vector, self.memory.to.buffer);
        match (lanes, self.shape.aligned) {
            (1, _) => {
                let sum = b.load("sum", self.written, zero);
                return b.store(result, to, sum);
            }
            (_, true) => return b.mov((result, to), (self.written, zero), lanes, CacheHint::Default),
            (_, false) => {}
        }
        let vector = b.int(lanes.into());
        let end = b.exprs().add(column, vector);
        let is_whole = b.exprs().binary(BinaryOp::Le, end, self.memory.columns);
        let whole = |b: &mut KernelBuilder| {
            b.mov_unaligned((result, to), (self.written, zero), lanes, CacheHint::Default);
        };
        b.if_else(is_whole, whole, |b| {
            b.count("j", vector, Unroll::Full, |b, j| {
                let own = b.exprs().add(column, j);
                let is_column = b.exprs().lt(own, self.memory.columns);
                b.if_(is_column, |b| {
                    let sum = b.load("sum", self.written, j);
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
