//! How blocks that wait for each other share work: pieces in turn, so that neighbours have pieces beside each other.

use crate::kernel::{Dim, ExprId, KernelBuilder, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::options::DeviceDesc;

/// Lanes of a warp.
pub(super) const LANES: i64 = 32;

/// Blocks of a multiprocessor that wait for each other, and threads of each. There are registers for a quarter of what a
/// thread may have, or for half of it.
#[derive(Clone, Copy)]
pub(super) struct Crew {
    pub(super) together: u32,
    pub(super) threads: i64,
}

/// Few registers suffice.
pub(super) const LARGE: Crew = Crew { together: 2, threads: 512 };
/// Each thread has many.
pub(super) const SMALL: Crew = Crew { together: 4, threads: 128 };

impl Crew {
    /// Blocks that run at once, at most as many as there is work for.
    pub(super) fn blocks(self, device: &DeviceDesc, work: i64) -> u32 {
        work.clamp(1, (device.sm_count * self.together).into()) as u32
    }
}

/// The blocks of a launch, and which one this is.
pub(super) struct Share {
    pub(super) threads: i64,
    pub(super) blocks: ExprId,
    block: ExprId,
    pub(super) thread: ExprId,
}

impl Share {
    /// Of so many blocks of a crew, whose threads lie along several axes, the first one fastest.
    pub(super) fn new(b: &mut KernelBuilder, crew: Crew, blocks: u32, thread: ExprId) -> Self {
        let blocks = b.int(blocks.into());
        Self { threads: crew.threads, blocks, block: block(b), thread }
    }

    /// What a block of so many threads does by itself.
    pub(super) fn of_block(b: &mut KernelBuilder, threads: i64, thread: ExprId) -> Self {
        Self { threads, blocks: b.int(1), block: b.int(0), thread }
    }

    /// Emits what each block does with its share of some pieces of work: `body` gets the number of one, and whether there
    /// is such a piece.
    pub(super) fn by_blocks(
        &self,
        b: &mut KernelBuilder,
        count: ExprId,
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId),
    ) {
        let turns = b.exprs().ceil_div(count, self.blocks);
        b.count("turn", turns, Unroll::No, |b, turn| {
            let number = b.exprs().mul(turn, self.blocks);
            let number = b.exprs().add(number, self.block);
            let number = b.let_("number", number);
            let is_one = b.exprs().lt(number, count);
            body(b, number, is_one);
        });
    }

    /// Emits what each thread does with its share of some elements: `body` gets the number of one.
    pub(super) fn by_threads(
        &self,
        b: &mut KernelBuilder,
        count: ExprId,
        body: impl FnOnce(&mut KernelBuilder, ExprId),
    ) {
        let threads = b.int(self.threads);
        let chunks = b.exprs().ceil_div(count, threads);
        self.by_blocks(b, chunks, |b, chunk, _| {
            let first = b.exprs().mul(chunk, threads);
            let number = b.exprs().add(first, self.thread);
            let number = b.let_("element", number);
            let is_one = b.exprs().lt(number, count);
            b.if_(is_one, |b| body(b, number));
        });
    }

    /// The same with the elements of lines: `body` gets the line of one, and its place there.
    pub(super) fn by_lines(
        &self,
        b: &mut KernelBuilder,
        [rows, of_line]: [ExprId; 2],
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId),
    ) {
        let all = b.exprs().mul(rows, of_line);
        self.by_threads(b, all, |b, number| {
            let (row, at) = (b.exprs().div(number, of_line), b.exprs().rem(number, of_line));
            let (row, at) = (b.let_("row", row), b.let_("at", at));
            body(b, row, at);
        });
    }
}

/// What the lanes of a warp have come to by an operation; each of them gets it.
pub(super) fn reduce_lanes(b: &mut KernelBuilder, mut value: ExprId, op: BinaryOp) -> ExprId {
    let mut distance = LANES / 2;
    while distance > 0 {
        let mask = b.exprs().int(distance, DType::I32);
        let other = b.shuffle("other_seen", value, ShuffleMode::Xor, mask);
        value = b.exprs().binary(op, value, other);
        distance /= 2;
    }
    value
}

/// What the lanes of a warp up to each have come to, of so many that belong together.
pub(super) fn prefix_lanes(
    b: &mut KernelBuilder,
    mut value: ExprId,
    (lane, lanes): (ExprId, i64),
    combine: impl Fn(&mut KernelBuilder, ExprId, ExprId) -> ExprId,
) -> ExprId {
    let mut distance = 1;
    while distance < lanes {
        let by = b.exprs().int(distance, DType::I32);
        let below = b.shuffle("below", value, ShuffleMode::Up, by);
        let both = combine(b, below, value);
        let last = b.int(distance - 1);
        let has = b.exprs().lt(last, lane);
        let next = b.exprs().ternary(TernaryOp::Where, has, both, value);
        value = b.let_("upto", next);
        distance *= 2;
    }
    value
}

/// An index as data of a type.
pub(super) fn as_data(b: &mut KernelBuilder, index: ExprId, dtype: DType) -> ExprId {
    let data = b.exprs().as_data(index);
    b.exprs().cast(data, dtype)
}

/// Data as an index.
pub(super) fn as_index(b: &mut KernelBuilder, data: ExprId) -> ExprId {
    let (index, index_type) = (b.exprs().as_index(data), b.index_type());
    b.exprs().cast(index, index_type)
}

/// The least power of two that is not below a number.
pub(super) fn power_of_two(n: i64) -> i64 {
    n.max(1).unsigned_abs().next_power_of_two() as i64
}

/// The number of a thread in its block along an axis.
pub(super) fn thread(b: &mut KernelBuilder, dim: Dim) -> ExprId {
    let index = b.index_type();
    let at = b.exprs().thread_idx(dim);
    b.exprs().cast(at, index)
}

/// A thread's lane, its warp, and its number in a block whose warps lie along y.
pub(super) fn lane_warp_thread(b: &mut KernelBuilder) -> [ExprId; 3] {
    let (lane, warp) = (thread(b, Dim::X), thread(b, Dim::Y));
    let lanes = b.int(LANES);
    let number = b.exprs().mul(warp, lanes);
    let number = b.exprs().add(number, lane);
    [lane, warp, b.let_("thread", number)]
}

/// The number of the block, of one axis.
pub(super) fn block(b: &mut KernelBuilder) -> ExprId {
    let index = b.index_type();
    let at = b.exprs().block_idx(Dim::X);
    b.exprs().cast(at, index)
}
