//! The table of diagnostic codes: every code that sources and cases name has a
//! row, every row is named by some source, and every example that can be run
//! gives its code.

use engine::diag::{CODES, Example};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Standard output and error of the harness, run in a folder of its own.
fn harness(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_harness")).args(args).current_dir(root()).output().expect("runs");
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// Every file below a folder with one of these endings.
fn files(dir: &Path, endings: &[&str], out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, endings, out);
        } else if path.extension().is_some_and(|ext| endings.iter().any(|ending| ext == *ending)) {
            out.push(path);
        }
    }
}

/// Words of the form of a code in a text.
fn codes_in(text: &str) -> BTreeSet<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c: char| !word(c))
        .filter(|word| {
            let digits = word.strip_prefix(['E', 'U', 'B']).unwrap_or_default();
            digits.len() == 4 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
        })
        .collect()
}

#[test]
fn every_code_that_is_named_has_a_row() {
    let mut sources = Vec::new();
    for dir in ["engine/src", "engine/pydef/src", "engine/simcore/src", "harness/src", "cases", "results"] {
        files(&root().join(dir), &["rs", "fuse", "md"], &mut sources);
    }
    let rows: BTreeSet<&str> = CODES.iter().map(|info| info.code.0).collect();
    for path in sources {
        let text = std::fs::read_to_string(&path).expect("reads");
        let unknown: Vec<_> = codes_in(&text).into_iter().filter(|code| !rows.contains(code)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?} have no row in diag/codes.rs", path.display());
    }
}

#[test]
fn every_row_is_used() {
    let mut sources = Vec::new();
    for dir in ["engine/src", "engine/pydef/src", "harness/src"] {
        files(&root().join(dir), &["rs"], &mut sources);
    }
    sources.retain(|path| !path.ends_with("diag/codes.rs"));
    let text: String = sources.iter().map(|path| std::fs::read_to_string(path).expect("reads")).collect();
    let table = std::fs::read_to_string(root().join("engine/src/diag/codes.rs")).expect("reads");
    for info in CODES {
        // The row starts with the constant: `NAME = "E0101", ...`.
        let row = table.find(&format!(" = \"{}\"", info.code)).expect("a row");
        let name = table[..row].rsplit(|c: char| c.is_whitespace()).next().expect("a name");
        assert!(text.contains(&format!("code::{name}")), "nothing gives {} ({name}): remove its row", info.code);
    }
}

/// What `explain` shows below an example, or the output of its command.
fn outcome(code: &str, example: Example) -> Option<String> {
    match example {
        Example::Words(_) => None,
        Example::Command(words) => Some(harness(&words.split(' ').collect::<Vec<_>>())),
        Example::Fusion(_) | Example::File(_) => {
            let text = harness(&["explain", code]);
            let (_, shown) = text.split_once("\ngives\n").expect("an outcome");
            Some(shown.to_string())
        }
    }
}

#[test]
fn examples_give_their_codes() {
    let mut run = 0;
    for info in CODES {
        let Some(text) = outcome(info.code.0, info.example) else { continue };
        let given = codes_in(&text);
        assert_eq!(given, BTreeSet::from([info.code.0]), "the example of {} gives\n{text}", info.code);
        run += 1;
    }
    assert!(run >= 30, "{run} examples were run");
}

#[test]
fn unknown_codes_are_refused_with_the_nearest() {
    let text = harness(&["explain", "E0130"]);
    assert!(text.contains("error[E0506]: there is no diagnostic code `E0130`"), "{text}");
    assert!(text.contains("did you mean `E0103`?"), "{text}");
    assert!(harness(&["explain", "e0103"]).starts_with("E0103: "));
    let table = harness(&["explain"]);
    assert!(CODES.iter().all(|info| table.contains(info.code.0)), "{table}");
}
