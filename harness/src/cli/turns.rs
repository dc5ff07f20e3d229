//! A second look at cases: a kept binary of the harness (A) and this one (B) measure them in rounds of A B B A, each time
//! in a fresh process on the same GPU, so that what drifts while they run favours neither. `gate/in_turns.rs` says after
//! each round which cases another one is for.
//!
//! Inputs: the binary, the cases, the device. Output: what came of each case, and what was not measured, and why. Where a
//! measurement fails as a whole, what the rounds before told stays. Nothing of it is recorded with the
//! run: the folder of these measurements lies in its work folder and goes with it; what one of them compiled or compared with the
//! reference, the later ones find.

use super::devices::Devices;
use super::run::options::RunOptions;
use super::run::setup::{device_words, shared_code};
use crate::gate::{Code, InTurns, Timed};
use crate::record::{RecordedCase, ResultsFolder};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Which binary measures when: `false` is the kept one.
const ORDER: [bool; 4] = [false, true, true, false];
/// The measurements of a round that find compiled and compared what the ones before them left: each binary's second.
const WARM: [usize; 2] = [2, 3];
/// Lines of a failed measurement that are shown.
const SHOWN: usize = 3;
/// How long rounds are begun for, where nobody says how long.
const BUDGET: Duration = Duration::from_secs(600);

/// How rounds are measured.
pub(super) struct Measurer<'a> {
    pub(super) kept: &'a Path,
    pub(super) options: &'a RunOptions,
    pub(super) devices: &'a Devices,
    /// The run's work folder.
    pub(super) work: &'a Path,
}

/// What rounds came to.
pub(super) struct Taken {
    pub(super) turns: InTurns,
    pub(super) time: Duration,
    pub(super) budget: Duration,
    /// Whether the budget ended it.
    pub(super) is_cut: bool,
    /// Why no further round could be measured.
    pub(super) failed: Option<String>,
    /// Of cases that a measurement had no time of, what came of them there.
    pub(super) unmeasured: BTreeMap<String, String>,
}

/// What a process measured.
#[derive(Default)]
struct Measured {
    times: BTreeMap<String, Timed>,
    /// The same by the mean of samples, where the binary tells that.
    means: BTreeMap<String, f64>,
    /// What came of the other cases.
    others: BTreeMap<String, String>,
    costs: BTreeMap<String, Duration>,
    /// What it took besides its cases.
    overhead: Duration,
}

type MeasuredRound = [Measured; 4];

impl Measurer<'_> {
    /// Measures until all is said, or the time for it is over: of the last of it those have rounds that are most likely slower.
    /// The first round is measured in any case.
    pub(super) fn take(&self, turns: InTurns) -> Taken {
        let (began, budget) = (Instant::now(), self.options.time.budget.unwrap_or(BUDGET));
        let (time, failed, unmeasured) = (Duration::ZERO, None, BTreeMap::new());
        let mut taken = Taken { turns, time, budget, is_cut: false, failed, unmeasured };
        let mut forecast = Forecast::default();
        for number in 0.. {
            let mut ids = taken.turns.next();
            if ids.is_empty() {
                break;
            }
            let left = budget.saturating_sub(began.elapsed());
            if number > 0 && forecast.of(&ids) > left {
                taken.is_cut = true;
                ids = forecast.fitting(taken.turns.most_likely(), left);
                if ids.is_empty() {
                    break;
                }
            }
            match self.round(number, &ids) {
                Ok(round) => {
                    forecast.learn(&round);
                    taken.add(&ids, round);
                }
                Err(why) => {
                    taken.failed = Some(why);
                    break;
                }
            }
        }
        taken.time = began.elapsed();
        taken
    }

    fn round(&self, number: usize, ids: &BTreeSet<String>) -> Result<MeasuredRound, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let dir = self.work.join("turns");
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
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
        let mut round = MeasuredRound::default();
        for (turn, (is_own, measured)) in ORDER.into_iter().zip(&mut round).enumerate() {
            let seed = self.options.repeat.seed.wrapping_add(1 + (ORDER.len() * number + turn) as u64);
            let words: Vec<OsString> =
                words.iter().cloned().chain(["--seed".into(), seed.to_string().into()]).collect();
            let binary = if is_own { &own } else { self.kept };
            *measured = measure(binary, &words, &results, ids).map_err(|why| {
                let which = if is_own { "this binary" } else { "the kept binary" };
                format!("round {}, measurement {} of {}, by {which}: {why}", number + 1, turn + 1, ORDER.len())
            })?;
        }
        Ok(round)
    }
}

impl Taken {
    fn add(&mut self, ids: &BTreeSet<String>, round: MeasuredRound) {
        for (measured, is_own) in round.iter().zip(ORDER) {
            let which = if is_own { "this binary" } else { "the kept one" };
            for (id, what) in &measured.others {
                self.unmeasured.entry(id.clone()).or_insert_with(|| format!("{what}, by {which}"));
            }
        }
        let tells_mean = |id: &String| round.iter().all(|measured| measured.means.contains_key(id));
        let by_mean: BTreeSet<String> = ids.iter().filter(|id| tells_mean(id)).cloned().collect();
        self.turns.add(
            ids,
            &round.map(|mut measured| {
                for (id, timed) in measured.times.iter_mut().filter(|(id, _)| by_mean.contains(*id)) {
                    timed.ns = measured.means[id];
                }
                measured.times
            }),
        );
    }
}

/// What a round is expected to take, by what the cases and processes of the last ones took where nothing was compiled any more.
#[derive(Default)]
struct Forecast {
    costs: BTreeMap<String, Duration>,
    overhead: Duration,
}

impl Forecast {
    fn learn(&mut self, round: &MeasuredRound) {
        let whole = |of_warm: Duration| of_warm * (ORDER.len() / WARM.len()) as u32;
        self.overhead = whole(WARM.iter().map(|turn| round[*turn].overhead).sum());
        for id in round[WARM[0]].costs.keys() {
            let of_warm = WARM.iter().filter_map(|turn| round[*turn].costs.get(id)).sum();
            self.costs.insert(id.clone(), whole(of_warm));
        }
    }

    fn of(&self, ids: &BTreeSet<String>) -> Duration {
        self.overhead + ids.iter().map(|id| self.of_case(id)).sum::<Duration>()
    }

    fn of_case(&self, id: &String) -> Duration {
        self.costs.get(id).copied().unwrap_or_default()
    }

    /// The first of these cases, as many as the time is enough for.
    fn fitting(&self, ids: Vec<String>, time: Duration) -> BTreeSet<String> {
        let mut taken = self.overhead;
        let fits = |id: &String| {
            taken += self.of_case(id);
            taken <= time
        };
        ids.into_iter().take_while(fits).collect()
    }
}

/// One measurement, in a process of its own.
fn measure(binary: &Path, words: &[OsString], results: &Path, ids: &BTreeSet<String>) -> Result<Measured, String> {
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
    let (shown, began) = (crate::escape::path(binary), Instant::now());
    let output = command.output().map_err(|error| format!("{shown} cannot be started: {error}"))?;
    let elapsed = began.elapsed();
    let runs = ResultsFolder::open(results).and_then(|folder| folder.list()).unwrap_or_default();
    let loaded = runs.into_iter().rfind(|run| !before.contains(&run.id));
    let is_whole = loaded.as_ref().is_some_and(|run| run.finished());
    let cases = loaded.and_then(|run| run.load().ok()).map(|run| run.cases).unwrap_or_default();
    if !is_whole || cases.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let said: Vec<_> = said.lines().rev().take(SHOWN).map(crate::escape::short).collect();
        // Of a process that died, what it was about to measure is next to this.
        let last = cases.iter().filter_map(|(id, case)| Some((case.attempts.last()?.t_ns, id))).max();
        let last = last.map_or(String::new(), |(_, id)| format!(", last {}", crate::escape::short(id)));
        let ended = format!("{shown} ended ({}) after {} of {} cases{last}", output.status, cases.len(), ids.len());
        return Err(format!("{ended}: {}", said.join("; ")));
    }
    Ok(measured(&cases, ids, elapsed))
}

/// What a run recorded of the cases that were asked for.
fn measured(cases: &BTreeMap<String, RecordedCase>, ids: &BTreeSet<String>, elapsed: Duration) -> Measured {
    let timed = |attempt: &crate::record::Attempt| {
        let ns = attempt.perf.as_ref()?["median_ns"].as_f64().filter(|ns| *ns > 0.0)?;
        // A binary of before digests were recorded tells none.
        let code = attempt.code_digest.clone().map_or(Code::Unknown(String::new()), Code::Known);
        Some(Timed { ns, code })
    };
    let mean = |attempt: &crate::record::Attempt| attempt.perf.as_ref()?["mean_ns"].as_f64().filter(|ns| *ns > 0.0);
    let mut found = Measured::default();
    for id in ids {
        let Some(case) = cases.get(id) else {
            found.others.insert(id.clone(), "unknown there".into());
            continue;
        };
        let took = case.attempts.iter().map(|attempt| attempt.dur_ns).sum();
        found.costs.insert(id.clone(), Duration::from_nanos(took));
        match case.attempts.iter().rev().find_map(timed) {
            Some(timed) => {
                found.times.insert(id.clone(), timed);
                let mean = case.attempts.iter().rev().find_map(mean);
                found.means.extend(mean.map(|mean| (id.clone(), mean)));
            }
            None => {
                let what = Some(case.verdict().1).filter(|outcome| *outcome != "pass").unwrap_or("no time");
                found.others.insert(id.clone(), what.into());
            }
        }
    }
    found.overhead = elapsed.saturating_sub(found.costs.values().sum());
    found
}
