//! Calls of many sizes in one session: what is kept from one call to the next changes no
//! program, whatever the order of calls.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::draws::drawn;
use engine::fusion::{Fusion, bind};
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{Arg, ArgMeta, TensorMeta};
use engine::text;
use std::fmt::Write;
use testing::Draw;
use testing::fusions::{Limits, arguments, generate};
use testing::reference::alignments;

fn session() -> Session {
    let options = Options { self_check: false, ..Options::default() };
    Session::simulator(DeviceDesc::h200(), SimOptions::default(), options)
}

/// A program with its kernels, or the error.
fn told(session: &Session, fusion: &Fusion, args: &[ArgMeta], alignments: &[u32]) -> String {
    match session.program(fusion, args, alignments, &NoTrace) {
        Ok(program) => {
            let mut told = program.to_string();
            for launch in program.launches() {
                let numbers = (launch.launch.grid, launch.launch.block, &launch.launch.params);
                let _ = writeln!(told, "{numbers:?}\n{}", launch.plan.kernel_text());
            }
            told
        }
        Err(error) => error.to_string(),
    }
}

/// The same arguments with other sizes: equal ones stay equal, strides are dense in the
/// order in which they were.
fn resized(args: &[ArgMeta], to: &dyn Fn(i64) -> i64) -> Vec<ArgMeta> {
    let tensor = |meta: &TensorMeta| {
        let sizes: Vec<i64> = meta.sizes.iter().map(|size| to(*size)).collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|axis| (meta.strides[*axis], std::cmp::Reverse(*axis)));
        let (mut strides, mut step) = (vec![0; sizes.len()], 1);
        for axis in order.into_iter().filter(|axis| meta.strides[*axis] != 0) {
            strides[axis] = step;
            step *= sizes[axis].max(1);
        }
        TensorMeta { dtype: meta.dtype, sizes, strides }
    };
    let arg = |arg: &ArgMeta| match arg {
        ArgMeta::Tensor(meta) => ArgMeta::Tensor(tensor(meta)),
        scalar @ ArgMeta::Scalar(_) => scalar.clone(),
    };
    args.iter().map(arg).collect()
}

/// Other sizes for those of the generator: like ones, larger ones, odd ones, rows that no
/// block can hold, fewer that differ, axes that become broadcasts, none.
const RESIZED: &[[i64; 4]] = &[
    [2, 3, 5, 17],
    [3, 4, 6, 18],
    [64, 256, 1024, 4096],
    [65, 256, 1000, 4097],
    [2, 3, 70_000, 5],
    [8, 8, 8, 16],
    [1, 3, 5, 1],
    [2, 0, 5, 17],
];

fn check_orders(seed: u64) -> usize {
    let limits = Limits { ops: 16, rank: 3, sizes: vec![1, 2, 3, 5, 17], ..Limits::whole_language() };
    let mut draw = Draw::new(seed);
    let bytes = draw.bytes(24 + seed as usize % 150);
    let generated = generate(&bytes, &limits);
    let (fusion, args) = (&generated.fusion, arguments(&generated, &mut draw));
    let (metas, aligned) = (args.iter().map(Arg::meta).collect::<Vec<_>>(), alignments(&args));
    let odd: Vec<u32> = aligned.iter().map(|align| *align.min(&4)).collect();
    let calls = RESIZED.iter().map(|sizes| {
        let to = |size: i64| [2, 3, 5, 17].iter().position(|known| *known == size).map_or(size, |at| sizes[at]);
        resized(&metas, &to)
    });
    let calls = calls.filter(|args| bind(fusion, args).is_ok());
    let calls: Vec<_> = calls.flat_map(|args| [(args.clone(), &aligned), (args, &odd)]).collect();
    let fresh: Vec<String> = calls.iter().map(|(args, aligned)| told(&session(), fusion, args, aligned)).collect();
    let (there, back) = (session(), session());
    let told = |session: &Session, ((args, aligned), expected): (&(Vec<ArgMeta>, &Vec<u32>), &String), way: &str| {
        assert_eq!(&told(session, fusion, args, aligned), expected, "seed {seed}, {way}\n{}", text::print(fusion));
    };
    calls.iter().zip(&fresh).for_each(|call| told(&there, call, "forth"));
    calls.iter().zip(&fresh).rev().for_each(|call| told(&back, call, "back"));
    fresh.len()
}

#[test]
fn the_order_of_shapes_does_not_matter() {
    let seeds = drawn(250);
    let calls: usize = seeds.iter().copied().map(check_orders).sum();
    println!("{calls} calls");
    assert!(calls * 5 > seeds.len() * 32, "{calls}");
}
