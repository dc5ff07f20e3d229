//! Kernels to a library of the host: files of many kernels, compiled beside each
//! other by the C++ compiler and loaded into this process.

use super::text;
use engine::backend::cuda::CudaSource;
use engine::diag::{Diagnostic, Result};
use engine::num::{BinaryOp, DType, UnaryOp, eval};
use libloading::{Library, Symbol};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Kernels of one file: few enough that all cores have work, enough that what
/// precedes them does not count.
const PER_FILE: usize = 160;

/// What undefined behaviour is told of: everything that a printed kernel must
/// not do. Unsigned arithmetic and conversions of integers are defined.
const CHECKS: &str = "-fsanitize=signed-integer-overflow,integer-divide-by-zero,shift,alignment,bounds,bool";

/// A C++ compiler of the host.
#[derive(Clone, Debug)]
pub struct HostCompiler {
    program: PathBuf,
}

/// How kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// What C++ leaves undefined is noted where it happens.
    Checked,
    /// Optimised, with what a device's compiler takes for granted: no integer
    /// overflows, no divisor is zero.
    Trusting,
}

impl HostCompiler {
    /// The first of the usual names that runs.
    pub fn find() -> Option<Self> {
        let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
        ["g++", "clang++", "c++"].into_iter().find(runs).map(|name| Self { program: name.into() })
    }

    fn command(&self, build: Build) -> Command {
        let mut command = Command::new(&self.program);
        // Kernels read words of memory under another type, as devices allow; products are not fused.
        command.args(["-std=c++17", "-w", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off"]);
        match build {
            // Compiling takes longer than running.
            Build::Checked => command.args(["-O0", CHECKS]),
            Build::Trusting => command.arg("-O2"),
        };
        command
    }

    fn run(&self, mut command: Command, what: &str) -> Result<()> {
        let failed =
            |text: String| Diagnostic::bug(format!("{} cannot compile {what}", self.program.display())).note(text);
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(failed(text.lines().take(20).collect::<Vec<_>>().join("\n")))
    }

    /// Compiles kernels in a folder, with that many compilers at a time.
    pub fn compile(&self, kernels: &[CudaSource], dir: &Path, build: Build, jobs: usize) -> Result<HostKernels> {
        let failed = |error: std::io::Error| Diagnostic::bug(format!("cannot write to {}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut units = vec![(dir.join("runtime.cpp"), include_str!("runtime.cpp").to_string())];
        for (file, part) in kernels.chunks(PER_FILE).enumerate() {
            let mut text = text::preamble();
            for (i, source) in part.iter().enumerate() {
                text.push_str(&text::kernel(file * PER_FILE + i, source)?);
            }
            units.push((dir.join(format!("kernels_{file}.cpp")), text));
        }
        for (path, text) in &units {
            std::fs::write(path, text).map_err(failed)?;
        }
        let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some((path, _)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                // What runs the kernels is not what is checked.
                let is_runtime = path.ends_with("runtime.cpp");
                let mut command = self.command(if is_runtime { Build::Trusting } else { build });
                command.arg("-c").arg(path).arg("-o").arg(path.with_extension("o"));
                if let Err(error) = self.run(command, &path.display().to_string())
                    && let Ok(mut errors) = errors.lock()
                {
                    errors.push(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(work);
            }
        });
        if let Some(error) = errors.into_inner().unwrap_or_default().into_iter().next() {
            return Err(error);
        }
        let library = dir.join("kernels.so");
        let mut link = Command::new(&self.program);
        link.arg("-shared").arg("-o").arg(&library);
        link.args(units.iter().map(|(path, _)| path.with_extension("o")));
        self.run(link, "the library of kernels")?;
        HostKernels::open(&library, kernels.len())
    }
}

/// A kernel's caller.
pub(super) type KernelEntry = unsafe extern "C" fn(*mut *mut std::ffi::c_void);

/// What a run noted; the layout of `runtime.cpp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostReport {
    pub(super) what: i32,
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) detail: u32,
    pub(super) times: u64,
}

pub(super) type RunLaunch =
    unsafe extern "C" fn(KernelEntry, *mut *mut std::ffi::c_void, *const u32, i32, *mut u8, *mut HostReport);

/// Compiled kernels.
pub struct HostKernels {
    // One launch at a time: a thread's place is a variable of the library.
    pub(super) library: Mutex<Library>,
    count: usize,
}

impl HostKernels {
    fn open(path: &Path, count: usize) -> Result<Self> {
        let failed = |error: libloading::Error| Diagnostic::bug(format!("cannot load {}: {error}", path.display()));
        // SAFETY: the library was just made of files of ours; it has no initialisers besides those of the compiler.
        let library = unsafe { Library::new(path) }.map_err(failed)?;
        type Set = unsafe extern "C" fn(extern "C" fn(u32, f64) -> f64, extern "C" fn(u32, i32, f64, f64) -> f64);
        {
            // SAFETY: the symbol is defined by `runtime.cpp` with this type.
            let set: Symbol<'_, Set> = unsafe { library.get(b"set_functions\0") }.map_err(failed)?;
            // SAFETY: it stores two pointers to functions that live as long as the process.
            unsafe { set(unary, binary) };
        }
        Ok(Self { library: Mutex::new(library), count })
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.count
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

extern "C" fn unary(op: u32, x: f64) -> f64 {
    UnaryOp::ALL.get(op as usize).map_or(f64::NAN, |op| eval::unary_f64(*op)(x))
}

extern "C" fn binary(op: u32, is_f64: i32, x: f64, y: f64) -> f64 {
    let dtype = if is_f64 != 0 { DType::F64 } else { DType::F32 };
    BinaryOp::ALL.get(op as usize).map_or(f64::NAN, |op| eval::binary_f64(*op, dtype)(x, y))
}
