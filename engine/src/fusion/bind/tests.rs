//! What binding accepts, computes and refuses.

use super::*;
use crate::fusion::sketch::Sketch;
use crate::num::ReduceOp;
use crate::tensor::HostTensor;
use Operand::{Scalar as S, Tensor as T};

fn dense(dtype: DType, sizes: &[i64]) -> ArgMeta {
    ArgMeta::Tensor(TensorMeta::contiguous(dtype, sizes))
}

/// The first line and the notes of a refusal, one a line.
fn check_refused(fusion: &Fusion, args: &[ArgMeta], expected: &[&str]) {
    let error = bind(fusion, args).unwrap_err();
    let mut lines = vec![format!("{}: {}", error.code, error.message)];
    lines.extend(error.notes.clone());
    assert_eq!(lines[..expected.len().min(lines.len())], *expected);
}

/// `%0 = add %x, %y` with independent symbols, `%x` of rank 2.
fn sum_of_two() -> Fusion {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", DType::F32, "? ?");
    let y = sketch.input("y", DType::F32, "? ?");
    sketch.op(OpKind::Binary(BinaryOp::Add), &[T(x), T(y)]);
    sketch.fusion
}

#[test]
fn sizes_of_all_tensors_become_known() {
    let mut sketch = Sketch::new();
    let x = sketch.input("x", DType::F32, "m n");
    let y = sketch.input("y", DType::F32, "n");
    let z = sketch.op(OpKind::Broadcast { flags: vec![true, false] }, &[T(y)]);
    let sum = sketch.op(OpKind::Binary(BinaryOp::Add), &[T(x), T(z)]);
    let out = sketch.op(OpKind::Reduce { op: ReduceOp::Sum, axes: vec![1] }, &[T(sum)]);
    let fusion = sketch.fusion;
    let bindings = bind(&fusion, &[dense(DType::F32, &[3, 5]), dense(DType::F32, &[5])]).unwrap();
    assert_eq!(bindings.sizes(&fusion, z), [1, 5]);
    assert_eq!(bindings.sizes(&fusion, sum), [3, 5]);
    assert_eq!(bindings.sizes(&fusion, out), [3]);
    assert_eq!(bindings.dense_meta(&fusion, sum).strides, [5, 1]);
    check_refused(
        &fusion,
        &[dense(DType::F32, &[3, 5]), dense(DType::F32, &[4])],
        &["E0304: input 1 `%y`: axis 0 is 4, not 5, which is axis 1 of input 0 `%x`"],
    );
}

#[test]
fn wrong_arguments_are_named() {
    let fusion = sum_of_two();
    let x = dense(DType::F32, &[2, 3]);
    let check = |args: &[ArgMeta], expected: &str| check_refused(&fusion, args, &[expected]);
    check(std::slice::from_ref(&x), "E0301: fusion `@sketch` takes 2 arguments, 1 were given; input 1 `%y` is missing");
    check(&[x.clone(), x.clone(), x.clone()], "E0306: fusion `@sketch` takes 2 arguments, 3 were given");
    check(&[x.clone(), dense(DType::F16, &[2, 3])], "E0302: input 1 `%y`: declared as f32, the argument is f16");
    check(&[x.clone(), dense(DType::F32, &[3])], "E0303: input 1 `%y`: declared with rank 2, the argument has rank 1");
    check(
        &[ArgMeta::Scalar(Value::Int(1)), x.clone()],
        "E0309: input 0 `%x`: declared as a tensor, the argument is the scalar Int(1)",
    );
    let strided = |sizes: &[i64], strides: &[i64]| {
        ArgMeta::Tensor(TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() })
    };
    check(&[x.clone(), strided(&[2, 3], &[3, -1])], "E0305: input 1 `%y`: axis 1 has the negative stride -1");
    check(&[x.clone(), strided(&[2, 3], &[3])], "E0305: input 1 `%y`: 1 strides for 2 axes");
    check(&[x.clone(), strided(&[2, -3], &[3, 1])], "E0304: input 1 `%y`: axis 1 has the negative size -3");
    let huge = [i64::MAX, 2];
    let overflow =
        "E0307: input 1 `%y`: the number of bytes of sizes [9223372036854775807, 2] and strides [2, 1] overflows";
    check(&[x, dense(DType::F32, &huge)], overflow);
}

#[test]
fn extents_must_agree_where_an_operation_pairs_them() {
    let fusion = sum_of_two();
    check_refused(
        &fusion,
        &[dense(DType::F32, &[3, 129]), dense(DType::F32, &[3, 128])],
        &[
            "E0304: `%0` = add: axis 1 of operand 1 is 128, not 129",
            "an axis of size 1 broadcasts only if it is declared as a broadcast axis",
            "axis 1 of `%x` is 129: axis 1 of input 0 `%x`",
            "axis 1 of `%y` is 128: axis 1 of input 1 `%y`",
        ],
    );
    // A size of 1 is not a broadcast axis.
    let one = [dense(DType::F32, &[3, 1]), dense(DType::F32, &[3, 4])];
    assert_eq!(bind(&fusion, &one).unwrap_err().code, code::INPUT_EXTENT);
    let mut sketch = Sketch::new();
    sketch.input("x", DType::F32, "b 4");
    let declared = sketch.fusion;
    let check = |sizes: &[i64], expected: &str| check_refused(&declared, &[dense(DType::F32, sizes)], &[expected]);
    check(&[2, 4], "E0304: input 0 `%x`: axis 0 is 2, not the size 1 that a broadcast axis has");
    check(&[1, 5], "E0304: input 0 `%x`: axis 1 is 5, not the declared 4");
    assert!(bind(&declared, &[dense(DType::F32, &[1, 4])]).is_ok());
}

#[test]
fn size_arithmetic_is_checked_and_other_arithmetic_wraps() {
    let mut sketch = Sketch::new();
    let n = sketch.scalar_input("n", DType::I64);
    let fill = sketch.scalar_input("v", DType::F32);
    let two = sketch.constant(DType::I64, Value::Int(2));
    let size = sketch.scalar(DType::I64, ScalarDef::Binary(BinaryOp::Mul, n, two));
    let value = sketch.scalar(DType::I64, ScalarDef::Binary(BinaryOp::Add, n, n));
    let out = sketch.full(fill, &[size]);
    let fusion = sketch.fusion;
    let args = |n: i64| [ArgMeta::Scalar(Value::Int(n)), ArgMeta::Scalar(Value::Float(0.1))];
    let bindings = bind(&fusion, &args(21)).unwrap();
    assert_eq!(bindings.sizes(&fusion, out), [42]);
    assert_eq!(bindings.scalar(value), Value::Int(42));
    assert_eq!(bindings.scalar(fill), Value::Float(0.1f32.into()));
    check_refused(&fusion, &args(-3), &["E0304: full `%0`: axis 0 has the negative size -6"]);
    check_refused(&fusion, &args(i64::MAX), &["E0307: the size mul(9223372036854775807, 2) overflows i64"]);
    let big = 1 << 61;
    check_refused(
        &fusion,
        &args(big),
        &["E0307: full `%0`: the number of bytes of sizes [4611686018427387904] overflows"],
    );
    let mut sketch = Sketch::new();
    let a = sketch.scalar_input("a", DType::I64);
    let twice = sketch.scalar(DType::I64, ScalarDef::Binary(BinaryOp::Add, a, a));
    let wrapped = bind(&sketch.fusion, &[ArgMeta::Scalar(Value::Int(i64::MAX))]).unwrap();
    assert_eq!(wrapped.scalar(twice), Value::Int(-2));
}

#[test]
fn scalars_must_fit_their_type() {
    let mut sketch = Sketch::new();
    let a = sketch.scalar_input("a", DType::I8);
    let x = sketch.input("x", DType::I8, "?");
    sketch.op(OpKind::Binary(BinaryOp::Add), &[T(x), S(a)]);
    let fusion = sketch.fusion;
    let check = |value: ArgMeta, expected: &str| {
        check_refused(&fusion, &[value, dense(DType::I8, &[2])], &[expected]);
    };
    check(ArgMeta::Scalar(Value::Int(128)), "E0302: input 0 `%a`: declared as i8, which cannot hold 128");
    check(ArgMeta::Scalar(Value::Float(1.0)), "E0302: input 0 `%a`: declared as i8, the argument is Float(1.0)");
    check(dense(DType::I8, &[1]), "E0309: input 0 `%a`: declared as a scalar i8, the argument is a tensor of [1]");
}

#[test]
fn storage_is_checked_with_arguments() {
    let mut sketch = Sketch::new();
    sketch.input("x", DType::F32, "? ?");
    let fusion = sketch.fusion;
    let mut tensor = HostTensor::zeros(DType::F32, &[2, 3]).unwrap();
    assert!(bind_args(&fusion, &[Arg::Tensor(tensor.clone())]).is_ok());
    tensor.offset = 1;
    let error = bind_args(&fusion, &[Arg::Tensor(tensor)]).unwrap_err();
    assert_eq!(error.code, code::INPUT_STRIDE);
    assert_eq!(
        error.message,
        "input 0 `%x`: sizes [2, 3] with strides [3, 1] from element 1 reach element 6, the storage holds 6 of f32"
    );
}
