//! Operations that order elements along an axis. NaN is the greatest value.
//! Equal elements stay in their order, also when the order is descending, if
//! `stable` asks for it; else they come as PyTorch's GPU kernels give them, see
//! [`network`].

mod network;

use super::args::Args;
use super::call::Attr;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::draft::CallDraft;
use super::extents;
use super::movement::{AxisMap, Form, Movement};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, flag, int, on, req};
use crate::array::{View, clone_strides, fold_index, parallel};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, Operand};
use crate::num::DType;
use std::cmp::Ordering;

/// Places of the network that sorts short lines.
pub(crate) const NETWORK: i64 = network::WIDTH as i64;

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "argsort",
        &[req("x", OpParamKind::Tensor).py("arg"), req("dim", OpParamKind::Int), flag("descending"), flag("stable")],
        argsort,
        Primitive {
            meta: argsort_meta,
            layout: ResultLayout::Custom(argsort_layout),
            eval: argsort_eval,
            decompose: None,
            movement: Movement::LIBRARY.axes(AxisMap::Same).positions(0).form(Form::Sort),
        },
        "The positions along an axis in ascending order of their elements.",
        "N§2, PyTorch argsort",
    ),
    OpRow::primitive(
        "topk",
        &[
            req("x", OpParamKind::Tensor).py("arg"),
            req("k", OpParamKind::Scalar),
            int("dim", -1),
            on("largest"),
            flag("sorted"),
        ],
        topk,
        Primitive {
            meta: topk_meta,
            layout: ResultLayout::Dense,
            eval: topk_eval,
            decompose: None,
            movement: Movement::LIBRARY.axes(AxisMap::Except("dim")).positions(1).form(Form::Top),
        },
        "The k greatest (least) elements along an axis and their positions, those of the least of them last.",
        "N§2, PyTorch topk",
    )
    .results(2),
];

/// A tensor without axes counts as a line of one element.
fn line_axis(b: &FusionBuilder, args: &Args) -> Result<Attr> {
    let name = args.row().name;
    let rank = b.rank(b.tensor_operand(name, args.src("x")?)?);
    Ok(Attr::Int(normal_axis(name, args.int("dim").unwrap_or(-1), rank.max(1))? as i64))
}

/// Types whose elements have an order.
fn check_ordered(cx: &MetaCx<'_>, dtype: DType) -> Result<()> {
    if !dtype.is_complex() && !dtype.is_packed() {
        return Ok(());
    }
    let message = format!("{}: the elements of a {dtype} have no order", cx.name());
    Err(Diagnostic::user(code::DTYPE, message))
}

// ---- argsort ----

fn argsort(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dim = line_axis(b, args)?;
    b.push_draft(CallDraft::new(args).attr("dim", dim))
}

fn argsort_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    check_ordered(cx, x.dtype)?;
    Ok(vec![Shape { dtype: DType::I64, axes: x.axes }])
}

/// Positions lie as the elements do.
fn argsort_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("x")?;
    Ok(vec![clone_strides(sizes, strides)])
}

fn argsort_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let meta = x.meta();
    let ties = if cx.call.flag("stable") { Ties::Stable } else { Ties::Network };
    let positions = ordered(x, cx.call.axis("dim"), None, cx.call.flag("descending"), ties);
    Ok(vec![positions.laid(&clone_strides(&meta.sizes, &meta.strides))])
}

/// What becomes of equal elements, and of the order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ties {
    /// They stay in their order.
    Stable,
    /// They move through the network, if the line is short enough.
    Network,
    /// Nothing is sorted: first what comes before the last of the kept elements,
    /// then those that are equal to it, each in the order of positions.
    Gathered,
    /// The same, then sorted as with [`Ties::Network`].
    GatheredSorted,
}

/// The positions along an axis in order, all of them or the first few.
fn ordered(x: &View, dim: usize, first: Option<usize>, descending: bool, ties: Ties) -> View {
    if x.is_empty() || first == Some(0) {
        let mut sizes = x.sizes.clone();
        if let (Some(size), Some(kept)) = (sizes.get_mut(dim), first) {
            *size = kept;
        }
        return View::from_i64(DType::I64, sizes, Vec::new());
    }
    let line = if x.sizes.is_empty() { x.seen(vec![1], vec![1], 0) } else { x.clone() };
    let lines = line.axis_last(dim);
    let mut sizes = lines.sizes().to_vec();
    let length = sizes.pop().unwrap_or(1);
    let count = sizes.iter().product();
    let kept = first.unwrap_or(length);
    sizes.push(kept);
    let positions = if x.dtype.is_float() {
        let keys = lines.to_f64();
        sorted_lines(&keys, count, length, kept, (descending, ties), |a, b| match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (a, b) => a.cmp(&b),
        })
    } else {
        // Unsigned 64-bit values keep their order when the top bit is turned.
        let turn = if x.dtype == DType::U64 { i64::MIN } else { 0 };
        let keys: Vec<i64> = lines.to_i64().into_iter().map(|key| key ^ turn).collect();
        sorted_lines(&keys, count, length, kept, (descending, ties), i64::cmp)
    };
    let result = View::from_i64(DType::I64, sizes, positions).axis_back(dim);
    if x.sizes.is_empty() { result.seen(Vec::new(), Vec::new(), 0) } else { result.to_dense() }
}

/// For each line the positions of its first `kept` elements in order.
fn sorted_lines<K: Sync>(
    keys: &[K],
    lines: usize,
    length: usize,
    kept: usize,
    (descending, ties): (bool, Ties),
    compare: impl Fn(&K, &K) -> Ordering + Sync,
) -> Vec<i64> {
    let sort = |line: usize| {
        let keys = &keys[line * length..(line + 1) * length];
        let by_value = |&a: &usize, &b: &usize| {
            let forward = compare(&keys[a], &keys[b]);
            if descending { forward.reverse() } else { forward }
        };
        // Positions tell equal elements apart.
        let order = |a: &usize, b: &usize| by_value(a, b).then(a.cmp(b));
        let mut positions: Vec<usize> = (0..length).collect();
        if kept < length {
            if kept > 0 {
                positions.select_nth_unstable_by(kept - 1, order);
            }
            positions.truncate(kept);
        }
        if ties == Ties::Stable || (ties == Ties::Network && length > network::WIDTH) {
            positions.sort_unstable_by(order);
        }
        if matches!(ties, Ties::Gathered | Ties::GatheredSorted)
            && let Some(last) = positions.iter().copied().max_by(order)
        {
            positions.sort_unstable_by_key(|position| (by_value(position, &last) == Ordering::Equal, *position));
        }
        match ties {
            Ties::Network | Ties::GatheredSorted if positions.len() <= network::WIDTH => {
                network::sort(&mut positions, |a, b| by_value(a, b) == Ordering::Less);
            }
            Ties::GatheredSorted => positions.sort_by(by_value),
            _ => {}
        }
        positions
    };
    let sorted: Vec<Vec<usize>> = parallel::results(lines, &sort);
    sorted.into_iter().flatten().map(|position| position as i64).collect()
}

// ---- topk ----

fn topk(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let dim = line_axis(b, args)?;
    let k = extents::integer(b, "topk", "k", args.src("k")?)?;
    b.push_draft(CallDraft::new(args).operand("k", extents::operand(k)).attr("dim", dim))
}

fn topk_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let mut x = cx.tensor("x")?;
    check_ordered(cx, x.dtype)?;
    let dim = cx.call.axis("dim");
    let Some(k) = cx.extent("k") else { return Err(Diagnostic::bug("topk has k")) };
    let given = cx.math.known(k);
    let size = x.axes.get(dim).map_or(Some(1), |axis| cx.math.known(axis.extent));
    let fits = match (given, size) {
        (Some(k), _) if k < 0 => Some(false),
        // One element without an axis cannot be left out.
        (Some(k), Some(n)) => Some(if x.axes.is_empty() { k == 1 } else { k <= n }),
        _ => None,
    };
    cx.require(fits, code::VALUE, || {
        let size = size.map_or("?".to_string(), |n| n.to_string());
        format!("k is {}, of {size} elements along axis {dim}", given.unwrap_or(0))
    })?;
    if dim < x.axes.len() {
        x.axes[dim] = cx.axis(k);
    }
    let positions = Shape { dtype: DType::I64, axes: x.axes.clone() };
    Ok(vec![x, positions])
}

fn topk_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let dim = cx.call.axis("dim");
    let kept = cx.results[0].1.get(dim).copied().unwrap_or(1);
    let ties = if cx.call.flag("sorted") { Ties::GatheredSorted } else { Ties::Gathered };
    let positions = ordered(x, dim, Some(kept), cx.call.flag("largest"), ties);
    let sizes = positions.sizes.clone();
    let along = positions.to_i64();
    let pick = |i: usize| {
        let at = |axis: usize, at: usize| if axis == dim { along[i] as usize } else { at };
        (0, fold_index(i, &sizes, |axis, coordinate| Some(x.strides[axis] * at(axis, coordinate))).unwrap_or(0))
    };
    Ok(vec![View::picked(&[x], sizes.clone(), pick)?, positions])
}

#[cfg(test)]
mod tests;
