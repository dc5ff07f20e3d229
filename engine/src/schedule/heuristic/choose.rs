//! Picks the heuristic.

use super::summary::Summary;
use super::{Sizes, norm_inner, pointwise, reduction};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::Fusion;
use crate::options::CompileCx;
use crate::schedule::{ArgClass, AxisId, ScheduleBuilder, ScheduledFusion, scheduled_fusion};

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
    let unscheduled = scheduled_fusion(fusion)?;
    let summary = Summary::new(&unscheduled, class, sizes)?;
    check_coverage(&unscheduled, &summary)?;
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

/// One loop nest serves all outputs only if it iterates over nothing that some
/// output of full size lacks.
fn check_coverage(scheduled: &ScheduledFusion, summary: &Summary) -> Result<()> {
    let iterated: Vec<_> = summary.roots.iter().filter(|root| !summary.reduced.contains(root)).collect();
    for (tv, data) in scheduled.tensors.iter() {
        let is_sink = scheduled.consumers(tv).is_empty();
        let lacking = iterated.iter().find(|root| !data.axes.iter().any(|axis| axis.concrete && axis.root == ***root));
        if is_sink && lacking.is_some() {
            return Err(Diagnostic::unsupported(
                code::NEEDS_SEGMENTS,
                format!("%{} is smaller than another result of the fusion", scheduled.fusion.tensors[data.source].name),
            )
            .note("one kernel computes results of one shape; split the fusion"));
        }
    }
    Ok(())
}
