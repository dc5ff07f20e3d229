//! Events of repeated cases as records and progress. There are many of them and
//! most pass: a pass is recorded with what a replay needs, and no more.

use crate::dispatch::{CaseResult, Event, RunPlan};
use crate::proto::DeviceSpec;
use crate::record::RunStore;
use crate::report::Progress;
use crate::verdict::Verdict;
use serde_json::json;

/// The record and the view of a run.
pub(super) struct Log<'a> {
    plan: &'a RunPlan,
    store: &'a mut RunStore,
    pub(super) progress: Progress,
    /// Attempts that were recorded.
    pub(super) attempts: u64,
    /// Codes with which slots refused their device, and why.
    pub(super) refused: Vec<(String, String)>,
}

impl<'a> Log<'a> {
    pub(super) fn new(plan: &'a RunPlan, store: &'a mut RunStore, progress: Progress) -> Self {
        Self { plan, store, progress, attempts: 0, refused: Vec::new() }
    }

    fn label(&self, slot: usize) -> &str {
        self.plan.slots.get(slot).map_or("", |slot| slot.label.as_str())
    }

    fn uuid(&self, slot: usize) -> Option<&str> {
        match &self.plan.slots.get(slot)?.device {
            DeviceSpec::Cuda { uuid, .. } => Some(uuid),
            _ => None,
        }
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Tick => {}
            Event::Started { slot, case } => self.progress.started(*slot, &case.id),
            Event::Finished(result) => self.attempt(result),
            Event::Spawned { slot, worker, pid } => {
                let fields = json!({ "event": "spawned", "worker_id": worker, "pid": pid, "slot": self.label(*slot), "gpu_uuid": self.uuid(*slot) });
                self.store.append("worker", &fields);
            }
            Event::Ready { worker, device, notes, ready_ns, .. } => {
                let fields = json!({ "event": "ready", "worker_id": worker, "device": device, "notes": notes, "ready_ns": ready_ns });
                self.store.append("worker", &fields);
            }
            Event::Ended { slot, worker, reason, cases_run, farewell } => {
                let fields = json!({ "event": "ended", "worker_id": worker, "reason": reason, "cases_run": cases_run });
                self.store.append("worker", &fields);
                for (kind, fields) in farewell.records(worker) {
                    self.store.append(kind, &fields);
                }
                self.progress.idle(*slot, "");
            }
            Event::Retired { slot, code, reason } => {
                let label = self.label(*slot).to_string();
                self.store
                    .append("slot", &json!({ "event": "retired", "slot": label, "code": code, "reason": reason }));
                self.progress.say(&format!("{label} takes no more cases: {reason}"));
                self.refused.push((code.clone(), reason.clone()));
            }
            _ => {}
        }
    }

    fn attempt(&mut self, result: &CaseResult) {
        self.attempts += 1;
        let outcome = &result.outcome;
        let mut fields = json!({
            "case_id": result.case.id,
            "attempt": result.attempt,
            "repeat": result.repeat,
            "seed": result.seed,
            "worker_id": result.worker,
            "gpu_uuid": self.uuid(result.slot),
            "position": result.position,
            "start_ns": result.start_ns,
            "dur_ns": result.dur_ns,
            "verdict": outcome.verdict,
            "outcome": outcome.outcome,
        });
        if outcome.verdict != Verdict::Pass {
            fields["detail"] = json!(outcome.detail);
            fields["phases"] = json!(outcome.phases);
            fields["numerics"] = json!(outcome.numerics);
            fields["death"] = json!(result.death);
        }
        self.store.append("attempt", &fields);
        if result.death.is_some() {
            self.store.sync();
        }
    }
}
