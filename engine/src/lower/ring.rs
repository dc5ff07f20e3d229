//! Rings: stages in shared memory that asynchronous copies fill some iterations ahead.
//!
//! In: loads whose tensor is a ring ([`Tv::is_ring`](crate::schedule::Tv::is_ring)), in the loops
//! of an iteration ahead. Out: `if there is such an iteration { copies }`, and of each copy
//! `if inside { stage = memory } else { stage = fill }`. So a stage holds outside of its tensor
//! what a register would (`outside`), and who reads it needs no test for it.
//!
//! What the hardware does not copy by itself is read and written by the thread, and is there at once:
//! what lies outside; elements of less than 4 bytes where a vector of them is not whole, or not
//! provably aligned; and elements of memory that is aligned to less than their size.
//!
//! Invariant: groups are ended and waited for outside of every test, by all threads alike, so
//! that each iteration has one group whether or not something was copied for it.

use super::context::{Bound, Lowering, identifier};
use super::tree::{Iteration, Load};
use super::vector::{VectorCopy, lanes_of};
use crate::diag::Result;
use crate::kernel::{BufId, CacheHint, ExprId, MAX_ACCESS_BYTES, MIN_ASYNC_BYTES};
use crate::schedule::{AxisId, Loop, TvId};

/// The pass of their statements.
pub(super) const PASS: &str = "ring";

impl Lowering<'_> {
    /// Runs `body` in an iteration ahead, if there is such an one.
    pub(super) fn emit_ring_fill(
        &mut self,
        axis: AxisId,
        at: Iteration,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let index = self.index_ahead(axis, at)?;
        let extent = self.extent(axis)?;
        let exists = self.b.exprs().lt(index, extent);
        let fill = |l: &mut Self| l.with_bound(axis, Bound::inside(index), body);
        self.emit_either((None, PASS), exists, fill, |_| Ok(()))
    }

    /// `if inside { stage = memory } else { stage = fill }`, one element.
    pub(super) fn emit_copy(&mut self, load: Load) -> Result<()> {
        let Load { tv, from, .. } = load;
        self.origin(tv, PASS);
        let terms = self.access_terms(tv)?;
        let inside = self.conjunction(&terms);
        let memory = (self.global(from)?, self.address(from)?);
        let stage = (self.local_array(tv)?, self.array_index(tv)?);
        let fill = self.outside_value(tv);
        let hint = self.hint_of_copy(tv, memory.0, 1);
        let name = identifier(&self.scheduled.tensors[tv].name);
        let copy = |l: &mut Self| {
            match hint {
                Some(hint) => l.b.copy_async(stage, memory, 1, hint),
                None => {
                    let value = l.b.load(name, memory.0, memory.1);
                    l.b.store(stage.0, stage.1, value);
                }
            }
            Ok(())
        };
        let outside = |l: &mut Self| {
            l.b.store(stage.0, stage.1, fill);
            Ok(())
        };
        self.emit_either((Some(tv), PASS), inside, copy, outside)
    }

    /// Emits the copy of all lanes of a loop as wide ones, and single elements where not all are
    /// inside, if the wide ones are provably aligned. Returns whether it did.
    pub(super) fn try_copy_vector(&mut self, load: Load, own: Loop) -> Result<bool> {
        let mut emitted = false;
        self.with_copy(load.from, own, |lowering, memory, width| {
            if !width.aligned {
                return Ok(());
            }
            let stage = (lowering.local_array(load.tv)?, lowering.array_index(load.tv)?);
            let copy = lowering.vector_copy(load.tv, own, (stage, memory), width)?;
            let places = lowering.chunk_places(load.tv, own.axis, (copy.lanes, width.chunk))?;
            let hint = lowering.hint_of_copy(load.tv, memory.0, width.chunk);
            if let Some((places, hint)) = places.zip(hint) {
                emitted = lowering.emit_vector_copy(load, own.axis, &copy, (&places, hint))?;
            }
            Ok(())
        })?;
        Ok(emitted)
    }

    fn emit_vector_copy(
        &mut self,
        load: Load,
        leaf: AxisId,
        copy: &VectorCopy,
        (places, hint): (&[ExprId], CacheHint),
    ) -> Result<bool> {
        self.origin(load.tv, PASS);
        let ends = self.lane_ends(leaf, copy, |l| l.access_terms(load.tv))?;
        if self.b.exprs().as_bool(ends.all) == Some(false) {
            return Ok(false);
        }
        let wide = |l: &mut Self| {
            l.emit_wide_copies(copy, places, hint);
            Ok(())
        };
        let single = |l: &mut Self| match ends.uniform {
            true => l.emit_fill(load.tv, leaf, copy),
            false => l.emit_loop(lanes_of(leaf), |l| l.emit_copy(load)),
        };
        self.emit_either((Some(load.tv), PASS), ends.all, wide, single)?;
        Ok(true)
    }

    /// Copies chunks of a vector to their places in a stage.
    fn emit_wide_copies(&mut self, copy: &VectorCopy, places: &[ExprId], hint: CacheHint) {
        for (first, place) in (0..copy.lanes).step_by(copy.width.chunk as usize).zip(places) {
            let first = self.b.int(first);
            let from = self.b.exprs().add(copy.memory.1, first);
            self.b.copy_async((copy.array.0, *place), (copy.memory.0, from), copy.width.chunk as u32, hint);
        }
    }

    /// The cache hint of asynchronous copies of so many elements; none where there is no such copy.
    fn hint_of_copy(&mut self, tv: TvId, memory: BufId, lanes: i64) -> Option<CacheHint> {
        let data = &self.scheduled.tensors[tv];
        let bytes = data.dtype.bytes() as i64 * lanes;
        if bytes < MIN_ASYNC_BYTES || i64::from(self.b.buffer(memory).align) % bytes != 0 {
            return None;
        }
        Some(if bytes == MAX_ACCESS_BYTES { data.cache_hint } else { CacheHint::Default })
    }
}
