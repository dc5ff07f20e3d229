//! Operations that are formulas of others. They are expanded here, in the one
//! place that says what they mean; a fusion holds primitives only.

use super::builder::{normal_axes, normal_axis};
use super::{FusionBuilder, Operand, Src, TensorId};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value};

/// `1 / sqrt(2)`.
const FRAC_1_SQRT_2: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// `sqrt(2 / pi)`.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

impl FusionBuilder {
    /// Sum over `axes`; see [`FusionBuilder::reduce`].
    pub fn sum(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
        self.reduce(ReduceOp::Sum, x, axes, keepdim, None)
    }

    /// Product over `axes`; see [`FusionBuilder::reduce`].
    pub fn prod(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
        self.reduce(ReduceOp::Prod, x, axes, keepdim, None)
    }

    /// Maximum over `axes`; see [`FusionBuilder::reduce`].
    pub fn max(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
        self.reduce(ReduceOp::Max, x, axes, keepdim, None)
    }

    /// Minimum over `axes`; see [`FusionBuilder::reduce`].
    pub fn min(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
        self.reduce(ReduceOp::Min, x, axes, keepdim, None)
    }

    /// `sum / n`, where `n` is the number of elements that one result combines.
    pub fn mean(&mut self, x: impl Into<Src>, axes: &[i64], keepdim: bool) -> Result<Operand> {
        let x = self.number_tensor("mean", x.into())?;
        let axes = self.all_axes("mean", x, axes)?;
        let mean = self.mean_of(x, &axes)?;
        if keepdim { self.keep(mean, x, &axes) } else { Ok(mean) }
    }

    /// Variance: `sum((x - mean)^2) / max(n - correction, 0)`.
    pub fn var(&mut self, x: impl Into<Src>, axes: &[i64], correction: i64, keepdim: bool) -> Result<Operand> {
        Ok(self.moments("var", x.into(), axes, correction, keepdim)?.0)
    }

    /// `sqrt(var)`.
    pub fn std(&mut self, x: impl Into<Src>, axes: &[i64], correction: i64, keepdim: bool) -> Result<Operand> {
        let (var, _) = self.moments("std", x.into(), axes, correction, keepdim)?;
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
        self.moments("var_mean", x.into(), axes, correction, keepdim)
    }

    fn moments(
        &mut self,
        name: &str,
        x: Src,
        axes: &[i64],
        correction: i64,
        keepdim: bool,
    ) -> Result<(Operand, Operand)> {
        let x = self.number_tensor(name, x)?;
        let axes = self.all_axes(name, x, axes)?;
        let (var, mean, _) = self.var_of(x, &axes, correction)?;
        if keepdim {
            return Ok((self.keep(var, x, &axes)?, self.keep(mean, x, &axes)?));
        }
        Ok((var, mean))
    }

    /// Variance, mean, and `x - mean`. What is computed once a row stands
    /// before the broadcast that spreads it over the row.
    fn var_of(&mut self, x: TensorId, axes: &[i64], correction: i64) -> Result<(Operand, Operand, Operand)> {
        let mean = self.mean_of(x, axes)?;
        let spread = self.keep(mean, x, axes)?;
        let centred = self.binary(BinaryOp::Sub, x, spread)?;
        // The square of a complex deviation is that of its magnitude.
        let complex = self.dtype(centred).is_complex();
        let deviation = if complex { self.unary(UnaryOp::Abs, centred)? } else { centred };
        let square = self.binary(BinaryOp::Mul, deviation, deviation)?;
        let sum = self.reduce_over(ReduceOp::Sum, square, axes)?;
        let count = self.count(x, axes)?;
        let free = self.binary(BinaryOp::Sub, count, correction)?;
        let divisor = self.binary(BinaryOp::Maximum, free, 0)?;
        let divisor = self.cast(divisor, self.dtype(sum))?;
        Ok((self.binary(BinaryOp::Div, sum, divisor)?, mean, centred))
    }

    fn mean_of(&mut self, x: TensorId, axes: &[i64]) -> Result<Operand> {
        let count = self.count(x, axes)?;
        let sum = self.reduce_over(ReduceOp::Sum, Operand::Tensor(x), axes)?;
        let count = self.cast(count, self.dtype(sum))?;
        self.binary(BinaryOp::Div, sum, count)
    }

    /// A reduction over exactly these axes: none means none here.
    fn reduce_over(&mut self, op: ReduceOp, x: Operand, axes: &[i64]) -> Result<Operand> {
        if axes.is_empty() { Ok(x) } else { self.reduce(op, x, axes, false, None) }
    }

    /// A result of a reduction of `x` with axes of size 1 where `axes` were.
    fn keep(&mut self, y: Operand, x: TensorId, axes: &[i64]) -> Result<Operand> {
        if axes.is_empty() {
            return Ok(y);
        }
        let flags: Vec<bool> = (0..self.rank(x) as i64).map(|axis| axes.contains(&axis)).collect();
        self.broadcast(y, &flags)
    }

    /// The axes counted from the start, all if none is named.
    fn all_axes(&self, name: &str, x: TensorId, axes: &[i64]) -> Result<Vec<i64>> {
        Ok(normal_axes(name, axes, self.rank(x))?.into_iter().map(i64::from).collect())
    }

    /// The number of elements along `axes`, an `i64` scalar.
    fn count(&mut self, x: TensorId, axes: &[i64]) -> Result<Operand> {
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

    /// A tensor in the float type that formulas are computed in. Complex ones
    /// are refused.
    fn float_tensor(&mut self, name: &str, x: Src) -> Result<TensorId> {
        let x = self.number_tensor(name, x)?;
        let dtype = self.dtype(Operand::Tensor(x));
        if dtype.is_complex() {
            return Err(Diagnostic::user(code::DTYPE, format!("{name}: not defined on {dtype}"))
                .note("take the real and the imaginary part first"));
        }
        Ok(x)
    }

    /// A tensor in the float or complex type that formulas are computed in.
    fn number_tensor(&mut self, name: &str, x: Src) -> Result<TensorId> {
        let x = self.tensor_operand(name, x)?;
        let dtype = self.dtype(Operand::Tensor(x));
        let float = dtype.is_float() || dtype.is_complex();
        let x = self.cast(x, if float { dtype.compute() } else { DType::F32 })?;
        self.tensor_operand(name, x.into())
    }

    /// `exp(x - max) * (1 / sum(exp(x - max)))` along one axis: one division a
    /// row instead of one an element.
    pub fn softmax(&mut self, x: impl Into<Src>, axis: i64) -> Result<Operand> {
        let (_, exp, sum) = self.softmax_parts("softmax", x.into(), axis)?;
        let scale = self.unary(UnaryOp::Reciprocal, sum)?;
        self.binary(BinaryOp::Mul, exp, scale)
    }

    /// `(x - max) - log(sum(exp(x - max)))` along one axis.
    pub fn log_softmax(&mut self, x: impl Into<Src>, axis: i64) -> Result<Operand> {
        let (shifted, _, sum) = self.softmax_parts("log_softmax", x.into(), axis)?;
        let log = self.unary(UnaryOp::Log, sum)?;
        self.binary(BinaryOp::Sub, shifted, log)
    }

    fn softmax_parts(&mut self, name: &str, x: Src, axis: i64) -> Result<(Operand, Operand, Operand)> {
        let x = self.float_tensor(name, x)?;
        let axis = normal_axis(name, axis, self.rank(x))? as i64;
        let max = self.reduce(ReduceOp::Max, x, &[axis], true, None)?;
        let shifted = self.binary(BinaryOp::Sub, x, max)?;
        let exp = self.unary(UnaryOp::Exp, shifted)?;
        let sum = self.reduce(ReduceOp::Sum, exp, &[axis], true, None)?;
        Ok((shifted, exp, sum))
    }

    /// `x * rsqrt(mean(x^2) + eps) * weight` over the last axes, as many as
    /// `weight` has, 1 without.
    pub fn rms_norm(&mut self, x: impl Into<Src>, weight: Option<Src>, eps: f64) -> Result<Operand> {
        let name = "rms_norm";
        let x = self.float_tensor(name, x.into())?;
        let axes = self.normalised_axes(name, x, &[weight])?;
        let square = self.binary(BinaryOp::Mul, x, x)?;
        let square = self.tensor_operand(name, square.into())?;
        let mean = self.mean_of(square, &axes)?;
        let scale = self.inverse_root(mean, eps, x, &axes)?;
        let scaled = self.binary(BinaryOp::Mul, x, scale)?;
        self.affine(name, x, scaled, weight, BinaryOp::Mul)
    }

    /// `(x - mean) * rsqrt(var + eps) * weight + bias` over the last axes, as
    /// many as `weight` has, 1 without.
    pub fn layer_norm(
        &mut self,
        x: impl Into<Src>,
        weight: Option<Src>,
        bias: Option<Src>,
        eps: f64,
    ) -> Result<Operand> {
        let name = "layer_norm";
        let x = self.float_tensor(name, x.into())?;
        let axes = self.normalised_axes(name, x, &[weight, bias])?;
        let (var, _, centred) = self.var_of(x, &axes, 0)?;
        let scale = self.inverse_root(var, eps, x, &axes)?;
        let scaled = self.binary(BinaryOp::Mul, centred, scale)?;
        let weighted = self.affine(name, x, scaled, weight, BinaryOp::Mul)?;
        self.affine(name, x, weighted, bias, BinaryOp::Add)
    }

    /// `rsqrt(y + eps)`, spread over the axes of `x` that `y` was reduced over.
    fn inverse_root(&mut self, y: Operand, eps: f64, x: TensorId, axes: &[i64]) -> Result<Operand> {
        let shifted = self.binary(BinaryOp::Add, y, eps)?;
        let root = self.unary(UnaryOp::Rsqrt, shifted)?;
        self.keep(root, x, axes)
    }

    /// The last axes, as many as the weight or else the bias has.
    fn normalised_axes(&self, name: &str, x: TensorId, params: &[Option<Src>]) -> Result<Vec<i64>> {
        let rank = self.rank(x);
        let mut count = 1;
        if let Some(param) = params.iter().flatten().next() {
            count = self.rank(self.tensor_operand(name, *param)?);
        }
        if count == 0 || count > rank {
            let message = format!("{name}: normalises {count} axes of an operand of rank {rank}");
            return Err(Diagnostic::user(code::RANK, message).note("the weight has between 1 and that many axes"));
        }
        Ok((rank - count..rank).map(|axis| axis as i64).collect())
    }

    /// Applies a weight or bias that lies along the last axes.
    fn affine(&mut self, name: &str, x: TensorId, y: Operand, param: Option<Src>, op: BinaryOp) -> Result<Operand> {
        let Some(param) = param else { return Ok(y) };
        let param = self.tensor_operand(name, param)?;
        let (rank, own) = (self.rank(x), self.rank(param));
        if own > rank {
            let message = format!("{name}: a parameter has rank {own}, the operand has rank {rank}");
            return Err(Diagnostic::user(code::RANK, message));
        }
        let flags: Vec<bool> = (0..rank).map(|axis| axis < rank - own).collect();
        let spread = if own == rank { Operand::Tensor(param) } else { self.broadcast(param, &flags)? };
        self.binary(op, y, spread)
    }

    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    pub fn gelu(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let x = x.into();
        let scaled = self.binary(BinaryOp::Mul, x, FRAC_1_SQRT_2)?;
        let erf = self.unary(UnaryOp::Erf, scaled)?;
        self.gelu_of(x, erf)
    }

    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
    pub fn gelu_tanh(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let x = x.into();
        let square = self.binary(BinaryOp::Mul, x, x)?;
        let cube = self.binary(BinaryOp::Mul, square, x)?;
        let small = self.binary(BinaryOp::Mul, cube, 0.044715)?;
        let inner = self.binary(BinaryOp::Add, x, small)?;
        let scaled = self.binary(BinaryOp::Mul, inner, SQRT_2_OVER_PI)?;
        let tanh = self.unary(UnaryOp::Tanh, scaled)?;
        self.gelu_of(x, tanh)
    }

    /// `x * 0.5 * (1 + t)`.
    fn gelu_of(&mut self, x: Src, t: Operand) -> Result<Operand> {
        let gate = self.binary(BinaryOp::Add, t, 1.0)?;
        let half = self.binary(BinaryOp::Mul, x, 0.5)?;
        self.binary(BinaryOp::Mul, half, gate)
    }

    /// `x` where `x >= 0`, else `slope * x`.
    pub fn leaky_relu(&mut self, x: impl Into<Src>, slope: impl Into<Src>) -> Result<Operand> {
        let x = x.into();
        let scaled = self.binary(BinaryOp::Mul, x, slope)?;
        let keep = self.binary(BinaryOp::Ge, x, 0)?;
        self.ternary(TernaryOp::Where, keep, x, scaled)
    }

    /// `log(1 + exp(x))` as `max(x, 0) + log1p(exp(-|x|))`, which never overflows.
    pub fn softplus(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let x = self.float_tensor("softplus", x.into())?;
        let positive = self.unary(UnaryOp::Relu, x)?;
        let magnitude = self.unary(UnaryOp::Abs, x)?;
        let negative = self.unary(UnaryOp::Neg, magnitude)?;
        let exp = self.unary(UnaryOp::Exp, negative)?;
        let log = self.unary(UnaryOp::Log1p, exp)?;
        self.binary(BinaryOp::Add, positive, log)
    }

    /// `x + value * a * b`.
    pub fn addcmul(
        &mut self,
        x: impl Into<Src>,
        a: impl Into<Src>,
        b: impl Into<Src>,
        value: impl Into<Src>,
    ) -> Result<Operand> {
        let scaled = self.binary(BinaryOp::Mul, a, value)?;
        let product = self.binary(BinaryOp::Mul, scaled, b)?;
        self.binary(BinaryOp::Add, x, product)
    }
}
