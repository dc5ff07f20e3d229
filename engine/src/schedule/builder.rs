//! The scheduling primitives. Each checks its preconditions, transforms the
//! working copy and records itself.

use super::inline::break_circles;
use super::ir::{
    Compute, Io, Loop, Memory, ParallelType, RowShift, ScheduledFusion, Step, Tile, Tv, TvId, TvOp, TvOperand,
};
use super::stages::Stages;
use crate::axes::{AxisId, Extent, Parts, Xform};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::CacheHint;
use crate::util::{EntityId, SecondaryMap};
use std::collections::BTreeSet;

/// Applies and records scheduling primitives.
#[derive(Clone, Debug)]
pub struct ScheduleBuilder {
    scheduled: ScheduledFusion,
    // Whether promises of exactness are ignored.
    distrustful: bool,
}

impl ScheduleBuilder {
    /// Starts from an unscheduled working copy.
    pub fn new(scheduled: ScheduledFusion) -> Self {
        Self { scheduled, distrustful: false }
    }

    /// The state so far.
    pub fn state(&self) -> &ScheduledFusion {
        &self.scheduled
    }

    /// The scheduled fusion.
    pub fn finish(self) -> ScheduledFusion {
        self.scheduled
    }

    /// From here on every split is checked, whatever it promises: with an extent
    /// of 0, one part of one element covers the axis and yet is not exact.
    pub fn distrust_exact_splits(&mut self) {
        self.distrustful = true;
    }

    // Axes.

    /// Splits an axis: `axis = outer * factor + inner`. An axis may be split in several ways, for
    /// tensors with different loops. `exact` promises that
    /// the factor divides the extent.
    pub fn split(&mut self, axis: AxisId, factor: i64, exact: bool) -> Result<(AxisId, AxisId)> {
        self.split_with(axis, factor, None, exact)
    }

    /// Splits an axis into a constant number of parts of a constant size, which
    /// together cover it.
    pub fn split_cover(&mut self, axis: AxisId, count: i64, factor: i64, exact: bool) -> Result<(AxisId, AxisId)> {
        self.split_with(axis, factor, Some(count), exact)
    }

    fn split_with(&mut self, axis: AxisId, factor: i64, count: Option<i64>, exact: bool) -> Result<(AxisId, AxisId)> {
        let exact = exact && !self.distrustful;
        if factor < 1 || count.is_some_and(|count| count < 1) {
            return Err(Diagnostic::user(
                code::ATTRIBUTE,
                format!("split of {} by {factor}: parts are positive", self.name(axis)),
            ));
        }
        if let Extent::Const(extent) = self.scheduled.axes[axis].extent {
            let covered = count.map_or(i64::MAX, |count| count.saturating_mul(factor));
            if (exact && extent % factor != 0) || covered < extent {
                return Err(Diagnostic::user(
                    code::EXTENT,
                    format!("split of {} by {factor}: the extent {extent} is not covered as promised", self.name(axis)),
                ));
            }
        }
        let outer_extent = count.map_or(Extent::CeilDiv(axis, factor), Extent::Const);
        let outer_extent = match (outer_extent, self.scheduled.axes[axis].extent) {
            (Extent::CeilDiv(..), Extent::Const(n)) => Extent::Const((n + factor - 1) / factor),
            (other, _) => other,
        };
        self.scheduled.steps.push(Step::Split { axis: self.name(axis), factor, count, exact });
        Ok(self.scheduled.axes.split(axis, |_| outer_extent, Extent::Const(factor), exact))
    }

    /// Splits an axis into parts of one size, as many as the launch has places for. `exact`
    /// promises that the parts are equal.
    pub fn split_parts(&mut self, axis: AxisId, parts: Parts, exact: bool) -> Result<(AxisId, AxisId)> {
        if parts.places < 1 {
            return Err(Diagnostic::user(code::ATTRIBUTE, format!("split of {} into no parts", self.name(axis))));
        }
        let exact = exact && !self.distrustful;
        let beside = parts.beside.map(|beside| self.name(beside));
        self.scheduled.steps.push(Step::SplitParts { axis: self.name(axis), places: parts.places, beside, exact });
        Ok(self.scheduled.axes.split(axis, |inner| Extent::Shares(axis, inner), Extent::Share(axis, parts), exact))
    }

    /// Merges two axes: `result = outer * extent(inner) + inner`.
    pub fn merge(&mut self, outer: AxisId, inner: AxisId) -> Result<AxisId> {
        if outer == inner {
            return Err(Diagnostic::user(code::AXIS, format!("merge of {} with itself", self.name(outer))));
        }
        self.scheduled.steps.push(Step::Merge { outer: self.name(outer), inner: self.name(inner) });
        Ok(self.scheduled.axes.merge(outer, inner))
    }

    /// Shifts a root so that index 0 is a multiple of `vector` elements in the
    /// memory of `reference`, for every row. See [`Xform::Align`].
    pub fn align(&mut self, axis: AxisId, vector: i64, reference: TvId, rows: Option<AxisId>) -> Result<AxisId> {
        self.need_leaf(axis, "align")?;
        if vector < 1 {
            return Err(Diagnostic::user(
                code::ATTRIBUTE,
                format!("align of {} to {vector} elements", self.name(axis)),
            ));
        }
        if self.scheduled.tensors[reference].memory != Memory::Global {
            let name = &self.scheduled.tensors[reference].name;
            return Err(Diagnostic::user(code::ATTRIBUTE, format!("align to {name}, which is not in global memory")));
        }
        self.need_shiftable(axis, vector, reference)?;
        let reference_name = self.scheduled.tensors[reference].name.clone();
        self.scheduled.steps.push(Step::Align {
            axis: self.name(axis),
            vector,
            reference: reference_name,
            rows: rows.map(|rows| self.name(rows)),
        });
        let shift = self.scheduled.shifts.push(RowShift { reference, rows });
        Ok(self.scheduled.axes.align(axis, vector, shift))
    }

    /// A shift is the offset of a row of the reference, which must not depend
    /// on the shifted index, nor on another axis whose shift depends on it.
    fn need_shiftable(&self, axis: AxisId, vector: i64, reference: TvId) -> Result<()> {
        let state = &self.scheduled;
        let shift = |root: AxisId| {
            state.axes.uses(root).find_map(|xform| match *xform {
                Xform::Align { shift, .. } => Some(state.shifts[shift].reference),
                _ => None,
            })
        };
        let has = |tv: TvId, root: AxisId| state.tensors[tv].has_root(root);
        let reference_name = &state.tensors[reference].name;
        let refusal = if vector < 1 {
            format!("align of {} to {vector} elements", self.name(axis))
        } else if state.axes.def(axis).is_some() || !has(reference, axis) {
            format!("align of {}, which is not a dimension of {reference_name}", self.name(axis))
        } else if state
            .axes
            .ids()
            .any(|other| shift(other).is_some_and(|shifted_by| has(reference, other) || has(shifted_by, axis)))
        {
            format!("align of {} to {reference_name}, of which another axis is shifted", self.name(axis))
        } else {
            return Ok(());
        };
        Err(Diagnostic::user(code::AXIS, refusal))
    }

    /// Binds a leaf to threads, blocks, or a kind of loop.
    pub fn parallelize(&mut self, axis: AxisId, parallel: ParallelType) -> Result<()> {
        self.need_leaf(axis, "parallelize")?;
        let taken = self.scheduled.axes.iter().any(|(other, data)| {
            other != axis && data.uses.is_empty() && !parallel.is_loop() && self.scheduled.bindings[other] == parallel
        });
        if taken {
            return Err(Diagnostic::user(
                code::ATTRIBUTE,
                format!("{} is already taken by another axis", parallel.name()),
            ));
        }
        let constant = matches!(self.scheduled.axes[axis].extent, Extent::Const(_));
        let needs_constant = parallel.is_thread() || matches!(parallel, ParallelType::Unroll | ParallelType::Vectorize);
        if needs_constant && !constant {
            return Err(Diagnostic::user(
                code::EXTENT,
                format!("{} of {}, whose extent is not constant", parallel.name(), self.name(axis)),
            ));
        }
        self.scheduled.bindings.set(axis, parallel);
        self.scheduled.steps.push(Step::Parallelize { axis: self.name(axis), parallel });
        Ok(())
    }

    fn name(&self, axis: AxisId) -> String {
        self.scheduled.axes[axis].name.clone()
    }

    fn need_leaf(&self, axis: AxisId, verb: &str) -> Result<()> {
        if self.scheduled.axes.is_leaf(axis) {
            return Ok(());
        }
        Err(Diagnostic::user(code::AXIS, format!("{verb} of {}, which is already transformed", self.name(axis))))
    }

    // Tensors.

    /// Reads a tensor once into registers: all its users read the copy.
    pub fn cache_after(&mut self, tv: TvId) -> TvId {
        let data = self.scheduled.tensors[tv].clone();
        self.scheduled.steps.push(Step::CacheAfter { tensor: data.name.clone() });
        let consumers = self.scheduled.consumers(tv);
        let cache = self.scheduled.tensors.push(Tv {
            name: format!("{}_r", data.name),
            memory: Memory::Local,
            io: None,
            op: Some(TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(tv)] }),
            ..data
        });
        for consumer in consumers {
            self.replace_operand(consumer, tv, cache);
        }
        cache
    }

    /// Computes a global output into registers first, and copies it out.
    pub fn cache_before(&mut self, tv: TvId) -> TvId {
        let data = self.scheduled.tensors[tv].clone();
        self.scheduled.steps.push(Step::CacheBefore { tensor: data.name.clone() });
        let cache = self.scheduled.tensors.push(Tv {
            name: format!("{}_r", data.name),
            memory: Memory::Local,
            io: None,
            ..data
        });
        self.scheduled.tensors[tv].op = Some(TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(cache)] });
        cache
    }

    /// Gives one consumer its own computation of a tensor, so that the value
    /// need not be kept for it.
    pub fn cache_fork(&mut self, tv: TvId, consumer: TvId) -> TvId {
        let data = self.scheduled.tensors[tv].clone();
        let consumer_name = self.scheduled.tensors[consumer].name.clone();
        self.scheduled.steps.push(Step::CacheFork { tensor: data.name.clone(), consumer: consumer_name });
        let name = format!("{}_f{}", data.name, self.scheduled.tensors.len());
        let fork = self.scheduled.tensors.push(Tv { name, ..data });
        self.replace_operand(consumer, tv, fork);
        fork
    }

    fn replace_operand(&mut self, consumer: TvId, from: TvId, to: TvId) {
        if let Some(op) = &mut self.scheduled.tensors[consumer].op {
            for operand in &mut op.inputs {
                if *operand == TvOperand::Tv(from) {
                    *operand = TvOperand::Tv(to);
                }
            }
        }
    }

    /// Splits a reduction in two: a new tensor reduces over `leaves` and keeps
    /// one element per index of the other reduced leaves, over which the
    /// original then reduces. Returns the new tensor.
    pub fn rfactor(&mut self, tv: TvId, leaves: &[AxisId]) -> Result<TvId> {
        let data = self.scheduled.tensors[tv].clone();
        let Some(TvOp { compute: Compute::Reduce { op, .. }, inputs }) = data.op.clone() else {
            return Err(Diagnostic::user(
                code::ATTRIBUTE,
                format!("rfactor of {}, which is not a reduction", data.name),
            ));
        };
        let all = self.scheduled.reduced_leaves(tv);
        if let Some(stray) = leaves.iter().find(|leaf| !all.contains(leaf)) {
            return Err(Diagnostic::user(
                code::AXIS,
                format!("rfactor of {} over {}, over which it does not reduce", data.name, self.name(*stray)),
            ));
        }
        let rest: Vec<AxisId> = all.iter().copied().filter(|leaf| !leaves.contains(leaf)).collect();
        if rest.is_empty() || leaves.is_empty() {
            return Err(Diagnostic::user(
                code::AXIS,
                format!("rfactor of {} leaves one side without an axis", data.name),
            ));
        }
        let names = leaves.iter().map(|leaf| self.name(*leaf)).collect();
        self.scheduled.steps.push(Step::Rfactor { tensor: data.name.clone(), axes: names });
        let partials = self.scheduled.tensors.values().filter(|other| other.source == data.source).count();
        let mut partial = data.partial.clone();
        partial.extend(&rest);
        let factored = self.scheduled.tensors.push(Tv {
            name: format!("{}_p{partials}", data.name),
            partial,
            op: Some(TvOp { compute: Compute::Reduce { op, over: leaves.to_vec() }, inputs }),
            ..data
        });
        self.scheduled.tensors[tv].op =
            Some(TvOp { compute: Compute::Reduce { op, over: rest }, inputs: vec![TvOperand::Tv(factored)] });
        Ok(factored)
    }

    /// Moves a tensor to a memory. Inputs and outputs stay global. In shared
    /// memory each thread has elements of its own, as in registers: it holds more,
    /// and takes longer to read. [`alloc`](Self::alloc) makes them a tile of the block.
    pub fn set_memory(&mut self, tv: TvId, memory: Memory) -> Result<()> {
        let is_value = self.scheduled.tensors[tv].op.is_some() && !self.scheduled.is_reduction(tv);
        let data = &mut self.scheduled.tensors[tv];
        match memory {
            Memory::Local if data.io.is_none() => data.memory = memory,
            Memory::Shared if data.io.is_none() && is_value => data.memory = memory,
            _ => {
                return Err(Diagnostic::unsupported(
                    code::SCHEDULE_VERB,
                    format!("set_memory of {} to {memory:?}", data.name),
                )
                .note("inputs and outputs stay in global memory, reductions in registers, in this version"));
            }
        }
        let tensor = data.name.clone();
        self.scheduled.steps.push(Step::SetMemory { tensor, memory });
        Ok(())
    }

    // Loops.

    /// Sets the loop order of every tensor: the leaves of `order` that it
    /// iterates over, and all that are bound to threads or blocks.
    pub fn propagate(&mut self, order: &[AxisId]) -> Result<()> {
        for tv in self.scheduled.tensors.ids() {
            self.scheduled.tensors[tv].loops.clear();
            let reduced = self.scheduled.reduced_leaves(tv);
            let mut loops = Vec::new();
            for leaf in order {
                let parallel = self.scheduled.bindings[*leaf];
                if !parallel.is_loop() || reduced.contains(leaf) || self.scheduled.depends(tv, *leaf) {
                    loops.push(Loop { axis: *leaf, parallel });
                }
            }
            let state = &self.scheduled;
            let data = &state.tensors[tv];
            let is_loop = |axis: AxisId| order.contains(&axis);
            let covered = !data.partial.is_empty()
                || data.indexed().all(|axis| state.axes.covers(axis, &is_loop))
                    && reduced.iter().all(|leaf| order.contains(leaf));
            if !covered {
                let name = &self.scheduled.tensors[tv].name;
                return Err(Diagnostic::user(code::AXIS, format!("propagate leaves out an axis of {name}")));
            }
            self.scheduled.tensors[tv].loops = loops;
            self.scheduled.tensors[tv].inline_at = 0;
        }
        let order = order.iter().map(|leaf| self.name(*leaf)).collect();
        self.scheduled.steps.push(Step::Propagate { order });
        Ok(())
    }

    /// Computes a value anew in each iteration of a loop that it does not depend
    /// on, instead of once before the loop: then it need not be held throughout.
    /// The loop goes where the users of the value have it. To be called before
    /// anything is inlined there, users before what they use.
    pub fn recompute_in(&mut self, tv: TvId, leaf: AxisId) -> Result<()> {
        let state = &self.scheduled;
        let data = &state.tensors[tv];
        let users = state.consumers(tv);
        let place_in = |user: &TvId| state.tensors[*user].loop_axes().position(|axis| axis == leaf);
        let place = users.first().and_then(place_in).unwrap_or(0);
        // Otherwise it could not be computed inside their loop.
        let elsewhere = |user: &TvId| {
            let theirs = &state.tensors[*user].loops;
            place_in(user) != Some(place) || data.loops.get(..place) != Some(&theirs[..place])
        };
        let mut refusal = None;
        let reduced = state.reduced_leaves(tv);
        let held = |own: &TvId| state.tensors[*own].inline_at > place;
        if data.op.is_none() || data.io.is_some() || users.is_empty() {
            refusal = Some("it is no value between inputs and outputs");
        } else if !state.bindings[leaf].is_loop() || data.has_loop(leaf) {
            refusal = Some("that is no loop, or it has it");
        } else if users.iter().any(elsewhere) {
            refusal = Some("its users lack that loop, or have others around it");
        } else if data.loops.iter().any(|own| own.parallel.is_block() && reduced.contains(&own.axis)) {
            refusal = Some("it is reduced over blocks, of which only the last has its value");
        } else if data.loops[..place].iter().any(|own| reduced.contains(&own.axis)) {
            refusal = Some("inside a loop that it reduces over, it would add each value many times");
        } else if data.inline_at > place || state.producers(tv).iter().any(held) {
            refusal = Some("it is inlined there already");
        }
        if let Some(refusal) = refusal {
            let refused = format!("recompute of {} in {}: {refusal}", data.name, self.name(leaf));
            return Err(Diagnostic::user(code::AXIS, refused));
        }
        let tensor = data.name.clone();
        let parallel = self.scheduled.bindings[leaf];
        self.scheduled.tensors[tv].loops.insert(place, Loop { axis: leaf, parallel });
        self.scheduled.steps.push(Step::RecomputeIn { tensor, axis: self.name(leaf) });
        Ok(())
    }

    /// Permutes the loop order of one tensor.
    pub fn reorder(&mut self, tv: TvId, loops: &[AxisId]) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let place = |axis: &AxisId| data.loops.iter().find(|own| own.axis == *axis).copied();
        let ordered: Option<Vec<Loop>> = loops.iter().map(place).collect();
        let distinct: BTreeSet<AxisId> = loops.iter().copied().collect();
        let Some(ordered) = ordered.filter(|_| distinct.len() == data.loops.len() && loops.len() == data.loops.len())
        else {
            let name = &data.name;
            return Err(Diagnostic::user(code::AXIS, format!("reorder of {name} is not a permutation of its loops")));
        };
        self.scheduled.tensors[tv].loops = ordered;
        let tensor = self.scheduled.tensors[tv].name.clone();
        let axes = loops.iter().map(|leaf| self.name(*leaf)).collect();
        self.scheduled.steps.push(Step::Reorder { tensor, axes });
        Ok(())
    }

    /// Gives one tensor loops of its own, outer to inner: an order, a division of axes or places
    /// in the launch that the others do not have. Together they cover each axis of the tensor once.
    pub fn set_loops(&mut self, tv: TvId, loops: &[Loop]) -> Result<()> {
        let state = &self.scheduled;
        let data = &state.tensors[tv];
        let is_loop = |axis: AxisId| loops.iter().any(|own| own.axis == axis);
        let covers = |axis: AxisId| state.axes.covers(axis, &is_loop);
        let distinct: BTreeSet<AxisId> = loops.iter().map(|own| own.axis).collect();
        let places: Vec<ParallelType> =
            loops.iter().map(|own| own.parallel).filter(|parallel| !parallel.is_loop()).collect();
        let varies = |own: &&Loop| state.axes.constant_extent(own.axis).is_none();
        let refusal = if let Some(axis) = data.indexed().find(|axis| !covers(*axis)) {
            Some((code::AXIS, format!("leave out a part of {}", self.name(axis))))
        } else if state.is_reduction(tv) {
            Some((code::ATTRIBUTE, "of a reduction are those of its operand".to_string()))
        } else if distinct.len() < loops.len() {
            Some((code::AXIS, "have an axis twice".to_string()))
        } else if places.iter().collect::<BTreeSet<_>>().len() < places.len() {
            Some((code::ATTRIBUTE, "bind two axes to one place in the launch".to_string()))
        } else {
            let needs = |own: &&Loop| !matches!(own.parallel, ParallelType::Serial) && !own.parallel.is_block();
            let stray = loops.iter().filter(needs).find(varies);
            stray.map(|own| (code::EXTENT, format!("unroll {}, whose extent is not constant", self.name(own.axis))))
        };
        if let Some((code, what)) = refusal {
            return Err(Diagnostic::user(code, format!("loops of {} {what}", data.name)));
        }
        let tensor = data.name.clone();
        let named = loops.iter().map(|own| (self.name(own.axis), own.parallel)).collect();
        let data = &mut self.scheduled.tensors[tv];
        (data.loops, data.inline_at) = (loops.to_vec(), 0);
        self.scheduled.steps.push(Step::Loops { tensor, loops: named });
        Ok(())
    }

    /// Keeps a tensor in shared memory for all threads of a block, by axes of constant extent,
    /// outer to inner. See [`Tile`].
    pub fn alloc(&mut self, tv: TvId, tile: Tile) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let constant = |axis: &AxisId| self.scheduled.axes.constant_extent(*axis).is_some();
        let stray = tile.axes.iter().find(|axis| !constant(axis));
        let refusal = if data.memory != Memory::Shared {
            Some("it is not in shared memory".to_string())
        } else if let Some(axis) = stray {
            Some(format!("the extent of {} is not constant", self.name(*axis)))
        } else if tile.axes.is_empty() || tile.by < 0 || tile.every < 1 {
            Some("it needs an axis, and a rotation that is not negative every one or more rows".to_string())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err(Diagnostic::user(code::AXIS, format!("alloc of {}: {refusal}", data.name)));
        }
        let tensor = data.name.clone();
        let axes = tile.axes.iter().map(|axis| self.name(*axis)).collect();
        self.scheduled.steps.push(Step::Alloc { tensor, axes, by: tile.by, every: tile.every });
        self.scheduled.tensors[tv].tile = Some(tile);
        Ok(())
    }

    /// Computes a tensor inside the first `position` loops of its consumers.
    pub fn inline_at(&mut self, tv: TvId, position: usize) -> Result<()> {
        let most = self.max_inline(tv, &self.scheduled.consumers(tv));
        if position > most {
            return Err(Diagnostic::user(
                code::AXIS,
                format!(
                    "{} can share {most} loops with its consumers, not {position}",
                    self.scheduled.tensors[tv].name
                ),
            ));
        }
        self.set_inline(tv, position);
        Ok(())
    }

    fn set_inline(&mut self, tv: TvId, position: usize) {
        self.scheduled.tensors[tv].inline_at = position;
        let tensor = self.scheduled.tensors[tv].name.clone();
        self.scheduled.steps.push(Step::InlineAt { tensor, position });
    }

    /// Loads a tensor's elements for the next iteration of the innermost loop
    /// that it shares with its consumers while this iteration's are in use.
    pub fn circular_buffer(&mut self, tv: TvId, stages: u32) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let is_load = self.scheduled.producers(tv).iter().all(|from| self.scheduled.tensors[*from].io.is_some());
        let loops = data.inline_at.checked_sub(1).map(|last| data.loops[last]);
        let serial = loops.is_some_and(|last| last.parallel == ParallelType::Serial);
        if stages != 2 || !is_load || data.op.is_none() || !serial {
            return Err(Diagnostic::unsupported(
                code::SCHEDULE_VERB,
                format!("circular_buffer of {} with {stages} stages", data.name),
            )
            .note("two stages of a register copy of an input, in a serial loop, are available"));
        }
        let tensor = data.name.clone();
        self.scheduled.tensors[tv].prefetch = true;
        self.scheduled.steps.push(Step::CircularBuffer { tensor, stages });
        Ok(())
    }

    /// Says which caches a register copy's accesses to global memory use.
    pub fn set_cache_hint(&mut self, tv: TvId, hint: CacheHint) {
        let data = &mut self.scheduled.tensors[tv];
        data.cache_hint = hint;
        let tensor = data.name.clone();
        self.scheduled.steps.push(Step::SetCacheHint { tensor, hint });
    }

    /// Sets how many blocks should fit a multiprocessor at once.
    pub fn min_blocks(&mut self, blocks: u32) {
        self.scheduled.min_blocks = blocks.max(1);
        self.scheduled.steps.push(Step::MinBlocks(blocks.max(1)));
    }

    /// Inlines every tensor as deeply as the stages of the computation allow,
    /// but those of `keep` only to the given position, and random numbers only to
    /// the vector that a block of the generator serves. A tensor that is used in
    /// two stages is kept in registers between them.
    pub fn inline_most(&mut self, keep: &[(TvId, usize)]) -> Result<()> {
        let stages = Stages::new(&self.scheduled);
        let consumers = self.scheduled.all_consumers();
        let mut positions = SecondaryMap::new();
        for tv in self.scheduled.tensors.ids().filter(|tv| self.scheduled.tensors[*tv].io.is_none()) {
            let mut position = self.max_inline(tv, &consumers[tv]);
            if stages.crosses(tv) {
                position = position.min(self.outer_prefix(tv));
            }
            if let Some((_, limit)) = keep.iter().find(|(kept, _)| *kept == tv) {
                position = position.min(*limit);
            }
            position = position.min(self.outside_vector(tv));
            positions.set(tv, position);
        }
        break_circles(&self.scheduled, &mut positions);
        for tv in self.scheduled.tensors.ids() {
            if self.scheduled.tensors[tv].io.is_none() {
                // Not above what was possible: circles are broken by lower positions.
                self.set_inline(tv, positions[tv]);
            }
        }
        Ok(())
    }

    /// The loops in which random numbers may be computed: not in the one over a
    /// vector, since one block of the generator serves several of its elements.
    fn outside_vector(&self, tv: TvId) -> usize {
        let data = &self.scheduled.tensors[tv];
        let is_random = matches!(data.op, Some(TvOp { compute: Compute::Random(_), .. }));
        let vector = data.loops.last().is_some_and(|last| last.parallel == ParallelType::Vectorize);
        data.loops.len() - usize::from(is_random && vector)
    }

    /// The number of leading loops that all stages of a computation share:
    /// threads, blocks, and serial loops over which the tensor does not reduce.
    pub fn outer_prefix(&self, tv: TvId) -> usize {
        let reduced = self.scheduled.reduced_leaves(tv);
        let shared = |own: &Loop| match own.parallel {
            ParallelType::Serial => !reduced.contains(&own.axis),
            ParallelType::Unroll | ParallelType::Vectorize => false,
            _ => true,
        };
        self.scheduled.tensors[tv].loops.iter().take_while(|own| shared(own)).count()
    }

    /// The number of outer loops that a tensor has in common with all its
    /// consumers, and does not reduce over within a thread.
    fn max_inline(&self, tv: TvId, consumers: &[TvId]) -> usize {
        let reduced = self.scheduled.reduced_leaves(tv);
        let loops = &self.scheduled.tensors[tv].loops;
        let across_threads = loops.iter().any(|own| !own.parallel.is_loop() && reduced.contains(&own.axis));
        // Threads exchange all their values of a reduction at once.
        let own = if across_threads {
            self.outer_prefix(tv)
        } else {
            loops.iter().take_while(|own| !reduced.contains(&own.axis)).count()
        };
        consumers.iter().fold(own, |most, consumer| {
            let theirs = &self.scheduled.tensors[*consumer].loops;
            most.min(loops.iter().zip(theirs).take_while(|(a, b)| a == b).count())
        })
    }

    /// The outputs of the fusion, in order.
    pub fn outputs(&self) -> Vec<TvId> {
        let mut outputs: Vec<(u32, TvId)> = self
            .scheduled
            .tensors
            .iter()
            .filter_map(|(tv, data)| match data.io {
                Some(Io::Output(position)) => Some((position, tv)),
                _ => None,
            })
            .collect();
        outputs.sort_by_key(|(position, tv)| (*position, tv.index()));
        outputs.into_iter().map(|(_, tv)| tv).collect()
    }

    /// The input tensors, in order.
    pub fn inputs(&self) -> Vec<TvId> {
        self.scheduled
            .tensors
            .iter()
            .filter(|(_, data)| matches!(data.io, Some(Io::Input(_))))
            .map(|(tv, _)| tv)
            .collect()
    }
}
