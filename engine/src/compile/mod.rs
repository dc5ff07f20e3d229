//! The pipeline from a fusion to a verified kernel.
//!
//! In: a [`BoundFusion`], which is a fusion with the arguments that a kernel is
//! wanted for. Out: [`CompiledFusion`], the kernel and how it came about. The stages
//! themselves live in the modules below; here stands in which order they run, under
//! which spans, and what is passed on.
//!
//! * [`KernelForm`] is the fusion that a kernel is made of, for what sizes decide about it;
//! * [`choose_kernel`] looks at sizes, strides and alignments, and says which kernel is wanted:
//!   a [`KernelChoice`], after which nothing asks for sizes any more; a schedule that the caller
//!   wrote takes the heuristic's place there;
//! * a fusion of one operation that no loop nest expresses has a kernel that is written
//!   ([`Template`](crate::template::Template)) instead of being scheduled: its [`Maker`] says which;
//! * [`build_kernel`] schedules and lowers it, refuses what a device has no room for, and verifies;
//! * [`plan`] keeps the kernel with every stage's text;
//! * [`bind_launch`] finds a kernel's numbers for one call.
//!
//! So a kernel is known by its form and its choice, and calls of other sizes share it.
//!
//! Invariant: nothing is bound twice. Stages get the sizes that the caller found.

mod launch;
mod manual;
mod online;
mod pipeline;
mod plan;
mod prepare;

pub use launch::{bind_launch, check_together};
pub(crate) use online::{MaxAndSum, find_max_and_sum};
pub use pipeline::{
    BoundFusion, CompiledFusion, KernelChoice, build_kernel, choose_kernel, compile_fusion, scheduled_by,
};
pub use plan::{FreshPlans, Plan, PlanSource, check_text, plan};
pub use prepare::{FormKey, KernelForm, Maker, output_metas, result_metas};
