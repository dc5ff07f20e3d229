//! Counts, failures, and the exit code.

use crate::escape::escape;
use crate::exit;
use crate::outcome::{Conclusion, Outcome, Verdict};
use crate::stats::{Interval, clopper_pearson};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// What a run comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) counts: BTreeMap<Verdict, usize>,
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
    pub(crate) fn add(&mut self, conclusion: &Conclusion, written: Option<PathBuf>, help: Help) {
        let Conclusion { case, verdict, result, .. } = conclusion;
        *self.counts.entry(*verdict).or_default() += 1;
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

    /// The last line: exactly this form.
    pub(crate) fn line(&self) -> String {
        let (passed, skipped) = (self.count(Verdict::Pass), self.count(Verdict::Skip));
        format!("{passed} passed, {} failed, {skipped} skipped", self.failed())
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

    /// What the last line does not tell: cases that passed only when they were
    /// repeated, and failures that the quarantine file allows. One line each.
    pub(crate) fn other_lines(&self) -> String {
        let mut text = String::new();
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
