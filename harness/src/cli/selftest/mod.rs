//! `selftest`: commits every fault that the device can have, among innocent
//! cases, through the real dispatcher with real workers, and compares what the
//! harness says with what the table of faults expects.
//!
//! Output: the rows that differ, the total line, records of kind `selftest` below
//! `results/selftest`. Ends with 0 only if every fault was detected, named and
//! charged rightly, and no other case's result was lost or changed.
//!
//! - `command.rs`: the course of it;
//! - `wanted.rs`: which faults are committed, among which cases;
//! - `setup.rs`: devices and workers;
//! - `schedule.rs`: units of work, each a fault with its company; `source.rs` gives them to workers;
//! - `matrix.rs`: what was said against what is expected.

mod command;
mod matrix;
mod schedule;
mod setup;
mod source;
mod wanted;

pub(super) use command::selftest;
