//! Errors of expressions, with the text and a caret under the place.

use crate::escape::escape;
use engine::diag::{Diagnostic, code};
use std::ops::Range;

/// Characters of the text that are shown around the place.
const WINDOW: usize = 70;

/// A mistake at a place of the text.
pub(super) fn fault(text: &str, span: Range<usize>, message: impl Into<String>, hint: &str) -> Box<Diagnostic> {
    let picture = picture(text, span, hint);
    Diagnostic::user(code::BAD_FILTER, format!("{}\n{picture}", message.into()))
}

/// The text, or what of it surrounds the place, and a line of carets below.
fn picture(text: &str, span: Range<usize>, hint: &str) -> String {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (start, end) = (floor(span.start), floor(span.end.max(span.start)));
    let mut from = floor(start.saturating_sub(WINDOW / 2));
    if from < 8 {
        from = 0;
    }
    let to = floor((from + WINDOW).max(start + 1).min(text.len()).max(from));
    let before = escape(&text[from..start], "");
    let inside = escape(&text[start..end.clamp(start, to.max(start))], "");
    let after = escape(&text[end.min(to).max(start)..to.max(start)], "");
    let (dots, more) = (if from > 0 { "..." } else { "" }, if to < text.len() { "..." } else { "" });
    let caret = " ".repeat(dots.len() + before.chars().count());
    let carets = "^".repeat(inside.chars().count().clamp(1, WINDOW));
    format!("  -E {dots}{before}{inside}{after}{more}\n     {caret}{carets} {hint}").trim_end().to_string()
}
