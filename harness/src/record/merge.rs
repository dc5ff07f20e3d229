//! Brings runs of other results folders into this one: of other machines, of
//! shards, of exports. Names stay; a run that is here already is told, and one
//! that is here with other content is refused.

use super::clock::utc_stamp;
use super::layout::{ResultsFolder, check_id, replace};
use super::runs::{RunInfo, RunState};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Begins the name of a run's folder while another takes its place.
pub(super) const REPLACED: &str = ".replaced-";

/// What became of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    Copied,
    /// The same run is here.
    Duplicate,
    /// The run here was a part of the one that came.
    Grown,
    Refused(String),
}

/// The runs below a path: a results folder, or the folder of one run.
pub(crate) fn runs_at(path: &Path) -> io::Result<Vec<RunInfo>> {
    if path.join("events.jsonl").is_file() {
        return Ok(vec![RunInfo::look(&path.canonicalize()?)?]);
    }
    let layout = ResultsFolder::open(path)?;
    layout.list()
}

/// Copies one run; the source is not changed.
pub(crate) fn take(layout: &ResultsFolder, run: &RunInfo) -> io::Result<Merged> {
    if let Err(why) = check_id(&run.id) {
        return Ok(Merged::Refused(format!("its name cannot be used: {why}")));
    }
    match run.state {
        RunState::Live => return Ok(Merged::Refused("a harness is writing it at this moment".into())),
        RunState::Unreadable => return Ok(Merged::Refused("it has no events.jsonl".into())),
        RunState::Complete | RunState::Aborted | RunState::Killed => {}
    }
    let place = layout.runs().join(&run.id);
    let mut grown = false;
    if place.exists() {
        match compare(&place.join("events.jsonl"), &run.dir.join("events.jsonl"))? {
            Same::Equal | Same::LeftLonger => return Ok(Merged::Duplicate),
            Same::Differ => return Ok(Merged::Refused("a run of this name with other records is here".into())),
            Same::RightLonger => grown = true,
        }
    }
    let fresh = layout.runs().join(format!(".incoming-{}-{}", run.id, std::process::id()));
    let _ = std::fs::remove_dir_all(&fresh);
    let copied = copy_dir(&run.dir, &fresh).and_then(|()| origin(&fresh, &run.dir));
    copied.inspect_err(|_| drop(std::fs::remove_dir_all(&fresh)))?;
    if grown {
        // Killed in between, `repair` puts the old one back.
        let old = layout.runs().join(format!("{REPLACED}{}-{}", run.id, std::process::id()));
        std::fs::rename(&place, &old)?;
        std::fs::rename(&fresh, &place).inspect_err(|_| drop(std::fs::rename(&old, &place)))?;
        std::fs::remove_dir_all(&old)?;
        return Ok(Merged::Grown);
    }
    std::fs::rename(&fresh, &place)?;
    Ok(Merged::Copied)
}

/// Says in the copy where it is from. What was said before stays.
fn origin(copy: &Path, from: &Path) -> io::Result<()> {
    let path = copy.join("origin.json");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut steps: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    steps.push(json!({ "from": from.display().to_string(), "by_host": host.trim(), "copied_utc": utc_stamp(false) }));
    replace(&path, format!("{:#}\n", serde_json::Value::from(steps)).as_bytes())
}

enum Same {
    Equal,
    LeftLonger,
    RightLonger,
    Differ,
}

/// Whether one file begins with the other.
fn compare(left: &Path, right: &Path) -> io::Result<Same> {
    let (a, b) = (File::open(left)?, File::open(right)?);
    let (len_a, len_b) = (a.metadata()?.len(), b.metadata()?.len());
    let common = len_a.min(len_b);
    let (mut a, mut b) = (a.take(common), b.take(common));
    let (mut x, mut y) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = a.read(&mut x)?;
        if n == 0 {
            break;
        }
        b.read_exact(&mut y[..n])?;
        if x[..n] != y[..n] {
            return Ok(Same::Differ);
        }
    }
    Ok(match len_a.cmp(&len_b) {
        std::cmp::Ordering::Equal => Same::Equal,
        std::cmp::Ordering::Greater => Same::LeftLonger,
        std::cmp::Ordering::Less => Same::RightLonger,
    })
}

/// Copies files and folders; links and devices are left behind, and so is `work`.
pub(crate) fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target): (_, PathBuf) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() && entry.file_name() != "work" {
            copy_dir(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
