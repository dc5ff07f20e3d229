//! Options that say what shares a process with what.

use super::command::{Command, Commands, RUNS, STARTS};
use super::given::GivenOption;
use super::table::{OptionRow, value};
use crate::cli::Failure;
use crate::code_cache::CodeCache;
use crate::dispatch;

/// What shares a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Isolation {
    pub(crate) isolation: dispatch::Isolation,
    /// Cases after which a worker is replaced.
    pub(crate) recycle: Option<u64>,
    /// Threads of a worker that compile coming cases, if given.
    pub(crate) compile_threads: Option<u32>,
    /// Bytes of private memory that a worker may have.
    pub(crate) memory: Option<u64>,
    /// The compiled kernels that workers share, if given.
    pub(crate) code_cache: Option<CodeCache>,
}

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--isolation",
        "worker|batch:N|case",
        RUNS,
        "keep workers warm, replace them after N cases, or after each (default: worker)",
        |args, given| {
            args.isolation.isolation = isolation(given)?;
            Ok(())
        },
    )
    .again(),
    value("--recycle", "N", RUNS, "replace a worker that is well after N cases", |args, given| {
        args.isolation.recycle = Some(positive(given, given.text())?);
        Ok(())
    })
    .again(),
    value(
        "--compile-threads",
        "N",
        STARTS,
        "threads of each worker that compile coming cases (default: up to 8 on GPUs, else 0)",
        |args, given| {
            let threads = given.text().parse().ok().filter(|n| *n <= MAX_COMPILE_THREADS);
            args.isolation.compile_threads =
                Some(threads.ok_or_else(|| given.wrong(&format!("a number of threads up to {MAX_COMPILE_THREADS}")))?);
            Ok(())
        },
    )
    .again(),
    value(
        "--code-cache",
        "run|off|DIR",
        STARTS,
        "kernels compiled for GPUs are shared by a run's workers, not at all, or kept in DIR (default: RESULTS/code for run and bench, else run)",
        |args, given| {
            args.isolation.code_cache = Some(if given.text() == "run" { CodeCache::Run } else { folder(given)? });
            Ok(())
        },
    )
    .env(&["HARNESS_CODE_CACHE"])
    .path_or(&["run", "off"])
    .again(),
    // Without a variable: this is the check that all compile.
    value(
        "--code-cache",
        "off|DIR",
        Commands::of(&[Command::Compile]),
        "take kernels that are compiled already from DIR, and add to it (default: off)",
        |args, given| {
            if given.text() == "run" {
                // It has no run whose folder could be meant.
                return Err(given.wrong("a folder or `off`"));
            }
            args.isolation.code_cache = Some(folder(given)?);
            Ok(())
        },
    ),
    value(
        "--memory",
        "SIZE",
        STARTS,
        "private memory of each worker, for example 8GiB (default: the machine's; none with a GPU)",
        |args, given| {
            let bytes = crate::units::bytes(given.text()).filter(|bytes| *bytes >= MIN_MEMORY);
            args.isolation.memory = Some(bytes.ok_or_else(|| given.wrong("a size from 64MiB on, such as 8GiB"))?);
            Ok(())
        },
    )
    .again(),
];

/// `off`, or the folder.
fn folder(given: &GivenOption<'_>) -> Result<CodeCache, Failure> {
    if given.text() == "off" { Ok(CodeCache::Off) } else { given.path().map(CodeCache::Dir) }
}

/// With less a worker cannot even start.
const MIN_MEMORY: u64 = 64 << 20;

/// More would only wait for each other in the compiler.
const MAX_COMPILE_THREADS: u32 = 64;

fn isolation(given: &GivenOption<'_>) -> Result<dispatch::Isolation, Failure> {
    if let Some(count) = given.text().strip_prefix("batch:") {
        return Ok(dispatch::Isolation::Batch(positive(given, count)?));
    }
    given.word(&[("worker", dispatch::Isolation::Worker), ("case", dispatch::Isolation::Case)])
}

fn positive(given: &GivenOption<'_>, text: &str) -> Result<u64, Failure> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| given.wrong("a positive number of cases"))
}
