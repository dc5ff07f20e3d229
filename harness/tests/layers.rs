//! Rules of the source text that no compiler checks: a room of the harness uses only
//! rooms above it in the table, so that there is no circle among them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../engine/tests/source/mod.rs"]
mod source;

use source::{Named, code, files, named};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rooms of the harness, from the ground up; each may use those before it.
const ROOMS: [&str; 33] = [
    // Words and numbers, without any other room.
    "escape",
    "exit",
    "units",
    "rng",
    "stats",
    "console",
    // What cases are, what the system gives, what came of a run.
    "case",
    "os",
    "crumb",
    "outcome",
    "code_cache",
    "verified",
    "frame",
    "proto",
    // Records and what is made of them.
    "gate",
    "record",
    "report",
    "bless",
    "evidence",
    "select",
    // Machines, and the process that runs a case.
    "device",
    "compilers",
    "worker",
    "measure",
    "replay",
    // Who runs them all, and what is made of that.
    "dispatch",
    "background",
    "flake",
    "corpus",
    "import",
    "cli",
    // Of tests alone.
    "scratch",
    "property",
];

/// What is wrong in one file: `path` is that below `src`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let rank: BTreeMap<&str, usize> = ROOMS.into_iter().enumerate().map(|(i, name)| (name, i)).collect();
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let Some(own) = rank.get(parts[0]) else {
        return vec![format!("{path}: the room {} is not in the table", parts[0])];
    };
    let depth = parts.iter().filter(|part| **part != "mod").count();
    let wrong = |Named { line, module }: Named| match rank.get(module.as_str()) {
        Some(other) if other <= own => None,
        Some(_) => Some(format!("{path}:{line}: {} uses {module}, which is below it", parts[0])),
        None => Some(format!("{path}:{line}: the room {module} is not in the table")),
    };
    named(&code(text), depth).into_iter().filter_map(wrong).collect()
}

/// Whether the whole file is tests.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests.rs" | "tests" | "acceptance.rs"))
}

#[test]
fn rooms_use_only_rooms_above_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for file in files(&root) {
        let path = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        if matches!(path.as_str(), "lib.rs" | "main.rs") || is_test(&path) {
            continue;
        }
        seen.insert(path.split('/').next().unwrap().trim_end_matches(".rs").to_string());
        found.extend(violations(&path, &std::fs::read_to_string(&file).unwrap()));
    }
    // Outside of this crate's sources.
    seen.insert("property".into());
    found.extend(ROOMS.iter().filter(|room| !seen.contains(**room)).map(|room| format!("there is no room {room}")));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[track_caller]
fn check(path: &str, text: &str, wanted: &[&str]) {
    assert_eq!(violations(path, text), wanted, "{text}");
}

#[test]
fn a_room_that_uses_one_below_is_found() {
    check("record/store.rs", "use crate::case::Case;\nuse super::events;\nuse crate::os::{self, FileLock};", &[]);
    check(
        "record/store.rs",
        "\n  crate::cli::print(text);",
        &["record/store.rs:2: record uses cli, which is below it"],
    );
    let group = "use crate::{\n    case::{Case, cli},\n    dispatch::{self, Job},\n};";
    check("record/mod.rs", group, &["record/mod.rs:1: record uses dispatch, which is below it"]);
    check("os.rs", "use super::evidence::area;", &["os.rs:1: os uses evidence, which is below it"]);
    check("os/crash.rs", "use super::evidence;", &[]);
    check("os/crash.rs", "use super::super::evidence;", &["os/crash.rs:1: os uses evidence, which is below it"]);
    check(
        "os/mod.rs",
        "mod a {\n use super::super::cli::x;\n}\nuse super::cli;",
        &["os/mod.rs:2: os uses cli, which is below it", "os/mod.rs:4: os uses cli, which is below it"],
    );
    check("os.rs", "use crate::cellar::wine;", &["os.rs:1: the room cellar is not in the table"]);
    check("cellar/wine.rs", "", &["cellar/wine.rs: the room cellar is not in the table"]);
}

#[test]
fn tests_comments_and_literals_are_no_code_and_what_follows_them_is() {
    let below = |line: usize| format!("os.rs:{line}: os uses cli, which is below it");
    let quiet = [
        "// use crate::cli;\n/* crate::cli */ /// [`crate::cli`]",
        "let text = \"crate::cli \\\" crate::cli\";",
        "let text = r#\"crate::cli \" crate::cli\"#;",
        "#[cfg(test)]\nuse crate::cli::{self, x};",
        "#[cfg(test)]\nmod tests {\n use crate::cli;\n let c = '}';\n let s = \"}\";\n use crate::cli;\n}",
        "#[cfg(test)]\n#[path = \"a.rs\"]\npub(crate) mod tests;",
        "#[cfg(test)]\nfn f<'a>(x: &'a [u8; 3]) -> char { crate::cli::f(x); '{' }",
    ];
    for text in quiet {
        check("os.rs", text, &[]);
        let line = text.lines().count() + 1;
        check("os.rs", &format!("{text}\nuse crate::cli;"), &[&below(line)]);
    }
    // What is no item is code.
    check("os.rs", "#[cfg(test)]\nx: crate::cli::X,", &[&below(2)]);
}

/// Files of a folder of tests that no binary has: neither one of the package's binaries
/// nor a module of `integration.rs`. Nothing else would tell, since packages list theirs.
fn unused_tests(package: &Path) -> Vec<String> {
    let read = |file: &str| std::fs::read_to_string(package.join(file)).unwrap();
    let (manifest, integration) = (read("Cargo.toml"), read("tests/integration.rs"));
    let name = |path: &std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let is_used = |name: &String| {
        manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"))
            || integration.contains(&format!("\nmod {name};\n"))
    };
    let tests = package.join("tests");
    let own = files(&tests).into_iter().filter(|path| path.parent() == Some(&tests));
    own.map(|path| name(&path)).filter(|name| !is_used(name)).collect()
}

#[test]
fn every_file_of_tests_is_in_a_binary() {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    for package in [harness, &harness.join("../engine")] {
        let unused = unused_tests(package);
        assert!(unused.is_empty(), "no binary of {} has {unused:?}", package.display());
    }
}
