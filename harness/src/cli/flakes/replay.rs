//! `replay`: runs exactly what a worker of an earlier run had run, in its order,
//! with its seeds and options, and says whether the failure recurs and how often;
//! with `--minimize` it finds the few prior cases that the failure needs. Without
//! a worker, it runs the cases of `--exact` in that order.

use super::log::Log;
use super::past::{PastRun, Ran};
use super::scene::{Scene, budget};
use crate::case::Case;
use crate::cli::Failure;
use crate::cli::args::{Args, DeviceArg, usage};
use crate::cli::run::finish::again;
use crate::dispatch::{Isolation, SlotSpec};
use crate::exit;
use crate::flake::class::{p_value, shown};
use crate::flake::factors::{LEVEL, runs_needed};
use crate::flake::minimize::{Probe, decide_by_trials, minimize};
use crate::flake::rule::Tally;
use crate::flake::trials::{Ending, Step, with_trials};
use crate::report::quoted;
use crate::stats::{fisher, upper_bound};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

/// Replays before anything is concluded: a failure that recurs in each of them is
/// taken for certain, until it is seen not to be.
const FIRST: u64 = 3;
/// Replays that look for a failure that has not recurred yet.
const MOST: u64 = 60;
/// Failures that give a rate to search with.
const ENOUGH: u64 = 5;
/// Trials in a row that do not reach the case, after which its prior cases count
/// as a set after which it does not fail.
const UNREACHED: u64 = 10;
/// Trials with the found set at the end, where the failure is taken for certain.
const CONFIRM: usize = 5;
/// Trials of one side of the last comparison at most.
const MOST_CONFIRM: u64 = 400;

/// What is replayed: prior cases and the one that failed.
struct Past {
    /// From where, for people.
    origin: String,
    steps: Vec<Step>,
    /// The outcome then.
    outcome: String,
    /// What of the run cannot be repeated.
    notes: Vec<String>,
}

pub(in crate::cli) fn replay(args: &Args) -> Result<u8, Failure> {
    let ordered = args.repeat.worker.is_none() && !args.select.wanted.exact.is_empty();
    let (args, run) = match ordered {
        true => (args.clone(), None),
        false => {
            let (worker, run) = split(args.repeat.worker.as_deref());
            let run = PastRun::read(args, run)?;
            (as_then(args, &run.args), Some((worker.map(String::from), run)))
        }
    };
    let (mut scene, past) = match &run {
        None => {
            let scene = Scene::selected(&args)?;
            let past = in_order(&args, &scene)?;
            (scene, past)
        }
        Some((worker, run)) => {
            let worker = run.worker(worker.as_deref())?;
            let history = run.history(worker, args.select.wanted.exact.first().map(String::as_str))?;
            let mut scene = Scene::of_ids(&args, history.iter().map(|ran| ran.case_id.as_str()))?;
            let past = of_worker(&mut scene, worker, history, run)?;
            (scene, past)
        }
    };
    // The worker's own life is what is repeated: it is not replaced in the middle.
    (scene.plan.isolation, scene.plan.recycle) = (Isolation::Worker, None);
    let what = format!("replaying {} cases, then {}, {};", past.steps.len() - 1, victim(&past).id, past.origin);
    let progress = scene.progress(&args, 0, &what);
    past.notes.iter().for_each(|note| progress.say(&format!("note: {note}")));
    let plan = scene.plan.clone();
    let mut log = Log::new(&plan, &mut scene.store, progress);
    let deadline = Instant::now() + budget(&args);
    let done = with_trials(&plan, &mut |event| log.event(&event), |trials| {
        let run = |steps: &Arc<Vec<Step>>, count| {
            let endings = trials.run(std::iter::repeat_n(steps.clone(), count))?;
            Some(endings.into_iter().map(|(_, ending)| ending).collect())
        };
        let mut search = Search::new(&run, &past, plan.slots.len(), deadline);
        search.go(args.repeat.minimize, args.repeat.count);
        search.into_done()
    });
    log.progress.close();
    let refused = std::mem::take(&mut log.refused);
    let text = done.text(&past, &args, &scene);
    let code = done.exit_code();
    scene.store.append("replay", &done.record(&past));
    let summary = json!({ "trials": done.trials });
    Ok(scene.end(text, summary, code, &refused))
}

fn victim(past: &Past) -> &Case {
    &past.steps[past.steps.len() - 1].case
}

/// `W3@latest` as worker and run.
fn split(word: Option<&str>) -> (Option<&str>, &str) {
    match word.map(|word| word.split_once('@').unwrap_or((word, "latest"))) {
        Some(("", run)) => (None, run),
        Some((worker, run)) => (Some(worker), run),
        None => (None, "latest"),
    }
}

/// The options of the run, with what the command line says otherwise.
pub(super) fn as_then(now: &Args, then: &Args) -> Args {
    let mut args =
        Args { command: now.command, argv: now.argv.clone(), operands: now.operands.clone(), ..then.clone() };
    // The record is this command's own: its name, its form, what its environment gave.
    (args.records, args.from_env) = (now.records.clone(), now.from_env.clone());
    (args.repeat.worker, args.repeat.minimize) = (now.repeat.worker.clone(), now.repeat.minimize);
    (args.repeat.count, args.repeat.of_run) = (now.repeat.count, now.repeat.of_run.clone());
    args.again.extend(now.again.iter().filter(|words| !then.again.contains(words)).cloned());
    args.repeat.jitter = now.repeat.jitter.or(then.repeat.jitter);
    args.select.wanted = now.select.wanted.clone();
    args.select.cases = now.select.cases.clone().or(then.select.cases.clone());
    args.select.faults = now.select.faults || then.select.faults;
    args.output = now.output.clone();
    args.time = now.time.clone();
    args.time.timeout = now.time.timeout.or(then.time.timeout);
    args.time.grace = now.time.grace.or(then.time.grace);
    if args.time.phases.is_empty() {
        args.time.phases = then.time.phases.clone();
    }
    if now.devices.device != DeviceArg::Auto {
        args.devices = now.devices.clone();
    }
    args.devices.jobs = now.devices.jobs.or(args.devices.jobs);
    args.isolation.code_cache = now.isolation.code_cache.clone().or(then.isolation.code_cache.clone());
    args.isolation.compile_threads = now.isolation.compile_threads.or(then.isolation.compile_threads);
    args
}

/// The cases of `--exact`, in that order.
fn in_order(args: &Args, scene: &Scene) -> Result<Past, Failure> {
    let known = scene.by_id();
    let step = |id: &String| {
        Some(Step { case: (*known.get(id.as_str())?).clone(), seed: args.repeat.seed, repeat: 0, attempt: 0 })
    };
    let steps: Vec<Step> = args.select.wanted.exact.iter().filter_map(step).collect();
    if steps.len() != args.select.wanted.exact.len() {
        return Err(usage("not every case of --exact can run on these devices", "harness list shows requirements"));
    }
    Ok(Past { origin: "in the order given".into(), steps, outcome: String::new(), notes: Vec::new() })
}

/// What a worker of a run did.
fn of_worker(scene: &mut Scene, worker: &str, history: &[Ran], run: &PastRun) -> Result<Past, Failure> {
    let (steps, mut notes) = steps(history, scene);
    let last = &history[history.len() - 1];
    if steps.last().is_none_or(|step| step.case.id != last.case_id) {
        let note = "the case files have changed since, or the devices are others";
        return Err(usage(format!("`{}`, which failed then, is not there any more", last.case_id), note));
    }
    let uuid = last.gpu_uuid.as_deref();
    let same = |slot: &SlotSpec| slot.gpu.as_ref().map(|gpu| gpu.uuid.as_str()) == uuid;
    // Devices may be what differs: where the one of then is here, it alone is used.
    match scene.plan.slots.iter().any(same) {
        true => scene.plan.slots.retain(same),
        false => notes.push(format!("it ran on {}, which is not among the devices now", uuid.unwrap_or("no GPU"))),
    }
    let origin = format!("as worker {worker} of run {} did", run.id);
    Ok(Past { origin, steps, outcome: last.outcome.clone(), notes })
}

/// The cases of a history that are there now, with a note on those that are not.
pub(super) fn steps(history: &[Ran], scene: &Scene) -> (Vec<Step>, Vec<String>) {
    let known = scene.by_id();
    let mut missing = Vec::new();
    let step = |ran: &Ran| match known.get(ran.case_id.as_str()) {
        Some(case) => Some(Step { case: (*case).clone(), seed: ran.seed, repeat: ran.repeat, attempt: ran.attempt }),
        None => {
            missing.push(ran.case_id.clone());
            None
        }
    };
    let steps: Vec<Step> = history.iter().filter_map(step).collect();
    let notes = match missing.len() {
        0 => Vec::new(),
        n => vec![format!("{n} prior cases are not there any more and are left out: {} ...", missing[0])],
    };
    (steps, notes)
}

/// Runs a list of cases so often, each time in a fresh worker. None when the run
/// is stopped or no slot is left.
type Runner<'a> = &'a dyn Fn(&Arc<Vec<Step>>, usize) -> Option<Vec<Ending>>;

/// The search for what the failure needs.
struct Search<'a> {
    run: Runner<'a>,
    past: &'a Past,
    slots: usize,
    deadline: Instant,
    /// Rate to search with; none while the failure is taken for certain.
    rate: Option<f64>,
    done: Done,
}

/// What came of it.
#[derive(Default)]
struct Done {
    full: Tally,
    alone: Tally,
    found: Option<Vec<usize>>,
    /// With the found set.
    confirmed: Tally,
    trials: u64,
    endings: BTreeMap<String, u64>,
    early: BTreeMap<String, u64>,
    /// A set after which it does not fail significantly more often than alone, with the p-value.
    doubt: Option<(Vec<usize>, f64)>,
    /// Why there is no set.
    gave_up: Option<String>,
    minimized: bool,
}

impl Probe for Search<'_> {
    fn fails(&mut self, priors: &[usize]) -> Option<bool> {
        let steps = self.steps(priors);
        match self.rate {
            None => Some(self.reach(&steps, 1)?.failures > 0),
            Some(rate) => Some(self.judge(&steps, rate)?.0),
        }
    }
}

impl<'a> Search<'a> {
    fn new(run: Runner<'a>, past: &'a Past, slots: usize, deadline: Instant) -> Self {
        Self { run, past, slots, deadline, rate: None, done: Done::default() }
    }

    fn into_done(self) -> Done {
        self.done
    }

    fn steps(&self, priors: &[usize]) -> Arc<Vec<Step>> {
        let all = &self.past.steps;
        Arc::new(priors.iter().map(|at| all[*at].clone()).chain(all.last().cloned()).collect())
    }

    /// Trials of one list, until some reach the case. None of them did where the
    /// tally stays empty.
    fn reach(&mut self, steps: &Arc<Vec<Step>>, count: usize) -> Option<Tally> {
        let before = self.done.trials;
        loop {
            let tally = self.try_times(steps, count)?;
            if tally.runs() > 0 || self.done.trials - before >= UNREACHED {
                return Some(tally);
            }
        }
    }

    /// Whether the failure occurs about as often as `rate`, by a sequential test,
    /// and what was seen. A case that is not reached does not fail.
    fn judge(&mut self, steps: &Arc<Vec<Step>>, rate: f64) -> Option<(bool, Tally)> {
        let (mut all, mut unreached) = (Tally::default(), false);
        let at_once = self.slots;
        let fails = decide_by_trials(rate, &mut || {
            let tally = self.reach(steps, at_once)?;
            unreached = tally.runs() == 0;
            all = sum(all, tally);
            let failed = std::iter::repeat_n(true, tally.failures as usize);
            (!unreached).then(|| failed.chain(std::iter::repeat_n(false, tally.passes as usize)).collect())
        });
        if unreached { Some((false, all)) } else { Some((fails?, all)) }
    }

    /// Trials of one list, of which those count that reach the case. None when
    /// there is no more time, or no slot.
    fn try_times(&mut self, steps: &Arc<Vec<Step>>, count: usize) -> Option<Tally> {
        if Instant::now() >= self.deadline {
            self.done.gave_up.get_or_insert_with(|| "the time of --budget was over".into());
            return None;
        }
        let Some(endings) = (self.run)(steps, count) else {
            self.done.gave_up.get_or_insert_with(|| "the run was stopped".into());
            return None;
        };
        let mut tally = Tally::default();
        for ending in endings {
            self.done.trials += 1;
            match &ending {
                Ending::Passed => tally.add(false),
                Ending::Failed(outcome) => {
                    tally.add(true);
                    *self.done.endings.entry(outcome.clone()).or_default() += 1;
                }
                // The case itself was not reached; another one broke its worker first. That is no pass.
                Ending::Early(at, outcome) => {
                    let text = format!("{outcome} in {}", steps[*at].case.id);
                    *self.done.early.entry(text).or_default() += 1;
                }
                Ending::Spoiled(outcome) => {
                    self.done.gave_up.get_or_insert_with(|| format!("a trial could not be made: {outcome}"));
                    return None;
                }
            }
        }
        Some(tally)
    }

    fn go(&mut self, minimized: bool, count: Option<u64>) {
        self.done.minimized = minimized;
        let priors: Vec<usize> = (0..self.past.steps.len() - 1).collect();
        if self.replay(&priors, count).is_none() || !minimized || self.done.full.failures == 0 {
            return;
        }
        let certain = self.done.full.passes == 0;
        if certain && self.search(&priors).is_none() {
            return;
        }
        // What passed where it should have failed was not certain after all.
        let sure = self.done.found.is_some() && self.done.confirmed.passes == 0 && self.done.confirmed.failures > 0;
        if !(certain && sure) {
            (self.done.found, self.done.doubt) = (None, None);
            if self.learn_rate(&priors).is_some() {
                self.search(&priors);
            }
        }
    }

    /// How often it recurs.
    fn replay(&mut self, priors: &[usize], count: Option<u64>) -> Option<()> {
        let steps = self.steps(priors);
        let first = count.unwrap_or(FIRST);
        self.done.full = self.try_times(&steps, first as usize)?;
        while count.is_none() && self.done.full.failures == 0 && self.done.trials < MOST {
            let more = self.try_times(&steps, self.slots)?;
            self.done.full = sum(self.done.full, more);
        }
        if self.done.full.runs() == 0 {
            let why = format!("none of {} replays reached {}", self.done.trials, victim(self.past).id);
            self.done.gave_up.get_or_insert(why);
            return None;
        }
        Some(())
    }

    /// Replays until the rate is known well enough to tell it from none.
    fn learn_rate(&mut self, priors: &[usize]) -> Option<()> {
        let steps = self.steps(priors);
        let before = self.done.trials;
        while self.done.full.failures < ENOUGH && self.done.trials - before < 4 * MOST {
            let more = self.try_times(&steps, self.slots)?;
            self.done.full = sum(self.done.full, more);
        }
        self.rate = Some(self.done.full.rate());
        Some(())
    }

    /// The set, where it can be told from none.
    fn search(&mut self, priors: &[usize]) -> Option<()> {
        let alone = self.steps(&[]);
        let (fails, tally) = self.judge(&alone, self.rate.unwrap_or(1.0))?;
        self.done.alone = tally;
        if fails {
            self.done.found = Some(Vec::new());
            self.done.confirmed = tally;
            return Some(());
        }
        let found = minimize(priors.len(), self)?;
        let steps = self.steps(&found);
        let times = self.rate.map_or(CONFIRM, |rate| ((20.0 / rate).ceil() as usize).min(MOST_CONFIRM as usize));
        self.done.confirmed = self.try_times(&steps, times)?;
        let wanted = runs_needed(self.done.confirmed, 1, MOST_CONFIRM.min(2 * times as u64));
        let missing = wanted.max(times as u64).saturating_sub(self.done.alone.runs()) as usize;
        let more = self.try_times(&alone, missing)?;
        self.done.alone = sum(self.done.alone, more);
        // A single wrong answer leads to an innocent case: only a difference that chance does not make is told.
        let (after, alone) = (self.done.confirmed, self.done.alone);
        let p = fisher(after.count(), alone.count());
        match after.rate() > alone.rate() && p < LEVEL {
            true => self.done.found = Some(found),
            false => self.done.doubt = Some((found, p)),
        }
        Some(())
    }
}

fn sum(a: Tally, b: Tally) -> Tally {
    Tally { failures: a.failures + b.failures, passes: a.passes + b.passes }
}

impl Done {
    fn text(&self, past: &Past, args: &Args, scene: &Scene) -> String {
        let mut text = String::new();
        let last = &victim(past).id;
        let then = if past.outcome.is_empty() { String::new() } else { format!(", then {}", past.outcome) };
        let full = self.full;
        let _ = match full.failures {
            0 if full.runs() == 0 => writeln!(text, "not seen: {last} was not reached{then}"),
            0 => writeln!(
                text,
                "does not recur: {last} passed {} times{then}; rate < {} at 95 %",
                full.runs(),
                crate::flake::rule::percent(upper_bound(0, full.runs(), 0.95))
            ),
            _ => writeln!(text, "recurs in {} of {} replays: {}{then}", full.failures, full.runs(), shown(full)),
        };
        for (outcome, count) in self.endings.iter().filter(|_| self.full.failures > 0) {
            let _ = writeln!(text, "  {outcome}: {count} times in all trials");
        }
        for (what, count) in &self.early {
            let _ = writeln!(text, "  {what}, before {last} was reached: {count} times");
        }
        if self.alone.runs() > 0 {
            let _ =
                writeln!(text, "alone in a fresh worker: fails in {} of {}", self.alone.failures, self.alone.runs());
        }
        match (&self.found, &self.gave_up) {
            (Some(found), _) if found.is_empty() => {
                let _ = writeln!(text, "no prior case is needed: {last} fails alone");
            }
            (Some(found), _) => {
                let names: Vec<&str> = found.iter().map(|at| past.steps[*at].case.id.as_str()).collect();
                let _ = writeln!(
                    text,
                    "polluter set = {{{}}} of {} prior cases; after it, {last} fails in {} of {}: {}",
                    names.join(", "),
                    past.steps.len() - 1,
                    self.confirmed.failures,
                    self.confirmed.runs(),
                    shown(self.confirmed)
                );
            }
            (None, Some(why)) => {
                let _ = writeln!(text, "the search ended early: {why}");
            }
            (None, None) if self.doubt.is_some() => text.push_str(&self.doubt_text(past)),
            (None, None) => {}
        }
        if let Some(found) = &self.found {
            let ids = found.iter().map(|at| past.steps[*at].case.id.as_str()).chain([last.as_str()]);
            let exact: Vec<String> = ids.map(|id| format!("--exact {}", quoted(id))).collect();
            let tail = again(args, &scene.devices);
            let _ = writeln!(text, "shown by: cargo run -p harness -- replay {}{tail}", exact.join(" "));
            let priors = exact[..exact.len() - 1].iter().map(|word| format!(" {word}")).collect::<String>();
            let _ = writeln!(text, "explained by: cargo run -p harness -- why {}{priors}{tail}", quoted(last));
        } else if self.full.failures == 0 && self.gave_up.is_none() {
            let _ = writeln!(
                text,
                "a failure that depends on chance: cargo run -p harness -- hunt --exact {}{}",
                quoted(last),
                again(args, &scene.devices)
            );
        }
        let _ = writeln!(text, "{} trials", self.trials);
        text
    }

    /// Why no prior case is blamed.
    fn doubt_text(&self, past: &Past) -> String {
        let Some((found, p)) = &self.doubt else { return String::new() };
        let names: Vec<&str> = found.iter().map(|at| past.steps[*at].case.id.as_str()).collect();
        format!(
            "no prior case can be blamed: after {{{}}} it fails in {} of {}, alone in {} of {}, p = {}\n",
            names.join(", "),
            self.confirmed.failures,
            self.confirmed.runs(),
            self.alone.failures,
            self.alone.runs(),
            p_value(*p)
        )
    }

    /// As a run would end in which the failure is seen.
    fn exit_code(&self) -> u8 {
        let hard = self.endings.keys().any(|name| name.starts_with("crash") || name.starts_with("hang"));
        match () {
            () if self.full.failures > 0 && hard => exit::CRASHED,
            () if self.full.failures > 0 => exit::FAILED,
            () if self.gave_up.is_some() => exit::INCOMPLETE,
            () => exit::OK,
        }
    }

    fn record(&self, past: &Past) -> serde_json::Value {
        let count = |tally: Tally| json!([tally.failures, tally.runs()]);
        let ids = |found: &Vec<usize>| found.iter().map(|at| past.steps[*at].case.id.clone()).collect::<Vec<_>>();
        json!({
            "case_id": victim(past).id,
            "origin": past.origin,
            "priors": past.steps.len() - 1,
            "full": count(self.full),
            "alone": count(self.alone),
            "polluters": self.found.as_ref().map(ids),
            "confirmed": count(self.confirmed),
            "trials": self.trials,
            "outcomes": self.endings,
            "early": self.early,
            "doubt": self.doubt.as_ref().map(|(found, p)| json!({ "polluters": ids(found), "p": p })),
            "gave_up": self.gave_up,
            "minimized": self.minimized,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Color, Form, Parsed, parse_recorded};
    use crate::flake::scramble;
    use std::cell::Cell;

    fn parsed(words: &str, env: &[&str]) -> Args {
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        let env: Vec<String> = env.iter().map(|word| word.to_string()).collect();
        match parse_recorded(&words, &env) {
            Ok(Parsed::Args(args)) => *args,
            _ => panic!("{words:?} is no command line"),
        }
    }

    /// What the search finds among 40 prior cases, where the last case fails at
    /// `own` by itself and at `after` when case 7 came before it.
    fn found(own: f64, after: f64, seed: u64) -> Done {
        let step = |n: usize| Step {
            case: Arc::new(Case { id: format!("Prior.{n}"), ..Case::default() }),
            seed: 0,
            repeat: 0,
            attempt: 0,
        };
        let past = Past {
            origin: String::new(),
            steps: (0..41).map(step).collect(),
            outcome: String::new(),
            notes: Vec::new(),
        };
        let state = Cell::new(scramble(seed + 1));
        let run = |steps: &Arc<Vec<Step>>, count: usize| {
            let rate = if steps.iter().any(|step| step.case.id == "Prior.7") { after } else { own };
            let unit = || {
                state.set(scramble(state.get()));
                (state.get() >> 11) as f64 / (1u64 << 53) as f64
            };
            let draw = || match unit() < rate {
                true => Ending::Failed("fail.assert".into()),
                false => Ending::Passed,
            };
            Some((0..count).map(|_| draw()).collect())
        };
        let mut search = Search::new(&run, &past, 2, Instant::now() + std::time::Duration::from_secs(60));
        search.go(true, None);
        search.into_done()
    }

    /// How many of 100 searches blame prior cases, and how many of them case 7 alone.
    fn blamed(own: f64, after: f64) -> (usize, usize) {
        let sets: Vec<_> = (0..100).filter_map(|seed| found(own, after, seed).found).collect();
        let of = |wanted: &dyn Fn(&Vec<usize>) -> bool| sets.iter().filter(|set| wanted(set)).count();
        (of(&|set| !set.is_empty()), of(&|set| *set == [7]))
    }

    #[test]
    fn innocent_cases_are_not_blamed() {
        for rate in [0.9, 0.6, 0.4, 0.1] {
            let (any, _) = blamed(rate, rate);
            assert!(any <= 1, "at {rate}, {any} of 100 blame a case");
        }
    }

    #[test]
    fn guilty_cases_are_not_cleared() {
        for (own, after, least) in [(0.0, 1.0, 100), (0.0, 0.5, 95), (0.0, 0.2, 95), (0.02, 1.0, 95), (0.02, 0.6, 95)] {
            let (any, right) = blamed(own, after);
            assert!(right >= least, "{own} -> {after}: {right} right of {any} of 100");
        }
    }

    #[test]
    fn options_are_those_of_the_run_and_records_are_not() {
        let then = "run --phase-timeout compile=5s --timeout 7s --run-id nightly --format bar";
        let then = parsed(then, &["HARNESS_FILTER=A.*"]);
        let as_now = |words: &str| as_then(&parsed(words, &[]), &then);
        let args = as_now("replay --format jsonl --color never");
        assert_eq!((args.time.phases.len(), args.time.timeout), (1, then.time.timeout));
        assert_eq!(args.records.run_id, None);
        assert_eq!((args.records.form, args.records.color), (Some(Form::Jsonl), Color::Never));
        assert!(args.from_env.is_empty() && !then.from_env.is_empty());
        assert_eq!(as_now("replay --phase-timeout compile=5s,run=1s").time.phases.len(), 2);
    }
}
