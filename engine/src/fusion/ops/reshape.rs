//! Operations that group elements into other axes.

use super::args::{Args, OpArg};
use super::call::Attr;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::draft::CallDraft;
use super::extents::{self, checked_product};
use super::movement::{AxisMap, Form, Movement, ViewPlace};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, int, req};
use crate::array::{View, fold_index, row_major_strides, view_strides};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::meta::{AxisMeta, ExtentValue, Shape};
use crate::fusion::{FusionBuilder, Operand, Src, TensorId};
use crate::num::BinaryOp;

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "reshape",
        &[req("x", OpParamKind::Tensor).py("arg"), req("shape", OpParamKind::Shape).py("new_shape")],
        reshape,
        Primitive {
            meta: reshape_meta,
            layout: ResultLayout::Custom(reshape_layout),
            eval: reshape_eval,
            decompose: None,
            movement: Movement::NEW.axes(AxisMap::Regrouped).placed(reshape_place).form(Form::Reshape),
        },
        "The elements of x in row-major order under the extents in brackets; one of them may be -1: what is left.",
        "N§2, PyTorch reshape",
    ),
    OpRow::composite(
        "flatten",
        &[req("x", OpParamKind::Tensor), int("start", 0).py("start_dim"), int("end", -1).py("end_dim")],
        flatten,
        "x with the axes from start to end merged into one.",
        "N§2, PyTorch flatten",
    ),
    OpRow::primitive(
        "repeat",
        &[req("x", OpParamKind::Tensor), req("counts", OpParamKind::Ints).py("repeat_times")],
        repeat,
        Primitive {
            meta: repeat_meta,
            layout: ResultLayout::Dense,
            eval: repeat_eval,
            decompose: None,
            movement: Movement::NEW.form(Form::Repeat),
        },
        "counts[i] copies of x one after another along axis i.",
        "N§2, PyTorch repeat",
    ),
];

// ---- reshape ----

fn reshape(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("reshape", args.src("x")?)?;
    let shape = new_shape(b, x, args.list("shape"))?;
    b.push_draft(CallDraft::new(args).operands("shape", extents::operands(&shape)))
}

/// The extents that are asked for, with a number in place of -1.
fn new_shape(b: &mut FusionBuilder, x: TensorId, asked: &[Src]) -> Result<Vec<ExtentValue>> {
    let mut shape = Vec::with_capacity(asked.len());
    let mut open = None;
    for (position, &src) in asked.iter().enumerate() {
        let extent = extents::integer(b, "reshape", &format!("extent {position}"), src)?;
        match (extents::known(b, extent), open) {
            (Some(-1), None) => open = Some(position),
            (Some(-1), Some(other)) => {
                let message = format!("reshape: extents {other} and {position} are both -1");
                return Err(Diagnostic::user(code::VALUE, message).note("only one extent can be inferred"));
            }
            (Some(n), _) if n < 0 => {
                let message = format!("reshape: extent {position} is {n}, which is negative");
                return Err(Diagnostic::user(code::VALUE, message).note("write -1 for what is left"));
            }
            _ => {}
        }
        shape.push(extent);
    }
    if let Some(position) = open {
        let others: Vec<ExtentValue> = (0..shape.len()).filter(|&i| i != position).map(|i| shape[i]).collect();
        shape[position] = quotient(b, &extents::extents(b, x), &others)?;
    }
    Ok(shape)
}

/// `product of all / product of some`, factors that both have left out, and 0
/// where either is known to be 0. A remainder is left to the rule of shapes.
fn quotient(b: &mut FusionBuilder, all: &[ExtentValue], some: &[ExtentValue]) -> Result<ExtentValue> {
    let (mut top, mut bottom) = (1i64, 1i64);
    let (mut over, mut under) = (Vec::new(), Vec::new());
    for &factor in all {
        match extents::known(b, factor) {
            Some(n) => top = checked_product(top, n)?,
            None => over.push(factor),
        }
    }
    for &factor in some {
        match (extents::known(b, factor), over.iter().position(|&other| other == factor)) {
            (Some(n), _) => bottom = checked_product(bottom, n)?,
            (None, Some(same)) => drop(over.remove(same)),
            (None, None) => under.push(factor),
        }
    }
    if top == 0 || bottom == 0 {
        return Ok(extents::constant(b, 0));
    }
    let common = gcd(top, bottom);
    for (list, rest) in [(&mut over, top / common), (&mut under, bottom / common)] {
        let rest = extents::constant(b, rest);
        list.push(rest);
    }
    let dividend = extents::product(b, &over)?;
    let mut divisor = extents::product(b, &under)?;
    if under.len() > 1 {
        // Division by 0 is refused even where there is no element at all.
        let one = extents::constant(b, 1);
        divisor = extents::binary(b, BinaryOp::Maximum, divisor, one);
    }
    Ok(extents::binary(b, BinaryOp::Div, dividend, divisor))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn reshape_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    let shape = cx.extents("shape");
    let own: Vec<ExtentValue> = x.axes.iter().map(|axis| axis.extent).collect();
    if let (Some(before), Some(after)) = (count(cx, &own), count(cx, &shape))
        && before != after
    {
        let (from, to) = (listed(cx, &own), listed(cx, &shape));
        let message = format!("reshape: the {before} elements of {from} do not fill {to}, which has {after}");
        return Err(Diagnostic::user(code::EXTENT, message));
    }
    let axes = shape.into_iter().map(|extent| cx.axis(extent)).collect();
    Ok(vec![Shape { dtype: x.dtype, axes }])
}

/// The number of elements, if it is known.
fn count(cx: &MetaCx<'_>, extents: &[ExtentValue]) -> Option<i64> {
    if extents.iter().any(|&extent| cx.math.known(extent) == Some(0)) {
        return Some(0);
    }
    extents.iter().try_fold(1i64, |n, &extent| n.checked_mul(cx.math.known(extent)?))
}

/// Extents for a message.
pub(super) fn listed(cx: &MetaCx<'_>, extents: &[ExtentValue]) -> String {
    let one = |&extent: &ExtentValue| cx.math.known(extent).map_or("?".to_string(), |n| n.to_string());
    format!("[{}]", extents.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn reshape_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("x")?;
    let to = &cx.results[0];
    Ok(vec![view_strides(sizes, strides, to).unwrap_or_else(|| row_major_strides(to))])
}

fn reshape_place(cx: &LayoutCx<'_>) -> Result<Option<ViewPlace>> {
    let (sizes, strides) = cx.tensor("x")?;
    Ok(view_strides(sizes, strides, &cx.results[0]).map(|strides| ViewPlace { strides, offset: 0 }))
}

fn reshape_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let (to, meta) = (cx.results[0].1.clone(), x.meta());
    let signed: Vec<i64> = to.iter().map(|&size| size as i64).collect();
    Ok(vec![match view_strides(&meta.sizes, &meta.strides, &signed) {
        Some(strides) => x.seen(to, unsigned(&strides), 0),
        None => x.to_dense().seen(to, unsigned(&row_major_strides(&signed)), 0),
    }])
}

/// Strides of a view, which are never negative.
pub(super) fn unsigned(strides: &[i64]) -> Vec<usize> {
    strides.iter().map(|&stride| usize::try_from(stride).unwrap_or(0)).collect()
}

// ---- flatten ----

fn flatten(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("flatten", args.src("x")?)?;
    let rank = b.rank(x);
    let own = extents::extents(b, x);
    if rank == 0 {
        // A tensor without axes becomes one with a single element.
        let one = Src::from(1);
        return Ok(vec![extents::call(b, "reshape", |args| {
            args.value("x", x).with("shape", OpArg::Values(vec![one]))
        })?]);
    }
    let start = normal_axis("flatten", args.int("start").unwrap_or(0), rank)?;
    let end = normal_axis("flatten", args.int("end").unwrap_or(-1), rank)?;
    if start > end {
        let message = format!("flatten: start {start} comes after end {end}");
        return Err(Diagnostic::user(code::AXIS, message));
    }
    if start == end {
        return Ok(vec![Operand::Tensor(x)]);
    }
    let mut shape = own[..start].to_vec();
    shape.push(extents::product(b, &own[start..=end])?);
    shape.extend_from_slice(&own[end + 1..]);
    let shape = extents::values(extents::operands(&shape));
    Ok(vec![extents::call(b, "reshape", |args| args.value("x", x).with("shape", shape))?])
}

// ---- repeat ----

fn repeat(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let mut x = b.tensor_operand("repeat", args.src("x")?)?;
    let counts = args.ints("counts");
    if let Some(position) = counts.iter().position(|&count| count < 0) {
        let message = format!("repeat: count {position} is {}, which is negative", counts[position]);
        return Err(Diagnostic::user(code::VALUE, message));
    }
    let rank = b.rank(x);
    let Some(new) = counts.len().checked_sub(rank) else {
        let message = format!("repeat: {} counts for an operand of rank {rank}", counts.len());
        return Err(Diagnostic::user(code::RANK, message));
    };
    if new > 0 {
        let flags: Vec<bool> = (0..counts.len()).map(|axis| axis < new).collect();
        let spread = b.broadcast(x, &flags)?;
        x = b.tensor_operand("repeat", spread.into())?;
    }
    b.push_draft(CallDraft::new(args).operand("x", x).attr("counts", Attr::Ints(counts.to_vec())))
}

fn repeat_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    let counts = cx.call.ints("counts").to_vec();
    let mut axes: Vec<AxisMeta> = Vec::with_capacity(counts.len());
    for (axis, count) in x.axes.iter().zip(counts) {
        axes.push(if count == 1 {
            *axis
        } else {
            let count = cx.constant(count);
            let extent = cx.sized(BinaryOp::Mul, axis.extent, count)?;
            cx.axis(extent)
        });
    }
    Ok(vec![Shape { dtype: x.dtype, axes }])
}

fn repeat_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let sizes = cx.results[0].1.clone();
    let term = |axis: usize, at: usize| Some(at % x.sizes[axis] * x.strides[axis]);
    Ok(vec![View::picked(&[x], sizes.clone(), |i| (0, fold_index(i, &sizes, term).unwrap_or(0)))?])
}

#[cfg(test)]
mod tests;
