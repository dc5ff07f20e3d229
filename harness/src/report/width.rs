//! Text in columns of a terminal: how wide it is, and how to make it fit.

/// Columns of a character: 0 for marks that join the one before, 2 for the wide
/// ones of East Asian scripts and pictures, else 1.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0..=0x1f | 0x7f..=0x9f | 0x300..=0x36f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
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
    fn never_wider_than_the_room() {
        arbtest::arbtest(|u| {
            let (text, room): (String, usize) = (u.arbitrary()?, u.int_in_range(0..=40usize)?);
            assert!(width(&shorten(&text, room)) <= room, "{text:?} {room}");
            assert!(width(&cut(&text, room)) <= room, "{text:?} {room}");
            Ok(())
        })
        .budget_ms(200);
    }
}
