//! Host time of compiling one fusion, stage by stage, all but NVRTC: parse,
//! schedule and lower, print as CUDA C++.
//!
//! `cargo bench -p engine --features bench --bench compile`

use criterion::{Criterion, criterion_group, criterion_main};
use engine::backend::cuda;
use engine::compile::compile_fusion;
use engine::num::DType;
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options};
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

criterion_group!(benches, stages);
criterion_main!(benches);
