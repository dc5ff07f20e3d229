//! The two runs that a comparison means. Each word names a run (its id, the beginning or the end of it, `latest~N`, a
//! folder), a day, or a commit as git or the records know it.
//!
//! Inputs: the runs of the results folder and two words. Output: one run for each. A day and a commit have several: of those
//! that finished and came to verdicts, the last two of one command on one device are taken, without local changes before those with.

use super::{Failure, runs};
use crate::escape::short;
use crate::exit;
use crate::record::RunInfo;
use crate::units::counted;
use engine::diag::{Diagnostic, code};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fewer characters name no commit.
const LEAST: usize = 4;

/// The runs that two words mean, in their order.
pub(super) fn pair(results: &Path, words: &[String; 2]) -> Result<[RunInfo; 2], Failure> {
    let [before, after] = [meant(results, &words[0])?, meant(results, &words[1])?];
    let alike = |a: &RunInfo, b: &RunInfo| {
        let what = |run: &RunInfo| (run.header.mode().to_string(), run.header.device());
        what(a) == what(b)
    };
    let both = |fits: &dyn Fn(&RunInfo, &RunInfo) -> bool| {
        let with = |b: &RunInfo| before.iter().rev().find(|a| fits(a, b)).cloned();
        after.iter().rev().find_map(|b| Some([with(b)?, b.clone()]))
    };
    let found = both(&|a, b| alike(a, b) && a.id != b.id).or_else(|| both(&alike)).or_else(|| both(&|_, _| true));
    found.ok_or_else(|| no_run(&words[0], "nothing is recorded"))
}

/// The runs that a word may mean, the likeliest last; one at least.
fn meant(results: &Path, word: &str) -> Result<Vec<RunInfo>, Failure> {
    let own = runs::find(results, word);
    if own.is_ok() || word.contains('/') || word.starts_with("latest") {
        return own.map(|run| vec![run]);
    }
    let mut all = runs::layout(results)?.list().unwrap_or_default();
    all.retain(|run| run.finished() && run.judges());
    if is_day(word) {
        all.retain(|run| run.started().starts_with(word));
        return match all.is_empty() {
            true => Err(no_run(word, "no finished run began then (in UTC)")),
            false => Ok(all),
        };
    }
    let of = |start: &str| {
        let mut found: Vec<RunInfo> =
            all.iter().filter(|run| !start.is_empty() && run.header.commit().starts_with(start)).cloned().collect();
        // One with local changes is of the commit only where no other is.
        found.sort_by_key(|run| !run.header.is_dirty());
        found
    };
    let hex = word.len() >= LEAST && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let by_record = if hex { of(word) } else { Vec::new() };
    let commits: BTreeSet<&str> = by_record.iter().map(|run| run.header.commit()).collect();
    if commits.len() > 1 {
        return Err(no_run(word, &format!("{} of the records begin so", counted(commits.len(), "commit"))));
    }
    if !by_record.is_empty() {
        return Ok(by_record);
    }
    let Some(commit) = resolve(results, word) else { return own.map(|run| vec![run]) };
    let found = of(&commit);
    match found.is_empty() {
        true => Err(no_run(word, &format!("that is commit {commit}, of which no finished run is recorded"))),
        false => Ok(found),
    }
}

/// `2026-01-31`, or the beginning of a time behind it.
fn is_day(word: &str) -> bool {
    let day = word.as_bytes().get(..10);
    day.is_some_and(|day| {
        day.iter().enumerate().all(|(i, byte)| if matches!(i, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() })
    })
}

/// The commit that git means by a word: a branch, a tag, `HEAD~3`. It is asked where the records are.
fn resolve(results: &Path, word: &str) -> Option<String> {
    if word.starts_with('-') {
        return None;
    }
    let place = results.parent().filter(|place| !place.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut git = Command::new("git");
    git.arg("-C").arg(place).args(["rev-parse", "--verify", "--quiet", &format!("{word}^{{commit}}")]);
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let commit = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

fn no_run(word: &str, why: &str) -> Failure {
    let message = format!("there is no run `{}`: {why}", short(word));
    let note = "name a run, latest~N, a day (2026-01-31) or a commit; `harness store list` shows the runs";
    Failure::diagnostic(exit::BAD_RUN, &Diagnostic::user(code::NO_RUN, message).note(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_no_name_of_a_run() {
        for (word, wanted) in [("2026-01-31", true), ("2026-01-31T10", true), ("20260131T101112Z-abcdef", false)] {
            assert_eq!(is_day(word), wanted, "{word}");
        }
        for word in ["", "2026-1-31", "nightly-01", "2026-01-3"] {
            assert!(!is_day(word), "{word}");
        }
    }
}
