//! Running combinations along an axis, and Welford's moments.

use super::args::{Args, OpArg};
use super::call::Attr;
use super::cx::{EvalCx, MetaCx};
use super::draft::CallDraft;
use super::extents;
use super::movement::{Form, Movement};
use super::py_form::{PyForm, PyResult};
use super::row::{OpParam, OpParamKind, OpRow, Primitive, ResultLayout, flag, opt, req};
use crate::array::parallel::CHUNK;
use crate::array::{View, parallel};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::infer::shown;
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, OpKind, Operand};
use crate::num::{DType, ReduceOp, Value, eval};

const PARAMS: &[OpParam] = &[
    req("x", OpParamKind::Tensor).py("arg"),
    req("dim", OpParamKind::Int),
    opt("init", OpParamKind::Scalar),
    flag("reverse"),
];

const fn scan_row(name: &'static str, op: ReduceOp, doc: &'static str, source: &'static str) -> OpRow {
    let primitive = Primitive {
        meta: scan_meta,
        layout: ResultLayout::Dense,
        eval: scan_eval,
        decompose: None,
        movement: Movement::SAME.alone().form(Form::Scan(op)),
    };
    OpRow::primitive(name, PARAMS, scan, primitive, doc, source)
}

pub(super) const ROWS: &[OpRow] = &[
    scan_row(
        "cumsum",
        ReduceOp::Sum,
        "Sums of the elements along an axis up to each one, or from there on; the type stays.",
        "N§2, PyTorch cumsum, JAX cumsum",
    ),
    scan_row(
        "cumprod",
        ReduceOp::Prod,
        "Products of the elements along an axis up to each one, or from there on; the type stays.",
        "N§2, PyTorch cumprod",
    ),
    scan_row(
        "cummin",
        ReduceOp::Min,
        "The least element along an axis up to each one, or from there on; NaN stays.",
        "N§2, PyTorch cummin",
    ),
    scan_row(
        "cummax",
        ReduceOp::Max,
        "The greatest element along an axis up to each one, or from there on; NaN stays.",
        "N§2, PyTorch cummax",
    ),
    OpRow::composite(
        "welford",
        &[req("x", OpParamKind::Tensor).py("arg"), req("axes", OpParamKind::Ints).py("dims")],
        welford,
        "Mean, sum of squared distances from it, and number of elements, over axes.",
        "N§2, N§4.3",
    )
    .results(3)
    .py(PyForm::result(PyResult::First)),
];

/// The reduction that a scan gives prefixes of.
fn reduction(row: &OpRow) -> Result<ReduceOp> {
    match row.primitive.and_then(|primitive| primitive.movement.form) {
        Some(Form::Scan(op)) => Ok(op),
        _ => Err(Diagnostic::bug(format!("{} is no scan", row.name))),
    }
}

fn scan(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let x = b.tensor_operand(name, args.src("x")?)?;
    let dim = normal_axis(name, args.int("dim").unwrap_or(0), b.rank(x))?;
    if let Some(init) = args.opt("init") {
        let dtype = b.dtype(Operand::Tensor(x));
        let identity = eval::reduce_identity(reduction(args.row())?, dtype);
        let known = b.scalar_operand(name, init).map(|init| b.scalars.cast(init, dtype))?;
        let known = b.scalars.const_value(known);
        if known != Some(identity) {
            let message = format!("{name}: starts with {}", known.map_or("an unknown value".to_string(), shown));
            return Err(Diagnostic::user(code::VALUE, message).note(format!(
                "only {}, which changes nothing, is possible; combine with the result",
                shown(identity)
            )));
        }
    }
    b.push_draft(CallDraft::new(args).attr("dim", Attr::Int(dim as i64)).operands("init", Vec::new()))
}

fn scan_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    let ordered = matches!(reduction(cx.call.row)?, ReduceOp::Min | ReduceOp::Max);
    if x.dtype.is_packed() || (ordered && x.dtype.is_complex()) {
        let message = format!("{}: not defined on {}", cx.name(), x.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("cast the operand first"));
    }
    Ok(vec![x])
}

fn scan_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let op = reduction(cx.call.row)?;
    let lines = x.axis_last(cx.call.axis("dim"));
    let (dtype, sizes) = (x.dtype, lines.sizes().to_vec());
    let length = sizes.last().copied().unwrap_or(1).max(1);
    let is_reversed = cx.call.flag("reverse");
    // Sums begin with 0 and products with 1, as in PyTorch: a sum of -0.0 alone is 0, and an infinite complex number
    // times 1 is none.
    let first = matches!(op, ReduceOp::Sum | ReduceOp::Prod).then(|| eval::reduce_identity(op, dtype));
    let scanned = if dtype.is_float() {
        // Combined in f64, and each prefix rounded to the type that is computed in, and from there, also of 16 bits:
        // PyTorch's kernels round those at each step, and so by the order in which they combine. Types of 8 bits and fewer
        // are rounded as there: they hold no sum.
        let mut values = lines.to_f64();
        let rounded = |v: f64| match dtype.bits() {
            0..=8 => eval::cast(DType::F64, dtype, Value::Float(v)).as_f64(),
            _ => v,
        };
        let combine = match op {
            ReduceOp::Sum => |a: f64, b: f64| a + b,
            ReduceOp::Prod => |a: f64, b: f64| a * b,
            ReduceOp::Min => eval::minimum,
            ReduceOp::Max => eval::maximum,
            ReduceOp::MaxSumExp => return Err(no_scan(op)),
        };
        parallel::rows(&mut values, length, &|_, line| {
            prefixes(line, is_reversed, first.map(|first| first.as_f64()), |a, b| rounded(combine(a, b)))
        });
        if dtype.is_reduced_float() {
            parallel::chunks(&mut values, CHUNK, &|_, values| {
                values.iter_mut().for_each(|value| *value = f64::from(*value as f32));
            });
        }
        View::from_f64(dtype, sizes, &values)
    } else {
        let mut values = lines.values();
        let op = op.combine_on(dtype).ok_or_else(|| no_scan(op))?;
        parallel::rows(&mut values, length, &|_, line| {
            prefixes(line, is_reversed, first, |a, b| eval::binary(op, dtype, a, b))
        });
        View::from_values(dtype, sizes, &values)
    };
    Ok(vec![scanned.axis_back(cx.call.axis("dim")).to_dense()])
}

/// Forms of scans name operations of single values alone.
fn no_scan(op: ReduceOp) -> Box<Diagnostic> {
    Diagnostic::bug(format!("a scan of {op}"))
}

/// Each element combined with all before it, from a value on: from the first to the last, or from the last to the first.
fn prefixes<T: Copy>(line: &mut [T], is_reversed: bool, first: Option<T>, combine: impl Fn(T, T) -> T) {
    if is_reversed {
        line.reverse();
    }
    if let (Some(first), Some(own)) = (first, line.first_mut()) {
        *own = combine(first, *own);
    }
    for i in 1..line.len() {
        line[i] = combine(line[i - 1], line[i]);
    }
    if is_reversed {
        line.reverse();
    }
}

impl OpKind {
    /// The axis along which an operation combines its operand, if it is a scan.
    pub fn scanned(&self) -> Option<usize> {
        match self {
            OpKind::Call(call) if matches!(call.movement().form, Some(Form::Scan(_))) => Some(call.axis("dim")),
            _ => None,
        }
    }
}

// ---- welford ----

/// `mean = sum(x) / n`, `m2 = sum((x - mean)^2)`, `n`.
fn welford(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "welford";
    let x = b.tensor_operand(name, args.src("x")?)?;
    let (dtype, axes) = (b.dtype(Operand::Tensor(x)), args.ints("axes"));
    if !dtype.is_float() {
        let message = format!("{name}: not defined on {dtype}");
        return Err(Diagnostic::user(code::DTYPE, message).note("cast the operand first"));
    }
    if axes.is_empty() {
        return Err(Diagnostic::user(code::AXIS, format!("{name}: no axis to reduce over")));
    }
    let rank = b.rank(x);
    let mut flags = vec![false; rank];
    for &axis in axes {
        flags[normal_axis(name, axis, rank)?] = true;
    }
    let x = b.cast(x, dtype.compute())?;
    let mean = b.mean(x, axes, false)?;
    let spread = b.broadcast(mean, &flags)?;
    let centred = b.sub(x, spread)?;
    let square = b.mul(centred, centred)?;
    let m2 = b.sum(square, axes, false)?;
    let own = b.tensor_operand(name, x.into()).map(|x| extents::extents(b, x))?;
    let counted: Vec<_> = (0..rank).filter(|&axis| flags[axis]).map(|axis| own[axis]).collect();
    let count = extents::product(b, &counted)?;
    let kept: Vec<_> = (0..rank).filter(|&axis| !flags[axis]).map(|axis| own[axis]).collect();
    let (shape, index) = (OpArg::Values(extents::operands(&kept)), OpArg::DType(DType::Index));
    let count = extents::operand(count);
    let n = extents::call(b, "full", |args| args.with("shape", shape).value("value", count).with("dtype", index))?;
    Ok(vec![mean, m2, n])
}

#[cfg(test)]
mod tests;
