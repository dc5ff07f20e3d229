//! Compares a result with the reference.
//!
//! An element matches if `|actual - expected| <= abs + rel * |expected|`, or
//! both are NaN, or both the same infinity. Of integers `abs` alone counts: they match exactly where nobody asks for one, as
//! truth values always do.
//!
//! The default tolerance follows the error of a well-made kernel on data of
//! magnitude around 1, with `e` the spacing of the computing type at 1 (`f32`
//! for all but `f64`): a chain of functions is good to 16 `e` relative; where
//! terms cancel, their rounding stays, 32 `e`; a sum of `n` terms adds
//! `8 sqrt(n) e`: what hundreds of blocks come to is added one after the other, and each
//! time rounded as the partial result asks for, which is near `sqrt(n)` though the last one
//! be small (of 17,000 sums of 3,001 terms the worst takes 7). A product of matrices, which a
//! library sums one term after the other, adds `4 n e`. Of a product of `n` elements each step rounds what all before come to:
//! it is good to `2 sqrt(n) e` more, relative. A rounding to `f16` or `bf16` on the way may fall to either
//! side, which is one spacing of that type: 2 are allowed.

use crate::array::nest::Nest;
use crate::array::{copy_layout, parallel, row_major_strides};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Call, Form};
use crate::fusion::{Bindings, Fusion, OpId, OpKind, TensorId};
use crate::num::{DType, ReduceOp, Value, storage};
use crate::tensor::HostTensor;
use crate::util::EntityId;

/// How far a result may be from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Part that grows with the expected magnitude.
    pub rel: f64,
}

/// Spacing of a floating-point type at 1; 0 for exact types.
fn spacing(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON.into(),
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        DType::F8E4M3FN => 1.0 / 8.0,
        DType::F8E5M2 => 1.0 / 4.0,
        // Half the distance upwards, the whole one downwards.
        DType::F8E8M0FNU => 0.5,
        DType::F4E2M1FN => 0.5,
        DType::C64 | DType::C128 => spacing(dtype.part()),
        _ => 0.0,
    }
}

impl Tolerance {
    /// No difference at all.
    pub const EXACT: Self = Self { abs: 0.0, rel: 0.0 };

    /// The default for an element type and a longest reduction.
    pub fn default_for(dtype: DType, reduction: i64) -> Self {
        let compute = spacing(dtype.compute());
        let stored = if dtype.is_reduced_float() { 2.0 * spacing(dtype) } else { 0.0 };
        let terms = reduction.max(0) as f64;
        Self { abs: compute * (32.0 + 8.0 * terms.sqrt()), rel: 16.0 * compute + stored }
    }

    /// The default for an output of a fusion: by its type, the longest
    /// reduction and the coarsest type that it was computed through.
    pub fn for_output(fusion: &Fusion, bindings: &Bindings, output: TensorId) -> Self {
        let dtype = fusion.tensors[output].dtype;
        if !dtype.is_float() && !dtype.is_complex() {
            return Self::EXACT;
        }
        let cone = Cone::of(fusion, bindings, output);
        let default = |dtype: DType| {
            let Self { abs, rel } = Self::default_for(dtype, cone.reduction);
            let e = spacing(dtype.compute());
            let (terms, factors) = (cone.product.max(0) as f64, cone.factors.max(0) as f64);
            Self { abs: abs + e * 4.0 * terms, rel: rel + e * 2.0 * factors.sqrt() }
        };
        let mut tolerance = default(dtype);
        // Computing in f32 for an f64 result is as good as f32.
        if let Some(coarse) = cone.coarsest.filter(|&coarse| spacing(coarse) > spacing(dtype)) {
            let coarse_tolerance = default(coarse);
            tolerance.abs = tolerance.abs.max(coarse_tolerance.abs);
            tolerance.rel = tolerance.rel.max(coarse_tolerance.rel);
        }
        if let Some(inner) = cone.coarsest_inside.filter(|inner| inner.is_reduced_float()) {
            tolerance.abs += 2.0 * spacing(inner);
            tolerance.rel += 2.0 * spacing(inner);
        }
        tolerance
    }
}

/// What an output is computed through.
struct Cone {
    /// Most elements that one result of a reduction combines.
    reduction: i64,
    /// Most terms of one element of a product of matrices.
    product: i64,
    /// Most elements that are multiplied to one.
    factors: i64,
    /// The coarsest floating-point type of an operation's result.
    coarsest: Option<DType>,
    /// The same, not counting the output itself.
    coarsest_inside: Option<DType>,
}

impl Cone {
    fn of(fusion: &Fusion, bindings: &Bindings, output: TensorId) -> Self {
        let mut needed = vec![false; fusion.tensors.len()];
        needed[output.index()] = true;
        let mut cone = Self { reduction: 1, product: 0, factors: 0, coarsest: None, coarsest_inside: None };
        let coarser = |known: Option<DType>, new: DType| match known {
            Some(known) if spacing(known) >= spacing(new) => Some(known),
            _ => Some(new),
        };
        for (id, op) in fusion.ops.iter().rev() {
            if !needed[op.output().index()] {
                continue;
            }
            let dtype = fusion.tensors[op.output()].dtype;
            let terms = Terms::of(fusion, bindings, id);
            match terms {
                Some(Terms::Multiplied(n)) => cone.product = cone.product.max(n),
                Some(Terms::Combined(n)) => cone.reduction = cone.reduction.max(n),
                Some(Terms::Factors(n)) => {
                    (cone.reduction, cone.factors) = (cone.reduction.max(n), cone.factors.max(n));
                }
                None => {}
            }
            // Moving elements does not round them.
            if (dtype.is_float() || dtype.is_complex()) && (op.kind.is_elementwise() || terms.is_some()) {
                cone.coarsest = coarser(cone.coarsest, dtype);
                if op.output() != output {
                    cone.coarsest_inside = coarser(cone.coarsest_inside, dtype);
                }
            }
            for operand in fusion.tensor_inputs(id) {
                needed[operand.index()] = true;
            }
        }
        cone
    }
}

/// How many terms the longest element of an operation's result is made of.
#[derive(Clone, Copy)]
enum Terms {
    /// Products that are summed.
    Multiplied(i64),
    /// Elements of a reduction, or of a scan, or rows that are added.
    Combined(i64),
    /// Elements of a reduction or a scan that multiplies them.
    Factors(i64),
}

impl Terms {
    fn of(fusion: &Fusion, bindings: &Bindings, op: OpId) -> Option<Self> {
        let sizes = bindings.sizes(fusion, fusion.tensor_inputs(op).next()?);
        match &fusion.ops[op].kind {
            OpKind::Reduce { op, axes, .. } => {
                let terms = axes.iter().fold(1i64, |n, &axis| n.saturating_mul(sizes[axis as usize]));
                Some(if *op == ReduceOp::Prod { Self::Factors(terms) } else { Self::Combined(terms) })
            }
            // Those with scales and an epilogue multiply their first two operands too.
            OpKind::Call(call)
                if call.row.tensor_cores
                    || matches!(call.movement().form, Some(Form::Matmul | Form::Linear | Form::GroupedSums)) =>
            {
                Some(Self::Multiplied(*sizes.last()?))
            }
            // As many rows may be added to one as there are.
            OpKind::Call(call) if matches!(call.movement().form, Some(Form::Put | Form::PutRuns | Form::PutGroups)) => {
                let tensors: Vec<_> = fusion.tensor_inputs(op).collect();
                let index = if is_grouped(call) { tensors.get(1) } else { tensors.iter().rev().nth(1) };
                Some(Self::Combined(*bindings.sizes(fusion, *index?).first()?))
            }
            OpKind::Call(call) if call.movement().form == Some(Form::Scan(ReduceOp::Prod)) => {
                Some(Self::Factors(sizes[call.axis("dim")]))
            }
            kind => Some(Self::Combined(sizes[kind.scanned()?])),
        }
    }
}

/// Whether rows are added in groups.
fn is_grouped(call: &Call) -> bool {
    call.movement().form == Some(Form::PutGroups)
}

/// An element that does not match.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Its index.
    pub index: Vec<i64>,
    /// What was computed.
    pub actual: Value,
    /// What the reference has.
    pub expected: Value,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The element type.
    pub dtype: DType,
    /// The tolerance that was applied.
    pub tolerance: Tolerance,
    /// Elements compared.
    pub elements: usize,
    /// Elements that do not match.
    pub mismatches: usize,
    /// Of these, how many because one side is NaN or infinite.
    pub nonfinite_mismatches: usize,
    /// Largest absolute difference of finite elements.
    pub max_abs: f64,
    /// Largest relative difference of finite elements whose expected value is not 0.
    pub max_rel: f64,
    /// The first mismatch in row-major order.
    pub first: Option<Mismatch>,
    /// The mismatch that exceeds the tolerance most.
    pub worst: Option<Mismatch>,
}

impl Comparison {
    /// Whether everything matches.
    pub fn passed(&self) -> bool {
        self.mismatches == 0
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { elements, mismatches, max_abs, max_rel, tolerance, .. } = self;
        if self.passed() {
            return write!(f, "{elements} elements match, max abs error {max_abs:.3e}, max rel error {max_rel:.3e}");
        }
        write!(f, "{mismatches} of {elements} elements differ")?;
        if self.nonfinite_mismatches > 0 {
            write!(f, " ({} by NaN or infinity)", self.nonfinite_mismatches)?;
        }
        write!(f, ", max abs error {max_abs:.3e}, max rel error {max_rel:.3e}")?;
        write!(f, ", tolerance abs {:.3e} rel {:.3e}", tolerance.abs, tolerance.rel)?;
        for (what, mismatch) in [("first", &self.first), ("worst", &self.worst)] {
            if let Some(Mismatch { index, actual, expected }) = mismatch {
                let (actual, expected) = (actual.shown(self.dtype), expected.shown(self.dtype));
                write!(f, "; {what} at {index:?}: {actual}, expected {expected}")?;
            }
        }
        Ok(())
    }
}

/// Partial outcome over a range of elements.
#[derive(Clone, Copy, Default)]
struct Partial {
    mismatches: usize,
    nonfinite: usize,
    max_abs: f64,
    max_rel: f64,
    first: Option<usize>,
    worst: Option<(f64, usize)>,
}

impl Partial {
    /// Joins another range.
    fn join(self, other: Self) -> Self {
        Self {
            mismatches: self.mismatches + other.mismatches,
            nonfinite: self.nonfinite + other.nonfinite,
            max_abs: self.max_abs.max(other.max_abs),
            max_rel: self.max_rel.max(other.max_rel),
            first: self.first.into_iter().chain(other.first).min(),
            worst: match (self.worst, other.worst) {
                (Some(a), Some(b)) => Some(worse(a, b)),
                (a, b) => a.or(b),
            },
        }
    }

    /// Positions come in any order.
    fn miss(&mut self, position: usize, excess: f64) {
        self.mismatches += 1;
        self.first = Some(self.first.map_or(position, |first| first.min(position)));
        self.worst = Some(self.worst.map_or((excess, position), |worst| worse(worst, (excess, position))));
    }

    fn add(&mut self, dtype: DType, position: usize, actual: Value, expected: Value, tolerance: Tolerance) {
        if let (Value::Complex(a, b), Value::Complex(e, f)) = (actual, expected) {
            return self.add_complex(position, (a, b), (e, f), tolerance);
        }
        let (Value::Float(a), Value::Float(e)) = (actual, expected) else {
            let (a, e) = (actual.as_i64(), expected.as_i64());
            let unsigned = dtype == DType::U64;
            let error = if unsigned { a.cast_unsigned().abs_diff(e.cast_unsigned()) } else { a.abs_diff(e) } as f64;
            self.max_abs = self.max_abs.max(error);
            let is_near = dtype != DType::Bool && error <= tolerance.abs;
            if actual != expected && !is_near {
                self.miss(position, error);
            }
            return;
        };
        if !(a.is_finite() && e.is_finite()) {
            if a != e && !(a.is_nan() && e.is_nan()) {
                self.nonfinite += 1;
                self.miss(position, f64::INFINITY);
            }
            return;
        }
        self.distance(position, (a - e).abs(), e.abs(), tolerance);
    }

    /// Finite numbers at a distance, the expected one of a magnitude.
    fn distance(&mut self, position: usize, error: f64, magnitude: f64, tolerance: Tolerance) {
        self.max_abs = self.max_abs.max(error);
        if magnitude != 0.0 {
            self.max_rel = self.max_rel.max(error / magnitude);
        }
        let allowed = tolerance.abs + tolerance.rel * magnitude;
        if error > allowed {
            self.miss(position, error / allowed);
        }
    }

    /// The distance in the plane of the parts that are finite.
    fn add_complex(&mut self, position: usize, a: (f64, f64), e: (f64, f64), tolerance: Tolerance) {
        if differ_nonfinite(a.0, e.0) || differ_nonfinite(a.1, e.1) {
            self.nonfinite += 1;
            self.miss(position, f64::INFINITY);
            return;
        }
        let part = |a: f64, e: f64| if e.is_finite() { (a - e, e) } else { (0.0, 0.0) };
        let ((x, re), (y, im)) = (part(a.0, e.0), part(a.1, e.1));
        self.distance(position, x.hypot(y), re.hypot(im), tolerance);
    }
}

/// The one of two mismatches that exceeds the tolerance more; of equals the first in row-major order.
fn worse(a: (f64, usize), b: (f64, usize)) -> (f64, usize) {
    if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) { b } else { a }
}

/// Whether two parts cannot be compared by distance and differ.
fn differ_nonfinite(a: f64, e: f64) -> bool {
    !(a.is_finite() && e.is_finite()) && a != e && !(a.is_nan() && e.is_nan())
}

/// Elements that one task compares.
const RANGE: usize = 1 << 16;
/// Elements that are compared as bytes first.
const BLOCK: usize = 32;

/// A way through two tensors of the same sizes, in the order in which the second one's elements lie in memory: reading
/// elements that lie far apart costs more than comparing them.
struct Walk<'a> {
    actual: &'a HostTensor,
    expected: &'a HostTensor,
    /// Over both, and over the row-major positions.
    nest: Nest<3>,
}

impl<'a> Walk<'a> {
    fn over(actual: &'a HostTensor, expected: &'a HostTensor) -> Self {
        let sizes = expected.sizes();
        let (order, _) = copy_layout(sizes, expected.strides());
        let ordered = |of: &[i64]| order.iter().map(|&axis| of[axis] as usize).collect::<Vec<_>>();
        let positions = ordered(&row_major_strides(sizes));
        let strides = [&ordered(actual.strides())[..], &ordered(expected.strides()), &positions];
        Self { actual, expected, nest: Nest::new(&ordered(sizes), strides) }
    }

    /// Compares so many elements of the way from the `start`-th one on.
    fn compare(&self, start: usize, len: usize, tolerance: Tolerance) -> Partial {
        let [a_step, e_step, p_step] = self.nest.inner_strides();
        let mut partial = Partial::default();
        for (_, run, [a, e, p]) in self.nest.rows(start, len) {
            let (a, e) = (self.actual.offset + a, self.expected.offset + e);
            for first in (0..run).step_by(BLOCK) {
                let count = BLOCK.min(run - first);
                // Equal bytes are equal elements, whatever their type: they add nothing to the outcome.
                if (a_step, e_step) == (1, 1) && self.are_bytes_equal(a + first, e + first, count) {
                    continue;
                }
                for i in first..first + count {
                    self.add((a + i * a_step, e + i * e_step, p + i * p_step), tolerance, &mut partial);
                }
            }
        }
        partial
    }

    fn are_bytes_equal(&self, a: usize, e: usize, count: usize) -> bool {
        let width = self.expected.dtype().bytes();
        let bytes = |of: &'a HostTensor, at: usize| of.data.get(at * width..(at + count) * width);
        bytes(self.actual, a) == bytes(self.expected, e)
    }

    fn add(&self, (a, e, position): (usize, usize, usize), tolerance: Tolerance, partial: &mut Partial) {
        let dtype = self.expected.dtype();
        let element = |of: &HostTensor, at: usize| storage::read(dtype, &of.data, at);
        if let (Some(a), Some(e)) = (element(self.actual, a), element(self.expected, e)) {
            partial.add(dtype, position, a, e, tolerance);
        }
    }
}

/// Compares element by element. An error if type or sizes differ: then there is
/// nothing to compare.
pub fn compare(actual: &HostTensor, expected: &HostTensor, tolerance: Tolerance) -> Result<Comparison> {
    actual.check()?;
    expected.check()?;
    let describe = |t: &HostTensor| format!("{} {:?}", t.dtype(), t.sizes());
    if actual.dtype() != expected.dtype() || actual.sizes() != expected.sizes() {
        let (actual, expected) = (describe(actual), describe(expected));
        return Err(Diagnostic::bug(format!("the result is {actual}, the reference {expected}")));
    }
    let (dtype, elements) = (expected.dtype(), expected.numel());
    let walk = Walk::over(actual, expected);
    let partials = parallel::results(elements.div_ceil(RANGE), &|range| {
        let start = range * RANGE;
        walk.compare(start, RANGE.min(elements - start), tolerance)
    });
    let total = partials.into_iter().fold(Partial::default(), Partial::join);
    let mismatch = |position: usize| {
        let index = unflatten(position, expected.sizes());
        Some(Mismatch { actual: actual.try_get(&index)?, expected: expected.try_get(&index)?, index })
    };
    Ok(Comparison {
        dtype,
        tolerance,
        elements,
        mismatches: total.mismatches,
        nonfinite_mismatches: total.nonfinite,
        max_abs: total.max_abs,
        max_rel: total.max_rel,
        first: total.first.and_then(mismatch),
        worst: total.worst.and_then(|(_, position)| mismatch(position)),
    })
}

/// The index of a row-major position.
fn unflatten(position: usize, sizes: &[i64]) -> Vec<i64> {
    let mut rest = position as i64;
    let mut index = vec![0; sizes.len()];
    for (i, &size) in index.iter_mut().zip(sizes).rev() {
        *i = rest % size.max(1);
        rest /= size.max(1);
    }
    index
}

#[cfg(test)]
mod tests;
