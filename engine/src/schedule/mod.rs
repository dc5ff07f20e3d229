//! How a fusion is computed: which loops, on which threads, in which memory.
//!
//! A [`ScheduledFusion`] is a working copy of a fusion in which every
//! dimension ([`crate::idgraph`]) is a *root axis*. Primitives transform axes
//! (`split`, `merge`, `align`); the axes that nothing consumes are *leaves*.
//! Axes are shared by all tensors: a leaf is one loop (or one thread index) for
//! everything that iterates over it. Each tensor has
//!
//! * a *loop order*: the leaves that its computation iterates over, outer to inner;
//! * an *inline position*: the number of outer loops it shares with its consumers;
//! * a *memory*: global (inputs and outputs), shared, or local.
//!
//! Heuristics and users drive the same [`ScheduleBuilder`]: it applies each
//! primitive and records it as a [`Step`], so a schedule is data that can be
//! printed and compared.
//!
//! Invariants that the builder keeps and lowering relies on: an axis is
//! consumed by at most one transform; a loop order has no axis twice; a tensor
//! shares a loop only with consumers that have the same axis at that position;
//! a reduction is never inlined into the loops it reduces over.

mod builder;
mod graph;
pub mod heuristic;
mod inline;
mod ir;
mod layout;
mod print;
mod stages;
mod support;

pub use builder::ScheduleBuilder;
pub use graph::scheduled_fusion;
pub use ir::{
    AxisId, Compute, Extent, Io, Memory, ParallelType, Parts, ScheduleAxis, ScheduledFusion, SourceAxis, Step, Tv,
    TvId, TvOp, TvOperand, Xform, XformId,
};
pub use layout::{ArgClass, MemoryAxis, TensorLayout};
pub use stages::Stages;
