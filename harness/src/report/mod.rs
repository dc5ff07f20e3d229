//! What people see: progress while it runs, and the summary.

mod progress;
mod summary;
mod table;

pub(crate) use progress::{Format, Progress};
pub(crate) use summary::{Summary, quoted, repro};
pub(crate) use table::table;
