//! The worker process: runs cases one after the other on one device, and says
//! so. It keeps its device open between cases and reads no files.

mod again;
mod ahead;
mod args;
mod bench;
mod canary;
mod compare;
mod device;
mod execute;
mod facts;
pub(crate) mod fault;
mod golden;
mod gpu_error;
mod hygiene;
mod jitter;
mod pipeline;
#[cfg(feature = "planted")]
mod planted;
#[cfg(feature = "planted")]
pub(crate) mod planted_times;
mod played_times;
mod refusal;
mod results;
mod segment_graph;
mod serve;
mod spans;
mod variation;
mod watch;

pub(crate) use again::is_made_again;
pub(crate) use args::mix;
pub(crate) use execute::{LastRead, Stage, examine, kernel_crc, program, read, reads_as_it_says, show};
pub(crate) use golden::{check as check_goldens, nameless};
pub(crate) use serve::main;
pub(crate) use watch::UNSEEN;
