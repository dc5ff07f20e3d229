//! The kernel of a scan: blocks go through their rows tile by tile, and carry what is behind them in registers. Where rows
//! are long and few, several blocks share each of them: each goes through its chunk twice, first for what the chunk comes
//! to, and when all blocks have told that, from what all chunks before come to on.
//!
//! Of a tile each thread holds `items` elements, vector by vector; those of a warp's vectors are a slab. Their prefixes
//! are made in steps: within a vector, over the lanes of a warp and slab after slab, over the threads or warps that share
//! a row, by their totals in shared memory, and with what the tiles before come to. Where rows start anywhere, all elements of a
//! thread are one vector, and shared memory lies between them and those that it moves (`elements`). Elements of small types are
//! combined in a larger one, sums of tiles in `f64`, and each prefix is rounded once. Sums and products of 8 bits are rounded
//! at each step ([`is_stepwise`]): there a thread has a row for itself, from its first element to its last.
//!
//! What is scanned is computed of elements as they are read, and results of prefixes as they are written ([`Around`]): each
//! tensor is read once, and what both need of it stays in registers or shared memory between. A prefix without the element itself
//! is the one before it, which the same threads have. A scan from the last element to the first counts places along its rows from
//! their end.
//!
//! * `shape` says how threads share the work, `tensors` what lies where, `elements` and `windows` read and write tiles.

mod elements;
mod shape;
mod tensors;
mod windows;

pub(super) use self::shape::Shape;

use self::shape::{Scanned, Staging, Threads, is_stepwise};
use super::Template;
use super::around::Around;
use super::share::{self, LANES};
use super::walk::Walk;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ScalarId;
use crate::kernel::{
    self, BufId, CacheHint, Dim, ExprId, IndexOp, Kernel, KernelBuilder, Launch, Scope, ShuffleMode, Unroll,
};
use crate::lower::Scalars;
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, eval};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;
use std::collections::BTreeMap;

/// Blocks that a multiprocessor runs at once, at most.
const MOST_TOGETHER: u32 = 16;

/// The shape for rows of these sizes, along one axis of them.
pub(super) fn shape(
    template: &Template,
    around: &Around,
    device: &DeviceDesc,
    class: &ArgClass,
    sizes: &[i64],
) -> Result<Shape> {
    let length = sizes.get(template.axis).copied().unwrap_or(1);
    let is_innermost = sizes.iter().skip(template.axis + 1).all(|size| *size == 1);
    tensors::check(template, around, class, sizes, is_innermost)?;
    let along = if is_innermost { Some(tensors::along(template, around, class)?) } else { None };
    let dtype = template.fusion.tensors[around.scanned].dtype;
    let rows = sizes.iter().product::<i64>() / length;
    Ok(shape::shape(device, Scanned { op: around.op, dtype, rows, length, along }))
}

pub(super) fn kernel(template: &Template, around: &Around, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let op = around.op;
    let mut b = KernelBuilder::new(op.name(), class.index_type());
    b.set_origin(Some(template.fusion.outputs[0]), "scan");
    let mut scalars = Scalars::new(&template.fusion, class);
    let (walk, types) = tensors::declare(&mut b, template, around, class, &mut scalars)?;
    let mut known = BTreeMap::new();
    for scalar in around.scalars() {
        known.insert(scalar, scalars.value(&mut b, scalar)?);
    }
    around.check(template.fusion.tensors[around.x].axes.len(), &known)?;
    let dtype = template.fusion.tensors[around.scanned].dtype;
    let is_stepwise = is_stepwise(op, dtype);
    // What is rounded at each step is rounded from there, and from nowhere between.
    let work = if is_stepwise { DType::F64 } else { dtype.compute() };
    let identity = b.exprs().value(eval::reduce_identity(op, work), work);
    let mut has_windows = false;
    let (way, [lanes, parts, rows], [items, width]) = match shape.threads {
        Threads::Along { lanes, warps, rows, items, vector, staging } => {
            let way = if staging == Staging::None { Way::Along } else { Way::Staged };
            has_windows = staging == Staging::Windows;
            (way, [lanes, warps, rows].map(i64::from), [items, vector].map(i64::from))
        }
        Threads::Across { parts, items } => (Way::Across, [1, parts.into(), LANES], [items.into(), 1]),
    };
    let chunks = i64::from(shape.chunks);
    // Sums go up and down, and what all tiles come to is rounded as often as there are tiles.
    let carried = if op == ReduceOp::Sum && work == DType::F32 { DType::F64 } else { work };
    let combine = op.combine_on(work).ok_or_else(|| Diagnostic::bug(format!("a scan of {op}")))?;
    let scan = Scan {
        combine,
        work,
        carried,
        walk,
        types,
        around,
        scalars: known,
        rank: template.fusion.tensors[around.x].axes.len(),
        dtype,
        identity,
        chunks,
        is_one_tile: shape.is_one_tile,
        is_stepwise,
        way,
        has_windows,
        lanes,
        parts,
        rows,
        items,
        vector: if way == Way::Along { width } else { items },
        width,
    };
    scan.body(&mut b);
    let per_block = b.int(rows);
    let blocks = b.exprs().ceil_div(scan.walk.rows, per_block);
    let (chunks, one) = (b.int(chunks), b.int(1));
    let blocks = b.exprs().mul(blocks, chunks);
    let cooperative = shape.chunks > 1;
    let block = [LANES, parts, scan.lines_of_block()];
    let max_threads = block.iter().product::<i64>() as u32;
    let block = block.map(|n| b.int(n));
    let min_blocks = if cooperative { share::LARGE.together } else { way.together(max_threads) };
    let mut made = b.finish(Launch { grid: [blocks, one, one], block, max_threads, min_blocks, cooperative });
    if !around.is_bare() {
        kernel::approximate(&mut made);
    }
    Ok(made)
}

/// How a scan is shared among the threads of a block.
struct Scan<'a> {
    combine: BinaryOp,
    /// The type in which elements are combined, and what changes nothing in it.
    work: DType,
    identity: ExprId,
    /// Blocks that share a row, and whether a row is no longer than a tile.
    chunks: i64,
    is_one_tile: bool,
    /// Prefixes are rounded one after the other.
    is_stepwise: bool,
    /// The type of what all tiles before come to.
    carried: DType,
    walk: Walk,
    /// The types of what is read.
    types: Vec<DType>,
    around: &'a Around,
    scalars: BTreeMap<ScalarId, ExprId>,
    /// The axes of the scan, and the type of its result.
    rank: usize,
    dtype: DType,
    way: Way,
    /// What goes through shared memory is moved in vectors that memory has aligned.
    has_windows: bool,
    /// Lanes of a warp that share a row.
    lanes: i64,
    /// Threads or warps that share a row beside that.
    parts: i64,
    /// Rows of a block.
    rows: i64,
    /// Elements of a thread of a tile, those of them that lie beside each other along the row, and those that are moved at once.
    items: i64,
    vector: i64,
    width: i64,
}

/// How threads hold elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Vectors, of which the lanes that share a row have neighbouring ones.
    Along,
    /// Neighbours, which go through shared memory.
    Staged,
    /// Neighbours along a row, of which each lane of a warp has another one.
    Across,
}

impl Way {
    /// Blocks of so many threads for which a multiprocessor has registers at least: without that, what is on its way to neighbours in
    /// a row takes so many that few threads run.
    fn together(self, threads: u32) -> u32 {
        let threads_at_once = match self {
            Way::Along => 0,
            Way::Staged => 1024,
            Way::Across => 1280,
        };
        (threads_at_once / threads).clamp(1, MOST_TOGETHER)
    }
}

/// Where a thread is.
struct Place {
    /// Among the lanes and the parts that share a row, among all lanes of a warp, and the row among those of the block.
    lane: ExprId,
    part: ExprId,
    in_warp: ExprId,
    own_row: ExprId,
    /// Where what is of the lanes that share its row starts in shared memory.
    slots: ExprId,
    /// The row, and whether there is such a one.
    row: ExprId,
    is_row: ExprId,
    /// The chunk of the row that its block goes through.
    chunk: ExprId,
    /// Where its row starts in each tensor that is read, and in each result.
    starts: Vec<ExprId>,
    /// Where the row is along each axis; 0 along its own.
    places: Vec<ExprId>,
}

/// What a thread holds, and what threads tell each other.
struct Memory {
    values: BufId,
    /// Elements of each tensor that is read, as they are in memory, of the thread or, in shared memory, of the block; one of what is
    /// the same for a row.
    reads: Vec<BufId>,
    /// A vector of each result, or all of the block in shared memory.
    results: Vec<BufId>,
    /// What is on its way between memory and shared memory: of each tensor that is read, and of each result.
    moved: [Vec<BufId>; 2],
    /// What a thread or a warp comes to, and all of the tile.
    total: BufId,
    tile: BufId,
    /// What is before the tile, and in it before what a thread or a warp holds.
    carry: BufId,
    before: BufId,
    /// The totals of the parts of a row, row by row, or of the rows of a part where each lane has its own; none if a row
    /// has one part.
    totals: Option<BufId>,
}

impl Scan<'_> {
    fn memory(&self, b: &mut KernelBuilder) -> Memory {
        let made: Vec<DType> = self.walk.to.iter().map(|result| b.buffer(result.buffer).dtype).collect();
        let (mut reads, mut results, mut moved) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        let is_moving: Vec<bool> = (0..self.types.len()).map(|read| !self.is_of_row(b, read)).collect();
        if self.way == Way::Staged {
            let all = self.slots_of_warp() * self.parts * self.lines_of_block();
            for (dtype, is_moving) in self.types.iter().zip(&is_moving) {
                let raw = if *is_moving { b.shared("raw", *dtype, all, 16) } else { b.local("raw", *dtype, 1) };
                moved[0].push(if *is_moving { b.local("moved", *dtype, self.held_on_the_way(*dtype)) } else { raw });
                reads.push(raw);
            }
            let is_free = |read: &usize| tensors::is_free(self.around, *read);
            let free: Vec<usize> = (0..reads.len()).filter(|read| is_moving[*read] && is_free(read)).collect();
            let types: Vec<DType> = free.iter().map(|read| self.types[*read]).collect();
            for (dtype, lent) in made.iter().zip(tensors::lent(&types, &made)) {
                results.push(lent.map_or_else(|| b.shared("made", *dtype, all, 16), |lent| reads[free[lent]]));
                moved[1].push(b.local("moved", *dtype, self.held_on_the_way(*dtype)));
            }
        } else {
            for (dtype, is_moving) in self.types.iter().zip(&is_moving) {
                reads.push(b.local("raw", *dtype, if *is_moving { self.items } else { 1 }));
            }
            results.extend(made.iter().map(|dtype| b.local("made", *dtype, self.width)));
        }
        Memory {
            values: b.local("values", self.work, self.items),
            reads,
            results,
            moved,
            total: b.local("total", self.work, 1),
            tile: b.local("all", self.work, 1),
            carry: b.local("carry", self.carried, 1),
            before: b.local("before", self.work, 1),
            totals: (self.parts > 1).then(|| b.shared("totals", self.work, self.parts * self.rows, 16)),
        }
    }

    /// Lines of warps of a block that lie beside each other for other rows.
    fn lines_of_block(&self) -> i64 {
        if self.way == Way::Across { 1 } else { self.rows * self.lanes / LANES }
    }

    fn body(&self, b: &mut KernelBuilder) {
        let memory = self.memory(b);
        let place = self.place(b);
        self.read_of_row(b, &place, &memory);
        let zero = b.int(0);
        if self.is_one_tile {
            return self.tile(b, &place, &memory, zero, true);
        }
        let nothing = b.exprs().cast(self.identity, self.carried);
        b.store(memory.carry, zero, nothing);
        let tile = b.int(self.lanes * self.parts * self.items);
        let tiles = b.exprs().ceil_div(self.walk.from.length, tile);
        let tiles = b.let_("tiles", tiles);
        if self.chunks == 1 {
            self.go_through(b, &place, &memory, [zero, tiles], true);
            return;
        }
        let chunks = b.int(self.chunks);
        let each = b.exprs().ceil_div(tiles, chunks);
        let first = b.exprs().mul(place.chunk, each);
        let first = b.exprs().index(IndexOp::Min, first, tiles);
        let end = b.exprs().add(first, each);
        let end = b.exprs().index(IndexOp::Min, end, tiles);
        let range = [b.let_("first_tile", first), b.let_("end_tile", end)];
        self.go_through(b, &place, &memory, range, false);
        self.carry_chunks(b, &place, &memory, nothing);
        self.go_through(b, &place, &memory, range, true);
    }

    /// Carries what all chunks before come to, when each block has told what its own one does.
    fn carry_chunks(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, nothing: ExprId) {
        let (zero, one, chunks) = (b.int(0), b.int(1), b.int(self.chunks));
        let all = b.exprs().mul(self.walk.rows, chunks);
        let totals = b.workspace("chunks", self.carried, all, 16, false);
        let line = b.exprs().mul(place.row, chunks);
        let line = b.let_("line", line);
        let is_first = b.exprs().lt(place.lane, one);
        let is_one = b.exprs().lt(place.part, one);
        let is_one = b.exprs().and(is_first, is_one);
        let is_one = b.exprs().and(place.is_row, is_one);
        b.if_(is_one, |b| {
            let own = b.exprs().add(line, place.chunk);
            let total = b.load("chunk", memory.carry, zero);
            b.store_hinted(totals, own, total, CacheHint::Global);
        });
        b.sync(Scope::Grid);
        b.store(memory.carry, zero, nothing);
        b.if_(place.is_row, |b| {
            b.count("before", place.chunk, Unroll::By(8), |b, before| {
                let slot = b.exprs().add(line, before);
                let total = b.load_hinted("chunk", totals, slot, CacheHint::Global);
                let held = b.load("held", memory.carry, zero);
                let next = self.combine(b, held, total);
                b.store(memory.carry, zero, next);
            });
        });
    }

    /// Goes through some tiles, and tells their prefixes or only carries what they come to.
    fn go_through(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        memory: &Memory,
        [first, end]: [ExprId; 2],
        writes: bool,
    ) {
        b.for_("tile", (first, end, 1), Unroll::No, |b, before| self.tile(b, place, memory, before, writes));
    }

    /// Goes through a tile behind so many.
    fn tile(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, tiles_before: ExprId, writes: bool) {
        let tile = b.int(self.lanes * self.parts * self.items);
        let first = b.exprs().mul(tiles_before, tile);
        let held = b.int(self.lanes * self.items);
        let skipped = b.exprs().mul(place.part, held);
        let first = b.exprs().add(first, skipped);
        let first = b.let_("first", first);
        let tile = self.find_tile(b, place, first);
        self.read(b, place, memory, &tile, writes);
        if self.is_stepwise {
            self.step_by_step(b, memory);
            return self.write(b, place, memory, &tile, None);
        }
        self.scan_own(b, place, memory);
        // A row that is one tile of one warp, or of its lanes, has nothing before it.
        if self.is_one_tile && self.parts == 1 {
            return self.write(b, place, memory, &tile, None);
        }
        self.exchange(b, place, memory);
        let before = self.carry(b, memory);
        if writes {
            self.write(b, place, memory, &tile, Some(before));
        }
    }

    fn place(&self, b: &mut KernelBuilder) -> Place {
        let [x, part, z] = [Dim::X, Dim::Y, Dim::Z].map(|dim| share::thread(b, dim));
        let (lane, own_row) = match self.way {
            Way::Across => (b.int(0), x),
            _ if self.lanes == LANES => (x, z),
            _ => {
                let (lanes, lines) = (b.int(self.lanes), b.int(LANES / self.lanes));
                let lane = b.exprs().rem(x, lanes);
                let line = b.exprs().div(x, lanes);
                let above = b.exprs().mul(z, lines);
                let own_row = b.exprs().add(above, line);
                (b.let_("lane", lane), b.let_("own_row", own_row))
            }
        };
        let block = share::block(b);
        let (rows, chunks) = (b.int(self.rows), b.int(self.chunks));
        let chunk = b.exprs().rem(block, chunks);
        let chunk = b.let_("chunk", chunk);
        let block = b.exprs().div(block, chunks);
        let row = b.exprs().mul(block, rows);
        let row = b.exprs().add(row, own_row);
        let row = b.let_("row", row);
        let is_row = b.exprs().lt(row, self.walk.rows);
        let mut places = vec![b.int(0); self.rank];
        for (axis, place) in self.walk.places(b, row) {
            places[axis] = place;
        }
        let starts = self.walk.starts(b, row);
        let slots = self.slots(b, [x, part, z]);
        Place { lane, part, in_warp: x, own_row, slots, row, is_row, chunk, starts, places }
    }

    fn combine(&self, b: &mut KernelBuilder, before: ExprId, behind: ExprId) -> ExprId {
        b.exprs().binary(self.combine, before, behind)
    }

    /// Prefixes of what a thread holds behind what its row came to before, each rounded before the next one is made of it.
    fn step_by_step(&self, b: &mut KernelBuilder, memory: &Memory) {
        let (zero, items) = (b.int(0), b.int(self.items));
        b.count("e", items, Unroll::Full, |b, e| {
            let (held, x) = (b.load("held", memory.carry, zero), b.load("x", memory.values, e));
            let next = self.combine(b, held, x);
            let next = b.exprs().cast(next, self.dtype);
            let next = b.exprs().cast(next, self.work);
            let next = b.let_("next", next);
            b.store(memory.values, e, if self.around.is_exclusive { held } else { next });
            b.store(memory.carry, zero, next);
        });
    }

    /// Prefixes of what a thread holds, or of what its warp does.
    fn scan_own(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory) {
        let (zero, one) = (b.int(0), b.int(1));
        b.store(memory.total, zero, self.identity);
        let (slabs, width) = (b.int(self.items / self.vector), b.int(self.vector));
        b.count("slab", slabs, Unroll::Full, |b, slab| {
            let number = b.exprs().mul(slab, width);
            let own = |b: &mut KernelBuilder, e: ExprId| b.exprs().add(number, e);
            b.for_("e", (one, width, 1), Unroll::Full, |b, e| {
                let before = b.exprs().sub(e, one);
                let (before, at) = (own(b, before), own(b, e));
                let before = b.load("below", memory.values, before);
                let x = b.load("x", memory.values, at);
                let prefix = self.combine(b, before, x);
                b.store(memory.values, at, prefix);
            });
            let last = b.int(self.vector - 1);
            let last = own(b, last);
            let all = b.load("own", memory.values, last);
            let held = b.load("held", memory.total, zero);
            let (before, total) = self.over_lanes(b, place, all, held);
            if self.around.is_exclusive {
                // From the last to the first: each takes the place of the next one.
                let rest = b.int(self.vector - 1);
                b.count("e", rest, Unroll::Full, |b, e| {
                    let at = b.exprs().sub(last, e);
                    let below = b.exprs().sub(at, one);
                    let x = b.load("x", memory.values, below);
                    let prefix = self.combine(b, before, x);
                    b.store(memory.values, at, prefix);
                });
                b.store(memory.values, number, before);
            } else {
                b.count("e", width, Unroll::Full, |b, e| {
                    let at = own(b, e);
                    let x = b.load("x", memory.values, at);
                    let prefix = self.combine(b, before, x);
                    b.store(memory.values, at, prefix);
                });
            }
            b.store(memory.total, zero, total);
        });
    }

    /// What comes before a lane's vector of a slab, and what all slabs come to up to this one, of what the vectors come
    /// to and of what is held of the slabs before.
    fn over_lanes(&self, b: &mut KernelBuilder, place: &Place, own: ExprId, held: ExprId) -> (ExprId, ExprId) {
        if self.lanes == 1 {
            return (held, self.combine(b, held, own));
        }
        let of = (place.lane, self.lanes);
        let prefix = share::prefix_lanes(b, own, of, |b, below, own| self.combine(b, below, own));
        let (one, zero) = (b.exprs().int(1, DType::I32), b.int(0));
        let below = b.shuffle("below", prefix, ShuffleMode::Up, one);
        let has = b.exprs().lt(zero, place.lane);
        let below = b.exprs().ternary(TernaryOp::Where, has, below, self.identity);
        let before = self.combine(b, held, below);
        let before = b.let_("before", before);
        // Nobody asks what a row comes to that is one slab.
        if self.is_one_tile && self.parts == 1 && self.items == self.vector {
            return (before, self.identity);
        }
        let mut last = b.exprs().int(self.lanes - 1, DType::I32);
        if self.lanes < LANES {
            let others = b.exprs().sub(place.in_warp, place.lane);
            let others = share::as_data(b, others, DType::I32);
            last = b.exprs().add(others, last);
        }
        let slab = b.shuffle("slab", prefix, ShuffleMode::Index, last);
        (before, self.combine(b, held, slab))
    }

    /// What comes before a thread's or a warp's part of the tile, and what the tile comes to.
    fn exchange(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory) {
        let zero = b.int(0);
        let total = b.load("total", memory.total, zero);
        b.store(memory.before, zero, self.identity);
        let Some(totals) = memory.totals else {
            b.store(memory.tile, zero, total);
            return;
        };
        let slot = |b: &mut KernelBuilder, part: ExprId| {
            let (by, outer, inner) = match self.way {
                Way::Across => (self.rows, part, place.own_row),
                Way::Along | Way::Staged => (self.parts, place.own_row, part),
            };
            let by = b.int(by);
            let outer = b.exprs().mul(outer, by);
            b.exprs().add(outer, inner)
        };
        let (own, one) = (slot(b, place.part), b.int(1));
        let is_first = b.exprs().lt(place.lane, one);
        b.if_(is_first, |b| b.store(totals, own, total));
        b.sync(Scope::Block);
        b.store(memory.tile, zero, self.identity);
        let parts = b.int(self.parts);
        b.count("k", parts, Unroll::Full, |b, k| {
            let other = slot(b, k);
            let other = b.load("other", totals, other);
            let held = b.load("held", memory.tile, zero);
            let sum = self.combine(b, held, other);
            let sum = b.let_("sum", sum);
            b.store(memory.tile, zero, sum);
            let is_before = b.exprs().lt(k, place.part);
            b.if_(is_before, |b| b.store(memory.before, zero, sum));
        });
        // The next tile writes totals anew.
        if !self.is_one_tile {
            b.sync(Scope::Block);
        }
    }

    /// What comes before a thread's part of a tile in all; from here on that is what the next one begins with.
    fn carry(&self, b: &mut KernelBuilder, memory: &Memory) -> ExprId {
        let zero = b.int(0);
        if self.is_one_tile {
            return b.load("start", memory.before, zero);
        }
        let carried = b.load("carried", memory.carry, zero);
        let tile = b.load("tile", memory.tile, zero);
        let tile = b.exprs().cast(tile, self.carried);
        let next = self.combine(b, carried, tile);
        b.store(memory.carry, zero, next);
        let carried = b.exprs().cast(carried, self.work);
        let before = b.load("before", memory.before, zero);
        let before = self.combine(b, carried, before);
        b.let_("start", before)
    }
}
