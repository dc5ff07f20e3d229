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

pub(super) const ROWS: &[Row] = &[
    value("--format", "auto|bar|plain", RUNS, "progress on a terminal or as lines (default: auto)", |args, given| {
        args.output.format = given.word(&[("auto", Format::Auto), ("bar", Format::Bar), ("plain", Format::Plain)])?;
        Ok(())
    }),
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
