//! Axes that are cut so that reshapes between them come to nothing.
//!
//! In: a fusion, and the reshapes that are to go, one after another. Out: [`Finest`]: of each axis the parts that it is
//! cut into, with their extents. Axes that one loop serves are one class and are cut alike. A reshape's axes make
//! groups of as many elements on both sides; where both sides of a group, and whatever else cuts their axes, end at
//! numbers of elements each of which divides the next, all of them are cut there, and both sides have the same parts.
//! What one reshape cuts is cut wherever it is read, so this goes on through all reshapes that were accepted, to the end.
//!
//! Invariants:
//!
//! * A reshape is accepted as a whole or not at all.
//! * What operations work along that cannot be written in parts is never cut.
//! * An axis of one element has as many parts of one element as its class has parts.

use super::lookups::is_stored;
use super::whole::{Whole, call};
use crate::axes::axis_pairs;
use crate::fusion::ops::{Form, IndexAxes};
use crate::fusion::{Fusion, Op, OpKind, Operand, ScalarId, TensorId};
use crate::util::{DisjointSets, PrimaryMap, map_of, set_of};
use std::collections::{BTreeMap, BTreeSet};

/// As many axes as tensors get at most: what kernels are made of stays small.
const MOST_AXES: usize = 8;

/// Axes that are one loop.
#[derive(Clone, Debug, Default)]
struct Class {
    /// How many elements those of its axes have that are no broadcasts.
    size: i64,
    /// Whether something works along it as it is.
    whole: bool,
    /// How many elements lie inside of each place where it is cut.
    cuts: BTreeSet<i64>,
    /// The tensors with such an axis.
    members: Vec<TensorId>,
    /// The accepted reshapes with such an axis.
    reshapes: Vec<usize>,
}

/// A reshape: the axes of each side of its groups.
type Groups = Vec<[Vec<usize>; 2]>;

/// Axes with their cuts.
pub(super) struct Finest<'a> {
    whole: &'a Whole<'a>,
    refinable: Refinable,
    /// The number of each tensor's first axis.
    first: PrimaryMap<TensorId, usize>,
    /// The class of each axis.
    classes: Vec<usize>,
    /// By the number of a class, which is that of its first axis.
    of_class: Vec<Class>,
    accepted: Vec<Groups>,
    /// Extents of parts that are axes of their own somewhere.
    extents: BTreeMap<(usize, usize), ScalarId>,
}

/// Which operations are written in parts of axes as in axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refinable {
    /// Whether some axes are reduced: what is joined or looked up is stored for that, and stays as it is.
    reduces: bool,
}

impl Refinable {
    pub(super) fn of(fusion: &Fusion) -> Self {
        Self { reduces: fusion.ops.values().any(|op| matches!(op.kind, OpKind::Reduce { .. })) }
    }

    pub(super) fn has(self, fusion: &Fusion, op: &Op) -> bool {
        let OpKind::Call(own) = &op.kind else { return true };
        let rank = |tensor: TensorId| fusion.tensors[tensor].axes.len();
        match own.movement().form {
            Some(Form::Expand | Form::SumOf) => true,
            _ if self.reduces => false,
            Some(Form::Cat) => true,
            Some(Form::Lookup(IndexAxes::Same)) => own.lookup().is_some(),
            // Of a line the result has the axes of the index.
            Some(Form::Lookup(IndexAxes::InPlace)) => op.inputs.iter().filter_map(tensor_of).all(|own| rank(own) == 1),
            _ => false,
        }
    }
}

/// The table of a lookup, if it has one axis alone, other than of one element.
pub(super) fn line(whole: &Whole<'_>, op: &Op) -> Option<TensorId> {
    let lookup = op.kind.lookup()?;
    let table = op.inputs.get(lookup.table).and_then(tensor_of)?;
    let is_line = (0..whole.rank(table)).all(|axis| axis == lookup.axis || whole.is_broadcast(table, axis));
    is_line.then_some(table)
}

/// An operand that is a tensor.
pub(super) fn tensor_of(operand: &Operand) -> Option<TensorId> {
    match *operand {
        Operand::Tensor(tensor) => Some(tensor),
        Operand::Scalar(_) => None,
    }
}

impl<'a> Finest<'a> {
    /// No axis is cut.
    pub(super) fn new(whole: &'a Whole<'a>) -> Self {
        let (mut first, mut count) = (PrimaryMap::new(), 0);
        for tensor in whole.fusion.tensors.ids() {
            first.push(count);
            count += whole.rank(tensor);
        }
        let refinable = Refinable::of(whole.fusion);
        let classes = classes(whole, refinable, &first, count);
        let (of_class, accepted, extents) = (vec![Class::default(); count], Vec::new(), BTreeMap::new());
        let mut this = Self { whole, refinable, first, classes, of_class, accepted, extents };
        this.measure();
        this.keep_whole();
        this
    }

    fn class(&self, tensor: TensorId, axis: usize) -> usize {
        self.classes[self.first[tensor] + axis]
    }

    /// Sizes of classes, and the tensors that have them.
    fn measure(&mut self) {
        for tensor in self.whole.fusion.tensors.ids() {
            for axis in 0..self.whole.rank(tensor) {
                let number = self.class(tensor, axis);
                let class = &mut self.of_class[number];
                class.size = class.size.max(self.whole.sizes(tensor)[axis]);
                if class.members.last() != Some(&tensor) {
                    class.members.push(tensor);
                }
            }
        }
    }

    /// Classes that are not cut.
    fn keep_whole(&mut self) {
        let whole = self.whole;
        for tensor in whole.fusion.tensors.ids() {
            let kept = whole.is_empty(tensor) || !whole.declares(tensor);
            for axis in 0..whole.rank(tensor) {
                let (size, number) = (whole.sizes(tensor)[axis], self.class(tensor, axis));
                let class = &mut self.of_class[number];
                let fits = if whole.is_broadcast(tensor, axis) { size == 1 } else { size == class.size };
                class.whole |= kept || !fits;
            }
        }
        for op in whole.fusion.ops.values() {
            if let OpKind::Index { axis } = op.kind {
                let number = self.class(op.output(), axis as usize);
                self.of_class[number].whole = true;
            }
            if self.is_refinable(op) {
                self.keep_worked_along(op);
            } else if !is_stored(op) {
                op.inputs.iter().filter_map(tensor_of).for_each(|tensor| self.keep(tensor));
                op.outputs.iter().for_each(|tensor| self.keep(*tensor));
            }
        }
        // A kernel writes into an input what has its axes; a view would be copied there.
        whole.fusion.updates.iter().for_each(|update| self.keep(update.tensor));
    }

    /// Whether an operation is written in parts of axes as in axes.
    pub(super) fn is_refinable(&self, op: &Op) -> bool {
        self.refinable.has(self.whole.fusion, op)
    }

    /// Along an axis tensors are joined as they are, and a table is looked up; where that is a line, not its index.
    fn keep_worked_along(&mut self, op: &Op) {
        let OpKind::Call(own) = &op.kind else { return };
        let kept: Vec<(TensorId, usize)> = match (own.lookup(), line(self.whole, op)) {
            (Some(lookup), Some(table)) => vec![(table, lookup.axis)],
            (Some(lookup), None) => self.tensors(op).map(|tensor| (tensor, lookup.axis)).collect(),
            (None, _) if own.movement().form == Some(Form::Cat) => {
                self.tensors(op).map(|tensor| (tensor, own.axis("dim"))).collect()
            }
            (None, _) => return,
        };
        for (tensor, axis) in kept {
            let number = self.class(tensor, axis);
            self.of_class[number].whole = true;
        }
    }

    /// What an operation reads and makes.
    fn tensors<'o>(&self, op: &'o Op) -> impl Iterator<Item = TensorId> + 'o {
        op.inputs.iter().filter_map(tensor_of).chain(op.outputs.iter().copied())
    }

    /// No axis of a tensor is cut.
    fn keep(&mut self, tensor: TensorId) {
        for axis in 0..self.whole.rank(tensor) {
            let number = self.class(tensor, axis);
            self.of_class[number].whole = true;
        }
    }

    /// Cuts axes so that both sides of a reshape have the same parts, if that is possible. Only then it is accepted.
    pub(super) fn accept(&mut self, from: TensorId, to: TensorId) -> bool {
        // Of what is one loop and has several sizes, since one of its axes was given another's elements, nothing is known.
        let has_own_size = |tensor: TensorId| {
            let mut sizes = self.whole.sizes(tensor).iter().enumerate();
            sizes.all(|(axis, size)| *size == 1 || *size == self.of_class[self.class(tensor, axis)].size)
        };
        if !has_own_size(from) || !has_own_size(to) {
            return false;
        }
        let groups = self.groups(from, to);
        if groups.iter().all(|sides| sides.iter().all(|side| side.len() == 1)) {
            return false;
        }
        let number = self.accepted.len();
        let own: BTreeSet<usize> = groups.iter().flatten().flatten().map(|axis| self.classes[*axis]).collect();
        for class in &own {
            self.of_class[*class].reshapes.push(number);
        }
        self.accepted.push(groups);
        let mut before = Vec::new();
        let is_cut = self.cut(number, &mut before);
        if !is_cut {
            for (class, cuts) in before.into_iter().rev() {
                self.of_class[class].cuts = cuts;
            }
            for class in own {
                self.of_class[class].reshapes.pop();
            }
            self.accepted.pop();
        }
        is_cut
    }

    /// The groups of axes of a reshape that has elements. Axes of one element are in none.
    fn groups(&self, from: TensorId, to: TensorId) -> Groups {
        let axes = |tensor: TensorId| {
            let sizes = self.whole.sizes(tensor).iter().enumerate().filter(|(_, size)| **size != 1);
            sizes.map(move |(axis, size)| (self.first[tensor] + axis, *size))
        };
        let (mut from, mut to, mut groups) = (axes(from), axes(to), Vec::new());
        while let (Some(outer), Some(own)) = (from.next(), to.next()) {
            let (mut sides, mut counts) = ([vec![outer.0], vec![own.0]], [outer.1, own.1]);
            while counts[0] != counts[1] {
                let side = usize::from(counts[1] < counts[0]);
                let next = if side == 0 { from.next() } else { to.next() };
                // Both sides have as many elements, so there is one.
                let Some((axis, size)) = next else { break };
                sides[side].push(axis);
                counts[side] = counts[side].saturating_mul(size);
            }
            groups.push(sides);
        }
        groups
    }

    /// Cuts all that a reshape cuts, and what follows from it. `before` gets the cuts that classes had.
    fn cut(&mut self, reshape: usize, before: &mut Vec<(usize, BTreeSet<i64>)>) -> bool {
        let mut waiting = BTreeSet::from([reshape]);
        while let Some(next) = waiting.pop_first() {
            for group in 0..self.accepted[next].len() {
                let Some(found) = self.cuts_of(&self.accepted[next][group]) else { return false };
                for (number, cuts) in found {
                    let class = &mut self.of_class[number];
                    if cuts.is_subset(&class.cuts) {
                        continue;
                    }
                    before.push((number, class.cuts.clone()));
                    class.cuts.extend(cuts);
                    waiting.extend(class.reshapes.iter().copied());
                    if class.whole || !self.is_small(number) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// The cuts of the axes of a group, if the places where axes of either side end divide each other.
    fn cuts_of(&self, sides: &[Vec<usize>; 2]) -> Option<Vec<(usize, BTreeSet<i64>)>> {
        let (mut ends, mut spans) = (BTreeSet::new(), Vec::new());
        for side in sides {
            let mut inside = 1_i64;
            for axis in side.iter().rev() {
                let class = &self.of_class[self.classes[*axis]];
                ends.extend(class.cuts.iter().map(|cut| cut.saturating_mul(inside)));
                let outside = inside.saturating_mul(class.size);
                spans.push((self.classes[*axis], inside, outside));
                ends.insert(outside);
                inside = outside;
            }
        }
        let ends: Vec<i64> = ends.into_iter().collect();
        let divides = ends.windows(2).all(|pair| pair[1] % pair[0] == 0);
        let cuts = |&(class, inside, outside): &(usize, i64, i64)| {
            let within = ends.iter().filter(|end| (inside + 1..outside).contains(*end));
            (class, set_of(within.map(|end| end / inside)))
        };
        divides.then(|| spans.iter().map(cuts).collect())
    }

    /// Whether tensors with such an axis have few axes, those that they have as they are aside.
    fn is_small(&self, class: usize) -> bool {
        self.of_class[class].members.iter().all(|tensor| {
            let own = self.whole.rank(*tensor);
            let parts: usize = (0..own).map(|axis| self.count(*tensor, axis)).sum();
            parts <= MOST_AXES.max(own)
        })
    }

    /// How many parts an axis has.
    pub(super) fn count(&self, tensor: TensorId, axis: usize) -> usize {
        self.of_class[self.class(tensor, axis)].cuts.len() + 1
    }

    /// Whether an axis of a tensor is cut.
    pub(super) fn is_cut(&self, tensor: TensorId) -> bool {
        (0..self.whole.rank(tensor)).any(|axis| self.count(tensor, axis) > 1)
    }

    /// The size of each part of an axis, from the outside.
    pub(super) fn parts(&self, tensor: TensorId, axis: usize) -> Vec<i64> {
        if self.whole.sizes(tensor)[axis] == 1 {
            return vec![1; self.count(tensor, axis)];
        }
        self.parts_of(self.class(tensor, axis))
    }

    fn parts_of(&self, class: usize) -> Vec<i64> {
        let class = &self.of_class[class];
        let inside = class.cuts.iter().rev().copied().chain([1]);
        let outside = [class.size].into_iter().chain(class.cuts.iter().rev().copied());
        outside.zip(inside).map(|(outside, inside)| outside / inside).collect()
    }

    /// The extent of a part of an axis that has more than one element, if it is an axis of its own somewhere.
    pub(super) fn extent(&self, tensor: TensorId, axis: usize, part: usize) -> Option<ScalarId> {
        self.extents.get(&(self.class(tensor, axis), part)).copied()
    }

    /// Finds the extents of parts: those of axes that are not cut, which reshapes make parts of others.
    pub(super) fn find_extents(&mut self) {
        let numbers: Vec<(usize, usize)> = (0..self.of_class.len())
            .flat_map(|class| (0..=self.of_class[class].cuts.len()).map(move |part| (class, part)))
            .collect();
        let place: BTreeMap<(usize, usize), usize> = map_of(numbers.iter().copied().zip(0..));
        let mut same = DisjointSets::new(numbers.len());
        for [from, to] in self.accepted.iter().flatten() {
            let parts = |side: &[usize]| -> Vec<usize> {
                let classes = side.iter().map(|axis| self.classes[*axis]);
                let parts =
                    classes.flat_map(|class| (0..=self.of_class[class].cuts.len()).map(move |part| (class, part)));
                parts.filter_map(|part| place.get(&part).copied()).collect()
            };
            for (a, b) in parts(from).into_iter().zip(parts(to)) {
                same.union(a, b);
            }
        }
        let mut known: BTreeMap<usize, ScalarId> = BTreeMap::new();
        for (tensor, data) in self.whole.fusion.tensors.iter() {
            for (axis, data) in data.axes.iter().enumerate() {
                let is_own = self.count(tensor, axis) == 1 && !self.whole.is_broadcast(tensor, axis);
                if let Some(part) = place.get(&(self.class(tensor, axis), 0)).filter(|_| is_own) {
                    let extent = known.entry(same.root(*part)).or_insert(data.extent);
                    // A number says more.
                    if self.whole.fusion.const_scalar(*extent).is_none() {
                        *extent = self.whole.fusion.const_scalar(data.extent).map_or(*extent, |_| data.extent);
                    }
                }
            }
        }
        let extent = |(number, part): (usize, usize)| Some((numbers[number], *known.get(&part)?));
        self.extents = map_of((0..numbers.len()).filter_map(|number| extent((number, same.root(number)))));
    }
}

/// The class of each axis.
fn classes(whole: &Whole<'_>, refinable: Refinable, first: &PrimaryMap<TensorId, usize>, count: usize) -> Vec<usize> {
    let mut sets = DisjointSets::new(count);
    for op in whole.fusion.ops.values().filter(|op| refinable.has(whole.fusion, op)) {
        // Parts are axes of their own.
        let joined = call(op, Form::Cat).map(|own| own.axis("dim"));
        let output = op.output();
        for (position, operand) in op.inputs.iter().enumerate() {
            let &Operand::Tensor(tensor) = operand else { continue };
            let pairs = axis_pairs(&op.kind, position, whole.rank(tensor), whole.rank(output));
            for (from, to) in pairs.into_iter().filter(|(from, _)| joined != Some(*from)) {
                sets.union(first[tensor] + from, first[output] + to);
            }
        }
    }
    (0..count).map(|axis| sets.find(axis)).collect()
}
