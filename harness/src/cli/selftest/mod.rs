//! `selftest`: commits every fault that the device can have, among innocent
//! cases, through the real dispatcher with real workers, and compares what the
//! harness says with what the table of faults expects.
//!
//! Output: the rows that differ, the total line, records of kind `selftest` below
//! `results/selftest`. Ends with 0 only if every fault was detected, named and
//! charged rightly, and no other case's result was lost or changed.

mod matrix;
mod schedule;
mod source;

use super::args::{Args, DeviceArg};
use super::devices::{self, Devices};
use super::run::setup;
use super::{Failure, ending, session};
use crate::case::{Case, Target, read_text};
use crate::dispatch::{self, RunPlan, SlotSpec};
use crate::exit;
use crate::proto::{DeviceSpec, Knobs};
use crate::record::{Provenance, RunStore};
use crate::units::show_seconds;
use crate::worker::fault::{self, Class, Place};
use engine::diag::Diagnostic;
use serde_json::json;
use source::Faults;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A limit that `oom` reaches without taking the machine's memory.
const MEMORY: u64 = 4 << 30;
/// CUDA's own private mappings count too.
const MEMORY_BESIDE_CUDA: u64 = 32 << 30;
/// Workers without a GPU: two on each device, since some faults need company.
const SHARING: usize = 2;
const GRACE: Duration = Duration::from_millis(200);

/// Cases that are run between the faults and must stay as they are.
const INNOCENT: &str = include_str!("innocent.fuse");

pub(super) fn selftest(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let (args, devices) = devices(args)?;
    let compiling = args.isolation.compile_threads.is_some_and(|threads| threads > 0);
    let (wanted, impossible) = possible(&devices.slots, compiling);
    let innocent = innocent(devices.target)?;
    let repeats = args.repeat.count.map_or(1, |count| count as u32);
    let units = schedule::units(&wanted, &innocent, repeats, args.repeat.seed);
    let header = header(&args, &devices, repeats);
    let mut store = RunStore::create(&session::results_dir(&args).join("selftest"), &header);
    for note in &devices.notes {
        super::print(&format!("{note}\n"));
    }
    let plan = plan(&args, devices, &store);
    let source = Faults::new(units, &plan, args.repeat.seed);
    dispatch::run(&plan, &source, &mut |event| {
        if let dispatch::Event::Ended { farewell, .. } = &event {
            store.shared(farewell.code.as_ref());
        }
        source.event(event);
    });
    let rows = source.rows();
    let total = matrix::Total::of(&rows, repeats);
    for row in &rows {
        store.append("selftest", &row.record());
    }
    let mut text = matrix::text(&rows);
    for (name, why) in &impossible {
        store.append("selftest", &json!({ "class": name, "not_run": why }));
        text.push_str(&format!("not run: {name}: {why}\n"));
    }
    let stopped = plan.stop.load(std::sync::atomic::Ordering::Relaxed);
    let code = if total.is_perfect() { exit::OK } else { exit::FAILED };
    let ended = ending::end(&mut store, stopped, started, code, json!({ "total": total }));
    fault::tidy();
    super::print(&format!("{text}{}{total} in {}\n", ended.text, show_seconds(ended.elapsed_ns)));
    Ok(ended.code)
}

/// The devices, and the options with what is different here: workers without a
/// GPU share a device.
fn devices(args: &Args) -> Result<(Args, Devices), Failure> {
    let mut args = args.clone();
    if args.devices.device == DeviceArg::Auto {
        args.devices.device = DeviceArg::Sim(1);
    }
    if !on_gpu(&args) {
        args.devices.jobs.get_or_insert(SHARING);
    }
    let devices = devices::resolve(&args)?;
    Ok((args, devices))
}

fn on_gpu(args: &Args) -> bool {
    matches!(args.devices.device, DeviceArg::Gpus(_))
}

fn header(args: &Args, devices: &Devices, repeats: u32) -> serde_json::Value {
    json!({
        "argv": args.argv,
        "provenance": Provenance::gather(),
        "mode": "selftest",
        "seed": args.repeat.seed,
        "repeats": repeats,
        "devices": devices.slots.iter().map(|slot| &slot.label).collect::<Vec<_>>(),
    })
}

/// The classes that these slots can have, and those that they cannot, with reasons.
fn possible(slots: &[SlotSpec], compiling: bool) -> (Vec<&'static Class>, Vec<(&'static str, String)>) {
    let (mut wanted, mut impossible) = (Vec::new(), Vec::new());
    let device = slots.first().map(|slot| &slot.device);
    for class in fault::classes() {
        let elsewhere = match (class.place, device) {
            (Place::Sim, Some(DeviceSpec::Sim { .. })) | (Place::Cuda, Some(DeviceSpec::Cuda { .. })) => None,
            (Place::Any, _) => None,
            (Place::Sim, _) => Some("needs the simulator (--sim 1)".to_string()),
            (Place::Cuda, _) => Some("needs a GPU (--gpus 1)".to_string()),
        };
        // Threads that a case leaves are looked for where no others come and go.
        let beside = compiling && class.told == "leak.thread";
        let elsewhere = elsewhere.or_else(|| beside.then(|| "--compile-threads is given".to_string()));
        match elsewhere.or_else(|| class.unavailable.and_then(|unavailable| unavailable())) {
            None => wanted.push(class),
            Some(why) => impossible.push((class.name, why)),
        }
    }
    (wanted, impossible)
}

fn innocent(target: Target) -> Result<Vec<Arc<Case>>, Failure> {
    let (cases, errors) = read_text("innocent.fuse", INNOCENT, target);
    match errors.first() {
        None => Ok(cases.into_iter().map(Arc::new).collect()),
        Some(error) => Err(Failure::diagnostic(
            exit::BAD_CASES,
            &Diagnostic::bug(format!("the built-in cases are malformed: {error}")),
        )),
    }
}

fn plan(args: &Args, devices: Devices, store: &RunStore) -> RunPlan {
    let memory = if on_gpu(args) { MEMORY_BESIDE_CUDA } else { MEMORY };
    let code_cache = setup::code_cache(args, &devices.slots).folder(&store.work_dir());
    let compile_threads = args.isolation.compile_threads.unwrap_or(0);
    RunPlan {
        knobs: Knobs { compile_threads, code_cache, ..Knobs::default() },
        grace: args.time.grace.unwrap_or(GRACE),
        memory: Some(args.isolation.memory.unwrap_or(memory)),
        nvml: devices.nvml,
        stop: super::run::stop_flag(),
        ..RunPlan::plain(devices.slots, "/proc/self/exe".into(), store.work_dir())
    }
}
