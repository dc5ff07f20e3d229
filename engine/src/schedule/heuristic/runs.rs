//! Elementwise fusions whose tensors run along two different dimensions, of which one is short, or
//! within which lies a short one that all of them walk: channels of images, heads of few elements.
//!
//! A tile of plain rows and columns would take a short dimension in vectors that do not fit and with
//! threads that have nothing to do; without a tile, memory would be moved in pieces of a short run. So the
//! short dimension is a constant of the kernel, and together with what lies outside of it in memory it is one run, of
//! which a block takes a part:
//!
//! * *image*: tensors `[.., j, n]` and `[.., n, j]` with a short `n`: a tile of `T` indices of `j` and all of `n` is one run
//!   of `T * n` elements on the one side and `n` runs of `T` on the other;
//! * *heads*: tensors `[.., s, .., h, r]` and `[.., h, .., s, r]` with a short `r`: a tile of `T` indices of `s` and `U` of
//!   `h` is `T` runs of `U * r` elements on the one side and `U` runs of `T * r` on the other.
//!
//! Inputs of the one side are loaded by threads along its runs and pass through shared memory; everything is
//! computed by threads along the runs of the other side.

use super::choose::Problem;
use super::summary::GlobalTensor;
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, collapse, keep_for_stores, merge_all, next_power_of_two, tuned,
};
use super::transpose::{LEAST_BYTES, power_of_two_below};
use crate::diag::{Diagnostic, Result};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{
    AxisId, Columns, Loop, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, Tile, TvId, Windows,
};

/// Bytes of a tile of one tensor, and of all tiles of a block.
const TILE_BYTES: i64 = 16 << 10;
const MAX_SHARED: i64 = 40 << 10;
/// Threads of a block, at most.
const THREADS: i64 = 256;
/// Bytes of a short dimension, at most: runs of more are whole lines for the most part, and tiles of plain rows have
/// few threads without work.
const MOST_RUN_BYTES: i64 = 160;
const MOST_IMAGE_BYTES: i64 = 96;
/// Bytes of a part of a run with which memory is content.
const PART_BYTES: i64 = 512;
/// Bytes of the narrowest accesses that keep up with memory.
const WORD_BYTES: i64 = 4;
/// Elements between rows of a tile, at least.
const MIN_PADDING: i64 = 2;
/// Vectors of a thread, at most: each is an access that is under way.
const MOST_STEPS: i64 = 32;
/// Ways in which accesses of a warp may meet in a bank of shared memory.
const MOST_CONFLICTS: i64 = 4;

/// A side: what threads run along in its tensors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    /// The roots of the long dimension of its run, outer to inner.
    roots: Vec<AxisId>,
    /// Indices of it in a tile.
    tile: i64,
    /// Whether the short dimension belongs to the run, and not to its rows.
    is_flat: bool,
    /// Elements of a vector.
    vector: i64,
}

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunsParams {
    /// All other dimensions, slowest first.
    others: Vec<AxisId>,
    /// The roots of the short dimension, and its extent.
    short: (Vec<AxisId>, i64),
    /// The side along which values are computed, and the one whose inputs lie in tiles. Where both have the same
    /// long dimension, rows of the one are the short one.
    computing: Side,
    staging: Side,
    staged: Vec<TvId>,
    threads: i64,
}

impl std::fmt::Display for RunsParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { short: (_, short), computing, staging, staged, threads, .. } = self;
        let kind = if self.is_image() { "image" } else { "heads" };
        let (tiles, vectors) = ([computing.tile, staging.tile], [computing.vector, staging.vector]);
        write!(f, "{kind} of {short} tile {}x{} vectors {}x{}", tiles[0], tiles[1], vectors[0], vectors[1])?;
        write!(f, " threads {threads} staged {}", staged.len())
    }
}

impl RunsParams {
    fn is_image(&self) -> bool {
        self.computing.roots == self.staging.roots
    }
}

/// A pattern: the groups of dimensions that the sides run along.
struct Pattern<'a> {
    short: usize,
    /// For each side its long dimension, whether the short one lies in its runs, and its tensors.
    sides: [(usize, bool, Vec<&'a GlobalTensor>); 2],
}

/// Finds the pattern of a fusion, or says why it has none.
fn pattern<'a>(problem: &Problem<'a>, groups: &[Vec<AxisId>], extents: &[i64]) -> Option<Pattern<'a>> {
    // The groups that a tensor walks, outer to inner, up to the first that is not one run with the next.
    let walks = |tensor: &GlobalTensor| -> Vec<usize> {
        let at = |root: &AxisId| groups.iter().position(|group| group.contains(root));
        let mut found: Vec<usize> = Vec::new();
        for (position, root) in tensor.order.iter().enumerate().rev() {
            if !tensor.dense[position] {
                break;
            }
            let Some(group) = at(root) else { break };
            if found.last() != Some(&group) {
                found.push(group);
            }
        }
        found
    };
    let tensors: Vec<(&GlobalTensor, Vec<usize>)> =
        problem.summary.globals.iter().map(|tensor| (tensor, walks(tensor))).collect();
    let of = |wanted: &dyn Fn(&[usize]) -> bool| -> Vec<&'a GlobalTensor> {
        let taken = tensors.iter().filter(|(tensor, walk)| wanted(walk) && tensor.order.len() > 1);
        taken.map(|(tensor, _)| *tensor).collect()
    };
    let mut best: Option<(i64, Pattern<'a>)> = None;
    let mut offer = |pattern: Pattern<'a>| {
        let least = pattern.sides.iter().map(|(.., tensors)| total_bytes(tensors)).min().unwrap_or(0);
        if pattern.sides.iter().all(|(.., tensors)| !tensors.is_empty())
            && best.as_ref().is_none_or(|(other, _)| least > *other)
        {
            best = Some((least, pattern));
        }
    };
    for short in (0..groups.len()).filter(|at| extents[*at] >= 2) {
        for first in (0..groups.len()).filter(|at| *at != short) {
            let flat = of(&|walk: &[usize]| walk.starts_with(&[short, first]));
            let plain = of(&|walk: &[usize]| walk.first() == Some(&first));
            let plain = plain.into_iter().filter(|t| groups[short].iter().all(|root| t.order.contains(root)));
            offer(Pattern { short, sides: [(first, true, flat.clone()), (first, false, plain.collect())] });
            for second in (first + 1..groups.len()).filter(|at| *at != short) {
                let other = of(&|walk: &[usize]| walk.starts_with(&[short, second]));
                let has = |t: &&&GlobalTensor, at: usize| groups[at].iter().all(|root| t.order.contains(root));
                let flat: Vec<_> = flat.iter().filter(|t| has(t, second)).copied().collect();
                let other: Vec<_> = other.iter().filter(|t| has(t, first)).copied().collect();
                offer(Pattern { short, sides: [(first, true, flat), (second, true, other)] });
            }
        }
    }
    best.map(|(_, pattern)| pattern)
}

/// Chooses for the given sizes; none where the fusion has no such pattern, or gains nothing by it.
pub(super) fn plan(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Option<RunsParams> {
    let summary = problem.summary;
    if !summary.structure.reduced.is_empty() {
        return None;
    }
    let groups = collapse(summary, &summary.largest(|_| true)?.order);
    let of_root = |root: &AxisId| problem.sizes.extent(scheduled, *root);
    let extents: Vec<i64> =
        groups.iter().map(|group| group.iter().fold(1i64, |n, root| n.saturating_mul(of_root(root)))).collect();
    let Pattern { short, sides } = pattern(problem, &groups, &extents)?;
    let e = extents[short];
    let bytes = sides.each_ref().map(|(.., tensors)| tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(1));
    let widest = bytes[0].max(bytes[1]);
    let least = sides.iter().map(|(.., tensors)| total_bytes(tensors)).min()?;
    let is_large = least >= tuned(problem.cx.options, "transpose.least_bytes", LEAST_BYTES);
    let is_image = sides[0].0 == sides[1].0;
    let is_empty = sides.iter().any(|(long, ..)| extents[*long] == 0);
    if is_empty || !is_large || !is_short(is_image, e, widest) {
        return None;
    }
    // Results are computed where they are written.
    let reads = |at: &usize| sides[*at].2.iter().all(|tensor| !tensor.is_output);
    let staging = [1, 0].into_iter().find(reads)?;
    let staged_bytes: i64 = sides[staging].2.iter().map(|tensor| tensor.bytes).sum();
    let area = (TILE_BYTES / widest).min(MAX_SHARED / staged_bytes);
    let tiles = tile_sizes(is_image, e, widest, area, sides.each_ref().map(|(long, ..)| extents[*long]));
    // Elements of a tile, by which both sides count their steps.
    let elements = if is_image { tiles[0] * e } else { tiles[0] * tiles[1] * e };
    let vectors = [0, 1].map(|at| {
        let (long, is_flat, tensors) = &sides[at];
        let run = groups[*long].len() + if *is_flat { groups[short].len() } else { 0 };
        let per = if *is_flat { e } else { 1 };
        let fits = |vector: i64| {
            let whole = tiles[at] * per % vector == 0 && extents[*long] * per % vector == 0;
            whole && elements % (vector * WARP) == 0 && tensors.iter().all(|t| t.rows_aligned(vector, run))
        };
        let halves = std::iter::successors(Some(MAX_ACCESS_BYTES / bytes[at]), |vector| Some(vector / 2));
        halves.take_while(|vector| *vector > 1).find(|vector| fits(*vector)).unwrap_or(1)
    });
    let is_word = |at: usize| vectors[at] * bytes[at] >= WORD_BYTES;
    let steps = vectors.map(|vector| elements / vector);
    let is_whole = |threads: &i64| steps.iter().all(|steps| steps % threads == 0);
    let threads = (1..=THREADS / WARP).rev().map(|warps| warps * WARP).find(is_whole)?;
    // Threads along rows of the long dimension write elements of the tile that are a short run apart.
    let stride = (vectors[staging] * e * widest / WORD_BYTES).max(1);
    let meets = is_image && !sides[staging].1 && gcd(stride, WARP) > MOST_CONFLICTS;
    let is_large = elements > 2 * area || steps[0].max(steps[1]) / threads > MOST_STEPS;
    if meets || is_large || !is_word(0) || !is_word(1) {
        return None;
    }
    let side = |at: usize| Side {
        roots: groups[sides[at].0].clone(),
        tile: tiles[at],
        is_flat: sides[at].1,
        vector: vectors[at],
    };
    let used: Vec<AxisId> = [short, sides[0].0, sides[1].0].iter().flat_map(|at| groups[*at].iter().copied()).collect();
    let mut others: Vec<AxisId> = groups.concat();
    others.extend(summary.structure.roots.iter().filter(|root| !groups.iter().flatten().any(|own| own == *root)));
    others.retain(|root| !used.contains(root));
    Some(RunsParams {
        others,
        short: (groups[short].clone(), e),
        computing: side(1 - staging),
        staging: side(staging),
        staged: sides[staging].2.iter().map(|tensor| tensor.tv).collect(),
        threads,
    })
}

/// Whether runs of so many elements of so many bytes are better moved through this tile: each element is written
/// to it by itself, which counts for more the narrower it is. What was measured on an H200, in shares of a copy, is the
/// reason for the limits: images of 3 to 24 elements gain a fifth to two thirds and those of 56 of two bytes lose a third;
/// heads of 14 gain half at two bytes and two thirds at four, and lose a quarter at one.
fn is_short(is_image: bool, e: i64, bytes: i64) -> bool {
    let is_odd = e & (e - 1) != 0 || e * bytes < MAX_ACCESS_BYTES;
    let limit = match is_image {
        true => (MOST_IMAGE_BYTES / bytes).min(WARP),
        false => (MOST_RUN_BYTES / bytes).min(8 * bytes * bytes),
    };
    is_odd && e <= limit
}

fn total_bytes(tensors: &[&GlobalTensor]) -> i64 {
    tensors.iter().map(|tensor| tensor.elements.saturating_mul(tensor.bytes)).fold(0, i64::saturating_add)
}

/// Indices of the long dimensions in a tile of about so many elements: powers of two, or all where that is few.
fn tile_sizes(is_image: bool, e: i64, widest: i64, area: i64, extents: [i64; 2]) -> [i64; 2] {
    if is_image {
        return [power_of_two_below(area / e).min(next_power_of_two(extents[0])); 2];
    }
    let most = |at: usize, most: i64| match extents[at] {
        extent if extent <= WARP => extent,
        extent => power_of_two_below(most).min(next_power_of_two(extent)),
    };
    // Parts of runs for which memory is content on either side, then longer ones, since whole lines are best.
    let part = next_power_of_two(ceil_div(PART_BYTES, e * widest));
    let second = most(1, part.min(area / e));
    let first = most(0, area / (e * second));
    [first, most(1, area / (e * first))]
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What threads of a side run over within a tile, and the tile's axes.
struct Axes {
    /// Part of a run.
    run: AxisId,
    /// The rows, if there are several.
    rows: Option<AxisId>,
}

/// What the run of a tile's rows is a part of: the axis, the number of the part, its indices.
struct Part(AxisId, AxisId, i64);

/// The loops of a side within a tile: threads along its runs and then over rows, steps, the vector.
fn loops_along(builder: &mut ScheduleBuilder, axes: &Axes, vector: i64, threads: i64) -> Result<[Loop; 3]> {
    let (lanes, vector) = builder.split(axes.run, vector, true)?;
    let all = match axes.rows {
        Some(rows) => builder.merge(rows, lanes)?,
        None => lanes,
    };
    let (steps, thread) = builder.split(all, threads, true)?;
    let place = |axis, parallel| Loop { axis, parallel };
    Ok([place(thread, ParallelType::Tidx), place(steps, ParallelType::Unroll), place(vector, ParallelType::Vectorize)])
}

/// Whole parts of an axis: windows that lie side by side.
fn parts(step: i64) -> Windows {
    Windows { step, width: step, left: 0, aligned: None }
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &RunsParams) -> Result<()> {
    let RunsParams { others, short: (short_roots, e), computing, staging, staged, threads } = params;
    let caches = cache_inputs(builder, caching)?;
    let missing = || Diagnostic::bug("a side of a transposition has no dimension");
    let short = merge_all(builder, short_roots)?.ok_or_else(missing)?;
    let own = merge_all(builder, &computing.roots)?.ok_or_else(missing)?;
    // The short dimension is a constant.
    let (_, short_part) = builder.split_cover(short, 1, *e, true)?;
    let (blocks, computed, read, part) = if params.is_image() {
        let whole = builder.merge(own, short)?;
        if computing.is_flat {
            let (block, run) = builder.split(whole, computing.tile * e, false)?;
            let window = builder.window(own, block, parts(staging.tile))?;
            let part = Part(whole, block, computing.tile * e);
            (vec![block], Axes { run, rows: None }, Axes { run: window, rows: Some(short_part) }, part)
        } else {
            let (block, run) = builder.split(own, computing.tile, false)?;
            let window = builder.window(whole, block, parts(staging.tile * e))?;
            let part = Part(own, block, computing.tile);
            (vec![block], Axes { run, rows: Some(short_part) }, Axes { run: window, rows: None }, part)
        }
    } else {
        let other = merge_all(builder, &staging.roots)?.ok_or_else(missing)?;
        let (whole, theirs) = (builder.merge(own, short)?, builder.merge(other, short)?);
        let (block, run) = builder.split(whole, computing.tile * e, false)?;
        let (other_block, rows) = builder.split(other, staging.tile, false)?;
        let window = builder.window(theirs, other_block, parts(staging.tile * e))?;
        let their_rows = builder.window(own, block, parts(computing.tile))?;
        let part = Part(whole, block, computing.tile * e);
        let (own, theirs) = (Axes { run, rows: Some(rows) }, Axes { run: window, rows: Some(their_rows) });
        (vec![block, other_block], own, theirs, part)
    };
    let others = merge_all(builder, others)?;
    let blocks: Vec<AxisId> = others.into_iter().chain(blocks).collect();
    let grid = merge_all(builder, &blocks)?.ok_or_else(missing)?;
    let along = loops_along(builder, &computed, computing.vector, *threads)?;
    let across = loops_along(builder, &read, staging.vector, *threads)?;
    builder.parallelize(grid, ParallelType::Bidx)?;
    for own in along {
        builder.parallelize(own.axis, own.parallel)?;
    }
    let order: Vec<AxisId> = std::iter::once(grid).chain(along.iter().map(|own| own.axis)).collect();
    builder.propagate(&order)?;
    let grid = Loop { axis: grid, parallel: ParallelType::Bidx };
    let their_loops: Vec<Loop> = std::iter::once(grid).chain(across).collect();
    // Rows of a tile lie a vector further apart than they are long, so that neighbours lie in other banks.
    let Part(axis, number, step) = part;
    let padding = if computed.rows.is_some() { computing.vector.max(MIN_PADDING) } else { 0 };
    let padded = Windows { step, width: step + padding, left: 0, aligned: None };
    let tile_run = builder.window(axis, number, padded)?;
    let mut keep: Vec<(TvId, usize)> = Vec::new();
    for tensor in staged {
        // From memory to registers and the tile along the one side, from there to registers along the other.
        let registers = builder.state().consumers(*tensor)[0];
        let tile = builder.cache_after(registers)?;
        let held = builder.cache_after(tile)?;
        for tv in [registers, tile] {
            builder.set_loops(tv, &their_loops)?;
        }
        builder.set_memory(tile, Memory::Shared)?;
        let axes: Vec<AxisId> = computed.rows.into_iter().chain([tile_run]).collect();
        builder.alloc(tile, Tile { axes, columns: Columns::InOrder })?;
        keep.extend([(registers, 2), (held, 3)]);
    }
    keep.extend(
        caches
            .into_iter()
            .filter(|cache| !keep.iter().any(|(tv, _)| tv == cache))
            .map(|cache| (cache, 2))
            .collect::<Vec<_>>(),
    );
    keep.extend(keep_for_stores(builder, along[2].axis));
    builder.inline_most(&keep)
}
