//! Lines that no warp holds: their tiles become runs of a workspace, all blocks together.
//!
//! Where few elements are asked for, a run is the first ones of its tile, and the runs of a line are one that is sorted
//! again in tiles, until one warp holds all. Else each pass merges two neighbouring runs into one of another workspace: an
//! element's place there is its place in its own run and the number of elements of the other one that come before it,
//! which a binary search finds. A merged run holds no more than the elements that are kept; what lies behind them is
//! anything.

use super::super::share::Share;
use super::words::{Item, Items};
use super::{Sorter, Stages, TILE, Tiles, WARPS};
use crate::kernel::{BufId, CacheHint, ExprId, IndexOp, KernelBuilder, Scope, Unroll};
use crate::num::{BinaryOp, DType, Value};

/// What emits a sort of long lines.
struct Sheet<'a> {
    sorter: &'a Sorter,
    share: &'a Share,
    warp: ExprId,
    /// From each line to the next in a workspace.
    stride: ExprId,
    /// What a thread has found so far, and how far it looks.
    found: BufId,
    step: BufId,
}

/// Emits the sort of all lines.
pub(super) fn emit(sorter: &Sorter, b: &mut KernelBuilder, tiles: Tiles, share: &Share, warp: ExprId) {
    let (run, width) = (b.int(tiles.run.into()), b.int(TILE));
    let of_line = b.exprs().ceil_div(sorter.walk.from.length, width);
    let is_few = tiles.passes == 0;
    let mut count = if is_few { b.exprs().mul(of_line, run) } else { sorter.walk.from.length };
    let all = b.exprs().mul(sorter.walk.rows, count);
    let runs = ["runs", "more_runs"].map(|name| sorter.line.words.workspace(b, name, all));
    let (found, step) = (b.local("found", DType::I32, 1), b.local("step", DType::I32, 1));
    let sheet = Sheet { sorter, share, warp, stride: count, found, step };
    sheet.tiles(b, runs[0], of_line, run);
    b.sync(Scope::Grid);
    let mut from = 0;
    for _ in 0..tiles.rounds {
        count = sheet.round(b, [runs[from], runs[1 - from]], count, run);
        b.sync(Scope::Grid);
        from = 1 - from;
    }
    for pass in 0..tiles.passes {
        sheet.merge(b, runs[from], runs[1 - from], TILE << pass);
        b.sync(Scope::Grid);
        from = 1 - from;
    }
    match sorter.stages {
        Stages::Ordered | Stages::Wired if !is_few => sheet.write(b, runs[from]),
        _ if is_few => sheet.finish(b, runs[from], count),
        _ => sheet.finish(b, runs[from], sorter.kept),
    }
}

impl Sheet<'_> {
    /// Emits what each warp does with its share of so many pieces of each line: `body` gets the line, the piece, and
    /// whether there is such a one.
    fn by_warps(
        &self,
        b: &mut KernelBuilder,
        of_line: ExprId,
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId, ExprId),
    ) {
        let all = b.exprs().mul(self.sorter.walk.rows, of_line);
        let warps = b.int(WARPS);
        let chunks = b.exprs().ceil_div(all, warps);
        self.share.by_blocks(b, chunks, |b, chunk, _| {
            let first = b.exprs().mul(chunk, warps);
            let number = b.exprs().add(first, self.warp);
            let number = b.let_("tile", number);
            let is_one = b.exprs().lt(number, all);
            let (row, at) = (b.exprs().div(number, of_line), b.exprs().rem(number, of_line));
            let (row, at) = (b.let_("row", row), b.let_("number_in_line", at));
            body(b, row, at, is_one);
        });
    }

    /// Where an element of a line lies in a workspace.
    fn slot(&self, b: &mut KernelBuilder, row: ExprId, at: ExprId) -> ExprId {
        let line = b.exprs().mul(row, self.stride);
        b.exprs().add(line, at)
    }

    fn read(&self, b: &mut KernelBuilder, from: Items, slot: ExprId) -> Item {
        self.sorter.line.words.load(b, from, slot, CacheHint::Global)
    }

    fn put(&self, b: &mut KernelBuilder, to: Items, slot: ExprId, item: Item) {
        self.sorter.line.words.store(b, to, slot, item, CacheHint::Global);
    }

    /// Sorts each tile of the operand into a run.
    fn tiles(&self, b: &mut KernelBuilder, to: Items, of_line: ExprId, run: ExprId) {
        let sorter = self.sorter;
        self.by_warps(b, of_line, |b, row, number, is_one| {
            let width = b.int(TILE);
            let first = b.exprs().mul(number, width);
            let first = b.let_("first", first);
            let starts = sorter.walk.starts(b, row);
            sorter.load(b, first, is_one, starts[0]);
            sorter.line.sort(b);
            let end = b.exprs().mul(of_line, run);
            let end = b.exprs().index(IndexOp::Min, end, self.stride);
            self.put_run(b, to, [row, number, run], [is_one, end]);
        });
    }

    /// Sorts each tile of what runs hold, so many items of each line, into a run; how many items these hold.
    fn round(&self, b: &mut KernelBuilder, [from, to]: [Items; 2], count: ExprId, run: ExprId) -> ExprId {
        let width = b.int(TILE);
        let of_line = b.exprs().ceil_div(count, width);
        let left = b.exprs().mul(of_line, run);
        self.by_warps(b, of_line, |b, row, number, is_one| {
            let first = b.exprs().mul(number, width);
            let first = b.let_("first", first);
            self.load(b, from, row, first, [is_one, count]);
            self.sorter.line.sort(b);
            self.put_run(b, to, [row, number, run], [is_one, left]);
        });
        left
    }

    /// Fills registers with items of a line from one of them on, of which there are so many.
    fn load(&self, b: &mut KernelBuilder, from: Items, row: ExprId, first: ExprId, [is_one, count]: [ExprId; 2]) {
        self.sorter.fill(b, |b, at| {
            let at = b.exprs().add(first, at);
            let is_inside = b.exprs().lt(at, count);
            (b.exprs().and(is_one, is_inside), move |b: &mut KernelBuilder| {
                let slot = self.slot(b, row, at);
                self.read(b, from, slot)
            })
        });
    }

    /// Writes the first items of a sorted tile to its run, of those that a line has.
    fn put_run(&self, b: &mut KernelBuilder, to: Items, [row, number, run]: [ExprId; 3], [is_one, end]: [ExprId; 2]) {
        let line = &self.sorter.line;
        let each = b.int(line.each);
        let own = b.exprs().mul(line.lane, each);
        let first = b.exprs().mul(number, run);
        line.each(b, |b, j| {
            let at = b.exprs().add(own, j);
            let is_of_run = b.exprs().lt(at, run);
            let along = b.exprs().add(first, at);
            let is_inside = b.exprs().lt(along, end);
            let is_written = b.exprs().and(is_one, is_of_run);
            let is_written = b.exprs().and(is_written, is_inside);
            b.if_(is_written, |b| {
                let item = line.get(b, j);
                let slot = self.slot(b, row, along);
                self.put(b, to, slot, item);
            });
        });
    }

    /// Merges runs of a length with their neighbours.
    fn merge(&self, b: &mut KernelBuilder, from: Items, to: Items, length: i64) {
        let sorter = self.sorter;
        self.share.by_lines(b, [sorter.walk.rows, self.stride], |b, row, at| {
            let (run, zero, one, two) = (b.int(length), b.int(0), b.int(1), b.int(2));
            let (number, own) = (b.exprs().div(at, run), b.exprs().rem(at, run));
            let is_kept = b.exprs().lt(own, sorter.kept);
            b.if_(is_kept, |b| {
                let side = b.exprs().rem(number, two);
                let ahead = b.exprs().mul(side, run);
                let pair = b.exprs().sub(at, own);
                let pair = b.exprs().sub(pair, ahead);
                let pair = b.let_("pair", pair);
                let behind = b.exprs().sub(one, side);
                let behind = b.exprs().mul(behind, run);
                let other = b.exprs().add(pair, behind);
                let other = b.let_("other_run", other);
                // Elements of the other run.
                let rest = b.exprs().sub(self.stride, other);
                let rest = b.exprs().index(IndexOp::Max, rest, zero);
                let rest = b.exprs().index(IndexOp::Min, rest, run);
                let rest = b.exprs().index(IndexOp::Min, rest, sorter.kept);
                let slot = self.slot(b, row, at);
                let item = self.read(b, from, slot);
                let first = self.slot(b, row, other);
                let first = b.let_("first", first);
                let before = self.count_before(b, from, [first, rest], item, length);
                let place = b.exprs().add(own, before);
                let place = b.let_("to", place);
                let is_kept = b.exprs().lt(place, sorter.kept);
                b.if_(is_kept, |b| {
                    let place = b.exprs().add(pair, place);
                    let slot = self.slot(b, row, place);
                    self.put(b, to, slot, item);
                });
            });
        });
    }

    /// How many items of a run come before one of another run. `length` is the power of two that no run exceeds.
    fn count_before(
        &self,
        b: &mut KernelBuilder,
        runs: Items,
        [first, count]: [ExprId; 2],
        item: Item,
        length: i64,
    ) -> ExprId {
        let (zero, one) = (b.int(0), b.int(1));
        let index = b.index_type();
        let [none, widest, two] = [0, length, 2].map(|value| b.exprs().value(Value::Int(value), DType::I32));
        b.store(self.found, zero, none);
        b.store(self.step, zero, widest);
        let count = b.exprs().as_data(count);
        let count = b.exprs().cast(count, DType::I32);
        let count = b.let_("count", count);
        let steps = b.int(i64::from(length.ilog2()) + 1);
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
                let is_before = self.sorter.line.words.is_before(b, other, item);
                b.if_(is_before, |b| b.store(self.found, zero, next));
            });
        });
        let found = b.load("before", self.found, zero);
        let found = b.exprs().as_index(found);
        b.exprs().cast(found, index)
    }

    /// Writes the first elements of each line.
    fn write(&self, b: &mut KernelBuilder, from: Items) {
        let sorter = self.sorter;
        self.share.by_lines(b, [sorter.walk.rows, sorter.kept], |b, row, at| {
            let slot = self.slot(b, row, at);
            let item = self.read(b, from, slot);
            let starts = sorter.walk.starts(b, row);
            let is_row = b.exprs().bool(true);
            sorter.write(b, is_row, &starts, at, item);
        });
    }

    /// Sorts what runs hold of each line, so many items, and brings them into their final order.
    fn finish(&self, b: &mut KernelBuilder, from: Items, count: ExprId) {
        let one = b.int(1);
        self.by_warps(b, one, |b, row, _, is_row| {
            let zero = b.int(0);
            self.load(b, from, row, zero, [is_row, count]);
            self.sorter.line.sort(b);
            let starts = self.sorter.walk.starts(b, row);
            self.sorter.finish(b, is_row, &starts);
        });
    }
}
