//! Scaled dot product attention, forward and backward.
//!
//! With `scores = scale * query key^T + bias`, -inf where the mask is false,
//! `output = softmax(scores) value` and `logsumexp = log(sum(exp(scores)))` for
//! each row. Axes are `[.., L, E]` for `query`, `[.., S, E]` for `key` and
//! `[.., S, V]` for `value`; a causal mask is aligned at the lower right: query
//! `i` sees keys `j <= i + S - L`. A row that sees no key gives 0, its
//! `logsumexp` is +inf.
//!
//! Everything is computed in `f64` and rounded once, but for this: without bias
//! and mask, `f16` and `bf16` are the business of a flash kernel, whose tensor
//! cores multiply operands of these types only. So as it does, weights
//! `exp(score - max)` are rounded to the type before they are multiplied by
//! `value` (their sum, by which the product is divided, is of what was not
//! rounded), and the backward pass rounds `P` and `dS` before their products.
//! `P` there is `exp(score - logsumexp)`, `dS` is made of what was not rounded.
//! Left out is what depends on the tiles of a kernel: that `max` is the one of
//! the keys seen so far. With bias or mask nvFuser takes PyTorch's way through
//! `f32`, which rounds once.
//!
//! Dropout is refused when it is evaluated: which element a flash kernel drops
//! depends on its tiles. The random state is 0 therefore.

use super::args::Args;
use super::cx::{LayoutCx, MetaCx};
use super::draft::CallDraft;
use super::matmul::{common_type, need_axes};
use super::movement::Movement;
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, opt, req};
use crate::array::{dense_strides_in, iteration_order, row_major_strides};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{AxisMeta, ExtentValue, Shape};
use crate::fusion::{AxisKind, FusionBuilder, Operand, Src};
use crate::num::DType;

mod backward;
mod forward;
mod problem;
mod steps;
#[cfg(test)]
mod tests;

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "sdpfa_fwd",
        &[
            req("query", OpParamKind::Tensor),
            req("key", OpParamKind::Tensor),
            req("value", OpParamKind::Tensor),
            opt("bias", OpParamKind::Tensor),
            opt("mask", OpParamKind::Tensor),
            opt("dropout_p", OpParamKind::Scalar),
            opt("is_causal", OpParamKind::Scalar),
            opt("scale", OpParamKind::Scalar),
        ],
        build_forward,
        Primitive {
            meta: forward_meta,
            layout: ResultLayout::Custom(forward_layout),
            eval: forward::evaluate,
            decompose: Some(steps::forward),
            movement: Movement::LIBRARY,
        },
        "softmax(scale * query key^T + bias, -inf where mask is false) value over the last two axes; its results are \
         the output, the logarithm of the sum of exponentials of each row, and the state of the random numbers. scale \
         is 1/sqrt(E) unless given.",
        "N§2, PyTorch scaled_dot_product_attention",
    )
    .results(4)
    .stays_if(steps::stays),
    OpRow::primitive(
        "sdpfa_bwd",
        &[
            req("grad_output", OpParamKind::Tensor),
            req("query", OpParamKind::Tensor),
            req("key", OpParamKind::Tensor),
            req("value", OpParamKind::Tensor),
            req("output", OpParamKind::Tensor),
            req("logsumexp", OpParamKind::Tensor),
            req("dropout_p", OpParamKind::Scalar),
            req("is_causal", OpParamKind::Scalar),
            req("philox_seed", OpParamKind::Tensor),
            req("philox_offset", OpParamKind::Tensor),
            opt("scale", OpParamKind::Scalar),
        ],
        build_backward,
        Primitive {
            meta: backward_meta,
            layout: ResultLayout::Custom(backward_layout),
            eval: backward::evaluate,
            decompose: Some(steps::backward),
            movement: Movement::LIBRARY,
        },
        "Gradients of query, key and value of sdpfa_fwd without bias and mask.",
        "N§2, PyTorch scaled_dot_product_attention",
    )
    .results(3)
    .stays_if(steps::stays),
];

// ---- build ----

/// A scalar cast to a type, or none if it says what leaving it out says.
fn typed(b: &mut FusionBuilder, src: Option<Src>, dtype: DType, default: bool) -> Result<Vec<Src>> {
    let Some(src) = src else { return Ok(Vec::new()) };
    let scalar = b.cast(src, dtype)?;
    let is_default = b.known(scalar.into()).is_some_and(|value| !value.as_bool());
    Ok(if default && is_default { Vec::new() } else { vec![scalar.into()] })
}

fn build_forward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    check_dropout(b, args)?;
    let dropout = typed(b, args.opt("dropout_p"), DType::F64, true)?;
    let causal = typed(b, args.opt("is_causal"), DType::Bool, true)?;
    let scale = typed(b, args.opt("scale"), DType::F64, false)?;
    let is_causal = causal.first().is_some_and(|&causal| b.known(causal).is_some_and(|value| value.as_bool()));
    if is_causal && (args.has("bias") || args.has("mask")) {
        return Err(problem::causal_and_masked(args.row().name));
    }
    let draft = CallDraft::new(args).operands("dropout_p", dropout).operands("is_causal", causal);
    b.push_draft(draft.operands("scale", scale))
}

fn build_backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    check_dropout(b, args)?;
    let dropout = typed(b, args.opt("dropout_p"), DType::F64, false)?;
    let causal = typed(b, args.opt("is_causal"), DType::Bool, false)?;
    let scale = typed(b, args.opt("scale"), DType::F64, false)?;
    let draft = CallDraft::new(args).operands("dropout_p", dropout).operands("is_causal", causal);
    b.push_draft(draft.operands("scale", scale))
}

fn check_dropout(b: &FusionBuilder, args: &Args) -> Result<()> {
    match args.opt("dropout_p").and_then(|src| b.known(src)) {
        Some(value) => problem::check_probability(args.row().name, value.as_f64()),
        None => Ok(()),
    }
}

// ---- meta ----

/// Extents of the axes of an attention.
struct Axes {
    dtype: DType,
    /// Axes that query, key and value have in common.
    batch: Vec<AxisMeta>,
    queries: AxisMeta,
    keys: ExtentValue,
    outputs: AxisMeta,
}

fn common_axes(cx: &mut MetaCx<'_>) -> Result<Axes> {
    let [query, key, value] = [cx.tensor("query")?, cx.tensor("key")?, cx.tensor("value")?];
    let dtype = common_type(cx, &[&query, &key, &value])?;
    if dtype.is_complex() {
        let message = format!("{}: not defined on {dtype}", cx.name());
        return Err(Diagnostic::user(code::DTYPE, message).note("cast the operands first"));
    }
    need_axes(cx, "query", &query, 4, usize::MAX)?;
    let rank = query.axes.len();
    need_axes(cx, "key", &key, rank, rank)?;
    need_axes(cx, "value", &value, rank, rank)?;
    let mut batch = query.axes[..rank - 2].to_vec();
    for (i, axis) in batch.iter_mut().enumerate() {
        axis.extent = same_axis(cx, i, ("query", axis.extent), ("key", key.axes[i].extent))?;
        axis.extent = same_axis(cx, i, ("query", axis.extent), ("value", value.axes[i].extent))?;
    }
    same_axis(cx, rank - 1, ("query", query.axes[rank - 1].extent), ("key", key.axes[rank - 1].extent))?;
    let keys = same_axis(cx, rank - 2, ("key", key.axes[rank - 2].extent), ("value", value.axes[rank - 2].extent))?;
    Ok(Axes { dtype, batch, queries: query.axes[rank - 2], keys, outputs: value.axes[rank - 1] })
}

/// The extent of an axis that two operands have in common.
fn same_axis(cx: &mut MetaCx<'_>, axis: usize, a: (&str, ExtentValue), b: (&str, ExtentValue)) -> Result<ExtentValue> {
    cx.same(&format!("axis {axis} of `{}` and of `{}`", a.0, b.0), a.1, b.1)
}

fn forward_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let axes = common_axes(cx)?;
    check_addend(cx, "bias", axes.dtype, &axes)?;
    check_addend(cx, "mask", DType::Bool, &axes)?;
    let mut rows = axes.batch;
    rows.push(axes.queries);
    let mut output = rows.clone();
    output.push(axes.outputs);
    let two = cx.constant(2);
    let seed = vec![cx.axis(two)];
    Ok(vec![
        Shape { dtype: axes.dtype, axes: output },
        Shape { dtype: DType::F32, axes: rows },
        Shape { dtype: DType::U64, axes: seed },
        Shape { dtype: DType::U64, axes: Vec::new() },
    ])
}

/// What is added to the scores has their rank and type, and their extents where
/// it does not repeat.
fn check_addend(cx: &mut MetaCx<'_>, name: &str, dtype: DType, axes: &Axes) -> Result<()> {
    let Some(addend) = cx.opt_tensor(name)? else { return Ok(()) };
    let rank = axes.batch.len() + 2;
    need_axes(cx, name, &addend, rank, rank)?;
    if addend.dtype != dtype {
        let message = format!("{}: `{name}` is {}, it must be {dtype}", cx.name(), addend.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("cast it"));
    }
    let batch = axes.batch.iter().map(|axis| axis.extent);
    let scores: Vec<ExtentValue> = batch.chain([axes.queries.extent, axes.keys]).collect();
    for (i, (own, scores)) in addend.axes.iter().zip(scores).enumerate() {
        if own.kind == AxisKind::Iteration {
            cx.same(&format!("axis {i} of `{name}` and of the scores"), own.extent, scores)?;
        }
    }
    Ok(())
}

fn backward_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let axes = common_axes(cx)?;
    let rank = axes.batch.len() + 2;
    for (name, last) in [("grad_output", Some(axes.outputs)), ("output", Some(axes.outputs)), ("logsumexp", None)] {
        let shape = cx.tensor(name)?;
        let expected: Vec<AxisMeta> = axes.batch.iter().copied().chain([axes.queries]).chain(last).collect();
        need_axes(cx, name, &shape, expected.len(), expected.len())?;
        for (i, (own, expected)) in shape.axes.iter().zip(expected).enumerate() {
            let of = if i + 1 == rank { "value" } else { "query" };
            same_axis(cx, i, (name, own.extent), (of, expected.extent))?;
        }
        let dtype = if last.is_some() { axes.dtype } else { DType::F32 };
        if shape.dtype != dtype {
            let message = format!("{}: `{name}` is {}, it must be {dtype}", cx.name(), shape.dtype);
            return Err(Diagnostic::user(code::DTYPE, message).note("cast it"));
        }
    }
    // The state of the random numbers is not looked at without dropout.
    cx.tensor("philox_seed")?;
    cx.tensor("philox_offset")?;
    Ok(vec![cx.tensor("query")?, cx.tensor("key")?, cx.tensor("value")?])
}

// ---- layout ----

/// Dense strides of a result whose axes lie in memory like those of an operand.
fn strides_like(cx: &LayoutCx<'_>, operand: &str, result: usize) -> Result<Vec<i64>> {
    let (sizes, strides) = cx.tensor(operand)?;
    Ok(dense_strides_in(&cx.results[result], &iteration_order(sizes, &[(sizes, strides)])))
}

fn forward_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let mut strides = vec![strides_like(cx, "query", 0)?];
    strides.extend(cx.results[1..].iter().map(|sizes| row_major_strides(sizes)));
    Ok(strides)
}

fn backward_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    ["query", "key", "value"].iter().enumerate().map(|(result, operand)| strides_like(cx, operand, result)).collect()
}
