//! One device, and what was compiled for it.

use super::bench::{BenchOptions, BenchReport};
use super::cache::Cache;
use super::device_tensor::OwnedTensor;
use super::executor::{Brought, Call, Executor, Results};
use super::gpu_timing;
use super::held::{Held, meta_of, results_digest};
use super::key::{Keys, kernel_key, keys, session_key};
use super::lookups;
use super::on_cuda::CudaBackend;
use super::on_sim::Simulator;
use super::profile::{self, Clock, ProgramProfile};
use crate::backend::cuda::nvrtc::{CompileText, Nvrtc, NvrtcSearch};
use crate::backend::cuda::{CodeCounts, CodeStore, CompilerProcesses, Device, Stream};
use crate::backend::sim::{Heap, SimReport};
use crate::compile::{self, BoundFusion, KernelChoice, KernelForm, Plan, PlanSource};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{self, Fusion};
use crate::kernel::Kernel;
use crate::options::{CompileCx, DeviceDesc, Options, Phase, RunChecks, SimOptions, Trace};
use crate::preseg;
use crate::program::{Launch, Program};
use crate::segment::{self, Derived, Segments};
use crate::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use crate::util::Hash128;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Kernels that a session keeps.
const MAX_PLANS: usize = 4096;
/// Fusions cut into segments that a session keeps.
const MAX_CUTS: usize = 1024;
/// Programs, ready for the values of scalars, that a session keeps.
const MAX_PROGRAMS: usize = 4096;
/// Definitions of which a session keeps what does not depend on sizes.
const MAX_DEFINITIONS: usize = 1024;
/// Alignment in bytes that is told apart: one vector access.
const MAX_ALIGN: u32 = 16;

/// A device, simulated or real, and the kernels and programs compiled for it.
pub struct Session {
    device: DeviceDesc,
    options: Options,
    checks: RunChecks,
    backend: Backend,
    key: Hash128,
    plans: Cache<Plan>,
    definitions: Cache<Derived>,
    cuts: Cache<Arc<Segments>>,
    programs: Cache<Program>,
}

/// A definition that is called, hashed once, with what was made of it so far.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    content: Hash128,
    derived: Arc<Derived>,
}

/// What executes kernels; sessions that differ in their schedules share it.
#[derive(Clone)]
enum Backend {
    Simulator(Arc<Simulator>),
    Gpu(Arc<CudaBackend>),
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The outputs of the fusion in order. What a kernel returns is laid out as the
    /// reference lays it out if that is dense, else row-major; what the host computes
    /// and a view of an argument or of another result ([`Program::result_memories`])
    /// are laid out as the reference lays them out; an output that an input becomes has
    /// that input's storage.
    pub outputs: Vec<HostTensor>,
    /// The inputs that are updated, by position, as they are afterwards.
    pub updates: Vec<(usize, HostTensor)>,
    /// What was run.
    pub program: Arc<Program>,
    /// What the simulator counted of each launch in order; none on a GPU and where
    /// the grid is empty.
    pub reports: Vec<Option<SimReport>>,
}

impl RunOutcome {
    /// The digest of all results.
    pub fn digest(&self) -> Hash128 {
        results_digest(self.outputs.iter().chain(self.updates.iter().map(|(_, updated)| updated)))
    }
    /// The kernel, if the program is one and nothing else.
    pub fn kernel(&self) -> Option<&Launch> {
        self.program.one_kernel()
    }
}

/// What a caller knows of a call that spares a GPU copies. Results are the same with it as without it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// The digest of results that the caller has no need to see again ([`results_digest`]), since the reference gave them
    /// for these very arguments: where those of the call are large and have it, a GPU keeps them. Indices that follow from
    /// the arguments alone are not looked at again.
    pub results: Option<Hash128>,
}

/// What a run gave, as far as its caller did not know it.
#[derive(Debug)]
pub enum Ran {
    /// Results that are on the host.
    Brought(RunOutcome),
    /// Results whose digest is the one that was given.
    Known(KnownRun),
}

/// A run whose results are known. They stay in the memory of its device until it is dropped.
#[derive(Debug)]
pub struct KnownRun {
    program: Arc<Program>,
    digest: Hash128,
    held: Held,
    /// Of each launch, in order.
    reports: Vec<Option<SimReport>>,
}

impl Ran {
    /// What was run.
    pub fn program(&self) -> &Arc<Program> {
        match self {
            Self::Brought(run) => &run.program,
            Self::Known(run) => &run.program,
        }
    }
    /// What is on the host.
    pub fn brought(&self) -> Option<&RunOutcome> {
        match self {
            Self::Brought(run) => Some(run),
            Self::Known(_) => None,
        }
    }
    /// The digest of all results.
    pub fn digest(&self) -> Hash128 {
        match self {
            Self::Brought(run) => run.digest(),
            Self::Known(run) => run.digest,
        }
    }
    /// Types and layouts of the outputs in order, given the arguments of the run.
    pub fn output_metas<'a>(&'a self, args: &'a [Arg]) -> Result<Vec<&'a TensorMeta>> {
        match self {
            Self::Brought(run) => Ok(run.outputs.iter().map(|output| &output.meta).collect()),
            Self::Known(run) => run.program.outputs.iter().map(|output| meta_of(&run.program, args, *output)).collect(),
        }
    }
    /// All results on the host, given the arguments of the run.
    pub fn bring(self, args: &[Arg]) -> Result<RunOutcome> {
        match self {
            Self::Brought(run) => Ok(run),
            Self::Known(KnownRun { program, held, reports, .. }) => {
                let Brought { outputs, updates } = held.bring(args)?;
                Ok(RunOutcome { outputs, updates, program, reports })
            }
        }
    }
}

/// Memory of a device in bytes, by who holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In buffers of calls of this session: nothing between two calls but the results of a [`KnownRun`].
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
        Self::new(device, options, Backend::Simulator(Arc::new(Simulator::new(sim))))
    }

    /// The GPU with this ordinal among those that the process sees. NVRTC is
    /// looked for where installers put it.
    pub fn cuda(ordinal: usize, options: Options) -> Result<Self> {
        Self::cuda_with(ordinal, options, &NvrtcSearch::default())
    }

    /// The GPU with this ordinal, with NVRTC looked for where `search` says.
    pub fn cuda_with(ordinal: usize, options: Options, search: &NvrtcSearch) -> Result<Self> {
        let gpu = CudaBackend::open(ordinal, search)?;
        Ok(Self::new(gpu.desc(), options, Backend::Gpu(Arc::new(gpu))))
    }

    /// The first GPU, or where there is none the simulator.
    pub fn any(options: Options) -> Self {
        Self::cuda(0, options.clone())
            .unwrap_or_else(|_| Self::simulator(DeviceDesc::h200(), SimOptions::default(), options))
    }

    fn new(device: DeviceDesc, options: Options, backend: Backend) -> Self {
        let key = session_key(&device, &options);
        let checks = RunChecks::ALL;
        let (plans, definitions) = (Cache::new(MAX_PLANS), Cache::new(MAX_DEFINITIONS));
        let (cuts, programs) = (Cache::new(MAX_CUTS), Cache::new(MAX_PROGRAMS));
        Self { device, options, checks, backend, key, plans, definitions, cuts, programs }
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

    /// A session of the same device that computes what it is asked for by this schedule instead of
    /// a heuristic's: see [`Options::schedule`]. They share loaded kernels and memory.
    #[must_use]
    pub fn scheduled(&self, schedule: impl Into<String>) -> Self {
        let options = Options { schedule: Some(schedule.into()), ..self.options.clone() };
        Self::new(self.device.clone(), options, self.backend.clone()).with_checks(self.checks)
    }

    /// The GPU, while no other session shares it.
    fn own_gpu(&mut self) -> Option<&mut CudaBackend> {
        match &mut self.backend {
            Backend::Gpu(gpu) => Arc::get_mut(gpu),
            Backend::Simulator(_) => None,
        }
    }

    /// The same session with a folder of compiled kernels that it shares with other
    /// processes, on a GPU; the simulator has no use for it. Results are the same. Said before
    /// [`Session::scheduled`] makes others that share the device; behind it nothing changes.
    #[must_use]
    pub fn with_code_store(mut self, store: CodeStore) -> Self {
        if let Some(gpu) = self.own_gpu() {
            gpu.compiler.share(store);
        }
        self
    }

    /// The same session, whose kernels are compiled in processes, on a GPU: in so many at once, since
    /// NVRTC takes one text at a time in each. Sessions may share them. Results are the same.
    #[must_use]
    pub fn with_compilers(mut self, processes: Arc<CompilerProcesses>) -> Self {
        if let Some(gpu) = self.own_gpu() {
            gpu.compiler.leave_to(processes);
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
    /// Kernels kept at present.
    pub fn cached_plans(&self) -> usize {
        self.plans.len()
    }

    /// A fusion as one kernel for arguments of these types and layouts, compiled if it
    /// is new; refused where one kernel cannot be. Tensors are taken to start at
    /// aligned addresses.
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
        let bound = BoundFusion { fusion, bindings: &bindings, args, alignments: &alignments };
        let plans = SessionPlans { session: self, trace };
        guard("compiling", fusion, || segment::one_kernel(&self.cx(trace), &plans, &bound))
    }

    /// What passes over the whole make of a fusion before it is cut: the name of each that changes
    /// something, and what it makes.
    pub fn presegment(&self, fusion: &Fusion, args: &[ArgMeta], trace: &dyn Trace) -> Result<Vec<(String, Fusion)>> {
        let (bindings, alignments) = (fusion::bind(fusion, args)?, vec![MAX_ALIGN; args.len()]);
        let bound = BoundFusion { fusion, bindings: &bindings, args, alignments: &alignments };
        let mut steps = Vec::new();
        let mut told = |pass: &str, made: &Fusion| steps.push((pass.to_string(), made.clone()));
        guard("presegmenting", fusion, || preseg::run(&self.cx(trace), &bound, &mut told).map(drop))?;
        Ok(steps)
    }

    /// A fusion cut into segments for arguments of these types and layouts, whose
    /// elements 0 are aligned to so many bytes.
    pub fn segment(
        &self,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        trace: &dyn Trace,
    ) -> Result<Arc<Segments>> {
        let alignments = Self::alignments(args, alignments)?;
        let bindings = fusion::bind(fusion, args)?;
        let bound = BoundFusion { fusion, bindings: &bindings, args, alignments: &alignments };
        let definition = self.definition(fusion, trace)?;
        self.cut(&definition, self.keys(&definition, &bound), &bound, trace)
    }

    /// What a call of a fusion does, for arguments as above and these values of
    /// scalars: its kernels are compiled, but not loaded.
    pub fn program(
        &self,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        trace: &dyn Trace,
    ) -> Result<Arc<Program>> {
        let alignments = Self::alignments(args, alignments)?;
        let bindings = fusion::bind(fusion, args)?;
        self.bound_program(&BoundFusion { fusion, bindings: &bindings, args, alignments: &alignments }, trace)
    }

    /// Does ahead of a run all that needs no data: as [`Session::program`], and
    /// on a GPU also compiles and loads the kernels' code, with `compiler` where
    /// one is given, and asks libraries how they would compute their part: the first
    /// to ask waits until they have started. Does not wait for another thread that is
    /// loading the same.
    pub fn preload(
        &self,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        compiler: Option<&dyn CompileText>,
        trace: &dyn Trace,
    ) -> Result<Arc<Program>> {
        let program = self.program(fusion, args, alignments, trace)?;
        if let Backend::Gpu(gpu) = &self.backend {
            let (cx, is_free) = (self.cx(trace), |plan: &Plan| !gpu.is_loading(plan));
            let load = |plan: &Plan| guard("loading", plan.fusion(), || gpu.load_with(&cx, plan, compiler).map(drop));
            // One compiler takes one text at a time.
            let threads = || if compiler.is_some() { 1 } else { cx.options.threads() };
            program.for_kernels(threads, &is_free, &load)?;
            program.library_calls().try_for_each(|call| gpu.plan_product(call).map(drop))?;
        }
        Ok(program)
    }

    /// Compiles if needed and runs once.
    pub fn run(&self, fusion: &Fusion, args: &[Arg], trace: &dyn Trace) -> Result<RunOutcome> {
        self.run_knowing(fusion, args, &Hints::default(), trace)?.bring(args)
    }

    /// The same for a caller who knows something of the call. The simulator, and a GPU that is told to check nothing, have
    /// no use for it.
    pub fn run_knowing(&self, fusion: &Fusion, args: &[Arg], hints: &Hints, trace: &dyn Trace) -> Result<Ran> {
        self.execute(fusion, args, hints, &self.sim_options(), trace)
    }

    /// Runs under each of the given simulator options in turn: same program, other
    /// orders of threads. One result for each; on a GPU they all do the same.
    pub fn run_many(
        &self,
        fusion: &Fusion,
        args: &[Arg],
        schedules: &[SimOptions],
        trace: &dyn Trace,
    ) -> Vec<Result<RunOutcome>> {
        let run = |sim| self.execute(fusion, args, &Hints::default(), sim, trace)?.bring(args);
        schedules.iter().map(run).collect()
    }

    /// Measures a fusion on a GPU: all its steps, which must be the device's. Counters
    /// of the simulator come with every run.
    pub fn bench(
        &self,
        fusion: &Fusion,
        args: &[Arg],
        options: &BenchOptions,
        trace: &dyn Trace,
    ) -> Result<BenchReport> {
        match &self.backend {
            Backend::Gpu(gpu) => {
                let program = self.program_of(fusion, args, trace)?;
                gpu.bench(&self.cx(trace), &program, args, options)
            }
            Backend::Simulator(_) => Err(Diagnostic::unsupported(
                code::SIM_FEATURE,
                format!("fusion @{} cannot be timed on a simulated device", fusion.name),
            )
            .note("the counters of a run are exact and repeatable, and serve as its record")),
        }
    }

    /// Where the time of a fusion goes, step by step: compiling anew, and running. On a GPU each step
    /// is measured as `options` say, beside a copy of the bytes that it moves; the simulator
    /// counts. Several threads may ask at once; a GPU measures for one at a time.
    pub fn profile(
        &self,
        fusion: &Fusion,
        args: &[Arg],
        options: &BenchOptions,
        clock: Clock<'_>,
    ) -> Result<ProgramProfile> {
        profile::profile(self, fusion, args, options, clock)
    }

    /// Calls a fusion on a GPU again and again as a caller does whose tensors are
    /// on the device already, results included ([`Callable::call_into`]). Each
    /// call is a span of phase `Launch` named `host call`, which the caller's
    /// trace can time; waiting for the device is outside of it.
    pub fn host_calls(&self, fusion: &Fusion, args: &[Arg], calls: u32, trace: &dyn Trace) -> Result<()> {
        self.program_of(fusion, args, trace)?.check_on_device()?;
        gpu_timing::host_calls(self, self.gpu_backend()?, fusion, args, calls, trace)
    }

    /// Brings a tensor to the session's GPU.
    pub fn upload(&self, tensor: &HostTensor) -> Result<OwnedTensor> {
        OwnedTensor::upload(&self.gpu_backend()?.device, tensor)
    }

    /// The stream that the session's GPU works on where no other is named.
    pub fn stream(&self) -> Result<Stream> {
        Ok(self.gpu_backend()?.device.stream())
    }

    /// The GPU; the simulator has neither streams nor addresses.
    pub(super) fn gpu_backend(&self) -> Result<&CudaBackend> {
        match &self.backend {
            Backend::Gpu(gpu) => Ok(gpu),
            Backend::Simulator(_) => {
                let message = "tensors in the memory of a device need a GPU: the session's is simulated";
                Err(Diagnostic::unsupported(code::SIM_FEATURE, message))
            }
        }
    }

    /// A program for a call that keeps it by itself, for as long as its sizes stay.
    pub(super) fn program_for_call(
        &self,
        definition: &Definition,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        trace: &dyn Trace,
    ) -> Result<Arc<Program>> {
        let bindings = fusion::bind(fusion, args)?;
        let bound = BoundFusion { fusion, bindings: &bindings, args, alignments };
        self.make_program(definition, self.keys(definition, &bound), &bound, trace).map(Arc::new)
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

    fn keys(&self, definition: &Definition, bound: &BoundFusion<'_>) -> Keys {
        keys(self.key, definition.content, bound)
    }

    /// What is known of a definition.
    pub(super) fn definition(&self, fusion: &Fusion, trace: &dyn Trace) -> Result<Definition> {
        let content = fusion::hash::content(fusion);
        let derived = self
            .definitions
            .get_or_try(content, || guard("reading back", fusion, || Derived::new(&self.cx(trace), fusion)))?;
        Ok(Definition { content, derived })
    }

    fn cut(
        &self,
        definition: &Definition,
        keys: Keys,
        bound: &BoundFusion<'_>,
        trace: &dyn Trace,
    ) -> Result<Arc<Segments>> {
        let plans = SessionPlans { session: self, trace };
        let cut = || segment::segment(&self.cx(trace), &plans, &definition.derived, bound);
        let cut = self.cuts.get_or_try(keys.cut, || guard("cutting", bound.fusion, cut).map(Arc::new))?;
        Ok(Arc::clone(&cut))
    }

    /// The program of a call, which holds everything about it but the data.
    fn program_of(&self, fusion: &Fusion, args: &[Arg], trace: &dyn Trace) -> Result<Arc<Program>> {
        // Also checks what only values can tell.
        let bindings = fusion::bind_args(fusion, args)?;
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let alignments: Vec<u32> = args.iter().map(alignment).collect();
        self.bound_program(&BoundFusion { fusion, bindings: &bindings, args: &metas, alignments: &alignments }, trace)
    }

    fn bound_program(&self, bound: &BoundFusion<'_>, trace: &dyn Trace) -> Result<Arc<Program>> {
        let definition = self.definition(bound.fusion, trace)?;
        let keys = self.keys(&definition, bound);
        self.programs.get_or_try(keys.call, || self.make_program(&definition, keys, bound, trace))
    }

    fn make_program(
        &self,
        definition: &Definition,
        keys: Keys,
        bound: &BoundFusion<'_>,
        trace: &dyn Trace,
    ) -> Result<Program> {
        let segments = self.cut(definition, keys, bound, trace)?;
        guard("planning", bound.fusion, || Program::new(segments, bound.args))
    }

    /// How the simulator runs where nothing else is asked for; of no meaning on a GPU.
    pub(super) fn sim_options(&self) -> SimOptions {
        match &self.backend {
            Backend::Simulator(simulator) => simulator.options,
            Backend::Gpu(_) => SimOptions::default(),
        }
    }

    pub(super) fn executor(&self) -> &dyn Executor {
        match &self.backend {
            Backend::Simulator(simulator) => &**simulator,
            Backend::Gpu(gpu) => &**gpu,
        }
    }

    fn execute(
        &self,
        fusion: &Fusion,
        args: &[Arg],
        hints: &Hints,
        sim: &SimOptions,
        trace: &dyn Trace,
    ) -> Result<Ran> {
        let (cx, Hints { results: known }) = (self.cx(trace), *hints);
        let program = cx.span(Phase::Plan, &fusion.name, 0, || self.program_of(fusion, args, trace))?;
        // What is known was computed by the reference, which takes no groups that do not fit.
        if self.checks.indices && known.is_none() {
            lookups::check_experts(fusion, args)?;
        }
        let call = Call { cx, program: &program, args, known, sim, checks: self.checks };
        let done = guard("running", fusion, || self.executor().run(call))?;
        let reports = done.reports;
        Ok(match (done.results, known) {
            (Results::Brought(Brought { outputs, updates }), _) => {
                Ran::Brought(RunOutcome { outputs, updates, program, reports })
            }
            (Results::Held(held), Some(digest)) => Ran::Known(KnownRun { program, digest, held, reports }),
            (Results::Held(_), None) => return Err(Diagnostic::bug("results are held that nobody knows")),
        })
    }
}

/// The kernels of a session.
struct SessionPlans<'a> {
    session: &'a Session,
    trace: &'a dyn Trace,
}

impl PlanSource for SessionPlans<'_> {
    fn plan(&self, form: &KernelForm, choice: &KernelChoice) -> Result<Arc<Plan>> {
        self.session.plans.get_or_try(kernel_key(form, choice), || {
            let cx = self.session.cx(self.trace);
            guard("compiling", form.fusion(), || compile::plan(&cx, form, choice))
        })
    }
    fn has(&self, form: &KernelForm, choice: &KernelChoice) -> bool {
        self.session.plans.knows(kernel_key(form, choice))
    }
}

/// The alignment of an argument's element 0 in bytes, at most [`MAX_ALIGN`].
/// Storage itself starts aligned on every device.
pub(super) fn alignment(arg: &Arg) -> u32 {
    match arg {
        Arg::Tensor(tensor) => 1 << tensor.first_byte().trailing_zeros().min(MAX_ALIGN.trailing_zeros()),
        Arg::Scalar(_) => MAX_ALIGN,
    }
}

/// The alignment of an address in bytes, as far as it is told apart.
pub(super) fn alignment_of(address: u64) -> u32 {
    1 << address.trailing_zeros().min(MAX_ALIGN.trailing_zeros())
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
