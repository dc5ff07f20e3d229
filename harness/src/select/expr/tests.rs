//! Tests of the expression language.

use super::{FilterExpr, FilterSubject};
use crate::case::{ArgLayout, Case, Dist, InputSpec, Real, TensorSpec};
use crate::outcome::Last;
use arbtest::arbitrary::{Result, Unstructured};
use expect_test::{Expect, expect};
use std::collections::{BTreeMap, BTreeSet};

fn tensor(sizes: &[i64]) -> InputSpec {
    let dist = Dist::Full(Real::new(1.0));
    InputSpec::Tensor(TensorSpec { dist, sizes: sizes.to_vec(), seed: None, layout: ArgLayout::default() })
}

fn case() -> Case {
    let mut case = Case {
        id: "ResizeTest.SliceScheduler2/dtype=bf16,m=1024".into(),
        suite: "ResizeTest".into(),
        tags: vec!["resize".into(), "scheduler".into()],
        file: "cases/resize/slice.fuse".into(),
        inputs: vec![("x".into(), tensor(&[4, 5])), ("y".into(), tensor(&[6]))],
        timeout_ms: Some(2000),
        ..Case::default()
    };
    case.require.arch = Some(90);
    case.require.device = vec!["cuda".into()];
    case
}

fn changed() -> BTreeMap<String, BTreeSet<String>> {
    [("HEAD~2".to_string(), [case().id].into()), ("main".to_string(), BTreeSet::new())].into()
}

fn last(outcome: &str) -> Last {
    Last { outcome: outcome.into(), dur_ns: Some(150_000_000), runs: 7 }
}

#[track_caller]
fn check_on(text: &str, last: Option<&Last>, wanted: bool) {
    let expr = FilterExpr::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let (case, changed) = (case(), changed());
    let subject = FilterSubject { case: &case, last, quarantined: true, changed: &changed };
    assert_eq!(expr.matches(&subject), wanted, "{text}, read as {expr}");
}

#[track_caller]
fn check(text: &str, wanted: bool) {
    check_on(text, Some(&last("crash.sigsegv")), wanted);
}

#[test]
fn conditions_hold_or_do_not() {
    check("all", true);
    check("none", false);
    check("name(*Scheduler*)", true);
    check("name(ResizeTest.SliceScheduler2/dtype=bf16,m=1024)", true);
    check("name(Resize)", false);
    check("name(\"*m=1024\") & suite(Resize*)", true);
    check("tag(resize)", true);
    check("tag(res)", false);
    check("file(slice.fuse) & file(resize/*) & file(cases/resize/slice.fuse)", true);
    check("file(ze/slice.fuse)", false);
    check("device(cuda) & !device(sim)", true);
    check("last(crash) & last(pass, crash) & last(crash.sigsegv) & last(crash.*)", true);
    check("last(pass) | last(never) | last(fail.*)", false);
    check("quarantined & !perf & !refusal & !xfail", true);
    check("dur > 100ms & dur <= 0.15s & dur=150000us & dur < 1m", true);
    check("dur != 150ms", false);
    check("arch >= 90 & arch < 100 & memory = 0B & gpus = 0 & timeout == 2s", true);
    check("inputs >= 2 & rank = 2 & elements = 26 & runs > 6 & elements < 1e3 & elements < 1k", true);
    check("axis(m) = 1024 & axis(m) > 999 & axis(m) < 2e3 & axis(dtype) = bf16 & axis(dtype) != f32", true);
    check("axis(k) = 1 | axis(k) != 1", false);
    check("changed(HEAD~2) & !changed(main) & !changed(\"HEAD\")", true);
    check("tag(res*)&!last(pass)|none", true);
    check("not tag(resize) or tag(scheduler) and tag(resize)", true);
    check("none & none | all", true);
    check("none & (none | all)", false);
    check("!!all && !(!all || none)", true);
    check("\n all \t", true);
}

/// What is not there compares as false, and never ran.
#[test]
fn absent_things_compare_as_false() {
    for (text, wanted) in [
        ("dur > 0s | dur <= 0s | dur != 1s", false),
        ("last(never)", true),
        ("last(pass, fail)", false),
        ("runs = 0", true),
    ] {
        check_on(text, None, wanted);
    }
}

#[track_caller]
fn check_error(text: &str, wanted: Expect) {
    let error = FilterExpr::parse(text).expect_err(text);
    wanted.assert_eq(&error.to_string());
}

#[test]
fn mistakes_have_a_place_and_a_way_out() {
    check_error(
        "tag(resize) & nmae(A*)",
        expect![[r#"
        error[E0504]: there is no condition `nmae`
          -E tag(resize) & nmae(A*)
                           ^^^^ did you mean `name`?"#]],
    );
    check_error(
        "dur > 5GiB | tag(x)",
        expect![[r#"
        error[E0504]: `dur` is compared with a time such as 100ms or 1.5s
          -E dur > 5GiB | tag(x)
                   ^^^^ `5GiB` is none"#]],
    );
    check_error(
        "tag(x) tag(y)",
        expect![[r#"
        error[E0504]: two conditions without `&` or `|` between them
          -E tag(x) tag(y)
                    ^^^ `&` for both, `|` for any"#]],
    );
    check_error(
        "tag(x",
        expect![[r#"
        error[E0504]: `tag(` is not closed
          -E tag(x
                  ^ `)` should stand here"#]],
    );
    check_error(
        "(tag(x) | all",
        expect![[r#"
        error[E0504]: a `)` is missing
          -E (tag(x) | all
             ^ it is not closed"#]],
    );
    check_error(
        "all)",
        expect![[r#"
        error[E0504]: a `)` that nothing opened
          -E all)
                ^ remove it, or open it before"#]],
    );
    check_error(
        "all &",
        expect![[r#"
        error[E0504]: the expression ends where a condition should stand
          -E all &
                  ^ for example: tag(resize)"#]],
    );
    check_error(
        "  ",
        expect![[r#"
        error[E0504]: the expression is empty
          -E   
             ^^ for example: tag(resize) & !last(pass)"#]],
    );
    check_error(
        "last(passed)",
        expect![[r#"
        error[E0504]: `last` does not know `passed`
          -E last(passed)
                  ^^^^^^ did you mean `pass`?"#]],
    );
    check_error(
        "dur 5s",
        expect![[r#"
        error[E0504]: `dur` is compared with something
          -E dur 5s
                 ^^ one of = != < <= > >="#]],
    );
    check_error(
        "dur >",
        expect![[r#"
        error[E0504]: a value should stand here
          -E dur >
                  ^ for example: dur > 100ms, axis(m) = 1024"#]],
    );
    check_error(
        "arch >= 1e999",
        expect![[r#"
        error[E0504]: `arch` is compared with a number such as 2 or 1e6
          -E arch >= 1e999
                     ^^^^^ `1e999` is none"#]],
    );
    check_error(
        "device(gpu)",
        expect![[r#"
        error[E0504]: there is no device `gpu`
          -E device(gpu)
                    ^^^ known: sim, cuda, ref"#]],
    );
    check_error(
        "name()",
        expect![[r#"
        error[E0504]: `name()` is empty
          -E name()
                  ^ `*` matches anything"#]],
    );
    check_error(
        "name(\"a",
        expect![[r#"
        error[E0504]: a quote is not closed
          -E name("a
                  ^ `"` is missing behind it"#]],
    );
    check_error(
        "tag",
        expect![[r#"
        error[E0504]: `tag` needs parentheses
          -E tag
                ^ for example: tag(...)"#]],
    );
    check_error(
        "frobnicate",
        expect![[r#"
        error[E0504]: there is no condition `frobnicate`
          -E frobnicate
             ^^^^^^^^^^
          note: known: name, suite, tag, file, device, quarantined, perf, refusal, xfail, dur, timeout, arch, memory, gpus, inputs, rank, elements, runs, last, changed, axis, all, none"#]],
    );
    check_error(
        "all \u{1b}[31m",
        expect![[r#"
        error[E0504]: the expression holds the control character '\u{1b}'
          -E all \x1b[31m
                 ^^^^ remove it"#]],
    );
    check_error(
        "ünknown(x)",
        expect![[r#"
        error[E0504]: a condition should stand here
          -E ünknown(x)
             ^^^^^^^ for example: name(*Scheduler*), dur > 100ms"#]],
    );
}

/// Words that no case has are mistakes, not empty selections.
#[test]
fn words_are_held_against_the_cases() {
    let cases = [case()];
    let checked =
        |text: &str| FilterExpr::parse(text).and_then(|expr| expr.check(&cases)).map_err(|error| error.to_string());
    assert_eq!(checked("tag(res*) & suite(ResizeTest) & axis(m) > 1 & name(nothing)"), Ok(()));
    let error = checked("all | tag(resise)").expect_err("no such tag");
    expect![[r#"
        error[E0504]: no case has the tag `resise`
          -E all | tag(resise)
                   ^^^^^^^^^^^ did you mean `resize`?"#]]
    .assert_eq(&error);
    assert!(checked("suite(Rezise*)").is_err() && checked("!axis(n) = 1").is_err());
}

#[test]
fn size_and_depth_are_bounded() {
    let nested = |depth: usize| format!("{}all{}", "(".repeat(depth), ")".repeat(depth));
    assert!(FilterExpr::parse(&nested(64)).is_ok());
    check_error(
        &nested(65),
        expect![[r#"
        error[E0504]: parentheses are nested deeper than 64
          -E ...((((((((((((((((((((((((((((((((((((all)))))))))))))))))))))))))))))))...
                                                   ^ flatten the expression"#]],
    );
    assert!(FilterExpr::parse(&nested(100_000)).expect_err("too long").to_string().contains("--from-file"));
    let many = ["name(A*)"; 1400].join(" | ");
    let (case, changed) = (case(), changed());
    let subject = FilterSubject { case: &case, last: None, quarantined: false, changed: &changed };
    assert!(!FilterExpr::parse(&many).expect("flat").matches(&subject));
    assert!(FilterExpr::parse(&format!("{}all", "!".repeat(15_000))).is_ok());
    assert!(FilterExpr::parse(&"(!".repeat(8000)).is_err());
}

/// A random expression as text.
fn arbitrary(u: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    let leaf = [
        "all",
        "none",
        "tag(resize)",
        "changed(HEAD~2)",
        "perf",
        "dur > 100ms",
        "axis(m) = 1024",
        "last(crash)",
        "arch < 90",
    ];
    let choice = if depth == 0 { 0 } else { u.int_in_range(0..=4)? };
    Ok(match choice {
        1 => format!("!{}", arbitrary(u, depth - 1)?),
        2 => format!("({} & {})", arbitrary(u, depth - 1)?, arbitrary(u, depth - 1)?),
        3 => format!("({}|{})", arbitrary(u, depth - 1)?, arbitrary(u, depth - 1)?),
        4 => format!("( {} )", arbitrary(u, depth - 1)?),
        _ => (*u.choose(&leaf)?).into(),
    })
}

/// The canonical text reads back as the same tree, and the laws of logic hold.
#[test]
fn texts_round_trip_and_logic_holds() {
    let (case, last, changed) = (case(), last("crash.sigsegv"), changed());
    let subject = FilterSubject { case: &case, last: Some(&last), quarantined: false, changed: &changed };
    crate::property::property(|u| {
        let (a, b) = (arbitrary(u, 5)?, arbitrary(u, 5)?);
        let parsed = FilterExpr::parse(&a).expect("good");
        let again = FilterExpr::parse(&parsed.to_string()).expect("canonical");
        assert_eq!(parsed.root, again.root, "{a}");
        let value = |text: &str| FilterExpr::parse(text).expect("good").matches(&subject);
        let (left, right) = (value(&a), value(&b));
        assert_eq!(value(&format!("{a} & {b}")), left && right);
        assert_eq!(value(&format!("{a} | {b}")), left || right);
        assert_eq!(value(&format!("!({a} & {b})")), value(&format!("!({a}) | !({b})")));
        Ok(())
    });
}

/// Nothing that can be typed makes the parser panic or its error unprintable.
#[test]
fn any_text_ends_well() {
    const WORDS: [&str; 24] = [
        "(", ")", "!", "&", "|", "tag", "name(", "dur", ">", "=", "100ms", "axis(m)", "last(", ",", "\"", "\\", "é",
        " ", "-1e", "9e+", "e", "1e999", "\u{7}", "0.",
    ];
    crate::property::property(|u| {
        let count = u.int_in_range(0..=30)?;
        let text = (0..count).map(|_| u.choose(&WORDS).copied()).collect::<Result<String>>()?;
        if let Err(error) = FilterExpr::parse(&text) {
            assert!(!error.to_string().contains('\u{7}'), "{error}");
        }
        Ok(())
    });
}
