//! What a worker of an earlier run did, from the run's record.

use crate::cli::Failure;
use crate::cli::args::{Args, Parsed, parse_recorded};
use crate::cli::runs;
use crate::exit;
use crate::record::read_events;
use engine::diag::{Diagnostic, code};
use serde_json::Value;
use std::collections::BTreeMap;

/// One case that a worker ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) case_id: String,
    pub(super) seed: u64,
    pub(super) repeat: u32,
    pub(super) attempt: u32,
    pub(super) verdict: String,
    pub(super) outcome: String,
    pub(super) gpu_uuid: Option<String>,
}

impl Ran {
    pub(super) fn failed(&self) -> bool {
        matches!(self.verdict.as_str(), "fail" | "crash" | "hang")
    }
    pub(super) fn killed(&self) -> bool {
        matches!(self.verdict.as_str(), "crash" | "hang")
    }
}

/// A run as far as a replay needs it.
pub(super) struct PastRun {
    pub(super) id: String,
    /// Its options.
    pub(super) args: Args,
    /// What each worker ran, in order.
    pub(super) workers: BTreeMap<String, Vec<Ran>>,
    /// Workers in the order of their first case.
    order: Vec<String>,
}

fn bad(message: impl Into<String>, note: impl Into<String>) -> Failure {
    Failure::diagnostic(exit::BAD_RUN, &Diagnostic::user(code::BAD_RUN, message).note(note))
}

impl PastRun {
    /// The run that a word names, as in `latest`.
    pub(super) fn read(args: &Args, word: &str) -> Result<Self, Failure> {
        let dir = runs::find(args, word)?.dir;
        let events = read_events(&dir.join("events.jsonl")).map_err(|error| {
            bad(format!("the record of run `{word}` cannot be read: {error}"), dir.display().to_string())
        })?;
        let header = std::fs::read_to_string(dir.join("run.json")).unwrap_or_default();
        let header: Value = serde_json::from_str(&header).unwrap_or(Value::Null);
        let words = |key: &str| -> Vec<String> {
            let words = header[key].as_array().map(Vec::as_slice).unwrap_or_default();
            words.iter().filter_map(Value::as_str).map(String::from).collect()
        };
        let then = match parse_recorded(&words("argv"), &words("from_env")) {
            Ok(Parsed::Args(then)) => *then,
            _ => return Err(bad(format!("the options of run `{word}` cannot be read"), "its header is damaged")),
        };
        let id = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut run = Self { id, args: then, workers: BTreeMap::new(), order: Vec::new() };
        events.records.iter().filter(|record| record["k"] == "attempt").for_each(|record| run.add(record));
        Ok(run)
    }

    fn add(&mut self, record: &Value) {
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_string();
        let worker = text("worker_id");
        if worker.is_empty() {
            return;
        }
        if !self.workers.contains_key(&worker) {
            self.order.push(worker.clone());
        }
        let number = |key: &str| record[key].as_u64().unwrap_or(0);
        self.workers.entry(worker).or_default().push(Ran {
            case_id: text("case_id"),
            seed: number("seed"),
            repeat: number("repeat") as u32,
            attempt: number("attempt") as u32,
            verdict: text("verdict"),
            outcome: text("outcome"),
            gpu_uuid: record["gpu_uuid"].as_str().map(String::from),
        });
    }

    /// Workers whose last case killed them.
    pub(super) fn dead(&self) -> Vec<&str> {
        let dead = |id: &&String| self.workers[*id].last().is_some_and(Ran::killed);
        self.order.iter().filter(dead).map(String::as_str).collect()
    }

    /// The worker that a word means: its id, `W3` for the fourth that ran
    /// anything, or, without a word, the only one that died.
    pub(super) fn worker(&self, word: Option<&str>) -> Result<&str, Failure> {
        let dead = self.dead();
        let list =
            |ids: &[&str]| if ids.is_empty() { "none died".to_string() } else { format!("died: {}", ids.join(", ")) };
        match word {
            Some(word) => {
                let nth = word.strip_prefix('W').and_then(|n| n.parse().ok()).and_then(|n: usize| self.order.get(n));
                let found = self.order.iter().find(|id| *id == word).or(nth);
                found
                    .map(String::as_str)
                    .ok_or_else(|| bad(format!("run {} has no worker `{word}` that ran a case", self.id), list(&dead)))
            }
            None => match dead[..] {
                [one] => Ok(one),
                [] => Err(bad(
                    format!("no worker of run {} died of a case", self.id),
                    "name one with --worker, and its failed case with --exact",
                )),
                _ => Err(bad(
                    format!("{} workers of run {} died", dead.len(), self.id),
                    list(&dead) + ": name one with --worker",
                )),
            },
        }
    }

    /// What a worker ran, up to its last failure, or up to the first failure of
    /// the case with that id.
    pub(super) fn history(&self, worker: &str, victim: Option<&str>) -> Result<&[Ran], Failure> {
        let all = self.workers.get(worker).map(Vec::as_slice).unwrap_or_default();
        let at = match victim {
            Some(id) => all.iter().position(|ran| ran.case_id == id && ran.failed()),
            None => all.iter().rposition(Ran::failed),
        };
        at.map(|at| &all[..=at]).ok_or_else(|| {
            let what = victim.map_or("a case".to_string(), |id| format!("`{id}`"));
            bad(
                format!("{what} did not fail in worker {worker} of run {}", self.id),
                format!("it ran {} cases", all.len()),
            )
        })
    }

    /// The history of the first failure of a case in any worker.
    pub(super) fn failure_of(&self, id: &str) -> Option<(&str, &[Ran])> {
        self.order.iter().find_map(|worker| Some((worker.as_str(), self.history(worker, Some(id)).ok()?)))
    }
}
