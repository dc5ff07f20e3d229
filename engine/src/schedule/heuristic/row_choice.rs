//! Which threads hold a row, and how: the search among all tiles and holdings.
//!
//! In: the shape of the rows, the [`Model`] of the fusion, the device. Out: the
//! [`Choice`] that loses the least time by a model of costs.
//!
//! A cost is in thousandths of the time. Its terms were fitted to the times of
//! 12,000 kernels on an H200 (six norms and softmaxes of two types at up to 35 sizes,
//! each scheduled in dozens of ways), of which it chooses on average one that is 2 to
//! 3 % slower than the best; those of rows at odd places again to 4,700, since masks of
//! lanes took the tests of single elements away (`results/sweeps/row_ways.csv`; 2 %).
//! What they say:
//!
//! * Rows whose vectors lie at multiples of their size are held once, by blocks that
//!   come and go; the device starts blocks faster than a block starts its next row.
//! * At odd places vectors of parameters are another shift in each row. With several of
//!   them blocks take rows that are shifted alike in turn, and load the next row ahead.
//!   A single one costs less than the loop over rows would, unless rows are long.
//! * Rows of small elements at odd places, without parameters, are best held by few threads
//!   that hold much.
//! * Where rows at odd places with parameters would hold twice what they load, as small
//!   types do there, the time goes to computing: many threads that load where they need
//!   it are faster.
//! * Where by the model a multiprocessor has one block of a row, parameters and sums of which all its threads wait for together,
//!   two with the fewest registers ([`Model::squeezed`]) are faster.
//! * The assembler is told how many blocks should fit: left alone it takes registers
//!   for the sake of the order of instructions, and blocks are fewer.
//!
//! Two terms were not fitted: what is lost by a kernel that few shapes share ([`oddity`]), and by two blocks with the fewest
//! registers ([`squeezed_cost`]).

use super::residency::{Holding, Loads, Model, Parameters};
use super::tile::{
    BlockShape, IDLE_COST, RowLoop, WARP, block_sizes, ceil_div, next_power_of_two, oddity, row_loop, tuned,
};
use super::typical::{Typical, typical};
use crate::options::{CompileCx, Options};

/// Elements of a row that one thread may hold.
pub(super) const MAX_PER_THREAD: i64 = 64;

/// Vectors that a thread may hold of a row that has only a part of a warp.
const MOST_OF_A_PART: i64 = 12;

/// Vectors of a row that a thread may hold alone, and instructions for what is computed of its sums from which it
/// does, for each of them: else others would do the same beside it. With fewer it costs more that its vectors lie side by
/// side, so that those of neighbours do not (up to a third where a row has four).
const MOST_ALONE: i64 = 4;
const MUCH_OF_SUMS: i64 = 14;

/// Rows with which blocks of several of them are enough where only idle threads speak for that.
const MANY_ROWS: i64 = 4096;

/// One vector in so many that may be missing where a row is whole vectors of a warp's threads.
const MOST_IDLE: i64 = 8;

/// Threads of a multiprocessor below which nobody computes while one waits for its
/// own results.
const FEW_THREADS: i64 = 768;

/// Threads of a multiprocessor that have 64 registers each.
const MOST_CROWDED: i64 = 1024;

/// Registers that a single block may lack by the model: it errs by as many. By fewer where
/// it loads the next row ahead at odd places, of small elements, and there are no parameters.
const TIGHT: i64 = 8;
const TIGHT_AHEAD: i64 = 4;

/// Blocks that get the fewest registers instead of one that has what the model says.
const SQUEEZED_BLOCKS: i64 = 2;

/// What idle threads and vectors cost ([`IDLE_COST`]) of rows that are several runs.
const IDLE_COST_IN_RUNS: i64 = 3 * IDLE_COST;

/// What it costs if no multiprocessor had a block.
const LONELY: i64 = 400;

/// Elements of a row beyond which it pays to load a single parameter once for many rows.
const LONG_ROW: i64 = 8192;

/// The rows that are to be held.
pub(super) struct RowShape {
    /// Elements of a row.
    pub(super) row: i64,
    /// Vectors that cover it.
    pub(super) vectors: i64,
    /// Elements of a vector.
    pub(super) vector: i64,
    /// Number of rows.
    pub(super) rows: i64,
    /// Whether there is a dimension of rows.
    pub(super) has_rows: bool,
    /// Whether rows start at odd places.
    pub(super) shifted: bool,
    /// Whether a row is several runs of memory, so that each vector takes a division.
    pub(super) in_runs: bool,
    /// Instructions, about, for what is computed of the sums of a row.
    pub(super) of_sums: i64,
}

impl RowShape {
    /// The rows for which it is chosen how these are held.
    fn typical(&self) -> Self {
        let Typical { vectors, rows } = typical(self.vectors, self.vector, self.rows, self.shifted);
        let row = if vectors == self.vectors { self.row } else { vectors * self.vector };
        Self { row, vectors, rows, ..*self }
    }
}

/// How a block holds a row.
#[derive(Clone, Copy)]
pub(super) struct RowTile {
    threads: i64,
    /// Vectors that a thread holds.
    batch: i64,
}

/// What was chosen of all that can be.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// Threads of a row, and rows of a block.
    pub(super) threads: BlockShape,
    /// Vectors that a thread holds.
    pub(super) batch: i64,
    /// Whether blocks take rows in turn.
    pub(super) row_loop: Option<RowLoop>,
    /// What is held of a row, and how it comes there.
    pub(super) holding: Holding,
    /// Blocks that should fit a multiprocessor, where rows do not take turns.
    pub(super) min_blocks: i64,
}

/// The tile and the way to hold rows that together lose the least time. Where no
/// way has the registers that it needs, the one that needs the fewest. A caller may
/// ask for another place in the order of costs, to try what the model thinks worse.
pub(super) fn choose_rows(cx: &CompileCx<'_>, model: &Model<'_>, shape: &RowShape) -> Option<Choice> {
    let typical = shape.typical();
    let shape = if tiles(cx, &typical).is_empty() { shape } else { &typical };
    let ways = tiles(cx, shape).into_iter().flat_map(|tile| Holding::all().map(move |holding| (tile, holding)));
    let weighed = ways.filter_map(|(tile, holding)| {
        let (cost, choice) = weigh(cx, model, shape, tile, holding)?;
        // What the caller's settings ask for goes first, where the sizes allow it.
        Some(((!is_asked_for(cx.options, holding), cost), choice))
    });
    let Some(&place) = cx.options.tuning.get("norm.choice") else {
        return weighed.min_by_key(|(cost, _)| *cost).map(|(_, choice)| choice);
    };
    let mut all: Vec<_> = weighed.collect();
    all.sort_by_key(|(cost, _)| *cost);
    let place = place.min(all.len() as i64 - 1).max(0);
    all.into_iter().nth(place as usize).map(|(_, choice)| choice)
}

/// Whether the caller's settings allow a way to hold rows.
fn is_asked_for(options: &Options, holding: Holding) -> bool {
    let is = |name: &str, given: bool| options.tuning.get(name).is_none_or(|wanted| given == (*wanted > 0));
    is("norm.threads_per_sm", holding.turns)
        && (is("norm.ahead", holding.loads == Loads::Ahead) || !holding.turns)
        && is("norm.reread", holding.parameters == Parameters::Reread)
}

/// The ways to give a row to threads; none if it is longer than a block can hold.
pub(super) fn tiles(cx: &CompileCx<'_>, shape: &RowShape) -> Vec<RowTile> {
    let most_batch = (MAX_PER_THREAD / shape.vector).max(1);
    let parts = parts_of_a_warp(shape, most_batch.min(MOST_OF_A_PART));
    if shape.vectors <= WARP {
        let threads = if shape.has_rows { next_power_of_two(shape.vectors) } else { WARP };
        let may_share = shape.has_rows && !shape.shifted && shape.of_sums >= MUCH_OF_SUMS * shape.vectors;
        let alone = may_share && (2..=MOST_ALONE).contains(&shape.vectors);
        let alone = alone.then_some(RowTile { threads: 1, batch: shape.vectors });
        return parts.chain(alone).chain([RowTile { threads, batch: 1 }]).collect();
    }
    let most = i64::from(cx.device.max_threads_per_block);
    let whole = (1..=most_batch)
        .flat_map(|batch| block_sizes(ceil_div(shape.vectors, batch)).map(move |threads| RowTile { threads, batch }))
        .filter(|tile| tile.threads <= most);
    parts.chain(whole).collect()
}

/// The fewest threads of a warp that hold a row in so many vectors each, and twice as many of them where that is
/// a part of a warp, too; where rows may share warps: those at odd places, where each thread has ends of a row to test, so that
/// fewer of them have, and many whose vectors leave threads of whole warps idle. Without other rows a row has a whole warp.
fn parts_of_a_warp(shape: &RowShape, most: i64) -> impl Iterator<Item = RowTile> {
    let is_round = if shape.vectors < WARP { shape.vectors.count_ones() == 1 } else { shape.vectors % WARP == 0 };
    let shares = shape.has_rows && (shape.shifted || !is_round && shape.rows >= MANY_ROWS);
    let parts = [4, 8, 16].into_iter().filter(move |threads| shares && *threads < shape.vectors);
    let parts = parts.map(|threads| RowTile { threads, batch: ceil_div(shape.vectors, threads) });
    parts.filter(move |tile| tile.batch <= most).take(2)
}

/// Whether a warp or a part of one has a row of whole vectors, of which almost all its threads have equally many.
pub(super) fn fits_a_warp(cx: &CompileCx<'_>, shape: &RowShape) -> bool {
    let is_even = |tile: RowTile| {
        let idle = tile.threads * tile.batch - shape.vectors;
        (2..=WARP).contains(&tile.threads) && idle * MOST_IDLE <= shape.vectors
    };
    !shape.shifted && shape.vectors * shape.vector == shape.row && tiles(cx, shape).into_iter().any(is_even)
}

/// A choice with its cost: whether it lacks registers, and thousandths of the time
/// that are lost, or else the registers. None if rows cannot be held so.
fn weigh(
    cx: &CompileCx<'_>,
    model: &Model<'_>,
    shape: &RowShape,
    tile: RowTile,
    holding: Holding,
) -> Option<((bool, i64), Choice)> {
    if !is_possible(model, shape, holding) {
        return None;
    }
    let y = (128 / tile.threads).max(1).min(next_power_of_two(shape.rows));
    let y = if tile.threads * y < WARP { WARP / tile.threads } else { y };
    let threads = BlockShape { x: tile.threads, y };
    let elements = tile.batch * shape.vector;
    let masked = tile.threads * elements != shape.row;
    let model_of_tile = Model { masked, ..*model };
    let registers = model_of_tile.registers(holding, elements);
    let staged = holding.parameters == Parameters::Staged;
    let shared = if staged { threads.threads() * elements * model.bytes.parameters_read } else { 0 };
    if !model.holds_shared(shared) {
        return None;
    }
    let roomy = model.blocks(registers, shared, threads.threads());
    let bare = model.is_bare();
    // What is as wide in memory as in registers takes what the model says.
    let tight = if !shape.shifted && model.is_wide() {
        0
    } else if bare && holding.loads == Loads::Ahead {
        TIGHT_AHEAD
    } else {
        TIGHT
    };
    let fitting = roomy.or_else(|| model.blocks(registers - tight, shared, threads.threads()));
    // Shifted parameters are converted and masks asked for in each row: with fewer registers than this the
    // assembler does both again wherever they are used.
    let crowded = shape.shifted && model.parameters > 1;
    let most = if crowded { (MOST_CROWDED / threads.threads()).max(1) } else { i64::MAX };
    let fitting = fitting.map(|blocks| blocks.min(most));
    let row_blocks = ceil_div(shape.rows, y);
    let squeezed =
        fitting < Some(SQUEEZED_BLOCKS) && is_squeezed(cx, &model_of_tile, holding, elements, threads, row_blocks);
    let fitting = if squeezed { Some(SQUEEZED_BLOCKS) } else { fitting };
    let asked = cx.options.tuning.get("norm.threads_per_sm").map(|wanted| (wanted / threads.threads()).max(1));
    let blocks = asked.filter(|_| holding.turns).or(fitting).unwrap_or(1);
    let row_loop = match holding.turns {
        true => Some(row_loop(cx, row_blocks, blocks, shift_step(model, shape, holding, blocks))?),
        false => None,
    };
    let waiting = blocks.min(ceil_div(row_blocks, i64::from(cx.device.sm_count)).max(1));
    // Of many blocks one more or less is little; parameters are what the assembler
    // would load early. A cap that is too low spills, so it goes by what elements need apart.
    let most = if model.parameters > 0 { 8 } else { 4 };
    let apart = Model { masked, as_in_memory: None, ..*model }.registers(holding, elements);
    let sure = model.blocks(apart, shared, threads.threads()).unwrap_or(1).min(blocks);
    let is_capped = row_loop.is_none() && holding.loads != Loads::Reload && sure <= most;
    let min_blocks = if squeezed {
        SQUEEZED_BLOCKS
    } else if is_capped {
        sure
    } else {
        1
    };
    let lacking = match roomy {
        _ if squeezed => squeezed_cost(&model_of_tile),
        None => 5 * TIGHT,
        Some(_) => 0,
    };
    let cost = tile_cost(cx, model, shape, tile)
        + model.idle_memory(holding, waiting, y * shape.row)
        + few_threads_cost(model, holding, blocks * threads.threads())
        + holding_cost(model, shape, tile, holding)
        // A single block that does not load ahead loads nothing while it reduces.
        + if blocks == 1 && holding.loads != Loads::Ahead { 35 } else { 0 }
        + lonely_cost(cx, row_blocks)
        // So wide a block is alone.
        + if bare && tile.threads > 16 * WARP && holding.loads != Loads::Ahead { 30 } else { 0 }
        + lacking
        + if holding.loads == Loads::Reload { registers } else { 0 };
    let lacks = fitting.is_none();
    let cost = (lacks, if lacks { registers } else { cost });
    Some((cost, Choice { threads, batch: tile.batch, row_loop, holding, min_blocks }))
}

/// Whether several blocks of so many threads fit a multiprocessor with the fewest registers, and there are rows for them.
fn is_squeezed(
    cx: &CompileCx<'_>,
    model: &Model<'_>,
    holding: Holding,
    elements: i64,
    threads: BlockShape,
    row_blocks: i64,
) -> bool {
    let least = model.squeezed(holding, elements);
    let blocks = least.and_then(|least| model.blocks(least, 0, threads.threads()));
    row_blocks >= SQUEEZED_BLOCKS * i64::from(cx.device.sm_count) && blocks >= Some(SQUEEZED_BLOCKS)
}

/// The cost of the fewest registers, beside a block that has a multiprocessor alone: conversions that are done again, less what
/// that block waits for parameters, each of which is read behind the last sum, and vector by vector where the end of a row is
/// tested.
fn squeezed_cost(model: &Model<'_>) -> i64 {
    let tests = if model.masked && model.loads_small() { 30 } else { 0 };
    30 - 20 * (model.parameters - 1) - tests
}

/// Whether a way to hold rows makes sense: without parameters there is one way for
/// them, and they are staged only for rows in turn that would read them element by
/// element.
fn is_possible(model: &Model<'_>, shape: &RowShape, holding: Holding) -> bool {
    match holding.parameters {
        Parameters::Kept => true,
        Parameters::Reread => model.parameters > 0,
        Parameters::Staged => model.parameters > 0 && shape.shifted && holding.turns,
    }
}

/// What the number of blocks must be a multiple of, so that all rows of a block are
/// shifted alike: what is kept of parameters is right for one shift only.
fn shift_step(model: &Model<'_>, shape: &RowShape, holding: Holding, blocks: i64) -> Option<i64> {
    let kept = holding.parameters != Parameters::Reread && model.parameters > 0;
    (shape.shifted && (kept || blocks > 1)).then_some(shape.vector)
}

/// The cost of so few threads on a multiprocessor: the more tensors, the more each
/// computes while others wait for memory; one that loads again ([`Loads::Reload`])
/// loads most of the time.
fn few_threads_cost(model: &Model<'_>, holding: Holding, threads: i64) -> i64 {
    let lacking = (FEW_THREADS - threads).max(0);
    if holding.loads == Loads::Reload { lacking / 32 } else { lacking * model.tensors / 56 }
}

/// The cost of multiprocessors without a block, where rows are so few and blocks have so many of them: those that work take as long
/// for theirs as if all did. (Of 650 rows of 333 with a parameter for each position, 41 blocks took 10.3 us, 82 7.7 and 163 7.2.)
fn lonely_cost(cx: &CompileCx<'_>, row_blocks: i64) -> i64 {
    let sms = i64::from(cx.device.sm_count);
    (sms - row_blocks).max(0) * LONELY / sms
}

/// The cost of a tile whatever it holds: idle threads, more elements a thread than
/// are loaded at a time, fewer than pay for what each thread does once a row, blocks so
/// large that all of a multiprocessor waits for few of them, rows of few threads, which
/// reduce alone, and a kernel that few shapes share.
fn tile_cost(cx: &CompileCx<'_>, model: &Model<'_>, shape: &RowShape, tile: RowTile) -> i64 {
    let wanted = tuned(cx.options, "norm.per_thread", 32);
    let elements = tile.batch * shape.vector;
    let each = if shape.in_runs { IDLE_COST_IN_RUNS } else { IDLE_COST };
    let idle = (tile.threads * tile.batch - shape.vectors) * each / shape.vectors;
    let bare = model.is_bare();
    let more = (elements - wanted).max(0) / if bare { 2 } else { 1 };
    // Where rows are only read, nobody stores while others wait for their sums; at odd places they compute then.
    let least = if model.bytes.written == 0 && !shape.shifted { wanted } else { wanted / 2 };
    let fewer = (least - elements).max(0) * (2 + model.tensors / 2);
    let wide = (tile.threads - 8 * WARP).max(0) / if bare { 8 } else { 16 };
    let narrow = (4 * WARP - tile.threads).max(0) / 5;
    idle + more + fewer + wide + narrow + oddity(tile.threads) + oddity(tile.batch)
}

/// The cost of a way to hold rows beside the loads in flight: for starting a next row
/// in the same block, for loads that wait where they are used, and for parameters.
fn holding_cost(model: &Model<'_>, shape: &RowShape, tile: RowTile, holding: Holding) -> i64 {
    let shifted_parameters = shape.shifted && model.parameters > 0;
    let turns = match (holding.turns, shape.shifted) {
        (false, _) => 0,
        (true, _) if shifted_parameters => 0,
        (true, true) => 45,
        (true, false) => 25,
    };
    let loads = match holding.loads {
        Loads::Early => 0,
        Loads::Ahead if shape.shifted => -40,
        Loads::Ahead => 0,
        Loads::Late if model.holds_twice_what_it_loads() => 0,
        Loads::Late if shifted_parameters => 110,
        Loads::Late if model.is_bare() => -5,
        Loads::Late if shape.shifted => 10,
        Loads::Late => 60,
        Loads::Reload => 400,
    };
    let bytes = &model.bytes;
    let each_row = holding.parameters == Parameters::Reread || !holding.turns;
    let parameters = match holding.parameters {
        // At another shift in each row, an access for each element; but no loop, and what is in
        // registers is as in memory.
        _ if shape.shifted && !holding.turns && model.parameters == 1 => {
            if shape.row > LONG_ROW {
                50
            } else {
                -50
            }
        }
        _ if shape.shifted && each_row => 150 * model.parameters,
        Parameters::Kept => 0,
        Parameters::Reread => 10 * bytes.parameters_read / (bytes.read + bytes.written).max(1),
        // Kept, they are converted once; but then few elements fit the registers.
        Parameters::Staged if bytes.parameters_read == bytes.parameters => 30,
        // Read from shared memory in each row.
        Parameters::Staged => 15,
    };
    // Measured of rows of a warp or less: they are slower with copies of parameters than without.
    let ahead_of_staged = holding.parameters == Parameters::Staged && holding.loads == Loads::Ahead;
    let copies = if ahead_of_staged && tile.threads <= WARP { 80 } else { 0 };
    turns + loads + parameters + copies
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::planned_of;
    use crate::num::DType;

    #[test]
    fn two_blocks_have_long_rows_with_parameters() {
        let check = |norm: &str, dtype: DType, row: i64, wanted: &str| {
            let text = format!(
                "fusion @f(%x: {dtype}[?, ?], %w: {dtype}[?], %b: {dtype}[?]) {{\n  %0 = {norm}\n  %out = cast %0 {dtype}\n  \
                 return %out\n}}"
            );
            let planned = planned_of(&text, &[(dtype, &[3001, row]), (dtype, &[row]), (dtype, &[row])]);
            let told = planned.expect("it is scheduled").params_text;
            assert!(told.ends_with(wanted), "{norm} of {row}: {told}");
        };
        for row in [17_000, 20_000, 24_576, 30_000, 32_768] {
            check("layer_norm %x, %w, %b eps(1e-5)", DType::BF16, row, "x1 2 per_sm reread");
        }
        check("layer_norm %x, %w, %b eps(1e-5)", DType::F32, 17_000, "x1 2 per_sm reread");
        // With one parameter, and without ends to test, a block that loads ahead waits little.
        check("rms_norm %x, %w eps(1e-6)", DType::BF16, 17_000, "x1 2 per_sm reread");
        check("rms_norm %x, %w eps(1e-6)", DType::BF16, 24_576, "blocks 1 per_sm ahead reread");
    }
}
