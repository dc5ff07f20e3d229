//! Failed cases as files of their own, ready to run and to be moved into `cases/`.

use crate::case::Case;
use crate::outcome::Outcome;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Files of one run; a suite that fails as a whole needs no more.
const MAX_FILES: usize = 200;

/// Writes the case, with every axis replaced by its value, below `dir`. `None`
/// for built-in cases and beyond the limit.
pub(super) fn write(dir: &Path, case: &Case, outcome: &Outcome, written: usize) -> io::Result<Option<PathBuf>> {
    if case.fault.is_some() || written >= MAX_FILES {
        return Ok(None);
    }
    std::fs::create_dir_all(dir)?;
    // The id's checksum: ids hold characters that file names should not.
    let path = dir.join(format!("{}-{:08x}.fuse", case.name, crc32fast::hash(case.id.as_bytes())));
    std::fs::write(&path, text(case, outcome))?;
    Ok(Some(path))
}

fn text(case: &Case, outcome: &Outcome) -> String {
    let mut text = format!("---\nversion = 1\nsuite = {}\ntags = {}\n", quoted(&case.suite), array(&case.tags));
    let about = format!("{} from {}:{}: {}", case.id, case.file, case.line, outcome.outcome);
    let _ = writeln!(text, "about = {}", quoted(&about));
    if let Some(ms) = case.timeout_ms {
        let _ = writeln!(text, "[limits]\ntimeout = \"{ms}ms\"");
    }
    let require = &case.require;
    if *require != Default::default() {
        text.push_str("[require]\n");
        if !require.device.is_empty() {
            let _ = writeln!(text, "device = {}", array(&require.device));
        }
        if let Some(arch) = require.arch {
            let _ = writeln!(text, "arch = {arch}");
        }
        if let Some(bytes) = require.memory {
            let _ = writeln!(text, "memory = \"{bytes}B\"");
        }
    }
    let _ = write!(text, "---\n{}\n", case.text.trim_end());
    if let Some(same) = &case.same_as {
        // Only the fusion that was compared with: what that one is the same as is left behind.
        let lines = same.text.trim_end().lines().filter(|line| !line.contains("same-as:"));
        let _ = writeln!(text, "{}", lines.collect::<Vec<_>>().join("\n"));
    }
    text
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

fn array(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Target, load};
    use crate::scratch::Scratch;

    #[test]
    fn a_written_case_is_the_case() {
        let dir = Scratch::new("repro");
        let source = "---\nversion = 1\nsuite = \"S\"\nabout = \"why\"\ntags = [\"a-b\", \"c_1.2\"]\n[axes]\nm = [1, 2]\n[limits]\ntimeout = \"9s\"\n[require]\narch = 90\nmemory = \"1GiB\"\ndevice = [\"sim\"]\n---\nfusion @A(%x: f32[?]) {\n  return %x\n}\n; inputs: x = normal[$m]\n; check: rel 1e-3\n; same-as: @B\nfusion @B(%x: f32[?]) {\n  return %x\n}\n; inputs: x = normal[$m]\n; same-as: @A\n";
        std::fs::write(dir.join("a\"\\ü.fuse"), source).expect("writes");
        let case = load(&dir, Target::Sim).cases.remove(1);
        let out = dir.join("out");
        let path = write(&out, &case, &Outcome::fail("fail.numerics", "x"), 0).expect("writes").expect("a path");
        let loaded = load(&path, Target::Sim);
        assert_eq!(loaded.errors, vec![]);
        let again = &loaded.cases[0];
        assert_eq!((again.id.as_str(), &again.inputs, again.check), ("S.A", &case.inputs, case.check));
        assert_eq!(again.about, format!("{} from {}:15: fail.numerics", case.id, case.file));
        assert!(case.file.ends_with("a\"\\ü.fuse"), "{}", case.file);
        assert_eq!(quoted("\u{7}\u{7f}\"\n"), r#""\u0007\u007F\"\u000A""#);
        assert_eq!(again.same_as.as_ref().map(|same| same.name.as_str()), Some("B"));
        assert_eq!((&again.require, again.timeout_ms, &again.tags), (&case.require, case.timeout_ms, &case.tags));
    }
}
