//! Items in the registers of a warp, in order.
//!
//! Item `i` of a line is number `i mod n` of lane `i / n`, where each lane holds `n` items. A bitonic network sorts blocks
//! of 2, 4, ... items: its first step compares `i` with `i xor (block - 1)`, the others `i` with `i xor d` for `d = block /
//! 4, ..., 1`, and the lesser item always comes to the lower place. Partners that another lane has come by a shuffle.
//!
//! Lines of [`NETWORK`] items, one a lane, are also sorted by the wires that the reference has, where equal keys move as
//! these lie: comparator `t` of a step of distance `d` joins `p = 2 t - (t mod d)` and `p + d`; blocks of `2, 4, ...` are
//! sorted in turns of direction, the last one is all.

use super::super::share::LANES;
use super::words::{Form, Item, Items, Words};
use crate::fusion::ops::NETWORK;
use crate::kernel::{CacheHint, ExprId, IndexOp, KernelBuilder, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};

/// The items that lanes of a warp hold.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) words: Words,
    pub(super) items: Items,
    /// How many each lane holds: a power of two.
    pub(super) each: i64,
    /// The lane.
    pub(super) lane: ExprId,
}

/// Which of two items comes first, where some are equal.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// The one of the lesser key.
    Key,
    /// One whose key is less than this one, or else the one of the lower position.
    Before(ExprId),
}

impl Line {
    /// An item of the lane.
    pub(super) fn get(&self, b: &mut KernelBuilder, at: ExprId) -> Item {
        self.words.load(b, self.items, at, CacheHint::Default)
    }

    pub(super) fn set(&self, b: &mut KernelBuilder, at: ExprId, item: Item) {
        self.words.store(b, self.items, at, item, CacheHint::Default);
    }

    /// For each item of the lane.
    pub(super) fn each(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, ExprId)) {
        let each = b.int(self.each);
        b.count("j", each, Unroll::Full, body);
    }

    /// Fills registers, neighbouring lanes with neighbouring items: so many, none if the line is none, and behind them nothing.
    pub(super) fn fill(
        &self,
        b: &mut KernelBuilder,
        (count, is_line): (ExprId, ExprId),
        item: impl Fn(&mut KernelBuilder, ExprId) -> Item,
    ) {
        let (lanes, last) = (b.int(LANES), b.int(self.each * LANES - 1));
        let at = |b: &mut KernelBuilder, j: ExprId| {
            let before = b.exprs().mul(j, lanes);
            b.exprs().add(before, self.lane)
        };
        let is_full = b.exprs().lt(last, count);
        let is_whole = b.exprs().and(is_line, is_full);
        // Without a test for each, all items are on their way at once.
        b.if_else(
            is_whole,
            |b| {
                self.each(b, |b, j| {
                    let at = at(b, j);
                    let item = item(b, at);
                    self.set(b, j, item);
                });
            },
            |b| match self.words.form {
                Form::Half => self.fill_part(b, (count, is_line), at, &item),
                // Of longer words so many on their way take registers that the order needs.
                Form::Whole | Form::Pair => self.each(b, |b, j| {
                    let at = at(b, j);
                    let nothing = self.words.nothing(b);
                    self.set(b, j, nothing);
                    let is_inside = b.exprs().lt(at, count);
                    let is_some = b.exprs().and(is_line, is_inside);
                    b.if_(is_some, |b| {
                        let item = item(b, at);
                        self.set(b, j, item);
                    });
                }),
            },
        );
    }

    /// Fills registers with fewer items than there is room for: all are on their way at once.
    fn fill_part(
        &self,
        b: &mut KernelBuilder,
        (count, is_line): (ExprId, ExprId),
        at: impl Fn(&mut KernelBuilder, ExprId) -> ExprId,
        item: &impl Fn(&mut KernelBuilder, ExprId) -> Item,
    ) {
        let (zero, one) = (b.int(0), b.int(1));
        let is_any = b.exprs().lt(zero, count);
        let is_any = b.exprs().and(is_line, is_any);
        let nothing = self.words.nothing(b);
        b.if_else(
            is_any,
            |b| {
                // The last item is read for those behind it: a test around each would be one wait for each.
                let last = b.exprs().sub(count, one);
                self.each(b, |b, j| {
                    let at = at(b, j);
                    let at = b.exprs().index(IndexOp::Min, at, last);
                    let item = item(b, at);
                    self.set(b, j, item);
                });
                self.each(b, |b, j| {
                    let at = at(b, j);
                    let is_behind = b.exprs().lt(last, at);
                    b.if_(is_behind, |b| self.set(b, j, nothing));
                });
            },
            |b| self.each(b, |b, j| self.set(b, j, nothing)),
        );
    }

    /// Sorts the line by key and position.
    pub(super) fn sort(&self, b: &mut KernelBuilder) {
        let mut block = 2;
        while block <= LANES * self.each {
            self.mirror(b, block);
            self.halve_all(b, block / 4);
            block *= 2;
        }
    }

    /// Compares each item with the one at a distance, at half of it, and so on.
    pub(super) fn halve_all(&self, b: &mut KernelBuilder, mut distance: i64) {
        while distance > 0 {
            self.halve(b, distance);
            distance /= 2;
        }
    }

    /// Compares each item with the one at the mirrored place of its block.
    fn mirror(&self, b: &mut KernelBuilder, block: i64) {
        if block <= self.each {
            let (half, last, whole) = (b.int(block / 2), b.int(block - 1), b.int(block));
            self.pairs(b, |b, t| {
                let (start, own) = (b.exprs().div(t, half), b.exprs().rem(t, half));
                let start = b.exprs().mul(start, whole);
                let mirrored = b.exprs().sub(last, own);
                [own, mirrored].map(|at| b.exprs().add(start, at))
            });
            return;
        }
        let mask = block / self.each - 1;
        if self.each == 1 {
            let zero = b.int(0);
            let own = self.get(b, zero);
            let kept = self.lesser_or_greater(b, own, own, mask);
            self.set(b, zero, kept);
            return;
        }
        let (pairs, last) = (b.int(self.each / 2), b.int(self.each - 1));
        b.count("t", pairs, Unroll::Full, |b, t| {
            let mirrored = b.exprs().sub(last, t);
            let (one, other) = (self.get(b, t), self.get(b, mirrored));
            let [first, second] =
                [(one, other), (other, one)].map(|(own, given)| self.lesser_or_greater(b, own, given, mask));
            self.set(b, t, first);
            self.set(b, mirrored, second);
        });
    }

    /// Compares each item with the one at a distance.
    fn halve(&self, b: &mut KernelBuilder, distance: i64) {
        if distance >= self.each {
            self.each(b, |b, j| {
                let own = self.get(b, j);
                let kept = self.lesser_or_greater(b, own, own, distance / self.each);
                self.set(b, j, kept);
            });
            return;
        }
        let (by, two) = (b.int(distance), b.int(2));
        self.pairs(b, |b, t| {
            let (twice, rest) = (b.exprs().mul(t, two), b.exprs().rem(t, by));
            let first = b.exprs().sub(twice, rest);
            [first, b.exprs().add(first, by)]
        });
    }

    /// Brings pairs of the lane's items into order.
    fn pairs(&self, b: &mut KernelBuilder, places: impl FnOnce(&mut KernelBuilder, ExprId) -> [ExprId; 2]) {
        let pairs = b.int(self.each / 2);
        b.count("t", pairs, Unroll::Full, |b, t| {
            let [first, second] = places(b, t);
            let (one, other) = (self.get(b, first), self.get(b, second));
            let [lesser, greater] = self.words.in_order(b, one, other);
            let (lesser, greater) = (self.words.named(b, lesser), self.words.named(b, greater));
            self.set(b, first, lesser);
            self.set(b, second, greater);
        });
    }

    /// Of the lane's own item and what the lane of number `lane xor mask` gives, the lesser one if the lane is the lower
    /// of the two, else the greater one.
    fn lesser_or_greater(&self, b: &mut KernelBuilder, own: Item, given: Item, mask: i64) -> Item {
        let by = b.exprs().int(mask, DType::I32);
        let other = self.words.shuffle(b, given, ShuffleMode::Xor, by);
        let is_lower = self.is_lower(b, mask);
        let [lesser, greater] = self.words.in_order(b, own, other);
        let kept = self.words.choose(b, is_lower, lesser, greater);
        self.words.named(b, kept)
    }

    /// Whether the greatest bit of a mask is not set in the lane's number.
    fn is_lower(&self, b: &mut KernelBuilder, mask: i64) -> ExprId {
        let (by, two, one) = (b.int(1 << mask.ilog2()), b.int(2), b.int(1));
        let number = b.exprs().div(self.lane, by);
        let number = b.exprs().rem(number, two);
        b.exprs().lt(number, one)
    }

    /// Item `i` of the line, of which the lane is the `i`th.
    pub(super) fn spread(&self, b: &mut KernelBuilder) -> Item {
        let zero = b.int(0);
        if self.each == 1 {
            return self.get(b, zero);
        }
        let each = b.int(self.each);
        let (from, number) = (b.exprs().div(self.lane, each), b.exprs().rem(self.lane, each));
        let own = self.words.local(b, 1);
        let spread = Line { items: own, each: 1, ..*self };
        let from = b.exprs().cast(from, DType::I32);
        let from = b.let_("from", from);
        self.each(b, |b, j| {
            let item = self.get(b, j);
            let item = self.words.shuffle(b, item, ShuffleMode::Index, from);
            let is_own = b.exprs().binary(BinaryOp::Eq, number, j);
            b.if_(is_own, |b| spread.set(b, zero, item));
        });
        spread.get(b, zero)
    }

    /// The item that each lane has of a line of [`NETWORK`] items after the wires have sorted it.
    pub(super) fn wired(&self, b: &mut KernelBuilder, mut item: Item, order: Order) -> Item {
        let mut block = 2;
        while block <= NETWORK {
            let mut distance = block / 2;
            while distance > 0 {
                item = self.wire(b, item, order, (block < NETWORK).then_some(block), distance);
                distance /= 2;
            }
            block *= 2;
        }
        item
    }

    /// A step of the wires: of blocks in turns of direction, or of all.
    fn wire(&self, b: &mut KernelBuilder, own: Item, order: Order, block: Option<i64>, distance: i64) -> Item {
        let words = self.words;
        let by = b.exprs().int(distance, DType::I32);
        let other = words.shuffle(b, own, ShuffleMode::Xor, by);
        let is_lower = self.is_lower(b, distance);
        let (first, second) = (words.choose(b, is_lower, own, other), words.choose(b, is_lower, other, own));
        let (first, second) = (words.named(b, first), words.named(b, second));
        // No element comes before one, and one before none.
        let (is_first, is_second) = (words.is_some(b, first), words.is_some(b, second));
        let is_before = self.is_before(b, order, first, second);
        let in_order = b.exprs().binary(BinaryOp::LogicalAnd, is_first, is_before);
        let no_second = b.exprs().unary(UnaryOp::LogicalNot, is_second);
        let in_order = b.exprs().binary(BinaryOp::LogicalOr, no_second, in_order);
        let mut stays = in_order;
        if let Some(block) = block {
            // Comparator `t` of a lane is of block `lane / block`, and turned in every second one.
            let is_forward = self.is_lower(b, block);
            let turned = b.exprs().unary(UnaryOp::LogicalNot, in_order);
            stays = b.exprs().ternary(TernaryOp::Where, is_forward, in_order, turned);
        }
        let kept = words.choose(b, stays, own, other);
        words.named(b, kept)
    }

    fn is_before(&self, b: &mut KernelBuilder, order: Order, one: Item, other: Item) -> ExprId {
        let [own, next] = [one, other].map(|item| self.words.key(b, item));
        let Order::Before(last) = order else { return b.exprs().binary(BinaryOp::Lt, own, next) };
        let [own, next] = [own, next].map(|key| b.exprs().binary(BinaryOp::Lt, key, last));
        let (place, next_place) = (self.words.place(b, one), self.words.place(b, other));
        let is_ahead = b.exprs().binary(BinaryOp::Lt, place, next_place);
        let is_alike = b.exprs().binary(BinaryOp::Eq, own, next);
        b.exprs().ternary(TernaryOp::Where, is_alike, is_ahead, own)
    }

    /// Orders the items, of which the line has so many and is sorted, by position, but those whose keys equal that of the
    /// last one behind the others. The keys are lost.
    pub(super) fn gather(&self, b: &mut KernelBuilder, kept: ExprId) {
        let last = self.item_before(b, kept);
        let last = self.words.key(b, last);
        let last = b.let_("last", last);
        let [zero, one] = [0, 1].map(|n| b.exprs().value(Value::Int(n), DType::I32));
        let each = b.int(self.each);
        let first = b.exprs().mul(self.lane, each);
        self.each(b, |b, j| {
            let item = self.get(b, j);
            let key = self.words.key(b, item);
            let is_before = b.exprs().binary(BinaryOp::Lt, key, last);
            let group = b.exprs().ternary(TernaryOp::Where, is_before, zero, one);
            let grouped = self.words.with_key(b, item, group);
            let at = b.exprs().add(first, j);
            let is_kept = b.exprs().lt(at, kept);
            let nothing = self.words.nothing(b);
            let item = self.words.choose(b, is_kept, grouped, nothing);
            let item = self.words.named(b, item);
            self.set(b, j, item);
        });
        self.sort(b);
    }

    /// The last of so many items of the line.
    pub(super) fn item_before(&self, b: &mut KernelBuilder, count: ExprId) -> Item {
        let (zero, one, each) = (b.int(0), b.int(1), b.int(self.each));
        let last = b.exprs().sub(count, one);
        let (lane, number) = (b.exprs().div(last, each), b.exprs().rem(last, each));
        let lane = b.exprs().cast(lane, DType::I32);
        let lane = b.let_("last_lane", lane);
        let found = Line { items: self.words.local(b, 1), each: 1, ..*self };
        self.each(b, |b, j| {
            let item = self.get(b, j);
            let item = self.words.shuffle(b, item, ShuffleMode::Index, lane);
            let is_last = b.exprs().binary(BinaryOp::Eq, number, j);
            b.if_(is_last, |b| found.set(b, zero, item));
        });
        found.get(b, zero)
    }
}
