//! Sums of columns where a row is no whole number of vectors, while several together are: those are taken as one.
//!
//! Of tensors that are one run of memory, `fold` rows are one *step* of whole vectors at multiples of their size,
//! whatever the length of a row. A thread has the same vector of each step that its block takes, and a sum for each lane: all
//! lanes of one sum are of one column. When all steps are done, blocks leave their sums in memory of the device, `fold` of
//! each column, wait for each other, and add them up: then threads along x are columns, and those along y blocks.
//!
//! (On an H200 sums of 805915x67 bf16 take 0.7 of the time that threads take which read elements.)

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::is_heavy;
use super::phases::{loops_of, set_loops, split_off};
use super::reduction::{accumulators, has_pairs};
use super::residency::REGISTER_BYTES;
use super::summary::GlobalTensor;
use super::tile::{
    BlockShape, Caching, cache_inputs, ceil_div, keep_for_stores, merge_all, next_power_of_two, tuned, vector_width,
};
use crate::diag::{Diagnostic, Result};
use crate::options::DeviceDesc;
use crate::schedule::{AxisId, Loop, Memory, ParallelType, Parts, ScheduleBuilder, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "folded_columns",
    writes_parts: false,
    accepts: |problem, scheduled| {
        coverage::check_plain(scheduled)?;
        coverage::check_direct(scheduled)?;
        if problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has no reduction".to_string()));
        }
        coverage::check(problem, scheduled)?;
        let rows = rows_of(problem, scheduled)?;
        best(problem, scheduled, &rows).map(|_| ())
    },
    choose: |problem, scheduled| params(problem, scheduled).map(Params::FoldedColumns),
};

/// Elements of the largest tensor that are worth a second phase.
const LEAST_ELEMENTS: i64 = 1 << 19;
/// Where rows are written and functions of many instructions computed of them, this many times as many elements, and rows
/// of so many at most: it matters less there how elements are read.
const HEAVY_TIMES: i64 = 4;
const LONGEST_HEAVY: i64 = 2048;
/// Threads read whole words beside each other as fast, but for rows of so few.
const WORD_BYTES: i64 = 4;
const LONGEST_OF_WORDS: i64 = 1024;
/// Threads of a block, blocks of a multiprocessor, and registers of a thread that this leaves, by what [`work_of`] counts;
/// the same where functions of many instructions are computed.
const BLOCKS: [(i64, i64, i64); 3] = [(512, 2, 68), (256, 3, 80), (256, 2, 130)];
const HEAVY_BLOCKS: [(i64, i64, i64); 3] = [(256, 4, 72), (256, 3, 80), (256, 2, 130)];
/// Registers of a thread whatever it holds.
const FIXED: i64 = 28;
/// Loads that a thread has in flight: of one input, and of several, or where maxima and sums are reduced in one go.
const LONE_LOADS: i64 = 2;
const LOADS: i64 = 4;
/// Vectors beside each other that a block takes.
const WIDTHS: [i64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Sums of blocks, written and read, are at most this part of what is moved.
const LEAST_PART: i64 = 4;
/// What these cost, in bytes that a multiprocessor moves in the time: each byte of them; each halving of the threads that
/// have sums of the same columns; and each time that a thread reads sums of blocks. (Fitted to some 700 times on an
/// H200, as is that the fewer vectors lie beside each other, the more it costs to have several tensors.)
const EXCHANGE: i64 = 10;
const HALVING: i64 = 14 << 10;
const PASS: i64 = 10 << 10;
/// Sums of blocks that a thread reads at once.
const SUMS_AT_ONCE: i64 = 4;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FoldedParams {
    /// Dimensions of rows, and along them, slowest first.
    rows: Vec<AxisId>,
    row: Vec<AxisId>,
    /// Rows of a step, and elements of a vector.
    fold: i64,
    vector: i64,
    /// Whether steps are whole.
    exact: bool,
    way: Way,
}

/// Who takes what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    /// Threads along the vectors of a step, and of different steps.
    threads: BlockShape,
    /// Steps of which a thread loads vectors at once.
    unroll: i64,
    /// Blocks that run at once, and how many of them on a multiprocessor.
    places: i64,
    per_sm: i64,
}

impl std::fmt::Display for FoldedParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Way { threads, unroll, places, per_sm } = self.way;
        write!(f, "fold {} vector {} threads {threads} unroll {unroll} ", self.fold, self.vector)?;
        write!(f, "grid {places} blocks {per_sm} per_sm")
    }
}

/// What rows are.
struct Rows {
    /// Dimensions of rows, and along them, slowest first.
    rows: Vec<AxisId>,
    row: Vec<AxisId>,
    /// Number of rows, and elements of one.
    number: i64,
    length: i64,
    /// Rows of a step, and elements of a vector.
    fold: i64,
    vector: i64,
}

/// What is done with an element.
struct Work {
    /// Tensors that have rows, and their bytes of an element.
    tensors: i64,
    moved_bytes: i64,
    /// Bytes of all sums of a column.
    sum_bytes: i64,
    /// Vectors that a thread loads at once.
    unroll: i64,
    /// Whether rows are written, and functions of many instructions computed of them.
    is_heavy: bool,
    /// Registers of a thread.
    registers: i64,
}

fn refused<T>(what: &str) -> Result<T, Refusal> {
    Err(Refusal::Pattern(what.to_string()))
}

/// Whether a tensor in memory has elements along what is reduced.
fn is_of_rows(problem: &Problem<'_>, tensor: &GlobalTensor) -> bool {
    tensor.order.iter().any(|root| problem.summary.structure.reduced.contains(root))
}

/// Finds the rows; refused where the fusion does something else.
fn rows_of(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<Rows, Refusal> {
    let &Problem { summary, sizes, .. } = problem;
    let structure = &summary.structure;
    if structure.persistent {
        return refused("a value varies along the reduced dimensions after the reduction");
    }
    let is_row = |tensor: &GlobalTensor| is_of_rows(problem, tensor);
    let Some(largest) = summary.largest(is_row) else { return refused("no tensor in memory has what is reduced") };
    let slow = largest.order.iter().take_while(|root| structure.reduced.contains(root)).count();
    let (rows, row) = largest.order.split_at(slow);
    if rows.len() != structure.reduced.len() || row.is_empty() || largest.order.len() != structure.roots.len() {
        return refused("what is reduced is not all dimensions but the fastest ones");
    }
    let has_columns = |tv: TvId| row.iter().all(|root| scheduled.tensors[tv].has_root(*root));
    if !scheduled.tensors.ids().filter(|tv| scheduled.is_reduction(*tv)).all(has_columns) {
        return refused("something is reduced that does not have all columns");
    }
    let vector = vector_width(summary, is_row);
    let is_whole = |tensor: &GlobalTensor| {
        let is_dense = tensor.order == largest.order && tensor.dense.iter().all(|dense| *dense);
        is_dense && tensor.align % vector == 0 && !tensor.is_part
    };
    if !summary.globals.iter().filter(|tensor| is_row(tensor)).all(is_whole) {
        return refused("some tensor with rows is not one run of memory along all dimensions");
    }
    coverage::check_not_random(scheduled)?;
    let extent = |roots: &[AxisId]| roots.iter().fold(1i64, |n, root| n.saturating_mul(sizes.extent(scheduled, *root)));
    let (number, length) = (extent(rows), extent(row));
    let fold = vector >> (length | vector).trailing_zeros();
    Ok(Rows { rows: rows.to_vec(), row: row.to_vec(), number, length, fold, vector })
}

/// What is done with them; refused where they are read as well one by one.
fn work_of(problem: &Problem<'_>, scheduled: &ScheduledFusion, rows: &Rows) -> Result<Work, Refusal> {
    let Rows { number, length, fold, vector, .. } = *rows;
    let least = tuned(problem.cx.options, "folded_columns.least", LEAST_ELEMENTS);
    let elements = number.saturating_mul(length);
    if fold == 1 {
        return refused("rows are whole vectors");
    }
    if elements < least {
        return refused("there are too few elements for a second phase");
    }
    let of_rows = || problem.summary.globals.iter().filter(|tensor| is_of_rows(problem, tensor));
    let inputs = of_rows().filter(|tensor| !tensor.is_output).count().max(1) as i64;
    let is_early = |tv: &TvId| rows.rows.iter().any(|root| scheduled.tensors[*tv].has_root(*root));
    let is_function = |tv: TvId| scheduled.tensors[tv].op.as_ref().is_some_and(|op| is_heavy(&op.compute));
    let has_functions = scheduled.tensors.ids().filter(is_early).any(is_function);
    let is_heavy = has_functions && of_rows().any(|tensor| tensor.is_output);
    if is_heavy && (length % 2 == 0 || length > LONGEST_HEAVY || elements < least.saturating_mul(HEAVY_TIMES)) {
        return refused("functions of many instructions are computed of rows that are pairs, long or few");
    }
    if of_rows().all(|tensor| tensor.bytes >= WORD_BYTES) && length > LONGEST_OF_WORDS {
        return refused("rows are of whole words, and long");
    }
    let loads = if inputs == 1 && !has_pairs(scheduled) { LONE_LOADS } else { LOADS };
    let unroll = (loads / next_power_of_two(inputs)).max(1);
    let read_bytes: i64 = of_rows().filter(|tensor| !tensor.is_output).map(|tensor| tensor.bytes).sum();
    // Parameters of columns are held, a number for each lane.
    let columns = |tensor: &&GlobalTensor| !tensor.is_output && !is_of_rows(problem, tensor) && tensor.elements > 1;
    let parameters = problem.summary.globals.iter().filter(columns).count() as i64;
    let pairs = scheduled.tensors.ids().filter(|tv| scheduled.reduces_pairs(*tv)).count() as i64;
    let held = accumulators(scheduled) + parameters + pairs;
    let sums = scheduled.tensors.ids().filter(|tv| scheduled.is_reduction(*tv));
    Ok(Work {
        tensors: of_rows().count() as i64,
        moved_bytes: of_rows().map(|tensor| tensor.bytes).sum(),
        sum_bytes: sums.map(|tv| scheduled.tensors[tv].dtype.bytes() as i64).sum(),
        unroll,
        is_heavy,
        registers: FIXED + vector * held + ceil_div(unroll * vector * read_bytes, REGISTER_BYTES),
    })
}

/// The way that takes the least time by the model, if blocks leave little and threads have the registers.
fn best(problem: &Problem<'_>, scheduled: &ScheduledFusion, rows: &Rows) -> Result<Way, Refusal> {
    let work = work_of(problem, scheduled, rows)?;
    let blocks = if work.is_heavy { HEAVY_BLOCKS } else { BLOCKS };
    let Some((threads, per_sm, _)) = blocks.into_iter().find(|(.., most)| work.registers <= *most) else {
        return refused("a thread has no registers for the sums of a vector");
    };
    let device = problem.cx.device;
    let fit = i64::from(device.max_threads_per_sm) / threads;
    let block = (threads, per_sm.min(fit).min(i64::from(device.max_blocks_per_sm)).max(1));
    let mut ways: Vec<(i64, Way)> = WIDTHS.into_iter().filter_map(|x| weigh(device, rows, &work, block, x)).collect();
    ways.sort_by_key(|(cost, _)| *cost);
    let place = tuned(problem.cx.options, "folded_columns.choice", 0);
    let place = usize::try_from(place).unwrap_or(0).min(ways.len().saturating_sub(1));
    match ways.into_iter().nth(place) {
        Some((_, way)) => Ok(way),
        None => refused("there are too few rows for what blocks leave of each column"),
    }
}

/// A way and what it costs: bytes that the busiest multiprocessor moves.
fn weigh(device: &DeviceDesc, rows: &Rows, work: &Work, (threads, per_sm): (i64, i64), x: i64) -> Option<(i64, Way)> {
    let Rows { number, length, fold, vector, .. } = *rows;
    let sms = i64::from(device.sm_count);
    let threads = BlockShape { x, y: threads / x };
    let places = per_sm * sms;
    let tiles = ceil_div(ceil_div(number, fold), threads.y * work.unroll);
    let beside = ceil_div(fold.saturating_mul(length) / vector, x);
    let share = Parts { places, beside: None }.share(tiles, beside);
    let parts = ceil_div(tiles, share);
    // Each block leaves its sums, which are written and read.
    let left = 2 * parts * fold * work.sum_bytes;
    let is_little = left.saturating_mul(LEAST_PART) <= number.saturating_mul(work.moved_bytes);
    let of_block = share.saturating_mul(threads.threads() * work.unroll * vector * work.moved_bytes);
    let busiest = of_block.saturating_mul(ceil_div(beside.saturating_mul(parts), sms));
    let scattered = if beside > 1 { busiest.saturating_mul(work.tensors) / x } else { 0 };
    let exchanged = (left.saturating_mul(length) / sms).saturating_mul(EXCHANGE);
    let passes = ceil_div(parts * fold, threads.y * SUMS_AT_ONCE);
    let fixed = HALVING * i64::from(threads.y.ilog2()) + PASS * passes * ceil_div(ceil_div(length, x), places);
    let cost = busiest.saturating_add(scattered).saturating_add(exchanged).saturating_add(fixed);
    (beside <= places && is_little).then_some((cost, Way { threads, unroll: work.unroll, places, per_sm }))
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<FoldedParams> {
    let refused = |_| Diagnostic::bug("columns that were accepted, and no way to add them up");
    let found = rows_of(problem, scheduled).map_err(refused)?;
    let way = best(problem, scheduled, &found).map_err(refused)?;
    let Rows { rows, row, fold, vector, number, .. } = found;
    Ok(FoldedParams { rows, row, fold, vector, exact: number % fold == 0, way })
}

/// Axes while steps are taken.
struct StepAxes {
    /// Blocks along steps, and along the vectors of one.
    part: AxisId,
    /// Rows of a step.
    fold: AxisId,
    /// Steps of a thread: in turn, and at once.
    turn: AxisId,
    at_once: AxisId,
    thread_y: AxisId,
    /// All columns.
    row: AxisId,
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &FoldedParams) -> Result<()> {
    // What columns are reduced of is read again as a rule, once maxima and sums are known.
    let is_read_again = has_pairs(builder.state());
    let caches = cache_inputs(builder, if is_read_again { caching.of_stores() } else { caching })?;
    let axes = split(builder, params)?;
    let sums: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    let workspaces = sums.iter().map(|sum| leave(builder, *sum, &axes)).collect::<Result<Vec<_>>>()?;
    // Reductions are split in stages before rows are merged with what they are not reduced over.
    let second = loops_of_columns(builder, params, &axes, &sums)?;
    let (first, lane) = loops_of_steps(builder, params, &axes)?;
    let later = split_off(builder, &workspaces)?;
    set_loops(builder, &later, &first, &second)?;
    builder.min_blocks(params.way.per_sm as u32)?;
    let keep = positions(builder, &caches, &later, lane);
    builder.inline_most(&keep)
}

fn split(builder: &mut ScheduleBuilder, params: &FoldedParams) -> Result<StepAxes> {
    let (Some(rows), Some(row)) = (merge_all(builder, &params.rows)?, merge_all(builder, &params.row)?) else {
        return Err(Diagnostic::bug("columns without an axis of rows, or along them"));
    };
    let Way { threads, unroll, places, .. } = params.way;
    let (steps, fold) = builder.split(rows, params.fold, params.exact)?;
    let (tiles, in_tile) = builder.split(steps, threads.y * unroll, false)?;
    // Blocks along the vectors of a step: ceil(vectors / x) = ceil(columns / (x * vector / fold)), as fold divides the vector.
    let (beside, _) = builder.split(row, threads.x * params.vector / params.fold, false)?;
    let (part, turn) = builder.split_parts(tiles, Parts { places, beside: Some(beside) }, false)?;
    let (at_once, thread_y) = builder.split(in_tile, threads.y, true)?;
    Ok(StepAxes { part, fold, turn, at_once, thread_y, row })
}

/// Splits a reduction in stages, of which those of a block end in a workspace, which it returns.
fn leave(builder: &mut ScheduleBuilder, sum: TvId, axes: &StepAxes) -> Result<TvId> {
    if builder.state().reduces_pairs(sum) {
        builder.rfactor_max(sum, &[axes.at_once])?;
        builder.rfactor(sum, &[axes.turn])?;
    } else {
        builder.rfactor(sum, &[axes.turn, axes.at_once])?;
    }
    let of_block = builder.rfactor(sum, &[axes.thread_y])?;
    let workspace = builder.phase_after(of_block)?;
    builder.cache_after(workspace)?;
    Ok(workspace)
}

/// The loops over steps, and that over a vector.
fn loops_of_steps(
    builder: &mut ScheduleBuilder,
    params: &FoldedParams,
    axes: &StepAxes,
) -> Result<(Vec<Loop>, AxisId)> {
    let step = builder.merge(axes.fold, axes.row)?;
    let (vectors, lane) = builder.split(step, params.vector, true)?;
    let (group, thread_x) = builder.split(vectors, params.way.threads.x, false)?;
    let block = builder.merge(axes.part, group)?;
    let loops = loops_of([
        (Some(block), ParallelType::Bidx),
        (Some(axes.thread_y), ParallelType::Tidy),
        (Some(thread_x), ParallelType::Tidx),
        (Some(axes.turn), ParallelType::Serial),
        (Some(axes.at_once), ParallelType::Unroll),
        (Some(lane), ParallelType::Vectorize),
    ]);
    Ok((loops, lane))
}

/// The loops over columns, with those over sums of blocks, of which threads have several each.
fn loops_of_columns(
    builder: &mut ScheduleBuilder,
    params: &FoldedParams,
    axes: &StepAxes,
    sums: &[TvId],
) -> Result<Vec<Loop>> {
    let Way { threads, places, .. } = params.way;
    let (groups, column) = builder.split(axes.row, threads.x, false)?;
    let (group, share) = builder.split_parts(groups, Parts { places, beside: None }, false)?;
    let left = builder.merge(axes.part, axes.fold)?;
    let (turns, thread) = builder.split(left, threads.y, false)?;
    let (turn, at_once) = builder.split(turns, SUMS_AT_ONCE, false)?;
    for sum in sums {
        builder.rfactor(*sum, &[turn, at_once])?;
    }
    Ok(loops_of([
        (Some(group), ParallelType::Bidx),
        (Some(thread), ParallelType::Tidy),
        (Some(column), ParallelType::Tidx),
        (Some(share), ParallelType::Serial),
        (Some(turn), ParallelType::Serial),
        (Some(at_once), ParallelType::Unroll),
    ]))
}

/// How deep values are computed at most: what is loaded outside of the loop over what a thread loads at once, what is stored
/// outside of that over a vector.
fn positions(builder: &ScheduleBuilder, caches: &[TvId], later: &BTreeSet<TvId>, lane: AxisId) -> Vec<(TvId, usize)> {
    let state = builder.state();
    let outside = |tv: TvId| {
        let loops = &state.tensors[tv].loops;
        let is_held = |own: &Loop| matches!(own.parallel, ParallelType::Unroll | ParallelType::Vectorize);
        (tv, loops.iter().position(is_held).unwrap_or(loops.len()))
    };
    let is_of_workspace = |tv: &TvId| {
        later.contains(tv) && state.producers(*tv).iter().any(|from| state.tensors[*from].memory == Memory::Global)
    };
    let loads = state.tensors.ids().filter(|tv| caches.contains(tv) || is_of_workspace(tv));
    loads.map(outside).chain(keep_for_stores(builder, lane)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Planned;
    use super::super::choose::tests::planned_of;
    use crate::diag::Result;
    use crate::num::DType;

    /// What a fusion of rows `x` and `y`, a number a row `r` and a parameter `w` is scheduled as.
    fn planned(dtype: DType, body: &str, [m, n]: [i64; 2]) -> Result<Planned> {
        let text =
            format!("fusion @f(%x: {dtype}[?, ?], %y: {dtype}[?, ?], %r: f32[?, 1], %w: bf16[?]) {{\n{body}\n}}");
        let rows = [m, n];
        planned_of(&text, &[(dtype, &rows), (dtype, &rows), (DType::F32, &[m, 1]), (DType::BF16, &[n])])
    }

    fn check(dtype: DType, body: &str, sizes: [i64; 2], scheduler: &str, params: &str) {
        let planned = planned(dtype, body, sizes).unwrap_or_else(|error| panic!("{body}\n{error:#?}"));
        let told = (planned.scheduler, planned.params_text.as_str());
        assert!(told.0 == scheduler && told.1.starts_with(params), "{body} {sizes:?}: {told:?}");
    }

    const SUM: &str = "%0 = sum %x axes(0)\nreturn %0";
    const PRODUCT: &str = "%0 = mul %x, %y\n%1 = sum %0 axes(0)\nreturn %1";
    const WRITTEN: &str = "%b = broadcast %w flags(true, false)\n%0 = mul %x, %b\n%1 = cast %0 bf16\n%2 = mul %x, %y\n\
         %3 = sum %2 axes(0)\nreturn %1, %3";
    const HEAVY: &str = "%0 = tanh %x\n%1 = sum %0 axes(0)\n%2 = cast %0 bf16\nreturn %2, %1";

    #[test]
    fn rows_are_taken_together_until_they_are_whole_vectors() {
        let folded = |sizes, params| check(DType::BF16, SUM, sizes, "folded_columns", params);
        folded([805_915, 67], "fold 8 vector 8 threads 8x64 unroll 2 grid 264 blocks 2 per_sm");
        folded([989_663, 54], "fold 4 vector 8 threads 16x32 unroll 2");
        folded([50_000, 300], "fold 2 vector 8 threads 16x32 unroll 2");
        folded([10_000_000, 3], "fold 8 vector 8 threads 4x128 unroll 2");
        folded([13_448, 4121], "fold 8 vector 8 threads 32x16 unroll 2");
        check(DType::F32, SUM, [805_915, 67], "folded_columns", "fold 4 vector 4 threads 8x64 unroll 2");
        check(DType::BF16, PRODUCT, [644_351, 105], "folded_columns", "fold 8 vector 8 threads 16x32 unroll 2");
        check(DType::BF16, WRITTEN, [13_448, 4121], "folded_columns", "fold 8 vector 8 threads 64x8 unroll 2");
        check(DType::BF16, HEAVY, [50_000, 333], "folded_columns", "fold 8 vector 8 threads 16x16 unroll 2 grid 528");
    }

    #[test]
    fn other_rows_are_taken_one_by_one() {
        let others = |dtype, body, sizes| check(dtype, body, sizes, "reduction", "outer");
        others(DType::BF16, SUM, [50_000, 320]);
        others(DType::BF16, SUM, [1000, 67]);
        // Blocks would leave more than they read, or there are more columns than blocks have at once.
        check(DType::BF16, SUM, [31, 74_637], "short_columns", "vector");
        others(DType::BF16, SUM, [231, 874_637]);
        others(DType::F32, SUM, [8891, 3253]);
        others(DType::BF16, HEAVY, [8891, 3253]);
        others(DType::BF16, HEAVY, [989_663, 54]);
        others(DType::BF16, "%0 = mul %x, %r\n%1 = sum %0 axes(0)\nreturn %1", [805_915, 67]);
    }
}
