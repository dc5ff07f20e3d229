//! Reductions over a short dimension that is not the fastest one, beside whatever else is computed of it.
//!
//! What stays is columns: the fastest dimensions and those outside of the reduced ones, together as one axis, so that threads
//! beside each other read what lies beside each other whatever the number of columns in a run. A thread has all of a
//! column, or of a vector of neighbours where runs are whole vectors; of longer columns several threads have a part each. All that
//! a thread has is on its way at once, is held in registers where it is needed again, and is read once: no shared memory but
//! for what those threads exchange, and nobody waits for other columns.
//!
//! In: fusions in which a tensor in memory has all dimensions, and all such tensors end with one that stays.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::is_cheap;
use super::recompute::recompute;
use super::reduction::accumulators;
use super::residency::{ElementBytes, Holding, Loads, Model, Parameters, REGISTER_BYTES, is_load};
use super::shared_tile::{SECTOR_BYTES, extent_of};
use super::summary::GlobalTensor;
use super::tile::{
    BlockShape, Caching, WARP, cache_inputs, ceil_div, collapse, divides, keep_for_stores, merge_all, tuned,
    vector_width, widest_that,
};
use super::typical::{STEPS, STEPS_OF_FEW, are_few, next_step, previous_step};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{MAX_ACCESS_BYTES, MIN_ASYNC_BYTES};
use crate::schedule::{AxisId, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "short_columns",
    writes_parts: false,
    accepts: |problem, scheduled| {
        let shape = shape_of(problem, scheduled)?;
        match choose(problem, &shape) {
            Some(_) => Ok(()),
            None => Err(Refusal::Pattern("threads have no room for columns".to_string())),
        }
    },
    choose: |problem, scheduled| params(problem, scheduled).map(Params::ShortColumns),
};

/// Elements of the longest columns: those that are not needed again; those that are, where runs are whole vectors, which
/// asynchronous copies may move instead, or single elements that these may move, too; and where they are neither.
const LONGEST_SUMMED: i64 = 64;
const LONGEST_IN_VECTORS: i64 = 64;
const LONGEST_OF_WORDS: i64 = 128;
const LONGEST_HELD: i64 = 1024;
/// Elements of the longest columns whose length is always a constant.
const SHORTEST: i64 = 64;
/// Columns for which it is chosen how blocks have those that share a kernel: of few elements, and of many.
const FEW_COLUMNS: i64 = 1 << 12;
const MANY_COLUMNS: i64 = 1 << 16;
/// Columns below which blocks are too few.
const LEAST_COLUMNS: i64 = 2048;
/// Single elements of a run of which blocks may copy many.
const MANY_IN_RUN: i64 = 64;
/// Bytes of a run for which long columns are worth it.
const LEAST_RUN: i64 = 64;
/// Threads of a block, those of a column at most, and elements of a column that each of these has at least.
const THREADS: [i64; 4] = [128, 256, 512, 1024];
const MOST_OF_COLUMN: i64 = 32;
const LEAST_PART: i64 = 4;
/// Registers of a thread that has a part of a column, beside those of one that has all.
const OF_PART: i64 = 8;
/// Registers that the elements of a thread take at most.
const MOST_HELD: i64 = 96;
/// Instructions for an element, for an access of a whole vector, and of one whose start may lie within a word.
const OF_ELEMENT: i64 = 6;
const OF_ACCESS: i64 = 3;
const OF_SHIFTED: i64 = 8;
/// Instructions of a sum over threads for each column: for each halving of their number, and once.
const OF_STEP: i64 = 8;
const OF_EXCHANGE: i64 = 12;
/// Thousandths of the time for each instruction of an element beside two bytes of it that are moved: half of what a
/// multiprocessor issues in the time, since it does other things meanwhile.
const OF_INSTRUCTION: i64 = 20;
/// Thousandths of the time for vectors that start anywhere, where elements are held: blocks that held columns so in shared
/// memory took a third longer than those that read single elements.
const HELD_SHIFTED: i64 = 300;
/// Thousandths of the time in which the threads of the only block of a multiprocessor wait for each other's sums.
const WAITING: i64 = 120;
/// The same for each element of a thread above so many, and below half of them.
const MANY: i64 = 32;
const MORE: i64 = 2;
const FEWER: i64 = 3;
/// The same where no block is left for a place for as long as one takes.
const LAST: i64 = 100;
/// Bytes that memory moves in the time in which a multiprocessor looks up one run.
const BYTES_OF_RUN: i64 = 20;

/// Whether threads hold columns of so many elements, where so many bytes of neighbouring ones are one run of memory: what a
/// program that is cut asks before it is known what else a kernel does.
pub fn may_hold_columns(column: i64, run: i64) -> bool {
    let longest = match (run % MAX_ACCESS_BYTES, run % MIN_ASYNC_BYTES) {
        (0, _) => LONGEST_IN_VECTORS,
        _ if run < LEAST_RUN => LONGEST_IN_VECTORS,
        (_, 0) => LONGEST_OF_WORDS,
        _ => LONGEST_HELD,
    };
    (2..=longest).contains(&column)
}

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ColumnParams {
    columns: Columns,
    way: Way,
    exact_vector: bool,
    exact_columns: bool,
    /// Elements of a column, a constant of the kernel: only the last of those that a thread has may be missing. Of columns that share
    /// a kernel those of the longest, and
    length: i64,
    /// those of the shortest.
    least: Option<i64>,
}

impl std::fmt::Display for ColumnParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Way { vector, threads, batch, per_sm } = self.way;
        if let Some(least) = self.least {
            write!(f, "columns of {least} to {} ", self.length)?;
        }
        write!(f, "vector {vector} batch {batch} threads {threads} {per_sm} per_sm")
    }
}

/// What of the fusion's dimensions are columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Columns {
    /// The fastest dimensions, of which vectors are made; the others that stay; and those that are reduced. Slowest first.
    fast: Vec<AxisId>,
    kept: Vec<AxisId>,
    reduced: Vec<AxisId>,
}

/// Who has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    /// Elements of a vector.
    vector: i64,
    /// Threads beside each other, and of a column.
    threads: BlockShape,
    /// Elements of a column that a thread has.
    batch: i64,
    /// Blocks of a multiprocessor, by which registers are bounded.
    per_sm: i64,
}

/// What columns share: lengths a kernel, four for each octave of them, and one where elements are few. So many runs are typical of
/// these.
struct Shared {
    length: i64,
    least: Option<i64>,
    runs: i64,
}

impl Shared {
    fn new(length: i64, run: i64, runs: i64) -> Self {
        let columns = runs.saturating_mul(run);
        let (steps, typical) =
            if are_few(length, columns) { (STEPS_OF_FEW, FEW_COLUMNS) } else { (STEPS, MANY_COLUMNS) };
        let least = Some(previous_step(length, steps) + 1);
        Self { length: next_step(length, steps), least, runs: ceil_div(typical, run).max(1) }
    }
}

/// The columns of given sizes.
struct Shape<'a> {
    columns: Columns,
    /// Elements of a column, of a run, and runs: of columns that share a kernel those for which it is chosen.
    length: i64,
    /// Elements of the shortest column that shares the kernel.
    least: Option<i64>,
    run: i64,
    runs: i64,
    /// Widest vectors, and which of them start at multiples of their size.
    widest: i64,
    aligned: i64,
    /// Whether something is written along all dimensions, and whether elements are needed again.
    is_written: bool,
    is_held: bool,
    /// Tensors with all dimensions, and bytes of an element of them together.
    tensors: i64,
    moved: i64,
    /// Reductions, and registers of their results.
    sums: i64,
    registers_of_sums: i64,
    /// What a thread has of an element, by how elements lie in registers.
    held: [ElementBytes; 3],
    /// Of single elements.
    model: Model<'a>,
}

impl<'a> Shape<'a> {
    /// The model of registers, of elements in vectors that start anywhere or at multiples of their size.
    fn model_of(&self, vector: i64, masked: bool) -> Model<'a> {
        let [apart, converted, as_in_memory] = self.held;
        let shifted = vector > self.aligned;
        let bytes = if vector > 1 && !shifted { converted } else { apart };
        let model = Model { bytes, masked, shifted, ..self.model };
        Model { as_in_memory: (shifted && model.loads_small()).then_some(as_in_memory), ..model }
    }
}

/// Finds the columns; refused where the fusion does something else.
fn shape_of<'a>(problem: &Problem<'a>, scheduled: &ScheduledFusion) -> Result<Shape<'a>, Refusal> {
    let &Problem { summary, .. } = problem;
    coverage::check_plain(scheduled)?;
    coverage::check_direct(scheduled)?;
    let refused = |what: &str| Err(Refusal::Pattern(what.to_string()));
    let structure = summary.structure;
    if structure.reduced.is_empty() {
        return refused("the fusion has no reduction");
    }
    coverage::check(problem, scheduled)?;
    let is_full = |tensor: &GlobalTensor| structure.roots.iter().all(|root| tensor.order.contains(root));
    let Some(largest) = summary.largest(is_full) else {
        return refused("no tensor in memory has all dimensions");
    };
    let (reduced, kept): (Vec<AxisId>, Vec<AxisId>) =
        largest.order.iter().partition(|root| structure.reduced.contains(root));
    let last = largest.order.last().copied();
    let full: Vec<&GlobalTensor> = summary.globals.iter().filter(|tensor| is_full(tensor)).collect();
    let Some(last) = last.filter(|last| kept.contains(last) && full.iter().all(|t| t.is_innermost(*last))) else {
        return refused("rows lie along memory");
    };
    let groups = collapse(summary, &kept);
    let Some((fast, kept)) = groups.split_last() else {
        return refused("nothing stays");
    };
    let [length, run, runs] = [&reduced, fast, &kept.concat()].map(|roots| extent_of(problem, scheduled, roots));
    let is_written = full.iter().any(|tensor| tensor.is_output);
    let widest = vector_width(summary, |tensor| tensor.is_innermost(last));
    let fits = |vector: i64| divides(vector, run) && full.iter().all(|t| t.rows_aligned(vector, fast.len()));
    let aligned = widest_that(widest, fits).unwrap_or(1);
    if !structure.persistent && aligned == widest {
        return refused("vectors of columns are summed in rows of blocks");
    }
    let is_long = full.iter().all(|tensor| run.saturating_mul(tensor.bytes) >= LEAST_RUN);
    let is_copied = full.iter().all(|tensor| tensor.is_output || tensor.bytes >= MIN_ASYNC_BYTES);
    let most = match structure.persistent {
        false => LONGEST_SUMMED,
        true if aligned == widest || !is_long => LONGEST_IN_VECTORS,
        true if is_copied && run >= MANY_IN_RUN => LONGEST_OF_WORDS,
        true => LONGEST_HELD,
    };
    if !(2..=tuned(problem.cx.options, "short_columns.row", most)).contains(&length) {
        return refused("columns are long");
    }
    if runs.saturating_mul(run) < tuned(problem.cx.options, "short_columns.least", LEAST_COLUMNS) {
        return refused("columns are few");
    }
    let reductions = || scheduled.tensors.ids().filter(|tv| scheduled.is_reduction(*tv));
    let is_shared = length > SHORTEST && !reductions().any(|tv| scheduled.reduces_pairs(tv));
    let Shared { length, least, runs } = match is_shared {
        true => Shared::new(length, run, runs),
        false => Shared { length, least: None, runs },
    };
    Ok(Shape {
        length,
        least,
        run,
        runs,
        widest,
        aligned,
        is_written,
        is_held: structure.persistent,
        tensors: full.len() as i64,
        moved: full.iter().map(|tensor| tensor.bytes).sum(),
        sums: reductions().count() as i64,
        registers_of_sums: accumulators(scheduled),
        held: held(problem, &full),
        model: Model {
            device: problem.cx.device,
            bytes: ElementBytes::default(),
            as_in_memory: None,
            squeezed_bytes: 0,
            shifted: false,
            masked: false,
            tensors: summary.globals.len() as i64,
            parameters: 0,
        },
        columns: Columns { fast: fast.clone(), kept: kept.concat(), reduced },
    })
}

/// What a thread has of an element: what it holds for later stages, or what is on its way.
fn held(problem: &Problem<'_>, full: &[&GlobalTensor]) -> [ElementBytes; 3] {
    let inputs = || full.iter().filter(|tensor| !tensor.is_output);
    let read = inputs().map(|tensor| tensor.bytes).sum();
    let summed = |early| ElementBytes { read, early, ..ElementBytes::default() };
    let apart = summed(inputs().map(|tensor| tensor.bytes.max(REGISTER_BYTES)).sum());
    problem.summary.structure.held.unwrap_or([apart, summed(read), summed(read)])
}

/// The way that takes the least time by the model, or the one in the place that a caller asks for.
fn choose(problem: &Problem<'_>, shape: &Shape<'_>) -> Option<Way> {
    let vectors = std::iter::successors(Some(1i64), |vector| Some(vector * 2)).take_while(|v| *v <= shape.widest);
    let parts = std::iter::successors(Some(1i64), |part| Some(part * 2)).take_while(|part| *part <= MOST_OF_COLUMN);
    let mut ways: Vec<(i64, Way)> = Vec::new();
    // Where vectors start anywhere they are made of two words each, and writing them takes as many accesses as single elements.
    let fits = |vector: &i64| *vector <= shape.aligned || !shape.is_written && 2 * vector <= shape.run;
    for vector in vectors.filter(fits) {
        for y in parts.clone().filter(|y| *y == 1 || shape.length >= y * LEAST_PART) {
            ways.extend(THREADS.iter().filter_map(|threads| {
                let threads = BlockShape { x: threads / y, y };
                weigh(shape, vector, threads)
            }));
        }
    }
    ways.sort_by_key(|(cost, _)| *cost);
    let place = tuned(problem.cx.options, "short_columns.choice", 0).min(ways.len() as i64 - 1);
    usize::try_from(place).ok().and_then(|place| ways.get(place)).map(|(_, way)| *way)
}

/// What a way costs, in thousandths of the time that memory takes, if a thread has the registers.
fn weigh(shape: &Shape<'_>, vector: i64, threads: BlockShape) -> Option<(i64, Way)> {
    let batch = ceil_div(shape.length, threads.y);
    let elements = batch * vector;
    let model = shape.model_of(vector, shape.least.is_some() || batch * threads.y != shape.length);
    let held = model.as_in_memory.unwrap_or(model.bytes).early;
    if ceil_div(elements * held, REGISTER_BYTES) > MOST_HELD {
        return None;
    }
    let holding = Holding { turns: false, loads: Loads::Early, parameters: Parameters::Reread };
    let of_part = if threads.y > 1 { OF_PART } else { 0 };
    let registers = model.registers(holding, elements) + of_part + vector * shape.registers_of_sums;
    let per_sm = model.blocks(registers, 0, threads.threads())?;
    let blocks = ceil_div(shape.runs.saturating_mul(ceil_div(shape.run, vector)), threads.x).max(1);
    let of_sm = ceil_div(blocks, i64::from(model.device.sm_count));
    let waiting = per_sm.min(of_sm);
    let waits = if threads.y > 1 { WAITING * shape.sums / waiting } else { 0 };
    let per_thread = MORE * (elements - MANY).max(0) + FEWER * (MANY / 2 - elements).max(0);
    let shifted = if model.shifted && shape.is_held { HELD_SHIFTED } else { 0 };
    let cost = busy(shape, vector, threads)
        + shifted
        + waits
        + per_thread
        + uneven(blocks, per_sm, i64::from(model.device.sm_count))
        + idle_runs(shape, vector, threads)
        + model.idle_memory(holding, waiting, threads.threads() * elements);
    Some((cost, Way { vector, threads, batch, per_sm }))
}

/// What instructions cost.
fn busy(shape: &Shape<'_>, vector: i64, threads: BlockShape) -> i64 {
    let batch = ceil_div(shape.length, threads.y);
    let access = if vector > shape.aligned { OF_SHIFTED } else { OF_ACCESS };
    let exchange = if threads.y > 1 { OF_STEP * i64::from(threads.y.ilog2()) + OF_EXCHANGE } else { 0 };
    // In thousandths for an element.
    let work = OF_ELEMENT * 1000 + shape.tensors * access * 1000 / vector + shape.sums * exchange * 1000 / batch;
    let rows = work * batch * threads.y / shape.length;
    let lanes = rows.saturating_mul(ceil_div(shape.run, vector) * vector) / shape.run.max(1);
    lanes * OF_INSTRUCTION / 1000 * 2 / shape.moved.max(1)
}

/// What it costs that of few blocks some multiprocessors have one more than others, and that the last ones leave places
/// empty, or that there are no others to load while some compute.
fn uneven(blocks: i64, per_sm: i64, sms: i64) -> i64 {
    let of_sm = ceil_div(blocks, sms);
    let more = (of_sm * sms).saturating_mul(1000) / blocks - 1000;
    let last = if of_sm > per_sm { ceil_div(of_sm, per_sm) * per_sm - of_sm } else { of_sm / 5 };
    more.min(4000) / of_sm.min(per_sm).max(1) + last * LAST / of_sm.max(1)
}

/// What it costs that an access of a warp is many runs, and that those do not end with what memory moves.
fn idle_runs(shape: &Shape<'_>, vector: i64, threads: BlockShape) -> i64 {
    let along = threads.x.min(WARP);
    let run = (shape.run).min(along * vector).max(1);
    let runs = ceil_div(WARP * vector, run);
    let bytes = (WARP * vector).saturating_mul(shape.moved) / shape.tensors.max(1);
    let busy = (runs * BYTES_OF_RUN * 1000 / bytes.max(1) - 1000).max(0);
    // Neighbouring warps share sectors, which some caches see.
    let beyond = shape.run.min(threads.x * vector).saturating_mul(shape.moved) / shape.tensors.max(1);
    let is_shared = shape.aligned * shape.moved / shape.tensors.max(1) >= SECTOR_BYTES.min(MAX_ACCESS_BYTES);
    busy + if is_shared { 4000 } else { 16_000 } / beyond.max(8)
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<ColumnParams> {
    let refused = || Diagnostic::bug("columns that were accepted, and no way to have them");
    let shape = shape_of(problem, scheduled).map_err(|_| refused())?;
    let way = choose(problem, &shape).ok_or_else(refused)?;
    let exact_vector = divides(way.vector, shape.run);
    let runs = extent_of(problem, scheduled, &shape.columns.kept);
    let columns = runs.saturating_mul(shape.run / way.vector);
    Ok(ColumnParams {
        exact_vector,
        exact_columns: exact_vector && divides(way.threads.x, columns),
        length: shape.length,
        least: shape.least,
        columns: shape.columns,
        way,
    })
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &ColumnParams) -> Result<()> {
    let row = &params.columns.reduced;
    cache_inputs(builder, caching)?;
    recompute(builder, &|state, tv| is_cheap(state, tv, row))?;
    let Loops { order, part, lane } = split(builder, params)?;
    let state = builder.state();
    for tv in state.tensors.ids().filter(|tv| state.is_reduction(*tv)).collect::<Vec<_>>() {
        let is_of_pairs = builder.state().reduces_pairs(tv);
        if is_of_pairs {
            // All of a column, which is one iteration, stays around the maximum and the sum.
            builder.rfactor_max(tv, &part[1..])?;
        }
        if params.way.threads.y > 1 {
            builder.rfactor(tv, if is_of_pairs { &part[..1] } else { &part })?;
        }
    }
    builder.propagate(&order)?;
    if params.way.per_sm > 1 {
        builder.min_blocks(params.way.per_sm as u32)?;
    }
    let keep = positions(builder, params, part[0], lane);
    builder.inline_most(&keep)
}

/// The axes that a thread runs over.
struct Loops {
    /// All, outer to inner.
    order: Vec<AxisId>,
    /// Those over its part of a column; of a column of a constant length the first has one iteration.
    part: Vec<AxisId>,
    lane: AxisId,
}

fn split(builder: &mut ScheduleBuilder, params: &ColumnParams) -> Result<Loops> {
    let Way { vector, threads, batch, .. } = params.way;
    let Columns { fast, kept, reduced } = &params.columns;
    let missing = || Diagnostic::bug("columns without a dimension");
    let fast = merge_all(builder, fast)?.ok_or_else(missing)?;
    let kept = merge_all(builder, kept)?;
    let reduced = merge_all(builder, reduced)?.ok_or_else(missing)?;
    let (vectors, lane) = builder.split(fast, vector, params.exact_vector)?;
    let columns = match kept {
        Some(kept) => builder.merge(kept, vectors)?,
        None => vectors,
    };
    let (block, thread) = builder.split(columns, threads.x, params.exact_columns)?;
    let (whole, held) = match params.least {
        Some(least) => {
            builder.at_least(reduced, least)?;
            (None, reduced)
        }
        None => builder.split_cover(reduced, 1, params.length, true).map(|(whole, held)| (Some(whole), held))?,
    };
    let exact = params.least.is_none() && batch * threads.y == params.length;
    let (batch, row) = builder.split_cover(held, batch, threads.y, exact)?;
    let part = whole.into_iter().chain([batch]);
    builder.parallelize(block, ParallelType::Bidx)?;
    builder.parallelize(thread, ParallelType::Tidx)?;
    builder.parallelize(batch, ParallelType::Unroll)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    if threads.y > 1 {
        builder.parallelize(row, ParallelType::Tidy)?;
        let part: Vec<AxisId> = part.collect();
        return Ok(Loops { order: [vec![block, row, thread], part.clone(), vec![lane]].concat(), part, lane });
    }
    let part: Vec<AxisId> = part.chain([row]).collect();
    Ok(Loops { order: [vec![block, thread], part.clone(), vec![lane]].concat(), part, lane })
}

/// How deep values are computed at most: what has all dimensions is loaded at once; what else is loaded, and what is
/// stored, vector by vector.
fn positions(builder: &ScheduleBuilder, params: &ColumnParams, whole: AxisId, lane: AxisId) -> Vec<(TvId, usize)> {
    let state = builder.state();
    let before = |tv: TvId, axis: AxisId| {
        let loops = &state.tensors[tv].loops;
        loops.iter().position(|own| own.axis == axis).unwrap_or(loops.len())
    };
    let Columns { fast, kept, reduced } = &params.columns;
    let is_full = |tv: TvId| {
        let mut all = fast.iter().chain(kept).chain(reduced);
        all.all(|axis| state.tensors[tv].indexed().any(|own| own == *axis))
    };
    let loads = state.tensors.ids().filter(|tv| is_load(state, *tv));
    let mut keep: Vec<(TvId, usize)> =
        loads.map(|tv| (tv, before(tv, if is_full(tv) { whole } else { lane }).min(before(tv, lane)))).collect();
    keep.extend(keep_for_stores(builder, lane));
    keep
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::planned_of;
    use super::*;
    use crate::num::DType;

    const SOFTMAX: &str = "%0 = softmax %x axis(1)\n%y = cast %0 bf16\nreturn %y";
    const SUM: &str = "%0 = sum %x axes(1)\n%y = cast %0 bf16\nreturn %y";

    fn check(body: &str, sizes: [i64; 3], scheduler: &str, params: &str) {
        let text = format!("fusion @f(%x: bf16[?, ?, ?]) {{\n{body}\n}}");
        let planned = planned_of(&text, &[(DType::BF16, &sizes)]).expect("it is scheduled");
        let told = (planned.scheduler, planned.params_text.as_str());
        assert!(told.0 == scheduler && told.1.starts_with(params), "{sizes:?}: {told:?}");
    }

    #[test]
    fn a_thread_has_a_short_column() {
        check(SOFTMAX, [28_066, 25, 41], "short_columns", "vector 1 batch 25 threads 128x1 10 per_sm");
        check(SOFTMAX, [2209, 35, 116], "short_columns", "vector 1 batch 35 threads 128x1 8 per_sm");
        check(SOFTMAX, [51, 26, 4462], "short_columns", "vector 1 batch 26 threads 256x1 5 per_sm");
        check(SOFTMAX, [20_000, 7, 64], "short_columns", "vector 4 batch 7 threads 256x1 4 per_sm");
        // Aligned columns that are only summed are a thread's own elsewhere.
        check(SUM, [1278, 8, 896], "reduction", "outer vector 8 threads 128x1 unroll 8 own");
        check(SUM, [20_000, 16, 33], "short_columns", "vector 1 batch 16 threads 128x1 12 per_sm");
    }

    #[test]
    fn several_threads_have_a_longer_one() {
        check(SOFTMAX, [351, 103, 855], "short_columns", "columns of 97 to 112 vector 1 batch 28 threads");
        check(SOFTMAX, [5, 901, 10_001], "short_columns", "columns of 897 to 1024 vector 1 batch");
    }

    #[test]
    fn blocks_have_what_is_longer() {
        let check = |body: &str, sizes: [i64; 3], scheduler: &str| {
            let text = format!("fusion @f(%x: bf16[?, ?, ?]) {{\n{body}\n}}");
            let planned = planned_of(&text, &[(DType::BF16, &sizes)]).expect("it is scheduled");
            assert_eq!(planned.scheduler, scheduler, "{sizes:?}");
        };
        check(SOFTMAX, [64, 3136, 256], "grid_persistent");
        check(SOFTMAX, [300, 100, 1024], "grid_persistent");
        check(SUM, [300, 100, 1024], "reduction");
        // Rows along memory, and of one element.
        check("%0 = softmax %x axis(2)\nreturn %0", [300, 16, 64], "inner_persistent");
        check(SOFTMAX, [300, 1, 41], "inner_persistent");
    }

    #[test]
    fn cuts_ask_as_the_heuristic_does() {
        let check = |longest: i64, run: i64| {
            assert!(may_hold_columns(2, run) && may_hold_columns(longest, run), "{run}");
            assert!(!may_hold_columns(1, run) && !may_hold_columns(longest + 1, run), "{run}");
        };
        check(LONGEST_IN_VECTORS, 2048);
        check(LONGEST_IN_VECTORS, 6);
        check(LONGEST_OF_WORDS, 3108);
        check(LONGEST_HELD, 1710);
    }
}
