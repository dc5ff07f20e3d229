//! `run` and `bench`: select, dispatch, record, report.
//!
//! - `go.rs`: the whole course of a run, also of one that is resumed;
//! - [`options`]: what is asked for, converted from the command line once;
//! - `meant.rs`: which cases are meant, and where they come from;
//! - [`setup`]: what they are to be run with; `carry.rs`: what a resumed run has done already;
//! - `view.rs`: events as records and progress; `course.rs`: where the time goes; [`finish`]: the end.

mod carry;
mod course;
pub(in crate::cli) mod finish;
mod go;
mod meant;
pub(in crate::cli) mod options;
pub(in crate::cli) mod setup;
mod view;

pub(super) use go::{resume, run};
pub(super) use setup::{split_required, stop_flag};
