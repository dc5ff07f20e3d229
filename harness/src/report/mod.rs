//! What people see: progress while it runs, and the summary.

mod progress;
mod summary;

pub(crate) use progress::{Format, Progress};
pub(crate) use summary::{Summary, quoted, repro};
