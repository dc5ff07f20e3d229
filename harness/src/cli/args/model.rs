//! The command line, checked: one part for each theme of options.

use super::command::Command;
use super::devices::Devices;
use super::evidence::Evidence;
use super::files::Files;
use super::import::Import;
use super::isolation::Isolation;
use super::launch::Launch;
use super::output::OutputArgs;
use super::quarantine::Quarantine;
use super::records::Records;
use super::repeat::Repeat;
use super::select::Select;
use super::time::Time;

/// The command line, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    pub(crate) command: Command,
    /// Words behind the command: a case, a code, a file, runs.
    pub(crate) operands: Vec<String>,
    pub(crate) select: Select,
    pub(crate) devices: Devices,
    pub(crate) isolation: Isolation,
    pub(crate) launch: Launch,
    pub(crate) time: Time,
    pub(crate) repeat: Repeat,
    pub(crate) evidence: Evidence,
    pub(crate) output: OutputArgs,
    pub(crate) records: Records,
    pub(crate) files: Files,
    pub(crate) import: Import,
    pub(crate) quarantine: Quarantine,
    /// The options that make a case that is run again the same one, as words;
    /// devices and folders are not among them.
    pub(crate) again: Vec<Vec<String>>,
    /// As given, for the record.
    pub(crate) argv: Vec<String>,
    /// Options set from the environment, as `NAME=value`, for the record.
    pub(crate) from_env: Vec<String>,
}

impl Args {
    /// The first operand.
    pub(crate) fn operand(&self) -> Option<&str> {
        self.operands.first().map(String::as_str)
    }
}
