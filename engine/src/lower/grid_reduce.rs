//! Reductions across blocks.
//!
//! Each block combines its threads' values and writes its partial result to
//! scratch memory. Where only the result is needed, it counts itself then, and the
//! block that counts last sees all partial results and combines them; what depends
//! on the result runs there. Counters wrap to zero, so the scratch memory is clean
//! for the next launch. Where all blocks need the result, they meet at a barrier, and
//! each combines all partial results. The order of combination does not depend on the
//! block, so the result is the same in every run, and in every block.
//!
//! Layout of the scratch memory: for the blocks `r` of the reduced axis, blocks
//! `o` of the others, in each turn of the loops around, values `k` of the batch and participants `p` (threads
//! that hold distinct results): element `((r * O + o) * n + k) * P + p`. Where all blocks read, what they
//! read lies together: `((o * R + r) * n + k) * P + p`. No two turns share
//! an element, so a block may begin the next one while others still read.

use super::block_reduce::Batch;
use super::context::Lowering;
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{AtomicOp, BufId, CacheHint, Dim, ExprId, StmtKind, Unroll};
use crate::num::{BinaryOp, DType};
use crate::schedule::{ParallelType, TvId};

/// Registers for values of other blocks that are on their way at once, of all threads that share a result: one after the other,
/// each would wait for the memory behind the first-level cache. Many threads have few turns.
const AHEAD: i64 = 128;
/// Of these the most of one thread: registers that a kernel does not need elsewhere cost it blocks.
const MOST_AHEAD: i64 = 16;
/// The most blocks whose values are on their way at once.
const BLOCKS_AHEAD: i64 = 4;

/// Where blocks and threads stand in a grid reduction.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Index and number of blocks of the reduced axis.
    block: ExprId,
    blocks: ExprId,
    /// Index and number of the other blocks and turns.
    other: ExprId,
    others: ExprId,
    /// Index and number of threads with distinct results.
    participant: ExprId,
    participants: i64,
    /// Index and number of threads that share a result.
    sharer: ExprId,
    sharers: i64,
    /// The same of those that combine the blocks' results.
    combiner: ExprId,
    combiners: i64,
}

impl Lowering<'_> {
    /// Where blocks and threads stand in the reduction of a tensor.
    pub(super) fn grid_place(&mut self, tv: TvId) -> Result<Place> {
        let cross = self.facts.cross_thread(tv);
        let [block_axis] = *cross.block_axes.as_slice() else {
            return Err(Diagnostic::unsupported(code::SCHEDULE_VERB, "reduction over two block axes at once")
                .note("merge the axes before binding them to blocks"));
        };
        let block = self.leaf(block_axis)?;
        let blocks = self.extent(block_axis)?;
        let (mut other, mut others) = (self.b.int(0), self.b.int(1));
        for own in self.scheduled.tensors[tv].loops.clone() {
            let is_turn = own.parallel == ParallelType::Serial;
            if own.axis == block_axis || !own.parallel.is_block() && !is_turn {
                continue;
            }
            let (index, extent) = (self.leaf(own.axis)?, self.extent(own.axis)?);
            let scaled = self.b.exprs().mul(other, extent);
            other = self.b.exprs().add(scaled, index);
            others = self.b.exprs().mul(others, extent);
        }
        let reduced = match *cross.threads.as_slice() {
            [] => None,
            [along] => Some(along),
            _ => return Err(Diagnostic::bug("a grid reduction combines over at most one thread axis")),
        };
        let mut place = Place {
            block,
            blocks,
            other,
            others,
            participant: self.b.int(0),
            participants: 1,
            sharer: self.b.int(0),
            sharers: 1,
            combiner: self.b.int(0),
            combiners: 1,
        };
        for (parallel, dim) in
            [(ParallelType::Tidz, Dim::Z), (ParallelType::Tidy, Dim::Y), (ParallelType::Tidx, Dim::X)]
        {
            let extent = self.facts.block_dim(parallel)?;
            if extent == 1 {
                continue;
            }
            let index = self.b.exprs().thread_idx(dim);
            let index = self.as_index(index);
            if reduced == Some(parallel) {
                (place.sharer, place.sharers) = (index, extent);
            } else {
                let scale = self.b.int(extent);
                let scaled = self.b.exprs().mul(place.participant, scale);
                place.participant = self.b.exprs().add(scaled, index);
                place.participants *= extent;
            }
        }
        (place.combiner, place.combiners) = (place.sharer, place.sharers);
        if self.facts.blocks_wait {
            place.combiners = self.facts.combiners(&cross.threads)?;
            let number = self.b.int(place.combiners);
            place.combiner = self.b.exprs().rem(place.sharer, number);
        }
        Ok(place)
    }

    fn placed(&self) -> Result<Place> {
        self.grid.ok_or_else(|| Diagnostic::bug("a step of a grid reduction stands outside of it"))
    }

    /// Writes this block's values to scratch memory.
    pub(super) fn write_partial(&mut self, tv: TvId, batch: &Batch) -> Result<()> {
        let place = &self.placed()?;
        let per_block = self.b.int(batch.len * place.participants);
        let blocks = self.b.exprs().mul(place.blocks, place.others);
        let len = self.b.exprs().mul(blocks, per_block);
        let scratch = self.b.workspace(format!("{}_partial", batch.name), batch.dtype, len, 16, false);
        self.scratch.set(tv, Some(scratch));
        let zero = self.b.int(0);
        let first = self.b.exprs().binary(BinaryOp::Eq, place.sharer, zero);
        self.b.open();
        for k in 0..batch.len {
            let k = self.b.int(k);
            let element = self.scratch_element(place, batch.len, place.block, k);
            let value = self.b.load(batch.name.clone(), batch.array, k);
            self.b.store_hinted(scratch, element, value, CacheHint::Global);
        }
        let then = self.b.close();
        if self.b.exprs().as_bool(first) == Some(true) {
            then.into_iter().for_each(|stmt| self.b.emit(stmt.kind));
        } else {
            self.b.emit(StmtKind::If { condition: first, then, otherwise: Vec::new() });
        }
        Ok(())
    }

    /// `((r * O + o) * n + k) * P + p`, or with `o * R + r`.
    fn scratch_element(&mut self, place: &Place, len: i64, block: ExprId, k: ExprId) -> ExprId {
        let (slow, number, fast) = match self.facts.blocks_wait {
            true => (place.other, place.blocks, block),
            false => (block, place.others, place.other),
        };
        let scaled = self.b.exprs().mul(slow, number);
        let slot = self.b.exprs().add(scaled, fast);
        let (len, participants) = (self.b.int(len), self.b.int(place.participants));
        let scaled = self.b.exprs().mul(slot, len);
        let value = self.b.exprs().add(scaled, k);
        let scaled = self.b.exprs().mul(value, participants);
        self.b.exprs().add(scaled, place.participant)
    }

    /// Counts this block, and leaves the number before it in shared memory.
    pub(super) fn count_block(&mut self) -> Result<()> {
        let place = self.placed()?;
        let counter = self.b.workspace("blocks_done", DType::I32, place.others, 4, true);
        let flag = self.b.shared("blocks_before", DType::I32, 1, 4);
        self.flag = Some(flag);
        let zero32 = self.b.exprs().int(0, DType::I32);
        let last = self.last_count(&place);
        let mut first_thread = self.b.exprs().bool(true);
        for (parallel, dim) in
            [(ParallelType::Tidx, Dim::X), (ParallelType::Tidy, Dim::Y), (ParallelType::Tidz, Dim::Z)]
        {
            if self.facts.block_dim(parallel)? > 1 {
                let index = self.b.exprs().thread_idx(dim);
                let is_zero = self.b.exprs().binary(BinaryOp::Eq, index, zero32);
                first_thread = self.b.exprs().and(first_thread, is_zero);
            }
        }
        let (zero, other) = (self.b.int(0), place.other);
        self.b.if_(first_thread, |b| {
            let before = b.atomic("before", AtomicOp::Inc, (counter, other), last);
            b.store(flag, zero, before);
        });
        Ok(())
    }

    /// The number of blocks before the last one.
    fn last_count(&mut self, place: &Place) -> ExprId {
        let last = self.b.exprs().cast(place.blocks, DType::I32);
        let one32 = self.b.exprs().int(1, DType::I32);
        let last = self.b.exprs().sub(last, one32);
        self.b.exprs().as_data(last)
    }

    /// Whether this block counted itself last.
    pub(super) fn is_last_block(&mut self) -> Result<ExprId> {
        let place = self.placed()?;
        let flag = self.flag.ok_or_else(|| Diagnostic::bug("no block was counted"))?;
        let zero = self.b.int(0);
        let before = self.b.load("before", flag, zero);
        let last = self.last_count(&place);
        Ok(self.b.exprs().binary(BinaryOp::Eq, before, last))
    }

    /// Threads that share a result take the blocks' partial results in turn,
    /// before they combine among themselves: those of several blocks are read before the first of them is combined. All
    /// take as many turns, so that warps stay together: lanes that left the loop earlier would make the exchange behind
    /// it one of diverged warps.
    pub(super) fn combine_blocks(&mut self, tv: TvId, batch: &Batch) -> Result<()> {
        let place = &self.placed()?;
        let scratch =
            self.scratch[tv].ok_or_else(|| Diagnostic::bug(format!("{} has no scratch memory", batch.name)))?;
        let identity = self.identity(tv)?;
        for k in 0..batch.len {
            let k = self.b.int(k);
            self.b.store(batch.array, k, identity);
        }
        let ahead = self.blocks_ahead(place, batch);
        let held = (ahead > 1).then(|| self.b.local(format!("{}_b", batch.name), batch.dtype, ahead * batch.len));
        let dtype = self.b.index_type();
        let (var, first) = self.b.counter("block", dtype);
        self.b.open();
        match held {
            Some(held) => {
                self.each_block(place, first, ahead, |this, turn, block| {
                    for k in 0..batch.len {
                        let (value, _) = this.partial(place, batch, scratch, block, k);
                        let slot = this.held_value(batch, turn, k);
                        this.b.store(held, slot, value);
                    }
                });
                self.each_block(place, first, ahead, |this, turn, _| {
                    for k in 0..batch.len {
                        let slot = this.held_value(batch, turn, k);
                        let value = this.b.load(format!("{}_b", batch.name), held, slot);
                        let k = this.b.int(k);
                        this.combine_value(batch, k, value);
                    }
                });
            }
            None => self.each_block(place, first, 1, |this, _, block| {
                for k in 0..batch.len {
                    let (value, k) = this.partial(place, batch, scratch, block, k);
                    this.combine_value(batch, k, value);
                }
            }),
        }
        let (body, start) = (self.b.close(), self.b.int(0));
        let step = place.combiners * ahead;
        self.b.emit(StmtKind::For { var, start, end: place.blocks, step, unroll: Unroll::No, body });
        Ok(())
    }

    /// How many blocks' values a thread reads before it combines the first. Blocks that all combine hold their rows in
    /// registers meanwhile, which leaves no room.
    fn blocks_ahead(&self, place: &Place, batch: &Batch) -> i64 {
        if self.facts.blocks_wait {
            return 1;
        }
        let registers = batch.len * (batch.dtype.bits() as i64 / 32).max(1);
        ((AHEAD / place.combiners).min(MOST_AHEAD) / registers).clamp(1, BLOCKS_AHEAD)
    }

    /// For each of the blocks that a thread takes in an iteration, if there is one: its place among them and its index.
    fn each_block(&mut self, place: &Place, first: ExprId, ahead: i64, mut body: impl FnMut(&mut Self, i64, ExprId)) {
        for turn in 0..ahead {
            let before = self.b.int(turn * place.combiners);
            let before = self.b.exprs().add(before, place.combiner);
            let block = self.b.exprs().add(first, before);
            self.b.open();
            body(self, turn, block);
            let then = self.b.close();
            if place.combiners * ahead == 1 {
                then.into_iter().for_each(|stmt| self.b.emit(stmt.kind));
            } else {
                let condition = self.b.exprs().lt(block, place.blocks);
                self.b.emit(StmtKind::If { condition, then, otherwise: Vec::new() });
            }
        }
    }

    /// A value that a block left, and its number.
    fn partial(&mut self, place: &Place, batch: &Batch, scratch: BufId, block: ExprId, k: i64) -> (ExprId, ExprId) {
        let k = self.b.int(k);
        let element = self.scratch_element(place, batch.len, block, k);
        (self.b.load_hinted(format!("{}_b", batch.name), scratch, element, CacheHint::Global), k)
    }

    /// Where a value of one of the blocks of an iteration is held.
    fn held_value(&mut self, batch: &Batch, turn: i64, k: i64) -> ExprId {
        self.b.int(turn * batch.len + k)
    }

    /// Combines a value of another block with the thread's own.
    fn combine_value(&mut self, batch: &Batch, k: ExprId, value: ExprId) {
        let before = self.b.load(batch.name.clone(), batch.array, k);
        let after = batch.combine.apply(&mut self.b, &batch.name, before, value);
        self.b.store(batch.array, k, after);
    }
}
