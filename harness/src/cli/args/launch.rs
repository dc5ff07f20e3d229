//! Options that give a run to several machines.

use super::command::VERDICTS;
use super::table::{OptionRow, value};

/// Who runs the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    Slurm,
}

/// Several machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    pub(crate) launcher: Option<Launcher>,
    /// Tasks, if given.
    pub(crate) tasks: Option<usize>,
    /// Options of `sbatch`.
    pub(crate) sbatch: Vec<String>,
}

/// Options of who launches: a task has others in their place, or none.
pub(super) const OWN: [&str; 10] = [
    "--launcher",
    "--tasks",
    "--sbatch",
    "--results",
    "--run-id",
    "--junit",
    "--github",
    "--format",
    "--quiet",
    "--failures-only",
];

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--launcher",
        "slurm",
        VERDICTS,
        "run the cases as an array of Slurm tasks, a shard each by recorded durations, and join what they find; what a \
         lost node had is queued again",
        |args, given| {
            args.launch.launcher = Some(given.word(&[("slurm", Launcher::Slurm)])?);
            Ok(())
        },
    ),
    value("--tasks", "N", VERDICTS, "with --launcher: how many tasks (default: 4)", |args, given| {
        args.launch.tasks = Some(given.count("tasks")?);
        Ok(())
    }),
    value(
        "--sbatch",
        "OPTION",
        VERDICTS,
        "with --launcher: an option for sbatch, such as --sbatch=--partition=gpu; may be repeated",
        |args, given| {
            args.launch.sbatch.push(given.text().into());
            Ok(())
        },
    ),
];
