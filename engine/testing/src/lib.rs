//! Test support: random fusions and schedules, and comparisons of a device with
//! the reference and of printed kernels with the simulator.

#![warn(missing_docs)]

pub mod check;
mod data;
pub mod device_calls;
pub mod fusions;
pub mod host;
mod kernel_runs;
pub mod litmus;
pub mod random;
pub mod reference;
pub mod threads;

pub use data::Draw;
pub use reference::Reference;
