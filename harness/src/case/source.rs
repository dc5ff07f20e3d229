//! A case file's text with places, and text after `$axis` substitution that
//! still knows where each character came from.
//!
//! Invariant: every error of this module tree carries a byte offset into the
//! *file*, also when it was found in substituted text.

use crate::escape::escape;
use engine::diag::{Code, code};
use engine::util::edit_distance;

/// Bytes of one case's text after substitution.
pub(crate) const MAX_CASE_BYTES: usize = 1 << 20;

/// One thing that is wrong with a case file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaseError {
    /// The file as the user would name it.
    pub file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub col: usize,
    /// Stable code.
    pub code: &'static str,
    /// Lowercase message.
    pub message: String,
    /// A way out; may be empty.
    pub note: String,
}

impl std::fmt::Display for CaseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, col, code, message, note } = self;
        // All of them may hold what stands in the file, or is its name.
        let (file, message, note) = (escape(file, ""), escape(message, "\n"), escape(note, "\n"));
        match line {
            0 => write!(f, "{file}: error[{code}]: {message}")?,
            _ => write!(f, "{file}:{line}:{col}: error[{code}]: {message}")?,
        }
        if note.is_empty() { Ok(()) } else { write!(f, "\n  note: {note}") }
    }
}

/// An error before its offset is turned into a line and a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) offset: usize,
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) note: String,
}

impl Fault {
    pub(crate) fn directive(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, code: code::CASE_DIRECTIVE, message: message.into(), note: String::new() }
    }
    pub(crate) fn header(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, code: code::CASE_HEADER, message: message.into(), note: String::new() }
    }
    pub(crate) fn limit(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, code: code::CASE_LIMIT, message: message.into(), note: String::new() }
    }
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// A file in memory.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) display: String,
    pub(crate) text: String,
    line_starts: Vec<usize>,
}

impl Source {
    pub(crate) fn new(display: String, text: String) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { display, text, line_starts }
    }

    /// Line and column (in characters) of a byte offset, both from 1.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts[line - 1];
        let col = self.text.as_bytes()[start..offset].iter().filter(|b| !(0x80..0xC0).contains(*b)).count();
        (line, col + 1)
    }

    pub(crate) fn line(&self, offset: usize) -> usize {
        self.place(offset).0
    }

    pub(crate) fn error(&self, fault: Fault) -> CaseError {
        let (line, col) = self.place(fault.offset);
        let Fault { code, message, note, .. } = fault;
        CaseError { file: self.display.clone(), line, col, code: code.0, message, note }
    }

    /// The lines of a byte range with their offsets, line ends cut off.
    pub(crate) fn lines(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = (usize, &str)> {
        let mut at = range.start;
        self.text[range].split_inclusive('\n').map(move |line| {
            let start = at;
            at += line.len();
            (start, line.trim_end_matches(['\n', '\r']))
        })
    }
}

/// Values of the axes, in the order of the id.
pub(crate) type Bindings = Vec<(String, String)>;

/// Text after substitution. `pieces` holds `(start in text, offset in file,
/// verbatim)`, ascending: inside a verbatim piece offsets advance together,
/// inside a substituted one every character came from the `$`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpandedText {
    pub(crate) text: String,
    pieces: Vec<(usize, usize, bool)>,
}

impl ExpandedText {
    /// Replaces `$name` and `${name}` in `source.text[range]`.
    pub(crate) fn substitute(
        source: &Source,
        range: std::ops::Range<usize>,
        bindings: &[(String, String)],
    ) -> Result<Self, Fault> {
        let mut out = ExpandedText::default();
        let mut rest = range.clone();
        while let Some(at) = source.text[rest.clone()].find('$') {
            let dollar = rest.start + at;
            out.push(&source.text[rest.start..dollar], rest.start, true);
            let (name, len) = variable(&source.text[dollar..range.end])
                .ok_or_else(|| Fault::directive(dollar, "`$` is not followed by the name of an axis"))?;
            let value = bindings.iter().find(|(key, _)| key == name).map(|(_, value)| value).ok_or_else(|| {
                let names = bindings.iter().map(|(key, _)| key.as_str());
                Fault::directive(dollar, format!("`${name}` is not an axis of this file")).note(suggest(name, names))
            })?;
            if out.text.len() + value.len() > MAX_CASE_BYTES {
                let message = format!("the text has more than {MAX_CASE_BYTES} bytes once `${name}` is replaced");
                return Err(Fault::limit(dollar, message).note("use shorter values, or use them less often"));
            }
            out.push(value, dollar, false);
            rest.start = dollar + len;
        }
        out.push(&source.text[rest.clone()], rest.start, true);
        Ok(out)
    }

    fn push(&mut self, text: &str, offset: usize, verbatim: bool) {
        self.pieces.push((self.text.len(), offset, verbatim));
        self.text.push_str(text);
    }

    /// Where in the file a character of this text came from.
    pub(crate) fn origin(&self, at: usize) -> usize {
        let index = self.pieces.partition_point(|piece| piece.0 <= at).saturating_sub(1);
        self.pieces
            .get(index)
            .map_or(0, |(start, offset, verbatim)| if *verbatim { offset + at - start } else { *offset })
    }
}

/// The name after a `$` at the start of `text`, and the length of the whole reference.
pub(crate) fn variable(text: &str) -> Option<(&str, usize)> {
    let braced = text[1..].starts_with('{');
    let start = 1 + usize::from(braced);
    let len = text[start..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let name = &text[start..start + len];
    let closed = !braced || text[start + len..].starts_with('}');
    (len > 0 && closed).then_some((name, start + len + usize::from(braced)))
}

/// "did you mean ...": the nearest name, or the list of what there is.
pub(crate) fn suggest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let nearest = names.iter().map(|name| (edit_distance(word, name), *name)).min();
    match nearest {
        None => "there are none".into(),
        Some((d, name)) if d <= 2.max(word.len() / 3) => format!("did you mean `{name}`?"),
        Some(_) => format!("known: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("a.fuse".into(), text.into())
    }

    #[test]
    fn places_count_characters() {
        let s = source("ab\nöx\n");
        assert_eq!(s.place(0), (1, 1));
        assert_eq!(s.place(3), (2, 1));
        assert_eq!(s.place(5), (2, 2));
        assert_eq!(s.place(99), (3, 1));
    }

    #[test]
    fn substituted_text_knows_its_origin() {
        let s = source("; x = $dim - 2, y = ${dim}q");
        let text = ExpandedText::substitute(&s, 0..s.text.len(), &[("dim".into(), "1024".into())]).expect("ok");
        assert_eq!(text.text, "; x = 1024 - 2, y = 1024q");
        assert_eq!(text.origin(text.text.find("1024").expect("there")), 6);
        assert_eq!(text.origin(text.text.find('-').expect("there")), 11);
        assert_eq!(text.origin(text.text.find('q').expect("there")), s.text.len() - 1);
        let fault = ExpandedText::substitute(&s, 0..s.text.len(), &[("din".into(), "1".into())]).expect_err("unknown");
        assert_eq!((fault.offset, fault.note.as_str()), (6, "did you mean `din`?"));
    }
}
