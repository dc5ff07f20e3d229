//! Options that limit time.

use super::command::{Command, Commands, FLAKES, RUNS, STARTS, VERDICTS};
use super::given::{SEE_HELP, usage};
use super::table::{OptionRow, value};
use crate::dispatch::PhaseLimit;
use std::time::Duration;

/// Limits of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Time {
    pub(crate) timeout: Option<Duration>,
    /// Of single phases.
    pub(crate) phases: Vec<PhaseLimit>,
    pub(crate) grace: Option<Duration>,
    /// Of the whole run: no case is started after it.
    pub(crate) deadline: Option<Duration>,
    /// Of a hunt or a sweep, or of what a kept binary and this one measure in turns.
    pub(crate) budget: Option<Duration>,
}

const BUDGETED: Commands = FLAKES.and(&[Command::Bench]);

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--timeout",
        "TIME",
        RUNS,
        "limit of each case, for example 30s; wins over the case's own (default: 60s)",
        |args, given| {
            args.time.timeout = Some(given.time()?);
            Ok(())
        },
    )
    .again(),
    value(
        "--phase-timeout",
        "PHASE=TIME,..",
        RUNS,
        "limit of a case's time in some phases: compile, run, check, or one such as lower",
        |args, given| {
            args.time.phases =
                PhaseLimit::parse(given.text()).map_err(|why| usage(format!("`{}`: {why}", given.name), SEE_HELP))?;
            Ok(())
        },
    )
    .again(),
    value("--grace", "TIME", STARTS, "between TERM and KILL of a hanging worker (default: 2s)", |args, given| {
        args.time.grace = Some(given.time()?);
        Ok(())
    })
    .again(),
    value(
        "--deadline",
        "TIME",
        VERDICTS,
        "start no case after this time; the run is then incomplete (6)",
        |args, given| {
            args.time.deadline = Some(given.time()?);
            Ok(())
        },
    ),
    value(
        "--budget",
        "TIME",
        BUDGETED,
        "time for repeats, or rounds of bench --baseline, in all (default: 10m)",
        |args, given| {
            args.time.budget = Some(given.time()?);
            Ok(())
        },
    ),
];
