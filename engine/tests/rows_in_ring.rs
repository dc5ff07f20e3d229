//! Rows that stay in a ring while sums of columns are added up: whatever the stages and wherever parameters are, the
//! simulator gives what the reference does, and no run has a race. Such rows are long; here they are asked for.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::compile::{CompiledFusion, compile_fusion};
use engine::fusion::Fusion;
use engine::num::{DType, Value};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text;
use std::collections::BTreeSet;
use testing::Reference;

const GRADIENTS: &str =
    "fusion @Gradients(%dy: bf16[?, ?], %x: bf16[?, ?], %mean: f32[?, 1], %invstd: f32[?, 1], %w: bf16[?]) {
  %dx, %dw, %db = layer_norm_backward %dy, %x, %mean, %invstd, %w
  return %dx, %dw, %db
}";

/// Columns are computed with when their sums are there, of a parameter that rows need too.
const STEP: &str = "fusion @Step(%dy: f32[?, ?], %x: f32[?, ?], %w: f32[?]) {
  %0 = broadcast %w flags(true, false)
  %1 = mul %x, %0
  %2 = max %1 axes(1) keepdim
  %3 = sub %1, %2
  %4 = mul %dy, %x
  %5 = sum %4 axes(0)
  %6 = sub %w, %5
  %7 = min %dy axes(0)
  return %3, %6, %7
}";

/// What is added up of columns depends on sums of rows, and takes many instructions.
const SOFTMAX: &str = "fusion @Softmax(%x: f32[?, ?], %w: f32[?]) {
  %0 = max %x axes(1) keepdim
  %1 = sub %x, %0
  %2 = exp %1
  %3 = sum %2 axes(1) keepdim
  %4 = div %2, %3
  %5 = broadcast %w flags(true, false)
  %6 = mul %4, %5
  %7 = sum %6 axes(0)
  return %6, %7
}";

/// Nothing is needed again of a row.
const BOTH: &str = "fusion @Both(%x: f32[?, ?]) {
  %0 = sum %x axes(1)
  %1 = sum %x axes(0)
  return %0, %1
}";

/// A tensor of few numbers for each of a fusion's inputs, of rows and columns as its dimensions have them.
fn args(fusion: &Fusion, [m, n]: [i64; 2]) -> Vec<Arg> {
    let input = |(dtype, rank, name): (DType, usize, &str)| {
        let sizes = match (rank, name) {
            (1, _) => vec![n],
            (_, "mean" | "invstd") => vec![m, 1],
            _ => vec![m, n],
        };
        let value = |i: &[i64]| (i.iter().fold(7, |hash, i| hash * 31 + i) * name.len() as i64 % 13 - 6) as f64 / 4.0;
        Arg::Tensor(HostTensor::from_fn(dtype, &sizes, |i| Value::Float(value(i))).unwrap())
    };
    let inputs = fusion.input_tensors().map(|(_, tensor)| &fusion.tensors[tensor]);
    inputs.map(|data| input((data.dtype, data.axes.len(), data.name.as_str()))).collect()
}

/// A fusion whose rows are to stay in the ring, in the way of a place in their order.
fn compiled(fusion: &Fusion, metas: &[ArgMeta], choice: i64) -> CompiledFusion {
    let tuning = [("inner_outer.ring", 1), ("inner_outer.choice", choice)];
    let tuning = tuning.map(|(name, value)| (name.to_string(), value)).into_iter().collect();
    let options = Options { tuning, ..Options::default() };
    let device = DeviceDesc { sm_count: 4, ..DeviceDesc::h200() };
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    compile_fusion(&cx, fusion, metas, &vec![16; metas.len()]).unwrap()
}

/// Runs some ways of a fusion; returns what their parameters say of the ring.
fn check(text: &str, sizes: [i64; 2]) -> BTreeSet<String> {
    let fusion = text::parse_one(text).unwrap();
    let args = args(&fusion, sizes);
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let reference = Reference::of(&fusion, &args).unwrap().scaled().unwrap();
    let mut seen = BTreeSet::new();
    let mut rings = BTreeSet::new();
    for choice in 0..64 {
        let CompiledFusion { kernel, params_text, .. } = compiled(&fusion, &metas, choice);
        let (_, ring) = params_text.split_once(" ring ").unwrap();
        if !rings.insert(ring.to_string()) || !seen.insert(params_text.clone()) {
            continue;
        }
        for schedule in [SimSchedule::Lockstep, SimSchedule::Adversary] {
            let options = SimOptions { schedule, ..SimOptions::default() };
            let checked = reference.check_kernel(&kernel, &options);
            checked.unwrap_or_else(|error| panic!("{} of {sizes:?}, {params_text}: {error}", fusion.name));
        }
    }
    rings
}

#[test]
fn parameters_are_kept_or_staged() {
    let all: BTreeSet<String> = [GRADIENTS, STEP].iter().flat_map(|text| check(text, [533, 264])).collect();
    for ring in ["1", "1 staged", "2", "2 staged"] {
        assert!(all.contains(ring), "{ring}: {all:?}");
    }
}

#[test]
fn rows_at_odd_places_stay_in_the_ring_element_by_element() {
    assert!(!check(STEP, [530, 257]).is_empty());
}

#[test]
fn stages_of_the_computation_read_rows_again() {
    for (text, sizes) in [(SOFTMAX, [533, 264]), (BOTH, [600, 260]), (BOTH, [529, 131])] {
        assert!(!check(text, sizes).is_empty());
    }
}
