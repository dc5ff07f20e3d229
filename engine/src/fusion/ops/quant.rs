//! Quantisation of blocks of neighbours along the last axis, and the order in
//! which tensor cores take the scales of groups of rows.
//!
//! | `dtype` | block | scale | of |
//! |---|---|---|---|
//! | `f4e2m1fn` | 16 | `f8e4m3fn` | largest magnitude / 6, times `global_scale` |
//! | `f8e4m3fn` | 32 | `f8e8m0fnu` | largest magnitude / 448, rounded up |
//!
//! Arithmetic is that of nvFuser's kernels, in `f32`. Scales that are swizzled
//! are given as the whole buffer: padded to tiles of 128 rows and 4 columns
//! (see [`super::swizzle`]), padding is 0. nvFuser says the same of the scales of
//! one matrix; those of groups it calls by their sizes before padding, though
//! only their buffer means anything. Kernels put a row where the offsets say or leave it
//! out; that rows fit is checked by the evaluator.

use super::args::Args;
use super::cx::MetaCx;
use super::draft::CallDraft;
use super::matmul::need_axes;
use super::movement::{Form, Movement};
use super::row::{OpParam, OpParamKind, OpRow, Primitive, ResultLayout, dtype, flag, int, opt, req};
use super::swizzle;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{AxisMeta, ExtentValue, Shape};
use crate::fusion::{FusionBuilder, Operand};
use crate::num::{BinaryOp, DType};

mod evaluate;
mod steps;
#[cfg(test)]
mod tests;

const INPUT: OpParam = req("x", OpParamKind::Tensor).py("input");
const INPUT_OFFSETS: OpParam = req("input_offsets", OpParamKind::Tensor);
const OUTPUT_OFFSETS: OpParam = req("output_offsets", OpParamKind::Tensor);
const GLOBAL_SCALE: OpParam = opt("global_scale", OpParamKind::Tensor);
const BLOCK_SIZE: OpParam = int("block_size", 16);
const DTYPE: OpParam = dtype("dtype", DType::F4E2M1FN);

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "nv_block_quantize",
        &[INPUT, GLOBAL_SCALE, flag("swizzle_block_scales"), BLOCK_SIZE, DTYPE],
        as_given,
        Primitive { meta: block_meta, layout: ResultLayout::Dense, eval: evaluate::block, decompose: Some(steps::block), movement: Movement::NEW },
        "x in blocks along the last axis, divided by their scales, and the scales: f4e2m1fn in blocks of 16 with scales of \
         f8e4m3fn, or f8e4m3fn in blocks of 32 with scales of f8e8m0fnu. Swizzled scales are padded to tiles of 128 by 4.",
        "N§2",
    )
    .results(2),
    OpRow::primitive(
        "nv_grouped_block_quantize",
        &[INPUT, INPUT_OFFSETS, OUTPUT_OFFSETS, GLOBAL_SCALE, BLOCK_SIZE, DTYPE],
        as_given,
        Primitive { meta: grouped_meta, layout: ResultLayout::Dense, eval: evaluate::grouped, decompose: Some(steps::grouped), movement: Movement::NEW.form(Form::Groups) },
        "nv_block_quantize to f4e2m1fn of the rows of groups; the scales are placed as by \
         preprocess_grouped_matmul_input_sf.",
        "N§2",
    )
    .results(2),
    OpRow::primitive(
        "preprocess_grouped_matmul_input_sf",
        &[INPUT, INPUT_OFFSETS, OUTPUT_OFFSETS],
        as_given,
        Primitive { meta: layout_meta, layout: ResultLayout::Dense, eval: evaluate::layout, decompose: Some(steps::layout), movement: Movement::NEW.form(Form::Groups) },
        "The rows of each group from input_offsets on, swizzled in tiles of 128 by 4 from the row output_offsets of the \
         result on, which has 127 more rows for each group and whole tiles of columns; what is between is 0.",
        "N§2",
    ),
];

fn as_given(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

/// Types and extents of a quantisation that make sense.
struct Blocks {
    /// The type of the scales.
    scale: DType,
    /// The extent of their last axis.
    columns: ExtentValue,
}

fn blocks(cx: &mut MetaCx<'_>, x: &Shape) -> Result<Blocks> {
    let name = cx.name();
    let dtype = cx.call.dtype("dtype").unwrap_or(DType::F4E2M1FN);
    let refused = |message: String| Err(Diagnostic::user(code::DTYPE, format!("{name}: {message}")));
    if !matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return refused(format!("`x` is {}, it must be f32 or f16 or bf16", x.dtype));
    }
    let (block, scale) = match dtype {
        DType::F4E2M1FN => (16, DType::F8E4M3FN),
        DType::F8E4M3FN => (32, DType::F8E8M0FNU),
        _ => return refused(format!("the result cannot be {dtype}, it is f4e2m1fn or f8e4m3fn")),
    };
    let given = cx.call.int("block_size").unwrap_or(16);
    if given != block {
        let message = format!("{name}: blocks of {dtype} have {block} elements, block_size is {given}");
        return Err(Diagnostic::user(code::VALUE, message).note(format!("write block_size({block})")));
    }
    if let Some(global) = cx.opt_tensor("global_scale")? {
        need_axes(cx, "global_scale", &global, 0, 0)?;
        if global.dtype != DType::F32 {
            return refused(format!("`global_scale` is {}, it must be f32", global.dtype));
        }
    }
    if dtype == DType::F8E4M3FN && (cx.opt_tensor("global_scale")?.is_some() || cx.call.flag("swizzle_block_scales")) {
        let what = if cx.call.flag("swizzle_block_scales") { "swizzle_block_scales" } else { "global_scale" };
        let message = format!("{name}: {what} is not for {dtype}");
        return Err(Diagnostic::user(code::ATTRIBUTE, message).note("it is for f4e2m1fn"));
    }
    let Some(last) = x.axes.last() else {
        return Err(Diagnostic::user(code::RANK, format!("{name}: `x` has rank 0, it needs at least 1")));
    };
    let known = cx.math.known(last.extent);
    let message = || format!("the last axis of {} elements is no multiple of {block}", known.unwrap_or(0));
    cx.require(known.map(|n| n % block == 0), code::EXTENT, message)?;
    let block = cx.constant(block);
    Ok(Blocks { scale, columns: cx.math.binary(BinaryOp::Div, last.extent, block) })
}

/// An extent rounded up to a multiple.
fn padded(cx: &mut MetaCx<'_>, extent: ExtentValue, step: usize) -> ExtentValue {
    let step = cx.constant(step as i64);
    let count = cx.math.binary(BinaryOp::CeilDiv, extent, step);
    cx.mul(count, step)
}

fn quantized(cx: &MetaCx<'_>, x: &Shape) -> Shape {
    Shape { dtype: cx.call.dtype("dtype").unwrap_or(DType::F4E2M1FN), axes: x.axes.clone() }
}

fn block_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    let Blocks { scale, columns } = blocks(cx, &x)?;
    let mut axes = x.axes.clone();
    if cx.call.flag("swizzle_block_scales") {
        need_axes(cx, "x", &x, 2, 2)?;
        let (rows, columns) = (padded(cx, axes[0].extent, swizzle::ROWS), padded(cx, columns, swizzle::COLUMNS));
        axes = vec![cx.axis(rows), cx.axis(columns)];
    } else if let Some(last) = axes.last_mut() {
        *last = cx.axis(columns);
    }
    Ok(vec![quantized(cx, &x), Shape { dtype: scale, axes }])
}

/// The axes of the buffer of swizzled groups: `[rows + 127 * groups, columns]`,
/// columns in whole tiles.
fn group_axes(cx: &mut MetaCx<'_>, rows: ExtentValue, columns: ExtentValue) -> Result<Vec<AxisMeta>> {
    let mut offsets = Vec::with_capacity(2);
    for name in ["input_offsets", "output_offsets"] {
        let shape = cx.tensor(name)?;
        need_axes(cx, name, &shape, 1, 1)?;
        if !matches!(shape.dtype, DType::I32 | DType::I64) {
            let message = format!("{}: `{name}` is {}, it must be i32 or i64", cx.name(), shape.dtype);
            return Err(Diagnostic::user(code::DTYPE, message).note("cast it"));
        }
        offsets.push(shape.axes[0].extent);
    }
    let groups = cx.same("axis 0 of `input_offsets` and of `output_offsets`", offsets[0], offsets[1])?;
    let more = cx.constant(swizzle::ROWS as i64 - 1);
    let more = cx.mul(groups, more);
    let (rows, columns) = (cx.add(rows, more), padded(cx, columns, swizzle::COLUMNS));
    Ok(vec![cx.axis(rows), cx.axis(columns)])
}

fn grouped_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    need_axes(cx, "x", &x, 2, 2)?;
    let Blocks { scale, columns } = blocks(cx, &x)?;
    let result = quantized(cx, &x);
    if result.dtype != DType::F4E2M1FN {
        let message = format!("{}: the result cannot be {}, it is f4e2m1fn", cx.name(), result.dtype);
        return Err(Diagnostic::user(code::DTYPE, message));
    }
    let axes = group_axes(cx, x.axes[0].extent, columns)?;
    Ok(vec![result, Shape { dtype: scale, axes }])
}

fn layout_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    need_axes(cx, "x", &x, 2, 2)?;
    let axes = group_axes(cx, x.axes[0].extent, x.axes[1].extent)?;
    Ok(vec![Shape { dtype: x.dtype, axes }])
}
