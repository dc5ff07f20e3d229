//! Slices and pads that do nothing, or undo each other: a slice of all elements and a pad by
//! nothing are the tensor, and so is the slice of a pad that cuts what was added. A slice that
//! lies in one operand of `cat` is a slice of that. A pad that only cuts is a slice: where it
//! lies is known, nothing is copied; a slice that leaves something of what a pad added is one pad. What is computed of inputs
//! element by element, and read in part, is computed of parts of them (`windows`): nothing of it is stored.

use super::lookups::is_stored;
use super::make::{is_all, ones, pad, pads_to, slice_to, slices_to};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use super::windows::{Made, Moved, Window};
use crate::fusion::ops::Form;
use crate::fusion::{Op, Operand, ScalarId, TensorId};
use std::cell::RefCell;
use std::rc::Rc;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let made = Rc::new(RefCell::new(Made::default()));
    whole.each(&|whole, op| of_slice(whole, op).or_else(|| of_pad(whole, op)).or_else(|| of_computed(whole, op, &made)))
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
    of_cat(whole, output, maker, ranges)
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
