//! Queues of work on a device: a device's own, and those of callers.

use super::driver::check;
use crate::diag::Result;
use cudarc::driver::sys;
use std::ffi::c_void;

/// A queue of work on a device; a name of it, which does not keep it alive.
// A number: handles are compared and ordered, and go from thread to thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(usize);

impl Stream {
    /// The stream that the driver calls 0, which waits for all others that do not forbid it.
    pub(super) const LEGACY: Self = Self(0);

    /// A stream of the caller, as the driver names it: a `CUstream`, or a `cudaStream_t`.
    ///
    /// # Safety
    ///
    /// The stream belongs to the device's primary context, which the run-time library,
    /// cudarc and PyTorch use, lives while anything is issued on it or waits for it, and has
    /// no work left when it is destroyed. Tensors with memory that was not made for it live
    /// until its work on them is done.
    pub unsafe fn from_raw(handle: *mut c_void) -> Self {
        Self(handle as usize)
    }

    /// A new stream of the current context, which waits for no other. Its maker destroys it.
    pub(super) fn create() -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` is valid for a write.
        check(unsafe { sys::cuStreamCreate(&mut raw, flags) }, "create a stream")?;
        Ok(Self(raw as usize))
    }

    pub(super) fn raw(self) -> sys::CUstream {
        self.0 as sys::CUstream
    }
}
