//! What a run's events look like in its record: one form for every command that
//! runs cases.

use super::job::CaseResult;
use super::{Event, RunPlan};
use serde_json::{Value, json};

impl RunPlan {
    /// The short name of a slot; empty where no slot is meant.
    pub(crate) fn label(&self, slot: usize) -> &str {
        self.slots.get(slot).map_or("", |slot| slot.label.as_str())
    }

    /// The GPU of a slot, if it has one.
    pub(crate) fn uuid(&self, slot: usize) -> Option<&str> {
        Some(&self.slots.get(slot)?.gpu.as_ref()?.uuid)
    }

    /// Kind and fields of the record of what happened to a worker or slot.
    pub(crate) fn record(&self, event: &Event) -> Option<(&'static str, Value)> {
        Some(match event {
            Event::Spawned { slot, worker, pid } => (
                "worker",
                json!({ "event": "spawned", "worker_id": worker, "pid": pid, "slot": self.label(*slot), "gpu_uuid": self.uuid(*slot) }),
            ),
            Event::Ready { worker, device, notes, ready_ns, .. } => (
                "worker",
                json!({ "event": "ready", "worker_id": worker, "device": device, "notes": notes, "ready_ns": ready_ns }),
            ),
            Event::Ended { worker, reason, cases_run, .. } => {
                ("worker", json!({ "event": "ended", "worker_id": worker, "reason": reason, "cases_run": cases_run }))
            }
            Event::Retired { slot, code, reason } => {
                ("slot", json!({ "event": "retired", "slot": self.label(*slot), "code": code, "reason": reason }))
            }
            _ => return None,
        })
    }

    /// What every record of an attempt begins with: all that a replay needs.
    pub(crate) fn attempt(&self, result: &CaseResult) -> Value {
        json!({
            "case_id": result.case.id,
            "attempt": result.attempt,
            "repeat": result.repeat,
            "seed": result.seed,
            "worker_id": result.worker,
            "gpu_uuid": self.uuid(result.slot),
            "position": result.position,
            "start_ns": result.start_ns,
            "dur_ns": result.dur_ns,
            "verdict": result.outcome.verdict,
            "outcome": result.outcome.outcome,
        })
    }
}
