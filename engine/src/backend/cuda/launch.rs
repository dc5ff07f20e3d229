//! Loaded kernels and their launches.
//!
//! Loading reads the machine code and sets what the function needs; a launch
//! then only fills an array of pointers on the stack and calls the driver.

use super::device::Device;
use super::driver::{check, check_launch};
use super::graph::{Graph, GraphNode};
use super::guard::GuardedBuffer;
use super::print::CudaSource;
use super::stream::Stream;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BoundLaunch, BoundParam, BufId};
use crate::num::{DType, Value, storage};
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
use smallvec::SmallVec;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// A kernel in the memory of a device, ready to launch.
pub struct LoadedKernel {
    device: Arc<Device>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    name: String,
    dynamic_shared: u32,
    cooperative: bool,
    // Words of 8 bytes of each parameter.
    params: Vec<u8>,
    // The counters of barriers of blocks, which every launch leaves as it found them, for launches on
    // the device's own stream.
    barrier: Option<GuardedBuffer>,
}

// SAFETY: module and function handles may be used from any thread while the
// context is current there, which `launch` sees to; they never change.
unsafe impl Send for LoadedKernel {}
// SAFETY: as above.
unsafe impl Sync for LoadedKernel {}

impl std::fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedKernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LoadedKernel {
    /// Loads machine code for the device; `source` is the text it was compiled from.
    pub fn load(device: &Arc<Device>, cubin: &[u8], source: &CudaSource) -> Result<Self> {
        let mut this = Self::load_entry(device, cubin, &source.entry, source.dynamic_shared, 0)?;
        this.params.clone_from(&source.params);
        this.cooperative = source.cooperative || source.barrier_bytes > 0;
        if source.barrier_bytes > 0 {
            this.barrier = Some(GuardedBuffer::kept(device, source.barrier_bytes, 0)?);
        }
        Ok(this)
    }

    /// Loads a function of that many parameters of 8 bytes at most that is no printed kernel. `code`
    /// is a cubin, or PTX text that ends with a zero byte.
    pub fn load_entry(
        device: &Arc<Device>,
        code: &[u8],
        entry: &str,
        dynamic_shared: u32,
        params: usize,
    ) -> Result<Self> {
        device.enter()?;
        let name =
            CString::new(entry).map_err(|_| Diagnostic::bug(format!("kernel name {entry:?} has a zero byte")))?;
        let mut module = std::ptr::null_mut();
        if !code.starts_with(b"\x7fELF") && code.last() != Some(&0) {
            return Err(Diagnostic::bug(format!("the code of kernel {entry} is neither a cubin nor text that ends")));
        }
        // SAFETY: the image is a whole cubin, whose size is in its header, or ends with a zero byte.
        let status = unsafe { sys::cuModuleLoadData(&mut module, code.as_ptr().cast::<c_void>()) };
        check(status, &format!("load kernel {entry}"))?;
        // From here on the module is unloaded when `this` is dropped.
        let mut this = Self {
            device: Arc::clone(device),
            module,
            function: std::ptr::null_mut(),
            name: entry.to_string(),
            dynamic_shared,
            cooperative: false,
            params: vec![1; params],
            barrier: None,
        };
        // SAFETY: the module is loaded and the name is zero-terminated.
        let status = unsafe { sys::cuModuleGetFunction(&mut this.function, module, name.as_ptr()) };
        check(status, &format!("find kernel {entry} in its machine code"))?;
        if dynamic_shared > 0 {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is loaded.
            let status = unsafe { sys::cuFuncSetAttribute(this.function, attribute, dynamic_shared as i32) };
            check_launch(status, &format!("give kernel {entry} {dynamic_shared} bytes of shared memory"))?;
        }
        Ok(this)
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
    /// The function's name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// 32-bit registers of a thread.
    pub fn registers(&self) -> Result<u32> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }
    /// Bytes of local memory of a thread: spills and arrays with indices that are not constant.
    pub fn local_bytes(&self) -> Result<u32> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }
    fn attribute(&self, attribute: Attribute) -> Result<u32> {
        self.device.enter()?;
        let mut value = 0;
        // SAFETY: the function is loaded and `value` is valid for a write.
        check(unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.function) }, "describe a kernel")?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
    /// Blocks of that many threads that fit a multiprocessor at once.
    pub fn blocks_per_sm(&self, threads: u32) -> Result<u32> {
        self.device.enter()?;
        let mut blocks = 0;
        // SAFETY: the function is loaded and `blocks` is valid for a write.
        let status = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function,
                threads as i32,
                self.dynamic_shared as usize,
            )
        };
        check(status, "compute a kernel's occupancy")?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// The memory that the kernel keeps between launches.
    pub(crate) fn barrier(&self) -> Option<&GuardedBuffer> {
        self.barrier.as_ref()
    }

    /// Issues a launch on the device's stream; returns before it is done. An
    /// empty grid launches nothing.
    ///
    /// The caller answers for the arguments: every address must be that of
    /// memory which is as long as the kernel's buffer and stays allocated until
    /// the launch is done.
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3], args: &LaunchArgs) -> Result<()> {
        let barrier = self.barrier.as_ref().map_or(0, GuardedBuffer::address);
        self.launch_on(self.device.stream(), grid, block, &args.slots, barrier)
    }

    /// The same on any stream, with each parameter's bytes in words of 64 bits, and the address
    /// of a counter that is 0 for the grid barrier of a kernel that [has one](Self::barrier): two
    /// launches that may run at once need one each.
    pub(crate) fn launch_on(
        &self,
        stream: Stream,
        grid: [u32; 3],
        block: [u32; 3],
        slots: &[u64],
        barrier: u64,
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let mut pointers = self.pointers(slots, &barrier)?;
        self.device.enter()?;
        let [gx, gy, gz] = grid;
        let [bx, by, bz] = block;
        let (function, shared, stream) = (self.function, self.dynamic_shared, stream.raw());
        // SAFETY: the function is loaded on this device; there is one pointer for
        // each of its parameters, each to 8 readable bytes, of which the driver
        // reads as many as the parameter has and writes none.
        let status = unsafe {
            if self.cooperative {
                sys::cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, pointers.as_mut_ptr())
            } else {
                let extra = std::ptr::null_mut();
                sys::cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, pointers.as_mut_ptr(), extra)
            }
        };
        // The message is made only on failure: a launch allocates nothing.
        if status == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        check_launch(status, &format!("launch kernel {} with grid {grid:?} and block {block:?}", self.name))
    }
}

impl LoadedKernel {
    /// Replaces the parameters of a launch of this kernel that was recorded, for launches of the
    /// graph from now on. They are as in [`LoadedKernel::launch_on`].
    pub(crate) fn set_recorded(&self, graph: &Graph, node: GraphNode, slots: &[u64], barrier: u64) -> Result<()> {
        graph.set_parameters(node, &mut self.pointers(slots, &barrier)?)
    }

    /// A pointer to each parameter's bytes.
    fn pointers(&self, slots: &[u64], barrier: &u64) -> Result<SmallVec<[*mut c_void; 64]>> {
        let wanted: usize = self.params.iter().map(|words| usize::from(*words)).sum();
        if slots.len() != wanted {
            let given = slots.len();
            let message = format!("kernel {} has parameters of {wanted} words, {given} were given", self.name);
            return Err(Diagnostic::bug(message));
        }
        let own = self.barrier.is_some().then_some(barrier);
        let starts = self.params.iter().scan(0, |next, words| {
            let start = *next;
            *next += usize::from(*words);
            Some(&slots[start])
        });
        Ok(starts.chain(own).map(|word| std::ptr::from_ref(word).cast_mut().cast()).collect())
    }
}

impl Drop for LoadedKernel {
    fn drop(&mut self) {
        // Launches may still be running; unloading waits for them. Errors have nowhere to go.
        if self.device.enter().is_ok() {
            // SAFETY: the module was loaded by this value and is unloaded once.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// The values of a kernel's parameters, ready for any number of launches.
#[derive(Clone, Debug, Default)]
pub struct LaunchArgs {
    // Each parameter's bytes, least significant first.
    slots: Vec<u64>,
}

impl LaunchArgs {
    /// The arguments of a bound launch; addresses come from `address`.
    pub fn new(launch: &BoundLaunch, address: impl Fn(BufId) -> u64) -> Self {
        let mut slots = Vec::new();
        for param in &launch.params {
            match *param {
                BoundParam::Pointer(buffer) => slots.push(address(buffer)),
                BoundParam::Scalar { dtype, value } => slots.extend(scalar_words(dtype, value)),
            }
        }
        Self { slots }
    }
    /// Plain 64-bit words, for functions that are no printed kernels.
    pub fn words(words: &[u64]) -> Self {
        Self { slots: words.to_vec() }
    }
}

/// The words of a parameter that is a number.
pub(crate) fn scalar_words(dtype: DType, value: Value) -> impl Iterator<Item = u64> {
    let (bytes, words) = (storage::encode(dtype, value), dtype.bytes().div_ceil(8));
    (0..words).map(move |word| bytes.as_chunks::<8>().0.get(word).map_or(0, |chunk| u64::from_le_bytes(*chunk)))
}
