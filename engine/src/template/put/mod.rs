//! The kernel that adds rows where runs of positions say: those of a place are from the end of the place before on.
//!
//! Threads have a vector of columns each. Where places get many rows, groups of threads have parts of the run of one, and add what
//! they have in an order that is always the same. Where they get few, a thread has several places at once, of all of which the
//! first row is on its way before one is added. Every row that is added is read once, and every row of the result
//! written once. Rows of a narrower type than the result's are converted as they are read. A row of the result may be that of one place, or of a group of them with weights.
//!
//! Invariant: ends of runs are kept between 0 and the number of positions, and rows among those that there are, so
//! that whatever ends and order hold nothing outside of the operands is read.

mod memory;
mod sums;

use self::memory::{Memory, Types};
use self::sums::Adder;
use super::Template;
use super::share;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{Bindings, Fusion, Op, Operand, ScalarId, ops};
use crate::kernel::{Kernel, KernelBuilder, Launch};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;

/// Threads of a block.
const THREADS: i64 = 256;
/// Blocks of a multiprocessor for which there are registers, where threads have few places at once and where they have many.
const TOGETHER: [u32; 2] = [3, 2];
/// Rows that a thread has on their way at once.
const ROWS: i64 = 4;
/// Bytes of a row that threads beside each other read, at least, where there are as many.
const SECTOR: i64 = 32;
/// Places that a thread has at once, at most, where each gets few rows.
const PLACES: i64 = 4;
/// Places of a group, at most: a thread has all of them at once.
pub const MOST_GROUPED: i64 = 8;

/// Which operands there are, as numbers of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Put {
    acc: Start,
    ends: usize,
    order: usize,
    value: usize,
    /// What the places of a group count, if there are groups.
    weight: Option<usize>,
}

/// What rows are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// A tensor: the number of an input.
    Given(usize),
    /// Rows of a number.
    Filled(ScalarId),
    /// They are summed up in groups.
    Nothing,
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
    /// Groups of places, or places, that a block has beside each other, and a thread at once: none, where it has a run, or a
    /// part of one, row by row.
    slots: u32,
    batch: u32,
    /// Places of a group.
    group: u32,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { vector, aligned, across, parts, slots, batch, group } = self;
        let starts = if *aligned { "" } else { " unaligned" };
        write!(f, "vector {vector}{starts} threads {across} parts {parts} places {slots}x{batch}x{group}")
    }
}

impl Put {
    /// Of an operation on inputs of a fusion.
    pub(super) fn of(fusion: &Fusion, op: &Op) -> Option<Self> {
        let [acc, ends, order, value] = op.inputs[..] else { return None };
        let number = |operand: Operand| fusion.inputs.iter().position(|input| *input == operand);
        let start = match acc {
            Operand::Tensor(_) => Start::Given(number(acc)?),
            Operand::Scalar(scalar) => Start::Filled(scalar),
        };
        let is_one = fusion.outputs.len() == 1 && ops::adds_rows(fusion.tensors[op.output()].dtype);
        is_one.then_some(Self {
            acc: start,
            ends: number(ends)?,
            order: number(order)?,
            value: number(value)?,
            weight: None,
        })
    }

    /// Of groups with weights.
    pub(super) fn of_groups(fusion: &Fusion, op: &Op) -> Option<Self> {
        let [ends, order, value, weight] = op.inputs[..] else { return None };
        let number = |operand: Operand| fusion.inputs.iter().position(|input| *input == operand);
        let (is_one, acc) = (fusion.outputs.len() == 1, Start::Nothing);
        let (ends, order, value) = (number(ends)?, number(order)?, number(value)?);
        is_one.then_some(Self { acc, ends, order, value, weight: Some(number(weight)?) })
    }
}

/// The operand that has the columns: what rows are added to, or the rows themselves.
pub(super) fn rows_of(op: &Op) -> Option<Operand> {
    let [acc, _, _, value] = op.inputs[..] else { return None };
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
    let [length, places] = [put.order, put.ends].map(|input| template.sizes(bindings, input).iter().product::<i64>());
    let (groups, columns) = (result[0].max(1), result[1..].iter().product::<i64>());
    let group = places / groups;
    if put.weight.is_some() && group > MOST_GROUPED {
        let message = format!("groups of {group} places, of which a thread has {MOST_GROUPED} at most");
        return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message));
    }
    let bytes = Types::of(template, put)?.rows.bytes();
    let memory::Vector { lanes: vector, aligned } = memory::vector(template, put, class, columns)?;
    let wide = ((columns + vector - 1) / vector).max(1);
    let sector = (SECTOR / (vector * bytes as i64)).max(1);
    let blocks = |slots: i64, across: i64| (groups + slots - 1) / slots * ((wide + across - 1) / across);
    let mut across = match wide {
        1..32 => share::power_of_two(wide),
        // As few threads behind the last column as can be.
        _ => [THREADS, 128, 64, 32].into_iter().min_by_key(|across| across * blocks(1, *across)).unwrap_or(THREADS),
    };
    let run = length / places.max(1);
    let rest = THREADS / across;
    let most_parts = if put.weight.is_some() { 1 } else { rest };
    let parts = (share::power_of_two(run / ROWS + 1) / 2).clamp(1, most_parts);
    let mut slots = if put.weight.is_some() { rest } else { (rest / parts).min(share::power_of_two(groups)) };
    let sms = i64::from(device.sm_count);
    // Where there are few blocks, more of them have smaller shares of longer runs.
    while put.weight.is_none() && blocks(slots, across) < sms && run >= 2 * ROWS * THREADS / (across * slots) {
        match (slots > 1, across > sector) {
            (true, _) => slots /= 2,
            (_, true) => across /= 2,
            _ => break,
        }
    }
    let parts = THREADS / (across * slots);
    // As long as all multiprocessors have as many blocks as they run at once.
    let waves = blocks(slots, across) / (sms * i64::from(TOGETHER[0]));
    let most = (PLACES / group.max(1)).clamp(1, waves.max(1));
    let is_long = put.weight.is_none() && (parts > 1 || run >= ROWS);
    Ok(Shape {
        vector: vector as u32,
        aligned,
        across: across as u32,
        parts: parts as u32,
        slots: slots as u32,
        batch: if is_long { 0 } else { (share::power_of_two(most + 1) / 2) as u32 },
        group: group.max(1) as u32,
    })
}

pub(super) fn kernel(template: &Template, put: Put, shape: Shape, class: &ArgClass) -> Result<Kernel> {
    let mut builder = KernelBuilder::new("rows", class.index_type());
    let b = &mut builder;
    b.set_origin(Some(template.fusion.outputs[0]), "put");
    let memory = Memory::new(b, template, put, class)?;
    let types = Types::of(template, put)?;
    let across = b.int((shape.across * shape.vector).into());
    let own = b.int((shape.slots * shape.batch.max(1)).into());
    let (tiles, down) = (b.exprs().ceil_div(memory.columns, across), b.exprs().ceil_div(memory.groups, own));
    let blocks = b.exprs().mul(down, tiles);
    let block = share::block(b);
    let (tile, first) = (b.exprs().rem(block, tiles), b.exprs().div(block, tiles));
    let first = b.exprs().mul(first, own);
    let first = b.let_("first_place", first);
    let adder = Adder::new(b, &memory, shape, types)?;
    let column = b.exprs().mul(tile, across);
    let vector = b.int(shape.vector.into());
    let ahead = b.exprs().mul(adder.across, vector);
    let column = b.exprs().add(column, ahead);
    let column = b.let_("column", column);
    let at = memory.column(b, column);
    if shape.batch == 0 {
        adder.share(b, first, column, at)
    } else {
        adder.several(b, first, column, at)
    }
    let one = b.int(1);
    let block = [b.int(THREADS), one, one];
    let launch = Launch {
        grid: [blocks, one, one],
        block,
        max_threads: THREADS as u32,
        min_blocks: TOGETHER[usize::from(i64::from(shape.batch * shape.group) > PLACES)],
        cooperative: false,
    };
    Ok(builder.finish(launch))
}
