//! Schedules from text: one primitive a line, `;` begins a comment.
//!
//! In: a text. Out: its steps, each with the place of the line and of the names in it, or what
//! is wrong, with line and column. Names are looked up by [`replay`](super::replay), since most
//! axes come to be by the steps themselves. Invariant: `parse(print(steps)) == steps`.

use super::ir::{Columns, Memory, ParallelType, Step};
use super::verbs::{MISSING, VERBS};
use crate::diag::{Diagnostic, Result, Span, code};
use crate::kernel::CacheHint;
use crate::util::edit_distance;

/// Bytes of the longest schedule that is read.
const MAX_BYTES: usize = 1 << 20;
/// Mistakes that are told.
const MAX_ERRORS: usize = 20;

/// A step with its place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedStep {
    /// The step.
    pub step: Step,
    /// Its line.
    pub span: Span,
    /// The names of axes and tensors in it.
    pub(super) names: Vec<(String, Span)>,
}

impl PlacedStep {
    /// Where a name stands.
    pub(super) fn place_of(&self, name: &str) -> Span {
        self.names.iter().find(|(own, _)| own == name).map_or(self.span, |(_, span)| *span)
    }
}

/// Reads a schedule. All mistakes come at once, the first of them with the others as notes.
pub fn parse_schedule(text: &str) -> Result<Vec<PlacedStep>> {
    if text.len() > MAX_BYTES {
        let message = format!("the schedule has {} bytes, more than {MAX_BYTES}", text.len());
        return Err(Diagnostic::user(code::TOO_LARGE, message));
    }
    parse_steps(text)
}

/// The same for a text of any length, such as one that was printed.
pub(super) fn parse_steps(text: &str) -> Result<Vec<PlacedStep>> {
    let (mut steps, mut errors) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match Line::new(line, start).step() {
            Ok(step) => steps.extend(step),
            Err(error) if errors.is_empty() => errors.push(error),
            Err(mut error) => {
                error.message = format!("line {}: {}", number + 1, error.message);
                errors.push(error);
            }
        }
        start += line.len();
        if errors.len() == MAX_ERRORS {
            break;
        }
    }
    Diagnostic::together(errors).map_or(Ok(steps), Err)
}

/// A word or a sign, with its place.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

/// The words of a line, and how many of them are read.
struct Line<'a> {
    words: Vec<Word<'a>>,
    at: usize,
    end: usize,
    names: Vec<(String, Span)>,
}

/// Characters of names of axes: those of the fusion's, and of what transforms make of them.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '*' | '#')
}

impl<'a> Line<'a> {
    fn new(line: &'a str, start: usize) -> Self {
        let line = line.split(';').next().unwrap_or_default().trim_end();
        let mut words = Vec::new();
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let len = match c {
                ',' => 1,
                '-' if rest.starts_with("->") => 2,
                c if c.is_whitespace() => c.len_utf8(),
                _ => rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len()),
            };
            if !c.is_whitespace() {
                words.push(Word { text: &rest[..len], start: start + line.len() - rest.len() });
            }
            rest = &rest[len..];
        }
        Self { words, at: 0, end: start + line.len(), names: Vec::new() }
    }

    /// The step; none for a line without one.
    fn step(mut self) -> Result<Option<PlacedStep>> {
        let Some(verb) = self.words.first().copied() else { return Ok(None) };
        self.at = 1;
        let step = self.operands(verb)?;
        if self.at < self.words.len() {
            return Err(self.wrong(self.forms(verb.text)));
        }
        let span = Span { start: verb.start as u32, end: self.end as u32 };
        Ok(Some(PlacedStep { step, span, names: self.names }))
    }

    fn operands(&mut self, verb: Word<'a>) -> Result<Step> {
        Ok(match verb.text {
            "cache_after" => Step::CacheAfter { tensor: self.tensor()? },
            "cache_before" => Step::CacheBefore { tensor: self.tensor()? },
            "cache_fork" => {
                let tensor = self.tensor()?;
                self.need("for")?;
                let mut consumers = vec![self.tensor()?];
                while self.take(",") {
                    consumers.push(self.tensor()?);
                }
                Step::CacheFork { tensor, consumers }
            }
            "split" => self.split()?,
            "at_least" => Step::AtLeast { axis: self.axis()?, least: self.number()? },
            "merge" => {
                let outer = self.axis()?;
                self.need(",")?;
                Step::Merge { outer, inner: self.axis()? }
            }
            "align" => {
                let axis = self.axis()?;
                self.need("to")?;
                let vector = self.number()?;
                self.need("of")?;
                let reference = self.tensor()?;
                let rows = if self.take("by") { Some(self.axis()?) } else { None };
                Step::Align { axis, vector, reference, rows }
            }
            "window" => self.window()?,
            "parallelize" => Step::Parallelize { axis: self.axis()?, parallel: self.place()? },
            "rfactor" => {
                let tensor = self.tensor()?;
                self.need("over")?;
                Step::Rfactor { tensor, axes: self.axes()? }
            }
            "rfactor_max" => {
                let tensor = self.tensor()?;
                self.need("over")?;
                Step::RfactorMax { tensor, axes: self.axes()? }
            }
            "propagate" if self.is_done() => Step::Propagate { order: Vec::new() },
            "propagate" => Step::Propagate { order: self.axes()? },
            "loops" => self.loops()?,
            "reorder" => {
                let tensor = if self.is_tensor() { Some(self.tensor()?) } else { None };
                Step::Reorder { tensor, axes: self.axes()? }
            }
            "recompute_in" => Step::RecomputeIn { tensor: self.tensor()?, axis: self.axis()? },
            "set_memory" => Step::SetMemory { tensor: self.tensor()?, memory: self.memory()? },
            "alloc" => {
                let (tensor, axes) = (self.tensor()?, self.axes()?);
                Step::Alloc { tensor, axes, columns: self.columns()? }
            }
            "inline_at" => Step::InlineAt { tensor: self.tensor()?, position: self.count()? },
            "compute_with" => Step::ComputeWith { tensor: self.tensor()?, position: self.count()? },
            "phase_after" => Step::PhaseAfter { tensor: self.tensor()? },
            "inline_most" => {
                let mut keep = Vec::new();
                while if keep.is_empty() { self.take("keep") } else { self.take(",") } {
                    keep.push((self.tensor()?, self.count()?));
                }
                Step::InlineMost { keep }
            }
            "circular_buffer" => Step::CircularBuffer { tensor: self.tensor()?, stages: self.small()? },
            "set_cache_hint" => Step::SetCacheHint { tensor: self.tensor()?, hint: self.hint()? },
            "min_blocks" => Step::MinBlocks(self.small()?),
            other => return Err(self.unknown_verb(other)),
        })
    }

    /// `N [per B]`: places, and the axis for each index of which they are shared.
    fn parts(&mut self) -> Result<(i64, Option<String>)> {
        let places = self.number()?;
        let beside = if self.take("per") { Some(self.axis()?) } else { None };
        Ok((places, beside))
    }

    fn split(&mut self) -> Result<Step> {
        let axis = self.axis()?;
        if self.take("into") {
            let (places, beside) = self.parts()?;
            return Ok(Step::SplitParts { axis, places, beside, exact: self.take("exact") });
        }
        if self.take("in") {
            self.need("turns")?;
            self.need("of")?;
            let (places, beside) = self.parts()?;
            return Ok(Step::SplitTurns { axis, places, beside });
        }
        self.need("by")?;
        let factor = self.number()?;
        let count = if self.take("count") { Some(self.number()?) } else { None };
        Ok(Step::Split { axis, factor, count, exact: self.take("exact") })
    }

    fn window(&mut self) -> Result<Step> {
        let axis = self.axis()?;
        self.need("at")?;
        let outer = self.axis()?;
        self.need("by")?;
        let step = self.number()?;
        if self.take("per") {
            return Ok(Step::WindowsBeside { axis, outer, indices: step, of: self.axis()? });
        }
        self.need("width")?;
        let width = self.number()?;
        let left = if self.take("left") { self.number()? } else { 0 };
        let aligned = if self.take("align") {
            let vector = self.number()?;
            self.need("of")?;
            Some((vector, self.tensor()?))
        } else {
            None
        };
        Ok(Step::Window { axis, outer, step, width, left, aligned })
    }

    fn columns(&mut self) -> Result<Columns> {
        let Some(name) = ["rotate", "skew", "swizzle"].into_iter().find(|name| self.take(name)) else {
            return Ok(Columns::InOrder);
        };
        let count = self.number()?;
        self.need("every")?;
        let every = self.number()?;
        Ok(match name {
            "rotate" => Columns::Rotated { by: count, every },
            "skew" => Columns::Skewed { by: count, every },
            _ => Columns::Swizzled { groups: count, every },
        })
    }

    fn loops(&mut self) -> Result<Step> {
        let tensor = self.tensor()?;
        let mut loops = Vec::new();
        while !self.is_done() {
            if !loops.is_empty() {
                self.need(",")?;
            }
            let axis = self.axis()?;
            loops.push((axis, if self.take("->") { self.place()? } else { ParallelType::Serial }));
        }
        Ok(Step::Loops { tensor, loops })
    }

    fn is_done(&self) -> bool {
        self.at == self.words.len()
    }

    fn word(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| word.text)
    }

    fn take(&mut self, wanted: &str) -> bool {
        let is_next = self.word() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn need(&mut self, wanted: &str) -> Result<()> {
        if self.take(wanted) { Ok(()) } else { Err(self.expected(&format!("`{wanted}`"))) }
    }

    fn is_tensor(&self) -> bool {
        self.word().is_some_and(|word| word.starts_with('%'))
    }

    fn name(&mut self, name: &'a str) -> String {
        let word = self.words[self.at];
        let start = word.start + word.text.len() - name.len();
        self.names.push((name.into(), Span { start: start as u32, end: (start + name.len()) as u32 }));
        self.at += 1;
        name.into()
    }

    fn tensor(&mut self) -> Result<String> {
        let name = self.word().and_then(|word| word.strip_prefix('%'));
        match name.filter(|name| !name.is_empty() && name.chars().all(is_name)) {
            Some(name) => Ok(self.name(name)),
            None => Err(self.expected("a tensor, `%name`")),
        }
    }

    fn axis(&mut self) -> Result<String> {
        let is_axis = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_name);
        match self.word().filter(is_axis) {
            Some(name) => Ok(self.name(name)),
            None => Err(self.expected("an axis")),
        }
    }

    fn axes(&mut self) -> Result<Vec<String>> {
        let mut axes = vec![self.axis()?];
        while self.take(",") {
            axes.push(self.axis()?);
        }
        Ok(axes)
    }

    fn number(&mut self) -> Result<i64> {
        self.parsed("an integer")
    }

    fn count(&mut self) -> Result<usize> {
        self.parsed("a number of loops")
    }

    fn small(&mut self) -> Result<u32> {
        self.parsed("a number that is not negative, of at most 32 bits")
    }

    /// A word that is a number of a type.
    fn parsed<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let value = self.word().and_then(|word| word.parse().ok());
        let value = value.ok_or_else(|| self.expected(what))?;
        self.at += 1;
        Ok(value)
    }

    /// One of some words.
    fn one_of<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Result<T> {
        let found = table.iter().find(|(name, _)| self.word() == Some(name));
        let Some((_, value)) = found else {
            let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            return Err(self.expected(&format!("{what}: {}", names.join(", "))));
        };
        self.at += 1;
        Ok(*value)
    }

    fn place(&mut self) -> Result<ParallelType> {
        self.one_of("what runs over the axis", &ParallelType::ALL.map(|parallel| (parallel.name(), parallel)))
    }

    fn memory(&mut self) -> Result<Memory> {
        self.one_of("a memory", &Memory::ALL.map(|memory| (memory.name(), memory)))
    }

    fn hint(&mut self) -> Result<CacheHint> {
        self.one_of("a cache hint", &super::print::HINTS)
    }

    /// The place of the next word, or of the end of the line.
    fn here(&self) -> Span {
        let (start, len) = self.words.get(self.at).map_or((self.end, 0), |word| (word.start, word.text.len()));
        Span { start: start as u32, end: (start + len) as u32 }
    }

    fn wrong(&self, error: Box<Diagnostic>) -> Box<Diagnostic> {
        error.label(self.here(), "")
    }

    fn found(&self) -> String {
        self.word().map_or("the line ends".into(), |word| format!("`{word}` stands there"))
    }

    fn expected(&self, what: &str) -> Box<Diagnostic> {
        let message = format!("expected {what}; {}", self.found());
        let error = Diagnostic::user(code::SCHEDULE_SYNTAX, message);
        let verb = self.words.first().map_or("", |word| word.text);
        self.wrong(with_forms(error, verb))
    }

    fn forms(&self, verb: &str) -> Box<Diagnostic> {
        let message = format!("{} behind the operands of {verb}", self.found());
        with_forms(Diagnostic::user(code::SCHEDULE_SYNTAX, message), verb)
    }

    fn unknown_verb(&mut self, verb: &str) -> Box<Diagnostic> {
        self.at = 0;
        if let Some((name, needs)) = MISSING.iter().find(|(name, _)| *name == verb) {
            let message = format!("{name} is not available yet: it needs {needs}");
            return self.wrong(Diagnostic::unsupported(code::SCHEDULE_VERB, message));
        }
        let nearest = VERBS.iter().map(|known| known.name).min_by_key(|name| edit_distance(name, verb));
        let error = Diagnostic::user(code::SCHEDULE_SYNTAX, format!("`{verb}` is no verb of schedules"));
        let error = match nearest.filter(|name| edit_distance(name, verb) <= 3) {
            Some(name) => with_forms(error, name),
            None => {
                let mut names: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
                names.dedup();
                error.note(format!("there are {}", names.join(", ")))
            }
        };
        self.wrong(error)
    }
}

/// An error with the ways in which a verb is written.
fn with_forms(error: Box<Diagnostic>, verb: &str) -> Box<Diagnostic> {
    let forms = VERBS.iter().filter(|known| known.name == verb);
    forms.fold(error, |error, known| error.note(format!("it is written `{}`", known.form)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_steps(text: &str) {
        let steps = parse_schedule(text).unwrap_or_else(|error| panic!("{error}"));
        let printed: String = steps.iter().map(|placed| format!("{}\n", placed.step)).collect();
        assert_eq!(printed, text);
    }

    #[test]
    fn what_is_printed_reads_back() {
        check_steps(
            "cache_after %x\ncache_before %0_out0\ncache_fork %x_r for %1, %2\nsplit d0 by 8\nsplit d0.o by 4 count 3 exact\n\
             split d0.o.o into 7 per d1 exact\nsplit d1 into 7\nmerge d0.i, d1.o\nalign d2 to 4 of %x by d0*d1.o#2\n\
             window d2 at d2.o by 8 width 9 left 1\nwindow d2 at d2.o by 8 width 12 align 4 of %x\n\
             window d1*d2 at d1.o by 8 per d2\nat_least d2 193\n\
             parallelize d0.i*d1.o grid_x\nrfactor %s over d2.a, d1.i\npropagate\npropagate d2.a, d1.i\nloops %y\n\
             loops %y d0 -> block_y, d1, d2 -> vectorize\nreorder %y d1, d0\nreorder d1, d0\nrecompute_in %w d0\n\
             set_memory %x_r shared\nalloc %x_r d0, d1\nalloc %x_r d0, d1 rotate 2 every 4\nalloc %x_r d0, d1 swizzle 8 every 1\ninline_at %x_r 2\n\
             inline_most\ninline_most keep %x_r 2, %y 1\ncircular_buffer %x_r 2\nset_cache_hint %x_r again\nmin_blocks 3\n",
        );
    }

    #[test]
    fn every_form_of_the_table_is_read() {
        let words = [
            ("PLACE", "block_x"),
            ("MEMORY", "shared"),
            ("HINT", "again"),
            (", ...", ""),
            ("N", "4"),
            ("width M", "width 8"),
            ("left L", "left 1"),
            ("align V of", "align 2 of"),
            ("A", "d0"),
            ("B", "d1"),
            ("C", "d2"),
            ("[", ""),
            ("]", ""),
        ];
        for verb in VERBS {
            assert!(verb.form.starts_with(verb.name) && verb.meaning.ends_with('.'), "{verb:?}");
            let line = words.iter().fold(verb.form.to_string(), |line, (word, value)| line.replace(word, value));
            let steps = parse_schedule(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(steps.len(), 1, "{line}");
        }
    }

    #[track_caller]
    fn check_refused(text: &str, column: u32, message: &str, note: &str) {
        let error = parse_schedule(text).expect_err("it is no schedule");
        assert_eq!(error.labels[0].span.start, column, "{error}");
        assert!(error.message.contains(message) && error.to_string().contains(note), "{error}");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        check_refused("  splt d0 by 4", 2, "`splt` is no verb", "split A by N");
        check_refused("frobnicate", 0, "`frobnicate` is no verb", "there are cache_after,");
        check_refused("split d0 bye 4", 9, "expected `by`; `bye` stands there", "split A into N");
        check_refused("split d0 by", 11, "expected an integer; the line ends", "");
        check_refused("split d0 by 99999999999999999999", 12, "expected an integer", "");
        check_refused("split %x by 4", 6, "expected an axis", "");
        check_refused("merge d0, d1 d2", 13, "`d2` stands there behind the operands", "merge A, B");
        check_refused("parallelize d0 threads", 15, "what runs over the axis: serial, unroll,", "");
        check_refused("merge d0 d1\n\nsplit d0\n", 9, "expected `,`", "line 3: expected `by`; the line ends");
        check_refused("swizzle d0, d1", 0, "swizzle is not available yet", "");
        check_refused("circular_buffer %x -1", 19, "not negative", "");
        check_refused("inline_at %x d0", 13, "a number of loops", "");
    }

    #[test]
    fn any_text_is_read_or_refused() {
        crate::property::property(|u| {
            let words = [
                "split",
                "d0",
                "by",
                "4",
                ",",
                "%x",
                "->",
                "\n",
                "loops",
                "keep",
                "inline_most",
                "é",
                ";",
                "-",
                "alloc",
            ];
            let mut text = String::new();
            for _ in 0..u.int_in_range(0..=30)? {
                text.push_str(u.choose(&words)?);
                text.push_str(u.choose(&["", " "])?);
            }
            if let Ok(steps) = parse_schedule(&text) {
                let printed: String = steps.iter().map(|placed| format!("{}\n", placed.step)).collect();
                let again = parse_schedule(&printed).expect("what is printed reads back");
                assert!(steps.iter().map(|placed| &placed.step).eq(again.iter().map(|placed| &placed.step)), "{text}");
            }
            Ok(())
        });
    }
}
