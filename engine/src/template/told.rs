//! The kernel in which elements of an index tell the places that they hold: of each place of a line who writes it last, the last
//! position of the index that holds it, or how many elements do.
//!
//! Places are filled with "nobody", and when all are, each element of the index tells its position, of which the greatest
//! stays, or one, of which there is the sum. A block does so for lines whose places fit its shared memory; else all blocks together
//! do, in the result. Of counts of few places each block has its own in shared memory, and adds them to the result when it has
//! counted its share: so elements of which many hold one place wait for those of their block alone. An index that is none of the
//! line tells nobody.

use super::Template;
use super::share::{self, Share, as_data, as_index};
use super::walk::{Lines, Walk};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{AtomicOp, BufId, Dim, ExprId, Kernel, KernelBuilder, Launch, Scope, Unroll};
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Places that a block counts for itself, at most.
pub const MOST_COUNTED: i64 = 8192;

/// What an element tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// Its position, plus 1: the greatest one stays.
    Position,
    /// One: the sum of them stays. Places are counted from either end.
    One,
}

/// Who shares the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Each block has lines of its own.
    Block {
        /// Places of a line in shared memory.
        width: u32,
        /// Lines of a block.
        lines: u32,
    },
    /// All blocks have all lines.
    Grid {
        /// They run at once.
        blocks: u32,
    },
    /// All blocks have one line, and each has its places in shared memory.
    Parts {
        /// They run at once.
        blocks: u32,
        /// Places in shared memory.
        width: u32,
    },
}

/// Elements of a thread, as long as all blocks have some.
const ITEMS: i64 = 4;
/// Places of a block in shared memory, at least where lines are short and at most where they are long.
const PLACES: [i64; 2] = [2048, MOST_COUNTED];
/// Threads of a block that has lines of its own.
const THREADS: i64 = 256;
/// Elements of an index of a block, where several lines share it.
const LARGEST: i64 = 1 << 14;
/// Elements for which no second block is worth waiting for, and those that are counted: sixteen of a thread, one after the other.
const FEW: i64 = 1 << 14;
const FEW_COUNTED: i64 = 1 << 12;

/// Elements of a thread that are on their way at once, where blocks have places of their own.
const AT_ONCE: i64 = 4;
/// Elements for each place of a block, at least, where blocks have places of their own.
const LEAST_SHARE: i64 = 2;

/// The shape for so many lines of positions and of places.
pub(super) fn shape(device: &DeviceDesc, tells: Tells, [lines, positions, places]: [i64; 3]) -> Result<Shape> {
    if i32::try_from(positions).is_err() {
        let message = format!("a line of {positions} positions, which are no i32");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message));
    }
    let [least, most] = PLACES;
    let all = lines.saturating_mul(positions.max(places));
    let few = if tells == Tells::One && lines == 1 { FEW_COUNTED } else { FEW };
    if places <= most && (lines >= device.sm_count.into() || all <= few) {
        let width = share::power_of_two(places);
        // Short lines share a block, but not where others had none then, or would have to wait for long ones.
        let shared = (lines / i64::from(device.sm_count)).min(least / width).min(LARGEST / positions);
        return Ok(Shape::Block { width: width as u32, lines: shared.max(1) as u32 });
    }
    let blocks = |work: i64| share::LARGE.blocks(device, work / (share::LARGE.threads * ITEMS));
    if tells == Tells::One && lines == 1 && places <= most {
        let width = share::power_of_two(places);
        let own = (share::LARGE.threads * ITEMS).max(LEAST_SHARE * width);
        let blocks = share::LARGE.blocks(device, positions / own);
        return Ok(Shape::Parts { blocks, width: width as u32 });
    }
    Ok(Shape::Grid { blocks: blocks(all) })
}

pub(super) fn kernel(template: &Template, tells: Tells, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let (name, origin) = match tells {
        Tells::Position => ("position", "last"),
        Tells::One => ("elements", "counts"),
    };
    let mut b = KernelBuilder::new(name, class.index_type());
    b.set_origin(Some(template.fusion.outputs[0]), origin);
    let walk = Walk::new(&mut b, template, class)?;
    let [result] = walk.to[..] else { return Err(Diagnostic::bug("what places are told is one result")) };
    let told = Told { tells, walk, result };
    let thread = share::thread(&mut b, Dim::X);
    let (blocks, threads) = match shape {
        Shape::Block { width, lines } => (told.in_block(&mut b, thread, width.into(), lines.into()), THREADS),
        Shape::Grid { blocks } => {
            let share = Share::new(&mut b, share::LARGE, blocks, thread);
            told.in_grid(&mut b, &share);
            (share.blocks, share::LARGE.threads)
        }
        Shape::Parts { blocks, width } => {
            let share = Share::new(&mut b, share::LARGE, blocks, thread);
            told.in_parts(&mut b, &share, width.into());
            (share.blocks, share::LARGE.threads)
        }
    };
    let cooperative = !matches!(shape, Shape::Block { .. });
    let one = b.int(1);
    let block = [b.int(threads), one, one];
    let (max_threads, min_blocks) = (threads as u32, if cooperative { share::LARGE.together } else { 1 });
    Ok(b.finish(Launch { grid: [blocks, one, one], block, max_threads, min_blocks, cooperative }))
}

/// What emits it.
struct Told {
    tells: Tells,
    walk: Walk,
    result: Lines,
}

impl Told {
    /// Lines of a block, whose places lie in shared memory; how many blocks that takes.
    fn in_block(&self, b: &mut KernelBuilder, thread: ExprId, width: i64, lines: i64) -> ExprId {
        let places = b.shared("places", DType::I32, width * lines, 16);
        let (count, wide) = (b.int(lines), b.int(width));
        let share = Share::of_block(b, THREADS, thread);
        let nobody = nobody(b);
        let all = b.int(width * lines);
        share.by_threads(b, all, |b, place| b.store(places, place, nobody));
        b.sync(Scope::Block);
        let block = share::block(b);
        let first = b.exprs().mul(block, count);
        let first = b.let_("first_line", first);
        let slot = |b: &mut KernelBuilder, own: ExprId, place: ExprId| {
            let line = b.exprs().mul(own, wide);
            b.exprs().add(line, place)
        };
        share.by_lines(b, [count, self.walk.from.length], |b, own, at| {
            self.if_row(b, first, own, |b, row| {
                let starts = self.walk.starts(b, row);
                self.tell(b, places, at, starts[0], |b, place| slot(b, own, place));
            });
        });
        b.sync(Scope::Block);
        share.by_lines(b, [count, self.result.length], |b, own, at| {
            self.if_row(b, first, own, |b, row| {
                let from = slot(b, own, at);
                let last = b.load("last", places, from);
                let starts = self.walk.starts(b, row);
                let ahead = b.exprs().mul(at, self.result.step);
                let to = b.exprs().add(starts[1], ahead);
                b.store(self.result.buffer, to, last);
            });
        });
        b.exprs().ceil_div(self.walk.rows, count)
    }

    /// What is done with a line of the block, if there is such a one.
    fn if_row(&self, b: &mut KernelBuilder, first: ExprId, own: ExprId, body: impl FnOnce(&mut KernelBuilder, ExprId)) {
        let row = b.exprs().add(first, own);
        let row = b.let_("line", row);
        let is_row = b.exprs().lt(row, self.walk.rows);
        b.if_(is_row, |b| body(b, row));
    }

    /// All lines, whose places lie in the result.
    fn in_grid(&self, b: &mut KernelBuilder, share: &Share) {
        let nobody = nobody(b);
        // Places lie in the order of the result, however its axes do.
        let all = b.exprs().mul(self.walk.rows, self.result.length);
        share.by_threads(b, all, |b, place| b.store(self.result.buffer, place, nobody));
        b.sync(Scope::Grid);
        share.by_lines(b, [self.walk.rows, self.walk.from.length], |b, row, at| {
            let starts = self.walk.starts(b, row);
            self.tell(b, self.result.buffer, at, starts[0], |b, place| {
                let ahead = b.exprs().mul(place, self.result.step);
                b.exprs().add(starts[1], ahead)
            });
        });
    }

    /// One line, of whose places each block has some of its own first.
    fn in_parts(&self, b: &mut KernelBuilder, share: &Share, width: i64) {
        let places = b.shared("places", DType::I32, width, 16);
        let held = b.local("held", DType::I64, AT_ONCE);
        let own = Share::of_block(b, share.threads, share.thread);
        let (nobody, zero, wide) = (nobody(b), b.int(0), b.int(width));
        own.by_threads(b, wide, |b, place| b.store(places, place, nobody));
        share.by_threads(b, self.result.length, |b, place| b.store(self.result.buffer, place, nobody));
        b.sync(Scope::Block);
        let start = self.walk.starts(b, zero)[0];
        // Of the elements of a thread all are on their way before one is told.
        let (length, most) = (self.walk.from.length, b.int(AT_ONCE));
        let rounds = b.exprs().ceil_div(length, most);
        let rounds = b.let_("rounds", rounds);
        share.by_threads(b, rounds, |b, first| {
            let place = |b: &mut KernelBuilder, i: ExprId| {
                let ahead = b.exprs().mul(rounds, i);
                let at = b.exprs().add(first, ahead);
                (at, b.exprs().lt(at, length))
            };
            b.count("i", most, Unroll::Full, |b, i| {
                let (at, is_one) = place(b, i);
                b.if_(is_one, |b| {
                    let place = self.place(b, at, start);
                    b.store(held, i, place);
                });
            });
            b.count("i", most, Unroll::Full, |b, i| {
                let (at, is_one) = place(b, i);
                b.if_(is_one, |b| {
                    let place = b.load("held_place", held, i);
                    self.tell_place(b, (places, place), at, |_, place| place);
                });
            });
        });
        b.sync(Scope::Grid);
        own.by_threads(b, self.result.length, |b, place| {
            let count = b.load("count", places, place);
            let is_some = b.exprs().binary(BinaryOp::Ne, count, nobody);
            b.if_(is_some, |b| b.atomic_drop(AtomicOp::Add, (self.result.buffer, place), count));
        });
    }

    /// The place that an element of an index holds. One that no `i64` holds is negative then.
    fn place(&self, b: &mut KernelBuilder, at: ExprId, start: ExprId) -> ExprId {
        let ahead = b.exprs().mul(at, self.walk.from.step);
        let element = b.exprs().add(start, ahead);
        let place = b.load("place", self.walk.from.buffer, element);
        b.exprs().cast(place, DType::I64)
    }

    /// Tells the place of a line that an element of the index holds.
    fn tell(
        &self,
        b: &mut KernelBuilder,
        places: BufId,
        at: ExprId,
        start: ExprId,
        slot: impl FnOnce(&mut KernelBuilder, ExprId) -> ExprId,
    ) {
        let place = self.place(b, at, start);
        self.tell_place(b, (places, place), at, slot);
    }

    /// Tells a place what an element of a number tells.
    fn tell_place(
        &self,
        b: &mut KernelBuilder,
        (places, mut place): (BufId, ExprId),
        at: ExprId,
        slot: impl FnOnce(&mut KernelBuilder, ExprId) -> ExprId,
    ) {
        let (zero, one) = (b.int(0), b.int(1));
        let (first, end) = (as_data(b, zero, DType::I64), as_data(b, self.result.length, DType::I64));
        if self.tells == Tells::One && !b.buffer(self.walk.from.buffer).dtype.is_unsigned() {
            let is_negative = b.exprs().binary(BinaryOp::Lt, place, first);
            let behind = b.exprs().binary(BinaryOp::Add, place, end);
            place = b.exprs().ternary(TernaryOp::Where, is_negative, behind, place);
            place = b.let_("from_start", place);
        }
        let is_below = b.exprs().binary(BinaryOp::Lt, place, end);
        let is_place = b.exprs().binary(BinaryOp::Ge, place, first);
        let is_place = b.exprs().binary(BinaryOp::LogicalAnd, is_place, is_below);
        b.if_(is_place, |b| {
            let place = as_index(b, place);
            let slot = slot(b, place);
            let (op, told) = match self.tells {
                Tells::Position => (AtomicOp::Max, b.exprs().add(at, one)),
                Tells::One => (AtomicOp::Add, one),
            };
            let told = as_data(b, told, DType::I32);
            b.atomic_drop(op, (places, slot), told);
        });
    }
}

/// The position of nobody.
fn nobody(b: &mut KernelBuilder) -> ExprId {
    let zero = b.int(0);
    as_data(b, zero, DType::I32)
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Block { width, lines } => write!(f, "block width {width} lines {lines}"),
            Self::Grid { blocks } => write!(f, "grid blocks {blocks}"),
            Self::Parts { blocks, width } => write!(f, "parts blocks {blocks} width {width}"),
        }
    }
}
