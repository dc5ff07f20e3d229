//! Repetition is reading again: `repeat`, and `cat` of one tensor with itself, which no kernel
//! computes, become an expanded axis beside the repeated one, and a regrouping of the two. Where a
//! repeated axis has one element, it is expanded itself.

use super::make::{broadcast, call as apply, extents, reshape};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::diag::Result;
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{MAX_RANK, Op, Rewriter, Src, TensorId};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let output = op.output();
    let (x, counts) = repeated(whole, op)?;
    let usable = whole.regroups(output) && !whole.is_empty(output);
    if !usable || 2 * counts.len() > MAX_RANK || counts.iter().all(|count| *count == 1) {
        return None;
    }
    Some(Box::new(move |r| make(r, whole, x, &counts, output)))
}

/// What is repeated, and how often along each axis.
fn repeated(whole: &Whole<'_>, op: &Op) -> Option<(TensorId, Vec<i64>)> {
    if let Some(repeat) = call(op, Form::Repeat) {
        return Some((operand(op)?, repeat.ints("counts").to_vec()));
    }
    let cat = call(op, Form::Cat)?;
    let parts = tensors(op, cat, "tensors");
    let x = *parts.first()?;
    let mut counts = vec![1; whole.rank(x)];
    *counts.get_mut(cat.axis("dim"))? = parts.len() as i64;
    parts.iter().all(|part| *part == x).then_some((x, counts))
}

fn make(r: &mut Rewriter<'_>, whole: &Whole<'_>, x: TensorId, counts: &[i64], output: TensorId) -> Result<TensorId> {
    let (own, shape) = (extents(r, whole, x), extents(r, whole, output));
    let (mut flags, mut wide): (Vec<bool>, Vec<Src>) = (Vec::new(), Vec::new());
    for (axis, &count) in counts.iter().enumerate() {
        if count > 1 && !whole.is_broadcast(x, axis) {
            flags.push(true);
            wide.push(count.into());
        }
        flags.push(false);
        wide.push(if count > 1 && whole.is_broadcast(x, axis) { shape[axis] } else { own[axis] });
    }
    let new = r.tensor(x)?;
    let spread = broadcast(&mut r.builder, new, &flags)?;
    let repeated = apply(&mut r.builder, "expand", |args| args.value("x", spread).with("shape", OpArg::Values(wide)))?;
    if flags.contains(&true) { reshape(&mut r.builder, repeated, shape) } else { Ok(repeated) }
}
