//! The first items of a line, where few are asked for: a warp goes through it once and holds the best.
//!
//! The best so far lie in the warp's registers in order. Of what is looked at next each lane has a part, and only where some
//! item comes before the last one that is kept are the parts sorted and put beside the best: with `r` items each, item `i`
//! of the best is compared with item `r - 1 - i` of the others, and the lesser ones, which are the first `r` of both, are a
//! bitonic sequence. So a line in no order costs little more than to read it: the `n`th of its items is among the first `k`
//! once in `n / k` times.

use super::super::share::{LANES, reduce_lanes};
use super::Sorter;
use super::warp::Line;
use super::words::{Item, Items};
use crate::kernel::{CacheHint, ExprId, IndexOp, KernelBuilder, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType, Value};

/// Items that a lane reads before the first of them is looked at, at least.
const AHEAD: i64 = 8;

/// The best of a line so far.
struct Best<'a> {
    /// They, in order.
    line: &'a Line,
    /// What is read, some for each lane.
    read: Line,
    /// As many of these as there are best ones.
    next: Line,
    /// The last item that is kept.
    last: Items,
}

impl Sorter {
    /// Leaves in the line's registers, in order, the first of some items: those from one up to another, none where the
    /// warp has no such line. The same numbers for all lanes. Behind as many as are kept some may be missing.
    pub(super) fn select(
        &self,
        b: &mut KernelBuilder,
        [first, end]: [ExprId; 2],
        is_line: ExprId,
        item: impl Fn(&mut KernelBuilder, ExprId) -> Item,
    ) {
        let ahead = self.line.each.max(AHEAD);
        let best = Best::new(b, &self.line, ahead);
        let (zero, turn_items) = (b.int(0), b.int(ahead * LANES));
        let count = b.exprs().sub(end, first);
        let count = b.exprs().index(IndexOp::Max, count, zero);
        let turns = b.exprs().ceil_div(count, turn_items);
        b.if_(is_line, |b| {
            b.count("turn", turns, Unroll::No, |b, turn| {
                let before = b.exprs().mul(turn, turn_items);
                let start = b.exprs().add(first, before);
                let start = b.let_("looked_at", start);
                let rest = b.exprs().sub(end, start);
                let is_some = b.exprs().bool(true);
                best.read.fill(b, (rest, is_some), |b, at| {
                    let at = b.exprs().add(start, at);
                    item(b, at)
                });
                best.add(b, self.kept);
            });
        });
    }
}

impl<'a> Best<'a> {
    /// None yet.
    fn new(b: &mut KernelBuilder, line: &'a Line, ahead: i64) -> Self {
        let registers = |b: &mut KernelBuilder, each: i64| Line { items: line.words.local(b, each), each, ..*line };
        let best =
            Self { line, read: registers(b, ahead), next: registers(b, line.each), last: line.words.local(b, 1) };
        let (nothing, zero) = (line.words.nothing(b), b.int(0));
        line.each(b, |b, j| line.set(b, j, nothing));
        line.words.store(b, best.last, zero, nothing, CacheHint::Default);
        best
    }

    /// Looks at what was read.
    fn add(&self, b: &mut KernelBuilder, kept: ExprId) {
        let least = self.read.least(b);
        let is_any = self.has_before_last(b, least);
        b.if_(is_any, |b| {
            let parts = b.int(self.read.each / self.line.each);
            b.count("part", parts, Unroll::Full, |b, part| {
                let each = b.int(self.line.each);
                let from = b.exprs().mul(part, each);
                self.next.each(b, |b, j| {
                    let at = b.exprs().add(from, j);
                    let item = self.read.get(b, at);
                    self.next.set(b, j, item);
                });
                let least = self.next.least(b);
                let is_any = self.has_before_last(b, least);
                b.if_(is_any, |b| self.merge(b, kept));
            });
        });
    }

    /// Whether some lane has an item that comes before the last one that is kept.
    fn has_before_last(&self, b: &mut KernelBuilder, item: Item) -> ExprId {
        let words = self.line.words;
        let zero = b.int(0);
        let last = words.load(b, self.last, zero, CacheHint::Default);
        let is_before = words.is_before(b, item, last);
        let zero = b.exprs().value(Value::Int(0), DType::I32);
        let seen = b.exprs().cast(is_before, DType::I32);
        let seen = reduce_lanes(b, seen, BinaryOp::Maximum);
        // One number for the warp.
        let seen = b.shuffle("seen", seen, ShuffleMode::Index, zero);
        b.exprs().binary(BinaryOp::Gt, seen, zero)
    }

    /// Sorts the next items and puts them beside the best.
    fn merge(&self, b: &mut KernelBuilder, kept: ExprId) {
        let (line, words) = (self.line, self.line.words);
        self.next.sort(b);
        let last = b.int(line.each - 1);
        let mirror = b.exprs().int(LANES - 1, DType::I32);
        line.each(b, |b, j| {
            let own = line.get(b, j);
            let mirrored = b.exprs().sub(last, j);
            let other = self.next.get(b, mirrored);
            let other = words.shuffle(b, other, ShuffleMode::Xor, mirror);
            let [lesser, _] = words.in_order(b, own, other);
            let lesser = words.named(b, lesser);
            line.set(b, j, lesser);
        });
        line.halve_all(b, line.each * LANES / 2);
        let zero = b.int(0);
        let item = line.item_before(b, kept);
        words.store(b, self.last, zero, item, CacheHint::Default);
    }
}

impl Line {
    /// The least item of each lane.
    fn least(&self, b: &mut KernelBuilder) -> Item {
        let zero = b.int(0);
        let mut least = self.get(b, zero);
        for at in 1..self.each {
            let at = b.int(at);
            let item = self.get(b, at);
            let [lesser, _] = self.words.in_order(b, least, item);
            least = self.words.named(b, lesser);
        }
        least
    }
}
