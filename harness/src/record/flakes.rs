//! `flake.csv`: what the last hunt found about each case that was ever hunted.

use super::history::History;
use super::layout::replace;
use crate::os::FileLock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// What a hunt found about a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FlakeRow {
    pub(crate) case_id: String,
    pub(crate) runs: u64,
    pub(crate) failures: u64,
    /// Failures over runs, with the exact interval at the hunt's confidence.
    pub(crate) rate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// `clean`, `flaky`, `broken`, `undecided`.
    pub(crate) finding: String,
    /// On what a flake depends; empty where that was not tested.
    pub(crate) class: String,
    /// The run of the hunt, and the commit of the sources.
    pub(crate) last_run: String,
    pub(crate) commit: String,
}

impl History {
    /// The table by case; nothing if there is none.
    pub(crate) fn flakes(&self) -> BTreeMap<String, FlakeRow> {
        let Ok(mut reader) = csv::Reader::from_path(self.dir().join("flake.csv")) else { return BTreeMap::new() };
        reader.deserialize().filter_map(Result::ok).map(|row: FlakeRow| (row.case_id.clone(), row)).collect()
    }

    /// Puts the rows of a hunt in the place of older ones. A hunt that never ran a
    /// case says nothing about it.
    pub(crate) fn learn_flakes(&self, rows: Vec<FlakeRow>) -> io::Result<()> {
        if rows.iter().all(|row| row.runs == 0) {
            return Ok(());
        }
        std::fs::create_dir_all(self.dir())?;
        let _lock = FileLock::acquire(self.lock())?;
        let mut table = self.flakes();
        for mut row in rows.into_iter().filter(|row| row.runs > 0) {
            // Six digits are more than any number of runs can tell.
            for rate in [&mut row.rate, &mut row.low, &mut row.high] {
                *rate = (*rate * 1e6).round() / 1e6;
            }
            table.insert(row.case_id.clone(), row);
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        table.into_values().try_for_each(|row| writer.serialize(row))?;
        replace(&self.dir().join("flake.csv"), &writer.into_inner().map_err(|error| error.into_error())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hunt_counts() {
        let root = std::env::temp_dir().join(format!("harness-flakes-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("folder");
        let history = History::of(&root, "simulator");
        let row = |case_id: &str, runs, failures, last_run: &str| FlakeRow {
            case_id: case_id.into(),
            runs,
            failures,
            rate: failures as f64 / runs as f64,
            low: 0.0,
            high: 1.0 / 3.0,
            finding: "flaky".into(),
            class: String::new(),
            last_run: last_run.into(),
            commit: "c".into(),
        };
        history.learn_flakes(vec![row("A.b", 30, 1, "r1"), row("A.a", 10, 0, "r1")]).expect("learns");
        history.learn_flakes(vec![row("A.b", 600, 20, "r2"), row("A.c", 0, 0, "r2")]).expect("learns");
        let table = history.flakes();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["A.a", "A.b"]);
        assert_eq!((table["A.b"].runs, table["A.b"].last_run.as_str(), table["A.b"].rate), (600, "r2", 0.033_333));
        let text = std::fs::read_to_string(root.join("history/simulator/flake.csv")).expect("reads");
        assert_eq!(text.lines().next(), Some("case_id,runs,failures,rate,low,high,finding,class,last_run,commit"));
        std::fs::remove_dir_all(&root).expect("removes");
    }
}
