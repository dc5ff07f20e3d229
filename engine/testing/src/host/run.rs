//! Launches of host kernels, in memory with zones around every buffer.

use super::compile::{HostKernels, HostReport, KernelEntry, RunLaunch};
use super::text;
use engine::backend::cuda::CudaSource;
use engine::diag::{Diagnostic, Result};
use engine::kernel::{BoundLaunch, BoundParam, BufId, Kernel, Space};
use engine::num::storage;
use libloading::Symbol;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::PoisonError;

/// Bytes before and after a buffer, at least; a multiple of every alignment.
const ZONE: usize = 512;
/// What zones and fresh memory are filled with.
const FILL: u8 = 0xa5;

/// The global memory of a launch.
pub struct HostMemory {
    buffers: BTreeMap<BufId, Buffer>,
}

struct Buffer {
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// As aligned as it says, and no more.
    fn new(len: usize, fill: u8, align: usize) -> Self {
        let mut storage = vec![FILL; len + 4 * ZONE];
        let start = storage.as_ptr().align_offset(ZONE) + ZONE + align % ZONE;
        storage[start..start + len].fill(fill);
        Self { storage, start, len }
    }
    fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
    fn is_clean_outside(&self) -> bool {
        let outside = self.storage[..self.start].iter().chain(&self.storage[self.start + self.len..]);
        outside.copied().all(|byte| byte == FILL)
    }
}

impl HostMemory {
    /// Every global buffer of a kernel; workspaces that the launch provides zeroed are.
    pub fn new(kernel: &Kernel, launch: &BoundLaunch) -> Self {
        let global = kernel.buffers.iter().filter(|(_, buffer)| buffer.space == Space::Global);
        let made = global.map(|(id, buffer)| {
            let bytes = launch.buffer_lens.get(id).copied().unwrap_or(0) as usize * buffer.dtype.bytes();
            (id, Buffer::new(bytes, if buffer.zeroed { 0 } else { FILL }, buffer.align as usize))
        });
        Self { buffers: made.collect() }
    }

    /// Fills a buffer from its first element on with the first of these bytes.
    pub fn fill(&mut self, id: BufId, bytes: &[u8]) -> Result<()> {
        let Some(buffer) = self.buffers.get_mut(&id) else {
            return Err(Diagnostic::bug(format!("{id} is not in global memory")));
        };
        let Some(bytes) = bytes.get(..buffer.len) else {
            return Err(Diagnostic::bug(format!("{id} needs {} bytes, {} were given", buffer.len, bytes.len())));
        };
        buffer.storage[buffer.start..buffer.start + buffer.len].copy_from_slice(bytes);
        Ok(())
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, id: BufId) -> Option<&[u8]> {
        self.buffers.get(&id).map(Buffer::bytes)
    }
}

/// What a kernel did that its text must not, with the line of the text.
fn finding(report: &HostReport, source: &CudaSource) -> Option<String> {
    let what = match report.what {
        0 => return None,
        1 => "integer overflow",
        2 => "shift out of range",
        3 => "misaligned access",
        4 => "access outside of an array",
        5 => "a bool that is neither true nor false",
        6 => "division by zero, or of the least number by -1",
        7 => return Some(format!("ended by signal {}", report.detail)),
        _ => return Some("threads of a warp wait for different things".into()),
    };
    let text = source.text();
    let line = text.lines().nth(report.line.saturating_sub(1) as usize).unwrap_or_default().trim();
    Some(format!(
        "{what}, {} times, first at line {} column {}: {line}",
        report.times.max(1),
        report.line,
        report.column
    ))
}

impl HostKernels {
    /// Runs a launch of kernel number `index`; an error says what it did wrong.
    pub fn run(
        &self,
        index: usize,
        source: &CudaSource,
        launch: &BoundLaunch,
        memory: &mut HostMemory,
        waits: bool,
    ) -> Result<Option<String>> {
        if launch.is_empty() {
            return Ok(None);
        }
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: libloading::Error| Diagnostic::bug(format!("kernel {index}: {error}"));
        // SAFETY: symbols of `runtime.cpp` and of the kernels' files, with the types that those give them.
        let (run, entry): (Symbol<'_, RunLaunch>, Symbol<'_, KernelEntry>) = unsafe {
            let name = format!("{}\0", text::symbol(index));
            (library.get(b"run_launch\0").map_err(failed)?, library.get(name.as_bytes()).map_err(failed)?)
        };
        // Each argument in 16 bytes of its own, as aligned as any type wants it.
        let mut values: Vec<u128> = Vec::new();
        for param in &launch.params {
            let mut word = [0u8; 16];
            match param {
                BoundParam::Pointer(id) => {
                    let buffer = memory.buffers.get_mut(id);
                    let buffer = buffer.ok_or_else(|| Diagnostic::bug(format!("{id} has no memory")))?;
                    let address = buffer.storage[buffer.start..].as_mut_ptr() as u64;
                    word[..8].copy_from_slice(&address.to_ne_bytes());
                }
                BoundParam::Scalar { dtype, value } => {
                    let encoded = storage::encode(*dtype, *value);
                    let bytes = dtype.bytes();
                    word[..bytes].copy_from_slice(&encoded[..bytes]);
                }
            }
            values.push(u128::from_ne_bytes(word));
        }
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let dims = [launch.grid, launch.block].concat();
        let mut shared = Buffer::new(source.dynamic_shared as usize, FILL, 128);
        let mut report = HostReport::default();
        let place = shared.storage[shared.start..].as_mut_ptr();
        // SAFETY: the arguments have the number and types of the kernel's parameters, since both were made of one
        // kernel; buffers have the lengths of this launch and live until the call returns. What a wrong text does
        // outside of them is what this looks for.
        unsafe { run(*entry, pointers.as_mut_ptr(), dims.as_ptr(), waits.into(), place, &mut report) };
        drop(library);
        if let Some(what) = finding(&report, source) {
            return Ok(Some(what));
        }
        let touched = memory.buffers.iter().find(|(_, buffer)| !buffer.is_clean_outside());
        Ok(touched.map(|(id, _)| format!("memory outside of {id} was written")))
    }
}
