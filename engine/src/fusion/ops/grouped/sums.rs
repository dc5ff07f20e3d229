//! The sums that products of groups are made of: what a kernel computes of matrices and of the ends of groups.
//!
//! Where groups split columns, they split rows of the transposed operands, so there are two forms. Sums are `f32`, those
//! of `f64` are `f64`; scales, a bias and the type that is asked for come after them ([`super::steps`]).

use super::{MAT1, MAT2, check_matrices, evaluate, operand};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::{AxisMeta, Shape};
use crate::fusion::ops::args::Args;
use crate::fusion::ops::cx::MetaCx;
use crate::fusion::ops::draft::CallDraft;
use crate::fusion::ops::movement::{Form, Movement};
use crate::fusion::ops::row::{OpParamKind, OpRow, Primitive, ResultLayout, req};
use crate::fusion::{FusionBuilder, Operand};
use crate::num::DType;

pub(super) const NAME: &str = "grouped_sums";

pub(super) const ROW: OpRow = OpRow::primitive(
    NAME,
    &[MAT1, MAT2, req("offsets", OpParamKind::Tensor)],
    build,
    Primitive {
        meta,
        layout: ResultLayout::Dense,
        eval: evaluate::sums,
        decompose: None,
        movement: Movement::LIBRARY.form(Form::GroupedSums),
    },
    "Products of groups that end at offsets, as f32, or as f64 if the operands are: of rows of mat1 [m, k] [g, k, n], what \
     is in no group is 0, or of columns of mat1 and rows of mat2 [m, k] [k, n], one result for each group.",
    "grouped_mm before its epilogue",
);

/// The type of the sums of a type.
pub(super) fn type_of(own: DType) -> DType {
    if own == DType::F64 { own } else { DType::F32 }
}

fn build(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    b.push_draft(CallDraft::new(args))
}

/// The axis of groups: of the offsets, and of an operand that is a stack.
pub(super) fn group_axis(cx: &mut MetaCx<'_>, a: &Shape, b: &Shape) -> Result<AxisMeta> {
    let mut groups = operand(cx, "offsets", 1, &[DType::I32, DType::I64])?.axes[0];
    for (name, shape) in [("mat1", a), ("mat2", b)] {
        if shape.axes.len() == 3 {
            let what = format!("axis 0 of `{name}` and of `offsets`");
            groups.extent = cx.same(&what, shape.axes[0].extent, groups.extent)?;
        }
    }
    Ok(groups)
}

fn meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let (a, b) = (operand(cx, "mat1", 2, &[])?, cx.tensor("mat2")?);
    let rank = b.axes.len();
    if !matches!(rank, 2 | 3) {
        let message = format!("{}: `mat2` has rank {rank}, it needs 2 or 3", cx.name());
        return Err(Diagnostic::user(code::RANK, message).note("offsets split rows of `mat1`, or what is summed over"));
    }
    check_matrices(cx, &a, &b)?;
    let groups = group_axis(cx, &a, &b)?;
    let (m, n) = (a.axes[0], b.axes[rank - 1]);
    let axes = if rank == 2 { vec![groups, m, n] } else { vec![m, n] };
    Ok(vec![Shape { dtype: type_of(a.dtype), axes }])
}
