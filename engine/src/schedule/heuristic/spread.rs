//! Loads of elementwise fusions that are no vectors: of elements that lie apart, and of those that are looked up. What vectors and how
//! many of them a thread takes then.

use super::choose::Problem;
use super::shared_tile::WORD_BYTES;
use super::summary::{GlobalTensor, Summary};
use crate::schedule::{AxisId, ScheduledFusion, TvId};
use std::collections::BTreeSet;

/// Vectors of places in a row that a thread looks up.
pub(super) const MOST_LOOKUPS: i64 = 4;

/// Lookups at places that follow from indices, of which a thread takes vectors of two words, at most.
const MOST_WIDE_LOOKUPS: usize = 2;

/// Whether elements that are neighbours along the last axis lie apart in a tensor that is read, with others between, as one of pairs
/// does. Each is an access of its own then, and those of neighbouring threads should be neighbours, or a warp's access
/// touches many lines. So it is where results are joined to words of numbers along a short last axis, which no such tensor has.
pub(super) fn reads_spread(summary: &Summary<'_>, last: AxisId, is_short: bool) -> bool {
    let is_spread = |tensor: &GlobalTensor| {
        let is_input = !tensor.is_output && !tensor.is_part && tensor.dense.last() == Some(&false);
        is_input && (tensor.order.last() == Some(&last) || is_short && !tensor.order.contains(&last))
    };
    summary.globals.iter().any(is_spread)
}

/// The elements of a word of the tensors that satisfy a condition, where rows of all of them along so many inner axes start with
/// words; else single ones, since what is not loaded in words gains nothing from rows that are shifted into place.
pub(super) fn word_within(summary: &Summary<'_>, condition: impl Fn(&GlobalTensor) -> bool, inner: usize) -> i64 {
    let own = || summary.globals.iter().filter(|tensor| condition(tensor));
    let word = own().map(|tensor| tensor.bytes).max().map_or(1, |bytes| (WORD_BYTES / bytes).max(1));
    if own().all(|tensor| tensor.order.len() <= inner || tensor.rows_aligned(word, inner)) { word } else { 1 }
}

/// The widest vectors, and how many of them a thread takes at most, where elements are looked up at places that follow from indices
/// alone: neighbours read neighbours, so those of a thread that are far from those of the next one take more lines at once.
pub(super) fn looks_beside(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Option<(i64, i64)> {
    let follows = |index: TvId| {
        let (mut waiting, mut seen) = (vec![index], BTreeSet::new());
        while let Some(tv) = waiting.pop() {
            if seen.insert(tv) {
                if scheduled.tensors[tv].op.is_none() {
                    return false;
                }
                waiting.extend(scheduled.producers(tv));
            }
        }
        true
    };
    let last = problem.summary.largest(|tensor| !tensor.is_part)?.order.last().copied();
    let is_beside = |tensor: &&GlobalTensor| {
        let lookup = scheduled.lookup_in(tensor.tv).and_then(|lookup| scheduled.lookup_of(lookup));
        is_along(tensor, last) && lookup.is_some_and(|(_, index)| follows(index))
    };
    let beside = || problem.summary.globals.iter().filter(is_beside);
    let bytes = beside().map(|tensor| tensor.bytes).max()?;
    let (words, unroll) = if beside().count() > MOST_WIDE_LOOKUPS { (1, MOST_LOOKUPS / 2) } else { (2, MOST_LOOKUPS) };
    Some(((words * WORD_BYTES / bytes).max(1), unroll))
}

/// Whether elements are looked up along rows of a table: what one thread reads of it is found again by neighbours, in any
/// order.
pub(super) fn looks_along(summary: &Summary<'_>, last: Option<AxisId>) -> bool {
    summary.globals.iter().any(|tensor| is_along(tensor, last))
}

fn is_along(tensor: &GlobalTensor, last: Option<AxisId>) -> bool {
    tensor.is_looked_up && tensor.order.last() == last.as_ref() && tensor.dense.last() == Some(&false)
}
