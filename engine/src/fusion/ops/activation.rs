//! Activation functions that are formulas of others.

use super::args::Args;
use super::row::{OpRow, Param, ParamKind, opt, req};
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand};

const X: &[Param] = &[req("x", ParamKind::Value)];

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite("gelu", X, gelu, "x * (1 + erf(x / sqrt(2))) / 2.", "PyTorch gelu"),
    OpRow::composite(
        "gelu_tanh",
        X,
        gelu_tanh,
        "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.",
        "PyTorch gelu, approximate='tanh'",
    ),
    OpRow::composite(
        "leaky_relu",
        &[req("x", ParamKind::Value), opt("slope", ParamKind::Value)],
        leaky_relu,
        "x where x >= 0, else slope * x; slope 0.01 unless given.",
        "PyTorch leaky_relu",
    ),
    OpRow::composite("softplus", X, softplus, "log(1 + exp(x)), without overflow.", "PyTorch softplus"),
    OpRow::composite(
        "addcmul",
        &[
            req("x", ParamKind::Value),
            req("a", ParamKind::Value),
            req("b", ParamKind::Value),
            opt("value", ParamKind::Value),
        ],
        addcmul,
        "x + value * a * b; value 1 unless given.",
        "N§2",
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
    Ok(vec![b.softplus(args.src("x")?)?])
}

fn addcmul(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let value = args.opt("value").unwrap_or(1.into());
    Ok(vec![b.addcmul(args.src("x")?, args.src("a")?, args.src("b")?, value)?])
}
