//! What is computed of a row beside the same row with its parts in another order, as rotary embeddings are, is computed part by
//! part. `x * c + cat(-x1, x0) * s`, where `x0` and `x1` are the halves of `x`, has the halves `x0 * c0 - x1 * s0` and
//! `x1 * c1 + x0 * s1`: both are computed of views of `x` that are read once each, no element asks in which part it
//! lies, and the result is what they are stacked to (`heuristic/stacked`).
//!
//! Sums over such rows of which they are computed, as those of norms, are sums over all parts: then a few threads that hold a row read
//! it once (`heuristic/stacked_rows`), where it would be stored before it is turned.
//!
//! Only results are written so, since what lies between a stack and its reader is a view of memory; those that are asked for
//! row-major are, too. Rows may be behind moved axes. In the way of it: parts of several lengths, what is computed for others,
//! too, and what is met along several axes.

use super::make::{broadcast, call as make, extents, is_all, reshape, slice, tensor};
use super::slices::ranges;
use super::whole::{Change, Changes, Whole, call, of_one, operand, placed_row_major, tensors};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{AxisKind, MAX_RANK, Op, OpId, OpKind, Rewriter, Src, TensorId};
use crate::num::{BinaryOp, TernaryOp};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Parts of a row, at most.
const MOST_PARTS: usize = 4;
/// Elements of a part, at most: longer ones are better shifted into place where they start at odd places.
const MOST_LENGTH: i64 = 1024;
/// The same where rows are reduced: few threads hold them.
const MOST_HELD: i64 = 256;
/// Tensors that are computed part by part, at most.
const MOST_TENSORS: usize = 64;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let made = Rc::new(RefCell::new(Made::default()));
    let mut changes = Changes::new();
    for (id, op) in whole.fusion.ops.iter().filter(|(_, op)| op.outputs.len() == 1) {
        let output = op.output();
        let Some(Cut { parts, is_row_major, reductions }) = cut(whole, op) else { continue };
        let parts = Rc::new(parts);
        // Numbers would decide how the result lies.
        let space = is_row_major.then(|| made.borrow_mut().space(&parts, output));
        for reduction in reductions {
            let (parts, made, op) = (Rc::clone(&parts), Rc::clone(&made), &whole.fusion.ops[reduction]);
            let change: Change<'a> = Box::new(move |r| parts.write_reduced(r, op, space, &mut made.borrow_mut()));
            changes.insert(reduction, of_one(change));
        }
        let made = Rc::clone(&made);
        let change: Change<'a> = Box::new(move |r| parts.write(r, output, space, &mut made.borrow_mut()));
        changes.insert(id, of_one(change));
    }
    changes
}

/// How a result is cut.
struct Cut<'a> {
    parts: Parts<'a>,
    /// Whether all that is cut is row-major, as the result is then.
    is_row_major: bool,
    /// What reduces such rows.
    reductions: BTreeSet<OpId>,
}

/// How a result is cut, if it is worth it.
fn cut<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Cut<'a>> {
    let output = op.output();
    let is_result = whole.is_returned(output) && whole.readers(output).next().is_none();
    if !is_result || whole.is_empty(output) {
        return None;
    }
    let laid = laid(whole, op);
    let root = laid.unwrap_or(output);
    if !whole.maker(root).is_some_and(|maker| maker.kind.is_elementwise()) {
        return None;
    }
    let mut parts = Parts::of(whole, root)?;
    let mut seen = Seen { is_row_major: true, ..Seen::default() };
    if !parts.reaches(root, &mut seen) || whole.rank(output) >= MAX_RANK {
        return None;
    }
    if seen.crosses {
        let is_row_major = seen.is_row_major || laid.is_some();
        return Some(Cut { parts, is_row_major, reductions: BTreeSet::new() });
    }
    let reductions = parts.reductions(root, &mut seen).filter(|found| !found.is_empty() && seen.is_row_major)?;
    parts.held = seen.joined.into_keys().collect();
    Some(Cut { parts, is_row_major: true, reductions })
}

/// What nothing but an operation reads that asks for it row-major.
fn laid(whole: &Whole<'_>, op: &Op) -> Option<TensorId> {
    placed_row_major(op).filter(|x| !whole.is_returned(*x) && whole.is_read_once(*x))
}

/// What is made for one result, and serves others.
#[derive(Default)]
struct Made {
    /// Parts of tensors: along an axis, of so many the one of this number.
    parts: BTreeMap<(TensorId, usize, usize, usize), TensorId>,
    spaces: Vec<Space>,
}

/// Row-major results that one kernel makes: of one size along each axis, or of one element.
struct Space {
    /// The first of them, how it is cut, and its sizes.
    output: TensorId,
    axis: usize,
    count: usize,
    sizes: Vec<i64>,
    /// The axes that all have.
    common: Vec<bool>,
    /// For each element of a stack the number of its part, once it is made.
    number: Option<TensorId>,
}

impl Made {
    /// The place of a result's space, of which it is one more.
    fn space(&mut self, parts: &Parts<'_>, output: TensorId) -> usize {
        let sizes = parts.whole.sizes(output);
        let fits = |space: &Space| {
            let is_alike = (space.axis, space.count, space.sizes.len()) == (parts.axis, parts.count, sizes.len());
            let mut pairs = space.sizes.iter().zip(sizes).enumerate();
            is_alike && pairs.all(|(axis, (a, b))| a == b || axis != parts.axis && (*a == 1 || *b == 1))
        };
        match self.spaces.iter().position(fits) {
            Some(place) => {
                let space = &mut self.spaces[place];
                space.common.iter_mut().zip(space.sizes.iter().zip(sizes)).for_each(|(own, (a, b))| *own &= a == b);
                place
            }
            None => {
                let (sizes, common) = (sizes.to_vec(), vec![true; sizes.len()]);
                let &Parts { axis, count, .. } = parts;
                self.spaces.push(Space { output, axis, count, sizes, common, number: None });
                self.spaces.len() - 1
            }
        }
    }
}

/// How a row is cut: in so many parts of one length along an axis.
struct Parts<'a> {
    whole: &'a Whole<'a>,
    axis: usize,
    count: usize,
    length: i64,
    /// Where rows are reduced, what is computed of them and need not be stored to be cut.
    held: BTreeSet<TensorId>,
}

/// How a part of a tensor is made.
enum Way<'a> {
    /// It is the tensor: that has one element along the axis.
    Same,
    /// It is an operand of `cat`.
    Joined(Vec<TensorId>),
    /// It is computed of parts of operands.
    Computed(&'a Op),
    /// It is spread from a part of this tensor, in which the axis is this one.
    Spread(TensorId, usize),
    /// It is a part of this tensor, in which the axis is this one, with the axes in another order.
    Turned(TensorId, usize),
    /// It is a view.
    Cut,
}

/// What was met on the way to inputs.
#[derive(Default)]
struct Seen {
    /// Whether a tensor depends on what is joined, of all tensors that parts are made of.
    joined: BTreeMap<TensorId, bool>,
    /// Along which of its axes each is cut.
    along: BTreeMap<TensorId, usize>,
    /// Whether something that is cut is joined from slices of it, too.
    crosses: bool,
    /// Whether all that is cut is, and its axes are where the result has them.
    is_row_major: bool,
    /// What has one element along the axis.
    single: BTreeSet<TensorId>,
    /// What is joined, and what that is made of element by element.
    pieces: BTreeSet<TensorId>,
}

impl<'a> Parts<'a> {
    /// By the first joined tensor of which a result is computed element by element.
    fn of(whole: &'a Whole<'a>, output: TensorId) -> Option<Self> {
        let (mut stack, mut met) = (vec![output], 0);
        while let Some(x) = stack.pop() {
            let Some(maker) = whole.maker(x) else { continue };
            met += 1;
            if met > MOST_TENSORS {
                return None;
            }
            if let Some(cat) = call(maker, Form::Cat) {
                let (axis, parts) = (cat.axis("dim"), tensors(maker, cat, "tensors"));
                let length = whole.sizes(*parts.first()?)[axis];
                let this = Self { whole, axis, count: parts.len(), length, held: BTreeSet::new() };
                let is_short = (2..=MOST_LENGTH).contains(&length) && (2..=MOST_PARTS).contains(&parts.len());
                return is_short.then_some(this);
            }
            if maker.kind.is_elementwise() {
                stack.extend(whole.fusion.definition(x).into_iter().flat_map(|op| whole.fusion.tensor_inputs(op)));
            }
        }
        None
    }

    fn way(&self, x: TensorId, axis: usize) -> Option<Way<'a>> {
        let whole = self.whole;
        if whole.is_broadcast(x, axis) {
            return Some(Way::Same);
        }
        let Some(maker) = whole.maker(x) else { return Some(Way::Cut) };
        if let (OpKind::Broadcast { flags }, Some(narrow)) = (&maker.kind, operand(maker)) {
            let own = flags[..axis].iter().filter(|new| !**new).count();
            return Some(Way::Spread(narrow, own));
        }
        // What slices are read of is in memory as it is.
        if let (OpKind::Permute { perm }, Some(own), false) = (&maker.kind, operand(maker), self.is_sliced(x)) {
            return Some(Way::Turned(own, perm[axis] as usize));
        }
        if let Some(cat) = call(maker, Form::Cat) {
            let parts = tensors(maker, cat, "tensors");
            let fits = |part: &TensorId| whole.sizes(*part)[axis] == self.length;
            let is_cut_so = cat.axis("dim") == axis && parts.len() == self.count && parts.iter().all(fits);
            return is_cut_so.then_some(Way::Joined(parts));
        }
        if maker.kind.is_elementwise() && maker.outputs.len() == 1 {
            let read = || self.operands(x);
            return read().all(|tensor| whole.rank(tensor) == whole.rank(x)).then_some(Way::Computed(maker));
        }
        // It is in memory, since slices are read of it.
        self.is_sliced(x).then_some(Way::Cut)
    }

    fn operands(&self, x: TensorId) -> impl Iterator<Item = TensorId> + 'a {
        let fusion = self.whole.fusion;
        fusion.definition(x).into_iter().flat_map(|op| fusion.tensor_inputs(op))
    }

    fn is_sliced(&self, x: TensorId) -> bool {
        self.whole.readers(x).any(|reader| call(reader, Form::Slice).is_some())
    }

    /// Whether all parts of a tensor can be made, and nothing but this needs what is joined on the way.
    fn reaches(&self, output: TensorId, seen: &mut Seen) -> bool {
        let is_made = self.visit(output, self.axis, seen);
        let depends = |tensor: &TensorId| seen.joined.get(tensor) == Some(&true);
        let is_ours = |tensor: &TensorId| {
            let own = |reader: &Op| reader.outputs.iter().any(&depends);
            *tensor == output || !self.whole.is_returned(*tensor) && self.whole.readers(*tensor).all(own)
        };
        is_made && depends(&output) && seen.joined.keys().filter(|tensor| depends(tensor)).all(is_ours)
    }

    fn visit(&self, x: TensorId, axis: usize, seen: &mut Seen) -> bool {
        // Behind moved axes a tensor may be met along another one, too.
        if *seen.along.entry(x).or_insert(axis) != axis {
            return false;
        }
        if seen.joined.contains_key(&x) {
            return true;
        }
        if seen.joined.len() >= MOST_TENSORS {
            return false;
        }
        let mut is_joined = false;
        let is_made = match self.way(x, axis) {
            None => false,
            Some(Way::Same) => {
                seen.single.insert(x);
                true
            }
            Some(Way::Joined(parts)) => {
                is_joined = true;
                self.see_pieces(parts, seen);
                true
            }
            Some(Way::Spread(narrow, own)) => self.visit(narrow, own, seen),
            Some(Way::Turned(turned, own)) => {
                seen.is_row_major = false;
                let is_made = self.visit(turned, own, seen);
                is_joined = seen.joined.get(&turned) == Some(&true);
                is_made
            }
            Some(Way::Cut) => {
                let is_divided = self.whole.sizes(x)[axis] == self.length * self.count as i64;
                seen.crosses |= self.is_sliced(x);
                seen.is_row_major &= self.whole.is_row_major(x);
                is_divided && self.whole.kind(x, axis) == AxisKind::Iteration
            }
            Some(Way::Computed(_)) => {
                let mut all = true;
                for operand in self.operands(x) {
                    all &= self.visit(operand, axis, seen);
                    is_joined |= seen.joined.get(&operand) == Some(&true);
                }
                all
            }
        };
        seen.joined.insert(x, is_joined);
        is_made
    }

    fn see_pieces(&self, mut stack: Vec<TensorId>, seen: &mut Seen) {
        while let Some(piece) = stack.pop() {
            let is_computed = self.whole.maker(piece).is_some_and(|maker| maker.kind.is_elementwise());
            if seen.pieces.insert(piece) && is_computed {
                stack.extend(self.operands(piece));
            }
        }
    }

    /// The reductions of rows like the result's, by all of which and of what else they are made the result is; none where what is cut
    /// from what is computed of rows is something else's, too.
    fn reductions(&self, output: TensorId, seen: &mut Seen) -> Option<BTreeSet<OpId>> {
        let (whole, mut found, mut done) = (self.whole, BTreeSet::new(), BTreeSet::new());
        if self.length > MOST_HELD {
            return None;
        }
        while let Some(single) = seen.single.difference(&done).next().copied() {
            let mut stack = vec![single];
            while let Some(x) = stack.pop() {
                let Some(id) = whole.fusion.definition(x).filter(|_| done.insert(x)) else { continue };
                // What is returned of rows beside them is stored by another kernel.
                if whole.is_returned(x) {
                    return None;
                }
                let op = &whole.fusion.ops[id];
                match (&op.kind, operand(op)) {
                    (OpKind::Reduce { axes, .. }, Some(rows)) => {
                        let is_row = axes.as_slice() == [self.axis as u32] && whole.sizes(rows) == whole.sizes(output);
                        // What is joined is known to no sum below it.
                        let is_made = is_row && self.visit(rows, self.axis, seen);
                        if !is_made || seen.joined.get(&rows) == Some(&true) {
                            return None;
                        }
                        found.insert(id);
                    }
                    (kind, _) if kind.is_elementwise() || matches!(kind, OpKind::Broadcast { .. }) => {
                        stack.extend(whole.fusion.tensor_inputs(id));
                    }
                    _ => {}
                }
                if done.len() > MOST_TENSORS {
                    return None;
                }
            }
            // An argument has no maker.
            done.insert(single);
        }
        // Rows that are held are stored for nobody.
        let is_held = |tensor: &TensorId| {
            let is_joined = |out: &TensorId| seen.pieces.contains(out) && !whole.is_returned(*out);
            let is_ours = |out: &TensorId| seen.joined.contains_key(out) || is_joined(out);
            let is_piece =
                |out: &TensorId| is_joined(out) && whole.readers(*out).all(|reader| reader.outputs.iter().all(is_ours));
            let own = |reader: &Op| reader.outputs.iter().all(|out| seen.joined.contains_key(out) || is_piece(out));
            !self.is_sliced(*tensor) || !whole.is_returned(*tensor) && whole.readers(*tensor).all(own)
        };
        let is_computed = |tensor: &&TensorId| whole.maker(**tensor).is_some();
        let mut computed = seen.joined.keys().filter(is_computed);
        let crosses = seen.joined.keys().filter(is_computed).any(|tensor| self.is_sliced(*tensor));
        (crosses && computed.all(is_held)).then_some(found)
    }

    /// A reduction over all parts of rows.
    fn write_reduced(&self, r: &mut Rewriter<'_>, op: &Op, space: Option<usize>, made: &mut Made) -> Result<TensorId> {
        let (OpKind::Reduce { op: by, .. }, Some(rows)) = (&op.kind, operand(op)) else {
            return Err(Diagnostic::bug("what reduces rows is no reduction"));
        };
        let stacked = self.stacked(r, rows, space, made)?;
        let stacked = tensor(r.builder.cast(stacked, self.whole.fusion.tensors[rows].dtype)?)?;
        let axes = vec![self.axis as u32, self.axis as u32 + 1];
        r.write_as(op, OpKind::Reduce { op: *by, axes }, &[stacked])
    }

    /// The result as its parts make it.
    fn write(&self, r: &mut Rewriter<'_>, output: TensorId, space: Option<usize>, made: &mut Made) -> Result<TensorId> {
        // What is converted at last is chosen before.
        let laid = self.whole.maker(output).and_then(|maker| laid(self.whole, maker));
        let root = laid.unwrap_or(output);
        let maker = self.whole.maker(root).filter(|maker| matches!(maker.kind, OpKind::Cast(_)));
        let chosen = maker.and_then(operand).unwrap_or(root);
        let stacked = self.stacked(r, chosen, space, made)?;
        let mut stacked = tensor(r.builder.cast(stacked, self.whole.fusion.tensors[output].dtype)?)?;
        if laid.is_some() {
            // What is laid so with its parts apart is so with them together.
            let order = OpArg::Ints((0..=self.whole.rank(output) as i64).rev().collect());
            stacked = make(&mut r.builder, "stride_order", |args| args.value("x", stacked).with("order", order))?;
        }
        let shape = extents(r, self.whole, output);
        reshape(&mut r.builder, stacked, shape)
    }

    /// A tensor as the stack of its parts.
    fn stacked(&self, r: &mut Rewriter<'_>, x: TensorId, space: Option<usize>, made: &mut Made) -> Result<TensorId> {
        let mut flags = vec![false; self.whole.rank(x) + 1];
        flags[self.axis] = true;
        let mut parts = Vec::with_capacity(self.count);
        for number in 0..self.count {
            let part = self.part(r, x, self.axis, number, made)?;
            parts.push(broadcast(&mut r.builder, part, &flags)?);
        }
        let number = match space {
            Some(space) => self.number(r, &mut made.spaces[space])?,
            None => {
                let number = tensor(r.builder.index(&[(self.count as i64).into()], 0)?)?;
                let others: Vec<bool> = flags.iter().map(|flag| !flag).collect();
                broadcast(&mut r.builder, number, &others)?
            }
        };
        let b = &mut r.builder;
        let mut stacked: Option<TensorId> = None;
        for (position, part) in parts.into_iter().enumerate().rev() {
            stacked = Some(match stacked {
                None => part,
                Some(others) => {
                    let is_here = b.binary(BinaryOp::Eq, number, position as i64)?;
                    tensor(b.ternary(TernaryOp::Where, is_here, part, others)?)?
                }
            });
        }
        stacked.ok_or_else(|| Diagnostic::bug("a row is cut in no part"))
    }

    /// For each element of a stack the number of its part. Results of one space have one, by which they are known to have the
    /// same axes.
    fn number(&self, r: &mut Rewriter<'_>, space: &mut Space) -> Result<TensorId> {
        if let Some(number) = space.number {
            return Ok(number);
        }
        let own = extents(r, self.whole, space.output).into_iter().zip(&space.common);
        let mut shape: Vec<Src> = own.map(|(extent, common)| if *common { extent } else { 1.into() }).collect();
        shape.splice(self.axis..=self.axis, [(self.count as i64).into(), self.length.into()]);
        let number = tensor(r.builder.index(&shape, self.axis as i64)?)?;
        space.number = Some(number);
        Ok(number)
    }

    /// The slice of a tensor that somebody reads already: one view of memory is loaded once.
    fn cut_already(&self, r: &Rewriter<'_>, x: TensorId, wanted: &[(i64, i64)]) -> Option<TensorId> {
        let is_wanted = |reader: &&Op| ranges(self.whole, reader).is_some_and(|own| own == wanted);
        self.whole.readers(x).filter(is_wanted).find_map(|reader| r.tensor(reader.output()).ok())
    }

    /// What is joined as one part: computed of parts of what is held, where it was cut from that.
    fn joined(&self, r: &mut Rewriter<'_>, x: TensorId, axis: usize, made: &mut Made) -> Result<TensorId> {
        // No part has no parts.
        let key = (x, axis, 0, 0);
        if let Some(part) = made.parts.get(&key) {
            return Ok(*part);
        }
        let whole = self.whole;
        let is_like = |own: TensorId| whole.rank(own) == whole.rank(x);
        let part = match whole.maker(x) {
            _ if self.held.is_empty() => r.tensor(x)?,
            Some(maker) if call(maker, Form::Slice).is_some() => match self.cut_from(maker, axis) {
                Some((held, number)) => self.part(r, held, axis, number, made)?,
                None => r.tensor(x)?,
            },
            Some(maker) if maker.kind.is_elementwise() && self.operands(x).all(is_like) => {
                let mut operands = Vec::new();
                for operand in self.operands(x) {
                    operands.push(self.joined(r, operand, axis, made)?);
                }
                r.write_on(maker, &operands)?
            }
            _ => r.tensor(x)?,
        };
        made.parts.insert(key, part);
        Ok(part)
    }

    /// What is held that a slice is cut from, if it is one of its parts.
    fn cut_from(&self, slice: &Op, axis: usize) -> Option<(TensorId, usize)> {
        let x = operand(slice).filter(|x| self.held.contains(x))?;
        let (mut own, sizes) = (ranges(self.whole, slice)?, self.whole.sizes(x));
        let (start, end) = std::mem::replace(own.get_mut(axis)?, (0, sizes[axis]));
        let is_part = start % self.length == 0 && end - start == self.length;
        let is_whole = sizes[axis] == self.length * self.count as i64 && is_all(self.whole, x, &own);
        (is_part && is_whole).then_some((x, (start / self.length) as usize))
    }

    /// One part of a tensor.
    fn part(&self, r: &mut Rewriter<'_>, x: TensorId, axis: usize, number: usize, made: &mut Made) -> Result<TensorId> {
        let key = (x, axis, self.count, number);
        if let Some(part) = made.parts.get(&key) {
            return Ok(*part);
        }
        let whole = self.whole;
        let part = match self.way(x, axis).ok_or_else(|| Diagnostic::bug("a part of a row has no way"))? {
            Way::Same => r.tensor(x)?,
            Way::Joined(parts) => self.joined(r, parts[number], axis, made)?,
            Way::Spread(narrow, own) => {
                let part = self.part(r, narrow, own, number, made)?;
                let Some(OpKind::Broadcast { flags }) = whole.maker(x).map(|maker| &maker.kind) else {
                    return Err(Diagnostic::bug("what is spread is no broadcast"));
                };
                broadcast(&mut r.builder, part, flags)?
            }
            Way::Turned(turned, own) => {
                let part = self.part(r, turned, own, number, made)?;
                let maker = whole.maker(x).ok_or_else(|| Diagnostic::bug("what is turned has no maker"))?;
                r.write_on(maker, &[part])?
            }
            Way::Computed(maker) => {
                let mut operands = Vec::new();
                for operand in self.operands(x) {
                    operands.push(self.part(r, operand, axis, number, made)?);
                }
                r.write_on(maker, &operands)?
            }
            Way::Cut => {
                let start = number as i64 * self.length;
                let mut cut: Vec<(i64, i64)> = whole.sizes(x).iter().map(|size| (0, *size)).collect();
                cut[axis] = (start, start + self.length);
                match self.cut_already(r, x, &cut) {
                    Some(part) => part,
                    None => slice(r, whole, x, &cut)?,
                }
            }
        };
        made.parts.insert(key, part);
        Ok(part)
    }
}
