//! `run` and `bench`: select, dispatch, record, report.

mod finish;
mod setup;
mod view;

use super::args::{Args, Command};
use super::{Failure, devices, session};
use crate::case::Case;
use crate::dispatch::{self, Queue};
use crate::exit;
use crate::record::{History, RunStore};
use crate::report::Progress;
use engine::diag::{Diagnostic, code};
use std::sync::atomic::Ordering;
use std::time::Instant;
use view::View;

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let devices = devices::resolve(args)?;
    if args.command == Command::Bench
        && devices.slots.len() > devices.choices.len().max(1)
        && !devices.choices.is_empty()
    {
        let diagnostic =
            Diagnostic::user(code::USAGE, "workers that share a GPU cannot measure: --jobs exceeds the GPUs");
        return Err(Failure::diagnostic(exit::USAGE, &diagnostic.note("leave --jobs out")));
    }
    let loaded = session::load_all(args, devices.target)?;
    let (files, fingerprint, total) = (loaded.files, loaded.fingerprint, loaded.cases.len());
    let cases = for_command(args, session::select(args, loaded.cases)?)?;
    let (mut cases, skipped) = setup::split_required(cases, &devices);
    let results = session::results_dir(args);
    let history = History::of(&results, &devices.history);
    dispatch::order(&mut cases, &history.known());
    let header = setup::header(args, &devices, files, fingerprint, cases.len() + skipped.len());
    let mut store = RunStore::create(&results, &header);
    let plan = setup::plan(args, &devices, cases.len(), &store);
    let queue = Queue::new(&cases, setup::policy(args, &plan));
    let labels = plan.slots.iter().map(|slot| slot.label.clone()).collect();
    let progress = Progress::new(args.output.format, cases.len() + skipped.len(), labels);
    for note in &devices.notes {
        progress.say(note);
    }
    progress.say(&format!(
        "{} of {total} cases selected from {files} files, seed {}",
        cases.len() + skipped.len(),
        args.repeat.seed
    ));
    let mut view = View::new(args, &plan, &mut store, progress);
    for conclusion in skipped {
        view.concluded(conclusion);
    }
    dispatch::run(&plan, &queue, &mut |event| view.event(event));
    let closing = view.close();
    let stopped = plan.stop.load(Ordering::Relaxed);
    Ok(finish::finish(args, &devices, &history, store, closing, stopped, started))
}

/// Without a filter, `bench` takes the cases that state their traffic or a goal.
fn for_command(args: &Args, mut cases: Vec<Case>) -> Result<Vec<Case>, Failure> {
    let filtered = !(args.select.filters.is_empty() && args.select.exact.is_empty() && args.select.tags.is_empty());
    if args.command == Command::Bench && !filtered {
        cases.retain(|case| case.perf.is_some());
        if cases.is_empty() {
            let message =
                "error[E0505]: no case has a `; perf:` directive\n  note: `bench --filter '*'` measures any case";
            return Err(Failure::new(exit::NOTHING_SELECTED, message));
        }
    }
    if args.command == Command::Bench {
        // A refusal has nothing to measure.
        cases.retain(|case| case.errors.is_empty() && case.unsupported.is_none());
        if cases.is_empty() {
            let message = "error[E0505]: every selected case is a refusal, which has nothing to measure\n  note: `run` checks refusals";
            return Err(Failure::new(exit::NOTHING_SELECTED, message));
        }
    }
    Ok(cases)
}
