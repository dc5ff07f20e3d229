//! Lines that no block holds: their tiles are runs of a workspace, and each pass merges two neighbours into one of another
//! workspace, all blocks together.
//!
//! An element's place in the merged run is its place in its own one and the number of elements of the other one that come
//! before it, which a binary search finds: each thread brings one element after the other to its place. A run holds no
//! more than the elements that are kept; what lies behind them is nothing.

use super::{Order, Seat, Sorter, Stages, TILE, as_place, block, network, thread, zero_of};
use crate::kernel::{BufId, CacheHint, ExprId, IndexOp, KernelBuilder, Scope, Unroll};
use crate::num::{BinaryOp, DType, Value};

/// A workspace: the elements of all lines, and their positions.
#[derive(Clone, Copy)]
struct Runs {
    keys: BufId,
    places: BufId,
}

/// What emits a sort of long lines.
struct Merger<'a> {
    sorter: &'a Sorter,
    runs: [Runs; 2],
    blocks: ExprId,
    block: ExprId,
    thread: ExprId,
    /// The length of a line.
    length: ExprId,
    /// What a thread has found so far, and how far it looks.
    found: BufId,
    step: BufId,
}

/// Emits the sort of all lines by so many blocks; runs are merged so often.
pub(super) fn emit(sorter: &Sorter, b: &mut KernelBuilder, passes: u32, blocks: u32) {
    let length = sorter.walk.from.length;
    let all = b.exprs().mul(sorter.walk.rows, length);
    let runs = ["a", "b"].map(|name| Runs {
        keys: b.workspace(format!("keys_{name}"), sorter.work, all, 16, false),
        places: b.workspace(format!("places_{name}"), DType::I32, all, 16, false),
    });
    let (found, step) = (b.local("found", DType::I32, 1), b.local("step", DType::I32, 1));
    let blocks = b.int(blocks.into());
    let (block, thread) = (block(b), thread(b));
    let merger = Merger { sorter, runs, blocks, block, thread, length, found, step };
    merger.tiles(b);
    b.sync(Scope::Grid);
    for pass in 0..passes {
        let [from, to] = [pass % 2, (pass + 1) % 2].map(|which| runs[which as usize]);
        merger.pass(b, from, to, TILE << pass);
        b.sync(Scope::Grid);
    }
    let last = runs[passes as usize % 2];
    match sorter.stages {
        Stages::Ordered | Stages::Wired => merger.write(b, last),
        Stages::Gathered | Stages::GatheredWired => merger.gather(b, last),
    }
}

impl Merger<'_> {
    /// Emits what each block does with its share of some pieces of work.
    fn by_blocks(&self, b: &mut KernelBuilder, count: ExprId, body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId)) {
        let turns = b.exprs().ceil_div(count, self.blocks);
        b.count("turn", turns, Unroll::No, |b, turn| {
            let number = b.exprs().mul(turn, self.blocks);
            let number = b.exprs().add(number, self.block);
            let number = b.let_("number", number);
            let is_one = b.exprs().lt(number, count);
            body(b, number, is_one);
        });
    }

    /// Emits what each thread does with its share of so many elements of each line: the line, and the place in it.
    fn by_threads(
        &self,
        b: &mut KernelBuilder,
        of_line: ExprId,
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId),
    ) {
        let threads = b.int(TILE / 2);
        let all = b.exprs().mul(self.sorter.walk.rows, of_line);
        let chunks = b.exprs().ceil_div(all, threads);
        self.by_blocks(b, chunks, |b, chunk, _| {
            let first = b.exprs().mul(chunk, threads);
            let number = b.exprs().add(first, self.thread);
            let number = b.let_("element", number);
            let is_one = b.exprs().lt(number, all);
            b.if_(is_one, |b| {
                let (row, at) = (b.exprs().div(number, of_line), b.exprs().rem(number, of_line));
                let (row, at) = (b.let_("row", row), b.let_("at", at));
                body(b, row, at);
            });
        });
    }

    /// Where an element of a line lies in a workspace.
    fn slot(&self, b: &mut KernelBuilder, row: ExprId, at: ExprId) -> ExprId {
        let line = b.exprs().mul(row, self.length);
        b.exprs().add(line, at)
    }

    fn read(&self, b: &mut KernelBuilder, from: Runs, slot: ExprId) -> (ExprId, ExprId) {
        let key = b.load_hinted("key", from.keys, slot, CacheHint::Global);
        (key, b.load_hinted("place", from.places, slot, CacheHint::Global))
    }

    fn put(&self, b: &mut KernelBuilder, to: Runs, slot: ExprId, (key, place): (ExprId, ExprId)) {
        b.store_hinted(to.keys, slot, key, CacheHint::Global);
        b.store_hinted(to.places, slot, place, CacheHint::Global);
    }

    fn seat(&self, b: &mut KernelBuilder) -> Seat {
        Seat { thread: self.thread, start: b.int(0), length: as_place(b, self.length) }
    }

    /// Sorts each tile into a run of the first workspace.
    fn tiles(&self, b: &mut KernelBuilder) {
        let sorter = self.sorter;
        let width = b.int(TILE);
        let of_line = b.exprs().ceil_div(self.length, width);
        let all = b.exprs().mul(sorter.walk.rows, of_line);
        let seat = self.seat(b);
        self.by_blocks(b, all, |b, tile, is_one| {
            let (row, number) = (b.exprs().div(tile, of_line), b.exprs().rem(tile, of_line));
            let first = b.exprs().mul(number, width);
            let first = b.let_("first", first);
            let starts = sorter.walk.starts(b, row);
            sorter.load(b, seat, first, is_one, starts[0]);
            network::sort(sorter, b, seat, TILE, Order::Total);
            sorter.each(b, seat, |b, at, place| {
                let along = b.exprs().add(first, at);
                let (is_kept, is_inside) = (b.exprs().lt(at, sorter.kept), b.exprs().lt(along, self.length));
                let is_written = b.exprs().and(is_one, is_kept);
                let is_written = b.exprs().and(is_written, is_inside);
                b.if_(is_written, |b| {
                    let key = b.load("key", sorter.tile.keys, place);
                    let position = b.load("position", sorter.tile.places, place);
                    let slot = self.slot(b, row, along);
                    self.put(b, self.runs[0], slot, (key, position));
                });
            });
            // The next tile lies where this one did.
            b.sync(Scope::Block);
        });
    }

    /// Merges runs of a length with their neighbours.
    fn pass(&self, b: &mut KernelBuilder, from: Runs, to: Runs, length: i64) {
        self.by_threads(b, self.length, |b, row, at| {
            let (run, zero, one, two) = (b.int(length), b.int(0), b.int(1), b.int(2));
            let (number, own) = (b.exprs().div(at, run), b.exprs().rem(at, run));
            let is_kept = b.exprs().lt(own, self.sorter.kept);
            b.if_(is_kept, |b| {
                let side = b.exprs().rem(number, two);
                let ahead = b.exprs().mul(side, run);
                let pair = b.exprs().sub(at, own);
                let pair = b.exprs().sub(pair, ahead);
                let pair = b.let_("pair", pair);
                let behind = b.exprs().sub(one, side);
                let behind = b.exprs().mul(behind, run);
                let other = b.exprs().add(pair, behind);
                let other = b.let_("other", other);
                // Elements of the other run.
                let rest = b.exprs().sub(self.length, other);
                let rest = b.exprs().index(IndexOp::Max, rest, zero);
                let rest = b.exprs().index(IndexOp::Min, rest, run);
                let rest = b.exprs().index(IndexOp::Min, rest, self.sorter.kept);
                let slot = self.slot(b, row, at);
                let element = self.read(b, from, slot);
                let first = self.slot(b, row, other);
                let first = b.let_("first", first);
                let before = self.count_before(b, from, first, rest, element, length);
                let place = b.exprs().add(own, before);
                let place = b.let_("to", place);
                let is_kept = b.exprs().lt(place, self.sorter.kept);
                b.if_(is_kept, |b| {
                    let place = b.exprs().add(pair, place);
                    let slot = self.slot(b, row, place);
                    self.put(b, to, slot, element);
                });
            });
        });
    }

    /// How many elements of a run come before one of another run. `length` is the power of two that no run exceeds.
    fn count_before(
        &self,
        b: &mut KernelBuilder,
        runs: Runs,
        first: ExprId,
        count: ExprId,
        element: (ExprId, ExprId),
        length: i64,
    ) -> ExprId {
        let (zero, one) = (b.int(0), b.int(1));
        let index = b.index_type();
        let number = |b: &mut KernelBuilder, value: i64| b.exprs().value(Value::Int(value), DType::I32);
        let (none, widest, two) = (number(b, 0), number(b, length), number(b, 2));
        b.store(self.found, zero, none);
        b.store(self.step, zero, widest);
        let count = as_place(b, count);
        let count = b.let_("count", count);
        let steps = b.int(i64::from(length.trailing_zeros()) + 1);
        b.count("halving", steps, Unroll::No, |b, _| {
            let (found, step) = (b.load("found", self.found, zero), b.load("step", self.step, zero));
            let next = b.exprs().binary(BinaryOp::Add, found, step);
            let next = b.let_("next", next);
            let half = b.exprs().binary(BinaryOp::Div, step, two);
            b.store(self.step, zero, half);
            let is_inside = b.exprs().binary(BinaryOp::Le, next, count);
            b.if_(is_inside, |b| {
                let at = b.exprs().as_index(next);
                let at = b.exprs().cast(at, index);
                let at = b.exprs().sub(at, one);
                let slot = b.exprs().add(first, at);
                let other = self.read(b, runs, slot);
                let is_before = self.sorter.is_before(b, Order::Total, [other, element]);
                b.if_(is_before, |b| b.store(self.found, zero, next));
            });
        });
        let found = b.load("before", self.found, zero);
        let found = b.exprs().as_index(found);
        b.exprs().cast(found, index)
    }

    /// Writes the first elements of each line.
    fn write(&self, b: &mut KernelBuilder, from: Runs) {
        self.by_threads(b, self.sorter.kept, |b, row, at| {
            let slot = self.slot(b, row, at);
            let (key, position) = self.read(b, from, slot);
            let starts = self.sorter.walk.starts(b, row);
            self.sorter.write_one(b, &starts[1..], at, key, position);
        });
    }

    /// The same, but a block holds those of a line and orders them anew.
    fn gather(&self, b: &mut KernelBuilder, from: Runs) {
        let sorter = self.sorter;
        let seat = self.seat(b);
        self.by_blocks(b, sorter.walk.rows, |b, row, is_row| {
            sorter.each(b, seat, |b, at, place| {
                let is_kept = b.exprs().lt(at, sorter.kept);
                let is_kept = b.exprs().and(is_row, is_kept);
                let nothing = b.exprs().value(zero_of(sorter.work), sorter.work);
                b.store(sorter.tile.keys, place, nothing);
                b.store(sorter.tile.places, place, seat.length);
                b.if_(is_kept, |b| {
                    let slot = self.slot(b, row, at);
                    let (key, position) = self.read(b, from, slot);
                    b.store(sorter.tile.keys, place, key);
                    b.store(sorter.tile.places, place, position);
                });
            });
            b.sync(Scope::Block);
            sorter.gather(b, seat);
            let starts = sorter.walk.starts(b, row);
            sorter.write(b, seat, is_row, &starts[1..]);
            b.sync(Scope::Block);
        });
    }
}
