//! The devices of a run while it runs. Slots tell it what begins and ends on
//! them, a thread of its own listens to NVML, and from both it decides which
//! results count, which device must prove itself, and which one is out of use.
//!
//! Simulated devices are looked after in the same way, as far as they go: no
//! NVML, so no Xids and no loss, but canaries and suspicion.

mod ends;
mod listen;
mod unit;

pub(super) use ends::End;

use super::health::{Gone, Next};
use super::job::Job;
use super::turns::Turn;
use super::{Event, RunPlan};
use crate::device::{Gpu, Nvml};
use crate::proto::Mode;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use unit::Unit;

/// How often the listener looks up.
const TICK: Duration = Duration::from_millis(50);

type Tell<'t> = &'t dyn Fn(Event);

/// All devices.
pub(super) struct Fleet<'a> {
    plan: &'a RunPlan,
    started: Instant,
    units: Vec<Unit>,
    of_slot: Vec<usize>,
    /// Slots that still run.
    active: AtomicUsize,
    listening: AtomicBool,
    /// Times that the listener heard nothing.
    silences: AtomicU64,
    blind: AtomicBool,
    /// Cases that made a device unusable: no second one may follow.
    wedging: Mutex<BTreeSet<String>>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(plan: &'a RunPlan, started: Instant) -> Self {
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
            blind: AtomicBool::new(false),
            wedging: Mutex::new(BTreeSet::new()),
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn unit(&self, slot: usize) -> &Unit {
        &self.units[self.of_slot[slot]]
    }

    fn nvml(&self) -> Option<&dyn Nvml> {
        self.plan.nvml.as_deref()
    }

    /// Why the slot's device is out of use, if it is.
    pub(super) fn gone(&self, slot: usize) -> Option<Gone> {
        self.unit(slot).lock().health.gone().cloned()
    }

    /// Takes the slot's device out of use.
    pub(super) fn retire(&self, slot: usize, code: &'static str, reason: &str) {
        self.unit(slot).lock().health.retire(code, reason.into());
    }

    /// A worker of the slot has started.
    pub(super) fn born(&self, slot: usize, pid: u32) {
        self.unit(slot).lock().own.insert(slot, pid);
    }

    /// The slot takes cases as long as it holds this.
    pub(super) fn seat(&self) -> Seat<'_> {
        Seat(&self.active)
    }

    /// A worker of the slot is gone, and with it whatever it ran.
    pub(super) fn buried(&self, slot: usize, worker: &str) {
        let now = self.now();
        let mut state = self.unit(slot).lock();
        state.own.remove(&slot);
        let left = state.ran.iter_mut().filter(|ran| ran.worker == worker && ran.end_ns.is_none());
        left.for_each(|ran| ran.end_ns = Some(now));
    }

    /// Whether the slot's device must prove itself before it takes cases.
    pub(super) fn unproven(&self, slot: usize) -> bool {
        self.unit(slot).lock().health.unproven().is_some()
    }

    /// Whether the slot's new worker must sing first: then, whether it is to sing wrongly.
    pub(super) fn audition(&self, slot: usize) -> Option<bool> {
        let unit = self.unit(slot);
        unit.lock().health.unproven()?;
        match (self.nvml(), unit.uuid()) {
            (Some(nvml), Some(uuid)) => Some(nvml.spoils_canary(uuid)),
            _ => Some(false),
        }
    }

    /// The slot's new worker sang, or failed to. Whether it may take cases.
    pub(super) fn sang(
        &self,
        slot: usize,
        worker: &str,
        result: Result<(Option<bool>, String), String>,
        tell: Tell,
    ) -> bool {
        let unit = self.unit(slot);
        let mut state = unit.lock();
        let why = state.health.unproven().unwrap_or_default().to_string();
        let suspected = state.health.suspected() && state.tells_answer();
        let (verdict, detail) = match &result {
            Ok((Some(true), _)) => ("ok", String::new()),
            Ok((None, detail)) => ("skipped", detail.clone()),
            Ok((Some(false), detail)) | Err(detail) => ("failed", detail.clone()),
        };
        let judged = match result {
            Ok((Some(false), detail)) => Err(detail),
            Ok((ok, _)) => Ok(ok),
            Err(detail) => Err(detail),
        };
        let next = state.health.after_canary(judged);
        drop(state);
        let say = match (&next, verdict) {
            (Next::Go, "ok") if suspected => {
                Some(format!("{}: {why}; its canary sings, so the cases are to blame", unit.label))
            }
            (Next::Go, _) => None,
            (Next::Canary(_), _) => {
                Some(format!("{}: the canary failed ({detail}); once more in a new worker", unit.label))
            }
            (Next::Retire(gone), _) => Some(format!("{}: {}", unit.label, gone.reason)),
        };
        let fields = json!({
            "event": "canary", "device": unit.label, "gpu_uuid": unit.uuid(), "worker_id": worker, "why": why,
            "canary": verdict, "detail": detail, "next": word(&next), "t_run_ns": self.now(),
        });
        tell(Event::Record { kind: "health", fields, say });
        next == Next::Go
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
    pub(super) fn share(&self, slot: usize, give_up: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        self.unit(slot).turns.take(false, give_up)
    }

    /// Waits until the case may run on the slot's device; `None` if `give_up` says so first.
    pub(super) fn turn(&self, slot: usize, job: &Job, give_up: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        let unit = self.unit(slot);
        unit.turns.take(self.alone(unit, job), give_up)
    }
}

/// A slot at work. Given back however the slot ends, or the listener would wait for it.
pub(super) struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A decision as records have it.
fn word(next: &Next) -> &'static str {
    match next {
        Next::Go => "go",
        Next::Canary(_) => "canary",
        Next::Retire(_) => "retire",
    }
}
