//! What a call does: launches, calls of libraries and of the host, and copies over values in memory.
//!
//! In: [`Segments`](crate::segment::Segments) and the arguments' types and layouts.
//! Out: [`Program`]: each tensor that crosses from one segment to another, or to the
//! caller, is a [`Value`] with a place in memory, and [`Step`]s say in which order
//! they come about. A device runs the steps as they stand, and decides nothing.
//!
//! * `steps` is what a program is made of, `build` makes it;
//! * `arena` places values that live between steps in one allocation, by when they
//!   are alive;
//! * `moved` makes kernels of copies that would take many calls;
//! * `random` says which arguments the offsets of random numbers come from;
//! * `results` says whose memory the caller's results are in;
//! * `scalars` says whether another value of a scalar needs another program.
//!
//! A view is a value in the memory of another, and no step. One that is returned stays there where
//! [`Options::alias_results`](crate::options::Options) allows it, or where nobody else has that memory;
//! otherwise it is copied.
//!
//! What is joined of parts is a value that several steps write, each a part of it, which is a value in its memory.
//!
//! Invariants: a value is written by one step, or its parts by one each, and read by later ones only; two
//! values that are alive at once share no byte of the arena; inputs are written by
//! copies that stand behind every other step, so that each step reads what the caller gave;
//! no result is a view of an argument that is updated.

mod arena;
mod build;
mod random;
mod results;
mod scalars;
mod steps;
#[cfg(test)]
mod tests;

pub use random::RngOffset;
pub use results::ResultMemory;
pub use scalars::ScalarUse;
pub use steps::{Copy, HostCall, HostInput, Launch, LibraryCall, Program, Step, Storage, Value, ValueId};
