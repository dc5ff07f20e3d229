//! The class of a call's arguments: everything about layouts that generated
//! code depends on, and nothing else. Two calls of one class can share a kernel
//! when their schedules agree. Sizes themselves are not part of it.

use super::ir::ScheduledFusion;
use crate::axes::{AxisId, Extent};
use crate::fusion::{Fusion, Operand, ScalarDef};
use crate::num::DType;
use crate::options::Options;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{self_check, sort_by_key};
use std::collections::BTreeSet;

/// Largest power of two that facts about sizes and strides record: the number
/// of elements of the widest access.
const MAX_FACT: i64 = 16;
/// Largest pointer alignment that facts record, in bytes: one vector access.
const MAX_ALIGN: u32 = 16;

/// The class of all arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgClass {
    /// One for each input; `None` for scalars.
    pub layouts: Vec<Option<TensorLayout>>,
    /// Of outputs that are written into a part of something else; `None` for one that is dense and row-major, as
    /// those beyond the last are.
    pub outputs: Vec<Option<TensorLayout>>,
    /// Whether index arithmetic needs 64 bits.
    pub index64: bool,
    /// Whether some tensor of the fusion has no element.
    pub has_empty: bool,
}

/// An output that a kernel writes into a part of something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedOutput {
    /// How it lies.
    pub meta: TensorMeta,
    /// Elements between the last multiple of 16 bytes and its element 0.
    pub start: u32,
}

/// The class of one tensor's layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorLayout {
    /// Alignment in bytes, at most 16, of what its elements are counted from.
    pub align: u32,
    /// The number of its element 0: an output may begin anywhere in something else.
    pub start: u32,
    /// The axes that move in memory, slowest first. Axes of stride 0 are absent.
    pub order: Vec<MemoryAxis>,
    /// For each logical axis, a power of two (at most 16) that divides its size.
    pub size_facts: Vec<i64>,
}

/// An axis in memory order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryAxis {
    /// The logical axis.
    pub axis: usize,
    /// Whether its stride is the extent times the stride of the next axis in
    /// memory order; for the last one, whether its stride is 1.
    pub dense: bool,
    /// A power of two (at most 16) that divides the stride.
    pub stride_fact: i64,
}

impl ArgClass {
    /// The type of indices.
    pub fn index_type(&self) -> DType {
        if self.index64 { DType::I64 } else { DType::I32 }
    }

    /// The class of the given arguments. `alignments` holds the alignment of
    /// each tensor's element 0 in bytes, in the order of the inputs, `elements`
    /// the numbers of elements of the fusion's smallest and largest tensor.
    pub fn new(fusion: &Fusion, args: &[ArgMeta], alignments: &[u32], elements: (i64, i64), options: &Options) -> Self {
        let layouts = args
            .iter()
            .enumerate()
            .map(|(input, arg)| match arg {
                ArgMeta::Tensor(meta) => {
                    Some(TensorLayout::new(meta, alignments.get(input).copied().unwrap_or(MAX_ALIGN)))
                }
                ArgMeta::Scalar(_) => None,
            })
            .collect();
        self_check!(args.len() == fusion.inputs.len());
        let tensors = args.iter().filter_map(|arg| match arg {
            ArgMeta::Tensor(meta) => Some(meta),
            ArgMeta::Scalar(_) => None,
        });
        let greatest = tensors.map(greatest_number).max().unwrap_or(0).max(elements.1);
        let index64 = options.force_index64 || needs_64_bits(greatest);
        Self { layouts, outputs: Vec::new(), index64, has_empty: elements.0 == 0 }
    }

    /// The same where outputs are written into parts of something else.
    pub fn with_outputs(mut self, outputs: &[Option<PlacedOutput>]) -> Self {
        if outputs.iter().all(Option::is_none) {
            return self;
        }
        self.outputs = outputs.iter().map(|output| output.as_ref().map(TensorLayout::placed)).collect();
        let greatest = outputs.iter().flatten().map(|output| greatest_number(&output.meta)).max().unwrap_or(0);
        self.index64 |= needs_64_bits(greatest);
        self
    }

    /// The same without what divides sizes that share a kernel ([`ScheduleBuilder::at_least`](super::ScheduleBuilder::at_least)).
    pub fn shared_by_sizes(&self, scheduled: &ScheduledFusion) -> Self {
        let mut class = self.clone();
        let axes = &scheduled.axes;
        let shared = axes.ids().filter(|axis| axes[*axis].least > 0).flat_map(|axis| axes.roots_of(axis));
        for root in shared.collect::<BTreeSet<AxisId>>() {
            let Extent::Scalar(scalar) = axes[root].extent else { continue };
            if let ScalarDef::Size { input, axis } = scheduled.fusion.scalars[scalar].def
                && let Some(layout) = &mut class.layouts[input as usize]
            {
                layout.size_facts[axis as usize] = 1;
            }
        }
        class
    }

    /// The layout of an output that is written into a part of something else.
    pub fn part(&self, output: u32) -> Option<&TensorLayout> {
        self.outputs.get(output as usize)?.as_ref()
    }

    /// Whether some output is written into a part of something else.
    pub fn writes_parts(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// The layout of an input tensor.
    pub fn layout(&self, fusion: &Fusion, input: u32) -> Option<&TensorLayout> {
        self_check!(matches!(fusion.inputs[input as usize], Operand::Tensor(_)));
        self.layouts[input as usize].as_ref()
    }
}

/// Whether indices up to a number need 64 bits: they are formed before they are tested against an extent. Tiles of
/// short rows pass it by a factor, which heuristics keep below 4.
fn needs_64_bits(greatest: i64) -> bool {
    greatest > i64::from(i32::MAX) / 4
}

/// The greatest number that a kernel is told of a tensor: parameters have the index type too, whether or not the
/// tensor has elements.
fn greatest_number(meta: &TensorMeta) -> i64 {
    meta.sizes.iter().chain(&meta.strides).copied().fold(reach(meta), i64::max)
}

/// The number of elements from the first to the last, the last included.
fn reach(meta: &TensorMeta) -> i64 {
    if meta.sizes.contains(&0) {
        return 0;
    }
    meta.sizes
        .iter()
        .zip(&meta.strides)
        .fold(1i64, |reach, (size, stride)| reach.saturating_add((size - 1).saturating_mul(*stride)))
}

impl TensorLayout {
    /// The layout of a tensor.
    pub fn new(meta: &TensorMeta, align: u32) -> Self {
        let rank = meta.sizes.len();
        let single = |axis: &usize| meta.sizes[*axis] == 1;
        // An axis of size 0 stays whatever its stride: it makes the tensor empty.
        let mut order: Vec<usize> =
            (0..rank).filter(|axis| meta.strides[*axis] != 0 || meta.sizes[*axis] < 2).collect();
        // A size-1 axis never moves, whatever its stride: it keeps its logical
        // place if the others are in logical order, else it goes first.
        let moving: Vec<usize> = order.iter().copied().filter(|axis| !single(axis)).collect();
        let row_major = moving.windows(2).all(|pair| meta.strides[pair[0]] >= meta.strides[pair[1]]);
        if !row_major {
            sort_by_key(&mut order, |axis| (!single(axis), std::cmp::Reverse(meta.strides[*axis]), *axis));
        }
        let mut axes = Vec::with_capacity(order.len());
        let mut expected = 1;
        for axis in order.iter().rev() {
            let dense = single(axis) || meta.strides[*axis] == expected;
            let stride = if single(axis) { expected } else { meta.strides[*axis] };
            axes.push(MemoryAxis { axis: *axis, dense, stride_fact: power_of_two_fact(stride) });
            expected = stride.saturating_mul(meta.sizes[*axis]);
        }
        axes.reverse();
        let align = 1 << align.clamp(1, MAX_ALIGN).trailing_zeros();
        let size_facts = meta.sizes.iter().map(|size| power_of_two_fact(*size)).collect();
        Self { align, start: 0, order: axes, size_facts }
    }

    /// The layout of an output in something else.
    fn placed(output: &PlacedOutput) -> Self {
        Self { start: output.start, ..Self::new(&output.meta, MAX_ALIGN) }
    }

    /// A dense row-major layout over all axes, as outputs have; `sizes` where known.
    pub fn row_major(sizes: &[i64]) -> Self {
        let mut strides = vec![1; sizes.len()];
        for axis in (1..sizes.len()).rev() {
            strides[axis - 1] = strides[axis].max(1) * sizes[axis].max(1);
        }
        let meta = TensorMeta { dtype: crate::num::DType::U8, sizes: sizes.to_vec(), strides };
        Self::new(&meta, MAX_ALIGN)
    }

    /// Whether the whole tensor is one dense run.
    pub fn is_dense(&self) -> bool {
        self.order.iter().all(|axis| axis.dense)
    }
}

/// The largest power of two, at most [`MAX_FACT`], that divides a number.
fn power_of_two_fact(value: i64) -> i64 {
    if value == 0 { MAX_FACT } else { 1 << value.trailing_zeros().min(MAX_FACT.trailing_zeros()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::DType;

    #[track_caller]
    fn check_order(sizes: &[i64], strides: &[i64], expected: &[(usize, bool)]) {
        let meta = TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() };
        let layout = TensorLayout::new(&meta, 16);
        let order: Vec<_> = layout.order.iter().map(|axis| (axis.axis, axis.dense)).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn memory_order_and_density() {
        check_order(&[4, 8], &[8, 1], &[(0, true), (1, true)]);
        check_order(&[4, 8], &[16, 1], &[(0, false), (1, true)]);
        check_order(&[4, 8], &[1, 4], &[(1, true), (0, true)]);
        check_order(&[4, 8], &[0, 1], &[(1, true)]);
        check_order(&[4, 1, 8], &[8, 3, 1], &[(0, true), (1, true), (2, true)]);
        check_order(&[4, 8], &[16, 2], &[(0, true), (1, false)]);
    }
}
