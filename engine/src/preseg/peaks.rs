//! The greatest probability of a row is that of its greatest element: the maximum of what never falls where the differences from a
//! row's maximum grow is computed of the one that is 0, instead of looking for it among all. What filters by a share of the
//! greatest probability (*min-p*), or asks how sure a row is, reads it once less.
//!
//! In: a maximum of `f(x - max(x))`, over the same axes. Out: `f(max(x) - max(x))`. The steps of `f` are
//!
//! * `d = x - max(x)`, none above 0, and `e = exp(d)`, from 0 to 1;
//! * `e` divided by its sum, or times the sum's reciprocal (the sum has a term of 1), also times and over positive numbers, in
//!   wider and narrower floats, and as a magnitude: all of them not negative; or else
//! * `d - log(sum(e))`.
//!
//! Each rounds what is greater to what is no less. What is not finite comes out as it would: NaN is in `max(x)`, and below an
//! infinite maximum some difference is NaN, as `inf - inf` is; so is the sum then, and all that it divides. A row without
//! elements has no such element, and keeps its maximum.

use super::make::{squeeze, tensor};
use super::whole::{Change, Changes, Whole, operand};
use crate::fusion::{Op, OpKind, Operand, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, UnaryOp};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (OpKind::Reduce { op: ReduceOp::Max, axes }, Some(top)) = (&op.kind, operand(op)) else { return None };
    if whole.is_empty(top) {
        return None;
    }
    let row = Row { whole, axes };
    let (maximum, steps) = row.steps_to(top)?;
    Some(Box::new(move |r| {
        let kept = r.tensor(maximum)?;
        let mut made = tensor(r.builder.binary(BinaryOp::Sub, kept, kept)?)?;
        for step in steps.into_iter().rev() {
            made = tensor(match step {
                Step::Unary(op) => r.builder.unary(op, made)?,
                Step::Cast(to) => r.builder.cast(made, to)?,
                Step::With(op, Operand::Tensor(other)) => {
                    let other = r.tensor(other)?;
                    r.builder.binary(op, made, other)?
                }
                Step::With(op, Operand::Scalar(other)) => {
                    let other = r.scalar(other);
                    r.builder.binary(op, made, other)?
                }
            })?;
        }
        let flags: Vec<bool> = (0..whole.rank(top)).map(|axis| axes.contains(&(axis as u32))).collect();
        squeeze(&mut r.builder, made, &flags)
    }))
}

/// A step from differences on.
enum Step {
    Unary(UnaryOp),
    Cast(DType),
    /// With an operand that is one for a row, on the right.
    With(BinaryOp, Operand),
}

/// Rows over which maxima are taken.
struct Row<'a> {
    whole: &'a Whole<'a>,
    axes: &'a [u32],
}

impl Row<'_> {
    /// The maximum of rows, with axes of size 1, of which `top` is made by such steps, the last one first.
    fn steps_to(&self, top: TensorId) -> Option<(TensorId, Vec<Step>)> {
        let mut steps = Vec::new();
        let mut at = top;
        loop {
            let op = self.whole.maker(at)?;
            let first = operand(op)?;
            match &op.kind {
                OpKind::Unary(UnaryOp::Exp) => {
                    steps.push(Step::Unary(UnaryOp::Exp));
                    return Some((self.maximum_below(first)?, steps));
                }
                // A logarithm of a share, if nothing else was done with it.
                OpKind::Binary(BinaryOp::Sub) if steps.is_empty() => {
                    let maximum = self.maximum_below(first)?;
                    let sum = self.of_sum(*op.inputs.get(1)?, UnaryOp::Log)?;
                    self.is_exponential(sum, first).then_some(())?;
                    return Some((maximum, vec![Step::With(BinaryOp::Sub, op.inputs[1])]));
                }
                OpKind::Unary(UnaryOp::Abs) => steps.push(Step::Unary(UnaryOp::Abs)),
                OpKind::Cast(to) if self.is_wide_float(first) && self.is_wide_float(at) => steps.push(Step::Cast(*to)),
                OpKind::Binary(scale @ (BinaryOp::Mul | BinaryOp::Div | BinaryOp::Truediv)) => {
                    let by = *op.inputs.get(1)?;
                    self.is_scale(*scale, first, by).then_some(())?;
                    steps.push(Step::With(*scale, by));
                }
                _ => return None,
            }
            at = first;
        }
    }

    /// Whether a product or quotient is a share of the sum of exponentials, or scales what is not negative by a positive number.
    fn is_scale(&self, scale: BinaryOp, x: TensorId, by: Operand) -> bool {
        let is_share = || match scale {
            BinaryOp::Mul => self.of_sum(by, UnaryOp::Reciprocal) == Some(x),
            _ => self.spread_sum(by) == Some(x),
        };
        let is_exponential = || self.whole.maker(x).is_some_and(|op| op.kind == OpKind::Unary(UnaryOp::Exp));
        self.is_positive(by) || is_exponential() && is_share()
    }

    /// The maximum, with axes of size 1, of which a tensor is what elements of rows differ by.
    fn maximum_below(&self, difference: TensorId) -> Option<TensorId> {
        let op = self.whole.maker(difference)?;
        let (OpKind::Binary(BinaryOp::Sub), [Operand::Tensor(x), Operand::Tensor(maximum)]) =
            (&op.kind, &op.inputs[..])
        else {
            return None;
        };
        let reduced = self.whole.maker(self.spread(*maximum)?)?;
        let is_maximum = matches!(&reduced.kind, OpKind::Reduce { op: ReduceOp::Max, axes } if axes == self.axes);
        (is_maximum && operand(reduced) == Some(*x) && self.is_wide_float(*x)).then_some(*maximum)
    }

    /// Whether `e` is the exponential of differences.
    fn is_exponential(&self, e: TensorId, differences: TensorId) -> bool {
        let op = self.whole.maker(e);
        op.is_some_and(|op| op.kind == OpKind::Unary(UnaryOp::Exp) && operand(op) == Some(differences))
    }

    /// What has no axes where rows lie, of which an operand has such of size 1.
    fn spread(&self, tensor: TensorId) -> Option<TensorId> {
        let op = self.whole.maker(tensor)?;
        let OpKind::Broadcast { flags } = &op.kind else { return None };
        let are_axes = flags.iter().enumerate().all(|(axis, flag)| *flag == self.axes.contains(&(axis as u32)));
        if are_axes { operand(op) } else { None }
    }

    /// What an operand is the sum of, row by row.
    fn spread_sum(&self, other: Operand) -> Option<TensorId> {
        let Operand::Tensor(other) = other else { return None };
        self.sum(self.spread(other)?)
    }

    fn sum(&self, tensor: TensorId) -> Option<TensorId> {
        let op = self.whole.maker(tensor)?;
        let is_sum = matches!(&op.kind, OpKind::Reduce { op: ReduceOp::Sum, axes } if axes == self.axes);
        if is_sum { operand(op) } else { None }
    }

    /// The same of a function of the sum, computed of it before or after it got its axes of size 1.
    fn of_sum(&self, other: Operand, function: UnaryOp) -> Option<TensorId> {
        let Operand::Tensor(other) = other else { return None };
        let is_function = |op: &Op| op.kind == OpKind::Unary(function);
        match self.whole.maker(other)? {
            op if is_function(op) => self.spread_sum(*op.inputs.first()?),
            _ => {
                self.whole.maker(self.spread(other)?).filter(|op| is_function(op)).and_then(|op| self.sum(operand(op)?))
            }
        }
    }

    /// Whether an operand is a positive number, whatever the call: what it multiplies or divides, from 0 to 1, stays finite or
    /// overflows with what is greater, and is never NaN.
    fn is_positive(&self, other: Operand) -> bool {
        let Operand::Scalar(scalar) = other else { return false };
        let value = self.whole.fusion.constant(scalar).map(|value| value.as_f64());
        value.is_some_and(|value| value > 0.0 && value.is_finite())
    }

    /// Whether numbers of a type are rounded to it from the greatest to the least in order, without one that becomes NaN.
    fn is_wide_float(&self, tensor: TensorId) -> bool {
        let dtype = self.whole.fusion.tensors[tensor].dtype;
        dtype.is_float() && dtype.bytes() >= 2
    }
}
