//! Normalisations: a value that varies along the reduced dimensions is needed
//! again after the reduction. Each row is held in the registers of one block,
//! so memory is read once.
//!
//! What is held is chosen so that few registers are needed: a value that is
//! cheap to recompute from one other value of the row is recomputed where it is
//! used (a cast of the input costs nothing; an exponential is kept).

use super::choose::{Heuristic, Problem, Refusal};
use super::coverage;
use super::recompute::recompute;
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    BlockShape, RowLoop, WARP, bind_rows, cache_inputs, ceil_div, collapse, divides, keep_for_stores, merge_all,
    next_power_of_two, row_loop, tuned, vector_width,
};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{BinaryOp, UnaryOp};
use crate::options::{CompileCx, Options};
use crate::schedule::{AxisId, Compute, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};

/// Elements of a row that one thread may hold.
const MAX_PER_THREAD: i64 = 64;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "inner_persistent",
    accepts: |problem, scheduled| {
        if problem.summary.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has no reduction".to_string()));
        }
        coverage::check(problem, scheduled)?;
        if !problem.summary.persistent {
            let reason = "nothing varies along the reduced dimensions after the reduction";
            return Err(Refusal::Pattern(reason.to_string()));
        }
        params(problem, scheduled)?;
        Ok(())
    },
    plan: |problem, builder| {
        let params = params(problem, builder.state())?;
        apply(builder, problem.summary, problem.cx.options, &params)?;
        Ok(params.to_string())
    },
};

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Params {
    /// Dimensions that stay.
    kept: Vec<AxisId>,
    /// Reduced dimensions, slowest first.
    reduced: Vec<AxisId>,
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
    /// Whether the kept dimensions are one dense run of every full tensor.
    dense_rows: bool,
}

impl std::fmt::Display for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vector {} batch {} threads {}", self.vector, self.batch, self.threads)?;
        if let Some(rows) = self.row_loop {
            write!(f, " row_loop {} blocks {} per_sm", rows.blocks, rows.per_sm)?;
        }
        if self.align.is_some() { write!(f, " aligned") } else { Ok(()) }
    }
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<Params> {
    let &Problem { cx, summary, sizes } = problem;
    let extent = |root: AxisId| sizes.extent(scheduled, root);
    let product = |roots: &[AxisId]| roots.iter().map(|root| extent(*root)).fold(1i64, i64::saturating_mul);
    let touches = |tensor: &GlobalTensor| tensor.order.iter().any(|root| summary.reduced.contains(root));
    let mut order: Vec<AxisId> = summary.largest(touches).map(|tensor| tensor.order.clone()).unwrap_or_default();
    order.extend(summary.roots.iter().filter(|root| !order.contains(root)).collect::<Vec<_>>());
    let (reduced, kept): (Vec<AxisId>, Vec<AxisId>) = order.iter().partition(|root| summary.reduced.contains(root));
    let row = product(&reduced);

    let last = reduced.last().copied();
    let runs = |tensor: &GlobalTensor| touches(tensor) && last.is_some_and(|last| tensor.is_innermost(last));
    let one_run = collapse(summary, &reduced).len() <= 1;
    let mut vector = if one_run { vector_width(summary, runs) } else { 1 };
    while vector > 1 && row < 2 * vector {
        vector /= 2;
    }
    let full = |tensor: &GlobalTensor| runs(tensor) && tensor.order.len() == order.len();
    let aligned = summary.globals.iter().filter(|tensor| full(tensor)).all(|t| t.rows_aligned(vector, reduced.len()));
    let mut align = None;
    if !aligned && vector > 1 {
        match summary.largest(full) {
            Some(tensor) if reduced.len() == 1 => align = Some(tensor.tv),
            _ => vector = 1,
        }
    }
    let vectors = ceil_div(row + if align.is_some() { vector - 1 } else { 0 }, vector).max(1);
    let RowTile { threads: threads_x, batch } = tile(cx, vectors, vector, !kept.is_empty())
        .ok_or_else(|| too_long(row, MAX_PER_THREAD * i64::from(cx.device.max_threads_per_block)))?;
    let rows = product(&kept);
    let threads_y = (128 / threads_x).max(1).min(next_power_of_two(rows));
    let threads_y = if threads_x * threads_y < WARP { WARP / threads_x } else { threads_y };
    let exact_vector = align.is_none() && divides(vector, row);
    let row_loop = row_loop(
        cx,
        ceil_div(rows, threads_y),
        threads_x * threads_y,
        tuned(cx.options, "norm.threads_per_sm", rows_in_flight(summary, &reduced, align.is_some())),
    );
    let exact_loop = row_loop.is_none_or(|row_loop| rows % (threads_y * row_loop.blocks) == 0);
    Ok(Params {
        dense_rows: collapse(summary, &order).len() <= 1 || dense_rows(summary, &kept, &order),
        row_loop,
        kept,
        reduced,
        vector,
        align,
        exact_vector,
        batch,
        exact: exact_vector && vectors == threads_x * batch,
        threads: BlockShape { x: threads_x, y: threads_y },
        exact_rows: rows % threads_y == 0 && exact_loop,
    })
}

/// Threads of a multiprocessor that should work on rows in turn; 0 for a block
/// for each row. Turns pay where each row starts with work that they save or
/// hide: parameters along the row, which are read once, and rows that start at
/// odd places. (Measured on an H200.)
fn rows_in_flight(summary: &Summary, reduced: &[AxisId], aligned_by_shift: bool) -> i64 {
    let parameters = summary
        .globals
        .iter()
        .filter(|tensor| !tensor.is_output && !tensor.order.is_empty())
        .filter(|tensor| tensor.order.iter().all(|root| reduced.contains(root)))
        .count();
    match (parameters, aligned_by_shift) {
        (2.., _) => 512,
        (_, true) => 768,
        (_, false) => 0,
    }
}

/// Whether every tensor of full rank walks the kept dimensions and then the
/// row as one dense run.
fn dense_rows(summary: &Summary, kept: &[AxisId], order: &[AxisId]) -> bool {
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

/// How a block holds a row.
#[derive(Clone, Copy)]
struct RowTile {
    threads: i64,
    /// Vectors that a thread holds.
    batch: i64,
}

/// Threads of a row and vectors of a thread: about 32 elements a thread, and of
/// the thread counts that give it the one that leaves the fewest threads idle.
fn tile(cx: &CompileCx<'_>, vectors: i64, vector: i64, has_rows: bool) -> Option<RowTile> {
    let most_threads = i64::from(cx.device.max_threads_per_block);
    let wanted = tuned(cx.options, "norm.per_thread", 32);
    if vectors <= WARP {
        // Without rows to share the block, a row has a whole warp.
        return Some(RowTile { threads: if has_rows { next_power_of_two(vectors) } else { WARP }, batch: 1 });
    }
    let mut best: Option<(i64, RowTile)> = None;
    for batch in 1..=(MAX_PER_THREAD / vector).max(1) {
        let threads = ceil_div(ceil_div(vectors, batch), WARP) * WARP;
        if threads > most_threads {
            continue;
        }
        let idle = (threads * batch - vectors) * 64 / vectors;
        let distance = (batch * vector - wanted).abs();
        let too_few = if threads < 4 * WARP { 4 * WARP - threads } else { 0 };
        let cost = idle * 2 + distance + too_few / 8;
        if best.is_none_or(|(known, _)| cost < known) {
            best = Some((cost, RowTile { threads, batch }));
        }
    }
    best.map(|(_, tile)| tile)
}

/// Applies the choices.
fn apply(builder: &mut ScheduleBuilder, summary: &Summary, options: &Options, params: &Params) -> Result<()> {
    let caches = cache_inputs(builder, summary, options);
    recompute_cheap(builder, &params.reduced);
    let Some(row) = merge_all(builder, &params.reduced)? else {
        return Err(Diagnostic::bug("a normalisation without a reduced axis"));
    };
    let rows = merge_all(builder, &params.kept)?;
    let row = match params.align {
        Some(reference) => builder.align(row, params.vector, reference, rows.filter(|_| params.dense_rows))?,
        None => row,
    };
    let (vectors, lane) = builder.split(row, params.vector, params.exact_vector)?;
    let (batch, thread) = builder.split_cover(vectors, params.batch, params.threads.x, params.exact)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    builder.parallelize(batch, ParallelType::Unroll)?;
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
    order.extend([batch, lane]);
    let reductions: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    for tv in reductions {
        builder.rfactor(tv, &[batch])?;
        builder.rfactor(tv, &[lane])?;
    }
    builder.propagate(&order)?;
    let mut keep: Vec<_> = caches.iter().map(|cache| (*cache, builder.outer_prefix(*cache))).collect();
    keep.extend(keep_for_stores(builder, lane));
    builder.inline_most(&keep)?;
    prefetch_rows(builder, &caches, turn)
}

/// Inputs that change from row to row are loaded a row ahead.
pub(super) fn prefetch_rows(builder: &mut ScheduleBuilder, caches: &[TvId], turn: Option<AxisId>) -> Result<()> {
    let Some(turn) = turn else { return Ok(()) };
    for cache in caches {
        let data = &builder.state().tensors[*cache];
        let is_row = data.loops.len() > data.inline_at;
        if is_row && data.inline_at.checked_sub(1).is_some_and(|last| data.loops[last] == turn) {
            builder.circular_buffer(*cache, 2)?;
        }
    }
    Ok(())
}

/// Gives every later stage its own copy of values that are cheap to recompute.
fn recompute_cheap(builder: &mut ScheduleBuilder, reduced: &[AxisId]) {
    recompute(builder, |state, tv| is_cheap(state, tv, reduced));
}

/// Whether a value of the row is recomputed rather than kept: a few cheap
/// instructions on one other value of the row.
fn is_cheap(state: &ScheduledFusion, tv: TvId, reduced: &[AxisId]) -> bool {
    use BinaryOp::{Add, Maximum, Minimum, Mul, Sub};
    use UnaryOp::{Abs, Neg, Relu};
    let along_row = |tv: TvId| state.tensors[tv].axes.iter().any(|axis| axis.concrete && reduced.contains(&axis.root));
    let Some(op) = &state.tensors[tv].op else { return false };
    if !along_row(tv) {
        return false;
    }
    let cheap = match op.compute {
        Compute::Cast | Compute::Index { .. } => true,
        Compute::Copy => state.producers(tv).iter().all(|producer| state.tensors[*producer].io.is_none()),
        Compute::Unary(op) => matches!(op, Abs | Neg | Relu),
        Compute::Binary(op) => matches!(op, Add | Sub | Mul | Maximum | Minimum),
        Compute::Ternary(_) => true,
        Compute::Random(_) | Compute::Reduce { .. } => false,
    };
    cheap && state.producers(tv).into_iter().filter(|producer| along_row(*producer)).count() <= 1
}
