//! Options that repeat cases and vary their schedules.

use super::command::{Command, RUNS};
use super::table::{Row, flag, value};

/// How often, in which order, under which seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeat {
    pub(crate) seed: u64,
    /// Retries of a failed case, if given.
    pub(crate) retries: Option<u32>,
    /// Whether a flaky case makes the run fail.
    pub(crate) flaky_fails: bool,
    /// Failures after which no further case is started.
    pub(crate) fail_fast: Option<usize>,
    /// Whether each case is run twice and its results are compared.
    pub(crate) twice: bool,
}

pub(super) const ROWS: &[Row] = &[
    value(
        "--seed",
        "N",
        RUNS.and(&[Command::Show]),
        "seed of the simulator's schedules (default: 0)",
        |args, given| {
            args.repeat.seed = given.seed()?;
            Ok(())
        },
    )
    .env(&["HARNESS_SEED"]),
    value(
        "--retries",
        "N",
        RUNS,
        "tries after a failure, in fresh workers (default: 2, for 50 cases; bench: 0)",
        |args, given| {
            let retries = given.text().parse().ok().filter(|n| *n <= 100);
            args.repeat.retries = Some(retries.ok_or_else(|| given.wrong("a number up to 100"))?);
            Ok(())
        },
    )
    .env(&["HARNESS_RETRIES"]),
    value(
        "--flaky",
        "pass|fail",
        RUNS,
        "whether flaky cases end the run with code 11 (default: pass, with a warning)",
        |args, given| {
            args.repeat.flaky_fails = given.word(&[("pass", false), ("fail", true)])?;
            Ok(())
        },
    )
    .env(&["HARNESS_FLAKY"]),
    flag("--twice", RUNS, "run each case twice in its worker; its results must be as alike as before", |args, _| {
        args.repeat.twice = true;
        Ok(())
    }),
    value("--fail-fast", "N", RUNS, "start no case after N failures; without N after one", |args, given| {
        args.repeat.fail_fast = Some(if given.value.is_some() { given.count("failures")? } else { 1 });
        Ok(())
    })
    .optional(),
];
