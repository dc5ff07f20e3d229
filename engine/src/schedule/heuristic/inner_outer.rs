//! Reductions over rows and over columns of the same tensors: gradients of a normalisation.
//!
//! Rows are taken in turn by as many blocks as run at once. Each block holds a row, or several short ones at once, in the
//! registers of its threads, as `norm_inner` does, and adds what it has of the columns up in registers too, a sum for each
//! element that a thread holds. When all rows are done, a block adds up what it has of several rows at once; blocks leave
//! their sums in memory of the device, wait for each other, and add those of all blocks: then a block has a part of the
//! columns, and its threads one block's sums each. So memory is read once, where two kernels would read it twice.
//!
//! What differs from row to row comes through a ring in shared memory, two rows ahead, which leaves the registers to sums.
//! No asynchronous copy moves two bytes: what has vectors of no more, as rows at odd places do, is loaded one row ahead into
//! registers instead.
//!
//! Of long rows registers have room for sums of columns alone. Then a row stays in the ring, of fewer stages if need be, and
//! each stage of the computation reads it there again; parameters stay in registers or shared memory. Of one stage the elements of the next row follow those of this one as soon as they were read for the last time.
//!
//! Afterwards what ran over blocks runs over threads, and the other way round: a thread adds up the sums of each
//! `threads * at_once`-th block, for the vectors of `threads / groups` threads of a row; there are as many groups as blocks at
//! most.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::column_ways::{Held, LEAST_SHARED, Row, STAGES, Way, may_add_columns, ways};
use super::coverage;
use super::norm_inner::{along_row, is_cheap, is_repeatable, prefetch_rows};
use super::phases::{descendants, loops_of, reduced_over, set_loops, split_off};
use super::recompute::{recompute, recompute_in_loop};
use super::residency::{REGISTER_BYTES, is_load};
use super::structure::Side;
use super::summary::GlobalTensor;
use super::tile::{
    Caching, cache_inputs, ceil_div, collapse, divides, keep_for_stores, merge_all, vector_width, widest_that,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{AxisId, Compute, Loop, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "inner_outer",
    writes_parts: false,
    accepts: |problem, scheduled| {
        coverage::check_direct(scheduled)?;
        let shape = shape_of(problem, scheduled)?;
        match ways_of(problem, &shape.one).is_empty() {
            true => Err(Refusal::Pattern("no block holds a row and what it adds up of the columns".to_string())),
            false => Ok(()),
        }
    },
    choose: |problem, scheduled| params(problem, scheduled).map(Params::InnerOuter),
};

/// Bytes that an asynchronous copy moves at least.
const LEAST_COPIED: i64 = 4;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InnerOuterParams {
    /// Dimensions of rows, and along them, slowest first.
    rows: Vec<AxisId>,
    row: Vec<AxisId>,
    vector: i64,
    /// Whether some of a row is loaded a row ahead into registers, as no asynchronous copy moves it.
    is_ahead: bool,
    way: Way,
    /// Whether the threads' vectors are exactly the row, and the blocks divide the rows.
    exact: bool,
    exact_rows: bool,
}

impl std::fmt::Display for InnerOuterParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Way { batch, threads, at_once, blocks, per_sm, held } = self.way;
        write!(f, "vector {} batch {batch} threads {threads}", self.vector)?;
        if at_once > 1 {
            write!(f, "x{at_once}")?;
        }
        write!(f, " blocks {blocks} {per_sm} per_sm{held}{}", if self.is_ahead { " ahead" } else { "" })
    }
}

/// What of the fusion's dimensions are rows.
struct Shape {
    /// Dimensions of rows, and along them, slowest first.
    rows: Vec<AxisId>,
    row: Vec<AxisId>,
    /// What one of them is.
    one: Row,
}

/// Finds the rows; refused where the fusion does something else.
fn shape_of(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<Shape, Refusal> {
    let summary = problem.summary;
    coverage::check_plain(scheduled)?;
    let refused = |what: &str| Err(Refusal::Pattern(what.to_string()));
    let Some(mixed) = &summary.structure.mixed else {
        return refused("there are not both reductions over rows and over columns");
    };
    let Some(sides) = &mixed.sides else {
        return refused("reductions are over more than rows and columns");
    };
    let roots = &summary.structure.roots;
    let has_all = |tensor: &GlobalTensor| roots.iter().all(|root| tensor.order.contains(root));
    let Some(largest) = summary.largest(has_all) else {
        return refused("no tensor in memory has both rows and columns");
    };
    let Some(side) = sides.iter().find(|side| largest.order.last().is_some_and(|last| side.reduced.contains(last)))
    else {
        return refused("the fastest dimension is not reduced");
    };
    let along = largest.order.iter().filter(|root| side.reduced.contains(root)).count();
    let (rows, row) = largest.order.split_at(largest.order.len() - along);
    if rows.iter().any(|root| side.reduced.contains(root)) || collapse(summary, row).len() != 1 {
        return refused("rows are not one run of memory");
    }
    let columns: BTreeSet<AxisId> = rows.iter().copied().collect();
    let over = |tv: TvId| reduced_over(scheduled, tv);
    let sums: Vec<TvId> = scheduled.tensors.ids().filter(|tv| over(*tv).is_some_and(|over| over == columns)).collect();
    if let Some(reason) = behind_sums(scheduled, &sums, &columns) {
        return Err(Refusal::Pattern(reason));
    }
    let row_sums = scheduled.tensors.ids().filter(|tv| over(*tv).is_some_and(|over| over == side.reduced)).count();
    let (rows, row) = (rows.to_vec(), row.to_vec());
    let one = row_of(problem, scheduled, side, [&rows, &row], &sums, row_sums as i64);
    Ok(Shape { rows, row, one })
}

/// What a row along some dimensions is.
fn row_of(
    problem: &Problem<'_>,
    scheduled: &ScheduledFusion,
    side: &Side,
    [rows, row]: [&[AxisId]; 2],
    sums: &[TvId],
    row_sums: i64,
) -> Row {
    let &Problem { summary, sizes, .. } = problem;
    let extent = |roots: &[AxisId]| roots.iter().fold(1i64, |n, root| n.saturating_mul(sizes.extent(scheduled, *root)));
    let length = extent(row);
    let runs = |tensor: &GlobalTensor| row.last().is_some_and(|last| tensor.is_innermost(*last));
    let has = |tensor: &GlobalTensor, roots: &[AxisId]| roots.iter().any(|root| tensor.order.contains(root));
    let is_row = |tensor: &&GlobalTensor| has(tensor, rows) && has(tensor, row);
    let aligned = |vector: i64| {
        let is_aligned =
            |tensor: &GlobalTensor| tensor.rows_aligned(vector.min(MAX_ACCESS_BYTES / tensor.bytes), row.len());
        divides(vector, length) && summary.globals.iter().filter(|tensor| runs(tensor)).all(is_aligned)
    };
    let widest = vector_width(summary, |tensor| runs(tensor) && is_row(&tensor));
    let vector = widest_that(widest, aligned).unwrap_or(1);
    let all = || summary.globals.iter().filter(is_row);
    let read = |copied: bool| {
        let inputs = all().filter(|tensor| !tensor.is_output);
        inputs.map(|tensor| tensor.bytes).filter(|bytes| is_copied(vector * bytes) == copied).sum()
    };
    let is_whole = |tensor: &&GlobalTensor| !tensor.is_output && has(tensor, rows) && !has(tensor, row);
    let whole = summary.globals.iter().filter(is_whole).map(|tensor| tensor.bytes);
    let bytes = |tv: &TvId| scheduled.tensors[*tv].dtype.bytes() as i64;
    Row {
        number: extent(rows),
        length,
        vector,
        widest: all().map(|tensor| tensor.bytes).max().unwrap_or(1),
        ring: read(true),
        ahead: read(false),
        whole: whole.filter(|bytes| is_copied(*bytes)).sum(),
        moved: all().map(|tensor| tensor.bytes).sum(),
        early: side.held.early,
        parameters: side.held.parameters_read,
        sums: sums.iter().map(|tv| ceil_div(bytes(tv), REGISTER_BYTES)).sum(),
        widest_sum: sums.iter().map(bytes).max().unwrap_or(REGISTER_BYTES),
        row_sums,
    }
}

/// Whether asynchronous copies move so many bytes.
fn is_copied(bytes: i64) -> bool {
    bytes >= LEAST_COPIED
}

/// Why what is computed of sums of columns cannot be done after all rows are: it has rows itself, is reduced, or reads
/// what rows have made.
fn behind_sums(scheduled: &ScheduledFusion, sums: &[TvId], columns: &BTreeSet<AxisId>) -> Option<String> {
    let later = descendants(scheduled, sums);
    let name = |tv: TvId| &scheduled.tensors[tv].name;
    for &tv in later.iter().filter(|tv| !sums.contains(tv)) {
        if scheduled.is_reduction(tv) || scheduled.tensors[tv].indexed().any(|axis| columns.contains(&axis)) {
            return Some(format!("%{} is computed of sums of columns, and not for columns alone", name(tv)));
        }
        let mut stack: Vec<TvId> = scheduled.producers(tv);
        while let Some(read) = stack.pop() {
            if later.contains(&read) {
                continue;
            }
            let data = &scheduled.tensors[read];
            let is_random = data.op.as_ref().is_some_and(|op| matches!(op.compute, Compute::Random(_)));
            if scheduled.is_reduction(read) || is_random || data.indexed().any(|axis| columns.contains(&axis)) {
                return Some(format!("%{} is computed of sums of columns and of %{}", name(tv), name(read)));
            }
            stack.extend(scheduled.producers(read));
        }
    }
    None
}

/// The ways to hold rows, the best first: of those that are typical for these.
fn ways_of(problem: &Problem<'_>, one: &Row) -> Vec<(i64, Way)> {
    let of = |one: &Row| ways(problem.cx.device, one, problem.cx.options.tuning.get("inner_outer.ring").copied());
    let ways = if may_add_columns(one.number, one.length) { of(&one.typical()) } else { Vec::new() };
    if ways.is_empty() { of(one) } else { ways }
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<InnerOuterParams> {
    let refused = || Diagnostic::bug("rows and columns that were accepted, and no way to hold them");
    let Shape { rows, row, one } = shape_of(problem, scheduled).map_err(|_| refused())?;
    let ways = ways_of(problem, &one);
    let place = problem.cx.options.tuning.get("inner_outer.choice").copied().unwrap_or(0);
    let place = usize::try_from(place).unwrap_or(0).min(ways.len().saturating_sub(1));
    let (_, way) = ways.into_iter().nth(place).ok_or_else(refused)?;
    let exact_rows = one.number % (way.blocks * way.at_once) == 0;
    // With tests of rows alone the compiler gathers what is added in one place, and what is read for it in registers.
    let may_be_exact = way.held == Held::Registers || exact_rows;
    let exact = may_be_exact && one.length == way.threads * way.batch * one.vector;
    Ok(InnerOuterParams { rows, row, vector: one.vector, is_ahead: one.ahead > 0, way, exact, exact_rows })
}

/// Axes while rows are taken.
struct RowAxes {
    /// Blocks, their rows at once if several, and threads of a row.
    block: AxisId,
    at_once: Option<AxisId>,
    thread: AxisId,
    /// Rows of a block.
    turn: AxisId,
    /// Vectors of a thread, and elements of a vector.
    batch: AxisId,
    element: AxisId,
}

/// What is made of blocks and threads when all rows are done: they change places.
struct ColumnAxes {
    /// Blocks as threads, of which each has several: along those of a row, and along rows at once.
    stack: AxisId,
    lane: AxisId,
    lane_row: Option<AxisId>,
    /// Threads of a row as blocks, of which each has several.
    share: Option<AxisId>,
    group: AxisId,
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &InnerOuterParams) -> Result<()> {
    // No asynchronous copy says that a line is the first to go.
    cache_inputs(builder, caching.of_stores())?;
    let ring = ring_of_rows(builder, params)?;
    recompute(builder, &|state, tv| is_computed_again(state, tv, params))?;
    let rows = split(builder, params)?;
    let (sums, workspaces) = factor(builder, params, &rows)?;
    let columns = split_anew(builder, params, &rows)?;
    for sum in sums {
        builder.rfactor(sum, &[columns.stack])?;
        if columns.lane_row.is_some() {
            builder.rfactor(sum, &[columns.lane])?;
        }
    }
    let later = split_off(builder, &workspaces)?;
    set_loops(builder, &later, &rows.loops(), &columns.loops(&rows))?;
    stage_parameters(builder, params, &later)?;
    // What is cheap to compute of parameters.
    recompute_in_loop(builder, rows.turn, &|state, tv| {
        let is_kept = params.way.held == Held::Registers && is_load(state, tv);
        !is_kept && !later.contains(&tv) && is_computed_again(state, tv, params)
    })?;
    builder.min_blocks(params.way.per_sm as u32)?;
    let keep = positions(builder, params, rows.element, &later);
    builder.inline_most(&keep)?;
    for load in ring {
        let is_whole = !along_row(builder.state(), load, &params.row);
        let stages = match params.way.held {
            Held::Registers => STAGES,
            Held::Ring { stages, .. } if is_whole => stages.max(LEAST_SHARED),
            Held::Ring { stages, .. } => stages,
        };
        builder.circular_buffer(load, stages)?;
    }
    if params.is_ahead { load_ahead(builder, &later, rows.turn) } else { Ok(()) }
}

/// Whether a value of the row is computed, or read, again where it is needed: what is cheap, and all but parameters that
/// stay somewhere if registers hold nothing of rows.
fn is_computed_again(state: &ScheduledFusion, tv: TvId, params: &InnerOuterParams) -> bool {
    let is_value = state.tensors[tv].memory == Memory::Local;
    match params.way.held {
        Held::Registers => is_value && is_cheap(state, tv, &params.row),
        Held::Ring { .. } => is_value && !is_load(state, tv) && is_repeatable(state, tv, &params.row),
    }
}

/// Moves what the phase of rows reads of parameters to shared memory, if it stays there.
fn stage_parameters(builder: &mut ScheduleBuilder, params: &InnerOuterParams, later: &BTreeSet<TvId>) -> Result<()> {
    let Held::Ring { staged: true, .. } = params.way.held else { return Ok(()) };
    let state = builder.state();
    let is_local = |tv: TvId| state.tensors[tv].memory == Memory::Local && !later.contains(&tv);
    let is_parameter = |tv: &TvId| is_load(state, *tv) && is_local(*tv) && along_row(state, *tv, &params.row);
    let loads: Vec<TvId> = state.tensors.ids().filter(is_parameter).collect();
    let mut read = BTreeSet::new();
    for load in loads {
        let staged = builder.cache_after(load)?;
        builder.set_memory(staged, Memory::Shared)?;
        read.insert(builder.cache_after(staged)?);
    }
    recompute(builder, &|_, tv| read.contains(&tv))
}

/// Loads the next row into registers while this one is worked on.
fn load_ahead(builder: &mut ScheduleBuilder, later: &BTreeSet<TvId>, turn: AxisId) -> Result<()> {
    let state = builder.state();
    let is_row = |tv: &TvId| is_load(state, *tv) && state.tensors[*tv].memory == Memory::Local && !later.contains(tv);
    let loads: Vec<TvId> = state.tensors.ids().filter(is_row).collect();
    prefetch_rows(builder, &loads, Some(turn))
}

impl RowAxes {
    fn loops(&self) -> Vec<Loop> {
        let order = [
            (Some(self.block), ParallelType::Bidx),
            (self.at_once, ParallelType::Tidy),
            (Some(self.thread), ParallelType::Tidx),
            (Some(self.turn), ParallelType::Serial),
            (Some(self.batch), ParallelType::Unroll),
            (Some(self.element), ParallelType::Vectorize),
        ];
        loops_of(order)
    }
}

impl ColumnAxes {
    fn loops(&self, rows: &RowAxes) -> Vec<Loop> {
        let order = [
            (Some(self.group), ParallelType::Bidx),
            (self.lane_row, ParallelType::Tidy),
            (Some(self.lane), ParallelType::Tidx),
            (self.share, ParallelType::Serial),
            (Some(self.stack), ParallelType::Serial),
            (Some(rows.batch), ParallelType::Unroll),
            (Some(rows.element), ParallelType::Vectorize),
        ];
        loops_of(order)
    }
}

/// Takes what differs from row to row through shared memory, as far as there are asynchronous copies of it.
/// Returns the tensors there.
fn ring_of_rows(builder: &mut ScheduleBuilder, params: &InnerOuterParams) -> Result<Vec<TvId>> {
    let state = builder.state();
    let has = |tv: TvId, axes: &[AxisId]| state.tensors[tv].indexed().any(|axis| axes.contains(&axis));
    let is_row = |tv: &TvId| {
        let together = if has(*tv, &params.row) { params.vector } else { 1 };
        let is_copied = is_copied(together * state.tensors[*tv].dtype.bytes() as i64);
        is_load(state, *tv) && has(*tv, &params.rows) && is_copied
    };
    let loads: Vec<TvId> = state.tensors.ids().filter(is_row).collect();
    for load in &loads {
        builder.set_memory(*load, Memory::Shared)?;
        builder.cache_after(*load)?;
    }
    Ok(loads)
}

fn split(builder: &mut ScheduleBuilder, params: &InnerOuterParams) -> Result<RowAxes> {
    let (Some(row), Some(rows)) = (merge_all(builder, &params.row)?, merge_all(builder, &params.rows)?) else {
        return Err(Diagnostic::bug("rows and columns without an axis of either"));
    };
    let Way { batch, threads, blocks, .. } = params.way;
    let (vectors, element) = builder.split(row, params.vector, true)?;
    let (batch, thread) = builder.split_cover(vectors, batch, threads, params.exact)?;
    let (turn, part) = builder.split(rows, blocks * params.way.at_once, params.exact_rows)?;
    let (block, at_once) = match params.way.at_once {
        1 => (part, None),
        several => builder.split(part, several, true).map(|(block, at_once)| (block, Some(at_once)))?,
    };
    Ok(RowAxes { block, at_once, thread, turn, batch, element })
}

fn split_anew(builder: &mut ScheduleBuilder, params: &InnerOuterParams, rows: &RowAxes) -> Result<ColumnAxes> {
    let Way { threads, blocks, .. } = params.way;
    let of_block = params.way.of_block();
    let stacks = ceil_div(blocks, of_block);
    let (stack, lane) = builder.split_cover(rows.block, stacks, of_block, blocks % of_block == 0)?;
    let (lane_row, lane) = match params.way.at_once {
        1 => (None, lane),
        _ => builder.split(lane, threads, true).map(|(row, lane)| (Some(row), lane))?,
    };
    let groups = params.way.groups();
    let (share, group) = match groups < threads {
        true => builder.split(rows.thread, groups, true).map(|(outer, inner)| (Some(outer), inner))?,
        false => (None, rows.thread),
    };
    Ok(ColumnAxes { stack, lane, lane_row, share, group })
}

/// Splits reductions in stages, and ends the phase of rows behind the sums of each block. Returns the sums of columns,
/// and those of each block in memory.
fn factor(builder: &mut ScheduleBuilder, params: &InnerOuterParams, axes: &RowAxes) -> Result<(Vec<TvId>, Vec<TvId>)> {
    let all: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    let is_row = |state: &ScheduledFusion, tv: TvId| {
        reduced_over(state, tv).is_some_and(|over| over.iter().all(|root| params.row.contains(root)))
    };
    let (of_rows, of_columns): (Vec<TvId>, Vec<TvId>) = all.into_iter().partition(|tv| is_row(builder.state(), *tv));
    for tv in of_rows {
        builder.rfactor(tv, &[axes.batch])?;
        builder.rfactor(tv, &[axes.element])?;
    }
    let mut workspaces = Vec::new();
    for &tv in &of_columns {
        let mut partial = builder.rfactor(tv, &[axes.turn])?;
        if let Some(at_once) = axes.at_once {
            partial = builder.rfactor(tv, &[at_once])?;
        }
        let workspace = builder.phase_after(partial)?;
        builder.cache_after(workspace)?;
        workspaces.push(workspace);
    }
    Ok((of_columns, workspaces))
}

/// How deep values are computed at most: what is loaded outside of the loop over a thread's vectors, sums of blocks too,
/// and what is stored outside of that over a vector, as is what registers do not hold.
fn positions(
    builder: &ScheduleBuilder,
    params: &InnerOuterParams,
    element: AxisId,
    later: &BTreeSet<TvId>,
) -> Vec<(TvId, usize)> {
    let state = builder.state();
    let before = |tv: TvId| {
        let loops = &state.tensors[tv].loops;
        loops.iter().position(|own| own.axis == element).unwrap_or(loops.len())
    };
    // What is on its way to registers or through them, not parameters that are kept there.
    let passes = |tv: TvId| match params.way.held {
        Held::Registers => false,
        Held::Ring { staged: false, .. } => !is_load(state, tv),
        Held::Ring { .. } => true,
    };
    let outside = |tv: TvId| {
        let data = &state.tensors[tv];
        let is_held = |own: &Loop| matches!(own.parallel, ParallelType::Unroll | ParallelType::Vectorize);
        data.loops.iter().position(is_held).unwrap_or(data.loops.len())
    };
    let mut keep = Vec::new();
    for tv in state.tensors.ids().filter(|tv| state.tensors[*tv].memory != Memory::Global) {
        let from_memory = state.producers(tv).iter().any(|from| state.tensors[*from].memory != Memory::Local);
        let is_local = state.tensors[tv].memory == Memory::Local;
        if from_memory && is_local && !later.contains(&tv) && passes(tv) {
            keep.push((tv, before(tv)));
        } else if from_memory || later.contains(&tv) && state.is_reduction(tv) {
            // Sums over stacks stay outside of that loop.
            let most = state.consumers(tv).into_iter().map(outside).min().unwrap_or(usize::MAX);
            keep.push((tv, outside(tv).min(most)));
        }
    }
    keep.extend(keep_for_stores(builder, element));
    keep
}

#[cfg(test)]
mod tests {
    use super::super::Planned;
    use super::super::choose::tests::planned_of;
    use crate::diag::Result;
    use crate::num::DType;

    /// What a fusion of rows `x`, `y`, a number a row `r` and a parameter `w` is scheduled as.
    fn planned(body: &str, [m, n]: [i64; 2]) -> Result<Planned> {
        let text = format!("fusion @f(%x: bf16[?, ?], %y: bf16[?, ?], %r: f32[?, 1], %w: bf16[?]) {{\n{body}\n}}");
        let rows = (DType::BF16, &[m, n][..]);
        planned_of(&text, &[rows, rows, (DType::F32, &[m, 1]), (DType::BF16, &[n])])
    }

    fn check(body: &str, sizes: [i64; 2], params: &str) {
        let planned = planned(body, sizes).unwrap_or_else(|error| panic!("{body}\n{error:#?}"));
        assert_eq!((planned.scheduler, planned.params_text.as_str()), ("inner_outer", params), "{body}");
    }

    fn check_refused(body: &str, sizes: [i64; 2], reason: &str) {
        let error = planned(body, sizes).expect_err("it is refused");
        let own = error.notes.iter().find(|note| note.starts_with("inner_outer: "));
        assert!(own.is_some_and(|own| own.contains(reason)), "{body}\n{error:#?}");
    }

    const GRADIENTS: &str = "%0 = cast %x f32\n%1 = cast %y f32\n%2 = broadcast %w flags(true, false)\n%3 = mul %0, %2\n\
         %4 = mul %1, %r\n%5 = mul %3, %4\n%6 = sum %5 axes(1) keepdim\n%7 = mul %4, %6\n%8 = sub %3, %7\n\
         %9 = cast %8 bf16\n%10 = mul %0, %4\n%11 = sum %10 axes(0)\n%12 = cast %11 bf16\nreturn %9, %12";

    const BOTH: &str = "%0 = cast %x f32\n%1 = sum %0 axes(1)\n%2 = sum %0 axes(0)\nreturn %1, %2";

    #[test]
    fn a_row_and_sums_of_columns_are_held() {
        check(GRADIENTS, [16384, 8192], "vector 8 batch 4 threads 256 blocks 132 1 per_sm");
        check(GRADIENTS, [1056, 4096], "vector 8 batch 3 threads 192 blocks 264 2 per_sm");
        check(BOTH, [16384, 4096], "vector 8 batch 4 threads 128 blocks 640 5 per_sm");
    }

    #[test]
    fn short_rows_are_taken_several_at_once() {
        check(GRADIENTS, [65536, 1024], "vector 8 batch 4 threads 32x8 blocks 132 1 per_sm");
        check(GRADIENTS, [157594, 320], "vector 8 batch 3 threads 16x16 blocks 132 1 per_sm");
        check(GRADIENTS, [1669107, 32], "vector 8 batch 1 threads 4x128 blocks 132 1 per_sm");
        check(GRADIENTS, [186800, 71], "vector 1 batch 10 threads 8x32 blocks 256 2 per_sm ahead");
    }

    #[test]
    fn rows_at_odd_places_are_loaded_ahead() {
        check(GRADIENTS, [13448, 4121], "vector 1 batch 10 threads 512 blocks 132 1 per_sm ahead");
        // Pairs are as wide as the least asynchronous copy.
        check(GRADIENTS, [3017, 7338], "vector 2 batch 8 threads 512 blocks 132 1 per_sm");
    }

    #[test]
    fn long_rows_stay_in_the_ring() {
        for sizes in [[3001, 17_000], [1500, 20_480], [2048, 32_768]] {
            let planned = planned(GRADIENTS, sizes).unwrap_or_else(|error| panic!("{sizes:?}\n{error:#?}"));
            assert_eq!(planned.scheduler, "inner_outer");
            assert!(planned.params_text.contains(" 132 1 per_sm ring "), "{sizes:?}: {}", planned.params_text);
        }
    }

    #[test]
    fn what_else_there_is_takes_two_kernels() {
        check_refused(GRADIENTS, [512, 4096], "no block holds");
        check_refused(GRADIENTS, [2048, 65_536], "no block holds");
        check_refused(GRADIENTS, [2048, 17_001], "no block holds");
        let needed =
            "%0 = cast %x f32\n%1 = sum %0 axes(0) keepdim\n%2 = sum %0 axes(1) keepdim\n%3 = add %1, %2\nreturn %3";
        check_refused(needed, [16384, 4096], "not for columns alone");
        let reduced = "%0 = cast %x f32\n%1 = sum %0 axes(0)\n%2 = sum %0 axes(1)\n%3 = sum %1 axes(0)\nreturn %2, %3";
        check_refused(reduced, [16384, 4096], "not for columns alone");
    }
}
