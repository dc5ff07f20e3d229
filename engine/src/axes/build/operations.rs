//! How each operation relates the axes of its operands with those of its result.

use super::pairs::axis_pairs;
use super::relations::{Node, NodeExtent, Relations, Resized};
use super::values::{DraftId, Use};
use crate::axes::offset::{Offset, Sign};
use crate::axes::sizes::Size;
use crate::fusion::ops::{Call, Form};
use crate::fusion::{Op, OpId, OpKind, Operand, ScalarDef, ScalarId};

/// A sum of scalars, with what is known of its sign.
struct Distance {
    terms: Vec<(i64, ScalarId)>,
    sign: Sign,
}

impl Distance {
    fn new(terms: impl IntoIterator<Item = (i64, ScalarId)>, sign: Sign) -> Self {
        Self { terms: terms.into_iter().collect(), sign }
    }
}

impl Relations<'_> {
    /// Relates the axes of an operation's operands, up to so many, with those of a value that is
    /// its result.
    pub(super) fn operation(&mut self, op: OpId, result: DraftId, operands: usize) {
        let values = self.values;
        let data = &values.fusion.ops[op];
        if data.output() != values.all[result].tensor {
            return;
        }
        for position in 0..data.inputs.len().min(operands) {
            let own = (result, position);
            let Some(source) = values.source(own) else { continue };
            let (from, to): (Vec<Node>, Vec<Node>) = (self.axes(source).collect(), self.axes(result).collect());
            match form(&data.kind) {
                Some((Form::Slice, call)) => self.slice(own, data, call, &from, &to),
                Some((Form::Pad, call)) => self.pad(own, data, call, &from, &to),
                Some((Form::Cat, call)) => self.cat(own, call, &from, &to),
                Some((Form::Reshape, _)) => self.reshape(&from, &to),
                _ => {
                    for (a, b) in axis_pairs(&data.kind, position, from.len(), to.len()) {
                        self.pair(from[a], to[b]);
                    }
                    if let Some(lookup) = data.kind.lookup().filter(|lookup| lookup.table == position) {
                        self.nodes[from[lookup.axis]].looked_up = true;
                    }
                }
            }
        }
    }

    fn slice(&mut self, own: Use, op: &Op, call: &Call, from: &[Node], to: &[Node]) {
        let (starts, ends) = (scalars(op, call, "starts"), scalars(op, call, "ends"));
        for (axis, (start, end)) in starts.into_iter().zip(ends).enumerate() {
            let Some(size) = self.values.source(own).and_then(|source| self.extent(source, axis)) else { continue };
            // That it lies in the axis is checked when sizes are known.
            let left = Distance::new([(-1, start)], Sign::NotPositive);
            let right = Distance::new([(1, end), (-1, size)], Sign::NotPositive);
            self.resize(own, axis, [from[axis], to[axis]], left, right);
        }
    }

    fn pad(&mut self, own: Use, op: &Op, call: &Call, from: &[Node], to: &[Node]) {
        // Pairs of widths, the innermost axis first.
        let widths = scalars(op, call, "widths");
        for (axis, pair) in widths.chunks_exact(2).rev().enumerate() {
            let [left, right] = [pair[0], pair[1]].map(|width| Distance::new([(1, width)], Sign::Unknown));
            self.resize(own, axis, [from[axis], to[axis]], left, right);
        }
    }

    fn cat(&mut self, own: Use, call: &Call, from: &[Node], to: &[Node]) {
        let dim = call.axis("dim");
        for axis in (0..from.len()).filter(|axis| *axis != dim) {
            self.pair(from[axis], to[axis]);
        }
        let (result, position) = own;
        let tensors = call.operands("tensors");
        let sources: Vec<_> = tensors.map(|other| (other, self.values.source((result, other)))).collect();
        let extents = |relations: &Self, wanted: &dyn Fn(usize) -> bool| -> Vec<(i64, ScalarId)> {
            let wanted = sources.iter().filter(|(other, _)| wanted(*other));
            wanted.filter_map(|(_, value)| Some((1, relations.extent((*value)?, dim)?))).collect()
        };
        let left = Distance::new(extents(self, &|other| other < position), Sign::NotNegative);
        let right = Distance::new(extents(self, &|other| other > position), Sign::NotNegative);
        self.resize(own, dim, [from[dim], to[dim]], left, right);
    }

    /// The scalar that is the extent of an axis of a value.
    fn extent(&self, value: DraftId, axis: usize) -> Option<ScalarId> {
        Some(self.values.fusion.tensors[self.values.all[value].tensor].axes.get(axis)?.extent)
    }

    /// One axis that is cut or padded, or neither.
    fn resize(&mut self, own: Use, axis: usize, [from, to]: [Node; 2], left: Distance, right: Distance) {
        let (Some((left, a)), Some((right, b))) = (self.offset(left), self.offset(right)) else {
            self.unclear.get_or_insert(own);
            return;
        };
        // Of one element, which sizes alone show, the result has no index.
        let is_dropped = self.nodes[from].concrete && !self.nodes[to].concrete;
        if a.known() == Some(0) && b.known() == Some(0) && !is_dropped {
            return self.pair(from, to);
        }
        // A broadcast that is padded has one index here, whatever it meets elsewhere; so has
        // the place of a slice of one element.
        let single = |relations: &mut Self, node: Node| match relations.nodes[node].concrete {
            true => node,
            false => relations.between(NodeExtent::Const(1)),
        };
        let input = single(self, from);
        if input != from {
            self.seen.insert((own, axis), input);
        }
        let output = single(self, to);
        let picked = (output != to).then_some(own.0);
        self.resizes.push(Resized { input, output, left, right, key: (a, b), picked });
    }

    /// An offset, and the size by which equal ones are found; none of one that is too long for that.
    fn offset(&self, distance: Distance) -> Option<(Offset, Size)> {
        let mut size = Size::number(0);
        let (mut constant, mut terms) = (0i64, Vec::new());
        for (factor, scalar) in distance.terms {
            let term = self.sizes.of(scalar).times(&Size::number(factor))?;
            size = size.plus(&term)?;
            match term.known() {
                Some(number) => constant = constant.checked_add(number)?,
                None => terms.push((factor, scalar)),
            }
        }
        Some(match size.known() {
            Some(known) => (Offset::constant(known), size),
            None => (Offset::sum(constant, terms, distance.sign.and(self.sign(&size))), size),
        })
    }

    /// What the form of a size says of it: extents are not negative.
    fn sign(&self, size: &Size) -> Sign {
        let is_extent = |scalar: ScalarId| matches!(self.values.fusion.scalars[scalar].def, ScalarDef::Size { .. });
        size.sign(is_extent)
    }
}

/// The form of an operation that regroups or resizes axes.
fn form(kind: &OpKind) -> Option<(Form, &Call)> {
    match kind {
        OpKind::Call(call) => call.movement().form.map(|form| (form, call)),
        _ => None,
    }
}

/// Whether an operation relates axes other than by pairs.
pub(super) fn is_transform(kind: &OpKind) -> bool {
    form(kind).is_some_and(|(form, _)| matches!(form, Form::Slice | Form::Pad | Form::Cat | Form::Reshape))
}

/// The scalars that are given for a parameter.
fn scalars(op: &Op, call: &Call, parameter: &str) -> Vec<ScalarId> {
    let scalar = |operand: &Operand| match *operand {
        Operand::Scalar(scalar) => Some(scalar),
        Operand::Tensor(_) => None,
    };
    op.inputs[call.operands(parameter)].iter().filter_map(scalar).collect()
}
