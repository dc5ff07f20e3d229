//! What has no element, or is made of none, is filled and not computed: results without
//! elements, a reduction over nothing (its initial value), a product over nothing (0, or its bias), a
//! padded nothing, or what is cut off as a whole (the padding), groups of nothing and sums over no group (0, and what comes
//! after such sums), a tensor into which nothing is put (itself).

use super::make::{broadcast, extents, tensor};
use super::slices::widths;
use super::whole::{ChangeAll, Changes, Whole, call, operand};
use crate::fusion::ops::{self, Form};
use crate::fusion::{Op, OpKind, Operand, Src, TensorId};
use crate::num::{Value, eval};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let ops = whole.fusion.ops.iter();
    ops.filter_map(|(id, op)| Some((id, rule(whole, op)?))).collect()
}

/// What a result is filled with.
enum Fill {
    Number(Value),
    Operand(Operand),
    /// With the elements of a tensor of its sizes.
    Copy(TensorId),
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<ChangeAll<'a>> {
    if op.kind.declares_axes() || !op.outputs.iter().all(|output| whole.declares(*output)) {
        return None;
    }
    let made_of_nothing = !whole.is_empty(op.output()) && sums_nothing(whole, op);
    if let Some(call) = call(op, Form::GroupedProducts).filter(|_| made_of_nothing) {
        return Some(Box::new(move |r| {
            let shape = extents(r, whole, op.output());
            let args = r.arguments(op, call)?;
            Ok(vec![tensor(ops::grouped_of_nothing(&mut r.builder, &args, &shape)?)?])
        }));
    }
    if let Some(change) = bias_alone(whole, op) {
        return Some(change);
    }
    let fill = |output| {
        let is_empty = whole.is_empty(output);
        Some((output, if is_empty { Fill::Number(Value::Int(0)) } else { of_nothing(whole, op)? }))
    };
    let fills: Vec<(TensorId, Fill)> = op.outputs.iter().map(|output| fill(*output)).collect::<Option<_>>()?;
    Some(Box::new(move |r| {
        let made = fills.into_iter().map(|(output, fill)| {
            let value = match fill {
                Fill::Copy(x) => {
                    let x = r.tensor(x)?;
                    return tensor(r.builder.set(x)?);
                }
                Fill::Number(value) => Src::Number(value),
                Fill::Operand(Operand::Scalar(scalar)) => r.scalar(scalar).into(),
                Fill::Operand(Operand::Tensor(tensor)) => r.tensor(tensor)?.into(),
            };
            let shape = extents(r, whole, output);
            tensor(r.builder.full(&shape, value, whole.fusion.tensors[output].dtype)?)
        });
        made.collect()
    }))
}

/// A product over nothing with a bias: the bias in each row, added to 0.
fn bias_alone<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<ChangeAll<'a>> {
    call(op, Form::Linear).filter(|_| !whole.is_empty(op.output()))?;
    let [Operand::Tensor(x), _, Operand::Tensor(bias)] = op.inputs[..] else { return None };
    if !has_no_terms(whole, x) {
        return None;
    }
    let (output, rank) = (op.output(), whole.fusion.tensors[bias].axes.len());
    Some(Box::new(move |r| {
        let (dtype, shape) = (whole.fusion.tensors[output].dtype, extents(r, whole, output));
        let nothing = tensor(r.builder.full(&shape, Value::Int(0), dtype)?)?;
        let bias = r.tensor(bias)?;
        let mut flags = vec![true; shape.len()];
        flags[shape.len() - rank..].fill(false);
        let bias = broadcast(&mut r.builder, bias, &flags)?;
        let sums = r.builder.add(nothing, bias)?;
        Ok(vec![tensor(r.builder.cast(sums, dtype)?)?])
    }))
}

/// The value of all elements of a result that depends on no element.
fn of_nothing(whole: &Whole<'_>, op: &Op) -> Option<Fill> {
    let is_put = [Form::Scatter, Form::Put].into_iter().any(|form| call(op, form).is_some());
    let added = match (&op.inputs[..], call(op, Form::PutRuns).is_some()) {
        ([to, Operand::Tensor(index), ..], false) if is_put => Some((to, index)),
        ([to, _, Operand::Tensor(order), _], true) => Some((to, order)),
        _ => None,
    };
    if let Some((to, index)) = added {
        return whole.is_empty(*index).then_some(match *to {
            Operand::Tensor(x) => Fill::Copy(x),
            number @ Operand::Scalar(_) => Fill::Operand(number),
        });
    }
    let is_of_groups =
        [Form::GroupedSums, Form::PutGroups, Form::ScaledGroups].into_iter().any(|form| call(op, form).is_some());
    if is_of_groups && sums_nothing(whole, op) {
        return Some(Fill::Number(Value::Int(0)));
    }
    if let Some(pad) = call(op, Form::Pad) {
        let value = op.inputs[pad.operands("value")].first();
        let fill = || value.map_or(Fill::Number(Value::Int(0)), |value| Fill::Operand(*value));
        return pads_nothing(whole, op).then(fill);
    }
    let x = operand(op).filter(|x| whole.is_empty(*x))?;
    let dtype = whole.fusion.tensors[x].dtype;
    let is_product = |form: Form| call(op, form).is_some() && op.inputs.len() == 2 && has_no_terms(whole, x);
    match &op.kind {
        OpKind::Reduce { op, .. } => Some(Fill::Number(eval::reduce_identity(*op, dtype))),
        _ if is_product(Form::Matmul) || is_product(Form::Linear) => Some(Fill::Number(Value::Int(0))),
        _ if call(op, Form::Groups).is_some() => Some(Fill::Number(Value::Int(0))),
        _ if [Form::Last, Form::Runs, Form::Counts].into_iter().any(|form| call(op, form).is_some()) => {
            Some(Fill::Number(Value::Int(0)))
        }
        _ => None,
    }
}

/// Whether a pad leaves no element of what it pads: there is none, or all are cut off along some axis.
fn pads_nothing(whole: &Whole<'_>, op: &Op) -> bool {
    let Some(x) = operand(op) else { return false };
    let cut = |((left, right), size): ((i64, i64), &i64)| left.min(0).saturating_add(right.min(0)) <= -size;
    whole.is_empty(x) || widths(whole, op).is_some_and(|widths| widths.into_iter().zip(whole.sizes(x)).any(cut))
}

/// Whether a product of groups, or sums of rows in groups, have no group, or none of the sums has a term.
fn sums_nothing(whole: &Whole<'_>, op: &Op) -> bool {
    // Without scales no row is of a group; a product over no term counts the numbers of groups.
    if call(op, Form::ScaledGroups).is_some() && operand(op).is_some_and(|x| has_no_terms(whole, x)) {
        return false;
    }
    let is_nothing = |x: &Operand| matches!(x, Operand::Tensor(x) if whole.is_empty(*x));
    op.inputs.iter().take(3).any(is_nothing)
}

/// Whether the axis over which a product of this left operand sums has no element.
fn has_no_terms(whole: &Whole<'_>, x: TensorId) -> bool {
    whole.sizes(x).last() == Some(&0)
}
