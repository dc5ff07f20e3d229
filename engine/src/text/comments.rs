//! Comments with the line of the entity that they follow.

use super::lexer::{Lexed, Token};
use crate::diag::Span;

/// A comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Its text without marker and surrounding space.
    pub text: String,
    /// Its place, marker included.
    pub span: Span,
    /// The line it stands on, from 0.
    pub line: u32,
    /// The line of the last token before it, from 0: its own line for a comment
    /// behind a statement. `None` before the first token.
    pub after_line: Option<u32>,
}

/// Line numbers of byte offsets.
pub(super) struct Lines {
    starts: Vec<u32>,
}

impl Lines {
    pub(super) fn new(source: &str) -> Self {
        let breaks = source.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1);
        Self { starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// The line, from 0, that an offset lies on.
    pub(super) fn line(&self, offset: u32) -> u32 {
        self.starts.partition_point(|start| *start <= offset) as u32 - 1
    }
}

/// All comments in order.
pub(super) fn collect(source: &str, lexed: &Lexed<'_>, lines: &Lines) -> Vec<Comment> {
    let mut tokens = lexed.tokens.iter().enumerate().filter(|(_, (token, _))| *token != Token::Newline).peekable();
    let mut after_line = None;
    let mut comments = Vec::with_capacity(lexed.comments.len());
    for raw in &lexed.comments {
        while let Some((_, (_, span))) = tokens.next_if(|(index, _)| *index < raw.tokens_before) {
            after_line = Some(lines.line(span.start));
        }
        let text = &source[raw.span.start as usize..raw.span.end as usize];
        let text = text.strip_prefix("//").unwrap_or_else(|| text.trim_start_matches(';')).trim().to_string();
        comments.push(Comment { text, span: raw.span, line: lines.line(raw.span.start), after_line });
    }
    comments
}
