//! `why CASE`: which condition changes its failure rate. The conditions are those
//! of the run in which it failed; each is changed alone, and the rates are
//! compared by exact tests.

use super::log::Log;
use super::past::PastRun;
use super::replay::steps;
use super::scene::{Scene, budget};
use crate::cli::args::{Args, usage};
use crate::cli::run::setup::on_gpus;
use crate::cli::{Failure, runs};
use crate::code_cache::CodeCache;
use crate::dispatch::{Isolation, RunPlan};
use crate::exit;
use crate::flake::burn::Burners;
use crate::flake::class::shown;
use crate::flake::factors::{Change, correct, runs_needed, unseen};
use crate::flake::rule::Tally;
use crate::flake::standards::Standards;
use crate::flake::trials::{Ending, Halt, Step, with_trials};
use crate::proto::Knobs;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Trials under the conditions of the failure: until so many failures, and at
/// least and at most so many.
const BASE_FAILURES: u64 = 12;
const BASE_LEAST: u64 = 20;
const BASE_MOST: u64 = 200;
/// Trials of each change at most.
const MOST: u64 = 200;
/// Threads that compile ahead where the run had none.
const COMPILE_THREADS: u32 = 4;
/// Cases before the watched one where no run tells which.
const RANDOM: usize = 10;
/// Seed of the jitter that is tried.
const JITTER: u64 = 1;

/// What runs in the worker before the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    Same,
    None,
    Random,
}

/// Which slots are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workers {
    All,
    One,
    /// Two on one device.
    Shared,
}

/// All conditions of a trial.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    neighbours: Neighbours,
    workers: Workers,
    knobs: Knobs,
    load: bool,
    varied_seed: bool,
}

/// A change of one condition: its name, both levels in words, and the setting.
struct Level {
    factor: &'static str,
    from: String,
    to: String,
    setting: Setting,
    /// Whether this takes away what may be needed, or adds stress.
    calms: bool,
}

pub(in crate::cli) fn why(args: &Args) -> Result<u8, Failure> {
    let id = args.operand().unwrap_or_default().to_string();
    let (args, mut scene, start) = set(args, &id)?;
    (scene.plan.isolation, scene.plan.recycle) = (Isolation::Worker, None);
    let progress = scene.progress(&args, 0, &format!("why {id}: {};", start.origin));
    start.notes.iter().for_each(|note| progress.say(&format!("note: {note}")));
    let (plan, standards) = (scene.plan.clone(), scene.standards.clone());
    let random = draw(&scene, &start.watched, args.repeat.seed ^ 0x5eed);
    let (slots, devices) = scene.device_of_slots();
    let mut sweep = Sweep {
        plan: &plan,
        standards: &standards,
        log: Log::new(&plan, &mut scene.store, progress),
        priors: start.priors,
        random,
        watched: start.watched,
        deadline: Instant::now() + budget(&args),
        slots,
        devices,
        configs: 0,
        by_device: Vec::new(),
    };
    let done = sweep.go(args.repeat.count);
    sweep.log.progress.close();
    let refused = std::mem::take(&mut sweep.log.refused);
    let text = done.text(&id);
    for change in &done.changes {
        scene.store.append("factor", &record(&id, change));
    }
    let code = if done.gave_up.is_some() { exit::INCOMPLETE } else { exit::OK };
    Ok(scene.end(&args, text, json!({ "case_id": id, "trials": done.trials }), code, &refused))
}

/// What the sweep starts from.
struct Start {
    watched: Step,
    priors: Vec<Step>,
    /// From where, for people.
    origin: String,
    notes: Vec<String>,
}

/// The conditions of the run in which the case failed, or else those given now.
fn set(now: &Args, id: &str) -> Result<(Args, Scene, Start), Failure> {
    let given = !now.select.wanted.exact.is_empty();
    let run = run_of(now, id, given)?;
    let failed = run.as_ref().and_then(|run| Some((run, run.failure_of(id)?)));
    let args = match &failed {
        Some((run, _)) => run.options(now)?,
        None => now.clone(),
    };
    let history = failed.as_ref().map(|(_, (_, history))| *history).unwrap_or_default();
    let named = history.iter().map(|ran| ran.case_id.as_str()).chain([id]);
    let scene = Scene::of_ids(&args, named)?;
    let Some(case) = scene.case(id) else {
        return Err(usage(format!("there is no case `{id}` that these devices can run"), "harness list prints ids"));
    };
    let (mut priors, mut notes) = steps(&history[..history.len().saturating_sub(1)], &scene);
    let seed = history.last().map_or(args.repeat.seed, |ran| ran.seed);
    let watched = Step { case, seed, repeat: history.last().map_or(0, |ran| ran.repeat), attempt: 0 };
    let origin = match (&failed, given) {
        (Some((run, (worker, _))), _) => {
            format!("as worker {worker} of run {} did, {} cases before", run.id, priors.len())
        }
        (None, true) => {
            priors = in_order(&args, &scene)?;
            format!("after the {} cases of --exact", priors.len())
        }
        (None, false) => {
            priors = draw(&scene, &watched, args.repeat.seed);
            notes.push("no run tells what ran before it; other cases are drawn".into());
            format!("after {} cases drawn by the seed", priors.len())
        }
    };
    Ok((args, scene, Start { watched, priors, origin, notes }))
}

/// The run whose failure is explained, if there is one.
fn run_of(args: &Args, id: &str, given: bool) -> Result<Option<PastRun>, Failure> {
    let word = match (&args.repeat.of_run, given) {
        (Some(word), _) => word,
        (None, true) => return Ok(None),
        // Without any run, neighbours are drawn; one that is there must be fit for it.
        (None, false) if runs::find(args, "latest").is_err() => return Ok(None),
        (None, false) => return PastRun::read(args, "latest").map(Some),
    };
    let run = PastRun::read(args, word)?;
    match run.failure_of(id) {
        Some(_) => Ok(Some(run)),
        None => Err(usage(format!("`{id}` did not fail in run {}", run.id), "leave --run out to draw neighbours")),
    }
}

fn record(id: &str, change: &Change) -> serde_json::Value {
    let count = |tally: Tally| json!([tally.failures, tally.runs()]);
    json!({
        "case_id": id,
        "factor": change.factor,
        "from": change.from,
        "to": change.to,
        "before": count(change.before),
        "after": count(change.after),
        "p": change.p,
        "p_corrected": change.corrected,
        "significant": change.significant(),
    })
}

/// The cases of `--exact` as the past of the watched one.
fn in_order(args: &Args, scene: &Scene) -> Result<Vec<Step>, Failure> {
    let known = scene.by_id();
    let step = |id: &String| {
        let case = known.get(id.as_str()).map(|case| Arc::clone(case));
        let case = case.ok_or_else(|| usage(format!("there is no case `{id}` here"), "harness list prints ids"))?;
        Ok(Step { case, seed: args.repeat.seed, repeat: 0, attempt: 0 })
    };
    args.select.wanted.exact.iter().map(step).collect()
}

/// Other cases, by the seed.
fn draw(scene: &Scene, watched: &Step, seed: u64) -> Vec<Step> {
    let others: Vec<_> = scene.cases.iter().filter(|case| case.id != watched.case.id && case.fault.is_none()).collect();
    let pick = |n: usize| {
        let at = crate::flake::scramble(seed.wrapping_add(n as u64)) % others.len() as u64;
        Step { case: Arc::clone(others[at as usize]), seed: watched.seed, repeat: 0, attempt: 0 }
    };
    (0..RANDOM.min(others.len())).map(pick).collect()
}

/// The experiment.
struct Sweep<'a> {
    plan: &'a RunPlan,
    standards: &'a Standards,
    log: Log<'a>,
    priors: Vec<Step>,
    random: Vec<Step>,
    watched: Step,
    deadline: Instant,
    slots: Vec<usize>,
    devices: Vec<String>,
    configs: usize,
    /// Of the last trials.
    by_device: Vec<(String, Tally)>,
}

/// What came of it.
#[derive(Default)]
struct Done {
    base: Tally,
    changes: Vec<Change>,
    runs_each: u64,
    /// With only what is needed, and with nothing.
    enough: Option<(Tally, Vec<String>)>,
    trials: u64,
    /// Trials that did not come to the case, by what happened.
    unfinished: BTreeMap<String, u64>,
    gave_up: Option<&'static str>,
}

impl Sweep<'_> {
    fn base(&self) -> Setting {
        Setting {
            neighbours: if self.priors.is_empty() { Neighbours::None } else { Neighbours::Same },
            workers: if self.plan.slots.len() > 1 { Workers::All } else { Workers::One },
            knobs: self.plan.knobs.clone(),
            load: false,
            varied_seed: false,
        }
    }

    /// Every change of one condition that is possible here.
    fn levels(&self, base: &Setting) -> Vec<Level> {
        let mut levels = Vec::new();
        let mut add = |factor, from: &str, to: &str, calms, setting| {
            levels.push(Level { factor, from: from.into(), to: to.into(), setting, calms });
        };
        let with = |change: &dyn Fn(&mut Setting)| {
            let mut setting = base.clone();
            change(&mut setting);
            setting
        };
        if base.neighbours == Neighbours::Same {
            add("isolation", "worker", "case", true, with(&|s| s.neighbours = Neighbours::None));
        }
        if !self.random.is_empty() {
            let from = if base.neighbours == Neighbours::Same { "same" } else { "none" };
            add("neighbours", from, "random", false, with(&|s| s.neighbours = Neighbours::Random));
        }
        let threads = base.knobs.compile_threads;
        match threads {
            0 => {
                let to = COMPILE_THREADS.to_string();
                add("compile_threads", "0", &to, false, with(&|s| s.knobs.compile_threads = COMPILE_THREADS));
            }
            _ => add("compile_threads", &threads.to_string(), "0", true, with(&|s| s.knobs.compile_threads = 0)),
        }
        let all = self.plan.slots.len().to_string();
        if base.workers == Workers::All {
            add("workers", &all, "1", true, with(&|s| s.workers = Workers::One));
        }
        if self.sharers() < 2 {
            add("workers_per_device", "1", "2", false, with(&|s| s.workers = Workers::Shared));
        }
        add("load", "off", "on", false, with(&|s| s.load = true));
        match base.knobs.jitter {
            None => add("jitter", "off", &JITTER.to_string(), false, with(&|s| s.knobs.jitter = Some(JITTER))),
            Some(seed) => add("jitter", &seed.to_string(), "off", true, with(&|s| s.knobs.jitter = None)),
        }
        // What others compiled, or this worker itself.
        if let Some((from, to, dir)) = other_cache(self.plan, base.knobs.code_cache.is_some()) {
            let calms = dir.is_none();
            add("code_cache", from, to, calms, with(&|s| s.knobs.code_cache.clone_from(&dir)));
        }
        if base.knobs.twice {
            add("twice", "on", "off", true, with(&|s| s.knobs.twice = false));
        }
        add("seed", "fixed", "varied", false, with(&|s| s.varied_seed = true));
        levels
    }

    /// Workers of the busiest device.
    fn sharers(&self) -> usize {
        (0..self.devices.len())
            .map(|device| self.slots.iter().filter(|slot| **slot == device).count())
            .max()
            .unwrap_or(0)
    }

    fn go(&mut self, count: Option<u64>) -> Done {
        let mut done = Done::default();
        let base = self.base();
        let mut halted = self.sweep(&base, count, &mut done).err();
        done.changes = correct(std::mem::take(&mut done.changes));
        if halted.is_none() {
            halted = self.check_enough(&base, &mut done).err();
        }
        done.gave_up = halted.map(Halt::why);
        done
    }

    fn sweep(&mut self, base: &Setting, count: Option<u64>, done: &mut Done) -> Result<(), Halt> {
        self.log.progress.say("as it failed");
        // A trial that does not come to its end counts for nothing, but ends this too.
        let most = count.unwrap_or(BASE_MOST);
        while done.trials < most
            && (count.is_some() || done.base.runs() < BASE_LEAST || done.base.failures < BASE_FAILURES)
        {
            let more = count.unwrap_or(BASE_LEAST).min(most - done.trials);
            let (tally, by_device, halt) = self.measure(base, more, done);
            done.base =
                Tally { failures: done.base.failures + tally.failures, passes: done.base.passes + tally.passes };
            self.by_device = merge(std::mem::take(&mut self.by_device), by_device);
            goes_on(halt)?;
        }
        done.changes.extend(Change::among("device", &self.by_device));
        let levels = self.levels(base);
        let runs = count.unwrap_or_else(|| match done.base.failures {
            0 => BASE_LEAST,
            _ => runs_needed(done.base, levels.len() + done.changes.len(), MOST),
        });
        done.runs_each = runs;
        for level in levels {
            self.log.progress.say(&format!("{} {} -> {}", level.factor, level.from, level.to));
            let (after, _, halt) = self.measure(&level.setting, runs, done);
            // What has ended counts, however few there are.
            if halt.is_none() || after.runs() > 0 {
                done.changes.push(Change::new(level.factor, &level.from, &level.to, done.base, after));
            }
            goes_on(halt)?;
        }
        Ok(())
    }

    /// What is needed, with everything else calm.
    fn check_enough(&mut self, base: &Setting, done: &mut Done) -> Result<(), Halt> {
        let levels: Vec<Level> = self.levels(base).into_iter().filter(|level| level.calms).collect();
        let needed: Vec<&Level> = levels
            .iter()
            .filter(|level| done.changes.iter().any(|c| c.factor == level.factor && c.to == level.to && c.needed()))
            .collect();
        if needed.is_empty() {
            return Ok(());
        }
        let mut setting = base.clone();
        for level in levels.iter().filter(|level| !needed.iter().any(|n| n.factor == level.factor)) {
            let calm = &level.setting;
            match level.factor {
                "isolation" => setting.neighbours = calm.neighbours,
                "compile_threads" => setting.knobs.compile_threads = calm.knobs.compile_threads,
                "workers" => setting.workers = calm.workers,
                "jitter" => setting.knobs.jitter = calm.knobs.jitter,
                "code_cache" => setting.knobs.code_cache.clone_from(&calm.knobs.code_cache),
                _ => setting.knobs.twice = calm.knobs.twice,
            }
        }
        let names: Vec<String> = needed.iter().map(|level| format!("{} {}", level.factor, level.from)).collect();
        self.log.progress.say(&format!("only {}", names.join(" and ")));
        let runs = done.runs_each.max(BASE_LEAST);
        let (tally, _, halt) = self.measure(&setting, runs, done);
        goes_on(halt)?;
        done.enough = Some((tally, names));
        Ok(())
    }

    /// Runs trials under a setting. Gives what ended, in all and by device, and why not all did.
    fn measure(
        &mut self,
        setting: &Setting,
        runs: u64,
        done: &mut Done,
    ) -> (Tally, Vec<(String, Tally)>, Option<Halt>) {
        let (plan, devices) = self.plan_of(setting);
        let mut burners = Burners::default();
        burners.set(setting.load);
        let deadline = self.deadline;
        let (steps_of, log) = ((&self.priors, &self.random, &self.watched), &mut self.log);
        let batch = (plan.slots.len() as u64 * 2).max(4);
        let (endings, halt) = with_trials(&plan, self.standards, &mut |event| log.event(&event), |trials| {
            let (mut endings, mut halt) = (Vec::new(), None);
            while (endings.len() as u64) < runs && halt.is_none() {
                let at = endings.len() as u64;
                let lists = (at..runs.min(at + batch)).map(|trial| list(setting, steps_of, trial));
                let (ended, why) = trials.run(lists, deadline);
                endings.extend(ended);
                halt = why;
            }
            (endings, halt)
        });
        let mut tally = Tally::default();
        let mut by_device: Vec<(String, Tally)> =
            self.devices.iter().map(|name| (name.clone(), Tally::default())).collect();
        for (slot, ending) in endings {
            done.trials += 1;
            match ending {
                Ending::Passed | Ending::Failed(_) => {
                    let failed = ending.failed();
                    tally.add(failed);
                    if let Some((_, tally)) = devices.get(slot).and_then(|device| by_device.get_mut(*device)) {
                        tally.add(failed);
                    }
                }
                Ending::Early(_, why) | Ending::Spoiled(why) => *done.unfinished.entry(why).or_default() += 1,
            }
        }
        (tally, by_device, halt)
    }

    /// The plan of a setting, and the device of each of its slots. Its workers get
    /// names of their own.
    fn plan_of(&mut self, setting: &Setting) -> (RunPlan, Vec<usize>) {
        let mut plan = self.plan.clone();
        plan.knobs = setting.knobs.clone();
        let mut devices = self.slots.clone();
        match setting.workers {
            Workers::All => {}
            Workers::One => {
                plan.slots.truncate(1);
                devices.truncate(1);
            }
            Workers::Shared => {
                let (slot, device) = (plan.slots[0].clone(), devices[0]);
                (plan.slots, devices) = (vec![slot.clone(), slot], vec![device; 2]);
                plan.slots[1].label.push('b');
            }
        }
        let config = self.configs;
        self.configs += 1;
        plan.slots.iter_mut().for_each(|slot| slot.label = format!("{}.{config}", slot.label));
        (plan, devices)
    }
}

/// The other way to have kernels compiled, in words and as a folder, where any are.
fn other_cache(plan: &RunPlan, shared: bool) -> Option<(&'static str, &'static str, Option<PathBuf>)> {
    match shared {
        _ if !on_gpus(&plan.slots) => None,
        true => Some(("shared", "off", None)),
        false => Some(("off", "shared", CodeCache::Run.folder(&plan.work_dir))),
    }
}

fn goes_on(halt: Option<Halt>) -> Result<(), Halt> {
    halt.map_or(Ok(()), Err)
}

/// What a trial runs.
fn list(setting: &Setting, (priors, random, watched): (&Vec<Step>, &Vec<Step>, &Step), trial: u64) -> Arc<Vec<Step>> {
    let before = match setting.neighbours {
        Neighbours::Same => priors.as_slice(),
        Neighbours::Random => random.as_slice(),
        Neighbours::None => &[],
    };
    let mut steps: Vec<Step> = before.iter().chain([watched]).cloned().collect();
    if setting.varied_seed {
        steps.iter_mut().for_each(|step| step.seed = step.seed.wrapping_add(trial));
    }
    Arc::new(steps)
}

fn merge(mut a: Vec<(String, Tally)>, b: Vec<(String, Tally)>) -> Vec<(String, Tally)> {
    if a.is_empty() {
        return b;
    }
    for ((_, a), (_, b)) in a.iter_mut().zip(&b) {
        (a.failures, a.passes) = (a.failures + b.failures, a.passes + b.passes);
    }
    a
}

impl Done {
    fn text(&self, id: &str) -> String {
        let mut text = format!("\n{id} as it failed: {} in {} runs\n", shown(self.base), self.base.runs());
        let width = self.changes.iter().map(|c| c.factor.len() + c.from.len() + c.to.len() + 6).max().unwrap_or(0);
        for change in &self.changes {
            let words = change.words();
            let (head, tail) = words.split_once(": ").unwrap_or((&words, ""));
            let mark = if change.significant() { "*" } else { " " };
            let _ = writeln!(text, "{mark} {:width$} {tail}", format!("{head}:"));
        }
        if let Some((tally, names)) = &self.enough {
            let ratio = tally.rate() / self.base.rate().max(f64::MIN_POSITIVE);
            let verdict =
                if ratio > 0.5 { "enough" } else { "not enough: a condition that was not varied matters too" };
            let _ = writeln!(text, "needs {}; with all else calm {}: {verdict}", names.join(" and "), shown(*tally));
        }
        let raised = self.changes.iter().filter(|c| c.significant() && c.after.rate() > c.before.rate());
        for change in raised {
            let _ = writeln!(text, "{} {} raises the rate", change.factor, change.to);
        }
        if !self.changes.iter().any(Change::significant) && !self.changes.is_empty() {
            let open = unseen(self.base, self.runs_each, self.changes.len());
            let _ = writeln!(text, "nothing is significant: {open}");
        }
        if self.base.failures == 0 {
            text.push_str("it did not fail under these conditions: name the run with --run, or hunt for it first\n");
        }
        for (what, count) in &self.unfinished {
            let _ = writeln!(text, "{count} trials did not come to the case: {what}");
        }
        if let Some(why) = self.gave_up {
            let _ = writeln!(text, "the sweep is not complete: {why}");
        }
        let _ =
            writeln!(text, "{} trials; * significant at {:.0} %", self.trials, 100.0 * crate::flake::factors::LEVEL);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::SlotSpec;
    use crate::proto::DeviceSpec;

    #[track_caller]
    fn check_cache(device: DeviceSpec, shared: bool, wanted: Option<(&str, &str, bool)>) {
        let slot = SlotSpec { device, label: "d0".into(), env: Vec::new(), gpu: None };
        let plan = RunPlan::plain(vec![slot], "harness".into(), "work".into());
        let found = other_cache(&plan, shared);
        assert_eq!(found.as_ref().map(|(from, to, dir)| (*from, *to, dir.is_some())), wanted);
        assert!(found.and_then(|(_, _, dir)| dir).is_none_or(|dir| dir.is_absolute() && dir.ends_with("work/code")));
    }

    #[test]
    fn the_code_cache_is_varied_where_code_is_compiled() {
        let gpu = || DeviceSpec::Cuda { uuid: "GPU-0".into(), nvrtc: Vec::new() };
        check_cache(gpu(), true, Some(("shared", "off", false)));
        check_cache(gpu(), false, Some(("off", "shared", true)));
        check_cache(DeviceSpec::Sim { ordinal: 0, threads: 1 }, false, None);
        check_cache(DeviceSpec::Reference, false, None);
    }
}
