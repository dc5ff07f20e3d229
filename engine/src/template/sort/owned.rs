//! The kernel that orders few positions by the places that an index holds: where the run of each place ends, and the
//! positions of all runs, as [`super::places`] has them.
//!
//! Each block has places of its own, goes through all positions, and needs nothing of other blocks. Threads read the index
//! beside each other, keep in shared memory which of the block's places each position has, if any, and count those that
//! have a lower place than all of the block. Then each thread lists the positions of its stretch that the block has, in the order
//! of positions, and *writers*, which are some of the threads, have a part of the list each and count for themselves how many
//! of it have each place. The sums of what comes before, place by place and within a place writer by writer, are where its
//! positions go. There are the more writers the longer the list is: most blocks have few positions, of which few writers take
//! little time, and no list is too long for many. An index that is no place has the place behind all others, whose positions
//! are in the order but in no run.
//!
//! Invariant: each position is written once, by the block that has its place.

use super::super::Template;
use super::super::share::{self, LANES, as_data, as_index};
use super::super::walk::Lines;
use super::ceil_div;
use super::runs::Runs;
use crate::diag::Result;
use crate::kernel::{BufId, ExprId, IndexOp, Kernel, KernelBuilder, Launch, Scope, Unroll};
use crate::lower::hoist;
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Threads of a block, at least and at most, and positions of one where there are as many threads.
const THREADS: [i64; 2] = [128, 512];
const POSITIONS: i64 = 32;
/// What of sizes is the same kernel: positions and places of a thread up to a multiple of this.
const ROUNDED: [i64; 2] = [8, 16];
/// Instructions that a position takes, and a place of the block, in each thread; and those of all threads of a
/// multiprocessor for which digits are no better: several of them, and one.
const INSTRUCTIONS: [i64; 2] = [35, 10];
const MOST: [i64; 2] = [1_900_000, 600_000];
/// Bytes of shared memory beside those of positions and places.
const REST: i64 = 1 << 10;
/// Writers of a list: as many at least, about as many of most, and in a block that has all positions at least one of so many
/// threads.
const LEAST_WRITERS: i64 = 4;
const MOST_LISTS: i64 = 16;
const THREADS_OF_ALL: i64 = 4;
/// The square of how many writers there are, for each position of a list and by places of the block: so many that their own
/// positions take as long as the slots of a thread.
const SQUARE: i64 = 3072;
/// Of what lies in shared memory.
const SLOT: DType = DType::U16;
/// The place in a block of what has none there: no block has as many.
const NONE: i64 = u16::MAX as i64;

/// How positions are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    threads: u32,
    /// Positions of a thread, at most, and places of a block.
    items: u32,
    width: u32,
    /// Writers, at most.
    writers: u32,
    /// Blocks, at most.
    blocks: u32,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, items, width, writers, blocks } = self;
        write!(f, "owned threads {threads} positions {items} places {width} writers {writers} blocks {blocks}")
    }
}

/// The least odd number that is not below one: threads that step by it are in banks of their own.
fn odd(n: i64) -> i64 {
    n / 2 * 2 + 1
}

/// The least odd number of which so many parts are no less than all.
fn odd_index(b: &mut KernelBuilder, all: ExprId, parts: ExprId) -> ExprId {
    let (two, one) = (b.int(2), b.int(1));
    let own = b.exprs().ceil_div(all, parts);
    let half = b.exprs().div(own, two);
    let even = b.exprs().mul(half, two);
    b.exprs().add(even, one)
}

fn rounded(n: i64, to: i64) -> i64 {
    ceil_div(n, to) * to
}

/// The shape for so many positions and places, if they are few: fewer where a place is one digit.
pub(in super::super) fn shape(device: &DeviceDesc, [positions, places]: [i64; 2], is_one_digit: bool) -> Option<Shape> {
    if positions > NONE || i32::try_from(places).is_err() {
        return None;
    }
    let [least, most] = THREADS;
    let threads = share::power_of_two(ceil_div(positions, POSITIONS)).clamp(least, most);
    let each = odd(ceil_div(positions, threads));
    let items = rounded(each, ROUNDED[0]);
    let sms = i64::from(device.sm_count);
    // One of them is behind all.
    let width = |turns: i64| odd(ceil_div(places + 1, sms * turns));
    let held = |turns: i64| rounded(width(turns), ROUNDED[1]);
    let places_of = |turns: i64| ceil_div(width(turns) * MOST_LISTS, threads);
    let work = |turns: i64| turns * threads * (each * INSTRUCTIONS[0] + places_of(turns) * INSTRUCTIONS[1]);
    let slot = SLOT.bytes() as i64;
    let room = i64::from(device.shared_per_block) - REST - 2 * threads * items * slot;
    let slots = |turns: i64, writers: i64| part(held(turns), writers, threads) * threads * slot;
    let writers = |turns: i64| {
        let fits = |writers: &i64| slots(turns, *writers) <= room;
        std::iter::successors(Some(threads), |writers| Some(writers / 2))
            .take_while(|n| n * THREADS_OF_ALL >= threads)
            .find(fits)
    };
    let is_little = |turns: &i64| work(*turns) <= MOST[usize::from(is_one_digit)];
    let (turns, writers) = (1..).take_while(is_little).find_map(|turns| Some((turns, writers(turns)?)))?;
    Some(Shape {
        threads: threads as u32,
        items: items as u32,
        width: held(turns) as u32,
        writers: writers as u32,
        blocks: (sms * turns) as u32,
    })
}

/// Slots of a thread, of so many places and writers.
fn part(width: i64, writers: i64, threads: i64) -> i64 {
    odd(ceil_div(width * writers, threads))
}

pub(in super::super) fn kernel(template: &Template, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut builder = KernelBuilder::new("owned", class.index_type());
    let b = &mut builder;
    b.set_origin(Some(template.fusion.outputs[0]), "runs");
    let owner = Owner::new(b, template, shape, class)?;
    owner.emit(b);
    let [lanes, one] = [LANES, 1].map(|n| b.int(n));
    let (warps, all) = (b.int(owner.warps()), owner.all_places(b));
    let blocks = b.exprs().ceil_div(all, owner.width);
    let launch = Launch {
        grid: [blocks, one, one],
        block: [lanes, warps, one],
        max_threads: shape.threads,
        min_blocks: 1,
        cooperative: false,
    };
    Ok(builder.finish(launch))
}

/// How writers share a list.
struct Writers {
    /// How many there are, and positions of the list.
    own: ExprId,
    listed: ExprId,
    /// Positions of a writer, and slots of a thread.
    each: ExprId,
    part: ExprId,
}

/// What emits the order.
struct Owner {
    threads: i64,
    runs: Runs,
    /// Positions of a thread, places of a block, and the first of them.
    each: ExprId,
    width: ExprId,
    first: ExprId,
    thread: ExprId,
    warp: ExprId,
    lane: ExprId,
    most_writers: i64,
    /// For each position which of the block's places it has, and the positions that have one.
    keys: BufId,
    list: BufId,
    /// For each place and writer how many positions it has, and then where the next one goes.
    slots: BufId,
    /// Of each warp: positions with lower places, and with places of the block.
    totals: [BufId; 2],
    /// Of a thread: how many it has counted.
    counted: BufId,
}

impl Owner {
    fn new(b: &mut KernelBuilder, template: &Template, shape: Shape, class: &ArgClass) -> Result<Self> {
        let runs = Runs::new(b, template, class)?;
        let threads = i64::from(shape.threads);
        let warps = threads / LANES;
        let odd_part = |b: &mut KernelBuilder, name: &str, all: ExprId, parts: i64| {
            let parts = b.int(parts);
            let own = odd_index(b, all, parts);
            hoist(b, name, own)
        };
        let one = b.int(1);
        let all = b.exprs().add(runs.places, one);
        let each = odd_part(b, "each", runs.index.length, threads);
        let width = odd_part(b, "width", all, shape.blocks.into());
        let [lane, warp, thread] = share::lane_warp_thread(b);
        let block = share::block(b);
        let first = b.exprs().mul(block, width);
        let first = b.let_("first", first);
        let [keys, list] = ["keys", "list"].map(|name| b.shared(name, SLOT, threads * i64::from(shape.items), 16));
        // One more holds how many there are.
        let most_writers = i64::from(shape.writers);
        let slots = part(shape.width.into(), most_writers, threads) * threads + LANES;
        let slots = b.shared("slots", SLOT, slots, 16);
        let totals = ["lower", "sums"].map(|name| b.shared(name, DType::I32, warps, 16));
        let counted = b.local("counted", DType::I32, 1);
        Ok(Self {
            threads,
            runs,
            each,
            width,
            first,
            thread,
            warp,
            lane,
            most_writers,
            keys,
            list,
            slots,
            totals,
            counted,
        })
    }

    fn warps(&self) -> i64 {
        self.threads / LANES
    }

    /// The places and the one behind them.
    fn all_places(&self, b: &mut KernelBuilder) -> ExprId {
        let one = b.int(1);
        b.exprs().add(self.runs.places, one)
    }

    fn emit(&self, b: &mut KernelBuilder) {
        self.read(b);
        b.sync(Scope::Block);
        let listed = self.list(b);
        let writers = self.writers(b, listed);
        self.clear(b, &writers);
        b.sync(Scope::Block);
        self.each_own(b, &writers, |b, slot, _| {
            let count = self.slot(b, slot);
            self.set_slot(b, slot, count, 1);
        });
        b.sync(Scope::Block);
        let before = self.add_up(b, &writers);
        let lower = self.total(b, self.totals[0], self.warps());
        let lower = b.let_("all_lower", lower);
        self.write_prefixes(b, &writers, before);
        b.sync(Scope::Block);
        if let Some(ends) = self.runs.ends {
            self.write_ends(b, &writers, ends, lower);
        }
        if let Some(order) = self.runs.order {
            b.sync(Scope::Block);
            self.each_own(b, &writers, |b, slot, position| {
                let next = self.slot(b, slot);
                self.set_slot(b, slot, next, 1);
                let to = b.exprs().binary(BinaryOp::Add, lower, next);
                let to = as_index(b, to);
                let to = b.exprs().mul(to, order.step);
                let position = as_data(b, position, DType::I32);
                b.store(order.buffer, to, position);
            });
        }
    }

    fn number(&self, b: &mut KernelBuilder, n: i64) -> ExprId {
        b.exprs().int(n, DType::I32)
    }

    /// What a slot holds.
    fn slot(&self, b: &mut KernelBuilder, slot: ExprId) -> ExprId {
        let held = b.load("held", self.slots, slot);
        b.exprs().cast(held, DType::I32)
    }

    /// Puts a number into a slot, and so many more.
    fn set_slot(&self, b: &mut KernelBuilder, slot: ExprId, number: ExprId, more: i64) {
        let more = self.number(b, more);
        let sum = b.exprs().binary(BinaryOp::Add, number, more);
        let sum = b.exprs().cast(sum, SLOT);
        b.store(self.slots, slot, sum);
    }

    /// The element of each round that a thread has, where threads are beside each other.
    fn beside(&self, b: &mut KernelBuilder, round: ExprId) -> ExprId {
        let threads = b.int(self.threads);
        let before = b.exprs().mul(round, threads);
        let at = b.exprs().add(before, self.thread);
        b.let_("at", at)
    }

    /// Nobody has counted anything.
    fn clear(&self, b: &mut KernelBuilder, writers: &Writers) {
        let nothing = b.exprs().int(0, SLOT);
        b.count("place", writers.part, Unroll::By(4), |b, round| {
            let slot = self.beside(b, round);
            b.store(self.slots, slot, nothing);
        });
    }

    /// Keeps which of the block's places each position has, and how many have a lower one than these.
    fn read(&self, b: &mut KernelBuilder) {
        let (zero, one, nothing) = (b.int(0), b.int(1), self.number(b, 0));
        b.store(self.counted, zero, nothing);
        let (first, width) = (as_data(b, self.first, DType::I32), as_data(b, self.width, DType::I32));
        b.count("round", self.each, Unroll::By(8), |b, round| {
            let at = self.beside(b, round);
            // All are read, so that loads need not wait for tests.
            let last = b.exprs().sub(self.runs.index.length, one);
            let from = b.exprs().index(IndexOp::Min, at, last);
            let place = self.runs.place(b, from);
            let place = b.exprs().cast(place, DType::I32);
            let own = b.exprs().binary(BinaryOp::Sub, place, first);
            let own = b.let_("own", own);
            let is_inside = b.exprs().lt(at, self.runs.index.length);
            let is_lower = b.exprs().binary(BinaryOp::Lt, own, nothing);
            let is_behind = b.exprs().binary(BinaryOp::Ge, own, width);
            let is_other = b.exprs().binary(BinaryOp::LogicalOr, is_lower, is_behind);
            let (none, more) = (self.number(b, NONE), self.number(b, 1));
            let key = b.exprs().ternary(TernaryOp::Where, is_other, none, own);
            let key = b.exprs().ternary(TernaryOp::Where, is_inside, key, none);
            let key = b.exprs().cast(key, SLOT);
            b.store(self.keys, at, key);
            let is_lower = b.exprs().and(is_lower, is_inside);
            let lower = b.load("counted", self.counted, zero);
            let more = b.exprs().ternary(TernaryOp::Where, is_lower, more, nothing);
            let lower = b.exprs().binary(BinaryOp::Add, lower, more);
            b.store(self.counted, zero, lower);
        });
        let lower = b.load("counted", self.counted, zero);
        let lower = share::reduce_lanes(b, lower, BinaryOp::Add);
        self.of_last_lane(b, self.totals[0], lower);
    }

    /// Emits what is done with each position of the thread's stretch that has one of the block's places.
    fn each_listed(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, ExprId)) {
        let width = as_data(b, self.width, DType::I32);
        let start = b.exprs().mul(self.thread, self.each);
        let start = b.let_("stretch", start);
        b.count("item", self.each, Unroll::By(4), |b, item| {
            let position = b.exprs().add(start, item);
            let key = b.load("key", self.keys, position);
            let key = b.exprs().cast(key, DType::I32);
            let is_own = b.exprs().binary(BinaryOp::Lt, key, width);
            b.if_(is_own, |b| body(b, position));
        });
    }

    /// Counts one more, and says how many there were.
    fn count_one(&self, b: &mut KernelBuilder) -> ExprId {
        let (zero, one) = (b.int(0), self.number(b, 1));
        let before = b.load("counted", self.counted, zero);
        let sum = b.exprs().binary(BinaryOp::Add, before, one);
        b.store(self.counted, zero, sum);
        before
    }

    /// Lists the positions that have a place of the block, and says how many there are.
    fn list(&self, b: &mut KernelBuilder) -> ExprId {
        let (zero, nothing) = (b.int(0), self.number(b, 0));
        b.store(self.counted, zero, nothing);
        self.each_listed(b, |b, _| {
            self.count_one(b);
        });
        let before = self.before(b);
        let all = self.total(b, self.totals[1], self.warps());
        let all = b.let_("listed", all);
        b.store(self.counted, zero, before);
        self.each_listed(b, |b, position| {
            let to = self.count_one(b);
            let to = as_index(b, to);
            let position = as_data(b, position, SLOT);
            b.store(self.list, to, position);
        });
        all
    }

    /// How a list of so many is shared: the writers are a power of two.
    fn writers(&self, b: &mut KernelBuilder, listed: ExprId) -> Writers {
        let listed = as_index(b, listed);
        let square = b.int(SQUARE);
        let most = b.exprs().mul(listed, square);
        let mut own = b.int(LEAST_WRITERS);
        let mut more = 2 * LEAST_WRITERS;
        while more <= self.most_writers {
            let (writers, square) = (b.int(more), b.int(more * more));
            let square = b.exprs().mul(square, self.width);
            let is_long = b.exprs().binary(BinaryOp::Le, square, most);
            own = b.exprs().ternary(TernaryOp::Where, is_long, writers, own);
            more *= 2;
        }
        let own = b.let_("writers", own);
        // Where the block has most positions, writers read the list and the keys that far apart.
        let each = odd_index(b, listed, own);
        let each = b.let_("own_listed", each);
        let slots = b.exprs().mul(self.width, own);
        let threads = b.int(self.threads);
        let part = odd_index(b, slots, threads);
        let part = b.let_("slots_of_thread", part);
        Writers { own, listed, each, part }
    }

    /// Emits what writers do with each position of their part of the list: `body` gets the slot of its place, and the
    /// position.
    fn each_own(
        &self,
        b: &mut KernelBuilder,
        writers: &Writers,
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId),
    ) {
        let start = b.exprs().mul(self.thread, writers.each);
        let end = b.exprs().add(start, writers.each);
        let end = b.exprs().index(IndexOp::Min, end, writers.listed);
        // Threads that write nothing have their part behind the list.
        b.for_("item", (start, end, 1), Unroll::By(4), |b, item| {
            let position = b.load("position", self.list, item);
            let position = b.exprs().cast(position, DType::I32);
            let position = as_index(b, position);
            let key = b.load("key", self.keys, position);
            let key = b.exprs().cast(key, DType::I32);
            let key = as_index(b, key);
            let row = b.exprs().mul(key, writers.own);
            let slot = b.exprs().add(row, self.thread);
            let slot = b.let_("slot", slot);
            body(b, slot, position);
        });
    }

    /// Emits how a thread goes through its part of all slots, as they follow each other, and counts on from a number:
    /// `body` gets each slot, and what was counted before it.
    fn count_part(
        &self,
        b: &mut KernelBuilder,
        (writers, from): (&Writers, ExprId),
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId),
    ) {
        let zero = b.int(0);
        b.store(self.counted, zero, from);
        let start = b.exprs().mul(self.thread, writers.part);
        let start = b.let_("part", start);
        b.count("slot", writers.part, Unroll::By(4), |b, number| {
            let slot = b.exprs().add(start, number);
            let more = self.slot(b, slot);
            let before = b.load("counted", self.counted, zero);
            body(b, slot, before);
            let sum = b.exprs().binary(BinaryOp::Add, before, more);
            b.store(self.counted, zero, sum);
        });
    }

    /// Adds up what slots hold, and says how many positions come before the thread's part of them.
    fn add_up(&self, b: &mut KernelBuilder, writers: &Writers) -> ExprId {
        let nothing = self.number(b, 0);
        self.count_part(b, (writers, nothing), |_, _, _| {});
        self.before(b)
    }

    /// How many all threads before have counted.
    fn before(&self, b: &mut KernelBuilder) -> ExprId {
        let (zero, nothing) = (b.int(0), self.number(b, 0));
        let own = b.load("counted", self.counted, zero);
        let add = |b: &mut KernelBuilder, below, own| b.exprs().binary(BinaryOp::Add, below, own);
        let up_to = share::prefix_lanes(b, own, (self.lane, LANES), add);
        self.of_last_lane(b, self.totals[1], up_to);
        b.sync(Scope::Block);
        b.store(self.counted, zero, nothing);
        b.for_("other", (zero, self.warp, 1), Unroll::No, |b, other| {
            let more = b.load("sum", self.totals[1], other);
            let sum = b.load("counted", self.counted, zero);
            let sum = b.exprs().binary(BinaryOp::Add, sum, more);
            b.store(self.counted, zero, sum);
        });
        let warps = b.load("counted", self.counted, zero);
        let below = b.exprs().binary(BinaryOp::Sub, up_to, own);
        let before = b.exprs().binary(BinaryOp::Add, warps, below);
        b.let_("before", before)
    }

    /// Keeps what the last lane of each warp has.
    fn of_last_lane(&self, b: &mut KernelBuilder, totals: BufId, value: ExprId) {
        let last = b.int(LANES - 1);
        let is_last = b.exprs().binary(BinaryOp::Eq, self.lane, last);
        b.if_(is_last, |b| b.store(totals, self.warp, value));
    }

    /// What all warps have.
    fn total(&self, b: &mut KernelBuilder, totals: BufId, warps: i64) -> ExprId {
        let mut sum = self.number(b, 0);
        for warp in 0..warps {
            let warp = b.int(warp);
            let more = b.load("total", totals, warp);
            sum = b.exprs().binary(BinaryOp::Add, sum, more);
        }
        sum
    }

    /// Puts into each slot of the thread's part how many positions come before it, and behind all slots how many there are.
    fn write_prefixes(&self, b: &mut KernelBuilder, writers: &Writers, before: ExprId) {
        let (zero, one) = (b.int(0), b.int(1));
        self.count_part(b, (writers, before), |b, slot, before| self.set_slot(b, slot, before, 0));
        let threads = b.int(self.threads);
        let last = b.exprs().sub(threads, one);
        let is_last = b.exprs().binary(BinaryOp::Eq, self.thread, last);
        b.if_(is_last, |b| {
            let sum = b.load("counted", self.counted, zero);
            let end = b.exprs().mul(writers.part, threads);
            self.set_slot(b, end, sum, 0);
        });
    }

    /// Writes for each of the block's places how many positions have it or a lower one.
    fn write_ends(&self, b: &mut KernelBuilder, writers: &Writers, ends: Lines, lower: ExprId) {
        let (threads, one) = (b.int(self.threads), b.int(1));
        let rounds = b.exprs().ceil_div(self.width, threads);
        b.count("round", rounds, Unroll::No, |b, round| {
            let own = self.beside(b, round);
            let place = b.exprs().add(self.first, own);
            let place = b.let_("place", place);
            let is_own = b.exprs().lt(own, self.width);
            let is_place = b.exprs().lt(place, self.runs.places);
            let is_one = b.exprs().and(is_own, is_place);
            b.if_(is_one, |b| {
                let next = b.exprs().add(own, one);
                let next = b.exprs().mul(next, writers.own);
                let up_to = self.slot(b, next);
                let end = b.exprs().binary(BinaryOp::Add, lower, up_to);
                let to = b.exprs().mul(place, ends.step);
                b.store(ends.buffer, to, end);
            });
        });
    }
}
