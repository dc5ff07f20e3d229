//! Runs in forms for other tools: one table, one stream of lines, one folder.

use super::history::guard;
use super::layout::ResultsFolder;
use super::merge::copy_dir;
use super::recorded::{Recorded, RecordedCase};
use super::runs::RunInfo;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// What lies in an exported folder.
#[derive(Serialize)]
struct Manifest {
    files: Vec<ManifestFile>,
}

/// A file of it, with what tells whether it is whole.
#[derive(Serialize)]
struct ManifestFile {
    bytes: usize,
    crc32: String,
    path: String,
}

/// Columns of the table: one row for each case of each run. Behind them stand the figures of [`PERF`] and
/// the simulator's counters, a column for each that one of the runs has.
const COLUMNS: &[&str] = &[
    "run_id",
    "started_utc",
    "host",
    "commit",
    "dirty",
    "command",
    "device",
    "driver",
    "case_id",
    "verdict",
    "outcome",
    "passed_by",
    "attempts",
    "failures",
    "dur_ns",
    "worker_id",
    "gpu_uuid",
    "kernel_crc",
    "detail",
];

/// Figures of a measurement, as records name them.
const PERF: &[&str] =
    &["bytes", "samples", "median_ns", "p10_ns", "p90_ns", "gbps", "copy_gbps", "share", "host_us", "goal_met"];

/// A table of all cases of the runs.
pub(crate) fn csv<'a>(runs: impl Iterator<Item = (&'a str, &'a Recorded)> + Clone, out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let cases = runs.clone().flat_map(|(_, run)| run.cases.values());
    let counters: BTreeSet<&str> = cases.filter_map(measured).flat_map(counter_names).collect();
    writer.write_record(COLUMNS.iter().chain(PERF).chain(&counters))?;
    for (id, run) in runs {
        let start = of_run(id, run);
        for (case_id, case) in &run.cases {
            let cells = start.iter().cloned().chain(of_case(run, case_id, case)).chain(of_perf(case, &counters));
            writer.write_record(cells.map(|cell| guard(&cell)))?;
        }
    }
    writer.flush()
}

/// What all cases of a run have in common.
fn of_run(id: &str, run: &Recorded) -> [String; 8] {
    let header = &run.header;
    let dirty = header.provenance.as_ref().and_then(|source| source.git_dirty);
    [
        id.to_string(),
        header.started_utc.clone().unwrap_or_default(),
        header.host().to_string(),
        header.commit().to_string(),
        dirty.map_or(String::new(), |dirty| dirty.to_string()),
        header.mode().to_string(),
        run.device().unwrap_or_default(),
        header.driver().unwrap_or_default().to_string(),
    ]
}

fn of_case(run: &Recorded, case_id: &str, case: &RecordedCase) -> [String; 11] {
    let (mut verdict, mut outcome, detail) = case.verdict();
    if run.explores() {
        // It comes to no verdict; a hunt has found something.
        verdict = run.hunted(case_id).and_then(|found| found["finding"].as_str()).unwrap_or_default();
        outcome = "";
    }
    let last = case.attempts.last();
    [
        case_id.into(),
        verdict.into(),
        outcome.into(),
        case.passed_by().unwrap_or_default().into(),
        case.tried().to_string(),
        case.failures().to_string(),
        case.dur_ns().to_string(),
        last.map(|a| a.worker_id.clone()).unwrap_or_default(),
        last.and_then(|a| a.gpu_uuid.clone()).unwrap_or_default(),
        last.and_then(|a| a.kernel_crc.clone()).unwrap_or_default(),
        detail.lines().next().unwrap_or_default().into(),
    ]
}

/// What was measured of a case, if it was.
fn measured(case: &RecordedCase) -> Option<&Value> {
    case.attempts.last().and_then(|attempt| attempt.perf.as_ref())
}

fn counter_names(perf: &Value) -> impl Iterator<Item = &str> {
    perf["counters"].as_object().into_iter().flat_map(|counters| counters.keys().map(String::as_str))
}

/// A cell for each figure and counter; one that is not there is empty.
fn of_perf(case: &RecordedCase, counters: &BTreeSet<&str>) -> Vec<String> {
    let perf = measured(case).unwrap_or(&Value::Null);
    let cell = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
    let figures = PERF.iter().map(|name| cell(&perf[name]));
    figures.chain(counters.iter().map(|name| cell(&perf["counters"][name]))).collect()
}

/// All records of a run, one a line, each with the run's name.
pub(crate) fn jsonl(id: &str, log: &Path, mut out: impl Write) -> io::Result<()> {
    let mut result = Ok(());
    super::reader::scan(log, |mut record| {
        if let Some(fields) = record.as_object_mut() {
            // The checksum is of other bytes.
            fields.remove("crc");
            fields.insert("run_id".into(), id.into());
        }
        if result.is_ok() {
            result = writeln!(out, "{record}");
        }
    })?;
    result
}

/// A results folder with copies of the runs, to carry away: `store merge` reads it.
pub(crate) fn folder(runs: &[RunInfo], to: &Path) -> io::Result<()> {
    let layout = ResultsFolder::claim(to)?;
    let mut files = Vec::new();
    for run in runs {
        let place = layout.runs().join(&run.id);
        if place.exists() {
            return Err(io::Error::other(format!("{} is there already", place.display())));
        }
        copy_dir(&run.dir, &place)?;
        list_files(&place, layout.root(), &mut files)?;
    }
    let manifest = serde_json::to_string_pretty(&Manifest { files })?;
    super::layout::replace(&to.join("MANIFEST.json"), format!("{manifest}\n").as_bytes())
}

fn list_files(dir: &Path, root: &Path, files: &mut Vec<ManifestFile>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            list_files(&path, root, files)?;
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let crc = format!("{:08x}", crc32fast::hash(&bytes));
        files.push(ManifestFile { bytes: bytes.len(), crc32: crc, path: shown });
    }
    Ok(())
}
