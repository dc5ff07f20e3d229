//! Segments of random fusions give what the whole gives: each by itself on the
//! reference, bit for bit, and as kernels on the simulator.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::draws;
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
    let seeds = draws::drawn(1100);
    let outcomes: Vec<bool> = seeds.iter().copied().filter_map(check).collect();
    let several = outcomes.iter().filter(|several| **several).count();
    assert!(
        outcomes.len() * 11 > seeds.len() * 8 && several * 11 > seeds.len() * 4,
        "{} ran, {several} of several segments",
        outcomes.len()
    );
}

#[test]
fn segments_run_as_kernels() {
    let (mut several, seeds) = (0, draws::drawn(1000));
    for &seed in &seeds {
        match CheckTarget::Simulator.segments(seed) {
            DrawOutcome::Agrees(by) => several += usize::from(!by.starts_with("1 kernels")),
            DrawOutcome::Refused(_) | DrawOutcome::Skipped => {}
            DrawOutcome::Differs(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(several * 10 > seeds.len(), "{several} of several kernels");
}

#[test]
fn products_of_drawn_layouts_agree() {
    let (mut by_library, seeds) = (0, draws::drawn(1000));
    for &seed in &seeds {
        match CheckTarget::Simulator.product(seed) {
            DrawOutcome::Agrees(by) => by_library += usize::from(by.ends_with("by a library")),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(by_library * 10 > seeds.len() * 7, "{by_library} by the library");
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

/// A statement: what it makes, its text, and what it reads.
type Statement = (String, String, Vec<String>);
/// A value, and along which dimensions it lies.
type Drawn = (String, [bool; 3]);

/// Draws sums over axes of tensors of three dimensions, what is computed of them, and of both: inputs, statements, results.
fn draw_sums(draw: &mut Draw) -> (Vec<Drawn>, Vec<Statement>, Vec<String>) {
    let all = [true; 3];
    let inputs =
        vec![("x".to_owned(), all), ("y".to_owned(), all), ("v".to_owned(), [draw.once_in(2), draw.once_in(2), true])];
    let mut values = inputs.clone();
    let mut statements: Vec<Statement> = Vec::new();
    for position in 0..6 + draw.below(12) {
        let name = format!("t{position}");
        let pick = |draw: &mut Draw| draw.below(values.len());
        let (a, b) = (values[pick(draw)].clone(), values[pick(draw)].clone());
        let axes: Vec<usize> = (0..3).filter(|axis| a.1[*axis] && draw.once_in(2)).collect();
        let (text, mask, reads) = match draw.below(5) {
            0 | 1 if !axes.is_empty() => {
                let list: Vec<String> = axes.iter().map(usize::to_string).collect();
                let mask = [0, 1, 2].map(|axis| a.1[axis] && !axes.contains(&axis));
                (format!("%{name} = sum %{} axes({}) keepdim", a.0, list.join(", ")), mask, vec![a.0])
            }
            2 => (format!("%{name} = {} %{}", draw.choose(&["exp", "tanh", "neg"]), a.0), a.1, vec![a.0]),
            _ => {
                let mask = [0, 1, 2].map(|axis| a.1[axis] || b.1[axis]);
                let text = format!("%{name} = {} %{}, %{}", draw.choose(&["add", "mul", "sub"]), a.0, b.0);
                (text, mask, vec![a.0, b.0])
            }
        };
        statements.push((name.clone(), text, reads));
        values.push((name, mask));
    }
    let is_read = |name: &String| statements.iter().any(|(_, _, reads)| reads.contains(name));
    let results = statements.iter().map(|(name, ..)| name.clone()).filter(|name| !is_read(name)).collect();
    (inputs, statements, results)
}

/// The same statements in another order in which they may stand.
fn reordered(draw: &mut Draw, statements: &[Statement]) -> Vec<Statement> {
    let (mut left, mut done) = (statements.to_vec(), Vec::<Statement>::new());
    while !left.is_empty() {
        let is_there = |name: &String| !left.iter().any(|(made, ..)| made == name);
        let ready: Vec<usize> = (0..left.len()).filter(|at| left[*at].2.iter().all(is_there)).collect();
        done.push(left.remove(draw.choose(&ready)));
    }
    done
}

/// The kernels of a fusion of inputs that have elements along some dimensions, and the bytes that they move; none where there
/// is no schedule.
fn kernels_and_bytes(
    inputs: &[(String, [bool; 3])],
    statements: &[Statement],
    results: &[String],
) -> Option<(usize, i64)> {
    const SIZES: [i64; 3] = [96, 80, 512];
    let declared = inputs.iter().map(|(name, mask)| {
        let axes = mask.map(|moves| if moves { "?" } else { "1" });
        format!("%{name}: f32[{}]", axes.join(", "))
    });
    let mut text = format!("fusion @sums({}) {{\n", declared.collect::<Vec<_>>().join(", "));
    statements.iter().for_each(|(_, line, _)| writeln!(text, "  {line}").unwrap());
    let returned: Vec<String> = results.iter().map(|name| format!("%{name}")).collect();
    writeln!(text, "  return {}\n}}", returned.join(", ")).unwrap();
    let fusion = text::parse_one(&text).unwrap();
    let sizes = |mask: &[bool; 3]| [0, 1, 2].map(|axis| if mask[axis] { SIZES[axis] } else { 1 });
    let metas: Vec<ArgMeta> =
        inputs.iter().map(|(_, mask)| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &sizes(mask)))).collect();
    let segments = match session().segment(&fusion, &metas, &vec![16; metas.len()], &NoTrace) {
        Ok(segments) => segments,
        // Some schedule of sums over parts of a small input's axes, beside large results, is not accepted.
        // Loops over what a reduction lacks, within those that reduce: the check of schedules refuses some small ones.
        Err(error) if error.code == code::SCHEDULE_LOOPS => return None,
        Err(error) => panic!("{error}\n{text}"),
    };
    let bytes = |meta: &TensorMeta| meta.sizes.iter().product::<i64>() * meta.dtype.bytes() as i64;
    let mut known: BTreeMap<Operand, i64> = BTreeMap::new();
    for (input, meta) in segments.fusion.inputs.iter().zip(&metas) {
        if let ArgMeta::Tensor(meta) = meta {
            known.insert(*input, bytes(meta));
        }
    }
    let mut moved = 0;
    for segment in &segments.segments {
        let written: Vec<i64> = segment.metas.iter().map(bytes).collect();
        moved += written.iter().sum::<i64>();
        moved += segment.inputs.iter().filter_map(|input| known.get(input)).sum::<i64>();
        known.extend(segment.outputs.iter().copied().map(Operand::Tensor).zip(written));
    }
    Some((segments.segments.len(), moved))
}

/// Kernels hardly depend on the order of statements: groups that move the fewest bytes are looked for by what is computed,
/// and in the order that is given only beside that.
#[test]
fn kernels_hardly_depend_on_the_order_of_statements() {
    let (mut several, mut other_kernels, mut other_bytes) = (0, 0, 0);
    let seeds = draws::drawn(300);
    for &seed in &seeds {
        let mut draw = Draw::new(seed);
        let (inputs, statements, results) = draw_sums(&mut draw);
        let found = (0..4).map(|time| {
            let statements = if time == 0 { statements.clone() } else { reordered(&mut draw, &statements) };
            kernels_and_bytes(&inputs, &statements, &results)
        });
        let Some(found) = found.collect::<Option<Vec<(usize, i64)>>>() else { continue };
        several += usize::from(found[0].0 > 1);
        other_kernels += usize::from(found.iter().any(|(kernels, _)| *kernels != found[0].0));
        other_bytes += usize::from(found.iter().any(|(_, bytes)| *bytes != found[0].1));
    }
    // Of those that differ most have a kernel that is refused and then cut in two.
    let told = format!("{several} of several kernels, {other_kernels} of other kernels, {other_bytes} of other bytes");
    // Of some draws chance may make twice as many.
    let most = |of_all: usize| if draws::is_all() { of_all } else { 2 * of_all * seeds.len() / 300 };
    assert!(several * 6 > seeds.len() * 5 && other_kernels <= most(16) && other_bytes <= most(22), "{told}");
}

/// A group of more parameters than a launch can pass, which repeats `e` for its
/// first and its last operation.
#[test]
fn a_group_that_is_too_large_is_halved() {
    let inputs: Vec<String> = (0..2100).map(|i| format!(", %y{i}: f32[?]")).collect();
    let mut text = format!("fusion @f(%x: f32[?, ?]{}) {{\n", inputs.concat());
    text += "  %e = exp %x\n  %s1 = sum %e axes(1)\n  %u = sum %e axes(0)\n";
    for i in 0..2100 {
        let last = if i == 0 { "u".into() } else { format!("u{}", i - 1) };
        text += &format!("  %u{i} = add %{last}, %y{i}\n");
    }
    text += "  %m = max %e axes(0)\n  %f = add %u2099, %m\n  return %s1, %f\n}";
    // Each with a stride of its own among the parameters.
    let strided = TensorMeta { dtype: DType::F32, sizes: vec![16], strides: vec![2] };
    let mut args = vec![ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &[8, 16]))];
    args.resize(2101, ArgMeta::Tensor(strided));
    let fusion = text::parse_one(&text).unwrap();
    let segments = &session().segment(&fusion, &args, &vec![16; args.len()], &NoTrace).unwrap().segments;
    assert!(segments.len() > 2 && segments.iter().all(|segment| segment.kind.is_kernel()), "{}", segments.len());
    let first: Vec<_> = segments[0].outputs.iter().collect();
    assert_eq!(first.len(), 1, "e is made again by each half that reads it: {first:?}");
}
