//! Calls on the simulator: compile to bytecode, fill memory, run, read the outputs.

use super::cache::Cache;
use super::plan::Plan;
use super::session::Ready;
use crate::backend::findings::{self, Elements};
use crate::backend::sim::{self, Heap, SimMemory, SimProgram, SimReport};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{self, BoundLaunch, BufId, Kernel, ParamKind};
use crate::options::{CompileCx, DeviceDesc, Phase, RunChecks, SimOptions};
use crate::tensor::{Arg, ArgMeta, HostTensor};
use std::sync::Arc;

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
        self.programs.get_or_try(plan.kernel_hash, || {
            cx.span(Phase::Codegen, "bytecode", plan.trace_id(), || sim::compile(&plan.kernel))
        })
    }

    pub(super) fn run(
        &self,
        cx: &CompileCx<'_>,
        ready: &Ready,
        args: &[Arg],
        options: &SimOptions,
        checks: &RunChecks,
    ) -> Result<(Vec<HostTensor>, SimReport)> {
        let program = self.program(cx, &ready.plan)?;
        let call = Launched { kernel: &ready.plan.kernel, launch: &ready.launch, id: ready.plan.trace_id() };
        let (memory, report) = self.launch(cx, &call, &program, args, options, checks)?;
        if checks.unwritten {
            let fusion = &ready.plan.fusion;
            check_written(call.kernel, &report, |output| fusion.tensors[fusion.outputs[output]].name.clone())?;
        }
        Ok((outputs(ready, &memory)?, report))
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
        let (memory, report) = self.launch(cx, &call, &sim::compile(kernel)?, args, options, &RunChecks::ALL)?;
        check_written(kernel, &report, |output| output.to_string())?;
        let outputs = report.unwritten.iter().map(|(output, ..)| memory.output(*output).unwrap_or_default().to_vec());
        Ok(outputs.collect())
    }

    fn launch(
        &self,
        cx: &CompileCx<'_>,
        call: &Launched<'_>,
        program: &SimProgram,
        args: &[Arg],
        options: &SimOptions,
        checks: &RunChecks,
    ) -> Result<(SimMemory, SimReport)> {
        let Launched { kernel, launch, id } = *call;
        check_limits(cx.device, call)?;
        let mut memory = cx.span(Phase::Load, "arguments", id, || self.place(call, args))?;
        let report = cx.span(Phase::Launch, &kernel.name, id, || {
            let resident = sim::resident_blocks(cx.device, launch).min(options.resident_blocks);
            let options = SimOptions { resident_blocks: resident, ..*options };
            sim::run_program(program, kernel, launch, &mut memory, &options)
        })?;
        if checks.inputs {
            check_inputs(kernel, &memory, args)?;
        }
        Ok((memory, report))
    }

    /// Fills memory with the arguments; a view's storage from its first element on.
    fn place(&self, call: &Launched<'_>, args: &[Arg]) -> Result<SimMemory> {
        let mut memory = SimMemory::on(&self.heap, call.kernel, call.launch);
        for (input, buffer) in inputs(call.kernel) {
            let Some(bytes) = argument(args, input) else {
                return Err(Diagnostic::bug(format!("argument {input} of kernel {} is no tensor", call.kernel.name)));
            };
            memory.fill(buffer, bytes)?;
        }
        Ok(memory)
    }
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
    let start = tensor.offset.saturating_mul(tensor.dtype().bytes());
    Some(tensor.data.get(start..).unwrap_or_default())
}

/// Fails with `B0109` if an input does not hold what it was filled with.
fn check_inputs(kernel: &Kernel, memory: &SimMemory, args: &[Arg]) -> Result<()> {
    for (input, buffer) in inputs(kernel) {
        let found = memory.bytes(buffer).unwrap_or_default();
        let expected = argument(args, input).unwrap_or_default().get(..found.len()).unwrap_or_default();
        if found != expected {
            let error = findings::input_changed(&format!("input {input}"), found, expected, 0);
            return Err(error.note(format!("by kernel {}", kernel.name)));
        }
    }
    Ok(())
}

/// Fails with `B0108` if elements of an output were never written.
fn check_written(kernel: &Kernel, report: &SimReport, name: impl Fn(usize) -> String) -> Result<()> {
    for ((output, _, missing), first) in report.unwritten.iter().zip(&report.first_unwritten) {
        if *missing > 0 {
            let elements = Elements { count: *missing, first: first.clone() };
            return Err(findings::unwritten(&kernel.name, *output as usize, &name(*output as usize), &elements));
        }
    }
    Ok(())
}

fn outputs(ready: &Ready, memory: &SimMemory) -> Result<Vec<HostTensor>> {
    let tensor = |(output, meta): (usize, &crate::tensor::TensorMeta)| {
        let data = memory.output(output as u32).unwrap_or_default().to_vec();
        HostTensor::new(meta.clone(), data, 0)
            .map_err(|error| Diagnostic::bug(format!("output {output} of the simulator: {}", error.message)))
    };
    ready.outputs.iter().enumerate().map(tensor).collect()
}
