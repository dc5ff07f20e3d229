//! Elementwise fusions whose results are stacked of a few parts: along a short axis that no input has.
//!
//! What is computed of a row and of the same row with its halves turned (rotary embeddings) is such, once it is written as two
//! halves (`preseg::stacks`). A thread computes the same vector of every part, so that it reads what the parts have in common
//! once, and writes each to its place. It does so for a few rows that share what is broadcast along them: heads of one
//! position read its angles once. Threads have vectors of all rows in one order, so that none is idle however short a row is.
//!
//! Windows of one tensor that are joined to columns (`preseg::overlaps`) are such, too: there may be more parts, since the result
//! says of which part each element is, and what is read may be padded, or lie apart.
//!
//! In: fusions without reductions, whose results have one order in memory; behind the short axis lie dimensions that each
//! input has, as one run where the result says of no part, or not at all. Vectors divide such a run, or the last of the dimensions
//! where it is none: what starts at odd places is taken by element.

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::shared_tile::{WORD_BYTES, extent_of, widths};
use super::summary::GlobalTensor;
use super::tile::{Caching, cache_inputs, ceil_div, keep_for_stores, merge_all, tuned};
use crate::diag::{Diagnostic, Result};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{AxisId, Compute, ParallelType, ScheduleBuilder, ScheduledFusion};

/// Parts, at most, and where the result says of which each element is.
const MOST_PARTS: i64 = 4;
const MOST_NUMBERED: i64 = 16;
/// Threads of a block.
const THREADS: i64 = 128;
/// Bytes of all results that a thread computes, and its rows, at most.
const MOST_BYTES: i64 = 64;
const MOST_ROWS: i64 = 8;
/// Bytes of all inputs that a thread holds, at most.
const MOST_HELD: i64 = 256;
/// Bytes of a vector of elements that lie apart in some input: more make neighbouring threads read from more lines.
const MOST_APART: i64 = 2 * WORD_BYTES;
/// Elements of a part of a row from which on narrow vectors take longer than wide ones that are shifted into place.
const LONG_PART: i64 = 2048;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "stacked",
    writes_parts: false,
    accepts: |problem, scheduled| {
        check_not_joined(scheduled)?;
        coverage::check_direct(scheduled)?;
        coverage::check_not_random(scheduled)?;
        if !problem.summary.structure.reduced.is_empty() {
            return Err(Refusal::Pattern("the fusion has reductions".to_string()));
        }
        let stack = Stack::find(problem, scheduled).map_err(Refusal::Pattern)?;
        let (vector, bytes) = stack.vector(problem, scheduled);
        let part = extent_of(problem, scheduled, &stack.inner);
        if stack.is_run && part >= LONG_PART && vector * bytes < 2 * WORD_BYTES {
            return Err(Refusal::Pattern(format!("parts of {part} elements are long, and start at odd places")));
        }
        Ok(coverage::check(problem, scheduled)?)
    },
    choose: |problem, scheduled| {
        let stack = Stack::find(problem, scheduled).map_err(Diagnostic::bug)?;
        Ok(Params::Stacked(Box::new(params(problem, scheduled, stack))))
    },
};

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackedParams {
    /// Dimensions before the short axis, slowest first, but that of the rows of which a thread takes several.
    outer: Vec<AxisId>,
    rows: Option<AxisId>,
    /// The short axis, and its parts.
    stack: AxisId,
    parts: i64,
    /// Dimensions of a part of a row.
    inner: Vec<AxisId>,
    /// Whether vectors are cut from the last of these, and not from all of them merged.
    last_alone: bool,
    /// Elements of a vector, which divide a part.
    vector: i64,
    /// Rows of a thread, and whether they divide the rows that there are.
    unroll: i64,
    exact_rows: bool,
    /// Threads of a block, and whether they divide all vectors.
    threads: i64,
    exact: bool,
}

impl std::fmt::Display for StackedParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { parts, vector, unroll, threads, .. } = self;
        write!(f, "parts {parts} vector {vector} threads {threads} rows {unroll}")
    }
}

/// Whether no tensors are joined: parts of one kernel are chosen by number.
pub(super) fn check_not_joined(scheduled: &ScheduledFusion) -> Result<(), Refusal> {
    let mut ops = scheduled.tensors.values().filter_map(|data| data.op.as_ref());
    match ops.any(|op| matches!(&op.compute, Compute::Join { within } if within.len() > 1)) {
        true => Err(Refusal::Pattern("the fusion joins tensors".to_string())),
        false => Ok(()),
    }
}

/// Where results are stacked.
pub(super) struct Stack {
    pub(super) outer: Vec<AxisId>,
    pub(super) axis: AxisId,
    pub(super) inner: Vec<AxisId>,
    /// Whether all tensors have the inner dimensions as one run, and whether elements of some input lie apart.
    pub(super) is_run: bool,
    is_apart: bool,
}

impl Stack {
    /// Finds the short axis, or says why the fusion is of another pattern.
    pub(super) fn find(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<Self, String> {
        let summary = problem.summary;
        let several = || summary.globals.iter().filter(|tensor| tensor.elements > 1);
        let result = summary.largest(|tensor| tensor.is_output).ok_or("nothing is written")?;
        let order = &result.order;
        if order.len() != summary.structure.roots.len() {
            return Err("results differ in their dimensions".to_string());
        }
        let is_own = |root: &AxisId| several().all(|tensor| tensor.is_output || !tensor.order.contains(root));
        let is_numbered = |root: &AxisId| {
            let mut ops = scheduled.tensors.values().filter_map(|data| data.op.as_ref());
            ops.any(|op| matches!(op.compute, Compute::Index { root: Some(own) } if own == *root))
        };
        let is_short = |root: &AxisId| {
            let most = if is_numbered(root) { MOST_NUMBERED } else { MOST_PARTS };
            (2..=most).contains(&problem.sizes.extent(scheduled, *root))
        };
        let at = order.iter().position(|root| is_short(root) && is_own(root)).ok_or("inputs have all axes")?;
        let (outer, inner) = (order[..at].to_vec(), order[at + 1..].to_vec());
        let has_none = |tensor: &GlobalTensor| !tensor.order.iter().any(|root| inner.contains(root));
        let is_run = |tensor: &GlobalTensor| {
            let start = tensor.order.len().saturating_sub(inner.len());
            has_none(tensor) || tensor.order[start..] == inner && tensor.dense[start..].iter().all(|dense| *dense)
        };
        let is_all_run = several().all(is_run) && !scheduled.axes.has_program_xforms();
        // Others may lack some of the dimensions before.
        let is_alike = |tensor: &GlobalTensor| {
            let own = order.iter().enumerate().filter(|(place, root)| *place >= at || tensor.order.contains(root));
            own.map(|(_, root)| root).eq(&tensor.order) && tensor.dense.iter().all(|dense| *dense)
        };
        if !several().filter(|tensor| tensor.is_output).all(is_alike) {
            return Err("results differ in their dimensions".to_string());
        }
        let has_all = |tensor: &GlobalTensor| has_none(tensor) || tensor.order.ends_with(&inner);
        let may_be_apart = is_numbered(&order[at]) && several().all(has_all);
        if inner.is_empty() || !is_all_run && !may_be_apart {
            return Err("a tensor has parts of rows that are no run of memory".to_string());
        }
        let is_apart = several().any(|tensor| !has_none(tensor) && tensor.dense.last() == Some(&false));
        if !several().any(|tensor| !tensor.is_output && tensor.order.ends_with(&inner)) {
            return Err("nothing is read along a part of a row".to_string());
        }
        Ok(Self { outer, axis: order[at], inner, is_run: is_all_run, is_apart })
    }

    /// The dimensions of which vectors are cut.
    fn cut(&self) -> &[AxisId] {
        if self.is_run { &self.inner } else { &self.inner[self.inner.len() - 1..] }
    }

    /// The widest vector that divides a part of a row and at which each tensor starts, and bytes of its widest element.
    pub(super) fn vector(&self, problem: &Problem<'_>, scheduled: &ScheduledFusion) -> (i64, i64) {
        let runs = || problem.summary.globals.iter().filter(|tensor| tensor.order.ends_with(&self.inner));
        let bytes = runs().map(|tensor| tensor.bytes).max().unwrap_or(1);
        let part = extent_of(problem, scheduled, self.cut());
        let most = tuned(problem.cx.options, "stacked.vector", MAX_ACCESS_BYTES);
        let inputs = runs().filter(|tensor| !tensor.is_output).count() as i64;
        let bytes_of = if self.is_apart { MOST_APART } else { MOST_HELD / inputs.max(1) };
        // What is a part, or lies apart, starts anywhere.
        let is_whole = |tensor: &&GlobalTensor| !tensor.is_part && tensor.dense.last() == Some(&true);
        let starts = |vector: i64| runs().filter(is_whole).all(|tensor| tensor.rows_aligned(vector, self.cut().len()));
        let is_held = |vector: i64| self.is_run || vector == 1 || vector * bytes <= bytes_of;
        let fits = |vector: &i64| *vector <= most && part % vector == 0 && starts(*vector) && is_held(*vector);
        (widths(bytes).find(fits).unwrap_or(1), bytes)
    }

    /// The dimension of the rows that a thread takes: one that most of what is broadcast lacks, of equals the last.
    fn rows(&self, problem: &Problem<'_>) -> Option<AxisId> {
        let runs = || problem.summary.globals.iter().filter(|tensor| tensor.order.ends_with(&self.inner));
        let lacking = |root: &&AxisId| runs().filter(|tensor| !tensor.order.contains(root)).count();
        self.outer.iter().max_by_key(lacking).copied()
    }
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion, stack: Stack) -> StackedParams {
    let cx = problem.cx;
    let rows = stack.rows(problem);
    let outer: Vec<AxisId> = stack.outer.iter().copied().filter(|root| Some(*root) != rows).collect();
    let [before, part] = [&outer, &stack.inner].map(|roots| extent_of(problem, scheduled, roots));
    let count = rows.map_or(1, |root| problem.sizes.extent(scheduled, root)).max(1);
    let parts = problem.sizes.extent(scheduled, stack.axis);
    let (vector, bytes) = stack.vector(problem, scheduled);
    // Several rows keep more under way, unless the device would idle.
    let all = before.saturating_mul(count).saturating_mul(part / vector);
    let fill = i64::from(cx.device.sm_count) * i64::from(cx.device.max_threads_per_sm);
    let results = problem.summary.globals.iter().filter(|tensor| tensor.is_output).count().max(1) as i64;
    let mut unroll = (MOST_BYTES / (parts * vector * bytes * results)).clamp(1, MOST_ROWS);
    while unroll > 1 && all / unroll < 4 * fill {
        unroll /= 2;
    }
    if !stack.is_run {
        let inputs = problem.summary.globals.iter().filter(|tensor| !tensor.is_output && tensor.elements > 1).count();
        unroll = unroll.min(MOST_HELD / (inputs as i64 * vector * WORD_BYTES.max(bytes))).max(1);
    }
    let unroll = tuned(cx.options, "stacked.rows", unroll).clamp(1, count);
    let unroll = ceil_div(count, ceil_div(count, unroll));
    let threads = tuned(cx.options, "stacked.threads", THREADS);
    let vectors = before.saturating_mul(ceil_div(count, unroll)).saturating_mul(part / vector);
    StackedParams {
        outer,
        rows,
        stack: stack.axis,
        parts,
        inner: stack.inner,
        last_alone: !stack.is_run,
        vector,
        unroll,
        exact_rows: count % unroll == 0,
        threads,
        exact: vectors % threads == 0,
    }
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &StackedParams) -> Result<()> {
    let StackedParams { outer, rows, stack, parts, unroll, exact_rows, threads, exact, .. } = params;
    let caches = cache_inputs(builder, caching)?;
    let missing = || Diagnostic::bug("a part of a row has no dimension");
    let (before, cut) = params.inner.split_at(if params.last_alone { params.inner.len() - 1 } else { 0 });
    let cut = merge_all(builder, cut)?.ok_or_else(missing)?;
    let (vectors, lane) = builder.split(cut, params.vector, true)?;
    // The number of parts is a constant.
    let (all, part) = builder.split_cover(*stack, 1, *parts, true)?;
    let (few, row) = match *rows {
        Some(rows) => builder.split(rows, *unroll, *exact_rows).map(|(few, row)| (Some(few), Some(row)))?,
        None => (None, None),
    };
    let dimensions: Vec<AxisId> = outer.iter().chain(&few).chain(before).chain([&vectors]).copied().collect();
    let flat = merge_all(builder, &dimensions)?.ok_or_else(missing)?;
    let (block, thread) = builder.split(flat, *threads, *exact)?;
    builder.parallelize(block, ParallelType::Bidx)?;
    builder.parallelize(thread, ParallelType::Tidx)?;
    for axis in row.into_iter().chain([part]) {
        builder.parallelize(axis, ParallelType::Unroll)?;
    }
    builder.parallelize(lane, ParallelType::Vectorize)?;
    let order: Vec<AxisId> = [block, thread].into_iter().chain(row).chain([all, part, lane]).collect();
    builder.propagate(&order)?;
    let mut keep: Vec<_> = caches.into_iter().map(|cache| (cache, 2)).collect();
    keep.extend(keep_for_stores(builder, lane));
    builder.inline_most(&keep)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::choose::tests::planned_of;
    use crate::num::DType;

    /// How halves of rows `[positions, heads, 2 * half]` that are stacked are taken, with angles for each position. The halves
    /// are `%p` and `%q`; of these, `%a` and `%b`, and of which half an element is (`%first`), `stacked` makes what is stacked,
    /// `%pw` and `%qw`.
    #[track_caller]
    pub(in crate::schedule::heuristic) fn check_halves(
        stacked: &str,
        dtype: DType,
        [positions, heads, half]: [i64; 3],
        expected: [&str; 2],
    ) {
        let text = format!(
            "fusion @f(%a: {dtype}[?, ?, ?], %b: {dtype}[?, ?, ?], %c: {dtype}[?, ?]) {{
  %cr = broadcast %c flags(false, true, false)
  %p = mul %a, %cr
  %q = mul %b, %cr
  %i = index [2] axis(0)
  %n = broadcast %i flags(true, true, false, true)
  %first = eq %n, 0
{stacked}
  %w = where %first, %pw, %qw
  %y = cast %w {dtype}
  return %y
}}"
        );
        let rows: [i64; 3] = [positions, heads, half];
        let planned = planned_of(&text, &[(dtype, &rows), (dtype, &rows), (dtype, &[positions, half])]);
        let planned = planned.expect("it is scheduled");
        assert_eq!([planned.scheduler, &planned.params_text], expected, "{dtype} of {rows:?}");
    }

    #[track_caller]
    fn check(dtype: DType, rows: [i64; 3], expected: [&str; 2]) {
        let stacked = "  %pw = broadcast %p flags(false, false, true, false)\n  %qw = broadcast %q flags(false, false, true, false)";
        check_halves(stacked, dtype, rows, expected);
    }

    #[test]
    fn parts_of_rows_are_taken_together() {
        check(DType::BF16, [8192, 32, 56], ["stacked", "parts 2 vector 8 threads 128 rows 1"]);
        check(DType::BF16, [32_768, 32, 64], ["stacked", "parts 2 vector 8 threads 128 rows 2"]);
        check(DType::BF16, [21_622, 4, 53], ["stacked", "parts 2 vector 1 threads 128 rows 4"]);
        check(DType::F32, [4437, 35, 65], ["stacked", "parts 2 vector 1 threads 128 rows 7"]);
        check(DType::F32, [4437, 5, 66], ["stacked", "parts 2 vector 2 threads 128 rows 1"]);
        // A single element is no run.
        check(DType::F32, [40, 3, 1], ["stacked", "parts 2 vector 1 threads 128 rows 1"]);
    }
}
