//! What registers hold for elements outside the tensor.
//!
//! A load whose index is outside leaves a *fill* value in its register. If the
//! fill makes the operand of a reduction neutral, the accumulation needs no
//! test of its own. Fills are chosen for the whole kernel: the candidate under
//! which most reductions need no test.
//!
//! The value of an expression outside is known when all its operands' are. One
//! rule looks further: `x - max(x)` with `x` filled by minus infinity stays
//! minus infinity outside. If the maximum itself is not finite, some element
//! inside is NaN, and so is every sum. That needs the maximum of `x` itself,
//! over the same dimensions, of at least one element.

use super::context::Lowering;
use crate::num::{BinaryOp, DType, DTypeClass, ReduceOp, UnaryOp, Value, eval};
use crate::schedule::{AxisId, Compute, Memory, ScheduledFusion, TvId, TvOp, TvOperand};
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of each tensor outside; none where nothing is.
type OutsideValues = SecondaryMap<TvId, Option<Outside>>;

/// What is known of a value outside.
#[derive(Clone, Copy)]
struct Outside {
    value: Value,
    /// Whether it may be NaN instead, and then so is a value inside. Only
    /// operations that keep NaN may follow, down to the reduction.
    or_nan: bool,
}

impl Outside {
    fn certain(value: Value) -> Self {
        Self { value, or_nan: false }
    }

    /// The value after an operation; unknown where it might lose a NaN.
    fn map(self, keeps_nan: bool, f: impl FnOnce(Value) -> Value) -> Option<Self> {
        (keeps_nan || !self.or_nan).then(|| Self { value: f(self.value), or_nan: self.or_nan })
    }
}

impl Lowering<'_> {
    /// Chooses the fill, and finds the accumulations that need no test.
    pub(super) fn choose_fill(&mut self) {
        let reductions: Vec<TvId> = self.scheduled.tensors.ids().filter(|tv| self.accumulates(*tv)).collect();
        let mut candidates = vec![None];
        for tv in &reductions {
            let op = self.reduce_op(*tv).ok();
            if !candidates.contains(&op) {
                candidates.push(op);
            }
        }
        if reductions.is_empty() {
            return;
        }
        let order = self.scheduled.topological();
        let mut best: Option<(Option<ReduceOp>, BTreeSet<TvId>)> = None;
        for candidate in candidates {
            // Mostly, all reduce over the same dimensions.
            let mut known: BTreeMap<BTreeSet<AxisId>, OutsideValues> = BTreeMap::new();
            let mut neutral = BTreeSet::new();
            for tv in &reductions {
                let roots = self.reduced_roots(*tv);
                let values =
                    known.entry(roots).or_insert_with_key(|roots| self.outside_values(&order, roots, candidate));
                if self.is_neutral_outside(*tv, values) {
                    neutral.insert(*tv);
                }
            }
            if best.as_ref().is_none_or(|(_, known)| neutral.len() > known.len()) {
                best = Some((candidate, neutral));
            }
        }
        if let Some((fill, neutral)) = best {
            self.fill = fill;
            self.untested = neutral;
        }
    }

    /// The fill of a load: the neutral element of the chosen reduction, or zero.
    pub(super) fn fill_value(&self, dtype: DType, fill: Option<ReduceOp>) -> Value {
        match (fill, dtype.class()) {
            (Some(op), _) => eval::reduce_identity(op, dtype),
            (None, DTypeClass::Float) => Value::Float(0.0),
            (None, DTypeClass::Int) => Value::Int(0),
            (None, DTypeClass::Bool) => Value::Bool(false),
            (None, DTypeClass::Complex) => Value::Complex(0.0, 0.0),
        }
    }

    /// The roots that a reduction combines over; empty for other tensors.
    fn reduced_roots(&self, tv: TvId) -> BTreeSet<AxisId> {
        match &self.scheduled.tensors[tv].op {
            Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) => {
                over.iter().flat_map(|axis| self.scheduled.axes.roots_of(*axis)).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    fn is_neutral_outside(&self, tv: TvId, known: &OutsideValues) -> bool {
        let data = &self.scheduled.tensors[tv];
        let Some(TvOp { compute: Compute::Reduce { op, .. }, inputs }) = &data.op else { return false };
        let [TvOperand::Tv(from)] = *inputs.as_slice() else { return false };
        known[from].map(|outside| outside.value) == Some(eval::reduce_identity(*op, data.dtype))
    }

    /// The value of every tensor where an index of `roots` is outside: each from
    /// its operands', in one pass.
    fn outside_values(&self, order: &[TvId], roots: &BTreeSet<AxisId>, fill: Option<ReduceOp>) -> OutsideValues {
        let mut known = OutsideValues::new();
        for tv in order {
            let outside = self.outside(*tv, roots, fill, &known);
            known.set(*tv, outside);
        }
        known
    }

    /// The value of a tensor where an index of `roots` is outside, if known;
    /// that of its operands is in `known`.
    fn outside(
        &self,
        tv: TvId,
        roots: &BTreeSet<AxisId>,
        fill: Option<ReduceOp>,
        known: &OutsideValues,
    ) -> Option<Outside> {
        let data = &self.scheduled.tensors[tv];
        let op = data.op.as_ref()?;
        let operand = |operand: &TvOperand| match operand {
            TvOperand::Tv(tv) => known[*tv],
            TvOperand::Scalar(scalar) => self.scheduled.fusion.const_scalar(*scalar).map(Outside::certain),
        };
        match (&op.compute, op.inputs.as_slice()) {
            (Compute::Copy, [TvOperand::Tv(from)]) if self.is_global(*from) => {
                let covers = roots.iter().all(|root| data.has_root(*root));
                covers.then(|| Outside::certain(self.fill_value(data.dtype, fill)))
            }
            (Compute::Copy, [a]) => operand(a),
            (Compute::Cast, [a]) => {
                let from = match a {
                    TvOperand::Tv(tv) => self.scheduled.tensors[*tv].dtype,
                    TvOperand::Scalar(scalar) => self.scheduled.fusion.scalars[*scalar].dtype,
                };
                operand(a)?.map(data.dtype.is_float(), |value| eval::cast(from, data.dtype, value))
            }
            (Compute::Unary(op), [TvOperand::Tv(a)]) => {
                let keeps_nan = matches!(op, UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Neg | UnaryOp::Abs);
                let dtype = self.scheduled.tensors[*a].dtype;
                known[*a]?.map(keeps_nan, |value| eval::unary(*op, dtype, value))
            }
            (Compute::Binary(BinaryOp::Sub), [a @ TvOperand::Tv(x), TvOperand::Tv(b)])
                if !self.class.has_empty && self.is_maximum_of(*b, *x, roots) =>
            {
                let value = operand(a)?.value;
                (value == Value::Float(f64::NEG_INFINITY)).then_some(Outside { value, or_nan: true })
            }
            (Compute::Binary(op), [a, b]) => {
                use BinaryOp::{Add, Maximum, Minimum, Mul, Sub};
                let dtype = match (a, b) {
                    (TvOperand::Tv(tv), _) | (_, TvOperand::Tv(tv)) => self.scheduled.tensors[*tv].dtype,
                    _ => data.dtype,
                };
                let (a, b) = (operand(a)?, operand(b)?);
                let keeps_nan = matches!(op, Add | Sub | Mul | Maximum | Minimum);
                let both = Outside { value: a.value, or_nan: a.or_nan || b.or_nan };
                both.map(keeps_nan, |value| eval::binary(*op, dtype, value, b.value))
            }
            _ => None,
        }
    }

    /// Whether `b` is the maximum of `x` over `roots`, perhaps broadcast.
    pub(super) fn is_maximum_of(&self, b: TvId, x: TvId, roots: &BTreeSet<AxisId>) -> bool {
        let mut reduced = self.behind_moves(b);
        loop {
            let Some(TvOp { compute: Compute::Reduce { op: ReduceOp::Max, .. }, inputs }) =
                &self.scheduled.tensors[reduced].op
            else {
                return false;
            };
            let [TvOperand::Tv(from)] = *inputs.as_slice() else { return false };
            if self.scheduled.tensors[from].source != self.scheduled.tensors[reduced].source {
                // Copies for other users stem from the same tensor of the fusion.
                let source = |tv: TvId| self.scheduled.tensors[self.behind_moves(tv)].source;
                return self.reduced_roots(reduced) == *roots && source(from) == source(x);
            }
            // The last stage of a reduction that was split.
            reduced = self.behind_moves(from);
        }
    }

    /// The tensor that another one is only a copy of.
    pub(super) fn behind_moves(&self, tv: TvId) -> TvId {
        self.copied[tv].unwrap_or(tv)
    }
}

/// For each tensor that is a copy of another one in registers, the first of such
/// a chain of copies.
pub(super) fn copies(scheduled: &ScheduledFusion) -> SecondaryMap<TvId, Option<TvId>> {
    let mut copied: SecondaryMap<TvId, Option<TvId>> = SecondaryMap::new();
    for tv in scheduled.topological() {
        if let Some(TvOp { compute: Compute::Copy, inputs }) = &scheduled.tensors[tv].op
            && let [TvOperand::Tv(from)] = *inputs.as_slice()
            && scheduled.tensors[from].memory != Memory::Global
        {
            copied.set(tv, Some(copied[from].unwrap_or(from)));
        }
    }
    copied
}
