//! Differential fuzzing of schedule and lowering: random valid fusions over
//! random sizes and layouts, compiled and run on the simulator with all
//! detectors under two schedules, against the reference.
//!
//! A draw is a string of bytes, so a failure shrinks to few bytes. The committed
//! test walks fixed seeds; `fuzz_for_long` (ignored by default) takes fresh ones.

#![allow(clippy::unwrap_used, reason = "a test: what fails here is the finding")]

use crate::property::draws;
use engine::diag::DiagnosticKind;
use engine::fusion::{AxisDecl, FusionBuilder, Operand, bind};
use engine::num::{BinaryOp, DType, ReduceOp, UnaryOp, Value};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use engine::{compile, kernel};
use std::collections::BTreeMap;
use testing::fusions::{Generated, Limits, generate, scalar_value};
use testing::random::tuning;
use testing::reference::alignments;
use testing::{Draw, Reference};

/// Draws numbers from bytes; zeros when they are used up.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn pick(&mut self, n: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % n.max(1)
    }
}

/// Strides for sizes, and an offset: dense, permuted, with gaps, with expanded
/// axes, at a misaligned place.
fn layout(bytes: &mut Bytes<'_>, dtype: DType, sizes: &[i64]) -> (TensorMeta, usize) {
    let dense = TensorMeta::contiguous(dtype, sizes);
    let kind = bytes.pick(8);
    if kind < 3 {
        return (dense, 0);
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if kind & 1 == 1 {
        for last in (1..order.len()).rev() {
            order.swap(last, bytes.pick(last + 1));
        }
    }
    let mut strides = vec![1; sizes.len()];
    let mut next = 1;
    for axis in order.into_iter().rev() {
        // An expanded axis; a gap after a run of elements.
        match if kind >= 4 { bytes.pick(8) } else { 7 } {
            0 => strides[axis] = 0,
            1 => {
                next = (next + bytes.pick(5) as i64).max(1);
                strides[axis] = next;
                next *= sizes[axis].max(1);
            }
            2 => {
                // Rows at multiples of a vector.
                next = (next + 7) / 8 * 8;
                strides[axis] = next;
                next *= sizes[axis].max(1);
            }
            _ => {
                strides[axis] = next;
                next *= sizes[axis].max(1);
            }
        }
    }
    let offset = if kind >= 6 { bytes.pick(17) } else { 0 };
    (TensorMeta { dtype, sizes: sizes.to_vec(), strides }, offset)
}

fn tensor(bytes: &mut Bytes<'_>, dtype: DType, sizes: &[i64], seed: u64) -> HostTensor {
    let (meta, offset) = layout(bytes, dtype, sizes);
    let special = bytes.pick(16) == 15;
    let mut draw = Draw::new(seed);
    let view = HostTensor::strided(meta, |_| {
        let number = draw.below(64) as i64 - 32;
        match dtype.class() {
            _ if special && draw.once_in(32) => {
                Value::Float(draw.choose(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]))
            }
            engine::num::DTypeClass::Float => Value::Float(number as f64 / 16.0),
            engine::num::DTypeClass::Int => Value::Int(number / 4),
            engine::num::DTypeClass::Bool => Value::Bool(number & 1 == 1),
            engine::num::DTypeClass::Complex => Value::Complex(number as f64 / 16.0, 0.25),
        }
    })
    .unwrap();
    let mut data = vec![0xff; offset * dtype.bytes()];
    data.extend_from_slice(&view.data);
    HostTensor::new(view.meta, data, offset).unwrap()
}

fn args(bytes: &mut Bytes<'_>, generated: &Generated) -> Vec<Arg> {
    let fusion = &generated.fusion;
    let mut seed = 1;
    fusion
        .inputs
        .iter()
        .zip(&generated.sizes)
        .map(|(operand, sizes)| {
            seed += 2;
            match (*operand, sizes) {
                (Operand::Tensor(t), Some(sizes)) => Arg::Tensor(tensor(bytes, fusion.tensors[t].dtype, sizes, seed)),
                (Operand::Scalar(s), _) => Arg::Scalar(scalar_value(fusion.scalars[s].dtype, bytes.pick(256) as u8)),
                (Operand::Tensor(_), None) => panic!("a tensor has sizes"),
            }
        })
        .collect()
}

/// A fusion of reductions over one set of axes and of elementwise operations
/// between tensors of the whole shape and of the reduced one: what one kernel
/// should do, and what unguided draws seldom hit.
fn normalisation(bytes: &mut Bytes<'_>, limits: &Limits) -> Generated {
    const BINARY: [BinaryOp; 5] = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Maximum, BinaryOp::Minimum];
    let binary = |b: &mut FusionBuilder, bytes: &mut Bytes<'_>, x: Operand, y: Operand| {
        // Truth values are not subtracted, but every type has a maximum.
        b.binary(BINARY[bytes.pick(5)], x, y).unwrap_or_else(|_| b.maximum(x, y).unwrap())
    };
    const REDUCE: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min];
    const UNARY: [UnaryOp; 4] = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Tanh];
    let mut b = FusionBuilder::new("rows");
    let rank = 1 + bytes.pick(limits.rank);
    let shape: Vec<i64> = (0..rank).map(|_| limits.sizes[bytes.pick(limits.sizes.len())]).collect();
    let chosen = 1 + bytes.pick((1 << rank) - 1);
    let axes: Vec<i64> = (0..rank as i64).filter(|axis| chosen >> axis & 1 == 1).collect();
    let mut sizes = Vec::new();
    let mut whole = Vec::new();
    for input in 0..1 + bytes.pick(3) {
        let mut actual = Vec::new();
        let dims: Vec<AxisDecl> = shape
            .iter()
            .map(|&size| {
                let thin = input > 0 && bytes.pick(4) == 0;
                actual.push(if thin { 1 } else { size });
                if thin {
                    AxisDecl::Broadcast
                } else if bytes.pick(3) == 0 {
                    AxisDecl::Const(size)
                } else {
                    AxisDecl::Symbolic
                }
            })
            .collect();
        let dtype = limits.dtypes[bytes.pick(limits.dtypes.len())];
        let x = b.tensor(&format!("x{input}"), dtype, &dims).unwrap();
        let x = if input == 0 { x } else { binary(&mut b, bytes, whole[0], x) };
        sizes.push(Some(actual));
        whole.push(x);
    }
    let mut rows: Vec<Operand> = Vec::new();
    for _ in 0..2 + bytes.pick(7) {
        let x = whole[whole.len() - 1 - bytes.pick(whole.len())];
        match bytes.pick(if rows.is_empty() { 2 } else { 6 }) {
            0 | 2 => rows.push(b.reduce(REDUCE[bytes.pick(3)], x, &axes, true, None).unwrap()),
            1 => {
                let op = UNARY[bytes.pick(if limits.tame { 4 } else { 1 })];
                // Not every operation takes every type.
                whole.extend(b.unary(op, x));
            }
            3 => {
                let (r, s) = (rows[bytes.pick(rows.len())], rows[rows.len() - 1]);
                rows.push(binary(&mut b, bytes, r, s));
            }
            _ => {
                let r = rows[rows.len() - 1 - bytes.pick(rows.len())];
                whole.push(binary(&mut b, bytes, x, r));
            }
        }
    }
    for _ in 0..1 + bytes.pick(2) {
        let from = if bytes.pick(3) == 0 && !rows.is_empty() { &rows } else { &whole };
        let to = limits.dtypes[bytes.pick(limits.dtypes.len())];
        let x = from[from.len() - 1 - bytes.pick(from.len().min(2))];
        let x = if bytes.pick(2) == 0 { b.cast(x, to).unwrap_or(x) } else { x };
        b.output(x).unwrap();
    }
    Generated { fusion: b.finish().unwrap(), sizes, accepted: 0, rejected: 0 }
}

/// What became of a draw.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Ran(&'static str),
    Refused(&'static str, String),
}

fn limits(bytes: &mut Bytes<'_>) -> Limits {
    let exact = vec![DType::I32, DType::I64, DType::I8, DType::U8, DType::Bool];
    let floats = vec![DType::F32, DType::BF16, DType::F32, DType::F64, DType::F16];
    let (dtypes, tame) = match bytes.pick(4) {
        0 => (exact, false),
        1 => (vec![DType::F32], true),
        _ => (floats, true),
    };
    let mut sizes = match bytes.pick(4) {
        0 => vec![2, 3, 5, 7, 8, 16, 17, 31, 33, 1000],
        1 => vec![2, 4, 8, 16, 32, 64, 256, 4096],
        2 => vec![1, 4, 129, 13, 32, 4097],
        _ => Limits::default().sizes,
    };
    // About 20 000 elements at most.
    let rank = 1 + bytes.pick(6);
    let most = [20_000, 141, 27, 12, 7, 5][rank - 1];
    sizes.retain(|size| *size <= most);
    Limits { ops: 8, inputs: 3, rank, sizes, dtypes, tame, ..Limits::default() }
}

/// Compiles and runs one draw; panics with all that is known if it is wrong.
fn check(data: &[u8]) -> Outcome {
    let split = data.len() / 4;
    let (head, tail) = data.split_at(split);
    let mut bytes = Bytes(head.iter());
    let limits = limits(&mut bytes);
    let generated = match bytes.pick(3) {
        0 => normalisation(&mut Bytes(tail.iter()), &limits),
        _ => generate(tail, &limits),
    };
    let fusion = &generated.fusion;
    let args = args(&mut bytes, &generated);
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let bindings = bind(fusion, &metas).unwrap();
    let elements = fusion.tensors.ids().map(|t| bindings.sizes(fusion, t).iter().product::<i64>()).max();
    if elements.unwrap_or(0) > 100_000 {
        return Outcome::Refused("", "too large for this test".into());
    }
    // Fewer multiprocessors make loops over rows and several blocks a result
    // worth while at sizes that are quickly run.
    let device = DeviceDesc { sm_count: [132, 132, 2, 16][bytes.pick(4)], ..DeviceDesc::h200() };
    let options = Options {
        force_index64: bytes.pick(8) == 7,
        tuning: tuning(&mut Draw::new(bytes.pick(256) as u64)),
        ..Options::default()
    };
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    let aligns = alignments(&args);
    let compiled = match compile::compile_fusion(&cx, fusion, &metas, &aligns) {
        Ok(compiled) => compiled,
        Err(error) if error.kind == DiagnosticKind::Unsupported => {
            // The reason without the tensors' names.
            let words = error.message.split(' ').filter(|word| !word.contains('%'));
            return Outcome::Refused(error.code.0, words.collect::<Vec<_>>().join(" "));
        }
        Err(error) => panic!("{error}\n{}\n{metas:?}", engine::text::print(fusion)),
    };
    let reference = Reference::of(fusion, &args).and_then(Reference::scaled).unwrap();
    // A wild function of a rounding error is not comparable; the run is checked all the same.
    let reference = if limits.tame { reference } else { reference.without_floats() };
    let context = || {
        format!(
            "{}\n{metas:?} {options:?} {} multiprocessors\n{} {}\n{}\n{}",
            engine::text::print(fusion),
            device.sm_count,
            compiled.scheduler,
            compiled.params_text,
            compiled.schedule_text.as_deref().unwrap_or_default(),
            kernel::print(&compiled.kernel)
        )
    };
    for (seed, schedule) in [(0, SimSchedule::Lockstep), (1, SimSchedule::Adversary)] {
        let options = SimOptions { schedule, seed, threads: 1, count: false, ..SimOptions::default() };
        if let Err(error) = reference.check_kernel(&compiled.kernel, &options) {
            panic!("{}\n{error}", context());
        }
    }
    Outcome::Ran(compiled.scheduler)
}

/// Draws of growing length for consecutive seeds.
fn drawn(seed: u64) -> Vec<u8> {
    Draw::new(seed).bytes(48 + seed as usize % 160)
}

fn rates(outcomes: &BTreeMap<Outcome, usize>) -> String {
    let all: usize = outcomes.values().sum();
    outcomes
        .iter()
        .map(|(outcome, n)| format!("{outcome:?}: {n} ({:.1} %)\n", *n as f64 * 100.0 / all.max(1) as f64))
        .collect()
}

#[test]
fn random_fusions_agree_with_the_reference() {
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    for seed in draws::drawn(10_000) {
        *outcomes.entry(check(&drawn(seed))).or_default() += 1;
    }
    let refused: usize = outcomes.iter().filter(|(o, _)| matches!(o, Outcome::Refused(..))).map(|(_, n)| n).sum();
    assert!(refused * 5 < outcomes.values().sum(), "too many draws were refused\n{}", rates(&outcomes));
}

/// Many seeds, each failure reported by its first line: for finding defects.
#[test]
#[ignore = "runs for minutes; finds new seeds"]
#[allow(clippy::print_stdout, reason = "its output is its purpose")]
fn fuzz_for_long() {
    let number = |name: &str, fallback: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(fallback);
    let (first, count) = (number("FUZZ_FIRST", 1_000_000), number("FUZZ_COUNT", 1000));
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    let mut failed = Vec::new();
    std::panic::set_hook(Box::new(|_| ()));
    for seed in first..first + count {
        match std::panic::catch_unwind(|| check(&drawn(seed))) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned().unwrap_or_default();
                failed.push((seed, text));
            }
        }
    }
    let _ = std::panic::take_hook();
    println!("{}", rates(&outcomes));
    failed.sort_by_key(|(_, text)| text.len());
    for (seed, text) in failed.iter().take(number("FUZZ_SHOW", 5) as usize) {
        println!("==== seed {seed}\n{text}");
    }
    for (seed, text) in &failed {
        println!("---- seed {seed}: {}", text.lines().last().unwrap_or_default());
    }
    assert!(failed.is_empty(), "{} failures", failed.len());
}
