//! Slices and pads that do nothing, or undo each other: a slice of all elements and a pad by
//! nothing are the tensor, and so is the slice of a pad that cuts what was added. A slice that
//! lies in one operand of `cat` is a slice of that. A pad that only cuts is a slice: where it
//! lies is known, nothing is copied.

use super::make::{is_all, slice, slices_to};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::fusion::ops::Form;
use crate::fusion::{Op, TensorId};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(|whole, op| of_slice(whole, op).or_else(|| of_pad(whole, op)))
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
        let (padded, before) = (operand(maker)?, widths(whole, maker)?);
        let undoes = ranges.iter().zip(&before).all(|(range, width)| range.0 == width.0);
        return if undoes && whole.sizes(padded) == whole.sizes(output) { same(whole, output, padded) } else { None };
    }
    of_cat(whole, output, maker, ranges)
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
        let usable = match is_all(whole, part, &ranges) {
            true => whole.stands_for(output, part),
            false => slices_to(whole, output, part, &ranges),
        };
        return usable.then(|| -> Change<'a> { Box::new(move |r| slice(r, whole, part, &ranges)) });
    }
    None
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
    slices_to(whole, output, x, &ranges).then(|| -> Change<'a> { Box::new(move |r| slice(r, whole, x, &ranges)) })
}

/// What a pad adds before and after each axis.
fn widths(whole: &Whole<'_>, op: &Op) -> Option<Vec<(i64, i64)>> {
    let widths = whole.numbers(op, call(op, Form::Pad)?, "widths")?;
    Some(widths.chunks_exact(2).rev().map(|pair| (pair[0], pair[1])).collect())
}

/// The result is a tensor that is there.
pub(super) fn same<'a>(whole: &'a Whole<'a>, output: TensorId, x: TensorId) -> Option<Change<'a>> {
    whole.stands_for(output, x).then(|| -> Change<'a> { Box::new(move |r| r.tensor(x)) })
}
