//! Kernels of every heuristic against the reference, on the simulator with all
//! detectors, over shapes that divide and shapes that do not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use engine::diag::Result;
use engine::fusion::{AxisDecl, Fusion, FusionBuilder, Operand};
use engine::num::{BinaryOp, DType, ReduceOp, UnaryOp};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::{compile, kernel, text};
use testing::reference::alignments;
use testing::{Draw, Reference};

const SYM2: &[AxisDecl] = &[AxisDecl::Symbolic, AxisDecl::Symbolic];
const SYM3: &[AxisDecl] = &[AxisDecl::Symbolic, AxisDecl::Symbolic, AxisDecl::Symbolic];

fn fusion(build: impl FnOnce(&mut FusionBuilder) -> Result<Operand>) -> Fusion {
    let mut b = FusionBuilder::new("f");
    let y = build(&mut b).unwrap();
    b.output(y).unwrap();
    b.finish().unwrap()
}

fn input(dtype: DType, sizes: &[i64], seed: u64) -> HostTensor {
    let mut draw = Draw::new(seed);
    let value = |_: &[i64]| engine::num::Value::Float(draw.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0);
    HostTensor::from_fn(dtype, sizes, value).unwrap()
}

#[track_caller]
fn check(fusion: &Fusion, sizes: &[&[i64]]) {
    let args: Vec<Arg> = fusion
        .input_tensors()
        .zip(sizes)
        .enumerate()
        .map(|(i, ((_, tensor), sizes))| Arg::Tensor(input(fusion.tensors[tensor].dtype, sizes, 7 * i as u64 + 3)))
        .collect();
    check_args(fusion, &args);
}

/// Checks on the device as it is, and on one so small that rows and partial
/// results come in several waves.
#[track_caller]
pub(crate) fn check_args(fusion: &Fusion, args: &[Arg]) {
    let small = DeviceDesc { sm_count: 2, ..DeviceDesc::h200() };
    for device in [DeviceDesc::h200(), small] {
        check_on(&device, fusion, args);
    }
}

#[track_caller]
fn check_on(device: &DeviceDesc, fusion: &Fusion, args: &[Arg]) {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let options = Options::default();
    let cx = CompileCx { options: &options, device, trace: &NoTrace };
    let compiled = match compile::compile_fusion(&cx, fusion, &metas, &alignments(args)) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{metas:?}\n{error}"),
    };
    let reference = Reference::of(fusion, args).unwrap();
    if let Err(error) = reference.check_kernel(&compiled.kernel, &SimOptions::default()) {
        let (scheduler, params) = (compiled.scheduler, &compiled.params_text);
        let schedule = compiled.schedule_text.as_deref().unwrap_or_default();
        panic!("{metas:?}\n{scheduler} {params}\n{schedule}\n{}\n{error}", kernel::print(&compiled.kernel));
    }
}

fn sizes2() -> Vec<[i64; 2]> {
    vec![
        [1, 1],
        [3, 5],
        [4, 8],
        [7, 13],
        [1, 1000],
        [16, 256],
        [5, 4096],
        [3, 4097],
        [129, 33],
        [1000, 1],
        [64, 100],
        [2, 1024],
    ]
}

fn unary_chain(dtype: DType) -> Fusion {
    fusion(|b| {
        let x = b.tensor("x", dtype, SYM2)?;
        let y = b.tensor("y", dtype, SYM2)?;
        let p = b.mul(x, y)?;
        let p = b.add(p, 1.0)?;
        b.cast(p, dtype)
    })
}

#[test]
fn pointwise() {
    for dtype in [DType::BF16, DType::F32, DType::F64] {
        for s in sizes2() {
            check(&unary_chain(dtype), &[&s, &s]);
        }
    }
}

#[test]
fn pointwise_with_a_broadcast_row() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::BF16, SYM2)?;
        let y = b.tensor("y", DType::BF16, &[AxisDecl::Symbolic])?;
        let y = b.broadcast(y, &[true, false])?;
        let p = b.add(x, y)?;
        b.cast(p, DType::BF16)
    });
    for s in sizes2() {
        check(&f, &[&s, &s[1..]]);
    }
}

#[test]
fn pointwise_with_a_broadcast_column() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let y = b.tensor("y", DType::F32, &[AxisDecl::Symbolic])?;
        let y = b.broadcast(y, &[false, true])?;
        b.mul(x, y)
    });
    for s in sizes2() {
        check(&f, &[&s, &s[..1]]);
    }
}

#[test]
fn transposed_operand() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let y = b.permute(x, &[1, 0])?;
        b.neg(y)
    });
    for s in sizes2() {
        check(&f, &[&s]);
    }
    let twice = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let y = b.permute(x, &[1, 0])?;
        b.add(x, y)
    });
    check(&twice, &[&[33, 33]]);
}

fn reduction(axes: &[i64], dtype: DType) -> Fusion {
    fusion(|b| {
        let x = b.tensor("x", dtype, SYM2)?;
        let s = b.sum(x, axes, false)?;
        let s = b.mul(s, 0.5)?;
        b.cast(s, dtype)
    })
}

#[test]
fn inner_reduction() {
    for dtype in [DType::BF16, DType::F32] {
        for s in sizes2() {
            check(&reduction(&[1], dtype), &[&s]);
        }
    }
    check(&reduction(&[1], DType::F32), &[&[2, 50_000]]);
    check(&reduction(&[1], DType::BF16), &[&[500, 1024]]);
    check(&reduction(&[1], DType::BF16), &[&[450, 1025]]);
}

#[test]
fn outer_reduction() {
    for dtype in [DType::BF16, DType::F32] {
        for s in sizes2() {
            check(&reduction(&[0], dtype), &[&s]);
        }
    }
    check(&reduction(&[0], DType::F32), &[&[5000, 64]]);
}

#[test]
fn full_reduction() {
    for s in sizes2() {
        check(&reduction(&[0, 1], DType::F32), &[&s]);
    }
    check(&reduction(&[0, 1], DType::F32), &[&[300, 700]]);
}

#[test]
fn reductions_over_some_of_three_axes() {
    for axes in [&[0i64][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        let f = fusion(|b| {
            let x = b.tensor("x", DType::F32, SYM3)?;
            b.max(x, axes, false)
        });
        for s in [[2, 3, 4], [1, 7, 64], [5, 33, 17], [8, 1, 100]] {
            check(&f, &[&s]);
        }
    }
}

#[test]
fn softmax() {
    for dtype in [DType::BF16, DType::F32] {
        let f = fusion(|b| {
            let x = b.tensor("x", dtype, SYM2)?;
            let y = b.softmax(x, -1)?;
            b.cast(y, dtype)
        });
        for s in sizes2() {
            check(&f, &[&s]);
        }
    }
}

#[test]
fn normalisations() {
    for (rms, dtype) in [(true, DType::BF16), (false, DType::BF16), (true, DType::F32), (false, DType::F32)] {
        let f = fusion(|b| {
            let x = b.tensor("x", dtype, SYM2)?;
            let w = b.tensor("w", dtype, &[AxisDecl::Symbolic])?;
            let y = if rms {
                b.rms_norm(x, Some(w.into()), 1e-5)?
            } else {
                let bias = b.tensor("b", dtype, &[AxisDecl::Symbolic])?;
                b.layer_norm(x, Some(w.into()), Some(bias.into()), 1e-5)?
            };
            b.cast(y, dtype)
        });
        for s in sizes2() {
            check(&f, &[&s, &s[1..], &s[1..]][..if rms { 2 } else { 3 }]);
        }
        for s in [[500, 128], [450, 257], [256, 1024], [100, 1025]] {
            check(&f, &[&s, &s[1..], &s[1..]][..if rms { 2 } else { 3 }]);
        }
    }
}

/// Reducing nothing gives the neutral element, in every shape of kernel.
#[test]
fn empty_rows() {
    for axes in [&[0i64][..], &[1], &[0, 1], &[2], &[1, 2]] {
        let f = fusion(|b| {
            let x = b.tensor("x", DType::F32, SYM3)?;
            let s = b.sum(x, axes, false)?;
            b.output(s)?;
            b.max(x, axes, false)
        });
        for s in [[0, 3, 40], [3, 0, 40], [40, 3, 0], [0, 0, 5], [5, 0, 0]] {
            check(&f, &[&s]);
        }
    }
    // The maximum of nothing is not finite; the sum of nothing is 0 all the same.
    let log_sum_exp = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let m = b.max(x, &[1], true)?;
        let shifted = b.sub(x, m)?;
        let e = b.exp(shifted)?;
        b.sum(e, &[1], false)
    });
    for s in [[5, 0], [1, 0], [5, 3]] {
        check(&log_sum_exp, &[&s]);
    }
}

/// `sum(exp(x - m))` needs no test of its own only if `m` is the maximum of `x`.
#[test]
fn the_maximum_of_another_tensor_may_be_infinite() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let z = b.tensor("z", DType::F32, SYM2)?;
        let larger = b.maximum(x, z)?;
        b.output(larger)?;
        let m = b.max(z, &[1], true)?;
        let shifted = b.sub(x, m)?;
        let e = b.exp(shifted)?;
        b.sum(e, &[1], false)
    });
    for n in [3, 33, 100] {
        let x = input(DType::F32, &[2, n], 3);
        let z = HostTensor::filled(DType::F32, &[2, n], engine::num::Value::Float(f64::NEG_INFINITY)).unwrap();
        check_args(&f, &[Arg::Tensor(x), Arg::Tensor(z)]);
    }
}

/// A NaN row maximum makes NaN of what lies outside too; it is not counted.
#[test]
fn what_lies_outside_is_not_counted() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let m = b.max(x, &[1], true)?;
        let shifted = b.sub(x, m)?;
        let nan = b.unary(UnaryOp::IsNan, shifted)?;
        let count = b.cast(nan, DType::F32)?;
        b.sum(count, &[1], false)
    });
    for n in [5, 33, 100] {
        let mut x = input(DType::F32, &[2, n], 3);
        assert!(x.set(&[0, 1], engine::num::Value::Float(f64::NAN)));
        check_args(&f, &[Arg::Tensor(x)]);
    }
}

/// An axis of size 1 that is innermost does not make its neighbour dense.
#[test]
fn strided_columns_of_one_element() {
    let one = &[AxisDecl::Symbolic, AxisDecl::Symbolic, AxisDecl::Const(1)][..];
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, one)?;
        let y = b.tensor("y", DType::F32, &[AxisDecl::Symbolic, AxisDecl::Const(1)])?;
        let y = b.broadcast(y, &[true, false, false])?;
        b.add(x, y)
    });
    for (rows, n, stride) in [(3, 200, 4), (3, 256, 8), (1, 4096, 4)] {
        let meta = engine::tensor::TensorMeta {
            dtype: DType::F32,
            sizes: vec![rows, n, 1],
            strides: vec![n * stride, stride, 1],
        };
        let mut k = 0;
        let x = HostTensor::strided(meta, |_| {
            k += 1;
            engine::num::Value::Float(f64::from(k))
        });
        check_args(&f, &[Arg::Tensor(x.unwrap()), Arg::Tensor(input(DType::F32, &[n, 1], 5))]);
    }
}

/// A result that varies along a reduced dimension, but not along all, is
/// written once.
#[test]
fn a_row_beside_a_full_reduction() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let w = b.tensor("w", DType::F32, &[AxisDecl::Symbolic])?;
        let n = b.neg(w)?;
        b.output(n)?;
        let w = b.broadcast(w, &[true, false])?;
        let p = b.mul(x, w)?;
        b.sum(p, &[0, 1], false)
    });
    for s in [[3, 5], [16, 256], [300, 64], [1, 7]] {
        check(&f, &[&s, &s[1..]]);
    }
}

/// An input without elements whose other axes are not moved along either.
/// Integers wrap, also where the host computes them once for all threads.
#[test]
fn scalars_wrap_as_tensors_do() {
    for (dtype, least) in [(DType::I8, i64::from(i8::MIN)), (DType::I32, i64::from(i32::MIN)), (DType::I64, i64::MIN)] {
        let fusion = fusion(|b| {
            let (n, x) = (b.scalar("n", dtype)?, b.tensor("x", dtype, &[AxisDecl::Symbolic])?);
            let twice = b.binary(BinaryOp::Add, n, n)?;
            let product = b.binary(BinaryOp::Mul, n, n)?;
            let less = b.binary(BinaryOp::Sub, twice, 1i64)?;
            let (turned, magnitude) = (b.unary(UnaryOp::Neg, n)?, b.unary(UnaryOp::Abs, n)?);
            let sum = b.binary(BinaryOp::Add, turned, magnitude)?;
            let mut y = x;
            for scalar in [twice, product, less, turned, magnitude, sum] {
                y = b.binary(BinaryOp::BitwiseXor, y, scalar)?;
            }
            Ok(y)
        });
        let x = HostTensor::from_fn(dtype, &[7], |index| engine::num::Value::Int(index[0])).unwrap();
        check_args(&fusion, &[Arg::Scalar(engine::num::Value::Int(least)), Arg::Tensor(x)]);
    }
}

/// One scalar after the other, as many as a kernel has room for in its parameters; and one row operation after
/// the other, whose values cross from stage to stage.
#[test]
fn long_chains() {
    let scalars = fusion(|b| {
        let n = b.scalar("n", DType::I64)?;
        let x = b.tensor("x", DType::F32, &[AxisDecl::Symbolic])?;
        let mut sum = b.binary(BinaryOp::Add, n, 1i64)?;
        for _ in 0..3900 {
            sum = b.binary(BinaryOp::Add, sum, 1i64)?;
        }
        b.binary(BinaryOp::Mul, x, sum)
    });
    let x = input(DType::F32, &[5], 3);
    check_args(&scalars, &[Arg::Scalar(engine::num::Value::Int(-3900)), Arg::Tensor(x)]);
    let rows = fusion(|b| {
        let mut x = b.tensor("x", DType::F32, SYM2)?;
        for _ in 0..60 {
            let row = b.reduce(ReduceOp::Sum, x, &[1], true, None)?;
            x = b.binary(BinaryOp::Sub, x, row)?;
            x = b.unary(UnaryOp::Tanh, x)?;
        }
        Ok(x)
    });
    check(&rows, &[&[4, 3]]);
}

#[test]
fn expanded_and_empty() {
    let f = reduction(&[1], DType::F32);
    for strides in [[1, 0], [0, 0], [0, 1], [8, 0]] {
        for sizes in [[5, 0], [0, 5], [5, 3]] {
            let meta =
                engine::tensor::TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() };
            let x = HostTensor::strided(meta, |_| engine::num::Value::Float(0.5)).unwrap();
            check_args(&f, &[Arg::Tensor(x)]);
        }
    }
}

/// A value that is kept for a wide store, between two users of another value.
#[test]
fn intermediate_results_are_returned() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let y = b.tensor("y", DType::F32, SYM2)?;
        let sum = b.add(x, y)?;
        let abs = b.abs(sum)?;
        let neg = b.neg(abs)?;
        let all = b.mul(neg, sum)?;
        b.output(neg)?;
        b.output(abs)?;
        b.output(sum)?;
        Ok(all)
    });
    for s in sizes2() {
        check(&f, &[&s, &s]);
    }
}

/// What does not depend on a reduction over blocks is not written by its last
/// block alone, but by one block all the same.
#[test]
fn a_result_beside_a_reduction_over_blocks() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, &[AxisDecl::Symbolic])?;
        let y = b.tensor("y", DType::F32, &[])?;
        let s = b.sum(x, &[0], false)?;
        b.output(s)?;
        b.neg(y)
    });
    for n in [5, 4097, 100_000] {
        check(&f, &[&[n], &[]]);
    }
}

/// Results of different shapes: the smaller ones are written once.
#[test]
fn results_of_different_shapes() {
    let pointwise = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM3)?;
        let y = b.tensor("y", DType::F32, &[AxisDecl::Symbolic, AxisDecl::Broadcast, AxisDecl::Symbolic])?;
        let z = b.tensor("z", DType::F32, &[AxisDecl::Broadcast, AxisDecl::Symbolic, AxisDecl::Broadcast])?;
        let (thin, column) = (b.neg(y)?, b.neg(z)?);
        b.output(thin)?;
        b.output(column)?;
        let p = b.mul(x, y)?;
        b.add(p, z)
    });
    for [a, c, d] in [[2, 3, 4], [1, 7, 64], [5, 33, 17], [8, 1, 100], [3, 2, 1000]] {
        check(&pointwise, &[&[a, c, d], &[a, 1, d], &[1, c, 1]]);
    }
    let reduced = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM3)?;
        let y = b.tensor("y", DType::F32, &[AxisDecl::Symbolic, AxisDecl::Symbolic, AxisDecl::Broadcast])?;
        let p = b.add(x, y)?;
        b.output(p)?;
        let s = b.sum(y, &[1], false)?;
        b.output(s)?;
        b.sum(p, &[1], false)
    });
    for [a, c, d] in [[2, 3, 4], [1, 7, 64], [5, 33, 17], [8, 1, 100], [3, 600, 4]] {
        check(&reduced, &[&[a, c, d], &[a, c, 1]]);
    }
}

/// A row sum that is added to rows of another length is repeated for each
/// element of those: harmless while it is small, refused when it is not.
#[test]
fn repeated_reductions_are_refused_when_large() {
    let f = fusion(|b| {
        let x = b.tensor("x", DType::F32, SYM2)?;
        let y = b.tensor("y", DType::F32, SYM2)?;
        let s = b.sum(x, &[1], true)?;
        b.add(y, s)
    });
    check(&f, &[&[5, 33], &[5, 7]]);
    let meta = |sizes: &[i64]| ArgMeta::Tensor(engine::tensor::TensorMeta::contiguous(DType::F32, sizes));
    let (device, options) = (DeviceDesc::h200(), Options::default());
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    let error = compile::compile_fusion(&cx, &f, &[meta(&[4096, 4096]), meta(&[4096, 4096])], &[16, 16]).unwrap_err();
    assert_eq!(error.code, engine::diag::code::NEEDS_SEGMENTS, "{error}");
}

/// Which ends of its axis the index of a lookup is kept from, of 40 rows and the index that operations on `%j` make.
fn kept_from(index: &str) -> Vec<&'static str> {
    let body = format!("{index}  %y = index_select %x, %i dim(0)\n  return %y\n");
    let fusion = text::parse_one(&format!("fusion @f(%x: f32[40, 7], %j: i32[40]) {{\n{body}}}")).unwrap();
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let meta = |dtype, sizes: &[i64]| ArgMeta::Tensor(engine::tensor::TensorMeta::contiguous(dtype, sizes));
    let metas = [meta(DType::F32, &[40, 7]), meta(DType::I32, &[40])];
    let plan = session.compile(&fusion, &metas, &NoTrace).unwrap();
    let text = kernel::print(plan.kernel());
    let at = text.lines().find(|line| line.contains("x_at")).unwrap_or_default().to_string();
    ["minimum", "maximum"].into_iter().filter(|end| at.contains(&format!("{end}("))).collect()
}

#[test]
fn an_index_that_is_computed_of_positions_is_kept_in_its_axis_where_it_might_leave_it() {
    let both = ["minimum", "maximum"];
    assert_eq!(kept_from("  %i = add %j, 0\n"), both);
    assert_eq!(kept_from("  %0 = maximum %j, 0\n  %i = minimum %0, 39\n"), [""; 0]);
    assert_eq!(kept_from("  %0 = maximum %j, 0\n  %i = minimum %0, 40\n"), ["minimum"]);
    assert_eq!(kept_from("  %0 = maximum %j, -1\n  %i = minimum %0, 39\n"), ["maximum"]);
    assert_eq!(kept_from("  %i = bitwise_and %j, 31\n"), [""; 0]);
    assert_eq!(kept_from("  %i = bitwise_and %j, 63\n"), ["minimum"]);
    // What is no number of 32 bits may be any of them.
    assert_eq!(kept_from("  %0 = cast %j i64\n  %1 = mul %0, %0\n  %i = maximum %1, 0\n"), both);
    // The product may wrap.
    assert_eq!(kept_from("  %0 = mul %j, %j\n  %1 = abs %0\n  %i = minimum %1, 39\n"), ["maximum"]);
    for (start, step, kept) in [(0, 1, &[][..]), (39, -1, &[]), (1, 1, &["minimum"]), (38, -1, &["maximum"])] {
        assert_eq!(kept_from(&format!("  %i = iota 40, {start}, {step}\n")), kept, "{start} {step}");
    }
    let scaled = |by: &str| format!("  %0 = iota 40\n  %1 = cast %0 f32\n  %2 = mul %1, {by}\n  %i = cast %2 i32\n");
    assert_eq!(kept_from(&scaled("0.5")), [""; 0]);
    assert_eq!(kept_from(&scaled("1.03125")), ["minimum"]);
}

/// The exponentials of a fusion's kernel, as its text names them.
fn exponentials(fusion: &Fusion, sizes: &[i64]) -> Vec<&'static str> {
    let device = DeviceDesc::h200();
    let options = Options::default();
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    let meta = |dtype| ArgMeta::Tensor(engine::tensor::TensorMeta::contiguous(dtype, sizes));
    let metas: Vec<ArgMeta> = fusion.input_tensors().map(|(_, t)| meta(fusion.tensors[t].dtype)).collect();
    let compiled = compile::compile_fusion(&cx, fusion, &metas, &vec![16; metas.len()]).unwrap();
    let text = kernel::print(&compiled.kernel);
    let names = ["exp.flush", "exp.fast", "exp"];
    names.into_iter().filter(|name| text.contains(&format!(" {name}("))).collect()
}

#[test]
fn exponentials_are_as_exact_as_their_results_need() {
    let softmax = |dtype| {
        fusion(|b| {
            let x = b.tensor("x", dtype, SYM2)?;
            let y = b.softmax(x, -1)?;
            b.cast(y, dtype)
        })
    };
    for sizes in [[5, 33], [16, 4096], [16, 4097], [4096, 32], [64, 20_000]] {
        assert_eq!(exponentials(&softmax(DType::BF16), &sizes), ["exp.flush"], "{sizes:?}");
        assert_eq!(exponentials(&softmax(DType::F16), &sizes), ["exp.flush"], "{sizes:?}");
    }
    assert_eq!(exponentials(&softmax(DType::F32), &[16, 4096]), ["exp"]);
    let ratio = fusion(|b| {
        let x = b.tensor("x", DType::BF16, SYM2)?;
        let e = b.exp(x)?;
        let sum = b.sum(e, &[1], true)?;
        let ratio = b.div(e, sum)?;
        b.cast(ratio, DType::BF16)
    });
    let product = fusion(|b| {
        let (x, y) = (b.tensor("x", DType::BF16, SYM2)?, b.tensor("y", DType::BF16, SYM2)?);
        let e = b.exp(x)?;
        let product = b.mul(e, y)?;
        b.cast(product, DType::BF16)
    });
    let full = |value| {
        let value = engine::num::Value::Float(value);
        Arg::Tensor(HostTensor::from_fn(DType::BF16, &[4, 64], |_| value).unwrap())
    };
    for (fusion, args) in [(&ratio, vec![full(-90.0)]), (&product, vec![full(-90.0), full(1e38)])] {
        assert_eq!(exponentials(fusion, &[4, 64]), ["exp.fast"]);
        check_args(fusion, &args);
    }
}
