//! Times a few fusions on the GPU under several settings of the heuristics.
//!
//! `tune NVRTC_FOLDER [WORKLOAD@KEY=VALUE,...]...`: each argument is one
//! variant of one workload, for example `softmax@norm.per_thread=64`; a
//! workload's name alone means the heuristic's own choice. Every variant is
//! compared with the reference before it is timed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

use engine::backend::cuda::{Device, LaunchArgs, LoadedKernel, Timer, TimingOptions, emit, nvrtc};
use engine::diag::Result;
use engine::fusion::{AxisDecl, Fusion, FusionBuilder};
use engine::kernel::{BufId, ParamKind};
use engine::num::DType;
use engine::options::{CompileCx, NoTrace, Options};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::util::quantile;
use engine::{compile, kernel, refeval};
use std::collections::BTreeMap;

const SIZES: [[i64; 2]; 2] = [[16384, 4096], [8192, 4097]];

fn fusion(name: &str) -> Result<Fusion> {
    let mut b = FusionBuilder::new(name);
    let sym = [AxisDecl::Symbolic, AxisDecl::Symbolic];
    let x = b.tensor("x", DType::BF16, &sym)?;
    let y = match name {
        "gelu" => {
            let y = b.tensor("y", DType::BF16, &sym)?;
            let z = b.tensor("z", DType::BF16, &sym)?;
            let p = b.mul(x, y)?;
            let s = b.add(p, z)?;
            b.gelu(s)?
        }
        "sum" => b.sum(x, &[1], false)?,
        "sum_outer" => b.sum(x, &[0], false)?,
        "sum_all" => b.sum(x, &[0, 1], false)?,
        "softmax" => b.softmax(x, -1)?,
        "rms" => {
            let w = b.tensor("w", DType::BF16, &[AxisDecl::Symbolic])?;
            b.rms_norm(x, Some(w.into()), 1e-6)?
        }
        _ => {
            let w = b.tensor("w", DType::BF16, &[AxisDecl::Symbolic])?;
            let bias = b.tensor("b", DType::BF16, &[AxisDecl::Symbolic])?;
            b.layer_norm(x, Some(w.into()), Some(bias.into()), 1e-5)?
        }
    };
    let y = b.cast(y, DType::BF16)?;
    b.output(y)?;
    b.finish()
}

fn random(sizes: &[i64], seed: u64) -> Result<HostTensor> {
    let count: i64 = sizes.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(2 * count as usize);
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0;
        data.extend(((unit.to_bits() >> 16) as u16).to_le_bytes());
    }
    let meta = engine::tensor::TensorMeta::contiguous(DType::BF16, sizes);
    HostTensor::new(meta, data, 0)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder with NVRTC");
    if let Err(error) = run(&folder, &arguments.collect::<Vec<_>>()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(folder: &str, variants: &[String]) -> Result<()> {
    let search = nvrtc::NvrtcSearch { path: None, folders: vec![folder.into()] };
    let compiler = nvrtc::Nvrtc::open(&search)?;
    let device = Device::open(0)?;
    let mut timer = Timer::new(&device, &compiler)?;
    println!(
        "{:44} {:>11} {:>9} {:>9} {:>7} {:>5} {:>5} check",
        "variant", "size", "us", "copy us", "share", "regs", "GB/s"
    );
    for sizes in SIZES {
        let mut done: BTreeMap<String, (Vec<Arg>, HostTensor)> = BTreeMap::new();
        for variant in variants {
            let (name, settings) = variant.split_once('@').unwrap_or((variant, ""));
            let fusion = fusion(name)?;
            if !done.contains_key(name) {
                done.clear();
                let args = fusion
                    .input_tensors()
                    .enumerate()
                    .map(|(i, (_, t))| {
                        let rank = fusion.tensors[t].axes.len();
                        random(&sizes[2 - rank..], i as u64 + 1).map(Arg::Tensor)
                    })
                    .collect::<Result<Vec<_>>>()?;
                let expected = refeval::evaluate(&fusion, &args)?.remove(0);
                done.insert(name.into(), (args, expected));
            }
            let (args, expected) = &done[name];
            let tuning = settings
                .split(',')
                .filter_map(|s| s.split_once('='))
                .map(|(k, v)| (k.to_string(), v.parse().unwrap_or(0)))
                .collect();
            let options = Options { tuning, ..Options::default() };
            let line = measure(&device, &compiler, &mut timer, &options, &fusion, args, expected);
            let size = format!("{}x{}", sizes[0], sizes[1]);
            match line {
                Ok(line) => println!("{variant:44} {size:>11} {line}"),
                Err(error) => println!("{variant:44} {size:>11} {error}"),
            }
        }
    }
    Ok(())
}

fn measure(
    device: &std::sync::Arc<Device>,
    compiler: &nvrtc::Nvrtc,
    timer: &mut Timer,
    options: &Options,
    fusion: &Fusion,
    args: &[Arg],
    expected: &HostTensor,
) -> Result<String> {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let cx = CompileCx { options, device: device.desc(), trace: &NoTrace };
    let compiled = compile::compile_fusion(&cx, fusion, &metas, &vec![16; metas.len()])?;
    let source = emit(&compiled.kernel);
    let cubin = compiler.compile(&source, &nvrtc::NvrtcOptions::new(device.desc().compute_capability, true))?;
    let loaded = LoadedKernel::load(device, &cubin.bytes, &source)?;
    let launch = kernel::bind(&compiled.kernel, &metas)?;
    let mut buffers: BTreeMap<BufId, _> = BTreeMap::new();
    let mut output = None;
    let mut bytes = 0;
    for (_, param) in compiled.kernel.params.iter() {
        let (buffer, input) = match param.kind {
            ParamKind::Input { input, buffer } => (buffer, Some(input)),
            ParamKind::Output { buffer, .. } => {
                output = Some(buffer);
                (buffer, None)
            }
            ParamKind::Workspace { buffer } => (buffer, None),
            _ => continue,
        };
        let size = launch.buffer_lens[buffer] as usize * compiled.kernel.buffers[buffer].dtype.bytes();
        let mut memory = device.alloc(size.max(16))?;
        memory.fill(0, size, 0)?;
        if let Some(Arg::Tensor(tensor)) = input.map(|input| &args[input as usize]) {
            memory.upload(0, &tensor.data)?;
        }
        if !matches!(param.kind, ParamKind::Workspace { .. }) {
            bytes += size as u64;
        }
        buffers.insert(buffer, memory);
    }
    let launch_args = LaunchArgs::new(&launch, |buffer| buffers[&buffer].address());
    loaded.launch(launch.grid, launch.block, &launch_args)?;
    device.synchronize()?;
    let mut actual = expected.clone();
    let output = output.expect("a fusion has an output");
    buffers[&output].download(0, &mut actual.data)?;
    let comparison = refeval::compare(&actual, expected, refeval::Tolerance { abs: 2e-2, rel: 2e-2 })?;
    let timing = TimingOptions { warmup: 3, samples: 25, flush_l2: true, copy_bytes: bytes };
    let samples = timer.measure(&timing, |_| loaded.launch(launch.grid, launch.block, &launch_args))?;
    let kernel_ns = quantile(&samples.launch_ns, 0.5).unwrap_or(f64::NAN);
    let copy_ns = quantile(&samples.copy_ns, 0.5).unwrap_or(f64::NAN);
    Ok(format!(
        "{:9.1} {:9.1} {:7.3} {:5} {:5.0} {}  [{}]",
        kernel_ns / 1e3,
        copy_ns / 1e3,
        copy_ns / kernel_ns,
        loaded.registers()?,
        bytes as f64 / kernel_ns,
        if comparison.mismatches == 0 { "ok".to_string() } else { format!("{} WRONG", comparison.mismatches) },
        compiled.params_text
    ))
}
