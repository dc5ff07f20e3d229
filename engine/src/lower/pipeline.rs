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
//!
//! A thread waits for its groups in their order, whichever ring they belong to. So of the rings of one
//! loop that of the fewest stages decides how many groups stay on their way; and a loop with a ring
//! that runs within an iteration of another one waits for all that the outer one has begun before.

use super::facts::Facts;
use super::tree::{Body, Iteration, Load, LoopTree, Node, NodeId, Wide};
use crate::schedule::{AxisId, Loop, TvId};
use std::collections::BTreeMap;

/// Rewrites all loops that load ahead.
pub(super) fn pipeline(facts: &Facts<'_>, tree: &mut LoopTree) {
    if facts.scheduled.tensors.values().any(|data| data.stages > 1) {
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
    let rest = rest.to_vec();
    let (mut before, mut rewritten) = (Body::new(), Body::new());
    turn_rings(tree, own.axis, &rings, &mut before, &mut rewritten);
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

/// What fills and waits for the rings of a loop. With `most` stages at most, group `g` belongs to
/// iteration `g - most + 1`, in which a ring of `n` stages is filled for iteration `g - most + n`.
/// Of those that an iteration reads the latest is that of the ring of the fewest stages, behind
/// which as many groups less two are begun.
fn turn_rings(tree: &mut LoopTree, axis: AxisId, rings: &Rings, before: &mut Body, inside: &mut Body) {
    let (Some(fewest), Some(most)) = (rings.keys().next(), rings.keys().next_back()) else { return };
    let nests = |of: &Vec<(TvId, NodeId)>| -> Vec<NodeId> { of.iter().map(|(_, nest)| *nest).collect() };
    for group in 0..most - 1 {
        for (stages, of) in rings.iter().filter(|(stages, _)| group >= most - **stages) {
            let body = tree.copy(&nests(of), &|_| None);
            before.push(tree.add(Node::Fill { axis, at: Iteration::Before(group - most + stages), body }));
        }
        before.push(tree.add(Node::Commit));
    }
    let filled = rings.values().flatten().map(|(tv, _)| *tv).collect();
    inside.push(tree.add(Node::Wait { rings: filled, open: (fewest - 2) as u32 }));
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
        for stages in [&[2][..], &[3], &[8], &[2, 4], &[8, 2], &[3, 3], &[2, 3, 5]] {
            let mut tree = LoopTree::default();
            let mut rings = Rings::new();
            for (at, stages) in stages.iter().enumerate() {
                let tv = TvId::from_index(at);
                let nest = tree.add(Node::Load { load: Load { tv, from: tv, twin: false } });
                rings.entry(*stages).or_default().push((tv, nest));
            }
            let (mut before, mut inside) = (Body::new(), Body::new());
            turn_rings(&mut tree, AxisId::from_index(0), &rings, &mut before, &mut inside);
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
                }
                let copies: BTreeSet<_> = run.copies().collect();
                assert_eq!(copies.len(), run.copies().count(), "something is copied twice");
                assert_eq!(copies.len() as i64, stages.len() as i64 * trips);
            }
        }
    }
}
