//! Products of rows in groups that start anywhere, with swizzled scales, in simpler operations: rows with their scales in
//! the order of their groups, sums of groups whose ends follow from that order, and each row's sums where the row is.
//!
//! The matrix of a group, and its rows, times the scales of their blocks are exact in `bf16` ([`super::steps`]). A row of several
//! groups is one of the last of them, and a row of none is 0.

use super::super::args::{Args, OpArg};
use super::super::extents::{binary, call, constant, decide_alike, extents, operand, operands, reshape, values};
use super::super::swizzle::steps::{in_rows_of_stack, place_of};
use super::super::table;
use super::steps::products;
use crate::diag::{Diagnostic, Result};
use crate::fusion::meta::ExtentValue;
use crate::fusion::{FusionBuilder, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, Value};

/// Elements of a row that have one scale.
const BLOCK: i64 = 16;

/// The operands, and the extents of the product.
struct Experts<'a> {
    args: &'a Args,
    left: TensorId,
    right: TensorId,
    rows: ExtentValue,
    depth: ExtentValue,
    columns: ExtentValue,
    groups: ExtentValue,
    /// Scales of a row.
    blocks: ExtentValue,
}

/// What each row is.
struct Rows {
    /// Whether it is of a group, and of which one: of the first where it is of none.
    is_in: Operand,
    group: Operand,
    /// Its number among the rows of its group.
    own: Operand,
    /// Where groups end in the order of groups, and the rows in that order.
    ends: TensorId,
    order: TensorId,
}

pub(super) fn cutlass(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = args.row().name;
    let given = |b: &mut FusionBuilder, what: &str| args.src(what).and_then(|src| b.tensor_operand(name, src));
    let (left, right) = (given(b, "mat1")?, given(b, "mat2")?);
    let wrong = || Diagnostic::bug(format!("{name}: a matrix and a stack"));
    let [rows, depth] = extents(b, left)[..] else { return Err(wrong()) };
    let [groups, _, columns] = extents(b, right)[..] else { return Err(wrong()) };
    let block = constant(b, BLOCK);
    let blocks = binary(b, BinaryOp::Div, depth, block);
    let experts = Experts { args, left, right, rows, depth, columns, groups, blocks };
    let rows = experts.rows(b)?;
    let left = experts.rows_with_scales(b, &rows)?;
    let right = experts.stack_with_scales(b)?;
    let sums = products(b, left, right, rows.ends)?;
    let result = experts.in_place(b, &rows, sums)?;
    Ok(vec![b.cast(result, args.dtype("dtype").unwrap_or(DType::BF16))?])
}

impl Experts<'_> {
    fn given(&self, b: &mut FusionBuilder, what: &str) -> Result<TensorId> {
        b.tensor_operand(self.args.row().name, self.args.src(what)?)
    }

    /// What a list has at places.
    fn looked_up(&self, b: &mut FusionBuilder, list: &str, places: Operand) -> Result<Operand> {
        let list = self.given(b, list)?;
        select(b, list.into(), places.into())
    }

    fn rows(&self, b: &mut FusionBuilder) -> Result<Rows> {
        let row = b.index(&[operand(self.rows)], 0)?;
        let starts = self.given(b, "expert_offsets")?;
        let starts_wide = b.cast(starts, DType::I64)?;
        let counts = self.counts(b)?;
        let ends = b.binary(BinaryOp::Add, starts_wide, counts)?;
        let across = b.broadcast(row, &[false, true])?;
        let [starts_wide, ends] = [b.broadcast(starts_wide, &[true, false])?, b.broadcast(ends, &[true, false])?];
        let is_behind = b.binary(BinaryOp::Ge, across, starts_wide)?;
        let is_before = b.binary(BinaryOp::Lt, across, ends)?;
        let is_of = b.binary(BinaryOp::LogicalAnd, is_behind, is_before)?;
        let number = b.index(&[operand(self.groups)], 0)?;
        let number = b.broadcast(number, &[true, false])?;
        let number = b.ternary(TernaryOp::Where, is_of, number, -1)?;
        let last = b.reduce(ReduceOp::Max, number, &[-1], false, None)?;
        let is_in = b.binary(BinaryOp::Ge, last, 0)?;
        let group = b.binary(BinaryOp::Maximum, last, 0)?;
        let start = self.looked_up(b, "expert_offsets", group)?;
        let start = b.cast(start, DType::I64)?;
        let own = b.binary(BinaryOp::Sub, row, start)?;
        let own = b.ternary(TernaryOp::Where, is_in, own, 0)?;
        // Rows of no group come last.
        let place = b.ternary(TernaryOp::Where, is_in, last, operand(self.groups))?;
        let [ends, order] = self.order(b, place)?;
        Ok(Rows { is_in, group, own, ends, order })
    }

    /// How many rows each group has.
    fn counts(&self, b: &mut FusionBuilder) -> Result<Operand> {
        let sizes = self.given(b, "problem_sizes")?;
        let first = call(b, "select", |args| args.value("x", sizes).value("index", 0).with("dim", OpArg::Int(1)))?;
        b.cast(first, DType::I64)
    }

    /// Where groups end in the order of groups, and the rows in that order.
    fn order(&self, b: &mut FusionBuilder, place: Operand) -> Result<[TensorId; 2]> {
        let name = self.args.row().name;
        let one = constant(b, 1);
        let places = binary(b, BinaryOp::Add, self.groups, one);
        let row = table::find("index_runs").ok_or_else(|| Diagnostic::bug("index_runs is no row of the table"))?;
        let made = b.apply(&Args::new(row).value("index", place).value("size", operand(places)))?;
        let [ends, order] = made.try_into().map_err(|_| Diagnostic::bug("runs have ends and an order"))?;
        decide_alike(b, order, self.left, 1);
        let (starts, stops) = (values(vec![0.into()]), values(vec![operand(self.groups)]));
        let ends = call(b, "slice", |args| args.value("x", ends).with("starts", starts).with("ends", stops))?;
        decide_alike(b, ends, self.right, 1);
        Ok([b.tensor_operand(name, ends.into())?, b.tensor_operand(name, order.into())?])
    }

    /// The rows times their scales, in the order of their groups.
    fn rows_with_scales(&self, b: &mut FusionBuilder, rows: &Rows) -> Result<Operand> {
        let scales = self.given(b, "scale1")?;
        let [height, width] = extents(b, scales)[..] else {
            return Err(Diagnostic::bug("scales of rows have two axes"));
        };
        let count = binary(b, BinaryOp::Mul, height, width);
        let flat = reshape(b, scales, vec![1.into(), operand(count)])?;
        let base = self.looked_up(b, "sf_offsets", rows.group)?;
        let base = b.cast(base, DType::I64)?;
        let base = b.binary(BinaryOp::Mul, base, operand(self.blocks))?;
        let base = b.ternary(TernaryOp::Where, rows.is_in, base, 0)?;
        let [base, own] = [b.broadcast(base, &[false, true])?, b.broadcast(rows.own, &[false, true])?];
        let column = b.index(&[operand(self.rows), operand(self.blocks)], 1)?;
        let place = place_of(b, own, column, operand(self.blocks))?;
        let place = b.binary(BinaryOp::Add, base, place)?;
        let axis = OpArg::Int(1);
        let scales = call(b, "take_along_axis", |args| args.value("x", flat).value("index", place).with("dim", axis))?;
        let scaled = self.scaled(b, self.left, scales, &[self.rows])?;
        select(b, scaled.into(), rows.order.into())
    }

    /// The matrices of all groups times their scales.
    fn stack_with_scales(&self, b: &mut FusionBuilder) -> Result<Operand> {
        let scales = self.given(b, "scale2")?;
        let scales = in_rows_of_stack(b, scales, [self.groups, self.columns, self.blocks])?;
        let turned = b.permute(self.right, &[0, 2, 1])?;
        let turned = b.tensor_operand(self.args.row().name, turned.into())?;
        let scaled = self.scaled(b, turned, scales, &[self.groups, self.columns])?;
        b.permute(scaled, &[0, 2, 1])
    }

    /// A tensor of such axes before its last one, blocks of which have scales, times these.
    fn scaled(&self, b: &mut FusionBuilder, x: TensorId, scales: Operand, outer: &[ExtentValue]) -> Result<Operand> {
        let rank = outer.len();
        decide_alike(b, scales, x, rank);
        let scales = b.cast(scales, DType::F32)?;
        let mut flags = vec![false; rank + 1];
        flags.push(true);
        let scales = b.broadcast(scales, &flags)?;
        let mut shape = operands(outer);
        shape.extend([operand(self.blocks), BLOCK.into()]);
        let split = reshape(b, x, shape)?;
        decide_alike(b, split, x, rank);
        let split = b.cast(split, DType::F32)?;
        let scaled = b.binary(BinaryOp::Mul, split, scales)?;
        let scaled = b.cast(scaled, DType::BF16)?;
        let mut shape = operands(outer);
        shape.push(operand(self.depth));
        let scaled = reshape(b, scaled, shape)?;
        decide_alike(b, scaled, x, rank + 1);
        Ok(scaled)
    }

    /// The sums of each row times the number of its group, where the row is; 0 in rows of no group.
    fn in_place(&self, b: &mut FusionBuilder, rows: &Rows, sums: Operand) -> Result<Operand> {
        let axis = OpArg::Int(0);
        let last = call(b, "last_position", |args| {
            args.value("index", rows.order).value("size", operand(self.rows)).with("dim", axis)
        })?;
        decide_alike(b, last, self.left, 1);
        let position = b.binary(BinaryOp::Sub, last, 1)?;
        let sums = select(b, sums.into(), position.into())?;
        let alpha = self.looked_up(b, "alpha", rows.group)?;
        let alpha = b.broadcast(alpha, &[false, true])?;
        let scaled = b.binary(BinaryOp::Mul, sums, alpha)?;
        let is_in = b.broadcast(rows.is_in, &[false, true])?;
        let zero = b.constant(Value::Float(0.0), DType::F32)?;
        b.ternary(TernaryOp::Where, is_in, scaled, zero)
    }
}

/// Rows of a tensor, or elements of a list, at places.
fn select(b: &mut FusionBuilder, x: Src, places: Src) -> Result<Operand> {
    call(b, "index_select", |args| args.value("x", x).value("index", places).with("dim", OpArg::Int(0)))
}
