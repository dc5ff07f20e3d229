//! Options that say what is printed and written.

use super::command::{Command, Commands, RUNS};
use super::table::{Row, flag};
use std::path::PathBuf;

/// What is printed and written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    pub(crate) results: Option<PathBuf>,
    /// For `list`: why each case exists.
    pub(crate) about: bool,
    pub(crate) bless: bool,
}

pub(super) const ROWS: &[Row] = &[
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
