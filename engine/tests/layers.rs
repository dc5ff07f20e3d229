//! Rules of the source text that no compiler checks: modules use only modules
//! above them, and nothing in the engine has ambient state.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The modules of the engine; each may use those before it.
const LAYERS: [&str; 17] = [
    "util", "num", "diag", "options", "tensor", "array", "fusion", "text", "pydef", "refeval", "scalar", "kernel",
    "idgraph", "schedule", "lower", "backend", "runtime",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The lines of a file that are neither comments nor tests, with their numbers.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line))
        .take_while(|(_, line)| line.trim_start() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The modules that a line names as `crate::module`, also in a group `crate::{a::X, b}`.
fn named_modules(line: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (position, _) in line.match_indices("crate::") {
        let rest = &line[position + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group.split(',').map(|item| word(item.trim()))),
            None => found.push(word(rest)),
        }
    }
    found
}

/// Whether the whole file is tests: `tests.rs`, in a folder `tests`, or what they share, `checks.rs`.
fn is_test(file: &Path) -> bool {
    let inside = file.strip_prefix(engine_sources()).unwrap_or(file);
    inside.ends_with("tests.rs")
        || inside.ends_with("checks.rs")
        || inside.components().any(|part| part.as_os_str() == "tests")
}

fn engine_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn modules_use_only_modules_above_them() {
    let rank: BTreeMap<&str, usize> = LAYERS.into_iter().enumerate().map(|(i, name)| (name, i)).collect();
    let root = engine_sources();
    let mut violations = Vec::new();
    for file in sources(&root) {
        let inside = file.strip_prefix(&root).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let own = first.trim_end_matches(".rs");
        if own == "lib" || is_test(&file) {
            continue;
        }
        let Some(&own_rank) = rank.get(own) else {
            violations.push(format!("{}: module {own} is not in the table", inside.display()));
            continue;
        };
        for (number, line) in code_lines(&std::fs::read_to_string(&file).unwrap()) {
            for module in named_modules(line) {
                if rank.get(module.as_str()).is_some_and(|&other| other > own_rank) {
                    violations.push(format!("{}:{number}: {own} uses {module}, which is below it", inside.display()));
                }
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_engine_has_no_ambient_state() {
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
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut violations = Vec::new();
    for root in [manifest.join("src"), manifest.join("simcore/src")] {
        for file in sources(&root) {
            if is_test(&file) {
                continue;
            }
            let inside = file.strip_prefix(manifest).unwrap().display();
            for (number, line) in code_lines(&std::fs::read_to_string(&file).unwrap()) {
                let text = line.trim_start();
                if let Some(word) = forbidden.iter().find(|word| text.contains(*word)) {
                    violations.push(format!("{inside}:{number}: {word}"));
                }
                let is_static = text.starts_with("static ") || text.starts_with("pub static ");
                if is_static && interior.iter().any(|word| text.contains(word)) {
                    violations.push(format!("{inside}:{number}: a static with interior mutability"));
                }
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_scanner_sees_what_it_must() {
    assert_eq!(named_modules("use crate::num::{DType};"), ["num"]);
    assert_eq!(named_modules("use crate::{diag::Result, fusion};"), ["diag", "fusion"]);
    assert_eq!(named_modules("let x: crate::lower::T = crate::util::f();"), ["lower", "util"]);
    let text = "use a;\n// crate::x\n#[cfg(test)]\nuse crate::runtime;";
    assert_eq!(code_lines(text).collect::<Vec<_>>(), [(1, "use a;")]);
}
