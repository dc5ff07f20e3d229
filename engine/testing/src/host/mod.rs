//! The CUDA text of kernels on the host: what the printer wrote, compiled by a
//! C++ compiler, against what the simulator makes of the same kernel.
//!
//! Input: kernels. [`HostCompiler`] compiles the text of many of them to one
//! library, with `shims.h` for what a device has and a host has not;
//! [`HostKernels::run`] runs a launch in memory between zones. [`Subject`] is a
//! kernel with a launch, and [`Subject::differs`] runs it on both and compares
//! every bit of every output.
//!
//! What is compared is the meaning of the text. Functions whose last bits are a
//! mathematical library's business (`expf`) are the simulator's own, so there is
//! no tolerance; what a device's library gives is for a run on a device to say.
//! Not covered: grid barriers, which need all blocks at once.

mod compare;
mod compile;
mod run;
mod subject;
mod text;

pub use compare::{Compared, compare};
pub use compile::{Build, HostCompiler, HostKernels};
pub use run::HostMemory;
pub use subject::{Expected, Needs, Subject};
