//! Results in rows beside each other, of which a thread of a reduction has several: as of all pairs of rows of two tensors,
//! where no operand has both a row's dimension and that of columns. The rows share what is loaded of columns.

use super::summary::{GlobalTensor, Summary};
use super::tile::{divides, power_of_two_below};
use crate::schedule::AxisId;

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

    /// As many as a thread has: of so many rows along these dimensions, of which one takes `registers` for its sums, and
    /// with more than `most` of which too few threads would be left.
    pub(super) fn new(axes: usize, rows: i64, [registers, most]: [i64; 2]) -> Option<Self> {
        let most = [MOST_ACCUMULATORS / registers.max(1), most, rows, MOST_ROWS].into_iter().min();
        let count = power_of_two_below(most.filter(|most| *most >= 2)?);
        Some(Self { axes, count, exact: divides(count, rows) })
    }
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
        order.sort_by_key(|root| result.order.iter().position(|own| own == root));
    }
}
