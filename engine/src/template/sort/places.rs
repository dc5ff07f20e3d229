//! The kernel that orders positions by the places that an index holds: where the run of each place ends, and the positions
//! of all runs.
//!
//! Places are numbers below a known one, so nothing is compared: positions move by one digit of their place after the other,
//! the lowest first, and keep their order among equal digits. Each block has a stretch of positions. For a digit all blocks
//! count theirs; then a block knows how many come before its own, and goes through its stretch in tiles, of which each
//! warp brings a part into the order of the digit in its registers ([`Line`]). An index that is no place has a place behind
//! all others, and so is in no run. In the end the position behind a run is looked up by halves, in what has the place's
//! last digit; where a place is one digit, it is counted. Few positions are ordered by [`super::owned`].
//!
//! Invariant: each position is written once, and ends are between 0 and the number of positions, whatever the index holds.

use super::super::Template;
use super::super::share::{self, LANES, LARGE, Share, as_data, as_index};
use super::super::walk::Lines;
use super::runs::Runs;
use super::warp::Line;
use super::words::{self, Item, Words};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{
    AtomicOp, BufId, CacheHint, ExprId, IndexOp, Kernel, KernelBuilder, Launch, Scope, ShuffleMode, Unroll,
};
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Threads of a block, and its warps.
const THREADS: i64 = LARGE.threads;
const WARPS: i64 = THREADS / LANES;
/// Bits of a digit, at most: a thread has one digit.
const MOST_BITS: u32 = THREADS.ilog2();
/// Items of a lane, where there are few tiles and elsewhere.
const EACH: [i64; 2] = [4, 8];
const FEW_TILES: i64 = 64;
/// Places whose ends a thread looks up, as long as all blocks have some.
const PLACES: i64 = 4;
/// Bits of the position in an item.
const SHIFT: i64 = 16;

/// How positions are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Items of a lane.
    each: u32,
    /// Bits of a digit, and how many there are.
    bits: u32,
    digits: u32,
    /// Blocks that run at once.
    blocks: u32,
    /// Halves after which an end is found.
    halves: u32,
    /// Whether places are no `i32`.
    wide: bool,
}

impl Shape {
    /// Whether a place is one digit, so that what is counted of digits are ends.
    pub(in super::super) fn is_one_digit(self) -> bool {
        self.digits == 1
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { each, bits, digits, blocks, halves, wide } = self;
        let wide = if *wide { " wide" } else { "" };
        write!(f, "each {each} digits {digits} of {bits} bits blocks {blocks} halves {halves}{wide}")
    }
}

/// The shape for so many positions and places.
pub(in super::super) fn shape(device: &DeviceDesc, [positions, places]: [i64; 2]) -> Result<Shape> {
    if i32::try_from(positions).is_err() {
        let message = format!("{positions} positions, which are no i32, are not ordered by a kernel");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message));
    }
    let tiles = |each: i64| super::ceil_div(positions, THREADS * each);
    let each = if tiles(EACH[0]) <= FEW_TILES { EACH[0] } else { EACH[1] };
    // The place behind all is one, too.
    let bits = bits(places).max(1);
    let digits = bits.div_ceil(MOST_BITS);
    let work = tiles(each).max(places / (THREADS * PLACES));
    Ok(Shape {
        each: each as u32,
        bits: bits.div_ceil(digits),
        digits,
        blocks: work.clamp(1, device.sm_count.into()) as u32,
        halves: self::bits(positions).next_multiple_of(4),
        wide: i32::try_from(places).is_err(),
    })
}

fn bits(n: i64) -> u32 {
    i64::BITS - n.leading_zeros()
}

pub(in super::super) fn kernel(template: &Template, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut builder = KernelBuilder::new("places", class.index_type());
    let b = &mut builder;
    b.set_origin(Some(template.fusion.outputs[0]), "runs");
    let orderer = Orderer::new(b, template, shape, class)?;
    orderer.emit(b);
    let [lanes, warps, one] = [LANES, WARPS, 1].map(|n| b.int(n));
    let cooperative = shape.blocks > 1;
    let launch = Launch {
        grid: [orderer.share.blocks, one, one],
        block: [lanes, warps, one],
        max_threads: THREADS as u32,
        min_blocks: 1,
        cooperative,
    };
    Ok(builder.finish(launch))
}

/// What emits the order.
struct Orderer {
    shape: Shape,
    runs: Runs,
    share: Share,
    block: ExprId,
    thread: ExprId,
    warp: ExprId,
    line: Line,
    /// The first position of the block, and its tiles.
    start: ExprId,
    tiles: ExprId,
    /// Places and positions from digit to digit, in turns.
    keys: Vec<BufId>,
    moved: Vec<BufId>,
    /// How many positions of each block have each digit.
    counts: BufId,
    room: Room,
}

/// Memory of a block and of a thread.
struct Room {
    /// For each digit where the next position goes.
    next: BufId,
    /// The same for each warp, less its place among the warp's items.
    slots: BufId,
    /// Parts of counts: of all blocks, and of those before this one.
    parts: [BufId; 2],
    /// How many positions have a digit or a lower one, twice.
    sums: BufId,
    /// Of a thread: what it has counted, and the bounds of what it looks at.
    counted: BufId,
    bounds: BufId,
}

impl Orderer {
    fn new(b: &mut KernelBuilder, template: &Template, shape: Shape, class: &ArgClass) -> Result<Self> {
        let runs = Runs::new(b, template, class)?;
        let [lane, warp, thread] = share::lane_warp_thread(b);
        let share = Share::new(b, LARGE, shape.blocks, thread);
        let block = share::block(b);
        let length = runs.index.length;
        let tile = b.int(THREADS * i64::from(shape.each));
        let all = b.exprs().ceil_div(length, tile);
        let tiles = b.exprs().ceil_div(all, share.blocks);
        let tiles = b.let_("tiles", tiles);
        let own = b.exprs().mul(tiles, tile);
        let start = b.exprs().mul(block, own);
        let start = b.let_("start", start);
        let words = Words { form: words::Form::Half, dtype: DType::I16, descending: false };
        let each = i64::from(shape.each);
        let line = Line { words, items: words.local(b, each), each, lane };
        let key = if shape.wide { DType::I64 } else { DType::I32 };
        let turns = |b: &mut KernelBuilder, name: &str, dtype: DType, count: u32| -> Vec<BufId> {
            (0..count.min(2)).map(|turn| b.workspace(format!("{name}_{turn}"), dtype, length, 16, false)).collect()
        };
        // Ends of one digit are counted, and nobody asks for places in order.
        let moves = if shape.is_one_digit() { 0 } else { shape.digits };
        let keys = turns(b, "keys", key, moves);
        let moved = turns(b, "moved", DType::I32, shape.digits - 1);
        let digits = 1 << shape.bits;
        let counted = b.int(i64::from(shape.blocks) * digits);
        let counts = b.workspace("counts", DType::I32, counted, 16, false);
        let shared = |b: &mut KernelBuilder, name: &str, len: i64| b.shared(name, DType::I32, len, 16);
        let room = Room {
            next: shared(b, "next", digits),
            slots: shared(b, "slots", WARPS * digits),
            parts: ["part_of_all", "part_before"].map(|name| shared(b, name, THREADS)),
            sums: shared(b, "sums", 2 * digits),
            counted: b.local("counted", DType::I32, 2),
            bounds: b.local("bounds", DType::I32, 2),
        };
        Ok(Self { shape, runs, share, block, thread, warp, line, start, tiles, keys, moved, counts, room })
    }

    fn digits(&self) -> i64 {
        1 << self.shape.bits
    }

    fn emit(&self, b: &mut KernelBuilder) {
        for digit in 0..self.shape.digits {
            if digit > 0 {
                self.sync_all(b);
            }
            self.count(b, digit);
            self.sync_all(b);
            self.find_first(b);
            self.move_all(b, digit);
        }
        match self.runs.ends {
            Some(ends) if self.shape.is_one_digit() => self.write_counted(b, ends),
            Some(ends) => {
                self.sync_all(b);
                self.write_ends(b, ends);
            }
            None => {}
        }
    }

    /// Waits for all blocks. One alone needs no launch of blocks that wait for each other.
    fn sync_all(&self, b: &mut KernelBuilder) {
        b.sync(if self.shape.blocks > 1 { Scope::Grid } else { Scope::Block });
    }

    fn number(&self, b: &mut KernelBuilder, n: i64) -> ExprId {
        b.exprs().int(n, DType::I32)
    }

    fn key_type(&self) -> DType {
        if self.shape.wide { DType::I64 } else { DType::I32 }
    }

    /// The place of an element before a digit is looked at: of the index, or as the digit before left it.
    fn key(&self, b: &mut KernelBuilder, digit: u32, at: ExprId) -> ExprId {
        if digit > 0 {
            return b.load_hinted("key", self.keys[(digit as usize - 1) % 2], at, CacheHint::Global);
        }
        let place = self.runs.place(b, at);
        let place = b.exprs().cast(place, self.key_type());
        b.let_("key", place)
    }

    /// A digit of a place, as an `i32`.
    fn digit(&self, b: &mut KernelBuilder, digit: u32, key: ExprId) -> ExprId {
        let dtype = self.key_type();
        let by = b.exprs().int(i64::from(digit * self.shape.bits), dtype);
        let mask = b.exprs().int(self.digits() - 1, dtype);
        let rest = if digit == 0 { key } else { b.exprs().binary(BinaryOp::ShiftRight, key, by) };
        let own = b.exprs().binary(BinaryOp::BitwiseAnd, rest, mask);
        b.exprs().cast(own, DType::I32)
    }

    /// For the thread that has a digit, if it has one.
    fn if_digit(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder)) {
        let digits = b.int(self.digits());
        let is_digit = b.exprs().lt(self.thread, digits);
        b.if_(is_digit, body);
    }

    /// A position of the index, or its last one. There is one.
    fn last_or(&self, b: &mut KernelBuilder, at: ExprId) -> ExprId {
        let one = b.int(1);
        let last = b.exprs().sub(self.runs.index.length, one);
        b.exprs().index(IndexOp::Min, at, last)
    }

    /// Counts how many positions of the block have each value of a digit.
    fn count(&self, b: &mut KernelBuilder, digit: u32) {
        let (nothing, one) = (self.number(b, 0), self.number(b, 1));
        self.if_digit(b, |b| b.store(self.room.next, self.thread, nothing));
        b.sync(Scope::Block);
        let (each, threads) = (b.int(self.line.each), b.int(THREADS));
        let tile = b.exprs().mul(each, threads);
        let keys = b.local("tile_keys", self.key_type(), self.line.each);
        b.count("tile", self.tiles, Unroll::No, |b, number| {
            let before = b.exprs().mul(number, tile);
            let first = b.exprs().add(self.start, before);
            let first = b.let_("first", first);
            let is_tile = b.exprs().lt(first, self.runs.index.length);
            let at = |b: &mut KernelBuilder, round: ExprId| {
                let before = b.exprs().mul(round, threads);
                let at = b.exprs().add(first, before);
                b.exprs().add(at, self.thread)
            };
            b.if_(is_tile, |b| {
                // All are on their way at once: an atomic operation waits for what was read before it.
                self.line.each(b, |b, round| {
                    let at = at(b, round);
                    let at = self.last_or(b, at);
                    let key = self.key(b, digit, at);
                    b.store(keys, round, key);
                });
                self.line.each(b, |b, round| {
                    let at = at(b, round);
                    let is_inside = b.exprs().lt(at, self.runs.index.length);
                    b.if_(is_inside, |b| {
                        let key = b.load("key", keys, round);
                        let own = self.digit(b, digit, key);
                        let own = as_index(b, own);
                        b.atomic_drop(AtomicOp::Add, (self.room.next, own), one);
                    });
                });
            });
        });
        b.sync(Scope::Block);
        self.if_digit(b, |b| {
            let count = b.load("count", self.room.next, self.thread);
            let digits = b.int(self.digits());
            let row = b.exprs().mul(self.block, digits);
            let to = b.exprs().add(row, self.thread);
            b.store_hinted(self.counts, to, count, CacheHint::Global);
        });
    }

    /// Finds for each digit where the block's first position with it goes: behind those of lower digits, and of blocks
    /// before.
    fn find_first(&self, b: &mut KernelBuilder) {
        self.add_blocks(b);
        b.sync(Scope::Block);
        let (room, digits) = (&self.room, self.digits());
        let shares = THREADS / digits;
        let [all, before] = [b.int(0), b.int(1)];
        let (thread, room_sums) = (self.thread, room.sums);
        self.if_digit(b, |b| {
            for (which, part) in [all, before].into_iter().zip(room.parts) {
                let mut sum = None;
                for share in 0..shares {
                    let ahead = b.int(share * digits);
                    let from = b.exprs().add(ahead, thread);
                    let more = b.load("part", part, from);
                    sum = Some(match sum {
                        None => more,
                        Some(sum) => b.exprs().binary(BinaryOp::Add, sum, more),
                    });
                }
                if let Some(sum) = sum {
                    b.store(room.counted, which, sum);
                }
            }
            let total = b.load("total", room.counted, all);
            b.store(room_sums, thread, total);
        });
        b.sync(Scope::Block);
        for step in 0..self.shape.bits {
            self.add_neighbours(b, step);
            b.sync(Scope::Block);
        }
        self.if_digit(b, |b| {
            let up_to = self.up_to(b, thread);
            let [total, first] = [all, before].map(|which| b.load("counted", room.counted, which));
            let below = b.exprs().binary(BinaryOp::Sub, up_to, total);
            let first = b.exprs().binary(BinaryOp::Add, below, first);
            b.store(room.next, thread, first);
        });
        b.sync(Scope::Block);
    }

    /// Adds what blocks have of each digit: all of them, and those before this one. Several threads share a digit.
    fn add_blocks(&self, b: &mut KernelBuilder) {
        let digits = self.digits();
        let shares = THREADS / digits;
        let (width, step, blocks) = (b.int(digits), b.int(shares), b.int(self.shape.blocks.into()));
        let [all, before] = [b.int(0), b.int(1)];
        let (own, part) = (b.exprs().rem(self.thread, width), b.exprs().div(self.thread, width));
        let (own, part) = (b.let_("own_digit", own), b.let_("own_part", part));
        let nothing = self.number(b, 0);
        [all, before].into_iter().for_each(|which| b.store(self.room.counted, which, nothing));
        let rounds = b.exprs().ceil_div(blocks, step);
        b.count("round", rounds, Unroll::By(8), |b, round| {
            let other = b.exprs().mul(round, step);
            let other = b.exprs().add(other, part);
            let other = b.let_("other_block", other);
            let is_block = b.exprs().lt(other, blocks);
            b.if_(is_block, |b| {
                let row = b.exprs().mul(other, width);
                let from = b.exprs().add(row, own);
                let more = b.load_hinted("more", self.counts, from, CacheHint::Global);
                let is_before = b.exprs().lt(other, self.block);
                let nothing = self.number(b, 0);
                let more_before = b.exprs().ternary(TernaryOp::Where, is_before, more, nothing);
                for (which, more) in [(all, more), (before, more_before)] {
                    let sum = b.load("sum", self.room.counted, which);
                    let sum = b.exprs().binary(BinaryOp::Add, sum, more);
                    b.store(self.room.counted, which, sum);
                }
            });
        });
        for (which, part) in [all, before].into_iter().zip(self.room.parts) {
            let sum = b.load("sum", self.room.counted, which);
            b.store(part, self.thread, sum);
        }
    }

    /// A step of sums up to each digit: adds what is so many digits before, from one half of the memory into the other.
    fn add_neighbours(&self, b: &mut KernelBuilder, step: u32) {
        let (digits, distance) = (self.digits(), b.int(1 << step));
        let [from, to] = [step % 2, 1 - step % 2].map(|half| b.int(i64::from(half) * digits));
        self.if_digit(b, |b| {
            let at = b.exprs().add(from, self.thread);
            let own = b.load("own_sum", self.room.sums, at);
            let to = b.exprs().add(to, self.thread);
            b.store(self.room.sums, to, own);
            let is_behind = b.exprs().lt(self.thread, distance);
            b.if_else(
                is_behind,
                |_| {},
                |b| {
                    let before = b.exprs().sub(at, distance);
                    let more = b.load("more", self.room.sums, before);
                    let sum = b.exprs().binary(BinaryOp::Add, own, more);
                    b.store(self.room.sums, to, sum);
                },
            );
        });
    }

    /// How many positions have a digit or a lower one.
    fn up_to(&self, b: &mut KernelBuilder, digit: ExprId) -> ExprId {
        let half = b.int(i64::from(self.shape.bits % 2) * self.digits());
        let at = b.exprs().add(half, digit);
        b.load("up_to", self.room.sums, at)
    }

    /// Moves the block's positions by a digit, tile by tile.
    fn move_all(&self, b: &mut KernelBuilder, digit: u32) {
        let (tile, part) = (b.int(THREADS * self.line.each), b.int(LANES * self.line.each));
        let part = b.exprs().mul(self.warp, part);
        b.count("tile", self.tiles, Unroll::No, |b, number| {
            let before = b.exprs().mul(number, tile);
            let first = b.exprs().add(self.start, before);
            let first = b.exprs().add(first, part);
            let first = b.let_("first", first);
            self.sort(b, digit, first);
            self.share_slots(b);
            self.mark_runs(b);
            self.write(b, digit, first);
            b.sync(Scope::Block);
        });
    }

    /// Brings a warp's part of a tile into the order of a digit, and counts for each warp how many have it.
    fn sort(&self, b: &mut KernelBuilder, digit: u32, first: ExprId) {
        let (nothing, one) = (self.number(b, 0), self.number(b, 1));
        let all = b.int(WARPS * self.digits());
        let own = Share::of_block(b, THREADS, self.thread);
        own.by_threads(b, all, |b, slot| b.store(self.room.slots, slot, nothing));
        b.sync(Scope::Block);
        let rest = b.exprs().sub(self.runs.index.length, first);
        let is_part = b.exprs().bool(true);
        self.line.fill(b, (rest, is_part), |b, at| {
            let from = b.exprs().add(first, at);
            let key = self.key(b, digit, from);
            let own = self.digit(b, digit, key);
            let own = b.exprs().cast(own, DType::I16);
            self.line.words.item(b, own, at)
        });
        self.line.each(b, |b, j| {
            let item = self.line.get(b, j);
            self.if_some(b, item, |b| {
                let slot = self.slot(b, item);
                b.atomic_drop(AtomicOp::Add, (self.room.slots, slot), one);
            });
        });
        self.line.sort(b);
        b.sync(Scope::Block);
    }

    fn if_some(&self, b: &mut KernelBuilder, item: Item, body: impl FnOnce(&mut KernelBuilder)) {
        let is_some = self.line.words.is_some(b, item);
        b.if_(is_some, body);
    }

    /// The digit of an item.
    fn digit_of(&self, b: &mut KernelBuilder, item: Item) -> ExprId {
        let key = self.line.words.key(b, item);
        let by = self.number(b, SHIFT);
        b.exprs().binary(BinaryOp::ShiftRight, key, by)
    }

    /// What the warp knows of the digit of an item.
    fn slot(&self, b: &mut KernelBuilder, item: Item) -> ExprId {
        let digits = b.int(self.digits());
        let row = b.exprs().mul(self.warp, digits);
        let digit = self.digit_of(b, item);
        let digit = as_index(b, digit);
        b.exprs().add(row, digit)
    }

    /// Says for each digit where the items of each warp go, one warp behind the other.
    fn share_slots(&self, b: &mut KernelBuilder) {
        self.if_digit(b, |b| {
            let mut next = b.load("next", self.room.next, self.thread);
            for warp in 0..WARPS {
                let row = b.int(warp * self.digits());
                let slot = b.exprs().add(row, self.thread);
                let count = b.load("count", self.room.slots, slot);
                b.store(self.room.slots, slot, next);
                let sum = b.exprs().binary(BinaryOp::Add, next, count);
                next = b.let_("next", sum);
            }
            b.store(self.room.next, self.thread, next);
        });
        b.sync(Scope::Block);
    }

    /// Takes from where the items of a digit go the place of the first of them among those of the warp.
    fn mark_runs(&self, b: &mut KernelBuilder) {
        let (words, each) = (self.line.words, self.line.each);
        let last = b.int(each - 1);
        let last = self.line.get(b, last);
        let one = self.number(b, 1);
        let mut before = words.shuffle(b, last, ShuffleMode::Up, one);
        let own = b.int(each);
        let own = b.exprs().mul(self.line.lane, own);
        for j in 0..each {
            let (number, zero) = (b.int(j), b.int(0));
            let item = self.line.get(b, number);
            let at = b.exprs().add(own, number);
            let [digit, digit_before] = [item, before].map(|item| self.digit_of(b, item));
            let is_first = b.exprs().binary(BinaryOp::Eq, at, zero);
            let is_other = b.exprs().binary(BinaryOp::Ne, digit, digit_before);
            let is_run = b.exprs().binary(BinaryOp::LogicalOr, is_first, is_other);
            let is_some = words.is_some(b, item);
            let is_run = b.exprs().and(is_run, is_some);
            b.if_(is_run, |b| {
                let slot = self.slot(b, item);
                let first = b.load("first", self.room.slots, slot);
                let at = as_data(b, at, DType::I32);
                let less = b.exprs().binary(BinaryOp::Sub, first, at);
                b.store(self.room.slots, slot, less);
            });
            before = item;
        }
        b.sync(Scope::Block);
    }

    /// Writes places and positions in the order of a digit.
    fn write(&self, b: &mut KernelBuilder, digit: u32, first: ExprId) {
        let each = b.int(self.line.each);
        let own = b.exprs().mul(self.line.lane, each);
        let is_last = digit + 1 == self.shape.digits;
        let moves_keys = !is_last || (self.runs.ends.is_some() && !self.shape.is_one_digit());
        let turn = digit as usize % 2;
        let keys = moves_keys.then(|| b.local("moved_keys", self.key_type(), self.line.each));
        let positions = (digit > 0).then(|| b.local("moved_positions", DType::I32, self.line.each));
        let from = |b: &mut KernelBuilder, item: Item| {
            let from = self.line.words.place(b, item);
            let from = as_index(b, from);
            b.exprs().add(first, from)
        };
        // All are read before the first is written, so that they are on their way at once.
        let is_part = b.exprs().lt(first, self.runs.index.length);
        b.if_(is_part, |b| {
            self.line.each(b, |b, j| {
                let item = self.line.get(b, j);
                let from = from(b, item);
                let from = self.last_or(b, from);
                let from = b.let_("from", from);
                if let Some(positions) = positions {
                    let position = b.load_hinted("position", self.moved[1 - turn], from, CacheHint::Global);
                    b.store(positions, j, position);
                }
                if let Some(keys) = keys {
                    let key = self.key(b, digit, from);
                    b.store(keys, j, key);
                }
            });
        });
        self.line.each(b, |b, j| {
            let item = self.line.get(b, j);
            let at = b.exprs().add(own, j);
            self.if_some(b, item, |b| {
                let slot = self.slot(b, item);
                let less = b.load("to", self.room.slots, slot);
                let less = as_index(b, less);
                let to = b.exprs().add(less, at);
                let to = b.let_("to", to);
                let position = match positions {
                    Some(positions) => b.load("position", positions, j),
                    None => {
                        let from = from(b, item);
                        as_data(b, from, DType::I32)
                    }
                };
                match (is_last, self.runs.order) {
                    (false, _) => b.store_hinted(self.moved[turn], to, position, CacheHint::Global),
                    (true, Some(order)) => {
                        let to = b.exprs().mul(to, order.step);
                        b.store(order.buffer, to, position);
                    }
                    (true, None) => {}
                }
                if let Some(keys) = keys {
                    let key = b.load("key", keys, j);
                    b.store_hinted(self.keys[turn], to, key, CacheHint::Global);
                }
            });
        });
    }

    /// Writes for each place how many positions have the digit that it is or a lower one.
    fn write_counted(&self, b: &mut KernelBuilder, ends: Lines) {
        self.share.by_threads(b, self.runs.places, |b, place| {
            let end = self.up_to(b, place);
            let to = b.exprs().mul(place, ends.step);
            b.store(ends.buffer, to, end);
        });
    }

    /// Writes for each place how many positions have it or a lower one.
    fn write_ends(&self, b: &mut KernelBuilder, ends: Lines) {
        let last = self.shape.digits - 1;
        let keys = self.keys[last as usize % 2];
        self.share.by_threads(b, self.runs.places, |b, place| {
            let key = as_data(b, place, self.key_type());
            let key = b.let_("own_key", key);
            let digit = self.digit(b, last, key);
            let digit = as_index(b, digit);
            let digit = b.let_("digit", digit);
            self.bound(b, digit);
            let halves = b.int(self.shape.halves.into());
            b.count("half", halves, Unroll::No, |b, _| self.halve(b, keys, key));
            let zero = b.int(0);
            let end = b.load("end", self.room.bounds, zero);
            let to = b.exprs().mul(place, ends.step);
            b.store(ends.buffer, to, end);
        });
    }

    /// Sets the bounds to those of the positions that have a last digit.
    fn bound(&self, b: &mut KernelBuilder, digit: ExprId) {
        let (zero, one, nothing) = (b.int(0), b.int(1), self.number(b, 0));
        let high = self.up_to(b, digit);
        b.store(self.room.bounds, zero, nothing);
        b.store(self.room.bounds, one, high);
        let is_first = b.exprs().lt(digit, one);
        b.if_else(
            is_first,
            |_| {},
            |b| {
                let before = b.exprs().sub(digit, one);
                let low = self.up_to(b, before);
                b.store(self.room.bounds, zero, low);
            },
        );
    }

    /// Looks at the middle of what is between the bounds.
    fn halve(&self, b: &mut KernelBuilder, keys: BufId, key: ExprId) {
        let (zero, one) = (b.int(0), b.int(1));
        let [low, high] = [zero, one].map(|which| b.load("bound", self.room.bounds, which));
        let is_open = b.exprs().binary(BinaryOp::Lt, low, high);
        b.if_(is_open, |b| {
            // Their sum may be no `i32`.
            let next = self.number(b, 1);
            let rest = b.exprs().binary(BinaryOp::Sub, high, low);
            let half = b.exprs().binary(BinaryOp::ShiftRight, rest, next);
            let middle = b.exprs().binary(BinaryOp::Add, low, half);
            let middle = b.let_("middle", middle);
            let at = as_index(b, middle);
            let other = b.load_hinted("other", keys, at, CacheHint::Global);
            let is_behind = b.exprs().binary(BinaryOp::Le, other, key);
            let behind = b.exprs().binary(BinaryOp::Add, middle, next);
            let low = b.exprs().ternary(TernaryOp::Where, is_behind, behind, low);
            let high = b.exprs().ternary(TernaryOp::Where, is_behind, high, middle);
            b.store(self.room.bounds, zero, low);
            b.store(self.room.bounds, one, high);
        });
    }
}
