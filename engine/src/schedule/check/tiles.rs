//! Elements that all threads of a block reach: each is written once, at the place in which who
//! reads it looks for it.

use super::Check;
use crate::axes::{
    AxisId, AxisRef, Derivation, Domain, DomainLoop, Foreign, Place, Source, Storage, WindowStep, Xform,
};
use crate::diag::{Result, code};
use crate::schedule::ir::{Compute, Loop, Memory, Tile, TvId};
use std::collections::BTreeSet;

/// What lowering tests of an element of a tile before it is touched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tested {
    Nothing,
    /// That parts of the tile's own axes are not behind the last one.
    Parts,
    /// All that leads there.
    All,
}

impl Check<'_> {
    /// A tile holds the tensor's elements of a block, and is written by all of its threads.
    pub(super) fn tile(&self, tv: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let Some(tile) = &data.tile else { return Ok(()) };
        let from_memory = self.copied(tv).is_some_and(|from| self.scheduled.tensors[from].memory == Memory::Global);
        if from_memory && !data.is_ring() {
            let message = format!("the tile of %{} is filled from global memory at once", data.name);
            return Err(self.unsupported(
                message,
                "copy to registers first, with `cache_after` of the input twice, or make it a ring with `circular_buffer`",
                &[tv],
            ));
        }
        // A ring is filled anew in each iteration of the loops around it.
        let around = |own: &Loop| own.parallel.is_block() || data.is_ring() && own.parallel.is_loop();
        if let Some(own) = data.loops[..data.inline_at].iter().find(|own| !around(own)) {
            let axis = self.axis(own.axis);
            let message =
                format!("the tile of %{} stands inside of the loop over {axis}, or among its threads", data.name);
            let note = "inline it into loops over blocks only, or as a ring into loops and loops over blocks";
            return Err(self.unsupported(message, note, &[tv]));
        }
        self.tile_axes(tv, tile)?;
        if let Some(place) = self.missing_place(&data.loops, |place| place.is_thread()) {
            let message =
                format!("the loops of %{} leave out {}: its threads would fill one tile", data.name, place.name());
            return Err(self.wrong(code::SCHEDULE_INCOMPLETE, message, &[tv]));
        }
        self.filled_once(tv, &self.scheduled.foreign_axes(tv)?)?;
        self.leads_to(tv, tile, tv)
    }

    /// The axes of a tile are independent of each other and of the loops around it, and with these
    /// lead to one element of the tensor each: so elements of a row are neighbours in memory.
    fn tile_axes(&self, tv: TvId, tile: &Tile) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let outer = data.loops[..data.inline_at].iter().chain(data.loops.iter().filter(|own| own.parallel.is_block()));
        let outer: BTreeSet<AxisId> = outer.map(|own| own.axis).collect();
        let axes = || data.indexed().chain(data.partial.iter().copied());
        let inside = Derivation::new(&self.scheduled.axes, outer.iter().chain(&tile.axes).copied());
        if let Some(axis) = axes().find(|axis| !inside.is_known(*axis)) {
            let message = format!(
                "the tile of %{} has one place for several indices of {}: blocks and the tile's axes do not lead to it",
                data.name,
                self.axis(axis)
            );
            return Err(self.wrong(code::SCHEDULE_TENSOR, message, &[tv]));
        }
        let around = outer.iter().map(|axis| DomainLoop { axis: *axis, place: Place::Block });
        let own = tile.axes.iter().map(|axis| DomainLoop { axis: *axis, place: Place::Serial });
        let domain = Domain {
            logical: axes().map(AxisRef::Axis).collect(),
            reduced: Vec::new(),
            loops: around.chain(own).collect(),
            shared_loops: outer.len(),
        };
        let wrong = match domain.covers(&self.scheduled.axes, Storage::Shared) {
            Err(error) => Some(error.message),
            Ok(beside) => {
                let stray = beside.axes.iter().find(|other| tile.axes.contains(&other.axis));
                stray.map(|other| format!("{} is decided by the others, or no axis of it", self.axis(other.axis)))
            }
        };
        let Some(wrong) = wrong else { return Ok(()) };
        let names: Vec<&str> = tile.axes.iter().map(|axis| self.axis(*axis)).collect();
        let message = format!("the tile of %{} has axes {}, which overlap: {wrong}", data.name, names.join(", "));
        Err(self.wrong(code::SCHEDULE_TENSOR, message, &[tv]).note("name each part of the tensor's axes once"))
    }

    /// Loops over what a tensor does not have write elements of its tile once more. Those of one thread
    /// may do so one after the other, unless asynchronous copies do it, of which two would be under way.
    fn filled_once(&self, tv: TvId, foreign: &Foreign) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        if let Some(other) = foreign.axes.iter().find(|other| other.at_zero) {
            let axis = self.axis(other.axis);
            let message = format!("the tile of %{} is filled by several threads along {axis}", data.name);
            return Err(self.unsupported(message, "give it loops in which each thread has elements of its own", &[tv]));
        }
        let mut repeated = data.loops[data.inline_at..].iter().filter(|own| data.is_ring() && own.parallel.is_loop());
        let again = repeated.find_map(|own| foreign.axes.iter().find(|other| other.loops.contains(&own.axis)));
        let Some(other) = again else { return Ok(()) };
        let message = format!(
            "a stage of %{} is filled once for each index of {}: copies to one element would be under way at once",
            data.name,
            self.axis(other.axis)
        );
        Err(self.unsupported(message, "leave that loop out of the fill, with `loops`", &[tv]))
    }

    /// A reader is in the same block, and its loops lead to places of the tile.
    pub(super) fn reads_tile(&self, tv: TvId, from: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[from];
        let Some(tile) = &data.tile else { return Ok(()) };
        let own = self.loops(tv);
        let blocks = data.loops.iter().filter(|at| at.parallel.is_block() && self.scheduled.depends(from, at.axis));
        if let Some(stray) = blocks.into_iter().find(|at: &&Loop| !own.contains(at)) {
            let message = format!(
                "the tile of %{} is of the block along {}, which is none of %{}, which reads it",
                data.name,
                self.axis(stray.axis),
                self.name(tv)
            );
            return Err(self.wrong(code::SCHEDULE_VALUE, message, &[from, tv]));
        }
        self.leads_to(tv, tile, from)
    }

    /// The loops of a tensor give each axis of a tile an index that is inside.
    fn leads_to(&self, tv: TvId, tile: &Tile, tiled: TvId) -> Result<()> {
        let derivation = Derivation::new(&self.scheduled.axes, self.scheduled.tensors[tv].loop_axes());
        let tested = self.tested(tv, tiled);
        for axis in &tile.axes {
            let refusal = match derivation.is_known(*axis) {
                false => "give no index to",
                true if self.may_leave(&derivation, *axis, tested) => "may leave",
                true => continue,
            };
            let message = format!(
                "the loops of %{} {refusal} {}, an axis of the tile of %{}",
                self.name(tv),
                self.axis(*axis),
                self.name(tiled)
            );
            return Err(self
                .wrong(code::SCHEDULE_VALUE, message, &[tv])
                .note("split the tile's axes exactly, and run over all their parts"));
        }
        Ok(())
    }

    /// What is tested where a tensor touches a tile: nothing of rings, of sums, and of what is no operation on single elements.
    fn tested(&self, tv: TvId, tiled: TvId) -> Tested {
        let Some(op) = &self.scheduled.tensors[tv].op else { return Tested::Nothing };
        match op.compute {
            _ if self.scheduled.tensors[tiled].is_ring() || self.scheduled.tensors[tv].is_ring() => Tested::Nothing,
            Compute::Reduce { .. } | Compute::Random(_) | Compute::Join { .. } | Compute::Lookup => Tested::Nothing,
            _ if tv == tiled => Tested::All,
            Compute::Copy => Tested::Parts,
            _ => Tested::Nothing,
        }
    }

    /// Whether the index of an axis may be outside in the loops at hand, where nobody tests it. Lowering finds indices of
    /// parts only, so one that derives from what it is a part of counts as well.
    fn may_leave(&self, derivation: &Derivation, axis: AxisId, tested: Tested) -> bool {
        if let Source::Forward(xform) = derivation.source(axis) {
            let (input, number, step, [least, most]) = match self.scheduled.axes[xform] {
                Xform::Window { input, outer, step: WindowStep { indices, of: Some(of) }, .. } => {
                    return !self.is_within_lines(derivation, (input, outer), (indices, of), tested);
                }
                Xform::Window { input, outer, inner, step, left, shift } => {
                    let width = self.scheduled.axes.constant_extent(inner).unwrap_or(0);
                    (input, outer, step.indices, [-left, width - left - shift.map_or(1, |(vector, _)| vector)])
                }
                Xform::Split { input, outer, inner, .. } if axis == inner => {
                    let factor = self.scheduled.axes.constant_extent(inner).unwrap_or(0);
                    (input, outer, factor, [0, factor - 1])
                }
                // Both parts are inside, whatever is tested.
                Xform::Merge { outer, inner, .. } => {
                    let mut parts = [outer, inner].into_iter();
                    return parts.any(|part| self.may_leave(derivation, part, Tested::Nothing));
                }
                _ => return true,
            };
            let range = self.within_part(derivation, input, number, step, tested);
            return range.is_none_or(|[low, high]| low < least || high > most);
        }
        derivation.needed(&self.scheduled.axes, [axis]).into_iter().any(|axis| match derivation.source(axis) {
            Source::Loop => false,
            Source::Backward(xform) => match self.scheduled.axes[xform] {
                Xform::Split { exact, .. } => !exact && tested == Tested::Nothing,
                Xform::Merge { .. } => false,
                Xform::Align { .. } | Xform::Resize { .. } | Xform::Window { .. } => true,
            },
            Source::Forward(_) | Source::Picked | Source::Unknown => true,
        })
    }

    /// Whether `a - o * lines * n` is within `lines * n`, where `o` is the number of a part of the axis `a = c * n + b`: `c` is in that
    /// part of `lines`, and `b` is less than `n`, of which lowering tests what has no constant size.
    fn is_within_lines(
        &self,
        derivation: &Derivation,
        (a, o): (AxisId, AxisId),
        (lines, of): (i64, AxisId),
        tested: Tested,
    ) -> bool {
        let axes = &self.scheduled.axes;
        let Source::Forward(xform) = derivation.source(a) else { return false };
        let Xform::Merge { outer, inner, .. } = axes[xform] else { return false };
        let range = self.within_part(derivation, outer, o, lines, tested);
        let is_tested = tested != Tested::Nothing && axes.constant_size(of).is_none();
        let is_inside = is_tested || !self.may_leave(derivation, of, Tested::Nothing);
        inner == of && is_inside && range.is_some_and(|[low, high]| low >= 0 && high < lines)
    }

    /// The least and the greatest of `a - o * step` in the loops at hand, where `o` is the number of a part of the axis
    /// `a`. What is known of it:
    ///
    /// * a split `a = o * step + i`: from 0 to `step - 1`; a window of it, side by side: likewise;
    /// * aligned to vectors of `v` before that split, `a = o * step + i - s`: from `1 - v` on;
    /// * the outer part of a merge with `n` indices, where `a * n + b` is known to be from
    ///   `o * step * n` on: of that the quotient;
    /// * a merge `a = c * n + b`: of `c` by `step / n`, and `b` is less than `n`;
    /// * the one part of an axis with a constant size: all of it.
    fn within_part(
        &self,
        derivation: &Derivation,
        a: AxisId,
        o: AxisId,
        step: i64,
        tested: Tested,
    ) -> Option<[i64; 2]> {
        let axes = &self.scheduled.axes;
        let all = [0, step - 1];
        let is_one_part = axes.constant_extent(o) == Some(1) && axes.constant_size(a).is_some_and(|size| size <= step);
        if is_one_part && !self.leaves_size(derivation, a) {
            return Some(all);
        }
        match derivation.source(a) {
            Source::Backward(xform) => match axes[xform] {
                Xform::Split { outer, inner, .. } if outer == o && axes.constant_extent(inner) == Some(step) => {
                    (!self.may_leave(derivation, inner, Tested::Nothing)).then_some(all)
                }
                Xform::Window { outer, inner, step: own, left: 0, shift: None, .. }
                    if outer == o && own == WindowStep::constant(step) =>
                {
                    let is_side_by_side = axes.constant_extent(inner) == Some(step);
                    (is_side_by_side && !self.may_leave(derivation, inner, Tested::Nothing)).then_some(all)
                }
                Xform::Align { output, vector, .. } => {
                    let [low, high] = self.within_part(derivation, output, o, step, tested)?;
                    Some([low + 1 - vector, high])
                }
                Xform::Merge { outer, inner, output } if outer == a => {
                    let n = axes.constant_size(inner)?;
                    let [low, high] = self.within_part(derivation, output, o, step.checked_mul(n)?, tested)?;
                    // A quotient of what is negative is any number, unless it is a shift.
                    let has_quotient = low >= 0 || n & (n - 1) == 0;
                    has_quotient.then_some([low.div_euclid(n), high.div_euclid(n)])
                }
                _ => None,
            },
            Source::Forward(xform) => match axes[xform] {
                Xform::Merge { outer, inner, .. } => {
                    let n = axes.constant_size(inner).filter(|n| *n > 0 && step % n == 0)?;
                    let [low, high] = self.within_part(derivation, outer, o, step / n, tested)?;
                    let most = self.most_of(derivation, inner, n, tested)?;
                    Some([low * n, high * n + most])
                }
                _ => None,
            },
            Source::Loop | Source::Picked | Source::Unknown => None,
        }
    }

    /// The greatest index of an axis of size `n`: with a last part that is not full, one that is not less where nobody tests it.
    fn most_of(&self, derivation: &Derivation, axis: AxisId, n: i64, tested: Tested) -> Option<i64> {
        if !self.leaves_size(derivation, axis) {
            return Some(n - 1);
        }
        let Source::Backward(xform) = derivation.source(axis) else { return None };
        let Xform::Split { outer, inner, exact, .. } = self.scheduled.axes[xform] else { return None };
        if exact && self.scheduled.axes.constant_extent(outer) == Some(1) {
            return self.most_of(derivation, inner, n, tested);
        }
        let [parts, factor] = [outer, inner].map(|part| self.scheduled.axes.constant_extent(part));
        let (parts, factor) = (parts?, factor?);
        let is_loop = |part| matches!(derivation.source(part), Source::Loop);
        let is_tested = tested == Tested::All && n % factor != 0 && parts == n / factor + 1;
        let most = if is_tested { n - 1 } else { parts.checked_mul(factor)? - 1 };
        (is_loop(outer) && is_loop(inner)).then_some(most)
    }

    /// Whether an axis of a constant size may have an index that is not less: it is no part of
    /// a merge, nor made of one part that is whole.
    fn leaves_size(&self, derivation: &Derivation, axis: AxisId) -> bool {
        let axes = &self.scheduled.axes;
        match derivation.source(axis) {
            Source::Loop => false,
            Source::Backward(xform) => match axes[xform] {
                Xform::Merge { inner, .. } => inner != axis,
                Xform::Split { outer, inner, exact, .. } => {
                    !exact
                        || axes.constant_extent(outer) != Some(1)
                        || self.may_leave(derivation, inner, Tested::Nothing)
                }
                _ => true,
            },
            _ => true,
        }
    }
}
