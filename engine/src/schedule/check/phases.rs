//! What one phase of a kernel leaves to the next.

use super::Check;
use crate::diag::{Result, code};
use crate::schedule::ir::TvId;
use crate::util::{DisjointSets, EntityId};

impl Check<'_> {
    /// All blocks wait for each other between two phases, outside of all loops: so who reads what was written
    /// before shares none with who wrote it.
    pub(super) fn phases(&self) -> Result<()> {
        let scheduled = self.scheduled;
        let kept: Vec<TvId> = scheduled.tensors.ids().filter(|tv| scheduled.is_workspace(*tv)).collect();
        let Some(first) = kept.first() else { return Ok(()) };
        let is_grid = |tv: &TvId| self.is_over_blocks(*tv);
        if let Some(tv) = scheduled.tensors.ids().find(is_grid) {
            let message =
                format!("%{} is reduced over blocks, beside a phase after %{}", self.name(tv), self.name(*first));
            let note = "a kernel has one way over blocks; leave partial results to the next phase, with `rfactor` and `phase_after`";
            return Err(self.unsupported(message, note, &[tv]));
        }
        let mut together = DisjointSets::new(scheduled.tensors.len());
        for (tv, data) in scheduled.tensors.iter() {
            if data.inline_at > 0 {
                self.consumers[tv].iter().for_each(|user| together.union(tv.index(), user.index()));
            } else if data.compute_with > 0 {
                let user = scheduled.first_consumer(tv);
                user.into_iter().for_each(|user| together.union(tv.index(), user.index()));
            }
        }
        for tv in kept {
            let same = |user: &&TvId| together.root(tv.index()) == together.root(user.index());
            if let Some(user) = self.consumers[tv].iter().find(same) {
                let message = format!(
                    "%{} reads %{} in loops in which it is written, since a value is inlined into both",
                    self.name(*user),
                    self.name(tv)
                );
                return Err(self.wrong(code::SCHEDULE_INLINE, message, &[tv, *user]));
            }
        }
        Ok(())
    }
}
