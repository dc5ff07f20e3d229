//! Elementwise fusions of tensors `[.., s, .., h, r]` and `[.., h, .., s, r]` with a short `r`: heads of few elements.
//!
//! A tile of `T` indices of `s` and `U` of `h` is `T` runs of `U * r` elements on the one side and `U` runs of `T * r` on the
//! other. Inputs of the one side are loaded by threads along its runs and pass through shared memory, to which they go as many
//! neighbours at once as divide `r`; everything is computed by threads along the runs of the other side.

use super::choose::Problem;
use super::shared_tile::{
    LEAST_BYTES, MAX_SHARED, THREADS, TILE_BYTES, WORD_BYTES, bind_loops, blocks_of, pass_input, widths,
};
use super::short::{Axes, Short, parts};
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, keep_for_stores, merge_all, next_power_of_two, power_of_two_below, tuned,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{AxisId, Columns, Loop, ParallelType, ScheduleBuilder, Tile, TvId, Windows};

/// Elements that a thread holds, at most: narrow ones take a register each.
const MOST_HELD: i64 = 32;
/// Bytes of the short dimension, at most: longer runs are whole lines for the most part.
const MOST_RUN_BYTES: i64 = 160;
/// Bytes of a part of a run with which memory is content.
const PART_BYTES: i64 = 512;
/// Elements between rows of a tile, at least.
const MIN_PADDING: i64 = 2;
/// Vectors of a thread, at most: each is an access that is under way.
const MOST_STEPS: i64 = 32;

/// A side: what threads run along in its tensors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    /// The roots of the long dimension of its run, outer to inner.
    roots: Vec<AxisId>,
    /// Indices of it in a tile.
    tile: i64,
    /// Elements of a vector.
    vector: i64,
}

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeadParams {
    /// All other dimensions, slowest first.
    others: Vec<AxisId>,
    /// The roots of the short dimension, and its extent.
    short: (Vec<AxisId>, i64),
    /// The side along which values are computed, and the one whose inputs lie in tiles.
    computing: Side,
    staging: Side,
    staged: Vec<TvId>,
    /// Neighbours that go to the tile at once.
    unit: i64,
    threads: i64,
}

impl std::fmt::Display for HeadParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { short: (_, short), computing, staging, staged, unit, threads, .. } = self;
        let (tiles, vectors) = ([computing.tile, staging.tile], [computing.vector, staging.vector]);
        write!(f, "heads of {short} tile {}x{} vectors {}x{}", tiles[0], tiles[1], vectors[0], vectors[1])?;
        write!(f, " by {unit} threads {threads} staged {}", staged.len())
    }
}

/// Chooses for the given sizes; none where the fusion has another pattern, or gains nothing by this one.
pub(super) fn plan(problem: &Problem<'_>, found: &Short<'_>) -> Option<HeadParams> {
    let sides = &found.sides;
    let e = found.extent();
    let widest = sides[0].bytes().max(sides[1].bytes());
    let is_large = found.least_bytes() >= tuned(problem.cx.options, "transpose.least_bytes", LEAST_BYTES);
    if sides[0].long == sides[1].long || !is_large || !is_short(e, widest) {
        return None;
    }
    // Results are computed where they are written.
    let staging = [1, 0].into_iter().find(|at| sides[*at].reads())?;
    let area = (TILE_BYTES / widest).min(MAX_SHARED / sides[staging].bytes_of_all()).min(MOST_HELD * THREADS);
    let extents = sides.each_ref().map(|side| found.extents[side.long]);
    // All of a dimension where that is few, else powers of two, which more numbers of threads divide.
    let tiles = [WARP, 1].map(|few| tile_sizes(e, widest, area, extents, few));
    tiles.into_iter().find_map(|tiles| {
        // Elements of a tile, by which both sides count their steps.
        let elements = tiles[0] * tiles[1] * e;
        let vectors = [0, 1].map(|at| vector_of(found, at, tiles[at], elements));
        let steps = vectors.map(|vector| elements / vector);
        let is_whole = |threads: &i64| steps.iter().all(|steps| steps % threads == 0);
        let threads = (1..=THREADS / WARP).rev().map(|warps| warps * WARP).find(is_whole)?;
        let is_wide = |at: usize| vectors[at] * sides[at].bytes() >= WORD_BYTES;
        let is_large = elements > 2 * area || steps[0].max(steps[1]) / threads > MOST_STEPS;
        if is_large || !is_wide(0) || !is_wide(1) {
            return None;
        }
        let roots = |at: usize| found.groups[sides[at].long].clone();
        let side = |at: usize| Side { roots: roots(at), tile: tiles[at], vector: vectors[at] };
        Some(HeadParams {
            others: found.others(problem),
            short: (found.groups[found.short].clone(), e),
            computing: side(1 - staging),
            staging: side(staging),
            staged: sides[staging].tensors.iter().map(|tensor| tensor.tv).collect(),
            unit: unit_of(e, widest).min(vectors[staging]),
            threads,
        })
    })
}

/// The widest vector that fits the runs of a side, of which a tile has so many indices and so many elements.
fn vector_of(found: &Short<'_>, at: usize, tile: i64, elements: i64) -> i64 {
    let (side, e) = (&found.sides[at], found.extent());
    let run = found.groups[side.long].len() + found.groups[found.short].len();
    let fits = |vector: i64| {
        let whole = tile * e % vector == 0 && found.extents[side.long] * e % vector == 0;
        whole && elements % (vector * WARP) == 0 && side.tensors.iter().all(|t| t.rows_aligned(vector, run))
    };
    widths(side.bytes()).find(|vector| fits(*vector)).unwrap_or(1)
}

/// How many neighbours a word has room for, if they divide the short dimension.
fn unit_of(e: i64, bytes: i64) -> i64 {
    (1 << e.trailing_zeros().min(4)).min(WORD_BYTES / bytes).max(1)
}

/// Whether runs of so many elements of so many bytes are better moved through this tile: each access of it moves a word
/// at most, which counts for more the narrower it is. What was measured on an H200, in shares of a copy, is the
/// reason for the limits: heads of 14 gain half at two bytes and two thirds at four, and lost a quarter at one byte when
/// each element was moved by itself.
fn is_short(e: i64, bytes: i64) -> bool {
    // A power of two is moved by whole accesses, one of which shares its sector with others.
    let is_odd = e & (e - 1) != 0 || e * bytes <= MAX_ACCESS_BYTES;
    // Beside those, what fits no whole accesses: units count as elements of a word.
    let unit = if e * bytes % MAX_ACCESS_BYTES == 0 { 1 } else { unit_of(e, bytes) };
    let moved = unit * bytes;
    is_odd && e * bytes <= MOST_RUN_BYTES && e / unit <= 10 * moved * moved
}

/// Indices of the long dimensions in a tile of about so many elements: powers of two, or all where that is few.
fn tile_sizes(e: i64, widest: i64, area: i64, extents: [i64; 2], few: i64) -> [i64; 2] {
    let most = |at: usize, most: i64| match extents[at] {
        extent if extent <= few => extent,
        extent => power_of_two_below(most).min(next_power_of_two(extent)),
    };
    // Parts of runs for which memory is content on either side, then longer ones, since whole lines are best.
    let part = next_power_of_two(ceil_div(PART_BYTES, e * widest));
    let second = most(1, part.min(area / e));
    let first = most(0, area / (e * second));
    [first, most(1, area / (e * first))]
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &HeadParams) -> Result<()> {
    let HeadParams { others, short: (short_roots, e), computing, staging, staged, unit, threads } = params;
    let caches = cache_inputs(builder, caching)?;
    let missing = || Diagnostic::bug("a side of heads has no dimension");
    let short = merge_all(builder, short_roots)?.ok_or_else(missing)?;
    let own = merge_all(builder, &computing.roots)?.ok_or_else(missing)?;
    let other = merge_all(builder, &staging.roots)?.ok_or_else(missing)?;
    // The short dimension is a constant.
    builder.split_cover(short, 1, *e, true)?;
    let (whole, theirs) = (builder.merge(own, short)?, builder.merge(other, short)?);
    let (block, run) = builder.split(whole, computing.tile * e, false)?;
    let (other_block, rows) = builder.split(other, staging.tile, false)?;
    let window = builder.window(theirs, other_block, parts(staging.tile * e))?;
    let their_rows = builder.window(own, block, parts(computing.tile))?;
    let (computed, read) = (Axes { run, rows: Some(rows) }, Axes { run: window, rows: Some(their_rows) });
    let others = merge_all(builder, others)?;
    let blocks: Vec<AxisId> = others.into_iter().chain([block, other_block]).collect();
    let grid = merge_all(builder, &blocks)?.ok_or_else(missing)?;
    let along = computed.loops(builder, computing.vector, *threads)?;
    let across = read.loops(builder, staging.vector, *threads)?;
    let grid = bind_loops(builder, grid, &along)?;
    let elements = computing.tile * staging.tile * e / threads;
    builder.min_blocks(blocks_of(*threads, builder.inputs().len(), elements))?;
    let their_loops: Vec<Loop> = std::iter::once(grid).chain(across).collect();
    // Neighbours that go to the tile at once, where a vector has several times as many.
    let units = if *unit > 1 && *unit < staging.vector {
        let (units, unit) = builder.split(across[2].axis, *unit, true)?;
        let units = Loop { axis: units, parallel: ParallelType::Unroll };
        let unit = Loop { axis: unit, parallel: ParallelType::Vectorize };
        Some([grid, across[0], across[1], units, unit])
    } else {
        None
    };
    // Rows of a tile lie a vector further apart than they are long, so that neighbours lie in other banks.
    let step = computing.tile * e;
    let padded = Windows { step, width: step + computing.vector.max(MIN_PADDING), left: 0, aligned: None };
    let tile_run = builder.window(whole, block, padded)?;
    let filling = units.as_ref().map_or(their_loops.as_slice(), |units| units);
    let mut keep: Vec<(TvId, usize)> = caches.into_iter().map(|cache| (cache, 2)).collect();
    for input in staged {
        let tile = Tile { axes: vec![rows, tile_run], columns: Columns::InOrder };
        keep.push((pass_input(builder, *input, [&their_loops, filling], tile)?, 2));
    }
    keep.extend(keep_for_stores(builder, along[2].axis));
    builder.inline_most(&keep)
}
