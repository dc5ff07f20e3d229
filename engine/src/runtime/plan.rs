//! A compiled fusion.

use crate::backend::cuda;
use crate::diag::Result;
use crate::fusion::Fusion;
use crate::kernel::{self, BoundLaunch, Kernel};
use crate::tensor::ArgMeta;
use crate::util::Hash128;

/// A fusion compiled for arguments of given sizes, strides and alignments: every
/// stage's text, and the kernel. Immutable and shared.
#[derive(Debug)]
pub struct Plan {
    pub(super) fusion: Fusion,
    pub(super) scheduler: &'static str,
    pub(super) params_text: String,
    pub(super) schedule_text: String,
    pub(super) kernel: Kernel,
    pub(super) kernel_text: String,
    pub(super) kernel_hash: Hash128,
}

impl Plan {
    /// The fusion.
    pub fn fusion(&self) -> &Fusion {
        &self.fusion
    }
    /// The name of the heuristic that took it.
    pub fn scheduler(&self) -> &'static str {
        self.scheduler
    }
    /// The heuristic's parameters as text.
    pub fn params_text(&self) -> &str {
        &self.params_text
    }
    /// The schedule as text.
    pub fn schedule_text(&self) -> &str {
        &self.schedule_text
    }
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
    /// The hash of the kernel's text: plans with one hash run the same code.
    pub fn kernel_hash(&self) -> Hash128 {
        self.kernel_hash
    }
    /// The number that identifies the kernel in traces.
    pub fn trace_id(&self) -> u64 {
        (self.kernel_hash.0 >> 64) as u64
    }
    /// The kernel as text.
    pub fn kernel_text(&self) -> &str {
        &self.kernel_text
    }
    /// The kernel as CUDA C++, with the part of the device library that it uses.
    pub fn cuda_text(&self) -> String {
        cuda::print_cuda(&self.kernel)
    }
    /// The launch for the arguments that the plan was compiled for; values of
    /// scalars may differ as long as they decide no size.
    pub fn bind(&self, args: &[ArgMeta]) -> Result<BoundLaunch> {
        kernel::bind(&self.kernel, args)
    }
}
