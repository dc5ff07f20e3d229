//! Register files and loops over the lanes of a warp.

use crate::LANES;
use crate::program::{File, Inst};

/// A register of 32-bit lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct V32(pub(crate) [u32; LANES]);

/// A register of 64-bit lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct V64(pub(crate) [u64; LANES]);

/// A register of 128-bit lanes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct V128(pub(crate) [u128; LANES]);

/// The register files of a warp.
#[derive(Clone, Copy)]
pub(crate) struct Files {
    pub(crate) r32: *mut V32,
    pub(crate) r64: *mut V64,
    pub(crate) r128: *mut V128,
}

/// A lane type.
pub(crate) trait Lane: Copy {
    /// The file that it is in.
    const FILE: File;

    /// The lanes of a register.
    ///
    /// # Safety
    /// `reg` is below the size of the file.
    unsafe fn lanes(files: Files, reg: u16) -> *mut [Self; LANES];
}

macro_rules! lane {
    ($name:ident $file:ident: $($t:ty),*) => {$(
        impl Lane for $t {
            const FILE: File = File::$name;

            #[inline(always)]
            unsafe fn lanes(files: Files, reg: u16) -> *mut [Self; LANES] {
                // SAFETY: the caller keeps `reg` in the file.
                unsafe { files.$file.add(reg as usize).cast() }
            }
        }
    )*};
}
lane!(R32 r32: u32, i32, f32);
lane!(R64 r64: u64, i64, f64);
lane!(R128 r128: u128);

/// Lanes handled at once: read all operands, then write, so that a destination
/// may be one of the sources and the compiler needs no alias check.
const CHUNK: usize = 16;

macro_rules! map {
    ($name:ident, $($arg:ident: $T:ident = $field:ident),*) => {
        /// Applies a function to each lane.
        ///
        /// # Safety
        /// The registers of `inst` are in `files`; `d` shares no memory with
        /// a source of another width (the files are separate, so it cannot).
        #[inline(always)]
        pub(crate) unsafe fn $name<$($T: Lane,)* D: Lane>(files: Files, inst: Inst, f: impl Fn($($T),*) -> D) {
            // SAFETY: registers are in range by the caller; chunks stay inside 32 lanes.
            unsafe {
                $(let $arg = <$T as Lane>::lanes(files, inst.$field) as *const $T;)*
                let d = D::lanes(files, inst.d) as *mut D;
                for chunk in 0..LANES / CHUNK {
                    $(let $arg: [$T; CHUNK] = *$arg.add(chunk * CHUNK).cast();)*
                    let mut out: [D; CHUNK] = *d.add(chunk * CHUNK).cast();
                    for l in 0..CHUNK {
                        out[l] = f($($arg[l]),*);
                    }
                    *d.add(chunk * CHUNK).cast() = out;
                }
            }
        }
    };
}
map!(map1, x: A = a);
map!(map2, x: A = a, y: B = b);
map!(map3, x: A = a, y: B = b, z: C = c);
