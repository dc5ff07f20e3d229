//! Elementwise fusions.
//!
//! The dimensions are taken in the memory order of the largest tensor and
//! collapsed. One dimension is cut into vectors, threads, unrolled steps and
//! blocks. With several (broadcasts, strides, permutations) a *break point*
//! divides them in two merged axes: the inner one is cut like the 1-D case, the
//! outer one gives rows to the block and the grid, so that a tensor that is
//! broadcast along the rows is read once for several rows. Where only a few tensors are
//! broadcast, and the others are one run of memory each, the 1-D case serves better; and where rows are joined of
//! parts, all of whole vectors.
//!
//! Inputs whose elements lie apart, as the first of pairs do, are loaded one by one. There vectors are words: the accesses of
//! neighbouring threads are neighbours then.
//!
//! Memory serves blocks best that run at the same time and take what lies side by side. So blocks follow each other along the
//! rows, unless what is the same for all rows is found the nearer the other way.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::is_heavy;
use super::shared_tile::{SECTOR_BYTES, WORD_BYTES, extent_of};
use super::spread::{MOST_LOOKUPS, looks_along, looks_beside, reads_spread, word_within};
use super::structure::whole_of;
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, collapse, keep_for_stores, merge_all, next_power_of_two, tuned, vector_width,
};
use crate::diag::Result;
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{AxisId, Compute, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};

/// Grid dimensions y and z end here.
const MAX_GRID_Y: i64 = 65_535;

/// How many narrow vectors take the place of a wide one in a thread, at most; twice as many of less than a word.
const MOST_NARROW_STEPS: i64 = 2;

/// Elements that a thread makes of inputs whose elements lie apart, and rows of which it makes them where all rows have the same
/// inputs: those are read once then.
const MOST_SPREAD: i64 = 8;
const ROWS_OF_SPREAD: i64 = 8;

/// Elements of an inner axis of which the last block, that is not full, is a small part.
const FILLING: f64 = 8192.0;

/// Elements of a row that blocks serve well, and up to which narrow vectors serve as well as wide ones.
const LONG_ROW: i64 = 4096;

/// Vectors that a thread takes of one tensor where rows are taken together.
const MOST_FOLDED: i64 = 4;
/// Elements of the largest tensor from which that pays.
const LEAST_FOLDED: i64 = 1 << 18;
/// Rows that are taken as one, so many at least, of which blocks take several each.
const LEAST_STEPS: i64 = 32;
/// Elements of a row, beside many instructions.
const LONGEST_FOLDED: i64 = 8192;

/// Tensors that are broadcast to one run of memory, at most.
const MOST_BROADCAST: usize = 2;

/// Bytes of a vector with which rows of any length are as fast as with wider ones.
const LEAST_VECTOR_BYTES: i64 = 2 * WORD_BYTES;

/// The power of two of threads along a row from which on fewer eighths of it serve as well.
const LEAST_EIGHTHS: i64 = 16;
/// Threads of a block of short rows.
const ROW_THREADS: i64 = 128;

/// Bytes of a run that is worth keeping together.
const LEAST_RUN: f64 = 64.0;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "pointwise",
    accepts: |problem, scheduled| {
        if !problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has reductions".to_string()));
        }
        Ok(coverage::check(problem, scheduled)?)
    },
    choose: |problem, scheduled| Ok(Params::Pointwise(params(problem, scheduled))),
};

/// How one side of the break point is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cut {
    /// Threads of the block.
    threads: i64,
    /// Unrolled steps of a thread.
    unroll: i64,
    /// Whether the block tile divides the axis.
    exact: bool,
}

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PointwiseParams {
    /// Outer dimensions, slowest first; empty in the 1-D case.
    outer: Vec<AxisId>,
    /// Inner dimensions.
    inner: Vec<AxisId>,
    /// Rows that are taken as one, if vectors fit several where they do not fit one.
    fold: i64,
    /// Elements of a vector.
    vector: i64,
    /// Rows that start at odd places are aligned to this tensor, to so many of its elements.
    align: Option<(TvId, i64)>,
    /// The inner axis, in vectors.
    columns: Cut,
    /// The outer axis.
    rows: Cut,
    /// Whether the vector divides the inner axis.
    exact_vector: bool,
    /// Whether vectors are cut from the last of the inner dimensions, which they divide, and not
    /// from all of them merged: then no tensor's run in memory ends within a vector.
    last_alone: bool,
    grid: Grid,
}

/// How blocks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grid {
    /// Those of other rows first, along x: what is the same for all rows is near.
    RowsFirst,
    /// Those of the same rows first, along x.
    ColumnsFirst,
    /// The same, where all share x.
    Merged,
}

impl Grid {
    /// The order of so many blocks along columns and rows, of which those of the same rows should follow each other, or need not.
    fn of(columns: i64, rows: i64, columns_first: bool) -> Self {
        let fits = |blocks: i64| blocks <= MAX_GRID_Y;
        match columns_first && columns > 1 {
            true if fits(rows) => Self::ColumnsFirst,
            false if fits(columns) => Self::RowsFirst,
            _ => Self::Merged,
        }
    }
}

impl std::fmt::Display for PointwiseParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.outer.is_empty() { "1d" } else { "2d" };
        write!(
            f,
            "{kind} break {} vector {} threads {}x{} unroll {}x{}",
            self.outer.len(),
            self.vector,
            self.columns.threads,
            self.rows.threads,
            self.columns.unroll,
            self.rows.unroll
        )?;
        if self.fold > 1 {
            write!(f, " fold {}", self.fold)?;
        }
        match self.align {
            Some((_, to)) if to != self.vector => write!(f, " aligned to {to}"),
            Some(_) => f.write_str(" aligned"),
            None => Ok(()),
        }
    }
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> PointwiseParams {
    let &Problem { cx, summary, sizes } = problem;
    let extent = |root: AxisId| sizes.extent(scheduled, root);
    let reference = summary.largest(|tensor| !tensor.is_part);
    let mut order: Vec<AxisId> = reference.map(|tensor| tensor.order.clone()).unwrap_or_default();
    order.extend(summary.structure.roots.iter().filter(|root| !order.contains(root)).collect::<Vec<_>>());
    let groups = collapse(summary, &order);
    if let Some(params) = folded(problem, scheduled, &order, &groups) {
        return params;
    }
    let joined = joined_vector(problem, scheduled, &groups);
    let is_flat = joined.is_some() || is_flat(summary, &order) && !is_better_by_rows(problem, scheduled, &order);
    let split = if is_flat { 0 } else { break_point(summary, &groups, &extent) };
    let (outer, inner) = (groups[..split].concat(), groups[split..].concat());
    let inner_extent: i64 = inner.iter().map(|root| extent(*root)).fold(1, i64::saturating_mul);
    let rows: i64 = outer.iter().map(|root| extent(*root)).fold(1, i64::saturating_mul);

    let last = inner.last().copied();
    let runs = |tensor: &super::summary::GlobalTensor| last.is_some_and(|last| tensor.is_innermost(last));
    let mut widest = vector_width(summary, runs);
    let looks_beside = looks_beside(problem, scheduled);
    while widest > 1 && (inner_extent < widest || looks_beside.is_some_and(|(most, _)| widest > most)) {
        widest /= 2;
    }
    let element = summary.globals.iter().filter(|tensor| runs(tensor)).map(|tensor| tensor.bytes).max().unwrap_or(1);
    let is_spread = last.is_some_and(|last| reads_spread(summary, last, extent(last) * element <= WORD_BYTES));
    if is_spread {
        widest = word_within(summary, runs, inner.len()).min(widest);
    }
    let whole = |tensor: &&GlobalTensor| !tensor.is_part && tensor.order.len() == order.len();
    let full = summary.globals.iter().filter(|tensor| runs(tensor)).filter(whole);
    let fewest = joined.unwrap_or_else(|| fewest_accesses(full.clone(), &inner, widest, &extent));
    // Of several inner dimensions a narrow run is written sector by sector.
    let several = inner.len() > 1 && !outer.is_empty();
    let sectors = if several { aligned_to_sectors(full.clone(), &inner, fewest, inner_extent) } else { None };
    let vector = sectors.map_or(fewest, |(_, wider)| wider);
    let last_alone = sectors.is_none()
        && vector > 1
        && last.is_some_and(|last| extent(last) % vector == 0)
        && (is_flat || full.clone().any(|tensor| run_within(tensor, &inner) < inner.len()));
    let looks_along = looks_along(summary, last);
    let is_row = inner.len() == 1 && !outer.is_empty();
    let may_narrow = is_row && !looks_along && !joins_narrow_parts(problem, scheduled);
    let narrow = if may_narrow { narrow_vector(full.clone(), inner_extent, vector) } else { None };
    let vector = narrow.unwrap_or(vector);
    // Other rows of the largest tensors that start anywhere are shifted into place.
    let aligned = full.clone().all(|tensor| tensor.rows_aligned(vector, inner.len()));
    let align = match full.clone().next() {
        Some(first) if !aligned && vector > 1 && is_row => {
            let reference = full.clone().find(|tensor| tensor.is_output).unwrap_or(first);
            Some((reference.tv, vector))
        }
        _ => sectors.map(|(written, _)| (written.tv, SECTOR_BYTES / written.bytes)),
    };
    let padded = inner_extent + align.map_or(0, |(_, to)| to - 1);
    let vectors = ceil_div(padded, vector).max(1);
    let read = summary.globals.iter().filter(|tensor| !tensor.is_output && tensor.elements > 1);
    let (whole, broadcast): (Vec<_>, Vec<_>) = read.partition(|tensor| tensor.order.len() == order.len());
    // Rows that are shifted into place keep many loads of whole tensors under way; what is broadcast is near.
    let broadcast = if align.is_some() { broadcast.len().min(1) } else { broadcast.len() };
    let inputs = (whole.len() + broadcast).max(1) as i64;
    let threads = tuned(cx.options, "pointwise.threads", if looks_along { 256 } else { ROW_THREADS });
    let (threads_x, threads_y) = if outer.is_empty() {
        (threads, 1)
    } else {
        let x = few_idle(vectors).clamp(1, threads);
        (x, (threads / x).max(1))
    };
    // Enough loads in flight for each thread; fewer if the device would idle.
    let total_threads = vectors.saturating_mul(rows);
    let fill = i64::from(cx.device.sm_count) * i64::from(cx.device.max_threads_per_sm);
    let bytes = full.clone().map(|tensor| tensor.bytes).max().unwrap_or(1);
    let most = if vector * bytes < WORD_BYTES { 2 * MOST_NARROW_STEPS } else { MOST_NARROW_STEPS };
    let narrower = (widest / vector).clamp(1, most);
    let lookups = looks_beside.map_or(MOST_LOOKUPS, |(_, unroll)| unroll);
    let mut unroll = match (looks_along, is_spread) {
        (true, _) => lookups,
        (_, true) if whole.is_empty() => ROWS_OF_SPREAD,
        (_, true) => MOST_SPREAD / vector,
        _ => (4 / inputs).clamp(1, 4) * narrower,
    };
    while unroll > 1 && total_threads / unroll < 4 * fill {
        unroll /= 2;
    }
    let (unroll, beside) = match narrow {
        Some(_) => along_and_beside(ceil_div(vectors, threads_x), unroll),
        None => (unroll, 1),
    };
    let unroll = tuned(cx.options, "pointwise.unroll", unroll);
    // Along rows, a broadcast row is reused; else along the inner axis, and where vectors are narrow
    // since nothing fits a wider one.
    let along = outer.is_empty() || narrower > 1 || looks_along;
    let (unroll_x, unroll_y) = if along { (unroll, beside) } else { (1, unroll) };
    let has_blocks = unroll_x == 1 && threads_x == ROW_THREADS && vectors > ROW_THREADS && !outer.is_empty();
    let threads_x = if has_blocks { few_left(vectors) } else { threads_x };
    let exact_vector = align.is_none() && inner_extent % vector == 0;
    let tile_x = threads_x * unroll_x;
    let exact_x = exact_vector && vectors % tile_x == 0;
    let blocks = [ceil_div(vectors, tile_x), ceil_div(rows, threads_y * unroll_y)];
    let grid = match looks_along {
        true => Grid::Merged,
        false => Grid::of(blocks[0], blocks[1], !summary.globals.iter().any(|tensor| repeats(tensor, &outer))),
    };
    PointwiseParams {
        columns: Cut { threads: threads_x, unroll: unroll_x, exact: exact_x },
        rows: Cut { threads: threads_y, unroll: unroll_y, exact: rows % (threads_y * unroll_y) == 0 },
        outer,
        inner,
        vector,
        align,
        exact_vector,
        last_alone,
        fold: 1,
        grid,
    }
}

/// Threads for so many vectors of a row: as many eighths of a power of two, from five on, as take the fewest lanes of warps a row. Of
/// equals the most, since that is a rounder number and serves more rows.
fn few_idle(vectors: i64) -> i64 {
    let power = next_power_of_two(vectors);
    if power < LEAST_EIGHTHS {
        return power;
    }
    // Lanes of a block for all rows of which as many fit.
    let lanes = |threads: i64| {
        let rows = (ROW_THREADS / threads).max(1);
        (ceil_div(threads * rows, WARP) * WARP) as f64 / rows as f64
    };
    let enough = (5..=8).rev().map(|eighths| power / 8 * eighths).filter(|threads| *threads >= vectors);
    enough.min_by(|a, b| lanes(*a).total_cmp(&lanes(*b))).unwrap_or(power)
}

/// Threads for so many vectors of a row that has several blocks: as many warps, other than usual where more than a quarter of
/// their threads would have none, since those compute, too.
fn few_left(vectors: i64) -> i64 {
    let taken = |threads: i64| ceil_div(vectors, threads) * threads;
    if 4 * (taken(ROW_THREADS) - vectors) <= taken(ROW_THREADS) {
        return ROW_THREADS;
    }
    [ROW_THREADS, 5 * WARP, 6 * WARP, 3 * WARP].into_iter().min_by_key(|threads| taken(*threads)).unwrap_or(ROW_THREADS)
}

/// Whether a tensor has the same for several rows.
fn repeats(tensor: &GlobalTensor, outer: &[AxisId]) -> bool {
    tensor.elements > 1 && outer.iter().any(|root| !tensor.order.contains(root))
}

/// Of so many steps along a row those that a thread takes, about as many as are wanted and in each block the same; and the
/// rows of which it takes them, where one has fewer.
fn along_and_beside(steps: i64, wanted: i64) -> (i64, i64) {
    if wanted == 1 {
        return (1, 1);
    }
    let along = ceil_div(steps, ceil_div(steps, wanted + wanted / 2));
    (along, (wanted / along).max(1))
}

/// The widest vectors below the given width at multiples of which rows of whole tensors start, where these are short and the
/// vectors have a word at least: many of these are faster then than wide ones that are shifted into place, which take two
/// accesses each where a tensor has another shift. Single words are not, nor are long rows, but those of two words that have other
/// shifts.
fn narrow_vector<'a>(full: impl Iterator<Item = &'a GlobalTensor> + Clone, row: i64, vector: i64) -> Option<i64> {
    let bytes = full.clone().map(|tensor| tensor.bytes).max()?;
    let starts = |vector: i64| full.clone().all(|tensor| tensor.rows_aligned(vector, 1));
    let mut pairs_and_wider = std::iter::successors(Some(vector), |vector| Some(vector / 2)).take_while(|own| *own > 1);
    let own = pairs_and_wider.find(|own| starts(*own))?;
    // Rows with more between them have shifts of their own.
    let has_shifts = full.clone().any(|tensor| tensor.dense.iter().any(|dense| !dense));
    let is_wide = has_shifts && own * bytes >= LEAST_VECTOR_BYTES;
    ((row <= LONG_ROW || is_wide) && own < vector && own * bytes >= WORD_BYTES).then_some(own)
}

/// Rows that are no whole vectors, while several together are, of tensors that are one run of memory each: then these are taken as
/// one row, and what is the same for all rows is read by element, once for all that a thread takes.
fn folded(
    problem: &Problem<'_>,
    scheduled: &ScheduledFusion,
    order: &[AxisId],
    groups: &[Vec<AxisId>],
) -> Option<PointwiseParams> {
    let &Problem { cx, summary, .. } = problem;
    let [outer, inner] = groups else { return None };
    let [row, rows] = [inner, outer].map(|roots| extent_of(problem, scheduled, roots));
    let is_whole = |tensor: &&GlobalTensor| tensor.order.len() == order.len();
    let whole = || summary.globals.iter().filter(is_whole);
    let vector = vector_width(summary, |tensor| is_whole(&tensor));
    let fold = vector >> (row | vector).trailing_zeros();
    let has_rows = summary.globals.iter().any(|tensor| tensor.elements > 1 && tensor.order == *inner);
    let is_aligned = whole().all(|tensor| tensor.align % vector == 0);
    let least = tuned(cx.options, "pointwise.least_folded", LEAST_FOLDED);
    let is_large = row.saturating_mul(rows) >= least && rows / fold >= LEAST_STEPS.min(least);
    let work = Work::of(scheduled);
    if fold == 1 || !is_large || !has_rows || !is_aligned || work.is_random || !is_flat(summary, order) {
        return None;
    }
    let (vectors, steps) = (fold * row / vector, ceil_div(rows, fold));
    let most = tuned(cx.options, "pointwise.threads", 128);
    // As many threads as leave few without a vector, in steps that keep kernels few.
    let x = (ceil_div(ceil_div(vectors, ceil_div(vectors, most)), 8) * 8).min(most);
    let y = ((2 * most).min(i64::from(cx.device.max_threads_per_block)) / x).max(1);
    let fill = i64::from(cx.device.sm_count) * i64::from(cx.device.max_threads_per_sm);
    let wanted = (MOST_FOLDED / whole().filter(|tensor| !tensor.is_output).count().max(1) as i64).max(2);
    let mut unroll = wanted;
    while unroll > 1 && vectors.saturating_mul(steps) / unroll < 2 * fill {
        unroll /= 2;
    }
    // Beside many instructions it pays for many rows only.
    if work.is_heavy && (unroll < wanted || row > LONGEST_FOLDED) && least > 1 {
        return None;
    }
    let unroll = tuned(cx.options, "pointwise.unroll", unroll);
    (steps >= unroll).then(|| PointwiseParams {
        outer: outer.clone(),
        inner: inner.clone(),
        fold,
        vector,
        align: None,
        columns: Cut { threads: x, unroll: 1, exact: vectors % x == 0 },
        rows: Cut { threads: y, unroll, exact: rows % (fold * y * unroll) == 0 },
        exact_vector: true,
        last_alone: false,
        // What is the same for all rows, a thread reads once for several.
        grid: Grid::of(ceil_div(vectors, x), ceil_div(steps, y * unroll), true),
    })
}

/// Where the rows of results are joined of parts, and all rows are whole vectors of two words at least: the width of such
/// vectors. Then rows do not matter, and each vector finds its part by a division. Nothing else is read.
fn joined_vector(problem: &Problem<'_>, scheduled: &ScheduledFusion, groups: &[Vec<AxisId>]) -> Option<i64> {
    let &Problem { summary, sizes, .. } = problem;
    let [outer, inner] = groups else { return None };
    let [last] = inner[..] else { return None };
    let is_whole = |tensor: &GlobalTensor| tensor.dense.iter().all(|dense| *dense);
    let is_joined = |tensor: &GlobalTensor| {
        tensor.is_innermost(last) && tensor.order.len() == outer.len() + 1 && (tensor.is_part || is_whole(tensor))
    };
    if !summary.globals.iter().any(|tensor| tensor.is_part) || !summary.globals.iter().all(is_joined) {
        return None;
    }
    let mut ends = vec![sizes.extent(scheduled, last)];
    for tensor in summary.globals.iter().filter(|tensor| tensor.is_part) {
        let (start, part) = part_along(problem, scheduled, tensor)?;
        ends.extend([start, start + sizes.extent(scheduled, part)]);
    }
    let bytes = summary.globals.iter().map(|tensor| tensor.bytes).max()?;
    let fits = |vector: i64| {
        let starts = summary.globals.iter().all(|tensor| tensor.rows_aligned(vector, 1));
        starts && ends.iter().all(|end| end % vector == 0)
    };
    let widest = vector_width(summary, |_| true);
    let widths = std::iter::successors(Some(widest), |vector| Some(vector / 2));
    let least = tuned(problem.cx.options, "pointwise.joined", LEAST_VECTOR_BYTES);
    let is_wide = |vector: &i64| (*vector > 1 || bytes <= WORD_BYTES) && vector * bytes >= least;
    widths.take_while(is_wide).find(|vector| fits(*vector))
}

/// The axis of a tensor that is part of another one, if there is one such, with its place there.
fn part_along(problem: &Problem<'_>, scheduled: &ScheduledFusion, tensor: &GlobalTensor) -> Option<(i64, AxisId)> {
    let is_part = |axis: &AxisId| whole_of(scheduled, *axis) != Some(*axis);
    let mut parts = scheduled.tensors[tensor.tv].indexed().filter(is_part);
    let part = parts.next().filter(|_| parts.next().is_none())?;
    Some((problem.sizes.place(scheduled, part)?, part))
}

/// Whether several parts are joined of elements that are less than a word, some of which start where no word does: these would
/// be loaded one by one, of each part.
fn joins_narrow_parts(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> bool {
    let parts = || problem.summary.globals.iter().filter(|tensor| tensor.is_part && tensor.bytes < WORD_BYTES);
    let is_odd = |tensor: &GlobalTensor| {
        let word = WORD_BYTES / tensor.bytes;
        let place = part_along(problem, scheduled, tensor).map_or(0, |(place, _)| place);
        place % word != 0 || !tensor.rows_aligned(word, 1)
    };
    parts().count() > 1 && parts().any(is_odd)
}

/// What is computed of an element.
struct Work {
    /// Whether random numbers are drawn.
    is_random: bool,
    /// Whether there are functions of many instructions.
    is_heavy: bool,
}

impl Work {
    fn of(scheduled: &ScheduledFusion) -> Self {
        let ops = || scheduled.tensors.values().filter_map(|data| data.op.as_ref());
        Self {
            is_random: ops().any(|op| matches!(op.compute, Compute::Random(_))),
            is_heavy: ops().any(|op| is_heavy(&op.compute)),
        }
    }
}

/// Whether all tensors with all dimensions are one run of memory each, and few are broadcast: then rows do not matter, and
/// what is broadcast is found by a division, which takes less than rows that start at odd places, or blocks that have
/// parts of several.
fn is_flat(summary: &Summary<'_>, order: &[AxisId]) -> bool {
    let (whole, others): (Vec<&GlobalTensor>, Vec<&GlobalTensor>) = summary
        .globals
        .iter()
        .filter(|tensor| tensor.elements > 1)
        .partition(|tensor| tensor.order.len() == order.len());
    let is_run =
        |tensor: &&GlobalTensor| !tensor.is_part && tensor.order == order && tensor.dense.iter().all(|dense| *dense);
    order.len() > 1 && !whole.is_empty() && whole.iter().all(is_run) && (1..=MOST_BROADCAST).contains(&others.len())
}

/// Whether rows are long and what finds each element of what is broadcast would take too much beside the rest: at odd
/// places two tensors, or one beside functions of many instructions; and beside random numbers, wherever rows start.
fn is_better_by_rows(problem: &Problem<'_>, scheduled: &ScheduledFusion, order: &[AxisId]) -> bool {
    let Some(row) = order.last().map(|last| problem.sizes.extent(scheduled, *last)) else { return false };
    let Work { is_random, is_heavy } = Work::of(scheduled);
    let broadcast =
        problem.summary.globals.iter().filter(|tensor| tensor.elements > 1 && tensor.order.len() < order.len());
    let is_odd = row % vector_width(problem.summary, |tensor| tensor.order.len() == order.len()) != 0;
    row >= LONG_ROW && (is_random || is_odd && (is_heavy || broadcast.count() > 1))
}

/// The result whose runs are written in parts of sectors by vectors of the given width, as long as these are narrow, if it has
/// all of the inner axes as one run of so many elements: it is written sector by sector then. And the width of vectors for that, a pair at least.
fn aligned_to_sectors<'a>(
    mut full: impl Iterator<Item = &'a GlobalTensor>,
    inner: &[AxisId],
    vector: i64,
    run: i64,
) -> Option<(&'a GlobalTensor, i64)> {
    let written = full.find(|tensor| tensor.is_output && run_within(tensor, inner) == inner.len())?;
    let sector = SECTOR_BYTES / written.bytes;
    let is_narrow = vector * written.bytes <= WORD_BYTES && sector > 1;
    // Facts do not reach as far as a sector; sizes do.
    let starts_sectors = run % sector == 0 && written.rows_aligned(vector, inner.len());
    let pair = (WORD_BYTES / written.bytes).clamp(1, 2);
    let wider = if written.align % pair == 0 { vector.max(pair) } else { vector };
    // A thread that loads single bytes has the more to do the more of them it stores.
    let is_worth_it = vector > 1 || wider * written.bytes >= WORD_BYTES;
    (is_narrow && is_worth_it && run > sector && !starts_sectors).then_some((written, wider))
}

/// The width of vectors up to the widest with which whole tensors take the fewest accesses; of
/// equals the wider one. Where the inner axes are several that a tensor does not have as one run
/// in memory, a vector is one access only within its run, and an access for each element elsewhere.
fn fewest_accesses<'a>(
    full: impl Iterator<Item = &'a GlobalTensor> + Clone,
    inner: &[AxisId],
    widest: i64,
    extent: &dyn Fn(AxisId) -> i64,
) -> i64 {
    // Of one axis, rows that start anywhere are shifted into place.
    if inner.len() < 2 {
        return widest;
    }
    let fits = |tensor: &GlobalTensor, vector: i64| {
        let run = run_within(tensor, inner);
        let elements = inner[inner.len() - run..].iter().fold(1i64, |n, root| n.saturating_mul(extent(*root)));
        tensor.rows_aligned(vector, run) && (run == inner.len() || elements % vector == 0)
    };
    let accesses = |vector: i64| -> f64 {
        full.clone().map(|tensor| if fits(tensor, vector) { 1.0 / vector as f64 } else { 1.0 }).sum()
    };
    let widths = (0..=widest.ilog2()).rev().map(|log| 1i64 << log);
    let width = widths.min_by(|a, b| accesses(*a).total_cmp(&accesses(*b))).unwrap_or(widest);
    // Neighbours are for neighbouring threads where no tensor has wide accesses.
    if full.clone().any(|tensor| fits(tensor, width)) { width } else { 1 }
}

/// How many of the inner axes, from the last one outwards, a tensor has as one run in memory.
fn run_within(tensor: &GlobalTensor, inner: &[AxisId]) -> usize {
    let ends = tensor.order.iter().rev().zip(inner.iter().rev()).zip(tensor.dense.iter().rev());
    ends.take_while(|((own, wanted), dense)| own == wanted && **dense).count()
}

/// The number of collapsed groups that form the outer axis: the cut that moves
/// the fewest bytes, where a tensor that lacks one side is counted once for it.
/// Of equals, the cut with the fewest dimensions on the inner side, since each takes a division a vector, as long as blocks
/// are filled; else that which leaves the most to the inner axis.
fn break_point(summary: &Summary<'_>, groups: &[Vec<AxisId>], extent: &dyn Fn(AxisId) -> i64) -> usize {
    if groups.len() < 2 {
        return 0;
    }
    let size = |groups: &[Vec<AxisId>]| -> f64 { groups.iter().flatten().map(|root| extent(*root) as f64).product() };
    let cost = |split: usize| -> f64 {
        let (left, right) = groups.split_at(split);
        summary
            .globals
            .iter()
            .map(|tensor| {
                let touches = |side: &[Vec<AxisId>]| side.iter().flatten().any(|root| tensor.order.contains(root));
                let left_size = if touches(left) { size(left) } else { 1.0 };
                let right_size = if touches(right) { size(right) } else { 1.0 };
                tensor.bytes as f64 * left_size * right_size
            })
            .sum()
    };
    // A cut whose inner side does not fill a few warps serves nobody, unless every wider one
    // takes neighbours apart that whole tensors have in memory, and it is made of whole vectors.
    let wide = |split: usize| size(&groups[split..]) >= (4 * WARP) as f64;
    let roots = groups.iter().flatten().count();
    let whole = || summary.globals.iter().filter(|tensor| tensor.order.len() == roots);
    let in_one_run = |split: usize| {
        let inner: Vec<AxisId> = groups[split..].concat();
        let run = |tensor: &GlobalTensor| {
            tensor.order.ends_with(&inner) && tensor.dense[roots - inner.len()..].iter().all(|dense| *dense)
        };
        whole().all(run)
    };
    let narrow = groups.len() - 1;
    let bytes = whole().map(|tensor| tensor.bytes).max().unwrap_or(1) as f64 * size(&groups[narrow..]);
    if bytes >= LEAST_RUN
        && bytes % MAX_ACCESS_BYTES as f64 == 0.0
        && in_one_run(narrow)
        && !(1..narrow).any(|split| wide(split) && in_one_run(split))
    {
        return narrow;
    }
    let least = (1..groups.len()).filter(|split| wide(*split)).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    let fills = |split: usize| size(&groups[split..]) >= FILLING;
    let shorter = |least: usize| (least..groups.len()).rev().find(|split| fills(*split) && cost(*split) == cost(least));
    least.map_or(narrow, |least| shorter(least).unwrap_or(least))
}

/// Cuts the inner axis into vectors: their axis, and the one within a vector. Inner rows may be several that are taken as one.
fn vectors(
    builder: &mut ScheduleBuilder,
    params: &PointwiseParams,
    folded: Option<AxisId>,
) -> Result<Option<(AxisId, AxisId)>> {
    if let (true, Some((last, before))) = (params.last_alone, params.inner.split_last()) {
        let (parts, lane) = builder.split(*last, params.vector, true)?;
        let merged = merge_all(builder, &[before, &[parts]].concat())?;
        return Ok(merged.map(|merged| (merged, lane)));
    }
    let Some(inner) = merge_all(builder, &params.inner)? else { return Ok(None) };
    let inner = match folded {
        Some(rows) => builder.merge(rows, inner)?,
        None => inner,
    };
    let inner = match params.align {
        Some((reference, to)) => builder.align(inner, to, reference, None)?,
        None => inner,
    };
    builder.split(inner, params.vector, params.exact_vector).map(Some)
}

/// Cuts the outer axis into groups of rows that are taken as one: their axis, and that of the rows of one.
fn fold_rows(builder: &mut ScheduleBuilder, params: &PointwiseParams) -> Result<Option<(AxisId, AxisId)>> {
    let Some(rows) = merge_all(builder, &params.outer)? else { return Ok(None) };
    builder.split(rows, params.fold, params.rows.exact).map(Some)
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &PointwiseParams) -> Result<()> {
    let caches = cache_inputs(builder, caching)?;
    let folded = if params.fold > 1 { fold_rows(builder, params)? } else { None };
    let Some((vectors, lane)) = vectors(builder, params, folded.map(|(_, rows)| rows))? else {
        // Scalars: a fusion without axes runs in one thread.
        return builder.propagate(&[]);
    };
    let (steps, thread) = builder.split(vectors, params.columns.threads, params.columns.exact)?;
    let (block, step) = builder.split(steps, params.columns.unroll, params.columns.exact)?;
    builder.parallelize(thread, ParallelType::Tidx)?;
    builder.parallelize(step, ParallelType::Unroll)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    let mut order = Vec::new();
    let mut loops = vec![step, lane];
    let outer = match folded {
        Some((outer, _)) => Some(outer),
        None => merge_all(builder, &params.outer)?,
    };
    match outer {
        None => {
            builder.parallelize(block, ParallelType::Bidx)?;
            order.push(block);
        }
        Some(rows) => {
            let (row_steps, row_thread) = builder.split(rows, params.rows.threads, params.rows.exact)?;
            let (row_block, row_step) = builder.split(row_steps, params.rows.unroll, params.rows.exact)?;
            builder.parallelize(row_thread, ParallelType::Tidy)?;
            builder.parallelize(row_step, ParallelType::Unroll)?;
            match params.grid {
                Grid::Merged => {
                    let block = builder.merge(row_block, block)?;
                    builder.parallelize(block, ParallelType::Bidx)?;
                    order.extend([block, row_thread]);
                }
                Grid::RowsFirst | Grid::ColumnsFirst => {
                    let (fast, slow) =
                        if params.grid == Grid::RowsFirst { (row_block, block) } else { (block, row_block) };
                    builder.parallelize(fast, ParallelType::Bidx)?;
                    builder.parallelize(slow, ParallelType::Bidy)?;
                    order.extend([row_block, block, row_thread]);
                }
            }
            loops.insert(0, row_step);
        }
    }
    order.push(thread);
    let prefix = order.len();
    order.extend(loops);
    builder.propagate(&order)?;
    let mut keep: Vec<_> = caches.into_iter().map(|cache| (cache, prefix)).collect();
    keep.extend(keep_for_stores(builder, lane));
    builder.inline_most(&keep)
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::{planned_concrete, planned_for, planned_of};
    use super::*;
    use crate::num::DType;
    use crate::tensor::{ArgMeta, TensorMeta};
    use crate::text;

    /// The parameters of rows with what is the same for all, thrice.
    #[track_caller]
    fn check_rows(dtype: DType, [rows, row]: [i64; 2], expected: &str) {
        let added = |a: &str, b: &str, sum: &str| {
            format!("  %{b}r = broadcast %{b} flags(true, false)\n  %{sum} = add %{a}, %{b}r\n")
        };
        let text = format!(
            "fusion @f(%x: {dtype}[?, ?], %a: {dtype}[?], %b: {dtype}[?], %c: {dtype}[?]) {{\n{}{}{}  %y = cast %r {dtype}\n  return %y\n}}",
            added("x", "a", "p"),
            added("p", "b", "q"),
            added("q", "c", "r"),
        );
        let inputs: [&[i64]; 4] = [&[rows, row], &[row], &[row], &[row]];
        let planned = planned_of(&text, &inputs.map(|sizes| (dtype, sizes))).expect("it is scheduled");
        assert_eq!(planned.params_text, expected, "{dtype} of {row}");
    }

    #[test]
    fn short_rows_take_the_vectors_that_they_start_at() {
        check_rows(DType::BF16, [23_456, 1234], "2d break 1 vector 2 threads 128x1 unroll 3x1");
        check_rows(DType::BF16, [400_000, 100], "2d break 1 vector 4 threads 32x4 unroll 1x2");
        check_rows(DType::BF16, [23_456, 1236], "2d break 1 vector 4 threads 128x1 unroll 3x1");
        // Single words, and long rows, are shifted into place.
        check_rows(DType::F32, [23_456, 1233], "2d break 1 vector 4 threads 128x1 unroll 1x2 aligned");
        check_rows(DType::BF16, [3456, 10_002], "2d break 1 vector 8 threads 128x1 unroll 1x2 aligned");
    }

    /// The parameters of rows that are joined of two.
    #[track_caller]
    fn check_joined(dtype: DType, [rows, first, second]: [i64; 3], expected: &str) {
        let text = format!(
            "fusion @f(%x: {dtype}[?, ?], %y: {dtype}[?, ?]) {{\n  %0 = mul %y, 2.0\n  %1 = cast %0 {dtype}\n  \
            %2 = cat %x, %1 dim(1)\n  return %2\n}}"
        );
        let tensors: [(DType, &[i64]); 2] = [(dtype, &[rows, first]), (dtype, &[rows, second])];
        let planned = planned_concrete(&text, &tensors).expect("it is scheduled");
        assert_eq!(planned.params_text, expected, "{dtype} of {first} and {second}");
    }

    #[test]
    fn joined_rows_of_whole_vectors_are_taken_as_one_run() {
        check_joined(DType::F32, [3001, 17_000, 8500], "1d break 0 vector 4 threads 128x1 unroll 2x1");
        check_joined(DType::BF16, [3001, 17_000, 8500], "1d break 0 vector 4 threads 128x1 unroll 4x1");
        check_joined(DType::BF16, [262_144, 384, 192], "1d break 0 vector 8 threads 128x1 unroll 2x1");
        check_joined(DType::F32, [12_345, 2046, 1002], "1d break 0 vector 2 threads 128x1 unroll 4x1");
        // Parts, or all of them together, that start at odd places.
        check_joined(DType::F32, [50_021, 999, 499], "2d break 1 vector 2 threads 128x1 unroll 6x1");
        check_joined(DType::BF16, [50_021, 999, 499], "2d break 1 vector 8 threads 192x1 unroll 1x2 aligned");
        check_joined(DType::BF16, [23_456, 1234, 617], "2d break 1 vector 8 threads 128x1 unroll 1x2 aligned");
    }

    /// The parameters of a product of elements of which each has so many places in rows, of which every second is read.
    #[track_caller]
    fn check_spread(dtype: DType, [rows, row, places]: [i64; 3], expected: &str) {
        let text = format!(
            "fusion @f(%x: {dtype}[?, ?], %y: {dtype}[?, ?]) {{\n  %0 = mul %x, %y\n  %1 = cast %0 {dtype}\n  return %1\n}}"
        );
        let meta = TensorMeta { dtype, sizes: vec![rows, row], strides: vec![2 * places * row, places] };
        let args = vec![ArgMeta::Tensor(meta); 2];
        let planned = planned_for(&text::parse_one(&text).expect("it reads"), &args).expect("it is scheduled");
        assert_eq!(planned.params_text, expected, "{dtype} of {row} with {places} places each");
    }

    #[test]
    fn elements_that_lie_apart_are_taken_in_words() {
        check_spread(DType::BF16, [16_384, 2048, 2], "2d break 1 vector 2 threads 128x1 unroll 1x4");
        check_spread(DType::BF16, [5001, 3333, 3], "2d break 1 vector 1 threads 128x1 unroll 1x8");
        check_spread(DType::F32, [8192, 2048, 2], "2d break 1 vector 1 threads 128x1 unroll 1x8");
    }

    #[test]
    fn blocks_follow_each_other_along_rows() {
        let orders = [(50, 1500), (1, 1500), (50, 70_000)].map(|(columns, rows)| Grid::of(columns, rows, true));
        assert_eq!(orders, [Grid::ColumnsFirst, Grid::RowsFirst, Grid::Merged]);
        let orders = [(50, 70_000), (70_000, 50)].map(|(columns, rows)| Grid::of(columns, rows, false));
        assert_eq!(orders, [Grid::RowsFirst, Grid::Merged]);
    }

    #[test]
    fn few_threads_are_idle_and_steps_are_even() {
        let threads = [3, 9, 12, 13, 15, 17, 24, 25, 33, 41, 49, 72, 90, 97].map(few_idle);
        assert_eq!(threads, [4, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 96, 128]);
        let steps =
            [(5, 4), (7, 4), (34, 4), (1, 8), (3, 8), (9, 1)].map(|(steps, wanted)| along_and_beside(steps, wanted));
        assert_eq!(steps, [(5, 1), (4, 1), (6, 1), (1, 8), (3, 2), (1, 1)]);
    }
}
