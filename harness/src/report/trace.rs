//! A run as a timeline for Perfetto or `chrome://tracing`: a track for each slot
//! with the lives of its workers, and one with its cases and their phases.

use crate::record::{Attempt, Recorded};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The order of phases inside a case. Records hold their lengths only.
const PHASES: [&str; 11] =
    ["parse", "inputs", "reference", "schedule", "lower", "codegen", "load", "launch", "verify", "compare", "bench"];

/// The trace, in Chrome's JSON form.
pub(crate) fn trace(run: &Recorded) -> String {
    let mut tracks = Tracks::default();
    let mut events = vec![json!({
        "ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": { "name": format!("harness {}", run.id()) },
    })];
    let shift = shift(run);
    for (id, worker) in &run.workers {
        let track = tracks.of(&worker.slot, 0);
        let ready = worker.ready_ns.unwrap_or(worker.ended_ns.unwrap_or(run.last_ns));
        let args = json!({ "pid": worker.pid, "reason": worker.reason });
        events.push(span(track, &format!("start {id}"), "worker", worker.spawned_ns, ready, &args));
        let ended = worker.ended_ns.unwrap_or(run.last_ns);
        events.push(span(track, id, "worker", ready, ended, &args));
        if let Some(ns) = worker.ended_ns {
            let name = format!("end of {id}: {}", worker.reason);
            events.push(
                json!({ "ph": "i", "s": "t", "pid": 1, "tid": track, "ts": us(ns), "name": name, "cat": "worker" }),
            );
        }
    }
    for (id, case) in &run.cases {
        for attempt in &case.attempts {
            let slot = run.workers.get(&attempt.worker_id).map_or(attempt.worker_id.as_str(), |worker| &worker.slot);
            // A case that no worker had has no place on a track.
            if !attempt.worker_id.is_empty() {
                self::attempt(&mut events, tracks.of(slot, 1), id, attempt, shift);
            }
        }
    }
    for record in run.others.iter().filter(|record| matches!(record["k"].as_str(), Some("health" | "xid" | "slot"))) {
        let kind = record["k"].as_str().unwrap_or_default();
        let ns = record["t_ns"].as_u64().unwrap_or(0);
        let name = record["reason"].as_str().or(record["event"].as_str()).unwrap_or(kind);
        events.push(
            json!({ "ph": "i", "s": "g", "pid": 1, "tid": 0, "ts": us(ns), "name": name, "cat": kind, "args": record }),
        );
    }
    events.extend(tracks.names());
    let other =
        json!({ "run_id": run.id(), "started_utc": run.header["started_utc"], "provenance": run.header["provenance"] });
    let text = json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": other });
    format!("{text}\n")
}

/// Attempts count from the start of the dispatcher, records from that of the log:
/// an attempt is recorded right behind its end.
fn shift(run: &Recorded) -> u64 {
    let attempts = run.cases.values().flat_map(|case| &case.attempts).filter(|a| !a.worker_id.is_empty());
    attempts.map(|a| a.t_ns.saturating_sub(a.start_ns + a.dur_ns)).min().unwrap_or(0)
}

fn attempt(events: &mut Vec<Value>, track: u64, id: &str, attempt: &Attempt, shift: u64) {
    let start = attempt.start_ns + shift;
    let args = json!({
        "verdict": attempt.verdict,
        "outcome": attempt.outcome,
        "attempt": attempt.attempt,
        "repeat": attempt.repeat,
        "worker": attempt.worker_id,
        "detail": attempt.detail.lines().next().unwrap_or_default(),
    });
    events.push(span(track, id, &attempt.verdict, start, start + attempt.dur_ns, &args));
    let order = |name: &str| PHASES.iter().position(|known| *known == name).unwrap_or(PHASES.len());
    let mut phases: Vec<(&String, u64)> = attempt.phases.iter().map(|(name, ns)| (name, *ns)).collect();
    phases.sort_by_key(|(name, _)| order(name));
    let mut at = start;
    for (name, ns) in phases {
        // Phases may overlap in truth; on the track they stay inside of their case.
        let end = (at + ns).min(start + attempt.dur_ns);
        events.push(span(track, name, "phase", at, end, &json!({ "ns": ns })));
        at = end;
    }
}

fn span(track: u64, name: &str, category: &str, from_ns: u64, to_ns: u64, args: &Value) -> Value {
    let length = us(to_ns.saturating_sub(from_ns));
    json!({ "ph": "X", "pid": 1, "tid": track, "ts": us(from_ns), "dur": length, "name": name, "cat": category, "args": args })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Numbers of tracks: workers and cases of a slot lie beside each other.
#[derive(Default)]
struct Tracks(BTreeMap<String, u64>);

impl Tracks {
    fn of(&mut self, slot: &str, which: u64) -> u64 {
        let next = self.0.len() as u64;
        let slot = slot.split("-w").next().unwrap_or(slot);
        1 + 2 * *self.0.entry(slot.to_string()).or_insert(next) + which
    }

    fn names(&self) -> Vec<Value> {
        let name = |track: u64, name: String| {
            [
                json!({ "ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": { "name": name } }),
                json!({ "ph": "M", "pid": 1, "tid": track, "name": "thread_sort_index", "args": { "sort_index": track } }),
            ]
        };
        let both = |(slot, index): (&String, &u64)| {
            let first = 1 + 2 * index;
            name(first, format!("{slot} workers")).into_iter().chain(name(first + 1, format!("{slot} cases")))
        };
        self.0.iter().flat_map(both).collect()
    }
}
