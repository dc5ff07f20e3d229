//! Products of matrices with scales in simpler operations: what is multiplied on tensor cores, a product that
//! libraries compute in `f32`, and a kernel for what is done to the sums.
//!
//! Elements of at most eight bits are exact in `bf16`, those times the scale of their block too: at most four bits
//! of either, and exponents that only scales at the ends of their range leave.

use super::super::args::{Args, OpArg};
use super::super::call::Call;
use super::super::extents::{binary, call, constant, decide_alike, extents, operand, operands, reshape};
use super::super::swizzle::steps::in_rows;
use super::block_of;
use crate::diag::{Diagnostic, Result};
use crate::fusion::{AxisKind, Fusion, FusionBuilder, Op, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType};

/// Whether the axis that is summed over repeats in one matrix alone: products of libraries have it in both or in neither.
pub(super) fn scaled_stays(fusion: &Fusion, op: &Op, call: &Call) -> bool {
    let repeats = |name: &str, axis: usize| match op.inputs[call.operands(name)].first() {
        Some(Operand::Tensor(tensor)) => fusion.tensors[*tensor].axes[axis].kind == AxisKind::Broadcast,
        _ => false,
    };
    repeats("mat1", 1) != repeats("mat2", 0)
}

pub(super) fn scaled(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let result = args.dtype("dtype").unwrap_or(DType::BF16);
    let (left, right) = (b.tensor_operand(name, args.src("mat1")?)?, b.tensor_operand(name, args.src("mat2")?)?);
    let turned = b.permute(right, &[1, 0])?;
    let turned = b.tensor_operand(name, turned.into())?;
    let sides = [Side::new(b, args, left, "scale1")?, Side::new(b, args, turned, "scale2")?];
    let own = b.dtype(Operand::Tensor(left));
    let is_scaled = sides.iter().any(|side| side.block.is_some());
    let (factor, work) = match own {
        _ if own == DType::F64 || result == DType::F64 => (DType::F64, DType::F64),
        _ if own.bits() <= 8 => (DType::BF16, DType::F32),
        _ if own.is_reduced_float() && !is_scaled => (own, DType::F32),
        _ => (DType::F32, DType::F32),
    };
    let (rows, columns) = (sides[0].factor(b, name, factor)?, sides[1].factor(b, name, factor)?);
    let columns = b.permute(columns, &[1, 0])?;
    let mut sums = call(b, "matmul", |args| {
        let args = args.value("a", rows).value("b", columns);
        if factor == work { args } else { args.with("dtype", OpArg::DType(work)) }
    })?;
    for (side, repeats) in sides.iter().zip([[false, true], [true, false]]).filter(|(side, _)| side.block.is_none()) {
        let repeats = if b.rank(side.scale) == 2 { repeats } else { [true; 2] };
        let scale = as_matrix(b, name, side.scale.into(), work, repeats)?;
        sums = b.binary(BinaryOp::Mul, sums, scale)?;
    }
    let sums = finish(b, args, sums, work)?;
    Ok(vec![b.cast(sums, result)?])
}

/// A matrix of a product with its scales; the summed axis is its last one.
struct Side {
    matrix: TensorId,
    scale: TensorId,
    /// How many elements along it have one scale; none if a scale is for a whole row or for all.
    block: Option<usize>,
}

impl Side {
    fn new(b: &mut FusionBuilder, args: &Args, matrix: TensorId, scale: &str) -> Result<Self> {
        let scale = b.tensor_operand(args.row().name, args.src(scale)?)?;
        Ok(Self { matrix, scale, block: block_of(b.dtype(Operand::Tensor(scale))) })
    }

    /// What is multiplied, of a type.
    fn factor(&self, b: &mut FusionBuilder, name: &str, dtype: DType) -> Result<Operand> {
        let Some(block) = self.block else { return b.cast(self.matrix, dtype) };
        let [rows, width] = extents(b, self.matrix)[..] else {
            return Err(Diagnostic::bug(format!("{name}: a matrix has two axes")));
        };
        let size = constant(b, block as i64);
        let blocks = binary(b, BinaryOp::Div, width, size);
        let scales = in_rows(b, self.scale, rows, blocks)?;
        decide_alike(b, scales, self.matrix, 1);
        let scales = b.cast(scales, DType::F32)?;
        let scales = b.broadcast(scales, &[false, false, true])?;
        let split = reshape(b, self.matrix, operands(&[rows, blocks, size]))?;
        decide_alike(b, split, self.matrix, 1);
        let split = b.cast(split, DType::F32)?;
        let scaled = b.binary(BinaryOp::Mul, split, scales)?;
        let scaled = b.cast(scaled, dtype)?;
        let scaled = reshape(b, scaled, vec![operand(rows), operand(width)])?;
        decide_alike(b, scaled, self.matrix, 2);
        Ok(scaled)
    }
}

/// A tensor of at most two axes, the last ones, as one of two, of a type. Those of `is_one` have one element and repeat.
fn as_matrix(b: &mut FusionBuilder, name: &str, x: Src, dtype: DType, is_one: [bool; 2]) -> Result<Operand> {
    let mut x = b.cast(x, dtype)?;
    let own = b.tensor_operand(name, x.into())?;
    let ahead = is_one.len() - b.rank(own);
    let mut flags = is_one;
    flags[..ahead].fill(true);
    let mut kept = Vec::new();
    for (axis, flag) in b.axes(own).iter().zip(&mut flags[ahead..]) {
        // What is declared to repeat does.
        *flag &= axis.kind != AxisKind::Broadcast;
        kept.push(!*flag);
    }
    if kept.contains(&false) {
        let sizes = extents(b, own).into_iter().zip(kept);
        let sizes = sizes.filter(|(_, kept)| *kept).map(|(size, _)| operand(size)).collect();
        x = reshape(b, own, sizes)?;
    }
    if flags.contains(&true) { b.broadcast(x, &flags) } else { Ok(x) }
}

/// `alpha * sums + beta * bias` of a type.
fn finish(b: &mut FusionBuilder, args: &Args, mut sums: Operand, work: DType) -> Result<Operand> {
    let name = args.row().name;
    if let Some(alpha) = args.opt("alpha") {
        let alpha = as_matrix(b, name, alpha, work, [true; 2])?;
        sums = b.binary(BinaryOp::Mul, sums, alpha)?;
    }
    let Some(bias) = args.opt("bias") else { return Ok(sums) };
    let mut bias = as_matrix(b, name, bias, work, [false; 2])?;
    if let Some(beta) = args.opt("beta") {
        let beta = as_matrix(b, name, beta, work, [true; 2])?;
        bias = b.binary(BinaryOp::Mul, bias, beta)?;
    }
    b.binary(BinaryOp::Add, sums, bias)
}
