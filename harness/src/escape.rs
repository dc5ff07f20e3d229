//! Text from outside, made safe to print: no character of it moves the cursor,
//! changes colours, hides or reorders what follows, or breaks a line.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters of a text that is shown inside a message.
const SHORT: usize = 120;

/// Whether a character is printed as it is: no control characters, no marks
/// that change the direction or are invisible.
fn plain(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'))
}

/// The text with every unsafe character written as `\n`, `\x1b` or `\u{202e}`.
/// With `keep`, those characters stay as they are: `"\n"` for several lines.
pub(crate) fn escape<'a>(text: &'a str, keep: &str) -> Cow<'a, str> {
    let safe = |c: char| plain(c) || keep.contains(c);
    if text.chars().all(safe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if safe(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
        }
    }
    Cow::Owned(out)
}

/// One line for inside a message: escaped, and cut where it is long.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHORT) {
        None => escape(text, ""),
        Some((end, _)) => Cow::Owned(format!("{}...", escape(&text[..end], ""))),
    }
}

/// A path for people, in one line.
pub(crate) fn path(path: &std::path::Path) -> String {
    escape(&path.to_string_lossy(), "").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, wanted: &str) {
        assert_eq!(escape(text, ""), wanted);
    }

    #[test]
    fn nothing_unsafe_is_left() {
        check("plain, naïve, 日本", "plain, naïve, 日本");
        check("a\x1b[31mb\r\n\tc\0", "a\\x1b[31mb\\r\\n\\tc\\x00");
        check("\u{202e}txt\u{9b}", "\\u{202e}txt\\u{9b}");
        assert_eq!(escape("a\nb\x07", "\n"), "a\nb\\x07");
        assert_eq!(short(&"x".repeat(1_000_000)).len(), SHORT + 3);
        assert_eq!(short("a\nb"), "a\\nb");
    }
}
