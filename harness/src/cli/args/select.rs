//! Options that select cases, and the variables by which gtest and Bazel shard.

use super::super::Failure;
use super::command::{Command, SELECTS};
use super::given::usage;
use super::parse::Env;
use super::table::{OptionRow, flag, value};
use crate::escape::short;
use crate::exit;
use crate::select::{Filter, FilterExpr, IdList, Rerun, Shard, Wanted};
use engine::diag::Diagnostic;
use std::path::{Path, PathBuf};

/// Which cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Select {
    pub(crate) wanted: Wanted,
    pub(crate) cases: Option<PathBuf>,
    /// Adds the built-in fault cases; for tests of the harness.
    pub(crate) faults: bool,
    /// A file whose presence tells a test runner that shards are understood.
    pub(crate) shard_status: Option<PathBuf>,
}

const FILTER: &str = "--filter";
const EXPR: &str = "-E";
const EXACT: &str = "--exact";

/// Whether a command line names all of its cases, so that what the environment
/// says about selections is not meant for it: a pasted line or a script must do
/// the same in the job that printed it, one of many shards.
pub(super) fn is_whole(command: Command, given: &[&'static OptionRow]) -> bool {
    matches!(command, Command::Replay | Command::Why) || given.iter().any(|row| row.name == EXACT)
}

/// Whether a row says which cases are meant.
pub(super) fn narrows(row: &OptionRow) -> bool {
    [FILTER, EXPR].contains(&row.name)
}

/// The option whose value is read while words are parsed.
pub(super) const FROM_FILE: &str = "--from-file";

fn bad_filter(diagnostic: Box<Diagnostic>) -> Failure {
    Failure::diagnostic(exit::BAD_FILTER, &diagnostic)
}

fn bad_usage(diagnostic: Box<Diagnostic>) -> Failure {
    Failure::diagnostic(exit::USAGE, &diagnostic)
}

pub(super) const ROWS: &[OptionRow] = &[
    value(
        FILTER,
        "GLOBS",
        SELECTS,
        "select ids, gtest syntax: 'A*:B*-C*'; repeated filters intersect",
        |args, given| {
            args.select.wanted.filters.push(Filter::parse(given.text()).map_err(bad_filter)?);
            Ok(())
        },
    )
    .env(&["HARNESS_FILTER", "GTEST_FILTER", "TESTBRIDGE_TEST_ONLY"])
    .also(&["--gtest_filter"]),
    value(
        EXPR,
        "EXPR",
        SELECTS,
        "select by properties: 'tag(resize) & !last(pass) & dur < 1s'; narrows all others, may be repeated; \
         conditions: name suite tag file device last changed axis, dur timeout arch memory gpus inputs rank elements runs, \
         cuda ref quarantined perf refusal xfail",
        |args, given| {
            args.select.wanted.exprs.push(FilterExpr::parse(given.text()).map_err(bad_filter)?);
            Ok(())
        },
    )
    .env(&["HARNESS_EXPR"])
    .also(&["--expr"]),
    value(EXACT, "ID", SELECTS, "select one id; may be repeated; variables select nothing then", |args, given| {
        args.select.wanted.exact.push(given.text().into());
        Ok(())
    }),
    value(
        FROM_FILE,
        "LIST",
        SELECTS,
        "select the ids in a file, one a line, # for comments; - is standard input",
        |args, given| {
            args.select.wanted.listed = Some(IdList::read(&given.path()?).map_err(bad_usage)?);
            Ok(())
        },
    ),
    value(
        "--tag",
        "NAME",
        SELECTS,
        "select cases whose file has the tag; narrows --filter, may be repeated",
        |args, given| {
            args.select.wanted.tags.push(given.text().into());
            Ok(())
        },
    ),
    value(
        "--rerun",
        "WHAT",
        SELECTS,
        "only cases that failed last time (failed), that were never reached (not-run), that are flaky (flaky), \
         or what did not pass in one run (its id, or latest)",
        |args, given| {
            args.select.wanted.rerun = Some(Rerun::parse(given.text()).map_err(bad_usage)?);
            Ok(())
        },
    ),
    value(
        "--shard",
        "I/N[:hash|:time]",
        SELECTS,
        "the I-th of N parts of the selection: in turn, by a hash of the id, which keeps a case's part when \
         others are added, or by recorded durations, which all machines must share; `store join` joins them",
        |args, given| {
            args.select.wanted.shard = Some(Shard::parse(given.text()).map_err(bad_usage)?);
            Ok(())
        },
    ),
    value(
        "--cases",
        "DIR",
        SELECTS.and(&[Command::Show, Command::Fmt, Command::Doctor, Command::Quarantine]),
        "folder of case files, or one file (default: cases)",
        |args, given| {
            args.select.cases = Some(given.path()?);
            Ok(())
        },
    )
    .env(&["HARNESS_CASES"])
    .place()
    .path(),
    flag("--with-faults", SELECTS.and(&[Command::Show]), "add the built-in faults, cases named __fault.NAME", |args, _| {
        args.select.faults = true;
        Ok(())
    })
    .again(),
];

/// Pairs of variables by which test runners shard, with the file that they
/// want to see. gtest's own come first: they are the more specific ones.
const RUNNERS: [(&str, &str, &str); 2] = [
    ("GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS", "GTEST_SHARD_STATUS_FILE"),
    ("TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS", "TEST_SHARD_STATUS_FILE"),
];

/// The shard that the environment asks for, unless the command line names one.
/// Returns what was used, for the record.
pub(super) fn shard_from_env(select: &mut Select, env: Env<'_>) -> Result<Vec<String>, Failure> {
    if select.wanted.shard.is_some() {
        return Ok(Vec::new());
    }
    for (index_name, count_name, status_name) in RUNNERS {
        let (index, count) = match (env(index_name), env(count_name)) {
            (None, None) => continue,
            (Some(index), Some(count)) => (index, count),
            (index, _) => {
                let (set, unset) = if index.is_some() { (index_name, count_name) } else { (count_name, index_name) };
                return Err(usage(format!("`{set}` is set without `{unset}`"), "set both, from 0, or neither"));
            }
        };
        let shard = Shard::from_zero(&index, &count).ok_or_else(|| {
            let (index, count) = (short(&index), short(&count));
            usage(
                format!("{index_name}={index} and {count_name}={count} name no shard"),
                "the index counts from 0 and is below the total",
            )
        })?;
        select.wanted.shard = Some(shard);
        select.shard_status = env(status_name).filter(|path| !path.is_empty()).map(|path| Path::new(&path).into());
        return Ok(vec![format!("{index_name}={index}"), format!("{count_name}={count}")]);
    }
    Ok(Vec::new())
}
