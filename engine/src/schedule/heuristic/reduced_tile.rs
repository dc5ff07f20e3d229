//! What a block of a reduction reads at a time: threads along a row or along columns, loads in flight, and over how many blocks
//! each result is spread.
//!
//! In: the sizes of the collapsed iteration space ([`Work`]). Out: the [`Tile`]. Along rows it is chosen for typical sizes
//! (`typical`), so that few kernels serve many; how many blocks share a result is said of the sizes themselves.

use super::beside::Beside;
use super::columns::{Columns, columns_of};
use super::residency::REGISTER_BYTES;
use super::summary::Summary;
use super::tile::{
    BlockShape, IDLE_COST, WARP, block_sizes, ceil_div, next_power_of_two, oddity, power_of_two_below, tuned,
};
use super::typical::{Typical, are_few, typical};
use crate::options::CompileCx;
use crate::schedule::Parts;

/// Registers of all loads in flight of a thread along a row.
const MOST_LOAD_REGISTERS: i64 = 96;

/// Blocks of a multiprocessor that share long rows: of which pairs are made, all at once, with so many loads of a thread.
pub(super) const ROWS_PER_SM: i64 = 8;
const PAIRS_UNROLL: i64 = 2;
/// Threads of a row of which pairs are made, few and then as many, with so many loads at most.
const PAIRS_THREADS: [i64; 2] = [128, 256];
const PAIRS_LOADS: i64 = 8;

/// Rows of a sum that one thread adds up alone, and the registers in which it has them on their way.
pub(super) const MOST_OWN_ROWS: i64 = 32;
const OWN_REGISTERS: i64 = 64;
const OWN_THREADS: i64 = 128;
/// Rows of a thread of several, at most, where blocks are many.
const ROWS_OF_MANY: i64 = 16;

/// Loads of a thread of rows that are read element by element, at most, where a warp has one; and such warps of a multiprocessor, at
/// least.
const MOST_SINGLE_LOADS: i64 = 32;
const LEAST_WARPS: i64 = 16;

/// Sizes of the collapsed iteration space.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Vectors along the fastest axis, or of all runs that are joined; elements of one, and whether they are shifted into place.
    pub(super) vectors: i64,
    pub(super) vector: i64,
    pub(super) shifted: bool,
    /// Product of the slow axes that are not joined to it.
    pub(super) slow: i64,
    /// Product of the kept axes.
    pub(super) kept: i64,
    /// Whether there are kept axes.
    pub(super) has_rows: bool,
    /// Whether maxima are reduced with sums of exponentials below them.
    pub(super) has_pairs: bool,
    /// Registers that a vector of each input takes.
    pub(super) registers: i64,
    /// Inputs that are read element by element, where several start at places of their own.
    pub(super) singles: Option<i64>,
}

impl Work {
    /// Of columns of few rows so many that a thread has on their way, if it is to have whole columns: in turns of as many each.
    pub(super) fn rows_of_a_thread(
        &self,
        summary: &Summary<'_>,
        [vector, inputs]: [i64; 2],
        beside: Option<Beside>,
    ) -> Option<i64> {
        let bytes = summary.globals.iter().filter(|tensor| !tensor.is_output).map(|tensor| tensor.bytes).max()?;
        let of_rows = beside.iter().map(|beside| ceil_div(beside.count * bytes, REGISTER_BYTES)).sum::<i64>();
        let registers = ceil_div(vector * bytes, REGISTER_BYTES) * inputs + of_rows;
        let turns = ceil_div(self.slow, (OWN_REGISTERS / registers).max(1));
        (2..=MOST_OWN_ROWS).contains(&self.slow).then(|| ceil_div(self.slow, turns))
    }
}

/// What a block reads at a time, and how much altogether.
pub(super) struct Tile {
    pub(super) threads: BlockShape,
    /// Loads in flight.
    pub(super) unroll: i64,
    pub(super) spread: Option<Spread>,
}

impl Tile {
    /// Of threads that have sums of their own, with so many loads on their way.
    pub(super) fn own(inner: bool, unroll: i64) -> Self {
        let threads = if inner { BlockShape { x: 1, y: OWN_THREADS } } else { BlockShape { x: OWN_THREADS, y: 1 } };
        Self { threads, unroll, spread: None }
    }
}

/// The tiles of each result over several blocks.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    /// Blocks of the device, over which the tiles of each result are spread.
    pub(super) blocks: i64,
    /// Tiles of a block.
    pub(super) tiles: i64,
}

impl Spread {
    /// For results that would take so many blocks, of so many tiles each; none where they keep
    /// the device busy.
    fn new(wanted: i64, blocks: i64, tiles: i64) -> Option<Self> {
        let parts = (wanted / blocks.max(1)).min(tiles);
        let share = Parts { places: wanted, beside: None }.share(tiles, blocks);
        (parts >= 2 && blocks * 2 <= wanted).then_some(Self { blocks: wanted, tiles: share })
    }
}

/// How a row is read.
struct RowTile {
    threads: i64,
    /// Loads in flight.
    unroll: i64,
}

/// Threads and loads in flight along a row: the shape that leaves the fewest threads idle,
/// of those nearly as good the roundest.
fn tile_row(cx: &CompileCx<'_>, work: &Work) -> RowTile {
    // One row for the whole device: few large blocks, so that few partial
    // results are left. (Measured on an H200, as the other defaults.)
    let most = match work.has_rows {
        true if work.has_pairs => threads_of_pairs(work.vectors),
        true => 256,
        false => 512,
    };
    let most = tuned(cx.options, "reduction.threads", most);
    // Without rows to share the block, a row has whole warps.
    let least = if work.has_rows { 1 } else { WARP };
    if work.vectors <= WARP {
        return RowTile { threads: next_power_of_two(work.vectors).max(least), unroll: 1 };
    }
    let loads = ceil_div(work.vectors, WARP);
    let fills = work.kept >= LEAST_WARPS * i64::from(cx.device.sm_count);
    if work.singles.is_some_and(|inputs| fills && loads * inputs <= MOST_SINGLE_LOADS) {
        return RowTile { threads: WARP, unroll: loads };
    }
    let unrolls = match cx.options.tuning.get("reduction.unroll") {
        Some(unroll) => vec![*unroll],
        // Of equals the first: few loads a thread and many threads.
        None if !work.has_rows => vec![4],
        None if work.has_pairs && work.vectors > most * PAIRS_LOADS => vec![PAIRS_UNROLL],
        None if work.has_pairs => (2..=PAIRS_LOADS).filter(|loads| most * loads >= work.vectors).collect(),
        None => vec![2, 3, 4, 5, 6],
    };
    let most_loads = (MOST_LOAD_REGISTERS / work.registers.max(1)).max(1);
    let shapes = unrolls.into_iter().map(|unroll| unroll.min(most_loads)).flat_map(|unroll| {
        let threads = block_sizes(ceil_div(work.vectors, unroll));
        threads.map(move |threads| RowTile { threads: threads.min(most), unroll })
    });
    let cost = |shape: &RowTile| {
        let tile = shape.threads * shape.unroll;
        let idle = ceil_div(work.vectors, tile) * tile - work.vectors;
        idle * IDLE_COST / work.vectors + oddity(shape.threads) + oddity(shape.unroll)
    };
    shapes.min_by_key(cost).unwrap_or(RowTile { threads: most, unroll: 4 })
}

/// Most threads along a row of which pairs are made: as few as can hold it, so that few of them are combined, and few
/// where many blocks share one.
fn threads_of_pairs(vectors: i64) -> i64 {
    let [few, more] = PAIRS_THREADS;
    if (few * PAIRS_LOADS + 1..=more * PAIRS_LOADS).contains(&vectors) { more } else { few }
}

/// The tile along rows.
pub(super) fn tile_inner(cx: &CompileCx<'_>, work: &Work) -> Tile {
    let Typical { vectors, rows } = typical(work.vectors, work.vector, work.kept, work.shifted);
    let RowTile { threads: threads_x, unroll } = tile_row(cx, &Work { vectors, kept: rows, ..*work });
    let threads_y = (128 / threads_x).clamp(1, next_power_of_two(work.kept.max(1)));
    // The block is whole warps.
    let threads_y = if threads_x * threads_y < WARP { WARP / threads_x } else { threads_y };
    let tile = threads_x * unroll;
    let blocks = ceil_div(work.kept, threads_y);
    let per_sm = tuned(cx.options, "reduction.blocks_per_sm", if work.has_rows { ROWS_PER_SM } else { 2 });
    let spread = Spread::new(per_sm * i64::from(cx.device.sm_count), blocks, ceil_div(work.vectors, tile));
    Tile { threads: BlockShape { x: threads_x, y: threads_y }, unroll, spread }
}

/// The tile of columns, with so many threads along rows at most.
pub(super) fn tile_outer(
    cx: &CompileCx<'_>,
    work: &Work,
    (inputs, few): (i64, Option<i64>),
    columns: &Columns,
) -> Tile {
    let loads = (columns.loads / next_power_of_two(inputs)).max(1);
    let most = tuned(cx.options, "reduction.threads", columns.threads);
    let (threads_x, room) = match columns.even {
        true => (ceil_div(work.vectors, ceil_div(work.vectors, columns.widest)), most),
        false => {
            let are_few = are_few(work.vectors.saturating_mul(work.vector), work.slow.saturating_mul(work.kept));
            (columns_of(work.vectors, columns.widest, are_few), most + most / 2)
        }
    };
    // Threads along rows are combined in halves.
    let room = room.min(i64::from(cx.device.max_threads_per_block));
    let most_y = power_of_two_below(room / threads_x).min(few.unwrap_or(most));
    let threads_y = next_power_of_two(work.slow).clamp(1, most_y);
    let least_y = next_power_of_two(ceil_div(WARP, threads_x));
    // Of many blocks each thread has several rows, rather than that many threads exchange what one row gave each.
    let fill = i64::from(cx.device.sm_count) * i64::from(cx.device.max_threads_per_sm);
    let all = ceil_div(work.vectors, threads_x).saturating_mul(work.kept).saturating_mul(threads_x);
    let halves = std::iter::successors(Some(threads_y.max(least_y)), |threads| Some(threads / 2));
    let fewer = |threads: &i64| {
        *threads >= least_y && ceil_div(work.slow, *threads) <= ROWS_OF_MANY && all.saturating_mul(*threads) >= 4 * fill
    };
    let threads_y = halves.take_while(fewer).last().unwrap_or(threads_y.max(least_y));
    let unroll = tuned(cx.options, "reduction.unroll", loads.min(next_power_of_two(ceil_div(work.slow, threads_y))));
    let blocks = ceil_div(work.vectors, threads_x) * work.kept;
    let places = |per_sm: i64| tuned(cx.options, "reduction.blocks_per_sm", per_sm) * i64::from(cx.device.sm_count);
    let wanted = columns.per_sm.map(places).into_iter().find(|places| blocks * 2 <= *places);
    let wanted = wanted.unwrap_or(places(columns.per_sm[1]));
    let tile = threads_y * unroll;
    let spread = Spread::new(wanted, blocks, ceil_div(work.slow, tile));
    Tile { threads: BlockShape { x: threads_x, y: threads_y }, unroll, spread }
}
