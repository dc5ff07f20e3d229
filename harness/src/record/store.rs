//! The record of the run that is under way.
//!
//! ```text
//! results/FORMAT                "harness-store 1"
//! results/latest                link to runs/<id>, the last that finished; never a hunt, replay or why
//! results/runs/<id>/run.json    header; rewritten at the end
//! results/runs/<id>/events.jsonl
//! results/runs/<id>/cases/      failed cases as files, ready to run
//! results/runs/<id>/work/       private folders of workers, removed at the end
//! results/history/<device>/     verdicts.csv durations.csv perf.csv
//! results/lock                  held for the milliseconds of an update of history
//! ```

use super::clock::utc_stamp;
use super::events::{EventLog, SCHEMA, render};
use super::header::{Header, RunEnd, Schema, Summary, nulls};
use super::layout::{self, ResultsFolder};
use super::recorded::Recorded;
use crate::case::Case;
use crate::code_cache::CodeUse;
use crate::outcome::Outcome;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Ids in one `selected` record.
const IDS_A_RECORD: usize = 500;

/// A part of the ids of selected or outstanding cases.
#[derive(Serialize)]
struct IdsRecord<'a> {
    from: usize,
    ids: &'a [String],
    of: usize,
}

/// The record of one run. Nothing here fails: what cannot be written is counted,
/// and [`RunStore::error`] says what is missing.
#[derive(Debug)]
pub(crate) struct RunStore {
    root: PathBuf,
    dir: PathBuf,
    pub(crate) id: String,
    header: Header,
    log: Option<EventLog>,
    work_dir: PathBuf,
    cases_written: usize,
    /// What was recorded so far, where somebody wants it at the end.
    mirror: Option<Recorded>,
    /// Records are printed too: the number of the next one.
    echo: Option<u64>,
    started: Instant,
    /// What the workers that ended shared of compiled kernels.
    code: CodeUse,
    /// Why the log has gaps, or is not there.
    log_error: Option<String>,
    /// What else could not be written.
    errors: Vec<String>,
}

impl RunStore {
    /// Opens the record of a new run. Does not fail: without a record the run
    /// goes on, and work files go to the system's temporary folder.
    pub(crate) fn create(root: &Path, header: Header) -> Self {
        Self::create_as(root, None, header)
    }

    /// The same under a name of the caller's, which must be free and good for a
    /// folder; see [`layout::check_id`].
    pub(crate) fn create_as(root: &Path, wanted: Option<&str>, header: Header) -> Self {
        let id = wanted.map_or_else(|| fresh_id(0), String::from);
        let mut store = Self {
            root: root.to_path_buf(),
            dir: root.join("runs").join(&id),
            id,
            header,
            log: None,
            work_dir: PathBuf::new(),
            cases_written: 0,
            mirror: None,
            echo: None,
            started: Instant::now(),
            code: CodeUse::default(),
            log_error: None,
            errors: Vec::new(),
        };
        match store.open(wanted.is_none()) {
            Ok(log) => {
                store.log = Some(log);
                store.work_dir = store.dir.join("work");
            }
            Err(error) => {
                store.log_error = Some(error.to_string());
                store.work_dir = std::env::temp_dir().join(format!("harness-{}", store.id));
            }
        }
        let version = |number: u32| Some(u64::from(number));
        let schema = Schema { major: version(SCHEMA), minor: version(layout::MINOR), ..Schema::default() };
        store.header.run_id = Some(store.id.clone());
        store.header.schema = Some(schema);
        store.header.started_utc = Some(utc_stamp(false));
        store.header.pid = version(std::process::id());
        // In the log too: the header file can be made again from it.
        store.append("run", &store.header.clone());
        store.write_header("running", None);
        store
    }

    /// Opens the log; another id is taken if some other run has this one.
    fn open(&mut self, may_rename: bool) -> io::Result<EventLog> {
        ResultsFolder::claim(&self.root)?;
        for salt in 1.. {
            match std::fs::create_dir_all(&self.dir).and_then(|()| EventLog::create(&self.dir.join("events.jsonl"))) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && may_rename && salt < 100 => {
                    self.id = fresh_id(salt);
                    self.dir = self.root.join("runs").join(&self.id);
                }
                other => return other,
            }
        }
        Err(io::Error::other("no name is free"))
    }

    /// Notes which cases are meant, so that the run can be gone on with, and which
    /// ones a rerun leaves out. The latter first: a whole selection has all of them.
    /// A shard notes all of its job first, so that the cases of one that is lost are known by the others.
    pub(crate) fn select(&mut self, ids: &[String], outstanding: &[String], job: &[String]) {
        for (kind, ids) in [("job", job), ("outstanding", outstanding), ("selected", ids)] {
            for (index, chunk) in ids.chunks(IDS_A_RECORD).enumerate() {
                self.append(kind, &IdsRecord { from: index * IDS_A_RECORD, ids: chunk, of: ids.len() });
            }
        }
    }

    /// Keeps what is recorded from here on in memory as well, for reports that
    /// must not depend on a disk.
    pub(crate) fn mirror(&mut self) {
        self.mirror = Some(Recorded { header: self.header.clone(), ..Recorded::default() });
    }

    /// What was recorded since [`RunStore::mirror`].
    pub(crate) fn mirrored(&self) -> Option<&Recorded> {
        self.mirror.as_ref()
    }

    /// Prints each record from here on, in the form of the log, the header first.
    pub(crate) fn echo(&mut self) {
        self.echo = Some(0);
        self.echo_one("run", &self.header.clone());
    }

    fn echo_one(&mut self, kind: &str, fields: &impl Serialize) {
        let Some(seq) = &mut self.echo else { return };
        let mut line = Vec::new();
        if render(&mut line, *seq, self.started.elapsed().as_nanos() as u64, kind, fields).is_ok() {
            *seq += 1;
            crate::console::print(&String::from_utf8_lossy(&line));
        }
    }

    /// Appends one record.
    pub(crate) fn append(&mut self, kind: &str, fields: &impl Serialize) {
        self.echo_one(kind, fields);
        if let Some(mirror) = &mut self.mirror
            && let Ok(mut record) = serde_json::to_value(fields)
        {
            record["k"] = kind.into();
            record["t_ns"] = (self.started.elapsed().as_nanos() as u64).into();
            mirror.push(record);
        }
        if let Some(log) = &mut self.log
            && let Err(error) = log.append(kind, fields)
        {
            self.log_error.get_or_insert_with(|| error.to_string());
        }
    }

    /// Writes a failed case as a file of its own; its path if that went well.
    pub(crate) fn write_case(&mut self, case: &Case, outcome: &Outcome) -> Option<PathBuf> {
        self.log.as_ref()?;
        match super::repro::write(&self.dir.join("cases"), case, outcome, self.cases_written) {
            Ok(path) => {
                self.cases_written += usize::from(path.is_some());
                path
            }
            Err(error) => {
                self.fail("case files", &error);
                None
            }
        }
    }

    /// Adds what a worker shared of compiled kernels.
    pub(crate) fn shared(&mut self, code: Option<&CodeUse>) {
        code.into_iter().for_each(|code| self.code.add(code));
    }

    /// What was shared by all, in a line for people.
    pub(crate) fn shared_text(&self) -> String {
        self.code.text()
    }

    /// What was written survives a power cut soon; for crashes.
    pub(crate) fn sync(&self) {
        self.log.iter().for_each(EventLog::sync_soon);
    }

    /// A folder for workers' private files.
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.work_dir.clone()
    }

    /// The commit that the header names, or nothing.
    pub(crate) fn commit(&self) -> &str {
        self.header.commit()
    }

    /// The build of the harness, as the header names it.
    pub(crate) fn build(&self) -> Option<&str> {
        self.header.provenance.as_ref()?.build.as_deref()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What is missing in the record, in one line; nothing if it is complete.
    pub(crate) fn error(&self) -> Option<String> {
        let mut parts = Vec::new();
        match (&self.log, &self.log_error) {
            (Some(log), Some(why)) if log.lost() > 0 => {
                parts.push(format!("{} of {} records are missing: {why}", log.lost(), log.due()));
            }
            (_, Some(why)) => parts.push(why.clone()),
            _ => {}
        }
        if self.log.as_ref().is_some_and(EventLog::removed) {
            parts.push("its folder was removed in the middle; the log was written again, other files are gone".into());
        }
        parts.extend(self.errors.iter().cloned());
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Reports an error of a file beside the log, once for each kind of file.
    pub(crate) fn fail(&mut self, what: &str, error: &io::Error) {
        let what = format!("{what}: ");
        if !self.errors.iter().any(|old| old.starts_with(&what)) {
            self.errors.push(format!("{what}{error}"));
        }
    }

    /// Ends the record.
    pub(crate) fn finish(&mut self, status: &str, summary: &Value) {
        let _ = std::fs::remove_dir_all(&self.work_dir);
        let mut summary = Summary::of(summary.clone()).unwrap_or_default();
        if self.code != CodeUse::default() {
            summary.other.insert("code_cache".into(), json!(self.code));
        }
        let fields = RunEnd { status: Some(status.into()), summary: Some(summary.clone()), ..RunEnd::default() };
        self.echo_one("end", &fields);
        if let Some(mirror) = &mut self.mirror {
            mirror.end = Some(fields.clone());
        }
        let ended = self.log.as_mut().map(|log| log.end(&fields));
        if let Some(Err(error)) = ended {
            self.log_error.get_or_insert_with(|| error.to_string());
        }
        self.write_header(status, Some(&summary));
        if self.log.is_some()
            && !self.header.explores()
            && let Err(error) = layout::link_latest(&self.root, &self.id)
        {
            self.fail("latest", &error);
        }
    }

    fn write_header(&mut self, status: &str, summary: Option<&Summary>) {
        if self.log.is_none() {
            return;
        }
        let mut header = self.header.clone();
        header.status = Some(status.into());
        header.record_error = self.error();
        if let Some(summary) = summary {
            header.ended_utc = Some(utc_stamp(false));
            header.summary = Some(summary.clone());
        }
        header.other.extend(nulls(&["record_error"]));
        let header = header.to_value();
        if let Err(error) = layout::replace(&self.dir.join("run.json"), format!("{header:#}\n").as_bytes()) {
            self.fail("run.json", &error);
        }
    }
}

/// A name that begins with the time and tells runs of one second apart.
fn fresh_id(salt: u32) -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let word = format!("{nanos} {} {salt}", std::process::id());
    format!("{}-{:06x}", utc_stamp(true), crc32fast::hash(word.as_bytes()) & 0xff_ffff)
}
