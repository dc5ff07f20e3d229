//! From a fusion as written to the fusion that a kernel is made of: its axes are
//! decided for the sizes at hand, primitives that schedules do not know are
//! written in simpler ones, and outputs are permuted into the order in which
//! they lie in memory, so that every output of the kernel is dense and row-major.

use super::BoundFusion;
use crate::array::{dense_strides_in, is_dense, row_major_strides};
use crate::diag::Result;
use crate::fusion::{self, Bindings, Fusion, concretize};
use crate::tensor::{ArgMeta, TensorMeta};
use std::borrow::Cow;

/// The fusion that a kernel is made of, and its sizes.
#[derive(Clone, Debug)]
pub struct PreparedFusion<'a> {
    /// The fusion: as written, where nothing had to change.
    pub fusion: Cow<'a, Fusion>,
    bindings: Cow<'a, Bindings>,
    args: &'a [ArgMeta],
    alignments: &'a [u32],
}

impl PreparedFusion<'_> {
    /// What the next stage takes.
    pub fn bound(&self) -> BoundFusion<'_> {
        let Self { fusion, bindings, args, alignments } = self;
        BoundFusion { fusion, bindings, args, alignments }
    }
}

/// Type and layout of each output: that of the reference where it has neither
/// holes nor shared places, else row-major.
pub fn output_metas(bound: &BoundFusion<'_>) -> Result<Vec<TensorMeta>> {
    let fusion = bound.fusion;
    let layouts = fusion::layouts(fusion, bound.bindings, bound.args)?;
    let placed = |&output: &crate::fusion::TensorId| {
        let mut meta = layouts[output].clone();
        if !is_dense(&meta.sizes, &meta.strides) {
            meta.strides = row_major_strides(&meta.sizes);
        }
        meta
    };
    Ok(fusion.outputs.iter().map(placed).collect())
}

/// Type and layout of each result as a caller gets it: [`output_metas`], but one that an
/// input becomes lies as that input.
pub fn result_metas(bound: &BoundFusion<'_>) -> Result<Vec<TensorMeta>> {
    let fusion = bound.fusion;
    let mut metas = output_metas(bound)?;
    for (output, meta) in fusion.outputs.iter().zip(&mut metas) {
        let update = fusion.updates.iter().find(|update| update.tensor == *output);
        if let Some(ArgMeta::Tensor(target)) = update.and_then(|update| bound.args.get(update.input as usize)) {
            *meta = target.clone();
        }
    }
    Ok(metas)
}

/// The fusion that a kernel is made of. Decomposing comes first: what it makes
/// has axes of its own to decide. `outputs` is what [`output_metas`] says.
pub fn prepare<'a>(bound: &BoundFusion<'a>, outputs: &[TensorMeta]) -> Result<PreparedFusion<'a>> {
    let &BoundFusion { fusion, bindings, args, alignments } = bound;
    let mut prepared = Cow::Borrowed(fusion);
    let facts = if fusion::decomposes(fusion) {
        prepared = Cow::Owned(fusion::decompose(fusion)?.fusion);
        concretize::facts(&prepared, &fusion::bind(&prepared, args)?)
    } else {
        concretize::facts(fusion, bindings)
    };
    if !facts.change_nothing(&prepared) {
        prepared = Cow::Owned(concretize::concretize(&prepared, &facts)?.fusion);
    }
    let orders: Vec<Option<Vec<u32>>> = outputs.iter().map(memory_order).collect();
    if orders.iter().any(Option::is_some) {
        prepared = Cow::Owned(fusion::permute_outputs(&prepared, &orders)?);
    }
    let bindings = match &prepared {
        Cow::Borrowed(_) => Cow::Borrowed(bindings),
        Cow::Owned(changed) => Cow::Owned(fusion::bind(changed, args)?),
    };
    Ok(PreparedFusion { fusion: prepared, bindings, args, alignments })
}

/// The axes of a dense layout, outermost first; none for a row-major one.
fn memory_order(meta: &TensorMeta) -> Option<Vec<u32>> {
    let rank = meta.rank();
    // Axes of size 1 stay in front of the axis that follows them in the logical order.
    let mut order: Vec<usize> = (0..rank).collect();
    order.sort_by_key(|&axis| {
        let next = (axis..rank).find(|&axis| meta.sizes[axis] != 1);
        std::cmp::Reverse(next.map_or(0, |axis| meta.strides[axis]))
    });
    let in_place = order.iter().copied().eq(0..rank) || meta.sizes.contains(&0);
    let dense = dense_strides_in(&meta.sizes, &order);
    let same = (0..rank).all(|axis| meta.sizes[axis] == 1 || meta.strides[axis] == dense[axis]);
    (!in_place && same).then(|| order.into_iter().map(|axis| axis as u32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::DType;

    fn check_order(sizes: &[i64], strides: &[i64], expected: Option<&[u32]>) {
        let meta = TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() };
        assert_eq!(memory_order(&meta).as_deref(), expected, "{sizes:?} {strides:?}");
    }

    #[test]
    fn memory_orders_of_dense_layouts() {
        check_order(&[2, 3], &[3, 1], None);
        check_order(&[2, 3], &[1, 2], Some(&[1, 0]));
        check_order(&[4, 2, 3], &[1, 12, 4], Some(&[1, 2, 0]));
        check_order(&[1, 2, 3], &[77, 3, 1], None);
        check_order(&[0, 3], &[1, 5], None);
        check_order(&[], &[], None);
        // Holes: no order makes it dense.
        check_order(&[2, 3], &[1, 4], None);
    }
}
