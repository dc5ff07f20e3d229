//! Lookup of rows by number.

use super::args::Args;
use super::cx::{EvalCx, MetaCx};
use super::draft::CallDraft;
use super::index::{check_index, check_table, rows};
use super::lookup::IndexAxes;
use super::movement::{Form, Movement};
use super::py_form::PyForm;
use super::reshape::unsigned;
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, opt, req};
use crate::array::{View, row_major_strides};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, Operand, Src};
use crate::num::{DType, Value, eval};

pub(super) const ROWS: &[OpRow] = &[OpRow::primitive(
    "embedding_fwd",
    &[
        req("input", OpParamKind::Tensor),
        req("weight", OpParamKind::Tensor),
        opt("padding_idx", OpParamKind::Scalar),
        opt("max_norm", OpParamKind::Scalar),
        opt("norm_type", OpParamKind::Scalar),
        opt("scale_grad_by_freq", OpParamKind::Scalar),
        opt("sparse", OpParamKind::Scalar),
    ],
    embedding,
    Primitive {
        meta: embedding_meta,
        layout: ResultLayout::Dense,
        eval: embedding_eval,
        decompose: None,
        movement: Movement::LIBRARY.picks("weight").form(Form::Lookup(IndexAxes::BeforeRow)),
    },
    "The rows of weight that input lists, those with a norm above max_norm scaled down to it; the other \
         parameters are about gradients.",
    "N§2, PyTorch embedding",
)
.py(PyForm { updates_table: true, ..PyForm::SAME })];

/// Of the parameters, those that say what leaving them out says are left out.
fn embedding(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "embedding_fwd";
    let mut draft = CallDraft::new(args);
    let classes = [
        ("padding_idx", DType::I64, None),
        ("max_norm", DType::F64, None),
        ("norm_type", DType::F64, Some(Value::Float(2.0))),
        ("scale_grad_by_freq", DType::Bool, Some(Value::Bool(false))),
        ("sparse", DType::Bool, Some(Value::Bool(false))),
    ];
    for (param, dtype, default) in classes {
        let Some(src) = args.opt(param) else { continue };
        let scalar = b.scalar_operand(name, src)?;
        let own = b.scalars.dtype(scalar);
        // An integer may stand for a number.
        if own.class() != dtype.class() && !(dtype == DType::F64 && own.is_int()) {
            let message = format!("{name}: `{param}` is a {own}, not a {dtype}");
            return Err(Diagnostic::user(code::DTYPE, message));
        }
        let scalar = b.scalars.cast(scalar, dtype);
        let value = b.scalars.const_value(scalar);
        let kept = default.is_none() || value != default;
        draft = draft.operands(param, if kept { vec![Src::Scalar(scalar)] } else { Vec::new() });
    }
    b.push_draft(draft)
}

fn embedding_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (input, weight) = (cx.tensor("input")?, cx.tensor("weight")?);
    check_index(cx.name(), input.dtype)?;
    if weight.axes.len() != 2 {
        let message = format!("{}: the weight has rank {}, not 2", cx.name(), weight.axes.len());
        return Err(Diagnostic::user(code::RANK, message));
    }
    if !weight.dtype.is_float() && cx.operand_dtype("max_norm").is_some() {
        let message = format!("{}: a weight of {} has no norm", cx.name(), weight.dtype);
        return Err(Diagnostic::user(code::DTYPE, message));
    }
    let mut axes = input.axes;
    axes.push(weight.axes[1]);
    check_table(cx, &weight, 0, &axes)?;
    Ok(vec![Shape { dtype: weight.dtype, axes }])
}

fn embedding_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (input, weight) = (cx.tensor("input")?, cx.tensor("weight")?);
    let scaled = cx.scalar("max_norm").map(|limit| {
        let power = cx.scalar("norm_type").map_or(2.0, Value::as_f64);
        limited_rows(weight, limit.as_f64(), power)
    });
    let line = input.to_dense().seen(vec![input.len()], vec![1], 0);
    let sizes = cx.results[0].1.clone();
    let table = scaled.as_ref().unwrap_or(weight);
    let rows = rows(cx.call.row.name, table, &line, 0, &[input.len(), weight.sizes[1]])?;
    let signed: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
    Ok(vec![rows.seen(sizes, unsigned(&row_major_strides(&signed)), 0)])
}

/// Rows `x * limit / (norm + 1e-7)` where the norm `(sum |x|^p)^(1/p)` is above
/// the limit.
fn limited_rows(weight: &View, limit: f64, power: f64) -> View {
    let mut values = weight.to_f64();
    for row in values.chunks_exact_mut(weight.sizes[1].max(1)) {
        let norm = match power {
            2.0 => row.iter().map(|v| v * v).sum::<f64>().sqrt(),
            f64::INFINITY => row.iter().fold(0.0, |most, v| eval::maximum(most, v.abs())),
            f64::NEG_INFINITY => row.iter().fold(f64::INFINITY, |least, v| eval::minimum(least, v.abs())),
            0.0 => row.iter().filter(|v| **v != 0.0).count() as f64,
            _ => row.iter().map(|v| v.abs().powf(power)).sum::<f64>().powf(1.0 / power),
        };
        let norm = eval::round_float(weight.dtype, norm);
        if norm > limit {
            let scale = limit / (norm + 1e-7);
            row.iter_mut().for_each(|v| *v *= scale);
        }
    }
    View::from_f64(weight.dtype, weight.sizes.clone(), &values)
}

#[cfg(test)]
mod tests;
