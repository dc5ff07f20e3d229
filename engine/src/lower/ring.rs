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
use super::tree::{Ahead, Load};
use super::vector::{VectorCopy, lanes_of};
use crate::diag::Result;
use crate::kernel::{BufId, CacheHint, ExprId, StmtKind};
use crate::schedule::{AxisId, Loop, TvId};

/// The pass of their statements.
pub(super) const PASS: &str = "ring";
/// Bytes of the least asynchronous copy, and of that which may go past the first-level cache.
const LEAST_BYTES: i64 = 4;
const WHOLE_BYTES: i64 = 16;

impl Lowering<'_> {
    /// Runs `body` in an iteration ahead, if there is such an one.
    pub(super) fn emit_ring_fill(
        &mut self,
        axis: AxisId,
        at: Ahead,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let index = self.index_ahead(axis, at)?;
        let extent = self.extent(axis)?;
        let exists = self.b.exprs().lt(index, extent);
        let fill = |l: &mut Self| l.with_bound(axis, Bound { index, overflows: false }, body);
        self.either(None, exists, fill, |_| Ok(()))
    }

    /// One of two blocks, by a condition that may be known.
    fn either(
        &mut self,
        tv: Option<TvId>,
        condition: ExprId,
        then: impl FnOnce(&mut Self) -> Result<()>,
        otherwise: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        match self.b.exprs().as_bool(condition) {
            Some(true) => then(self),
            Some(false) => otherwise(self),
            None => {
                let (then, otherwise) = (self.block_of(then)?, self.block_of(otherwise)?);
                self.b.set_origin(tv.map(|tv| self.scheduled.tensors[tv].source), PASS);
                self.b.emit(StmtKind::If { condition, then, otherwise });
                Ok(())
            }
        }
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
        self.either(Some(tv), inside, copy, outside)
    }

    /// Emits the copy of all lanes of a loop as wide ones, and single elements where not all are
    /// inside, if the wide ones are provably aligned. Returns whether it did.
    pub(super) fn try_copy_vector(&mut self, load: Load, own: Loop) -> Result<bool> {
        let mut emitted = false;
        self.with_copy(load.tv, load.from, own, |lowering, memory| {
            let stage = (lowering.local_array(load.tv)?, lowering.array_index(load.tv)?);
            let copy = lowering.vector_copy(load.tv, own, stage, memory)?;
            // A rotation by less than the lanes would tear them apart.
            let whole = lowering.multiple_of(stage.1) % copy.lanes == 0;
            if let Some(hint) = lowering.hint_of_copy(load.tv, memory.0, copy.chunk).filter(|_| whole) {
                emitted = lowering.emit_vector_copy(load, own.axis, &copy, hint)?;
            }
            Ok(())
        })?;
        Ok(emitted)
    }

    fn emit_vector_copy(&mut self, load: Load, leaf: AxisId, copy: &VectorCopy, hint: CacheHint) -> Result<bool> {
        self.origin(load.tv, PASS);
        let ends = self.lane_ends(leaf, copy, |l| l.access_terms(load.tv))?;
        if self.b.exprs().as_bool(ends.all) == Some(false) {
            return Ok(false);
        }
        let wide = |l: &mut Self| {
            l.emit_wide_copies(copy, hint);
            Ok(())
        };
        let single = |l: &mut Self| match ends.uniform {
            true => l.emit_fill(load.tv, leaf, copy),
            false => l.emit_loop(lanes_of(leaf), |l| l.emit_copy(load)),
        };
        self.either(Some(load.tv), ends.all, wide, single)?;
        Ok(true)
    }

    fn emit_wide_copies(&mut self, copy: &VectorCopy, hint: CacheHint) {
        for first in (0..copy.lanes).step_by(copy.chunk as usize) {
            let first = self.b.int(first);
            let at = |l: &mut Self, (buffer, index): (BufId, ExprId)| (buffer, l.b.exprs().add(index, first));
            let (stage, memory) = (at(self, copy.array), at(self, copy.memory));
            self.b.copy_async(stage, memory, copy.chunk as u32, hint);
        }
    }

    /// The cache hint of asynchronous copies of so many elements; none where there is no such copy.
    fn hint_of_copy(&mut self, tv: TvId, memory: BufId, lanes: i64) -> Option<CacheHint> {
        let data = &self.scheduled.tensors[tv];
        let bytes = data.dtype.bytes() as i64 * lanes;
        if bytes < LEAST_BYTES || i64::from(self.b.buffer(memory).align) % bytes != 0 {
            return None;
        }
        Some(if bytes == WHOLE_BYTES { data.cache_hint } else { CacheHint::Default })
    }
}
