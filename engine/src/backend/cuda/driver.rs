//! The CUDA driver library: whether it is there, and its errors as diagnostics.
//!
//! The library is loaded at run time. Nothing here may be called before
//! [`ready`] succeeded: the bindings panic when the library is missing.

use crate::diag::{CudaError, Diagnostic, Result, code};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::CStr;

/// The oldest driver that has every function used here: CUDA 12.8.
const OLDEST: i32 = 12_080;

/// Loads and initialises the driver. Fails with `E0502` if it is missing, too
/// old, or finds no hardware. Cheap after the first call.
pub fn ready() -> Result<()> {
    // SAFETY: loading the driver's library has no requirement.
    if !unsafe { sys::is_culib_present() } {
        return Err(Diagnostic::user(
            code::NO_DRIVER,
            "the CUDA driver library libcuda.so.1 is not on the loader's path",
        ));
    }
    let mut version = 0;
    // SAFETY: the library is present, and this function needs no initialisation.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    if status != CUresult::CUDA_SUCCESS || version < OLDEST {
        return Err(Diagnostic::user(
            code::NO_DRIVER,
            format!("the CUDA driver is version {}, at least {} is needed", dotted(version), dotted(OLDEST)),
        ));
    }
    // SAFETY: the library is present.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_NO_DEVICE => {
            Err(Diagnostic::user(code::NO_GPU, "the CUDA driver is installed and sees no GPU"))
        }
        status => {
            Err(Diagnostic::user(code::NO_DRIVER, format!("the CUDA driver does not start: {}", error_name(status))))
        }
    }
}

/// The version of CUDA that the driver supports, for example `(13, 0)`.
pub fn version() -> Result<(u32, u32)> {
    ready()?;
    let mut version = 0;
    // SAFETY: the driver is ready.
    check(unsafe { sys::cuDriverGetVersion(&mut version) }, "ask for the driver's version")?;
    Ok(((version / 1000) as u32, (version % 1000 / 10) as u32))
}

/// The number of GPUs that the process sees.
pub fn device_count() -> Result<usize> {
    ready()?;
    let mut count = 0;
    // SAFETY: the driver is ready.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, "count the GPUs")?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's name of an error, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
fn error_name(status: CUresult) -> String {
    let mut name = std::ptr::null();
    // SAFETY: the library is present; the name is a static string, or null for an unknown number.
    let known = unsafe { sys::cuGetErrorName(status, &mut name) } == CUresult::CUDA_SUCCESS && !name.is_null();
    if known {
        // SAFETY: the driver returned a zero-terminated static string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    } else {
        format!("error {}", status as u32)
    }
}

/// Turns the status of a driver call into a result. `what` says what was tried.
pub(super) fn check(status: CUresult, what: &str) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let error = CudaError { number: status as u32, name: error_name(status), sticky: is_sticky(status as u32) };
    let message = format!("the GPU failed to {what}: {}", error.name);
    let diagnostic = match status {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Diagnostic::user(code::DEVICE_MEMORY, message),
        CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => Diagnostic::user(code::LAUNCH_CONFIG, message),
        CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => {
            Diagnostic::unsupported(code::LAUNCH_LIMIT, message).note("the blocks cannot all be resident at once")
        }
        _ if error.sticky => Diagnostic::bug_code(code::CUDA_STICKY, message),
        _ => Diagnostic::user(code::CUDA, message),
    };
    Err(diagnostic.cuda(error))
}

/// The same for the calls that shape a launch: the driver answers a grid, a
/// block or shared memory beyond its limits with `CUDA_ERROR_INVALID_VALUE`.
pub(super) fn check_launch(status: CUresult, what: &str) -> Result<()> {
    check(status, what).map_err(|mut diagnostic| {
        if status == CUresult::CUDA_ERROR_INVALID_VALUE {
            diagnostic.code = code::LAUNCH_CONFIG;
        }
        diagnostic
    })
}

/// Whether the error of this number broke the context: every later call in the
/// process fails alike, and only a new process helps.
fn is_sticky(number: u32) -> bool {
    // Memory and links beyond repair, contained errors; failed kernels; a context
    // that is gone; unknown errors, which are not trusted.
    matches!(number, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 911 | 999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_a_diagnostic() {
        match ready() {
            Ok(()) => assert!(version().expect("a ready driver has a version") >= (12, 8)),
            Err(error) => assert!([code::NO_DRIVER, code::NO_GPU].contains(&error.code), "{error}"),
        }
    }
}
