//! CUDA back end: kernel IR to CUDA C++, NVRTC to machine code, load, launch, time.
//!
//! [`emit`] prints a kernel together with the part of the device library that it
//! uses; [`nvrtc`] compiles the text without a GPU; `device` loads and launches
//! it through the driver; `timing` measures it. The first two run on any
//! machine, and neither touches a file of the CUDA toolkit besides the NVRTC
//! library itself: the text includes no header.
//!
//! Invariant: the text is a function of the kernel alone. Same kernel, same text.

mod expr;
mod library;
mod literal;
mod names;
pub mod nvrtc;
mod plan;
mod print;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

pub use print::{CudaSource, emit, print_cuda};
