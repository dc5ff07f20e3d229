//! What a schedule that somebody wrote asks of sizes.

use crate::axes::{AxisId, Derivation, Xform};
use crate::diag::{Diagnostic, Result, code};
use crate::schedule::heuristic::Sizes;
use crate::schedule::ir::{Io, ScheduledFusion, Tv};
use std::collections::BTreeMap;

/// Whether sizes keep what the schedule promises of them, and every element has a place in the loops.
pub fn check_sizes(scheduled: &ScheduledFusion, sizes: &Sizes) -> Result<()> {
    let extent = |axis| sizes.extent(scheduled, axis);
    for (_, xform) in scheduled.axes.xforms() {
        let Xform::Split { input, outer, inner, exact } = *xform else { continue };
        let covered = extent(outer).saturating_mul(extent(inner));
        if covered < extent(input) || exact && covered > extent(input) {
            let [axis, parts, of] = [input, outer, inner].map(extent);
            let name = &scheduled.axes[input].name;
            let message =
                format!("{name} has {axis} indices, which are not the {parts} parts of {of} that are promised");
            return Err(Diagnostic::user(code::SCHEDULE_SIZES, message).note(
                "without `exact` indices are tested, and without `count` there are as many parts as cover the axis",
            ));
        }
    }
    if let Some(axis) = scheduled.axes.ids().find(|axis| extent(*axis) < scheduled.axes[*axis].least) {
        let (name, least) = (&scheduled.axes[axis].name, scheduled.axes[axis].least);
        let message = format!("{name} has {} indices, and {least} at least are promised", extent(axis));
        return Err(Diagnostic::user(code::SCHEDULE_SIZES, message).note("without `at_least` all indices are tested"));
    }
    for (_, xform) in scheduled.axes.xforms() {
        let Xform::Window { input, outer, inner, step, left, shift } = *xform else { continue };
        let shifted = shift.map_or(0, |(vector, _)| vector - 1);
        let step = step.times(extent);
        let last = extent(outer).saturating_sub(1).saturating_mul(step);
        let end = last.saturating_add(extent(inner)) - left - shifted;
        if end < extent(input) && extent(outer) > 0 {
            let (name, number) = (&scheduled.axes[input].name, &scheduled.axes[outer].name);
            let message = format!("windows of {name}, one for each of the {} of {number}, end at {end}", extent(outer));
            return Err(
                Diagnostic::user(code::SCHEDULE_SIZES, message).note(format!("{name} has {} indices", extent(input)))
            );
        }
    }
    for (tv, data) in scheduled.tensors.iter().filter(|(_, data)| matches!(data.io, Some(Io::Output(_)))) {
        let has_elements = data.indexed().all(|axis| extent(axis) > 0);
        // Of a merged axis the tensor may have a part, and the other one no index.
        let derivation = Derivation::new(&scheduled.axes, data.loop_axes());
        let needed = derivation.needed(&scheduled.axes, data.indexed());
        let empty = data.loop_axes().chain(needed).find(|axis| extent(*axis) == 0);
        if let (true, Some(axis)) = (has_elements, empty) {
            let message =
                format!("%{} has elements, but its loops no index of {}", data.name, scheduled.axes[axis].name);
            return Err(Diagnostic::user(code::SCHEDULE_SIZES, message).note(scheduled.loops_text(tv)));
        }
    }
    Ok(())
}

/// The greatest number that an index, or a product of extents, may reach, where the tensors at
/// hand reach over so many elements: splits that do not divide an axis run over more than it has.
pub(crate) fn greatest_index(scheduled: &ScheduledFusion, sizes: &Sizes, reach: i64) -> i64 {
    let extent = |axis| sizes.extent(scheduled, axis).max(1);
    let padded = |reach: i64, xform: &Xform| match *xform {
        Xform::Split { input, outer, inner, exact: false } => {
            let (of, parts) = (extent(input), extent(outer).saturating_mul(extent(inner)));
            reach.saturating_mul(parts / of + i64::from(parts % of != 0))
        }
        Xform::Align { input, output, .. } => reach.saturating_mul(1 + (extent(output) - 1) / extent(input)),
        Xform::Window { input, outer, inner, step, .. } => {
            let end = extent(outer).saturating_mul(step.times(extent)).saturating_add(extent(inner));
            reach.saturating_mul(1 + end / extent(input))
        }
        _ => reach,
    };
    let reach = scheduled.axes.xforms().map(|(_, xform)| xform).fold(reach.max(1), padded);
    // Indices of what is padded run over it, with the widths around. Of parts of one axis no tensor has two.
    let mut widened: BTreeMap<AxisId, i64> = BTreeMap::new();
    for (_, xform) in scheduled.axes.xforms() {
        if let Xform::Resize { input, output, .. } = *xform {
            let times = widened.entry(output).or_default();
            *times = (*times).max(2 + (extent(output) - 1) / extent(input));
        }
    }
    let reach = widened.values().fold(reach, |reach, times| reach.saturating_mul(*times));
    // A loop that loads ahead asks whether there is an iteration so many further on.
    let ahead = |data: &Tv| {
        let own = data.inline_at.checked_sub(1).and_then(|last| data.loops.get(last));
        own.map_or(0, |own| extent(own.axis).saturating_add(data.iterations_ahead().into()))
    };
    let reach = scheduled.tensors.values().filter(|data| data.stages > 0).map(ahead).fold(reach, i64::max);
    scheduled.axes.ids().map(extent).fold(reach, i64::max)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::fusion::bind;
    use crate::num::DType;
    use crate::schedule::{schedule_by_text, scheduled_fusion};
    use crate::tensor::{ArgMeta, TensorMeta};
    use crate::text;

    /// The greatest index of a loop over so many elements, with one more line of its schedule.
    fn check_greatest(elements: i64, line: &str, expected: i64) {
        let fusion = text::parse_one("fusion @neg(%x: f32[?]) {\n  %0 = neg %x\n  return %0\n}").unwrap();
        let metas = [ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &[elements]))];
        let sizes = Sizes::new(&fusion, &bind(&fusion, &metas).unwrap());
        let schedule = format!("cache_after %x\npropagate d0\nset_memory %x_r shared\ninline_at %x_r 1\n{line}");
        let scheduled = schedule_by_text(&scheduled_fusion(&fusion).unwrap(), &schedule).unwrap();
        assert_eq!(greatest_index(&scheduled, &sizes, elements), expected, "{elements} elements: {line}");
    }

    /// A loop that loads ahead computes the index of an iteration that may not exist.
    #[test]
    fn loading_ahead_reaches_behind_the_loop() {
        let most = i64::from(i32::MAX);
        check_greatest(most - 3, "", most - 3);
        check_greatest(most - 3, "circular_buffer %x_r 4", most);
        check_greatest(most - 3, "circular_buffer %x_r 8", most + 4);
    }
}
