//! The results folder and one run's place in it.
//!
//! ```text
//! results/FORMAT                "harness-store 1"
//! results/latest                link to runs/<id>
//! results/runs/<id>/run.json    header; rewritten at the end
//! results/runs/<id>/events.jsonl
//! results/runs/<id>/cases/      failed cases as files, ready to run
//! results/runs/<id>/work/       private folders of workers, removed at the end
//! results/history/<device>/     verdicts.csv durations.csv perf.csv
//! results/lock                  held for the milliseconds of an update of history
//! ```

use super::clock::utc_stamp;
use super::events::{EventLog, SCHEMA};
use crate::case::Case;
use crate::verdict::Outcome;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const FORMAT: &str = "harness-store 1\n";

/// The record of one run. After the first failure nothing more is written, and
/// [`RunStore::error`] says why.
pub(crate) struct RunStore {
    root: PathBuf,
    dir: PathBuf,
    pub(crate) id: String,
    header: Value,
    log: Option<EventLog>,
    work_dir: PathBuf,
    cases_written: usize,
    error: Option<String>,
}

impl RunStore {
    /// Opens the record of a new run. Does not fail: without a record the run
    /// goes on, and work files go to the system's temporary folder.
    pub(crate) fn create(root: &Path, header: &impl Serialize) -> Self {
        let id = format!("{}-{:06x}", utc_stamp(true), entropy());
        let dir = root.join("runs").join(&id);
        let header = serde_json::to_value(header).unwrap_or(Value::Null);
        let work_dir = dir.join("work");
        let mut store =
            Self { root: root.to_path_buf(), dir, id, header, log: None, work_dir, cases_written: 0, error: None };
        let opened = store.open();
        store.log = store.keep(opened);
        if store.log.is_none() {
            store.work_dir = std::env::temp_dir().join(format!("harness-{}", store.id));
        }
        store.write_header("running", None);
        store
    }

    fn open(&self) -> io::Result<EventLog> {
        // Nothing is made in a folder that belongs to another format.
        let format = self.root.join("FORMAT");
        match std::fs::read_to_string(&format) {
            Ok(text) if text == FORMAT => {}
            Ok(text) => {
                return Err(io::Error::other(format!(
                    "{} says {:?}, this harness writes {:?}",
                    format.display(),
                    text.trim(),
                    FORMAT.trim()
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.root)?;
                replace(&format, FORMAT.as_bytes())?;
            }
            Err(error) => return Err(error),
        }
        std::fs::create_dir_all(&self.dir)?;
        EventLog::create(&self.dir.join("events.jsonl"))
    }

    /// Keeps the first error.
    fn keep<T>(&mut self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.error.get_or_insert_with(|| error.to_string());
                self.log = None;
                None
            }
        }
    }

    /// Appends one record.
    pub(crate) fn append(&mut self, kind: &str, fields: &impl Serialize) {
        if let Some(log) = &mut self.log {
            let result = log.append(kind, fields);
            self.keep(result);
        }
    }

    /// Writes a failed case as a file of its own; its path if that went well.
    pub(crate) fn write_case(&mut self, case: &Case, outcome: &Outcome) -> Option<PathBuf> {
        if self.error.is_some() {
            return None;
        }
        let result = super::repro::write(&self.dir.join("cases"), case, outcome, self.cases_written);
        let path = self.keep(result)??;
        self.cases_written += 1;
        Some(path)
    }

    /// Survives a power cut from here on; called after crashes and at the end.
    pub(crate) fn sync(&mut self) {
        if let Some(log) = &self.log {
            let result = log.sync();
            self.keep(result);
        }
    }

    /// A folder for workers' private files.
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.work_dir.clone()
    }

    /// The commit that the header names, or nothing.
    pub(crate) fn commit(&self) -> &str {
        self.header["provenance"]["git_sha"].as_str().unwrap_or_default()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Why the record is not complete, if it is not.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Reports an error of a derived file.
    pub(crate) fn fail(&mut self, what: &str, error: &io::Error) {
        self.error.get_or_insert_with(|| format!("{what}: {error}"));
    }

    /// Ends the record.
    pub(crate) fn finish(&mut self, status: &str, summary: &Value) {
        let _ = std::fs::remove_dir_all(&self.work_dir);
        self.append("end", &json!({ "status": status, "summary": summary }));
        self.sync();
        self.write_header(status, Some(summary));
        if self.error.is_none() {
            let result = self.link_latest();
            self.keep(result);
        }
    }

    fn write_header(&mut self, status: &str, summary: Option<&Value>) {
        let mut header = json!({
            "schema": { "major": SCHEMA, "minor": 0 },
            "run_id": self.id,
            "status": status,
            "record_error": self.error,
            if summary.is_some() { "ended_utc" } else { "started_utc" }: utc_stamp(false),
        });
        if summary.is_some() {
            header["started_utc"] = self.header["started_utc"].clone();
            header["summary"] = summary.cloned().unwrap_or_default();
        } else {
            self.header["started_utc"] = header["started_utc"].clone();
        }
        if let (Some(all), Some(more)) = (header.as_object_mut(), self.header.as_object()) {
            more.iter().for_each(|(key, value)| drop(all.insert(key.clone(), value.clone())));
        }
        let text = format!("{header:#}\n");
        let result = replace(&self.dir.join("run.json"), text.as_bytes());
        self.keep(result);
    }

    fn link_latest(&self) -> io::Result<()> {
        let fresh = self.root.join(format!(".latest-{}", self.id));
        std::os::unix::fs::symlink(Path::new("runs").join(&self.id), &fresh)?;
        std::fs::rename(&fresh, self.root.join("latest"))
    }
}

/// Replaces a file in one step: readers see the old or the new content.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&fresh)?;
        io::Write::write_all(&mut file, bytes)?;
        file.sync_data()?;
        std::fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

/// Tells runs of one second apart.
fn entropy() -> u32 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    crate::crc::crc32(format!("{nanos} {}", std::process::id()).as_bytes()) & 0xff_ffff
}
