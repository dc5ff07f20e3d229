//! The programs of a Slurm cluster: submit, ask, cancel.

use crate::cli::Failure;
use crate::device::program;
use crate::exit;
use engine::diag::{Diagnostic, code};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Before its time is over a task is asked to end in order, and goes on when it is queued again.
const END_IN_TIME: &str = "--signal=B:TERM@30";

/// What `squeue` says of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskState {
    /// `PENDING`, `RUNNING`, ...
    pub(super) state: String,
    /// The node, or why it waits.
    pub(super) place: String,
}

/// A cluster.
pub(super) struct Slurm {
    sbatch: PathBuf,
    squeue: PathBuf,
    scancel: PathBuf,
}

/// An array to submit.
pub(super) struct Array<'a> {
    pub(super) tasks: &'a [usize],
    pub(super) script: &'a Path,
    pub(super) folder: &'a Path,
    /// Options of `sbatch`; later ones win over earlier ones.
    pub(super) options: &'a [String],
}

impl Slurm {
    /// The cluster that this machine belongs to.
    pub(super) fn find() -> Result<Self, Failure> {
        let find = |name: &str| {
            program(name).ok_or_else(|| {
                let diagnostic = Diagnostic::user(code::NO_LAUNCHER, format!("`{name}` is not on the path"));
                refused(diagnostic.note("this machine belongs to no Slurm cluster"))
            })
        };
        Ok(Self { sbatch: find("sbatch")?, squeue: find("squeue")?, scancel: find("scancel")? })
    }

    /// Submits; returns the number of the array's job.
    pub(super) fn submit(&self, array: &Array<'_>) -> Result<String, Failure> {
        let mut command = Command::new(&self.sbatch);
        let tasks: Vec<String> = array.tasks.iter().map(usize::to_string).collect();
        command.args([
            "--parsable",
            "--no-requeue",
            "--ntasks=1",
            "--job-name=harness",
            "--open-mode=append",
            END_IN_TIME,
        ]);
        command.arg(format!("--array={}", tasks.join(",")));
        command.arg(format!("--output={}/task-%a.log", array.folder.display()));
        command.args(array.options).arg(array.script);
        let told = said(&self.sbatch, command.output(), "sbatch did not take the tasks")?;
        // Of a cluster among several its name is behind the number.
        let job = told.trim().split(';').next().unwrap_or_default().to_string();
        match !job.is_empty() && job.bytes().all(|b| b.is_ascii_digit()) {
            true => Ok(job),
            false => Err(refused(Diagnostic::user(code::NO_LAUNCHER, format!("sbatch names no job: {}", told.trim())))),
        }
    }

    /// The tasks of a job that wait or run, by their numbers; none of a job that Slurm has forgotten.
    pub(super) fn queue(&self, job: &str) -> Result<BTreeMap<usize, TaskState>, Failure> {
        let output =
            Command::new(&self.squeue).args(["--noheader", "--array", "--jobs", job, "--format=%K|%T|%N|%r"]).output();
        if let Ok(output) = &output
            && String::from_utf8_lossy(&output.stderr).contains("Invalid job id")
        {
            return Ok(BTreeMap::new());
        }
        let text = said(&self.squeue, output, "squeue does not answer")?;
        Ok(text.lines().filter_map(task).collect())
    }

    /// Asks all tasks of a job to end in order: those that run by a signal, the others are taken out. The signal is for the
    /// harness of the task alone; its workers would be found killed.
    pub(super) fn cancel(&self, job: &str) -> Result<(), Failure> {
        let cancel = |options: &[&str]| {
            let output = Command::new(&self.scancel).args(options).arg(job).output();
            said(&self.scancel, output, "scancel failed").map(drop)
        };
        cancel(&["--state=PENDING"])?;
        cancel(&["--batch", "--signal=TERM"])
    }

    /// Ends all tasks of a job at once.
    pub(super) fn kill(&self, job: &str) -> Result<(), Failure> {
        said(&self.scancel, Command::new(&self.scancel).arg(job).output(), "scancel failed").map(drop)
    }
}

/// A line of `squeue`.
fn task(line: &str) -> Option<(usize, TaskState)> {
    let mut cells = line.trim().split('|');
    let (number, state) = (cells.next()?.parse().ok()?, cells.next()?.to_string());
    let (node, reason) = (cells.next()?, cells.next()?);
    let place = if node.is_empty() { reason } else { node };
    Some((number, TaskState { state, place: place.into() }))
}

/// What a program printed, or why it failed.
fn said(program: &Path, output: std::io::Result<Output>, what: &str) -> Result<String, Failure> {
    let why = match output {
        Ok(output) if output.status.success() => return Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => format!("{}: {error}", program.display()),
    };
    let diagnostic = Diagnostic::user(code::NO_LAUNCHER, what);
    let diagnostic = why.lines().map(crate::escape::short).fold(diagnostic, |all, line| all.note(line));
    Err(refused(diagnostic.note("`scontrol ping` says whether the controller answers")))
}

pub(super) fn refused(diagnostic: Box<Diagnostic>) -> Failure {
    let way = "without a cluster: `--shard I/N` on each machine, then `harness store join`";
    Failure::diagnostic(exit::INFRA, &diagnostic.note(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_read() {
        let read = |line: &str| task(line).map(|(number, told)| (number, told.state, told.place));
        assert_eq!(read("3|RUNNING|n2|None"), Some((3, "RUNNING".into(), "n2".into())));
        assert_eq!(read("12|PENDING||Resources"), Some((12, "PENDING".into(), "Resources".into())));
        assert_eq!((read(""), read("N/A|RUNNING|n1|None"), read("1|RUNNING")), (None, None, None));
    }
}
