//! A second look at cases: a kept binary of the harness (A) and this one (B) measure them in rounds of A B B A, each time
//! in a fresh process on the same GPU, so that what drifts while they run favours neither. `gate/in_turns.rs` says after
//! each round which cases another one is for.
//!
//! Inputs: the binary, the cases, the device. Output: what came of each case. Nothing of it is recorded with the
//! run: the folder of these measurements lies in its work folder and goes with it; what one of them compiled or compared with the
//! reference, the later ones find.

use super::devices::Devices;
use super::run::options::RunOptions;
use super::run::setup::{device_words, shared_code};
use crate::gate::{InTurns, Timed};
use crate::record::ResultsFolder;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Which binary measures when: `false` is the kept one.
const ORDER: [bool; 4] = [false, true, true, false];
/// Lines of a failed measurement that are shown.
const SHOWN: usize = 3;

/// How rounds are measured.
pub(super) struct Measurer<'a> {
    pub(super) kept: &'a Path,
    pub(super) options: &'a RunOptions,
    pub(super) devices: &'a Devices,
    /// The run's work folder.
    pub(super) work: &'a Path,
}

impl Measurer<'_> {
    /// Measures until all is said, or the time for it is over.
    pub(super) fn take(&self, mut turns: InTurns) -> Result<InTurns, String> {
        let (began, mut last) = (Instant::now(), Duration::ZERO);
        let dir = self.work.join("turns");
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        for number in 0.. {
            let (ids, before) = (turns.next(), began.elapsed());
            // A round that would end too late is not begun: it takes no longer than the one before.
            let is_late = |budget: Duration| number > 0 && before + last > budget;
            if ids.is_empty() || self.options.time.budget.is_some_and(is_late) {
                break;
            }
            turns.add(&self.round(&dir, number, &ids)?);
            last = began.elapsed() - before;
        }
        Ok(turns)
    }

    fn round(&self, dir: &Path, number: usize, ids: &BTreeSet<String>) -> Result<[BTreeMap<String, Timed>; 4], String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let list = dir.join("cases.list");
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        std::fs::write(&list, lines).map_err(|error| format!("{}: {error}", list.display()))?;
        let slot = self.devices.slots.first().ok_or("there is no device")?;
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let results = absolute(&dir.join("results"));
        let mut words: Vec<OsString> = vec!["bench".into(), "--from-file".into(), absolute(&list).into()];
        let device = device_words(self.options.devices.nvml.as_deref(), self.devices, slot);
        words.extend(device.iter().map(OsString::from));
        words.extend(["--cases".into(), absolute(&self.options.cases.folders.cases).into()]);
        words.extend(["--results".into(), results.clone().into(), "--quiet".into(), "--format".into(), "plain".into()]);
        words.extend(["--code-cache".into(), shared_code(self.options, &self.devices.slots).to_string().into()]);
        let mut round = [const { BTreeMap::new() }; 4];
        for (turn, (is_own, times)) in ORDER.into_iter().zip(&mut round).enumerate() {
            let seed = self.options.repeat.seed.wrapping_add(1 + (ORDER.len() * number + turn) as u64);
            let words: Vec<OsString> =
                words.iter().cloned().chain(["--seed".into(), seed.to_string().into()]).collect();
            *times = measure(if is_own { &own } else { self.kept }, &words, &results)?;
        }
        Ok(round)
    }
}

/// One measurement, in a process of its own.
fn measure(binary: &Path, words: &[OsString], results: &Path) -> Result<BTreeMap<String, Timed>, String> {
    let before: BTreeSet<String> = ResultsFolder::open(results)
        .and_then(|folder| folder.list())
        .map_or_else(|_| BTreeSet::new(), |runs| runs.into_iter().map(|run| run.id).collect());
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
    let runs = ResultsFolder::open(results).and_then(|folder| folder.list()).unwrap_or_default();
    let loaded = runs.into_iter().rfind(|run| !before.contains(&run.id)).filter(|run| run.finished());
    let Some(run) = loaded.and_then(|run| run.load().ok()) else {
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let said: Vec<_> = said.lines().rev().take(SHOWN).map(crate::escape::short).collect();
        return Err(format!("{shown} measured nothing: {}", said.join("; ")));
    };
    let timed = |attempt: &crate::record::Attempt| {
        let ns = attempt.perf.as_ref()?["median_ns"].as_f64().filter(|ns| *ns > 0.0)?;
        Some(Timed { ns, code: attempt.kernel_crc.clone().unwrap_or_default() })
    };
    let times =
        run.cases.iter().filter_map(|(id, case)| Some((id.clone(), case.attempts.iter().rev().find_map(timed)?)));
    Ok(times.collect())
}
