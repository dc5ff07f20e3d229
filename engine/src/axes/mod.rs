//! The axis graph: axes as nodes, and the transforms that derive one from another.
//!
//! [`analyze`] makes it of a fusion: the axes of every value, and the transforms that the
//! operations are; schedules add their own.
//!
//! An axis has any number of definitions and of uses, so that different tensors can divide the
//! same axis in different ways: a tile is read along its rows and written along its columns.
//! Which of them count, the loops of a tensor tell: [`Derivation`] follows transforms both ways
//! from the loops. [`IndexMap`] makes the indices of that and the tests that go with them,
//! [`Domain::covers`] says whether loops compute a tensor at all, and which of their axes the
//! tensor does not have.
//!
//! Invariants: a transform's axes exist before it; names and ids follow the order of making,
//! so the same calls give the same graph. Where several transforms lead to an axis, they agree
//! in its index.

mod build;
mod derive;
mod domain;
mod graph;
mod maps;
mod offset;
mod sizes;
#[cfg(test)]
mod tests;

pub use build::{Forks, FusionAxes, FusionOperand, FusionValue, MAX_FORKS, ValueId, analyze, axis_pairs};
pub use derive::{Derivation, Source, Way};
pub use domain::{AxisRef, Domain, DomainLoop, Foreign, ForeignAxis, Place, Storage};
pub use graph::{Axis, AxisGraph, AxisId, Extent, Parts, ShiftId, WindowStep, Xform, XformId};
pub use maps::{IndexBuilder, IndexMap, Indexed};
pub use offset::{Offset, OffsetId, Sign};
