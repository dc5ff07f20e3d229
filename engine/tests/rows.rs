//! Facts of an operation stand in its row alone: nothing else in the engine, nor what
//! reads and checks definitions above it, asks which operation it is by the row's
//! name, so that a new row is asked for all that others must know of it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::source::{code, files};
use std::path::Path;

/// Whether a line of code compares the name of a row, or looks it up in a list.
fn asks_by_name(line: &str) -> bool {
    ["row.name", "row().name"].iter().flat_map(|field| line.match_indices(field)).any(|(at, field)| {
        let (before, after) = (&line[..at], line[at + field.len()..].trim_start());
        let path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '&' | '(' | ')');
        let words = before.trim_end_matches(path);
        let asked = &before[words.len()..];
        let compared = after.starts_with("==") || after.starts_with("!=") || words.trim_end().ends_with("==");
        let matched = words.trim_end().ends_with("match") || words.ends_with("matches!");
        compared || matched || asked.contains(".contains(") || asked.contains("matches(")
    })
}

#[test]
fn only_the_table_asks_for_an_operation_by_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut violations = Vec::new();
    // The harness has other tables with rows; definitions are its only concern with these.
    for room in ["src", "pydef/src", "../harness/src/import"] {
        let all = files(&root.join(room));
        assert!(!all.is_empty(), "{room} is not there");
        for file in all {
            let inside = file.strip_prefix(root).unwrap();
            if inside.starts_with("src/fusion/ops") {
                continue;
            }
            let text = code(&std::fs::read_to_string(&file).unwrap());
            let asking = text.lines().enumerate().filter(|(_, line)| asks_by_name(line));
            violations.extend(asking.map(|(i, line)| format!("{}:{}: {}", inside.display(), i + 1, line.trim())));
        }
    }
    assert!(violations.is_empty(), "put the fact into the row:\n{}", violations.join("\n"));
}

#[test]
fn the_scanner_sees_every_way_to_ask() {
    for line in [
        "if call.row.name == NAME {",
        "OpKind::Call(call) if NAME == call.row.name => {}",
        "args.row().name != NAME",
        "match given.row.name {",
        "let picked = match call.row.name {",
        "matches!(call.row.name, A | B)",
        "MOMENTS.contains(&row.name)",
    ] {
        assert!(asks_by_name(line), "{line}");
    }
    for line in
        ["format!(TEXT, call.row.name)", "let name = row.name;", "all.map(|row| row.name)", "b(args.row().name, 1)"]
    {
        assert!(!asks_by_name(line), "{line}");
    }
}
