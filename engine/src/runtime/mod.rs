//! Runs fusions: one [`Session`] for each device, simulated or real.
//!
//! A session compiles a fusion for a class of arguments into a [`Plan`], keeps
//! it, and runs it on arguments of that class. Sessions and plans are
//! `Send + Sync`; several threads may compile and run at once, and the text of
//! a kernel depends on none of that. Nothing here reads a clock: times come
//! from the caller's [`Trace`](crate::options::Trace), for example
//! [`PhaseTimes`], or from the device.

mod bench;
mod cache;
mod key;
mod on_cuda;
mod on_sim;
mod plan;
#[cfg(test)]
mod random_numbers_tests;
mod segmented;
mod session;
#[cfg(test)]
mod tests;
mod times;

pub use bench::{BenchOptions, BenchReport};
pub use on_cuda::CACHED;
pub use plan::Plan;
pub use segmented::SegmentedOutcome;
pub use session::{DeviceMemory, RunOutcome, Session};
pub use times::PhaseTimes;
