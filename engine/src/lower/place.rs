//! The first pass: which tensors share which loops, and in what order.
//!
//! In: the tensors with their loops and inline positions. Out: a [`LoopTree`] with all
//! that is computed, without repairs, tests and barriers.
//!
//! At each depth the tensors fall into *units*: a tensor whose loops are all
//! open is a unit of its own; the others share the next loop with the
//! consumers into which they are inlined (union-find). Units stand in
//! dependency order, but what a loop loads ahead comes first in it, and so does what is loaded
//! once beside loops: it is under way while these run. A reduction is
//! initialised before the unit that accumulates it.
//!
//! Units that need no reduction across blocks come first, then all of those together, then
//! the rest, in the last block only. Where all blocks need the values, they come in as many turns as they need each
//! other, each behind a barrier of all blocks.

use super::facts::Facts;
use super::tree::{Body, Load, LoopTree, Node, Step, Wide};
use crate::diag::{Diagnostic, Result};
use crate::kernel::Unroll;
use crate::schedule::{AxisId, Compute, Loop, Memory, ParallelType, TvId, TvOp, TvOperand};
use crate::util::{DisjointSets, map_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Builds the tree of the given tensors.
pub(super) fn place(facts: &Facts<'_>, tvs: &[TvId]) -> Result<LoopTree> {
    let mut placing = Placing { facts, tree: LoopTree::default() };
    let mut body = Body::new();
    placing.level(tvs, 0, &mut body)?;
    placing.tree.body = body;
    Ok(placing.tree)
}

struct Placing<'a> {
    facts: &'a Facts<'a>,
    tree: LoopTree,
}

impl Placing<'_> {
    /// Places tensors whose first `depth` loops are open.
    fn level(&mut self, tvs: &[TvId], depth: usize, out: &mut Body) -> Result<()> {
        let units = self.units(tvs, depth)?;
        let grid: Vec<usize> = (0..units.len()).filter(|unit| self.is_grid_unit(&units[*unit], depth)).collect();
        if !grid.is_empty() {
            return match self.facts.blocks_wait {
                true => self.around_waits(&units, &grid, depth, out),
                false => self.around_grid(&units, &grid, depth, out),
            };
        }
        if depth == 0 {
            return self.in_phases(&units, out);
        }
        units.iter().try_for_each(|unit| self.unit(unit, depth, out))
    }

    /// Places the outermost units in phases: what reads what a unit left in memory of the device comes in a
    /// later one, behind a barrier of all blocks.
    fn in_phases(&mut self, units: &[Vec<TvId>], out: &mut Body) -> Result<()> {
        let scheduled = self.facts.scheduled;
        let unit_of = units_of_tensors(units);
        let mut phases: Vec<usize> = Vec::with_capacity(units.len());
        for unit in units {
            let producers = unit.iter().flat_map(|tv| scheduled.producers(*tv));
            let behind = |from: TvId| {
                let phase = unit_of.get(&from).and_then(|unit| phases.get(*unit)).copied().unwrap_or(0);
                let is_kept = scheduled.is_workspace(from);
                phase + usize::from(is_kept)
            };
            let phase = producers.map(behind).max().unwrap_or(0);
            phases.push(phase);
        }
        for phase in 0..=phases.iter().copied().max().unwrap_or(0) {
            if phase > 0 {
                out.push(self.tree.add(Node::GridBarrier { of_teams: false }));
            }
            for (unit, _) in units.iter().zip(&phases).filter(|(_, own)| **own == phase) {
                self.unit(unit, 0, out)?;
            }
        }
        Ok(())
    }

    fn around_grid(&mut self, units: &[Vec<TvId>], grid: &[usize], depth: usize, out: &mut Body) -> Result<()> {
        let mut in_grid = vec![false; units.len()];
        grid.iter().for_each(|unit| in_grid[*unit] = true);
        let unit_of = units_of_tensors(units);
        let mut after = vec![false; units.len()];
        for unit in 0..units.len() {
            let is_late = |other: &usize| *other < unit && (after[*other] || in_grid[*other]);
            let reads_late = units[unit]
                .iter()
                .any(|tv| self.facts.scheduled.producers(*tv).iter().filter_map(|from| unit_of.get(from)).any(is_late));
            if reads_late && in_grid[unit] {
                return Err(Diagnostic::bug("a grid reduction depends on another one of the same kernel"));
            }
            after[unit] = reads_late;
        }
        for (unit, tvs) in units.iter().enumerate() {
            if !after[unit] && !in_grid[unit] {
                self.unit(tvs, depth, out)?;
            }
        }
        let reductions: Vec<TvId> = grid.iter().map(|unit| units[*unit][0]).collect();
        let (mut body, mut last) = self.grid_reductions(&reductions)?;
        for (unit, tvs) in units.iter().enumerate() {
            if after[unit] {
                self.unit(tvs, depth, &mut last)?;
            }
        }
        body.push(self.tree.add(Node::LastBlock { body: last }));
        out.push(self.tree.add(Node::Grid { tvs: reductions, body }));
        Ok(())
    }

    /// Places units among reductions over blocks whose values all blocks need: what reads a value comes behind the
    /// barrier at which it is there, and reductions that do not need each other share one.
    fn around_waits(&mut self, units: &[Vec<TvId>], grid: &[usize], depth: usize, out: &mut Body) -> Result<()> {
        let unit_of = units_of_tensors(units);
        let mut waits: Vec<usize> = Vec::with_capacity(units.len());
        for (unit, tvs) in units.iter().enumerate() {
            let producers = tvs.iter().flat_map(|tv| self.facts.scheduled.producers(*tv));
            let others = producers.filter_map(|from| unit_of.get(&from)).filter(|other| **other != unit);
            let behind = others.filter_map(|other| Some(waits.get(*other)? + usize::from(grid.contains(other))));
            waits.push(behind.max().unwrap_or(0));
        }
        for wait in 0..=waits.iter().copied().max().unwrap_or(0) {
            let now = |unit: &usize| waits[*unit] == wait;
            for unit in (0..units.len()).filter(now).filter(|unit| !grid.contains(unit)) {
                self.unit(&units[unit], depth, out)?;
            }
            let mut left: Vec<TvId> = grid.iter().copied().filter(now).map(|unit| units[unit][0]).collect();
            while let Some(&first) = left.first() {
                let ways = |tv: &TvId| {
                    let cross = self.facts.cross_thread(*tv);
                    (cross.block_axes, cross.threads)
                };
                let (together, others) = left.iter().copied().partition(|tv| ways(tv) == ways(&first));
                self.wait_for(together, out)?;
                left = others;
            }
        }
        Ok(())
    }

    /// Reductions over the same axes that all blocks wait for.
    fn wait_for(&mut self, tvs: Vec<TvId>, out: &mut Body) -> Result<()> {
        const PASS: &str = "grid_reduce";
        let cross = self.facts.cross_thread(tvs[0]);
        let mut body = Body::new();
        for tv in &tvs {
            self.step(*tv, PASS, Step::Gather, &mut body);
            self.threads(*tv, PASS, &cross.threads, &mut body)?;
            self.step(*tv, PASS, Step::WritePartial, &mut body);
        }
        let is_team = |axis: &AxisId| self.facts.scheduled.parallel_of(tvs[0], *axis) == Some(ParallelType::Bidx);
        let of_teams = cross.block_axes.iter().all(is_team);
        body.push(self.tree.add(Node::GridBarrier { of_teams }));
        for tv in &tvs {
            self.step(*tv, PASS, Step::CombineBlocks, &mut body);
            match *cross.threads.as_slice() {
                [ParallelType::Tidx] => {
                    let width = self.facts.combiners(&cross.threads)?;
                    self.step(*tv, PASS, Step::Shuffle { width }, &mut body);
                }
                _ => self.threads(*tv, PASS, &cross.threads, &mut body)?,
            }
            self.step(*tv, PASS, Step::Publish, &mut body);
        }
        out.push(self.tree.add(Node::Grid { tvs, body }));
        Ok(())
    }

    /// What all blocks do for reductions over the same axes, and how that begins which the
    /// last block does.
    fn grid_reductions(&mut self, tvs: &[TvId]) -> Result<(Body, Body)> {
        const PASS: &str = "grid_reduce";
        let cross = self.facts.cross_thread(tvs[0]);
        for tv in tvs {
            let theirs = self.facts.cross_thread(*tv);
            if theirs.block_axes != cross.block_axes || theirs.threads != cross.threads {
                return Err(Diagnostic::bug("grid reductions of one kernel run over different axes"));
            }
        }
        let (mut all, mut last) = (Body::new(), Body::new());
        let end = *tvs.last().unwrap_or(&tvs[0]);
        self.step(end, PASS, Step::Acquire, &mut last);
        for tv in tvs {
            self.step(*tv, PASS, Step::Gather, &mut all);
            self.threads(*tv, PASS, &cross.threads, &mut all)?;
            self.step(*tv, PASS, Step::WritePartial, &mut all);
            self.step(*tv, PASS, Step::CombineBlocks, &mut last);
            self.threads(*tv, PASS, &cross.threads, &mut last)?;
            self.step(*tv, PASS, Step::Publish, &mut last);
        }
        self.step(end, PASS, Step::Release, &mut all);
        self.step(end, PASS, Step::CountBlock, &mut all);
        Ok((all, last))
    }

    fn step(&mut self, tv: TvId, pass: &'static str, step: Step, out: &mut Body) {
        out.push(self.tree.add(Node::Reduce { tv, pass, step }));
    }

    /// Places the steps of a reduction over thread axes.
    fn threads(&mut self, tv: TvId, pass: &'static str, along: &[ParallelType], out: &mut Body) -> Result<()> {
        for step in self.facts.steps(tv, along, &mut self.tree.exchanges)? {
            self.step(tv, pass, step, out);
        }
        Ok(())
    }

    fn is_grid_unit(&self, unit: &[TvId], depth: usize) -> bool {
        unit.iter().any(|tv| self.facts.cross_thread(*tv).blocks && self.is_batched_reduction(*tv, depth))
    }

    /// Whether a cross-thread reduction stands at this depth, with all its
    /// remaining loops (over the values of each thread) taken as one batch.
    fn is_batched_reduction(&self, tv: TvId, depth: usize) -> bool {
        let loops = &self.facts.scheduled.tensors[tv].loops;
        let values = |own: &Loop| matches!(own.parallel, ParallelType::Unroll | ParallelType::Vectorize);
        self.facts.cross_thread(tv).any() && loops[depth..].iter().all(values)
    }

    fn units(&self, tvs: &[TvId], depth: usize) -> Result<Vec<Vec<TvId>>> {
        let scheduled = self.facts.scheduled;
        let mut sets = DisjointSets::new(tvs.len());
        let position: BTreeMap<TvId, usize> = map_of(tvs.iter().enumerate().map(|(i, tv)| (*tv, i)));
        for (index, tv) in tvs.iter().enumerate() {
            let data = &scheduled.tensors[*tv];
            let together = match (data.inline_at > depth, data.compute_with > depth) {
                (true, _) => self.facts.consumers[*tv].clone(),
                (false, true) => scheduled.first_consumer(*tv).into_iter().collect(),
                (false, false) => continue,
            };
            for consumer in &together {
                let Some(other) = position.get(consumer) else {
                    return Err(Diagnostic::bug(format!(
                        "{} is inlined into {}, which is not in the same loops",
                        scheduled.tensors[*tv].name, scheduled.tensors[*consumer].name
                    )));
                };
                sets.union(index, *other);
            }
        }
        let mut members: BTreeMap<usize, Vec<TvId>> = BTreeMap::new();
        for (index, tv) in tvs.iter().enumerate() {
            members.entry(sets.find(index)).or_default().push(*tv);
        }
        self.sort_units(members.into_values().collect(), depth)
    }

    /// Whether a unit is a single load.
    fn is_load(&self, unit: &[TvId], depth: usize) -> bool {
        let is_one = |tv: TvId| self.facts.scheduled.tensors[tv].loops.len() == depth;
        matches!(*unit, [tv] if is_one(tv) && self.facts.loaded_from(tv).is_some())
    }

    /// Definitions before uses; of those that could be next loads, then what has the least tensor.
    fn sort_units(&self, units: Vec<Vec<TvId>>, depth: usize) -> Result<Vec<Vec<TvId>>> {
        let unit_of = units_of_tensors(&units);
        let needs: Vec<Vec<usize>> = units
            .iter()
            .enumerate()
            .map(|(i, unit)| {
                let mut needs: Vec<usize> = unit
                    .iter()
                    .flat_map(|tv| self.facts.scheduled.producers(*tv))
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
        let rank = |unit: usize| Reverse((!self.is_load(&units[unit], depth), unit));
        let mut ready: BinaryHeap<_> = (0..units.len()).filter(|unit| waiting[*unit] == 0).map(rank).collect();
        let mut order = Vec::with_capacity(units.len());
        while let Some(Reverse((_, unit))) = ready.pop() {
            order.push(unit);
            for user in &users[unit] {
                waiting[*user] -= 1;
                if waiting[*user] == 0 {
                    ready.push(rank(*user));
                }
            }
        }
        if order.len() < units.len() {
            return Err(Diagnostic::bug("loops of the schedule depend on each other in a circle"));
        }
        let mut units = units;
        Ok(order.into_iter().map(|unit| std::mem::take(&mut units[unit])).collect())
    }

    /// Places a unit whose first `depth` loops are open.
    fn unit(&mut self, unit: &[TvId], depth: usize, out: &mut Body) -> Result<()> {
        let facts = self.facts;
        let data = |tv: TvId| &facts.scheduled.tensors[tv];
        if let [tv] = *unit {
            if self.is_batched_reduction(tv, depth) {
                self.step(tv, "block_reduce", Step::Gather, out);
                self.threads(tv, "block_reduce", &facts.cross_thread(tv).threads, out)?;
                self.step(tv, "block_reduce", Step::Publish, out);
                return Ok(());
            }
            if data(tv).loops.len() == depth {
                let node = self.element(tv);
                out.extend(node.map(|node| self.tree.add(node)));
                return Ok(());
            }
        }
        let own = data(unit[0]).loops[depth];
        if let Some(stray) = unit.iter().find(|tv| data(**tv).loops.get(depth) != Some(&own)) {
            return Err(Diagnostic::bug(format!(
                "{} and {} share a loop at depth {depth} but iterate over different axes",
                data(unit[0]).name,
                data(*stray).name
            )));
        }
        let accumulators: Vec<TvId> =
            unit.iter().copied().filter(|tv| facts.accumulates(*tv) && data(*tv).inline_at == depth).collect();
        for tv in &accumulators {
            out.push(self.tree.add(Node::Init { tv: *tv }));
        }
        let body = self.loop_body(unit, own, depth)?;
        let unroll = match own.parallel {
            ParallelType::Unroll if self.fills_shared(unit, own) => Unroll::No,
            ParallelType::Unroll | ParallelType::Vectorize => Unroll::Full,
            _ => Unroll::No,
        };
        let mut node = self.tree.add(Node::Loop { own, unroll, body });
        if let [tv] = *unit
            && depth + 1 == data(tv).loops.len()
            && let Some(wide) = self.wide(tv, own)
        {
            node = self.tree.add(Node::Wide { wide, own, single: node });
        }
        out.push(node);
        for tv in accumulators.into_iter().filter(|tv| facts.is_single(*tv)) {
            out.push(self.tree.add(Node::Finish { tv }));
        }
        Ok(())
    }

    /// What runs in a unit's loop: first what it loads ahead, if it does.
    fn loop_body(&mut self, unit: &[TvId], own: Loop, depth: usize) -> Result<Body> {
        let mut body = Body::new();
        let ahead = self.facts.loaded_ahead(unit, own, depth);
        for tv in &ahead {
            self.unit(&[*tv], depth + 1, &mut body)?;
        }
        let rest: Vec<TvId> = unit.iter().copied().filter(|tv| !ahead.contains(tv)).collect();
        self.level(&rest, depth + 1, &mut body)?;
        Ok(body)
    }

    /// Whether a loop moves values of a unit to shared memory, through registers, and no
    /// register array runs over it. Unrolled, all its loads would be in registers
    /// at once, which is what shared memory is to avoid. Asynchronous copies take no registers.
    fn fills_shared(&self, unit: &[TvId], own: Loop) -> bool {
        let tensors = &self.facts.scheduled.tensors;
        let in_registers = |tv: &TvId| tensors[*tv].memory == Memory::Local && self.facts.is_held_along(*tv, own.axis);
        let reads = |tv: &TvId| self.facts.scheduled.producers(*tv).iter().any(in_registers);
        unit.iter().any(|tv| tensors[*tv].memory == Memory::Shared && !tensors[*tv].is_ring())
            && !unit.iter().any(|tv| in_registers(tv) || reads(tv) || self.facts.accumulates(*tv))
    }

    /// The node that computes one element of a tensor, all of whose loops are open.
    fn element(&self, tv: TvId) -> Option<Node> {
        let op = self.facts.scheduled.tensors[tv].op.as_ref()?;
        Some(match (&op.compute, self.facts.loaded_from(tv)) {
            (Compute::Reduce { .. }, _) => Node::Accumulate { tv, tested: false },
            (_, Some(from)) => Node::Load { load: Load { tv, from, twin: false, ends_later: false } },
            _ if self.facts.is_global(tv) => Node::Store { tv, firsts: Vec::new() },
            _ => Node::Compute { tv },
        })
    }

    /// What may take all lanes of a tensor's innermost loop at once, where the register
    /// side is an array whose innermost loop it is.
    fn wide(&self, tv: TvId, own: Loop) -> Option<Wide> {
        let facts = self.facts;
        let tensors = &facts.scheduled.tensors;
        let along = |tv: TvId| facts.array_loops(tv).last() == Some(&own);
        let is_vector = own.parallel == ParallelType::Vectorize;
        if facts.is_random(tv) {
            return (along(tv) && (is_vector || own.parallel == ParallelType::Unroll)).then_some(Wide::Random { tv });
        }
        let copied = match &tensors[tv].op {
            Some(TvOp { compute: Compute::Copy, inputs }) => match *inputs.as_slice() {
                [TvOperand::Tv(from)] => Some(from),
                _ => None,
            },
            _ => None,
        };
        let from = facts.loaded_from(tv).or(copied)?;
        let in_registers = |tv: TvId| tensors[tv].memory == Memory::Local && along(tv);
        // Lanes of a vector are neighbours in a tile along its rows, and in what a thread has of its own.
        let in_shared = |tv: TvId| match &tensors[tv].tile {
            Some(tile) => {
                let lanes = facts.scheduled.axes.constant_extent(own.axis).unwrap_or(1);
                let together = |columns: &AxisId| facts.runs_together(own.axis, *columns, lanes);
                facts.is_inner_part(own.axis, tile.axes.last()) || tile.axes.last().is_some_and(together)
            }
            None => facts.lanes_together(tv) == Some(own),
        };
        match (is_vector, facts.is_global(from), facts.is_global(tv)) {
            (true, true, false) if in_registers(tv) || tensors[tv].is_ring() && in_shared(tv) => {
                Some(Wide::Load(Load { tv, from, twin: false, ends_later: false }))
            }
            (true, false, true) if in_registers(from) => Some(Wide::Store { tv, from, firsts: Vec::new() }),
            (true, false, false) => {
                let (shared, local) = if tensors[tv].memory == Memory::Shared { (tv, from) } else { (from, tv) };
                // A part of what lies together in registers does so too.
                let held = facts.array_loops(local).last().map(|last| last.axis);
                let is_held = tensors[local].memory == Memory::Local && facts.is_inner_part(own.axis, held.as_ref());
                (is_held && in_shared(shared)).then_some(Wide::Tile { tv, from })
            }
            _ => None,
        }
    }
}

fn units_of_tensors(units: &[Vec<TvId>]) -> BTreeMap<TvId, usize> {
    map_of(units.iter().enumerate().flat_map(|(i, unit)| unit.iter().map(move |tv| (*tv, i))))
}
