//! Random graphs with small sizes: some axes in the middle, from which loops derive on one
//! side and the axes of a tensor on the other, each in both directions.

use super::numbers::Numbers;
use crate::axes::{AxisGraph, AxisId, Extent, Offset, Parts, ShiftId, Sign, WindowStep, Xform};
use crate::util::EntityId;
use arbtest::arbitrary::{Result, Unstructured};

/// A drawn graph.
pub(super) struct Drawn {
    pub(super) numbers: Numbers,
    pub(super) loops: Vec<AxisId>,
    pub(super) wanted: Vec<AxisId>,
}

const EXTENTS: [i64; 10] = [0, 1, 1, 2, 3, 3, 4, 5, 6, 8];

/// Draws a graph; the loops have at most `limit` points.
pub(super) fn draw(u: &mut Unstructured<'_>, limit: i64) -> Result<Drawn> {
    let mut numbers = Numbers::default();
    let middle = (0..u.int_in_range(1..=3)?).map(|_| root(u, &mut numbers)).collect::<Result<Vec<_>>>()?;
    let (mut loops, mut wanted) = (middle.clone(), middle);
    for _ in 0..u.int_in_range(0..=4)? {
        step(u, &mut numbers, &mut loops, limit)?;
    }
    for _ in 0..u.int_in_range(0..=4)? {
        unaligned_step(u, &mut numbers, &mut wanted, limit)?;
    }
    // Transforms that lead elsewhere.
    for _ in 0..u.int_in_range(0..=2)? {
        let axis = numbers.graph.ids().nth(u.choose_index(numbers.graph.len())?);
        unaligned_step(u, &mut numbers, &mut axis.into_iter().collect(), limit)?;
    }
    for position in 1..loops.len() {
        let other = u.int_in_range(0..=position)?;
        loops.swap(position, other);
    }
    while !wanted.is_empty() && u.ratio(1, 3)? {
        wanted.swap_remove(u.choose_index(wanted.len())?);
    }
    Ok(Drawn { numbers, loops, wanted })
}

fn extent(u: &mut Unstructured<'_>, numbers: &mut Numbers, value: i64) -> Result<Extent> {
    Ok(if u.arbitrary()? { Extent::Const(value) } else { Extent::Scalar(numbers.scalars.push(value)) })
}

fn root(u: &mut Unstructured<'_>, numbers: &mut Numbers) -> Result<AxisId> {
    let value = *u.choose(&EXTENTS)?;
    named(u, numbers, value)
}

fn named(u: &mut Unstructured<'_>, numbers: &mut Numbers, value: i64) -> Result<AxisId> {
    let extent = extent(u, numbers, value)?;
    let name = format!("d{}", numbers.graph.len());
    Ok(numbers.graph.root(name, extent))
}

/// Replaces some of the axes by what a transform makes of them, or made them of.
fn step(u: &mut Unstructured<'_>, numbers: &mut Numbers, axes: &mut Vec<AxisId>, limit: i64) -> Result<()> {
    if axes.is_empty() || u.ratio(9, 10)? {
        return unaligned_step(u, numbers, axes, limit);
    }
    let position = u.choose_index(axes.len())?;
    let vector = u.int_in_range(1..=3)?;
    let shift = ShiftId::from_index(numbers.shifts.len());
    numbers.shifts.push(u.int_in_range(0..=vector - 1)?);
    if u.arbitrary()? {
        axes[position] = numbers.graph.align(axes[position], vector, shift);
        return Ok(());
    }
    // Windows, numbered by the parts of the axis in another division of it.
    let axis = axes.swap_remove(position);
    let [outer, part] = split(u, numbers, axis)?;
    let (step, left) = (numbers.extent(part), u.int_in_range(0..=2)?);
    // As many indices for each of another axis.
    let of = numbers.graph.ids().nth(u.choose_index(numbers.graph.len())?).unwrap_or(part);
    let each = numbers.extent(of);
    if u.ratio(1, 3)? && each > 0 && step % each == 0 && step > 0 {
        axes.push(outer);
        let step = WindowStep { indices: step / each, of: Some(of) };
        axes.push(numbers.graph.window((axis, outer), (step.indices, step, 0), None));
        return Ok(());
    }
    let shift = if u.arbitrary()? { Some((vector, shift)) } else { None };
    let shifted = shift.map_or(0, |_| vector - 1);
    let width = step + left + shifted + u.int_in_range(0..=2)?;
    axes.push(outer);
    axes.push(numbers.graph.window((axis, outer), (width, WindowStep::constant(step), left), shift));
    Ok(())
}

/// The same without what leads back only.
fn unaligned_step(u: &mut Unstructured<'_>, numbers: &mut Numbers, axes: &mut Vec<AxisId>, limit: i64) -> Result<()> {
    if axes.is_empty() {
        return Ok(());
    }
    let first = axes.swap_remove(u.choose_index(axes.len())?);
    let second = if axes.is_empty() { None } else { Some(u.choose_index(axes.len())?) };
    let size = numbers.extent(first);
    match (u.int_in_range(0..=9)?, second) {
        (0 | 1, _) => axes.extend(split(u, numbers, first)?),
        (2..=4, _) => axes.push(resized(u, numbers, first)?),
        (5, _) => axes.extend(unmerged(u, numbers, first, size)?),
        (6 | 7, Some(second)) if size * numbers.extent(axes[second]) <= limit => {
            let second = axes.swap_remove(second);
            axes.push(numbers.graph.merge(first, second));
        }
        (8 | 9, Some(second)) if numbers.extent(axes[second]) >= 1 && size * numbers.extent(axes[second]) <= limit => {
            let inner = axes.swap_remove(second);
            axes.push(unsplit(u, numbers, first, inner)?);
        }
        _ => axes.push(first),
    }
    Ok(())
}

fn split(u: &mut Unstructured<'_>, numbers: &mut Numbers, axis: AxisId) -> Result<[AxisId; 2]> {
    let size = numbers.extent(axis);
    let count = u.int_in_range(1..=4)?;
    let known = u.arbitrary()?;
    let (outer, inner) = if u.ratio(1, 6)? {
        numbers.graph.split_turns(axis, Parts { places: count, beside: None })
    } else if u.ratio(1, 3)? {
        let parts = Parts { places: count, beside: None };
        let share = parts.share(size, 1);
        let exact = known && size % share == 0;
        numbers.graph.split(axis, |inner| Extent::Shares(axis, inner), Extent::Share(axis, parts), exact)
    } else {
        let exact = known && size % count == 0;
        numbers.graph.split(axis, |_| Extent::CeilDiv(axis, count), Extent::Const(count), exact)
    };
    Ok([outer, inner])
}

/// An axis that was cut or padded to become this one, or the other way round.
fn resized(u: &mut Unstructured<'_>, numbers: &mut Numbers, axis: AxisId) -> Result<AxisId> {
    let size = numbers.extent(axis);
    let left = u.int_in_range(-2..=2)?;
    let right = u.int_in_range(-2..=2)?;
    // Slices of one element have an index of their own, which programs make sure is the only one.
    let is_output = size != 1 && u.arbitrary()?;
    let other = if is_output { size - left - right } else { size + left + right };
    if other < 0 {
        return Ok(axis);
    }
    let (left, right) = (offset(u, numbers, left)?, offset(u, numbers, right)?);
    if !is_output {
        let extent = if other == 1 { Extent::Scalar(numbers.scalars.push(1)) } else { extent(u, numbers, other)? };
        return Ok(numbers.graph.resize(axis, extent, left, right));
    }
    let input = named(u, numbers, other)?;
    let (left, right) = (numbers.graph.offset(left), numbers.graph.offset(right));
    numbers.graph.push(Xform::Resize { input, output: axis, left, right });
    Ok(input)
}

/// A number as a constant or a scalar, with what it may be known for.
fn offset(u: &mut Unstructured<'_>, numbers: &mut Numbers, value: i64) -> Result<Offset> {
    if u.arbitrary()? {
        return Ok(Offset::constant(value));
    }
    let factor = if u.arbitrary()? { 1 } else { -1 };
    let constant = u.int_in_range(-3..=3)?;
    let scalar = numbers.scalars.push((value - constant) * factor);
    let sign = *u.choose(&[Sign::of(value), Sign::Unknown])?;
    Ok(Offset::sum(constant, [(factor, scalar)], sign))
}

/// Two axes that were merged to become this one.
fn unmerged(u: &mut Unstructured<'_>, numbers: &mut Numbers, output: AxisId, size: i64) -> Result<Vec<AxisId>> {
    let factors: Vec<(i64, i64)> =
        (0..=8).flat_map(|a| (0..=8).map(move |b| (a, b))).filter(|(a, b)| a * b == size).collect();
    if factors.is_empty() {
        return Ok(vec![output]);
    }
    let (a, b) = *u.choose(&factors)?;
    let (outer, inner) = (named(u, numbers, a)?, named(u, numbers, b)?);
    numbers.graph.push(Xform::Merge { outer, inner, output });
    Ok(vec![outer, inner])
}

/// An axis that was split to become these two.
fn unsplit(u: &mut Unstructured<'_>, numbers: &mut Numbers, outer: AxisId, inner: AxisId) -> Result<AxisId> {
    let (count, factor) = (numbers.extent(outer), numbers.extent(inner));
    let missing = if count == 0 { 0 } else { u.int_in_range(0..=factor - 1)? };
    let input = named(u, numbers, count * factor - missing)?;
    let exact = missing == 0 && u.arbitrary()?;
    numbers.graph.push(Xform::Split { input, outer, inner, exact });
    Ok(input)
}

/// The graph as text, for messages.
pub(super) fn described(numbers: &Numbers) -> String {
    let graph: &AxisGraph = &numbers.graph;
    let axes = graph.iter().map(|(id, axis)| format!("{id} {} [{}]", axis.name, numbers.extent(id)));
    let xforms = graph.xforms().map(|(id, xform)| format!("{id} {xform:?}"));
    axes.chain(xforms).collect::<Vec<_>>().join("\n")
}
