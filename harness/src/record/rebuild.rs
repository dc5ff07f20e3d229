//! Mends the tables of `history/` from the runs that are there.
//!
//! A row that can be read stays as it is: it may tell of runs that are elsewhere.
//! What runs know and a table lacks is put in, in the order of time. A file with
//! damaged rows is kept aside. Mending twice changes nothing more.

use super::history::{DURATION_COLUMNS, PERF_COLUMNS, Row, VERDICT_COLUMNS, perf_row, slug};
use super::layout::{Layout, replace};
use super::recorded::Recorded;
use super::runs::stamp_of;
use crate::verdict::{CodeFrom, Perf, Verdict};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

type Cells = Vec<String>;

/// What was done to one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MendedTable {
    pub(crate) path: PathBuf,
    pub(crate) damaged: usize,
    pub(crate) added: usize,
    pub(crate) aside: Option<PathBuf>,
}

/// What one run adds.
struct Added {
    /// Sorts by time.
    when: String,
    run_id: String,
    commit: String,
    rows: Vec<Row>,
}

/// Mends every table. Runs are read one by one. With `dry`, nothing is written.
pub(crate) fn mend(layout: &Layout, stamp: &str, dry: bool) -> io::Result<Vec<MendedTable>> {
    let mut devices: BTreeMap<String, Vec<Added>> = BTreeMap::new();
    for info in layout.list()?.iter().filter(|info| info.state != super::State::Live) {
        // One that cannot be read adds nothing; whoever asks for the runs hears of it.
        let Ok(run) = info.load() else { continue };
        if let (Some(device), true) = (run.device(), counts(&run)) {
            let commit = run.header["provenance"]["git_sha"].as_str().unwrap_or_default().to_string();
            let added = Added { when: info.started(), run_id: info.id.clone(), commit, rows: rows(&run) };
            devices.entry(slug(&device)).or_default().push(added);
        }
    }
    let folders = std::fs::read_dir(layout.history()).into_iter().flatten().flatten();
    for entry in folders.filter(|entry| entry.path().is_dir()) {
        devices.entry(entry.file_name().to_string_lossy().into_owned()).or_default();
    }
    let _lock = layout.lock()?;
    let mut mended = Vec::new();
    for (device, runs) in &devices {
        let dir = layout.history().join(device);
        mended.extend(one(&dir.join("verdicts.csv"), VERDICT_COLUMNS, stamp, dry, |table| verdicts(table, runs))?);
        mended.extend(one(&dir.join("perf.csv"), PERF_COLUMNS, stamp, dry, |table| perf(table, runs))?);
        mended.extend(one(&dir.join("durations.csv"), DURATION_COLUMNS, stamp, dry, |table| durations(table, runs))?);
    }
    Ok(mended)
}

/// Whether a run belongs to the history: hunts and the like do not, nor runs whose record has holes.
fn counts(run: &Recorded) -> bool {
    run.judges() && run.header["record_error"].is_null() && run.health.is_whole()
}

/// The rows of a run, as the run itself would have added them.
pub(crate) fn rows(run: &Recorded) -> Vec<Row> {
    let row = |(id, case): (&String, &super::RecordedCase)| {
        let last = case.shown()?;
        let (verdict, outcome, _) = case.verdict();
        let flaky = if verdict == "flaky" { "flaky." } else { "" };
        let verdict = verdict_named(verdict)?;
        let ran = !outcome.starts_with("not_run") && !last.worker_id.is_empty();
        ran.then(|| Row {
            case_id: id.clone(),
            verdict: verdict.name(),
            outcome: format!("{flaky}{outcome}"),
            dur_ns: last.dur_ns,
            perf: last.perf.as_ref().and_then(|perf| Perf::deserialize(perf).ok()),
            phases: last.phases.clone(),
            cached: last.code.as_deref() == Some(CodeFrom::CACHED),
            kernel_crc: last.kernel_crc.as_deref().and_then(|hex| u32::from_str_radix(hex, 16).ok()),
        })
    };
    run.cases.iter().filter_map(row).collect()
}

/// Reads, mends and replaces one table.
fn one(
    path: &Path,
    columns: &[&str],
    stamp: &str,
    dry: bool,
    fill: impl FnOnce(&mut Vec<Cells>) -> usize,
) -> io::Result<Option<MendedTable>> {
    let old = match std::fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some((mut table, damaged)) = parse(old.as_deref().unwrap_or_default(), columns) else {
        // Other columns: a table of another version is not ours to mend.
        return Ok(None);
    };
    let added = fill(&mut table);
    if damaged == 0 && added == 0 {
        return Ok(None);
    }
    let aside = (damaged > 0).then(|| path.with_extension(format!("csv.damaged-{stamp}")));
    if !dry {
        if let (Some(aside), Some(bytes)) = (&aside, &old) {
            replace(aside, bytes)?;
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(columns)?;
        table.iter().try_for_each(|row| writer.write_record(row))?;
        replace(path, &writer.into_inner().map_err(|error| error.into_error())?)?;
    }
    Ok(Some(MendedTable { path: path.to_path_buf(), damaged, added, aside }))
}

/// Rows that can be read, and how many lines cannot. `None` if the columns are others.
pub(crate) fn parse(bytes: &[u8], columns: &[&str]) -> Option<(Vec<Cells>, usize)> {
    let (mut rows, mut damaged, mut header) = (Vec::new(), 0, false);
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let whole = line.ends_with(b"\n");
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        let cells: Option<Cells> = reader.deserialize().next().and_then(Result::ok);
        match cells {
            Some(cells) if !header && cells.first().map(String::as_str) == columns.first().copied() => {
                if cells != columns {
                    return None;
                }
                header = true;
            }
            Some(cells) if whole && cells.len() == columns.len() && sound(&cells, columns) => rows.push(cells),
            _ => damaged += 1,
        }
    }
    Some((rows, damaged))
}

/// Whether the cells can be what their columns say.
fn sound(cells: &[String], columns: &[&str]) -> bool {
    cells.iter().zip(columns).all(|(cell, column)| match *column {
        "case_id" | "run_id" => !cell.is_empty(),
        "verdict" => verdict_named(cell).is_some(),
        "runs" | "dur_us" | "bytes" | "samples" => cell.parse::<u64>().is_ok(),
        "median_ns" | "p10_ns" | "p90_ns" | "gbps" | "share_of_copy" | "copy_gbps" | "host_us" => {
            cell.is_empty() || cell.parse::<f64>().is_ok()
        }
        _ => !cell.contains('\0'),
    })
}

/// The verdict of a stable name.
fn verdict_named(name: &str) -> Option<Verdict> {
    Verdict::deserialize(StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

/// Where the time of each row lies; a name without a time has that of the row before.
fn times(table: &[Cells]) -> Vec<String> {
    let mut last = String::new();
    let mut time = |row: &Cells| {
        last = stamp_of(&row[0]).unwrap_or_else(|| std::mem::take(&mut last));
        last.clone()
    };
    table.iter().map(&mut time).collect()
}

/// Puts rows into a table behind everything that is not later.
fn insert(table: &mut Vec<Cells>, when: &str, rows: Vec<Cells>) -> usize {
    let (at, count) = (times(table).iter().rposition(|time| time.as_str() <= when).map_or(0, |at| at + 1), rows.len());
    table.splice(at..at, rows);
    count
}

/// Columns: run, commit, case, verdict, before, outcome.
fn verdicts(table: &mut Vec<Cells>, runs: &[Added]) -> usize {
    let mut added = 0;
    for run in runs {
        let told: BTreeSet<&str> = table.iter().filter(|row| row[0] == run.run_id).map(|row| row[2].as_str()).collect();
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        for (row, time) in table.iter().zip(times(table)) {
            if time <= run.when && row[0] != run.run_id {
                before.insert(&row[2], &row[5]);
            }
        }
        let mut rows = Vec::new();
        for row in run.rows.iter().filter(|row| !told.contains(row.case_id.as_str())) {
            let old = before.get(row.case_id.as_str()).copied().unwrap_or_default();
            if old != row.outcome {
                rows.push(
                    [&run.run_id, &run.commit, &row.case_id, row.verdict, old, &row.outcome].map(String::from).to_vec(),
                );
            }
        }
        added += insert(table, &run.when, rows);
    }
    added
}

fn perf(table: &mut Vec<Cells>, runs: &[Added]) -> usize {
    let mut added = 0;
    for run in runs {
        let told: BTreeSet<&str> = table.iter().filter(|row| row[0] == run.run_id).map(|row| row[2].as_str()).collect();
        let lacking = run.rows.iter().filter(|row| !told.contains(row.case_id.as_str()));
        let rows = lacking.filter_map(|row| perf_row(&run.run_id, &run.commit, row)).collect();
        added += insert(table, &run.when, rows);
    }
    added
}

/// Columns: case, runs, microseconds, outcome. A row that knows as many runs or more stays.
fn durations(table: &mut Vec<Cells>, runs: &[Added]) -> usize {
    let mut derived: BTreeMap<String, Cells> = BTreeMap::new();
    let mut seen: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| &run.rows) {
        let entry = seen.entry(&row.case_id).or_insert((0, 0, ""));
        let (runs, dur_us) = row.counted(entry.0, entry.1);
        *entry = (runs, dur_us, &row.outcome);
    }
    for (id, (runs, dur_us, outcome)) in seen {
        derived.insert(id.into(), vec![id.into(), runs.to_string(), dur_us.to_string(), outcome.into()]);
    }
    for row in table.iter() {
        let knows = |cells: &Cells| cells[1].parse::<u64>().unwrap_or(0);
        if derived.get(&row[0]).is_none_or(|mine| knows(row) >= knows(mine)) {
            derived.insert(row[0].clone(), row.clone());
        }
    }
    let old: BTreeSet<Cells> = table.drain(..).collect();
    *table = derived.into_values().collect();
    table.iter().filter(|row| !old.contains(*row)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(line: &str) -> Cells {
        line.split(',').map(String::from).collect()
    }

    fn added(run_id: &str, outcomes: &[(&str, &str)]) -> Added {
        let row = |(id, outcome): &(&str, &str)| Row {
            case_id: (*id).into(),
            verdict: if *outcome == "pass" { "pass" } else { "fail" },
            outcome: (*outcome).into(),
            dur_ns: 4_000,
            perf: None,
            phases: BTreeMap::new(),
            cached: false,
            kernel_crc: None,
        };
        let when = stamp_of(run_id).expect("a time");
        Added { when, run_id: run_id.into(), commit: "c".into(), rows: outcomes.iter().map(row).collect() }
    }

    const FIRST: &str = "20260101T000000Z-aaaaaa";
    const SECOND: &str = "20260102T000000Z-bbbbbb";
    const THIRD: &str = "20260103T000000Z-cccccc";

    #[test]
    fn changes_are_put_where_their_time_is_and_only_once() {
        let runs = [added(FIRST, &[("A.a", "pass")]), added(SECOND, &[("A.a", "fail.x"), ("A.b", "pass")])];
        let mut table =
            vec![cells(&format!("{FIRST},c,A.a,pass,,pass")), cells(&format!("{THIRD},c,A.a,pass,fail.x,pass"))];
        assert_eq!(verdicts(&mut table, &runs), 2);
        let ids: Vec<&str> = table.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(ids, [FIRST, SECOND, SECOND, THIRD]);
        assert_eq!(table[1][4..], ["pass", "fail.x"]);
        assert_eq!(verdicts(&mut table, &runs), 0);
    }

    #[test]
    fn a_duration_that_knows_more_runs_stays() {
        let runs = [added(FIRST, &[("A.a", "pass"), ("A.b", "pass")]), added(SECOND, &[("A.a", "pass")])];
        let mut table = vec![cells("A.a,1,9,pass"), cells("A.b,7,9,pass"), cells("A.z,1,1,pass")];
        assert_eq!(durations(&mut table, &runs), 1);
        assert_eq!(table, [cells("A.a,2,4,pass"), cells("A.b,7,9,pass"), cells("A.z,1,1,pass")]);
        assert_eq!(durations(&mut table, &runs), 0);
    }

    #[test]
    fn damaged_rows_are_counted_and_other_columns_are_left_alone() {
        let good = "case_id,runs,dur_us,outcome\nA.a,1,9,pass\nA.b,x,9,pass\nA.c,1\nA.d,2,8,pa";
        let (rows, damaged) = parse(good.as_bytes(), DURATION_COLUMNS).expect("ours");
        assert_eq!((rows, damaged), (vec![cells("A.a,1,9,pass")], 3));
        assert_eq!(parse(b"case_id,other\n", DURATION_COLUMNS), None);
        assert_eq!(parse(b"", DURATION_COLUMNS), Some((vec![], 0)));
        arbtest::arbtest(|u| {
            let bytes: Vec<u8> = u.arbitrary()?;
            let _ = parse(&bytes, DURATION_COLUMNS);
            Ok(())
        })
        .budget_ms(200);
    }
}
