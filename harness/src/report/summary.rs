//! Counts, failures, and the exit code.

use crate::escape::escape;
use crate::exit;
use crate::outcome::{Conclusion, HeldTo, Outcome, Verdict};
use crate::stats::{Interval, clopper_pearson};
use crate::units::counted;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// What a run comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) counts: BTreeMap<Verdict, usize>,
    /// Cases that passed, by what their passes rest on.
    pub(crate) passed_by: BTreeMap<String, u64>,
    /// Cases whose outputs had passed before, by their digest, and were not compared with the reference.
    pub(crate) held_to_digest: u64,
    failures: Vec<Failed>,
    skips: BTreeMap<String, usize>,
}

/// What helps to act on a failed case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Help {
    /// The script that repeats it.
    pub(crate) script: Option<PathBuf>,
    /// The leaf of its crash.
    pub(crate) leaf: Option<String>,
}

/// A failure with what is needed to act on it.
#[derive(Clone, Debug)]
struct Failed {
    id: String,
    /// File and line of the case.
    place: String,
    outcome: Outcome,
    /// How often it was tried, if more than once.
    attempts: String,
    /// The worker of its failure, where it had run other cases before and a fresh
    /// one did not fail, and the earlier run to which it belonged, if one did.
    neighbours: Option<(String, Option<String>)>,
    /// The case as a file of its own.
    written: Option<PathBuf>,
    /// The script that repeats it, and what its crash has in common with others.
    help: Help,
}

/// Failures whose reason is printed; the others are in the record.
const SHOWN: usize = 40;
/// Lines of a reason.
const REASON_LINES: usize = 24;

impl Summary {
    /// Adds the verdict on a case. `passed_by` names what a pass rests on.
    pub(crate) fn add(
        &mut self,
        conclusion: &Conclusion,
        written: Option<PathBuf>,
        help: Help,
        passed_by: Option<&str>,
    ) {
        let Conclusion { case, verdict, result, .. } = conclusion;
        *self.counts.entry(*verdict).or_default() += 1;
        if let Some(by) = passed_by {
            *self.passed_by.entry(by.to_string()).or_default() += 1;
        }
        self.held_to_digest += u64::from(result.outcome.held_to == Some(HeldTo::Digest));
        // One that is open after a failure is told too: a stop must not hide it.
        let open = *verdict == Verdict::Skip && conclusion.failures > 0;
        if verdict.is_failure() || open || matches!(verdict, Verdict::Flaky | Verdict::Quarantined) {
            let (id, place) = (case.id.clone(), format!("{}:{}", case.file, case.line));
            let mut outcome = result.outcome.clone();
            outcome.verdict = *verdict;
            let attempts = attempts_text(conclusion);
            let warm = *verdict == Verdict::Flaky && result.position > 0;
            let neighbours = warm.then(|| (result.worker.clone(), result.carried_from.clone()));
            self.failures.push(Failed { id, place, outcome, attempts, neighbours, written, help });
        }
        if *verdict == Verdict::Skip {
            let reason = escape(result.outcome.detail.lines().next().unwrap_or_default(), "");
            let name = &result.outcome.outcome;
            *self.skips.entry(format!("{name}: {reason}")).or_default() += 1;
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.counts.get(&verdict).copied().unwrap_or(0)
    }

    pub(crate) fn total(&self) -> usize {
        self.counts.values().sum()
    }

    pub(crate) fn failed(&self) -> usize {
        self.counts.iter().filter(|(verdict, _)| verdict.is_failure()).map(|(_, count)| count).sum()
    }

    /// The last line: exactly this form, with `, N flaky` and `, N quarantined` where there are such
    /// cases, so that the numbers add up.
    pub(crate) fn line(&self) -> String {
        let (passed, skipped) = (self.count(Verdict::Pass), self.count(Verdict::Skip));
        let mut line = format!("{passed} passed, {} failed, {skipped} skipped", self.failed());
        for verdict in [Verdict::Flaky, Verdict::Quarantined] {
            if self.count(verdict) > 0 {
                let _ = write!(line, ", {} {}", self.count(verdict), verdict.name());
            }
        }
        line
    }

    /// Each failure with its reason and the command that repeats it. `results` are the
    /// options that say where the record of the run is.
    pub(crate) fn failures_text(&self, run: &str, results: &str, repro: impl Fn(&str) -> String) -> String {
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_by(|a, b| (b.outcome.verdict, &a.id).cmp(&(a.outcome.verdict, &b.id)));
        let mut text = String::new();
        let mut told: BTreeMap<&String, &String> = BTreeMap::new();
        for Failed { id, place, outcome, attempts, neighbours, written, help } in failures.iter().take(SHOWN) {
            let _ = writeln!(text, "\n{} {id}  ({}, {place})", outcome.verdict.name().to_uppercase(), outcome.outcome);
            if !attempts.is_empty() {
                let _ = writeln!(text, "  {attempts}");
            }
            match help.leaf.as_ref().and_then(|leaf| told.insert(leaf, id).map(|first| (leaf, first))) {
                // The same end at the same place: once is enough.
                Some((leaf, first)) => {
                    told.insert(leaf, first);
                    let _ = writeln!(text, "  as {first} above: crash {leaf}");
                }
                None => {
                    for line in escape(&outcome.detail, "\n\t").lines().take(REASON_LINES) {
                        let _ = writeln!(text, "  {line}");
                    }
                }
            }
            let _ = writeln!(text, "  again: {}", repro(id));
            if let Some((worker, earlier)) = neighbours {
                let (id, run) = (quoted(id), earlier.as_deref().unwrap_or(run));
                let replay = format!("replay --worker {worker}@{run} --exact {id} --minimize{results}");
                let _ = writeln!(text, "  with its neighbours: cargo run -p harness -- {replay}");
            }
            if let Some(path) = written {
                let _ = writeln!(text, "  case:  {}", path.display());
            }
            if let Some(path) = &help.script {
                let _ = writeln!(text, "  repro: {}", path.display());
            }
        }
        if let Some(more) = failures.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(text, "\n... and {more} more failures, all in the record");
        }
        for (reason, count) in &self.skips {
            let _ = writeln!(text, "skipped {count}: {reason}");
        }
        text
    }

    /// What the last line does not tell: what passes rest on, cases that passed only when they were
    /// repeated, and failures that the quarantine file allows. One line each.
    pub(crate) fn other_lines(&self) -> String {
        let mut text = String::new();
        if let Some(passed) = passed_text(&self.passed_by, self.count(Verdict::Pass) as u64) {
            let _ = writeln!(text, "{passed}");
        }
        if self.held_to_digest > 0 {
            let _ = writeln!(text, "{}", held_text(self.held_to_digest, "case"));
        }
        let lines = [
            (Verdict::Flaky, "flaky: failed, and passed when run again; --flaky fail makes that a failure"),
            (Verdict::Quarantined, "quarantined: failed, as the quarantine file allows"),
        ];
        for (verdict, what) in lines {
            if self.count(verdict) > 0 {
                let _ = writeln!(text, "{} {what}", self.count(verdict));
            }
        }
        text
    }

    /// The exit code by what happened to the cases alone.
    pub(crate) fn exit_code(&self, flaky_fails: bool) -> u8 {
        if self.count(Verdict::Infra) > 0 {
            exit::INFRA
        } else if self.count(Verdict::Crash) + self.count(Verdict::Hang) > 0 {
            exit::CRASHED
        } else if self.count(Verdict::Fail) > 0 {
            exit::FAILED
        } else if flaky_fails && self.count(Verdict::Flaky) > 0 {
            exit::FLAKY
        } else if self.skips.keys().any(|reason| reason.starts_with("skip.deadline")) {
            exit::INCOMPLETE
        } else {
            exit::OK
        }
    }
}

/// What the word `pass` hides: how many of the cases that passed ran a kernel. Nothing where no record says so.
pub(crate) fn passed_text(passed_by: &BTreeMap<String, u64>, passed: u64) -> Option<String> {
    let mut parts: Vec<String> = passed_by.iter().map(|(by, count)| format!("{count} {}", passed_words(by))).collect();
    if parts.is_empty() {
        return None;
    }
    let told = passed_by.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    if let Some(untold) = passed.checked_sub(told).filter(|untold| *untold > 0) {
        parts.push(format!("{untold} not told"));
    }
    Some(format!("of those that passed: {}", parts.join(", ")))
}

/// For how many the reference was not evaluated.
pub(crate) fn held_text(count: u64, of: &str) -> String {
    let of = counted(count, of);
    format!("outputs of {of} had passed before, by their digest: not compared with the reference again")
}

/// In words, by the stable name. One of a later version is its own words.
fn passed_words(by: &str) -> String {
    match by {
        "kernel" => "ran as kernels".into(),
        "kernels_and_host" => "as kernels and on the host".into(),
        "kernels_and_library" => "as kernels and by a library".into(),
        "library" => "by a library alone".into(),
        "library_and_host" => "by a library and on the host".into(),
        "host" => "on the host alone".into(),
        "copies" => "by copies alone".into(),
        "reference" => "ran on the reference only".into(),
        other => escape(other, "").replace('_', " "),
    }
}

/// `failed 2 of 20 runs: fail.numerics 2`, for a case that ran more than once.
fn attempts_text(conclusion: &Conclusion) -> String {
    if conclusion.outcomes.len() < 2 {
        return String::new();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in conclusion.outcomes.iter().filter(|outcome| *outcome != "pass") {
        *counts.entry(outcome).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
    let (failures, runs) = (conclusion.failures, conclusion.outcomes.len());
    format!("failed {failures} of {runs} runs{}: {}", rate_text(conclusion), counts.join(", "))
}

/// The rate of a flaky case. The first failure is why the others were made, so
/// it does not count.
fn rate_text(conclusion: &Conclusion) -> String {
    let judged = conclusion.outcomes.iter().filter(|outcome| !outcome.starts_with("infra")).count() as u64;
    let failures = u64::from(conclusion.failures);
    if conclusion.verdict != Verdict::Flaky || judged < 10 || failures == 0 {
        return String::new();
    }
    let (failures, runs) = (failures - 1, judged - 1);
    let Interval { low, high } = clopper_pearson(failures, runs, 0.95);
    let percent = |rate: f64| format!("{:.0}", 100.0 * rate);
    let rate = failures as f64 / runs as f64;
    format!(", {} % [{}, {}] after the first", percent(rate), percent(low), percent(high))
}

/// The command line that repeats one case. `tail` holds the device and the like.
pub(crate) fn repro(command: &str, id: &str, tail: &str) -> String {
    let command = if command == "run" { String::new() } else { format!("{command} ") };
    format!("cargo run -p harness -- {command}--exact {}{tail}", quoted(id))
}

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/=,+-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::outcome::{CaseResult, PassedBy};
    use std::sync::Arc;

    fn summary(verdicts: &[Verdict]) -> Summary {
        let mut summary = Summary::default();
        for verdict in verdicts {
            let result = CaseResult::without_worker(Arc::new(Case::default()), 0, Outcome::of(*verdict, "x", ""));
            summary.add(&Conclusion::single(result), None, Help::default(), None);
        }
        summary
    }

    #[test]
    fn numbers_of_the_last_line_add_up() {
        use Verdict::{Crash, Fail, Flaky, Infra, Pass, Quarantined, Skip};
        assert_eq!(summary(&[Pass, Pass, Fail, Crash, Infra, Skip]).line(), "2 passed, 3 failed, 1 skipped");
        assert_eq!(
            summary(&[Pass, Flaky, Flaky, Quarantined]).line(),
            "1 passed, 0 failed, 0 skipped, 2 flaky, 1 quarantined"
        );
    }

    #[test]
    fn what_passes_rest_on_is_told_where_it_is_known() {
        let told = |counts: &[(&str, u64)], passed| {
            passed_text(&counts.iter().map(|(by, n)| (by.to_string(), *n)).collect(), passed)
        };
        assert_eq!(told(&[], 3), None);
        let kernel = PassedBy::Kernel.name();
        assert_eq!(told(&[(kernel, 2)], 2).as_deref(), Some("of those that passed: 2 ran as kernels"));
        assert_eq!(
            told(&[(kernel, 2), ("by_a_later_way", 1)], 7).as_deref(),
            Some("of those that passed: 1 by a later way, 2 ran as kernels, 4 not told")
        );
    }
}
