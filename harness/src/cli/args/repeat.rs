//! Options that repeat cases and vary their schedules.

use super::command::{Command, RUNS};
use super::table::{Row, value};

/// How often, in which order, under which seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeat {
    pub(crate) seed: u64,
}

pub(super) const ROWS: &[Row] = &[value(
    "--seed",
    "N",
    RUNS.and(&[Command::Show]),
    "seed of the simulator's schedules (default: 0)",
    |args, given| {
        args.repeat.seed = given.seed()?;
        Ok(())
    },
)
.env(&["HARNESS_SEED"])];
