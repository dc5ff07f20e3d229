//! Small pieces that heuristics share.

use super::structure::{whole_of, whole_roots};
use super::summary::{GlobalTensor, Summary};
use crate::diag::Result;
use crate::kernel::{CacheHint, MAX_ACCESS_BYTES};
use crate::options::{CompileCx, Options};
use crate::schedule::{AxisId, ParallelType, ScheduleBuilder, TvId};

/// Threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockShape {
    /// Threads along the fastest axis.
    pub(super) x: i64,
    /// Threads along the rows, or what is reduced slower.
    pub(super) y: i64,
}

impl BlockShape {
    /// Threads altogether.
    pub(super) fn threads(self) -> i64 {
        self.x * self.y
    }
}

impl std::fmt::Display for BlockShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.x, self.y)
    }
}

/// Threads of a warp.
pub(super) const WARP: i64 = 32;

/// Thousandths of the time that one more thread or element costs for each that has work:
/// those without work still take instructions.
pub(super) const IDLE_COST: i64 = 120;

/// Thousandths of the time that a number of threads, or of vectors of a thread, must save over
/// a rounder one: so shapes of about one size share kernels, at less than a measurement tells.
pub(super) fn oddity(n: i64) -> i64 {
    match n.max(1) >> n.max(1).trailing_zeros() {
        1 => 0,
        3 => 5,
        5 | 7 => 20,
        _ => 30,
    }
}

/// The numbers of threads, in whole warps, that are tried for so many: the fewest, and a
/// rounder one.
pub(super) fn block_sizes(threads: i64) -> impl Iterator<Item = i64> {
    let fewest = ceil_div(threads, WARP) * WARP;
    let power = next_power_of_two(fewest);
    let rounder = if power / 4 * 3 >= fewest { power / 4 * 3 } else { power };
    [fewest].into_iter().chain((rounder > fewest).then_some(rounder))
}

/// `ceil(a / b)`.
pub(super) fn ceil_div(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

/// Whether parts of size `by` make up `n` exactly. Nothing does not count: an
/// extent is often taken as at least 1, and then 0 needs its test.
pub(super) fn divides(by: i64, n: i64) -> bool {
    n > 0 && n % by == 0
}

/// The least power of two that is not below a positive number.
pub(super) fn next_power_of_two(value: i64) -> i64 {
    (value.max(1) as u64).next_power_of_two() as i64
}

/// The greatest power of two that is not above a positive number.
pub(super) fn power_of_two_below(value: i64) -> i64 {
    1 << value.max(1).ilog2()
}

/// A parameter, unless the caller's options set it; its range was checked.
pub(super) fn tuned(options: &Options, name: &str, value: i64) -> i64 {
    options.tuning.get(name).copied().unwrap_or(value)
}

/// Splits roots in memory order into groups of neighbours that every global
/// tensor walks as one run.
pub(super) fn collapse(summary: &Summary<'_>, roots: &[AxisId]) -> Vec<Vec<AxisId>> {
    let mut groups: Vec<Vec<AxisId>> = Vec::new();
    for root in roots {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| summary.collapsible(*last, *root)) => group.push(*root),
            _ => groups.push(vec![*root]),
        }
    }
    groups
}

/// Merges axes, outer to inner, into one; none for none.
pub(super) fn merge_all(builder: &mut ScheduleBuilder, axes: &[AxisId]) -> Result<Option<AxisId>> {
    let mut merged: Option<AxisId> = None;
    for axis in axes {
        merged = Some(match merged {
            None => *axis,
            Some(outer) => builder.merge(outer, *axis)?,
        });
    }
    Ok(merged)
}

/// Elements of one wide access for tensors that run along an axis: 16 bytes of
/// the widest element type, 1 where nothing runs along it.
pub(super) fn vector_width(summary: &Summary<'_>, innermost: impl Fn(&GlobalTensor) -> bool) -> i64 {
    summary
        .globals
        .iter()
        .filter(|tensor| innermost(tensor))
        .map(|tensor| tensor.bytes)
        .max()
        .map_or(1, |bytes| (MAX_ACCESS_BYTES / bytes).max(1))
}

/// The widest vector that fits: of so many elements, or of a half of them, and so on, but of more than one.
pub(super) fn widest_that(widest: i64, fits: impl Fn(i64) -> bool) -> Option<i64> {
    let mut halves = std::iter::successors(Some(widest), |vector| Some(vector / 2)).take_while(|vector| *vector > 1);
    halves.find(|vector| fits(*vector))
}

/// Which caches accesses to global memory use.
///
/// Where little is written, what is read once makes room first in the
/// second-level cache, so that it does not push out what others wrote there.
/// (On an H200 that takes 5 to 15 % off reductions, and costs 2 to 10 % where
/// as much is written as read.) Not where several inputs lie with gaps, as parts of one tensor do: what one reads another
/// finds again. (Windows of images take 0.63 to 0.96 of the time then.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caching {
    load: CacheHint,
    store: CacheHint,
}

impl Caching {
    /// Nothing said.
    pub(super) const NONE: Self = Self { load: CacheHint::Default, store: CacheHint::Default };

    /// Nothing said of loads.
    pub(super) fn of_stores(self) -> Self {
        Self { load: CacheHint::Default, ..self }
    }

    pub(super) fn new(summary: &Summary<'_>, options: &Options) -> Self {
        let hints = [CacheHint::Default, CacheHint::Streaming];
        let hint = |name: &str, value: i64| hints[tuned(options, name, value) as usize % 2];
        let reads_once = summary.mostly_reads() && !summary.may_read_twice();
        Self { load: hint("cache.load", i64::from(reads_once)), store: hint("cache.store", 0) }
    }
}

/// Reads every input into registers; returns the copies, lookups among them.
pub(super) fn cache_inputs(builder: &mut ScheduleBuilder, caching: Caching) -> Result<Vec<TvId>> {
    let roots = whole_roots(builder.state());
    let mut caches = Vec::new();
    for input in builder.inputs() {
        // A lookup is a copy of what it reads.
        let cache = match builder.state().lookup_in(input) {
            Some(lookup) => lookup,
            None => builder.cache_after(input)?,
        };
        let data = &builder.state().tensors[input];
        let own: Vec<AxisId> = data.indexed().filter_map(|axis| whole_of(builder.state(), axis)).collect();
        let once = roots.iter().all(|root| own.contains(root));
        if once && caching.load != CacheHint::Default {
            builder.set_cache_hint(cache, caching.load)?;
        }
        caches.push(cache);
    }
    if caching.store != CacheHint::Default {
        for output in builder.outputs() {
            builder.set_cache_hint(output, caching.store)?;
        }
    }
    Ok(caches)
}

/// Rows given to a fixed number of blocks, which take them in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowLoop {
    /// Blocks of the grid along rows.
    pub(super) blocks: i64,
    /// Blocks that should fit a multiprocessor at once.
    pub(super) per_sm: i64,
}

/// A loop over rows for `row_blocks` blocks' worth of rows, if they would come
/// in several waves: then each block prefetches its next row while it finishes
/// the present one. Where the number of blocks is a multiple of the vector, all
/// rows of a block are shifted alike; `alike` asks for that.
pub(super) fn row_loop(cx: &CompileCx<'_>, row_blocks: i64, per_sm: i64, alike: Option<i64>) -> Option<RowLoop> {
    let per_sm = per_sm.min(i64::from(cx.device.max_blocks_per_sm));
    let blocks = i64::from(cx.device.sm_count) * per_sm;
    let blocks = alike.map_or(blocks, |vector| blocks / vector * vector);
    (blocks > 0 && row_blocks >= 2 * blocks).then_some(RowLoop { blocks, per_sm })
}

/// Rows as blocks and threads of y.
pub(super) struct BoundRows {
    /// The axes of blocks and threads, in loop order.
    pub(super) order: [AxisId; 2],
    /// The loop in which blocks take rows in turn.
    pub(super) turn: Option<AxisId>,
}

/// Gives rows to threads of y and to blocks, which take them in turn if there is
/// a row loop. `exact`: threads and blocks divide the rows.
pub(super) fn bind_rows(
    builder: &mut ScheduleBuilder,
    rows: AxisId,
    threads: i64,
    row_loop: Option<RowLoop>,
    exact: bool,
) -> Result<BoundRows> {
    let (mut block, thread) = builder.split(rows, threads, exact)?;
    let mut turn = None;
    if let Some(row_loop) = row_loop {
        let (outer, inner) = builder.split(block, row_loop.blocks, exact)?;
        (turn, block) = (Some(outer), inner);
        builder.min_blocks(row_loop.per_sm as u32)?;
    }
    builder.parallelize(block, ParallelType::Bidx)?;
    builder.parallelize(thread, ParallelType::Tidy)?;
    Ok(BoundRows { order: [block, thread], turn })
}

/// The tensors that outputs copy from, with the loops outside the vector axis
/// as their inline limit: so the copy finds a whole vector in registers.
pub(super) fn keep_for_stores(builder: &ScheduleBuilder, vector: AxisId) -> Vec<(TvId, usize)> {
    let state = builder.state();
    builder
        .outputs()
        .into_iter()
        .filter(|output| state.tensors[*output].loop_axes().next_back() == Some(vector))
        .flat_map(|output| {
            let limit = state.tensors[output].loops.len() - 1;
            state.producers(output).into_iter().map(move |value| (value, limit))
        })
        .collect()
}
