//! A reduction over axes of size 1 drops them. A sum starts at `0.0`, which only the sign of a 0
//! shows: 0 is added to what is a float.

use super::make::{squeeze, tensor};
use super::whole::{Change, Changes, Whole, operand};
use crate::fusion::{Op, OpKind};
use crate::num::{BinaryOp, ReduceOp};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (OpKind::Reduce { op: combine, axes }, Some(x)) = (&op.kind, operand(op)) else { return None };
    let dtype = whole.fusion.tensors[x].dtype;
    if dtype.is_complex() || !axes.iter().all(|axis| whole.is_broadcast(x, *axis as usize)) {
        return None;
    }
    let flags: Vec<bool> = (0..whole.rank(x)).map(|axis| axes.contains(&(axis as u32))).collect();
    Some(Box::new(move |r| {
        let x = r.tensor(x)?;
        let dropped = squeeze(&mut r.builder, x, &flags)?;
        if *combine == ReduceOp::Sum && dtype.is_float() {
            return tensor(r.builder.binary(BinaryOp::Add, dropped, 0.0)?);
        }
        Ok(dropped)
    }))
}
