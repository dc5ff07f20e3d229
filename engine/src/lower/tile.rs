//! Tiles: tensors in shared memory that all threads of a block reach.
//!
//! In: a tensor with a [`Tile`](crate::schedule::Tile), written in its own loops and read in
//! those of its users, which may give other threads the same elements. Out: addresses and wide
//! accesses. Where a barrier stands between writes and reads, `sync` has decided.

use super::context::Lowering;
use super::vector::lanes_of;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{CacheHint, ExprId, MAX_ACCESS_BYTES};
use crate::schedule::{AxisId, Columns, Loop, Memory, TvId, Xform};

impl Lowering<'_> {
    /// The element of a tile in the open loops: `outer * n + column` over its axes.
    pub(super) fn tile_index(&mut self, tv: TvId) -> Result<ExprId> {
        let Some(tile) = self.scheduled.tensors[tv].tile.clone() else {
            return Err(Diagnostic::bug(format!("{} is no tile", self.scheduled.tensors[tv].name)));
        };
        let mut index = self.b.int(0);
        for (at, axis) in tile.axes.iter().enumerate() {
            let extent = self.facts.most_extent(*axis)?;
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

    /// The terms under which an element of a tile is one in the open loops: what is behind the last part of a split is outside.
    /// Whose loops run over something of which the tile's axes are made may read beyond that where rows of a constant length follow each
    /// other, so that elements of others are there, which nobody uses; who writes must not.
    pub(super) fn tile_terms(&mut self, tv: TvId, writes: bool) -> Result<Vec<ExprId>> {
        let Some(tile) = self.scheduled.tensors[tv].tile.clone() else { return Ok(Vec::new()) };
        let mut terms = Vec::new();
        for axis in tile.axes {
            if self.is_open(axis) {
                self.test_parts(axis, &mut terms)?;
            } else {
                self.test_last_parts(axis, writes, &mut terms)?;
            }
        }
        Ok(terms)
    }

    /// Tests of the parts that loops make of an axis, where these may be behind the last one.
    fn test_parts(&mut self, axis: AxisId, terms: &mut Vec<ExprId>) -> Result<()> {
        if let Some(Xform::Split { outer, inner, exact: true, .. }) = self.way(axis) {
            self.test_parts(inner, terms)?;
            return self.test_parts(outer, terms);
        }
        let found = self.resolve(axis, terms)?;
        self.test_inside(axis, found, terms)
    }

    /// Tests of what is merged inside of an axis, or of one of which it has windows, where that may be behind its last part: of all,
    /// or of rows of which windows have so many, of no constant size.
    fn test_last_parts(&mut self, axis: AxisId, all: bool, terms: &mut Vec<ExprId>) -> Result<()> {
        let mut open = vec![(axis, None)];
        while let Some((axis, row)) = open.pop() {
            let made: Vec<Xform> = self.scheduled.axes.defs(axis).copied().collect();
            for xform in made {
                match xform {
                    Xform::Window { input, step, .. } => open.push((input, step.of)),
                    Xform::Merge { outer, inner, .. } => {
                        if row == Some(inner) {
                            let found = self.resolve(inner, terms)?;
                            self.test_inside(inner, found, terms)?;
                        } else if all {
                            self.test_last_part(inner, terms)?;
                        }
                        open.push((outer, None));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The test of an axis, or of its only part.
    fn test_last_part(&mut self, mut axis: AxisId, terms: &mut Vec<ExprId>) -> Result<()> {
        loop {
            if let Some(part) = self.last_part(axis)? {
                self.add_term(part.inside, terms);
            }
            match self.way(axis) {
                Some(Xform::Split { outer, inner, exact: true, .. })
                    if self.scheduled.axes.constant_extent(outer) == Some(1) =>
                {
                    axis = inner;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The same for a copy into a tile or from one.
    pub(super) fn copy_terms(&mut self, tv: TvId) -> Result<Vec<ExprId>> {
        let mut terms = self.tile_terms(tv, true)?;
        for from in self.scheduled.producers(tv) {
            let read = self.tile_terms(from, false)?;
            read.into_iter().for_each(|term| self.add_term(term, &mut terms));
        }
        Ok(terms)
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
            Columns::Skewed { by, every } => {
                let (every, by) = (self.b.int(every), self.b.int(by));
                let group = self.b.exprs().div(row, every);
                let moved = self.b.exprs().mul(group, by);
                self.b.exprs().add(index, moved)
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
        let [mut first, mut last] = [Vec::new(), Vec::new()];
        for (lane, terms) in [(0, &mut first), (lanes - 1, &mut last)] {
            let lane = self.b.int(lane);
            self.with_leaf(own.axis, lane, |lowering| {
                *terms = lowering.tile_terms(tiled, writes)?;
                Ok(())
            })?;
        }
        // Lanes of which some are outside are moved one by one.
        if first != last {
            return Ok(false);
        }
        self.with_leaf(own.axis, zero, |lowering| {
            let inside = lowering.conjunction(&first);
            let tile = lowering.local_array(tiled)?;
            let (array, start) = (lowering.local_array(local)?, lowering.array_index(local)?);
            lowering.emit_either(
                (Some(tv), "tile"),
                inside,
                |lowering| {
                    lowering.origin(tv, "tile");
                    for (first, place) in (0..lanes).step_by(chunk as usize).zip(places) {
                        let first = lowering.b.int(first);
                        let at = lowering.b.exprs().add(start, first);
                        let (to, from) =
                            if writes { ((tile, place), (array, at)) } else { ((array, at), (tile, place)) };
                        lowering.b.mov(to, from, chunk as u32, CacheHint::Default);
                    }
                    Ok(())
                },
                |lowering| if writes { Ok(()) } else { lowering.emit_outside(tv, lanes_of(own.axis)) },
            )
        })?;
        Ok(true)
    }

    /// What registers hold outside of a tile, in all lanes of a loop.
    fn emit_outside(&mut self, tv: TvId, own: Loop) -> Result<()> {
        let value = self.outside_value(tv);
        self.emit_loop(own, |lowering| {
            lowering.origin(tv, "tile");
            let (array, index) = (lowering.local_array(tv)?, lowering.array_index(tv)?);
            lowering.b.store(array, index, value);
            Ok(())
        })
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
