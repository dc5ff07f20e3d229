//! Segments of random fusions give what the whole gives: each by itself on the
//! reference, bit for bit, and as kernels on the simulator.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::diag::{DiagnosticKind, code};
use engine::fusion::{Fusion, Operand};
use engine::num::{DType, Value};
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::program::Program;
use engine::refeval;
use engine::runtime::Session;
use engine::segment::{Segment, Segments};
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use engine::text;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use testing::check::{CheckTarget, DrawOutcome};
use testing::fusions::{Limits, arguments, generate};
use testing::reference::alignments;
use testing::{Draw, Reference};

fn session() -> Session {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    Session::simulator(DeviceDesc::h200(), sim, Options::default())
}

fn cut(session: &Session, fusion: &Fusion, args: &[Arg]) -> Arc<Segments> {
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
            Operand::Scalar(scalar) if !values.contains_key(operand) => Arg::Scalar(segments.scalar(scalar).unwrap()),
            _ => values[operand].clone(),
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
    let segments = cut(&session, fusion, &args);
    for (found, expected) in by_reference(&segments, &args).iter().zip(&expected) {
        let same = found.to_contiguous().bits_equal(&expected.to_contiguous());
        assert!(same, "seed {seed}\n{}\n{segments}", text::print(fusion));
    }
    if let Err(error) = session.run(fusion, &args, &NoTrace) {
        panic!("seed {seed}: {error}\n{}\n{segments}", text::print(fusion));
    }
    Some(segments.segments.len() > 1)
}

#[test]
fn each_segment_by_itself_gives_what_the_whole_gives() {
    let outcomes: Vec<bool> = (0..1100).filter_map(check).collect();
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

#[test]
fn products_of_drawn_layouts_agree() {
    let mut by_library = 0;
    for seed in 0..1000 {
        match CheckTarget::Simulator.product(seed) {
            DrawOutcome::Agrees(by) => by_library += usize::from(by.ends_with("by a library")),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(by_library > 700, "{by_library} by the library");
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

#[test]
fn each_layer_of_a_network_is_cut_alike() {
    let fusion = text::parse_one(&network(12)).unwrap();
    let args = dense(&[&[64, 32], &[32, 32], &[32]]);
    let segments = &cut(&session(), &fusion, &args).segments;
    // A norm and a product, an activation and a product a layer, and the last sum. The sum
    // of a layer is one kernel with the norm of the next.
    let kinds =
        |segment: &Segment| -> Vec<String> { segment.fusion.ops.values().map(|op| format!("{:?}", op.kind)).collect() };
    assert_eq!(segments.len(), 4 * 12 + 1);
    for layer in 2..12 {
        for part in 0..4 {
            let (this, other) = (&segments[4 * layer + part], &segments[4 + part]);
            assert_eq!(kinds(this), kinds(other), "segment {part} of layer {layer}");
        }
    }
}

/// Dense `f32` tensors of small numbers.
fn dense(sizes: &[&[i64]]) -> Vec<Arg> {
    let element = |index: &[i64]| Value::Float(index.iter().sum::<i64>() as f64 / 8.0 - 1.0);
    sizes.iter().map(|sizes| Arg::Tensor(HostTensor::from_fn(DType::F32, sizes, element).unwrap())).collect()
}

/// A size that no operand shows, inputs that are updated, and a result returned twice.
const WHOLE: &str = "fusion @f(%x: f32[?, ?], %w: f32[?, ?], %old: f32[?, ?]) {
  %a = matmul %x, %w
  %columns = size %x axis(1)
  %b = div %a, %columns
  %c = add %b, %old
  update %old = %b
  return %c, %c
}";

#[test]
fn updates_and_sizes_reach_the_segments() {
    let fusion = text::parse_one(WHOLE).unwrap();
    let args = dense(&[&[4, 8], &[8, 4], &[4, 4]]);
    let session = session();
    let run = session.run(&fusion, &args, &NoTrace).unwrap();
    let expected = refeval::evaluate_all(&fusion, &args).unwrap();
    Reference::of(&fusion, &args).unwrap().compare_all(&run.outputs).unwrap();
    let [(0.., found)] = &run.updates[..] else { panic!("{:?}", run.updates) };
    let errors = found.values().zip(expected.updates[0].1.values()).map(|(a, b)| (a.as_f64() - b.as_f64()).abs());
    assert_eq!((run.updates[0].0, expected.updates[0].0), (2, 2));
    assert!(errors.fold(0.0, f64::max) < 1e-5);
}

#[test]
fn segments_are_for_the_arguments_that_they_were_cut_for() {
    let fusion = text::parse_one(WHOLE).unwrap();
    let session = session();
    let segments = cut(&session, &fusion, &dense(&[&[4, 8], &[8, 4], &[4, 4]]));
    let other: Vec<ArgMeta> = dense(&[&[4, 16], &[16, 4], &[4, 4]]).iter().map(Arg::meta).collect();
    let error = Program::new(segments, &other).unwrap_err();
    assert_eq!(error.kind, DiagnosticKind::User, "{error}");
    assert!(error.message.contains("argument 0 lies otherwise"), "{error}");
    let metas: Vec<ArgMeta> = dense(&[&[4, 8], &[8, 4], &[4, 4]]).iter().map(Arg::meta).collect();
    let error = session.segment(&fusion, &metas, &[16], &NoTrace).unwrap_err();
    assert_eq!(error.kind, DiagnosticKind::User, "{error}");
}

/// Where a view starts is a number of the call, and so is how its first element is aligned.
#[test]
fn views_start_where_the_scalars_of_the_call_say() {
    let text = "fusion @f(%x: f32[?, ?], %at: i64) {
  %row = select %x, %at dim(0)
  %part = slice %row starts(3) ends(7)
  %y = exp %part
  return %y, %row
}";
    let fusion = text::parse_one(text).unwrap();
    let session = session();
    for at in [0, 2, 1, 3] {
        let args = [dense(&[&[4, 8]]).remove(0), Arg::Scalar(Value::Int(at))];
        let run = session.run(&fusion, &args, &NoTrace).unwrap();
        Reference::of(&fusion, &args).unwrap().compare_all(&run.outputs).unwrap();
        assert_eq!((run.program.on_host().count(), run.program.launches().count()), (0, 1), "{}", run.program);
    }
    // One class: cut once, for any of these positions.
    assert_eq!(session.cached_plans(), 1);
}

/// What a view lies in lives as long as the view.
#[test]
fn views_of_results_keep_them() {
    let text = "fusion @f(%x: f32[?, ?]) {
  %e = argsort %x dim(0)
  %flat = reshape [32] %e
  %s = argsort %flat dim(0)
  %back = reshape [8, 4] %flat
  %t = argsort %back dim(1)
  return %s, %t, %back
}";
    let fusion = text::parse_one(text).unwrap();
    let args = dense(&[&[4, 8]]);
    let run = session().run(&fusion, &args, &NoTrace).unwrap();
    Reference::of(&fusion, &args).unwrap().compare_all(&run.outputs).unwrap();
    assert_eq!(run.program.launches().count(), 3, "{}", run.program);
}

/// Products are a library's, whose operands kernels make and whose results they take; without
/// one they are the host's, and who wants kernels alone is told of both.
#[test]
fn products_are_left_to_a_library() {
    let text = "fusion @f(%x: f32[?, ?], %w: f32[?, ?], %b: f32[?]) {
  %0 = relu %x
  %1 = linear %0, %w bias(%b)
  %2 = gelu %1
  %3 = matmul %2, %w
  return %3
}";
    let fusion = text::parse_one(text).unwrap();
    let args = dense(&[&[5, 8], &[6, 8], &[6]]);
    for (libraries, expected) in [(true, (2, 0)), (false, (0, 2))] {
        let options = Options { libraries, ..Options::default() };
        let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
        let run = session.run(&fusion, &args, &NoTrace).unwrap();
        Reference::of(&fusion, &args).unwrap().compare_all(&run.outputs).unwrap();
        let program = &run.program;
        assert_eq!((program.library_calls().count(), program.on_host().count()), expected, "{program}");
        assert_eq!(program.launches().count(), 2, "{program}");
        assert_eq!(program.check_on_device().is_ok(), libraries);
        let refusal = program.check_kernels_only().unwrap_err();
        assert!(refusal.code == code::OP_NOT_LOWERED && refusal.to_string().contains("linear"), "{refusal}");
    }
}

/// How many kernels a softmax is for these sizes, strides and axis.
fn softmax_kernels(sizes: [i64; 2], strides: [i64; 2], axis: usize) -> usize {
    let text = format!("fusion @f(%x: f32[?, ?]) {{\n  %0 = softmax %x axis({axis})\n  return %0\n}}");
    let meta = TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() };
    let fusion = text::parse_one(&text).unwrap();
    session().program(&fusion, &[ArgMeta::Tensor(meta)], &[16], &NoTrace).unwrap().launches().count()
}

/// A row is held where its elements lie side by side, or whole vectors of others lie beside them, or it is short, or all is
/// small; else it is read again.
#[test]
fn rows_across_memory_are_read_again() {
    let (down, along) = ([1, 4096], [2048, 1]);
    assert_eq!(softmax_kernels([4096, 2048], along, 1), 1);
    assert_eq!(softmax_kernels([4096, 2048], along, 0), 1);
    assert_eq!(softmax_kernels([4096, 2048], down, 1), 1);
    assert_eq!(softmax_kernels([4096, 2047], [2047, 1], 0), 1, "columns start at odd places");
    assert_eq!(softmax_kernels([30_000, 2048], along, 0), 2, "too many blocks would read of each other");
    assert_eq!(softmax_kernels([16_384, 2048], along, 0), 2, "large columns are read twice in less time");
    assert_eq!(softmax_kernels([500, 65_536], [65_536, 1], 0), 1, "a block has all of these columns");
    assert_eq!(softmax_kernels([4096, 2048], down, 0), 1);
    assert_eq!(softmax_kernels([16, 131_072], [131_072, 1], 0), 1, "short rows leave a block neighbours");
    assert_eq!(softmax_kernels([1 << 20, 4], [4, 1], 0), 2, "no block holds these");
    assert_eq!(softmax_kernels([64, 512], [512, 1], 0), 1, "all of it is in the cache");
}

/// What stands behind a slice is told the strides of the slice, which are those of its
/// operand; whoever took them for dense is found before anything runs.
#[test]
fn strides_of_views_reach_later_segments_or_it_is_told() {
    let text = "fusion @f(%x: f32[?, ?]) {
  %m = size %x axis(0)
  %n = size %x axis(1)
  %last = sub %n, 1
  %0 = slice %x starts(0, 0) ends(%m, %last)
  %1 = segment_set %0
  %2 = mul %1, 2.0
  return %2
}";
    let fusion = text::parse_one(text).unwrap();
    let args = dense(&[&[64, 65]]);
    let run = session().run(&fusion, &args, &NoTrace).unwrap();
    Reference::of(&fusion, &args).unwrap().compare_all(&run.outputs).unwrap();
    let read = run.program.launches().next().unwrap().inputs[0].unwrap();
    assert_eq!(run.program.values[read].meta.strides, [65, 1], "{}", run.program);
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    let blind = Options { infer_contiguity: false, ..Options::default() };
    let error = Session::simulator(DeviceDesc::h200(), sim, blind).run(&fusion, &args, &NoTrace).unwrap_err();
    assert_eq!(error.kind, DiagnosticKind::Bug, "{error}");
    assert!(error.message.contains("has strides [65, 1], later segments expect [64, 1]"), "{error}");
}
