//! What the schedule proves of values, for the choice of approximations and for
//! comparisons that every number passes.

use super::context::Lowering;
use crate::kernel::ExprId;
use crate::num::{BinaryOp, DType, ReduceOp, UnaryOp};
use crate::schedule::{AxisId, Compute, TvId, TvOp, TvOperand};
use std::collections::BTreeSet;

impl Lowering<'_> {
    /// Notes what is known of a value that was just read of a tensor.
    pub(super) fn note_bounds(&mut self, tv: TvId, value: ExprId) {
        if self.is_sum_from_one(tv) {
            self.b.assume_at_least(value, 1.0);
        }
    }

    /// Whether a tensor is `sum(exp(x - max(x)))`, both over the same dimensions of
    /// at least one element: the largest element contributes 1, or all is NaN.
    fn is_sum_from_one(&self, tv: TvId) -> bool {
        let data = &self.scheduled.tensors[tv];
        if data.dtype != DType::F32 || !data.partial.is_empty() || self.class.has_empty {
            return false;
        }
        let mut stage = tv;
        let (element, roots) = loop {
            let Some(TvOp { compute: Compute::Reduce { op: ReduceOp::Sum, over }, inputs }) =
                &self.scheduled.tensors[stage].op
            else {
                return false;
            };
            let [TvOperand::Tv(from)] = *inputs.as_slice() else { return false };
            // The stages of a reduction that was split stem from one tensor.
            if self.scheduled.tensors[from].source != self.scheduled.tensors[stage].source {
                let roots: BTreeSet<AxisId> =
                    over.iter().flat_map(|axis| self.scheduled.axes.roots_of(*axis)).collect();
                break (from, roots);
            }
            stage = from;
        };
        let operands = |tv: TvId| {
            let op = self.scheduled.tensors[self.facts.behind_moves(tv)].op.as_ref()?;
            Some((&op.compute, op.inputs.as_slice()))
        };
        let Some((Compute::Unary(UnaryOp::Exp), [TvOperand::Tv(difference)])) = operands(element) else { return false };
        let Some((Compute::Binary(BinaryOp::Sub), [TvOperand::Tv(x), TvOperand::Tv(most)])) = operands(*difference)
        else {
            return false;
        };
        self.facts.is_maximum_of(*most, *x, &roots)
    }
}
