//! What `changed(...)` of an expression means: cases that are not what they were
//! at a revision of git, or when a recorded run began.
//!
//! A case has changed if anything that its file says of it has, its place and
//! `about` aside, or if it is new; other cases of the same file have not. Of a run
//! two things are looked at: the case at the run's commit, and the text of its
//! kernel, which tells what the compiler makes of it now.

use super::session::Folders;
use super::{Failure, runs};
use crate::case::{Case, MAX_FILE_BYTES, Target, read_text};
use crate::record::{Recorded, ResultsFolder};
use crate::select::FilterExpr;
use crate::{exit, worker};
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why it cannot be told, and a way out.
type Why = (String, &'static str);

/// Ids that changed, by what each `changed(...)` names.
pub(super) fn changed(
    folders: &Folders,
    exprs: &[FilterExpr],
    cases: &[Case],
) -> Result<BTreeMap<String, BTreeSet<String>>, Failure> {
    let mut changed = BTreeMap::new();
    for expr in exprs {
        for since in expr.since() {
            if !changed.contains_key(since) {
                let ids = since_one(folders, since, cases)
                    .map_err(|(why, hint)| Failure::diagnostic(exit::BAD_FILTER, &expr.refuse(since, &why, hint)))?;
                changed.insert(since.to_string(), ids);
            }
        }
    }
    Ok(changed)
}

fn since_one(folders: &Folders, since: &str, cases: &[Case]) -> Result<BTreeSet<String>, Why> {
    let Some(run) = run_named(&folders.results, since)? else { return Tree::at(&folders.cases, since)?.changed(cases) };
    let Some(commit) = Some(run.header.commit()).filter(|commit| !commit.is_empty()) else {
        return Err((format!("the record of run {} names no commit", run.id()), "name a revision of git"));
    };
    let mut ids = Tree::at(&folders.cases, commit)?.changed(cases)?;
    let same: Vec<&Case> = cases.iter().filter(|case| !ids.contains(&case.id)).collect();
    ids.extend(other_kernels(&run, &same));
    Ok(ids)
}

/// The run of that whole name, or the one that `latest` means; anything else is
/// for git to know.
fn run_named(results: &Path, since: &str) -> Result<Option<Recorded>, Why> {
    let none = "a run is named by its whole name or as latest~N; anything else is a revision of git";
    let latest = since == "latest" || since.starts_with("latest~");
    let info = match ResultsFolder::open(results) {
        Ok(layout) if latest => {
            Some(layout.find(since).map_err(|why| (format!("there is no run `{since}`: {why}"), none))?)
        }
        Ok(layout) => layout.list().unwrap_or_default().into_iter().find(|info| info.id == since),
        Err(_) if latest => return Err((format!("there is no run `{since}`: nothing is recorded"), none)),
        Err(_) => None,
    };
    let unreadable = |_| (format!("run `{since}` cannot be read"), "`harness store repair` says what can be mended");
    info.map(|info| runs::load(&info).map_err(unreadable)).transpose()
}

/// Cases whose kernel is not the one that the run recorded. Kernels are written for
/// a model of GPU: those of a run on another than the usual one are not compared.
fn other_kernels(run: &Recorded, cases: &[&Case]) -> BTreeSet<String> {
    let usual = DeviceDesc::h200();
    if !run.device().is_some_and(|device| device == "simulator" || device.ends_with(" H200")) {
        return BTreeSet::new();
    }
    let recorded = |id: &str| {
        let kernel = run.cases.get(id)?.attempts.iter().rev().find_map(|attempt| attempt.kernel_crc.as_deref())?;
        u32::from_str_radix(kernel, 16).ok()
    };
    let session = Session::simulator(usual, SimOptions::default(), Options::default());
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(then) = recorded(&case.id) else { continue };
            if worker::kernel_crc(case, &session) != Some(then) {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(case.id.clone());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The case folder as git knows it at a commit.
struct Tree {
    /// The folder, as paths of cases begin.
    dir: PathBuf,
    commit: String,
    /// Files that were there, and those of them that are not the same now; below the folder.
    known: BTreeSet<PathBuf>,
    touched: BTreeSet<PathBuf>,
}

impl Tree {
    fn at(cases: &Path, revision: &str) -> Result<Self, Why> {
        let dir = if cases.is_file() { cases.parent().unwrap_or(Path::new("")) } else { cases };
        if revision.starts_with('-') {
            return Err((format!("`{revision}` is no revision"), "for example: changed(HEAD), changed(latest)"));
        }
        let commit = git(dir, &["rev-parse", "--verify", &format!("{revision}^{{commit}}")])?;
        let commit = String::from_utf8_lossy(&commit).trim().to_string();
        let known = git(dir, &["ls-tree", "-r", "-z", "--name-only", &commit])?;
        let diff = ["diff", "--name-only", "--relative", "--no-renames", "--no-ext-diff", "-z", &commit, "--", "."];
        let touched = git(dir, &diff)?;
        Ok(Self { dir: dir.to_path_buf(), commit, known: paths(&known), touched: paths(&touched) })
    }

    /// Ids of cases that are not what they were. Built-in faults have no file.
    fn changed(&self, cases: &[Case]) -> Result<BTreeSet<String>, Why> {
        let mut by_file: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
        for case in cases.iter().filter(|case| case.fault.is_none()) {
            by_file.entry(&case.file).or_default().push(case);
        }
        let mut changed = BTreeSet::new();
        for (file, cases) in by_file {
            let below = Path::new(file).strip_prefix(&self.dir).unwrap_or(Path::new(file));
            if self.known.contains(below) && !self.touched.contains(below) {
                continue;
            }
            let old = if self.known.contains(below) { self.then(file, below)? } else { Vec::new() };
            let same = |case: &&Case| old.contains(&case.essence());
            changed.extend(cases.into_iter().filter(|case| !same(case)).map(|case| case.id.clone()));
        }
        Ok(changed)
    }

    /// The cases of a file as they were, on both kinds of device: their sizes differ.
    fn then(&self, file: &str, below: &Path) -> Result<Vec<Case>, Why> {
        let text = git(&self.dir, &["cat-file", "blob", &format!("{}:./{}", self.commit, below.display())])?;
        let text = String::from_utf8(text).ok().filter(|text| text.len() as u64 <= MAX_FILE_BYTES);
        let read = |target| text.as_deref().map(|text| read_text(file, text, target).0).unwrap_or_default();
        Ok(read(Target::Sim).iter().chain(&read(Target::Cuda)).map(Case::essence).collect())
    }
}

fn paths(listed: &[u8]) -> BTreeSet<PathBuf> {
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned())).collect()
}

/// What git prints, in the folder.
fn git(dir: &Path, args: &[&str]) -> Result<Vec<u8>, Why> {
    let place = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let mut command = Command::new("git");
    command.arg("-C").arg(place).args(args).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            ("`changed` asks git, which is not there".into(), "install git, or name the cases otherwise")
        }
        _ => (format!("git cannot be started: {error}"), "`changed` asks it for the cases of then"),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = crate::escape::short(said.lines().next().unwrap_or_default()).into_owned();
    let hint = match said.contains("not a git repository") {
        true => "the case folder must be in a checkout",
        false => "a revision (HEAD, main, HEAD~3), a run's whole name, or latest",
    };
    Err((format!("git cannot tell what changed: {said}"), hint))
}
