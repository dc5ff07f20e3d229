//! Runs in forms for other tools: one table, one stream of lines, one folder.

use super::history::guard;
use super::layout::ResultsFolder;
use super::merge::copy_dir;
use super::recorded::Recorded;
use super::runs::RunInfo;
use serde::Serialize;
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

/// Columns of the table: one row for each case of each run.
const COLUMNS: &[&str] = &[
    "run_id",
    "started_utc",
    "host",
    "commit",
    "device",
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
    "median_ns",
    "detail",
];

/// A table of all cases of the runs.
pub(crate) fn csv<'a>(runs: impl Iterator<Item = (&'a str, &'a Recorded)>, out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS)?;
    for (id, run) in runs {
        let header = &run.header;
        let start = [id.to_string(), header.started_utc.clone().unwrap_or_default(), header.host().to_string()];
        let commit = header.commit().to_string();
        for (case_id, case) in &run.cases {
            let (mut verdict, mut outcome, detail) = case.verdict();
            if run.explores() {
                // It comes to no verdict; a hunt has found something.
                verdict = run.hunted(case_id).and_then(|found| found["finding"].as_str()).unwrap_or_default();
                outcome = "";
            }
            let last = case.attempts.last();
            let median = last.and_then(|a| a.perf.as_ref()).and_then(|perf| perf["median_ns"].as_f64());
            let rest = [
                commit.clone(),
                run.device().unwrap_or_default(),
                case_id.clone(),
                verdict.into(),
                outcome.into(),
                case.passed_by().unwrap_or_default().into(),
                case.tried().to_string(),
                case.failures().to_string(),
                case.dur_ns().to_string(),
                last.map(|a| a.worker_id.clone()).unwrap_or_default(),
                last.and_then(|a| a.gpu_uuid.clone()).unwrap_or_default(),
                last.and_then(|a| a.kernel_crc.clone()).unwrap_or_default(),
                median.map_or(String::new(), |ns| ns.to_string()),
                detail.lines().next().unwrap_or_default().into(),
            ];
            writer.write_record(start.iter().chain(&rest).map(|cell| guard(cell)))?;
        }
    }
    writer.flush()
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
        let crc = format!("{:08x}", crate::crc::crc32(&bytes));
        files.push(ManifestFile { bytes: bytes.len(), crc32: crc, path: shown });
    }
    Ok(())
}
