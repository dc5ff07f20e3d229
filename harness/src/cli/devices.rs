//! From the device options to slots.

use super::Failure;
use super::args::{Args, DeviceArg};
use crate::case::Target;
use crate::device::{Choice, Gpu, Nvidia, find_nvrtc, probe, quietest};
use crate::dispatch::SlotSpec;
use crate::exit;
use crate::proto::DeviceSpec;
use engine::diag::{Diagnostic, code};

/// The devices of a run.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    pub(super) target: Target,
    pub(super) slots: Vec<SlotSpec>,
    /// What was found and chosen, for people.
    pub(super) notes: Vec<String>,
    pub(super) choices: Vec<Choice>,
    pub(super) nvidia: Option<Nvidia>,
    /// Names the history: `simulator`, `reference`, or the GPU's product name.
    pub(super) history: String,
    /// The options that select such devices again.
    pub(super) again: String,
}

impl Devices {
    /// The state of the chosen GPUs at this moment.
    pub(super) fn now(&self) -> Vec<Gpu> {
        if self.choices.is_empty() {
            return Vec::new();
        }
        let chosen = |gpu: &Gpu| self.choices.iter().any(|choice| choice.gpu.uuid == gpu.uuid);
        probe().gpus.into_iter().filter(chosen).collect()
    }
}

/// More simulated devices than this by default only slow each other down.
const MAX_DEFAULT_SIM: usize = 8;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Chooses devices; says what it found and why it took them.
pub(super) fn resolve(args: &Args) -> Result<Devices, Failure> {
    match args.devices.device {
        DeviceArg::Reference => Ok(reference(args)),
        DeviceArg::Sim(count) => Ok(simulated(args, count, Vec::new(), None)),
        DeviceArg::Gpus(count) => gpus(args, probe(), Some(count)),
        DeviceArg::AllGpus => gpus(args, probe(), None),
        DeviceArg::Auto => {
            let nvidia = probe();
            if nvidia.gpus.is_empty() {
                let why = nvidia.problems.join("; ");
                let note = format!("no GPU found ({why}): running on the simulator");
                return Ok(simulated(args, cores().min(MAX_DEFAULT_SIM), vec![note], Some(nvidia)));
            }
            if find_nvrtc().found.is_empty() {
                let note =
                    "a GPU is here but no NVRTC library (see `harness doctor`): running on the simulator".to_string();
                return Ok(simulated(args, cores().min(MAX_DEFAULT_SIM), vec![note], Some(nvidia)));
            }
            gpus(args, nvidia, Some(1))
        }
    }
}

/// Workers share the host's cores, for reference and comparison.
fn host_threads(jobs: usize) -> (String, String) {
    ("RAYON_NUM_THREADS".into(), (cores() / jobs).max(1).to_string())
}

fn labels(kind: &str, devices: usize, jobs: usize) -> Vec<(usize, String)> {
    let label = |job: usize| match jobs > devices {
        true => format!("{kind}{}.{}", job % devices, job / devices),
        false => format!("{kind}{job}"),
    };
    (0..jobs).map(|job| (job % devices, label(job))).collect()
}

fn reference(args: &Args) -> Devices {
    let jobs = args.devices.jobs.unwrap_or_else(|| cores().min(MAX_DEFAULT_SIM));
    let slots = labels("ref", jobs, jobs).into_iter();
    let slots =
        slots.map(|(_, label)| SlotSpec { device: DeviceSpec::Reference, label, env: vec![host_threads(jobs)] });
    let slots = slots.collect();
    Devices {
        target: Target::Sim,
        slots,
        notes: vec![format!("reference evaluator, {jobs} worker processes")],
        choices: Vec::new(),
        nvidia: None,
        history: "reference".into(),
        again: " --ref".into(),
    }
}

fn simulated(args: &Args, count: usize, mut notes: Vec<String>, nvidia: Option<Nvidia>) -> Devices {
    let jobs = args.devices.jobs.unwrap_or(count);
    let threads = (cores() / jobs).max(1) as u32;
    let slots = labels("sim", count, jobs).into_iter();
    let slots = slots.map(|(ordinal, label)| {
        let env = vec![host_threads(jobs)];
        SlotSpec { device: DeviceSpec::Sim { ordinal, threads }, label, env }
    });
    let slots: Vec<SlotSpec> = slots.collect();
    notes.push(format!("{count} simulated H200, {} worker processes of {threads} thread(s)", slots.len()));
    Devices {
        target: Target::Sim,
        slots,
        notes,
        choices: Vec::new(),
        nvidia,
        history: "simulator".into(),
        again: " --sim 1".into(),
    }
}

fn gpus(args: &Args, nvidia: Nvidia, count: Option<usize>) -> Result<Devices, Failure> {
    let wanted = count.unwrap_or(nvidia.gpus.len().max(1));
    let choices = quietest(&nvidia.gpus, wanted);
    if choices.len() < wanted {
        let found = match nvidia.gpus.len() {
            0 => "none was found".to_string(),
            n => format!("{n} found, {} usable", choices.len()),
        };
        let mut diagnostic = Diagnostic::user(code::NO_GPU, format!("{wanted} GPU(s) asked for, {found}"));
        for problem in &nvidia.problems {
            diagnostic = diagnostic.note(problem.clone());
        }
        let way = format!(
            "`--sim {wanted}` runs the same cases on {wanted} simulated device(s); `harness doctor` says what is missing"
        );
        return Err(Failure::diagnostic(exit::NO_GPU, &diagnostic.note(way)));
    }
    let nvrtc = find_nvrtc().folders();
    let jobs = args.devices.jobs.unwrap_or(wanted);
    let slots = labels("gpu", wanted, jobs).into_iter().map(|(i, label)| {
        let gpu = &choices[i].gpu;
        let label = label.replacen(&format!("gpu{i}"), &format!("gpu{}", gpu.index), 1);
        let env = vec![("CUDA_VISIBLE_DEVICES".to_string(), gpu.uuid.clone()), host_threads(jobs)];
        SlotSpec { device: DeviceSpec::Cuda { uuid: gpu.uuid.clone(), nvrtc: nvrtc.clone() }, label, env }
    });
    let slots = slots.collect();
    let notes = choices
        .iter()
        .map(|choice| format!("GPU {} {} {}: {}", choice.gpu.index, choice.gpu.name, choice.gpu.uuid, choice.why));
    let notes = notes.collect();
    let history = choices.first().map_or_else(String::new, |choice| choice.gpu.name.clone());
    Ok(Devices {
        target: Target::Cuda,
        slots,
        notes,
        choices,
        nvidia: Some(nvidia),
        history,
        again: " --gpus 1".into(),
    })
}
