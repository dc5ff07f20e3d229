//! Case harness of the fusion compiler.
//!
//! A *dispatcher* (this process: no CUDA, NVML only) finds cases, selects
//! them, hands them to warm *worker* processes, one for each device, and turns
//! what comes back, or what does not, into verdicts and records.

#![warn(missing_docs)]

pub mod background;
mod bless;
pub mod case;
pub mod cli;
mod code_cache;
mod compilers;
mod console;
pub mod corpus;
mod crumb;
mod device;
mod dispatch;
mod escape;
mod evidence;
mod exit;
mod flake;
mod frame;
mod gate;
mod import;
#[cfg(feature = "bench")]
pub mod measure;
mod os;
pub mod outcome;
#[cfg(test)]
#[path = "../../engine/tests/property/mod.rs"]
mod property;
mod proto;
pub mod record;
mod replay;
mod report;
mod rng;
#[cfg(test)]
mod scratch;
pub mod select;
mod stats;
mod units;
mod verified;
mod worker;
