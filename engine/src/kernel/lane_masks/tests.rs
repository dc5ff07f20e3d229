//! What becomes of tests of lanes, and that the same elements are written.

use super::replace_tests;
use crate::kernel::same_terms::{check_same_terms, kernel_of_rows};
use crate::kernel::{Kernel, print, verify};

/// Reads statements of blocks of 8 threads, which read `x` and write `y`, of `m` rows of `n` floats. A block has a row;
/// its thread holds two vectors of it, those from `$e` to `$l` for `U` of 0 and 1. In each nest `U`, `V` and `W` are names of
/// its own.
fn read(nests: &[String]) -> Kernel {
    let nest = |(at, text): (usize, &String)| {
        let text = text.replace("$row", "blockIdx.x * n / 4 * 4 + (U * 8 + threadIdx.x) * 4");
        let text = text.replace("$e", "(U * 8 + threadIdx.x) * 4 - blockIdx.x * n % 4");
        let text = text.replace("$l", "(U * 8 + threadIdx.x) * 4 + 3 - blockIdx.x * n % 4");
        let text = text.replace("$v", "(U * 8 + threadIdx.x) * 4 + V - blockIdx.x * n % 4");
        ["U", "V", "W"].iter().fold(text, |text, name| text.replace(name, &format!("{}{at}", name.to_lowercase())))
    };
    let body: String = nests.iter().enumerate().map(nest).collect();
    let body = body.replace('{', "{\n").replace('}', "\n}\n");
    let body: Vec<&str> = body.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let declared = "  global y: f32[m * n] align 16
  local a: f32[8] align 16
  launch grid (m, 1, 1) block (8, 1, 1) max_threads 8 min_blocks 1
";
    kernel_of_rows(declared, &body.join("\n"))
}

/// The kernel gets so many arrays of masks, keeps so many tests at the lower end, and writes what it wrote.
#[track_caller]
fn check(arrays: usize, left: usize, nests: &[String]) -> String {
    let before = read(nests);
    let mut after = before.clone();
    replace_tests(&mut after);
    verify(&after).unwrap_or_else(|error| panic!("{error}"));
    let text = print(&after);
    assert_eq!((text.matches("store.held").count(), text.matches(">= 0").count()), (arrays, left), "{text}");
    for (m, n) in [(3, 5), (5, 33), (4, 57), (2, 61), (1, 1), (2, 3), (7, 8)] {
        assert!(check_same_terms(&before, &after, [m, n]), "{m} rows of {n}: {text}");
    }
    text
}

fn load() -> String {
    "for U: i32 in 0..2 unroll { for V: i32 in 0..4 unroll {
    if $v >= 0 && $v < n { let W: f32 = load x[$row + V]\n store a[U * 4 + V] = W } } }\n"
        .to_string()
}

fn store() -> String {
    "for U: i32 in 0..2 unroll {
    if $e >= 0 && $l < n { move f32x4 y[$row] = a[U * 4] }
    else { for V: i32 in 0..4 unroll { if $v >= 0 && $v < n { let W: f32 = load a[U * 4 + V]\n store y[$row + V] = W } } } }\n"
        .to_string()
}

#[test]
fn all_tests_of_a_vector_ask_one_mask() {
    let text = check(1, 0, &[load(), store()]);
    assert_eq!((text.matches("load lanes").count(), text.matches("== 15").count()), (2, 1), "{text}");
}

#[test]
fn what_holds_of_all_lanes_becomes_part_of_the_mask() {
    let given = store().replace("if $", "if blockIdx.x < m && $");
    let text = check(1, 0, &[load(), given]);
    assert!(text.contains("where(blockIdx.x < m, "), "{text}");
    // What each lane asks for itself stays a question of its own.
    let own = store().replace("if $v >= 0", "if V < m + 3 && $v >= 0");
    assert!(check(1, 0, &[load(), own]).contains(" < m + 3 && "));
}

#[test]
fn lanes_outside_are_asked_for_too() {
    let outside = "for U: i32 in 0..2 unroll { if $l >= 0 && $e < n && logical_not($e >= 0 && $l < n) {
        for V: i32 in 0..4 unroll { if logical_not($v >= 0 && $v < n) { store a[U * 4 + V] = 0.0f32 } } } }\n";
    let text = check(1, 0, &[load(), outside.to_string(), store()]);
    assert_eq!(text.matches("!= 0").count(), 4, "{text}");
}

#[test]
fn what_is_not_known_at_the_start_is_asked_as_before() {
    // Vectors of a loop that is not unrolled would need an array in memory.
    check(0, 3, &[load(), store()].map(|nest| nest.replace("0..2 unroll", "0..2")));
}
