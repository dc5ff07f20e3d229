//! What is launched: the cases, the tasks, and the folder of the job.

use super::slurm::refused;
use crate::cli::args::{Args, DeviceArg, task_words, usage};
use crate::cli::session::{self, CaseOptions, Folders};
use crate::cli::{Failure, devices};
use crate::device::WantedGpus;
use crate::record::{ResultsFolder, merge, replace, utc_stamp};
use crate::report::quoted;
use crate::units::counted;
use engine::diag::{Diagnostic, code};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Tasks, unless the user says how many.
const TASKS: usize = 4;

/// What every task reads.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobFile {
    /// The command line of a task, but for its shard and its folder.
    pub(super) words: Vec<String>,
    pub(super) tasks: usize,
}

impl JobFile {
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join("job.json")
    }
}

/// The folder of records of one task, and the file that says how it ended.
pub(super) fn results_of(folder: &Path, task: usize) -> PathBuf {
    folder.join(format!("shard-{task}"))
}
pub(super) fn code_of(folder: &Path, task: usize) -> PathBuf {
    folder.join(format!("shard-{task}.code"))
}

/// What is launched.
pub(super) struct LaunchPlan {
    pub(super) folder: PathBuf,
    pub(super) script: PathBuf,
    pub(super) tasks: usize,
    /// Options of `sbatch`.
    pub(super) options: Vec<String>,
    /// What people are to know.
    pub(super) notes: Vec<String>,
}

impl LaunchPlan {
    /// Chooses the cases, and makes the folder of the job.
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        check(args)?;
        let options = CaseOptions::of(args);
        let loaded = session::load_sound(&options, devices::target(&args.devices))?;
        let all = loaded.cases.len();
        let chosen = session::choose(&options, loaded.cases, options.history)?;
        // No task is without a case.
        let tasks = args.launch.tasks.unwrap_or(TASKS).min(chosen.cases.len()).max(1);
        let words = task_words(&args.argv, &args.from_env)?;
        let mut notes = chosen.notes;
        notes.push(format!("{} of {} selected", chosen.cases.len(), counted(all, "case")));
        let folder = make(&Folders::of(args), &JobFile { words, tasks }).map_err(|error| {
            let message = format!("the folder of the job cannot be made: {error}");
            refused(Diagnostic::user(code::RESULTS, message).note("name a place that all nodes see with --results"))
        })?;
        let script = folder.join("task.sh");
        Ok(Self { script, folder, tasks, options: requests(args), notes })
    }
}

/// Refuses what cannot be done in tasks.
fn check(args: &Args) -> Result<(), Failure> {
    let refuse = |what: &str, way: &str| Err(usage(format!("`--launcher` {what}"), way));
    let rerun = args.select.wanted.rerun.as_ref().and_then(crate::select::Rerun::run);
    match () {
        () if args.devices.device == DeviceArg::Auto => {
            refuse("must know what a task runs on: this machine may have other devices", "--gpus 1, --sim 2 or --ref")
        }
        () if args.select.wanted.shard.is_some() => {
            refuse("makes the shards itself", "leave `--shard` and the variables of shards out; --tasks says how many")
        }
        () if args.output.bless => refuse("does not bless: tasks would write one file at once", "bless on one machine"),
        () if rerun.is_some() => refuse(
            "takes no `--rerun` of one run, which tasks do not see",
            "--rerun failed, or `-E 'last(fail)'`, go by the history, which they do",
        ),
        () => Ok(()),
    }
}

/// What a task needs of its node; the user's own options come last and win.
fn requests(args: &Args) -> Vec<String> {
    let needs = match &args.devices.device {
        DeviceArg::Gpus(WantedGpus::Count(count)) if args.devices.nvml.is_none() => {
            Some(format!("--gpus-per-task={count}"))
        }
        DeviceArg::Sim(count) => Some(format!("--cpus-per-task={}", args.devices.jobs.unwrap_or(*count))),
        _ => None,
    };
    needs.into_iter().chain(args.launch.sbatch.iter().cloned()).collect()
}

/// Makes the folder: what tasks read, and for each a folder of records with the history of now.
fn make(folders: &Folders, job: &JobFile) -> io::Result<PathBuf> {
    let results = std::path::absolute(&folders.results)?;
    ResultsFolder::claim(&results)?;
    let folder = results.join("launched").join(format!("{}-{}", utc_stamp(true), std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for task in 1..=job.tasks {
        let own = results_of(&folder, task);
        ResultsFolder::claim(&own)?;
        if results.join("history").is_dir() {
            merge::copy_dir(&results.join("history"), &own.join("history"))?;
        }
    }
    replace(&JobFile::path(&folder), serde_json::to_string(job)?.as_bytes())?;
    let program = std::env::current_exe()?;
    let [program, place] = [&program, &folder].map(|path| quoted(&path.display().to_string()));
    let script = format!("#!/bin/sh\nexec {program} __task {place} \"$SLURM_ARRAY_TASK_ID\"\n");
    replace(&folder.join("task.sh"), script.as_bytes())?;
    Ok(folder)
}
