//! Renders a diagnostic with the guilty source line and an arrow under it.

use super::{Diagnostic, Span};
use std::fmt::Write;
use unicode_width::UnicodeWidthChar;

/// Characters of a source line that are shown.
const LINE: usize = 160;

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
        let (text, column) = clipped(text, column);
        let width = width.min(text.chars().count().saturating_sub(column).max(1));
        let _ = writeln!(out, "{pad} |\n{number} | {text}");
        let (before, under) = (columns(&text, 0, column), columns(&text, column, width).max(1));
        let _ = writeln!(out, "{pad} | {}{} {}", " ".repeat(before), "^".repeat(under), label.text);
    }
    for note in &diagnostic.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

/// Columns of a terminal that some characters of a line take: wide ones of East Asian scripts two.
fn columns(line: &str, from: usize, count: usize) -> usize {
    line.chars().skip(from).take(count).map(|c| c.width().unwrap_or(0)).sum()
}

/// What of a line is shown: all of it, or what surrounds the column, and the
/// column in that. A control character of the source is never printed; another
/// character takes its place, so that carets stay where they belong.
fn clipped(line: &str, column: usize) -> (String, usize) {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    let count = line.chars().count();
    if count <= LINE {
        return (line.chars().map(shown).collect(), column);
    }
    let from = column.saturating_sub(LINE / 2).min(count - LINE);
    let dots = if from > 0 { "..." } else { "" };
    let more = if from + LINE < count { "..." } else { "" };
    let text: String = line.chars().skip(from).take(LINE).map(shown).collect();
    (format!("{dots}{text}{more}"), column - from + dots.len())
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
    fn long_lines_are_clipped_and_control_characters_replaced() {
        let source = format!("{}\u{1b}bad{}", "x".repeat(100_000), "y".repeat(100_000));
        let diagnostic =
            Diagnostic::user(code::UNKNOWN_OP, "unknown").label(Span { start: 100_001, end: 200_004 }, "here");
        let text = render(&diagnostic, "a.fuse", &source, 0);
        assert!(text.len() < 1000 && !text.contains('\u{1b}') && text.contains("\u{fffd}bady"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[3].chars().position(|c| c == 'b'), lines[4].chars().position(|c| c == '^'), "{text}");
    }

    #[test]
    fn carets_stand_under_wide_characters() {
        for (before, word, pad, carets) in
            [("日本 e\u{301} ", "nge", 7, 3), ("%0 = ", "日本", 5, 4), ("", "\u{301}", 0, 1)]
        {
            let source = format!("{before}{word} %x");
            let start = before.len() as u32;
            let span = Span { start, end: start + word.len() as u32 };
            let text = render(&Diagnostic::user(code::UNKNOWN_OP, "unknown").label(span, ""), "a.fuse", &source, 0);
            let line = text.lines().last().expect("carets");
            assert_eq!(line, format!("  | {}{} ", " ".repeat(pad), "^".repeat(carets)), "{text}");
        }
    }

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
