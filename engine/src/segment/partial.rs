//! Reductions of what others reduced.
//!
//! A sum over rows and columns of a tensor whose rows are summed as well is a sum of these: so the tensor is not read for it. Maxima
//! and minima alike. No kernel reduces over both sets of dimensions, since one is a part of the other.
//!
//! In: a fusion with its sizes, and of what is found in it, what is to be made so. Out: the fusion with it. Sums of floats are in another
//! order then, as between threads; maxima and minima are the same.

use super::across::{LARGE, bytes, elements};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{Bindings, Fusion, OpId, OpKind, Operand, Rewriter, Rewritten, TensorId, made_tensor};
use crate::num::ReduceOp;
use std::collections::BTreeMap;

/// So many times fewer elements than the tensor has what was reduced of it.
const FEWER: i64 = 16;

/// A reduction that goes on from another one of the same tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OfReduced {
    pub(super) all: OpId,
    /// Over some of the axes.
    pub(super) part: OpId,
}

/// All of them whose tensors are large: of each the one of which the least is left.
pub(super) fn find(fusion: &Fusion, bindings: &Bindings) -> Vec<OfReduced> {
    let mut known: BTreeMap<(TensorId, ReduceOp), Vec<OpId>> = BTreeMap::new();
    for id in fusion.ops.ids() {
        if let Some((op, x, _)) = reduction(fusion, id) {
            known.entry((x, op)).or_default().push(id);
        }
    }
    let left = |id: OpId| elements(fusion, bindings, fusion.ops[id].output());
    let mut found = Vec::new();
    for ((x, _), ids) in known.iter().filter(|(_, ids)| ids.len() > 1) {
        if bytes(fusion, bindings, *x) < LARGE {
            continue;
        }
        let all = elements(fusion, bindings, *x);
        for &id in ids {
            let parts = ids.iter().filter(|part| left(**part).saturating_mul(FEWER) <= all);
            let part = parts.filter(|part| is_part(fusion, **part, id)).min_by_key(|part| (left(**part), **part));
            found.extend(part.map(|part| OfReduced { all: id, part: *part }));
        }
    }
    found.sort_unstable();
    found
}

/// What an operation reduces by, what, and over which axes, if the order in which it combines does not matter.
fn reduction(fusion: &Fusion, id: OpId) -> Option<(ReduceOp, TensorId, &[u32])> {
    let op = &fusion.ops[id];
    match (&op.kind, op.inputs.first()) {
        (OpKind::Reduce { op: by, axes }, Some(Operand::Tensor(x))) => {
            matches!(by, ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min).then_some((*by, *x, &axes[..]))
        }
        _ => None,
    }
}

/// Whether a reduction is over some, but not all, of the axes of another one.
fn is_part(fusion: &Fusion, part: OpId, of: OpId) -> bool {
    let (Some((_, _, few)), Some((_, _, many))) = (reduction(fusion, part), reduction(fusion, of)) else {
        return false;
    };
    few.len() < many.len() && !few.is_empty() && few.iter().all(|axis| many.contains(axis))
}

/// The fusion with some of them made so.
pub(super) fn rewrite(fusion: &Fusion, found: &[OfReduced]) -> Result<Rewritten> {
    let part_of: BTreeMap<OpId, OpId> = found.iter().map(|found| (found.all, found.part)).collect();
    let mut made: BTreeMap<OpId, TensorId> = BTreeMap::new();
    let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
    for (id, op) in fusion.ops.iter() {
        let results = match made.get(&id).copied() {
            Some(own) => vec![own],
            None if part_of.contains_key(&id) => vec![of_reduced(&mut rewriter, fusion, id, (&part_of, &mut made))?],
            None => rewriter.keep(op)?,
        };
        if let (Some(_), [own]) = (reduction(fusion, id), &results[..]) {
            made.insert(id, *own);
        }
        rewriter.replace(op, &results)?;
    }
    rewriter.finish()
}

/// A reduction, of what was reduced before, which is made first where it comes later.
fn of_reduced(
    r: &mut Rewriter<'_>,
    fusion: &Fusion,
    all: OpId,
    (part_of, made): (&BTreeMap<OpId, OpId>, &mut BTreeMap<OpId, TensorId>),
) -> Result<TensorId> {
    // From the one that is asked for down to one that is known, or reads the tensor.
    let mut chain = vec![all];
    while let Some(part) = chain.last().and_then(|last| part_of.get(last)).filter(|part| !made.contains_key(*part)) {
        chain.push(*part);
    }
    let mut last = None;
    for id in chain.into_iter().rev() {
        let Some((by, x, axes)) = reduction(fusion, id) else { continue };
        let part = part_of.get(&id).and_then(|part| Some((*part, *made.get(part)?)));
        let (from, left) = match part {
            None => (r.tensor(x)?, axes.iter().map(|axis| i64::from(*axis)).collect::<Vec<_>>()),
            Some((part, own)) => {
                let gone = reduction(fusion, part).map_or(&[][..], |(_, _, axes)| axes);
                let rest = axes.iter().filter(|axis| !gone.contains(axis));
                let place = |axis: &u32| i64::from(*axis) - gone.iter().filter(|own| *own < axis).count() as i64;
                (own, rest.map(place).collect())
            }
        };
        let dtype = fusion.tensors[fusion.ops[id].output()].dtype;
        let own = made_tensor(r.builder.reduce(by, from, &left, false, Some(dtype))?)?;
        made.insert(id, own);
        last = Some(own);
    }
    last.ok_or_else(|| Diagnostic::bug("nothing reduces what was reduced"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::bind;
    use crate::num::{DType, Value};
    use crate::refeval::{Tolerance, compare, evaluate_all};
    use crate::tensor::{Arg, HostTensor};
    use crate::text;

    /// What is found in a body on a tensor, and that values stay what they were.
    #[track_caller]
    fn check(dtype: DType, sizes: &[i64], body: &str, expected: usize) {
        let axes = vec!["?"; sizes.len()].join(", ");
        let fusion = text::parse_one(&format!("fusion @f(%x: {dtype}[{axes}]) {{\n{body}\n}}")).expect("it reads");
        let number = |index: &[i64]| index.iter().fold(1, |n, i| (n * 5 + i) % 11);
        let element = |index: &[i64]| match dtype.is_float() {
            true => Value::Float(f64::from(number(index) as i32) * 0.25 - 1.0),
            false => Value::Int(number(index) - 4),
        };
        let args = [Arg::Tensor(HostTensor::from_fn(dtype, sizes, element).expect("it fits"))];
        let bindings = bind(&fusion, &[args[0].meta()]).expect("it binds");
        let found = find(&fusion, &bindings);
        assert_eq!(found.len(), expected, "{body}");
        let made = rewrite(&fusion, &found).expect("it is made again").fusion;
        let [before, after] = [&fusion, &made].map(|fusion| evaluate_all(fusion, &args).expect("it has values"));
        for (before, after) in before.outputs.iter().zip(&after.outputs) {
            let compared = compare(after, before, Tolerance { abs: 1e-3, rel: 1e-5 }).expect("they are alike");
            assert!(compared.passed(), "{compared:?}\n{}", text::print(&made));
        }
    }

    #[test]
    fn sums_of_all_are_of_sums_of_rows() {
        let both = "%a = sum %x axes(1)\n%b = sum %x axes(0, 1)\nreturn %a, %b";
        check(DType::F32, &[1024, 1025], both, 1);
        check(DType::I64, &[1024, 1025], both, 1);
        // Rows come later, and are made first.
        check(DType::F32, &[1024, 1025], "%b = max %x axes(0, 1)\n%a = max %x axes(0)\nreturn %a, %b", 1);
        // Each goes on from the one of which the least is left.
        let three = "%c = sum %x axes(0, 1, 2)\n%b = sum %x axes(1, 2)\n%a = sum %x axes(2)\nreturn %a, %b, %c";
        check(DType::F32, &[70, 20, 800], three, 2);
        let two = "%a = min %x axes(1)\n%b = min %x axes(0, 1, 3)\n%c = min %x axes(0, 1)\nreturn %a, %b, %c";
        check(DType::F32, &[40, 50, 60, 10], two, 2);
    }

    #[test]
    fn others_read_the_tensor() {
        // Small, of another kind, over other axes, of another tensor, or most is left.
        check(DType::F32, &[64, 64], "%a = sum %x axes(1)\n%b = sum %x axes(0, 1)\nreturn %a, %b", 0);
        check(DType::F32, &[1024, 1025], "%a = max %x axes(1)\n%b = sum %x axes(0, 1)\nreturn %a, %b", 0);
        check(DType::F32, &[1024, 1025], "%a = sum %x axes(1)\n%b = sum %x axes(0)\nreturn %a, %b", 0);
        check(DType::F32, &[1024, 1025], "%a = sum %x axes(1)\n%y = neg %x\n%b = sum %y axes(0, 1)\nreturn %a, %b", 0);
        check(DType::F32, &[1, 2 << 20], "%a = sum %x axes(0)\n%b = sum %x axes(0, 1)\nreturn %a, %b", 0);
        check(DType::F32, &[3, 1 << 19], "%a = prod %x axes(1)\n%b = prod %x axes(0, 1)\nreturn %a, %b", 0);
    }
}
