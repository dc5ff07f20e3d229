//! Repetition is reading again: `repeat`, and `cat` of one tensor with itself, which no kernel
//! computes, become an expanded axis beside the repeated one, and a regrouping of the two. Where a
//! repeated axis has one element, it is expanded itself. What is repeated once is a copy, laid out as `repeat` does.

use super::make::{broadcast, call as apply, extents, reshape};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::diag::Result;
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{MAX_RANK, Op, OpKind, Operand, Rewriter, Src, TensorId};
use crate::num::{DType, TernaryOp};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let output = op.output();
    let (x, counts) = repeated(whole, op)?;
    // Of what kind a repeated tensor's axes are their extents say.
    let is_usable = whole.regroups(output) || whole.declares(output);
    if !is_usable || whole.is_empty(output) || 2 * counts.len() > MAX_RANK {
        return None;
    }
    let is_once = counts.iter().all(|count| *count == 1);
    // Tensors that are joined have at least two parts, or other passes know better.
    if is_once && call(op, Form::Repeat).is_none() {
        return None;
    }
    Some(Box::new(move |r| if is_once { copy(r, x, counts.len()) } else { make(r, whole, x, &counts, output) }))
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

/// A copy that lies row-major.
fn copy(r: &mut Rewriter<'_>, x: TensorId, rank: usize) -> Result<TensorId> {
    let new = r.tensor(x)?;
    let order = OpArg::Ints((0..rank as i64).rev().collect());
    match rank {
        0 => apply(&mut r.builder, "set", |args| args.value("x", new)),
        _ => apply(&mut r.builder, "stride_order", |args| args.value("x", new).with("order", order)),
    }
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
    if !flags.contains(&true) {
        return Ok(repeated);
    }
    // A reshape makes broadcasts of axes of one element; those that are none are so beside a tensor that has them.
    let is_single = |axis: usize| whole.sizes(output)[axis] == 1 && !whole.is_broadcast(output, axis);
    let only = |wanted: bool| {
        let own = |(axis, extent): (usize, &Src)| if is_single(axis) == wanted { *extent } else { 1.into() };
        shape.iter().enumerate().map(own).collect::<Vec<Src>>()
    };
    let made = reshape(&mut r.builder, repeated, only(false))?;
    if !(0..shape.len()).any(is_single) {
        return Ok(made);
    }
    let always = r.builder.full(&only(true), true, DType::Bool)?;
    let choice = vec![always, Operand::Tensor(made), Operand::Tensor(made)];
    Ok(r.builder.push_all(OpKind::Ternary(TernaryOp::Where), choice)?[0])
}
