//! CUDA back end: kernel IR to CUDA C++, NVRTC to machine code, load, launch, time.
//!
//! [`emit`] prints a kernel together with the part of the device library that it
//! uses; [`nvrtc`] compiles the text without a GPU, and [`Compiler`] shares what
//! comes of it with other processes through a [`CodeStore`], and leaves the compiling to
//! [`CompilerProcesses`] where it has some; [`Device`] loads and
//! launches it through the driver; [`Timer`] measures it, and [`Inspector`] looks at memory there. All but the last
//! three run on any machine, and neither touches a file of the CUDA toolkit besides the NVRTC
//! library itself: the text includes no header.
//!
//! Invariant: the text is a function of the kernel alone. Same kernel, same text.

mod call;
mod code_store;
mod compiler;
mod cublaslt;
mod device;
mod driver;
mod expr;
mod graph;
mod guard;
mod inspect;
mod launch;
mod library;
mod library_search;
mod literal;
mod machine_code;
mod names;
pub mod nvrtc;
mod plan;
mod pool;
mod print;
mod processes;
#[cfg(test)]
mod samples;
mod staging;
mod stream;
#[cfg(test)]
mod tests;
mod timing;
mod together;
mod vectors;

use crate::util::sync;

pub use call::{CallMemory, Issued, POISON};
pub use code_store::{Claim, CodeCounts, CodeStore, Look};
pub use compiler::{CompiledCubin, Compiler, OtherTexts};
pub use cublaslt::{CublasLt, PlannedProduct, ProductAddresses};
pub use device::{Device, DeviceBuffer};
pub use driver::{device_count, ready, version};
pub use graph::Graph;
pub(crate) use graph::GraphNode;
pub use guard::{GuardedBuffer, check_zones};
pub use inspect::{Inspector, Question};
pub(crate) use launch::scalar_words;
pub use launch::{LaunchArgs, LoadedKernel};
pub use pool::MemoryUse;
pub use print::{CudaSource, emit, print_cuda};
pub use processes::{CompilerClient, CompilerCommand, CompilerProcesses, compiler_process, serve_compiler};
pub use stream::Stream;
pub use timing::{Samples, Timer, TimingOptions};
