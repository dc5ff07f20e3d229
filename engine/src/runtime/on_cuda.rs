//! Calls on a GPU: compile, load, place the arguments, launch, bring results back.

use super::bench::BenchOptions;
use super::cache::Cache;
use super::executor::{Call, CallMemory, Executed, Executor, given, run_steps};
use super::held::{Held, Placed, digest_of, meta_of, missing, results_of, together};
use super::profile::StepCost;
use super::session::guard;
use super::unchecked;
use crate::backend::cuda::nvrtc::{CompileText, Nvrtc, NvrtcSearch};
use crate::backend::cuda::{
    self, CompiledCubin, Compiler, CublasLt, Device, DeviceBuffer, GuardedBuffer, Inspector, Issued, LaunchArgs,
    LoadedKernel, OtherTexts, PlannedProduct, ProductAddresses, Question,
};
use crate::backend::sim::SimReport;
use crate::compile::Plan;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ParamKind};
use crate::options::{CompileCx, DeviceDesc, Phase, RunChecks};
use crate::program::{Copy, Launch, LibraryCall, Program, Storage, ValueId};
use crate::tensor::{CopyRows, HostBytes};
use crate::util::{Hash128, SecondaryMap, WORD, run_beside, set_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Loaded kernels that are kept: as many as a session keeps plans, since the machine code of a kernel is some ten
/// kilobytes, of which the device has many thousand times as much.
const MAX_KERNELS: usize = 4096;
/// Memory of fewer bytes is looked at by the host.
const WORTH: usize = 1 << 20;
/// Of the device's memory that is free, one part in so many may be copies of what is not to change, or results that are
/// held behind their call.
const COPIES_SHARE: usize = 4;

/// An open GPU with its compiler.
pub(super) struct CudaBackend {
    pub(super) device: Arc<Device>,
    pub(super) compiler: Compiler,
    /// The library of matrix products, or where it was not found.
    library: std::result::Result<Arc<CublasLt>, String>,
    loaded: Cache<Loaded>,
    pub(super) timer: Mutex<Option<cuda::Timer>>,
    inspection: Mutex<Inspection>,
}

/// Who looks at memory on the device: made when it is first needed.
#[derive(Default)]
enum Inspection {
    #[default]
    Unmade,
    Made(Box<Inspector>),
    /// It cannot be had: the host looks at all memory.
    Refused,
}

/// The name of the empty span of phase `Codegen` that a run has whose kernel's
/// code was found in the store: in this run, or before it.
pub const CACHED: &str = "cached";

/// A kernel on the device.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) kernel: LoadedKernel,
    /// Whether its code was found in the store.
    found: bool,
}

/// Libraries that need no device to be loaded.
struct Libraries {
    nvrtc: Nvrtc,
    /// Or where it was not found.
    cublaslt: std::result::Result<Arc<CublasLt>, String>,
}

impl Libraries {
    fn open(search: &NvrtcSearch) -> Result<Self> {
        let nvrtc = Nvrtc::open(search)?;
        let beside = nvrtc.path().parent().map(Path::to_path_buf);
        let folders: Vec<PathBuf> = search.folders.iter().cloned().chain(beside).collect();
        Ok(Self { nvrtc, cublaslt: CublasLt::open(&folders).map(Arc::new) })
    }
}

impl CudaBackend {
    pub(super) fn open(ordinal: usize, search: &NvrtcSearch) -> Result<Self> {
        // The driver takes longer to start than the loader of libraries.
        let (device, libraries) = run_beside(|| Device::open(ordinal), || Libraries::open(search));
        let (device, Libraries { nvrtc, cublaslt }) = (device?, libraries?);
        Ok(Self {
            device,
            compiler: Compiler::new(nvrtc),
            library: cublaslt,
            loaded: Cache::new(MAX_KERNELS),
            timer: Mutex::default(),
            inspection: Mutex::default(),
        })
    }

    /// Gives to `ask` who looks at memory on the device; nothing where nobody does.
    fn inspect<T>(&self, ask: impl FnOnce(&mut Inspector) -> T) -> Option<T> {
        let mut inspection = self.inspection.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*inspection, Inspection::Unmade) {
            let texts = OtherTexts { compiler: &self.compiler, device: self.device.desc() };
            *inspection = Inspector::new(&self.device, &texts)
                .map_or(Inspection::Refused, |inspector| Inspection::Made(Box::new(inspector)));
        }
        match &mut *inspection {
            Inspection::Made(inspector) => Some(ask(inspector)),
            Inspection::Unmade | Inspection::Refused => None,
        }
    }

    /// Bytes that the copies of a call may have: nothing where the host looks at all of its memory, or where the rest of
    /// it might lack them.
    fn room_for_copies(&self, call: &Call<'_>) -> usize {
        let given = |position: &u32| call.tensor(*position).map_or(0, |given| given.data.len());
        let inputs = call.program.device_inputs();
        let own = || call.program.values.values().map(|value| value.bytes() as usize);
        let is_worth = inputs.iter().map(given).chain(own()).any(|bytes| bytes >= WORTH);
        if !call.checks.inputs || !is_worth || self.inspect(|_| ()).is_none() {
            return 0;
        }
        let (needed, used) = (inputs.iter().map(given).chain(own()).sum::<usize>(), self.device.memory_use());
        // Workspaces come on top, and sizes are rounded up.
        let left = |free: usize| (free + used.cached).saturating_sub(needed.saturating_mul(2));
        self.device.memory().map_or(0, |(free, _)| left(free).min((free + used.cached) / COPIES_SHARE))
    }

    /// The arguments that the device needs, by position, and copies of them as far as there is room.
    fn place(&self, call: &Call<'_>) -> Result<(BTreeMap<u32, GuardedBuffer>, Copies)> {
        let (mut inputs, mut copies) = (BTreeMap::new(), Copies::of(self.room_for_copies(call), call.program));
        for position in call.program.device_inputs() {
            let buffer = self.argument(call, position)?;
            if let Some(copy) = copies.make(&buffer) {
                copies.inputs.insert(position, copy);
            }
            inputs.insert(position, buffer);
        }
        Ok((inputs, copies))
    }

    /// An argument's storage on the device: as a whole, so that offsets and alignment are kept.
    fn argument(&self, call: &Call<'_>, position: u32) -> Result<GuardedBuffer> {
        let storage = &call.tensor(position)?.data;
        match storage.part().filter(|_| storage.len() >= WORTH) {
            Some(part) => GuardedBuffer::repeating(&self.device, part, storage.len()),
            None => GuardedBuffer::holding(&self.device, storage),
        }
    }

    /// The device as data, with what libraries do on it.
    pub(super) fn desc(&self) -> DeviceDesc {
        DeviceDesc { multiplies_matrices: self.library.is_ok(), ..self.device.desc().clone() }
    }

    /// The library of matrix products, or where it was not found.
    pub(super) fn cublaslt(&self) -> std::result::Result<&Arc<CublasLt>, &str> {
        self.library.as_ref().map_err(String::as_str)
    }

    /// A product with the algorithm that the library chooses; nothing where it has none, and the host stands in.
    pub(super) fn plan_product(&self, call: &LibraryCall) -> Result<Option<PlannedProduct>> {
        let missing = |_| Diagnostic::bug("a program counts on a library that was not found");
        PlannedProduct::new(self.cublaslt().map_err(missing)?, &self.device, &call.product)
    }

    /// The library that compiles kernels, for reports.
    pub(super) fn nvrtc(&self) -> &Nvrtc {
        self.compiler.nvrtc()
    }

    /// Whether another thread is compiling the plan's kernel.
    pub(super) fn is_loading(&self, plan: &Plan) -> bool {
        self.loaded.is_pending(plan.kernel_hash())
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
        self.loaded.get_or_try(plan.kernel_hash(), || self.compile_and_load(cx, plan, other))
    }

    fn compile_and_load(&self, cx: &CompileCx<'_>, plan: &Plan, other: Option<&dyn CompileText>) -> Result<Loaded> {
        let (id, name) = (plan.trace_id(), plan.kernel().name.as_str());
        let (source, compiled) = self.compiler.compile_plan(cx, other, plan)?;
        let CompiledCubin { cubin, found } = compiled;
        let kernel = cx.span(Phase::Load, name, id, || LoadedKernel::load(&self.device, &cubin.bytes, &source))?;
        Ok(Loaded { kernel, found })
    }

    /// Compiles and loads what is new of a program's kernels, several at once.
    pub(super) fn load_all(&self, cx: &CompileCx<'_>, program: &Program) -> Result<()> {
        let is_new = |plan: &Plan| !self.loaded.has(plan.kernel_hash());
        let load = |plan: &Plan| guard("loading", plan.fusion(), || self.load(cx, plan).map(drop));
        program.for_kernels(|| cx.options.threads(), &is_new, &load).map(drop)
    }
}

impl Executor for CudaBackend {
    fn begin<'a>(&'a self, call: Call<'a>) -> Result<Box<dyn CallMemory + 'a>> {
        self.load_all(&call.cx, call.program)?;
        let (inputs, copies) = call.cx.span(Phase::Upload, "arguments", 0, || self.place(&call))?;
        let (placed, known) = (Placed { inputs, own: BTreeMap::new() }, BTreeMap::new());
        Ok(Box::new(GpuCall { gpu: self, call, placed, known, fresh: Vec::new(), copies }))
    }

    fn run(&self, call: Call<'_>) -> Result<Executed> {
        match call.checks {
            RunChecks::NONE => unchecked::run(self, call),
            _ => run_steps(&mut *self.begin(call)?, call),
        }
    }

    fn compile_anew(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<()> {
        self.compile_and_load(cx, plan, None).map(drop)
    }

    fn measure_steps(&self, call: Call<'_>, options: &BenchOptions) -> Result<Vec<StepCost>> {
        self.measure_each(&call, options)
    }
}

/// The memory of a call whose values lie between red zones, each for itself.
struct GpuCall<'a> {
    gpu: &'a CudaBackend,
    call: Call<'a>,
    placed: Placed,
    /// What launches left in values, of those that are checked for being changed later.
    known: BTreeMap<ValueId, Vec<u8>>,
    /// Of these, those that the last step wrote: nothing can have changed them since.
    fresh: Vec<ValueId>,
    copies: Copies,
}

/// Copies on the device of what no later step may change, as far as there is room.
struct Copies {
    room: usize,
    /// Of arguments, by position.
    inputs: BTreeMap<u32, DeviceBuffer>,
    values: BTreeMap<ValueId, DeviceBuffer>,
    /// Values that steps read.
    read: BTreeSet<ValueId>,
}

impl Copies {
    fn of(room: usize, program: &Program) -> Self {
        let reads = program.steps.iter().flat_map(|step| step.reads());
        let read = set_of(reads.map(|value| program.root(value).0));
        Self { room, inputs: BTreeMap::new(), values: BTreeMap::new(), read }
    }

    /// A copy of memory that is worth one.
    fn make(&mut self, buffer: &GuardedBuffer) -> Option<DeviceBuffer> {
        let bytes = buffer.len();
        // Where the device has no memory for one, the host looks.
        let copy = (WORTH..=self.room).contains(&bytes).then(|| buffer.copied().ok())??;
        self.room -= bytes;
        Some(copy)
    }
}

/// Memory that a step reads, and what should be in it as far as that is known: on the device, and on the host.
struct ReadMemory<'a> {
    number: usize,
    buffer: &'a GuardedBuffer,
    copy: Option<&'a DeviceBuffer>,
    expected: Option<Expected<'a>>,
}

/// What the host knows of memory.
#[derive(Clone, Copy)]
enum Expected<'a> {
    /// Storage that may have to be made first.
    Given(&'a HostBytes),
    Left(&'a [u8]),
}

impl<'a> Expected<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Given(storage) => storage,
            Self::Left(bytes) => bytes,
        }
    }
}

/// Outputs of a launch that may be unwritten in part.
enum Suspects {
    /// The device knows that they are not.
    None,
    /// They hold poison, which may be a result: copies on the device.
    Copied(Vec<DeviceBuffer>),
    /// On the host.
    Brought(Vec<Vec<u8>>),
}

/// What is issued in one step, and on what.
struct Work<'a> {
    issued: Issued<'a>,
    /// The number of its spans.
    id: u64,
    reads: &'a [Option<ValueId>],
    /// Values with memory of their own.
    writes: &'a [ValueId],
    /// Values that are written into parts of others.
    parts: &'a [ValueId],
}

impl GpuCall<'_> {
    /// Where element 0 of a value is.
    fn address(&self, value: ValueId) -> Result<u64> {
        let (buffer, start) = self.placed.place(self.call.program, self.call.args, value)?;
        Ok(buffer.address() + start as u64)
    }

    /// Memory for a value that is about to be written, filled with a byte.
    fn reserve(&mut self, value: ValueId, fill: u8) -> Result<()> {
        let own = &self.call.program.values[value];
        let has_place = match own.storage {
            Storage::Input(_) => true,
            Storage::Arena { .. } | Storage::Output(_) => false,
            Storage::AliasOf { .. } => return Err(Diagnostic::bug(format!("{value} is a view, and is written"))),
        };
        if !has_place && !self.placed.own.contains_key(&value) {
            let buffer = GuardedBuffer::new(&self.gpu.device, own.bytes() as usize, fill)?;
            self.placed.own.insert(value, buffer);
        }
        Ok(())
    }

    /// Poisoned memory for the wholes whose parts are about to be written, and the values that have memory of their own. What nobody
    /// writes of a whole is another value than is expected.
    fn reserve_wholes(&mut self, writes: &[ValueId]) -> Result<Vec<ValueId>> {
        let program = self.call.program;
        let (own, parts): (Vec<ValueId>, Vec<ValueId>) =
            writes.iter().partition(|value| program.root(**value).0 == **value);
        parts.into_iter().try_for_each(|part| self.reserve(program.root(part).0, cuda::POISON))?;
        Ok(own)
    }

    /// Workspaces and outputs of a launch, and the launch's arguments.
    fn prepare(&self, launch: &Launch, memory: &mut cuda::CallMemory) -> Result<LaunchArgs> {
        let kernel = launch.plan.kernel();
        let written = self.results(&launch.outputs, memory)?;
        let mut addresses: SecondaryMap<BufId, u64> = SecondaryMap::new();
        for param in kernel.params.values() {
            match param.kind {
                ParamKind::Input { input, buffer } => {
                    let Some(value) = launch.inputs.get(input as usize).copied().flatten() else {
                        let message = format!("argument {input} of kernel {} is no tensor", kernel.name);
                        return Err(Diagnostic::bug(message));
                    };
                    addresses.set(buffer, self.address(value)?);
                }
                ParamKind::Output { output, buffer } => {
                    addresses.set(buffer, written[output as usize] - kernel.buffers[buffer].start_bytes());
                }
                ParamKind::Workspace { buffer } => {
                    let bytes = workspace_bytes(launch, buffer)?;
                    addresses.set(buffer, memory.workspace(bytes, kernel.buffers[buffer].zeroed)?);
                }
                ParamKind::Size { .. }
                | ParamKind::Stride { .. }
                | ParamKind::Scalar { .. }
                | ParamKind::Derived(_)
                | ParamKind::Reciprocal(_) => {}
            }
        }
        Ok(LaunchArgs::new(&launch.launch, |buffer| addresses[buffer]))
    }

    /// Fails if what was issued wrote beside its buffers, or into what it reads.
    fn check_memory(&self, work: &Work<'_>, memory: &cuda::CallMemory) -> Result<()> {
        let Call { program, checks, .. } = self.call;
        let mut read: Vec<(String, &GuardedBuffer)> = Vec::new();
        let reads = work.reads.iter().enumerate().filter_map(|(number, value)| Some(("input", number, (*value)?)));
        let parts = work.parts.iter().enumerate().map(|(number, value)| ("the whole of part", number, *value));
        for (what, number, value) in reads.chain(parts) {
            let value = program.root(value).0;
            let buffer = match program.values[value].storage {
                Storage::Input(position) => self.placed.inputs.get(&position),
                _ => self.placed.own.get(&value),
            };
            read.push((format!("{what} {number}"), buffer.ok_or_else(|| missing(program, value))?));
        }
        if checks.red_zones {
            memory.check_zones_and(work.issued, &read)?;
        }
        if checks.inputs { self.check_reads(work) } else { Ok(()) }
    }

    /// Fails if what was issued wrote into what it reads.
    fn check_reads(&self, work: &Work<'_>) -> Result<()> {
        let reads = self.reads(work)?;
        let question = |read: &ReadMemory<'_>| {
            let (buffer, copy) = (read.buffer, read.copy?);
            Some(Question::Differ { addresses: [buffer.address(), copy.address()], bytes: buffer.len() })
        };
        let questions: Vec<Question> = reads.iter().filter_map(question).collect();
        let is_sure = !questions.is_empty()
            && self.gpu.inspect(|inspector| inspector.any(&questions)).transpose()? == Some(false);
        for ReadMemory { number, buffer, copy, expected } in reads {
            let copied = match (copy, expected) {
                (Some(_), _) if is_sure => continue,
                (Some(copy), None) => Some(copy.all_bytes()?),
                _ => None,
            };
            let Some(expected) = expected.map(Expected::bytes).or(copied.as_deref()) else { continue };
            buffer
                .check_unchanged(&format!("input {number}"), expected)
                .map_err(|error| error.note(format!("by kernel {}", work.issued.name)))?;
        }
        Ok(())
    }

    /// What was issued reads, with what is known of it.
    fn reads(&self, work: &Work<'_>) -> Result<Vec<ReadMemory<'_>>> {
        let program = self.call.program;
        let mut reads = Vec::new();
        for (number, value) in work.reads.iter().enumerate() {
            let Some(root) = value.map(|value| program.root(value).0) else { continue };
            let (buffer, copy, expected) = match program.values[root].storage {
                Storage::Input(position) => {
                    let given = self.call.tensor(position)?;
                    (
                        self.placed.inputs.get(&position),
                        self.copies.inputs.get(&position),
                        Some(Expected::Given(&given.data)),
                    )
                }
                _ => (
                    self.placed.own.get(&root),
                    self.copies.values.get(&root),
                    self.known.get(&root).map(|bytes| Expected::Left(bytes)),
                ),
            };
            reads.extend(buffer.map(|buffer| ReadMemory { number, buffer, copy, expected }));
        }
        Ok(reads)
    }

    /// The outputs of a launch, to be looked at for what is unwritten.
    fn suspects(&self, memory: &cuda::CallMemory) -> Result<Suspects> {
        let questions = memory.questions();
        let is_large = |question: &Question| matches!(question, Question::HoldsPoison { bytes, .. } if *bytes >= WORTH);
        let asked = questions.iter().any(is_large).then(|| self.gpu.inspect(|inspector| inspector.any(&questions)));
        Ok(match asked.flatten().transpose()? {
            Some(false) => Suspects::None,
            // Bytes have few values: what is as large holds them all, and the poison with them.
            // Room is an estimate: where there is none, the host looks.
            Some(true) if memory.output_bytes() <= self.copies.room => match memory.copies() {
                Ok(copies) => Suspects::Copied(copies),
                Err(_) => Suspects::Brought(memory.outputs()?),
            },
            _ => Suspects::Brought(memory.outputs()?),
        })
    }

    /// What is left of them after a second launch, given copies of what the first one left. Where that is none, the results
    /// of the second one are in memory; else the host says what is unwritten.
    fn suspects_again(
        &self,
        memory: &mut cuda::CallMemory,
        first: &[DeviceBuffer],
        issue: &dyn Fn() -> Result<()>,
    ) -> Result<Suspects> {
        memory.poison_again()?;
        issue()?;
        let questions = memory.questions_again(first);
        match self.gpu.inspect(|inspector| inspector.any(&questions)).transpose()? {
            Some(false) => Ok(Suspects::None),
            _ => first.iter().map(DeviceBuffer::all_bytes).collect::<Result<_>>().map(Suspects::Brought),
        }
    }

    /// Keeps what a step left in a value, for the steps that read it.
    fn remember(&mut self, value: ValueId, buffer: &GuardedBuffer) -> Result<()> {
        if !self.call.checks.inputs || !self.copies.read.contains(&value) {
            return Ok(());
        }
        match self.copies.make(buffer) {
            Some(copy) => drop(self.copies.values.insert(value, copy)),
            None => {
                self.known.insert(value, buffer.bytes_from(0, buffer.len())?);
                self.fresh.push(value);
            }
        }
        Ok(())
    }

    /// Issues work on results and workspaces between red zones, waits, and looks at what
    /// became of them.
    fn checked(&mut self, work: &Work<'_>, mut memory: cuda::CallMemory, issue: &dyn Fn() -> Result<()>) -> Result<()> {
        let Call { cx, program, checks, .. } = self.call;
        let issue = || {
            cx.span(Phase::Launch, work.issued.name, work.id, || {
                issue()?;
                self.gpu.device.synchronize()
            })
        };
        self.fresh.clear();
        issue()?;
        let found = cx.span(Phase::Verify, "download", work.id, || {
            self.check_memory(work, &memory)?;
            if checks.unwritten { self.suspects(&memory).map(Some) } else { Ok(None) }
        })?;
        let found = match found {
            Some(Suspects::Copied(first)) => {
                Some(cx.span(Phase::Verify, "again", work.id, || self.suspects_again(&mut memory, &first, &issue))?)
            }
            other => other,
        };
        let is_clean = matches!(found, Some(Suspects::None));
        if let Some(Suspects::Brought(found)) = found {
            let name = |output: usize| program.name_of(work.writes[output]).to_string();
            // After a second launch what is in memory is what that one left.
            if !memory.check_written(work.issued, &found, name, issue)? {
                self.known.extend(work.writes.iter().copied().zip(found));
                self.fresh.extend_from_slice(work.writes);
            }
        }
        cx.span(Phase::Verify, "copies", work.id, || {
            for (output, buffer) in work.writes.iter().zip(memory.into_outputs()) {
                if is_clean {
                    self.remember(*output, &buffer)?;
                }
                self.placed.own.insert(*output, buffer);
            }
            Ok(())
        })
    }

    /// Poisoned memory for each value that is written, and where each is. A part is in memory of the whole, which has
    /// what other steps wrote.
    fn results(&self, writes: &[ValueId], memory: &mut cuda::CallMemory) -> Result<Vec<u64>> {
        let values = &self.call.program.values;
        let place = |&output: &ValueId| {
            let own = &values[output];
            if let Storage::AliasOf { .. } = own.storage {
                return self.address(output);
            }
            memory.output(own.bytes() as usize, own.meta.dtype.bytes())
        };
        writes.iter().map(place).collect()
    }

    /// The digest of a result's storage as the caller would get it: computed where the storage is, but for what is little.
    /// If the bytes that the caller would get from his own argument were written too, the digest is another one.
    fn digest(&self, value: ValueId) -> Result<Hash128> {
        let Call { program, args, .. } = self.call;
        let (own, root) = (&program.values[value], program.root(value));
        let (buffer, start, bytes) = match (own.storage, program.values[root.0].storage) {
            (Storage::Input(position), _) => {
                let buffer = self.placed.inputs.get(&position).ok_or_else(|| missing(program, value))?;
                (buffer, 0, buffer.len())
            }
            (_, Storage::Input(position)) => return given(args, position, root.1, own.bytes()).map(digest_of),
            _ if own.bytes() == 0 => return Ok(digest_of(&[])),
            _ => {
                let (buffer, start) = self.placed.place(program, args, value)?;
                (buffer, start, own.bytes() as usize)
            }
        };
        let address = buffer.address() + start as u64;
        let on_device = bytes >= WORTH && address.is_multiple_of(WORD as u64);
        match on_device.then(|| self.gpu.inspect(|inspector| inspector.digest(address, bytes))).flatten() {
            Some(digest) => digest,
            None => buffer.bytes_from(start, bytes).map(|bytes| digest_of(&bytes)),
        }
    }

    /// Whether results are large, can be looked at on the device, and leave enough of its memory to later calls.
    fn may_hold(&self) -> Result<bool> {
        let program = self.call.program;
        let bytes = |value: ValueId| match program.values[value].storage {
            Storage::Input(position) => self.call.tensor(position).map_or(0, |given| given.data.len()),
            _ => program.values[value].bytes() as usize,
        };
        let (most, all) = results_of(program)
            .map(bytes)
            .fold((0, 0usize), |(most, all), bytes| (bytes.max(most), all.saturating_add(bytes)));
        if most < WORTH || self.gpu.inspect(|_| ()).is_none() {
            return Ok(false);
        }
        let free = self.gpu.device.memory()?.0 + self.gpu.device.memory_use().cached;
        Ok(all <= free / COPIES_SHARE)
    }
}

impl CallMemory for GpuCall<'_> {
    fn launch(&mut self, launch: &Launch) -> Result<Option<SimReport>> {
        let cx = self.call.cx;
        let loaded = self.gpu.load(&cx, &launch.plan)?;
        let (kernel, id) = (&loaded.kernel, launch.plan.trace_id());
        if loaded.found {
            cx.span(Phase::Codegen, CACHED, id, || ());
        }
        let own = self.reserve_wholes(&launch.outputs)?;
        let mut memory = cuda::CallMemory::new(&self.gpu.device);
        let block = self.prepare(launch, &mut memory)?;
        let parts: Vec<ValueId> = launch.outputs.iter().copied().filter(|value| !own.contains(value)).collect();
        let work = Work { issued: kernel.into(), id, reads: &launch.inputs, writes: &own, parts: &parts };
        let issue = || kernel.launch(launch.launch.grid, launch.launch.block, &block);
        self.checked(&work, memory, &issue)?;
        Ok(None)
    }

    fn multiply(&mut self, library: &LibraryCall) -> Result<bool> {
        let (issued, id) = (Issued { name: "cublasLtMatmul", barrier: None }, library.call.segment as u64);
        // The first one of a process starts the library.
        let planned = self.call.cx.span(Phase::Plan, issued.name, id, || self.gpu.plan_product(library))?;
        let Some(planned) = planned else { return Ok(false) };
        let mut memory = cuda::CallMemory::new(&self.gpu.device);
        let operand = |number: usize| library.operands.get(number).map_or(Ok(0), |value| self.address(*value));
        let Some(&d) = self.results(&library.call.outputs, &mut memory)?.first() else {
            return Err(Diagnostic::bug("a product has no result"));
        };
        let workspace = memory.workspace(planned.workspace_bytes(), false)?;
        let at = ProductAddresses { a: operand(0)?, b: operand(1)?, bias: operand(2)?, d, workspace };
        let reads: Vec<Option<ValueId>> = library.operands.iter().copied().map(Some).collect();
        let work = Work { issued, id, reads: &reads, writes: &library.call.outputs, parts: &[] };
        let stream = self.gpu.device.stream();
        self.checked(&work, memory, &|| planned.issue(&at, stream))?;
        Ok(true)
    }

    fn read(&self, value: ValueId) -> Result<Vec<u8>> {
        self.placed.read(self.call.program, self.call.args, value)
    }

    fn take(&mut self, value: ValueId) -> Result<Vec<u8>> {
        if self.fresh.contains(&value)
            && let Some(bytes) = self.known.remove(&value)
        {
            return Ok(bytes);
        }
        self.read(value)
    }

    fn write(&mut self, value: ValueId, bytes: Vec<u8>) -> Result<()> {
        self.fresh.clear();
        self.reserve(value, 0)?;
        match self.placed.own.get_mut(&value) {
            Some(buffer) => buffer.upload(&bytes),
            None => Err(missing(self.call.program, value)),
        }
    }

    fn copy(&mut self, copy: &Copy, rows: &[CopyRows]) -> Result<()> {
        self.fresh.clear();
        self.reserve(self.call.program.root(copy.to).0, 0)?;
        let (from, to, device) = (self.address(copy.from)?, self.address(copy.to)?, &self.gpu.device);
        rows.iter().try_for_each(|row| device.copy_rows(to, from, row, device.stream()))
    }

    fn free(&mut self, value: ValueId) {
        self.placed.own.remove(&value);
        self.known.remove(&value);
        if let Some(copy) = self.copies.values.remove(&value) {
            self.copies.room += copy.len();
        }
    }

    fn hold(&mut self, known: Hash128) -> Result<Option<Held>> {
        let Call { program, args, .. } = self.call;
        if !self.may_hold()? {
            return Ok(None);
        }
        let one = |value: ValueId| Ok((meta_of(program, args, value)?, self.digest(value)?));
        let digests: Vec<_> = results_of(program).map(one).collect::<Result<_>>()?;
        Ok((together(digests) == known).then(|| Held::new(program, std::mem::take(&mut self.placed))))
    }
}

/// Bytes of a workspace of a kernel.
pub(super) fn workspace_bytes(launch: &Launch, buffer: BufId) -> Result<usize> {
    let element = launch.plan.kernel().buffers[buffer].dtype.bytes();
    usize::try_from(launch.launch.buffer_lens[buffer])
        .ok()
        .and_then(|len| len.checked_mul(element))
        .ok_or_else(|| Diagnostic::bug(format!("workspace {buffer} has no size in bytes")))
}
