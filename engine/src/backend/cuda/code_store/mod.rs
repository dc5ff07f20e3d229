//! A folder of compiled kernels that processes share.
//!
//! Input: the key of a kernel, a [`Hash128`](crate::util::Hash128) over
//! everything that decides its machine code. Output: the [`Cubin`](super::nvrtc::Cubin)
//! that some process compiled under this key, or the right to compile it.
//! Knows nothing of the compiler: [`Compiler`](super::Compiler) makes the keys.
//!
//! | file | what |
//! |---|---|
//! | `<key>.code` | an entry: header with key, length and checksum, then the code and the log |
//! | `<key>.<process>-<n>.tmp` | an entry that is being written; renamed when it is whole |
//! | `<key>.lock` | held while a process compiles; removed by it |
//! | `sweep.lock` | held by who looks at the folder's size |
//!
//! Invariants:
//! * Nothing here fails. What is damaged, cut short or foreign counts as absent and
//!   is replaced; a folder that cannot be written costs the sharing, is counted,
//!   and the first reason is kept.
//! * Only finished compilations are stored: a hit never stands for an error.
//! * One process compiles a key, the others wait, but for a bounded time: the
//!   kernel gives the lock of a dead process free, and one that is stopped or
//!   hangs must not take those down that wait for it.
//! * Only files of these names are ever removed. Whoever may write into the folder
//!   decides what runs on the GPU, as with the binary itself.

mod entry;
mod lock;
mod store;
mod sweep;
#[cfg(test)]
pub(super) mod tests;

pub use store::{Claim, CodeCounts, CodeStore, Look};
