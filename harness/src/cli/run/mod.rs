//! `run` and `bench`: select, dispatch, record, report.

mod carry;
pub(in crate::cli) mod finish;
pub(in crate::cli) mod setup;
mod view;

use super::args::{Args, Form};
use super::{Failure, devices, runs, session};
use crate::dispatch::{self, Cross, Queue, Source};
use crate::record::{History, Resumed, RunStore};
use std::sync::atomic::Ordering;
use std::time::Instant;
use view::{Closing, View};

pub(super) use setup::{split_required, stop_flag};

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    go(args, None)
}

/// Runs what is open of an earlier run. `args` are those of that run.
pub(super) fn resume(args: &Args, resumed: Resumed) -> Result<u8, Failure> {
    go(args, Some(resumed))
}

fn go(args: &Args, resumed: Option<Resumed>) -> Result<u8, Failure> {
    let started = Instant::now();
    let devices = devices::resolve(args)?;
    let loaded = session::load_all(args, devices.target)?;
    let (files, fingerprint, total) = (loaded.files, loaded.fingerprint, loaded.cases.len());
    let quarantine = session::quarantine(args, &loaded.cases, devices.target)?;
    let chosen = match &resumed {
        Some(resumed) => carry::selected(resumed, loaded.cases, fingerprint)?,
        None => session::choose(args, loaded.cases, &devices.history)?,
    };
    let (cases, mut notes) = (chosen.cases, chosen.notes);
    let (cases, note) = match resumed {
        Some(_) => (cases, None),
        None => setup::sample(args, cases),
    };
    notes.extend(note);
    let ids: Vec<String> = cases.iter().map(|case| case.id.clone()).collect();
    let (cases, carried) = carry::split(resumed.as_ref(), cases);
    let (mut cases, skipped) = setup::split_required(cases, &devices);
    let results = session::results_dir(args);
    let history = History::of(&results, &devices.history);
    dispatch::order(&mut cases, &history.known());
    let mut header = setup::header(args, &devices, files, fingerprint, ids.len());
    header["resumes"] = resumed.as_ref().map(|resumed| resumed.run_id.clone()).into();
    let mut store = RunStore::create_as(&results, args.records.run_id.as_deref(), &header);
    if args.records.junit.is_some() || args.records.github {
        store.mirror();
    }
    if args.records.form == Some(Form::Jsonl) {
        store.echo();
    }
    store.select(ids.iter().map(String::as_str));
    let plan = setup::plan(args, &devices, &store);
    let policy = setup::policy(args, &plan, &history, quarantine.clone());
    let labels: Vec<String> = plan.slots.iter().map(|slot| slot.label.clone()).collect();
    let source: Box<dyn Source> = match args.devices.cross {
        true => Box::new(Cross::new(&cases, policy, &labels)),
        false => Box::new(Queue::new(&cases, policy)),
    };
    let progress = runs::progress(args, ids.len(), labels);
    for note in devices.notes.iter().chain(&notes) {
        progress.say(note);
    }
    progress.say(&format!("{} of {total} cases selected from {files} files, seed {}", ids.len(), args.repeat.seed));
    if let Some(resumed) = &resumed {
        progress.say(&format!("goes on with {}: {} are done, {} open", resumed.run_id, carried.len(), cases.len()));
        carry::history(&history, resumed, &mut store);
    }
    let keeper = setup::keeper(args, &devices, &plan, &store);
    let mut view = View::new(args, &plan, &mut store, progress, keeper, quarantine);
    for (conclusion, done) in carried {
        view.carried(conclusion, &done);
    }
    for conclusion in skipped {
        view.concluded(conclusion);
    }
    // An empty shard, or nothing left to run again: no worker is started.
    if !cases.is_empty() {
        dispatch::run(&plan, &*source, &mut |event| view.event(event));
    }
    let closing = Closing { outstanding: chosen.outstanding, ..view.close() };
    let stopped = plan.stop.load(Ordering::Relaxed);
    Ok(finish::finish(args, &devices, &history, store, closing, stopped, started))
}
