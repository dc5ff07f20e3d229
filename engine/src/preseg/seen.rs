//! What passes see of sizes.
//!
//! Most rules ask whether a size is 0 or 1, and whether two are equal. Rules about slices, pads,
//! joined and repeated tensors calculate with sizes. In: a fusion and its sizes. Out:
//! [`SeenSizes`], numbers that stand for sizes: the sizes themselves only where such operations
//! are. Passes get nothing else, so calls with equal numbers get the same fusion.

use crate::fusion::ops::Form;
use crate::fusion::{Bindings, Fusion, OpKind, TensorId};
use std::collections::BTreeMap;

/// What stands for the first size that is neither 0 nor 1.
const FIRST: i64 = 1 << 32;

/// The sizes of a fusion as passes see them.
#[derive(Clone, Debug)]
pub struct SeenSizes {
    is_exact: bool,
    key: Vec<i64>,
    /// What stands for a size.
    stand_ins: BTreeMap<i64, i64>,
}

impl SeenSizes {
    /// What is seen of a definition's sizes.
    pub fn new(fusion: &Fusion, bindings: &Bindings) -> Self {
        let is_exact = fusion.ops.values().any(|op| match &op.kind {
            OpKind::Call(call) => {
                matches!(call.movement().form, Some(Form::Slice | Form::Pad | Form::Cat | Form::Repeat))
            }
            _ => false,
        });
        let mut seen = Self { is_exact, key: Vec::new(), stand_ins: BTreeMap::new() };
        for axis in fusion.tensors.values().flat_map(|tensor| &tensor.axes) {
            let size = bindings.scalar(axis.extent).as_i64();
            let next = FIRST + seen.stand_ins.len() as i64;
            let number = if is_exact || size < 2 { size } else { *seen.stand_ins.entry(size).or_insert(next) };
            seen.key.push(number);
        }
        seen
    }

    /// What is seen of all axes of all tensors: what passes make of the definition follows
    /// from it.
    pub fn key(&self) -> &Vec<i64> {
        &self.key
    }

    /// Whether numbers are sizes.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The sizes of a tensor of the definition, or of what passes made of it.
    pub(super) fn of(&self, fusion: &Fusion, bindings: &Bindings, tensor: TensorId) -> Vec<i64> {
        let stand_in =
            |size: i64| if self.is_exact { size } else { self.stand_ins.get(&size).copied().unwrap_or(size) };
        bindings.sizes(fusion, tensor).into_iter().map(stand_in).collect()
    }
}
