//! Tiles: tensors in shared memory that all threads of a block reach.
//!
//! In: a tensor with a [`Tile`](crate::schedule::Tile), written in its own loops and read in
//! those of its users, which may give other threads the same elements. Out: addresses, wide
//! accesses, and barriers: a tile is read behind a barrier that stands behind all writes.
//! Invariant: a tile is written once, outside all loops that run more than once, so nothing
//! overwrites what a thread has still to read.

use super::context::Lowering;
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{CacheHint, ExprId, Scope};
use crate::schedule::{AxisId, Compute, Loop, Memory, ParallelType, TvId, TvOp, TvOperand, Xform};

/// The widest access of a thread.
const MAX_ACCESS_BYTES: i64 = 16;

impl Lowering<'_> {
    /// The element of a tile in the open loops: `outer * n + inner` over its axes, the
    /// innermost index rotated by `by * (outer / every)` modulo its extent.
    pub(super) fn tile_index(&mut self, tv: TvId) -> Result<ExprId> {
        let Some(tile) = self.scheduled.tensors[tv].tile.clone() else {
            return Err(Diagnostic::bug(format!("{} is no tile", self.scheduled.tensors[tv].name)));
        };
        let mut index = self.b.int(0);
        for (at, axis) in tile.axes.iter().enumerate() {
            let extent = self.constant_extent(*axis)?;
            let mut position = self.index_of(*axis)?;
            let extent = self.b.int(extent);
            if at + 1 == tile.axes.len() && tile.by > 0 {
                let (every, by) = (self.b.int(tile.every), self.b.int(tile.by));
                let group = self.b.exprs().div(index, every);
                let shift = self.b.exprs().mul(group, by);
                position = self.b.exprs().add(position, shift);
                position = self.b.exprs().rem(position, extent);
            }
            index = self.b.exprs().mul(index, extent);
            index = self.b.exprs().add(index, position);
        }
        Ok(index)
    }

    /// A barrier before a unit that reads tiles which were written since the last one.
    pub(super) fn settle_tiles(&mut self, unit: &[TvId]) -> Result<()> {
        let reads = unit.iter().flat_map(|tv| self.scheduled.producers(*tv));
        let written: Vec<TvId> = reads.filter(|tv| self.unsettled_tiles.contains(tv)).collect();
        if let Some(tv) = written.iter().find(|tv| !unit.contains(tv)) {
            self.origin(*tv, "tile");
            self.b.sync(Scope::Block);
            self.unsettled_tiles.clear();
        }
        Ok(())
    }

    /// Notes that a tile is written in the loops that are open now.
    pub(super) fn write_tile(&mut self, tv: TvId) -> Result<()> {
        if self.scheduled.tensors[tv].tile.is_none() || !self.unsettled_tiles.insert(tv) {
            return Ok(());
        }
        let data = &self.scheduled.tensors[tv];
        let in_loop = data.loops[..data.inline_at].iter().any(|own| own.parallel.is_loop());
        let among_threads = data.loops[..data.inline_at].iter().any(|own| own.parallel.is_thread());
        if in_loop || among_threads {
            return Err(Diagnostic::unsupported(
                code::SCHEDULE_VERB,
                format!("the tile of {} stands inside a loop or among the threads that share it", data.name),
            )
            .note("inline it into loops over blocks only"));
        }
        Ok(())
    }

    /// Emits a copy between registers and a tile as wide accesses, if `own` is its vector axis
    /// and the innermost axis of the tile runs along it. Returns whether it did.
    pub(super) fn try_emit_tile_vector(&mut self, tv: TvId, own: Loop, depth: usize) -> Result<bool> {
        let data = &self.scheduled.tensors[tv];
        let Some(TvOp { compute: Compute::Copy, inputs }) = &data.op else { return Ok(false) };
        let [TvOperand::Tv(from)] = *inputs.as_slice() else { return Ok(false) };
        let writes = data.tile.is_some();
        let (tiled, local) = if writes { (tv, from) } else { (from, tv) };
        let tensors = &self.scheduled.tensors;
        let Some(tile) = tensors[tiled].tile.as_ref() else { return Ok(false) };
        let innermost = depth + 1 == data.loops.len() && own.parallel == ParallelType::Vectorize;
        let in_registers = tensors[local].memory == Memory::Local && self.array_loops(local).last() == Some(&own);
        if !innermost
            || !in_registers
            || self.values[local].is_some()
            || !self.is_inner_part(own.axis, tile.axes.last())
        {
            return Ok(false);
        }
        let lanes = self.constant_extent(own.axis)?;
        let chunk = lanes.min(MAX_ACCESS_BYTES / data.dtype.bytes() as i64);
        let zero = self.b.int(0);
        let mut emitted = false;
        self.with_leaf(own.axis, zero, |lowering| {
            let index = lowering.tile_index(tiled)?;
            // A rotation by less than the lanes would tear them apart.
            if chunk < 2 || lanes % chunk != 0 || lowering.multiple_of(index) % lanes != 0 {
                return Ok(());
            }
            let tile = (lowering.local_array(tiled)?, index);
            let array = (lowering.local_array(local)?, lowering.array_index(local)?);
            lowering.origin(tv, "tile");
            for first in (0..lanes).step_by(chunk as usize) {
                let first = lowering.b.int(first);
                let [tile, array] = [tile, array].map(|(buffer, at)| (buffer, lowering.b.exprs().add(at, first)));
                let (to, from) = if writes { (tile, array) } else { (array, tile) };
                lowering.b.mov(to, from, chunk as u32, CacheHint::Default);
            }
            emitted = true;
            Ok(())
        })?;
        if emitted && writes {
            self.write_tile(tv)?;
        }
        Ok(emitted)
    }

    /// Whether an axis is the innermost part of another one, divided by splits alone.
    fn is_inner_part(&self, mut part: AxisId, of: Option<&AxisId>) -> bool {
        while Some(&part) != of {
            part = match self.scheduled.axes.def(part) {
                Some(Xform::Split { input, inner, .. }) if *inner == part => *input,
                _ => return false,
            };
        }
        true
    }
}
