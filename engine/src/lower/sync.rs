//! The pass that places barriers.
//!
//! In: the tree, and where values lie. Out: the tree with barriers, so that threads of a
//! block which hand values to each other do so in order.
//!
//! A node *accesses* what threads share: tiles, exchange memory, the flag of the last block and, since
//! a block is counted for all its threads, its scratch memory. Two accesses to the same are a
//! *hazard* if one of them writes, unless both write elements of one tensor, of which each
//! element has one writer. Between the nodes of a hazard a barrier must stand.
//!
//! Each node has a summary: what it accesses before its first barrier, what after its last,
//! and whether it always has one. So each body is seen once, and once more for each hazard from
//! one iteration of its loop to the next. A barrier stands immediately before the outermost node with which the
//! hazard ends: before a loop, if what it does was begun before the loop; inside, if the iteration before.
//! Exchanges of which iterations take two copies in turn meet those of the iteration before
//! the last only. Stages of rings meet those of as many iterations before as there are stages: a
//! copy writes its stage when it is begun and when it is waited for, and nobody touches it in between.
//!
//! Invariant: no barrier is placed in what only some threads do (`Lanes`, `Repair`), nor among what
//! fills a stage (`Fill`).

use super::alloc::{Array, Storage};
use super::facts::Facts;
use super::tree::{Body, ExchangeId, Iteration, LoopTree, Node, NodeId, SharedId, Step, Wide};
use crate::diag::{Diagnostic, Result};
use crate::schedule::{AxisId, Loop, TvId};
use crate::util::{EntityId, SecondaryMap};

/// Places the barriers of a tree.
pub(super) fn sync(facts: &Facts<'_>, storage: &Storage, tree: &mut LoopTree) -> Result<()> {
    let body = std::mem::take(&mut tree.body);
    let mut pass = Sync { facts, storage, tree, summaries: SecondaryMap::new() };
    let (body, _) = pass.body(body, &[])?;
    tree.body = body;
    Ok(())
}

/// What threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Shared(SharedId),
    /// Scratch memory of grid reductions.
    Scratch,
    /// The number of blocks before this one.
    Flag,
}

/// An access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    what: What,
    writes: bool,
    /// The tensor whose elements are meant, and the pass that made the node.
    tv: TvId,
    pass: &'static str,
    /// The loop whose iterations take two copies in turn, and whether this one is of
    /// the iteration before.
    turns: Option<AxisId>,
    before: bool,
    /// The stage of a ring, where that is known.
    stage: Option<Stage>,
}

/// The stage that iteration `i + ahead` of a loop fills, of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage {
    axis: AxisId,
    ahead: i64,
    of: i64,
}

impl Stage {
    fn is_other_than(self, other: Stage) -> bool {
        self.axis == other.axis && (self.ahead - other.ahead).rem_euclid(self.of) != 0
    }
}

impl Access {
    fn is_hazard_with(&self, other: &Access) -> bool {
        let same_copy = self.turns.is_none() || self.turns != other.turns || self.before == other.before;
        let writers = self.writes && other.writes && self.tv == other.tv;
        let stages = self.stage.zip(other.stage);
        let same_copy = same_copy && !stages.is_some_and(|(one, other)| one.is_other_than(other));
        self.what == other.what && (self.writes || other.writes) && !writers && same_copy
    }
}

/// What matters of a node to those before and after it.
#[derive(Clone, Debug, Default)]
struct Summary {
    /// Accesses that no barrier of the node comes before.
    first: Vec<Access>,
    /// Accesses that no barrier of the node comes after.
    last: Vec<Access>,
    /// Whether every way through it has a barrier.
    settles: bool,
}

struct Sync<'a> {
    facts: &'a Facts<'a>,
    storage: &'a Storage,
    tree: &'a mut LoopTree,
    summaries: SecondaryMap<NodeId, Option<Summary>>,
}

impl Sync<'_> {
    /// Places barriers in a body before which accesses are pending.
    fn body(&mut self, body: Body, pending: &[Access]) -> Result<(Body, Summary)> {
        let mut out = Body::with_capacity(body.len());
        let mut pending = pending.to_vec();
        let mut all = Summary::default();
        for node in body {
            let summary = match self.summaries[node].clone() {
                Some(summary) => summary,
                None => {
                    let summary = self.summary(node)?;
                    self.summaries.set(node, Some(summary.clone()));
                    summary
                }
            };
            if let Some((tv, pass)) = hazard(&pending, &summary.first) {
                out.push(self.barrier(tv, pass));
                pending.clear();
                all.settles = true;
            }
            if !all.settles {
                add(&mut all.first, &summary.first);
            }
            if summary.settles {
                pending.clear();
                all.settles = true;
            }
            add(&mut pending, &summary.last);
            out.push(node);
        }
        all.last = pending;
        Ok((out, all))
    }

    fn barrier(&mut self, tv: TvId, pass: &'static str) -> NodeId {
        let node = self.tree.add(Node::Barrier { tv, pass });
        self.summaries.set(node, Some(Summary { settles: true, ..Summary::default() }));
        node
    }

    fn summary(&mut self, node: NodeId) -> Result<Summary> {
        match &self.tree.nodes[node] {
            Node::Loop { own, .. } => {
                let own = *own;
                self.looped(node, own)
            }
            Node::Ahead { .. } | Node::Grid { .. } => self.inner(node, &[]),
            Node::LastBlock { .. } => {
                let inner = self.inner(node, &[])?;
                let mut summary = self.leaf(node)?;
                add(&mut summary.first, &inner.first);
                summary.last.extend(inner.last);
                Ok(summary)
            }
            Node::Fill { axis, at, .. } => {
                let (axis, at) = (*axis, *at);
                self.fill(node, axis, at)
            }
            Node::Lanes { .. } | Node::Repair { .. } => {
                let mut all = Summary::default();
                let bodies: Vec<Body> = self.tree.bodies(node).into_iter().cloned().collect();
                for inner in bodies.iter().flat_map(|body| self.tree.inside(body)) {
                    let accesses = self.leaf(inner)?;
                    add(&mut all.first, &accesses.first);
                }
                all.last = all.first.clone();
                Ok(all)
            }
            Node::GridBarrier { .. } => Ok(Summary { settles: true, ..Summary::default() }),
            _ => self.leaf(node),
        }
    }

    /// What fills stages writes those of an iteration ahead. In the loop it comes behind the wait for
    /// those of this iteration, and counts as reading them as well: so the barrier behind which others
    /// read what has landed stands between the two, and is the one that frees the stage to be filled.
    fn fill(&self, node: NodeId, axis: AxisId, at: Iteration) -> Result<Summary> {
        let mut found = Vec::new();
        for inner in self.tree.bodies(node).into_iter().flat_map(|body| self.tree.inside(body)) {
            for write in self.leaf(inner)?.first {
                let Iteration::After(ahead) = at else {
                    add(&mut found, &[Access { stage: None, ..write }]);
                    continue;
                };
                let stage = |ahead| Some(Stage { axis, ahead, of: self.stages(write.tv) });
                let landed = Access { writes: false, stage: stage(0), ..write };
                add(&mut found, &[landed, Access { stage: stage(ahead), ..write }]);
            }
        }
        Ok(Summary { first: found.clone(), last: found, settles: false })
    }

    fn stages(&self, tv: TvId) -> i64 {
        self.facts.scheduled.tensors[tv].stages.into()
    }

    /// Places barriers in the only body of a node.
    fn inner(&mut self, node: NodeId, pending: &[Access]) -> Result<Summary> {
        let body = self.tree.bodies_mut(node).into_iter().next().map(std::mem::take).unwrap_or_default();
        let (body, summary) = self.body(body, pending)?;
        if let Some(place) = self.tree.bodies_mut(node).into_iter().next() {
            *place = body;
        }
        Ok(summary)
    }

    fn looped(&mut self, node: NodeId, own: Loop) -> Result<Summary> {
        let mut summary = self.inner(node, &[])?;
        if !self.facts.repeats(own) {
            // Blocks beyond its axis leave it out.
            summary.settles &= !self.facts.is_guarded(own);
            return Ok(summary);
        }
        // Each round adds a barrier at least.
        loop {
            let carried = carried(&summary, own.axis);
            if hazard(&carried, &summary.first).is_none() {
                break;
            }
            summary = self.inner(node, &carried)?;
        }
        for access in summary.first.iter_mut().chain(&mut summary.last) {
            // What is not of the loop may meet either copy.
            access.turns = access.turns.filter(|axis| *axis != own.axis);
            access.before = false;
            access.stage = access.stage.filter(|stage| stage.axis != own.axis);
        }
        summary.settles &= self.facts.trips(own.axis).is_some_and(|trips| trips > 0);
        Ok(summary)
    }

    /// What a node that has no body accesses.
    fn leaf(&self, node: NodeId) -> Result<Summary> {
        let mut found = Vec::new();
        match &self.tree.nodes[node] {
            Node::Compute { tv } | Node::Store { tv, .. } | Node::Accumulate { tv, .. } => self.tiles(*tv, &mut found),
            Node::Load { load } | Node::RepairLanes { load, .. } => self.tiles(load.tv, &mut found),
            Node::Wide { wide, .. } => match wide {
                Wide::Load(load) => self.tiles(load.tv, &mut found),
                Wide::Store { tv, .. } | Wide::Tile { tv, .. } | Wide::Random { tv } => self.tiles(*tv, &mut found),
            },
            Node::Reduce { tv, pass, step } => self.step(*tv, pass, *step, &mut found)?,
            Node::Wait { rings, .. } => rings.iter().for_each(|tv| self.tile(*tv, true, &mut found)),
            Node::LastBlock { .. } => found.push(self.plain(What::Flag, false, TvId::from_index(0), "grid_reduce")),
            _ => {}
        }
        Ok(Summary { first: found.clone(), last: found, settles: false })
    }

    fn plain(&self, what: What, writes: bool, tv: TvId, pass: &'static str) -> Access {
        Access { what, writes, tv, pass, turns: None, before: false, stage: None }
    }

    /// The tiles among the operands of a tensor, and itself.
    fn tiles(&self, tv: TvId, found: &mut Vec<Access>) {
        self.facts.scheduled.producers(tv).into_iter().for_each(|from| self.tile(from, false, found));
        self.tile(tv, true, found);
    }

    /// An access to a tensor, if it is a tile: of a ring to the stage of the iteration at hand.
    fn tile(&self, tv: TvId, writes: bool, found: &mut Vec<Access>) {
        let Some(Array::Tile(shared)) = self.storage.arrays[tv] else { return };
        let ring = self.facts.ring_loop(tv);
        let stage = ring.map(|own| Stage { axis: own.axis, ahead: 0, of: self.stages(tv) });
        found.push(Access { stage, ..self.plain(What::Shared(shared), writes, tv, "tile") });
    }

    fn step(&self, tv: TvId, pass: &'static str, step: Step, found: &mut Vec<Access>) -> Result<()> {
        let exchange = |exchange: ExchangeId, writes: bool| -> Result<Access> {
            let place = self.tree.exchanges[exchange].place;
            let place = place.ok_or_else(|| Diagnostic::bug(format!("exchange {exchange} has no memory")))?;
            Ok(Access { turns: place.turns, ..self.plain(What::Shared(place.shared), writes, tv, pass) })
        };
        match step {
            Step::Gather => self.tiles(tv, found),
            Step::WriteWarps { exchange: x, .. } | Step::WriteRows { exchange: x, .. } => {
                found.push(exchange(x, true)?)
            }
            Step::ReadWarps { exchange: x, .. } | Step::ReadRows { exchange: x } => found.push(exchange(x, false)?),
            Step::HalveRows { exchange: x, .. } => found.extend([exchange(x, false)?, exchange(x, true)?]),
            Step::WritePartial => found.push(self.plain(What::Scratch, true, tv, pass)),
            Step::CountBlock => {
                found.push(self.plain(What::Scratch, false, tv, pass));
                found.push(self.plain(What::Flag, true, tv, pass));
            }
            Step::Shuffle { .. }
            | Step::ShuffleRows { .. }
            | Step::Publish
            | Step::Release
            | Step::Acquire
            | Step::CombineBlocks => {}
        }
        Ok(())
    }
}

/// The tensor and pass of the first hazard between two lists: those of who writes.
fn hazard(before: &[Access], after: &[Access]) -> Option<(TvId, &'static str)> {
    let found =
        |second: &Access| before.iter().find(|first| first.is_hazard_with(second)).map(|first| (*first, *second));
    after.iter().find_map(found).map(|(first, second)| {
        let writer = if second.writes { second } else { first };
        (writer.tv, writer.pass)
    })
}

/// What is pending at the beginning of a loop's body from iterations before.
fn carried(summary: &Summary, axis: AxisId) -> Vec<Access> {
    let mut carried = Vec::new();
    for access in &summary.last {
        let turns = access.turns == Some(axis);
        let settled = |stage: &Stage| stage.axis != axis || summary.settles;
        let one_on = |stage: Stage| Stage { ahead: stage.ahead - i64::from(stage.axis == axis), ..stage };
        // Where nothing settles what was before, it may be of any iteration.
        let stage = access.stage.filter(settled).map(one_on);
        add(&mut carried, &[Access { before: turns, stage, ..*access }]);
        if turns && !summary.settles {
            // Nothing settles what the iteration before that did, to the same copy.
            add(&mut carried, &[Access { before: false, stage, ..*access }]);
        }
    }
    carried
}

fn add(to: &mut Vec<Access>, accesses: &[Access]) {
    for access in accesses {
        if !to.contains(access) {
            to.push(*access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(stage: Option<Stage>) -> Access {
        let tv = TvId::from_index(0);
        Access { what: What::Scratch, writes: true, tv, pass: "test", turns: None, before: false, stage }
    }

    #[test]
    fn iterations_use_one_stage_where_they_are_a_multiple_of_stages_apart() {
        let [axis, other] = [0, 1].map(AxisId::from_index);
        for of in 2..=8 {
            for (one, two) in (0..20).flat_map(|one| (0..20).map(move |two| (one, two))) {
                let stage = |ahead| Stage { axis, ahead, of };
                assert_eq!(stage(one).is_other_than(stage(two)), one % of != two % of, "{one} and {two} of {of}");
                assert!(!stage(one).is_other_than(Stage { axis: other, ..stage(two) }), "other loops say nothing");
            }
        }
    }

    /// What the iteration before did to the stage of the iteration `ahead` of it, it did to that
    /// of one iteration less ahead of this one.
    #[test]
    fn an_iteration_finds_what_the_one_before_did_one_stage_nearer() {
        let [axis, other] = [0, 1].map(AxisId::from_index);
        let (own, outer) = (Stage { axis, ahead: 2, of: 3 }, Stage { axis: other, ahead: 1, of: 2 });
        let last = vec![access(Some(own)), access(Some(outer)), access(None)];
        for settles in [true, false] {
            let found = carried(&Summary { first: Vec::new(), last: last.clone(), settles }, axis);
            // Without a barrier in the loop the iteration before is any that was.
            let nearer = settles.then_some(Stage { ahead: 1, ..own });
            let mut expected = vec![access(nearer), access(Some(outer))];
            add(&mut expected, &[access(None)]);
            assert_eq!(found, expected, "settles: {settles}");
        }
    }

    /// The stage that an iteration fills is the one that the iteration before has read, and no other.
    #[test]
    fn a_fill_meets_what_the_iteration_before_has_read() {
        let axis = AxisId::from_index(0);
        for of in 2..=8 {
            let stage = |ahead| Some(Stage { axis, ahead, of });
            let (tv, reads) = (TvId::from_index(1), |ahead| Access { writes: false, ..access(stage(ahead)) });
            let fill = Access { tv, ..access(stage(of - 1)) };
            for ahead in 1 - of..of {
                let meets = ahead == -1 || ahead == of - 1;
                assert_eq!(fill.is_hazard_with(&reads(ahead)), meets, "{ahead} of {of}");
            }
        }
    }
}
