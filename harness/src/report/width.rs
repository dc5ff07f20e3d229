//! Text in columns of a terminal: how wide it is, and how to make it fit.

use unicode_width::UnicodeWidthChar;

/// Columns of a character: 0 for marks that join the one before, 2 for the wide
/// ones of East Asian scripts and pictures, else 1.
fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Columns of a text without control characters.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// The text in at most `room` columns. Of a longer one the beginning and the end
/// stay, since an id's suite and its last axis tell the most.
pub(crate) fn shorten(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_string();
    }
    if room <= 3 {
        return ".".repeat(room);
    }
    let keep = room - 3;
    // A little more of the end: ids that differ only there are many.
    let (head, tail) = (keep / 2, keep - keep / 2);
    let front = prefix(text.chars(), head);
    let back: String = prefix(text.chars().rev(), tail).chars().rev().collect();
    format!("{front}...{back}")
}

fn prefix(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += columns(*c);
            used <= room
        })
        .collect()
}

/// The text cut at the end, to at most `room` columns.
pub(crate) fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_string();
    }
    format!("{}{}", prefix(text.chars(), room.saturating_sub(3)), ".".repeat(room.min(3)))
}

/// Lines that are pasted into a shell or opened as a path: they stay whole.
const WHOLE: [&str; 8] =
    ["again:", "repro:", "case:", "record ", "shown by:", "explained by:", "hunted by:", "with its neighbours:"];

/// A text for a terminal of so many columns: nothing in it moves the cursor, and
/// long lines go on in the next one, indented.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let line = crate::escape::escape(line, "");
        match WHOLE.iter().any(|start| line.trim_start().starts_with(start)) {
            true => out.push_str(&line),
            false => fold(&mut out, &line, columns.max(20)),
        }
        out.push_str(end);
    }
    out
}

/// Breaks at the last space that fits, or in the middle of a word.
fn fold(out: &mut String, line: &str, columns: usize) {
    let margin = " ".repeat((line.len() - line.trim_start().len() + 2).min(columns / 2));
    let (mut rest, mut room) = (line, columns);
    while width(rest) > room {
        let fits = prefix(rest.chars(), room).len();
        let space = rest[..fits].rfind(' ').filter(|at| !rest[..*at].trim().is_empty());
        let (head, tail) = rest.split_at(space.unwrap_or(fits));
        out.push_str(head);
        out.push('\n');
        out.push_str(&margin);
        (rest, room) = (tail.trim_start(), columns - margin.len());
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_stay() {
        assert_eq!(shorten("PointwiseTest.add/m=1,n=2", 15), "Pointw...=1,n=2");
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("shorter", 3), "...");
        assert_eq!(shorten("anything", 0), "");
        assert_eq!(cut("a long line", 8), "a lon...");
    }

    #[test]
    fn long_lines_go_on_indented_and_commands_stay_whole() {
        let text = "  why it failed, at length, and more\n  again: cargo run --long-enough-to-wrap\n\x1b[2J1 passed\n";
        let wanted =
            "  why it failed, at\n    length, and more\n  again: cargo run --long-enough-to-wrap\n\\x1b[2J1 passed\n";
        assert_eq!(fit(text, 20), wanted);
    }

    #[test]
    fn never_wider_than_the_room() {
        crate::property::property(|u| {
            let (text, room): (String, usize) = (u.arbitrary()?, u.int_in_range(0..=40usize)?);
            assert!(width(&shorten(&text, room)) <= room, "{text:?} {room}");
            assert!(width(&cut(&text, room)) <= room, "{text:?} {room}");
            let (text, room) = (format!("x{text}"), room.max(20));
            assert!(fit(&text, room).lines().all(|line| width(line) <= room), "{text:?} {room}");
            Ok(())
        })
        .cases(1000);
    }
}
