//! Derived tables of one kind of device, for people and spreadsheets, and for
//! the order of the next run.
//!
//! * `durations.csv`: one row for each case: runs, smoothed duration, last outcome. One that the
//!   machine kept from running (`infra`) counts for no run.
//! * `verdicts.csv`: a row whenever a case's outcome changes.
//! * `determinism.csv`: see `determinism.rs`.
//! * `verified.csv`: see `verified.rs`.
//! * `perf.csv`: a row for each measurement.
//! * `times/`: see `times.rs`.
//! * `runs.csv`: see `run_rows.rs`.

use super::determinism::SeenClass;
use super::rows::{CaseRow, DurationRow, PerfRow, RowOfRun, TableRow, VerdictRow, lines};
use super::table::{Notes, Table, TableFile};
use crate::os::FileLock;
use crate::outcome::{Known, Last};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// In the folder of a run whose rows are in the tables.
const ADDED: &str = "history.added";

/// The tables of one device.
pub(crate) struct History {
    dir: PathBuf,
    lock: PathBuf,
}

impl History {
    pub(crate) fn of(results: &Path, device: &str) -> Self {
        Self { dir: results.join("history").join(slug(device)), lock: results.join("lock") }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
    pub(super) fn lock(&self) -> &Path {
        &self.lock
    }

    /// What earlier runs say, as far as it can be read. How long a case takes that never ran on
    /// such a GPU is taken from GPUs of other kinds: that is enough to begin with the long ones.
    pub(crate) fn known(&self) -> BTreeMap<String, Known> {
        let others = self.lock.parent().filter(|_| !self.is_simulated()).map(Self::of_gpus).unwrap_or_default();
        let others = others.iter().filter(|other| other.dir != self.dir).flat_map(Self::durations);
        let mut known: BTreeMap<String, Known> = others
            .map(|row| (row.known_ns(), row.case_id))
            .map(|(dur_ns, case_id)| (case_id, Known { dur_ns, failed: false }))
            .collect();
        known.extend(self.durations().into_iter().map(|row| {
            let failed = !(row.outcome == "pass" || row.outcome.starts_with("skip"));
            let dur_ns = row.known_ns();
            (row.case_id, Known { dur_ns, failed })
        }));
        known
    }

    /// Whether these are not the tables of a GPU.
    fn is_simulated(&self) -> bool {
        self.dir.ends_with("simulator") || self.dir.ends_with("reference")
    }

    /// The tables of all devices that are not simulated.
    pub(crate) fn of_gpus(results: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(results.join("history")).into_iter().flatten().flatten();
        let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        dirs.sort();
        let all = dirs.into_iter().map(|dir| Self { dir, lock: results.join("lock") });
        all.filter(|history| !history.is_simulated()).collect()
    }

    /// The last run of each case, for selection.
    pub(crate) fn past(&self) -> HashMap<String, Last> {
        let last = |row: DurationRow| {
            let dur_ns = row.known_ns();
            (row.case_id, Last { outcome: row.outcome, dur_ns, runs: row.runs })
        };
        self.durations().into_iter().map(last).collect()
    }

    /// Rows that can be read; none of a table of another version.
    fn durations(&self) -> Vec<DurationRow> {
        self.table("durations.csv").map_or_else(|_| Vec::new(), |table| table.rows)
    }

    pub(super) fn table<T: TableRow>(&self, name: &str) -> io::Result<Table<T>> {
        Table::read(&self.dir.join(name))
    }

    /// Adds a run, once: its folder says whether that was done. A harness that was
    /// killed may have added some of it. Two may do so at once.
    pub(crate) fn add_once(
        &self,
        run_dir: &Path,
        run_id: &str,
        commit: &str,
        rows: &[CaseRow],
        seen: &[SeenClass],
    ) -> io::Result<Notes> {
        if rows.is_empty() && seen.is_empty() {
            return Ok(Notes::new());
        }
        let _lock = FileLock::acquire(&self.lock)?;
        if run_dir.join(ADDED).exists() {
            return Ok(Notes::new());
        }
        // A table of another version does not keep the others from growing.
        let (added, learnt) = (self.add(run_id, commit, rows), self.learn_determinism(run_id, seen));
        let mut notes = added?;
        notes.extend(learnt?);
        notes.extend(self.add_times(run_dir, run_id, rows)?);
        notes.extend(self.note_run_locked(run_dir)?);
        mark_added(run_dir)?;
        Ok(notes)
    }

    /// Adds rows of a run. Whoever calls holds the lock.
    pub(super) fn add(&self, run_id: &str, commit: &str, rows: &[CaseRow]) -> io::Result<Notes> {
        if rows.is_empty() {
            return Ok(Notes::new());
        }
        std::fs::create_dir_all(&self.dir)?;
        let mut table: Table<DurationRow> = self.table("durations.csv")?;
        let old = std::mem::take(&mut table.rows).into_iter();
        let mut known: BTreeMap<String, DurationRow> = old.map(|row| (row.case_id.clone(), row)).collect();
        let mut changed = Vec::new();
        for row in rows {
            let entry = known.entry(row.case_id.clone()).or_insert_with(|| DurationRow {
                case_id: row.case_id.clone(),
                runs: 0,
                dur_us: 0,
                outcome: String::new(),
            });
            (entry.runs, entry.dur_us) = row.counted(entry.runs, entry.dur_us);
            if entry.outcome != row.outcome {
                changed.push(VerdictRow::new(run_id, commit, row, &entry.outcome));
                entry.outcome = row.outcome.clone();
            }
        }
        let mut notes = self.append("verdicts.csv", changed)?;
        let perf: Vec<PerfRow> = rows.iter().filter_map(|row| PerfRow::new(run_id, commit, row)).collect();
        notes.extend(self.append("perf.csv", perf)?);
        notes.extend(table.write(known.into_values())?);
        Ok(notes)
    }

    /// Appends rows in one write. What is there already, of a run that was killed in
    /// the middle, is left out.
    pub(super) fn append<R: RowOfRun>(&self, name: &str, rows: Vec<R>) -> io::Result<Notes> {
        let Some(run) = rows.first().map(|row| row.run_id().to_string()) else { return Ok(Notes::new()) };
        let path = self.dir.join(name);
        let (file, notes) = TableFile::to_append::<R>(&path)?;
        let told = told::<R>(&file.bytes, &run);
        let new: Vec<&R> = rows.iter().filter(|row| !told.contains(row.case_id())).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        for cells in csv::ReaderBuilder::new().has_headers(false).from_reader(&*lines(&new)?).records() {
            writer.write_record(cells?.iter().map(guard))?;
        }
        let bytes = writer.into_inner().map_err(|error| error.into_error())?;
        let file = std::fs::File::options().create(true).append(true).open(&path)?;
        io::Write::write_all(&mut &file, &bytes)?;
        Ok(notes)
    }
}

/// Says in the folder of a run that its rows are in the tables.
pub(super) fn mark_added(run_dir: &Path) -> io::Result<()> {
    let path = run_dir.join(ADDED);
    if path.exists() { Ok(()) } else { std::fs::write(path, b"") }
}

/// The cases of which a table has a row of the run.
fn told<R: RowOfRun>(table: &[u8], run: &str) -> BTreeSet<String> {
    // Nearly always a new run: then there is nothing to take apart. Tables are text, and of many runs.
    let named = |text: &str| text.contains(&format!("\n{run},"));
    if std::str::from_utf8(table).is_ok_and(|text| !named(text)) {
        return BTreeSet::new();
    }
    let rows = csv::ReaderBuilder::new().flexible(true).from_reader(table).into_records().filter_map(Result::ok);
    let own = rows.filter_map(|row| R::of(&row)).filter(|row| row.run_id() == run);
    own.map(|row| row.case_id().to_string()).collect()
}

/// A cell that a spreadsheet would take for a formula gets a quote in front.
pub(super) fn guard(cell: &str) -> String {
    let number = cell.parse::<f64>().is_ok();
    if !number && cell.starts_with(['=', '+', '-', '@']) { format!("'{cell}") } else { cell.to_string() }
}

/// `NVIDIA H200` as a folder: `nvidia-h200`.
pub(super) fn slug(device: &str) -> String {
    let lower: String =
        device.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let words: Vec<&str> = lower.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "unknown".into() } else { words.join("-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Determinism, LastVerdict, Perf, Verdict};
    use crate::scratch::Scratch;

    fn row(case_id: &str, outcome: &str, dur_ns: u64) -> CaseRow {
        let verdict = match outcome.split('.').next() {
            Some("pass") => Verdict::Pass,
            Some("infra") => Verdict::Infra,
            _ => Verdict::Fail,
        };
        let (perf, phases, kernel_crc) = (None, BTreeMap::new(), None);
        let (case_id, outcome) = (case_id.into(), outcome.into());
        let (cached, held_to_digest, gpu) = (false, false, String::new());
        let code_digest = None;
        CaseRow {
            case_id,
            verdict,
            outcome,
            dur_ns,
            perf,
            phases,
            cached,
            held_to_digest,
            kernel_crc,
            code_digest,
            gpu,
        }
    }

    #[test]
    fn what_the_machine_kept_from_running_is_remembered_and_counts_for_no_run() {
        let root = Scratch::new("history-infra");
        let history = History::of(&root, "simulator");
        std::fs::create_dir_all(history.dir()).expect("folder");
        let add = |row| history.add("r", "c", &[row]).expect("adds");
        let last = |id: &str| {
            let last = history.past().remove(id).expect("a row");
            (last.verdict(), last.runs, last.dur_ns)
        };
        add(row("A.a", "pass", 4_000_000));
        add(row("A.a", "infra.gpu_lost", 9_000_000));
        assert_eq!(last("A.a"), (LastVerdict::Infra, 1, Some(4_000_000)));
        add(row("A.b", "infra.gpu_lost", 9_000_000));
        assert_eq!(last("A.b"), (LastVerdict::Infra, 0, None));
        assert_eq!(history.known()["A.b"], Known { dur_ns: None, failed: true });
        add(row("A.b", "pass", 8_000_000));
        assert_eq!(last("A.b"), (LastVerdict::Pass, 1, Some(8_000_000)));
    }

    #[test]
    fn what_never_ran_on_such_a_gpu_is_as_long_as_on_another_one() {
        let root = Scratch::new("history-others");
        let add = |device: &str, row| History::of(&root, device).add("r", "c", &[row]).expect("adds");
        add("NVIDIA A", row("A.a", "pass", 4_000_000));
        add("NVIDIA B", row("A.a", "fail.numerics", 6_000_000));
        add("NVIDIA B", row("A.b", "fail.numerics", 8_000_000));
        add("simulator", row("A.c", "pass", 2_000_000));
        let known = |device: &str, id: &str| History::of(&root, device).known().get(id).copied();
        let of = |ms: u64, failed| Some(Known { dur_ns: Some(ms * 1_000_000), failed });
        assert_eq!(known("NVIDIA A", "A.a"), of(4, false));
        // What failed elsewhere has not failed here.
        assert_eq!(known("NVIDIA A", "A.b"), of(8, false));
        assert_eq!(known("NVIDIA B", "A.b"), of(8, true));
        assert_eq!((known("NVIDIA A", "A.c"), known("simulator", "A.a")), (None, None));
    }

    #[test]
    fn a_kernel_that_was_found_compiled_makes_no_case_look_quick() {
        let cached = |dur_ns| CaseRow { cached: true, ..row("A.a", "pass", dur_ns) };
        assert_eq!(cached(4_000_000).counted(0, 0), (1, 4000));
        assert_eq!(cached(4_000_000).counted(3, 80_000), (4, 80_000));
        assert_eq!(cached(160_000_000).counted(3, 80_000), (4, 100_000));
        let held = CaseRow { held_to_digest: true, ..row("A.a", "pass", 4_000_000) };
        assert_eq!(held.counted(3, 80_000), (4, 80_000));
        assert_eq!(row("A.a", "pass", 4_000_000).counted(3, 80_000), (4, 61_000));
        let perf = |row: CaseRow| {
            let phases = [("codegen".to_string(), 2_000_000), ("load".to_string(), 1_000_000)].into();
            let row = CaseRow { perf: Some(Perf::default()), phases, ..row };
            let cells = PerfRow::new("r", "c", &row).expect("a row").cells().expect("writes");
            let of =
                |name| cells[PerfRow::COLUMNS.iter().position(|column| *column == name).expect("there")].to_string();
            [of("codegen_ms"), of("load_ms")]
        };
        assert_eq!(perf(row("A.a", "pass", 1)), ["2.000", "1.000"]);
        assert_eq!(perf(cached(1)), ["", "1.000"]);
    }

    #[test]
    fn tables_grow_by_changes_and_survive_a_torn_line() {
        let root = Scratch::new("history");
        let history = History::of(&root, "NVIDIA H200");
        std::fs::create_dir_all(history.dir()).expect("folder");
        history.add("r1", "c", &[row("A.a", "pass", 4_000_000), row("A.b", "fail.numerics", 8_000_000)]).expect("adds");
        history.add("r2", "c", &[row("A.a", "pass", 8_000_000)]).expect("adds");
        let known = history.known();
        assert_eq!(known["A.a"], Known { dur_ns: Some(5_000_000), failed: false });
        assert!(known["A.b"].failed);
        let path = root.join("history/nvidia-h200/verdicts.csv");
        let mut text = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(text.lines().count(), 3);
        text.push_str("r3,c,A.a,fa");
        std::fs::write(&path, text).expect("writes");
        history
            .add(
                "r4",
                "c",
                &[CaseRow {
                    perf: Some(Perf { median_ns: Some(1.5), ..Perf::default() }),
                    ..row("A.a", "hang.host", 1)
                }],
            )
            .expect("adds");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(text.lines().last(), Some("r4,c,A.a,fail,pass,hang.host"));
        assert_eq!(text.lines().count(), 4);
        let perf = std::fs::read_to_string(root.join("history/nvidia-h200/perf.csv")).expect("reads");
        assert!(perf.lines().nth(1).is_some_and(|line| line.starts_with("r4,c,A.a,0,0,1.5,,,")), "{perf}");
    }

    /// A run that was killed while it added its rows, or is gone on with twice.
    #[test]
    fn a_run_is_added_once() {
        let root = Scratch::new("history-once");
        let run_dir = root.join("runs/r1");
        std::fs::create_dir_all(&run_dir).expect("folder");
        let history = History::of(&root, "simulator");
        let perf = Some(Perf { median_ns: Some(1.5), ..Perf::default() });
        let rows = [row("A.a", "fail.x", 4_000_000), CaseRow { perf, ..row("A.b", "pass", 4_000_000) }];
        let seen = [SeenClass { case_id: "A.b".into(), class: Determinism::Bitwise, kernel_crc: Some(1) }];
        let add = || history.add_once(&run_dir, "r1", "c", &rows, &seen).expect("adds");
        let text = |name: &str| std::fs::read_to_string(history.dir().join(name)).expect("a table");
        let tables = || ["verdicts.csv", "perf.csv", "durations.csv"].map(|name| text(name).lines().count());
        let learnt = |text: String| text.lines().skip(1).map(String::from).collect::<Vec<_>>();
        add();
        assert_eq!((tables(), history.past()["A.a"].runs), ([3, 2, 3], 1));
        add();
        assert_eq!((tables(), history.past()["A.a"].runs), ([3, 2, 3], 1));
        assert_eq!(learnt(text("determinism.csv")), ["A.b,bitwise,00000001,1,r1"]);
        // Killed between the tables: the sums were not yet written.
        std::fs::remove_file(history.dir().join("durations.csv")).expect("removes");
        std::fs::remove_file(run_dir.join(ADDED)).expect("removes");
        add();
        assert_eq!((tables(), history.past()["A.a"].runs), ([3, 2, 3], 1));
    }

    /// Changes a table's text; what a run then makes of it and of the file beside it.
    #[track_caller]
    fn check_damage(name: &str, change: impl Fn(&str) -> String, wanted: &[&str], notes: usize) {
        let root = Scratch::new("history-damage");
        let history = History::of(&root, "simulator");
        let perf = || Some(Perf { median_ns: Some(1.5), ..Perf::default() });
        let two = ["A.a", "A.b"].map(|id| CaseRow { perf: perf(), ..row(id, "pass", 4_000_000) });
        history.add("r1", "c", &two).expect("adds");
        let path = history.dir().join(name);
        let damaged = change(&std::fs::read_to_string(&path).expect("a table"));
        std::fs::write(&path, &damaged).expect("writes");
        let more = CaseRow { perf: perf(), ..row("A.b", "fail.x", 4_000_000) };
        let said = history.add("r2", "c", &[more]).expect("adds");
        let text = std::fs::read_to_string(&path).expect("a table");
        let head = |line: &str| line.split(',').take(4).collect::<Vec<_>>().join(",");
        let heads: Vec<String> = text.lines().map(head).collect();
        assert_eq!(heads, wanted, "{name}");
        assert_eq!(said.len(), notes, "{said:?}");
        let files = std::fs::read_dir(history.dir()).expect("lists").flatten().map(|entry| entry.path());
        let kept: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().contains(".damaged-")).collect();
        assert_eq!(kept.len(), notes);
        assert!(kept.iter().all(|path| std::fs::read_to_string(path).is_ok_and(|text| text == damaged)), "{said:?}");
    }

    #[test]
    fn damage_costs_what_is_damaged_and_is_kept() {
        let durations = ["case_id,runs,dur_us,outcome", "A.a,1,4000,pass", "A.b,2,4000,fail.x"];
        check_damage("durations.csv", str::to_string, &durations, 0);
        for header in ["casf_id,runs,dur_us,outcome", "case_id,runs,dvr_us,outcome"] {
            check_damage("durations.csv", |text| text.replace(durations[0], header), &durations, 1);
        }
        let rest = ["case_id,runs,dur_us,outcome", "A.b,2,4000,fail.x"];
        check_damage("durations.csv", |text| text.replace("A.a,1,", "A.a,x,"), &rest, 1);
        let verdicts = ["run_id,commit,case_id,verdict", "r1,c,A.a,pass", "r1,c,A.b,pass", "r2,c,A.b,fail"];
        check_damage("verdicts.csv", |text| text.replace("commit", "commjt"), &verdicts, 1);
        let perf = ["run_id,commit,case_id,bytes", "r1,c,A.a,0", "r1,c,A.b,0", "r2,c,A.b,0"];
        check_damage("perf.csv", |text| text.replace("run_id", "run_ie"), &perf, 1);
        // Only a line that a kill cut off is nothing to keep.
        check_damage("verdicts.csv", |text| format!("{text}r9,c,A.a,fa"), &verdicts, 0);
    }

    #[test]
    fn a_table_of_another_version_is_not_written() {
        let root = Scratch::new("history-version");
        let history = History::of(&root, "simulator");
        std::fs::create_dir_all(history.dir()).expect("a folder");
        for name in ["durations.csv", "verdicts.csv"] {
            let (path, text) = (history.dir().join(name), "case_id,runs,more,dur_us,outcome\nA.a,1,x,4,pass\n");
            let text = if name == "verdicts.csv" { "run_id,other\nr,x\n" } else { text };
            std::fs::write(&path, text).expect("writes");
            let why = history.add("r1", "c", &[row("A.a", "pass", 1)]).expect_err("is refused").to_string();
            assert!(why.contains(name) && why.contains("has other columns"), "{why}");
            assert_eq!(std::fs::read_to_string(&path).expect("a table"), text);
            std::fs::remove_file(&path).expect("removes");
        }
    }
}
