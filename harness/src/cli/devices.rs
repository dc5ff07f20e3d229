//! From the device options to slots.

use super::Failure;
use super::args::{DeviceArg, DeviceOptions, usage};
use crate::case::Target;
use crate::device::{
    Gpu, GpuDecision, GpuLock, GpuPolicy, Nvidia, Nvml, Selection, WantedGpus, find_sanitizer, hold, lock_folder, open,
    sanitizer_places, select,
};
use crate::dispatch::SlotSpec;
use crate::evidence::sanitizer::{Sample, Sanitizer, Tool};
use crate::exit;
use crate::proto::DeviceSpec;
use crate::report::quoted;
use crate::units::counted;
use engine::diag::{Diagnostic, code};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The devices of a run.
pub(super) struct Devices {
    pub(super) target: Target,
    pub(super) slots: Vec<SlotSpec>,
    /// What was found and chosen, for people.
    pub(super) notes: Vec<String>,
    pub(super) choices: Vec<GpuDecision>,
    /// GPUs that were not taken, and why.
    pub(super) left: Vec<GpuDecision>,
    pub(super) nvidia: Option<Nvidia>,
    /// Asked during the run, where GPUs are used.
    pub(super) nvml: Option<Arc<dyn Nvml>>,
    /// Names the history: `simulator`, `reference`, or the GPU's product name.
    pub(super) history: String,
    /// The options that select such devices again.
    pub(super) again: String,
    /// Under what workers run, if anything.
    pub(super) sanitizer: Option<Sanitizer>,
    /// What tells other harnesses that the GPUs are in use, while it lives.
    #[expect(dead_code, reason = "held for its locks")]
    locks: Vec<GpuLock>,
}

impl Devices {
    /// The state of the chosen GPUs at this moment.
    pub(super) fn now(&self) -> Vec<Gpu> {
        let Some(nvml) = &self.nvml else { return Vec::new() };
        self.choices.iter().filter_map(|choice| nvml.look(&choice.gpu.uuid).ok()).collect()
    }
}

/// The sizes of cases for the devices that are asked for, without looking for
/// them: what is listed must not depend on the machine.
pub(super) fn target(options: &DeviceOptions) -> Target {
    match options.device {
        DeviceArg::Gpus(_) if options.nvml.is_none() => Target::Cuda,
        _ => Target::Sim,
    }
}

/// More simulated devices than this by default only slow each other down.
const MAX_DEFAULT_SIM: usize = 8;

/// Cores of the host.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Chooses devices; says what it found and why it took them.
pub(super) fn resolve(options: &DeviceOptions, sample: Option<&Sample>) -> Result<Devices, Failure> {
    let mut devices = chosen(options)?;
    if options.cross {
        check_cross(options, &devices)?;
    }
    if let Some(sample) = sample {
        sanitize(&mut devices, sample.tool)?;
    }
    Ok(devices)
}

/// `--cross` with nothing to compare would pass whatever the devices do.
fn check_cross(options: &DeviceOptions, devices: &Devices) -> Result<(), Failure> {
    let names: BTreeSet<String> = devices.slots.iter().map(SlotSpec::device_name).collect();
    let chosen = match &options.device {
        DeviceArg::Sim(count) => *count,
        _ => devices.choices.len().max(names.len()),
    };
    let (count, jobs) = (names.len(), devices.slots.len());
    match () {
        () if chosen < 2 => Err(usage(
            "`--cross` compares devices, and one is chosen",
            "--gpus 2 or --sim 2 chooses two; without --cross each case runs once",
        )),
        () if count < chosen => Err(usage(
            format!(
                "`--cross` runs each case on each of {chosen} devices, and `--jobs {jobs}` leaves workers for {count}"
            ),
            format!("--jobs {chosen} or more; without --jobs each device has a worker"),
        )),
        () => Ok(()),
    }
}

/// Finds the tool that checks kernels, or says what stands for it.
fn sanitize(devices: &mut Devices, tool: Tool) -> Result<(), Failure> {
    let name = tool.name();
    let refuse = |message: String, note: String| {
        Err(Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::NO_SANITIZER, message).note(note)))
    };
    match devices.slots.first() {
        Some(slot) if slot.gpu.is_some() => {
            let Some(program) = find_sanitizer() else {
                let places: Vec<String> = sanitizer_places().iter().map(|file| file.display().to_string()).collect();
                return refuse(
                    format!("`--sanitize {name}` needs compute-sanitizer"),
                    format!("not found: {}", places.join(", ")),
                );
            };
            devices.notes.push(format!("{name}: each case in a worker of its own under {}", program.display()));
            devices.sanitizer = Some(Sanitizer { tool, program });
        }
        Some(slot) if slot.device == DeviceSpec::Reference => {
            return refuse(
                format!("`--sanitize {name}` has nothing to check on the reference evaluator"),
                "it has no kernels; use --sim or --gpus".into(),
            );
        }
        _ => devices.notes.push(format!(
            "{name}: on the simulator its own detectors ({}) stand for it, in every case",
            tool.detectors()
        )),
    }
    Ok(())
}

fn chosen(options: &DeviceOptions) -> Result<Devices, Failure> {
    let nvml = || open(options.nvml.as_deref()).map_err(|d| Failure::diagnostic(exit::USAGE, &d));
    match &options.device {
        DeviceArg::Reference => Ok(reference(options)),
        DeviceArg::Sim(count) => Ok(simulated(options, *count, Vec::new(), None)),
        DeviceArg::Gpus(wanted) => {
            let nvml = nvml()?;
            let found = nvml.survey();
            gpus(options, nvml, found, wanted)
        }
        DeviceArg::Auto => {
            let nvml = nvml()?;
            let found = nvml.survey();
            if found.gpus.is_empty() {
                let why = found.problems.join("; ");
                let note = format!("no GPU found ({why}): running on the simulator");
                return Ok(simulated(options, cores().min(MAX_DEFAULT_SIM), vec![note], Some(found)));
            }
            let lacks_nvrtc = |gpu: &Gpu| match nvml.worker_device(&gpu.uuid, 1) {
                DeviceSpec::Cuda { nvrtc, .. } => nvrtc.is_empty(),
                _ => false,
            };
            if found.gpus.first().is_some_and(lacks_nvrtc) {
                let note =
                    "a GPU is here but no NVRTC library (see `harness doctor`): running on the simulator".to_string();
                return Ok(simulated(options, cores().min(MAX_DEFAULT_SIM), vec![note], Some(found)));
            }
            gpus(options, nvml, found, &WantedGpus::Count(1))
        }
    }
}

/// Bytes of the host's memory.
pub(super) fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Threads of a worker. Workers share the host's cores in equal parts: more threads than cores wait for each other.
fn threads_of_worker(jobs: usize) -> u32 {
    (cores() / jobs).max(1) as u32
}

/// Bytes of the stack of a worker's threads. One of the pool that waits for others takes on more work below what it waits
/// for: how deep that goes is for nobody to know, and what is not used is not there.
const STACK: u64 = 16 << 20;

/// Workers share the host's cores and memory, for inputs, reference and comparison.
///
/// Tensors of the host come and go with each case. What a worker gave back it keeps for the
/// next one, up to its share of a quarter of the memory: to make and clear pages anew costs more
/// than most of what is computed in them. The allocator takes all from its heap then, in large
/// pages where the system has some; where it is another one than glibc's, the variable says nothing.
fn host_env(jobs: usize) -> Vec<(String, String)> {
    let threads = threads_of_worker(jobs);
    let kept = machine_memory().unwrap_or(4 << 30) / (4 * jobs.max(1) as u64);
    let malloc = [("mmap_max", 0), ("trim_threshold", kept), ("hugetlb", 1)];
    let malloc: Vec<String> = malloc.iter().map(|(name, value)| format!("glibc.malloc.{name}={value}")).collect();
    vec![
        ("RAYON_NUM_THREADS".into(), threads.to_string()),
        ("RUST_MIN_STACK".into(), STACK.to_string()),
        ("GLIBC_TUNABLES".into(), malloc.join(":")),
    ]
}

/// For each job its device and its label: `gpu2`, or `gpu2.0` and `gpu2.1` where
/// several share a device.
fn labels(names: &[String], jobs: usize) -> Vec<(usize, String)> {
    let devices = names.len();
    let label = |job: usize| match jobs > devices {
        true => format!("{}.{}", names[job % devices], job / devices),
        false => names[job].clone(),
    };
    (0..jobs).map(|job| (job % devices, label(job))).collect()
}

fn numbered(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{kind}{index}")).collect()
}

fn reference(options: &DeviceOptions) -> Devices {
    let jobs = options.jobs.unwrap_or_else(|| cores().min(MAX_DEFAULT_SIM));
    let slots = labels(&numbered("ref", jobs), jobs).into_iter();
    let slots =
        slots.map(|(_, label)| SlotSpec { device: DeviceSpec::Reference, label, env: host_env(jobs), gpu: None });
    let slots = slots.collect();
    Devices {
        target: Target::Sim,
        slots,
        notes: vec![format!("reference evaluator, {}", counted(jobs, "worker process"))],
        choices: Vec::new(),
        left: Vec::new(),
        nvidia: None,
        nvml: None,
        history: "reference".into(),
        again: " --ref".into(),
        locks: Vec::new(),
        sanitizer: None,
    }
}

fn simulated(options: &DeviceOptions, count: usize, mut notes: Vec<String>, nvidia: Option<Nvidia>) -> Devices {
    let jobs = options.jobs.unwrap_or(count);
    let threads = threads_of_worker(jobs);
    let slots = labels(&numbered("sim", count), jobs).into_iter();
    let slots = slots.map(|(ordinal, label)| {
        let env = host_env(jobs);
        SlotSpec { device: DeviceSpec::Sim { ordinal, threads }, label, env, gpu: None }
    });
    let slots: Vec<SlotSpec> = slots.collect();
    let (workers, threads) = (counted(slots.len(), "worker process"), counted(threads, "thread"));
    notes.push(format!("{count} simulated H200, {workers}, {threads} each"));
    Devices {
        target: Target::Sim,
        slots,
        notes,
        choices: Vec::new(),
        left: Vec::new(),
        nvidia,
        nvml: None,
        history: "simulator".into(),
        again: " --sim 1".into(),
        locks: Vec::new(),
        sanitizer: None,
    }
}

fn gpus(options: &DeviceOptions, nvml: Arc<dyn Nvml>, found: Nvidia, wanted: &WantedGpus) -> Result<Devices, Failure> {
    let mut locks = Vec::new();
    let folder = lock_folder();
    let alone = options.gpu.policy == GpuPolicy::Exclusive;
    let selection = select(&found, wanted, &options.gpu, |gpu| {
        locks.extend(hold(&folder, &gpu.uuid, alone)?);
        Ok(())
    });
    if let Some(missing) = &selection.missing {
        return Err(too_few(&found, &selection, missing, wanted));
    }
    let Selection { taken, left, .. } = selection;
    let per_gpu = options.gpu.workers_per_gpu;
    let all = taken.len() * per_gpu.unwrap_or(1);
    let jobs = match (options.jobs, per_gpu) {
        (Some(jobs), Some(_)) => jobs.min(all),
        (Some(jobs), None) => jobs,
        (None, _) => all,
    };
    let threads = threads_of_worker(jobs);
    let names: Vec<String> = taken.iter().map(|choice| format!("gpu{}", choice.gpu.index)).collect();
    let slots = labels(&names, jobs).into_iter().map(|(i, label)| {
        let gpu = &taken[i].gpu;
        let mut env = host_env(jobs);
        env.push(("CUDA_VISIBLE_DEVICES".into(), gpu.uuid.clone()));
        SlotSpec { device: nvml.worker_device(&gpu.uuid, threads), label, env, gpu: Some(gpu.clone()) }
    });
    let slots: Vec<SlotSpec> = slots.collect();
    let mut notes: Vec<String> =
        taken.iter().map(|choice| format!("{}: {}", choice.gpu.name_and_uuid(), choice.why)).collect();
    notes.extend(left.iter().map(|choice| format!("{}: {}", choice.gpu.name_and_uuid(), choice.why)));
    if nvml.is_fake() {
        notes.push("these GPUs are played by a file: cases run on the simulator".into());
    }
    if slots.len() > taken.len() {
        notes.push(format!("{} on {}", counted(slots.len(), "worker process"), counted(taken.len(), "GPU")));
    }
    let history = taken.first().map_or_else(String::new, |choice| choice.gpu.name.clone());
    if taken.iter().any(|choice| choice.gpu.name != history) {
        notes.push(format!("the GPUs differ; history goes to that of {history}"));
    }
    Ok(Devices {
        // A played GPU has the speed of the simulator, and so its sizes.
        target: if nvml.is_fake() { Target::Sim } else { Target::Cuda },
        slots,
        notes,
        choices: taken,
        left,
        nvidia: Some(found),
        nvml: Some(nvml),
        history,
        again: match &options.nvml {
            Some(file) => format!(" --gpus 1 --nvml {}", quoted(&file.display().to_string())),
            None => " --gpus 1".into(),
        },
        locks,
        sanitizer: None,
    })
}

/// GPUs were asked for and are not there: each with its reason, and a way out.
fn too_few(found: &Nvidia, selection: &Selection, missing: &str, wanted: &WantedGpus) -> Failure {
    let mut diagnostic = Diagnostic::user(code::NO_GPU, missing);
    for problem in &found.problems {
        diagnostic = diagnostic.note(problem.clone());
    }
    for GpuDecision { gpu, why } in &selection.left {
        diagnostic = diagnostic.note(format!("GPU {} {} {}: {why}", gpu.index, gpu.name, gpu.uuid));
    }
    let count = match wanted {
        WantedGpus::Count(count) => *count,
        WantedGpus::Named(names) => names.len(),
        WantedGpus::All => 1,
    };
    let way = format!(
        "`--sim {count}` runs the same cases on {}; `harness doctor` says what is missing",
        counted(count, "simulated device")
    );
    Failure::diagnostic(exit::NO_GPU, &diagnostic.note(way))
}
