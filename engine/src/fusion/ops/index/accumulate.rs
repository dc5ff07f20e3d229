//! Rows that are added to those of a tensor where an index says, any number of them to one.
//!
//! What adds them takes runs of positions, one for each place: it reads each row once, in an order that no thread changes.
//! `index_put_accumulate` is that behind the runs of its index.

use super::super::args::{Args, OpArg};
use super::super::call::Call;
use super::super::cx::{EvalCx, LayoutCx, MetaCx};
use super::super::draft::CallDraft;
use super::super::extents::{call, decide_alike, extents, integer, operand};
use super::super::movement::{Form, Movement};
use super::super::resize::constant_of;
use super::super::row::{OpParamKind, OpRow, Primitive, ResultLayout, opt, req};
use super::super::table;
use super::{check_index, positions, same_rank};
use crate::array::{View, clone_strides, row_major_strides};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{ExtentValue, Shape};
use crate::fusion::{AxisKind, Fusion, FusionBuilder, Op, OpKind, Operand, ScalarId, Src, TensorDef, TensorId};
use crate::num::{BinaryOp, DType, Value, eval};
use crate::tensor::HostTensor;
use std::ops::Range;

pub(in crate::fusion::ops) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "index_put_accumulate",
        &[req("acc", OpParamKind::Tensor), req("index", OpParamKind::Tensor), req("value", OpParamKind::Tensor)],
        put,
        Primitive {
            meta: put_meta,
            layout: ResultLayout::Custom(put_layout),
            eval: put_eval,
            decompose: Some(put_steps),
            movement: Movement::LIBRARY.form(Form::Put),
        },
        "acc with row value[i] added to its row index[i]; a negative index counts from the end.",
        "N§2, PyTorch index_put with accumulate",
    )
    .stays_if(put_stays),
    OpRow::primitive(
        "index_runs",
        &[req("index", OpParamKind::Tensor), req("size", OpParamKind::Scalar)],
        runs,
        Primitive {
            meta: runs_meta,
            layout: ResultLayout::Dense,
            eval: runs_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::Runs),
        },
        "For each of size places how many elements of index hold it or a lower one, and the positions of the elements in the \
         order of their places; a negative index counts from the end.",
        "index_put_accumulate: which rows a place gets",
    )
    .results(2),
    OpRow::primitive(
        "index_counts",
        &[req("index", OpParamKind::Tensor), req("size", OpParamKind::Scalar)],
        runs,
        Primitive {
            meta: counts_meta,
            layout: ResultLayout::Dense,
            eval: counts_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::Counts),
        },
        "For each of size places how many elements of index hold it; a negative index counts from the end.",
        "PyTorch bincount; index_put_accumulate of ones",
    ),
    OpRow::primitive(
        "index_put_runs",
        &[
            req("acc", OpParamKind::Value),
            req("ends", OpParamKind::Tensor),
            req("order", OpParamKind::Tensor),
            req("value", OpParamKind::Tensor),
            opt("dtype", OpParamKind::DType),
        ],
        put_runs,
        Primitive {
            meta: put_runs_meta,
            layout: ResultLayout::Custom(put_runs_layout),
            eval: put_runs_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::PutRuns),
        },
        "acc with rows value[order[j]] added to its row i, where j is below ends[i] and not below ends[i - 1]. A number stands \
         for as many rows of it, of the value's type unless another is given. Values of a narrower float type than acc's are \
         added as they are.",
        "index_put_accumulate behind the runs of its index",
    ),
    OpRow::primitive(
        "weighted_runs",
        &[
            req("ends", OpParamKind::Tensor),
            req("order", OpParamKind::Tensor),
            req("value", OpParamKind::Tensor),
            req("weight", OpParamKind::Tensor),
        ],
        weighted,
        Primitive {
            meta: weighted_meta,
            layout: ResultLayout::Dense,
            eval: weighted_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::PutGroups),
        },
        "Sums over k of weight[s, k] times row s K + k of what index_put_runs makes of 0, where weight is [S, K].",
        "index_put_accumulate, groups of whose rows are added with weights",
    ),
];

/// Whether kernels add rows of a type: they have sums of it, and a zero.
pub fn adds_rows(dtype: DType) -> bool {
    dtype.bits() >= 8 && !dtype.is_packed() && dtype != DType::F8E8M0FNU
}

fn put(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

fn runs(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let size = integer(b, args.row().name, "size", args.src("size")?)?;
    b.push_draft(CallDraft::new(args).operand("size", operand(size)))
}

fn put_runs(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let acc = b.check_operand(name, args.src("acc")?)?;
    if matches!(acc, Src::Tensor(_)) {
        return b.push_draft(CallDraft::new(args));
    }
    let value = b.tensor_operand(name, args.src("value")?)?;
    let dtype = args.dtype("dtype").unwrap_or_else(|| b.dtype(Operand::Tensor(value)));
    let acc = constant_of(b, name, acc, dtype)?;
    b.push_draft(CallDraft::new(args).operand("acc", acc))
}

fn weighted(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

fn put_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (acc, index, value) = (cx.tensor("acc")?, cx.tensor("index")?, cx.tensor("value")?);
    check_index(cx.name(), index.dtype)?;
    if index.axes.len() != 1 || acc.axes.is_empty() {
        let (rank, own) = (acc.axes.len(), index.axes.len());
        let message = format!("{}: an index of rank {own} into rank {rank}, not of rank 1 into axes", cx.name());
        return Err(Diagnostic::user(code::RANK, message));
    }
    let rows = index.axes[0].extent;
    check_types(cx, acc.dtype == value.dtype, &acc, &value)?;
    added_meta(cx, acc, &value, rows, "the index")
}

/// Refuses rows of a type that does not fit.
fn check_types(cx: &MetaCx<'_>, fits: bool, acc: &Shape, value: &Shape) -> Result<()> {
    if fits {
        return Ok(());
    }
    let message = format!("{}: the value is {}, the accumulator {}", cx.name(), value.dtype, acc.dtype);
    Err(Diagnostic::user(code::DTYPE, message).note("cast one of them"))
}

/// Whether rows of a type are added to wider ones as they are: each value is one of the wider type, signs of zeros too.
pub fn widens_rows(from: DType, to: DType) -> bool {
    let is_wide = matches!(to, DType::F32 | DType::F64);
    is_wide && from.is_float() && adds_rows(from) && from.bits() < to.bits()
}

/// Of rows that are added to those of a shape.
fn added_meta(cx: &mut MetaCx<'_>, acc: Shape, value: &Shape, rows: ExtentValue, of: &str) -> Result<Vec<Shape>> {
    same_rank(cx, &acc, "the value", value)?;
    cx.same(&format!("axis 0 of the value and of {of}"), value.axes[0].extent, rows)?;
    for position in 1..acc.axes.len() {
        let what = format!("axis {position} of the value and of the accumulator");
        cx.same(&what, value.axes[position].extent, acc.axes[position].extent)?;
    }
    Ok(vec![acc])
}

/// A vector of integers.
fn vector(cx: &mut MetaCx<'_>, param: &str) -> Result<Shape> {
    let shape = cx.tensor(param)?;
    check_index(cx.name(), shape.dtype)?;
    if shape.axes.len() != 1 {
        let message = format!("{}: `{param}` has rank {}, not 1", cx.name(), shape.axes.len());
        return Err(Diagnostic::user(code::RANK, message));
    }
    Ok(shape)
}

fn runs_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let index = vector(cx, "index")?;
    Ok(vec![places(cx)?, Shape { dtype: DType::I32, axes: index.axes }])
}

fn counts_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    vector(cx, "index")?;
    Ok(vec![places(cx)?])
}

/// A number for each place.
fn places(cx: &mut MetaCx<'_>) -> Result<Shape> {
    let Some(size) = cx.extent("size") else { return Err(Diagnostic::bug("places have a size")) };
    let known = cx.math.known(size);
    cx.require(known.map(|size| size >= 0), code::VALUE, || format!("the size is {}", known.unwrap_or(0)))?;
    Ok(Shape { dtype: DType::I32, axes: vec![cx.axis(size)] })
}

fn put_runs_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (ends, order, value) = (vector(cx, "ends")?, vector(cx, "order")?, cx.tensor("value")?);
    let given = cx.call.dtype("dtype");
    let dtype = given.unwrap_or(value.dtype);
    let acc = cx.opt_tensor("acc")?.unwrap_or_else(|| rows_of_number(&ends, &value, dtype));
    if given.is_some() && dtype != acc.dtype {
        let message = format!("{}: the result is {dtype}, the accumulator is {}", cx.name(), acc.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("the result is of the accumulator's type"));
    }
    check_types(cx, acc.dtype == value.dtype || widens_rows(value.dtype, acc.dtype), &acc, &value)?;
    if acc.axes.is_empty() {
        return Err(Diagnostic::user(code::RANK, format!("{}: rows of what has no axis", cx.name())));
    }
    cx.same("axis 0 of the ends and of the accumulator", ends.axes[0].extent, acc.axes[0].extent)?;
    added_meta(cx, acc, &value, order.axes[0].extent, "the order")
}

/// As many rows of a number of a type as there are runs, as wide as those of the value.
fn rows_of_number(ends: &Shape, value: &Shape, dtype: DType) -> Shape {
    let mut rows = Shape { dtype, ..value.clone() };
    if let Some(axis) = rows.axes.first_mut() {
        *axis = ends.axes[0];
    }
    rows
}

fn weighted_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (ends, order) = (vector(cx, "ends")?, vector(cx, "order")?);
    let (value, weight) = (cx.tensor("value")?, cx.tensor("weight")?);
    if value.axes.len() != 2 || weight.axes.len() != 2 {
        let (rank, own) = (value.axes.len(), weight.axes.len());
        let message = format!("{}: rows of rank {rank} with weights of rank {own}, not 2 and 2", cx.name());
        return Err(Diagnostic::user(code::RANK, message));
    }
    if value.dtype != weight.dtype || !matches!(value.dtype, DType::F16 | DType::BF16 | DType::F32) {
        let message = format!("{}: the value is {}, the weight {}", cx.name(), value.dtype, weight.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("both are f32, or both f16 or bf16"));
    }
    cx.same("axis 0 of the value and of the order", value.axes[0].extent, order.axes[0].extent)?;
    let [places, groups, size] =
        [&ends.axes[0], &weight.axes[0], &weight.axes[1]].map(|axis| cx.math.known(axis.extent));
    if let (Some(places), Some(groups), Some(size)) = (places, groups, size) {
        cx.require(Some(groups.checked_mul(size) == Some(places)), code::VALUE, || {
            format!("{places} places in {groups} groups of {size}")
        })?;
    }
    let axes = vec![weight.axes[0], value.axes[1]];
    Ok(vec![Shape { dtype: value.dtype, axes }])
}

fn put_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("acc")?;
    Ok(vec![clone_strides(sizes, strides)])
}

fn put_runs_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    // Rows of a number lie one after the other.
    if cx.tensor("acc").is_ok() { put_layout(cx) } else { Ok(vec![row_major_strides(&cx.results[0])]) }
}

fn put_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (acc, index, value) = (cx.tensor("acc")?, cx.tensor("index")?, cx.tensor("value")?);
    let places = positions(cx.call.row.name, index, 0, acc.sizes[0], true)?;
    Ok(vec![added(acc, value, places.into_iter().zip(0..).collect())])
}

fn counts_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (index, size) = (cx.tensor("index")?, cx.results[0].1[0]);
    let counts = counted(&positions(cx.call.row.name, index, 0, size, true)?, size);
    Ok(vec![View::from_i64(DType::I32, vec![size], counts)])
}

/// How many elements each place has.
fn counted(places: &[usize], size: usize) -> Vec<i64> {
    let mut counts = vec![0; size];
    places.iter().for_each(|place| counts[*place] += 1);
    counts
}

fn runs_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (index, size) = (cx.tensor("index")?, cx.results[0].1[0]);
    let places = positions(cx.call.row.name, index, 0, size, true)?;
    let mut ends = counted(&places, size);
    let mut before = 0;
    for end in &mut ends {
        before += *end;
        *end = before;
    }
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|position| places[*position]);
    let order = order.into_iter().map(|position| position as i64).collect();
    Ok(vec![View::from_i64(DType::I32, vec![size], ends), View::from_i64(DType::I32, vec![places.len()], order)])
}

fn put_runs_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (value, name) = (cx.tensor("value")?, cx.call.row.name);
    let (dtype, sizes) = cx.results[0].clone();
    let filled = View::repeated(dtype, cx.scalar("acc").unwrap_or(Value::Int(0)), sizes);
    let acc = cx.opt_tensor("acc").unwrap_or(&filled);
    Ok(vec![added(acc, value, rows_of_runs(name, cx.tensor("ends")?, cx.tensor("order")?)?)])
}

fn weighted_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (value, weight, ends) = (cx.tensor("value")?, cx.tensor("weight")?, cx.tensor("ends")?);
    let rows = rows_of_runs(cx.call.row.name, ends, cx.tensor("order")?)?;
    let (width, size) = (value.sizes[1], weight.sizes[1]);
    let nothing = View::repeated(value.dtype, Value::Float(0.0), vec![ends.sizes[0], width]);
    let (sums, weights) = (added(&nothing, value, rows).to_f64(), weight.to_f64());
    let (dtype, sizes) = cx.results[0].clone();
    let mut totals = vec![0.0f64; sizes.iter().product()];
    for (place, weight) in weights.iter().enumerate() {
        for column in 0..width {
            // Products are rounded, as where they are operations.
            totals[place / size * width + column] += f64::from((sums[place * width + column] * weight) as f32);
        }
    }
    totals.iter_mut().for_each(|total| *total = f64::from(*total as f32));
    Ok(vec![View::from_f64(dtype, sizes, &totals)])
}

/// The place of each row that runs have, and the row.
fn rows_of_runs(name: &str, ends: &View, order: &View) -> Result<Vec<(usize, usize)>> {
    let runs = runs_between(name, &ends.to_i64(), order.sizes[0])?;
    let rows = positions(name, order, 0, order.sizes[0], false)?;
    let of_run = |(place, run): (usize, Range<usize>)| rows[run].iter().map(move |row| (place, *row));
    Ok(runs.into_iter().enumerate().flat_map(of_run).collect())
}

/// Runs that end there, the first one from 0 on.
fn runs_between(name: &str, ends: &[i64], length: usize) -> Result<Vec<Range<usize>>> {
    let mut start = 0;
    let mut runs = Vec::with_capacity(ends.len());
    for (i, &end) in ends.iter().enumerate() {
        let Some(end) = usize::try_from(end).ok().filter(|end| (start..=length).contains(end)) else {
            let message = format!("{name}: run {i} ends at {end}, it must end from {start} to {length}");
            return Err(Diagnostic::user(code::VALUE, message).note("ends of runs ascend"));
        };
        runs.push(start..end);
        start = end;
    }
    Ok(runs)
}

/// Refuses an index of so many places that holds what is none of them, counted from either end.
pub fn check_runs(name: &str, index: &HostTensor, size: i64) -> Result<()> {
    positions(name, &View::load(index), 0, usize::try_from(size).unwrap_or(0), true).map(drop)
}

/// Refuses ends of runs that do not ascend, or an order that holds what is no position.
pub fn check_ends(name: &str, ends: &HostTensor, order: &HostTensor) -> Result<()> {
    rows_of_runs(name, &View::load(ends), &View::load(order)).map(drop)
}

/// `acc` with rows of the value added: which row of it, and which of the value.
fn added(acc: &View, value: &View, rows: Vec<(usize, usize)>) -> View {
    let (dtype, sizes) = (acc.dtype, acc.sizes.clone());
    let width: usize = sizes[1..].iter().product();
    let result = if dtype.is_float() {
        // Sums are rounded once.
        let (mut sums, terms) = (acc.to_f64(), value.to_f64());
        for (place, row) in rows {
            for column in 0..width {
                sums[place * width + column] += terms[row * width + column];
            }
        }
        View::from_f64(dtype, sizes, &sums)
    } else {
        let (mut sums, terms) = (acc.values(), value.values());
        let op = if dtype == DType::Bool { BinaryOp::LogicalOr } else { BinaryOp::Add };
        for (place, row) in rows {
            for column in 0..width {
                let sum = &mut sums[place * width + column];
                *sum = eval::binary(op, dtype, *sum, terms[row * width + column]);
            }
        }
        View::from_values(dtype, sizes, &sums)
    };
    let meta = acc.meta();
    result.laid(&clone_strides(&meta.sizes, &meta.strides))
}

/// Whether kernels have no sums of the type.
fn put_stays(fusion: &Fusion, op: &Op, _: &Call) -> bool {
    !adds_rows(fusion.tensors[op.output()].dtype)
}

/// The runs of the index, and the rows added by them.
fn put_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let (acc, index) = (b.tensor_operand(name, args.src("acc")?)?, b.tensor_operand(name, args.src("index")?)?);
    let size = operand(extents(b, acc)[0]);
    let row = table::find("index_runs").ok_or_else(|| Diagnostic::bug("index_runs is no row of the table"))?;
    let made = b.apply(&Args::new(row).value("index", index).value("size", size))?;
    let [ends, order] = made.try_into().map_err(|_| Diagnostic::bug("runs have ends and an order"))?;
    decide_alike(b, ends, acc, 1);
    decide_alike(b, order, index, 1);
    let dtype = b.dtype(Operand::Tensor(acc));
    let value = b.tensor_operand(name, args.src("value")?)?;
    let value = before_widening(b, value, dtype);
    // Rows of a number are as those of the value, which need not say that they have one element.
    let filled = filling(b, acc).filter(|_| has_rows_of(b, value, acc));
    let is_wider = b.dtype(Operand::Tensor(value)) != dtype;
    let result = call(b, "index_put_runs", |args| {
        let args = args.value("ends", ends).value("order", order).value("value", value);
        match filled {
            Some(number) if is_wider => args.value("acc", Operand::Scalar(number)).with("dtype", OpArg::DType(dtype)),
            Some(number) => args.value("acc", Operand::Scalar(number)),
            None => args.value("acc", acc),
        }
    })?;
    decide_alike(b, result, acc, b.rank(acc));
    Ok(vec![result])
}

/// What a value is a conversion of to the type that it is added in: nobody has to store and read the wider rows.
fn before_widening(b: &FusionBuilder, value: TensorId, dtype: DType) -> TensorId {
    let TensorDef::Op(op) = b.definition(value) else { return value };
    match (&b.op(op).kind, &b.op(op).inputs[..]) {
        (OpKind::Cast(_), [narrow @ Operand::Tensor(x)]) if widens_rows(b.dtype(*narrow), dtype) => *x,
        _ => value,
    }
}

/// Whether the axes of a value behind the first one are known to be of the kinds of another tensor's, or not at all.
fn has_rows_of(b: &FusionBuilder, value: TensorId, other: TensorId) -> bool {
    let mut kinds = b.axes(value).iter().zip(b.axes(other)).map(|(own, other)| (own.kind, other.kind)).skip(1);
    kinds.all(|(own, other)| own == other || own == AxisKind::Symbolic)
}

/// The number that all elements of a tensor are, if it is filled with one: then nobody has to store and read it.
fn filling(b: &FusionBuilder, x: TensorId) -> Option<ScalarId> {
    let TensorDef::Op(op) = b.definition(x) else { return None };
    match (&b.op(op).kind, &b.op(op).inputs[..]) {
        (OpKind::Full, [Operand::Scalar(number)]) => Some(*number),
        _ => None,
    }
}
