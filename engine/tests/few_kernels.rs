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
/// Wanted are 40 and 10. Rows are chosen for by steps of an octave (`heuristic/typical.rs`), at odd places by others than whole vectors
/// and than half ones, and where they are few by others than where they are many. What is more: rows whose threads would meet in banks
/// have threads of their own, and where all blocks are full the kernel is another; of softmax over columns
/// what blocks hold together comes in twelve sizes, and each for vectors of one, two, four and eight. Gradients of norms have no shifted vectors, so that
/// there are four widths of rows.
const MOST: &[(&str, usize, usize)] = &[
    ("bias_gelu", 15, 8),
    ("swiglu", 4, 2),
    ("add_column", 6, 3),
    ("dropout_residual", 36, 9),
    ("transpose", 6, 2),
    ("column_sums", 26, 10),
    ("row_sums", 38, 7),
    ("row_sums_half", 41, 10),
    ("sum_all", 8, 3),
    ("gelu_bias_backward", 18, 15),
    ("softmax", 50, 17),
    ("softmax_backward", 48, 13),
    ("softmax_outer", 62, 27),
    ("layer_norm", 48, 13),
    ("layer_norm_backward", 90, 34),
    ("rms_norm", 52, 16),
    ("rms_norm_residual", 44, 13),
    ("block_epilogue", 47, 11),
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
