//! Lines that no warp holds: their tiles become runs of a workspace, all blocks together.
//!
//! Where few elements are asked for, a run is the first ones of its tile, and of the runs of a line the first ones are found
//! in the same way, until one warp goes through all that is left. Else each pass merges two neighbouring runs into one of another workspace, by
//! tiles of the latter: what a tile is made of follows from how many items of the first run come before its start and
//! before its end ([`pair`]). A merged run holds no more than the elements that are kept; what lies behind them is
//! anything.

use super::super::share::{Share, as_data, as_index};
use super::block::Team;
use super::pair::Pair;
use super::words::{Item, Items};
use super::{Sorter, Stages, TILE, Tiles, WARPS};
use crate::kernel::{BufId, CacheHint, ExprId, IndexOp, KernelBuilder, Scope, Unroll};
use crate::num::{BinaryOp, DType, TernaryOp, Value};

/// What emits a sort of long lines.
pub(super) struct Sheet<'a> {
    pub(super) sorter: &'a Sorter,
    share: &'a Share,
    warp: ExprId,
    /// From each line to the next in a workspace.
    pub(super) stride: ExprId,
    /// The two splits that a tile that is merged starts and ends with.
    found_splits: BufId,
    /// What a thread has found so far, and how far it looks.
    found: BufId,
    step: BufId,
}

/// Emits the sort of all lines.
pub(super) fn emit(sorter: &Sorter, b: &mut KernelBuilder, tiles: Tiles, share: &Share, warp: ExprId) {
    let (run, width) = (b.int(tiles.run.into()), b.int(tiles.width.into()));
    let of_line = b.exprs().ceil_div(sorter.walk.from.length, width);
    let is_few = tiles.is_few();
    let mut count = if is_few { b.exprs().mul(of_line, run) } else { sorter.walk.from.length };
    let all = b.exprs().mul(sorter.walk.rows, count);
    let runs = ["runs", "more_runs"].map(|name| sorter.line.words.workspace(b, name, all));
    let (found, step) = (b.local("found", DType::I32, 1), b.local("step", DType::I32, 1));
    let found_splits = b.shared("splits", DType::I32, 2, 16);
    let sheet = Sheet { sorter, share, warp, stride: count, found_splits, found, step };
    let mut from = 0;
    if is_few {
        sheet.first_ones(b, runs[0], [of_line, width, run]);
    } else {
        let team = Team::new(b, &sorter.line, warp);
        sheet.tiles(b, &team, runs[0], [of_line, width]);
        for pass in 0..tiles.passes {
            b.sync(Scope::Grid);
            sheet.merge(b, &team, runs[from], runs[1 - from], i64::from(tiles.run) << pass);
            from = 1 - from;
        }
    }
    b.sync(Scope::Grid);
    for _ in 0..tiles.rounds {
        count = sheet.round(b, [runs[from], runs[1 - from]], count, run);
        b.sync(Scope::Grid);
        from = 1 - from;
    }
    match sorter.stages {
        Stages::Ordered | Stages::Wired if !is_few => sheet.write(b, runs[from]),
        _ if is_few => sheet.finish(b, runs[from], count, is_few),
        _ => sheet.finish(b, runs[from], sorter.kept, is_few),
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
    pub(super) fn slot(&self, b: &mut KernelBuilder, row: ExprId, at: ExprId) -> ExprId {
        let line = b.exprs().mul(row, self.stride);
        b.exprs().add(line, at)
    }

    fn read(&self, b: &mut KernelBuilder, from: Items, slot: ExprId) -> Item {
        self.sorter.line.words.load(b, from, slot, CacheHint::Global)
    }

    fn put(&self, b: &mut KernelBuilder, to: Items, slot: ExprId, item: Item) {
        self.sorter.line.words.store(b, to, slot, item, CacheHint::Global);
    }

    /// Makes a run of the first ones of each tile of the operand.
    fn first_ones(&self, b: &mut KernelBuilder, to: Items, [of_line, width, run]: [ExprId; 3]) {
        let sorter = self.sorter;
        self.by_warps(b, of_line, |b, row, number, is_one| {
            let first = b.exprs().mul(number, width);
            let first = b.let_("first", first);
            let starts = sorter.walk.starts(b, row);
            let end = b.exprs().add(first, width);
            let end = b.exprs().index(IndexOp::Min, end, sorter.walk.from.length);
            sorter.select(b, [first, end], is_one, |b, along| sorter.element(b, starts[0], along));
            self.put_run(b, to, [row, number, run], is_one);
        });
    }

    /// Sorts each tile of the operand into a run.
    fn tiles(&self, b: &mut KernelBuilder, team: &Team, to: Items, [of_line, width]: [ExprId; 2]) {
        let sorter = self.sorter;
        let all = b.exprs().mul(sorter.walk.rows, of_line);
        self.share.by_blocks(b, all, |b, tile, is_one| {
            let (row, number) = (b.exprs().div(tile, of_line), b.exprs().rem(tile, of_line));
            let row = b.let_("row", row);
            let part = team.first(b);
            let first = b.exprs().mul(number, width);
            let first = b.exprs().add(first, part);
            let first = b.let_("first", first);
            let starts = sorter.walk.starts(b, row);
            sorter.load(b, first, is_one, starts[0]);
            team.sort(b, &sorter.line);
            team.each_in_order(b, &sorter.line, |b, at, item| {
                let along = b.exprs().add(first, at);
                let is_inside = b.exprs().lt(along, self.stride);
                let is_written = b.exprs().and(is_one, is_inside);
                b.if_(is_written, |b| {
                    let slot = self.slot(b, row, along);
                    self.put(b, to, slot, item);
                });
            });
        });
    }

    /// Makes a run of the first ones of each tile of what runs hold, so many items of each line; how many items these hold.
    fn round(&self, b: &mut KernelBuilder, [from, to]: [Items; 2], count: ExprId, run: ExprId) -> ExprId {
        let width = b.int(TILE);
        let of_line = b.exprs().ceil_div(count, width);
        let left = b.exprs().mul(of_line, run);
        self.by_warps(b, of_line, |b, row, number, is_one| {
            let first = b.exprs().mul(number, width);
            let first = b.let_("first", first);
            let end = b.exprs().add(first, width);
            let end = b.exprs().index(IndexOp::Min, end, count);
            self.select(b, from, row, [first, end], is_one);
            self.put_run(b, to, [row, number, run], is_one);
        });
        left
    }

    /// Finds the first ones of a line's items from one up to another.
    fn select(&self, b: &mut KernelBuilder, from: Items, row: ExprId, range: [ExprId; 2], is_one: ExprId) {
        self.sorter.select(b, range, is_one, |b, at| {
            let slot = self.slot(b, row, at);
            self.read(b, from, slot)
        });
    }

    /// Fills registers with the first items of a line, so many.
    fn load(&self, b: &mut KernelBuilder, from: Items, row: ExprId, [is_one, count]: [ExprId; 2]) {
        self.sorter.line.fill(b, (count, is_one), |b, at| {
            let slot = self.slot(b, row, at);
            self.read(b, from, slot)
        });
    }

    /// Writes the first items of a tile, which a warp holds in order, to its run.
    fn put_run(&self, b: &mut KernelBuilder, to: Items, [row, number, run]: [ExprId; 3], is_one: ExprId) {
        let line = &self.sorter.line;
        let each = b.int(line.each);
        let own = b.exprs().mul(line.lane, each);
        let first = b.exprs().mul(number, run);
        line.each(b, |b, j| {
            let at = b.exprs().add(own, j);
            let along = b.exprs().add(first, at);
            b.if_(is_one, |b| {
                let item = line.get(b, j);
                let slot = self.slot(b, row, along);
                self.put(b, to, slot, item);
            });
        });
    }

    /// Merges runs of a length with their neighbours, block by block a tile of what comes of it.
    fn merge(&self, b: &mut KernelBuilder, team: &Team, from: Items, to: Items, length: i64) {
        let width = b.int(TILE);
        let of_line = b.exprs().ceil_div(self.stride, width);
        let all = b.exprs().mul(self.sorter.walk.rows, of_line);
        self.share.by_blocks(b, all, |b, tile, is_one| {
            let (row, number) = (b.exprs().div(tile, of_line), b.exprs().rem(tile, of_line));
            let first = b.exprs().mul(number, width);
            let first = b.let_("first", first);
            let pair = Pair::new(self, b, from, [row, first], length);
            let end = b.exprs().add(pair.place, width);
            let end = b.exprs().index(IndexOp::Min, end, pair.all);
            // Behind all tiles nothing is looked at.
            let zero = b.int(0);
            let place = b.exprs().ternary(TernaryOp::Where, is_one, pair.place, zero);
            let end = b.exprs().ternary(TernaryOp::Where, is_one, end, zero);
            let end = b.let_("end", end);
            let (start, stop) = self.splits(b, &pair, [place, end]);
            self.merge_tile(b, team, &pair, to, [start, stop, end]);
        });
    }

    /// How many items of a pair's first run are among so many of what comes of it, for two such numbers. Half of the warps
    /// look for each, all lanes of one together.
    fn splits(&self, b: &mut KernelBuilder, pair: &Pair, [first, second]: [ExprId; 2]) -> (ExprId, ExprId) {
        let (zero, one, two) = (b.int(0), b.int(1), b.int(2));
        let side = b.exprs().rem(self.warp, two);
        let is_first = b.exprs().lt(side, one);
        let of = b.exprs().ternary(TernaryOp::Where, is_first, first, second);
        let found = pair.split(b, of);
        let lane = self.sorter.line.lane;
        let is_told = b.exprs().lt(self.warp, two);
        let is_lane = b.exprs().lt(lane, one);
        let is_told = b.exprs().and(is_told, is_lane);
        b.if_(is_told, |b| b.store(self.found_splits, side, found));
        b.sync(Scope::Block);
        let mut told = |at: ExprId| {
            let split = b.load("split", self.found_splits, at);
            as_index(b, split)
        };
        (told(zero), told(one))
    }

    /// Merges what a tile is made of: items of both runs lie one after the other in shared memory, and each is written
    /// behind those of the other run that come before it.
    fn merge_tile(&self, b: &mut KernelBuilder, team: &Team, pair: &Pair, to: Items, [start, stop, end]: [ExprId; 3]) {
        let words = self.sorter.line.words;
        let count = b.exprs().sub(end, pair.place);
        let own = b.exprs().sub(stop, start);
        let (count, own) = (b.let_("count", count), b.let_("own", own));
        let (each, threads) = (b.int(TILE / self.share.threads), b.int(self.share.threads));
        let each_item = |b: &mut KernelBuilder, body: &mut dyn FnMut(&mut KernelBuilder, ExprId, ExprId)| {
            b.count("e", each, Unroll::Full, |b, e| {
                let before = b.exprs().mul(e, threads);
                let at = b.exprs().add(before, self.share.thread);
                let is_item = b.exprs().lt(at, count);
                let is_own = b.exprs().lt(at, own);
                b.if_(is_item, |b| body(b, at, is_own));
            });
        };
        each_item(b, &mut |b, at, is_own| {
            // Of the other run `place - start` came before.
            let ahead = b.exprs().add(start, at);
            let behind = b.exprs().sub(pair.place, start);
            let behind = b.exprs().add(behind, at);
            let behind = b.exprs().sub(behind, own);
            let behind = b.exprs().add(pair.run, behind);
            let from = b.exprs().ternary(TernaryOp::Where, is_own, ahead, behind);
            let item = pair.read(b, from);
            words.store(b, team.shared, at, item, CacheHint::Default);
        });
        b.sync(Scope::Block);
        each_item(b, &mut |b, at, is_own| {
            let item = words.load(b, team.shared, at, CacheHint::Default);
            let zero = b.int(0);
            let first = b.exprs().ternary(TernaryOp::Where, is_own, own, zero);
            let rest = b.exprs().sub(count, own);
            let others = b.exprs().ternary(TernaryOp::Where, is_own, rest, own);
            let before = self.count_before(b, team.shared, [first, others], item);
            let place = b.exprs().sub(at, own);
            let place = b.exprs().ternary(TernaryOp::Where, is_own, at, place);
            let place = b.exprs().add(place, before);
            let place = b.exprs().add(pair.place, place);
            let slot = b.exprs().add(pair.start, place);
            self.put(b, to, slot, item);
        });
        // The next tile lies where this one did.
        b.sync(Scope::Block);
    }

    /// How many items in shared memory from one on, of so many that are in order, come before an item.
    fn count_before(&self, b: &mut KernelBuilder, among: Items, [first, count]: [ExprId; 2], item: Item) -> ExprId {
        let (zero, one) = (b.int(0), b.int(1));
        let [none, widest, two] = [0, TILE, 2].map(|value| b.exprs().value(Value::Int(value), DType::I32));
        b.store(self.found, zero, none);
        b.store(self.step, zero, widest);
        let count = as_data(b, count, DType::I32);
        let count = b.let_("count", count);
        let steps = b.int(i64::from(TILE.ilog2()) + 1);
        b.count("halving", steps, Unroll::Full, |b, _| {
            let (found, step) = (b.load("found", self.found, zero), b.load("step", self.step, zero));
            let next = b.exprs().binary(BinaryOp::Add, found, step);
            let next = b.let_("next", next);
            let half = b.exprs().binary(BinaryOp::Div, step, two);
            b.store(self.step, zero, half);
            let is_inside = b.exprs().binary(BinaryOp::Le, next, count);
            b.if_(is_inside, |b| {
                let at = as_index(b, next);
                let at = b.exprs().sub(at, one);
                let at = b.exprs().add(first, at);
                let other = self.sorter.line.words.load(b, among, at, CacheHint::Default);
                let is_before = self.sorter.line.words.is_before(b, other, item);
                b.if_(is_before, |b| b.store(self.found, zero, next));
            });
        });
        let found = b.load("before", self.found, zero);
        as_index(b, found)
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

    /// Sorts what runs hold of each line, so many items, or finds the first of them, and brings them into their final
    /// order.
    fn finish(&self, b: &mut KernelBuilder, from: Items, count: ExprId, is_few: bool) {
        let one = b.int(1);
        self.by_warps(b, one, |b, row, _, is_row| {
            let zero = b.int(0);
            if is_few {
                self.select(b, from, row, [zero, count], is_row);
            } else {
                self.load(b, from, row, [is_row, count]);
                self.sorter.line.sort(b);
            }
            let starts = self.sorter.walk.starts(b, row);
            self.sorter.finish(b, is_row, &starts);
        });
    }
}
