//! The first element of a line alone (`topk` of one) is its greatest or least element, and its position the least one that
//! has it: two reductions, which kernels compute at the speed of reading, along any axis, with what is around them. A kernel
//! of orders reads a line by one warp and fuses with nothing.
//!
//! NaN is the greatest element, and of equal ones the first is taken. Zeros are equal: of a line in which zeros of both
//! signs are first it is +0 of the greatest, -0 of the least, whichever comes first.
//!
//! Positions are computed in 32 bits, so lines that have more of them keep the operation ([`SeenSizes`](super::seen::SeenSizes)).

use super::make::{broadcast, call as make, tensor};
use super::whole::{Changes, Whole, call, operand};
use crate::diag::Result;
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{AxisKind, FusionBuilder, Op, Operand, ScalarId, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, Value};

/// Behind all positions.
const NOWHERE: i64 = i32::MAX as i64;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let mut changes = Changes::new();
    for (id, op) in whole.fusion.ops.iter() {
        if let Some(top) = Top::of(whole, op) {
            changes.insert(
                id,
                Box::new(move |r| {
                    let (x, length) = (r.tensor(top.x)?, r.scalar(top.length));
                    top.write(&mut r.builder, x, length)
                }),
            );
        }
    }
    changes
}

/// The first element of each line.
#[derive(Clone, Copy)]
struct Top {
    x: TensorId,
    dtype: DType,
    rank: usize,
    /// Along which lines lie, and how long they are.
    dim: usize,
    length: ScalarId,
    /// The greatest element, else the least.
    is_greatest: bool,
}

impl Top {
    fn of(whole: &Whole<'_>, op: &Op) -> Option<Self> {
        let top = call(op, Form::Top)?;
        let (x, kept, dim) = (operand(op)?, *op.outputs.first()?, top.axis("dim"));
        let (rank, dtype) = (whole.rank(x), whole.fusion.tensors[x].dtype);
        let has_order = dtype.is_float() && dtype.bits() >= 8 || dtype.is_int();
        let is_line = dim < rank && whole.kind(x, dim) == AxisKind::Iteration && whole.sizes(x)[dim] > 1;
        let is_one = || whole.sizes(kept)[dim] == 1 && whole.is_broadcast(kept, dim);
        let fits = || !whole.has_long_line() && !whole.is_empty(x);
        (has_order && is_line && is_one() && fits()).then(|| Self {
            x,
            dtype,
            rank,
            dim,
            length: whole.fusion.tensors[x].axes[dim].extent,
            is_greatest: top.flag("largest"),
        })
    }

    /// The elements and their positions.
    fn write(self, b: &mut FusionBuilder, x: TensorId, length: ScalarId) -> Result<Vec<TensorId>> {
        let x = tensor(b.cast(x, self.dtype.compute())?)?;
        let positions = make(b, "iota", |args| {
            args.value("length", Operand::Scalar(length)).with("dtype", OpArg::DType(DType::I32))
        })?;
        let others: Vec<bool> = (0..self.rank).map(|axis| axis != self.dim).collect();
        let positions = broadcast(b, positions, &others)?;
        // A number that comes behind all others is as good as NaN, which no number is equal to.
        let is_least_float = !self.is_greatest && self.dtype.is_float();
        let compared = if is_least_float { self.without_nan(b, x)? } else { x };
        let op = if self.is_greatest { ReduceOp::Max } else { ReduceOp::Min };
        let first = self.along(b, op, compared)?;
        let mut is_first = b.binary(BinaryOp::Eq, x, first)?;
        if self.is_greatest && self.dtype.is_float() {
            let is_nan = b.binary(BinaryOp::Ne, x, x)?;
            is_first = b.binary(BinaryOp::LogicalOr, is_first, is_nan)?;
        }
        let places = b.ternary(TernaryOp::Where, is_first, positions, NOWHERE)?;
        let mut place = self.along(b, ReduceOp::Min, tensor(places)?)?;
        let mut first = Operand::Tensor(first);
        if is_least_float {
            let is_none = b.binary(BinaryOp::Eq, place, NOWHERE)?;
            first = b.ternary(TernaryOp::Where, is_none, Value::Float(f64::NAN), first)?;
            place = tensor(b.ternary(TernaryOp::Where, is_none, 0, place)?)?;
        }
        Ok(vec![tensor(b.cast(first, self.dtype)?)?, tensor(b.cast(place, DType::I64)?)?])
    }

    fn without_nan(self, b: &mut FusionBuilder, x: TensorId) -> Result<TensorId> {
        let is_nan = b.binary(BinaryOp::Ne, x, x)?;
        tensor(b.ternary(TernaryOp::Where, is_nan, Value::Float(f64::INFINITY), x)?)
    }

    /// What lines come to, with an axis of one element.
    fn along(self, b: &mut FusionBuilder, op: ReduceOp, x: TensorId) -> Result<TensorId> {
        tensor(b.reduce(op, Src::Tensor(x), &[self.dim as i64], true, None)?)
    }
}
