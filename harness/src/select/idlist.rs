//! `--from-file LIST`: ids, one a line; `#` begins a comment.

use crate::escape::{path as shown, short};
use engine::diag::{Diagnostic, Result, code};
use std::io::Read;
use std::path::Path;

/// Bytes of a list: about all ids that there can be.
const MAX_BYTES: u64 = 32 << 20;

/// Ids with the line of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdList {
    /// The file, for messages.
    pub(super) name: String,
    pub(crate) ids: Vec<(usize, String)>,
}

impl IdList {
    /// Reads a file, or standard input for `-`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = if path == Path::new("-") { "standard input".into() } else { shown(path) };
        let fail = |what: String| Diagnostic::user(code::USAGE, format!("--from-file {name}: {what}"));
        let mut bytes = Vec::new();
        let read = match path.to_str() {
            Some("-") => std::io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes),
            _ => std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)),
        };
        read.map_err(|error| fail(format!("cannot be read: {error}")).note("a text file with one id a line"))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(fail(format!("has more than {MAX_BYTES} bytes")).note("one id a line, without texts"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            fail(format!("is not UTF-8 from byte {} on", error.utf8_error().valid_up_to())).note("one id a line")
        })?;
        let list = Self::parse(&name, &text);
        if list.ids.is_empty() {
            return Err(fail("names no id".into()).note("one id a line; `harness list` prints them"));
        }
        Ok(list)
    }

    /// Lines of a text.
    pub(super) fn parse(name: &str, text: &str) -> Self {
        // An id never holds `#`.
        let content = |line: &str| line.split('#').next().unwrap_or("").trim().to_string();
        let ids = text.trim_start_matches('\u{feff}').lines().enumerate().map(|(i, line)| (i + 1, content(line)));
        Self { name: name.into(), ids: ids.filter(|(_, id)| !id.is_empty()).collect() }
    }

    /// The ids that are not known, as one error.
    pub(super) fn check(&self, known: impl Fn(&str) -> bool, nearest: impl Fn(&str) -> String) -> Result<()> {
        let unknown: Vec<&(usize, String)> = self.ids.iter().filter(|(_, id)| !known(id)).collect();
        let Some((line, id)) = unknown.first() else { return Ok(()) };
        let more = match unknown.len() {
            1 => String::new(),
            n => format!(", and {} more lines name cases that are not there", n - 1),
        };
        let message = format!("{}:{line}: there is no case `{}`{more}", self.name, short(id));
        Err(Diagnostic::user(code::NOTHING_SELECTED, message).note(nearest(id)))
    }
}
