//! From which transform each axis has its index, when some loops are given.
//!
//! An index flows through a transform both ways: from the parts of a split to the axis that
//! was split, and from an axis to its parts. [`Derivation`] is the fixpoint of that from the
//! loops: what needs fewest tests first, then first come first served. It says where an index
//! comes from and not what it is: that is for [`super::IndexMap`].

use super::graph::{AxisGraph, AxisId, Xform, XformId};
use super::offset::Sign;
use crate::util::SecondaryMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Where the index of an axis comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The loops do not say it.
    #[default]
    Unknown,
    /// A loop runs over the axis.
    Loop,
    /// It is 0: the axis is a slice of one element, and nothing else leads to it.
    Picked,
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
        match *self {
            Xform::Window { input, outer, inner, .. } => {
                Way { from: SmallVec::from_slice(&[outer, inner]), to: SmallVec::from_slice(&[input]) }
            }
            _ => Way { from: self.outputs(), to: self.inputs() },
        }
    }

    /// What it says of the axes that it makes, from those that it takes. The start of an
    /// aligned row is known only where the row is read, so nothing leads over it forwards.
    pub fn forward(&self) -> Option<Way> {
        match self {
            Xform::Align { .. } => None,
            Xform::Split { .. } | Xform::Merge { .. } | Xform::Resize { .. } | Xform::Window { .. } => {
                Some(Way { from: self.inputs(), to: self.outputs() })
            }
        }
    }
}

impl AxisGraph {
    /// The way of a source that is a transform.
    pub(super) fn way(&self, source: Source) -> Option<Way> {
        match source {
            Source::Unknown | Source::Loop | Source::Picked => None,
            Source::Backward(xform) => Some(self[xform].backward()),
            Source::Forward(xform) => self[xform].forward(),
        }
    }

    /// Whether an index that is one before a transform may be none behind it.
    pub fn may_leave(&self, source: Source) -> bool {
        let resize = |xform: XformId| match self[xform] {
            Xform::Resize { left, right, .. } => Some([self[left].sign, self[right].sign]),
            _ => None,
        };
        let is_window = |xform: XformId| matches!(self[xform], Xform::Window { .. });
        match source {
            Source::Backward(xform) | Source::Forward(xform) if is_window(xform) => true,
            Source::Backward(xform) => resize(xform).is_some_and(|by| !by.into_iter().all(Sign::is_not_positive)),
            Source::Forward(xform) => resize(xform).is_some_and(|by| !by.into_iter().all(Sign::is_not_negative)),
            Source::Unknown | Source::Loop | Source::Picked => false,
        }
    }
}

/// The transforms through which an axis may lead to others.
fn sources_beside(graph: &AxisGraph, axis: AxisId) -> impl Iterator<Item = Source> {
    let back = graph[axis].defs.iter().map(|xform| Source::Backward(*xform));
    let on = graph[axis].uses.iter().map(|xform| Source::Forward(*xform));
    // The axis that numbers windows says with their own indices what they are laid over.
    let numbers = graph[axis].uses.iter().filter(move |xform| !graph[**xform].divides(axis));
    back.chain(on).chain(numbers.map(|xform| Source::Backward(*xform)))
}

/// The sources of all axes, from given loops.
#[derive(Clone, Debug)]
pub struct Derivation {
    sources: SecondaryMap<AxisId, Source>,
    /// For each axis how many transforms on the way to it are ones that its index may leave.
    levels: SecondaryMap<AxisId, u32>,
}

/// An axis that can be known: by its level, then in the order in which it was found.
type Found = Reverse<(u32, usize, AxisId)>;

/// Axes that can be known, and from what.
#[derive(Default)]
struct Open {
    heap: BinaryHeap<Found>,
    sources: Vec<Source>,
}

impl Open {
    fn push(&mut self, level: u32, axis: AxisId, source: Source) {
        self.heap.push(Reverse((level, self.sources.len(), axis)));
        self.sources.push(source);
    }

    fn pop(&mut self) -> Option<(u32, AxisId, Source)> {
        let Reverse((level, number, axis)) = self.heap.pop()?;
        Some((level, axis, self.sources[number]))
    }
}

impl Derivation {
    /// From loops over the given axes, and from slices of one element whose index the loops
    /// do not say.
    pub fn new(graph: &AxisGraph, loops: impl IntoIterator<Item = AxisId>) -> Self {
        let mut derivation = Self::of_loops_alone(graph, loops);
        let mut open = Open::default();
        for axis in graph.ids().filter(|axis| graph.is_picked(*axis) && !derivation.is_known(*axis)) {
            open.push(0, axis, Source::Picked);
        }
        derivation.spread(graph, open);
        derivation
    }

    /// From loops over the given axes.
    pub(crate) fn of_loops_alone(graph: &AxisGraph, loops: impl IntoIterator<Item = AxisId>) -> Self {
        let mut derivation = Self { sources: SecondaryMap::new(), levels: SecondaryMap::new() };
        let mut open = Open::default();
        loops.into_iter().for_each(|axis| open.push(0, axis, Source::Loop));
        derivation.spread(graph, open);
        derivation
    }

    /// Follows transforms from axes that are known, by way of as few as possible that an index
    /// may leave: there an index is tested that may have nothing to do with the one that is asked for.
    fn spread(&mut self, graph: &AxisGraph, mut open: Open) {
        while let Some((level, axis, source)) = open.pop() {
            if self.is_known(axis) {
                continue;
            }
            self.sources.set(axis, source);
            self.levels.set(axis, level);
            for source in sources_beside(graph, axis) {
                if let Some((level, way)) = self.level(graph, source) {
                    let new = way.to.into_iter().filter(|axis| !self.is_known(*axis));
                    new.for_each(|axis| open.push(level, axis, source));
                }
            }
        }
    }

    /// The way of a source, if it starts from known axes, with the level of what it leads to.
    fn level(&self, graph: &AxisGraph, source: Source) -> Option<(u32, Way)> {
        let way = graph.way(source).filter(|way| way.from.iter().all(|axis| self.is_known(*axis)))?;
        let level = way.from.iter().map(|axis| self.levels[*axis]).max().unwrap_or(0);
        Some((level + u32::from(graph.may_leave(source)), way))
    }

    /// All sources from which an axis may have its index equally well, the one it has among them.
    pub fn alternatives(&self, graph: &AxisGraph, axis: AxisId) -> Vec<Source> {
        let own = self.source(axis);
        if matches!(own, Source::Unknown | Source::Loop | Source::Picked) {
            return vec![own];
        }
        let divided = graph[axis].uses.iter().filter(|xform| graph[**xform].divides(axis));
        let back = divided.map(|xform| Source::Backward(*xform));
        let on = graph[axis].defs.iter().map(|xform| Source::Forward(*xform));
        let as_good = |source: &Source| {
            self.level(graph, *source).is_some_and(|(level, way)| {
                let before = |from: &AxisId| !self.needed(graph, [*from]).contains(&axis);
                level == self.levels[axis] && way.from.iter().all(before)
            })
        };
        back.chain(on).filter(|source| *source == own || as_good(source)).collect()
    }

    /// Where the index of an axis comes from.
    pub fn source(&self, axis: AxisId) -> Source {
        self.sources[axis]
    }

    /// Whether the loops say the index of an axis.
    pub fn is_known(&self, axis: AxisId) -> bool {
        self.sources[axis] != Source::Unknown
    }

    /// The way by which an axis has its index; none of a loop, a slice of one element, and what
    /// is not known.
    pub fn way(&self, graph: &AxisGraph, axis: AxisId) -> Option<Way> {
        graph.way(self.sources[axis])
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
