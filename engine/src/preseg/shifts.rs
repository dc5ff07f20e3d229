//! A scan of one element that changes nothing, joined to a tensor without its last: the scan of the tensor moved by one, which
//! is a pad. Kernels that scan have what comes before each element anyway, and need neither the part nor the whole in memory.

use super::make::{call as apply, pad, pads_to};
use super::slices::ranges;
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{Op, OpKind, Operand, ScalarId, TensorId};
use crate::num::eval;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (OpKind::Call(scan), Some(dim)) = (&op.kind, op.kind.scanned()) else { return None };
    let Some(Form::Scan(combine)) = scan.movement().form.filter(|_| !scan.flag("reverse")) else { return None };
    let joined = operand(op).filter(|joined| whole.is_read_once(*joined))?;
    let cat = call(whole.maker(joined)?, Form::Cat).filter(|cat| cat.axis("dim") == dim)?;
    let [first, rest] = tensors(whole.maker(joined)?, cat, "tensors")[..] else { return None };
    let fill = filled(whole, first).filter(|_| whole.sizes(first)[dim] == 1)?;
    let dtype = whole.fusion.tensors[joined].dtype;
    // A scan starts with it, whatever follows.
    let neutral = eval::reduce_identity(combine, dtype);
    let value = whole.fusion.constant(fill)?;
    if eval::cast(whole.fusion.scalars[fill].dtype, dtype, value) != neutral {
        return None;
    }
    let cut = whole.maker(rest)?;
    let moved = operand(cut)?;
    let is_without_last =
        |(axis, range): (usize, &(i64, i64))| *range == (0, whole.sizes(moved)[axis] - i64::from(axis == dim));
    if !ranges(whole, cut)?.iter().enumerate().all(is_without_last) {
        return None;
    }
    let widths: Vec<(i64, i64)> =
        (0..whole.rank(moved)).map(|axis| if axis == dim { (1, -1) } else { (0, 0) }).collect();
    if !pads_to(whole, op.output(), moved, &widths) {
        return None;
    }
    let name = scan.row.name;
    Some(Box::new(move |r| {
        let moved = pad(r, moved, &widths, Some(fill))?;
        apply(&mut r.builder, name, |args| args.value("x", moved).with("dim", OpArg::Int(dim as i64)))
    }))
}

/// The scalar that all elements of a tensor are.
pub(super) fn filled(whole: &Whole<'_>, tensor: TensorId) -> Option<ScalarId> {
    let op = whole.maker(tensor).filter(|op| op.kind == OpKind::Full)?;
    match op.inputs.first() {
        Some(Operand::Scalar(value)) => Some(*value),
        _ => None,
    }
}
