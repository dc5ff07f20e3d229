//! The detectors detect: ten generated kernels are mutated in every barrier,
//! predicate and index, and each mutant is found out or shown equivalent.
//!
//! A mutant runs on several shapes under several schedules with all detectors.
//! It is *detected* if a run is refused with a code that fits the change,
//! *wrong* if an output differs from the unchanged kernel's or stays unwritten,
//! and *equivalent* if every output of every run is the same bit for bit. A
//! removed barrier is equivalent only if no run has a race, which the detector
//! finds by ordering, not by chance: what it does not report in one schedule is
//! ordered by the remaining barriers in all schedules that execute the same
//! accesses.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code outside test functions")]

mod mutate;

use engine::backend::sim::{self, SimMemory};
use engine::diag::{Code, Result, code};
use engine::kernel::{self, Kernel};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::tensor::{ArgMeta, HostTensor};
use engine::{compile, text};
use mutate::{Change, Mutant, mutants};
use std::collections::BTreeMap;
use testing::Draw;

/// How a mutant was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Refused by the verifier.
    Rejected,
    /// Refused by the simulator.
    Detected(Code),
    /// Ran to a wrong result.
    Wrong,
    /// No run executes the statement.
    Unreached,
    /// Ran to the same result everywhere.
    Equivalent,
}

fn schedules() -> Vec<SimOptions> {
    let base = SimOptions { threads: 1, count: false, max_steps: 1 << 20, ..SimOptions::default() };
    let mut all = vec![base];
    for (seed, schedule) in [SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary].into_iter().enumerate() {
        all.push(SimOptions { schedule, seed: seed as u64 + 1, ..base });
    }
    all
}

/// Arguments of one shape.
struct Case {
    metas: Vec<ArgMeta>,
    inputs: Vec<Vec<u8>>,
}

impl Case {
    fn new(fusion: &engine::fusion::Fusion, sizes: &[Vec<i64>]) -> Self {
        let tensors: Vec<HostTensor> = fusion
            .input_tensors()
            .zip(sizes)
            .enumerate()
            .map(|(i, ((_, tensor), sizes))| noise(fusion.tensors[tensor].dtype, sizes, i as u64))
            .collect();
        Self {
            metas: tensors.iter().map(|t| ArgMeta::Tensor(t.meta.clone())).collect(),
            inputs: tensors.into_iter().map(|t| t.data).collect(),
        }
    }

    /// What a kernel does.
    fn run(&self, kernel: &Kernel, options: &SimOptions) -> Result<Run> {
        let launch = kernel::bind(kernel, &self.metas)?;
        let mut memory = SimMemory::new(kernel, &launch);
        for (i, bytes) in self.inputs.iter().enumerate() {
            memory.fill_input(i as u32, bytes)?;
        }
        let report = sim::run(kernel, &launch, &mut memory, options)?;
        Ok(Run {
            outputs: (0..).map_while(|i| memory.output(i).map(<[u8]>::to_vec)).collect(),
            complete: report.unwritten.iter().all(|(_, _, missing)| *missing == 0),
            executed: report.executed,
        })
    }
}

/// What a run gave.
struct Run {
    outputs: Vec<Vec<u8>>,
    /// Whether all outputs were written.
    complete: bool,
    /// Whether each statement was executed.
    executed: Vec<bool>,
}

fn noise(dtype: engine::num::DType, sizes: &[i64], seed: u64) -> HostTensor {
    let mut draw = Draw::new(seed);
    let value = |_: &[i64]| engine::num::Value::Float(draw.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0);
    HostTensor::from_fn(dtype, sizes, value).unwrap()
}

/// What a mutant does on all shapes under all schedules, given what the
/// unchanged kernel does.
fn judge(mutant: &Mutant, runs: &[(Case, Vec<Run>)]) -> Verdict {
    if kernel::verify(&mutant.kernel).is_err() {
        return Verdict::Rejected;
    }
    if !runs.iter().flat_map(|(_, runs)| runs).any(|run| run.executed[mutant.number]) {
        return Verdict::Unreached;
    }
    for (case, expected) in runs {
        for (options, expected) in schedules().iter().zip(expected) {
            match case.run(&mutant.kernel, options) {
                Err(error) => return Verdict::Detected(error.code),
                Ok(run) if !run.complete || run.outputs != expected.outputs => return Verdict::Wrong,
                Ok(_) => {}
            }
        }
    }
    Verdict::Equivalent
}

/// Whether a verdict is the right kind for a change.
fn fits(change: Change, verdict: Verdict) -> bool {
    let codes: &[Code] = match change {
        // Without the barrier the reader races with the writer, or comes before it.
        Change::Barrier | Change::Fence | Change::Group => &[code::RACE, code::UNINITIALISED],
        Change::Predicate => &[code::UNINITIALISED, code::RACE, code::DIVERGENCE, code::DEADLOCK],
        Change::Index => &[code::OUT_OF_BOUNDS, code::UNINITIALISED, code::RACE, code::MISALIGNED],
    };
    match verdict {
        Verdict::Rejected | Verdict::Unreached | Verdict::Equivalent => true,
        Verdict::Wrong => change != Change::Fence,
        Verdict::Detected(code) => codes.contains(&code),
    }
}

/// Compiles a fusion for the first shape, mutates the kernel, and judges every
/// mutant on all shapes. Returns how many mutants of each change got which verdict.
fn check_mutants((source, shapes): Source) -> BTreeMap<(Change, Verdict), usize> {
    let fusion = text::parse(source).unwrap_or_else(|errors| panic!("{errors:?}")).fusions.remove(0).fusion;
    let cases: Vec<Case> = shapes().iter().map(|sizes| Case::new(&fusion, sizes)).collect();
    let (mut options, device) = (Options::default(), DeviceDesc::h200());
    options.tuning =
        TUNING.iter().filter(|(name, ..)| source.contains(name)).map(|&(_, key, value)| (key.into(), value)).collect();
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    let aligns = vec![16; cases[0].metas.len()];
    let kernel = compile::compile_fusion(&cx, &fusion, &cases[0].metas, &aligns).unwrap().kernel;
    // What the unchanged kernel does. Other shapes than the first may break a
    // promise that the kernel was made under; they are left out.
    let mut runs: Vec<(Case, Vec<Run>)> = Vec::new();
    for case in cases {
        let results: Result<Vec<Run>> = schedules().iter().map(|options| case.run(&kernel, options)).collect();
        match results {
            Ok(results) if results.iter().all(|run| run.complete) => runs.push((case, results)),
            Err(error) if runs.is_empty() => panic!("{error}\n{}", kernel::print(&kernel)),
            _ => assert!(!runs.is_empty(), "the kernel writes everything"),
        }
    }
    assert!(runs.len() > 2, "{} runs on {} shapes", kernel.name, runs.len());
    let mut counts = BTreeMap::new();
    for mutant in mutants(&kernel) {
        let verdict = judge(&mutant, &runs);
        assert!(
            fits(mutant.change, verdict),
            "{:?} at `{}` gives {verdict:?}\n{}",
            mutant.change,
            mutant.place,
            kernel::print(&kernel)
        );
        if verdict == Verdict::Equivalent {
            println!("{}: {:?} at `{}`: equivalent", kernel.name, mutant.change, mutant.place);
        }
        *counts.entry((mutant.change, verdict)).or_insert(0) += 1;
    }
    println!("{} on {} shapes: {counts:?}", kernel.name, runs.len());
    counts
}

/// A fusion, and its shapes: the first is compiled for, the others run too
/// where the kernel accepts them.
type Source = (&'static str, fn() -> Vec<Vec<Vec<i64>>>);

/// One input of each size.
fn vectors(inputs: usize, sizes: impl Iterator<Item = i64>) -> Vec<Vec<Vec<i64>>> {
    sizes.map(|n| vec![vec![n]; inputs]).collect()
}

/// A first shape, then small ones around every boundary.
fn matrices(first: [i64; 2], rows: &[i64], columns: &[i64]) -> Vec<Vec<Vec<i64>>> {
    let small = rows.iter().flat_map(|&m| columns.iter().map(move |&n| [m, n]));
    std::iter::once(first).chain(small).map(|shape| vec![shape.to_vec()]).collect()
}

/// The same with a second input made from the shape of the first.
fn with(mut shapes: Vec<Vec<Vec<i64>>>, second: fn(i64, i64) -> Vec<i64>) -> Vec<Vec<Vec<i64>>> {
    for inputs in &mut shapes {
        inputs.push(second(inputs[0][0], inputs[0][1]));
    }
    shapes
}

/// Parameters of single fusions. Small blocks of the reduction to one element
/// leave a partial result for every warp of the last block, so that each of its
/// indices matters.
const TUNING: &[(&str, &str, i64)] = &[("@g(", "reduction.threads", 64), ("@g(", "reduction.unroll", 1)];

const KERNELS: &[Source] = &[
    ("fusion @a(%x: f32[?], %y: f32[?]) {\n %0 = mul %x, %y\n %1 = add %0, %x\n return %1\n}", || {
        vectors(2, [1021, 1022, 1023, 1024].into_iter().chain(1..40))
    }),
    ("fusion @b(%x: bf16[?, ?]) {\n %0 = gelu %x\n %1 = cast %0 bf16\n return %1\n}", || {
        matrices([16, 128], &[16, 32, 48], &[16, 64, 128])
    }),
    (
        "fusion @c(%x: f32[?, ?], %y: f32[?]) {\n %b = broadcast %y flags(true, false)\n %0 = sub %x, %b\n return %0\n}",
        || with(matrices([7, 33], &[1, 2, 3, 20], &[1, 3, 4, 5, 31, 32, 63, 64, 65]), |_, n| vec![n]),
    ),
    ("fusion @d(%x: f32[?, ?], %y: f32[?, ?]) {\n %t = permute %x dims(1, 0)\n %0 = add %t, %y\n return %0\n}", || {
        with(matrices([40, 37], &[4, 8, 64, 68], &[1, 2, 3, 7, 8, 9]), |m, n| vec![n, m])
    }),
    ("fusion @e(%x: f32[?, ?]) {\n %0 = sum %x axes(1)\n return %0\n}", || {
        matrices([9, 2051], &[1, 2, 3], &[1, 3, 4, 5, 300, 1021, 1024])
    }),
    ("fusion @f(%x: f32[?, ?]) {\n %0 = max %x axes(0)\n return %0\n}", || {
        matrices([300, 70], &[1, 4, 33, 36], &[1, 2, 70, 71])
    }),
    ("fusion @g(%x: f32[?, ?]) {\n %0 = sum %x axes(0, 1)\n return %0\n}", || {
        matrices([190, 301], &[1, 2, 6], &[1, 5, 301])
    }),
    ("fusion @h(%x: bf16[?, ?]) {\n %0 = softmax %x axis(1)\n %1 = cast %0 bf16\n return %1\n}", || {
        matrices([5, 512], &[1, 3], &[16, 32, 512])
    }),
    ("fusion @i(%x: f32[?, ?], %w: f32[?]) {\n %0 = rms_norm %x, %w eps(1e-5)\n return %0\n}", || {
        with(matrices([6, 517], &[1, 2], &[1, 3, 4, 5, 33, 516]), |_, n| vec![n])
    }),
    ("fusion @j(%x: f32[?, ?]) {\n %v, %m = var_mean %x axes(1)\n return %v, %m\n}", || {
        matrices([6, 700], &[1, 2], &[4, 16, 512, 700])
    }),
];

#[test]
fn mutants_of_generated_kernels_are_found_out() {
    let mut total: BTreeMap<(Change, Verdict), usize> = BTreeMap::new();
    for &source in KERNELS {
        for (key, count) in check_mutants(source) {
            *total.entry(key).or_insert(0) += count;
        }
    }
    let sum = |change| total.iter().filter(|((c, _), _)| *c == change).map(|(_, n)| n).sum::<usize>();
    for change in [Change::Barrier, Change::Fence, Change::Predicate, Change::Index] {
        assert!(sum(change) > 0, "no kernel has a {change:?} to change");
    }
    // An index that points elsewhere, or a fence that is gone, always shows
    // where it is reached; a little room is for shapes that hide one.
    let equivalent = |change| total.get(&(change, Verdict::Equivalent)).copied().unwrap_or(0);
    assert_eq!(equivalent(Change::Fence), 0);
    assert!(equivalent(Change::Index) * 50 <= sum(Change::Index), "{total:?}");
    for (change, code) in
        [(Change::Barrier, code::RACE), (Change::Fence, code::RACE), (Change::Index, code::OUT_OF_BOUNDS)]
    {
        assert!(total.contains_key(&(change, Verdict::Detected(code))), "{change:?} never gives {code}");
    }
}
