//! Where the runs of a block's places start: each thread looks one up, by halves of what is left of the index.

use super::super::share::{self, Share, as_data, as_index};
use super::memory::Memory;
use super::{Shape, THREADS};
use crate::kernel::{BufId, Dim, ExprId, KernelBuilder, Scope, Unroll};
use crate::num::{DType, TernaryOp};

/// Finds the starts of the runs of the block's places from the first one on, and of the place behind them.
pub(super) fn find(b: &mut KernelBuilder, memory: &Memory, shape: Shape, first: ExprId) -> BufId {
    let (index_type, count) = (b.index_type(), i64::from(shape.slots * shape.turns) + 1);
    let (starts, bounds) = (b.shared("starts", index_type, count, 16), b.local("bounds", index_type, 2));
    let thread = share::thread(b, Dim::X);
    let share = Share::of_block(b, THREADS, thread);
    let count = b.int(count);
    share.by_threads(b, count, |b, own| {
        let place = b.exprs().add(first, own);
        let place = as_data(b, place, DType::I64);
        let place = b.let_("place", place);
        let start = start(b, memory, shape, bounds, place);
        let start = as_data(b, start, index_type);
        b.store(starts, own, start);
    });
    b.sync(Scope::Block);
    starts
}

/// The first position whose place is not less than one.
fn start(b: &mut KernelBuilder, memory: &Memory, shape: Shape, bounds: BufId, place: ExprId) -> ExprId {
    let (zero, one, two) = (b.int(0), b.int(1), b.int(2));
    let index_type = b.index_type();
    let [none, all] = [zero, memory.length].map(|bound| as_data(b, bound, index_type));
    b.store(bounds, zero, none);
    b.store(bounds, one, all);
    let halves = b.int(shape.halves.into());
    b.count("half", halves, Unroll::No, |b, _| {
        let [low, high] = [zero, one].map(|which| {
            let bound = b.load("bound", bounds, which);
            as_index(b, bound)
        });
        let is_open = b.exprs().lt(low, high);
        b.if_(is_open, |b| {
            let middle = b.exprs().add(low, high);
            let middle = b.exprs().div(middle, two);
            let middle = b.let_("middle", middle);
            let line = &memory.index;
            let at = b.exprs().mul(middle, line.step);
            let key = b.load("key", line.buffer, at);
            // Of any type of integers; one that no `i64` holds is negative then.
            let key = b.exprs().cast(key, DType::I64);
            let is_before = b.exprs().lt(key, place);
            let behind = b.exprs().add(middle, one);
            let [behind, middle, low, high] = [behind, middle, low, high].map(|at| as_data(b, at, index_type));
            let low = b.exprs().ternary(TernaryOp::Where, is_before, behind, low);
            let high = b.exprs().ternary(TernaryOp::Where, is_before, high, middle);
            b.store(bounds, zero, low);
            b.store(bounds, one, high);
        });
    });
    let low = b.load("low", bounds, zero);
    as_index(b, low)
}
