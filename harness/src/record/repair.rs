//! Mends a results folder: cuts torn tails, takes damaged lines out, gives killed
//! runs an end, makes headers, tables and the link again.
//!
//! Invariants: runs that a harness writes are left alone, and so is everything of
//! a newer schema. No record is thrown away: what does not belong into a log any
//! more is kept in a file beside it. Mending twice changes nothing more.

use super::clock::{utc_of, utc_stamp};
use super::events::render;
use super::header::{Header, Summary, nulls};
use super::layout::{ResultsFolder, link_latest, replace};
use super::merge::REPLACED;
use super::prune::YOUNG;
use super::reader::{Health, scan_lines};
use super::rebuild::{MendedTable, mend};
use super::recorded::Recorded;
use super::runs::{RunInfo, RunState};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What was mended, for people; what could not be, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepairReport {
    pub(crate) done: Vec<String>,
    pub(crate) left: Vec<String>,
    /// Tables of the history as they were found.
    pub(crate) tables: Vec<MendedTable>,
}

/// Mends all of a folder. With `dry`, only says what it would do.
pub(crate) fn repair(layout: &ResultsFolder, dry: bool) -> io::Result<RepairReport> {
    let stamp = utc_stamp(true);
    let mut report = RepairReport::default();
    if let Err(error) = sweep(layout, dry, &mut report) {
        report.left.push(format!("leftovers: {error}"));
    }
    for info in layout.list()? {
        match one(&info, &stamp, dry) {
            Ok(done) => report.done.extend(done.into_iter().map(|what| format!("{}: {what}", info.id))),
            Err(error) => report.left.push(format!("{}: {error}", info.id)),
        }
    }
    match mend(layout, &stamp, dry) {
        Ok(tables) => {
            report
                .done
                .extend(tables.iter().filter(|table| table.changed()).map(|table| table_text(layout, table, dry)));
            report.tables = tables;
        }
        Err(error) => report.left.push(format!("history: {error}")),
    }
    match link(layout, dry) {
        Ok(Some(id)) if dry => report.done.push(format!("latest: to name {id}, the last that ended")),
        Ok(Some(id)) => report.done.push(format!("latest: names {id} now")),
        Ok(None) => {}
        Err(error) => report.left.push(format!("latest: {error}")),
    }
    Ok(report)
}

/// What is done, or would be: whoever only looks must not read that it has happened.
fn doing(dry: bool, done: &str) -> String {
    if dry { format!("to be {done}") } else { done.into() }
}

fn table_text(layout: &ResultsFolder, table: &MendedTable, dry: bool) -> String {
    let shown = table.path.strip_prefix(layout.root()).unwrap_or(&table.path);
    let mut parts = Vec::new();
    if table.damaged > 0 {
        parts.push(format!("{} damaged rows {}", table.damaged, doing(dry, "taken out")));
    }
    if let Some(first) = table.wrong.first() {
        let more = if table.wrong.len() > 1 { ", ..." } else { "" };
        let put_right = doing(dry, "put right");
        parts.push(format!("{} rows {put_right} that their runs do not confirm ({first}{more})", table.wrong.len()));
    }
    if table.older {
        parts.push(format!("{} rows of an older version {}", table.rows, doing(dry, "given the columns of now")));
    }
    if table.added > 0 {
        parts.push(format!("{} rows {} from runs", table.added, doing(dry, "put in")));
    }
    if let Some(name) = table.aside.as_ref().and_then(|aside| aside.file_name()) {
        parts.push(format!("the damaged file is kept as {}", name.to_string_lossy()));
    }
    format!("{}: {}", shown.display(), parts.join(", "))
}

/// Removes what an interrupted command left: it is no data, or data that was to go.
fn sweep(layout: &ResultsFolder, dry: bool, report: &mut RepairReport) -> io::Result<()> {
    for path in std::fs::read_dir(layout.runs()).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let old = path.metadata().and_then(|m| m.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG));
        // Only an empty folder can be removed so.
        if old && !dry && std::fs::remove_dir(&path).is_ok() {
            report.done.push(format!("{}: empty, removed", path.display()));
        }
    }
    for path in leftovers(layout.root()).chain(leftovers(&layout.runs())) {
        if let Some(place) = replaced(&path).filter(|place| !place.exists()) {
            if !dry {
                std::fs::rename(&path, &place)?;
            }
            let put_back = doing(dry, "put back");
            report.done.push(format!("{}: {put_back} in its place, which a merge had left empty", place.display()));
            continue;
        }
        if !dry {
            match path.is_dir() && !path.is_symlink() {
                true => std::fs::remove_dir_all(&path)?,
                false => std::fs::remove_file(&path)?,
            }
        }
        let shown = path.strip_prefix(layout.root()).unwrap_or(&path);
        let removed = doing(dry, "removed");
        report.done.push(format!("{}: left by an interrupted command, {removed}", shown.display()));
    }
    Ok(())
}

/// The place of a run that another was to replace.
fn replaced(path: &Path) -> Option<PathBuf> {
    let (id, _pid) = path.file_name()?.to_str()?.strip_prefix(REPLACED)?.rsplit_once('-')?;
    Some(path.with_file_name(id))
}

/// `.latest-*`, `.trash-*`, `.incoming-*`, `.replaced-*`, `*.tmp<pid>`, unless their process lives.
pub(super) fn leftovers(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let hidden = [".latest-", ".trash-", ".incoming-", REPLACED].iter().any(|start| name.starts_with(start));
        let pid = match hidden {
            true => name.rsplit_once('-')?.1,
            false => name.rsplit_once(".tmp")?.1,
        };
        let ours = pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
        ours.then(|| entry.path())
    })
}

/// Mends one run; what was done.
fn one(info: &RunInfo, stamp: &str, dry: bool) -> io::Result<Vec<String>> {
    let log = info.dir.join("events.jsonl");
    match info.state {
        RunState::Live => return Ok(Vec::new()),
        RunState::Unreadable => return Err(io::Error::other("there is no events.jsonl")),
        RunState::Complete | RunState::Aborted | RunState::Killed => {}
    }
    // Nobody else mends or removes it meanwhile.
    let file = File::open(&log)?;
    if file.try_lock().is_err() {
        return Err(io::Error::other("another command works on it"));
    }
    let run = Recorded::load(&info.dir)?;
    let (mut done, health) = mend_log(info, &run, stamp, dry)?;
    done.extend(header(info, &run, &health, dry)?);
    if info.dir.join("work").is_dir() {
        if !dry {
            std::fs::remove_dir_all(info.dir.join("work"))?;
        }
        done.push(format!("private files of its workers {}", doing(dry, "removed")));
    }
    for path in leftovers(&info.dir) {
        if !dry {
            std::fs::remove_file(&path)?;
        }
        done.push(format!("a half-written file {}", doing(dry, "removed")));
    }
    Ok(done)
}

/// The record of what was mended in a log. Fields of records are in alphabetical order.
#[derive(Serialize)]
struct MendedLog<'a> {
    damaged: u64,
    gaps: &'a [(u64, u64)],
    original: &'a str,
    torn_bytes: usize,
}

/// The end that a log is given.
#[derive(Serialize)]
struct MendedEnd<'a> {
    repaired: bool,
    status: Option<&'a str>,
    summary: Option<&'a Summary>,
}

/// Records that are put behind those of a log.
struct Tail {
    bytes: Vec<u8>,
    seq: u64,
    t_ns: u64,
}

impl Tail {
    fn add(&mut self, kind: &str, fields: &impl Serialize) -> io::Result<()> {
        let mut line = Vec::new();
        render(&mut line, self.seq, self.t_ns, kind, fields)?;
        self.bytes.extend(line);
        self.seq += 1;
        Ok(())
    }
}

/// Takes out of a log what is no record, keeps it beside, and gives it an end. What
/// was done, and the state in which it was.
fn mend_log(info: &RunInfo, run: &Recorded, stamp: &str, dry: bool) -> io::Result<(Vec<String>, Health)> {
    let log = info.dir.join("events.jsonl");
    let mut done = Vec::new();
    let (lines, aside, health) = sort_lines(&log)?;
    let mut tail = Tail { bytes: Vec::new(), seq: health.next, t_ns: run.last_ns };
    let name = format!("events.jsonl.{}-{stamp}", if health.damaged > 0 { "damaged" } else { "torn" });
    if !health.is_whole() || health.torn {
        let (damaged, missing, torn) = (health.damaged, health.missing, aside.len());
        let gaps = &health.gaps;
        tail.add("repair", &MendedLog { damaged, gaps, original: &name, torn_bytes: torn })?;
        done.push(match (health.torn, damaged, missing) {
            (true, 0, 0) => {
                format!("a torn last line of {torn} bytes {}, kept in {name}", doing(dry, "cut off"))
            }
            (_, 0, _) => format!("{missing} records are missing for good"),
            _ => {
                let taken_out = doing(dry, "taken out");
                format!("{damaged} damaged lines {taken_out}, {missing} records missing; the log as it was is {name}")
            }
        });
    }
    if run.end.is_none() {
        done.push(end(info, run, &mut tail, dry)?);
    }
    if !tail.bytes.is_empty() && !dry {
        let aside_path = info.dir.join(&name);
        match health.damaged {
            0 if aside.is_empty() => {}
            0 => replace(&aside_path, &aside)?,
            _ => std::fs::hard_link(&log, &aside_path).or_else(|_| std::fs::copy(&log, &aside_path).map(drop))?,
        }
        replace(&log, &[lines, tail.bytes].concat())?;
    }
    Ok((done, health))
}

/// Puts in the end of a run that has none: that of its header, or that of a run
/// that was killed.
fn end(info: &RunInfo, run: &Recorded, tail: &mut Tail, dry: bool) -> io::Result<String> {
    if info.finished() {
        let (status, summary) = (&info.header.status, &info.header.summary);
        tail.add("end", &MendedEnd { repaired: true, status: status.as_deref(), summary: summary.as_ref() })?;
        let lost = run.cut_short().map_or(String::new(), |what| format!("; {what} are lost"));
        return Ok(format!("its end is {} from run.json{lost}", doing(dry, "put in")));
    }
    tail.add("end", &MendedEnd { repaired: true, status: Some("aborted"), summary: Some(&counted(run)) })?;
    // What tries cases out decides from what it has seen: nothing goes on with it.
    let next = if run.explores() { "" } else { "; `harness resume` goes on with it" };
    Ok(format!("was killed: {} as aborted{next}", doing(dry, "marked")))
}

/// What the records of a run come to, that nobody lived to count.
fn counted(run: &Recorded) -> Summary {
    Summary {
        counts: Some(run.counts()),
        passed_by: Some(run.passed_by()),
        elapsed_ns: Some(run.last_ns),
        exit_code: None,
        other: nulls(&["exit_code"]),
    }
}

/// The bytes of whole records, and those of a torn last line.
fn sort_lines(log: &Path) -> io::Result<(Vec<u8>, Vec<u8>, Health)> {
    let (mut good, mut torn) = (Vec::new(), Vec::new());
    let health = scan_lines(log, |raw, record| match record {
        Some(_) => good.extend_from_slice(raw),
        None if raw.ends_with(b"\n") => {}
        None => torn = raw.to_vec(),
    })?;
    Ok((good, torn, health))
}

/// Makes `run.json` again where it is lost, or says in it that the run is over.
fn header(info: &RunInfo, run: &Recorded, health: &Health, dry: bool) -> io::Result<Option<String>> {
    let lost = !info.headed;
    let cut = run.cut_short();
    if !lost && info.finished() && health.is_whole() && cut.is_none() {
        return Ok(None);
    }
    // Without a header anywhere, what is known is the name.
    let mut header = run.header.clone();
    if header == Header::default() {
        header.run_id = Some(info.id.clone());
    }
    let ended = run.end.as_ref();
    let told = info.header.status.clone().filter(|_| info.finished());
    let status = ended.and_then(|end| end.status.clone()).or(told);
    header.status = status.or_else(|| Some("aborted".into()));
    header.ended_utc = header.ended_utc.or_else(|| Some(utc_of(info.written)));
    if !health.is_whole() {
        let lost = health.missing.max(health.damaged);
        header.record_error = Some(format!("mended: {lost} records are lost"));
    } else if let (Some(what), None) = (&cut, &header.record_error) {
        header.record_error = Some(format!("mended: {what} are lost"));
    }
    let summary = ended.and_then(|end| end.summary.clone());
    header.summary = header.summary.or(summary).or_else(|| Some(counted(run)));
    if header == info.header {
        return Ok(None);
    }
    if !dry {
        let header = header.to_value();
        replace(&info.dir.join("run.json"), format!("{header:#}\n").as_bytes())?;
    }
    Ok(match cut.filter(|_| run.end.is_some()) {
        _ if lost => Some(format!("run.json {} from what the log tells", doing(dry, "made again"))),
        Some(what) if dry => Some(format!("run.json is to say that {what} are lost")),
        Some(what) => Some(format!("run.json says now that {what} are lost")),
        None => None,
    })
}

/// Makes `latest` name the run that ended last, if it names none that ended. Returns the run that it
/// names then.
pub(crate) fn link(layout: &ResultsFolder, dry: bool) -> io::Result<Option<String>> {
    let runs = layout.list()?;
    let good = |id: &String| runs.iter().any(|run| run.id == *id && run.finished() && !run.explores());
    if layout.latest().is_some_and(|id| good(&id)) {
        return Ok(None);
    }
    // Of several that ended in one second, one that is complete.
    let ended = |run: &&RunInfo| (run.header.ended_utc.clone().unwrap_or_default(), run.state == RunState::Complete);
    let Some(newest) = runs.iter().filter(|run| run.finished() && !run.explores()).max_by_key(ended) else {
        return Ok(None);
    };
    if !dry {
        link_latest(layout.root(), &newest.id)?;
    }
    Ok(Some(newest.id.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_run_that_a_killed_merge_took_away_comes_back() {
        let root = Scratch::new("repair");
        let layout = ResultsFolder::claim(&root).expect("a folder");
        // No process has such a number.
        let make = |name: &str, text: &str| {
            let dir = layout.runs().join(name);
            std::fs::create_dir_all(&dir).expect("a folder");
            std::fs::write(dir.join("events.jsonl"), text).expect("writes");
        };
        make(".replaced-lost-x-999999999", "old");
        make(".incoming-lost-x-999999999", "new");
        make(".replaced-there-999999999", "old");
        make("there", "new");
        let mut report = RepairReport::default();
        sweep(&layout, false, &mut report).expect("sweeps");
        let text = |id: &str| std::fs::read_to_string(layout.runs().join(id).join("events.jsonl")).expect("reads");
        assert_eq!((text("lost-x"), text("there")), ("old".into(), "new".into()));
        let hidden = std::fs::read_dir(layout.runs()).expect("reads").flatten();
        assert_eq!(hidden.count(), 2, "{:?}", report.done);
    }
}
