//! `schedule {`: the schedule of a fusion, in the lines up to `}`, each a comment.
//!
//! ```text
//! ; schedule {
//! ;   split d0 by 128
//! ;   propagate d0.o, d0.i      ; error: E0804 "behind a line a directive that is about it"
//! ; }
//! ```
//!
//! In: the text of a case. Out: the schedule as the engine reads it, in the places where it stands
//! in the case's text, so that a place in the one is a place in the other.

use super::source::Fault;
use std::ops::Range;

/// What a line of a comment is for a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockLine<'a> {
    /// `; schedule {`
    Opens,
    /// `; }`
    Closes,
    /// What stands behind the comment's marker.
    Inside(&'a str),
    /// No such comment.
    Other,
}

/// Reads a line.
pub(super) fn line(line: &str) -> BlockLine<'_> {
    let Some(behind) = line.trim_start().strip_prefix(';').filter(|behind| !behind.starts_with([';', '|'])) else {
        return BlockLine::Other;
    };
    let mut words = behind.split(';').next().unwrap_or_default().split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("schedule"), Some("{"), None) | (Some("schedule{"), None, None) => BlockLine::Opens,
        (Some("}"), None, None) => BlockLine::Closes,
        _ => BlockLine::Inside(behind),
    }
}

/// What stands behind the comment that a line is: a directive about it, or nothing.
fn remark(line: &str) -> &str {
    let behind = line.trim_start().strip_prefix(';').unwrap_or_default();
    behind.find(';').map_or("", |at| &behind[at..])
}

/// Where the block of a fusion stands, while its lines are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    open: Option<usize>,
    done: bool,
}

impl Block {
    /// Takes in a line. A line of the block, with where its directives would begin, or none.
    pub(super) fn take(&mut self, at: usize, text: &str) -> Result<Option<Range<usize>>, Fault> {
        let found = line(text);
        let end = at + text.len();
        let directive = end - remark(text).len()..end;
        match (self.open, found) {
            (None, BlockLine::Opens) if self.done => {
                self.open = Some(at);
                Err(Fault::directive(at, "the fusion has two schedules"))
            }
            (None, BlockLine::Opens) => {
                self.open = Some(at);
                Ok(Some(directive))
            }
            (None, _) => Ok(None),
            (Some(_), BlockLine::Closes) => {
                (self.open, self.done) = (None, true);
                Ok(Some(directive))
            }
            (Some(_), BlockLine::Inside(_)) => Ok(Some(directive)),
            (Some(_), BlockLine::Other) if text.trim_start().starts_with(";;") => Ok(Some(end..end)),
            (Some(_), BlockLine::Opens | BlockLine::Other) => {
                self.open = None;
                Err(Fault::directive(at, "the schedule above this line has no end")
                    .note("each line of a schedule is a comment, and `; }` closes it"))
            }
        }
    }

    /// What is wrong where the fusion ends.
    pub(super) fn end(&self) -> Option<Fault> {
        let at = self.open?;
        Some(Fault::directive(at, "the schedule has no end").note("`; }` closes it"))
    }
}

/// The schedule in a case's text; everything else is spaces.
pub(super) fn of_text(text: &str) -> Option<String> {
    let (mut block, mut schedule, mut found) = (Block::default(), String::with_capacity(text.len()), false);
    for whole in text.split_inclusive('\n') {
        let own = whole.strip_suffix('\n').unwrap_or(whole);
        let inside = matches!(block.take(0, own), Ok(Some(_)));
        match line(own) {
            BlockLine::Inside(behind) if inside => {
                schedule.extend(std::iter::repeat_n(' ', own.len() - behind.len()));
                schedule.push_str(behind);
            }
            _ => schedule.extend(std::iter::repeat_n(' ', own.len())),
        }
        schedule.push_str(&whole[own.len()..]);
        found |= inside;
    }
    schedule.truncate(schedule.trim_end().len());
    found.then_some(schedule)
}

/// A schedule without what stands around it, to compare.
pub(super) fn bare(schedule: &str) -> String {
    let code = |line: &str| canonical(line.split(';').next().unwrap_or_default());
    schedule.lines().map(|line| format!("{}\n", code(line))).filter(|line| line != "\n").collect()
}

/// A step as the engine prints it; what is none, with single spaces.
fn canonical(step: &str) -> String {
    let steps = engine::schedule::parse_schedule(step).unwrap_or_default();
    let plain = || step.split_whitespace().collect::<Vec<_>>().join(" ");
    steps.first().map_or_else(plain, |placed| placed.step.to_string())
}

/// A text with the lines of schedules in their canonical form: steps as the engine prints them.
pub(super) fn format(text: &str, comment: impl Fn(&str) -> String) -> String {
    let (mut block, mut out) = (Block::default(), String::with_capacity(text.len()));
    for whole in text.split_inclusive('\n') {
        let own = whole.strip_suffix('\n').unwrap_or(whole);
        let directive = match remark(own) {
            "" => String::new(),
            remark => format!("  {}", comment(remark)),
        };
        match (block.take(0, own), line(own)) {
            (Ok(Some(_)), BlockLine::Opens) => out.push_str(&format!("; schedule {{{directive}")),
            (Ok(Some(_)), BlockLine::Closes) => out.push_str(&format!("; }}{directive}")),
            (Ok(Some(_)), BlockLine::Inside(behind)) => {
                let step = canonical(behind.split(';').next().unwrap_or_default());
                out.push_str(format!(";   {step}{directive}").trim_end());
            }
            _ => out.push_str(own),
        }
        out.push_str(&whole[own.len()..]);
        if own.starts_with("fusion") {
            block = Block::default();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fusion @f(%x: f32[?]) {\n  return %x\n}\n; inputs: x = normal[4]\n; schedule {\n\
                        ;   split  d0 by 4   ; error: E0803\n;; why\n; }\n; check: exact\n";

    #[test]
    fn places_in_the_schedule_are_places_in_the_case() {
        let schedule = of_text(TEXT).expect("there is one");
        assert_eq!(schedule.find("split"), TEXT.find("split"));
        assert_eq!(bare(&schedule), "split d0 by 4\n");
        assert_eq!(of_text("fusion @f() {}\n; schedule: m=4\n;| split d0 by 4\n"), None);
    }

    #[test]
    fn steps_get_their_form() {
        let formatted = format(TEXT, |comment| comment.trim().into());
        assert!(formatted.contains("; schedule {\n;   split d0 by 4  ; error: E0803\n;; why\n; }\n"), "{formatted}");
    }

    #[test]
    fn directives_stand_behind_any_line() {
        let text = TEXT.replace("schedule {", "schedule  { ;error: E0805").replace("; }\n", ";}; tags: a\n");
        assert_eq!(bare(&of_text(&text).expect("there is one")), "split d0 by 4\n");
        let mut block = Block::default();
        let ranges = text.lines().filter_map(|line| Some(&line[block.take(0, line).ok()??])).collect::<Vec<_>>();
        assert_eq!(ranges, [";error: E0805", "; error: E0803", "", "; tags: a"]);
        let formatted = format(&text, |comment| comment.trim().into());
        assert!(formatted.contains("; schedule {  ;error: E0805\n"), "{formatted}");
    }

    #[test]
    fn blocks_are_closed() {
        let lines = |text: &str| {
            let mut block = Block::default();
            let faults = text.lines().filter(|line| block.take(0, line).is_err()).count();
            (faults, block.end().is_some())
        };
        assert_eq!(lines("; schedule {\n;   merge a, b\n; }"), (0, false));
        assert_eq!(lines("; schedule {\n;   merge a, b"), (0, true));
        assert_eq!(lines("; schedule {\nfusion @g() {"), (1, false));
        assert_eq!(lines(";schedule{\n; }\n; schedule {\n; }"), (1, false));
        assert_eq!(lines("; schedule {  ; error: E0805\n;   merge a, b"), (0, true));
        assert_eq!(lines("; schedule {  ; error: E0805\n;   merge a, b\n; }  ; check: exact"), (0, false));
    }
}
