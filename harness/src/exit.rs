//! Exit codes. Stable; 101 is never used on purpose, since a panic returns it.

/// Everything selected is fine.
pub(crate) const OK: u8 = 0;
/// `fmt --check` found files that are not in their canonical form.
pub(crate) const UNFORMATTED: u8 = 1;
/// A malformed command line.
pub(crate) const USAGE: u8 = 2;
/// The filter selects nothing.
pub(crate) const NOTHING_SELECTED: u8 = 4;
/// The definition is right, and this version cannot run it there.
pub(crate) const UNSUPPORTED: u8 = 6;
/// The machine failed: results are not complete.
pub(crate) const INFRA: u8 = 20;
/// GPUs were asked for and there are not that many usable.
pub(crate) const NO_GPU: u8 = 21;
/// A malformed filter.
pub(crate) const BAD_FILTER: u8 = 94;
/// A malformed case file.
pub(crate) const BAD_CASES: u8 = 96;
/// At least one case failed.
pub(crate) const FAILED: u8 = 100;
/// At least one case crashed or hung; outranks [`FAILED`].
pub(crate) const CRASHED: u8 = 103;
/// Execution finished, but its record could not be written.
pub(crate) const NO_RECORD: u8 = 110;
/// Ended by a signal after an orderly shutdown: 128 plus its number.
pub(crate) const SIGNAL_BASE: u8 = 128;
