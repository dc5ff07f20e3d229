//! Mends the tables of `history/` from the runs that are there.
//!
//! A row of a run that is here must say what the run says, see `audit.rs`; any
//! other row that can be read stays as it is: it may tell of runs that are
//! elsewhere. What runs know and a table lacks is put in, in the order of time. A
//! file that lost rows, or had wrong ones, is kept aside. Mending twice changes
//! nothing more.

use super::audit::{self, Judged};
use super::determinism::{self, SeenClass};
use super::flakes::{self, Hunted};
use super::gates::{self, GateRow};
use super::history::{mark_added, slug};
use super::join::Told;
use super::layout::{ResultsFolder, replace};
use super::recorded::Recorded;
use super::rows::{CaseRow, DurationRow, PerfRow, RowOfRun, TableRow, VerdictRow, line, lines};
use super::run_rows::{self, RunRow};
use super::runs::{RunInfo, RunState, stamp_of};
use super::table::{aside, is_older, parse};
use super::times;
use crate::outcome::{Digest, Perf, Verdict};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
    /// It had columns of a version before.
    pub(crate) older: bool,
    pub(crate) aside: Option<PathBuf>,
}

impl MendedTable {
    /// Whether anything had to be done.
    pub(crate) fn changed(&self) -> bool {
        self.older || self.damaged + self.added + self.wrong.len() > 0
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
    pub(super) rows: Vec<CaseRow>,
    /// Cases of which it knows, but that no table tells of.
    pub(super) silent: BTreeSet<String>,
    pub(super) seen: Vec<SeenClass>,
    /// What it found of times.
    pub(super) found: Vec<GateRow>,
}

impl Added {
    fn of(info: &RunInfo, run: &Recorded) -> Self {
        let mut rows = rows(run);
        rows.retain(|row| Told::tells(run, &row.case_id));
        let told: BTreeSet<&str> = rows.iter().map(|row| row.case_id.as_str()).collect();
        let silent = run.cases.keys().filter(|id| !told.contains(id.as_str())).cloned().collect();
        let whole = info.finished() && run.end.as_ref().is_some_and(|end| end.repaired != Some(true));
        Self {
            when: info.started(),
            ended: run.header.ended_utc.clone().filter(|_| whole),
            written: info.written,
            run_id: info.id.clone(),
            dir: info.dir.clone(),
            commit: commit(run),
            rows,
            silent,
            seen: determinism::seen(run).into_iter().filter(|seen| Told::tells(run, &seen.case_id)).collect(),
            found: gates::found(run).into_iter().filter(|row| Told::tells(run, row.case_id())).collect(),
        }
    }
}

/// The commit of the sources, by a run's header.
pub(super) fn commit(run: &Recorded) -> String {
    run.header.commit().to_string()
}

/// Runs and hunts of one kind of device.
#[derive(Default)]
struct DeviceRuns {
    runs: Vec<Added>,
    hunts: Vec<Hunted>,
    /// Those that add rows.
    told: Vec<RunRow>,
}

/// Mends every table. Runs are read one by one. With `dry`, nothing is written.
pub(crate) fn mend(layout: &ResultsFolder, stamp: &str, dry: bool) -> io::Result<Vec<MendedTable>> {
    let mut devices: BTreeMap<String, DeviceRuns> = BTreeMap::new();
    let all = layout.list()?;
    let joined = Told::of(&all);
    for info in all.iter().filter(|info| info.state != RunState::Live && !joined.silences(&info.id)) {
        // One that cannot be read adds nothing; whoever asks for the runs hears of it.
        let Ok(run) = info.load() else { continue };
        let Some(device) = run.device().filter(|_| is_whole(&run)) else { continue };
        let told = devices.entry(slug(&device)).or_default();
        let row = RunRow::new(&info.id, &run.header);
        if run.judges() {
            let added = Added::of(info, &run);
            told.told.extend((!added.rows.is_empty()).then_some(row));
            told.runs.push(added);
        } else if run.header.mode() == "hunt" {
            let hunted = Hunted::of(info, &run);
            told.told.extend((!hunted.is_empty()).then_some(row));
            told.hunts.push(hunted);
        }
    }
    let folders = std::fs::read_dir(layout.history()).into_iter().flatten().flatten();
    for entry in folders.filter(|entry| entry.path().is_dir()) {
        devices.entry(entry.file_name().to_string_lossy().into_owned()).or_default();
    }
    // To look is no update: tables that cannot be locked are still read.
    let _lock = if dry { layout.lock().ok() } else { Some(layout.lock()?) };
    let mut mended = Vec::new();
    for (device, DeviceRuns { runs, hunts, told }) in &devices {
        let dir = layout.history().join(device);
        let table = Mending { dir: &dir, stamp, dry };
        let (mut news, mut named) = (BTreeMap::new(), BTreeMap::new());
        mended.extend(table.mend("verdicts.csv", |table| {
            let before = last_outcomes(table);
            let judged = audit::verdicts(table, runs);
            let judged = Judged { added: verdicts(table, runs), ..judged };
            named.extend(table.iter().map(|row| (row.run_id.clone(), row.commit.clone())));
            news = last_outcomes(table);
            news.retain(|id, outcome| before.get(id) != Some(outcome));
            judged
        })?);
        mended.extend(table.mend("perf.csv", |table| {
            let judged = audit::perf(table, runs);
            let judged = Judged { added: perf(table, runs), ..judged };
            named.extend(table.iter().map(|row| (row.run_id.clone(), row.commit.clone())));
            judged
        })?);
        mended.extend(table.mend("durations.csv", |table| {
            let judged = audit::durations(table, runs);
            Judged { added: durations(table, runs, &news), ..judged }
        })?);
        mended.extend(table.mend("determinism.csv", |table| determinism::mend(table, runs))?);
        mended.extend(table.mend("flake.csv", |table| flakes::mend(table, hunts))?);
        mended.extend(table.mend("runs.csv", |table| run_rows::mend(table, told, &named))?);
        mended.extend(table.mend("gate.csv", |table| gates::mend(table, runs))?);
        for name in times::names(&dir, runs) {
            mended.extend(table.mend(&name, |table| times::mend(table, &name, runs))?);
        }
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
    run.header.record_error.is_none() && run.health.is_whole() && run.cut_short().is_none()
}

/// The rows of a run, as the run itself would have added them.
pub(crate) fn rows(run: &Recorded) -> Vec<CaseRow> {
    let row = |(id, case): (&String, &super::RecordedCase)| {
        let last = case.shown()?;
        let (verdict, outcome, _) = case.verdict();
        let flaky = if verdict == "flaky" { "flaky." } else { "" };
        let verdict = verdict_named(verdict)?;
        let ran = !outcome.starts_with("not_run") && !last.worker_id.is_empty();
        ran.then(|| CaseRow {
            case_id: id.clone(),
            verdict,
            outcome: format!("{flaky}{outcome}"),
            dur_ns: last.dur_ns,
            perf: last.perf.as_ref().and_then(|perf| Perf::deserialize(perf).ok()),
            phases: last.phases.clone(),
            cached: last.is_cached(),
            held_to_digest: last.is_held_to_digest(),
            kernel_crc: last.kernel_crc.as_deref().and_then(|hex| u32::from_str_radix(hex, 16).ok()),
            code_digest: last.code_digest.as_deref().and_then(Digest::read),
            gpu: last.gpu_uuid.clone().unwrap_or_default(),
        })
    };
    run.cases.iter().filter_map(row).collect()
}

/// The tables of one device while they are mended.
struct Mending<'m> {
    dir: &'m Path,
    stamp: &'m str,
    /// Nothing is written.
    dry: bool,
}

impl Mending<'_> {
    /// Reads, mends and replaces one table. `None` where there is none and none is due.
    fn mend<R: TableRow>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut Vec<R>) -> Judged,
    ) -> io::Result<Option<MendedTable>> {
        let path = self.dir.join(name);
        let old = match std::fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some((mut table, damaged)) = parse::<R>(old.as_deref().unwrap_or_default()) else {
            // Other columns: a table of another version is not ours to mend.
            return Ok(None);
        };
        let Judged { added, wrong, unjudged } = fill(&mut table);
        let aside = (damaged + wrong.len() > 0).then(|| aside(&path, self.stamp));
        let older = is_older::<R>(old.as_deref().unwrap_or_default());
        let mended = MendedTable { path, damaged, added, wrong, rows: table.len(), unjudged, older, aside };
        if mended.changed() && !self.dry {
            if let (Some(aside), Some(bytes)) = (&mended.aside, &old) {
                replace(aside, bytes)?;
            }
            mended.path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let mut bytes = line(&R::COLUMNS)?;
            bytes.extend(lines(&table)?);
            replace(&mended.path, &bytes)?;
        }
        Ok((old.is_some() || mended.changed()).then_some(mended))
    }
}

/// The verdict of a stable name.
fn verdict_named(name: &str) -> Option<Verdict> {
    Verdict::deserialize(StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

/// Where the time of each row lies; a name without a time has that of the row before.
fn times<R: RowOfRun>(table: &[R]) -> Vec<String> {
    let mut last = String::new();
    let mut time = |row: &R| {
        last = stamp_of(row.run_id()).unwrap_or_else(|| std::mem::take(&mut last));
        last.clone()
    };
    table.iter().map(&mut time).collect()
}

/// Puts rows into a table behind everything that is not later.
pub(super) fn insert<R: RowOfRun>(table: &mut Vec<R>, when: &str, rows: Vec<R>) -> usize {
    let (at, count) = (times(table).iter().rposition(|time| time.as_str() <= when).map_or(0, |at| at + 1), rows.len());
    table.splice(at..at, rows);
    count
}

/// Cases of which a table has a row of the run.
pub(super) fn told<'t, R: RowOfRun>(table: &'t [R], run: &Added) -> BTreeSet<&'t str> {
    table.iter().filter(|row| row.run_id() == run.run_id).map(RowOfRun::case_id).collect()
}

fn verdicts(table: &mut Vec<VerdictRow>, runs: &[Added]) -> usize {
    let mut added = 0;
    for run in runs {
        let told = told(table, run);
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next: BTreeMap<&str, &VerdictRow> = BTreeMap::new();
        for (row, time) in table.iter().zip(times(table)) {
            if time > run.when {
                next.entry(&row.case_id).or_insert(row);
            } else if row.run_id != run.run_id {
                before.insert(&row.case_id, &row.outcome);
            }
        }
        let mut rows = Vec::new();
        for row in run.rows.iter().filter(|row| !told.contains(row.case_id.as_str())) {
            let old = before.get(row.case_id.as_str()).copied().unwrap_or_default();
            // Of runs that went on at once, the one that ended first tells of the change.
            let is_told = |next: &&&VerdictRow| next.before == old && next.outcome == row.outcome;
            if old != row.outcome && next.get(row.case_id.as_str()).filter(is_told).is_none() {
                rows.push(VerdictRow::new(&run.run_id, &run.commit, row, old));
            }
        }
        added += insert(table, &run.when, rows);
    }
    added
}

fn perf(table: &mut Vec<PerfRow>, runs: &[Added]) -> usize {
    let mut added = 0;
    for run in runs {
        let told = told(table, run);
        let lacking = run.rows.iter().filter(|row| !told.contains(row.case_id.as_str()));
        let rows = lacking.filter_map(|row| PerfRow::new(&run.run_id, &run.commit, row)).collect();
        added += insert(table, &run.when, rows);
    }
    added
}

/// What each case came to last, by the rows of `verdicts.csv`.
fn last_outcomes(table: &[VerdictRow]) -> BTreeMap<String, String> {
    table.iter().map(|row| (row.case_id.clone(), row.outcome.clone())).collect()
}

/// A row that knows as many runs or more stays, but for what cases came to last, where
/// that is `news` to the tables.
fn durations(table: &mut Vec<DurationRow>, runs: &[Added], news: &BTreeMap<String, String>) -> usize {
    let mut derived: BTreeMap<String, DurationRow> = BTreeMap::new();
    let mut seen: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| &run.rows) {
        let entry = seen.entry(&row.case_id).or_insert((0, 0, ""));
        let (runs, dur_us) = row.counted(entry.0, entry.1);
        *entry = (runs, dur_us, &row.outcome);
    }
    for (id, (runs, dur_us, outcome)) in seen {
        derived.insert(id.into(), DurationRow { case_id: id.into(), runs, dur_us, outcome: outcome.into() });
    }
    for row in table.iter() {
        if derived.get(&row.case_id).is_none_or(|mine| row.runs >= mine.runs) {
            derived.insert(row.case_id.clone(), row.clone());
        }
    }
    for (id, outcome) in news {
        if let Some(row) = derived.get_mut(id) {
            row.outcome.clone_from(outcome);
        }
    }
    let old: BTreeSet<DurationRow> = table.drain(..).collect();
    *table = derived.into_values().collect();
    table.iter().filter(|row| !old.contains(*row)).count()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// The row of a line.
    pub(in crate::record) fn row<R: TableRow>(line: &str) -> R {
        R::of(&csv::StringRecord::from(line.split(',').collect::<Vec<_>>())).expect("a row")
    }

    pub(in crate::record) fn added(run_id: &str, outcomes: &[(&str, &str)]) -> Added {
        let row = |(id, outcome): &(&str, &str)| CaseRow {
            case_id: (*id).into(),
            verdict: if *outcome == "pass" { Verdict::Pass } else { Verdict::Fail },
            outcome: (*outcome).into(),
            dur_ns: 4_000,
            perf: None,
            phases: BTreeMap::new(),
            cached: false,
            held_to_digest: false,
            kernel_crc: None,
            code_digest: None,
            gpu: String::new(),
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
            found: Vec::new(),
        }
    }

    pub(in crate::record) const FIRST: &str = "20260101T000000Z-aaaaaa";
    pub(in crate::record) const SECOND: &str = "20260102T000000Z-bbbbbb";
    pub(in crate::record) const THIRD: &str = "20260103T000000Z-cccccc";

    #[test]
    fn changes_are_put_where_their_time_is_and_only_once() {
        let runs = [added(FIRST, &[("A.a", "pass")]), added(SECOND, &[("A.a", "fail.x"), ("A.b", "pass")])];
        let mut table =
            vec![row(&format!("{FIRST},c,A.a,pass,,pass")), row(&format!("{THIRD},c,A.a,pass,fail.x,pass"))];
        assert_eq!(verdicts(&mut table, &runs), 2);
        let ids: Vec<&str> = table.iter().map(|row: &VerdictRow| row.run_id.as_str()).collect();
        assert_eq!(ids, [FIRST, SECOND, SECOND, THIRD]);
        assert_eq!((table[1].before.as_str(), table[1].outcome.as_str()), ("pass", "fail.x"));
        assert_eq!(verdicts(&mut table, &runs), 0);
    }

    /// The second run began later, and ended first.
    #[test]
    fn of_runs_at_once_the_first_that_ends_tells_of_a_change() {
        let runs = [added(FIRST, &[("A.a", "pass"), ("A.b", "pass")]), added(SECOND, &[("A.a", "pass")])];
        let mut table = vec![row(&format!("{SECOND},c,A.a,pass,,pass"))];
        assert_eq!(verdicts(&mut table, &runs), 1);
        let told: Vec<_> = table.iter().map(|row| (row.run_id.as_str(), row.case_id.as_str())).collect();
        assert_eq!(told, [(FIRST, "A.b"), (SECOND, "A.a")]);
    }

    #[test]
    fn a_duration_that_knows_more_runs_stays() {
        let runs = [added(FIRST, &[("A.a", "pass"), ("A.b", "pass")]), added(SECOND, &[("A.a", "pass")])];
        let mut table = vec![row("A.a,1,9,pass"), row("A.b,7,9,pass"), row("A.z,1,1,pass")];
        assert_eq!(durations(&mut table, &runs, &BTreeMap::new()), 1);
        assert_eq!(table, [row("A.a,2,4,pass"), row("A.b,7,9,pass"), row("A.z,1,1,pass")]);
        assert_eq!(durations(&mut table, &runs, &BTreeMap::new()), 0);
    }

    /// Runs that are gone count on, and do not hide what a later one came to.
    #[test]
    fn a_row_that_knows_more_runs_learns_what_came_of_the_last() {
        let root = Scratch::new("rebuild");
        let dir = root.join("history/simulator");
        std::fs::create_dir_all(&dir).expect("a folder");
        std::fs::write(root.join("FORMAT"), "").expect("writes");
        let layout = ResultsFolder::open(&root).expect("opens");
        let verdicts = |line: &str| format!("{}\n{FIRST},c,A.a,pass,,pass\n{line}", VerdictRow::COLUMNS.join(","));
        let durations = format!("{}\nA.a,5,9,pass\n", DurationRow::COLUMNS.join(","));
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
        let (rows, damaged) = parse::<DurationRow>(good.as_bytes()).expect("ours");
        assert_eq!((rows, damaged), (vec![row("A.a,1,9,pass")], 3));
        assert_eq!(parse::<DurationRow>(b"case_id,other\n"), None);
        for header in ["case_id,runs,dur_us,outcomf", "casf_id,runs,dur_us,outcome"] {
            let text = format!("{header}\nA.a,1,9,pass\n");
            assert_eq!(parse::<DurationRow>(text.as_bytes()), Some((vec![row("A.a,1,9,pass")], 1)), "{header}");
        }
        assert_eq!(parse::<DurationRow>(b""), Some((vec![], 0)));
        crate::property::property(|u| {
            let bytes: Vec<u8> = u.arbitrary()?;
            let _ = parse::<DurationRow>(&bytes);
            Ok(())
        })
        .cases(1000);
    }
}
