//! The storage of a planted process-wide option: replaced without regard for
//! who still reads it. Only in builds with the feature `planted`.

use rustix::mm::{MapFlags, ProtFlags};
use std::sync::atomic::{AtomicPtr, Ordering};

const PAGE: usize = 4096;
static STORAGE: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());

/// Where the option is at this moment; null before it is first set.
pub(crate) fn storage() -> *mut u64 {
    STORAGE.load(Ordering::Acquire)
}

/// Sets the option: in a new storage, and the old one is given back at once.
pub(crate) fn replace(value: u64) {
    // SAFETY: a fresh private mapping at an address that the kernel chooses.
    let Ok(page) = (unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }) else {
        return;
    };
    let page: *mut u64 = page.cast();
    // SAFETY: the page is mapped, aligned and nobody else's.
    unsafe { page.write(value) };
    let old = STORAGE.swap(page, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: none: readers that took the old address before crash. That is
        // the planted fault.
        let _ = unsafe { rustix::mm::munmap(old.cast(), PAGE) };
    }
}

/// Reads an option whose storage was looked up before.
pub(crate) fn read(at: *const u64) -> u64 {
    if at.is_null() {
        return 0;
    }
    // SAFETY: none: the storage may be gone by now. That is the planted fault.
    unsafe { at.read_volatile() }
}
