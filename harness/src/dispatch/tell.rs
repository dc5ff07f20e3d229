//! What a run's events look like in its record and on a terminal: one form for
//! every command that runs cases. What an attempt or a verdict is worth beyond
//! [`RunPlan::attempt`] is the command's own.

use super::worker_end::leak_fields;
use super::{Event, RunPlan};
use crate::escape::escape;
use crate::outcome::{CaseResult, Leak};
use serde_json::{Value, json};

/// What is to be recorded and said of an event.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    /// Kinds and fields.
    pub(crate) records: Vec<(&'static str, Value)>,
    pub(crate) lines: Vec<Line>,
    /// Whether the record should reach the disk soon.
    pub(crate) urgent: bool,
}

/// A line for people.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// Equal for what repeated cases make happen again and again.
    pub(crate) gist: String,
}

impl Line {
    fn once(text: String) -> Self {
        Self { gist: text.clone(), text }
    }
}

impl RunPlan {
    /// The short name of a slot; empty where no slot is meant.
    pub(crate) fn label(&self, slot: usize) -> &str {
        self.slots.get(slot).map_or("", |slot| slot.label.as_str())
    }

    /// The GPU of a slot, if it has one.
    pub(crate) fn uuid(&self, slot: usize) -> Option<&str> {
        Some(&self.slots.get(slot)?.gpu.as_ref()?.uuid)
    }

    /// What is to be recorded and said of an event.
    pub(crate) fn tell(&self, event: &Event) -> Notice {
        let mut told = Notice { records: self.record(event).into_iter().collect(), ..Notice::default() };
        match event {
            Event::Finished(result) => {
                let id = &result.case.id;
                for leak in &result.outcome.leaks {
                    told.records.push(("leak", leak_fields(Some(&result.worker), Some(id), leak)));
                    told.lines.push(Line { text: left(leak, id), gist: format!("{}: {id}", leak.name) });
                }
                told.urgent = result.death.is_some();
            }
            Event::Ended { worker, worker_end, .. } => {
                told.records.extend(worker_end.records(worker));
                if let Some((outcome, death)) = worker_end.crash.as_deref() {
                    let text = format!("{}: {worker}: {}", outcome.outcome, outcome.detail);
                    let last = death.prior_cases.last().map_or("", String::as_str);
                    told.lines.push(Line { text, gist: format!("{}: {last}", outcome.outcome) });
                }
                let leaks = worker_end.leaks.iter().map(|leak| (leak, worker.as_str()));
                for (leak, by) in leaks.chain(worker_end.unclear.iter().map(|leak| (leak, SEVERAL))) {
                    let what = leak.detail.split(" (").next().unwrap_or_default();
                    told.lines.push(Line { text: left(leak, by), gist: format!("{}: {what}", leak.name) });
                }
                told.urgent = worker_end.crash.is_some();
            }
            Event::Record { say: Some(say), .. } => told.lines.push(Line::once(say.clone())),
            Event::Retired { slot, reason, .. } => {
                told.lines.push(Line::once(format!("{} takes no more cases: {reason}", self.label(*slot))));
            }
            _ => {}
        }
        told
    }

    /// Kind and fields of the record of what happened to a worker, slot or device.
    fn record(&self, event: &Event) -> Option<(&'static str, Value)> {
        Some(match event {
            Event::Spawned { slot, worker, pid, .. } => (
                "worker",
                json!({ "event": "spawned", "worker_id": worker, "pid": pid, "slot": self.label(*slot), "gpu_uuid": self.uuid(*slot) }),
            ),
            Event::Ready { worker, device, notes, ready_ns, .. } => (
                "worker",
                json!({ "event": "ready", "worker_id": worker, "device": device, "notes": notes, "ready_ns": ready_ns }),
            ),
            Event::Ended { worker, reason, cases_run, worker_end, .. } => (
                "worker",
                json!({ "event": "ended", "worker_id": worker, "reason": reason, "cases_run": cases_run, "code_cache": worker_end.code, "going_ns": worker_end.going_ns }),
            ),
            Event::Retired { slot, code, reason } => {
                ("slot", json!({ "event": "retired", "slot": self.label(*slot), "code": code, "reason": reason }))
            }
            Event::Record { kind, fields, .. } => (kind, fields.clone()),
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
            "gpu_uuid": result.slot.and_then(|slot| self.uuid(slot)),
            "position": result.position,
            "start_ns": result.start_ns,
            "dur_ns": result.dur_ns,
            "verdict": result.outcome.verdict,
            "outcome": result.outcome.outcome,
            "held_to": result.outcome.held_to,
        })
    }
}

/// Who left what nobody is charged with.
const SEVERAL: &str = "one of the workers that ended in this moment";

/// A leak, in words.
fn left(leak: &Leak, by: &str) -> String {
    format!("{}: {by} left {}", leak.name, escape(&leak.detail, ""))
}
