//! What the texts of generated code in case files (`schedule:`, `kernel:`) show:
//! every heuristic, kind of axis and special path must be in some of them, so that
//! no change of it goes unseen.

use harness::case::{Case, Golden, Target, load};
use std::collections::BTreeSet;
use std::path::Path;

/// Fusions with the text of their kernel, at least.
const FUSIONS: usize = 80;

/// Features that some text shows, by theme.
const SHOWN: &[(&str, &[&str])] = &[
    (
        "heuristics",
        &["scheduler pointwise", "scheduler reduction", "scheduler inner_persistent", "scheduler inner_outer"],
    ),
    ("parameters", &["1d", "2d", "inner", "outer", "aligned", "grid", "one_tile", "row_loop"]),
    ("rows that are held", &["ahead", "staged", "late", "reload"]),
    ("axes", &["split", "split exact", "split count", "split into", "merge", "align", "align by rows", "propagate"]),
    (
        "parallel axes",
        &[
            "parallelize block_x",
            "parallelize block_y",
            "parallelize grid_x",
            "parallelize grid_y",
            "parallelize unroll",
            "parallelize vectorize",
        ],
    ),
    ("memory", &["cache_after", "cache_fork", "rfactor", "inline_at", "circular_buffer", "set_cache_hint streaming"]),
    ("memory of rows", &["set_memory shared", "set_cache_hint again", "recompute_in"]),
    ("sizes of indices", &["index i32", "index i64"]),
    (
        "types in memory",
        &[
            "global f64",
            "global f32",
            "global f16",
            "global bf16",
            "global i64",
            "global i32",
            "global i8",
            "global u8",
            "global bool",
        ],
    ),
    ("types in shared memory", &["shared f32", "shared f64", "shared i32", "shared i64"]),
    ("vectors", &["move f64x2", "move f32x4", "move f16x8", "move bf16x8", "move i64x2", "move i8x16", "move boolx16"]),
    ("narrower vectors", &["move f32x2", "move bf16x4"]),
    (
        "cache hints",
        &["move.streaming f32x4", "move.streaming bf16x8", "load.streaming", "load.global", "store.global"],
    ),
    ("exchange", &["shuffle xor", "sync block", "fence grid", "atomic inc", "zeroed"]),
    (
        "roles",
        &[
            "role load",
            "role store",
            "role compute",
            "role init",
            "role accumulate",
            "role fill",
            "role block_reduce",
            "role grid_reduce",
            "role prefetch",
        ],
    ),
    ("control", &["if", "else", "for", "for unroll"]),
    ("approximations", &["exp.flush", "erf.plus_one"]),
    ("launches", &["min_blocks"]),
];

/// The features of a text of a stage.
fn features(golden: &Golden) -> BTreeSet<String> {
    let lines = golden.text.lines();
    match golden.stage.as_str() {
        "schedule" => lines.enumerate().flat_map(|(i, line)| of_step(i, line)).collect(),
        _ => lines.flat_map(of_statement).collect(),
    }
}

fn of_step(number: usize, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (first, last) = (words.first().copied().unwrap_or_default(), words.last().copied().unwrap_or_default());
    match (number, first) {
        (0, _) => vec![line.into()],
        (1, _) => {
            let pair = |pair: &[&str]| format!("{} {}", pair[0], pair[1]);
            words.iter().map(|word| word.to_string()).chain(words.windows(2).map(pair)).collect()
        }
        (_, "split") => {
            let kinds = ["count", "exact", "into"].iter().filter(|kind| words.contains(kind));
            let found: Vec<String> = kinds.map(|kind| format!("split {kind}")).collect();
            if last == "exact" { found } else { [found, vec!["split".into()]].concat() }
        }
        (_, "align") if words.contains(&"by") => vec!["align by rows".into()],
        (_, "parallelize" | "set_memory" | "set_cache_hint") => vec![format!("{first} {last}")],
        _ => vec![first.into()],
    }
}

fn of_statement(line: &str) -> Vec<String> {
    let (code, role) = line.split_once("  // ").unwrap_or((line, ""));
    let words: Vec<&str> = code.split_whitespace().collect();
    let mut found = Vec::new();
    if let Some(role) = role.split_whitespace().nth(1) {
        found.push(format!("role {role}"));
    }
    let behind = code.split_once(" = ").map_or("", |(_, value)| value);
    let is = |word: &str| behind.starts_with(word);
    match words.first().copied().unwrap_or_default() {
        "kernel" => found.push(format!("index {}", words.get(3).copied().unwrap_or_default())),
        "local" | "shared" | "global" => {
            let dtype = words.get(2).and_then(|shape| shape.split('[').next()).unwrap_or_default();
            found.push(format!("{} {dtype}", words[0]));
        }
        "let" if is("load") || is("shuffle") || is("atomic") => {
            let own: Vec<&str> = behind.split_whitespace().take(if is("load") { 1 } else { 2 }).collect();
            found.push(own.join(" "));
        }
        "for" => found.push(if words.contains(&"unroll") { "for unroll".into() } else { "for".into() }),
        "if" => found.push("if".into()),
        "else" => found.push("else".into()),
        "store" | "store.streaming" | "store.global" => found.push(words[0].into()),
        "sync" | "fence" | "atomic" => found.push(words[..2].join(" ")),
        word if word.starts_with("move") => found.push(words[..2].join(" ")),
        "launch" => {}
        _ => {}
    }
    found.extend(words.contains(&"zeroed").then(|| "zeroed".into()));
    let functions = ["exp.flush", "erf.plus_one"].into_iter().filter(|name| behind.contains(&format!("{name}(")));
    found.extend(functions.map(String::from));
    found
}

/// Every case with such texts, once.
fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    let mut cases: Vec<Case> = Vec::new();
    let mut seen = BTreeSet::new();
    for target in [Target::Sim, Target::Cuda] {
        let loaded = load(&dir, target);
        assert_eq!(loaded.errors, []);
        let shown = loaded.cases.into_iter().filter(|case| !case.goldens.is_empty());
        cases.extend(shown.filter(|case| seen.insert(case.id.clone())));
    }
    cases
}

#[test]
fn the_texts_show_every_feature() {
    let cases = cases();
    let whole = |case: &&Case| case.goldens.iter().any(|golden| golden.stage == "kernel" && !golden.text.is_empty());
    let fusions: BTreeSet<(&str, &str)> =
        cases.iter().filter(whole).map(|case| (case.file.as_str(), case.name.as_str())).collect();
    assert!(fusions.len() >= FUSIONS, "{} fusions have the text of their kernel", fusions.len());
    let found: BTreeSet<String> = cases.iter().flat_map(|case| &case.goldens).flat_map(features).collect();
    let missing: Vec<String> = SHOWN
        .iter()
        .flat_map(|(theme, names)| names.iter().map(move |name| (theme, name)))
        .filter(|(_, name)| !found.contains(**name))
        .map(|(theme, name)| format!("{theme}: {name}"))
        .collect();
    assert!(missing.is_empty(), "no text shows\n{}\nof {found:#?}", missing.join("\n"));
}
