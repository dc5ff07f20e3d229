//! `resume`: goes on with a run that was killed or stopped. The same cases under
//! the same options and seed; what has its verdict is not run again.

use super::args::{Args, Parsed, parse_recorded};
use super::run::options::RunOptions;
use super::session::Folders;
use super::{Failure, run, runs};
use crate::exit;
use crate::record::{ResultsFolder, Resumed, RunInfo};
use engine::diag::{Diagnostic, code};
use std::path::{Path, PathBuf};

pub(super) fn resume(args: &Args) -> Result<u8, Failure> {
    let results = Folders::of(args).results;
    let info = match args.operand() {
        Some(word) => runs::find(&results, word)?,
        None => newest_open(&runs::layout(&results)?)?,
    };
    let mut resumed = Resumed::read(&info).map_err(|why| refused(&info.id, &why, None))?;
    // What was said now is meant from here, all else from where the run began.
    resumed.dir = absolute(&resumed.dir);
    let results = absolute(&results);
    let junit = args.records.junit.as_deref().map(absolute);
    if let Some(cwd) = &resumed.cwd
        && std::env::set_current_dir(cwd).is_err()
    {
        return Err(refused(&info.id, &format!("it ran in {cwd}, which is not there"), Some(&resumed)));
    }
    let Ok(Parsed::Args(mut again)) = parse_recorded(&resumed.argv, &resumed.from_env) else {
        return Err(refused(&info.id, "its command line is of another version", Some(&resumed)));
    };
    if again.select.faults {
        // Planted faults exist where they are named.
        again.select.wanted.exact = resumed.selected.iter().cloned().collect();
    }
    again.output.results = Some(results);
    let given = &args.records;
    again.records.form = given.form;
    again.records.color = given.color;
    again.records.junit = junit.or(again.records.junit.take());
    again.records.github |= given.github;
    again.records.run_id = given.run_id.clone();
    run::resume(&RunOptions::of(&again), resumed)
}

/// A path that still means the same in another folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The last run that has no end, or was stopped before its end.
pub(super) fn newest_open(layout: &ResultsFolder) -> Result<RunInfo, Failure> {
    let all = layout.list().unwrap_or_default();
    // One that another run went on with is done; one without a header had not begun.
    let resumed = |run: &RunInfo| all.iter().any(|later| later.header.resumes.as_ref() == Some(&run.id));
    let begun = |run: &RunInfo| run.header.argv.is_some() && run.judges();
    let open = all.iter().rev().find(|run| run.is_open() && begun(run) && !resumed(run));
    open.cloned().ok_or_else(|| {
        let message =
            format!("none of the {} runs in {} is open: killed or stopped", all.len(), layout.root().display());
        let diagnostic = Diagnostic::user(code::NOT_RESUMED, message).note("`harness store list` shows them");
        Failure::diagnostic(exit::BAD_RUN, &diagnostic)
    })
}

/// Why a run is not gone on with, and the way to run the same anew.
pub(super) fn refused(id: &str, why: &str, resumed: Option<&Resumed>) -> Failure {
    let mut diagnostic = Diagnostic::user(code::NOT_RESUMED, format!("{id} cannot be resumed: {why}"));
    if let Some(resumed) = resumed {
        let words: Vec<String> = resumed.argv.iter().map(|word| crate::report::quoted(word)).collect();
        diagnostic = diagnostic.note(format!("all of it anew: harness {}", words.join(" ")));
        if let Some(sha) = &resumed.git_sha {
            diagnostic = diagnostic.note(format!("it ran on commit {sha}"));
        }
    }
    Failure::diagnostic(exit::BAD_RUN, &diagnostic)
}
