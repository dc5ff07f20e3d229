//! Rewrites keep meaning: a random fusion, the same one concretised and the same
//! one decomposed have the same values, and strides are predicted as they are.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::fusion::{self, Fusion, OpKind, Operand, bind, concretize};
use engine::num::{DType, DTypeClass, Value};
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::{refeval, text};
use std::collections::BTreeMap;
use testing::Draw;
use testing::fusions::{Generated, INPUT_BYTE, Limits, generate, scalar_value};

const FUSIONS: u64 = 2_000;

fn element(dtype: DType, draw: u64) -> Value {
    match dtype.class() {
        DTypeClass::Bool => Value::Bool(draw % 2 == 1),
        DTypeClass::Int => Value::Int((draw % 7) as i64),
        DTypeClass::Float => Value::Float((draw % 17) as f64 / 4.0 - 1.0),
        DTypeClass::Complex => Value::Complex((draw % 17) as f64 / 4.0 - 1.0, (draw % 5) as f64),
    }
}

/// Arguments of the drawn sizes, some of them with axes in another order.
pub(crate) fn args(generated: &Generated, draw: &mut Draw) -> Vec<Arg> {
    let fusion = &generated.fusion;
    let mut args = Vec::new();
    for (input, sizes) in fusion.inputs.iter().zip(&generated.sizes) {
        args.push(match (*input, sizes) {
            (Operand::Scalar(s), _) => Arg::Scalar(scalar_value(fusion.scalars[s].dtype, INPUT_BYTE)),
            (Operand::Tensor(t), sizes) => {
                let dtype = fusion.tensors[t].dtype;
                let mut order: Vec<usize> = (0..fusion.tensors[t].axes.len()).collect();
                if draw.once_in(2) {
                    order.reverse();
                }
                let sizes = sizes.as_ref().unwrap();
                let stored: Vec<i64> = order.iter().map(|&axis| sizes[axis]).collect();
                let made = HostTensor::from_fn(dtype, &stored, |_| element(dtype, draw.bits() >> 33)).unwrap();
                // `order` is its own inverse.
                Arg::Tensor(made.permuted(&order).unwrap())
            }
        });
    }
    args
}

fn check_same(fusion: &Fusion, rewritten: &Fusion, args: &[Arg], what: &str) {
    let expected = refeval::evaluate(fusion, args);
    let actual = refeval::evaluate(rewritten, args);
    let (Ok(expected), Ok(actual)) = (&expected, &actual) else {
        // A position outside of its axis, for example: refused by both.
        assert!(expected.is_err() && actual.is_err(), "{what}\n{expected:?}\n{actual:?}\n{}", text::print(fusion));
        return;
    };
    for (a, b) in expected.iter().zip(actual) {
        assert!(
            a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.to_contiguous().bits_equal(&b.to_contiguous()),
            "{what}\n{}\n{}",
            text::print(fusion),
            text::print(rewritten)
        );
    }
}

#[test]
fn rewrites_keep_values_and_strides_are_predicted() {
    let mut draw = Draw::new(5);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let limits = Limits { sizes: vec![0, 1, 2, 3, 5, 8], rank: 3, ..Limits::whole_language() };
    for _ in 0..FUSIONS {
        let length = draw.below(120);
        let bytes = draw.bytes(length);
        let generated = generate(&bytes, &limits);
        let (fusion, args) = (&generated.fusion, args(&generated, &mut draw));
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let bindings = bind(fusion, &metas).unwrap_or_else(|e| panic!("{e}\n{}", text::print(fusion)));
        let concrete = concretize::concretize(fusion, &concretize::facts(fusion, &bindings)).unwrap();
        check_same(fusion, &concrete.fusion, &args, "concretised");
        // Box-Muller in steps rounds each of them.
        let exact = |op: &engine::fusion::Op| !matches!(op.kind.name(), "normal");
        if fusion.ops.values().all(exact) {
            check_same(fusion, &fusion::decompose(fusion).unwrap().fusion, &args, "decomposed");
        }
        if let Ok(outputs) = refeval::evaluate(fusion, &args) {
            let layouts = fusion::layouts(fusion, &bindings, &metas).unwrap();
            for (&id, output) in fusion.outputs.iter().zip(outputs) {
                assert_eq!(layouts[id], output.meta, "{}", text::print(fusion));
            }
        }
        for op in fusion.ops.values().filter(|op| matches!(op.kind, OpKind::Call(_))) {
            *counts.entry(op.kind.name()).or_default() += 1;
        }
    }
    println!("{FUSIONS} fusions, primitives in them: {counts:?}");
    assert!(counts.len() > 15, "{counts:?}");
}
