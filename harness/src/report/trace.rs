//! Runs as a timeline for Perfetto or `chrome://tracing`: a process for each run,
//! in it a track for each slot with the lives of its workers, and one with its
//! cases and their phases. Several runs lie at the times at which they began, to
//! the second.

use crate::record::{Attempt, Recorded, seconds_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The order of phases inside a case. Records hold their lengths only.
const PHASES: [&str; 17] = [
    "begin",
    "parse",
    "inputs",
    "reference",
    "plan",
    "schedule",
    "lower",
    "codegen",
    "load",
    "upload",
    "launch",
    "verify",
    "download",
    "compare",
    "bench",
    "report",
    "rest",
];

/// The trace, in Chrome's JSON form.
pub(crate) fn trace(runs: &[Recorded]) -> String {
    let began = |run: &Recorded| run.header.started_utc.as_deref().and_then(seconds_of);
    let first = runs.iter().filter_map(began).min().unwrap_or(0);
    let mut events = Vec::new();
    for (pid, run) in (1..).zip(runs) {
        let since = u64::try_from(began(run).unwrap_or(first) - first).unwrap_or(0);
        Process { run, pid, offset_ns: since.saturating_mul(1_000_000_000), tracks: Tracks::default() }
            .write(&mut events);
    }
    let all = |of: &dyn Fn(&Recorded) -> Value| match runs {
        [one] => of(one),
        many => many.iter().map(of).collect(),
    };
    let other = json!({
        "run_id": all(&|run| run.id().into()),
        "started_utc": all(&|run| json!(run.header.started_utc)),
        "provenance": all(&|run| json!(run.header.provenance)),
    });
    let text = json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": other });
    format!("{text}\n")
}

/// The events of one run.
struct Process<'a> {
    run: &'a Recorded,
    pid: u64,
    /// Between the start of the first run and that of this one.
    offset_ns: u64,
    tracks: Tracks,
}

impl Process<'_> {
    fn write(mut self, events: &mut Vec<Value>) {
        let run = self.run;
        let name = format!("harness {}", run.id());
        events.push(json!({ "ph": "M", "pid": self.pid, "tid": 0, "name": "process_name", "args": { "name": name } }));
        self.workers(events);
        let shift = shift(run);
        for (id, case) in &run.cases {
            for attempt in case.attempts.iter().filter(|attempt| attempt.carried_from.is_none()) {
                let worker = run.workers.get(&attempt.worker_id);
                let slot = worker.map_or(attempt.worker_id.as_str(), |worker| &worker.slot);
                // A case that no worker had has no place on a track.
                if !attempt.worker_id.is_empty() {
                    let track = self.tracks.of(slot, 1);
                    self.attempt(events, track, id, attempt, shift);
                }
            }
        }
        for record in run.others.iter().filter(|record| matches!(record["k"].as_str(), Some("health" | "xid" | "slot")))
        {
            let kind = record["k"].as_str().unwrap_or_default();
            let ns = record["t_ns"].as_u64().unwrap_or(0);
            let name = record["reason"].as_str().or(record["event"].as_str()).unwrap_or(kind);
            let mut event = self.instant(0, name, kind, ns);
            (event["s"], event["args"]) = ("g".into(), record.clone());
            events.push(event);
        }
        events.extend(self.tracks.names(self.pid));
    }

    fn workers(&mut self, events: &mut Vec<Value>) {
        let run = self.run;
        for (id, worker) in &run.workers {
            let track = self.tracks.of(&worker.slot, 0);
            let ready = worker.ready_ns.unwrap_or(worker.ended_ns.unwrap_or(run.last_ns));
            let args = json!({ "pid": worker.pid, "reason": worker.reason });
            events.push(self.span(track, &format!("start {id}"), "worker", (worker.spawned_ns, ready), &args));
            let ended = worker.ended_ns.unwrap_or(run.last_ns);
            events.push(self.span(track, id, "worker", (ready, ended), &args));
            if let Some(ns) = worker.ended_ns {
                let name = format!("end of {id}: {}", worker.reason);
                events.push(self.instant(track, &name, "worker", ns));
            }
        }
    }

    fn attempt(&self, events: &mut Vec<Value>, track: u64, id: &str, attempt: &Attempt, shift: u64) {
        let start = attempt.start_ns.saturating_add(shift);
        let last = start.saturating_add(attempt.dur_ns);
        let args = json!({
            "verdict": attempt.verdict,
            "outcome": attempt.outcome,
            "attempt": attempt.attempt,
            "repeat": attempt.repeat,
            "worker": attempt.worker_id,
            "detail": attempt.detail.lines().next().unwrap_or_default(),
        });
        events.push(self.span(track, id, &attempt.verdict, (start, last), &args));
        let order = |name: &str| PHASES.iter().position(|known| *known == name).unwrap_or(PHASES.len());
        let mut phases: Vec<(&String, u64)> = attempt.phases.iter().map(|(name, ns)| (name, *ns)).collect();
        phases.sort_by_key(|(name, _)| order(name));
        let mut at = start;
        for (name, ns) in phases {
            // Phases may overlap in truth; on the track they stay inside of their case.
            let end = at.saturating_add(ns).min(last);
            events.push(self.span(track, name, "phase", (at, end), &json!({ "ns": ns })));
            at = end;
        }
    }

    fn span(&self, track: u64, name: &str, category: &str, (from_ns, to_ns): (u64, u64), args: &Value) -> Value {
        let (start, length) = (us(from_ns.saturating_add(self.offset_ns)), us(to_ns.saturating_sub(from_ns)));
        json!({ "ph": "X", "pid": self.pid, "tid": track, "ts": start, "dur": length, "name": name, "cat": category, "args": args })
    }

    fn instant(&self, track: u64, name: &str, category: &str, ns: u64) -> Value {
        let at = us(ns.saturating_add(self.offset_ns));
        json!({ "ph": "i", "s": "t", "pid": self.pid, "tid": track, "ts": at, "name": name, "cat": category })
    }
}

/// Attempts count from the start of the dispatcher, records from that of the log:
/// an attempt is recorded right behind its end.
fn shift(run: &Recorded) -> u64 {
    let attempts = run
        .cases
        .values()
        .flat_map(|case| &case.attempts)
        .filter(|a| !a.worker_id.is_empty() && a.carried_from.is_none());
    attempts.map(|a| a.t_ns.saturating_sub(a.start_ns.saturating_add(a.dur_ns))).min().unwrap_or(0)
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

    fn names(&self, pid: u64) -> Vec<Value> {
        let name = |track: u64, name: String| {
            [
                json!({ "ph": "M", "pid": pid, "tid": track, "name": "thread_name", "args": { "name": name } }),
                json!({ "ph": "M", "pid": pid, "tid": track, "name": "thread_sort_index", "args": { "sort_index": track } }),
            ]
        };
        let both = |(slot, index): (&String, &u64)| {
            let first = 1 + 2 * index;
            name(first, format!("{slot} workers")).into_iter().chain(name(first + 1, format!("{slot} cases")))
        };
        self.0.iter().flat_map(both).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of one slot with one case, that began so many seconds past noon.
    fn run(id: &str, second: u64) -> Recorded {
        let mut run = Recorded::default();
        let began = format!("2030-01-31T12:00:{second:02}Z");
        run.push(json!({ "k": "run", "run_id": id, "started_utc": began }));
        run.push(json!({ "k": "worker", "event": "spawned", "worker_id": "sim0-w0", "slot": "sim0", "t_ns": 1000 }));
        run.push(json!({ "k": "attempt", "case_id": "A.a", "worker_id": "sim0-w0", "t_ns": 9000, "dur_ns": 2000,
            "start_ns": 5000, "verdict": "pass" }));
        run
    }

    /// Each run has tracks of its own, at its own time.
    #[test]
    fn several_runs_lie_beside_each_other() {
        let trace: Value = serde_json::from_str(&trace(&[run("late", 7), run("early", 5)])).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("events");
        let of = |name: &str| -> Vec<(u64, u64, f64)> {
            let of = events.iter().filter(|event| event["ph"] == "X" && event["name"] == name);
            let place = |e: &Value| Some((e["pid"].as_u64()?, e["tid"].as_u64()?, e["ts"].as_f64()?));
            of.map(|event| place(event).expect("a place")).collect()
        };
        assert_eq!(of("A.a"), [(1, 2, 2_000_007.0), (2, 2, 7.0)]);
        assert_eq!(of("start sim0-w0"), [(1, 1, 2_000_001.0), (2, 1, 1.0)]);
        let named = |e: &&Value| e["name"] == "process_name";
        let names: Vec<&str> = events.iter().filter(named).filter_map(|e| e["args"]["name"].as_str()).collect();
        assert_eq!(names, ["harness late", "harness early"]);
        assert_eq!(trace["otherData"]["run_id"], json!(["late", "early"]));
    }
}
