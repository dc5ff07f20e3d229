//! Segments of random fusions give what the whole gives: each by itself on the
//! reference, bit for bit, and as kernels on the simulator.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::diag::DiagnosticKind;
use engine::fusion::{Fusion, Operand};
use engine::num::DType;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::refeval;
use engine::runtime::Session;
use engine::segment::Segments;
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use engine::text;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use testing::Draw;
use testing::check::{CheckTarget, DrawOutcome};
use testing::fusions::{Limits, arguments, generate};
use testing::reference::alignments;

fn session() -> Session {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    Session::simulator(DeviceDesc::h200(), sim, Options::default())
}

fn cut(session: &Session, fusion: &Fusion, args: &[Arg]) -> Segments {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    match session.segment(fusion, &metas, &alignments(args), &NoTrace) {
        Ok(segments) => segments,
        Err(error) => panic!("{error}\n{}\n{metas:?}", text::print(fusion)),
    }
}

/// The outputs of the whole, each segment evaluated by the reference.
fn by_reference(segments: &Segments, args: &[Arg]) -> Vec<HostTensor> {
    let inputs = segments.fusion.inputs.iter().copied();
    let mut values: BTreeMap<Operand, Arg> = inputs.zip(args.iter().cloned()).collect();
    for segment in &segments.segments {
        let argument = |operand: &Operand| match *operand {
            Operand::Scalar(scalar) => Arg::Scalar(segments.scalar(scalar)),
            Operand::Tensor(_) => values[operand].clone(),
        };
        let args: Vec<Arg> = segment.inputs.iter().map(argument).collect();
        let outputs = refeval::evaluate(&segment.fusion, &args).unwrap();
        for tensor in &segment.last_uses {
            values.remove(&Operand::Tensor(*tensor));
        }
        values.extend(segment.outputs.iter().copied().map(Operand::Tensor).zip(outputs.into_iter().map(Arg::Tensor)));
    }
    let tensor = |tensor| match &values[&Operand::Tensor(tensor)] {
        Arg::Tensor(tensor) => tensor.clone(),
        Arg::Scalar(_) => panic!("a tensor is a tensor"),
    };
    segments.fusion.outputs.iter().copied().map(tensor).collect()
}

/// Cuts a fusion of the whole language and evaluates each segment by itself; whether
/// it is more than one, or nothing where the reference or the compiler refuses it.
fn check(seed: u64) -> Option<bool> {
    let limits = Limits { ops: 20, rank: 3, sizes: vec![0, 1, 2, 3, 5, 8, 17], ..Limits::whole_language() };
    let mut draw = Draw::new(seed);
    let bytes = draw.bytes(24 + seed as usize % 200);
    let generated = generate(&bytes, &limits);
    let (fusion, args) = (&generated.fusion, arguments(&generated, &mut draw));
    let expected = refeval::evaluate(fusion, &args).ok()?;
    let session = session();
    // What is wrong for kernels is so for segments: an `iota` of an axis that is squeezed.
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    if session.compile(fusion, &metas, &NoTrace).is_err_and(|error| error.kind == DiagnosticKind::User) {
        return None;
    }
    let segments = cut(&session, fusion, &args);
    for (found, expected) in by_reference(&segments, &args).iter().zip(&expected) {
        let same = found.to_contiguous().bits_equal(&expected.to_contiguous());
        assert!(same, "seed {seed}\n{}\n{segments}", text::print(fusion));
    }
    if let Err(error) = session.run_segments(&segments, &args, &NoTrace) {
        panic!("seed {seed}: {error}\n{}\n{segments}", text::print(fusion));
    }
    Some(segments.segments.len() > 1)
}

#[test]
fn each_segment_by_itself_gives_what_the_whole_gives() {
    let outcomes: Vec<bool> = (0..1000).filter_map(check).collect();
    let several = outcomes.iter().filter(|several| **several).count();
    assert!(outcomes.len() > 800 && several > 400, "{} ran, {several} of several segments", outcomes.len());
}

#[test]
fn segments_run_as_kernels() {
    let mut several = 0;
    for seed in 0..1000 {
        match CheckTarget::Simulator.segments(seed) {
            DrawOutcome::Agrees(by) => several += usize::from(!by.starts_with("1 kernels")),
            DrawOutcome::Refused(_) | DrawOutcome::Skipped => {}
            DrawOutcome::Differs(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(several > 100, "{several} of several kernels");
}

/// `layers` blocks of a transformer without its attention: norms and products.
fn network(layers: usize) -> String {
    let mut text = String::from("fusion @network(%x: f32[?, ?], %w: f32[?, ?], %g: f32[?]) {\n");
    for layer in 0..layers {
        let x = if layer == 0 { "x".to_owned() } else { format!("x{}", layer - 1) };
        writeln!(text, "  %n{layer} = rms_norm %{x}, %g eps(1e-6)").unwrap();
        writeln!(text, "  %u{layer} = matmul %n{layer}, %w\n  %a{layer} = gelu %u{layer}").unwrap();
        writeln!(text, "  %d{layer} = matmul %a{layer}, %w\n  %x{layer} = add %d{layer}, %{x}").unwrap();
    }
    writeln!(text, "  return %x{}\n}}", layers - 1).unwrap();
    text
}

/// How long a fusion of `f32` inputs takes to cut, and its segments.
fn timed(text: &str, sizes: &[&[i64]]) -> (Duration, Segments) {
    let fusion = text::parse_one(text).unwrap();
    let args: Vec<ArgMeta> =
        sizes.iter().map(|sizes| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))).collect();
    let start = Instant::now();
    let segments = session().segment(&fusion, &args, &vec![16; args.len()], &NoTrace).unwrap();
    (start.elapsed(), segments)
}

#[test]
fn each_layer_of_a_network_is_cut_alike() {
    let sizes: [&[i64]; 3] = [&[64, 32], &[32, 32], &[32]];
    let (_, segments) = timed(&network(12), &sizes);
    let kernels = segments.segments.iter().filter(|segment| segment.kind.is_kernel()).count();
    // A norm, a gelu and a sum a layer, of which the sum is one kernel with the next norm.
    assert_eq!((kernels, segments.segments.len()), (2 * 12 + 1, 4 * 12 + 1), "{segments}");
}
