//! What is computed element by element, or only has its axes moved, and is read in part: a slice, a pad or one position of it is
//! computed of the same of what it is computed of. `slice(cast x)` is `cast(slice x)`, so that moves are of what is in memory,
//! and what is computed of them is one kernel.
//!
//! In: an operation that shows a part of a tensor. Out: its result, made of parts of inputs and of views of these.
//!
//! Invariants:
//!
//! * Nothing is moved through a reduction, or of what is stored anyway.
//! * What is computed for several readers costs less than to store it: by the bytes that are moved, each reader's
//!   counted as if all came from memory, and by few operations.
//! * A pad is moved where zeros, or other constants that it adds, give its own value behind the operations.

use super::make::{broadcast, call as make, is_all, kept_axis, ones, pad, slice_to, squeeze};
use super::slices::{fill, ranges, widths};
use super::whole::{Whole, call, operand, tensors};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{Op, OpKind, Operand, Rewriter, ScalarId, TensorId};
use crate::num::{BinaryOp, DType, UnaryOp, Value, eval};
use std::collections::{BTreeMap, BTreeSet};

/// Operations between a part and the inputs, at most.
const MOST_MOVED: usize = 32;
/// How many simple operations, counted for each reader, are done again rather than that their result is stored: what moving an
/// element to memory and back takes.
const MOST_AGAIN: usize = 64;
/// How many simple operations a function is.
const OF_FUNCTION: usize = 8;

/// What an operation shows of its operand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Window {
    /// The elements between positions, and which axes of one element, which iterate, are broadcasts then.
    Slice(Vec<(i64, i64)>, Vec<bool>),
    /// So many elements more before and after each axis, or fewer.
    Pad(Vec<(i64, i64)>),
    /// One position of an axis, which is dropped.
    Select(usize, ScalarId),
    /// All but an axis of one element.
    Squeeze(usize),
}

impl Window {
    /// What an operation shows, where that is known.
    pub(super) fn of(whole: &Whole<'_>, op: &Op) -> Option<Self> {
        if call(op, Form::Slice).is_some() {
            return Some(Window::Slice(ranges(whole, op)?, ones(whole, op.output(), operand(op)?)));
        }
        if call(op, Form::Pad).is_some() {
            return widths(whole, op).map(Window::Pad);
        }
        let select = call(op, Form::Select)?;
        match op.inputs[select.operands("index")] {
            [Operand::Scalar(index)] => Some(Window::Select(select.axis("dim"), index)),
            _ => None,
        }
    }

    /// What has to be shown of an operand of an operation so that this is shown of its result `x`: nothing, if the operand
    /// serves as it is. None if this cannot be shown so.
    fn before(&self, whole: &Whole<'_>, maker: &Op, x: TensorId, own: TensorId) -> Option<Option<Self>> {
        match &maker.kind {
            OpKind::Broadcast { flags } => self.before_broadcast(flags),
            OpKind::Permute { perm } => Some(Some(self.before_permute(perm))),
            OpKind::Squeeze { flags } => Some(Some(self.before_squeeze(flags))),
            _ => self.before_elementwise(whole, x, own).map(Some),
        }
    }

    fn before_elementwise(&self, whole: &Whole<'_>, x: TensorId, own: TensorId) -> Option<Self> {
        let sizes = whole.sizes(own);
        match self {
            // What has one element for all along an axis has it for those that are left.
            Window::Slice(ranges, ones) => {
                let shown = ranges.iter().zip(sizes).map(|(range, size)| if *size == 1 { (0, 1) } else { *range });
                let ones = ones.iter().enumerate().map(|(axis, one)| *one && !whole.is_broadcast(own, axis));
                Some(Window::Slice(shown.collect(), ones.collect()))
            }
            Window::Pad(widths) => {
                let mut axes = widths.iter().zip(sizes.iter().zip(whole.sizes(x)));
                axes.all(|(width, (own, all))| *width == (0, 0) || own == all).then(|| self.clone())
            }
            Window::Select(dim, _) if whole.is_broadcast(own, *dim) && !whole.is_broadcast(x, *dim) => {
                Some(Window::Squeeze(*dim))
            }
            Window::Select(..) => Some(self.clone()),
            Window::Squeeze(dim) => whole.is_broadcast(own, *dim).then(|| self.clone()),
        }
    }

    fn before_broadcast(&self, flags: &[bool]) -> Option<Option<Self>> {
        fn kept<T: Copy>(list: &[T], flags: &[bool]) -> Vec<T> {
            list.iter().zip(flags).filter(|(_, inserted)| !**inserted).map(|(own, _)| *own).collect()
        }
        let place = |dim: usize| flags[..dim].iter().filter(|inserted| !**inserted).count();
        Some(match self {
            Window::Slice(ranges, ones) => Some(Window::Slice(kept(ranges, flags), kept(ones, flags))),
            Window::Pad(widths) => {
                let widens = widths.iter().zip(flags).any(|(width, inserted)| *inserted && *width != (0, 0));
                return (!widens).then(|| Some(Window::Pad(kept(widths, flags))));
            }
            Window::Select(dim, _) | Window::Squeeze(dim) if flags[*dim] => None,
            Window::Select(dim, index) => Some(Window::Select(place(*dim), *index)),
            Window::Squeeze(dim) => Some(Window::Squeeze(place(*dim))),
        })
    }

    fn before_permute(&self, perm: &[u32]) -> Self {
        fn moved<T: Copy>(list: &[T], perm: &[u32]) -> Vec<T> {
            let mut own = list.to_vec();
            perm.iter().zip(list).for_each(|(axis, shown)| own[*axis as usize] = *shown);
            own
        }
        match self {
            Window::Slice(ranges, ones) => Window::Slice(moved(ranges, perm), moved(ones, perm)),
            Window::Pad(widths) => Window::Pad(moved(widths, perm)),
            Window::Select(dim, index) => Window::Select(perm[*dim] as usize, *index),
            Window::Squeeze(dim) => Window::Squeeze(perm[*dim] as usize),
        }
    }

    /// Whether this is shown of what is in memory: of something around it as well only what is in part of both, which is again
    /// that with something around it.
    fn is_within(&self, whole: &Whole<'_>, x: TensorId) -> bool {
        let padded = whole.maker(x).filter(|maker| call(maker, Form::Pad).is_some());
        let Some((seen, widths)) = padded.and_then(|maker| operand(maker).zip(widths(whole, maker))) else {
            return true;
        };
        match self {
            Window::Pad(_) => true,
            Window::Slice(ranges, ones) => {
                let mut axes = ranges.iter().zip(widths.iter().zip(whole.sizes(seen)));
                // A pad has the kinds of axes that it does not change.
                !ones.contains(&true)
                    && axes.all(|((start, end), ((before, _), size))| before + size > *start && *end > *before)
            }
            Window::Select(..) | Window::Squeeze(_) => false,
        }
    }

    fn before_squeeze(&self, flags: &[bool]) -> Self {
        fn spread<T: Copy>(list: &[T], flags: &[bool], dropped: T) -> Vec<T> {
            let mut kept = list.iter().copied();
            flags.iter().map(|flag| if *flag { dropped } else { kept.next().unwrap_or(dropped) }).collect()
        }
        match self {
            Window::Slice(ranges, ones) => Window::Slice(spread(ranges, flags, (0, 1)), spread(ones, flags, false)),
            Window::Pad(widths) => Window::Pad(spread(widths, flags, (0, 0))),
            Window::Select(dim, index) => Window::Select(kept_axis(flags, *dim), *index),
            Window::Squeeze(dim) => Window::Squeeze(kept_axis(flags, *dim)),
        }
    }

    /// Whether all of a tensor is shown, as it is.
    fn is_all_of(&self, whole: &Whole<'_>, x: TensorId) -> bool {
        matches!(self, Window::Slice(ranges, ones) if is_all(whole, x, ranges) && !ones.contains(&true))
    }

    /// The axis that is dropped.
    fn dropped(&self) -> Option<usize> {
        match self {
            Window::Select(dim, _) | Window::Squeeze(dim) => Some(*dim),
            Window::Slice(..) | Window::Pad(_) => None,
        }
    }
}

/// A part of a tensor: what is shown of it, and the value of what a pad adds, if that is not 0.
type Part = (TensorId, Window, Option<ScalarId>);

/// The parts that are made, which serve all who read them.
#[derive(Default)]
pub(super) struct Made(BTreeMap<Part, TensorId>);

/// What a tensor is computed of.
pub(super) struct Moved<'a> {
    whole: &'a Whole<'a>,
    x: TensorId,
    window: Window,
    /// What a pad adds.
    fill: Option<ScalarId>,
    /// Whether what is shown whole stays what it is, and parts of what is joined are those that are joined.
    stops: bool,
}

/// The operations from what is in memory to a tensor.
#[derive(Default)]
struct Chain {
    /// The results of the operations.
    computed: BTreeSet<TensorId>,
    sources: BTreeSet<TensorId>,
    /// Something between is read elsewhere too.
    is_shared: bool,
}

impl Chain {
    /// The chain to a tensor from what parts are read of ([`is_source`]), if it is short and of elementwise operations and moves
    /// of axes.
    fn of(whole: &Whole<'_>, x: TensorId) -> Option<Self> {
        let (mut chain, mut waiting) = (Self::default(), vec![x]);
        while let Some(next) = waiting.pop() {
            if chain.sources.contains(&next) || chain.computed.contains(&next) {
                continue;
            }
            if is_source(whole, next) {
                chain.sources.insert(next);
                continue;
            }
            waiting.extend(operands(whole, next)?);
            chain.computed.insert(next);
            chain.is_shared |= next != x && !whole.is_read_once(next);
            if chain.computed.len() > MOST_MOVED {
                return None;
            }
        }
        Some(chain)
    }

    /// How many simple operations it is.
    fn work(&self, whole: &Whole<'_>) -> usize {
        self.computed.iter().filter_map(|tensor| whole.maker(*tensor)).map(work).sum()
    }
}

/// The axis of which an operation shows one position of a tensor whole otherwise, and that position.
pub(super) fn position(whole: &Whole<'_>, op: &Op) -> Option<(usize, i64)> {
    let sizes = whole.sizes(operand(op)?);
    match Window::of(whole, op)? {
        Window::Select(dim, index) => {
            let index = whole.number(index)?;
            Some((dim, if index < 0 { index + sizes[dim] } else { index }))
        }
        Window::Slice(ranges, ones) if !ones.contains(&true) => {
            let mut cut = ranges.iter().enumerate().filter(|(axis, range)| **range != (0, sizes[*axis]));
            let (dim, (start, end)) = cut.next()?;
            (cut.next().is_none() && end - start == 1).then_some((dim, *start))
        }
        Window::Slice(..) | Window::Pad(_) | Window::Squeeze(_) => None,
    }
}

/// A tensor of which the elements at single positions of an axis are made.
pub(super) struct Terms<'a> {
    whole: &'a Whole<'a>,
    x: TensorId,
    axis: usize,
    /// How many operations are done for each position.
    pub(super) operations: usize,
    /// Whether it has more elements than each tensor that it is computed of.
    pub(super) is_spread: bool,
    /// Whether it is computed of tensors that are joined along the axis, one for each position.
    pub(super) is_stacked: bool,
    /// Whether it is computed with what is not in memory and has one element along the axis, as what a row was reduced to.
    pub(super) is_of_rows: bool,
}

impl<'a> Terms<'a> {
    pub(super) fn of(whole: &'a Whole<'a>, x: TensorId, axis: usize) -> Option<Self> {
        let elements = |tensor: TensorId| whole.sizes(tensor).iter().map(|size| *size as f64).product::<f64>();
        let mut this = Self { whole, x, axis, operations: 0, is_spread: true, is_stacked: false, is_of_rows: false };
        let first = this.at(0);
        let (mut waiting, mut seen) = (vec![(x, first.window.clone())], BTreeSet::new());
        while let Some((next, window)) = waiting.pop() {
            if !seen.insert((next, window.clone())) {
                continue;
            }
            if window.is_all_of(whole, next) || is_source(whole, next) {
                if !window.is_all_of(whole, next) && !window.is_within(whole, next) {
                    return None;
                }
                this.is_spread &= elements(next) < elements(x);
                this.is_of_rows |= !is_source(whole, next);
                continue;
            }
            if let Some(part) = first.joined(next, &window) {
                this.is_stacked = true;
                waiting.push(part);
                continue;
            }
            let maker = whole.maker(next)?;
            for own in operands(whole, next)? {
                waiting.extend(window.before(whole, maker, next, own)?.map(|before| (own, before)));
            }
            this.operations += 1;
            if this.operations > MOST_MOVED {
                return None;
            }
        }
        Some(this)
    }

    /// What is at a position.
    fn at(&self, position: i64) -> Moved<'a> {
        let mut ranges: Vec<(i64, i64)> = self.whole.sizes(self.x).iter().map(|size| (0, *size)).collect();
        ranges[self.axis] = (position, position + 1);
        let ones = vec![false; ranges.len()];
        let window = Window::Slice(ranges, ones);
        Moved { whole: self.whole, x: self.x, window, fill: None, stops: true }
    }

    /// The same in the new fusion, with an axis of one element.
    pub(super) fn write(&self, r: &mut Rewriter<'_>, position: i64, made: &mut Made) -> Result<TensorId> {
        let at = self.at(position);
        at.part(r, self.x, &at.window, made)
    }
}

/// Whether a tensor that nobody has stored is computed of inputs by few operations.
pub(super) fn is_of_inputs(whole: &Whole<'_>, x: TensorId) -> bool {
    is_made(whole, x) && !whole.is_returned(x) && Chain::of(whole, x).is_some()
}

/// Whether a tensor is computed element by element, or is such a one or one in memory with its axes moved, while nothing between
/// is stored.
fn is_made(whole: &Whole<'_>, mut x: TensorId) -> bool {
    while let Some(maker) = whole.maker(x) {
        let (true, Some(moved)) = (moves_axes(&maker.kind), operand(maker)) else { return computes(maker) };
        if is_in_memory(whole, moved) {
            return true;
        }
        if whole.is_returned(moved) || !whole.readers(moved).all(is_kernel) {
            return false;
        }
        x = moved;
    }
    false
}

/// Whether an operation computes each element of the same ones of its operands.
fn computes(op: &Op) -> bool {
    op.kind.is_elementwise() || call(op, Form::SumOf).is_some()
}

fn moves_axes(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Broadcast { .. } | OpKind::Permute { .. } | OpKind::Squeeze { .. })
}

/// Whether a tensor is an input, or a view of one.
pub(super) fn is_in_memory(whole: &Whole<'_>, mut x: TensorId) -> bool {
    while let Some(maker) = whole.maker(x) {
        let OpKind::Call(call) = &maker.kind else { return false };
        let (true, Some(seen)) = (call.movement().place.is_some(), operand(maker)) else { return false };
        x = seen;
    }
    true
}

/// Whether parts of a tensor are read as they are: it is in memory, or is that with something around it
/// ([`Window::is_within`]).
fn is_source(whole: &Whole<'_>, x: TensorId) -> bool {
    let padded = whole.maker(x).filter(|maker| call(maker, Form::Pad).is_some()).and_then(operand);
    is_in_memory(whole, x) || (!whole.is_returned(x) && padded.is_some_and(|padded| is_in_memory(whole, padded)))
}

/// The tensors that an elementwise operation, or one that moves axes, makes a tensor of.
fn operands(whole: &Whole<'_>, x: TensorId) -> Option<Vec<TensorId>> {
    let (maker, definition) = (whole.maker(x)?, whole.fusion.definition(x)?);
    let read: Vec<TensorId> = whole.fusion.tensor_inputs(definition).collect();
    let is_moved = match &maker.kind {
        kind if moves_axes(kind) => true,
        _ => computes(maker) && read.iter().all(|tensor| whole.rank(*tensor) == whole.rank(x)),
    };
    (is_moved && maker.outputs.len() == 1).then_some(read)
}

/// How many simple operations an operation is, about.
fn work(op: &Op) -> usize {
    use BinaryOp as B;
    use UnaryOp as U;
    let is_function = match &op.kind {
        OpKind::Unary(op) => {
            let is_simple = matches!(
                op,
                U::Abs | U::Neg | U::Relu | U::Sign | U::Floor | U::Ceil | U::Trunc | U::Round | U::BitwiseNot
            );
            !is_simple && !op.is_predicate()
        }
        OpKind::Binary(op) => matches!(
            op,
            B::Div
                | B::Truediv
                | B::Pow
                | B::Fmod
                | B::Remainder
                | B::Mod
                | B::Atan2
                | B::Nextafter
                | B::Gcd
                | B::CeilDiv
        ),
        kind if moves_axes(kind) => return 0,
        _ if call(op, Form::SumOf).is_some() => return op.inputs.len(),
        _ => false,
    };
    if is_function { OF_FUNCTION } else { 1 }
}

impl<'a> Moved<'a> {
    /// What an operation shows of what is computed, if it is better computed of what is shown of inputs.
    pub(super) fn of(whole: &'a Whole<'a>, op: &Op) -> Option<Self> {
        let x = operand(op)?;
        let is_usable = is_made(whole, x) && !whole.is_returned(x) && !whole.is_empty(op.output());
        if !is_usable || !pays(whole, x) {
            return None;
        }
        whole.readers(x).all(|reader| is_kernel(reader) || Self::shown(whole, reader).is_some()).then_some(())?;
        Self::shown(whole, op)
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// What an operation shows, if it can be shown of inputs.
    fn shown(whole: &'a Whole<'a>, op: &Op) -> Option<Self> {
        let (x, window) = (operand(op)?, Window::of(whole, op)?);
        let is_pad = matches!(window, Window::Pad(_));
        let this = Self { whole, x, window, fill: fill(op).filter(|_| is_pad), stops: false };
        let is_filled = !is_pad || this.fills();
        (is_filled && this.reaches()).then_some(this)
    }

    /// Whether all operands can be shown so.
    fn reaches(&self) -> bool {
        let (mut waiting, mut seen) = (vec![(self.x, self.window.clone())], BTreeSet::new());
        while let Some((x, window)) = waiting.pop() {
            if seen.contains(&(x, window.clone())) {
                continue;
            }
            if is_source(self.whole, x) {
                if !window.is_within(self.whole, x) {
                    return false;
                }
                continue;
            }
            let (Some(maker), Some(operands)) = (self.whole.maker(x), operands(self.whole, x)) else { return false };
            for own in operands {
                let Some(before) = window.before(self.whole, maker, x, own) else { return false };
                waiting.extend(before.map(|before| (own, before)));
            }
            seen.insert((x, window));
        }
        true
    }

    /// Whether what a pad adds to inputs is what it adds, behind the operations.
    fn fills(&self) -> bool {
        let fusion = self.whole.fusion;
        let dtype = fusion.tensors[self.x].dtype;
        let wanted = match self.fill {
            Some(fill) => fusion.const_scalar(fill),
            None => Some(eval::cast(DType::Bool, dtype, Value::Bool(false))),
        };
        let Some((chain, wanted)) = Chain::of(self.whole, self.x).zip(wanted) else { return false };
        let mut values: BTreeMap<TensorId, Value> = BTreeMap::new();
        for source in chain.sources {
            let own = fusion.tensors[source].dtype;
            // What is given is of the class of the tensor, and 0 if nothing is given.
            if own == DType::F4E2M1FNX2 || own.class() != dtype.class() && self.fill.is_some() {
                return false;
            }
            values.insert(source, eval::cast(dtype, own, wanted));
        }
        // Operations stand in the order in which they are done, and so do their results.
        for (_, op) in fusion.ops.iter().filter(|(_, op)| chain.computed.contains(&op.output())) {
            let Some(value) = value_of(self.whole, op, &values) else { return false };
            values.insert(op.output(), value);
        }
        values.get(&self.x).is_some_and(|found| *found == wanted)
    }

    /// The part, made of parts of inputs.
    pub(super) fn write(&self, r: &mut Rewriter<'_>, op: &Op, made: &mut Made) -> Result<TensorId> {
        let part = self.part(r, self.x, &self.window, made)?;
        // What is returned is a result of its own.
        if self.whole.is_returned(op.output()) && r.stands_for_one(part) {
            return super::make::tensor(r.builder.set(part)?);
        }
        Ok(part)
    }

    fn part(&self, r: &mut Rewriter<'_>, x: TensorId, window: &Window, made: &mut Made) -> Result<TensorId> {
        let key = (x, window.clone(), self.fill);
        if let Some(part) = made.0.get(&key) {
            return Ok(*part);
        }
        let joined = if self.stops { self.joined(x, window) } else { None };
        let part = if self.stops && window.is_all_of(self.whole, x) {
            r.tensor(x)?
        } else if let Some((own, before)) = joined {
            self.part(r, own, &before, made)?
        } else if is_source(self.whole, x) {
            self.cut(r, x, window)?
        } else {
            let bug = || Diagnostic::bug("a part is none of what is computed");
            let (maker, operands) = self.whole.maker(x).zip(operands(self.whole, x)).ok_or_else(bug)?;
            let mut parts = Vec::with_capacity(operands.len());
            for own in operands {
                parts.push(match window.before(self.whole, maker, x, own).ok_or_else(bug)? {
                    Some(before) => self.part(r, own, &before, made)?,
                    None => r.tensor(own)?,
                });
            }
            written(r, maker, window, &parts)?
        };
        made.0.insert(key, part);
        Ok(part)
    }

    /// The tensor in which a slice of what is joined lies, one for each position, and the slice of it.
    fn joined(&self, x: TensorId, window: &Window) -> Option<(TensorId, Window)> {
        let maker = self.whole.maker(x)?;
        let (cat, Window::Slice(ranges, ones)) = (call(maker, Form::Cat)?, window) else { return None };
        let dim = cat.axis("dim");
        let parts = tensors(maker, cat, "tensors");
        let is_one = |part: &TensorId| self.whole.sizes(*part)[dim] == 1 && self.whole.is_broadcast(*part, dim);
        let (start, end) = ranges[dim];
        if end != start + 1 || !parts.iter().all(is_one) {
            return None;
        }
        let mut own = ranges.clone();
        own[dim] = (0, 1);
        Some((*parts.get(usize::try_from(start).ok()?)?, Window::Slice(own, ones.clone())))
    }

    /// A part of what is in memory: the one that somebody reads already, if there is one.
    fn cut(&self, r: &mut Rewriter<'_>, x: TensorId, window: &Window) -> Result<TensorId> {
        let whole = self.whole;
        let is_it =
            |reader: &&Op| !matches!(window, Window::Pad(_)) && Window::of(whole, reader).as_ref() == Some(window);
        if let Some(known) = whole.readers(x).filter(is_it).find_map(|reader| r.tensor(reader.output()).ok()) {
            return Ok(known);
        }
        match window {
            Window::Slice(ranges, ones) => slice_to(r, whole, x, ranges, ones),
            Window::Pad(widths) => pad(r, x, widths, self.fill),
            Window::Select(dim, index) => {
                let (new, index, dim) = (r.tensor(x)?, r.scalar(*index), OpArg::Int(*dim as i64));
                make(&mut r.builder, "select", |args| args.value("x", new).value("index", index).with("dim", dim))
            }
            Window::Squeeze(dim) => {
                let flags: Vec<bool> = (0..whole.rank(x)).map(|axis| axis == *dim).collect();
                let new = r.tensor(x)?;
                squeeze(&mut r.builder, new, &flags)
            }
        }
    }
}

/// An operation on parts of its operands.
fn written(r: &mut Rewriter<'_>, maker: &Op, window: &Window, parts: &[TensorId]) -> Result<TensorId> {
    let Some(dim) = window.dropped() else { return r.write_on(maker, parts) };
    match &maker.kind {
        OpKind::Broadcast { flags } => {
            let mut flags = flags.clone();
            flags.remove(dim);
            broadcast(&mut r.builder, parts[0], &flags)
        }
        OpKind::Permute { perm } => {
            let gone = perm[dim];
            let kept = perm.iter().filter(|axis| **axis != gone).map(|axis| axis - u32::from(*axis > gone));
            let perm: Vec<u32> = kept.collect();
            if perm.is_sorted() { Ok(parts[0]) } else { r.write_as(maker, OpKind::Permute { perm }, parts) }
        }
        OpKind::Squeeze { flags } => {
            let mut own = flags.clone();
            own.remove(kept_axis(flags, dim));
            squeeze(&mut r.builder, parts[0], &own)
        }
        _ => r.write_on(maker, parts),
    }
}

/// Whether kernels compute what an operation reads.
fn is_kernel(op: &Op) -> bool {
    let is_window = call(op, Form::Slice).or(call(op, Form::Pad)).or(call(op, Form::Select)).is_some();
    !is_window && !super::lookups::is_stored(op)
}

/// Whether an operation pads for kernels, which compute what it adds with what they make of it.
fn is_padded(whole: &Whole<'_>, op: &Op) -> bool {
    call(op, Form::Pad).is_some() && whole.readers(op.output()).any(is_kernel)
}

/// The value that an operation makes of constants.
fn value_of(whole: &Whole<'_>, op: &Op, values: &BTreeMap<TensorId, Value>) -> Option<Value> {
    let fusion = whole.fusion;
    let value = |input: &Operand| match input {
        Operand::Tensor(tensor) => values.get(tensor).copied(),
        Operand::Scalar(scalar) => fusion.const_scalar(*scalar),
    };
    let dtype = |input: &Operand| match *input {
        Operand::Tensor(tensor) => fusion.tensors[tensor].dtype,
        Operand::Scalar(scalar) => fusion.scalars[scalar].dtype,
    };
    let read: Vec<Value> = op.inputs.iter().map(value).collect::<Option<_>>()?;
    let own = op.inputs.last().map(dtype)?;
    Some(match (&op.kind, &read[..]) {
        (OpKind::Cast(to), [a]) => eval::cast(own, *to, *a),
        (OpKind::Unary(kind), [a]) => eval::unary(*kind, own, *a),
        (OpKind::Binary(kind), [a, b]) => eval::binary(*kind, own, *a, *b),
        (OpKind::Ternary(kind), [a, b, c]) => eval::ternary(*kind, own, *a, *b, *c),
        (OpKind::Set, [a]) => *a,
        (kind, [a]) if moves_axes(kind) => *a,
        _ => return None,
    })
}

/// Whether it moves fewer bytes to compute what is read of a tensor in part for each reader, of inputs.
fn pays(whole: &Whole<'_>, x: TensorId) -> bool {
    let Some(chain) = Chain::of(whole, x) else { return false };
    // Views of one tensor that is stored are as good for a library, and as results of what is turned.
    let is_turned = whole.maker(x).is_some_and(|maker| moves_axes(&maker.kind));
    let is_computed_with = |part: TensorId| {
        whole.readers(part).any(|op| is_kernel(op) || is_padded(whole, op)) || (whole.is_returned(part) && !is_turned)
    };
    let parts = || whole.readers(x).filter(|reader| Window::of(whole, reader).is_some());
    if !parts().any(|reader| is_computed_with(reader.output())) {
        return false;
    }
    // A kernel would move axes for those who read parts.
    if chain.work(whole) == 0 {
        return true;
    }
    let bytes = |tensor: TensorId| whole.fusion.tensors[tensor].dtype.bytes() as f64;
    let count = |tensor: TensorId| whole.sizes(tensor).iter().map(|size| *size as f64).product::<f64>();
    let axes = |tensor: TensorId| whole.sizes(tensor).iter().filter(|size| **size != 1).count();
    let of_inputs: f64 =
        chain.sources.iter().filter(|source| axes(**source) >= axes(x)).map(|source| bytes(*source)).sum();
    // What is stored is written, and read in part; a part that is returned is a view of it.
    let (mut stored, mut again) = (count(x) * bytes(x), 0.0);
    let (mut shown, mut windows, mut pads, mut others) = (0.0, 0, 0, 0);
    for reader in whole.readers(x) {
        if Window::of(whole, reader).is_none() {
            others += 1;
            continue;
        }
        let (output, is_pad) = (reader.output(), call(reader, Form::Pad).is_some());
        // Where sizes are not seen, each may show all.
        let elements = if whole.knows_sizes() { count(output) } else { count(x) };
        let is_view = !is_pad && whole.is_returned(output);
        *(if is_view { &mut again } else { &mut stored }) += elements * bytes(x);
        again += elements * of_inputs;
        shown += elements;
        windows += 1;
        pads += usize::from(is_pad);
    }
    if others == 0 && !chain.is_shared {
        // A pad is computed with its operand. What is read by slices that show no element twice is computed once.
        if (windows, pads) == (1, 1) {
            return false;
        }
        if pads == 0 && shown <= count(x) {
            return true;
        }
    }
    again <= stored && chain.work(whole) * windows <= MOST_AGAIN
}
