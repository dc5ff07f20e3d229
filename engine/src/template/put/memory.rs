//! The operands and the result of rows that are added: where their elements lie, and what is known of it.
//!
//! Axes behind the first one are *columns*. Neighbours among them that lie in all tensors as one axis does are one, so rows
//! that are dense have one axis of columns, whatever their rank.

use super::super::walk::{self, MAX_FACT, Placed};
use super::super::{Output, Template};
use super::{Put, Start};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{AxisKind, TensorId};
use crate::kernel::{BufId, ExprId, KernelBuilder, MAX_ACCESS_BYTES, MIN_UNALIGNED_BYTES};
use crate::lower::{Scalars, hoist};
use crate::num::DType;
use crate::schedule::{ArgClass, TensorLayout};

/// Bytes of an aligned access for which no unaligned one is taken, which is two.
const LEAST_ALIGNED: i64 = 8;
/// Vectors of a row that may start anywhere, at least: the last one is no whole one.
const LEAST_VECTORS: i64 = 4;

/// The memory of a kernel, and the extents of its operation.
pub(super) struct Memory {
    pub(super) acc: Acc,
    pub(super) value: Rows,
    pub(super) to: Rows,
    pub(super) ends: Line,
    pub(super) order: Line,
    pub(super) weight: Option<Weight>,
    /// Places that rows are added to, and rows of the result.
    pub(super) places: ExprId,
    pub(super) groups: ExprId,
    /// Rows that are added.
    pub(super) length: ExprId,
    /// Elements of a row.
    pub(super) columns: ExprId,
    /// The extents of the axes of columns, outermost first.
    extents: Vec<ExprId>,
}

/// What rows are added to: a tensor, a number, or nothing.
pub(super) enum Acc {
    Rows(Rows),
    Number(ExprId),
    Nothing,
}

/// A tensor of rows: from each to the next, and from each column to the next along the axes of columns.
pub(super) struct Rows {
    pub(super) buffer: BufId,
    pub(super) row: ExprId,
    columns: Vec<ExprId>,
}

/// A tensor of one axis.
pub(super) struct Line {
    pub(super) buffer: BufId,
    pub(super) step: ExprId,
}

/// What each place of a group counts: from each group to the next, and from each place to the next.
pub(super) struct Weight {
    pub(super) buffer: BufId,
    pub(super) steps: [ExprId; 2],
}

impl Memory {
    pub(super) fn new(b: &mut KernelBuilder, template: &Template, put: Put, class: &ArgClass) -> Result<Self> {
        let mut scalars = Scalars::new(&template.fusion, class);
        let output = output(template)?;
        let sizes = walk::extents(b, template, &mut scalars, output.tensor)?;
        let length = walk::extents(b, template, &mut scalars, template.tensor(put.order)?)?;
        let places = walk::extents(b, template, &mut scalars, template.tensor(put.ends)?)?;
        let rows: Vec<ExprId> = length.iter().chain(&sizes[1..]).copied().collect();
        // Operands may be one tensor.
        let mut known: Vec<(usize, Placed)> = Vec::new();
        let mut given = |b: &mut KernelBuilder, input: usize, sizes: &[ExprId]| {
            if let Some((_, placed)) = known.iter().find(|(own, _)| *own == input) {
                return Ok(placed.clone());
            }
            let dtype = template.fusion.tensors[template.tensor(input)?].dtype;
            let placed = walk::strided(b, template, input, walk::layout(class, input)?, sizes, dtype)?;
            known.push((input, placed.clone()));
            Ok::<_, Box<Diagnostic>>(placed)
        };
        let acc = match put.acc {
            Start::Given(input) => Some(given(b, input, &sizes)?),
            Start::Filled(_) | Start::Nothing => None,
        };
        let value = given(b, put.value, &rows)?;
        let (ends, order) = (given(b, put.ends, &places)?, given(b, put.order, &length)?);
        let weight = match put.weight {
            Some(input) => {
                let sizes = walk::extents(b, template, &mut scalars, template.tensor(input)?)?;
                let placed = given(b, input, &sizes)?;
                Some(Weight { buffer: placed.buffer, steps: [placed.steps[0], placed.steps[1]] })
            }
            None => None,
        };
        let facts = facts(put, class)?;
        let dtype = template.fusion.tensors[output.tensor].dtype;
        let to = walk::dense(b, output, &sizes, dtype, |axis| facts[axis]);
        let runs = runs(template, put, class)?;
        let one = b.int(1);
        let (mut columns, mut extents) = (one, Vec::new());
        for run in &runs {
            let (mut extent, mut fact) = (one, 1);
            for axis in run {
                extent = b.exprs().mul(extent, sizes[*axis]);
                fact = (fact * facts[*axis]).min(MAX_FACT);
            }
            let extent = hoist(b, "run", extent);
            if fact > 1 {
                b.assume_multiple_of(extent, fact);
            }
            columns = b.exprs().mul(columns, extent);
            extents.push(extent);
        }
        let columns = hoist(b, "columns", columns);
        let steps = |placed: Placed| Rows {
            buffer: placed.buffer,
            row: placed.steps[0],
            columns: runs.iter().filter_map(|run| run.last()).map(|axis| placed.steps[*axis]).collect(),
        };
        let acc = match (acc, put.acc) {
            (None, Start::Filled(number)) => Acc::Number(scalars.value(b, number)?),
            (None, Start::Nothing) => Acc::Nothing,
            (None, Start::Given(_)) => return Err(Diagnostic::bug("rows are added to nothing")),
            (Some(acc), _) => Acc::Rows(steps(acc)),
        };
        let line = |placed: Placed| Line { buffer: placed.buffer, step: placed.steps[0] };
        Ok(Self {
            acc,
            value: steps(value),
            to: steps(to),
            ends: line(ends),
            order: line(order),
            weight,
            places: places[0],
            groups: sizes[0],
            length: length[0],
            columns,
            extents,
        })
    }

    /// Where a column lies within a row of the value, of what is added to, and of the result.
    pub(super) fn column(&self, b: &mut KernelBuilder, column: ExprId) -> [ExprId; 3] {
        let acc = match &self.acc {
            Acc::Rows(acc) => acc,
            // Nobody asks.
            Acc::Number(_) | Acc::Nothing => &self.to,
        };
        let (of, mut rest, mut starts) = ([&self.value, acc, &self.to], column, [b.int(0); 3]);
        for (at, extent) in self.extents.iter().enumerate().rev() {
            // The outermost one is what is left.
            let place = if at == 0 { rest } else { b.exprs().rem(rest, *extent) };
            rest = b.exprs().div(rest, *extent);
            for (start, rows) in starts.iter_mut().zip(of) {
                let own = b.exprs().mul(place, rows.columns[at]);
                *start = b.exprs().add(*start, own);
            }
        }
        starts.map(|start| b.let_("column_at", start))
    }
}

/// The types of rows that are added, and of the result and what it starts from.
#[derive(Clone, Copy)]
pub(super) struct Types {
    pub(super) rows: DType,
    pub(super) result: DType,
}

impl Types {
    pub(super) fn of(template: &Template, put: Put) -> Result<Self> {
        let dtype = |tensor: TensorId| template.fusion.tensors[tensor].dtype;
        Ok(Self { rows: dtype(template.tensor(put.value)?), result: dtype(output(template)?.tensor) })
    }
}

/// Columns that one access moves, and whether each vector of them is aligned in all tensors.
pub(super) struct Vector {
    pub(super) lanes: i64,
    pub(super) aligned: bool,
}

/// How many of so many columns one access moves: as many as are aligned in the operands and in the result, or, where
/// these are few, as many as there may be if all rows are runs of memory.
pub(super) fn vector(template: &Template, put: Put, class: &ArgClass, columns: i64) -> Result<Vector> {
    let runs = runs(template, put, class)?;
    let single = Vector { lanes: 1, aligned: true };
    let Some(run) = runs.last() else { return Ok(single) };
    let moving = |axis: &&usize| moves(template, **axis);
    if output(template)?.order.iter().rfind(moving) != run.last() {
        return Ok(single);
    }
    // Those of the result are no narrower than others.
    let types = Types::of(template, put)?;
    let (bytes, least) = (types.result.bytes() as i64, types.rows.bytes() as i64);
    let most = MAX_ACCESS_BYTES / bytes;
    let (layouts, dtypes) = (layouts(template, put, class)?, [types.rows, types.result]);
    let widest = |most: i64, (layout, dtype): (&TensorLayout, DType)| walk::widest(layout, run, dtype, most);
    let lanes = layouts.iter().zip(dtypes).fold(most, widest);
    let is_run =
        |layout: &TensorLayout| layout.order.last().is_some_and(|own| Some(&own.axis) == run.last() && own.dense);
    let wide = most.min(walk::MAX_LANES);
    let is_wider = lanes * bytes < LEAST_ALIGNED && lanes < wide && wide * least >= MIN_UNALIGNED_BYTES;
    if is_wider && runs.len() == 1 && columns >= LEAST_VECTORS * wide && layouts.iter().all(is_run) {
        return Ok(Vector { lanes: wide, aligned: false });
    }
    Ok(Vector { lanes, aligned: true })
}

/// Axes of columns that are one axis in all tensors, outermost first.
fn runs(template: &Template, put: Put, class: &ArgClass) -> Result<Vec<Vec<usize>>> {
    let layouts = layouts(template, put, class)?;
    let order: Vec<usize> = output(template)?.order.iter().copied().filter(|axis| moves(template, *axis)).collect();
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for axis in (1..template.fusion.tensors[template.x].axes.len()).filter(|axis| moves(template, *axis)) {
        let is_beside = |layout: &TensorLayout, last: usize| {
            let mut pairs = layout.order.windows(2);
            pairs.any(|pair| [pair[0].axis, pair[1].axis] == [last, axis] && pair[0].dense)
        };
        let is_one = |last: usize| {
            order.windows(2).any(|pair| pair == [last, axis]) && layouts.iter().all(|layout| is_beside(layout, last))
        };
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| is_one(*last)) => run.push(axis),
            _ => runs.push(vec![axis]),
        }
    }
    Ok(runs)
}

/// How the operands that have rows lie: the value, and what it is added to, if that is one.
fn layouts(template: &Template, put: Put, class: &ArgClass) -> Result<Vec<TensorLayout>> {
    let acc = match put.acc {
        Start::Given(input) => Some(input),
        Start::Filled(_) | Start::Nothing => None,
    };
    [put.value].into_iter().chain(acc).map(|input| moving_layout(template, input, class)).collect()
}

/// What each extent of the result is known to be a multiple of.
fn facts(put: Put, class: &ArgClass) -> Result<Vec<i64>> {
    if let Start::Given(input) = put.acc {
        return Ok(walk::layout(class, input)?.size_facts.to_vec());
    }
    // Of the value's columns; it has other rows.
    let mut facts = walk::layout(class, put.value)?.size_facts.to_vec();
    facts[0] = 1;
    Ok(facts)
}

/// How an input lies, without the axes that have one element.
fn moving_layout(template: &Template, input: usize, class: &ArgClass) -> Result<TensorLayout> {
    let mut layout = walk::layout(class, input)?.clone();
    layout.order.retain(|own| moves(template, own.axis));
    Ok(layout)
}

/// Whether an axis may have more than one element. Columns are those of the result.
fn moves(template: &Template, axis: usize) -> bool {
    axis == 0 || template.fusion.tensors[template.x].axes[axis].kind != AxisKind::Broadcast
}

/// The only result.
pub(super) fn output(template: &Template) -> Result<&Output> {
    match &template.outputs[..] {
        [output] => Ok(output),
        _ => Err(Diagnostic::bug("rows are added to one result")),
    }
}
