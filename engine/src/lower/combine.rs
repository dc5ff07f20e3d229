//! Two partial results of a reduction, combined.
//!
//! Most are by one operation. Pairs `(m, s)`, of a maximum and a sum of exponentials below it, are by
//!
//! ```text
//! m = max(m0, m1)   d = m0 - m1, 0 where both are equal   e = exp(-|d|)
//! s = d >= 0 ? s1 * e + s0 : s0 * e + s1
//! ```
//!
//! so that an element costs one exponential, since that of the larger maximum is 1. A sum below minus infinity may be NaN,
//! and is nothing beside others: where `e` is 0, so is the product. Below an infinite maximum a sum of something is NaN.
//!
//! Exponentials of sums that are counts, of pairs `(x, 1)`, are approximated in f32 whatever becomes of them
//! ([`ApproxOp::ExpBelow`]).

use super::facts::Facts;
use crate::diag::Result;
use crate::kernel::{ExprId, KernelBuilder};
use crate::num::{ApproxOp, BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value};
use crate::schedule::TvId;

/// How a reduction combines values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Combine {
    op: ReduceOp,
    /// Whether it is of pairs `(x, 1)`, and of what is made of these.
    counts: bool,
}

impl Facts<'_> {
    /// How a reduction combines values.
    pub(super) fn combine_of(&self, tv: TvId) -> Result<Combine> {
        Ok(Combine { op: self.reduce_op(tv)?, counts: self.scheduled.counts_pairs(tv) })
    }
}

impl Combine {
    /// Whether values are pairs of a maximum and a sum.
    pub(super) fn is_of_pairs(self) -> bool {
        self.op == ReduceOp::MaxSumExp
    }

    /// `before op value`; what takes several operations is named after `name`.
    pub(super) fn apply(self, b: &mut KernelBuilder, name: &str, before: ExprId, value: ExprId) -> ExprId {
        match self.op.combine() {
            Some(op) => b.exprs().binary(op, before, value),
            None => self.pairs(b, name, before, value),
        }
    }

    fn pairs(self, b: &mut KernelBuilder, name: &str, before: ExprId, value: ExprId) -> ExprId {
        let [m0, s0] = parts(b, before);
        let [m1, s1] = parts(b, value);
        let apart = difference(b, name, m0, m1);
        let distance = b.exprs().unary(UnaryOp::Abs, apart);
        let distance = b.exprs().unary(UnaryOp::Neg, distance);
        let factor = exp(b, distance, self.counts);
        let factor = b.let_(format!("{name}_e"), factor);
        let zero = zero(b, apart);
        let is_first = b.exprs().binary(BinaryOp::Ge, apart, zero);
        let lower = b.exprs().ternary(TernaryOp::Where, is_first, s1, s0);
        let upper = b.exprs().ternary(TernaryOp::Where, is_first, s0, s1);
        let scaled = scaled(b, lower, factor);
        let sum = b.exprs().add(scaled, upper);
        let max = b.exprs().binary(BinaryOp::Maximum, m0, m1);
        pair(b, name, max, sum)
    }

    /// The sum of a pair, below a maximum that is no less than its own.
    pub(super) fn sum_below(self, b: &mut KernelBuilder, name: &str, pair: ExprId, max: ExprId) -> ExprId {
        let [own, sum] = parts(b, pair);
        let apart = difference(b, name, own, max);
        let factor = exp(b, apart, self.counts);
        let factor = b.let_(format!("{name}_e"), factor);
        let below = scaled(b, sum, factor);
        b.let_(format!("{name}_s"), below)
    }
}

/// `exp(x - max)`, NaN of what is infinite as the maximum is.
pub(super) fn exp_below(b: &mut KernelBuilder, x: ExprId, max: ExprId, counts: bool) -> ExprId {
    let apart = b.exprs().sub(x, max);
    exp(b, apart, counts)
}

/// The pair of a maximum and a sum, which is NaN below an infinite one unless it is 0.
pub(super) fn pair(b: &mut KernelBuilder, name: &str, max: ExprId, sum: ExprId) -> ExprId {
    let sum = b.let_(format!("{name}_s"), sum);
    let none = b.exprs().sub(max, max);
    let poisoned = b.exprs().add(sum, none);
    let zero = zero(b, sum);
    let is_none = b.exprs().binary(BinaryOp::Eq, sum, zero);
    let sum = b.exprs().ternary(TernaryOp::Where, is_none, sum, poisoned);
    b.exprs().binary(BinaryOp::Complex, max, sum)
}

fn exp(b: &mut KernelBuilder, x: ExprId, counts: bool) -> ExprId {
    match b.exprs().dtype(x) {
        DType::F32 if counts => b.exprs().approx(ApproxOp::ExpBelow, x),
        _ => b.exprs().unary(UnaryOp::Exp, x),
    }
}

/// `sum * factor`, 0 where the factor is.
fn scaled(b: &mut KernelBuilder, sum: ExprId, factor: ExprId) -> ExprId {
    let zero = zero(b, factor);
    let is_nothing = b.exprs().binary(BinaryOp::Eq, factor, zero);
    let product = b.exprs().mul(sum, factor);
    b.exprs().ternary(TernaryOp::Where, is_nothing, zero, product)
}

fn parts(b: &mut KernelBuilder, pair: ExprId) -> [ExprId; 2] {
    [UnaryOp::Real, UnaryOp::Imag].map(|op| b.exprs().unary(op, pair))
}

/// `x - y`, 0 where both are equal.
fn difference(b: &mut KernelBuilder, name: &str, x: ExprId, y: ExprId) -> ExprId {
    let zero = zero(b, x);
    let equal = b.exprs().binary(BinaryOp::Eq, x, y);
    let apart = b.exprs().sub(x, y);
    let apart = b.exprs().ternary(TernaryOp::Where, equal, zero, apart);
    b.let_(format!("{name}_d"), apart)
}

fn zero(b: &mut KernelBuilder, like: ExprId) -> ExprId {
    let dtype = b.exprs().dtype(like);
    b.exprs().value(Value::Float(0.0), dtype)
}
