//! Mends the tables of `history/` from the runs that are there.
//!
//! A row of a run that is here must say what the run says, see `audit.rs`; any
//! other row that can be read stays as it is: it may tell of runs that are
//! elsewhere. What runs know and a table lacks is put in, in the order of time. A
//! file that lost rows, or had wrong ones, is kept aside. Mending twice changes
//! nothing more.

use super::audit::{self, Judged};
use super::determinism::{self, COLUMNS as DETERMINISM_COLUMNS, Seen};
use super::flakes::{self, COLUMNS as FLAKE_COLUMNS, Hunted};
use super::history::{DURATION_COLUMNS, PERF_COLUMNS, Row, VERDICT_COLUMNS, mark_added, perf_row, slug};
use super::layout::{Layout, replace};
use super::recorded::Recorded;
use super::runs::{RunInfo, State, stamp_of};
use super::table::aside;
use crate::outcome::{CodeFrom, Perf, Verdict};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(super) type Cells = Vec<String>;

/// What was found in one table, and done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MendedTable {
    pub(crate) path: PathBuf,
    pub(crate) damaged: usize,
    pub(crate) added: usize,
    /// Rows that did not say what their runs say: which, and in what.
    pub(crate) wrong: Vec<String>,
    pub(crate) rows: usize,
    /// Rows that no run here can confirm.
    pub(crate) unjudged: usize,
    pub(crate) aside: Option<PathBuf>,
}

impl MendedTable {
    /// Whether anything had to be done.
    pub(crate) fn changed(&self) -> bool {
        self.damaged + self.added + self.wrong.len() > 0
    }
}

/// What one run adds.
pub(super) struct Added {
    /// Sorts by time.
    pub(super) when: String,
    /// When its end was written, and its log; an end that was put in later is none.
    pub(super) ended: Option<String>,
    pub(super) written: SystemTime,
    pub(super) run_id: String,
    pub(super) dir: PathBuf,
    pub(super) commit: String,
    pub(super) rows: Vec<Row>,
    /// Cases of which it knows, but that no table tells of.
    pub(super) silent: BTreeSet<String>,
    pub(super) seen: Vec<Seen>,
}

impl Added {
    fn of(info: &RunInfo, run: &Recorded) -> Self {
        let rows = rows(run);
        let told: BTreeSet<&str> = rows.iter().map(|row| row.case_id.as_str()).collect();
        let silent = run.cases.keys().filter(|id| !told.contains(id.as_str())).cloned().collect();
        let whole = info.finished() && run.end.as_ref().is_some_and(|end| end["repaired"] != true);
        Self {
            when: info.started(),
            ended: run.header["ended_utc"].as_str().filter(|_| whole).map(String::from),
            written: info.written,
            run_id: info.id.clone(),
            dir: info.dir.clone(),
            commit: commit(run),
            rows,
            silent,
            seen: determinism::seen(run),
        }
    }
}

/// The commit of the sources, by a run's header.
pub(super) fn commit(run: &Recorded) -> String {
    run.header["provenance"]["git_sha"].as_str().unwrap_or_default().to_string()
}

/// Runs and hunts of one kind of device.
#[derive(Default)]
struct Told {
    runs: Vec<Added>,
    hunts: Vec<Hunted>,
}

/// Mends every table. Runs are read one by one. With `dry`, nothing is written.
pub(crate) fn mend(layout: &Layout, stamp: &str, dry: bool) -> io::Result<Vec<MendedTable>> {
    let mut devices: BTreeMap<String, Told> = BTreeMap::new();
    for info in layout.list()?.iter().filter(|info| info.state != State::Live) {
        // One that cannot be read adds nothing; whoever asks for the runs hears of it.
        let Ok(run) = info.load() else { continue };
        let Some(device) = run.device().filter(|_| is_whole(&run)) else { continue };
        let told = devices.entry(slug(&device)).or_default();
        if run.judges() {
            told.runs.push(Added::of(info, &run));
        } else if run.header["mode"] == "hunt" {
            told.hunts.push(Hunted::of(info, &run));
        }
    }
    let folders = std::fs::read_dir(layout.history()).into_iter().flatten().flatten();
    for entry in folders.filter(|entry| entry.path().is_dir()) {
        devices.entry(entry.file_name().to_string_lossy().into_owned()).or_default();
    }
    // To look is no update: tables that cannot be locked are still read.
    let _lock = if dry { layout.lock().ok() } else { Some(layout.lock()?) };
    let mut mended = Vec::new();
    for (device, Told { runs, hunts }) in &devices {
        let dir = layout.history().join(device);
        let mut table = |name: &str, columns, fill: &dyn Fn(&mut Vec<Cells>) -> Judged| -> io::Result<()> {
            mended.extend(one(&dir.join(name), columns, stamp, dry, fill)?);
            Ok(())
        };
        let news = RefCell::new(BTreeMap::new());
        table("verdicts.csv", VERDICT_COLUMNS, &|table| {
            let before = last_outcomes(table);
            let judged = audit::verdicts(table, runs);
            let judged = Judged { added: verdicts(table, runs), ..judged };
            let mut after = last_outcomes(table);
            after.retain(|id, outcome| before.get(id) != Some(outcome));
            news.replace(after);
            judged
        })?;
        table("perf.csv", PERF_COLUMNS, &|table| {
            let judged = audit::perf(table, runs);
            Judged { added: perf(table, runs), ..judged }
        })?;
        table("durations.csv", DURATION_COLUMNS, &|table| {
            let judged = audit::durations(table, runs);
            Judged { added: durations(table, runs, &news.borrow()), ..judged }
        })?;
        table("determinism.csv", DETERMINISM_COLUMNS, &|table| determinism::mend(table, runs))?;
        table("flake.csv", FLAKE_COLUMNS, &|table| flakes::mend(table, hunts))?;
        // They are in the tables now: who goes on with one does not add it again.
        for run in runs.iter().filter(|run| !dry && !run.rows.is_empty()) {
            mark_added(&run.dir)?;
        }
    }
    Ok(mended)
}

/// Whether a run's tables can be made from its record: not where that has holes, or
/// has lost its tail.
fn is_whole(run: &Recorded) -> bool {
    run.header["record_error"].is_null() && run.health.is_whole() && run.cut_short().is_none()
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

/// Reads, mends and replaces one table. `None` where there is none and none is due.
fn one(
    path: &Path,
    columns: &[&str],
    stamp: &str,
    dry: bool,
    fill: &dyn Fn(&mut Vec<Cells>) -> Judged,
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
    let Judged { added, wrong, unjudged } = fill(&mut table);
    let aside = (damaged + wrong.len() > 0).then(|| aside(path, stamp));
    let path = path.to_path_buf();
    let mended = MendedTable { path, damaged, added, wrong, rows: table.len(), unjudged, aside };
    if mended.changed() && !dry {
        if let (Some(aside), Some(bytes)) = (&mended.aside, &old) {
            replace(aside, bytes)?;
        }
        if let Some(dir) = mended.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(columns)?;
        table.iter().try_for_each(|row| writer.write_record(row))?;
        replace(&mended.path, &writer.into_inner().map_err(|error| error.into_error())?)?;
    }
    Ok((old.is_some() || mended.changed()).then_some(mended))
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
                // Of another version; or of ours, with a letter that was changed.
                if cells.len() != columns.len() {
                    return None;
                }
                damaged += usize::from(cells != columns);
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
        "runs" | "failures" | "dur_us" | "bytes" | "samples" => cell.parse::<u64>().is_ok(),
        "rate" | "low" | "high" => cell.parse::<f64>().is_ok(),
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

/// What each case came to last, by the rows of `verdicts.csv`.
fn last_outcomes(table: &[Cells]) -> BTreeMap<String, String> {
    table.iter().map(|row| (row[2].clone(), row[5].clone())).collect()
}

/// Columns: case, runs, microseconds, outcome. A row that knows as many runs or more
/// stays, but for what cases came to last, where that is `news` to the tables.
fn durations(table: &mut Vec<Cells>, runs: &[Added], news: &BTreeMap<String, String>) -> usize {
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
    for (id, outcome) in news {
        if let Some(row) = derived.get_mut(id) {
            row[3].clone_from(outcome);
        }
    }
    let old: BTreeSet<Cells> = table.drain(..).collect();
    *table = derived.into_values().collect();
    table.iter().filter(|row| !old.contains(*row)).count()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scratch::Scratch;

    pub(in crate::record) fn cells(line: &str) -> Cells {
        line.split(',').map(String::from).collect()
    }

    pub(in crate::record) fn added(run_id: &str, outcomes: &[(&str, &str)]) -> Added {
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
        Added {
            ended: Some(when.clone()),
            when,
            written: SystemTime::UNIX_EPOCH,
            run_id: run_id.into(),
            dir: PathBuf::new(),
            commit: "c".into(),
            rows: outcomes.iter().map(row).collect(),
            silent: BTreeSet::new(),
            seen: Vec::new(),
        }
    }

    pub(in crate::record) const FIRST: &str = "20260101T000000Z-aaaaaa";
    pub(in crate::record) const SECOND: &str = "20260102T000000Z-bbbbbb";
    pub(in crate::record) const THIRD: &str = "20260103T000000Z-cccccc";

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
        assert_eq!(durations(&mut table, &runs, &BTreeMap::new()), 1);
        assert_eq!(table, [cells("A.a,2,4,pass"), cells("A.b,7,9,pass"), cells("A.z,1,1,pass")]);
        assert_eq!(durations(&mut table, &runs, &BTreeMap::new()), 0);
    }

    /// Runs that are gone count on, and do not hide what a later one came to.
    #[test]
    fn a_row_that_knows_more_runs_learns_what_came_of_the_last() {
        let root = Scratch::new("rebuild");
        let dir = root.join("history/simulator");
        std::fs::create_dir_all(&dir).expect("a folder");
        std::fs::write(root.join("FORMAT"), "").expect("writes");
        let layout = Layout::open(&root).expect("opens");
        let verdicts = |line: &str| format!("{}\n{FIRST},c,A.a,pass,,pass\n{line}", VERDICT_COLUMNS.join(","));
        let durations = format!("{}\nA.a,5,9,pass\n", DURATION_COLUMNS.join(","));
        std::fs::write(dir.join("verdicts.csv"), verdicts("")).expect("writes");
        std::fs::write(dir.join("durations.csv"), &durations).expect("writes");
        let run = layout.runs().join(SECOND);
        std::fs::create_dir_all(&run).expect("a folder");
        let written = root.join("log");
        let mut log = super::super::EventLog::create(&written).expect("creates");
        let header = serde_json::json!({ "run_id": SECOND, "mode": "run", "history": "simulator" });
        log.append("run", &header).expect("writes");
        let attempt = serde_json::json!({ "case_id": "A.a", "worker_id": "w", "verdict": "fail", "outcome": "fail.x" });
        log.append("attempt", &attempt).expect("writes");
        log.append("end", &serde_json::json!({})).expect("writes");
        // The thread that syncs lets go of the log itself only a moment later.
        std::fs::copy(&written, run.join("events.jsonl")).expect("copies");
        mend(&layout, "now", false).expect("mends");
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a table");
        assert_eq!(read("verdicts.csv"), verdicts(&format!("{SECOND},,A.a,fail,pass,fail.x\n")));
        assert_eq!(read("durations.csv"), durations.replace("A.a,5,9,pass", "A.a,5,9,fail.x"));
    }

    #[test]
    fn damaged_rows_are_counted_and_other_columns_are_left_alone() {
        let good = "case_id,runs,dur_us,outcome\nA.a,1,9,pass\nA.b,x,9,pass\nA.c,1\nA.d,2,8,pa";
        let (rows, damaged) = parse(good.as_bytes(), DURATION_COLUMNS).expect("ours");
        assert_eq!((rows, damaged), (vec![cells("A.a,1,9,pass")], 3));
        assert_eq!(parse(b"case_id,other\n", DURATION_COLUMNS), None);
        for header in ["case_id,runs,dur_us,outcomf", "casf_id,runs,dur_us,outcome"] {
            let text = format!("{header}\nA.a,1,9,pass\n");
            assert_eq!(parse(text.as_bytes(), DURATION_COLUMNS), Some((vec![cells("A.a,1,9,pass")], 1)), "{header}");
        }
        assert_eq!(parse(b"", DURATION_COLUMNS), Some((vec![], 0)));
        crate::property::property(|u| {
            let bytes: Vec<u8> = u.arbitrary()?;
            let _ = parse(&bytes, DURATION_COLUMNS);
            Ok(())
        })
        .cases(1000);
    }
}
