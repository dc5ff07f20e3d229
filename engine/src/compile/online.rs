//! The maximum of a row, and the sum of exponentials below it, in one go (*online softmax*).
//!
//! `m = max(x)`, `s = sum(exp(x - m))` read a row twice, or hold it in between. Where nothing else needs the differences
//! or the exponentials, pairs `(x, 1)` are reduced by [`ReduceOp::MaxSumExp`] instead: the row is read once and not held.
//!
//! What is not finite comes out as it would: NaN is in the maximum, and `s` is NaN below an infinite one, as
//! `exp(inf - inf)` is. A row without elements has the sum 0.

use crate::diag::{Diagnostic, Result};
use crate::fusion::{Fusion, FusionBuilder, OpId, OpKind, Operand, Rewriter, TensorId, made_tensor};
use crate::num::{BinaryOp, ReduceOp, UnaryOp};
use crate::util::{SecondaryMap, map_of};
use std::collections::{BTreeMap, BTreeSet};

/// A maximum, and a sum of exponentials below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxAndSum {
    /// `max(x)`.
    pub(crate) max: OpId,
    /// `d = x - max`.
    pub(crate) difference: OpId,
    /// `e = exp(d)`.
    pub(crate) exponential: OpId,
    /// `sum(e)` over the same axes.
    pub(crate) sum: OpId,
}

/// All of them, whatever else reads what they compute.
pub(crate) fn find_max_and_sum(fusion: &Fusion) -> Vec<MaxAndSum> {
    let sums = fusion.ops.iter().filter_map(|(sum, op)| {
        let OpKind::Reduce { op: ReduceOp::Sum, axes } = &op.kind else { return None };
        let exponential = defined(fusion, op.inputs.first(), &OpKind::Unary(UnaryOp::Exp))?;
        let difference = defined(fusion, fusion.ops[exponential].inputs.first(), &OpKind::Binary(BinaryOp::Sub))?;
        let [Operand::Tensor(x), Operand::Tensor(spread)] = fusion.ops[difference].inputs[..] else { return None };
        let max = spread_maximum(fusion, spread, axes)?;
        let is_float = fusion.tensors[x].dtype.is_float();
        let of_x = fusion.ops[max].inputs.first() == Some(&Operand::Tensor(x));
        (is_float && of_x).then_some(MaxAndSum { max, difference, exponential, sum })
    });
    sums.collect()
}

/// The operation of a kind that makes an operand.
fn defined(fusion: &Fusion, operand: Option<&Operand>, kind: &OpKind) -> Option<OpId> {
    let Some(Operand::Tensor(tensor)) = operand else { return None };
    fusion.definition(*tensor).filter(|op| fusion.ops[*op].kind == *kind)
}

/// The maximum over some axes that a tensor is, with axes of size 1 in their places.
fn spread_maximum(fusion: &Fusion, spread: TensorId, axes: &[u32]) -> Option<OpId> {
    let op = &fusion.ops[fusion.definition(spread)?];
    let OpKind::Broadcast { flags } = &op.kind else { return None };
    let are_axes = flags.iter().enumerate().all(|(axis, flag)| *flag == axes.contains(&(axis as u32)));
    let max = defined(fusion, op.inputs.first(), &OpKind::Reduce { op: ReduceOp::Max, axes: axes.to_vec() })?;
    are_axes.then_some(max)
}

/// The fusion with those computed in one go whose differences and exponentials nothing else needs; none if there is none.
pub(super) fn rewrite(fusion: &Fusion) -> Result<Option<Fusion>> {
    let readers = fusion.readers();
    let mut found = find_max_and_sum(fusion);
    found.retain(|pair| is_alone(fusion, &readers, pair));
    if found.is_empty() {
        return Ok(None);
    }
    let maxima: BTreeSet<OpId> = found.iter().map(|pair| pair.max).collect();
    let by_sum: BTreeMap<OpId, OpId> = map_of(found.iter().map(|pair| (pair.sum, pair.max)));
    let mut pairs: BTreeMap<OpId, Operand> = BTreeMap::new();
    let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
    for (id, op) in fusion.ops.iter() {
        let results = if maxima.contains(&id) {
            let (OpKind::Reduce { axes, .. }, Some(Operand::Tensor(x))) = (&op.kind, op.inputs.first()) else {
                return Err(Diagnostic::bug("a maximum without an operand"));
            };
            let x = rewriter.tensor(*x)?;
            let pair = reduce_pairs(&mut rewriter.builder, x, axes)?;
            pairs.insert(id, pair);
            vec![made_tensor(rewriter.builder.unary(UnaryOp::Real, pair)?)?]
        } else if let Some(pair) = by_sum.get(&id).and_then(|max| pairs.get(max)) {
            vec![made_tensor(rewriter.builder.unary(UnaryOp::Imag, *pair)?)?]
        } else {
            rewriter.keep(op)?
        };
        rewriter.replace(op, &results)?;
    }
    Ok(Some(rewriter.finish()?.fusion))
}

/// Whether nothing but the sum needs differences and exponentials.
fn is_alone(fusion: &Fusion, readers: &SecondaryMap<TensorId, Vec<OpId>>, pair: &MaxAndSum) -> bool {
    let is_returned = |tensor: TensorId| {
        fusion.outputs.contains(&tensor) || fusion.updates.iter().any(|update| update.tensor == tensor)
    };
    let feeds = |from: OpId, to: OpId| {
        let made = fusion.ops[from].output();
        readers[made] == [to] && !is_returned(made)
    };
    feeds(pair.difference, pair.exponential) && feeds(pair.exponential, pair.sum)
}

/// Pairs `(x, 1)`, reduced.
fn reduce_pairs(b: &mut FusionBuilder, x: TensorId, axes: &[u32]) -> Result<Operand> {
    let pairs = b.binary(BinaryOp::Complex, Operand::Tensor(x), 1.0)?;
    let axes: Vec<i64> = axes.iter().map(|axis| i64::from(*axis)).collect();
    b.reduce(ReduceOp::MaxSumExp, pairs, &axes, false, None)
}
