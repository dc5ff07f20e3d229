//! The kernels of orders: warps sort lines, or tiles of long ones, in their registers.
//!
//! An element and its position are one integer where they fit one ([`words`]), and those of a line of at most [`TILE`] lie
//! in the registers of a warp, which a network of shuffles sorts ([`warp`]). Of a longer line all blocks sort the tiles
//! ([`tiles`]). Of these runs they merge pairs, or, where few elements are asked for, take the first ones of each, and
//! sort these again as lines of their own.
//!
//! What equal elements come to follows from the [`Stages`]: by position, or as the wires of the network of
//! [`NETWORK`] places lie, as the reference has it.

mod pair;
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
use warp::{Line, Order};
use words::{Item, Words};

/// Elements that a warp sorts in its registers.
const TILE: i64 = 1024;
/// Where no more are asked for, runs hold only as many.
const FEW: i64 = TILE / 4;
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
    /// All blocks all lines, tile by tile.
    Grid(Tiles),
}

/// How tiles are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tiles {
    /// Elements of a tile that are kept.
    run: u32,
    /// How often those are sorted again as lines.
    rounds: u32,
    /// How often pairs of runs are merged.
    passes: u32,
    /// Blocks that run at once.
    blocks: u32,
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
    if length <= TILE {
        let each = (power_of_two(length) / LANES).max(1);
        return Ok(Shape { form, room: Room::Warp { each: each as u32 }, stages });
    }
    let of_line = |elements: i64| (elements + TILE - 1) / TILE;
    let tiles = of_line(length);
    let blocks = share::SMALL.blocks(device, lines.saturating_mul(tiles) / WARPS);
    let (run, rounds, passes) = if kept <= FEW {
        // What one warp holds is sorted last of all.
        let run = power_of_two(kept).max(LANES);
        let runs = |tiles: &i64| (*tiles > 1).then(|| of_line(tiles * run));
        (run, std::iter::successors(Some(of_line(tiles * run)), runs).count() - 1, 0)
    } else {
        (TILE, 0, power_of_two(tiles).trailing_zeros())
    };
    let tiles = Tiles { run: run as u32, rounds: rounds as u32, passes, blocks };
    Ok(Shape { form, room: Room::Grid(tiles), stages })
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
        Room::Warp { each } => each.into(),
        Room::Grid(_) => TILE / LANES,
    };
    let (lane, warp) = (share::thread(&mut b, Dim::X), share::thread(&mut b, Dim::Y));
    let line = Line { words, items: words.local(&mut b, each), each, lane };
    let sorter = Sorter { walk, line, kept, is_position, stages: shape.stages };
    let (lanes, warps, one) = (b.int(LANES), b.int(WARPS), b.int(1));
    let (blocks, cooperative) = match shape.room {
        Room::Warp { .. } => {
            let first = share::block(&mut b);
            let first = b.exprs().mul(first, warps);
            let row = b.exprs().add(first, warp);
            let row = b.let_("row", row);
            sorter.one_line(&mut b, row);
            (b.exprs().ceil_div(sorter.walk.rows, warps), false)
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
    /// Sorts a line that fits the registers of a warp.
    fn one_line(&self, b: &mut KernelBuilder, row: ExprId) {
        let is_row = b.exprs().lt(row, self.walk.rows);
        let starts = self.walk.starts(b, row);
        let zero = b.int(0);
        self.load(b, zero, is_row, starts[0]);
        if self.stages != Stages::Wired {
            self.line.sort(b);
        }
        self.finish(b, is_row, &starts);
    }

    /// The elements of a line from one of them on, as many as there are and registers hold.
    fn load(&self, b: &mut KernelBuilder, first: ExprId, is_row: ExprId, start: ExprId) {
        self.fill(b, |b, at| {
            let along = b.exprs().add(first, at);
            let is_inside = b.exprs().lt(along, self.walk.from.length);
            (b.exprs().and(is_row, is_inside), move |b: &mut KernelBuilder| {
                let ahead = b.exprs().mul(along, self.walk.from.step);
                let index = b.exprs().add(start, ahead);
                let bits = b.load("x", self.walk.from.buffer, index);
                self.line.words.item(b, bits, along)
            })
        });
    }

    /// Fills registers, neighbouring lanes with neighbouring items; where there is none, with nothing.
    fn fill<F: FnOnce(&mut KernelBuilder) -> Item>(
        &self,
        b: &mut KernelBuilder,
        item: impl FnOnce(&mut KernelBuilder, ExprId) -> (ExprId, F),
    ) {
        let lanes = b.int(LANES);
        self.line.each(b, |b, j| {
            let before = b.exprs().mul(j, lanes);
            let at = b.exprs().add(before, self.line.lane);
            let nothing = self.line.words.nothing(b);
            self.line.set(b, j, nothing);
            let (is_some, read) = item(b, at);
            b.if_(is_some, |b| {
                let item = read(b);
                self.line.set(b, j, item);
            });
        });
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
            Room::Grid(Tiles { run, rounds, passes, blocks }) => {
                write!(f, "grid run {run} rounds {rounds} passes {passes} blocks {blocks}")?;
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
