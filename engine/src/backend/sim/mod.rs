//! The simulator back end: runs a kernel as a GPU would, and watches it.
//!
//! [`compile`] turns kernel IR into bytecode of `simcore`, which executes it
//! with warps, masks, shared memory and barriers under a seeded schedule.
//! Arithmetic is that of the reference: `f32` in `f32` without contraction,
//! integers wrap, everything else as `num::eval` has it.
//!
//! Input: a kernel that passed [`verify`](crate::kernel::verify), its bound
//! launch, [`SimMemory`] with the inputs filled in. Output: the memory, and a
//! [`SimReport`]; or a [`Bug`](crate::diag::DiagnosticKind::Bug) that names what the kernel does wrong: a data
//! race, an access out of bounds, a read of unwritten memory, a misaligned
//! move, a barrier under divergence, a deadlock.

mod code;
mod compile;
mod expr;
mod heap;
mod isel;
mod memory;
mod report;
mod run;

#[cfg(test)]
mod tests;

use crate::util::sync;

pub use compile::{SimProgram, compile};
pub use heap::Heap;
pub(crate) use heap::HeapShare;
pub use memory::SimMemory;
pub(crate) use memory::too_little_memory;
pub use report::SimReport;
pub use run::{resident_blocks, run, run_program};
pub use simcore::{Class, Counters};
