//! Copies between memory of the host and of a GPU, by way of pinned memory.
//!
//! Memory that is not pinned the driver copies on one thread, at a fraction of what the bus moves. So a device
//! has two pinned parts: while the bus moves one, all threads copy, or look at, the other.
//!
//! Nobody waits for the parts: who finds them in use, or behind work of another stream, leaves the copy to the driver,
//! as where there is no pinned memory. The threads are those of the pool, which take on other work while they wait;
//! that may copy as well, and must not wait for who waits for it.
//!
//! Invariant: a part's event is behind the last copy that was issued on it. Where one of the two could not be issued,
//! the parts are given up.

use super::device::Device;
use super::driver::check;
use super::stream::Stream;
use crate::array::parallel;
use crate::diag::{Diagnostic, Result};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Bytes of a part: few enough to stay in a cache of the host between bus and threads.
pub(super) const PART: usize = 8 << 20;
/// Fewer bytes than these are left to the driver.
const WORTH: usize = 1 << 20;
/// Bytes that one thread copies at a time.
const SLICE: usize = 128 << 10;

/// The pinned memory of a device, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Staging {
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
enum Parts {
    #[default]
    Unmade,
    Made([PinnedPart; 2]),
    /// The driver has none to give.
    Refused,
}

impl Staging {
    /// The parts for a copy of so many bytes on a stream, for nobody else meanwhile; nothing where the copy is not worth
    /// it or cannot have them. The device's context is current.
    pub(super) fn take<'a>(&'a self, device: &'a Device, bytes: usize, stream: Stream) -> Option<Staged<'a>> {
        // A graph would copy what is in the part when it is launched.
        if bytes < WORTH || is_captured(stream) {
            return None;
        }
        let mut parts = match self.parts.try_lock() {
            Ok(parts) => parts,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if matches!(*parts, Parts::Unmade) {
            *parts = match (PinnedPart::new(), PinnedPart::new()) {
                (Ok(first), Ok(second)) => Parts::Made([first, second]),
                _ => Parts::Refused,
            };
        }
        match &*parts {
            Parts::Made(made) if made.iter().all(|part| part.is_free_for(stream)) => {}
            _ => return None,
        }
        Some(Staged { parts, device, stream })
    }

    /// Releases the parts; the device's context is current.
    pub(super) fn release(&mut self) {
        *self.parts.get_mut().unwrap_or_else(PoisonError::into_inner) = Parts::Refused;
    }

    /// Leaves the parts to the driver, whose context is gone.
    pub(super) fn forget(&mut self) {
        std::mem::forget(std::mem::take(self.parts.get_mut().unwrap_or_else(PoisonError::into_inner)));
    }
}

/// Whether work on a stream is recorded for a graph; so too where the driver does not say.
fn is_captured(stream: Stream) -> bool {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive and `status` is valid for a write.
    let told = unsafe { sys::cuStreamIsCapturing(stream.raw(), &mut status) };
    told != sys::CUresult::CUDA_SUCCESS || status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
}

/// The pinned memory in the hands of one copy.
pub(super) struct Staged<'a> {
    parts: MutexGuard<'a, Parts>,
    device: &'a Device,
    stream: Stream,
}

impl Staged<'_> {
    /// The part whose turn it is in round `number`.
    fn part(&mut self, number: usize) -> Result<&mut PinnedPart> {
        // What the pool did meanwhile may have made another context current.
        self.device.enter()?;
        match &mut *self.parts {
            Parts::Made(parts) => Ok(&mut parts[number % 2]),
            Parts::Unmade | Parts::Refused => Err(Diagnostic::bug("pinned memory that is not there")),
        }
    }

    /// Copies bytes to an address of the device; they have been read when this returns. The caller answers for the
    /// address as in [`Device::copy_rows`].
    pub(super) fn upload(mut self, address: u64, data: &[u8]) -> Result<()> {
        let sent = self.send_all(address, data);
        self.give_up_after(sent)
    }

    fn send_all(&mut self, address: u64, data: &[u8]) -> Result<()> {
        let stream = self.stream;
        for (number, chunk) in data.chunks(PART).enumerate() {
            copy(&mut self.part(number)?.settled()?[..chunk.len()], chunk);
            self.part(number)?.send(address + (number * PART) as u64, chunk.len(), stream)?;
        }
        Ok(())
    }

    /// Brings bytes from an address of the device, after all work issued on the stream so far, and gives them to
    /// `look` piece by piece, each with its place. The caller answers for the address as above.
    pub(super) fn download(
        mut self,
        address: u64,
        bytes: usize,
        look: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut seen = Ok(());
        let fetched = self.fetch_all(address, bytes, &mut |start, piece| {
            seen = look(start, piece);
            seen.is_ok()
        });
        self.give_up_after(fetched)?;
        seen
    }

    /// Gives bytes to `look` until it returns false.
    fn fetch_all(&mut self, address: u64, bytes: usize, look: &mut dyn FnMut(usize, &[u8]) -> bool) -> Result<()> {
        let (count, stream) = (bytes.div_ceil(PART), self.stream);
        let len = |number: usize| PART.min(bytes - number * PART);
        let fetch = |staged: &mut Self, number: usize| {
            let part = staged.part(number)?;
            // An upload may still read it.
            part.settled()?;
            part.fetch(address + (number * PART) as u64, len(number), stream)
        };
        fetch(self, 0)?;
        for number in 0..count {
            if number + 1 < count {
                fetch(self, number + 1)?;
            }
            if !look(number * PART, &self.part(number)?.settled()?[..len(number)]) {
                break;
            }
        }
        Ok(())
    }

    /// The parts are made anew after an error, behind which nobody knows what is under way.
    fn give_up_after<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            let _ = self.device.wait(self.stream);
            *self.parts = Parts::Unmade;
        }
        result
    }
}

/// Copies bytes on all threads.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    parallel::chunks(to, SLICE, &|i, to| to.copy_from_slice(&from[i * SLICE..][..to.len()]));
}

/// Whether bytes are equal, found out on all threads.
pub(super) fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let slice = |of: &[u8], i: usize| i * SLICE..of.len().min((i + 1) * SLICE);
    let equal = |i: usize| a[slice(a, i)] == b[slice(b, i)];
    a.len() == b.len() && parallel::results(a.len().div_ceil(SLICE), &equal).into_iter().all(|equal| equal)
}

/// Pinned memory of [`PART`] bytes, with an event. The context is current where its functions are called.
#[derive(Debug)]
struct PinnedPart {
    memory: *mut u8,
    event: sys::CUevent,
    /// Of the last copy.
    stream: Option<Stream>,
}

// SAFETY: memory and event belong to this value alone, and may be used from any thread.
unsafe impl Send for PinnedPart {}

impl PinnedPart {
    fn new() -> Result<Self> {
        let (mut memory, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current and `event` is valid for a write.
        check(unsafe { sys::cuEventCreate(&mut event, flags) }, "create an event")?;
        // SAFETY: the context is current and `memory` is valid for a write.
        let made = check(unsafe { sys::cuMemHostAlloc(&mut memory, PART, 0) }, "allocate pinned memory");
        if let Err(error) = made {
            // SAFETY: the event was created above, and nobody has it.
            unsafe { sys::cuEventDestroy_v2(event) };
            return Err(error);
        }
        // SAFETY: so many bytes were allocated. They are written once, so that they may be read.
        unsafe { memory.cast::<u8>().write_bytes(0, PART) };
        Ok(Self { memory: memory.cast(), event, stream: None })
    }

    /// Whether a copy on a stream waits for no other stream's work.
    fn is_free_for(&self, stream: Stream) -> bool {
        // SAFETY: the event is alive; one that was never recorded is over.
        self.stream == Some(stream) || unsafe { sys::cuEventQuery(self.event) } == sys::CUresult::CUDA_SUCCESS
    }

    /// What is there once the last copy is over.
    fn settled(&mut self) -> Result<&mut [u8]> {
        // SAFETY: the event is alive; one that was never recorded is over.
        check(unsafe { sys::cuEventSynchronize(self.event) }, "finish its work")?;
        // SAFETY: the memory is alive and initialised, and the event is behind every copy from it and into it.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory, PART) })
    }

    fn send(&mut self, to: u64, bytes: usize, stream: Stream) -> Result<()> {
        let from = self.memory.cast::<c_void>();
        // SAFETY: the caller answers for the range of the device; nobody touches the part before its event.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, stream.raw()) };
        check(status, &format!("copy {bytes} bytes to the GPU"))?;
        self.record(stream)
    }

    fn fetch(&mut self, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        let to = self.memory.cast::<c_void>();
        // SAFETY: the caller answers for the range of the device; nobody touches the part before its event.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, bytes, stream.raw()) };
        check(status, &format!("copy {bytes} bytes from the GPU"))?;
        self.record(stream)
    }

    fn record(&mut self, stream: Stream) -> Result<()> {
        self.stream = Some(stream);
        // SAFETY: event and stream are alive and of one context.
        check(unsafe { sys::cuEventRecord(self.event, stream.raw()) }, "record an event")
    }
}

impl Drop for PinnedPart {
    fn drop(&mut self) {
        // A copy may be under way.
        let _ = self.settled();
        // SAFETY: both were made by this value and are released once; the context is current.
        unsafe {
            let _ = sys::cuMemFreeHost(self.memory.cast());
            let _ = sys::cuEventDestroy_v2(self.event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_comparisons_take_all_bytes() {
        for len in [0, 1, SLICE, SLICE + 1, 3 * SLICE + 7] {
            let from: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut to = vec![0; len];
            copy(&mut to, &from);
            assert_eq!(to, from);
            assert!(are_equal(&to, &from) && !are_equal(&to, &[from.as_slice(), &[1]].concat()));
            for at in [0, len / 2, len.saturating_sub(1)] {
                let Some(byte) = to.get_mut(at) else { continue };
                *byte ^= 1;
                assert!(!are_equal(&to, &from), "{len}: byte {at}");
                to[at] ^= 1;
            }
        }
    }
}
