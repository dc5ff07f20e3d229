//! Picks the heuristic: the first of the table that accepts the fusion. Where
//! none does, the refusal tells the reason of each.
//!
//! A [`Decision`] is all that a schedule takes from sizes and options: equal decisions
//! about one fusion give one schedule, so it is a key of kernels.

use super::structure::Unscheduled;
use super::summary::Summary;
use super::tile::Caching;
use super::{
    Sizes, boxes, folded_columns, grid_persistent, heads, images, inner_outer, norm_inner, pointwise, reduction,
    short_columns, short_rows, stacked, stacked_rows, summed_rows, transpose, tuning,
};
use crate::diag::{Diagnostic, Result, code};
use crate::options::CompileCx;
use crate::schedule::{ArgClass, AxisId, ScheduleBuilder, ScheduledFusion};

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

/// What a heuristic is asked about, beside the unscheduled fusion.
pub(super) struct Problem<'a> {
    pub(super) cx: &'a CompileCx<'a>,
    pub(super) summary: &'a Summary<'a>,
    pub(super) sizes: &'a Sizes,
}

/// Why a heuristic does not take a fusion.
pub(super) enum Refusal {
    /// The fusion is of another pattern.
    Pattern(String),
    /// The pattern is right, but a limit is in the way.
    Limit(Box<Diagnostic>),
}

impl From<Box<Diagnostic>> for Refusal {
    fn from(limit: Box<Diagnostic>) -> Self {
        Self::Limit(limit)
    }
}

/// A way to schedule fusions of one pattern.
pub(super) struct Heuristic {
    /// Its name, which kernels bear.
    pub(super) name: &'static str,
    /// Whether it takes the fusion. What it accepts, it plans.
    pub(super) accepts: fn(&Problem<'_>, &ScheduledFusion) -> Result<(), Refusal>,
    /// Whether it knows outputs that are parts of something else: rows with gaps between, that start anywhere.
    pub(super) writes_parts: bool,
    /// Chooses parameters.
    pub(super) choose: fn(&Problem<'_>, &ScheduledFusion) -> Result<Params>,
}

/// The parameters of a heuristic: plain data, of which a schedule is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Params {
    Images(Box<images::ImageParams>),
    Heads(heads::HeadParams),
    Boxes(Box<boxes::BoxParams>),
    Transpose(Box<transpose::TransposeParams>),
    Stacked(Box<stacked::StackedParams>),
    StackedRows(Box<stacked_rows::StackedRowParams>),
    SummedRows(Box<summed_rows::SummedRowParams>),
    Pointwise(pointwise::PointwiseParams),
    ShortRows(Box<short_rows::ShortRowParams>),
    ShortColumns(short_columns::ColumnParams),
    FoldedColumns(folded_columns::FoldedParams),
    Reduction(reduction::ReductionParams),
    InnerPersistent(norm_inner::NormParams),
    InnerOuter(inner_outer::InnerOuterParams),
    GridPersistent(grid_persistent::GridParams),
}

/// How a fusion is scheduled, for some sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The heuristic.
    scheduler: &'static str,
    params: Params,
    caching: Caching,
    /// Whether some axis has no element: then no split is exact.
    has_empty_axis: bool,
}

/// All heuristics. The first that accepts a fusion plans it.
const HEURISTICS: &[Heuristic] = &[
    transpose::HEURISTIC,
    stacked::HEURISTIC,
    stacked_rows::HEURISTIC,
    pointwise::HEURISTIC,
    short_rows::HEURISTIC,
    short_columns::HEURISTIC,
    folded_columns::HEURISTIC,
    reduction::HEURISTIC,
    grid_persistent::HEURISTIC,
    norm_inner::HEURISTIC,
    inner_outer::HEURISTIC,
    summed_rows::HEURISTIC,
];

/// Decides how to schedule a fusion for a device and sizes.
pub fn decide(cx: &CompileCx<'_>, unscheduled: &Unscheduled, class: &ArgClass, sizes: &Sizes) -> Result<Decision> {
    tuning::check(cx.options)?;
    let scheduled = &unscheduled.scheduled;
    let summary = Summary::new(unscheduled, class, sizes);
    let problem = Problem { cx, summary: &summary, sizes };
    let heuristic = choose(HEURISTICS, &problem, scheduled)?;
    if class.writes_parts() {
        // What takes the place of one that knows no parts is slower.
        check_writes_parts(of_wholes(cx, unscheduled, class, sizes)?)?;
        check_writes_parts(heuristic)?;
    }
    let is_empty = |root: &AxisId| sizes.extent(scheduled, *root) == 0;
    Ok(Decision {
        scheduler: heuristic.name,
        params: (heuristic.choose)(&problem, scheduled)?,
        caching: Caching::new(&summary, cx.options),
        has_empty_axis: summary.structure.roots.iter().any(is_empty),
    })
}

/// What would write whole tensors instead of parts.
fn of_wholes(
    cx: &CompileCx<'_>,
    unscheduled: &Unscheduled,
    class: &ArgClass,
    sizes: &Sizes,
) -> Result<&'static Heuristic> {
    let class = ArgClass { outputs: Vec::new(), ..class.clone() };
    let summary = Summary::new(unscheduled, &class, sizes);
    choose(HEURISTICS, &Problem { cx, summary: &summary, sizes }, &unscheduled.scheduled)
}

fn check_writes_parts(heuristic: &Heuristic) -> Result<()> {
    if heuristic.writes_parts {
        return Ok(());
    }
    let message = format!("`{}` writes whole tensors, and no parts of something else", heuristic.name);
    Err(Diagnostic::unsupported(code::NEEDS_SEGMENTS, message))
}

/// Schedules a fusion as was decided.
pub fn schedule(unscheduled: &Unscheduled, decision: &Decision) -> Result<Planned> {
    let Decision { scheduler, params, caching, has_empty_axis } = decision;
    let mut builder = ScheduleBuilder::new(unscheduled.scheduled.clone());
    if *has_empty_axis {
        builder.distrust_exact_splits();
    }
    let params_text = match params {
        Params::Images(params) => {
            images::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::Heads(params) => {
            heads::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::Boxes(params) => {
            boxes::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::Transpose(params) => {
            transpose::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::Stacked(params) => {
            stacked::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::StackedRows(params) => {
            stacked_rows::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::SummedRows(params) => {
            summed_rows::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::Pointwise(params) => {
            pointwise::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::ShortRows(params) => {
            short_rows::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::ShortColumns(params) => {
            short_columns::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::FoldedColumns(params) => {
            folded_columns::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::Reduction(params) => {
            reduction::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::InnerPersistent(params) => {
            norm_inner::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::InnerOuter(params) => {
            inner_outer::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
        Params::GridPersistent(params) => {
            grid_persistent::apply(&mut builder, *caching, params)?;
            params.to_string()
        }
    };
    Ok(Planned { scheduler, params_text, scheduled: builder.finish() })
}

/// The first heuristic that accepts the fusion. Else the refusal is the first
/// limit that one met whose pattern the fusion has, with the reason of every one.
fn choose<'h>(table: &'h [Heuristic], problem: &Problem<'_>, scheduled: &ScheduledFusion) -> Result<&'h Heuristic> {
    let mut limit = None;
    let mut reasons = Vec::with_capacity(table.len());
    for heuristic in table {
        let reason = match (heuristic.accepts)(problem, scheduled) {
            Ok(()) => return Ok(heuristic),
            Err(Refusal::Pattern(reason)) => reason,
            Err(Refusal::Limit(refusal)) => {
                let reason = refusal.message.clone();
                limit.get_or_insert(refusal);
                reason
            }
        };
        reasons.push(format!("{}: {reason}", heuristic.name));
    }
    let none = || Diagnostic::unsupported(code::NO_SCHEDULER, "the fusion is of no scheduler's pattern");
    let mut refusal = limit.unwrap_or_else(none);
    refusal.notes.extend(reasons);
    Err(refusal)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fusion::{Fusion, bind, concretize};
    use crate::num::DType;
    use crate::options::{DeviceDesc, NoTrace, Options};
    use crate::schedule::scheduled_fusion;
    use crate::tensor::{ArgMeta, TensorMeta};
    use crate::text;

    /// What a fusion is scheduled as on an H200, of dense aligned tensors of these types and sizes.
    pub(in super::super) fn planned_of(fusion: &str, tensors: &[(DType, &[i64])]) -> Result<Planned> {
        planned_for(&text::parse_one(fusion).expect("it reads"), &args_of(tensors))
    }

    /// The same of a fusion whose axes these sizes decide.
    pub(in super::super) fn planned_concrete(fusion: &str, tensors: &[(DType, &[i64])]) -> Result<Planned> {
        let (fusion, args) = (text::parse_one(fusion).expect("it reads"), args_of(tensors));
        let facts = concretize::facts(&fusion, &bind(&fusion, &args).expect("it binds"));
        planned_for(&concretize::concretize(&fusion, &facts).expect("sizes are known").fusion, &args)
    }

    fn args_of(tensors: &[(DType, &[i64])]) -> Vec<ArgMeta> {
        let tensor = |(dtype, sizes): &(DType, &[i64])| ArgMeta::Tensor(TensorMeta::contiguous(*dtype, sizes));
        tensors.iter().map(tensor).collect()
    }

    /// The same of arguments that lie as they say.
    pub(in super::super) fn planned_for(fusion: &Fusion, args: &[ArgMeta]) -> Result<Planned> {
        let bindings = bind(fusion, args).expect("it binds");
        let (device, options) = (DeviceDesc::h200(), Options::default());
        let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
        let sizes = Sizes::new(fusion, &bindings);
        let class = ArgClass::new(fusion, args, &vec![16; args.len()], sizes.elements(), &options);
        let unscheduled = Unscheduled::new(scheduled_fusion(fusion)?)?;
        schedule(&unscheduled, &decide(&cx, &unscheduled, &class, &sizes)?)
    }

    /// The same over dense `f32` inputs.
    fn planned(fusion: &str, sizes: &[&[i64]]) -> Result<Planned> {
        let tensors: Vec<(DType, &[i64])> = sizes.iter().map(|sizes| (DType::F32, *sizes)).collect();
        planned_of(fusion, &tensors)
    }

    fn check_refused(fusion: &str, sizes: &[&[i64]], refused: crate::diag::Code, reasons: [&str; HEURISTICS.len()]) {
        let error = planned(fusion, sizes).expect_err("it is refused");
        assert_eq!(error.code, refused, "{error}");
        let names = HEURISTICS.iter().map(|heuristic| heuristic.name);
        let told: Vec<&str> = error.notes.iter().rev().take(reasons.len()).rev().map(String::as_str).collect();
        for ((name, reason), told) in names.zip(reasons).zip(told) {
            assert!(told.starts_with(&format!("{name}: ")) && told.contains(reason), "{told}\nwanted {reason}");
        }
    }

    #[test]
    fn each_pattern_has_its_heuristic() {
        let check = |body: &str, scheduler: &str| {
            let text = format!("fusion @f(%x: f32[?, ?]) {{\n  {body}\n}}");
            assert_eq!(planned(&text, &[&[8, 32]]).expect("it is scheduled").scheduler, scheduler, "{body}");
        };
        check("%0 = tanh %x\n  return %0", "pointwise");
        check("%0 = sum %x axes(1)\n  return %0", "reduction");
        check("%0 = sum %x axes(0)\n  return %0", "reduction");
        check("%0 = sum %x axes(1) keepdim\n  %1 = div %x, %0\n  return %1", "inner_persistent");
    }

    #[test]
    fn large_tensors_along_two_dimensions_meet_in_tiles() {
        let turned = "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {\n  %0 = permute %x dims(1, 0)\n  \
            %1 = add %0, %y\n  return %1\n}";
        let check = |[m, n]: [i64; 2], scheduler: &str| {
            let planned = planned(turned, &[&[m, n], &[n, m]]).expect("it is scheduled");
            assert_eq!(planned.scheduler, scheduler, "{m} x {n}");
        };
        check([512, 511], "transpose");
        check([100_000, 8], "transpose");
        check([100_000, 7], "transpose");
        // The second-level cache has what is small.
        check([64, 64], "pointwise");
    }

    #[test]
    fn a_refusal_tells_the_reason_of_every_heuristic() {
        check_refused(
            "fusion @f(%x: f32[?, ?]) {\n  %0 = sum %x axes(0)\n  %1 = sum %x axes(1)\n  return %0, %1\n}",
            &[&[8, 32]],
            code::NEEDS_SEGMENTS,
            [
                "has reductions",
                "has reductions",
                "results differ in their dimensions",
                "has reductions",
                "%0 and %1 reduce over different",
                "%0 and %1 reduce over different",
                "%0 and %1 reduce over different",
                "%0 and %1 reduce over different",
                "%0 and %1 reduce over different",
                "%0 and %1 reduce over different",
                "no block holds a row",
                "neither reduction is over a few positions",
            ],
        );
        check_refused(
            "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {\n  %0 = tanh %x\n  %1 = exp2 %y\n  return %0, %1\n}",
            &[&[4, 8], &[5, 7]],
            code::NEEDS_SEGMENTS,
            [
                "no large tensors run along two",
                "results differ in their dimensions",
                "no reduction",
                "has dimensions that no tensor shares",
                "no reduction",
                "no reduction",
                "no reduction",
                "no reduction",
                "no reduction",
                "no reduction",
                "not both reductions",
                "not over two sets of dimensions",
            ],
        );
        check_refused(
            "fusion @f(%x: f32[?, ?]) {\n  %0 = sum %x axes(1) keepdim\n  %1 = div %x, %0\n  return %1\n}",
            &[&[2, 100_000_000]],
            code::TOO_LONG_ROW,
            [
                "has reductions",
                "has reductions",
                "inputs have all axes",
                "has reductions",
                "rows of 100000000 elements are few",
                "rows lie along memory",
                "varies along the reduced dimensions after",
                "varies along the reduced dimensions after",
                "do not hold a row together",
                "a row of 100000000 elements",
                "not both reductions",
                "not over two sets of dimensions",
            ],
        );
    }
}
