//! Softmax and normalisations.

use super::args::Args;
use super::row::{OpRow, Param, ParamKind, int, number, opt, req};
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand};

const SOFTMAX: &[Param] = &[req("x", ParamKind::Tensor), int("axis", -1).py("dim")];

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
        "rms_norm",
        &[req("x", ParamKind::Tensor), opt("weight", ParamKind::Tensor), number("eps", 1e-5)],
        rms_norm,
        "x * rsqrt(mean(x^2) + eps) * weight over the last axes, as many as weight has (1 without); eps 1e-5 unless given.",
        "PyTorch rms_norm",
    ),
    OpRow::composite(
        "layer_norm",
        &[
            req("x", ParamKind::Tensor),
            opt("weight", ParamKind::Tensor),
            opt("bias", ParamKind::Tensor),
            number("eps", 1e-5),
        ],
        layer_norm,
        "(x - mean) * rsqrt(var + eps) * weight + bias over the last axes, as many as weight has (1 without); eps 1e-5 unless given.",
        "PyTorch layer_norm",
    ),
];

fn softmax(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.softmax(args.src("x")?, args.int("axis").unwrap_or(-1))?])
}

fn log_softmax(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.log_softmax(args.src("x")?, args.int("axis").unwrap_or(-1))?])
}

fn eps(args: &Args) -> f64 {
    args.number("eps").unwrap_or(1e-5)
}

fn rms_norm(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.rms_norm(args.src("x")?, args.opt("weight"), eps(args))?])
}

fn layer_norm(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.layer_norm(args.src("x")?, args.opt("weight"), args.opt("bias"), eps(args))?])
}
