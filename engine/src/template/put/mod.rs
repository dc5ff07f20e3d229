//! The kernel that adds rows where an index says whose places ascend: the rows of a place are a run of positions.
//!
//! A block has some places, and a tile of the columns. Its threads look up where the runs of its places start, each by
//! halves, and where the next one starts a run ends. Then groups of threads go through runs, one vector of columns each:
//! every row that is added is read once, and every row of the result written once. Where runs are long, several groups have
//! parts of one, and add them in an order that is always the same.
//!
//! Invariant: starts of runs are between 0 and the number of positions, and rows are kept among those that there are, so
//! that whatever index and order hold nothing outside of the operands is read.

mod memory;
mod starts;
mod sums;

use self::memory::Memory;
use self::sums::Adder;
use super::Template;
use super::share;
use crate::diag::Result;
use crate::fusion::{Bindings, Fusion, Op, Operand, ScalarId, ops};
use crate::kernel::{Kernel, KernelBuilder, Launch, Unroll};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Threads of a block.
const THREADS: i64 = 256;
/// Blocks of a multiprocessor for which there are registers.
const TOGETHER: u32 = 3;
/// Rows that a thread has on their way at once.
const ROWS: i64 = 4;
/// Bytes of a row that threads beside each other read, at least, where there are as many.
const SECTOR: i64 = 32;
/// Blocks of each multiprocessor before one has more than one turn of places, and the most places of a block.
const WAVES: i64 = 16;
const PLACES: i64 = 128;

/// Which operands there are, as numbers of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Put {
    acc: Start,
    index: usize,
    order: usize,
    value: usize,
}

/// What rows are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// A tensor: the number of an input.
    Given(usize),
    /// So many rows of a number.
    Filled(ScalarId),
}

/// How the threads of a block share places and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Columns of a thread.
    vector: u32,
    /// Whether vectors are aligned in all tensors; else they may start anywhere, and the last one of a row is no whole one.
    aligned: bool,
    /// Threads along columns.
    across: u32,
    /// Groups of them that share a run.
    parts: u32,
    /// Places that a block has at once; it has some several times.
    slots: u32,
    turns: u32,
    /// Halves after which the start of a run is found.
    halves: u32,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { vector, aligned, across, parts, slots, turns, halves } = self;
        let starts = if *aligned { "" } else { " unaligned" };
        write!(f, "vector {vector}{starts} threads {across} parts {parts} places {slots}x{turns} halves {halves}")
    }
}

impl Put {
    /// Of an operation on inputs of a fusion.
    pub(super) fn of(fusion: &Fusion, op: &Op) -> Option<Self> {
        let [acc, index, order, value, ..] = op.inputs[..] else { return None };
        let number = |operand: Operand| fusion.inputs.iter().position(|input| *input == operand);
        let start = match acc {
            Operand::Tensor(_) => Start::Given(number(acc)?),
            Operand::Scalar(scalar) => Start::Filled(scalar),
        };
        let is_one = fusion.outputs.len() == 1 && ops::adds_rows(fusion.tensors[op.output()].dtype);
        is_one.then_some(Self { acc: start, index: number(index)?, order: number(order)?, value: number(value)? })
    }
}

/// The operand that has the columns: what rows are added to, or the rows themselves.
pub(super) fn rows_of(op: &Op) -> Option<Operand> {
    let [acc, _, _, value, ..] = op.inputs[..] else { return None };
    Some(if matches!(acc, Operand::Tensor(_)) { acc } else { value })
}

/// The shape for sizes.
pub(super) fn shape(
    template: &Template,
    device: &DeviceDesc,
    bindings: &Bindings,
    put: Put,
    class: &ArgClass,
) -> Result<Shape> {
    let result = bindings.sizes(&template.fusion, memory::output(template)?.tensor);
    let length = template.sizes(bindings, put.index).iter().product::<i64>();
    let (places, columns) = (result[0].max(1), result[1..].iter().product::<i64>());
    let bytes = template.fusion.tensors[template.x].dtype.bytes();
    let memory::Vector { lanes: vector, aligned } = memory::vector(template, put, class, columns)?;
    let wide = ((columns + vector - 1) / vector).max(1);
    let sector = (SECTOR / (vector * bytes as i64)).max(1);
    let blocks = |slots: i64, across: i64| (places + slots - 1) / slots * ((wide + across - 1) / across);
    let mut across = match wide {
        1..32 => share::power_of_two(wide),
        // As few threads behind the last column as can be.
        _ => [THREADS, 128, 64, 32].into_iter().min_by_key(|across| across * blocks(1, *across)).unwrap_or(THREADS),
    };
    let run = length / places;
    let rest = THREADS / across;
    let parts = (share::power_of_two(run / ROWS + 1) / 2).clamp(1, rest);
    let mut slots = (rest / parts).min(share::power_of_two(places));
    let sms = i64::from(device.sm_count);
    // Where there are few blocks, more of them have smaller shares of longer runs.
    while blocks(slots, across) < sms && run >= 2 * ROWS * THREADS / (across * slots) {
        match (slots > 1, across > sector) {
            (true, _) => slots /= 2,
            (_, true) => across /= 2,
            _ => break,
        }
    }
    let turns = (blocks(slots, across) / (sms * WAVES)).clamp(1, (PLACES / slots).max(1));
    Ok(Shape {
        vector: vector as u32,
        aligned,
        across: across as u32,
        parts: (THREADS / (across * slots)) as u32,
        slots: slots as u32,
        turns: (share::power_of_two(turns + 1) / 2) as u32,
        halves: (i64::BITS - length.leading_zeros()).next_multiple_of(4),
    })
}

pub(super) fn kernel(template: &Template, put: Put, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut builder = KernelBuilder::new("rows", class.index_type());
    let b = &mut builder;
    b.set_origin(Some(template.fusion.outputs[0]), "put");
    let memory = Memory::new(b, template, put, class)?;
    let dtype = template.fusion.tensors[template.x].dtype;
    let [across, turns] = [shape.across * shape.vector, shape.turns].map(|n| b.int(n.into()));
    let own = b.int((shape.slots * shape.turns).into());
    let (tiles, down) = (b.exprs().ceil_div(memory.columns, across), b.exprs().ceil_div(memory.places, own));
    let blocks = b.exprs().mul(down, tiles);
    let block = share::block(b);
    let (tile, first) = (b.exprs().rem(block, tiles), b.exprs().div(block, tiles));
    let first = b.exprs().mul(first, own);
    let first = b.let_("first_place", first);
    let starts = starts::find(b, &memory, shape, first);
    let adder = Adder::new(b, &memory, shape, dtype, starts);
    let column = b.exprs().mul(tile, across);
    let vector = b.int(shape.vector.into());
    let ahead = b.exprs().mul(adder.across, vector);
    let column = b.exprs().add(column, ahead);
    let column = b.let_("column", column);
    let at = memory.column(b, column);
    b.count("turn", turns, Unroll::No, |b, turn| adder.turn(b, [first, turn], column, at));
    let one = b.int(1);
    let block = [b.int(THREADS), one, one];
    let launch = Launch {
        grid: [blocks, one, one],
        block,
        max_threads: THREADS as u32,
        min_blocks: TOGETHER,
        cooperative: false,
    };
    Ok(builder.finish(launch))
}
