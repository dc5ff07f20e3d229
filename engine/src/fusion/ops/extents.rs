//! What `build` functions of moving operations share: arithmetic on extents
//! and on scalar operands that are sizes and positions.

use super::args::{Args, OpArg};
use super::table;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{ExtentValue, SizeMath};
use crate::fusion::scalars::{extent, scalar};
use crate::fusion::{AxisKind, FusionBuilder, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType};

/// An operand that is an integer scalar, as `i64`.
pub(super) fn integer(b: &mut FusionBuilder, name: &str, what: &str, src: Src) -> Result<ExtentValue> {
    let operand = b.scalar_operand(name, src)?;
    let dtype = b.scalars.dtype(operand);
    if !dtype.is_int() {
        let message = format!("{name}: {what} is a {dtype}, not an integer");
        return Err(Diagnostic::user(code::DTYPE, message).note("cast it to i64"));
    }
    Ok(extent(b.scalars.cast(operand, DType::I64)))
}

/// The extents of a tensor.
pub(super) fn extents(b: &FusionBuilder, x: TensorId) -> Vec<ExtentValue> {
    b.shape_of(x).axes.iter().map(|axis| axis.extent).collect()
}

/// An extent as an operand.
pub(super) fn operand(x: ExtentValue) -> Src {
    Src::Scalar(scalar(x))
}

/// Extents as operands.
pub(super) fn operands(list: &[ExtentValue]) -> Vec<Src> {
    list.iter().map(|&x| operand(x)).collect()
}

/// `op(x, y)`.
pub(super) fn binary(b: &mut FusionBuilder, op: BinaryOp, x: ExtentValue, y: ExtentValue) -> ExtentValue {
    SizeMath::binary(&mut b.scalars, op, x, y)
}

/// The value of an extent if it is known.
pub(super) fn known(b: &FusionBuilder, x: ExtentValue) -> Option<i64> {
    b.scalars.known(x)
}

/// A known extent.
pub(super) fn constant(b: &mut FusionBuilder, n: i64) -> ExtentValue {
    SizeMath::constant(&mut b.scalars, n)
}

/// The product of extents, 1 if there is none.
pub(super) fn product(b: &mut FusionBuilder, list: &[ExtentValue]) -> Result<ExtentValue> {
    let mut fixed = 1i64;
    let mut open = Vec::new();
    for &factor in list {
        match known(b, factor) {
            Some(n) => fixed = checked_product(fixed, n)?,
            None => open.push(factor),
        }
    }
    let mut result = constant(b, fixed);
    if fixed != 0 {
        for (i, factor) in open.into_iter().enumerate() {
            // Constants stand second, as they are written.
            result = if i == 0 && fixed != 1 {
                binary(b, BinaryOp::Mul, factor, result)
            } else {
                binary(b, BinaryOp::Mul, result, factor)
            };
        }
    }
    Ok(result)
}

/// `a * b`, or a refusal.
pub(super) fn checked_product(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or_else(|| {
        Diagnostic::user(code::SIZE_OVERFLOW, format!("the size mul({a}, {b}) overflows i64"))
            .note("use smaller extents")
    })
}

/// Uses another row of the table.
pub(super) fn call(b: &mut FusionBuilder, name: &str, fill: impl FnOnce(Args) -> Args) -> Result<Operand> {
    let row = table::find(name).ok_or_else(|| Diagnostic::bug(format!("{name} is no row of the table")))?;
    let results = b.apply(&fill(Args::new(row)))?;
    results.first().copied().ok_or_else(|| Diagnostic::bug(format!("{name} has no result")))
}

/// A list of values for a parameter.
pub(super) fn values(list: Vec<Src>) -> OpArg {
    OpArg::Values(list)
}

/// `x` in another shape.
pub(super) fn reshape(b: &mut FusionBuilder, x: impl Into<Src>, shape: Vec<Src>) -> Result<Operand> {
    call(b, "reshape", |args| args.value("x", x).with("shape", values(shape)))
}

/// The first axes of a tensor are of the kinds that those of `x` are: extents alone leave it open.
pub(super) fn decide_alike(b: &mut FusionBuilder, tensor: Operand, x: TensorId, axes: usize) {
    let Operand::Tensor(tensor) = tensor else { return };
    for axis in 0..axes {
        let kind = b.axes(x)[axis].kind;
        if kind != AxisKind::Symbolic {
            b.decide(tensor, axis, kind);
        }
    }
}
