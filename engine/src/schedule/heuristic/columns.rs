//! How blocks of a reduction read columns: how many beside each other, with which threads and loads, and over how many blocks.

use super::reduction::{accumulators, has_pairs};
use super::tile::{WARP, ceil_div, next_power_of_two};
use super::typical::{STEPS, STEPS_OF_FEW, next_step};
use crate::num::BinaryOp;
use crate::options::DeviceDesc;
use crate::schedule::{Compute, ScheduledFusion, TvId};

/// Columns, one by one or in pairs, of which a block has all.
pub(super) const MOST_NARROW: i64 = 96;
/// Vectors of columns for which the same holds.
const MOST_FEW: i64 = 64;

/// Threads that share a sum of a few rows that are looked up, at most, and blocks of a multiprocessor, at least.
const MOST_LOOKED_UP: i64 = 4;
const LOOKED_UP_PER_SM: i64 = 16;

/// How blocks read columns.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// Vectors beside each other that a block takes at most, and its threads.
    pub(super) widest: i64,
    /// Whether all blocks take as many.
    pub(super) even: bool,
    pub(super) threads: i64,
    /// Loads that a thread has in flight, of all inputs together.
    pub(super) loads: i64,
    /// Blocks of a multiprocessor over which sums are spread: first as many as run at once, so that the last one of a
    /// column finds few results; then as many as leave none idle for long.
    pub(super) per_sm: [i64; 2],
    /// Whether registers are bounded so that as many do run at once.
    pub(super) bounded: bool,
}

impl Columns {
    /// Vectors that start at multiples of their size.
    const ALIGNED: Self = Self { widest: WARP, even: false, threads: 512, loads: 4, per_sm: [2, 4], bounded: false };
    /// Pairs of maxima and sums: a tile of many rows, since each takes some instructions beside those for its elements.
    const PAIRS: Self = Self { widest: WARP, even: false, threads: 256, loads: 8, per_sm: [2, 2], bounded: true };
    /// Sums and sums of squares in one go: few vectors beside each other, so that many blocks are the last one of some columns,
    /// and each of them finds few results.
    const MOMENTS: Self = Self { widest: 8, even: true, threads: 512, loads: 4, per_sm: [2, 4], bounded: true };
    /// Where something is written beside the sums, and more is computed as a rule.
    const WRITTEN: Self = Self { widest: 16, even: false, threads: 256, loads: 4, per_sm: [4, 4], bounded: true };
    /// Rows start at odd places, and a vector is made of the two words that it touches: one sum of one input, and others.
    const UNALIGNED: Self = Self { widest: 16, even: false, threads: 256, loads: 2, per_sm: [5, 5], bounded: true };
    const UNALIGNED_MORE: Self = Self { per_sm: [4, 4], bounded: false, ..Self::UNALIGNED };
    /// Element by element, where something is written there beside the sums: threads write beside each other.
    const WRITTEN_SINGLY: Self =
        Self { widest: WARP, even: false, threads: 256, loads: 16, per_sm: [8, 8], bounded: false };
    /// Few columns whose rows start at odd places: a block has all, and its threads are beside each other over all of its rows.
    const NARROW: Self =
        Self { widest: MOST_NARROW, even: false, threads: 512, loads: 16, per_sm: [3, 3], bounded: false };

    /// The same of rows that are looked up, few for each sum and many sums: where a row lies is known one load later, so a
    /// thread has several on their way, and threads that only wait for each other's sums are none.
    pub(super) fn of_few_rows(&self, [slow, vectors, kept]: [i64; 3], device: &DeviceDesc) -> Option<(Self, i64)> {
        let threads_y = next_power_of_two(ceil_div(slow, self.loads.max(1)));
        let columns = Self { widest: self.widest.max(4 * WARP), ..*self };
        let blocks = ceil_div(vectors, columns_of(vectors, columns.widest, false)).saturating_mul(kept);
        let is_few = threads_y <= MOST_LOOKED_UP && blocks >= LOOKED_UP_PER_SM * i64::from(device.sm_count);
        is_few.then_some((columns, threads_y))
    }
}

/// How blocks read columns of so many inputs: whether rows start at odd places, whether something is written there beside
/// the sums, and whether there are few columns.
pub(super) fn columns_for(
    scheduled: &ScheduledFusion,
    [misaligned, is_written, is_narrow]: [bool; 3],
    inputs: i64,
) -> Columns {
    match (misaligned, is_written) {
        (false, false) if has_pairs(scheduled) => Columns::PAIRS,
        (false, false) if has_moments(scheduled) => Columns::MOMENTS,
        (false, false) => Columns::ALIGNED,
        (false, true) => Columns::WRITTEN,
        _ if is_narrow => Columns::NARROW,
        (true, true) => Columns::WRITTEN_SINGLY,
        (true, false) if inputs == 1 && accumulators(scheduled) == 1 => Columns::UNALIGNED,
        (true, false) => Columns::UNALIGNED_MORE,
    }
}

/// Threads along so many vectors: of few all, in steps of an octave that leave few without one and keep kernels few; of few elements in
/// steps of an octave.
pub(super) fn columns_of(vectors: i64, widest: i64, are_few: bool) -> i64 {
    if vectors <= widest.max(MOST_FEW) {
        return next_step(vectors.max(1), if are_few { STEPS_OF_FEW } else { STEPS });
    }
    next_power_of_two(vectors).clamp(8, widest.min(WARP))
}

/// Whether sums are added up with sums of squares: of pairs of both.
pub(super) fn has_moments(scheduled: &ScheduledFusion) -> bool {
    let makes_pairs = |tv: &TvId| {
        let op = scheduled.tensors[*tv].op.as_ref();
        op.is_some_and(|op| op.compute == Compute::Binary(BinaryOp::Complex))
    };
    let reductions = || scheduled.tensors.ids().filter(|tv| scheduled.is_reduction(*tv));
    reductions().any(|tv| !scheduled.reduces_pairs(tv) && scheduled.producers(tv).iter().any(makes_pairs))
}
