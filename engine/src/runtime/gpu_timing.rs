//! Programs timed on a GPU: by events of the device, and by the host's own time.
//!
//! What is timed is what a caller gets whose tensors are on the device: values in one
//! arena, steps one behind the other on the stream, no wait between them.

use super::bench::{BenchOptions, BenchReport};
use super::callable::Callable;
use super::device_tensor::{DeviceArg, OwnedTensor};
use super::executor::Call;
use super::on_cuda::CudaBackend;
use super::profile::StepCost;
use super::session::Session;
use super::unchecked::OnDevice;
use crate::backend::cuda::{Device, DeviceBuffer, Samples, Timer, TimingOptions};
use crate::diag::{Diagnostic, Result};
use crate::fusion::Fusion;
use crate::options::{CompileCx, Phase, RunChecks, SimOptions, Trace};
use crate::program::{Program, Step};
use crate::tensor::Arg;
use crate::util::quantile;
use std::sync::{Arc, PoisonError};

/// Zeroed workspaces made ahead for a measurement.
const MADE_AHEAD: usize = 512;

impl CudaBackend {
    pub(super) fn bench(
        &self,
        cx: &CompileCx<'_>,
        program: &Arc<Program>,
        args: &[Arg],
        options: &BenchOptions,
    ) -> Result<BenchReport> {
        program.check_on_device()?;
        let sim = SimOptions::default();
        let call = Call { cx: *cx, program, args, known: None, sim: &sim, checks: RunChecks::NONE };
        let mut placed = OnDevice::new(self, &call)?;
        let mut zeros = ZeroRing::new(&self.device, placed.ready.zeroed_bytes)?;
        let outputs = program.outputs.iter().map(|value| program.values[*value].meta.dense_bytes().unwrap_or(0) as u64);
        let (bytes_read, bytes_written) = (args.iter().map(distinct_bytes).sum(), outputs.sum());
        let timing = TimingOptions {
            warmup: options.warmup,
            samples: options.samples,
            flush_l2: options.flush_l2,
            copy_bytes: if options.copy_ceiling { bytes_read + bytes_written } else { 0 },
            issues: placed.ready.issues(),
            stretch_ppm: options.stretch_ppm,
        };
        let samples = self.measure(&timing, || {
            placed.addresses.zeroed = zeros.next()?;
            placed.issue(&call)
        })?;
        let Samples { launch_ns: kernel_ns, copy_ns, unstretched_ns } = samples;
        Ok(BenchReport { kernel_ns, copy_ns, unstretched_ns, bytes_read, bytes_written })
    }

    fn measure(&self, timing: &TimingOptions, mut issue: impl FnMut() -> Result<()>) -> Result<Samples> {
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.is_none() {
            *timer = Some(Timer::new(&self.device, self.nvrtc())?);
        }
        let Some(timer) = timer.as_mut() else { return Err(Diagnostic::bug("the timer was made above")) };
        timer.measure(timing, |_| issue())
    }

    /// Measures each step of a program by itself, in order, so that each reads what the steps
    /// before it left; operations on the host are done once.
    pub(super) fn measure_each(&self, call: &Call<'_>, options: &BenchOptions) -> Result<Vec<StepCost>> {
        let program = call.program;
        let mut placed = OnDevice::new(self, call)?;
        let mut zeros = ZeroRing::new(&self.device, placed.ready.zeroed_bytes)?;
        let mut costs = Vec::with_capacity(program.steps.len());
        for (number, step) in program.steps.iter().enumerate() {
            let issues = placed.ready.issues_of(number);
            if issues == 0 || matches!(step, Step::Host(_)) {
                placed.issue_step(call, number)?;
                costs.push(StepCost::Nothing);
                continue;
            }
            let touched = step.reads().into_iter().chain(step.writes().iter().copied());
            let bytes = touched.map(|value| program.values[value].meta.distinct_bytes()).sum();
            let copy_bytes = if options.copy_ceiling { bytes } else { 0 };
            let BenchOptions { warmup, samples, flush_l2, .. } = *options;
            let timing = TimingOptions { warmup, samples, flush_l2, copy_bytes, issues, stretch_ppm: 0 };
            let samples = self.measure(&timing, || {
                placed.addresses.zeroed = zeros.next()?;
                placed.issue_step(call, number)
            })?;
            let ns = quantile(&samples.launch_ns, 0.5).unwrap_or_default();
            costs.push(StepCost::Timed { ns, copy_ns: quantile(&samples.copy_ns, 0.5) });
        }
        Ok(costs)
    }
}

/// Calls a fusion with tensors that are on the device, each call a span of its own.
pub(super) fn host_calls(
    session: &Session,
    gpu: &CudaBackend,
    fusion: &Fusion,
    args: &[Arg],
    calls: u32,
    trace: &dyn Trace,
) -> Result<()> {
    let tensors = args.iter().map(|arg| match arg {
        Arg::Tensor(tensor) => OwnedTensor::upload(&gpu.device, tensor).map(Some),
        Arg::Scalar(_) => Ok(None),
    });
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let given = args.iter().zip(&tensors).filter_map(|(arg, tensor)| match (arg, tensor) {
        (Arg::Scalar(value), _) => Some(DeviceArg::Scalar(*value)),
        (Arg::Tensor(_), tensor) => tensor.as_ref().map(|tensor| DeviceArg::Tensor(tensor.tensor())),
    });
    let given: Vec<DeviceArg<'_>> = given.collect();
    let (callable, stream) = (Callable::new(session, fusion)?, gpu.device.stream());
    let results = callable.call(&given, stream)?;
    let into: Vec<_> = results.iter().map(|result| result.tensor()).collect();
    let cx = session.cx(trace);
    for _ in 0..calls {
        gpu.device.synchronize()?;
        cx.span(Phase::Launch, "host call", 0, || callable.call_into(&given, &into, stream))?;
    }
    gpu.device.synchronize()
}

/// Zeroed workspaces, one for each call of a measurement, so that zeroing is not measured.
struct ZeroRing {
    storage: DeviceBuffer,
    bytes: usize,
    used: usize,
}

impl ZeroRing {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        Ok(Self { storage: device.alloc(bytes * MADE_AHEAD)?, bytes, used: MADE_AHEAD })
    }
    /// The next one; all are zeroed again when none is left.
    fn next(&mut self) -> Result<u64> {
        if self.used >= MADE_AHEAD {
            self.used = 0;
            self.storage.fill(0, self.bytes * MADE_AHEAD, 0)?;
        }
        let address = self.storage.address() + (self.used * self.bytes) as u64;
        self.used += 1;
        Ok(address)
    }
}

/// Bytes of the elements of an argument that differ in place.
fn distinct_bytes(arg: &Arg) -> u64 {
    match arg {
        Arg::Tensor(tensor) => tensor.meta.distinct_bytes(),
        Arg::Scalar(_) => 0,
    }
}
