//! Compiler processes: NVRTC beside the process that uses it.
//!
//! NVRTC's front end takes one text at a time in a process, whatever the number of threads. So
//! processes that do nothing but compile are given to a [`Compiler`](super::Compiler): each takes
//! one text at a time, and a compiler that crashes takes nobody along.
//!
//! * [`CompilerProcesses`] starts them, replaces those that die, and ends them.
//! * [`CompilerClient`] is the connection to one of them; it serves by itself where another process
//!   than the one that compiles has started it.
//! * [`compiler_process`] is the whole process, [`serve_compiler`] one connection of it.
//! * `wire.rs` is what they say to each other.
//!
//! Invariants: the other side has the same build of the library, so its code is that of this
//! process; without processes, or with such as have another build, everything is compiled here. A
//! process ends with its connection, also where its client is gone in the middle of a text that
//! never comes to an end.

mod client;
mod pool;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

pub use client::CompilerClient;
pub(super) use pool::Beside;
pub use pool::{CompilerCommand, CompilerProcesses};
pub use serve::{compiler_process, serve_compiler};
