//! Every type that an operation accepts has a case, or a reason why not; and
//! `index`, which PyTorch does not have, is `i64` on the host.

use super::families;
use super::reader::{Case, Input};
use engine::fusion::ops;
use engine::num::DType;
use engine::tensor::{Arg, TensorMeta};
use std::collections::{BTreeMap, BTreeSet};

const COMPLEX: &[DType] = &[DType::C64, DType::C128];
const SMALL: &[DType] = &[DType::F8E4M3FN, DType::F8E5M2, DType::F8E8M0FNU, DType::F4E2M1FN];

/// Operations, types, and why there are no cases of them.
type Gap = (&'static [&'static str], &'static [DType], &'static str);

#[rustfmt::skip]
const GAPS: &[Gap] = &[
    (&[
        "batch_norm", "batch_norm_backward", "dropout_backward", "fast_gelu", "gelu_tanh", "instance_norm",
        "instance_norm_backward", "layer_norm", "layer_norm_backward", "layer_norm_forward", "log_softmax_backward",
        "lstm", "rms_norm", "rms_norm_backward", "rms_norm_forward", "softmax_backward", "tanh_backward", "tanh_gelu",
        "tanh_gelu_backward", "thunder_rms_norm_backward",
    ], COMPLEX, "formulas of operations that have cases; PyTorch has no complex form of them"),
    (&[
        "layer_norm", "layer_norm_backward", "layer_norm_forward", "rms_norm", "rms_norm_backward", "rms_norm_forward",
        "thunder_rms_norm_backward",
    ], &[DType::Bool], "rows of equal numbers have gradients that are all rounding"),
    (&["add_alpha", "addcmul", "clamp", "sub_alpha", "topk"], &[DType::Bool], "PyTorch refuses them, or ties are in any order"),
    (&["topk"], SMALL, "PyTorch does not sort them, and few numbers are different"),
    (&["index_put_accumulate"], &[DType::Bool, DType::U16, DType::U32, DType::U64], "PyTorch does not add them"),
    (&["index_put_accumulate", "full_like", "ones_like", "zeros_like"], SMALL, "PyTorch does not add or fill them"),
    (&["grouped_mm", "scaled_mm"], DType::FUSION, "PyTorch multiplies the types that have cases"),
    (&["nv_grouped_block_quantize"], &[DType::I64], "offsets, of i32 in the cases"),
    (&["preprocess_grouped_matmul_input_sf"], DType::FUSION, "only moves elements"),
    (&["rand_like", "randn_like", "dropout"], DType::FUSION, "the numbers of f32, rounded"),
];

fn is_excused(op: &str, dtype: DType) -> bool {
    dtype == DType::Index || GAPS.iter().any(|(ops, dtypes, _)| ops.contains(&op) && dtypes.contains(&dtype))
}

/// The type that a case is about: the one that most of its tensors have, the first if in doubt.
fn main_type(case: &Case) -> Option<DType> {
    let types = case.inputs.iter().filter_map(|input| match input {
        Input::Tensor { meta, .. } => Some(meta.dtype),
        Input::Scalar(_) => None,
    });
    let mut counts: Vec<(DType, usize)> = Vec::new();
    for dtype in types {
        match counts.iter_mut().find(|(known, _)| *known == dtype) {
            Some((_, count)) => *count += 1,
            None => counts.push((dtype, 1)),
        }
    }
    let most = counts.iter().map(|(_, count)| *count).max()?;
    counts.into_iter().find(|(_, count)| *count == most).map(|(dtype, _)| dtype)
}

#[test]
fn every_type_that_an_operation_accepts_has_cases() {
    let mut covered: BTreeMap<&str, BTreeSet<DType>> = BTreeMap::new();
    let mut accepted: BTreeMap<&str, BTreeSet<DType>> = BTreeMap::new();
    for case in families().iter().flat_map(|family| &family.cases) {
        for input in &case.inputs {
            if let Input::Tensor { meta, .. } = input {
                covered.entry(case.op()).or_default().insert(meta.dtype);
            }
        }
        let Some(own) = main_type(case) else { continue };
        let known = accepted.entry(case.op()).or_default();
        for &dtype in DType::FUSION {
            let text = case.text.replace(&format!(": {own}["), &format!(": {dtype}["));
            if !known.contains(&dtype) && engine::text::parse_one(&text).is_ok() {
                known.insert(dtype);
            }
        }
    }
    let mut gaps = Vec::new();
    for (op, dtypes) in &accepted {
        // Some cases are about promotion, which is no operation.
        for dtype in dtypes.difference(&covered[op]).filter(|_| ops::find(op).is_some()) {
            if !is_excused(op, *dtype) {
                gaps.push(format!("{op} of {dtype}"));
            }
        }
    }
    assert!(gaps.is_empty(), "no case is about {}", gaps.join(", "));
    let pairs: usize = covered.values().map(BTreeSet::len).sum();
    eprintln!("{} operations, {pairs} pairs of an operation and a type", covered.len());
}

/// A case with `index` in place of `i64`.
fn renamed(args: &[Arg]) -> Vec<Arg> {
    let mut renamed = args.to_vec();
    for arg in &mut renamed {
        if let Arg::Tensor(tensor) = arg
            && tensor.meta.dtype == DType::I64
        {
            tensor.meta.dtype = DType::Index;
        }
    }
    renamed
}

#[test]
fn index_is_a_64_bit_integer() {
    let mut count = 0;
    for family in families() {
        for case in family.cases.iter().filter(|case| main_type(case) == Some(DType::I64)) {
            let args = family.args(case);
            let own = engine::text::parse_one(&case.text).unwrap();
            let other = engine::text::parse_one(&case.text.replace(": i64[", ": index["));
            let other = other.unwrap_or_else(|errors| panic!("{}: {}", case.id, errors[0]));
            let expected = engine::refeval::evaluate(&own, &args).unwrap();
            let actual = engine::refeval::evaluate(&other, &renamed(&args)).unwrap();
            for (actual, expected) in actual.iter().zip(&expected) {
                let dtype = if actual.dtype() == DType::Index { DType::I64 } else { actual.dtype() };
                assert_eq!(TensorMeta { dtype, ..actual.meta.clone() }, expected.meta, "{}", case.id);
                assert_eq!(actual.data, expected.data, "{}", case.id);
            }
            count += 1;
        }
    }
    eprintln!("{count} cases of i64 are the same of index");
}
