//! Options of `show` and `fmt`.

use super::command::{Command, Commands};
use super::table::{OptionRow, flag, value};
use crate::worker::Stage;

/// What to do with texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// For `show`, in the order in which they are printed.
    pub(crate) stages: Vec<Stage>,
    /// For `fmt`: write nothing, say what would change.
    pub(crate) check: bool,
}

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--stage",
        "STAGE,...",
        Commands::of(&[Command::Show]),
        "what to print: fusion python preseg segments graph (of segments, as SVG) program schedule kernel cuda sim profile ref (default: fusion)",
        |args, given| {
            args.files.stages.extend(given.words(&Stage::ALL)?);
            Ok(())
        },
    ),
    flag(
        "--check",
        Commands::of(&[Command::Fmt]),
        "change nothing, list the files that would change, and end with code 1",
        |args, _| {
            args.files.check = true;
            Ok(())
        },
    ),
];
