//! Devices as the dispatcher sees them: through NVML only, never through CUDA.
//! A file can play NVML, so that a run over many GPUs is tried without one.

mod fake;
mod gpu;
mod lock;
mod machine;
mod nvml;
mod nvrtc;
mod patient;
mod policy;
mod real;
mod select;
mod tools;
mod xid;

pub(crate) use gpu::{Gpu, Nvidia, Process, strangers, worse};
pub(crate) use lock::{GpuLock, folder as lock_folder, hold};
pub(crate) use nvml::{CaseStep, Nvml, NvmlNews, Silent, open};
pub(crate) use nvrtc::{find as find_nvrtc, version as nvrtc_version};
pub(crate) use policy::{GpuOptions, GpuPolicy, MAX_WORKERS_PER_GPU, WantedGpus, share};
pub(crate) use select::{GpuDecision, Selection, describe, refusal, select};
pub(crate) use tools::{Host, find_sanitizer, free_space, host, program, sanitizer_places};
pub(crate) use xid::{Attribution, RanCase, WINDOW, XidClass, attribute, facts as xid_facts};
