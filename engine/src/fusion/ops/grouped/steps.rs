//! Products of matrices with scales and of groups in simpler operations: what is multiplied on tensor cores, a product
//! that libraries compute in `f32`, or sums of groups, and a kernel for what is done to the sums.
//!
//! Elements of at most eight bits are exact in `bf16`, those times the scale of their block too: at most four bits
//! of either, and exponents that only scales at the ends of their range leave.

use super::super::args::{Args, OpArg};
use super::super::call::Call;
use super::super::extents::{binary, call, constant, decide_alike, extents, operand, operands, reshape};
use super::super::swizzle::steps::in_rows;
use super::{block_of, sums};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{AxisKind, Fusion, FusionBuilder, Op, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, Value};

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
        let scale = aligned(b, name, side.scale.into(), work, &repeats)?;
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

/// The types of a product of groups.
struct Types {
    /// Of what is multiplied.
    factor: DType,
    /// Of sums, and of what is done to them.
    work: DType,
    result: DType,
}

impl Types {
    fn new(b: &FusionBuilder, args: &Args, matrix: TensorId) -> Self {
        let own = b.dtype(Operand::Tensor(matrix));
        let result = args.dtype("dtype").unwrap_or(if args.has("scale1") { DType::BF16 } else { own });
        let factor = if result == DType::F64 { result } else { own };
        Self { factor, work: sums::type_of(factor), result }
    }
}

pub(super) fn grouped(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let given = |b: &mut FusionBuilder, what: &str| args.src(what).and_then(|src| b.tensor_operand(name, src));
    let (left, right, offsets) = (given(b, "mat1")?, given(b, "mat2")?, given(b, "offsets")?);
    let Types { factor, work, result } = Types::new(b, args, left);
    let scales = match args.has("scale1") {
        true => Some([given(b, "scale1")?, given(b, "scale2")?]),
        false => None,
    };
    let (left, right) = (b.cast(left, factor)?, b.cast(right, factor)?);
    let ranks = [left, right].map(|x| match x {
        Operand::Tensor(x) => b.rank(x),
        Operand::Scalar(_) => 0,
    });
    let sums = match ranks {
        [2, 2] => {
            let mut sums = products(b, left, right, offsets)?;
            for (scale, repeats) in scales.into_iter().flatten().zip([[false, false, true], [false, true, false]]) {
                let scale = aligned(b, name, scale.into(), work, &repeats)?;
                sums = b.binary(BinaryOp::Mul, sums, scale)?;
            }
            sums
        }
        [2, _] => Rows { name, offsets, work, scales }.sums(b, left, right)?,
        // Columns of a product are rows of the transposed one: (A B)' = B' A'.
        _ => {
            let (left, right) = (b.permute(right, &[1, 0])?, b.permute(left, &[0, 2, 1])?);
            let scales = match scales {
                Some([stack, columns]) => {
                    let turned = (b.permute(columns, &[1, 0])?, b.permute(stack, &[0, 2, 1])?);
                    Some([b.tensor_operand(name, turned.0.into())?, b.tensor_operand(name, turned.1.into())?])
                }
                None => None,
            };
            let sums = Rows { name, offsets, work, scales }.sums(b, left, right)?;
            b.permute(sums, &[1, 0])?
        }
    };
    let sums = finish(b, args, sums, work)?;
    Ok(vec![b.cast(sums, result)?])
}

/// A product of groups of these extents, where there is no group, or nothing to sum.
pub fn of_nothing(b: &mut FusionBuilder, args: &Args, extents: &[Src]) -> Result<Operand> {
    let matrix = b.tensor_operand(args.row().name, args.src("mat1")?)?;
    let Types { work, result, .. } = Types::new(b, args, matrix);
    let sums = b.full(extents, Value::Int(0), work)?;
    let sums = finish(b, args, sums, work)?;
    b.cast(sums, result)
}

pub(super) fn products(b: &mut FusionBuilder, left: Operand, right: Operand, offsets: TensorId) -> Result<Operand> {
    call(b, sums::NAME, |args| args.value("mat1", left).value("mat2", right).value("offsets", offsets))
}

/// Groups of the rows of a matrix.
struct Rows<'a> {
    name: &'a str,
    offsets: TensorId,
    /// The type of sums.
    work: DType,
    /// One for each row, `[m, 1]`, and for each group one for each column, `[g, 1, n]`.
    scales: Option<[TensorId; 2]>,
}

impl Rows<'_> {
    /// The products of rows with the matrix of their group, times their scales; 0 in rows of no group.
    fn sums(&self, b: &mut FusionBuilder, left: Operand, right: Operand) -> Result<Operand> {
        let sums = products(b, left, right, self.offsets)?;
        let Some([own, stack]) = self.scales else { return Ok(sums) };
        let [height, _] = extents(b, b.tensor_operand(self.name, left.into())?)[..] else {
            return Err(Diagnostic::bug(format!("{}: a matrix has two axes", self.name)));
        };
        let group = self.group_of_rows(b, operand(height))?;
        let rows = aligned(b, self.name, own.into(), self.work, &[false, true])?;
        let columns = self.of_group(b, stack, group)?;
        let scaled = b.binary(BinaryOp::Mul, sums, rows)?;
        let scaled = b.binary(BinaryOp::Mul, scaled, columns)?;
        // Whatever the scales are: one that is infinite makes no number of 0.
        let count = extents(b, self.offsets)[0];
        let is_in_group = b.binary(BinaryOp::Lt, group, operand(count))?;
        let is_in_group = b.broadcast(is_in_group, &[false, true])?;
        let zero = b.constant(Value::Float(0.0), self.work)?;
        b.ternary(TernaryOp::Where, is_in_group, scaled, zero)
    }

    /// The number of the group that each row is of: as many groups end before the row or at it. That of a row behind all
    /// groups is their count.
    fn group_of_rows(&self, b: &mut FusionBuilder, height: Src) -> Result<Operand> {
        let row = b.index(&[height], 0)?;
        let row = b.broadcast(row, &[false, true])?;
        let ends = b.cast(self.offsets, DType::I64)?;
        let ends = b.broadcast(ends, &[true, false])?;
        let is_behind = b.binary(BinaryOp::Le, ends, row)?;
        let is_behind = b.cast(is_behind, DType::I64)?;
        b.reduce(ReduceOp::Sum, is_behind, &[-1], false, None)
    }

    /// What a stack `[g, 1, n]` has for the group of each row; for a row of no group that of the last one.
    fn of_group(&self, b: &mut FusionBuilder, stack: TensorId, group: Operand) -> Result<Operand> {
        let [count, _, width] = extents(b, stack)[..] else {
            return Err(Diagnostic::bug(format!("{}: scales of groups have three axes", self.name)));
        };
        let kinds = [0, 2].map(|axis| b.axes(stack)[axis].kind);
        let table = reshape(b, stack, operands(&[count, width]))?;
        let own = b.tensor_operand(self.name, table.into())?;
        for (axis, kind) in kinds.into_iter().enumerate().filter(|(_, kind)| *kind != AxisKind::Symbolic) {
            b.decide(own, axis, kind);
        }
        // One may be for all groups.
        let one = constant(b, 1);
        let last = binary(b, BinaryOp::Sub, count, one);
        let group = b.binary(BinaryOp::Minimum, group, operand(last))?;
        let axis = OpArg::Int(0);
        let of_rows = call(b, "index_select", |args| args.value("x", own).value("index", group).with("dim", axis))?;
        b.cast(of_rows, self.work)
    }
}

/// A tensor of the last axes of a result, with all of its axes, of a type. Those of `is_one` have one element and repeat.
fn aligned(b: &mut FusionBuilder, name: &str, x: Src, dtype: DType, is_one: &[bool]) -> Result<Operand> {
    let mut x = b.cast(x, dtype)?;
    let own = b.tensor_operand(name, x.into())?;
    let ahead = is_one.len() - b.rank(own);
    let mut flags = is_one.to_vec();
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
    let rank = b.tensor_operand(name, sums.into()).map(|sums| b.rank(sums))?;
    let (ones, none) = (vec![true; rank], vec![false; rank]);
    if let Some(alpha) = args.opt("alpha") {
        let alpha = aligned(b, name, alpha, work, &ones)?;
        sums = b.binary(BinaryOp::Mul, sums, alpha)?;
    }
    let Some(bias) = args.opt("bias") else { return Ok(sums) };
    let mut bias = aligned(b, name, bias, work, &none)?;
    if let Some(beta) = args.opt("beta") {
        let beta = aligned(b, name, beta, work, &ones)?;
        bias = b.binary(BinaryOp::Mul, bias, beta)?;
    }
    b.binary(BinaryOp::Add, sums, bias)
}
