use super::discover::load;
use super::expand::{Target, expand};
use super::model::*;
use super::source::Source;
use crate::scratch::Scratch;
use expect_test::{Expect as Snapshot, expect};

fn file(text: &str) -> Source {
    Source::new("a.fuse".into(), text.into())
}

fn check_ids(text: &str, target: Target, ids: Snapshot) {
    let (cases, errors) = expand(&file(text), target);
    assert_eq!(errors, vec![]);
    let list: Vec<String> = cases.into_iter().map(|case| case.id + "\n").collect();
    ids.assert_eq(&list.concat());
}

fn check_errors(text: &str, wanted: Snapshot) {
    let (_, errors) = expand(&file(text), Target::Sim);
    let list: Vec<String> = errors.iter().map(|error| format!("{error}\n")).collect();
    wanted.assert_eq(&list.concat());
}

const FILE: &str = r#"---
version = 1
suite   = "ResizeTest"
about   = "why"
tags    = ["resize", "scheduler"]
[axes]
dtype = ["f32", "bf16"]
size  = [{ m = 123, n = 1024, _perm = "[1, 0]" }, { m = 1, n = 7, _perm = "[0, 1]" }]
[sim]
size  = [{ m = 5, n = 33, _perm = "[1, 0]" }]
[limits]
timeout = "90s"
---
;; a comment with a colon: fine
fusion @Two(%x: $dtype[?, ?], %a: i64) {
  %0 = permute %x $_perm
  %1 = sum %0 axes(7)     ; error: E0205 "axis 7"
  return %1
}
; inputs: x = normal[$m, $n] seed 1, a = $m - 2
; check: rel 1e-5, abs 1e-6
; expect: barriers <= 2, scheduler in (reduction, resize)
; text: cuda has "__syncthreads()", lacks "atomicAdd"
; sim: schedules (lockstep, pct), seeds 3
; perf: bytes x + 0, goal dram 0.85
; xfail(reason = "no resize yet", until = "2031-01-31")
fusion @One(%x: $dtype[4]) {
  return %x
}
; inputs: x = uniform(-1, 1)[4] offset 1
"#;

#[test]
fn ids_follow_the_axes_a_fusion_names() {
    check_ids(
        FILE,
        Target::Cuda,
        expect![[r#"
            ResizeTest.Two/dtype=f32,m=123,n=1024
            ResizeTest.Two/dtype=f32,m=1,n=7
            ResizeTest.Two/dtype=bf16,m=123,n=1024
            ResizeTest.Two/dtype=bf16,m=1,n=7
            ResizeTest.One/dtype=f32
            ResizeTest.One/dtype=bf16
        "#]],
    );
    check_ids(
        FILE,
        Target::Sim,
        expect![[r#"
            ResizeTest.Two/dtype=f32,m=5,n=33
            ResizeTest.Two/dtype=bf16,m=5,n=33
            ResizeTest.One/dtype=f32
            ResizeTest.One/dtype=bf16
        "#]],
    );
}

#[test]
fn directives_are_read_with_their_lines() {
    let (cases, errors) = expand(&file(FILE), Target::Cuda);
    assert_eq!(errors, vec![]);
    let case = &cases[0];
    assert_eq!(case.line, 15);
    assert_eq!(case.timeout_ms, Some(90_000));
    assert!(case.text.contains("permute %x [1, 0]"));
    assert_eq!(case.inputs[1], ("a".into(), InputSpec::Scalar(Number::Int(121))));
    let InputSpec::Tensor(x) = &case.inputs[0].1 else { panic!("a tensor") };
    assert_eq!((x.sizes.as_slice(), x.seed), ([123, 1024].as_slice(), Some(1)));
    assert_eq!(case.check.rel.map(Real::get), Some(1e-5));
    let error = ErrorSpec { code: "E0205".into(), contains: "axis 7".into(), line: Some(17), at: 17 };
    assert_eq!(case.refusals(), [error]);
    assert_eq!(case.expects[1].op, Relation::In);
    assert_eq!(case.expects[1].values, ["reduction", "resize"]);
    assert_eq!((case.texts[1].stage.as_str(), case.texts[1].present), ("cuda", false));
    assert_eq!((case.sim.schedules.len(), case.sim.seeds), (2, 3));
    assert_eq!(case.perf.as_ref().map(|p| p.bytes.clone()), Some(vec!["x".into(), "0".into()]));
    assert_eq!(case.xfail.as_ref().map(|x| x.until.as_str()), Some("2031-01-31"));
    let InputSpec::Tensor(x) = &cases[4].inputs[0].1 else { panic!("a tensor") };
    assert_eq!(x.layout.offset, 1);
}

const RESULTS: &str = r#"---
version = 1
suite   = "S"
about   = "the file's reason"
[axes]
n     = [3, 4]
shift = [{ _by = "1" }, { _by = "2" }]
---
fusion @A(%x: f32[?]) {
  %0 = neg %x
  return %0
}
; about: $n elements, for: a reason
; inputs: x = normal[$n]
; expect: host = 0
; outputs: f32[$n] strides [1], bool[]
; values: [1, -2.5, nan, true, 1.5-2i, nan+infi, ...], []
; same-as: @B
fusion @B(%x: f32[?]) {
  %0 = sub $_by, %x
  return %0
}
; inputs: x = normal[4]
"#;

#[test]
fn results_are_read() {
    let (cases, errors) = expand(&file(RESULTS), Target::Sim);
    assert_eq!(errors, vec![]);
    // The axes of the twin count too; a hidden one would repeat the id, which loading refuses.
    assert_eq!(cases.len(), 4 + 2);
    let case = &cases[3];
    assert_eq!(case.about, "4 elements, for: a reason");
    assert_eq!(cases[4].about, "the file's reason");
    assert_eq!(case.expects[0].fact, "host");
    let form = OutputSpec { line: 16, dtype: "f32".into(), sizes: vec![4], strides: Some(vec![1]) };
    assert_eq!(case.outputs[0], form);
    assert_eq!((case.values[0].values.len(), case.values[0].open, case.values[1].open), (6, true, false));
    assert_eq!(case.values[0].values[4], Number::Complex(Real::new(1.5), Real::new(-2.0)));
    let same = case.same_as.as_ref().expect("a twin");
    assert_eq!((same.name.as_str(), same.text_line), ("B", 19));
    assert!(same.text.contains("sub 2, %x"), "{}", same.text);
}

#[test]
fn hidden_fusions_are_no_cases() {
    let text = RESULTS.replace("@B", "@_B");
    check_ids(
        &text.replace("shift = [{ _by = \"1\" }, { _by = \"2\" }]", "shift = [{ _by = \"1\" }]"),
        Target::Sim,
        expect![[r#"
            S.A/n=3
            S.A/n=4
        "#]],
    );
    check_errors(
        &text.replace("; same-as: @_B\n", ""),
        expect![[r#"
        a.fuse:18:1: error[E0401]: `@_B` is no case, and no fusion is the same as it
          note: a name without `_` in front makes it a case
    "#]],
    );
}

#[test]
fn results_that_cannot_hold_are_refused() {
    let head = "---\nversion = 1\nsuite = \"S\"\nabout = \"why\"\n---\nfusion @A(%x: f32[?]) {\n  return %x\n}\n";
    let lines = "; expect: unsupported U0101\n; outputs: f23[1]\n; outputs: f32[1, 2] strides [1]\n; values: [..., 1]\n; same-as: B\n; about:\n";
    check_errors(
        &format!("{head}{lines}"),
        expect![[r#"
            a.fuse:9:11: error[E0402]: unknown fact `unsupported`
              note: what no kernel computes runs on the host: `expect: host = 1`
            a.fuse:10:12: error[E0402]: unknown data type `f23`
              note: did you mean `f32`?
            a.fuse:11:12: error[E0402]: one stride for each of 2 axes is needed
            a.fuse:12:17: error[E0402]: `...` ends the list
            a.fuse:13:12: error[E0402]: expected the name of another fusion of this file, such as `@Other`
            a.fuse:14:9: error[E0402]: expected the reason of this case
        "#]],
    );
    let lines = "; error: E0203\n; values: [1]\n; same-as: @A\n";
    check_errors(
        &format!("{head}{lines}"),
        expect![[r#"
        a.fuse:9:9: error[E0402]: a case that must be refused has no results to speak of
        a.fuse:11:11: error[E0402]: the file has no other fusion `@A`
    "#]],
    );
    check_errors(
        &head.replace("about = \"why\"\n", ""),
        expect![[r#"
        a.fuse:2:1: error[E0401]: `about = "..."` is missing: say why these cases exist
    "#]],
    );
}

#[test]
fn cases_travel_as_json() {
    let (cases, _) = expand(&file(FILE), Target::Cuda);
    for case in cases {
        let text = serde_json::to_string(&case).expect("serialises");
        assert_eq!(serde_json::from_str::<Case>(&text).expect("reads"), case);
    }
}

#[test]
fn all_errors_come_at_once_with_their_places() {
    check_errors(
        r#"---
version = 2
sute = "X"
[axes]
dtype = ["f32", "a/b"]
unused = [1]
[sim]
dtpe = ["f32"]
[limits]
timeout = "soon"
[require]
device = ["gpu"]
---
; inputs: x = normal[1]
fusion @A(%x: $dtype[?]) {
  return %x
}
; input: x = normal[1]
; inputs: x = norml[1]
; inputs: y = normal[2] strides [1, 2]
; inputs: y = normal[2 +]
; expect: schedular = pointwise
; error: E9999
; check: rel -1
; sim: schedules (fifo)
; xfail(issue = "1")
"#,
        expect![[r#"
            a.fuse:2:1: error[E0401]: `about = "..."` is missing: say why these cases exist
            a.fuse:2:1: error[E0401]: `suite = "..."` is missing
            a.fuse:2:1: error[E0401]: case format version 2 is not known; this harness reads version 1
            a.fuse:3:1: error[E0401]: unknown field `sute`
              note: did you mean `suite`?
            a.fuse:5:17: error[E0401]: the value `a/b` of `dtype` cannot stand in a case id
              note: use letters, digits and `_.+-`, or a key that starts with `_`, which stays out of the id
            a.fuse:6:1: error[E0401]: no fusion of the file uses the axis `unused`
            a.fuse:8:1: error[E0401]: unknown axis in [sim] `dtpe`
              note: did you mean `dtype`?
            a.fuse:10:11: error[E0401]: `soon` is not a duration such as "60s" or "500ms"
            a.fuse:12:10: error[E0401]: unknown device `gpu`
              note: known: sim, cuda, ref
            a.fuse:14:10: error[E0402]: a directive stands before the first fusion
              note: directives follow the fusion that they belong to
            a.fuse:18:3: error[E0402]: unknown directive `input:`
              note: did you mean `inputs`? (begin a plain comment that has a colon with `;;`)
            a.fuse:19:15: error[E0402]: unknown distribution `norml`
              note: did you mean `normal`?
            a.fuse:20:15: error[E0402]: 2 strides for 1 axes
            a.fuse:21:25: error[E0402]: expected an integer expression, found `]`
            a.fuse:22:11: error[E0402]: unknown fact `schedular`
              note: did you mean `scheduler`?
            a.fuse:23:10: error[E0402]: `E9999` is not a diagnostic code
              note: codes are listed by `harness explain`
            a.fuse:24:10: error[E0402]: a tolerance is a finite number that is not negative
            a.fuse:25:19: error[E0402]: unknown schedule `fifo`
              note: known: lockstep, random, pct, adversary
            a.fuse:26:9: error[E0402]: an expected failure needs its reason: xfail(reason = "...")
        "#]],
    );
}

#[test]
fn broken_frames_are_refused() {
    check_errors(
        "fusion @A() {}\n",
        expect![[r#"
            a.fuse:1:1: error[E0401]: the first line must be `---`, the start of the front matter
              note: ---\nversion = 1\nsuite = "PointwiseTest"\nabout = "why"\n---
        "#]],
    );
    check_errors(
        "---\nversion = 1\n",
        expect![[r#"
        a.fuse:1:1: error[E0401]: the front matter is not closed by a second `---` line
    "#]],
    );
    check_errors(
        "---\nversion = 1\nsuite = \"A\"\nabout = \"why\"\n---\n",
        expect![[r#"
            a.fuse:6:1: error[E0401]: the file has no `fusion @Name(...)`
        "#]],
    );
    check_errors(
        "",
        expect![[r#"
            a.fuse:1:1: error[E0401]: the first line must be `---`, the start of the front matter
              note: ---\nversion = 1\nsuite = "PointwiseTest"\nabout = "why"\n---
        "#]],
    );
    check_errors(
        "---\nversion = 1\nsuite = \"A\"\nabout = \"why\"\n[axes]\na = [1, 2]\nb = 1\n---\nfusion @A($a $b $c) {}\n; inputs: x = $d\n",
        expect![[r#"
            a.fuse:7:5: error[E0401]: axis `b` must be an array of values or of tables
        "#]],
    );
}

#[test]
fn too_many_ids_are_refused_before_they_are_made() {
    let axis: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    let axis = axis.join(", ");
    check_errors(
        &format!(
            "---\nversion = 1\nsuite = \"A\"\nabout = \"why\"\n[axes]\na = [{axis}]\nb = [{axis}]\nc = [{axis}]\n---\nfusion @A($a $b $c) {{}}\n"
        ),
        expect![[r#"
            a.fuse:10:1: error[E0403]: the file expands to more than 4096 ids
              note: split the file or its axes
        "#]],
    );
}

#[test]
fn files_outside_and_oversized_are_refused() {
    let dir = Scratch::new("discover");
    let cases = dir.join("cases");
    std::fs::create_dir_all(cases.join("sub")).expect("folders");
    let good = |suite: &str| format!("---\nversion = 1\nsuite = \"{suite}\"\nabout = \"why\"\n---\nfusion @A() {{}}\n");
    std::fs::write(dir.join("outside.fuse"), good("Out")).expect("write");
    std::os::unix::fs::symlink(dir.join("outside.fuse"), cases.join("link.fuse")).expect("link");
    std::fs::write(cases.join("b.fuse"), good("Same")).expect("write");
    std::fs::write(cases.join("sub/a.fuse"), good("Same")).expect("write");
    std::fs::write(cases.join("big.fuse"), vec![b' '; 1 + (1 << 20)]).expect("write");
    std::fs::write(cases.join("latin.fuse"), b"---\xff").expect("write");
    let loaded = load(&cases, Target::Sim);
    let text: Vec<String> =
        loaded.errors.iter().map(|e| e.to_string().replace(&*cases.to_string_lossy(), "cases") + "\n").collect();
    assert_eq!(loaded.cases.len(), 1);
    expect![[r#"
        cases/link.fuse: error[E0405]: the file is a link that leaves the case folder
          note: copy what it points to inside
        cases/big.fuse: error[E0403]: the file has 1048577 bytes, more than 1048576
          note: split it
        cases/latin.fuse: error[E0401]: the file is not UTF-8 from byte 3 on
          note: save it as UTF-8
        cases/sub/a.fuse:6:1: error[E0404]: the id `Same.A` is already taken by cases/b.fuse:6
          note: rename the suite, the fusion or an axis value
    "#]]
    .assert_eq(&text.concat());
}

#[test]
fn reading_never_panics() {
    crate::property::property(|u| {
        let pieces = [
            "---\n",
            "version = 1\n",
            "suite = \"A\"\nabout = \"why\"\n",
            "[axes]\n",
            "a = [1, 2]\n",
            "a = [{m=1,n=2}]\n",
            "fusion @A(",
            "$a",
            "${m}",
            "$",
            "\n; inputs: x = normal[",
            "]",
            "seed 3",
            ",",
            "; check: rel ",
            "1e-3",
            "\n; expect: ",
            "barriers = 1",
            "; xfail(",
            "reason = \"x\"",
            ")",
            "ö",
            "\n",
            "\"",
            "(",
            "-",
            "9223372036854775807",
            " * ",
        ];
        let mut text = String::from("---\nversion = 1\nsuite = \"A\"\nabout = \"why\"\n");
        for _ in 0..u.int_in_range(0..=30)? {
            text.push_str(u.choose(&pieces)?);
        }
        let _ = expand(&file(&text), Target::Sim);
        Ok(())
    });
}

#[test]
fn expansion_is_bounded() {
    let file_of = |axes: &str, body: &str, more: &str| {
        format!(
            "---\nversion = 1\nsuite = \"A\"\nabout = \"why\"\n[axes]\n{axes}\n---\nfusion @B(%x: f32[?]) {{\n  return %x\n}}\n; inputs: x = normal[$n]\n{body}{more}\n"
        )
    };
    let long = "x".repeat(40_000);
    let check = |text: String, part: &str| {
        let (cases, errors) = expand(&file(&text), Target::Sim);
        assert_eq!(cases.len(), 0);
        assert!(errors.iter().any(|error| error.code == "E0403" && error.message.contains(part)), "{errors:?}");
    };
    let wide = format!("n = [1]\nv = [{{ m = 1, _v = \"{long}\" }}]");
    check(file_of(&wide, &";; $_v\n".repeat(40), ""), "1048576 bytes once");
    let numbers: Vec<String> = (1..=4000).map(|n| n.to_string()).collect();
    let many = format!("n = [{}]\nv = [{{ m = 1, _v = \"{long}\" }}]", numbers.join(", "));
    check(file_of(&many, ";; $_v\n", ""), "67108864 bytes of text");
    check(file_of("n = [1]", "", "; sim: schedules (lockstep, random), seeds 64"), "65 simulated runs");
}
