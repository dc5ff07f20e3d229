//! `repro.sh`: the command that repeats a failure, from any folder.

use crate::escape::escape;
use crate::outcome::CaseResult;
use crate::report::quoted;
use std::fmt::Write;
use std::path::PathBuf;

/// What all commands of a run have in common. Paths are absolute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// The binary.
    pub(crate) harness: PathBuf,
    /// `run` or `bench`.
    pub(crate) command: String,
    pub(crate) cases: PathBuf,
    pub(crate) results: PathBuf,
    pub(crate) run: String,
    /// For each slot, the options that select its device: `--sim 1`.
    pub(crate) devices: Vec<Vec<String>>,
    /// The options that make a repeated case the same, each with its value.
    pub(crate) again: Vec<Vec<String>>,
}

impl Context {
    fn words(&self, own: &[&str], failed: &CaseResult) -> String {
        let mut words: Vec<String> = own.iter().map(|word| quoted(word)).collect();
        let device = failed.slot.and_then(|slot| self.devices.get(slot)).or(self.devices.first());
        words.extend(device.into_iter().flatten().map(|word| quoted(word)));
        let again = self.again.iter().filter(|option| !["--seed", "--retries"].contains(&option[0].as_str()));
        words.extend(again.flatten().map(|word| quoted(word)));
        for (option, path) in [("--cases", &self.cases), ("--results", &self.results)] {
            words.extend([option.into(), quoted(&path.to_string_lossy())]);
        }
        format!("\"$harness\" {} --seed {}", words.join(" "), failed.seed)
    }

    /// The script for a failed attempt. With `history`, the failure needs the
    /// cases that its worker had run before.
    pub(crate) fn script(&self, failed: &CaseResult, history: bool) -> String {
        let CaseResult { case, outcome, worker, attempt, position, carried_from, .. } = failed;
        let run = carried_from.as_ref().unwrap_or(&self.run);
        let (id, worker_of) = (escape(&case.id, ""), format!("{worker}@{run}"));
        let mut text = String::from("#!/bin/sh\n");
        let _ = writeln!(text, "# {}: {id}", outcome.outcome);
        let _ = writeln!(text, "# attempt {attempt} in worker {worker} of run {run}, behind {position} cases");
        let _ = writeln!(text, "# another binary than that run's: HARNESS=/path/to/harness sh repro.sh");
        let _ = writeln!(text, "harness=${{HARNESS:-{}}}", quoted(&self.harness.to_string_lossy()));
        let alone = self.words(&[&self.command, "--exact", &case.id, "--retries", "0"], failed);
        let replay = self.words(&["replay", "--worker", &worker_of, "--exact", &case.id], failed);
        match (history, *position) {
            (true, _) => {
                let _ = writeln!(text, "# It passed alone in a fresh worker, so this runs what its worker had run.");
                let _ = writeln!(text, "# Alone: {alone}\n{replay}");
            }
            (false, 0) => text.push_str(&format!("{alone}\n")),
            (false, _) => text.push_str(&format!("# With what its worker had run before: {replay}\n{alone}\n")),
        }
        text
    }
}
