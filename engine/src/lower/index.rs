//! Indices and predicates.
//!
//! The indices of leaves are known from the open loops. The index of any other
//! axis follows from the transform that consumes it:
//!
//! * split `a = o * f + i`: `idx(a) = idx(o) * f + idx(i)`;
//! * merge `m = o * n + i`: `idx(o) = idx(m) / n`, `idx(i) = idx(m) % n`;
//! * align `a = p - shift(row)`: `idx(a) = idx(p) - shift(row)`;
//! * window `a = o * step + w - left - shift(row)`, and of the index in a window, where the axis has one from
//!   other loops, `idx(w) = idx(a) + left + shift(row) - idx(o) * step`.
//!
//! **Predicates.** An index *overflows* when it may reach its axis's extent. A
//! leaf does only where it is one iteration ahead. A split overflows its input unless it is exact, or when its
//! outer part overflows. Testing roots alone is not enough: an inner part that
//! overflows its factor would alias the next outer index, and a merged axis that
//! overflows would wrap into its outer part. So a test is placed at every inner
//! part that overflows, at every merge result that overflows, and at every root
//! that overflows; together they are sufficient, and each is the outermost place
//! at which the overflow can be seen.

use super::context::{Bound, Lowering};
use crate::diag::{Diagnostic, Result};
use crate::kernel::ExprId;
use crate::num::BinaryOp;
use crate::schedule::{AxisId, RowShift, ShiftId, TensorLayout, TvId, Xform};

impl Lowering<'_> {
    /// The index of an axis in the loops that are open now.
    pub(super) fn index_of(&mut self, axis: AxisId) -> Result<ExprId> {
        let mut ignored = Vec::new();
        Ok(self.resolve(axis, &mut ignored)?.index)
    }

    /// The condition under which the indices of the given roots are valid, as a
    /// list of terms without repetition.
    pub(super) fn predicate_terms(&mut self, roots: &[AxisId]) -> Result<Vec<ExprId>> {
        let mut terms = Vec::new();
        for root in roots {
            let resolved = self.resolve(*root, &mut terms)?;
            if resolved.overflows {
                let extent = self.extent(*root)?;
                self.test_below(resolved.index, extent, &mut terms);
            }
        }
        Ok(terms)
    }

    /// The conjunction of terms.
    pub(super) fn conjunction(&mut self, terms: &[ExprId]) -> ExprId {
        let yes = self.b.exprs().bool(true);
        terms.iter().fold(yes, |all, term| self.b.exprs().and(all, *term))
    }

    fn test_below(&mut self, index: ExprId, extent: ExprId, terms: &mut Vec<ExprId>) {
        let term = self.b.exprs().lt(index, extent);
        self.add_term(term, terms);
    }

    fn add_term(&mut self, term: ExprId, terms: &mut Vec<ExprId>) {
        if self.b.exprs().as_bool(term) != Some(true) && !terms.contains(&term) {
            terms.push(term);
        }
    }

    /// The transform that leads from an axis to the loops that are open now; none if one of
    /// them runs over the axis itself, or if none does. Where tensors divide an axis in several
    /// ways, only one of them leads to open loops.
    fn way(&self, axis: AxisId) -> Option<Xform> {
        if self.bound[axis].is_some() {
            return None;
        }
        let mut uses = self.scheduled.axes.uses(axis);
        match self.scheduled.axes[axis].uses.len() {
            // The loop over a vector may not be open yet.
            0 | 1 if self.made_by(axis).is_none() => uses.find(|xform| xform.divides(axis)).copied(),
            _ => uses.find(|xform| self.leads(axis, xform)).copied(),
        }
    }

    /// Whether open loops give an axis an index.
    pub(super) fn is_open(&self, axis: AxisId) -> bool {
        self.bound[axis].is_some() || self.scheduled.axes.uses(axis).any(|xform| self.leads(axis, xform))
    }

    /// Whether open loops give what a transform makes of an axis an index, and so the axis.
    fn leads(&self, axis: AxisId, xform: &Xform) -> bool {
        xform.divides(axis) && xform.outputs().iter().all(|part| self.is_open(*part) || self.is_only(*part))
    }

    /// Whether an axis is a part that has no other beside it: its index is 0.
    fn is_only(&self, axis: AxisId) -> bool {
        self.scheduled.axes.is_leaf(axis) && self.scheduled.axes.is_picked(axis)
    }

    /// The transform that made an axis, if open loops run over something else, from which it follows.
    fn made_by(&self, axis: AxisId) -> Option<Xform> {
        if self.is_open(axis) {
            return None;
        }
        let made = self.scheduled.axes.def(axis).copied()?;
        match made {
            Xform::Merge { outer, inner, .. } => (self.is_open(outer) && self.is_open(inner)).then_some(made),
            Xform::Split { input, .. } => (self.is_open(input) || self.made_by(input).is_some()).then_some(made),
            _ => None,
        }
    }

    /// The windows of which an axis is the index, if open loops run over something else.
    fn window_of(&self, axis: AxisId) -> Option<Xform> {
        let window = self.scheduled.axes.def(axis).filter(|xform| matches!(xform, Xform::Window { .. }));
        window.filter(|_| !self.is_open(axis)).copied()
    }

    fn resolve(&mut self, axis: AxisId, terms: &mut Vec<ExprId>) -> Result<Bound> {
        if let Some(Xform::Window { input, outer, step, left, shift, .. }) = self.window_of(axis) {
            let whole = self.resolve(input, terms)?.index;
            let on = self.window_offset(input, left, shift)?;
            let place = self.b.exprs().add(whole, on);
            let first = self.window_start(outer, step, terms)?;
            // Schedules are refused in which it may be outside of the window.
            return Ok(Bound { index: self.b.exprs().sub(place, first), overflows: false });
        }
        let Some(xform) = self.way(axis) else {
            if self.bound[axis].is_none() {
                return self.resolve_forward(axis, terms);
            }
            let index = self.leaf(axis)?;
            return Ok(Bound { index, overflows: self.bound[axis].is_some_and(|bound| bound.overflows) });
        };
        match xform {
            Xform::Split { outer, inner, exact, .. } => {
                let factor = self.extent(inner)?;
                let outer = self.resolve(outer, terms)?;
                let inner = self.resolve(inner, terms)?;
                if inner.overflows {
                    self.test_below(inner.index, factor, terms);
                }
                let scaled = self.b.exprs().mul(outer.index, factor);
                let index = self.b.exprs().add(scaled, inner.index);
                Ok(Bound { index, overflows: !exact || outer.overflows })
            }
            Xform::Merge { outer, inner, output } => {
                let merged = self.resolve(output, terms)?;
                if merged.overflows {
                    let extent = self.extent(output)?;
                    self.test_below(merged.index, extent, terms);
                }
                let divisor = self.extent(inner)?;
                let index = if axis == outer {
                    self.b.exprs().div(merged.index, divisor)
                } else {
                    self.b.exprs().rem(merged.index, divisor)
                };
                Ok(Bound { index, overflows: false })
            }
            Xform::Align { output, vector, shift, .. } => {
                let padded = self.resolve(output, terms)?;
                let shift = self.row_shift(self.scheduled.shifts[shift], axis, vector)?;
                let index = self.b.exprs().sub(padded.index, shift);
                let zero = self.b.int(0);
                let term = self.b.exprs().binary(BinaryOp::Ge, index, zero);
                self.add_term(term, terms);
                Ok(Bound { index, overflows: true })
            }
            Xform::Window { outer, inner, step, left, shift, .. } => {
                let first = self.window_start(outer, step, terms)?;
                let own = self.resolve(inner, terms)?;
                if own.overflows {
                    let width = self.extent(inner)?;
                    self.test_below(own.index, width, terms);
                }
                let place = self.b.exprs().add(first, own.index);
                let back = self.window_offset(axis, left, shift)?;
                let index = self.b.exprs().sub(place, back);
                if left > 0 || shift.is_some() {
                    let zero = self.b.int(0);
                    let term = self.b.exprs().binary(BinaryOp::Ge, index, zero);
                    self.add_term(term, terms);
                }
                Ok(Bound { index, overflows: true })
            }
            Xform::Resize { .. } => Err(Diagnostic::bug("no schedule resizes an axis")),
        }
    }

    /// The index of an axis from those that it was made of.
    fn resolve_forward(&mut self, axis: AxisId, terms: &mut Vec<ExprId>) -> Result<Bound> {
        if self.is_only(axis) {
            return Ok(Bound { index: self.b.int(0), overflows: false });
        }
        match self.made_by(axis) {
            Some(Xform::Merge { outer, inner, .. }) => {
                let factor = self.extent(inner)?;
                let (outer, inner) = (self.resolve(outer, terms)?, self.resolve(inner, terms)?);
                if inner.overflows {
                    self.test_below(inner.index, factor, terms);
                }
                let scaled = self.b.exprs().mul(outer.index, factor);
                Ok(Bound { index: self.b.exprs().add(scaled, inner.index), overflows: outer.overflows })
            }
            Some(Xform::Split { input, inner, outer, .. }) => {
                let whole = self.resolve(input, terms)?;
                let factor = self.extent(inner)?;
                if axis == inner && self.scheduled.axes.constant_extent(outer) == Some(1) {
                    return Ok(whole);
                }
                // Who asks for a part's index is in that part, if loops say which it is.
                let index = if axis == outer {
                    self.b.exprs().div(whole.index, factor)
                } else if self.is_open(outer) {
                    let number = self.resolve(outer, terms)?.index;
                    let first = self.b.exprs().mul(number, factor);
                    self.b.exprs().sub(whole.index, first)
                } else {
                    self.b.exprs().rem(whole.index, factor)
                };
                Ok(Bound { index, overflows: axis == outer && whole.overflows })
            }
            _ => Ok(Bound { index: self.leaf(axis)?, overflows: false }),
        }
    }

    /// Where the part of a window starts: `outer * step`.
    fn window_start(&mut self, outer: AxisId, step: i64, terms: &mut Vec<ExprId>) -> Result<ExprId> {
        let outer = self.resolve(outer, terms)?.index;
        let step = self.b.int(step);
        Ok(self.b.exprs().mul(outer, step))
    }

    /// How far before its part a window starts: `left + shift(row)`.
    fn window_offset(&mut self, axis: AxisId, left: i64, shift: Option<(i64, ShiftId)>) -> Result<ExprId> {
        let left = self.b.int(left);
        let Some((vector, shift)) = shift else { return Ok(left) };
        let shift = self.row_shift(self.scheduled.shifts[shift], axis, vector)?;
        Ok(self.b.exprs().add(left, shift))
    }

    /// The linear offset of a global tensor at index 0 of a root, or of several that are merged.
    fn row_offset(&mut self, tv: TvId, root: AxisId) -> Result<ExprId> {
        let layout = self.layout(tv)?;
        let own = self.scheduled.dimensions_of(tv, root).unwrap_or_else(|| vec![root]);
        let (row, _) = self.linear_parts(tv, &layout, &own)?;
        Ok(row)
    }

    /// The position of a row's first element within a vector. Along `rows` only
    /// the index modulo the vector matters: what steps over whole vectors of
    /// rows is left out, so that the shift does not vary with it.
    fn row_shift(&mut self, shift: RowShift, root: AxisId, vector: i64) -> Result<ExprId> {
        let row = match shift.rows {
            None => self.row_offset(shift.reference, root)?,
            Some(rows) => {
                let index = self.index_modulo(rows, vector)?;
                let stride = self.extent(root)?;
                self.b.exprs().mul(index, stride)
            }
        };
        let vector = self.b.int(vector);
        Ok(self.b.exprs().rem(row, vector))
    }

    /// A number that is congruent to an axis's index modulo `modulus`.
    fn index_modulo(&mut self, axis: AxisId, modulus: i64) -> Result<ExprId> {
        match self.way(axis) {
            Some(Xform::Split { inner, .. }) if self.is_multiple(inner, modulus) => self.index_modulo(inner, modulus),
            Some(Xform::Split { outer, inner, .. }) => {
                let factor = self.extent(inner)?;
                let outer = self.index_modulo(outer, modulus)?;
                let inner = self.index_of(inner)?;
                let scaled = self.b.exprs().mul(outer, factor);
                Ok(self.b.exprs().add(scaled, inner))
            }
            _ => self.index_of(axis),
        }
    }

    /// Whether the extent of an axis is a constant that a number divides.
    fn is_multiple(&self, axis: AxisId, of: i64) -> bool {
        self.scheduled.axes.constant_extent(axis).is_some_and(|extent| extent % of == 0)
    }

    /// The address of a global tensor's element in the open loops, in elements.
    ///
    /// Along an aligned axis the shift cancels: the index is
    /// `row + (p - row % v) = (row / v) * v + p`, which is visibly aligned.
    pub(super) fn address(&mut self, tv: TvId) -> Result<ExprId> {
        let layout = self.layout(tv)?;
        if let Some((axis, way, vector)) = self.aligned_axis(tv, &layout)? {
            let row = self.row_offset(tv, axis)?;
            let padded = self.padded_index(way)?;
            let vector = self.b.int(vector);
            let whole = self.b.exprs().div(row, vector);
            let base = self.b.exprs().mul(whole, vector);
            return Ok(self.b.exprs().add(base, padded));
        }
        let (rest, last) = self.linear_parts(tv, &layout, &[])?;
        Ok(self.b.exprs().add(rest, last))
    }

    /// The axis that walks a tensor's innermost memory run, if its rows are aligned to a
    /// reference with the same row offset: the axis, the transform that aligns it, the vector.
    fn aligned_axis(&mut self, tv: TvId, layout: &TensorLayout) -> Result<Option<(AxisId, Xform, i64)>> {
        let innermost = layout.order.last().filter(|axis| axis.dense);
        let innermost = innermost.and_then(|axis| self.scheduled.tensors[tv].axes[axis.axis].indexed());
        let Some(mut axis) = innermost else { return Ok(None) };
        if let Some(Xform::Merge { .. }) = self.way(axis) {
            let Some((merged, _)) = self.innermost_run(tv, layout)? else { return Ok(None) };
            axis = merged;
        }
        let Some(way) = self.way(axis) else { return Ok(None) };
        let (Xform::Align { vector, shift, .. } | Xform::Window { shift: Some((vector, shift)), .. }) = way else {
            return Ok(None);
        };
        let reference = self.scheduled.shifts[shift].reference;
        if self.scheduled.dimensions_of(tv, axis) != self.scheduled.dimensions_of(reference, axis) {
            return Ok(None);
        }
        let (Ok(own), Ok(theirs)) = (self.row_offset(tv, axis), self.row_offset(reference, axis)) else {
            return Ok(None);
        };
        Ok((own == theirs).then_some((axis, way, vector)))
    }

    /// The index along an aligned axis with the shift of its row added, which is a multiple of the
    /// vector where a vector starts.
    fn padded_index(&mut self, way: Xform) -> Result<ExprId> {
        let mut terms = Vec::new();
        match way {
            Xform::Align { output, .. } => Ok(self.resolve(output, &mut terms)?.index),
            Xform::Window { outer, inner, step, left, .. } => {
                let first = self.window_start(outer, step, &mut terms)?;
                let own = self.resolve(inner, &mut terms)?.index;
                let (place, left) = (self.b.exprs().add(first, own), self.b.int(left));
                Ok(self.b.exprs().sub(place, left))
            }
            _ => Err(Diagnostic::bug("an axis that is not aligned has no shift")),
        }
    }

    /// The address as a sum of two parts: the terms of all memory runs but the
    /// innermost, and the innermost. With `without`, the indices of those roots are
    /// taken as 0, and they must be the innermost run.
    fn linear_parts(&mut self, tv: TvId, layout: &TensorLayout, without: &[AxisId]) -> Result<(ExprId, ExprId)> {
        let runs = self.memory_runs(tv, layout, without)?;
        let zero = self.b.int(0);
        let (mut rest, mut last) = (zero, zero);
        for run in runs {
            rest = self.b.exprs().add(rest, last);
            last = match run.axis {
                Some(axis) => {
                    let index = self.index_of(axis)?;
                    self.b.exprs().mul(index, run.stride)
                }
                None => zero,
            };
        }
        Ok((rest, last))
    }

    /// The axis that walks a tensor's innermost memory run, and its stride.
    pub(super) fn innermost_run(&mut self, tv: TvId, layout: &TensorLayout) -> Result<Option<(AxisId, ExprId)>> {
        let runs = self.memory_runs(tv, layout, &[])?;
        Ok(runs.last().and_then(|run| Some((run.axis?, run.stride))))
    }

    /// Groups a tensor's memory axes into runs: neighbours that are dense and
    /// merged in this order by the schedule share one index and no division.
    fn memory_runs(&mut self, tv: TvId, layout: &TensorLayout, without: &[AxisId]) -> Result<Vec<Run>> {
        let axes = self.scheduled.tensors[tv].axes.clone();
        let mut runs: Vec<Run> = Vec::new();
        // From the innermost outwards, so that strides of dense axes are products.
        let mut stride = self.b.int(1);
        let mut inner_extent = self.b.int(1);
        for memory_axis in layout.order.iter().rev() {
            stride = if memory_axis.dense {
                self.b.exprs().mul(stride, inner_extent)
            } else {
                let Some(crate::schedule::Io::Input(input)) = self.scheduled.tensors[tv].io else {
                    return Err(Diagnostic::bug("a strided tensor is not an input"));
                };
                self.stride(input, *memory_axis)
            };
            let Some(axis) = axes[memory_axis.axis].indexed() else {
                inner_extent = self.b.int(1);
                continue;
            };
            inner_extent = self.extent(axis)?;
            if without.contains(&axis) {
                runs.push(Run { axis: None, dense: memory_axis.dense, stride });
                continue;
            }
            runs.push(Run { axis: Some(axis), dense: memory_axis.dense, stride });
            self.join_runs(&mut runs);
        }
        runs.reverse();
        Ok(runs)
    }

    /// Joins the two outermost runs while the schedule merged exactly their axes.
    fn join_runs(&self, runs: &mut Vec<Run>) {
        while let [.., inner, outer] = runs[..] {
            if !outer.dense {
                return;
            }
            let (Some(outer_axis), Some(inner_axis)) = (outer.axis, inner.axis) else { return };
            let joined = match self.way(outer_axis) {
                Some(Xform::Merge { outer, inner, output }) if outer == outer_axis && inner == inner_axis => output,
                _ => return,
            };
            runs.truncate(runs.len() - 2);
            runs.push(Run { axis: Some(joined), dense: inner.dense, stride: inner.stride });
        }
    }
}

/// Memory axes that one index walks.
#[derive(Clone, Copy)]
struct Run {
    /// The axis whose index it is; none where the index is taken as 0.
    axis: Option<AxisId>,
    /// Whether its innermost axis is dense with the next run inwards.
    dense: bool,
    /// Elements from one index to the next.
    stride: ExprId,
}
