//! The kernel that finds who writes last: for each place of a line the last position of an index that holds it.
//!
//! Places are filled with "nobody", and when all are, each element of the index tells its position, of which the greatest
//! stays. A block does so for lines whose places fit its shared memory; else all blocks together do, in the result. An
//! index that is none of the line tells nobody.

use super::Template;
use super::share::{self, Share, as_data, as_index};
use super::walk::{Lines, Walk};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{AtomicOp, BufId, Dim, ExprId, Kernel, KernelBuilder, Launch, Scope};
use crate::num::{BinaryOp, DType};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

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
}

/// Elements of a thread, as long as all blocks have some.
const ITEMS: i64 = 4;
/// Places of a block in shared memory, at least where lines are short and at most where they are long.
const PLACES: [i64; 2] = [2048, 8192];
/// Threads of a block that has lines of its own.
const THREADS: i64 = 256;
/// Elements of an index of a block, where several lines share it.
const LARGEST: i64 = 1 << 14;
/// Elements for which no second block is worth waiting for.
const FEW: i64 = 1 << 14;

/// The shape for so many lines of positions and of places.
pub(super) fn shape(device: &DeviceDesc, [lines, positions, places]: [i64; 3]) -> Result<Shape> {
    if i32::try_from(positions).is_err() {
        let message = format!("a line of {positions} positions, which are no i32");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message));
    }
    let [least, most] = PLACES;
    let all = lines.saturating_mul(positions.max(places));
    if places <= most && (lines >= device.sm_count.into() || all <= FEW) {
        let width = share::power_of_two(places);
        // Short lines share a block, but not where others had none then, or would have to wait for long ones.
        let shared = (lines / i64::from(device.sm_count)).min(least / width).min(LARGEST / positions);
        return Ok(Shape::Block { width: width as u32, lines: shared.max(1) as u32 });
    }
    Ok(Shape::Grid { blocks: share::LARGE.blocks(device, all / (share::LARGE.threads * ITEMS)) })
}

pub(super) fn kernel(template: &Template, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut b = KernelBuilder::new("position", class.index_type());
    b.set_origin(Some(template.fusion.outputs[0]), "last");
    let walk = Walk::new(&mut b, template, class)?;
    let [result] = walk.to[..] else { return Err(Diagnostic::bug("last positions are one result")) };
    let last = Last { walk, result };
    let thread = share::thread(&mut b, Dim::X);
    let (blocks, threads) = match shape {
        Shape::Block { width, lines } => (last.in_block(&mut b, thread, width.into(), lines.into()), THREADS),
        Shape::Grid { blocks } => {
            let share = Share::new(&mut b, share::LARGE, blocks, thread);
            last.in_grid(&mut b, &share);
            (share.blocks, share::LARGE.threads)
        }
    };
    let cooperative = matches!(shape, Shape::Grid { .. });
    let one = b.int(1);
    let block = [b.int(threads), one, one];
    let (max_threads, min_blocks) = (threads as u32, if cooperative { share::LARGE.together } else { 1 });
    Ok(b.finish(Launch { grid: [blocks, one, one], block, max_threads, min_blocks, cooperative }))
}

/// What emits the search.
struct Last {
    walk: Walk,
    result: Lines,
}

impl Last {
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

    /// Tells a place of a line that an element of the index holds the element's position.
    fn tell(
        &self,
        b: &mut KernelBuilder,
        places: BufId,
        at: ExprId,
        start: ExprId,
        slot: impl FnOnce(&mut KernelBuilder, ExprId) -> ExprId,
    ) {
        let (zero, one) = (b.int(0), b.int(1));
        let ahead = b.exprs().mul(at, self.walk.from.step);
        let element = b.exprs().add(start, ahead);
        let place = b.load("place", self.walk.from.buffer, element);
        // Of any type of integers; one that no `i64` holds is negative then.
        let place = b.exprs().cast(place, DType::I64);
        let (first, end) = (as_data(b, zero, DType::I64), as_data(b, self.result.length, DType::I64));
        let is_below = b.exprs().binary(BinaryOp::Lt, place, end);
        let is_place = b.exprs().binary(BinaryOp::Ge, place, first);
        let is_place = b.exprs().binary(BinaryOp::LogicalAnd, is_place, is_below);
        b.if_(is_place, |b| {
            let place = as_index(b, place);
            let slot = slot(b, place);
            let position = b.exprs().add(at, one);
            let position = as_data(b, position, DType::I32);
            b.atomic_drop(AtomicOp::Max, (places, slot), position);
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
        }
    }
}
