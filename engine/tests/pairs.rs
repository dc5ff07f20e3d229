//! Sums over all pairs of rows that lie along what is reduced: whatever the length of rows and their types, the simulator gives what
//! the reference does. Threads have sums of their own where there are many pairs; here they are asked to.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::compile::{CompiledFusion, compile_fusion};
use engine::num::Value;
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text;
use testing::Reference;

/// Distances of all pairs of `m` and `n` rows of `d` elements; the parameters of the kernel.
fn check([left, right]: [&str; 2], [m, n, d]: [i64; 3]) -> String {
    let fusion = text::parse_one(&format!(
        "fusion @Distances(%a: {left}[?, ?], %b: {right}[?, ?], %c: f32[?]) {{
  %0 = cast %a f32
  %1 = cast %b f32
  %2 = broadcast %0 flags(false, true, false)
  %3 = broadcast %1 flags(true, false, false)
  %4 = sub %2, %3
  %5 = mul %4, %4
  %6 = sum %5 axes(2)
  %7 = abs %4
  %8 = max %7 axes(2)
  %9 = broadcast %c flags(true, false)
  %10 = add %6, %9
  return %10, %8
}}"
    ))
    .unwrap();
    let value = |i: &[i64], by: i64| Value::Float((i.iter().fold(by, |hash, i| hash * 31 + i) % 13 - 6) as f64 / 4.0);
    let inputs = fusion.input_tensors().map(|(_, tensor)| fusion.tensors[tensor].dtype);
    let args: Vec<Arg> = inputs
        .zip([(vec![m, d], 7), (vec![n, d], 5), (vec![n], 3)])
        .map(|(dtype, (sizes, by))| Arg::Tensor(HostTensor::from_fn(dtype, &sizes, |i| value(i, by)).unwrap()))
        .collect();
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let tuning = [("reduction.own_sums".to_string(), 1)].into_iter().collect();
    let options = Options { tuning, ..Options::default() };
    let cx = CompileCx { options: &options, device: &DeviceDesc::h200(), trace: &NoTrace };
    let CompiledFusion { kernel, params_text, .. } = compile_fusion(&cx, &fusion, &metas, &[16, 16, 16]).unwrap();
    let reference = Reference::of(&fusion, &args).unwrap().scaled().unwrap();
    let checked = reference.check_kernel(&kernel, &SimOptions::default());
    checked.unwrap_or_else(|error| panic!("{m} and {n} rows of {d} {left} and {right}, {params_text}: {error}"));
    params_text
}

#[test]
fn pairs_of_rows_are_read_along_them() {
    let ends = |params: &str, end: &str| assert!(params.ends_with(end), "{params}");
    for types in [["f32", "f32"], ["bf16", "bf16"], ["f32", "bf16"]] {
        ends(&check(types, [19, 33, 24]), " along");
        ends(&check(types, [8, 16, 8]), " along");
        // No whole vectors, and rows at odd places.
        ends(&check(types, [17, 48, 35]), " along");
        ends(&check(types, [9, 65, 97]), " along");
        // So many that vectors have sums first.
        ends(&check(types, [10, 17, 136]), " along in stages");
        ends(&check(types, [3, 40, 301]), " along in stages");
    }
    assert!(!check(["bf16", "bf16"], [16, 48, 13]).contains("along"));
}
