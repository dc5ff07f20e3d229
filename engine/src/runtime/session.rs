//! One device and the plans compiled for it.

use super::bench::{BenchOptions, BenchReport};
use super::plan::Plan;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::Fusion;
use crate::kernel::BoundLaunch;
use crate::options::{DeviceDesc, Options, SimOptions, Trace};
use crate::tensor::{Arg, ArgMeta, HostTensor};
use std::sync::Arc;

/// A device, simulated or real, and the plans compiled for it.
pub struct Session {
    device: DeviceDesc,
    options: Options,
    sim: SimOptions,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The outputs of the fusion in order, dense and row-major.
    pub outputs: Vec<HostTensor>,
    /// What was run.
    pub plan: Arc<Plan>,
    /// How it was launched.
    pub launch: Arc<BoundLaunch>,
}

impl Session {
    /// A simulated device.
    pub fn simulator(device: DeviceDesc, sim: SimOptions, options: Options) -> Self {
        Self { device, options, sim }
    }
    /// The GPU with this ordinal among those the process sees.
    pub fn cuda(ordinal: usize, _options: Options) -> Result<Self> {
        Err(Diagnostic::user(
            code::NO_DRIVER,
            format!("GPU {ordinal} cannot be opened: this build has no CUDA back end"),
        ))
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
        true
    }
    /// The plan for a fusion and the class of these arguments, compiled if it is new.
    pub fn compile(&self, fusion: &Fusion, _args: &[ArgMeta], _trace: &dyn Trace) -> Result<Arc<Plan>> {
        Err(missing(fusion))
    }
    /// Compiles if needed and runs once.
    pub fn run(&self, fusion: &Fusion, args: &[Arg], trace: &dyn Trace) -> Result<RunOutcome> {
        self.run_as(fusion, args, &self.sim, trace)
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
        schedules.iter().map(|sim| self.run_as(fusion, args, sim, trace)).collect()
    }
    /// Measures a fusion on a GPU. Counters of the simulator come with every run.
    pub fn bench(
        &self,
        fusion: &Fusion,
        _args: &[Arg],
        _options: &BenchOptions,
        _trace: &dyn Trace,
    ) -> Result<BenchReport> {
        Err(missing(fusion))
    }

    fn run_as(&self, fusion: &Fusion, _args: &[Arg], _sim: &SimOptions, _trace: &dyn Trace) -> Result<RunOutcome> {
        Err(missing(fusion))
    }
}

fn missing(fusion: &Fusion) -> Box<Diagnostic> {
    Diagnostic::unsupported(code::NO_SCHEDULER, format!("no scheduler is available for fusion @{}", fusion.name))
}
