//! What is computed twice is computed once, where computing costs something: reductions, and
//! primitives that are more than another look at their operand. Views of what is in memory are one too, so that kernels are
//! seen to read the same. Elementwise operations and moves of
//! axes are seen through but stay, and so are positions along an axis, since to repeat them in each kernel costs less than to share
//! a tensor between kernels.

use super::whole::{Changes, Whole, is_of_none, of_one};
use super::windows::is_in_memory;
use crate::fusion::{Axis, Op, OpKind, Operand, TensorId};
use crate::util::SecondaryMap;
use std::collections::BTreeMap;
use std::hash::Hash;

/// What an operation computes: equal ones give equal results.
#[derive(PartialEq, Eq, Hash)]
struct Work<'a> {
    kind: &'a OpKind,
    inputs: Vec<Operand>,
    /// Where they are declared.
    axes: &'a [Axis],
}

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let fusion = whole.fusion;
    let mut first: SecondaryMap<TensorId, Option<TensorId>> = SecondaryMap::new();
    let mut known: rustc_hash::FxHashMap<Work<'_>, TensorId> = rustc_hash::FxHashMap::default();
    let mut changes: Changes<'a> = BTreeMap::new();
    for (id, op) in fusion.ops.iter().filter(|(_, op)| op.outputs.len() == 1 && !cuts(op)) {
        let output = op.output();
        let same = |operand: &Operand| match *operand {
            Operand::Tensor(tensor) => Operand::Tensor(first[tensor].unwrap_or(tensor)),
            scalar => scalar,
        };
        let axes = if op.kind.declares_axes() { &fusion.tensors[output].axes[..] } else { &[] };
        let work = Work { kind: &op.kind, inputs: op.inputs.iter().map(same).collect(), axes };
        let twin = *known.entry(work).or_insert(output);
        if twin == output {
            continue;
        }
        first.set(output, Some(twin));
        if (costs(op) || is_in_memory(whole, output)) && !whole.is_returned(output) && whole.is_alike(output, twin) {
            changes.insert(id, of_one(Box::new(move |r| r.tensor(twin))));
        }
    }
    changes
}

fn cuts(op: &Op) -> bool {
    matches!(&op.kind, OpKind::Call(call) if call.movement().cuts)
}

fn costs(op: &Op) -> bool {
    match &op.kind {
        OpKind::Reduce { .. } => true,
        OpKind::Call(call) => {
            let movement = call.movement();
            !movement.view && movement.place.is_none() && !is_of_none(op)
        }
        _ => false,
    }
}
