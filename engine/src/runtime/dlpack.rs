//! Tensors handed from one library to another in memory: DLPack 1.x, as PyTorch, JAX and
//! CuPy speak it.
//!
//! In: [`ImportedTensor`] takes what another library hands out, and gives it back when it
//! is dropped. Out: [`OwnedTensor::into_dlpack`] hands a tensor over, whose memory goes back
//! when its taker says so. Elements are not copied.
//!
//! Streams are not part of a DLPack tensor: whoever hands one out has seen to it that the
//! taker's stream waits for the work that writes it.

use super::device_tensor::{DeviceTensor, OwnedTensor};
use crate::array::row_major_strides;
use crate::diag::{Diagnostic, Result, code};
use crate::num::DType;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Memory of a CUDA device, as DLPack numbers devices.
const CUDA: i32 = 2;
/// The version of what is handed out.
const VERSION: DlVersion = DlVersion { major: 1, minor: 1 };
/// A flag: the taker may not write.
const READ_ONLY: u64 = 1;

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlVersion {
    /// Structures of different ones cannot be read.
    pub major: u32,
    /// Adds to what may occur.
    pub minor: u32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDataType {
    /// The kind of number.
    pub code: u8,
    /// Bits of one.
    pub bits: u8,
    /// Numbers of an element.
    pub lanes: u16,
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDevice {
    /// The kind of device.
    pub kind: i32,
    /// Which one of its kind.
    pub id: i32,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DlTensor {
    /// Where its storage starts.
    pub data: *mut c_void,
    /// Whose memory it is.
    pub device: DlDevice,
    /// Axes.
    pub rank: i32,
    /// The type of elements.
    pub dtype: DlDataType,
    /// A size for each axis.
    pub sizes: *mut i64,
    /// A stride for each axis, in elements; null of row-major tensors.
    pub strides: *mut i64,
    /// From the start of the storage to element 0, in bytes.
    pub byte_offset: u64,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensor {
    /// Of these structures.
    pub version: DlVersion,
    /// Of whoever made it.
    pub context: *mut c_void,
    /// Gives it back.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
    /// What the taker has to know.
    pub flags: u64,
    /// The tensor.
    pub tensor: DlTensor,
}

/// A tensor of another library.
#[derive(Debug)]
pub struct ImportedTensor {
    managed: NonNull<DlManagedTensor>,
    dtype: DType,
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

// SAFETY: the tensor is only read, and given back once; makers take them from any thread.
unsafe impl Send for ImportedTensor {}
// SAFETY: as above.
unsafe impl Sync for ImportedTensor {}

impl ImportedTensor {
    /// Takes a tensor over, which lies in memory of the CUDA device of this ordinal. One that is
    /// refused is given back.
    ///
    /// # Safety
    ///
    /// `managed` is a whole `DLManagedTensorVersioned`, that nobody else has taken, whose
    /// memory is of the device that it names; what writes it has ended, or comes before the
    /// calls that read it.
    pub unsafe fn from_dlpack(managed: NonNull<DlManagedTensor>, ordinal: usize) -> Result<Self> {
        // From here on it is given back when `this` is dropped.
        let mut this = Self { managed, dtype: DType::F32, sizes: Vec::new(), strides: Vec::new() };
        let refuse = |message: String| Err(Diagnostic::user(code::DEVICE_TENSOR, message));
        // SAFETY: the caller answers for it. The version comes first in every version.
        let version = unsafe { (*managed.as_ptr()).version };
        if version.major != VERSION.major {
            return refuse(format!("a DLPack tensor of version {}.{} cannot be read", version.major, version.minor));
        }
        // SAFETY: a structure of this version.
        let tensor = unsafe { &(*managed.as_ptr()).tensor };
        if tensor.device.kind != CUDA || usize::try_from(tensor.device.id) != Ok(ordinal) {
            let DlDevice { kind, id } = tensor.device;
            return refuse(format!("a DLPack tensor is on device {id} of kind {kind}, not on GPU {ordinal}"));
        }
        let Some(dtype) = from_code(tensor.dtype) else {
            return refuse(format!("a DLPack tensor has elements of an unknown type, {:?}", tensor.dtype));
        };
        let rank = usize::try_from(tensor.rank).unwrap_or(0);
        this.dtype = dtype;
        if rank > 0 {
            // SAFETY: there is a size for each axis.
            this.sizes = unsafe { std::slice::from_raw_parts(tensor.sizes, rank) }.to_vec();
            this.strides = match tensor.strides.is_null() {
                true => row_major_strides(&this.sizes),
                // SAFETY: there is a stride for each axis.
                false => unsafe { std::slice::from_raw_parts(tensor.strides, rank) }.to_vec(),
            };
        }
        Ok(this)
    }

    /// The tensor as an argument.
    pub fn tensor(&self) -> DeviceTensor<'_> {
        // SAFETY: it was taken over whole, and is given back when this is dropped.
        let managed = unsafe { self.managed.as_ref() };
        let address = managed.tensor.data as u64 + managed.tensor.byte_offset;
        DeviceTensor {
            address,
            dtype: self.dtype,
            sizes: &self.sizes,
            strides: &self.strides,
            read_only: managed.flags & READ_ONLY != 0,
        }
    }
}

impl Drop for ImportedTensor {
    fn drop(&mut self) {
        // SAFETY: it was taken over whole, and is given back once.
        unsafe {
            if let Some(deleter) = self.managed.as_ref().deleter {
                deleter(self.managed.as_ptr());
            }
        }
    }
}

/// What a tensor that is handed out needs until it comes back.
struct Exported {
    managed: DlManagedTensor,
    owned: OwnedTensor,
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

impl OwnedTensor {
    /// Hands the tensor over. Whoever takes it calls its deleter once, from any thread.
    pub fn into_dlpack(self) -> Result<NonNull<DlManagedTensor>> {
        let (tensor, id) = (self.tensor(), i32::try_from(self.device().ordinal()).unwrap_or(i32::MAX));
        let Some(dtype) = code_of(tensor.dtype) else {
            let message = format!("DLPack has no elements of type {}", tensor.dtype);
            return Err(Diagnostic::unsupported(code::DTYPE_NOT_SHARED, message));
        };
        let tensor = DlTensor {
            data: tensor.address as *mut c_void,
            device: DlDevice { kind: CUDA, id },
            rank: tensor.sizes.len() as i32,
            dtype,
            sizes: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let (sizes, strides) = (self.tensor().sizes.to_vec(), self.tensor().strides.to_vec());
        let context = std::ptr::null_mut();
        let managed = DlManagedTensor { version: VERSION, context, deleter: Some(give_back), flags: 0, tensor };
        let exported = NonNull::from(Box::leak(Box::new(Exported { managed, owned: self, sizes, strides })));
        // SAFETY: just made, and nobody else has it.
        unsafe {
            let exported = &mut *exported.as_ptr();
            exported.managed.context = std::ptr::from_mut(exported).cast();
            exported.managed.tensor.sizes = exported.sizes.as_mut_ptr();
            exported.managed.tensor.strides = exported.strides.as_mut_ptr();
            Ok(NonNull::from(&mut exported.managed))
        }
    }
}

/// Frees a tensor that was handed out.
unsafe extern "C" fn give_back(managed: *mut DlManagedTensor) {
    if !managed.is_null() {
        // SAFETY: `context` is the box that `into_dlpack` leaked; its taker calls this once.
        drop(unsafe { Box::from_raw((*managed).context.cast::<Exported>()) }.owned);
    }
}

/// Types of elements and what DLPack calls them.
const TYPES: [(DType, u8, u8, u16); 19] = [
    (DType::F64, 2, 64, 1),
    (DType::F32, 2, 32, 1),
    (DType::F16, 2, 16, 1),
    (DType::BF16, 4, 16, 1),
    (DType::F8E4M3FN, 10, 8, 1),
    (DType::F8E5M2, 12, 8, 1),
    (DType::F8E8M0FNU, 14, 8, 1),
    (DType::F4E2M1FNX2, 17, 4, 2),
    (DType::I64, 0, 64, 1),
    (DType::I32, 0, 32, 1),
    (DType::I16, 0, 16, 1),
    (DType::I8, 0, 8, 1),
    (DType::U64, 1, 64, 1),
    (DType::U32, 1, 32, 1),
    (DType::U16, 1, 16, 1),
    (DType::U8, 1, 8, 1),
    (DType::Bool, 6, 8, 1),
    (DType::C64, 5, 64, 1),
    (DType::C128, 5, 128, 1),
];

fn code_of(dtype: DType) -> Option<DlDataType> {
    let found = TYPES.iter().find(|(own, ..)| *own == dtype)?;
    Some(DlDataType { code: found.1, bits: found.2, lanes: found.3 })
}

fn from_code(given: DlDataType) -> Option<DType> {
    TYPES
        .iter()
        .find(|(_, code, bits, lanes)| (*code, *bits, *lanes) == (given.code, given.bits, given.lanes))
        .map(|t| t.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A tensor of another library, and how often it was given back.
    struct Foreign {
        managed: DlManagedTensor,
        sizes: [i64; 2],
        strides: [i64; 2],
    }

    unsafe extern "C" fn count(managed: *mut DlManagedTensor) {
        // SAFETY: the test's own, whose context is a counter.
        unsafe { (*(*managed).context.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst) };
    }

    /// What becomes of a tensor [4, 3] that was changed so; it is given back once in any case.
    #[track_caller]
    fn check_import(change: impl FnOnce(&mut Foreign), look: impl FnOnce(Result<DeviceTensor<'_>>)) {
        let given_back = AtomicU32::new(0);
        let tensor = DlTensor {
            data: 0x1000 as *mut c_void,
            device: DlDevice { kind: CUDA, id: 1 },
            rank: 2,
            dtype: DlDataType { code: 4, bits: 16, lanes: 1 },
            sizes: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 6,
        };
        let context = std::ptr::from_ref(&given_back).cast_mut().cast();
        let managed = DlManagedTensor { version: VERSION, context, deleter: Some(count), flags: 0, tensor };
        let mut foreign = Foreign { managed, sizes: [4, 3], strides: [1, 4] };
        foreign.managed.tensor.sizes = foreign.sizes.as_mut_ptr();
        foreign.managed.tensor.strides = foreign.strides.as_mut_ptr();
        change(&mut foreign);
        // SAFETY: whole; its memory is not looked at.
        let imported = unsafe { ImportedTensor::from_dlpack(NonNull::from(&mut foreign.managed), 1) };
        assert_eq!(given_back.load(Ordering::SeqCst), u32::from(imported.is_err()));
        look(imported.as_ref().map(ImportedTensor::tensor).map_err(Clone::clone));
        drop(imported);
        assert_eq!(given_back.into_inner(), 1);
    }

    #[test]
    fn what_is_handed_out_is_read() {
        check_import(
            |_| (),
            |tensor| {
                let tensor = tensor.expect("reads");
                assert_eq!((tensor.address, tensor.dtype, tensor.read_only), (0x1006, DType::BF16, false));
                assert_eq!((tensor.sizes, tensor.strides), (&[4, 3][..], &[1, 4][..]));
            },
        );
        check_import(
            |foreign| {
                foreign.managed.tensor.strides = std::ptr::null_mut();
                foreign.managed.flags = READ_ONLY;
            },
            |tensor| {
                let tensor = tensor.expect("reads");
                assert_eq!((tensor.strides, tensor.read_only), (&[3, 1][..], true));
            },
        );
    }

    #[test]
    fn what_cannot_be_read_is_given_back() {
        let refused = |words: &'static str| {
            move |tensor: Result<DeviceTensor<'_>>| {
                let error = tensor.expect_err("is refused");
                assert!(error.code == code::DEVICE_TENSOR && error.message.contains(words), "{error}");
            }
        };
        check_import(|foreign| foreign.managed.version.major = 2, refused("version 2.1"));
        check_import(|foreign| foreign.managed.tensor.device.kind = 1, refused("kind 1"));
        check_import(|foreign| foreign.managed.tensor.device.id = 0, refused("not on GPU 1"));
        check_import(|foreign| foreign.managed.tensor.dtype.lanes = 4, refused("unknown type"));
    }

    #[test]
    fn types_have_names_of_their_own() {
        for (dtype, ..) in TYPES {
            assert_eq!(code_of(dtype).and_then(from_code), Some(dtype));
        }
    }
}
