//! Rewrites keep meaning: a random fusion, the same one concretised and the same
//! one decomposed have the same values, and strides are predicted as they are.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::fusion::{self, Fusion, OpKind, bind, concretize};
use engine::tensor::{Arg, ArgMeta};
use engine::{refeval, text};
use std::collections::BTreeMap;
use testing::Draw;
use testing::fusions::{Limits, arguments, generate};

const FUSIONS: u64 = 2_000;

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
        let (fusion, args) = (&generated.fusion, arguments(&generated, &mut draw));
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
