//! What is placed along several dimensions is made for each of them, where it costs less than a kernel: positions along an
//! axis and other tensors that are made of none, vectors among the inputs, and a few elementwise operations of these. Then one
//! kernel may compare rows with columns, where one tensor would be two of its dimensions.
//!
//! What is computed of a vector is computed of what lies along the dimension: that is another tensor from the start, where
//! the same conversion of a vector would be one. An input itself may be read along several dimensions, so it is left alone.

use super::make::broadcast;
use super::whole::{Change, Changes, Whole, is_of_none, of_one, operand};
use crate::diag::Diagnostic;
use crate::fusion::{AxisKind, OpId, OpKind, TensorId};
use std::collections::{BTreeMap, BTreeSet};

/// Elementwise operations that are done again, at most.
const MOST_AGAIN: usize = 8;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let mut placed: BTreeMap<OpId, &[bool]> = BTreeMap::new();
    let mut changes: Changes<'a> = BTreeMap::new();
    for (id, op) in whole.fusion.ops.iter() {
        let (OpKind::Broadcast { flags }, Some(of)) = (&op.kind, operand(op)) else { continue };
        let Some(made) = Made::of(whole, of) else { continue };
        let is_other = |op: &OpId| {
            let first = placed.get(op);
            first.is_some_and(|first| *first != &flags[..] && (made.inputs.is_empty() || first.len() == flags.len()))
        };
        if made.ops.iter().any(is_other) {
            changes.insert(id, of_one(made.again(whole, of, flags)));
        } else {
            made.ops.iter().for_each(|op| _ = placed.entry(*op).or_insert(flags));
        }
    }
    changes
}

/// How a tensor is made of nothing and of vectors.
#[derive(Default)]
struct Made {
    /// In order of definition.
    ops: BTreeSet<OpId>,
    inputs: BTreeSet<TensorId>,
}

impl Made {
    fn of(whole: &Whole<'_>, tensor: TensorId) -> Option<Self> {
        let (mut made, mut stack, mut elementwise) = (Self::default(), vec![tensor], 0);
        while let Some(next) = stack.pop() {
            let Some(id) = whole.fusion.definition(next) else {
                made.inputs.insert(next);
                continue;
            };
            let op = &whole.fusion.ops[id];
            if !made.ops.insert(id) || is_of_none(op) {
                continue;
            }
            elementwise += 1;
            if !op.kind.is_elementwise() || elementwise > MOST_AGAIN {
                return None;
            }
            stack.extend(whole.fusion.tensor_inputs(id));
        }
        let moves = |axis: &usize| whole.kind(tensor, *axis) == AxisKind::Iteration;
        let is_vector = || (0..whole.rank(tensor)).filter(moves).count() <= 1;
        (!made.ops.is_empty() && (made.inputs.is_empty() || is_vector())).then_some(made)
    }

    /// The same along dimensions, where the flags are false.
    fn again<'a>(self, whole: &'a Whole<'a>, result: TensorId, flags: &'a [bool]) -> Change<'a> {
        Box::new(move |r| {
            let no_result = || Diagnostic::bug("what is made again has no result");
            let mut along: BTreeMap<TensorId, TensorId> = BTreeMap::new();
            let (none, is_early) = (vec![false; flags.len()], !self.inputs.is_empty());
            let (early, late) = if is_early { (flags, &none[..]) } else { (&none[..], flags) };
            for input in self.inputs {
                let own = r.tensor(input)?;
                along.insert(input, broadcast(&mut r.builder, own, early)?);
            }
            for id in self.ops {
                let op = &whole.fusion.ops[id];
                let own = if is_of_none(op) {
                    let own = *r.write_again(op)?.first().ok_or_else(no_result)?;
                    broadcast(&mut r.builder, own, early)?
                } else {
                    let read = whole.fusion.tensor_inputs(id).map(|tensor| along.get(&tensor).copied());
                    let read = read.collect::<Option<Vec<TensorId>>>().ok_or_else(no_result)?;
                    r.write_on(op, &read)?
                };
                along.insert(op.output(), own);
            }
            let own = along.get(&result).copied().ok_or_else(no_result)?;
            broadcast(&mut r.builder, own, late)
        })
    }
}
