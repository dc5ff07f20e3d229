//! Programs timed on a GPU: by events of the device, and by the host's own time.
//!
//! What is timed is what a caller gets whose tensors are on the device: values in one
//! arena, steps one behind the other on the stream, no wait between them.

use super::bench::{BenchOptions, BenchReport};
use super::callable::Callable;
use super::device_tensor::{DeviceArg, OwnedTensor};
use super::executor::Call;
use super::on_cuda::CudaBackend;
use super::session::Session;
use super::unchecked::OnDevice;
use crate::backend::cuda::{Device, DeviceBuffer, Timer, TimingOptions};
use crate::diag::{Diagnostic, Result};
use crate::fusion::Fusion;
use crate::options::{CompileCx, Phase, RunChecks, SimOptions, Trace};
use crate::program::Program;
use crate::tensor::{Arg, HostTensor, TensorMeta};
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
        let call = Call { cx: *cx, program, args, sim: &sim, checks: RunChecks::NONE };
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
        };
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.is_none() {
            *timer = Some(Timer::new(&self.device, self.nvrtc())?);
        }
        let Some(timer) = timer.as_mut() else { return Err(Diagnostic::bug("the timer was made above")) };
        let samples = timer.measure(&timing, |_| {
            placed.addresses.zeroed = zeros.next()?;
            placed.issue(&call)
        })?;
        Ok(BenchReport { kernel_ns: samples.launch_ns, copy_ns: samples.copy_ns, bytes_read, bytes_written })
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

/// Bytes of the elements of an argument that differ in place: an expanded axis counts once.
fn distinct_bytes(arg: &Arg) -> u64 {
    let Arg::Tensor(HostTensor { meta: TensorMeta { dtype, sizes, strides }, .. }) = arg else { return 0 };
    let moving = sizes.iter().zip(strides).filter(|(_, stride)| **stride != 0);
    let elements = moving.fold(1u64, |product, (size, _)| product.saturating_mul(size.unsigned_abs()));
    if sizes.contains(&0) { 0 } else { elements.saturating_mul(dtype.bytes() as u64) }
}
