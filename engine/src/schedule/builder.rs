//! The scheduling primitives. Each checks its preconditions, transforms the
//! working copy and records itself.

use super::ir::{
    Columns, Compute, Io, Loop, Memory, ParallelType, ScheduledFusion, Step, Tile, Tv, TvId, TvOp, TvOperand,
};
use super::names::Names;
use crate::axes::{AxisId, AxisRef, Derivation, Extent, Parts, Source};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{CacheHint, MAX_ACCESS_BYTES};
use crate::util::{EntityId, set_of};
use std::collections::BTreeSet;

/// Applies and records scheduling primitives.
#[derive(Clone, Debug)]
pub struct ScheduleBuilder {
    pub(super) scheduled: ScheduledFusion,
    // Whether promises of exactness are ignored.
    distrustful: bool,
    // Names of all tensors: each stands for one.
    pub(super) names: Names,
}

/// Characters of the longest name of an axis: merges of merges double them.
const MAX_NAME: usize = 1024;
/// Threads along a dimension of a block, and indices of a loop that is unrolled, at most.
const MAX_CONSTANT: i64 = 1024;
/// Most blocks that a multiprocessor holds.
const MAX_BLOCKS: u32 = 32;

impl ScheduleBuilder {
    /// Starts from an unscheduled working copy.
    pub fn new(scheduled: ScheduledFusion) -> Self {
        let names = Names::new(scheduled.tensors.values().map(|data| data.name.clone()));
        Self { scheduled, distrustful: false, names }
    }

    /// The state so far.
    pub fn state(&self) -> &ScheduledFusion {
        &self.scheduled
    }

    /// The scheduled fusion.
    pub fn finish(self) -> ScheduledFusion {
        self.scheduled
    }

    /// From here on every split is checked, whatever is promised: with an extent
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
        self.need_several(axis, "split")?;
        self.need_short_name(axis)?;
        if factor < 1 || count.is_some_and(|count| count < 1) {
            return Err(Diagnostic::user(
                code::SCHEDULE_AXES,
                format!("split of {} by {factor}: parts are positive", self.name(axis)),
            ));
        }
        if let Extent::Const(extent) = self.scheduled.axes[axis].extent {
            let covered = count.map_or(i64::MAX, |count| count.saturating_mul(factor));
            if (exact && extent % factor != 0) || covered < extent {
                return Err(Diagnostic::user(
                    code::SCHEDULE_AXES,
                    format!("split of {} by {factor}: the extent {extent} is not covered as promised", self.name(axis)),
                ));
            }
        }
        let outer_extent = count.map_or(Extent::CeilDiv(axis, factor), Extent::Const);
        let outer_extent = match (outer_extent, self.scheduled.axes[axis].extent) {
            (Extent::CeilDiv(..), Extent::Const(n)) => Extent::Const(n / factor + i64::from(n % factor != 0)),
            (other, _) => other,
        };
        self.scheduled.steps.push(Step::Split { axis: self.name(axis), factor, count, exact });
        Ok(self.scheduled.axes.split(axis, |_| outer_extent, Extent::Const(factor), exact))
    }

    /// Says that the schedule is for all sizes of an axis from so many indices on: that is all that is known of it. Of the
    /// parts that cover it as many are full, whose indices nobody tests.
    pub fn at_least(&mut self, axis: AxisId, least: i64) -> Result<()> {
        self.need_short_name(axis)?;
        let extent = self.scheduled.axes.constant_extent(axis);
        if least < 1 || extent.is_some_and(|extent| extent < least) {
            let message = format!("at_least of {least} indices of {}", self.name(axis));
            return Err(Diagnostic::user(code::SCHEDULE_AXES, message).note("name a number from 1 to its size"));
        }
        if !self.distrustful {
            self.scheduled.steps.push(Step::AtLeast { axis: self.name(axis), least });
            self.scheduled.axes[axis].least = least;
        }
        Ok(())
    }

    /// Splits an axis into parts of one size, as many as the launch has places for. `exact`
    /// promises that the parts are equal.
    pub fn split_parts(&mut self, axis: AxisId, parts: Parts, exact: bool) -> Result<(AxisId, AxisId)> {
        self.check_parts(axis, parts)?;
        let exact = exact && !self.distrustful;
        let beside = parts.beside.map(|beside| self.name(beside));
        self.scheduled.steps.push(Step::SplitParts { axis: self.name(axis), places: parts.places, beside, exact });
        Ok(self.scheduled.axes.split(axis, |inner| Extent::Shares(axis, inner), Extent::Share(axis, parts), exact))
    }

    /// Splits an axis into turns, in each of which as many parts as the launch has places for take one index: neighbours
    /// are taken together, where [`Self::split_parts`] gives each part neighbours of its own.
    pub fn split_turns(&mut self, axis: AxisId, parts: Parts) -> Result<(AxisId, AxisId)> {
        self.check_parts(axis, parts)?;
        let beside = parts.beside.map(|beside| self.name(beside));
        self.scheduled.steps.push(Step::SplitTurns { axis: self.name(axis), places: parts.places, beside });
        Ok(self.scheduled.axes.split_turns(axis, parts))
    }

    /// Whether an axis can be split so.
    fn check_parts(&self, axis: AxisId, parts: Parts) -> Result<()> {
        if parts.places < 1 {
            return Err(Diagnostic::user(code::SCHEDULE_AXES, format!("split of {} into no parts", self.name(axis))));
        }
        self.need_several(axis, "split")?;
        self.need_short_name(axis)
    }

    /// Merges two axes: `result = outer * extent(inner) + inner`.
    pub fn merge(&mut self, outer: AxisId, inner: AxisId) -> Result<AxisId> {
        if outer == inner {
            return Err(Diagnostic::user(code::SCHEDULE_AXES, format!("merge of {} with itself", self.name(outer))));
        }
        for axis in [outer, inner] {
            self.need_several(axis, "merge")?;
            self.need_short_name(axis)?;
        }
        self.need_apart(outer, inner)?;
        self.scheduled.steps.push(Step::Merge { outer: self.name(outer), inner: self.name(inner) });
        Ok(self.scheduled.axes.merge(outer, inner))
    }

    /// Binds a leaf to threads, blocks, or a kind of loop.
    pub fn parallelize(&mut self, axis: AxisId, parallel: ParallelType) -> Result<()> {
        self.need_leaf(axis, "parallelize")?;
        let taken = self.scheduled.axes.ids().any(|other| {
            other != axis
                && self.scheduled.axes.is_leaf(other)
                && !parallel.is_loop()
                && self.scheduled.bindings[other] == parallel
        });
        if taken {
            let message = format!("{} is already taken by another axis", parallel.name());
            return Err(Diagnostic::user(code::SCHEDULE_PLACE, message));
        }
        let constant = matches!(self.scheduled.axes[axis].extent, Extent::Const(_));
        let needs_constant = parallel.is_thread() || matches!(parallel, ParallelType::Unroll | ParallelType::Vectorize);
        if needs_constant {
            self.need_few(axis, parallel)?;
        }
        if needs_constant && !constant {
            let message = format!("{} of {}, whose extent is not constant", parallel.name(), self.name(axis));
            return Err(Diagnostic::user(code::SCHEDULE_PLACE, message).note("split it by a constant"));
        }
        self.scheduled.bindings.set(axis, parallel);
        self.scheduled.steps.push(Step::Parallelize { axis: self.name(axis), parallel });
        Ok(())
    }

    pub(super) fn name(&self, axis: AxisId) -> String {
        self.scheduled.axes[axis].name.clone()
    }

    /// Threads have at least one index, and what is repeated in a kernel's text not too many.
    fn need_few(&self, axis: AxisId, parallel: ParallelType) -> Result<()> {
        match self.scheduled.axes.constant_extent(axis) {
            Some(extent) if !(1..=MAX_CONSTANT).contains(&extent) => {
                let message = format!("{} of {}, which has {extent} indices", parallel.name(), self.name(axis));
                Err(Diagnostic::user(code::SCHEDULE_PLACE, message).note(format!("there are 1 to {MAX_CONSTANT}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn need_leaf(&self, axis: AxisId, verb: &str) -> Result<()> {
        if self.scheduled.axes.is_leaf(axis) {
            return Ok(());
        }
        let message = format!("{verb} of {}, which is already transformed", self.name(axis));
        Err(Diagnostic::user(code::SCHEDULE_AXES, message))
    }

    /// No loop runs over what is one element of another axis: its index is known.
    fn need_several(&self, axis: AxisId, verb: &str) -> Result<()> {
        if !self.scheduled.axes.is_one_of(axis) {
            return Ok(());
        }
        let message = format!("{verb} of {}, which is one element of another axis", self.name(axis));
        Err(Diagnostic::user(code::SCHEDULE_AXES, message).note("it has one index, and no loop runs over it"))
    }

    /// Of two axes none decides the other, nor do both decide a third.
    fn need_apart(&self, outer: AxisId, inner: AxisId) -> Result<()> {
        let axes = &self.scheduled.axes;
        let [first, second] = [outer, inner].map(|axis| Derivation::of_loops_alone(axes, [axis]));
        let is_decided = |derivation: &Derivation, axis: AxisId| {
            !matches!(derivation.source(axis), Source::Picked | Source::Unknown)
        };
        let both = axes.ids().find(|axis| is_decided(&first, *axis) && is_decided(&second, *axis));
        let Some(both) = both else { return Ok(()) };
        let [outer, inner, both] = [outer, inner, both].map(|axis| self.name(axis));
        let message = format!("merge of {outer} and {inner}, which both decide the index of {both}");
        Err(Diagnostic::user(code::SCHEDULE_AXES, message))
    }

    pub(super) fn need_short_name(&self, axis: AxisId) -> Result<()> {
        if self.scheduled.axes[axis].name.len() <= MAX_NAME / 2 {
            return Ok(());
        }
        let shown: String = self.scheduled.axes[axis].name.chars().take(40).collect();
        let message = format!("{shown}... is made of too many axes");
        Err(Diagnostic::user(code::SCHEDULE_AXES, message))
    }

    // Tensors.

    /// Reads a tensor once into registers: all its users read the copy.
    pub fn cache_after(&mut self, tv: TvId) -> Result<TvId> {
        let consumers = self.scheduled.consumers(tv);
        let data = self.scheduled.tensors[tv].clone();
        if consumers.is_empty() {
            let message = format!("cache_after of {}, which nothing reads", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message).note("cache_before is for outputs"));
        }
        if let Some(lookup) = self.scheduled.lookup_in(tv) {
            let lookup = &self.scheduled.tensors[lookup].name;
            let message = format!("cache_after of {}, in which {lookup} is looked up", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message)
                .note("any of its elements may be asked for; the lookup is a copy in registers itself"));
        }
        self.scheduled.steps.push(Step::CacheAfter { tensor: data.name.clone() });
        let name = self.names.fresh(format!("{}_r", data.name));
        let op = Some(TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(tv)] });
        let cache = self.scheduled.tensors.push(Tv { name, op, ..data }.in_registers());
        for consumer in consumers {
            self.replace_operand(consumer, tv, cache);
        }
        Ok(cache)
    }

    /// Computes a tensor into registers first, and copies it from there.
    pub fn cache_before(&mut self, tv: TvId) -> Result<TvId> {
        let data = self.scheduled.tensors[tv].clone();
        if data.op.is_none() {
            let message = format!("cache_before of {}, which is an input", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message).note("cache_after is for inputs"));
        }
        self.scheduled.steps.push(Step::CacheBefore { tensor: data.name.clone() });
        let name = self.names.fresh(format!("{}_r", data.name));
        let cache = self.scheduled.tensors.push(Tv { name, ..data }.in_registers());
        let data = &mut self.scheduled.tensors[tv];
        data.op = Some(TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(cache)] });
        data.stages = 0;
        Ok(cache)
    }

    /// Gives some consumers a computation of a tensor of their own, so that the value
    /// need not be kept for them.
    pub fn cache_fork(&mut self, tv: TvId, consumers: &[TvId]) -> Result<TvId> {
        let data = self.scheduled.tensors[tv].clone();
        let names: Vec<String> = consumers.iter().map(|own| self.scheduled.tensors[*own].name.clone()).collect();
        let reads = |consumer: &TvId| self.scheduled.producers(*consumer).contains(&tv);
        if let Some(place) = consumers.iter().position(|consumer| !reads(consumer)) {
            let message = format!("cache_fork of {} for {}, which does not read it", data.name, names[place]);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message));
        }
        self.scheduled.steps.push(Step::CacheFork { tensor: data.name.clone(), consumers: names });
        let name = self.names.fresh(format!("{}_f{}", data.name, self.scheduled.tensors.len()));
        let fork = self.scheduled.tensors.push(Tv { name, ..data });
        for consumer in consumers {
            self.replace_operand(*consumer, tv, fork);
        }
        Ok(fork)
    }

    /// Ends a phase of the kernel after a value: it is written to memory of the device, and those who read
    /// it go on when all blocks have written theirs. Returns the tensor in that memory.
    pub fn phase_after(&mut self, tv: TvId) -> Result<TvId> {
        let consumers = self.scheduled.consumers(tv);
        let data = self.scheduled.tensors[tv].clone();
        if data.op.is_none() || data.memory == Memory::Global || consumers.is_empty() {
            let message = format!("phase_after of {}, which is no value that others read", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message)
                .note("inputs, results and what a phase leaves to the next are in memory of the device already"));
        }
        self.scheduled.steps.push(Step::PhaseAfter { tensor: data.name.clone() });
        let name = self.names.fresh(format!("{}_w", data.name));
        // An element for each index that a partial result still has.
        let partial = data.partial.iter().map(|axis| AxisRef::Axis(*axis));
        let axes = partial.chain(data.axes.iter().copied()).collect();
        let reduced = self.scheduled.reduced_leaves(tv);
        let loops = data.loops.iter().copied().filter(|own| !reduced.contains(&own.axis)).collect();
        let op = Some(TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(tv)] });
        let kept = Tv { name, axes, loops, partial: Vec::new(), op, ..data }.in_registers();
        let workspace = Tv { memory: Memory::Global, cache_hint: CacheHint::Global, ..kept };
        let workspace = self.scheduled.tensors.push(workspace);
        for consumer in consumers {
            self.replace_operand(consumer, tv, workspace);
        }
        Ok(workspace)
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
        let rest = self.left_to_reduce("rfactor", tv, leaves)?;
        if rest.is_empty() || leaves.is_empty() {
            return self.refuse_rfactor("rfactor", tv, "leaves one side without an axis");
        }
        let names = leaves.iter().map(|leaf| self.name(*leaf)).collect();
        self.scheduled.steps.push(Step::Rfactor { tensor: self.scheduled.tensors[tv].name.clone(), axes: names });
        self.factor_out(tv, leaves, rest)
    }

    /// What a reduction still reduces over once it was reduced over `leaves`; a refusal where that is no part of it.
    pub(super) fn left_to_reduce(&self, verb: &str, tv: TvId, leaves: &[AxisId]) -> Result<Vec<AxisId>> {
        let data = &self.scheduled.tensors[tv];
        if !self.scheduled.is_reduction(tv) {
            let message = format!("{verb} of {}, which is not a reduction", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message));
        }
        let all = self.scheduled.reduced_leaves(tv);
        // Each part would be combined for each index of the other axis.
        if let Some(stray) = self.with_others(tv, &all) {
            let what = format!("over {}, which is made of an axis that it does not have too", self.name(stray));
            return self.refuse_rfactor(verb, tv, &what);
        }
        if let Some(stray) = leaves.iter().find(|leaf| !all.contains(leaf)) {
            let what = format!("over {}, over which it does not reduce", self.name(*stray));
            return self.refuse_rfactor(verb, tv, &what);
        }
        if leaves.iter().copied().collect::<BTreeSet<AxisId>>().len() < leaves.len() {
            return self.refuse_rfactor(verb, tv, "over an axis twice");
        }
        if !data.loops.is_empty() {
            return self.refuse_rfactor(verb, tv, "that has loops already");
        }
        Ok(all.into_iter().filter(|leaf| !leaves.contains(leaf)).collect())
    }

    pub(super) fn refuse_rfactor<T>(&self, verb: &str, tv: TvId, what: &str) -> Result<T> {
        let names: Vec<String> = self.scheduled.reduced_leaves(tv).iter().map(|leaf| self.name(*leaf)).collect();
        let message = format!("{verb} of {} {what}", self.scheduled.tensors[tv].name);
        Err(Diagnostic::user(code::SCHEDULE_TENSOR, message).note(format!("it reduces over {}", names.join(", "))))
    }

    /// A new tensor that reduces over `leaves` what the reduction then reduces over the rest.
    pub(super) fn factor_out(&mut self, tv: TvId, leaves: &[AxisId], rest: Vec<AxisId>) -> Result<TvId> {
        let data = self.scheduled.tensors[tv].clone();
        let Some(TvOp { compute: Compute::Reduce { op, .. }, inputs }) = data.op.clone() else {
            return Err(Diagnostic::bug(format!("{} is no reduction", data.name)));
        };
        let is_stage = |other: &&Tv| other.source == data.source && other.dtype == data.dtype;
        let partials = self.scheduled.tensors.values().filter(is_stage).count();
        let mut partial = data.partial.clone();
        partial.extend(&rest);
        let name = self.names.fresh(format!("{}_p{partials}", data.name));
        let factored = self.scheduled.tensors.push(Tv {
            name,
            partial,
            op: Some(TvOp { compute: Compute::Reduce { op, over: leaves.to_vec() }, inputs }),
            ..data
        });
        self.scheduled.tensors[tv].op =
            Some(TvOp { compute: Compute::Reduce { op, over: rest }, inputs: vec![TvOperand::Tv(factored)] });
        Ok(factored)
    }

    /// Of some axes one that is made of another axis than those of a reduction and its operand.
    fn with_others(&self, tv: TvId, axes: &[AxisId]) -> Option<AxisId> {
        let state = &self.scheduled;
        let over = match &state.tensors[tv].op {
            Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) => over.as_slice(),
            _ => &[],
        };
        let operands = state.producers(tv).into_iter().map(|from| &state.tensors[from]);
        let read = operands.flat_map(|data| data.indexed().chain(data.partial.iter().copied()));
        let own: BTreeSet<AxisId> =
            read.chain(over.iter().copied()).flat_map(|axis| state.axes.roots_of(axis)).collect();
        axes.iter().copied().find(|axis| state.axes.roots_of(*axis).iter().any(|root| !own.contains(root)))
    }

    /// Moves a tensor to a memory. Inputs and outputs stay global. In shared
    /// memory each thread has elements of its own, as in registers: it holds more,
    /// and takes longer to read. [`alloc`](Self::alloc) makes them a tile of the block.
    pub fn set_memory(&mut self, tv: TvId, memory: Memory) -> Result<()> {
        let is_value = self.scheduled.tensors[tv].op.is_some() && !self.scheduled.is_reduction(tv);
        let data = &mut self.scheduled.tensors[tv];
        match memory {
            Memory::Local if data.memory != Memory::Global => (data.memory, data.tile) = (memory, None),
            Memory::Shared if data.memory != Memory::Global && is_value => data.memory = memory,
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

    /// Adds to a refusal what the loops of some tensors are.
    pub(super) fn with_loops(&self, error: Box<Diagnostic>, tvs: &[TvId]) -> Box<Diagnostic> {
        tvs.iter().fold(error, |error, tv| error.note(self.scheduled.loops_text(*tv)))
    }

    /// Sets the loop order of every tensor: the leaves of `order` that it
    /// iterates over, and all that are bound to threads or blocks.
    pub fn propagate(&mut self, order: &[AxisId]) -> Result<()> {
        for tv in self.scheduled.tensors.ids() {
            self.scheduled.tensors[tv].loops.clear();
            let state = &self.scheduled;
            let reduced = match state.axes.has_program_xforms() {
                true => state.reduced_in(tv, order),
                false => state.reduced_leaves(tv),
            };
            let depends = state.depends_among(tv, order);
            let mut loops = Vec::new();
            for leaf in order {
                let parallel = state.bindings[*leaf];
                if !parallel.is_loop() || reduced.contains(leaf) || depends.contains(leaf) {
                    loops.push(Loop { axis: *leaf, parallel });
                }
            }
            let data = &state.tensors[tv];
            let is_loop = |axis: AxisId| order.contains(&axis);
            let over = match &data.op {
                Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) if state.axes.has_program_xforms() => {
                    over.as_slice()
                }
                _ => &[],
            };
            let covered = !data.partial.is_empty()
                || data.indexed().chain(over.iter().copied()).all(|axis| state.axes.reaches(axis, &is_loop))
                    && reduced.iter().all(|leaf| order.contains(leaf));
            if !covered {
                let name = &self.scheduled.tensors[tv].name;
                let error = Diagnostic::user(code::SCHEDULE_LOOPS, format!("propagate leaves out an axis of {name}"));
                return Err(error.note(self.scheduled.axes_text(tv)));
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
        if data.op.is_none() || data.memory == Memory::Global || users.is_empty() {
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
            return Err(Diagnostic::user(code::SCHEDULE_LOOPS, refused));
        }
        let tensor = data.name.clone();
        let parallel = self.scheduled.bindings[leaf];
        self.scheduled.tensors[tv].loops.insert(place, Loop { axis: leaf, parallel });
        self.scheduled.steps.push(Step::RecomputeIn { tensor, axis: self.name(leaf) });
        Ok(())
    }

    /// Puts some of a tensor's loops in another order, in the places that they take among all.
    pub fn reorder(&mut self, tv: TvId, axes: &[AxisId]) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let stray = axes.iter().find(|axis| !data.has_loop(**axis));
        let refusal = match stray {
            Some(axis) => Some(format!("it has no loop over {}", self.name(*axis))),
            None => has_twice(axes).map(|axis| format!("{} stands there twice", self.name(axis))),
        };
        if let Some(refusal) = refusal {
            let message = format!("reorder of {}: {refusal}", data.name);
            return Err(self.with_loops(Diagnostic::user(code::SCHEDULE_LOOPS, message), &[tv]));
        }
        let tensor = Some(data.name.clone());
        let loops = in_order(&data.loops, axes);
        self.take_loops(tv, loops, self.scheduled.tensors[tv].inline_at)?;
        let axes = axes.iter().map(|leaf| self.name(*leaf)).collect();
        self.scheduled.steps.push(Step::Reorder { tensor, axes });
        Ok(())
    }

    /// The same for all tensors, of the loops that each has.
    pub fn reorder_all(&mut self, axes: &[AxisId]) -> Result<()> {
        if let Some(axis) = has_twice(axes) {
            let message = format!("reorder: {} stands there twice", self.name(axis));
            return Err(Diagnostic::user(code::SCHEDULE_LOOPS, message));
        }
        let reordered: Vec<Vec<Loop>> =
            self.scheduled.tensors.values().map(|data| in_order(&data.loops, axes)).collect();
        let before = self.scheduled.clone();
        for (data, loops) in self.scheduled.tensors.values_mut().zip(reordered) {
            data.loops = loops;
        }
        if let Some(error) = self.broken_inlining() {
            self.scheduled = before;
            return Err(error);
        }
        let axes = axes.iter().map(|leaf| self.name(*leaf)).collect();
        self.scheduled.steps.push(Step::Reorder { tensor: None, axes });
        Ok(())
    }

    /// Gives one tensor loops of its own, outer to inner: an order, a division of axes or places
    /// in the launch that the others do not have. Together they cover each axis of the tensor once.
    pub fn set_loops(&mut self, tv: TvId, loops: &[Loop]) -> Result<()> {
        let state = &self.scheduled;
        let data = &state.tensors[tv];
        let is_loop = |axis: AxisId| loops.iter().any(|own| own.axis == axis);
        let covers = |axis: AxisId| state.axes.reaches(axis, &is_loop);
        let distinct: BTreeSet<AxisId> = loops.iter().map(|own| own.axis).collect();
        let places: Vec<ParallelType> =
            loops.iter().map(|own| own.parallel).filter(|parallel| !parallel.is_loop()).collect();
        let varies = |own: &&Loop| state.axes.constant_extent(own.axis).is_none();
        let over = match &data.op {
            Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) => over.as_slice(),
            _ => &[],
        };
        let refusal = if let Some(axis) = data.indexed().chain(over.iter().copied()).find(|axis| !covers(*axis)) {
            Some((code::SCHEDULE_LOOPS, format!("leave out a part of {}", self.name(axis))))
        } else if distinct.len() < loops.len() {
            Some((code::SCHEDULE_LOOPS, "have an axis twice".to_string()))
        } else if set_of(places.iter().copied()).len() < places.len() {
            Some((code::SCHEDULE_PLACE, "bind two axes to one place in the launch".to_string()))
        } else {
            let needs = |own: &&Loop| !matches!(own.parallel, ParallelType::Serial) && !own.parallel.is_block();
            let stray = loops.iter().filter(needs).find(varies);
            stray.map(|own| {
                (code::SCHEDULE_PLACE, format!("unroll {}, whose extent is not constant", self.name(own.axis)))
            })
        };
        if let Some((code, what)) = refusal {
            return Err(Diagnostic::user(code, format!("loops of {} {what}", data.name)));
        }
        for own in loops.iter().filter(|own| own.parallel != ParallelType::Serial && !own.parallel.is_block()) {
            self.need_few(own.axis, own.parallel)?;
        }
        let tensor = data.name.clone();
        let named = loops.iter().map(|own| (self.name(own.axis), own.parallel)).collect();
        self.take_loops(tv, loops.to_vec(), 0)?;
        self.scheduled.steps.push(Step::Loops { tensor, loops: named });
        Ok(())
    }

    /// Keeps a tensor in shared memory for all threads of a block, by axes of constant extent, or of which the
    /// schedule says how many indices there are at most, outer to inner. See [`Tile`].
    pub fn alloc(&mut self, tv: TvId, mut tile: Tile) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let constant = |axis: &AxisId| self.scheduled.axes.most_extent(*axis).is_some();
        let stray = tile.axes.iter().find(|axis| !constant(axis));
        let refusal = if data.memory != Memory::Shared {
            Some("it is not in shared memory".to_string())
        } else if let Some(axis) = stray {
            Some(format!("the extent of {} is not constant", self.name(*axis)))
        } else {
            self.columns_refused(&tile, data.dtype.bytes() as i64)
        };
        if let Some(refusal) = refusal {
            let message = format!("alloc of {}: {refusal}", data.name);
            return Err(self.with_loops(Diagnostic::user(code::SCHEDULE_TENSOR, message), &[tv]));
        }
        let tensor = data.name.clone();
        let axes = tile.axes.iter().map(|axis| self.name(*axis)).collect();
        if let Columns::Rotated { by: 0, .. } | Columns::Skewed { by: 0, .. } = tile.columns {
            // Nothing is moved on, whatever the rows.
            tile.columns = Columns::InOrder;
        }
        self.scheduled.steps.push(Step::Alloc { tensor, axes, columns: tile.columns });
        self.scheduled.tensors[tv].tile = Some(tile);
        Ok(())
    }

    /// What is wrong with the columns of a tile of elements of so many bytes.
    fn columns_refused(&self, tile: &Tile, bytes: i64) -> Option<String> {
        let Some((inner, outer)) = tile.axes.split_last() else { return Some("it needs an axis".into()) };
        let extent = |axis: &AxisId| self.scheduled.axes.most_extent(*axis).unwrap_or_default();
        let row = extent(inner);
        let rows = outer.iter().map(extent).fold(1, i64::saturating_mul).max(1);
        let every_refused = |every: i64| {
            (!(1..=rows).contains(&every)).then(|| format!("columns change every 1 to {rows} rows, not every {every}"))
        };
        match tile.columns {
            Columns::InOrder => None,
            Columns::Rotated { by, .. } if by != 0 && !(0..row).contains(&by) => {
                Some(format!("a rotation is by less than the {row} elements of a row, not by {by}"))
            }
            Columns::Skewed { by, .. } if !(0..=row).contains(&by) => {
                Some(format!("a skew is by at most the {row} elements of a row, not by {by}"))
            }
            Columns::Rotated { every, .. } | Columns::Skewed { every, .. } => every_refused(every),
            Columns::Swizzled { groups, .. } if groups < 1 || groups & (groups - 1) != 0 => {
                Some(format!("a swizzle is of a power of two of groups, not of {groups}"))
            }
            Columns::Swizzled { groups, every } => every_refused(every).or_else(|| {
                let row = row.saturating_mul(bytes);
                (row % groups.saturating_mul(MAX_ACCESS_BYTES) != 0).then(|| {
                    let inner = self.name(*inner);
                    format!("a row along {inner} has {row} bytes, no multiple of {groups} groups of {MAX_ACCESS_BYTES}")
                })
            }),
        }
    }

    /// Loads a tensor's elements for later iterations of the innermost loop that it shares
    /// with its consumers while this iteration's are in use: for the next one in registers, for
    /// the next `stages - 1` in shared memory, and there with one stage for the next one, each element as soon as
    /// this iteration has read the one in its place.
    pub fn circular_buffer(&mut self, tv: TvId, stages: u32) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        if let Some(refusal) = self.scheduled.stages_refused(tv, stages) {
            let message = format!("circular_buffer %{} {stages}: {}", data.name, refusal.what);
            let error = Diagnostic::unsupported(code::SCHEDULE_VERB, message).note(refusal.way_out);
            return Err(self.with_loops(error, &[tv]));
        }
        let tensor = data.name.clone();
        self.scheduled.tensors[tv].stages = stages;
        self.scheduled.steps.push(Step::CircularBuffer { tensor, stages });
        Ok(())
    }

    /// Says which caches the accesses to global memory of a tensor's computation use.
    pub fn set_cache_hint(&mut self, tv: TvId, hint: CacheHint) -> Result<()> {
        let loads = self.scheduled.producers(tv).iter().any(|from| self.scheduled.tensors[*from].io.is_some());
        let copies = |op: &TvOp| matches!(op.compute, Compute::Copy | Compute::Lookup);
        let loads = loads && self.scheduled.tensors[tv].op.as_ref().is_some_and(copies);
        let data = &mut self.scheduled.tensors[tv];
        let stores = matches!(data.io, Some(Io::Output(_)));
        if data.op.is_none() || !loads && (!stores || hint == CacheHint::Again) {
            let message = format!("set_cache_hint of {}, which reads no input", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_TENSOR, message)
                .note("hints are for register copies of inputs, and for outputs, which are not read again"));
        }
        data.cache_hint = hint;
        let tensor = data.name.clone();
        self.scheduled.steps.push(Step::SetCacheHint { tensor, hint });
        Ok(())
    }

    /// Sets how many blocks should fit a multiprocessor at once.
    pub fn min_blocks(&mut self, blocks: u32) -> Result<()> {
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            let message = format!("min_blocks {blocks}: a multiprocessor holds 1 to {MAX_BLOCKS} blocks");
            return Err(Diagnostic::user(code::SCHEDULE_PLACE, message));
        }
        self.scheduled.min_blocks = blocks;
        self.scheduled.steps.push(Step::MinBlocks(blocks));
        Ok(())
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

/// An axis that stands in a list more than once.
fn has_twice(axes: &[AxisId]) -> Option<AxisId> {
    axes.iter().enumerate().find(|(at, axis)| axes[..*at].contains(axis)).map(|(_, axis)| *axis)
}

/// Loops of which those over some axes are in the order of these, in the places that they took.
fn in_order(loops: &[Loop], axes: &[AxisId]) -> Vec<Loop> {
    let mut own = axes.iter().filter_map(|axis| loops.iter().find(|own| own.axis == *axis));
    let place = |was: &Loop| if axes.contains(&was.axis) { own.next().copied().unwrap_or(*was) } else { *was };
    loops.iter().map(place).collect()
}
