//! The pipeline from a fusion to a verified kernel.
//!
//! In: a [`BoundFusion`], which is a fusion with the arguments that a kernel is
//! wanted for. Out: [`CompiledFusion`], the kernel and how it came about. The stages
//! themselves live in the modules below; here stands in which order they run, under
//! which spans, and what is passed on.
//!
//! * [`prepare`] makes of the fusion as written the one that a kernel is made of;
//! * [`compile`] schedules and lowers it, refuses what a device has no room for, and verifies;
//! * [`plan`] does both, and keeps the kernel with every stage's text;
//! * [`bind_launch`] finds a kernel's numbers for one call.
//!
//! Invariant: nothing is bound twice. Stages get the sizes that the caller found.

mod launch;
mod pipeline;
mod plan;
mod prepare;

pub use launch::bind_launch;
pub use pipeline::{BoundFusion, CompiledFusion, compile, compile_fusion};
pub use plan::{FreshPlans, Plan, PlanSource, plan};
pub use prepare::{PreparedFusion, output_metas, prepare, result_metas};
