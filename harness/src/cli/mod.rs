//! The command line: parse, dispatch to a command, turn errors into messages
//! and exit codes.
//!
//! - `main` (`entry.rs`) is the whole program;
//! - `args/` is what the options mean; each other file or folder is a command, or
//!   what several of them share;
//! - `Failure` is an error with its exit code; `console::{print, complain}` are the
//!   only ways to the terminal besides the progress view.

mod args;
mod bench_table;
mod broken;
mod check;
mod compare;
mod compile;
mod counter_gate;
mod devices;
mod doctor;
mod ending;
mod entry;
mod explain;
mod failure;
mod flakes;
mod fmt;
mod import;
mod kernels;
mod launch;
mod list;
mod manual;
mod pair;
mod plan;
mod quarantine;
mod report;
mod report_html;
mod resources;
mod resume;
mod run;
mod runs;
mod selftest;
mod session;
mod show;
mod since;
mod store;
mod timing_gate;
mod turns;

pub use entry::main;
pub(crate) use failure::Failure;
