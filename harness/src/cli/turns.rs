//! A second look at cases that seem slower: a kept binary of the harness (A) and this one (B) measure them in turns, A B B
//! A twice over, each time in a fresh process on the same GPU, so that what drifts while they run favours neither.
//!
//! Inputs: the binary, the cases, the device. Output: times of each case by either. Nothing of it is recorded with the
//! run: the folders of these measurements lie in its work folder and go with it.

use super::devices::Devices;
use super::run::options::RunOptions;
use super::run::setup::device_words;
use crate::record::ResultsFolder;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Which binary measures when: `false` is the kept one.
const ORDER: [bool; 8] = [false, true, true, false, false, true, true, false];
/// Lines of a failed measurement that are shown.
const SHOWN: usize = 3;

/// Times in nanoseconds by case, a number for each measurement; those of one measurement stand at one place.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    pub(super) kept: Vec<BTreeMap<String, f64>>,
    pub(super) own: Vec<BTreeMap<String, f64>>,
}

impl Turns {
    /// The times of a case by the kept binary and by this one.
    pub(super) fn of(&self, id: &str) -> [Vec<f64>; 2] {
        [&self.kept, &self.own].map(|runs| runs.iter().filter_map(|run| run.get(id).copied()).collect())
    }
}

/// Measures.
pub(super) fn take(
    kept: &Path,
    ids: &BTreeSet<String>,
    options: &RunOptions,
    devices: &Devices,
    work: &Path,
) -> Result<Turns, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let dir = work.join("turns");
    std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let list = dir.join("cases.list");
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    std::fs::write(&list, lines).map_err(|error| format!("{}: {error}", list.display()))?;
    let slot = devices.slots.first().ok_or("there is no device")?;
    let device = device_words(options.devices.nvml.as_deref(), devices, slot);
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut turns = Turns::default();
    for (turn, is_own) in ORDER.into_iter().enumerate() {
        let results = absolute(&dir.join(format!("turn{turn}")));
        let mut words: Vec<OsString> = vec!["bench".into(), "--from-file".into(), absolute(&list).into()];
        words.extend(device.iter().map(OsString::from));
        words.extend(["--cases".into(), absolute(&options.cases.folders.cases).into()]);
        words.extend(["--results".into(), results.clone().into(), "--quiet".into(), "--format".into(), "plain".into()]);
        words.extend(["--seed".into(), options.repeat.seed.wrapping_add(1 + turn as u64).to_string().into()]);
        let times = measure(if is_own { &own } else { kept }, &words, &results)?;
        if is_own { &mut turns.own } else { &mut turns.kept }.push(times);
    }
    Ok(turns)
}

/// One measurement, in a process of its own.
fn measure(binary: &Path, words: &[OsString], results: &Path) -> Result<BTreeMap<String, f64>, String> {
    let mut command = Command::new(binary);
    command.args(words).stdin(Stdio::null());
    // What narrows or directs this run is said in words.
    let ours = |name: &str| {
        let directs = ["HARNESS_", "GTEST_", "TEST_", "TESTBRIDGE_"].iter().any(|start| name.starts_with(start));
        directs && name != "HARNESS_STATE_DIR" || matches!(name, "BLESS" | "XML_OUTPUT_FILE")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
    let shown = crate::escape::path(binary);
    let output = command.output().map_err(|error| format!("{shown} cannot be started: {error}"))?;
    let run = ResultsFolder::open(results).and_then(|folder| folder.list()).unwrap_or_default().pop();
    let loaded = run.filter(|run| run.finished()).and_then(|run| run.load().ok());
    let Some(run) = loaded else {
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let said: Vec<_> = said.lines().rev().take(SHOWN).map(crate::escape::short).collect();
        return Err(format!("{shown} measured nothing: {}", said.join("; ")));
    };
    let median = |attempt: &crate::record::Attempt| attempt.perf.as_ref()?["median_ns"].as_f64();
    let times =
        run.cases.iter().filter_map(|(id, case)| Some((id.clone(), case.attempts.iter().rev().find_map(median)?)));
    Ok(times.collect())
}
