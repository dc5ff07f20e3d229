use super::*;
use crate::fusion::{bind, hash};
use crate::num::{DType, Value};
use crate::tensor::{Arg, ArgMeta, HostTensor};
use crate::{refeval, text};
use std::collections::BTreeMap;

/// The extents of `%y` are scalar inputs, so its axes are undecided.
const UNDECIDED: &str = "fusion @f(%x: f32[?, ?], %m: i64, %n: i64) {
  %y = full [%m, %n] 2.0 f32
  %z = mul %x, %y
  %s = sum %y axes(0)
  return %z, %s
}";

fn args(sizes: [i64; 2], m: i64, n: i64) -> Vec<Arg> {
    let x = HostTensor::from_fn(DType::F32, &sizes, |i| Value::Float((i[0] * 10 + i[1]) as f64)).unwrap();
    vec![Arg::Tensor(x), Arg::Scalar(Value::Int(m)), Arg::Scalar(Value::Int(n))]
}

fn facts_of(fusion: &Fusion, args: &[Arg]) -> Facts {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    facts(fusion, &bind(fusion, &metas).unwrap())
}

fn check_facts(args: &[Arg], expected: &str) {
    let fusion = text::parse_one(UNDECIDED).unwrap();
    let facts = facts_of(&fusion, args);
    assert_eq!(facts.to_string(), expected);
    let concrete = concretize(&fusion, &facts).unwrap();
    let undecided = |tensor: &crate::fusion::Tensor| tensor.axes.iter().any(|a| a.kind == AxisKind::Symbolic);
    assert!(!concrete.fusion.tensors.values().any(undecided), "{}", text::print(&concrete.fusion));
    // The same values, and outputs keep their names.
    assert_eq!(refeval::evaluate(&concrete.fusion, args).unwrap(), refeval::evaluate(&fusion, args).unwrap());
    for (&old, &new) in fusion.outputs.iter().zip(&concrete.fusion.outputs) {
        assert_eq!(concrete.tensors[old], Some(new));
        assert_eq!(concrete.fusion.tensors[new].name, fusion.tensors[old].name);
    }
}

#[test]
fn undecided_axes_are_decided_by_their_sizes() {
    check_facts(&args([3, 4], 3, 4), "broadcasts [] empty []");
    check_facts(&args([3, 4], 1, 4), "broadcasts [1.0] empty []");
    check_facts(&args([3, 4], 1, 1), "broadcasts [1.0, 1.1, 3.0] empty []");
}

#[test]
fn results_without_elements_are_not_computed() {
    check_facts(&args([0, 4], 0, 4), "broadcasts [] empty [1, 2]");
    check_facts(&args([0, 4], 1, 4), "broadcasts [1.0] empty [2]");
}

#[test]
fn sizes_that_agree_with_neither_are_refused() {
    let fusion = text::parse_one(UNDECIDED).unwrap();
    let metas: Vec<ArgMeta> = args([3, 4], 2, 4).iter().map(Arg::meta).collect();
    let error = bind(&fusion, &metas).unwrap_err();
    assert_eq!(error.message, "`%z` = mul: axis 0 of operand 1 is 2, not 3");
}

#[test]
fn facts_are_equal_exactly_when_concrete_fusions_are() {
    let fusion = text::parse_one(UNDECIDED).unwrap();
    let mut seen: BTreeMap<Facts, crate::util::Hash128> = BTreeMap::new();
    let mut hashes = std::collections::BTreeSet::new();
    for rows in [0, 1, 2, 5] {
        for columns in [0, 1, 3] {
            for (m, n) in [(rows, columns), (1, columns), (rows, 1), (1, 1)] {
                let facts = facts_of(&fusion, &args([rows, columns], m, n));
                let hash = hash::structure(&concretize(&fusion, &facts).unwrap().fusion);
                match seen.insert(facts, hash) {
                    Some(known) => assert_eq!(known, hash),
                    None => assert!(hashes.insert(hash), "two facts give one fusion"),
                }
            }
        }
    }
    assert!(seen.len() > 5);
}
