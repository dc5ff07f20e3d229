//! Options of `quarantine add`.

use super::command::{Command, Commands};
use super::table::{OptionRow, value};

/// What an entry of the quarantine file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantine {
    pub(crate) owner: String,
    pub(crate) issue: String,
    pub(crate) reason: String,
    pub(crate) until: String,
}

const QUARANTINE: Commands = Commands::of(&[Command::Quarantine]);

pub(super) const ROWS: &[OptionRow] = &[
    value("--owner", "NAME", QUARANTINE, "who mends it", |args, given| {
        args.quarantine.owner = given.text().into();
        Ok(())
    }),
    value("--issue", "LINK", QUARANTINE, "where it is followed", |args, given| {
        args.quarantine.issue = given.text().into();
        Ok(())
    }),
    value("--reason", "TEXT", QUARANTINE, "why it may fail", |args, given| {
        args.quarantine.reason = given.text().into();
        Ok(())
    }),
    value("--until", "YYYY-MM-DD", QUARANTINE, "the last day on which it may", |args, given| {
        args.quarantine.until = given.text().into();
        Ok(())
    }),
];
