//! Options of commands that work on records, and of those that write them.

use super::super::Failure;
use super::command::{Command, Commands, RUNS, SELECTS, VERDICTS};
use super::given::GivenOption;
use super::model::Args;
use super::table::{OptionRow, flag, value};
use crate::report::{Color, Detail};
use crate::units;
use std::path::PathBuf;
use std::time::Duration;

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Auto,
    Bar,
    Plain,
    Jsonl,
    Md,
    Junit,
    Trace,
    Csv,
    Folder,
    Json,
}

impl Form {
    /// As on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Form::Auto => "auto",
            Form::Bar => "bar",
            Form::Plain => "plain",
            Form::Jsonl => "jsonl",
            Form::Md => "md",
            Form::Junit => "junit",
            Form::Trace => "trace",
            Form::Csv => "csv",
            Form::Folder => "folder",
            Form::Json => "json",
        }
    }
}

/// One of the forms that a command has.
fn form(args: &mut Args, given: &GivenOption<'_>, known: &[Form]) -> Result<(), Failure> {
    let words: Vec<(&str, Form)> = known.iter().map(|form| (form.word(), *form)).collect();
    args.records.form = Some(given.word(&words)?);
    Ok(())
}

/// Records and reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) form: Option<Form>,
    pub(crate) color: Color,
    pub(crate) detail: Detail,
    pub(crate) junit: Option<PathBuf>,
    pub(crate) github: bool,
    /// For `report`: where pages go.
    pub(crate) html: Option<PathBuf>,
    pub(crate) run_id: Option<String>,
    /// For `store prune`.
    pub(crate) keep: Option<usize>,
    pub(crate) older_than: Option<Duration>,
    pub(crate) max_size: Option<u64>,
    pub(crate) yes: bool,
    /// For `store repair`.
    pub(crate) dry_run: bool,
}

/// The group of options that say how much is told while cases run.
const DETAIL: &str = "detail";
const STORE: Commands = Commands::of(&[Command::Store]);
const WRITES: Commands = RUNS.and(&[Command::Resume]);
const TELLS: Commands = WRITES.and(&[Command::Selftest]);
/// Commands that end with a verdict on each case.
const ENDS: Commands = VERDICTS.and(&[Command::Resume]);

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--format",
        "auto|bar|plain|jsonl",
        WRITES,
        "progress as bars or lines, or all records (default: auto)",
        |args, given| form(args, given, &[Form::Auto, Form::Bar, Form::Plain, Form::Jsonl]),
    ),
    value(
        "--format",
        "auto|plain|jsonl",
        Commands::of(&[Command::Selftest]),
        "lines, or all records (default: auto, which is plain)",
        |args, given| form(args, given, &[Form::Auto, Form::Plain, Form::Jsonl]),
    ),
    value(
        "--format",
        "md|junit|trace|csv|jsonl",
        Commands::of(&[Command::Report]),
        "form (default: md)",
        |args, given| form(args, given, &[Form::Md, Form::Junit, Form::Trace, Form::Csv, Form::Jsonl]),
    ),
    value(
        "--html",
        "DIR",
        Commands::of(&[Command::Report]),
        "all that is recorded as pages there: health, cases, performance, runs",
        |args, given| {
            args.records.html = Some(given.path()?);
            Ok(())
        },
    ),
    value("--format", "plain|md|json", Commands::of(&[Command::Compare]), "form (default: plain)", |args, given| {
        form(args, given, &[Form::Plain, Form::Md, Form::Json])
    }),
    value(
        "--format",
        "plain|json|csv|jsonl|folder",
        STORE,
        "list: plain (default) or json; export: csv (default), jsonl or folder",
        |args, given| form(args, given, &[Form::Plain, Form::Json, Form::Csv, Form::Jsonl, Form::Folder]),
    ),
    value("--format", "plain|json", Commands::of(&[Command::Doctor]), "lines (default) or JSON", |args, given| {
        form(args, given, &[Form::Plain, Form::Json])
    }),
    value(
        "--results",
        "DIR",
        SELECTS.and(&[
            Command::Doctor,
            Command::Resume,
            Command::Report,
            Command::Compare,
            Command::Store,
            Command::Selftest,
        ]),
        "folder of records (default: results)",
        |args, given| {
            args.output.results = Some(given.path()?);
            Ok(())
        },
    )
    .env(&["HARNESS_RESULTS"]),
    value(
        "--run-id",
        "NAME",
        ENDS.and(&[Command::Store]),
        "name of the run's folder (default: time and a random number)",
        |args, given| {
            crate::record::check_id(given.text())
                .map_err(|why| given.wrong(&format!("a name for a folder ({why})")))?;
            args.records.run_id = Some(given.text().into());
            Ok(())
        },
    ),
    value("--junit", "FILE", ENDS, "write a JUnit XML report there at the end", |args, given| {
        args.records.junit = Some(given.path()?);
        Ok(())
    })
    .env(&["XML_OUTPUT_FILE"]),
    flag(
        "--github",
        ENDS.and(&[Command::Report]),
        "append the Markdown summary to the file that GITHUB_STEP_SUMMARY names",
        |args, _| {
            args.records.github = true;
            Ok(())
        },
    ),
    value(
        "--color",
        "auto|always|never",
        WRITES,
        "colours; NO_COLOR turns them off too (default: auto)",
        |args, given| {
            args.records.color =
                given.word(&[("auto", Color::Auto), ("always", Color::Always), ("never", Color::Never)])?;
            Ok(())
        },
    ),
    flag("--quiet", TELLS, "no progress: notes, what failed and why, and the last lines", |args, _| {
        args.records.detail = Detail::Quiet;
        Ok(())
    })
    .also(&["-q"])
    .group(DETAIL)
    .env(&["HARNESS_QUIET"]),
    flag("--failures-only", WRITES, "of verdicts, only lines of failed, flaky and quarantined cases", |args, _| {
        args.records.detail = Detail::Failures;
        Ok(())
    })
    .group(DETAIL)
    .env(&["HARNESS_FAILURES_ONLY"]),
    value("--keep", "N", STORE, "prune: the newest N runs stay", |args, given| {
        args.records.keep = Some(given.text().parse().map_err(|_| given.wrong("a number of runs"))?);
        Ok(())
    }),
    value("--older-than", "TIME", STORE, "prune: runs last written before go, such as 30d", |args, given| {
        args.records.older_than = Some(given.time()?);
        Ok(())
    }),
    value("--max-size", "SIZE", STORE, "prune: the oldest go until the rest fits, such as 2GiB", |args, given| {
        let bytes = units::bytes(given.text()).ok_or_else(|| given.wrong("a size such as 500MiB"))?;
        args.records.max_size = Some(bytes);
        Ok(())
    }),
    flag("--yes", STORE, "prune: really remove; without it, it only says what would go", |args, _| {
        args.records.yes = true;
        Ok(())
    }),
    flag("--dry-run", STORE, "prune, repair: say what would be done, and do nothing", |args, _| {
        args.records.dry_run = true;
        Ok(())
    }),
];
