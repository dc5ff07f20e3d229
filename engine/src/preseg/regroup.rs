//! Reshapes between operations that kernels compute: what is computed before and behind them is computed in the finest
//! axes of both sides ([`Finest`]), in which the elements are the same, so that such a reshape comes to nothing.
//! As it stands it is a view of memory: what it reads would be stored for it, and read again.
//!
//! Parts that are taken behind a reshape count as read by kernels where what lies before it is computed of inputs: the parts
//! are of these then (`windows`).
//!
//! What is in memory is seen in the finer axes, and so is what is returned, or read by others, in its own: a tensor
//! whose elements lie in order may be seen in any axes.
//!
//! Tensors that are joined stay whole along that axis alone, and what is looked up along the table's; of a line, which has no other
//! axes, the result has those of the index, however fine. So what is unpacked and decoded is computed in one go.
//!
//! Left alone: a reshape whose sides have no finer axes in common (`[6, 4]` as `[8, 3]`), one that would cut what
//! another operation works along as it is (positions, what kernels widen, what is joined or looked up where something is reduced), or
//! of what is written into an input, a view of memory, and one behind which nothing is computed.

use super::finest::{Finest, Refinable, line, tensor_of};
use super::lookups::is_stored;
use super::make::{broadcast, call as make, extents, join, reshape, squeeze, tensor};
use super::whole::{Changes, Whole, call, of_one, operand};
use super::windows::{Terms, is_of_inputs, position};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{Fusion, Op, OpKind, Operand, Rewriter, Src, TensorId};
use crate::util::SecondaryMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    let candidates = in_the_way(whole.fusion);
    // What passes made of others may have some where the definition has none, and sizes are not seen.
    if candidates.is_empty() || !whole.knows_sizes() {
        return Changes::new();
    }
    let (mut finest, mut gone) = (Finest::new(whole), BTreeMap::new());
    for (op, from, is_direct) in candidates {
        let to = op.output();
        // Parts are shown of what is in memory: of inputs, if what lies before is computed of the same parts of these.
        if !is_direct && !is_of_inputs(whole, from) && !shows_positions(whole, from, to) {
            continue;
        }
        let is_usable = |tensor: TensorId| whole.regroups(tensor) && whole.declares(tensor) && !whole.is_empty(tensor);
        if is_usable(from) && is_usable(to) && finest.accept(from, to) {
            gone.insert(to, from);
        }
    }
    if gone.is_empty() {
        return Changes::new();
    }
    finest.find_extents();
    let region = Rc::new(Region { whole, finest, gone, made: RefCell::new(BTreeMap::new()) });
    let mut changes = Changes::new();
    for (id, op) in whole.fusion.ops.iter().filter(|(_, op)| region.changes(op)) {
        let region = Rc::clone(&region);
        changes.insert(id, of_one(Box::new(move |r: &mut Rewriter<'_>| region.write(r, op))));
    }
    changes
}

/// Whether all that is read behind a reshape is at single positions of a last axis that cuts the one before it, and can be computed of
/// the same positions of inputs: neighbours in a row that is reduced, which are combined.
fn shows_positions(whole: &Whole<'_>, from: TensorId, to: TensorId) -> bool {
    let (Some(last), Some(own)) = (whole.rank(from).checked_sub(1), whole.rank(to).checked_sub(1)) else {
        return false;
    };
    let (all, few) = (whole.sizes(from)[last], whole.sizes(to)[own]);
    let at_one = |reader: &Op| position(whole, reader).is_some_and(|(axis, _)| axis == own);
    few > 1 && all % few == 0 && all > few && whole.readers(to).all(at_one) && Terms::of(whole, from, last).is_some()
}

/// Whether a fusion has reshapes that could go, so that its sizes have to be seen.
pub(super) fn may_find(fusion: &Fusion) -> bool {
    !in_the_way(fusion).is_empty()
}

/// The reshapes that read what kernels compute, through other reshapes too, and behind which kernels compute, with what
/// they read, and whether kernels read all of what they make.
fn in_the_way(fusion: &Fusion) -> Vec<(&Op, TensorId, bool)> {
    if !fusion.ops.values().any(|op| call(op, Form::Reshape).is_some()) {
        return Vec::new();
    }
    let (mut sources, mut found) = (Sources::default(), Vec::new());
    let behind = Behind::of(fusion);
    for op in fusion.ops.values() {
        sources.see(op);
        let (output, is_reshape) = (op.output(), call(op, Form::Reshape).is_some());
        if is_reshape && (behind.is_direct[output] || behind.is_shown[output]) {
            let from = sources.root[output].filter(|from| sources.is_computed[*from]);
            found.extend(from.map(|from| (op, from, behind.is_direct[output])));
        }
    }
    found
}

/// What reshapes look at.
#[derive(Default)]
struct Sources {
    /// Whether kernels compute a tensor: it is in memory neither as it is nor in other axes.
    is_computed: SecondaryMap<TensorId, bool>,
    /// Of a reshape, or a reshape of one, the tensor that the first of them reads.
    root: SecondaryMap<TensorId, Option<TensorId>>,
}

impl Sources {
    fn see(&mut self, op: &Op) {
        let is_reshape = call(op, Form::Reshape).is_some();
        let keeps = is_reshape || matches!(op.kind, OpKind::Broadcast { .. } | OpKind::Squeeze { .. });
        let computed = match operand(op).filter(|_| keeps) {
            Some(x) => self.is_computed[x],
            None => !is_stored(op),
        };
        for output in &op.outputs {
            self.is_computed.set(*output, computed);
        }
        if let Some(x) = operand(op).filter(|_| is_reshape) {
            let root = self.root[x].unwrap_or(x);
            self.root.set(op.output(), Some(root));
        }
    }
}

/// Behind which tensors kernels compute.
#[derive(Default)]
struct Behind {
    /// At once, or when axes were moved.
    is_direct: SecondaryMap<TensorId, bool>,
    /// Or when they were regrouped.
    is_computed: SecondaryMap<TensorId, bool>,
    /// When axes were moved, and part of them was taken.
    is_shown: SecondaryMap<TensorId, bool>,
}

impl Behind {
    fn of(fusion: &Fusion) -> Self {
        let (mut this, refinable) = (Self::default(), Refinable::of(fusion));
        for op in fusion.ops.values().rev() {
            let output = op.output();
            let moves = matches!(op.kind, OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. });
            let is_reshape = call(op, Form::Reshape).is_some();
            let direct = match moves {
                true => this.is_computed[output],
                false => !is_stored(op) && op.kind.lookup().is_none() || is_reshape && is_copied(fusion, op),
            };
            let computed = direct || is_reshape && this.is_computed[output];
            let shows = call(op, Form::Select).or(call(op, Form::Slice)).is_some();
            let shown = shows && this.is_computed[output] || moves && this.is_shown[output];
            // A kernel computes an index for itself, and reads a table that is in memory.
            let index = op.kind.lookup().filter(|_| refinable.has(fusion, op)).map(|lookup| lookup.index);
            let inputs = op.inputs.iter().enumerate();
            for (position, tensor) in inputs.filter_map(|(at, operand)| Some((at, tensor_of(operand)?))) {
                let (direct, computed) = (direct || index == Some(position), computed || index == Some(position));
                this.is_direct[tensor] |= direct;
                this.is_computed[tensor] |= computed;
                this.is_shown[tensor] |= shown;
            }
        }
        this
    }
}

/// Whether a reshape makes fewer axes of such as were moved, which are no view: a kernel copies them.
fn is_copied(fusion: &Fusion, op: &Op) -> bool {
    let Some(x) = operand(op) else { return false };
    let is_moved = fusion.definition(x).is_some_and(|maker| matches!(fusion.ops[maker].kind, OpKind::Permute { .. }));
    is_moved && fusion.tensors[op.output()].axes.len() < fusion.tensors[x].axes.len()
}

/// What is written in finer axes.
struct Region<'a> {
    whole: &'a Whole<'a>,
    finest: Finest<'a>,
    /// Results of reshapes that go, and what they see.
    gone: BTreeMap<TensorId, TensorId>,
    /// New tensors in the finer axes of old ones.
    made: RefCell<BTreeMap<TensorId, TensorId>>,
}

impl Region<'_> {
    fn changes(&self, op: &Op) -> bool {
        let mut tensors = op.inputs.iter().filter_map(tensor_of).chain(op.outputs.iter().copied());
        self.gone.contains_key(&op.output())
            || self.finest.is_refinable(op) && tensors.any(|tensor| self.finest.is_cut(tensor))
    }

    /// Writes an operation in finer axes, and gives its result in its own.
    fn write(&self, r: &mut Rewriter<'_>, op: &Op) -> Result<TensorId> {
        let (output, from) = (op.output(), self.gone.get(&op.output()).copied());
        let made = match from {
            Some(from) => self.regrouped(r, from, output)?,
            None => self.written(r, op)?,
        };
        self.made.borrow_mut().insert(output, made);
        let is_own = !self.finest.is_cut(output);
        if from.is_some() && self.whole.is_returned(output) {
            // A result of its own, and of what it is a view of, if that is one too.
            let seen = operand(op).filter(|x| self.whole.is_returned(*x)).map_or(Ok(made), |x| r.tensor(x))?;
            return self.view_as(r, seen, output);
        }
        if is_own {
            return Ok(made);
        }
        if !self.is_needed(output) && from.is_none() {
            r.name_as(made, output)?;
        }
        self.view_as(r, made, output)
    }

    /// Whether something needs a tensor in its own axes.
    fn is_needed(&self, tensor: TensorId) -> bool {
        self.whole.is_returned(tensor) || self.whole.readers(tensor).any(|op| !self.changes(op))
    }

    /// A new tensor in the axes of an old one.
    fn view_as(&self, r: &mut Rewriter<'_>, new: TensorId, old: TensorId) -> Result<TensorId> {
        let shape = extents(r, self.whole, old);
        reshape(&mut r.builder, new, shape)
    }

    /// An old tensor in finer axes.
    fn refined(&self, r: &mut Rewriter<'_>, old: TensorId) -> Result<TensorId> {
        if let Some(known) = self.made.borrow().get(&old) {
            return Ok(*known);
        }
        let new = r.tensor(old)?;
        let sizes = self.whole.sizes(old);
        let is_cut = |axis: usize| self.finest.count(old, axis) > 1;
        let made = if (0..sizes.len()).any(|axis| is_cut(axis) && sizes[axis] != 1) {
            let shape = self.shape(r, old);
            reshape(&mut r.builder, new, shape)?
        } else {
            let flags: Vec<bool> =
                (0..sizes.len()).flat_map(|axis| (0..self.finest.count(old, axis)).map(|part| part > 0)).collect();
            broadcast(&mut r.builder, new, &flags)?
        };
        self.made.borrow_mut().insert(old, made);
        Ok(made)
    }

    /// The extents of the finer axes of a tensor.
    fn shape(&self, r: &mut Rewriter<'_>, old: TensorId) -> Vec<Src> {
        let mut shape = Vec::new();
        for (axis, own) in self.whole.fusion.tensors[old].axes.iter().enumerate() {
            let parts = self.finest.parts(old, axis);
            if parts.len() == 1 {
                shape.push(r.scalar(own.extent).into());
                continue;
            }
            for (part, size) in parts.into_iter().enumerate() {
                let known = self.finest.extent(old, axis, part).filter(|_| size != 1);
                shape.push(known.map_or(size.into(), |known| r.scalar(known).into()));
            }
        }
        shape
    }

    /// What a reshape sees, in the finer axes of its result: those of one element are others.
    fn regrouped(&self, r: &mut Rewriter<'_>, from: TensorId, to: TensorId) -> Result<TensorId> {
        let made = self.refined(r, from)?;
        let [old, new] = [from, to].map(|tensor| -> Vec<bool> {
            let parts = (0..self.whole.rank(tensor)).flat_map(|axis| self.finest.parts(tensor, axis));
            parts.map(|size| size == 1).collect()
        });
        if old == new {
            return Ok(made);
        }
        let dropped = squeeze(&mut r.builder, made, &old)?;
        broadcast(&mut r.builder, dropped, &new)
    }

    /// An operation in finer axes.
    fn written(&self, r: &mut Rewriter<'_>, op: &Op) -> Result<TensorId> {
        let output = op.output();
        let mut tensors = Vec::with_capacity(op.inputs.len());
        for tensor in op.inputs.iter().filter_map(tensor_of) {
            tensors.push(self.refined(r, tensor)?);
        }
        match &op.kind {
            OpKind::Full => {
                let (shape, dtype) = (self.shape(r, output), self.whole.fusion.tensors[output].dtype);
                let value = match op.inputs.first() {
                    Some(&Operand::Scalar(value)) => r.scalar(value),
                    _ => return Err(Diagnostic::bug("what fills a tensor is no scalar")),
                };
                tensor(r.builder.full(&shape, value, dtype)?)
            }
            OpKind::Index { axis } => {
                let shape = self.shape(r, output);
                tensor(r.builder.index(&shape, self.places(output, *axis as usize)[0] as i64)?)
            }
            OpKind::Call(_) if op.kind.lookup().is_some() => self.looked_up(r, op, &tensors),
            OpKind::Call(own) if own.movement().form == Some(Form::Cat) => {
                let dim = self.places(output, own.axis("dim"))[0];
                join(&mut r.builder, tensors.into_iter().map(Src::from).collect(), dim)
            }
            OpKind::Call(own) if own.movement().form == Some(Form::SumOf) => r.write_on(op, &tensors),
            OpKind::Call(_) => {
                let x = operand(op).ok_or_else(|| Diagnostic::bug("nothing is expanded"))?;
                let mut shape = self.shape(r, output);
                for axis in (0..self.whole.rank(x)).filter(|axis| !self.is_repeated(x, output, *axis)) {
                    self.places(x, axis).iter().for_each(|place| shape[*place] = (-1).into());
                }
                let x = tensors[0];
                make(&mut r.builder, "expand", |args| args.value("x", x).with("shape", OpArg::Values(shape)))
            }
            kind => r.write_as(op, self.kind(kind, op), &tensors),
        }
    }

    /// A lookup in finer axes. The axis of a line is the last part of that along which it is looked up.
    fn looked_up(&self, r: &mut Rewriter<'_>, op: &Op, tensors: &[TensorId]) -> Result<TensorId> {
        let (lookup, output) = (op.kind.lookup(), op.output());
        let found = lookup.and_then(|own| Some((*tensors.get(own.table)?, *tensors.get(own.index)?, own.axis)));
        let (mut table, index, axis) = found.ok_or_else(|| Diagnostic::bug("nothing is looked up"))?;
        let dim = self.places(output, axis).last().copied().unwrap_or(0);
        if let Some(line) = line(self.whole, op) {
            let rank = (0..self.whole.rank(output)).map(|axis| self.finest.count(output, axis)).sum();
            let (new, extent) = (r.tensor(line)?, r.scalar(self.whole.fusion.tensors[line].axes[axis].extent));
            let mut shape: Vec<Src> = vec![1.into(); rank];
            shape[dim] = extent.into();
            table = reshape(&mut r.builder, new, shape)?;
        }
        let dim = OpArg::Int(dim as i64);
        make(&mut r.builder, "take_along_axis", |args| args.value("x", table).value("index", index).with("dim", dim))
    }

    fn is_repeated(&self, x: TensorId, output: TensorId, axis: usize) -> bool {
        self.whole.sizes(x)[axis] != self.whole.sizes(output)[axis]
    }

    /// The positions of the parts of an axis.
    fn places(&self, tensor: TensorId, axis: usize) -> Vec<usize> {
        let first: usize = (0..axis).map(|before| self.finest.count(tensor, before)).sum();
        (first..first + self.finest.count(tensor, axis)).collect()
    }

    /// What an operation does in terms of finer axes.
    fn kind(&self, kind: &OpKind, op: &Op) -> OpKind {
        let x = operand(op).unwrap_or(op.output());
        let spread = |tensor: TensorId, flags: &[bool]| -> Vec<bool> {
            let parts = flags.iter().enumerate();
            parts.flat_map(|(axis, flag)| std::iter::repeat_n(*flag, self.finest.count(tensor, axis))).collect()
        };
        let places = |axes: &[u32]| -> Vec<u32> {
            axes.iter().flat_map(|axis| self.places(x, *axis as usize)).map(|place| place as u32).collect()
        };
        match kind {
            OpKind::Broadcast { flags } => OpKind::Broadcast { flags: spread(op.output(), flags) },
            OpKind::Squeeze { flags } => OpKind::Squeeze { flags: spread(x, flags) },
            OpKind::Permute { perm } => OpKind::Permute { perm: places(perm) },
            OpKind::Reduce { op, axes } => OpKind::Reduce { op: *op, axes: places(axes) },
            other => other.clone(),
        }
    }
}
