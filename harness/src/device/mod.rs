//! Devices as the dispatcher sees them: through NVML only, never through CUDA.

mod nvml;
mod nvrtc;
mod select;

pub(crate) use nvml::{Gpu, Nvidia, probe};
pub(crate) use nvrtc::find as find_nvrtc;
pub(crate) use select::{Choice, quietest};
