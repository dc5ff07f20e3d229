//! Scales in the order of tensor cores in simpler operations: `[r, q, p, c, e]`, which are tiles of rows, quarters of
//! a tile, rows of a quarter, tiles of columns and columns of a tile, as `[r, c, p, q, e]`.

use super::super::args::{Args, OpArg};
use super::super::extents::{binary, call, constant, decide_alike, extents, operand, operands, reshape, values};
use super::{COLUMNS, QUARTER, ROWS};
use crate::diag::{Diagnostic, Result};
use crate::fusion::meta::ExtentValue;
use crate::fusion::{FusionBuilder, OpKind, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, Value};

/// From a matrix in rows to one in tiles and back: it is its own inverse.
const ORDER: [i64; 5] = [0, 3, 2, 1, 4];

/// Quarters of a tile, rows of each, and columns.
const TILE: [i64; 3] = [(ROWS / QUARTER) as i64, QUARTER as i64, COLUMNS as i64];

/// The number of tiles of a step that an extent needs, and their elements.
fn tiles(b: &mut FusionBuilder, size: ExtentValue, step: usize) -> (ExtentValue, ExtentValue) {
    let step = constant(b, step as i64);
    let count = binary(b, BinaryOp::CeilDiv, size, step);
    (count, binary(b, BinaryOp::Mul, count, step))
}

/// A matrix of scales in tiles, padded to whole ones.
pub(in super::super) fn swizzled(b: &mut FusionBuilder, name: &str, scales: Operand) -> Result<Operand> {
    let scales = b.tensor_operand(name, scales.into())?;
    let [height, width] = extents(b, scales)[..] else {
        return Err(Diagnostic::bug(format!("{name}: scales are swizzled of matrices")));
    };
    let ((rows, all_rows), (columns, all_columns)) = (tiles(b, height, ROWS), tiles(b, width, COLUMNS));
    let zero = constant(b, 0);
    // Innermost first.
    let more = [binary(b, BinaryOp::Sub, all_columns, width), binary(b, BinaryOp::Sub, all_rows, height)];
    let widths = values(operands(&[zero, more[0], zero, more[1]]));
    let nothing = b.constant(Value::Int(0), b.dtype(Operand::Tensor(scales)))?;
    let padded = call(b, "pad", |args| args.value("x", scales).with("widths", widths).value("value", nothing))?;
    let [quarters, quarter, across] = TILE.map(Src::from);
    let split = reshape(b, padded, vec![operand(rows), quarters, quarter, operand(columns), across])?;
    let moved = b.permute(split, &ORDER)?;
    reshape(b, moved, vec![operand(all_rows), operand(all_columns)])
}

/// The matrix of `height` rows and `width` columns whose scales lie in tiles.
pub(in super::super) fn in_rows(
    b: &mut FusionBuilder,
    scales: TensorId,
    height: ExtentValue,
    width: ExtentValue,
) -> Result<Operand> {
    let ((rows, all_rows), (columns, all_columns)) = (tiles(b, height, ROWS), tiles(b, width, COLUMNS));
    let [quarters, quarter, across] = TILE.map(Src::from);
    let split = reshape(b, scales, vec![operand(rows), operand(columns), quarter, quarters, across])?;
    let moved = b.permute(split, &ORDER)?;
    let padded = reshape(b, moved, vec![operand(all_rows), operand(all_columns)])?;
    let ends = values(operands(&[height, width]));
    call(b, "slice", |args| args.value("x", padded).with("starts", values(vec![0.into(); 2])).with("ends", ends))
}

/// The same of each matrix of a stack of `[count, height, width]`, each of which lies in tiles from its start on.
pub(in super::super) fn in_rows_of_stack(
    b: &mut FusionBuilder,
    scales: TensorId,
    [count, height, width]: [ExtentValue; 3],
) -> Result<Operand> {
    let ((rows, all_rows), (columns, all_columns)) = (tiles(b, height, ROWS), tiles(b, width, COLUMNS));
    let [quarters, quarter, across] = TILE.map(Src::from);
    let own = extents(b, scales)[2];
    let cut = |b: &mut FusionBuilder, x: Operand, ends: [ExtentValue; 3]| {
        let (starts, ends) = (values(vec![0.into(); 3]), values(operands(&ends)));
        call(b, "slice", |args| args.value("x", x).with("starts", starts).with("ends", ends))
    };
    let whole = cut(b, Operand::Tensor(scales), [count, all_rows, own])?;
    let shape = vec![operand(count), operand(rows), operand(columns), quarter, quarters, across];
    let split = reshape(b, whole, shape)?;
    decide_alike(b, split, scales, 1);
    // Behind the count.
    let moved = b.permute(split, &[0, 1, 4, 3, 2, 5])?;
    let padded = reshape(b, moved, vec![operand(count), operand(all_rows), operand(all_columns)])?;
    decide_alike(b, padded, scales, 1);
    cut(b, padded, [count, height, width])
}

/// Where the scale of a row and a column is in tiles of so many columns ([`super::place`]).
pub(in super::super) fn place_of(
    b: &mut FusionBuilder,
    row: Operand,
    column: Operand,
    columns: Src,
) -> Result<Operand> {
    let [rows, quarter, across] = [ROWS, QUARTER, COLUMNS].map(|n| n as i64);
    let within = b.binary(BinaryOp::Mod, row, rows)?;
    let above = b.binary(BinaryOp::Sub, row, within)?;
    let above = b.binary(BinaryOp::Mul, above, columns)?;
    let tile = b.binary(BinaryOp::Div, column, across)?;
    let tile = b.binary(BinaryOp::Mul, tile, rows * across)?;
    let line = b.binary(BinaryOp::Mod, within, quarter)?;
    let line = b.binary(BinaryOp::Mul, line, rows / quarter * across)?;
    let part = b.binary(BinaryOp::Div, within, quarter)?;
    let part = b.binary(BinaryOp::Mul, part, across)?;
    let last = b.binary(BinaryOp::Mod, column, across)?;
    let mut place = above;
    for more in [tile, line, part, last] {
        place = b.binary(BinaryOp::Add, place, more)?;
    }
    Ok(place)
}

/// The rows of groups in tiles, each group from a row of its own on: what lies at each place of the result is looked
/// up. Between groups and beside their columns is what a zero is in the type.
pub(in super::super) fn in_groups(b: &mut FusionBuilder, args: &Args, x: Operand) -> Result<Operand> {
    let name = args.row().name;
    let x = b.tensor_operand(name, x.into())?;
    let [height, width] = extents(b, x)[..] else {
        return Err(Diagnostic::bug(format!("{name}: a matrix is in groups")));
    };
    let groups = Groups::new(b, args, height)?;
    let (_, all_columns) = tiles(b, width, COLUMNS);
    let shape = [groups.rows, all_columns];
    let source = groups.sources(b, shape, width)?;
    let is_inside = b.binary(BinaryOp::Ge, source, 0)?;
    let place = b.binary(BinaryOp::Maximum, source, 0)?;
    let count = binary(b, BinaryOp::Mul, height, width);
    let flat = reshape(b, x, vec![1.into(), operand(count)])?;
    let axis = OpArg::Int(1);
    let taken = call(b, "take_along_axis", |args| args.value("x", flat).value("index", place).with("dim", axis))?;
    let dtype = b.dtype(Operand::Tensor(x));
    let nothing = b.constant(Value::Int(0), dtype)?;
    // Moved as they are: small floats are not widened.
    let placed = b.push_all(OpKind::Ternary(TernaryOp::Where), vec![is_inside, taken, nothing])?;
    placed.first().map(|placed| Operand::Tensor(*placed)).ok_or_else(|| Diagnostic::bug("a choice has no result"))
}

/// Groups of rows, and the rows of the matrix that they are in: one each.
struct Groups {
    /// The rows of the result.
    rows: ExtentValue,
    /// The row of its group's tiles that each of them is; -1 where it is of none.
    own: Operand,
    /// The first row of its group, and the first behind it.
    first: Operand,
    last: Operand,
}

impl Groups {
    fn new(b: &mut FusionBuilder, args: &Args, height: ExtentValue) -> Result<Self> {
        let name = args.row().name;
        let starts = b.tensor_operand(name, args.src("input_offsets")?)?;
        let [count] = extents(b, starts)[..] else {
            return Err(Diagnostic::bug(format!("{name}: offsets are a list")));
        };
        let more = constant(b, ROWS as i64 - 1);
        let more = binary(b, BinaryOp::Mul, count, more);
        let rows = binary(b, BinaryOp::Add, height, more);
        let ends = ends(b, starts, count, height)?;
        let mut along_row = |src: Src| {
            let list = b.cast(src, DType::I64)?;
            b.broadcast(list, &[true, false])
        };
        let (starts, ends) = (along_row(starts.into())?, along_row(ends.into())?);
        let targets = along_row(args.src("output_offsets")?)?;
        let position = b.index(&[operand(rows)], 0)?;
        let position = b.broadcast(position, &[false, true])?;
        let own = b.binary(BinaryOp::Sub, position, targets)?;
        let size = b.binary(BinaryOp::Sub, ends, starts)?;
        // In whole tiles.
        let size = b.binary(BinaryOp::Add, size, ROWS as i64 - 1)?;
        let size = b.binary(BinaryOp::Div, size, ROWS as i64)?;
        let size = b.binary(BinaryOp::Mul, size, ROWS as i64)?;
        let (is_behind, is_before) = (b.binary(BinaryOp::Ge, own, 0)?, b.binary(BinaryOp::Lt, own, size)?);
        let is_of = b.binary(BinaryOp::LogicalAnd, is_behind, is_before)?;
        let mut of_group = |x: Operand| {
            let of = b.ternary(TernaryOp::Where, is_of, x, -1)?;
            let of = b.reduce(ReduceOp::Max, of, &[-1], false, None)?;
            b.broadcast(of, &[false, true])
        };
        Ok(Self { rows, own: of_group(own)?, first: of_group(starts)?, last: of_group(ends)? })
    }

    /// Which element of a matrix of `width` columns is at each place of the result; -1 for none of them. That of the row
    /// `l` of its group's tiles and the column `j` of `n` is at `a = (l % 128) n + j` of its row of tiles: the row
    /// `(l / 128) 128 + (a / 4 % 4) 32 + a % 512 / 16` of the group, and its column `(a / 512) 4 + a % 4`.
    fn sources(&self, b: &mut FusionBuilder, shape: [ExtentValue; 2], width: ExtentValue) -> Result<Operand> {
        let [rows, columns] = [operand(shape[0]), operand(shape[1])];
        let width = operand(width);
        let position = b.index(&[rows, columns], 1)?;
        let within = b.binary(BinaryOp::Mod, self.own, ROWS as i64)?;
        let before = b.binary(BinaryOp::Mul, within, columns)?;
        let at = b.binary(BinaryOp::Add, before, position)?;
        let part = |b: &mut FusionBuilder, by: usize, of: usize| {
            let all = b.binary(BinaryOp::Div, at, by as i64)?;
            b.binary(BinaryOp::Mod, all, of as i64)
        };
        let quarter = part(b, COLUMNS, ROWS / QUARTER)?;
        let quarter = b.binary(BinaryOp::Mul, quarter, QUARTER as i64)?;
        let row = part(b, ROWS / QUARTER * COLUMNS, QUARTER)?;
        let row = b.binary(BinaryOp::Add, quarter, row)?;
        let above = b.binary(BinaryOp::Sub, self.own, within)?;
        let row = b.binary(BinaryOp::Add, above, row)?;
        let row = b.binary(BinaryOp::Add, self.first, row)?;
        let tile = b.binary(BinaryOp::Div, at, (ROWS * COLUMNS) as i64)?;
        let tile = b.binary(BinaryOp::Mul, tile, COLUMNS as i64)?;
        let column = b.binary(BinaryOp::Mod, at, COLUMNS as i64)?;
        let column = b.binary(BinaryOp::Add, tile, column)?;
        let mut is_inside = b.binary(BinaryOp::Ge, self.own, 0)?;
        for (x, end) in [(row, Src::from(self.last)), (column, width)] {
            let is_before = b.binary(BinaryOp::Lt, x, end)?;
            is_inside = b.binary(BinaryOp::LogicalAnd, is_inside, is_before)?;
        }
        let start = b.binary(BinaryOp::Mul, row, width)?;
        let place = b.binary(BinaryOp::Add, start, column)?;
        b.ternary(TernaryOp::Where, is_inside, place, -1)
    }
}

/// Where groups end: at the next one's start, the last of them at the last row.
fn ends(b: &mut FusionBuilder, starts: TensorId, count: ExtentValue, height: ExtentValue) -> Result<Operand> {
    let next = b.index(&[operand(count)], 0)?;
    let next = b.binary(BinaryOp::Add, next, 1)?;
    let is_group = b.binary(BinaryOp::Lt, next, operand(count))?;
    let own = b.ternary(TernaryOp::Where, is_group, next, 0)?;
    let axis = OpArg::Int(0);
    let ends = call(b, "index_select", |args| args.value("x", starts).value("index", own).with("dim", axis))?;
    let ends = b.ternary(TernaryOp::Where, is_group, ends, operand(height))?;
    decide_alike(b, ends, starts, 1);
    Ok(ends)
}
