//! The course of a run: what is meant is set up, dispatched, recorded and told.

use super::course::{Course, Steps, timed};
use super::meant::Meant;
use super::options::{RecordOptions, RunOptions};
use super::view::{Closing, RunView};
use super::{carry, finish, setup};
use crate::case::Case;
use crate::cli::args::{Args, Form, Launcher};
use crate::cli::broken::Broken;
use crate::cli::counter_gate::{self, CountersCheck};
use crate::cli::timing_gate::TimingCheck;
use crate::cli::{Failure, devices, launch, runs, session};
use crate::dispatch::{self, Cross, Queue, RunPlan, RunPolicy, Source};
use crate::record::{Header, History, Provenance, Resumed, RunStore, nulls};
use crate::report::TimeLeft;
use crate::units::counted;
use engine::util::run_beside;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(in crate::cli) fn run(args: &Args) -> Result<u8, Failure> {
    match args.launch.launcher {
        Some(Launcher::Slurm) => launch::launch(args),
        None => go(&RunOptions::of(args), None),
    }
}

/// Runs what is open of an earlier run. `options` are those of that run.
pub(in crate::cli) fn resume(options: &RunOptions, resumed: Resumed) -> Result<u8, Failure> {
    go(options, Some(resumed))
}

fn go(options: &RunOptions, resumed: Option<Resumed>) -> Result<u8, Failure> {
    let started = Instant::now();
    let results = &options.cases.folders.results;
    session::free_run_id(results, options.record.run_id.as_deref())?;
    let target = devices::target(&options.devices);
    let cases = || session::load_sound(&options.cases, target);
    let resolve = || devices::resolve(&options.devices, options.sanitize.as_ref());
    let (provenance, ((devices, devices_took), (loaded, cases_took))) =
        Provenance::gather_beside(|| run_beside(|| timed(resolve), || timed(cases)));
    let mut steps = Steps::begin(started);
    steps.over("cases, devices, git");
    steps.add("cases", cases_took);
    steps.add("devices", devices_took);
    let devices = devices?;
    if let Some(resumed) = &resumed {
        carry::fits(resumed, &devices.history)?;
    }
    let loaded = if devices.target == target { loaded } else { session::load_sound(&options.cases, devices.target) };
    let meant = Meant::of(options, loaded?, &devices, resumed.as_ref())?;
    let Meant { broken, chosen, quarantine, files, fingerprint, known: all } = meant;
    let carried_rows = resumed.as_ref().map_or_else(Vec::new, |resumed| resumed.rows.clone());
    let slot = devices.slots.first().map(|slot| &slot.device);
    let blessing = counter_gate::blessing(options, slot, &provenance)?;
    let counters = CountersCheck::of(options, slot, &all, &chosen.cases, blessing.clone(), carried_rows.clone())?;
    let ids: Vec<String> = chosen.cases.iter().map(|case| case.id.clone()).collect();
    let (cases, carried) = carry::split(resumed.as_ref(), chosen.cases);
    let (mut cases, skipped) = setup::split_required(cases, &devices);
    let history = History::of(results, &devices.history);
    let nvrtc = setup::nvrtc(&devices.slots);
    let times = TimingCheck::of(options, &devices, &history, nvrtc, blessing, carried_rows)?;
    let (known, known_took) = timed(|| history.known());
    steps.add("durations", known_took);
    dispatch::order(&mut cases, &known);
    let mut header = setup::header(options, &devices, files, fingerprint, ids.len(), provenance.clone());
    header.other.extend(nulls(&["resumes"]));
    header.resumes = resumed.as_ref().map(|resumed| resumed.run_id.clone());
    let job = match &resumed {
        Some(resumed) => {
            header.shard.clone_from(&resumed.shard);
            resumed.job.clone()
        }
        None => {
            header.shard = chosen.part.as_ref().map(setup::shard);
            chosen.part.map_or_else(Vec::new, |part| part.ids)
        }
    };
    steps.over("selection");
    let mut store = open(&options.record, results, header);
    store.select(&ids, &chosen.outstanding, &job);
    steps.over("record");
    let plan = setup::plan(options, &devices, &store);
    let mut policy = setup::policy(options, &plan, &history, quarantine.clone());
    policy.known.clone_from(&known);
    let left = TimeLeft::new(cases.iter().map(|case| case.id.as_str()), &known, plan.slots.len());
    let progress = runs::progress(&options.record, ids.len(), labels(&plan), left);
    for note in devices.notes.iter().chain(&chosen.notes) {
        progress.say(note);
    }
    let (of, from) = (counted(all.len(), "case"), counted(files, "file"));
    progress.say(&format!("{} of {of} selected from {from}, seed {}", ids.len(), options.repeat.seed));
    let broken = Broken::of(&options.cases.wanted, &broken, "run");
    if let Some(broken) = &broken {
        broken.text.lines().for_each(|line| progress.say(line));
        store.append("broken", &broken.record);
    }
    if let Some(resumed) = &resumed {
        progress.say(&format!("goes on with {}: {} are done, {} open", resumed.run_id, carried.len(), cases.len()));
        let otherwise = carry::built_otherwise(&resumed.provenance, &provenance);
        if let (Some(how), false) = (otherwise, carried.is_empty()) {
            let count = carried.len();
            progress.say(&format!("note: {count} verdicts are of a harness that was built otherwise: {how}"));
        }
        carry::history(&history, resumed, &mut store).iter().for_each(|note| progress.say(note));
        policy.tried = carry::tried(options.devices.cross, resumed, &cases, &plan, &mut store);
    }
    let keeper = setup::keeper(options, &devices, &plan, &store);
    let course = Course::begin(started, plan.slots.len(), steps);
    let mut view = RunView::new(options.bless, &plan, &mut store, progress, course, keeper, quarantine);
    carried.into_iter().for_each(|(conclusion, done)| view.carried(conclusion, &done));
    skipped.into_iter().for_each(|conclusion| view.concluded(conclusion));
    // An empty shard, or nothing left to run again: no worker is started.
    if !cases.is_empty() {
        let source = source(options.devices.cross, &cases, policy, &plan);
        dispatch::run(&plan, &*source, &mut |event| view.event(event));
    }
    let closing = Closing { outstanding: chosen.outstanding, broken, counters, times, ..view.close() };
    let stopped = plan.stop.load(Ordering::Relaxed);
    Ok(finish::finish(options, &devices, &history, store, closing, stopped, started))
}

/// Opens the record, which some also want in memory or printed.
fn open(options: &RecordOptions, results: &Path, header: Header) -> RunStore {
    let mut store = RunStore::create_as(results, options.run_id.as_deref(), header);
    if options.junit.is_some() || options.github {
        store.mirror();
    }
    if options.form == Some(Form::Jsonl) {
        store.echo();
    }
    store
}

fn labels(plan: &RunPlan) -> Vec<String> {
    plan.slots.iter().map(|slot| slot.label.clone()).collect()
}

/// Each case once on any device, or once on each.
fn source(cross: bool, cases: &[Arc<Case>], policy: RunPolicy, plan: &RunPlan) -> Box<dyn Source> {
    match cross {
        true => Box::new(Cross::new(cases, policy, &labels(plan))),
        false => Box::new(Queue::new(cases, policy)),
    }
}
