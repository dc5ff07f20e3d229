//! `why CASE`: which condition changes its failure rate.
//!
//! Input: the conditions of the run in which the case failed (see [`start`]), or
//! those of the command line. Output: records of kind `factor`, a table, and
//! whether the conditions that are needed are enough.
//!
//! - [`start`]: what fails, and behind which cases;
//! - [`setting`]: the conditions of a trial, and every change of one of them;
//! - [`trials`]: trials under one setting, counted;
//! - [`base`]: the rate as it failed, on all devices and on each;
//! - [`sweep`]: which settings, how many trials of each, and the exact tests;
//! - [`told`]: what came of it, as text and records.
//!
//! Invariant: each condition is changed alone, from the conditions of the failure;
//! only the last trials, of what is enough, change several. What runs on one device
//! is compared with that device's part of the trials as it failed.

mod base;
mod command;
mod setting;
mod start;
mod sweep;
mod told;
mod trials;

pub(in crate::cli) use command::why;
