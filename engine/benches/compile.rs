//! Host time of compiling one fusion, stage by stage, all but NVRTC: parse,
//! schedule and lower, print as CUDA C++; and of planning a call of sizes that are new
//! where kernels are known.
//!
//! `cargo bench -p engine --features bench --bench compile`

use criterion::{Criterion, criterion_group, criterion_main};
use engine::backend::cuda;
use engine::compile::compile_fusion;
use engine::num::DType;
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{ArgMeta, TensorMeta};
use engine::text;
use std::hint::black_box;

const POINTWISE: &str = "fusion @MulAddGelu(%x: bf16[?, ?], %y: bf16[?, ?], %z: bf16[?, ?]) {
  %0 = mul %x, %y
  %1 = add %0, %z
  %2 = gelu %1
  %out = cast %2 bf16
  return %out
}
";

const SOFTMAX: &str = "fusion @Softmax(%x: bf16[?, ?]) {
  %0 = softmax %x axis(1)
  %out = cast %0 bf16
  return %out
}
";

const LAYER_NORM: &str = "fusion @LayerNorm(%x: bf16[?, ?], %w: bf16[?], %b: bf16[?]) {
  %0 = layer_norm %x, %w, %b eps(1e-5)
  %out = cast %0 bf16
  return %out
}
";

fn meta(sizes: &[i64]) -> ArgMeta {
    ArgMeta::Tensor(TensorMeta::contiguous(DType::BF16, sizes))
}

fn stages(c: &mut Criterion) {
    let (even, odd) = ([16384, 4096], [8192, 4097]);
    let row = |sizes: [i64; 2]| meta(&sizes[1..]);
    let cases = [
        ("pointwise", POINTWISE, vec![meta(&even), meta(&even), meta(&even)]),
        ("pointwise_odd", POINTWISE, vec![meta(&odd), meta(&odd), meta(&odd)]),
        ("softmax", SOFTMAX, vec![meta(&even)]),
        ("softmax_odd", SOFTMAX, vec![meta(&odd)]),
        ("layer_norm_odd", LAYER_NORM, vec![meta(&odd), row(odd), row(odd)]),
    ];
    let (options, device) = (Options { self_check: false, ..Options::default() }, DeviceDesc::h200());
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    for (name, source, args) in cases {
        let fusion = text::parse_one(source).expect("the fusion is well-formed");
        let alignments = vec![16; args.len()];
        let lower = || compile_fusion(&cx, &fusion, &args, &alignments).expect("the fusion compiles");
        let kernel = lower().kernel;
        let mut group = c.benchmark_group(name);
        group.bench_function("parse", |b| b.iter(|| text::parse_one(black_box(source))));
        group.bench_function("lower", |b| b.iter(lower));
        group.bench_function("print", |b| b.iter(|| cuda::emit(black_box(&kernel)).text()));
        group.finish();
    }
}

/// Sizes that were not met before, of a class that was.
fn new_shapes(c: &mut Criterion) {
    let kernels: String =
        (0..12).map(|i| format!("  %a{} = tanh %a{i}\n  %b{i} = segment_set %a{}\n", i + 1, i + 1)).collect();
    let kernels = kernels.replace("tanh %a0", "tanh %x");
    let twelve = format!("fusion @Kernels(%x: bf16[?, ?]) {{\n{kernels}  %r = neg %b11\n  return %r\n}}\n");
    let chain = |length: usize| {
        let steps: String = (1..length).map(|i| format!("  %{i} = neg %{}\n", i - 1)).collect();
        format!(
            "fusion @Chain(%x: bf16[?, ?], %y: bf16[?, ?]) {{\n  %0 = add %x, %y\n{steps}  return %{}\n}}\n",
            length - 1
        )
    };
    let row = |rows: i64| vec![meta(&[rows, 4096])];
    let rows = |rows: i64| vec![meta(&[rows, 4096]), meta(&[rows, 4096])];
    type Args = dyn Fn(i64) -> Vec<ArgMeta>;
    let norm = |rows: i64| vec![meta(&[rows, 4096]), meta(&[4096]), meta(&[4096])];
    let cases: [(&str, &str, &Args); 5] = [
        ("2_operations", &chain(2), &rows),
        ("50_operations", &chain(50), &rows),
        ("softmax", SOFTMAX, &row),
        ("layer_norm", LAYER_NORM, &norm),
        ("12_kernels", &twelve, &row),
    ];
    let options = Options { self_check: false, ..Options::default() };
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
    let mut group = c.benchmark_group("new_shape");
    for (name, source, args) in cases {
        let fusion = text::parse_one(source).expect("the fusion is well-formed");
        let mut rows = 8192;
        group.bench_function(name, |b| {
            b.iter(|| {
                rows += 2;
                let args = args(rows);
                session.program(&fusion, &args, &vec![16; args.len()], &NoTrace).expect("it has a program")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, stages, new_shapes);
criterion_main!(benches);
