//! The pass that makes loops load elements of later iterations before they use
//! this one's, so that memory is busy while threads compute and wait at barriers.
//!
//! In: a tree in which what a loop loads ahead comes first in its body, each nest with
//! its repair. Out: the same, ahead.
//!
//! * An array in registers has a twin. Before the loop the twin is loaded for
//!   iteration 0; at the top of iteration `i` the twin is copied to the array and
//!   then loaded for iteration `i + 1`; then the array is repaired. After the last
//!   iteration nothing is inside, so nothing is read.
//! * A ring of `n` stages in shared memory is filled by asynchronous copies, a group of them for
//!   each iteration. Before the loop those for iterations 0 to `n - 2` are begun; at the top of
//!   iteration `i` its group is waited for, and that for iteration `i + n - 1` begun, in the stage
//!   that iteration `i - 1` has read. Behind the last iteration groups are empty, but counted.
//! * What has one stage is *refilled*: elements of iteration `i + 1` are copied where iteration `i` reads those in their
//!   places for the last time, as deep in the loops of that reader as it runs over the same elements. A thread
//!   has read its own elements before it begins the copy, and nobody else has to do with them. (Loads from shared
//!   memory and asynchronous copies to it are issued in their order to the one pipe to that memory, and a copy writes there when
//!   its data have come from further away: what was read before has been read.)
//!
//! A thread waits for its groups in their order, whichever ring they belong to. So of the rings of one
//! loop that of the fewest stages decides how many groups stay on their way; and a loop with a ring
//! that runs within an iteration of another one waits for all that the outer one has begun before. What is
//! refilled has a group of its own, the last of an iteration, so that all is waited for: rings beside it are one iteration ahead too.

use super::facts::Facts;
use super::tree::{Body, Iteration, Load, LoopTree, Node, NodeId, Step, Wide};
use crate::schedule::{AxisId, Loop, TvId};
use std::collections::BTreeMap;

/// Rewrites all loops that load ahead.
pub(super) fn pipeline(facts: &Facts<'_>, tree: &mut LoopTree) {
    if facts.scheduled.tensors.values().any(|data| data.stages > 0) {
        let body = std::mem::take(&mut tree.body);
        tree.body = rewrite(facts, tree, body);
    }
}

fn rewrite(facts: &Facts<'_>, tree: &mut LoopTree, body: Body) -> Body {
    let mut out = Body::with_capacity(body.len());
    for node in body {
        for at in 0..tree.bodies(node).len() {
            let inner = std::mem::take(tree.bodies_mut(node)[at]);
            let inner = rewrite(facts, tree, inner);
            *tree.bodies_mut(node)[at] = inner;
        }
        out.extend(load_ahead(facts, tree, node));
        out.push(node);
    }
    out
}

/// Rewrites the body of a loop that loads ahead; returns what comes before the loop.
fn load_ahead(facts: &Facts<'_>, tree: &mut LoopTree, node: NodeId) -> Body {
    let Node::Loop { own, body, .. } = &tree.nodes[node] else { return Body::new() };
    let own = *own;
    let (mut loads, mut nests, mut repairs) = (Vec::new(), Body::new(), Body::new());
    let mut rings = Rings::new();
    let mut rest = body.as_slice();
    while let [first, others @ ..] = rest {
        if let Some(tv) = ahead_of(facts, tree, own, *first) {
            if facts.ring_loop(tv).is_some() {
                rings.entry(facts.scheduled.tensors[tv].stages.into()).or_default().push((tv, *first));
            } else {
                loads.push(tv);
                nests.push(*first);
            }
        } else if matches!(&tree.nodes[*first], Node::Repair { tv, .. } if loads.last() == Some(tv)) {
            repairs.push(*first);
        } else {
            break;
        }
        rest = others;
    }
    let mut rest = rest.to_vec();
    let (mut before, mut rewritten) = (Body::new(), Body::new());
    let refilled = rings.remove(&1).unwrap_or_default();
    turn_rings(tree, own.axis, (&rings, &refilled), &mut before, &mut rewritten);
    if !refilled.is_empty() {
        for copies in &refilled {
            rest = refill(facts, tree, own.axis, *copies, rest);
        }
        rest.push(tree.add(Node::Commit));
    }
    if !loads.is_empty() {
        let [first, next] = twins(tree, own.axis, &loads, &nests);
        before.push(first);
        rewritten.push(tree.add(Node::Advance { loads }));
        rewritten.push(next);
    }
    if before.is_empty() {
        return before;
    }
    rewritten.extend(repairs);
    rewritten.extend(rest);
    if let Node::Loop { body, .. } = &mut tree.nodes[node] {
        *body = rewritten;
    }
    before
}

/// Loads to the twins of arrays: of the first iteration, and of that after the current one.
fn twins(tree: &mut LoopTree, axis: AxisId, loads: &[TvId], nests: &[NodeId]) -> [NodeId; 2] {
    let twin = |load: Load| Load { twin: true, ..load };
    let change = |node: &Node| match node {
        Node::Load { load } => Some(Node::Load { load: twin(*load) }),
        _ => None,
    };
    [Iteration::Before(0), Iteration::After(1)].map(|at| {
        let body = tree.copy(nests, &change);
        for node in tree.inside(&body) {
            if let Node::Wide { wide: Wide::Load(load), .. } = &mut tree.nodes[node] {
                load.twin = true;
            }
        }
        tree.add(Node::Ahead { axis, at, loads: loads.to_vec(), body })
    })
}

/// The rings of a loop, by their numbers of stages, with the nests that fill them.
type Rings = BTreeMap<i64, Vec<(TvId, NodeId)>>;

/// Puts the copies for the next iteration behind the last node that reads a tensor: within loops of it over the same
/// elements, each behind what reads that element. Not within loops that have groups of their own.
fn refill(facts: &Facts<'_>, tree: &mut LoopTree, axis: AxisId, (tv, nest): (TvId, NodeId), mut body: Body) -> Body {
    let last = body.iter().rposition(|node| reads(facts, tree, *node, tv));
    if let Some((reader, within, inner)) = last.and_then(|at| same_loop(tree, body[at], nest)) {
        let refilled = refill(facts, tree, axis, (tv, inner), within);
        if let Node::Loop { body, .. } = &mut tree.nodes[reader] {
            *body = refilled;
        }
        return body;
    }
    let fill = tree.copy(&[nest], &|_| None);
    let fill = tree.add(Node::Fill { axis, at: Iteration::After(1), body: fill });
    body.insert(last.map_or(body.len(), |at| at + 1), fill);
    body
}

/// Of a reader, and of a nest of copies, that are loops over one axis: the reader, its body, and that of the nest, if that is
/// one node.
fn same_loop(tree: &LoopTree, reader: NodeId, nest: NodeId) -> Option<(NodeId, Body, NodeId)> {
    let (Node::Loop { own: theirs, body, .. }, Node::Loop { own, body: copies, .. }) =
        (&tree.nodes[reader], &tree.nodes[nest])
    else {
        return None;
    };
    let [inner] = *copies.as_slice() else { return None };
    let has_groups = tree.inside(body).into_iter().any(|node| matches!(tree.nodes[node], Node::Commit));
    (own == theirs && !has_groups).then(|| (reader, body.clone(), inner))
}

/// Whether something in a node is computed of a tensor.
fn reads(facts: &Facts<'_>, tree: &LoopTree, node: NodeId, tv: TvId) -> bool {
    let made = |node: NodeId| match &tree.nodes[node] {
        Node::Accumulate { tv, .. } | Node::Compute { tv } | Node::Store { tv, .. } => Some(*tv),
        // The other steps are among values of threads.
        Node::Reduce { tv, step: Step::Gather, .. } => Some(*tv),
        Node::Load { load } => Some(load.tv),
        Node::Wide { wide, .. } => Some(match wide {
            Wide::Load(load) => load.tv,
            Wide::Store { tv, .. } | Wide::Tile { tv, .. } | Wide::Random { tv } => *tv,
        }),
        _ => None,
    };
    let is_reader = |node| made(node).is_some_and(|made| facts.scheduled.producers(made).contains(&tv));
    tree.inside(&[node]).into_iter().any(is_reader)
}

/// What fills and waits for the rings of a loop. With `most` stages at most, group `g` belongs to
/// iteration `g - most + 1`, in which a ring of `n` stages is filled for iteration `g - most + n`.
/// Of those that an iteration reads the latest is that of the ring of the fewest stages, behind
/// which as many groups less two are begun. What is refilled comes before the loop for the first iteration.
fn turn_rings(
    tree: &mut LoopTree,
    axis: AxisId,
    (rings, refilled): (&Rings, &[(TvId, NodeId)]),
    before: &mut Body,
    inside: &mut Body,
) {
    let nests = |of: &[(TvId, NodeId)]| -> Vec<NodeId> { of.iter().map(|(_, nest)| *nest).collect() };
    let filled = rings.values().flatten().chain(refilled).map(|(tv, _)| *tv).collect();
    if !refilled.is_empty() {
        let body = tree.copy(&nests(refilled), &|_| None);
        before.push(tree.add(Node::Fill { axis, at: Iteration::Before(0), body }));
        before.push(tree.add(Node::Commit));
    }
    let (Some(fewest), Some(most)) = (rings.keys().next(), rings.keys().next_back()) else {
        inside.extend((!refilled.is_empty()).then(|| tree.add(Node::Wait { rings: filled, open: 0 })));
        return;
    };
    for group in 0..most - 1 {
        for (stages, of) in rings.iter().filter(|(stages, _)| group >= most - **stages) {
            let body = tree.copy(&nests(of), &|_| None);
            before.push(tree.add(Node::Fill { axis, at: Iteration::Before(group - most + stages), body }));
        }
        before.push(tree.add(Node::Commit));
    }
    let open = if refilled.is_empty() { (fewest - 2) as u32 } else { 0 };
    inside.push(tree.add(Node::Wait { rings: filled, open }));
    for (stages, of) in rings {
        inside.push(tree.add(Node::Fill { axis, at: Iteration::After(stages - 1), body: nests(of) }));
    }
    inside.push(tree.add(Node::Commit));
}

/// The tensor that a nest in a loop loads, if the loop is to load it ahead.
fn ahead_of(facts: &Facts<'_>, tree: &LoopTree, own: Loop, nest: NodeId) -> Option<TvId> {
    let (tv, loops) = tree.nest_of_load(nest)?;
    let data = &facts.scheduled.tensors[tv];
    let stands_here = data.inline_at + loops == data.loops.len();
    let depth = data.inline_at.checked_sub(1)?;
    (stands_here && data.loops[depth] == own && facts.loaded_ahead(&[tv], own, depth) == [tv]).then_some(tv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::EntityId;
    use std::collections::BTreeSet;

    /// The copies of a run, by ring and iteration, in their groups.
    #[derive(Default)]
    struct Run {
        groups: Vec<Vec<(TvId, i64)>>,
        open: Vec<(TvId, i64)>,
        /// How many groups have landed for certain.
        landed: usize,
    }

    impl Run {
        /// Does what nodes do in iteration `i` of a loop of so many.
        fn nodes(&mut self, tree: &LoopTree, body: &Body, i: i64, trips: i64) {
            for node in body {
                match &tree.nodes[*node] {
                    Node::Fill { at, body, .. } => {
                        let iteration = match at {
                            Iteration::Before(iteration) => *iteration,
                            Iteration::After(steps) => i + steps,
                        };
                        let filled = body.iter().filter_map(|nest| tree.nest_of_load(*nest));
                        self.open.extend(filled.filter(|_| iteration < trips).map(|(tv, _)| (tv, iteration)));
                    }
                    Node::Commit => self.groups.push(std::mem::take(&mut self.open)),
                    Node::Wait { open, .. } => self.landed = self.groups.len().saturating_sub(*open as usize),
                    other => panic!("{other:?}"),
                }
            }
        }

        fn copies(&self) -> impl Iterator<Item = &(TvId, i64)> {
            self.groups.iter().flatten()
        }
    }

    /// Whatever the rings of a loop: an iteration reads what has landed, a stage is filled again when its
    /// readers are through, and everything is copied once.
    #[test]
    fn rings_of_one_loop_turn_together() {
        for stages in [&[2][..], &[3], &[8], &[2, 4], &[8, 2], &[3, 3], &[2, 3, 5], &[1], &[1, 1], &[1, 2], &[4, 1, 3]]
        {
            let mut tree = LoopTree::default();
            let mut rings = Rings::new();
            for (at, stages) in stages.iter().enumerate() {
                let tv = TvId::from_index(at);
                let nest = tree.add(Node::Load { load: Load { tv, from: tv, twin: false, ends_later: false } });
                rings.entry(*stages).or_default().push((tv, nest));
            }
            let refilled = rings.remove(&1).unwrap_or_default();
            let (mut before, mut inside) = (Body::new(), Body::new());
            let axis = AxisId::from_index(0);
            turn_rings(&mut tree, axis, (&rings, &refilled), &mut before, &mut inside);
            let refill =
                Node::Fill { axis, at: Iteration::After(1), body: refilled.iter().map(|(_, nest)| *nest).collect() };
            let behind = if refilled.is_empty() { Body::new() } else { vec![tree.add(refill), tree.add(Node::Commit)] };
            for trips in 0..12 {
                let mut run = Run::default();
                run.nodes(&tree, &before, -1, trips);
                for i in 0..trips {
                    let known = run.copies().count();
                    run.nodes(&tree, &inside, i, trips);
                    for (at, stages) in stages.iter().enumerate() {
                        let own = (TvId::from_index(at), i);
                        let landed = run.groups[..run.landed].iter().flatten().any(|copy| *copy == own);
                        assert!(landed, "iteration {i} of {trips}, ring {at}, {stages} stages");
                        let mut begun = run.copies().skip(known).filter(|(tv, _)| *tv == own.0);
                        assert!(begun.all(|(_, of)| *of == i + stages - 1), "ring {at} in iteration {i} of {trips}");
                    }
                    run.nodes(&tree, &behind, i, trips);
                }
                let copies: BTreeSet<_> = run.copies().collect();
                assert_eq!(copies.len(), run.copies().count(), "something is copied twice");
                assert_eq!(copies.len() as i64, stages.len() as i64 * trips);
            }
        }
    }
}
