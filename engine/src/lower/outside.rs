//! What registers hold for elements outside the tensor.
//!
//! A load whose index is outside leaves a *fill* value in its register. If the
//! fill makes the operand of a reduction neutral, the accumulation needs no
//! test of its own. Fills are chosen for the whole kernel: the candidate under
//! which most reductions need no test.
//!
//! Where rows start at odd places loads read over their ends, and what they find there must be replaced by the fill.
//! That costs as much as a test, and pays where more reductions than loads do without one.
//!
//! The value of an expression outside is known when all its operands' are. One
//! rule looks further: `x - max(x)` with `x` filled by minus infinity stays
//! minus infinity outside. If the maximum itself is not finite, some element
//! inside is NaN, and so is every sum. A pair of minus infinity and 1 adds nothing to a maximum and its sum of
//! exponentials, once some element is inside. The first needs the maximum of `x` itself,
//! over the same dimensions, of at least one element.

use super::facts::Facts;
use crate::num::{BinaryOp, DType, ReduceOp, UnaryOp, Value, eval};
use crate::schedule::{AxisId, Compute, TvId, TvOp, TvOperand, Xform};
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of each tensor outside; none where nothing is.
type OutsideValues = SecondaryMap<TvId, Option<Known>>;

/// What is known of a value outside.
#[derive(Clone, Copy)]
struct Known {
    value: Value,
    /// Whether it may be NaN instead, and then so is a value inside. Only
    /// operations that keep NaN may follow, down to the reduction.
    or_nan: bool,
}

impl Known {
    fn certain(value: Value) -> Self {
        Self { value, or_nan: false }
    }

    /// The value after an operation; unknown where it might lose a NaN.
    fn map(self, keeps_nan: bool, f: impl FnOnce(Value) -> Value) -> Option<Self> {
        (keeps_nan || !self.or_nan).then(|| Self { value: f(self.value), or_nan: self.or_nan })
    }
}

/// What registers hold outside, and who relies on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    /// The reduction whose neutral element fills registers outside the tensor.
    fill: Option<ReduceOp>,
    /// Accumulations that the fill makes harmless outside.
    untested: BTreeSet<TvId>,
}

impl Outside {
    /// Chooses the fill, and finds the accumulations that need no test.
    pub(super) fn new(facts: &Facts<'_>) -> Self {
        let reductions: Vec<TvId> = facts.scheduled.tensors.ids().filter(|tv| facts.accumulates(*tv)).collect();
        let mut candidates = vec![None];
        for tv in &reductions {
            let op = facts.reduce_op(*tv).ok();
            if !candidates.contains(&op) {
                candidates.push(op);
            }
        }
        if reductions.is_empty() {
            return Self::default();
        }
        let order = facts.scheduled.topological();
        let mut best: Option<(Option<ReduceOp>, BTreeSet<TvId>)> = None;
        for candidate in candidates {
            // Mostly, all reduce over the same dimensions.
            let mut known: BTreeMap<BTreeSet<AxisId>, OutsideValues> = BTreeMap::new();
            let mut neutral = BTreeSet::new();
            for tv in &reductions {
                let roots = facts.reduced_roots(*tv);
                let values =
                    known.entry(roots).or_insert_with_key(|roots| facts.outside_values(&order, roots, candidate));
                if facts.is_neutral_outside(*tv, values) {
                    neutral.insert(*tv);
                }
            }
            if best.as_ref().is_none_or(|(_, known)| neutral.len() > known.len()) {
                best = Some((candidate, neutral));
            }
        }
        // What is read over the ends of rows is replaced, lane by lane, by the fill: that costs as much as a test.
        let best = best.filter(|(_, untested)| untested.len() > facts.loads_over_ends());
        best.map(|(fill, untested)| Self { fill, untested }).unwrap_or_default()
    }

    /// What a load leaves in registers of a type outside.
    pub(super) fn fill_of(&self, _: TvId, dtype: DType) -> Value {
        fill_value(dtype, self.fill)
    }

    /// Whether somebody relies on what a load leaves outside.
    pub(super) fn is_relied_on(&self, _: TvId) -> bool {
        !self.untested.is_empty()
    }

    /// Whether an accumulation must test its indices: its operand is no partial
    /// result, and holds no neutral element outside.
    pub(super) fn is_tested(&self, facts: &Facts<'_>, tv: TvId) -> bool {
        let tensors = &facts.scheduled.tensors;
        let complete = facts.scheduled.producers(tv).iter().any(|from| !tensors[*from].partial.is_empty());
        facts.accumulates(tv) && !complete && !self.untested.contains(&tv)
    }
}

/// The neutral element of a reduction, or zero, as the type holds it: some have no infinities, or no zero.
fn fill_value(dtype: DType, fill: Option<ReduceOp>) -> Value {
    let exact = match fill {
        // A pair is made of a maximum.
        Some(ReduceOp::MaxSumExp) if !dtype.is_complex() => eval::reduce_identity(ReduceOp::Max, dtype),
        Some(op) => eval::reduce_identity(op, dtype),
        None => eval::cast(DType::Bool, dtype, Value::Bool(false)),
    };
    match exact {
        Value::Float(number) => Value::Float(eval::round_float(dtype, number)),
        other => other,
    }
}

impl Facts<'_> {
    /// Loads of rows that start at odd places.
    fn loads_over_ends(&self) -> usize {
        let scheduled = self.scheduled;
        let shifted = |tv: TvId| {
            let axes = scheduled.tensors[tv].loop_axes();
            let of_rows = axes.flat_map(|axis| scheduled.axes.roots_of(axis));
            of_rows.into_iter().any(|root| scheduled.axes.uses(root).any(|xform| matches!(xform, Xform::Align { .. })))
        };
        let most = scheduled.tensors.values().map(|data| data.indexed().count()).max().unwrap_or(0);
        let is_row = |tv: TvId| scheduled.tensors[tv].indexed().count() == most;
        scheduled.tensors.ids().filter(|tv| self.loaded_from(*tv).is_some() && is_row(*tv) && shifted(*tv)).count()
    }

    fn is_neutral_outside(&self, tv: TvId, known: &OutsideValues) -> bool {
        let data = &self.scheduled.tensors[tv];
        let Some(TvOp { compute: Compute::Reduce { op, .. }, inputs }) = &data.op else { return false };
        let [TvOperand::Tv(from)] = *inputs.as_slice() else { return false };
        let Some(value) = known[from].map(|outside| outside.value) else { return false };
        match (op, value) {
            // What lies infinitely below the maximum adds nothing, if there is an element inside.
            (ReduceOp::MaxSumExp, Value::Complex(max, sum)) => {
                max == f64::NEG_INFINITY && sum.is_finite() && (sum == 0.0 || !self.class.has_empty)
            }
            _ => value == eval::reduce_identity(*op, data.dtype),
        }
    }

    fn is_filled_tile(&self, tv: TvId) -> bool {
        let data = &self.scheduled.tensors[tv];
        data.tile.is_some() && !data.is_ring()
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
    ) -> Option<Known> {
        let data = &self.scheduled.tensors[tv];
        // Who reads a tile may read elements of another row there.
        if self.is_filled_tile(tv) {
            return None;
        }
        let op = data.op.as_ref()?;
        let operand = |operand: &TvOperand| match operand {
            TvOperand::Tv(tv) => known[*tv],
            TvOperand::Scalar(scalar) => self.scheduled.fusion.const_scalar(*scalar).map(Known::certain),
        };
        match (&op.compute, op.inputs.as_slice()) {
            (Compute::Copy, [TvOperand::Tv(from)]) if self.is_global(*from) => {
                let covers = roots.iter().all(|root| data.has_root(*root));
                covers.then(|| Known::certain(fill_value(data.dtype, fill)))
            }
            (Compute::Copy, [a]) => operand(a),
            (Compute::Cast, [a]) => {
                let from = match a {
                    TvOperand::Tv(tv) => self.scheduled.tensors[*tv].dtype,
                    TvOperand::Scalar(scalar) => self.scheduled.fusion.scalars[*scalar].dtype,
                };
                let keeps_nan = data.dtype.is_float() && data.dtype != DType::F4E2M1FN;
                operand(a)?.map(keeps_nan, |value| eval::cast(from, data.dtype, value))
            }
            (Compute::Unary(op), [TvOperand::Tv(a)]) => {
                let keeps_nan = matches!(op, UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Neg | UnaryOp::Abs);
                let dtype = self.scheduled.tensors[*a].dtype;
                known[*a]?.map(keeps_nan, |value| eval::unary(*op, dtype, value))
            }
            // NaN below a maximum that is NaN, as some element inside is, or infinite, and then so is the sum of these.
            (Compute::ExpBelow { .. }, [a, _]) if !self.class.has_empty => {
                let value = operand(a)?.value;
                (value == Value::Float(f64::NEG_INFINITY)).then_some(Known { value: Value::Float(0.0), or_nan: true })
            }
            (Compute::Binary(BinaryOp::Sub), [a @ TvOperand::Tv(x), TvOperand::Tv(b)])
                if !self.class.has_empty && self.is_maximum_of(*b, *x, roots) =>
            {
                let value = operand(a)?.value;
                (value == Value::Float(f64::NEG_INFINITY)).then_some(Known { value, or_nan: true })
            }
            (Compute::Binary(op), [a, b]) => {
                use BinaryOp::{Add, Maximum, Minimum, Mul, Sub};
                let dtype = match (a, b) {
                    (TvOperand::Tv(tv), _) | (_, TvOperand::Tv(tv)) => self.scheduled.tensors[*tv].dtype,
                    _ => data.dtype,
                };
                let (a, b) = (operand(a)?, operand(b)?);
                let keeps_nan = matches!(op, Add | Sub | Mul | Maximum | Minimum);
                let both = Known { value: a.value, or_nan: a.or_nan || b.or_nan };
                both.map(keeps_nan, |value| eval::binary(*op, dtype, value, b.value))
            }
            _ => None,
        }
    }
}
