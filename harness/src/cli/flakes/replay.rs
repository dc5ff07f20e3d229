//! `replay`: runs exactly what a worker of an earlier run had run, in its order,
//! with its seeds and options, and says whether the failure recurs and how often;
//! with `--minimize` it finds the few prior cases that the failure needs. Without
//! a worker, it runs the cases of `--exact` in that order.

use super::log::HuntLog;
use super::past::{PastRun, Ran};
use super::scene::{Needed, Scene, budget, takes_no_share};
use super::told::ReplayReport;
use crate::cli::Failure;
use crate::cli::args::{Args, usage};
use crate::cli::run::options::RunOptions;
use crate::cli::session::Folders;
use crate::dispatch::{Isolation, SlotSpec};
use crate::flake::search::Search;
use crate::flake::trials::{TrialStep, with_trials};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is replayed, and what for.
struct ReplayOptions {
    /// Exactly so many trials.
    count: Option<u64>,
    minimize: bool,
    budget: Duration,
}

impl ReplayOptions {
    fn of(args: &Args) -> Self {
        Self { count: args.repeat.count, minimize: args.repeat.minimize, budget: budget(&args.time) }
    }
}

/// What is replayed: prior cases and the one that failed.
pub(super) struct Past {
    /// From where, for people.
    pub(super) origin: String,
    /// In their order, the one that failed last.
    pub(super) steps: Vec<TrialStep>,
    /// The outcome then.
    pub(super) outcome: String,
    /// What of the run cannot be repeated.
    notes: Vec<String>,
}

pub(in crate::cli) fn replay(args: &Args) -> Result<u8, Failure> {
    let (ReplayOptions { count, minimize, budget }, mut scene, past) = set(args)?;
    // The worker's own life is what is repeated: it is not replaced in the middle.
    (scene.plan.isolation, scene.plan.recycle) = (Isolation::Worker, None);
    let what = format!("replaying {} cases, then {}, {};", past.steps.len() - 1, past.victim().case.id, past.origin);
    let progress = scene.progress(0, &what);
    past.notes.iter().for_each(|note| progress.say(&format!("note: {note}")));
    let plan = scene.plan.clone();
    let mut log = HuntLog::new(&plan, &mut scene.store, progress);
    let deadline = Instant::now() + budget;
    let found = with_trials(&plan, &scene.standards, &mut |event| log.event(&event), |trials| {
        let mut run = |priors: &[usize], count: u64| {
            let steps = past.behind(priors);
            let (ended, halt) = trials.run(std::iter::repeat_n(steps, count as usize), deadline);
            (ended.into_iter().map(|(_, ending)| ending).collect(), halt)
        };
        Search::new(past.steps.len() - 1, plan.slots.len(), &mut run).go(minimize, count)
    });
    log.progress.close();
    let refused = std::mem::take(&mut log.refused);
    let told = ReplayReport { found: &found, past: &past, minimized: minimize };
    scene.store.append("replay", &told.record());
    let (text, code) = (told.text(&scene), told.exit_code());
    Ok(scene.end(text, json!({ "trials": found.trials }), code, &refused))
}

/// What is replayed, and where: a worker of a run under the run's options, or the
/// cases of `--exact`.
fn set(now: &Args) -> Result<(ReplayOptions, Scene, Past), Failure> {
    takes_no_share(now)?;
    if now.repeat.worker.is_none() && !now.select.wanted.exact.is_empty() {
        let missing = |id: &str| {
            usage(format!("`{id}` of --exact cannot run on these devices"), "harness list shows requirements")
        };
        let ids = now.select.wanted.exact.iter().map(String::as_str).collect();
        let scene = Scene::selected(RunOptions::of(now), Some(&Needed { ids, missing: &missing }))?;
        let past = in_order(&scene);
        return Ok((ReplayOptions::of(now), scene, past));
    }
    let (worker, run) = split(now.repeat.worker.as_deref());
    let run = PastRun::read(&Folders::of(now).results, run)?;
    let args = run.options(now)?;
    let worker = run.worker(worker)?;
    let history = run.history(worker, args.select.wanted.exact.first().map(String::as_str))?;
    let missing = |id: &str| {
        let note = "the case files have changed since, or the devices are others";
        usage(format!("`{id}`, which failed then, is not there any more"), note)
    };
    let needed =
        Needed { ids: history.last().map(|ran| ran.case_id.as_str()).into_iter().collect(), missing: &missing };
    let ids = history.iter().map(|ran| ran.case_id.as_str());
    let mut scene = Scene::of_ids(RunOptions::of(&args), ids, &needed)?;
    let past = of_worker(&mut scene, worker, history, &run);
    Ok((ReplayOptions::of(&args), scene, past))
}

impl Past {
    /// The one that failed.
    pub(super) fn victim(&self) -> &TrialStep {
        &self.steps[self.steps.len() - 1]
    }

    /// The one that failed behind some of the others.
    fn behind(&self, priors: &[usize]) -> Arc<Vec<TrialStep>> {
        Arc::new(priors.iter().map(|at| &self.steps[*at]).chain([self.victim()]).cloned().collect())
    }
}

/// `W3@latest` as worker and run.
fn split(word: Option<&str>) -> (Option<&str>, &str) {
    match word.map(|word| word.split_once('@').unwrap_or((word, "latest"))) {
        Some(("", run)) => (None, run),
        Some((worker, run)) => (Some(worker), run),
        None => (None, "latest"),
    }
}

/// The cases of `--exact`, in that order.
fn in_order(scene: &Scene) -> Past {
    let (known, exact, seed) = (scene.by_id(), &scene.options.cases.wanted.exact, scene.options.repeat.seed);
    let step = |id: &String| Some(TrialStep { case: (*known.get(id.as_str())?).clone(), seed, repeat: 0, attempt: 0 });
    let steps: Vec<TrialStep> = exact.iter().filter_map(step).collect();
    Past { origin: "in the order given".into(), steps, outcome: String::new(), notes: Vec::new() }
}

/// What a worker of a run did.
fn of_worker(scene: &mut Scene, worker: &str, history: &[Ran], run: &PastRun) -> Past {
    let (steps, mut notes) = steps(history, scene);
    let last = &history[history.len() - 1];
    let uuid = last.gpu_uuid.as_deref();
    let same = |slot: &SlotSpec| slot.gpu.as_ref().map(|gpu| gpu.uuid.as_str()) == uuid;
    // Devices may be what differs: where the one of then is here, it alone is used.
    match scene.plan.slots.iter().any(same) {
        true => scene.plan.slots.retain(same),
        false => notes.push(format!("it ran on {}, which is not among the devices now", uuid.unwrap_or("no GPU"))),
    }
    if last.outcome == "xpass" {
        notes.push(format!("{} passed then although a failure is declared; here a pass is a pass", last.case_id));
    }
    let origin = format!("as worker {worker} of run {} did", run.id);
    Past { origin, steps, outcome: last.outcome.clone(), notes }
}

/// The cases of a history that are there now, with a note on those that are not.
pub(super) fn steps(history: &[Ran], scene: &Scene) -> (Vec<TrialStep>, Vec<String>) {
    let known = scene.by_id();
    let mut missing = Vec::new();
    let step = |ran: &Ran| match known.get(ran.case_id.as_str()) {
        Some(case) => {
            Some(TrialStep { case: (*case).clone(), seed: ran.seed, repeat: ran.repeat, attempt: ran.attempt })
        }
        None => {
            missing.push(ran.case_id.clone());
            None
        }
    };
    let steps: Vec<TrialStep> = history.iter().filter_map(step).collect();
    let notes = match missing.len() {
        0 => Vec::new(),
        n => vec![format!("{n} prior cases are not there any more and are left out: {} ...", missing[0])],
    };
    (steps, notes)
}
