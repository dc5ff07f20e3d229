//! What a run is to do: requirements of cases, the plan, and the record's header.

use super::options::RunOptions;
use crate::case::Case;
use crate::cli::args::Command;
use crate::cli::devices::{self, Devices};
use crate::code_cache::CodeCache;
use crate::device::{GpuDecision, nvrtc_version};
use crate::dispatch::{Isolation, Job, Retries, RunPlan, RunPolicy, SlotSpec, unfit_for_all};
use crate::evidence::{Context, Keeper, Sight};
use crate::exit;
use crate::outcome::{Conclusion, Outcome, Verdict};
use crate::proto::{DeviceSpec, Knobs, Mode};
use crate::record::{
    GpuChoice, Header, History, Provenance, RecordedNvidia, RecordedShard, RunStore, nulls, today, utc_stamp,
};
use crate::select::quarantine::Quarantine;
use crate::select::{Chosen, Part, Shard};
use crate::verified::{ReferenceUse, VerifiedOutputs};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_GRACE: Duration = Duration::from_secs(2);
/// Failing cases of a run that are retried, unless the user says how often.
const RETRIED_CASES: usize = 50;

/// Takes out the cases whose requirements no chosen device meets.
pub(in crate::cli) fn split_required(cases: Vec<Case>, devices: &Devices) -> (Vec<Arc<Case>>, Vec<Conclusion>) {
    let (mut kept, mut skipped) = (Vec::new(), Vec::new());
    for case in cases {
        match unfit_for_all(&devices.slots, &case.require) {
            None => kept.push(Arc::new(case)),
            Some((outcome, why)) => {
                let job = Job::new(Arc::new(case), 0);
                skipped.push(Conclusion::single(job.result(Outcome::of(Verdict::Skip, outcome, why))));
            }
        }
    }
    (kept, skipped)
}

/// Compile threads of a worker by default, at most: with more, the whole suite takes as long.
const MAX_COMPILE_THREADS: usize = 8;

/// How workers differ from the usual. On GPUs most of a case's time is that of
/// the run-time compiler, so spare cores compile coming cases; a measurement
/// wants the host quiet, and a simulated device needs the cores itself.
pub(in crate::cli) fn knobs(options: &RunOptions, devices: &Devices) -> Knobs {
    let usual = match on_gpus(&devices.slots) && options.command != Command::Bench {
        true => (devices::cores() / (2 * devices.slots.len())).min(MAX_COMPILE_THREADS) as u32,
        false => 0,
    };
    // Where each case has a worker of its own, as under a tool, nothing is ahead of it.
    let single = devices.sanitizer.is_some() || options.cases_a_worker() == 1;
    let usual = if single { 0 } else { usual };
    Knobs {
        compile_threads: options.workers.compile_threads.unwrap_or(usual),
        twice: options.repeat.twice,
        kernels_only: options.repeat.kernels_only,
        jitter: options.repeat.jitter,
        line_info: devices.sanitizer.is_some(),
        // Known when the run has its folder.
        code_cache: None,
    }
}

/// Where results are, the folder of machine code that stays.
const KEPT_CODE: &str = "code";

/// Whether the kernels are compiled for GPUs.
pub(in crate::cli) fn on_gpus(slots: &[SlotSpec]) -> bool {
    matches!(slots.first().map(|slot| &slot.device), Some(DeviceSpec::Cuda { .. }))
}

/// What the workers share of compiled kernels; nothing where none are compiled.
pub(in crate::cli) fn code_cache(given: Option<&CodeCache>, slots: &[SlotSpec]) -> CodeCache {
    if on_gpus(slots) { given.cloned().unwrap_or_default() } else { CodeCache::Off }
}

/// The same of a run: what it compiled is there for the next one, unless each attempt is to do what the first one did.
pub(in crate::cli) fn shared_code(options: &RunOptions, slots: &[SlotSpec]) -> CodeCache {
    let stays = matches!(options.command, Command::Run | Command::Bench);
    let kept = stays.then(|| CodeCache::Dir(options.cases.folders.results.join(KEPT_CODE)));
    code_cache(options.workers.code_cache.as_ref().or(kept.as_ref()), slots)
}

/// For which outputs the reference is evaluated. The simulator's kernels take longer than it, and who looks into a
/// failure wants each attempt to do what the first one did.
fn reference(options: &RunOptions, slots: &[SlotSpec]) -> ReferenceUse {
    let looks_into = matches!(options.command, Command::Replay | Command::Why);
    let usual = if on_gpus(slots) && !looks_into { ReferenceUse::Once } else { ReferenceUse::Always };
    options.repeat.reference.unwrap_or(usual)
}

/// What is known of outputs that passed. A build that the linker gave no name knows nothing: size and time may be another's.
fn verified(options: &RunOptions, devices: &Devices, store: &RunStore) -> Option<Arc<VerifiedOutputs>> {
    let once = reference(options, &devices.slots) == ReferenceUse::Once;
    let is_name = |build: &&str| build.bytes().all(|byte| byte.is_ascii_hexdigit());
    let build = store.build().filter(|_| once).filter(is_name)?.to_string();
    let history = History::of(&options.cases.folders.results, &devices.history);
    Some(Arc::new(VerifiedOutputs::new(build, history.verified())))
}

pub(in crate::cli) fn plan(options: &RunOptions, devices: &Devices, store: &RunStore) -> RunPlan {
    let sanitizer = devices.sanitizer.clone();
    RunPlan {
        // All of them: a case may fit only one, and a retry goes to another device. A
        // slot that gets no case starts no worker.
        slots: devices.slots.clone(),
        knobs: Knobs {
            code_cache: shared_code(options, &devices.slots).folder(&store.work_dir()),
            ..knobs(options, devices)
        },
        default_timeout: DEFAULT_TIMEOUT,
        forced_timeout: options.time.timeout,
        phase_limits: options.time.phases.clone(),
        grace: options.time.grace.unwrap_or(DEFAULT_GRACE),
        mode: if options.command == Command::Bench { Mode::Bench } else { Mode::Check },
        bless: options.bless,
        isolation: if sanitizer.is_some() { Isolation::Case } else { options.workers.isolation },
        recycle: options.workers.recycle,
        memory: memory_limit(options, devices),
        core_dump: options.core_dump,
        // The tool's own binary is what this link means to it.
        worker_exe: match &sanitizer {
            Some(_) => std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into()),
            None => "/proc/self/exe".into(),
        },
        sanitizer,
        verified: verified(options, devices, store),
        work_dir: store.work_dir(),
        stop: stop_flag(),
        nvml: devices.nvml.clone(),
    }
}

/// The cases that are checked by a tool, where only a share of them is. At
/// least one, so that a low rate on few cases is still a check.
pub(in crate::cli) fn sample(options: &RunOptions, mut chosen: Chosen) -> Chosen {
    let Some(sample) = &options.sanitize else { return chosen };
    let all = chosen.cases.len();
    let (mut taken, left): (Vec<Case>, Vec<Case>) =
        chosen.cases.into_iter().partition(|case| sample.takes(options.repeat.seed, &case.id));
    if taken.is_empty() {
        taken.extend(left.into_iter().next());
    }
    if let Some(part) = &mut chosen.part {
        // Of the other shards what they take, too.
        part.keep(|id| sample.takes(options.repeat.seed, id) || taken.iter().any(|case| case.id == id));
    }
    if sample.rate < 1.0 {
        let (tool, count, seed) = (sample.tool.name(), taken.len(), options.repeat.seed);
        chosen.notes.push(format!("{tool}: {count} of {all} selected cases, by seed {seed}"));
    }
    chosen.cases = taken;
    chosen
}

/// The limit of each worker. Without a request it is what the machine has, which
/// stops a runaway case before the machine; workers with a GPU have none then,
/// since nobody knows what its driver maps.
fn memory_limit(options: &RunOptions, devices: &Devices) -> Option<u64> {
    let on_gpu = devices.slots.iter().any(|slot| matches!(slot.device, DeviceSpec::Cuda { .. }));
    options.workers.memory.or_else(|| if on_gpu { None } else { devices::machine_memory() })
}

/// The options that select the device of a slot.
pub(in crate::cli) fn device_words(nvml: Option<&Path>, devices: &Devices, slot: &SlotSpec) -> Vec<String> {
    let Some(gpu) = &slot.gpu else { return devices.again.split_whitespace().map(String::from).collect() };
    let mut words = vec!["--gpus".into(), gpu.uuid.clone()];
    if let Some(file) = nvml {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        words.extend(["--nvml".into(), file.to_string_lossy().into_owned()]);
    }
    words
}

/// What keeps the evidence of failures.
pub(super) fn keeper(options: &RunOptions, devices: &Devices, plan: &RunPlan, store: &RunStore) -> Keeper {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let context = Context {
        harness: std::env::current_exe().unwrap_or_else(|_| "harness".into()),
        command: options.command.word().into(),
        cases: absolute(&options.cases.folders.cases),
        results: absolute(store.root()),
        run: store.id.clone(),
        devices: plan.slots.iter().map(|slot| device_words(options.devices.nvml.as_deref(), devices, slot)).collect(),
        again: options.again.words.clone(),
    };
    let run_dir = store.error().is_none().then(|| absolute(store.dir()));
    let sight = Sight { run: store.id.clone(), utc: utc_stamp(false), commit: store.commit().into() };
    let labels = plan.slots.iter().map(|slot| slot.label.clone()).collect();
    Keeper::new(context, run_dir, sight, labels).across(options.devices.cross)
}

/// How the run goes about its cases. A benchmark is not retried: a goal that is
/// met in one of three tries is not met.
pub(super) fn policy(options: &RunOptions, plan: &RunPlan, history: &History, quarantine: Quarantine) -> RunPolicy {
    let usual = if options.command == Command::Bench { Retries::NONE } else { Retries::USUAL };
    let retries = options.repeat.retries.map_or(usual, |count| Retries { after_failure: count, ..Retries::USUAL });
    RunPolicy {
        seed: options.repeat.seed,
        retries,
        retried_cases: if options.repeat.retries.is_some() { usize::MAX } else { RETRIED_CASES },
        fail_fast: options.repeat.fail_fast,
        deadline: options.time.deadline.map(|limit| Instant::now() + limit),
        today: today(),
        quarantine,
        // To accept what varies more is to learn it anew.
        learnt: if options.bless { BTreeMap::new() } else { history.determinism() },
        devices: plan.slots.iter().map(SlotSpec::device_name).collect(),
        slots: plan.slots.clone(),
        tried: BTreeMap::new(),
        known: BTreeMap::new(),
    }
}

/// The number of the signal that asks to stop. A second one ends at once. A terminal that goes away asks
/// too, unless whoever started the harness said that it is not to care (`nohup`).
pub(in crate::cli) fn stop_flag() -> Arc<AtomicUsize> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicUsize::new(0));
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !crate::os::is_ignored(*signal)) {
        let code = i32::from(exit::SIGNAL_BASE) + signal;
        let _ = signal_hook::flag::register_conditional_shutdown(signal, code, again.clone());
        let _ = signal_hook::flag::register(signal, again.clone());
        let _ = signal_hook::flag::register_usize(signal, stop.clone(), signal as usize);
    }
    stop
}

/// Of which job the run is a part.
pub(super) fn shard(part: &Part) -> RecordedShard {
    let Shard { index, count, split } = part.shard;
    RecordedShard {
        index: Some(index as u64 + 1),
        count: Some(count as u64),
        split: Some(split.word().into()),
        dealt: Some(format!("{:08x}", part.dealt)),
        ..RecordedShard::default()
    }
}

/// The version of the run-time compiler that workers on GPUs load.
pub(super) fn nvrtc(slots: &[SlotSpec]) -> Option<String> {
    slots.iter().find_map(|slot| match &slot.device {
        DeviceSpec::Cuda { nvrtc, .. } => nvrtc.iter().find_map(|folder| nvrtc_version(folder)),
        _ => None,
    })
}

pub(in crate::cli) fn header(
    options: &RunOptions,
    devices: &Devices,
    files: usize,
    fingerprint: u32,
    selected: usize,
    provenance: Provenance,
) -> Header {
    let choices = |choices: &[GpuDecision]| {
        let choice = |choice: &GpuDecision| GpuChoice {
            uuid: Some(choice.gpu.uuid.clone()),
            why: Some(choice.why.clone()),
            ..GpuChoice::default()
        };
        Some(choices.iter().map(choice).collect())
    };
    Header {
        argv: Some(options.record.argv.clone()),
        from_env: Some(options.record.from_env.clone()),
        cwd: std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok()),
        history: Some(devices.history.clone()),
        again: Some(options.again.tail(&devices.again, options.command, options.repeat.seed)),
        flaky: Some(if options.repeat.flaky_fails { "fail" } else { "pass" }.into()),
        provenance: Some(provenance),
        seed: Some(options.repeat.seed),
        jitter: options.repeat.jitter,
        mode: Some(options.command.word().into()),
        knobs: Some(json!(knobs(options, devices))),
        code_cache: Some(code_cache(options.workers.code_cache.as_ref(), &devices.slots).to_string()),
        reference: Some(reference(options, &devices.slots).name().into()),
        isolation: Some(options.workers.isolation.to_string()),
        devices: Some(devices.slots.iter().map(|slot| slot.label.clone()).collect()),
        left: choices(&devices.left),
        chosen: choices(&devices.choices),
        nvrtc: nvrtc(&devices.slots),
        nvidia: RecordedNvidia::of(json!(devices.nvidia)),
        cases_dir: Some(options.cases.folders.cases.display().to_string()),
        case_files: Some(files as u64),
        cases_crc: Some(format!("{fingerprint:08x}")),
        cases_selected: Some(selected as u64),
        other: nulls(&["cwd", "jitter"]),
        ..Header::default()
    }
}
