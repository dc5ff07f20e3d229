//! Options that say what is printed and written.

use super::command::{Command, Commands, VERDICTS};
use super::table::{OptionRow, flag, value};
use std::path::PathBuf;

/// What is printed and written.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputArgs {
    pub(crate) results: Option<PathBuf>,
    /// Where a text goes instead of the terminal.
    pub(crate) file: Option<PathBuf>,
    /// For `list` and `plan`.
    pub(crate) listing: Listing,
    /// For `list`: why each case exists.
    pub(crate) about: bool,
    pub(crate) bless: bool,
    /// For `bench`: a kept binary that measures beside this one.
    pub(crate) baseline: Option<PathBuf>,
    /// For `bench`, with `bless`: why.
    pub(crate) reason: Option<String>,
    /// For `compile`: where the table of what kernels take goes.
    pub(crate) resources: Option<PathBuf>,
}

/// How cases are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listing {
    /// As the command prefers.
    #[default]
    Usual,
    Table,
    Json,
    Names,
}

/// Commands that write a text.
const WRITE: Commands = Commands::of(&[Command::Import, Command::Report, Command::Compare, Command::Store]);
const BENCH: Commands = Commands::of(&[Command::Bench]);
/// Characters of a reason: it is a cell of a table.
const MAX_REASON: usize = 200;
const LISTINGS: Commands = Commands::of(&[Command::List, Command::Plan]);

pub(super) const ROWS: &[OptionRow] = &[
    value("--format", "table|json|names", LISTINGS, "how to list (default: list names, plan table)", |args, given| {
        let known = [("table", Listing::Table), ("json", Listing::Json), ("names", Listing::Names)];
        args.output.listing = given.word(&known)?;
        Ok(())
    }),
    value("--output", "FILE", WRITE, "write there instead of printing", |args, given| {
        args.output.file = Some(given.path()?);
        Ok(())
    })
    .also(&["-o"]),
    flag("--about", Commands::of(&[Command::List]), "behind each id, why the case exists", |args, _| {
        args.output.about = true;
        Ok(())
    }),
    flag(
        "--bless",
        VERDICTS.and(&[Command::Kernels]),
        "rewrite expectations in the case files; the list of kernels; with --reason, the baseline of counters",
        |args, _| {
            args.output.bless = true;
            Ok(())
        },
    )
    .env(&["BLESS"]),
    value(
        "--reason",
        "TEXT",
        BENCH,
        "with --bless: why the counters may be what they are; kept with them",
        |args, given| {
            let reason = given.text().trim();
            if reason.is_empty() || reason.chars().count() > MAX_REASON || reason.contains(char::is_control) {
                return Err(given.wrong(&format!("a line of at most {MAX_REASON} characters")));
            }
            args.output.reason = Some(reason.into());
            Ok(())
        },
    ),
    value(
        "--baseline",
        "FILE",
        BENCH,
        "a kept harness binary: what seems slower on a GPU is measured with it and this one in turns",
        |args, given| {
            args.output.baseline = Some(given.path()?);
            Ok(())
        },
    )
    .path(),
    value(
        "--resources",
        "FILE",
        Commands::of(&[Command::Compile]),
        "write registers, spills, and threads that fit a multiprocessor of each case's kernel, as CSV",
        |args, given| {
            args.output.resources = Some(given.path()?);
            Ok(())
        },
    ),
];
