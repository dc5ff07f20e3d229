//! Products of matrices in groups whose sizes are data, and of matrices with
//! scales. `alpha * product + beta * bias` is computed in `f64` and rounded once,
//! to `dtype`.
//!
//! nvFuser lists three results for the forms with scales: the product, and the
//! scales of its blocks and its global scale if they are asked for. It evaluates
//! neither of the latter, so they are refused here, and the rows have one
//! result; its reader takes `None` for the others.

use super::args::Args;
use super::call::Attr;
use super::cx::MetaCx;
use super::draft::CallDraft;
use super::matmul::need_axes;
use super::movement::{Form, Movement};
use super::py_form::{PyArgs, PyForm};
use super::row::{OpParam, OpParamKind, OpRow, Primitive, ResultLayout, dtype, flag, int, opt, req};
use super::swizzle;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{AxisMeta, ExtentValue, Shape};
use crate::fusion::{AxisKind, FusionBuilder, Operand};
use crate::num::{BinaryOp, DType};

mod evaluate;
mod experts;
mod scales;
mod steps;
mod sums;
#[cfg(test)]
mod tests;

pub use evaluate::{Experts, check_experts, check_groups};
pub use steps::of_nothing as grouped_of_nothing;

const MAT1: OpParam = req("mat1", OpParamKind::Tensor);
const MAT2: OpParam = req("mat2", OpParamKind::Tensor);
const ALPHA: OpParam = opt("alpha", OpParamKind::Tensor);
const BIAS: OpParam = opt("bias", OpParamKind::Tensor);
const BETA: OpParam = opt("beta", OpParamKind::Tensor);
const BLOCK_SIZE: OpParam = int("output_block_scale_size", 0);
const BLOCK_DTYPE: OpParam = dtype("output_block_scale_dtype", DType::BF16);
const GAMMA: OpParam = flag("output_gamma");

pub(super) const ROWS: &[OpRow] = &[
    OpRow::primitive(
        "grouped_mm",
        &[
            MAT1,
            MAT2,
            req("offsets", OpParamKind::Tensor),
            opt("scale1", OpParamKind::Tensor),
            opt("scale2", OpParamKind::Tensor),
            ALPHA,
            BIAS,
            BETA,
            opt("dtype", OpParamKind::DType),
            BLOCK_SIZE,
            BLOCK_DTYPE,
            GAMMA,
        ],
        build_grouped,
        Primitive { meta: grouped_meta, layout: ResultLayout::Dense, eval: evaluate::grouped, decompose: Some(steps::grouped), movement: Movement::LIBRARY.form(Form::GroupedProducts) },
        "Products of groups that end at offsets: of columns of mat1 and rows of mat2 [m, k] [k, n] (one result for each \
         group), of columns of mat2 [g, m, k] [k, n], or of rows of mat1 [m, k] [g, k, n]; what is in no group is 0. \
         alpha * product + beta * bias, mat1 and mat2 multiplied by their scales; the type is bf16 with scales, else \
         that of mat1, unless given.",
        "N§2, PyTorch _grouped_mm",
    )
    .py(PyForm { optional_results: true, ..PyForm::args(PyArgs::Grouped) })
    .tensor_cores(),
    sums::ROW,
    OpRow::primitive(
        "scaled_mm",
        &[
            MAT1,
            MAT2,
            req("scale1", OpParamKind::Tensor),
            req("scale2", OpParamKind::Tensor),
            ALPHA,
            BIAS,
            BETA,
            dtype("dtype", DType::BF16),
            BLOCK_SIZE,
            BLOCK_DTYPE,
            GAMMA,
        ],
        build_scaled,
        Primitive { meta: scaled_meta, layout: ResultLayout::Dense, eval: evaluate::scaled, decompose: Some(steps::scaled), movement: Movement::LIBRARY },
        "alpha * (mat1 * scale1) (mat2 * scale2) + beta * bias: one scale for all, one for each row of mat1 and each \
         column of mat2, or swizzled scales of blocks along k, of 16 (f8e4m3fn) or 32 (f8e8m0fnu).",
        "N§2, PyTorch _scaled_mm",
    )
    .py(PyForm { optional_results: true, ..PyForm::SAME })
    .tensor_cores()
    .stays_if(steps::scaled_stays),
    OpRow::primitive(
        "cutlass_nvfp4_grouped_mm",
        &[
            MAT1,
            MAT2,
            req("scale1", OpParamKind::Tensor),
            req("scale2", OpParamKind::Tensor),
            req("alpha", OpParamKind::Tensor),
            req("problem_sizes", OpParamKind::Tensor),
            req("expert_offsets", OpParamKind::Tensor),
            req("sf_offsets", OpParamKind::Tensor),
            dtype("dtype", DType::BF16),
        ],
        build_cutlass,
        Primitive { meta: cutlass_meta, layout: ResultLayout::Dense, eval: evaluate::cutlass, decompose: Some(experts::cutlass), movement: Movement::LIBRARY.form(Form::ScaledGroups) },
        "Rows of mat1 from each of expert_offsets on times the matrix of their group in mat2, both f4e2m1fn with swizzled \
         scales of blocks of 16, times alpha of the group. The rows of problem_sizes are (rows, n, k); sf_offsets are the \
         rows of scale1 at which the groups' scales start.",
        "N§2",
    ),
];

// ---- build ----

fn build_grouped(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    check_pair(args, "scale1", "scale2")?;
    check_pair(args, "scale2", "scale1")?;
    check_pair(args, "bias", "beta")?;
    check_pair(args, "beta", "bias")?;
    let mat1 = b.tensor_operand("grouped_mm", args.src("mat1")?)?;
    let own = if args.has("scale1") { DType::BF16 } else { b.dtype(Operand::Tensor(mat1)) };
    // Asking for the type that it has anyway says nothing.
    let other = args.dtype("dtype").filter(|dtype| *dtype != own);
    b.push_draft(without_output_scales(args)?.attr("dtype", other.map_or(Attr::None, Attr::DType)))
}

fn build_scaled(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    check_pair(args, "beta", "bias")?;
    b.push_draft(without_output_scales(args)?)
}

fn build_cutlass(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

/// One operand makes no sense without the other.
fn check_pair(args: &Args, given: &str, needed: &str) -> Result<()> {
    if !args.has(given) || args.has(needed) {
        return Ok(());
    }
    let message = format!("{}: `{given}` is given without `{needed}`", args.row().name);
    Err(Diagnostic::user(code::ATTRIBUTE, message).note("give both or neither"))
}

/// Scales of the result are refused; their attributes have their defaults.
fn without_output_scales(args: &Args) -> Result<CallDraft> {
    let size = args.int("output_block_scale_size").unwrap_or(0);
    if size != 0 || args.flag("output_gamma") {
        let what = if size != 0 { format!("output_block_scale_size({size})") } else { "output_gamma".to_string() };
        let message = format!("{}: {what} is not evaluated by nvFuser and has no meaning yet", args.row().name);
        return Err(
            Diagnostic::unsupported(code::NOT_EVALUATED, message).note("quantise the result with nv_block_quantize")
        );
    }
    Ok(CallDraft::new(args).attr("output_block_scale_dtype", Attr::DType(DType::BF16)))
}

// ---- meta ----

/// The tensor of a name, of a rank and one of some types.
fn operand(cx: &MetaCx<'_>, name: &str, rank: usize, types: &[DType]) -> Result<Shape> {
    let shape = cx.tensor(name)?;
    need_axes(cx, name, &shape, rank, rank)?;
    if types.is_empty() || types.contains(&shape.dtype) {
        return Ok(shape);
    }
    let names: Vec<_> = types.iter().map(|dtype| dtype.name()).collect();
    let message = format!("{}: `{name}` is {}, it must be {}", cx.name(), shape.dtype, names.join(" or "));
    Err(Diagnostic::user(code::DTYPE, message).note("cast it"))
}

/// The matrices have one type of floats and one extent to be summed over.
fn check_matrices(cx: &mut MetaCx<'_>, a: &Shape, b: &Shape) -> Result<()> {
    let name = cx.name();
    if a.dtype != b.dtype {
        let message = format!("{name}: `mat1` is {}, `mat2` is {}", a.dtype, b.dtype);
        return Err(Diagnostic::user(code::DTYPE, message).note("cast one of them"));
    }
    if !a.dtype.is_float() {
        return Err(Diagnostic::user(code::DTYPE, format!("{name}: not defined on {}", a.dtype)));
    }
    let (last, other) = (a.axes.len() - 1, b.axes.len() - 2);
    cx.same(&format!("axis {last} of `mat1` and axis {other} of `mat2`"), a.axes[last].extent, b.axes[other].extent)?;
    Ok(())
}

/// The type of the result: a floating-point type.
fn result_type(cx: &MetaCx<'_>, default: DType) -> Result<DType> {
    let dtype = cx.call.dtype("dtype").unwrap_or(default);
    if dtype.is_float() {
        return Ok(dtype);
    }
    Err(Diagnostic::user(code::DTYPE, format!("{}: the result cannot be {dtype}", cx.name()))
        .note("the result is a floating-point type"))
}

/// An operand's axes have these extents, or repeat.
fn check_axes(cx: &mut MetaCx<'_>, name: &str, expected: &[ExtentValue]) -> Result<()> {
    let Some(shape) = cx.opt_tensor(name)? else { return Ok(()) };
    need_axes(cx, name, &shape, expected.len(), expected.len())?;
    for (i, (own, &expected)) in shape.axes.iter().zip(expected).enumerate() {
        if own.kind == AxisKind::Iteration {
            cx.same(&format!("axis {i} of `{name}` and what it scales"), own.extent, expected)?;
        }
    }
    Ok(())
}

/// `alpha` and `beta` are one number each; `bias` broadcasts to the result.
fn check_epilogue(cx: &mut MetaCx<'_>, result: &[AxisMeta]) -> Result<()> {
    for name in ["alpha", "beta"] {
        if let Some(shape) = cx.opt_tensor(name)? {
            check_float(cx, name, &shape)?;
            need_axes(cx, name, &shape, 0, 1)?;
            let one = cx.constant(1);
            check_axes(cx, name, &vec![one; shape.axes.len()])?;
        }
    }
    if let Some(shape) = cx.opt_tensor("bias")? {
        check_float(cx, "bias", &shape)?;
        need_axes(cx, "bias", &shape, 0, result.len())?;
        let tail = &result[result.len() - shape.axes.len()..];
        check_axes(cx, "bias", &tail.iter().map(|axis| axis.extent).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn check_float(cx: &MetaCx<'_>, name: &str, shape: &Shape) -> Result<()> {
    if shape.dtype.is_float() {
        return Ok(());
    }
    let message = format!("{}: `{name}` is {}, it must be floating point", cx.name(), shape.dtype);
    Err(Diagnostic::user(code::DTYPE, message).note("cast it"))
}

fn grouped_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (a, b) = (cx.tensor("mat1")?, cx.tensor("mat2")?);
    let ranks = (a.axes.len(), b.axes.len());
    if !matches!(ranks, (2, 2) | (3, 2) | (2, 3)) {
        let message = format!("{}: `mat1` has rank {} and `mat2` rank {}", cx.name(), ranks.0, ranks.1);
        return Err(Diagnostic::user(code::RANK, message)
            .note("ranks are 2 and 2, 3 and 2, or 2 and 3: offsets split a matrix; use matmul for two stacks"));
    }
    check_matrices(cx, &a, &b)?;
    let groups = sums::group_axis(cx, &a, &b)?;
    let (m, n) = (a.axes[ranks.0 - 2], b.axes[ranks.1 - 1]);
    let axes = if ranks == (2, 2) { vec![groups, m, n] } else { vec![m, n] };
    let (one, group) = (cx.constant(1), groups.extent);
    // Scales have the axis of groups where they or the result have it.
    let (left, right) = ([group, m.extent, one], [group, one, n.extent]);
    let skip = |rank: usize| usize::from(rank.max(axes.len()) == 2);
    for (name, expected) in [("scale1", &left[skip(ranks.0)..]), ("scale2", &right[skip(ranks.1)..])] {
        if let Some(scale) = cx.opt_tensor(name)? {
            check_float(cx, name, &scale)?;
            check_axes(cx, name, expected)?;
        }
    }
    check_epilogue(cx, &axes)?;
    let own = if cx.opt_tensor("scale1")?.is_some() { DType::BF16 } else { a.dtype };
    Ok(vec![Shape { dtype: result_type(cx, own)?, axes }])
}

/// The number of elements along k that one scale is for, if scales of a type
/// are swizzled.
fn block_of(scale: DType) -> Option<usize> {
    match scale {
        DType::F8E4M3FN => Some(16),
        DType::F8E8M0FNU => Some(32),
        _ => None,
    }
}

fn scaled_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (a, b) = (operand(cx, "mat1", 2, &[])?, operand(cx, "mat2", 2, &[])?);
    check_matrices(cx, &a, &b)?;
    let (m, k, n, one) = (a.axes[0], a.axes[1].extent, b.axes[1], cx.constant(1));
    for (name, rows, expected) in [("scale1", m, [m.extent, one]), ("scale2", n, [one, n.extent])] {
        let scale = cx.tensor(name)?;
        check_float(cx, name, &scale)?;
        match block_of(scale.dtype) {
            Some(block) => check_swizzled(cx, name, &scale, rows.extent, k, block)?,
            None => {
                need_axes(cx, name, &scale, 0, 2)?;
                let rank = scale.axes.len();
                check_axes(cx, name, &if rank == 2 { expected.to_vec() } else { vec![one; rank] })?;
            }
        }
    }
    let axes = vec![m, n];
    check_epilogue(cx, &axes)?;
    Ok(vec![Shape { dtype: result_type(cx, DType::BF16)?, axes }])
}

/// Swizzled scales of any rank have as many elements as their tiles.
fn check_swizzled(
    cx: &mut MetaCx<'_>,
    name: &str,
    scale: &Shape,
    rows: ExtentValue,
    k: ExtentValue,
    block: usize,
) -> Result<()> {
    check_multiple(cx, k, block)?;
    let mut tiles = |extent: ExtentValue, step: usize| {
        let step = cx.constant(step as i64);
        let count = cx.math.binary(BinaryOp::CeilDiv, extent, step);
        cx.mul(count, step)
    };
    let rows = tiles(rows, swizzle::ROWS);
    let columns = tiles(k, block * swizzle::COLUMNS);
    let block = cx.constant(block as i64);
    let columns = cx.math.binary(BinaryOp::CeilDiv, columns, block);
    let expected = cx.mul(rows, columns);
    let one = cx.constant(1);
    let elements = scale.axes.iter().fold(one, |product, axis| cx.math.binary(BinaryOp::Mul, product, axis.extent));
    cx.same(&format!("elements of `{name}` and of the swizzled scales"), elements, expected)?;
    Ok(())
}

/// The matrices' common extent is a multiple of a number.
fn check_multiple(cx: &MetaCx<'_>, k: ExtentValue, of: usize) -> Result<()> {
    let known = cx.math.known(k);
    let message = || format!("{} elements of a row are no multiple of {of}", known.unwrap_or(0));
    cx.require(known.map(|k| k % of as i64 == 0), code::EXTENT, message)
}

fn cutlass_meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    use DType::{BF16, F4E2M1FN, F8E4M3FN, F16, F32, I32};
    let (a, b) = (operand(cx, "mat1", 2, &[F4E2M1FN])?, operand(cx, "mat2", 3, &[F4E2M1FN])?);
    check_matrices(cx, &a, &b)?;
    let (k, groups, n) = (a.axes[1].extent, b.axes[0].extent, b.axes[2]);
    // A row of scales is a whole number of tiles.
    check_multiple(cx, k, 16 * swizzle::COLUMNS)?;
    let block = cx.constant(16);
    let columns = cx.math.binary(BinaryOp::Div, k, block);
    let three = cx.constant(3);
    let own = operand(cx, "scale1", 2, &[F8E4M3FN])?;
    cx.same("axis 1 of `scale1` and the blocks of a row", own.axes[1].extent, columns)?;
    let other = operand(cx, "scale2", 3, &[F8E4M3FN])?;
    check_exact(cx, "scale2", &[(0, groups), (2, columns)])?;
    if let (Some(own), Some(columns)) = (cx.math.known(other.axes[1].extent), cx.math.known(n.extent)) {
        let is_enough = (columns as u64).div_ceil(swizzle::ROWS as u64) * swizzle::ROWS as u64 <= own as u64;
        cx.require(Some(is_enough), code::EXTENT, || {
            format!(
                "axis 1 of `scale2` is {own}, scales of {columns} columns are padded to a multiple of {}",
                swizzle::ROWS
            )
        })?;
    }
    operand(cx, "alpha", 1, &[F32])?;
    check_exact(cx, "alpha", &[(0, groups)])?;
    operand(cx, "problem_sizes", 2, &[I32])?;
    check_exact(cx, "problem_sizes", &[(0, groups), (1, three)])?;
    for name in ["expert_offsets", "sf_offsets"] {
        operand(cx, name, 1, &[I32])?;
        check_exact(cx, name, &[(0, groups)])?;
    }
    let dtype = result_type(cx, BF16)?;
    if !matches!(dtype, BF16 | F16) {
        let message = format!("{}: the result cannot be {dtype}", cx.name());
        return Err(Diagnostic::user(code::DTYPE, message).note("the result is bf16 or f16"));
    }
    Ok(vec![Shape { dtype, axes: vec![a.axes[0], n] }])
}

/// Some axes of an operand have these extents.
fn check_exact(cx: &mut MetaCx<'_>, name: &str, expected: &[(usize, ExtentValue)]) -> Result<()> {
    let shape = cx.tensor(name)?;
    for &(axis, extent) in expected {
        cx.same(&format!("axis {axis} of `{name}`"), shape.axes[axis].extent, extent)?;
    }
    Ok(())
}
