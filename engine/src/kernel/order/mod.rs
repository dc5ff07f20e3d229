//! An independent checker of what threads do to each other: is every two accesses of an element ordered, does
//! every thread reach each barrier, is every index in range, is each element of an output written once?
//!
//! Input: a verified kernel and one launch of it. Output: an [`OrderReport`]. It shares no code with lowering, which
//! placed the barriers, nor with the simulator's detectors, which watch one execution. It interprets the kernel for
//! all threads of a block at once, statement by statement, with what tensors hold unknown ([`word`]): only indices,
//! conditions and bounds of loops are evaluated, and what they are made of ([`slice`]). What it says holds for all
//! contents of memory and all orders in which threads may run, since that an execution has no two accesses without
//! order does not depend on the order in which it is looked at.
//!
//! **Order in a block.** Two accesses of an element by different threads, one of them a write, not both atomic, are
//! ordered exactly if a barrier of both lies between ([`events`]). Shuffles and fences of a block order nothing.
//! **Conditions on data** are taken both ways, under guards ([`guards`]): a barrier under a guard orders what happens
//! only where the guard holds. If each thread decides for itself, what meets under such guards is *undecided*.
//! **Loops that run as often as data say** are the end of what is looked at, and the report says so.
//! **Asynchronous copies** write at some moment between their start and the wait ([`flights`]). **Between blocks** there
//! are grid barriers, and counts of which the last is known ([`grid`]).
//!
//! Launches of many threads are looked at in the first, second and last block of each dimension.
//!
//! The same interpreter proves that a change of a kernel changes nothing: [`compare_at`] holds two expressions
//! against each other wherever a statement is executed, and [`result_terms`] says by which terms of the inputs each
//! element that a kernel writes is computed; adding zero to a sum that begins with it changes none ([`floats`]).

mod eval;
mod events;
mod flights;
mod floats;
mod grid;
mod guards;
mod mask;
mod memory;
mod prove;
mod report;
mod run;
mod slice;
mod statements;
#[cfg(test)]
mod tests;
mod word;

pub use prove::{Agreement, ResultTerms, compare_at, result_terms};
pub use report::{Alarm, AlarmKind, OrderReport};
pub use run::check_order;
