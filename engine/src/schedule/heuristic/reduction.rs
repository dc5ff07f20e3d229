//! Reductions without a use of the result along the reduced dimensions.
//!
//! *Inner*: the fastest dimension of the largest input is reduced. A row is
//! read by the threads of x in vectors; several rows share a block when they
//! are short, several blocks share a row when there are few. Where slower dimensions
//! are reduced as well, a row is all vectors of its runs. *Outer*: the
//! fastest dimension stays. Threads of x take columns, threads of y and blocks
//! take parts of the rows. Of many sums of few elements each thread has its own, either way,
//! and several where rows are so short that one has few loads in flight.
//!
//! Each reduction is split in stages: a thread's own elements, lane by lane of
//! the vector; the lanes; the threads; the blocks.

use super::beside::{Beside, is_long, order_as_results, read_along};
use super::choose::{Heuristic, Params, Problem, Refusal};
use super::columns::{MOST_NARROW, columns_for, has_moments};
use super::coverage;
use super::norm_inner::prefetch_rows;
use super::reduced_tile::{MOST_OWN_ROWS, ROWS_PER_SM, Tile, Work, tile_inner, tile_outer};
use super::residency::REGISTER_BYTES;
use super::shared_tile::WORD_BYTES;
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    BlockShape, Caching, RowLoop, bind_rows, cache_inputs, ceil_div, collapse, divides, keep_for_stores, merge_all,
    row_loop, tuned, vector_width,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::options::CompileCx;
use crate::schedule::{AxisId, Compute, ParallelType, Parts, ScheduleBuilder, ScheduledFusion, TvId};

/// Registers of a thread for the sums of its columns.
const MOST_ACCUMULATORS: i64 = 128;

/// Inputs whose rows are shifted to vectors, at most.
const MOST_SHIFTED: usize = 8;
/// Registers in which a thread has a vector of each input along a row.
const MOST_VECTOR_REGISTERS: i64 = 48;

/// Threads of a multiprocessor that have sums of their own from which on each adds them up alone. Vectors of a row that lies
/// along memory, at most.
const OWN_SUMS_PER_SM: i64 = 512;
const MOST_OWN_VECTORS: i64 = 16;
/// Rows of which a thread has such sums, and the loads of all of them that are on their way at once, at most.
const MOST_THREAD_SUMS: i64 = 4;
const MOST_OWN_LOADS: i64 = 8;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "reduction",
    writes_parts: true,
    accepts: |problem, scheduled| {
        coverage::check_plain(scheduled)?;
        if problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has no reduction".to_string()));
        }
        coverage::check(problem, scheduled)?;
        if problem.summary.structure.persistent {
            let reason = "a value varies along the reduced dimensions after the reduction";
            return Err(Refusal::Pattern(reason.to_string()));
        }
        Ok(())
    },
    choose: |problem, scheduled| Ok(Params::Reduction(params(problem, scheduled))),
};

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReductionParams {
    /// Whether the fastest dimension is reduced.
    inner: bool,
    /// Dimensions that stay, slowest first; in the outer case without `fast`.
    kept: Vec<AxisId>,
    /// Slower reduced dimensions; in the outer case all reduced ones.
    slow: Vec<AxisId>,
    /// Whether the runs of a row along the fastest group are one row of vectors: a vector says by a division which run it is of.
    joined: bool,
    /// Whether each thread has sums of its own: of columns all that stay are one axis of threads.
    own: bool,
    /// Of such sums those of several rows, which share what is loaded of their columns.
    beside: Option<Beside>,
    /// Where operands lie along what is reduced, and are read in vectors along it: whether each vector has a sum first.
    along: Option<bool>,
    /// The fastest group of dimensions: reduced or kept.
    fast: Vec<AxisId>,
    vector: i64,
    align: Option<TvId>,
    exact_vector: bool,
    /// Whether the tiles divide the reduced axis, and the threads the kept one.
    exact: bool,
    exact_kept: bool,
    threads: BlockShape,
    /// Loads in flight.
    unroll: i64,
    /// Rows of which a thread has the sums, so that it has the loads of all in flight.
    sums: i64,
    /// Whether blocks take rows in turn.
    row_loop: Option<RowLoop>,
    /// Whether one tile covers the reduced axis, or a block's part of it, so that no loop is left.
    one_tile: bool,
    /// Blocks of the device, over which the tiles of each result are spread, where several
    /// blocks share one.
    spread: Option<i64>,
    /// Blocks of a multiprocessor that bound the registers.
    min_blocks: Option<u32>,
}

impl std::fmt::Display for ReductionParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} vector {} threads {} unroll {}",
            if self.inner { "inner" } else { "outer" },
            self.vector,
            self.threads,
            self.unroll
        )?;
        if let Some(blocks) = self.spread {
            write!(f, " grid {blocks} blocks{}", if self.one_tile { " one_tile" } else { "" })?;
        }
        if let Some(rows) = self.row_loop {
            write!(f, " row_loop {} blocks {} per_sm", rows.blocks, rows.per_sm)?;
        }
        if let Some(min_blocks) = self.min_blocks {
            write!(f, " {min_blocks} per_sm")?;
        }
        f.write_str(if self.align.is_some() { " aligned" } else { "" })?;
        f.write_str(if self.joined { " joined" } else { "" })?;
        f.write_str(if self.own { " own" } else { "" })?;
        self.beside.iter().try_for_each(|beside| write!(f, " rows {}", beside.count))?;
        self.along.iter().try_for_each(|staged| f.write_str(if *staged { " along in stages" } else { " along" }))?;
        if self.sums > 1 { write!(f, " sums {}", self.sums) } else { Ok(()) }
    }
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> ReductionParams {
    let &Problem { cx, summary, sizes } = problem;
    let extent = |root: AxisId| sizes.extent(scheduled, root);
    let product = |roots: &[AxisId]| roots.iter().map(|root| extent(*root)).fold(1i64, i64::saturating_mul);
    let touches = |tensor: &GlobalTensor| tensor.order.iter().any(|root| summary.structure.reduced.contains(root));
    let mut order: Vec<AxisId> = summary.largest(touches).map(|tensor| tensor.order.clone()).unwrap_or_default();
    order.extend(summary.structure.roots.iter().filter(|root| !order.contains(root)).collect::<Vec<_>>());
    order_as_results(summary, touches, &mut order);
    let fastest = order.last().copied();
    let inner = fastest.is_none_or(|root| summary.structure.reduced.contains(&root));
    let (reduced, kept): (Vec<AxisId>, Vec<AxisId>) =
        order.iter().partition(|root| summary.structure.reduced.contains(root));
    let groups = collapse(summary, if inner { &reduced } else { &kept });
    let fast = groups.last().cloned().unwrap_or_default();
    let rest = groups[..groups.len().saturating_sub(1)].concat();
    let (kept, slow) = if inner { (kept, rest) } else { (rest, reduced) };

    let fast_extent = product(&fast);
    let is_along = |tensor: &GlobalTensor| fast.last().is_some_and(|last| tensor.is_innermost(*last));
    // Where nothing that is reduced lies along what stays, vectors are those of results, if each thread has sums of its own.
    let row_vector = if inner { None } else { Beside::along(summary, touches, [&kept, &fast, &slow], product(&slow)) };
    let of_results = !inner
        && ((2..=MOST_OWN_ROWS).contains(&product(&slow)) || row_vector.is_some())
        && product(&kept).saturating_mul(fast_extent / MAX_ACCESS_BYTES) >= own_sums(cx)
        && !has_pairs(scheduled)
        && !summary.globals.iter().any(|tensor| touches(tensor) && is_along(tensor));
    let runs = |tensor: &GlobalTensor| (touches(tensor) || of_results && tensor.is_output) && is_along(tensor);
    let mut vector = vector_width(summary, runs);
    let read = |tensor: &&GlobalTensor| runs(tensor) && !tensor.is_output;
    let read_bytes: i64 = summary.globals.iter().filter(read).map(|tensor| tensor.bytes).sum();
    // What a thread has of all inputs at once, and of sums.
    let too_many = |vector: i64| match inner {
        true => vector * read_bytes > MOST_VECTOR_REGISTERS * REGISTER_BYTES,
        false => vector * accumulators(scheduled) > MOST_ACCUMULATORS,
    };
    // Rows that are looked up start anywhere, whatever is aligned.
    let has_rows = |tensor: &GlobalTensor| runs(tensor) && !tensor.is_part;
    let aligned = |vector| summary.globals.iter().filter(|t| has_rows(t)).all(|t| t.rows_aligned(vector, fast.len()));
    // A run of one vector is short, but is one; and so is a row, if a thread has all of it.
    let has_own = inner && product(&kept) >= own_sums(cx) && !has_pairs(scheduled);
    let may_be_one = |vector: i64| groups.len() > 1 || has_own && aligned(vector);
    let is_one = |vector: i64| inner && fast_extent == vector && may_be_one(vector);
    while vector > 1 && (fast_extent < 2 * vector && !is_one(vector) || too_many(vector)) {
        vector /= 2;
    }
    let mut align = None;
    let misaligned = !aligned(vector);
    // What it takes to shift rows to vectors is done for each input.
    let is_shifted_often = summary.globals.iter().filter(read).count() > MOST_SHIFTED;
    let singles = misaligned && inner && (is_shifted_often || are_singles(summary, has_rows, vector));
    if misaligned && inner && !singles {
        align = summary.largest(has_rows).map(|tensor| tensor.tv);
    }
    let is_written = summary.globals.iter().any(|tensor| runs(tensor) && tensor.is_output);
    let is_narrow = misaligned && !inner && fast_extent <= MOST_NARROW;
    // Pairs, or single elements: few kernels for many sizes.
    if misaligned && align.is_none() && (inner || is_written || is_narrow) {
        vector = if vector > 2 && aligned(2) { 2 } else { 1 };
    }
    let padded = fast_extent + if align.is_some() { vector - 1 } else { 0 };
    let (run, runs_of_row) = (ceil_div(padded, vector).max(1), product(&slow));
    // Threads and blocks share all runs of a row, however short they are.
    let joined = inner && runs_of_row > 1;
    let (vectors, rest) = if joined { (run.saturating_mul(runs_of_row), 1) } else { (run, runs_of_row) };
    let has_pairs = has_pairs(scheduled);
    let inputs = summary.globals.iter().filter(read).count().max(1) as i64;
    let singles = singles.then_some(inputs);
    let registers = ceil_div(vector * read_bytes, REGISTER_BYTES);
    let has_rows = !kept.is_empty();
    let (kept_extent, shifted) = (product(&kept), align.is_some());
    let work =
        Work { vectors, vector, shifted, slow: rest, kept: kept_extent, has_rows, has_pairs, registers, singles };
    let columns = columns_for(scheduled, [misaligned, is_written, is_narrow], inputs);
    let is_looked_up = summary.globals.iter().any(|tensor| runs(tensor) && tensor.is_part);
    let few = if is_looked_up { columns.of_few_rows([work.slow, work.vectors, work.kept], cx.device) } else { None };
    let (columns, most_y) = few.map_or((columns, None), |(columns, most_y)| (columns, Some(most_y)));
    let sums = if inner { work.kept } else { work.kept.saturating_mul(work.vectors) };
    let may_be_beside = !inner && !is_looked_up && !has_pairs;
    let beside = Beside::axes(summary, [&kept, &fast], touches).filter(|_| may_be_beside).and_then(|axes| {
        let rows = product(&kept[kept.len() - axes..]);
        Beside::new(axes, rows, [vector * accumulators(scheduled), sums / own_sums(cx)])
    });
    let is_short_row = match joined {
        true => work.vectors <= MOST_OWN_VECTORS && (run == 1 || vector == 1),
        false => run == 1 && fast_extent > 1 && runs_of_row == 1,
    };
    let own_rows = if inner {
        is_short_row.then_some(work.vectors)
    } else {
        row_vector.filter(|_| beside.is_some()).or_else(|| work.rows_of_a_thread(summary, [vector, inputs], beside))
    };
    let own_rows = own_rows.filter(|_| sums >= own_sums(cx) && !has_pairs);
    let Tile { threads, unroll, spread } = match (own_rows, inner) {
        (Some(unroll), _) => Tile::own(inner, unroll),
        (None, true) => tile_inner(cx, &work),
        (None, false) => tile_outer(cx, &work, (inputs, most_y), &columns),
    };
    let (length, along) = if inner { (work.vectors, threads.x) } else { (work.slow, threads.y) };
    let own = own_rows.is_some();
    let beside = beside.filter(|_| own);
    let thread_sums = if inner && own { rows_of_own(cx, &work, inputs) } else { 1 };
    let (kept_length, kept_along) = match (inner, own) {
        (true, _) => (work.kept, threads.y * thread_sums),
        (false, true) => (sums, threads.x),
        (false, false) => (work.vectors, threads.x),
    };
    let exact_vector = align.is_none() && divides(vector, fast_extent);
    // Elements (outer) or vectors (inner) of the reduced axis for each block.
    let per_block = spread.map(|spread| spread.tiles * along * unroll);
    let one_tile = per_block.unwrap_or(length) <= along * unroll;
    let row_loop = if inner && one_tile && spread.is_none() && work.slow == 1 {
        let wanted = tuned(cx.options, "reduction.threads_per_sm", 0);
        let per_sm = (wanted / threads.threads()).max(1);
        let looped = row_loop(cx, ceil_div(work.kept, threads.y), per_sm, align.map(|_| vector));
        looped.filter(|_| wanted > 0 && thread_sums == 1)
    } else {
        None
    };
    let kept_along = kept_along * row_loop.map_or(1, |row_loop| row_loop.blocks);
    // One tile covers an empty row too, with every element masked.
    let exact = (!inner || exact_vector) && work.slow > 0 && divides(per_block.unwrap_or(along * unroll), length);
    let min_blocks = match inner {
        true => (has_pairs && work.has_rows && spread.is_some()).then_some(ROWS_PER_SM as u32),
        false => (columns.bounded && !own).then_some(columns.per_sm[0] as u32),
    };
    ReductionParams {
        one_tile,
        row_loop,
        inner,
        kept,
        slow,
        joined,
        own,
        beside,
        along: (beside.is_some() && row_vector.is_some()).then(|| is_long(work.slow)),
        exact,
        // Where elements of a row are tested anyway, another test of the row is no loss.
        exact_kept: (inner || exact_vector && beside.is_none())
            && kept_length % kept_along == 0
            && (!inner || exact || kept_along == 1),
        exact_vector,
        fast,
        vector,
        align,
        threads,
        unroll,
        sums: thread_sums,
        spread: spread.map(|spread| spread.blocks),
        min_blocks,
    }
}

/// Whether words of rows are read one by one: vectors of several inputs that do not start alike are made of two words each, and of
/// their ends all are tested, which takes more instructions than single words, whose accesses are whole sectors as well.
fn are_singles(summary: &Summary<'_>, has_rows: impl Fn(&GlobalTensor) -> bool, vector: i64) -> bool {
    let Some(reference) = summary.largest(&has_rows) else { return false };
    let is_dense = |tensor: &GlobalTensor| tensor.dense.iter().all(|dense| *dense);
    let starts_alike = |tensor: &GlobalTensor| {
        let is_reference = tensor.tv == reference.tv;
        tensor.base_align % vector == 0
            && (is_reference || tensor.order == reference.order && is_dense(tensor) && is_dense(reference))
    };
    let rows = || summary.globals.iter().filter(|tensor| has_rows(tensor));
    rows().count() > 1 && rows().all(|tensor| tensor.bytes >= WORD_BYTES) && !rows().all(starts_alike)
}

/// Rows of so few vectors of which a thread has the sums: as many as have loads enough in flight, fewer if the device would idle.
fn rows_of_own(cx: &CompileCx<'_>, work: &Work, inputs: i64) -> i64 {
    let loads = work.vectors.saturating_mul(inputs).max(1);
    let fill = i64::from(cx.device.sm_count) * i64::from(cx.device.max_threads_per_sm);
    let fits = |rows: &i64| rows * loads <= MOST_OWN_LOADS && work.kept / rows >= 4 * fill;
    let mut wanted = std::iter::successors(Some(MOST_THREAD_SUMS), |rows| Some(rows / 2)).take_while(|rows| *rows > 1);
    tuned(cx.options, "reduction.sums", wanted.find(fits).unwrap_or(1))
}

/// Sums from which on threads have their own.
fn own_sums(cx: &CompileCx<'_>) -> i64 {
    tuned(cx.options, "reduction.own_sums", OWN_SUMS_PER_SM * i64::from(cx.device.sm_count))
}

/// Whether maxima are reduced with sums of exponentials below them.
pub(super) fn has_pairs(scheduled: &ScheduledFusion) -> bool {
    scheduled.tensors.ids().any(|tv| scheduled.reduces_pairs(tv))
}

/// Registers that the sums of one column take.
pub(super) fn accumulators(scheduled: &ScheduledFusion) -> i64 {
    let reductions = scheduled.tensors.values().filter(|tv| {
        let op = tv.op.as_ref();
        op.is_some_and(|op| matches!(op.compute, Compute::Reduce { .. }))
    });
    reductions.map(|tv| ceil_div(tv.dtype.bytes() as i64, REGISTER_BYTES)).sum()
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &ReductionParams) -> Result<()> {
    // What columns are reduced of is read again as a rule, once maxima and sums are known, or means and variances.
    let is_read_again = !params.inner && has_pairs(builder.state()) || has_moments(builder.state());
    let caches = cache_inputs(builder, if is_read_again { caching.of_stores() } else { caching })?;
    let order = if params.inner { split_inner(builder, params)? } else { split_outer(builder, params)? };
    // Stages: within a thread, over the lanes of the vector, over threads and blocks.
    let reductions: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    for tv in reductions {
        let leaves = builder.state().reduced_leaves(tv);
        let of = |wanted: &dyn Fn(ParallelType) -> bool, builder: &ScheduleBuilder| -> Vec<AxisId> {
            leaves.iter().copied().filter(|leaf| wanted(builder.state().bindings[*leaf])).collect()
        };
        if builder.state().reduces_pairs(tv) {
            let tile = of(&|p| matches!(p, ParallelType::Unroll | ParallelType::Vectorize), builder);
            builder.rfactor_max(tv, &tile)?;
            let steps = of(&|p| p == ParallelType::Serial, builder);
            builder.rfactor(tv, &steps)?;
            continue;
        }
        if params.along == Some(true) {
            builder.rfactor(tv, &order.tile[..1])?;
            continue;
        }
        let loops = of(&|p| p.is_loop() && p != ParallelType::Vectorize, builder);
        // A thread that has all of a column has one stage, and one that has all of a row ends with the lanes.
        if loops.len() < leaves.len() {
            builder.rfactor(tv, &loops)?;
        }
        let lanes = of(&|p| p == ParallelType::Vectorize, builder);
        if !lanes.is_empty() && loops.len() + lanes.len() < leaves.len() {
            builder.rfactor(tv, &lanes)?;
        }
    }
    builder.propagate(&order.loops)?;
    if params.along.is_some() {
        caches.iter().try_for_each(|cache| read_along(builder, *cache, &order.tile))?;
    }
    if let Some(min_blocks) = params.min_blocks {
        builder.min_blocks(min_blocks)?;
    }
    let mut keep: Vec<_> = caches
        .iter()
        .map(|cache| {
            let data = &builder.state().tensors[*cache];
            (*cache, data.loop_axes().position(|axis| order.tile.contains(&axis)).unwrap_or(data.loops.len()))
        })
        .collect();
    keep.extend(order.tile.last().into_iter().flat_map(|lane| keep_for_stores(builder, *lane)));
    builder.inline_most(&keep)?;
    prefetch_rows(builder, &caches, order.turn)
}

/// The loop order, and the leaves of a thread's tile: loads are issued for a
/// whole tile before its elements are used.
struct Order {
    loops: Vec<AxisId>,
    tile: Vec<AxisId>,
    /// The loop in which blocks take rows in turn.
    turn: Option<AxisId>,
}

fn split_inner(builder: &mut ScheduleBuilder, params: &ReductionParams) -> Result<Order> {
    let Some(fast) = merge_all(builder, &params.fast)? else {
        return Err(Diagnostic::bug("a reduction without a reduced axis"));
    };
    let slow = merge_all(builder, &params.slow)?;
    let mut loops = Vec::new();
    let (mut turn, mut beside, mut own_rows) = (None, None, None);
    if let Some(rows) = merge_all(builder, &params.kept)? {
        let order = if params.sums > 1 {
            let (rest, thread) = builder.split(rows, params.threads.y, params.exact_kept)?;
            let (block, own) = builder.split(rest, params.sums, params.exact_kept)?;
            builder.parallelize(block, ParallelType::Bidx)?;
            builder.parallelize(thread, ParallelType::Tidy)?;
            builder.parallelize(own, ParallelType::Unroll)?;
            own_rows = Some(own);
            [block, thread]
        } else {
            let bound = bind_rows(builder, rows, params.threads.y, params.row_loop, params.exact_kept)?;
            turn = bound.turn;
            bound.order
        };
        beside = Some(order[0]);
        loops.extend(order);
    }
    let fast = match params.align {
        Some(reference) => builder.align(fast, params.vector, reference, None)?,
        None => fast,
    };
    let (vectors, lane) = builder.split(fast, params.vector, params.exact_vector)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    let (vectors, slow) = match slow {
        Some(runs) if params.joined => (builder.merge(runs, vectors)?, None),
        slow => (vectors, slow),
    };
    let Tiles { block, steps, in_tile } =
        split_tiles(builder, params, vectors, params.threads.x * params.unroll, beside)?;
    if let Some(block) = block {
        builder.parallelize(block, if loops.is_empty() { ParallelType::Bidx } else { ParallelType::Bidy })?;
        loops.push(block);
    }
    let unrolled = if params.own {
        in_tile
    } else {
        let (unrolled, thread) = builder.split(in_tile, params.threads.x, true)?;
        builder.parallelize(thread, ParallelType::Tidx)?;
        loops.push(thread);
        unrolled
    };
    builder.parallelize(unrolled, ParallelType::Unroll)?;
    loops.extend(turn);
    loops.extend(own_rows);
    loops.extend(slow);
    loops.extend([steps, unrolled, lane]);
    // With one tile a row, the whole row is loaded at once, a row ahead; or with those beside it.
    let tile = match own_rows {
        Some(own) => vec![own, steps, unrolled, lane],
        None if turn.is_some() => vec![steps, unrolled, lane],
        None => vec![unrolled, lane],
    };
    Ok(Order { loops, tile, turn })
}

fn split_outer(builder: &mut ScheduleBuilder, params: &ReductionParams) -> Result<Order> {
    let (Some(columns), Some(rows)) = (merge_all(builder, &params.fast)?, merge_all(builder, &params.slow)?) else {
        return Err(Diagnostic::bug("an outer reduction without columns or rows"));
    };
    let (vectors, lane) = builder.split(columns, params.vector, params.exact_vector)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    let rows_from = params.kept.len() - params.beside.as_ref().map_or(0, |beside| beside.axes);
    let (kept, beside) = params.kept.split_at(rows_from);
    let (mut kept, mut row) = (merge_all(builder, kept)?, None);
    if let (Some(own), Some(all)) = (params.beside, merge_all(builder, beside)?) {
        let (turns, inner) = builder.split(all, own.count, own.exact)?;
        builder.parallelize(inner, ParallelType::Unroll)?;
        row = Some(inner);
        kept = Some(kept.map_or(Ok(turns), |kept| builder.merge(kept, turns))?);
    }
    let vectors = match kept.take_if(|_| params.own) {
        Some(kept) => builder.merge(kept, vectors)?,
        None => vectors,
    };
    let (mut block, thread_x) = builder.split(vectors, params.threads.x, params.exact_kept)?;
    builder.parallelize(thread_x, ParallelType::Tidx)?;
    if let Some(kept) = kept {
        block = builder.merge(kept, block)?;
    }
    builder.parallelize(block, ParallelType::Bidx)?;
    let mut loops = vec![block];
    let Tiles { block: part, steps, in_tile } =
        split_tiles(builder, params, rows, params.threads.y * params.unroll, Some(block))?;
    if let Some(part) = part {
        builder.parallelize(part, ParallelType::Bidy)?;
        loops.push(part);
    }
    if params.own {
        builder.parallelize(in_tile, ParallelType::Unroll)?;
        loops.extend([thread_x, steps]);
        let tile: Vec<AxisId> = [in_tile].into_iter().chain(row).chain([lane]).collect();
        loops.extend(&tile);
        return Ok(Order { loops, tile, turn: None });
    }
    let (unrolled, thread_y) = builder.split(in_tile, params.threads.y, true)?;
    builder.parallelize(thread_y, ParallelType::Tidy)?;
    builder.parallelize(unrolled, ParallelType::Unroll)?;
    loops.extend([thread_y, thread_x, steps, unrolled, lane]);
    Ok(Order { loops, tile: vec![unrolled, lane], turn: None })
}

/// A reduced axis in tiles.
struct Tiles {
    /// The blocks that share a result, if several do.
    block: Option<AxisId>,
    /// The tiles of a block.
    steps: AxisId,
    /// The elements or vectors of a tile.
    in_tile: AxisId,
}

/// Cuts an axis into tiles, and gives them to blocks where several share a result beside
/// those of another axis; where one tile is enough for a block, into exactly one.
fn split_tiles(
    builder: &mut ScheduleBuilder,
    params: &ReductionParams,
    axis: AxisId,
    tile: i64,
    beside: Option<AxisId>,
) -> Result<Tiles> {
    match params.spread {
        None => {
            let (steps, in_tile) = match params.one_tile {
                true => builder.split_cover(axis, 1, tile, params.exact)?,
                false => builder.split(axis, tile, params.exact)?,
            };
            Ok(Tiles { block: None, steps, in_tile })
        }
        Some(_) if params.one_tile => {
            let (block, part) = builder.split(axis, tile, params.exact)?;
            let (steps, in_tile) = builder.split_cover(part, 1, tile, true)?;
            Ok(Tiles { block: Some(block), steps, in_tile })
        }
        Some(places) => {
            let (tiles, in_tile) = builder.split(axis, tile, params.exact)?;
            let (block, steps) = builder.split_parts(tiles, Parts { places, beside }, params.exact)?;
            Ok(Tiles { block: Some(block), steps, in_tile })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::planned_of;
    use crate::num::DType;

    #[test]
    fn blocks_take_few_columns_of_sums_and_squares() {
        let check = |sizes: [i64; 2], params: &str| {
            let body = "%0 = cast %x f32\n%1 = mul %0, %0\n%2 = complex %0, %1\n%3 = sum %2 axes(0)\nreturn %3";
            let text = format!("fusion @f(%x: bf16[?, ?]) {{\n{body}\n}}");
            let planned = planned_of(&text, &[(DType::BF16, &sizes)]).expect("it is scheduled");
            assert_eq!((planned.scheduler, planned.params_text.as_str()), ("reduction", params), "{sizes:?}");
        };
        check([57_600, 192], "outer vector 8 threads 8x64 unroll 4 grid 264 blocks 2 per_sm");
        check([57_600, 320], "outer vector 8 threads 8x64 unroll 4 grid 264 blocks 2 per_sm");
        // No block has less to do than another.
        check([100_000, 96], "outer vector 8 threads 6x64 unroll 4 grid 264 blocks 2 per_sm");
        check([100_000, 16], "outer vector 8 threads 2x256 unroll 4 grid 264 blocks one_tile 2 per_sm");
    }

    #[test]
    fn runs_of_a_row_are_joined_and_sums_of_few_elements_are_a_threads_own() {
        let check = |body: &str, dtype: DType, sizes: &[i64], params: &str| {
            let text = format!("fusion @f(%x: {dtype}[{}]) {{\n{body}\n}}", vec!["?"; sizes.len()].join(", "));
            let planned = planned_of(&text, &[(dtype, sizes)]).expect("it is scheduled");
            assert_eq!((planned.scheduler, planned.params_text.as_str()), ("reduction", params), "{sizes:?}");
        };
        let runs = "%0 = cast %x f32\n%1 = sum %0 axes(0, 2, 3)\nreturn %1";
        check(runs, DType::BF16, &[23, 418, 20, 24], "inner vector 8 threads 256x1 unroll 2 grid 1056 blocks joined");
        // Runs at odd places, and few rows of many.
        check(runs, DType::BF16, &[41, 816, 27, 9], "inner vector 8 threads 256x1 unroll 2 aligned joined");
        check(runs, DType::F32, &[117, 48, 98, 40], "inner vector 4 threads 256x1 unroll 2 grid 1056 blocks joined");
        let windows = "%0 = cast %x f32\n%1 = sum %0 axes(2, 4)\nreturn %1";
        check(windows, DType::BF16, &[485, 1328, 2, 5, 2], "inner vector 2 threads 1x128 unroll 2 joined own sums 2");
        check(windows, DType::BF16, &[485, 328, 2, 5, 2], "inner vector 2 threads 1x128 unroll 2 joined own");
        check(windows, DType::F32, &[64, 1328, 3, 5, 3], "inner vector 1 threads 1x128 unroll 9 joined own");
        // Rows of one vector, with as many loads on their way as fill the device all the same.
        let packs = "%0 = cast %x f32\n%1 = sum %0 axes(1)\nreturn %1";
        check(packs, DType::BF16, &[9_000_001, 8], "inner vector 8 threads 1x128 unroll 1 own sums 4");
        check(packs, DType::F32, &[3_000_001, 4], "inner vector 4 threads 1x128 unroll 1 own sums 2");
        check(packs, DType::F32, &[100_001, 4], "inner vector 4 threads 1x128 unroll 1 own");
        check(packs, DType::F32, &[10_001, 4], "inner vector 2 threads 2x64 unroll 1");
        let experts = "%0 = cast %x f32\n%1 = sum %0 axes(1)\nreturn %1";
        check(experts, DType::BF16, &[932, 5, 2328], "outer vector 8 threads 128x1 unroll 5 own");
        // More loads than a thread has registers for: in turns of as many each.
        check(experts, DType::BF16, &[6000, 31, 2048], "outer vector 8 threads 128x1 unroll 16 own");
        check(experts, DType::BF16, &[6, 31, 2048], "outer vector 8 threads 32x16 unroll 2");
    }
    #[test]
    fn results_of_which_no_operand_has_neighbours_are_written_in_vectors() {
        let check = |dtype: DType, [m, n, d]: [i64; 3], params: &str| {
            let body = "%a = broadcast %x flags(false, true, false)\n%b = broadcast %y flags(true, false, false)\n\
                        %0 = sub %a, %b\n%1 = mul %0, %0\n%2 = sum %1 axes(2)";
            let text = format!(
                "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {{\n{body}\n%3 = neg %2\n%r = cast %3 {dtype}\nreturn %r\n}}"
            );
            let planned = planned_of(&text, &[(DType::F32, &[m, d]), (DType::F32, &[n, d])]).expect("it is scheduled");
            assert_eq!((planned.scheduler, planned.params_text.as_str()), ("reduction", params), "{m} {n} {d}");
        };
        check(DType::BF16, [16_384, 4096, 3], "outer vector 8 threads 128x1 unroll 3 own rows 4");
        check(DType::BF16, [4096, 16_384, 3], "outer vector 8 threads 128x1 unroll 3 own rows 4");
        check(DType::BF16, [16_384, 4096, 12], "outer vector 8 threads 128x1 unroll 4 own rows 4 along");
        check(DType::F32, [16_384, 4096, 61], "outer vector 4 threads 128x1 unroll 4 own rows 8 along");
        check(DType::F32, [16_384, 4096, 300], "outer vector 4 threads 128x1 unroll 4 own rows 8 along in stages");
        check(DType::F32, [5003, 3002, 3], "outer vector 2 threads 128x1 unroll 3 own rows 8");
        check(DType::F32, [5003, 3001, 3], "outer vector 1 threads 128x1 unroll 3 own rows 8");
        check(DType::F32, [3001, 5003, 3], "outer vector 1 threads 128x1 unroll 3 own rows 8");
        // So few that threads would be idle, or that are all.
        check(DType::F32, [301, 453, 3], "outer vector 1 threads 128x1 unroll 3 own rows 2");
        check(DType::F32, [3, 500_001, 3], "outer vector 1 threads 128x1 unroll 3 own rows 2");
    }
}
