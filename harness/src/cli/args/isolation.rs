//! Options that say what shares a process with what.

use super::command::RUNS;
use super::table::{Row, value};
use crate::dispatch;

/// What shares a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Isolation {
    pub(crate) isolation: dispatch::Isolation,
}

pub(super) const ROWS: &[Row] = &[value(
    "--isolation",
    "worker|case",
    RUNS,
    "keep workers warm, or a fresh one for each case (default: worker)",
    |args, given| {
        let known = [("worker", dispatch::Isolation::Worker), ("case", dispatch::Isolation::Case)];
        args.isolation.isolation = given.word(&known)?;
        Ok(())
    },
)];
