//! Reductions, and sums of a few tensors.

use super::args::Args;
use super::cx::{EvalCx, MetaCx};
use super::draft::CallDraft;
use super::movement::{Form, Movement};
use super::py_form::{PyArgs, PyForm, PyResult};
use super::row::{OpParam, OpParamKind, OpRow, Primitive, ResultLayout, ScalarOp, flag, opt, req};
use crate::array::View;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, Operand};
use crate::num::{BinaryOp, DType, ReduceOp};

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

pub(super) const ROWS: &[OpRow] = &[
    row(ReduceOp::Sum),
    row(ReduceOp::Prod),
    row(ReduceOp::Max),
    row(ReduceOp::Min),
    row(ReduceOp::MaxSumExp),
    OpRow::primitive(
        "sum_of",
        &[req("tensors", OpParamKind::Tensors)],
        sum_of,
        Primitive {
            meta: sum_of_meta,
            layout: ResultLayout::Dense,
            eval: sum_of_eval,
            decompose: Some(sum_of_steps),
            movement: Movement::SAME.form(Form::SumOf),
        },
        "The sum of float tensors of one type, which broadcast against each other: what sum is of them side by side.",
        "sum: its terms, one by one",
    ),
];

fn reduce(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let ScalarOp::Reduce(op) = args.row().scalar else {
        return Err(Diagnostic::bug(format!("{} is no reduction", args.row().name)));
    };
    let result = b.reduce(op, args.src("x")?, args.ints("axes"), args.flag("keepdim"), args.dtype("dtype"))?;
    Ok(vec![result])
}

fn sum_of(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

fn sum_of_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut shapes = cx.tensors("tensors").into_iter();
    let Some(mut sum) = shapes.next() else {
        return Err(Diagnostic::user(code::ARITY, format!("{}: nothing is added", cx.name())));
    };
    if !matches!(sum.dtype, DType::F32 | DType::F64) {
        let message = format!("{}: not defined on {}", cx.name(), sum.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("cast the operands first"));
    }
    for other in shapes {
        if other.dtype != sum.dtype {
            let message = format!("{}: operands of types {} and {}", cx.name(), sum.dtype, other.dtype);
            return Err(Diagnostic::user(code::DTYPE, message).note("cast one of them"));
        }
        if other.axes.len() != sum.axes.len() {
            let (own, rank) = (other.axes.len(), sum.axes.len());
            return Err(Diagnostic::user(code::RANK, format!("{}: operands of ranks {rank} and {own}", cx.name())));
        }
        for (position, (axis, own)) in sum.axes.iter_mut().zip(other.axes).enumerate() {
            *axis = cx.paired(&format!("axis {position}"), *axis, own)?;
        }
    }
    Ok(vec![sum])
}

fn sum_of_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (dtype, sizes) = &cx.results[0];
    // As sums are added: one term after the other to 0, and rounded once.
    let mut sums = vec![0.0; sizes.iter().product()];
    for term in cx.tensors("tensors") {
        sums.iter_mut().zip(term.expanded(sizes).to_f64()).for_each(|(sum, term)| *sum += term);
    }
    Ok(vec![View::from_f64(*dtype, sizes.clone(), &sums)])
}

/// One term after the other, to 0: a sum of zeros below 0 is none below it.
fn sum_of_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let [first, others @ ..] = args.list("tensors") else {
        return Err(Diagnostic::bug("sum_of has no tensors"));
    };
    let mut sum = b.binary(BinaryOp::Add, *first, 0.0)?;
    for other in others {
        sum = b.binary(BinaryOp::Add, sum, *other)?;
    }
    Ok(vec![sum])
}
