//! The verbs that lay an axis out by where rows start in memory: whole rows that are moved on
//! to multiples of a vector, and windows that overlap.

use super::builder::ScheduleBuilder;
use super::ir::{Memory, RowShift, Step, TvId};
use crate::axes::{AxisId, AxisRef, ShiftId, WindowStep, Xform};
use crate::diag::{Diagnostic, Result, code};

/// Windows of an axis: see [`Xform::Window`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    /// Indices from the start of one window to that of the next.
    pub step: i64,
    /// Indices of a window.
    pub width: i64,
    /// Indices by which a window starts before its own part of the axis.
    pub left: i64,
    /// Windows start at multiples of so many elements in the memory of a tensor.
    pub aligned: Option<(i64, TvId)>,
}

impl ScheduleBuilder {
    /// Shifts an axis so that index 0 is a multiple of `vector` elements in the
    /// memory of `reference`, for every row. The axis is a dimension, or several that were merged.
    /// See [`Xform::Align`].
    pub fn align(&mut self, axis: AxisId, vector: i64, reference: TvId, rows: Option<AxisId>) -> Result<AxisId> {
        self.need_leaf(axis, "align")?;
        self.need_global(axis, reference)?;
        let others = self.scheduled.axes.xforms().filter_map(|(_, xform)| match *xform {
            Xform::Align { input, shift, .. } => Some((input, shift)),
            _ => None,
        });
        self.need_shiftable(axis, vector, reference, &others.collect::<Vec<_>>())?;
        let reference_name = self.scheduled.tensors[reference].name.clone();
        self.scheduled.steps.push(Step::Align {
            axis: self.name(axis),
            vector,
            reference: reference_name,
            rows: rows.map(|rows| self.name(rows)),
        });
        let shift = self.scheduled.shifts.push(RowShift { reference, rows });
        Ok(self.scheduled.axes.align(axis, vector, shift))
    }

    /// Lays windows over an axis, one for each index of `outer`, which numbers parts of the
    /// axis, or of another that it is a part of: sizes for which it numbers too few are refused.
    /// Where they overlap, they are for tensors in which an element may lie twice: tiles of
    /// blocks, which read what their neighbours read as well.
    pub fn window(&mut self, axis: AxisId, outer: AxisId, windows: Windows) -> Result<AxisId> {
        let Windows { step, width, left, aligned } = windows;
        self.need_short_name(axis)?;
        let refused = |what: String| Err(Diagnostic::user(code::SCHEDULE_AXES, what));
        let shifted = aligned.map_or(0, |(vector, _)| vector - 1);
        if step < 1 || left < 0 || width < step.saturating_add(left).saturating_add(shifted) {
            let name = self.name(axis);
            let shifted = if shifted > 0 { format!(" and a shift of up to {shifted}") } else { String::new() };
            return refused(format!(
                "windows of {width} indices of {name} have no room for parts of {step} with {left} before them{shifted}"
            ));
        }
        self.need_numbers(outer, axis)?;
        if let Some((vector, reference)) = aligned {
            self.need_global(axis, reference)?;
            let others = self.scheduled.axes.xforms().filter_map(|(_, xform)| match *xform {
                Xform::Window { input, shift: Some((_, shift)), .. } => Some((input, shift)),
                _ => None,
            });
            self.need_shiftable(axis, vector, reference, &others.collect::<Vec<_>>())?;
            if step % vector != 0 || left % vector != 0 {
                let name = self.name(axis);
                return refused(format!("windows of {name} by {step}, {left} before, are no multiples of {vector}"));
            }
        }
        let shift =
            aligned.map(|(vector, reference)| (vector, self.scheduled.shifts.push(RowShift { reference, rows: None })));
        let named = |(vector, reference): (i64, TvId)| (vector, self.scheduled.tensors[reference].name.clone());
        let step_record = Step::Window {
            axis: self.name(axis),
            outer: self.name(outer),
            step,
            width,
            left,
            aligned: aligned.map(named),
        };
        self.scheduled.steps.push(step_record);
        Ok(self.scheduled.axes.window((axis, outer), (width, WindowStep::constant(step), left), shift))
    }

    /// Lays windows side by side over an axis, one for each index of `outer` as [`window`](Self::window) does, each of so many
    /// indices for each of `of`: where `outer` numbers groups of rows, so many rows of a length that is no constant.
    pub fn windows_beside(&mut self, axis: AxisId, outer: AxisId, indices: i64, of: AxisId) -> Result<AxisId> {
        self.need_short_name(axis)?;
        self.need_numbers(outer, axis)?;
        if indices < 1 {
            let message = format!("windows of {indices} indices for each of {}", self.name(of));
            return Err(Diagnostic::user(code::SCHEDULE_AXES, message));
        }
        let [name, number, each] = [axis, outer, of].map(|axis| self.name(axis));
        self.scheduled.steps.push(Step::WindowsBeside { axis: name, outer: number, indices, of: each });
        Ok(self.scheduled.axes.window((axis, outer), (indices, WindowStep { indices, of: Some(of) }, 0), None))
    }

    /// That an axis numbers parts of another.
    fn need_numbers(&self, outer: AxisId, axis: AxisId) -> Result<()> {
        let own = self.scheduled.axes.roots_of(axis);
        if outer != axis && self.scheduled.axes.roots_of(outer).iter().any(|root| own.contains(root)) {
            return Ok(());
        }
        let message = format!("{} numbers no parts of {}", self.name(outer), self.name(axis));
        Err(Diagnostic::user(code::SCHEDULE_AXES, message))
    }

    fn need_global(&self, axis: AxisId, reference: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[reference];
        let is_table = data.axes.iter().any(|axis| matches!(axis, AxisRef::Indirect(_)));
        let why = match (data.memory, is_table) {
            (Memory::Global, false) => return Ok(()),
            (Memory::Global, true) => "of which an index says where rows are",
            _ => "which is not in global memory",
        };
        let message = format!("align of {} to {}, {why}", self.name(axis), data.name);
        Err(Diagnostic::user(code::SCHEDULE_AXES, message))
    }

    /// A shift is the offset of a row of the reference, which must not depend
    /// on the shifted index, nor on one of the others that are shifted in the same loops and whose shift depends on it.
    fn need_shiftable(&self, axis: AxisId, vector: i64, reference: TvId, others: &[(AxisId, ShiftId)]) -> Result<()> {
        let state = &self.scheduled;
        let reference_name = &state.tensors[reference].name;
        let own = state.dimensions_of(reference, axis);
        let has = |tv: TvId, axes: &[AxisId]| axes.iter().any(|axis| state.tensors[tv].has_root(*axis));
        let meets = |other: AxisId, by: TvId| {
            let theirs = state.dimensions_of(by, other).unwrap_or_default();
            has(reference, &theirs) || own.as_ref().is_some_and(|own| has(by, own))
        };
        let refusal = if vector < 1 {
            format!("align of {} to {vector} elements", self.name(axis))
        } else if own.is_none() {
            format!("align of {}, which is not a dimension of {reference_name}", self.name(axis))
        } else if others.iter().any(|(other, shift)| *other != axis && meets(*other, state.shifts[*shift].reference)) {
            format!("align of {} to {reference_name}, of which another axis is shifted", self.name(axis))
        } else {
            return Ok(());
        };
        Err(Diagnostic::user(code::SCHEDULE_AXES, refusal))
    }
}
