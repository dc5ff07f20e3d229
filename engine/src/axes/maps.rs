//! Index maps: the indices of axes, computed from the loops of one tensor, and the conditions
//! under which they are indices at all.
//!
//! Input: an axis graph and bound loops. Output: for each axis that is asked for, its index and
//! the tests on the way, built by an [`IndexBuilder`], so that the map itself knows no kernel.
//!
//! The formulas, with `f` and `n` the extent of the inner axis:
//!
//! | transform | backward | forward |
//! |---|---|---|
//! | split `a -> (o, i)` | `a = o * f + i` | `o = a / f`, `i = a % f` |
//! | merge `(o, i) -> m` | `o = m / n`, `i = m % n` | `m = o * n + i` |
//! | align `a -> p` | `a = p - shift(row)` | |
//! | resize `a -> r` | `a = r - left` | `r = a + left` |
//! | window `(a, o) -> w` | `a = o * step + w - left - shift(row)` | `w = a + left + shift(row) - o * step` |
//!
//! **Tests.** An index may leave its axis at either end: loops of a split that does not divide
//! run past it, a resized axis has other ends. Each index carries whether it is known to be at
//! least 0 (`lower_ok`) and below the extent (`upper_ok`). A test is placed at the latest place
//! where leaving can still be seen: at an inner part before it would alias the next outer index,
//! at what is divided before it would wrap, at the input of a split that does not divide before
//! its outer part would hide it, and at the axes that are asked for. What is divided is never
//! negative, and no division stands before the tests of its operands: evaluated in order, up to
//! the first that fails, terms and then indices divide by no extent that has no index.

use super::derive::{Derivation, Source};
use super::graph::{AxisGraph, AxisId, ShiftId, WindowStep, Xform, XformId};
use super::offset::Offset;
use crate::diag::{Diagnostic, Result};
use std::collections::BTreeMap;

/// Makes the expressions of indices.
pub trait IndexBuilder {
    /// An expression; equal ones have equal values.
    type Expr: Copy + Eq;

    /// A number.
    fn int(&mut self, value: i64) -> Self::Expr;
    /// The extent of an axis.
    fn extent(&mut self, axis: AxisId) -> Result<Self::Expr>;
    /// The value of an offset.
    fn offset(&mut self, offset: &Offset) -> Result<Self::Expr>;
    /// The position of the first element of an aligned row within a vector.
    fn shift(&mut self, shift: ShiftId, input: AxisId, vector: i64) -> Result<Self::Expr>;
    /// `a + b`
    fn add(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// `a - b`
    fn sub(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// `a * b`
    fn mul(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// `a / b`, of `a >= 0` and `b >= 1`
    fn div(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// `a % b`, of `a >= 0` and `b >= 1`
    fn rem(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// `a < b`
    fn lt(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// `a >= b`
    fn ge(&mut self, a: Self::Expr, b: Self::Expr) -> Self::Expr;
    /// Whether a condition is known to hold.
    fn is_true(&self, condition: Self::Expr) -> bool;
}

/// An index, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed<E> {
    /// The index.
    pub index: E,
    /// Whether it is known to be at least 0, where the tests on the way hold.
    pub lower_ok: bool,
    /// Whether it is known to be below the extent, where the tests on the way hold.
    pub upper_ok: bool,
}

impl<E> Indexed<E> {
    /// An index that runs from 0 to the extent.
    pub fn inside(index: E) -> Self {
        Self { index, lower_ok: true, upper_ok: true }
    }
}

/// An index with the tests on the way to it.
#[derive(Clone, Debug)]
struct Derived<E> {
    value: Indexed<E>,
    terms: Vec<E>,
}

/// The indices of axes in bound loops.
#[derive(Clone, Debug)]
pub struct IndexMap<'a, E> {
    graph: &'a AxisGraph,
    derivation: Derivation,
    known: BTreeMap<AxisId, Derived<E>>,
}

/// A step of the computation of an index, which may be longer than recursion can go.
enum Step {
    Enter(AxisId),
    Leave(AxisId),
}

impl<'a, E: Copy + Eq> IndexMap<'a, E> {
    /// From loops, each with its index.
    pub fn new(graph: &'a AxisGraph, loops: impl IntoIterator<Item = (AxisId, Indexed<E>)>) -> Self {
        let loops: Vec<(AxisId, Indexed<E>)> = loops.into_iter().collect();
        let derivation = Derivation::new(graph, loops.iter().map(|(axis, _)| *axis));
        let bound = |(axis, value)| (axis, Derived { value, terms: Vec::new() });
        Self { graph, derivation, known: loops.into_iter().map(bound).collect() }
    }

    /// Where indices come from.
    pub fn derivation(&self) -> &Derivation {
        &self.derivation
    }

    /// The index of an axis.
    pub fn index<B: IndexBuilder<Expr = E>>(&mut self, b: &mut B, axis: AxisId) -> Result<E> {
        Ok(self.derived(b, axis)?.value.index)
    }

    /// The index of an axis, and what is known of it where the tests on the way hold.
    pub fn indexed<B: IndexBuilder<Expr = E>>(&mut self, b: &mut B, axis: AxisId) -> Result<Indexed<E>> {
        Ok(self.derived(b, axis)?.value)
    }

    /// The condition under which the indices of the given axes are indices of them, as a
    /// list of terms without repetition; to be tested in order.
    pub fn predicate<B: IndexBuilder<Expr = E>>(&mut self, b: &mut B, axes: &[AxisId]) -> Result<Vec<E>> {
        let mut terms = Vec::new();
        for axis in axes {
            let derived = self.derived(b, *axis)?.clone();
            derived.terms.into_iter().for_each(|term| add_term(b, term, &mut terms));
            test_inside(b, *axis, derived.value, &mut terms)?;
        }
        Ok(terms)
    }

    fn derived<B: IndexBuilder<Expr = E>>(&mut self, b: &mut B, wanted: AxisId) -> Result<&Derived<E>> {
        let mut open = vec![Step::Enter(wanted)];
        while let Some(step) = open.pop() {
            match step {
                Step::Enter(axis) if self.known.contains_key(&axis) => {}
                Step::Enter(axis) if self.derivation.source(axis) == Source::Picked => {
                    let value = Indexed::inside(b.int(0));
                    self.known.insert(axis, Derived { value, terms: Vec::new() });
                }
                Step::Enter(axis) => {
                    let way = self.derivation.way(self.graph, axis).ok_or_else(|| self.unknown(axis))?;
                    // The factor of a split is named before what its parts need.
                    if let Source::Backward(xform) = self.derivation.source(axis)
                        && let Xform::Split { inner, .. } = self.graph[xform]
                    {
                        b.extent(inner)?;
                    }
                    open.push(Step::Leave(axis));
                    open.extend(way.from.into_iter().rev().map(Step::Enter));
                }
                Step::Leave(axis) => {
                    let derived = match self.derivation.source(axis) {
                        Source::Backward(xform) => self.backward(b, xform, axis)?,
                        Source::Forward(xform) => self.forward(b, xform, axis)?,
                        Source::Loop | Source::Picked | Source::Unknown => return Err(self.unknown(axis)),
                    };
                    self.known.insert(axis, derived);
                }
            }
        }
        self.known.get(&wanted).ok_or_else(|| self.unknown(wanted))
    }

    fn unknown(&self, axis: AxisId) -> Box<Diagnostic> {
        Diagnostic::bug(format!("no open loop binds axis {}", self.graph[axis].name))
    }

    /// The value of an axis that is known by now, its tests added to those of another.
    fn value<B: IndexBuilder<Expr = E>>(&self, b: &B, axis: AxisId, terms: &mut Vec<E>) -> Result<Indexed<E>> {
        let derived = self.known.get(&axis).ok_or_else(|| self.unknown(axis))?;
        derived.terms.iter().for_each(|term| add_term(b, *term, terms));
        Ok(derived.value)
    }

    /// An axis from what a transform made of it.
    fn backward<B: IndexBuilder<Expr = E>>(&self, b: &mut B, xform: XformId, axis: AxisId) -> Result<Derived<E>> {
        let mut terms = Vec::new();
        let value = match self.graph[xform] {
            Xform::Split { outer, inner, exact, .. } => {
                let factor = b.extent(inner)?;
                let outer = self.value(b, outer, &mut terms)?;
                let inner_value = self.value(b, inner, &mut terms)?;
                test_inside(b, inner, inner_value, &mut terms)?;
                let scaled = b.mul(outer.index, factor);
                let index = b.add(scaled, inner_value.index);
                Indexed { index, lower_ok: outer.lower_ok, upper_ok: exact && outer.upper_ok }
            }
            Xform::Merge { outer, inner, output } => {
                let merged = self.value(b, output, &mut terms)?;
                test_inside(b, output, merged, &mut terms)?;
                Indexed::inside(quotient(b, merged.index, outer == axis, inner)?)
            }
            Xform::Align { output, vector, shift, .. } => {
                let padded = self.value(b, output, &mut terms)?;
                let shift = b.shift(shift, axis, vector)?;
                let index = b.sub(padded.index, shift);
                test_not_negative(b, index, &mut terms);
                Indexed { index, lower_ok: true, upper_ok: false }
            }
            Xform::Window { outer, inner, step, left, shift, .. } => {
                let outer = self.value(b, outer, &mut terms)?;
                let own = self.value(b, inner, &mut terms)?;
                test_inside(b, inner, own, &mut terms)?;
                let first = window_start(b, outer.index, step)?;
                let place = b.add(first, own.index);
                let back = self.window_offset(b, axis, left, shift)?;
                let lower_ok = outer.lower_ok && left == 0 && shift.is_none();
                Indexed { index: b.sub(place, back), lower_ok, upper_ok: false }
            }
            Xform::Resize { output, left, right, .. } => {
                let resized = self.value(b, output, &mut terms)?;
                Indexed {
                    index: moved(b, resized.index, &self.graph[left].negated())?,
                    lower_ok: resized.lower_ok && self.graph[left].sign.is_not_positive(),
                    upper_ok: resized.upper_ok && self.graph[right].sign.is_not_positive(),
                }
            }
        };
        Ok(Derived { value, terms })
    }

    /// An axis from what a transform made it of.
    fn forward<B: IndexBuilder<Expr = E>>(&self, b: &mut B, xform: XformId, axis: AxisId) -> Result<Derived<E>> {
        let mut terms = Vec::new();
        let value = match self.graph[xform] {
            Xform::Split { input, outer, inner, exact } => {
                let whole = self.value(b, input, &mut terms)?;
                if !whole.lower_ok {
                    test_not_negative(b, whole.index, &mut terms);
                }
                // With a last part that is not full, the outer part is inside where the whole is not.
                if !whole.upper_ok && !exact {
                    test_below(b, whole.index, input, &mut terms)?;
                }
                let index = quotient(b, whole.index, outer == axis, inner)?;
                Indexed { index, lower_ok: true, upper_ok: axis == inner || !exact || whole.upper_ok }
            }
            Xform::Merge { outer, inner, .. } => {
                let factor = b.extent(inner)?;
                let outer = self.value(b, outer, &mut terms)?;
                let inner_value = self.value(b, inner, &mut terms)?;
                test_inside(b, inner, inner_value, &mut terms)?;
                let scaled = b.mul(outer.index, factor);
                Indexed { index: b.add(scaled, inner_value.index), ..outer }
            }
            Xform::Window { input, outer, step, left, shift, .. } => {
                let whole = self.value(b, input, &mut terms)?;
                test_inside(b, input, whole, &mut terms)?;
                let outer = self.value(b, outer, &mut terms)?;
                let on = self.window_offset(b, input, left, shift)?;
                let first = window_start(b, outer.index, step)?;
                let place = b.add(whole.index, on);
                Indexed { index: b.sub(place, first), lower_ok: false, upper_ok: false }
            }
            Xform::Align { .. } => return Err(self.unknown(axis)),
            Xform::Resize { input, left, right, .. } => {
                let whole = self.value(b, input, &mut terms)?;
                Indexed {
                    index: moved(b, whole.index, &self.graph[left])?,
                    lower_ok: whole.lower_ok && self.graph[left].sign.is_not_negative(),
                    upper_ok: whole.upper_ok && self.graph[right].sign.is_not_negative(),
                }
            }
        };
        Ok(Derived { value, terms })
    }

    /// By how much windows of an axis lie before it, in the row at hand.
    fn window_offset<B: IndexBuilder<Expr = E>>(
        &self,
        b: &mut B,
        input: AxisId,
        left: i64,
        shift: Option<(i64, ShiftId)>,
    ) -> Result<E> {
        let left = b.int(left);
        let Some((vector, shift)) = shift else { return Ok(left) };
        let shift = b.shift(shift, input, vector)?;
        Ok(b.add(left, shift))
    }
}

/// Where the part of a window starts: `outer * step`.
fn window_start<B: IndexBuilder>(b: &mut B, outer: B::Expr, step: WindowStep) -> Result<B::Expr> {
    let mut indices = b.int(step.indices);
    if let Some(of) = step.of {
        let extent = b.extent(of)?;
        indices = b.mul(extent, indices);
    }
    Ok(b.mul(outer, indices))
}

/// The outer or the inner part of an index.
fn quotient<B: IndexBuilder>(b: &mut B, index: B::Expr, outer: bool, inner: AxisId) -> Result<B::Expr> {
    let divisor = b.extent(inner)?;
    Ok(if outer { b.div(index, divisor) } else { b.rem(index, divisor) })
}

/// `index + offset`, as a difference where that reads better.
fn moved<B: IndexBuilder>(b: &mut B, index: B::Expr, offset: &Offset) -> Result<B::Expr> {
    Ok(if offset.looks_negative() {
        let offset = b.offset(&offset.negated())?;
        b.sub(index, offset)
    } else {
        let offset = b.offset(offset)?;
        b.add(index, offset)
    })
}

/// Tests what is not known of an index: that it is one of the axis.
fn test_inside<B: IndexBuilder>(
    b: &mut B,
    axis: AxisId,
    value: Indexed<B::Expr>,
    terms: &mut Vec<B::Expr>,
) -> Result<()> {
    if !value.lower_ok {
        test_not_negative(b, value.index, terms);
    }
    if !value.upper_ok {
        test_below(b, value.index, axis, terms)?;
    }
    Ok(())
}

fn test_not_negative<B: IndexBuilder>(b: &mut B, index: B::Expr, terms: &mut Vec<B::Expr>) {
    let zero = b.int(0);
    let term = b.ge(index, zero);
    add_term(b, term, terms);
}

fn test_below<B: IndexBuilder>(b: &mut B, index: B::Expr, axis: AxisId, terms: &mut Vec<B::Expr>) -> Result<()> {
    let extent = b.extent(axis)?;
    let term = b.lt(index, extent);
    add_term(b, term, terms);
    Ok(())
}

fn add_term<B: IndexBuilder>(b: &B, term: B::Expr, terms: &mut Vec<B::Expr>) {
    if !b.is_true(term) && !terms.contains(&term) {
        terms.push(term);
    }
}
