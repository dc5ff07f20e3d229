//! What a run that was killed or stopped has done, and what is open.

use super::determinism::{SeenClass, seen};
use super::header::{Provenance, RecordedShard};
use super::layout::check_id;
use super::rebuild::rows;
use super::recorded::{Attempt, Recorded, RecordedCase, is_open};
use super::rows::CaseRow;
use super::runs::{RunInfo, RunState};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A verdict that a new run takes over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) verdict: String,
    pub(crate) outcome: String,
    /// What a pass rests on, where that is known.
    pub(crate) passed_by: Option<String>,
    pub(crate) detail: String,
    /// Of each attempt.
    pub(crate) outcomes: Vec<String>,
    pub(crate) failures: u64,
    pub(crate) dur_ns: u64,
    /// The run in which the case ran.
    pub(crate) run: String,
}

/// A run to go on with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resumed {
    /// The run that is gone on with.
    pub(crate) run_id: String,
    pub(crate) dir: PathBuf,
    /// Its command line, and what its environment added.
    pub(crate) argv: Vec<String>,
    pub(crate) from_env: Vec<String>,
    /// CRC of the case files then.
    pub(crate) cases_crc: String,
    /// The folder in which the command was given, where it is known.
    pub(crate) cwd: Option<String>,
    pub(crate) git_sha: Option<String>,
    /// Of its harness, as its header has it.
    pub(crate) provenance: Provenance,
    /// Names the history of its device.
    pub(crate) device: Option<String>,
    /// All ids that were selected; nothing if the run came not so far.
    pub(crate) selected: BTreeSet<String>,
    /// Ids that it was to run as well, by `--rerun`, and left out.
    pub(crate) outstanding: Vec<String>,
    /// Of which job it is a part, and what that selected.
    pub(crate) shard: Option<RecordedShard>,
    pub(crate) job: Vec<String>,
    /// Finished cases by id.
    pub(crate) done: BTreeMap<String, Done>,
    /// What was tried of cases without a verdict: each attempt that the machine did
    /// not spoil, in order.
    pub(crate) tried: BTreeMap<String, Vec<Attempt>>,
    /// What its harness did not live to add to the history.
    pub(crate) rows: Vec<CaseRow>,
    pub(crate) seen: Vec<SeenClass>,
}

impl Resumed {
    /// Reads a run. An error says why it cannot be gone on with.
    pub(crate) fn read(info: &RunInfo) -> Result<Self, String> {
        match info.state {
            RunState::Live => return Err("a harness is running it at this moment".into()),
            RunState::Unreadable => return Err("it has no events.jsonl".into()),
            RunState::Complete | RunState::Aborted | RunState::Killed => {}
        }
        let run = info.load().map_err(|error| error.to_string())?;
        let mut resumed = Self { dir: info.dir.clone(), ..Self::of(&run)? };
        if info.state == RunState::Killed {
            resumed.rows = rows(&run).into_iter().filter(|row| resumed.done.contains_key(&row.case_id)).collect();
            resumed.seen = seen(&run).into_iter().filter(|seen| resumed.done.contains_key(&seen.case_id)).collect();
        }
        // What the run did not live to note, or lost, an earlier one may know.
        let mut whole = run.selection();
        let mut tried = Tried::default();
        tried.add(&run);
        resumed.add_earlier(info, &run, &mut whole, &mut tried);
        resumed.tried = tried.of_open(&resumed.done);
        if resumed.selected.is_empty() && resumed.done.is_empty() {
            return Err("it ended before it had selected cases: there is nothing to take over".into());
        }
        whole?;
        // One that was killed right before its end has all verdicts, and nobody was told.
        let all = !resumed.selected.is_empty() && resumed.selected.iter().all(|id| resumed.done.contains_key(id));
        if all && info.state == RunState::Complete {
            return Err("it is complete: every selected case has its verdict".into());
        }
        Ok(resumed)
    }

    /// What the runs had done that this one went on with: it may have been killed
    /// before it had taken over all of that.
    fn add_earlier(&mut self, info: &RunInfo, run: &Recorded, whole: &mut Result<(), String>, tried: &mut Tried) {
        let mut earlier = run.header.resumes.clone();
        let mut seen = BTreeSet::from([info.id.clone()]);
        while let Some(id) = earlier.take().filter(|id| check_id(id).is_ok() && seen.insert(id.clone())) {
            let Some(dir) = info.dir.parent().map(|runs| runs.join(&id)) else { return };
            let Ok(run) = Recorded::load(&dir) else { return };
            for (case_id, case) in run.cases.iter().filter(|(_, case)| finished(case, &run)) {
                self.done.entry(case_id.clone()).or_insert_with(|| taken_over(case, &id));
            }
            tried.add(&run);
            if whole.is_err() && run.selection().is_ok() && !run.selected.is_empty() {
                self.selected = run.selected.iter().cloned().collect();
                self.outstanding.clone_from(&run.outstanding);
                self.job.clone_from(&run.job);
                *whole = Ok(());
            }
            earlier.clone_from(&run.header.resumes);
        }
    }

    fn of(run: &Recorded) -> Result<Self, String> {
        let header = &run.header;
        if let mode @ ("hunt" | "why" | "replay" | "selftest") = header.mode() {
            return Err(format!("a {mode} is not resumed: it decides from what it has seen"));
        }
        let argv = header.argv.clone().ok_or("its header is lost, and with it the command line")?;
        let selected: BTreeSet<String> = run.selected.iter().cloned().collect();
        let run_id = run.id().to_string();
        let done = run.cases.iter().filter(|(_, case)| finished(case, run));
        let done: BTreeMap<_, _> = done.map(|(id, case)| (id.clone(), taken_over(case, &run_id))).collect();
        Ok(Self {
            argv,
            from_env: header.from_env.clone().unwrap_or_default(),
            cases_crc: header.cases_crc.clone().unwrap_or_default(),
            cwd: header.cwd.clone(),
            git_sha: Some(header.commit().to_string()).filter(|sha| !sha.is_empty()),
            selected,
            outstanding: run.outstanding.clone(),
            shard: header.shard.clone(),
            job: run.job.clone(),
            done,
            tried: BTreeMap::new(),
            rows: Vec::new(),
            seen: Vec::new(),
            provenance: header.provenance.clone().unwrap_or_default(),
            device: run.device(),
            dir: PathBuf::new(),
            run_id,
        })
    }
}

/// Attempts at cases, over a run and those that it went on with, the last one first.
#[derive(Default)]
struct Tried {
    attempts: BTreeMap<String, Vec<Attempt>>,
    /// Cases of which a run had noted what those before it had tried.
    known: BTreeSet<String>,
}

impl Tried {
    /// Adds what a run tried before what the later ones did.
    fn add(&mut self, run: &Recorded) {
        for (id, case) in run.cases.iter().filter(|(_, case)| !finished(case, run)) {
            if self.known.contains(id) {
                continue;
            }
            if case.attempts.iter().any(|attempt| attempt.carried_from.is_some()) {
                self.known.insert(id.clone());
            }
            let own = case.attempts.iter().filter(|attempt| attempt.judges()).map(|attempt| carried(attempt, run));
            let all = own.chain(self.attempts.remove(id).unwrap_or_default()).collect();
            self.attempts.insert(id.clone(), all);
        }
    }

    fn of_open(mut self, done: &BTreeMap<String, Done>) -> BTreeMap<String, Vec<Attempt>> {
        self.attempts.retain(|id, all| !done.contains_key(id) && !all.is_empty());
        self.attempts
    }
}

/// An attempt with what only its own run's record tells: its name, and the worker's slot.
fn carried(attempt: &Attempt, run: &Recorded) -> Attempt {
    let mut carried = attempt.clone();
    if carried.carried_from.is_none() {
        carried.carried_from = Some(run.id().into());
        carried.slot = run.workers.get(&carried.worker_id).map(|worker| worker.slot.clone()).unwrap_or_default();
    }
    carried
}

/// A case is finished when its verdict is recorded. In logs of runs that record
/// no verdicts its only attempt counts. One that was not run is open.
fn finished(case: &RecordedCase, run: &Recorded) -> bool {
    let (_, outcome, _) = case.verdict();
    !is_open(outcome) && (case.concluded.is_some() || !run.header.records_verdicts())
}

fn taken_over(case: &RecordedCase, run_id: &str) -> Done {
    let (verdict, outcome, detail) = case.verdict();
    let run = case.concluded.as_ref().and_then(|c| c.carried_from.as_deref()).unwrap_or(run_id);
    Done {
        verdict: verdict.into(),
        outcome: outcome.into(),
        passed_by: case.passed_by().map(String::from),
        detail: detail.into(),
        outcomes: case.outcomes(),
        failures: case.failures(),
        dur_ns: case.dur_ns(),
        run: run.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventLog;
    use super::*;
    use crate::scratch::Scratch;
    use serde_json::{Value, json};
    use std::path::Path;

    /// A killed run of three cases whose record names only so many; one passed.
    fn killed(root: &Path, id: &str, named: usize, resumes: Option<&str>) -> RunInfo {
        let dir = root.join(id);
        std::fs::create_dir_all(&dir).expect("a folder");
        let mut log = EventLog::create(&dir.join("events.jsonl")).expect("creates");
        let header = json!({ "run_id": id, "mode": "run", "argv": [], "resumes": resumes, "cases_selected": 3,
            "schema": { "major": 1, "minor": 1 } });
        log.append("run", &header).expect("writes");
        log.append("selected", &json!({ "of": 3, "ids": &["A.a", "A.b", "A.c"][..named] })).expect("writes");
        let verdict = json!({ "case_id": "A.a", "verdict": "pass", "outcome": "pass", "attempts": 1 });
        log.append("verdict", &verdict).expect("writes");
        RunInfo { state: RunState::Killed, ..RunInfo::look(&dir).expect("looks") }
    }

    /// Adds attempts at a case to a killed run: outcomes, one letter each.
    fn attempts(dir: &Path, id: &str, carried: Option<Value>, letters: &str) -> RunInfo {
        let mut log = EventLog::create(&dir.join("more")).expect("creates");
        if let Some(attempts) = carried {
            log.append("earlier", &json!({ "case_id": id, "attempts": attempts })).expect("writes");
        }
        for (number, letter) in letters.chars().enumerate() {
            let verdict = ["pass", "fail", "infra"].into_iter().find(|word| word.starts_with(letter));
            let record = json!({ "case_id": id, "attempt": number, "worker_id": "w", "verdict": verdict });
            log.append("attempt", &record).expect("writes");
        }
        drop(log);
        let more = std::fs::read(dir.join("more")).expect("reads");
        std::fs::remove_file(dir.join("more")).expect("removes");
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.join("events.jsonl"))
            .and_then(|mut file| std::io::Write::write_all(&mut file, &more))
            .expect("writes");
        RunInfo { state: RunState::Killed, ..RunInfo::look(dir).expect("looks") }
    }

    /// Failures of a case without a verdict are taken over, through any number of
    /// runs and once each; what the machine spoiled is not.
    #[test]
    fn what_was_tried_before_the_verdict_is_known() {
        let root = Scratch::new("tried");
        let tried = |info: &RunInfo, id: &str| {
            let resumed = Resumed::read(info).expect("can be gone on with");
            let of = |a: &Attempt| (a.verdict.clone(), a.carried_from.clone().unwrap_or_default());
            resumed.tried.get(id).map(|all| all.iter().map(of).collect::<Vec<_>>()).unwrap_or_default()
        };
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(verdict, run)| (verdict.to_string(), run.to_string())).collect()
        };
        let first = killed(&root, "first", 3, None);
        attempts(&first.dir, "A.a", None, "f");
        attempts(&first.dir, "A.c", None, "p");
        let first = attempts(&first.dir, "A.b", None, "if");
        assert_eq!(tried(&first, "A.b"), own(&[("fail", "first")]));
        // One with a verdict is done.
        assert_eq!((tried(&first, "A.a"), tried(&first, "A.c")), (vec![], own(&[("pass", "first")])));
        // Killed before it had noted what the first run tried, and after.
        let second = killed(&root, "second", 3, Some("first"));
        assert_eq!(tried(&second, "A.b"), own(&[("fail", "first")]));
        let noted = json!([{ "verdict": "fail", "carried_from": "first" }]);
        let second = attempts(&second.dir, "A.b", Some(noted), "p");
        assert_eq!(tried(&second, "A.b"), own(&[("fail", "first"), ("pass", "second")]));
        let third = killed(&root, "third", 3, Some("second"));
        assert_eq!(tried(&third, "A.b"), own(&[("fail", "first"), ("pass", "second")]));
    }

    #[test]
    fn a_selection_that_is_not_all_there_is_that_of_the_run_before_or_none() {
        let root = Scratch::new("resume");
        let read = |run: &RunInfo| Resumed::read(run).map(|resumed| resumed.selected.len());
        let first = killed(&root, "first", 3, None);
        assert_eq!(read(&first), Ok(3));
        assert_eq!(read(&killed(&root, "second", 1, Some("first"))), Ok(3));
        let why = read(&killed(&root, "third", 1, None)).expect_err("is refused");
        assert!(why.contains("of the 3 cases that it selected its record names 1"), "{why}");
    }
}
