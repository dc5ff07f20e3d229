//! The loop nest: which tensors share which loops, and in what order.
//!
//! At each depth the tensors fall into *units*: a tensor whose loops are all
//! open is a unit of its own; the others share the next loop with the
//! consumers into which they are inlined (union-find). Units are emitted in
//! dependency order. A reduction is initialised before the unit that
//! accumulates it. Thread and block axes open no loop: they bind an index.

use super::context::Lowering;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{Dim, Expr};
use crate::kernel::{ExprId, Special, Unroll};
use crate::num::DType;
use crate::schedule::{AxisId, Extent, Loop, Memory, ParallelType, TvId};
use crate::util::DisjointSets;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

impl Lowering<'_> {
    /// Emits the given tensors, whose first `depth` loops are open.
    pub(super) fn emit_level(&mut self, tvs: &[TvId], depth: usize) -> Result<()> {
        let units = self.units(tvs, depth)?;
        let grid: Vec<usize> = (0..units.len()).filter(|unit| self.is_grid_unit(&units[*unit], depth)).collect();
        if grid.is_empty() {
            for unit in &units {
                self.emit_unit(unit, depth)?;
            }
            return Ok(());
        }
        self.emit_around_grid(&units, &grid, depth)
    }

    /// Units that need no grid reduction first, then all grid reductions
    /// together, then the rest in the last block only.
    fn emit_around_grid(&mut self, units: &[Vec<TvId>], grid: &[usize], depth: usize) -> Result<()> {
        let mut in_grid = vec![false; units.len()];
        grid.iter().for_each(|unit| in_grid[*unit] = true);
        let unit_of = units_of_tensors(units);
        let mut after = vec![false; units.len()];
        for unit in 0..units.len() {
            let is_late = |other: &usize| *other < unit && (after[*other] || in_grid[*other]);
            let reads_late = units[unit]
                .iter()
                .any(|tv| self.scheduled.producers(*tv).iter().filter_map(|from| unit_of.get(from)).any(is_late));
            if reads_late && in_grid[unit] {
                return Err(Diagnostic::bug("a grid reduction depends on another one of the same kernel"));
            }
            after[unit] = reads_late;
        }
        for (unit, tvs) in units.iter().enumerate() {
            if !after[unit] && !in_grid[unit] {
                self.emit_unit(tvs, depth)?;
            }
        }
        let reductions: Vec<TvId> = grid.iter().map(|unit| units[*unit][0]).collect();
        self.emit_grid_reductions(&reductions, |lowering| {
            for (unit, tvs) in units.iter().enumerate() {
                if after[unit] {
                    lowering.emit_unit(tvs, depth)?;
                }
            }
            Ok(())
        })
    }

    fn is_grid_unit(&self, unit: &[TvId], depth: usize) -> bool {
        unit.iter().any(|tv| self.cross_thread(*tv).blocks && self.is_batched_reduction(*tv, depth))
    }

    /// Whether a cross-thread reduction is emitted at this depth, with all its
    /// remaining loops (over the values of each thread) taken as one batch.
    fn is_batched_reduction(&self, tv: TvId, depth: usize) -> bool {
        let loops = &self.scheduled.tensors[tv].loops;
        let values = |own: &Loop| matches!(own.parallel, ParallelType::Unroll | ParallelType::Vectorize);
        self.cross_thread(tv).any() && loops[depth..].iter().all(values)
    }

    fn units(&self, tvs: &[TvId], depth: usize) -> Result<Vec<Vec<TvId>>> {
        let mut sets = DisjointSets::new(tvs.len());
        let position: BTreeMap<TvId, usize> = tvs.iter().enumerate().map(|(i, tv)| (*tv, i)).collect();
        for (index, tv) in tvs.iter().enumerate() {
            if self.scheduled.tensors[*tv].inline_at <= depth {
                continue;
            }
            for consumer in &self.consumers[*tv] {
                let Some(other) = position.get(consumer) else {
                    return Err(Diagnostic::bug(format!(
                        "{} is inlined into {}, which is not in the same loops",
                        self.scheduled.tensors[*tv].name, self.scheduled.tensors[*consumer].name
                    )));
                };
                sets.union(index, *other);
            }
        }
        let mut members: BTreeMap<usize, Vec<TvId>> = BTreeMap::new();
        for (index, tv) in tvs.iter().enumerate() {
            members.entry(sets.find(index)).or_default().push(*tv);
        }
        self.sort_units(members.into_values().collect())
    }

    /// Definitions before uses; ties by the least tensor.
    fn sort_units(&self, units: Vec<Vec<TvId>>) -> Result<Vec<Vec<TvId>>> {
        let unit_of = units_of_tensors(&units);
        let needs: Vec<Vec<usize>> = units
            .iter()
            .enumerate()
            .map(|(i, unit)| {
                let mut needs: Vec<usize> = unit
                    .iter()
                    .flat_map(|tv| self.scheduled.producers(*tv))
                    .filter_map(|producer| unit_of.get(&producer).copied())
                    .filter(|other| *other != i)
                    .collect();
                needs.sort_unstable();
                needs.dedup();
                needs
            })
            .collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
        for (unit, needs) in needs.iter().enumerate() {
            needs.iter().for_each(|need| users[*need].push(unit));
        }
        let mut waiting: Vec<usize> = needs.iter().map(Vec::len).collect();
        let ready = (0..units.len()).filter(|unit| waiting[*unit] == 0);
        let mut ready: BinaryHeap<Reverse<usize>> = ready.map(Reverse).collect();
        let mut order = Vec::with_capacity(units.len());
        while let Some(Reverse(unit)) = ready.pop() {
            order.push(unit);
            for user in &users[unit] {
                waiting[*user] -= 1;
                if waiting[*user] == 0 {
                    ready.push(Reverse(*user));
                }
            }
        }
        if order.len() < units.len() {
            return Err(Diagnostic::bug("loops of the schedule depend on each other in a circle"));
        }
        let mut units = units;
        Ok(order.into_iter().map(|unit| std::mem::take(&mut units[unit])).collect())
    }

    fn emit_unit(&mut self, unit: &[TvId], depth: usize) -> Result<()> {
        self.settle_tiles(unit)?;
        self.emit_unit_once(unit, depth)?;
        // After all accesses of a load were issued, what they read outside is replaced.
        match *unit {
            [tv] if self.ahead.is_none() && self.scheduled.tensors[tv].inline_at == depth => self.fix_up(tv, depth),
            _ => Ok(()),
        }
    }

    /// Emits a load's loops again, to replace what it read outside, if needed.
    pub(super) fn fix_up(&mut self, tv: TvId, depth: usize) -> Result<()> {
        if !self.to_fix.remove(&tv) {
            return Ok(());
        }
        self.fixing = Some(tv);
        let result = self.emit_unit_once(&[tv], depth);
        self.fixing = None;
        result
    }

    pub(super) fn emit_unit_once(&mut self, unit: &[TvId], depth: usize) -> Result<()> {
        let loops_of = |tv: TvId| &self.scheduled.tensors[tv].loops;
        if let [tv] = *unit {
            if self.is_batched_reduction(tv, depth) {
                return self.emit_block_reduction(tv);
            }
            if loops_of(tv).len() == depth {
                return self.emit_value(tv);
            }
        }
        let own = loops_of(unit[0])[depth];
        let leaf = own.axis;
        if let Some(stray) = unit.iter().find(|tv| loops_of(**tv).get(depth) != Some(&own)) {
            return Err(Diagnostic::bug(format!(
                "{} and {} share a loop at depth {depth} but iterate over different axes",
                self.scheduled.tensors[unit[0]].name, self.scheduled.tensors[*stray].name
            )));
        }
        for tv in unit {
            if self.accumulates(*tv) && self.scheduled.tensors[*tv].inline_at == depth {
                self.emit_identity(*tv)?;
            }
        }
        let parallel = own.parallel;
        if !parallel.is_loop() {
            let single = self.scheduled.axes[leaf].extent == Extent::Const(1);
            let index = if single { self.b.int(0) } else { self.launch_index(parallel)? };
            self.with_leaf(leaf, index, |lowering| lowering.emit_level(unit, depth + 1))?;
            return self.finish_accumulators(unit, depth);
        }
        if let [tv] = *unit
            && (self.try_emit_vector(tv, own, depth)?
                || self.try_emit_tile_vector(tv, own, depth)?
                || self.try_emit_random(tv, own, depth)?)
        {
            return Ok(());
        }
        if parallel == ParallelType::Unroll && self.fills_shared(unit, own) {
            self.emit_loop_as(own, Unroll::No, |lowering| lowering.emit_level(unit, depth + 1))?;
            return self.finish_accumulators(unit, depth);
        }
        let ahead: Vec<TvId> = unit
            .iter()
            .copied()
            .filter(|tv| self.scheduled.tensors[*tv].prefetch && self.scheduled.tensors[*tv].inline_at == depth + 1)
            .collect();
        if ahead.is_empty() {
            self.emit_lane_loop(unit, own, depth)?;
        } else {
            self.emit_prefetched_loop(unit, &ahead, own, depth)?;
        }
        self.finish_accumulators(unit, depth)
    }

    /// Whether a loop moves values of a unit to shared memory and no
    /// register array runs over it. Unrolled, all its loads would be in registers
    /// at once, which is what shared memory is to avoid.
    fn fills_shared(&self, unit: &[TvId], own: Loop) -> bool {
        let tensors = &self.scheduled.tensors;
        let in_registers = |tv: &TvId| tensors[*tv].memory == Memory::Local && self.array_loops(*tv).contains(&own);
        let reads = |tv: &TvId| self.scheduled.producers(*tv).iter().any(in_registers);
        unit.iter().any(|tv| tensors[*tv].memory == Memory::Shared)
            && !unit.iter().any(|tv| in_registers(tv) || reads(tv) || self.accumulates(*tv))
    }

    /// Opens a loop over a leaf, unrolled where its place says so.
    pub(super) fn emit_loop(&mut self, own: Loop, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let unroll = match own.parallel {
            ParallelType::Unroll | ParallelType::Vectorize => Unroll::Full,
            _ => Unroll::No,
        };
        self.emit_loop_as(own, unroll, body)
    }

    fn emit_loop_as(&mut self, own: Loop, unroll: Unroll, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let leaf = own.axis;
        let extent = self.extent(leaf)?;
        let constant = self.b.exprs().as_int(extent);
        if constant == Some(1) {
            let zero = self.b.int(0);
            return self.with_leaf(leaf, zero, body);
        }
        let unroll = if constant.is_some() { unroll } else { Unroll::No };
        let name = loop_name(own.parallel);
        let dtype = self.b.index_type();
        let (var, counter) = self.b.counter(name, dtype);
        // The body borrows the whole lowering, so the block is built by hand.
        self.b.open();
        let exchange = self.exchange_enters_loop();
        self.open_loops += 1;
        let outer_repeat = self.repeat;
        self.repeat = (self.open_loops == 1).then_some(counter);
        let result = self.with_leaf(leaf, counter, body);
        self.repeat = outer_repeat;
        self.open_loops -= 1;
        let body = self.b.close();
        result?;
        self.exchange_leaves_loop(&exchange);
        let start = self.b.int(0);
        self.b.emit(crate::kernel::StmtKind::For { var, start, end: extent, step: 1, unroll, body });
        Ok(())
    }

    /// Binds a leaf to an index while `body` runs.
    pub(super) fn with_leaf(
        &mut self,
        leaf: AxisId,
        index: ExprId,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let before = self.leaf_index[leaf];
        self.leaf_index.set(leaf, Some(index));
        let result = body(self);
        self.leaf_index.set(leaf, before);
        result
    }

    /// The index of a thread or block axis, of the index type.
    pub(super) fn launch_index(&mut self, parallel: ParallelType) -> Result<ExprId> {
        let special = match parallel {
            ParallelType::Tidx => Special::ThreadIdx(Dim::X),
            ParallelType::Tidy => Special::ThreadIdx(Dim::Y),
            ParallelType::Tidz => Special::ThreadIdx(Dim::Z),
            ParallelType::Bidx => Special::BlockIdx(Dim::X),
            ParallelType::Bidy => Special::BlockIdx(Dim::Y),
            ParallelType::Bidz => Special::BlockIdx(Dim::Z),
            _ => return Err(Diagnostic::bug(format!("{} is not a place in the launch", parallel.name()))),
        };
        let index = self.b.exprs().intern(Expr::Special(special), DType::I32);
        Ok(self.as_index(index))
    }
}

fn units_of_tensors(units: &[Vec<TvId>]) -> BTreeMap<TvId, usize> {
    units.iter().enumerate().flat_map(|(i, unit)| unit.iter().map(move |tv| (*tv, i))).collect()
}

/// The counter's name.
fn loop_name(parallel: ParallelType) -> &'static str {
    match parallel {
        ParallelType::Vectorize => "v",
        ParallelType::Unroll => "u",
        _ => "i",
    }
}
