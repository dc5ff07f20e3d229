//! Operations on axes: inserting, dropping, reordering, repeating, regrouping.

use super::args::{Args, OpArg};
use super::call::Attr;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::draft::CallDraft;
use super::extents;
use super::movement::{AxisMap, Form, Movement};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, flag, opt, req};
use crate::array::{View, clone_strides, dense_strides_in};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::meta::Shape;
use crate::fusion::{AxisKind, FusionBuilder, InputLayout, OpKind, Operand, Src, TensorDef, TensorId};
use crate::num::{DType, TernaryOp};
use crate::util::order_by_key;

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "broadcast",
        &[req("x", OpParamKind::Tensor).py("arg"), req("flags", OpParamKind::Bools).py("is_broadcast_dim")],
        broadcast,
        "x with a new axis of size 1 where a flag is true.",
        "N§2",
    ),
    OpRow::composite(
        "squeeze",
        &[
            req("x", OpParamKind::Tensor).py("arg"),
            opt("dims", OpParamKind::Ints),
            flag("squeeze_expanded"),
            opt("flags", OpParamKind::Bools),
        ],
        squeeze,
        "x without the broadcast axes in dims, or where a flag is true; with squeeze_expanded also without axes that \
         expand repeats.",
        "N§2",
    ),
    OpRow::composite(
        "permute",
        &[req("x", OpParamKind::Tensor).py("arg"), req("dims", OpParamKind::Ints)],
        permute,
        "Result axis i is axis dims[i] of x.",
        "N§2",
    ),
    OpRow::composite(
        "full",
        &[
            req("shape", OpParamKind::Shape),
            req("value", OpParamKind::Scalar).py("fill_value"),
            req("dtype", OpParamKind::BareDType),
        ],
        full,
        "A tensor of the extents in brackets, filled with value.",
        "N§2",
    ),
    OpRow::composite(
        "index",
        &[req("shape", OpParamKind::Shape), req("axis", OpParamKind::Int).py("dim")],
        index,
        "A tensor of the extents in brackets whose i64 elements are their positions along an axis.",
        "the index of a loop; NumPy indices",
    ),
    OpRow::composite(
        "size",
        &[req("x", OpParamKind::Tensor).py("arg"), req("axis", OpParamKind::Int).py("dim")],
        size,
        "The extent of an axis of x: an i64 scalar.",
        "N§2",
    ),
    OpRow::primitive(
        "expand",
        &[req("x", OpParamKind::Tensor).py("arg"), req("shape", OpParamKind::Shape)],
        expand,
        Primitive {
            meta: expand_meta,
            layout: ResultLayout::Custom(expand_layout),
            eval: expand_eval,
            decompose: Some(expand_steps),
            movement: Movement::NEW.axes(AxisMap::Repeated).view().picks("x").form(Form::Expand),
        },
        "x with its axes of size 1 repeated up to the extents in brackets; -1 keeps an axis.",
        "N§2, PyTorch expand",
    ),
    OpRow::primitive(
        "stride_order",
        &[req("x", OpParamKind::Tensor).py("arg"), req("order", OpParamKind::Ints).py("stride_order")],
        stride_order,
        Primitive {
            meta: same_meta,
            layout: ResultLayout::Custom(stride_order_layout),
            eval: stride_order_eval,
            // What it says of memory is told by the layout of the result.
            decompose: Some(copy),
            movement: Movement::SAME.view().order("order"),
        },
        "A copy of x laid out with axis i at rank order[i] among the strides, 0 the smallest; as it is without ranks.",
        "N§2",
    ),
    OpRow::composite(
        "broadcast_in_dim",
        &[
            req("x", OpParamKind::Tensor).py("arg"),
            req("shape", OpParamKind::Shape),
            req("dims", OpParamKind::Ints).py("broadcast_dims"),
        ],
        broadcast_in_dim,
        "x expanded to the extents in brackets, its axes in their order at the positions in dims; -1 keeps an axis.",
        "N§2",
    ),
    OpRow::primitive(
        "segment_set",
        &[req("x", OpParamKind::Tensor)],
        segment_set,
        Primitive {
            meta: same_meta,
            layout: ResultLayout::Custom(segment_set_layout),
            eval: segment_set_eval,
            decompose: Some(copy),
            movement: Movement::SAME.view().cut(),
        },
        "A copy of x at which the fusion is cut in two.",
        "N§2",
    ),
];

fn broadcast(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.broadcast(args.src("x")?, args.bools("flags"))?])
}

fn squeeze(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("squeeze", args.src("x")?)?;
    let rank = b.rank(x);
    let mut flags = vec![false; rank];
    match (args.has("dims"), args.has("flags")) {
        (false, true) => flags = args.bools("flags").to_vec(),
        (true, false) => {
            for &dim in args.ints("dims") {
                flags[normal_axis("squeeze", dim, rank)?] = true;
            }
        }
        _ => {
            let message = "squeeze: needs either `dims(...)` or `flags(...)`";
            return Err(Diagnostic::user(code::ATTRIBUTE, message));
        }
    }
    let mut result = Operand::Tensor(x);
    if args.flag("squeeze_expanded") && flags.len() == rank {
        // From the last axis on, so that positions before it stay.
        for axis in (0..rank).rev() {
            if flags[axis] && is_expanded(b, x, axis) {
                let index = Src::from(0);
                let axis_arg = OpArg::Int(axis as i64);
                result = extents::call(b, "select", |args| {
                    args.value("x", result).value("index", index).with("dim", axis_arg)
                })?;
                flags.remove(axis);
            }
        }
    }
    let done = result != Operand::Tensor(x) && !flags.contains(&true);
    Ok(vec![if done { result } else { b.squeeze(result, &flags)? }])
}

/// Whether all elements along an axis of more than one are the same element
/// of an input or of an operand of `expand`.
fn is_expanded(b: &FusionBuilder, x: TensorId, axis: usize) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    let mut open = vec![(x, axis)];
    while let Some((x, axis)) = open.pop() {
        let tensor = &b.tensors[x];
        if tensor.axes[axis].kind == AxisKind::Broadcast || !seen.insert((x, axis)) {
            continue;
        }
        let TensorDef::Op(op) = tensor.def else {
            let place = |layout: &InputLayout| layout.order.iter().position(|&other| other as usize == axis);
            match tensor.layout.as_ref().and_then(|layout| layout.contiguity[place(layout)?]) {
                None if tensor.layout.is_some() => continue,
                _ => return false,
            }
        };
        let op = &b.ops[op];
        let operands = op.inputs.iter().filter_map(|operand| match operand {
            Operand::Tensor(tensor) => Some(*tensor),
            Operand::Scalar(_) => None,
        });
        match &op.kind {
            OpKind::Call(call) if call.movement().axes == AxisMap::Repeated => {
                // It repeats what is known to be of size 1. An undecided axis may
                // turn out to be as long as the result, with elements of its own.
                open.extend(operands.map(|operand| (operand, axis)));
            }
            OpKind::Permute { perm } => open.extend(operands.map(|operand| (operand, perm[axis] as usize))),
            OpKind::Broadcast { flags } => {
                let old = flags[..axis].iter().filter(|new| !**new).count();
                open.extend(operands.map(|operand| (operand, old)));
            }
            OpKind::Squeeze { flags } => {
                let old = (0..flags.len()).filter(|&i| !flags[i]).nth(axis).unwrap_or(axis);
                open.extend(operands.map(|operand| (operand, old)));
            }
            kind if kind.is_elementwise() => open.extend(operands.map(|operand| (operand, axis))),
            _ => return false,
        }
    }
    b.tensors[x].axes[axis].kind != AxisKind::Broadcast
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
    let mut x = b.tensor_operand("expand", args.src("x")?)?;
    let mut shape = args.list("shape").to_vec();
    let rank = b.rank(x);
    if shape.len() < rank {
        let message = format!("expand: {} extents for an operand of rank {rank}", shape.len());
        return Err(Diagnostic::user(code::RANK, message));
    }
    // Extents without an axis are those of new axes before the others.
    let new = shape.len() - rank;
    if new > 0 {
        let flags: Vec<bool> = (0..shape.len()).map(|axis| axis < new).collect();
        let spread = b.broadcast(x, &flags)?;
        x = b.tensor_operand("expand", spread.into())?;
    }
    for (axis, extent) in shape.iter_mut().enumerate() {
        if b.known(*extent).is_some_and(|n| n.as_i64() == -1) {
            *extent = b.size(x, axis as i64)?.into();
        }
    }
    b.push_draft(CallDraft::new(args).operand("x", x).operands("shape", shape))
}

/// `where(true, x, x)` over the extents.
fn expand_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let always = b.full(args.list("shape"), true, DType::Bool)?;
    let x = Operand::Tensor(b.tensor_operand("expand", args.src("x")?)?);
    // Moved as they are: small floats are not widened.
    let moved = b.push_all(OpKind::Ternary(TernaryOp::Where), vec![always, x, x])?;
    Ok(moved.into_iter().map(Operand::Tensor).collect())
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

// ---- broadcast_in_dim ----

fn broadcast_in_dim(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "broadcast_in_dim";
    let x = b.tensor_operand(name, args.src("x")?)?;
    let (rank, dims, shape) = (b.rank(x), args.ints("dims"), args.list("shape"));
    if dims.len() != rank {
        let message = format!("{name}: {} positions for an operand of rank {rank}", dims.len());
        return Err(Diagnostic::user(code::RANK, message));
    }
    let mut flags = vec![true; shape.len()];
    for &dim in dims {
        let position = normal_axis(name, dim, shape.len())?;
        if !flags[position] {
            return Err(Diagnostic::user(code::AXIS, format!("{name}: axis {dim} is named twice")));
        }
        flags[position] = false;
    }
    let spread = if flags.contains(&true) { b.broadcast(x, &flags)? } else { Operand::Tensor(x) };
    let own = b.tensor_operand(name, spread.into()).map(|spread| extents::extents(b, spread))?;
    let mut changes = false;
    for (position, (&src, own)) in shape.iter().zip(own).enumerate() {
        let extent = extents::integer(b, name, &format!("extent {position}"), src)?;
        changes |= extent != own && extents::known(b, extent) != Some(-1);
    }
    if !changes {
        return Ok(vec![spread]);
    }
    let shape = OpArg::Values(shape.to_vec());
    Ok(vec![extents::call(b, "expand", |args| args.value("x", spread).with("shape", shape))?])
}

// ---- segment_set ----

fn segment_set(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

fn segment_set_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("x")?;
    Ok(vec![clone_strides(sizes, strides)])
}

fn segment_set_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let meta = x.meta();
    Ok(vec![x.laid(&clone_strides(&meta.sizes, &meta.strides))])
}

/// To a back end, a cut is a copy.
fn copy(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.set(args.src("x")?)?])
}

// ---- stride_order ----

fn stride_order(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("stride_order", args.src("x")?)?;
    let rank = b.rank(x);
    let given = args.ints("order");
    if given.is_empty() && rank > 0 {
        // No order is asked for.
        return Ok(vec![b.set(x)?]);
    }
    let order: Result<Vec<i64>> =
        given.iter().map(|&axis| normal_axis("stride_order", axis, rank).map(|axis| axis as i64)).collect();
    let order = order?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank as i64) {
        let message = format!("stride_order: {given:?} does not name each of the {rank} ranks once");
        return Err(Diagnostic::user(code::AXIS, message));
    }
    b.push_draft(CallDraft::new(args).attr("order", Attr::Ints(order)))
}

fn same_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    Ok(vec![cx.tensor("x")?])
}

/// Axes outermost first: the axis of the largest number first.
fn memory_order(order: &[i64]) -> Vec<usize> {
    order_by_key(order.len(), |axis| std::cmp::Reverse(order[axis]))
}

fn stride_order_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    Ok(vec![dense_strides_in(&cx.results[0], &memory_order(cx.call.ints("order")))])
}

fn stride_order_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    Ok(vec![cx.tensor("x")?.to_order(&memory_order(cx.call.ints("order")))])
}

#[cfg(test)]
mod tests;
