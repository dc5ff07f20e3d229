//! Operations that cut, extend, join and mask tensors along their axes.

use super::args::Args;
use super::call::Attr;
use super::cx::{EvalCx, LayoutCx, LayoutOperand, MetaCx};
use super::draft::CallDraft;
use super::extents;
use super::movement::{AxisMap, Form, Movement, ViewPlace};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, flag, int, opt, req};
use crate::array::{View, clone_strides, fold_index, format_strides};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::infer::check_number;
use crate::fusion::meta::{ExtentValue, Shape, SizeMath};
use crate::fusion::scalars::extent;
use crate::fusion::{AxisKind, FusionBuilder, OpKind, Operand, Src, TensorDef, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp, Value, eval};

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "slice",
        &[
            req("x", OpParamKind::Tensor).py("arg"),
            req("starts", OpParamKind::Scalars).py("start_indices"),
            req("ends", OpParamKind::Scalars).py("end_indices"),
            opt("strides", OpParamKind::Ints),
            flag("manual_normalization"),
        ],
        slice,
        Primitive {
            meta: slice_meta,
            layout: ResultLayout::Custom(slice_layout),
            eval: slice_eval,
            decompose: None,
            movement: Movement::NEW
                .axes(AxisMap::Between(["starts", "ends"]))
                .placed(slice_place)
                .picks("x")
                .form(Form::Slice),
        },
        "The elements of x from starts[i] up to but not including ends[i] along axis i; negative positions count from \
         the end and all are clamped to the axis, unless manual_normalization says that they lie in it.",
        "N§2, numpy basic slicing",
    ),
    OpRow::primitive(
        "pad",
        &[
            req("x", OpParamKind::Tensor).py("arg"),
            req("widths", OpParamKind::Scalars).py("pad_widths"),
            opt("value", OpParamKind::Scalar),
        ],
        pad,
        Primitive {
            meta: pad_meta,
            layout: ResultLayout::Custom(pad_layout),
            eval: pad_eval,
            decompose: None,
            movement: Movement::NEW.axes(AxisMap::Widened("widths")).form(Form::Pad),
        },
        "x with value (0) before and after it: widths are pairs, the innermost axis first; negative ones cut.",
        "N§2, PyTorch constant_pad_nd",
    ),
    OpRow::primitive(
        "cat",
        &[
            req("tensors", OpParamKind::Tensors),
            int("dim", 0),
            flag("manual_padding"),
            opt("pads", OpParamKind::Scalars),
        ],
        cat,
        Primitive {
            meta: cat_meta,
            layout: ResultLayout::Custom(cat_layout),
            eval: cat_eval,
            decompose: None,
            movement: Movement::NEW.axes(AxisMap::Except("dim")).form(Form::Cat),
        },
        "The tensors one after another along an axis; with manual_padding they are results of pad that have their \
         place in the result; pads say how much of \
         the result stands before and after each tensor, and are checked.",
        "N§2, PyTorch cat",
    ),
    OpRow::primitive(
        "triu",
        &[req("x", OpParamKind::Tensor).py("arg"), int("diagonal", 0)],
        triangle,
        Primitive {
            meta: triangle_meta,
            layout: ResultLayout::Dense,
            eval: triu_eval,
            decompose: Some(triu_steps),
            movement: Movement::SAME,
        },
        "x with 0 below a diagonal of its last two axes: kept where column - row >= diagonal.",
        "N§2, PyTorch triu",
    ),
    OpRow::primitive(
        "tril",
        &[req("x", OpParamKind::Tensor).py("arg"), int("diagonal", 0)],
        triangle,
        Primitive {
            meta: triangle_meta,
            layout: ResultLayout::Dense,
            eval: tril_eval,
            decompose: Some(tril_steps),
            movement: Movement::SAME,
        },
        "x with 0 above a diagonal of its last two axes: kept where column - row <= diagonal.",
        "PyTorch tril",
    ),
];

// ---- slice ----

fn slice(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("slice", args.src("x")?)?;
    let sizes = extents::extents(b, x);
    let rank = sizes.len();
    let (starts, ends, strides) = (args.list("starts"), args.list("ends"), args.ints("strides"));
    if starts.len() != rank || ends.len() != rank || (args.has("strides") && strides.len() != rank) {
        let (starts, ends) = (starts.len(), ends.len());
        let message = format!("slice: {starts} starts and {ends} ends for an operand of rank {rank}");
        return Err(Diagnostic::user(code::RANK, message).note("give one of each for every axis"));
    }
    if let Some(axis) = strides.iter().position(|&stride| stride != 1) {
        let message = format!("slice: axis {axis} has the stride {}, only 1 is possible", strides[axis]);
        return Err(Diagnostic::user(code::VALUE, message).note("use index_select with an iota of that step"));
    }
    let manual = args.flag("manual_normalization");
    let (mut from, mut to) = (Vec::with_capacity(rank), Vec::with_capacity(rank));
    for axis in 0..rank {
        let start = extents::integer(b, "slice", &format!("start {axis}"), starts[axis])?;
        let end = extents::integer(b, "slice", &format!("end {axis}"), ends[axis])?;
        let (start, end) = if manual {
            (start, at_most(b, start, end, sizes[axis]))
        } else {
            let start = clamped(b, start, sizes[axis]);
            let end = clamped(b, end, sizes[axis]);
            // An end that was clamped is not negative.
            let first = extents::known(b, start) == Some(0);
            (start, if first { end } else { extents::binary(b, BinaryOp::Maximum, end, start) })
        };
        from.push(start);
        to.push(end);
    }
    let draft =
        CallDraft::new(args).operands("starts", extents::operands(&from)).operands("ends", extents::operands(&to));
    b.push_draft(draft.attr("strides", Attr::None).attr("manual_normalization", Attr::Bool(true)))
}

/// A given end; a known one after a start at 0 does not pass the axis.
fn at_most(b: &mut FusionBuilder, start: ExtentValue, end: ExtentValue, size: ExtentValue) -> ExtentValue {
    match (extents::known(b, start), extents::known(b, end)) {
        (Some(0), Some(n)) if n > 0 => extents::binary(b, BinaryOp::Minimum, size, end),
        _ => end,
    }
}

/// A position from the start of an axis, `min(max(p < 0 ? p + size : p, 0), size)`.
fn clamped(b: &mut FusionBuilder, position: ExtentValue, size: ExtentValue) -> ExtentValue {
    let zero = extents::constant(b, 0);
    match extents::known(b, position) {
        Some(0) => return zero,
        Some(n) if n > 0 => return extents::binary(b, BinaryOp::Minimum, size, position),
        _ if position == size => return size,
        _ => {}
    }
    // The addition cannot overflow: it is of 0 unless the position is negative.
    let negative = extents::binary(b, BinaryOp::Lt, position, zero);
    let wrap = b.scalars.select(negative, size, zero);
    let wrapped = extents::binary(b, BinaryOp::Add, position, wrap);
    let low = extents::binary(b, BinaryOp::Maximum, wrapped, zero);
    extents::binary(b, BinaryOp::Minimum, size, low)
}

fn slice_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut x = cx.tensor("x")?;
    let bounds: Vec<_> = cx.extents("starts").into_iter().zip(cx.extents("ends")).collect();
    for (position, (axis, (start, end))) in x.axes.iter_mut().zip(bounds).enumerate() {
        let size = cx.math.known(axis.extent);
        let (first, last) = (cx.math.known(start), cx.math.known(end));
        let ordered = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a <= b);
        // A slice of nothing may lie anywhere behind the start.
        let inside = if first.is_some() && first == last { Some(true) } else { ordered(last, size) };
        let holds = [ordered(Some(0), first), ordered(first, last), inside];
        let holds = if holds.contains(&Some(false)) { Some(false) } else { None };
        let shown = |n: Option<i64>| n.map_or("?".to_string(), |n| n.to_string());
        cx.require(holds, code::VALUE, || {
            let (first, last, size) = (shown(first), shown(last), shown(size));
            format!("axis {position} from {first} to {last} does not lie in its {size} elements")
        })?;
        if first != Some(0) || end != axis.extent {
            let extent = if start == end { cx.constant(0) } else { cx.sub(end, start) };
            *axis = cx.axis(extent);
        }
    }
    Ok(vec![x])
}

fn slice_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    Ok(vec![cx.tensor("x")?.1.to_vec()])
}

fn slice_place(cx: &LayoutCx<'_>) -> Result<Option<ViewPlace>> {
    let strides = cx.tensor("x")?.1.to_vec();
    let offset = cx.ints("starts").iter().zip(&strides).map(|(start, stride)| start * stride).sum();
    Ok(Some(ViewPlace { strides, offset }))
}

fn slice_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let sizes = cx.results[0].1.clone();
    let starts = cx.ints("starts");
    let place = |(&start, &stride): (&i64, &usize)| usize::try_from(start).unwrap_or(0).saturating_mul(stride);
    // Nothing is read where there is no element.
    let offset = if sizes.contains(&0) { 0 } else { starts.iter().zip(&x.strides).map(place).sum() };
    Ok(vec![x.seen(sizes, x.strides.clone(), offset)])
}

// ---- pad ----

fn pad(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("pad", args.src("x")?)?;
    let rank = b.rank(x);
    let given = args.list("widths");
    if !given.len().is_multiple_of(2) || given.len() > 2 * rank {
        let message = format!("pad: {} widths for an operand of rank {rank}", given.len());
        return Err(Diagnostic::user(code::RANK, message).note("give at most one pair for each axis, innermost first"));
    }
    let mut widths = Vec::with_capacity(2 * rank);
    for (position, &width) in given.iter().enumerate() {
        widths.push(extents::integer(b, "pad", &format!("width {position}"), width)?);
    }
    let zero = extents::constant(b, 0);
    widths.resize(2 * rank, zero);
    let draft = CallDraft::new(args).operands("widths", extents::operands(&widths));
    let dtype = b.dtype(Operand::Tensor(x));
    let value = args.opt("value").map(|value| constant_of(b, "pad", value, dtype)).transpose()?;
    b.push_draft(draft.operands("value", value.into_iter().collect()))
}

/// A scalar operand in the type of a tensor, which must be of the same class.
pub(super) fn constant_of(b: &mut FusionBuilder, name: &str, value: Src, dtype: DType) -> Result<Src> {
    if let Src::Number(number) = value {
        check_number(name, number, dtype)?;
    }
    let operand = b.scalar_operand(name, value)?;
    let own = b.scalars.dtype(operand);
    if !matches!(value, Src::Number(_)) && own.class() != dtype.class() {
        let message = format!("{name}: the value is a {own}, the operand a {dtype}");
        return Err(Diagnostic::user(code::DTYPE, message).note("cast the value to the type of the operand"));
    }
    Ok(Src::Scalar(b.scalars.cast(operand, dtype)))
}

/// The widths before and after each axis, from the list that starts innermost.
fn pairs<T: Copy>(widths: &[T]) -> Vec<(T, T)> {
    widths.chunks_exact(2).rev().map(|pair| (pair[0], pair[1])).collect()
}

fn pad_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut x = cx.tensor("x")?;
    for (axis, (before, after)) in x.axes.iter_mut().zip(pairs(&cx.extents("widths"))) {
        if cx.math.known(before) == Some(0) && cx.math.known(after) == Some(0) {
            continue;
        }
        let width = cx.sized(BinaryOp::Add, before, after)?;
        let extent = cx.sized(BinaryOp::Add, axis.extent, width)?;
        *axis = cx.axis(extent);
    }
    Ok(vec![x])
}

fn pad_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("x")?;
    Ok(vec![pad_strides(&cx.results[0], sizes, strides, &cx.ints("widths"))])
}

/// Only cutting copies a view, which keeps the order of axes; else the result
/// is new, in the memory format of the operand.
fn pad_strides(to: &[i64], sizes: &[i64], strides: &[i64], widths: &[i64]) -> Vec<i64> {
    if widths.iter().all(|&width| width <= 0) {
        return clone_strides(to, strides);
    }
    format_strides(to, &[(sizes, strides)])
}

fn pad_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let (dtype, sizes) = cx.results[0].clone();
    let widths = cx.ints("widths");
    let before: Vec<i64> = pairs(&widths).into_iter().map(|(before, _)| before).collect();
    let fill = cx.scalar("value").unwrap_or_else(|| zero(dtype));
    let term = |axis: usize, at: usize| {
        let from = usize::try_from((at as i64).checked_sub(before[axis])?).ok()?;
        (from < x.sizes[axis]).then(|| from * x.strides[axis])
    };
    let dense = x.gathered(sizes.clone(), fill, |i| fold_index(i, &sizes, term));
    let meta = x.meta();
    let to = dense.meta().sizes;
    Ok(vec![dense.laid(&pad_strides(&to, &meta.sizes, &meta.strides, &widths))])
}

/// The 0 of a type.
pub(super) fn zero(dtype: DType) -> Value {
    eval::cast(DType::Bool, dtype, Value::Bool(false))
}

// ---- cat ----

fn cat(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let mut tensors = Vec::new();
    for &src in args.list("tensors") {
        tensors.push(b.tensor_operand("cat", src)?);
    }
    let rank = tensors.first().map_or(0, |&first| b.rank(first));
    let dim = normal_axis("cat", args.int("dim").unwrap_or(0), rank)?;
    let mut pads = Vec::new();
    for (position, &pad) in args.list("pads").iter().enumerate() {
        pads.push(extents::integer(b, "cat", &format!("pad {position}"), pad)?);
    }
    if args.flag("manual_padding") {
        if args.has("pads") {
            let message = "cat: takes either `manual_padding` or `pads(...)`";
            return Err(Diagnostic::user(code::ATTRIBUTE, message));
        }
        for (position, tensor) in tensors.iter_mut().enumerate() {
            let own;
            (*tensor, own) = unpadded(b, position, *tensor, dim)?;
            pads.extend(own);
        }
    } else if args.has("pads") && pads.len() != 2 * tensors.len() {
        let message = format!("cat: {} pads for {} tensors", pads.len(), tensors.len());
        return Err(Diagnostic::user(code::ARITY, message).note("give two for each tensor: before and after it"));
    }
    let shapes: Vec<Shape> = tensors.iter().map(|&tensor| b.shape_of(tensor)).collect();
    if in_place(&mut b.scalars, &shapes, dim, &pads).iter().all(|holds| *holds == Some(true)) {
        // Nothing is left to check when sizes are known.
        pads.clear();
    }
    let sources = tensors.into_iter().map(Src::Tensor).collect();
    let draft = CallDraft::new(args).operands("tensors", sources).operands("pads", extents::operands(&pads));
    b.push_draft(draft.attr("dim", Attr::Int(dim as i64)).attr("manual_padding", Attr::Bool(false)))
}

/// What a tensor that was padded for its place in the result was before, and
/// its pads along the axis.
fn unpadded(
    b: &mut FusionBuilder,
    position: usize,
    tensor: TensorId,
    dim: usize,
) -> Result<(TensorId, [ExtentValue; 2])> {
    let refused = |reason: &str| {
        let message = format!("cat: operand {position} {reason}");
        Diagnostic::user(code::VALUE, message).note("without manual_padding, operands are joined as they are")
    };
    let TensorDef::Op(op) = b.tensors[tensor].def else { return Err(refused("is no result of pad")) };
    let op = &b.ops[op];
    let OpKind::Call(call) = &op.kind else { return Err(refused("is no result of pad")) };
    if !matches!(call.movement().axes, AxisMap::Widened(_)) {
        return Err(refused("is no result of pad"));
    }
    let scalar = |operand: &Operand| match *operand {
        Operand::Scalar(scalar) => Some(extent(scalar)),
        Operand::Tensor(_) => None,
    };
    let widths: Vec<ExtentValue> = op.inputs[call.operands("widths")].iter().filter_map(scalar).collect();
    let zero = |width: ExtentValue| extents::known(b, width) == Some(0);
    let negative = |width: ExtentValue| extents::known(b, width).is_some_and(|width| width < 0);
    let mut own = None;
    for (axis, (before, after)) in pairs(&widths).into_iter().enumerate() {
        if axis != dim && !(zero(before) && zero(after)) {
            return Err(refused(&format!("is padded along axis {axis}, not only along axis {dim}")));
        }
        if axis == dim {
            if negative(before) || negative(after) {
                return Err(refused("is cut, not padded"));
            }
            own = Some([before, after]);
        }
    }
    let x = match op.inputs[call.operands("x")] {
        [Operand::Tensor(x)] => x,
        _ => return Err(Diagnostic::bug("pad has one tensor operand")),
    };
    match own {
        Some(own) => Ok((x, own)),
        None => Err(refused(&format!("has no axis {dim}"))),
    }
}

/// For each tensor whether its pads are as long as what stands before and after
/// it along the axis; open while a length is.
fn in_place(math: &mut dyn SizeMath, tensors: &[Shape], dim: usize, pads: &[ExtentValue]) -> Vec<Option<bool>> {
    if pads.is_empty() {
        return Vec::new();
    }
    let sizes: Option<Vec<ExtentValue>> = tensors.iter().map(|x| x.axes.get(dim).map(|axis| axis.extent)).collect();
    let Some(sizes) = sizes else { return vec![None; tensors.len()] };
    let mut sums = |sizes: &mut dyn Iterator<Item = ExtentValue>| {
        let mut sum = math.constant(0);
        let mut before = Vec::with_capacity(tensors.len());
        for size in sizes {
            before.push(sum);
            sum = math.binary(BinaryOp::Add, sum, size);
        }
        before
    };
    let before = sums(&mut sizes.iter().copied());
    let mut after = sums(&mut sizes.iter().rev().copied());
    after.reverse();
    let equal = |a: ExtentValue, b: ExtentValue| match (math.known(a), math.known(b)) {
        (Some(a), Some(b)) => Some(a == b),
        _ => (a == b).then_some(true),
    };
    let holds = |((pads, before), after): ((&[ExtentValue], ExtentValue), ExtentValue)| match (
        equal(pads[0], before),
        equal(pads[1], after),
    ) {
        (Some(true), Some(true)) => Some(true),
        (Some(false), _) | (_, Some(false)) => Some(false),
        _ => None,
    };
    pads.chunks_exact(2).zip(before).zip(after).map(holds).collect()
}

fn cat_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let tensors = cx.tensors("tensors");
    let dim = cx.call.axis("dim");
    let Some(mut result) = tensors.first().cloned() else {
        return Err(Diagnostic::bug("cat has operands"));
    };
    for (position, tensor) in tensors.iter().enumerate().skip(1) {
        if tensor.dtype != result.dtype {
            let message = format!("cat: operand {position} is {}, operand 0 is {}", tensor.dtype, result.dtype);
            return Err(Diagnostic::user(code::DTYPE, message).note("cast one of them"));
        }
        if tensor.axes.len() != result.axes.len() {
            let (a, b) = (result.axes.len(), tensor.axes.len());
            let message = format!("cat: operand {position} has rank {b}, operand 0 rank {a}");
            return Err(Diagnostic::user(code::RANK, message));
        }
        for (axis, other) in tensor.axes.iter().enumerate() {
            let own = result.axes[axis];
            if axis == dim {
                result.axes[axis].extent = cx.sized(BinaryOp::Add, own.extent, other.extent)?;
                continue;
            }
            let what = format!("axis {axis} of operands 0 and {position}");
            // Undecided only where every operand is.
            let kind = match (own.kind, other.kind) {
                (AxisKind::Iteration, _) | (_, AxisKind::Iteration) => AxisKind::Iteration,
                (AxisKind::Symbolic, _) | (_, AxisKind::Symbolic) => AxisKind::Symbolic,
                _ => AxisKind::Broadcast,
            };
            let extent = cx.same(&what, own.extent, other.extent)?;
            result.axes[axis] = crate::fusion::meta::AxisMeta { extent, kind };
        }
    }
    if tensors.len() > 1 {
        result.axes[dim] = cx.axis(result.axes[dim].extent);
    }
    let pads = cx.extents("pads");
    for (position, holds) in in_place(cx.math, &tensors, dim, &pads).into_iter().enumerate() {
        cx.require(holds, code::VALUE, || {
            let shown = |pad: ExtentValue| cx.math.known(pad).map_or("?".to_string(), |pad| pad.to_string());
            let (before, after) = (shown(pads[2 * position]), shown(pads[2 * position + 1]));
            format!("operand {position} has the pads {before} and {after}, which are not as long as what stands there")
        })?;
    }
    Ok(vec![result])
}

fn cat_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let operands: Vec<_> = cx
        .operands
        .iter()
        .filter_map(|operand| match operand {
            LayoutOperand::Tensor(sizes, strides) => Some((&sizes[..], &strides[..])),
            LayoutOperand::Scalar(_) => None,
        })
        .collect();
    Ok(vec![format_strides(&cx.results[0], &operands)])
}

fn cat_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let tensors = cx.tensors("tensors");
    let dim = cx.call.axis("dim");
    let sizes = cx.results[0].1.clone();
    // Where each operand ends along the axis.
    let ends: Vec<usize> = tensors
        .iter()
        .scan(0, |end, tensor| {
            *end += tensor.sizes[dim];
            Some(*end)
        })
        .collect();
    let inner: usize = sizes[dim + 1..].iter().product();
    let pick = |i: usize| {
        let along = i / inner % sizes[dim];
        let part = ends.partition_point(|&end| end <= along);
        let start = if part == 0 { 0 } else { ends[part - 1] };
        let strides = &tensors[part].strides;
        let term = |axis: usize, at: usize| Some(strides[axis] * if axis == dim { at - start } else { at });
        (part, fold_index(i, &sizes, term).unwrap_or(0))
    };
    let dense = View::picked(&tensors, sizes.clone(), pick)?;
    let metas: Vec<_> = tensors.iter().map(|tensor| tensor.meta()).collect();
    let layouts: Vec<_> = metas.iter().map(|meta| (&meta.sizes[..], &meta.strides[..])).collect();
    Ok(vec![dense.laid(&format_strides(&dense.meta().sizes, &layouts))])
}

// ---- triu, tril ----

fn triangle(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

fn triangle_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    if x.axes.len() < 2 {
        let message = format!("{}: an operand of rank {}, at least 2 axes are needed", cx.name(), x.axes.len());
        return Err(Diagnostic::user(code::RANK, message));
    }
    Ok(vec![x])
}

fn triu_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    masked(cx, |distance, diagonal| distance >= diagonal)
}

fn tril_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    masked(cx, |distance, diagonal| distance <= diagonal)
}

fn triu_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    mask_steps(b, args, BinaryOp::Ge)
}

fn tril_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    mask_steps(b, args, BinaryOp::Le)
}

/// `where(keep(column - row, diagonal), x, 0)`.
fn mask_steps(b: &mut FusionBuilder, args: &Args, keep: BinaryOp) -> Result<Vec<Operand>> {
    let x = b.tensor_operand(args.row().name, args.src("x")?)?;
    let rank = b.rank(x);
    let mut position = |axis: usize| {
        let mut extents = vec![Src::from(1); rank];
        extents[axis] = b.size(x, axis as i64)?.into();
        b.index(&extents, axis as i64)
    };
    let (row, column) = (position(rank - 2)?, position(rank - 1)?);
    let distance = b.binary(BinaryOp::Sub, column, row)?;
    let kept = b.binary(keep, distance, args.int("diagonal").unwrap_or(0))?;
    let nothing = b.constant(Value::Int(0), b.dtype(Operand::Tensor(x)))?;
    // Moved as they are: small floats are not widened.
    let moved = b.push_all(OpKind::Ternary(TernaryOp::Where), vec![kept, Operand::Tensor(x), nothing])?;
    Ok(moved.into_iter().map(Operand::Tensor).collect())
}

/// Keeps elements by `column - row` and the diagonal.
fn masked(cx: &EvalCx<'_>, keep: fn(i64, i64) -> bool) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let diagonal = cx.call.int("diagonal").unwrap_or(0);
    let sizes = x.sizes.clone();
    let (rows, columns) = (sizes[sizes.len() - 2], sizes[sizes.len() - 1]);
    let place = |i: usize| {
        let (row, column) = (i / columns % rows, i % columns);
        keep(column as i64 - row as i64, diagonal)
            .then(|| fold_index(i, &sizes, |axis, at| Some(at * x.strides[axis])))?
    };
    Ok(vec![x.gathered(sizes.clone(), zero(x.dtype), place)])
}

#[cfg(test)]
mod tests;
