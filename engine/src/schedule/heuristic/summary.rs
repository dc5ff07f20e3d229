//! What heuristics ask of a fusion and its sizes.

use super::Sizes;
use super::structure::{Structure, Unscheduled, whole_of};
use crate::axes::AxisRef;
use crate::schedule::{ArgClass, AxisId, Io, MemoryAxis, ScheduledFusion, TensorLayout, TvId};

/// A tensor in global memory.
#[derive(Clone, Debug)]
pub(super) struct GlobalTensor {
    pub(super) tv: TvId,
    /// Concrete root axes in memory order, slowest first; of a part of an axis ([`AxisGraph::widest`](crate::axes::AxisGraph::widest)) the whole,
    /// in place of an axis that is looked up those of the index.
    pub(super) order: Vec<AxisId>,
    /// For each, whether it is dense with the next (the last: stride 1).
    pub(super) dense: Vec<bool>,
    /// Facts: largest powers of two that divide the strides.
    pub(super) stride_facts: Vec<i64>,
    /// Alignment of element 0 in elements.
    pub(super) align: i64,
    /// Alignment in elements of what they are counted from: rows can be shifted to multiples of that wherever they start.
    pub(super) base_align: i64,
    /// Bytes of an element.
    pub(super) bytes: i64,
    /// Number of elements.
    pub(super) elements: i64,
    pub(super) is_output: bool,
    /// Whether it has a part of some axis only, or is looked up: where its elements are among others' depends on sizes, or on
    /// data.
    pub(super) is_part: bool,
    /// Whether data say where its elements are.
    pub(super) is_looked_up: bool,
}

/// Facts about an unscheduled fusion and its sizes.
#[derive(Clone, Debug)]
pub(super) struct Summary<'a> {
    pub(super) structure: &'a Structure,
    /// Inputs, then outputs.
    pub(super) globals: Vec<GlobalTensor>,
}

impl<'a> Summary<'a> {
    /// Summarises an unscheduled fusion.
    pub(super) fn new(unscheduled: &'a Unscheduled, class: &ArgClass, sizes: &Sizes) -> Self {
        let Unscheduled { scheduled, structure } = unscheduled;
        let mut globals = Vec::new();
        for (tv, data) in scheduled.tensors.iter() {
            let global = |layout: &TensorLayout| global_tensor(scheduled, sizes, tv, layout);
            match data.io {
                Some(Io::Input(input)) => globals.extend(class.layouts[input as usize].as_ref().map(global)),
                Some(Io::Output(output)) => {
                    if let Some(part) = class.part(output) {
                        globals.push(global(part));
                        continue;
                    }
                    let extent = |axis: &AxisRef| axis.indexed().map_or(1, |axis| sizes.extent(scheduled, axis));
                    let sizes: Vec<i64> = data.axes.iter().map(extent).collect();
                    globals.push(global(&TensorLayout::row_major(&sizes)));
                }
                None => {}
            }
        }
        Self { structure, globals }
    }

    /// Whether far more is read than written.
    pub(super) fn mostly_reads(&self) -> bool {
        let bytes = |output: bool| -> i64 {
            let of = self.globals.iter().filter(|tensor| tensor.is_output == output);
            of.map(|tensor| tensor.elements.saturating_mul(tensor.bytes)).fold(0, i64::saturating_add)
        };
        bytes(true).saturating_mul(4) < bytes(false)
    }

    /// Whether several inputs lie with gaps, as parts of one tensor do: what one reads of memory another may read as well.
    pub(super) fn may_read_twice(&self) -> bool {
        let is_spaced = |tensor: &&GlobalTensor| {
            let has_gaps = tensor.dense.iter().any(|dense| !dense);
            !tensor.is_output && !tensor.is_looked_up && has_gaps
        };
        self.globals.iter().filter(is_spaced).count() > 1
    }

    /// The global tensor with the most elements among those that satisfy a
    /// condition; of equals the later one, so outputs come before inputs.
    pub(super) fn largest(&self, condition: impl Fn(&GlobalTensor) -> bool) -> Option<&GlobalTensor> {
        self.globals
            .iter()
            .filter(|tensor| condition(tensor))
            .max_by_key(|tensor| (tensor.order.len(), tensor.elements))
    }

    /// Whether every global tensor either walks `a` then `b` as one dense run,
    /// or has neither: then the two are one axis for all purposes.
    pub(super) fn collapsible(&self, a: AxisId, b: AxisId) -> bool {
        self.globals.iter().all(|tensor| {
            let at = |root| tensor.order.iter().position(|axis| *axis == root);
            match (at(a), at(b)) {
                (None, None) => true,
                (Some(i), Some(j)) => i + 1 == j && tensor.dense[i],
                _ => false,
            }
        })
    }
}

impl GlobalTensor {
    /// Whether neighbours along a root are neighbours in memory.
    pub(super) fn is_innermost(&self, root: AxisId) -> bool {
        self.order.last() == Some(&root) && self.dense.last() == Some(&true)
    }

    /// Whether rows along its innermost `axes` axes, which are one dense run,
    /// start at multiples of `vector` elements.
    pub(super) fn rows_aligned(&self, vector: i64, axes: usize) -> bool {
        let outer = self.order.len().saturating_sub(axes);
        self.align % vector == 0 && self.stride_facts[..outer].iter().all(|fact| fact % vector == 0)
    }
}

fn global_tensor(scheduled: &ScheduledFusion, sizes: &Sizes, tv: TvId, layout: &TensorLayout) -> GlobalTensor {
    let data = &scheduled.tensors[tv];
    let moving = moving_axes(scheduled, tv, layout);
    let whole = |axis: AxisId| whole_of(scheduled, axis).unwrap_or(axis);
    let is_part = |position: usize| moving.get(position).is_some_and(|own| whole(own.axis) != own.axis);
    let is_looked_up = data.axes.iter().any(|axis| matches!(axis, AxisRef::Indirect(_)));
    let base_align = i64::from(layout.align) / data.dtype.bytes() as i64;
    GlobalTensor {
        tv,
        order: moving.iter().map(|own| whole(own.axis)).collect(),
        // A part of an axis is no run with what lies around it.
        dense: moving.iter().enumerate().map(|(at, own)| own.dense && !is_part(at + 1)).collect(),
        stride_facts: moving.iter().map(|own| own.stride_fact).collect(),
        align: if layout.start == 0 { base_align } else { base_align.min(1 << layout.start.trailing_zeros()) },
        base_align,
        bytes: data.dtype.bytes() as i64,
        elements: moving.iter().map(|own| sizes.extent(scheduled, own.axis)).fold(1i64, i64::saturating_mul),
        is_output: matches!(data.io, Some(Io::Output(_))),
        is_looked_up,
        is_part: is_looked_up || (0..moving.len()).any(is_part),
    }
}

/// An axis along which a kernel reads or writes a tensor in memory.
struct MovingAxis {
    axis: AxisId,
    dense: bool,
    stride_fact: i64,
}

/// The axes along which a tensor in memory is read or written, slowest first. An axis that is looked up moves with
/// those of the index, and what varies with the index has no neighbours.
fn moving_axes(scheduled: &ScheduledFusion, tv: TvId, layout: &TensorLayout) -> Vec<MovingAxis> {
    let data = &scheduled.tensors[tv];
    let is_indirect = data.axes.iter().any(|axis| matches!(axis, AxisRef::Indirect(_)));
    let lookup =
        if is_indirect { scheduled.lookup_in(tv).and_then(|lookup| scheduled.lookup_of(lookup)) } else { None };
    let by_index: Vec<AxisId> =
        lookup.map(|(_, index)| scheduled.tensors[index].indexed().collect()).unwrap_or_default();
    let mut moving: Vec<MovingAxis> = Vec::new();
    for &MemoryAxis { axis, dense, stride_fact } in &layout.order {
        match data.axes[axis] {
            AxisRef::Axis(axis) => {
                let dense = dense && !by_index.contains(&axis);
                moving.push(MovingAxis { axis, dense, stride_fact });
            }
            AxisRef::Indirect(_) => {
                if let Some(before) = moving.last_mut() {
                    before.dense = false;
                }
                let others = by_index.iter().copied().filter(|axis| !data.has_root(*axis));
                let before = moving.len();
                moving.extend(others.map(|axis| MovingAxis { axis, dense: true, stride_fact }));
                if let Some(last) = moving[before..].last_mut() {
                    last.dense = false;
                }
            }
            AxisRef::Broadcast(_) => {}
        }
    }
    moving
}
