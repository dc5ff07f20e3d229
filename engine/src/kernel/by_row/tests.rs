use super::look_up_by_row;
use crate::kernel::same_terms::{check_same_terms, kernel_of_rows};
use crate::kernel::{Kernel, print, verify};

/// A kernel of which each thread computes two vectors of eight elements of `m` rows of `n`, by what it reads at an index of
/// their number `$e`.
fn read(index: &str, condition: &str) -> Kernel {
    let element = |vector: &str, lane: &str| format!("(blockIdx.x * 2 + {vector}) * 64 + threadIdx.x * 8 + {lane}");
    let [index, condition] = [index, condition].map(|text| text.replace("$e", &format!("({})", element("u", "v"))));
    let declared = "  global y: f32[m * n] align 16
  local a: f32[16] align 16
  launch grid (ceildiv(m * n, 128), 1, 1) block (8, 1, 1) max_threads 8 min_blocks 1
";
    let body = format!(
        "  for u: i32 in 0..2 unroll {{
for v: i32 in 0..8 unroll {{
  if {condition} {{
    let r: f32 = load x[{index}]
    store a[u * 8 + v] = r
  }}
  else {{
    store a[u * 8 + v] = 0.0f32
  }}
}}
  }}
  for p: i32 in 0..2 unroll {{
for q: i32 in 0..8 unroll {{
  let t: f32 = load a[p * 8 + q]
  if {e} < m * n {{
    store y[{e}] = t + 1.0f32
  }}
}}
  }}",
        e = element("p", "q")
    );
    kernel_of_rows(declared, &body)
}

/// The kernel loads so often in its text, and writes what it wrote.
#[track_caller]
fn check(index: &str, condition: &str, loads: usize) {
    let before = read(index, condition);
    let mut after = before.clone();
    look_up_by_row(&mut after);
    verify(&after).unwrap_or_else(|error| panic!("{error}"));
    let text = print(&after);
    assert_eq!(text.matches("load x[").count(), loads, "{text}");
    for (m, n) in [(150, 1), (70, 2), (21, 6), (19, 7), (17, 8), (15, 9), (5, 29), (1, 128), (2, 64), (1, 5), (1, 1)] {
        check_same_terms(&before, &after, [m, n]);
    }
}

#[test]
fn what_rows_have_is_loaded_for_two() {
    check("$e / n", "$e < m * n", 3);
    check("$e / n * n", "$e < m * n", 3);
    check("$e / n % 3", "$e < m * n && $e / n < m", 3);
    // One row of several.
    check("$e / n / 3", "$e < m * n", 3);
    check("$e / n / 3 / 2 * n", "$e < m * n", 3);
    check("$e / n / 3 + $e / n % 3", "$e < m * n && $e / n < m", 3);
}

#[test]
fn places_in_rows_follow_each_other() {
    check("$e / n % 2 * n + $e % n", "$e < m * n", 2);
    // Too little.
    check("$e % n", "$e < m * n", 1);
}

#[test]
fn other_indices_stay() {
    check("$e", "$e < m * n", 1);
    check("$e / n + v % 2", "$e < m * n && $e / n + v % 2 < m * n", 1);
    check("$e / n", "$e < m * n && $e % n < n", 1);
    check("$e / n % ($e / m + 1)", "$e < m * n", 1);
}
