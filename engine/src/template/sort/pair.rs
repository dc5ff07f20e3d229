//! Two neighbouring runs, and what comes of them when they are merged.
//!
//! Of the first `o` items that come of runs `A` and `B`, `i` are of `A` where `A[i - 1]` comes before `B[o - i]` and `B[o -
//! 1 - i]` before `A[i]`: as many as there are `i` with `A[i]` before `B[o - 1 - i]`, which is so up to one and for none
//! behind it. The lanes of a warp look at 32 places at a time, so that each time a thirty-second of them is left.

use super::super::share::{LANES, as_data, as_index, reduce_lanes};
use super::tiles::Sheet;
use super::words::{Item, Items, Words};
use crate::kernel::{CacheHint, ExprId, IndexOp, KernelBuilder};
use crate::num::{BinaryOp, DType, TernaryOp, Value};

/// Places that are left to one after so many halvings are halved five times at once.
const HALVINGS: i64 = LANES.ilog2() as i64;

/// Two runs in a workspace, of which the first is as long as both may be.
pub(super) struct Pair {
    words: Words,
    lane: ExprId,
    from: Items,
    /// Where the pair starts in the workspace.
    pub(super) start: ExprId,
    /// The length of a run that is full: from the start of the first one to that of the second.
    pub(super) run: ExprId,
    /// Items of the first one, and of the second.
    counts: [ExprId; 2],
    /// Items that come of both and are kept.
    pub(super) all: ExprId,
    /// How many of these come before the tile at hand.
    pub(super) place: ExprId,
    rounds: i64,
}

impl Pair {
    /// The pair of runs of a length that a place of a line lies in.
    pub(super) fn new(
        sheet: &Sheet<'_>,
        b: &mut KernelBuilder,
        from: Items,
        [row, place]: [ExprId; 2],
        length: i64,
    ) -> Self {
        let (run, both, zero) = (b.int(length), b.int(2 * length), b.int(0));
        let ahead = b.exprs().rem(place, both);
        let first = b.exprs().sub(place, ahead);
        let rest = b.exprs().sub(sheet.stride, first);
        let start = sheet.slot(b, row, first);
        let behind = b.exprs().sub(rest, run);
        let behind = b.exprs().index(IndexOp::Max, behind, zero);
        let kept = sheet.sorter.kept;
        let counts = [rest, behind].map(|count| {
            let count = b.exprs().index(IndexOp::Min, count, run);
            let count = b.exprs().index(IndexOp::Min, count, kept);
            b.let_("items", count)
        });
        let all = b.exprs().add(counts[0], counts[1]);
        let all = b.exprs().index(IndexOp::Min, all, kept);
        Self {
            words: sheet.sorter.line.words,
            lane: sheet.sorter.line.lane,
            from,
            start: b.let_("pair", start),
            run,
            counts,
            all: b.let_("all", all),
            place: b.let_("place", ahead),
            rounds: i64::from(length.ilog2()) / HALVINGS + 1,
        }
    }

    /// An item of the pair.
    pub(super) fn read(&self, b: &mut KernelBuilder, at: ExprId) -> Item {
        let slot = b.exprs().add(self.start, at);
        self.words.load(b, self.from, slot, CacheHint::Global)
    }

    /// How many items of the first run are among the first `of` ones of both, an `i32`; all lanes of the warp look for it.
    pub(super) fn split(&self, b: &mut KernelBuilder, of: ExprId) -> ExprId {
        let zero = b.int(0);
        let least = b.exprs().sub(of, self.counts[1]);
        let least = b.exprs().index(IndexOp::Max, least, zero);
        let most = b.exprs().index(IndexOp::Min, of, self.counts[0]);
        let [mut least, mut most] = [least, most].map(|at| as_data(b, at, DType::I32));
        for _ in 0..self.rounds {
            [least, most] = self.narrow(b, of, [least, most]);
        }
        least
    }

    /// Of the places from one up to another those that are left.
    fn narrow(&self, b: &mut KernelBuilder, of: ExprId, [least, most]: [ExprId; 2]) -> [ExprId; 2] {
        let [zero, one, last, lanes] =
            [0, 1, LANES - 1, LANES].map(|value| b.exprs().value(Value::Int(value), DType::I32));
        let binary = |b: &mut KernelBuilder, op: BinaryOp, x: ExprId, y: ExprId| b.exprs().binary(op, x, y);
        let range = binary(b, BinaryOp::Sub, most, least);
        let step = binary(b, BinaryOp::Add, range, last);
        let step = binary(b, BinaryOp::Div, step, lanes);
        let step = b.let_("step", step);
        let lane = as_data(b, self.lane, DType::I32);
        let ahead = binary(b, BinaryOp::Mul, lane, step);
        let at = binary(b, BinaryOp::Add, least, ahead);
        let at = b.let_("looked_at", at);
        let is_one = binary(b, BinaryOp::Lt, at, most);
        let seen = b.local("seen", DType::I32, 1);
        let slot = b.int(0);
        b.store(seen, slot, zero);
        b.if_(is_one, |b| {
            let at = as_index(b, at);
            let own = self.read(b, at);
            let one_place = b.int(1);
            let before = b.exprs().sub(of, one_place);
            let before = b.exprs().sub(before, at);
            let before = b.exprs().add(self.run, before);
            let other = self.read(b, before);
            let is_before = self.words.is_before(b, own, other);
            let is_before = b.exprs().cast(is_before, DType::I32);
            b.store(seen, slot, is_before);
        });
        let count = b.load("seen", seen, slot);
        let count = reduce_lanes(b, count, BinaryOp::Add);
        let count = b.let_("before", count);
        // None is: then the least one stays. Else what is left lies between the last one that is and the next one seen.
        let is_some = binary(b, BinaryOp::Lt, zero, count);
        let end = binary(b, BinaryOp::Mul, count, step);
        let end = binary(b, BinaryOp::Add, least, end);
        let start = binary(b, BinaryOp::Sub, end, step);
        let start = binary(b, BinaryOp::Add, start, one);
        let end = binary(b, BinaryOp::Minimum, end, most);
        let start = b.exprs().ternary(TernaryOp::Where, is_some, start, least);
        let end = b.exprs().ternary(TernaryOp::Where, is_some, end, least);
        [b.let_("least", start), b.let_("most", end)]
    }
}
