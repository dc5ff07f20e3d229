//! `verified.csv`: outputs that passed against the reference, by their digests, for runs of the same build.
//!
//! Rows stand in the order in which they were learnt; beyond [`MAX_ROWS`] the oldest go. A row that is damaged is one
//! case that is compared again.

use super::history::History;
use super::rows::{TableRow, named};
use super::table::{Notes, Table};
use crate::case::MAX_IDS;
use crate::os::FileLock;
use crate::outcome::Digest;
use crate::verified::PassedOutputs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// As many as a folder may have cases.
const MAX_ROWS: usize = MAX_IDS;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PassedRow {
    #[serde(deserialize_with = "named")]
    case_id: String,
    expected: Digest,
    outputs: Digest,
    /// The run that compared them.
    #[serde(deserialize_with = "named")]
    run_id: String,
}

impl TableRow for PassedRow {
    const COLUMNS: &'static [&'static str] = &["case_id", "expected", "outputs", "run_id"];
}

impl History {
    /// The outputs of cases that passed, as far as they can be read.
    pub(crate) fn verified(&self) -> BTreeMap<String, PassedOutputs> {
        let rows: Vec<PassedRow> = self.table("verified.csv").map_or_else(|_| Vec::new(), |table| table.rows);
        rows.into_iter()
            .map(|PassedRow { case_id, expected, outputs, .. }| (case_id, PassedOutputs { expected, outputs }))
            .collect()
    }

    /// Adds what a run compared.
    pub(crate) fn learn_verified(&self, run_id: &str, learnt: &BTreeMap<String, PassedOutputs>) -> io::Result<Notes> {
        if learnt.is_empty() {
            return Ok(Notes::new());
        }
        let _lock = FileLock::acquire(self.lock())?;
        std::fs::create_dir_all(self.dir())?;
        let mut table: Table<PassedRow> = self.table("verified.csv")?;
        let mut rows = std::mem::take(&mut table.rows);
        rows.retain(|row| !learnt.contains_key(&row.case_id));
        rows.extend(learnt.iter().map(|(case_id, passed)| PassedRow {
            case_id: case_id.clone(),
            expected: passed.expected,
            outputs: passed.outputs,
            run_id: run_id.into(),
        }));
        let beyond = rows.len().saturating_sub(MAX_ROWS);
        table.write(rows.into_iter().skip(beyond))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn passed(ids: &[&str], outputs: u128) -> BTreeMap<String, PassedOutputs> {
        let passed = PassedOutputs { expected: Digest(1), outputs: Digest(outputs) };
        ids.iter().map(|id| (id.to_string(), passed)).collect()
    }

    #[test]
    fn what_passed_is_kept_and_damage_costs_its_row() {
        let root = Scratch::new("verified");
        let history = History::of(&root, "simulator");
        assert!(history.verified().is_empty());
        assert!(history.learn_verified("r0", &BTreeMap::new()).expect("nothing to learn").is_empty());
        history.learn_verified("r1", &passed(&["A.a", "A.b", "A.c"], 2)).expect("learns");
        history.learn_verified("r2", &passed(&["A.b"], 3)).expect("learns");
        let path = history.dir().join("verified.csv");
        let text = std::fs::read_to_string(&path).expect("reads");
        let rows: Vec<&str> = text.lines().skip(1).map(|line| &line[..3]).collect();
        assert_eq!(rows, ["A.a", "A.c", "A.b"]);
        let known = |id: &str| history.verified().get(id).map(|passed| passed.outputs);
        assert_eq!([known("A.a"), known("A.b"), known("A.c")], [Some(Digest(2)), Some(Digest(3)), Some(Digest(2))]);
        // A digit that is none, and a row that was cut.
        let damaged = text.replacen("0000002", "000x002", 1);
        std::fs::write(&path, &damaged[..damaged.len() - 4]).expect("writes");
        assert_eq!([known("A.a"), known("A.b"), known("A.c")], [None, None, Some(Digest(2))]);
        let notes = history.learn_verified("r3", &passed(&["A.a"], 4)).expect("learns");
        assert!(notes.len() == 1 && notes[0].starts_with("verified.csv has 2 damaged lines"), "{notes:?}");
        assert_eq!([known("A.a"), known("A.b"), known("A.c")], [Some(Digest(4)), None, Some(Digest(2))]);
        std::fs::write(&path, b"\0garbage\n").expect("writes");
        assert!(history.verified().is_empty());
    }

    #[test]
    fn the_oldest_rows_go() {
        let root = Scratch::new("verified-many");
        let history = History::of(&root, "simulator");
        let ids: Vec<String> = (0..MAX_ROWS).map(|n| format!("A.{n:06}")).collect();
        history.learn_verified("r1", &passed(&ids.iter().map(String::as_str).collect::<Vec<_>>(), 2)).expect("learns");
        history.learn_verified("r2", &passed(&["B.b", "A.000000"], 3)).expect("learns");
        let known = history.verified();
        assert_eq!(known.len(), MAX_ROWS);
        assert!(known.contains_key("A.000000") && known.contains_key("B.b") && !known.contains_key("A.000001"));
    }
}
