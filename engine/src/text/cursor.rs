//! A place among the tokens, and what every part of the parser asks of it.

use super::lexer::Token;
use crate::diag::{Diagnostic, Result, Span, code};

/// Reads tokens one after another; at the end it stays on [`Token::End`].
pub(super) struct TokenCursor<'a> {
    tokens: &'a [(Token<'a>, Span)],
    at: usize,
}

impl<'a> TokenCursor<'a> {
    /// The last token is [`Token::End`].
    pub(super) fn new(tokens: &'a [(Token<'a>, Span)]) -> Self {
        Self { tokens, at: 0 }
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).map_or(Token::End, |token| token.0)
    }

    pub(super) fn span(&self) -> Span {
        self.tokens.get(self.at).or(self.tokens.last()).map(|token| token.1).unwrap_or_default()
    }

    /// The end of the token before this one.
    pub(super) fn last_end(&self) -> u32 {
        self.at.checked_sub(1).and_then(|before| self.tokens.get(before)).map_or(0, |token| token.1.end)
    }

    /// From a start to the token before this one.
    pub(super) fn since(&self, start: Span) -> Span {
        Span { start: start.start, end: self.last_end().max(start.end) }
    }

    /// This place, to come back to.
    pub(super) fn mark(&self) -> usize {
        self.at
    }

    /// Goes back to a marked place.
    pub(super) fn rewind(&mut self, mark: usize) {
        self.at = mark;
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    pub(super) fn eat(&mut self, punct: char) -> bool {
        let found = self.peek() == Token::Punct(punct);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn skip_newlines(&mut self) {
        while self.peek() == Token::Newline {
            self.next();
        }
    }

    /// Moves to the end of the line; not past a closing brace.
    pub(super) fn skip_line(&mut self) {
        while !matches!(self.peek(), Token::Newline | Token::End | Token::Punct('}')) {
            self.next();
        }
    }

    /// Whether a line ends after this token.
    pub(super) fn closes_line(&self) -> bool {
        matches!(self.tokens.get(self.at + 1), None | Some((Token::Newline | Token::End, _)))
    }

    pub(super) fn expect(&mut self, punct: char, place: &str) -> Result<()> {
        if self.eat(punct) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{punct}` {place}")))
    }

    /// "expected ..., found ..." at this token.
    pub(super) fn unexpected(&self, expected: &str) -> Box<Diagnostic> {
        let found = match self.peek() {
            Token::Value(name) => format!("`%{name}`"),
            Token::Global(name) => format!("`@{name}`"),
            Token::Word(word) => format!("`{}`", word.chars().take(40).collect::<String>()),
            Token::Number(value) => format!("`{}`", super::printer::literal(value, crate::num::DType::F64)),
            Token::Punct(punct) => format!("`{punct}`"),
            Token::Newline => "the end of the line".into(),
            Token::End => "the end of the text".into(),
        };
        Diagnostic::user(code::SYNTAX, format!("expected {expected}, found {found}")).label(self.span(), "")
    }
}
