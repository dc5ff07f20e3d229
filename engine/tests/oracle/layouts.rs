//! What is predicted of results is what they are: type, sizes and strides of
//! every operation's results on arguments of random layout.
//!
//! The oracle's cases say how each operation is used; here their arguments are
//! laid out anew: axes in any order, with gaps, repeated (stride 0), from an
//! offset, and where the fusion allows it with other sizes, 0 and 1 among them.
//! Equal sizes stay equal, so that axes still pair.

use super::reader::{Case, Family, Input};
use super::{families, folder};
use engine::diag::{Diagnostic, DiagnosticKind};
use engine::fusion::{Fusion, OpKind, bind_args, layouts, ops};
use engine::tensor::{Arg, HostTensor, TensorMeta};
use std::collections::BTreeMap;
use testing::Draw;

const DRAWS: usize = 10_000;

/// Strides of any layout without overlaps, but for axes that repeat.
fn strides(draw: &mut Draw, sizes: &[i64]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let shuffled = draw.below(3) > 0;
    for i in (1..order.len()).rev().filter(|_| shuffled) {
        order.swap(i, draw.below(i + 1));
    }
    let gaps = draw.below(2) == 0;
    let mut strides = vec![0; sizes.len()];
    let mut step = if gaps && draw.below(3) == 0 { 2 } else { 1 };
    for &axis in order.iter().rev() {
        strides[axis] = if draw.below(8) == 0 { 0 } else { step };
        step *= sizes[axis].max(1);
        step += if gaps { draw.below(3) as i64 } else { 0 };
    }
    strides
}

/// A case's arguments in another layout; with `sizes`, each size replaced.
fn relaid(family: &Family, case: &Case, draw: &mut Draw, sizes: &BTreeMap<i64, i64>) -> Vec<Arg> {
    let mut args = Vec::with_capacity(case.inputs.len());
    for input in &case.inputs {
        args.push(match input {
            Input::Scalar(value) => Arg::Scalar(*value),
            Input::Tensor { meta, table, seed, .. } => {
                let sizes: Vec<i64> = meta.sizes.iter().map(|size| *sizes.get(size).unwrap_or(size)).collect();
                let strides = strides(draw, &sizes);
                let meta = TensorMeta { dtype: meta.dtype, sizes, strides };
                let offset = draw.below(4);
                let data = family.storage(table, *seed, offset + meta.span().unwrap() as usize);
                Arg::Tensor(HostTensor::new(meta, data, offset).unwrap())
            }
        });
    }
    args
}

/// A replacement of every size that occurs, but 1, which may be a declared one.
fn resized(case: &Case, draw: &mut Draw) -> BTreeMap<i64, i64> {
    let mut sizes = BTreeMap::new();
    for input in &case.inputs {
        if let Input::Tensor { meta, .. } = input {
            for &size in meta.sizes.iter().filter(|&&size| size != 1) {
                sizes.entry(size).or_insert_with(|| [0, 1, 2, 3, 4, 5, 7][draw.below(7)]);
            }
        }
    }
    sizes
}

/// Whether the arguments were accepted; what was returned is what was predicted.
fn check(case: &Case, fusion: &Fusion, args: &[Arg]) -> bool {
    let metas: Vec<_> = args.iter().map(Arg::meta).collect();
    let refused =
        |error: &Diagnostic| assert_ne!(error.kind, DiagnosticKind::Bug, "{} with {metas:?}: {error}", case.id);
    let Ok(bindings) = bind_args(fusion, args).inspect_err(|error| refused(error)) else { return false };
    let predicted = layouts(fusion, &bindings, &metas);
    let predicted = predicted.unwrap_or_else(|error| panic!("{} with {metas:?}: {error}", case.id));
    // Positions that an index tensor holds are only looked at here.
    let outputs = engine::refeval::evaluate(fusion, args).inspect_err(|error| refused(error));
    let Ok(outputs) = outputs else { return false };
    for (&output, actual) in fusion.outputs.iter().zip(&outputs) {
        let declared = TensorMeta { dtype: fusion.tensors[output].dtype, ..predicted[output].clone() };
        assert_eq!(declared, actual.meta, "{} with {metas:?}\n{}", case.id, case.text);
        assert_eq!(bindings.sizes(fusion, output), actual.meta.sizes, "{} with {metas:?}", case.id);
    }
    true
}

/// Operations that others decompose into, and that PyTorch has as a part of those alone; they are held against them.
const STEPS: &[&str] = &[
    "grouped_sums",
    "index_counts",
    "index_put_runs",
    "index_runs",
    "last_position",
    "max_sum_exp",
    "sum_of",
    "weighted_runs",
];

#[test]
fn results_have_the_predicted_layouts() {
    let families = families();
    let mut by_op: BTreeMap<&str, Vec<(&Family, &Case)>> = BTreeMap::new();
    for family in families {
        for case in &family.cases {
            by_op.entry(case.op()).or_default().push((family, case));
        }
    }
    let draws = DRAWS.div_ceil(by_op.len());
    let mut draw = Draw::new(5);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut total, mut other_sizes, mut refused) = (0, 0, 0);
    for (op_name, cases) in &by_op {
        let mut done = 0;
        for attempt in 0..20 * draws {
            if done == draws {
                break;
            }
            let (family, case) = cases[draw.below(cases.len())];
            let Ok(fusion) = engine::text::parse_one(&case.text) else { continue };
            let sizes = if attempt % 2 == 0 { resized(case, &mut draw) } else { BTreeMap::new() };
            if check(case, &fusion, &relaid(family, case, &mut draw, &sizes)) {
                done += 1;
                other_sizes += usize::from(!sizes.is_empty());
                for op in fusion.ops.values() {
                    if let OpKind::Call(call) = &op.kind
                        && call.row.name != *op_name
                    {
                        *counts.entry(call.row.name).or_default() += 1;
                    }
                }
            } else {
                refused += 1;
            }
        }
        assert_eq!(done, draws, "{op_name}: too few draws are accepted");
        *counts.entry(op_name).or_default() += done;
        total += done;
    }
    let listed: Vec<String> = counts.iter().map(|(op, count)| format!("{op} {count}")).collect();
    eprintln!("layouts checked by operation: {}", listed.join(", "));
    eprintln!("{total} of {} draws accepted, {other_sizes} with other sizes", total + refused);
    let has_no_case = |name: &&str| !counts.contains_key(name) && !STEPS.contains(name);
    let missing: Vec<_> = ops::all().map(|row| row.name).filter(has_no_case).collect();
    assert!(missing.is_empty(), "no case in {} is about {missing:?}", folder().display());
}
