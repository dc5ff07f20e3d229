//! Softmax, its logarithm, and their gradients.

use super::args::Args;
use super::row::{OpParam, OpParamKind, OpRow, int, req};
use crate::diag::Result;
use crate::fusion::builder::normal_axis;
use crate::fusion::{FusionBuilder, Operand, Src};
use crate::num::ReduceOp;

const SOFTMAX: &[OpParam] = &[req("x", OpParamKind::Tensor), int("axis", -1).py("dim")];
const BACKWARD: &[OpParam] =
    &[req("dy", OpParamKind::Tensor), req("y", OpParamKind::Tensor), int("axis", -1).py("dim")];

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "softmax",
        SOFTMAX,
        softmax,
        "exp(x - max) / sum(exp(x - max)) along an axis (-1 unless given).",
        "PyTorch softmax",
    ),
    OpRow::composite("log_softmax", SOFTMAX, log_softmax, "Logarithm of softmax.", "PyTorch log_softmax"),
    OpRow::composite(
        "softmax_backward",
        BACKWARD,
        softmax_backward,
        "Gradient of softmax from that of its result y: dy * y - y * sum(dy * y).",
        "nvFuser's C++ library",
    ),
    OpRow::composite(
        "log_softmax_backward",
        BACKWARD,
        log_softmax_backward,
        "Gradient of log_softmax from that of its result y: dy - exp(y) * sum(dy).",
        "nvFuser's C++ library",
    ),
];

fn axis(args: &Args) -> i64 {
    args.int("axis").unwrap_or(-1)
}

fn softmax(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.softmax(args.src("x")?, axis(args))?])
}

fn log_softmax(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.log_softmax(args.src("x")?, axis(args))?])
}

fn softmax_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (dy, y, axes) = gradient(b, args)?;
    let product = b.mul(dy, y)?;
    let sum = b.reduce(ReduceOp::Sum, product, &axes, true, None)?;
    let share = b.mul(y, sum)?;
    Ok(vec![b.sub(product, share)?])
}

fn log_softmax_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (dy, y, axes) = gradient(b, args)?;
    let softmax = b.exp(y)?;
    let sum = b.reduce(ReduceOp::Sum, dy, &axes, true, None)?;
    let share = b.mul(softmax, sum)?;
    Ok(vec![b.sub(dy, share)?])
}

/// The operands `dy` and `y`, and the axis.
fn gradient(b: &mut FusionBuilder, args: &Args) -> Result<(Operand, Operand, [i64; 1])> {
    let name = args.row().name;
    let (dy, y) = (b.float_tensor(name, args.src("dy")?)?, b.float_tensor(name, args.src("y")?)?);
    let axis = normal_axis(name, axis(args), b.rank(y))? as i64;
    Ok((Operand::Tensor(dy), Operand::Tensor(y), [axis]))
}

impl FusionBuilder {
    /// `exp(x - max) * (1 / sum(exp(x - max)))` along one axis: one division a
    /// row instead of one an element.
    pub fn softmax(&mut self, x: impl Into<Src>, axis: i64) -> Result<Operand> {
        let (_, exp, sum) = self.softmax_parts("softmax", x.into(), axis)?;
        let scale = self.reciprocal(sum)?;
        self.mul(exp, scale)
    }

    /// `(x - max) - log(sum(exp(x - max)))` along one axis.
    pub fn log_softmax(&mut self, x: impl Into<Src>, axis: i64) -> Result<Operand> {
        let (shifted, _, sum) = self.softmax_parts("log_softmax", x.into(), axis)?;
        let log = self.log(sum)?;
        self.sub(shifted, log)
    }

    fn softmax_parts(&mut self, name: &str, x: Src, axis: i64) -> Result<(Operand, Operand, Operand)> {
        let x = self.float_tensor(name, x)?;
        let axis = normal_axis(name, axis, self.rank(x))? as i64;
        let max = self.reduce(ReduceOp::Max, x, &[axis], true, None)?;
        let shifted = self.sub(x, max)?;
        let exp = self.exp(shifted)?;
        let sum = self.reduce(ReduceOp::Sum, exp, &[axis], true, None)?;
        Ok((shifted, exp, sum))
    }
}

#[cfg(test)]
mod tests;
