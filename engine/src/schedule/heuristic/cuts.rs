//! Where the dimensions of an elementwise fusion are cut in two, what vectors run along and what lies around it, and the vectors that take
//! the fewest accesses then.

use super::shared_tile::{SECTOR_BYTES, WORD_BYTES};
use super::summary::{GlobalTensor, Summary};
use super::tile::WARP;
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::AxisId;

/// Elements of an inner axis of which the last block, that is not full, is a small part.
const FILLING: f64 = 8192.0;

/// Bytes of a run that is worth keeping together.
const LEAST_RUN: f64 = 64.0;

/// The result whose runs are written in parts of sectors by vectors of the given width, as long as these are narrow, if it has
/// all of the inner axes as one run of so many elements: it is written sector by sector then. And the width of vectors for that, a pair at least.
pub(super) fn aligned_to_sectors<'a>(
    mut full: impl Iterator<Item = &'a GlobalTensor>,
    inner: &[AxisId],
    vector: i64,
    run: i64,
) -> Option<(&'a GlobalTensor, i64)> {
    let written = full.find(|tensor| tensor.is_output && run_within(tensor, inner) == inner.len())?;
    let sector = SECTOR_BYTES / written.bytes;
    let is_narrow = vector * written.bytes <= WORD_BYTES && sector > 1;
    // Facts do not reach as far as a sector; sizes do.
    let starts_sectors = run % sector == 0 && written.rows_aligned(vector, inner.len());
    let pair = (WORD_BYTES / written.bytes).clamp(1, 2);
    let wider = if written.base_align % pair == 0 { vector.max(pair) } else { vector };
    // A thread that loads single bytes has the more to do the more of them it stores.
    let is_worth_it = vector > 1 || wider * written.bytes >= WORD_BYTES;
    (is_narrow && is_worth_it && run > sector && !starts_sectors).then_some((written, wider))
}

/// The width of vectors up to the widest with which whole tensors take the fewest accesses; of
/// equals the wider one. Where the inner axes are several that a tensor does not have as one run
/// in memory, a vector is one access only within its run, and an access for each element elsewhere.
pub(super) fn fewest_accesses<'a>(
    full: impl Iterator<Item = &'a GlobalTensor> + Clone,
    inner: &[AxisId],
    widest: i64,
    extent: &dyn Fn(AxisId) -> i64,
) -> i64 {
    // Of one axis, rows that start anywhere are shifted into place.
    if inner.len() < 2 {
        return widest;
    }
    let fits = |tensor: &GlobalTensor, vector: i64| {
        let run = run_within(tensor, inner);
        let elements = inner[inner.len() - run..].iter().fold(1i64, |n, root| n.saturating_mul(extent(*root)));
        tensor.rows_aligned(vector, run) && (run == inner.len() || elements % vector == 0)
    };
    let accesses = |vector: i64| -> f64 {
        full.clone().map(|tensor| if fits(tensor, vector) { 1.0 / vector as f64 } else { 1.0 }).sum()
    };
    let widths = (0..=widest.ilog2()).rev().map(|log| 1i64 << log);
    let width = widths.min_by(|a, b| accesses(*a).total_cmp(&accesses(*b))).unwrap_or(widest);
    // Neighbours are for neighbouring threads where no tensor has wide accesses.
    if full.clone().any(|tensor| fits(tensor, width)) { width } else { 1 }
}

/// How many of the inner axes, from the last one outwards, a tensor has as one run in memory.
pub(super) fn run_within(tensor: &GlobalTensor, inner: &[AxisId]) -> usize {
    let ends = tensor.order.iter().rev().zip(inner.iter().rev()).zip(tensor.dense.iter().rev());
    ends.take_while(|((own, wanted), dense)| own == wanted && **dense).count()
}

/// Groups of which the last has one axis: places that are looked up may vary along each, whatever tensors have as one run.
pub(super) fn last_apart(mut groups: Vec<Vec<AxisId>>) -> Vec<Vec<AxisId>> {
    if let Some(last) = groups.last_mut().filter(|last| last.len() > 1)
        && let Some(axis) = last.pop()
    {
        groups.push(vec![axis]);
    }
    groups
}

/// The number of collapsed groups that form the outer axis: the cut that moves
/// the fewest bytes, where a tensor that lacks one side is counted once for it.
/// Of equals, the cut with the fewest dimensions on the inner side, since each takes a division a vector, as long as blocks
/// are filled; else that which leaves the most to the inner axis. Where places are looked up that follow from indices, those that do not
/// vary within a row are computed once for its vectors, if these are several.
pub(super) fn break_point(
    summary: &Summary<'_>,
    groups: &[Vec<AxisId>],
    (extent, looks_beside): (&dyn Fn(AxisId) -> i64, bool),
) -> usize {
    if groups.len() < 2 {
        return 0;
    }
    let size = |groups: &[Vec<AxisId>]| -> f64 { groups.iter().flatten().map(|root| extent(*root) as f64).product() };
    let cost = |split: usize| -> f64 {
        let (left, right) = groups.split_at(split);
        summary
            .globals
            .iter()
            .map(|tensor| {
                let touches = |side: &[Vec<AxisId>]| side.iter().flatten().any(|root| tensor.order.contains(root));
                let left_size = if touches(left) { size(left) } else { 1.0 };
                let right_size = if touches(right) { size(right) } else { 1.0 };
                tensor.bytes as f64 * left_size * right_size
            })
            .sum()
    };
    // A cut whose inner side does not fill a few warps serves nobody, unless every wider one
    // takes neighbours apart that whole tensors have in memory, and it is made of whole vectors.
    let wide = |split: usize| size(&groups[split..]) >= (4 * WARP) as f64;
    let roots = groups.iter().flatten().count();
    let whole = || summary.globals.iter().filter(|tensor| tensor.order.len() == roots);
    let in_one_run = |split: usize| {
        let inner: Vec<AxisId> = groups[split..].concat();
        let run = |tensor: &GlobalTensor| {
            tensor.order.ends_with(&inner) && tensor.dense[roots - inner.len()..].iter().all(|dense| *dense)
        };
        whole().all(run)
    };
    let narrow = groups.len() - 1;
    let bytes = whole().map(|tensor| tensor.bytes).max().unwrap_or(1) as f64 * size(&groups[narrow..]);
    if looks_beside && bytes >= 2.0 * LEAST_RUN {
        return narrow;
    }
    if bytes >= LEAST_RUN
        && bytes % MAX_ACCESS_BYTES as f64 == 0.0
        && in_one_run(narrow)
        && !(1..narrow).any(|split| wide(split) && in_one_run(split))
    {
        return narrow;
    }
    let least = (1..groups.len()).filter(|split| wide(*split)).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    let fills = |split: usize| size(&groups[split..]) >= FILLING;
    let shorter = |least: usize| (least..groups.len()).rev().find(|split| fills(*split) && cost(*split) == cost(least));
    least.map_or(narrow, |least| shorter(least).unwrap_or(least))
}
