//! Options that say what is printed and written.

use super::command::{Command, Commands, RUNS};
use super::table::{Row, flag, value};
use crate::report::Format;
use std::path::PathBuf;

/// What is printed and written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    pub(crate) results: Option<PathBuf>,
    pub(crate) format: Format,
    /// For `list`: why each case exists.
    pub(crate) about: bool,
    pub(crate) bless: bool,
}

const FORMATS: &str = "auto|bar|plain|json";

pub(super) const ROWS: &[Row] = &[
    value(
        "--format",
        FORMATS,
        RUNS.and(&[Command::Doctor]),
        "progress as bars or lines (default: auto); json: doctor",
        |args, given| {
            let words =
                [("auto", Format::Auto), ("bar", Format::Bar), ("plain", Format::Plain), ("json", Format::Json)];
            args.output.format = given.word(&words)?;
            Ok(())
        },
    ),
    value("--results", "DIR", RUNS.and(&[Command::Doctor]), "folder of records (default: results)", |args, given| {
        args.output.results = Some(given.path()?);
        Ok(())
    })
    .env(&["HARNESS_RESULTS"]),
    flag("--about", Commands::of(&[Command::List]), "behind each id, why the case exists", |args, _| {
        args.output.about = true;
        Ok(())
    }),
    flag("--bless", RUNS, "rewrite expectations in the case files", |args, _| {
        args.output.bless = true;
        Ok(())
    })
    .env(&["BLESS"]),
];
