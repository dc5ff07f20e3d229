//! Kernels in two phases: what blocks make of rows, and, when all rows are done, what they make of what all have left.
//!
//! In: a schedule whose first phase ends in workspaces ([`ScheduleBuilder::phase_after`]). Out: which tensors are computed in the
//! second phase, with what they read of parameters, and the loops of each phase for all tensors of it.

use crate::diag::Result;
use crate::schedule::{AxisId, Compute, Loop, ParallelType, ScheduleBuilder, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// The root axes over which a tensor is reduced, if it is.
pub(super) fn reduced_over(scheduled: &ScheduledFusion, tv: TvId) -> Option<BTreeSet<AxisId>> {
    match &scheduled.tensors[tv].op.as_ref()?.compute {
        Compute::Reduce { over, .. } => Some(over.iter().copied().collect()),
        _ => None,
    }
}

/// Tensors and all that is computed of them.
pub(super) fn descendants(scheduled: &ScheduledFusion, of: &[TvId]) -> BTreeSet<TvId> {
    let mut found: BTreeSet<TvId> = of.iter().copied().collect();
    for tv in scheduled.topological() {
        if scheduled.producers(tv).iter().any(|producer| found.contains(producer)) {
            found.insert(tv);
        }
    }
    found
}

/// What is computed of what one phase leaves in workspaces; what that reads of parameters is computed anew.
pub(super) fn split_off(builder: &mut ScheduleBuilder, workspaces: &[TvId]) -> Result<BTreeSet<TvId>> {
    let mut later = descendants(builder.state(), workspaces);
    workspaces.iter().for_each(|workspace| {
        later.remove(workspace);
    });
    let mut stack: Vec<TvId> = later.iter().copied().collect();
    while let Some(tv) = stack.pop() {
        let state = builder.state();
        let is_earlier =
            |read: &TvId| !later.contains(read) && !workspaces.contains(read) && state.tensors[*read].op.is_some();
        let read: BTreeSet<TvId> = state.producers(tv).into_iter().filter(is_earlier).collect();
        for read in read {
            let own = match builder.state().consumers(read).iter().all(|user| later.contains(user)) {
                true => read,
                false => builder.cache_fork(read, &[tv])?,
            };
            later.insert(own);
            stack.push(own);
        }
    }
    Ok(later)
}

/// Gives every tensor its loops among those of the phase in which it is computed.
pub(super) fn set_loops(
    builder: &mut ScheduleBuilder,
    later: &BTreeSet<TvId>,
    first: &[Loop],
    second: &[Loop],
) -> Result<()> {
    for tv in builder.state().tensors.ids().collect::<Vec<_>>() {
        if builder.state().tensors[tv].op.is_some() {
            let order = if later.contains(&tv) { second } else { first };
            builder.set_loops(tv, &loops_among(builder.state(), tv, order))?;
        }
    }
    Ok(())
}

/// Loops of those axes that there are.
pub(super) fn loops_of<const N: usize>(order: [(Option<AxisId>, ParallelType); N]) -> Vec<Loop> {
    order.into_iter().filter_map(|(axis, parallel)| Some(Loop { axis: axis?, parallel })).collect()
}

/// Of some loops those over threads and blocks, and those on which a tensor depends, or over which it is reduced.
fn loops_among(state: &ScheduledFusion, tv: TvId, order: &[Loop]) -> Vec<Loop> {
    let over: BTreeSet<AxisId> = reduced_over(state, tv).unwrap_or_default();
    let is_over = |axis: AxisId| over.iter().any(|whole| *whole == axis || state.axes.derives_from(axis, *whole));
    let is_own = |own: &Loop| !own.parallel.is_loop() || state.depends(tv, own.axis) || is_over(own.axis);
    order.iter().copied().filter(is_own).collect()
}
