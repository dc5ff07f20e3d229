//! From a fusion without composite primitives to the fusion that a kernel is made of: axes
//! are decided for the sizes at hand, and outputs are permuted into the order in which they
//! lie in memory, so that every output of the kernel is dense and row-major.
//!
//! What of the sizes decides is a value, [`FormKey`]: equal keys give one [`KernelForm`].

use super::{BoundFusion, online};
use crate::array::{dense_strides_in, is_dense, row_major_strides};
use crate::diag::Result;
use crate::fusion::{self, Bindings, Fusion, concretize};
use crate::schedule::heuristic::Unscheduled;
use crate::schedule::{Author, working_copy};
use crate::template::Template;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{Hash128, order_by_key};

/// What sizes and layouts decide about the fusion that a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormKey {
    facts: concretize::Facts,
    /// For each output the order of its axes in memory; none for a row-major one.
    orders: Vec<Option<Vec<u32>>>,
}

/// A fusion as kernels are made of it: axes are decided, outputs lie row-major, and maxima are reduced with the sums of
/// exponentials below them where no row is needed between.
#[derive(Debug)]
pub struct KernelForm {
    /// What makes its kernels.
    pub maker: Maker,
    /// The hash of the fusion, names included.
    pub content: Hash128,
    /// Whether it is the fusion that it was made of, so that sizes of that are its own.
    pub is_same: bool,
}

/// Where the kernels of a fusion come from.
#[derive(Debug)]
pub enum Maker {
    /// Schedules of it, as it is before any.
    Scheduled(Box<Unscheduled>),
    /// They are written whole.
    Written(Box<Template>),
}

impl Maker {
    /// For a fusion whose axes are decided; refused where schedules do not know an operation or a type.
    pub fn new(fusion: &Fusion, by: Author) -> Result<Self> {
        match Template::of(fusion) {
            Some(template) if by == Author::Heuristic => Ok(Self::Written(Box::new(template))),
            _ => Ok(Self::Scheduled(Box::new(Unscheduled::new(working_copy(fusion, by)?)?))),
        }
    }

    /// Whether something varies along what is reduced once that is done.
    fn holds_rows(&self) -> bool {
        matches!(self, Self::Scheduled(unscheduled) if unscheduled.holds_rows())
    }

    /// The fusion.
    pub fn fusion(&self) -> &Fusion {
        match self {
            Self::Scheduled(unscheduled) => &unscheduled.scheduled.fusion,
            Self::Written(template) => template.fusion(),
        }
    }
}

impl FormKey {
    /// For a fusion of which no axis is left to be decided.
    pub fn decided(outputs: &[TensorMeta]) -> Self {
        Self { facts: concretize::Facts::default(), orders: outputs.iter().map(memory_order).collect() }
    }

    /// For a fusion without composite primitives, and outputs that lie as
    /// [`output_metas`] says.
    pub fn new(fusion: &Fusion, bindings: &Bindings, outputs: &[TensorMeta]) -> Self {
        Self { facts: concretize::facts(fusion, bindings), orders: outputs.iter().map(memory_order).collect() }
    }
}

impl KernelForm {
    /// The form of a fusion without composite primitives; refused where schedules do not
    /// know an operation or a type.
    pub fn new(fusion: &Fusion, key: &FormKey, by: Author) -> Result<Self> {
        let mut made: Option<Fusion> = None;
        if !key.facts.change_nothing(fusion) {
            made = Some(concretize::concretize(fusion, &key.facts)?.fusion);
        }
        if key.orders.iter().any(Option::is_some) {
            made = Some(fusion::permute_outputs(made.as_ref().unwrap_or(fusion), &key.orders)?);
        }
        let form = made.as_ref().unwrap_or(fusion);
        // A schedule that somebody wrote is one of the fusion as it was written. What holds rows all the same reads them
        // once anyway.
        let online = if by == Author::Heuristic { online::rewrite(form)? } else { None };
        if let Some(online) = online
            && let maker = Maker::new(&online, by)?
            && !maker.holds_rows()
        {
            return Ok(Self { maker, content: fusion::hash::content(&online), is_same: false });
        }
        let content = fusion::hash::content(form);
        Ok(Self { maker: Maker::new(form, by)?, content, is_same: made.is_none() })
    }

    /// The fusion.
    pub fn fusion(&self) -> &Fusion {
        self.maker.fusion()
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

/// The axes of a dense layout, outermost first; none for a row-major one.
fn memory_order(meta: &TensorMeta) -> Option<Vec<u32>> {
    let rank = meta.rank();
    // Axes of size 1 stay in front of the axis that follows them in the logical order.
    let order = order_by_key(rank, |axis| {
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
