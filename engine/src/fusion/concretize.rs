//! From a fusion whose axes may be undecided to one in which every axis is an
//! iteration or a broadcast, for sizes that are known.
//!
//! What is decided is a value, [`Facts`]: it is all of the sizes that the
//! concrete fusion depends on, so runs with equal facts share one, and it can be
//! a part of a cache key. Equal facts give equal fusions and different facts
//! different ones.

use super::ops::Form;
use super::rewrite::{Rewriter, Rewritten};
use super::{Axis, AxisKind, Bindings, Fusion, Op, OpKind, Operand, TensorDef, TensorId};
use crate::diag::Result;
use crate::util::{EntityId, SecondaryMap};

/// What concretisation decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Facts {
    /// Undecided axes that are broadcasts, as tensor and axis, in order; the
    /// others of the tensors that matter are iterations.
    pub broadcasts: Vec<(TensorId, u32)>,
    /// Results without elements and products that sum over nothing, in order: made by `full` instead.
    pub empty: Vec<TensorId>,
}

/// The facts for some sizes. Tensors that nothing needs once empty results are
/// not computed are not in them.
pub fn facts(fusion: &Fusion, bindings: &Bindings) -> Facts {
    let mut facts = Facts::default();
    let needed = needed(fusion, |op| is_of_nothing(fusion, bindings, op));
    for (id, tensor) in fusion.tensors.iter().filter(|(id, _)| needed[*id]) {
        for (position, axis) in tensor.axes.iter().enumerate() {
            if axis.kind == AxisKind::Symbolic && bindings.scalar(axis.extent).as_i64() == 1 {
                facts.broadcasts.push((id, position as u32));
            }
        }
        if let TensorDef::Op(op) = tensor.def
            && is_of_nothing(fusion, bindings, &fusion.ops[op])
        {
            facts.empty.push(id);
        }
    }
    facts
}

/// The same where results of nothing are computed like all others.
pub fn facts_of_all(fusion: &Fusion, bindings: &Bindings) -> Facts {
    let mut facts = Facts::default();
    let needed = needed(fusion, |_| false);
    for (id, tensor) in fusion.tensors.iter().filter(|(id, _)| needed[*id]) {
        let is_one = |axis: &Axis| axis.kind == AxisKind::Symbolic && bindings.scalar(axis.extent).as_i64() == 1;
        let ones = tensor.axes.iter().enumerate().filter(|(_, axis)| is_one(axis));
        facts.broadcasts.extend(ones.map(|(position, _)| (id, position as u32)));
    }
    facts
}

/// The tensors that outputs need, where operations on nothing need none.
fn needed(fusion: &Fusion, empty: impl Fn(&Op) -> bool) -> SecondaryMap<TensorId, bool> {
    let mut needed: SecondaryMap<TensorId, bool> = SecondaryMap::new();
    for output in fusion.outputs.iter().chain(fusion.updates.iter().map(|update| &update.tensor)) {
        needed.set(*output, true);
    }
    for (id, op) in fusion.ops.iter().rev() {
        if op.outputs.iter().any(|output| needed[*output]) && !empty(op) {
            for operand in fusion.tensor_inputs(id) {
                needed.set(operand, true);
            }
        }
    }
    needed
}

/// Whether an operation computes no element at all, or each is a sum of no products, which is 0. Passes know those that a
/// definition has; composite products come to such ones when they become simpler.
fn is_of_nothing(fusion: &Fusion, bindings: &Bindings, op: &Op) -> bool {
    let has_none = |axis: &Axis| bindings.scalar(axis.extent).as_i64() == 0;
    let is_product = matches!(&op.kind, OpKind::Call(call) if call.movement().form == Some(Form::Matmul));
    let summed = match op.inputs.first() {
        Some(Operand::Tensor(left)) if is_product => fusion.tensors[*left].axes.last(),
        _ => None,
    };
    summed.is_some_and(has_none) || op.outputs.iter().all(|&output| fusion.tensors[output].axes.iter().any(has_none))
}

/// The fusion in which the facts hold.
pub fn concretize(fusion: &Fusion, facts: &Facts) -> Result<Rewritten> {
    let kind = |tensor: TensorId, axis: usize| match fusion.tensors[tensor].axes[axis].kind {
        AxisKind::Symbolic if facts.broadcasts.binary_search(&(tensor, axis as u32)).is_ok() => AxisKind::Broadcast,
        AxisKind::Symbolic => AxisKind::Iteration,
        decided => decided,
    };
    let mut rewriter = Rewriter::new(fusion, kind)?;
    let is_listed = |op: &Op| op.outputs.iter().any(|output| facts.empty.binary_search(output).is_ok());
    let needed = needed(fusion, is_listed);
    for op in fusion.ops.values() {
        if !op.outputs.iter().any(|output| needed[*output]) {
            continue;
        }
        let results = if is_listed(op) {
            op.outputs.iter().map(|&output| rewriter.zeros(output)).collect::<Result<Vec<_>>>()?
        } else {
            rewriter.keep(op)?
        };
        for (&old, &new) in op.outputs.iter().zip(&results) {
            for axis in 0..fusion.tensors[old].axes.len() {
                rewriter.builder.decide(new, axis, kind(old, axis));
            }
        }
        rewriter.replace(op, &results)?;
    }
    rewriter.finish()
}

impl Facts {
    /// Whether there is nothing to change in a fusion.
    pub fn change_nothing(&self, fusion: &Fusion) -> bool {
        let decided = |tensor: &super::Tensor| tensor.axes.iter().all(|axis| axis.kind != AxisKind::Symbolic);
        self.empty.is_empty() && fusion.tensors.values().all(decided)
    }
}

impl std::fmt::Display for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let axes: Vec<String> = self.broadcasts.iter().map(|(t, axis)| format!("{}.{axis}", t.index())).collect();
        let empty: Vec<String> = self.empty.iter().map(|t| t.index().to_string()).collect();
        write!(f, "broadcasts [{}] empty [{}]", axes.join(", "), empty.join(", "))
    }
}

#[cfg(test)]
mod tests;
