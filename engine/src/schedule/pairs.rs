//! Reductions of pairs of a maximum and a sum of exponentials below it, in parts that a thread holds.
//!
//! Combined one after the other, each pair takes an exponential, a choice and a maximum, and waits for the one before it. Of
//! a part that is held, the maximum comes first and the sum below it then: an exponential and a sum each, and none
//! waits for another.

use super::builder::ScheduleBuilder;
use super::ir::{Compute, Step, Tv, TvId, TvOp, TvOperand};
use crate::axes::AxisId;
use crate::diag::{Diagnostic, Result};
use crate::num::{BinaryOp, DType, ReduceOp, UnaryOp};

impl ScheduleBuilder {
    /// Splits a reduction by [`ReduceOp::MaxSumExp`] in two, as [`rfactor`](Self::rfactor) does, or makes one step of all of
    /// it; the first step, over `leaves`, becomes
    ///
    /// ```text
    /// m = max(re)   s = sum(im * exp_below(re, m))   (m, s)
    /// ```
    ///
    /// with a name behind that of the pair, `_pN` if there are two, for each: `_re`, `_max`, `_exp`, `_im`, `_mul` and
    /// `_sum`. The pair is returned.
    pub fn rfactor_max(&mut self, tv: TvId, leaves: &[AxisId]) -> Result<TvId> {
        const VERB: &str = "rfactor_max";
        let rest = self.left_to_reduce(VERB, tv, leaves)?;
        if !self.scheduled.reduces_pairs(tv) {
            return self.refuse_rfactor(VERB, tv, "which does not reduce by max_sum_exp; `rfactor` splits all others");
        }
        if leaves.is_empty() {
            return self.refuse_rfactor(VERB, tv, "leaves one side without an axis");
        }
        let names = leaves.iter().map(|leaf| self.scheduled.axes[*leaf].name.clone()).collect();
        self.scheduled.steps.push(Step::RfactorMax { tensor: self.scheduled.tensors[tv].name.clone(), axes: names });
        let part = if rest.is_empty() { tv } else { self.factor_out(tv, leaves, rest)? };
        self.split_pairs(part, leaves)?;
        Ok(part)
    }

    /// A reduction of pairs as a maximum and a sum.
    fn split_pairs(&mut self, part: TvId, leaves: &[AxisId]) -> Result<()> {
        let data = self.scheduled.tensors[part].clone();
        let Some([TvOperand::Tv(from)]) = data.op.as_ref().map(|op| op.inputs.as_slice()) else {
            return Err(Diagnostic::bug(format!("{} has no tensor operand", data.name)));
        };
        let read = self.scheduled.tensors[*from].clone();
        let from = TvOperand::Tv(*from);
        let dtype = data.dtype.part();
        // Of the elements that are reduced, and of what is left of them.
        let each = Tv { source: data.source, ..read.in_registers() };
        let left = data.clone();
        let name = data.name.as_str();
        let counts = self.scheduled.counts_pairs(part);
        let reduce = |op: ReduceOp| Compute::Reduce { op, over: leaves.to_vec() };
        let real = self.add(name, "re", &each, dtype, Compute::Unary(UnaryOp::Real), &[from]);
        let max = self.add(name, "max", &left, dtype, reduce(ReduceOp::Max), &[real]);
        let exp = self.add(name, "exp", &each, dtype, Compute::ExpBelow { counts }, &[real, max]);
        let imag = self.add(name, "im", &each, dtype, Compute::Unary(UnaryOp::Imag), &[from]);
        let scaled = self.add(name, "mul", &each, dtype, Compute::Binary(BinaryOp::Mul), &[imag, exp]);
        let sum = self.add(name, "sum", &left, dtype, reduce(ReduceOp::Sum), &[scaled]);
        self.scheduled.tensors[part].op =
            Some(TvOp { compute: Compute::Binary(BinaryOp::Complex), inputs: vec![max, sum] });
        Ok(())
    }

    /// A new tensor like another one, computed otherwise.
    fn add(
        &mut self,
        name: &str,
        what: &str,
        like: &Tv,
        dtype: DType,
        compute: Compute,
        inputs: &[TvOperand],
    ) -> TvOperand {
        let name = self.names.fresh(format!("{name}_{what}"));
        let op = Some(TvOp { compute, inputs: inputs.to_vec() });
        TvOperand::Tv(self.scheduled.tensors.push(Tv { name, dtype, op, ..like.clone() }))
    }
}
