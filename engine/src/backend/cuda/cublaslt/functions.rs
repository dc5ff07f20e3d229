//! The library, loaded.

use super::super::device::Device;
use super::super::library_search::{LibraryNames, first};
use crate::diag::{Diagnostic, Result, code};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, cublasStatus_t,
    cudaDataType, cudaStream_t,
};
use libloading::os::unix::{Library, RTLD_LAZY};
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const LIBRARY: LibraryNames = LibraryNames {
    names: &["libcublasLt.so.13", "libcublasLt.so.12"],
    wheel_folders: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
};

type Void = *mut c_void;
/// `cublasStatus_t`: a number, since another version may have more of them.
pub(super) type Status = u32;
type Set<Object, Attribute> = unsafe extern "C" fn(Object, Attribute, *const c_void, usize) -> Status;

/// The functions that are used here.
pub(super) struct Functions {
    version: unsafe extern "C" fn() -> usize,
    create: unsafe extern "C" fn(*mut cublasLtHandle_t) -> Status,
    destroy: unsafe extern "C" fn(cublasLtHandle_t) -> Status,
    pub(super) desc_create:
        unsafe extern "C" fn(*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType) -> Status,
    pub(super) desc_set: Set<cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t>,
    pub(super) desc_destroy: unsafe extern "C" fn(cublasLtMatmulDesc_t) -> Status,
    pub(super) layout_create: unsafe extern "C" fn(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64) -> Status,
    pub(super) layout_set: Set<cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t>,
    pub(super) layout_destroy: unsafe extern "C" fn(cublasLtMatrixLayout_t) -> Status,
    pub(super) preference_create: unsafe extern "C" fn(*mut cublasLtMatmulPreference_t) -> Status,
    pub(super) preference_set: Set<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t>,
    pub(super) preference_destroy: unsafe extern "C" fn(cublasLtMatmulPreference_t) -> Status,
    pub(super) choose: unsafe extern "C" fn(
        cublasLtHandle_t,
        cublasLtMatmulDesc_t,
        cublasLtMatrixLayout_t,
        cublasLtMatrixLayout_t,
        cublasLtMatrixLayout_t,
        cublasLtMatrixLayout_t,
        cublasLtMatmulPreference_t,
        c_int,
        *mut cublasLtMatmulHeuristicResult_t,
        *mut c_int,
    ) -> Status,
    pub(super) algorithm_get: unsafe extern "C" fn(
        *const cublasLtMatmulAlgo_t,
        sys::cublasLtMatmulAlgoConfigAttributes_t,
        Void,
        usize,
        *mut usize,
    ) -> Status,
    #[allow(clippy::type_complexity, reason = "the library's own signature")]
    pub(super) multiply: unsafe extern "C" fn(
        cublasLtHandle_t,
        cublasLtMatmulDesc_t,
        *const c_void,
        *const c_void,
        cublasLtMatrixLayout_t,
        *const c_void,
        cublasLtMatrixLayout_t,
        *const c_void,
        *const c_void,
        cublasLtMatrixLayout_t,
        Void,
        cublasLtMatrixLayout_t,
        *const cublasLtMatmulAlgo_t,
        Void,
        usize,
        cudaStream_t,
    ) -> Status,
}

/// The loaded library. May be used from any thread.
pub struct CublasLt {
    pub(super) functions: Functions,
    path: PathBuf,
    version: usize,
    handles: OnceLock<Handle>,
    /// Held by who makes the handle, which takes long: nobody makes a second one meanwhile.
    making: Mutex<()>,
    // Dropped last: the functions live in it.
    _library: Library,
}

/// The library's state on a device.
struct Handle {
    device: Arc<Device>,
    raw: cublasLtHandle_t,
    destroy: unsafe extern "C" fn(cublasLtHandle_t) -> Status,
}

// SAFETY: the library's documentation lets any thread use a handle of it, several at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: the handle was created once and is not used any more.
            unsafe { (self.destroy)(self.raw) };
        }
    }
}

impl std::fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CublasLt").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

impl CublasLt {
    /// Loads the first library found: on the loader's path, where installers put the toolkit, or in
    /// these folders, which may be `site-packages` with a wheel of it. Says where it was not found.
    pub fn open(folders: &[PathBuf]) -> std::result::Result<Self, String> {
        let candidates = LIBRARY.candidates(folders);
        first(&candidates, true, Self::load).map_err(|failures| {
            let name = LIBRARY.names[0];
            let found = if failures.is_empty() { "not found".into() } else { failures.join("; ") };
            format!("{name}: {found}; pip install 'nvidia-cublas==13.*' brings it")
        })
    }

    fn load(file: &Path) -> std::result::Result<Self, libloading::Error> {
        // SAFETY: the file is NVIDIA's library, whose initialisers have no requirement.
        let library = unsafe { Library::open(Some(file), RTLD_LAZY)? };
        // SAFETY: the types are those of cublasLt.h, unchanged since CUDA 11.
        let functions = unsafe {
            Functions {
                version: *library.get(b"cublasLtGetVersion\0")?,
                create: *library.get(b"cublasLtCreate\0")?,
                destroy: *library.get(b"cublasLtDestroy\0")?,
                desc_create: *library.get(b"cublasLtMatmulDescCreate\0")?,
                desc_set: *library.get(b"cublasLtMatmulDescSetAttribute\0")?,
                desc_destroy: *library.get(b"cublasLtMatmulDescDestroy\0")?,
                layout_create: *library.get(b"cublasLtMatrixLayoutCreate\0")?,
                layout_set: *library.get(b"cublasLtMatrixLayoutSetAttribute\0")?,
                layout_destroy: *library.get(b"cublasLtMatrixLayoutDestroy\0")?,
                preference_create: *library.get(b"cublasLtMatmulPreferenceCreate\0")?,
                preference_set: *library.get(b"cublasLtMatmulPreferenceSetAttribute\0")?,
                preference_destroy: *library.get(b"cublasLtMatmulPreferenceDestroy\0")?,
                choose: *library.get(b"cublasLtMatmulAlgoGetHeuristic\0")?,
                algorithm_get: *library.get(b"cublasLtMatmulAlgoConfigGetAttribute\0")?,
                multiply: *library.get(b"cublasLtMatmul\0")?,
            }
        };
        // SAFETY: the function has no requirement.
        let version = unsafe { (functions.version)() };
        let (handles, making) = (OnceLock::new(), Mutex::new(()));
        Ok(Self { functions, path: file.to_path_buf(), version, handles, making, _library: library })
    }

    /// The file that was loaded; a bare name was found on the loader's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The version as major, minor and patch.
    pub fn version(&self) -> (usize, usize, usize) {
        (self.version / 10000, self.version / 100 % 100, self.version % 100)
    }

    /// The handle on a device, created when it is first asked for; the calling thread works on that device from now on.
    /// One value serves one device.
    pub(super) fn handle(&self, device: &Arc<Device>) -> Result<cublasLtHandle_t> {
        device.enter()?;
        if self.handles.get().is_none() {
            let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            if self.handles.get().is_none() {
                let mut raw = std::ptr::null_mut();
                // SAFETY: `raw` is valid for a write, and the context is current.
                check(unsafe { (self.functions.create)(&mut raw) }, "start")?;
                let made = Handle { device: Arc::clone(device), raw, destroy: self.functions.destroy };
                self.handles.get_or_init(move || made);
            }
        }
        match self.handles.get() {
            Some(handle) if Arc::ptr_eq(&handle.device, device) => Ok(handle.raw),
            _ => Err(Diagnostic::bug("a library that was started on one device is asked for another")),
        }
    }
}

/// Turns a status of the library into a result. `what` says what was tried.
pub(super) fn check(status: Status, what: &str) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS as Status {
        return Ok(());
    }
    Err(Diagnostic::user(code::CUDA, format!("cuBLASLt failed to {what}: status {status}")))
}
