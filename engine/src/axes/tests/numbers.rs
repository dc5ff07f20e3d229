//! Graphs whose sizes are numbers.

use crate::axes::{AxisGraph, AxisId, Extent, Offset, ShiftId};
use crate::fusion::ScalarId;
use crate::util::{EntityId, PrimaryMap};

/// A graph with the values of what sizes decide.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    pub(super) graph: AxisGraph,
    pub(super) scalars: PrimaryMap<ScalarId, i64>,
    /// The position of aligned rows in a vector.
    pub(super) shifts: Vec<i64>,
}

impl Numbers {
    /// The number of indices of an axis.
    pub(super) fn extent(&self, axis: AxisId) -> i64 {
        let ceil_div = |n: i64, by: i64| (n + by - 1) / by;
        match self.graph[axis].extent {
            Extent::Const(n) => n,
            Extent::Scalar(scalar) => self.scalars[scalar],
            Extent::CeilDiv(of, factor) => ceil_div(self.extent(of), factor),
            Extent::Product(a, b) => self.extent(a) * self.extent(b),
            Extent::Plus(of, more) => self.extent(of) + more,
            Extent::Times(of, times) => self.extent(of) * times,
            Extent::Share(of, parts) => parts.share(self.extent(of), parts.beside.map_or(1, |axis| self.extent(axis))),
            Extent::Shares(of, share) => ceil_div(self.extent(of), self.extent(share)),
        }
    }

    /// The value of an offset.
    pub(super) fn offset(&self, offset: &Offset) -> i64 {
        offset.terms.iter().fold(offset.constant, |sum, (factor, scalar)| sum + factor * self.scalars[*scalar])
    }

    /// The position of an aligned row in a vector.
    pub(super) fn shift(&self, shift: ShiftId) -> i64 {
        self.shifts[shift.index()]
    }

    /// An axis of so many indices.
    pub(super) fn root(&mut self, extent: i64) -> AxisId {
        let name = format!("d{}", self.graph.len());
        self.graph.root(name, Extent::Const(extent))
    }
}
