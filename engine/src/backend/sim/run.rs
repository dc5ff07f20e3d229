//! Runs a compiled kernel.

use super::compile::{SimProgram, compile};
use super::isel;
use super::memory::SimMemory;
use super::report::{self, SimReport};
use crate::diag::{Diagnostic, Result, code};
use crate::kernel::{BoundLaunch, BoundParam, Kernel};
use crate::options::{DeviceDesc, SimOptions, SimSchedule};
use simcore::{Config, SchedPolicy};

/// Compiles and runs a kernel; see [`run_program`].
pub fn run(kernel: &Kernel, launch: &BoundLaunch, memory: &mut SimMemory, options: &SimOptions) -> Result<SimReport> {
    run_program(&compile(kernel)?, kernel, launch, memory, options)
}

/// How many blocks of a launch a device holds at once, registers aside: the
/// compiler of the device decides on those.
pub fn resident_blocks(device: &DeviceDesc, launch: &BoundLaunch) -> u64 {
    // Each block takes whole warps, and a KiB of shared memory for the system.
    let threads = launch.threads().next_multiple_of(32).max(32);
    let shared = launch.shared_bytes.saturating_add(1 << 10);
    let per_sm = (device.max_threads_per_sm / threads).min(device.shared_per_sm / shared).min(device.max_blocks_per_sm);
    u64::from(per_sm) * u64::from(device.sm_count)
}

/// Runs a program on the memory of a launch. The same arguments give the same
/// memory, the same report and the same error, whatever the number of threads.
/// An error found in the kernel is a [`Bug`](crate::diag::DiagnosticKind::Bug); the
/// contents of memory are then unspecified.
pub fn run_program(
    program: &SimProgram,
    kernel: &Kernel,
    launch: &BoundLaunch,
    memory: &mut SimMemory,
    options: &SimOptions,
) -> Result<SimReport> {
    memory.check_size()?;
    if launch.is_empty() {
        return Ok(SimReport::empty(kernel, memory, launch));
    }
    let params = launch.params.iter().map(|param| match param {
        BoundParam::Pointer(_) => 0,
        BoundParam::Scalar { dtype, value } => isel::to_bits(*dtype, *value),
    });
    let core_launch = simcore::LaunchConfig { grid: launch.grid, block: launch.block, params: params.collect() };
    if let Err(reason) = program.core.validate(&core_launch, &memory.core) {
        let message = format!("kernel {} is beyond the simulator: {reason}", kernel.name);
        return Err(Diagnostic::unsupported(code::SIM_FEATURE, message));
    }
    let config = Config {
        policy: match options.schedule {
            SimSchedule::Lockstep => SchedPolicy::Lockstep,
            SimSchedule::Random => SchedPolicy::Random(options.seed),
            SimSchedule::Pct(depth) => SchedPolicy::Pct { depth, seed: options.seed },
            SimSchedule::Adversary => SchedPolicy::Adversary(options.seed),
        },
        detect: options.detect,
        count: options.count,
        threads: options.threads as usize,
        max_steps: options.max_steps,
        resident: options.resident_blocks,
        ..Config::default()
    };
    match simcore::run(&program.core, &core_launch, &mut memory.core, &config) {
        Ok(done) => Ok(SimReport::new(program, kernel, done, memory)),
        Err(trap) => Err(report::diagnose(program, kernel, launch, &trap)),
    }
}
