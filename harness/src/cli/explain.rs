//! `explain`: what a diagnostic code means, with an example and what becomes
//! of it; without a code, the table of all.

use super::Failure;
use super::args::Args;
use crate::case::{Case, Target, read_text};
use crate::console::print;
use crate::{exit, worker};
use engine::diag::{CODES, CodeInfo, Diagnostic, DiagnosticKind, Example, code, render};
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::Session;
use engine::text::nearest;
use std::fmt::Write;

/// Columns of running text.
const WIDTH: usize = 88;

pub(super) fn explain(args: &Args) -> Result<u8, Failure> {
    match args.operand() {
        None => print(&table()),
        Some(word) => print(&explanation(find(word)?)),
    }
    Ok(exit::OK)
}

/// Every code with its title, by kind.
fn table() -> String {
    let mut text = String::new();
    for kind in [DiagnosticKind::User, DiagnosticKind::Unsupported, DiagnosticKind::Bug] {
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}{}", kind_text(kind));
        for info in CODES.iter().filter(|info| info.code.kind() == kind) {
            let _ = writeln!(text, "  {}  {}", info.code, info.summary);
        }
    }
    text.push_str("\n`harness explain CODE` says more about one of them\n");
    text
}

fn kind_text(kind: DiagnosticKind) -> &'static str {
    match kind {
        DiagnosticKind::User => "error: the input is wrong",
        DiagnosticKind::Unsupported => "unsupported: the input is right, this version cannot do it",
        DiagnosticKind::Bug => "bug: a defect of this program",
    }
}

/// The code that a word names, in any case of letters.
fn find(word: &str) -> Result<&'static CodeInfo, Failure> {
    let upper = word.to_ascii_uppercase();
    CODES.iter().find(|info| info.code.0 == upper).ok_or_else(|| {
        let error = Diagnostic::user(code::USAGE, format!("there is no diagnostic code `{word}`"));
        let near = nearest(&upper, CODES.iter().map(|info| info.code.0));
        let error = near.into_iter().fold(error, |error, near| error.note(format!("did you mean `{near}`?")));
        Failure::diagnostic(exit::USAGE, &error.note("`harness explain` lists all codes"))
    })
}

fn explanation(info: &CodeInfo) -> String {
    let mut text = format!("{}: {}\n{}\n\n", info.code, info.summary, kind_text(info.code.kind()));
    wrap(info.why, &mut text);
    let _ = write!(text, "\nWay out: {}\n", info.help);
    match info.example {
        Example::Words(words) => {
            text.push_str("\nFor example:\n");
            wrap(words, &mut text);
        }
        Example::Fusion(body) => {
            let _ = write!(text, "\nFor example:\n\n{}", indented(body));
            if let Some(case) = example_case(body) {
                let _ = write!(text, "\ngives\n\n{}", indented(&refusals(&case)));
            }
        }
        Example::File(body) => {
            let (_, errors) = read_text("example.fuse", body, Target::Sim);
            let shown: String = errors.iter().map(|error| format!("{error}\n")).collect();
            let _ = write!(text, "\nFor example, a file with\n\n{}\ngives\n\n{}", indented(body), indented(&shown));
        }
        Example::Command(words) => {
            let _ = write!(text, "\nFor example: harness {words}\n");
        }
    }
    text
}

/// The case of an example's fusion.
fn example_case(body: &str) -> Option<Case> {
    let file = format!("---\nversion = 1\nsuite = \"Example\"\nabout = \"an example\"\n---\n{body}\n");
    let mut case = read_text("example.fuse", &file, Target::Sim).0.pop()?;
    // The front matter is not shown.
    case.line = 1;
    Some(case)
}

/// What is said about a case, from reading it to its kernel.
fn refusals(case: &Case) -> String {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    worker::examine(case, &session).iter().map(|error| render(error, &case.file, &case.text, case.line)).collect()
}

fn indented(body: &str) -> String {
    body.lines().map(|line| format!("    {line}").trim_end().to_string() + "\n").collect()
}

/// Fills lines with words.
fn wrap(words: &str, out: &mut String) {
    let mut column = 0;
    for word in words.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}
