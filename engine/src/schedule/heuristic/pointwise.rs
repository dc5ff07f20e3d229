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
use super::cuts::{aligned_to_sectors, break_point, fewest_accesses, last_apart, run_within};
use super::idle::{ROW_THREADS, along_and_beside, few_idle, few_left, few_left_of_many};
use super::norm_inner::is_heavy;
use super::shared_tile::{SECTOR_BYTES, WORD_BYTES, extent_of};
use super::spread::{MOST_LOOKUPS, looks_along, looks_beside, reads_spread, word_within};
use super::structure::whole_of;
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, collapse, keep_for_stores, merge_all, tuned, vector_width, widest_that,
};
use crate::diag::Result;
use crate::schedule::{AxisId, Compute, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};

/// Grid dimensions y and z end here.
const MAX_GRID_Y: i64 = 65_535;

/// How many narrow vectors take the place of a wide one in a thread, at most; twice as many of less than a word.
const MOST_NARROW_STEPS: i64 = 2;

/// How many rows take the place of a wide vector in a thread, at most, where a row is a part of one.
const MOST_SHORT_STEPS: i64 = 4;

/// Elements that a thread makes of inputs whose elements lie apart, and rows of which it makes them where all rows have the same
/// inputs: those are read once then.
const MOST_SPREAD: i64 = 8;
const ROWS_OF_SPREAD: i64 = 8;

/// Elements of a row that blocks serve well, and up to which narrow vectors serve as well as wide ones.
const LONG_ROW: i64 = 4096;

/// Vectors that a thread takes of one tensor where rows are taken together.
const MOST_FOLDED: i64 = 4;
/// Elements of the largest tensor from which that pays.
const LEAST_FOLDED: i64 = 1 << 18;
/// Rows that are taken as one, so many at least, of which blocks take several each.
const LEAST_STEPS: i64 = 32;
/// Copies of functions of long code that a thread has, where that is more than one vector, and half of them where it waits for
/// loads: code that does not fit the caches of instructions, and registers of all copies, cost more than what the next vector saves.
const MOST_LONG: i64 = 8;
/// Elements of a row, beside many instructions.
const LONGEST_FOLDED: i64 = 8192;

/// Tensors that are broadcast to one run of memory, at most, and where rows are so short that few of their vectors are whole.
const MOST_BROADCAST: usize = 2;
const MOST_TO_SHORT_ROWS: usize = 4;
/// Those of which a thread holds what it needs for all its rows.
const MOST_HELD: usize = 4;
/// Elements of such rows, at most.
const SHORT_ROW: i64 = 64;

/// Bytes of a vector with which rows of any length are as fast as with wider ones.
const LEAST_VECTOR_BYTES: i64 = 2 * WORD_BYTES;

/// Inputs from which on what is computed of an element takes as long as to load it.
const DENSE_INPUTS: i64 = 4;

/// Hundredths of lanes without a vector that are many, and where the others shift theirs into place.
const MANY_IDLE: i64 = 20;
const MANY_IDLE_SHIFTED: i64 = 16;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "pointwise",
    writes_parts: true,
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
    /// Whether threads go on from the vectors of a row to those of the next one.
    joined_rows: bool,
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
        if self.joined_rows {
            f.write_str(" joined")?;
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
    let looks_beside = looks_beside(problem, scheduled);
    let is_flat = joined.is_some()
        || is_flat(summary, &order, MOST_BROADCAST) && !is_better_by_rows(problem, scheduled, &order)
        || is_flat(summary, &order, MOST_TO_SHORT_ROWS) && has_short_rows(problem, scheduled, &groups);
    let groups = if looks_beside.is_some() { last_apart(groups) } else { groups };
    let split = if is_flat { 0 } else { break_point(summary, &groups, (&extent, looks_beside.is_some())) };
    let (outer, inner) = (groups[..split].concat(), groups[split..].concat());
    let inner_extent: i64 = inner.iter().map(|root| extent(*root)).fold(1, i64::saturating_mul);
    let rows: i64 = outer.iter().map(|root| extent(*root)).fold(1, i64::saturating_mul);

    let last = inner.last().copied();
    let runs = |tensor: &super::summary::GlobalTensor| last.is_some_and(|last| tensor.is_innermost(last));
    let fitting = vector_width(summary, runs);
    let mut widest = fitting;
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
        && (is_flat
            || full.clone().any(|tensor| run_within(tensor, &inner) < inner.len())
            || summary.globals.iter().any(|tensor| ends_before_last(tensor, &inner)));
    let looks_along = looks_along(summary, last);
    let is_row = inner.len() == 1 && !outer.is_empty();
    let narrow = match is_row && !looks_along {
        true => narrow_vector(full.clone(), inner_extent, vector, |vector| parts_start(problem, scheduled, vector)),
        false => None,
    };
    let vector = narrow.unwrap_or(vector);
    // Other rows of the largest tensors that start anywhere are shifted into place, and one run that begins anywhere in something else.
    let aligned = full.clone().all(|tensor| tensor.rows_aligned(vector, inner.len()));
    let begins_anywhere = |tensor: &GlobalTensor| tensor.align % vector != 0 && tensor.base_align % vector == 0;
    let is_odd_run = |tensor: &GlobalTensor| begins_anywhere(tensor) && run_within(tensor, &inner) == inner.len();
    let is_one_run = outer.is_empty() && !last_alone && full.clone().any(is_odd_run);
    let align = match full.clone().next() {
        Some(first) if !aligned && vector > 1 && (is_row || is_one_run) => {
            Some((full.clone().find(|tensor| tensor.is_output).unwrap_or(first).tv, vector))
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
    let narrower = match !outer.is_empty() && inner_extent < fitting {
        true => (fitting / vector).clamp(1, MOST_SHORT_STEPS),
        false => (widest / vector).clamp(1, most),
    };
    let lookups = looks_beside.map_or(MOST_LOOKUPS, |(_, unroll)| unroll);
    let mut unroll = match (looks_along, is_spread) {
        (true, _) => lookups,
        (_, true) if whole.is_empty() => ROWS_OF_SPREAD,
        (_, true) => MOST_SPREAD / vector,
        _ => (4 / inputs).clamp(1, 4) * narrower,
    };
    let long = Work::of(scheduled).long * vector;
    let most_long = if whole.is_empty() { MOST_LONG } else { 2 * MOST_LONG };
    while unroll > 1 && (total_threads / unroll < 4 * fill || long * unroll > most_long) {
        unroll /= 2;
    }
    let steps = ceil_div(vectors, threads_x);
    // Data find elements of a row again while blocks have few of their own.
    let finds_again = looks_along && looks_beside.is_none();
    let (unroll, beside) = match narrow {
        Some(_) => along_and_beside(steps, unroll),
        // Short rows have fewer steps than are wanted: others are beside each other.
        None if looks_beside.is_some() && !outer.is_empty() => (unroll.min(steps), (unroll / steps).max(1)),
        None => (unroll, 1),
    };
    let unroll = tuned(cx.options, "pointwise.unroll", unroll);
    // Along rows, a broadcast row is reused; else along the inner axis, and where vectors are narrow
    // since nothing fits a wider one.
    let along = outer.is_empty() || narrower > 1 || looks_along;
    // A thread that has all vectors of a row there are for it takes those of other rows.
    let is_whole = narrow.is_none() && !(finds_again && align.is_some());
    let is_all = is_whole && !outer.is_empty() && vectors <= threads_x;
    let (unroll_x, unroll_y) = if along && !is_all { (unroll, beside) } else { (1, unroll * beside) };
    let has_blocks = vectors > threads_x && !outer.is_empty();
    let is_dense = has_blocks && narrow.is_none() && !finds_again && (looks_along || inputs >= DENSE_INPUTS);
    let (threads_x, unroll_x) = match unroll_x {
        _ if is_dense => few_left_of_many(vectors, threads_x, unroll_x),
        1 if has_blocks && threads_x == ROW_THREADS => (few_left(vectors), 1),
        _ => (threads_x, unroll_x),
    };
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
        joined_rows: false,
    }
    .of_joined_rows(vectors, rows)
}

impl PointwiseParams {
    /// The same, or threads that go on from row to row: where a thread has one vector, and blocks have rows alone of which they leave
    /// so many of their lanes without any. It takes a division a thread, and places in each tensor that are its own.
    fn of_joined_rows(self, vectors: i64, rows: i64) -> Self {
        let lanes = ceil_div(self.columns.threads, WARP) * WARP * ceil_div(vectors, self.columns.threads);
        let has_one = [self.columns.unroll, self.rows.threads, self.rows.unroll] == [1; 3];
        let least = if self.align.is_some() { MANY_IDLE_SHIFTED } else { MANY_IDLE };
        if self.outer.is_empty() || !has_one || 100 * (lanes - vectors) < least * lanes || rows < ROW_THREADS {
            return self;
        }
        let exact = vectors.saturating_mul(rows) % ROW_THREADS == 0;
        let columns = Cut { threads: ROW_THREADS, unroll: 1, exact };
        Self { columns, rows: Cut { exact: true, ..self.rows }, joined_rows: true, ..self }
    }
}

/// Whether a tensor has the same for several rows.
fn repeats(tensor: &GlobalTensor, outer: &[AxisId]) -> bool {
    tensor.elements > 1 && outer.iter().any(|root| !tensor.order.contains(root))
}

/// The widest vectors below the given width at multiples of which rows of whole tensors start, where these are short and the
/// vectors have a word at least: many of these are faster then than wide ones that are shifted into place, which take two
/// accesses each where a tensor has another shift. Single words are not, nor are long rows, but those of two words that have other
/// shifts.
fn narrow_vector<'a>(
    full: impl Iterator<Item = &'a GlobalTensor> + Clone,
    row: i64,
    vector: i64,
    parts_start: impl Fn(i64) -> bool,
) -> Option<i64> {
    let bytes = full.clone().map(|tensor| tensor.bytes).max()?;
    let starts = |vector: i64| full.clone().all(|tensor| tensor.rows_aligned(vector, 1)) && parts_start(vector);
    let own = widest_that(vector, starts)?;
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
    // Of many that are broadcast each would be shifted into place, unless rows start at pairs.
    let has_many = row <= LONG_ROW
        && narrow_vector(whole(), row, vector, |vector| parts_start(problem, scheduled, vector)).is_none();
    let is_flat = is_flat(summary, order, if has_many { MOST_HELD } else { MOST_BROADCAST });
    if fold == 1 || !is_large || !has_rows || !is_aligned || work.is_random || !is_flat {
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
        joined_rows: false,
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

/// Whether all parts, if several are joined, start at multiples of a vector and have rows that do: elsewhere such vectors would
/// be loaded and stored one by one, since where rows of the whole start is known by their parts alone.
fn parts_start(problem: &Problem<'_>, scheduled: &ScheduledFusion, vector: i64) -> bool {
    let parts = || problem.summary.globals.iter().filter(|tensor| tensor.is_part);
    let starts = |tensor: &GlobalTensor| {
        let place = part_along(problem, scheduled, tensor).map_or(0, |(place, _)| place);
        place % vector == 0 && tensor.rows_aligned(vector, 1)
    };
    parts().count() < 2 || parts().all(starts)
}

/// What is computed of an element.
struct Work {
    /// Whether random numbers are drawn.
    is_random: bool,
    /// Whether there are functions of many instructions.
    is_heavy: bool,
    /// Functions of long code.
    long: i64,
}

impl Work {
    fn of(scheduled: &ScheduledFusion) -> Self {
        let ops = || scheduled.tensors.values().filter_map(|data| data.op.as_ref());
        Self {
            is_random: ops().any(|op| matches!(op.compute, Compute::Random(_))),
            is_heavy: ops().any(|op| is_heavy(&op.compute)),
            long: ops().filter(|op| matches!(op.compute, Compute::Unary(op) if op.is_long())).count() as i64,
        }
    }
}

/// Whether all tensors with all dimensions are one run of memory each, and no more than so many are broadcast: then rows do not matter, and
/// what is broadcast is found by a division, which takes less than rows that start at odd places, or blocks that have
/// parts of several.
fn is_flat(summary: &Summary<'_>, order: &[AxisId], most: usize) -> bool {
    let (whole, others): (Vec<&GlobalTensor>, Vec<&GlobalTensor>) = summary
        .globals
        .iter()
        .filter(|tensor| tensor.elements > 1)
        .partition(|tensor| tensor.order.len() == order.len());
    let is_run =
        |tensor: &&GlobalTensor| !tensor.is_part && tensor.order == order && tensor.dense.iter().all(|dense| *dense);
    order.len() > 1 && !whole.is_empty() && whole.iter().all(is_run) && (1..=most).contains(&others.len())
}

/// Whether rows are short, start at no pairs, and end at most once in a vector: what is the same for a row is found for two then.
fn has_short_rows(problem: &Problem<'_>, scheduled: &ScheduledFusion, groups: &[Vec<AxisId>]) -> bool {
    let Some(last) = groups.last() else { return false };
    let row = extent_of(problem, scheduled, last);
    let vector = vector_width(problem.summary, |tensor| last.last().is_some_and(|last| tensor.is_innermost(*last)));
    let divided = last.last().map_or(1, |last| problem.sizes.extent(scheduled, *last));
    row <= SHORT_ROW && row % 2 != 0 && vector > 1 && divided >= vector
}

/// Whether a tensor is the same along the last of the inner dimensions, but not along all of them.
fn ends_before_last(tensor: &GlobalTensor, inner: &[AxisId]) -> bool {
    inner.split_last().is_some_and(|(last, before)| {
        tensor.elements > 1 && !tensor.order.contains(last) && before.iter().any(|root| tensor.order.contains(root))
    })
}

/// Whether rows are long and what finds each element of what is broadcast would take too much beside the rest: at odd
/// places two tensors, or one beside functions of many instructions; and beside random numbers, wherever rows start.
fn is_better_by_rows(problem: &Problem<'_>, scheduled: &ScheduledFusion, order: &[AxisId]) -> bool {
    let Some(row) = order.last().map(|last| problem.sizes.extent(scheduled, *last)) else { return false };
    let Work { is_random, is_heavy, .. } = Work::of(scheduled);
    let broadcast =
        problem.summary.globals.iter().filter(|tensor| tensor.elements > 1 && tensor.order.len() < order.len());
    let is_odd = row % vector_width(problem.summary, |tensor| tensor.order.len() == order.len()) != 0;
    row >= LONG_ROW && (is_random || is_odd && (is_heavy || broadcast.count() > 1))
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
    let rows = if params.joined_rows { merge_all(builder, &params.outer)? } else { None };
    let vectors = rows.map_or(Ok(vectors), |rows| builder.merge(rows, vectors))?;
    let (steps, thread) = builder.split(vectors, params.columns.threads, params.columns.exact)?;
    let (block, step) = builder.split(steps, params.columns.unroll, params.columns.exact)?;
    builder.parallelize(thread, ParallelType::Tidx)?;
    builder.parallelize(step, ParallelType::Unroll)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    let mut order = Vec::new();
    let mut loops = vec![step, lane];
    let outer = match folded {
        Some((outer, _)) => Some(outer),
        None if params.joined_rows => None,
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
        // Of single words as many as make whole vectors are taken as one, and long rows are shifted into place.
        check_rows(DType::F32, [23_456, 1233], "2d break 1 vector 4 threads 128x2 unroll 1x4 fold 4");
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
        check_joined(DType::F32, [50_021, 999, 499], "2d break 1 vector 4 threads 128x1 unroll 1x2 aligned");
        check_joined(DType::BF16, [50_021, 999, 499], "2d break 1 vector 8 threads 192x1 unroll 1x2 aligned");
        // Pairs, where all parts start at such.
        check_joined(DType::BF16, [50_021, 998, 498], "2d break 1 vector 2 threads 128x1 unroll 6x1");
        check_joined(DType::BF16, [50_021, 1002, 502], "2d break 1 vector 2 threads 128x1 unroll 6x1");
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

    /// The parameters of what is computed of three thirds of rows.
    #[track_caller]
    fn check_parts(dtype: DType, [rows, row]: [i64; 2], expected: &str) {
        let text = format!(
            "fusion @f(%x: {dtype}[?, ?], %y: {dtype}[?, ?], %z: {dtype}[?, ?]) {{\n  %0 = mul %x, %y\n  %1 = add %0, %z\n  \
            %2 = cast %1 {dtype}\n  return %2\n}}"
        );
        let meta = TensorMeta { dtype, sizes: vec![rows, row], strides: vec![3 * row, 1] };
        let args = vec![ArgMeta::Tensor(meta); 3];
        let planned = planned_for(&text::parse_one(&text).expect("it reads"), &args).expect("it is scheduled");
        assert_eq!(planned.params_text, expected, "{dtype} of {row}");
    }

    #[test]
    fn threads_go_on_from_row_to_row_where_many_are_idle() {
        check_parts(DType::BF16, [4001, 1027], "2d break 1 vector 8 threads 128x1 unroll 1x1 joined aligned");
        check_parts(DType::BF16, [4001, 1536], "2d break 1 vector 8 threads 128x1 unroll 1x1 joined");
        check_parts(DType::BF16, [4001, 1032], "2d break 1 vector 8 threads 160x1 unroll 1x1");
        check_parts(DType::BF16, [4001, 2041], "2d break 1 vector 8 threads 128x1 unroll 1x1 aligned");
        check_parts(DType::F32, [4001, 523], "2d break 1 vector 4 threads 128x1 unroll 1x1 joined aligned");
    }

    /// The parameters of an outer product of rows and columns with what the first have.
    #[track_caller]
    fn check_outer([rows, columns, row]: [i64; 3], expected: &str) {
        let text = "fusion @f(%x: f32[?, ?], %y: f32[?, ?], %z: f32[?, ?]) {\n  %0 = broadcast %x flags(false, false, true)\n  \
            %1 = broadcast %y flags(false, true, false)\n  %2 = broadcast %z flags(false, false, true)\n  %3 = mul %0, %1\n  \
            %4 = add %3, %2\n  return %4\n}";
        let tensors: [&[i64]; 3] = [&[rows, columns], &[rows, row], &[rows, columns]];
        let planned = planned_of(text, &tensors.map(|sizes| (DType::F32, sizes))).expect("it is scheduled");
        assert_eq!(planned.params_text, expected, "{row}");
    }

    #[test]
    fn short_odd_rows_are_one_run() {
        check_outer([501, 771, 17], "1d break 0 vector 4 threads 128x1 unroll 1x1");
        check_outer([501, 771, 18], "2d break 1 vector 2 threads 128x1 unroll 2x1");
        check_outer([501, 771, 65], "2d break 1 vector 1 threads 128x1 unroll 8x1 aligned to 8");
    }

    #[test]
    fn blocks_follow_each_other_along_rows() {
        let orders = [(50, 1500), (1, 1500), (50, 70_000)].map(|(columns, rows)| Grid::of(columns, rows, true));
        assert_eq!(orders, [Grid::ColumnsFirst, Grid::RowsFirst, Grid::Merged]);
        let orders = [(50, 70_000), (70_000, 50)].map(|(columns, rows)| Grid::of(columns, rows, false));
        assert_eq!(orders, [Grid::RowsFirst, Grid::Merged]);
    }
}
