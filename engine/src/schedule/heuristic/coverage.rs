//! Whether one iteration space serves all results of a fusion: asked by every
//! heuristic, since each makes one.

use super::Sizes;
use super::choose::{Problem, Refusal};
use super::structure::{Mixed, whole_of};
use super::summary::Summary;
use crate::diag::{Diagnostic, Result, code};
use crate::schedule::{AxisId, Compute, ScheduledFusion, TvId, Xform};

/// Whether no axis is made of another by the program itself, as those of pads and joined tensors: most patterns know of none such.
pub(super) fn check_plain(scheduled: &ScheduledFusion) -> Result<(), Refusal> {
    match scheduled.axes.has_program_xforms() {
        true => Err(Refusal::Pattern("the fusion pads or joins tensors".to_string())),
        false => Ok(()),
    }
}

/// Whether nothing is read where data say: few patterns know where that is.
pub(super) fn check_direct(scheduled: &ScheduledFusion) -> Result<(), Refusal> {
    match scheduled.tensors.ids().any(|tv| scheduled.lookup_of(tv).is_some()) {
        true => Err(Refusal::Pattern("the fusion looks elements up".to_string())),
        false => Ok(()),
    }
}

/// Whether no random numbers are drawn: few patterns know which element has which.
pub(super) fn check_not_random(scheduled: &ScheduledFusion) -> Result<(), Refusal> {
    let mut ops = scheduled.tensors.values().filter_map(|data| data.op.as_ref());
    match ops.any(|op| matches!(op.compute, Compute::Random(_))) {
        true => Err(Refusal::Pattern("random numbers are drawn".to_string())),
        false => Ok(()),
    }
}

/// Whether all reductions of a fusion, if it has any, reduce over one set of
/// dimensions, and one loop nest serves all its results.
pub(super) fn check(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<()> {
    if let Some(Mixed { first, second, .. }) = &problem.summary.structure.mixed {
        return Err(Diagnostic::unsupported(
            code::NEEDS_SEGMENTS,
            format!("%{first} and %{second} reduce over different dimensions"),
        )
        .note("one kernel reduces over one set of dimensions; split the fusion"));
    }
    check_parts(scheduled)?;
    check_space(scheduled, problem.summary, problem.sizes)?;
    check_repeated(problem, scheduled)
}

/// Bytes of tensors that take longer than a kernel of its own for what is reduced once, and elements of a row that is
/// reduced again at no cost: where other rows are reduced beside these, and where all else is elementwise. There such a row is
/// found in a cache while memory is waited for, if it is no long one; a long one for each of few rows already takes several
/// times as long as to store it. One whose elements are no whole vectors costs more: it makes rows that are held, and shifted into
/// place with their parameters, of what is else elementwise, which has whole vectors wherever rows start.
const BESIDE_OTHERS: (i64, i64) = (16 << 20, 64);
const ALONE: (i64, i64) = (4 << 20, 1024);
/// Elements of the narrowest vectors that take as many accesses as wider ones.
const VECTOR: i64 = 4;

/// Whether a kernel may reduce rows of so many elements again for each index of dimensions that they lack, where the largest
/// tensor has so many bytes. They hold others up that lack none and are reduced beside them: these are then held while the
/// others are reduced, or wait for them. So do rows that are [no whole vectors](is_uneven).
pub fn may_reduce_again(row: i64, largest: i64, hold_up: bool) -> bool {
    let (large, short) = if hold_up { BESIDE_OTHERS } else { ALONE };
    largest < large || row <= short
}

/// Whether a row of so many elements is no whole number of vectors.
pub fn is_uneven(row: i64) -> bool {
    row % VECTOR != 0
}

/// The reductions that lack a dimension of the loops: each index of it reduces again.
pub(super) fn repeated(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Vec<TvId> {
    let structure = problem.summary.structure;
    let is_kept = |root: &&AxisId| !structure.reduced.contains(root) && problem.sizes.extent(scheduled, **root) > 1;
    let kept: Vec<AxisId> = structure.roots.iter().filter(is_kept).copied().collect();
    let lacks = |tv: &TvId| kept.iter().any(|root| !scheduled.tensors[*tv].has_root(*root));
    scheduled.tensors.ids().filter(|tv| scheduled.is_reduction(*tv)).filter(lacks).collect()
}

/// Bytes of the largest tensor.
fn largest(summary: &Summary<'_>) -> i64 {
    summary.globals.iter().map(|tensor| tensor.elements.saturating_mul(tensor.bytes)).max().unwrap_or(0)
}

/// Where tensors are large, long rows are not reduced again and again beside others.
fn check_repeated(problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<()> {
    let repeated = repeated(problem, scheduled);
    let Some(first) = repeated.first() else { return Ok(()) };
    let all = scheduled.tensors.ids().filter(|tv| scheduled.is_reduction(*tv)).count();
    let reduced = problem.summary.structure.reduced.iter().map(|root| problem.sizes.extent(scheduled, *root));
    let row = reduced.fold(1, i64::saturating_mul);
    if may_reduce_again(row, largest(problem.summary), repeated.len() < all || is_uneven(row)) {
        return Ok(());
    }
    let name = &scheduled.fusion.tensors[scheduled.tensors[*first].source].name;
    let message = format!("%{name} would be reduced again for each index of dimensions that it lacks");
    Err(Diagnostic::unsupported(code::NEEDS_SEGMENTS, message)
        .note("large tensors have these dimensions, and a kernel of its own takes less; split the fusion"))
}

/// Whether loops over whole axes lead to all parts of them, by numbers that are indices.
fn check_parts(scheduled: &ScheduledFusion) -> Result<()> {
    let refused = |what: String| {
        let message = format!("{what}: no loops over the results lead there");
        Err(Diagnostic::unsupported(code::NEEDS_SEGMENTS, message).note("split the fusion, or schedule it by hand"))
    };
    for xform in scheduled.axes.program_xforms() {
        let Xform::Resize { input, left, right, .. } = *xform else { continue };
        let name = &scheduled.axes[input].name;
        if scheduled.axes.widest(input).is_none() {
            return refused(format!("{name} is part of itself"));
        }
        if [left, right].iter().any(|by| scheduled.axes[*by].constant.unsigned_abs() > FARTHEST) {
            return refused(format!("{name} begins or ends too far from the axis that it is part of"));
        }
    }
    Ok(())
}

/// Indices by which an axis may begin before or behind one that it is part of: sums of two are numbers of 32 bits.
const FARTHEST: u64 = 1 << 30;

/// Work that is quickly repeated, however few elements the tensors have.
const MAX_REPEATED: i64 = 1 << 20;

/// One loop nest serves results of different shapes: a smaller one is written
/// at the first index of what it lacks. That is refused where the nest would be
/// larger than every tensor (results that have nothing to do with each other, or
/// a reduction that would be repeated for each index of another dimension), and
/// where what a result lacks is empty, so that there is no first index.
fn check_space(scheduled: &ScheduledFusion, summary: &Summary<'_>, sizes: &Sizes) -> Result<()> {
    let covered =
        scheduled.tensors.values().any(|data| summary.structure.roots.iter().all(|root| data.has_root(*root)));
    let space =
        summary.structure.roots.iter().fold(1i64, |space, root| space.saturating_mul(sizes.extent(scheduled, *root)));
    if !covered && space > sizes.elements().1.max(MAX_REPEATED) {
        return Err(Diagnostic::unsupported(
            code::NEEDS_SEGMENTS,
            format!("one kernel would visit {space} places, the largest tensor has {} elements", sizes.elements().1),
        )
        .note("a reduction would be repeated for each index of a dimension that it does not have; split the fusion"));
    }
    for data in summary.structure.results.iter().map(|tv| &scheduled.tensors[*tv]) {
        if let Some(axis) = data.indexed().find(|axis| whole_of(scheduled, *axis) != Some(*axis)) {
            let name = &scheduled.fusion.tensors[data.source].name;
            return Err(Diagnostic::unsupported(
                code::NEEDS_SEGMENTS,
                format!("%{name} is a result, and {} of it has other ends elsewhere", scheduled.axes[axis].name),
            )
            .note("one kernel iterates over one space; split the fusion"));
        }
        // A finished reduction stands outside the loops over reduced dimensions.
        let inside = summary.structure.reduced.iter().any(|root| data.has_root(*root));
        let iterated =
            summary.structure.roots.iter().filter(|root| inside || !summary.structure.reduced.contains(root));
        let lacking: Vec<AxisId> = iterated.copied().filter(|root| !data.has_root(*root)).collect();
        let name = &scheduled.fusion.tensors[data.source].name;
        if !covered && lacking.iter().any(|root| !summary.structure.reduced.contains(root)) {
            return Err(Diagnostic::unsupported(
                code::NEEDS_SEGMENTS,
                format!("%{name} has dimensions that no tensor shares with those of another result"),
            )
            .note("one kernel iterates over one space; split the fusion"));
        }
        let is_empty = |root: AxisId| sizes.extent(scheduled, root) == 0;
        let own_elements = !data.indexed().any(is_empty);
        if own_elements && lacking.iter().any(|root| is_empty(*root)) {
            return Err(Diagnostic::unsupported(
                code::NEEDS_SEGMENTS,
                format!("%{name} has elements, but another tensor of the fusion has none"),
            )
            .note("an empty iteration space writes nothing; split the fusion"));
        }
    }
    Ok(())
}
