//! What several commands share: where files are, and which cases are meant.

use super::args::{Args, Command, DeviceArg};
use super::{Failure, runs, since};
use crate::case::{Case, CaseError, Loaded, Target, load};
use crate::record::{History, ResultsFolder};
use crate::select::quarantine::Quarantine;
use crate::select::{Chosen, FromRun, Past, Rerun, Split, Wanted};
use crate::units::counted;
use crate::worker::fault;
use crate::{escape, exit};
use engine::diag::{Diagnostic, code};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folder that holds `cases` and `results`: this one, or the nearest above
/// it with a `Cargo.toml` and `cases` beside each other.
fn root() -> PathBuf {
    if Path::new("cases").is_dir() {
        return PathBuf::new();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().find(|dir| dir.join("cases").is_dir() && dir.join("Cargo.toml").is_file());
    found.map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The folders that a command works on.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    pub(super) cases: PathBuf,
    pub(super) results: PathBuf,
}

impl Folders {
    pub(super) fn of(args: &Args) -> Self {
        Self {
            cases: args.select.cases.clone().unwrap_or_else(|| root().join("cases")),
            results: args.output.results.clone().unwrap_or_else(|| root().join("results")),
        }
    }

    /// The quarantine file beside the cases.
    pub(super) fn quarantine(&self) -> PathBuf {
        self.cases.join("quarantine.toml")
    }
}

/// Which cases a command is about.
#[derive(Clone, Debug)]
pub(super) struct CaseOptions {
    pub(super) folders: Folders,
    pub(super) wanted: Wanted,
    /// Adds the built-in fault cases.
    faults: bool,
    /// A file whose presence tells a test runner that shards are understood.
    shard_status: Option<PathBuf>,
    /// The past that counts where no device is opened.
    pub(super) history: &'static str,
}

impl CaseOptions {
    pub(super) fn of(args: &Args) -> Self {
        let history = match args.devices.device {
            DeviceArg::Reference => "reference",
            DeviceArg::Auto | DeviceArg::Sim(_) => "simulator",
            _ => GPUS,
        };
        Self {
            folders: Folders::of(args),
            wanted: Wanted { bench: args.command == Command::Bench, ..args.select.wanted.clone() },
            faults: args.select.faults,
            shard_status: args.select.shard_status.clone(),
            history,
        }
    }
}

/// Refuses a name for the run that another one has: before anything is run.
pub(super) fn free_run_id(results: &Path, id: Option<&str>) -> Result<(), Failure> {
    let Some(id) = id else { return Ok(()) };
    let dir = results.join("runs").join(id);
    if !dir.join("events.jsonl").exists() {
        return Ok(());
    }
    let message = format!("`--run-id` {id}: there is a run of that name, {}", crate::escape::path(&dir));
    let diagnostic = Diagnostic::user(code::USAGE, message).note("take another name, or remove that run by hand");
    Err(Failure::diagnostic(exit::USAGE, &diagnostic))
}

/// Mistakes of case files that are printed.
const SHOWN: usize = 200;

/// All cases, or the errors of all files.
pub(super) fn load_all(options: &CaseOptions, target: Target) -> Result<Loaded, Failure> {
    let loaded = load_sound(options, target)?;
    if loaded.errors.is_empty() { Ok(loaded) } else { Err(malformed(&loaded.errors)) }
}

/// Why nothing is run.
pub(super) fn malformed(errors: &[CaseError]) -> Failure {
    let text = told(errors, SHOWN);
    let code = errors.first().map_or("", |error| error.code);
    let more = format!("`harness explain {code}` says more about the first");
    Failure::new(exit::BAD_CASES, format!("{text} in case files; nothing was run; {more}"))
}

/// Mistakes a line each, and how many there are.
pub(super) fn told(errors: &[CaseError], shown: usize) -> String {
    let lines: String = errors.iter().take(shown).map(|error| format!("{error}\n")).collect();
    match errors.len().checked_sub(shown).filter(|more| *more > 0) {
        None => format!("{lines}{}", counted(errors.len(), "error")),
        Some(more) => format!("{lines}... {more} more: {}", counted(errors.len(), "error")),
    }
}

/// The cases of the files without a mistake, and the mistakes of the others. An error where that leaves nothing, or where
/// the folder itself cannot be read whole.
pub(super) fn load_sound(options: &CaseOptions, target: Target) -> Result<Loaded, Failure> {
    let CaseOptions { folders, wanted, faults, .. } = options;
    let mut loaded = load(&folders.cases, target);
    let broken: BTreeSet<&str> = loaded.errors.iter().map(|error| error.file.as_str()).collect();
    loaded.cases.retain(|case| !broken.contains(case.file.as_str()));
    let of_folder = |error: &CaseError| error.code == code::CASE_LIMIT.0 || !Path::new(&error.file).is_file();
    if !loaded.errors.is_empty() && (loaded.cases.is_empty() || loaded.errors.iter().any(of_folder)) {
        return Err(malformed(&loaded.errors));
    }
    if *faults {
        loaded.cases.extend(fault::cases());
        // Also one that needs a device of its own or has another parameter, if it is named.
        let named = wanted.exact.iter().filter_map(|id| fault::named(id));
        let missing: Vec<Case> = named.filter(|case| loaded.cases.iter().all(|other| other.id != case.id)).collect();
        loaded.cases.extend(missing);
        // A class with another parameter, or once more: `__fault.flaky=0.01`, `__fault.pass@7`.
        let listed = wanted.listed.iter().flat_map(|list| list.ids.iter().map(|(_, id)| id));
        let asked = wanted.exact.iter().chain(listed).filter_map(|id| fault::Spec::case(id.strip_prefix("__fault.")?));
        let known: BTreeSet<String> = loaded.cases.iter().map(|case| case.id.clone()).collect();
        loaded.cases.extend(asked.filter(|case| !known.contains(&case.id)));
    }
    Ok(loaded)
}

/// The cases of both kinds of device: sizes differ between simulator and GPU,
/// and so do kernels. A case that is the same on both stands here once.
pub(super) fn load_both(options: &CaseOptions) -> Result<Vec<Case>, Failure> {
    let mut cases = load_all(options, Target::Sim)?.cases;
    let by_id: BTreeMap<String, Case> = cases.iter().map(|case| (case.id.clone(), case.clone())).collect();
    let more = load_all(options, Target::Cuda)?.cases;
    cases.extend(more.into_iter().filter(|case| by_id.get(&case.id) != Some(case)));
    Ok(cases)
}

/// The cases that the options select, in the order of their files; selecting
/// nothing is an error. `history` names the devices whose past counts.
pub(super) fn choose(options: &CaseOptions, cases: Vec<Case>, history: &str) -> Result<Chosen, Failure> {
    let CaseOptions { folders, wanted, shard_status, .. } = options;
    let mut past = Past::default();
    if wanted.shard.is_some_and(|shard| shard.split == Split::Time) {
        past = self::past(&folders.results, history);
    }
    if !wanted.exprs.is_empty() || wanted.rerun.is_some() {
        past = self::past(&folders.results, history);
        let quarantine = read_quarantine(folders)?;
        let named = cases.iter().filter(|case| quarantine.entry(&case.id).is_some());
        past.quarantined = named.map(|case| case.id.clone()).collect();
        past.changed = since::changed(folders, &wanted.exprs, &cases)?;
    }
    let run = match wanted.rerun.as_ref().and_then(Rerun::run) {
        Some(id) => from_run(&folders.results, id, wanted.rerun == Some(Rerun::NotRun))?,
        None => FromRun::default(),
    };
    if let Some(path) = shard_status {
        // A test runner looks whether the file is there: it means that shards are understood.
        let written = std::fs::File::create(path);
        written.map_err(|error| {
            let message = format!("the shard status file {} cannot be written: {error}", escape::path(path));
            Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message))
        })?;
    }
    crate::select::choose(wanted, cases, &past, &run).map_err(|diagnostic| {
        let exit = if diagnostic.code == code::BAD_FILTER { exit::BAD_FILTER } else { exit::NOTHING_SELECTED };
        Failure::diagnostic(exit, &diagnostic)
    })
}

pub(super) fn read_quarantine(folders: &Folders) -> Result<Quarantine, Failure> {
    // A single case file has nothing beside it that is meant.
    if folders.cases.is_file() {
        return Ok(Quarantine::default());
    }
    Quarantine::read(&folders.quarantine()).map_err(|diagnostic| Failure::diagnostic(exit::BAD_CASES, &diagnostic))
}

/// The quarantine file, each of whose entries names a case.
pub(super) fn quarantine(folders: &Folders, cases: &[Case], target: Target) -> Result<Quarantine, Failure> {
    let quarantine = read_quarantine(folders)?;
    let idle = quarantine.idle(cases.iter().map(|case| case.id.as_str()));
    if idle.is_empty() {
        return Ok(quarantine);
    }
    // Sizes differ between GPUs and the simulator, and ids with them.
    let other = if target == Target::Sim { Target::Cuda } else { Target::Sim };
    let there = load(&folders.cases, other).cases;
    let idle = Quarantine::of(idle.into_iter().cloned().collect());
    match idle.idle(there.iter().map(|case| case.id.as_str())).first() {
        None => Ok(quarantine),
        Some(entry) => {
            let path = escape::path(&folders.quarantine());
            let message = format!("{path}: no case is `{}`", escape::short(&entry.id));
            let note = "take the entry out with `harness quarantine rm`, or give it the case's new id";
            let diagnostic = Diagnostic::user(code::BAD_QUARANTINE, message).note(note);
            Err(Failure::diagnostic(exit::BAD_CASES, &diagnostic))
        }
    }
}

/// [`choose`] for commands without devices of their own.
pub(super) fn select(options: &CaseOptions, cases: Vec<Case>) -> Result<Vec<Case>, Failure> {
    Ok(choose(options, cases, options.history)?.cases)
}

/// Stands for whichever GPUs there are records of.
const GPUS: &str = "gpus";

/// What earlier runs say.
pub(super) fn past(results: &Path, history: &str) -> Past {
    let cases = match history {
        GPUS => History::of_gpus(results).iter().flat_map(History::past).collect(),
        _ => History::of(results, history).past(),
    };
    Past { cases, ..Past::default() }
}

/// What the record of a run says about its cases. Where no run is recorded,
/// nothing is left of one if `may_be_missing`; one that is named must be there.
fn from_run(results: &Path, id: &str, may_be_missing: bool) -> Result<FromRun, Failure> {
    if may_be_missing && !ResultsFolder::has_verdicts(results) {
        return Ok(FromRun::default());
    }
    let info = runs::find(results, id)?;
    FromRun::of(&runs::load(&info)?).map_err(|why| {
        let message = format!("run {} does not tell which cases are left: {why}", info.id);
        let diagnostic = Diagnostic::user(code::NO_RUN, message).note("`--rerun failed` needs no run");
        Failure::diagnostic(exit::BAD_RUN, &diagnostic)
    })
}
