//! The evidence of one run: a folder for each failed case, buckets of crashes,
//! and the summary by families.

use super::bucket::Bucket;
use super::ledger;
use super::script::Context;
use crate::escape::escape;
use crate::outcome::{CaseResult, Conclusion, Death, Verdict, WorkerOutput};
use crate::report::Help;
use pages::{Crash, Sight};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Folders of one run; a suite that fails as a whole needs no more.
const MAX_FOLDERS: usize = 200;
/// Attempts of a case that are kept.
const MAX_ATTEMPTS: usize = 20;
/// Families and leaves that the summary shows.
const SHOWN: usize = 20;

/// What became of an attempt's evidence, for the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) bucket: Option<Bucket>,
    /// Folder of the attempt, from the folder of the run on.
    pub(crate) folder: Option<String>,
}

/// Keeps evidence. Errors never change a verdict; the first one is kept.
pub(crate) struct Keeper {
    context: Context,
    /// Folder of the run; `None` where nothing is recorded.
    run_dir: Option<PathBuf>,
    sight: Sight,
    /// Names of all slots.
    labels: Vec<String>,
    /// Attempts kept of each case.
    kept: BTreeMap<String, usize>,
    entries: BTreeMap<String, Crash>,
    /// Whether each device has a first attempt of its own at a case.
    across: bool,
    /// Slots that have run anything.
    used: BTreeSet<usize>,
    pub(crate) error: Option<io::Error>,
}

impl Keeper {
    pub(crate) fn new(context: Context, run_dir: Option<PathBuf>, sight: Sight, labels: Vec<String>) -> Self {
        let (kept, entries, used) = Default::default();
        Self { context, run_dir, sight, labels, kept, entries, across: false, used, error: None }
    }

    /// Tells attempts of devices apart, which all try each case.
    pub(crate) fn across(self, across: bool) -> Self {
        Self { across, ..self }
    }

    fn keep<T>(&mut self, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.error.get_or_insert(error).kind()).ok()
    }

    /// Takes the evidence of an attempt.
    pub(crate) fn attempt(&mut self, result: &CaseResult) -> Kept {
        self.used.extend(result.slot);
        let outcome = &result.outcome;
        if !outcome.verdict.is_failure() || outcome.verdict == Verdict::Infra {
            return Kept::default();
        }
        let bucket = Bucket::of(outcome, result.death.as_ref());
        let folder = self.folder(result, bucket.as_ref());
        if let Some(bucket) = &bucket {
            let device = result.slot.and_then(|slot| self.labels.get(slot)).map_or("", String::as_str);
            let entry = self.entries.entry(bucket.leaf.clone()).or_insert_with(|| ledger::begin(bucket));
            ledger::count(entry, &result.case.id, device);
            (entry.first, entry.last) = (self.sight.clone(), self.sight.clone());
            if let (true, Some(folder)) = (entry.exemplar.is_empty(), &folder) {
                entry.exemplar = format!("runs/{}/{folder}", self.context.run);
            }
        }
        Kept { bucket, folder }
    }

    /// Writes the files of an attempt.
    fn folder(&mut self, result: &CaseResult, bucket: Option<&Bucket>) -> Option<String> {
        let run_dir = self.run_dir.clone()?;
        let known = self.kept.len();
        let count = match self.kept.get_mut(&result.case.id) {
            Some(count) => count,
            None if known < MAX_FOLDERS => self.kept.entry(result.case.id.clone()).or_default(),
            None => return None,
        };
        if *count >= MAX_ATTEMPTS {
            return None;
        }
        *count += 1;
        let repeat = if result.repeat > 0 { format!("r{}", result.repeat) } else { String::new() };
        let device = match (self.across, result.slot.and_then(|slot| self.labels.get(slot))) {
            (true, Some(label)) => format!("-{label}"),
            _ => String::new(),
        };
        let case = folder_name(&result.case.name, &result.case.id);
        let name = format!("cases/{case}/a{}{repeat}{device}", result.attempt);
        let written = write(&run_dir.join(&name), result, bucket);
        self.keep(written).map(|()| name)
    }

    /// Writes the script that repeats a failed case.
    pub(crate) fn conclude(&mut self, conclusion: &Conclusion) -> Help {
        let result = &conclusion.result;
        // What an earlier run had of a crash stays there: its leaf is not told from less.
        let own = result.carried_from.is_none();
        let bucket = own.then(|| Bucket::of(&result.outcome, result.death.as_ref())).flatten();
        let leaf = bucket.map(|bucket| bucket.leaf);
        Help { script: self.script(conclusion), leaf }
    }

    fn script(&mut self, conclusion: &Conclusion) -> Option<PathBuf> {
        let Conclusion { case, verdict, failures, outcomes, result, .. } = conclusion;
        let failed = verdict.is_failure() || matches!(verdict, Verdict::Flaky | Verdict::Quarantined);
        if !failed || *verdict == Verdict::Infra || !self.kept.contains_key(&case.id) {
            return None;
        }
        // A retry runs in a fresh worker: what passes there needs its neighbours.
        let history = (*failures as usize) < outcomes.len() && result.position > 0;
        let folder = self.run_dir.clone()?.join("cases").join(folder_name(&case.name, &case.id));
        let path = folder.join("repro.sh");
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, self.context.script(result, history)))
            .and_then(|()| executable(&path));
        self.keep(written).map(|()| path)
    }

    /// Ends the run: adds to the ledger, and tells of crashes by families.
    pub(crate) fn close(&mut self) -> String {
        let known = match self.run_dir {
            Some(_) => {
                let added = ledger::add(&self.context.results, &self.entries);
                self.keep(added).unwrap_or_default()
            }
            None => BTreeMap::new(),
        };
        self.families(&known)
    }

    fn families(&self, known: &BTreeMap<String, Crash>) -> String {
        let mut families: BTreeMap<&str, Vec<&Crash>> = BTreeMap::new();
        for entry in self.entries.values() {
            families.entry(&entry.family).or_default().push(entry);
        }
        let mut families: Vec<(u64, &str, Vec<&Crash>)> = families
            .into_iter()
            .map(|(name, leaves)| (leaves.iter().map(|leaf| leaf.count).sum(), name, leaves))
            .collect();
        families.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let mut text = String::new();
        if !families.is_empty() {
            let _ = writeln!(text, "\ncrashes by family");
        }
        for (count, name, leaves) in families.iter_mut().take(SHOWN) {
            let cases: BTreeSet<&String> = leaves.iter().flat_map(|leaf| leaf.cases.keys()).collect();
            let _ = writeln!(
                text,
                "  {name}: {count} in {} {}{}",
                cases.len(),
                if cases.len() == 1 { "case" } else { "cases" },
                self.where_seen(leaves)
            );
            leaves.sort_by(|a, b| b.count.cmp(&a.count).then(a.leaf.cmp(&b.leaf)));
            for leaf in leaves.iter().take(SHOWN) {
                let _ = writeln!(text, "    {}", leaf_line(leaf, known.get(&leaf.leaf)));
            }
        }
        text
    }

    /// ` on gpu1 (3), gpu2 (4), none on gpu0`, where there is more than one device.
    fn where_seen(&self, leaves: &[&Crash]) -> String {
        if self.labels.len() < 2 {
            return String::new();
        }
        let count = |label: &String| -> u64 { leaves.iter().filter_map(|leaf| leaf.devices.get(label)).sum() };
        let (with, without): (Vec<_>, Vec<_>) = (0..)
            .zip(&self.labels)
            .filter(|(slot, _)| self.used.contains(slot))
            .map(|(_, label)| (label, count(label)))
            .partition(|(_, count)| *count > 0);
        let with: Vec<String> = with.into_iter().map(|(label, count)| format!("{label} ({count})")).collect();
        let without: Vec<&str> = without.into_iter().map(|(label, _)| label.as_str()).collect();
        let none = if without.is_empty() { String::new() } else { format!(", none on {}", without.join(" ")) };
        format!(" on {}{none}", with.join(", "))
    }
}

fn leaf_line(leaf: &Crash, known: Option<&Crash>) -> String {
    const CALLS: usize = 3;
    let calls = match leaf.calls.is_empty() {
        true => "no calls known".to_string(),
        false => leaf.calls.iter().take(CALLS).cloned().collect::<Vec<_>>().join(" < "),
    };
    let past = match known {
        Some(all) if all.runs > 1 => format!("; {} in {} runs since {}", all.count, all.runs, all.first.run),
        Some(_) => "; new".into(),
        None => String::new(),
    };
    let first = leaf.cases.keys().next().map_or("", String::as_str);
    let more = leaf.cases.len().saturating_sub(1);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} x{} {calls}: {}{more}{past}", leaf.leaf, leaf.count, escape(first, ""))
}

/// A folder for a case: its name as far as file names go, and its id's checksum.
fn folder_name(name: &str, id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(60).map(plain).collect();
    format!("{}-{:08x}", name.trim_start_matches('.'), crc32fast::hash(id.as_bytes()))
}

fn write(folder: &Path, result: &CaseResult, bucket: Option<&Bucket>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let WorkerOutput { stdout, stderr, files } = &*result.output;
    for (name, kept) in [("stdout.txt", stdout), ("stderr.txt", stderr)] {
        if kept.total > 0 {
            std::fs::write(folder.join(name), kept.bytes())?;
        }
    }
    let outcome = &result.outcome;
    std::fs::write(folder.join("outcome.txt"), format!("{}\n{}\n", outcome.outcome, outcome.detail))?;
    if let Some(death) = &result.death {
        let family = bucket.map(|bucket| &bucket.family);
        let crash = serde_json::json!({ "leaf": bucket.map(|b| &b.leaf), "family": family, "death": death });
        std::fs::write(folder.join("crash.json"), format!("{crash:#}\n"))?;
        std::fs::write(folder.join("stacks.txt"), stacks_text(death))?;
    }
    for path in files {
        let name = path.file_name().unwrap_or(path.as_os_str());
        // The worker's folder may lie in another file system.
        std::fs::rename(path, folder.join(name)).or_else(|_| std::fs::copy(path, folder.join(name)).map(drop))?;
    }
    Ok(())
}

/// All frames of all threads, for people.
fn stacks_text(death: &Death) -> String {
    let mut text = String::new();
    let crashed = death.crashed();
    let title = death.thread.as_ref().map(|thread| (format!("crashed: {thread}"), &crashed));
    let others = death.stacks.iter().map(|stack| (format!("{} ({}) {}", stack.name, stack.thread, stack.state), stack));
    for (title, stack) in title.into_iter().chain(others) {
        let _ = writeln!(text, "{}", escape(&title, ""));
        for frame in &stack.frames {
            let _ = writeln!(text, "  {frame}");
        }
        if stack.left_out > 0 {
            let _ = writeln!(text, "  {} calls in the middle are left out", stack.left_out);
        }
    }
    text
}

fn executable(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}
