//! A short dimension in elementwise fusions whose tensors run along two different dimensions: it is one of the two, or
//! all tensors walk it innermost.
//!
//! A tile of plain rows and columns would take it in vectors that do not fit and with threads that have nothing to do;
//! without a tile, memory would be moved in pieces of a short run. So it is a constant of the kernel, and together
//! with what lies outside of it in memory it is one run, of which a block takes a part.
//!
//! In: the summary of a fusion. Out: the pattern with the most bytes, of which `images` and `heads` make kernels.

use super::choose::Problem;
use super::shared_tile::{extent_of, others};
use super::summary::GlobalTensor;
use super::tile::collapse;
use crate::diag::Result;
use crate::schedule::{AxisId, Loop, ParallelType, ScheduleBuilder, ScheduledFusion, Windows};

/// A pattern, with the dimensions as groups of neighbours that every tensor walks as one run.
pub(super) struct Short<'a> {
    pub(super) groups: Vec<Vec<AxisId>>,
    /// Of each group.
    pub(super) extents: Vec<i64>,
    /// The short group.
    pub(super) short: usize,
    /// Where both have the same long dimension, the short one lies innermost in the first one's runs, and in the rows of the
    /// second. Else it lies innermost in both.
    pub(super) sides: [ShortSide<'a>; 2],
}

/// The tensors that run along one long dimension.
#[derive(Clone)]
pub(super) struct ShortSide<'a> {
    /// The long group.
    pub(super) long: usize,
    pub(super) tensors: Vec<&'a GlobalTensor>,
}

impl ShortSide<'_> {
    /// Whether values are only read.
    pub(super) fn reads(&self) -> bool {
        self.tensors.iter().all(|tensor| !tensor.is_output)
    }

    /// Bytes of the widest element.
    pub(super) fn bytes(&self) -> i64 {
        self.tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(1)
    }

    /// Bytes of an element of each tensor.
    pub(super) fn bytes_of_all(&self) -> i64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    fn total_bytes(&self) -> i64 {
        let bytes = |tensor: &&GlobalTensor| tensor.elements.saturating_mul(tensor.bytes);
        self.tensors.iter().map(bytes).fold(0, i64::saturating_add)
    }
}

impl<'a> Short<'a> {
    /// Finds the pattern of a fusion, or none.
    pub(super) fn find(problem: &Problem<'a>, scheduled: &ScheduledFusion) -> Option<Self> {
        let summary = problem.summary;
        if !summary.structure.reduced.is_empty() {
            return None;
        }
        let groups = collapse(summary, &summary.largest(|_| true)?.order);
        let extents: Vec<i64> = groups.iter().map(|group| extent_of(problem, scheduled, group)).collect();
        let walks: Vec<(&GlobalTensor, Vec<usize>)> =
            summary.globals.iter().map(|tensor| (tensor, walk(tensor, &groups))).collect();
        let patterns = patterns(&walks, &groups, &extents);
        let whole = patterns.into_iter().filter(|(_, sides)| sides.iter().all(|side| !side.tensors.is_empty()));
        // Of those with equally many bytes, that with the shortest dimension: its runs are parts of longer ones.
        let (short, sides) = whole.min_by_key(|(short, sides)| {
            let least = sides.iter().map(ShortSide::total_bytes).min().unwrap_or(0);
            (std::cmp::Reverse(least), extents[*short])
        })?;
        let is_empty = sides.iter().any(|side| extents[side.long] == 0);
        (!is_empty).then_some(Self { groups, extents, short, sides })
    }

    /// Indices of the short dimension.
    pub(super) fn extent(&self) -> i64 {
        self.extents[self.short]
    }

    /// Bytes of the tensors of the smaller side.
    pub(super) fn least_bytes(&self) -> i64 {
        self.sides.iter().map(ShortSide::total_bytes).min().unwrap_or(0)
    }

    /// The dimensions that are in neither side, slowest first.
    pub(super) fn others(&self, problem: &Problem<'_>) -> Vec<AxisId> {
        others(problem, &self.groups, &[self.short, self.sides[0].long, self.sides[1].long])
    }
}

/// The groups that a tensor walks, inner to outer, up to the first that is not one run with the next.
fn walk(tensor: &GlobalTensor, groups: &[Vec<AxisId>]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for (position, root) in tensor.order.iter().enumerate().rev() {
        if !tensor.dense[position] {
            break;
        }
        let Some(group) = groups.iter().position(|group| group.contains(root)) else { break };
        if found.last() != Some(&group) {
            found.push(group);
        }
    }
    found
}

/// All candidates: the short dimension, and the sides.
fn patterns<'a>(
    walks: &[(&'a GlobalTensor, Vec<usize>)],
    groups: &[Vec<AxisId>],
    extents: &[i64],
) -> Vec<(usize, [ShortSide<'a>; 2])> {
    let of = |wanted: &dyn Fn(&[usize]) -> bool| -> Vec<&'a GlobalTensor> {
        let taken = walks.iter().filter(|(tensor, walk)| wanted(walk) && tensor.order.len() > 1);
        taken.map(|(tensor, _)| *tensor).collect()
    };
    let having = |tensors: &[&'a GlobalTensor], at: usize| -> Vec<&'a GlobalTensor> {
        let has = |tensor: &&&GlobalTensor| groups[at].iter().all(|root| tensor.order.contains(root));
        tensors.iter().filter(has).copied().collect()
    };
    let mut found = Vec::new();
    for short in (0..groups.len()).filter(|at| extents[*at] >= 2) {
        for first in (0..groups.len()).filter(|at| *at != short) {
            let flat = of(&|walk: &[usize]| walk.starts_with(&[short, first]));
            let plain = having(&of(&|walk: &[usize]| walk.first() == Some(&first)), short);
            let flat_side = ShortSide { long: first, tensors: flat.clone() };
            found.push((short, [flat_side, ShortSide { long: first, tensors: plain }]));
            for second in (first + 1..groups.len()).filter(|at| *at != short) {
                let other = of(&|walk: &[usize]| walk.starts_with(&[short, second]));
                let side = |long, tensors| ShortSide { long, tensors };
                found.push((short, [side(first, having(&flat, second)), side(second, having(&other, first))]));
            }
        }
    }
    found
}

/// What threads of a side run over within a tile.
pub(super) struct Axes {
    /// Part of a run.
    pub(super) run: AxisId,
    /// The rows, if there are several.
    pub(super) rows: Option<AxisId>,
}

impl Axes {
    /// The loops of a side: threads along its runs and then over rows, steps, the vector.
    pub(super) fn loops(&self, builder: &mut ScheduleBuilder, vector: i64, threads: i64) -> Result<[Loop; 3]> {
        let (lanes, vector) = builder.split(self.run, vector, true)?;
        let all = match self.rows {
            Some(rows) => builder.merge(rows, lanes)?,
            None => lanes,
        };
        let (steps, thread) = builder.split(all, threads, true)?;
        let place = |axis, parallel| Loop { axis, parallel };
        Ok([
            place(thread, ParallelType::Tidx),
            place(steps, ParallelType::Unroll),
            place(vector, ParallelType::Vectorize),
        ])
    }
}

/// Whole parts of an axis: windows that lie side by side.
pub(super) fn parts(step: i64) -> Windows {
    Windows { step, width: step, left: 0, aligned: None }
}
