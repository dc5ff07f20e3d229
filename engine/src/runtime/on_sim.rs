//! Calls on the simulator: compile to bytecode, fill memory, run, read the outputs.

use super::cache::Cache;
use super::plan::Plan;
use super::session::Ready;
use crate::backend::sim::{self, Memory, Program, SimReport};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::ParamKind;
use crate::options::{CompileCx, Phase, SimOptions};
use crate::tensor::{Arg, HostTensor};
use std::sync::Arc;

/// Programs that are kept.
const MAX_PROGRAMS: usize = 1024;

/// The simulated device.
pub(super) struct Simulator {
    pub(super) options: SimOptions,
    programs: Cache<Program>,
}

impl Simulator {
    pub(super) fn new(options: SimOptions) -> Self {
        Self { options, programs: Cache::new(MAX_PROGRAMS) }
    }

    fn program(&self, cx: &CompileCx<'_>, plan: &Plan) -> Result<Arc<Program>> {
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
    ) -> Result<(Vec<HostTensor>, SimReport)> {
        let kernel = &ready.plan.kernel;
        let program = self.program(cx, &ready.plan)?;
        let mut memory = cx.span(Phase::Load, "arguments", ready.plan.trace_id(), || place(ready, args))?;
        let report = cx.span(Phase::Launch, &kernel.name, ready.plan.trace_id(), || {
            let resident = sim::resident_blocks(cx.device, &ready.launch).min(options.resident_blocks);
            let options = SimOptions { resident_blocks: resident, ..*options };
            sim::run_program(&program, kernel, &ready.launch, &mut memory, &options)
        })?;
        if let Some(&(output, _, missing)) = report.unwritten.iter().find(|(_, _, missing)| *missing > 0) {
            let name = &ready.plan.fusion.tensors[ready.plan.fusion.outputs[output as usize]].name;
            let message =
                format!("kernel {} leaves {missing} elements of output {output} `%{name}` unwritten", kernel.name);
            return Err(Diagnostic::bug_code(code::UNINITIALISED, message));
        }
        Ok((outputs(ready, &memory)?, report))
    }
}

/// Fills memory with the arguments; a view's storage from its first element on.
fn place(ready: &Ready, args: &[Arg]) -> Result<Memory> {
    let kernel = &ready.plan.kernel;
    let mut memory = Memory::new(kernel, &ready.launch);
    for param in kernel.params.values() {
        if let ParamKind::Input { input, buffer } = param.kind {
            let Some(Arg::Tensor(tensor)) = args.get(input as usize) else {
                return Err(Diagnostic::bug(format!("argument {input} of kernel {} is no tensor", kernel.name)));
            };
            let start = tensor.offset.saturating_mul(tensor.dtype().bytes());
            memory.fill(buffer, tensor.data.get(start..).unwrap_or_default())?;
        }
    }
    Ok(memory)
}

fn outputs(ready: &Ready, memory: &Memory) -> Result<Vec<HostTensor>> {
    let tensor = |(output, meta): (usize, &crate::tensor::TensorMeta)| {
        let data = memory.output(output as u32).unwrap_or_default().to_vec();
        HostTensor::new(meta.clone(), data, 0)
            .map_err(|error| Diagnostic::bug(format!("output {output} of the simulator: {}", error.message)))
    };
    ready.outputs.iter().enumerate().map(tensor).collect()
}
