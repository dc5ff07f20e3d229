//! Zero-dependency bytecode SIMT executor.
//!
//! Runs a [`Program`] over a grid of blocks of warps of 32 lanes, the way a GPU
//! does: structured divergence with active masks, shared memory, barriers,
//! shuffles, atomics, asynchronous copies. Input: a program, a [`LaunchConfig`], and [`GlobalMemory`] holding the
//! global buffers. Output: [`Counters`], or the first [`Trap`].
//!
//! **Registers** are structures of arrays, one value for each lane, in files of
//! registers of 32, of 64 and of 128 bits, so that one instruction is one loop
//! over 32 lanes that the compiler vectorises. Temporaries are in single
//! assignment form and written in all lanes whatever the mask; only local
//! memory, shared memory and global memory honour the mask.
//!
//! **Scheduling.** At each visible operation (memory, barrier, atomic) a seeded
//! scheduler picks the warp that goes on. Blocks that cannot communicate run in
//! parallel on host threads; the result does not depend on their number.
//!
//! **Detectors** keep, for each element of memory, who accessed it last, and
//! compare with what the barriers, fences and atomics order (see [`shadow`]).
//!
//! Invariant: a program whose indices are in range (`Program::validate`) never
//! makes the executor touch host memory outside its own arrays.

#![warn(missing_docs)]

mod access;
mod async_copy;
mod block;
mod clocks;
pub mod convert;
pub mod counters;
mod exec;
mod grid;
mod lanes;
mod localops;
mod memops;
mod memory;
mod op;
mod program;
pub mod random;
mod sched;
pub mod shadow;
mod trap;
mod validate;
mod warp;

pub use counters::{Class, Counters};
pub use grid::{Config, Report, run};
pub use memory::{GlobalBuffer, GlobalMemory};
pub use op::Opcode;
pub use program::{
    AtomicKind, BufferDecl, Elem, File, Flags, HostFn, Inst, LaunchConfig, Preload, PreloadSource, Program, SpaceKind,
};
pub use sched::SchedPolicy;
pub use trap::{Other, Trap, TrapKind, Waiter};

/// Lanes of a warp.
pub const LANES: usize = 32;
