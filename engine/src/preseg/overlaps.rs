//! What is joined of parts that are computed of the same tensors is chosen part by part: windows of a tensor that are joined to
//! columns, or sums and differences of what lies in pairs.
//!
//! Such a part is the whole along an axis of its own, and the result takes the part whose number that axis has: a thread computes
//! the same place of every part, reads what the parts have in common once, and writes each to its place (`heuristic/stacked`).
//! As operands of `cat`, pads are a kernel each, and parts read all they are made of for themselves.
//!
//! Only results are written so, or what a reshape makes a result of, since a stack of long parts is a view of memory. Parts are of
//! one length, and made by few operations of arguments that are row-major, as the result is then.

use super::make::{broadcast, extents, reshape, tensor};
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use super::windows::is_in_memory;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::Form;
use crate::fusion::{MAX_RANK, Op, OpKind, Rewriter, Src, TensorId};
use crate::num::{BinaryOp, TernaryOp};
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

/// The numbers of parts that are made: for each stack of these sizes along an axis, of so many parts.
type Numbers = BTreeMap<(Vec<i64>, usize, usize), TensorId>;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let numbers = Rc::new(RefCell::new(Numbers::new()));
    whole.each(move |whole, op| {
        let stack = Stack::of(whole, op)?;
        let numbers = Rc::clone(&numbers);
        let change: Change<'a> = Box::new(move |r| stack.write(r, whole, &mut numbers.borrow_mut()));
        Some(change)
    })
}

/// A result, and the parts of one length that it is joined of.
struct Stack {
    output: TensorId,
    parts: Vec<TensorId>,
    dim: usize,
    /// Of a part, along the axis.
    length: i64,
}

impl Stack {
    fn of(whole: &Whole<'_>, op: &Op) -> Option<Self> {
        let (cat, output) = (call(op, Form::Cat)?, op.output());
        let (parts, dim) = (tensors(op, cat, "tensors"), cat.axis("dim"));
        let length = whole.sizes(*parts.first()?)[dim];
        let this = Self { output, parts, dim, length };
        (this.has_place(whole) && this.is_worth_it(whole)).then_some(this)
    }

    /// Whether the result can be a stack: nothing but a view is made of it, and its parts are alike.
    fn has_place(&self, whole: &Whole<'_>) -> bool {
        let Self { output, dim, .. } = *self;
        let is_view = |reader: &Op| call(reader, Form::Reshape).is_some() && whole.is_returned(reader.output());
        let is_result = whole.readers(output).all(is_view);
        let dtype = whole.fusion.tensors[output].dtype;
        let is_plain = dtype.is_int() || dtype.is_float() && dtype.bytes() > 1;
        let is_alike = |part: &TensorId| {
            whole.fusion.tensors[*part].dtype == dtype
                && whole.sizes(*part)[dim] == self.length
                && whole.regroups(*part)
        };
        let run = whole.sizes(output)[dim + 1..].iter().product::<i64>();
        is_result
            && is_plain
            && !whole.is_empty(output)
            && whole.regroups(output)
            && whole.rank(output) < MAX_RANK
            && (2..=MOST_PARTS).contains(&self.parts.len())
            && self.parts.iter().all(is_alike)
            && run >= LEAST_RUN
    }

    /// Whether parts are computed of arguments, which they have in common, or of windows of these.
    fn is_worth_it(&self, whole: &Whole<'_>) -> bool {
        let mut read = Read::default();
        for part in &self.parts {
            let mut own = BTreeSet::new();
            if !read.part(whole, *part, &mut own) {
                return false;
            }
            own.into_iter().for_each(|window| *read.windows.entry(window).or_default() += 1);
        }
        let is_ours = |made: &TensorId| {
            let own = |reader: &Op| reader.outputs.iter().all(|out| *out == self.output || read.made.contains(out));
            !whole.is_returned(*made) && whole.readers(*made).all(own)
        };
        // What all read for themselves is read once.
        let is_shared =
            |(window, parts): (&TensorId, &usize)| *parts > 1 || whole.sizes(*window).iter().all(|n| *n == 1);
        let are_shared = read.computes && read.windows.iter().all(is_shared);
        read.windows.len() <= MOST_READ && (read.pads || are_shared) && read.made.iter().all(is_ours)
    }

    /// The parts where they are computed, or before what all convert them to at last.
    fn chosen(&self, whole: &Whole<'_>) -> Vec<TensorId> {
        let converted = |part: &TensorId| {
            let maker = whole.maker(*part).filter(|maker| matches!(maker.kind, OpKind::Cast(_)))?;
            operand(maker).filter(|own| !is_in_memory(whole, *own))
        };
        let before: Option<Vec<TensorId>> = self.parts.iter().map(converted).collect();
        let dtype = |part: &TensorId| whole.fusion.tensors[*part].dtype;
        let is_one_type = |all: &Vec<TensorId>| all.iter().all(|part| dtype(part) == dtype(&all[0]));
        before.filter(is_one_type).unwrap_or_else(|| self.parts.clone())
    }

    fn write(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, numbers: &mut Numbers) -> Result<TensorId> {
        let number = self.number(r, whole, numbers)?;
        let mut stacked: Option<TensorId> = None;
        for (position, part) in self.chosen(whole).into_iter().enumerate().rev() {
            let own = r.tensor(part)?;
            let mut flags = vec![false; whole.rank(self.output)];
            if self.length > 1 {
                flags.insert(self.dim, true);
            }
            let part = broadcast(&mut r.builder, own, &flags)?;
            let b = &mut r.builder;
            stacked = Some(match stacked {
                None => part,
                Some(others) => {
                    let is_here = b.binary(BinaryOp::Eq, number, position as i64)?;
                    tensor(b.ternary(TernaryOp::Where, is_here, part, others)?)?
                }
            });
        }
        let stacked = stacked.ok_or_else(|| Diagnostic::bug("nothing is joined"))?;
        let stacked = tensor(r.builder.cast(stacked, whole.fusion.tensors[self.output].dtype)?)?;
        if self.length == 1 {
            return Ok(stacked);
        }
        let shape = extents(r, whole, self.output);
        reshape(&mut r.builder, stacked, shape)
    }

    /// For each element of the stack the number of its part.
    fn number(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, numbers: &mut Numbers) -> Result<TensorId> {
        let key = (whole.sizes(self.output).to_vec(), self.dim, self.parts.len());
        if let Some(number) = numbers.get(&key) {
            return Ok(*number);
        }
        // An axis of one element is a broadcast, whatever its extent is called.
        let own = extents(r, whole, self.output).into_iter().zip(whole.sizes(self.output));
        let mut shape: Vec<Src> = own.map(|(extent, size)| if *size == 1 { 1.into() } else { extent }).collect();
        let count = (self.parts.len() as i64).into();
        match self.length {
            1 => shape[self.dim] = count,
            length => drop(shape.splice(self.dim..=self.dim, [count, length.into()])),
        }
        let number = tensor(r.builder.index(&shape, self.dim as i64)?)?;
        numbers.insert(key, number);
        Ok(number)
    }
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
