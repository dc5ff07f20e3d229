//! The runs of a results folder: which there are, in what state, and by which
//! words people name them.

use super::header::Header;
use super::layout::ResultsFolder;
use super::reader::first_record;
use super::recorded::Recorded;
use crate::units::counted;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// A harness writes it at this moment.
    Live,
    Complete,
    /// Stopped in order, or joined of shards that are not all there.
    Aborted,
    /// Its harness is gone and left no end.
    Killed,
    /// Its log cannot be read at all.
    Unreadable,
}

impl RunState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RunState::Live => "live",
            RunState::Complete => "complete",
            RunState::Aborted => "aborted",
            RunState::Killed => "killed",
            RunState::Unreadable => "unreadable",
        }
    }
}

/// One run's folder, without reading its log.
#[derive(Clone, Debug)]
pub(crate) struct RunInfo {
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
    /// What `run.json` says, or else the first record; nothing without either.
    pub(crate) header: Header,
    /// `run.json` is there and whole.
    pub(crate) headed: bool,
    pub(crate) state: RunState,
    /// Bytes of all its files.
    pub(crate) bytes: u64,
    /// When its log was last written.
    pub(crate) written: SystemTime,
}

impl RunInfo {
    /// Looks at one folder.
    pub(crate) fn look(dir: &Path) -> io::Result<Self> {
        let log = dir.join("events.jsonl");
        let (header, headed) = read_header(dir);
        let state = match (std::fs::metadata(&log), header.status.as_deref()) {
            (Err(_), _) => RunState::Unreadable,
            (Ok(_), _) if is_live(&log) => RunState::Live,
            (Ok(_), Some("complete")) => RunState::Complete,
            (Ok(_), Some("aborted" | "incomplete")) => RunState::Aborted,
            (Ok(_), _) => RunState::Killed,
        };
        let written = std::fs::metadata(&log).or_else(|_| std::fs::metadata(dir))?.modified()?;
        let id = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { id, dir: dir.to_path_buf(), header, headed, state, bytes: size(dir), written })
    }

    pub(crate) fn load(&self) -> io::Result<Recorded> {
        Recorded::load(&self.dir)
    }

    pub(crate) fn finished(&self) -> bool {
        matches!(self.state, RunState::Complete | RunState::Aborted)
    }

    /// Whether it comes to verdicts on cases: hunts and the like do not.
    pub(crate) fn judges(&self) -> bool {
        self.header.judges()
    }

    /// Whether it tries cases out, as a hunt does: `latest` does not mean it.
    pub(crate) fn explores(&self) -> bool {
        self.header.explores()
    }

    /// Whether nobody wrote its end, or it was stopped.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, RunState::Killed | RunState::Aborted)
    }

    /// When it began; sorts as text.
    pub(crate) fn started(&self) -> String {
        self.header.started_utc.clone().or_else(|| stamp_of(&self.id)).unwrap_or_default()
    }
}

/// What a folder says that its run is: `run.json`, or else the first record; nothing without either.
pub(super) fn header_at(dir: &Path) -> Header {
    read_header(dir).0
}

/// The same, and whether `run.json` is there and whole.
fn read_header(dir: &Path) -> (Header, bool) {
    let text = std::fs::read_to_string(dir.join("run.json")).unwrap_or_default();
    let own: Option<Header> = serde_json::from_str(&text).ok();
    let headed = own.is_some();
    let log = dir.join("events.jsonl");
    let first = || first_record(&log).filter(|record| record["k"] == "run").and_then(Header::of);
    (own.or_else(first).unwrap_or_default(), headed)
}

/// The time in a run's name, as RFC 3339.
pub(super) fn stamp_of(id: &str) -> Option<String> {
    let stamp = id.get(..16).filter(|stamp| stamp.is_ascii() && stamp.ends_with('Z') && stamp.as_bytes()[8] == b'T')?;
    let part = |from: usize, to: usize| stamp.get(from..to).filter(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let (date, time) = ([part(0, 4)?, part(4, 6)?, part(6, 8)?], [part(9, 11)?, part(11, 13)?, part(13, 15)?]);
    Some(format!("{}T{}Z", date.join("-"), time.join(":")))
}

/// Whether a harness holds the log.
pub(super) fn is_live(log: &Path) -> bool {
    File::open(log).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Bytes below a folder. Links are not followed.
pub(super) fn size(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let each = |entry: io::Result<std::fs::DirEntry>| {
        let Ok(entry) = entry else { return 0 };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => size(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |m| m.len()),
            _ => 0,
        }
    };
    entries.map(each).sum()
}

impl ResultsFolder {
    /// Whether a results folder holds a finished run that came to verdicts. One
    /// that cannot be read counts: who reads it hears why.
    pub(crate) fn has_verdicts(root: &Path) -> bool {
        match Self::open(root).and_then(|layout| layout.list()) {
            Ok(runs) => runs.iter().any(|run| run.finished() && run.judges()),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// All runs, the oldest first.
    pub(crate) fn list(&self) -> io::Result<Vec<RunInfo>> {
        let entries = match std::fs::read_dir(self.runs()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut runs = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            // One that another process removes at this moment is not there, and an
            // empty one is of a run that begins, or was killed when it began.
            let empty = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
            if path.is_dir()
                && !hidden
                && !empty
                && let Ok(info) = RunInfo::look(&path)
            {
                runs.push(info);
            }
        }
        // Names tell seconds: of runs that began in one, the last written is the newest.
        runs.sort_by(|a, b| (a.started(), a.written, &a.id).cmp(&(b.started(), b.written, &b.id)));
        Ok(runs)
    }

    /// The run that a word means: `latest` (the last that finished, but no hunt, replay or why),
    /// `latest~2` (the second before it of the same command: a `bench` stands in no line with a `run`), a
    /// name, or the only one that begins or ends so. An error says what there is.
    pub(crate) fn find(&self, word: &str) -> Result<RunInfo, String> {
        let runs = self.list().map_err(|error| format!("{}: {error}", self.runs().display()))?;
        let none = || format!("{} holds no run", self.runs().display());
        if let Some(back) = word.strip_prefix("latest") {
            let back = match back {
                "" => 0,
                _ => back.strip_prefix('~').and_then(|n| n.parse().ok()).ok_or("write latest~N for the Nth before")?,
            };
            // The link names the last that finished; without one, times decide.
            let finished: Vec<&RunInfo> = runs.iter().filter(|run| run.finished() && !run.explores()).collect();
            let linked = self.latest().and_then(|id| finished.iter().position(|run| run.id == id));
            let Some(at) = linked.or(finished.len().checked_sub(1)) else {
                return Err(match runs.len() {
                    0 => none(),
                    n => format!("of {} none is finished and came to verdicts: name one by its id", counted(n, "run")),
                });
            };
            let mode = finished[at].header.mode();
            let alike: Vec<_> = finished[..=at].iter().filter(|run| run.header.mode() == mode).collect();
            let found = alike.len().checked_sub(back + 1).map(|at| (**alike[at]).clone());
            let mode = crate::escape::short(mode);
            return found
                .ok_or_else(|| format!("only {} of `{mode}` finished until then", counted(alike.len(), "run")));
        }
        if let Some(run) = runs.iter().find(|run| run.id == word) {
            return Ok(run.clone());
        }
        let like: Vec<&RunInfo> = runs.iter().filter(|r| r.id.starts_with(word) || r.id.ends_with(word)).collect();
        match like[..] {
            [one] => Ok(one.clone()),
            [] if runs.is_empty() => Err(none()),
            [] => Err(format!("the newest is {}", runs[runs.len() - 1].id)),
            [first, second, ..] => {
                Err(format!("{} runs are named so, {} and {} among them", like.len(), first.id, second.id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_names() {
        assert_eq!(stamp_of("20261121T063000Z-3fa9c1").as_deref(), Some("2026-11-21T06:30:00Z"));
        for other in ["nightly", "20261121T0630xxZ-3fa9c1", "üüüüüüüüüüüüüüüüü", ""] {
            assert_eq!(stamp_of(other), None, "{other}");
        }
    }
}
