//! One device and the plans compiled for it.

use super::bench::{BenchOptions, BenchReport};
use super::cache::Cache;
use super::key::{Keys, keys, session_key};
use super::on_cuda::CudaBackend;
use super::on_sim::Simulator;
use super::plan::Plan;
use crate::backend::cuda::nvrtc::{CompileText, Nvrtc, NvrtcSearch};
use crate::backend::cuda::{CodeCounts, CodeStore, Device};
use crate::backend::sim::{Heap, SimReport};
use crate::compile::{self, BoundFusion, output_metas, prepare};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{self, Fusion};
use crate::kernel::{self, BoundLaunch, Kernel, ParamKind};
use crate::options::{CompileCx, DeviceDesc, Options, RunChecks, SimOptions, Trace};
use crate::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use crate::text;
use crate::util::Hash128;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Plans that a session keeps.
const MAX_PLANS: usize = 1024;
/// Ready argument blocks that a session keeps.
const MAX_LAUNCHES: usize = 4096;
/// Alignment in bytes that is told apart: one vector access.
const MAX_ALIGN: u32 = 16;

/// A device, simulated or real, and the plans compiled for it.
pub struct Session {
    device: DeviceDesc,
    options: Options,
    checks: RunChecks,
    backend: Backend,
    key: Hash128,
    plans: Cache<Plan>,
    launches: Cache<Ready>,
}

/// What executes kernels.
enum Backend {
    Simulator(Box<Simulator>),
    Gpu(Box<CudaBackend>),
}

/// A call with every number known.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) plan: Arc<Plan>,
    pub(super) launch: Arc<BoundLaunch>,
    /// Type and layout of each output.
    pub(super) outputs: Vec<TensorMeta>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The outputs of the fusion in order, laid out as the reference lays them
    /// out if that is dense, else row-major.
    pub outputs: Vec<HostTensor>,
    /// What was run.
    pub plan: Arc<Plan>,
    /// How it was launched.
    pub launch: Arc<BoundLaunch>,
    /// What the simulator counted; none on a GPU and where nothing was launched.
    pub sim: Option<SimReport>,
}

/// Memory of a device in bytes, by who holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In buffers of calls of this session: nothing between two calls.
    pub live: u64,
    /// In buffers of this session that outlive calls.
    pub kept: u64,
    /// Given back by calls, and ready to be handed out again.
    pub cached: u64,
    /// Free, as the driver counts for all processes.
    pub free: u64,
    /// Of the device.
    pub total: u64,
}

impl Session {
    /// A simulated device.
    pub fn simulator(device: DeviceDesc, sim: SimOptions, options: Options) -> Self {
        Self::new(device, options, Backend::Simulator(Box::new(Simulator::new(sim))))
    }

    /// The GPU with this ordinal among those that the process sees. NVRTC is
    /// looked for where installers put it.
    pub fn cuda(ordinal: usize, options: Options) -> Result<Self> {
        Self::cuda_with(ordinal, options, &NvrtcSearch::default())
    }

    /// The GPU with this ordinal, with NVRTC looked for where `search` says.
    pub fn cuda_with(ordinal: usize, options: Options, search: &NvrtcSearch) -> Result<Self> {
        let gpu = CudaBackend::open(ordinal, search)?;
        Ok(Self::new(gpu.device.desc().clone(), options, Backend::Gpu(Box::new(gpu))))
    }

    /// The first GPU, or where there is none the simulator.
    pub fn any(options: Options) -> Self {
        Self::cuda(0, options.clone())
            .unwrap_or_else(|_| Self::simulator(DeviceDesc::h200(), SimOptions::default(), options))
    }

    fn new(device: DeviceDesc, options: Options, backend: Backend) -> Self {
        let key = session_key(&device, &options);
        let checks = RunChecks::ALL;
        Self { device, options, checks, backend, key, plans: Cache::new(MAX_PLANS), launches: Cache::new(MAX_LAUNCHES) }
    }

    /// The same session with other checks of runs; without this, all.
    #[must_use]
    pub fn with_checks(self, checks: RunChecks) -> Self {
        Self { checks, ..self }
    }
    /// What runs are checked for.
    pub fn checks(&self) -> RunChecks {
        self.checks
    }

    /// The same session with a folder of compiled kernels that it shares with other
    /// processes, on a GPU; the simulator has no use for it. Results are the same.
    #[must_use]
    pub fn with_code_store(mut self, store: CodeStore) -> Self {
        if let Backend::Gpu(gpu) = &mut self.backend {
            gpu.compiler.share(store);
        }
        self
    }

    /// Whether kernels are compiled although the store has their code: what was
    /// compiled first is then not taken for granted. Kernels that the session has
    /// loaded stay.
    pub fn compile_anew(&self, anew: bool) {
        if let Backend::Gpu(gpu) = &self.backend {
            gpu.compiler.anew(anew);
        }
    }

    /// What was shared through the store so far, and why the first kernel that was
    /// not shared was not; none without a store.
    pub fn code_counts(&self) -> Option<(CodeCounts, Option<String>)> {
        match &self.backend {
            Backend::Gpu(gpu) => Some((gpu.compiler.counts()?, gpu.compiler.store_error())),
            Backend::Simulator(_) => None,
        }
    }

    /// The device that schedules are computed for.
    pub fn device(&self) -> &DeviceDesc {
        &self.device
    }
    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }
    /// Whether the device is simulated.
    pub fn is_simulator(&self) -> bool {
        matches!(self.backend, Backend::Simulator(_))
    }
    /// Plans kept at present.
    pub fn cached_plans(&self) -> usize {
        self.plans.len()
    }

    /// The plan for a fusion and the class of these arguments, compiled if it
    /// is new. Tensors are taken to start at aligned addresses.
    pub fn compile(&self, fusion: &Fusion, args: &[ArgMeta], trace: &dyn Trace) -> Result<Arc<Plan>> {
        self.compile_at(fusion, args, &vec![MAX_ALIGN; args.len()], trace)
    }

    /// The same for tensors that start at addresses aligned to the given
    /// numbers of bytes, one for each argument: powers of two, more than one
    /// vector access counts as one.
    pub fn compile_at(
        &self,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        trace: &dyn Trace,
    ) -> Result<Arc<Plan>> {
        let bindings = fusion::bind(fusion, args)?;
        let alignments = Self::alignments(args, alignments)?;
        let keys = keys(self.key, fusion, &bindings, args, &alignments);
        let bound = BoundFusion { fusion, bindings: &bindings, args, alignments: &alignments };
        self.plan(keys, &bound, &output_metas(&bound)?, trace)
    }

    /// Does ahead of a run all that needs no data: as [`Session::compile_at`], and
    /// on a GPU also compiles and loads the kernel's code, with `compiler` where
    /// one is given. Does not wait for another thread that is loading the same.
    pub fn preload(
        &self,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        compiler: Option<&dyn CompileText>,
        trace: &dyn Trace,
    ) -> Result<Arc<Plan>> {
        let plan = self.compile_at(fusion, args, alignments, trace)?;
        if let Backend::Gpu(gpu) = &self.backend
            && !gpu.is_loading(&plan)
        {
            gpu.load_with(&self.cx(trace), &plan, compiler)?;
        }
        Ok(plan)
    }

    /// Compiles if needed and runs once.
    pub fn run(&self, fusion: &Fusion, args: &[Arg], trace: &dyn Trace) -> Result<RunOutcome> {
        let ready = self.ready(fusion, args, trace)?;
        let sim = match &self.backend {
            Backend::Simulator(simulator) => simulator.options,
            Backend::Gpu(_) => SimOptions::default(),
        };
        self.execute(&ready, args, &sim, trace)
    }

    /// Runs under each of the given simulator options in turn: same plan, other
    /// orders of threads. One result for each; on a GPU they all do the same.
    pub fn run_many(
        &self,
        fusion: &Fusion,
        args: &[Arg],
        schedules: &[SimOptions],
        trace: &dyn Trace,
    ) -> Vec<Result<RunOutcome>> {
        schedules
            .iter()
            .map(|sim| {
                let ready = self.ready(fusion, args, trace)?;
                self.execute(&ready, args, sim, trace)
            })
            .collect()
    }

    /// Measures a fusion on a GPU. Counters of the simulator come with every run.
    pub fn bench(
        &self,
        fusion: &Fusion,
        args: &[Arg],
        options: &BenchOptions,
        trace: &dyn Trace,
    ) -> Result<BenchReport> {
        match &self.backend {
            Backend::Gpu(gpu) => {
                let ready = self.ready(fusion, args, trace)?;
                gpu.bench(&self.cx(trace), &ready, args, options)
            }
            Backend::Simulator(_) => Err(Diagnostic::unsupported(
                code::SIM_FEATURE,
                format!("fusion @{} cannot be timed on a simulated device", fusion.name),
            )
            .note("the counters of a run are exact and repeatable, and serve as its record")),
        }
    }

    /// Calls a fusion on a GPU again and again as a caller does whose tensors are
    /// on the device already: find the plan, fill in the arguments, launch. Each
    /// call is a span of phase `Launch` named `host call`, which the caller's
    /// trace can time; waiting for the device is outside of it.
    pub fn host_calls(&self, fusion: &Fusion, args: &[Arg], calls: u32, trace: &dyn Trace) -> Result<()> {
        match &self.backend {
            Backend::Gpu(gpu) => gpu.host_calls(&self.cx(trace), args, calls, &|| self.ready(fusion, args, trace)),
            Backend::Simulator(_) => Err(Diagnostic::unsupported(
                code::SIM_FEATURE,
                format!("calls of fusion @{} cannot be timed on a simulated device", fusion.name),
            )),
        }
    }

    /// Whether the device still works. Waits for everything issued so far: an
    /// error of a kernel that nobody waited for comes up here, not in the next call.
    pub fn probe(&self) -> Result<()> {
        match &self.backend {
            Backend::Simulator(_) => Ok(()),
            Backend::Gpu(gpu) => gpu.device.probe(),
        }
    }

    /// The device's memory at this moment.
    pub fn memory(&self) -> Result<DeviceMemory> {
        match &self.backend {
            Backend::Simulator(simulator) => {
                let (live, total) = (simulator.heap().live(), Heap::total());
                Ok(DeviceMemory { live, kept: 0, cached: 0, free: total - live, total })
            }
            Backend::Gpu(gpu) => {
                let used = gpu.device.memory_use();
                let (free, total) = gpu.device.memory()?;
                let [live, kept, cached, free, total] =
                    [used.live, used.kept, used.cached, free, total].map(|bytes| bytes as u64);
                Ok(DeviceMemory { live, kept, cached, free, total })
            }
        }
    }

    /// The GPU and its compiler, for kernels written as text; none on the simulator.
    pub fn gpu(&self) -> Option<(&Arc<Device>, &Nvrtc)> {
        match &self.backend {
            Backend::Simulator(_) => None,
            Backend::Gpu(gpu) => Some((&gpu.device, gpu.nvrtc())),
        }
    }

    /// The memory of the simulated device, for kernels written as IR; none on a GPU.
    pub fn sim_heap(&self) -> Option<&Arc<Heap>> {
        match &self.backend {
            Backend::Simulator(simulator) => Some(simulator.heap()),
            Backend::Gpu(_) => None,
        }
    }

    /// Runs a kernel made by hand on the simulator, with all checks of a run;
    /// the bytes of its outputs. For tests of what the checks find.
    pub fn simulate(
        &self,
        kernel: &Kernel,
        args: &[Arg],
        options: &SimOptions,
        trace: &dyn Trace,
    ) -> Result<Vec<Vec<u8>>> {
        match &self.backend {
            Backend::Simulator(simulator) => simulator.run_kernel(&self.cx(trace), kernel, args, options),
            Backend::Gpu(_) => {
                Err(Diagnostic::unsupported(code::SIM_FEATURE, "a kernel made by hand runs on the simulator only"))
            }
        }
    }

    /// Facts about the device and its libraries, one a line, for provenance.
    pub fn notes(&self) -> Vec<String> {
        match &self.backend {
            Backend::Simulator(simulator) => vec![format!("simulator, {:?}", simulator.options)],
            Backend::Gpu(gpu) => {
                let (major, minor) = gpu.nvrtc().version();
                vec![
                    format!("GPU {}", gpu.device.uuid()),
                    format!("NVRTC {major}.{minor} from {}", gpu.nvrtc().path().display()),
                ]
            }
        }
    }

    /// A caller's alignments as far as they are told apart.
    pub(super) fn alignments(args: &[ArgMeta], alignments: &[u32]) -> Result<Vec<u32>> {
        if alignments.len() != args.len() || !alignments.iter().all(|align| align.is_power_of_two()) {
            let message = format!("{} alignments for {} arguments", alignments.len(), args.len());
            return Err(Diagnostic::user(code::USAGE, message).note("give a power of two for each argument"));
        }
        Ok(alignments.iter().map(|align| (*align).min(MAX_ALIGN)).collect())
    }

    pub(super) fn cx<'a>(&'a self, trace: &'a dyn Trace) -> CompileCx<'a> {
        CompileCx { options: &self.options, device: &self.device, trace }
    }

    fn plan(
        &self,
        keys: Keys,
        bound: &BoundFusion<'_>,
        outputs: &[TensorMeta],
        trace: &dyn Trace,
    ) -> Result<Arc<Plan>> {
        self.plans.get_or_try(keys.plan, || {
            let cx = self.cx(trace);
            guard("compiling", bound.fusion, || build_plan(&cx, bound, outputs))
        })
    }

    /// Everything about a call that does not depend on its data.
    fn ready(&self, fusion: &Fusion, args: &[Arg], trace: &dyn Trace) -> Result<Arc<Ready>> {
        let bindings = fusion::bind_args(fusion, args)?;
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let alignments: Vec<u32> = args.iter().map(alignment).collect();
        let keys = keys(self.key, fusion, &bindings, &metas, &alignments);
        self.launches.get_or_try(keys.launch, || {
            let bound = BoundFusion { fusion, bindings: &bindings, args: &metas, alignments: &alignments };
            let outputs = output_metas(&bound)?;
            let plan = self.plan(keys, &bound, &outputs, trace)?;
            let launch = bind_launch(&plan, &metas, &outputs)?;
            Ok(Ready { plan, launch: Arc::new(launch), outputs })
        })
    }

    fn execute(&self, ready: &Ready, args: &[Arg], sim: &SimOptions, trace: &dyn Trace) -> Result<RunOutcome> {
        let (plan, launch) = (ready.plan.clone(), ready.launch.clone());
        if launch.is_empty() {
            let outputs = ready.outputs.iter().map(|meta| HostTensor::from_byte(meta.clone(), 0));
            return Ok(RunOutcome { outputs: outputs.collect::<Result<_>>()?, plan, launch, sim: None });
        }
        let cx = self.cx(trace);
        let (outputs, sim) = match &self.backend {
            Backend::Simulator(simulator) => {
                let (outputs, report) =
                    guard("simulating", &plan.fusion, || simulator.run(&cx, ready, args, sim, &self.checks))?;
                (outputs, Some(report))
            }
            Backend::Gpu(gpu) => (gpu.run(&cx, ready, args, &self.checks)?, None),
        };
        Ok(RunOutcome { outputs, plan, launch, sim })
    }
}

/// Compiles a fusion into a plan.
fn build_plan(cx: &CompileCx<'_>, bound: &BoundFusion<'_>, outputs: &[TensorMeta]) -> Result<Plan> {
    let prepared = prepare(bound, outputs)?;
    let compiled = compile::compile(cx, &prepared.bound())?;
    let kernel_text = kernel::print(&compiled.kernel);
    if cx.options.self_check {
        check_texts(bound.fusion, &compiled.kernel, &kernel_text)?;
    }
    let kernel_hash = Hash128::of(kernel_text.as_bytes());
    Ok(Plan {
        fusion: prepared.fusion.into_owned(),
        scheduler: compiled.scheduler,
        params_text: compiled.params_text,
        schedule_text: compiled.schedule_text,
        kernel: compiled.kernel,
        kernel_text,
        kernel_hash,
    })
}

/// Checks that the fusion and the kernel read back from their texts.
fn check_texts(fusion: &Fusion, kernel: &Kernel, kernel_text: &str) -> Result<()> {
    kernel::check_text(kernel, kernel_text)?;
    if !text::can_be_written(fusion) {
        return Ok(());
    }
    let text = text::print(fusion);
    let same = match text::parse_one(&text) {
        Ok(read) => fusion::hash::content(&read) == fusion::hash::content(fusion),
        Err(_) => false,
    };
    if same {
        return Ok(());
    }
    Err(Diagnostic::bug(format!("fusion @{} does not read back from its text", fusion.name)).note(text))
}

/// Binds a plan's launch and holds its numbers against the arguments and the
/// predicted outputs: the kernel must not reach beyond either.
fn bind_launch(plan: &Plan, args: &[ArgMeta], outputs: &[TensorMeta]) -> Result<BoundLaunch> {
    let kernel = &plan.kernel;
    if !outputs.is_empty() && outputs.iter().all(|meta| meta.numel() == Some(0)) {
        return Ok(empty_launch(plan));
    }
    let launch = kernel::bind(kernel, args)?;
    let mut written = vec![false; outputs.len()];
    for param in kernel.params.values() {
        let (what, buffer, limit) = match param.kind {
            ParamKind::Input { input, buffer } => {
                let Some(ArgMeta::Tensor(meta)) = args.get(input as usize) else { continue };
                (format!("input {input}"), buffer, meta.span())
            }
            ParamKind::Output { output, buffer } => {
                if let Some(written) = written.get_mut(output as usize) {
                    *written = true;
                }
                (format!("output {output}"), buffer, outputs.get(output as usize).and_then(TensorMeta::numel))
            }
            _ => continue,
        };
        let len = launch.buffer_lens[buffer];
        let exact = matches!(param.kind, ParamKind::Output { .. });
        let limit = limit.and_then(|n| u64::try_from(n).ok());
        if limit.is_none_or(|limit| if exact { len != limit } else { len > limit }) {
            return Err(Diagnostic::bug(format!(
                "{what} has {} elements, kernel {} takes it for {len}",
                limit.unwrap_or(0),
                kernel.name
            )));
        }
    }
    if launch.is_empty() {
        let (grid, name) = (launch.grid, &kernel.name);
        return Err(Diagnostic::bug(format!("kernel {name} has grid {grid:?}, though an output has elements")));
    }
    if let Some(output) = written.iter().position(|written| !written) {
        let name = &plan.fusion.tensors[plan.fusion.outputs[output]].name;
        return Err(Diagnostic::bug(format!("kernel {} does not write output {output} `%{name}`", kernel.name)));
    }
    Ok(launch)
}

/// The launch of nothing.
fn empty_launch(plan: &Plan) -> BoundLaunch {
    let mut buffer_lens = crate::util::PrimaryMap::new();
    for _ in plan.kernel.buffers.ids() {
        buffer_lens.push(0);
    }
    BoundLaunch { grid: [0; 3], block: [1; 3], params: Vec::new(), buffer_lens, shared_bytes: 0 }
}

/// The alignment of an argument's element 0 in bytes, at most [`MAX_ALIGN`].
/// Storage itself starts aligned on every device.
fn alignment(arg: &Arg) -> u32 {
    match arg {
        Arg::Tensor(tensor) => {
            let start = tensor.offset.wrapping_mul(tensor.dtype().bytes());
            1 << start.trailing_zeros().min(MAX_ALIGN.trailing_zeros())
        }
        Arg::Scalar(_) => MAX_ALIGN,
    }
}

/// Turns a panic into a bug of the fusion at hand.
pub(super) fn guard<T>(doing: &str, fusion: &Fusion, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Work is given up as a whole: nothing that it borrowed is seen half done.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Diagnostic::bug(format!("panic while {doing} fusion @{}: {text}", fusion.name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::DType;

    #[test]
    fn alignment_is_that_of_the_first_element() {
        let at = |offset| {
            let mut tensor = HostTensor::zeros(DType::BF16, &[64]).unwrap();
            tensor.offset = offset;
            alignment(&Arg::Tensor(tensor))
        };
        assert_eq!([0, 1, 2, 3, 4, 8, 24].map(at), [16, 2, 4, 2, 8, 16, 16]);
    }

    #[test]
    fn a_panic_is_a_bug_of_the_fusion() {
        let fusion = crate::fusion::sketch::Sketch::new().fusion;
        let error = guard::<()>("testing", &fusion, || panic!("index {} is wrong", 7)).unwrap_err();
        assert_eq!(error.message, format!("panic while testing fusion @{}: index 7 is wrong", fusion.name));
        assert_eq!(guard("testing", &fusion, || Ok(3)).unwrap(), 3);
    }
}
