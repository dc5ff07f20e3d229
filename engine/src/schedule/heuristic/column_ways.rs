//! Who holds rows while sums of columns are added up: the ways of `inner_outer`, and what each costs.
//!
//! In: what a row is. Out: how many threads hold one, how many a block takes at once, how many blocks there are, and whether
//! threads hold elements of rows in registers or read them from the ring again. What
//! decides is a model of a multiprocessor's cycles for its rows, and for the sums of all blocks behind them.

use super::residency::REGISTER_BYTES;
use super::tile::{WARP, block_sizes, ceil_div, next_power_of_two, oddity, power_of_two_below};
use super::typical::{Typical, typical};
use crate::kernel::MAX_ACCESS_BYTES;
use crate::options::DeviceDesc;
use crate::util::sort_by_key;

/// Stages of the ring in which rows come that are held in registers, and of that in which they stay.
pub(super) const STAGES: u32 = 3;
const STAGES_OF_RING: [u32; 2] = [1, 2];
/// Stages of what a ring has for a row as a whole, at least.
pub(super) const LEAST_SHARED: u32 = 2;
/// Registers of a thread whatever it holds; and of one that holds nothing of rows, whose vectors are tested.
const FIXED: i64 = 40;
const FIXED_OF_RING: i64 = 60;
/// More of them no thread is given, or none that holds nothing of rows.
const MOST_REGISTERS: i64 = 200;
const MOST_REGISTERS_OF_RING: i64 = 255;
/// Registers more of a thread where the threads' vectors are not exactly the row, or threads not the blocks.
const MASKED: i64 = 14;
/// Shared memory that is left to what warps of a row exchange.
const EXCHANGE: i64 = 8 << 10;
/// Vectors that a thread holds, few numbers since each is a kernel of its own; and elements at most.
const BATCHES: [i64; 8] = [1, 2, 3, 4, 6, 8, 10, 12];
const MOST_ELEMENTS: i64 = 32;
/// The same where rows stay in the ring: of long rows a few threads more or fewer are much.
const BATCHES_OF_RING: [i64; 17] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24, 32, 40, 48, 64];
const MOST_ELEMENTS_OF_RING: i64 = 96;
/// Elements of a vector that is wide.
const LEAST_WIDE: i64 = 4;
/// Threads of a block that takes several rows at once, and the powers of two that such rows are.
const THREADS_OF_SEVERAL: std::ops::RangeInclusive<i64> = 128..=512;
const POWERS: std::ops::Range<u32> = 0..8;
/// Turns in which a block takes rows, at least.
const FEWEST_TURNS: i64 = 4;
/// Elements of rows that may be worth it.
const SHORTEST_ROW: i64 = 8;
const LONGEST_ROW: i64 = 48 << 10;
/// Elements of the shortest rows that stay in the ring, unless somebody asks for it.
const SHORTEST_IN_RING: i64 = 8 << 10;
/// Rows below which the sums of all blocks are too much beside them.
const FEWEST_ROWS: i64 = 528;
/// Thousandths of the time that registers are worth which the model says are not enough.
const TIGHT: i64 = 40;
/// Cycles until what a row needs is there where it is loaded a row ahead, and for which the warps of a row wait for
/// each other. (These and what follows are fitted to some 600 times on an H200.)
const LOAD_CYCLES: i64 = 650;
const BARRIER_CYCLES: i64 = 350;
/// Where rows come through the ring, and where they are loaded ahead.
const RING_WORK: Work = Work { row: 40, sum: 17, narrow: 70, element: 13, added: 5 };
const AHEAD_WORK: Work = Work { row: 10, sum: 17, narrow: 0, element: 28, added: 5 };
/// Where each stage reads rows from the ring, and parameters too. (These and the next are from 100 times of gradients of norms.)
const AGAIN_WORK: Work = Work { row: 40, sum: 17, narrow: 85, element: 20, added: 5 };
const STAGED_WORK: Work = Work { element: 25, ..AGAIN_WORK };
/// Warps whose time goes into waiting for what they read; and how many times what is told of rows in registers the sums of all
/// blocks take, of which a thread has more.
const WAITING: i64 = 4;
const MORE_SUMS: i64 = 3;
/// Threads of a row that stays in the ring, at least, unless somebody asks for it.
const LEAST_THREADS_OF_RING: i64 = 7 * WARP;
/// Hundredths of the time of memory that two kernels take, both of which read all rows: of whole vectors, and of narrow ones.
const OF_TWO_KERNELS: [i64; 2] = [130, 160];
/// Warps that issue at once.
const ISSUED: i64 = 4;
/// Bytes that a multiprocessor has of the memory's in four cycles.
const BYTES_OF_FOUR_CYCLES: i64 = 65;
/// Cycles until sums of a block, and of as many more as it has threads, are there; and for each of a thread's sums those
/// that a warp combines, and those that rows at once take.
const PASS_CYCLES: i64 = 1700;
const COMBINED: i64 = 6;
const OF_ROWS_AT_ONCE: i64 = 50;

/// Cycles for which a warp issues instructions.
struct Work {
    /// For a row, and for each of its sums.
    row: i64,
    sum: i64,
    /// For each vector that is shorter than the widest access.
    narrow: i64,
    /// For an element of each lane, and for each column sum to which it is added.
    element: i64,
    added: i64,
}

/// Whether columns of so many rows may be added up while rows of so many elements are held: what a program that is cut
/// asks before it is known what else a kernel does.
pub fn may_add_columns(rows: i64, row: i64) -> bool {
    rows >= FEWEST_ROWS && (SHORTEST_ROW..=LONGEST_ROW).contains(&row)
}

/// What a row is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Number of rows, and elements of one.
    pub(super) number: i64,
    pub(super) length: i64,
    /// Elements of a vector, and bytes of the widest element.
    pub(super) vector: i64,
    pub(super) widest: i64,
    /// Bytes of an element that come through the ring, that are loaded a row ahead, and of all that is moved.
    pub(super) ring: i64,
    pub(super) ahead: i64,
    /// Bytes that come through the ring for a row as a whole: each thread has a copy.
    pub(super) whole: i64,
    pub(super) moved: i64,
    /// Bytes of an element that a thread holds while it works on it, and all the time.
    pub(super) early: i64,
    pub(super) parameters: i64,
    /// Registers that the sums of one column take, bytes of the widest, and sums of a row.
    pub(super) sums: i64,
    pub(super) widest_sum: i64,
    pub(super) row_sums: i64,
}

impl Row {
    /// The rows for which it is chosen how these are held.
    pub(super) fn typical(&self) -> Self {
        // Most rows at odd places have single elements.
        let is_single = self.vector == 1;
        let Typical { vectors, rows } = typical(self.length / self.vector, self.vector, self.number, is_single);
        Self { number: rows, length: vectors * self.vector, ..*self }
    }
}

/// Who holds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Way {
    /// Vectors that a thread holds.
    pub(super) batch: i64,
    /// Threads of a row, and rows that a block takes at once.
    pub(super) threads: i64,
    pub(super) at_once: i64,
    /// Blocks, and how many should fit a multiprocessor.
    pub(super) blocks: i64,
    pub(super) per_sm: i64,
    /// Where it is held.
    pub(super) held: Held,
}

/// Where a row is while a block works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Held {
    /// In registers, and parameters too.
    Registers,
    /// In a ring of so many stages, from which each stage of the computation reads it again: registers hold sums of
    /// columns, and parameters where these are not staged in shared memory, too.
    Ring { stages: u32, staged: bool },
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Ring { stages, staged } = self else { return Ok(()) };
        write!(f, " ring {stages}{}", if *staged { " staged" } else { "" })
    }
}

impl Way {
    /// Threads of a block.
    pub(super) fn of_block(&self) -> i64 {
        self.threads * self.at_once
    }

    /// Blocks that take columns.
    pub(super) fn groups(&self) -> i64 {
        let fewest = ceil_div(self.threads, self.blocks);
        let shares = (fewest..self.threads).find(|shares| self.threads % shares == 0);
        self.threads / shares.unwrap_or(self.threads)
    }
}

/// The ways to hold rows, each with the cycles that it takes, the best first. Those in registers come before others, but
/// where rows have as many elements as somebody asked for.
pub(super) fn ways(device: &DeviceDesc, row: &Row, in_ring: Option<i64>) -> Vec<(i64, Way)> {
    if !may_add_columns(row.number, row.length) {
        return Vec::new();
    }
    let is_asked = in_ring.is_some_and(|least| row.length >= least);
    let mut others = if is_asked || row.length >= SHORTEST_IN_RING { ways_in_ring(device, row) } else { Vec::new() };
    if !is_asked {
        let most = cycles_of_two_kernels(device, row);
        others.retain(|(cost, way)| *cost < most && way.threads >= LEAST_THREADS_OF_RING);
    }
    sort_by_key(&mut others, |(cost, _)| *cost);
    if is_asked && !others.is_empty() {
        return others;
    }
    let mut ways = ways_in(device, row, Held::Registers);
    sort_by_key(&mut ways, |(cost, _)| *cost);
    ways.extend(others);
    ways
}

/// The ways in which rows stay in the ring.
fn ways_in_ring(device: &DeviceDesc, row: &Row) -> Vec<(i64, Way)> {
    if row.ahead > 0 || row.ring == 0 {
        return Vec::new();
    }
    let places: &[bool] = if row.parameters > 0 { &[false, true] } else { &[false] };
    let held = STAGES_OF_RING.into_iter().flat_map(|stages| places.iter().map(move |staged| (stages, *staged)));
    held.flat_map(|(stages, staged)| ways_in(device, row, Held::Ring { stages, staged })).collect()
}

fn ways_in(device: &DeviceDesc, row: &Row, held: Held) -> Vec<(i64, Way)> {
    let vectors = row.length / row.vector;
    let (batches, most): (&[i64], i64) = match held {
        Held::Registers => (&BATCHES, MOST_ELEMENTS),
        Held::Ring { .. } => (&BATCHES_OF_RING, MOST_ELEMENTS_OF_RING),
    };
    let most = (most / row.vector).min(vectors);
    let batches = batches.iter().copied().filter(|batch| *batch <= most);
    let is_wide = row.vector >= LEAST_WIDE;
    let tiles = batches.flat_map(|batch| tiles_of(ceil_div(vectors, batch), is_wide).map(move |tile| (batch, tile)));
    let is_block = |[threads, at_once]: [i64; 2]| {
        threads * at_once <= i64::from(device.max_threads_per_block) && (held == Held::Registers || at_once == 1)
    };
    let fit = tiles.filter(|(_, tile)| is_block(*tile));
    fit.flat_map(|(batch, tile)| weigh(device, row, (batch, held), tile)).collect()
}

/// Threads of a row that has use for so many, and rows at once. Of narrow vectors a thread may have more or fewer, and
/// round numbers of threads do.
fn tiles_of(wanted: i64, is_wide: bool) -> impl Iterator<Item = [i64; 2]> {
    let threads: Vec<i64> = match wanted < WARP {
        true => vec![next_power_of_two(wanted)],
        false if is_wide => block_sizes(wanted).collect(),
        false => block_sizes(wanted).last().into_iter().collect(),
    };
    threads.into_iter().flat_map(|threads| {
        let at_once = POWERS.map(|power| 1 << power);
        let is_block = move |at_once: &i64| match at_once {
            1 => threads >= WARP,
            _ => THREADS_OF_SEVERAL.contains(&(threads * at_once)),
        };
        at_once.filter(is_block).map(move |at_once| [threads, at_once])
    })
}

/// The ways with so many threads: with as many blocks as have the registers by the model, and with one more if it may
/// have them, each with its cost.
fn weigh(device: &DeviceDesc, row: &Row, (batch, held): (i64, Held), [threads, at_once]: [i64; 2]) -> Vec<(i64, Way)> {
    let sms = i64::from(device.sm_count);
    let most = row.number / FEWEST_TURNS / at_once;
    let mut ways: Vec<(i64, Way)> = Vec::new();
    for tight in [0, TIGHT] {
        let mut way = Way { batch, threads, at_once, blocks: 0, per_sm: 0, held };
        let registers = registers(row, &way);
        let registers = if tight > 0 { registers - registers / 10 } else { registers };
        // Several blocks that read rows again are no faster than one.
        let most_per_sm = if held == Held::Registers { (most / sms).max(1) } else { 1 };
        way.per_sm = blocks_of_sm(device, row, &way, registers).min(most_per_sm);
        way.blocks = match most < sms {
            true => power_of_two_below(most) * way.per_sm,
            false => blocks_of(way.per_sm * sms, way.of_block()),
        };
        if way.blocks == 0 || ways.iter().any(|(_, other)| other.per_sm >= way.per_sm) {
            continue;
        }
        ways.push((cycles(row, &way).saturating_mul(1000 + tight + oddity(threads)) / 1000, way));
    }
    ways
}

/// Cycles, about, that a multiprocessor takes.
fn cycles(row: &Row, way: &Way) -> i64 {
    let Way { batch, threads, at_once, blocks, per_sm, held } = *way;
    let elements = batch * row.vector;
    let is_ahead = row.ahead > 0;
    let work = match held {
        Held::Ring { staged: false, .. } => AGAIN_WORK,
        Held::Ring { staged: true, .. } => STAGED_WORK,
        Held::Registers if is_ahead => AHEAD_WORK,
        Held::Registers => RING_WORK,
    };
    let narrow = if is_narrow(row) { batch * work.narrow } else { 0 };
    let of_warp = work.row + work.sum * row.row_sums + narrow + elements * (work.element + work.added * row.sums);
    let wait = if is_ahead { LOAD_CYCLES } else { 0 } + if threads > WARP { BARRIER_CYCLES } else { 0 };
    let warps = way.of_block() / WARP;
    let busy = wait + of_warp * per_sm * warps / ISSUED;
    let moved = per_sm * at_once * row.length * row.moved * 4 / BYTES_OF_FOUR_CYCLES;
    let turn = match held {
        Held::Registers => both(busy, moved),
        Held::Ring { stages, .. } => turn_of_ring(way, stages, [busy, moved]),
    };
    let turns = ceil_div(row.number, blocks * at_once);
    // Then sums of all blocks: a thread has those of some blocks for the elements that it held.
    let passes = threads / way.groups();
    let pass = (ceil_div(blocks, way.of_block()) + 1) * PASS_CYCLES + COMBINED * elements * warps;
    let pass = if held == Held::Registers { pass } else { pass * MORE_SUMS };
    let over_rows = if at_once > 1 { elements * OF_ROWS_AT_ONCE } else { 0 };
    turns.saturating_mul(turn).saturating_add(row.sums * (passes * pass + over_rows))
}

/// Whether vectors are shorter than the widest access.
fn is_narrow(row: &Row) -> bool {
    row.vector * row.widest < MAX_ACCESS_BYTES
}

/// Cycles of a turn in which rows stay in a ring: few warps wait for themselves too. Of one stage memory rests for some of the
/// time in which a row is worked on, and of two more is on its way than memory likes.
fn turn_of_ring(way: &Way, stages: u32, [busy, moved]: [i64; 2]) -> i64 {
    let warps = way.per_sm * way.of_block() / WARP;
    let busy = busy * (warps + WAITING) / warps.max(1);
    both(busy, moved) + if stages == 1 { busy / 4 } else { moved * 15 / 100 }
}

/// Cycles, about, of two kernels, both of which read all rows.
fn cycles_of_two_kernels(device: &DeviceDesc, row: &Row) -> i64 {
    let bytes = row.length.saturating_mul(row.moved + row.ring + row.ahead).saturating_mul(row.number);
    let [whole, narrow] = OF_TWO_KERNELS;
    let share = if is_narrow(row) { narrow } else { whole };
    bytes / i64::from(device.sm_count) / BYTES_OF_FOUR_CYCLES * 4 / 100 * share
}

/// The time of two things that are done at once: that of the longer, and more if they take about as long.
fn both(a: i64, b: i64) -> i64 {
    let longer = a.max(b).max(1);
    let share = a.min(b) * 100 / longer;
    longer + longer / 1000 * share.pow(4) / 500_000
}

/// Registers of a thread. (Fitted to the assembler's figures.)
fn registers(row: &Row, way: &Way) -> i64 {
    let elements = way.batch * row.vector;
    // Numbers of two bytes share a register where they come as vectors.
    let alone = if row.vector == 1 { 2 } else { 1 };
    let (fixed, of_rows) = match way.held {
        Held::Registers => (FIXED, row.early + (row.parameters + row.ahead) * alone),
        Held::Ring { staged: false, .. } => (FIXED_OF_RING, row.parameters * alone),
        Held::Ring { .. } => (FIXED_OF_RING, 0),
    };
    let held = row.sums * REGISTER_BYTES + of_rows;
    let is_tested = way.held == Held::Registers && way.threads * elements != row.length;
    fixed + if is_tested { MASKED } else { 0 } + elements * held / REGISTER_BYTES
}

/// Blocks that fit a multiprocessor.
fn blocks_of_sm(device: &DeviceDesc, row: &Row, way: &Way, registers: i64) -> i64 {
    let shared = shared_bytes(row, way);
    let most = if way.held == Held::Registers { MOST_REGISTERS } else { MOST_REGISTERS_OF_RING };
    if registers > most || shared > i64::from(device.shared_per_block) {
        return 0;
    }
    let fit = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    // Sums of as many blocks as threads: others are tested for.
    let lone = i64::from(device.resident_blocks(fit(way.of_block()), fit(registers), fit(shared)));
    let blocks = blocks_of(lone * i64::from(device.sm_count), way.of_block());
    let tested = registers + if blocks % way.of_block() == 0 { 0 } else { MASKED };
    i64::from(device.resident_blocks(fit(way.of_block()), fit(tested), fit(shared)))
}

/// Shared memory of a block: the ring, parameters that stay there, and what threads exchange. Sums of rows at once go
/// through two buffers in turn; rows of one warp are combined before they are written there.
fn shared_bytes(row: &Row, way: &Way) -> i64 {
    let elements = way.batch * row.vector;
    let of_element = match way.held {
        Held::Registers => i64::from(STAGES) * row.ring,
        Held::Ring { stages, staged: true } => i64::from(stages) * row.ring + row.parameters,
        Held::Ring { stages, .. } => i64::from(stages) * row.ring,
    };
    // What threads exchange has room for what rows in registers have as a whole.
    let whole = match way.held {
        Held::Registers => 0,
        Held::Ring { stages, .. } => i64::from(stages.max(LEAST_SHARED)) * row.whole,
    };
    let ring = way.of_block() * (elements * of_element + whole);
    let of_rows = match way.at_once {
        1 => 0,
        _ => 2 * way.of_block() * elements * row.widest_sum / (WARP / way.threads).max(1),
    };
    ring + of_rows + EXCHANGE
}

/// Blocks of so many places: threads that have no block's sums to add, or few of them one more, are not worth a few
/// blocks.
fn blocks_of(places: i64, threads: i64) -> i64 {
    if places % threads <= places / 32 && places >= threads { places - places % threads } else { places }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRED: Row = Row {
        number: 200_000,
        length: 1024,
        vector: 8,
        widest: 2,
        ring: 4,
        ahead: 0,
        whole: 8,
        moved: 6,
        early: 7,
        parameters: 2,
        sums: 2,
        widest_sum: 4,
        row_sums: 2,
    };

    #[test]
    fn what_is_chosen_fits_a_multiprocessor() {
        let device = DeviceDesc::h200();
        let lengths = [8, 16, 24, 64, 200, 400, 640, 768, 1000, 1024, 2048, 4096, 8192, 17_000, 24_000];
        for (length, ring) in lengths.into_iter().flat_map(|length| [2, 4, 8, 16].map(|ring| (length, ring))) {
            for number in [528, 1056, 20_000, i64::MAX / 4] {
                let row = Row { number, length, ring, widest: ring.min(8), ..PAIRED };
                for (cost, way) in ways(&device, &row, None).into_iter().chain(ways(&device, &row, Some(1))) {
                    assert!(cost > 0, "{row:?} {way:?}");
                    assert!(
                        shared_bytes(&row, &way) * way.per_sm <= i64::from(device.shared_per_sm),
                        "{row:?} {way:?}"
                    );
                    assert!(way.blocks <= way.per_sm * i64::from(device.sm_count), "{row:?} {way:?}");
                    assert!(way.threads * way.batch * row.vector >= length, "{row:?} {way:?}");
                    assert!(way.of_block() % WARP == 0, "{row:?} {way:?}");
                }
            }
        }
    }

    #[test]
    fn rows_stay_in_the_ring_where_registers_do_not_hold_them() {
        let first = |length: i64, in_ring: Option<i64>| {
            let row = Row { number: 3001, length, ..PAIRED };
            ways(&DeviceDesc::h200(), &row, in_ring).first().map(|(_, way)| way.held)
        };
        assert_eq!(first(8192, None), Some(Held::Registers));
        assert!(matches!(first(8192, Some(8192)), Some(Held::Ring { .. })));
        assert!(matches!(first(17_000, None), Some(Held::Ring { .. })));
        // More sums than there are registers.
        assert_eq!(first(40_000, None), None);
        // What no asynchronous copy moves is held in registers whatever somebody asks for.
        let odd = Row { number: 3001, length: 4097, vector: 1, ring: 0, ahead: 4, ..PAIRED };
        let first = ways(&DeviceDesc::h200(), &odd, Some(1)).first().map(|(_, way)| way.held);
        assert_eq!(first, Some(Held::Registers));
    }

    #[test]
    fn few_rows_have_fewer_blocks() {
        let best = |number: i64| {
            let row = Row { number, length: 32, ..PAIRED };
            ways(&DeviceDesc::h200(), &row, None).first().map(|(_, way)| way.blocks)
        };
        assert!(best(528).is_some_and(|blocks| blocks < 132));
        assert!(best(1 << 20).is_some_and(|blocks| blocks >= 132));
    }
}
