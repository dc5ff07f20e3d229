//! A GPU: its context, its stream, and a cache of its memory.
//!
//! Work on one [`Device`] is ordered: everything goes to its one stream. Memory
//! of a dropped [`DeviceBuffer`] goes back to the device's cache at once and may
//! be handed out again; the order of the stream makes that safe.

use super::driver::{self, check};
use crate::diag::{Diagnostic, Result, code};
use crate::options::DeviceDesc;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open GPU. May be used from any thread.
pub struct Device {
    ordinal: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    desc: DeviceDesc,
    uuid: [u8; 16],
    pool: Mutex<Pool>,
}

/// What is allocated.
#[derive(Default)]
struct Pool {
    // Free memory by size, most recently freed last.
    cache: BTreeMap<usize, Vec<sys::CUdeviceptr>>,
    used: MemoryUse,
}

// SAFETY: contexts and streams may be used from any thread once the context is
// current there, which every method sees to; the rest is plain data or locked.
unsafe impl Send for Device {}
// SAFETY: as above; the driver serialises calls on one context.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.ordinal).field("name", &self.desc.name).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the GPU with this ordinal among those the process sees. Fails with
    /// `E0502` without a usable driver and `E0501` without such a GPU.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        let count = driver::device_count()?;
        if ordinal >= count {
            return Err(Diagnostic::user(code::NO_GPU, format!("there is no GPU {ordinal}: the process sees {count}")));
        }
        let mut device = 0;
        // SAFETY: the driver is ready and the ordinal exists.
        check(unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) }, "open the GPU")?;
        let desc = describe(device)?;
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the device exists and `uuid` is valid for a write.
        check(unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }, "ask for the GPU's UUID")?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the device exists; the context is released when `Device` is dropped.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) }, "create a context")?;
        let mut this = Self {
            ordinal,
            device,
            context,
            stream: std::ptr::null_mut(),
            desc,
            uuid: uuid.bytes.map(|byte| byte as u8),
            pool: Mutex::default(),
        };
        this.enter()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; the stream is destroyed when `Device` is dropped.
        check(unsafe { sys::cuStreamCreate(&mut this.stream, flags) }, "create a stream")?;
        Ok(Arc::new(this))
    }

    /// The ordinal among the GPUs that the process sees.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }
    /// The device as data.
    pub fn desc(&self) -> &DeviceDesc {
        &self.desc
    }
    /// The identity of the GPU, as tools print it.
    pub fn uuid(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
    /// What this process holds of the device's memory through this value.
    pub fn memory_use(&self) -> MemoryUse {
        self.pool().used
    }
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Free and total memory in bytes, as the driver counts for all processes;
    /// memory in the cache is not free.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current and both pointers are valid for a write.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "ask for free memory")?;
        Ok((free, total))
    }

    /// Waits until everything issued so far is done, and reports its errors.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is alive.
        check(unsafe { sys::cuStreamSynchronize(self.stream) }, "finish its work")
    }

    /// Makes the context current on this thread. First step of every method
    /// that calls the driver.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is alive as long as `self`.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "enter its context")
    }
    /// The stream that all work goes to.
    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Whether the device still works: waits until everything issued so far is
    /// done, then writes four bytes and reads them back. An error of a kernel that
    /// nobody waited for comes up here.
    pub fn probe(self: &Arc<Self>) -> Result<()> {
        self.synchronize()?;
        let mut buffer = self.alloc(4)?;
        let mut bytes = [0; 4];
        buffer.fill(0, 4, PROBE)?;
        buffer.download(0, &mut bytes)?;
        if bytes == [PROBE; 4] {
            return Ok(());
        }
        Err(Diagnostic::bug_code(
            code::CUDA_STICKY,
            format!("the GPU reads {bytes:02x?} where {PROBE:02x} was written"),
        ))
    }

    /// Memory of at least that many bytes, aligned to 512, content undefined.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer> {
        self.take(bytes, false)
    }

    /// The same for memory that is kept between calls: it counts apart in
    /// [`Device::memory_use`].
    pub fn alloc_kept(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer> {
        self.take(bytes, true)
    }

    fn take(self: &Arc<Self>, bytes: usize, kept: bool) -> Result<DeviceBuffer> {
        let capacity = size_class(bytes);
        let address = match self.take_cached(capacity) {
            Some(address) => address,
            None => self.allocate(capacity)?,
        };
        *self.pool().used.of(kept) += capacity;
        Ok(DeviceBuffer { device: Arc::clone(self), address, capacity, bytes, kept })
    }

    fn take_cached(&self, capacity: usize) -> Option<sys::CUdeviceptr> {
        let mut pool = self.pool();
        let address = pool.cache.get_mut(&capacity)?.pop()?;
        pool.used.cached -= capacity;
        Some(address)
    }

    fn allocate(&self, capacity: usize) -> Result<sys::CUdeviceptr> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the context is current and `address` is valid for a write.
        let mut status = unsafe { sys::cuMemAlloc_v2(&mut address, capacity) };
        if status == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            self.trim()?;
            // SAFETY: as above.
            status = unsafe { sys::cuMemAlloc_v2(&mut address, capacity) };
        }
        check(status, &format!("allocate {capacity} bytes"))?;
        Ok(address)
    }

    /// Gives the memory in the cache back to the driver.
    pub fn trim(&self) -> Result<()> {
        // Taken first: work on what is in the cache now was launched before, so
        // it has ended when the device is idle.
        let cached = {
            let mut pool = self.pool();
            pool.used.cached = 0;
            std::mem::take(&mut pool.cache)
        };
        let idle = self.synchronize();
        let mut result = Ok(());
        for address in cached.into_values().flatten() {
            // SAFETY: the memory was allocated by this device, no work in flight uses it, and it is freed once.
            let freed = check(unsafe { sys::cuMemFree_v2(address) }, "free memory");
            result = result.and(freed);
        }
        idle.and(result)
    }
}

/// What [`Device::probe`] writes.
const PROBE: u8 = 0x5a;

/// Bytes of device memory that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// In buffers of calls: nothing between two calls.
    pub live: usize,
    /// In buffers that outlive calls: of loaded kernels, of the timer.
    pub kept: usize,
    /// Given back, and ready to be handed out again.
    pub cached: usize,
}

impl MemoryUse {
    /// Everything that was asked of the driver.
    pub fn total(&self) -> usize {
        self.live + self.kept + self.cached
    }
    fn of(&mut self, kept: bool) -> &mut usize {
        if kept { &mut self.kept } else { &mut self.live }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Errors have nowhere to go: the context goes away in any case.
        let _ = self.trim();
        // SAFETY: the stream and the context were created by this value and are released once.
        unsafe {
            let _ = sys::cuStreamDestroy_v2(self.stream);
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// Rounds a size up so that few sizes occur: 512 bytes, then eighths of a power
/// of two, so that at most an eighth is unused.
fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(1);
    let step = (bytes.next_power_of_two() / 16).max(512);
    bytes.next_multiple_of(step)
}

/// Memory of a GPU. Goes back to the device's cache when dropped.
pub struct DeviceBuffer {
    device: Arc<Device>,
    address: sys::CUdeviceptr,
    capacity: usize,
    bytes: usize,
    kept: bool,
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer({:#x}, {} bytes)", self.address, self.bytes)
    }
}

impl DeviceBuffer {
    /// The address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// The size asked for.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Whether no byte was asked for.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies bytes to the place `offset` bytes behind the start.
    pub fn upload(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.check_range(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        self.device.enter()?;
        let target = self.address + offset as u64;
        // SAFETY: the range lies in this allocation, and the driver has read pageable
        // host memory when the call returns.
        let status = unsafe {
            sys::cuMemcpyHtoDAsync_v2(target, data.as_ptr().cast::<c_void>(), data.len(), self.device.stream)
        };
        check(status, &format!("copy {} bytes to the GPU", data.len()))
    }

    /// Copies bytes from the place `offset` bytes behind the start, after all
    /// work issued so far.
    pub fn download(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.check_range(offset, data.len())?;
        if data.is_empty() {
            return self.device.synchronize();
        }
        self.device.enter()?;
        let source = self.address + offset as u64;
        // SAFETY: the range lies in this allocation, and `data` outlives the copy,
        // which ends before `synchronize` returns.
        let status = unsafe {
            sys::cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast::<c_void>(), source, data.len(), self.device.stream)
        };
        check(status, &format!("copy {} bytes from the GPU", data.len()))?;
        self.device.synchronize()
    }

    /// Sets bytes to one value.
    pub fn fill(&mut self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        self.check_range(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.device.enter()?;
        // SAFETY: the range lies in this allocation.
        let status = unsafe { sys::cuMemsetD8Async(self.address + offset as u64, value, bytes, self.device.stream) };
        check(status, &format!("fill {bytes} bytes"))
    }

    /// Copies the first `bytes` bytes of another buffer of the same device.
    pub fn copy_from(&mut self, source: &Self, bytes: usize) -> Result<()> {
        self.copy_range(0, source, 0, bytes)
    }

    /// Copies a range of another buffer of the same device.
    pub(super) fn copy_range(&mut self, offset: usize, source: &Self, from: usize, bytes: usize) -> Result<()> {
        self.check_range(offset, bytes)?;
        source.check_range(from, bytes)?;
        self.device.enter()?;
        let (to, from) = (self.address + offset as u64, source.address + from as u64);
        // SAFETY: both ranges lie in their allocations, which differ.
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.device.stream) };
        check(status, &format!("copy {bytes} bytes"))
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn check_range(&self, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(Diagnostic::bug(format!("a copy of {bytes} bytes at {offset} leaves a buffer of {} bytes", self.bytes)))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let mut pool = self.device.pool();
        *pool.used.of(self.kept) -= self.capacity;
        pool.used.cached += self.capacity;
        pool.cache.entry(self.capacity).or_default().push(self.address);
    }
}

/// Reads a device's facts from the driver.
fn describe(device: sys::CUdevice) -> Result<DeviceDesc> {
    let attribute = |attribute: Attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the device exists and `value` is valid for a write.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) }, "describe itself")?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut name = [0; 256];
    // SAFETY: the device exists and `name` has the size given.
    check(unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device) }, "name itself")?;
    // SAFETY: the driver terminates the name with a zero within the size given.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    // Two transfers per clock; the clock is in kHz.
    let clock = u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?) * 1000;
    let bus = u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?) / 8;
    // A known product's datasheet wins, so that schedules equal those made without the device.
    let known = DeviceDesc::h200();
    let memory_bandwidth = if name == known.name { known.memory_bandwidth } else { 2 * clock * bus };
    Ok(DeviceDesc {
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        max_threads_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        max_threads_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_blocks_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        registers_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        shared_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bandwidth,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_few_and_waste_little() {
        assert_eq!(size_class(0), 512);
        assert_eq!(size_class(513), 1024);
        for bytes in [1000, 100_000, (1 << 20) + 1, 123_456_789] {
            let class = size_class(bytes);
            assert!(
                class >= bytes && class.is_multiple_of(512) && (class - bytes) * 8 <= class.max(4096),
                "{bytes} {class}"
            );
            assert_eq!(size_class(class), class);
        }
    }
}
