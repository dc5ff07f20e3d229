//! What is read is there: in the thread that reads it, and in the element that it looks for.

use super::Check;
use crate::axes::{AxisId, Derivation, Source, Xform};
use crate::diag::{Result, code};
use crate::schedule::ir::{Compute, Loop, Memory, RowShift, TvId, TvOp, TvOperand};
use std::collections::BTreeSet;

impl Check<'_> {
    /// What a tensor reads is where it reads it.
    pub(super) fn reads(&self, tv: TvId) -> Result<()> {
        for from in self.scheduled.producers(tv) {
            let data = &self.scheduled.tensors[from];
            if data.memory == Memory::Global {
                self.reads_input(tv, from)?;
            } else if data.tile.is_some() {
                self.reads_tile(tv, from)?;
            } else {
                self.reads_own(tv, from)?;
            }
        }
        self.ahead(tv)
    }

    /// Memory of the device is read by copies: in memory of a thread, or in a ring that threads may share.
    fn reads_input(&self, tv: TvId, from: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let copies = matches!(&data.op, Some(TvOp { compute: Compute::Copy, .. }));
        let looks_up = self.scheduled.lookup_of(tv).is_some_and(|(table, index)| table == from && index != from);
        if (copies || looks_up) && data.memory != Memory::Global && (data.tile.is_none() || data.is_ring()) {
            return Ok(());
        }
        let message = format!(
            "%{} reads %{} in global memory without a copy in registers or in a ring",
            data.name,
            self.name(from)
        );
        let note = format!("`cache_after %{}` makes one", self.name(from));
        Err(self.wrong(code::SCHEDULE_VALUE, message, &[]).note(note))
    }

    /// What a thread holds for itself: the reader runs over the same places in the launch, and has
    /// a loop over each axis along which the value is an array, or over both of its parts.
    fn reads_own(&self, tv: TvId, from: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[from];
        let reduced = self.scheduled.reduced_leaves(from);
        let own = self.loops(tv);
        for at in data.loops.iter().skip(data.inline_at).filter(|at| !reduced.contains(&at.axis)) {
            let is_missing = match at.parallel.is_loop() {
                true => !own.iter().any(|own| own.axis == at.axis) && !self.is_split_among(at.axis, own),
                false => self.scheduled.depends(from, at.axis) && !own.contains(at),
            };
            if is_missing {
                let what = if at.parallel.is_loop() { "is held along" } else { "lies in threads or blocks along" };
                let message = format!(
                    "%{} {what} {}, which is no such loop of %{}, which reads it",
                    data.name,
                    self.axis(at.axis),
                    self.name(tv)
                );
                return Err(self.wrong(code::SCHEDULE_VALUE, message, &[from, tv]));
            }
        }
        Ok(())
    }

    /// Whether an axis is split without a rest into two of some loops.
    fn is_split_among(&self, axis: AxisId, loops: &[Loop]) -> bool {
        let axes = &self.scheduled.axes;
        let is_loop = |part: AxisId| loops.iter().any(|own| own.axis == part && own.parallel.is_loop());
        axes.uses(axis).any(|xform| match *xform {
            Xform::Split { outer, inner, .. } if is_loop(outer) && is_loop(inner) => {
                let extents = [axis, outer, inner].map(|axis| axes.constant_extent(axis));
                matches!(extents, [Some(all), Some(outer), Some(inner)] if all == outer * inner)
            }
            _ => false,
        })
    }

    /// Arrays have constant lengths.
    pub(super) fn held(&self, tv: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        if data.memory == Memory::Global || data.tile.is_some() {
            return Ok(());
        }
        let reduced = self.scheduled.reduced_leaves(tv);
        let varies = |own: &&Loop| {
            own.parallel.is_loop()
                && !reduced.contains(&own.axis)
                && self.scheduled.axes.constant_extent(own.axis).is_none()
        };
        match data.loops.iter().skip(data.inline_at).find(varies) {
            None => Ok(()),
            Some(own) => Err(self.unsupported(
                format!("axis {} has no constant extent, but %{} is held along it", self.axis(own.axis), data.name),
                "order the loops so that it is shared by all users of the value, or split it by a constant",
                &[tv],
            )),
        }
    }

    /// Loads that are issued some iterations ahead still can be.
    fn ahead(&self, tv: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        if data.stages == 0 {
            return Ok(());
        }
        let Some(refusal) = self.scheduled.stages_refused(tv, data.stages) else { return Ok(()) };
        let message = format!("%{} is to be loaded ahead in {} stages: {}", data.name, data.stages, refusal.what);
        let error = self.unsupported(message, refusal.way_out, &[tv]);
        Err(error.note("say circular_buffer behind the verbs that place the tensor"))
    }

    /// Where rows are shifted, their start is known in the loops of all that run along them.
    pub(super) fn shifts(&self, tv: TvId) -> Result<()> {
        let axes = &self.scheduled.axes;
        let data = &self.scheduled.tensors[tv];
        let derivation = Derivation::new(axes, data.loop_axes());
        // An accumulation tests the indices of its operand.
        let read = self.scheduled.producers(tv).into_iter().flat_map(|from| self.scheduled.tensors[from].indexed());
        let roots: BTreeSet<AxisId> = data.indexed().chain(read).collect();
        let mut shifted: Vec<(AxisId, RowShift)> = Vec::new();
        for axis in derivation.needed(axes, roots) {
            let Source::Backward(xform) = derivation.source(axis) else { continue };
            if let Xform::Align { vector, shift, .. } | Xform::Window { shift: Some((vector, shift)), .. } = axes[xform]
            {
                let shift = self.scheduled.shifts[shift];
                self.shift(tv, &derivation, axis, (vector, shift))?;
                shifted.push((axis, shift));
            }
        }
        let meets = |(axis, _): &(AxisId, RowShift), (other, by): &(AxisId, RowShift)| {
            axis != other && self.scheduled.dimensions_of(by.reference, *axis).is_some()
        };
        let circle = shifted.iter().find(|one| shifted.iter().any(|other| meets(one, other) && meets(other, one)));
        let Some((axis, by)) = circle else { return Ok(()) };
        let message = format!(
            "rows of %{} start where another shifted axis says, whose shift depends on {} in the loops of %{}",
            self.name(by.reference),
            self.axis(*axis),
            data.name
        );
        Err(self.wrong(code::SCHEDULE_LOOPS, message, &[tv]))
    }

    /// The loops of a tensor say where the rows start by which an axis is shifted.
    fn shift(&self, tv: TvId, derivation: &Derivation, root: AxisId, (vector, by): (i64, RowShift)) -> Result<()> {
        let RowShift { reference, rows } = by;
        let data = &self.scheduled.tensors[tv];
        let own = self.scheduled.dimensions_of(reference, root).unwrap_or_default();
        let others = self.scheduled.tensors[reference].indexed().filter(|axis| !own.contains(axis));
        let needed: Vec<AxisId> = match rows {
            Some(rows) => self.modulo(tv, rows, vector),
            None => others.collect(),
        };
        let refused = |axis: AxisId, what: &str| {
            let (of, axis, name) = (self.name(reference), self.axis(axis), &data.name);
            let message = format!("rows of %{of} start where the index of {axis} says, which {what} %{name}");
            Err(self.wrong(code::SCHEDULE_LOOPS, message, &[tv]))
        };
        if let Some(axis) = needed.iter().find(|axis| !derivation.is_known(**axis)) {
            return refused(*axis, "has none in the loops of");
        }
        // What is added to an element would be of several rows.
        let reduced = self.scheduled.reduced_leaves(tv);
        let adds =
            |axis: AxisId| derivation.loops_of(&self.scheduled.axes, axis).iter().any(|own| reduced.contains(own));
        let is_own = self.scheduled.dimensions_of(tv, root).is_some();
        match needed.into_iter().find(|axis| is_own && adds(*axis)) {
            Some(axis) => refused(axis, "changes while values are added to one element of"),
            None => Ok(()),
        }
    }

    /// The axes whose indices say that of an axis modulo a number, in the loops of a tensor.
    fn modulo(&self, tv: TvId, axis: AxisId, modulus: i64) -> Vec<AxisId> {
        let axes = &self.scheduled.axes;
        let data = &self.scheduled.tensors[tv];
        if data.has_loop(axis) {
            return vec![axis];
        }
        let is_open = |axis: AxisId| axes.covers(axis, &|axis| data.has_loop(axis));
        let splits = axes.uses(axis).filter_map(|xform| match *xform {
            Xform::Split { outer, inner, .. } => Some((outer, inner)),
            _ => None,
        });
        let mut parts =
            splits.filter(|(outer, inner)| axes.uses(axis).count() == 1 || is_open(*outer) && is_open(*inner));
        match parts.next() {
            Some((_, inner)) if axes.constant_extent(inner).is_some_and(|extent| extent % modulus == 0) => {
                self.modulo(tv, inner, modulus)
            }
            Some((outer, inner)) => {
                let mut needed = self.modulo(tv, outer, modulus);
                needed.push(inner);
                needed
            }
            None => vec![axis],
        }
    }

    /// The tensor operands of a copy of one tensor.
    pub(super) fn copied(&self, tv: TvId) -> Option<TvId> {
        match &self.scheduled.tensors[tv].op {
            Some(TvOp { compute: Compute::Copy, inputs }) => match inputs.as_slice() {
                [TvOperand::Tv(from)] => Some(*from),
                _ => None,
            },
            _ => None,
        }
    }
}
