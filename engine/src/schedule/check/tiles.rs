//! Elements that all threads of a block reach: each is written once, at the place in which who
//! reads it looks for it.

use super::Check;
use super::loops::foreign;
use crate::axes::{AxisId, Derivation, Source, Xform, XformId};
use crate::diag::{Result, code};
use crate::schedule::ir::{Loop, Memory, Tile, TvId};

impl Check<'_> {
    /// A tile holds the tensor's elements of a block, and is written by all of its threads.
    pub(super) fn tile(&self, tv: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let Some(tile) = &data.tile else { return Ok(()) };
        if self.copied(tv).is_some_and(|from| self.scheduled.tensors[from].memory == Memory::Global) {
            let message = format!("the tile of %{} is filled from global memory at once", data.name);
            return Err(self.unsupported(
                message,
                "copy to registers first, with `cache_after` of the input twice",
                &[tv],
            ));
        }
        if let Some(own) = data.loops[..data.inline_at].iter().find(|own| !own.parallel.is_block()) {
            let axis = self.axis(own.axis);
            let message =
                format!("the tile of %{} stands inside of the loop over {axis}, or among its threads", data.name);
            return Err(self.unsupported(message, "inline it into loops over blocks only", &[tv]));
        }
        let blocks = data.loops.iter().filter(|own| own.parallel.is_block()).map(|own| own.axis);
        let inside = Derivation::new(&self.scheduled.axes, blocks.chain(tile.axes.iter().copied()));
        if let Some(axis) = data.indexed().chain(data.partial.iter().copied()).find(|axis| !inside.is_known(*axis)) {
            let message = format!(
                "the tile of %{} has one place for several indices of {}: blocks and the tile's axes do not lead to it",
                data.name,
                self.axis(axis)
            );
            return Err(self.wrong(code::SCHEDULE_TENSOR, message, &[tv]));
        }
        if let Some(place) = self.missing_place(&data.loops, |place| place.is_thread()) {
            let message =
                format!("the loops of %{} leave out {}: its threads would fill one tile", data.name, place.name());
            return Err(self.wrong(code::SCHEDULE_INCOMPLETE, message, &[tv]));
        }
        if let Some(other) = foreign(self.scheduled, tv)?.axes.iter().find(|other| other.at_zero) {
            let axis = self.axis(other.axis);
            let message = format!("the tile of %{} is filled by several threads along {axis}", data.name);
            return Err(self.unsupported(message, "give it loops in which each thread has elements of its own", &[tv]));
        }
        self.leads_to(tv, tile, tv)
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
        for axis in &tile.axes {
            let refusal = match derivation.is_known(*axis) {
                false => "give no index to",
                true if self.may_leave(&derivation, *axis) => "may leave",
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

    /// Whether the index of an axis may be outside in the loops at hand. Lowering finds indices of
    /// parts only, so one that derives from what it is a part of counts as well.
    fn may_leave(&self, derivation: &Derivation, axis: AxisId) -> bool {
        if let Source::Forward(xform) = derivation.source(axis)
            && let Some(inner) = self.within_window(derivation, xform)
        {
            return self.may_leave(derivation, inner);
        }
        derivation.needed(&self.scheduled.axes, [axis]).into_iter().any(|axis| match derivation.source(axis) {
            Source::Loop => false,
            Source::Backward(xform) => match self.scheduled.axes[xform] {
                Xform::Split { exact, .. } => !exact,
                Xform::Merge { .. } => false,
                Xform::Align { .. } | Xform::Resize { .. } | Xform::Window { .. } => true,
            },
            Source::Forward(_) | Source::Picked | Source::Unknown => true,
        })
    }

    /// The part of an axis of which an index is in the window of that part. With `a = o * f + i`
    /// where loops split the axis into the parts that windows are for, or `a = o * f + i - s`, `s < v`, where they split
    /// it aligned to vectors of `v`, its place `w = a + left + shift - o * step`, `shift < vector`, is inside
    /// if `f = step`, `left >= v - 1` and `f - 1 + left + vector - 1 < width`.
    fn within_window(&self, derivation: &Derivation, xform: XformId) -> Option<AxisId> {
        let axes = &self.scheduled.axes;
        let Xform::Window { input, outer: number, inner, step, left, shift } = axes[xform] else { return None };
        let source = |axis: AxisId| match derivation.source(axis) {
            Source::Backward(xform) => Some(axes[xform]),
            _ => None,
        };
        let (split, back) = match source(input)? {
            Xform::Align { output, vector, .. } => (source(output)?, vector - 1),
            split => (split, 0),
        };
        let Xform::Split { outer, inner: part, .. } = split else { return None };
        let [factor, width] = [part, inner].map(|axis| axes.constant_extent(axis));
        let last = factor? - 1 + left + shift.map_or(0, |(vector, _)| vector - 1);
        (outer == number && factor? == step && left >= back && last < width?).then_some(part)
    }
}
