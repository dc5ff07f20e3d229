//! Tensors made from scalars alone.

use super::args::{Args, OpArg};
use super::cx::{EvalCx, MetaCx};
use super::draft::CallDraft;
use super::extents;
use super::movement::{Form, Movement};
use super::resize::{constant_of, zero};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, dtype, opt, req};
use crate::array::View;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::infer::shown;
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, Operand, Src};
use crate::num::{BinaryOp, DType, Value, eval};

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "iota",
        &[
            req("length", OpParamKind::Scalar),
            opt("start", OpParamKind::Scalar),
            opt("step", OpParamKind::Scalar),
            dtype("dtype", DType::I64),
        ],
        iota,
        Primitive {
            meta: iota_meta,
            layout: ResultLayout::Dense,
            eval: iota_eval,
            decompose: Some(iota_steps),
            movement: Movement::NEW.form(Form::Progression),
        },
        "start (0) + step (1) * i for i below length.",
        "N§2, PyTorch arange",
    ),
    OpRow::composite(
        "arange",
        &[
            req("start", OpParamKind::Scalar),
            req("end", OpParamKind::Scalar),
            opt("step", OpParamKind::Scalar),
            dtype("dtype", DType::I64),
        ],
        arange,
        "start + step (1) * i for i from 0 as long as the number lies before end.",
        "PyTorch arange",
    ),
    OpRow::primitive(
        "eye",
        &[req("rows", OpParamKind::Scalar), opt("cols", OpParamKind::Scalar), req("dtype", OpParamKind::BareDType)],
        eye,
        Primitive {
            meta: eye_meta,
            layout: ResultLayout::Dense,
            eval: eye_eval,
            decompose: Some(eye_steps),
            movement: Movement::NEW,
        },
        "1 where row and column are equal, else 0; as many columns as rows if not given.",
        "N§5, PyTorch eye",
    ),
    OpRow::composite(
        "zeros",
        &[req("shape", OpParamKind::Shape), req("dtype", OpParamKind::BareDType)],
        filled,
        "full of 0.",
        "N§5",
    ),
    OpRow::composite(
        "ones",
        &[req("shape", OpParamKind::Shape), req("dtype", OpParamKind::BareDType)],
        filled,
        "full of 1.",
        "N§5",
    ),
    OpRow::composite(
        "full_like",
        &[
            req("x", OpParamKind::Tensor),
            req("value", OpParamKind::Scalar).py("fill_value"),
            opt("dtype", OpParamKind::DType),
        ],
        like,
        "full of value with the extents of x, and its type unless another is given.",
        "N§5",
    ),
    OpRow::composite(
        "zeros_like",
        &[req("x", OpParamKind::Tensor)],
        like,
        "full of 0 with the extents and type of x.",
        "N§5",
    ),
    OpRow::composite(
        "ones_like",
        &[req("x", OpParamKind::Tensor)],
        like,
        "full of 1 with the extents and type of x.",
        "N§5",
    ),
];

// ---- iota ----

fn iota(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dtype = args.dtype("dtype").unwrap_or(DType::I64);
    if !(dtype.is_int() && !dtype.is_packed() || dtype.is_float()) {
        return Err(Diagnostic::user(code::DTYPE, format!("iota: not defined on {dtype}")));
    }
    let length = extents::integer(b, "iota", "the length", args.src("length")?)?;
    let mut draft = CallDraft::new(args).operand("length", extents::operand(length));
    // A float is computed in f64 and rounded once.
    let working = if dtype.is_float() { DType::F64 } else { dtype };
    for (name, default) in [("start", 0), ("step", 1)] {
        let Some(src) = args.opt(name) else { continue };
        let scalar = constant_of(b, "iota", src, working)?;
        let known = b.known(scalar);
        if let Some(value) = known {
            check_number("iota", name, value)?;
        }
        let default = eval::cast(DType::I64, working, Value::Int(default));
        draft = draft.operands(name, if known == Some(default) { Vec::new() } else { vec![scalar] });
    }
    b.push_draft(draft)
}

/// Numbers are finite and a step is not 0.
fn check_number(op: &str, name: &str, value: Value) -> Result<()> {
    let refused = match value {
        Value::Float(v) => !v.is_finite() || (name == "step" && v == 0.0),
        other => name == "step" && !other.as_bool(),
    };
    if refused {
        let message = format!("{op}: the {name} is {}", shown(value));
        return Err(Diagnostic::user(code::VALUE, message).note("use full for a tensor of one value"));
    }
    Ok(())
}

fn iota_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let dtype = cx.call.dtype("dtype").unwrap_or(DType::I64);
    let axes = cx.extent("length").map(|length| cx.declared_axis(length)).into_iter().collect();
    Ok(vec![Shape { dtype, axes }])
}

fn iota_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (dtype, sizes) = cx.results[0].clone();
    let (start, step) = (cx.scalar("start"), cx.scalar("step"));
    let count = 0..sizes.first().copied().unwrap_or(0);
    Ok(vec![if dtype.is_float() {
        let (start, step) = (start.map_or(0.0, Value::as_f64), step.map_or(1.0, Value::as_f64));
        let values: Vec<f64> = count.map(|i| start + step * i as f64).collect();
        View::from_f64(dtype, sizes, &values)
    } else {
        let (start, step) = (start.map_or(0, Value::as_i64), step.map_or(1, Value::as_i64));
        let value = |i: usize| eval::wrap(dtype, start.wrapping_add(step.wrapping_mul(i as i64)));
        View::from_i64(dtype, sizes, count.map(value).collect())
    }])
}

/// The same on the index: integers in `i64`, which wraps like any of its parts,
/// floats in `f64`.
fn iota_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dtype = args.dtype("dtype").unwrap_or(DType::I64);
    let working = if dtype.is_float() { DType::F64 } else { DType::I64 };
    let index = b.index(&[args.src("length")?], 0)?;
    let mut value = b.cast(index, working)?;
    // Positions themselves take no arithmetic.
    for (name, op) in [("step", BinaryOp::Mul), ("start", BinaryOp::Add)] {
        if let Some(number) = args.opt(name) {
            let number = constant_of(b, "iota", number, working)?;
            let number = b.cast(number, working)?;
            value = b.binary(op, value, number)?;
        }
    }
    Ok(vec![b.cast(value, dtype)?])
}

// ---- arange ----

/// `iota` of `max(ceil((end - start) / step), 0)` numbers.
fn arange(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "arange";
    let dtype = args.dtype("dtype").unwrap_or(DType::I64);
    let working = if dtype.is_float() { DType::F64 } else { DType::I64 };
    let start = constant_of(b, name, args.src("start")?, working)?;
    let end = constant_of(b, name, args.src("end")?, working)?;
    let step = constant_of(b, name, args.opt("step").unwrap_or(Value::Int(1).into()), working)?;
    if let Some(value) = b.known(step) {
        check_number(name, "step", value)?;
    }
    if let (Some(Value::Int(from)), Some(Value::Int(to))) = (b.known(start), b.known(end))
        && to.checked_sub(from).is_none()
    {
        let message = format!("{name}: the numbers from {from} to {to} are too many to count");
        return Err(Diagnostic::user(code::VALUE, message));
    }
    let distance = b.sub(end, start)?;
    let count = if working == DType::F64 {
        let steps = b.div(distance, step)?;
        let steps = b.ceil(steps)?;
        b.cast(steps, DType::I64)?
    } else {
        // A distance against the step's direction is none.
        let forward = b.gt(step, 0)?;
        let (up, down) = (b.maximum(distance, 0)?, b.minimum(distance, 0)?);
        let distance = b.where_(forward, up, down)?;
        let (distance, step) = (b.abs(distance)?, b.abs(step)?);
        b.ceildiv(distance, step)?
    };
    let count = b.maximum(count, 0)?;
    let call = |args: Args| {
        let args = args.value("length", count).value("start", start).value("step", step);
        args.with("dtype", OpArg::DType(dtype))
    };
    Ok(vec![extents::call(b, "iota", call)?])
}

// ---- eye ----

fn eye(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let rows = extents::integer(b, "eye", "the number of rows", args.src("rows")?)?;
    let mut draft = CallDraft::new(args).operand("rows", extents::operand(rows));
    if let Some(cols) = args.opt("cols") {
        let cols = extents::integer(b, "eye", "the number of columns", cols)?;
        draft = draft.operands("cols", if cols == rows { Vec::new() } else { vec![extents::operand(cols)] });
    }
    b.push_draft(draft)
}

fn eye_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let dtype = cx.call.dtype("dtype").unwrap_or(DType::F32);
    let rows = cx.extent("rows");
    let axes = [rows, cx.extent("cols").or(rows)].into_iter().flatten().map(|extent| cx.axis(extent)).collect();
    Ok(vec![Shape { dtype, axes }])
}

fn eye_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (dtype, sizes) = cx.results[0].clone();
    let one = eval::cast(DType::Bool, dtype, Value::Bool(true));
    let [zeros, ones] = [zero(dtype), one].map(|value| View::repeated(dtype, value, Vec::new()));
    let cols = sizes[1];
    let pick = |i: usize| (usize::from(i / cols == i % cols), 0);
    Ok(vec![View::picked(&[&zeros, &ones], sizes.clone(), pick)?])
}

/// The same on the indices.
fn eye_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dtype = args.dtype("dtype").unwrap_or(DType::F32);
    let rows = args.src("rows")?;
    let cols = args.opt("cols").unwrap_or(rows);
    let row = b.index(&[rows, 1.into()], 0)?;
    let col = b.index(&[1.into(), cols], 1)?;
    let same = b.eq(row, col)?;
    Ok(vec![b.cast(same, dtype)?])
}

// ---- composites of full ----

fn filled(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dtype = args.dtype("dtype").ok_or_else(|| Diagnostic::bug("the data type was checked"))?;
    let value = Value::Int((args.row().name == "ones").into());
    full(b, args.list("shape").to_vec(), value.into(), dtype)
}

fn like(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let x = b.tensor_operand(name, args.src("x")?)?;
    let dtype = args.dtype("dtype").unwrap_or_else(|| b.dtype(Operand::Tensor(x)));
    let value = match name {
        "zeros_like" => Value::Int(0).into(),
        "ones_like" => Value::Int(1).into(),
        _ => args.src("value")?,
    };
    let shape = extents::operands(&extents::extents(b, x));
    full(b, shape, value, dtype)
}

fn full(b: &mut FusionBuilder, shape: Vec<Src>, value: Src, dtype: DType) -> Result<Vec<Operand>> {
    let (shape, dtype) = (OpArg::Values(shape), OpArg::DType(dtype));
    Ok(vec![extents::call(b, "full", |args| args.with("shape", shape).value("value", value).with("dtype", dtype))?])
}

#[cfg(test)]
mod tests;
