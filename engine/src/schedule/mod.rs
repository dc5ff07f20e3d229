//! How a fusion is computed: which loops, on which threads, in which memory.
//!
//! A [`ScheduledFusion`] is a working copy of a fusion in which every
//! class of axes ([`crate::axes`]) is a *root axis*. Primitives transform axes
//! (`split`, `merge`, `align`); the axes that nothing is made of are *leaves*.
//! Axes are shared by all tensors ([`crate::axes`]): one loop over an axis serves
//! everything that iterates over it. Each tensor has
//!
//! * *loops*, outer to inner: axes, and what runs over each;
//! * an *inline position*: the number of outer loops it shares with its consumers;
//! * a *memory*: global (inputs and outputs), shared, or local.
//!
//! Heuristics and users drive the same [`ScheduleBuilder`]: it applies each
//! primitive and records it as a [`Step`], so a schedule is data: printed, read back
//! ([`parse_schedule`]) and applied again ([`replay`]). Names of axes and tensors are unique, so
//! that they mean the same then. Each verb refuses what is wrong by itself, [`check_schedule`] what
//! only all of them together tell.
//!
//! Invariants that the builder keeps and lowering relies on: the loops of a tensor
//! have no axis twice; a tensor shares a loop only with consumers that have the same
//! axis at that position, and the same running over it;
//! a reduction is never inlined into the loops it reduces over.

mod buffering;
mod builder;
mod check;
mod graph;
pub mod heuristic;
mod inline;
mod ir;
mod layout;
mod names;
mod pairs;
mod parse;
mod print;
mod replay;
mod stages;
mod support;
mod verbs;
mod waits;
mod windows;

pub use crate::axes::{AxisGraph, AxisId, Extent, Parts, ShiftId, WindowStep, Xform, XformId};
pub use builder::ScheduleBuilder;
pub(crate) use check::greatest_index;
pub use check::{check as check_schedule, check_sizes};
pub(crate) use graph::working_copy;
pub use graph::{Author, fusion_by_hand, scheduled_fusion};
pub use ir::{
    Columns, Compute, Io, Loop, Memory, ParallelType, RowShift, ScheduledFusion, Step, Tile, Tv, TvId, TvOp, TvOperand,
};
pub use layout::{ArgClass, MemoryAxis, PlacedOutput, TensorLayout};
pub use parse::{PlacedStep, parse_schedule};
pub use print::scheduled_tensors;
pub use replay::{check_text, replay, schedule_by_text};
pub use stages::Stages;
pub(crate) use support::widens;
pub use verbs::{VERBS, Verb};
pub use windows::Windows;
