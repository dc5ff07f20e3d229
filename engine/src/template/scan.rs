//! The kernel of a scan: blocks go through their rows tile by tile, and carry what is behind them in registers.
//!
//! Of a tile each thread holds `items` elements. Their prefixes are made in three steps: within what a thread or a
//! warp holds, over the threads or warps that share a row, by their totals in shared memory, and with what the tiles
//! before come to. Elements of small types are combined in a larger one, and each prefix is rounded once.

use super::walk::Walk;
use super::{Shape, Template};
use crate::diag::Result;
use crate::kernel::{BufId, Dim, ExprId, Kernel, KernelBuilder, Launch, Scope, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, eval};
use crate::schedule::ArgClass;

/// Lanes of a warp.
const LANES: i64 = 32;
/// Elements of a thread of one tile, at most.
const ITEMS: i64 = 8;
/// Warps of a block, at least where rows are short and at most where they are long.
const WARPS: [i64; 2] = [8, 16];

/// The power of two that is at least `n`, between 1 and `most`, which is one.
fn power(n: i64, most: i64) -> i64 {
    n.clamp(1, most).unsigned_abs().next_power_of_two() as i64
}

/// The shape for rows of a length, which lie along the innermost axis or not.
pub(super) fn shape(length: i64, is_innermost: bool) -> Shape {
    let [few, many] = WARPS;
    let wide = |n: i64| n as u32;
    if !is_innermost {
        let items = power(length, ITEMS);
        return Shape::Across { parts: wide(power((length + items - 1) / items, many)), items: wide(items) };
    }
    let items = power((length + LANES - 1) / LANES, ITEMS);
    let warps = power((length + items * LANES - 1) / (items * LANES), many);
    Shape::Along { warps: wide(warps), rows: wide((few / warps).max(1)), items: wide(items) }
}

pub(super) fn kernel(template: &Template, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let index = if class.index64 { DType::I64 } else { DType::I32 };
    let mut b = KernelBuilder::new(template.op.name(), index);
    b.set_origin(Some(template.fusion.outputs[0]), "scan");
    let walk = Walk::new(&mut b, template, class)?;
    let work = template.work();
    let identity = b.exprs().value(eval::reduce_identity(template.op, work), work);
    let (lanes, parts, rows, items) = match shape {
        Shape::Along { warps, rows, items } => (LANES, i64::from(warps), i64::from(rows), i64::from(items)),
        Shape::Across { parts, items } => (1, i64::from(parts), LANES, i64::from(items)),
    };
    let scan = Scan { op: template.op, work, walk, identity, lanes, parts, rows, items };
    scan.body(&mut b);
    let per_block = b.int(rows);
    let blocks = b.exprs().ceil_div(scan.walk.rows, per_block);
    let one = b.int(1);
    let block = [LANES, parts, if lanes == 1 { 1 } else { rows }];
    let max_threads = block.iter().product::<i64>() as u32;
    let block = block.map(|n| b.int(n));
    Ok(b.finish(Launch { grid: [blocks, one, one], block, max_threads, min_blocks: 1, cooperative: false }))
}

/// How a scan is shared among the threads of a block.
struct Scan {
    op: ReduceOp,
    /// The type in which elements are combined, and what changes nothing in it.
    work: DType,
    identity: ExprId,
    walk: Walk,
    /// Lanes that share a row: all of a warp, or one.
    lanes: i64,
    /// Threads or warps that share a row beside that.
    parts: i64,
    /// Rows of a block.
    rows: i64,
    /// Elements of a thread of a tile.
    items: i64,
}

/// Where a thread is.
struct Place {
    /// Among the lanes and the parts that share a row, and the row among those of the block.
    lane: ExprId,
    part: ExprId,
    own_row: ExprId,
    is_row: ExprId,
    /// Where its row starts in the operand and in the result.
    starts: [ExprId; 2],
}

/// What a thread holds, and what threads tell each other.
struct Memory {
    values: BufId,
    /// What a thread or a warp of the tile comes to.
    total: BufId,
    /// What is before the tile, and before what a thread holds of it.
    carry: BufId,
    before: BufId,
    /// The totals of the parts of a row, row by row, or of the rows of a part where each lane has its own; none if a row
    /// has one part.
    totals: Option<BufId>,
}

impl Scan {
    fn body(&self, b: &mut KernelBuilder) {
        let memory = Memory {
            values: b.local("values", self.work, self.items),
            total: b.local("total", self.work, 1),
            carry: b.local("carry", self.work, 1),
            before: b.local("before", self.work, 1),
            totals: (self.parts > 1).then(|| b.shared("totals", self.work, self.parts * self.rows, 16)),
        };
        let place = self.place(b);
        let zero = b.int(0);
        b.store(memory.carry, zero, self.identity);
        let tile = b.int(self.lanes * self.parts * self.items);
        let tiles = b.exprs().ceil_div(self.walk.length, tile);
        let tiles = b.let_("tiles", tiles);
        b.count("tile", tiles, Unroll::No, |b, tiles_before| {
            let first = b.exprs().mul(tiles_before, tile);
            let held = b.int(self.lanes * self.items);
            let skipped = b.exprs().mul(place.part, held);
            let first = b.exprs().add(first, skipped);
            let first = b.exprs().add(first, place.lane);
            let first = b.let_("first", first);
            self.read(b, &place, &memory, first);
            self.scan_own(b, &place, &memory);
            self.exchange(b, &place, &memory);
            self.write(b, &place, &memory, first);
        });
    }

    fn place(&self, b: &mut KernelBuilder) -> Place {
        let index = b.index_type();
        let [x, part, z] = [Dim::X, Dim::Y, Dim::Z].map(|dim| {
            let at = b.exprs().thread_idx(dim);
            b.exprs().cast(at, index)
        });
        let (lane, own_row) = if self.lanes == 1 { (b.int(0), x) } else { (x, z) };
        let block = b.exprs().block_idx(Dim::X);
        let block = b.exprs().cast(block, index);
        let rows = b.int(self.rows);
        let row = b.exprs().mul(block, rows);
        let row = b.exprs().add(row, own_row);
        let row = b.let_("row", row);
        let is_row = b.exprs().lt(row, self.walk.rows);
        Place { lane, part, own_row, is_row, starts: self.walk.starts(b, row) }
    }

    fn combine(&self, b: &mut KernelBuilder, before: ExprId, behind: ExprId) -> ExprId {
        let op = match (self.op, self.work) {
            // Truth values are sums and products of integers that are not 0.
            (ReduceOp::Sum | ReduceOp::Max, DType::Bool) => BinaryOp::LogicalOr,
            (ReduceOp::Prod | ReduceOp::Min, DType::Bool) => BinaryOp::LogicalAnd,
            (op, _) => op.combine(),
        };
        b.exprs().binary(op, before, behind)
    }

    /// For each element of a thread: its number, how far along the row it is, and whether there is one.
    fn each(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        first: ExprId,
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId, ExprId),
    ) {
        let (items, step) = (b.int(self.items), b.int(self.lanes));
        b.count("i", items, Unroll::Full, |b, i| {
            let ahead = b.exprs().mul(i, step);
            let at = b.exprs().add(first, ahead);
            let is_inside = b.exprs().lt(at, self.walk.length);
            let is_inside = b.exprs().and(place.is_row, is_inside);
            body(b, i, at, is_inside);
        });
    }

    /// Elements of the tile; what changes nothing where there is none.
    fn read(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, first: ExprId) {
        self.each(b, place, first, |b, i, at, is_inside| {
            b.store(memory.values, i, self.identity);
            b.if_(is_inside, |b| {
                let ahead = b.exprs().mul(at, self.walk.from_step);
                let index = b.exprs().add(place.starts[0], ahead);
                let x = b.load("x_r", self.walk.from, index);
                let x = b.exprs().cast(x, self.work);
                b.store(memory.values, i, x);
            });
        });
    }

    /// Prefixes of what a thread holds, or of what its warp does: elements beside each other are in lanes.
    fn scan_own(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory) {
        let (zero, items) = (b.int(0), b.int(self.items));
        b.store(memory.total, zero, self.identity);
        b.count("i", items, Unroll::Full, |b, i| {
            let mut prefix = b.load("own", memory.values, i);
            let mut distance = 1;
            while distance < self.lanes {
                let by = b.exprs().int(distance, DType::I32);
                let below = b.shuffle("below", prefix, ShuffleMode::Up, by);
                let both = self.combine(b, below, prefix);
                let last = b.int(distance - 1);
                let has = b.exprs().lt(last, place.lane);
                let next = b.exprs().ternary(TernaryOp::Where, has, both, prefix);
                prefix = b.let_("own", next);
                distance *= 2;
            }
            let before = b.load("held", memory.total, zero);
            let all = self.combine(b, before, prefix);
            let all = b.let_("prefix", all);
            b.store(memory.values, i, all);
            let total = match self.lanes {
                1 => all,
                lanes => {
                    let last = b.exprs().int(lanes - 1, DType::I32);
                    b.shuffle("last", all, ShuffleMode::Index, last)
                }
            };
            b.store(memory.total, zero, total);
        });
    }

    /// What comes before a thread's part of the tile, and before the next tile.
    fn exchange(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory) {
        let zero = b.int(0);
        let carry = b.load("behind", memory.carry, zero);
        b.store(memory.before, zero, carry);
        let total = b.load("total", memory.total, zero);
        let Some(totals) = memory.totals else {
            let sum = self.combine(b, carry, total);
            b.store(memory.carry, zero, sum);
            return;
        };
        let slot = |b: &mut KernelBuilder, part: ExprId| {
            let (by, outer, inner) = match self.lanes {
                1 => (self.rows, part, place.own_row),
                _ => (self.parts, place.own_row, part),
            };
            let by = b.int(by);
            let outer = b.exprs().mul(outer, by);
            b.exprs().add(outer, inner)
        };
        let (own, one) = (slot(b, place.part), b.int(1));
        let is_first = b.exprs().lt(place.lane, one);
        b.if_(is_first, |b| b.store(totals, own, total));
        b.sync(Scope::Block);
        let parts = b.int(self.parts);
        b.count("k", parts, Unroll::Full, |b, k| {
            let other = slot(b, k);
            let other = b.load("other", totals, other);
            let carry = b.load("behind", memory.carry, zero);
            let sum = self.combine(b, carry, other);
            let sum = b.let_("sum", sum);
            b.store(memory.carry, zero, sum);
            let is_before = b.exprs().lt(k, place.part);
            b.if_(is_before, |b| b.store(memory.before, zero, sum));
        });
        // The next tile writes totals anew.
        b.sync(Scope::Block);
    }

    fn write(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, first: ExprId) {
        let zero = b.int(0);
        let before = b.load("start", memory.before, zero);
        let dtype = b.buffer(self.walk.to).dtype;
        self.each(b, place, first, |b, i, at, is_inside| {
            let prefix = b.load("prefix", memory.values, i);
            let all = self.combine(b, before, prefix);
            b.if_(is_inside, |b| {
                let ahead = b.exprs().mul(at, self.walk.to_step);
                let index = b.exprs().add(place.starts[1], ahead);
                let all = b.exprs().cast(all, dtype);
                b.store(self.walk.to, index, all);
            });
        });
    }
}
