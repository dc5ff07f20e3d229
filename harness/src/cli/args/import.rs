//! Options of `import`.

use super::command::{Command, Commands};
use super::table::{OptionRow, value};
use std::path::PathBuf;

/// What `import` runs a definition on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ImportDevice {
    #[default]
    Reference,
    Simulator,
    Gpu,
}

/// Arrays and records of a run, and where to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Import {
    pub(crate) inputs: Option<PathBuf>,
    pub(crate) records: Option<PathBuf>,
    pub(crate) place: ImportDevice,
}

const IMPORT: Commands = Commands::of(&[Command::Import]);

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--inputs",
        "FILE.npz",
        IMPORT,
        "recorded inputs and outputs; runs the definition and compares",
        |args, given| {
            args.import.inputs = Some(given.path()?);
            Ok(())
        },
    ),
    value(
        "--records",
        "FILE.jsonl",
        IMPORT,
        "types, sizes and strides of what is recorded, one run a line",
        |args, given| {
            args.import.records = Some(given.path()?);
            Ok(())
        },
    ),
    value("--on", "ref|sim|gpu", IMPORT, "where to run (default: ref)", |args, given| {
        args.import.place = given.word(&[
            ("ref", ImportDevice::Reference),
            ("sim", ImportDevice::Simulator),
            ("gpu", ImportDevice::Gpu),
        ])?;
        Ok(())
    }),
];
