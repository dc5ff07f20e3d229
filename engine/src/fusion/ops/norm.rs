//! Normalisations over the last axes, and their gradients.
//!
//! How many axes is `norm_dims`, or the rank of the weight, or else of the bias,
//! or 1. Statistics keep the axes that they are taken over, with size 1, as
//! nvFuser's do; of a gradient's results, those that are not returned cost
//! nothing, which is what nvFuser's `output_mask` is for.

use super::args::Args;
use super::row::{OpParam, OpParamKind, OpRow, flag, opt, req};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{FusionBuilder, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, UnaryOp};

const X: OpParam = req("x", OpParamKind::Tensor);
const DY: OpParam = req("dy", OpParamKind::Tensor);
const WEIGHT: OpParam = opt("weight", OpParamKind::Tensor);
const EPS: OpParam = opt("eps", OpParamKind::Scalar);
const DIMS: OpParam = opt("norm_dims", OpParamKind::Int);
const LAYER: &[OpParam] = &[X, WEIGHT, opt("bias", OpParamKind::Tensor), EPS, DIMS];
const RMS: &[OpParam] = &[X, WEIGHT, EPS, DIMS];
const LIBRARY: &str = "nvFuser's C++ library";

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "rms_norm",
        RMS,
        |b, args| Ok(vec![rms(b, args)?.0]),
        "x * rsqrt(mean(x^2) + eps) * weight over the last norm_dims axes (unless given: as many as weight has, or 1); eps 1e-5 unless given.",
        "PyTorch rms_norm",
    ),
    OpRow::composite(
        "rms_norm_forward",
        RMS,
        |b, args| {
            let (y, scale) = rms(b, args)?;
            Ok(vec![y, scale])
        },
        "Two values: rms_norm, and rsqrt(mean(x^2) + eps) with axes of size 1.",
        LIBRARY,
    )
    .results(2),
    OpRow::composite(
        "layer_norm",
        LAYER,
        |b, args| Ok(layer(b, args)?[..1].to_vec()),
        "(x - mean) * rsqrt(var + eps) * weight + bias over the last norm_dims axes (unless given: as many as weight has, or 1); eps 1e-5 unless given.",
        "PyTorch layer_norm",
    ),
    OpRow::composite(
        "layer_norm_forward",
        LAYER,
        layer,
        "Three values: layer_norm, mean and rsqrt(var + eps), these with axes of size 1.",
        LIBRARY,
    )
    .results(3),
    OpRow::composite(
        "layer_norm_backward",
        &[DY, X, req("mean", OpParamKind::Tensor), req("invstd", OpParamKind::Tensor), WEIGHT, DIMS],
        layer_backward,
        "Gradients of layer_norm for x, weight and bias, from that of its result and the statistics of layer_norm_forward.",
        LIBRARY,
    )
    .results(3),
    OpRow::composite(
        "rms_norm_backward",
        &[DY, X, req("invstd", OpParamKind::Tensor), WEIGHT, DIMS, flag("exact")],
        rms_backward,
        "Gradients of rms_norm for x and weight, as nvFuser computes them: for x, the mean of dy * weight is subtracted too, which the exact gradient does not.",
        LIBRARY,
    )
    .results(2),
    OpRow::composite(
        "thunder_rms_norm_backward",
        &[DY, X, req("rms", OpParamKind::Tensor), WEIGHT, DIMS, flag("exact")],
        thunder_backward,
        "Gradients of rms_norm for x and weight from rms = sqrt(mean(x^2) + eps), as nvFuser computes them: for x, with half of the exact gradient's second term.",
        LIBRARY,
    )
    .results(2),
];

fn eps(args: &Args) -> Src {
    args.opt("eps").unwrap_or(1e-5.into())
}

fn rms(b: &mut FusionBuilder, args: &Args) -> Result<(Operand, Operand)> {
    b.rms_parts(args.src("x")?, args.opt("weight"), eps(args), args.int("norm_dims"))
}

fn layer(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (weight, bias) = (args.opt("weight"), args.opt("bias"));
    Ok(b.layer_parts(args.row().name, args.src("x")?, weight, bias, eps(args), args.int("norm_dims"))?.to_vec())
}

/// What all gradients need: `dy`, `x`, the axes inside and outside of a row,
/// and `dy * weight`.
struct Gradient {
    dy: TensorId,
    x: TensorId,
    inner: Vec<i64>,
    outer: Vec<i64>,
    weighted: Operand,
}

impl Gradient {
    fn new(b: &mut FusionBuilder, args: &Args) -> Result<Self> {
        let name = args.row().name;
        let (dy, x) = (b.float_tensor(name, args.src("dy")?)?, b.float_tensor(name, args.src("x")?)?);
        let weight = args.opt("weight");
        let inner = b.normalised_axes(name, x, &[weight], args.int("norm_dims"))?;
        let outer = (0..b.rank(x) as i64).filter(|axis| !inner.contains(axis)).collect();
        let weighted = b.affine(name, x, Operand::Tensor(dy), weight, BinaryOp::Mul)?;
        Ok(Self { dy, x, inner, outer, weighted })
    }

    /// The sum over a row, spread over it again.
    fn row_sum(&self, b: &mut FusionBuilder, x: Operand) -> Result<Operand> {
        let sum = b.reduce_over(ReduceOp::Sum, x, &self.inner)?;
        b.keep(sum, self.x, &self.inner)
    }

    /// `sum(dy * x)` over the rows.
    fn for_weight(&self, b: &mut FusionBuilder, x: Operand) -> Result<Operand> {
        let product = b.mul(self.dy, x)?;
        b.reduce_over(ReduceOp::Sum, product, &self.outer)
    }

    /// `invstd / n * (n * g - sum(g) - xh * sum(g * xh))`, where `g` is
    /// `dy * weight` and `xh` the normalised `x`; without the sum of `g` for
    /// what is not centred.
    fn for_x(&self, b: &mut FusionBuilder, normal: Operand, invstd: Operand, centred: bool) -> Result<Operand> {
        let g = self.weighted;
        let count = b.count(self.x, &self.inner)?;
        let count = b.cast(count, DType::F64)?;
        let mut own = b.mul(g, count)?;
        if centred {
            let sum = self.row_sum(b, g)?;
            own = b.sub(own, sum)?;
        }
        let product = b.mul(g, normal)?;
        let dot = self.row_sum(b, product)?;
        let along = b.mul(normal, dot)?;
        let rest = b.sub(own, along)?;
        let inverse = b.reciprocal(count)?;
        let scale = b.mul(invstd, inverse)?;
        b.mul(scale, rest)
    }
}

fn layer_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let gradient = Gradient::new(b, args)?;
    let invstd = Operand::Tensor(b.float_tensor(args.row().name, args.src("invstd")?)?);
    let centred = b.sub(gradient.x, args.src("mean")?)?;
    let normal = b.mul(centred, invstd)?;
    let dx = gradient.for_x(b, normal, invstd, true)?;
    let dw = gradient.for_weight(b, normal)?;
    let db = b.reduce_over(ReduceOp::Sum, Operand::Tensor(gradient.dy), &gradient.outer)?;
    Ok(vec![dx, dw, db])
}

fn rms_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let gradient = Gradient::new(b, args)?;
    let invstd = Operand::Tensor(b.float_tensor(args.row().name, args.src("invstd")?)?);
    let normal = b.mul(gradient.x, invstd)?;
    let dx = gradient.for_x(b, normal, invstd, !args.flag("exact"))?;
    let dw = gradient.for_weight(b, normal)?;
    Ok(vec![dx, dw])
}

/// `g / rms + x * share / (n * rms) * sum(-g * x / rms^2)`, where `g` is
/// `dy * weight` and `share` 1/2, or 1 of the exact gradient.
fn thunder_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let gradient = Gradient::new(b, args)?;
    let rms = Operand::Tensor(b.float_tensor(args.row().name, args.src("rms")?)?);
    let g = gradient.weighted;
    let negative = b.neg(g)?;
    let product = b.mul(negative, gradient.x)?;
    let square = b.mul(rms, rms)?;
    let square = b.reciprocal(square)?;
    let scaled = b.mul(product, square)?;
    let sum = gradient.row_sum(b, scaled)?;
    let twice = if args.flag("exact") { rms } else { b.mul(rms, 2.0)? };
    let half = b.reciprocal(twice)?;
    let inverse = b.inverse_count(gradient.x, &gradient.inner, 0)?;
    let share = b.mul(half, inverse)?;
    let along = b.mul(gradient.x, share)?;
    let along = b.mul(sum, along)?;
    let scale = b.reciprocal(rms)?;
    let own = b.mul(g, scale)?;
    let dx = b.add(along, own)?;
    let normal = b.mul(gradient.x, scale)?;
    let dw = gradient.for_weight(b, normal)?;
    Ok(vec![dx, dw])
}

impl FusionBuilder {
    /// `x * rsqrt(mean(x^2) + eps) * weight` over the last axes, as many as
    /// `weight` has, 1 without.
    pub fn rms_norm(&mut self, x: impl Into<Src>, weight: Option<Src>, eps: f64) -> Result<Operand> {
        Ok(self.rms_parts(x.into(), weight, eps.into(), None)?.0)
    }

    /// The result, and the factor of the rows.
    fn rms_parts(&mut self, x: Src, weight: Option<Src>, eps: Src, dims: Option<i64>) -> Result<(Operand, Operand)> {
        let name = "rms_norm";
        let x = self.float_tensor(name, x)?;
        let axes = self.normalised_axes(name, x, &[weight], dims)?;
        let square = self.binary(BinaryOp::Mul, x, x)?;
        let square = self.tensor_operand(name, square.into())?;
        let mean = self.mean_of(square, &axes)?;
        let scale = self.inverse_root(mean, eps, x, &axes)?;
        let scaled = self.binary(BinaryOp::Mul, x, scale)?;
        Ok((self.affine(name, x, scaled, weight, BinaryOp::Mul)?, scale))
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
        Ok(self.layer_parts("layer_norm", x.into(), weight, bias, eps.into(), None)?[0])
    }

    /// The result, the mean, and the factor of the rows.
    fn layer_parts(
        &mut self,
        name: &str,
        x: Src,
        weight: Option<Src>,
        bias: Option<Src>,
        eps: Src,
        dims: Option<i64>,
    ) -> Result<[Operand; 3]> {
        let x = self.float_tensor(name, x)?;
        let axes = self.normalised_axes(name, x, &[weight, bias], dims)?;
        let moments = self.moments(x, &axes)?;
        let var = self.var_of(x, &axes, &moments, 0)?;
        let scale = self.inverse_root(var, eps, x, &axes)?;
        let scaled = self.binary(BinaryOp::Mul, moments.centred, scale)?;
        let weighted = self.affine(name, x, scaled, weight, BinaryOp::Mul)?;
        let result = self.affine(name, x, weighted, bias, BinaryOp::Add)?;
        Ok([result, moments.spread, scale])
    }

    /// `rsqrt(y + eps)`, spread over the axes of `x` that `y` was reduced over.
    fn inverse_root(&mut self, y: Operand, eps: Src, x: TensorId, axes: &[i64]) -> Result<Operand> {
        let shifted = self.binary(BinaryOp::Add, y, eps)?;
        let root = self.unary(UnaryOp::Rsqrt, shifted)?;
        self.keep(root, x, axes)
    }

    /// The last axes: as many as are asked for, or as the weight or else the bias has.
    fn normalised_axes(&self, name: &str, x: TensorId, params: &[Option<Src>], dims: Option<i64>) -> Result<Vec<i64>> {
        let rank = self.rank(x) as i64;
        let own = match params.iter().flatten().next() {
            Some(param) => Some(self.rank(self.tensor_operand(name, *param)?) as i64),
            None => None,
        };
        if let (Some(dims), Some(own)) = (dims, own)
            && dims != own
        {
            let message = format!("{name}: norm_dims is {dims}, the weight or bias has rank {own}");
            return Err(Diagnostic::user(code::RANK, message).note("leave norm_dims out"));
        }
        let count = dims.or(own).unwrap_or(1);
        if count < 1 || count > rank {
            let message = format!("{name}: normalises {count} axes of an operand of rank {rank}");
            return Err(Diagnostic::user(code::RANK, message).note("the weight has between 1 and that many axes"));
        }
        Ok((rank - count..rank).collect())
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
}

#[cfg(test)]
mod tests;
