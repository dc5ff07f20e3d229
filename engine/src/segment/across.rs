//! Reductions whose rows lie across memory.
//!
//! A kernel that holds rows gives threads that are neighbours neighbouring elements of a row. Where
//! these lie far apart, and what lies side by side belongs to other rows, each access brings elements
//! that nobody asked for: up to 32 bytes for one. A large tensor then takes longer that way than in
//! several passes that read it as it lies.
//!
//! In: how arguments lie. Out: for a reduction, whether the large tensors in memory behind its operand
//! lie so, and how much of each lies side by side: arguments, and what no kernel computes, whose results are dense and row-major.

use super::facts::reductions_take;
use crate::axes::axis_pairs;
use crate::fusion::{AxisKind, Bindings, Fusion, OpId, OpKind, Operand, TensorId};
use crate::kernel::gcd;
use crate::tensor::TensorMeta;
use std::collections::BTreeSet;

/// From so many bytes on, rows that lie across memory are not held: below, one kernel costs less
/// than it takes to launch several. Smaller tensors are not asked how they lie.
pub(super) const LARGE: i64 = 4 << 20;
/// Rows of so few elements leave a block enough neighbours.
pub(super) const SHORT_ROW: i64 = 16;
/// Elements side by side from which on accesses are mostly waste.
const MOST_SIDE_BY_SIDE: i64 = 8;
/// Tensors that are seen at most for one reduction: what is farther says nothing new.
const MOST_SEEN: usize = 64;

/// How a tensor behind the operand lies to the reduced axes.
enum Lies {
    Along,
    /// With so many bytes beside each element.
    Across(i64),
}

/// Where the rows of a reduction lie across memory, the bytes that are one run there beside each element, or a divisor of
/// them: of several tensors that they have in common. `lies` is the layout of an argument.
pub(super) fn run_across<'a>(
    fusion: &Fusion,
    bindings: &Bindings,
    lies: &dyn Fn(TensorId) -> Option<&'a TensorMeta>,
    op: OpId,
) -> Option<i64> {
    let (OpKind::Reduce { axes, .. }, Some(&Operand::Tensor(operand))) =
        (&fusion.ops[op].kind, fusion.ops[op].inputs.first())
    else {
        return None;
    };
    let reduced = |axis: usize| axes.contains(&(axis as u32));
    let sizes = bindings.sizes(fusion, operand);
    let row = (0..sizes.len()).filter(|axis| reduced(*axis)).map(|axis| sizes[axis]).fold(1i64, i64::saturating_mul);
    if row <= SHORT_ROW || bytes(fusion, bindings, operand) < LARGE {
        return None;
    }
    let (mut seen, mut across) = (BTreeSet::from([operand]), None::<i64>);
    // Each with the axis of the operand that each of its axes is.
    let mut stack: Vec<(TensorId, Vec<Option<usize>>)> = vec![(operand, (0..sizes.len()).map(Some).collect())];
    while let Some((tensor, axes)) = stack.pop() {
        match seen_from(fusion, bindings, lies, tensor, &axes, &reduced) {
            Some(Lies::Along) => return None,
            Some(Lies::Across(run)) => across = Some(across.map_or(run, |other| gcd(run, other))),
            None => {}
        }
        // What is in memory is not looked behind.
        let Some(made) = fusion.definition(tensor).filter(|op| reductions_take(&fusion.ops[*op].kind)) else {
            continue;
        };
        let rank = fusion.tensors[tensor].axes.len();
        for (position, operand) in fusion.ops[made].inputs.iter().enumerate() {
            let Operand::Tensor(input) = *operand else { continue };
            if seen.len() == MOST_SEEN || !seen.insert(input) {
                continue;
            }
            let mut own = vec![None; fusion.tensors[input].axes.len()];
            for (a, b) in axis_pairs(&fusion.ops[made].kind, position, own.len(), rank) {
                own[a] = axes[b];
            }
            stack.push((input, own));
        }
    }
    across
}

/// Whether a reduction reads enough for it to matter how its rows lie.
pub(super) fn has_large_rows(fusion: &Fusion, bindings: &Bindings) -> bool {
    fusion.ops.values().any(|op| match (&op.kind, op.inputs.first()) {
        (OpKind::Reduce { .. }, Some(&Operand::Tensor(operand))) => bytes(fusion, bindings, operand) >= LARGE,
        _ => false,
    })
}

/// The elements of a tensor.
pub(super) fn elements(fusion: &Fusion, bindings: &Bindings, tensor: TensorId) -> i64 {
    let sizes = fusion.tensors[tensor].axes.iter().map(|axis| bindings.scalar(axis.extent).as_i64());
    sizes.fold(1, i64::saturating_mul)
}

/// Their bytes.
pub(super) fn bytes(fusion: &Fusion, bindings: &Bindings, tensor: TensorId) -> i64 {
    elements(fusion, bindings, tensor).saturating_mul(fusion.tensors[tensor].dtype.bytes() as i64)
}

/// The axis along which neighbours of a tensor lie side by side, if it is large and these are many.
pub(super) fn many_side_by_side(meta: &TensorMeta) -> Option<usize> {
    let bytes = meta.sizes.iter().copied().fold(meta.dtype.bytes() as i64, i64::saturating_mul);
    let moving = (0..meta.sizes.len()).filter(|axis| meta.sizes[*axis] > 1 && meta.strides[*axis] != 0);
    let nearest = moving.min_by_key(|axis| meta.strides[*axis])?;
    (bytes >= LARGE && meta.sizes[nearest] >= MOST_SIDE_BY_SIDE).then_some(nearest)
}

/// How a tensor lies, if it is large, in memory before the kernel, and holds rows: what is read once
/// for each row has none.
fn seen_from<'a>(
    fusion: &Fusion,
    bindings: &Bindings,
    lies: &dyn Fn(TensorId) -> Option<&'a TensorMeta>,
    tensor: TensorId,
    axes: &[Option<usize>],
    reduced: &dyn Fn(usize) -> bool,
) -> Option<Lies> {
    if bytes(fusion, bindings, tensor) < LARGE {
        return None;
    }
    let made = fusion.definition(tensor).map(|op| &fusion.ops[op].kind);
    let strides = match (lies(tensor), made) {
        (Some(meta), _) => meta.strides.clone(),
        (None, Some(kind)) if !reductions_take(kind) => {
            TensorMeta::contiguous(fusion.tensors[tensor].dtype, &bindings.sizes(fusion, tensor)).strides
        }
        (None, _) => return None,
    };
    let (sizes, own) = (bindings.sizes(fusion, tensor), &fusion.tensors[tensor].axes);
    let moving = |axis: &usize| sizes[*axis] > 1 && strides[*axis] != 0 && own[*axis].kind == AxisKind::Iteration;
    let own_bytes = fusion.tensors[tensor].dtype.bytes() as i64;
    let is_reduced = |axis: usize| axes[axis].is_some_and(reduced);
    let mut inner: Vec<usize> = (0..own.len()).filter(moving).collect();
    inner.sort_by_key(|axis| strides[*axis]);
    let nearest = *inner.first()?;
    if !inner.iter().any(|axis| is_reduced(*axis)) {
        return None;
    }
    if is_reduced(nearest) {
        return Some(Lies::Along);
    }
    // What stays of other axes may go on where that of the nearest one ends.
    let mut run = 1i64;
    for axis in inner {
        if is_reduced(axis) || strides[axis] != strides[nearest].saturating_mul(run) {
            break;
        }
        run = run.saturating_mul(sizes[axis]);
    }
    (run >= MOST_SIDE_BY_SIDE).then(|| Lies::Across(run.saturating_mul(own_bytes)))
}
