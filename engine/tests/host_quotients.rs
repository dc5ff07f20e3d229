//! Quotients by what a vector has in common, and vectors of floats of 8 bits: the CUDA text, compiled for the host, gives the
//! bits of the simulator, which divides and converts one by one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::kernel;
use engine::num::{DType, Value};
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::refeval::{Tolerance, evaluate};
use engine::runtime::Session;
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text;
use std::path::Path;
use testing::host::{Build, Expected, HostCompiler, Subject, compare};

const FUSIONS: &str = "
fusion @rows(%x: f32[?, ?], %d: f32[?]) {
  %b = broadcast %d flags(false, true)
  %y = div %x, %b
  return %y
}
fusion @narrow(%x: f32[?, ?], %d: f32[?]) {
  %b = broadcast %d flags(false, true)
  %q = div %x, %b
  %y = cast %q f8e4m3fn
  %z = cast %q f8e5m2
  return %y, %z
}
";

/// Numbers of every kind, at and around the ends of the ranges in which products stand for quotients.
fn numbers() -> Vec<f32> {
    let powers = [-149, -126, -101, -100, -99, -61, -60, -59, -1, 0, 1, 8, 9, 15, 16, 23, 24, 25, 63, 64, 65, 127];
    let mut numbers = vec![0.0, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 464.0, 465.0, 61_440.0, 61_439.0];
    for power in powers.map(|power| f64::from(power).exp2() as f32) {
        numbers.extend([power, power.next_up(), power.next_down(), power * 1.333_333_4, power * 1.999_999_9]);
    }
    let negative: Vec<f32> = numbers.iter().map(|number| -number).collect();
    numbers.extend(negative);
    // Whole vectors of a row, and rows.
    numbers.resize(numbers.len().next_multiple_of(16), 1.0);
    numbers
}

/// Each number divided by each: a row of them has one divisor, and its vectors are of one kind, turned by one of another.
fn subject(text: &str, turn: usize) -> Subject {
    let (fusion, numbers) = (&text::parse_one(text).unwrap(), numbers());
    let (count, value) = (numbers.len() as i64, |number: f32| Value::Float(f64::from(number)));
    let x = |place: &[i64]| value(numbers[(place[1] as usize * turn) % numbers.len()]);
    let sizes = [count, count];
    let args = vec![
        Arg::Tensor(HostTensor::from_fn(DType::F32, &sizes, x).unwrap()),
        Arg::Tensor(HostTensor::from_fn(DType::F32, &sizes[1..], |place| value(numbers[place[0] as usize])).unwrap()),
    ];
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let plan = session.compile(fusion, &metas, &NoTrace).unwrap();
    let launch = kernel::bind(plan.kernel(), &metas).unwrap();
    let outputs = evaluate(fusion, &args).unwrap().into_iter().map(|wanted| (wanted, Tolerance::EXACT)).collect();
    let mut subject = Subject::new(format!("{} {turn}", fusion.name), plan.kernel().clone(), launch);
    assert!(subject.source.kernel.contains("quotients<"), "{}", subject.source.kernel);
    subject.expected = Some(Expected { args, outputs });
    subject.draws = 20;
    subject
}

#[test]
#[ignore = "needs a C++ compiler"]
fn needs_cxx_quotients_of_vectors_are_those_of_their_elements() {
    let compiler = HostCompiler::find().expect("a C++ compiler of the host: g++ or clang++");
    let texts: Vec<String> = FUSIONS.split("fusion ").skip(1).map(|text| format!("fusion {text}")).collect();
    // Neighbours of one kind, and of all kinds.
    let subjects: Vec<Subject> = texts.iter().flat_map(|text| [1, 7].map(|turn| subject(text, turn))).collect();
    for (build, name) in [(Build::Checked, "checked"), (Build::Trusting, "trusting")] {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-quotients-{name}-{}", std::process::id()));
        let compared = compare(&compiler, &subjects, &dir, build).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(compared.count(), subjects.len(), "{}", compared.summary());
        assert!(compared.wrong.is_empty(), "{:?}", compared.wrong);
    }
}
