//! Calls on a GPU: compile, load, place the arguments, launch, bring the outputs back.

use super::bench::{BenchOptions, BenchReport};
use super::cache::Cache;
use super::plan::Plan;
use super::session::Ready;
use crate::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions, NvrtcSearch};
use crate::backend::cuda::{self, Device, DeviceBuffer, GuardedBuffer, LaunchArgs, LoadedKernel, Timer, TimingOptions};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ParamKind};
use crate::options::{CompileCx, Phase};
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::util::SecondaryMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Loaded kernels that are kept.
const MAX_KERNELS: usize = 1024;
/// What outputs hold before a launch: NaN as floats, -1 as integers.
const POISON: u8 = 0xff;
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
    // Inputs as the caller's storage, so that offsets and alignment are kept.
    inputs: Vec<DeviceBuffer>,
    outputs: Vec<GuardedBuffer>,
    workspaces: Vec<(BufId, DeviceBuffer)>,
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

    pub(super) fn run(&self, cx: &CompileCx<'_>, ready: &Ready, args: &[Arg]) -> Result<Vec<HostTensor>> {
        let kernel = self.load(cx, &ready.plan)?;
        let id = ready.plan.trace_id();
        let memory = self.place(ready, args)?;
        cx.span(Phase::Launch, kernel.name(), id, || {
            let block = LaunchArgs::new(&ready.launch, |buffer| memory.addresses[buffer]);
            kernel.launch(ready.launch.grid, ready.launch.block, &block)?;
            self.device.synchronize()
        })?;
        cx.span(Phase::Verify, "download", id, || memory.outputs(ready))
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
                        storage.fill(0, storage.len(), 0)?;
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
                    let mut storage = self.device.alloc(tensor.data.len())?;
                    storage.upload(0, &tensor.data)?;
                    memory.addresses.set(buffer, storage.address() + (tensor.offset * tensor.dtype().bytes()) as u64);
                    memory.inputs.push(storage);
                }
                ParamKind::Output { output, buffer } => {
                    memory.addresses.set(buffer, memory.outputs[output as usize].address());
                }
                ParamKind::Workspace { buffer } => {
                    let bytes = workspace_bytes(ready, buffer)?;
                    let mut storage = self.device.alloc(bytes)?;
                    storage.fill(0, bytes, if kernel.buffers[buffer].zeroed { 0 } else { POISON })?;
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
        for (position, (buffer, meta)) in self.outputs.iter().zip(&ready.outputs).enumerate() {
            buffer.check(&format!("output {position}"))?;
            let mut data = vec![0; meta.dense_bytes()?];
            buffer.download(&mut data)?;
            tensors.push(HostTensor { meta: meta.clone(), data, offset: 0 });
        }
        Ok(tensors)
    }
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
