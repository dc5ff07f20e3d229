//! What the heuristics choose for an H200, of which they have a description only:
//! scheduler, parameters and launch by program, type and shape, in
//! `heuristics.csv`. `BLESS=1` rewrites it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::blessed;
use engine::fusion::Fusion;
use engine::num::DType;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{ArgMeta, TensorMeta};
use std::fmt::Write;
use std::path::Path;

/// A program for tensors of type `$t`, and which of its inputs are rows.
struct Program {
    name: &'static str,
    text: &'static str,
    /// Axes of each input: `f` all of the shape, `r` the last one.
    inputs: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "add",
        text: "fusion @F(%x: $t[?, ?], %y: $t[?, ?]) { %0 = add %x, %y\n %1 = cast %0 $t\n return %1 }",
        inputs: "ff",
    },
    Program {
        name: "bias_gelu",
        text: "fusion @F(%x: $t[?, ?], %y: $t[?]) { %0 = broadcast %y flags(true, false)\n %1 = add %x, %0\n \
               %2 = gelu %1\n %3 = cast %2 $t\n return %3 }",
        inputs: "fr",
    },
    Program {
        name: "sum_inner",
        text: "fusion @F(%x: $t[?, ?]) { %0 = sum %x axes(1)\n %1 = cast %0 $t\n return %1 }",
        inputs: "f",
    },
    Program {
        name: "sum_outer",
        text: "fusion @F(%x: $t[?, ?]) { %0 = sum %x axes(0)\n %1 = cast %0 $t\n return %1 }",
        inputs: "f",
    },
    Program {
        name: "sum_all",
        text: "fusion @F(%x: $t[?, ?]) { %0 = sum %x\n %1 = cast %0 $t\n return %1 }",
        inputs: "f",
    },
    Program {
        name: "softmax",
        text: "fusion @F(%x: $t[?, ?]) { %0 = softmax %x\n %1 = cast %0 $t\n return %1 }",
        inputs: "f",
    },
    Program {
        name: "layer_norm",
        text: "fusion @F(%x: $t[?, ?], %w: $t[?], %b: $t[?]) { %0 = layer_norm %x, %w, %b\n %1 = cast %0 $t\n return %1 }",
        inputs: "frr",
    },
];

/// Even and odd, long and short rows, few and many of them.
const SHAPES: [[i64; 2]; 8] =
    [[16384, 4096], [16384, 4095], [8192, 1024], [131_072, 64], [32, 65_536], [8, 16_384], [1, 1_048_576], [300, 77]];

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn arguments(program: &Program, dtype: DType, shape: [i64; 2]) -> Vec<ArgMeta> {
    let sizes = |kind: char| if kind == 'r' { vec![shape[1]] } else { shape.to_vec() };
    program.inputs.chars().map(|kind| ArgMeta::Tensor(TensorMeta::contiguous(dtype, &sizes(kind)))).collect()
}

/// A line of the table, or the refusal.
fn chosen(session: &Session, fusion: &Fusion, args: &[ArgMeta]) -> String {
    let plan = match session.compile(fusion, args, &NoTrace) {
        Ok(plan) => plan,
        Err(refusal) => return format!("refused,{},,,", refusal.code.0),
    };
    let launch = engine::kernel::bind(plan.kernel(), args).unwrap();
    let shape = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    let (grid, block) = (shape(launch.grid), shape(launch.block));
    format!("{},{},{grid},{block},{}", plan.scheduler(), plan.params_text(), launch.shared_bytes)
}

fn table() -> String {
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let mut text = String::from("program,type,rows,columns,scheduler,parameters,grid,block,shared\n");
    for program in PROGRAMS {
        for dtype in TYPES {
            let source = program.text.replace("$t", dtype.name()).replace("{ ", "{\n").replace(" }", "\n}");
            let fusion = engine::text::parse_one(&source).unwrap();
            for shape in SHAPES {
                let row = chosen(&session, &fusion, &arguments(program, dtype, shape));
                let [rows, columns] = shape;
                writeln!(text, "{},{dtype},{rows},{columns},{row}", program.name).unwrap();
            }
        }
    }
    text
}

#[test]
fn heuristics_choose_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heuristics.csv");
    blessed::check_file(&path, &table());
}
