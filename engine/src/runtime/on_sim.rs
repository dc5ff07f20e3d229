//! Calls on the simulator: kernels become bytecode; each launch has memory of its own,
//! filled from that of the call, so that every access is looked at.

use super::bench::BenchOptions;
use super::cache::Cache;
use super::executor::{Call, CallMemory, Executor};
use super::profile::StepCost;
use super::session::guard;
use crate::backend::findings::{self, Elements};
use crate::backend::sim::{self, Heap, HeapShare, SimMemory, SimProgram, SimReport};
use crate::compile::Plan;
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{self, BoundLaunch, BufId, Kernel, ParamKind};
use crate::options::{CompileCx, DeviceDesc, Phase, SimOptions};
use crate::program::{Copy, Launch, LibraryCall, Step, Storage, ValueId};
use crate::tensor::{Arg, ArgMeta, CopyRows, copy_rows};
use crate::util::SecondaryMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What memory that was given up is filled with.
const FREED: u8 = 0xdd;
/// Programs that are kept.
const MAX_PROGRAMS: usize = 1024;

/// The simulated device.
pub(super) struct Simulator {
    pub(super) options: SimOptions,
    programs: Cache<SimProgram>,
    heap: Arc<Heap>,
}

impl Simulator {
    pub(super) fn new(options: SimOptions) -> Self {
        Self { options, programs: Cache::new(MAX_PROGRAMS), heap: Arc::default() }
    }

    /// The device's memory.
    pub(super) fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    fn program(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<Arc<SimProgram>> {
        self.programs.get_or_try(plan.kernel_hash(), || {
            cx.span(Phase::Codegen, "bytecode", plan.trace_id(), || sim::compile(plan.kernel()))
        })
    }

    /// Runs a kernel made by hand, with all checks; the bytes of its outputs.
    pub(super) fn run_kernel(
        &self,
        cx: &CompileCx<'_>,
        kernel: &Kernel,
        args: &[Arg],
        options: &SimOptions,
    ) -> Result<Vec<Vec<u8>>> {
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let launch = kernel::bind(kernel, &metas)?;
        let call = Launched { kernel, launch: &launch, id: 0 };
        let given = |input: usize| argument(args, input);
        let (memory, report) = self.launch(cx, &call, &sim::compile(kernel)?, &given, options)?;
        check_inputs(kernel, &memory, &given)?;
        check_written(&call, &report, |output| output.to_string())?;
        let outputs = report.unwritten.iter().map(|(output, ..)| memory.output(*output).unwrap_or_default().to_vec());
        Ok(outputs.collect())
    }

    /// Runs a kernel on the bytes of its inputs, from their first elements on.
    fn launch<'b>(
        &self,
        cx: &CompileCx<'_>,
        call: &Launched<'_>,
        program: &SimProgram,
        given: &dyn Fn(usize) -> Option<&'b [u8]>,
        options: &SimOptions,
    ) -> Result<(SimMemory, SimReport)> {
        let Launched { kernel, launch, id } = *call;
        check_limits(cx.device, call)?;
        let mut memory = cx.span(Phase::Load, "arguments", id, || self.place(call, given))?;
        let report = cx.span(Phase::Launch, &kernel.name, id, || {
            let resident = sim::resident_blocks(cx.device, launch).min(options.resident_blocks);
            let options = SimOptions { resident_blocks: resident, ..*options };
            sim::run_program(program, kernel, launch, &mut memory, &options)
        })?;
        Ok((memory, report))
    }

    /// Fills memory with a kernel's inputs.
    fn place<'b>(&self, call: &Launched<'_>, given: &dyn Fn(usize) -> Option<&'b [u8]>) -> Result<SimMemory> {
        let mut memory = SimMemory::on(&self.heap, call.kernel, call.launch);
        for (input, buffer) in inputs(call.kernel) {
            let Some(bytes) = given(input) else {
                return Err(Diagnostic::bug(format!("argument {input} of kernel {} is no tensor", call.kernel.name)));
            };
            memory.fill(buffer, bytes)?;
        }
        Ok(memory)
    }
}

impl Executor for Simulator {
    fn begin<'a>(&'a self, call: Call<'a>) -> Result<Box<dyn CallMemory + 'a>> {
        let bytes = call.program.arena_bytes;
        let share = self.heap.take(bytes).ok_or_else(|| sim::too_little_memory(bytes, self.heap.live()))?;
        let arena = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let placed = call.program.device_inputs();
        Ok(Box::new(SimCall { device: self, call, placed, arena, results: SecondaryMap::new(), _share: share }))
    }

    fn compile_anew(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<()> {
        cx.span(Phase::Codegen, "bytecode", plan.trace_id(), || sim::compile(plan.kernel())).map(drop)
    }

    fn measure_steps(&self, call: Call<'_>, _options: &BenchOptions) -> Result<Vec<StepCost>> {
        let mut reports = self.run(call)?.reports.into_iter();
        let cost = |step: &Step| match step {
            Step::Launch(_) => match reports.next().flatten() {
                Some(report) => StepCost::Counted(Box::new(report.counters)),
                None => StepCost::Nothing,
            },
            Step::Library(_) | Step::Host(_) | Step::Copy(_) => StepCost::Nothing,
        };
        Ok(call.program.steps.iter().map(cost).collect())
    }
}

/// The memory of a call: values between launches lie in an arena, as on a device, so
/// that a wrong place shows in wrong values.
struct SimCall<'a> {
    device: &'a Simulator,
    call: Call<'a>,
    /// The arguments that are on the device.
    placed: BTreeSet<u32>,
    arena: Vec<u8>,
    /// What the caller gets, arguments that were written included.
    results: SecondaryMap<ValueId, Option<Vec<u8>>>,
    _share: HeapShare,
}

impl SimCall<'_> {
    /// The bytes of a value.
    fn bytes(&self, value: ValueId) -> Result<&[u8]> {
        let program = self.call.program;
        let (root, start) = program.root(value);
        let storage = match (&self.results[root], program.values[root].storage) {
            (Some(data), _) => Some(&data[..]),
            (None, Storage::Input(position)) => {
                self.placed.get(&position).and_then(|_| argument(self.call.args, position as usize))
            }
            (None, Storage::Arena { offset }) => self.arena.get(offset as usize..),
            (None, Storage::Output(_) | Storage::AliasOf { .. }) => None,
        };
        let (start, bytes) = (start as usize, program.values[value].bytes() as usize);
        storage
            .and_then(|storage| storage.get(start..start + bytes))
            .ok_or_else(|| Diagnostic::bug(format!("{value} of @{} is not in memory", self.call.program.name())))
    }

    fn put(&mut self, value: ValueId, data: &[u8]) -> Result<()> {
        match self.call.program.values[value].storage {
            Storage::Arena { offset } => {
                let Some(place) = self.arena.get_mut(offset as usize..offset as usize + data.len()) else {
                    return Err(Diagnostic::bug(format!("{value} does not fit the memory of its program")));
                };
                place.copy_from_slice(data);
            }
            Storage::Input(_) | Storage::Output(_) => self.results.set(value, Some(data.to_vec())),
            Storage::AliasOf { value: whole, offset } => self.put_part(value, (whole, offset), data)?,
        }
        Ok(())
    }

    /// Puts the elements of a part where they lie in the whole; what lies between them stays.
    fn put_part(&mut self, part: ValueId, (whole, offset): (ValueId, u64), data: &[u8]) -> Result<()> {
        let values = &self.call.program.values;
        let (rows, bytes) = (copy_rows(&values[part].meta, &values[part].meta), values[whole].bytes() as usize);
        let place = match values[whole].storage {
            Storage::Arena { offset } => self.arena.get_mut(offset as usize..offset as usize + bytes),
            Storage::Output(_) => {
                if self.results[whole].is_none() {
                    self.results.set(whole, Some(vec![FREED; bytes]));
                }
                self.results[whole].as_deref_mut()
            }
            Storage::Input(_) | Storage::AliasOf { .. } => None,
        };
        let place = place.and_then(|place| place.get_mut(offset as usize..));
        let missing = || Diagnostic::bug(format!("{part} is no part of {whole}"));
        write_rows(&rows, data, place.ok_or_else(missing)?).ok_or_else(missing)
    }
}

impl CallMemory for SimCall<'_> {
    fn launch(&mut self, launch: &Launch) -> Result<Option<SimReport>> {
        let Call { cx, program, sim, checks, .. } = self.call;
        let plan = &launch.plan;
        let compiled = self.device.program(&cx, plan)?;
        let launched = Launched { kernel: plan.kernel(), launch: &launch.launch, id: plan.trace_id() };
        let run = || {
            let given =
                |input: usize| launch.inputs.get(input).copied().flatten().and_then(|value| self.bytes(value).ok());
            let (memory, report) = self.device.launch(&cx, &launched, &compiled, &given, sim)?;
            if checks.inputs {
                check_inputs(launched.kernel, &memory, &given)?;
            }
            if checks.unwritten {
                let name = |output: usize| program.name_of(launch.outputs[output]).to_string();
                check_written(&launched, &report, name)?;
            }
            Ok((memory, report))
        };
        let (memory, report) = guard("simulating", plan.fusion(), run)?;
        for (position, output) in launch.outputs.iter().enumerate() {
            self.put(*output, memory.output(position as u32).unwrap_or_default())?;
        }
        Ok(Some(report))
    }

    /// The reference stands in for libraries.
    fn multiply(&mut self, _: &LibraryCall) -> Result<bool> {
        Ok(false)
    }

    fn read(&self, value: ValueId) -> Result<Vec<u8>> {
        self.bytes(value).map(<[u8]>::to_vec)
    }

    fn write(&mut self, value: ValueId, bytes: Vec<u8>) -> Result<()> {
        self.put(value, &bytes)
    }

    fn copy(&mut self, copy: &Copy, rows: &[CopyRows]) -> Result<()> {
        let (from, to) = (self.read(copy.from)?, &self.call.program.values[copy.to]);
        // What lies between the elements of an argument stays.
        let mut data = match to.storage {
            Storage::Input(_) => self.read(copy.to)?,
            Storage::Output(_) | Storage::Arena { .. } | Storage::AliasOf { .. } => vec![0; to.bytes() as usize],
        };
        let leaves = || Diagnostic::bug(format!("a copy of {} to {} leaves one of them", copy.from, copy.to));
        write_rows(rows, &from, &mut data).ok_or_else(leaves)?;
        self.put(copy.to, &data)
    }

    /// What is read after it was given up is not what was written.
    fn free(&mut self, value: ValueId) {
        let own = &self.call.program.values[value];
        if let Storage::Arena { offset } = own.storage
            && let Some(place) = self.arena.get_mut(offset as usize..offset as usize + own.bytes() as usize)
        {
            place.fill(FREED);
        }
    }
}

/// Copies rows between bytes; nothing where one of them leaves either.
fn write_rows(rows: &[CopyRows], from: &[u8], to: &mut [u8]) -> Option<()> {
    for row in rows {
        for i in 0..row.rows {
            let (start, end) = ((row.from + i * row.from_pitch) as usize, (row.to + i * row.to_pitch) as usize);
            let bytes = row.bytes as usize;
            to.get_mut(end..end + bytes)?.copy_from_slice(from.get(start..start + bytes)?);
        }
    }
    Some(())
}

/// What is launched.
#[derive(Clone, Copy)]
struct Launched<'a> {
    kernel: &'a Kernel,
    launch: &'a BoundLaunch,
    id: u64,
}

/// Fails with `E0605` where the device's driver would refuse the launch.
fn check_limits(device: &DeviceDesc, call: &Launched<'_>) -> Result<()> {
    let (name, launch) = (&call.kernel.name, call.launch);
    let refuse = |message: String| Err(Diagnostic::user(code::LAUNCH_CONFIG, message));
    if launch.shared_bytes > device.shared_per_block {
        let (asked, given) = (launch.shared_bytes, device.shared_per_block);
        return refuse(format!("kernel {name} asks for {asked} bytes of shared memory, a block has {given}"));
    }
    if launch.threads() > device.max_threads_per_block {
        let (asked, given) = (launch.threads(), device.max_threads_per_block);
        return refuse(format!("kernel {name} asks for {asked} threads, a block has {given}"));
    }
    Ok(())
}

/// The buffers of a kernel that hold inputs, with the inputs' numbers.
fn inputs(kernel: &Kernel) -> impl Iterator<Item = (usize, BufId)> {
    kernel.params.values().filter_map(|param| match param.kind {
        ParamKind::Input { input, buffer } => Some((input as usize, buffer)),
        _ => None,
    })
}

/// The bytes of an argument from its first element on.
fn argument(args: &[Arg], input: usize) -> Option<&[u8]> {
    let Some(Arg::Tensor(tensor)) = args.get(input) else { return None };
    Some(tensor.data.get(tensor.first_byte()..).unwrap_or_default())
}

/// Fails with `B0109` if an input does not hold what it was filled with.
fn check_inputs<'b>(kernel: &Kernel, memory: &SimMemory, given: &dyn Fn(usize) -> Option<&'b [u8]>) -> Result<()> {
    for (input, buffer) in inputs(kernel) {
        let found = memory.bytes(buffer).unwrap_or_default();
        let expected = given(input).unwrap_or_default().get(..found.len()).unwrap_or_default();
        if found != expected {
            let error = findings::input_changed(&format!("input {input}"), found, expected, 0);
            return Err(error.note(format!("by kernel {}", kernel.name)));
        }
    }
    Ok(())
}

/// Fails with `B0108` if elements of an output were never written, or others than its own.
fn check_written(launched: &Launched<'_>, report: &SimReport, name: impl Fn(usize) -> String) -> Result<()> {
    let Launched { kernel, launch, .. } = launched;
    for ((output, buffer, missing), first) in report.unwritten.iter().zip(&report.first_unwritten) {
        if *missing != launch.gaps[*buffer] {
            let elements = Elements { count: *missing, first: first.clone() };
            return Err(findings::unwritten(&kernel.name, *output as usize, &name(*output as usize), &elements));
        }
    }
    Ok(())
}
