//! Runs fusions: one [`Session`] for each device, simulated or real.
//!
//! A session makes a [`Program`](crate::program::Program) of a fusion and a class of
//! arguments, keeps it, and takes its device through the steps on arguments of that
//! class. Sessions and programs are `Send + Sync`; several threads may compile and run at once, and the text of
//! a kernel depends on none of that. Nothing here reads a clock: times come
//! from the caller's [`Trace`](crate::options::Trace), for example
//! [`PhaseTimes`], or from the device.
//!
//! [`Session::run`] takes tensors of the host, and checks what kernels do. Who has tensors on
//! the GPU calls a [`Callable`], with the caller's stream and nothing checked: both end in
//! `ready`, which issues a program's steps for given addresses.

mod bench;
mod cache;
mod callable;
mod device_tensor;
mod dlpack;
mod executor;
mod gpu_timing;
mod held;
mod key;
mod lookups;
mod on_cuda;
mod on_sim;
mod profile;
mod profile_table;
#[cfg(test)]
mod random_numbers_tests;
mod ready;
mod session;
#[cfg(test)]
mod tests;
mod times;
mod unchecked;

use crate::util::sync;

pub use crate::backend::cuda::Stream;
pub use bench::{BenchOptions, BenchReport};
pub use callable::{CallGraph, Callable};
pub use device_tensor::{DeviceArg, DeviceOutput, DeviceOutputs, DeviceTensor, OwnedTensor};
pub use dlpack::{DlDataType, DlDevice, DlManagedTensor, DlTensor, DlVersion, ImportedTensor};
pub use held::results_digest;
pub use on_cuda::CACHED;
pub use profile::{Clock, ProgramProfile, StepCost, StepProfile};
pub use session::{DeviceMemory, Hints, KnownRun, Ran, RunOutcome, Session};
pub use times::PhaseTimes;
