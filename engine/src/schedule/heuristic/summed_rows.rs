//! Rows of what was summed over a few positions first: streams that are mixed and experts that are combined before a norm.
//!
//! A thread has the same vectors of each of the few, adds these up in its registers, and holds the sums while the row is
//! reduced; so memory is read once, where a kernel for each of the two reductions would store the sums and read them again.
//!
//! In: fusions whose reductions are over two sets of dimensions, of which one has a few positions that lie outside of rows in
//! memory, and no value of a row's reduction has them. Vectors divide a row: what starts at odd places is taken by element. Left
//! alone: rows longer than the registers of a block hold, and long ones that are too few to fill the device.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::is_cheap;
use super::phases::{descendants, reduced_over};
use super::recompute::recompute;
use super::residency::{REGISTER_BYTES, is_load};
use super::shared_tile::extent_of;
use super::summary::{GlobalTensor, Summary};
use super::tile::{
    BlockShape, Caching, WARP, bind_rows, cache_inputs, ceil_div, collapse, keep_for_stores, merge_all, tuned,
    vector_width, widest_that,
};
use crate::diag::{Diagnostic, Result};
use crate::schedule::{AxisId, Io, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// Positions that a thread adds up, at most: each has code of its own.
pub const MOST_SUMMED: i64 = 8;
/// Elements of a row that a thread holds, at most.
const MOST_HELD: i64 = 32;
/// Threads of a row that are better than fewer with more vectors each, and of a block whose rows are short.
const THREADS: i64 = 256;
/// Registers of a thread beside the sums that it holds and what is on its way.
const FIXED_REGISTERS: i64 = 24;
/// Elements that are summed, beyond which rows have to fill half of the device.
const FEW_ELEMENTS: i64 = 1 << 20;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "summed_rows",
    writes_parts: false,
    accepts: |problem, scheduled| {
        coverage::check_plain(scheduled)?;
        coverage::check_direct(scheduled)?;
        coverage::check_not_random(scheduled)?;
        rows_of(problem, scheduled).map(|_| ()).map_err(|reason| Refusal::Pattern(reason.to_string()))
    },
    choose: |problem, scheduled| {
        let params = rows_of(problem, scheduled).map_err(Diagnostic::bug)?;
        Ok(Params::SummedRows(Box::new(params)))
    },
};

/// Elements of the longest row that a block holds.
pub const LONGEST_SUMMED_ROW: i64 = MOST_HELD * 1024;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SummedRowParams {
    /// Dimensions that stay, slowest first.
    rows: Vec<AxisId>,
    /// Those of the few positions, and how many these are.
    few: Vec<AxisId>,
    number: i64,
    /// Those of a row.
    row: Vec<AxisId>,
    /// Elements of a vector, which divide a row.
    vector: i64,
    /// Vectors of a thread, and whether the threads' are exactly the row.
    batch: i64,
    exact: bool,
    /// Whether a vector of each of the few is on its way at once, where registers suffice.
    at_once: bool,
    /// Threads of a row, and rows of a block.
    threads: BlockShape,
    /// Whether the rows divide into blocks.
    exact_rows: bool,
}

impl std::fmt::Display for SummedRowParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, vector, batch, threads, .. } = self;
        let turns = if self.at_once { "" } else { " in turn" };
        write!(f, "of {number} vector {vector} batch {batch} threads {threads}{turns}")
    }
}

/// Finds the rows and who holds them, or says why the fusion is of another pattern.
fn rows_of(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<SummedRowParams, &'static str> {
    let summary = problem.summary;
    let two = summary.structure.mixed.as_ref().and_then(|mixed| mixed.two.as_ref());
    let [first, second] = two.ok_or("reductions are not over two sets of dimensions")?;
    let product = |over: &BTreeSet<AxisId>| extent_of(problem, scheduled, &over.iter().copied().collect::<Vec<_>>());
    let is_few = |few: &BTreeSet<AxisId>| (1..=MOST_SUMMED).contains(&product(few));
    let ways = [(first, second), (second, first)];
    let is_first =
        |(few, row): &(&BTreeSet<AxisId>, &BTreeSet<AxisId>)| is_few(few) && is_summed_first(scheduled, few, row);
    let (few, along) =
        ways.into_iter().find(is_first).ok_or("neither reduction is over a few positions before the other")?;
    let has = |tensor: &GlobalTensor, axes: &BTreeSet<AxisId>| axes.iter().all(|axis| tensor.order.contains(axis));
    let largest =
        summary.largest(|tensor| has(tensor, few) && has(tensor, along)).ok_or("nothing in memory has both")?;
    let is_along = |axis: &&AxisId| along.contains(axis);
    let row: Vec<AxisId> = largest.order.iter().filter(is_along).copied().collect();
    let is_last = largest.order.ends_with(&row) && largest.dense.last() == Some(&true);
    if !is_last || collapse(summary, &row).len() != 1 {
        return Err("rows are not one run of memory");
    }
    let rows: Vec<AxisId> =
        summary.structure.roots.iter().filter(|root| !few.contains(root) && !along.contains(root)).copied().collect();
    let results = scheduled.tensors.values().filter(|data| matches!(data.io, Some(Io::Output(_))));
    if results.into_iter().any(|data| rows.iter().any(|root| !data.has_root(*root))) {
        return Err("a result lacks a dimension of the rows");
    }
    let order: Vec<AxisId> = largest.order.iter().filter(|root| rows.contains(root)).copied().collect();
    if order.len() != rows.len() {
        return Err("what is summed lacks a dimension of the rows");
    }
    let (number, length, count) = (product(few), product(along), extent_of(problem, scheduled, &order));
    let is_filled = count >= i64::from(problem.cx.device.sm_count) / 2;
    if length < 1 || count < 1 || !is_filled && number.saturating_mul(length).saturating_mul(count) > FEW_ELEMENTS {
        return Err("there are too few rows");
    }
    let vector = vector_of(summary, &row, length);
    let vectors = length / vector;
    let wanted = tuned(problem.cx.options, "summed_rows.threads", THREADS);
    let most = i64::from(problem.cx.device.max_threads_per_block);
    let shape = |threads: i64| (threads, ceil_div(vectors, threads));
    let sizes = [1, 2, 4, 8, 16].into_iter().chain((WARP..=most).step_by(WARP as usize)).map(shape);
    let fits = |(_, batch): &(i64, i64)| batch.saturating_mul(vector) <= MOST_HELD;
    // As few threads without a vector as may be, then as few vectors of a thread.
    let best = sizes.filter(fits).min_by_key(|(threads, batch)| (threads * batch, *threads > wanted, *batch));
    let (x, batch) = best.ok_or("a block would hold too much of a row")?;
    let threads = BlockShape { x, y: (wanted / 2 / x).max(1) };
    let (exact, exact_rows) = (vectors == x * batch, count % threads.y == 0);
    let registers = i64::from(problem.cx.device.registers_per_sm) / threads.threads();
    let both = summary.globals.iter().filter(|tensor| has(tensor, few) && has(tensor, along));
    let loaded: i64 = both.map(|tensor| ceil_div(number * vector * tensor.bytes, REGISTER_BYTES)).sum();
    let at_once = FIXED_REGISTERS + batch * vector + loaded <= registers;
    let few = few.iter().copied().collect();
    Ok(SummedRowParams { rows: order, few, number, row, vector, batch, exact, at_once, threads, exact_rows })
}

/// Elements of the widest vector that divides rows along some dimensions, so many elements long, wherever these start.
fn vector_of(summary: &Summary<'_>, row: &[AxisId], length: i64) -> i64 {
    let runs = |tensor: &GlobalTensor| row.last().is_some_and(|last| tensor.is_innermost(*last));
    let fits = |vector: i64| {
        let starts = |tensor: &GlobalTensor| tensor.rows_aligned(vector, row.len());
        length % vector == 0 && summary.globals.iter().filter(|tensor| runs(tensor)).all(starts)
    };
    widest_that(vector_width(summary, runs), fits).unwrap_or(1)
}

/// Whether all that has these few positions is computed before any row is reduced, and no result has them.
fn is_summed_first(scheduled: &ScheduledFusion, few: &BTreeSet<AxisId>, row: &BTreeSet<AxisId>) -> bool {
    let is_of_rows = |tv: &TvId| reduced_over(scheduled, *tv).is_some_and(|over| over == *row);
    let later = descendants(scheduled, &scheduled.tensors.ids().filter(is_of_rows).collect::<Vec<_>>());
    scheduled.tensors.iter().all(|(tv, data)| {
        let is_free = !later.contains(&tv) && !matches!(data.io, Some(Io::Output(_)));
        is_free || !data.indexed().any(|axis| few.contains(&axis))
    })
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &SummedRowParams) -> Result<()> {
    let SummedRowParams { rows, few, row, threads, .. } = params;
    cache_inputs(builder, caching)?;
    recompute(builder, &|state, tv| is_cheap(state, tv, row))?;
    let missing = || Diagnostic::bug("a row, or what is summed, has no dimension");
    let is_along = |builder: &ScheduleBuilder, tv: TvId, axes: &[AxisId]| {
        builder.state().tensors[tv].indexed().any(|axis| axes.contains(&axis))
    };
    let all = || builder.state().tensors.ids();
    let sums: BTreeSet<TvId> = all()
        .filter(|tv| reduced_over(builder.state(), *tv).is_some_and(|over| over.iter().all(|axis| few.contains(axis))))
        .collect();
    let of_rows: Vec<TvId> = all().filter(|tv| builder.state().is_reduction(*tv) && !sums.contains(tv)).collect();
    let loads: Vec<TvId> = all().filter(|tv| is_load(builder.state(), *tv)).collect();
    let (summed, others): (Vec<TvId>, Vec<TvId>) = loads.into_iter().partition(|tv| is_along(builder, *tv, few));
    let (own, parameters): (Vec<TvId>, Vec<TvId>) = others.into_iter().partition(|tv| is_along(builder, *tv, rows));
    let run = merge_all(builder, row)?.ok_or_else(missing)?;
    let positions = merge_all(builder, few)?.ok_or_else(missing)?;
    let (vectors, lane) = builder.split(run, params.vector, true)?;
    let (batch, thread) = builder.split_cover(vectors, params.batch, threads.x, params.exact)?;
    // The number of what is summed is a constant.
    let (whole, one) = builder.split_cover(positions, 1, params.number, true)?;
    builder.parallelize(lane, ParallelType::Vectorize)?;
    builder.parallelize(thread, ParallelType::Tidx)?;
    for axis in [batch, whole, one] {
        builder.parallelize(axis, ParallelType::Unroll)?;
    }
    let mut order = Vec::new();
    if let Some(rows) = merge_all(builder, rows)? {
        order.extend(bind_rows(builder, rows, threads.y, None, params.exact_rows)?.order);
    }
    order.extend([thread, batch, whole, one, lane]);
    for tv in of_rows {
        builder.rfactor(tv, &[batch])?;
        builder.rfactor(tv, &[lane])?;
    }
    builder.propagate(&order)?;
    let before = |tv: TvId, axis: AxisId| {
        let loops = &builder.state().tensors[tv].loops;
        loops.iter().position(|own| own.axis == axis).unwrap_or(loops.len())
    };
    // What a row has of its own is on its way at once; parameters are near.
    let of_few = if params.at_once { whole } else { lane };
    let mut keep: Vec<(TvId, usize)> = summed.into_iter().map(|tv| (tv, before(tv, of_few))).collect();
    keep.extend(own.into_iter().map(|tv| (tv, builder.outer_prefix(tv))));
    keep.extend(parameters.into_iter().map(|tv| (tv, before(tv, lane))));
    keep.extend(keep_for_stores(builder, lane));
    builder.inline_most(&keep)
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::planned_of;
    use crate::num::DType;

    const NORM: &str = "%0 = cast %x f32\n%h = sum %0 axes(1)\n%1 = mul %h, %h\n%2 = mean %1 axes(1) keepdim\n%3 = rsqrt %2\n%4 = mul %h, %3\n%y = cast %4 bf16\nreturn %y";

    #[track_caller]
    fn check(body: &str, sizes: [i64; 3], scheduler: &str, params: &str) {
        let text = format!("fusion @f(%x: bf16[?, ?, ?]) {{\n{body}\n}}");
        let planned = planned_of(&text, &[(DType::BF16, &sizes)]).expect("it is scheduled");
        assert_eq!((planned.scheduler, planned.params_text.as_str()), (scheduler, params), "{sizes:?}");
    }

    #[test]
    fn a_thread_adds_up_what_lies_apart() {
        check(NORM, [8192, 4, 2048], "summed_rows", "of 4 vector 8 batch 1 threads 256x1");
        check(NORM, [4096, 8, 64], "summed_rows", "of 8 vector 8 batch 1 threads 8x16");
        check(NORM, [3001, 2, 1283], "summed_rows", "of 2 vector 1 batch 6 threads 224x1");
        check(NORM, [500, 3, 16_384], "summed_rows", "of 3 vector 8 batch 2 threads 1024x1");
        check(NORM, [500, 8, 32_768], "summed_rows", "of 8 vector 8 batch 4 threads 1024x1 in turn");
    }

    #[test]
    fn more_positions_longer_rows_and_few_rows_are_left_alone() {
        let refused = |sizes: [i64; 3]| {
            let text = format!("fusion @f(%x: bf16[?, ?, ?]) {{\n{NORM}\n}}");
            assert!(planned_of(&text, &[(DType::BF16, &sizes)]).is_err(), "{sizes:?}");
        };
        refused([4096, 9, 1024]);
        refused([4096, 4, 65_536]);
        refused([16, 4, 32_768]);
    }
}
