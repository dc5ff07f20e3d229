//! All devices of a run, what runs on each, and who may use it now.

use super::super::health::Retirement;
use super::super::job::Job;
use super::super::turns::Turn;
use super::super::{Event, RunPlan};
use super::unit::Unit;
use crate::device::{Gpu, Nvml};
use crate::proto::Mode;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often the listener looks up.
pub(super) const TICK: Duration = Duration::from_millis(50);

pub(super) type Tell<'t> = &'t dyn Fn(Event);

/// All devices.
pub(in crate::dispatch) struct Fleet<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) started: Instant,
    pub(super) units: Vec<Unit>,
    of_slot: Vec<usize>,
    /// Slots that still run.
    pub(super) active: AtomicUsize,
    pub(super) listening: AtomicBool,
    /// Times that the listener heard nothing.
    pub(super) silences: AtomicU64,
    pub(super) events_have_failed: AtomicBool,
    /// Cases that made a device unusable: no second one may follow.
    pub(super) wedging: Mutex<BTreeSet<String>>,
}

impl<'a> Fleet<'a> {
    pub(in crate::dispatch) fn new(plan: &'a RunPlan, started: Instant) -> Self {
        let mut units: Vec<Unit> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut of_slot = Vec::new();
        for slot in &plan.slots {
            let name = slot.device_name();
            let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                units.push(Unit::new(slot));
                names.push(name);
                units.len() - 1
            });
            units[at].slots += 1;
            of_slot.push(at);
        }
        Self {
            plan,
            started,
            units,
            of_slot,
            active: AtomicUsize::new(plan.slots.len()),
            listening: AtomicBool::new(false),
            silences: AtomicU64::new(0),
            events_have_failed: AtomicBool::new(false),
            wedging: Mutex::new(BTreeSet::new()),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    pub(super) fn unit(&self, slot: usize) -> &Unit {
        &self.units[self.of_slot[slot]]
    }

    pub(super) fn nvml(&self) -> Option<&dyn Nvml> {
        self.plan.nvml.as_deref()
    }

    /// Why the slot's device is out of use, if it is.
    pub(in crate::dispatch) fn retirement(&self, slot: usize) -> Option<Retirement> {
        self.unit(slot).lock().health.retirement().cloned()
    }

    /// Takes the slot's device out of use.
    pub(in crate::dispatch) fn retire(&self, slot: usize, code: &'static str, reason: &str) {
        self.unit(slot).lock().health.retire(code, reason.into());
    }

    /// A worker of the slot has started.
    pub(in crate::dispatch) fn worker_started(&self, slot: usize, pid: u32) {
        self.unit(slot).lock().own.insert(slot, pid);
    }

    /// The slot takes cases as long as it holds this.
    pub(in crate::dispatch) fn active_slot(&self) -> ActiveSlot<'_> {
        ActiveSlot(&self.active)
    }

    /// A worker of the slot is gone, and with it whatever it ran.
    pub(in crate::dispatch) fn worker_ended(&self, slot: usize, worker: &str) {
        let now = self.now();
        let mut state = self.unit(slot).lock();
        state.own.remove(&slot);
        let left = state.ran.iter_mut().filter(|ran| ran.worker == worker && ran.end_ns.is_none());
        left.for_each(|ran| ran.end_ns = Some(now));
    }

    /// Whether a case must have its device alone: measurements, and what needs
    /// more memory than its share.
    fn alone(&self, unit: &Unit, job: &Job) -> bool {
        let share = unit.gpu.as_ref().and_then(Gpu::mem_free_bytes).map(|free| free / unit.slots as u64);
        let big = matches!((job.case.require.memory, share), (Some(needed), Some(share)) if needed > share);
        // A simulated device counts the same whoever else is at work.
        unit.gpu.is_some() && (self.plan.mode == Mode::Bench || job.case.perf.is_some() || big)
    }

    /// Waits until no measurement runs on the slot's device, and keeps others from
    /// beginning: to open the device disturbs it.
    pub(in crate::dispatch) fn share(&self, slot: usize, give_up: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        self.unit(slot).turns.take(false, give_up)
    }

    /// Waits until the case may run on the slot's device; `None` if `give_up` says so first.
    pub(in crate::dispatch) fn turn(&self, slot: usize, job: &Job, give_up: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        let unit = self.unit(slot);
        unit.turns.take(self.alone(unit, job), give_up)
    }
}

/// A slot at work. Given back however the slot ends, or the listener would wait for it.
pub(in crate::dispatch) struct ActiveSlot<'a>(&'a AtomicUsize);

impl Drop for ActiveSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
