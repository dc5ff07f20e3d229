//! Reads at an index that is data.
//!
//! A lookup is a load of its table, whose address has the value of the index tensor in place of the
//! index of the axis that is looked up. That value is read once before the address is formed, and kept
//! between 0 and the last index of the axis, unless it is computed of positions and cannot lie elsewhere (`within`): whatever
//! data say, nothing outside of the table is read. That an index is one of the axis is checked by who runs the kernel (`runtime::lookups`).
//! Tables without an element on that axis are refused before kernels are chosen.

use super::context::{Lowering, identifier};
use super::within::Within;
use crate::axes::AxisRef;
use crate::diag::{Diagnostic, Result};
use crate::kernel::ExprId;
use crate::num::BinaryOp;
use crate::schedule::{AxisId, TvId};

impl Lowering<'_> {
    /// Runs `body` with the index at hand at which a lookup reads; other loads have none.
    pub(super) fn looking_up<R>(&mut self, tv: TvId, body: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let Some((table, index)) = self.scheduled.lookup_of(tv) else { return body(self) };
        let found = self.found_in(table, index)?;
        let before = std::mem::replace(&mut self.found, found);
        let result = body(self);
        self.found = before;
        result
    }

    /// The index that is data, as one of the axis that is looked up; none where that has one index.
    fn found_in(&mut self, table: TvId, index: TvId) -> Result<Option<ExprId>> {
        let axes = self.scheduled.tensors[table].axes.iter();
        let Some(axis) = axes.into_iter().find_map(|axis| match *axis {
            AxisRef::Indirect(axis) => Some(axis),
            AxisRef::Axis(_) | AxisRef::Broadcast(_) => None,
        }) else {
            return Ok(None);
        };
        let value = self.read(index)?;
        let mut found = self.as_index(value);
        // An index is narrowed before it is kept in its axis: of larger numbers the rest may be any.
        let fits = |within: &Within| within.lo >= f64::from(i32::MIN) && within.hi <= f64::from(i32::MAX);
        let within = self.facts.within(index).filter(fits);
        let last = self.scheduled.axes.constant_size(axis).map_or(f64::NEG_INFINITY, |extent| (extent - 1) as f64);
        if within.is_none_or(|within| within.hi > last) {
            let (extent, one) = (self.extent(axis)?, self.b.int(1));
            let last = self.b.exprs().sub(extent, one);
            let last = self.b.exprs().as_data(last);
            found = self.b.exprs().binary(BinaryOp::Minimum, found, last);
        }
        if within.is_none_or(|within| within.lo < 0.0) {
            let zero = self.b.int(0);
            found = self.b.exprs().binary(BinaryOp::Maximum, found, zero);
        }
        let name = format!("{}_at", identifier(&self.scheduled.tensors[table].name));
        let found = self.b.let_(name, found);
        Ok(Some(self.b.exprs().as_index(found)))
    }

    /// The index of an axis that is looked up.
    pub(super) fn found(&self, axis: AxisId) -> Result<ExprId> {
        self.found.ok_or_else(|| {
            let name = &self.scheduled.axes[axis].name;
            Diagnostic::bug(format!("axis {name} is read at no index, since no lookup asks"))
        })
    }

    /// Whether the index of a lookup may be another one for each lane of a vector.
    pub(super) fn looks_up_along(&self, tv: TvId, lanes: AxisId) -> bool {
        let Some((_, index)) = self.scheduled.lookup_of(tv) else { return false };
        let axes = &self.scheduled.axes;
        let is_along = |own: AxisId| own == lanes || axes.derives_from(lanes, own) || axes.derives_from(own, lanes);
        self.scheduled.tensors[index].loop_axes().any(is_along) || self.scheduled.depends(index, lanes)
    }
}
