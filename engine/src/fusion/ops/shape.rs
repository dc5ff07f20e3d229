//! Operations on axes: inserting, dropping, reordering, repeating, regrouping.

use super::args::Args;
use super::call::Attr;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::draft::Draft;
use super::row::{Layout, OpRow, ParamKind, Primitive, req};
use crate::array::{View, dense_strides_in};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::meta::Shape;
use crate::fusion::{AxisKind, FusionBuilder, Operand};

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "broadcast",
        &[req("x", ParamKind::Tensor), req("flags", ParamKind::Bools).py("is_broadcast_dim")],
        broadcast,
        "x with a new axis of size 1 where a flag is true.",
        "N§2",
    ),
    OpRow::composite(
        "squeeze",
        &[req("x", ParamKind::Tensor), req("flags", ParamKind::Bools)],
        squeeze,
        "x without the broadcast axes where a flag is true.",
        "N§2",
    ),
    OpRow::composite(
        "permute",
        &[req("x", ParamKind::Tensor), req("dims", ParamKind::Ints)],
        permute,
        "Result axis i is axis dims[i] of x.",
        "N§2",
    ),
    OpRow::composite(
        "full",
        &[
            req("shape", ParamKind::Shape),
            req("value", ParamKind::Scalar).py("fill_value"),
            req("dtype", ParamKind::BareDType),
        ],
        full,
        "A tensor of the extents in brackets, filled with value.",
        "N§2",
    ),
    OpRow::composite(
        "index",
        &[req("shape", ParamKind::Shape), req("axis", ParamKind::Int).py("dim")],
        index,
        "A tensor of the extents in brackets whose i64 elements are their positions along an axis.",
        "the index of a loop; NumPy indices",
    ),
    OpRow::composite(
        "size",
        &[req("x", ParamKind::Tensor), req("axis", ParamKind::Int).py("dim")],
        size,
        "The extent of an axis of x: an i64 scalar.",
        "N§2",
    ),
    OpRow::primitive(
        "expand",
        &[req("x", ParamKind::Tensor), req("shape", ParamKind::Shape)],
        expand,
        Primitive { meta: expand_meta, layout: Layout::Custom(expand_layout), eval: expand_eval, decompose: None },
        "x with its axes of size 1 repeated up to the extents in brackets; -1 keeps an axis.",
        "N§2, PyTorch expand",
    ),
    OpRow::primitive(
        "stride_order",
        &[req("x", ParamKind::Tensor), req("order", ParamKind::Ints).py("stride_order")],
        stride_order,
        Primitive {
            meta: same_meta,
            layout: Layout::Custom(stride_order_layout),
            eval: stride_order_eval,
            decompose: None,
        },
        "A copy of x laid out with axis i at rank order[i] among the strides, 0 the smallest.",
        "N§2",
    ),
];

fn broadcast(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.broadcast(args.src("x")?, args.bools("flags"))?])
}

fn squeeze(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.squeeze(args.src("x")?, args.bools("flags"))?])
}

fn permute(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.permute(args.src("x")?, args.ints("dims"))?])
}

fn full(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dtype = args.dtype("dtype").ok_or_else(|| Diagnostic::bug("full: the data type was checked"))?;
    Ok(vec![b.full(args.list("shape"), args.src("value")?, dtype)?])
}

fn index(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.index(args.list("shape"), args.int("axis").unwrap_or(0))?])
}

fn size(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.size(args.src("x")?, args.int("axis").unwrap_or(0))?])
}

// ---- expand ----

fn expand(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("expand", args.src("x")?)?;
    let mut shape = args.list("shape").to_vec();
    let rank = b.rank(x);
    if shape.len() != rank {
        let message = format!("expand: {} extents for an operand of rank {rank}", shape.len());
        return Err(Diagnostic::user(code::RANK, message).note("insert axes with broadcast first"));
    }
    for (axis, extent) in shape.iter_mut().enumerate() {
        if b.known(*extent).is_some_and(|n| n.as_i64() == -1) {
            *extent = b.size(x, axis as i64)?.into();
        }
    }
    b.push_draft(Draft::new(args).operands("shape", shape))
}

fn expand_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut x = cx.tensor("x")?;
    for (position, (axis, extent)) in x.axes.iter_mut().zip(cx.extents("shape")).enumerate() {
        let what = format!("axis {position} of the operand and of the result");
        *axis = match axis.kind {
            AxisKind::Broadcast => cx.axis(extent),
            AxisKind::Iteration => {
                cx.same(&what, axis.extent, extent)?;
                *axis
            }
            AxisKind::Symbolic => cx.axis(extent),
        };
    }
    Ok(vec![x])
}

fn expand_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("x")?;
    let repeat = |axis: usize| if sizes[axis] == cx.results[0][axis] { strides[axis] } else { 0 };
    Ok(vec![(0..sizes.len()).map(repeat).collect()])
}

fn expand_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    Ok(vec![cx.tensor("x")?.expanded(&cx.results[0].1)])
}

// ---- stride_order ----

fn stride_order(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("stride_order", args.src("x")?)?;
    let rank = b.rank(x);
    let given = args.ints("order");
    let order: Result<Vec<i64>> =
        given.iter().map(|&axis| normal_axis("stride_order", axis, rank).map(|axis| axis as i64)).collect();
    let order = order?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank as i64) {
        let message = format!("stride_order: {given:?} does not name each of the {rank} ranks once");
        return Err(Diagnostic::user(code::AXIS, message));
    }
    b.push_draft(Draft::new(args).attr("order", Attr::Ints(order)))
}

fn same_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    Ok(vec![cx.tensor("x")?])
}

/// Axes outermost first: the axis of the largest number first.
fn memory_order(order: &[i64]) -> Vec<usize> {
    let mut axes: Vec<usize> = (0..order.len()).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(order[axis]));
    axes
}

fn stride_order_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    Ok(vec![dense_strides_in(&cx.results[0], &memory_order(cx.call.ints("order")))])
}

fn stride_order_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    Ok(vec![cx.tensor("x")?.to_order(&memory_order(cx.call.ints("order")))])
}
