//! Tests of the text form: what is read, what is printed, what is refused.

use super::*;
use crate::diag::render;
use expect_test::{Expect, expect};

/// The printed form of a text, which must read back as the same fusion.
fn check_print(source: &str, expected: Expect) {
    let fusion = parse_one(source).unwrap_or_else(|errors| panic!("{errors:?}"));
    let printed = print(&fusion);
    assert_eq!(parse_one(&printed).as_ref(), Ok(&fusion), "{printed}");
    expected.assert_eq(&printed);
}

/// All errors of a text, rendered.
fn check_errors(source: &str, expected: Expect) {
    let errors = parse(source).expect_err("the text is wrong");
    let text: Vec<String> = errors.iter().map(|error| render(error, "a.fuse", source, 1)).collect();
    expected.assert_eq(&text.concat());
}

#[test]
fn statements_print_as_primitives() {
    check_print(
        "fusion @f(%x: bf16[?, 7, 1], %y: f32[?, ?, ?], %a: i64) {
            %z = mul %x, %y ; a comment
            %0 = add %z, 1   // another
            %w = sum %0 axes(-1, 0) keepdim dtype(bf16)
            %h = addcmul %y, 2, %y, %a
            return %w, %h
        }",
        expect![[r#"
            fusion @f(%x: bf16[?, 7, 1], %y: f32[?, ?, ?], %a: i64) {
              %1 = cast %x f32
              %z = mul %1, %y
              %0 = add %z, 1.0
              %2 = sum %0 axes(0, 2)
              %3 = cast %2 bf16
              %w = broadcast %3 flags(true, false, true)
              %s0 = mul 2, %a
              %s1 = cast %s0 f32
              %4 = mul %s1, %y
              %h = add %y, %4
              return %w, %h
            }
        "#]],
    );
}

#[test]
fn scalars_print_before_their_use() {
    check_print(
        "fusion @f(%x: f16[?, ?], %a: i32, %s0: f32) {
            %n = size %x axis(-1)
            %m = add %n, %a
            %k = add %m, 3
            %0 = full [%k, 4, 1] -inf bf16
            %e = exp %s0
            %1 = mul %x, %e
            %c = gt %1, 0
            %k64 = cast 2.5 f64
            %2 = where %c, %k64, 1
            %3 = where %c, 0.1, nan
            return %0, %2, %3
        }",
        expect![[r#"
            fusion @f(%x: f16[?, ?], %a: i32, %s0: f32) {
              %s1 = size %x axis(1)
              %s2 = cast %a i64
              %s3 = add %s1, %s2
              %s4 = add %s3, 3
              %0 = full [%s4, 4, 1] -inf bf16
              %4 = cast %x f32
              %s5 = exp %s0
              %1 = mul %4, %s5
              %c = gt %1, 0.0
              %s6 = cast 2.5 f64
              %s7 = cast 1.0 f64
              %2 = where %c, %s6, %s7
              %3 = where %c, 0.1, nan
              return %0, %2, %3
            }
        "#]],
    );
}

#[test]
fn composites_expand() {
    check_print(
        "fusion @norms(%x: bf16[?, 1024], %w: f32[1024]) {
            %s = softmax %x axis(1)
            %r = rms_norm %x, %w eps(1e-6)
            %v, %m = var_mean %x axes(1) correction(1)
            return %s, %r, %v, %m
        }",
        expect![[r#"
            fusion @norms(%x: bf16[?, 1024], %w: f32[1024]) {
              %0 = cast %x f32
              %1 = max %0 axes(1)
              %2 = broadcast %1 flags(false, true)
              %3 = sub %0, %2
              %4 = exp %3
              %5 = sum %4 axes(1)
              %6 = broadcast %5 flags(false, true)
              %7 = reciprocal %6
              %s = mul %4, %7
              %8 = mul %0, %0
              %9 = sum %8 axes(1)
              %10 = div %9, 1024.0
              %11 = add %10, 1e-6
              %12 = rsqrt %11
              %13 = broadcast %12 flags(false, true)
              %14 = mul %0, %13
              %15 = broadcast %w flags(true, false)
              %r = mul %14, %15
              %16 = sum %0 axes(1)
              %m = div %16, 1024.0
              %17 = broadcast %m flags(false, true)
              %18 = sub %0, %17
              %19 = mul %18, %18
              %20 = sum %19 axes(1)
              %v = div %20, 1023.0
              return %s, %r, %v, %m
            }
        "#]],
    );
}

#[test]
fn all_errors_come_at_once_with_places_and_near_names() {
    check_errors(
        "fusion @f(%x: f32[?, 8], %y: f23[?], %z: f32[?, 7], %s: f32) {
  %0 = ad %x, 1
  %1 = add %0, 1
  %2 = add %x, %zz
  %3 = add %x, %z
  %4 = add %x
  %5 = sum %x axis(1)
  %6 = sum %x axes(2)
  %7 = broadcast %x
  %x = neg %x
  %8 = add %y, 99999999999999999999
  %9 = sum %s
  %10 = cast %x f31
  %11 $ neg %x
  return %0, %4
}
fusion g() {}
fusion @h() {}
",
        expect![[r#"
            error[E0105]: unknown data type `f23`
             --> a.fuse:1:30
              |
            1 | fusion @f(%x: f32[?, 8], %y: f23[?], %z: f32[?, 7], %s: f32) {
              |                              ^^^ did you mean `f32`?
              note: data types: f64 f32 f16 bf16 i64 i32 i8 u8 bool c64 c128 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn i16 u16 u32 u64 index
            error[E0102]: unknown operation `ad`
             --> a.fuse:2:8
              |
            2 |   %0 = ad %x, 1
              |        ^^ did you mean `add`?
              note: operations are listed in cases/README.md
            error[E0103]: `%zz` is not defined
             --> a.fuse:4:16
              |
            4 |   %2 = add %x, %zz
              |                ^^^ did you mean `%z`?
            error[E0204]: add: axis 1 of operand 1 is 7, not 8
             --> a.fuse:5:8
              |
            5 |   %3 = add %x, %z
              |        ^^^^^^^^^^ 
              note: an axis of size 1 broadcasts only if it is declared as a broadcast axis
            error[E0201]: add: takes 2 operands, 1 was given
             --> a.fuse:6:8
              |
            6 |   %4 = add %x
              |        ^^^^^^ 
              note: its form is: add a, b
            error[E0206]: sum: has no attribute `axis`
             --> a.fuse:7:15
              |
            7 |   %5 = sum %x axis(1)
              |               ^^^^^^^ 
              note: its form is: sum x [axes(n, ...)] [keepdim] [dtype(T)]
              note: did you mean `axes`?
            error[E0205]: sum: axis 2 of an operand of rank 2
             --> a.fuse:8:8
              |
            8 |   %6 = sum %x axes(2)
              |        ^^^^^^^^^^^^^^ 
            error[E0206]: broadcast: needs `flags(...)`
             --> a.fuse:9:8
              |
            9 |   %7 = broadcast %x
              |        ^^^^^^^^^^^^ 
              note: its form is: broadcast x flags(true|false, ...)
            error[E0104]: `%x` is defined twice
              --> a.fuse:10:3
               |
            10 |   %x = neg %x
               |   ^^ 
            error[E0106]: `99999999999999999999` is not a number
              --> a.fuse:11:16
               |
            11 |   %8 = add %y, 99999999999999999999
               |                ^^^^^^^^^^^^^^^^^^^^ 
              note: integers fit 64 bits; floats look like 1.5, -2e-3, inf or nan, complex numbers like 1.5-2.0i
            error[E0207]: sum: the operand is a scalar, a tensor is needed
              --> a.fuse:12:8
               |
            12 |   %9 = sum %s
               |        ^^^^^^ 
              note: turn a scalar into a tensor with full
            error[E0105]: unknown data type `f31`
              --> a.fuse:13:17
               |
            13 |   %10 = cast %x f31
               |                 ^^^ did you mean `f32`?
              note: data types: f64 f32 f16 bf16 i64 i32 i8 u8 bool c64 c128 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn i16 u16 u32 u64 index
            error[E0101]: unexpected character `$`
              --> a.fuse:14:7
               |
            14 |   %11 $ neg %x
               |       ^ 
              note: `$axis` is replaced by the harness, from the axes of the case file
            error[E0101]: expected `=` after the names that the statement defines, found `neg`
              --> a.fuse:14:9
               |
            14 |   %11 $ neg %x
               |         ^^^ 
            error[E0101]: expected the fusion's name, such as `@name`, found `g`
              --> a.fuse:17:8
               |
            17 | fusion g() {}
               |        ^ 
            error[E0208]: @h returns nothing
              --> a.fuse:18:14
               |
            18 | fusion @h() {}
               |              ^ 
        "#]],
    );
}

#[test]
fn comments_know_the_line_that_they_follow() {
    let source =
        "; before\nfusion @f(%x: f32[?]) { ; head\n  %0 = neg %x ; behind\n  ; below\n  return %0\n}\n; after\n";
    let file = parse(source).unwrap();
    let seen: Vec<_> = file.comments.iter().map(|c| (c.text.as_str(), c.line, c.after_line)).collect();
    let expected = [
        ("before", 0, None),
        ("head", 1, Some(1)),
        ("behind", 2, Some(2)),
        ("below", 3, Some(2)),
        ("after", 6, Some(5)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(file.fusions[0].comments.len(), 4);
    let lines: Vec<_> = file.fusions[0].statements.iter().map(|s| (s.line, s.results.clone())).collect();
    assert_eq!(lines, [(2, vec!["0".to_string()]), (4, vec![])]);
}

#[test]
fn no_text_makes_the_parser_panic() {
    const WORDS: &[&str] = &[
        "fusion", "@f", "(", ")", "{", "}", "[", "]", "%x", "%0", "%", "@", ":", "f32", "bf16", "?", ",", "=", "\n",
        "\n", "add", "sum", "full", "softmax", "axes", "flags", "true", "keepdim", "return", "1", "-1", "1e-5", "inf",
        "9e99999", ";c", "//c", "é", "\r", "$n", "size", "axis", "where", "cast", "dims", "i64",
    ];
    crate::property::property(|u| {
        let mut text = String::new();
        if u.arbitrary()? {
            text.push_str("fusion @f(%x: f32[?, 4]) {\n  %0 = ");
        }
        while !u.is_empty() {
            text.push_str(u.choose(WORDS)?);
            text.push(if u.arbitrary()? { ' ' } else { '\t' });
        }
        let (_, errors) = parse_lossy(&text);
        for error in &errors {
            render(error, "a.fuse", &text, 1);
        }
        Ok(())
    })
    .bytes(32..=800)
    .cases(5000);
}

/// Texts at the limits: each is read or refused, within a bound on work that
/// grows with the text and not with its square.
#[test]
fn hostile_texts_end() {
    let head = "fusion @f(%x: f32[?]) {\n";
    let repeat = |line: &str, count: usize| format!("{head}{}", line.repeat(count));
    let chain: String = (0..30_000).map(|i| format!("%a{} = add %a{i}, 1\n", i + 1)).collect();
    let scalars: String = (0..30_000).map(|i| format!("%a{} = add %a{i}, %n\n", i + 1)).collect();
    let names: String = (0..40_000).map(|i| format!("%q{i} = ngg %zz{i}\n")).collect();
    let texts = [
        repeat("%0=a\n", 150_000),
        repeat("%0 = neg %y\n", 70_000),
        repeat("((((((((((", 90_000),
        repeat("}\nfusion @f(", 70_000),
        format!("{head}%0 = neg %x\nreturn {}%0\n}}", "%0, ".repeat(200_000)),
        format!("{head}%a0 = neg %x\n{chain}return %a30000\n}}"),
        format!("fusion @f(%x: f32[?], %n: i64, %a0: i64) {{\n{scalars}%y = mul %x, %a30000\nreturn %y\n}}"),
        format!("{head}{names}"),
        "\u{1F600}".repeat(200_000),
        ";".repeat(1_000_000),
        "x".repeat(2_000_000),
    ];
    for text in texts {
        let start = std::time::Instant::now();
        match parse(&text) {
            Ok(file) => drop(file.fusions.iter().map(|parsed| print(&parsed.fusion)).collect::<Vec<_>>()),
            Err(errors) => assert!(!errors.is_empty() && errors.len() <= 101),
        }
        let shown: String = text.chars().skip(24).take(30).collect();
        assert!(start.elapsed().as_secs() < 10, "{shown} took {:?}", start.elapsed());
    }
}

/// A name of another script is one mistake, told where it is declared, and carets stand under it.
#[test]
fn a_name_in_another_script_is_one_mistake() {
    check_errors(
        "fusion @f(%日本: f32[?]) {\n  %0 = neg %日本\n  return %0\n}\n",
        expect![[r#"
            error[E0101]: `日本` is not a name
             --> a.fuse:1:11
              |
            1 | fusion @f(%日本: f32[?]) {
              |           ^^^^^^^^^^^^^ 
              note: names have 1 to 128 ASCII letters, digits and underscores
        "#]],
    );
    check_errors(
        "fusion @f(%x: f32[?]) {\n  %0 = neg %x 日本語\n  return %0\n}\n",
        expect![[r#"
        error[E0101]: unexpected characters `日本語`
         --> a.fuse:2:15
          |
        2 |   %0 = neg %x 日本語
          |               ^^^^^^ 
    "#]],
    );
}
