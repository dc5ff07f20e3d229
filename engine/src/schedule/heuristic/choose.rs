//! Picks the heuristic.

use super::summary::Summary;
use super::{Sizes, norm_inner, pointwise, reduction, tuning};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::Fusion;
use crate::options::CompileCx;
use crate::schedule::{ArgClass, AxisId, ScheduleBuilder, ScheduledFusion, Tv, scheduled_fusion};

/// A schedule and who made it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The heuristic.
    pub scheduler: &'static str,
    /// Its parameters as text.
    pub params_text: String,
    /// The result.
    pub scheduled: ScheduledFusion,
}

/// Schedules a fusion for a device and sizes.
pub fn schedule(cx: &CompileCx<'_>, fusion: &Fusion, class: &ArgClass, sizes: &Sizes) -> Result<Planned> {
    tuning::check(cx.options)?;
    let unscheduled = scheduled_fusion(fusion)?;
    let summary = Summary::new(&unscheduled, class, sizes)?;
    check_coverage(&unscheduled, &summary, sizes)?;
    let mut builder = ScheduleBuilder::new(unscheduled);
    let is_empty = |root: &AxisId| sizes.extent(builder.state(), *root) == 0;
    if summary.roots.iter().any(is_empty) {
        builder.distrust_exact_splits();
    }
    let (scheduler, params_text) = if summary.reduced.is_empty() {
        let params = pointwise::params(cx, builder.state(), &summary, sizes);
        pointwise::apply(&mut builder, &summary, cx.options, &params)?;
        ("pointwise", params.to_string())
    } else if summary.persistent {
        let params = norm_inner::params(cx, builder.state(), &summary, sizes)?;
        norm_inner::apply(&mut builder, &summary, cx.options, &params)?;
        ("inner_persistent", params.to_string())
    } else {
        let params = reduction::params(cx, builder.state(), &summary, sizes);
        reduction::apply(&mut builder, &summary, cx.options, &params)?;
        ("reduction", params.to_string())
    };
    Ok(Planned { scheduler, params_text, scheduled: builder.finish() })
}

/// Work that is quickly repeated, however few elements the tensors have.
const MAX_REPEATED: i64 = 1 << 20;

/// One loop nest serves results of different shapes: a smaller one is written
/// at the first index of what it lacks. That is refused where the nest would be
/// larger than every tensor (results that have nothing to do with each other, or
/// a reduction that would be repeated for each index of another dimension), and
/// where what a result lacks is empty, so that there is no first index.
fn check_coverage(scheduled: &ScheduledFusion, summary: &Summary, sizes: &Sizes) -> Result<()> {
    let has = |data: &Tv, root: AxisId| data.axes.iter().any(|axis| axis.concrete && axis.root == root);
    let covered = scheduled.tensors.values().any(|data| summary.roots.iter().all(|root| has(data, *root)));
    let space = summary.roots.iter().fold(1i64, |space, root| space.saturating_mul(sizes.extent(scheduled, *root)));
    if !covered && space > sizes.elements().1.max(MAX_REPEATED) {
        return Err(Diagnostic::unsupported(
            code::NEEDS_SEGMENTS,
            format!("one kernel would visit {space} places, the largest tensor has {} elements", sizes.elements().1),
        )
        .note("a reduction would be repeated for each index of a dimension that it does not have; split the fusion"));
    }
    let consumers = scheduled.all_consumers();
    for (_, data) in scheduled.tensors.iter().filter(|(tv, _)| consumers[*tv].is_empty()) {
        // A finished reduction stands outside the loops over reduced dimensions.
        let inside = summary.reduced.iter().any(|root| has(data, *root));
        let iterated = summary.roots.iter().filter(|root| inside || !summary.reduced.contains(root));
        let lacking: Vec<AxisId> = iterated.copied().filter(|root| !has(data, *root)).collect();
        let name = &scheduled.fusion.tensors[data.source].name;
        if !covered && lacking.iter().any(|root| !summary.reduced.contains(root)) {
            return Err(Diagnostic::unsupported(
                code::NEEDS_SEGMENTS,
                format!("%{name} has dimensions that no tensor shares with those of another result"),
            )
            .note("one kernel iterates over one space; split the fusion"));
        }
        let is_empty = |root: AxisId| sizes.extent(scheduled, root) == 0;
        let own_elements = data.axes.iter().all(|axis| !axis.concrete || !is_empty(axis.root));
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
