//! NVRTC: CUDA C++ text to machine code, without a GPU or a CUDA toolkit.
//!
//! Input: the places to look for the library (the engine reads no environment,
//! so the caller gathers them) and a text. Output: a cubin for one
//! architecture, the compiler's log and its resource figures. The text includes
//! no header, so the library alone is enough: a Python wheel will do.
//!
//! The library loads a companion with CUDA's built-in functions by bare name,
//! which the loader finds only on its own path; hence the companion beside the
//! library is loaded first.

use super::library_search::{self, INSTALL_FOLDERS, LibraryNames};
use super::machine_code::has_misread_predicate;
use super::print::CudaSource;
use crate::diag::{Diagnostic, Result, code};
use crate::options::CompileCx;
use crate::util::{Hash128, StableHasher, map_of};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The library, and where a Python environment keeps it.
const LIBRARY: LibraryNames = LibraryNames {
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    wheel_folders: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
};

/// The version from which `--minimal` is asked for: it leaves out declarations of
/// textures and of the device runtime, which no kernel uses and which take a tenth
/// of the time of a small one. The machine code is the same.
const MINIMAL_SINCE: (u32, u32) = (13, 0);

/// Where to look for the library, in this order: `path`, the loader's own path,
/// the folders where installers put it, `folders`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvrtcSearch {
    /// The library's file or its folder. If given, nothing else is tried.
    pub path: Option<PathBuf>,
    /// Folders with the library, or `site-packages` folders with a wheel of it.
    pub folders: Vec<PathBuf>,
}

impl NvrtcSearch {
    /// Every file that would be tried, in order; a bare name goes to the loader.
    pub fn candidates(&self) -> Vec<PathBuf> {
        match &self.path {
            Some(path) if path.is_dir() => LIBRARY.in_folder(path),
            Some(path) => vec![path.clone()],
            None => LIBRARY.candidates(&self.folders),
        }
    }
}

/// What to compile for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NvrtcOptions {
    /// The architecture, such as `sm_90a`.
    pub arch: String,
    /// Contract `a * b + c` to a fused multiply-add.
    pub fmad: bool,
    /// Map instructions to lines of the text, for profilers.
    pub line_info: bool,
}

impl NvrtcOptions {
    /// Options for a compute capability. From 9.0 on, with the instructions
    /// that are specific to the architecture.
    pub fn new(compute_capability: (u32, u32), fmad: bool) -> Self {
        let (major, minor) = compute_capability;
        let specific = if major >= 9 { "a" } else { "" };
        Self { arch: format!("sm_{major}{minor}{specific}"), fmad, line_info: false }
    }

    /// Options for the device and the options of a compilation.
    pub fn of(cx: &CompileCx<'_>) -> Self {
        let CompileCx { options, device, .. } = cx;
        Self { line_info: options.line_info, ..Self::new(device.compute_capability, options.fmad) }
    }

    /// All that is passed to a library of that version besides the text, in this order.
    pub fn flags(&self, version: (u32, u32)) -> Vec<String> {
        let mut flags = vec![
            format!("--gpu-architecture={}", self.arch),
            "--std=c++17".into(),
            "-default-device".into(),
            format!("--fmad={}", self.fmad),
            "--ptxas-options=-v".into(),
            // Printed kernels may declare more than they use, and the library compares
            // unsigned numbers with zero.
            "--diag-suppress=177,186,550".into(),
        ];
        if version >= MINIMAL_SINCE {
            flags.push("--minimal".into());
        }
        if self.line_info {
            flags.push("-lineinfo".into());
        }
        flags
    }
}

/// What stands in the log of a text that the assembler was asked not to optimize.
const NOT_OPTIMIZED: &str = "not optimized by the assembler, which would get an instruction wrong";

/// What the compiler says about a kernel's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// 32-bit registers of a thread.
    pub registers: u32,
    /// Bytes of stack of a thread: arrays with indices that are not constant.
    pub stack_bytes: u32,
    /// Bytes of register spills written.
    pub spill_stores: u32,
    /// Bytes of register spills read.
    pub spill_loads: u32,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The machine code, an ELF file.
    pub bytes: Vec<u8>,
    /// The compiler's log: warnings and the assembler's report, without the time that
    /// it took, so that one text has one result.
    pub log: String,
    /// Resource figures, where the log has them.
    pub resources: Option<Resources>,
}

impl Cubin {
    /// Machine code with its log, from which the figures are read.
    pub fn new(bytes: Vec<u8>, log: String) -> Self {
        let resources = parse_resources(&log);
        Self { bytes, log, resources }
    }

    /// Whether the assembler had to be asked not to optimize it.
    pub(super) fn is_plain(&self) -> bool {
        self.log.lines().any(|line| line == NOT_OPTIMIZED)
    }
}

/// What turns the text of a kernel into machine code: the library in this
/// process, or one in another. The library's front end compiles one text at a
/// time in a process, whatever the number of threads.
pub trait CompileText: Sync {
    /// Compiles a text; `name` stands for it in messages.
    fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin>;
}

type NvrtcProgram = *mut c_void;
type Status = c_int;

/// The functions of the library that are used here.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut NvrtcProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut NvrtcProgram) -> Status,
    compile: unsafe extern "C" fn(NvrtcProgram, c_int, *const *const c_char) -> Status,
    cubin_size: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> Status,
    log_size: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> Status,
    log: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> Status,
}

/// A loaded NVRTC library. May be used from any thread.
pub struct Nvrtc {
    functions: Functions,
    path: PathBuf,
    version: (u32, u32),
    // Dropped last: the functions live in it.
    _libraries: Vec<Library>,
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

impl Nvrtc {
    /// Loads the first library found. Fails with `E0503` if there is none.
    pub fn open(search: &NvrtcSearch) -> Result<Self> {
        let failures = match library_search::first(&search.candidates(), search.path.is_none(), Self::load) {
            Ok(nvrtc) => return Ok(nvrtc),
            Err(failures) => failures,
        };
        let places = match &search.path {
            Some(path) => path.display().to_string(),
            None => format!(
                "the loader's path, {} install folders and {} folders given",
                INSTALL_FOLDERS.len(),
                search.folders.len()
            ),
        };
        let mut error = Diagnostic::user(code::NO_NVRTC, format!("no usable {} in {places}", LIBRARY.names[0]));
        for failure in failures {
            error = error.note(failure);
        }
        Err(error.note("pip install 'nvidia-cuda-nvrtc==13.0.*' brings it; no toolkit is needed"))
    }

    fn load(file: &Path) -> std::result::Result<Self, libloading::Error> {
        let mut libraries = Vec::new();
        for companion in companions(file) {
            // SAFETY: the file is a library of NVIDIA's compiler whose initialisers
            // have no requirement. A companion that fails to load is not fatal:
            // the main library then looks for it by itself.
            libraries.extend(unsafe { Library::open(Some(companion), RTLD_NOW | RTLD_GLOBAL) });
        }
        // SAFETY: as above; the library's initialisers have no requirement.
        let library = unsafe { Library::open(Some(file), RTLD_NOW)? };
        // SAFETY: the types are those of nvrtc.h, unchanged since CUDA 11.
        let functions = unsafe {
            Functions {
                version: *library.get(b"nvrtcVersion\0")?,
                error_string: *library.get(b"nvrtcGetErrorString\0")?,
                create: *library.get(b"nvrtcCreateProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0")?,
                cubin: *library.get(b"nvrtcGetCUBIN\0")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
                log: *library.get(b"nvrtcGetProgramLog\0")?,
            }
        };
        libraries.push(library);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for a write.
        unsafe { (functions.version)(&mut major, &mut minor) };
        let version = (major.unsigned_abs(), minor.unsigned_abs());
        Ok(Self { functions, path: file.to_path_buf(), version, _libraries: libraries })
    }

    /// The file that was loaded; a bare name was found on the loader's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The library's version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// What tells this build of the library from others of its version: of its file
    /// and of those of its companions the length, the first bytes, in which linkers
    /// put an identity, and the last.
    pub fn fingerprint(&self) -> io::Result<Hash128> {
        let file = self.file()?;
        let mut hasher = StableHasher::new();
        hasher.write_bytes(format!("{}.{}", self.version.0, self.version.1).as_bytes());
        for file in std::iter::once(file.clone()).chain(companions(&file)) {
            hash_ends(&file, &mut hasher)?;
        }
        Ok(hasher.finish128())
    }

    /// The file that was loaded, also where the loader found it.
    fn file(&self) -> io::Result<PathBuf> {
        if self.path.components().count() > 1 { Ok(self.path.clone()) } else { self.loaded_file() }
    }

    /// The file of which the library's code is mapped.
    pub(super) fn loaded_file(&self) -> io::Result<PathBuf> {
        let address = self.functions.version as usize as u64;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let holds = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| u64::from_str_radix(text, 16).ok();
            range.and_then(|(from, to)| Some(number(from)?..number(to)?)).is_some_and(|range| range.contains(&address))
        };
        let path = maps.lines().find(holds).and_then(|line| Some(&line[line.find('/')?..]));
        path.map(PathBuf::from).ok_or_else(|| io::Error::other(format!("{self} is in no file")))
    }

    /// Compiles a kernel to machine code. Fails with `E0601`, or
    /// `E0606` where it is the assembler, and the log if it rejects the text.
    pub fn compile(&self, source: &CudaSource, options: &NvrtcOptions) -> Result<Cubin> {
        self.compile_text(&source.text(), &source.entry, options)
    }

    /// Compiles any text; `name` stands for it in messages. Where the assembler makes
    /// an instruction that it is known to get wrong, it is asked again not to optimize.
    pub fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin> {
        let mut flags = options.flags(self.version);
        let cubin = self.compile_with(text, name, options, &flags)?;
        if !has_misread_predicate(&cubin.bytes) {
            return Ok(cubin);
        }
        flags.push("--ptxas-options=-O0".into());
        let mut plain = self.compile_with(text, name, options, &flags)?;
        if has_misread_predicate(&plain.bytes) {
            let message = format!("{self} makes an instruction of kernel {name} that it is known to get wrong");
            return Err(Diagnostic::bug_code(code::NVRTC, message).note(plain.log));
        }
        let _ = writeln!(plain.log, "\n{NOT_OPTIMIZED}");
        Ok(plain)
    }

    pub(super) fn compile_with(
        &self,
        text: &str,
        name: &str,
        options: &NvrtcOptions,
        flags: &[String],
    ) -> Result<Cubin> {
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| Diagnostic::bug(format!("the text of kernel {name} has a zero byte")))
        };
        let program = ProgramHandle::new(self, &c_string(text)?, &c_string(&format!("{name}.cu"))?)?;
        let flags = flags.iter().map(|flag| c_string(flag)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = flags.iter().map(|flag| flag.as_ptr()).collect();
        // SAFETY: the program is alive and the flags are zero-terminated strings.
        let status = unsafe { (self.functions.compile)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
        let log = String::from_utf8_lossy(&program.read(self.functions.log_size, self.functions.log)?)
            .trim_end_matches('\0')
            .to_string();
        if status != 0 {
            let message = format!("{} rejected kernel {name} for {}: {}", self, options.arch, self.error(status));
            let code = if rejected_by_assembler(&log) { code::PTXAS } else { code::NVRTC };
            return Err(Diagnostic::bug_code(code, message).note(log));
        }
        let bytes = program.read(self.functions.cubin_size, self.functions.cubin)?;
        Ok(Cubin::new(bytes, without_times(&log)))
    }

    fn error(&self, status: Status) -> String {
        // SAFETY: the function returns a static zero-terminated string for any number.
        unsafe { CStr::from_ptr((self.functions.error_string)(status)) }.to_string_lossy().into_owned()
    }

    fn check(&self, status: Status, what: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        Err(Diagnostic::bug_code(code::NVRTC, format!("{self} failed to {what}: {}", self.error(status))))
    }
}

impl CompileText for Nvrtc {
    fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin> {
        Nvrtc::compile_text(self, text, name, options)
    }
}

impl std::fmt::Display for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NVRTC {}.{}", self.version.0, self.version.1)
    }
}

/// A program of the library, destroyed when dropped.
struct ProgramHandle<'a> {
    nvrtc: &'a Nvrtc,
    raw: NvrtcProgram,
}

impl<'a> ProgramHandle<'a> {
    fn new(nvrtc: &'a Nvrtc, text: &CStr, name: &CStr) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for a write, both strings are zero-terminated, and there are no headers.
        let status = unsafe {
            (nvrtc.functions.create)(&mut raw, text.as_ptr(), name.as_ptr(), 0, std::ptr::null(), std::ptr::null())
        };
        nvrtc.check(status, "create a program")?;
        Ok(Self { nvrtc, raw })
    }

    /// Reads one of the library's results: its size first, then the bytes.
    fn read(
        &self,
        size_of: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> Status,
        get: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> Status,
    ) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is alive and `size` is valid for a write.
        self.nvrtc.check(unsafe { size_of(self.raw, &mut size) }, "size a result")?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that the library asked for.
        self.nvrtc.check(unsafe { get(self.raw, bytes.as_mut_ptr().cast()) }, "read a result")?;
        Ok(bytes)
    }
}

impl Drop for ProgramHandle<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created by this library and is destroyed once.
        unsafe { (self.nvrtc.functions.destroy)(&mut self.raw) };
    }
}

/// The libraries beside the given one that hold CUDA's built-in functions.
fn companions(file: &Path) -> Vec<PathBuf> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_companion = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libnvrtc-builtins.so")
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_companion).collect();
    files.sort();
    files
}

/// Bytes of a library's file that are looked at, at either end.
const END: u64 = 64 << 10;

fn hash_ends(path: &Path, hasher: &mut StableHasher) -> io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    hasher.write_bytes(&length.to_le_bytes());
    for start in [0, length.saturating_sub(END)] {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.by_ref().take(END).read_to_end(&mut bytes)?;
        hasher.write_bytes(&bytes);
    }
    Ok(())
}

/// Whether the log has an error of the assembler: `ptxas fatal   : ...`,
/// `ptxas k.ptx, line 7; error   : ...`.
fn rejected_by_assembler(log: &str) -> bool {
    let complaint = |line: &str| line.starts_with("ptxas") && (line.contains("error") || line.contains("fatal"));
    log.lines().any(complaint)
}

/// The log without the lines in which the assembler says how long it took.
fn without_times(log: &str) -> String {
    let is_time = |line: &&str| line.starts_with("ptxas") && line.contains(": Compile time = ");
    log.split_inclusive('\n').filter(|line| !is_time(line)).collect()
}

/// Reads the assembler's report: `Used 39 registers` and
/// `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`.
fn parse_resources(log: &str) -> Option<Resources> {
    let number_before = |unit: &str| -> Option<u32> {
        let head = &log[..log.find(unit)?];
        let digits = head.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    Some(Resources {
        registers: number_before("registers")?,
        stack_bytes: number_before("bytes stack frame")?,
        spill_stores: number_before("bytes spill stores")?,
        spill_loads: number_before("bytes spill loads")?,
    })
}

/// The assembler's report by function, of a text of several kernels.
pub(super) fn resources_by_entry(log: &str) -> BTreeMap<&str, Resources> {
    let parts = log.split("Compiling entry function '").skip(1);
    map_of(parts.filter_map(|part| Some((&part[..part.find('\'')?], parse_resources(part)?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_kernels_are_told_apart() {
        let part = |name: &str, registers: u32| {
            format!(
                "ptxas info    : Compiling entry function '{name}' for 'sm_90a'\n\
                 ptxas info    : Function properties for {name}\n\
                 ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                 ptxas info    : Used {registers} registers, used 0 barriers\n"
            )
        };
        let log = format!("ptxas info    : 0 bytes gmem\n{}{}", part("a", 7), part("b", 39));
        let found: Vec<_> =
            resources_by_entry(&log).into_iter().map(|(name, figures)| (name, figures.registers)).collect();
        assert_eq!(found, [("a", 7), ("b", 39)]);
        assert!(resources_by_entry("").is_empty());
    }

    #[test]
    fn resource_figures_are_read_from_the_log() {
        let log = "ptxas info    : Function properties for k\n\
                   ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Used 39 registers, used 0 barriers\n";
        let expected = Resources { registers: 39, stack_bytes: 16, spill_stores: 4, spill_loads: 8 };
        assert_eq!(parse_resources(log), Some(expected));
        assert_eq!(parse_resources(""), None);
    }

    #[test]
    fn a_log_tells_no_times() {
        let log = "ptxas info    : Used 24 registers\nptxas info    : Compile time = 33.099 ms\nk.cu(3): warning";
        assert_eq!(without_times(log), "ptxas info    : Used 24 registers\nk.cu(3): warning");
    }

    #[test]
    fn a_given_path_is_the_only_place_searched() {
        let search = NvrtcSearch { path: Some("/nowhere/libnvrtc.so.13".into()), folders: Vec::new() };
        assert_eq!(search.candidates(), [PathBuf::from("/nowhere/libnvrtc.so.13")]);
        let error = Nvrtc::open(&search).expect_err("there is no such file");
        assert_eq!(error.code, code::NO_NVRTC);
        assert!(error.message.contains("/nowhere/libnvrtc.so.13"), "{error}");
    }

    #[test]
    fn architectures_from_hopper_on_use_their_specific_instructions() {
        assert_eq!(NvrtcOptions::new((9, 0), true).arch, "sm_90a");
        assert_eq!(NvrtcOptions::new((8, 6), true).arch, "sm_86");
    }
}
