//! Elements that all threads of a block reach: each is written once, at the place in which who
//! reads it looks for it.

use super::Check;
use super::loops::foreign;
use crate::axes::{AxisId, Derivation, Source, Xform};
use crate::diag::{Result, code};
use crate::schedule::ir::{Loop, Memory, Tile, TvId};
use std::collections::BTreeSet;

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
        let outer = data.loops[..data.inline_at].iter().chain(data.loops.iter().filter(|own| own.parallel.is_block()));
        let blocks: BTreeSet<AxisId> = outer.map(|own| own.axis).collect();
        let inside = Derivation::new(&self.scheduled.axes, blocks.into_iter().chain(tile.axes.iter().copied()));
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
        derivation.needed(&self.scheduled.axes, [axis]).into_iter().any(|axis| match derivation.source(axis) {
            Source::Loop => false,
            Source::Backward(xform) => match self.scheduled.axes[xform] {
                Xform::Split { exact, .. } => !exact,
                Xform::Merge { .. } => false,
                Xform::Align { .. } | Xform::Resize { .. } => true,
            },
            Source::Forward(_) | Source::Picked | Source::Unknown => true,
        })
    }
}
