//! Operations that take or put elements where an index tensor says.
//!
//! An index that is out of range is refused when its value is read: kernels
//! that do not look would reach memory of others.

pub(super) mod accumulate;
pub(super) mod put;

use super::args::{Args, OpArg};
use super::call::Attr;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::draft::CallDraft;
use super::extents;
use super::lookup::IndexAxes;
use super::movement::{AxisMap, Form, Movement, ViewPlace};
use super::resize::constant_of;
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, req};
use crate::array::{View, fold_index};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::meta::{AxisMeta, Shape};
use crate::fusion::{AxisKind, FusionBuilder, Operand, Src, TensorId};
use crate::num::{DType, Value};
use crate::tensor::HostTensor;

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "select",
        &[req("x", OpParamKind::Tensor).py("arg"), req("index", OpParamKind::Value), req("dim", OpParamKind::Int)],
        select,
        Primitive {
            meta: select_meta,
            layout: ResultLayout::Custom(select_layout),
            eval: select_eval,
            decompose: None,
            movement: Movement::NEW.axes(AxisMap::Dropped("dim")).placed(select_place).picks("x").form(Form::Select),
        },
        "x at one position of an axis, which is dropped; a negative position counts from the end. A tensor of one position is read when it runs.",
        "N§2, PyTorch select",
    ),
    OpRow::primitive(
        "index_select",
        &[req("x", OpParamKind::Tensor).py("arg"), req("index", OpParamKind::Tensor), req("dim", OpParamKind::Int)],
        index_select,
        Primitive {
            meta: index_select_meta,
            layout: ResultLayout::Dense,
            eval: index_select_eval,
            decompose: None,
            movement: Movement::NEW.axes(AxisMap::Except("dim")).picks("x").form(Form::Lookup(IndexAxes::InPlace)),
        },
        "x at the positions along an axis that a tensor of rank 0 or 1 lists.",
        "N§2, PyTorch index_select",
    ),
    OpRow::primitive(
        "gather",
        &[req("x", OpParamKind::Tensor).py("arg"), req("index", OpParamKind::Tensor), req("dim", OpParamKind::Int)],
        indexed,
        Primitive {
            meta: gather_meta,
            layout: ResultLayout::Dense,
            eval: gather_eval,
            decompose: Some(gather_steps),
            movement: Movement::NEW.alone().picks("x").form(Form::Lookup(IndexAxes::Within)),
        },
        "For each position of index the element of x there, but along dim at the position that index holds.",
        "N§2, PyTorch gather",
    ),
    OpRow::primitive(
        "take_along_axis",
        &[req("x", OpParamKind::Tensor).py("arg"), req("index", OpParamKind::Tensor), req("dim", OpParamKind::Int)],
        indexed,
        Primitive {
            meta: take_meta,
            layout: ResultLayout::Dense,
            eval: take_eval,
            decompose: None,
            movement: Movement::NEW.axes(AxisMap::Except("dim")).alone().picks("x").form(Form::Lookup(IndexAxes::Same)),
        },
        "gather of x and index broadcast against each other on the other axes.",
        "N§2, numpy take_along_axis, PyTorch take_along_dim",
    ),
    OpRow::primitive(
        "scatter",
        &[
            req("x", OpParamKind::Tensor).py("arg"),
            req("index", OpParamKind::Tensor),
            req("src", OpParamKind::Value),
            req("dim", OpParamKind::Int),
        ],
        scatter,
        Primitive {
            meta: scatter_meta,
            layout: ResultLayout::Dense,
            eval: scatter_eval,
            decompose: Some(put::scatter_steps),
            movement: Movement::LIBRARY.form(Form::Scatter),
        },
        "x with src in place of the elements that gather would take; of several at one place the last.",
        "N§2, PyTorch scatter",
    ),
];

/// Index tensors hold integers.
pub(super) fn check_index(name: &str, dtype: DType) -> Result<()> {
    if dtype.is_int() {
        return Ok(());
    }
    let message = format!("{name}: the index is a {dtype}, not an integer");
    Err(Diagnostic::user(code::DTYPE, message).note("cast it to i64"))
}

/// Refuses to look elements of a result up along an axis that has none: no index is a position of it.
pub(super) fn check_table(cx: &MetaCx<'_>, table: &Shape, dim: usize, result: &[AxisMeta]) -> Result<()> {
    let known = |axis: &AxisMeta| cx.math.known(axis.extent);
    let has_elements = result.iter().all(|axis| known(axis).is_some_and(|size| size > 0));
    let is_wrong = has_elements && table.axes.get(dim).and_then(known) == Some(0);
    cx.require(Some(!is_wrong), code::INDEX, || format!("axis {dim} has 0 elements, none of which an index finds"))
}

/// The elements of an index, each between 0 and `size`, or between `-size` and
/// `size` where negative ones count from the end.
fn positions(name: &str, index: &View, axis: usize, size: usize, wraps: bool) -> Result<Vec<usize>> {
    let mut places = Vec::with_capacity(index.len());
    // Unsigned positions above the largest signed one are held as negative numbers.
    let wraps = wraps && index.dtype != DType::U64;
    for (i, value) in index.to_i64().into_iter().enumerate() {
        let from_start = if wraps && value < 0 { value.saturating_add_unsigned(size as u64) } else { value };
        match usize::try_from(from_start) {
            Ok(place) if place < size => places.push(place),
            _ => {
                let mut rest = i;
                let mut at = vec![0; index.sizes.len()];
                for (axis, size) in index.sizes.iter().enumerate().rev() {
                    at[axis] = rest % size;
                    rest /= size;
                }
                let message = format!("{name}: index{at:?} is {value}, axis {axis} has {size} elements");
                return Err(Diagnostic::user(code::INDEX, message));
            }
        }
    }
    Ok(places)
}

/// Refuses an index of an axis of so many elements that holds what is no position of it.
pub fn check_positions(name: &str, index: &HostTensor, axis: usize, size: i64) -> Result<()> {
    positions(name, &View::load(index), axis, usize::try_from(size).unwrap_or(0), false).map(drop)
}

// ---- select ----

fn select(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("select", args.src("x")?)?;
    let dim = normal_axis("select", args.int("dim").unwrap_or(0), b.rank(x))?;
    if let Src::Tensor(index) = args.src("index")? {
        return select_read(b, x, index, dim);
    }
    let mut index = extents::integer(b, "select", "the index", args.src("index")?)?;
    let size = extents::extents(b, x)[dim];
    if let (Some(at), Some(n)) = (extents::known(b, index), extents::known(b, size))
        && (-n..0).contains(&at)
    {
        index = extents::constant(b, at + n);
    }
    b.push_draft(CallDraft::new(args).operand("index", extents::operand(index)).attr("dim", Attr::Int(dim as i64)))
}

/// `select` at a position that a tensor without axes holds.
fn select_read(b: &mut FusionBuilder, x: TensorId, index: TensorId, dim: usize) -> Result<Vec<Operand>> {
    check_index("select", b.dtype(Operand::Tensor(index)))?;
    if b.rank(index) != 0 {
        let message = format!("select: the index has rank {}, not 0", b.rank(index));
        return Err(Diagnostic::user(code::RANK, message).note("use index_select for several positions"));
    }
    let size = extents::operand(extents::extents(b, x)[dim]);
    let from_end = b.lt(index, 0)?;
    let wrapped = b.add(index, size)?;
    let place = b.where_(from_end, wrapped, index)?;
    let row = extents::call(b, "index_select", |args| {
        args.value("x", x).value("index", place).with("dim", OpArg::Int(dim as i64))
    })?;
    let flags: Vec<bool> = (0..b.rank(x)).map(|axis| axis == dim).collect();
    Ok(vec![b.squeeze(row, &flags)?])
}

fn select_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut x = cx.tensor("x")?;
    let dim = cx.call.axis("dim");
    let axis = x.axes.remove(dim);
    let index = cx.extent("index").and_then(|index| cx.math.known(index));
    if let (Some(at), Some(n)) = (index, cx.math.known(axis.extent))
        && !(-n..n).contains(&at)
    {
        let message = format!("select: position {at} of axis {dim}, which has {n} elements");
        return Err(Diagnostic::user(code::INDEX, message));
    }
    Ok(vec![x])
}

fn without<T: Copy>(list: &[T], axis: usize) -> Vec<T> {
    list.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, item)| *item).collect()
}

fn select_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    Ok(vec![without(cx.tensor("x")?.1, cx.call.axis("dim"))])
}

fn select_place(cx: &LayoutCx<'_>) -> Result<Option<ViewPlace>> {
    let ((sizes, strides), dim) = (cx.tensor("x")?, cx.call.axis("dim"));
    let index = cx.ints("index").first().copied().unwrap_or(0);
    let index = if index < 0 { index + sizes[dim] } else { index };
    Ok(Some(ViewPlace { strides: without(strides, dim), offset: index * strides[dim] }))
}

fn select_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let dim = cx.call.axis("dim");
    let index = cx.ints("index").first().copied().unwrap_or(0);
    let index = if index < 0 { index + x.sizes[dim] as i64 } else { index };
    let offset = if x.is_empty() { 0 } else { usize::try_from(index).unwrap_or(0) * x.strides[dim] };
    Ok(vec![x.seen(without(&x.sizes, dim), without(&x.strides, dim), offset)])
}

// ---- index_select ----

/// `dim` counted from the start.
fn indexed(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let x = b.tensor_operand(name, args.src("x")?)?;
    let dim = normal_axis(name, args.int("dim").unwrap_or(0), b.rank(x))?;
    b.push_draft(CallDraft::new(args).attr("dim", Attr::Int(dim as i64)))
}

/// An index that is spread over the axes of x loses the others.
fn index_select(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "index_select";
    let x = b.tensor_operand(name, args.src("x")?)?;
    let mut index = b.tensor_operand(name, args.src("index")?)?;
    let dim = normal_axis(name, args.int("dim").unwrap_or(0), b.rank(x))?;
    let (rank, own) = (b.rank(x), b.rank(index));
    let kinds: Vec<AxisKind> = b.shape_of(index).axes.iter().map(|axis| axis.kind).collect();
    let spread = own == rank && own > 1 && (0..own).all(|axis| axis == dim || kinds[axis] == AxisKind::Broadcast);
    if spread {
        let flags: Vec<bool> = (0..own).map(|axis| axis != dim).collect();
        let line = b.squeeze(index, &flags)?;
        index = b.tensor_operand(name, line.into())?;
    } else if own > 1 {
        let message = format!("{name}: the index has rank {own}, not 0 or 1");
        return Err(Diagnostic::user(code::RANK, message).note("use gather for an index of more axes"));
    }
    b.push_draft(CallDraft::new(args).operand("index", index).attr("dim", Attr::Int(dim as i64)))
}

fn index_select_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    check_index(cx.name(), index.dtype)?;
    let (dim, mut axes) = (cx.call.axis("dim"), x.axes.clone());
    axes[dim] = match index.axes.first() {
        Some(axis) => *axis,
        None => {
            let one = cx.constant(1);
            cx.axis(one)
        }
    };
    check_table(cx, &x, dim, &axes)?;
    Ok(vec![Shape { dtype: x.dtype, axes }])
}

fn index_select_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    let dim = cx.call.axis("dim");
    Ok(vec![rows(cx.call.row.name, x, index, dim, &cx.results[0].1)?])
}

/// x at the listed positions along an axis.
pub(super) fn rows(name: &str, x: &View, index: &View, dim: usize, sizes: &[usize]) -> Result<View> {
    let places = positions(name, index, dim, x.sizes[dim], false)?;
    let term = |axis: usize, at: usize| Some(x.strides[axis] * if axis == dim { places[at] } else { at });
    View::picked(&[x], sizes.to_vec(), |i| (0, fold_index(i, sizes, term).unwrap_or(0)))
}

// ---- gather, take_along_axis ----

fn same_rank(cx: &MetaCx<'_>, x: &Shape, what: &str, other: &Shape) -> Result<()> {
    if x.axes.len() == other.axes.len() {
        return Ok(());
    }
    let (rank, own) = (x.axes.len(), other.axes.len());
    let message = format!("{}: {what} has rank {own}, the operand rank {rank}", cx.name());
    Err(Diagnostic::user(code::RANK, message))
}

/// On axes other than `but`, an index has at most as many elements as what it indexes.
fn at_most(cx: &MetaCx<'_>, index: &Shape, of: &str, x: &Shape, but: Option<usize>) -> Result<()> {
    for (position, (small, large)) in index.axes.iter().zip(&x.axes).enumerate() {
        let (small, large) = (cx.math.known(small.extent), cx.math.known(large.extent));
        if Some(position) != but
            && let (Some(small), Some(large)) = (small, large)
            && small > large
        {
            let message = format!("{}: axis {position} of the index is {small}, of {of} {large}", cx.name());
            return Err(Diagnostic::user(code::EXTENT, message));
        }
    }
    Ok(())
}

fn gather_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    check_index(cx.name(), index.dtype)?;
    same_rank(cx, &x, "the index", &index)?;
    at_most(cx, &index, "the operand", &x, Some(cx.call.axis("dim")))?;
    check_table(cx, &x, cx.call.axis("dim"), &index.axes)?;
    Ok(vec![Shape { dtype: x.dtype, axes: index.axes }])
}

fn gather_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    Ok(vec![gathered(cx.call.row.name, x, index, cx.call.axis("dim"))?])
}

/// The part of x that is as long as index on the other axes, looked up element by element.
fn gather_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (x, index) = (b.tensor_operand("gather", args.src("x")?)?, b.tensor_operand("gather", args.src("index")?)?);
    let dim = normal_axis("gather", args.int("dim").unwrap_or(0), b.rank(x))?;
    let (sizes, mut ends) = (extents::extents(b, x), extents::extents(b, index));
    ends[dim] = sizes[dim];
    let mut part = Operand::Tensor(x);
    if ends != sizes {
        let starts = vec![0.into(); ends.len()];
        let (starts, ends) = (extents::values(starts), extents::values(extents::operands(&ends)));
        part = extents::call(b, "slice", |args| args.value("x", x).with("starts", starts).with("ends", ends))?;
    }
    let taken = extents::call(b, "take_along_axis", |args| {
        args.value("x", part).value("index", index).with("dim", OpArg::Int(dim as i64))
    })?;
    Ok(vec![taken])
}

/// For each position of index the element of x there, but along an axis at the
/// position that index holds.
fn gathered(name: &str, x: &View, index: &View, dim: usize) -> Result<View> {
    let places = positions(name, index, dim, x.sizes[dim], false)?;
    let sizes = index.sizes.clone();
    let element = |i: usize| {
        let term = |axis: usize, at: usize| Some(x.strides[axis] * if axis == dim { places[i] } else { at });
        (0, fold_index(i, &sizes, term).unwrap_or(0))
    };
    View::picked(&[x], sizes.clone(), element)
}

fn take_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    check_index(cx.name(), index.dtype)?;
    same_rank(cx, &x, "the index", &index)?;
    let dim = cx.call.axis("dim");
    let mut axes: Vec<AxisMeta> = Vec::with_capacity(x.axes.len());
    for (position, (&own, &other)) in x.axes.iter().zip(&index.axes).enumerate() {
        axes.push(if position == dim {
            other
        } else {
            cx.paired(&format!("axis {position} of the operand and of the index"), own, other)?
        });
    }
    check_table(cx, &x, dim, &axes)?;
    Ok(vec![Shape { dtype: x.dtype, axes }])
}

fn take_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    let (dim, sizes) = (cx.call.axis("dim"), &cx.results[0].1);
    let mut wide = sizes.clone();
    wide[dim] = x.sizes[dim];
    Ok(vec![gathered(cx.call.row.name, &x.expanded(&wide), &index.expanded(sizes), dim)?])
}

// ---- scatter ----

fn scatter(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("scatter", args.src("x")?)?;
    let dim = normal_axis("scatter", args.int("dim").unwrap_or(0), b.rank(x))?;
    let dtype = b.dtype(Operand::Tensor(x));
    let src = match b.check_operand("scatter", args.src("src")?)? {
        Src::Tensor(src) => Src::Tensor(b.cast_tensor(src, dtype)?),
        scalar => constant_of(b, "scatter", scalar, dtype)?,
    };
    b.push_draft(CallDraft::new(args).operand("src", src).attr("dim", Attr::Int(dim as i64)))
}

fn scatter_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    check_index(cx.name(), index.dtype)?;
    same_rank(cx, &x, "the index", &index)?;
    at_most(cx, &index, "the operand", &x, Some(cx.call.axis("dim")))?;
    if let Some(src) = cx.opt_tensor("src")? {
        same_rank(cx, &x, "src", &src)?;
        at_most(cx, &index, "src", &src, None)?;
    }
    Ok(vec![x])
}

fn scatter_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (x, index) = (cx.tensor("x")?, cx.tensor("index")?);
    let dim = cx.call.axis("dim");
    let places = positions(cx.call.row.name, index, dim, x.sizes[dim], false)?;
    let src = match (cx.opt_tensor("src"), cx.scalar("src")) {
        (Some(src), _) => src.clone(),
        (None, value) => View::repeated(x.dtype, value.unwrap_or(Value::Int(0)), index.sizes.clone()),
    };
    let sizes = x.sizes.clone();
    let row_major: Vec<usize> = (0..sizes.len()).map(|axis| sizes[axis + 1..].iter().product()).collect();
    // For each element the place in src that it is taken from, plus 1.
    let mut sources = vec![0; x.len()];
    for (i, place) in places.into_iter().enumerate() {
        let to = |axis: usize, at: usize| Some(row_major[axis] * if axis == dim { place } else { at });
        let from = |axis: usize, at: usize| Some(src.strides[axis] * at);
        let to = fold_index(i, &index.sizes, to).unwrap_or(0);
        sources[to] = fold_index(i, &index.sizes, from).unwrap_or(0) + 1;
    }
    let pick = |i: usize| match sources[i] {
        0 => (0, fold_index(i, &sizes, |axis, at| Some(at * x.strides[axis])).unwrap_or(0)),
        place => (1, place - 1),
    };
    Ok(vec![View::picked(&[x, &src], sizes.clone(), pick)?])
}

#[cfg(test)]
mod tests;
