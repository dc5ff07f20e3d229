//! Normalisations: a value that varies along the reduced dimensions is needed
//! again after the reduction. Each row is held in the registers of one block,
//! so memory is read once.
//!
//! What is held is chosen so that few registers are needed: a value that is
//! cheap to recompute from one other value of the row is recomputed where it is
//! used (a cast of the input costs nothing; an exponential is kept). How many
//! threads hold a row, whether blocks take rows in turn, and whether the next row
//! and parameters are held too, is chosen by `row_choice`.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::recompute::recompute;
use super::residency::{ElementBytes, Holding, Loads, Model, Packing, Parameters, element_bytes, is_load};
use super::row_choice::{Choice, MAX_PER_THREAD, RowShape, choose_rows, fits_a_warp, tiles};
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    BlockShape, Caching, RowLoop, bind_rows, cache_inputs, ceil_div, collapse, divides, keep_for_stores, merge_all,
    vector_width,
};
use super::typical::are_few;
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{CacheHint, MAX_ACCESS_BYTES};
use crate::num::BinaryOp;
use crate::options::DeviceDesc;
use crate::schedule::{AxisId, Compute, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, Stages, TvId};
use std::collections::BTreeSet;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "inner_persistent",
    writes_parts: true,
    accepts: |problem, scheduled| {
        coverage::check_plain(scheduled)?;
        if problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has no reduction".to_string()));
        }
        coverage::check(problem, scheduled)?;
        if !problem.summary.structure.persistent {
            let reason = "nothing varies along the reduced dimensions after the reduction";
            return Err(Refusal::Pattern(reason.to_string()));
        }
        rows_of(problem, scheduled)?;
        Ok(())
    },
    choose: |problem, scheduled| params(problem, scheduled).map(Params::InnerPersistent),
};

/// Elements of the longest row that a block holds, wherever it starts in memory.
pub fn longest_row(device: &DeviceDesc) -> i64 {
    MAX_PER_THREAD * i64::from(device.max_threads_per_block) - MAX_SHIFT
}

/// Bytes of an access of which many are as fast as wider ones, and of these the numbers in a row for which that holds.
const LEAST_ACCESS: i64 = 8;
const ACCESSES_OF_HALF: std::ops::Range<i64> = 128..512;

/// Elements by which a row may start behind a multiple of the widest vector.
const MAX_SHIFT: i64 = 15;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NormParams {
    /// Dimensions that stay.
    kept: Vec<AxisId>,
    /// Reduced dimensions, slowest first.
    reduced: Vec<AxisId>,
    /// How many of the reduced dimensions are outside of those that vectors are cut from: with them rows are no run.
    outside: usize,
    vector: i64,
    align: Option<TvId>,
    exact_vector: bool,
    /// Vectors that a thread holds.
    batch: i64,
    /// Whether the threads' vectors are exactly the row.
    exact: bool,
    /// Threads of a row, and rows of a block.
    threads: BlockShape,
    /// Whether the rows divide into blocks.
    exact_rows: bool,
    /// Whether blocks take rows in turn.
    row_loop: Option<RowLoop>,
    /// What is held of a row, and how it comes there.
    holding: Holding,
    /// Blocks that should fit a multiprocessor, where rows do not take turns.
    min_blocks: i64,
    /// Whether the kept dimensions are one dense run of every full tensor.
    dense_rows: bool,
}

impl NormParams {
    /// Vectors that a thread loads before it uses the first, where it loads a row again for each stage: as many as take few
    /// registers.
    fn vectors_on_their_way(&self) -> Option<i64> {
        let divides_batch = |together: &i64| *together < self.batch && self.batch % together == 0;
        let is_read_again = self.holding.loads == Loads::Reload;
        is_read_again.then(|| (2..=4).rev().find(divides_batch)).flatten()
    }
}

impl std::fmt::Display for NormParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vector {} batch {} threads {}", self.vector, self.batch, self.threads)?;
        if let Some(rows) = self.row_loop {
            write!(f, " row_loop {} blocks {} per_sm", rows.blocks, rows.per_sm)?;
        }
        if self.min_blocks > 1 {
            write!(f, " {} per_sm", self.min_blocks)?;
        }
        match self.holding.loads {
            Loads::Early => {}
            Loads::Ahead => f.write_str(" ahead")?,
            Loads::Late => f.write_str(" late")?,
            Loads::Reload => f.write_str(" reload")?,
        }
        match self.holding.parameters {
            Parameters::Kept => {}
            Parameters::Reread => f.write_str(" reread")?,
            Parameters::Staged => f.write_str(" staged")?,
        }
        if self.align.is_some() { write!(f, " aligned") } else { Ok(()) }
    }
}

/// What of the fusion's dimensions are rows, and how their elements lie.
struct Rows {
    /// All dimensions as the largest tensor walks them, slowest first.
    order: Vec<AxisId>,
    /// Of these those that stay, and those that are reduced.
    kept: Vec<AxisId>,
    reduced: Vec<AxisId>,
    /// How many of the reduced dimensions are outside of the run that vectors are cut from, if that is not all of a row.
    outside: usize,
    /// The tensor whose vectors set the shift, where rows start at odd places.
    align: Option<TvId>,
    shape: RowShape,
}

/// Finds the rows; refused where one is longer than a block can hold.
fn rows_of(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<Rows> {
    let &Problem { cx, summary, sizes } = problem;
    let extent = |root: AxisId| sizes.extent(scheduled, root);
    let product = |roots: &[AxisId]| roots.iter().map(|root| extent(*root)).fold(1i64, i64::saturating_mul);
    let touches = |tensor: &GlobalTensor| tensor.order.iter().any(|root| summary.structure.reduced.contains(root));
    let mut order: Vec<AxisId> = summary.largest(touches).map(|tensor| tensor.order.clone()).unwrap_or_default();
    order.extend(summary.structure.roots.iter().filter(|root| !order.contains(root)).collect::<Vec<_>>());
    let (reduced, kept): (Vec<AxisId>, Vec<AxisId>) =
        order.iter().partition(|root| summary.structure.reduced.contains(root));
    let row = product(&reduced);

    let last = reduced.last().copied();
    let runs = |tensor: &GlobalTensor| touches(tensor) && last.is_some_and(|last| tensor.is_innermost(last));
    let groups = collapse(summary, &reduced);
    let run = groups.last().map_or(&[][..], |run| run);
    let is_run = groups.len() <= 1;
    let widest = vector_width(summary, runs);
    let mut vector = widest;
    while vector > 1 && row < 2 * vector {
        vector /= 2;
    }
    // Rows that are looked up start anywhere, whatever is aligned.
    let full = |tensor: &GlobalTensor| runs(tensor) && !tensor.is_part && tensor.order.len() == order.len();
    let starts_aligned =
        |vector: i64| summary.globals.iter().filter(|tensor| full(tensor)).all(|t| t.rows_aligned(vector, run.len()));
    // In rows of few warps aligned accesses of half the width take less than those that are shifted into place.
    let half = vector / 2;
    let pays = half * (MAX_ACCESS_BYTES / widest) >= LEAST_ACCESS
        && ACCESSES_OF_HALF.contains(&(row / half.max(1)))
        && !are_few(row, product(&kept));
    if pays && !starts_aligned(vector) && starts_aligned(half) {
        vector = half;
    }
    let mut align = None;
    match summary.largest(full) {
        Some(tensor) if is_run && !starts_aligned(vector) && vector > 1 => align = Some(tensor.tv),
        Some(_) => {
            // What ends within a row begins anew at the next vector.
            let fits = |vector: i64| starts_aligned(vector) && (is_run || product(run) % vector == 0);
            while vector > 1 && !fits(vector) {
                vector /= 2;
            }
        }
        None if is_run => {}
        None => vector = 1,
    }
    let outside = if vector > 1 { reduced.len() - run.len() } else { 0 };
    let vectors = ceil_div(row + if align.is_some() { vector - 1 } else { 0 }, vector).max(1);
    let rows = product(&kept);
    let (has_rows, shifted) = (!kept.is_empty(), align.is_some());
    let of_sums = work_of_sums(scheduled, &reduced);
    let shape = RowShape { row, vectors, vector, rows, has_rows, shifted, in_runs: outside > 0, of_sums };
    if tiles(cx, &shape).is_empty() {
        return Err(too_long(row, MAX_PER_THREAD * i64::from(cx.device.max_threads_per_block)));
    }
    Ok(Rows { order, kept, reduced, outside, align, shape })
}

/// Whether the registers of a block hold nothing of so long a row, so that every stage reads it again, more than once or with
/// parameters. (What is read once more is found in a cache while memory is waited for: the gradient of softmax of 1024x32768
/// f32 on an H200 is 0.93 of a copy so, softmax itself of 777x50001 bf16 0.65.)
pub(super) fn reads_again(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<bool> {
    let Rows { shape, reduced, .. } = rows_of(problem, scheduled)?;
    let model = model(problem, &shape)?;
    if model.parameters == 0 && last_stage(scheduled, &reduced) < 2 {
        return Ok(false);
    }
    let choice = choose_rows(problem.cx, &model, &shape);
    Ok(choice.is_some_and(|choice| choice.holding.loads == Loads::Reload))
}

/// How many reductions, one after the other, come before the last value along the row.
fn last_stage(scheduled: &ScheduledFusion, reduced: &[AxisId]) -> u32 {
    let stages = Stages::new(scheduled);
    let along = scheduled.tensors.ids().filter(|tv| along_row(scheduled, *tv, reduced));
    along.map(|tv| stages.earliest(tv)).max().unwrap_or(0)
}

/// Whether threads of a warp hold a row by whole vectors, and its parameters by such, too.
pub(super) fn reads_parameters_by_vectors(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> bool {
    let is_held = problem.summary.structure.persistent && count_parameters(problem.summary) > 0;
    let is_shared = |shape: &RowShape| shape.vector > 1 && fits_a_warp(problem.cx, shape);
    is_held && rows_of(problem, scheduled).is_ok_and(|rows| is_shared(&rows.shape))
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<NormParams> {
    let summary = problem.summary;
    let Rows { order, kept, reduced, outside, align, shape } = rows_of(problem, scheduled)?;
    let model = model(problem, &shape)?;
    let choice = choose_rows(problem.cx, &model, &shape)
        .ok_or_else(|| Diagnostic::bug("rows that a block can hold, and no way to hold them"))?;
    let Choice { threads, batch, row_loop, .. } = choice;
    let RowShape { row, rows, vector, vectors, .. } = shape;
    let exact_vector = align.is_none() && divides(vector, row);
    let exact = exact_vector && vectors == threads.x * batch;
    let exact_loop = row_loop.is_none_or(|row_loop| rows % (threads.y * row_loop.blocks) == 0);
    Ok(NormParams {
        dense_rows: collapse(summary, &order).len() <= 1 || dense_rows(summary, &kept, &order),
        row_loop,
        kept,
        reduced,
        outside,
        vector,
        align,
        exact_vector,
        batch,
        exact,
        threads,
        // Where elements of a row are tested anyway, another test of the row is no loss.
        exact_rows: rows % threads.y == 0 && exact_loop && (exact || threads.y == 1),
        holding: choice.holding,
        min_blocks: choice.min_blocks,
    })
}

/// Whether every tensor of full rank walks the kept dimensions and then the
/// row as one dense run.
fn dense_rows(summary: &Summary<'_>, kept: &[AxisId], order: &[AxisId]) -> bool {
    !kept.is_empty()
        && summary
            .globals
            .iter()
            .filter(|tensor| tensor.order.len() == order.len())
            .all(|tensor| tensor.order == order && tensor.dense.iter().all(|dense| *dense))
}

fn too_long(row: i64, most: i64) -> Box<Diagnostic> {
    Diagnostic::unsupported(
        code::TOO_LONG_ROW,
        format!("a row of {row} elements is needed again after its reduction; one block holds at most {most}"),
    )
    .note("rows that do not fit the registers of one block need several kernels or a cluster of blocks")
}

/// The model of the fusion as it will be computed.
fn model<'a>(problem: &Problem<'a>, shape: &RowShape) -> Result<Model<'a>> {
    let summary = problem.summary;
    let missing = || Diagnostic::bug("rows are held of a fusion in which nothing is needed again");
    let [apart, converted, as_in_memory] = summary.structure.held.ok_or_else(missing)?;
    let parameters = count_parameters(summary);
    let model = Model {
        device: problem.cx.device,
        bytes: if shape.vector > 1 && !shape.shifted { converted } else { apart },
        as_in_memory: None,
        squeezed_bytes: if shape.vector > 1 { as_in_memory.early } else { apart.early },
        shifted: shape.shifted,
        masked: false,
        tensors: summary.globals.len() as i64,
        parameters,
    };
    let stays = shape.shifted && parameters <= 1 && model.loads_small();
    Ok(Model { as_in_memory: stays.then_some(as_in_memory), ..model })
}

/// What a thread holds of a row of a fusion as it will be computed, by how elements lie in
/// registers ([`Packing::ALL`]).
pub(super) fn held_of_rows(scheduled: &ScheduledFusion, reduced: &BTreeSet<AxisId>) -> Result<[ElementBytes; 3]> {
    let mut builder = ScheduleBuilder::new(scheduled.clone());
    cache_inputs(&mut builder, Caching::NONE)?;
    recompute_cheap(&mut builder, &reduced.iter().copied().collect::<Vec<_>>())?;
    Ok(Packing::ALL.map(|packing| element_bytes(builder.state(), reduced, packing)))
}

/// Whether inputs along the row are the same for all rows.
pub(super) fn has_parameters(summary: &Summary<'_>) -> bool {
    count_parameters(summary) > 0
}

/// Inputs along the row that are the same for all rows.
fn count_parameters(summary: &Summary<'_>) -> i64 {
    let inputs = summary.globals.iter().filter(|tensor| !tensor.is_output && !tensor.order.is_empty());
    inputs.filter(|tensor| tensor.order.iter().all(|root| summary.structure.reduced.contains(root))).count() as i64
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &NormParams) -> Result<()> {
    cache_inputs(builder, caching)?;
    let reload = params.holding.loads == Loads::Reload;
    recompute(builder, &|state, tv| {
        is_cheap(state, tv, &params.reduced) || reload && is_repeatable(state, tv, &params.reduced)
    })?;
    if reload {
        for load in builder.state().tensors.ids().collect::<Vec<_>>() {
            if is_load(builder.state(), load) && along_row(builder.state(), load, &params.reduced) {
                builder.set_cache_hint(load, CacheHint::Again)?;
            }
        }
    }
    let (outside, run) = params.reduced.split_at(params.outside);
    let Some(run) = merge_all(builder, run)? else {
        return Err(Diagnostic::bug("a normalisation without a reduced axis"));
    };
    let rows = merge_all(builder, &params.kept)?;
    let run = match params.align {
        Some(reference) => builder.align(run, params.vector, reference, rows.filter(|_| params.dense_rows))?,
        None => run,
    };
    let (vectors, lane) = builder.split(run, params.vector, params.exact_vector)?;
    let vectors = match merge_all(builder, outside)? {
        Some(outside) => builder.merge(outside, vectors)?,
        None => vectors,
    };
    let (batch, thread) = builder.split_cover(vectors, params.batch, params.threads.x, params.exact)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    let batch = match params.vectors_on_their_way() {
        Some(together) => {
            let (groups, together) = builder.split(batch, together, true)?;
            vec![groups, together]
        }
        None => vec![batch],
    };
    for axis in &batch {
        builder.parallelize(*axis, ParallelType::Unroll)?;
    }
    builder.parallelize(thread, ParallelType::Tidx)?;
    let mut order = Vec::new();
    let mut turn = None;
    if let Some(rows) = rows {
        let bound = bind_rows(builder, rows, params.threads.y, params.row_loop, params.exact_rows)?;
        order.extend(bound.order);
        turn = bound.turn;
    }
    order.push(thread);
    order.extend(turn);
    order.extend(batch.iter().copied());
    order.push(lane);
    let reductions: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    for tv in reductions {
        builder.rfactor(tv, &batch)?;
        builder.rfactor(tv, &[lane])?;
    }
    builder.propagate(&order)?;
    let mut staged = Vec::new();
    if let Some(turn) = turn {
        staged = stage_parameters(builder, turn, params)?;
        recompute_in_turn(builder, turn, params)?;
    } else if params.min_blocks > 1 {
        builder.min_blocks(params.min_blocks as u32)?;
    }
    let state = builder.state();
    let loads: Vec<TvId> = state.tensors.ids().filter(|tv| is_load(state, *tv)).collect();
    let lane_depth = |tv: TvId| {
        let start = builder.outer_prefix(tv);
        state.tensors[tv].loop_axes().position(|axis| axis == lane).unwrap_or(start).max(start)
    };
    // Of a row that is read again, vectors are loaded together: what is computed of each branches, and no load passes that.
    let inner_loops = batch.len() - 1;
    let limit = |tv: &TvId| {
        let (start, deep) = (builder.outer_prefix(*tv), lane_depth(*tv));
        (*tv, if is_early(state, params, *tv) { start } else { deep.saturating_sub(inner_loops).max(start) })
    };
    let mut keep: Vec<_> = loads.iter().map(limit).collect();
    keep.extend(keep_for_stores(builder, lane));
    keep.extend(staged.into_iter().map(|read| (read, lane_depth(read))));
    builder.inline_most(&keep)?;
    if params.holding.loads == Loads::Ahead { prefetch_rows(builder, &loads, turn) } else { Ok(()) }
}

/// Whether all of an input's elements are loaded before any is used.
fn is_early(state: &ScheduledFusion, params: &NormParams, load: TvId) -> bool {
    let along = |axes: &[AxisId]| state.tensors[load].indexed().any(|axis| axes.contains(&axis));
    match params.holding.loads {
        _ if !along(&params.reduced) => true,
        Loads::Reload => false,
        // On its way to shared memory a parameter takes few registers at a time.
        _ if !along(&params.kept) => params.holding.parameters == Parameters::Kept,
        Loads::Early | Loads::Ahead => true,
        Loads::Late => false,
    }
}

/// Moves the parameters that stay to shared memory, where they do. Returns the registers that
/// they are read into, a vector at a time.
fn stage_parameters(builder: &mut ScheduleBuilder, turn: AxisId, params: &NormParams) -> Result<Vec<TvId>> {
    if params.holding.parameters != Parameters::Staged {
        return Ok(Vec::new());
    }
    let state = builder.state();
    let stays = |tv: &TvId| is_load(state, *tv) && along_row(state, *tv, &params.reduced) && !state.depends(*tv, turn);
    let mut read = Vec::new();
    for load in state.tensors.ids().filter(stays).collect::<Vec<_>>() {
        let staged = builder.cache_after(load)?;
        builder.set_memory(staged, Memory::Shared)?;
        read.push(builder.cache_after(staged)?);
    }
    Ok(read)
}

/// What is cheap to compute of parameters alone is computed in each turn, and
/// only the parameters themselves stay, if they do.
fn recompute_in_turn(builder: &mut ScheduleBuilder, turn: AxisId, params: &NormParams) -> Result<()> {
    // No step below changes who reads what.
    let consumers = builder.state().all_consumers();
    for tv in builder.state().topological().into_iter().rev() {
        let state = builder.state();
        let late = is_load(state, tv) && along_row(state, tv, &params.reduced) && !is_early(state, params, tv);
        let local = state.tensors[tv].memory == Memory::Local;
        let cheap = local && (is_cheap(state, tv, &params.reduced) || late);
        let users = &consumers[tv];
        let in_turn = |user: &TvId| state.tensors[*user].has_loop(turn);
        if cheap && !users.is_empty() && users.iter().all(in_turn) && !in_turn(&tv) {
            builder.recompute_in(tv, turn)?;
            if late {
                builder.set_cache_hint(tv, CacheHint::Again)?;
            }
        }
    }
    Ok(())
}

/// Inputs that change from row to row are loaded a row ahead.
pub(super) fn prefetch_rows(builder: &mut ScheduleBuilder, caches: &[TvId], turn: Option<AxisId>) -> Result<()> {
    let Some(turn) = turn else { return Ok(()) };
    for cache in caches {
        let data = &builder.state().tensors[*cache];
        let is_row = data.loops.len() > data.inline_at;
        if is_row && data.inline_at.checked_sub(1).is_some_and(|last| data.loops[last].axis == turn) {
            builder.circular_buffer(*cache, 2)?;
        }
    }
    Ok(())
}

/// Gives every later stage its own copy of values that are cheap to recompute.
fn recompute_cheap(builder: &mut ScheduleBuilder, reduced: &[AxisId]) -> Result<()> {
    recompute(builder, &|state, tv| is_cheap(state, tv, reduced))
}

/// Whether a tensor varies along the row.
pub(super) fn along_row(state: &ScheduledFusion, tv: TvId, reduced: &[AxisId]) -> bool {
    state.tensors[tv].indexed().any(|axis| reduced.contains(&axis))
}

/// Instructions, about, of a thread for what is computed of a row's sums and has no element along it.
fn work_of_sums(state: &ScheduledFusion, reduced: &[AxisId]) -> i64 {
    let mut behind = BTreeSet::new();
    let mut work = 0;
    for tv in state.topological() {
        let Some(op) = &state.tensors[tv].op else { continue };
        let is_sum = state.is_reduction(tv);
        if is_sum || state.producers(tv).iter().any(|from| behind.contains(from)) {
            behind.insert(tv);
            let is_own = !is_sum && !along_row(state, tv, reduced);
            work += if is_own { instructions(state, tv, &op.compute) } else { 0 };
        }
    }
    work
}

/// Whether arithmetic is an instruction, where functions and divisions are many.
pub(super) fn is_one_instruction(compute: &Compute) -> bool {
    use BinaryOp::{Add, Maximum, Minimum, Mul, Sub};
    match compute {
        Compute::Unary(op) => op.is_one_instruction(),
        Compute::Binary(op) => matches!(op, Add | Sub | Mul | Maximum | Minimum),
        _ => false,
    }
}

/// Whether an operation of one operand takes many instructions.
pub(super) fn is_heavy(compute: &Compute) -> bool {
    matches!(compute, Compute::Unary(_)) && !is_one_instruction(compute)
}

/// Instructions, about, of a thread for an element.
fn instructions(state: &ScheduledFusion, tv: TvId, compute: &Compute) -> i64 {
    let is_narrow = |tv: &TvId| state.tensors[*tv].dtype.bytes() == 1;
    match compute {
        Compute::Cast if is_narrow(&tv) || state.producers(tv).iter().any(is_narrow) => 4,
        Compute::Cast | Compute::Copy | Compute::Ternary(_) => 1,
        Compute::Binary(op) if op.is_comparison() => 1,
        _ if is_one_instruction(compute) => 1,
        _ => 8,
    }
}

/// Whether a value of the row can be computed again by a later stage.
pub(super) fn is_repeatable(state: &ScheduledFusion, tv: TvId, reduced: &[AxisId]) -> bool {
    let data = &state.tensors[tv];
    data.io.is_none() && data.op.is_some() && !state.is_reduction(tv) && along_row(state, tv, reduced)
}

/// Whether a value of the row is recomputed rather than kept: a few cheap
/// instructions on one other value of the row.
pub(super) fn is_cheap(state: &ScheduledFusion, tv: TvId, reduced: &[AxisId]) -> bool {
    let Some(op) = &state.tensors[tv].op else { return false };
    if !is_repeatable(state, tv, reduced) {
        return false;
    }
    let cheap = match op.compute {
        Compute::Cast | Compute::Index { .. } => true,
        Compute::Copy => state.producers(tv).iter().all(|producer| state.tensors[*producer].io.is_none()),
        Compute::Unary(_) | Compute::Binary(_) => is_one_instruction(&op.compute),
        Compute::Ternary(_) => true,
        Compute::ExpBelow { .. }
        | Compute::Random(_)
        | Compute::Reduce { .. }
        | Compute::Join { .. }
        | Compute::Lookup => false,
    };
    cheap && state.producers(tv).into_iter().filter(|producer| along_row(state, *producer, reduced)).count() <= 1
}
