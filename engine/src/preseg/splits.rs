//! An axis that is split behind a lookup is split in its index: `reshape(take(x, i), [s, k, h])` is
//! `take(x, reshape(i, [s, k]))`, with what is computed element by element between the two moved along. A reshape in the
//! middle is a view of memory, so what lies before it would be stored; an index that is in memory is seen
//! in any grouping, and rows that are looked up and added up by groups take one kernel.
//!
//! In the way of that: a result on the way that others read, and what neither is in memory nor is moved.

use super::lookups::is_stored;
use super::make::{broadcast, call as make, kept_axis, reshape, squeeze};
use super::moves::is_computed;
use super::whole::{Change, Changes, Whole, call, operand};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, IndexAxes, OpArg};
use crate::fusion::{Op, OpKind, Operand, Rewriter, ScalarId, Src, TensorId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Operations behind one reshape that are moved.
const MOST_MOVED: usize = 16;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    call(op, Form::Reshape)?;
    let (x, output) = (operand(op)?, op.output());
    let (axis, parts) = split_axis(whole.sizes(x), whole.sizes(output))?;
    // A reshape makes broadcasts of axes of one element; those that are moved along stay what they are.
    let more = parts.len() - 1;
    let is_same = |own: usize| {
        let new = if own < axis { own } else { own + more };
        own == axis || whole.kind(x, own) == whole.kind(output, new)
    };
    let usable = whole.regroups(output) && !whole.is_empty(output) && !whole.is_returned(output);
    let usable = usable && (0..whole.rank(x)).all(is_same);
    if !usable || !whole.is_read_once(x) || !whole.readers(output).any(is_computed) {
        return None;
    }
    let extents = parts.map(|part| whole.fusion.tensors[output].axes[part].extent).collect();
    let split = Split { whole, extents };
    let mut moved = Found::default();
    let is_moved = split.moves(x, axis, &mut moved) && moved.lookups > 0;
    is_moved.then(|| -> Change<'a> { Box::new(move |r| split.write(r, x, axis, &mut Made::new())) })
}

/// The only axis that is split, and the axes that are its parts: those before and behind it are the same.
fn split_axis(old: &[i64], new: &[i64]) -> Option<(usize, Range<usize>)> {
    let before = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let axis = before.min(old.len().checked_sub(1)?);
    let behind = old.len() - axis - 1;
    let end = new.len().checked_sub(behind).filter(|end| *end > axis + 1)?;
    (old[axis + 1..] == new[end..]).then_some((axis, axis..end))
}

/// An axis with the extents of its parts.
struct Split<'a> {
    whole: &'a Whole<'a>,
    extents: Vec<ScalarId>,
}

/// What was made of tensors with an axis split.
type Made = BTreeMap<(TensorId, usize), TensorId>;

/// What would be moved.
#[derive(Default)]
struct Found {
    ops: usize,
    lookups: usize,
}

/// How the axis of a tensor is split.
enum Way<'a> {
    /// It has one element, as have its parts.
    Broadcast,
    /// It is filled anew.
    Full(&'a Op),
    /// In the operands of an operation, the axis in each.
    Moved(&'a Op, Vec<(TensorId, usize)>),
    /// In the index of a lookup, an axis of it.
    Looked { op: &'a Op, axes: IndexAxes, index: (TensorId, usize), table: TensorId },
    /// It is in memory, and seen otherwise.
    Viewed,
}

impl<'a> Split<'a> {
    fn way(&self, x: TensorId, axis: usize) -> Option<Way<'a>> {
        let whole = self.whole;
        if whole.is_broadcast(x, axis) {
            return Some(Way::Broadcast);
        }
        let Some(op) = whole.maker(x) else { return Some(Way::Viewed) };
        if is_stored(op) || op.outputs.len() != 1 {
            return Some(Way::Viewed);
        }
        let tensors = op.inputs.iter().filter_map(|operand| match *operand {
            Operand::Tensor(tensor) => Some(tensor),
            Operand::Scalar(_) => None,
        });
        match &op.kind {
            _ if whole.is_returned(x) => None,
            OpKind::Full => whole.declares(x).then_some(Way::Full(op)),
            OpKind::Broadcast { flags } => {
                let own = flags[..axis].iter().filter(|new| !**new).count();
                Some(Way::Moved(op, tensors.map(|tensor| (tensor, own)).collect()))
            }
            OpKind::Squeeze { flags } => {
                let own = kept_axis(flags, axis);
                Some(Way::Moved(op, tensors.map(|tensor| (tensor, own)).collect()))
            }
            kind if kind.is_elementwise() => {
                let operands: Vec<_> = tensors.map(|tensor| (tensor, axis)).collect();
                let fits = operands.iter().all(|(tensor, _)| whole.rank(*tensor) == whole.rank(x));
                fits.then_some(Way::Moved(op, operands))
            }
            kind => {
                let lookup = kind.lookup()?;
                let [Operand::Tensor(table), Operand::Tensor(index)] =
                    [lookup.table, lookup.index].map(|position| op.inputs[position])
                else {
                    return None;
                };
                let own = match lookup.axes {
                    // The positions are the same along all other axes.
                    IndexAxes::InPlace => (lookup.axis == axis && whole.rank(index) == 1).then_some(0),
                    IndexAxes::BeforeRow => (axis < whole.rank(index)).then_some(axis),
                    _ => None,
                };
                own.map(|own| Way::Looked { op, axes: lookup.axes, index: (index, own), table })
            }
        }
    }

    /// Whether an axis of a tensor is split in what is in memory.
    fn moves(&self, x: TensorId, axis: usize, found: &mut Found) -> bool {
        match self.way(x, axis) {
            None => false,
            Some(Way::Broadcast | Way::Full(_) | Way::Viewed) => true,
            Some(_) if found.ops == MOST_MOVED => false,
            Some(Way::Moved(_, operands)) => {
                found.ops += 1;
                operands.into_iter().all(|(operand, axis)| self.moves(operand, axis, found))
            }
            Some(Way::Looked { index, .. }) => {
                found.ops += 1;
                found.lookups += 1;
                self.moves(index.0, index.1, found)
            }
        }
    }

    /// A tensor with the axis split, which is made once.
    fn write(&self, r: &mut Rewriter<'_>, x: TensorId, axis: usize, made: &mut Made) -> Result<TensorId> {
        if let Some(known) = made.get(&(x, axis)) {
            return Ok(*known);
        }
        let new = self.write_anew(r, x, axis, made)?;
        made.insert((x, axis), new);
        Ok(new)
    }

    fn write_anew(&self, r: &mut Rewriter<'_>, x: TensorId, axis: usize, made: &mut Made) -> Result<TensorId> {
        let more = self.extents.len() - 1;
        match self.way(x, axis).ok_or_else(|| Diagnostic::bug("an axis is split that is not to be"))? {
            Way::Broadcast => {
                let mut flags = vec![false; self.whole.rank(x)];
                flags.splice(axis..axis, std::iter::repeat_n(true, more));
                let new = r.tensor(x)?;
                broadcast(&mut r.builder, new, &flags)
            }
            Way::Full(op) => {
                let shape = self.shape(r, x, axis);
                let value = match op.inputs[0] {
                    Operand::Scalar(value) => r.scalar(value).into(),
                    Operand::Tensor(value) => Src::Tensor(r.tensor(value)?),
                };
                super::make::tensor(r.builder.full(&shape, value, self.whole.fusion.tensors[x].dtype)?)
            }
            Way::Viewed => {
                if let Some(before) = self.before(x, axis) {
                    return r.tensor(before);
                }
                let (new, shape) = (r.tensor(x)?, self.shape(r, x, axis));
                reshape(&mut r.builder, new, shape)
            }
            Way::Moved(op, operands) => {
                let mut split = Vec::with_capacity(operands.len());
                for (operand, axis) in operands {
                    split.push(self.write(r, operand, axis, made)?);
                }
                let with_parts = |flags: &[bool], axis: usize| {
                    let mut flags = flags.to_vec();
                    flags.splice(axis..axis, std::iter::repeat_n(false, more));
                    flags
                };
                match &op.kind {
                    OpKind::Broadcast { flags } => broadcast(&mut r.builder, split[0], &with_parts(flags, axis)),
                    OpKind::Squeeze { flags } => {
                        let own = kept_axis(flags, axis);
                        squeeze(&mut r.builder, split[0], &with_parts(flags, own))
                    }
                    _ => r.write_on(op, &split),
                }
            }
            Way::Looked { op, axes, index, table } => {
                let (rank, old) = (self.whole.rank(table), table);
                let (index, table) = (self.write(r, index.0, index.1, made)?, r.tensor(table)?);
                if axes == IndexAxes::BeforeRow {
                    return r.write_on(op, &[index, table]);
                }
                if (axis, rank) == (0, 2) {
                    return make(&mut r.builder, "embedding_fwd", |args| {
                        args.value("input", index).value("weight", table)
                    });
                }
                // The positions lie along the last of the parts, for each place along the others.
                let mut shape = super::make::extents(r, self.whole, old);
                shape.splice(axis..axis, std::iter::repeat_n(1.into(), more));
                let table = reshape(&mut r.builder, table, shape)?;
                let flags: Vec<bool> = (0..rank + more).map(|own| own < axis || own > axis + more).collect();
                let index = broadcast(&mut r.builder, index, &flags)?;
                let dim = OpArg::Int((axis + more) as i64);
                make(&mut r.builder, "take_along_axis", |args| {
                    args.value("x", table).value("index", index).with("dim", dim)
                })
            }
        }
    }

    /// What a reshape merged, if that is a tensor with the axis split.
    fn before(&self, x: TensorId, axis: usize) -> Option<TensorId> {
        let whole = self.whole;
        let before = operand(whole.maker(x).filter(|maker| call(maker, Form::Reshape).is_some())?)?;
        let parts = self.extents.iter().map(|extent| whole.number(*extent)).collect::<Option<Vec<i64>>>()?;
        let mut sizes = whole.sizes(x).to_vec();
        sizes.splice(axis..=axis, parts);
        // A reshape makes broadcasts of axes of one element.
        let is_same = |axis: usize| (sizes[axis] == 1) == whole.is_broadcast(before, axis);
        (whole.sizes(before) == sizes && (0..sizes.len()).all(is_same)).then_some(before)
    }

    /// The extents of a tensor with the axis split.
    fn shape(&self, r: &mut Rewriter<'_>, x: TensorId, axis: usize) -> Vec<Src> {
        let mut extents: Vec<ScalarId> = self.whole.fusion.tensors[x].axes.iter().map(|axis| axis.extent).collect();
        extents.splice(axis..=axis, self.extents.iter().copied());
        extents.into_iter().map(|extent| r.scalar(extent).into()).collect()
    }
}
