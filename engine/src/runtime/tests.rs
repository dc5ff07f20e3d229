//! Tests of sessions: plans, caches, determinism.

mod cache;
mod graphs;
mod known;
mod models;
mod profile;

use super::{PhaseTimes, Session};
use crate::backend::cuda::print_cuda;
use crate::compile::{Plan, bind_launch};
use crate::diag::Result;
use crate::fusion::{AxisDecl, Fusion, FusionBuilder, Operand};
use crate::num::{DType, Value};
use crate::options::{DeviceDesc, NoTrace, Options, Phase, SimOptions, SimSchedule};
use crate::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use std::sync::Arc;

const DYNAMIC: &[AxisDecl] = &[AxisDecl::Symbolic, AxisDecl::Symbolic];

fn session() -> Session {
    Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default())
}

fn fusion(name: &str, build: impl FnOnce(&mut FusionBuilder) -> Result<Operand>) -> Fusion {
    let mut b = FusionBuilder::new(name);
    let y = build(&mut b).unwrap();
    b.output(y).unwrap();
    b.finish().unwrap()
}

/// One fusion of each kind, each with one input of two axes.
fn samples() -> Vec<Fusion> {
    let x = |b: &mut FusionBuilder| b.tensor("x", DType::BF16, DYNAMIC);
    vec![
        fusion("gelu", |b| {
            let x = x(b)?;
            let y = b.gelu(x)?;
            b.cast(y, DType::BF16)
        }),
        fusion("sum_inner", |b| {
            let x = x(b)?;
            b.sum(x, &[1], false)
        }),
        fusion("softmax", |b| {
            let x = x(b)?;
            let y = b.softmax(x, -1)?;
            b.cast(y, DType::BF16)
        }),
        fusion("rms_norm", |b| {
            let x = x(b)?;
            b.rms_norm(x, None, 1e-5)
        }),
    ]
}

fn metas(sizes: [i64; 2]) -> Vec<ArgMeta> {
    vec![ArgMeta::Tensor(TensorMeta::contiguous(DType::BF16, &sizes))]
}

fn texts(session: &Session, fusion: &Fusion, sizes: [i64; 2]) -> String {
    let plan = session.compile(fusion, &metas(sizes), &NoTrace).unwrap();
    format!("{}\n{}\n{}\n{}", plan.params_text(), plan.schedule_text(), plan.kernel_text(), print_cuda(plan.kernel()))
}

fn shares_nothing_mutable<T: Send + Sync>() {}

#[test]
fn sessions_and_plans_are_shared_between_threads() {
    shares_nothing_mutable::<Session>();
    shares_nothing_mutable::<Plan>();
}

#[test]
fn plans_are_kept_by_everything_that_they_depend_on() {
    let session = session();
    let [gelu, sum, ..] = &samples()[..] else { panic!("there are samples") };
    let compile = |fusion, sizes| session.compile(fusion, &metas(sizes), &NoTrace).unwrap();
    let first = compile(gelu, [64, 256]);
    assert!(Arc::ptr_eq(&first, &compile(gelu, [64, 256])));
    assert!(!Arc::ptr_eq(&first, &compile(sum, [64, 256])));
    assert_eq!(session.cached_plans(), 2);
    compile(gelu, [64, 257]);
    assert_eq!(session.cached_plans(), 3);
    // Other rows, same schedule: another plan with the same code.
    assert_eq!(compile(sum, [4096, 4096]).kernel_hash(), compile(sum, [8192, 4096]).kernel_hash());
}

#[test]
fn texts_are_the_same_in_every_run_and_thread() {
    let samples = samples();
    let compile_all = |sizes: [i64; 2]| {
        let session = session();
        samples.iter().map(|fusion| texts(&session, fusion, sizes)).collect::<Vec<_>>()
    };
    let expected = compile_all([8192, 4097]);
    for _ in 0..100 / samples.len() {
        assert_eq!(compile_all([8192, 4097]), expected);
    }
    for threads in [1, 2, 8] {
        let session = session();
        let results: Vec<Vec<String>> = std::thread::scope(|scope| {
            let work = |first: usize| {
                let (session, samples) = (&session, &samples);
                move || {
                    // Each thread starts with another fusion, so that compilations interleave.
                    let mut found = vec![String::new(); samples.len()];
                    for i in 0..samples.len() {
                        let at = (first + i) % samples.len();
                        found[at] = texts(session, &samples[at], [8192, 4097]);
                    }
                    found
                }
            };
            let handles: Vec<_> = (0..threads).map(|first| scope.spawn(work(first))).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        assert!(results.iter().all(|found| *found == expected), "with {threads} threads");
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_is_compiled() {
    let session = session();
    let gelu = &samples()[0];
    let wrong_type = Arg::Tensor(HostTensor::zeros(DType::F32, &[2, 2]).unwrap());
    for (args, code) in [(vec![], "E0301"), (vec![wrong_type], "E0302"), (vec![Arg::Scalar(Value::Int(1))], "E0309")] {
        let error = session.run(gelu, &args, &NoTrace).unwrap_err();
        assert_eq!(error.code.0, code, "{error}");
    }
    assert_eq!(session.cached_plans(), 0);
}

#[test]
fn empty_outputs_need_no_launch() {
    let session = session();
    for fusion in samples() {
        let empty = Arg::Tensor(HostTensor::zeros(DType::BF16, &[0, 0]).unwrap());
        let run = session.run(&fusion, &[empty], &NoTrace).unwrap();
        let launch = run.kernel().unwrap();
        assert!(launch.launch.is_empty() && run.outputs[0].numel() == 0, "{}", fusion.name);
    }
}

#[test]
fn phases_are_traced() {
    let start = std::time::Instant::now();
    let times = PhaseTimes::new(move || start.elapsed());
    let session = session();
    for fusion in samples() {
        session.compile(&fusion, &metas([16_384, 4096]), &times).unwrap();
    }
    let phases: Vec<Phase> = times.totals().into_iter().map(|(phase, _)| phase).collect();
    assert_eq!(phases, [Phase::Schedule, Phase::Lower]);
}

/// Runs a fusion on the simulator under every kind of schedule, against the reference.
#[track_caller]
fn check_run(fusion: &Fusion, args: &[Arg]) {
    let expected = crate::refeval::evaluate(fusion, args).unwrap();
    let schedules = [SimSchedule::Lockstep, SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary];
    let options = schedules.map(|schedule| SimOptions { schedule, seed: 7, ..SimOptions::default() });
    for (run, schedule) in session().run_many(fusion, args, &options, &NoTrace).into_iter().zip(schedules) {
        let run = run.unwrap_or_else(|error| panic!("{} under {schedule:?}: {error}", fusion.name));
        for (found, expected) in run.outputs.iter().zip(&expected) {
            assert_eq!(found.sizes(), expected.sizes());
            for (a, b) in found.to_f64().into_iter().zip(expected.to_f64()) {
                assert!((a - b).abs() <= 1e-2 * b.abs() + 1e-2, "{} under {schedule:?}: {a}, not {b}", fusion.name);
            }
        }
    }
}

fn ramp(dtype: DType, sizes: &[i64]) -> HostTensor {
    HostTensor::from_fn(dtype, sizes, |i| Value::Float((i.iter().sum::<i64>() % 13) as f64 / 4.0 - 1.0)).unwrap()
}

#[test]
fn simulated_runs_agree_with_the_reference() {
    for fusion in samples() {
        for sizes in [[1, 1], [3, 129], [33, 64], [5, 1023]] {
            check_run(&fusion, &[Arg::Tensor(ramp(DType::BF16, &sizes))]);
        }
    }
}

/// What becomes simpler operations refuses places that there are not, by the name of the one that reads them.
#[test]
fn places_that_there_are_not_are_refused() {
    let dims = "%a: f32[?, ?], %i: i64[?]";
    let put = format!("fusion @f({dims}) {{\n  %y = index_put_accumulate %a, %i, %a\n  return %y\n}}\n");
    let runs = format!("fusion @f({dims}) {{\n  %y = index_put_runs %a, %i, %i, %a\n  return %y\n}}\n");
    for (text, places, expected) in [
        (&put, [0, -4, 1], "index_runs: index[1] is -4, axis 0 has 3 elements"),
        (&put, [0, 3, 1], "index_runs: index[1] is 3, axis 0 has 3 elements"),
        (&runs, [0, 2, 1], "index_put_runs: run 2 ends at 1, it must end from 2 to 3"),
        (&runs, [0, 1, 3], "index_put_runs: index[2] is 3, axis 0 has 3 elements"),
    ] {
        let fusion = crate::text::parse_one(text).unwrap();
        let args = [ramp(DType::F32, &[3, 8]), HostTensor::from_i64(DType::I64, &[3], &places).unwrap()];
        let mut runs = session().run_many(&fusion, &args.map(Arg::Tensor), &[SimOptions::default()], &NoTrace);
        let error = runs.remove(0).map(drop).unwrap_err();
        assert_eq!(error.message, expected);
    }
}

/// Kernels go by rows, so what groups are is asked of the definition.
#[test]
fn groups_that_start_anywhere_fit_their_matrices() {
    let text = "fusion @f(%a: f4e2m1fn[?, ?], %b: f4e2m1fn[?, ?, ?], %s: f8e4m3fn[?, ?], %t: f8e4m3fn[?, ?, ?], %w: f32[?], \
                %p: i32[?, 3], %o: i32[?], %f: i32[?]) {\n  %q = add %o, 1\n  %r = sub %q, 1\n  \
                %y = cutlass_nvfp4_grouped_mm %a, %b, %s, %t, %w, %p, %r, %f\n  return %y\n}\n";
    let fusion = crate::text::parse_one(text).unwrap();
    let ones = |dtype, sizes: &[i64]| HostTensor::from_fn(dtype, sizes, |_| Value::Float(1.0)).unwrap();
    let ints = |sizes: &[i64], values: &[i64]| HostTensor::from_i64(DType::I32, sizes, values).unwrap();
    let run = |[first, second]: [i64; 2], starts: [i64; 2], scales: [i64; 2]| {
        let args = [
            ones(DType::F4E2M1FN, &[7, 64]),
            ones(DType::F4E2M1FN, &[2, 64, 3]),
            ones(DType::F8E4M3FN, &[256, 4]),
            ones(DType::F8E4M3FN, &[2, 128, 4]),
            ones(DType::F32, &[2]),
            ints(&[2, 3], &[first, 3, 64, second, 3, 64]),
            ints(&[2], &starts),
            ints(&[2], &scales),
        ];
        let args = args.map(Arg::Tensor);
        let expected = crate::refeval::evaluate(&fusion, &args).map(|results| results[0].to_f64());
        let mut runs = session().run_many(&fusion, &args, &[SimOptions::default()], &NoTrace);
        let found = runs.remove(0).map(|run| run.outputs[0].to_f64());
        let message = |result: Result<Vec<f64>>| result.map_err(|error| format!("{}: {}", error.code.0, error.message));
        let (found, expected) = (message(found), message(expected));
        assert_eq!(found, expected);
        found.map(|rows| rows[0])
    };
    assert_eq!(run([4, 3], [0, 4], [0, 128]), Ok(64.0));
    // What has no rows has no scales.
    assert_eq!(run([4, 0], [0, 7], [0, 100_000]), Ok(64.0));
    assert!(
        run([4, 4], [0, 4], [0, 128]).unwrap_err().starts_with("E0213: cutlass_nvfp4_grouped_mm: group 1 of sizes")
    );
    assert!(
        run([4, 3], [-1, 4], [0, 128]).unwrap_err().starts_with("E0213: cutlass_nvfp4_grouped_mm: group 0 of sizes")
    );
    assert!(
        run([4, 3], [0, 4], [0, 129])
            .unwrap_err()
            .ends_with("3 rows need 512 swizzled scales from 516 on, there are 1024")
    );
}

#[test]
fn views_run_from_their_first_element() {
    let storage = ramp(DType::BF16, &[5000]);
    for (sizes, strides, offset) in [
        ([4, 64], [64, 1], 8),
        ([4, 64], [64, 1], 3),
        ([4, 64], [100, 1], 0),
        ([64, 4], [1, 64], 16),
        ([8, 64], [0, 1], 1),
    ] {
        let meta = TensorMeta { dtype: DType::BF16, sizes: sizes.to_vec(), strides: strides.to_vec() };
        let view = HostTensor::new(meta, storage.data.clone(), offset).unwrap();
        for fusion in samples() {
            check_run(&fusion, &[Arg::Tensor(view.clone())]);
        }
    }
}

#[test]
fn scalars_may_change_between_calls_of_one_plan() {
    let fusion = {
        let mut b = FusionBuilder::new("scaled");
        let x = b.tensor("x", DType::F32, DYNAMIC).unwrap();
        let alpha = b.scalar("alpha", DType::F64).unwrap();
        let y = b.mul(x, alpha).unwrap();
        b.output(y).unwrap();
        b.finish().unwrap()
    };
    let session = session();
    let x = Arg::Tensor(ramp(DType::F32, &[2, 5]));
    for alpha in [2.0, -0.5] {
        let args = [x.clone(), Arg::Scalar(Value::Float(alpha))];
        let run = session.run(&fusion, &args, &NoTrace).unwrap();
        assert_eq!(run.outputs, crate::refeval::evaluate(&fusion, &args).unwrap());
    }
    assert_eq!(session.cached_plans(), 1);
}

#[test]
fn tensors_without_axes_run() {
    let fusion = fusion("total", |b| {
        let x = b.tensor("x", DType::F32, &[AxisDecl::Symbolic])?;
        let sum = b.sum(x, &[0], false)?;
        b.exp(sum)
    });
    check_run(&fusion, &[Arg::Tensor(ramp(DType::F32, &[9]))]);
}

#[test]
fn calls_give_their_memory_back() {
    let session = session();
    let fusion = &samples()[0];
    let x = HostTensor::zeros(DType::BF16, &[8, 64]).unwrap();
    session.run(fusion, &[Arg::Tensor(x)], &NoTrace).unwrap();
    let memory = session.memory().unwrap();
    assert_eq!((memory.live, memory.free), (0, memory.total));
    session.probe().unwrap();
}

#[test]
fn a_launch_that_does_not_fit_tells_what_it_was_computed_from() {
    let plan = session().compile(&samples()[1], &metas([8, 32]), &NoTrace).unwrap();
    let shorter = [TensorMeta::contiguous(DType::BF16, &[7])];
    let error = bind_launch(&plan, &metas([8, 32]), &shorter).unwrap_err();
    let told = |words: &str| error.notes.iter().any(|note| note.starts_with(words));
    assert!(error.message.contains("has 7 elements"), "{error:?}");
    assert!(told("`param x_n0: i32 = size(0, 0)") && told("`launch grid ("), "{error:?}");
    assert!(error.notes.iter().any(|note| note.ends_with(" is 32")), "{error:?}");
}
