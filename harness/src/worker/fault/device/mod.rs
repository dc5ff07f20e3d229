//! Faults of the device: kernels that touch what is not theirs, never end, or
//! cannot be launched.
//!
//! On the simulator they are kernels written as IR, which its own detectors find
//! under any schedule; on a GPU they are CUDA texts, compiled by the engine's
//! NVRTC and launched through its driver layer.

mod gpu;
mod sim;

use super::table::{FaultClass, Scene};
use crate::outcome::{CudaFault, Outcome};
use crate::worker::refusal;
use engine::diag::Diagnostic;

pub(super) const ON_SIMULATOR: &[FaultClass] = sim::CLASSES;
pub(super) const ON_GPU: &[FaultClass] = gpu::CLASSES;

/// What a diagnostic makes of the case, as it would of any other.
fn judged(scene: &Scene<'_>, error: &Diagnostic) -> Outcome {
    let (verdict, name) = refusal::outcome_of(error);
    scene.tainted.set(refusal::taints(std::slice::from_ref(error)));
    Outcome { cuda_error: error.cuda.as_ref().map(CudaFault::from), ..Outcome::of(verdict, name, error.to_string()) }
}
