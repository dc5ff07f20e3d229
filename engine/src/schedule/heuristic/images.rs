//! Elementwise fusions of tensors `[.., j, n]` and `[.., n, j]` with a short `n`: channels of images.
//!
//! A tile of `T` indices of `j` and all of `n` is one run of `T * n` elements in the tensors of the *flat* side, and `n` runs
//! of `T` in those of the *plain* side. In shared memory it lies as in the flat ones, which are accessed by vectors on both
//! sides of it; a thread of the plain side takes the elements of its vector one by one, a constant distance `n` apart.
//! Inputs of one side pass through the tile; everything is computed by threads along the other.
//!
//! Where rows of plain results start in the middle of a word, vectors are aligned row by row, and the tile holds the few indices
//! of `j` before its own that rows then reach back to. So it starts where no vector of the flat tensor may start: it is a
//! window from the multiple of a vector before that.

use super::choose::Problem;
use super::shared_tile::{
    BANKS_BYTES, LEAST_BYTES, MAX_SHARED, THREADS, TILE_BYTES, WORD_BYTES, alike, bind_loops, pass_input, widths,
};
use super::short::{Axes, Short, ShortSide, parts};
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, keep_for_stores, merge_all, next_power_of_two, power_of_two_below, tuned,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{MAX_ACCESS_BYTES, gcd};
use crate::schedule::{AxisId, Columns, Loop, ScheduleBuilder, Tile, TvId, Windows};

/// Threads of a block, at most.
const MOST_THREADS: i64 = 512;
/// Bytes of the short dimension, at most.
const MOST_BYTES: i64 = 160;
/// Ways in which accesses of a warp meet in a bank that cost nothing yet, and those with which there is no gain.
const FEW_CONFLICTS: i64 = 2;
const MOST_CONFLICTS: i64 = 4;
/// Vectors of a thread, at most, that are loaded, since each is an access that is under way, and that are stored.
const MOST_LOADS: i64 = 32;
const MOST_STORES: i64 = 64;
/// Bytes of a tile, at least, that are enough for a block.
const LEAST_TILE: i64 = 4 << 10;
/// Hundredths of the wanted elements that a tile may have.
const MOST_OF_AREA: i64 = 160;
/// Hundredths of a tile that may be read beyond what it needs.
const MOST_BEYOND: i64 = 25;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ImageParams {
    /// All other dimensions, slowest first.
    others: Vec<AxisId>,
    /// The roots of the short dimension, and its extent.
    short: (Vec<AxisId>, i64),
    /// The roots of the long one, outer to inner.
    long: Vec<AxisId>,
    /// Indices of it in a tile.
    tile: i64,
    /// Whether values are computed along flat runs, and plain inputs are staged.
    computes_flat: bool,
    /// Elements of a vector of flat and of plain runs.
    vectors: [i64; 2],
    /// The plain tensor to whose rows vectors are aligned row by row.
    aligned_to: Option<TvId>,
    /// What a tile holds of staged flat runs.
    held: Windows,
    staged: Vec<TvId>,
    threads: i64,
    /// Whether a tile has all of the long dimension, and that is little.
    is_small: bool,
}

impl ImageParams {
    pub(super) fn is_small(&self) -> bool {
        self.is_small
    }
}

impl std::fmt::Display for ImageParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { short: (_, short), tile, vectors: [flat, plain], staged, threads, .. } = self;
        let computing = if self.computes_flat { "flat" } else { "plain" };
        write!(f, "image of {short} computed {computing} tile {tile} vectors {flat}x{plain}")?;
        write!(f, " threads {threads} staged {}", staged.len())?;
        if self.aligned_to.is_some() { f.write_str(" by row") } else { Ok(()) }
    }
}

/// Chooses for the given sizes; none where the fusion has another pattern, or gains nothing by this one.
pub(super) fn plan(problem: &Problem<'_>, found: &Short<'_>) -> Option<ImageParams> {
    let [flat, plain] = &found.sides;
    if flat.long != plain.long {
        return None;
    }
    let (e, j) = (found.extent(), found.extents[flat.long]);
    let widest = flat.bytes().max(plain.bytes());
    let is_large = found.least_bytes() >= tuned(problem.cx.options, "transpose.least_bytes", LEAST_BYTES);
    // A power of two of whole vectors is as well a side of a plain tile.
    let is_odd = e & (e - 1) != 0 || e * widest < MAX_ACCESS_BYTES;
    if !is_large || !is_odd || e * widest > MOST_BYTES {
        return None;
    }
    // Results are computed where they are written.
    let staging = [plain, flat].into_iter().find(|side| side.reads())?;
    let area = (TILE_BYTES / widest).min(MAX_SHARED / staging.bytes_of_all());
    tiles_of(e, j, area).find_map(|tile| plan_for(problem, found, staging, tile))
}

/// The same for tiles of so many indices of the long dimension.
fn plan_for(problem: &Problem<'_>, found: &Short<'_>, staging: &ShortSide<'_>, tile: i64) -> Option<ImageParams> {
    let [flat, plain] = &found.sides;
    let (e, j, computes_flat) = (found.extent(), found.extents[flat.long], plain.reads());
    let (plain_vector, aligned_to) = plain_vector(found, tile)?;
    let back = if aligned_to.is_some() { (plain_vector - 1) * e } else { 0 };
    let (flat_vector, shifted) = flat_vector(found, tile * e, back)?;
    let left = ceil_div(back, flat_vector) * flat_vector;
    let needed = tile * e + left + shifted.map_or(0, |(vector, _)| vector);
    let (threads, width) = threads_of(tile * e / plain_vector, (needed, flat_vector), computes_flat)?;
    Some(ImageParams {
        others: found.others(problem),
        short: (found.groups[found.short].clone(), e),
        long: found.groups[flat.long].clone(),
        tile,
        computes_flat,
        vectors: [flat_vector, plain_vector],
        aligned_to,
        held: Windows { step: tile * e, width, left, aligned: shifted },
        staged: staging.tensors.iter().map(|tensor| tensor.tv).collect(),
        threads,
        is_small: j <= tile && e * j * flat.bytes().max(plain.bytes()) < LEAST_TILE,
    })
}

/// Indices of the long dimension in a tile of about so many elements, by preference: a power of two, or all where that
/// is few.
fn tiles_of(e: i64, j: i64, area: i64) -> impl Iterator<Item = i64> {
    let below = power_of_two_below(area / e);
    let above = 2 * below * e;
    let tiles = if 8 * above <= 9 * area { [2 * below, below] } else { [below, 2 * below] };
    tiles
        .into_iter()
        .filter(move |tile| tile * e <= MOST_OF_AREA * area / 100)
        .map(move |tile| tile.min(next_power_of_two(j)))
}

/// The vector of plain runs: the widest with few conflicts, else the least of those that keep up, else a word that is
/// aligned row by row, to a tensor.
fn plain_vector(found: &Short<'_>, tile: i64) -> Option<(i64, Option<TvId>)> {
    let [flat, plain] = &found.sides;
    let (e, j, bytes) = (found.extent(), found.extents[plain.long], plain.bytes());
    let axes = found.groups[plain.long].len();
    let is_quick =
        |vector: i64, most: i64| tile % vector == 0 && conflicts(vector * e, bytes.max(flat.bytes())) <= most;
    let fits = |vector: i64| j % vector == 0 && plain.tensors.iter().all(|tensor| tensor.rows_aligned(vector, axes));
    let words = |vector: &i64| vector * bytes >= WORD_BYTES;
    let fitting = |most: i64| widths(bytes).take_while(words).find(|vector| is_quick(*vector, most) && fits(*vector));
    if let Some(vector) = fitting(FEW_CONFLICTS).or_else(|| fitting(MOST_CONFLICTS)) {
        // Loads of pairs that go to the tile one by one are slower than a plain tile.
        let is_slow = plain.reads() && bytes < WORD_BYTES && vector <= 2;
        return (!is_slow).then_some((vector, None));
    }
    let word = (WORD_BYTES / bytes).max(1);
    let reference = alike(&plain.tensors).filter(|_| !plain.reads() && is_quick(word, MOST_CONFLICTS))?;
    plain.tensors.iter().all(|tensor| tensor.align % word == 0).then_some((word, Some(reference)))
}

/// The vector of flat runs, of tiles of so many elements that begin so many before their own. Inputs need not fit: windows of
/// them start at multiples of a vector in a tensor.
fn flat_vector(found: &Short<'_>, elements: i64, back: i64) -> Option<(i64, Option<(i64, TvId)>)> {
    let [flat, plain] = &found.sides;
    let axes = found.groups[flat.long].len() + found.groups[found.short].len();
    let extent = found.extents[flat.long] * found.extent();
    let fits = |vector: i64| {
        let is_whole = extent % vector == 0 && back % vector == 0;
        is_whole && flat.tensors.iter().all(|tensor| tensor.rows_aligned(vector, axes))
    };
    let is_whole = |vector: &i64| vector * flat.bytes() >= WORD_BYTES && elements % vector == 0;
    let whole = || widths(flat.bytes()).filter(is_whole);
    let fitting = whole().find(|vector| fits(*vector));
    if fitting.is_some_and(|vector| vector * flat.bytes() == MAX_ACCESS_BYTES) {
        return fitting.map(|vector| (vector, None));
    }
    let reference = alike(&flat.tensors).filter(|_| !plain.reads());
    let aligned = whole().find(|vector| flat.tensors.iter().all(|tensor| tensor.align % vector == 0));
    let shifted = reference.zip(aligned).map(|(reference, vector)| (vector, Some((vector, reference))));
    shifted.or(fitting.map(|vector| (vector, None)))
}

/// Ways in which threads meet in a bank that read elements of so many bytes, so many elements apart.
fn conflicts(distance: i64, bytes: i64) -> i64 {
    let unit = bytes.max(WORD_BYTES);
    gcd((distance * bytes / unit).max(1), BANKS_BYTES / unit)
}

/// The threads of a block, and the elements of a run that their steps take: all of the plain side's vectors, and of the flat
/// side's what is needed, with as little beyond as may be.
fn threads_of(plain_vectors: i64, (needed, vector): (i64, i64), computes_flat: bool) -> Option<(i64, i64)> {
    let candidates = (1..=MOST_THREADS / WARP).map(|warps| warps * WARP);
    let fitting = candidates.filter(|threads| plain_vectors % threads == 0).filter_map(|threads| {
        let steps = ceil_div(needed, vector * threads);
        let width = steps * vector * threads;
        let is_close = if computes_flat { width == needed } else { 100 * (width - needed) <= MOST_BEYOND * needed };
        let (loads, stores) =
            if computes_flat { (plain_vectors / threads, steps) } else { (steps, plain_vectors / threads) };
        (is_close && loads <= MOST_LOADS && stores <= MOST_STORES).then_some((threads, width))
    });
    // Twice the threads or half of them cost about a tenth.
    fitting.min_by_key(|(threads, width)| {
        let apart = (*threads).max(THREADS) * 100 / (*threads).min(THREADS) - 100;
        (1000 * (width - needed) / needed + apart, -threads)
    })
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &ImageParams) -> Result<()> {
    let ImageParams { others, short: (short_roots, e), tile, vectors: [flat_vector, plain_vector], threads, .. } =
        params;
    let caches = cache_inputs(builder, caching)?;
    let missing = || Diagnostic::bug("an image has no dimension");
    let short = merge_all(builder, short_roots)?.ok_or_else(missing)?;
    let own = merge_all(builder, &params.long)?.ok_or_else(missing)?;
    // The short dimension is a constant.
    let (_, short_part) = builder.split_cover(short, 1, *e, true)?;
    let laid_out = match params.aligned_to {
        Some(reference) => builder.align(own, *plain_vector, reference, None)?,
        None => own,
    };
    let whole = builder.merge(own, short)?;
    let (block, flat, plain) = if params.computes_flat {
        let (block, run) = builder.split(whole, tile * e, false)?;
        (block, run, builder.window(own, block, parts(*tile))?)
    } else {
        let (block, run) = builder.split(laid_out, *tile, false)?;
        (block, builder.window(whole, block, params.held)?, run)
    };
    let others = merge_all(builder, others)?;
    let blocks: Vec<AxisId> = others.into_iter().chain([block]).collect();
    let grid = merge_all(builder, &blocks)?.ok_or_else(missing)?;
    let flat_loops = Axes { run: flat, rows: None }.loops(builder, *flat_vector, *threads)?;
    let plain_loops = Axes { run: plain, rows: Some(short_part) }.loops(builder, *plain_vector, *threads)?;
    let (computing, staging) = if params.computes_flat { (flat_loops, plain_loops) } else { (plain_loops, flat_loops) };
    let grid = bind_loops(builder, grid, &computing)?;
    let their_loops: Vec<Loop> = std::iter::once(grid).chain(staging).collect();
    let mut keep: Vec<(TvId, usize)> = caches.into_iter().map(|cache| (cache, 2)).collect();
    for input in &params.staged {
        let tile = Tile { axes: vec![flat], columns: Columns::InOrder };
        keep.push((pass_input(builder, *input, [&their_loops, &their_loops], tile)?, 3));
    }
    keep.extend(keep_for_stores(builder, computing[2].axis));
    builder.inline_most(&keep)
}
