//! Reads at an index that is data.
//!
//! A lookup is a load of its table, whose address has the value of the index tensor in place of the
//! index of the axis that is looked up. That value is read once before the address is formed, and kept
//! between 0 and the last index of the axis: whatever data say, nothing outside of the table is
//! read. That an index is one of the axis is checked by who runs the kernel (`runtime::lookups`).
//! Tables without an element on that axis are refused before kernels are chosen.

use super::context::Lowering;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{ExprId, IndexOp};
use crate::schedule::{AxisId, TvId};

impl Lowering<'_> {
    /// Runs `body` with the index at hand at which a lookup reads; other loads have none.
    pub(super) fn looking_up<R>(&mut self, tv: TvId, body: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let Some((_, index)) = self.scheduled.lookup_of(tv) else { return body(self) };
        let value = self.read(index)?;
        let found = self.as_index(value);
        let found = self.b.exprs().as_index(found);
        let before = self.found.replace(found);
        let result = body(self);
        self.found = before;
        result
    }

    /// The index of the axis that is looked up, of so many elements.
    pub(super) fn found_on(&mut self, axis: AxisId, extent: ExprId) -> Result<ExprId> {
        let Some(found) = self.found else {
            let name = &self.scheduled.axes[axis].name;
            return Err(Diagnostic::bug(format!("axis {name} is read at no index, since no lookup asks")));
        };
        let (zero, one) = (self.b.int(0), self.b.int(1));
        let last = self.b.exprs().sub(extent, one);
        let most = self.b.exprs().index(IndexOp::Min, found, last);
        Ok(self.b.exprs().index(IndexOp::Max, most, zero))
    }

    /// Whether the index of a lookup may be another one for each lane of a vector.
    pub(super) fn looks_up_along(&self, tv: TvId, lanes: AxisId) -> bool {
        let Some((_, index)) = self.scheduled.lookup_of(tv) else { return false };
        let axes = &self.scheduled.axes;
        let is_along = |own: AxisId| own == lanes || axes.derives_from(lanes, own) || axes.derives_from(own, lanes);
        self.scheduled.tensors[index].loop_axes().any(is_along) || self.scheduled.depends(index, lanes)
    }
}
