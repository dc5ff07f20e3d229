//! What passes see of sizes.
//!
//! Most rules ask whether a size is 0 or 1, and whether two are equal. Rules about slices, pads,
//! joined and repeated tensors, about reshapes between what is computed, about scans of what is turned round,
//! about equal numbers that are added and about reductions over a few positions, calculate with sizes. In: a fusion and its arguments. Out:
//! [`SeenSizes`], numbers that stand for sizes: the sizes themselves only where such operations
//! are, and whether arguments are row-major. Of the first elements of lines it is seen besides whether an axis is too long
//! for positions of 32 bits, of products that may be widened about how long axes are, and which axis of an argument is the
//! innermost in memory. Passes get nothing else, so calls with equal numbers get the same fusion.

use super::pitches::lengths_of;
use super::whole::call;
use super::{mirrors, places, regroup, tallies, terms};
use crate::compile::BoundFusion;
use crate::fusion::ops::Form;
use crate::fusion::{Axis, Bindings, Fusion, OpKind, TensorId};
use crate::options::CompileCx;
use crate::products::Length;
use crate::tensor::{ArgMeta, TensorMeta};
use std::collections::BTreeMap;

/// What stands for the first size that is neither 0 nor 1.
const FIRST: i64 = 1 << 32;

/// The sizes of a fusion as passes see them.
#[derive(Clone, Debug)]
pub struct SeenSizes {
    is_exact: bool,
    /// Some axis has more elements than an `i32` tells apart, and that matters.
    has_long_line: bool,
    key: Vec<i64>,
    /// What stands for a size.
    stand_ins: BTreeMap<i64, i64>,
    /// Of axes of operands of products, by what stands for their size; empty where no product may be widened.
    lengths: BTreeMap<i64, Length>,
    /// The axis of each argument along which elements lie side by side, as far as there is one.
    inner_axes: Vec<Option<usize>>,
    /// Whether each argument is row-major; empty where numbers are no sizes.
    row_major: Vec<bool>,
}

impl SeenSizes {
    /// What is seen of a definition's sizes.
    pub fn new(cx: &CompileCx<'_>, bound: &BoundFusion<'_>) -> Self {
        let &BoundFusion { fusion, bindings, .. } = bound;
        let is_exact = fusion.ops.values().any(|op| match &op.kind {
            OpKind::Call(call) => {
                matches!(call.movement().form, Some(Form::Slice | Form::Pad | Form::Cat | Form::Repeat))
            }
            _ => false,
        }) || regroup::may_find(fusion)
            || places::may_find(fusion)
            || mirrors::may_find(fusion)
            || tallies::may_find(fusion)
            || terms::may_find(fusion, bindings);
        let finds_tops = fusion.ops.values().any(|op| call(op, Form::Top).is_some());
        let axes = || fusion.tensors.values().flat_map(|tensor| &tensor.axes);
        let size_of = |axis: &Axis| bindings.scalar(axis.extent).as_i64();
        let has_long_line = finds_tops && axes().any(|axis| i32::try_from(size_of(axis)).is_err());
        let row_major: Vec<bool> = if is_exact { bound.args.iter().map(is_row_major).collect() } else { Vec::new() };
        let first = finds_tops.then_some(has_long_line);
        let key = first.into_iter().chain(row_major.iter().copied()).map(i64::from).collect();
        let (stand_ins, lengths, inner_axes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut seen = Self { is_exact, has_long_line, key, stand_ins, lengths, inner_axes, row_major };
        for axis in axes() {
            let size = size_of(axis);
            let next = FIRST + seen.stand_ins.len() as i64;
            let number = if is_exact || size < 2 { size } else { *seen.stand_ins.entry(size).or_insert(next) };
            seen.key.push(number);
        }
        if cx.device.multiplies_matrices && cx.options.libraries {
            seen.see_products(bound, cx.device.product_rates[0]);
        }
        seen
    }

    /// Sees what decides whether products are widened, if one could be.
    fn see_products(&mut self, bound: &BoundFusion<'_>, slowest: u64) {
        let &BoundFusion { fusion, bindings, args, .. } = bound;
        for (size, length) in lengths_of(fusion, |tensor| bindings.sizes(fusion, tensor), slowest) {
            let number = self.number(size);
            self.lengths.insert(number, length);
            self.key.extend([length.about, length.align]);
        }
        if !self.lengths.is_empty() {
            self.inner_axes = args.iter().map(inner_axis).collect();
            self.key.extend(self.inner_axes.iter().map(|axis| axis.map_or(-1, |axis| axis as i64)));
        }
    }

    /// What stands for a size.
    fn number(&self, size: i64) -> i64 {
        if self.is_exact { size } else { self.stand_ins.get(&size).copied().unwrap_or(size) }
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

    /// Whether the first elements of lines are looked for, and some axis has more elements than an `i32` tells apart.
    pub(super) fn has_long_line(&self) -> bool {
        self.has_long_line
    }

    /// The sizes of a tensor of the definition, or of what passes made of it.
    pub(super) fn of(&self, fusion: &Fusion, bindings: &Bindings, tensor: TensorId) -> Vec<i64> {
        bindings.sizes(fusion, tensor).into_iter().map(|size| self.number(size)).collect()
    }

    /// Whether arguments are row-major, where numbers are sizes.
    pub(super) fn row_major(&self) -> &[bool] {
        &self.row_major
    }

    /// About how long axes are, by what stands for their size.
    pub(super) fn lengths(&self) -> &BTreeMap<i64, Length> {
        &self.lengths
    }

    /// The axis of each argument along which elements lie side by side, if some products may be widened.
    pub(super) fn inner_axes(&self) -> &[Option<usize>] {
        &self.inner_axes
    }
}

fn is_row_major(arg: &ArgMeta) -> bool {
    matches!(arg, ArgMeta::Tensor(meta) if meta.has_places_of(&TensorMeta::contiguous(meta.dtype, &meta.sizes)))
}

/// The last axis along which elements of an argument lie side by side, those of one element left out.
fn inner_axis(arg: &ArgMeta) -> Option<usize> {
    let ArgMeta::Tensor(meta) = arg else { return None };
    (0..meta.sizes.len()).rev().find(|axis| meta.sizes[*axis] > 1 && meta.strides[*axis] == 1)
}
