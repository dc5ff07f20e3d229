//! Results in rows beside each other, of which a thread of a reduction has several: as of all pairs of rows of two tensors,
//! where no operand has both a row's dimension and that of columns. The rows share what is loaded of columns.

use super::summary::{GlobalTensor, Summary};
use super::tile::{divides, power_of_two_below};
use crate::diag::Result;
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{AxisId, Loop, ParallelType, ScheduleBuilder, TvId};
use crate::util::sort_by_key;

/// Elements of a sum of pairs that are loaded one by one, where they are no whole vectors, at most.
const MOST_SINGLE: i64 = 32;
/// Longer sums are those of vectors first, so that fewer are added up one after the other.
const LONGEST_SUM: i64 = 128;
/// Rows of a thread, and registers of their sums, at most.
const MOST_ROWS: i64 = 8;
const MOST_ACCUMULATORS: i64 = 32;

/// Rows of results of which each thread has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Beside {
    /// The last of the dimensions that stay, so many, which are these rows.
    pub(super) axes: usize,
    /// Rows of a thread, and whether they divide all.
    pub(super) count: i64,
    pub(super) exact: bool,
}

impl Beside {
    /// How many of the last dimensions that stay no operand of the reductions has that has some of the fastest group.
    pub(super) fn axes(
        summary: &Summary<'_>,
        [kept, fast]: [&[AxisId]; 2],
        touches: impl Fn(&GlobalTensor) -> bool,
    ) -> Option<usize> {
        let has = |tensor: &GlobalTensor, roots: &[AxisId]| roots.iter().any(|root| tensor.order.contains(root));
        let of_columns = summary.globals.iter().filter(|tensor| touches(tensor) && has(tensor, fast));
        let without = |tensor: &GlobalTensor| kept.iter().rev().take_while(|root| !tensor.order.contains(root)).count();
        of_columns.map(without).min().filter(|axes| *axes > 0)
    }

    /// The elements of a vector along the one reduced axis, `slow`, of this length, if all operands lie along it. Few that are no
    /// whole vectors are loaded one by one.
    pub(super) fn along(
        summary: &Summary<'_>,
        touches: impl Fn(&GlobalTensor) -> bool + Copy,
        [kept, fast, slow]: [&[AxisId]; 3],
        length: i64,
    ) -> Option<i64> {
        let operands = || summary.globals.iter().filter(|tensor| touches(tensor));
        let width = MAX_ACCESS_BYTES / operands().map(|tensor| tensor.bytes).max()?;
        let [reduced] = *slow else { return None };
        let runs_along = |tensor: &GlobalTensor| tensor.is_innermost(reduced) && !tensor.is_part;
        let is_whole = divides(width, length) && operands().all(|tensor| tensor.rows_aligned(width, 1));
        let lies_along = width > 1 && operands().all(runs_along) && (is_whole || length > MOST_SINGLE);
        lies_along.then_some(width).filter(|_| Self::axes(summary, [kept, fast], touches).is_some())
    }

    /// As many as a thread has: of so many rows along these dimensions, of which one takes `registers` for its sums, and
    /// with more than `most` of which too few threads would be left.
    pub(super) fn new(axes: usize, rows: i64, [registers, most]: [i64; 2]) -> Option<Self> {
        let most = [MOST_ACCUMULATORS / registers.max(1), most, rows, MOST_ROWS].into_iter().min();
        let count = power_of_two_below(most.filter(|most| *most >= 2)?);
        Some(Self { axes, count, exact: divides(count, rows) })
    }
}

/// Whether sums of so many are made of those of vectors.
pub(super) fn is_long(length: i64) -> bool {
    length > LONGEST_SUM
}

/// Has a load of an operand end with the reduced elements of a tile, along which it lies: one vector of them. What else is loaded stays as it is.
pub(super) fn read_along(builder: &mut ScheduleBuilder, load: TvId, tile: &[AxisId]) -> Result<()> {
    let Some(&reduced) = tile.first() else { return Ok(()) };
    let own = builder.state().tensors[load].loops.clone();
    if !own.iter().any(|own| own.axis == reduced) {
        return Ok(());
    }
    let others = own.iter().filter(|own| own.axis != reduced).map(|own| match own.parallel {
        ParallelType::Vectorize => Loop { parallel: ParallelType::Unroll, ..*own },
        _ => *own,
    });
    let loops: Vec<Loop> = others.chain([Loop { axis: reduced, parallel: ParallelType::Vectorize }]).collect();
    builder.set_loops(load, &loops)
}

/// Where no operand lies along what would be the fastest dimension that stays, results do: their order is that of all.
pub(super) fn order_as_results(summary: &Summary<'_>, touches: impl Fn(&GlobalTensor) -> bool, order: &mut [AxisId]) {
    let is_reduced = |root: &AxisId| summary.structure.reduced.contains(root);
    let Some(fastest) = order.last().copied().filter(|root| !is_reduced(root)) else { return };
    let is_all = |tensor: &GlobalTensor| {
        tensor.is_output && order.iter().all(|root| is_reduced(root) || tensor.order.contains(root))
    };
    let is_along = |tensor: &GlobalTensor| touches(tensor) && tensor.order.last() == Some(&fastest);
    if let Some(result) = summary.largest(is_all).filter(|_| !summary.globals.iter().any(is_along)) {
        sort_by_key(order, |root| result.order.iter().position(|own| own == root));
    }
}
