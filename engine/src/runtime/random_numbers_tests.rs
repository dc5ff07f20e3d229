//! Random numbers in kernels: bit for bit those of the reference, whatever the
//! loops they are computed in, and few blocks of the generator for them.

use super::Session;
use crate::num::DType;
use crate::options::{DeviceDesc, NoTrace, Options, SimOptions};
use crate::refeval::evaluate;
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::text::parse_one;

fn session(options: Options) -> Session {
    Session::simulator(DeviceDesc::h200(), SimOptions::default(), options)
}

/// A tensor of ones, from an element that need not be aligned.
fn ones(dtype: DType, sizes: &[i64], strides: &[i64], offset: usize) -> Arg {
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides: strides.to_vec() };
    let mut tensor = HostTensor::strided(meta, |_| crate::num::Value::Float(1.0)).unwrap();
    tensor.data.own().splice(0..0, vec![0xff; offset * dtype.bytes()]);
    tensor.offset = offset;
    Arg::Tensor(tensor)
}

fn contiguous(dtype: DType, sizes: &[i64]) -> Arg {
    let strides = TensorMeta::contiguous(dtype, sizes).strides;
    ones(dtype, sizes, &strides, 0)
}

/// Kernel and reference give the same bits; the number of `random` statements.
#[track_caller]
fn check_equal(source: &str, args: &[Arg], index64: bool) -> usize {
    let fusion = parse_one(source).unwrap_or_else(|errors| panic!("{errors:?}\n{source}"));
    let session = session(Options { force_index64: index64, ..Options::default() });
    let run = session.run(&fusion, args, &NoTrace).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let expected = evaluate(&fusion, args).unwrap();
    let text = run.kernel().unwrap_or_else(|| panic!("several steps\n{source}")).plan.kernel_text();
    for (found, expected) in run.outputs.iter().zip(&expected) {
        assert_eq!((found.dtype(), found.sizes()), (expected.dtype(), expected.sizes()), "{source}");
        let (found, expected) = (found.to_f64(), expected.to_f64());
        let differ = found.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
        if let Some(at) = differ {
            panic!("element {at} is {}, not {}\n{source}\n{}", found[at], expected[at], text);
        }
    }
    text.matches(" = seed, ").count()
}

const TYPES: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

#[test]
fn numbers_of_every_type_and_shape_are_those_of_the_reference() {
    for dtype in TYPES {
        for (sizes, index64) in [
            (&[][..], false),
            (&[1], false),
            (&[7], true),
            (&[1, 1], false),
            (&[3, 1, 5], false),
            (&[0, 4], false),
            (&[2, 3, 11], true),
            (&[2, 512], false),
            (&[1023], false),
        ] {
            let names: Vec<String> = (0..sizes.len()).map(|axis| format!("%n{axis}")).collect();
            let inputs: String = names.iter().map(|name| format!(", {name}: i64")).collect();
            for (row, params) in
                [("uniform", "0, 1"), ("uniform", "-1.25, %hi"), ("normal", "0, 1"), ("normal", "%hi, 0.3")]
            {
                let source = format!(
                    "fusion @f(%seed: i64, %hi: f64{inputs}) {{\n %0 = {row} [{}] {params}, %seed, 30064771073 dtype({dtype})\n return %0\n}}",
                    names.join(", ")
                );
                let mut args = vec![
                    Arg::Scalar(crate::num::Value::Int(-81_985_529_216_486_896)),
                    Arg::Scalar(crate::num::Value::Float(3.0)),
                ];
                args.extend(sizes.iter().map(|n| Arg::Scalar(crate::num::Value::Int(*n))));
                check_equal(&source, &args, index64);
            }
        }
    }
}

/// Dropout with the mask and a second operand of a layout.
fn dropout(dtype: DType, rank: usize, other: &str) -> String {
    let dims = vec!["?"; rank].join(", ");
    format!(
        "fusion @f(%x: {dtype}[{dims}], %y: {dtype}[{dims}], %seed: i64) {{
           %0, %mask = dropout %x, 0.25, %seed, 3
           {other}
           %2 = cast %1 {dtype}
           return %2, %mask
         }}"
    )
}

#[test]
fn a_vector_takes_as_few_blocks_as_it_lies_in() {
    let add = "%1 = add %0, %y";
    let seed = || Arg::Scalar(crate::num::Value::Int(77));
    for (dtype, lanes, per_block) in [(DType::BF16, 8, 4), (DType::F32, 4, 4), (DType::F64, 2, 2)] {
        let source = dropout(dtype, 2, add);
        // The whole tensor is one run, whatever the length of its rows.
        for sizes in [[64, 64], [33, 31], [5, 1021]] {
            let args = [contiguous(dtype, &sizes), contiguous(dtype, &sizes), seed()];
            assert_eq!(check_equal(&source, &args, false), lanes / per_block, "{dtype} {sizes:?}");
        }
        // Odd rows beside a row that is broadcast: each starts somewhere else.
        let args = [contiguous(dtype, &[37, 517]), ones(dtype, &[37, 517], &[0, 1], 0), seed()];
        assert_eq!(check_equal(&source, &args, false), lanes / per_block, "{dtype}");
        // Input rows with a gap, odd and even.
        for gap in [1, 8] {
            let args = [ones(dtype, &[37, 517], &[517 + gap, 1], 0), contiguous(dtype, &[37, 517]), seed()];
            assert!(check_equal(&source, &args, false) <= lanes / per_block + 1, "{dtype}");
        }
        // Elements that are not aligned, and a transpose.
        let args = [ones(dtype, &[37, 64], &[64, 1], 1), contiguous(dtype, &[37, 64]), seed()];
        check_equal(&source, &args, true);
        let args = [ones(dtype, &[37, 64], &[1, 37], 0), contiguous(dtype, &[37, 64]), seed()];
        check_equal(&source, &args, false);
        let args = [ones(dtype, &[37, 65], &[1, 37], 0), ones(dtype, &[37, 65], &[1, 37], 0), seed()];
        check_equal(&source, &args, false);
    }
}

#[test]
fn numbers_beside_tensors_of_other_shapes() {
    // Fewer axes than the result, so that rows of the result start anywhere in them.
    for dtype in TYPES {
        for sizes in [[6, 517], [3, 1024], [40, 3]] {
            for (name, params) in [("uniform", "0, 1"), ("normal", "1, 2")] {
                let source = format!(
                    "fusion @f(%x: {dtype}[?, ?], %seed: i64) {{
                       %n = size %x axis(1)
                       %m = size %x axis(0)
                       %0 = {name} [%n] {params}, %seed, 3 dtype({dtype})
                       %1 = {name} [%m] {params}, %seed, 4 dtype({dtype})
                       %a = broadcast %0 flags(true, false)
                       %b = broadcast %1 flags(false, true)
                       %2 = add %x, %a
                       %3 = mul %2, %b
                       %4 = cast %3 {dtype}
                       return %4
                     }}"
                );
                check_equal(&source, &[contiguous(dtype, &sizes), Arg::Scalar(crate::num::Value::Int(5))], false);
            }
        }
    }
}

#[test]
fn reductions_of_random_numbers() {
    for (sizes, axis) in [([7, 517], 1), ([7, 517], 0), ([300, 64], 0), ([3, 4096], 1)] {
        // Sums of small integers, which are exact in any order.
        let source = format!(
            "fusion @f(%x: f32[?, ?], %seed: i64) {{
               %0 = rand_like %x, %seed, 3
               %1 = lt %0, 0.375
               %2 = mul %x, %1
               %3 = sum %2 axes({axis})
               return %3
             }}"
        );
        check_equal(&source, &[contiguous(DType::F32, &sizes), Arg::Scalar(crate::num::Value::Int(5))], false);
    }
}
