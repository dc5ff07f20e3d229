//! Lookups: tables and indices of every kind, in any layout, with what is computed of the index
//! before and of the result behind, reductions among it. Results are exact.

use super::exact::{FLOATS, INTEGERS, float_operation, integer_operation, options};
use super::grid::Grid;
use super::{DrawKind, Drawn, Measure};
use crate::data::Draw;
use engine::fusion::ops::{self, Args, OpArg};
use engine::fusion::{Operand, Src};
use engine::num::{BinaryOp, DType};
use engine::options::Options;

/// Extents of an axis that is looked up.
const EXTENTS: &[i64] = &[1, 2, 3, 7, 16, 33, 200];

pub(super) fn lookups(draw: &mut Draw) -> Option<Drawn> {
    let mut grid = Grid::new(draw, "lookups");
    let floats = draw.once_in(2);
    if draw.once_in(2) {
        let dtype = draw.choose(if floats { FLOATS } else { INTEGERS });
        grid.input(draw, dtype)?;
    }
    for _ in 0..1 + draw.below(3) {
        let dtype = if draw.once_in(8) { DType::Bool } else { draw.choose(if floats { FLOATS } else { INTEGERS }) };
        let found = lookup(&mut grid, draw, dtype)?;
        grid.values.push(found);
        for _ in 0..draw.below(3) {
            let made = match floats {
                true => float_operation(&mut grid, draw, false),
                false => integer_operation(&mut grid, draw),
            };
            // What the builder refuses is no part of the draw.
            grid.values.extend(made);
        }
    }
    let (fusion, args) = grid.finish(draw)?;
    let options = Options { fmad: false, ..options(draw) };
    Some(Drawn { kind: DrawKind::Lookups, fusion, args, options, measure: Measure::Exact })
}

/// A lookup whose result lies on the grid.
fn lookup(grid: &mut Grid, draw: &mut Draw, dtype: DType) -> Option<Operand> {
    let (rank, extent) = (grid.rank(), draw.choose(EXTENTS));
    let dim = draw.below(rank);
    let sizes = grid.sizes.clone();
    match draw.below(4) {
        0 => {
            let table = grid.table(draw, dtype, &with(&sizes, dim, extent))?;
            let index = index(grid, draw, &sizes[dim..=dim], extent)?;
            call(grid, "index_select", |args| args.value("x", table).value("index", index), dim)
        }
        1 => {
            // On other axes the table is longer.
            let longer: Vec<i64> = sizes.iter().map(|size| size + draw.below(3) as i64).collect();
            let table = grid.table(draw, dtype, &with(&longer, dim, extent))?;
            let index = index(grid, draw, &sizes, extent)?;
            call(grid, "gather", |args| args.value("x", table).value("index", index), dim)
        }
        2 if rank > 1 => {
            let table = grid.table(draw, dtype, &[extent, sizes[rank - 1]])?;
            let index = index(grid, draw, &sizes[..rank - 1], extent)?;
            let args = Args::new(ops::find("embedding_fwd")?).value("input", index).value("weight", table);
            grid.builder.apply(&args).ok()?.first().copied()
        }
        _ => {
            let thin = |draw: &mut Draw, sizes: &[i64]| -> Vec<i64> {
                sizes.iter().map(|size| if draw.once_in(4) { 1 } else { *size }).collect()
            };
            let (table, places) = (thin(draw, &sizes), thin(draw, &sizes));
            let table = grid.table(draw, dtype, &with(&table, dim, extent))?;
            let index = index(grid, draw, &places, extent)?;
            call(grid, "take_along_axis", |args| args.value("x", table).value("index", index), dim)
        }
    }
}

/// The same sizes with another one on an axis.
fn with(sizes: &[i64], axis: usize, size: i64) -> Vec<i64> {
    let mut sizes = sizes.to_vec();
    sizes[axis] = size;
    sizes
}

fn call(grid: &mut Grid, name: &str, fill: impl FnOnce(Args) -> Args, dim: usize) -> Option<Operand> {
    let args = fill(Args::new(ops::find(name)?)).with("dim", OpArg::Int(dim as i64));
    grid.builder.apply(&args).ok()?.first().copied()
}

/// Positions of an axis of so many elements: from memory, or computed of those.
fn index(grid: &mut Grid, draw: &mut Draw, sizes: &[i64], extent: i64) -> Option<Operand> {
    let dtype = draw.choose(&[DType::I64, DType::I32, DType::I64]);
    let index = grid.positions(draw, dtype, sizes, extent)?;
    if draw.below(3) > 0 {
        return Some(index);
    }
    let moved = grid.builder.binary(BinaryOp::Add, index, Src::from(draw.below(100) as i64)).ok()?;
    grid.builder.binary(BinaryOp::Remainder, moved, Src::from(extent)).ok()
}
