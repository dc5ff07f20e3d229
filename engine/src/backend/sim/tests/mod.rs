//! Kernels written by hand: what they compute, and what the detectors say.

mod counters;
mod litmus;
mod ops;
mod races;
mod random;
mod values;

use super::*;
use crate::diag::{Code, Diagnostic};
use crate::kernel::{BoundLaunch, BufId, Dim, ExprId, Kernel, KernelBuilder, Launch, bind, verify};
use crate::num::{BinaryOp, DType};
use crate::options::{SimOptions, SimSchedule};
use crate::tensor::{ArgMeta, TensorMeta};

/// Schedules that every kernel runs under.
fn schedules() -> Vec<SimOptions> {
    let base = SimOptions::default();
    let mut all = vec![base, SimOptions { threads: 1, ..base }, SimOptions { threads: 3, ..base }];
    for seed in 0..4 {
        for schedule in [SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary] {
            all.push(SimOptions { schedule, seed, ..base });
        }
    }
    all
}

fn vector(dtype: DType, len: i64) -> ArgMeta {
    ArgMeta::Tensor(TensorMeta { dtype, sizes: vec![len], strides: vec![1] })
}

/// A kernel with the input vector `x` of a type and `n` elements, and the
/// output vector `y`; `body` gets the builder, both buffers and `n`.
fn vector_kernel(
    dtype: DType,
    out: DType,
    blocks: i64,
    threads: u32,
    body: impl FnOnce(&mut KernelBuilder, BufId, BufId, ExprId),
) -> Kernel {
    let mut b = KernelBuilder::new("k", DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, dtype, n, 16);
    let y = b.output("y", 0, out, n, 16);
    body(&mut b, x, y, n);
    let blocks = b.int(blocks);
    b.finish_1d(blocks, threads)
}

/// `blockIdx.x * blockDim.x + threadIdx.x` for a block of `threads`.
fn global_thread(b: &mut KernelBuilder, threads: i64) -> ExprId {
    let (bx, tx) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
    let width = b.int(threads);
    let base = b.exprs().mul(bx, width);
    b.exprs().add(base, tx)
}

fn tid(b: &mut KernelBuilder) -> ExprId {
    b.exprs().thread_idx(Dim::X)
}

struct Prepared {
    kernel: Kernel,
    launch: BoundLaunch,
    input: Vec<u8>,
}

impl Prepared {
    fn new(kernel: Kernel, dtype: DType, len: usize, input: Vec<u8>) -> Self {
        let launch = bind(&kernel, &[vector(dtype, len as i64)]).unwrap();
        Self { kernel, launch, input }
    }
    fn run(&self, options: &SimOptions) -> Result<(Vec<u8>, SimReport), Box<Diagnostic>> {
        let mut memory = SimMemory::new(&self.kernel, &self.launch);
        memory.fill_input(0, &self.input)?;
        let report = run(&self.kernel, &self.launch, &mut memory, options)?;
        Ok((memory.output(0).unwrap().to_vec(), report))
    }
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn to_f32(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The kernel gives `expected` for `x` under every schedule.
fn check_values(kernel: Kernel, x: &[f32], expected: &[f32]) {
    let prepared = Prepared::new(kernel, DType::F32, x.len(), f32_bytes(x));
    verify(&prepared.kernel).unwrap();
    for options in schedules() {
        let (bytes, report) = prepared.run(&options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        assert_eq!(&to_f32(&bytes)[..expected.len()], expected, "{options:?}");
        assert_eq!(report.unwritten[0].2, (x.len() - expected.len()) as u64);
        let (_, again) = prepared.run(&options).unwrap();
        assert_eq!(again, report, "the same options give the same report");
    }
    let quiet = SimOptions { detect: false, count: false, ..SimOptions::default() };
    assert_eq!(&to_f32(&prepared.run(&quiet).unwrap().0)[..expected.len()], expected, "without detectors");
}

/// The kernel is refused with the code, under every schedule; the first message.
fn check_detected(kernel: Kernel, len: usize, expected: Code) -> String {
    let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
    let prepared = Prepared::new(kernel, DType::F32, len, f32_bytes(&x));
    let mut messages = Vec::new();
    for options in schedules() {
        let error = prepared.run(&options).expect_err("the detectors find the defect");
        assert_eq!(error.code, expected, "{options:?}: {error}");
        assert_eq!(prepared.run(&options).unwrap_err(), error, "the same options give the same error");
        messages.push(error.to_string());
    }
    assert_eq!(messages[0], messages[1], "one host thread or all: the same message");
    messages.swap_remove(0)
}
