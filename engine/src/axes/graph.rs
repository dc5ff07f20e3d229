//! The axes and the transforms between them.

use super::offset::{Offset, OffsetId};
use crate::fusion::ScalarId;
use crate::util::{EntityId, PrimaryMap, entity_id};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

entity_id!(
    /// An axis of the iteration space: a dimension, or derived from some by transforms.
    pub struct AxisId, "i"
);
entity_id!(
    /// A transform of axes.
    pub struct XformId, "x"
);
entity_id!(
    /// An amount by which rows are shifted; what it is, the owner of the graph says.
    pub struct ShiftId, "s"
);

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// A readable name: `d0`, `d0.o`, `d0.i`, ...
    pub name: String,
    /// Number of indices.
    pub extent: Extent,
    /// Indices that it has at least, where a schedule is for all sizes from there on; 0 where it is for those like the one at hand.
    pub least: i64,
    /// The transforms that make it; none for a root. They agree in its index.
    pub defs: SmallVec<[XformId; 1]>,
    /// The transforms that take it: different tensors may divide it in different ways.
    pub uses: SmallVec<[XformId; 2]>,
}

/// The extent of an axis, over the sizes of the fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// A constant of the schedule.
    Const(i64),
    /// A scalar of the fusion.
    Scalar(ScalarId),
    /// `ceil(extent / factor)`.
    CeilDiv(AxisId, i64),
    /// The product of two extents.
    Product(AxisId, AxisId),
    /// `extent + n`.
    Plus(AxisId, i64),
    /// `extent * n`.
    Times(AxisId, i64),
    /// Indices of a part, where an axis is cut into [`Parts`], and turns in which they take one each:
    /// `ceil(extent / parts)`.
    Share(AxisId, Parts),
    /// The parts that are not empty, of an axis and its share: `ceil(extent / share)`.
    Shares(AxisId, AxisId),
}

/// Into how many parts an axis is cut: known when the kernel is launched, so one kernel
/// serves whatever that makes of the sizes. They are as many as have a place when each
/// index of `beside` has them; at most one for each index of the axis, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parts {
    /// Places for parts.
    pub places: i64,
    /// The axis whose indices share the places.
    pub beside: Option<AxisId>,
}

impl Parts {
    /// The share of a part, of an axis of so many indices, beside so many of the other.
    pub fn share(self, extent: i64, beside: i64) -> i64 {
        let parts = (self.places / beside.max(1)).min(extent).max(1);
        (extent / parts + i64::from(extent % parts != 0)).max(1)
    }
}

/// Indices from the start of a window to that of the next: so many for each index of an axis, if one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowStep {
    /// How many.
    pub indices: i64,
    /// For each index of what.
    pub of: Option<AxisId>,
}

impl WindowStep {
    /// So many indices, whatever the sizes.
    pub const fn constant(indices: i64) -> Self {
        Self { indices, of: None }
    }

    /// The step, where the axis has so many indices.
    pub fn times(self, extent: impl FnOnce(AxisId) -> i64) -> i64 {
        self.of.map_or(self.indices, |of| self.indices.saturating_mul(extent(of)))
    }
}

/// A transform of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "fields of a variant are described by the variant")]
pub enum Xform {
    /// `input = outer * factor + inner`, where the factor is the extent of `inner`.
    /// `exact`: the factor divides the extent, so no index overflows.
    Split { input: AxisId, outer: AxisId, inner: AxisId, exact: bool },
    /// `output = outer * extent(inner) + inner`.
    Merge { outer: AxisId, inner: AxisId, output: AxisId },
    /// `input = output - shift`, where `shift` is the position of the row's
    /// first element within a vector: the linear offset of a tensor at
    /// `input = 0`, modulo `vector`. Index 0 of the output is then aligned in
    /// memory, whatever the row. The output's extent covers every shift.
    Align { input: AxisId, output: AxisId, vector: i64, shift: ShiftId },
    /// `input = outer * step + inner - left - shift`: the windows of an axis, one for each index of
    /// `outer`, which overlap where the extent of `inner` is more than `step`. The shift is that of
    /// [`Xform::Align`], of rows of the given vector; 0 for none. The outer axis exists: it is the
    /// number of parts into which others divide the input.
    Window { input: AxisId, outer: AxisId, inner: AxisId, step: WindowStep, left: i64, shift: Option<(i64, ShiftId)> },
    /// `output = input + left`, and `extent(output) = left + extent(input) + right`:
    /// a slice where they are negative, a padded axis or a part of a joined one where not.
    Resize { input: AxisId, output: AxisId, left: OffsetId, right: OffsetId },
}

impl Xform {
    /// What it takes, outer to inner.
    pub fn inputs(&self) -> SmallVec<[AxisId; 2]> {
        match *self {
            Xform::Split { input, .. } | Xform::Align { input, .. } | Xform::Resize { input, .. } => {
                SmallVec::from_slice(&[input])
            }
            Xform::Merge { outer, inner, .. } => SmallVec::from_slice(&[outer, inner]),
            Xform::Window { input, outer, .. } => SmallVec::from_slice(&[input, outer]),
        }
    }

    /// Whether an axis that it takes is what its results are indices of: all but the axis that
    /// numbers windows.
    pub fn divides(&self, axis: AxisId) -> bool {
        !matches!(*self, Xform::Window { outer, .. } if outer == axis)
    }

    /// What it makes, outer to inner.
    pub fn outputs(&self) -> SmallVec<[AxisId; 2]> {
        match *self {
            Xform::Split { outer, inner, .. } => SmallVec::from_slice(&[outer, inner]),
            Xform::Window { inner, .. } => SmallVec::from_slice(&[inner]),
            Xform::Merge { output, .. } | Xform::Align { output, .. } | Xform::Resize { output, .. } => {
                SmallVec::from_slice(&[output])
            }
        }
    }
}

/// Axes, and how they derive from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisGraph {
    axes: PrimaryMap<AxisId, Axis>,
    xforms: PrimaryMap<XformId, Xform>,
    offsets: PrimaryMap<OffsetId, Offset>,
    /// How many of the transforms are the program's; a schedule made the others.
    program: usize,
}

impl Index<AxisId> for AxisGraph {
    type Output = Axis;
    fn index(&self, axis: AxisId) -> &Axis {
        &self.axes[axis]
    }
}

impl IndexMut<AxisId> for AxisGraph {
    fn index_mut(&mut self, axis: AxisId) -> &mut Axis {
        &mut self.axes[axis]
    }
}

impl Index<XformId> for AxisGraph {
    type Output = Xform;
    fn index(&self, xform: XformId) -> &Xform {
        &self.xforms[xform]
    }
}

impl Index<OffsetId> for AxisGraph {
    type Output = Offset;
    fn index(&self, offset: OffsetId) -> &Offset {
        &self.offsets[offset]
    }
}

impl AxisGraph {
    /// Number of axes.
    pub fn len(&self) -> usize {
        self.axes.len()
    }

    /// Whether there is no axis.
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// All axes, in the order in which they were made.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = AxisId> + ExactSizeIterator + use<> {
        self.axes.ids()
    }

    /// All axes with their data.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (AxisId, &Axis)> + ExactSizeIterator {
        self.axes.iter()
    }

    /// Adds an axis that derives from no other.
    pub fn root(&mut self, name: String, extent: Extent) -> AxisId {
        self.axes.push(Axis { name, extent, least: 0, defs: SmallVec::new(), uses: SmallVec::new() })
    }

    /// Adds an axis that is made of others. Where an axis of the name exists, as when one is divided
    /// in two ways, the new one has a number behind it, so that a name stands for one axis.
    fn derived(&mut self, name: String, extent: Extent) -> AxisId {
        let is_taken = |name: &str| self.axes.values().any(|axis| axis.name == name);
        let mut numbered = (2u32..).map(|number| format!("{name}#{number}"));
        let name = match is_taken(&name) {
            true => numbered.find(|name| !is_taken(name)).unwrap_or_default(),
            false => name,
        };
        self.root(name, extent)
    }

    /// Divides an axis: `outer` says the extent of the outer part from the id of the inner one.
    pub fn split(
        &mut self,
        input: AxisId,
        outer: impl FnOnce(AxisId) -> Extent,
        inner: Extent,
        exact: bool,
    ) -> (AxisId, AxisId) {
        let name = self.axes[input].name.clone();
        let outer_axis = self.derived(format!("{name}.o"), Extent::Const(1));
        let inner = self.derived(format!("{name}.i"), inner);
        self.axes[outer_axis].extent = outer(inner);
        self.push(Xform::Split { input, outer: outer_axis, inner, exact });
        (outer_axis, inner)
    }

    /// Divides an axis into turns, in each of which all parts take one index: the outer axis counts turns, the inner
    /// one parts.
    pub fn split_turns(&mut self, input: AxisId, parts: Parts) -> (AxisId, AxisId) {
        let name = self.axes[input].name.clone();
        let outer = self.derived(format!("{name}.o"), Extent::Share(input, parts));
        let inner = self.derived(format!("{name}.i"), Extent::Shares(input, outer));
        self.push(Xform::Split { input, outer, inner, exact: false });
        (outer, inner)
    }

    /// Joins two axes.
    pub fn merge(&mut self, outer: AxisId, inner: AxisId) -> AxisId {
        let extent = match (self.axes[outer].extent, self.axes[inner].extent) {
            (Extent::Const(a), Extent::Const(b)) => Extent::Const(a.saturating_mul(b)),
            _ => Extent::Product(outer, inner),
        };
        let output = self.derived(format!("{}*{}", self.axes[outer].name, self.axes[inner].name), extent);
        self.push(Xform::Merge { outer, inner, output });
        output
    }

    /// Shifts an axis so that index 0 is a multiple of `vector` elements. See [`Xform::Align`].
    pub fn align(&mut self, input: AxisId, vector: i64, shift: ShiftId) -> AxisId {
        let extent = match self.axes[input].extent {
            Extent::Const(n) => Extent::Const(n + vector - 1),
            _ => Extent::Plus(input, vector - 1),
        };
        let output = self.derived(format!("{}.a", self.axes[input].name), extent);
        self.push(Xform::Align { input, output, vector, shift });
        output
    }

    /// Lays windows of `width` indices over an axis, one for each index of `outer`; or, where a step is for each index of an
    /// axis, side by side. See [`Xform::Window`].
    pub fn window(
        &mut self,
        (input, outer): (AxisId, AxisId),
        (width, step, left): (i64, WindowStep, i64),
        shift: Option<(i64, ShiftId)>,
    ) -> AxisId {
        let extent = step.of.map_or(Extent::Const(width), |of| Extent::Times(of, step.indices));
        let inner = self.derived(format!("{}.w", self.axes[input].name), extent);
        self.push(Xform::Window { input, outer, inner, step, left, shift });
        inner
    }

    /// Cuts an axis or adds to it, on both sides; `extent` is what that makes of it.
    pub fn resize(&mut self, input: AxisId, extent: Extent, left: Offset, right: Offset) -> AxisId {
        let output = self.derived(format!("{}.r", self.axes[input].name), extent);
        let (left, right) = (self.offset(left), self.offset(right));
        self.push(Xform::Resize { input, output, left, right });
        output
    }

    /// The id of an offset; equal ones have one.
    pub fn offset(&mut self, offset: Offset) -> OffsetId {
        let known = self.offsets.iter().find(|(_, known)| **known == offset).map(|(id, _)| id);
        known.unwrap_or_else(|| self.offsets.push(offset))
    }

    /// All transforms, in the order in which they were made.
    pub fn xforms(&self) -> impl DoubleEndedIterator<Item = (XformId, &Xform)> + ExactSizeIterator {
        self.xforms.iter()
    }

    /// Adds a transform whose axes exist, and notes it at them.
    pub(super) fn push(&mut self, xform: Xform) -> XformId {
        let id = self.xforms.push(xform);
        xform.inputs().into_iter().for_each(|input| self.axes[input].uses.push(id));
        xform.outputs().into_iter().for_each(|output| self.axes[output].defs.push(id));
        id
    }

    /// Says that the transforms so far are those of the program, which no schedule made.
    pub(super) fn end_program(&mut self) {
        self.program = self.xforms.len();
    }

    /// Whether the program has transforms: axes that a schedule did not make have indices that follow
    /// from those of others.
    pub fn has_program_xforms(&self) -> bool {
        self.program > 0
    }

    /// The axis that an axis is part of in the end, by what the program widens or cuts at ends: of a padded dimension the one
    /// with its padding, of joined ones that of all. Of an axis that is part of several the first; none where axes are parts of each
    /// other in a circle, as one that is cut and padded back.
    pub fn widest(&self, axis: AxisId) -> Option<AxisId> {
        let mut way: SmallVec<[AxisId; 4]> = SmallVec::from_slice(&[axis]);
        let mut widest = axis;
        while let Some(output) = self.axes[widest].uses.iter().find_map(|xform| match self.xforms[*xform] {
            Xform::Resize { output, .. } if self.is_of_program(*xform) => Some(output),
            _ => None,
        }) {
            if way.contains(&output) {
                return None;
            }
            way.push(output);
            widest = output;
        }
        Some(widest)
    }

    /// The transforms of the program: how axes follow from others by its operations.
    pub fn program_xforms(&self) -> impl Iterator<Item = &Xform> {
        self.xforms.values().take(self.program)
    }

    /// Whether a transform is the program's.
    pub(super) fn is_of_program(&self, xform: XformId) -> bool {
        xform.index() < self.program
    }

    /// The transforms of a schedule that take an axis.
    fn scheduled_uses(&self, axis: AxisId) -> impl Iterator<Item = &Xform> {
        let made = self.axes[axis].uses.iter().filter(|xform| xform.index() >= self.program);
        made.map(|xform| &self.xforms[*xform])
    }

    /// Whether no schedule divides the axis, or makes anything of it.
    pub fn is_leaf(&self, axis: AxisId) -> bool {
        !self.scheduled_uses(axis).any(|xform| xform.divides(axis))
    }

    /// Whether the program makes other axes of this one, or of the one that a schedule made it of.
    pub fn goes_on(&self, axis: AxisId) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![axis]);
        while let Some(axis) = open.pop() {
            if !seen.insert(axis) {
                continue;
            }
            if self.axes[axis].uses.iter().any(|xform| xform.index() < self.program) {
                return true;
            }
            let made = self.axes[axis].defs.iter().filter(|xform| xform.index() >= self.program);
            open.extend(made.flat_map(|xform| self.xforms[*xform].inputs()));
        }
        false
    }

    /// The first transform that makes an axis.
    pub fn def(&self, axis: AxisId) -> Option<&Xform> {
        self.defs(axis).next()
    }

    /// The transforms that make an axis.
    pub fn defs(&self, axis: AxisId) -> impl Iterator<Item = &Xform> {
        self.axes[axis].defs.iter().map(|xform| &self.xforms[*xform])
    }

    /// The transforms that take an axis.
    pub fn uses(&self, axis: AxisId) -> impl Iterator<Item = &Xform> {
        self.axes[axis].uses.iter().map(|xform| &self.xforms[*xform])
    }

    /// The extent of an axis, where it is a constant of the schedule.
    pub fn constant_extent(&self, axis: AxisId) -> Option<i64> {
        match self.axes[axis].extent {
            Extent::Const(extent) => Some(extent),
            _ => None,
        }
    }

    /// Whether windows of a step lie side by side, of which an axis has the indices.
    pub fn is_side_by_side(&self, inner: AxisId, step: WindowStep) -> bool {
        self.axes[inner].extent == step.of.map_or(Extent::Const(step.indices), |of| Extent::Times(of, step.indices))
    }

    /// The most indices that a schedule promises of an axis: its extent if that is a constant, or those of the constant parts that
    /// cover it, or what follows from these.
    pub fn most_extent(&self, axis: AxisId) -> Option<i64> {
        match self.axes[axis].extent {
            Extent::Const(extent) => Some(extent),
            Extent::Times(of, times) => self.most_extent(of)?.checked_mul(times),
            _ => self.uses(axis).find_map(|xform| match *xform {
                Xform::Split { outer, inner, .. } => {
                    self.constant_extent(outer)?.checked_mul(self.constant_extent(inner)?)
                }
                _ => None,
            }),
        }
    }

    /// The constant that a schedule promises an axis to have indices: its extent, or the size of the one
    /// part that it is split into.
    pub fn constant_size(&self, axis: AxisId) -> Option<i64> {
        let only = self.uses(axis).find_map(|xform| match *xform {
            Xform::Split { outer, inner, exact: true, .. } if self.constant_extent(outer) == Some(1) => Some(inner),
            _ => None,
        });
        self.constant_extent(axis).or_else(|| self.constant_extent(only?))
    }

    /// Whether an axis is one element of another, or the only part of one that nothing is made of.
    pub fn is_picked(&self, axis: AxisId) -> bool {
        let is_split = |xform: &Xform| matches!(xform, Xform::Split { .. });
        let is_only = self.constant_extent(axis) == Some(1) && self.is_leaf(axis) && self.defs(axis).any(is_split);
        is_only || self.is_one_of(axis)
    }

    /// Whether an axis is one element of another.
    pub(crate) fn is_one_of(&self, axis: AxisId) -> bool {
        self.constant_extent(axis) == Some(1) && self.defs(axis).any(|xform| matches!(xform, Xform::Resize { .. }))
    }

    /// The leaves that a schedule made of an axis, outer to inner; where it was divided in
    /// several ways, those of each, in turn.
    pub fn leaves(&self, axis: AxisId) -> Vec<AxisId> {
        self.descend(axis, |axis| self.is_leaf(axis), self.program)
    }

    /// Those of some loops that an axis became, outer to inner.
    pub fn loops_of(&self, axis: AxisId, is_loop: impl Fn(AxisId) -> bool) -> Vec<AxisId> {
        let is_end = |axis| !self.uses(axis).any(|xform| xform.divides(axis));
        let mut found = self.descend(axis, |axis| is_loop(axis) || is_end(axis), 0);
        found.retain(|axis| is_loop(*axis));
        found
    }

    /// Whether some loops give an axis its index: they run over it, or over all that it became
    /// in one of the ways in which it was divided.
    pub fn covers(&self, axis: AxisId, is_loop: &impl Fn(AxisId) -> bool) -> bool {
        self.covers_behind(axis, is_loop, &mut Vec::new())
    }

    /// The same behind some axes: what was cut may be padded to the axis that it was cut from.
    fn covers_behind(&self, axis: AxisId, is_loop: &impl Fn(AxisId) -> bool, behind: &mut Vec<AxisId>) -> bool {
        if is_loop(axis) || self.is_leaf(axis) && self.is_picked(axis) {
            return true;
        }
        if behind.contains(&axis) {
            return false;
        }
        behind.push(axis);
        let found = self.uses(axis).any(|xform| {
            xform.divides(axis) && xform.outputs().iter().all(|part| self.covers_behind(*part, is_loop, behind))
        });
        behind.pop();
        found
    }

    /// Whether some loops give an axis its index, perhaps by way of what the program makes it of.
    pub fn reaches(&self, axis: AxisId, is_loop: &impl Fn(AxisId) -> bool) -> bool {
        self.reaches_behind(axis, is_loop, &mut Vec::new())
    }

    fn reaches_behind(&self, axis: AxisId, is_loop: &impl Fn(AxisId) -> bool, behind: &mut Vec<AxisId>) -> bool {
        if self.covers(axis, is_loop) {
            return true;
        }
        if behind.contains(&axis) {
            return false;
        }
        behind.push(axis);
        let made = self.axes[axis].defs.iter().filter(|xform| xform.index() < self.program);
        let found = made
            .into_iter()
            .any(|xform| self.xforms[*xform].inputs().iter().all(|input| self.reaches_behind(*input, is_loop, behind)));
        behind.pop();
        found
    }

    /// What an axis became, down to where it ends, by all transforms but so many of the first.
    fn descend(&self, axis: AxisId, ends: impl Fn(AxisId) -> bool, without: usize) -> Vec<AxisId> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut stack = vec![axis];
        while let Some(axis) = stack.pop() {
            if ends(axis) {
                found.push(axis);
                continue;
            }
            // What was cut may be padded to the axis that it was cut from.
            if !seen.insert(axis) {
                continue;
            }
            let taken = |xform: &&XformId| xform.index() >= without && self[**xform].divides(axis);
            for xform in self[axis].uses.iter().rev().filter(taken) {
                stack.extend(self[*xform].outputs().into_iter().rev());
            }
        }
        found
    }

    /// The roots that an axis derives from, outer to inner. What was cut or padded is one: it ends elsewhere.
    pub fn roots_of(&self, axis: AxisId) -> Vec<AxisId> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut stack = vec![axis];
        while let Some(axis) = stack.pop() {
            match self.def(axis) {
                None | Some(Xform::Resize { .. }) => found.push(axis),
                Some(xform) if seen.insert(axis) => stack.extend(xform.inputs().into_iter().rev()),
                Some(_) => {}
            }
        }
        found
    }

    /// Whether an axis is another one, or derives from it.
    pub fn derives_from(&self, axis: AxisId, from: AxisId) -> bool {
        let mut seen = BTreeSet::new();
        let mut stack = vec![axis];
        while let Some(axis) = stack.pop() {
            if axis == from {
                return true;
            }
            if seen.insert(axis) {
                stack.extend(self.defs(axis).flat_map(Xform::inputs));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_places_and_are_not_empty() {
        crate::property::property(|u| {
            let parts = Parts { places: u.int_in_range(1..=600)?, beside: None };
            let (extent, beside) = (u.int_in_range(0..=5000)?, u.int_in_range(0..=700)?);
            let share = parts.share(extent, beside);
            let count = extent / share + i64::from(extent % share != 0);
            assert!(share >= 1 && (count == 1 || count * beside <= parts.places || extent == 0));
            Ok(())
        });
    }
}
