//! What heuristics ask of a fusion and its sizes.

use super::Sizes;
use super::structure::{Structure, Unscheduled, whole_of};
use crate::axes::AxisRef;
use crate::schedule::{ArgClass, AxisId, Io, MemoryAxis, ScheduledFusion, TensorLayout, TvId};

/// A tensor in global memory.
#[derive(Clone, Debug)]
pub(super) struct GlobalTensor {
    pub(super) tv: TvId,
    /// Concrete root axes in memory order, slowest first; of a part of an axis ([`AxisGraph::widest`](crate::axes::AxisGraph::widest)) the whole.
    pub(super) order: Vec<AxisId>,
    /// For each, whether it is dense with the next (the last: stride 1).
    pub(super) dense: Vec<bool>,
    /// Facts: largest powers of two that divide the strides.
    pub(super) stride_facts: Vec<i64>,
    /// Alignment of element 0 in elements.
    pub(super) align: i64,
    /// Bytes of an element.
    pub(super) bytes: i64,
    /// Number of elements.
    pub(super) elements: i64,
    pub(super) is_output: bool,
    /// Whether it has a part of some axis only: where its elements are among others' depends on sizes.
    pub(super) is_part: bool,
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
                Some(Io::Output(_)) => {
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
    let indexed = |memory: &MemoryAxis| data.axes[memory.axis].indexed();
    let moving: Vec<(AxisId, &MemoryAxis)> =
        layout.order.iter().filter_map(|memory| Some((indexed(memory)?, memory))).collect();
    let whole = |axis: AxisId| whole_of(scheduled, axis).unwrap_or(axis);
    let is_part = |position: usize| moving.get(position).is_some_and(|(axis, _)| whole(*axis) != *axis);
    GlobalTensor {
        tv,
        order: moving.iter().map(|(axis, _)| whole(*axis)).collect(),
        // A part of an axis is no run with what lies around it.
        dense: moving.iter().enumerate().map(|(at, (_, memory))| memory.dense && !is_part(at + 1)).collect(),
        stride_facts: moving.iter().map(|(_, memory)| memory.stride_fact).collect(),
        align: i64::from(layout.align) / data.dtype.bytes() as i64,
        bytes: data.dtype.bytes() as i64,
        elements: moving.iter().map(|(axis, _)| sizes.extent(scheduled, *axis)).fold(1i64, i64::saturating_mul),
        is_output: matches!(data.io, Some(Io::Output(_))),
        is_part: (0..moving.len()).any(is_part),
    }
}
