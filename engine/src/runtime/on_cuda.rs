//! Calls on a GPU: compile, load, place the arguments, launch, bring the outputs back.

use super::bench::{BenchOptions, BenchReport};
use super::cache::Cache;
use super::plan::Plan;
use super::session::Ready;
use crate::backend::checks::{self, Elements};
use crate::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions, NvrtcSearch};
use crate::backend::cuda::{
    self, Device, DeviceBuffer, GuardedBuffer, LaunchArgs, LoadedKernel, Timer, TimingOptions, check_zones,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ParamKind};
use crate::options::{CompileCx, Phase, RunChecks};
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::util::SecondaryMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Loaded kernels that are kept.
const MAX_KERNELS: usize = 1024;
/// What outputs hold before a launch: NaN as floats, -1 as integers.
const POISON: u8 = 0xff;
/// What they hold before the launch that tells what was never written from results that look like it.
const OTHER_POISON: u8 = 0x5b;
/// Zeroed workspaces made ahead for a measurement.
const MADE_AHEAD: usize = 512;
/// Where a workspace starts among those made ahead, in bytes.
const WORKSPACE_ALIGN: usize = 256;

/// An open GPU with its compiler.
pub(super) struct Gpu {
    pub(super) device: Arc<Device>,
    nvrtc: Nvrtc,
    loaded: Cache<LoadedKernel>,
    timer: Mutex<Option<Timer>>,
}

/// The memory of one call.
struct Memory {
    // Inputs with their numbers, as the caller's storage, so that offsets and alignment are kept.
    inputs: Vec<(usize, GuardedBuffer)>,
    outputs: Vec<GuardedBuffer>,
    workspaces: Vec<(BufId, GuardedBuffer)>,
    addresses: SecondaryMap<BufId, u64>,
}

impl Gpu {
    pub(super) fn open(ordinal: usize, search: &NvrtcSearch) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let nvrtc = Nvrtc::open(search)?;
        Ok(Self { device, nvrtc, loaded: Cache::new(MAX_KERNELS), timer: Mutex::default() })
    }

    /// The library that compiles kernels, for reports.
    pub(super) fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
    }

    /// The plan's kernel on the device, compiled and loaded if its text is new.
    pub(super) fn load(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<Arc<LoadedKernel>> {
        self.loaded.get_or_try(plan.kernel_hash, || {
            let id = plan.trace_id();
            let name = plan.kernel.name.as_str();
            let source = cx.span(Phase::Codegen, "cuda", id, || cuda::emit(&plan.kernel));
            let options = NvrtcOptions::new(self.device.desc().compute_capability, cx.options.fmad);
            let cubin = cx.span(Phase::Codegen, name, id, || self.nvrtc.compile(&source, &options))?;
            cx.span(Phase::Load, name, id, || LoadedKernel::load(&self.device, &cubin.bytes, &source))
        })
    }

    pub(super) fn run(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        args: &[Arg],
        checks: &RunChecks,
    ) -> Result<Vec<HostTensor>> {
        let kernel = self.load(cx, &ready.plan)?;
        let id = ready.plan.trace_id();
        let mut memory = self.place(ready, args)?;
        self.launch(cx, ready, &kernel, &memory)?;
        cx.span(Phase::Verify, "download", id, || {
            if checks.red_zones {
                memory.check_zones(&kernel)?;
            }
            if checks.inputs {
                memory.check_inputs(ready, args)?;
            }
            memory.outputs(ready)
        })
        .and_then(|outputs| {
            if checks.unwritten {
                self.check_written(cx, ready, &kernel, &mut memory, &outputs)?;
            }
            Ok(outputs)
        })
    }

    fn launch(&self, cx: &CompileCx<'_>, ready: &Ready, kernel: &LoadedKernel, memory: &Memory) -> Result<()> {
        cx.span(Phase::Launch, kernel.name(), ready.plan.trace_id(), || {
            let block = LaunchArgs::new(&ready.launch, |buffer| memory.addresses[buffer]);
            kernel.launch(ready.launch.grid, ready.launch.block, &block)?;
            self.device.synchronize()
        })
    }

    /// Fails with `B0108` if a launch leaves elements of its outputs unwritten.
    /// One that holds the poison may be a result: then a second launch on other
    /// poison tells. Most outputs have no such element, and need none.
    fn check_written(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        kernel: &LoadedKernel,
        memory: &mut Memory,
        outputs: &[HostTensor],
    ) -> Result<()> {
        let suspect = |tensor: &HostTensor| poisoned(tensor).count > 0;
        if !outputs.iter().any(suspect) {
            return Ok(());
        }
        memory.reset(ready)?;
        self.launch(cx, ready, kernel, memory)?;
        let again = memory.outputs(ready)?;
        for (position, (first, second)) in outputs.iter().zip(&again).enumerate() {
            let elements = untouched(first, second);
            if elements.count > 0 {
                let fusion = &ready.plan.fusion;
                let name = fusion.outputs.get(position).map_or("", |output| fusion.tensors[*output].name.as_str());
                return Err(checks::unwritten(kernel.name(), position, name, &elements));
            }
        }
        Ok(())
    }

    pub(super) fn bench(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        args: &[Arg],
        options: &BenchOptions,
    ) -> Result<BenchReport> {
        let kernel = self.load(cx, &ready.plan)?;
        let memory = self.place(ready, args)?;
        let bytes_read = args.iter().map(distinct_bytes).sum();
        let bytes_written = ready.outputs.iter().map(|meta| meta.dense_bytes().unwrap_or(0) as u64).sum();
        let timing = TimingOptions {
            warmup: options.warmup,
            samples: options.samples,
            flush_l2: options.flush_l2,
            copy_bytes: if options.copy_ceiling { bytes_read + bytes_written } else { 0 },
        };
        let mut zeroed = self.zeroed_ahead(ready)?;
        let mut block = LaunchArgs::new(&ready.launch, |buffer| memory.addresses[buffer]);
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.is_none() {
            *timer = Some(Timer::new(&self.device, &self.nvrtc)?);
        }
        let Some(timer) = timer.as_mut() else { return Err(Diagnostic::bug("the timer was made above")) };
        let samples = timer.measure(&timing, |_| {
            if !zeroed.is_empty() {
                for ring in &mut zeroed {
                    ring.advance()?;
                }
                block.rebind(|buffer| {
                    zeroed.iter().find(|ring| ring.buffer == buffer).map_or(memory.addresses[buffer], Ring::address)
                });
            }
            kernel.launch(ready.launch.grid, ready.launch.block, &block)
        })?;
        Ok(BenchReport { kernel_ns: samples.launch_ns, copy_ns: samples.copy_ns, bytes_read, bytes_written })
    }

    pub(super) fn host_calls(
        &self,
        cx: &CompileCx<'_>,
        args: &[Arg],
        calls: u32,
        ready: &dyn Fn() -> Result<Arc<Ready>>,
    ) -> Result<()> {
        let mut memory = self.place(&*ready()?, args)?;
        for _ in 0..calls {
            cx.span(Phase::Launch, "host call", 0, || {
                let ready = ready()?;
                let kernel = self.load(cx, &ready.plan)?;
                for (buffer, storage) in &mut memory.workspaces {
                    if ready.plan.kernel.buffers[*buffer].zeroed {
                        storage.fill(0)?;
                    }
                }
                let block = LaunchArgs::new(&ready.launch, |buffer| memory.addresses[buffer]);
                kernel.launch(ready.launch.grid, ready.launch.block, &block)
            })?;
            self.device.synchronize()?;
        }
        Ok(())
    }

    /// Copies inputs in, makes outputs and workspaces.
    fn place(&self, ready: &Ready, args: &[Arg]) -> Result<Memory> {
        let kernel = &ready.plan.kernel;
        let mut memory =
            Memory { inputs: Vec::new(), outputs: Vec::new(), workspaces: Vec::new(), addresses: SecondaryMap::new() };
        for meta in &ready.outputs {
            memory.outputs.push(GuardedBuffer::new(&self.device, meta.dense_bytes()?, POISON)?);
        }
        for param in kernel.params.values() {
            match param.kind {
                ParamKind::Input { input, buffer } => {
                    let Some(Arg::Tensor(tensor)) = args.get(input as usize) else {
                        return Err(Diagnostic::bug(format!(
                            "argument {input} of kernel {} is no tensor",
                            kernel.name
                        )));
                    };
                    let storage = GuardedBuffer::holding(&self.device, &tensor.data)?;
                    memory.addresses.set(buffer, storage.address() + (tensor.offset * tensor.dtype().bytes()) as u64);
                    memory.inputs.push((input as usize, storage));
                }
                ParamKind::Output { output, buffer } => {
                    memory.addresses.set(buffer, memory.outputs[output as usize].address());
                }
                ParamKind::Workspace { buffer } => {
                    let bytes = workspace_bytes(ready, buffer)?;
                    let fill = if kernel.buffers[buffer].zeroed { 0 } else { POISON };
                    let storage = GuardedBuffer::new(&self.device, bytes, fill)?;
                    memory.addresses.set(buffer, storage.address());
                    memory.workspaces.push((buffer, storage));
                }
                ParamKind::Size { .. }
                | ParamKind::Stride { .. }
                | ParamKind::Scalar { .. }
                | ParamKind::Derived(_) => {}
            }
        }
        Ok(memory)
    }

    fn zeroed_ahead(&self, ready: &Ready) -> Result<Vec<Ring>> {
        let kernel = &ready.plan.kernel;
        let zeroed = kernel.buffers.iter().filter(|(_, buffer)| buffer.zeroed).map(|(id, _)| id);
        zeroed.map(|buffer| Ring::new(&self.device, buffer, workspace_bytes(ready, buffer)?)).collect()
    }
}

impl Memory {
    fn outputs(&self, ready: &Ready) -> Result<Vec<HostTensor>> {
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for (buffer, meta) in self.outputs.iter().zip(&ready.outputs) {
            let mut data = vec![0; meta.dense_bytes()?];
            buffer.download(&mut data)?;
            tensors.push(HostTensor { meta: meta.clone(), data, offset: 0 });
        }
        Ok(tensors)
    }

    /// Every buffer of the call, and what the kernel keeps between calls.
    fn check_zones(&self, kernel: &LoadedKernel) -> Result<()> {
        let mut named: Vec<(String, &GuardedBuffer)> = Vec::new();
        named.extend(self.inputs.iter().map(|(input, buffer)| (format!("input {input}"), buffer)));
        named.extend(self.outputs.iter().enumerate().map(|(output, buffer)| (format!("output {output}"), buffer)));
        named.extend(self.workspaces.iter().map(|(id, buffer)| (format!("workspace {id}"), buffer)));
        named.extend(kernel.barrier().map(|buffer| ("grid barrier".to_string(), buffer)));
        let named: Vec<(&str, &GuardedBuffer)> = named.iter().map(|(name, buffer)| (name.as_str(), *buffer)).collect();
        check_zones(&named)
    }

    fn check_inputs(&self, ready: &Ready, args: &[Arg]) -> Result<()> {
        for (input, buffer) in &self.inputs {
            let Some(Arg::Tensor(tensor)) = args.get(*input) else { continue };
            let name = ready.plan.kernel.name.as_str();
            buffer
                .check_unchanged(&format!("input {input}"), &tensor.data)
                .map_err(|error| error.note(format!("by kernel {name}")))?;
        }
        Ok(())
    }

    /// Makes everything that a launch writes as it was, but for the poison.
    fn reset(&mut self, ready: &Ready) -> Result<()> {
        for (buffer, storage) in &mut self.workspaces {
            storage.fill(if ready.plan.kernel.buffers[*buffer].zeroed { 0 } else { POISON })?;
        }
        self.outputs.iter_mut().try_for_each(|output| output.fill(OTHER_POISON))
    }
}

/// The elements of an output that hold the poison: unwritten, or results that look like it.
fn poisoned(tensor: &HostTensor) -> Elements {
    checks::elements_where(&tensor.data, tensor.dtype().bytes(), |_, bytes| checks::is_poison(bytes, POISON))
}

/// The elements that hold the poison of the first launch and, after the second, that of the second.
fn untouched(first: &HostTensor, second: &HostTensor) -> Elements {
    let width = second.dtype().bytes().max(1);
    checks::elements_where(&first.data, width, |number, bytes| {
        let again = second.data.get(number * width..(number + 1) * width).unwrap_or_default();
        checks::is_poison(bytes, POISON) && checks::is_poison(again, OTHER_POISON)
    })
}

/// Zeroed workspaces, one for each launch of a measurement, so that zeroing is
/// not measured.
struct Ring {
    buffer: BufId,
    storage: DeviceBuffer,
    stride: usize,
    used: usize,
}

impl Ring {
    fn new(device: &Arc<Device>, buffer: BufId, bytes: usize) -> Result<Self> {
        let stride = bytes.max(1).next_multiple_of(WORKSPACE_ALIGN);
        Ok(Self { buffer, storage: device.alloc(stride * MADE_AHEAD)?, stride, used: MADE_AHEAD })
    }
    /// Takes the next workspace; zeroes all of them when none is left.
    fn advance(&mut self) -> Result<()> {
        self.used += 1;
        if self.used >= MADE_AHEAD {
            self.used = 0;
            self.storage.fill(0, self.stride * MADE_AHEAD, 0)?;
        }
        Ok(())
    }
    fn address(&self) -> u64 {
        self.storage.address() + (self.used * self.stride) as u64
    }
}

fn workspace_bytes(ready: &Ready, buffer: BufId) -> Result<usize> {
    let element = ready.plan.kernel.buffers[buffer].dtype.bytes();
    usize::try_from(ready.launch.buffer_lens[buffer])
        .ok()
        .and_then(|len| len.checked_mul(element))
        .ok_or_else(|| Diagnostic::bug(format!("workspace {buffer} has no size in bytes")))
}

/// Bytes of the elements of an argument that differ in place: an expanded axis counts once.
fn distinct_bytes(arg: &Arg) -> u64 {
    let Arg::Tensor(HostTensor { meta: TensorMeta { dtype, sizes, strides }, .. }) = arg else { return 0 };
    let moving = sizes.iter().zip(strides).filter(|(_, stride)| **stride != 0);
    let elements = moving.fold(1u64, |product, (size, _)| product.saturating_mul(size.unsigned_abs()));
    if sizes.contains(&0) { 0 } else { elements.saturating_mul(dtype.bytes() as u64) }
}
