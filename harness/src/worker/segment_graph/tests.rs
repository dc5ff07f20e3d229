//! What is in drawings of segments.

use super::*;
use engine::num::DType;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::ArgMeta;

/// A kernel of each kind of tie: one reads what two give, a view, the host, an update, a number of the call.
const MIXED: &str = "fusion @Mixed(%x: f32[?, ?], %a: f32, %state: f32[?]) {
  %0 = mul %x, %a
  %1 = sum %0 axes(0)
  %c = cast %1 f8e8m0fnu
  %n = size %1 axis(0)
  %r = iota %n
  %s = index_put_accumulate %c, %r, %c
  %2 = cast %s f32
  %3 = slice %x starts(0, 1) ends(4, 3)
  %4 = sum %3 axes(1)
  %5 = broadcast %2 flags(true, false)
  %6 = add %0, %5
  %7 = add %1, %state
  update %state = %7
  return %6, %4, %6
}";

fn program(text: &str, tensors: &[&[i64]], number: Option<usize>) -> std::sync::Arc<Program> {
    let fusion = text::parse_one(text).expect("a fusion");
    let mut args: Vec<ArgMeta> =
        tensors.iter().map(|sizes| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes))).collect();
    if let Some(at) = number {
        args.insert(at, ArgMeta::Scalar(engine::num::Value::Float(1.5)));
    }
    let alignments = vec![16; args.len()];
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    session.program(&fusion, &args, &alignments, &NoTrace).expect("a program")
}

/// The names in the boxes of a drawing.
fn names(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}:\n{svg}"));
    let names = document.descendants().filter(|node| node.tag_name().name() == "text");
    names.filter(|node| node.attribute("class") == Some("n")).filter_map(|node| node.text()).map(Into::into).collect()
}

#[test]
fn every_segment_and_boundary_tensor_is_drawn_once() {
    let program = program(MIXED, &[&[4, 8], &[8]], Some(1));
    let drawn = svg(&program);
    let names = names(&drawn);
    for (position, segment) in program.segments.segments.iter().enumerate() {
        let count = names.iter().filter(|name| name.starts_with(&format!("{position}: "))).count();
        assert_eq!(count, 1, "segment {position}: {names:?}");
        for tensor in segment.inputs.iter().filter_map(tensor).chain(segment.outputs.iter().copied()) {
            let wanted = format!("%{}", program.segments.fusion.tensors[tensor].name);
            assert_eq!(names.iter().filter(|name| **name == wanted).count(), 1, "{wanted}: {names:?}");
        }
    }
    for part in
        ["becomes %state", "result 0", "result 2", "host, U0105", ": view", "slice", "with s", "f32[4, 8] 128 B"]
    {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
}

#[test]
fn the_same_program_gives_the_same_text() {
    let text = || svg(&program(MIXED, &[&[4, 8], &[8]], Some(1)));
    assert_eq!(text(), text());
}

#[test]
fn what_nearly_all_read_stands_at_each() {
    let cuts: String =
        (0..6).map(|i| format!("  %s{i} = segment_set %v{i}\n  %v{} = add %s{i}, %w\n", i + 1)).collect();
    let text = format!("fusion @Deep(%w: f32[?], %y: f32[?]) {{\n  %v0 = neg %y\n{cuts}  return %v6\n}}");
    let names = names(&svg(&program(&text, &[&[8], &[8]], None)));
    let of = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    assert_eq!((of("%w"), of("%y"), of("%v3")), (6, 1, 1), "{names:?}");
}

#[test]
fn long_lines_end_in_dots() {
    let short = cut("sum".into());
    let long = cut("multiply ".repeat(20));
    assert_eq!((short.as_str(), long.chars().count(), long.ends_with("...")), ("sum", ROOM + 3, true));
}
