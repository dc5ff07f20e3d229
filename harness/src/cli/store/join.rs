//! `store join`: shards as one run.
//!
//! Inputs: runs by name, their folders, or folders of results with shards in them. Output: the joined run of each command,
//! and what it came to, in words and as an exit code.

use super::super::args::usage;
use super::super::{Failure, runs};
use super::{failed, failed_at};
use crate::console::print;
use crate::evidence::adopt;
use crate::exit;
use crate::record::join::{Job, Joined, Refused, jobs, write};
use crate::record::{RecordedCase, ResultsFolder, RunInfo, is_failure, merge, rebuild, utc_stamp};
use crate::report::passed_text;
use crate::units::{counted, show_seconds};
use engine::diag::{Diagnostic, code};
use std::path::Path;

/// Failures that are named; the joined run has all.
const SHOWN: usize = 40;

pub(super) fn join(root: &Path, words: &[String], run_id: Option<&str>) -> Result<u8, Failure> {
    if words.is_empty() {
        return Err(usage(
            "`store join` needs shards",
            "store join RUN|DIR...: runs, or folders of results with shards",
        ));
    }
    let mut infos = Vec::new();
    for word in words {
        infos.extend(meant(root, word)?);
    }
    let joined = unite(root, infos, run_id)?;
    let mut text = String::new();
    let codes: Vec<u8> = joined.iter().map(|(job, joined)| tell(&mut text, job, joined)).collect();
    print(&text);
    Ok(exit::worst(codes))
}

/// The runs of a word. Of a folder those that are shards.
fn meant(root: &Path, word: &str) -> Result<Vec<RunInfo>, Failure> {
    let path = Path::new(word);
    if path.join("FORMAT").is_file() {
        let all = merge::runs_at(path).map_err(|error| failed_at(path, &error))?;
        return Ok(all.into_iter().filter(|run| run.header.shard.is_some()).collect());
    }
    let run = runs::find(root, word)?;
    if run.header.shard.is_none() || !run.judges() {
        let why = format!("{} does not say that it is a shard", run.id);
        return Err(refused(Refused { why, notes: vec!["runs under `--shard I/N` say so".into()] }));
    }
    Ok(vec![run])
}

/// Joins runs into a folder of results, and has its tables tell what they found.
pub(in crate::cli) fn unite(
    root: &Path,
    infos: Vec<RunInfo>,
    run_id: Option<&str>,
) -> Result<Vec<(Job, Joined)>, Failure> {
    let jobs = jobs(infos).map_err(refused)?;
    if jobs.is_empty() {
        return Err(refused(Refused { why: "there is no shard".into(), notes: Vec::new() }));
    }
    if let (Some(id), [_, _, ..]) = (run_id, &jobs[..]) {
        let why = format!("`--run-id {id}` names one run, and there are shards of {}", counted(jobs.len(), "command"));
        return Err(refused(Refused { why, notes: vec!["name the runs of one command".into()] }));
    }
    let layout = ResultsFolder::claim(root).map_err(|error| failed_at(root, &error))?;
    let mut all = Vec::new();
    for job in jobs {
        let joined = write(&layout, &job, run_id).map_err(|error| failed(&layout, &error))?.map_err(refused)?;
        if !joined.is_old {
            // What was recorded or merged here is in the ledger already.
            for part in joined.own_parts(&job) {
                let added = adopt(root, &part.run, &part.info.dir, &joined.id);
                added.map_err(|error| failed(&layout, &error))?;
            }
        }
        all.push((job, joined));
    }
    rebuild::mend(&layout, &utc_stamp(true), false).map_err(|error| failed(&layout, &error))?;
    Ok(all)
}

fn refused(refused: Refused) -> Failure {
    let diagnostic = Diagnostic::user(code::NOT_JOINED, refused.why);
    let diagnostic = refused.notes.into_iter().fold(diagnostic, Diagnostic::note);
    Failure::diagnostic(exit::BAD_RUN, &diagnostic)
}

/// What a job came to, as a run says it at its end. Returns the exit code.
pub(in crate::cli) fn tell(text: &mut String, job: &Job, joined: &Joined) -> u8 {
    let run = &joined.run;
    let mut line = |what: String| text.push_str(&format!("{}\n", crate::escape::escape(&what, "")));
    if joined.is_old {
        line(format!("{} is here already", joined.id));
    }
    for shard in &job.shards {
        let names: Vec<&str> = shard.runs.iter().map(|part| part.info.id.as_str()).collect();
        line(format!("{} shard {} of {}: {}", job.mode(), shard.index, job.count, names.join(", then ")));
    }
    job.left_out.iter().for_each(|what| line(format!("left out: {what}")));
    for index in job.missing() {
        line(format!("{} shard {index} of {} is missing", job.mode(), job.count));
    }
    let failed = |case: &RecordedCase| is_failure(case.verdict().0) || case.verdict().0 == "flaky";
    let failures: Vec<_> = run.cases.iter().filter(|(_, case)| failed(case)).collect();
    for (id, case) in failures.iter().take(SHOWN) {
        let (verdict, outcome, _) = case.verdict();
        line(format!("{} {id}  ({outcome})", verdict.to_uppercase()));
    }
    if let Some(more) = failures.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        line(format!("... and {more} more"));
    }
    if let Some(why) = &run.header.record_error {
        line(format!("not all is recorded: {why}"));
    }
    let open = run.unjudged();
    if open > 0 {
        let of = counted(run.selected.len(), "selected case");
        line(format!("incomplete: {open} of {of} came to no verdict; `harness resume {}` runs them", joined.id));
    }
    let counts = run.counts();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let total = counted(run.cases.len(), "case");
    line(format!("record {}", joined.dir.display()));
    line(format!("{total} of {} in {}", counted(job.shards.len(), "shard"), show_seconds(run.elapsed_ns())));
    passed_text(&run.passed_by(), count("pass")).into_iter().for_each(&mut line);
    let wrong = ["fail", "crash", "hang", "infra"].into_iter().map(count).sum::<u64>();
    let mut last = format!("{} passed, {wrong} failed, {} skipped", count("pass"), count("skip"));
    for name in ["flaky", "quarantined"].into_iter().filter(|name| count(name) > 0) {
        last.push_str(&format!(", {} {name}", count(name)));
    }
    line(last);
    joined.code
}
