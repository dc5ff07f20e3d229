//! Where values are computed: inside of how many loops of those who read them.
//!
//! The verbs that say so, and what keeps the loops of a computation free of circles.
//!
//! A tensor that is computed inside the first `n` loops of its users puts all
//! of them into one loop nest down to depth `n`. If one user needs another
//! through a value that is kept outside those loops (`y = f(x)`, `z = y - x`,
//! with `y` kept in an array for a wide store and `x` inlined into both), the
//! nest would have to stand both before and after that value.
//!
//! At each depth the tensors that share the next loop form groups. A circle of
//! groups is broken by keeping a tensor with several users in an array too:
//! without such tensors a group is a tree towards one value, and a circle of
//! groups would be a circle of values.

use super::builder::ScheduleBuilder;
use super::ir::{Compute, Loop, Memory, ParallelType, ScheduledFusion, Step, TvId, TvOp};
use super::stages::Stages;
use crate::diag::{Diagnostic, Result, code};
use crate::util::{DisjointSets, SecondaryMap};

impl ScheduleBuilder {
    /// Computes a tensor inside the first `position` loops of its consumers.
    pub fn inline_at(&mut self, tv: TvId, position: usize) -> Result<()> {
        let consumers = self.scheduled.consumers(tv);
        self.inline_with_consumers(tv, position, &consumers)
    }

    /// The same, for who knows its consumers: to find them looks at all tensors.
    pub(super) fn inline_with_consumers(&mut self, tv: TvId, position: usize, consumers: &[TvId]) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        if data.memory == Memory::Global && position > 0 {
            let message = format!("{} is in memory of the device, which nothing is computed around", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_INLINE, message));
        }
        self.check_inline(tv, position, consumers)?;
        self.set_inline(tv, position);
        Ok(())
    }

    /// Gives a tensor loops and an inline position, unless those who are computed inside of them,
    /// or around whom it is computed, have others there.
    pub(super) fn take_loops(&mut self, tv: TvId, loops: Vec<Loop>, position: usize) -> Result<()> {
        let data = &mut self.scheduled.tensors[tv];
        let before = (std::mem::replace(&mut data.loops, loops), std::mem::replace(&mut data.inline_at, position));
        let placed = self.check_placed(tv);
        if placed.is_err() {
            let data = &mut self.scheduled.tensors[tv];
            (data.loops, data.inline_at) = before;
        }
        placed
    }

    /// Whether a tensor and what it reads can be where they are inlined.
    fn check_placed(&self, tv: TvId) -> Result<()> {
        let mut inside = std::iter::once(tv).chain(self.scheduled.producers(tv));
        inside.try_for_each(|tv| {
            self.check_inline(tv, self.scheduled.tensors[tv].inline_at, &self.scheduled.consumers(tv))
        })
    }

    /// What is wrong with where tensors are inlined.
    pub(super) fn broken_inlining(&self) -> Option<Box<Diagnostic>> {
        let consumers = self.scheduled.all_consumers();
        let wrong = |tv: TvId| self.check_inline(tv, self.scheduled.tensors[tv].inline_at, &consumers[tv]).err();
        self.scheduled.tensors.ids().find_map(wrong)
    }

    /// Whether a tensor can be computed inside of so many loops of its consumers.
    fn check_inline(&self, tv: TvId, position: usize, consumers: &[TvId]) -> Result<()> {
        if position == 0 {
            return Ok(());
        }
        let most = self.max_inline(tv, consumers);
        if position <= most {
            return Ok(());
        }
        let name = &self.scheduled.tensors[tv].name;
        let message = format!("{name} can share {most} loops with its consumers, not {position}");
        let error = self.with_loops(Diagnostic::user(code::SCHEDULE_INLINE, message), &[tv]);
        Err(self.with_loops(error, consumers))
    }

    /// Computes a tensor inside the first `position` loops of the first of its consumers, and holds it inside
    /// those of [`inline_at`](Self::inline_at) for the others, which come later.
    pub fn compute_with(&mut self, tv: TvId, position: usize) -> Result<()> {
        if let Some(refusal) = self.scheduled.compute_with_refused(tv, position) {
            let message = format!("compute_with %{} {position}: {refusal}", self.scheduled.tensors[tv].name);
            let error = self.with_loops(Diagnostic::user(code::SCHEDULE_INLINE, message), &[tv]);
            return Err(self.with_loops(error, &self.scheduled.consumers(tv)));
        }
        self.scheduled.tensors[tv].compute_with = position;
        let tensor = self.scheduled.tensors[tv].name.clone();
        self.scheduled.steps.push(Step::ComputeWith { tensor, position });
        Ok(())
    }

    fn set_inline(&mut self, tv: TvId, position: usize) {
        self.scheduled.tensors[tv].inline_at = position;
        let tensor = self.scheduled.tensors[tv].name.clone();
        self.scheduled.steps.push(Step::InlineAt { tensor, position });
    }

    /// Inlines every tensor as deeply as the stages of the computation allow,
    /// but those of `keep` only to the given position, and random numbers only to
    /// the vector that a block of the generator serves. A tensor that is used in
    /// two stages is kept in registers between them.
    pub fn inline_most(&mut self, keep: &[(TvId, usize)]) -> Result<()> {
        let stages = Stages::new(&self.scheduled);
        let consumers = self.scheduled.all_consumers();
        let mut positions = self.scheduled.positions();
        for tv in self.scheduled.tensors.ids().filter(|tv| self.scheduled.tensors[*tv].memory != Memory::Global) {
            let mut position = self.max_inline(tv, &consumers[tv]);
            if stages.crosses(tv) {
                position = position.min(self.outer_prefix(tv));
            }
            if let Some((_, limit)) = keep.iter().find(|(kept, _)| *kept == tv) {
                position = position.min(*limit);
            }
            position = position.min(self.outside_vector(tv));
            positions.all.set(tv, position);
        }
        break_circles(&self.scheduled, &mut positions);
        for tv in self.scheduled.tensors.ids() {
            if self.scheduled.tensors[tv].memory != Memory::Global {
                // Not above what was possible: circles are broken by lower positions.
                self.set_inline(tv, positions.all[tv]);
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
}

impl ScheduledFusion {
    /// What keeps a tensor from being computed in so many loops of the first that reads it.
    pub(super) fn compute_with_refused(&self, tv: TvId, position: usize) -> Option<String> {
        let data = &self.tensors[tv];
        let Some(first) = self.first_consumer(tv) else { return Some("nothing reads it".into()) };
        let theirs = &self.tensors[first].loops;
        let common = data.loops.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let is_input = |from: &TvId| self.tensors[*from].memory == Memory::Global;
        if data.op.is_none() || data.memory == Memory::Global {
            Some("it is in memory of the device".into())
        } else if self.is_reduction(tv) {
            Some("it is combined before anybody reads it".into())
        } else if data.tile.is_some() || data.stages > 0 {
            Some("threads share it, or it is loaded ahead".into())
        } else if position <= data.inline_at {
            Some(format!("it is inlined into {} loops already", data.inline_at))
        } else if position > common {
            Some(format!("it shares {common} loops with %{}, the first that reads it", self.tensors[first].name))
        } else if self.producers(tv).iter().any(|from| !is_input(from) && self.tensors[*from].computed_at() > position)
        {
            Some("what it reads is inlined into more loops of it".into())
        } else {
            None
        }
    }

    /// The first of those that read a tensor, as they are computed.
    pub(crate) fn first_consumer(&self, tv: TvId) -> Option<TvId> {
        let consumers = self.consumers(tv);
        match consumers.as_slice() {
            [] | [_] => consumers.first().copied(),
            _ => self.topological().into_iter().find(|user| consumers.contains(user)),
        }
    }

    /// Where values are inlined.
    pub(super) fn positions(&self) -> Positions {
        let mut positions = Positions::default();
        for (tv, data) in self.tensors.iter() {
            positions.all.set(tv, data.inline_at);
            positions.first.set(tv, data.compute_with);
        }
        positions
    }
}

/// The loops that tensors share with those who read them.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions {
    /// With all of them.
    pub(super) all: SecondaryMap<TvId, usize>,
    /// With the first.
    pub(super) first: SecondaryMap<TvId, usize>,
}

/// Lowers inline positions until no loop nests depend on each other in a circle.
pub(super) fn break_circles(scheduled: &ScheduledFusion, positions: &mut Positions) {
    let order = scheduled.topological();
    let mut place: SecondaryMap<TvId, usize> = SecondaryMap::new();
    order.iter().enumerate().for_each(|(at, tv)| place.set(*tv, at));
    let consumers = scheduled.all_consumers();
    let users: Vec<Vec<usize>> =
        order.iter().map(|tv| consumers[*tv].iter().map(|user| place[*user]).collect()).collect();
    let mut all: Vec<usize> = order.iter().map(|tv| positions.all[*tv]).collect();
    let mut first: Vec<usize> = order.iter().map(|tv| positions.first[*tv]).collect();
    for depth in 0..all.iter().chain(&first).copied().max().unwrap_or(0) {
        loop {
            let circle = in_circles(&users, (&all, &first), depth);
            let mut tensors = (0..order.len()).filter(|at| circle[*at] && users[*at].len() > 1);
            let Some(bridge) = tensors.find(|at| all[*at] > depth || first[*at] > depth) else { break };
            all[bridge] = all[bridge].min(depth);
            first[bridge] = first[bridge].min(depth);
        }
    }
    for (at, tv) in order.into_iter().enumerate() {
        positions.all.set(tv, all[at]);
        positions.first.set(tv, first[at]);
    }
}

/// Which tensors' groups at a depth lie on circles, or between two. Tensors are
/// numbered in topological order.
fn in_circles(users: &[Vec<usize>], (all, first): (&[usize], &[usize]), depth: usize) -> Vec<bool> {
    // A group is named by its first member.
    let mut groups = DisjointSets::new(users.len());
    for (tv, users) in users.iter().enumerate() {
        if all[tv] > depth {
            users.iter().for_each(|user| groups.union(tv, *user));
        } else if first[tv] > depth {
            users.iter().min().into_iter().for_each(|user| groups.union(tv, *user));
        }
    }
    let group: Vec<usize> = (0..users.len()).map(|tv| groups.find(tv)).collect();
    let (mut needs, mut needed_by) = (vec![Vec::new(); users.len()], vec![Vec::new(); users.len()]);
    for (tv, users) in users.iter().enumerate() {
        for user in users.iter().filter(|user| group[tv] != group[**user]) {
            needed_by[group[tv]].push(group[*user]);
            needs[group[*user]].push(group[tv]);
        }
    }
    // A group that needs no live group, or that no live group needs, is on no circle.
    let mut live = vec![true; users.len()];
    for (from, to) in [(&needs, &needed_by), (&needed_by, &needs)] {
        let mut waiting: Vec<usize> =
            from.iter().map(|others| others.iter().filter(|other| live[**other]).count()).collect();
        let mut free: Vec<usize> = (0..live.len()).filter(|group| live[*group] && waiting[*group] == 0).collect();
        while let Some(group) = free.pop() {
            live[group] = false;
            for &other in to[group].iter().filter(|other| live[**other]) {
                waiting[other] -= 1;
                if waiting[other] == 0 {
                    free.push(other);
                }
            }
        }
    }
    group.iter().map(|group| live[*group]).collect()
}
