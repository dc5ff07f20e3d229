//! What is joined of parts that are computed of the same tensors is chosen part by part: windows of a tensor that are joined to
//! columns, sums and differences of what lies in pairs, or the halves of rows that each need both (rotary embeddings, and
//! their gradients).
//!
//! Such a part is the whole along an axis of its own, and the result takes the part whose number that axis has: a thread computes
//! the same place of every part, reads what the parts have in common once, and writes each to its place (`heuristic/stacked`).
//! As operands of `cat`, pads are a kernel each, and parts read all they are made of for themselves.
//!
//! Parts are of one length: the greatest that divides all that is joined. What is longer, as the rest of a row of which only the
//! beginning is turned, is several parts, if it is in memory or a conversion of that.
//!
//! Only results are written so, or what a view makes a result of, since a stack of long parts is a view of memory; also where axes
//! are moved before the result is copied row by row. Parts are made by few operations of arguments that are row-major, as the result is then.

use super::make::{broadcast, extents, ones, reshape, slice_to, tensor};
use super::slices::ranges;
use super::whole::{Change, Changes, Whole, call, operand, placed_row_major, tensors};
use super::windows::is_in_memory;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::Form;
use crate::fusion::{MAX_RANK, Op, OpKind, Rewriter, Src, TensorId};
use crate::kernel::gcd;
use crate::num::{BinaryOp, DType, TernaryOp};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Parts, at most: a thread has a vector of each.
const MOST_PARTS: usize = 16;
/// Tensors in memory that are read, each window of one counted, at most.
const MOST_READ: usize = 16;
/// Operations that make the parts, at most.
const MOST_OPS: usize = 64;
/// Elements of a part behind the axis along which it is joined, at least: neighbours in memory for neighbouring threads.
const LEAST_RUN: i64 = 64;
/// Elements of a part from the axis on, at least and at most, where there are fewer behind it: longer ones are better shifted into
/// place where they start at odd places.
const SHORT_RUNS: std::ops::RangeInclusive<i64> = 4..=1024;

/// The numbers of parts that are made: for each stack of these sizes along an axis, of so many parts.
type Numbers = BTreeMap<(Vec<i64>, usize, i64), TensorId>;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let numbers = Rc::new(RefCell::new(Numbers::new()));
    whole.each(&move |whole, op| {
        let stack = Stack::of(whole, op)?;
        let numbers = Rc::clone(&numbers);
        let change: Change<'a> = Box::new(move |r| stack.write(r, whole, &mut numbers.borrow_mut()));
        Some(change)
    })
}

/// A result, and the parts of one length that it is joined of.
struct Stack<'a> {
    output: TensorId,
    /// What is joined, of which the result is a copy, maybe converted, with its axes in this order.
    joined: TensorId,
    order: Option<&'a [u32]>,
    pieces: Vec<TensorId>,
    /// The axis along which they are joined, in the result and in the pieces.
    dim: usize,
    cut: usize,
    /// Of a part, along the axis.
    length: i64,
}

impl<'a> Stack<'a> {
    fn of(whole: &'a Whole<'a>, op: &'a Op) -> Option<Self> {
        let (joined, order) = joined(whole, op)?;
        let (output, cat) = (op.output(), call(joined, Form::Cat)?);
        let (pieces, cut) = (tensors(joined, cat, "tensors"), cat.axis("dim"));
        let dim = order.map_or(Some(cut), |order| order.iter().position(|axis| *axis as usize == cut))?;
        let length = pieces.iter().map(|piece| whole.sizes(*piece)[cut]).fold(0, gcd);
        let this = Self { output, joined: joined.output(), order, pieces, dim, cut, length };
        (length > 0 && this.has_place(whole) && this.is_worth_it(whole)).then_some(this)
    }

    /// Parts of a piece.
    fn parts_of(&self, whole: &Whole<'_>, piece: TensorId) -> i64 {
        whole.sizes(piece)[self.cut] / self.length
    }

    /// Parts of all pieces.
    fn count(&self, whole: &Whole<'_>) -> i64 {
        whole.sizes(self.output)[self.dim] / self.length
    }

    /// Elements of the result behind the axis.
    fn behind(&self, whole: &Whole<'_>) -> i64 {
        whole.sizes(self.output)[self.dim + 1..].iter().product()
    }

    /// Whether the result can be a stack: nothing but a view is made of it, and its parts are alike.
    fn has_place(&self, whole: &Whole<'_>) -> bool {
        let Self { output, .. } = *self;
        let is_view = |reader: &Op| {
            let moves = call(reader, Form::Reshape).is_some() || matches!(reader.kind, OpKind::Permute { .. });
            moves && whole.is_returned(reader.output())
        };
        let is_result = whole.readers(output).all(is_view);
        let [dtype, last] = [self.joined, output].map(|own| whole.fusion.tensors[own].dtype);
        let is_plain = |dtype: DType| dtype.is_int() || dtype.is_float() && dtype.bytes() > 1;
        let is_alike = |piece: &TensorId| {
            let is_cut = self.parts_of(whole, *piece) == 1 || is_cut(whole, *piece);
            whole.fusion.tensors[*piece].dtype == dtype && whole.regroups(*piece) && is_cut
        };
        let behind = self.behind(whole);
        let is_run = behind >= LEAST_RUN || self.length > 1 && SHORT_RUNS.contains(&(self.length * behind));
        is_result
            && is_plain(dtype)
            && is_plain(last)
            && !whole.is_empty(output)
            && whole.regroups(output)
            && whole.rank(output) < MAX_RANK
            && (2..=MOST_PARTS as i64).contains(&self.count(whole))
            && self.pieces.iter().all(is_alike)
            && is_run
    }

    /// Whether parts are computed of arguments, which they have in common, or of windows of these.
    fn is_worth_it(&self, whole: &Whole<'_>) -> bool {
        let mut read = Read::default();
        for piece in &self.pieces {
            let mut own = BTreeSet::new();
            if !read.part(whole, *piece, &mut own) {
                return false;
            }
            own.into_iter().for_each(|window| *read.windows.entry(window).or_default() += 1);
        }
        let is_ours = |made: &TensorId| {
            let is_joined = |out: &TensorId| *out == self.joined || read.made.contains(out);
            !whole.is_returned(*made) && whole.readers(*made).all(|reader| reader.outputs.iter().all(is_joined))
        };
        let copied = |piece: &TensorId| conversion(whole, *piece).map_or(*piece, |(_, own)| own);
        let copied: Vec<TensorId> = self.pieces.iter().map(copied).collect();
        let is_copied = |window: &TensorId| copied.contains(window);
        // What all read for themselves is read once, beside what is copied.
        let is_shared =
            |(window, parts): (&TensorId, &usize)| *parts > 1 || whole.sizes(*window).iter().all(|n| *n == 1);
        let are_shared = read.computes && read.windows.iter().all(|read| is_shared(read) || is_copied(read.0));
        let pads = read.pads && self.behind(whole) >= LEAST_RUN;
        let copies: i64 = self.pieces.iter().map(|piece| self.parts_of(whole, *piece) - 1).sum();
        read.windows.len() + copies as usize <= MOST_READ && (pads || are_shared) && read.made.iter().all(is_ours)
    }

    /// The parts where they are computed, or before what all convert them to at last: in which piece, from where on.
    fn chosen(&self, whole: &Whole<'_>) -> Vec<(TensorId, i64)> {
        let converted = |piece: &TensorId| {
            let maker = whole.maker(*piece).filter(|maker| matches!(maker.kind, OpKind::Cast(_)))?;
            operand(maker).filter(|own| !is_in_memory(whole, *own))
        };
        let before: Option<Vec<TensorId>> = self.pieces.iter().map(converted).collect();
        let dtype = |piece: &TensorId| whole.fusion.tensors[*piece].dtype;
        let is_one_type = |all: &Vec<TensorId>| all.iter().all(|piece| dtype(piece) == dtype(&all[0]));
        let pieces = before.filter(is_one_type).unwrap_or_else(|| self.pieces.clone());
        let parts = |piece| (0..self.parts_of(whole, piece)).map(move |part| (piece, part * self.length));
        pieces.into_iter().flat_map(parts).collect()
    }

    /// A part that starts somewhere in a piece, along an axis of its own.
    fn part(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, piece: TensorId, start: i64) -> Result<TensorId> {
        let mut part = cut(r, whole, piece, self.cut, (start, start + self.length))?;
        if let Some(order) = self.order {
            let order: Vec<i64> = order.iter().map(|axis| i64::from(*axis)).collect();
            part = tensor(r.builder.permute(part, &order)?)?;
        }
        let mut flags = vec![false; whole.rank(self.output)];
        if self.length > 1 {
            flags.insert(self.dim, true);
        }
        broadcast(&mut r.builder, part, &flags)
    }

    fn write(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, numbers: &mut Numbers) -> Result<TensorId> {
        let number = self.number(r, whole, numbers)?;
        let mut stacked: Option<TensorId> = None;
        for (position, (piece, start)) in self.chosen(whole).into_iter().enumerate().rev() {
            let part = self.part(r, whole, piece, start)?;
            let b = &mut r.builder;
            stacked = Some(match stacked {
                None => part,
                Some(others) => {
                    let is_here = b.binary(BinaryOp::Eq, number, position as i64)?;
                    tensor(b.ternary(TernaryOp::Where, is_here, part, others)?)?
                }
            });
        }
        let mut stacked = stacked.ok_or_else(|| Diagnostic::bug("nothing is joined"))?;
        for own in [self.joined, self.output] {
            stacked = tensor(r.builder.cast(stacked, whole.fusion.tensors[own].dtype)?)?;
        }
        if self.length == 1 {
            return Ok(stacked);
        }
        let shape = extents(r, whole, self.output);
        reshape(&mut r.builder, stacked, shape)
    }

    /// For each element of the stack the number of its part.
    fn number(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, numbers: &mut Numbers) -> Result<TensorId> {
        let count = self.count(whole);
        let key = (whole.sizes(self.output).to_vec(), self.dim, count);
        if let Some(number) = numbers.get(&key) {
            return Ok(*number);
        }
        // An axis of one element is a broadcast, whatever its extent is called.
        let own = extents(r, whole, self.output).into_iter().zip(whole.sizes(self.output));
        let mut shape: Vec<Src> = own.map(|(extent, size)| if *size == 1 { 1.into() } else { extent }).collect();
        match self.length {
            1 => shape[self.dim] = count.into(),
            length => drop(shape.splice(self.dim..=self.dim, [count.into(), length.into()])),
        }
        let number = tensor(r.builder.index(&shape, self.dim as i64)?)?;
        numbers.insert(key, number);
        Ok(number)
    }
}

/// What a result is made of that joins: itself, or what it converts once or copies row by row, with the order of the axes in the
/// copy.
fn joined<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<(&'a Op, Option<&'a [u32]>)> {
    let (mut at, mut order, mut is_placed, mut is_converted) = (op, None, false, false);
    loop {
        match &at.kind {
            // What is between two conversions rounds, too.
            OpKind::Cast(_) if !is_converted => is_converted = true,
            OpKind::Permute { perm } if is_placed && order.is_none() => order = Some(perm.as_slice()),
            OpKind::Call(own) if own.movement().form == Some(Form::Cat) => return Some((at, order)),
            OpKind::Call(_) if order.is_none() => {
                placed_row_major(at)?;
                is_placed = true;
            }
            _ => return None,
        }
        at = whole.maker(operand(at).filter(|below| whole.is_read_once(*below))?)?;
    }
}

/// Whether parts of a tensor are made of parts of what is in memory.
fn is_cut(whole: &Whole<'_>, mut x: TensorId) -> bool {
    while !is_in_memory(whole, x) {
        let Some((_, own)) = conversion(whole, x) else { return false };
        x = own;
    }
    true
}

/// The operation that only converts a tensor to `x`, and the tensor.
fn conversion<'a>(whole: &Whole<'a>, x: TensorId) -> Option<(&'a Op, TensorId)> {
    let maker = whole.maker(x).filter(|maker| matches!(maker.kind, OpKind::Cast(_)))?;
    Some((maker, operand(maker)?))
}

/// The part of a tensor along an axis: of one that is a slice itself, of what that cuts.
fn cut(r: &mut Rewriter<'_>, whole: &Whole<'_>, x: TensorId, axis: usize, (from, to): (i64, i64)) -> Result<TensorId> {
    if (from, to) == (0, whole.sizes(x)[axis]) {
        return r.tensor(x);
    }
    if let Some((maker, own)) = conversion(whole, x) {
        let own = cut(r, whole, own, axis, (from, to))?;
        return r.write_on(maker, &[own]);
    }
    let outer = whole.maker(x).and_then(|maker| Some((operand(maker)?, ranges(whole, maker)?)));
    let (seen, mut wanted) = match outer {
        Some((seen, ranges)) => (seen, ranges),
        None => (x, whole.sizes(x).iter().map(|size| (0, *size)).collect()),
    };
    let start = wanted[axis].0;
    wanted[axis] = (start + from, start + to);
    slice_to(r, whole, seen, &wanted, &ones(whole, x, seen))
}

/// What parts are made of.
#[derive(Default)]
struct Read {
    /// Tensors in memory, and pads of such: of how many parts each is read.
    windows: BTreeMap<TensorId, usize>,
    /// What is computed of them.
    made: BTreeSet<TensorId>,
    pads: bool,
    /// Something else is done than to move elements.
    computes: bool,
}

impl Read {
    /// Goes through what a part is made of; whether it is made of row-major arguments by few operations.
    fn part(&mut self, whole: &Whole<'_>, part: TensorId, own: &mut BTreeSet<TensorId>) -> bool {
        let (mut waiting, mut seen) = (vec![part], BTreeSet::new());
        while let Some(x) = waiting.pop() {
            if !seen.insert(x) {
                continue;
            }
            if is_in_memory(whole, x) {
                own.insert(x);
                if !whole.is_row_major(argument(whole, x)) {
                    return false;
                }
                continue;
            }
            let Some(maker) = whole.maker(x).filter(|maker| maker.outputs.len() == 1) else { return false };
            self.made.insert(x);
            if self.made.len() > MOST_OPS {
                return false;
            }
            match (call(maker, Form::Pad), operand(maker)) {
                (Some(_), Some(padded))
                    if is_in_memory(whole, padded) && whole.is_row_major(argument(whole, padded)) =>
                {
                    self.pads = true;
                    own.insert(x);
                }
                (None, _) if maker.kind.is_elementwise() || matches!(maker.kind, OpKind::Broadcast { .. }) => {
                    self.computes |= maker.kind.is_elementwise() && !matches!(maker.kind, OpKind::Cast(_));
                    let definition = whole.fusion.definition(x);
                    waiting.extend(definition.into_iter().flat_map(|op| whole.fusion.tensor_inputs(op)));
                }
                _ => return false,
            }
        }
        true
    }
}

/// The argument that a tensor in memory is a view of.
fn argument(whole: &Whole<'_>, mut x: TensorId) -> TensorId {
    while let Some(seen) = whole.maker(x).and_then(operand) {
        x = seen;
    }
    x
}
