//! What a device gives a kernel: refused here, before the kernel is verified,
//! where a right kernel needs more. [`verify`](super::verify) has the same limits
//! for all devices, and takes a kernel beyond them for a mistake.

use super::ir::{Buffer, Kernel, Space};
use super::verify::MAX_LOCAL_BYTES;
use crate::diag::{Diagnostic, Result, code};
use crate::options::DeviceDesc;

/// Bytes of parameters that a launch can pass, since CUDA 12.1 on devices of
/// compute capability 7.0 and above.
pub const MAX_PARAM_BYTES: u64 = 32_764;

/// Bytes of shared memory that a block of the kernel uses.
pub fn shared_bytes(kernel: &Kernel) -> u64 {
    end_of_arrays(kernel, Space::Shared)
}

/// Whether a kernel's memory and parameters fit a device.
pub fn check_limits(kernel: &Kernel, device: &DeviceDesc) -> Result<()> {
    let shared = shared_bytes(kernel);
    let local = end_of_arrays(kernel, Space::Local);
    let params = kernel.params.values().fold(0, |end: u64, param| {
        let bytes = param.dtype.map_or(8, |dtype| dtype.bytes() as u64);
        end.next_multiple_of(bytes.max(1)) + bytes
    });
    let wants = [
        (shared, u64::from(device.shared_per_block), "bytes of shared memory for a block"),
        (local, MAX_LOCAL_BYTES, "bytes of local memory for a thread"),
        (params, MAX_PARAM_BYTES, "bytes of parameters"),
    ];
    match wants.into_iter().find(|(wanted, most, _)| wanted > most) {
        None => Ok(()),
        Some((wanted, most, what)) => {
            let message = format!("kernel {} needs {wanted} {what}, there are {most}", kernel.name);
            Err(Diagnostic::unsupported(code::LAUNCH_LIMIT, message)
                .note("fewer inputs, outputs or reductions in one fusion need less; split the fusion"))
        }
    }
}

/// Bytes of the arrays of a space, laid one behind the other.
fn end_of_arrays(kernel: &Kernel, space: Space) -> u64 {
    let bytes = |buffer: &Buffer| {
        let len = kernel.exprs.as_int(buffer.len).and_then(|len| u64::try_from(len).ok()).unwrap_or(u64::MAX);
        len.saturating_mul(buffer.dtype.bytes() as u64)
    };
    kernel.buffers.values().filter(|buffer| buffer.space == space).fold(0u64, |end, buffer| {
        let align = u64::from(buffer.align.max(1));
        end.checked_next_multiple_of(align).unwrap_or(u64::MAX).saturating_add(bytes(buffer))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::DiagnosticKind;
    use crate::kernel::KernelBuilder;
    use crate::num::DType;

    fn check_refused(what: &str, declare: impl FnOnce(&mut KernelBuilder)) {
        let mut builder = KernelBuilder::new("k", DType::I32);
        declare(&mut builder);
        let one = builder.int(1);
        let error = check_limits(&builder.finish_1d(one, 32), &DeviceDesc::h200()).expect_err("it is too large");
        assert_eq!((error.kind, error.code), (DiagnosticKind::Unsupported, code::LAUNCH_LIMIT), "{error}");
        assert!(error.message.contains(what), "{error}");
    }

    #[test]
    fn what_a_device_does_not_have_is_refused() {
        check_refused("needs 232464 bytes of shared", |b| {
            b.shared("a", DType::F32, 58_112, 16);
            b.shared("b", DType::F64, 2, 16);
        });
        check_refused("bytes of local memory", |b| {
            b.local("a", DType::F32, (512 << 8) + 1);
        });
        check_refused("needs 32768 bytes of parameters", |b| {
            let len = b.int(1);
            (0..4096).for_each(|n| {
                b.input("x", n, DType::F32, len, 16);
            });
        });
    }
}
