//! Reductions across the threads of a block, for a batch of `n` values a thread.
//!
//! Along `threadIdx.x`: a butterfly of warp shuffles leaves each warp's result
//! in all its lanes. With several warps a row, lane 0 of each writes it to
//! shared memory, and after a barrier every thread combines the row's partial
//! results in the same order. So all threads end with the same bits; but where lane 0
//! alone stores a batch, only the first warp combines.
//!
//! Along `threadIdx.y`: values are written to shared memory and combined by
//! halving, with a barrier per step; then all threads of a column read row 0. Where a
//! warp has several rows, these are combined first, by shuffles, and one of them writes.
//!
//! All threads take part: those outside the tensor hold the neutral element.
//! `place` says which steps that takes, `alloc` which shared memory, `sync` where barriers stand.

use super::combine::{Combine, pair};
use super::context::{Lowering, identifier};
use super::facts::WARP;
use super::tree::{ExchangeId, LoopTree, Step};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, Dim, ExprId, KernelBuilder, Scope, ShuffleMode, Unroll};
use crate::num::{BinaryOp, DType, UnaryOp};
use crate::schedule::{ParallelType, TvId, TvOp, TvOperand};

/// The batch of values that each thread contributes, and gets back.
pub(super) struct Batch {
    /// Array with one element for each value.
    pub(super) array: BufId,
    /// Number of values.
    pub(super) len: i64,
    /// How to combine two.
    pub(super) combine: Combine,
    pub(super) dtype: DType,
    pub(super) name: String,
}

impl Lowering<'_> {
    /// Emits a step of a reduction across threads or blocks.
    pub(super) fn emit_step(&mut self, tree: &LoopTree, tv: TvId, pass: &'static str, step: Step) -> Result<()> {
        if step == Step::Gather {
            self.gather(tv)?;
            self.origin(tv, pass);
            return Ok(());
        }
        self.origin(tv, pass);
        let batch = self.batch_of(tv)?;
        match step {
            Step::Gather => {}
            Step::Shuffle { width } => self.butterfly(&batch, 1, width),
            Step::ShuffleRows { width, rows } => self.butterfly(&batch, width, rows),
            Step::WriteWarps { exchange, warps } => {
                let memory = self.exchange_memory(tree, exchange)?;
                self.write_warps(&batch, warps, memory)?;
            }
            Step::ReadWarps { exchange, warps } => {
                let memory = self.exchange_memory(tree, exchange)?;
                match self.facts.is_for_first_lane(tv)? {
                    true => self.read_by_first_warps(&batch, warps, memory)?,
                    false => self.read_warps(&batch, warps, memory)?,
                }
            }
            Step::WriteRows { exchange, of } => {
                let memory = self.exchange_memory(tree, exchange)?;
                self.write_rows(&batch, of, memory)?;
            }
            Step::HalveRows { exchange, of, half } => {
                let memory = self.exchange_memory(tree, exchange)?;
                self.halve_rows(&batch, (of, half), memory)?;
            }
            Step::ReadRows { exchange } => {
                let memory = self.exchange_memory(tree, exchange)?;
                self.read_rows(&batch, memory)?;
            }
            Step::Publish => self.publish(tv, &batch),
            Step::WritePartial => self.write_partial(tv, &batch)?,
            Step::Release | Step::Acquire => self.b.fence(Scope::Grid),
            Step::CountBlock => self.count_block()?,
            Step::CombineBlocks => self.combine_blocks(tv, &batch)?,
        }
        Ok(())
    }

    /// The buffer of an exchange, and the index of its first element: of two copies, every
    /// second iteration has the same.
    fn exchange_memory(&mut self, tree: &LoopTree, exchange: ExchangeId) -> Result<(BufId, ExprId)> {
        let exchange = &tree.exchanges[exchange];
        let unknown = || Diagnostic::bug(format!("{} has no memory", exchange.name));
        let place = exchange.place.ok_or_else(unknown)?;
        let Some(axis) = place.turns else {
            let zero = self.i32(0);
            return Ok((self.shared_array(place.shared), zero));
        };
        let buffer = self.shared_array(place.shared);
        let counter = self.leaf(axis)?;
        let counter = self.b.exprs().cast(counter, DType::I32);
        let two = self.i32(2);
        let len = self.i32(exchange.len);
        let copy = self.b.exprs().rem(counter, two);
        Ok((buffer, self.b.exprs().mul(copy, len)))
    }

    fn batch_of(&mut self, tv: TvId) -> Result<Batch> {
        let data = &self.scheduled.tensors[tv];
        let (name, dtype) = (identifier(&data.name), data.dtype);
        let (combine, len) = (self.facts.combine_of(tv)?, self.facts.batch_len(tv)?);
        Ok(Batch { array: self.local_array(tv)?, len, combine, dtype, name })
    }

    /// Copies a reduction's operands into the batch that will hold its result.
    fn gather(&mut self, tv: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let loops = self.facts.array_loops(tv);
        let Some(TvOp { inputs, .. }) = &data.op else { return Err(Diagnostic::bug("a reduction has an operation")) };
        let [TvOperand::Tv(from)] = *inputs.as_slice() else {
            return Err(Diagnostic::bug("a reduction has one tensor operand"));
        };
        let array = self.local_array(tv)?;
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
        })
    }

    /// Names the result of a batch of one value.
    fn publish(&mut self, tv: TvId, batch: &Batch) {
        if self.facts.is_single(tv) {
            let zero = self.b.int(0);
            let value = self.b.load(batch.name.clone(), batch.array, zero);
            self.note_bounds(tv, value);
            self.values.set(tv, Some(value));
        }
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
        let after = batch.combine.apply(&mut self.b, &batch.name, before, value);
        self.b.store(batch.array, index, after);
    }

    /// Butterfly over `number` lanes that lie `apart`: after the step with mask `m * apart`
    /// each lane holds the combination of a group of `2 m` lanes.
    fn butterfly(&mut self, batch: &Batch, apart: i64, number: i64) {
        let masks = || std::iter::successors(Some(number / 2), |mask| Some(mask / 2)).take_while(|mask| *mask >= 1);
        if batch.combine.is_of_pairs() {
            return self.each(batch, |lowering, index| lowering.butterfly_of_pairs(batch, index, masks(), apart));
        }
        for mask in masks() {
            let lane = self.i32(mask * apart);
            self.each(batch, |lowering, index| {
                let own = lowering.b.load(batch.name.clone(), batch.array, index);
                let other = lowering.b.shuffle(format!("{}_x", batch.name), own, ShuffleMode::Xor, lane);
                let sum = batch.combine.apply(&mut lowering.b, &batch.name, own, other);
                lowering.b.store(batch.array, index, sum);
            });
        }
    }

    /// The same of pairs: the maximum of all lanes first, then the sum of what each has below it.
    fn butterfly_of_pairs(
        &mut self,
        batch: &Batch,
        index: ExprId,
        masks: impl Iterator<Item = i64> + Clone,
        apart: i64,
    ) {
        let b = &mut self.b;
        let own = b.load(batch.name.clone(), batch.array, index);
        let swap = |b: &mut KernelBuilder, mask: i64, value: ExprId, op: BinaryOp| {
            let lane = b.exprs().int(mask * apart, DType::I32);
            let other = b.shuffle(format!("{}_x", batch.name), value, ShuffleMode::Xor, lane);
            let both = b.exprs().binary(op, value, other);
            b.let_(batch.name.clone(), both)
        };
        let mut max = b.exprs().unary(UnaryOp::Real, own);
        for mask in masks.clone() {
            max = swap(b, mask, max, BinaryOp::Maximum);
        }
        let mut sum = batch.combine.sum_below(b, &batch.name, own, max);
        for mask in masks {
            sum = swap(b, mask, sum, BinaryOp::Add);
        }
        let pair = pair(b, &batch.name, max, sum);
        b.store(batch.array, index, pair);
    }

    /// Lane 0 of each warp writes its values: element `(row * warps + warp) * n + k`.
    fn write_warps(&mut self, batch: &Batch, warps: i64, (shared, base): (BufId, ExprId)) -> Result<()> {
        let row = self.row_in_block()?;
        let x = self.thread_index(Dim::X);
        let (warp_size, warps) = (self.i32(WARP), self.i32(warps));
        let warp = self.b.exprs().div(x, warp_size);
        let lane = self.b.exprs().rem(x, warp_size);
        let row_base = self.b.exprs().mul(row, warps);
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
        Ok(())
    }

    /// Combines the results of the warps of a row in the order of the warps, so that every
    /// thread gets the same bits.
    fn read_warps(&mut self, batch: &Batch, warps: i64, (shared, base): (BufId, ExprId)) -> Result<()> {
        let row = self.row_in_block()?;
        let stride = self.i32(warps);
        let row_base = self.b.exprs().mul(row, stride);
        if batch.combine.is_of_pairs() {
            self.each(batch, |lowering, index| {
                lowering.read_warps_of_pairs(batch, index, warps, (shared, base, row_base))
            });
            return Ok(());
        }
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

    /// The same where lane 0 of a row alone has use for the results: other warps than its own read nothing.
    fn read_by_first_warps(&mut self, batch: &Batch, warps: i64, memory: (BufId, ExprId)) -> Result<()> {
        let x = self.thread_index(Dim::X);
        let warp_size = self.i32(WARP);
        let condition = self.b.exprs().lt(x, warp_size);
        self.b.open();
        self.read_warps(batch, warps, memory)?;
        let then = self.b.close();
        self.b.emit(crate::kernel::StmtKind::If { condition, then, otherwise: Vec::new() });
        Ok(())
    }

    /// The same of pairs: the maximum of all warps first, then the sum of what each has below it.
    fn read_warps_of_pairs(
        &mut self,
        batch: &Batch,
        index: ExprId,
        warps: i64,
        (shared, base, row_base): (BufId, ExprId, ExprId),
    ) {
        let pairs: Vec<ExprId> = (0..warps)
            .map(|warp| {
                let warp = self.i32(warp);
                let slot = self.b.exprs().add(row_base, warp);
                let element = self.batch_element(slot, batch.len, index);
                let element = self.b.exprs().add(base, element);
                self.b.load(format!("{}_w", batch.name), shared, element)
            })
            .collect();
        let b = &mut self.b;
        let maxima = pairs.iter().map(|pair| b.exprs().unary(UnaryOp::Real, *pair)).collect::<Vec<_>>();
        let Some(max) = maxima.into_iter().reduce(|a, c| b.exprs().binary(BinaryOp::Maximum, a, c)) else { return };
        let max = b.let_(batch.name.clone(), max);
        let sums = pairs.iter().map(|pair| batch.combine.sum_below(b, &batch.name, *pair, max)).collect::<Vec<_>>();
        let Some(sum) = sums.into_iter().reduce(|a, c| b.exprs().add(a, c)) else { return };
        let pair = pair(b, &batch.name, max, sum);
        b.store(batch.array, index, pair);
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
        let rows = self.facts.block_dim(ParallelType::Tidy)?;
        let mut row = self.i32(0);
        if self.facts.block_dim(ParallelType::Tidz)? > 1 {
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

    /// Every thread of the first of each `of` rows writes its values: element `(y / of * n + k) * width + x`, so
    /// neighbours in x are neighbours in memory, and banks do not conflict.
    fn write_rows(&mut self, batch: &Batch, of: i64, (shared, base): (BufId, ExprId)) -> Result<()> {
        let width = self.facts.block_dim(ParallelType::Tidx)?;
        let x = self.thread_index(Dim::X);
        let (y, is_first) = self.row_of(of);
        self.b.open();
        self.each(batch, |lowering, index| {
            let value = lowering.b.load(batch.name.clone(), batch.array, index);
            let element = lowering.column_element(base, y, x, batch.len, width, index);
            lowering.b.store(shared, element, value);
        });
        let then = self.b.close();
        match is_first {
            Some(condition) => {
                self.b.emit(crate::kernel::StmtKind::If { condition, then, otherwise: Vec::new() });
            }
            None => then.into_iter().for_each(|stmt| self.b.emit(stmt.kind)),
        }
        Ok(())
    }

    /// The number of a thread's row among each first of so many, and whether its own is such, if some are not.
    fn row_of(&mut self, of: i64) -> (ExprId, Option<ExprId>) {
        let y = self.thread_index(Dim::Y);
        if of == 1 {
            return (y, None);
        }
        let (of, zero) = (self.i32(of), self.i32(0));
        let (row, rest) = (self.b.exprs().div(y, of), self.b.exprs().rem(y, of));
        (row, Some(self.b.exprs().binary(BinaryOp::Eq, rest, zero)))
    }

    /// Of the first of each `of` rows the first `half` combine theirs with those of `half` further on.
    fn halve_rows(&mut self, batch: &Batch, (of, half): (i64, i64), (shared, base): (BufId, ExprId)) -> Result<()> {
        let width = self.facts.block_dim(ParallelType::Tidx)?;
        let x = self.thread_index(Dim::X);
        let (y, is_first) = self.row_of(of);
        let half = self.i32(half);
        let mut active = self.b.exprs().lt(y, half);
        if let Some(is_first) = is_first {
            active = self.b.exprs().and(active, is_first);
        }
        let partner = self.b.exprs().add(y, half);
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
        Ok(())
    }

    /// All threads of a column read row 0.
    fn read_rows(&mut self, batch: &Batch, (shared, base): (BufId, ExprId)) -> Result<()> {
        let width = self.facts.block_dim(ParallelType::Tidx)?;
        let (x, zero) = (self.thread_index(Dim::X), self.i32(0));
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
