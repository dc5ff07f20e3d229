//! Reductions across the threads of a block, for a batch of `n` values a thread.
//!
//! Along `threadIdx.x`: a butterfly of warp shuffles leaves each warp's result
//! in all its lanes. With several warps a row, lane 0 of each writes it to
//! shared memory, and after a barrier every thread combines the row's partial
//! results in the same order. So all threads end with the same bits.
//!
//! Along `threadIdx.y`: values are written to shared memory and combined by
//! halving, with a barrier per step; then all threads of a column read row 0.
//!
//! All threads take part: those outside the tensor hold the neutral element.
//! Shared memory comes from `exchange`, and may be written to at once.

use super::context::{Lowering, identifier};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{BufId, Dim, ExprId, Scope, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType};
use crate::schedule::{AxisId, ParallelType, TvId, TvOp, TvOperand};

/// Lanes of a warp.
const WARP: i64 = 32;

/// The thread and block axes that a reduction combines over.
#[derive(Clone, Debug, Default)]
pub(super) struct CrossThread {
    pub(super) threads: Vec<ParallelType>,
    pub(super) block_axes: Vec<AxisId>,
    pub(super) blocks: bool,
}

impl CrossThread {
    pub(super) fn any(&self) -> bool {
        !self.threads.is_empty() || self.blocks
    }
}

/// The batch of values that each thread contributes, and gets back.
pub(super) struct Batch {
    /// Array with one element for each value.
    pub(super) array: BufId,
    /// Number of values.
    pub(super) len: i64,
    /// How to combine two.
    pub(super) combine: BinaryOp,
    pub(super) dtype: DType,
    pub(super) name: String,
}

impl Lowering<'_> {
    /// The thread and block axes over which a tensor reduces.
    pub(super) fn cross_thread(&self, tv: TvId) -> CrossThread {
        let mut found = CrossThread::default();
        for leaf in self.scheduled.reduced_leaves(tv) {
            let Some(parallel) = self.scheduled.parallel_of(tv, leaf) else { continue };
            if parallel.is_thread() {
                found.threads.push(parallel);
            } else if parallel.is_block() {
                found.block_axes.push(leaf);
                found.blocks = true;
            }
        }
        found
    }

    /// Emits a reduction over thread axes; the result is in every thread.
    pub(super) fn emit_block_reduction(&mut self, tv: TvId) -> Result<()> {
        let batch = self.batch_of(tv)?;
        let threads = self.cross_thread(tv).threads;
        self.origin(tv, "block_reduce");
        self.reduce_in_block(&batch, &threads)?;
        self.publish(tv, &batch)
    }

    /// Copies a reduction's operands into the batch that will hold its result.
    pub(super) fn batch_of(&mut self, tv: TvId) -> Result<Batch> {
        let data = &self.scheduled.tensors[tv];
        let loops = self.array_loops(tv);
        let Some(TvOp { inputs, .. }) = &data.op else { return Err(Diagnostic::bug("a reduction has an operation")) };
        let [TvOperand::Tv(from)] = *inputs.as_slice() else {
            return Err(Diagnostic::bug("a reduction has one tensor operand"));
        };
        let name = identifier(&data.name);
        let dtype = data.dtype;
        let mut len = 1;
        for own in &loops {
            len *= self.constant_extent(own.axis)?;
        }
        let array = self.local_array(tv)?;
        let combine = self.reduce_op(tv)?.combine();
        // Values that were not reduced within the thread may lie outside.
        let guard = self.scheduled.tensors[from].partial.is_empty();
        let identity = self.identity(tv)?;
        self.emit_array_nest(&loops, &mut |lowering| {
            let value = lowering.read(from)?;
            lowering.origin(tv, "block_reduce");
            let terms = if guard { lowering.access_terms(from)? } else { Vec::new() };
            let inside = lowering.conjunction(&terms);
            let value = lowering.b.exprs().ternary(crate::num::TernaryOp::Where, inside, value, identity);
            let index = lowering.array_index(tv)?;
            lowering.b.store(array, index, value);
            Ok(())
        })?;
        Ok(Batch { array, len, combine, dtype, name })
    }

    /// Names the result of a batch of one value.
    pub(super) fn publish(&mut self, tv: TvId, batch: &Batch) -> Result<()> {
        if self.is_single(tv) {
            let zero = self.b.int(0);
            let value = self.b.load(batch.name.clone(), batch.array, zero);
            self.note_bounds(tv, value);
            self.values.set(tv, Some(value));
        }
        Ok(())
    }

    /// Combines a batch over thread axes, in place.
    pub(super) fn reduce_in_block(&mut self, batch: &Batch, threads: &[ParallelType]) -> Result<()> {
        let mut along = threads.to_vec();
        along.sort();
        match along.as_slice() {
            [] => Ok(()),
            [ParallelType::Tidx] => self.reduce_along_x(batch),
            [ParallelType::Tidy] => self.reduce_along_y(batch),
            _ => Err(Diagnostic::unsupported(
                code::SCHEDULE_VERB,
                format!("reduction of {} over {} thread axes at once", batch.name, along.len()),
            )
            .note("merge the axes, or reduce over one after the other")),
        }
    }

    /// The constant size of a thread axis; 1 where nothing is bound to it.
    pub(super) fn block_dim(&self, parallel: ParallelType) -> Result<i64> {
        self.places.get(&parallel).map_or(Ok(1), |axis| self.constant_extent(*axis))
    }

    fn thread_index(&mut self, dim: Dim) -> ExprId {
        self.b.exprs().thread_idx(dim)
    }

    fn i32(&mut self, value: i64) -> ExprId {
        self.b.exprs().int(value, DType::I32)
    }

    /// `for k in 0..len`: the batch's elements, unrolled.
    fn each(&mut self, batch: &Batch, body: impl Fn(&mut Self, ExprId)) {
        if batch.len == 1 {
            let zero = self.b.int(0);
            return body(self, zero);
        }
        let dtype = self.b.index_type();
        let (var, counter) = self.b.counter("k", dtype);
        self.b.open();
        body(self, counter);
        let block = self.b.close();
        let (start, end) = (self.b.int(0), self.b.int(batch.len));
        self.b.emit(crate::kernel::StmtKind::For { var, start, end, step: 1, unroll: Unroll::Full, body: block });
    }

    fn combine_into(&mut self, batch: &Batch, index: ExprId, value: ExprId) {
        let before = self.b.load(batch.name.clone(), batch.array, index);
        let after = self.b.exprs().binary(batch.combine, before, value);
        self.b.store(batch.array, index, after);
    }

    /// Butterfly over `width` neighbouring lanes: after the step with mask `m`
    /// each lane holds the combination of a group of `2 m` lanes.
    fn butterfly(&mut self, batch: &Batch, width: i64) {
        let mut mask = width / 2;
        while mask >= 1 {
            let lane = self.i32(mask);
            self.each(batch, |lowering, index| {
                let own = lowering.b.load(batch.name.clone(), batch.array, index);
                let other = lowering.b.shuffle(format!("{}_x", batch.name), own, ShuffleMode::Xor, lane);
                let sum = lowering.b.exprs().binary(batch.combine, own, other);
                lowering.b.store(batch.array, index, sum);
            });
            mask /= 2;
        }
    }

    fn reduce_along_x(&mut self, batch: &Batch) -> Result<()> {
        let width = self.block_dim(ParallelType::Tidx)?;
        if width < WARP {
            if width & (width - 1) != 0 {
                return Err(Diagnostic::bug(format!("{width} threads in x are neither warps nor a power of two")));
            }
            self.butterfly(batch, width);
            return Ok(());
        }
        if width % WARP != 0 {
            return Err(Diagnostic::bug(format!("{width} threads in x are not whole warps")));
        }
        self.butterfly(batch, WARP);
        if width > WARP { self.combine_warps(batch, width / WARP) } else { Ok(()) }
    }

    /// Combines the results of the `warps` warps of a row through shared memory.
    /// Element `(row * warps + warp) * n + k`.
    fn combine_warps(&mut self, batch: &Batch, warps: i64) -> Result<()> {
        let rows = self.block_dim(ParallelType::Tidy)? * self.block_dim(ParallelType::Tidz)?;
        let (shared, base) =
            self.exchange_memory(format!("{}_warps", batch.name), batch.dtype, rows * warps * batch.len);
        let row = self.row_in_block()?;
        let x = self.thread_index(Dim::X);
        let (warp_size, warps_expr) = (self.i32(WARP), self.i32(warps));
        let warp = self.b.exprs().div(x, warp_size);
        let lane = self.b.exprs().rem(x, warp_size);
        let row_base = self.b.exprs().mul(row, warps_expr);
        let slot = self.b.exprs().add(row_base, warp);
        let zero = self.i32(0);
        let first_lane = self.b.exprs().binary(BinaryOp::Eq, lane, zero);
        self.b.open();
        self.each(batch, |lowering, index| {
            let value = lowering.b.load(batch.name.clone(), batch.array, index);
            let element = lowering.batch_element(slot, batch.len, index);
            let element = lowering.b.exprs().add(base, element);
            lowering.b.store(shared, element, value);
        });
        let then = self.b.close();
        self.b.emit(crate::kernel::StmtKind::If { condition: first_lane, then, otherwise: Vec::new() });
        self.b.sync(Scope::Block);
        // In the order of the warps, so that every thread gets the same bits.
        self.each(batch, |lowering, index| {
            let element = lowering.batch_element(row_base, batch.len, index);
            let element = lowering.b.exprs().add(base, element);
            let value = lowering.b.load(batch.name.clone(), shared, element);
            lowering.b.store(batch.array, index, value);
        });
        for other in 1..warps {
            let other = self.i32(other);
            let slot = self.b.exprs().add(row_base, other);
            self.each(batch, |lowering, index| {
                let element = lowering.batch_element(slot, batch.len, index);
                let element = lowering.b.exprs().add(base, element);
                let value = lowering.b.load(format!("{}_w", batch.name), shared, element);
                lowering.combine_into(batch, index, value);
            });
        }
        Ok(())
    }

    /// `slot * n + k`, of type `i32`.
    fn batch_element(&mut self, slot: ExprId, len: i64, index: ExprId) -> ExprId {
        let len = self.i32(len);
        let index = self.b.exprs().cast(index, DType::I32);
        let scaled = self.b.exprs().mul(slot, len);
        self.b.exprs().add(scaled, index)
    }

    /// `threadIdx.y + blockDim.y * threadIdx.z`.
    fn row_in_block(&mut self) -> Result<ExprId> {
        let rows = self.block_dim(ParallelType::Tidy)?;
        let mut row = self.i32(0);
        if self.block_dim(ParallelType::Tidz)? > 1 {
            let z = self.thread_index(Dim::Z);
            let rows = self.i32(rows);
            row = self.b.exprs().mul(z, rows);
        }
        if rows > 1 {
            let y = self.thread_index(Dim::Y);
            row = self.b.exprs().add(row, y);
        }
        Ok(row)
    }

    /// Halving over `threadIdx.y`. Element `(y * n + k) * width + x`: neighbours
    /// in x are neighbours in memory, so banks do not conflict.
    fn reduce_along_y(&mut self, batch: &Batch) -> Result<()> {
        let width = self.block_dim(ParallelType::Tidx)?;
        let height = self.block_dim(ParallelType::Tidy)?;
        if height == 1 {
            return Ok(());
        }
        if height & (height - 1) != 0 || self.block_dim(ParallelType::Tidz)? != 1 {
            return Err(Diagnostic::bug(format!("{height} threads in y are not a power of two, or z is in use")));
        }
        let (shared, base) =
            self.exchange_memory(format!("{}_rows", batch.name), batch.dtype, width * height * batch.len);
        let (x, y) = (self.thread_index(Dim::X), self.thread_index(Dim::Y));
        self.each(batch, |lowering, index| {
            let value = lowering.b.load(batch.name.clone(), batch.array, index);
            let element = lowering.column_element(base, y, x, batch.len, width, index);
            lowering.b.store(shared, element, value);
        });
        let mut half = height / 2;
        while half >= 1 {
            self.b.sync(Scope::Block);
            let half_expr = self.i32(half);
            let active = self.b.exprs().lt(y, half_expr);
            let partner = self.b.exprs().add(y, half_expr);
            self.b.open();
            self.each(batch, |lowering, index| {
                let from = lowering.column_element(base, partner, x, batch.len, width, index);
                let value = lowering.b.load(format!("{}_y", batch.name), shared, from);
                lowering.combine_into(batch, index, value);
                let to = lowering.column_element(base, y, x, batch.len, width, index);
                let sum = lowering.b.load(batch.name.clone(), batch.array, index);
                lowering.b.store(shared, to, sum);
            });
            let then = self.b.close();
            self.b.emit(crate::kernel::StmtKind::If { condition: active, then, otherwise: Vec::new() });
            half /= 2;
        }
        self.b.sync(Scope::Block);
        let zero = self.i32(0);
        self.each(batch, |lowering, index| {
            let element = lowering.column_element(base, zero, x, batch.len, width, index);
            let value = lowering.b.load(batch.name.clone(), shared, element);
            lowering.b.store(batch.array, index, value);
        });
        Ok(())
    }

    fn column_element(&mut self, base: ExprId, y: ExprId, x: ExprId, len: i64, width: i64, index: ExprId) -> ExprId {
        let row = self.batch_element(y, len, index);
        let width = self.i32(width);
        let scaled = self.b.exprs().mul(row, width);
        let element = self.b.exprs().add(scaled, x);
        self.b.exprs().add(base, element)
    }
}
