//! Products of matrices that sum a single term become multiplications, which kernels fuse.
//!
//! `matmul` sums from `0.0`, exactly, and rounds once. A product of two numbers of at most 24 bits is
//! rounded once by a multiplication too, but its sign survives where it is 0: `0.0 + -0.0` is
//! `0.0`. So a product with a factor of 0 is taken without its sign; one that rounds to 0 keeps
//! it, as the sum does. `f64` is summed as it is rounded, and 0 is added to the product. A bias
//! is added before the rounding, which no two operations do: `linear` with one stays.

use super::make::{broadcast, extents, reshape, squeeze, tensor};
use super::whole::{Change, Changes, Whole, call, operand};
use crate::diag::Result;
use crate::fusion::ops::Form;
use crate::fusion::{FusionBuilder, Op, Operand, Rewriter, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

/// An operand of a product.
#[derive(Clone, Copy)]
struct Side {
    tensor: TensorId,
    /// The axis that is summed over.
    axis: usize,
    /// Whether that axis stays, for an axis that only the other operand has.
    stays: bool,
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let output = op.output();
    let dtype = whole.fusion.tensors[output].dtype;
    if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) || whole.is_empty(output) {
        return None;
    }
    let sides = sides(whole, op)?;
    if !sides.iter().all(|side| whole.sizes(side.tensor)[side.axis] == 1 && can_drop(whole, side)) {
        return None;
    }
    let rank = whole.rank(output);
    Some(Box::new(move |r| {
        let [a, b] = sides;
        let (a, b) = (placed(r, whole, a, rank)?, placed(r, whole, b, rank)?);
        product(&mut r.builder, a, b, dtype)
    }))
}

/// Whether the axis that is summed over can be dropped and nothing else changes: what drops one
/// that iterates makes broadcasts of all others of size 1.
fn can_drop(whole: &Whole<'_>, side: &Side) -> bool {
    let Side { tensor, axis, .. } = *side;
    let is_kept = |other: usize| whole.is_broadcast(tensor, other) == (whole.sizes(tensor)[other] == 1);
    whole.is_broadcast(tensor, axis) || (0..whole.rank(tensor)).all(|other| other == axis || is_kept(other))
}

fn sides(whole: &Whole<'_>, op: &Op) -> Option<[Side; 2]> {
    let (Some(a), [_, Operand::Tensor(b)]) = (operand(op), &op.inputs[..]) else { return None };
    let ranks = [whole.rank(a), whole.rank(*b)];
    let last = Side { tensor: a, axis: ranks[0].checked_sub(1)?, stays: ranks[1] > 1 };
    if call(op, Form::Matmul).is_some() {
        return Some([last, Side { tensor: *b, axis: ranks[1].saturating_sub(2), stays: ranks[0] > 1 }]);
    }
    call(op, Form::Linear)?;
    Some([last, Side { tensor: *b, axis: ranks[1].checked_sub(1)?, stays: false }])
}

/// An operand with the axes of the result: its own, and such of size 1.
fn placed(r: &mut Rewriter<'_>, whole: &Whole<'_>, side: Side, rank: usize) -> Result<TensorId> {
    let Side { tensor, axis, stays } = side;
    let mut x = r.tensor(tensor)?;
    let flags: Vec<bool> = (0..whole.rank(tensor)).map(|own| own == axis).collect();
    let mut left = flags.len();
    if !whole.is_broadcast(tensor, axis) {
        // It iterates, though over one element only: what drops it moves nothing.
        let mut shape = extents(r, whole, tensor);
        shape.remove(axis);
        x = reshape(&mut r.builder, x, shape)?;
        if stays {
            x = broadcast(&mut r.builder, x, &flags)?;
        }
    } else if !stays {
        x = squeeze(&mut r.builder, x, &flags)?;
    }
    left -= usize::from(!stays);
    let ahead: Vec<bool> = (0..rank).map(|own| own < rank - left).collect();
    broadcast(&mut r.builder, x, &ahead)
}

fn product(b: &mut FusionBuilder, x: TensorId, y: TensorId, dtype: DType) -> Result<TensorId> {
    let work = dtype.compute();
    let (x, y) = (b.cast(x, work)?, b.cast(y, work)?);
    let mut made = b.binary(BinaryOp::Mul, x, y)?;
    if work == DType::F64 {
        made = b.binary(BinaryOp::Add, made, 0.0)?;
    } else {
        let (no_x, no_y) = (b.binary(BinaryOp::Eq, x, 0.0)?, b.binary(BinaryOp::Eq, y, 0.0)?);
        let nothing = b.binary(BinaryOp::LogicalOr, no_x, no_y)?;
        let unsigned = b.unary(UnaryOp::Abs, made)?;
        made = b.ternary(TernaryOp::Where, nothing, unsigned, made)?;
    }
    tensor(b.cast(made, dtype)?)
}
