//! What the sweep starts from: the case, what ran before it, and the options.

use crate::cli::args::{Args, usage};
use crate::cli::flakes::past::PastRun;
use crate::cli::flakes::replay::steps;
use crate::cli::flakes::scene::{Needed, Scene, budget, takes_no_share};
use crate::cli::run::options::RunOptions;
use crate::cli::session::Folders;
use crate::cli::{Failure, runs};
use crate::flake::trials::TrialStep;
use std::sync::Arc;
use std::time::Duration;

/// Cases before the watched one where no run tells which.
const RANDOM: usize = 10;

/// How long is swept.
pub(super) struct SweepOptions {
    /// Exactly so many trials.
    pub(super) count: Option<u64>,
    pub(super) budget: Duration,
}

impl SweepOptions {
    fn of(args: &Args) -> Self {
        Self { count: args.repeat.count, budget: budget(&args.time) }
    }
}

/// What the sweep starts from.
pub(super) struct Start {
    pub(super) watched: TrialStep,
    pub(super) priors: Vec<TrialStep>,
    /// From where, for people.
    pub(super) origin: String,
    pub(super) notes: Vec<String>,
}

/// The conditions of the run in which the case failed, or else those given now.
pub(super) fn set(now: &Args, id: &str) -> Result<(SweepOptions, Scene, Start), Failure> {
    takes_no_share(now)?;
    let given = !now.select.wanted.exact.is_empty();
    let run = run_of(now, id, given)?;
    let failed = run.as_ref().and_then(|run| Some((run, run.failure_of(id)?)));
    let args = match &failed {
        Some((run, _)) => run.options(now)?,
        None => now.clone(),
    };
    let history = failed.as_ref().map(|(_, (_, history))| *history).unwrap_or_default();
    let named = history.iter().map(|ran| ran.case_id.as_str()).chain([id]);
    let seed = args.repeat.seed;
    let missing =
        |id: &str| usage(format!("there is no case `{id}` that these devices can run"), "harness list prints ids");
    let mut ids = vec![id];
    if failed.is_none() && given {
        ids.extend(args.select.wanted.exact.iter().map(String::as_str));
    }
    let scene = Scene::of_ids(RunOptions::of(&args), named, &Needed { ids, missing: &missing })?;
    let case = scene.case(id).ok_or_else(|| missing(id))?;
    let (mut priors, mut notes) = steps(&history[..history.len().saturating_sub(1)], &scene);
    let watched_seed = history.last().map_or(seed, |ran| ran.seed);
    let watched =
        TrialStep { case, seed: watched_seed, repeat: history.last().map_or(0, |ran| ran.repeat), attempt: 0 };
    let origin = match (&failed, given) {
        (Some((run, (worker, _))), _) => {
            format!("as worker {worker} of run {} did, {} cases before", run.id, priors.len())
        }
        (None, true) => {
            priors = in_order(&args.select.wanted.exact, &scene);
            format!("after the {} cases of --exact", priors.len())
        }
        (None, false) => {
            priors = draw(&scene, &watched, seed);
            notes.push("no run tells what ran before it; other cases are drawn".into());
            format!("after {} cases drawn by the seed", priors.len())
        }
    };
    Ok((SweepOptions::of(&args), scene, Start { watched, priors, origin, notes }))
}

/// The run whose failure is explained, if there is one.
fn run_of(args: &Args, id: &str, given: bool) -> Result<Option<PastRun>, Failure> {
    let results = Folders::of(args).results;
    let word = match (&args.repeat.of_run, given) {
        (Some(word), _) => word,
        (None, true) => return Ok(None),
        // Without any run, neighbours are drawn; one that is there must be fit for it.
        (None, false) if runs::find(&results, "latest").is_err() => return Ok(None),
        (None, false) => return PastRun::read(&results, "latest").map(Some),
    };
    let run = PastRun::read(&results, word)?;
    match run.failure_of(id) {
        Some(_) => Ok(Some(run)),
        None => Err(usage(format!("`{id}` did not fail in run {}", run.id), "leave --run out to draw neighbours")),
    }
}

/// The cases of `--exact` as the past of the watched one.
fn in_order(exact: &[String], scene: &Scene) -> Vec<TrialStep> {
    let known = scene.by_id();
    let step = |id: &String| {
        let case = known.get(id.as_str()).map(|case| Arc::clone(case))?;
        Some(TrialStep { case, seed: scene.options.repeat.seed, repeat: 0, attempt: 0 })
    };
    exact.iter().filter_map(step).collect()
}

/// Other cases, by the seed.
pub(super) fn draw(scene: &Scene, watched: &TrialStep, seed: u64) -> Vec<TrialStep> {
    let others: Vec<_> = scene.cases.iter().filter(|case| case.id != watched.case.id && case.fault.is_none()).collect();
    let pick = |n: usize| {
        let at = crate::rng::scramble(seed.wrapping_add(n as u64)) % others.len() as u64;
        TrialStep { case: Arc::clone(others[at as usize]), seed: watched.seed, repeat: 0, attempt: 0 }
    };
    (0..RANDOM.min(others.len())).map(pick).collect()
}
