//! `quarantine list|add|rm`: the reviewed list of failures that do not gate.

use super::Failure;
use super::args::{Args, usage};
use super::session::{self, Folders};
use crate::case::load;
use crate::exit;
use crate::os::FileLock;
use crate::record::{replace, today};
use crate::select::nearest;
use crate::select::quarantine::{Quarantine, QuarantineEntry, with_entry, without_entry};
use std::fmt::Write;
use std::path::Path;

/// What is to be done with the file.
enum QuarantineCommand {
    List,
    Add(QuarantineEntry),
    Remove(String),
}

pub(super) fn quarantine(args: &Args) -> Result<u8, Failure> {
    let folders = Folders::of(args);
    let (cases, file) = (folders.cases.clone(), folders.quarantine());
    match QuarantineCommand::of(args)? {
        QuarantineCommand::List => list(&session::read_quarantine(&folders)?, &cases),
        QuarantineCommand::Add(entry) => {
            check_id(&cases, &entry)?;
            check_date(&entry)?;
            let done = format!("{} is in quarantine until {}", entry.id, entry.until);
            edit(&file, &done, |text, name| with_entry(text, &entry, name))
        }
        QuarantineCommand::Remove(id) => {
            edit(&file, &format!("{id} is not in quarantine any more"), |text, name| without_entry(text, &id, name))
        }
    }
}

impl QuarantineCommand {
    /// What the command line asks for.
    fn of(args: &Args) -> Result<Self, Failure> {
        let operand = |at: usize| args.operands.get(at).map(String::as_str);
        match (operand(0), operand(1)) {
            (Some("list"), None) => Ok(Self::List),
            (Some("add"), Some(id)) => {
                let q = &args.quarantine;
                let [owner, issue, reason, until] = [&q.owner, &q.issue, &q.reason, &q.until].map(Clone::clone);
                Ok(Self::Add(QuarantineEntry { id: id.into(), owner, issue, reason, until }))
            }
            (Some("rm"), Some(id)) => Ok(Self::Remove(id.into())),
            _ => Err(usage(
                "`quarantine` takes `list`, `add ID` or `rm ID`",
                "add needs --owner, --issue, --reason and --until YYYY-MM-DD",
            )),
        }
    }
}

fn list(quarantine: &Quarantine, cases: &Path) -> Result<u8, Failure> {
    let ids = ids(cases);
    let today = today();
    let mut text = String::new();
    for (entry, count) in quarantine.counts(ids.iter().map(String::as_str)) {
        let state = match (count, entry.expired(&today)) {
            (0, _) => ", names no case".to_string(),
            (_, true) => format!(", {count} cases, EXPIRED"),
            (_, false) => format!(", {count} cases"),
        };
        let QuarantineEntry { id, owner, issue, reason, until } = entry;
        let _ = writeln!(text, "{id}  until {until}{state}\n  {reason} ({owner}, {issue})");
    }
    let _ = writeln!(text, "{} in quarantine", quarantine.len());
    crate::console::print(&text);
    Ok(exit::OK)
}

/// Ids on the simulator and on GPUs.
fn ids(cases: &Path) -> Vec<String> {
    use crate::case::Target;
    let of = |target| load(cases, target).cases.into_iter().map(|case| case.id);
    let mut ids: Vec<String> = of(Target::Sim).chain(of(Target::Cuda)).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn check_id(cases: &Path, entry: &QuarantineEntry) -> Result<(), Failure> {
    let ids = ids(cases);
    let one = Quarantine::of(vec![entry.clone()]);
    match one.idle(ids.iter().map(String::as_str)).is_empty() {
        true => Ok(()),
        false => {
            let note = nearest(&entry.id, ids.iter().map(String::as_str));
            Err(usage(format!("no case is `{}`", crate::escape::short(&entry.id)), note))
        }
    }
}

/// A day that is past would keep nothing from gating.
fn check_date(entry: &QuarantineEntry) -> Result<(), Failure> {
    let today = today();
    if !entry.until.is_empty() && entry.expired(&today) {
        let until = crate::escape::short(&entry.until);
        let hint = format!("--until takes the last day on which it does not gate; today is {today}");
        return Err(usage(format!("the quarantine of `{}` would end on {until}, which is past", entry.id), hint));
    }
    Ok(())
}

/// Changes the file in one step; readers see the old text or the new one, and of
/// several that change it at once each starts from what the one before it wrote.
fn edit(
    path: &Path,
    done: &str,
    change: impl FnOnce(&str, &str) -> Result<String, Box<engine::diag::Diagnostic>>,
) -> Result<u8, Failure> {
    let name = crate::escape::path(path);
    let failed =
        |error: std::io::Error| Failure::new(exit::BAD_CASES, format!("error: {name} cannot be changed: {error}"));
    // The folder's own lock: a file for it would stand among the reviewed ones.
    let _lock = FileLock::of(path.parent().unwrap_or(path)).map_err(failed)?;
    let old = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(failed)?,
    };
    let new = change(&old, &name).map_err(|diagnostic| Failure::diagnostic(exit::BAD_CASES, &diagnostic))?;
    replace(path, new.as_bytes()).map_err(failed)?;
    crate::console::print(&format!("{done}: {name}\n"));
    Ok(exit::OK)
}
