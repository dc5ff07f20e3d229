//! Products of matrices. Elements are multiplied and summed in `f64` (parts of
//! complex numbers too) and the sum is rounded once, to the operands' type, or
//! for operands of 16 bits to `f32` if that is asked for. Results are row-major,
//! as PyTorch gives them.

use super::args::Args;
use super::call::Attr;
use super::cx::{EvalCx, MetaCx};
use super::draft::CallDraft;
use super::movement::{Form, Movement};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, opt, req};
use crate::array::{Sums, View};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{AxisMeta, Shape};
use crate::fusion::{AxisKind, FusionBuilder, Operand};
use crate::num::DType;

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "matmul",
        &[
            req("a", OpParamKind::Tensor).py("arg1"),
            req("b", OpParamKind::Tensor).py("arg2"),
            opt("dtype", OpParamKind::DType),
        ],
        build_matmul,
        Primitive {
            meta: matmul_meta,
            layout: ResultLayout::Dense,
            eval: matmul_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::Matmul),
        },
        "Products of the matrices in the last two axes; the axes before them broadcast, aligned at the right. A vector \
         is a row on the left and a column on the right, and its axis of size 1 is dropped. The result has the type of the \
         operands; that of f16 and bf16 may be f32.",
        "N§2, PyTorch matmul; dtype is out_dtype of PyTorch mm",
    ),
    OpRow::primitive(
        "linear",
        &[
            req("x", OpParamKind::Tensor).py("arg1"),
            req("weight", OpParamKind::Tensor).py("arg2"),
            opt("bias", OpParamKind::Tensor),
        ],
        as_given,
        Primitive {
            meta: linear_meta,
            layout: ResultLayout::Dense,
            eval: linear_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::Linear),
        },
        "x times the transposed weight of axes [out, in], plus bias; a weight of one axis gives one number for each \
         vector of x.",
        "N§2, PyTorch linear",
    ),
];

/// Operands are of one type already or refused: these operations do not promote.
pub(super) fn as_given(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

/// The type that all operands have, if matrices of it can be multiplied.
pub(super) fn common_type(cx: &MetaCx<'_>, shapes: &[&Shape]) -> Result<DType> {
    let (name, first) = (cx.name(), shapes[0].dtype);
    if let Some(other) = shapes.iter().map(|shape| shape.dtype).find(|&dtype| dtype != first) {
        let message = format!("{name}: operands of types {first} and {other}");
        return Err(Diagnostic::user(code::DTYPE, message).note("cast one of them"));
    }
    if first.is_complex() || (first.is_float() && first.bytes() > 1) {
        return Ok(first);
    }
    Err(Diagnostic::user(code::DTYPE, format!("{name}: not defined on {first}")).note("cast the operands first"))
}

/// Refuses an operand of another rank than from `least` to `most`.
pub(super) fn need_axes(cx: &MetaCx<'_>, name: &str, shape: &Shape, least: usize, most: usize) -> Result<()> {
    let rank = shape.axes.len();
    if (least..=most).contains(&rank) {
        return Ok(());
    }
    let expected = match (least, most) {
        (_, usize::MAX) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        _ => format!("{least} to {most}"),
    };
    Err(Diagnostic::user(code::RANK, format!("{}: `{name}` has rank {rank}, it needs {expected}", cx.name())))
}

// ---- matmul ----

fn build_matmul(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let a = b.tensor_operand(args.row().name, args.src("a")?)?;
    let own = b.dtype(Operand::Tensor(a));
    // The operands' own type is not written, so that a program has one form.
    let other = args.dtype("dtype").filter(|dtype| *dtype != own);
    b.push_draft(CallDraft::new(args).attr("dtype", other.map_or(Attr::None, Attr::DType)))
}

/// The type of a product of operands of this type.
fn result_type(cx: &MetaCx<'_>, own: DType) -> Result<DType> {
    match cx.call.dtype("dtype") {
        None => Ok(own),
        Some(DType::F32) if matches!(own, DType::F16 | DType::BF16) => Ok(DType::F32),
        Some(other) => {
            let message = format!("{}: the product of {own} cannot be {other}", cx.name());
            Err(Diagnostic::user(code::DTYPE, message)
                .note("that of f16 and bf16 can be f32; cast the operands or the product"))
        }
    }
}

fn matmul_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (a, b) = (cx.tensor("a")?, cx.tensor("b")?);
    let own = common_type(cx, &[&a, &b])?;
    let dtype = result_type(cx, own)?;
    for (name, shape) in [("a", &a), ("b", &b)] {
        need_axes(cx, name, shape, 1, usize::MAX)?;
    }
    // From the last axis backwards: k and m of a, n and k of b.
    let (mut left, mut right) = (a.axes, b.axes);
    let k = left.pop();
    let n = if right.len() > 1 { right.pop() } else { None };
    if let (Some(x), Some(y)) = (k, right.pop()) {
        let what = format!("the last axis of `a` and axis {} of `b`", right.len());
        cx.same(&what, x.extent, y.extent)?;
    }
    let m = left.pop();
    let mut axes = batch_axes(cx, left, right)?;
    axes.extend(m);
    axes.extend(n);
    Ok(vec![Shape { dtype, axes }])
}

/// Axes of stacks that are paired, aligned at the right.
fn batch_axes(cx: &mut MetaCx<'_>, a: Vec<AxisMeta>, b: Vec<AxisMeta>) -> Result<Vec<AxisMeta>> {
    let (mut axes, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let ahead = axes.len() - short.len();
    for (i, other) in short.into_iter().enumerate() {
        let what = format!("axis {} of the stacks of matrices", ahead + i);
        axes[ahead + i] = cx.paired(&what, axes[ahead + i], other)?;
    }
    Ok(axes)
}

fn matmul_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (a, b) = (cx.tensor("a")?, cx.tensor("b")?);
    let (dtype, sizes) = &cx.results[0];
    let axes = usize::from(a.sizes.len() > 1) + usize::from(b.sizes.len() > 1);
    let batch = &sizes[..sizes.len() - axes];
    let sums = Sums::of(&as_row(a), &as_column(b), batch)?;
    Ok(vec![sums.rounded(*dtype, sizes.clone())])
}

/// A vector as a matrix of one row.
fn as_row(x: &View) -> View {
    match x.sizes[..] {
        [k] => x.seen(vec![1, k], vec![0, x.strides[0]], 0),
        _ => x.clone(),
    }
}

/// A vector as a matrix of one column.
fn as_column(x: &View) -> View {
    match x.sizes[..] {
        [k] => x.seen(vec![k, 1], vec![x.strides[0], 0], 0),
        _ => x.clone(),
    }
}

// ---- linear ----

fn linear_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (x, weight, bias) = (cx.tensor("x")?, cx.tensor("weight")?, cx.opt_tensor("bias")?);
    let mut shapes = vec![&x, &weight];
    shapes.extend(&bias);
    let dtype = common_type(cx, &shapes)?;
    need_axes(cx, "x", &x, 1, usize::MAX)?;
    need_axes(cx, "weight", &weight, 1, 2)?;
    let (mut axes, mut right) = (x.axes, weight.axes);
    if let (Some(x), Some(y)) = (axes.pop(), right.pop()) {
        let what = format!("the last axis of `x` and axis {} of `weight`", right.len());
        cx.same(&what, x.extent, y.extent)?;
    }
    if let Some(bias) = bias {
        need_axes(cx, "bias", &bias, right.len(), right.len())?;
        for (out, own) in right.iter_mut().zip(&bias.axes) {
            // A bias of size 1 is the same for all outputs.
            if own.kind == AxisKind::Iteration {
                out.extent = cx.same("axis 0 of `weight` and of `bias`", out.extent, own.extent)?;
            }
        }
    }
    axes.extend(right);
    Ok(vec![Shape { dtype, axes }])
}

fn linear_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (x, weight) = (cx.tensor("x")?, cx.tensor("weight")?);
    let (dtype, sizes) = &cx.results[0];
    let weight = as_row(weight).permuted(&[1, 0]);
    let x = as_row(x);
    let batch = &x.sizes[..x.sizes.len() - 2];
    let mut sums = Sums::of(&x, &weight, batch)?;
    if let Some(bias) = cx.opt_tensor("bias") {
        sums.add_row(bias)?;
    }
    Ok(vec![sums.rounded(*dtype, sizes.clone())])
}

#[cfg(test)]
mod tests;
