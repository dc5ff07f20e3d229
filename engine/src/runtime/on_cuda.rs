//! Calls on a GPU: compile, load, place the arguments, launch, bring the outputs back.

use super::bench::{BenchOptions, BenchReport};
use super::cache::Cache;
use super::plan::Plan;
use super::session::Ready;
use crate::backend::cuda::nvrtc::{CompileText, Nvrtc, NvrtcOptions, NvrtcSearch};
use crate::backend::cuda::{
    self, CallMemory, CompiledCubin, Compiler, Device, DeviceBuffer, LaunchArgs, LoadedKernel, Timer, TimingOptions,
};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ParamKind};
use crate::options::{CompileCx, Phase, RunChecks};
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::util::SecondaryMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Loaded kernels that are kept.
const MAX_KERNELS: usize = 1024;
/// Zeroed workspaces made ahead for a measurement.
const MADE_AHEAD: usize = 512;
/// Where a workspace starts among those made ahead, in bytes.
const WORKSPACE_ALIGN: usize = 256;

/// An open GPU with its compiler.
pub(super) struct CudaBackend {
    pub(super) device: Arc<Device>,
    pub(super) compiler: Compiler,
    loaded: Cache<Loaded>,
    timer: Mutex<Option<Timer>>,
}

/// The name of the empty span of phase `Codegen` that a run has whose kernel's
/// code was found in the store: in this run, or before it.
pub const CACHED: &str = "cached";

/// A kernel on the device.
pub(super) struct Loaded {
    kernel: LoadedKernel,
    /// Whether its code was found in the store.
    found: bool,
}

/// The memory of one call.
struct LaunchMemory {
    call: CallMemory,
    /// The numbers of the inputs, in the order of the call's.
    inputs: Vec<usize>,
    addresses: SecondaryMap<BufId, u64>,
}

impl CudaBackend {
    pub(super) fn open(ordinal: usize, search: &NvrtcSearch) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let compiler = Compiler::new(Nvrtc::open(search)?);
        Ok(Self { device, compiler, loaded: Cache::new(MAX_KERNELS), timer: Mutex::default() })
    }

    /// The library that compiles kernels, for reports.
    pub(super) fn nvrtc(&self) -> &Nvrtc {
        self.compiler.nvrtc()
    }

    /// Whether another thread is compiling the plan's kernel.
    pub(super) fn is_loading(&self, plan: &Plan) -> bool {
        self.loaded.is_pending(plan.kernel_hash)
    }

    /// The plan's kernel on the device, compiled and loaded if its text is new.
    pub(super) fn load(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<Arc<Loaded>> {
        self.load_with(cx, plan, None)
    }

    /// The same, its text compiled by `other` than this process's compiler.
    pub(super) fn load_with(
        &self,
        cx: &CompileCx<'_>,
        plan: &Plan,
        other: Option<&dyn CompileText>,
    ) -> Result<Arc<Loaded>> {
        self.loaded.get_or_try(plan.kernel_hash, || {
            let id = plan.trace_id();
            let name = plan.kernel.name.as_str();
            let source = cx.span(Phase::Codegen, "cuda", id, || cuda::emit(&plan.kernel));
            let options = NvrtcOptions {
                line_info: cx.options.line_info,
                ..NvrtcOptions::new(self.device.desc().compute_capability, cx.options.fmad)
            };
            let CompiledCubin { cubin, found } = self.compiler.compile_with(cx, other, &source, &options, id)?;
            let kernel = cx.span(Phase::Load, name, id, || LoadedKernel::load(&self.device, &cubin.bytes, &source))?;
            Ok(Loaded { kernel, found })
        })
    }

    pub(super) fn run(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        args: &[Arg],
        checks: &RunChecks,
    ) -> Result<Vec<HostTensor>> {
        let loaded = self.load(cx, &ready.plan)?;
        let kernel = &loaded.kernel;
        let id = ready.plan.trace_id();
        if loaded.found {
            cx.span(Phase::Codegen, CACHED, id, || ());
        }
        let mut memory = self.place(ready, args)?;
        self.launch(cx, ready, kernel, &memory.addresses)?;
        let outputs = cx.span(Phase::Verify, "download", id, || {
            if checks.red_zones {
                memory.call.check_zones(kernel)?;
            }
            if checks.inputs {
                memory.call.check_inputs(kernel, memory.inputs.iter().map(|&input| (input, storage(args, input))))?;
            }
            memory.call.outputs()
        })?;
        if checks.unwritten {
            let fusion = &ready.plan.fusion;
            let name = |output: usize| fusion.tensors[fusion.outputs[output]].name.clone();
            let addresses = &memory.addresses;
            let again = || self.launch(cx, ready, kernel, addresses);
            memory.call.check_written(kernel, &outputs, name, again)?;
        }
        let tensor = |(data, meta): (Vec<u8>, &TensorMeta)| HostTensor { meta: meta.clone(), data, offset: 0 };
        Ok(outputs.into_iter().zip(&ready.outputs).map(tensor).collect())
    }

    /// Launches once and waits.
    fn launch(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        kernel: &LoadedKernel,
        addresses: &SecondaryMap<BufId, u64>,
    ) -> Result<()> {
        cx.span(Phase::Launch, kernel.name(), ready.plan.trace_id(), || {
            let block = LaunchArgs::new(&ready.launch, |buffer| addresses[buffer]);
            kernel.launch(ready.launch.grid, ready.launch.block, &block)?;
            self.device.synchronize()
        })
    }

    pub(super) fn bench(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        args: &[Arg],
        options: &BenchOptions,
    ) -> Result<BenchReport> {
        let loaded = self.load(cx, &ready.plan)?;
        let kernel = &loaded.kernel;
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
            *timer = Some(Timer::new(&self.device, self.nvrtc())?);
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
                let loaded = self.load(cx, &ready.plan)?;
                memory.call.zero()?;
                let block = LaunchArgs::new(&ready.launch, |buffer| memory.addresses[buffer]);
                loaded.kernel.launch(ready.launch.grid, ready.launch.block, &block)
            })?;
            self.device.synchronize()?;
        }
        Ok(())
    }

    /// Copies inputs in, makes outputs and workspaces.
    fn place(&self, ready: &Ready, args: &[Arg]) -> Result<LaunchMemory> {
        let kernel = &ready.plan.kernel;
        let call = CallMemory::new(&self.device);
        let mut memory = LaunchMemory { call, inputs: Vec::new(), addresses: SecondaryMap::new() };
        let mut outputs = Vec::with_capacity(ready.outputs.len());
        for meta in &ready.outputs {
            outputs.push(memory.call.output(meta.dense_bytes()?, meta.dtype.bytes())?);
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
                    // The caller's storage as a whole, so that offsets and alignment are kept.
                    let start = memory.call.input(&tensor.data)?;
                    memory.addresses.set(buffer, start + (tensor.offset * tensor.dtype().bytes()) as u64);
                    memory.inputs.push(input as usize);
                }
                ParamKind::Output { output, buffer } => memory.addresses.set(buffer, outputs[output as usize]),
                ParamKind::Workspace { buffer } => {
                    let bytes = workspace_bytes(ready, buffer)?;
                    let address = memory.call.workspace(bytes, kernel.buffers[buffer].zeroed)?;
                    memory.addresses.set(buffer, address);
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

/// The bytes of an argument.
fn storage(args: &[Arg], input: usize) -> &[u8] {
    match args.get(input) {
        Some(Arg::Tensor(tensor)) => &tensor.data,
        _ => &[],
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
