//! Normalisations of rows that several blocks hold together: rows longer than the registers of one block hold, and columns, of
//! which a block that took all would read too few neighbours at a time.
//!
//! All blocks of the grid run at once. As many as a row needs are a *team*; teams take rows, or strips of columns, in
//! turn. Each block reduces what it holds, leaves the result in memory of the device, waits for its team, and combines
//! what all of that have left. So memory is read once, where several kernels would read it several times. A team may be one
//! block, whose shared memory holds what its registers do not: then nobody waits.
//!
//! What the threads hold lies in shared memory, of which several blocks have a part each: while some load, wait or
//! store, others compute. Values are computed from there again by every stage that needs them, but for those that take
//! many instructions. What asynchronous copies move is followed there by the next turn's as soon as it was read for the
//! last time, so that memory has to do while results are computed and stored. (Softmax of 512x131072 bf16 on an H200 is
//! 0.76 of a copy so, 0.62 if each turn loads for itself, and 0.51 if one block has a second place for its next turn.)

use super::choose::{Heuristic, Params, Problem, Refusal};
use super::coverage;
use super::norm_inner::{along_row, has_parameters, is_cheap, is_repeatable, longest_row, reads_again};
use super::recompute::{recompute, recompute_in_loop};
use super::residency::{Packing, REGISTER_BYTES, element_bytes, is_load};
use super::summary::GlobalTensor;
use super::tile::{
    Caching, WARP, cache_inputs, ceil_div, collapse, divides, keep_for_stores, merge_all, tuned, vector_width,
    widest_that,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{CacheHint, MAX_ACCESS_BYTES, MIN_ASYNC_BYTES};
use crate::num::UnaryOp;
use crate::options::DeviceDesc;
use crate::schedule::{AxisId, Compute, Memory, ParallelType, Parts, ScheduleBuilder, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// Its row of the table.
pub(super) const HEURISTIC: Heuristic = Heuristic {
    name: "grid_persistent",
    writes_parts: true,
    accepts: |problem, scheduled| {
        coverage::check_direct(scheduled)?;
        let shape = shape_of(problem, scheduled)?;
        if !coverage::repeated(problem, scheduled).is_empty() {
            return Err(Refusal::Pattern("teams of blocks would reduce the same rows".to_string()));
        }
        match choose(problem, &shape) {
            Some(_) => Ok(()),
            None => Err(Refusal::Pattern("the blocks that run at once do not hold a row together".to_string())),
        }
    },
    choose: |problem, scheduled| params(problem, scheduled).map(Params::GridPersistent),
};

/// Shared memory of a block that is left to what is not known here.
const ROOM: i64 = 2 << 10;
/// Threads of a block, blocks of a multiprocessor, and hundredths of the time that they take: the fewer blocks, the less
/// is done while some wait.
const BLOCKS: [(i64, i64, i64); 3] = [(256, 4, 100), (512, 2, 115), (1024, 1, SLOWEST)];
const SLOWEST: i64 = 145;
/// The same of rows that one block has, whose vectors it goes through in loops: others' waiting is counted ([`WAIT`]), and here
/// there is none. (Softmax of 1003x50257 on an H200, in bf16 and f32: 68 and 127 us so, 84 and 135 by teams of four.)
const BLOCKS_OF_A_ROW: [(i64, i64, i64); 2] = [(512, 2, 115), (1024, 1, 117)];
/// Vectors that a thread holds: few numbers, since each is a kernel of its own. Of single columns only powers of
/// two: they matter less.
const BATCHES: &[i64] = &[1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 16, 20, 22, 26, 28, 32];
/// The same of columns.
const BATCHES_ACROSS: &[i64] = &[1, 2, 3, 4, 6, 8, 10, 12, 16, 22, 26, 32];
const BATCHES_OF_SINGLES: &[i64] = &[1, 2, 4, 8, 16, 32, 64];
/// Vectors of neighbouring columns that a block reads at least, where there are as many.
const LEAST_LANES: i64 = 8;
/// The same where columns are read one by one.
const LEAST_SINGLE: i64 = 32;
/// Threads that share a run of a row that is several, at least, and of which part of them may be idle.
const SHORTEST_RUN: i64 = 256;
const MOST_IDLE: i64 = 16;
/// The same where runs start at odd places: the next one goes on at another shift, which costs what more idle threads do. And
/// the part of a run by which its vectors may be longer.
const MOST_IDLE_ALIGNED: i64 = 2;
const MOST_PADDED: i64 = 4;
/// What a turn takes whatever it moves, and waiting for others in it, in bytes that a multiprocessor moves in the time.
const TURN: i64 = 96 << 10;
const WAIT: i64 = 128 << 10;
/// More for each block of a team: they count themselves one by one.
const WAIT_EACH: i64 = 1 << 10;
/// Vectors of several inputs that a thread moves at once without running short of registers for their addresses and tests, and
/// hundredths of the time that more take.
const MOST_TOGETHER: i64 = 12;
const CROWDED: i64 = 125;
/// The same where some multiprocessors have fewer blocks than run there at once, so that less is under way.
const SPARSE: i64 = 110;
/// Registers of a thread beside those for what it holds.
const FIXED: i64 = 28;
/// How many times as long it takes if those do not do, and the rest goes to memory.
const SPILLED: i64 = 3;
/// Elements of the shortest rows that a block could hold, but would read again and again.
const SHORTEST_READ_AGAIN: i64 = 16 << 10;
/// Bytes that a multiprocessor moves while the blocks of a team wait for each other: what a row must have more than its share of
/// the device, where there are fewer rows than multiprocessors.
const WAIT_ALONE: i64 = 155 << 10;
/// Elements of the shortest columns and of the longest that are worth it: the more blocks a team has, the more each reads
/// of what the others have left.
const SHORTEST_ACROSS: i64 = 17;
const LONGEST_ACROSS: i64 = 20 << 10;

/// Elements of the longest row that the blocks of a device hold together, if there is one input of four bytes.
pub fn longest_shared_row(device: &DeviceDesc) -> i64 {
    i64::from(device.sm_count) * shared_of_block(device, 1) / 4
}

/// Shared memory of a block for what it holds.
fn shared_of_block(device: &DeviceDesc, per_sm: i64) -> i64 {
    i64::from(device.shared_per_block) / per_sm - ROOM
}

/// Whether blocks of a device hold columns of so many elements together, where so many bytes of neighbouring ones are one
/// run of memory: what a program that is cut asks before it is known what else a kernel does.
pub fn may_share_columns(device: &DeviceDesc, column: i64, run: i64) -> bool {
    let held = longest_shared_row(device) * 4 / (LEAST_LANES * MAX_ACCESS_BYTES);
    (SHORTEST_ACROSS..=held.min(LONGEST_ACROSS)).contains(&column)
        && (run % MAX_ACCESS_BYTES == 0 || run >= LEAST_LANES * MAX_ACCESS_BYTES)
}

/// What of the fusion's dimensions are rows, and how vectors lie on them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rows {
    /// The fastest dimensions, of which vectors are made; the others that stay, and that are reduced. Slowest first.
    fast: Vec<AxisId>,
    kept: Vec<AxisId>,
    reduced: Vec<AxisId>,
    /// Whether the fastest dimensions stay: then rows run across memory.
    across: bool,
    vector: i64,
    /// Where rows start at odd places, the tensor to whose vectors they are shifted.
    align: Option<TvId>,
    /// Inputs that asynchronous copies move.
    copied: Vec<TvId>,
    exact_vector: bool,
    /// Whether a thread's neighbour goes on with the next run, where one is shorter than the threads are many.
    joined: bool,
}

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GridParams {
    rows: Rows,
    way: Way,
    /// Blocks that run at once.
    places: i64,
}

/// Who holds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    /// Threads along vectors, and along rows that run across memory.
    x: i64,
    y: i64,
    /// Vectors that a thread holds.
    batch: i64,
    /// Blocks of a team, and teams; blocks of a multiprocessor.
    team: i64,
    teams: i64,
    per_sm: i64,
    /// Whether a thread goes through its vectors in a loop, where nothing of them is in registers. With code for each of many that
    /// may reach over an end of a row, or take many instructions, threads wait for code. (Min-p of 1003x50257 bf16: 138 us so,
    /// 182 unrolled.)
    looped: bool,
}

impl std::fmt::Display for GridParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Way { x, y, batch, team, teams, per_sm, looped } = self.way;
        let Rows { vector, align, joined, ref copied, .. } = self.rows;
        let across = if self.rows.across { "across " } else { "" };
        write!(f, "{across}vector {vector} batch {batch} threads {x}x{y} teams {teams} of {team} {per_sm} per_sm")?;
        f.write_str(if align.is_some() { " aligned" } else { "" })?;
        if !copied.is_empty() {
            write!(f, " copied {}", copied.len())?;
        }
        f.write_str(if joined { " joined" } else { "" })?;
        f.write_str(if looped { " looped" } else { "" })
    }
}

/// The rows of given sizes.
struct Shape {
    rows: Rows,
    /// Vectors along the fastest dimensions, and elements along the others; of joined runs all vectors.
    vectors: i64,
    kept_extent: i64,
    reduced_extent: i64,
    /// Bytes of an element that are read, and that are moved.
    read: i64,
    moved: i64,
    /// Inputs with all dimensions.
    inputs: i64,
    /// Bytes of a value of each reduction, once more of the first, whose exchange has two copies.
    exchanged: i64,
    /// Bytes of registers that an element takes which is computed once and held for later stages.
    computed: i64,
}

impl Shape {
    /// Whether threads may go through their vectors of a row in loops: none of them is in registers, on its way to shared memory
    /// either. Of a row that is several runs no number of vectors is known that cover it.
    fn may_be_looped(&self) -> bool {
        let is_covered = self.rows.reduced.is_empty() || self.rows.joined;
        let are_copied = self.rows.copied.len() as i64 == self.inputs;
        !self.rows.across && is_covered && are_copied && self.computed == 0
    }
}

/// Finds the rows; refused where the fusion does something else, and where a block that reads such rows again takes less.
fn shape_of(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<Shape, Refusal> {
    let &Problem { summary, sizes, .. } = problem;
    coverage::check_plain(scheduled)?;
    let refused = |what: &str| Err(Refusal::Pattern(what.to_string()));
    if summary.structure.reduced.is_empty() {
        return refused("the fusion has no reduction");
    }
    coverage::check(problem, scheduled)?;
    if !summary.structure.persistent {
        return refused("nothing varies along the reduced dimensions after the reduction");
    }
    coverage::check_not_random(scheduled)?;
    let roots = &summary.structure.roots;
    let is_full = |tensor: &GlobalTensor| roots.iter().all(|root| tensor.order.contains(root));
    let Some(largest) = summary.largest(is_full) else {
        return refused("no tensor in memory has all dimensions");
    };
    let is_reduced = |root: &AxisId| summary.structure.reduced.contains(root);
    let order = largest.order.clone();
    let across = order.last().is_some_and(|last| !is_reduced(last));
    let slow = order.iter().rposition(|root| is_reduced(root) == across).map_or(0, |at| at + 1);
    let (slow, fast) = order.split_at(slow);
    let (mut reduced, kept): (Vec<AxisId>, Vec<AxisId>) = slow.iter().copied().partition(is_reduced);
    // A row along parts of which a parameter is one number is as many runs of memory.
    let groups = collapse(summary, fast);
    let Some((run, outside)) = groups.split_last().filter(|(_, outside)| outside.is_empty() || !across) else {
        return refused("neither rows nor columns are one run of memory");
    };
    let (fast, in_runs) = (&run[..], !outside.is_empty());
    reduced.extend(outside.iter().flatten().copied());
    let product =
        |roots: &[AxisId]| roots.iter().fold(1i64, |n, root| n.saturating_mul(sizes.extent(scheduled, *root)));
    let row = product(&reduced).saturating_mul(if across { 1 } else { product(fast) });
    if across && row > LONGEST_ACROSS {
        return refused("columns are too long");
    }
    let full: Vec<&GlobalTensor> = summary.globals.iter().filter(|tensor| is_full(tensor)).collect();
    let moved: i64 = full.iter().map(|tensor| tensor.bytes).sum();
    let alone = is_alone(problem.cx.device, product(&kept), row.saturating_mul(moved));
    let is_held = || is_held_by_a_block(problem, scheduled, row, [in_runs, alone]);
    if (across && row < SHORTEST_ACROSS) || (!across && is_held()?) {
        return refused("a block holds a row, or reads one column beside others");
    }
    let last = fast.last().copied();
    let runs = |tensor: &GlobalTensor| last.is_some_and(|last| tensor.is_innermost(last));
    if !full.iter().all(|tensor| runs(tensor)) {
        return refused("tensors run along different dimensions");
    }
    let vector = vector_width(summary, runs);
    let widest = |tensor: &GlobalTensor| vector.min(MAX_ACCESS_BYTES / tensor.bytes);
    let aligned = full.iter().all(|tensor| tensor.rows_aligned(widest(tensor), fast.len()));
    let length = product(fast);
    // Columns at odd places are read one by one, by threads beside each other; runs of several dimensions in the widest
    // vectors that make them up, if any do.
    let fits =
        |vector: i64| divides(vector, length) && full.iter().all(|tensor| tensor.rows_aligned(vector, fast.len()));
    let vector = match (across, fast.len()) {
        (true, _) if aligned && divides(vector, length) => vector,
        (true, _) => 1,
        (false, 1) => vector,
        (false, _) => widest_that(vector, fits).unwrap_or(vector),
    };
    if across && vector == 1 && length < 2 * LEAST_SINGLE {
        return refused("few columns start at odd places");
    }
    // Where a result begins elsewhere than at a multiple of its vectors, what is read can be copied as it lies all the same.
    let starts = |tensor: &&GlobalTensor| tensor.align % vector == 0;
    let reference = full.iter().copied().filter(|_| !starts(&largest)).find(starts).unwrap_or(largest);
    let align = (!aligned && !across && vector > 1 && !fits(vector)).then_some(reference.tv);
    let padded = length + if align.is_some() { vector - 1 } else { 0 };
    let exact_vector = align.is_none() && divides(vector, length);
    let vectors = ceil_div(padded, vector).max(1);
    let idle = ceil_div(vectors, SHORTEST_RUN) * SHORTEST_RUN - vectors;
    let are_idle = idle > vectors / MOST_IDLE;
    let is_padded = vectors.saturating_mul(vector) > length + length / MOST_PADDED;
    let may_join = exact_vector || idle > vectors / MOST_IDLE_ALIGNED && !(in_runs && is_padded);
    let joined = !across && !reduced.is_empty() && are_idle && may_join;
    if in_runs && are_idle && !joined {
        return refused("runs are short and no whole vectors");
    }
    let others = product(&reduced);
    let (vectors, reduced_extent) = if joined { (vectors.saturating_mul(others), 1) } else { (vectors, others) };
    // Rows of one shape that follow each other without gaps are all shifted by as much.
    let is_dense = |tensor: &GlobalTensor| starts(&tensor) && tensor.dense.iter().all(|dense| *dense);
    let is_shifted = |tensor: &GlobalTensor| tensor.order == reference.order && is_dense(tensor) && is_dense(reference);
    let is_aligned = |tensor: &GlobalTensor| tensor.rows_aligned(widest(tensor).min(vector), fast.len());
    let is_copied = |tensor: &GlobalTensor| {
        let starts = if align.is_some() { is_shifted(tensor) } else { is_aligned(tensor) };
        starts && !tensor.is_output && vector * tensor.bytes >= MIN_ASYNC_BYTES
    };
    let is_in_turn = across || !kept.is_empty();
    let copied = full.iter().filter(|tensor| is_in_turn && is_copied(tensor)).map(|tensor| tensor.tv).collect();
    let is_reduction = |tv: &TvId| scheduled.is_reduction(*tv);
    let reductions =
        || scheduled.tensors.ids().filter(is_reduction).map(|tv| scheduled.tensors[tv].dtype.bytes() as i64);
    let inputs = || full.iter().filter(|tensor| !tensor.is_output);
    let rows = Rows { fast: fast.to_vec(), kept, reduced, across, vector, align, copied, exact_vector, joined };
    let shape = Shape {
        computed: computed_of(scheduled, &rows)?,
        kept_extent: product(&rows.kept),
        reduced_extent,
        vectors,
        inputs: inputs().count() as i64,
        read: inputs().map(|tensor| tensor.bytes).sum(),
        moved,
        exchanged: reductions().sum::<i64>() + reductions().max().unwrap_or(0),
        rows,
    };
    // Values that stay in registers, once computed, are few of a row.
    let reads_again = !across && !alone && is_short(problem, row) && !has_parameters(summary);
    match reads_again && !shape.may_be_looped() {
        true => refused("a block holds nothing of a row, and may read it again"),
        false => Ok(shape),
    }
}

/// Bytes of registers of an element that is held from stage to stage rather than computed again.
fn computed_of(scheduled: &ScheduledFusion, rows: &Rows) -> Result<i64, Refusal> {
    let row = rows.all_reduced();
    let mut builder = ScheduleBuilder::new(scheduled.clone());
    cache_inputs(&mut builder, Caching::NONE)?;
    compute_again(&mut builder, &row)?;
    Ok(element_bytes(builder.state(), &row.into_iter().collect(), Packing::Apart).computed)
}

/// Whether one block holds a row of so many elements, which may be several runs, and need not read it again and again, nor move
/// it alone.
fn is_held_by_a_block(
    problem: &Problem<'_>,
    scheduled: &ScheduledFusion,
    row: i64,
    [in_runs, alone]: [bool; 2],
) -> Result<bool> {
    let options = problem.cx.options;
    // Who asks for a way to hold rows gets it.
    let is_asked = ["grid_persistent.row", "norm.choice"].iter().any(|name| options.tuning.contains_key(*name));
    let reads_once = || Ok::<_, Box<Diagnostic>>(row < SHORTEST_READ_AGAIN || !reads_again(problem, scheduled)?);
    Ok(is_short(problem, row) && (is_asked || !alone && (in_runs || reads_once()?)))
}

/// Whether one block may have a row of so many elements, held or read again.
fn is_short(problem: &Problem<'_>, row: i64) -> bool {
    row < tuned(problem.cx.options, "grid_persistent.row", longest_row(problem.cx.device) + 1)
}

/// Whether so many rows of so many bytes are too few for the device: a block that moves one alone takes longer than all
/// would together, and wait for each other.
fn is_alone(device: &DeviceDesc, rows: i64, bytes: i64) -> bool {
    let sms = i64::from(device.sm_count);
    (1..sms).contains(&rows) && bytes.saturating_mul(sms - rows) / sms > WAIT_ALONE
}

/// The way that takes the least time by the model, if blocks hold a row together.
fn choose(problem: &Problem<'_>, shape: &Shape) -> Option<Way> {
    let (across, vectors) = (shape.rows.across, shape.vectors);
    let least = if shape.rows.vector == 1 { LEAST_SINGLE } else { LEAST_LANES };
    let narrowest = |x: i64| !across || x >= least || x >= vectors;
    let tiles = BLOCKS.into_iter().flat_map(|(threads, per_sm, slow)| {
        let lanes: &[i64] = if across { &[4, 8, 16, 32, 64] } else { &[threads] };
        lanes.iter().filter(|x| narrowest(**x)).map(move |x| (*x, threads / x, per_sm, slow)).collect::<Vec<_>>()
    });
    let device = problem.cx.device;
    let mut ways: Vec<(i64, Way)> = tiles.flat_map(|tile| ways_of(device, shape, tile, false)).collect();
    if shape.may_be_looped() {
        let blocks = BLOCKS_OF_A_ROW.into_iter();
        ways.extend(blocks.flat_map(|(x, per_sm, slow)| ways_of(device, shape, (x, 1, per_sm, slow), true)));
    }
    ways.sort_by_key(|(cost, _)| *cost);
    let place = problem.cx.options.tuning.get("grid_persistent.choice").copied().unwrap_or(0);
    let place = usize::try_from(place).unwrap_or(0).min(ways.len().saturating_sub(1));
    ways.into_iter().nth(place).map(|(_, way)| way)
}

/// The ways with so many threads, for each number of vectors that a thread may hold, and what each costs: bytes that a
/// multiprocessor moves.
fn ways_of(
    device: &DeviceDesc,
    shape: &Shape,
    (x, y, per_sm, slow): (i64, i64, i64, i64),
    of_a_row: bool,
) -> Vec<(i64, Way)> {
    let Shape { vectors, kept_extent, reduced_extent, read, .. } = *shape;
    let Rows { across, vector, .. } = shape.rows;
    let (blocks, threads) = (i64::from(device.sm_count) * per_sm, x * y);
    // Values that threads exchange: rows of one warp are combined in registers.
    let exchanged = if across { x * vector * (y * x.min(WARP) / WARP) } else { threads / WARP };
    let room = shared_of_block(device, per_sm) - shape.exchanged * exchanged;
    let most = room / (threads * vector * read.max(1));
    // What a team shares, and what teams take in turn.
    let strips = ceil_div(vectors, x);
    let (shared, turns) = match across {
        true => (ceil_div(reduced_extent, y), kept_extent.saturating_mul(strips)),
        false => (reduced_extent.saturating_mul(strips), kept_extent),
    };
    // What each block reads of each other one, from the second-level cache.
    let left = shape.exchanged * if across { x * vector } else { threads / WARP } / 2;
    let blocks_of_a_team = match (across, of_a_row) {
        (true, _) => 1..=blocks,
        (false, true) => 1..=1,
        (false, false) => 2..=blocks,
    };
    let looped = of_a_row || shape.may_be_looped() && shape.rows.align.is_some();
    let mut ways = Vec::new();
    let batches = match (vector, across) {
        (1, _) => BATCHES_OF_SINGLES,
        (_, true) => BATCHES_ACROSS,
        (_, false) => BATCHES,
    };
    for &batch in batches.iter().filter(|batch| **batch <= most) {
        let team = ceil_div(shared, batch);
        if !blocks_of_a_team.contains(&team) {
            continue;
        }
        // Of no rows there is nothing to take.
        let teams = (blocks / team).min(turns).max(1);
        let held = batch * threads * vector * shape.moved;
        let (of_block, of_turn) =
            if team > 1 { (held + team * left, TURN + WAIT + team * WAIT_EACH) } else { (held, TURN) };
        let active = ceil_div(team * teams, i64::from(device.sm_count));
        let crowded = if shape.inputs > 1 && batch * shape.inputs > MOST_TOGETHER { CROWDED } else { 100 };
        let sparse = if active < per_sm { SPARSE } else { 100 };
        let spilled =
            if batch * vector * shape.computed > room_for_held(device, threads * per_sm) { SPILLED } else { 1 };
        let cost = ceil_div(turns, teams).saturating_mul(active * of_block + of_turn) / SLOWEST * slow;
        let cost = (cost / 100).saturating_mul(crowded) / 100 * sparse;
        let cost = cost.saturating_mul(spilled);
        ways.push((cost, Way { x, y, batch, team, teams, per_sm, looped }));
    }
    ways
}

/// Bytes of registers that a thread of so many of a multiprocessor has for what it holds.
fn room_for_held(device: &DeviceDesc, threads: i64) -> i64 {
    (i64::from(device.registers_per_sm) / threads - FIXED) * REGISTER_BYTES
}

/// Chooses for the given sizes.
fn params(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<GridParams> {
    let refused = || Diagnostic::bug("rows that were accepted, and no way to hold them");
    let shape = shape_of(problem, scheduled).map_err(|_| refused())?;
    let way = choose(problem, &shape).ok_or_else(refused)?;
    let places = i64::from(problem.cx.device.sm_count) * way.per_sm;
    Ok(GridParams { rows: shape.rows, way, places })
}

impl Rows {
    /// All dimensions that are reduced.
    fn all_reduced(&self) -> Vec<AxisId> {
        if self.across { self.reduced.clone() } else { [&self.reduced[..], &self.fast].concat() }
    }

    /// Whether a tensor has elements along all dimensions.
    fn is_full(&self, state: &ScheduledFusion, tv: TvId) -> bool {
        let all = || self.kept.iter().chain(&self.reduced).chain(&self.fast);
        all().all(|axis| state.tensors[tv].indexed().any(|own| own == *axis))
    }
}

/// The axes that a thread runs over.
struct Loops {
    /// All, outer to inner.
    order: Vec<AxisId>,
    turn: Option<AxisId>,
    batch: AxisId,
    lane: AxisId,
}

/// Applies the choices.
pub(super) fn apply(builder: &mut ScheduleBuilder, caching: Caching, params: &GridParams) -> Result<()> {
    cache_inputs(builder, caching)?;
    let copies = stage_rows(builder, params)?;
    let row = params.rows.all_reduced();
    compute_again(builder, &row)?;
    let loops = split(builder, params)?;
    let reductions: Vec<TvId> = builder.state().tensors.ids().filter(|tv| builder.state().is_reduction(*tv)).collect();
    for tv in reductions {
        builder.rfactor(tv, &[loops.batch])?;
        if !params.rows.across {
            builder.rfactor(tv, &[loops.lane])?;
        }
    }
    builder.propagate(&loops.order)?;
    if let Some(turn) = loops.turn {
        // What does not change from turn to turn would be held by each thread.
        recompute_in_loop(builder, turn, &|state, tv| {
            let is_value = state.tensors[tv].memory == Memory::Local && state.tensors[tv].op.is_some();
            is_value && along_row(state, tv, &row) && !state.is_reduction(tv)
        })?;
    }
    builder.min_blocks(params.way.per_sm as u32)?;
    let keep = positions(builder, params, &loops);
    builder.inline_most(&keep)?;
    copies.into_iter().try_for_each(|copy| builder.circular_buffer(copy, 1))
}

/// Computes what takes few instructions in every stage that uses it.
fn compute_again(builder: &mut ScheduleBuilder, row: &[AxisId]) -> Result<()> {
    recompute(builder, &|state, tv| {
        let is_local = state.tensors[tv].memory == Memory::Local;
        is_local && (is_cheap(state, tv, row) || is_light(state, tv, row))
    })
}

/// Leaves what differs from turn to turn in shared memory. Returns what is copied there without registers.
fn stage_rows(builder: &mut ScheduleBuilder, params: &GridParams) -> Result<Vec<TvId>> {
    let state = builder.state();
    let is_row = |tv: &TvId| is_load(state, *tv) && params.rows.is_full(state, *tv);
    let is_copied = |tv: &TvId| state.producers(*tv).iter().any(|from| params.rows.copied.contains(from));
    let (copied, loaded): (Vec<TvId>, Vec<TvId>) = state.tensors.ids().filter(is_row).partition(is_copied);
    for &copy in &copied {
        builder.set_memory(copy, Memory::Shared)?;
        builder.set_cache_hint(copy, CacheHint::Global)?;
        builder.cache_after(copy)?;
    }
    for load in loaded {
        let staged = builder.cache_after(load)?;
        builder.set_memory(staged, Memory::Shared)?;
        builder.cache_after(staged)?;
    }
    Ok(copied)
}

/// Whether a value is computed again by every stage, as it takes few instructions. A choice needs more than one number of the row:
/// it is, if all of them are, down to what is loaded.
fn is_light(state: &ScheduledFusion, tv: TvId, row: &[AxisId]) -> bool {
    let is_light = |tv: TvId| is_repeatable(state, tv, row) && (is_few(state, tv) || is_cheap(state, tv, row));
    let is_choice = matches!(&state.tensors[tv].op, Some(op) if matches!(op.compute, Compute::Ternary(_)));
    if !is_choice {
        return is_light(tv);
    }
    let (mut waiting, mut seen) = (vec![tv], BTreeSet::new());
    while let Some(next) = waiting.pop() {
        if !is_light(next) {
            return false;
        }
        for from in state.producers(next) {
            if along_row(state, from, row) && !is_load(state, from) && seen.insert(from) {
                waiting.push(from);
            }
        }
    }
    true
}

/// Whether a value takes few instructions.
fn is_few(state: &ScheduledFusion, tv: TvId) -> bool {
    use UnaryOp::{Exp, Exp2, Reciprocal, Rsqrt, Sigmoid, Silu, Sqrt};
    let Some(op) = &state.tensors[tv].op else { return false };
    match op.compute {
        Compute::Unary(op) => matches!(op, Exp | Exp2 | Reciprocal | Sqrt | Rsqrt | Sigmoid | Silu),
        Compute::Binary(_) | Compute::Ternary(_) => true,
        _ => false,
    }
}

fn split(builder: &mut ScheduleBuilder, params: &GridParams) -> Result<Loops> {
    let Way { x, y, batch, team, looped, .. } = params.way;
    let rows = &params.rows;
    let Some(fast) = merge_all(builder, &rows.fast)? else {
        return Err(Diagnostic::bug("a normalisation without a dimension that vectors are made of"));
    };
    let (kept, reduced) = (merge_all(builder, &rows.kept)?, merge_all(builder, &rows.reduced)?);
    let fast = match rows.align {
        Some(reference) => builder.align(fast, rows.vector, reference, None)?,
        None => fast,
    };
    let (vectors, lane) = builder.split(fast, rows.vector, rows.exact_vector)?;
    let (vectors, reduced) = match reduced {
        Some(outside) if rows.joined => (builder.merge(outside, vectors)?, None),
        _ => (vectors, reduced),
    };
    let mut order = Vec::new();
    // Without a team a block has all vectors of a row.
    let is_alone = team == 1 && !rows.across;
    let (strips, thread) = match is_alone {
        true => builder.split_cover(vectors, batch, x, false)?,
        false => builder.split(vectors, x, false)?,
    };
    builder.parallelize(thread, ParallelType::Tidx)?;
    let beside = |builder: &mut ScheduleBuilder, slow: Option<AxisId>| match slow {
        Some(slow) => builder.merge(slow, strips),
        None => Ok(strips),
    };
    // What a team shares, and what teams take in turn.
    let (shared, turns) = match (rows.across, reduced) {
        (true, Some(reduced)) => {
            let (shared, row) = match team {
                1 => builder.split_cover(reduced, batch, y, false)?,
                _ => builder.split(reduced, y, false)?,
            };
            builder.parallelize(row, ParallelType::Tidy)?;
            order.push(row);
            (shared, Some(beside(builder, kept)?))
        }
        (true, None) => return Err(Diagnostic::bug("a normalisation without a reduced axis")),
        (false, reduced) => (beside(builder, reduced)?, kept),
    };
    order.push(thread);
    let (member, batch) = match team {
        1 => (None, shared),
        _ => builder.split(shared, batch, false).map(|(member, batch)| (Some(member), batch))?,
    };
    let mut turn = None;
    if let Some(turns) = turns {
        // As many teams as run at once, whatever number of blocks one has.
        let (outer, group) = builder.split_turns(turns, Parts { places: params.places, beside: member })?;
        builder.parallelize(group, ParallelType::Bidy)?;
        order.insert(0, group);
        turn = Some(outer);
    }
    if let Some(member) = member {
        builder.parallelize(member, ParallelType::Bidx)?;
        order.insert(0, member);
    }
    if !looped {
        builder.parallelize(batch, ParallelType::Unroll)?;
    }
    builder.parallelize(lane, ParallelType::Vectorize)?;
    order.extend(turn);
    order.extend([batch, lane]);
    Ok(Loops { order, turn, batch, lane })
}

/// How deep values are computed at most: what goes to shared memory outside of the loop over a thread's vectors, so that
/// all of it is on its way at once; what else is loaded, what is read from there and what is stored outside of that over
/// a vector.
fn positions(builder: &ScheduleBuilder, params: &GridParams, loops: &Loops) -> Vec<(TvId, usize)> {
    let state = builder.state();
    let before = |tv: TvId, axis: AxisId| {
        let loops = &state.tensors[tv].loops;
        loops.iter().position(|own| own.axis == axis).unwrap_or(loops.len())
    };
    let mut keep = Vec::new();
    for tv in state.tensors.ids().filter(|tv| state.tensors[*tv].memory != Memory::Global) {
        let from_memory = state.producers(tv).iter().any(|from| state.tensors[*from].memory != Memory::Local);
        let is_staged = state.tensors[tv].memory == Memory::Shared;
        if is_staged || is_load(state, tv) && params.rows.is_full(state, tv) {
            keep.push((tv, before(tv, loops.batch).min(before(tv, loops.lane))));
        } else if from_memory {
            keep.push((tv, before(tv, loops.lane)));
        }
    }
    keep.extend(keep_for_stores(builder, loops.lane));
    keep
}

#[cfg(test)]
mod tests {
    use super::super::Planned;
    use super::super::choose::tests::planned_of;
    use crate::diag::Result;
    use crate::num::DType;

    /// What a normalisation over some axes of a dense tensor is scheduled as.
    fn planned(axes: &str, sizes: &[i64]) -> Result<Planned> {
        let dims = vec!["?"; sizes.len()].join(", ");
        let body = format!("%0 = cast %x f32\n%1 = max %0 axes({axes}) keepdim\n%2 = sub %0, %1\nreturn %2");
        planned_of(&format!("fusion @f(%x: bf16[{dims}]) {{\n{body}\n}}"), &[(DType::BF16, sizes)])
    }

    fn check(axes: &str, sizes: &[i64], params: &str) {
        let planned = planned(axes, sizes).unwrap_or_else(|error| panic!("{sizes:?}\n{error:#?}"));
        assert_eq!(
            (planned.scheduler, planned.params_text.as_str()),
            ("grid_persistent", params),
            "{axes} of {sizes:?}"
        );
    }

    #[test]
    fn teams_hold_long_rows() {
        check("1", &[1000, 70_000], "vector 4 batch 26 threads 256x1 teams 176 of 3 4 per_sm copied 1");
        check("1", &[100, 500_001], "vector 4 batch 26 threads 256x1 teams 27 of 19 4 per_sm aligned copied 1 looped");
        check("0", &[4_000_000], "vector 4 batch 16 threads 512x1 teams 1 of 123 2 per_sm");
        // Those of several images, channel by channel.
        check("0, 2", &[64, 256, 3136], "vector 4 batch 26 threads 256x1 teams 66 of 8 4 per_sm copied 1 joined");
        check("0, 2, 3", &[256, 128, 28, 28], "vector 4 batch 26 threads 256x1 teams 66 of 8 4 per_sm copied 1 joined");
        // At odd places each run is shifted.
        check("0, 2, 3", &[31, 96, 57, 57], "vector 4 batch 26 threads 256x1 teams 96 of 5 4 per_sm aligned copied 1");
        // Where many threads were idle beyond short ones they go on with the next.
        check(
            "0, 2, 3",
            &[900, 32, 33, 11],
            "vector 4 batch 22 threads 256x1 teams 32 of 15 4 per_sm aligned copied 1 joined looped",
        );
        // Fewer than multiprocessors, which one block each could hold.
        check("1", &[32, 60_000], "vector 4 batch 4 threads 256x1 teams 32 of 15 4 per_sm copied 1");
    }

    #[test]
    fn a_row_may_be_several_runs() {
        // A parameter has one number for each half of a row, or for every four elements, which are no vectors.
        let planned = |sizes: [i64; 3]| {
            let body = "%0 = cast %x f32\n%1 = max %0 axes(1, 2) keepdim\n%2 = sub %0, %1\n%3 = broadcast %w flags(true, \
                        false, true)\n%4 = mul %2, %3\n%5 = cast %4 bf16\nreturn %5";
            let text = format!("fusion @f(%x: bf16[?, ?, ?], %w: f32[?]) {{\n{body}\n}}");
            let (x, w): (&[i64], &[i64]) = (&sizes, &sizes[1..2]);
            planned_of(&text, &[(DType::BF16, x), (DType::F32, w)]).map(|planned| planned.scheduler)
        };
        assert_eq!(planned([160, 2, 66_600]).expect("it is scheduled"), "grid_persistent");
        assert!(planned([160, 33_300, 4]).is_err());
    }

    #[test]
    fn blocks_hold_columns_beside_each_other() {
        check("0", &[512, 131_072], "across vector 4 batch 16 threads 8x32 teams 528 of 1 4 per_sm copied 1");
        check("0", &[16_384, 4096], "across vector 4 batch 26 threads 8x32 teams 26 of 20 4 per_sm copied 1");
        check("1", &[64, 3136, 256], "across vector 4 batch 26 threads 8x32 teams 132 of 4 4 per_sm copied 1");
        // Nothing at all.
        check("1", &[0, 3136, 256], "across vector 4 batch 1 threads 8x32 teams 1 of 98 4 per_sm copied 1");
        // A few columns of a small tensor are one block's.
        check("0", &[700, 24], "across vector 4 batch 22 threads 8x32 teams 1 of 1 4 per_sm copied 1");
    }

    #[test]
    fn the_shared_memory_of_a_block_has_what_its_registers_do_not_hold() {
        let planned = |dtype: DType, inputs: &str, body: &str, sizes: [i64; 2]| {
            let text = format!("fusion @f({inputs}) {{\n{body}\n%out = cast %0 {dtype}\nreturn %out\n}}");
            let args = vec![(dtype, &sizes[..]); inputs.matches('%').count()];
            let planned = planned_of(&text, &args).expect("it is scheduled");
            (planned.scheduler, planned.params_text)
        };
        let [half, single] = ["%x: bf16[?, ?]", "%x: f32[?, ?]"];
        let check = |dtype, inputs, body, sizes, wanted: &str| {
            let (scheduler, params) = planned(dtype, inputs, body, sizes);
            assert_eq!((scheduler, params.as_str()), ("grid_persistent", wanted), "{body}");
        };
        let softmax = "%0 = softmax %x axis(1)";
        let wanted = "vector 8 batch 13 threads 512x1 teams 264 of 1 2 per_sm aligned copied 1 looped";
        check(DType::BF16, half, softmax, [1003, 50_257], wanted);
        let wanted = "vector 4 batch 13 threads 1024x1 teams 132 of 1 1 per_sm aligned copied 1 looped";
        check(DType::F32, single, softmax, [1003, 50_257], wanted);
        // What is read once more, and what takes many instructions and stays.
        let gradient = ("%y: f32[?, ?], %x: f32[?, ?]", "%0 = softmax_backward %x, %y axis(1)");
        assert_eq!(planned(DType::F32, gradient.0, gradient.1, [1024, 32_768]).0, "inner_persistent");
        let capped = "%c = tanh %x\n%0 = softmax %c axis(1)";
        assert_eq!(planned(DType::BF16, half, capped, [1003, 50_257]).0, "inner_persistent");
    }

    #[test]
    fn what_a_block_holds_alone_is_not_shared() {
        for (axes, sizes, wanted) in [
            ("1", [1000, 65_000], "inner_persistent"),
            ("0", [100, 9], "inner_persistent"),
            ("0", [30_000, 64], "inner_persistent"),
            ("0", [16, 4096], "short_columns"),
            ("0", [100, 4097], "short_columns"),
        ] {
            let scheduler = planned(axes, &sizes).expect("it is scheduled").scheduler;
            assert_eq!(scheduler, wanted, "{axes} of {sizes:?}");
        }
    }
}
