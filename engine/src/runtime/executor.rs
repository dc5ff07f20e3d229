//! What a device does with the steps of a program.
//!
//! [`Executor`] is a device, [`CallMemory`] the memory of one call on it; `run_steps` takes
//! a program through its steps on either. Nothing here decides: which values are, where
//! they lie and when they end stands in the program.

use super::bench::BenchOptions;
use super::held::Held;
use super::lookups;
use super::profile::StepCost;
use crate::backend::sim::SimReport;
use crate::compile::Plan;
use crate::diag::{Diagnostic, Result};
use crate::options::{CompileCx, Phase, RunChecks, SimOptions};
use crate::program::{Copy, HostCall, HostInput, Launch, LibraryCall, Program, Step, Storage, ValueId};
use crate::refeval;
use crate::tensor::{Arg, CopyRows, HostTensor, copy_rows};
use crate::util::Hash128;
use std::sync::Arc;

/// One call: what is run on what.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) cx: CompileCx<'a>,
    pub(super) program: &'a Arc<Program>,
    pub(super) args: &'a [Arg],
    /// The digest of results that need not be brought: see [`Hints::results`](super::Hints).
    pub(super) known: Option<Hash128>,
    /// How threads take turns; of no meaning on a GPU.
    pub(super) sim: &'a SimOptions,
    pub(super) checks: RunChecks,
}

impl<'a> Call<'a> {
    /// An argument that is a tensor.
    pub(super) fn tensor(&self, position: u32) -> Result<&'a HostTensor> {
        tensor_of(self.args, position)
    }
}

/// The argument at a position, which is a tensor.
pub(super) fn tensor_of(args: &[Arg], position: u32) -> Result<&HostTensor> {
    match args.get(position as usize) {
        Some(Arg::Tensor(tensor)) => Ok(tensor),
        _ => Err(Diagnostic::bug(format!("argument {position} was checked to be a tensor"))),
    }
}

/// A device.
pub(super) trait Executor: Send + Sync {
    /// Memory for a call, with the arguments in place that the device needs.
    fn begin<'a>(&'a self, call: Call<'a>) -> Result<Box<dyn CallMemory + 'a>>;

    /// Runs a program.
    fn run(&self, call: Call<'_>) -> Result<Executed> {
        run_steps(&mut *self.begin(call)?, call)
    }

    /// Makes the device's code of a kernel anew, and keeps nothing: what that takes is seen by
    /// the trace.
    fn compile_anew(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<()>;

    /// What each step of a program costs; of those that the host computes, nothing is said.
    fn measure_steps(&self, call: Call<'_>, options: &BenchOptions) -> Result<Vec<StepCost>>;
}

/// The memory of a call. Values come about in the order of steps.
pub(super) trait CallMemory {
    /// Runs a kernel, whose grid is not empty, and waits for it; what was counted.
    fn launch(&mut self, launch: &Launch) -> Result<Option<SimReport>>;
    /// Has a library compute an operation; whether there is one on this device.
    fn multiply(&mut self, library: &LibraryCall) -> Result<bool>;
    /// The bytes of a value from its first element to its last.
    fn read(&self, value: ValueId) -> Result<Vec<u8>>;
    /// The same behind the last step.
    fn take(&mut self, value: ValueId) -> Result<Vec<u8>> {
        self.read(value)
    }
    /// Makes a value of such bytes.
    fn write(&mut self, value: ValueId, bytes: Vec<u8>) -> Result<()>;
    /// Copies rows of one value into another, which need not be there yet.
    fn copy(&mut self, copy: &Copy, rows: &[CopyRows]) -> Result<()>;
    /// No later step reads the value.
    fn free(&mut self, value: ValueId);
    /// Behind the last step: the results, if their digest is this one and they are worth leaving where they are. Nothing
    /// can be asked of the memory afterwards.
    fn hold(&mut self, _known: Hash128) -> Result<Option<Held>> {
        Ok(None)
    }
}

/// Results on the host.
pub(super) struct Brought {
    pub(super) outputs: Vec<HostTensor>,
    pub(super) updates: Vec<(usize, HostTensor)>,
}

/// Where results are.
pub(super) enum Results {
    Brought(Brought),
    /// They are known, and still on the device.
    Held(Held),
}

/// What a call gave.
pub(super) struct Executed {
    pub(super) results: Results,
    /// Of each launch, in order.
    pub(super) reports: Vec<Option<SimReport>>,
}

/// Takes a program through its steps.
pub(super) fn run_steps(memory: &mut dyn CallMemory, call: Call<'_>) -> Result<Executed> {
    let program = call.program;
    let mut reports = Vec::new();
    for step in &program.steps {
        if let (Step::Launch(launch), true) = (step, call.checks.indices) {
            lookups::check(&call, launch, &|value| read_on(&call, memory, value))?;
        }
        match step {
            Step::Launch(launch) if launch.launch.is_empty() => {
                launch.outputs.iter().try_for_each(|output| memory.write(*output, Vec::new()))?;
                reports.push(None);
            }
            Step::Launch(launch) => reports.push(memory.launch(launch)?),
            Step::Library(library) => {
                if !memory.multiply(library)? {
                    evaluate_on(&call, &library.call, memory)?;
                }
            }
            Step::Host(host) => evaluate_on(&call, host, memory)?,
            Step::Copy(copy) => {
                let meta = |value: ValueId| &program.values[value].meta;
                memory.copy(copy, &copy_rows(meta(copy.from), meta(copy.to)))?;
            }
        }
        step.frees().iter().for_each(|value| memory.free(*value));
    }
    call.cx.span(Phase::Download, "results", 0, || {
        let held = call.known.map_or(Ok(None), |known| memory.hold(known))?;
        let bring = || bring(program, call.args, &mut |value| memory.take(value)).map(Results::Brought);
        Ok(Executed { results: held.map_or_else(bring, |held| Ok(Results::Held(held)))?, reports })
    })
}

/// Results as the caller gets them; `take` is the bytes of a value from element 0 on.
pub(super) fn bring(
    program: &Program,
    args: &[Arg],
    take: &mut dyn FnMut(ValueId) -> Result<Vec<u8>>,
) -> Result<Brought> {
    let mut tensor = |value: &ValueId| result(program, args, take, *value);
    let outputs = program.outputs.iter().map(&mut tensor).collect::<Result<_>>()?;
    let updates = program.updated().map(|(position, value)| Ok((position as usize, tensor(&value)?)));
    Ok(Brought { outputs, updates: updates.collect::<Result<_>>()? })
}

/// A value as the caller gets it: an argument that was updated keeps its storage, and a view of
/// one that was not may be of one that is not on the device.
fn result(
    program: &Program,
    args: &[Arg],
    take: &mut dyn FnMut(ValueId) -> Result<Vec<u8>>,
    value: ValueId,
) -> Result<HostTensor> {
    let own = &program.values[value];
    let (root, within) = program.root(value);
    let data = match program.values[root].storage {
        Storage::Input(position) if root != value => given(args, position, within, own.bytes())?.to_vec(),
        _ => take(value)?,
    };
    let Storage::Input(position) = own.storage else {
        return Ok(HostTensor { meta: own.meta.clone(), data: data.into(), offset: 0 });
    };
    let given = tensor_of(args, position)?;
    // What has no element lies nowhere.
    let start = if data.is_empty() { 0 } else { given.first_byte() };
    let mut tensor = given.clone();
    let Some(place) = tensor.data.get_mut(start..start + data.len()) else {
        return Err(Diagnostic::bug(format!("argument {position} is shorter than its layout")));
    };
    place.copy_from_slice(&data);
    Ok(tensor)
}

/// Evaluates an operation on the host, on arguments as they were given: no step has written
/// into them yet, and they may not be on the device.
fn evaluate_on(call: &Call<'_>, host: &HostCall, memory: &mut dyn CallMemory) -> Result<()> {
    let mut results = Vec::with_capacity(host.outputs.len());
    let read = |value: ValueId| read_on(call, memory, value);
    evaluate(&call.cx, call.program, host, &read, &mut |value, data| {
        results.push((value, data));
        Ok(())
    })?;
    results.into_iter().try_for_each(|(value, data)| memory.write(value, data))
}

/// Bytes of a value that a step reads, from element 0 on; of an argument as it was given.
fn read_on(call: &Call<'_>, memory: &dyn CallMemory, value: ValueId) -> Result<Vec<u8>> {
    let (root, within) = call.program.root(value);
    match call.program.values[root].storage {
        Storage::Input(position) => {
            given(call.args, position, within, call.program.values[value].bytes()).map(<[u8]>::to_vec)
        }
        _ => memory.read(value),
    }
}

/// Bytes of an argument, from so many behind its element 0 on.
pub(super) fn given(args: &[Arg], position: u32, within: u64, bytes: u64) -> Result<&[u8]> {
    let given = tensor_of(args, position)?;
    if bytes == 0 {
        // What has no element lies nowhere.
        return Ok(&[]);
    }
    let start = given.first_byte() + within as usize;
    let Some(data) = given.data.get(start..start + bytes as usize) else {
        return Err(Diagnostic::bug(format!("argument {position} is shorter than its layout")));
    };
    Ok(data)
}

/// Evaluates an operation on the host; `read` and `write` are the bytes of values from
/// element 0 on.
pub(super) fn evaluate(
    cx: &CompileCx<'_>,
    program: &Program,
    host: &HostCall,
    read: &dyn Fn(ValueId) -> Result<Vec<u8>>,
    write: &mut dyn FnMut(ValueId, Vec<u8>) -> Result<()>,
) -> Result<()> {
    let argument = |input: &HostInput| match *input {
        HostInput::Scalar(number) => Ok(Arg::Scalar(number)),
        HostInput::Value(value) => {
            let (meta, data) = (program.values[value].meta.clone(), read(value)?);
            Ok(Arg::Tensor(HostTensor { meta, data: data.into(), offset: 0 }))
        }
    };
    let args: Vec<Arg> = host.inputs.iter().map(argument).collect::<Result<_>>()?;
    let fusion = &program.segments.segments[host.segment].fusion;
    let results = cx.span(Phase::Launch, "host", host.segment as u64, || refeval::evaluate(fusion, &args))?;
    for (&output, result) in host.outputs.iter().zip(results) {
        let predicted = &program.values[output].meta;
        if result.meta != *predicted {
            let (name, found) = (program.name_of(output), &result.meta);
            let message = format!("segment {} returns `%{name}` as {found:?}, not as {predicted:?}", host.segment);
            return Err(Diagnostic::bug(message).note("later segments were compiled for the latter"));
        }
        let (start, bytes) = (result.first_byte(), program.values[output].bytes() as usize);
        let Some(data) = result.data.get(start..start + bytes) else {
            return Err(Diagnostic::bug(format!("`%{}` is shorter than its layout", program.name_of(output))));
        };
        write(output, data.to_vec())?;
    }
    Ok(())
}
