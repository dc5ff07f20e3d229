//! The pass that says where tests are needed.
//!
//! In: the tree of `place`, and what `outside` knows of values outside. Out: the same tree, in which
//!
//! * accumulations whose operand is not neutral outside are tested, and lanes of
//!   a vector that lies inside as a whole, which is most of them, are taken without tests;
//! * a load whose vectors may read over the end of a row is followed by a repair: it loads those that reach over the end of
//!   the buffer and, if somebody relies on what the load holds outside, replaces that;
//! * stores know at index 0 of which axes they happen.
//!
//! The terms of a test are expressions, and so made by `emit` (see `index`). Invariant: no
//! test stands around a barrier or a shuffle.

use super::facts::Facts;
use super::outside::Outside;
use super::tree::{Body, Load, LoopTree, Node, NodeId, Wide};
use crate::axes::ForeignAxis;
use crate::diag::Result;
use crate::kernel::Unroll;
use crate::schedule::{AxisId, Extent, Loop, ParallelType, TvId, Xform};
use crate::util::{SecondaryMap, self_check, sort_by_key};
use std::collections::BTreeSet;

/// Adds tests and repairs to a tree.
pub(super) fn predicate(facts: &Facts<'_>, outside: &Outside, tree: &mut LoopTree) -> Result<()> {
    let mut place: SecondaryMap<TvId, usize> = SecondaryMap::new();
    facts.scheduled.topological().into_iter().enumerate().for_each(|(at, tv)| place.set(tv, at));
    let body = std::mem::take(&mut tree.body);
    let mut pass = Predicate { facts, outside, place, tree, last_block: BTreeSet::new() };
    tree.body = pass.body(body)?;
    Ok(())
}

struct Predicate<'a> {
    facts: &'a Facts<'a>,
    outside: &'a Outside,
    /// Where tensors stand in topological order.
    place: SecondaryMap<TvId, usize>,
    tree: &'a mut LoopTree,
    /// Block axes over which only the last block goes on.
    last_block: BTreeSet<AxisId>,
}

impl Predicate<'_> {
    fn body(&mut self, body: Body) -> Result<Body> {
        let mut out = Body::with_capacity(body.len());
        // Behind all loads beside each other, so that all of these are under way before any branch.
        let mut repairs = Body::new();
        for node in body {
            let load = self.tree.nest_of_load(node);
            // A lookup reads its index, which was loaded before.
            let is_lookup = |tv: TvId| self.facts.scheduled.lookup_of(tv).is_some();
            if load.is_none_or(|(tv, _)| self.is_loaded_ahead(tv) || is_lookup(tv)) {
                out.append(&mut repairs);
            }
            let repair = self.repair(node);
            out.push(self.node(node)?);
            match load {
                Some((tv, _)) if self.is_loaded_ahead(tv) => out.extend(repair),
                _ => repairs.extend(repair),
            }
        }
        out.append(&mut repairs);
        Ok(out)
    }

    /// Rewrites a node; returns what stands in its place.
    fn node(&mut self, node: NodeId) -> Result<NodeId> {
        match &mut self.tree.nodes[node] {
            Node::Accumulate { tv, tested } => {
                *tested = self.outside.is_tested(self.facts, *tv);
            }
            Node::Store { tv, firsts } | Node::Wide { wide: Wide::Store { tv, firsts, .. }, .. } => {
                *firsts = firsts_of(self.facts, *tv, &self.last_block)?;
            }
            Node::Grid { tvs, .. } => {
                let axes = self.facts.cross_thread(tvs[0]).block_axes;
                let (added, known): (Vec<_>, Vec<_>) =
                    axes.into_iter().partition(|axis| !self.last_block.contains(axis));
                self_check!(known.is_empty(), "grid reductions are not nested");
                self.grid(node, &added)?;
                return Ok(node);
            }
            _ => {}
        }
        if let Node::Wide { single, .. } = self.tree.nodes[node] {
            self.node(single)?;
        }
        self.bodies(node)?;
        Ok(match self.tree.nodes[node] {
            Node::Loop { own, unroll: Unroll::Full, .. } if own.parallel == ParallelType::Vectorize => {
                self.lanes(node, own)
            }
            _ => node,
        })
    }

    fn bodies(&mut self, node: NodeId) -> Result<()> {
        let taken: Vec<Body> = self.tree.bodies_mut(node).into_iter().map(std::mem::take).collect();
        let done = taken.into_iter().map(|body| self.body(body)).collect::<Result<Vec<Body>>>()?;
        self.tree.bodies_mut(node).into_iter().zip(done).for_each(|(body, done)| *body = done);
        Ok(())
    }

    /// In the last block, what depends on a grid reduction stands at all places of its axes.
    fn grid(&mut self, node: NodeId, axes: &[AxisId]) -> Result<()> {
        let Node::Grid { body, .. } = &mut self.tree.nodes[node] else { return Ok(()) };
        for inner in std::mem::take(body).iter() {
            let last = matches!(self.tree.nodes[*inner], Node::LastBlock { .. });
            if last {
                self.last_block.extend(axes);
            }
            self.bodies(*inner)?;
            if last {
                axes.iter().for_each(|axis| {
                    self.last_block.remove(axis);
                });
            }
            if let Node::Grid { body, .. } = &mut self.tree.nodes[node] {
                body.push(*inner);
            }
        }
        Ok(())
    }

    /// The repair of a load whose nest ends here, if it may need one.
    fn repair(&mut self, nest: NodeId) -> Option<NodeId> {
        let (tv, loops) = self.tree.nest_of_load(nest)?;
        let data = &self.facts.scheduled.tensors[tv];
        // What lies outside is never read into a ring, and nobody relies on what a lookup leaves there.
        let is_lookup = self.facts.scheduled.lookup_of(tv).is_some();
        if is_lookup || data.computed_at() + loops != data.loops.len() || data.is_ring() {
            return None;
        }
        // Who waits for all of a load anyway waits for none of it longer behind another branch.
        let is_relied_on = self.outside.is_relied_on(tv);
        let waits = is_relied_on || self.is_for_tiles(tv);
        let ends_later = waits && !self.is_loaded_ahead(tv);
        let mut is_wide = false;
        for node in self.tree.inside(&[nest]) {
            if let Node::Wide { wide: Wide::Load(load), .. } = &mut self.tree.nodes[node] {
                (load.ends_later, is_wide) = (ends_later, true);
            }
        }
        if !is_wide || !is_relied_on && !ends_later {
            return None;
        }
        let body = self.tree.copy(&[nest], &|node| match node {
            Node::Wide { wide: Wide::Load(load), own, .. } => {
                Some(Node::RepairLanes { load: Load { ends_later, ..*load }, own: *own, is_relied_on })
            }
            _ => None,
        });
        Some(self.tree.add(Node::Repair { tv, body }))
    }

    /// Whether a load fills its array, or a ring, iterations before the one that reads it.
    fn is_loaded_ahead(&self, tv: TvId) -> bool {
        self.facts.scheduled.tensors[tv].stages > 0
    }

    /// Whether a load is one of several of which each is read by nothing but copies of runs of memory into tiles. (On an H200 rows of a block
    /// epilogue that pass through tiles take 0.84 to 0.96 of the time so. What is transposed takes 1.1 to 1.3.)
    fn is_for_tiles(&self, tv: TvId) -> bool {
        let scheduled = self.facts.scheduled;
        let of_runs = |xform: &Xform| matches!(xform, Xform::Window { left: 0, shift: None, .. });
        let is_one = |tv: TvId| {
            let users = scheduled.consumers(tv);
            self.facts.loaded_from(tv).is_some() && users.iter().all(|user| scheduled.tensors[*user].tile.is_some())
        };
        let has_runs = scheduled.axes.xforms().any(|(_, xform)| of_runs(xform));
        is_one(tv) && has_runs && scheduled.tensors.ids().filter(|other| is_one(*other)).count() > 1
    }

    /// Where accumulations test each lane of a loop: the loop once more, without tests, for
    /// vectors that lie inside as a whole.
    fn lanes(&mut self, node: NodeId, own: Loop) -> NodeId {
        let inner = self.tree.inside(&[node]);
        let mut tested: Vec<TvId> = inner
            .iter()
            .filter_map(|node| match self.tree.nodes[*node] {
                Node::Accumulate { tv, tested: true } => Some(tv),
                _ => None,
            })
            .collect();
        sort_by_key(&mut tested, |tv| self.place[*tv]);
        // Loops inside the lanes have tests of their own.
        let ends_here = |tv: &TvId| self.facts.scheduled.tensors[*tv].loop_axes().next_back() == Some(own.axis);
        if tested.is_empty() || !tested.iter().all(ends_here) {
            return node;
        }
        let inside = self.tree.copy(&[node], &|node| match *node {
            Node::Accumulate { tv, .. } => Some(Node::Accumulate { tv, tested: false }),
            _ => None,
        });
        self.tree.add(Node::Lanes { own, tested, inside, otherwise: vec![node] })
    }
}

/// The axes at index 0 of which a tensor is written: of all places in the loops that
/// hold the same element, the first writes it.
fn firsts_of(facts: &Facts<'_>, tv: TvId, last_block: &BTreeSet<AxisId>) -> Result<Vec<AxisId>> {
    let foreign = facts.scheduled.foreign_axes(tv)?.axes;
    // The last block stands for all of them.
    let repeats = |other: &ForeignAxis| other.at_zero && other.loops.iter().any(|own| !last_block.contains(own));
    let axes = foreign.into_iter().filter(repeats).map(|other| other.axis);
    let mut firsts: Vec<AxisId> = axes.filter(|axis| facts.scheduled.axes[*axis].extent != Extent::Const(1)).collect();
    firsts.sort();
    firsts.dedup();
    Ok(firsts)
}
