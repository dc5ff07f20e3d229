//! The axes of one tensor: what it has, what it reduces, the loops that run over it; and
//! whether those loops can compute it.
//!
//! [`Domain::covers`] is the one legality of loops. It follows the derivation of the wanted axes
//! from the loops, each step of which pairs the indices of some axes with those of others one to
//! one. So if nothing is used twice, points of the loops are pairs of an element of the tensor
//! and an index of each *foreign* axis: loops on which nothing depends, and by-products of the
//! steps (of a merged loop the part that the tensor lacks). What foreign axes mean depends on
//! where the tensor lies: registers are computed anew, memory is written at index 0 alone.

use super::derive::{Derivation, Source, Way};
use super::graph::{AxisGraph, AxisId, Xform, XformId};
use crate::diag::{Diagnostic, Result, code};
use crate::util::set_of;
use std::collections::{BTreeMap, BTreeSet};

/// The axes and loops of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its axes, outer to inner.
    pub logical: Vec<AxisRef>,
    /// The axes over which it combines elements. Those of a partial result are the whole axes,
    /// of which a part may be logical: the part that it keeps.
    pub reduced: Vec<AxisId>,
    /// Its loops, outer to inner.
    pub loops: Vec<DomainLoop>,
    /// How many of the outer loops it shares with what reads it.
    pub shared_loops: usize,
}

/// An axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisRef {
    /// With an element for each index.
    Axis(AxisId),
    /// With one element for all indices.
    Broadcast(AxisId),
    /// With an element for each index, of which data says the one that is read: loops do not run over it.
    Indirect(AxisId),
}

impl AxisRef {
    /// The axis, if the tensor has an element for each of its indices, and loops say which.
    pub fn indexed(self) -> Option<AxisId> {
        match self {
            AxisRef::Axis(axis) => Some(axis),
            AxisRef::Broadcast(_) | AxisRef::Indirect(_) => None,
        }
    }

    /// The axis along which its elements lie in memory, whoever says which is meant.
    pub fn in_memory(self) -> Option<AxisId> {
        match self {
            AxisRef::Axis(axis) | AxisRef::Indirect(axis) => Some(axis),
            AxisRef::Broadcast(_) => None,
        }
    }
}

/// A loop of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainLoop {
    /// The axis.
    pub axis: AxisId,
    /// What runs over it.
    pub place: Place,
}

/// What runs over a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The blocks of the grid.
    Block,
    /// The threads of a block.
    Thread,
    /// One thread, index after index: rolled, unrolled or as a vector.
    Serial,
}

/// Where a tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// Registers of a thread.
    Registers,
    /// Memory of a block.
    Shared,
    /// Memory of the device.
    Global,
}

/// What the loops of a tensor run over beside its axes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Axes that it does not have: loops in their order, then by-products.
    pub axes: Vec<ForeignAxis>,
    /// Its axes of which the loops reach a part only, beside those in registers and shared
    /// memory that nothing reads.
    pub partial: Vec<AxisId>,
}

/// An axis that a tensor does not have, but its loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignAxis {
    /// The axis.
    pub axis: AxisId,
    /// The loops on which its index depends, itself if it is one.
    pub loops: Vec<AxisId>,
    /// What runs over them, without repetition.
    pub places: Vec<Place>,
    /// Whether the tensor is stored where the index is 0 and nowhere else.
    pub at_zero: bool,
}

impl Domain {
    /// Whether the loops compute the tensor, and what they run over beside it.
    pub fn covers(&self, graph: &AxisGraph, storage: Storage) -> Result<Foreign> {
        let derivation = Derivation::new(graph, self.axes());
        let check = Check { domain: self, graph, derivation };
        check.loops_are_independent()?;
        let kept = check.steps(&self.concrete())?;
        let reduced = check.steps(&self.reduced)?;
        check.nothing_is_used_twice(&kept, &reduced)?;
        let foreign = check.foreign(&kept, &reduced, storage)?;
        check.reduction(&kept, &reduced, &foreign, storage)?;
        Ok(foreign)
    }

    fn axes(&self) -> impl Iterator<Item = AxisId> {
        self.loops.iter().map(|own| own.axis)
    }

    /// The axes along which it has elements.
    fn concrete(&self) -> Vec<AxisId> {
        self.logical.iter().filter_map(|axis| axis.indexed()).collect()
    }
}

/// One question, and what answers it.
struct Check<'a> {
    domain: &'a Domain,
    graph: &'a AxisGraph,
    derivation: Derivation,
}

/// How some axes derive from the loops.
struct Steps {
    wanted: Vec<AxisId>,
    /// The axes on the way, the wanted ones among them.
    needed: BTreeSet<AxisId>,
    /// The loops among them.
    loops: BTreeSet<AxisId>,
    /// The transforms on the way, each in one direction.
    taken: BTreeMap<XformId, Source>,
}

fn refused(message: String) -> Box<Diagnostic> {
    Diagnostic::user(code::AXIS, message)
}

impl Check<'_> {
    fn name(&self, axis: AxisId) -> &str {
        &self.graph[axis].name
    }

    fn names(&self, axes: impl IntoIterator<Item = AxisId>) -> String {
        axes.into_iter().map(|axis| self.name(axis)).collect::<Vec<_>>().join(", ")
    }

    /// No loop is decided by the others.
    fn loops_are_independent(&self) -> Result<()> {
        for (position, axis) in self.domain.axes().enumerate() {
            let others = self.domain.axes().enumerate().filter(|(other, _)| *other != position);
            let others: Vec<AxisId> = others.map(|(_, axis)| axis).collect();
            if Derivation::of_loops_alone(self.graph, others.iter().copied()).is_known(axis) {
                let (name, others) = (self.name(axis), self.names(others));
                return Err(refused(format!("the loop over {name} follows from the others, over {others}")));
            }
        }
        Ok(())
    }

    /// How axes derive from the loops, if they do.
    fn steps(&self, wanted: &[AxisId]) -> Result<Steps> {
        if let Some(axis) = wanted.iter().find(|axis| !self.derivation.is_known(**axis)) {
            let (name, loops) = (self.name(*axis), self.names(self.domain.axes()));
            return Err(refused(format!("loops over {loops} give no index to axis {name}")));
        }
        let needed = self.derivation.needed(self.graph, wanted.iter().copied());
        let (mut loops, mut taken) = (BTreeSet::new(), BTreeMap::new());
        for axis in &needed {
            match self.derivation.source(*axis) {
                Source::Loop => drop(loops.insert(*axis)),
                source @ (Source::Backward(xform) | Source::Forward(xform)) => drop(taken.insert(xform, source)),
                Source::Picked | Source::Unknown => {}
            }
        }
        Ok(Steps { wanted: wanted.to_vec(), needed, loops, taken })
    }

    /// What a transform makes known in its direction, and from what.
    fn sides(&self, xform: XformId, source: Source) -> (Vec<AxisId>, Vec<AxisId>) {
        let xform = &self.graph[xform];
        match source {
            Source::Backward(_) => {
                let way = xform.backward();
                (way.from.to_vec(), way.to.to_vec())
            }
            _ => (xform.inputs().to_vec(), xform.outputs().to_vec()),
        }
    }

    /// Each axis leads to one result: what is wanted, or one transform; and has its index once.
    /// But a part that a partial result keeps is a part of what it reduces as well.
    fn nothing_is_used_twice(&self, kept: &Steps, reduced: &Steps) -> Result<()> {
        let mut uses: BTreeMap<AxisId, Vec<Option<XformId>>> = BTreeMap::new();
        let mut add = |axis: AxisId, by: Option<XformId>| {
            let known = uses.entry(axis).or_default();
            if by.is_none() || !known.contains(&by) {
                known.push(by);
            }
        };
        kept.wanted.iter().chain(&reduced.wanted).for_each(|axis| add(*axis, None));
        for (xform, source) in kept.taken.iter().chain(&reduced.taken) {
            let (from, to) = self.sides(*xform, *source);
            let partial = |axis: &AxisId| kept.wanted.contains(axis) && !kept.taken.contains_key(xform);
            from.iter().filter(|axis| !partial(axis)).for_each(|axis| add(*axis, Some(*xform)));
            self.has_one_index(*xform, &from, &to)?;
        }
        match uses.into_iter().find(|(_, by)| by.len() > 1) {
            None => Ok(()),
            Some((axis, _)) => {
                let (name, wanted) = (self.name(axis), self.names(kept.wanted.iter().chain(&reduced.wanted).copied()));
                Err(refused(format!("axes {wanted} are not independent in these loops: {name} decides several")))
            }
        }
    }

    /// What a transform gives an index has it from nowhere else.
    fn has_one_index(&self, xform: XformId, from: &[AxisId], to: &[AxisId]) -> Result<()> {
        let loops = |axes: &[AxisId]| -> BTreeSet<AxisId> {
            axes.iter().flat_map(|axis| self.derivation.loops_of(self.graph, *axis)).collect()
        };
        let own = loops(from);
        for axis in to {
            let refused = |other: BTreeSet<AxisId>| {
                let (name, one, other) = (self.name(*axis), self.names(own.iter().copied()), self.names(other));
                Err(refused(format!("axis {name} has an index from loops over {one}, and another from {other}")))
            };
            if self.derivation.source(*axis) == Source::Loop && !own.contains(axis) {
                return refused(BTreeSet::from([*axis]));
            }
            for (by, way) in self.other_ways(xform, *axis) {
                let other = loops(&way.from);
                let needed = self.derivation.needed(self.graph, way.from);
                // Ways through the program agree: what is more on one of them has no part in the index.
                let agrees = self.graph.is_of_program(by) && other.is_superset(&own);
                if !needed.contains(axis) && other != own && !agrees {
                    return refused(other);
                }
            }
        }
        Ok(())
    }

    /// The ways that lead to an axis from known ones, but by another transform than the given one.
    fn other_ways(&self, xform: XformId, id: AxisId) -> impl Iterator<Item = (XformId, Way)> {
        let axis = &self.graph[id];
        let divided = axis.uses.iter().filter(move |other| **other != xform && self.graph[**other].divides(id));
        let back = divided.map(|other| (*other, self.graph[*other].backward()));
        let on = axis.defs.iter().filter(move |other| **other != xform);
        let on = on.filter_map(|other| Some((*other, self.graph[*other].forward()?)));
        back.chain(on).filter(|(_, way)| way.from.iter().all(|axis| self.derivation.is_known(*axis)))
    }

    /// Whether the index of an axis takes all its values where the loops do.
    fn is_whole(&self, axis: AxisId) -> bool {
        self.derivation.needed(self.graph, [axis]).into_iter().all(|axis| {
            let (xform, backward) = match self.derivation.source(axis) {
                Source::Backward(xform) => (xform, true),
                Source::Forward(xform) => (xform, false),
                Source::Loop | Source::Picked | Source::Unknown => return true,
            };
            match self.graph[xform] {
                Xform::Resize { left, right, .. } => {
                    let signs = [self.graph[left].sign, self.graph[right].sign];
                    signs.iter().all(|sign| if backward { sign.is_not_negative() } else { sign.is_not_positive() })
                }
                // Windows lie side by side at least.
                Xform::Window { .. } => backward,
                Xform::Split { .. } | Xform::Merge { .. } | Xform::Align { .. } => true,
            }
        })
    }

    /// What the loops run over beside the wanted axes.
    fn foreign(&self, kept: &Steps, reduced: &Steps, storage: Storage) -> Result<Foreign> {
        let used = |axis: &AxisId| kept.needed.contains(axis) || reduced.needed.contains(axis);
        let mut axes: Vec<AxisId> = self.domain.axes().filter(|axis| !used(axis)).collect();
        for (xform, source) in kept.taken.iter().chain(&reduced.taken) {
            let (_, to) = self.sides(*xform, *source);
            let new: Vec<AxisId> = to.into_iter().filter(|axis| !used(axis) && !axes.contains(axis)).collect();
            axes.extend(new);
        }
        let axes = axes.into_iter().map(|axis| self.foreign_axis(axis, storage)).collect::<Result<Vec<_>>>()?;
        if let Some(axis) = self.in_windows(reduced) {
            return Err(refused(format!("windows of axis {} overlap, which is reduced", self.name(axis))));
        }
        if let (Some(axis), Storage::Global) = (self.in_windows(kept), storage) {
            return Err(refused(format!("windows of axis {} overlap, which is written", self.name(axis))));
        }
        if let Some(axis) = reduced.wanted.iter().find(|axis| !self.is_whole(**axis)) {
            return Err(refused(format!("the loops reach a part of axis {} only, which is reduced", self.name(*axis))));
        }
        let partial: Vec<AxisId> = kept.wanted.iter().copied().filter(|axis| !self.is_whole(*axis)).collect();
        match (partial.first(), storage) {
            (Some(axis), Storage::Global) => {
                Err(refused(format!("the loops reach a part of axis {} only, which is written", self.name(*axis))))
            }
            _ => Ok(Foreign { axes, partial }),
        }
    }

    /// An axis of which several indices of loops may be one.
    fn in_windows(&self, steps: &Steps) -> Option<AxisId> {
        steps.taken.iter().find_map(|(xform, source)| match (self.graph[*xform], source) {
            (Xform::Window { input, inner, step, .. }, Source::Backward(_)) => {
                (!self.graph.is_side_by_side(inner, step)).then_some(input)
            }
            _ => None,
        })
    }

    fn foreign_axis(&self, axis: AxisId, storage: Storage) -> Result<ForeignAxis> {
        let loops = self.derivation.loops_of(self.graph, axis);
        let runs = self.domain.loops.iter().enumerate().filter(|(_, own)| loops.contains(&own.axis));
        // What runs inside the loops that are shared is done when the memory is read.
        let outside =
            |(position, own): &(usize, &DomainLoop)| own.place != Place::Serial || *position < self.domain.shared_loops;
        let filled: BTreeSet<Place> = set_of(runs.clone().filter(outside).map(|(_, own)| own.place));
        let at_zero = match storage {
            Storage::Registers => false,
            Storage::Shared => filled.contains(&Place::Thread),
            Storage::Global => true,
        };
        if storage == Storage::Shared && at_zero && filled.len() > 1 {
            return Err(refused(format!(
                "shared memory is filled where the index of {} is 0, which depends on threads and on other loops ({})",
                self.name(axis),
                self.names(loops)
            )));
        }
        if at_zero && !self.is_whole(axis) {
            return Err(refused(format!(
                "the loops reach a part of axis {} only, perhaps not index 0",
                self.name(axis)
            )));
        }
        let places: BTreeSet<Place> = set_of(runs.map(|(_, own)| own.place));
        Ok(ForeignAxis { axis, loops: loops.into_iter().collect(), places: places.into_iter().collect(), at_zero })
    }

    /// Whether the loops add each value once.
    fn reduction(&self, kept: &Steps, reduced: &Steps, foreign: &Foreign, storage: Storage) -> Result<()> {
        if reduced.wanted.is_empty() {
            return Ok(());
        }
        let names = self.names(reduced.wanted.iter().copied());
        let rest = kept.wanted.iter().copied().chain(foreign.axes.iter().map(|foreign| foreign.axis));
        let rest = Derivation::new(self.graph, rest);
        if let Some(axis) = kept.loops.intersection(&reduced.loops).find(|axis| !rest.is_known(**axis)) {
            let kept = self.names(kept.wanted.iter().copied());
            return Err(refused(format!(
                "the loop over {} runs over {kept}, which is kept, and over {names}, which is reduced",
                self.name(*axis)
            )));
        }
        let adds = |own: &DomainLoop| reduced.loops.contains(&own.axis) && !kept.loops.contains(&own.axis);
        // Threads add side by side, whatever stands around them.
        let first = self.domain.loops.iter().position(|own| own.place != Place::Thread && adds(own));
        let in_grid = self.domain.loops.iter().any(|own| own.place == Place::Block && adds(own));
        // A thread has a register for each index of a loop that what is kept depends on, whatever else does.
        let is_held = |position: usize, own: &DomainLoop| {
            storage == Storage::Registers && position >= self.domain.shared_loops && kept.loops.contains(&own.axis)
        };
        for other in &foreign.axes {
            let name = self.name(other.axis);
            let own = self.domain.loops.iter().enumerate().filter(|(_, own)| other.loops.contains(&own.axis));
            for (position, own) in own {
                if adds(own) {
                    return Err(refused(format!(
                        "the loop over {} adds what is reduced over {names} for each index of {name}",
                        self.name(own.axis)
                    )));
                }
                let is_inside = own.place == Place::Serial && first.is_some_and(|first| position > first);
                if is_inside && !is_held(position, own) {
                    return Err(refused(format!("the loop over {name} stands inside those that reduce {names}")));
                }
                if own.place == Place::Block && in_grid {
                    return Err(refused(format!(
                        "{names} is reduced over blocks: the last one has the value, and no other block of {name}"
                    )));
                }
            }
        }
        Ok(())
    }
}
