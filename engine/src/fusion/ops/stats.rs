//! Mean, variance and standard deviation.

use super::args::Args;
use super::row::{OpRow, Param, ParamKind, flag, int, opt, req};
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand};

const MEAN: &[Param] =
    &[req("x", ParamKind::Tensor).py("arg"), opt("axes", ParamKind::Ints).py("dims"), flag("keepdim")];
const VAR: &[Param] = &[
    req("x", ParamKind::Tensor).py("arg"),
    opt("axes", ParamKind::Ints).py("dims"),
    int("correction", 1),
    flag("keepdim"),
];

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite("mean", MEAN, mean, "sum / number of elements.", "N§2"),
    OpRow::composite(
        "var",
        VAR,
        var,
        "Variance; the divisor is max(n - correction, 0), correction 1 unless given.",
        "N§2",
    ),
    OpRow::composite("std", VAR, std, "Square root of var.", "N§2"),
    OpRow::composite("var_mean", VAR, var_mean, "Two values: var and mean.", "N§2").results(2),
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
