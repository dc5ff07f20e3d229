//! Options of commands that work on records, and of those that write them.

use super::command::{Command, Commands, RUNS, VERDICTS};
use super::table::{Row, flag, value};
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

/// Every form with its word.
pub(crate) const FORMS: [(&str, Form); 10] = [
    ("auto", Form::Auto),
    ("bar", Form::Bar),
    ("plain", Form::Plain),
    ("jsonl", Form::Jsonl),
    ("md", Form::Md),
    ("junit", Form::Junit),
    ("trace", Form::Trace),
    ("csv", Form::Csv),
    ("folder", Form::Folder),
    ("json", Form::Json),
];

/// Whether colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal that knows them, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// Records and reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) form: Option<Form>,
    pub(crate) color: Color,
    pub(crate) junit: Option<PathBuf>,
    pub(crate) github: bool,
    pub(crate) run_id: Option<String>,
    /// For `store prune`.
    pub(crate) keep: Option<usize>,
    pub(crate) older_than: Option<Duration>,
    pub(crate) max_size: Option<u64>,
    pub(crate) yes: bool,
    /// For `store repair`.
    pub(crate) dry_run: bool,
}

const STORE: Commands = Commands::of(&[Command::Store]);
const WRITES: Commands = RUNS.and(&[Command::Resume]);
/// Commands that end with a verdict on each case.
const ENDS: Commands = VERDICTS.and(&[Command::Resume]);

pub(super) const ROWS: &[Row] = &[
    value(
        "--format",
        "FORM",
        WRITES.and(&[Command::Report, Command::Compare, Command::Store, Command::Doctor]),
        "run, resume: auto bar plain jsonl; doctor: plain json; report: md junit trace csv jsonl; compare: plain md; \
         store export: csv jsonl folder",
        |args, given| {
            args.records.form = Some(given.word(&FORMS)?);
            Ok(())
        },
    ),
    value(
        "--results",
        "DIR",
        WRITES.and(&[Command::Doctor, Command::Report, Command::Compare, Command::Store]),
        "folder of records (default: results)",
        |args, given| {
            args.output.results = Some(given.path()?);
            Ok(())
        },
    )
    .env(&["HARNESS_RESULTS"]),
    value("--run-id", "NAME", ENDS, "name of the run's folder (default: time and a random number)", |args, given| {
        crate::record::check_id(given.text()).map_err(|why| given.wrong(&format!("a name for a folder ({why})")))?;
        args.records.run_id = Some(given.text().into());
        Ok(())
    }),
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
