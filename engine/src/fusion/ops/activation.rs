//! Activation functions that are formulas of others, and their gradients.

use super::args::Args;
use super::row::{OpParam, OpParamKind, OpRow, opt, req};
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand, Src};

/// `1 / sqrt(2)`.
const FRAC_1_SQRT_2: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// `sqrt(2 / pi)`.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// `1 / sqrt(2 pi)`.
const FRAC_1_SQRT_TAU: f64 = 0.398_942_280_401_432_7;
/// The factor of the cube in the approximation of gelu by tanh.
const CUBE: f64 = 0.044715;

const X: &[OpParam] = &[req("x", OpParamKind::Value)];
const BACKWARD: &[OpParam] = &[req("dy", OpParamKind::Value), req("x", OpParamKind::Value)];
const TANH: &str = "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.";
const LIBRARY: &str = "nvFuser's C++ library";

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite("gelu", X, gelu, "x * (1 + erf(x / sqrt(2))) / 2.", "PyTorch gelu"),
    OpRow::composite("gelu_tanh", X, gelu_tanh, TANH, "PyTorch gelu, approximate='tanh'"),
    OpRow::composite("tanh_gelu", X, gelu_tanh, TANH, LIBRARY),
    OpRow::composite("fast_gelu", X, gelu_tanh, TANH, "N§2"),
    OpRow::composite(
        "gelu_backward",
        BACKWARD,
        gelu_backward,
        "Gradient of gelu: dy * (cdf(x) + x * pdf(x)) of the normal distribution.",
        LIBRARY,
    ),
    OpRow::composite(
        "tanh_gelu_backward",
        BACKWARD,
        tanh_gelu_backward,
        "Gradient of tanh_gelu: dy times its derivative at x.",
        LIBRARY,
    ),
    OpRow::composite(
        "tanh_backward",
        &[req("dy", OpParamKind::Value), req("tanh_x", OpParamKind::Value)],
        tanh_backward,
        "Gradient of tanh from its result: dy * (1 - tanh_x^2).",
        LIBRARY,
    ),
    OpRow::composite(
        "leaky_relu",
        &[req("x", OpParamKind::Value), opt("slope", OpParamKind::Value).py("negative_slope")],
        leaky_relu,
        "x where x >= 0, else slope * x; slope 0.01 unless given.",
        "PyTorch leaky_relu",
    ),
    OpRow::composite(
        "softplus",
        &[req("x", OpParamKind::Value), opt("beta", OpParamKind::Scalar), opt("threshold", OpParamKind::Scalar)],
        softplus,
        "log(1 + exp(beta * x)) / beta, x itself where beta * x is above threshold; beta 1 and threshold 20 unless given.",
        "PyTorch softplus",
    ),
];

fn gelu(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.gelu(args.src("x")?)?])
}

fn gelu_tanh(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.gelu_tanh(args.src("x")?)?])
}

fn leaky_relu(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.leaky_relu(args.src("x")?, args.opt("slope").unwrap_or(0.01.into()))?])
}

fn softplus(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let beta = args.opt("beta").unwrap_or(1.0.into());
    let threshold = args.opt("threshold").unwrap_or(20.0.into());
    Ok(vec![b.softplus_with(args.src("x")?, beta, threshold)?])
}

/// `dy * (cdf + x * pdf)`, `cdf = (erf(x / sqrt(2)) + 1) / 2`,
/// `pdf = exp(-x^2 / 2) / sqrt(2 pi)`.
fn gelu_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (dy, x) = (args.src("dy")?, args.src("x")?);
    let scaled = b.mul(x, FRAC_1_SQRT_2)?;
    let erf = b.erf(scaled)?;
    let gate = b.add(erf, 1.0)?;
    let cdf = b.mul(gate, 0.5)?;
    let square = b.mul(x, x)?;
    let half = b.mul(square, -0.5)?;
    let exp = b.exp(half)?;
    let pdf = b.mul(exp, FRAC_1_SQRT_TAU)?;
    let along = b.mul(x, pdf)?;
    let derivative = b.add(cdf, along)?;
    Ok(vec![b.mul(derivative, dy)?])
}

/// With `t = tanh(s * (x + c x^3))`, `s = sqrt(2 / pi)`:
/// `dy * ((1 + t) / 2 + x / 2 * (1 - t^2) * s * (1 + 3 c x^2))`.
fn tanh_gelu_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (dy, x) = (args.src("dy")?, args.src("x")?);
    let t = b.gelu_inner(x)?;
    let gate = b.add(t, 1.0)?;
    let left = b.mul(gate, 0.5)?;
    let square = b.mul(t, t)?;
    let slope = b.sub(1.0, square)?;
    let half = b.mul(x, 0.5)?;
    let along = b.mul(half, slope)?;
    let x_square = b.mul(x, x)?;
    let cubic = b.mul(x_square, 3.0 * CUBE)?;
    let cubic = b.add(cubic, 1.0)?;
    let inner = b.mul(cubic, SQRT_2_OVER_PI)?;
    let right = b.mul(along, inner)?;
    let derivative = b.add(left, right)?;
    Ok(vec![b.mul(dy, derivative)?])
}

fn tanh_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (dy, tanh) = (args.src("dy")?, args.src("tanh_x")?);
    let square = b.mul(tanh, tanh)?;
    let slope = b.sub(1.0, square)?;
    Ok(vec![b.mul(dy, slope)?])
}

impl FusionBuilder {
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    pub fn gelu(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let x = x.into();
        let scaled = self.mul(x, FRAC_1_SQRT_2)?;
        let erf = self.erf(scaled)?;
        self.gelu_of(x, erf)
    }

    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
    pub fn gelu_tanh(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let x = x.into();
        let tanh = self.gelu_inner(x)?;
        self.gelu_of(x, tanh)
    }

    /// `tanh(sqrt(2 / pi) * (x + 0.044715 x^3))`.
    fn gelu_inner(&mut self, x: Src) -> Result<Operand> {
        let square = self.mul(x, x)?;
        let cube = self.mul(square, x)?;
        let small = self.mul(cube, CUBE)?;
        let inner = self.add(x, small)?;
        let scaled = self.mul(inner, SQRT_2_OVER_PI)?;
        self.tanh(scaled)
    }

    /// `x * 0.5 * (1 + t)`.
    fn gelu_of(&mut self, x: Src, t: Operand) -> Result<Operand> {
        let gate = self.add(t, 1.0)?;
        let half = self.mul(x, 0.5)?;
        self.mul(half, gate)
    }

    /// `x` where `x >= 0`, else `slope * x`.
    pub fn leaky_relu(&mut self, x: impl Into<Src>, slope: impl Into<Src>) -> Result<Operand> {
        let x = x.into();
        let scaled = self.mul(x, slope)?;
        let keep = self.ge(x, 0)?;
        self.where_(keep, x, scaled)
    }

    /// `log(1 + exp(x))`, which is `x` above 20.
    pub fn softplus(&mut self, x: impl Into<Src>) -> Result<Operand> {
        self.softplus_with(x.into(), 1.0.into(), 20.0.into())
    }

    /// `log(1 + exp(beta * x)) / beta`, and `x` where `beta * x > threshold`.
    fn softplus_with(&mut self, x: Src, beta: Src, threshold: Src) -> Result<Operand> {
        let plain = self.known(beta).is_some_and(|beta| beta.as_f64() == 1.0);
        let scaled = if plain { x } else { self.mul(x, beta)?.into() };
        let exp = self.exp(scaled)?;
        let mut log = self.log1p(exp)?;
        if !plain {
            log = self.div(log, beta)?;
        }
        let linear = self.gt(scaled, threshold)?;
        self.where_(linear, x, log)
    }
}

#[cfg(test)]
mod tests;
