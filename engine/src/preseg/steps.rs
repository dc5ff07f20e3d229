//! Where the axes of a tensor come from through operations that only move axes.

use super::whole::{Whole, call, operand};
use crate::fusion::ops::Form;
use crate::fusion::{Op, OpKind, TensorId};
use crate::util::SecondaryMap;

/// A tensor in terms of another one of which it has all elements.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// The other one.
    pub(super) source: TensorId,
    /// Its axis that each axis is; none for one of size 1 that was inserted.
    pub(super) axes: Vec<Option<usize>>,
    /// How many operations lead from it.
    pub(super) steps: usize,
    /// How many of them, counted from the last, nothing else needs.
    pub(super) own: usize,
}

/// The traces of all tensors, from as far as there is.
pub(super) fn traces(whole: &Whole<'_>) -> SecondaryMap<TensorId, Option<Trace>> {
    let mut traces: SecondaryMap<TensorId, Option<Trace>> = SecondaryMap::new();
    for op in whole.fusion.ops.values() {
        let (Some(axes), Some(x)) = (step(whole, op), operand(op)) else { continue };
        let trace = match &traces[x] {
            None => Trace { source: x, axes, steps: 1, own: 1 },
            Some(before) => Trace {
                source: before.source,
                axes: axes.into_iter().map(|axis| axis.and_then(|axis| before.axes[axis])).collect(),
                steps: before.steps + 1,
                own: if whole.is_read_once(x) { before.own + 1 } else { 1 },
            },
        };
        traces.set(op.output(), Some(trace));
    }
    traces
}

/// The axis of the operand that each axis of a result is, of an operation that only moves axes.
pub(super) fn step(whole: &Whole<'_>, op: &Op) -> Option<Vec<Option<usize>>> {
    let (x, output) = (operand(op)?, op.output());
    let all = || (0..whole.rank(output)).map(Some).collect();
    match &op.kind {
        OpKind::Set => Some(all()),
        OpKind::Permute { perm } => Some(perm.iter().map(|axis| Some(*axis as usize)).collect()),
        OpKind::Squeeze { flags } => Some((0..flags.len()).filter(|axis| !flags[*axis]).map(Some).collect()),
        OpKind::Broadcast { flags } => {
            let mut old = 0..;
            Some(flags.iter().map(|new| if *new { None } else { old.next() }).collect())
        }
        _ if call(op, Form::Expand).or(call(op, Form::Repeat)).is_some() => whole.is_alike(x, output).then(all),
        _ if call(op, Form::Reshape).is_some() => regrouped(whole, x, output),
        _ => {
            let dim = call(op, Form::Select)?.axis("dim");
            let dropped = whole.is_broadcast(x, dim);
            dropped.then(|| (0..whole.rank(x)).filter(|axis| *axis != dim).map(Some).collect())
        }
    }
}

/// A reshape that only inserts and drops broadcasts. Between axes of several elements they are
/// taken for each other in their order.
fn regrouped(whole: &Whole<'_>, x: TensorId, output: TensorId) -> Option<Vec<Option<usize>>> {
    if whole.is_empty(x) {
        return None;
    }
    let (mut axes, mut next) = (Vec::with_capacity(whole.rank(output)), 0);
    let is_thin = |axis: usize| axis < whole.rank(x) && whole.is_broadcast(x, axis);
    for axis in 0..whole.rank(output) {
        if whole.is_broadcast(output, axis) {
            axes.push(is_thin(next).then_some(next));
            next += usize::from(is_thin(next));
            continue;
        }
        while is_thin(next) {
            next += 1;
        }
        // An axis that iterates over one element is none that could be dropped or inserted.
        if next >= whole.rank(x) || whole.sizes(x)[next] != whole.sizes(output)[axis] {
            return None;
        }
        axes.push(Some(next));
        next += 1;
    }
    (next..whole.rank(x)).all(is_thin).then_some(axes)
}
