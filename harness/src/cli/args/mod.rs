//! The command line: one table of options (`table`, with the rows by theme in
//! the files beside it) and one of commands (`command`). Parsing, help, the
//! environment and the nearest name to a typo all come from the two tables.
//!
//! A new option is a row in its theme's file and a field in that theme's part
//! of [`Args`]; a new command is a variant of [`Command`] and a row in `command`.
//! Commands convert [`Args`] once, into options of their own with the defaults filled in.
//! Written by hand; harness/README.md says why. Help, completions (`shells`) and the manual page (`man`) come from the
//! same tables.

mod command;
mod devices;
mod evidence;
mod files;
mod given;
mod help;
mod import;
mod isolation;
mod launch;
mod man;
mod model;
mod output;
mod parse;
mod quarantine;
mod records;
mod repeat;
mod select;
mod shells;
mod table;
#[cfg(test)]
mod tests;
mod time;

pub(super) use command::{Command, run};
pub(super) use devices::{DeviceArg, Devices as DeviceOptions};
pub(super) use given::usage;
pub(super) use import::{Import, ImportDevice};
pub(super) use isolation::Isolation as IsolationOptions;
pub(super) use launch::Launcher;
pub(super) use man::page as man_page;
pub(super) use model::Args;
pub(super) use output::Listing;
pub(super) use parse::{Parsed, again_for, parse, parse_over, parse_recorded, parse_words, task_words};
pub(super) use records::Form;
pub(super) use shells::Shell;
pub(super) use time::Time as TimeOptions;
