//! The loops of each tensor compute it.

use crate::axes::{AxisId, AxisRef, Domain, DomainLoop, Foreign, Place, Storage};
use crate::diag::{Diagnostic, Result, code};
use crate::schedule::ir::{Compute, Loop, Memory, ScheduledFusion, Tile, Tv, TvId, TvOp};

/// Elements of the longest array that a thread, or a block, has.
const MAX_ELEMENTS: i64 = 1 << 24;

/// Every tensor that is computed has loops, which lead to each of its elements once.
pub(super) fn check(scheduled: &ScheduledFusion) -> Result<()> {
    for (tv, data) in scheduled.tensors.iter().filter(|(_, data)| data.op.is_some()) {
        let domain = domain(scheduled, tv);
        // Of what is padded to one element the program gives the place.
        let is_open = |axis: AxisId| !scheduled.axes.reaches(axis, &|_| false);
        let needed = domain.logical.iter().filter_map(|axis| axis.indexed()).any(is_open) || !domain.reduced.is_empty();
        if data.loops.is_empty() && needed {
            let message = format!("the schedule gives %{} no loops", data.name);
            return Err(Diagnostic::user(code::SCHEDULE_INCOMPLETE, message)
                .note("`propagate` gives loops to all tensors, `loops` to one"));
        }
        scheduled.foreign_axes(tv)?;
        if elements(scheduled, data) > MAX_ELEMENTS {
            let message = format!("%{} would have more than {MAX_ELEMENTS} elements in an array", data.name);
            return Err(Diagnostic::unsupported(code::LAUNCH_LIMIT, message).note(scheduled.loops_text(tv)));
        }
    }
    Ok(())
}

impl ScheduledFusion {
    /// What the loops of a tensor run over beside its axes; refused where they do not compute it.
    pub(crate) fn foreign_axes(&self, tv: TvId) -> Result<Foreign> {
        let data = &self.tensors[tv];
        let storage = match data.memory {
            Memory::Global => Storage::Global,
            Memory::Shared if data.tile.is_some() => Storage::Shared,
            // Without a tile each thread has elements of its own, wherever they lie.
            Memory::Shared | Memory::Local => Storage::Registers,
        };
        domain(self, tv).covers(&self.axes, storage).map_err(|mut error| {
            error.code = code::SCHEDULE_LOOPS;
            error.message = format!("%{}: {}", data.name, error.message);
            error.note(self.loops_text(tv))
        })
    }
}

/// A tensor's axes and loops.
fn domain(scheduled: &ScheduledFusion, tv: TvId) -> Domain {
    let data = &scheduled.tensors[tv];
    let reduced = match &data.op {
        Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) => over.clone(),
        _ => Vec::new(),
    };
    // Lowering counts the blocks over which it reduces for each index of the other ones, so each of
    // these has a last block with the value: they are to it what threads are.
    let adds = data.op.as_ref().is_some_and(|op| matches!(op.compute, Compute::Reduce { .. }));
    let over = if adds { scheduled.reduced_leaves(tv) } else { Vec::new() };
    let place = |own: &Loop| match own.parallel {
        parallel if parallel.is_block() && (!adds || over.contains(&own.axis)) => Place::Block,
        parallel if parallel.is_loop() => Place::Serial,
        _ => Place::Thread,
    };
    let loops = data.loops.iter().map(|own| DomainLoop { axis: own.axis, place: place(own) });
    Domain {
        logical: data.axes.iter().copied().chain(data.partial.iter().map(|axis| AxisRef::Axis(*axis))).collect(),
        reduced,
        loops: loops.collect(),
        shared_loops: data.inline_at,
    }
}

/// Elements along the loops of a tensor that one thread runs over and that are constant, or of
/// its tile.
fn elements(scheduled: &ScheduledFusion, data: &Tv) -> i64 {
    let all = |axes: &[AxisId]| {
        let extents = axes.iter().filter_map(|axis| scheduled.axes.constant_extent(*axis));
        extents.fold(1, |n: i64, extent| n.saturating_mul(extent.max(1)))
    };
    let own = match &data.tile {
        Some(Tile { axes, columns }) => {
            let (outer, row) = axes.split_at(axes.len().saturating_sub(1));
            columns.places(all(outer), all(row)).unwrap_or(i64::MAX)
        }
        None => {
            let held = data.loops[data.inline_at.min(data.loops.len())..].iter();
            all(&held.filter(|own| own.parallel.is_loop()).map(|own| own.axis).collect::<Vec<_>>())
        }
    };
    own.saturating_mul(data.stages.max(1).into())
}
