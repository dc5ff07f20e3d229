//! A bitonic network over the places of a line in shared memory.
//!
//! Comparator `t` of a step of distance `d` joins the places `p = 2 t - (t mod d)` and `p + d`; blocks of `2, 4, ...` are
//! sorted in turns of direction, the last one is all. Places of no element go to the end. Where the order knows equal
//! elements, they move as the wires lie: the reference runs the same ones.

use super::{Order, Seat, Sorter};
use crate::kernel::{ExprId, KernelBuilder};
use crate::num::{BinaryOp, TernaryOp, UnaryOp};

/// Sorts the first `width` places of each line; all threads of the block take part.
pub(super) fn sort(sorter: &Sorter, b: &mut KernelBuilder, seat: Seat, width: i64, order: Order) {
    let used = b.int(width / 2);
    let mut block = 2;
    while block <= width {
        let mut distance = block / 2;
        while distance > 0 {
            let takes_part = match width == sorter.tile.width {
                true => b.exprs().bool(true),
                false => b.exprs().lt(seat.thread, used),
            };
            b.if_(takes_part, |b| compare(sorter, b, seat, order, (block < width).then_some(block), distance));
            sorter.sync(b);
            distance /= 2;
        }
        block *= 2;
    }
}

/// One comparator of a thread: of blocks in turns of direction, or of all.
fn compare(sorter: &Sorter, b: &mut KernelBuilder, seat: Seat, order: Order, block: Option<i64>, distance: i64) {
    let [first, second] = wires(b, seat, distance);
    let held = |b: &mut KernelBuilder, place: ExprId| {
        (b.load("key", sorter.tile.keys, place), b.load("place", sorter.tile.places, place))
    };
    let (one, other) = (held(b, first), held(b, second));
    let in_order = sorter.is_before(b, order, [one, other]);
    // No element comes before one, and one before none.
    let is_one = b.exprs().binary(BinaryOp::Lt, one.1, seat.length);
    let is_other = b.exprs().binary(BinaryOp::Lt, other.1, seat.length);
    let no_other = b.exprs().unary(UnaryOp::LogicalNot, is_other);
    let in_order = b.exprs().binary(BinaryOp::LogicalAnd, is_one, in_order);
    let in_order = b.exprs().binary(BinaryOp::LogicalOr, no_other, in_order);
    let mut is_wrong = b.exprs().unary(UnaryOp::LogicalNot, in_order);
    if let Some(block) = block {
        let (half, two, zero) = (b.int(block / 2), b.int(2), b.int(0));
        let number = b.exprs().div(seat.thread, half);
        let number = b.exprs().rem(number, two);
        let is_turned = b.exprs().lt(zero, number);
        is_wrong = b.exprs().ternary(TernaryOp::Where, is_turned, in_order, is_wrong);
    }
    b.if_(is_wrong, |b| {
        for (place, (key, position)) in [(first, other), (second, one)] {
            b.store(sorter.tile.keys, place, key);
            b.store(sorter.tile.places, place, position);
        }
    });
}

/// The two places that a thread compares.
fn wires(b: &mut KernelBuilder, seat: Seat, distance: i64) -> [ExprId; 2] {
    let (two, by) = (b.int(2), b.int(distance));
    let twice = b.exprs().mul(seat.thread, two);
    let rest = b.exprs().rem(seat.thread, by);
    let first = b.exprs().sub(twice, rest);
    let first = b.exprs().add(seat.start, first);
    let first = b.let_("p", first);
    [first, b.exprs().add(first, by)]
}
