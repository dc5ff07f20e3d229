//! Kernels that are right, and the same with one thing wrong; proofs that a change changes nothing.

use super::AlarmKind::{self, *};
use super::{OrderReport, ResultTerms, check_order, compare_at, result_terms};
use crate::kernel::{BoundLaunch, Kernel, bind, parse, verify};
use crate::num::{BinaryOp, DType};
use crate::tensor::{ArgMeta, TensorMeta};

/// Reads statements, several in a line where they stand in braces, of two blocks of 64 threads, which read `x` and write `y`, of 128 floats.
fn read(body: &str) -> (Kernel, BoundLaunch) {
    read_in("(2, 1, 1)", body)
}

/// The same of other blocks.
fn read_in(grid: &str, body: &str) -> (Kernel, BoundLaunch) {
    let body = body.replace('{', "{\n").replace('}', "\n}\n");
    let body: Vec<&str> = body.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = format!(
        "kernel k index i32 {{
  param n: i32 = size(0, 0)
  param *x = input(0)
  param *y = output(0)
  param *scratch = workspace
  param *c = workspace
  global x: f32[n] align 16
  global y: f32[n] align 16
  global scratch: f32[n] align 16
  global c: i32[1] align 16 zeroed
  shared s: f32[128] align 16
  shared flag: i32[1] align 16
  local a: f32[2] align 8
  launch grid {grid} block (64, 1, 1) max_threads 64 min_blocks 1
{}
}}
",
        body.join("\n")
    );
    let kernel = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let arg = ArgMeta::Tensor(TensorMeta { dtype: DType::F32, sizes: [128].into(), strides: [1].into() });
    let launch = bind(&kernel, &[arg]).unwrap_or_else(|error| panic!("{error}"));
    (kernel, launch)
}

/// The kernel has these alarms, each once for its statement, and so many undecided meetings.
fn check(expected: &[AlarmKind], undecided: u64, body: &str) -> OrderReport {
    let (kernel, launch) = read(body);
    let report = check_order(&kernel, &launch).unwrap_or_else(|error| panic!("{error}"));
    let mut kinds: Vec<AlarmKind> = report.alarms.iter().map(|alarm| alarm.kind).collect();
    kinds.dedup();
    assert_eq!((kinds.as_slice(), report.undecided), (expected, undecided), "{report:?}\n{body}");
    report
}

#[test]
fn blocks_wait_for_those_of_their_team_alone() {
    let check = |grid: &str, own: &str, expected: &[AlarmKind]| {
        let body = format!(
            "let v: f32 = load x[{own} * 64 + threadIdx.x]\n store scratch[{own} * 64 + threadIdx.x] = v\n sync team\n \
             let w: f32 = load scratch[(1 - {own}) * 64 + threadIdx.x]\n store y[{own} * 64 + threadIdx.x] = w\n"
        );
        let (kernel, launch) = read_in(grid, &body);
        let report = check_order(&kernel, &launch).unwrap_or_else(|error| panic!("{error}"));
        let mut kinds: Vec<AlarmKind> = report.alarms.iter().map(|alarm| alarm.kind).collect();
        kinds.dedup();
        assert_eq!(kinds, expected, "{report:?}\n{body}");
    };
    check("(2, 1, 1)", "blockIdx.x", &[]);
    check("(1, 2, 1)", "blockIdx.y", &[Race]);
}

/// The kernel is in order with the line, and has these alarms without it.
fn check_line(expected: &[AlarmKind], line: &str, body: &str) {
    assert_eq!(body.matches(line).count(), 1, "{line} in {body}");
    let (kernel, _) = read(body);
    verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    let report = check(&[], 0, body);
    assert!(report.is_proof(), "{report:?}");
    check(expected, 0, &body.replace(line, ""));
}

const LOAD: &str = "let v: f32 = load x[blockIdx.x * 64 + threadIdx.x]\n";
const STORE: &str = "store y[blockIdx.x * 64 + threadIdx.x] = w\n";

#[test]
fn a_barrier_orders_what_threads_of_a_block_exchange() {
    let body =
        format!("{LOAD} store s[threadIdx.x] = v\n sync block\n let w: f32 = load s[63 - threadIdx.x]\n {STORE}");
    check_line(&[Race], "sync block\n", &body);
    check(&[Race], 0, &body.replace("sync block", "fence block"));
    check(&[Race], 0, &body.replace("sync block", "sync warp"));
    // Within a warp its barrier is enough.
    let warp = body.replace("63 - threadIdx.x", "threadIdx.x / 32 * 32 + 31 - threadIdx.x % 32");
    check(&[], 0, &warp.replace("sync block", "sync warp"));
    // Also across the iterations of a loop.
    let body = format!(
        "{LOAD} for i: i32 in 0..2 {{
           store s[threadIdx.x] = v\n sync block\n let w: f32 = load s[63 - threadIdx.x]\n
           if i == 1 {{ {STORE} }}\n sync   block\n }}"
    );
    check_line(&[Race], "sync   block\n", &body);
}

#[test]
fn barriers_and_shuffles_want_all_their_threads() {
    let under = |condition: &str, what: &str| {
        format!("{LOAD} if {condition} {{ {what} }}\n let w: f32 = {}\n {STORE}", "shuffle xor v, 1")
    };
    check(&[Divergence], 0, &under("threadIdx.x < 32", "sync block"));
    check(&[], 0, &under("blockIdx.x < 1", "sync block"));
    check(&[], 0, &under("threadIdx.x < 32", "sync warp"));
    check(&[Divergence], 0, &under("threadIdx.x < 31", "let u: f32 = shuffle xor v, 1"));
}

#[test]
fn indices_are_in_range_and_have_a_meaning() {
    let reads = |index: &str| format!("let w: f32 = load x[{index}]\n {STORE}");
    check(&[], 0, &reads("n - 1 - threadIdx.x"));
    check(&[OutOfBounds], 0, &reads("n - threadIdx.x"));
    check(&[OutOfBounds], 0, &reads("threadIdx.x - 1"));
    check(&[Meaningless], 0, &reads("(threadIdx.x - 1) % 7"));
    check(&[], 0, &reads("(threadIdx.x - 1) % 8"));
    check(&[], 0, &reads("maximum(threadIdx.x - 1, 0) % 8"));
    check(&[], 0, "move f32x2 a[0] = x[threadIdx.x * 2]\n store y[blockIdx.x * 64 + threadIdx.x] = 0.0f32");
    check(&[Misaligned], 0, "move f32x2 a[0] = x[threadIdx.x]\n store y[blockIdx.x * 64 + threadIdx.x] = 0.0f32");
}

#[test]
fn memory_is_written_before_it_is_read_and_outputs_once() {
    let first = "if threadIdx.x == 0 { store s[0] = 0.0f32 }\n sync block\n";
    check(&[], 0, &format!("{first} let w: f32 = load s[0]\n {STORE}"));
    check(&[Uninitialised], 0, &format!("{first} let w: f32 = load s[1]\n {STORE}"));
    check(&[Unwritten], 0, "if threadIdx.x < 63 { store y[blockIdx.x * 64 + threadIdx.x] = 0.0f32 }");
    check(&[Race, WrittenAgain, Unwritten], 0, "store y[threadIdx.x] = 0.0f32");
    check(&[WrittenAgain], 0, &format!("let w: f32 = load x[0]\n {STORE} {STORE}"));
}

#[test]
fn asynchronous_copies_are_waited_for_and_passed_on() {
    let body = format!(
        "copy_async f32x1 s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x]\n commit_group\n wait_group 0\n sync block\n
         let w: f32 = load s[63 - threadIdx.x]\n {STORE}"
    );
    check_line(&[Race], "wait_group 0\n", &body);
    check_line(&[Race], "commit_group\n", &body);
    check_line(&[Race], "sync block\n", &body);
    check(&[Race], 0, &body.replace("wait_group 0", "wait_group 1"));
}

#[test]
fn the_block_that_counts_last_sees_all_others() {
    let body = format!(
        "{LOAD} store scratch[blockIdx.x * 64 + threadIdx.x] = v\n fence grid\n sync block\n
         if threadIdx.x == 0 {{\n let ticket: i32 = atomic inc c[0], 1\n store flag[0] = ticket\n }}\n sync  block\n
         let mine: i32 = load flag[0]\n if mine == 1 {{\n fence  grid\n for k: i32 in 0..2 {{
         let w: f32 = load.global scratch[k * 64 + 63 - threadIdx.x]\n store y[k * 64 + threadIdx.x] = w\n }}\n }}"
    );
    check_line(&[Race], "fence grid\n", &body);
    check_line(&[Race], "fence  grid\n", &body);
    check_line(&[Race], "sync block\n", &body);
    check_line(&[Race], "sync  block\n", &body);
    // Only the last number is that of the last block.
    check(&[Race], 0, &body.replace("mine == 1", "mine == 0"));
}

#[test]
fn what_data_decides_is_not_judged() {
    // Each thread decides for itself: two of them may write, or may not, in either block.
    let private = "if v < 0.0f32 { store s[0] = v }\n sync block\n let w: f32 = load s[0]\n";
    check(&[], 2, &format!("{LOAD} {private} {STORE}"));
    // A block decides as a whole: its barrier orders what happens only with it.
    let common = |stored: &str| {
        format!(
            "let u: f32 = load x[0]\n {LOAD} {stored}\n if u < 0.0f32 {{\n sync block\n let w: f32 = load s[63 - threadIdx.x]\n
             {STORE} }} else {{ store y[blockIdx.x * 64 + threadIdx.x] = u }}"
        )
    };
    check(&[], 0, &common("store s[threadIdx.x] = v"));
    check(&[Race], 0, &common("store s[threadIdx.x] = v").replace("sync block\n", ""));
    check(&[Race], 0, &format!("{}\n store s[63 - threadIdx.x] = v", common("store s[threadIdx.x] = v")));
}

#[test]
fn equal_values_and_equal_results_are_proven() {
    let (mut kernel, launch) = read(&format!("{LOAD} if threadIdx.x < 64 {{ let w: f32 = load x[0]\n {STORE} }}"));
    let (tx, most, less) = (
        kernel.exprs.thread_idx(crate::kernel::Dim::X),
        kernel.exprs.int(64, DType::I32),
        kernel.exprs.int(63, DType::I32),
    );
    let [all, many, yes] = [
        kernel.exprs.binary(BinaryOp::Lt, tx, most),
        kernel.exprs.binary(BinaryOp::Lt, tx, less),
        kernel.exprs.bool(true),
    ];
    let agree = |a, b| compare_at(&kernel, &launch, 1, (a, b)).unwrap_or_else(|error| panic!("{error}"));
    assert!(agree(all, yes).is_proof());
    assert_eq!((agree(many, yes).executed, agree(many, yes).differing), (128, 2));
    let direct = terms(&format!("{LOAD} let w: f32 = shuffle xor v, 1\n {STORE}"));
    let staged = "store s[threadIdx.x] = v\n sync block\n";
    let swapped = "let w: f32 = load s[threadIdx.x + 1 - threadIdx.x % 2 * 2]\n";
    let through = terms(&format!("{LOAD} {staged} {swapped} {STORE}"));
    assert!(direct.exhaustive && direct == through, "{direct:?} {through:?}");
    let other = terms(
        &format!("{LOAD} {staged} {swapped} {STORE}")
            .replace("store s[threadIdx.x] = v", "store s[threadIdx.x] = v + 1.0f32"),
    );
    assert!(other.exhaustive && other != direct);
    assert!(!terms(&format!("{LOAD} {staged} {swapped} {STORE}").replace("sync block", "fence block")).exhaustive);
    // A sum that begins with 0 is the same with a zero more; another sum, which may be -0, is not.
    let sum = |first: &str, more: &str| {
        terms(&format!("{LOAD} let u: f32 = {first} + v\n let w: f32 = u{more}\n {STORE}"))
            == terms(&format!("{LOAD} let w: f32 = {first} + v\n {STORE}"))
    };
    assert!(sum("0.0f32", " + 0.0f32"));
    assert!(!sum("v", " + 0.0f32") && !sum("0.0f32", " + 1.0f32") && !sum("0.0f32", " + -0.0f32"));
}

/// The terms of what statements write.
fn terms(body: &str) -> ResultTerms {
    let (kernel, launch) = read(body);
    result_terms(&kernel, &launch).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_vanishes_is_proven_to_vanish() {
    let vanishes = |more: &str| {
        terms(&format!("{LOAD} let u: f32 = 0.0f32 + v\n let w: f32 = u + {more}\n {STORE}"))
            == terms(&format!("{LOAD} let w: f32 = 0.0f32 + v\n {STORE}"))
    };
    let zeros = [
        "tanh(0.0f32)",
        "(2.0f32 - 4.0f32 / 2.0f32)",
        "f32(0.0f16)",
        "0.0f32 * f32(v < 1.0f32)",
        "f32(n < 5) * 0.0f32",
        "0.0f32 * exp(1.0f32)",
        "sqrt(0.0f32) * rsqrt(f32(as_data(n)))",
    ];
    for zero in zeros {
        assert!(vanishes(zero), "{zero}");
    }
    // Infinities and NaN, signs, and results that differ from device to device.
    let others =
        ["0.0f32 * v", "0.0f32 * exp(1000.0f32)", "0.0f32 * -1.0f32", "neg(0.0f32)", "(exp(1.0f32) - exp(1.0f32))"];
    for other in others {
        assert!(!vanishes(other), "{other}");
    }
}

#[test]
fn results_behind_grid_barriers_are_proven() {
    let write = "store scratch[blockIdx.x * 64 + threadIdx.x] =";
    let body = |first: &str, thread: &str| {
        let read = format!("let w: f32 = load.global scratch[127 - (blockIdx.x * 64 + {thread})]\n");
        format!("{LOAD} {write} {first}\n sync grid\n {read} {STORE}")
    };
    let plain = terms(&body("v", "threadIdx.x"));
    assert!(plain.exhaustive && plain == terms(&body("v", "(threadIdx.x + 0 * n)")));
    assert_ne!(plain, terms(&body("v + 1.0f32", "threadIdx.x")));
    assert_ne!(plain, terms(&body("v", "(63 - threadIdx.x)")));
    // What is read before a barrier is what was there before.
    let own = "load.global scratch[blockIdx.x * 64 + threadIdx.x]\n";
    let behind = terms(&format!("{LOAD} {write} v\n sync grid\n let w: f32 = {own} {STORE}"));
    let before = terms(&format!("{LOAD} let w: f32 = {own} sync grid\n {write} v\n {STORE}"));
    assert!(behind.exhaustive && before.exhaustive && behind != before);
    // Between the same barriers memory is one thing only to those who read behind all writes.
    let read = format!("let w: f32 = {own}");
    assert!(terms(&format!("{LOAD} sync grid\n {write} v\n {read} {STORE}")).exhaustive);
    assert!(!terms(&format!("{LOAD} sync grid\n {read} {write} v\n {STORE}")).exhaustive);
    assert!(!terms(&format!("{LOAD} sync grid\n {write} v\n {read} {write} v + 1.0f32\n {STORE}")).exhaustive);
}
