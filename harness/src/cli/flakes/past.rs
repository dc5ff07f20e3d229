//! What a worker of an earlier run did, from the run's record.

use crate::cli::Failure;
use crate::cli::args::{Args, Parsed, parse_over, parse_recorded};
use crate::cli::runs;
use crate::cli::session::Folders;
use crate::exit;
use crate::record::{RunInfo, scan};
use engine::diag::{Diagnostic, code};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
    /// Its command line, and what its environment gave beside that.
    argv: Vec<String>,
    from_env: Vec<String>,
    /// The folder that its paths are meant from, and its case files there.
    cwd: Option<PathBuf>,
    cases: PathBuf,
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
    pub(super) fn read(results: &Path, word: &str) -> Result<Self, Failure> {
        let RunInfo { id, dir, header, .. } = runs::find(results, word)?;
        let unread =
            |error| bad(format!("the record of run `{word}` cannot be read: {error}"), dir.display().to_string());
        header.check_schema().map_err(unread)?;
        let unknown = |note: &str| bad(format!("the options of run `{word}` cannot be read"), note);
        // Without them the failure would be looked for under others.
        let argv = header.argv.ok_or_else(|| unknown("its header is gone or damaged"))?;
        let from_env = header.from_env.unwrap_or_default();
        if !matches!(parse_recorded(&argv, &from_env), Ok(Parsed::Args(_))) {
            return Err(unknown("they are of another version"));
        }
        let cwd = header.cwd.map(PathBuf::from);
        let cases = header.cases_dir.map(PathBuf::from).unwrap_or_default();
        let (workers, order) = (BTreeMap::new(), Vec::new());
        let mut run = Self { id, argv, from_env, cwd, cases, workers, order };
        // Record by record: a log may be larger than the memory.
        let each = |record: Value| {
            if record["k"] == "attempt" {
                run.add(&record);
            }
        };
        scan(&dir.join("events.jsonl"), each).map_err(unread)?;
        Ok(run)
    }

    /// The options of a command that repeats it: those of the run, with what is said
    /// now otherwise.
    pub(super) fn options(&self, now: &Args) -> Result<Args, Failure> {
        let here = std::env::current_dir().ok();
        let there = |path: &Path| self.cwd.as_ref().filter(|cwd| Some(*cwd) != here.as_ref()).map(|cwd| cwd.join(path));
        // A record that came from another machine is repeated with what is here.
        let settled = |path: &Path| there(path).filter(|path| path.exists());
        let settle = |path: &str| match settled(Path::new(path)) {
            Some(path) => path.to_string_lossy().into_owned(),
            None => path.to_string(),
        };
        let mut args = parse_over(now, &self.argv, &self.from_env, &settle)?;
        if !Folders::of(&args).cases.exists() && args.select.cases.is_none() {
            args.select.cases = settled(&self.cases);
        }
        Ok(args)
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

    /// The cases that killed workers, each with the first worker that it killed. A case that kills is
    /// tried again in fresh workers, which die as well: what came before it, only the first one tells.
    fn killers(&self) -> Vec<(&str, &str)> {
        let mut killers: Vec<(&str, &str)> = Vec::new();
        for worker in self.dead() {
            let case = self.workers[worker].last().map_or("", |ran| ran.case_id.as_str());
            if !killers.iter().any(|(known, _)| *known == case) {
                killers.push((case, worker));
            }
        }
        killers
    }

    /// The worker that a word means: its id, `W3` for the fourth that ran
    /// anything, or, without a word, the first that died, if all died of one case.
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
            None => match self.killers()[..] {
                [(_, worker)] => Ok(worker),
                [] => Err(bad(
                    format!("no worker of run {} died of a case", self.id),
                    "name one with --worker, and its failed case with --exact",
                )),
                ref killers => {
                    let each: Vec<_> = killers.iter().map(|(case, worker)| format!("{worker} of {case}")).collect();
                    let message = format!("workers of run {} died of {} cases", self.id, killers.len());
                    Err(bad(message, format!("died: {}: name one with --worker", each.join(", "))))
                }
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
            let what = victim.map_or("no case failed".to_string(), |id| format!("`{id}` did not fail"));
            bad(format!("{what} in worker {worker} of run {}", self.id), format!("it ran {} cases", all.len()))
        })
    }

    /// The history of the first failure of a case in any worker.
    pub(super) fn failure_of(&self, id: &str) -> Option<(&str, &[Ran])> {
        self.order.iter().find_map(|worker| Some((worker.as_str(), self.history(worker, Some(id)).ok()?)))
    }
}
