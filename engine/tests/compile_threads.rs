//! One thread that compiles and several give equal programs, texts and results.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::draws::drawn;
use engine::backend::cuda::print_cuda;
use engine::fusion::Fusion;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{Arg, HostTensor};
use engine::text;
use std::fmt::Write;
use testing::Draw;
use testing::fusions::{Limits, arguments, generate};

fn session(threads: u32) -> Session {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    let options = Options { compile_threads: threads, ..Options::default() };
    Session::simulator(DeviceDesc::h200(), sim, options)
}

/// Everything that there is to see of a run, and its kernels; or the refusal.
fn seen(session: &Session, fusion: &Fusion, args: &[Arg]) -> Result<(String, Vec<HostTensor>), String> {
    let run = session.run(fusion, args, &NoTrace).map_err(|error| error.to_string())?;
    let mut text = format!("{}{}", run.program.segments, run.program);
    for launch in run.program.launches() {
        write!(text, "{}\n{}", launch.plan.schedule_text(), print_cuda(launch.plan.kernel())).unwrap();
    }
    Ok((text, run.outputs))
}

/// Whether it is several kernels.
#[track_caller]
fn check(fusion: &Fusion, args: &[Arg]) -> bool {
    let alone = seen(&session(1), fusion, args);
    for threads in [0, 4] {
        assert_eq!(seen(&session(threads), fusion, args), alone, "on {threads} threads\n{}", text::print(fusion));
    }
    alone.is_ok_and(|(text, _)| text.matches("__global__").count() > 1)
}

#[test]
fn random_programs_are_the_same_on_any_number_of_threads() {
    let limits = Limits { ops: 30, rank: 3, sizes: vec![1, 2, 5, 8, 17], ..Limits::whole_language() };
    let seeds = drawn(300);
    let several = seeds.iter().filter(|&&seed| {
        let mut draw = Draw::new(seed);
        let bytes = draw.bytes(24 + seed as usize % 200);
        let generated = generate(&bytes, &limits);
        let args = arguments(&generated, &mut draw);
        check(&generated.fusion, &args)
    });
    let several = several.count();
    assert!(several * 10 > seeds.len(), "{several} of several kernels");
}

/// A slice, whose rows do not lie densely, and kernels behind it: what each is told of the
/// layout must not depend on what was compiled before it.
#[test]
fn views_are_told_to_kernels_that_are_compiled_before_their_turn() {
    let sliced = |cut: &str| {
        let text = format!(
            "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {{\n  %v = slice %x starts(0, 1) ends(64, 65)\n{cut}  \
             %n = softmax %s axis(1)\n  %m = segment_set %n\n  %o = matmul %m, %y\n  %p = segment_set %o\n  \
             %q = sum %p axes(0)\n  return %q, %s\n}}\n"
        );
        text::parse_one(&text).unwrap()
    };
    let ramp = |sizes: &[i64]| {
        let value = |i: &[i64]| engine::num::Value::Float((i.iter().sum::<i64>() % 13) as f64 / 4.0 - 1.0);
        Arg::Tensor(HostTensor::from_fn(engine::num::DType::F32, sizes, value).unwrap())
    };
    let args = [ramp(&[64, 65]), ramp(&[64, 32])];
    for cut in ["  %s = neg %v\n", "  %w = segment_set %v\n  %s = neg %w\n"] {
        assert!(check(&sliced(cut), &args), "one kernel");
    }
}
