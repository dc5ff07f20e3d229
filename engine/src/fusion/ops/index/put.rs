//! Elements that are put where an index says, by who says so last.

use super::super::args::{Args, OpArg};
use super::super::call::Attr;
use super::super::cx::{EvalCx, MetaCx};
use super::super::draft::CallDraft;
use super::super::extents::{binary, call, decide_alike, extents, integer, operand, operands, values};
use super::super::movement::{AxisMap, Form, Movement};
use super::super::row::{OpParamKind, OpRow, Primitive, ResultLayout, req};
use super::{check_index, positions};
use crate::array::{View, fold_index};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::meta::{ExtentValue, Shape};
use crate::fusion::{AxisKind, FusionBuilder, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp};

pub(in crate::fusion::ops) const ROWS: &[OpRow] = &[OpRow::primitive(
    "last_position",
    &[req("index", OpParamKind::Tensor), req("size", OpParamKind::Scalar), req("dim", OpParamKind::Int)],
    last,
    Primitive {
        meta: last_meta,
        layout: ResultLayout::Dense,
        eval: last_eval,
        decompose: None,
        movement: Movement::LIBRARY.axes(AxisMap::Except("dim")).form(Form::Last),
    },
    "For each of size places along dim the last position along it at which index holds the place, plus 1; 0 where none does.",
    "PyTorch scatter: who of several writes",
)];

fn last(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let index = b.tensor_operand("last_position", args.src("index")?)?;
    let dim = normal_axis("last_position", args.int("dim").unwrap_or(0), b.rank(index))?;
    let size = integer(b, "last_position", "size", args.src("size")?)?;
    b.push_draft(CallDraft::new(args).operand("size", operand(size)).attr("dim", Attr::Int(dim as i64)))
}

fn last_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut index = cx.tensor("index")?;
    check_index(cx.name(), index.dtype)?;
    let Some(size) = cx.extent("size") else { return Err(Diagnostic::bug("last_position has a size")) };
    let known = cx.math.known(size);
    cx.require(known.map(|size| size >= 0), code::VALUE, || format!("the size is {}", known.unwrap_or(0)))?;
    index.axes[cx.call.axis("dim")] = cx.axis(size);
    Ok(vec![Shape { dtype: DType::I32, axes: index.axes }])
}

fn last_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let index = cx.tensor("index")?;
    let (dim, sizes) = (cx.call.axis("dim"), cx.results[0].1.clone());
    let places = positions(cx.call.row.name, index, dim, sizes[dim], false)?;
    let row_major: Vec<usize> = (0..sizes.len()).map(|axis| sizes[axis + 1..].iter().product()).collect();
    let mut found = vec![0; sizes.iter().product()];
    for (i, place) in places.into_iter().enumerate() {
        let mut position = 0;
        let to = |axis: usize, at: usize| {
            if axis == dim {
                position = at;
            }
            Some(row_major[axis] * if axis == dim { place } else { at })
        };
        let to = fold_index(i, &index.sizes, to).unwrap_or(0);
        found[to] = position as i64 + 1;
    }
    Ok(vec![View::from_i64(DType::I32, sizes, found)])
}

/// Where somebody writes what the last one does, elsewhere `x`.
pub(super) fn scatter_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let (x, index) = (b.tensor_operand("scatter", args.src("x")?)?, b.tensor_operand("scatter", args.src("index")?)?);
    let dim = normal_axis("scatter", args.int("dim").unwrap_or(0), b.rank(x))?;
    let (sizes, mut region) = (extents(b, x), extents(b, index));
    region[dim] = sizes[dim];
    let last = call(b, "last_position", |args| {
        args.value("index", index).value("size", operand(sizes[dim])).with("dim", OpArg::Int(dim as i64))
    })?;
    decide_axis(b, last, x, dim);
    let mut is_written = b.binary(BinaryOp::Gt, last, 0)?;
    let mut written = match b.check_operand("scatter", args.src("src")?)? {
        Src::Tensor(src) => {
            let position = b.binary(BinaryOp::Sub, last, 1)?;
            let position = b.binary(BinaryOp::Maximum, position, 0)?;
            Src::from(taken(b, src, index, position, dim)?)
        }
        scalar => scalar,
    };
    if region != sizes {
        is_written = widened(b, is_written, x, &region)?;
        if let Src::Tensor(part) = written {
            written = widened(b, Operand::Tensor(part), x, &region)?.into();
        }
    }
    let dtype = b.dtype(Operand::Tensor(x));
    let all = b.ternary(TernaryOp::Where, is_written, written, x)?;
    Ok(vec![b.cast(all, dtype)?])
}

/// The elements of `src` at positions along an axis; on the others it is read as far as `index` is long.
fn taken(b: &mut FusionBuilder, src: TensorId, index: TensorId, position: Operand, dim: usize) -> Result<Operand> {
    let (sizes, mut ends) = (extents(b, src), extents(b, index));
    ends[dim] = sizes[dim];
    let mut part = Operand::Tensor(src);
    if ends != sizes {
        let (starts, ends) = (values(vec![0.into(); ends.len()]), values(operands(&ends)));
        part = call(b, "slice", |args| args.value("x", src).with("starts", starts).with("ends", ends))?;
        for axis in 0..sizes.len() {
            decide_axis(b, part, if axis == dim { src } else { index }, axis);
        }
    }
    call(b, "take_along_axis", |args| {
        args.value("x", part).value("index", position).with("dim", OpArg::Int(dim as i64))
    })
}

/// A tensor of these sizes with zeros behind it, up to those of `x`.
fn widened(b: &mut FusionBuilder, part: Operand, x: TensorId, sizes: &[ExtentValue]) -> Result<Operand> {
    let mut widths = Vec::new();
    for (&own, all) in sizes.iter().zip(extents(b, x)).rev() {
        let behind = binary(b, BinaryOp::Sub, all, own);
        widths.extend([0.into(), operand(behind)]);
    }
    let widened = call(b, "pad", |args| args.value("x", part).with("widths", values(widths)))?;
    decide_alike(b, widened, x, sizes.len());
    Ok(widened)
}

/// An axis of a tensor is of the kind that the one of `x` is.
fn decide_axis(b: &mut FusionBuilder, tensor: Operand, x: TensorId, axis: usize) {
    let kind = b.axes(x)[axis].kind;
    if let Operand::Tensor(tensor) = tensor
        && kind != AxisKind::Symbolic
    {
        b.decide(tensor, axis, kind);
    }
}
