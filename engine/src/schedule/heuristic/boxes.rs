//! Elementwise fusions that move blocks: tensors that walk several short dimensions in two orders, with different ones innermost,
//! as patches of images and what is shuffled between channels and pixels.
//!
//! No two of their dimensions are long enough for a tile of rows and columns. But the innermost dimensions of the inputs are
//! together one run of memory, a *box*, of which results have a few long runs. A block loads a box by vectors of that run, in
//! order, into shared memory, and computes it in the order of the results, by vectors of their runs; elements are read from
//! shared memory one by one.
//!
//! In: fusions without reductions, of dense tensors with all dimensions, in one of two orders. Rows of a box are skewed in shared
//! memory such that the elements that threads read together lie in different banks.

use super::choose::Problem;
use super::shared_tile::{
    BANKS_BYTES, LEAST_BYTES, MAX_SHARED, WORD_BYTES, bind_loops, blocks_of, extent_of, others, pass_input, widths,
};
use super::summary::GlobalTensor;
use super::tile::{Caching, WARP, cache_inputs, collapse, keep_for_stores, merge_all, tuned};
use crate::diag::{Diagnostic, Result};
use crate::kernel::gcd;
use crate::schedule::{AxisId, Columns, Loop, ParallelType, ScheduleBuilder, ScheduledFusion, Tile, TvId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Bytes of a box, at least, and of the runs that results have of it.
const LEAST_BOX: i64 = 1 << 10;
const LEAST_RUN: i64 = 128;
/// Threads of a block: the least, the most, and those that are best.
const FEWEST_THREADS: i64 = 64;
const MOST_THREADS: i64 = 768;
const BEST_THREADS: f64 = 256.0;
/// Vectors of a thread, at most.
const MOST_STEPS: i64 = 16;
/// Rows of a box that are skewed together.
const ROWS_TOGETHER: [i64; 4] = [1, 2, 4, 8];

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BoxParams {
    /// The dimensions outside of a box, slowest first.
    others: Vec<AxisId>,
    /// Those of a box as inputs walk them, outer to inner, and their extents.
    dimensions: Vec<(Vec<AxisId>, i64)>,
    /// Those before the runs of results, and those of the runs.
    before: Vec<usize>,
    run: Vec<usize>,
    /// Elements of a vector of inputs and of results.
    vectors: [i64; 2],
    skew: Skew,
    threads: i64,
    staged: Vec<TvId>,
}

/// How a box lies in shared memory: the dimensions outside of a row, and by how many elements so many rows are moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Skew {
    rows: usize,
    by: i64,
    every: i64,
}

impl std::fmt::Display for BoxParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dimensions, vectors: [loaded, computed], skew: Skew { by, every, .. }, threads, staged, .. } = self;
        let extents: Vec<String> = dimensions.iter().map(|(_, extent)| extent.to_string()).collect();
        write!(f, "box {} vectors {loaded}x{computed} threads {threads}", extents.join("x"))?;
        write!(f, " skew {by}/{every} staged {}", staged.len())
    }
}

/// The dimensions of a fusion, of which tensors walk all in one of two orders.
struct Orders<'a> {
    /// As groups of neighbours that every tensor walks as one run, in the order of results.
    groups: Vec<Vec<AxisId>>,
    extents: Vec<i64>,
    /// The order of inputs.
    read: Vec<usize>,
    staged: Vec<&'a GlobalTensor>,
    computed: Vec<&'a GlobalTensor>,
}

impl<'a> Orders<'a> {
    fn find(problem: &Problem<'a>, scheduled: &ScheduledFusion) -> Option<Self> {
        let summary = problem.summary;
        let written = summary.largest(|tensor| tensor.is_output)?;
        let groups = collapse(summary, &written.order);
        let is_whole = |tensor: &GlobalTensor| {
            !tensor.is_part && tensor.order.len() == written.order.len() && tensor.dense.iter().all(|dense| *dense)
        };
        let several: Vec<&GlobalTensor> = summary.globals.iter().filter(|tensor| tensor.elements > 1).collect();
        if !several.iter().all(|tensor| is_whole(tensor)) || written.order.len() != summary.structure.roots.len() {
            return None;
        }
        let (computed, staged): (Vec<_>, Vec<_>) =
            several.into_iter().partition(|tensor| tensor.order == written.order);
        let first = staged.first()?;
        let is_staged = |tensor: &&GlobalTensor| !tensor.is_output && tensor.order == first.order;
        let group_of = |root: &AxisId| groups.iter().position(|group| group.first() == Some(root));
        let read: Vec<usize> = first.order.iter().filter_map(group_of).collect();
        // What has one dimension innermost for all is moved by runs of that.
        let is_found = staged.iter().all(is_staged) && read.last() != groups.len().checked_sub(1).as_ref();
        let extents = groups.iter().map(|group| extent_of(problem, scheduled, group)).collect();
        is_found.then_some(Self { groups, extents, read, staged, computed })
    }

    /// Elements along dimensions.
    fn elements(&self, of: &[usize]) -> i64 {
        of.iter().fold(1, |n, at| n.saturating_mul(self.extents[*at]))
    }

    /// Roots of dimensions.
    fn roots(&self, of: &[usize]) -> usize {
        of.iter().map(|at| self.groups[*at].len()).sum()
    }
}

/// Bytes of the widest element.
fn widest(tensors: &[&GlobalTensor]) -> i64 {
    tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(1)
}

/// Chooses for the given sizes; none where the fusion has another pattern, or gains nothing by this one.
pub(super) fn plan(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Option<BoxParams> {
    let orders = Orders::find(problem, scheduled)?;
    let bytes = [widest(&orders.staged), widest(&orders.computed)];
    let all: i64 = orders.extents.iter().fold(1, |n, extent| n.saturating_mul(*extent));
    if all.saturating_mul(bytes[0]) < tuned(problem.cx.options, "transpose.least_bytes", LEAST_BYTES) {
        return None;
    }
    let boxes = (1..orders.read.len()).rev().filter_map(|outside| {
        let inside = &orders.read[outside..];
        let own: Vec<usize> = (0..orders.groups.len()).filter(|at| inside.contains(at)).collect();
        let ends = (0..orders.groups.len()).rev().take_while(|at| inside.contains(at)).count();
        let (before, run) = own.split_at(own.len() - ends);
        let elements = orders.elements(inside);
        let is_box = elements * bytes[0] >= LEAST_BOX && orders.elements(run) * bytes[1] >= LEAST_RUN;
        is_box.then(|| plan_for(problem, &orders, inside, [before, run])).flatten()
    });
    // The least one with the widest vectors, that is not the whole.
    boxes.min_by_key(|params| {
        let [loaded, computed] = [0, 1].map(|side| params.vectors[side] * bytes[side]);
        Reverse(loaded.min(computed))
    })
}

/// The same for a box of these dimensions.
fn plan_for(
    problem: &Problem<'_>,
    orders: &Orders<'_>,
    inside: &[usize],
    [before, run]: [&[usize]; 2],
) -> Option<BoxParams> {
    let elements = orders.elements(inside);
    let held: i64 = orders.staged.iter().map(|tensor| tensor.bytes).sum();
    if elements.saturating_mul(held) > MAX_SHARED {
        return None;
    }
    let vector = |tensors: &[&GlobalTensor], of: &[usize]| {
        let (length, roots, bytes) = (orders.elements(of), orders.roots(of), widest(tensors));
        let fits = |vector: &i64| length % vector == 0 && tensors.iter().all(|own| own.rows_aligned(*vector, roots));
        widths(bytes).take_while(|vector| vector * bytes >= WORD_BYTES).find(fits)
    };
    let vectors = [vector(&orders.staged, inside)?, vector(&orders.computed, run)?];
    let threads = threads_of(vectors.map(|vector| elements / vector))?;
    let extents: Vec<i64> = inside.iter().map(|at| orders.extents[*at]).collect();
    let place = |at: &usize| inside.iter().position(|own| own == at);
    let [before, run]: [Vec<usize>; 2] = [before, run].map(|of| of.iter().filter_map(place).collect());
    let walk =
        Walk { extents: &extents, order: &[&before[..], &run[..]].concat(), vectors, bytes: widest(&orders.staged) };
    Some(BoxParams {
        others: others(problem, &orders.groups, inside),
        dimensions: inside.iter().zip(&extents).map(|(at, extent)| (orders.groups[*at].clone(), *extent)).collect(),
        skew: walk.best(),
        before,
        run,
        vectors,
        threads,
        staged: orders.staged.iter().map(|tensor| tensor.tv).collect(),
    })
}

/// Threads of which each has as many vectors of either side as the others: with few lanes of warps idle, about as many as are best.
fn threads_of(counts: [i64; 2]) -> Option<i64> {
    let common = gcd(counts[0], counts[1]);
    let is_few = |threads: &i64| counts.iter().all(|count| count / threads <= MOST_STEPS);
    let candidates = (FEWEST_THREADS..=MOST_THREADS).filter(|threads| common % threads == 0).filter(is_few);
    let cost = |threads: &i64| {
        let lanes = (threads + WARP - 1) / WARP * WARP;
        lanes as f64 / *threads as f64 * (1.0 + 0.05 * (*threads as f64 / BEST_THREADS).log2().abs())
    };
    candidates.min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

/// How the elements of a box are read from shared memory.
struct Walk<'a> {
    /// The extents of its dimensions, outer to inner, and these in the order in which threads run over them.
    extents: &'a [i64],
    order: &'a [usize],
    vectors: [i64; 2],
    bytes: i64,
}

impl Walk<'_> {
    /// The skew with which threads meet least in a bank; of equals the simplest. Vectors stay whole.
    fn best(&self) -> Skew {
        let flat = Skew { rows: 0, by: 0, every: 1 };
        let row = |rows: usize| self.extents[rows..].iter().product::<i64>();
        let is_whole = |rows: &usize| row(*rows) % self.vectors[0] == 0;
        let skewed = (1..self.extents.len())
            .filter(is_whole)
            .flat_map(|rows| ROWS_TOGETHER.into_iter().map(move |every| Skew { rows, by: self.vectors[0], every }));
        std::iter::once(flat).chain(skewed).min_by_key(|skew| self.meetings(*skew)).unwrap_or(flat)
    }

    /// How often threads of the first warps meet in a bank, that read the first elements of their vectors.
    fn meetings(&self, skew: Skew) -> usize {
        let row: i64 = self.extents[skew.rows..].iter().product();
        let warp = |first: i64| {
            let mut words: Vec<BTreeSet<i64>> = vec![BTreeSet::new(); (BANKS_BYTES / WORD_BYTES) as usize];
            for lane in first..first + WARP {
                let place = self.place(lane * self.vectors[1]);
                let word = (place + skew.by * (place / row / skew.every)) * self.bytes / WORD_BYTES;
                words[(word % (BANKS_BYTES / WORD_BYTES)) as usize].insert(word);
            }
            words.iter().map(BTreeSet::len).max().unwrap_or(0)
        };
        warp(0) + warp(WARP)
    }

    /// The place in the order of inputs of an element by its number in the order of results, which starts again at the end.
    fn place(&self, mut number: i64) -> i64 {
        let mut indices = vec![0; self.extents.len()];
        for at in self.order.iter().rev() {
            indices[*at] = number % self.extents[*at];
            number /= self.extents[*at];
        }
        indices.iter().zip(self.extents).fold(0, |place, (index, extent)| place * extent + index)
    }
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &BoxParams) -> Result<()> {
    let BoxParams { others, dimensions, before, run, vectors, skew, threads, staged } = params;
    let caches = cache_inputs(builder, caching)?;
    let missing = || Diagnostic::bug("a box has no dimension");
    let (mut inside, mut outside) = (Vec::new(), others.clone());
    for (roots, extent) in dimensions {
        let axis = merge_all(builder, roots)?.ok_or_else(missing)?;
        if builder.state().axes.constant_extent(axis).is_some() {
            inside.push(axis);
            continue;
        }
        // Extents are constants.
        let (one, part) = builder.split_cover(axis, 1, *extent, true)?;
        outside.push(one);
        inside.push(part);
    }
    let grid = merge_all(builder, &outside)?.ok_or_else(missing)?;
    let [before, run] = [before, run].map(|of| of.iter().map(|at| inside[*at]).collect::<Vec<_>>());
    let run = merge_all(builder, &run)?.ok_or_else(missing)?;
    let (parts, lane) = builder.split(run, vectors[1], true)?;
    let all = merge_all(builder, &[&before[..], &[parts]].concat())?.ok_or_else(missing)?;
    let (steps, thread) = builder.split(all, *threads, true)?;
    let place = |axis, parallel| Loop { axis, parallel };
    let computing =
        [place(thread, ParallelType::Tidx), place(steps, ParallelType::Unroll), place(lane, ParallelType::Vectorize)];
    let (outer, inner) = inside.split_at(skew.rows);
    let tile_axes: Vec<AxisId> =
        [outer, inner].into_iter().filter_map(|of| merge_all(builder, of).transpose()).collect::<Result<_>>()?;
    let (row, rows) = tile_axes.split_last().ok_or_else(missing)?;
    let (parts, vector) = builder.split(*row, vectors[0], true)?;
    let all = merge_all(builder, &[rows, &[parts]].concat())?.ok_or_else(missing)?;
    let (steps, thread) = builder.split(all, *threads, true)?;
    let staging =
        [place(thread, ParallelType::Tidx), place(steps, ParallelType::Unroll), place(vector, ParallelType::Vectorize)];
    let grid = bind_loops(builder, grid, &computing)?;
    let elements = dimensions.iter().map(|(_, extent)| extent).product::<i64>();
    builder.min_blocks(blocks_of(*threads, builder.inputs().len(), elements / threads))?;
    let their_loops: Vec<Loop> = std::iter::once(grid).chain(staging).collect();
    let mut keep: Vec<(TvId, usize)> = caches.into_iter().map(|cache| (cache, 2)).collect();
    for input in staged {
        let columns = Columns::Skewed { by: skew.by, every: skew.every };
        let tile = Tile { axes: tile_axes.clone(), columns };
        keep.push((pass_input(builder, *input, [&their_loops, &their_loops], tile)?, 3));
    }
    keep.extend(keep_for_stores(builder, lane));
    builder.inline_most(&keep)
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::planned_of;
    use crate::num::DType;

    /// How patches `[b, h, w, p, q, c]` become rows `[b, c, h, p, w, q]`.
    #[track_caller]
    fn check(sizes: [i64; 6], expected: Option<&str>) {
        let dtype = DType::F32;
        let shape = sizes.map(|size| size.to_string()).join(", ");
        let text = format!(
            "fusion @f(%x: {dtype}[{shape}]) {{\n  %p = permute %x dims(0, 5, 1, 3, 2, 4)\n  %y = neg %p\n  return %y\n}}"
        );
        let planned = planned_of(&text, &[(dtype, &sizes)]).expect("it is scheduled");
        let found = (planned.scheduler == "transpose").then_some(planned.params_text.as_str());
        assert_eq!(found, expected, "{sizes:?}");
    }

    /// How channels `[n, c, 2, 2, h, w]` become pixels `[n, c, h, 2, w, 2]`.
    #[track_caller]
    fn check_shuffle([n, c, h, w]: [i64; 4], expected: &str) {
        let dtype = DType::F32;
        let text = format!(
            "fusion @f(%x: {dtype}[{n}, {c}, 2, 2, {h}, {w}]) {{\n  %y = permute %x dims(0, 1, 4, 2, 5, 3)\n  return %y\n}}"
        );
        let planned = planned_of(&text, &[(dtype, &[n, c, 2, 2, h, w])]).expect("it is scheduled");
        assert_eq!(planned.params_text, expected, "{h}x{w}");
    }

    #[test]
    fn rows_that_are_too_short_for_a_block_are_moved_in_boxes() {
        check_shuffle([3, 208, 26, 73], "box 2x2x26x73 vectors 4x4 threads 146 skew 0/1 staged 1");
        check_shuffle([4, 16, 135, 121], "image of 2 computed flat tile 128 vectors 2x1 threads 128 staged 1");
    }

    #[test]
    fn blocks_are_moved_in_boxes() {
        check([256, 32, 32, 2, 2, 8], Some("box 32x2x2x8 vectors 4x4 threads 256 skew 4/2 staged 1"));
        check([1021, 13, 11, 3, 3, 5], Some("box 11x3x3x5 vectors 1x1 threads 495 skew 0/1 staged 1"));
        // A box would be too large, or is small enough for the cache.
        check([4, 13, 411, 7, 7, 5], None);
        check([2, 3, 3, 3, 3, 5], None);
    }
}
