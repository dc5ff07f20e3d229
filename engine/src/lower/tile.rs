//! Tiles: tensors in shared memory that all threads of a block reach.
//!
//! In: a tensor with a [`Tile`](crate::schedule::Tile), written in its own loops and read in
//! those of its users, which may give other threads the same elements. Out: addresses and wide
//! accesses. Where a barrier stands between writes and reads, `sync` has decided.

use super::context::Lowering;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{CacheHint, ExprId};
use crate::schedule::{Loop, TvId};

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
            let extent = self.facts.constant_extent(*axis)?;
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

    /// Emits a copy between registers and a tile, along whose innermost axis the lanes run, as
    /// wide accesses, if it is provably aligned. Returns whether it did.
    pub(super) fn try_move_tile_vector(&mut self, tv: TvId, from: TvId, own: Loop) -> Result<bool> {
        let writes = self.scheduled.tensors[tv].tile.is_some();
        let (tiled, local) = if writes { (tv, from) } else { (from, tv) };
        let lanes = self.facts.constant_extent(own.axis)?;
        let chunk = lanes.min(MAX_ACCESS_BYTES / self.scheduled.tensors[tv].dtype.bytes() as i64);
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
        Ok(emitted)
    }
}
