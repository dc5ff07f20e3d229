//! Kernel replay: are the kernels of the cases the ones that are committed?
//!
//! - `compiled` makes of each case its kernel's texts and launch, or its refusal;
//! - `list` is what is committed of them by case id, `archive` the CUDA texts by
//!   their digests, so that a difference can be shown without the older compiler;
//! - `change` tells what became of each case and by which cause, `diff` compares
//!   two texts line by line, `report` puts it in words.
//!
//! Invariant: all of it is a function of cases and compiler: the same on any
//! machine and on any number of threads.

mod archive;
mod cause;
mod change;
mod compiled;
mod diff;
mod list;
mod report;

pub(crate) use archive::Archive;
pub(crate) use change::changes;
pub(crate) use compiled::compile;
pub(crate) use diff::unified;
pub(crate) use list::{List, ListEntry, case_of, place};
pub(crate) use report::report;
