//! Rules of the source text that no compiler checks: modules use only modules
//! above them, so that there is no circle among them, and nothing in the engine
//! has ambient state. Every line that is built into the library is looked at.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::source::{Named, code, files, named};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The table of modules in `ARCHITECTURE.md`, which is the order that holds: each
/// may use those before it.
fn layers() -> Vec<String> {
    let map = std::fs::read_to_string(manifest().join("../ARCHITECTURE.md")).unwrap();
    let table = map.split("Modules of `engine/src`, from the ground up.").nth(1).unwrap();
    let rows =
        table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let mut modules: Vec<String> = Vec::new();
    for row in rows {
        // `backend::cuda` and `backend::sim` are one module here.
        let name = row.split('`').nth(1).unwrap().split("::").next().unwrap();
        if modules.last().is_none_or(|last| last != name) {
            modules.push(name.into());
        }
    }
    modules
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the whole file is tests: `tests.rs`, in a folder `tests`, or what they share.
fn is_test(path: &str) -> bool {
    let shared = ["tests.rs", "random_tests.rs", "checks.rs", "samples.rs", "tests"];
    path.split('/').any(|part| shared.contains(&part))
}

/// The code of the library below a folder of the engine, by path below it.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = manifest().join(folder);
    let paths = files(&root).into_iter().map(|file| {
        let path = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        (path, code(&std::fs::read_to_string(&file).unwrap()))
    });
    paths.filter(|(path, _)| !is_test(path)).collect()
}

/// What is wrong in the code of one file: `path` is that below `src`.
fn violations(layers: &[String], path: &str, code: &str) -> Vec<String> {
    let rank: BTreeMap<&str, usize> = layers.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let Some(own) = rank.get(parts[0]) else {
        return vec![format!("{path}: module {} is not in the table", parts[0])];
    };
    let depth = parts.iter().filter(|part| **part != "mod").count();
    let wrong = |Named { line, module }: Named| match rank.get(module.as_str()) {
        Some(other) if other <= own => None,
        Some(_) => Some(format!("{path}:{line}: {} uses {module}, which is below it", parts[0])),
        None => Some(format!("{path}:{line}: module {module} is not in the table")),
    };
    named(code, depth).into_iter().filter_map(wrong).collect()
}

#[test]
fn modules_use_only_modules_above_them() {
    let layers = layers();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (path, code) in sources("src") {
        if path == "lib.rs" {
            continue;
        }
        seen.insert(path.split('/').next().unwrap().trim_end_matches(".rs").to_string());
        found.extend(violations(&layers, &path, &code));
    }
    found.extend(layers.iter().filter(|name| !seen.contains(*name)).map(|name| format!("there is no module {name}")));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Words that only ambient state needs, in the code of one file.
fn ambient(path: &str, code: &str) -> Vec<String> {
    let forbidden = [
        "std::env",
        "env::var",
        "static mut ",
        "thread_local!",
        "lazy_static!",
        "Instant::now",
        "SystemTime::now",
        "set_current_dir",
    ];
    let interior = ["Mutex<", "RwLock<", "OnceLock<", "LazyLock<", "Atomic", "RefCell<", "OnceCell<"];
    let mut found = Vec::new();
    for (i, line) in code.lines().enumerate() {
        let number = i + 1;
        if let Some(word) = forbidden.iter().find(|word| line.contains(*word)) {
            found.push(format!("{path}:{number}: {word}"));
        }
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if words.next() == Some("static") && interior.iter().any(|word| line.contains(word)) {
            found.push(format!("{path}:{number}: a static with interior mutability"));
        }
    }
    found
}

#[test]
fn the_engine_has_no_ambient_state() {
    let roots = ["src", "simcore/src", "pydef/src"];
    let all = roots.iter().flat_map(|root| sources(root));
    let found: Vec<String> = all.flat_map(|(path, code)| ambient(&path, &code)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[track_caller]
fn check(path: &str, text: &str, wanted: &[&str]) {
    let layers: Vec<String> = ["util", "fusion", "kernel", "lower", "runtime"].map(String::from).to_vec();
    let code = code(text);
    let mut found = violations(&layers, path, &code);
    found.extend(ambient(path, &code));
    assert_eq!(found, wanted, "{text}");
}

#[test]
fn the_scanner_sees_what_it_must() {
    check("kernel/ir.rs", "use crate::fusion::F;\nuse crate::{util, kernel::x};", &[]);
    check("kernel/ir.rs", "let x: crate::lower::T;", &["kernel/ir.rs:1: kernel uses lower, which is below it"]);
    check("kernel/ir.rs", "use super::super::runtime;", &["kernel/ir.rs:1: kernel uses runtime, which is below it"]);
    check("kernel/ir.rs", "use crate::cellar;", &["kernel/ir.rs:1: module cellar is not in the table"]);
    check("cellar.rs", "", &["cellar.rs: module cellar is not in the table"]);
    // What follows a test is code again.
    let tests = "use crate::util;\n#[cfg(test)]\nmod tests {\n  use crate::runtime;\n}\n";
    check("kernel/ir.rs", tests, &[]);
    check(
        "kernel/ir.rs",
        &format!("{tests}use crate::lower;"),
        &["kernel/ir.rs:6: kernel uses lower, which is below it"],
    );
    check("kernel/ir.rs", &format!("{tests}fn f() {{ std::env::var(a); }}"), &["kernel/ir.rs:6: std::env"]);
    check("kernel.rs", "pub(crate) static X: Mutex<u8> = a;", &["kernel.rs:1: a static with interior mutability"]);
    check("kernel.rs", "// std::env\nlet text = \"std::env\";", &[]);
    assert!(layers().len() > 10 && layers()[0] == "util", "{:?}", layers());
}

/// What is wrong with the tests in a file: a test that passes without having tested
/// says so to nobody; and what a test needs, its name says as well as its reason, so
/// that a machine that has it can ask for it: `cargo test -- --ignored needs_nvrtc`.
fn silent(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let number = i + 1;
        if line.contains("return eprintln!(") || line.contains("return println!(") {
            found.push(format!("{path}:{number}: a test that only prints passes: it is ignored, or it fails"));
        }
        if line.trim_start().starts_with("#[ignore = \"needs ") {
            let name = lines[i..].iter().find_map(|line| line.split("fn ").nth(1)).unwrap_or_default();
            // A file of such tests has the word in its own name.
            if !name.starts_with("needs_") && !path.ends_with("/gpu.rs") {
                found.push(format!("{path}:{number}: its name does not begin with needs_"));
            }
        }
    }
    found
}

#[test]
fn no_test_passes_without_testing() {
    let root = manifest().join("..");
    let mut found = Vec::new();
    for folder in ["engine", "harness"] {
        for file in files(&root.join(folder)) {
            let path = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            if path != "engine/tests/layers.rs" {
                found.extend(silent(&path, &std::fs::read_to_string(&file).unwrap()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(silent("a.rs", "#[ignore = \"needs x\"]\nfn needs_x_a() {}\n#[ignore = \"long\"]\nfn b() {}"), [""; 0]);
    assert_eq!(silent("a.rs", "#[ignore = \"needs x\"]\nfn a() {\n  return println!(\"no\");\n}").len(), 2);
}
