//! Global memory of a launch.

use crate::program::Elem;
use std::cell::UnsafeCell;

/// One buffer of device memory.
pub struct GlobalBuffer {
    words: Box<[UnsafeCell<u128>]>,
    /// Elements.
    pub len: u64,
    /// Element type.
    pub elem: Elem,
    /// Address on the imagined device; fixes alignment and sectors.
    pub address: u64,
    /// Whether the launch gives it filled.
    pub initialised: bool,
}

// SAFETY: warps on other host threads write elements only through atomics
// (`store_*`), and read plainly only buffers that no instruction writes.
unsafe impl Sync for GlobalBuffer {}

impl GlobalBuffer {
    /// A buffer filled with a byte.
    pub fn new(elem: Elem, len: u64, address: u64, fill: u8, initialised: bool) -> Self {
        let bytes = len as usize * elem.bytes();
        let word = u128::from_ne_bytes([fill; 16]);
        let words = (0..bytes.div_ceil(16)).map(|_| UnsafeCell::new(word)).collect();
        Self { words, len, elem, address, initialised }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `&self` outside a run: nobody writes. The words hold at least
        // `len` elements and every byte of them is initialised.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len as usize * self.elem.bytes()) }
    }

    /// The bytes, to fill them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len as usize * self.elem.bytes()) }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }
}

/// All buffers, in the order of the program's.
#[derive(Default)]
pub struct GlobalMemory {
    /// The buffers.
    pub buffers: Vec<GlobalBuffer>,
}
