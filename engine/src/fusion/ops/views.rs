//! Operations on axes that are formulas of others.

use super::args::{Args, OpArg};
use super::extents;
use super::row::{OpParam, OpParamKind, OpRow, opt, req};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::builder::normal_axis;
use crate::fusion::{AxisKind, FusionBuilder, Operand, Src};
use crate::num::{ReduceOp, UnaryOp};

const X: OpParam = req("x", OpParamKind::Tensor);
const LIBRARY: &str = "nvFuser's C++ library";

pub(super) const ROWS: &[OpRow] = &[
    OpRow::composite(
        "unsqueeze",
        &[X, req("dim", OpParamKind::Int)],
        unsqueeze,
        "x with a new axis of size 1 at a position.",
        "PyTorch unsqueeze",
    ),
    OpRow::composite(
        "transpose",
        &[X, opt("dim0", OpParamKind::Int), opt("dim1", OpParamKind::Int)],
        transpose,
        "x with two axes exchanged; without axes, the transposed matrix.",
        "PyTorch transpose",
    ),
    OpRow::composite(
        "expand_as",
        &[X, req("other", OpParamKind::Tensor)],
        expand_as,
        "x with its axes of size 1 repeated up to the extents of other.",
        "PyTorch expand_as",
    ),
    OpRow::composite(
        "sum_to",
        &[X, req("shape", OpParamKind::Shape)],
        sum_to,
        "The sum of x over the axes before those of the extents in brackets, and over those whose extent there is 1.",
        LIBRARY,
    ),
    OpRow::composite(
        "view_as_real",
        &[X],
        view_as_real,
        "Real and imaginary parts of x along a new last axis of size 2.",
        "PyTorch view_as_real",
    ),
];

fn unsqueeze(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("unsqueeze", args.src("x")?)?;
    let rank = b.rank(x);
    let dim = args.int("dim").unwrap_or(0);
    let place = normal_axis("unsqueeze", dim, rank + 1)?;
    let flags: Vec<bool> = (0..=rank).map(|axis| axis == place).collect();
    Ok(vec![b.broadcast(x, &flags)?])
}

fn transpose(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "transpose";
    let x = b.tensor_operand(name, args.src("x")?)?;
    let rank = b.rank(x);
    let (dim0, dim1) = match (args.int("dim0"), args.int("dim1")) {
        (Some(dim0), Some(dim1)) => (dim0, dim1),
        (None, None) if rank < 2 => return Ok(vec![b.set(x)?]),
        (None, None) if rank == 2 => (0, 1),
        (None, None) => {
            let message = format!("{name}: which axes of an operand of rank {rank} are exchanged is not said");
            return Err(Diagnostic::user(code::AXIS, message).note("write dim0(i) dim1(j)"));
        }
        _ => {
            let message = format!("{name}: `dim0` and `dim1` are given both or not at all");
            return Err(Diagnostic::user(code::ATTRIBUTE, message));
        }
    };
    let mut dims: Vec<i64> = (0..rank as i64).collect();
    dims.swap(normal_axis(name, dim0, rank)?, normal_axis(name, dim1, rank)?);
    Ok(vec![b.permute(x, &dims)?])
}

fn expand_as(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let other = b.tensor_operand("expand_as", args.src("other")?)?;
    let shape = OpArg::Values(extents::operands(&extents::extents(b, other)));
    let x = args.src("x")?;
    Ok(vec![extents::call(b, "expand", |args| args.value("x", x).with("shape", shape))?])
}

fn sum_to(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let name = "sum_to";
    let x = b.tensor_operand(name, args.src("x")?)?;
    let own = b.shape_of(x).axes;
    let shape = args.list("shape");
    let Some(leading) = own.len().checked_sub(shape.len()) else {
        let message = format!("{name}: {} extents for an operand of rank {}", shape.len(), own.len());
        return Err(Diagnostic::user(code::RANK, message));
    };
    let mut thin = Vec::new();
    for (position, &src) in shape.iter().enumerate() {
        let axis = own[leading + position];
        let extent = extents::integer(b, name, &format!("extent {position}"), src)?;
        match (extents::known(b, extent), extents::known(b, axis.extent)) {
            (Some(1), _) if axis.kind != AxisKind::Broadcast => thin.push(position as i64),
            (Some(n), Some(m)) if n != m => {
                let message = format!("{name}: axis {} of the operand is {m}, not {n}", leading + position);
                return Err(Diagnostic::user(code::EXTENT, message).note("an axis is kept, or summed to size 1"));
            }
            _ => {}
        }
    }
    let outer: Vec<i64> = (0..leading as i64).collect();
    let mut y = b.reduce_over(ReduceOp::Sum, Operand::Tensor(x), &outer)?;
    if !thin.is_empty() {
        y = b.reduce(ReduceOp::Sum, y, &thin, true, None)?;
    }
    Ok(vec![if y == Operand::Tensor(x) { b.set(x)? } else { y }])
}

fn view_as_real(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("view_as_real", args.src("x")?)?;
    let dtype = b.dtype(Operand::Tensor(x));
    if !dtype.is_complex() {
        let message = format!("view_as_real: not defined on {dtype}");
        return Err(Diagnostic::user(code::DTYPE, message).note("it is about complex numbers"));
    }
    let rank = b.rank(x);
    let flags: Vec<bool> = (0..=rank).map(|axis| axis == rank).collect();
    let (real, imag) = (b.unary(UnaryOp::Real, x)?, b.unary(UnaryOp::Imag, x)?);
    let (real, imag) = (b.broadcast(real, &flags)?, b.broadcast(imag, &flags)?);
    let mut shape = vec![Src::from(1); rank];
    shape.push(2.into());
    let part = b.index(&shape, -1)?;
    let is_real = b.eq(part, 0)?;
    Ok(vec![b.where_(is_real, real, imag)?])
}

#[cfg(test)]
mod tests {
    use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, result};
    use crate::num::{DType, Value};
    use crate::tensor::{HostTensor, TensorMeta};

    #[test]
    fn axes_are_inserted_exchanged_and_repeated() {
        let x = counting(DType::I32, &[2, 3]);
        assert_eq!(result("%r = unsqueeze %a dim(-1)", std::slice::from_ref(&x)).sizes(), [2, 3, 1]);
        assert_eq!(result("%r = unsqueeze %a dim(0)", std::slice::from_ref(&x)).sizes(), [1, 2, 3]);
        let turned = result("%r = transpose %a", std::slice::from_ref(&x));
        assert_eq!((turned.sizes(), turned.strides()), (&[3, 2][..], &[1, 3][..]));
        let deep = counting(DType::I32, &[2, 3, 4]);
        assert_eq!(result("%r = transpose %a dim0(0) dim1(-1)", std::slice::from_ref(&deep)).sizes(), [4, 3, 2]);
        let row = counting(DType::I32, &[1, 3]);
        let spread = result("%r = expand_as %a, %b", &[row, x]);
        assert_eq!((spread.sizes(), spread.strides()), (&[2, 3][..], &[0, 1][..]));
        check_refused(
            "%r = transpose %a",
            std::slice::from_ref(&deep),
            "E0205: transpose: which axes of an operand of rank 3 are exchanged is not said",
        );
        check_refused("%r = unsqueeze %a dim(4)", &[deep], "E0205: unsqueeze: axis 4 of an operand of rank 4");
    }

    #[test]
    fn sums_end_in_the_extents_that_are_asked_for() {
        let x = || [dense(DType::F32, &[2, 2, 3], &(0..12).map(f64::from).collect::<Vec<_>>())];
        check_value("%r = sum_to [2, 3] %a", &x(), DType::F32, &[2, 3], &[6.0, 8.0, 10.0, 12.0, 14.0, 16.0]);
        check_value("%r = sum_to [2, 1] %a", &x(), DType::F32, &[2, 1], &[24.0, 42.0]);
        check_value("%r = sum_to [1, 1, 1] %a", &x(), DType::F32, &[1, 1, 1], &[66.0]);
        check_value("%r = sum_to [] %a", &x(), DType::F32, &[], &[66.0]);
        assert_eq!(result("%r = sum_to [2, 2, 3] %a", &x()).to_f64().len(), 12);
        let flat = [counting(DType::F32, &[3])];
        check_refused("%r = sum_to [2, 3] %a", &flat, "E0203: sum_to: 2 extents for an operand of rank 1");
    }

    #[test]
    fn parts_of_complex_numbers_lie_side_by_side() {
        let meta = TensorMeta::contiguous(DType::C64, &[2]);
        let x = HostTensor::strided(meta, |index| Value::Complex(index[0] as f64, 10.0 - index[0] as f64)).unwrap();
        check_value("%r = view_as_real %a", &[x], DType::F32, &[2, 2], &[0.0, 10.0, 1.0, 9.0]);
        let real = [counting(DType::F32, &[3])];
        check_refused("%r = view_as_real %a", &real, "E0202: view_as_real: not defined on f32");
    }
}
