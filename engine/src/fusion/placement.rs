//! Where nvFuser places the outputs of a fusion: their strides as a caller of
//! nvFuser sees them. [`super::layouts`] is another rule, that of PyTorch's
//! eager operations; the two agree on most dense programs and differ on the rest.
//!
//! nvFuser places a result in one of four ways:
//! - An *alias* is a view of its operand, where a chain of operations that only
//!   move axes leads to it from an input, or from a written tensor on which
//!   nothing else depends that way ([`aliases`]). Strides are those of the view.
//! - An operation that is left to a library (products, attention, sorting)
//!   gives what the library gives: the eager rule.
//! - A tensor without elements is written as zeros, row-major.
//! - Everything else is written by a kernel, dense in an order of its axes:
//!   the order that was asked for, or that of the input with the most axes
//!   ([`order`]), or the logical one.
//!
//! In a dense placement an axis that only repeats (an input's expanded axis, or
//! one made by `expand`, as far as elementwise operations keep it) has stride 0,
//! and an axis of size 0 has stride 1; neither counts in the strides outside of it.

mod aliases;
mod axes;
mod order;

use super::ops::{AxisMap, Library};
use super::{Bindings, Fusion, Op, OpKind, TensorDef, TensorId, strides};
use crate::array::view_strides;
use crate::diag::Result;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{EntityId, PrimaryMap};
use aliases::Aliases;
use axes::{Axes, PlacedKind};

/// Type, sizes and strides of each output. The arguments must be bound.
pub fn placements(fusion: &Fusion, bindings: &Bindings, args: &[ArgMeta]) -> Result<Vec<TensorMeta>> {
    let sizes: PrimaryMap<TensorId, Vec<i64>> = fusion.tensors.ids().fold(PrimaryMap::new(), |mut sizes, tensor| {
        sizes.push(bindings.sizes(fusion, tensor));
        sizes
    });
    let axes = Axes::of(fusion, &sizes);
    let aliases = Aliases::of(fusion, &sizes, &axes, args);
    let rule = Rule { fusion, bindings, sizes: &sizes, axes: &axes, aliases: &aliases };
    let mut metas: PrimaryMap<TensorId, TensorMeta> = PrimaryMap::new();
    for (id, tensor) in fusion.tensors.iter() {
        match tensor.def {
            TensorDef::Input(position) => metas.push(strides::input(fusion, id, args.get(position as usize))?),
            TensorDef::Op(op) if fusion.ops[op].output() == id => {
                for (&output, strides) in fusion.ops[op].outputs.iter().zip(rule.strides(&metas, &fusion.ops[op])?) {
                    metas.push(TensorMeta {
                        dtype: fusion.tensors[output].dtype,
                        sizes: sizes[output].clone(),
                        strides,
                    });
                }
                continue;
            }
            TensorDef::Op(_) => continue,
        };
    }
    let updated = |output: &TensorId| fusion.updates.iter().find(|update| update.tensor == *output);
    let placed = |&output: &TensorId| match updated(&output).map(|update| args.get(update.input as usize)) {
        Some(Some(ArgMeta::Tensor(target))) => target.clone(),
        _ => metas[output].clone(),
    };
    Ok(fusion.outputs.iter().map(placed).collect())
}

struct Rule<'a> {
    fusion: &'a Fusion,
    bindings: &'a Bindings,
    sizes: &'a PrimaryMap<TensorId, Vec<i64>>,
    axes: &'a Axes,
    aliases: &'a Aliases,
}

impl Rule<'_> {
    /// Strides of the results of an operation whose operands are placed.
    fn strides(&self, metas: &PrimaryMap<TensorId, TensorMeta>, op: &Op) -> Result<Vec<Vec<i64>>> {
        let sizes: Vec<Vec<i64>> = op.outputs.iter().map(|&output| self.sizes[output].clone()).collect();
        let empty = sizes.iter().any(|sizes| sizes.contains(&0));
        let view = self.aliases.is_view(op.output());
        if !empty && view && aliases::copies(&op.kind) {
            return Ok(self
                .aliases
                .source(op.output())
                .map(|source| metas[source].strides.clone())
                .into_iter()
                .collect());
        }
        if !empty
            && view
            && let Some(strides) = self.regrouped(metas, op, &sizes[0])
        {
            return Ok(vec![strides]);
        }
        if !empty && (view || is_library(self.fusion, &op.kind)) {
            return strides::strides(self.bindings, metas, op, &sizes);
        }
        Ok(op.outputs.iter().map(|&output| self.written(output)).collect())
    }

    /// Strides of a view that drops or inserts axes of size 1. nvFuser makes it
    /// with a change of shape, which decides the strides of all axes of size 1
    /// anew: `size * stride` of the axes inside of them.
    fn regrouped(&self, metas: &PrimaryMap<TensorId, TensorMeta>, op: &Op, to: &[i64]) -> Option<Vec<i64>> {
        let source = self.aliases.source(op.output())?;
        let TensorMeta { mut sizes, strides, .. } = metas[source].clone();
        match &op.kind {
            OpKind::Broadcast { .. } | OpKind::Squeeze { .. } => {}
            OpKind::Call(call) => match call.movement().axes {
                AxisMap::Dropped(param) => sizes[call.axis(param)] = 1,
                _ => return None,
            },
            _ => return None,
        }
        view_strides(&sizes, &strides, to)
    }

    /// Strides of a tensor that a kernel writes.
    fn written(&self, tensor: TensorId) -> Vec<i64> {
        let sizes = &self.sizes[tensor];
        if sizes.contains(&0) {
            let logical: Vec<usize> = (0..sizes.len()).collect();
            return dense(sizes, &logical, |_| false);
        }
        let order = match self.aliases.order(tensor) {
            Some(order) => order.to_vec(),
            None if self.fusion.outputs.contains(&tensor) => {
                order::inferred(self.fusion, self.axes, self.aliases, tensor)
            }
            None => (0..sizes.len()).collect(),
        };
        dense(sizes, &order, |axis| self.axes.kinds(tensor)[axis] == PlacedKind::Expanded)
    }
}

/// Strides of a tensor whose axes lie in memory in `order`, outermost first,
/// each as many elements long as all axes inside of it have together. Axes that
/// repeat take no room.
fn dense(sizes: &[i64], order: &[usize], repeats: impl Fn(usize) -> bool) -> Vec<i64> {
    let mut strides = vec![1i64; sizes.len()];
    let mut step = 1i64;
    for &axis in order.iter().rev() {
        match sizes[axis] {
            _ if repeats(axis) => strides[axis] = 0,
            0 => {}
            size => {
                strides[axis] = step;
                step = step.saturating_mul(size);
            }
        }
    }
    strides
}

/// Whether an operation's values and strides come from a library.
fn is_library(fusion: &Fusion, kind: &OpKind) -> bool {
    let OpKind::Call(call) = kind else { return false };
    match call.movement().library {
        Library::Never => false,
        Library::Always => true,
        Library::Alone => fusion.ops.len() == 1,
    }
}

/// The number of a tensor among all.
fn place(tensor: TensorId) -> usize {
    tensor.index()
}

#[cfg(test)]
mod tests;
