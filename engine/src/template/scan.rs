//! The kernel of a scan: blocks go through their rows tile by tile, and carry what is behind them in registers. Where rows
//! are long and few, several blocks share each of them: each goes through its chunk twice, first for what the chunk comes
//! to, and when all blocks have told that, from what all chunks before come to on.
//!
//! Of a tile each thread holds `items` elements, vector by vector; those of a warp's vectors are a slab. Their prefixes
//! are made in steps: within a vector, over the lanes of a warp and slab after slab, over the threads or warps that share
//! a row, by their totals in shared memory, and with what the tiles before come to. Elements of small types are
//! combined in a larger one, sums of tiles in `f64`, and each prefix is rounded once. Sums and products of 8 bits are rounded
//! at each step ([`is_stepwise`]): there a thread has a row for itself, from its first element to its last.
//!
//! What is scanned is computed of elements as they are read, and results of prefixes as they are written ([`Around`]): each
//! tensor is read once, and what both need of it stays in registers between. A prefix without the element itself is the one
//! before it, which the same threads have.

use super::Template;
use super::around::{self, Around, Element, Program};
use super::share::{self, LANES};
use super::walk::{self, Lines, MAX_FACT, MAX_LANES, Placed, Walk};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{AxisKind, Operand, ScalarId};
use crate::kernel::{
    self, BufId, CacheHint, Dim, ExprId, IndexOp, Kernel, KernelBuilder, Launch, MAX_ACCESS_BYTES, Scope, ShuffleMode,
    Unroll,
};
use crate::lower::Scalars;
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, eval};
use crate::options::DeviceDesc;
use crate::schedule::{ArgClass, TensorLayout};
use std::collections::BTreeMap;

/// Elements of a thread of one tile, at most.
const ITEMS: i64 = 8;
/// Blocks that share a row, at least, if several do.
const LEAST_CHUNKS: i64 = 4;
/// Warps of a block, at least where rows are short and at most where they are long.
const WARPS: [i64; 2] = [8, 16];

/// How blocks and their threads share a scan, by sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How the threads of a block do.
    pub threads: Threads,
    /// Blocks that share a row.
    pub chunks: u32,
}

/// How the threads of a block share a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Lanes of warps lie along the scanned axis: that many warps of a row, rows of a block, and elements of a
    /// thread.
    Along {
        /// Warps that share a row.
        warps: u32,
        /// Rows of a block.
        rows: u32,
        /// Elements of a thread of one tile.
        items: u32,
        /// Elements that are read and written at once.
        vector: u32,
    },
    /// Lanes of a warp lie along other axes, each at a row of its own: that many threads of a row, and elements of
    /// each.
    Across {
        /// Threads that share a row, each in a warp of its own.
        parts: u32,
        /// Elements of a thread of one tile.
        items: u32,
    },
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.threads {
            Threads::Along { warps, rows, items, vector } => {
                write!(f, "along warps {warps} rows {rows} items {items} vector {vector}")?;
            }
            Threads::Across { parts, items } => write!(f, "across parts {parts} items {items}")?,
        }
        if self.chunks > 1 { write!(f, " chunks {}", self.chunks) } else { Ok(()) }
    }
}

/// The shape for so many rows of a length. They lie along the innermost axis, in vectors of so many elements at most, or not.
pub(super) fn shape(
    device: &DeviceDesc,
    (op, dtype): (ReduceOp, DType),
    [rows, length]: [i64; 2],
    innermost: Option<i64>,
) -> Shape {
    if is_stepwise(op, dtype) {
        let items = share::power_of_two(length.min(ITEMS)) as u32;
        return Shape { threads: Threads::Across { parts: 1, items }, chunks: 1 };
    }
    let threads = threads(length, innermost);
    let (of_block, tile) = match threads {
        Threads::Along { warps, rows, items, .. } => (rows.into(), LANES * i64::from(warps * items)),
        Threads::Across { parts, items } => (LANES, i64::from(parts * items)),
    };
    let blocks = (rows + of_block - 1) / of_block;
    // Going through a chunk twice is worth it where most multiprocessors have nothing to do otherwise. Products of many
    // elements overflow, though one before them may be 0.
    let room = i64::from(share::LARGE.blocks(device, i64::MAX)) / blocks;
    let chunks = room.min(length / tile);
    let chunks = if op == ReduceOp::Prod || chunks < LEAST_CHUNKS { 1 } else { chunks };
    Shape { threads, chunks: chunks as u32 }
}

/// Whether each element of a scan is combined with the rounded prefix before it, one after the other: so are floats that hold
/// no sums. The greatest and the least of them are what they are in any order.
fn is_stepwise(op: ReduceOp, dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 8 && matches!(op, ReduceOp::Sum | ReduceOp::Prod)
}

/// How the threads of a block share rows of a length.
fn threads(length: i64, innermost: Option<i64>) -> Threads {
    let [few, many] = WARPS;
    let wide = |n: i64| n as u32;
    let over = |n: i64, by: i64| (n + by - 1) / by;
    let Some(vector) = innermost else {
        let items = share::power_of_two((length).min(ITEMS));
        return Threads::Across {
            parts: wide(share::power_of_two((over(length, items)).min(many))),
            items: wide(items),
        };
    };
    let vector = vector.min(share::power_of_two((over(length, LANES)).min(ITEMS)));
    let items = vector * share::power_of_two((over(length, LANES * vector)).min(ITEMS / vector));
    let warps = share::power_of_two((over(length, items * LANES)).min(many));
    Threads::Along { warps: wide(warps), rows: wide((few / warps).max(1)), items: wide(items), vector: wide(vector) }
}

/// Refuses what would be read or written across memory beside a scan: kernels of its own move that in tiles. The axes of the
/// scan have these sizes, and the scanned one is the innermost one, or not.
pub(super) fn check(
    template: &Template,
    around: &Around,
    class: &ArgClass,
    sizes: &[i64],
    is_innermost: bool,
) -> Result<()> {
    if around.is_of_an_input() {
        return Ok(());
    }
    // What is the same for all of a line, or for all lines, is read once or by all lanes together.
    let is_of_many = |moving: &[usize]| moving.len() > 1 && moving.contains(&template.axis);
    let is_across = |axes: Vec<usize>| {
        let moving: Vec<usize> = axes.into_iter().filter(|axis| sizes[*axis] > 1).collect();
        is_of_many(&moving) && moving.last().is_some_and(|last| (*last == template.axis) != is_innermost)
    };
    let reads = reads(template, around, class)?;
    if reads.iter().any(|read| is_across(read.moving()))
        || template.outputs.iter().any(|own| is_across(own.order.clone()))
    {
        return Err(Diagnostic::unsupported(
            code::OP_NOT_LOWERED,
            "what is computed beside a scan lies across its lines",
        )
        .note("it is a kernel of its own"));
    }
    Ok(())
}

/// Elements of a line along the innermost axis that one access may move: each vector of them is aligned in all tensors
/// that move along it.
pub(super) fn vector(template: &Template, around: &Around, class: &ArgClass) -> i64 {
    // Lines of results that lie otherwise are written one by one.
    if !template.outputs.iter().all(|output| output.order.is_sorted()) {
        return 1;
    }
    let Ok(reads) = reads(template, around, class) else { return 1 };
    let along = |read: &Read<'_>| read.axes.iter().position(|axis| *axis == template.axis);
    let facts = reads.iter().filter_map(|read| along(read).map(|own| read.layout.size_facts[own]));
    let fact = facts.max().unwrap_or(1).min(MAX_LANES);
    let bytes = template.outputs.iter().map(|output| template.fusion.tensors[output.tensor].dtype.bytes() as i64);
    let most = bytes.fold(fact, |most, bytes| most.min(MAX_ACCESS_BYTES / bytes));
    reads.iter().fold(most, |most, read| match along(read).filter(|_| read.moving().contains(&template.axis)) {
        Some(own) => walk::widest(read.layout, &[own], read.dtype, most),
        None => most,
    })
}

/// A tensor that is read, as it lies, and which axis of the scan each of its axes is.
struct Read<'a> {
    input: usize,
    layout: &'a TensorLayout,
    dtype: DType,
    axes: &'a [usize],
    /// Its axes of one element.
    single: Vec<bool>,
}

impl Read<'_> {
    /// The axes of the scan along which it moves, the innermost one last.
    fn moving(&self) -> Vec<usize> {
        let own = self.layout.order.iter().map(|own| own.axis).filter(|axis| !self.single[*axis]);
        own.map(|axis| self.axes[axis]).collect()
    }
}

fn reads<'a>(template: &Template, around: &'a Around, class: &'a ArgClass) -> Result<Vec<Read<'a>>> {
    let fusion = &template.fusion;
    let read = |own: &'a around::Read| {
        let input = fusion.inputs.iter().position(|input| *input == Operand::Tensor(own.tensor));
        let input = input.ok_or_else(|| Diagnostic::bug("a scan reads what is no input"))?;
        let (layout, tensor) = (walk::layout(class, input)?, &fusion.tensors[own.tensor]);
        let single = tensor.axes.iter().map(|axis| axis.kind == AxisKind::Broadcast).collect();
        Ok::<_, Box<Diagnostic>>(Read { input, layout, dtype: tensor.dtype, axes: &own.axes, single })
    };
    around.reads.iter().map(read).collect()
}

/// The memory of what is read and of results, along the axes of the scan; and the length of each axis.
fn declare(
    b: &mut KernelBuilder,
    template: &Template,
    around: &Around,
    class: &ArgClass,
    scalars: &mut Scalars<'_>,
) -> Result<(Walk, Vec<DType>)> {
    let fusion = &template.fusion;
    let rank = fusion.tensors[around.x].axes.len();
    // A size that an input has says more than one that is computed.
    let mut sizes: Vec<Option<(ExprId, i64)>> = vec![None; rank];
    let (mut placed, mut types) = (Vec::new(), Vec::new());
    for (read, own) in reads(template, around, class)?.into_iter().zip(&around.reads) {
        let extents = walk::extents(b, template, scalars, own.tensor)?;
        for (axis, &of) in read.axes.iter().enumerate() {
            let fact = read.layout.size_facts[axis];
            if !read.single[axis] && sizes[of].is_none_or(|(_, known)| known < fact) {
                sizes[of] = Some((extents[axis], fact));
            }
        }
        let it = walk::strided(b, template, read.input, read.layout, &extents, read.dtype)?;
        placed.push((it, read.axes));
        types.push(read.dtype);
    }
    let given = walk::extents(b, template, scalars, around.x)?;
    let sizes: Vec<(ExprId, i64)> = sizes.iter().zip(given).map(|(size, given)| size.unwrap_or((given, 1))).collect();
    let extents: Vec<ExprId> = sizes.iter().map(|size| size.0).collect();
    let along = |b: &mut KernelBuilder, (own, axes): (Placed, &[usize])| {
        let mut steps = vec![b.int(0); rank];
        axes.iter().zip(&own.steps).for_each(|(axis, step)| steps[*axis] = *step);
        Placed { buffer: own.buffer, extents: extents.clone(), steps }
    };
    let mut from = Vec::new();
    for own in placed {
        from.push(along(b, own));
    }
    let results = template.outputs.iter().map(|output| {
        let dtype = fusion.tensors[output.tensor].dtype;
        walk::dense(b, output, &extents, dtype, |axis| sizes[axis].1.min(MAX_FACT))
    });
    let results = results.collect();
    let beside = from.split_off(1);
    let first = from.pop().ok_or_else(|| Diagnostic::bug("a scan reads nothing"))?;
    Ok((Walk::along(b, template.axis, &extents, first, beside, results), types))
}

pub(super) fn kernel(template: &Template, around: &Around, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let op = around.op;
    let mut b = KernelBuilder::new(op.name(), class.index_type());
    b.set_origin(Some(template.fusion.outputs[0]), "scan");
    let mut scalars = Scalars::new(&template.fusion, class);
    let (walk, types) = declare(&mut b, template, around, class, &mut scalars)?;
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
    let (lanes, parts, rows, items, vector) = match shape.threads {
        Threads::Along { warps, rows, items, vector } => {
            (LANES, warps.into(), rows.into(), items.into(), vector.into())
        }
        Threads::Across { parts, items } => (1, parts.into(), LANES, items.into(), items.into()),
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
        is_stepwise,
        lanes,
        parts,
        rows,
        items,
        vector,
    };
    scan.body(&mut b);
    let per_block = b.int(rows);
    let blocks = b.exprs().ceil_div(scan.walk.rows, per_block);
    let (chunks, one) = (b.int(chunks), b.int(1));
    let blocks = b.exprs().mul(blocks, chunks);
    let cooperative = shape.chunks > 1;
    let block = [LANES, parts, if lanes == 1 { 1 } else { rows }];
    let max_threads = block.iter().product::<i64>() as u32;
    let block = block.map(|n| b.int(n));
    let min_blocks = if cooperative { share::LARGE.together } else { 1 };
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
    /// Blocks that share a row.
    chunks: i64,
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
    /// Lanes that share a row: all of a warp, or one.
    lanes: i64,
    /// Threads or warps that share a row beside that.
    parts: i64,
    /// Rows of a block.
    rows: i64,
    /// Elements of a thread of a tile, and those of them that lie beside each other along the row.
    items: i64,
    vector: i64,
}

/// Where a thread is.
struct Place {
    /// Among the lanes and the parts that share a row, and the row among those of the block.
    lane: ExprId,
    part: ExprId,
    own_row: ExprId,
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
    /// Elements of each tensor that is read, as they are in memory; one of what is the same for a row.
    reads: Vec<BufId>,
    /// A vector of each result.
    results: Vec<BufId>,
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
    fn body(&self, b: &mut KernelBuilder) {
        let types: Vec<DType> = self.walk.to.iter().map(|result| b.buffer(result.buffer).dtype).collect();
        let of_row: Vec<bool> = (0..self.types.len()).map(|read| self.is_of_row(b, read)).collect();
        let held = |is_of_row: &bool| if *is_of_row { 1 } else { self.items };
        let memory = Memory {
            values: b.local("values", self.work, self.items),
            reads: self.types.iter().zip(&of_row).map(|(dtype, of_row)| b.local("raw", *dtype, held(of_row))).collect(),
            results: types.into_iter().map(|dtype| b.local("made", dtype, self.width().into())).collect(),
            total: b.local("total", self.work, 1),
            tile: b.local("all", self.work, 1),
            carry: b.local("carry", self.carried, 1),
            before: b.local("before", self.work, 1),
            totals: (self.parts > 1).then(|| b.shared("totals", self.work, self.parts * self.rows, 16)),
        };
        let place = self.place(b);
        self.read_of_row(b, &place, &memory);
        let zero = b.int(0);
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
            b.count("before", place.chunk, Unroll::No, |b, before| {
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
        let tile = b.int(self.lanes * self.parts * self.items);
        b.for_("tile", (first, end, 1), Unroll::No, |b, tiles_before| {
            let first = b.exprs().mul(tiles_before, tile);
            let held = b.int(self.lanes * self.items);
            let skipped = b.exprs().mul(place.part, held);
            let first = b.exprs().add(first, skipped);
            let ahead = b.int(if self.lanes == 1 { 0 } else { self.vector });
            let ahead = b.exprs().mul(place.lane, ahead);
            let first = b.exprs().add(first, ahead);
            let first = b.let_("first", first);
            self.read(b, place, memory, first, writes);
            if self.is_stepwise {
                self.step_by_step(b, memory);
                return self.write(b, place, memory, first, None);
            }
            self.scan_own(b, place, memory);
            self.exchange(b, place, memory);
            let before = self.carry(b, memory);
            if writes {
                self.write(b, place, memory, first, Some(before));
            }
        });
    }

    fn place(&self, b: &mut KernelBuilder) -> Place {
        let [x, part, z] = [Dim::X, Dim::Y, Dim::Z].map(|dim| share::thread(b, dim));
        let (lane, own_row) = if self.lanes == 1 { (b.int(0), x) } else { (x, z) };
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
        Place { lane, part, own_row, row, is_row, chunk, starts: self.walk.starts(b, row), places }
    }

    fn combine(&self, b: &mut KernelBuilder, before: ExprId, behind: ExprId) -> ExprId {
        b.exprs().binary(self.combine, before, behind)
    }

    /// For each vector of a thread: its first element's number, how far along the row that is, and whether it is in it.
    fn each(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        first: ExprId,
        body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId, ExprId),
    ) {
        // Without lanes elements are as many vectors.
        let vector = if self.lanes == 1 { 1 } else { self.vector };
        let (slabs, width, step) = (b.int(self.items / vector), b.int(vector), b.int(self.lanes * vector));
        b.count("i", slabs, Unroll::Full, |b, slab| {
            let number = b.exprs().mul(slab, width);
            let ahead = b.exprs().mul(slab, step);
            let at = b.exprs().add(first, ahead);
            let is_inside = b.exprs().lt(at, self.walk.from.length);
            let is_inside = b.exprs().and(place.is_row, is_inside);
            body(b, number, at, is_inside);
        });
    }

    /// How many elements are read and written at once.
    fn width(&self) -> u32 {
        if self.lanes == 1 { 1 } else { self.vector as u32 }
    }

    /// The lines of a tensor that is read.
    fn lines(&self, read: usize) -> Lines {
        read.checked_sub(1).map_or(self.walk.from, |beside| self.walk.beside[beside])
    }

    /// Whether a tensor has one element for all of a row.
    fn is_of_row(&self, b: &mut KernelBuilder, read: usize) -> bool {
        let zero = b.int(0);
        self.lines(read).step == zero
    }

    /// Elements that are the same for all of a thread's row.
    fn read_of_row(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory) {
        let zero = b.int(0);
        let of_row: Vec<usize> = (0..self.types.len()).filter(|read| self.is_of_row(b, *read)).collect();
        b.if_(place.is_row, |b| {
            for read in of_row {
                let x = b.load("x_r", self.lines(read).buffer, place.starts[read]);
                b.store(memory.reads[read], zero, x);
            }
        });
    }

    /// Elements of the tile; what changes nothing where there is none. Where prefixes are only carried, what results alone
    /// are made of is not read.
    fn read(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, first: ExprId, writes: bool) {
        let width = self.width();
        let is_asked = |read: &usize| writes || self.around.reads[*read].is_before;
        let asked: Vec<usize> =
            (0..self.types.len()).filter(|read| is_asked(read) && !self.is_of_row(b, *read)).collect();
        self.each(b, place, first, |b, number, at, is_inside| {
            let lanes = b.int(width.into());
            b.count("e", lanes, Unroll::Full, |b, e| {
                let e = b.exprs().add(number, e);
                b.store(memory.values, e, self.identity);
            });
            b.if_(is_inside, |b| {
                for read in asked {
                    let lines = self.lines(read);
                    let ahead = b.exprs().mul(at, lines.step);
                    let index = b.exprs().add(place.starts[read], ahead);
                    match width {
                        1 => {
                            let x = b.load("x_r", lines.buffer, index);
                            b.store(memory.reads[read], number, x);
                        }
                        _ => b.mov((memory.reads[read], number), (lines.buffer, index), width, CacheHint::Default),
                    }
                }
                b.count("e", lanes, Unroll::Full, |b, e| {
                    let along = b.exprs().add(at, e);
                    let e = b.exprs().add(number, e);
                    let made = self.emit(b, place, memory, &self.around.before, [e, along], None);
                    let x = b.exprs().cast(made[0], self.work);
                    b.store(memory.values, e, x);
                });
            });
        });
    }

    /// What a program makes of an element: its number among the thread's, and how far along the row it is.
    fn emit(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        memory: &Memory,
        program: &Program,
        [number, along]: [ExprId; 2],
        prefix: Option<ExprId>,
    ) -> Vec<ExprId> {
        let mut reads = vec![None; self.types.len()];
        for read in (0..reads.len()).filter(|read| program.asks_for(*read)) {
            let slot = if self.is_of_row(b, read) { b.int(0) } else { number };
            reads[read] = Some(b.load("x_r", memory.reads[read], slot));
        }
        let mut places = place.places.clone();
        if let Some(own) = places.get_mut(self.around.axis) {
            *own = along;
        }
        program.emit(b, &Element { reads: &reads, prefix, places: &places, scalars: &self.scalars })
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
        let last = b.exprs().int(self.lanes - 1, DType::I32);
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
        b.sync(Scope::Block);
    }

    /// What comes before a thread's part of a tile in all; from here on that is what the next one begins with.
    fn carry(&self, b: &mut KernelBuilder, memory: &Memory) -> ExprId {
        let zero = b.int(0);
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

    /// What is made of prefixes of a tile, with what comes before a thread's part of it; of none, where they have it.
    fn write(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, first: ExprId, before: Option<ExprId>) {
        let width = self.width();
        self.each(b, place, first, |b, number, at, is_inside| {
            let lanes = b.int(width.into());
            b.if_(is_inside, |b| {
                b.count("e", lanes, Unroll::Full, |b, slot| {
                    let along = b.exprs().add(at, slot);
                    let e = b.exprs().add(number, slot);
                    let prefix = b.load("prefix", memory.values, e);
                    let all = before.map_or(prefix, |before| self.combine(b, before, prefix));
                    let all = b.exprs().cast(all, self.dtype);
                    let all = b.let_("all", all);
                    let made = self.emit(b, place, memory, &self.around.behind, [e, along], Some(all));
                    for (made, result) in made.into_iter().zip(&memory.results) {
                        b.store(*result, slot, made);
                    }
                });
                let (zero, starts) = (b.int(0), &place.starts[self.types.len()..]);
                for ((lines, made), start) in self.walk.to.iter().zip(&memory.results).zip(starts) {
                    let ahead = b.exprs().mul(at, lines.step);
                    let index = b.exprs().add(*start, ahead);
                    match width {
                        1 => {
                            let all = b.load("made", *made, zero);
                            b.store(lines.buffer, index, all);
                        }
                        _ => b.mov((lines.buffer, index), (*made, zero), width, CacheHint::Default),
                    }
                }
            });
        });
    }
}
