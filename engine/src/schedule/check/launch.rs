//! Blocks and threads: one launch for all tensors.

use super::Check;
use crate::axes::AxisId;
use crate::diag::{Diagnostic, Result, code};
use crate::schedule::ir::{Memory, ParallelType, ScheduledFusion, Tv};
use std::collections::BTreeMap;

/// Threads of a block, on every device.
const MAX_THREADS: i64 = 1024;
/// Threads of a block along z.
const MAX_THREADS_Z: i64 = 64;

/// The axes behind each place in the launch.
pub(super) struct Places {
    axes: BTreeMap<ParallelType, Vec<AxisId>>,
}

impl Places {
    /// Of the loops of all tensors, where a block has room for its threads.
    pub(super) fn new(scheduled: &ScheduledFusion) -> Result<Self> {
        let axes = scheduled.launch_axes()?;
        let threads = axes.iter().filter(|(place, _)| place.is_thread());
        let threads = threads.filter_map(|(_, axes)| scheduled.axes.constant_extent(*axes.first()?));
        let threads = threads.fold(1, i64::saturating_mul);
        if threads > MAX_THREADS {
            let message = format!("the schedule gives a block {threads} threads, more than {MAX_THREADS}");
            return Err(Diagnostic::unsupported(code::LAUNCH_LIMIT, message));
        }
        let deep = axes.get(&ParallelType::Tidz).and_then(|axes| scheduled.axes.constant_extent(*axes.first()?));
        if let Some(threads) = deep.filter(|threads| *threads > MAX_THREADS_Z) {
            let message = format!("block_z has {threads} threads, more than {MAX_THREADS_Z}");
            return Err(Diagnostic::unsupported(code::LAUNCH_LIMIT, message));
        }
        Ok(Self { axes })
    }

    /// Threads along a place; 1 where nothing is bound to it.
    pub(super) fn threads(&self, scheduled: &ScheduledFusion, place: ParallelType) -> i64 {
        self.axes.get(&place).and_then(|axes| scheduled.axes.constant_extent(*axes.first()?)).unwrap_or(1)
    }
}

impl Check<'_> {
    /// The first place in the launch of more than one index, among some, that loops do not bind.
    pub(super) fn missing_place(
        &self,
        loops: &[super::Loop],
        among: impl Fn(ParallelType) -> bool,
    ) -> Option<ParallelType> {
        let has_several = |axis: &AxisId| self.scheduled.axes.constant_extent(*axis) != Some(1);
        let several = self.places.axes.iter().filter(|(_, axes)| axes.iter().any(has_several));
        let mut wanted = several.map(|(place, _)| *place).filter(|place| among(*place));
        wanted.find(|place| !loops.iter().any(|own| own.parallel == *place))
    }

    /// What is written is written by one thread of one block.
    pub(super) fn outputs_have_places(&self) -> Result<()> {
        let is_written = |data: &Tv| data.memory == Memory::Global && data.op.is_some();
        for (tv, data) in self.scheduled.tensors.iter().filter(|(_, data)| is_written(data)) {
            if let Some(place) = self.missing_place(&data.loops, |_| true) {
                let axis =
                    self.places.axes.get(&place).and_then(|axes| axes.first()).map_or("", |axis| self.axis(*axis));
                let message = format!(
                    "the loops of %{} leave out {}, which {axis} runs over: all of it would write the same",
                    data.name,
                    place.name()
                );
                return Err(self.wrong(code::SCHEDULE_INCOMPLETE, message, &[tv]));
            }
        }
        Ok(())
    }
}
