//! `fmt` as a user runs it: what it lists, what it writes, what it leaves alone.
//! And the canonical form means the same: case files of the corpus, with
//! their spaces torn apart, come back as they were.

use crate::draws;
use crate::place::Place;
use std::path::{Path, PathBuf};

const LOOSE: &str = "---\nversion=1\nsuite = \"S\"\nabout = \"why\"\n[axes]\nn=[1,2]\n---\n\n\nfusion @A( %x:f32[?] ){\n%0=neg   %x ;; kept\n return %0}\n\n;inputs:x=normal[ $n ]\n";
const CANONICAL: &str = "---\nversion = 1\nsuite = \"S\"\nabout = \"why\"\n[axes]\nn = [1, 2]\n---\nfusion @A(%x: f32[?]) {\n  %0 = neg %x  ;; kept\n  return %0\n}\n; inputs: x = normal[$n]\n";

#[test]
fn files_are_listed_then_written() {
    let place = Place::empty("write");
    place.file("cases/loose.fuse", LOOSE);
    place.file("cases/good.fuse", &CANONICAL.replace("\"S\"", "\"T\""));
    assert_eq!(place.run(&["fmt", "--check"]), (1, "cases/loose.fuse\n".into()));
    assert_eq!(place.read("cases/loose.fuse"), LOOSE, "`--check` writes nothing");
    assert_eq!(place.run(&["fmt", "cases/good.fuse"]), (0, String::new()));
    assert_eq!(place.run(&["fmt"]), (0, "cases/loose.fuse\n".into()));
    assert_eq!(place.read("cases/loose.fuse"), CANONICAL);
    assert_eq!(place.run(&["fmt", "--check"]), (0, String::new()));
    assert_eq!(std::fs::read_dir(place.path("cases")).expect("a folder").count(), 2, "nothing is left beside");
}

#[test]
fn files_with_errors_are_left_alone() {
    let place = Place::empty("wrong");
    let wrong = LOOSE.replace("neg ", "ngg ").replace("%0}", "%1}");
    place.file("cases/wrong.fuse", &wrong);
    place.file("cases/loose.fuse", &LOOSE.replace("\"S\"", "\"T\""));
    let (code, text) = place.run(&["fmt"]);
    assert_eq!(code, 96, "{text}");
    for part in
        ["cases/loose.fuse\n", "wrong.fuse:11:4: error[E0102]", "did you mean `neg`", "wrong.fuse:12:9: error[E0103]"]
    {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    assert_eq!(place.read("cases/wrong.fuse"), wrong);
    let (code, text) = place.run(&["list", "--check"]);
    assert_eq!(code, 2, "{text}");
}

#[test]
fn the_corpus_comes_back_from_any_spacing() {
    let place = Place::empty("corpus");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    let mut files = Vec::new();
    collect(&corpus, &mut files);
    assert!(files.len() >= 40, "{} files", files.len());
    // By the sums of their names, so that a new file puts no other into the place of an old one.
    let step = draws::step(files.len() as u64);
    let name = |file: &PathBuf| file.strip_prefix(&corpus).expect("of the corpus").to_string_lossy().into_owned();
    files.retain(|file| u64::from(crc32fast::hash(name(file).as_bytes())).is_multiple_of(step));
    for (number, file) in files.iter().enumerate() {
        let text = std::fs::read_to_string(file).expect("reads");
        place.file(&format!("cases/{number}.fuse"), &loosened(&text));
    }
    let (code, text) = place.run(&["fmt"]);
    assert_eq!(code, 0, "{text}");
    for (number, file) in files.iter().enumerate() {
        let text = std::fs::read_to_string(file).expect("reads");
        assert_eq!(place.read(&format!("cases/{number}.fuse")), text, "{}", file.display());
    }
}

fn collect(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|ext| ext == "fuse") {
            out.push(path);
        }
    }
}

/// Other spaces in the code of fusions, and empty lines between directives.
fn loosened(text: &str) -> String {
    let mut fences = 0;
    let mut out = String::new();
    for line in text.lines() {
        fences += usize::from(line == "---");
        let (code, comment) = line.split_at(line.find(';').unwrap_or(line.len()));
        match (fences, code.trim().is_empty(), comment.is_empty()) {
            (0 | 1, ..) | (_, true, true) => out.push_str(line),
            (_, false, _) if line.starts_with("---") => out.push_str(line),
            (_, true, false) => out.push_str(comment),
            (_, false, _) => {
                let code = code.trim().replace(", ", " ,  ").replace(" = ", "=").replace('(', "( ");
                out.push_str(&format!("\t{code}    {comment}"));
            }
        }
        out.push('\n');
        // `fusion` starts a fusion at the start of a line only.
        if let Some(at) = out.rfind("\tfusion ") {
            out.remove(at);
        }
    }
    out
}
