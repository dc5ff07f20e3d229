//! Reductions across threads and blocks, as lowering combines them.

use super::{Check, batch_start};
use crate::diag::{Result, code};
use crate::schedule::ir::{Loop, ParallelType, TvId};
use std::collections::BTreeSet;

/// Threads of a warp.
const WARP: i64 = 32;

impl Check<'_> {
    /// The loops over which a tensor reduces.
    fn reduced(&self, tv: TvId) -> Vec<Loop> {
        let over = self.scheduled.reduced_leaves(tv);
        self.loops(tv).iter().copied().filter(|own| over.contains(&own.axis)).collect()
    }

    /// Whether a reduction is combined over blocks.
    pub(super) fn is_over_blocks(&self, tv: TvId) -> bool {
        !self.scheduled.reduced_blocks(tv).is_empty()
    }

    /// Whether lowering has a way to combine the values of a reduction.
    pub(super) fn reduction(&self, tv: TvId) -> Result<()> {
        let reduced = self.reduced(tv);
        let Some(across) = reduced.iter().find(|own| !own.parallel.is_loop()) else { return Ok(()) };
        if let Some(own) = reduced.iter().find(|own| own.parallel.is_loop()) {
            let message = format!(
                "%{} reduces within a thread, over {}, and across threads or blocks, over {}, at once",
                self.name(tv),
                self.axis(own.axis),
                self.axis(across.axis)
            );
            return Err(self.unsupported(message, "make steps of it with `rfactor`", &[tv]));
        }
        self.threads(tv, &reduced)?;
        // All values of a thread are combined at once, in the innermost loops.
        let loops = self.loops(tv);
        let (start, inline_at) = (batch_start(loops), self.scheduled.tensors[tv].inline_at);
        let misplaced = |at: usize, own: &Loop| match own.parallel {
            ParallelType::Serial => at >= inline_at,
            ParallelType::Unroll | ParallelType::Vectorize => at < start,
            _ => false,
        };
        if let Some((_, own)) = loops.iter().enumerate().find(|(at, own)| misplaced(*at, own)) {
            let axis = self.axis(own.axis);
            let message = format!("%{} is combined across threads inside of the loop over {axis}", self.name(tv));
            let note =
                "unrolled loops and vectors are its innermost ones, and serial ones are shared with who reads it";
            return Err(self.unsupported(message, note, &[tv]));
        }
        for from in self.scheduled.producers(tv) {
            if self.scheduled.tensors[from].computed_at() > start {
                let message = format!(
                    "%{} is inlined into {} loops of %{}, which takes all values of a thread at once",
                    self.name(from),
                    self.scheduled.tensors[from].computed_at(),
                    self.name(tv)
                );
                return Err(self
                    .wrong(code::SCHEDULE_INLINE, message, &[from, tv])
                    .note(format!("{start} loops are possible")));
            }
        }
        Ok(())
    }

    /// The threads across which values are combined.
    fn threads(&self, tv: TvId, reduced: &[Loop]) -> Result<()> {
        let places: Vec<ParallelType> =
            reduced.iter().map(|own| own.parallel).filter(|place| place.is_thread()).collect();
        let threads = |place| self.places.threads(self.scheduled, place);
        let refused =
            |what: String, note: &str| Err(self.unsupported(format!("%{} {what}", self.name(tv)), note, &[tv]));
        match *places.as_slice() {
            [] => Ok(()),
            [place @ ParallelType::Tidx] => {
                let n = threads(place);
                let is_right = if n < WARP { n.cast_unsigned().is_power_of_two() } else { n % WARP == 0 };
                let note = "whole warps are combined, or a power of two of threads below that";
                if is_right { Ok(()) } else { refused(format!("reduces over {n} threads along block_x"), note) }
            }
            [place @ ParallelType::Tidy] => {
                let n = threads(place);
                let is_right = n.cast_unsigned().is_power_of_two() && threads(ParallelType::Tidz) == 1;
                let note = "a power of two of threads along block_y is combined, with none along block_z";
                if is_right || n == 1 {
                    Ok(())
                } else {
                    refused(format!("reduces over {n} threads along block_y"), note)
                }
            }
            [_] => refused("reduces over threads along block_z".into(), "bind block_x or block_y"),
            _ => refused(
                format!("reduces over {} thread axes at once", places.len()),
                "merge the axes, or reduce over one after the other with `rfactor`",
            ),
        }
    }

    /// Whether lowering can combine reductions over blocks: where all blocks need the values, or the last one alone.
    pub(super) fn grid_reductions(&self) -> Result<()> {
        let grids: Vec<TvId> = self.scheduled.tensors.ids().filter(|tv| self.is_over_blocks(*tv)).collect();
        if grids.is_empty() {
            return Ok(());
        }
        for &tv in &grids {
            if self.scheduled.reduced_blocks(tv).len() > 1 {
                let message = format!("%{} reduces over two block axes at once", self.name(tv));
                return Err(self.unsupported(message, "merge the axes before binding them to blocks", &[tv]));
            }
        }
        if self.scheduled.blocks_wait() { self.waits(&grids) } else { self.last_blocks(&grids) }
    }

    /// All blocks meet at each reduction over blocks, as often as each other.
    fn waits(&self, grids: &[TvId]) -> Result<()> {
        let places = self.scheduled.launch_axes()?;
        let several = places.iter().find(|(place, axes)| place.is_block() && axes.len() > 1);
        if let Some((place, axes)) = several {
            let axes: Vec<&str> = axes.iter().map(|axis| self.axis(*axis)).collect();
            let message = format!(
                "all blocks wait for %{}, and tensors bind several axes to {}: {}",
                self.name(grids[0]),
                place.name(),
                axes.join(", ")
            );
            return Err(self.unsupported(message, "bind one axis there, so that all blocks do the same", &grids[..1]));
        }
        Ok(())
    }

    /// The value of a reduction over blocks exists in the last of them: all that depends on it is
    /// computed there, which is one branch.
    fn last_blocks(&self, grids: &[TvId]) -> Result<()> {
        let first = grids[0];
        let prefix = |tv: TvId| &self.loops(tv)[..batch_start(self.loops(tv))];
        for &tv in grids {
            let name = self.name(tv);
            if let Some(own) = prefix(tv).iter().find(|own| own.parallel.is_loop()) {
                let message = format!("%{name} is reduced over blocks inside of the loop over {}", self.axis(own.axis));
                return Err(self.unsupported(
                    message,
                    "its loops over blocks and threads are the outermost ones",
                    &[tv],
                ));
            }
            let places = |tv: TvId| self.reduced(tv).into_iter().collect::<BTreeSet<_>>();
            if prefix(tv) != prefix(first) || places(tv) != places(first) {
                let message = format!("%{} and %{name} are reduced over blocks in different loops", self.name(first));
                return Err(self.unsupported(message, "give reductions over blocks the same loops", &[first, tv]));
            }
        }
        let start = prefix(first).len();
        let mut behind: BTreeSet<TvId> = BTreeSet::new();
        for tv in self.scheduled.topological() {
            let reads_late = self.scheduled.producers(tv).iter().any(|from| behind.contains(from));
            if !reads_late && !grids.contains(&tv) {
                continue;
            }
            behind.insert(tv);
            if !self.consumers[tv].is_empty() && self.scheduled.tensors[tv].inline_at < start {
                let message = format!(
                    "%{} is known in the last block alone, but is inlined into {} loops of those who read it",
                    self.name(tv),
                    self.scheduled.tensors[tv].inline_at
                );
                return Err(self.wrong(code::SCHEDULE_VALUE, message, &[tv]).note(format!(
                    "inline it, and all that follows of it, into the {start} loops over blocks and threads"
                )));
            }
        }
        Ok(())
    }
}
