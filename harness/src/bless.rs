//! Rewrites expectations in case files: facts, refusals, marks, and the texts of
//! stages. It is what `--bless` and `BLESS=1` mean, whichever command or test runs. An edit is made only if every case of
//! the line that ran agrees on it, since one line serves many ids.

use crate::case::{Case, MARKER, Relation};
use crate::outcome::{Bless, Outcome, Verdict};
use crate::record::replace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Collected rewrites by file, and lines on which a case was content.
#[derive(Default)]
pub(crate) struct Blessings {
    edits: BTreeMap<ExpectationPlace, BTreeSet<(String, String)>>,
    held: BTreeSet<(ExpectationPlace, String)>,
}

/// File, line and key of an expectation.
type ExpectationPlace = (String, usize, String);

impl Blessings {
    /// Adds what a case wants rewritten, and what must stay for it.
    pub(crate) fn add(&mut self, case: &Case, outcome: &Outcome) {
        let place = |line: usize, key: &str| (case.file.clone(), line, key.to_string());
        for Bless { line, key, old, new } in &outcome.bless {
            self.edits.entry(place(*line, key)).or_default().insert((old.clone(), new.clone()));
        }
        if !outcome.facts.is_empty() {
            self.hold_goldens(case, &outcome.bless);
        }
        let broken = |line: usize, key: &str| outcome.bless.iter().any(|edit| edit.line == line && edit.key == key);
        for expect in &case.expects {
            // A case without the fact did not get as far as the expectation.
            if expect.op == Relation::Eq
                && outcome.facts.contains_key(&expect.fact)
                && !broken(expect.line, &expect.fact)
            {
                self.held.insert((place(expect.line, &expect.fact), expect.values.join(", ")));
            }
        }
        if outcome.verdict == Verdict::Pass {
            self.held.extend(case.refusals().iter().map(|spec| (place(spec.at, "error"), spec.written())));
        }
    }

    /// Adds what becomes of the texts in a case's file, for a case that was compiled.
    pub(crate) fn add_goldens(&mut self, case: &Case, rewritten: Vec<Bless>) {
        self.hold_goldens(case, &rewritten);
        for Bless { line, key, old, new } in rewritten {
            self.edits.entry((case.file.clone(), line, key)).or_default().insert((old, new));
        }
    }

    fn hold_goldens(&mut self, case: &Case, rewritten: &[Bless]) {
        for golden in &case.goldens {
            if !rewritten.iter().any(|edit| edit.line == golden.line && edit.key == golden.stage) {
                let place = (case.file.clone(), golden.line, golden.stage.clone());
                self.held.insert((place, golden.text.clone()));
            }
        }
    }

    /// Writes the files; returns what was done, in words.
    pub(crate) fn apply(&self) -> Vec<String> {
        let mut report = Vec::new();
        // From the last line to the first, since a mark takes its line with it.
        for (place, pairs) in self.edits.iter().rev() {
            let (file, line, key) = place;
            let mut pairs = pairs.iter();
            let (Some((old, new)), None) = (pairs.next(), pairs.next()) else {
                report.push(format!("{file}:{line}: not rewritten, the cases of this line disagree about `{key}`"));
                continue;
            };
            if self.held.contains(&(place.clone(), old.clone())) {
                let old = if is_stage(key) { "this text" } else { old };
                report.push(format!(
                    "{file}:{line}: not rewritten, `{key}` with `{old}` holds for other cases of this line"
                ));
                continue;
            }
            report.push(match rewrite(Path::new(file), *line, key, old, new) {
                Ok(()) if is_stage(key) => {
                    format!("{file}:{line}: {key}: {} lines -> {} lines", old.lines().count(), new.lines().count())
                }
                Ok(()) if new.is_empty() => format!("{file}:{line}: {key} {old} removed"),
                Ok(()) => format!("{file}:{line}: {key}: {old} -> {new}"),
                Err(why) => format!("{file}:{line}: not rewritten: {why}"),
            });
        }
        report.reverse();
        report
    }
}

/// Whether it is the text of a stage that is rewritten.
fn is_stage(key: &str) -> bool {
    matches!(key, "kernel" | "schedule")
}

fn rewrite(file: &Path, line: usize, key: &str, old: &str, new: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(String::from).collect();
    if is_stage(key) {
        let marked = |line: &String| line.trim_start().starts_with(MARKER);
        let end = line + lines.iter().skip(line).take_while(|line| marked(line)).count();
        let held = lines.get(line..end).ok_or("the file has changed")?.concat();
        if held != marked_text(old) {
            return Err("the file has changed".into());
        }
        lines.splice(line..end, [marked_text(new)]);
        return replace(file, lines.concat().as_bytes()).map_err(|error| error.to_string());
    }
    let content = lines.get_mut(line - 1).ok_or("the file has changed")?;
    *content =
        edited(content, key, old, new).ok_or_else(|| format!("`{key}` with `{old}` does not stand there literally"))?;
    replace(file, lines.concat().as_bytes()).map_err(|error| error.to_string())
}

/// A text as it stands in a case file.
fn marked_text(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", format!("{MARKER} {line}").trim_end())).collect()
}

/// Replaces `old` where it stands directly behind `key =`, or behind `error:`
/// or a comma of that directive.
fn edited(line: &str, key: &str, old: &str, new: &str) -> Option<String> {
    let comment = line.find(';')?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let stands = |at: usize| {
        let behind = &line[at + old.len()..];
        let whole = !behind.starts_with(|c: char| word(c) || matches!(c, '.' | '+' | '-'));
        let ends = behind.trim_start().is_empty() || behind.trim_start().starts_with([',', ';']);
        let before = line[comment..at].trim_end();
        let keyed = match key {
            "error" => before.contains("error:") && before.ends_with([':', ',']),
            _ => {
                let head = before.strip_suffix("==").or_else(|| before.strip_suffix('=')).map(str::trim_end);
                let head = head.and_then(|head| head.strip_suffix(key));
                head.is_some_and(|head| !head.ends_with(word))
            }
        };
        whole && ends && keyed
    };
    let at = line.match_indices(old).map(|(at, _)| at).find(|at| *at > comment && stands(*at))?;
    Some(format!("{}{new}{}", &line[..at], &line[at + old.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Expect, Golden};
    use crate::scratch::Scratch;

    #[test]
    fn a_case_for_which_it_holds_votes_against() {
        let dir = Scratch::new("bless");
        let path = dir.join("a.fuse");
        std::fs::write(&path, "; expect: vector = 4\n").expect("writes");
        let file = path.display().to_string();
        let expects = vec![Expect { line: 1, fact: "vector".into(), op: Relation::Eq, values: vec!["4".into()] }];
        let case = Case { file, expects, ..Case::default() };
        let facts = |value: &str| [("vector".to_string(), value.to_string())].into();
        let edit = Bless { line: 1, key: "vector".into(), old: "4".into(), new: "2".into() };
        let broken = Outcome { facts: facts("2"), bless: vec![edit], ..Outcome::fail("fail.golden", "") };
        let mut blessings = Blessings::default();
        blessings.add(&case, &broken);
        blessings.add(&case, &Outcome { facts: facts("4"), ..Outcome::pass() });
        let report = blessings.apply();
        let kept = std::fs::read_to_string(&path).expect("reads");
        let old = dir.join("old");
        std::fs::hard_link(&path, &old).expect("links");
        let mut alone = Blessings::default();
        alone.add(&case, &broken);
        alone.apply();
        let changed = std::fs::read_to_string(&path).expect("reads");
        // In one step: whoever has the old file has all of it.
        assert_eq!(std::fs::read_to_string(&old).expect("reads"), kept);
        assert!(report[0].contains("holds for other cases"), "{report:?}");
        assert_eq!((kept.as_str(), changed.as_str()), ("; expect: vector = 4\n", "; expect: vector = 2\n"));
    }

    #[test]
    fn texts_are_rewritten_where_all_cases_agree() {
        let dir = Scratch::new("bless-text");
        let path = dir.join("a.fuse");
        std::fs::write(&path, "; kernel:\n;| a\n;|   b\n; schedule:\n; about: x\n").expect("writes");
        let golden = |line: usize, stage: &str, text: &str| Golden { line, stage: stage.into(), text: text.into() };
        let goldens = vec![golden(1, "kernel", "a\n  b\n"), golden(4, "schedule", "")];
        let case = Case { file: path.display().to_string(), goldens, ..Case::default() };
        let edit =
            |line, key: &str, old: &str, new: &str| Bless { line, key: key.into(), old: old.into(), new: new.into() };
        let mut blessings = Blessings::default();
        blessings.add_goldens(&case, vec![edit(1, "kernel", "a\n  b\n", "c\n"), edit(4, "schedule", "", "d\n\n  e\n")]);
        let report = blessings.apply();
        let text = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(text, "; kernel:\n;| c\n; schedule:\n;| d\n;|\n;|   e\n; about: x\n", "{report:?}");
        // Another case of the line, for which it holds.
        let mut blessings = Blessings::default();
        let case = Case { goldens: vec![golden(1, "kernel", "c\n")], ..case };
        blessings.add_goldens(&case, vec![edit(1, "kernel", "c\n", "f\n")]);
        blessings.add_goldens(&case, Vec::new());
        assert!(blessings.apply()[0].contains("holds for other cases"));
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), text);
    }

    #[test]
    fn only_the_value_changes() {
        let line = "; expect: barriers = 1, scheduler = pointwise  ; why\n";
        assert_eq!(
            edited(line, "scheduler", "pointwise", "reduction").as_deref(),
            Some("; expect: barriers = 1, scheduler = reduction  ; why\n")
        );
        assert_eq!(edited(line, "vector", "4", "8"), None);
        assert_eq!(edited(line, "barriers", "pointwise", "x"), None);
        let line = "; expect: threads <= 128, blocks = 12, vector == 1\n";
        assert_eq!(edited(line, "threads", "128", "64"), None);
        assert_eq!(edited(line, "blocks", "1", "2"), None);
        assert_eq!(
            edited(line, "vector", "1", "4").as_deref(),
            Some("; expect: threads <= 128, blocks = 12, vector == 4\n")
        );
        let line = "  %0 = sum %x axes(9) ; error: E0205 \"axis 9\"\n";
        assert_eq!(
            edited(line, "error", "E0205 \"axis 9\"", "E0206 \"x\"").as_deref(),
            Some("  %0 = sum %x axes(9) ; error: E0206 \"x\"\n")
        );
    }
}
