//! Indices and predicates.
//!
//! The indices of leaves are known from the open loops. The index of any other
//! axis follows from the transform that consumes it:
//!
//! * split `a = o * f + i`: `idx(a) = idx(o) * f + idx(i)`;
//! * merge `m = o * n + i`: `idx(o) = idx(m) / n`, `idx(i) = idx(m) % n`;
//! * align `a = p - shift(row)`: `idx(a) = idx(p) - shift(row)`;
//! * window `a = o * step + w - left - shift(row)`, and of the index in a window, where the axis has one from
//!   other loops, `idx(w) = idx(a) + left + shift(row) - idx(o) * step`;
//! * resize `r = a + left`, of slices, pads and parts of joined tensors: `idx(a) = idx(r) - left`.
//!
//! What no loop leads to so has its index from what it was made of, by the same formulas the other way.
//!
//! **Predicates.** An index *overflows* when it may reach its axis's extent. A
//! leaf does only where it is one iteration ahead. A split overflows its input unless it is exact, or when its
//! outer part overflows. Testing roots alone is not enough: an inner part that
//! overflows its factor would alias the next outer index, and a merged axis that
//! overflows would wrap into its outer part. So a test is placed at every inner
//! part that overflows, at every merge result that overflows, and at every root
//! that overflows; together they are sufficient, and each is the outermost place
//! at which the overflow can be seen. An index is *below* when it may be less than 0: only a resize makes
//! it so. It is tested before it is divided, before it becomes an inner part, and at roots.

use super::context::{Bound, Lowering};
use crate::axes::{AxisRef, Offset};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{Expr, ExprId, IndexOp};
use crate::num::BinaryOp;
use crate::schedule::{AxisId, ParallelType, RowShift, ShiftId, TensorLayout, TvId, WindowStep, Xform};
use smallvec::SmallVec;

/// Axes from which a search came.
type Behind = SmallVec<[AxisId; 8]>;

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
            self.test_inside(*root, resolved, &mut terms)?;
        }
        Ok(terms)
    }

    /// Tests what is not known of an index: that it is one of the axis.
    pub(super) fn test_inside(&mut self, axis: AxisId, bound: Bound, terms: &mut Vec<ExprId>) -> Result<()> {
        if bound.below {
            self.test_not_negative(bound.index, terms);
        }
        if bound.overflows {
            match self.last_part(axis)?.filter(|part| part.is_unrolled) {
                Some(part) => self.add_term(part.inside, terms),
                None => {
                    let extent = self.extent(axis)?;
                    self.test_below(bound.index, extent, terms);
                }
            }
        }
        Ok(())
    }

    /// That an index `o * f + i` of `n` is inside, of which all but the last of the parts are full, all being numbers: `o < n / f` or
    /// `i < n % f`. Where `n` is none, and at least `l`: `o < l / f` or `o * f + i < n`.
    pub(super) fn last_part(&mut self, axis: AxisId) -> Result<Option<LastPart>> {
        let Some(Xform::Split { outer, inner, .. }) = self.way(axis) else { return Ok(None) };
        let [parts, factor] = [outer, inner].map(|axis| self.scheduled.axes.constant_extent(axis));
        let (Some(parts), Some(factor)) = (parts, factor) else { return Ok(None) };
        let (Some(number), Some(part)) = (self.bound[outer], self.bound[inner]) else { return Ok(None) };
        let least = self.scheduled.axes[axis].least;
        let (full, within) = match self.scheduled.axes.constant_extent(axis) {
            _ if number.overflows || part.overflows => return Ok(None),
            Some(size) if size % factor == 0 || parts != size / factor + 1 => return Ok(None),
            Some(size) => {
                let rest = self.b.int(size % factor);
                (size / factor, self.b.exprs().lt(part.index, rest))
            }
            None if least < factor => return Ok(None),
            None => {
                let (each, extent) = (self.extent(inner)?, self.extent(axis)?);
                let start = self.b.exprs().mul(number.index, each);
                let index = self.b.exprs().add(start, part.index);
                (least / factor, self.b.exprs().lt(index, extent))
            }
        };
        let full = self.b.int(full);
        let before = self.b.exprs().lt(number.index, full);
        let inside = self.b.exprs().binary(BinaryOp::LogicalOr, before, within);
        Ok(Some(LastPart { inside, is_unrolled: self.scheduled.bindings[outer] == ParallelType::Unroll }))
    }

    /// `x - y >= 0`; as `x >= y` where `x` is a quotient or a remainder. What is divided may be negative where the
    /// test fails, and the remainder any number then, from which nothing can be taken.
    fn test_not_negative(&mut self, index: ExprId, terms: &mut Vec<ExprId>) {
        let (mut divided, mut less) = (index, self.b.int(0));
        while let Expr::Index(IndexOp::Sub, x, y) = self.b.exprs()[divided].expr {
            less = self.b.exprs().add(less, y);
            divided = x;
        }
        let divisor = match self.b.exprs()[divided].expr {
            Expr::Index(IndexOp::Div | IndexOp::Mod, _, divisor) => Some(divisor),
            _ => None,
        };
        let is_number = divisor.is_some_and(|divisor| self.b.exprs().as_int(divisor).is_none());
        let (index, least) = if is_number { (divided, less) } else { (index, self.b.int(0)) };
        let term = self.b.exprs().binary(BinaryOp::Ge, index, least);
        self.add_term(term, terms);
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

    pub(super) fn add_term(&mut self, term: ExprId, terms: &mut Vec<ExprId>) {
        if self.b.exprs().as_bool(term) != Some(true) && !terms.contains(&term) {
            terms.push(term);
        }
    }

    /// The transform that leads from an axis to the loops that are open now; none if one of
    /// them runs over the axis itself, or if none does. Where tensors divide an axis in several
    /// ways, only one of them leads to open loops.
    pub(super) fn way(&self, axis: AxisId) -> Option<Xform> {
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
        self.is_open_behind(axis, &mut SmallVec::new())
    }

    /// Whether open loops give what a transform makes of an axis an index, and so the axis.
    fn leads(&self, axis: AxisId, xform: &Xform) -> bool {
        self.leads_behind(axis, xform, &mut SmallVec::new())
    }

    /// The same behind some axes: what was cut may be padded to the axis that it was cut from.
    fn is_open_behind(&self, axis: AxisId, behind: &mut Behind) -> bool {
        self.bound[axis].is_some() || self.scheduled.axes.uses(axis).any(|xform| self.leads_behind(axis, xform, behind))
    }

    fn leads_behind(&self, axis: AxisId, xform: &Xform, behind: &mut Behind) -> bool {
        if !xform.divides(axis) || behind.contains(&axis) {
            return false;
        }
        behind.push(axis);
        let mut parts = xform.outputs().into_iter();
        let leads = parts.all(|part| self.is_open_behind(part, behind) || self.is_only(part));
        behind.pop();
        leads
    }

    /// Whether an axis is a part that has no other beside it: its index is 0.
    fn is_only(&self, axis: AxisId) -> bool {
        self.scheduled.axes.is_leaf(axis) && self.scheduled.axes.is_picked(axis)
    }

    /// The transform that made an axis, if open loops run over something else, from which it follows.
    fn made_by(&self, axis: AxisId) -> Option<Xform> {
        self.made_behind(axis, &mut SmallVec::new())
    }

    fn made_behind(&self, axis: AxisId, behind: &mut Behind) -> Option<Xform> {
        if self.is_open(axis) || behind.contains(&axis) {
            return None;
        }
        behind.push(axis);
        let mut is_known = |axis: AxisId| self.is_open(axis) || self.made_behind(axis, behind).is_some();
        let is_way = |xform: &&Xform| match **xform {
            Xform::Merge { outer, inner, .. } => is_known(outer) && is_known(inner),
            Xform::Split { input, .. } | Xform::Resize { input, .. } => is_known(input),
            Xform::Align { .. } | Xform::Window { .. } => false,
        };
        let made = self.scheduled.axes.defs(axis).find(is_way).copied();
        behind.pop();
        made
    }

    /// The windows of which an axis is the index, if open loops run over something else.
    fn window_of(&self, axis: AxisId) -> Option<Xform> {
        let window = self.scheduled.axes.def(axis).filter(|xform| matches!(xform, Xform::Window { .. }));
        window.filter(|_| !self.is_open(axis)).copied()
    }

    pub(super) fn resolve(&mut self, axis: AxisId, terms: &mut Vec<ExprId>) -> Result<Bound> {
        if let Some(Xform::Window { input, outer, inner, step, left, shift }) = self.window_of(axis) {
            if left == 0
                && shift.is_none()
                && let Some(part) = self.part_of_window(input, outer, step, terms)?
            {
                return Ok(part);
            }
            let whole = self.resolve(input, terms)?.index;
            let on = self.window_offset(input, left, shift)?;
            let place = self.b.exprs().add(whole, on);
            let first = self.window_start((outer, inner), step, terms)?;
            // Schedules are refused in which it may be outside of the window.
            return Ok(Bound::inside(self.b.exprs().sub(place, first)));
        }
        let Some(xform) = self.way(axis) else {
            return match self.bound[axis] {
                Some(bound) => Ok(bound),
                None => self.resolve_forward(axis, terms),
            };
        };
        match xform {
            Xform::Split { outer, inner, exact, .. } => {
                let factor = self.extent(inner)?;
                let outer = self.resolve(outer, terms)?;
                let part = self.resolve(inner, terms)?;
                self.test_inside(inner, part, terms)?;
                let scaled = self.b.exprs().mul(outer.index, factor);
                let index = self.b.exprs().add(scaled, part.index);
                Ok(Bound { index, overflows: !exact || outer.overflows, below: outer.below })
            }
            Xform::Merge { outer, inner, output } => {
                let merged = self.resolve(output, terms)?;
                self.test_inside(output, merged, terms)?;
                let divisor = self.extent(inner)?;
                if let Some((first, part)) = self.within_parts(output, divisor, terms)? {
                    return Ok(Bound::inside(if axis == outer {
                        let own = self.b.exprs().div(part, divisor);
                        self.b.exprs().add(first, own)
                    } else {
                        self.b.exprs().rem(part, divisor)
                    }));
                }
                let index = if axis == outer {
                    self.b.exprs().div(merged.index, divisor)
                } else {
                    self.b.exprs().rem(merged.index, divisor)
                };
                Ok(Bound::inside(index))
            }
            Xform::Align { output, vector, shift, .. } => {
                let padded = self.resolve(output, terms)?;
                let shift = self.row_shift(self.scheduled.shifts[shift], axis, vector)?;
                let index = self.b.exprs().sub(padded.index, shift);
                self.test_not_negative(index, terms);
                Ok(Bound { index, overflows: true, below: false })
            }
            Xform::Window { outer, inner, step, left, shift, .. } => {
                let first = self.window_start((outer, inner), step, terms)?;
                let own = self.resolve(inner, terms)?;
                self.test_inside(inner, own, terms)?;
                let place = self.b.exprs().add(first, own.index);
                let back = self.window_offset(axis, left, shift)?;
                let index = self.b.exprs().sub(place, back);
                if left > 0 || shift.is_some() {
                    self.test_not_negative(index, terms);
                }
                Ok(Bound { index, overflows: true, below: false })
            }
            Xform::Resize { output, left, right, .. } => {
                let cut = self.resolve(output, terms)?;
                let [left, right] = [left, right].map(|by| self.scheduled.axes[by].clone());
                let index = self.resized(cut.index, &left.negated())?;
                let overflows = cut.overflows || !right.sign.is_not_positive();
                Ok(Bound { index, overflows, below: cut.below || !left.sign.is_not_positive() })
            }
        }
    }

    /// Of a merge `a = c * n + b` in the window from `o * step` on, where loops take `c = o * f + i` apart and `f n = step`: the index
    /// `i * n + b` in the window, whatever `o` is. Where `n` is no number, the step is so many indices for each of the inner axis.
    fn part_of_window(
        &mut self,
        merged: AxisId,
        number: AxisId,
        step: WindowStep,
        terms: &mut Vec<ExprId>,
    ) -> Result<Option<Bound>> {
        let Some(Xform::Merge { outer, inner, .. }) = self.made_by(merged) else { return Ok(None) };
        let Some(Xform::Split { outer: own, inner: line, .. }) = self.way(outer) else { return Ok(None) };
        let lines = self.scheduled.axes.constant_extent(line);
        let extent = self.extent(inner)?;
        let each = match step.of {
            Some(of) => (of == inner).then_some(1),
            None => self.b.exprs().as_int(extent),
        };
        if own != number || lines.zip(each).and_then(|(lines, each)| lines.checked_mul(each)) != Some(step.indices) {
            return Ok(None);
        }
        let (line, part) = (self.resolve(line, terms)?, self.resolve(inner, terms)?);
        self.test_inside(inner, part, terms)?;
        let start = self.b.exprs().mul(line.index, extent);
        Ok(Some(Bound::inside(self.b.exprs().add(start, part.index))))
    }

    /// Of a merged axis `a = o * step + i` whose inner dimension has `n` indices, where `n` divides `step`: `o * (step / n)` and `i`.
    /// Then only `i` is divided by `n`, a smaller number than `a`.
    fn within_parts(
        &mut self,
        merged: AxisId,
        divisor: ExprId,
        terms: &mut Vec<ExprId>,
    ) -> Result<Option<(ExprId, ExprId)>> {
        let (outer, inner, step) = match self.way(merged) {
            Some(Xform::Split { outer, inner, .. }) => (outer, inner, self.scheduled.axes.constant_extent(inner)),
            Some(Xform::Window {
                outer, inner, step: WindowStep { indices, of: None }, left: 0, shift: None, ..
            }) => (outer, inner, Some(indices)),
            _ => return Ok(None),
        };
        let (Some(step), Some(n)) = (step, self.b.exprs().as_int(divisor)) else { return Ok(None) };
        if n < 1 || step % n != 0 {
            return Ok(None);
        }
        let part = self.resolve(inner, terms)?;
        if part.below {
            return Ok(None);
        }
        let number = self.resolve(outer, terms)?.index;
        let each = self.b.int(step / n);
        Ok(Some((self.b.exprs().mul(number, each), part.index)))
    }

    /// `index + offset`, as a difference where that reads better.
    fn resized(&mut self, index: ExprId, offset: &Offset) -> Result<ExprId> {
        Ok(if offset.looks_negative() {
            let offset = self.offset(&offset.negated())?;
            self.b.exprs().sub(index, offset)
        } else {
            let offset = self.offset(offset)?;
            self.b.exprs().add(index, offset)
        })
    }

    /// The index of an axis from those that it was made of.
    fn resolve_forward(&mut self, axis: AxisId, terms: &mut Vec<ExprId>) -> Result<Bound> {
        if self.is_only(axis) {
            return Ok(Bound::inside(self.b.int(0)));
        }
        match self.made_by(axis) {
            Some(Xform::Merge { outer, inner, .. }) => {
                let factor = self.extent(inner)?;
                let (outer, part) = (self.resolve(outer, terms)?, self.resolve(inner, terms)?);
                self.test_inside(inner, part, terms)?;
                let scaled = self.b.exprs().mul(outer.index, factor);
                Ok(Bound { index: self.b.exprs().add(scaled, part.index), ..outer })
            }
            Some(Xform::Resize { input, left, right, .. }) => {
                let whole = self.resolve(input, terms)?;
                let [left, right] = [left, right].map(|by| self.scheduled.axes[by].clone());
                let index = self.resized(whole.index, &left)?;
                let overflows = whole.overflows || !right.sign.is_not_negative();
                Ok(Bound { index, overflows, below: whole.below || !left.sign.is_not_negative() })
            }
            Some(Xform::Split { input, inner, outer, exact }) => {
                let whole = self.resolve(input, terms)?;
                if whole.below {
                    self.test_not_negative(whole.index, terms);
                }
                // With a last part that is not full, the outer part is inside where the whole is not.
                let is_tested = whole.overflows && !exact;
                if is_tested {
                    let extent = self.extent(input)?;
                    self.test_below(whole.index, extent, terms);
                }
                let factor = self.extent(inner)?;
                if axis == inner && self.scheduled.axes.constant_extent(outer) == Some(1) {
                    return Ok(Bound { below: false, ..whole });
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
                Ok(Bound { index, overflows: axis == outer && whole.overflows && !is_tested, below: false })
            }
            _ => Ok(Bound::inside(self.leaf(axis)?)),
        }
    }

    /// Where the part of a window starts: `outer * step`. Windows of which the step is no constant lie side by side.
    fn window_start(
        &mut self,
        (outer, inner): (AxisId, AxisId),
        step: WindowStep,
        terms: &mut Vec<ExprId>,
    ) -> Result<ExprId> {
        let outer = self.resolve(outer, terms)?.index;
        let indices = match step.of {
            Some(_) => self.extent(inner)?,
            None => self.b.int(step.indices),
        };
        Ok(self.b.exprs().mul(outer, indices))
    }

    /// How far before its part a window starts: `left + shift(row)`.
    fn window_offset(&mut self, axis: AxisId, left: i64, shift: Option<(i64, ShiftId)>) -> Result<ExprId> {
        let left = self.b.int(left);
        let Some((vector, shift)) = shift else { return Ok(left) };
        let shift = self.row_shift(self.scheduled.shifts[shift], axis, vector)?;
        Ok(self.b.exprs().add(left, shift))
    }

    /// The linear offset of a global tensor at index 0 of a root, or of several that are merged; with `modulus` a number that
    /// is congruent to it.
    fn row_offset(&mut self, tv: TvId, root: AxisId, modulus: Option<i64>) -> Result<ExprId> {
        let layout = self.layout(tv)?;
        let own = self.scheduled.dimensions_of(tv, root).unwrap_or_else(|| vec![root]);
        let (row, _) = self.linear_parts(tv, &layout, &own, modulus)?;
        Ok(row)
    }

    /// The position of a row's first element within a vector. Of the indices of rows only
    /// what they are modulo the vector matters: what steps over whole vectors of
    /// rows is left out, so that the shift does not vary with it.
    fn row_shift(&mut self, shift: RowShift, root: AxisId, vector: i64) -> Result<ExprId> {
        let row = match shift.rows {
            None => self.row_offset(shift.reference, root, Some(vector))?,
            Some(rows) => {
                let start = self.start(&self.layout(shift.reference)?);
                let index = self.index_modulo(rows, vector)?;
                let stride = self.extent(root)?;
                let row = self.b.exprs().mul(index, stride);
                self.b.exprs().add(start, row)
            }
        };
        let vector = self.b.int(vector);
        Ok(self.b.exprs().rem(row, vector))
    }

    /// A number that is congruent to an axis's index modulo `modulus`, and not negative where the index is not.
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
            Some(Xform::Align { output, vector, shift, .. }) => {
                let padded = self.index_modulo(output, modulus)?;
                self.moved_back(axis, padded, (0, Some((vector, shift))), modulus)
            }
            Some(Xform::Window { outer, inner, step, left, shift, .. }) => {
                let first = match step.indices % modulus {
                    0 => self.b.int(0),
                    _ => self.window_start((outer, inner), step, &mut Vec::new())?,
                };
                let own = self.index_modulo(inner, modulus)?;
                let place = self.b.exprs().add(first, own);
                self.moved_back(axis, place, (left, shift), modulus)
            }
            _ => self.index_of(axis),
        }
    }

    /// `place - left - shift(row)`, and as much more as makes it congruent modulo `modulus` and not negative.
    fn moved_back(
        &mut self,
        axis: AxisId,
        place: ExprId,
        (left, shift): (i64, Option<(i64, ShiftId)>),
        modulus: i64,
    ) -> Result<ExprId> {
        let most = left + shift.map_or(0, |(vector, _)| vector - 1);
        let on = self.b.int((most + modulus - 1) / modulus * modulus);
        let back = self.window_offset(axis, left, shift)?;
        let ahead = self.b.exprs().sub(on, back);
        Ok(self.b.exprs().add(place, ahead))
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
            let row = self.row_offset(tv, axis, None)?;
            let padded = self.padded_index(way)?;
            let vector = self.b.int(vector);
            let whole = self.b.exprs().div(row, vector);
            let base = self.b.exprs().mul(whole, vector);
            return Ok(self.b.exprs().add(base, padded));
        }
        let (rest, last) = self.linear_parts(tv, &layout, &[], None)?;
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
        let (Ok(own), Ok(theirs)) = (self.row_offset(tv, axis, None), self.row_offset(reference, axis, None)) else {
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
                let first = self.window_start((outer, inner), step, &mut terms)?;
                let own = self.resolve(inner, &mut terms)?.index;
                let (place, left) = (self.b.exprs().add(first, own), self.b.int(left));
                Ok(self.b.exprs().sub(place, left))
            }
            _ => Err(Diagnostic::bug("an axis that is not aligned has no shift")),
        }
    }

    /// The number of a tensor's element 0 in memory.
    fn start(&mut self, layout: &TensorLayout) -> ExprId {
        self.b.int(layout.start.into())
    }

    /// The address as a sum of two parts: the number of element 0 with the terms of all memory runs but the
    /// innermost, and the innermost. With `without`, the indices of those roots are
    /// taken as 0, and they must be the innermost run. With `modulus` parts are congruent to these.
    fn linear_parts(
        &mut self,
        tv: TvId,
        layout: &TensorLayout,
        without: &[AxisId],
        modulus: Option<i64>,
    ) -> Result<(ExprId, ExprId)> {
        let runs = self.memory_runs(tv, layout, without)?;
        let zero = self.b.int(0);
        let (mut rest, mut last) = (self.start(layout), zero);
        for run in runs {
            rest = self.b.exprs().add(rest, last);
            let index = match (run.axis, run.found) {
                (Some(axis), _) => match modulus {
                    Some(modulus) => self.index_modulo(axis, modulus)?,
                    None => self.index_of(axis)?,
                },
                (None, Some(found)) => found,
                (None, None) => zero,
            };
            last = self.b.exprs().mul(index, run.stride);
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
                let Some(io) = self.scheduled.tensors[tv].io else {
                    return Err(Diagnostic::bug("a strided tensor is no argument"));
                };
                self.stride(io, *memory_axis)
            };
            let Some(axis) = axes[memory_axis.axis].in_memory() else {
                inner_extent = self.b.int(1);
                continue;
            };
            inner_extent = self.extent(axis)?;
            let dense = memory_axis.dense;
            if let AxisRef::Indirect(axis) = axes[memory_axis.axis] {
                let found = self.found(axis)?;
                runs.push(Run { axis: None, found: Some(found), dense, stride, is_padded: false });
                continue;
            }
            if without.contains(&axis) {
                runs.push(Run { axis: None, found: None, dense, stride, is_padded: false });
                continue;
            }
            runs.push(Run { axis: Some(axis), found: None, dense, stride, is_padded: false });
            self.join_runs(&mut runs)?;
        }
        runs.reverse();
        Ok(runs)
    }

    /// Joins the two outermost runs while the schedule merged exactly their axes, or part of the outer one with the inner.
    fn join_runs(&mut self, runs: &mut Vec<Run>) -> Result<()> {
        while let [.., inner, outer] = runs[..] {
            if !outer.dense {
                return Ok(());
            }
            let (Some(outer_axis), Some(inner_axis), false) = (outer.axis, inner.axis, inner.is_padded) else {
                return Ok(());
            };
            let part = match self.way(outer_axis) {
                Some(Xform::Split { inner, .. }) => inner,
                _ => outer_axis,
            };
            let joined = match self.way(part) {
                Some(Xform::Merge { outer, inner, output }) if outer == part && inner == inner_axis => output,
                _ => return Ok(()),
            };
            runs.truncate(runs.len() - 2);
            runs.push(Run { axis: Some(joined), ..inner });
            if let Some(Xform::Split { outer: number, inner: part, exact, .. }) = self.way(outer_axis) {
                // Of `a = o * f + i` only `i` is merged with what is inside: `o` moves on by `f` times as much.
                let factor = self.extent(part)?;
                let stride = self.b.exprs().mul(outer.stride, factor);
                runs.push(Run { axis: Some(number), stride, is_padded: !exact, ..outer });
                break;
            }
        }
        Ok(())
    }
}

/// A part of an axis of which the last one is not full.
pub(super) struct LastPart {
    /// The test of an index.
    pub(super) inside: ExprId,
    /// Whether the loop over parts is unrolled: then only its last iteration has a test.
    is_unrolled: bool,
}

/// Memory axes that one index walks.
#[derive(Clone, Copy)]
struct Run {
    /// The axis whose index it is; none where the index is data, or taken as 0.
    axis: Option<AxisId>,
    /// The index that is data.
    found: Option<ExprId>,
    /// Whether its innermost axis is dense with the next run inwards.
    dense: bool,
    /// Elements from one index to the next.
    stride: ExprId,
    /// Whether its indices number parts of which the last one is not full: what lies around it is no multiple of them.
    is_padded: bool,
}
