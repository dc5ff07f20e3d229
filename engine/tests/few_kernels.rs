//! Few kernels serve many sizes: those of 200 sizes of each family are counted, and those
//! that 200 others need beside them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::fusion::{AxisKind, Fusion, Operand};
use engine::num::Value;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{ArgMeta, TensorMeta};
use engine::text;
use std::collections::BTreeMap;
use testing::Draw;

const FAMILIES: &str = include_str!("families.fuse");

/// Sizes of a drawing.
const DRAWN: usize = 200;

/// For each family the most kernels that the first sizes may need, and others beside them.
/// Wanted are 40 and 10: a choice is fitted to the shape by measurement, so fewer are a
/// matter of measuring, too. Some of each family of rows are those of rows at odd places
/// that share warps: an H200 runs these in 0.5 to 0.9 of the time that others took. Five of each are those of rows of few
/// warps that are read in aligned accesses of half the width: in 0.73 to 0.93 of the time of shifted ones. Of sums of columns
/// four to seven take rows together: in 0.35 to 0.95 of the time of those that take them one by one. Three of the first
/// have three quarters of a power of two threads along short rows, and rows of several blocks have such of three, five and six
/// warps: in 0.87 to 0.96 of the time. Twenty-two of softmax over columns are those at odd places
/// that threads hold, of so many elements: in 0.4 to 0.9 of the time.
const MOST: &[(&str, usize, usize)] = &[
    ("bias_gelu", 19, 8),
    ("swiglu", 4, 2),
    ("add_column", 16, 3),
    ("dropout_residual", 36, 9),
    ("transpose", 6, 2),
    ("column_sums", 44, 27),
    ("row_sums", 60, 32),
    ("row_sums_half", 55, 32),
    ("sum_all", 8, 3),
    ("gelu_bias_backward", 28, 16),
    ("softmax", 89, 43),
    ("softmax_backward", 88, 46),
    ("softmax_outer", 72, 40),
    ("layer_norm", 113, 67),
    ("layer_norm_backward", 154, 98),
    ("rms_norm", 95, 44),
    ("rms_norm_residual", 87, 42),
    ("block_epilogue", 98, 57),
];

/// Numbers of rows and columns, drawn evenly by their logarithms.
fn sizes(seed: u64) -> Vec<[i64; 2]> {
    let mut draw = Draw::new(seed);
    let mut unit = || (draw.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut size = |least: f64, most: f64| (least.ln() + (most / least).ln() * unit()).exp() as i64;
    (0..DRAWN).map(|_| [size(64.0, 65_536.0), size(64.0, 16_384.0)]).collect()
}

/// Arguments of a family, whose inputs are as its file says.
fn arguments(fusion: &Fusion, [rows, columns]: [i64; 2]) -> Vec<ArgMeta> {
    let argument = |operand: &Operand| {
        let Operand::Tensor(tensor) = operand else { return ArgMeta::Scalar(Value::Int(1)) };
        let tensor = &fusion.tensors[*tensor];
        let sizes = match tensor.axes.as_slice() {
            [_] if tensor.name == "column" => vec![rows],
            [_] => vec![columns],
            [.., last] if last.kind == AxisKind::Broadcast => vec![rows, 1],
            _ => vec![rows, columns],
        };
        ArgMeta::Tensor(TensorMeta::contiguous(tensor.dtype, &sizes))
    };
    fusion.inputs.iter().map(argument).collect()
}

/// For each kernel of a drawing how it was chosen, and for how many sizes.
fn kernels(session: &Session, fusion: &Fusion, seed: u64) -> BTreeMap<String, (String, usize)> {
    let mut found = BTreeMap::new();
    for sizes in sizes(seed) {
        let args = arguments(fusion, sizes);
        let program = session.program(fusion, &args, &vec![16; args.len()], &NoTrace).unwrap();
        for launch in program.launches() {
            let plan = &launch.plan;
            let chosen = || (format!("{} {}", plan.scheduler(), plan.params_text()), 0);
            found.entry(plan.kernel_hash().to_string()).or_insert_with(chosen).1 += 1;
        }
    }
    found
}

/// Shown by `cargo test -p engine --test integration few_kernels -- --nocapture`: the kernels
/// of each family, with how many sizes each serves.
#[test]
fn few_kernels_serve_many_shapes() {
    let options = Options { self_check: false, ..Options::default() };
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
    let families = text::parse(FAMILIES).unwrap().fusions;
    assert_eq!(families.len(), MOST.len());
    let mut more = String::new();
    for (family, &(name, most, most_new)) in families.iter().map(|parsed| &parsed.fusion).zip(MOST) {
        assert_eq!(family.name, name);
        let [first, second] = [1, 2].map(|seed| kernels(&session, family, seed));
        let new = second.keys().filter(|kernel| !first.contains_key(*kernel)).count();
        for (chosen, served) in first.values() {
            println!("{served:7} {chosen}");
        }
        let found = format!("{name}: {} kernels of {DRAWN} sizes, {new} more of as many others", first.len());
        println!("{found}");
        if first.len() > most || new > most_new {
            more.push_str(&format!("{found}; at most {most} and {most_new} are meant\n"));
        }
    }
    assert!(more.is_empty(), "{more}");
}
