//! The columns of the table of options, and its themes.

use super::super::Failure;
use super::command::{ALL, Commands};
use super::given::GivenOption;
use super::model::Args;
use super::{devices, evidence, files, import, isolation, launch, output, quarantine, records, repeat, select, time};

/// Whether an option has a value, and how help shows it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Flag,
    Needs(&'static str),
    /// `--name` or `--name=VALUE`.
    May(&'static str),
}

/// What a row does with its value.
pub(super) type Set = fn(&mut Args, &GivenOption<'_>) -> Result<(), Failure>;

/// To what of a run an option belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// To this one only.
    No,
    /// To its cases: one that is run again must be run with it, to be the same.
    Case,
    /// To its devices.
    Device,
    /// To the place of its cases.
    Place,
}

/// The group of options that choose devices.
pub(super) const DEVICES: &str = "devices";

/// An option.
#[derive(Clone, Copy)]
pub(super) struct OptionRow {
    pub(super) name: &'static str,
    /// Other names.
    pub(super) also: &'static [&'static str],
    pub(super) value: Value,
    /// Variables of the environment that give it where the command line does
    /// not; the first that is set wins.
    pub(super) env: &'static [&'static str],
    /// The commands that take it.
    pub(super) commands: Commands,
    /// Options of one group exclude each other.
    pub(super) group: &'static str,
    /// Whether a command that repeats cases of a run takes it over.
    pub(super) over: Over,
    /// Whether its value is a path, which may be relative.
    pub(super) path: bool,
    /// Words that may stand in the place of a path.
    pub(super) words: &'static [&'static str],
    /// Empty for an option that help does not show.
    pub(super) help: &'static str,
    pub(super) set: Set,
}

/// An option without a value.
pub(super) const fn flag(name: &'static str, commands: Commands, help: &'static str, set: Set) -> OptionRow {
    let (also, env, words): (_, _, &[&str]) = (&[], &[], &[]);
    let (value, group, over, path) = (Value::Flag, "", Over::No, false);
    OptionRow { name, also, value, env, commands, group, over, path, words, help, set }
}

/// An option with a value.
pub(super) const fn value(
    name: &'static str,
    shape: &'static str,
    commands: Commands,
    help: &'static str,
    set: Set,
) -> OptionRow {
    OptionRow { value: Value::Needs(shape), ..flag(name, commands, help, set) }
}

impl OptionRow {
    pub(super) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }
    pub(super) const fn env(self, env: &'static [&'static str]) -> Self {
        Self { env, ..self }
    }
    pub(super) const fn group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }
    pub(super) const fn optional(self) -> Self {
        match self.value {
            Value::Needs(shape) => Self { value: Value::May(shape), ..self },
            _ => self,
        }
    }
    pub(super) const fn again(self) -> Self {
        Self { over: Over::Case, ..self }
    }
    pub(super) const fn device(self) -> Self {
        Self { over: Over::Device, ..self }
    }
    pub(super) const fn place(self) -> Self {
        Self { over: Over::Place, ..self }
    }
    pub(super) const fn path(self) -> Self {
        Self { path: true, ..self }
    }
    pub(super) const fn path_or(self, words: &'static [&'static str]) -> Self {
        Self { path: true, words, ..self }
    }
    /// Whether that is a path, which may be relative.
    pub(super) fn is_path(&self, value: &str) -> bool {
        self.path && !self.words.contains(&value)
    }
    /// Whether the other one leaves nothing for this one to say.
    pub(super) fn decides(&self, other: &OptionRow) -> bool {
        other.name == self.name || (!self.group.is_empty() && other.group == self.group)
    }
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.also.contains(&name)
    }
}

/// Options that belong together in help.
pub(super) struct Theme {
    pub(super) title: &'static str,
    pub(super) rows: &'static [OptionRow],
}

/// The options that print something and end.
pub(super) const HELP: &str = "--help";
pub(super) const VERSION: &str = "--version";

const GENERAL: &[OptionRow] = &[
    flag(HELP, ALL, "print this; behind a command, only what it takes", |_, _| Ok(())).also(&["-h"]),
    flag(VERSION, ALL, "print the version", |_, _| Ok(())).also(&["-V"]),
];

pub(super) const THEMES: &[Theme] = &[
    Theme { title: "Selection", rows: select::ROWS },
    Theme { title: "Devices", rows: devices::ROWS },
    Theme { title: "Isolation", rows: isolation::ROWS },
    Theme { title: "Several machines", rows: launch::ROWS },
    Theme { title: "Time", rows: time::ROWS },
    Theme { title: "Repetition", rows: repeat::ROWS },
    Theme { title: "Evidence", rows: evidence::ROWS },
    Theme { title: "Output", rows: output::ROWS },
    Theme { title: "Records and reports", rows: records::ROWS },
    Theme { title: "Stages and files", rows: files::ROWS },
    Theme { title: "Import", rows: import::ROWS },
    Theme { title: "Quarantine", rows: quarantine::ROWS },
    Theme { title: "General", rows: GENERAL },
];

/// All rows.
pub(super) fn rows() -> impl Iterator<Item = &'static OptionRow> {
    THEMES.iter().flat_map(|theme| theme.rows)
}
