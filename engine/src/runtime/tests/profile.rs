//! Profiles: what each step is charged with.

use super::session;
use crate::num::{DType, Value};
use crate::options::{NoTrace, Options, Phase};
use crate::runtime::{BenchOptions, ProgramProfile, Session, StepCost};
use crate::tensor::{Arg, HostTensor};
use crate::text;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Two kernels with an operation of the host between them, and an input that is updated.
const TEXT: &str = "fusion @steps(%x: f32[?, ?], %old: f32[?, ?], %rows: i64[?]) {
  %0 = exp %x
  %c = cast %0 f8e8m0fnu
  %i = index_put_accumulate %c, %rows, %c
  %1 = cast %i f32
  %2 = add %1, %x
  update %old = %2
  return %2
}";

fn args() -> Vec<Arg> {
    let element = |index: &[i64]| Value::Float(index.iter().sum::<i64>() as f64 / 64.0);
    let tensor = || Arg::Tensor(HostTensor::from_fn(DType::F32, &[32, 48], element).unwrap());
    let rows = HostTensor::from_fn(DType::I64, &[32], |_| Value::Int(0)).unwrap();
    vec![tensor(), tensor(), Arg::Tensor(rows)]
}

fn profile(session: &Session) -> ProgramProfile {
    let ticks = AtomicU64::new(0);
    let clock = || Duration::from_millis(ticks.fetch_add(1, Ordering::Relaxed));
    session.profile(&text::parse_one(TEXT).unwrap(), &args(), &BenchOptions::default(), &clock).unwrap()
}

#[test]
fn each_step_is_charged_with_its_own() {
    let session = session();
    let run = session.run(&text::parse_one(TEXT).unwrap(), &args(), &NoTrace).unwrap();
    // What the session has compiled is compiled again to be timed.
    let profile = profile(&session);
    let bytes = 4 * 32 * 48;
    let steps: Vec<_> = profile.steps.iter().map(|step| (step.segment, step.made_by, step.bytes())).collect();
    let expected = [
        (Some(0), "pointwise", bytes + bytes / 4),
        (Some(1), "host", bytes / 2 + 8 * 32),
        (Some(2), "pointwise", 2 * bytes + bytes / 4),
        (None, "copy", 2 * bytes),
    ];
    assert_eq!(steps, expected, "{profile}");
    let mut reports = run.reports.iter().flatten();
    for step in &profile.steps {
        let phases: Vec<Phase> = step.compile.iter().map(|(phase, _)| *phase).collect();
        match &step.cost {
            StepCost::Counted(counters) => {
                assert_eq!(phases, [Phase::Schedule, Phase::Lower, Phase::Codegen]);
                assert!(step.compile.iter().all(|(_, time)| !time.is_zero()));
                assert_eq!(**counters, reports.next().unwrap().counters);
            }
            StepCost::Host(time) => assert!(step.made_by == "host" && !time.is_zero() && phases.is_empty()),
            StepCost::Nothing => assert!(step.made_by == "copy" && phases.is_empty()),
            StepCost::Timed { .. } => panic!("a simulated device has no time"),
        }
        assert_eq!((step.share_of_copy(), step.gigabytes_per_second()), (None, None));
    }
    let table = profile.to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("profile @steps on simulated NVIDIA H200: made in "), "{table}");
    assert!(
        lines[1].starts_with("segment  by ") && lines[1].ends_with("instructions  sectors  of the least"),
        "{table}"
    );
    assert!(lines[5].starts_with("-        copy ") && lines.len() == 6, "{table}");
}

#[test]
fn many_threads_profile_at_once() {
    let session = session();
    let costs =
        |profile: &ProgramProfile| profile.steps.iter().map(|step| format!("{:?}", step.cost)).collect::<Vec<_>>();
    let kernels = |costs: Vec<String>| costs.into_iter().filter(|cost| cost.starts_with("Counted")).collect::<Vec<_>>();
    let expected = kernels(costs(&profile(&session)));
    assert_eq!(expected.len(), 2);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| profile(&session))).collect();
        for profile in asked {
            assert_eq!(kernels(costs(&profile.join().unwrap())), expected);
        }
    });
}

#[test]
fn a_kernel_of_several_steps_is_charged_to_the_first() {
    let text = "fusion @twice(%x: f32[?, ?]) {
  %0 = exp %x
  %1 = segment_set %0
  %2 = exp %1
  %3 = segment_set %2
  %4 = exp %3
  return %4
}";
    let clock = || Duration::ZERO;
    let args = &args()[..1];
    let profile = session().profile(&text::parse_one(text).unwrap(), args, &BenchOptions::default(), &clock).unwrap();
    let compiled: Vec<bool> = profile.steps.iter().map(|step| !step.compile.is_empty()).collect();
    assert_eq!(compiled, [true, true, false], "{profile}");
}

/// Holds what a GPU measures against what must be so of any.
#[test]
#[ignore = "needs gpu"]
fn needs_gpu_steps_are_timed_beside_copies() {
    let session = Session::cuda(0, Options::default()).unwrap();
    let start = Instant::now();
    let fusion = text::parse_one(TEXT).unwrap();
    let profile = session.profile(&fusion, &args(), &BenchOptions::default(), &move || start.elapsed()).unwrap();
    for step in &profile.steps {
        match step.cost {
            StepCost::Timed { ns, copy_ns } => assert!(ns > 0.0 && copy_ns.is_some_and(|copy| copy > 0.0), "{profile}"),
            StepCost::Host(time) => assert!(!time.is_zero(), "{profile}"),
            StepCost::Nothing | StepCost::Counted(_) => panic!("{profile}"),
        }
        let is_kernel = step.made_by == "pointwise";
        assert_eq!(step.compile_time(Phase::Load).is_some(), is_kernel, "{profile}");
    }
}
