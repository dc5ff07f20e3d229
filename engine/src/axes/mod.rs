//! The axis graph: axes as nodes, and the transforms that derive one from another.
//!
//! An axis has at most one definition and any number of uses, so that different tensors
//! can divide the same axis in different ways: a tile is read along its rows and written
//! along its columns. Which of the uses counts, the loops of a tensor tell: the one that they
//! derive from.
//!
//! Invariants: a transform's axes exist before it; names and ids follow the order of making,
//! so the same calls give the same graph.

mod graph;

pub use graph::{Axis, AxisGraph, AxisId, Extent, Parts, ShiftId, Xform, XformId};
