//! Quantised blocks in simpler operations: a largest magnitude of each
//! block, its scale, and the block over the scale. Value by value that is what
//! [`super::evaluate`] computes, with what it says of NaN, infinities and zeros.

use super::super::args::Args;
use super::super::extents::{binary, constant, decide_alike, extents, operands, reshape};
use super::super::swizzle::steps::{in_groups, swizzled};
use super::evaluate::{E2M1_MAX, E4M3_MAX};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{FusionBuilder, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp};

/// The greatest and the least power of two of an `f8e8m0fnu`.
const POWERS: [f64; 2] = [1.7014118346046923e38, 5.877471754111438e-39];

pub(super) fn block(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let [quantised, scale] = quantised(b, args)?;
    let scale = if args.flag("swizzle_block_scales") { swizzled(b, args.row().name, scale)? } else { scale };
    Ok(vec![quantised, scale])
}

pub(super) fn grouped(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let [quantised, scale] = quantised(b, args)?;
    Ok(vec![quantised, in_groups(b, args, scale)?])
}

pub(super) fn layout(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand(args.row().name, args.src("x")?)?;
    Ok(vec![in_groups(b, args, Operand::Tensor(x))?])
}

/// The quantised elements of `x`, and the scales of its blocks.
fn quantised(b: &mut FusionBuilder, args: &Args) -> Result<[Operand; 2]> {
    let x = b.tensor_operand(args.row().name, args.src("x")?)?;
    let result = args.dtype("dtype").unwrap_or(DType::F4E2M1FN);
    let size = if result == DType::F8E4M3FN { 32 } else { 16 };
    let blocks = in_blocks(b, x, size)?;
    let (scale, factor) = match (size, args.opt("global_scale")) {
        (32, _) => e8m0_scale(b, blocks)?,
        (_, global) => e4m3_scale(b, blocks, global)?,
    };
    let rank = b.rank(x);
    let mut flags = vec![false; rank];
    flags.push(true);
    let factor = b.broadcast(factor, &flags)?;
    let mut quotients = b.binary(BinaryOp::Mul, blocks, factor)?;
    if result == DType::F8E4M3FN {
        quotients = b.binary(BinaryOp::Minimum, quotients, f64::from(E4M3_MAX))?;
        quotients = b.binary(BinaryOp::Maximum, quotients, f64::from(-E4M3_MAX))?;
    }
    let narrow = b.cast(quotients, result)?;
    let shape = operands(&extents(b, x));
    let quantised = reshape(b, narrow, shape)?;
    decide_alike(b, quantised, x, rank);
    Ok([quantised, scale])
}

/// `x` in `f32`, the last axis in blocks.
fn in_blocks(b: &mut FusionBuilder, x: TensorId, size: i64) -> Result<Operand> {
    let mut shape = extents(b, x);
    let block = constant(b, size);
    if let Some(last) = shape.last_mut() {
        *last = binary(b, BinaryOp::Div, *last, block);
    }
    shape.push(block);
    let blocks = reshape(b, x, operands(&shape))?;
    decide_alike(b, blocks, x, shape.len() - 2);
    b.cast(blocks, DType::F32)
}

/// `where(x < bound, x, bound)`: the bound for NaN too.
fn at_most(b: &mut FusionBuilder, x: Operand, bound: f64) -> Result<Operand> {
    let below = b.binary(BinaryOp::Lt, x, bound)?;
    b.ternary(TernaryOp::Where, below, x, bound)
}

/// The largest magnitude of each block but of NaN.
fn largest(b: &mut FusionBuilder, blocks: Operand) -> Result<Operand> {
    let magnitude = b.unary(UnaryOp::Abs, blocks)?;
    // What is no NaN is no less than 0.
    let number = b.binary(BinaryOp::Ge, magnitude, 0.0)?;
    let magnitude = b.ternary(TernaryOp::Where, number, magnitude, f64::NEG_INFINITY)?;
    b.reduce(ReduceOp::Max, magnitude, &[-1], false, None)
}

/// Scales of blocks of `f4e2m1fn`, and what the elements are multiplied by.
fn e4m3_scale(b: &mut FusionBuilder, blocks: Operand, global: Option<Src>) -> Result<(Operand, Operand)> {
    let largest = largest(b, blocks)?;
    let mut wanted = b.binary(BinaryOp::Div, largest, f64::from(E2M1_MAX))?;
    let global = match global {
        Some(global) => Some(b.tensor_operand("nv_block_quantize", global)?),
        None => None,
    };
    let Operand::Tensor(rows) = wanted else { return Err(Diagnostic::bug("a reduction gives a scalar")) };
    let flags = vec![true; b.rank(rows)];
    let global = global.map(|global| b.broadcast(Operand::Tensor(global), &flags)).transpose()?;
    if let Some(global) = global {
        wanted = b.binary(BinaryOp::Mul, wanted, global)?;
    }
    let bounded = at_most(b, wanted, f64::from(E4M3_MAX))?;
    let bounded = b.binary(BinaryOp::Maximum, bounded, f64::from(-E4M3_MAX))?;
    let scale = b.cast(bounded, DType::F8E4M3FN)?;
    let mut own = b.cast(scale, DType::F32)?;
    if let Some(global) = global {
        let inverse = b.unary(UnaryOp::Reciprocal, global)?;
        own = b.binary(BinaryOp::Mul, own, inverse)?;
    }
    let factor = b.unary(UnaryOp::Reciprocal, own)?;
    Ok((scale, at_most(b, factor, f64::from(f32::MAX))?))
}

/// Scales of blocks of `f8e4m3fn`, powers of two upwards, and what the elements are multiplied
/// by: their reciprocals, but 1 for the least and 0 for the greatest one.
fn e8m0_scale(b: &mut FusionBuilder, blocks: Operand) -> Result<(Operand, Operand)> {
    let [greatest, least] = POWERS;
    let largest = largest(b, blocks)?;
    let wanted = b.binary(BinaryOp::Mul, largest, f64::from(1.0 / E4M3_MAX))?;
    // Of a block of NaN it is negative and infinite.
    let wanted = b.unary(UnaryOp::Abs, wanted)?;
    let wanted = b.binary(BinaryOp::Minimum, wanted, greatest)?;
    // The nearest power, or the next one where that is less.
    let nearest = b.cast(wanted, DType::F8E8M0FNU)?;
    let nearest = b.cast(nearest, DType::F32)?;
    let is_less = b.binary(BinaryOp::Lt, nearest, wanted)?;
    let next = b.binary(BinaryOp::Mul, nearest, 2.0)?;
    let power = b.ternary(TernaryOp::Where, is_less, next, nearest)?;
    let inverse = b.unary(UnaryOp::Reciprocal, power)?;
    let is_greatest = b.binary(BinaryOp::Ge, power, greatest)?;
    let inverse = b.ternary(TernaryOp::Where, is_greatest, 0.0, inverse)?;
    let is_least = b.binary(BinaryOp::Le, power, least)?;
    let factor = b.ternary(TernaryOp::Where, is_least, 1.0, inverse)?;
    Ok((b.cast(power, DType::F8E8M0FNU)?, factor))
}
