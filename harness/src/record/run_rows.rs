//! `runs.csv`: what each run was whose rows are in the tables of its device.
//!
//! Inputs: headers of runs. Output: a row for each. So the rows of other tables, which name their run only, have a
//! time, sources, a machine and GPUs also when the run itself is gone, as after `store prune`.

use super::audit::Judged;
use super::header::Header;
use super::history::{History, guard};
use super::rows::{TableRow, text};
use super::runs::{header_at, stamp_of};
use super::table::{Notes, Table, TableFile};
use crate::os::FileLock;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// A run. What its header lacks is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunRow {
    #[serde(deserialize_with = "super::rows::named")]
    pub(super) run_id: String,
    #[serde(deserialize_with = "text")]
    command: String,
    #[serde(deserialize_with = "text")]
    started_utc: String,
    #[serde(deserialize_with = "text")]
    commit: String,
    dirty: Option<bool>,
    #[serde(deserialize_with = "text")]
    host: String,
    /// UUIDs of its GPUs, with blanks between.
    #[serde(deserialize_with = "text")]
    gpus: String,
    #[serde(deserialize_with = "text")]
    driver: String,
    /// The version of the run-time compiler.
    #[serde(deserialize_with = "text")]
    nvrtc: String,
    /// MHz of the GPUs' multiprocessors when it began, with blanks between.
    #[serde(deserialize_with = "text")]
    clocks: String,
    /// Names the history of its devices.
    #[serde(deserialize_with = "text")]
    device: String,
    /// The command line, and what the environment added.
    #[serde(deserialize_with = "text")]
    options: String,
}

impl TableRow for RunRow {
    const COLUMNS: &'static [&'static str] = &[
        "run_id",
        "command",
        "started_utc",
        "commit",
        "dirty",
        "host",
        "gpus",
        "driver",
        "nvrtc",
        "clocks",
        "device",
        "options",
    ];
    const OLDER: &'static [&'static [&'static str]] =
        &[&["run_id", "command", "started_utc", "commit", "dirty", "host", "gpus", "driver", "options"]];
}

impl RunRow {
    /// The version of the run-time compiler, or nothing.
    pub(super) fn nvrtc(&self) -> &str {
        &self.nvrtc
    }

    pub(super) fn new(id: &str, header: &Header) -> Self {
        let uuids = header.chosen.iter().flatten().filter_map(|choice| choice.uuid.as_deref());
        let words = header.argv.iter().chain(&header.from_env).flatten();
        // Lines of a table hold no line breaks of an option.
        let options: Vec<String> = words.map(|word| crate::escape::escape(word, "").into_owned()).collect();
        Self {
            run_id: id.into(),
            command: header.mode().into(),
            started_utc: header.started_utc.clone().unwrap_or_default(),
            commit: header.commit().into(),
            dirty: header.provenance.as_ref().and_then(|source| source.git_dirty),
            host: header.host().into(),
            gpus: uuids.collect::<Vec<_>>().join(" "),
            driver: header.driver().unwrap_or_default().into(),
            nvrtc: header.nvrtc.clone().unwrap_or_default(),
            clocks: header.clocks().join(" "),
            device: guard(&header.device().unwrap_or_default()),
            options: guard(&options.join(" ")),
        }
    }
}

/// The names of all runs that the tables of a folder of history know.
pub(super) fn names(history: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(history).into_iter().flatten().flatten() {
        // One of another version tells nothing that could be told twice.
        let table = Table::<RunRow>::read(&entry.path().join("runs.csv"));
        names.extend(table.into_iter().flat_map(|table| table.rows).map(|row| row.run_id));
    }
    names
}

/// Judges the rows of runs that are here, and puts in those that lack: also of runs that are gone and that rows of
/// other tables name with their commit, as far as those and the run's own name tell what it was.
pub(super) fn mend(table: &mut Vec<RunRow>, runs: &[RunRow], named: &BTreeMap<String, String>) -> Judged {
    let mut judged = Judged::default();
    let mut missing: BTreeMap<&str, &RunRow> = runs.iter().map(|row| (row.run_id.as_str(), row)).collect();
    for row in table.iter_mut() {
        match missing.remove(row.run_id.as_str()) {
            Some(right) => judged.correct(&right.run_id, row, right),
            None => judged.unjudged += 1,
        }
    }
    let known: BTreeSet<&str> = table.iter().map(|row| row.run_id.as_str()).chain(missing.keys().copied()).collect();
    let gone = named.iter().filter(|(id, _)| !known.contains(id.as_str())).map(|(id, commit)| RunRow {
        run_id: id.clone(),
        started_utc: stamp_of(id).unwrap_or_default(),
        commit: commit.clone(),
        ..RunRow::default()
    });
    let added: Vec<RunRow> = gone.chain(missing.into_values().cloned()).collect();
    judged.added = added.len();
    table.extend(added);
    if judged.added > 0 {
        table.sort_by(|a, b| (&a.started_utc, &a.run_id).cmp(&(&b.started_utc, &b.run_id)));
    }
    judged
}

impl History {
    /// Notes what a run was whose rows are added, once.
    pub(crate) fn note_run(&self, run_dir: &Path) -> io::Result<Notes> {
        std::fs::create_dir_all(self.dir())?;
        let _lock = FileLock::acquire(self.lock())?;
        self.note_run_locked(run_dir)
    }

    /// The same, where whoever calls holds the lock.
    pub(super) fn note_run_locked(&self, run_dir: &Path) -> io::Result<Notes> {
        let header = header_at(run_dir);
        let id = run_dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if header == Header::default() {
            // Nothing is known of it.
            return Ok(Notes::new());
        }
        std::fs::create_dir_all(self.dir())?;
        let table: Table<RunRow> = self.table("runs.csv")?;
        if table.rows.iter().any(|row| row.run_id == id) {
            return Ok(Notes::new());
        }
        let path = self.dir().join("runs.csv");
        let (_, notes) = TableFile::to_append::<RunRow>(&path)?;
        let file = std::fs::File::options().create(true).append(true).open(&path)?;
        io::Write::write_all(&mut &file, &super::rows::line(&RunRow::new(&id, &header))?)?;
        Ok(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(id: &str, started: &str) -> RunRow {
        let header = json!({ "mode": "bench", "started_utc": started, "argv": ["bench", "--filter", "a\nb"],
            "history": "NVIDIA H200", "nvrtc": "13.0.88", "chosen": [{ "uuid": "GPU-1" }, { "uuid": "GPU-2" }],
            "nvidia": { "driver": "580", "gpus": [{ "uuid": "GPU-1", "sm_clock_mhz": 1980 }] },
            "provenance": { "git_sha": "abc", "git_dirty": true, "host": "h" } });
        RunRow::new(id, &Header::of(header).expect("an object"))
    }

    #[test]
    fn a_row_says_what_a_run_was_and_comes_back() {
        let told = row("r1", "2026-01-01T00:00:00Z");
        let cells = told.cells().expect("writes");
        let sources = ["r1", "bench", "2026-01-01T00:00:00Z", "abc", "true", "h"];
        let machine = ["GPU-1 GPU-2", "580", "13.0.88", "1980 -", "NVIDIA H200", "bench --filter a\\nb"];
        let wanted = [sources, machine].concat();
        assert_eq!(cells.iter().collect::<Vec<_>>(), wanted);
        assert_eq!(<RunRow as TableRow>::of(&cells), Some(told));
    }

    #[test]
    fn rows_are_judged_by_the_runs_that_are_here_and_others_stay() {
        let (gone, here, new) = (row("gone", "2026-01-01"), row("here", "2026-01-02"), row("new", "2026-01-03"));
        let wrong = RunRow { commit: "other".into(), ..here.clone() };
        let mut table = vec![gone.clone(), wrong];
        let runs = [here.clone(), new.clone()];
        let judged = mend(&mut table, &runs, &BTreeMap::new());
        assert_eq!((judged.added, judged.unjudged, judged.wrong.len()), (1, 1, 1));
        assert_eq!(judged.wrong, ["here: commit is `other`, by the record `abc`"]);
        assert_eq!(table, [gone, here, new]);
        let again = mend(&mut table, &runs, &BTreeMap::new());
        assert_eq!((again.added, again.wrong.len()), (0, 0));
        // A run that is gone, and of which no row was left: its name has its time, other tables its commit.
        let named = [("20250101T101112Z-abcdef", "c0"), ("new", "c9")].map(|(id, commit)| (id.into(), commit.into()));
        assert_eq!(mend(&mut table, &runs, &named.into()).added, 1);
        assert_eq!((table[0].started_utc.as_str(), table[0].commit.as_str()), ("2025-01-01T10:11:12Z", "c0"));
    }
}
