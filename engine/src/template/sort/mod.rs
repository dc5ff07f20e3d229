//! The kernels of orders: lines of elements are sorted with their positions in shared memory, long ones as tiles that are
//! merged.
//!
//! Elements are compared in a type that holds them; NaN is the greatest. A line that fits shared memory is sorted there
//! by a bitonic network ([`network`]). Of a longer one the tiles are, by all blocks in turn, and each pass merges pairs of
//! runs of a workspace into the other one ([`merge`]). Where only the first elements are asked for, runs keep no more.
//!
//! What equal elements come to follows from the [`Stage`]s: by position, or as the wires of the network of
//! [`NETWORK`] places lie, as the reference has it.

mod merge;
mod network;

use super::Template;
use super::walk::Walk;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::{Call, Form, NETWORK};
use crate::kernel::{BufId, Dim, ExprId, Kernel, KernelBuilder, Launch, Scope, Unroll};
use crate::num::{BinaryOp, DType, UnaryOp, Value};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Elements that a block sorts in shared memory.
const TILE: i64 = 1024;
/// Threads of a block that sorts short lines, at least.
const THREADS: i64 = 256;
/// Blocks of a multiprocessor that wait for each other.
const TOGETHER: u32 = 2;

/// An operation that orders elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    /// The greatest come first.
    descending: bool,
    /// What becomes of equal elements, and of the first ones if not all are asked for.
    ends: Ends,
}

/// What an operation promises of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Equal elements stay in their order.
    Stable,
    /// They need not.
    Unstable,
    /// The first elements, in order.
    Top,
    /// The first elements in no order.
    TopUnsorted,
}

/// How the threads of a kernel share a sort, and how equal elements lie in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Who sorts a line.
    pub room: Room,
    /// What is done to it, one after the other.
    pub stages: Stages,
}

/// Who sorts a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// One block each, several a block where they are short.
    Block {
        /// Places of a line in shared memory.
        width: u32,
        /// Lines of a block.
        lines: u32,
    },
    /// All blocks all lines, tile by tile.
    Grid {
        /// How often runs are merged.
        passes: u32,
        /// Blocks that run at once.
        blocks: u32,
    },
}

/// The stages of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stages {
    /// Elements by value, equal ones by position.
    Ordered,
    /// By value alone, through the wires of the network.
    Wired,
    /// The first ones, then those before the last of them by position, and those equal to it by position.
    Gathered,
    /// The same, then by value alone through the wires of the network.
    GatheredWired,
}

/// Which of two elements comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The one of less value, or of the lower position if these are equal.
    Total,
    /// The one of less value.
    Value,
    /// One that comes before the last of the kept ones, or the one of the lower position if both do or neither does.
    Gathered { last: ExprId },
}

impl Sort {
    pub(super) fn of(call: &Call) -> Self {
        let is_top = call.movement().form == Some(Form::Top);
        let ends = match (is_top, call.flag("sorted"), call.flag("stable")) {
            (true, true, _) => Ends::Top,
            (true, false, _) => Ends::TopUnsorted,
            (false, _, true) => Ends::Stable,
            (false, _, false) => Ends::Unstable,
        };
        Self { descending: call.flag(if is_top { "largest" } else { "descending" }), ends }
    }
}

/// The shape for so many lines of a length, of which so many elements are kept.
pub(super) fn shape(device: &DeviceDesc, sort: Sort, lines: i64, length: i64, kept: i64) -> Result<Shape> {
    if i32::try_from(length).is_err() {
        let message = format!("a line of {length} elements, whose positions are no i32, is not sorted by a kernel");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message));
    }
    let stages = match sort.ends {
        Ends::Unstable if length <= NETWORK => Stages::Wired,
        Ends::Stable | Ends::Unstable => Stages::Ordered,
        Ends::Top if kept > NETWORK => Stages::Ordered,
        Ends::Top | Ends::TopUnsorted if kept == 1 => Stages::Ordered,
        Ends::Top => Stages::GatheredWired,
        Ends::TopUnsorted => Stages::Gathered,
    };
    if length > TILE && kept > TILE && stages == Stages::Gathered {
        let message = format!("the first {kept} elements of a line in no order: a kernel gathers {TILE} at most");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message).note("ask for them `sorted`"));
    }
    let room = if length <= TILE {
        let width = (length.unsigned_abs().next_power_of_two() as i64).max(NETWORK);
        Room::Block { width: width as u32, lines: (2 * THREADS / width).clamp(1, TILE) as u32 }
    } else {
        let tiles = (length + TILE - 1) / TILE;
        let passes = tiles.unsigned_abs().next_power_of_two().trailing_zeros();
        let work = lines.saturating_mul(tiles).min((device.sm_count * TOGETHER).into());
        Room::Grid { passes, blocks: work as u32 }
    };
    Ok(Shape { room, stages })
}

pub(super) fn kernel(template: &Template, sort: Sort, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let index = if class.index64 { DType::I64 } else { DType::I32 };
    let mut b = KernelBuilder::new(if sort.descending { "down" } else { "up" }, index);
    b.set_origin(Some(template.fusion.outputs[0]), "sort");
    let walk = Walk::new(&mut b, template, class)?;
    let dtype = template.fusion.tensors[template.x].dtype;
    let (threads, lines, width) = match shape.room {
        Room::Block { width, lines } => (lines * width / 2, i64::from(lines), i64::from(width)),
        Room::Grid { .. } => ((TILE / 2) as u32, 1, TILE),
    };
    let work = compared(dtype);
    let tile = Tile {
        keys: b.shared("keys", work, lines * width, 16),
        places: b.shared("places", DType::I32, lines * width, 16),
        width,
        lines,
    };
    let kept = match walk.to.first() {
        Some(result) => result.length,
        None => return Err(Diagnostic::bug("nobody asks for the order")),
    };
    let results = template.outputs.iter().map(|output| output.result + usize::from(sort.is_argsort())).collect();
    let sorter = Sorter { walk, descending: sort.descending, work, kept, results, tile, stages: shape.stages };
    let one = b.int(1);
    let (grid, cooperative) = match shape.room {
        Room::Block { .. } => {
            sorter.in_block(&mut b);
            let lines = b.int(lines);
            (b.exprs().ceil_div(sorter.walk.rows, lines), false)
        }
        Room::Grid { passes, blocks } => {
            merge::emit(&sorter, &mut b, passes, blocks);
            (b.int(blocks.into()), true)
        }
    };
    let block = [b.int(threads.into()), one, one];
    let min_blocks = if cooperative { TOGETHER } else { 1 };
    Ok(b.finish(Launch { grid: [grid, one, one], block, max_threads: threads, min_blocks, cooperative }))
}

impl Sort {
    /// Whether its only result is positions.
    fn is_argsort(self) -> bool {
        matches!(self.ends, Ends::Stable | Ends::Unstable)
    }
}

/// A type in which elements are compared.
fn compared(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::I64 | DType::U64 => dtype,
        DType::U32 => DType::I64,
        _ if dtype.is_float() => DType::F32,
        _ => DType::I32,
    }
}

/// The shared memory of a block: elements and their positions, line by line. A position that is not less than the length
/// of the line is of no element.
struct Tile {
    keys: BufId,
    places: BufId,
    width: i64,
    lines: i64,
}

/// What emits a sort.
struct Sorter {
    walk: Walk,
    descending: bool,
    /// The type of keys.
    work: DType,
    /// How many elements of a line are kept.
    kept: ExprId,
    /// For each output whether it holds values, 0, or positions, 1.
    results: Vec<usize>,
    tile: Tile,
    stages: Stages,
}

/// A thread's part of a line in shared memory.
#[derive(Clone, Copy)]
struct Seat {
    /// Among the threads of the line.
    thread: ExprId,
    /// Where the line starts in shared memory.
    start: ExprId,
    /// Elements of the line that there are, as data.
    length: ExprId,
}

impl Sorter {
    /// Sorts lines that fit shared memory.
    fn in_block(&self, b: &mut KernelBuilder) {
        let thread = thread(b);
        let per_line = b.int(self.tile.width / 2);
        let (own, thread) = (b.exprs().div(thread, per_line), b.exprs().rem(thread, per_line));
        let (own, thread) = (b.let_("own", own), b.let_("t", thread));
        let lines = b.int(self.tile.lines);
        let block = block(b);
        let row = b.exprs().mul(block, lines);
        let row = b.exprs().add(row, own);
        let row = b.let_("row", row);
        let is_row = b.exprs().lt(row, self.walk.rows);
        let width = b.int(self.tile.width);
        let start = b.exprs().mul(own, width);
        let start = b.let_("line", start);
        let seat = Seat { thread, start, length: as_place(b, self.walk.from.length) };
        let starts = self.walk.starts(b, row);
        let zero = b.int(0);
        self.load(b, seat, zero, is_row, starts[0]);
        self.run_stages(b, seat);
        self.write(b, seat, is_row, &starts[1..]);
    }

    /// The elements of a tile that starts somewhere in its line; where there is none, its position says so.
    fn load(&self, b: &mut KernelBuilder, seat: Seat, first: ExprId, is_row: ExprId, start: ExprId) {
        self.each(b, seat, |b, at, place| {
            let along = b.exprs().add(first, at);
            let is_inside = b.exprs().lt(along, self.walk.from.length);
            let is_inside = b.exprs().and(is_row, is_inside);
            let nothing = b.exprs().value(zero_of(self.work), self.work);
            b.store(self.tile.keys, place, nothing);
            let position = as_place(b, along);
            b.store(self.tile.places, place, position);
            b.if_(is_inside, |b| {
                let ahead = b.exprs().mul(along, self.walk.from.step);
                let index = b.exprs().add(start, ahead);
                let x = b.load("x", self.walk.from.buffer, index);
                let key = b.exprs().cast(x, self.work);
                b.store(self.tile.keys, place, key);
            });
        });
        self.sync(b);
    }

    /// All stages of a line that lies in shared memory.
    fn run_stages(&self, b: &mut KernelBuilder, seat: Seat) {
        match self.stages {
            Stages::Ordered => network::sort(self, b, seat, self.tile.width, Order::Total),
            Stages::Wired => network::sort(self, b, seat, NETWORK, Order::Value),
            Stages::Gathered | Stages::GatheredWired => {
                network::sort(self, b, seat, self.tile.width, Order::Total);
                self.gather(b, seat);
            }
        }
    }

    /// Brings the first elements of a sorted line into the order of their positions, but those that equal the last of
    /// them behind the others, and on from there.
    fn gather(&self, b: &mut KernelBuilder, seat: Seat) {
        let one = b.int(1);
        let last = b.exprs().sub(self.kept, one);
        let last = b.exprs().add(seat.start, last);
        let last = b.load("last", self.tile.keys, last);
        self.each(b, seat, |b, at, place| {
            let is_left = b.exprs().lt(at, self.kept);
            b.if_else(is_left, |_| {}, |b| b.store(self.tile.places, place, seat.length));
        });
        self.sync(b);
        let is_wired = self.stages == Stages::GatheredWired;
        let width = if is_wired { NETWORK } else { self.tile.width };
        network::sort(self, b, seat, width, Order::Gathered { last });
        if is_wired {
            network::sort(self, b, seat, NETWORK, Order::Value);
        }
    }

    /// Writes the first elements of a line.
    fn write(&self, b: &mut KernelBuilder, seat: Seat, is_row: ExprId, starts: &[ExprId]) {
        self.each(b, seat, |b, at, place| {
            let is_kept = b.exprs().lt(at, self.kept);
            let is_kept = b.exprs().and(is_row, is_kept);
            b.if_(is_kept, |b| {
                let position = b.load("position", self.tile.places, place);
                let key = b.load("key", self.tile.keys, place);
                self.write_one(b, starts, at, key, position);
            });
        });
    }

    /// Writes an element of a line to the results.
    fn write_one(&self, b: &mut KernelBuilder, starts: &[ExprId], at: ExprId, key: ExprId, position: ExprId) {
        for ((lines, start), which) in self.walk.to.iter().zip(starts).zip(&self.results) {
            let ahead = b.exprs().mul(at, lines.step);
            let index = b.exprs().add(*start, ahead);
            let value = if *which == 0 { key } else { position };
            let dtype = b.buffer(lines.buffer).dtype;
            let value = b.exprs().cast(value, dtype);
            b.store(lines.buffer, index, value);
        }
    }

    /// The two places of a line that a thread fills and reads: their numbers in the line and in shared memory.
    fn each(&self, b: &mut KernelBuilder, seat: Seat, body: impl FnOnce(&mut KernelBuilder, ExprId, ExprId)) {
        let (two, half) = (b.int(2), b.int(self.tile.width / 2));
        b.count("half", two, Unroll::Full, |b, part| {
            let ahead = b.exprs().mul(part, half);
            let at = b.exprs().add(seat.thread, ahead);
            let place = b.exprs().add(seat.start, at);
            body(b, at, place);
        });
    }

    /// Waits for the threads of a line.
    fn sync(&self, b: &mut KernelBuilder) {
        b.sync(if self.tile.width / 2 <= 32 { Scope::Warp } else { Scope::Block });
    }

    /// Whether an element comes before another one: pairs of key and position.
    fn is_before(&self, b: &mut KernelBuilder, order: Order, [a, c]: [(ExprId, ExprId); 2]) -> ExprId {
        let by_place = |b: &mut KernelBuilder| b.exprs().binary(BinaryOp::Lt, a.1, c.1);
        match order {
            Order::Value => self.is_less(b, a.0, c.0),
            Order::Total => {
                let (less, more) = (self.is_less(b, a.0, c.0), self.is_less(b, c.0, a.0));
                either(b, less, more, by_place)
            }
            Order::Gathered { last } => {
                let (own, other) = (self.is_less(b, a.0, last), self.is_less(b, c.0, last));
                let (less, more) = (but_not(b, own, other), but_not(b, other, own));
                either(b, less, more, by_place)
            }
        }
    }

    /// Whether a key comes before another one; NaN is the greatest.
    fn is_less(&self, b: &mut KernelBuilder, x: ExprId, y: ExprId) -> ExprId {
        let (x, y) = if self.descending { (y, x) } else { (x, y) };
        let less = b.exprs().binary(BinaryOp::Lt, x, y);
        if !self.work.is_float() {
            return less;
        }
        let (x_nan, y_nan) = (b.exprs().unary(UnaryOp::IsNan, x), b.exprs().unary(UnaryOp::IsNan, y));
        let to_nan = but_not(b, y_nan, x_nan);
        b.exprs().binary(BinaryOp::LogicalOr, less, to_nan)
    }
}

/// True, or else not false and what a third condition says.
fn either(b: &mut KernelBuilder, yes: ExprId, no: ExprId, third: impl FnOnce(&mut KernelBuilder) -> ExprId) -> ExprId {
    let third = third(b);
    let third = but_not(b, third, no);
    b.exprs().binary(BinaryOp::LogicalOr, yes, third)
}

fn but_not(b: &mut KernelBuilder, yes: ExprId, no: ExprId) -> ExprId {
    let no = b.exprs().unary(UnaryOp::LogicalNot, no);
    b.exprs().binary(BinaryOp::LogicalAnd, yes, no)
}

/// The number 0 of a type.
fn zero_of(dtype: DType) -> Value {
    if dtype.is_float() { Value::Float(0.0) } else { Value::Int(0) }
}

/// A place along a line as data, which its positions are.
fn as_place(b: &mut KernelBuilder, index: ExprId) -> ExprId {
    let data = b.exprs().as_data(index);
    b.exprs().cast(data, DType::I32)
}

fn thread(b: &mut KernelBuilder) -> ExprId {
    let index = b.index_type();
    let at = b.exprs().thread_idx(Dim::X);
    b.exprs().cast(at, index)
}

fn block(b: &mut KernelBuilder) -> ExprId {
    let index = b.index_type();
    let at = b.exprs().block_idx(Dim::X);
    b.exprs().cast(at, index)
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.room {
            Room::Block { width, lines } => write!(f, "block width {width} lines {lines}")?,
            Room::Grid { passes, blocks } => write!(f, "grid passes {passes} blocks {blocks}")?,
        }
        f.write_str(match self.stages {
            Stages::Ordered => " ordered",
            Stages::Wired => " wired",
            Stages::Gathered => " gathered",
            Stages::GatheredWired => " gathered wired",
        })
    }
}
