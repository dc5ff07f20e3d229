//! Whether a schedule as a whole can be lowered.
//!
//! In: a scheduled fusion, whoever scheduled it. Out: nothing, or the first thing that is wrong
//! with it, with the axes concerned and the loops of the tensors. Verbs refuse what is wrong by
//! itself; here stands what only all of them together tell: tensors that no verb was about,
//! values that are not where they are read, threads that would write the same.
//!
//! * `loops`: the loops of each tensor compute it;
//! * `launch`: what runs in the launch is one thing for all tensors;
//! * `values`: what is read is there, in the thread that reads it;
//! * `reductions`: values are combined in an order that lowering has;
//! * `phases`: what all blocks wait for;
//! * `tiles`: elements that threads share are written once, and found again.
//!
//! Invariant: what passes is lowered to a kernel that verifies, or is refused as unsupported.

mod launch;
mod loops;
mod phases;
mod reductions;
mod sizes;
mod tiles;
mod values;

use super::inline::break_circles;
use super::ir::{Loop, ParallelType, ScheduledFusion, Tv, TvId};
use crate::axes::AxisId;
use crate::diag::{Code, Diagnostic, Result, code};
use crate::util::{DisjointSets, EntityId, SecondaryMap};
use launch::Places;

pub use sizes::check_sizes;
pub(crate) use sizes::greatest_index;

/// Refuses a schedule that is no way to compute the fusion.
pub fn check(scheduled: &ScheduledFusion) -> Result<()> {
    loops::check(scheduled)?;
    let places = Places::new(scheduled)?;
    let cx = Check { scheduled, places, consumers: scheduled.all_consumers() };
    cx.inlining()?;
    cx.added_in_time()?;
    cx.outputs_have_places()?;
    for tv in scheduled.tensors.ids().filter(|tv| scheduled.tensors[*tv].op.is_some()) {
        cx.tile(tv)?;
        cx.reads(tv)?;
        cx.held(tv)?;
        cx.shifts(tv)?;
        cx.reduction(tv)?;
    }
    cx.phases()?;
    cx.grid_reductions()
}

/// What the parts share.
struct Check<'a> {
    scheduled: &'a ScheduledFusion,
    places: Places,
    consumers: SecondaryMap<TvId, Vec<TvId>>,
}

impl Check<'_> {
    fn name(&self, tv: TvId) -> &str {
        &self.scheduled.tensors[tv].name
    }

    fn axis(&self, axis: AxisId) -> &str {
        &self.scheduled.axes[axis].name
    }

    fn loops(&self, tv: TvId) -> &[Loop] {
        &self.scheduled.tensors[tv].loops
    }

    /// A refusal with the loops of some tensors.
    fn wrong(&self, code: Code, message: String, tvs: &[TvId]) -> Box<Diagnostic> {
        tvs.iter().fold(Diagnostic::user(code, message), |error, tv| error.note(self.scheduled.loops_text(*tv)))
    }

    /// What lowering has no way for.
    fn unsupported(&self, message: String, note: &str, tvs: &[TvId]) -> Box<Diagnostic> {
        let error = Diagnostic::unsupported(code::SCHEDULE_VERB, message).note(note);
        tvs.iter().fold(error, |error, tv| error.note(self.scheduled.loops_text(*tv)))
    }

    /// Whether what reads a reduction stands in a loop over which that still adds: another value may
    /// hold both of them there.
    fn added_in_time(&self) -> Result<()> {
        let adds = |tv: TvId| {
            let over = self.scheduled.reduced_leaves(tv);
            self.loops(tv).iter().position(|own| own.parallel.is_loop() && over.contains(&own.axis))
        };
        for tv in self.scheduled.tensors.ids() {
            let Some(depth) = adds(tv) else { continue };
            let mut together = DisjointSets::new(self.scheduled.tensors.len());
            for (one, data) in self.scheduled.tensors.iter().filter(|(_, data)| data.io.is_none()) {
                if data.inline_at > depth {
                    self.consumers[one].iter().for_each(|user| together.union(one.index(), user.index()));
                } else if data.compute_with > depth {
                    let first = self.scheduled.first_consumer(one);
                    first.into_iter().for_each(|user| together.union(one.index(), user.index()));
                }
            }
            let same = |user: &&TvId| together.root(tv.index()) == together.root(user.index());
            if let Some(user) = self.consumers[tv].iter().find(same).copied() {
                let axis = self.axis(self.loops(tv)[depth].axis);
                let message = format!(
                    "%{} reads %{} in the loop over {axis} that adds it, since a value is inlined into both",
                    self.name(user),
                    self.name(tv)
                );
                return Err(self.wrong(code::SCHEDULE_INLINE, message, &[tv, user]));
            }
        }
        Ok(())
    }

    /// Whether loops that some tensors share need each other in a circle.
    fn inlining(&self) -> Result<()> {
        for (tv, data) in self.scheduled.tensors.iter().filter(|(_, data)| data.compute_with > 0) {
            if let Some(refusal) = self.scheduled.compute_with_refused(tv, data.compute_with) {
                let message = format!("%{} is to be computed with its first reader: {refusal}", data.name);
                return Err(self.wrong(code::SCHEDULE_INLINE, message, &[tv]));
            }
        }
        let mut positions = self.scheduled.positions();
        break_circles(self.scheduled, &mut positions);
        let with =
            |(tv, data): &(TvId, &Tv)| positions.first[*tv] < data.compute_with && positions.all[*tv] == data.inline_at;
        if let Some((tv, data)) = self.scheduled.tensors.iter().find(with) {
            let message = format!(
                "%{} is computed in {} loops of its first reader, which needs another one of them in a circle",
                data.name, data.compute_with
            );
            return Err(self.wrong(code::SCHEDULE_INLINE, message, &self.consumers[tv]));
        }
        let positions = positions.all;
        let lowered = self.scheduled.tensors.iter().find(|(tv, data)| positions[*tv] < data.inline_at);
        let Some((tv, data)) = lowered else { return Ok(()) };
        let message = format!(
            "{} is inlined into {} loops of its consumers, which then need each other in a circle",
            data.name, data.inline_at
        );
        let note = format!("{} loops are possible", positions[tv]);
        Err(self.wrong(code::SCHEDULE_INLINE, message, &self.consumers[tv]).note(note))
    }
}

/// The first loop behind which all are over the values that a thread has at once.
fn batch_start(loops: &[Loop]) -> usize {
    let at_once = |own: &Loop| matches!(own.parallel, ParallelType::Unroll | ParallelType::Vectorize);
    loops.len() - loops.iter().rev().take_while(|own| at_once(own)).count()
}
