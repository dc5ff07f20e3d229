//! The pass that makes loops load the next iteration's elements before they use
//! this one's, so that memory is busy while threads compute and wait at barriers.
//!
//! In: a tree in which what a loop loads ahead comes first in its body, each nest with
//! its repair. Out: each such array has a twin. Before the loop the twin is loaded for
//! iteration 0; at the top of iteration `i` the twin is copied to the array and
//! then loaded for iteration `i + 1`; then the array is repaired. After the last
//! iteration nothing is inside, so nothing is read.

use super::facts::Facts;
use super::tree::{Ahead, Body, Load, LoopTree, Node, NodeId, Wide};
use crate::schedule::{Loop, TvId};

/// Rewrites all loops that load ahead.
pub(super) fn pipeline(facts: &Facts<'_>, tree: &mut LoopTree) {
    if facts.scheduled.tensors.values().any(|data| data.prefetch) {
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
fn load_ahead(facts: &Facts<'_>, tree: &mut LoopTree, node: NodeId) -> Option<NodeId> {
    let Node::Loop { own, body, .. } = &tree.nodes[node] else { return None };
    let own = *own;
    let (mut loads, mut nests, mut repairs) = (Vec::new(), Body::new(), Body::new());
    let mut rest = body.as_slice();
    while let [first, others @ ..] = rest {
        if let Some(tv) = ahead_of(facts, tree, own, *first) {
            loads.push(tv);
            nests.push(*first);
        } else if matches!(&tree.nodes[*first], Node::Repair { tv, .. } if loads.last() == Some(tv)) {
            repairs.push(*first);
        } else {
            break;
        }
        rest = others;
    }
    if loads.is_empty() {
        return None;
    }
    let rest = rest.to_vec();
    let twin = |load: Load| Load { twin: true, ..load };
    let change = |node: &Node| match node {
        Node::Load { load } => Some(Node::Load { load: twin(*load) }),
        _ => None,
    };
    let [first, next] = [Ahead::First, Ahead::Next].map(|at| {
        let body = tree.copy(&nests, &change);
        for node in tree.inside(&body) {
            if let Node::Wide { wide: Wide::Load(load), .. } = &mut tree.nodes[node] {
                load.twin = true;
            }
        }
        tree.add(Node::Ahead { axis: own.axis, at, loads: loads.clone(), body })
    });
    let advance = tree.add(Node::Advance { loads });
    let rewritten: Body = [advance, next].into_iter().chain(repairs).chain(rest).collect();
    if let Node::Loop { body, .. } = &mut tree.nodes[node] {
        *body = rewritten;
    }
    Some(first)
}

/// The tensor that a nest in a loop loads, if the loop is to load it ahead.
fn ahead_of(facts: &Facts<'_>, tree: &LoopTree, own: Loop, nest: NodeId) -> Option<TvId> {
    let (tv, loops) = tree.nest_of_load(nest)?;
    let data = &facts.scheduled.tensors[tv];
    let stands_here = data.inline_at + loops == data.loops.len();
    let depth = data.inline_at.checked_sub(1)?;
    (stands_here && data.loops[depth] == own && facts.loaded_ahead(&[tv], own, depth) == [tv]).then_some(tv)
}
