//! Rows that are added to those of a tensor where an index says, any number of them to one.
//!
//! What adds them takes an index whose places ascend, so that the rows of a place are a run of positions: it reads each once,
//! in an order that no thread changes. `index_put_accumulate` is that behind an order of its index.

use super::super::args::{Args, OpArg};
use super::super::call::Call;
use super::super::cx::{EvalCx, LayoutCx, MetaCx};
use super::super::draft::CallDraft;
use super::super::extents::{call, decide_alike, extents, integer, operand};
use super::super::movement::{Form, Movement};
use super::super::resize::constant_of;
use super::super::row::{OpParamKind, OpRow, Primitive, ResultLayout, opt, req};
use super::super::table;
use super::{check_index, check_positions, positions, same_rank};
use crate::array::{View, clone_strides, row_major_strides};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{ExtentValue, Shape};
use crate::fusion::{Fusion, FusionBuilder, Op, OpKind, Operand, ScalarId, Src, TensorDef, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp, Value, eval};
use crate::tensor::HostTensor;

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
        "index_put_sorted",
        &[
            req("acc", OpParamKind::Value),
            req("index", OpParamKind::Tensor),
            req("order", OpParamKind::Tensor),
            req("value", OpParamKind::Tensor),
            opt("size", OpParamKind::Scalar),
        ],
        put_sorted,
        Primitive {
            meta: sorted_meta,
            layout: ResultLayout::Custom(sorted_layout),
            eval: sorted_eval,
            decompose: None,
            movement: Movement::LIBRARY.form(Form::PutSorted),
        },
        "acc with row value[order[i]] added to its row index[i], where index ascends. A number stands for size rows of it.",
        "index_put_accumulate behind the order of its index",
    ),
];

/// Whether kernels add rows of a type: they have sums of it, and a zero.
pub fn adds_rows(dtype: DType) -> bool {
    dtype.bits() >= 8 && !dtype.is_packed() && !matches!(dtype, DType::Bool | DType::F8E8M0FNU)
}

fn put(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

/// Rows that are added to a number have a size, and those of a tensor have its.
fn put_sorted(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let acc = b.check_operand(name, args.src("acc")?)?;
    let size = args.opt("size").map(|size| integer(b, name, "size", size)).transpose()?;
    if matches!(acc, Src::Tensor(_)) == size.is_some() {
        let message = format!("{name}: rows of a number have a size, those of a tensor have its own");
        return Err(Diagnostic::user(code::VALUE, message));
    }
    let Src::Tensor(_) = acc else {
        let value = b.tensor_operand(name, args.src("value")?)?;
        let acc = constant_of(b, name, acc, b.dtype(Operand::Tensor(value)))?;
        let size = size.map(operand).into_iter().collect();
        return b.push_draft(CallDraft::new(args).operand("acc", acc).operands("size", size));
    };
    b.push_draft(CallDraft::new(args))
}

fn put_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let acc = cx.tensor("acc")?;
    added_meta(cx, acc)
}

/// Of rows that are added to those of a shape.
fn added_meta(cx: &mut MetaCx<'_>, acc: Shape) -> Result<Vec<Shape>> {
    let (index, value) = (cx.tensor("index")?, cx.tensor("value")?);
    check_index(cx.name(), index.dtype)?;
    if value.dtype != acc.dtype {
        let message = format!("{}: the value is {}, the accumulator {}", cx.name(), value.dtype, acc.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("cast one of them"));
    }
    if index.axes.len() != 1 || acc.axes.is_empty() {
        let (rank, own) = (acc.axes.len(), index.axes.len());
        let message = format!("{}: an index of rank {own} into rank {rank}, not of rank 1 into axes", cx.name());
        return Err(Diagnostic::user(code::RANK, message));
    }
    same_rank(cx, &acc, "the value", &value)?;
    cx.same("axis 0 of the value and of the index", value.axes[0].extent, index.axes[0].extent)?;
    for position in 1..acc.axes.len() {
        let what = format!("axis {position} of the value and of the accumulator");
        cx.same(&what, value.axes[position].extent, acc.axes[position].extent)?;
    }
    Ok(vec![acc])
}

fn sorted_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (index, order) = (cx.tensor("index")?, cx.tensor("order")?);
    check_index(cx.name(), order.dtype)?;
    if order.axes.len() != 1 {
        let message = format!("{}: the order has rank {}, not 1", cx.name(), order.axes.len());
        return Err(Diagnostic::user(code::RANK, message));
    }
    let acc = match (cx.opt_tensor("acc")?, cx.extent("size")) {
        (Some(acc), _) => acc,
        (None, Some(size)) => filled_shape(cx, size)?,
        (None, None) => return Err(Diagnostic::bug(format!("{}: rows of a number have a size", cx.name()))),
    };
    let shapes = added_meta(cx, acc)?;
    cx.same("axis 0 of the index and of the order", index.axes[0].extent, order.axes[0].extent)?;
    Ok(shapes)
}

/// So many rows of a number, as wide as those of the value.
fn filled_shape(cx: &mut MetaCx<'_>, size: ExtentValue) -> Result<Shape> {
    let known = cx.math.known(size);
    cx.require(known.map(|size| size >= 0), code::VALUE, || format!("the size is {}", known.unwrap_or(0)))?;
    let mut rows = cx.tensor("value")?;
    let own = cx.axis(size);
    if let Some(axis) = rows.axes.first_mut() {
        *axis = own;
    }
    Ok(rows)
}

fn put_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    let (sizes, strides) = cx.tensor("acc")?;
    Ok(vec![clone_strides(sizes, strides)])
}

fn sorted_layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    match cx.call.operands("size").is_empty() {
        true => put_layout(cx),
        false => Ok(vec![row_major_strides(&cx.results[0])]),
    }
}

fn put_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (acc, index, value) = (cx.tensor("acc")?, cx.tensor("index")?, cx.tensor("value")?);
    let places = positions(cx.call.row.name, index, 0, acc.sizes[0], true)?;
    Ok(vec![added(acc, value, places.into_iter().zip(0..).collect())])
}

fn sorted_eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (value, name) = (cx.tensor("value")?, cx.call.row.name);
    let (dtype, sizes) = cx.results[0].clone();
    let filled = View::repeated(dtype, cx.scalar("acc").unwrap_or(Value::Int(0)), sizes);
    let acc = cx.opt_tensor("acc").unwrap_or(&filled);
    let places = ascending(name, cx.tensor("index")?, acc.sizes[0])?;
    let rows = positions(name, cx.tensor("order")?, 0, value.sizes[0], false)?;
    Ok(vec![added(acc, value, places.into_iter().zip(rows).collect())])
}

/// The elements of an index, none of which is less than the one before.
fn ascending(name: &str, index: &View, size: usize) -> Result<Vec<usize>> {
    let places = positions(name, index, 0, size, false)?;
    if let Some(i) = places.windows(2).position(|pair| pair[0] > pair[1]) {
        let message = format!("{name}: index[{}] is {}, behind {}", i + 1, places[i + 1], places[i]);
        return Err(Diagnostic::user(code::VALUE, message).note("an index that is sorted ascends"));
    }
    Ok(places)
}

/// Refuses an index of so many rows that does not ascend, or holds what is none of them.
pub fn check_sorted(name: &str, index: &HostTensor, size: i64) -> Result<()> {
    check_positions(name, index, 0, size)?;
    ascending(name, &View::load(index), usize::try_from(size).unwrap_or(0)).map(drop)
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

/// Places in order, and the rows added in this order.
fn put_steps(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let (acc, index) = (b.tensor_operand(name, args.src("acc")?)?, b.tensor_operand(name, args.src("index")?)?);
    let own = b.dtype(Operand::Tensor(index));
    // The number of rows need not fit the type of the index.
    let mut places = b.cast(index, DType::I64)?;
    if !own.is_unsigned() {
        let size = operand(extents(b, acc)[0]);
        let from_end = b.binary(BinaryOp::Lt, places, 0)?;
        let wrapped = b.binary(BinaryOp::Add, places, size)?;
        places = b.ternary(TernaryOp::Where, from_end, wrapped, places)?;
    }
    // All of them, the least first: one kernel has places and positions.
    let count = operand(extents(b, index)[0]);
    let [sorted, order] = smallest(b, places, count)?;
    [sorted, order].into_iter().for_each(|made| decide_alike(b, made, index, 1));
    let (value, filled) = (args.src("value")?, filling(b, acc));
    let size = operand(extents(b, acc)[0]);
    let result = call(b, "index_put_sorted", |args| {
        let args = args.value("index", sorted).value("order", order).value("value", value);
        match filled {
            Some(number) => args.value("acc", Operand::Scalar(number)).value("size", size),
            None => args.value("acc", acc),
        }
    })?;
    decide_alike(b, result, acc, b.rank(acc));
    Ok(vec![result])
}

/// The least elements of a line, so many, in order, and their positions.
fn smallest(b: &mut FusionBuilder, x: Operand, count: Src) -> Result<[Operand; 2]> {
    let row = table::find("topk").ok_or_else(|| Diagnostic::bug("topk is no row of the table"))?;
    let args = Args::new(row).value("x", x).value("k", count).with("dim", OpArg::Int(0));
    let args = args.with("largest", OpArg::Bool(false)).with("sorted", OpArg::Bool(true));
    b.apply(&args)?.try_into().map_err(|_| Diagnostic::bug("topk has elements and positions"))
}

/// The number that all elements of a tensor are, if it is filled with one: then nobody has to store and read it.
fn filling(b: &FusionBuilder, x: TensorId) -> Option<ScalarId> {
    let TensorDef::Op(op) = b.definition(x) else { return None };
    match (&b.op(op).kind, &b.op(op).inputs[..]) {
        (OpKind::Full, [Operand::Scalar(number)]) => Some(*number),
        _ => None,
    }
}
