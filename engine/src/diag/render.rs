//! Renders a diagnostic with the guilty source line and an arrow under it.

use super::{Diagnostic, Span};
use std::fmt::Write;

/// `file:line:col`, the message, the source line with a caret for each label,
/// and the notes. `first_line` is the line number of the first line of
/// `source` in its file (a case file's fusion starts after its front matter).
pub fn render(diagnostic: &Diagnostic, file: &str, source: &str, first_line: usize) -> String {
    let mut out = String::new();
    let head = Diagnostic { notes: Vec::new(), ..diagnostic.clone() };
    let _ = writeln!(out, "{head}");
    for label in &diagnostic.labels {
        let (line, column, text) = locate(source, label.span);
        let number = (line + first_line).to_string();
        let pad = " ".repeat(number.len());
        let width = source
            .get(label.span.start as usize..label.span.end as usize)
            .map_or(1, |s| s.lines().next().map_or(1, |first| first.chars().count().max(1)));
        let _ = writeln!(out, "{pad}--> {file}:{number}:{}", column + 1);
        let _ = writeln!(out, "{pad} |\n{number} | {text}");
        let _ = writeln!(out, "{pad} | {}{} {}", " ".repeat(column), "^".repeat(width), label.text);
    }
    for note in &diagnostic.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

/// Zero-based line and column (in characters) of a span's start, and its line.
fn locate(source: &str, span: Span) -> (usize, usize, &str) {
    let mut start = (span.start as usize).min(source.len());
    while !source.is_char_boundary(start) {
        start -= 1;
    }
    let before = &source[..start];
    let line = before.matches('\n').count();
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let text = source[line_start..].lines().next().unwrap_or("");
    (line, source[line_start..start].chars().count(), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::code;

    #[test]
    fn arrow_points_at_the_guilty_word() {
        let source = "fusion @f() {\n  %0 = ad %x\n}\n";
        let start = source.find("ad ").expect("present") as u32;
        let diagnostic = Diagnostic::user(code::UNKNOWN_OP, "unknown operation `ad`")
            .label(Span { start, end: start + 2 }, "did you mean `add`?")
            .note("operations are listed in cases/README.md");
        let text = render(&diagnostic, "a.fuse", source, 10);
        assert_eq!(
            text,
            "error[E0102]: unknown operation `ad`\n  --> a.fuse:11:8\n   |\n11 |   %0 = ad %x\n   |        ^^ did you mean `add`?\n  note: operations are listed in cases/README.md\n"
        );
    }
}
