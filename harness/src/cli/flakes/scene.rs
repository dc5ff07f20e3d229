//! What the commands about flakes share: devices, cases, record and plan before,
//! and the end of the record after.

use crate::case::Case;
use crate::cli::args::{Args, Form, TimeOptions, usage};
use crate::cli::broken::{Broken, code_with, or_malformed};
use crate::cli::devices::{self, Devices};
use crate::cli::run::options::RunOptions;
use crate::cli::run::setup;
use crate::cli::{Failure, ending, runs, session};
use crate::dispatch::RunPlan;
use crate::evidence::sanitizer::Sample;
use crate::exit;
use crate::flake::standards::Standards;
use crate::record::{History, Provenance, RunStore, today};
use crate::report::{Progress, TimeLeft};
use crate::select::Chosen;
use crate::units::counted;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for repeats unless the user says otherwise.
const BUDGET: Duration = Duration::from_secs(600);

/// Everything that is ready before the first repeat.
pub(super) struct Scene {
    pub(super) options: RunOptions,
    pub(super) devices: Devices,
    /// The cases that the devices can run, in the order of their files.
    pub(super) cases: Vec<Arc<Case>>,
    /// Ids that no chosen device can run, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// On the selection, for people.
    notes: Vec<String>,
    /// Case files that are left out.
    broken: Option<Broken>,
    pub(super) store: RunStore,
    pub(super) plan: RunPlan,
    pub(super) standards: Standards,
    pub(super) started: Instant,
    files: usize,
}

/// Cases without which a command cannot begin, and what is said of one that is not there. It is said
/// before there is a record: a mistyped name leaves no run.
pub(super) struct Needed<'a> {
    pub(super) ids: Vec<&'a str>,
    pub(super) missing: &'a dyn Fn(&str) -> Failure,
}

impl Needed<'_> {
    fn check(&self, cases: &[Arc<Case>]) -> Result<(), Failure> {
        let there = |id: &str| cases.iter().any(|case| case.id == id);
        match self.ids.iter().find(|id| !there(id)) {
            Some(id) => Err((self.missing)(id)),
            None => Ok(()),
        }
    }
}

impl Scene {
    /// With the selected cases.
    pub(super) fn selected(options: RunOptions, needed: Option<&Needed<'_>>) -> Result<Self, Failure> {
        Self::set(options, true, needed)
    }

    /// With all cases, those that a record names among them.
    pub(super) fn of_ids<'a>(
        mut options: RunOptions,
        ids: impl Iterator<Item = &'a str>,
        needed: &Needed<'_>,
    ) -> Result<Self, Failure> {
        // Built-in faults exist as far as they are named.
        options.cases.wanted.exact.extend(ids.filter(|id| id.starts_with("__fault.")).map(String::from));
        Self::set(options, false, Some(needed))
    }

    fn set(options: RunOptions, selected: bool, needed: Option<&Needed<'_>>) -> Result<Self, Failure> {
        let started = Instant::now();
        let results = &options.cases.folders.results;
        session::free_run_id(results, options.record.run_id.as_deref())?;
        let devices = devices::resolve(&options.devices, options.sanitize.as_ref())?;
        let loaded = session::load_sound(&options.cases, devices.target)?;
        let (files, fingerprint, errors) = (loaded.files, loaded.fingerprint, loaded.errors);
        let chosen = match selected {
            true => session::choose(&options.cases, loaded.cases, &devices.history)
                .map(|chosen| setup::sample(&options, chosen))
                .map_err(|why| or_malformed(&errors, why))?,
            // A share is one of selected cases; these are all that there are.
            false => Chosen { cases: loaded.cases, ..Chosen::default() },
        };
        let (cases, skipped) = setup::split_required(chosen.cases, &devices);
        needed.map_or(Ok(()), |needed| needed.check(&cases)).map_err(|why| or_malformed(&errors, why))?;
        // Cases that a record or an operand names are all there.
        let broken = Broken::of(&options.cases.wanted, &errors, "run")
            .map(|broken| Broken { counts: broken.counts && selected, ..broken });
        let reason = |c: crate::outcome::Conclusion| (c.case.id.clone(), c.result.outcome.detail.clone());
        let skipped: Vec<_> = skipped.into_iter().map(reason).collect();
        let header =
            setup::header(&options, &devices, files, fingerprint, cases.len() + skipped.len(), Provenance::gather());
        let mut store = RunStore::create_as(results, options.record.run_id.as_deref(), header);
        if options.record.form == Some(Form::Jsonl) {
            store.echo();
        }
        broken.iter().for_each(|broken| store.append("broken", &broken.record));
        let plan = setup::plan(&options, &devices, &store);
        let history = History::of(results, &devices.history);
        let standards = Standards { learnt: history.determinism(), today: today() };
        Ok(Self {
            options,
            devices,
            cases,
            skipped,
            notes: chosen.notes,
            broken,
            store,
            plan,
            standards,
            started,
            files,
        })
    }

    /// The case of that id.
    pub(super) fn case(&self, id: &str) -> Option<Arc<Case>> {
        self.cases.iter().find(|case| case.id == id).cloned()
    }

    pub(super) fn by_id(&self) -> BTreeMap<&str, &Arc<Case>> {
        self.cases.iter().map(|case| (case.id.as_str(), case)).collect()
    }

    /// A view for `total` things, with the notes on devices.
    pub(super) fn progress(&self, total: usize, what: &str) -> Progress {
        let labels = self.plan.slots.iter().map(|slot| slot.label.clone()).collect();
        let progress = runs::progress(&self.options.record, total, labels, TimeLeft::default());
        self.devices.notes.iter().chain(&self.notes).for_each(|note| progress.say(note));
        self.broken.iter().flat_map(|broken| broken.text.lines()).for_each(|line| progress.say(line));
        progress.say(&format!("{what} from {}, seed {}", counted(self.files, "file"), self.options.repeat.seed));
        progress
    }

    /// The index of each slot's device, and the devices' names.
    pub(super) fn device_of_slots(&self) -> (Vec<usize>, Vec<String>) {
        let mut names: Vec<String> = Vec::new();
        let mut keys: Vec<String> = Vec::new();
        let slots = self.plan.slots.iter().map(|slot| {
            // Simulated devices differ in nothing but their number.
            let key = format!("{:?}", slot.device);
            keys.iter().position(|other| *other == key).unwrap_or_else(|| {
                keys.push(key);
                names.push(slot.label.clone());
                keys.len() - 1
            })
        });
        (slots.collect(), names)
    }

    /// Ends the record and prints. Returns the exit code: that of a signal, of a
    /// device that refused, of a record that cannot be written, or the given one.
    pub(super) fn end(mut self, mut text: String, summary: Value, code: u8, refused: &[(String, String)]) -> u8 {
        let stopped = self.plan.stop.load(Ordering::Relaxed);
        let all_refused = !refused.is_empty() && refused.len() >= self.plan.slots.len();
        let code = match stopped {
            0 if all_refused && refused.iter().all(|(code, _)| code.starts_with("E05")) => exit::NO_GPU,
            0 if all_refused => exit::INFRA,
            _ => code,
        };
        let code = code_with(self.broken.as_ref(), code);
        self.broken.iter().for_each(|broken| text.push_str(&format!("{}\n", broken.last)));
        let ended = ending::end(&mut self.store, stopped, self.started, code, summary);
        text.push_str(&ended.text);
        runs::conclude(self.options.record.form, &text);
        ended.code
    }
}

/// Refuses a share for a tool where cases are named, not selected. What the options
/// of an earlier run say of a share is no matter: all that is repeated is checked.
pub(super) fn takes_no_share(now: &Args) -> Result<(), Failure> {
    match &now.evidence.sanitize {
        Some(Sample { tool, rate }) if *rate < 1.0 => Err(usage(
            format!("`{}` takes no share of cases for `--sanitize`: it runs those that are named", now.command.word()),
            format!("--sanitize {} checks them all", tool.name()),
        )),
        _ => Ok(()),
    }
}

/// The time for repeats.
pub(super) fn budget(time: &TimeOptions) -> Duration {
    time.budget.unwrap_or(BUDGET)
}
