//! Tests of the builder: promotion, axes, composites, canonical form.

use super::*;
use crate::num::{DType, Value};

/// The types that `f` gives for a tensor `x` of each type.
fn check_types(f: impl Fn(&mut FusionBuilder, Operand) -> crate::diag::Result<Operand>, expected: &[(DType, DType)]) {
    for &(input, output) in expected {
        let mut b = FusionBuilder::new("f");
        let x = b.tensor("x", input, &[AxisDecl::Symbolic, AxisDecl::Symbolic]).unwrap();
        let y = f(&mut b, x).unwrap();
        assert_eq!(b.dtype(y), output, "of {input}");
        b.output(y).unwrap();
        b.finish().unwrap();
    }
}

fn check_refused(code: crate::diag::Code, f: impl Fn(&mut FusionBuilder) -> crate::diag::Result<Operand>) {
    let error = f(&mut FusionBuilder::new("f")).unwrap_err();
    assert_eq!(error.code, code, "{error}");
}

#[test]
fn result_types_follow_the_rules_of_promotion() {
    use DType::*;
    check_types(|b, x| b.add(x, 1), &[(BF16, F32), (F16, F32), (F64, F64), (I8, I8), (Bool, I64)]);
    check_types(|b, x| b.mul(x, 0.5), &[(BF16, F32), (F64, F64), (I8, F32), (Bool, F32)]);
    check_types(|b, x| b.exp(x), &[(F16, F32), (I64, F32), (Bool, F32), (F64, F64)]);
    check_types(|b, x| b.truediv(x, x), &[(I32, F32), (BF16, F32)]);
    check_types(|b, x| b.lt(x, 3), &[(I32, Bool), (BF16, Bool)]);
    check_types(|b, x| b.sum(x, &[1], false), &[(Bool, I64), (I8, I64), (I64, I64), (BF16, F32), (F64, F64)]);
    check_types(|b, x| b.max(x, &[], true), &[(Bool, Bool), (U8, U8), (F16, F32)]);
    check_types(|b, x| b.mean(x, &[-1], true), &[(I32, F32), (BF16, F32), (F64, F64)]);
    check_types(|b, x| b.softmax(x, -1), &[(BF16, F32), (F64, F64)]);
    let mut b = FusionBuilder::new("f");
    let flag = b.tensor("flag", Bool, &[AxisDecl::Symbolic]).unwrap();
    let chosen = b.where_(flag, 1.0, 0.0).unwrap();
    assert_eq!(b.dtype(chosen), F32);
}

#[test]
fn constants_fold_and_equal_scalars_are_one() {
    let mut b = FusionBuilder::new("f");
    let two = b.add(1, 1).unwrap();
    let four = b.mul(two, 2).unwrap();
    let Operand::Scalar(four) = four else { panic!("scalars give a scalar") };
    assert_eq!(b.scalars.const_value(four), Some(Value::Int(4)));
    let x = b.tensor("x", DType::F32, &[AxisDecl::Symbolic, AxisDecl::Const(1)]).unwrap();
    let n = b.size(x, 0).unwrap();
    assert_eq!(b.size(x, -2).unwrap(), n);
    assert_eq!(b.add(n, 1).unwrap(), b.add(n, 1).unwrap());
}

#[test]
fn the_finished_fusion_is_canonical() {
    let mut b = FusionBuilder::new("f");
    let x = b.tensor("x", DType::BF16, &[AxisDecl::Symbolic, AxisDecl::Symbolic]).unwrap();
    let unused = b.exp(x).unwrap();
    b.neg(unused).unwrap();
    let y = b.mul(x, x).unwrap();
    let late = b.tensor("late", DType::F32, &[AxisDecl::Symbolic]).unwrap();
    for result in [x, y, y] {
        b.output(result).unwrap();
    }
    let fusion = b.finish().unwrap();
    assert_eq!(fusion.inputs.len(), 2);
    assert_eq!(fusion.tensors.values().take(2).map(|t| t.name.as_str()).collect::<Vec<_>>(), ["x", "late"]);
    let kinds: Vec<_> = fusion.ops.values().map(|op| op.kind.name()).collect();
    assert_eq!(kinds, ["cast", "mul", "set", "set"]);
    let outputs: std::collections::BTreeSet<_> = fusion.outputs.iter().collect();
    assert_eq!(outputs.len(), 3, "outputs are distinct");
    assert!(matches!(late, Operand::Tensor(_)));
}

#[test]
fn refusals_have_their_codes() {
    use crate::diag::code;
    let dims = [AxisDecl::Symbolic, AxisDecl::Const(7)];
    check_refused(code::RANK, |b| {
        let x = b.tensor("x", DType::F32, &dims)?;
        let y = b.tensor("y", DType::F32, &dims[..1])?;
        b.add(x, y)
    });
    check_refused(code::EXTENT, |b| {
        let x = b.tensor("x", DType::F32, &[AxisDecl::Const(8)])?;
        let y = b.tensor("y", DType::F32, &[AxisDecl::Const(7)])?;
        b.add(x, y)
    });
    check_refused(code::AXIS, |b| {
        let x = b.tensor("x", DType::F32, &dims)?;
        b.sum(x, &[1, -1], false)
    });
    check_refused(code::SQUEEZE, |b| {
        let x = b.tensor("x", DType::F32, &dims)?;
        b.squeeze(x, &[true, false])
    });
    check_refused(code::NOT_TENSOR, |b| b.sum(1.0, &[0], false));
    check_refused(code::BAD_NUMBER, |b| {
        let x = b.tensor("x", DType::I8, &dims)?;
        b.add(x, 300)
    });
    check_refused(code::DUPLICATE_NAME, |b| {
        b.tensor("x", DType::I8, &dims)?;
        b.scalar("x", DType::I8)
    });
    check_refused(code::DTYPE, |b| b.bitwise_and(1.5, 2));
    assert_eq!(FusionBuilder::new("f").finish().unwrap_err().code, code::NO_OUTPUT);
}

#[test]
fn hashes_tell_names_apart_only_where_they_should() {
    let build = |name: &str, op: fn(&mut FusionBuilder, Operand) -> crate::diag::Result<Operand>| {
        let mut b = FusionBuilder::new("f");
        let x = b.tensor(name, DType::F32, &[AxisDecl::Symbolic]).unwrap();
        let y = op(&mut b, x).unwrap();
        b.output(y).unwrap();
        b.finish().unwrap()
    };
    let (a, b, c) = (build("x", |b, x| b.exp(x)), build("y", |b, x| b.exp(x)), build("x", |b, x| b.sin(x)));
    assert_eq!(hash::structure(&a), hash::structure(&b));
    assert_ne!(hash::content(&a), hash::content(&b));
    assert_ne!(hash::structure(&a), hash::structure(&c));
}
