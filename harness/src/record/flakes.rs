//! `flake.csv`: what the last hunt found about each case that was ever hunted.

use super::audit::Judged;
use super::history::History;
use super::rebuild::commit;
use super::recorded::Recorded;
use super::rows::{TableRow, named, text};
use super::runs::{RunInfo, stamp_of};
use super::table::{Notes, Table};
use crate::os::FileLock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// What a hunt found about a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FlakeRow {
    #[serde(deserialize_with = "named")]
    pub(crate) case_id: String,
    pub(crate) runs: u64,
    pub(crate) failures: u64,
    /// Failures over runs, with the exact interval at the hunt's confidence.
    pub(crate) rate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// `clean`, `flaky`, `broken`, `undecided`.
    #[serde(deserialize_with = "text")]
    pub(crate) finding: String,
    /// On what a flake depends; empty where that was not tested.
    #[serde(deserialize_with = "text")]
    pub(crate) class: String,
    /// The run of the hunt, and the commit of the sources.
    #[serde(deserialize_with = "text")]
    pub(crate) last_run: String,
    #[serde(deserialize_with = "text")]
    pub(crate) commit: String,
}

impl TableRow for FlakeRow {
    const COLUMNS: &'static [&'static str] =
        &["case_id", "runs", "failures", "rate", "low", "high", "finding", "class", "last_run", "commit"];
}

impl FlakeRow {
    /// With six digits: more than any number of runs can tell.
    fn rounded(mut self) -> Self {
        for rate in [&mut self.rate, &mut self.low, &mut self.high] {
            *rate = (*rate * 1e6).round() / 1e6;
        }
        self
    }
}

/// What a recorded hunt tells.
pub(super) struct Hunted {
    run_id: String,
    /// When it ended, or began if nobody wrote its end.
    when: String,
    rows: BTreeMap<String, FlakeRow>,
}

/// What a `hunt` record has of a row; what a record lacks is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundFlake {
    case_id: String,
    runs: u64,
    failures: u64,
    low: f64,
    high: f64,
    finding: String,
    class: Option<String>,
}

impl Hunted {
    /// Whether it says nothing of any case.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn of(info: &RunInfo, run: &Recorded) -> Self {
        let commit = commit(run);
        let found = run.others.iter().filter(|record| record["k"] == "hunt");
        let row = |found: FoundFlake| {
            let row = FlakeRow {
                rate: found.failures as f64 / found.runs as f64,
                case_id: found.case_id,
                runs: found.runs,
                failures: found.failures,
                low: found.low,
                high: found.high,
                finding: found.finding,
                class: found.class.unwrap_or_default(),
                last_run: info.id.clone(),
                commit: commit.clone(),
            };
            (row.case_id.clone(), row.rounded())
        };
        let found = found.filter_map(|record| FoundFlake::deserialize(record).ok()).filter(|found| found.runs > 0);
        let ended = run.header.ended_utc.clone();
        Self { run_id: info.id.clone(), when: ended.unwrap_or_else(|| info.started()), rows: found.map(row).collect() }
    }
}

/// Judges the rows of hunts that are here, and puts in what later ones found.
pub(super) fn mend(table: &mut Vec<FlakeRow>, hunts: &[Hunted]) -> Judged {
    let mut judged = Judged::default();
    table.retain_mut(|row| {
        let Some(hunt) = hunts.iter().find(|hunt| hunt.run_id == row.last_run) else {
            judged.unjudged += 1;
            return true;
        };
        let whose = format!("{} of {}", row.case_id, row.last_run);
        let right = hunt.rows.get(&row.case_id);
        match right {
            Some(right) => judged.correct(&whose, row, right),
            None => judged.wrong.push(format!("{whose}: that hunt has no such row")),
        }
        right.is_some()
    });
    let old: BTreeMap<String, FlakeRow> = table.drain(..).map(|row| (row.case_id.clone(), row)).collect();
    let time = |run: &str| {
        let here = hunts.iter().find(|hunt| hunt.run_id == run);
        here.map(|hunt| hunt.when.clone()).or_else(|| stamp_of(run))
    };
    let mut rows = old.clone();
    for hunt in hunts {
        for (case, found) in &hunt.rows {
            // A row of a time that nobody knows stays.
            let older = |row: &FlakeRow| time(&row.last_run).is_some_and(|time| time < hunt.when);
            if rows.get(case).is_none_or(older) {
                rows.insert(case.clone(), found.clone());
            }
        }
    }
    judged.added = rows.iter().filter(|(case, row)| old.get(*case) != Some(row)).count();
    *table = rows.into_values().collect();
    judged
}

impl History {
    /// The table by case; nothing if there is none.
    #[cfg(test)]
    fn flakes(&self) -> BTreeMap<String, FlakeRow> {
        self.table("flake.csv").map_or_else(|_| BTreeMap::new(), |mut table| by_case(&mut table))
    }

    /// Puts the rows of a hunt in the place of older ones. A hunt that never ran a
    /// case says nothing about it.
    pub(crate) fn learn_flakes(&self, rows: Vec<FlakeRow>) -> io::Result<Notes> {
        if rows.iter().all(|row| row.runs == 0) {
            return Ok(Notes::new());
        }
        std::fs::create_dir_all(self.dir())?;
        let _lock = FileLock::acquire(self.lock())?;
        let mut table = self.table("flake.csv")?;
        let mut by_case = by_case(&mut table);
        for row in rows.into_iter().filter(|row| row.runs > 0) {
            by_case.insert(row.case_id.clone(), row.rounded());
        }
        table.write(by_case.into_values())
    }
}

fn by_case(table: &mut Table<FlakeRow>) -> BTreeMap<String, FlakeRow> {
    std::mem::take(&mut table.rows).into_iter().map(|row| (row.case_id.clone(), row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn hunt(run_id: &str, when: &str, failures: u64) -> Hunted {
        let row = FlakeRow {
            case_id: "A.a".into(),
            runs: 30,
            failures,
            rate: failures as f64 / 30.0,
            low: 1e-7,
            high: 1.0 / 3.0,
            finding: "flaky".into(),
            class: String::new(),
            last_run: run_id.into(),
            commit: "c".into(),
        };
        Hunted { run_id: run_id.into(), when: when.into(), rows: [("A.a".to_string(), row.rounded())].into() }
    }

    #[test]
    fn rows_come_back_from_the_last_hunt_and_are_judged_by_theirs() {
        let hunts = [hunt("h1", "2026-01-02", 1), hunt("h2", "2026-01-01", 2)];
        let mut table = Vec::new();
        assert_eq!(mend(&mut table, &hunts), Judged { added: 1, ..Judged::default() });
        let line = String::from_utf8(super::super::rows::line(&table[0]).expect("writes")).expect("text");
        assert_eq!(line.trim_end(), "A.a,30,1,0.033333,0.0,0.333333,flaky,,h1,c");
        assert_eq!(mend(&mut table, &hunts), Judged::default());
        let right = table.clone();
        table[0].failures = 7;
        let judged = mend(&mut table, &hunts);
        assert_eq!(judged.wrong, ["A.a of h1: failures is `7`, by the record `1`"]);
        assert_eq!(table, right);
        // A later hunt that is not here stays, one of an unknown time too.
        for name in ["20260103T000000Z-aaaaaa", "nightly"] {
            let mut table = vec![FlakeRow { last_run: name.into(), ..right[0].clone() }];
            assert_eq!(mend(&mut table, &hunts), Judged { unjudged: 1, ..Judged::default() });
            assert_eq!(table[0].last_run, name);
        }
    }

    #[test]
    fn the_last_hunt_counts() {
        let root = Scratch::new("flakes");
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
        let path = root.join("history/simulator/flake.csv");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(text.lines().next(), Some("case_id,runs,failures,rate,low,high,finding,class,last_run,commit"));
        // A letter that was changed costs no row.
        std::fs::write(&path, text.replace("finding,class", "findinf,class")).expect("writes");
        assert_eq!(history.learn_flakes(vec![row("A.c", 9, 0, "r3")]).expect("learns").len(), 1);
        assert_eq!(history.flakes().keys().collect::<Vec<_>>(), ["A.a", "A.b", "A.c"]);
    }
}
