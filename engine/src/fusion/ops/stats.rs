//! Mean, variance and standard deviation.

use super::args::Args;
use super::py_form::{PyForm, PyResult};
use super::row::{OpParam, OpParamKind, OpRow, flag, int, opt, req};
use crate::diag::Result;
use crate::fusion::builder::normal_axes;
use crate::fusion::{FusionBuilder, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, UnaryOp, Value};

const X: OpParam = req("x", OpParamKind::Tensor).py("arg");
const AXES: OpParam = opt("axes", OpParamKind::Ints).py("dims");
const MEAN: &[OpParam] = &[X, AXES, flag("keepdim")];
const VAR: &[OpParam] = &[X, AXES, int("correction", 1), flag("keepdim")];
const VARIANCE: &str = "Variance; the divisor is max(n - correction, 0), correction 1 unless given.";
const DEVIATION: &str = "Square root of var.";
const BOTH: &str = "Two values: var and mean.";
const LIBRARY: &str = "nvFuser's C++ library";

const MOMENT: PyForm = PyForm::result(PyResult::Moment);

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite("mean", MEAN, mean, "sum / number of elements.", "N§2").py(MOMENT),
    OpRow::composite("var", VAR, var, VARIANCE, "N§2").py(MOMENT),
    OpRow::composite("variance", VAR, var, VARIANCE, LIBRARY),
    OpRow::composite("std", VAR, std, DEVIATION, "PyTorch std").py(MOMENT),
    OpRow::composite("standard_deviation", VAR, std, DEVIATION, LIBRARY),
    OpRow::composite("var_mean", VAR, var_mean, BOTH, "N§2").results(2).py(MOMENT),
    OpRow::composite("variance_mean", VAR, var_mean, BOTH, LIBRARY).results(2),
];

fn correction(args: &Args) -> i64 {
    args.int("correction").unwrap_or(1)
}

fn mean(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.mean(args.src("x")?, args.ints("axes"), args.flag("keepdim"))?])
}

fn var(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.var(args.src("x")?, args.ints("axes"), correction(args), args.flag("keepdim"))?])
}

fn std(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.std(args.src("x")?, args.ints("axes"), correction(args), args.flag("keepdim"))?])
}

fn var_mean(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (var, mean) = b.var_mean(args.src("x")?, args.ints("axes"), correction(args), args.flag("keepdim"))?;
    Ok(vec![var, mean])
}

/// What a pass over a row gives.
pub(super) struct Moments {
    /// `sum(x) / n`.
    pub(super) mean: Operand,
    /// The mean with axes of size 1 in place of those of the row.
    pub(super) spread: Operand,
    /// `x - mean`, along the row.
    pub(super) centred: Operand,
    /// `sum((x - mean)^2)`.
    pub(super) sum: Operand,
}

impl FusionBuilder {
    /// `sum / n`, where `n` is the number of elements that one result combines.
    pub fn mean(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
        let x = self.float_tensor("mean", x.into())?;
        let axes = self.all_axes("mean", x, axes)?;
        let mean = self.mean_of(x, &axes)?;
        if keepdim { self.keep(mean, x, &axes) } else { Ok(mean) }
    }

    /// Variance: `sum((x - mean)^2) / max(n - correction, 0)`.
    pub fn var(&mut self, x: impl Into<Src>, axes: &[i64], correction: i64, keepdim: bool) -> Result<Operand> {
        Ok(self.spread("var", x.into(), axes, correction, keepdim)?.0)
    }

    /// `sqrt(var)`.
    pub fn std(&mut self, x: impl Into<Src>, axes: &[i64], correction: i64, keepdim: bool) -> Result<Operand> {
        let (var, _) = self.spread("std", x.into(), axes, correction, keepdim)?;
        self.unary(UnaryOp::Sqrt, var)
    }

    /// Variance and mean.
    pub fn var_mean(
        &mut self,
        x: impl Into<Src>,
        axes: &[i64],
        correction: i64,
        keepdim: bool,
    ) -> Result<(Operand, Operand)> {
        self.spread("var_mean", x.into(), axes, correction, keepdim)
    }

    fn spread(
        &mut self,
        name: &str,
        x: Src,
        axes: &[i64],
        correction: i64,
        keepdim: bool,
    ) -> Result<(Operand, Operand)> {
        let x = self.float_tensor(name, x)?;
        let axes = self.all_axes(name, x, axes)?;
        let moments = self.moments(x, &axes)?;
        let var = self.var_of(x, &axes, &moments, correction)?;
        if keepdim {
            return Ok((self.keep(var, x, &axes)?, moments.spread));
        }
        Ok((var, moments.mean))
    }

    /// Mean and squared deviations in two passes. What is computed once a row
    /// stands before the broadcast that spreads it over the row.
    pub(super) fn moments(&mut self, x: TensorId, axes: &[i64]) -> Result<Moments> {
        let mean = self.mean_of(x, axes)?;
        let spread = self.keep(mean, x, axes)?;
        let centred = self.binary(BinaryOp::Sub, x, spread)?;
        // The square of a complex deviation is that of its magnitude.
        let complex = self.dtype(centred).is_complex();
        let deviation = if complex { self.unary(UnaryOp::Abs, centred)? } else { centred };
        let square = self.binary(BinaryOp::Mul, deviation, deviation)?;
        let sum = self.reduce_over(ReduceOp::Sum, square, axes)?;
        Ok(Moments { mean, spread, centred, sum })
    }

    /// `sum((x - mean)^2) / max(n - correction, 0)`.
    pub(super) fn var_of(&mut self, x: TensorId, axes: &[i64], moments: &Moments, correction: i64) -> Result<Operand> {
        let count = self.count(x, axes)?;
        let free = self.binary(BinaryOp::Sub, count, correction)?;
        let divisor = self.binary(BinaryOp::Maximum, free, 0)?;
        let divisor = self.cast(divisor, self.dtype(moments.sum))?;
        self.binary(BinaryOp::Div, moments.sum, divisor)
    }

    pub(super) fn mean_of(&mut self, x: TensorId, axes: &[i64]) -> Result<Operand> {
        let count = self.count(x, axes)?;
        let sum = self.reduce_over(ReduceOp::Sum, Operand::Tensor(x), axes)?;
        let count = self.cast(count, self.dtype(sum))?;
        self.binary(BinaryOp::Div, sum, count)
    }

    /// A reduction over exactly these axes: none means none here.
    pub(super) fn reduce_over(&mut self, op: ReduceOp, x: Operand, axes: &[i64]) -> Result<Operand> {
        if axes.is_empty() { Ok(x) } else { self.reduce(op, x, axes, false, None) }
    }

    /// A result of a reduction of `x` with axes of size 1 where `axes` were.
    pub(super) fn keep(&mut self, y: Operand, x: TensorId, axes: &[i64]) -> Result<Operand> {
        if axes.is_empty() {
            return Ok(y);
        }
        let flags: Vec<bool> = (0..self.rank(x) as i64).map(|axis| axes.contains(&axis)).collect();
        self.broadcast(y, &flags)
    }

    /// The axes counted from the start, all if none is named.
    pub(super) fn all_axes(&self, name: &str, x: TensorId, axes: &[i64]) -> Result<Vec<i64>> {
        Ok(normal_axes(name, axes, self.rank(x))?.into_iter().map(i64::from).collect())
    }

    /// The number of elements along `axes`, an `i64` scalar.
    pub(super) fn count(&mut self, x: TensorId, axes: &[i64]) -> Result<Operand> {
        let mut count = None;
        for &axis in axes {
            let extent = self.size(x, axis)?;
            count = Some(match count {
                None => extent,
                Some(count) => self.binary(BinaryOp::Mul, count, extent)?,
            });
        }
        match count {
            Some(count) => Ok(count),
            None => self.constant(Value::Int(1), DType::I64),
        }
    }

    /// `1 / (n - less)`, where `n` is [`Self::count`]: an `f64` scalar.
    pub(super) fn inverse_count(&mut self, x: TensorId, axes: &[i64], less: i64) -> Result<Operand> {
        let count = self.count(x, axes)?;
        let count = self.binary(BinaryOp::Sub, count, less)?;
        let count = self.cast(count, DType::F64)?;
        self.unary(UnaryOp::Reciprocal, count)
    }

    /// A tensor in the type that formulas are computed in: `f32` for integers
    /// and small floats.
    pub(super) fn float_tensor(&mut self, name: &str, x: Src) -> Result<TensorId> {
        let x = self.tensor_operand(name, x)?;
        let dtype = self.dtype(Operand::Tensor(x));
        let to = if dtype.is_float() || dtype.is_complex() { dtype.compute() } else { DType::F32 };
        self.cast_tensor(x, to)
    }
}

#[cfg(test)]
mod tests;
