//! Compile time grows with the size of a fusion, not with the number of ways
//! through it, and no depth of a fusion exhausts the stack: every phase, from the
//! text to the printed CUDA, of fusions that are deep, wide, or shared a lot.
//!
//! The bounds are those of a machine that is busy and a build that is little
//! optimised; what is exponential, quadratic with a large factor, or recursive
//! over the fusion does not come near them. Each test runs on a thread with the
//! stack that `std` gives, which is small.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise, and tells times")]

use engine::backend::cuda::print_cuda;
use engine::diag::{Code, DiagnosticKind, code};
use engine::num::DType;
use engine::options::{DeviceDesc, NoTrace, Options, Phase, SimOptions};
use engine::runtime::{PhaseTimes, Session};
use engine::tensor::{ArgMeta, TensorMeta};
use engine::text;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// What a fusion may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Compiles a fusion of `f32` inputs of one size; the refusal's code, if it is refused.
fn check_quick(name: &str, text: &str, sizes: &[i64], refused: Option<Code>) {
    let started = Instant::now();
    let fusion = text::parse_one(text).unwrap();
    let read = started.elapsed();
    let args: Vec<ArgMeta> =
        fusion.inputs.iter().map(|_| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))).collect();
    let options = Options { self_check: true, ..Options::default() };
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
    let times = PhaseTimes::new(move || started.elapsed());
    let compiled = session.compile(&fusion, &args, &times);
    let cuda = Instant::now();
    match (&compiled, refused) {
        (Ok(plan), None) => assert!(print_cuda(plan.kernel()).contains("__global__"), "{name}"),
        (Err(error), Some(expected)) => {
            assert_eq!((error.kind, error.code), (DiagnosticKind::Unsupported, expected), "{name}: {error}");
        }
        (Ok(_), Some(expected)) => panic!("{name} is not refused with {expected}"),
        (Err(error), None) => panic!("{name}: {error}"),
    }
    let (printed, all) = (cuda.elapsed(), started.elapsed());
    let phases = format!("read {read:?}, {:?}, CUDA {printed:?}", times.totals());
    println!("{name}: {all:?} ({phases})");
    drop((compiled, fusion, session));
    assert!(started.elapsed() < PATIENCE, "{name} took {:?}, of it {all:?} to compile: {phases}", started.elapsed());
}

/// `fusion @F(inputs) { lines, return results }`.
fn fusion(inputs: &[String], lines: &[String], results: &[String]) -> String {
    let inputs: Vec<String> = inputs.iter().map(|name| format!("%{name}: f32[?, ?]")).collect();
    let mut text = format!("fusion @F({}) {{\n", inputs.join(", "));
    lines.iter().for_each(|line| writeln!(text, "  {line}").unwrap());
    writeln!(text, "  return {}\n}}", results.join(", ")).unwrap();
    text
}

/// `n` operations, each on the one before it, then `last` operations on the result.
fn chain(n: usize, step: impl Fn(&str) -> String, last: &[&str]) -> String {
    let mut value = "%x".to_string();
    let mut lines = Vec::new();
    for i in 0..n {
        lines.push(format!("%{i} = {}", step(&value)));
        value = format!("%{i}");
    }
    for (i, line) in last.iter().enumerate() {
        let before = if i == 0 { value.clone() } else { format!("%{}", n + i - 1) };
        lines.push(format!("%{} = {}", n + i, line.replace("%value", &value).replace("%before", &before)));
    }
    fusion(&["x".to_string()], &lines, &[format!("%{}", n + last.len() - 1)])
}

const SUM: &[&str] = &["sum %value axes(1)"];

#[test]
fn values_used_twice() {
    let text = chain(64, |x| format!("mul {x}, {x}"), SUM);
    check_quick("64 squarings and a sum", &text, &[5, 33], None);
}

// Three tests, for as many cores: each takes seconds.
#[test]
fn long_chains_into_a_sum() {
    let text = chain(30_000, |x| format!("add {x}, 0.5"), SUM);
    check_quick("30,000 additions and a sum", &text, &[64, 1024], None);
}

#[test]
fn long_chains_of_uses_of_one_input() {
    let text = chain(30_000, |x| format!("sub {x}, %x"), &[]);
    check_quick("30,000 uses of one input", &text, &[64, 1024], None);
}

#[test]
fn long_chains_into_a_norm() {
    // Its schedule has more bytes than are read of somebody's.
    let text = chain(30_000, |x| format!("add {x}, 0.5"), &["sum %value axes(1) keepdim", "div %value, %before"]);
    check_quick("30,000 additions and a norm", &text, &[64, 1024], None);
}

#[test]
fn many_reductions() {
    let inputs: Vec<String> = (0..200).map(|i| format!("x{i}")).collect();
    // With exchange memory of their own, columns would need more than there is.
    for (axis, name) in [(1, "rows"), (0, "columns")] {
        let lines: Vec<String> = (0..200).map(|i| format!("%{i} = sum %x{i} axes({axis})")).collect();
        let results: Vec<String> = (0..200).map(|i| format!("%{i}")).collect();
        let text = fusion(&inputs, &lines, &results);
        check_quick(&format!("200 sums of {name} that share nothing"), &text, &[300, 256], Some(code::NEEDS_SEGMENTS));
        let added = (0..200).map(|i| format!("%{i} = add %x{i}, %x0"));
        let sums = (0..200).map(|i| format!("%{} = sum %{i} axes({axis})", 200 + i));
        let results: Vec<String> = (200..400).map(|i| format!("%{i}")).collect();
        let text = fusion(&inputs, &added.chain(sums).collect::<Vec<_>>(), &results);
        check_quick(&format!("200 sums of {name}"), &text, &[300, 256], None);
    }
    let lines: Vec<String> = (0..400)
        .map(|i| if i < 200 { format!("%{i} = add %x, {i}.5") } else { format!("%{i} = sum %{} axes(0)", i - 200) })
        .collect();
    let results: Vec<String> = (200..400).map(|i| format!("%{i}")).collect();
    check_quick("200 sums of one input", &fusion(&["x".to_string()], &lines, &results), &[600, 256], None);
}

#[test]
fn more_pointers_than_a_launch_passes() {
    let inputs: Vec<String> = (0..4_200).map(|i| format!("x{i}")).collect();
    let lines: Vec<String> = (1..4_200)
        .map(|i| if i == 1 { "%1 = add %x0, %x1".to_string() } else { format!("%{i} = add %{}, %x{i}", i - 1) })
        .collect();
    let text = fusion(&inputs, &lines, &["%4199".to_string()]);
    check_quick("4,200 inputs", &text, &[64, 64], Some(code::LAUNCH_LIMIT));
}

#[test]
fn cheap_values_before_a_normalisation() {
    let text = chain(3_000, |x| format!("add {x}, 0.5"), &["softmax %value axis(1)"]);
    check_quick("3,000 additions and a softmax", &text, &[64, 1024], None);
}

/// A kernel with more parameters than a launch can pass, which shows when it is made.
#[test]
fn a_refusal_is_not_compiled_again() {
    let inputs: Vec<String> = (0..2100).map(|i| format!("%y{i}: f32[?]")).collect();
    let mut text = format!("fusion @f({}) {{\n  %u0 = neg %y0\n", inputs.join(", "));
    (1..2100).for_each(|i| text += &format!("  %u{i} = add %u{}, %y{i}\n", i - 1));
    let fusion = text::parse_one(&(text + "  return %u2099\n}")).unwrap();
    let strided = TensorMeta { dtype: DType::F32, sizes: vec![16], strides: vec![2] };
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let args = vec![ArgMeta::Tensor(strided); 2100];
    let refuse = || {
        let start = Instant::now();
        let times = PhaseTimes::new(move || start.elapsed());
        let error = session.compile(&fusion, &args, &times).unwrap_err();
        (error, times.totals().iter().any(|(phase, _)| *phase == Phase::Lower))
    };
    let (first, again) = (refuse(), refuse());
    assert_eq!((first.0.kind, &again.0), (DiagnosticKind::Unsupported, &first.0));
    assert_eq!([first.1, again.1], [true, false]);
    assert_eq!(session.cached_plans(), 0);
}

#[test]
fn a_fusion_compiles_within_its_budget() {
    // The least of several, so that a busy machine does not fail it.
    let budget = Duration::from_millis(10);
    let args = [ArgMeta::Tensor(TensorMeta::contiguous(DType::BF16, &[8192, 4097]))];
    for line in ["gelu %x", "sum %x axes(1)", "softmax %x axis(-1)", "rms_norm %x eps(1e-5)"] {
        let fusion = text::parse_one(&format!("fusion @f(%x: bf16[?, ?]) {{\n  %y = {line}\n  return %y\n}}")).unwrap();
        let once = |_| {
            let start = Instant::now();
            let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
            print_cuda(session.compile(&fusion, &args, &NoTrace).unwrap().kernel());
            start.elapsed()
        };
        let mut least = Duration::MAX;
        let in_time = (0..200).map(once).any(|time| {
            least = least.min(time);
            time <= budget
        });
        assert!(in_time, "{line} takes {least:?}");
    }
}
