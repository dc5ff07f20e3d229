//! What is made of no tensor, such as the positions along an axis, and placed along several dimensions is made for each
//! of them: then one kernel may compare rows with columns, where one tensor would be two of its dimensions.
//!
//! What lies between, elementwise operations of one tensor, is made again too: all of it costs less than a kernel.

use super::make::broadcast;
use super::whole::{Change, Changes, Whole, is_of_none, of_one, operand};
use crate::diag::Diagnostic;
use crate::fusion::{Op, OpKind, Operand, TensorId};
use std::collections::BTreeMap;

/// Operations between, at most.
const MOST_BETWEEN: usize = 8;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let mut placed: BTreeMap<TensorId, &[bool]> = BTreeMap::new();
    let mut changes: Changes<'a> = BTreeMap::new();
    for (id, op) in whole.fusion.ops.iter() {
        let (OpKind::Broadcast { flags }, Some(of)) = (&op.kind, operand(op)) else { continue };
        let Some((made, between)) = made_of_none(whole, of) else { continue };
        if *placed.entry(made.output()).or_insert(flags) != &flags[..] {
            changes.insert(id, of_one(again(made, between, flags)));
        }
    }
    changes
}

/// The operation without operands of which alone a tensor is computed, and those between, the last first.
fn made_of_none<'a>(whole: &'a Whole<'a>, mut of: TensorId) -> Option<(&'a Op, Vec<&'a Op>)> {
    let mut between = Vec::new();
    while between.len() <= MOST_BETWEEN {
        let op = whole.maker(of)?;
        if is_of_none(op) {
            return Some((op, between));
        }
        let mut tensors = op.inputs.iter().filter(|input| matches!(input, Operand::Tensor(_)));
        let (Some(Operand::Tensor(before)), None) = (tensors.next(), tensors.next()) else { return None };
        if !op.kind.is_elementwise() {
            return None;
        }
        between.push(op);
        of = *before;
    }
    None
}

fn again<'a>(made: &'a Op, between: Vec<&'a Op>, flags: &'a [bool]) -> Change<'a> {
    Box::new(move |r| {
        let mut own = *r.write_again(made)?.first().ok_or_else(|| no_result(made))?;
        for op in between.into_iter().rev() {
            own = r.write_on(op, &[own])?;
        }
        broadcast(&mut r.builder, own, flags)
    })
}

fn no_result(op: &Op) -> Box<Diagnostic> {
    Diagnostic::bug(format!("{} has no result", op.kind.name()))
}
