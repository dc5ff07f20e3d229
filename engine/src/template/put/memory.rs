//! The operands and the result of rows that are added: where their elements lie, and what is known of it.
//!
//! Axes behind the first one are *columns*. Neighbours among them that lie in all tensors as one axis does are one, so rows
//! that are dense have one axis of columns, whatever their rank.

use super::super::walk::{self, MAX_FACT, Placed};
use super::super::{Output, Template};
use super::Put;
use crate::diag::{Diagnostic, Result};
use crate::fusion::AxisKind;
use crate::kernel::{BufId, ExprId, KernelBuilder, MAX_ACCESS_BYTES};
use crate::lower::{Scalars, hoist};
use crate::schedule::{ArgClass, TensorLayout};

/// The memory of a kernel, and the extents of its operation.
pub(super) struct Memory {
    pub(super) acc: Rows,
    pub(super) value: Rows,
    pub(super) to: Rows,
    pub(super) index: Line,
    pub(super) order: Line,
    /// Rows of the result.
    pub(super) places: ExprId,
    /// Rows that are added.
    pub(super) length: ExprId,
    /// Elements of a row.
    pub(super) columns: ExprId,
    /// The extents of the axes of columns, outermost first.
    extents: Vec<ExprId>,
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

impl Memory {
    pub(super) fn new(b: &mut KernelBuilder, template: &Template, put: Put, class: &ArgClass) -> Result<Self> {
        let mut scalars = Scalars::new(&template.fusion, class);
        let sizes = walk::extents(b, template, &mut scalars, template.tensor(put.acc)?)?;
        let length = walk::extents(b, template, &mut scalars, template.tensor(put.index)?)?;
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
        let (acc, value) = (given(b, put.acc, &sizes)?, given(b, put.value, &rows)?);
        let (index, order) = (given(b, put.index, &length)?, given(b, put.order, &length)?);
        let facts = &walk::layout(class, put.acc)?.size_facts;
        let output = output(template)?;
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
        let line = |placed: Placed| Line { buffer: placed.buffer, step: placed.steps[0] };
        Ok(Self {
            acc: steps(acc),
            value: steps(value),
            to: steps(to),
            index: line(index),
            order: line(order),
            places: sizes[0],
            length: length[0],
            columns,
            extents,
        })
    }

    /// Where a column lies within a row of each of some tensors.
    pub(super) fn column<const N: usize>(&self, b: &mut KernelBuilder, column: ExprId, of: [&Rows; N]) -> [ExprId; N] {
        let mut rest = column;
        let mut starts = [b.int(0); N];
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

/// How many columns one access may move: each vector of them is aligned in both operands and in the result.
pub(super) fn vector(template: &Template, put: Put, class: &ArgClass) -> Result<i64> {
    let runs = runs(template, put, class)?;
    let Some(run) = runs.last() else { return Ok(1) };
    let moving = |axis: &&usize| moves(template, **axis);
    if output(template)?.order.iter().rfind(moving) != run.last() {
        return Ok(1);
    }
    let dtype = template.fusion.tensors[template.x].dtype;
    let layouts = [put.acc, put.value].map(|input| moving_layout(template, input, class));
    layouts
        .into_iter()
        .try_fold(MAX_ACCESS_BYTES / dtype.bytes() as i64, |most, layout| Ok(walk::widest(&layout?, run, dtype, most)))
}

/// Axes of columns that are one axis in all tensors, outermost first.
fn runs(template: &Template, put: Put, class: &ArgClass) -> Result<Vec<Vec<usize>>> {
    let layouts = [moving_layout(template, put.acc, class)?, moving_layout(template, put.value, class)?];
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

fn output(template: &Template) -> Result<&Output> {
    match &template.outputs[..] {
        [output] => Ok(output),
        _ => Err(Diagnostic::bug("rows are added to one result")),
    }
}
