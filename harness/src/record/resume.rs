//! What a run that was killed or stopped has done, and what is open.

use super::history::Row;
use super::layout::check_id;
use super::rebuild::rows;
use super::recorded::{Recorded, RecordedCase};
use super::runs::{RunInfo, State};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A verdict that a new run takes over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) verdict: String,
    pub(crate) outcome: String,
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
    /// Its command line, and what its environment added.
    pub(crate) argv: Vec<String>,
    pub(crate) from_env: Vec<String>,
    /// CRC of the case files then.
    pub(crate) cases_crc: String,
    /// The folder in which the command was given, where it is known.
    pub(crate) cwd: Option<String>,
    pub(crate) git_sha: Option<String>,
    /// All ids that were selected; nothing if the run came not so far.
    pub(crate) selected: BTreeSet<String>,
    /// Finished cases by id.
    pub(crate) done: BTreeMap<String, Done>,
    /// What its harness did not live to add to the history.
    pub(crate) rows: Vec<Row>,
}

impl Resumed {
    /// Reads a run. An error says why it cannot be gone on with.
    pub(crate) fn read(info: &RunInfo) -> Result<Self, String> {
        match info.state {
            State::Live => return Err("a harness is running it at this moment".into()),
            State::Unreadable => return Err("it has no events.jsonl".into()),
            State::Complete | State::Aborted | State::Killed => {}
        }
        let run = info.load().map_err(|error| error.to_string())?;
        let mut resumed = Self::of(&run)?;
        if info.state == State::Killed {
            resumed.rows = rows(&run).into_iter().filter(|row| resumed.done.contains_key(&row.case_id)).collect();
        }
        resumed.add_earlier(info, &run);
        if resumed.selected.is_empty() && resumed.done.is_empty() {
            return Err("it ended before it had selected cases: there is nothing to take over".into());
        }
        // One that was killed right before its end has all verdicts, and nobody was told.
        let all = !resumed.selected.is_empty() && resumed.selected.iter().all(|id| resumed.done.contains_key(id));
        if all && info.state == State::Complete {
            return Err("it is complete: every selected case has its verdict".into());
        }
        Ok(resumed)
    }

    /// What the runs had done that this one went on with: it may have been killed
    /// before it had taken over all of that.
    fn add_earlier(&mut self, info: &RunInfo, run: &Recorded) {
        let mut earlier = run.header["resumes"].as_str().map(String::from);
        let mut seen = BTreeSet::from([info.id.clone()]);
        while let Some(id) = earlier.take().filter(|id| check_id(id).is_ok() && seen.insert(id.clone())) {
            let Some(dir) = info.dir.parent().map(|runs| runs.join(&id)) else { return };
            let Ok(run) = Recorded::load(&dir) else { return };
            for (case_id, case) in run.cases.iter().filter(|(_, case)| finished(case, &run)) {
                self.done.entry(case_id.clone()).or_insert_with(|| taken_over(case, &id));
            }
            if self.selected.is_empty() {
                self.selected = run.selected.iter().cloned().collect();
            }
            earlier = run.header["resumes"].as_str().map(String::from);
        }
    }

    fn of(run: &Recorded) -> Result<Self, String> {
        let header = &run.header;
        let text = |key: &str| header[key].as_str().map(String::from);
        let words = |list: &[Value]| list.iter().filter_map(|word| word.as_str().map(String::from)).collect();
        if let mode @ Some("hunt" | "why" | "replay" | "selftest") = header["mode"].as_str() {
            return Err(format!(
                "a {} is not gone on with: it decides from what it has seen",
                mode.unwrap_or_default()
            ));
        }
        let argv = header["argv"].as_array().ok_or("its header is lost, and with it the command line")?;
        let selected: BTreeSet<String> = run.selected.iter().cloned().collect();
        let run_id = run.id().to_string();
        let done = run.cases.iter().filter(|(_, case)| finished(case, run));
        let done: BTreeMap<_, _> = done.map(|(id, case)| (id.clone(), taken_over(case, &run_id))).collect();
        Ok(Self {
            argv: words(argv),
            from_env: header["from_env"].as_array().map(|list| words(list)).unwrap_or_default(),
            cases_crc: text("cases_crc").unwrap_or_default(),
            cwd: text("cwd"),
            git_sha: header["provenance"]["git_sha"].as_str().map(String::from),
            selected,
            done,
            rows: Vec::new(),
            run_id,
        })
    }
}

/// A case is finished when its verdict is recorded. In logs of runs that record
/// no verdicts its only attempt counts. One that was not run is open.
fn finished(case: &RecordedCase, run: &Recorded) -> bool {
    let (_, outcome, _) = case.verdict();
    let open = ["", "skip.deadline", "infra.worker_spawn"].contains(&outcome) || outcome.starts_with("not_run");
    let verdicts = run.header["schema"]["minor"].as_u64() >= Some(1);
    !open && (case.concluded.is_some() || !verdicts)
}

fn taken_over(case: &RecordedCase, run_id: &str) -> Done {
    let (verdict, outcome, detail) = case.verdict();
    let run = case.concluded.as_ref().and_then(|c| c.carried_from.as_deref()).unwrap_or(run_id);
    Done {
        verdict: verdict.into(),
        outcome: outcome.into(),
        detail: detail.into(),
        outcomes: case.outcomes(),
        failures: case.failures(),
        dur_ns: case.dur_ns(),
        run: run.into(),
    }
}
