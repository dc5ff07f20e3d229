//! From which transform each axis has its index, when some loops are given.
//!
//! An index flows through a transform both ways: from the parts of a split to the axis that
//! was split, and from an axis to its parts. [`Derivation`] is the fixpoint of that from the
//! loops, first come first served. It says where an index comes from and not what it is: that
//! is for [`super::IndexMap`].

use super::graph::{AxisGraph, AxisId, Xform, XformId};
use crate::util::SecondaryMap;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};

/// Where the index of an axis comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The loops do not say it.
    #[default]
    Unknown,
    /// A loop runs over the axis.
    Loop,
    /// A transform that takes the axis, from what it makes.
    Backward(XformId),
    /// A transform that makes the axis, from what it takes.
    Forward(XformId),
}

/// A way through a transform: axes whose indices decide those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What must be known, outer to inner.
    pub from: SmallVec<[AxisId; 2]>,
    /// What is known then, outer to inner.
    pub to: SmallVec<[AxisId; 2]>,
}

impl Xform {
    /// What it says of the axes that it takes, from those that it makes.
    pub fn backward(&self) -> Way {
        Way { from: self.outputs(), to: self.inputs() }
    }

    /// What it says of the axes that it makes, from those that it takes. The start of an
    /// aligned row is known only where the row is read, so nothing leads over it forwards.
    pub fn forward(&self) -> Option<Way> {
        match self {
            Xform::Align { .. } => None,
            Xform::Split { .. } | Xform::Merge { .. } | Xform::Resize { .. } => {
                Some(Way { from: self.inputs(), to: self.outputs() })
            }
        }
    }
}

/// The sources of all axes, from given loops.
#[derive(Clone, Debug)]
pub struct Derivation {
    sources: SecondaryMap<AxisId, Source>,
}

impl Derivation {
    /// From loops over the given axes.
    pub fn new(graph: &AxisGraph, loops: impl IntoIterator<Item = AxisId>) -> Self {
        let mut derivation = Self { sources: SecondaryMap::new() };
        let mut open: VecDeque<AxisId> = VecDeque::new();
        for axis in loops {
            derivation.sources.set(axis, Source::Loop);
            open.push_back(axis);
        }
        while let Some(axis) = open.pop_front() {
            for xform in &graph[axis].defs {
                derivation.follow(Source::Backward(*xform), &graph[*xform].backward(), &mut open);
            }
            for xform in &graph[axis].uses {
                if let Some(way) = graph[*xform].forward() {
                    derivation.follow(Source::Forward(*xform), &way, &mut open);
                }
            }
        }
        derivation
    }

    fn follow(&mut self, source: Source, way: &Way, open: &mut VecDeque<AxisId>) {
        if way.from.iter().all(|axis| self.is_known(*axis)) {
            for axis in &way.to {
                if !self.is_known(*axis) {
                    self.sources.set(*axis, source);
                    open.push_back(*axis);
                }
            }
        }
    }

    /// Where the index of an axis comes from.
    pub fn source(&self, axis: AxisId) -> Source {
        self.sources[axis]
    }

    /// Whether the loops say the index of an axis.
    pub fn is_known(&self, axis: AxisId) -> bool {
        self.sources[axis] != Source::Unknown
    }

    /// The way by which an axis has its index; none of a loop, and of what is not known.
    pub fn way(&self, graph: &AxisGraph, axis: AxisId) -> Option<Way> {
        match self.sources[axis] {
            Source::Unknown | Source::Loop => None,
            Source::Backward(xform) => Some(graph[xform].backward()),
            Source::Forward(xform) => graph[xform].forward(),
        }
    }

    /// The axes from which the indices of some are computed, themselves and loops among them.
    pub fn needed(&self, graph: &AxisGraph, wanted: impl IntoIterator<Item = AxisId>) -> BTreeSet<AxisId> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<AxisId> = wanted.into_iter().collect();
        while let Some(axis) = open.pop() {
            if self.is_known(axis) && needed.insert(axis) {
                open.extend(self.way(graph, axis).into_iter().flat_map(|way| way.from));
            }
        }
        needed
    }

    /// The loops on which the index of an axis depends.
    pub fn loops_of(&self, graph: &AxisGraph, axis: AxisId) -> BTreeSet<AxisId> {
        let mut needed = self.needed(graph, [axis]);
        needed.retain(|axis| self.sources[*axis] == Source::Loop);
        needed
    }
}
