//! Bare kernels on a device, without the runtime around them.
//!
//! In: a kernel, its launch, its arguments. Out: the bytes of each output, by its number. On a GPU
//! all memory lies between zones, and outputs start as bytes that no result has throughout.

use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions};
use engine::backend::cuda::{Device, GuardedBuffer, LaunchArgs, LoadedKernel, check_zones, emit};
use engine::backend::sim;
use engine::diag::{Diagnostic, Result};
use engine::kernel::{BoundLaunch, Kernel, ParamKind};
use engine::options::SimOptions;
use engine::tensor::Arg;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bytes of each output.
pub(crate) type Outputs = BTreeMap<u32, Vec<u8>>;

/// Runs a kernel on the simulator; an element that nobody wrote is an error.
pub(crate) fn on_simulator(
    kernel: &Kernel,
    launch: &BoundLaunch,
    args: &[Arg],
    options: &SimOptions,
) -> Result<Outputs> {
    let mut memory = sim::SimMemory::new(kernel, launch);
    for (i, arg) in args.iter().enumerate() {
        if let Arg::Tensor(tensor) = arg {
            memory.fill_input(i as u32, &tensor.data)?;
        }
    }
    let report = sim::run(kernel, launch, &mut memory, options)?;
    if report.unwritten.iter().any(|(.., missing)| *missing > 0) {
        return Err(Diagnostic::bug(format!("elements are not written: {:?}", report.unwritten)));
    }
    let numbers = report.unwritten.iter().map(|(output, ..)| *output);
    Ok(numbers.map(|output| (output, memory.output(output).unwrap_or_default().to_vec())).collect())
}

/// Compiles a kernel for a GPU and loads it there.
pub(crate) fn load(device: &Arc<Device>, nvrtc: &Nvrtc, kernel: &Kernel) -> Result<LoadedKernel> {
    let source = emit(kernel);
    let options = NvrtcOptions::new(device.desc().compute_capability, true);
    let cubin = nvrtc.compile(&source, &options)?;
    LoadedKernel::load(device, &cubin.bytes, &source)
}

/// Runs a loaded kernel.
pub(crate) fn on_gpu(loaded: &LoadedKernel, kernel: &Kernel, launch: &BoundLaunch, args: &[Arg]) -> Result<Outputs> {
    let (mut buffers, mut outputs) = (BTreeMap::new(), Vec::new());
    for param in kernel.params.values() {
        let (ParamKind::Input { buffer, .. } | ParamKind::Output { buffer, .. } | ParamKind::Workspace { buffer }) =
            param.kind
        else {
            continue;
        };
        let facts = &kernel.buffers[buffer];
        let bytes = launch.buffer_lens.get(buffer).copied().unwrap_or(0) as usize * facts.dtype.bytes();
        let mut memory = GuardedBuffer::new(loaded.device(), bytes, if facts.zeroed { 0 } else { 0xff })?;
        match param.kind {
            ParamKind::Input { input, .. } => {
                if let Some(Arg::Tensor(tensor)) = args.get(input as usize) {
                    memory.upload(&tensor.data[..bytes.min(tensor.data.len())])?;
                }
            }
            ParamKind::Output { output, .. } => outputs.push((output, buffer, bytes)),
            _ => {}
        }
        buffers.insert(buffer, memory);
    }
    let addresses = LaunchArgs::new(launch, |buffer| buffers.get(&buffer).map_or(0, GuardedBuffer::address));
    loaded.launch(launch.grid, launch.block, &addresses)?;
    let mut found = Outputs::new();
    for (output, buffer, bytes) in outputs {
        let mut data = vec![0; bytes];
        buffers[&buffer].download(&mut data)?;
        found.insert(output, data);
    }
    let names: Vec<String> = buffers.keys().map(ToString::to_string).collect();
    let zones: Vec<(&str, &GuardedBuffer)> = names.iter().map(String::as_str).zip(buffers.values()).collect();
    check_zones(&zones)?;
    Ok(found)
}
