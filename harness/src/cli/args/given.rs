//! The value of an option, with the readers that rows share.

use super::super::Failure;
use crate::case::suggest;
use crate::units;
use crate::{escape, exit};
use engine::diag::{Diagnostic, code};
use std::path::PathBuf;
use std::time::Duration;

/// What an option or a variable of the environment was given.
pub(super) struct GivenOption<'a> {
    /// The option or the variable, for messages.
    pub(super) name: &'a str,
    /// `None` for a flag, and for an option whose value may be left out.
    pub(super) value: Option<&'a str>,
}

/// An error of the command line.
pub(crate) fn usage(message: impl Into<String>, note: impl Into<String>) -> Failure {
    Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message).note(note))
}

pub(super) const SEE_HELP: &str = "harness --help lists commands and options";

impl GivenOption<'_> {
    pub(super) fn text(&self) -> &str {
        self.value.unwrap_or_default()
    }

    pub(super) fn path(&self) -> Result<PathBuf, Failure> {
        match self.text() {
            "" => Err(self.wrong("a path")),
            path => Ok(path.into()),
        }
    }

    /// A number of things, from 1 to 256.
    pub(super) fn count(&self, what: &str) -> Result<usize, Failure> {
        match self.text().parse() {
            Ok(n @ 1..=256) => Ok(n),
            _ => Err(self.wrong(&format!("a number of {what} from 1 to 256"))),
        }
    }

    /// A positive time.
    pub(super) fn time(&self) -> Result<Duration, Failure> {
        match units::duration_ms(self.text()) {
            Some(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
            _ => Err(self.wrong("a time such as 30s or 500ms")),
        }
    }

    /// Any 64-bit number, decimal or `0x` and hexadecimal.
    pub(super) fn seed(&self) -> Result<u64, Failure> {
        let parsed = match self.text().strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => self.text().parse(),
        };
        parsed.map_err(|_| self.wrong("a number"))
    }

    /// One of the known words.
    pub(super) fn word<T: Copy>(&self, known: &[(&str, T)]) -> Result<T, Failure> {
        self.one(self.text(), known)
    }

    /// Known words with commas between them.
    pub(super) fn words<T: Copy>(&self, known: &[(&str, T)]) -> Result<Vec<T>, Failure> {
        self.text().split(',').map(|word| self.one(word, known)).collect()
    }

    fn one<T: Copy>(&self, word: &str, known: &[(&str, T)]) -> Result<T, Failure> {
        known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
            let note = suggest(word, known.iter().map(|(name, _)| *name));
            usage(format!("`{}` does not know `{}`", self.name, escape::short(word)), note)
        })
    }

    /// The error that says what the value must be.
    pub(super) fn wrong(&self, wanted: &str) -> Failure {
        usage(format!("`{}` needs {wanted}, not `{}`", self.name, escape::short(self.text())), SEE_HELP)
    }
}
