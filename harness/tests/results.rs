//! Directives about results, driven through the binary: what the reference must
//! give, what must be refused, and that a mark goes when it is out of date.

use crate::place;
use std::path::Path;
use std::process::Command;

const FILE: &str = r#"---
version = 1
suite = "S"
about = "trial"
---
fusion @Marked(%x: f32[?, ?], %y: f32[?, ?]) {
  %0 = tanh %x
  %1 = exp2 %y
  return %0, %1
}
; inputs: x = normal[3, 8], y = full(1)[5, 2]
; expect: unsupported U0101
; outputs: f32[3, 8], f32[5, 2] strides [2, 1]
; values: [...], [2.0, 2, ...]
; same-as: @OtherMeans

fusion @OtherMeans(%x: f32[?, ?], %y: f32[?, ?]) {
  %0 = neg %x
  %1 = tanh %0
  %2 = neg %1
  %3 = exp2 %y
  return %2, %3
}
; inputs: x = normal[3, 8], y = normal[5, 2]
; expect: unsupported U0101

fusion @WrongResults(%x: f32[?]) {
  %0 = neg %x
  return %0
}
; inputs: x = full(2)[4]
; outputs: f32[5]
; values: [-2, -2, -2, 2]
; same-as: @Twice

fusion @Twice(%x: f32[?]) {
  %0 = mul %x, -2
  return %0
}
; inputs: x = full(2)[4]

fusion @OldMark(%x: f32[?]) {
  %0 = neg %x
  return %0
}
; inputs: x = normal[4]
; expect: unsupported U0101

fusion @OtherMark(%x: f32[?, ?], %y: f32[?, ?]) {
  %0 = neg %x
  %1 = exp2 %y
  return %0, %1
}
; inputs: x = normal[3, 8], y = normal[5, 2]
; expect: unsupported U0104
"#;

/// Runs the file; the text and the exit code.
fn run(name: &str, device: &[&str]) -> (String, Option<i32>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("results-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let file = dir.join("a.fuse");
    std::fs::write(&file, FILE).expect("writes");
    let out = place::unswayed(&mut Command::new(env!("CARGO_BIN_EXE_harness")))
        .args(device)
        .args(["--format", "plain", "--cases"])
        .arg(&file)
        .arg("--results")
        .arg(dir.join("results"))
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    std::fs::remove_dir_all(&dir).expect("removes");
    (text, out.status.code())
}

#[track_caller]
fn check_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}

/// What holds of results holds on every device.
const WRONG_RESULTS: [&str; 5] = [
    "FAIL S.WrongResults  (fail.reference",
    "%0 is f32[4], stated as f32[5]",
    "%0 is not what `values:` states",
    "first at [3]: -2.0, expected 2.0",
    "%0 is not that of @Twice",
];

#[test]
fn the_reference_is_held_to_results() {
    let (text, code) = run("ref", &["--ref"]);
    check_has(&text, &WRONG_RESULTS);
    check_has(&text, &["5 passed, 1 failed, 0 skipped"]);
    assert_eq!(code, Some(100));
}

#[test]
fn marks_are_held_to_what_compiles() {
    let (text, code) = run("sim", &["--sim", "1"]);
    check_has(&text, &WRONG_RESULTS);
    check_has(
        &text,
        &[
            "FAIL S.OldMark  (fail.supported",
            "this runs now, by the pointwise scheduler: remove `expect: unsupported U0101`",
            "FAIL S.OtherMark  (fail.unsupported",
            "the case is marked `expect: unsupported U0104`",
            "3 passed, 3 failed, 0 skipped",
        ],
    );
    assert_eq!(code, Some(100));
}
