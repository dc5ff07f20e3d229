//! Schedules that the caller wrote.
//!
//! In: the text of the options, the unscheduled fusion. Out: the schedule, in the form in which
//! heuristics give theirs. Invariant: whatever the text, it is refused with a code, or it
//! is a way to compute the fusion for the sizes at hand.

use crate::diag::Result;
use crate::schedule::heuristic::{Planned, Sizes, Unscheduled};
use crate::schedule::{ScheduledFusion, check_schedule, check_sizes, greatest_index, schedule_by_text};
use crate::tensor::ArgMeta;

/// Who scheduled it, in the names of kernels.
pub(super) const NAME: &str = "manual";

/// The fusion as the text schedules it.
pub(super) fn schedule(unscheduled: &Unscheduled, text: &str) -> Result<Planned> {
    let scheduled = by_text(unscheduled, text)?;
    Ok(Planned { scheduler: NAME, params_text: String::new(), scheduled })
}

/// Whether indices need 64 bits; refused where the schedule does not fit the sizes.
pub(super) fn check(unscheduled: &Unscheduled, text: &str, args: &[ArgMeta], sizes: &Sizes) -> Result<bool> {
    let scheduled = by_text(unscheduled, text)?;
    check_sizes(&scheduled, sizes)?;
    let span = |arg: &ArgMeta| match arg {
        ArgMeta::Tensor(meta) => meta.span().unwrap_or(i64::MAX),
        ArgMeta::Scalar(_) => 0,
    };
    let reach = args.iter().map(span).fold(sizes.elements().1, i64::max);
    Ok(greatest_index(&scheduled, sizes, reach) > i64::from(i32::MAX))
}

fn by_text(unscheduled: &Unscheduled, text: &str) -> Result<ScheduledFusion> {
    let scheduled = schedule_by_text(&unscheduled.scheduled, text)?;
    check_schedule(&scheduled)?;
    Ok(scheduled)
}
