//! The canonical form of a case file: front matter and directives with canonical
//! spaces, fusions as [`engine::text::format`] lays them out. A file that is
//! wrong is not formatted: all its errors come instead. The formatted text
//! expands to the same cases, which is checked before it is given out.

use super::directive;
use super::expand::{Target, expand, split};
use super::front;
use super::model::{Case, CaseEnd, SameAs};
use super::schedule;
use super::source::{CaseError, Source};
use engine::diag::{Diagnostic, code};
use std::collections::BTreeSet;

/// The canonical form of a file, or everything that is wrong with it.
pub(crate) fn format(source: &Source) -> Result<String, Vec<CaseError>> {
    let (name, text) = (&source.display, &source.text);
    let cases = [Target::Cuda, Target::Sim].map(|target| expand(source, target));
    let mut errors: Vec<CaseError> = cases.iter().flat_map(|(_, errors)| errors.clone()).collect();
    // Most cases have one text on both kinds of devices, and many share a twin.
    let mut seen = BTreeSet::new();
    for case in cases.iter().flat_map(|(cases, _)| cases) {
        if seen.insert(case.text.as_str()) {
            errors.extend(unexpected(case).iter().map(|error| placed(error, case)));
        }
        if let Some(same) = case.same_as.as_ref().filter(|same| seen.insert(same.text.as_str())) {
            errors.extend(twin_errors(case, same));
        }
    }
    errors.sort();
    errors.dedup();
    let Some((front, body)) = split(source, &mut Vec::new()).filter(|_| errors.is_empty()) else {
        return Err(errors);
    };
    let front = front::format(&text[front]);
    let body = engine::text::format(&schedule::format(&text[body], comment), &comment);
    let formatted = format!("---\n{front}---\n{body}");
    if formatted == *text {
        return Ok(formatted);
    }
    let again = Source::new(name.clone(), formatted.clone());
    for (target, (cases, _)) in [Target::Cuda, Target::Sim].into_iter().zip(&cases) {
        let (after, errors) = expand(&again, target);
        if !errors.is_empty() || !same(cases, &after) {
            let message = "formatting would change what the file says: it is left as it is";
            let error = CaseError {
                file: name.clone(),
                line: 0,
                col: 0,
                code: code::BUG.0,
                message: message.into(),
                note: "report the file".into(),
            };
            return Err(vec![error]);
        }
    }
    Ok(formatted)
}

/// Errors of a fusion's text that its directives do not ask for.
fn unexpected(case: &Case) -> Vec<Diagnostic> {
    let mut errors = engine::text::parse_one(&case.text).err().unwrap_or_default();
    for spec in case.refusals() {
        if let Some(at) = errors.iter().position(|error| error.code.0 == spec.code) {
            errors.remove(at);
        }
    }
    errors
}

/// Errors of the fusion that a case is the same as, as a case of its own.
fn twin_errors(case: &Case, same: &SameAs) -> Vec<CaseError> {
    let twin = Case { text: same.text.clone(), line: same.text_line, file: case.file.clone(), ..Case::default() };
    let errors = engine::text::parse_one(&twin.text).err().unwrap_or_default();
    errors.iter().map(|error| placed(error, &twin)).collect()
}

fn placed(error: &Diagnostic, case: &Case) -> CaseError {
    let start = error.labels.first().map_or(0, |label| label.span.start as usize);
    let (line, col) = Source::new(String::new(), case.text.clone()).place(start);
    let mut message = error.message.clone();
    if let Some(label) = error.labels.first().filter(|label| !label.text.is_empty()) {
        message.push_str(&format!(": {}", label.text));
    }
    let note = error.notes.first().cloned().unwrap_or_default();
    CaseError { file: case.file.clone(), line: case.line + line - 1, col, code: error.code.0, message, note }
}

/// Whether two expansions say the same, wherever it stands.
fn same(before: &[Case], after: &[Case]) -> bool {
    before.len() == after.len() && before.iter().zip(after).all(|(a, b)| same_case(a, b))
}

fn same_case(a: &Case, b: &Case) -> bool {
    let (one, other) = (engine::text::parse_one(&a.text), engine::text::parse_one(&b.text));
    let codes =
        |errors: &[Diagnostic]| errors.iter().map(|error| (error.code, error.message.clone())).collect::<Vec<_>>();
    let texts = match (&one, &other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => codes(one) == codes(other),
        _ => false,
    };
    texts && bare(a) == bare(b)
}

/// A case without its texts and lines.
fn bare(case: &Case) -> Case {
    let mut case = Case { text: String::new(), line: 0, ..case.clone() };
    match &mut case.ends {
        CaseEnd::Runs => {}
        CaseEnd::Refused(all) => all.iter_mut().for_each(|spec| (spec.line, spec.at) = (spec.line.map(|_| 0), 0)),
    }
    case.schedule = case.schedule.as_deref().map(schedule::bare);
    case.expects.iter_mut().for_each(|spec| spec.line = 0);
    case.texts.iter_mut().for_each(|spec| spec.line = 0);
    case.goldens.iter_mut().for_each(|golden| golden.line = 0);
    case.outputs.iter_mut().for_each(|spec| spec.line = 0);
    case.values.iter_mut().for_each(|spec| spec.line = 0);
    if let Some(same) = &mut case.same_as {
        (same.line, same.text_line, same.text) = (0, 0, String::new());
    }
    case
}

/// A comment with its marker: directives get canonical spaces, others one
/// behind the marker.
pub(super) fn comment(text: &str) -> String {
    let marker = text.len() - text.trim_start_matches([';', '/']).len();
    let (marker, rest) = text.split_at(marker);
    match directive::find(0, text) {
        Some(Ok(raw)) if marker == ";" => {
            let body = &text[raw.body.clone()];
            let body = match raw.keyword {
                "about" => words(body),
                // A point is written as in the id.
                "schedule" | "kernel" => body.split_whitespace().collect(),
                _ => directive_body(body),
            };
            let open = if raw.keyword == "xfail" { "(" } else { ": " };
            format!("; {}{open}{body}", raw.keyword).trim_end().to_string()
        }
        _ if rest.starts_with(|c: char| c.is_alphanumeric()) => format!("{marker} {rest}"),
        _ => text.to_string(),
    }
}

/// Words with one space between them.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One space between tokens, after commas and around `=`; none inside brackets.
/// Strings stay as they are.
fn directive_body(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                out.push(c);
                while let Some(c) = chars.next() {
                    out.push(c);
                    match c {
                        '\\' => out.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            c if c.is_whitespace() => {
                let next = chars.peek().copied().unwrap_or(' ');
                if !(out.ends_with([' ', '[', '(']) || next.is_whitespace() || matches!(next, ',' | ']' | ')')) {
                    out.push(' ');
                }
            }
            ',' => {
                out.push(',');
                if chars.peek().is_some_and(|next| !next.is_whitespace()) {
                    out.push(' ');
                }
            }
            '=' if chars.peek() != Some(&'=') && !out.ends_with(['=', '<', '>', '!']) => {
                out.truncate(out.trim_end().len());
                out.push_str(" = ");
            }
            c => out.push(c),
        }
    }
    out.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn formatted(text: &str) -> Result<String, Vec<CaseError>> {
        format(&Source::new("a.fuse".into(), text.into()))
    }

    #[track_caller]
    fn check(source: &str, expected: Expect) {
        let text = formatted(source).unwrap_or_else(|errors| panic!("{errors:?}"));
        expected.assert_eq(&text);
        assert_eq!(formatted(&text).as_ref(), Ok(&text), "formatting twice");
    }

    #[test]
    fn files_get_their_form() {
        check(
            "---\nversion=1\n\n\nsuite   =\"S\" # why\nabout = \"a  b\"\n[axes]\ndtype=[\"f32\",'bf16' ]\nsize = [{m=1,n = 2},\n   { m = 3 , n = 4 },\n ]\n---\n\n\n;;note\nfusion @A( %x :$dtype[?,?] ){\n  %0 =sum %x axes( 1 ) ;;why\n return %0 }\n\n;inputs:x=normal[ $m,$n*2 ]  seed 1 ,y=3\n",
            expect![[r#"
                ---
                version = 1

                suite = "S"  # why
                about = "a  b"
                [axes]
                dtype = ["f32", 'bf16']
                size = [{ m = 1, n = 2 },
                  { m = 3, n = 4 },
                ]
                ---
                ;; note
                fusion @A(%x: $dtype[?, ?]) {
                  %0 = sum %x axes(1)  ;; why
                  return %0
                }
                ; inputs: x = normal[$m, $n*2] seed 1, y = 3
            "#]],
        );
    }

    #[test]
    fn directives_get_their_form() {
        for (given, wanted) in [
            (
                ";expect:scheduler  in(a,b) ,vector>=4,barriers ==0",
                "; expect: scheduler in(a, b), vector>=4, barriers ==0",
            ),
            ("; error: E0101 \"a  ,b=\"", "; error: E0101 \"a  ,b=\""),
            (";xfail( reason=\"a=b\" )", "; xfail(reason = \"a=b\")"),
            (";;  kept: as it is ", ";;  kept: as it is "),
            (";;word", ";; word"),
            ("//word", "// word"),
            (";kernel: a=b,  m=8", "; kernel: a=b,m=8"),
            (";| kernel  a(x,y) = 1", ";| kernel  a(x,y) = 1"),
            ("; about:  a   reason, with=signs", "; about: a reason, with=signs"),
        ] {
            assert_eq!(comment(given), wanted);
            assert_eq!(comment(wanted), wanted);
        }
    }

    #[test]
    fn wrong_files_are_refused_with_all_errors() {
        let text = "---\nversion = 1\nsuite = \"S\"\nabout = \"why\"\n---\nfusion @A(%x: f32[?]) {\n  %0 = ad %x\n  %1 = neg %y\n  return %1\n}\n; input: x = normal[4]\nfusion @B(%x: f32[?]) {\n  %0 = ad %x   ; error: E0102\n  return %x\n}\n";
        let errors = formatted(text).expect_err("wrong");
        let shown: String = errors.iter().map(|error| format!("{error}\n")).collect();
        expect![[r#"
            a.fuse:7:8: error[E0102]: unknown operation `ad`: did you mean `add`?
              note: operations are listed in cases/README.md
            a.fuse:8:12: error[E0103]: `%y` is not defined: did you mean `%0`?
            a.fuse:11:3: error[E0402]: unknown directive `input:`
              note: did you mean `inputs`? (begin a plain comment that has a colon with `;;`)
        "#]]
        .assert_eq(&shown);
        let errors = formatted(&text.replace("; input:", "; inputs:")).expect_err("wrong");
        let shown: String = errors.iter().map(|error| format!("{error}\n")).collect();
        expect![[r#"
            a.fuse:7:8: error[E0102]: unknown operation `ad`: did you mean `add`?
              note: operations are listed in cases/README.md
            a.fuse:8:12: error[E0103]: `%y` is not defined: did you mean `%0`?
        "#]]
        .assert_eq(&shown);
    }
}
