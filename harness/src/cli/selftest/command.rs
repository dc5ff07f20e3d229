//! The course of a self-test: faults are committed, what is said of them is
//! compared, recorded and printed.

use super::setup::SelftestOptions;
use super::source::Faults;
use super::{matrix, schedule, wanted};
use crate::cli::args::{Args, Form};
use crate::cli::devices::Devices;
use crate::cli::{Failure, ending, runs};
use crate::dispatch;
use crate::exit;
use crate::record::{Header, Provenance, RunStore};
use crate::units::show_seconds;
use crate::worker::fault;
use serde_json::json;
use std::time::Instant;

pub(in crate::cli) fn selftest(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let options = SelftestOptions::of(args);
    let devices = options.devices()?;
    let (wanted, impossible) = wanted::possible(&devices.slots, options.compile_threads > 0);
    let innocent = wanted::innocent(devices.target)?;
    let repeats = options.repeats;
    let units = schedule::units(&wanted, &innocent, repeats, options.seed);
    let header = header(&options, &devices);
    let mut store = RunStore::create(&options.results, header);
    if options.form == Some(Form::Jsonl) {
        store.echo();
    }
    for note in &devices.notes {
        runs::conclude(options.form, &format!("{note}\n"));
    }
    let plan = options.plan(devices, &store);
    let source = Faults::new(units, &plan, options.seed);
    dispatch::run(&plan, &source, &mut |event| {
        if let dispatch::Event::Ended { worker_end, .. } = &event {
            store.shared(worker_end.code.as_ref());
        }
        source.event(event);
    });
    let rows = source.rows();
    let total = matrix::Total::of(&rows, repeats);
    for row in &rows {
        store.append("selftest", &row.record());
    }
    let mut text = if options.quiet { matrix::differing(&rows) } else { matrix::text(&rows) };
    for (name, why) in &impossible {
        store.append("selftest", &json!({ "class": name, "not_run": why }));
        text.push_str(&format!("not run: {name}: {why}\n"));
    }
    let stopped = plan.stop.load(std::sync::atomic::Ordering::Relaxed);
    let code = if total.is_perfect() { exit::OK } else { exit::FAILED };
    let ended = ending::end(&mut store, stopped, started, code, json!({ "total": total }));
    fault::tidy();
    let text = format!("{text}{}{total} in {}\n", ended.text, show_seconds(ended.elapsed_ns));
    runs::conclude(options.form, &text);
    Ok(ended.code)
}

fn header(options: &SelftestOptions, devices: &Devices) -> Header {
    let mut header = Header {
        argv: Some(options.argv.clone()),
        provenance: Some(Provenance::gather()),
        mode: Some("selftest".into()),
        seed: Some(options.seed),
        devices: Some(devices.slots.iter().map(|slot| slot.label.clone()).collect()),
        ..Header::default()
    };
    header.other.insert("repeats".into(), options.repeats.into());
    header
}
