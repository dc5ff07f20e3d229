//! Slices and pads that do nothing, or undo each other: a slice of all elements and a pad by
//! nothing are the tensor, and so is the slice of a pad that cuts what was added. A slice that
//! lies in one operand of `cat` is a slice of that. A pad that only cuts is a slice: where it
//! lies is known, nothing is copied. What is computed of inputs element by element, and read by slices alone,
//! is computed of their slices: nothing of it is stored.

use super::make::{broadcast, is_all, slice, slices_to};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::diag::Result;
use crate::fusion::ops::Form;
use crate::fusion::{Op, OpKind, Rewriter, TensorId};

/// Operations between a slice and the inputs, one behind the other, through which it is moved.
const MOST_MOVED: usize = 16;

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
    if maker.kind.is_elementwise() {
        return of_computed(whole, output, x, ranges);
    }
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

/// A slice of what is computed of inputs element by element, if slices that have no element twice are all that read it.
fn of_computed<'a>(whole: &'a Whole<'a>, output: TensorId, x: TensorId, ranges: Vec<(i64, i64)>) -> Option<Change<'a>> {
    let count = |tensor: TensorId| whole.sizes(tensor).iter().fold(1i64, |n, size| n.saturating_mul(*size));
    let mut sliced = 0i64;
    for reader in whole.readers(x) {
        call(reader, Form::Slice)?;
        sliced = sliced.saturating_add(count(reader.output()));
    }
    let fits = !whole.is_returned(x) && sliced <= count(x) && slices_to(whole, output, x, &ranges);
    let is_moved = fits && operands(whole, x)?.into_iter().all(|operand| is_of_inputs(whole, operand, MOST_MOVED));
    is_moved.then(|| -> Change<'a> { Box::new(move |r| slice_of(r, whole, x, &ranges)) })
}

/// The tensors that an elementwise operation makes a tensor of; none if they have other axes.
fn operands(whole: &Whole<'_>, x: TensorId) -> Option<Vec<TensorId>> {
    let (maker, definition) = (whole.maker(x)?, whole.fusion.definition(x)?);
    let read: Vec<TensorId> = whole.fusion.tensor_inputs(definition).collect();
    let is_one = maker.kind.is_elementwise() && maker.outputs.len() == 1;
    (is_one && read.iter().all(|tensor| whole.rank(*tensor) == whole.rank(x))).then_some(read)
}

/// Whether a tensor is an input, or made of inputs by few elementwise operations for one reader.
fn is_of_inputs(whole: &Whole<'_>, x: TensorId, most: usize) -> bool {
    let Some(maker) = whole.maker(x) else { return true };
    if let (OpKind::Broadcast { .. }, Some(narrow)) = (&maker.kind, operand(maker)) {
        return whole.maker(narrow).is_none();
    }
    let operands = operands(whole, x).filter(|_| most > 0 && whole.is_read_once(x));
    operands.is_some_and(|operands| operands.into_iter().all(|operand| is_of_inputs(whole, operand, most - 1)))
}

/// What is computed of slices of inputs: the elements of a tensor between positions.
fn slice_of(r: &mut Rewriter<'_>, whole: &Whole<'_>, x: TensorId, ranges: &[(i64, i64)]) -> Result<TensorId> {
    if let Some(maker) = whole.maker(x)
        && let (OpKind::Broadcast { flags }, Some(narrow)) = (&maker.kind, operand(maker))
    {
        let own = ranges.iter().zip(flags).filter(|(_, inserted)| !**inserted);
        let own: Vec<(i64, i64)> = own.map(|(range, _)| *range).collect();
        let part = slice(r, whole, narrow, &own)?;
        return broadcast(&mut r.builder, part, flags);
    }
    let (Some(maker), Some(operands)) = (whole.maker(x), operands(whole, x)) else { return slice(r, whole, x, ranges) };
    let mut parts = Vec::with_capacity(operands.len());
    for operand in operands {
        // What has one element for all along an axis has it for those that are left.
        let own: Vec<(i64, i64)> = ranges
            .iter()
            .enumerate()
            .map(|(axis, range)| if whole.sizes(operand)[axis] == 1 { (0, 1) } else { *range })
            .collect();
        parts.push(slice_of(r, whole, operand, &own)?);
    }
    r.write_on(maker, &parts)
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
