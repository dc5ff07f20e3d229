//! `times/<month>.csv`: how long each case took in each run, so that a trend can be seen. A table for each month in which
//! runs began, since one for all would be read and searched whenever a run is added.
//!
//! Inputs: rows of runs. Output: one row a case and run; nothing of what the machine kept from running.

use super::audit;
use super::history::History;
use super::rebuild::{Added, insert, told};
use super::rows::{CaseRow, TimeRow};
use super::runs::{header_at, stamp_of};
use super::table::{Notes, Table};
use crate::stats::Noise;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The folder of the tables.
const FOLDER: &str = "times";
/// With fewer runs beyond the first, the durations of a case say nothing about its noise.
const LEAST_DF: f64 = 4.0;
/// Of runs whose time nobody knows.
const UNKNOWN: &str = "unknown";

/// The month of a time as RFC 3339.
fn month(when: &str) -> &str {
    let is_month =
        |text: &&str| text.bytes().enumerate().all(|(i, b)| if i == 4 { b == b'-' } else { b.is_ascii_digit() });
    when.get(..7).filter(is_month).unwrap_or(UNKNOWN)
}

fn name_of(month: &str) -> String {
    format!("{FOLDER}/{month}.csv")
}

impl History {
    /// Adds the times of a run. Whoever calls holds the lock.
    pub(super) fn add_times(&self, run_dir: &Path, run_id: &str, rows: &[CaseRow]) -> io::Result<Notes> {
        let rows: Vec<TimeRow> = rows.iter().filter_map(|row| TimeRow::new(run_id, row)).collect();
        if rows.is_empty() {
            return Ok(Notes::new());
        }
        let started = header_at(run_dir).started_utc.filter(|when| !when.is_empty());
        let started = started.or_else(|| stamp_of(run_id)).unwrap_or_default();
        std::fs::create_dir_all(self.dir().join(FOLDER))?;
        self.append(&name_of(month(&started)), rows)
    }
}

impl History {
    /// How much the durations of each case vary from run to run, as standard deviations of logarithms; of cases with
    /// enough runs only. Runs whose kernel was found compiled and others are told apart.
    pub(crate) fn duration_noise(&self) -> BTreeMap<String, f64> {
        let mut times: BTreeMap<(String, bool), Vec<f64>> = BTreeMap::new();
        for name in names(self.dir(), &[]) {
            let table: io::Result<Table<TimeRow>> = self.table(&name);
            for row in table.map_or_else(|_| Vec::new(), |table| table.rows) {
                let (case, compiled, log) = row.measured();
                times.entry((case, compiled)).or_default().push(log);
            }
        }
        let mut noise: BTreeMap<String, Noise> = BTreeMap::new();
        for ((case, _), logs) in times {
            let known = noise.entry(case).or_default();
            *known = known.and(Noise::of(&logs));
        }
        let known = noise.into_iter().filter_map(|(case, noise)| Some((case, noise.alone()?)));
        known.filter(|(_, (_, df))| *df >= LEAST_DF).map(|(case, (sigma, _))| (case, sigma)).collect()
    }
}

/// Names of the tables that there are in a folder of history, or that are due.
pub(super) fn names(dir: &Path, runs: &[Added]) -> BTreeSet<String> {
    let there = std::fs::read_dir(dir.join(FOLDER)).into_iter().flatten().flatten();
    let there = there.filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".csv").map(name_of));
    let due = runs.iter().filter(|run| !run.rows.is_empty()).map(|run| name_of(month(&run.when)));
    there.chain(due).collect()
}

/// Judges one table, and puts in what its runs know and it lacks.
pub(super) fn mend(table: &mut Vec<TimeRow>, name: &str, runs: &[Added]) -> audit::Judged {
    let judged = audit::of_runs(table, runs, |run, row, _| TimeRow::new(&run.run_id, row));
    let mut added = 0;
    for run in runs.iter().filter(|run| name_of(month(&run.when)) == name) {
        let told = told(table, run);
        let lacking = run.rows.iter().filter(|row| !told.contains(row.case_id.as_str()));
        let rows = lacking.filter_map(|row| TimeRow::new(&run.run_id, row)).collect();
        added += insert(table, &run.when, rows);
    }
    audit::Judged { added, ..judged }
}

#[cfg(test)]
mod tests {
    use super::super::rebuild::tests::{FIRST, SECOND, added};
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn each_run_has_a_row_in_the_table_of_its_month() {
        let root = Scratch::new("times");
        let history = History::of(&root, "simulator");
        let later = "20260201T000000Z-dddddd";
        for (run, outcome) in [(FIRST, "pass"), (SECOND, "fail.x"), (later, "pass")] {
            let run_dir = root.join("runs").join(run);
            history.add_times(&run_dir, run, &added(run, &[("A.a", outcome)]).rows).expect("adds");
            // A second time changes nothing.
            history.add_times(&run_dir, run, &added(run, &[("A.a", outcome)]).rows).expect("adds");
        }
        let read = |month: &str| std::fs::read_to_string(history.dir().join(name_of(month))).expect("a table");
        let lines = |month: &str| read(month).lines().skip(1).map(String::from).collect::<Vec<_>>();
        assert_eq!(lines("2026-01"), [format!("{FIRST},A.a,4,,,,,"), format!("{SECOND},A.a,4,,,,,")]);
        assert_eq!(lines("2026-02"), [format!("{later},A.a,4,,,,,")]);
        assert!(history.duration_noise().is_empty(), "three runs are too few");
        for (day, dur_us) in [(3, 40), (4, 44), (5, 40), (6, 44), (7, 42)] {
            let run = format!("202603{day:02}T000000Z-eeeeee");
            let mut rows = added(&run, &[("A.a", "pass"), ("A.few", "pass")]).rows;
            rows[0].dur_ns = dur_us * 1000;
            rows.truncate(if day < 5 { 2 } else { 1 });
            history.add_times(&root.join("runs").join(&run), &run, &rows).expect("adds");
        }
        let noise = history.duration_noise();
        // Three runs of 4 us among five of 40: nothing tells that something changed.
        assert!(noise.len() == 1 && noise["A.a"] > 1.0, "{noise:?}");
        assert_eq!((month("2026-01-31T00:00:00Z"), month("nightly"), month("")), ("2026-01", UNKNOWN, UNKNOWN));
    }
}
