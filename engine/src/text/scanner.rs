//! A place in a text, for lexers: what of them is the same in every language.

use crate::diag::{Code, Diagnostic, Span};

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub struct Scanner<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the start of a text, which is smaller than 4 GiB.
    pub fn new(source: &'a str) -> Self {
        Self { source, at: 0 }
    }

    /// What follows.
    pub fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// The next character; none at the end.
    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Whether nothing was passed yet.
    pub fn is_at_start(&self) -> bool {
        self.at == 0
    }

    /// Passes so many bytes, whole characters.
    pub fn skip(&mut self, len: usize) {
        self.at += len;
    }

    /// The place of the next `len` bytes.
    pub fn span(&self, len: usize) -> Span {
        Span { start: self.at as u32, end: (self.at + len) as u32 }
    }

    /// Bytes of what follows the next `from` bytes, while the characters satisfy `keep`.
    pub fn run(&self, from: usize, keep: impl Fn(char) -> bool) -> usize {
        let rest = &self.rest()[from..];
        rest.find(|c| !keep(c)).unwrap_or(rest.len())
    }

    /// A mistake of the user in the next `len` bytes.
    pub fn error(&self, code: Code, message: impl Into<String>, len: usize, note: &str) -> Diagnostic {
        let error = Diagnostic::user(code, message).label(self.span(len), "");
        *if note.is_empty() { error } else { error.note(note) }
    }
}

/// Whether a name may have the character.
pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
