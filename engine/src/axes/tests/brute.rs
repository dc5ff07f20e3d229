//! What transforms mean, as relations between indices, found by search: nothing here
//! divides, follows flags or shares code with what is tested.

use super::numbers::Numbers;
use crate::axes::{AxisId, Extent, Xform};
use std::collections::BTreeMap;

/// The indices of axes that a point decides.
pub(super) type Point = BTreeMap<AxisId, i64>;

/// Which transforms lead on from the axes that they take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwards {
    /// All.
    All,
    /// All but those that align, since loops over rows do not say where those start.
    Unaligned,
}

/// All that follows from some indices, by trying every index of inner axes. A slice of one
/// element, and a part that has no other beside it and of which nothing is made, has index 0, if nothing else says otherwise.
pub(super) fn consequences(numbers: &Numbers, given: &Point, forwards: Forwards) -> Point {
    let mut point = spread(numbers, given.clone(), forwards);
    for (_, xform) in numbers.graph.xforms() {
        let parts = match *xform {
            Xform::Resize { output, .. } => vec![output],
            Xform::Split { outer, inner, .. } => {
                [outer, inner].into_iter().filter(|part| numbers.graph.is_leaf(*part)).collect()
            }
            _ => Vec::new(),
        };
        for part in parts.into_iter().filter(|part| numbers.graph[*part].extent == Extent::Const(1)) {
            point.entry(part).or_insert(0);
        }
    }
    spread(numbers, point, forwards)
}

fn spread(numbers: &Numbers, mut point: Point, forwards: Forwards) -> Point {
    loop {
        let before = point.len();
        for (_, xform) in numbers.graph.xforms() {
            for (axis, index) in related(numbers, xform, &point, forwards) {
                point.entry(axis).or_insert(index);
            }
        }
        if point.len() == before {
            return point;
        }
    }
}

/// What one transform says of the other side, where one side is known.
fn related(numbers: &Numbers, xform: &Xform, point: &Point, forwards: Forwards) -> Vec<(AxisId, i64)> {
    let at = |axis: &AxisId| point.get(axis).copied();
    // `whole = outer * n + inner`, 0 <= inner < n.
    let grouped = |whole: AxisId, outer: AxisId, inner: AxisId| -> Vec<(AxisId, i64)> {
        let n = numbers.extent(inner);
        if let (Some(o), Some(i)) = (at(&outer), at(&inner)) {
            return if (0..n).contains(&i) { vec![(whole, o * n + i)] } else { Vec::new() };
        }
        let Some(w) = at(&whole) else { return Vec::new() };
        for i in 0..n {
            // The number of times that n goes into what is left, if it does, by counting.
            let mut o = 0;
            while (o + 1) * n + i <= w {
                o += 1;
            }
            while o * n + i > w {
                o -= 1;
            }
            if o * n + i == w {
                return vec![(outer, o), (inner, i)];
            }
        }
        Vec::new()
    };
    // `to = from + by`
    let moved = |from: AxisId, to: AxisId, by: i64| -> Vec<(AxisId, i64)> {
        let back = at(&to).map(|index| (from, index - by));
        back.into_iter().chain(at(&from).map(|index| (to, index + by))).collect()
    };
    match *xform {
        Xform::Split { input, outer, inner, .. } => grouped(input, outer, inner),
        Xform::Merge { outer, inner, output } => grouped(output, outer, inner),
        Xform::Align { input, output, shift, .. } => {
            let mut known = moved(input, output, numbers.shift(shift));
            known.retain(|(axis, _)| *axis == input || forwards == Forwards::All);
            known
        }
        Xform::Window { input, outer, inner, step, left, shift } => {
            let by = left + shift.map_or(0, |(_, shift)| numbers.shift(shift));
            let Some(o) = at(&outer) else { return Vec::new() };
            moved(input, inner, by - o * step.times(|of| numbers.extent(of)))
        }
        Xform::Resize { input, output, left, .. } => moved(input, output, numbers.offset(&numbers.graph[left])),
    }
}

/// Whether some axis has two indices: loops mean one thing and another, which those of one
/// tensor of a program never do.
pub(super) fn is_contradictory(numbers: &Numbers, point: &Point) -> bool {
    let at = |axis: AxisId| point.get(&axis).copied();
    let grouped = |whole: AxisId, outer: AxisId, inner: AxisId| {
        let n = numbers.extent(inner);
        let known = at(whole).zip(at(outer)).zip(at(inner)).filter(|(_, i)| (0..n).contains(i));
        known.is_some_and(|((w, o), i)| w != o * n + i)
    };
    numbers.graph.xforms().any(|(_, xform)| match *xform {
        Xform::Split { input, outer, inner, .. } => grouped(input, outer, inner),
        Xform::Merge { outer, inner, output } => grouped(output, outer, inner),
        Xform::Align { .. } => false,
        Xform::Window { input, outer, inner, step, left, shift } => {
            let by = left + shift.map_or(0, |(_, shift)| numbers.shift(shift));
            at(input)
                .zip(at(outer))
                .zip(at(inner))
                .is_some_and(|((a, o), i)| a != o * step.times(|of| numbers.extent(of)) + i - by)
        }
        Xform::Resize { input, output, left, .. } => {
            at(input).zip(at(output)).is_some_and(|(a, b)| b != a + numbers.offset(&numbers.graph[left]))
        }
    })
}

/// Whether an index is one of its axis.
pub(super) fn is_inside(numbers: &Numbers, axis: AxisId, index: i64) -> bool {
    (0..numbers.extent(axis)).contains(&index)
}

/// All points of some axes.
pub(super) fn points(numbers: &Numbers, axes: &[AxisId]) -> Vec<Point> {
    axes.iter().fold(vec![Point::new()], |points, axis| {
        let extent = numbers.extent(*axis);
        let with = |point: &Point, index: i64| {
            let mut point = point.clone();
            point.insert(*axis, index);
            point
        };
        points.iter().flat_map(|point| (0..extent).map(move |index| with(point, index))).collect()
    })
}
