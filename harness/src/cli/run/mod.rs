//! `run` and `bench`: select, dispatch, record, report.

pub(in crate::cli) mod finish;
pub(in crate::cli) mod setup;
mod view;

use super::args::Args;
use super::{Failure, devices, session};
use crate::dispatch::{self, Cross, Queue, Source};
use crate::record::{History, RunStore};
use crate::report::Progress;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Instant;
use view::{Closing, View};

pub(super) use setup::split_required;

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let devices = devices::resolve(args)?;
    let loaded = session::load_all(args, devices.target)?;
    let (files, fingerprint, total) = (loaded.files, loaded.fingerprint, loaded.cases.len());
    let chosen = session::choose(args, loaded.cases, &devices.history)?;
    let (mut cases, skipped) = setup::split_required(chosen.cases, &devices);
    let results = session::results_dir(args);
    let history = History::of(&results, &devices.history);
    dispatch::order(&mut cases, &history.known());
    let header = setup::header(args, &devices, files, fingerprint, cases.len() + skipped.len());
    let mut store = RunStore::create(&results, &header);
    let ids = cases.iter().map(|case| &case.id).chain(skipped.iter().map(|conclusion| &conclusion.case.id));
    store.append("selected", &json!({ "ids": ids.collect::<Vec<_>>() }));
    let plan = setup::plan(args, &devices, cases.len(), &store);
    let policy = setup::policy(args, &plan, &history);
    let labels: Vec<String> = plan.slots.iter().map(|slot| slot.label.clone()).collect();
    let source: Box<dyn Source> = match args.devices.cross {
        true => Box::new(Cross::new(&cases, policy, &labels)),
        false => Box::new(Queue::new(&cases, policy)),
    };
    let progress = Progress::new(args.output.format, cases.len() + skipped.len(), labels);
    for note in devices.notes.iter().chain(&chosen.notes) {
        progress.say(note);
    }
    progress.say(&format!(
        "{} of {total} cases selected from {files} files, seed {}",
        cases.len() + skipped.len(),
        args.repeat.seed
    ));
    let keeper = setup::keeper(args, &devices, &plan, &store);
    let mut view = View::new(args, &plan, &mut store, progress, keeper);
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
