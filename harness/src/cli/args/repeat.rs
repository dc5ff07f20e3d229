//! Options that repeat cases and vary their schedules.

use super::command::{Command, Commands, FLAKES, RUNS, STARTS, VERDICTS};
use super::table::{OptionRow, flag, value};
use crate::flake::rule::Rule;
use crate::verified::ReferenceUse;

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
    /// Seed of disturbed timing.
    pub(crate) jitter: Option<u64>,
    /// Exactly so many repeats or trials.
    pub(crate) count: Option<u64>,
    /// The first failure ends a hunt.
    pub(crate) until_fail: bool,
    /// The rate that a hunt must find, and in which share of all hunts.
    pub(crate) bound: Option<(f64, f64)>,
    /// Seed of the order of a hunt, where it is not the run's.
    pub(crate) shuffle: Option<u64>,
    /// The worker of `replay`, as `WORKER` or `WORKER@RUN`.
    pub(crate) worker: Option<String>,
    /// For `replay`: search the smallest set of prior cases.
    pub(crate) minimize: bool,
    /// The run that `why` takes the neighbours from.
    pub(crate) of_run: Option<String>,
    /// Whether each case is run twice and its results are compared.
    pub(crate) twice: bool,
    /// Whether what the host would compute is refused.
    pub(crate) kernels_only: bool,
    /// For which outputs the reference is evaluated, if given.
    pub(crate) reference: Option<ReferenceUse>,
}

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--seed",
        "N",
        STARTS.and(&[Command::Show]),
        "seed of the simulator's schedules (default: 0)",
        |args, given| {
            args.repeat.seed = given.seed()?;
            Ok(())
        },
    )
    .again()
    .env(&["HARNESS_SEED"]),
    value(
        "--retries",
        "N",
        VERDICTS,
        "tries after a failure, in fresh workers (default: 2, for 50 cases; bench: 0)",
        |args, given| {
            let retries = given.text().parse().ok().filter(|n| *n <= 100);
            args.repeat.retries = Some(retries.ok_or_else(|| given.wrong("a number up to 100"))?);
            Ok(())
        },
    )
    .again()
    .env(&["HARNESS_RETRIES"]),
    value(
        "--flaky",
        "pass|fail",
        VERDICTS,
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
    })
    .again(),
    value(
        "--reference",
        "always|once",
        RUNS,
        "evaluate the reference for all outputs, or not again for those that passed (default: once on GPUs)",
        |args, given| {
            args.repeat.reference = Some(given.word(&ReferenceUse::WORDS)?);
            Ok(())
        },
    )
    .again()
    .env(&["HARNESS_REFERENCE"]),
    flag(
        "--kernels-only",
        RUNS.and(&[Command::Import]),
        "fail cases of which the host computes a part, with the reason why no kernel does",
        |args, _| {
            args.repeat.kernels_only = true;
            Ok(())
        },
    )
    .again(),
    value("--fail-fast", "N", VERDICTS, "start no case after N failures; without N after one", |args, given| {
        args.repeat.fail_fast = Some(if given.value.is_some() { given.count("failures")? } else { 1 });
        Ok(())
    })
    .optional(),
    value(
        "--repeat",
        "N",
        FLAKES.and(&[Command::Selftest]),
        "run each case, or each trial, exactly N times",
        |args, given| {
            let count = given.text().parse().ok().filter(|n| (1..=1_000_000).contains(n));
            args.repeat.count = Some(count.ok_or_else(|| given.wrong("a number from 1 to 1000000"))?);
            Ok(())
        },
    ),
    flag("--until-fail", HUNT, "end the hunt at the first failure", |args, _| {
        args.repeat.until_fail = true;
        Ok(())
    }),
    value(
        "--bound",
        "RATE@PERCENT",
        HUNT,
        "the failure rate that must be found, in that share of hunts (default: 0.01@98)",
        |args, given| {
            let parts = given.text().split_once('@').and_then(|(rate, percent)| {
                Some((rate.parse().ok()?, percent.trim_end_matches('%').parse::<f64>().ok()? / 100.0))
            });
            let bound = parts.filter(|(rate, level)| Rule::with_bound(*rate, *level).is_some());
            args.repeat.bound =
                Some(bound.ok_or_else(|| given.wrong("a rate from 0.0001 to 0.5 and a level, as in 0.01@95"))?);
            Ok(())
        },
    ),
    value("--shuffle", "SEED", HUNT, "seed of the order of repeats (default: that of --seed)", |args, given| {
        args.repeat.shuffle = if given.value.is_some() { Some(given.seed()?) } else { None };
        Ok(())
    })
    .optional(),
    value(
        "--jitter",
        "SEED",
        RUNS,
        "disturb timing: spin, yield or sleep up to 200 us at the ends of spans, by this seed",
        |args, given| {
            args.repeat.jitter = Some(given.seed()?);
            Ok(())
        },
    )
    .again(),
    value(
        "--worker",
        "WORKER[@RUN]",
        REPLAY,
        "the worker whose cases are run again (default: the only dead one)",
        |args, given| {
            args.repeat.worker = Some(given.text().into());
            Ok(())
        },
    ),
    flag("--minimize", REPLAY, "search the smallest set of prior cases that the failure needs", |args, _| {
        args.repeat.minimize = true;
        Ok(())
    }),
    value("--run", "RUN", WHY, "the run whose failure is explained: an id or `latest` (the default)", |args, given| {
        args.repeat.of_run = Some(given.text().into());
        Ok(())
    }),
];

const HUNT: Commands = Commands::of(&[Command::Hunt]);
const REPLAY: Commands = Commands::of(&[Command::Replay]);
const WHY: Commands = Commands::of(&[Command::Why]);
