//! Compiler processes: NVRTC beside the workers that use it.
//!
//! NVRTC's front end takes one text at a time in a process, so threads of a worker
//! wait for each other in it. The dispatcher starts processes that do nothing but
//! compile; each thread of a worker that compiles coming cases has one of them to
//! itself. They outlive workers, so a new worker needs not load the library first,
//! and a compiler that crashes takes no case along.
//!
//! - `dispatch/compilers.rs` starts the processes, replaces those that die, and ends them.
//! - [`Client`] is a worker's connection to one of them, an [`engine`] compiler.
//! - [`main`] is the process itself; `wire.rs` is what they say to each other.
//!
//! Invariants: a process serves one connection at a time, and ends with the
//! dispatcher, or where its client is gone in the middle of a text. Whatever goes
//! wrong here only costs speed: a case that was not compiled ahead is compiled in
//! its worker, where errors, crashes and hangs of the compiler are its own.

mod client;
#[cfg(test)]
pub(crate) mod played;
mod serve;
mod wire;

pub(crate) use client::Client;
pub(crate) use serve::main;
