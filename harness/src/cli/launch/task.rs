//! What a task does on its node: runs its shard, or goes on with what an earlier task of the same shard has recorded.

use super::plan::{JobFile, code_of, results_of};
use crate::cli::args::{self, Parsed, parse_words};
use crate::cli::{Failure, resume, runs};
use crate::console::complain;
use crate::exit;
use crate::record::RunState;
use engine::diag::{Diagnostic, code};
use std::path::Path;

/// Runs the shard. Its exit code is also left in a file: without one, the task did not end.
pub(in crate::cli) fn main(folder: &Path, task: usize) -> Result<u8, Failure> {
    let _ = std::fs::remove_file(code_of(folder, task));
    let ended = shard(folder, task);
    let code = ended.as_ref().map_or_else(|failure| failure.exit, |code| *code);
    if let Err(error) = std::fs::write(code_of(folder, task), code.to_string()) {
        complain(&format!("{}: {error}", code_of(folder, task).display()));
    }
    ended
}

fn shard(folder: &Path, task: usize) -> Result<u8, Failure> {
    let job = read(folder)?;
    let results = results_of(folder, task);
    let place = results.display().to_string();
    let layout = runs::layout(&results)?;
    let all = layout.list().unwrap_or_default();
    if let Some(whole) = all.iter().find(|run| run.judges() && run.state == RunState::Complete) {
        let code = whole.header.summary.as_ref().and_then(|summary| summary.exit_code);
        return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::OK));
    }
    if let Ok(open) = resume::newest_open(&layout) {
        match words(["resume", &open.id, "--results", &place, "--quiet"].map(String::from).to_vec()) {
            // One that had not begun, or is of another version, is run anew.
            Err(failure) if failure.exit == exit::BAD_RUN => complain(&failure.message),
            other => return other,
        }
    }
    let shard = format!("{task}/{}:time", job.tasks);
    let own = ["--shard", &shard, "--results", &place, "--quiet"].map(String::from);
    words(job.words.into_iter().chain(own).collect())
}

fn read(folder: &Path) -> Result<JobFile, Failure> {
    let path = JobFile::path(folder);
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())).map_err(|why| {
        let message = format!("{}: {why}", crate::escape::path(&path));
        let note = "the folder of records must be one that all nodes see: name another with --results";
        Failure::diagnostic(exit::BAD_RUN, &Diagnostic::user(code::RESULTS, message).note(note))
    })
}

/// A command line, without what the environment says: who launched has read that.
fn words(words: Vec<String>) -> Result<u8, Failure> {
    match parse_words(&words)? {
        Parsed::Args(args) => args::run(&args),
        _ => Ok(exit::USAGE),
    }
}
