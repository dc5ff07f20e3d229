//! Directives about results, driven through the binary: what the reference must
//! give, what must be refused, and who computed what passes.

use crate::place::{self, Place, check};
use serde_json::Value;
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
    check_has(&text, &["3 passed, 1 failed, 0 skipped"]);
    assert_eq!(code, Some(100));
}

#[test]
fn results_hold_on_every_device() {
    let (text, code) = run("sim", &["--sim", "1"]);
    check_has(&text, &WRONG_RESULTS);
    check_has(&text, &["3 passed, 1 failed, 0 skipped"]);
    assert_eq!(code, Some(100));
}

/// A case of each way to pass: a kernel, kernels and the host, the host, nothing to compute, a refusal.
const WAYS: &str = r#"---
version = 1
suite = "Ways"
about = "what a pass may rest on"
---
fusion @Runs(%x: f32[?]) {
  %0 = neg %x
  return %0
}
; inputs: x = normal[4]

fusion @Both(%x: f32[?], %i: i64[?]) {
  %0 = abs %x
  %1 = cast %0 f8e8m0fnu
  %2 = index_put_accumulate %1, %i, %1
  return %2
}
; inputs: x = uniform(1, 2)[4], i = randint(0, 3)[4]
; expect: segments = 2, kernels = 1, host = 1

fusion @OnHost(%x: f8e8m0fnu[?], %i: i64[?]) {
  %0 = index_put_accumulate %x, %i, %x
  return %0
}
; inputs: x = uniform(1, 2)[4], i = randint(0, 3)[4]
; expect: host = 1

fusion @Empty(%x: f32[?]) {
  %0 = neg %x
  return %0
}
; inputs: x = normal[0]

fusion @Refused(%x: f32[?]) {
  %0 = add %x, %x, %x
  return %0
}
; inputs: x = normal[4]
; error: E0201
"#;

#[test]
fn a_pass_says_what_it_rests_on() {
    let place = Place::empty("ways");
    place.file("cases/ways.fuse", WAYS);
    let ran = "of those that passed: 1 on the host alone, 1 ran as kernels, 1 as kernels and on the host, 1 launched nothing, 1 refused as required";
    check(
        &place,
        &["--sim", "1", "--cases", "cases", "--results", "results"],
        0,
        &[ran, "5 passed, 0 failed, 0 skipped"],
    );
    let verdicts: Vec<Value> = place.records().into_iter().filter(|record| record["k"] == "verdict").collect();
    let by = |id: &str| &verdicts.iter().find(|record| record["case_id"] == id).expect("a verdict")["passed_by"];
    assert_eq!(
        [by("Ways.Runs"), by("Ways.Both"), by("Ways.OnHost"), by("Ways.Refused")],
        ["kernel", "kernels_and_host", "host", "refused_as_required"]
    );
    let end = place.records().pop().expect("an end");
    assert_eq!(end["summary"]["passed_by"]["kernels_and_host"], 1, "{end}");
    let report =
        |form: &str, parts: &[&str]| check(&place, &["report", "--format", form, "--results", "results"], 0, parts);
    report("md", &["Of those that passed: 1 on the host alone, 1 ran as kernels"]);
    report("csv", &["Ways.Both,pass,pass,kernels_and_host,", "Ways.Runs,pass,pass,kernel,"]);
    let xml = report("junit", &["<property name=\"passed_by.kernel\" value=\"1\"/>"]);
    let document = roxmltree::Document::parse(&xml).expect("well-formed");
    let case = document.descendants().find(|node| node.attribute("name") == Some("Both")).expect("a case");
    let told = case.descendants().find(|node| node.has_tag_name("property")).expect("a property");
    assert_eq!(told.attribute("value"), Some("kernels_and_host"));
    check(&place, &["store", "info", "--results", "results"], 0, &[ran]);
    let referred = "of those that passed: 4 ran on the reference only, 1 refused as required";
    check(&place, &["--ref", "--cases", "cases", "--results", "results"], 0, &[referred]);
}
