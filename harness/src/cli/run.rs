//! `run` and `bench`: select, dispatch, record, report.

use super::args::{Args, Command};
use super::bless::Blessings;
use super::devices::{self, Devices};
use super::{Failure, session};
use crate::case::Case;
use crate::dispatch::{self, CaseResult, Event, Isolation, RunPlan};
use crate::exit;
use crate::proto::{DeviceSpec, Mode};
use crate::record::{History, Provenance, Row, RunStore, today, utc_stamp};
use crate::report::{Progress, Summary, quoted, repro};
use crate::units::show_seconds;
use crate::verdict::{Outcome, Verdict, apply_xfail};
use engine::diag::{Diagnostic, code};
use engine::options::DeviceDesc;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_GRACE: Duration = Duration::from_secs(2);

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
    let (mut cases, skipped) = split_required(cases, &devices);
    let results = session::results_dir(args);
    let history = History::of(&results, &devices.history);
    dispatch::order(&mut cases, &history.known());
    let header = header(args, &devices, files, fingerprint, cases.len() + skipped.len());
    let mut store = RunStore::create(&results, &header);
    let plan = plan(args, &devices, cases, &store);
    let labels = plan.slots.iter().map(|slot| slot.label.clone()).collect();
    let progress = Progress::new(args.output.format, plan.cases.len() + skipped.len(), labels);
    for note in &devices.notes {
        progress.say(note);
    }
    progress.say(&format!(
        "{} of {total} cases selected from {files} files, seed {}",
        plan.cases.len() + skipped.len(),
        args.repeat.seed
    ));
    let mut view = View::new(args, &plan, &mut store, progress);
    for result in skipped {
        view.finished(result);
    }
    dispatch::run(&plan, &mut |event| view.event(event));
    let closing = view.close();
    let stopped = plan.stop.load(Ordering::Relaxed);
    Ok(finish(args, &devices, &history, store, closing, stopped, started))
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

/// Takes out the cases whose requirements no chosen device meets.
fn split_required(cases: Vec<Case>, devices: &Devices) -> (Vec<Arc<Case>>, Vec<CaseResult>) {
    let (mut kept, mut skipped) = (Vec::new(), Vec::new());
    for case in cases {
        match unmet(&case, devices) {
            None => kept.push(Arc::new(case)),
            Some((outcome, why)) => skipped.push(CaseResult {
                case: Arc::new(case),
                slot: usize::MAX,
                worker: String::new(),
                attempt: 0,
                position: 0,
                start_ns: 0,
                dur_ns: 0,
                outcome: Outcome::of(Verdict::Skip, outcome, why),
                death: None,
            }),
        }
    }
    (kept, skipped)
}

fn unmet(case: &Case, devices: &Devices) -> Option<(&'static str, String)> {
    let kind = match devices.slots.first().map(|slot| &slot.device) {
        Some(DeviceSpec::Cuda { .. }) => "cuda",
        Some(DeviceSpec::Reference) => "ref",
        _ => "sim",
    };
    let require = &case.require;
    if !require.device.is_empty() && !require.device.iter().any(|name| name == kind) {
        return Some(("skip.requires.device", format!("needs device {}", require.device.join(" or "))));
    }
    // Every chosen GPU must do, since any slot may take the case.
    let arch = match kind {
        "cuda" => devices.choices.iter().filter_map(|choice| choice.gpu.arch).min(),
        "sim" => Some(simulated_arch()),
        _ => None,
    };
    if let (Some(needed), Some(arch)) = (require.arch, arch)
        && arch < needed
    {
        return Some(("skip.requires.arch", format!("needs compute capability {needed}, the device has {arch}")));
    }
    let free = devices.choices.iter().filter_map(|c| c.gpu.mem_total_bytes?.checked_sub(c.gpu.mem_used_bytes?)).min();
    if let (Some(needed), Some(free)) = (require.memory, free)
        && free < needed
    {
        return Some(("skip.requires.mem", format!("needs {needed} bytes of device memory, {free} are free")));
    }
    None
}

/// The simulated device's compute capability, as `[require] arch` writes it.
fn simulated_arch() -> u32 {
    let (major, minor) = DeviceDesc::h200().compute_capability;
    10 * major + minor
}

fn plan(args: &Args, devices: &Devices, cases: Vec<Arc<Case>>, store: &RunStore) -> RunPlan {
    let mut slots = devices.slots.clone();
    slots.truncate(cases.len().max(1));
    RunPlan {
        slots,
        cases,
        seed: args.repeat.seed,
        default_timeout: DEFAULT_TIMEOUT,
        forced_timeout: args.time.timeout,
        grace: args.time.grace.unwrap_or(DEFAULT_GRACE),
        mode: if args.command == Command::Bench { Mode::Bench } else { Mode::Check },
        bless: args.output.bless,
        isolation: args.isolation.isolation,
        worker_exe: "/proc/self/exe".into(),
        work_dir: store.work_dir(),
        stop: stop_flag(),
    }
}

/// The number of the signal that asks to stop. A second one ends at once.
fn stop_flag() -> Arc<AtomicUsize> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let stop = Arc::new(AtomicUsize::new(0));
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let code = i32::from(exit::SIGNAL_BASE) + signal;
        let _ = signal_hook::flag::register_conditional_shutdown(signal, code, again.clone());
        let _ = signal_hook::flag::register(signal, again.clone());
        let _ = signal_hook::flag::register_usize(signal, stop.clone(), signal as usize);
    }
    stop
}

fn header(args: &Args, devices: &Devices, files: usize, fingerprint: u32, selected: usize) -> serde_json::Value {
    json!({
        "argv": args.argv,
        "provenance": Provenance::gather(),
        "seed": args.repeat.seed,
        "mode": if args.command == Command::Bench { "bench" } else { "run" },
        "isolation": format!("{:?}", args.isolation.isolation).to_lowercase(),
        "devices": devices.slots.iter().map(|slot| &slot.label).collect::<Vec<_>>(),
        "chosen": devices.choices.iter().map(|c| json!({ "uuid": c.gpu.uuid, "why": c.why })).collect::<Vec<_>>(),
        "nvidia": devices.nvidia,
        "cases_dir": session::cases_dir(args).display().to_string(),
        "case_files": files,
        "cases_crc": format!("{fingerprint:08x}"),
        "cases_selected": selected,
    })
}

/// Turns events into records, progress and counts.
struct View<'a> {
    args: &'a Args,
    plan: &'a RunPlan,
    store: &'a mut RunStore,
    progress: Progress,
    summary: Summary,
    blessings: Blessings,
    rows: Vec<Row>,
    today: String,
    /// Codes with which slots refused their device.
    refused: Vec<String>,
}

/// What is left when the run is over.
struct Closing {
    summary: Summary,
    blessings: Blessings,
    rows: Vec<Row>,
    refused: Vec<String>,
}

impl<'a> View<'a> {
    fn new(args: &'a Args, plan: &'a RunPlan, store: &'a mut RunStore, progress: Progress) -> Self {
        let (summary, blessings) = (Summary::default(), Blessings::default());
        Self { args, plan, store, progress, summary, blessings, rows: Vec::new(), today: today(), refused: Vec::new() }
    }

    fn label(&self, slot: usize) -> &str {
        self.plan.slots.get(slot).map_or("", |slot| slot.label.as_str())
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Tick => self.progress.tick(),
            Event::Started { slot, case } => self.progress.started(slot, &case.id),
            Event::Finished(result) => self.finished(*result),
            Event::Spawned { slot, worker, pid } => {
                let fields = json!({ "event": "spawned", "worker_id": worker, "pid": pid, "slot": self.label(slot), "gpu_uuid": self.uuid(slot) });
                self.store.append("worker", &fields);
            }
            Event::Ready { slot, worker, device, notes, ready_ns } => {
                let fields = json!({ "event": "ready", "worker_id": worker, "device": device, "notes": notes, "ready_ns": ready_ns });
                self.store.append("worker", &fields);
                self.progress.idle(slot, "ready");
            }
            Event::Ended { slot, worker, reason, cases_run } => {
                let fields = json!({ "event": "ended", "worker_id": worker, "reason": reason, "cases_run": cases_run });
                self.store.append("worker", &fields);
                self.progress.idle(slot, "");
            }
            Event::Retired { slot, code, reason } => {
                let label = self.label(slot).to_string();
                self.store
                    .append("slot", &json!({ "event": "retired", "slot": label, "code": code, "reason": reason }));
                self.progress.say(&format!("{label} takes no more cases: {reason}"));
                self.refused.push(code);
            }
        }
    }

    fn uuid(&self, slot: usize) -> Option<&str> {
        match &self.plan.slots.get(slot)?.device {
            DeviceSpec::Cuda { uuid, .. } => Some(uuid),
            _ => None,
        }
    }

    fn finished(&mut self, mut result: CaseResult) {
        apply_xfail(&mut result.outcome, result.case.xfail.as_ref(), &self.today);
        let written = match result.outcome.verdict.is_failure() && result.outcome.verdict != Verdict::Infra {
            true => self.store.write_case(&result.case, &result.outcome),
            false => None,
        };
        let outcome = &result.outcome;
        if self.args.output.bless {
            self.blessings.add(&result.case, outcome);
        }
        let fields = json!({
            "case_id": result.case.id,
            "attempt": result.attempt,
            "worker_id": result.worker,
            "gpu_uuid": self.uuid(result.slot),
            "position": result.position,
            "start_ns": result.start_ns,
            "dur_ns": result.dur_ns,
            "verdict": outcome.verdict,
            "outcome": outcome.outcome,
            "detail": outcome.detail,
            "phases": outcome.phases,
            "facts": outcome.facts,
            "kernel_crc": outcome.kernel_crc.map(|crc| format!("{crc:08x}")),
            "out_crc": outcome.out_crc.map(|crc| format!("{crc:08x}")),
            "cuda_error": outcome.cuda_error,
            "numerics": outcome.numerics,
            "perf": outcome.perf,
            "death": result.death,
            "case_file": written,
        });
        self.store.append("attempt", &fields);
        if result.death.is_some() {
            self.store.sync();
        }
        self.summary.add(&result, written);
        self.progress.finished(&result);
        if outcome.verdict != Verdict::Infra && !outcome.outcome.starts_with("not_run") && result.slot != usize::MAX {
            self.rows.push(row(&result));
        }
    }

    fn close(self) -> Closing {
        self.progress.close();
        Closing { summary: self.summary, blessings: self.blessings, rows: self.rows, refused: self.refused }
    }
}

fn row(result: &CaseResult) -> Row {
    let Outcome { verdict, outcome, perf, phases, kernel_crc, .. } = &result.outcome;
    Row {
        case_id: result.case.id.clone(),
        verdict: verdict.name(),
        outcome: outcome.clone(),
        dur_ns: result.dur_ns,
        perf: perf.clone(),
        phases: phases.clone(),
        kernel_crc: *kernel_crc,
    }
}

fn finish(
    args: &Args,
    devices: &Devices,
    history: &History,
    mut store: RunStore,
    closing: Closing,
    stopped: usize,
    started: Instant,
) -> u8 {
    let Closing { summary, blessings, rows, refused } = closing;
    // Tables are derived from records: where there is no record, there is no row.
    if store.error().is_none() {
        let added = history.add(&store.id, store.commit(), &rows);
        if let Err(error) = added {
            store.fail("history", &error);
        }
    }
    let device_refused = !refused.is_empty() && refused.iter().all(|code| code.starts_with("E05")) && rows.is_empty();
    let code = match stopped {
        0 if device_refused => exit::NO_GPU,
        0 => summary.exit_code(),
        signal => exit::SIGNAL_BASE + signal as u8,
    };
    let counts: BTreeMap<&str, usize> = summary.counts.iter().map(|(verdict, n)| (verdict.name(), *n)).collect();
    for gpu in devices.now() {
        store.append("gpu", &gpu);
    }
    let status = if stopped == 0 { "complete" } else { "aborted" };
    let elapsed = started.elapsed().as_nanos() as u64;
    store.finish(
        status,
        &json!({ "counts": counts, "exit_code": code, "elapsed_ns": elapsed, "ended": utc_stamp(false) }),
    );
    let mut text = String::new();
    if args.command == Command::Bench {
        text.push_str(&super::bench_table::table(&rows));
    }
    text.push_str(&summary.failures_text(|id| repro(args.command.word(), id, &again(args, devices))));
    for line in blessings.apply() {
        text.push_str(&format!("blessed {line}\n"));
    }
    if stopped != 0 {
        text.push_str(&format!("stopped by signal {stopped}\n"));
    }
    let code = match store.error() {
        None => {
            text.push_str(&format!("record {}\n", store.dir().display()));
            code
        }
        Some(error) => {
            text.push_str(&format!("the record in {} is not complete: {error}\n", store.root().display()));
            if code == exit::OK { exit::NO_RECORD } else { code }
        }
    };
    text.push_str(&format!("{} cases in {}\n{}\n", summary.total(), show_seconds(elapsed), summary.line()));
    super::print(&text);
    code
}

/// The options that make a repeated case the same one.
fn again(args: &Args, devices: &Devices) -> String {
    let mut tail = devices.again.clone();
    if args.repeat.seed != 0 {
        tail.push_str(&format!(" --seed {}", args.repeat.seed));
    }
    if let Some(dir) = &args.select.cases {
        tail.push_str(&format!(" --cases {}", quoted(&dir.display().to_string())));
    }
    if let Some(limit) = args.time.timeout {
        tail.push_str(&format!(" --timeout {}ms", limit.as_millis()));
    }
    if args.isolation.isolation == Isolation::Case {
        tail.push_str(" --isolation case");
    }
    if args.select.faults {
        tail.push_str(" --with-faults");
    }
    tail
}
