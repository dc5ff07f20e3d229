//! Crashes that are the same. Two keys: a *leaf* for the same place in the
//! code, and a *family* for the same kind of end in the same part of the work,
//! which a crash point that moves does not leave.
//!
//! Both keys come from names only, never from addresses, lines, ids of threads
//! or times, so that they stay the same over runs and builds of the same code.

use crate::crumb::Own;
use crate::outcome::{Death, Frame, Outcome};

/// The project's own calls that make a leaf.
const CALLS: usize = 5;

/// What a failure has in common with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// The leaf's key, 16 hexadecimal digits.
    pub(crate) leaf: String,
    /// The family's name: `crash.sigsegv in compile`.
    pub(crate) family: String,
    /// The calls of the leaf, innermost first.
    pub(crate) calls: Vec<String>,
    pub(crate) cuda_error: String,
}

impl Bucket {
    /// Of a crash, hang, panic or device error; no others are of this kind.
    pub(crate) fn of(outcome: &Outcome, death: Option<&Death>) -> Option<Self> {
        let class = outcome.outcome.as_str();
        let kind = ["crash.", "hang.", "timeout.", "gpu.", "panic.", "oom.", "fail.cuda", "fail.sanitizer."];
        if death.is_none() && !kind.iter().any(|start| class.starts_with(start)) {
            return None;
        }
        let none = Vec::new();
        let frames = death.map_or(&none, |death| match death.frames.is_empty() {
            // The thread where the case is comes first.
            true => death.stacks.first().map_or(&none, |stack| &stack.frames),
            false => &death.frames,
        });
        let mut calls = calls(frames);
        if calls.is_empty() && class == "panic.rust" {
            calls.extend(panic_place(&outcome.detail));
        }
        let phase = death.map(|death| death.crumb.phase.as_str()).or_else(|| last_phase(outcome)).unwrap_or_default();
        let family = match part(phase) {
            "" => class.to_string(),
            part => format!("{class} in {part}"),
        };
        let cuda_error = outcome.cuda_error.as_ref().map_or_else(String::new, |error| error.name.clone());
        let leaf = format!("{:016x}", fnv(&format!("{family}|{}|{cuda_error}", calls.join("|"))));
        Some(Self { leaf, family, calls, cuda_error })
    }
}

/// The part of the work that a phase belongs to.
fn part(phase: &str) -> &'static str {
    match phase {
        "inputs" | "reference" | "compare" => "check",
        "parse" => "front",
        "plan" | "schedule" | "lower" | "codegen" => "compile",
        "load" | "upload" | "launch" | "verify" | "download" | "bench" => "run",
        "idle" | "begin" | "report" => "worker",
        _ => "",
    }
}

/// The last phase that a living worker entered, by the order of phases.
fn last_phase(outcome: &Outcome) -> Option<&str> {
    // Each case is reported, whatever it did before.
    let told = |name: &&str| *name != Own::Report.name() && outcome.phases.contains_key(*name);
    crate::crumb::phase_names().filter(told).last()
}

/// The first calls of our own functions, by name; one for a function that calls itself.
fn calls(frames: &[Frame]) -> Vec<String> {
    let mut calls: Vec<String> = frames.iter().filter(|frame| frame.is_ours()).map(call).collect();
    calls.dedup();
    calls.truncate(CALLS);
    calls
}

/// A function by the path of its source and its last name, which an inlined and
/// an ordinary copy have in common.
fn call(frame: &Frame) -> String {
    let symbol = without_generics(frame.symbol.as_deref().unwrap_or_default());
    let mut parts = symbol.rsplit("::").filter(|part| !part.is_empty() && !part.contains("closure"));
    let name = parts.next().unwrap_or_default().to_string();
    match frame.file.as_deref().and_then(module_path) {
        Some(module) => format!("{module}::{name}"),
        None => symbol,
    }
}

/// `.../harness/src/worker/fault/mod.rs` is `harness::worker::fault`.
fn module_path(file: &str) -> Option<String> {
    let (before, after) = file.rsplit_once("/src/")?;
    let krate = before.rsplit('/').next()?;
    let inner = after.strip_suffix(".rs")?.trim_end_matches("/mod");
    let inner = if inner == "lib" || inner == "mod" { "" } else { inner };
    let path = format!("{krate}/{inner}").trim_end_matches('/').replace('/', "::");
    Some(path)
}

/// A symbol without what stands between `<` and `>`, except where a type starts it.
fn without_generics(symbol: &str) -> String {
    let mut depth = 0usize;
    let mut out = String::new();
    for (at, c) in symbol.char_indices() {
        match c {
            '<' if at == 0 => out.push(c),
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// The source file of a panic's message: `panicked at FILE:LINE:COLUMN:`.
fn panic_place(detail: &str) -> Option<String> {
    let at = detail.split("panicked at ").nth(1)?;
    let file = at.split(':').next()?;
    Some(module_path(&format!("/{file}")).unwrap_or_else(|| file.into()))
}

/// FNV-1a of 64 bits: keys must not change with a library's version.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crumb::Crumb;
    use crate::outcome::Verdict;

    fn frame(symbol: &str, file: &str, line: u32) -> Frame {
        Frame {
            module: "harness".into(),
            symbol: Some(symbol.into()),
            file: (!file.is_empty()).then(|| file.into()),
            line: Some(line),
            offset: u64::from(line),
        }
    }

    fn bucket(outcome: &str, phase: &str, frames: Vec<Frame>) -> Bucket {
        let crumb = Crumb { phase: phase.into(), ..Crumb::default() };
        let death = Death { crumb, frames, ..Death::default() };
        Bucket::of(&Outcome::of(Verdict::Crash, outcome, ""), Some(&death)).expect("a bucket")
    }

    #[test]
    fn the_same_code_has_the_same_key() {
        let passes = "/home/a/engine/src/passes/fold.rs";
        let ordinary = vec![
            frame("core::ptr::read", "/rustc/1/library/core/src/ptr/mod.rs", 9),
            frame("engine::passes::fold::Folder<T>::fold_one::{{closure}}", passes, 12),
            frame("engine::passes::fold::run", passes, 90),
        ];
        // Another build: inlined, elsewhere, other lines, a short name.
        let inlined = vec![
            frame("fold_one<engine::ir::Value>", "/b/engine/src/passes/fold.rs", 14),
            frame("run", "/b/engine/src/passes/fold.rs", 77),
        ];
        let one = bucket("crash.sigsegv", "lower", ordinary.clone());
        assert_eq!(one, bucket("crash.sigsegv", "schedule", inlined));
        assert_eq!(one.calls, ["engine::passes::fold::fold_one", "engine::passes::fold::run"]);
        assert_eq!(one.family, "crash.sigsegv in compile");
        // A crash point that moves: another leaf of one family.
        let moved = bucket("crash.sigsegv", "schedule", ordinary[2..].to_vec());
        assert_eq!(moved.family, one.family);
        assert_ne!(moved.leaf, one.leaf);
        let elsewhere = bucket("crash.sigsegv", "launch", ordinary);
        assert_ne!((elsewhere.family, elsewhere.leaf), (one.family, one.leaf));
    }

    #[test]
    fn only_ends_of_workers_have_one() {
        assert!(Bucket::of(&Outcome::fail("fail.numerics", ""), None).is_none());
        let panic = Outcome::fail("panic.rust", "panicked at engine/src/a/mod.rs:3:9:\nindex");
        assert_eq!(Bucket::of(&panic, None).expect("one").calls, ["engine::a"]);
    }
}
