//! What the operations of a program say of its axes: which are the same, which group others,
//! which are cut or padded.
//!
//! Each axis of each value is a *node*, and so is what lies between the axes of a reshape. Two
//! relations join nodes to classes: *exact* joins axes with equal extents, *permissive* also a
//! broadcast axis with the axis that it meets. Merges and exact splits are one relation here, a
//! [`Group`]: `whole = outer * extent(inner) + inner`, one to one.

use super::values::{DraftId, Use, Values};
use crate::axes::offset::Offset;
use crate::axes::sizes::{Size, Sizes};
use crate::fusion::{AxisKind, OpId, ScalarId};
use crate::util::{DisjointSets, SecondaryMap};
use std::collections::BTreeMap;

/// A node, by position.
pub(super) type Node = usize;

/// The extent of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeExtent {
    Const(i64),
    Scalar(ScalarId),
    /// The product of those of two nodes.
    Product(Node, Node),
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeData {
    /// The axis of a value that it is; none of what lies between.
    pub(super) owner: Option<(DraftId, usize)>,
    pub(super) extent: NodeExtent,
    /// Whether it has an index; otherwise it is a broadcast.
    pub(super) concrete: bool,
    /// Whether that index is data.
    pub(super) looked_up: bool,
}

/// `whole = outer * extent(inner) + inner`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) outer: Node,
    pub(super) inner: Node,
    pub(super) whole: Node,
    pub(super) origin: Origin,
}

/// Why a group is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An operation merges the parts.
    Merge,
    /// An operation splits the whole.
    Split,
    /// It follows from others.
    Derived,
}

/// `output = input + left`, `extent(output) = left + extent(input) + right`.
#[derive(Clone, Debug)]
pub(super) struct Resized {
    pub(super) input: Node,
    pub(super) output: Node,
    pub(super) left: Offset,
    pub(super) right: Offset,
    /// The offsets as sizes, by which equal ones are found.
    pub(super) key: (Size, Size),
    /// The value that has one element of the input, in place of a broadcast axis: the output
    /// has index 0 where it is computed.
    pub(super) picked: Option<DraftId>,
}

/// All relations of a program.
#[derive(Clone, Debug)]
pub(super) struct Relations<'a> {
    pub(super) values: &'a Values<'a>,
    pub(super) sizes: &'a Sizes,
    pub(super) nodes: Vec<NodeData>,
    /// The node of a value's first axis, of values that take part.
    first: SecondaryMap<DraftId, Option<Node>>,
    pub(super) exact: DisjointSets,
    pub(super) permissive: DisjointSets,
    pub(super) groups: Vec<Group>,
    pub(super) resizes: Vec<Resized>,
    /// Nodes that stand for axes of an operand, where the operation sees others than it has:
    /// a broadcast axis that is padded is one of a single index.
    pub(super) seen: BTreeMap<(Use, usize), Node>,
    /// A use whose axes are moved by sums that are too long to compare.
    pub(super) unclear: Option<Use>,
    /// The extent of each node's class, once they are closed.
    class_sizes: Vec<Size>,
}

impl<'a> Relations<'a> {
    /// Of the values that results depend on; with an end, of what the operations before say,
    /// and of as many operands of the last.
    pub(super) fn new(values: &'a Values<'a>, sizes: &'a Sizes, end: Option<(OpId, usize)>) -> Self {
        let mut relations = Self {
            values,
            sizes,
            nodes: Vec::new(),
            first: SecondaryMap::new(),
            exact: DisjointSets::new(0),
            permissive: DisjointSets::new(0),
            groups: Vec::new(),
            resizes: Vec::new(),
            seen: BTreeMap::new(),
            unclear: None,
            class_sizes: Vec::new(),
        };
        let live = values.live();
        let taken = |op: Option<OpId>| op.zip(end).is_none_or(|(op, (last, _))| op <= last);
        let ids: Vec<DraftId> =
            values.all.iter().filter(|(id, v)| live[*id] && taken(v.op)).map(|(id, _)| id).collect();
        for id in &ids {
            relations.add_axes(*id);
        }
        let mut ids: Vec<(Option<OpId>, DraftId)> = ids.into_iter().map(|id| (values.all[id].op, id)).collect();
        ids.sort();
        for (op, id) in ids {
            if let Some(op) = op {
                let operands = end.filter(|(last, _)| *last == op).map(|(_, operands)| operands);
                relations.operation(op, id, operands.unwrap_or(usize::MAX));
            }
        }
        relations
    }

    fn add_axes(&mut self, value: DraftId) {
        self.first.set(value, Some(self.nodes.len()));
        let tensor = self.values.all[value].tensor;
        for (position, axis) in self.values.fusion.tensors[tensor].axes.iter().enumerate() {
            self.add(NodeData {
                owner: Some((value, position)),
                extent: NodeExtent::Scalar(axis.extent),
                concrete: axis.kind != AxisKind::Broadcast,
                looked_up: false,
            });
        }
    }

    fn add(&mut self, node: NodeData) -> Node {
        self.nodes.push(node);
        self.exact.add();
        self.permissive.add()
    }

    /// An axis that no tensor has.
    pub(super) fn between(&mut self, extent: NodeExtent) -> Node {
        self.add(NodeData { owner: None, extent, concrete: true, looked_up: false })
    }

    /// The nodes of a value's axes; none of values that take no part.
    pub(super) fn axes(&self, value: DraftId) -> std::ops::Range<Node> {
        let rank = self.values.fusion.tensors[self.values.all[value].tensor].axes.len();
        self.first[value].map_or(0..0, |first| first..first + rank)
    }

    /// The values that take part, with their nodes.
    pub(super) fn parts(&self) -> impl Iterator<Item = DraftId> {
        self.values.all.ids().filter(|id| self.first[*id].is_some())
    }

    /// The extent of a node as a size.
    pub(super) fn size(&self, node: Node) -> Size {
        match self.nodes[node].extent {
            NodeExtent::Const(n) => Size::number(n),
            NodeExtent::Scalar(scalar) => self.sizes.of(scalar),
            // What is too long for a form is named by its place.
            NodeExtent::Product(a, b) => self.size(a).times(&self.size(b)).unwrap_or_else(|| Size::extent(node)),
        }
    }

    /// Joins two axes that an operation pairs.
    pub(super) fn pair(&mut self, a: Node, b: Node) {
        self.permissive.union(a, b);
        if self.nodes[a].concrete == self.nodes[b].concrete {
            self.exact.union(a, b);
        }
    }

    /// The extent of a node's class: a number if that is known.
    pub(super) fn class_size(&self, node: Node) -> &Size {
        &self.class_sizes[node]
    }

    /// Finds the extents of classes anew.
    pub(super) fn find_sizes(&mut self) {
        let mut sizes: BTreeMap<Node, Size> = BTreeMap::new();
        for node in (0..self.nodes.len()).filter(|node| self.nodes[*node].concrete) {
            let size = self.size(node);
            let known = sizes.entry(self.class(node)).or_insert_with(|| size.clone());
            if known.known().is_none() && size.known().is_some() {
                *known = size;
            }
        }
        let of = |node: Node| sizes.get(&self.class(node)).cloned().unwrap_or_else(|| Size::number(1));
        self.class_sizes = (0..self.nodes.len()).map(of).collect();
    }

    pub(super) fn class(&self, node: Node) -> Node {
        self.permissive.root(node)
    }

    /// The extent of two axes merged.
    pub(super) fn product_extent(&self, outer: Node, inner: Node) -> NodeExtent {
        let known = self.size(outer).times(&self.size(inner)).and_then(|product| product.known());
        known.map_or(NodeExtent::Product(outer, inner), NodeExtent::Const)
    }

    /// The merged axis of two.
    pub(super) fn merged(&mut self, outer: Node, inner: Node, origin: Origin) -> Node {
        let whole = self.between(self.product_extent(outer, inner));
        self.groups.push(Group { outer, inner, whole, origin });
        whole
    }
}
