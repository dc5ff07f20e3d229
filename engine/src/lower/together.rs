//! The pass that lets reductions wait together.
//!
//! In: the tree, in which each reduction across the threads of a block stands as a whole. Out: the tree in which
//! reductions that do not need each other write first what other warps read, and read then. So one barrier serves
//! them all, which `sync` would place for each.
//!
//! What is read, and single values that are computed of it, is moved behind the next reduction's writes, past nodes
//! that make no use of it. Nothing else changes its place.

use super::facts::Facts;
use super::tree::{Body, LoopTree, Node, NodeId, Step, Wide};
use crate::schedule::TvId;

/// Brings reductions together in all bodies of a tree, so many at most: each has memory of its own meanwhile.
pub(super) fn together(facts: &Facts<'_>, tree: &mut LoopTree, most: usize) {
    let body = std::mem::take(&mut tree.body);
    tree.body = in_body(facts, tree, body, most);
}

fn in_body(facts: &Facts<'_>, tree: &mut LoopTree, body: Body, most: usize) -> Body {
    for node in &body {
        for at in 0..tree.bodies(*node).len() {
            let inner = std::mem::take(tree.bodies_mut(*node)[at]);
            let inner = in_body(facts, tree, inner, most);
            *tree.bodies_mut(*node)[at] = inner;
        }
    }
    let mut out = Body::with_capacity(body.len());
    let mut late = Late::default();
    for node in body {
        match tree.nodes[node] {
            Node::Reduce { tv, step: Step::ReadWarps { .. }, .. } => {
                match late.written.contains(&tv) {
                    true => late.pass(&mut out),
                    false => late.end(&mut out),
                }
                late.number += 1;
                late.delay(tv, node);
            }
            Node::Reduce { tv, step: Step::WriteWarps { .. }, .. }
                if (1..most).contains(&(late.number + late.written.len())) && !late.is_of(facts, tv) =>
            {
                late.written.push(tv);
                late.open.push((node, false));
            }
            Node::Reduce { tv, step: Step::Publish, .. } | Node::Compute { tv } if late.is_of(facts, tv) => {
                late.delay(tv, node);
            }
            _ if late.lets_pass(facts, tree, node) => late.open.push((node, false)),
            _ => {
                late.end(&mut out);
                out.push(node);
            }
        }
    }
    late.end(&mut out);
    out
}

/// What is read of other warps, until the last of the reductions that wait together have written.
#[derive(Default)]
struct Late {
    /// Nodes that stand nowhere yet, in order, and whether each comes late: it reads, or is computed of what is read.
    open: Vec<(NodeId, bool)>,
    /// What the late ones make.
    tensors: Vec<TvId>,
    /// How many reductions read, and those that have written since.
    number: usize,
    written: Vec<TvId>,
}

impl Late {
    fn delay(&mut self, tv: TvId, node: NodeId) {
        self.open.push((node, true));
        self.tensors.push(tv);
    }

    /// Whether a tensor is one of those that come late, or is computed of them.
    fn is_of(&self, facts: &Facts<'_>, tv: TvId) -> bool {
        self.tensors.contains(&tv) || facts.scheduled.producers(tv).iter().any(|from| self.tensors.contains(from))
    }

    /// Whether there is something late, and a node may come before it.
    fn lets_pass(&self, facts: &Facts<'_>, tree: &LoopTree, node: NodeId) -> bool {
        let is_free = |inner: NodeId| match &tree.nodes[inner] {
            Node::Loop { .. } | Node::Lanes { .. } => true,
            Node::Init { tv }
            | Node::Accumulate { tv, .. }
            | Node::Finish { tv }
            | Node::Compute { tv }
            | Node::Wide { wide: Wide::Tile { tv, .. } | Wide::Random { tv }, .. }
            | Node::Reduce { tv, step: Step::Gather | Step::Shuffle { .. } | Step::ShuffleRows { .. }, .. } => {
                !self.is_of(facts, *tv)
            }
            _ => false,
        };
        !self.tensors.is_empty() && tree.inside(&[node]).into_iter().all(is_free)
    }

    /// Places all that is not late: none of it has use for what is.
    fn pass(&mut self, out: &mut Body) {
        out.extend(self.open.iter().filter(|(_, is_late)| !is_late).map(|(node, _)| *node));
        self.open.retain(|(_, is_late)| *is_late);
        self.written.clear();
    }

    /// Places everything as it stood.
    fn end(&mut self, out: &mut Body) {
        out.extend(std::mem::take(self).open.into_iter().map(|(node, _)| node));
    }
}
