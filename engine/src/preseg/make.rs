//! What several passes make.

use super::whole::Whole;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{self, Args, OpArg};
use crate::fusion::{AxisKind, FusionBuilder, Rewriter, ScalarId, Src, TensorId};

pub(super) use crate::fusion::made_tensor as tensor;

/// The result of an operation of the table.
pub(super) fn call(b: &mut FusionBuilder, name: &str, fill: impl FnOnce(Args) -> Args) -> Result<TensorId> {
    let row = ops::find(name).ok_or_else(|| Diagnostic::bug(format!("{name} is no row of the table")))?;
    let results = b.apply(&fill(Args::new(row)))?;
    let made = results.first().ok_or_else(|| Diagnostic::bug(format!("{name} has no result")))?;
    tensor(*made)
}

/// The extents of an old tensor.
pub(super) fn extents(r: &mut Rewriter<'_>, whole: &Whole<'_>, old: TensorId) -> Vec<Src> {
    whole.fusion.tensors[old].axes.iter().map(|axis| r.scalar(axis.extent).into()).collect()
}

/// A new tensor under other extents.
pub(super) fn reshape(b: &mut FusionBuilder, x: TensorId, shape: Vec<Src>) -> Result<TensorId> {
    call(b, "reshape", |args| args.value("x", x).with("shape", OpArg::Values(shape)))
}

/// New tensors, joined along an axis.
pub(super) fn join(b: &mut FusionBuilder, parts: Vec<Src>, dim: usize) -> Result<TensorId> {
    call(b, "cat", |args| args.with("tensors", OpArg::Values(parts)).with("dim", OpArg::Int(dim as i64)))
}

/// The axis of an operand that an axis of the result is, of which the axes with a flag are dropped.
pub(super) fn kept_axis(flags: &[bool], axis: usize) -> usize {
    let mut kept = flags.iter().enumerate().filter(|(_, dropped)| !**dropped);
    kept.nth(axis).map_or(axis, |(own, _)| own)
}

/// A new tensor without axes where a flag is true: as it is, if none is.
pub(super) fn squeeze(b: &mut FusionBuilder, x: TensorId, flags: &[bool]) -> Result<TensorId> {
    if flags.contains(&true) { tensor(b.squeeze(x, flags)?) } else { Ok(x) }
}

/// A new tensor with axes of size 1 where a flag is true: as it is, if none is.
pub(super) fn broadcast(b: &mut FusionBuilder, x: TensorId, flags: &[bool]) -> Result<TensorId> {
    if flags.contains(&true) { tensor(b.broadcast(x, flags)?) } else { Ok(x) }
}

/// What a slice between known positions has for the whole of `x`.
pub(super) fn is_all(whole: &Whole<'_>, x: TensorId, ranges: &[(i64, i64)]) -> bool {
    ranges.iter().zip(whole.sizes(x)).all(|(range, size)| *range == (0, *size))
}

/// The axes of one element that iterate in `x` and are broadcasts in `result`, a part of it: a slice up to a number has those, since
/// that would cut a longer axis.
pub(super) fn ones(whole: &Whole<'_>, result: TensorId, x: TensorId) -> Vec<bool> {
    let is_one =
        |(axis, size): (usize, &i64)| *size == 1 && whole.is_broadcast(result, axis) && !whole.is_broadcast(x, axis);
    whole.sizes(x).iter().enumerate().map(is_one).collect()
}

/// Whether a slice of `x` can have the axes of `result`: those that are cut are decided by
/// their number of elements, the others are those of `x`, or broadcasts where they have one element ([`ones`]).
pub(super) fn slices_to(whole: &Whole<'_>, result: TensorId, x: TensorId, ranges: &[(i64, i64)]) -> bool {
    ranges.iter().enumerate().all(|(axis, &(start, end))| {
        let cut = (start, end) != (0, whole.sizes(x)[axis]);
        let (kind, wanted) = (whole.kind(x, axis), whole.kind(result, axis));
        let fits = match end - start {
            1 if !cut => kind == wanted || wanted == AxisKind::Broadcast,
            _ if !cut => kind == wanted,
            1 => wanted == AxisKind::Broadcast,
            _ => wanted == AxisKind::Iteration,
        };
        whole.sizes(result)[axis] == end - start && fits
    })
}

/// The elements of an old tensor between positions: the tensor, where these are all.
pub(super) fn slice(r: &mut Rewriter<'_>, whole: &Whole<'_>, x: TensorId, ranges: &[(i64, i64)]) -> Result<TensorId> {
    slice_to(r, whole, x, ranges, &[])
}

/// The same with some axes of one element that iterate as broadcasts ([`ones`]).
pub(super) fn slice_to(
    r: &mut Rewriter<'_>,
    whole: &Whole<'_>,
    x: TensorId,
    ranges: &[(i64, i64)],
    ones: &[bool],
) -> Result<TensorId> {
    let new = r.tensor(x)?;
    if is_all(whole, x, ranges) && !ones.contains(&true) {
        return Ok(new);
    }
    let own = extents(r, whole, x);
    let starts: Vec<Src> = ranges.iter().map(|range| range.0.into()).collect();
    // An axis that is not cut keeps its extent, and so its kind, unless it is asked for as a broadcast.
    let end = |(axis, &(start, end)): (usize, &(i64, i64))| match whole.sizes(x)[axis] {
        size if (start, end) == (0, size) && ones.get(axis) != Some(&true) => own[axis],
        _ => end.into(),
    };
    let ends: Vec<Src> = ranges.iter().enumerate().map(end).collect();
    let builder = &mut r.builder;
    call(builder, "slice", |args| {
        let args = args.value("x", new).with("starts", OpArg::Values(starts)).with("ends", OpArg::Values(ends));
        // They lie in the axes.
        args.with("manual_normalization", OpArg::Bool(true))
    })
}

/// Whether a pad of `x` has the axes of `result`: those that are widened or cut are decided by their number of elements.
pub(super) fn pads_to(whole: &Whole<'_>, result: TensorId, x: TensorId, widths: &[(i64, i64)]) -> bool {
    widths.iter().enumerate().all(|(axis, &(before, after))| {
        let size = whole.sizes(x)[axis] + before + after;
        let kind = match size {
            _ if (before, after) == (0, 0) => whole.kind(x, axis),
            1 => AxisKind::Broadcast,
            _ => AxisKind::Iteration,
        };
        whole.sizes(result)[axis] == size && kind == whole.kind(result, axis)
    })
}

/// An old tensor with so much before and after each axis, of a value that is given in its class.
pub(super) fn pad(
    r: &mut Rewriter<'_>,
    x: TensorId,
    widths: &[(i64, i64)],
    fill: Option<ScalarId>,
) -> Result<TensorId> {
    let new = r.tensor(x)?;
    pad_made(r, new, widths, fill)
}

/// The same of a new tensor.
pub(super) fn pad_made(
    r: &mut Rewriter<'_>,
    new: TensorId,
    widths: &[(i64, i64)],
    fill: Option<ScalarId>,
) -> Result<TensorId> {
    let widths: Vec<Src> = widths.iter().rev().flat_map(|width| [width.0.into(), width.1.into()]).collect();
    let fill = fill.map(|fill| r.scalar(fill));
    call(&mut r.builder, "pad", |args| {
        let args = args.value("x", new).with("widths", OpArg::Values(widths));
        match fill {
            Some(fill) => args.value("value", fill),
            None => args,
        }
    })
}
