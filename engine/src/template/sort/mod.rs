//! The kernels of orders: warps sort lines, or tiles of long ones, in their registers.
//!
//! An element and its position are one integer where they fit one ([`words`]), and those of a line of at most [`TILE`] lie
//! in the registers of a warp, which a network of shuffles sorts ([`warp`]); the warps of a block sort four times as many
//! ([`block`]). Of a longer line all blocks sort the tiles ([`tiles`]), and of these runs they merge pairs. Where few elements are asked for, a warp goes through a line and holds
//! the first ones ([`select`]); of few long lines it does so with a part of one, and with what is found in all parts.
//!
//! What equal elements come to follows from the [`Stages`]: by position, or as the wires of the network of
//! [`NETWORK`] places lie, as the reference has it.

mod block;
pub(super) mod owned;
mod pair;
pub(super) mod places;
mod runs;
mod select;
mod tiles;
mod warp;
mod words;

use super::Template;
use super::share::{self, LANES, Share, as_index, power_of_two};
use super::walk::Walk;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::{Call, Form, NETWORK};
use crate::kernel::{Dim, ExprId, Kernel, KernelBuilder, Launch, ShuffleMode};
use crate::num::DType;
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;
use block::Team;
use warp::{Line, Order};
use words::{Item, Words};

/// Elements that a warp sorts in its registers, at most, and where warps are few.
const TILE: i64 = 1024;
const LONE_TILE: i64 = 256;
/// Where no more are asked for, they are held while lines are read.
const FEW: i64 = TILE / 4;
/// Items of a line among which one warp finds the first ones in the end.
const LAST: i64 = 4 * TILE;
/// Warps of a block.
const WARPS: i64 = share::SMALL.threads / LANES;

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
    /// How an element is held.
    form: words::Form,
    /// Who sorts a line.
    room: Room,
    /// What is done to it, one after the other.
    stages: Stages,
}

/// Who sorts a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Room {
    /// A warp, of which each lane holds so many items.
    Warp { each: u32 },
    /// A warp, of which each lane holds so many of the first items.
    Select { each: u32 },
    /// A block, of which each lane holds so many items.
    Block { each: u32 },
    /// All blocks all lines, tile by tile.
    Grid(Tiles),
}

/// How tiles are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tiles {
    /// Elements of a tile of the operand.
    width: u32,
    /// Elements of a tile that are kept.
    run: u32,
    /// How often those are taken again as lines, of tiles of [`TILE`].
    rounds: u32,
    /// How often pairs of runs are merged.
    passes: u32,
    /// Blocks that run at once.
    blocks: u32,
}

impl Tiles {
    /// Whether runs are the first ones of their tiles.
    fn is_few(&self) -> bool {
        self.run < self.width
    }
}

/// The stages of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stages {
    /// Elements by value, equal ones by position.
    Ordered,
    /// By value alone, through the wires of the network.
    Wired,
    /// The first ones, then those before the last of them by position, and those equal to it by position.
    Gathered,
    /// The same, then by value alone through the wires of the network.
    GatheredWired,
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

    fn stages(self, length: i64, kept: i64) -> Stages {
        match self.ends {
            Ends::Unstable if length <= NETWORK => Stages::Wired,
            Ends::Stable | Ends::Unstable => Stages::Ordered,
            Ends::Top if kept > NETWORK => Stages::Ordered,
            Ends::Top | Ends::TopUnsorted if kept == 1 => Stages::Ordered,
            Ends::Top => Stages::GatheredWired,
            Ends::TopUnsorted => Stages::Gathered,
        }
    }

    /// Whether its only result is positions.
    fn is_argsort(self) -> bool {
        matches!(self.ends, Ends::Stable | Ends::Unstable)
    }
}

/// The shape for lines of a length, of which so many elements are kept.
pub(super) fn shape(device: &DeviceDesc, sort: Sort, dtype: DType, [lines, length, kept]: [i64; 3]) -> Result<Shape> {
    if i32::try_from(length).is_err() {
        let message = format!("a line of {length} elements, whose positions are no i32, is not sorted by a kernel");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message));
    }
    let stages = sort.stages(length, kept);
    if kept > TILE && stages == Stages::Gathered {
        let message = format!("the first {kept} elements of a line in no order: a kernel gathers {TILE} at most");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message).note("ask for them `sorted`"));
    }
    let form = words::Form::of(dtype, length);
    // What lanes hold of the first items; a line of no more is sorted.
    let run = power_of_two(kept).max(LANES);
    let room = if kept <= FEW && length > run {
        select(device, [lines, length], run)
    } else {
        sort_all(device, [lines, length], stages)
    };
    Ok(Shape { form, room, stages })
}

/// Who sorts lines. Where there are blocks for few of the device's multiprocessors, lanes hold fewer items: the network of many
/// is a long program, which each multiprocessor has to fetch.
fn sort_all(device: &DeviceDesc, [lines, length]: [i64; 2], stages: Stages) -> Room {
    let is_gathered = stages == Stages::Gathered;
    let blocks = lines.saturating_mul(ceil_div(length, WARPS * TILE));
    // A warp gathers what a line keeps.
    let part = if blocks < device.sm_count.into() && !is_gathered { LONE_TILE } else { TILE };
    let run = part * WARPS;
    if length <= part {
        return Room::Warp { each: (power_of_two(length) / LANES).max(1) as u32 };
    }
    if length <= run && !is_gathered {
        return Room::Block { each: (part / LANES) as u32 };
    }
    let blocks = share::SMALL.blocks(device, lines.saturating_mul(ceil_div(length, TILE)));
    let passes = power_of_two(ceil_div(length, run)).trailing_zeros();
    Room::Grid(Tiles { width: run as u32, run: run as u32, rounds: 0, passes, blocks })
}

fn ceil_div(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}

/// Who finds the first elements of lines, where so many items are held: a warp for each line if lines keep the device
/// busy, else as many warps as run at once.
fn select(device: &DeviceDesc, [lines, length]: [i64; 2], run: i64) -> Room {
    let each = (run / LANES) as u32;
    let warps = i64::from(share::SMALL.blocks(device, i64::MAX)) * WARPS;
    let width = power_of_two(ceil_div(length, (warps / lines.max(1)).max(1))).max(TILE);
    if width >= length || 2 * lines >= warps {
        return Room::Select { each };
    }
    let tiles = ceil_div(length, width);
    let mut items = tiles * run;
    let mut rounds = 0;
    while items > LAST {
        items = ceil_div(items, TILE) * run;
        rounds += 1;
    }
    let blocks = share::SMALL.blocks(device, ceil_div(lines.saturating_mul(tiles), WARPS));
    // Wider ones are of lines whose positions are no `i32`.
    Room::Grid(Tiles { width: width as u32, run: run as u32, rounds, passes: 0, blocks })
}

pub(super) fn kernel(template: &Template, sort: Sort, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut b = KernelBuilder::new(if sort.descending { "down" } else { "up" }, class.index_type());
    b.set_origin(Some(template.fusion.outputs[0]), "sort");
    let walk = Walk::read_as(&mut b, template, class, words::bits_of)?;
    let dtype = template.fusion.tensors[template.x].dtype;
    let kept = match walk.to.first() {
        Some(result) => result.length,
        None => return Err(Diagnostic::bug("nobody asks for the order")),
    };
    let is_position = template.outputs.iter().map(|output| sort.is_argsort() || output.result == 1).collect();
    let words = Words { form: shape.form, dtype, descending: sort.descending };
    let each = match shape.room {
        Room::Warp { each } | Room::Select { each } | Room::Block { each } => each.into(),
        Room::Grid(tiles) if tiles.is_few() => i64::from(tiles.run) / LANES,
        Room::Grid(tiles) => i64::from(tiles.run) / WARPS / LANES,
    };
    let (lane, warp) = (share::thread(&mut b, Dim::X), share::thread(&mut b, Dim::Y));
    let line = Line { words, items: words.local(&mut b, each), each, lane };
    let sorter = Sorter { walk, line, kept, is_position, stages: shape.stages };
    let (lanes, warps, one) = (b.int(LANES), b.int(WARPS), b.int(1));
    let (blocks, cooperative) = match shape.room {
        Room::Warp { .. } | Room::Select { .. } => {
            let first = share::block(&mut b);
            let first = b.exprs().mul(first, warps);
            let row = b.exprs().add(first, warp);
            let row = b.let_("row", row);
            sorter.one_line(&mut b, row, matches!(shape.room, Room::Select { .. }));
            (b.exprs().ceil_div(sorter.walk.rows, warps), false)
        }
        Room::Block { .. } => {
            let row = share::block(&mut b);
            sorter.by_block(&mut b, row, warp);
            (sorter.walk.rows, false)
        }
        Room::Grid(tiles) => {
            let thread = b.exprs().mul(warp, lanes);
            let thread = b.exprs().add(thread, lane);
            let share = Share::new(&mut b, share::SMALL, tiles.blocks, thread);
            tiles::emit(&sorter, &mut b, tiles, &share, warp);
            (share.blocks, true)
        }
    };
    let max_threads = share::SMALL.threads as u32;
    let min_blocks = if cooperative { share::SMALL.together } else { 1 };
    let (grid, block) = ([blocks, one, one], [lanes, warps, one]);
    Ok(b.finish(Launch { grid, block, max_threads, min_blocks, cooperative }))
}

/// What emits a sort.
struct Sorter {
    walk: Walk,
    line: Line,
    /// How many elements of a line are kept.
    kept: ExprId,
    /// For each output whether it holds positions, else elements.
    is_position: Vec<bool>,
    stages: Stages,
}

impl Sorter {
    /// Sorts a line that fits the registers of a warp, or finds the first of its elements.
    fn one_line(&self, b: &mut KernelBuilder, row: ExprId, is_few: bool) {
        let is_row = b.exprs().lt(row, self.walk.rows);
        let starts = self.walk.starts(b, row);
        let zero = b.int(0);
        if is_few {
            let all = [zero, self.walk.from.length];
            self.select(b, all, is_row, |b, along| self.element(b, starts[0], along));
        } else {
            self.load(b, zero, is_row, starts[0]);
            if self.stages != Stages::Wired {
                self.line.sort(b);
            }
        }
        self.finish(b, is_row, &starts);
    }

    /// Sorts a line that fits the registers of a block.
    fn by_block(&self, b: &mut KernelBuilder, row: ExprId, warp: ExprId) {
        let team = Team::new(b, &self.line, warp);
        let is_row = b.exprs().lt(row, self.walk.rows);
        let starts = self.walk.starts(b, row);
        let first = team.first(b);
        self.load(b, first, is_row, starts[0]);
        team.sort(b, &self.line);
        team.each_in_order(b, &self.line, |b, at, item| {
            let at = b.exprs().add(first, at);
            self.write(b, is_row, &starts, at, item);
        });
    }

    /// The elements of a line from one of them on, as many as there are and registers hold.
    fn load(&self, b: &mut KernelBuilder, first: ExprId, is_row: ExprId, start: ExprId) {
        let rest = b.exprs().sub(self.walk.from.length, first);
        self.line.fill(b, (rest, is_row), |b, at| {
            let along = b.exprs().add(first, at);
            self.element(b, start, along)
        });
    }

    /// An element of a line that starts somewhere.
    fn element(&self, b: &mut KernelBuilder, start: ExprId, along: ExprId) -> Item {
        let ahead = b.exprs().mul(along, self.walk.from.step);
        let index = b.exprs().add(start, ahead);
        let bits = b.load("x", self.walk.from.buffer, index);
        self.line.words.item(b, bits, along)
    }

    /// Brings a line that is sorted into its final order, and writes its first elements.
    fn finish(&self, b: &mut KernelBuilder, is_row: ExprId, starts: &[ExprId]) {
        match self.stages {
            Stages::Ordered => self.write_all(b, is_row, starts),
            Stages::Gathered => {
                self.line.gather(b, self.kept);
                self.write_all(b, is_row, starts);
            }
            Stages::Wired => {
                let item = self.line.spread(b);
                let item = self.line.wired(b, item, Order::Key);
                self.write(b, is_row, starts, self.line.lane, item);
            }
            Stages::GatheredWired => {
                let (item, last) = self.first_items(b);
                let item = self.line.wired(b, item, Order::Before(last));
                let item = self.line.wired(b, item, Order::Key);
                self.write(b, is_row, starts, self.line.lane, item);
            }
        }
    }

    /// The kept items, one a lane, and the key of the last one.
    fn first_items(&self, b: &mut KernelBuilder) -> (Item, ExprId) {
        let words = self.line.words;
        let item = self.line.spread(b);
        let is_kept = b.exprs().lt(self.line.lane, self.kept);
        let nothing = words.nothing(b);
        let kept = words.choose(b, is_kept, item, nothing);
        let one = b.int(1);
        let last = b.exprs().sub(self.kept, one);
        let last = b.exprs().cast(last, DType::I32);
        let last = words.shuffle(b, item, ShuffleMode::Index, last);
        (words.named(b, kept), words.key(b, last))
    }

    /// Writes the first elements of a line.
    fn write_all(&self, b: &mut KernelBuilder, is_row: ExprId, starts: &[ExprId]) {
        let each = b.int(self.line.each);
        let first = b.exprs().mul(self.line.lane, each);
        self.line.each(b, |b, j| {
            let at = b.exprs().add(first, j);
            let item = self.line.get(b, j);
            self.write(b, is_row, starts, at, item);
        });
    }

    /// Writes an element to a place of its line in the results, if it is kept.
    fn write(&self, b: &mut KernelBuilder, is_row: ExprId, starts: &[ExprId], at: ExprId, item: Item) {
        let is_kept = b.exprs().lt(at, self.kept);
        let is_kept = b.exprs().and(is_row, is_kept);
        b.if_(is_kept, |b| {
            let position = self.line.words.place(b, item);
            let position = b.let_("position", position);
            for ((lines, start), is_position) in self.walk.to.iter().zip(&starts[1..]).zip(&self.is_position) {
                let ahead = b.exprs().mul(at, lines.step);
                let to = b.exprs().add(*start, ahead);
                let value = if *is_position {
                    b.exprs().cast(position, DType::I64)
                } else {
                    let along = as_index(b, position);
                    let ahead = b.exprs().mul(along, self.walk.from.step);
                    let from = b.exprs().add(starts[0], ahead);
                    b.load("value", self.walk.from.buffer, from)
                };
                b.store(lines.buffer, to, value);
            }
        });
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.room {
            Room::Warp { each } => write!(f, "warp items {each}")?,
            Room::Select { each } => write!(f, "select items {each}")?,
            Room::Block { each } => write!(f, "block items {each}")?,
            Room::Grid(Tiles { width, run, rounds, passes, blocks }) => {
                write!(f, "grid tile {width} run {run} rounds {rounds} passes {passes} blocks {blocks}")?;
            }
        }
        f.write_str(match self.form {
            words::Form::Half => " half",
            words::Form::Whole => " whole",
            words::Form::Pair => " pair",
        })?;
        f.write_str(match self.stages {
            Stages::Ordered => " ordered",
            Stages::Wired => " wired",
            Stages::Gathered => " gathered",
            Stages::GatheredWired => " gathered wired",
        })
    }
}
