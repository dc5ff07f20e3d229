//! The command: sets the scene, sweeps, records and prints.

use super::start::{self, SweepOptions, draw};
use super::sweep::Sweep;
use super::trials::{Bench, Stock};
use crate::cli::Failure;
use crate::cli::args::Args;
use crate::cli::flakes::log::HuntLog;
use crate::dispatch::Isolation;
use crate::exit;
use serde_json::json;
use std::time::Instant;

pub(in crate::cli) fn why(args: &Args) -> Result<u8, Failure> {
    let id = args.operand().unwrap_or_default().to_string();
    let (SweepOptions { count, budget }, mut scene, start) = start::set(args, &id)?;
    (scene.plan.isolation, scene.plan.recycle) = (Isolation::Worker, None);
    let progress = scene.progress(0, &format!("why {id}: {};", start.origin));
    start.notes.iter().for_each(|note| progress.say(&format!("note: {note}")));
    let (plan, standards) = (scene.plan.clone(), scene.standards.clone());
    let random = draw(&scene, &start.watched, scene.options.repeat.seed ^ 0x5eed);
    let (slots, devices) = scene.device_of_slots();
    let stock = Stock { plan: &plan, priors: start.priors, random, watched: start.watched, slots, devices, home: 0 };
    let log = HuntLog::new(&plan, &mut scene.store, progress);
    let mut bench = Bench::new(stock, &standards, log, Instant::now() + budget);
    let done = Sweep::new(&mut bench, count).go();
    let refused = bench.close();
    let text = done.text(&id);
    for change in &done.changes {
        scene.store.append("factor", &super::told::record(&id, change));
    }
    let code = if done.gave_up.is_some() { exit::INCOMPLETE } else { exit::OK };
    Ok(scene.end(text, json!({ "case_id": id, "trials": done.trials }), code, &refused))
}
