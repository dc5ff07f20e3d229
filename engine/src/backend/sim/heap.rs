//! How much memory of a simulated device is held.

use super::sync::AtomicU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory of a simulated device. Small, so that a launch that asks for too much
/// is refused instead of exhausting the host.
const DEVICE_BYTES: u64 = 4 << 30;

/// The memory of a simulated device as far as launches hold it. A launch that
/// finds too little left is refused, as on a device.
#[derive(Debug, Default)]
pub struct Heap(AtomicU64);

impl Heap {
    /// Bytes that are held.
    pub fn live(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    /// Bytes of the device.
    pub const fn total() -> u64 {
        DEVICE_BYTES
    }
    /// Takes that many bytes if they are left.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<HeapShare> {
        let fits = |live: u64| live.checked_add(bytes).filter(|sum| *sum <= DEVICE_BYTES);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(HeapShare { heap: Arc::clone(self), bytes })
    }
}

/// A part of a heap, given back when dropped.
pub(crate) struct HeapShare {
    heap: Arc<Heap>,
    bytes: u64,
}

impl Drop for HeapShare {
    fn drop(&mut self) {
        self.heap.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
