//! Times on the GPU the ways in which a heuristic could schedule fusions of rows.
//!
//! `tune NVRTC_FOLDER FUSIONS CHOICES [NAME=VALUE...] MxN...`: FUSIONS is a file of fusions whose
//! inputs are `[m, n]`, `[m, 1]` or `[n]`; a tuning parameter NAME is VALUE in all ways. For each
//! of them and each size, the first CHOICES ways are tried in the order of the heuristic's costs
//! (`norm.choice` and the like), and a line of CSV tells each: time, share of a copy of the same bytes, registers, bytes
//! spilled, and the elements by which the first output differs from the first
//! way's. Compiles on several threads, as far as NVRTC does; times one kernel at a time.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

use engine::backend::cuda::{Device, DeviceBuffer, LaunchArgs, LoadedKernel, Timer, TimingOptions, emit, nvrtc};
use engine::compile::{CompiledFusion, compile_fusion};
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{Axis, AxisKind, Fusion};
use engine::kernel::{self, BufId, ParamKind};
use engine::num::DType;
use engine::options::{CompileCx, NoTrace, Options};
use engine::refeval::{Tolerance, compare};
use engine::tensor::{ArgMeta, HostTensor, TensorMeta};
use engine::text;
use engine::util::quantile;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What says which way is taken.
const CHOICES: [&str; 4] = ["norm.choice", "inner_outer.choice", "grid_persistent.choice", "folded_columns.choice"];
/// Elements of the first output that are compared.
const COMPARED: usize = 1 << 18;

/// A fusion at one size.
struct Workload<'a> {
    fusion: &'a Fusion,
    /// What all ways have in common.
    settings: &'a [(String, i64)],
    size: [i64; 2],
    args: Vec<ArgMeta>,
}

/// One way to schedule it, and its machine code.
struct Candidate {
    workload: usize,
    choice: usize,
    compiled: CompiledFusion,
    loaded: Result<LoadedKernel>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, file, choices, others @ ..] = arguments.as_slice() else {
        eprintln!("usage: tune NVRTC_FOLDER FUSIONS CHOICES [NAME=VALUE...] MxN...");
        std::process::exit(2);
    };
    if let Err(error) = run(folder, file, choices, others) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn user(message: String) -> Box<Diagnostic> {
    Diagnostic::user(code::TUNING, message)
}

fn run(folder: &str, file: &str, choices: &str, others: &[String]) -> Result<()> {
    let source = std::fs::read_to_string(file).map_err(|error| user(format!("{file}: {error}")))?;
    let parsed = text::parse(&source).map_err(|mut errors| Box::new(errors.remove(0)))?;
    let choices = choices.parse().map_err(|_| user(format!("`{choices}` is no number of choices")))?;
    let (settings, sizes): (Vec<&String>, Vec<&String>) = others.iter().partition(|word| word.contains('='));
    let settings = settings.into_iter().map(|word| parse_setting(word)).collect::<Result<Vec<_>>>()?;
    let sizes = sizes.into_iter().map(|size| parse_size(size)).collect::<Result<Vec<_>>>()?;
    let workloads: Vec<Workload<'_>> = sizes
        .iter()
        .flat_map(|size| parsed.fusions.iter().map(|parsed| workload(&parsed.fusion, &settings, *size)))
        .collect::<Result<_>>()?;
    let device = Device::open(0)?;
    let search = nvrtc::NvrtcSearch { path: None, folders: vec![folder.into()] };
    let compiler = nvrtc::Nvrtc::open(&search)?;
    let candidates = compile_all(&device, &compiler, &workloads, choices);
    let mut timer = Timer::new(&device, &compiler)?;
    println!("fusion,m,n,choice,us,copy_us,share,registers,local_bytes,different,params");
    for (index, workload) in workloads.iter().enumerate() {
        let mut memory = Memory::new(&device, workload)?;
        for candidate in candidates.iter().filter(|candidate| candidate.workload == index) {
            let [m, n] = workload.size;
            let line = measure(&mut timer, &mut memory, candidate).unwrap_or_else(|error| format!("{error}"));
            println!("{},{m},{n},{},{line},{}", workload.fusion.name, candidate.choice, candidate.compiled.params_text);
        }
    }
    Ok(())
}

fn parse_setting(word: &str) -> Result<(String, i64)> {
    let setting = word.split_once('=').and_then(|(name, value)| Some((name.to_string(), value.parse().ok()?)));
    setting.ok_or_else(|| user(format!("`{word}` is no setting NAME=VALUE")))
}

fn parse_size(size: &str) -> Result<[i64; 2]> {
    let sizes = size.split_once('x').and_then(|(m, n)| Some([m.parse().ok()?, n.parse().ok()?]));
    sizes.ok_or_else(|| user(format!("`{size}` is no size MxN")))
}

fn workload<'a>(fusion: &'a Fusion, settings: &'a [(String, i64)], size: [i64; 2]) -> Result<Workload<'a>> {
    let args = fusion.input_tensors().map(|(_, tensor)| {
        let data = &fusion.tensors[tensor];
        let rank = data.axes.len().min(2);
        let of = |(axis, size): (&Axis, &i64)| if axis.kind == AxisKind::Broadcast { 1 } else { *size };
        let sizes: Vec<i64> = data.axes.iter().zip(&size[2 - rank..]).map(of).collect();
        ArgMeta::Tensor(TensorMeta::contiguous(data.dtype, &sizes))
    });
    Ok(Workload { fusion, settings, size, args: args.collect() })
}

/// Compiles the first choices of all workloads, each different one once, on all
/// cores; in the order of workloads and choices.
fn compile_all(
    device: &Arc<Device>,
    compiler: &nvrtc::Nvrtc,
    workloads: &[Workload<'_>],
    choices: usize,
) -> Vec<Candidate> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let (workload, choice) = (job / choices, job % choices);
                    if workload >= workloads.len() {
                        return;
                    }
                    if let Some(candidate) = compile_one(device, compiler, workloads, workload, choice) {
                        done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(candidate);
                    }
                }
            });
        }
    });
    let mut all = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.sort_by_key(|candidate| (candidate.workload, candidate.choice));
    all
}

/// None where there are fewer choices.
fn compile_one(
    device: &Arc<Device>,
    compiler: &nvrtc::Nvrtc,
    workloads: &[Workload<'_>],
    workload: usize,
    choice: usize,
) -> Option<Candidate> {
    let Workload { fusion, settings, args, .. } = &workloads[workload];
    let scheduled = |choice: usize| {
        let choices = CHOICES.map(|name| (name.to_string(), choice as i64));
        let tuning = choices.into_iter().chain(settings.iter().cloned()).collect();
        let options = Options { tuning, ..Options::default() };
        let cx = CompileCx { options: &options, device: device.desc(), trace: &NoTrace };
        compile_fusion(&cx, fusion, args, &vec![16; args.len()])
    };
    let told = |error: Box<Diagnostic>| eprintln!("{} {choice}: {error}", fusion.name);
    let compiled = scheduled(choice).map_err(told).ok()?;
    if choice > 0 && scheduled(choice - 1).is_ok_and(|before| before.params_text == compiled.params_text) {
        return None;
    }
    let source = emit(&compiled.kernel);
    let loaded = compiler
        .compile(&source, &nvrtc::NvrtcOptions::new(device.desc().compute_capability, true))
        .and_then(|cubin| LoadedKernel::load(device, &cubin.bytes, &source));
    Some(Candidate { workload, choice, compiled, loaded })
}

/// The arrays of a workload on the device.
struct Memory {
    device: Arc<Device>,
    args: Vec<ArgMeta>,
    inputs: Vec<Option<DeviceBuffer>>,
    outputs: BTreeMap<u32, DeviceBuffer>,
    /// Bytes of all of them.
    traffic: u64,
    /// What the first choice left in the first output.
    first: Option<HostTensor>,
}

impl Memory {
    fn new(device: &Arc<Device>, workload: &Workload<'_>) -> Result<Self> {
        let mut traffic = 0;
        let mut inputs = Vec::new();
        for (seed, arg) in workload.args.iter().enumerate() {
            let ArgMeta::Tensor(meta) = arg else {
                inputs.push(None);
                continue;
            };
            let bytes = meta.sizes.iter().product::<i64>() as usize * meta.dtype.bytes();
            let block = random(meta.dtype, seed as u64 + 1);
            let mut memory = device.alloc(bytes.max(16))?;
            for at in (0..bytes).step_by(block.len()) {
                memory.upload(at, &block[..block.len().min(bytes - at)])?;
            }
            traffic += bytes as u64;
            inputs.push(Some(memory));
        }
        let args = workload.args.clone();
        Ok(Self { device: device.clone(), args, inputs, outputs: BTreeMap::new(), traffic, first: None })
    }
}

/// A mebibyte of values: from -1 to 1, or 0 and 1.
fn random(dtype: DType, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0
    };
    let count = (1 << 20) / dtype.bytes();
    let values = (0..count).map(|_| next());
    match dtype {
        DType::F32 => values.flat_map(f32::to_le_bytes).collect(),
        DType::BF16 => values.flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect(),
        DType::Bool => values.map(|value| u8::from(value > -0.8)).collect(),
        _ => vec![0; 1 << 20],
    }
}

fn measure(timer: &mut Timer, memory: &mut Memory, candidate: &Candidate) -> Result<String> {
    let loaded = candidate.loaded.as_ref().map_err(Clone::clone)?;
    let kernel = &candidate.compiled.kernel;
    let launch = kernel::bind(kernel, &memory.args)?;
    let mut workspaces: BTreeMap<BufId, DeviceBuffer> = BTreeMap::new();
    let mut outputs: BTreeMap<BufId, u32> = BTreeMap::new();
    let mut first = None;
    for (_, param) in kernel.params.iter() {
        let size = |buffer: BufId| launch.buffer_lens[buffer] as usize * kernel.buffers[buffer].dtype.bytes();
        match param.kind {
            ParamKind::Output { buffer, output, .. } => {
                if !memory.outputs.contains_key(&output) {
                    memory.outputs.insert(output, memory.device.alloc(size(buffer).max(16))?);
                    memory.traffic += size(buffer) as u64;
                }
                outputs.insert(buffer, output);
                first = first.or(Some((output, kernel.buffers[buffer].dtype, size(buffer))));
            }
            ParamKind::Workspace { buffer } => {
                let mut zeroed = memory.device.alloc(size(buffer).max(16))?;
                zeroed.fill(0, size(buffer), 0)?;
                workspaces.insert(buffer, zeroed);
            }
            _ => {}
        }
    }
    let inputs: BTreeMap<BufId, usize> = kernel
        .params
        .iter()
        .filter_map(|(_, param)| match param.kind {
            ParamKind::Input { input, buffer } => Some((buffer, input as usize)),
            _ => None,
        })
        .collect();
    let address = |buffer: BufId| {
        let input = inputs.get(&buffer).and_then(|input| memory.inputs[*input].as_ref());
        let output = outputs.get(&buffer).and_then(|output| memory.outputs.get(output));
        input.or(output).or_else(|| workspaces.get(&buffer)).map_or(0, DeviceBuffer::address)
    };
    let launch_args = LaunchArgs::new(&launch, address);
    loaded.launch(launch.grid, launch.block, &launch_args)?;
    memory.device.synchronize()?;
    let mut different = 0;
    if let Some((output, dtype, bytes)) = first {
        let count = COMPARED.min(bytes / dtype.bytes());
        let meta = TensorMeta::contiguous(dtype, &[count as i64]);
        let mut data = vec![0; count * dtype.bytes()];
        // The end of the output, where what rows leave over is.
        memory.outputs[&output].download(bytes - data.len(), &mut data)?;
        let actual = HostTensor::new(meta, data, 0)?;
        match &memory.first {
            Some(first) => different = compare(&actual, first, Tolerance { abs: 2e-2, rel: 2e-2 })?.mismatches,
            None => memory.first = Some(actual),
        }
    }
    let copy_bytes = memory.traffic;
    let timing = TimingOptions { warmup: 2, samples: 15, flush_l2: true, copy_bytes, issues: 1, stretch_ppm: 0 };
    let samples = timer.measure(&timing, |_| loaded.launch(launch.grid, launch.block, &launch_args))?;
    let [kernel_ns, copy_ns] =
        [&samples.launch_ns, &samples.copy_ns].map(|times| quantile(times, 0.5).unwrap_or(f64::NAN));
    Ok(format!(
        "{:.2},{:.2},{:.4},{},{},{different}",
        kernel_ns / 1e3,
        copy_ns / 1e3,
        copy_ns / kernel_ns,
        loaded.registers()?,
        loaded.local_bytes()?,
    ))
}
