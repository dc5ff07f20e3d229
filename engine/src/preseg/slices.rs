//! Slices and pads that do nothing, or undo each other: a slice of all elements and a pad by
//! nothing are the tensor, and so is the slice of a pad that cuts what was added. A slice that
//! lies in one operand of `cat` is a slice of that. A pad that only cuts is a slice: where it
//! lies is known, nothing is copied; a slice that leaves something of what a pad added is one pad. What is computed of inputs
//! element by element, and read in part, is computed of parts of them (`windows`): nothing of it is stored. So are single positions of what is computed
//! with what a row was reduced to. A slice of what is joined, and only sliced, is joined of slices.

use super::lookups::is_stored;
use super::make::{
    call as make, extents, is_all, join, ones, pad, pads_to, reshape, slice, slice_to, slices_to, squeeze, tensor,
};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use super::windows::{Made, Moved, Terms, Window, position};
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{AxisKind, Op, Operand, ScalarId, TensorId};
use std::cell::RefCell;
use std::rc::Rc;

/// Slices of parts that slices of what is joined are, at most: a kernel tells few readings apart.
const MOST_JOINED: usize = 8;
/// Operations that are done again for positions, at most.
const MOST_COMPUTED: usize = 64;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let made = Rc::new(RefCell::new(Made::default()));
    whole.each(&|whole, op| {
        let part = of_slice(whole, op).or_else(|| of_pad(whole, op)).or_else(|| of_computed(whole, op, &made));
        part.or_else(|| of_position(whole, op, &made))
    })
}

/// Where a slice starts and ends along each axis.
pub(super) fn ranges(whole: &Whole<'_>, op: &Op) -> Option<Vec<(i64, i64)>> {
    let own = call(op, Form::Slice)?;
    let (starts, ends) = (whole.numbers(op, own, "starts")?, whole.numbers(op, own, "ends")?);
    Some(starts.into_iter().zip(ends).collect())
}

fn of_slice<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (_, x, output) = (call(op, Form::Slice)?, operand(op)?, op.output());
    if whole.is_empty(output) {
        return None;
    }
    // As many elements as there are can only be all of them.
    if whole.sizes(x) == whole.sizes(output) {
        return same(whole, output, x);
    }
    let (ranges, maker) = (ranges(whole, op)?, whole.maker(x)?);
    if call(maker, Form::Pad).is_some() {
        return of_padded(whole, output, maker, &ranges);
    }
    of_cat(whole, output, maker, ranges.clone()).or_else(|| of_joined(whole, output, maker, &ranges))
}

/// A slice of what is joined that only slices read, as of rows with their ends again: what is joined of slices, so that nobody stores
/// the whole.
fn of_joined<'a>(whole: &'a Whole<'a>, output: TensorId, maker: &'a Op, ranges: &[(i64, i64)]) -> Option<Change<'a>> {
    let (cat, joined) = (call(maker, Form::Cat)?, maker.output());
    let (dim, parts) = (cat.axis("dim"), tensors(maker, cat, "tensors"));
    let others = ranges.iter().enumerate().filter(|(axis, _)| *axis != dim);
    let is_along = others.into_iter().all(|(axis, range)| *range == (0, whole.sizes(joined)[axis]));
    let is_slice = |reader: &Op| call(reader, Form::Slice).is_some() && !whole.is_returned(reader.output());
    let is_cut = whole.readers(joined).count() > 1 && whole.readers(joined).all(is_slice) && !whole.is_returned(joined);
    let is_usable = is_along && is_cut && whole.kind(output, dim) == AxisKind::Iteration;
    let touched = |ranges: &[(i64, i64)]| {
        let (mut place, mut shown) = (0, Vec::new());
        for &part in &parts {
            let (start, end) = (place, place + whole.sizes(part)[dim]);
            place = end;
            let (from, to) = (ranges[dim].0.max(start), ranges[dim].1.min(end));
            if from < to {
                let mut own = ranges.to_vec();
                own[dim] = (from - start, to - start);
                shown.push((part, own));
            }
        }
        shown
    };
    let all: usize =
        whole.readers(joined).filter_map(|reader| self::ranges(whole, reader)).map(|own| touched(&own).len()).sum();
    let shown = touched(ranges);
    (is_usable && all <= MOST_JOINED && shown.len() > 1).then(|| -> Change<'a> {
        Box::new(move |r| {
            let mut slices = Vec::with_capacity(shown.len());
            for (part, own) in shown {
                slices.push(slice(r, whole, part, &own)?.into());
            }
            join(&mut r.builder, slices, dim)
        })
    })
}

/// A slice of a pad: the pad that adds as much as is shown of it.
fn of_padded<'a>(whole: &'a Whole<'a>, output: TensorId, maker: &'a Op, ranges: &[(i64, i64)]) -> Option<Change<'a>> {
    let (x, padded, mut widths) = (operand(maker)?, maker.output(), widths(whole, maker)?);
    let (sizes, all) = (whole.sizes(x), whole.sizes(padded));
    for (axis, (width, &(start, end))) in widths.iter_mut().zip(ranges).enumerate() {
        // Something is left of what is padded.
        if width.0 + sizes[axis] <= start || end <= width.0 {
            return None;
        }
        *width = (width.0 - start, width.1 - (all[axis] - end));
    }
    if widths.iter().all(|width| *width == (0, 0)) {
        return same(whole, output, x);
    }
    // What is stored for others is seen there.
    let is_stored_for = |op: &Op| call(op, Form::Slice).is_none() && is_stored(op);
    if whole.is_returned(padded) || whole.readers(padded).any(is_stored_for) {
        return None;
    }
    pads_to(whole, output, x, &widths).then(|| -> Change<'a> { Box::new(move |r| pad(r, x, &widths, fill(maker))) })
}

fn of_cat<'a>(
    whole: &'a Whole<'a>,
    output: TensorId,
    maker: &'a Op,
    mut ranges: Vec<(i64, i64)>,
) -> Option<Change<'a>> {
    let cat = call(maker, Form::Cat)?;
    let (dim, mut place) = (cat.axis("dim"), 0);
    for part in tensors(maker, cat, "tensors") {
        let (start, end) = (place, place + whole.sizes(part)[dim]);
        place = end;
        let own = &mut ranges[dim];
        if own.0 < start || own.1 > end {
            continue;
        }
        *own = (own.0 - start, own.1 - start);
        let ones = ones(whole, output, part);
        let usable = match is_all(whole, part, &ranges) && !ones.contains(&true) {
            true => whole.stands_for(output, part),
            false => slices_to(whole, output, part, &ranges),
        };
        return usable.then(|| -> Change<'a> { Box::new(move |r| slice_to(r, whole, part, &ranges, &ones)) });
    }
    None
}

/// A part of what is computed of inputs element by element.
fn of_computed<'a>(whole: &'a Whole<'a>, op: &'a Op, made: &Rc<RefCell<Made>>) -> Option<Change<'a>> {
    let (moved, made) = (Moved::of(whole, op)?, Rc::clone(made));
    let (x, output) = (operand(op)?, op.output());
    let fits = match moved.window() {
        Window::Slice(ranges, _) => slices_to(whole, output, x, ranges),
        Window::Pad(widths) => pads_to(whole, output, x, widths),
        Window::Select(..) | Window::Squeeze(_) => true,
    };
    fits.then(|| -> Change<'a> { Box::new(move |r| moved.write(r, op, &mut made.borrow_mut())) })
}

/// The axis along which all that is read of a tensor, which is not returned, is at single positions.
fn shown_at_positions(whole: &Whole<'_>, x: TensorId) -> Option<usize> {
    let mut axes = whole.readers(x).map(|reader| position(whole, reader).map(|(axis, _)| axis));
    let first = axes.next()??;
    let is_shown = !whole.is_returned(x) && !whole.is_empty(x) && whole.sizes(x)[first] > 1;
    (is_shown && axes.all(|axis| axis == Some(first))).then_some(first)
}

/// One position of what is computed with what a row has once, where nobody reads more: what is stored is that alone.
fn of_position<'a>(whole: &'a Whole<'a>, op: &'a Op, made: &Rc<RefCell<Made>>) -> Option<Change<'a>> {
    let (x, output) = (operand(op)?, op.output());
    let (dim, at) = position(whole, op)?;
    shown_at_positions(whole, x)?;
    if let Some((seen, axis)) = seen_along(whole, x, dim) {
        return of_seen(whole, op, seen, (axis, at));
    }
    let terms = Terms::of(whole, x, dim).filter(|terms| terms.is_of_rows && terms.operations > 0)?;
    if terms.operations * whole.readers(x).count() > MOST_COMPUTED {
        return None;
    }
    let is_dropped = whole.rank(output) < whole.rank(x);
    let flags: Vec<bool> = (0..whole.rank(x)).map(|axis| is_dropped && axis == dim).collect();
    let made = Rc::clone(made);
    Some(Box::new(move |r| {
        let part = terms.write(r, at, &mut made.borrow_mut())?;
        let part = squeeze(&mut r.builder, part, &flags)?;
        // What is returned is a result of its own.
        match whole.is_returned(output) && r.stands_for_one(part) {
            true => tensor(r.builder.set(part)?),
            false => Ok(part),
        }
    }))
}

/// Of a reshape that leaves an axis as it is what it sees, and the axis in that.
fn seen_along(whole: &Whole<'_>, x: TensorId, dim: usize) -> Option<(TensorId, usize)> {
    let maker = whole.maker(x).filter(|maker| call(maker, Form::Reshape).is_some())?;
    let seen = operand(maker)?;
    let inside =
        |tensor: TensorId, axis: usize| whole.sizes(tensor)[axis..].iter().map(|size| i128::from(*size)).product();
    let place: [i128; 2] = [inside(x, dim), inside(x, dim + 1)];
    let is_it = |axis: &usize| [inside(seen, *axis), inside(seen, axis + 1)] == place;
    (0..whole.rank(seen)).rev().find(is_it).map(|axis| (seen, axis))
}

/// A position of what a reshape sees along an axis that it leaves alone: what is seen otherwise is the part.
fn of_seen<'a>(whole: &'a Whole<'a>, op: &'a Op, seen: TensorId, (axis, at): (usize, i64)) -> Option<Change<'a>> {
    let (x, output) = (operand(op)?, op.output());
    let terms = Terms::of(whole, seen, axis)?;
    let is_dropped = whole.rank(output) < whole.rank(x);
    if !terms.is_of_rows || terms.operations == 0 || !is_dropped || !whole.regroups(output) || !whole.declares(output) {
        return None;
    }
    Some(Box::new(move |r| {
        let new = r.tensor(seen)?;
        let part = make(&mut r.builder, "select", |args| {
            args.value("x", new).value("index", at).with("dim", OpArg::Int(axis as i64))
        })?;
        let shape = extents(r, whole, output);
        reshape(&mut r.builder, part, shape)
    }))
}

fn of_pad<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (_, x, output) = (call(op, Form::Pad)?, operand(op)?, op.output());
    let widths = widths(whole, op)?;
    if whole.is_empty(output) || widths.iter().any(|(before, after)| *before > 0 || *after > 0) {
        return None;
    }
    let range = |(width, size): (&(i64, i64), &i64)| (-width.0, size + width.1);
    let ranges: Vec<(i64, i64)> = widths.iter().zip(whole.sizes(x)).map(range).collect();
    if is_all(whole, x, &ranges) {
        return same(whole, output, x);
    }
    let ones = ones(whole, output, x);
    let fits = slices_to(whole, output, x, &ranges);
    fits.then(|| -> Change<'a> { Box::new(move |r| slice_to(r, whole, x, &ranges, &ones)) })
}

/// What a pad adds before and after each axis.
pub(super) fn widths(whole: &Whole<'_>, op: &Op) -> Option<Vec<(i64, i64)>> {
    let widths = whole.numbers(op, call(op, Form::Pad)?, "widths")?;
    Some(widths.chunks_exact(2).rev().map(|pair| (pair[0], pair[1])).collect())
}

/// The value of what a pad adds; none if that is 0.
pub(super) fn fill(op: &Op) -> Option<ScalarId> {
    match op.inputs[call(op, Form::Pad)?.operands("value")] {
        [Operand::Scalar(value)] => Some(value),
        _ => None,
    }
}

/// The result is a tensor that is there.
pub(super) fn same<'a>(whole: &'a Whole<'a>, output: TensorId, x: TensorId) -> Option<Change<'a>> {
    whole.stands_for(output, x).then(|| -> Change<'a> { Box::new(move |r| r.tensor(x)) })
}
