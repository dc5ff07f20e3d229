//! The kernel of sums of products in groups: each block makes a tile of a result, and reads from memory where groups end.
//!
//! Where groups split rows, the rows of a tile may be of several groups: the block goes through these, and writes the rows
//! of each as it has them. So a row is summed with the matrix of its own group alone. Where groups split the summed axis,
//! each has a result, whose tiles have blocks of their own. How a tile is summed is told in [`product`].
//!
//! Invariant: ends are kept between 0 and the extent that they split, so that whatever they say nothing outside of the
//! operands is read, and of results nothing outside of the tile is written.

mod memory;
mod product;
mod side;

use self::memory::Memory;
use self::product::{Product, Window};
use super::Template;
use super::share::{self, LANES};
use crate::diag::Result;
use crate::fusion::{Bindings, Fusion, Op, Operand};
use crate::kernel::{BufId, Dim, ExprId, IndexOp, Kernel, KernelBuilder, Launch, Scope, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Threads of a block.
const THREADS: i64 = 256;
/// Rows and columns of a part of a thread's sums.
const SIDE: i64 = 4;
/// Terms of a sum that lie in shared memory at once.
const DEPTH: i64 = 16;

/// Which operands there are, as numbers of inputs, and what groups split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    left: usize,
    right: usize,
    offsets: usize,
    /// The summed axis is split; rows otherwise.
    splits_sums: bool,
}

/// How the threads of a block share a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Threads along rows; the others lie along columns.
    across: u32,
    /// Parts of 4 rows, and of 4 columns, of which a thread has sums.
    parts: u32,
}

impl Shape {
    /// Rows and columns of a tile.
    fn tile(self) -> [i64; 2] {
        let across = i64::from(self.across);
        [across, THREADS / across].map(|threads| threads * SIDE * i64::from(self.parts))
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [rows, columns] = self.tile();
        write!(f, "tile {rows} x {columns} parts {}", self.parts)
    }
}

impl Groups {
    /// Of an operation on inputs of a fusion.
    pub(super) fn of(fusion: &Fusion, op: &Op) -> Option<Self> {
        let [left, right, offsets] = op.inputs[..] else { return None };
        let number = |operand: Operand| fusion.inputs.iter().position(|input| *input == operand);
        let Operand::Tensor(stack) = right else { return None };
        let splits_sums = fusion.tensors[stack].axes.len() == 2;
        let is_one = fusion.outputs.len() == 1;
        is_one.then_some(Self { left: number(left)?, right: number(right)?, offsets: number(offsets)?, splits_sums })
    }
}

/// The shape for sizes: wide tiles where rows of a group are few, large ones where there are enough of them for all
/// multiprocessors.
pub(super) fn shape(template: &Template, device: &DeviceDesc, bindings: &Bindings, groups: Groups) -> Shape {
    let [left, right, ends] = [groups.left, groups.right, groups.offsets].map(|input| template.sizes(bindings, input));
    let count = ends.iter().product::<i64>();
    let (m, n) = (left.first().copied().unwrap_or(1), right.last().copied().unwrap_or(1));
    let is_double = template.fusion.tensors[template.x].dtype == DType::F64;
    let rows = if groups.splits_sums { m } else { m / count.max(1) };
    let large = Shape { across: 16, parts: 2 };
    let [height, width] = large.tile();
    let results = if groups.splits_sums { count } else { 1 };
    let blocks = (m / height).saturating_mul(n / width).saturating_mul(results);
    match rows {
        // Sums of 8 x 8, and long rows of shared memory, have no room.
        _ if is_double => Shape { across: 16, parts: 1 },
        0..=16 if n > width => Shape { across: 4, parts: 1 },
        _ if rows >= height / 2 && blocks >= device.sm_count.into() => large,
        _ => Shape { across: 16, parts: 1 },
    }
}

pub(super) fn kernel(template: &Template, groups: Groups, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut b = KernelBuilder::new(if groups.splits_sums { "sums" } else { "rows" }, class.index_type());
    b.set_origin(Some(template.fusion.outputs[0]), "groups");
    let memory = Memory::new(&mut b, template, groups, class)?;
    let [height, width] = shape.tile();
    let (height, width) = (b.int(height), b.int(width));
    let (down, right) = (b.exprs().ceil_div(memory.rows, height), b.exprs().ceil_div(memory.columns, width));
    let mut blocks = b.exprs().mul(down, right);
    if groups.splits_sums {
        blocks = b.exprs().mul(blocks, memory.count);
    }
    let block = share::block(&mut b);
    let column = b.exprs().rem(block, right);
    let column = b.exprs().mul(column, width);
    let column = b.let_("column", column);
    let rest = b.exprs().div(block, right);
    let row_of = |b: &mut KernelBuilder, tile: ExprId| {
        let row = b.exprs().mul(tile, height);
        b.let_("row", row)
    };
    if groups.splits_sums {
        let tile = b.exprs().rem(rest, down);
        let row = row_of(&mut b, tile);
        let group = b.exprs().div(rest, down);
        let group = b.let_("group", group);
        let product = Product::new(&mut b, &memory, shape, [row, column]);
        one_group(&mut b, &product, group);
    } else {
        let row = row_of(&mut b, rest);
        let last = b.exprs().add(row, height);
        let last = b.exprs().index(IndexOp::Min, last, memory.rows);
        let last = b.let_("last", last);
        let product = Product::new(&mut b, &memory, shape, [row, column]);
        groups_of_rows(&mut b, &product, [row, last]);
    }
    let one = b.int(1);
    let block = [b.int(THREADS), one, one];
    let min_blocks = shape.parts;
    Ok(b.finish(Launch {
        grid: [blocks, one, one],
        block,
        max_threads: THREADS as u32,
        min_blocks,
        cooperative: false,
    }))
}

/// Emits a tile of the result of a group: sums over its part of the summed axis.
fn one_group(b: &mut KernelBuilder, product: &Product<'_>, group: ExprId) {
    let memory = product.memory;
    let (first, last) = memory.group(b, group, memory.terms);
    let depth = b.int(DEPTH);
    // Vectors begin at multiples of their length.
    let start = b.exprs().div(first, depth);
    let start = b.exprs().mul(start, depth);
    let start = b.let_("start", start);
    let zero = b.int(0);
    product.tile(b, group, Window { rows: [zero, memory.rows], terms: [first, last], start });
}

/// Emits a tile of rows of several groups, and of none: the sums of those of each over the whole summed axis.
fn groups_of_rows(b: &mut KernelBuilder, product: &Product<'_>, [row, end]: [ExprId; 2]) {
    let memory = product.memory;
    let (first, last) = groups_between(b, memory, row, end);
    let (zero, one) = (b.int(0), b.int(1));
    let before = b.exprs().sub(first, one);
    let behind = b.exprs().add(last, one);
    let behind = b.exprs().index(IndexOp::Min, behind, memory.count);
    let behind = b.let_("behind", behind);
    b.for_("turn", (before, behind, 1), Unroll::No, |b, turn| {
        // At first all rows are sums over nothing: those of no group are, and ends that do not ascend leave out others.
        let is_group = b.exprs().lt(before, turn);
        let group = b.exprs().index(IndexOp::Max, turn, zero);
        let group = b.let_("group", group);
        let (start, stop) = memory.group(b, group, memory.rows);
        let start = b.exprs().ternary(TernaryOp::Where, is_group, start, row);
        let stop = b.exprs().ternary(TernaryOp::Where, is_group, stop, end);
        let start = b.exprs().index(IndexOp::Max, start, row);
        let stop = b.exprs().index(IndexOp::Min, stop, end);
        let (start, stop) = (b.let_("start", start), b.let_("stop", stop));
        // A group without rows here reads nothing.
        let has_rows = b.exprs().lt(start, stop);
        let is_summed = b.exprs().and(is_group, has_rows);
        let terms = b.exprs().ternary(TernaryOp::Where, is_summed, memory.terms, zero);
        let terms = b.let_("terms", terms);
        // The group before may still be read.
        b.sync(Scope::Block);
        product.tile(b, group, Window { rows: [start, stop], terms: [zero, terms], start: zero });
    });
}

/// The numbers of the groups of the first and the last one of some rows: as many groups end before the row or at it. The
/// lanes of each warp count them together, and a thread tells the block.
fn groups_between(b: &mut KernelBuilder, memory: &Memory, row: ExprId, end: ExprId) -> (ExprId, ExprId) {
    let [counts, found] = [b.local("counts", DType::I32, 2), b.shared("found", DType::I32, 2, 16)];
    let (zero, one) = (b.int(0), b.int(1));
    let [nothing, single] = [0, 1].map(|n| b.exprs().int(n, DType::I32));
    let slots = [zero, one];
    slots.iter().for_each(|slot| b.store(counts, *slot, nothing));
    let thread = share::thread(b, Dim::X);
    let lanes = b.int(LANES);
    let lane = b.exprs().rem(thread, lanes);
    let turns = b.exprs().ceil_div(memory.count, lanes);
    b.count("turn", turns, Unroll::No, |b, turn| {
        let ahead = b.exprs().mul(turn, lanes);
        let group = b.exprs().add(ahead, lane);
        let is_group = b.exprs().lt(group, memory.count);
        b.if_(is_group, |b| {
            let stop = memory.end(b, group, memory.rows);
            let is_before = [b.exprs().binary(BinaryOp::Le, stop, row), b.exprs().lt(stop, end)];
            for (slot, is_before) in slots.into_iter().zip(is_before) {
                let more = b.exprs().ternary(TernaryOp::Where, is_before, single, nothing);
                add(b, counts, slot, more);
            }
        });
    });
    for slot in slots {
        let mut distance = LANES / 2;
        while distance > 0 {
            let own = b.load("own", counts, slot);
            let mask = b.exprs().int(distance, DType::I32);
            let other = b.shuffle("other", own, ShuffleMode::Xor, mask);
            add(b, counts, slot, other);
            distance /= 2;
        }
    }
    let is_first = b.exprs().lt(thread, one);
    b.if_(is_first, |b| {
        for slot in slots {
            let count = b.load("count", counts, slot);
            b.store(found, slot, count);
        }
    });
    b.sync(Scope::Block);
    let [first, last] = slots.map(|slot| {
        let number = b.load("number", found, slot);
        share::as_index(b, number)
    });
    (first, last)
}

fn add(b: &mut KernelBuilder, to: BufId, slot: ExprId, more: ExprId) {
    let held = b.load("held", to, slot);
    let sum = b.exprs().add(held, more);
    b.store(to, slot, sum);
}
