//! A GPU: its context, its stream, and a cache of its memory.
//!
//! Work on one [`Stream`] is ordered. Memory belongs to a stream: that of a dropped
//! [`DeviceBuffer`] goes back to the device's cache at once and may be handed out again
//! for that stream; its order makes that safe. What names no stream goes to the device's own.
//! Larger copies from and to the host go through pinned memory (`staging.rs`).

use super::driver::{self, check};
use super::pool::{MemoryPool, MemoryUse};
use super::staging::{self, Staging};
use super::stream::Stream;
use crate::array::parallel;
use crate::diag::{Diagnostic, Result, code};
use crate::options::DeviceDesc;
use crate::tensor::CopyRows;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// An open GPU. May be used from any thread.
pub struct Device {
    ordinal: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: Stream,
    desc: DeviceDesc,
    uuid: [u8; 16],
    pool: MemoryPool<Stream>,
    staging: Staging,
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
            stream: Stream::LEGACY,
            desc,
            uuid: uuid.bytes.map(|byte| byte as u8),
            pool: MemoryPool::default(),
            staging: Staging::default(),
        };
        this.enter()?;
        this.stream = Stream::create()?;
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
        self.pool.used()
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

    /// Waits until everything issued so far on its own stream is done, and reports its errors.
    pub fn synchronize(&self) -> Result<()> {
        self.wait(self.stream)
    }
    /// The same for another stream.
    pub fn wait(&self, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: streams are alive while they are in use.
        check(unsafe { sys::cuStreamSynchronize(stream.raw()) }, "finish its work")
    }

    /// Makes the context current on this thread. First step of every method
    /// that calls the driver.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is alive as long as `self`.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "enter its context")
    }
    /// The stream that work goes to which names no other.
    pub fn stream(&self) -> Stream {
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

    /// Copies rows from memory at one address to memory at another, both of this device, on a stream.
    ///
    /// The caller answers for the addresses: all rows lie in memory that stays allocated
    /// until the copy is done, and those that are written in no row that is read.
    pub(crate) fn copy_rows(&self, to: u64, from: u64, rows: &CopyRows, stream: Stream) -> Result<()> {
        let CopyRows { bytes, from_pitch, to_pitch, .. } = *rows;
        let (to, from) = (to + rows.to, from + rows.from);
        // One row, or rows without gaps, are one run of bytes.
        if rows.rows <= 1 || (from_pitch == bytes && to_pitch == bytes) {
            return self.copy_run(to, from, bytes * rows.rows, stream);
        }
        if from_pitch == 0 {
            return self.copy_repeated(to, from, rows, stream);
        }
        let fits = |pitch: u64| (bytes..=MAX_PITCH).contains(&pitch);
        if !fits(from_pitch) || !fits(to_pitch) {
            return self.copy_each(to, from, rows, stream);
        }
        self.enter()?;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: from_pitch as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: to_pitch as usize,
            WidthInBytes: bytes as usize,
            Height: rows.rows as usize,
        };
        // SAFETY: the caller answers for the rows on either side; the description is read
        // before the call returns.
        match unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.raw()) } {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            // A driver may refuse pitches that it has not chosen itself.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => self.copy_each(to, from, rows, stream),
            status => check(status, &format!("copy {} rows of {bytes} bytes", rows.rows)),
        }
    }

    /// Copies one row to all places of `rows`: to the first, and then as often as it is there.
    fn copy_repeated(&self, to: u64, from: u64, rows: &CopyRows, stream: Stream) -> Result<()> {
        let CopyRows { bytes, to_pitch, .. } = *rows;
        self.copy_run(to, from, bytes, stream)?;
        let mut done = 1;
        while done < rows.rows {
            let count = done.min(rows.rows - done);
            let more = CopyRows { from: 0, to: done * to_pitch, bytes, rows: count, from_pitch: to_pitch, to_pitch };
            self.copy_rows(to, to, &more, stream)?;
            done += count;
        }
        Ok(())
    }

    fn copy_each(&self, to: u64, from: u64, rows: &CopyRows, stream: Stream) -> Result<()> {
        let run = |i| self.copy_run(to + i * rows.to_pitch, from + i * rows.from_pitch, rows.bytes, stream);
        (0..rows.rows).try_for_each(run)
    }

    fn copy_run(&self, to: u64, from: u64, bytes: u64, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller answers for both ranges.
        match unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream.raw()) } {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            status => check(status, &format!("copy {bytes} bytes")),
        }
    }

    /// Sets bytes at an address of this device to one value, on a stream. The caller answers
    /// for them as in [`Device::copy_rows`].
    pub(crate) fn fill_at(&self, address: u64, bytes: usize, value: u8, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller answers for the range.
        match unsafe { sys::cuMemsetD8Async(address, value, bytes, stream.raw()) } {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            status => check(status, &format!("fill {bytes} bytes")),
        }
    }

    /// Copies bytes to an address of this device, on a stream. The caller answers for them as
    /// in [`Device::copy_rows`].
    pub(crate) fn upload_to(&self, address: u64, data: &[u8], stream: Stream) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.enter()?;
        if let Some(staged) = self.staging.take(self, data.len(), stream) {
            return staged.upload(address, data);
        }
        // SAFETY: the caller answers for the range, and the driver has read pageable host
        // memory when the call returns.
        let status =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast::<c_void>(), data.len(), stream.raw()) };
        check(status, &format!("copy {} bytes to the GPU", data.len()))
    }

    /// Copies bytes from an address of this device, after all work issued on the stream so
    /// far. The caller answers for them as in [`Device::copy_rows`].
    pub(crate) fn download_from(&self, address: u64, data: &mut [u8], stream: Stream) -> Result<()> {
        if !data.is_empty() {
            self.enter()?;
            if let Some(staged) = self.staging.take(self, data.len(), stream) {
                return staged.download(address, data.len(), &mut |start, piece| {
                    staging::copy(&mut data[start..start + piece.len()], piece);
                    Ok(())
                });
            }
            // SAFETY: the caller answers for the range; `data` outlives the copy, which ends
            // before `wait` returns.
            let status = unsafe {
                sys::cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast::<c_void>(), address, data.len(), stream.raw())
            };
            check(status, &format!("copy {} bytes from the GPU", data.len()))?;
        }
        self.wait(stream)
    }

    /// So many bytes from an address of this device, as [`Device::download_from`] brings them.
    fn bytes_from(&self, address: u64, bytes: usize, stream: Stream) -> Result<Vec<u8>> {
        self.enter()?;
        let Some(staged) = self.staging.take(self, bytes, stream) else {
            let mut data = parallel::defaults(bytes);
            return self.download_from(address, &mut data, stream).map(|()| data);
        };
        // Pieces are whole words but for the last one. Memory is not cleared first.
        let mut words: Vec<[u8; WORD]> = Vec::with_capacity(bytes.div_ceil(WORD));
        let mut rest = Vec::new();
        staged.download(address, bytes, &mut |_, piece| {
            let (whole, tail) = piece.as_chunks();
            parallel::extend(&mut words, whole);
            rest.extend_from_slice(tail);
            Ok(())
        })?;
        let mut data = words.into_flattened();
        data.extend(rest);
        Ok(data)
    }

    /// Gives `bytes` bytes from an address of this device to `look`, piece by piece with their places, after all work
    /// issued on the stream so far. The caller answers for them as in [`Device::copy_rows`].
    fn look_at(
        &self,
        address: u64,
        bytes: usize,
        stream: Stream,
        look: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.enter()?;
        if let Some(staged) = self.staging.take(self, bytes, stream) {
            return staged.download(address, bytes, look);
        }
        let mut piece = vec![0; PIECE.min(bytes)];
        for start in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - start)];
            self.download_from(address + start as u64, piece, stream)?;
            look(start, piece)?;
        }
        Ok(())
    }

    /// Memory of at least that many bytes, aligned to 512, content undefined.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer> {
        self.take(bytes, false, self.stream)
    }

    /// The same for work on another stream.
    pub fn alloc_on(self: &Arc<Self>, bytes: usize, stream: Stream) -> Result<DeviceBuffer> {
        self.take(bytes, false, stream)
    }

    /// The same for memory that is kept between calls: it counts apart in
    /// [`Device::memory_use`].
    pub fn alloc_kept(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer> {
        self.take(bytes, true, self.stream)
    }

    fn take(self: &Arc<Self>, bytes: usize, kept: bool, stream: Stream) -> Result<DeviceBuffer> {
        let capacity = size_class(bytes);
        let address = match self.pool.take(stream, capacity, kept) {
            Some(address) => address,
            None => {
                let address = self.allocate(capacity)?;
                self.pool.add(capacity, kept);
                address
            }
        };
        Ok(DeviceBuffer { device: Arc::clone(self), stream, address, capacity, bytes, kept })
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
        let cached = self.pool.drain();
        // Of every stream, those of callers that are gone included.
        // SAFETY: the context is alive as long as `self`, and current.
        let idle = self.enter().and_then(|()| check(unsafe { sys::cuCtxSynchronize() }, "finish its work"));
        let mut result = Ok(());
        for address in cached {
            // SAFETY: the memory was allocated by this device, no work in flight uses it, and it is freed once.
            let freed = check(unsafe { sys::cuMemFree_v2(address) }, "free memory");
            result = result.and(freed);
        }
        idle.and(result)
    }
}

/// Bytes from one row to the next of a copy that the driver takes at once.
const MAX_PITCH: u64 = i32::MAX as u64;
/// Bytes that are looked at together.
const PIECE: usize = staging::PART;
/// Bytes of a new copy on the host that are written at a time.
const WORD: usize = 64;
/// What [`Device::probe`] writes.
const PROBE: u8 = 0x5a;

impl Drop for Device {
    fn drop(&mut self) {
        // Errors have nowhere to go: the context goes away in any case.
        let _ = self.trim();
        match self.enter() {
            Ok(()) => self.staging.release(),
            Err(_) => self.staging.forget(),
        }
        // SAFETY: the stream and the context were created by this value and are released once.
        unsafe {
            let _ = sys::cuStreamDestroy_v2(self.stream.raw());
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

/// Memory of a GPU, for work on one stream. Goes back to the device's cache when dropped.
pub struct DeviceBuffer {
    device: Arc<Device>,
    stream: Stream,
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
        self.device.upload_to(self.address + offset as u64, data, self.stream)
    }

    /// Copies bytes from the place `offset` bytes behind the start, after all
    /// work issued so far.
    pub fn download(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.check_range(offset, data.len())?;
        self.device.download_from(self.address + offset as u64, data, self.stream)
    }

    /// So many bytes from the place `offset` bytes behind the start, after all work issued so far.
    pub(super) fn bytes(&self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        self.check_range(offset, bytes)?;
        self.device.bytes_from(self.address + offset as u64, bytes, self.stream)
    }

    /// All of its bytes, after all work issued so far.
    pub(crate) fn all_bytes(&self) -> Result<Vec<u8>> {
        self.bytes(0, self.bytes)
    }

    /// Gives bytes from the place `offset` bytes behind the start to `look`, piece by piece, each with how far behind
    /// that place it begins; after all work issued so far.
    pub(super) fn look_at(
        &self,
        offset: usize,
        bytes: usize,
        look: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_range(offset, bytes)?;
        self.device.look_at(self.address + offset as u64, bytes, self.stream, look)
    }

    /// Sets bytes to one value.
    pub fn fill(&mut self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        self.check_range(offset, bytes)?;
        self.device.fill_at(self.address + offset as u64, bytes, value, self.stream)
    }

    /// Copies the first `bytes` bytes of another buffer of the same device.
    pub fn copy_from(&mut self, source: &Self, bytes: usize) -> Result<()> {
        self.copy_range(0, source, 0, bytes)
    }

    /// Copies a range of another buffer of the same device.
    pub(super) fn copy_range(&mut self, offset: usize, source: &Self, from: usize, bytes: usize) -> Result<()> {
        self.check_range(offset, bytes)?;
        source.check_range(from, bytes)?;
        let (to, from) = (self.address + offset as u64, source.address + from as u64);
        self.device.copy_run(to, from, bytes as u64, self.stream)
    }

    /// Makes `bytes` bytes from the place `offset` bytes behind the start of the first `part` of them, again and again: each
    /// copy takes all that is there so far.
    pub(super) fn repeat(&mut self, offset: usize, part: usize, bytes: usize) -> Result<()> {
        self.check_range(offset, bytes)?;
        if part == 0 && bytes > 0 {
            return Err(Diagnostic::bug(format!("{bytes} bytes are to be made of none")));
        }
        let (start, mut done) = (self.address + offset as u64, part);
        while done < bytes {
            let count = done.min(bytes - done);
            self.device.copy_run(start + done as u64, start, count as u64, self.stream)?;
            done += count;
        }
        Ok(())
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Arc<Device> {
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
        self.device.pool.give_back(self.stream, self.capacity, self.kept, self.address);
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
    let sm_count = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    Ok(DeviceDesc {
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sm_count,
        max_threads_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        max_threads_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_blocks_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        registers_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        shared_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bandwidth,
        multiplies_matrices: false,
        product_rates: DeviceDesc::product_rates_of(sm_count),
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
