//! Reductions.

use super::args::Args;
use super::py_form::{PyArgs, PyForm, PyResult};
use super::row::{OpParam, OpParamKind, OpRow, ScalarOp, flag, opt, req};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{FusionBuilder, Operand};
use crate::num::ReduceOp;

const PARAMS: &[OpParam] = &[
    req("x", OpParamKind::Tensor).py("arg"),
    opt("axes", OpParamKind::Ints).py("dims"),
    flag("keepdim"),
    opt("dtype", OpParamKind::DType),
];

const fn row(op: ReduceOp) -> OpRow {
    let names: &[&str] = match op {
        ReduceOp::Max => &["fmax"],
        ReduceOp::Min => &["fmin"],
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::MaxSumExp => &[],
    };
    let py = PyForm { names, result: PyResult::First, ..PyForm::args(PyArgs::Reduction) };
    OpRow { scalar: ScalarOp::Reduce(op), py, ..OpRow::composite(op.name(), PARAMS, reduce, op.doc(), "N§2") }
}

pub(super) const ROWS: &[OpRow] =
    &[row(ReduceOp::Sum), row(ReduceOp::Prod), row(ReduceOp::Max), row(ReduceOp::Min), row(ReduceOp::MaxSumExp)];

fn reduce(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let ScalarOp::Reduce(op) = args.row().scalar else {
        return Err(Diagnostic::bug(format!("{} is no reduction", args.row().name)));
    };
    let result = b.reduce(op, args.src("x")?, args.ints("axes"), args.flag("keepdim"), args.dtype("dtype"))?;
    Ok(vec![result])
}
