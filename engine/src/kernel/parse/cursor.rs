//! Tokens of one line.

use crate::diag::{Diagnostic, Result, Span, code};
use crate::num::DType;

/// A place in one line of a text.
#[derive(Clone, Copy)]
pub(super) struct LineCursor<'a> {
    line: &'a str,
    at: usize,
    // Where the line starts in the text.
    start: usize,
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'a> LineCursor<'a> {
    pub(super) fn new(line: &'a str, start: usize) -> Self {
        Self { line, at: 0, start }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    pub(super) fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Box<Diagnostic> {
        let at = self.start + self.at;
        let end = at + self.rest().chars().next().map_or(0, char::len_utf8);
        let span = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Diagnostic::user(code::SYNTAX, message).label(Span { start: span(at), end: span(end) }, "")
    }

    /// Takes a piece of punctuation, if it is next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.error(format!("expected `{token}`"))) }
    }

    /// The name that is next: words joined by dots, each dot followed by a word.
    pub(super) fn peek_name(&mut self) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        if !rest.starts_with(is_name_start) {
            return None;
        }
        let mut end = 0;
        loop {
            end += rest[end..].find(|c| !is_name_part(c)).unwrap_or(rest.len() - end);
            let dotted = rest[end..].strip_prefix('.').is_some_and(|after| after.starts_with(is_name_start));
            if !dotted {
                return Some(&rest[..end]);
            }
            end += 1;
        }
    }

    pub(super) fn name(&mut self) -> Result<&'a str> {
        let name = self.peek_name().ok_or_else(|| self.error("expected a name"))?;
        self.at += name.len();
        Ok(name)
    }

    /// Takes a whole word, if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_name() == Some(word);
        if found {
            self.at += word.len();
        }
        found
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.error(format!("expected `{word}`"))) }
    }

    /// Digits that are next.
    pub(super) fn digits(&mut self) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += len;
        (len > 0).then(|| &rest[..len])
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let before = *self;
        let text = self.digits().ok_or_else(|| before.error("expected a number"))?;
        text.parse().map_err(|_| before.error(format!("{text} is out of range")))
    }

    /// A number that may be negative.
    pub(super) fn signed(&mut self) -> Result<i64> {
        let before = *self;
        let sign = if self.take("-") { "-" } else { "" };
        let text = self.digits().ok_or_else(|| before.error("expected a number"))?;
        format!("{sign}{text}").parse().map_err(|_| before.error(format!("{sign}{text} is out of range")))
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let before = *self;
        let name = self.name()?;
        DType::from_name(name).ok_or_else(|| before.error(format!("`{name}` is no data type")))
    }

    /// A data type directly behind a number, without space.
    pub(super) fn suffix(&mut self) -> Option<DType> {
        let rest = self.rest();
        let len = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
        let dtype = DType::from_name(&rest[..len])?;
        self.at += len;
        Some(dtype)
    }

    /// Moves over `len` bytes that were looked at.
    pub(super) fn skip(&mut self, len: usize) {
        self.at = (self.at + len).min(self.line.len());
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.skip_space();
        if self.rest().is_empty() { Ok(()) } else { Err(self.error("expected the end of the line")) }
    }
}
