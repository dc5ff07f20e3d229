//! `gate.csv`: what was found of the times of cases on GPUs, and what was accepted with a reason; and from that with
//! `perf.csv`, the times that a case may be held to.
//!
//! Inputs: rows of findings. Outputs: rows appended once a run, and times by case in the order of runs. Times of a run that
//! found the case slower are no reference, nor those before something was accepted. Where a case became faster, or slower with the
//! same code, another epoch begins: times from there on vary about another level.

use super::audit::Judged;
use super::history::History;
use super::rebuild::{Added, insert, told};
use super::recorded::Recorded;
use super::rows::{Decimal, PerfRow, RowOfRun, TableRow, named, text};
use super::run_rows::RunRow;
use super::table::{Notes, Table};
use crate::gate::{Code, PastTime, TimeHistory};
use crate::os::FileLock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;

/// Stands for all cases together.
pub(crate) const ALL: &str = "(all)";
const SLOWER: &str = "slower";
const ACCEPTED: &str = "accepted";
const MACHINE: &str = "same code";

/// A finding about a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GateRow {
    #[serde(deserialize_with = "named")]
    run_id: String,
    #[serde(deserialize_with = "text")]
    commit: String,
    #[serde(deserialize_with = "named")]
    case_id: String,
    /// `slower`, `faster`, `accepted`, and `same code`: slower or faster with the same code.
    #[serde(deserialize_with = "named")]
    finding: String,
    /// What it takes for each unit of what it took.
    ratio: Option<Decimal>,
    /// Corrected for the number of cases.
    p: Option<Decimal>,
    /// `history`, or `baseline` where a kept binary was measured beside this one.
    #[serde(deserialize_with = "text")]
    by: String,
    /// Why it was accepted.
    #[serde(deserialize_with = "text")]
    reason: String,
}

impl TableRow for GateRow {
    const COLUMNS: &'static [&'static str] = &["run_id", "commit", "case_id", "finding", "ratio", "p", "by", "reason"];
}

impl RowOfRun for GateRow {
    fn run_id(&self) -> &str {
        &self.run_id
    }
    fn case_id(&self) -> &str {
        &self.case_id
    }
}

/// What a run found of a case, before it is a row.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) case_id: String,
    pub(crate) finding: FoundWord,
    pub(crate) ratio: f64,
    pub(crate) p: f64,
    pub(crate) by: &'static str,
    pub(crate) reason: String,
}

/// The word of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundWord {
    Slower,
    Faster,
    Accepted,
    SameCode,
}

impl FoundWord {
    pub(crate) fn word(self) -> &'static str {
        match self {
            FoundWord::Slower => SLOWER,
            FoundWord::Faster => "faster",
            FoundWord::Accepted => ACCEPTED,
            FoundWord::SameCode => MACHINE,
        }
    }
}

impl GateRow {
    fn new(run_id: &str, commit: &str, found: &Found) -> Self {
        Self {
            run_id: run_id.into(),
            commit: commit.into(),
            case_id: found.case_id.clone(),
            finding: found.finding.word().into(),
            ratio: Some(Decimal::of(found.ratio, 4)),
            p: Some(Decimal::of(found.p, 6)),
            by: found.by.into(),
            reason: found.reason.clone(),
        }
    }
}

/// Findings as a record has them, from which the table is made again.
pub(crate) fn found_in_record(run_id: &str, commit: &str, found: &[Found]) -> Value {
    json!(found.iter().map(|found| GateRow::new(run_id, commit, found)).collect::<Vec<_>>())
}

/// What a recorded run found.
pub(super) fn found(run: &Recorded) -> Vec<GateRow> {
    let of_times = run.others.iter().filter(|record| record["k"] == "gate");
    let rows = of_times.filter_map(|record| Vec::<GateRow>::deserialize(&record["found"]).ok());
    rows.flatten().filter(|row| row.run_id == run.id()).collect()
}

/// Judges the rows of runs that are here, and puts in those that lack.
pub(super) fn mend(table: &mut Vec<GateRow>, runs: &[Added]) -> Judged {
    let mut judged = Judged::default();
    table.retain_mut(|row| {
        let Some(run) = runs.iter().find(|run| run.run_id == row.run_id) else {
            judged.unjudged += 1;
            return true;
        };
        let whose = format!("{} of {}", row.case_id, row.run_id);
        match run.found.iter().find(|right| right.case_id == row.case_id) {
            Some(right) => judged.correct(&whose, row, right),
            None => {
                judged.wrong.push(format!("{whose}: that run has no such row"));
                return false;
            }
        }
        true
    });
    for run in runs {
        let told = told(table, run);
        let rows = run.found.iter().filter(|row| !told.contains(row.case_id.as_str())).cloned().collect();
        judged.added += insert(table, &run.when, rows);
    }
    judged
}

impl History {
    /// Adds what a run found, once.
    pub(crate) fn add_findings(&self, run_id: &str, commit: &str, found: &[Found]) -> io::Result<Notes> {
        if found.is_empty() {
            return Ok(Notes::new());
        }
        std::fs::create_dir_all(self.dir())?;
        let _lock = FileLock::acquire(self.lock())?;
        self.append("gate.csv", found.iter().map(|found| GateRow::new(run_id, commit, found)).collect())
    }

    /// Times of kernels by case, in the order of runs; `nvrtc` of a run is part of the name of its code, since one text gives
    /// other machine code with another compiler.
    pub(crate) fn times(&self) -> TimeHistory {
        let rows: Vec<PerfRow> = self.table("perf.csv").map_or_else(|_| Vec::new(), |table: Table<PerfRow>| table.rows);
        let gates: Vec<GateRow> =
            self.table("gate.csv").map_or_else(|_| Vec::new(), |table: Table<GateRow>| table.rows);
        let runs: Vec<RunRow> = self.table("runs.csv").map_or_else(|_| Vec::new(), |table: Table<RunRow>| table.rows);
        let nvrtc: BTreeMap<&str, &str> = runs.iter().map(|row| (row.run_id.as_str(), row.nvrtc())).collect();
        let found: BTreeMap<(&str, &str), &str> =
            gates.iter().map(|row| ((row.run_id.as_str(), row.case_id.as_str()), row.finding.as_str())).collect();
        let mut history = TimeHistory::new();
        for row in &rows {
            let Some(ns) = row.median().filter(|ns| *ns > 0.0) else { continue };
            let past = history.entry(row.case_id.clone()).or_default();
            let finding = |case: &str| found.get(&(row.run_id.as_str(), case)).copied();
            if finding(&row.case_id) == Some(ACCEPTED) {
                past.iter_mut().for_each(|time| time.is_reference = false);
            }
            let (own, slow) = (finding(&row.case_id), [finding(&row.case_id), finding(ALL)].contains(&Some(SLOWER)));
            let is_reference = own == Some(ACCEPTED) || !slow;
            // What is slower stands apart, and where that ends it is as it was before.
            let before = past.iter().rev().map(|time| time.epoch & !1).next().unwrap_or_default();
            let epoch = match own {
                _ if !is_reference => before | 1,
                Some(_) => before + 2,
                None => before,
            };
            let nvrtc = nvrtc.get(row.run_id.as_str()).copied().unwrap_or_default();
            let code = code(&row.code_digest, &row.kernel_crc, nvrtc);
            past.push(PastTime { run: row.run_id.clone(), ns, code, epoch, is_reference });
        }
        history
    }
}

/// A name of machine code, by its digest where that is recorded.
pub(crate) fn code(digest: &str, kernel_crc: &str, nvrtc: &str) -> Code {
    match digest {
        "" => Code::Unknown(format!("{kernel_crc} {nvrtc}")),
        digest => Code::Known(format!("{digest} {nvrtc}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Digest, Perf, Verdict};
    use crate::record::CaseRow;
    use crate::scratch::Scratch;

    #[test]
    fn what_was_slower_is_no_reference_until_it_is_accepted() {
        let root = Scratch::new("gates");
        let history = History::of(&root, "NVIDIA H200");
        let run = |run: &str, ns: f64, digest: u128, found: &[FoundWord]| {
            let perf = Some(Perf { median_ns: Some(ns), ..Perf::default() });
            let row = CaseRow {
                case_id: "A.a".into(),
                verdict: Verdict::Pass,
                outcome: "pass".into(),
                dur_ns: 1,
                perf,
                phases: BTreeMap::new(),
                cached: false,
                held_to_digest: false,
                kernel_crc: Some(7),
                code_digest: (digest > 1).then_some(Digest(digest)),
                gpu: String::new(),
            };
            history.add(run, "c", &[row]).expect("adds");
            let found = found.iter().map(|finding| Found {
                case_id: "A.a".into(),
                finding: *finding,
                ratio: 1.1,
                p: 0.001,
                by: "history",
                reason: "why, so".into(),
            });
            history.add_findings(run, "c", &found.collect::<Vec<_>>()).expect("adds");
        };
        let references = || {
            let past = history.times().remove("A.a").unwrap_or_default();
            past.iter().map(|time| time.is_reference).collect::<Vec<_>>()
        };
        run("r1", 10.0, 1, &[]);
        run("r2", 11.0, 2, &[FoundWord::Slower]);
        run("r3", 9.0, 3, &[FoundWord::Faster]);
        assert_eq!(references(), [true, false, true]);
        run("r4", 12.0, 4, &[FoundWord::Accepted]);
        assert_eq!(references(), [false, false, false, true]);
        run("r5", 12.1, 4, &[]);
        run("r6", 13.0, 4, &[FoundWord::SameCode]);
        run("r7", 13.1, 4, &[]);
        assert_eq!(references(), [false, false, false, true, true, true, true]);
        let epochs: Vec<u32> = history.times()["A.a"].iter().map(|time| time.epoch).collect();
        assert_eq!(epochs, [0, 1, 2, 4, 4, 6, 6]);
        // The first is of before digests were recorded.
        let codes: Vec<Code> = history.times()["A.a"].iter().take(2).map(|time| time.code.clone()).collect();
        assert_eq!(codes, [Code::Unknown("00000007 ".into()), Code::Known(format!("{:032x} ", 2))]);
        let text = std::fs::read_to_string(history.dir().join("gate.csv")).expect("a table");
        assert_eq!(text.lines().nth(1), Some("r2,c,A.a,slower,1.1000,0.001000,history,\"why, so\""));
    }
}
