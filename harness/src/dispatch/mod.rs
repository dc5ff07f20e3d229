//! The dispatcher: one thread and one worker process for each slot, a
//! [`Source`] that says what each of them runs next, and events for whoever
//! records and shows them.
//!
//! A [`Job`] that a slot took is settled or put back exactly once; so no case is
//! lost, whatever happens to workers, devices and the run.

mod capture;
mod compilers;
mod cross;
mod event;
mod fit;
mod fleet;
mod handle;
mod health;
mod home;
mod job;
mod judge;
mod kernel_log;
mod kills;
mod phase;
mod plan;
mod pool;
mod postmortem;
mod queue;
mod slot;
mod source;
mod tell;
mod turns;
mod worker_end;

pub(crate) use cross::{Cross, one_of_each};
pub(crate) use event::Event;
pub(crate) use fit::unfit_for_all;
pub(crate) use job::Job;
pub(crate) use judge::Retries;
pub(crate) use kills::shortage_can_be_told;
pub(crate) use phase::PhaseLimit;
pub(crate) use plan::{Isolation, RunPlan, SlotSpec};
pub(crate) use pool::run;
pub(crate) use queue::{Queue, RunPolicy, order};
pub(crate) use source::{Held, Settled, Source, Take};
pub(crate) use worker_end::WorkerEnd;
