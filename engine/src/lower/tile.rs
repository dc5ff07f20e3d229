//! Tiles: tensors in shared memory that all threads of a block reach.
//!
//! In: a tensor with a [`Tile`](crate::schedule::Tile), written in its own loops and read in
//! those of its users, which may give other threads the same elements. Out: addresses and wide
//! accesses. Where a barrier stands between writes and reads, `sync` has decided.

use super::context::Lowering;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{CacheHint, ExprId, MAX_ACCESS_BYTES};
use crate::schedule::{AxisId, Columns, Loop, Memory, TvId};

impl Lowering<'_> {
    /// The element of a tile in the open loops: `outer * n + column` over its axes.
    pub(super) fn tile_index(&mut self, tv: TvId) -> Result<ExprId> {
        let Some(tile) = self.scheduled.tensors[tv].tile.clone() else {
            return Err(Diagnostic::bug(format!("{} is no tile", self.scheduled.tensors[tv].name)));
        };
        let mut index = self.b.int(0);
        for (at, axis) in tile.axes.iter().enumerate() {
            let extent = self.facts.constant_extent(*axis)?;
            let mut position = self.index_of(*axis)?;
            let extent = self.b.int(extent);
            if at + 1 == tile.axes.len() {
                let bytes = self.scheduled.tensors[tv].dtype.bytes() as i64;
                position = self.column(tile.columns, index, (position, extent), bytes);
            }
            index = self.b.exprs().mul(index, extent);
            index = self.b.exprs().add(index, position);
        }
        Ok(index)
    }

    /// Where in its row the element at an index lies, of so many bytes. See [`Columns`].
    fn column(&mut self, columns: Columns, row: ExprId, (index, extent): (ExprId, ExprId), bytes: i64) -> ExprId {
        match columns {
            Columns::InOrder => index,
            Columns::Rotated { by, every } => {
                let (every, by) = (self.b.int(every), self.b.int(by));
                let group = self.b.exprs().div(row, every);
                let shift = self.b.exprs().mul(group, by);
                let moved = self.b.exprs().add(index, shift);
                self.b.exprs().rem(moved, extent)
            }
            Columns::Swizzled { groups, every } => {
                let (every, groups, group) =
                    (self.b.int(every), self.b.int(groups), self.b.int(MAX_ACCESS_BYTES / bytes));
                let rows = self.b.exprs().div(row, every);
                let turn = self.b.exprs().rem(rows, groups);
                let own = self.b.exprs().div(index, group);
                let other = self.b.exprs().xor(own, turn);
                let start = self.b.exprs().mul(other, group);
                let within = self.b.exprs().rem(index, group);
                self.b.exprs().add(start, within)
            }
        }
    }

    /// Emits a copy between registers and shared memory, along which the lanes run, as wide accesses, if it is provably aligned. Returns whether it did.
    pub(super) fn try_move_tile_vector(&mut self, tv: TvId, from: TvId, own: Loop) -> Result<bool> {
        let writes = self.scheduled.tensors[tv].memory == Memory::Shared;
        let (tiled, local) = if writes { (tv, from) } else { (from, tv) };
        let lanes = self.facts.constant_extent(own.axis)?;
        let chunk = lanes.min(MAX_ACCESS_BYTES / self.scheduled.tensors[tv].dtype.bytes() as i64);
        let zero = self.b.int(0);
        if chunk < 2 || lanes % chunk != 0 {
            return Ok(false);
        }
        let Some(places) = self.chunk_places(tiled, own.axis, (lanes, chunk))? else { return Ok(false) };
        self.with_leaf(own.axis, zero, |lowering| {
            let tile = lowering.local_array(tiled)?;
            let (array, start) = (lowering.local_array(local)?, lowering.array_index(local)?);
            lowering.origin(tv, "tile");
            for (first, place) in (0..lanes).step_by(chunk as usize).zip(places) {
                let first = lowering.b.int(first);
                let at = lowering.b.exprs().add(start, first);
                let (to, from) = if writes { ((tile, place), (array, at)) } else { ((array, at), (tile, place)) };
                lowering.b.mov(to, from, chunk as u32, CacheHint::Default);
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Where in shared memory the accesses begin that together move all lanes of a loop, if each
    /// provably is of neighbours: columns in another order move them apart, and may tear one.
    pub(super) fn chunk_places(
        &mut self,
        tv: TvId,
        leaf: AxisId,
        (lanes, chunk): (i64, i64),
    ) -> Result<Option<Vec<ExprId>>> {
        let mut places = Vec::new();
        for first in (0..lanes).step_by(chunk as usize) {
            let first = self.b.int(first);
            self.with_leaf(leaf, first, |lowering| {
                places.push(lowering.array_index(tv)?);
                Ok(())
            })?;
        }
        let mut is_whole = |place: &ExprId| self.multiple_of(*place) % chunk == 0;
        Ok(places.iter().all(&mut is_whole).then_some(places))
    }
}
