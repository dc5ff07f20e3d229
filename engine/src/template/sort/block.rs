//! Tiles that the warps of a block sort together.
//!
//! Each warp sorts a part in its registers. Two such parts, and then two pairs of them, are put together by the network
//! that a warp has for its items ([`warp`](super::warp)): item `i` of both is compared with the one at the mirrored place, of
//! four parts then with the one of the neighbouring part, and from there on each warp is alone. What another warp holds is
//! handed over in shared memory.
//!
//! Items in order are written by way of shared memory too, so that neighbouring lanes write neighbouring ones: item `32 r + c`
//! of a part lies at `32 r + (c xor r)`, where lanes that read or write at once use different banks.

use super::super::share::LANES;
use super::warp::Line;
use super::words::{Item, Items, Words};
use super::{TILE, WARPS};
use crate::kernel::{CacheHint, ExprId, KernelBuilder, Scope, Unroll};

/// The warps of a block.
pub(super) struct Team {
    words: Words,
    warp: ExprId,
    /// Items of a warp.
    part: i64,
    /// Room for all items of the block, and for a tile that is merged.
    pub(super) shared: Items,
}

impl Team {
    pub(super) fn new(b: &mut KernelBuilder, line: &Line, warp: ExprId) -> Self {
        let (words, part) = (line.words, line.each * LANES);
        Self { words, warp, part, shared: words.shared(b, (part * WARPS).max(TILE)) }
    }

    /// The first item of the warp's part.
    pub(super) fn first(&self, b: &mut KernelBuilder) -> ExprId {
        let part = b.int(self.part);
        let first = b.exprs().mul(self.warp, part);
        b.let_("part", first)
    }

    /// Sorts the items of all warps.
    pub(super) fn sort(&self, b: &mut KernelBuilder, line: &Line) {
        line.sort(b);
        let mut parts = 2;
        while parts <= WARPS {
            self.exchange(b, line, parts - 1, true);
            let mut distance = parts / 4;
            while distance > 0 {
                self.exchange(b, line, distance, false);
                distance /= 2;
            }
            line.halve_all(b, self.part / 2);
            parts *= 2;
        }
    }

    /// Compares items with those of the warp of number `warp xor mask`, at the mirrored place or the same one.
    fn exchange(&self, b: &mut KernelBuilder, line: &Line, mask: i64, mirrored: bool) {
        let (lanes, items, last_lane, last) = (b.int(LANES), b.int(self.part), b.int(LANES - 1), b.int(line.each - 1));
        let slot = |b: &mut KernelBuilder, warp: ExprId, j: ExprId, lane: ExprId| {
            let part = b.exprs().mul(warp, items);
            let row = b.exprs().mul(j, lanes);
            let at = b.exprs().add(row, lane);
            b.exprs().add(part, at)
        };
        self.leave(b, line, |b, j| slot(b, self.warp, j, line.lane));
        let by = b.int(mask);
        let other_warp = b.exprs().xor(self.warp, by);
        let (highest, two, one) = (b.int(1 << mask.ilog2()), b.int(2), b.int(1));
        let bit = b.exprs().div(self.warp, highest);
        let bit = b.exprs().rem(bit, two);
        let is_lower = b.exprs().lt(bit, one);
        line.each(b, |b, j| {
            let from =
                if mirrored { [b.exprs().sub(last, j), b.exprs().sub(last_lane, line.lane)] } else { [j, line.lane] };
            let at = slot(b, other_warp, from[0], from[1]);
            let other = self.words.load(b, self.shared, at, CacheHint::Default);
            let own = line.get(b, j);
            let [lesser, greater] = self.words.in_order(b, own, other);
            let kept = self.words.choose(b, is_lower, lesser, greater);
            let kept = self.words.named(b, kept);
            line.set(b, j, kept);
        });
        b.sync(Scope::Block);
    }

    /// Leaves the items of each lane in shared memory, for the block to read: `slot` says where.
    fn leave(&self, b: &mut KernelBuilder, line: &Line, slot: impl FnOnce(&mut KernelBuilder, ExprId) -> ExprId) {
        line.each(b, |b, j| {
            let item = line.get(b, j);
            let at = slot(b, j);
            self.words.store(b, self.shared, at, item, CacheHint::Default);
        });
        b.sync(Scope::Block);
    }

    /// Emits what is done with each item of the warp's part, neighbouring lanes with neighbouring ones: `body` gets its place
    /// there.
    pub(super) fn each_in_order(
        &self,
        b: &mut KernelBuilder,
        line: &Line,
        body: impl FnOnce(&mut KernelBuilder, ExprId, Item),
    ) {
        let (lanes, first) = (b.int(LANES), self.first(b));
        let slot = |b: &mut KernelBuilder, row: ExprId, column: ExprId| {
            let row_start = b.exprs().mul(row, lanes);
            let column = b.exprs().xor(row, column);
            let at = b.exprs().add(row_start, column);
            b.exprs().add(first, at)
        };
        self.leave(b, line, |b, j| {
            let each = b.int(line.each);
            let own = b.exprs().mul(line.lane, each);
            let own = b.exprs().add(own, j);
            let (row, column) = (b.exprs().div(own, lanes), b.exprs().rem(own, lanes));
            slot(b, row, column)
        });
        let each = b.int(line.each);
        b.count("j", each, Unroll::Full, |b, j| {
            let at = slot(b, j, line.lane);
            let item = self.words.load(b, self.shared, at, CacheHint::Default);
            let row = b.exprs().mul(j, lanes);
            let at = b.exprs().add(row, line.lane);
            body(b, at, item);
        });
        // The next tile lies where this one did.
        b.sync(Scope::Block);
    }
}
