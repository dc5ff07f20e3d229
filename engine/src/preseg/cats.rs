//! What is joined as it was cut is the tensor that was cut. Operands without elements are
//! left out, and an operand that only this `cat` reads and is one along the same axis itself gives
//! its own operands. What is left of one operand is the operand. What is computed, joined and then returned in a narrower
//! type is converted before it is joined: so kernels can write each part where it lies in the result.

use super::make::{join, tensor};
use super::slices::{ranges, same};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::diag::Result;
use crate::fusion::ops::Form;
use crate::fusion::{AxisKind, Op, OpKind, Src, TensorId};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&|whole, op| rule(whole, op).or_else(|| of_cast(whole, op)))
}

/// A result that is a conversion of what is joined of computed parts.
fn of_cast<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (&OpKind::Cast(to), Some(joined)) = (&op.kind, operand(op)) else { return None };
    let maker = whole.maker(joined).filter(|_| whole.is_read_once(joined) && whole.is_returned(op.output()))?;
    let (cat, from) = (call(maker, Form::Cat)?, whole.fusion.tensors[joined].dtype);
    let (parts, dim) = (tensors(maker, cat, "tensors"), cat.axis("dim"));
    let computed = |part: &TensorId| whole.maker(*part).is_some_and(|maker| maker.kind.is_elementwise());
    if to.bytes() >= from.bytes() || !parts.iter().any(computed) || !joins_to(whole, op.output(), &parts, dim) {
        return None;
    }
    Some(Box::new(move |r| {
        let mut narrow = Vec::with_capacity(parts.len());
        for part in &parts {
            let part = r.tensor(*part)?;
            narrow.push(Src::from(tensor(r.builder.cast(part, to)?)?));
        }
        join(&mut r.builder, narrow, dim)
    }))
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (cat, output) = (call(op, Form::Cat)?, op.output());
    if whole.is_empty(output) {
        return None;
    }
    let (given, dim) = (tensors(op, cat, "tensors"), cat.axis("dim"));
    let parts: Vec<TensorId> = given
        .iter()
        .flat_map(|part| inner(whole, *part, dim).unwrap_or_else(|| vec![*part]))
        .filter(|part| !whole.is_empty(*part))
        .collect();
    if let Some(whole_again) = cut_from(whole, &parts, dim).and_then(|x| same(whole, output, x)) {
        return Some(whole_again);
    }
    if let [only] = parts[..] {
        return same(whole, output, only);
    }
    if parts == given || !joins_to(whole, output, &parts, dim) {
        return None;
    }
    Some(Box::new(move |r| {
        let list = parts.iter().map(|part| r.tensor(*part).map(Src::from)).collect::<Result<Vec<_>>>()?;
        join(&mut r.builder, list, dim)
    }))
}

/// The operands of an operand.
fn inner(whole: &Whole<'_>, part: TensorId, dim: usize) -> Option<Vec<TensorId>> {
    let maker = whole.maker(part).filter(|_| whole.is_read_once(part))?;
    let cat = call(maker, Form::Cat).filter(|cat| cat.axis("dim") == dim)?;
    Some(tensors(maker, cat, "tensors"))
}

/// The tensor of which the parts are slices, one after the other, from its start to its end.
fn cut_from(whole: &Whole<'_>, parts: &[TensorId], dim: usize) -> Option<TensorId> {
    let source = operand(whole.maker(*parts.first()?)?)?;
    let mut place = 0;
    for part in parts {
        let maker = whole.maker(*part)?;
        let ranges = ranges(whole, maker).filter(|_| operand(maker) == Some(source))?;
        for (axis, range) in ranges.iter().enumerate() {
            let wanted = if axis == dim { (place, range.1) } else { (0, whole.sizes(source)[axis]) };
            if *range != wanted {
                return None;
            }
        }
        place = ranges.get(dim)?.1;
    }
    (place == whole.sizes(source)[dim]).then_some(source)
}

/// Whether what the parts join to has the axes of the result.
fn joins_to(whole: &Whole<'_>, output: TensorId, parts: &[TensorId], dim: usize) -> bool {
    (0..whole.rank(output)).filter(|axis| *axis != dim).all(|axis| {
        let broadcast = parts.iter().all(|part| whole.is_broadcast(*part, axis));
        broadcast == (whole.kind(output, axis) == AxisKind::Broadcast)
    })
}
