//! Rows that are reduced and written as stacks of a few parts: along a short axis that no input has, as `stacked` takes them
//! without reductions.
//!
//! What is computed of the sum over a row and of the row beside itself with its halves turned (norms before rotary embeddings) is
//! such, once it is written as two halves (`preseg::stacks`). A few threads of a warp hold a row: each has the same vectors of
//! every part, so that what one part needs of another lies in its registers, memory is read once, and nobody waits for other warps.
//!
//! In: fusions that reduce over rows, which are the short axis and all behind it, and whose results lie row by row. Vectors divide
//! a part: what starts at odd places is taken by element. Left alone: rows of which few threads would hold more than
//! registers take, and those of which a thread reads less than a sector beside others.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::is_cheap;
use super::recompute::recompute;
use super::residency::is_load;
use super::shared_tile::{WORD_BYTES, extent_of};
use super::stacked::{Stack, check_not_joined};
use super::tile::{BlockShape, Caching, bind_rows, cache_inputs, ceil_div, keep_for_stores, merge_all, tuned};
use crate::diag::{Diagnostic, Result};
use crate::schedule::{AxisId, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// Threads of a block.
const THREADS: i64 = 128;
/// Threads of a row, at most: those of a warp.
const MOST_THREADS: i64 = 32;
/// Bytes of all inputs that a thread holds, at most.
const MOST_HELD: i64 = 384;
/// Bytes that the threads of a row read beside each other, at least, if a part has as many.
const LEAST_RUN: i64 = 32;
/// Parts, at most.
const MOST_PARTS: i64 = 4;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "stacked_rows",
    writes_parts: false,
    accepts: |problem, scheduled| {
        check_not_joined(scheduled)?;
        coverage::check_direct(scheduled)?;
        coverage::check_not_random(scheduled)?;
        if problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has no reduction".to_string()));
        }
        rows_of(problem, scheduled).map_err(Refusal::Pattern)?;
        Ok(coverage::check(problem, scheduled)?)
    },
    choose: |problem, scheduled| {
        let params = rows_of(problem, scheduled).map_err(Diagnostic::bug)?;
        Ok(Params::StackedRows(Box::new(params)))
    },
};

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackedRowParams {
    /// Dimensions before the short axis, slowest first.
    rows: Vec<AxisId>,
    /// The short axis, and its parts.
    stack: AxisId,
    parts: i64,
    /// Dimensions of a part of a row.
    inner: Vec<AxisId>,
    /// Elements of a vector, which divide a part.
    vector: i64,
    /// Vectors of a part that a thread has, and whether the threads' are exactly the part.
    batch: i64,
    exact: bool,
    /// Threads of a row, and rows of a block.
    threads: BlockShape,
    /// Whether the rows divide into blocks.
    exact_rows: bool,
}

impl std::fmt::Display for StackedRowParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { parts, vector, batch, threads, .. } = self;
        write!(f, "parts {parts} vector {vector} batch {batch} threads {threads}")
    }
}

/// Finds the rows and who holds them, or says why the fusion is of another pattern.
fn rows_of(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<StackedRowParams, String> {
    let summary = problem.summary;
    let stack = Stack::find(problem, scheduled)?;
    let row: BTreeSet<AxisId> = stack.inner.iter().chain([&stack.axis]).copied().collect();
    let parts = problem.sizes.extent(scheduled, stack.axis);
    if !stack.is_run || row != summary.structure.reduced || parts > MOST_PARTS {
        return Err("what is reduced is no row of parts".to_string());
    }
    let (vector, _) = stack.vector(problem, scheduled);
    let part = extent_of(problem, scheduled, &stack.inner);
    let vectors = part / vector;
    // What a thread holds of one vector of each input.
    let inputs = || summary.globals.iter().filter(|tensor| !tensor.is_output && tensor.order.ends_with(&stack.inner));
    let held: i64 = inputs().map(|tensor| tensor.bytes.max(if vector > 1 { 1 } else { WORD_BYTES }) * vector).sum();
    let least = inputs().map(|tensor| tensor.bytes).min().unwrap_or(1) * vector;
    let shape = |threads: &i64| (*threads, ceil_div(vectors, *threads).max(1));
    let fits = |(threads, batch): &(i64, i64)| {
        let is_run = threads * least >= LEAST_RUN || *threads >= vectors;
        is_run && batch.saturating_mul(held) <= MOST_HELD
    };
    let ways = [1, 2, 4, 8, 16, MOST_THREADS];
    // As few threads without a vector as may be, then as few registers.
    let best = ways.iter().map(shape).filter(fits).min_by_key(|(threads, batch)| (threads * batch, *batch));
    let (x, batch) = best.ok_or_else(|| format!("a warp would hold too much of parts of {part} elements"))?;
    let rows = extent_of(problem, scheduled, &stack.outer);
    let threads = BlockShape { x, y: tuned(problem.cx.options, "stacked_rows.threads", THREADS).max(x) / x };
    let exact = vectors == x * batch;
    let Stack { outer, axis, inner, .. } = stack;
    let exact_rows = rows % threads.y == 0;
    Ok(StackedRowParams { rows: outer, stack: axis, parts, inner, vector, batch, exact, threads, exact_rows })
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &StackedRowParams) -> Result<()> {
    let StackedRowParams { rows, stack, parts, inner, vector, batch, exact, threads, exact_rows } = params;
    cache_inputs(builder, caching)?;
    let row: Vec<AxisId> = inner.iter().chain([stack]).copied().collect();
    recompute(builder, &|state, tv| is_cheap(state, tv, &row))?;
    let missing = || Diagnostic::bug("a part of a row has no dimension");
    let cut = merge_all(builder, inner)?.ok_or_else(missing)?;
    let rows = merge_all(builder, rows)?;
    let (vectors, lane) = builder.split(cut, *vector, true)?;
    let (batch, thread) = builder.split_cover(vectors, *batch, threads.x, *exact)?;
    // The number of parts is a constant.
    let (all, part) = builder.split_cover(*stack, 1, *parts, true)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    builder.parallelize(thread, ParallelType::Tidx)?;
    for axis in [batch, all, part] {
        builder.parallelize(axis, ParallelType::Unroll)?;
    }
    let mut order = Vec::new();
    if let Some(rows) = rows {
        order.extend(bind_rows(builder, rows, threads.y, None, *exact_rows)?.order);
    }
    order.extend([thread, batch, all, part, lane]);
    let reductions: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    for tv in reductions {
        builder.rfactor(tv, &[batch, all, part])?;
        builder.rfactor(tv, &[lane])?;
    }
    builder.propagate(&order)?;
    let state = builder.state();
    let loads = state.tensors.ids().filter(|tv| is_load(state, *tv));
    let mut keep: Vec<(TvId, usize)> = loads.map(|tv| (tv, builder.outer_prefix(tv))).collect();
    keep.extend(keep_for_stores(builder, lane));
    builder.inline_most(&keep)
}

#[cfg(test)]
mod tests {
    use super::super::stacked::tests::check_halves;
    use crate::num::DType;

    /// How halves of rows that are stacked and divided by their norm are taken.
    #[track_caller]
    fn check(dtype: DType, rows: [i64; 3], expected: [&str; 2]) {
        let stacked = "  %aw = broadcast %a flags(false, false, true, false)
  %bw = broadcast %b flags(false, false, true, false)
  %x = where %first, %aw, %bw
  %xx = mul %x, %x
  %sum = sum %xx axes(2, 3)
  %norm = rsqrt %sum
  %nr = broadcast %norm flags(false, false, true)
  %pn = mul %p, %nr
  %qn = mul %q, %nr
  %pw = broadcast %pn flags(false, false, true, false)
  %qw = broadcast %qn flags(false, false, true, false)";
        check_halves(stacked, dtype, rows, expected);
    }

    #[test]
    fn few_threads_hold_the_parts_of_a_row() {
        check(DType::BF16, [8192, 32, 64], ["stacked_rows", "parts 2 vector 8 batch 1 threads 8x16"]);
        check(DType::F32, [1973, 6, 96], ["stacked_rows", "parts 2 vector 4 batch 3 threads 8x16"]);
        check(DType::BF16, [100, 3, 53], ["stacked_rows", "parts 2 vector 1 batch 2 threads 32x4"]);
        check(DType::F32, [40, 3, 6], ["stacked_rows", "parts 2 vector 2 batch 1 threads 4x32"]);
    }
}
