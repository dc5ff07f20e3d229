//! From relations to the axis graph and the axes of each value.

use super::relations::{Group, Node, NodeExtent, Origin, Relations};
use super::values::{DraftId, Use, Values};
use super::{FusionAxes, FusionOperand, FusionValue, ValueId};
use crate::axes::domain::AxisRef;
use crate::axes::graph::{AxisGraph, AxisId, Extent, Xform};
use crate::fusion::{OpId, ScalarId};
use crate::num::Value;
use crate::util::{EntityId, PrimaryMap, SecondaryMap, map_of, set_of};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn freeze(relations: &Relations<'_>) -> FusionAxes {
    let mut freezer = Freezer {
        relations,
        extents: extents(relations),
        axes: BTreeMap::new(),
        ids: SecondaryMap::new(),
        frozen: FusionAxes { graph: AxisGraph::default(), values: PrimaryMap::new(), outputs: Vec::new() },
    };
    for value in freezer.order() {
        freezer.value(value);
    }
    freezer.outputs();
    freezer.xforms();
    freezer.frozen.graph.end_program();
    freezer.frozen
}

/// The scalar that is the extent of each class with axes of tensors: of the first with an
/// index, but of one that is a number, which folds.
fn extents(relations: &Relations<'_>) -> BTreeMap<Node, ScalarId> {
    let mut extents: BTreeMap<Node, (ScalarId, bool)> = BTreeMap::new();
    let known = |scalar: ScalarId| relations.values.fusion.const_scalar(scalar).is_some();
    for (node, data) in relations.nodes.iter().enumerate() {
        let (NodeExtent::Scalar(scalar), Some(_)) = (data.extent, data.owner) else { continue };
        let entry = extents.entry(relations.class(node)).or_insert((scalar, data.concrete));
        if data.concrete && (!entry.1 || known(scalar)) {
            *entry = (scalar, true);
        }
    }
    map_of(extents.into_iter().map(|(class, (scalar, _))| (class, scalar)))
}

struct Freezer<'a> {
    relations: &'a Relations<'a>,
    extents: BTreeMap<Node, ScalarId>,
    /// The axis of each class.
    axes: BTreeMap<Node, AxisId>,
    ids: SecondaryMap<DraftId, Option<ValueId>>,
    frozen: FusionAxes,
}

impl Freezer<'_> {
    /// Inputs that are no copies, then results, each behind the copies that it reads.
    fn order(&self) -> Vec<DraftId> {
        let all = &self.relations.values.all;
        let tensors = self.relations.values.fusion.tensors.len();
        let is_input = |id: &DraftId| all[*id].op.is_none();
        let mut order: Vec<DraftId> =
            self.relations.parts().take_while(|id| id.index() < tensors).filter(is_input).collect();
        let mut done: BTreeSet<DraftId> = set_of(order.iter().copied());
        let mut results: Vec<(Option<OpId>, DraftId)> =
            self.relations.parts().filter(|id| id.index() < tensors).map(|id| (all[id].op, id)).collect();
        results.sort();
        for (_, result) in results {
            // Operands first; copies are as deep as programs are.
            let mut open = vec![result];
            while let Some(id) = open.pop() {
                let missing: Vec<DraftId> =
                    all[id].operands.iter().flatten().copied().filter(|operand| !done.contains(operand)).collect();
                if done.contains(&id) {
                    continue;
                }
                if missing.is_empty() {
                    done.insert(id);
                    order.push(id);
                } else {
                    open.push(id);
                    open.extend(missing.into_iter().rev());
                }
            }
        }
        order
    }

    fn value(&mut self, id: DraftId) {
        let data = &self.relations.values.all[id];
        let operands = (0..data.operands.len()).map(|position| self.operand((id, position))).collect();
        let axes = self.relations.axes(id).map(|node| self.axis_ref(node)).collect();
        let is_fork = id != Values::of(data.tensor);
        let value = FusionValue { tensor: data.tensor, is_fork, op: data.op, operands, axes };
        let frozen = self.frozen.values.push(value);
        self.ids.set(id, Some(frozen));
    }

    fn operand(&mut self, own: Use) -> Option<FusionOperand> {
        let source = self.relations.values.source(own)?;
        let value = self.ids[source]?;
        let nodes = self.relations.axes(source).enumerate();
        let seen = |(axis, node): (usize, Node)| self.relations.seen.get(&(own, axis)).copied().unwrap_or(node);
        let nodes: Vec<Node> = nodes.map(seen).collect();
        Some(FusionOperand { value, axes: nodes.into_iter().map(|node| self.axis_ref(node)).collect() })
    }

    fn outputs(&mut self) {
        let outputs = self.relations.values.fusion.outputs.iter();
        self.frozen.outputs = outputs.filter_map(|tensor| self.ids[Values::of(*tensor)]).collect();
    }

    fn axis_ref(&mut self, node: Node) -> AxisRef {
        let axis = self.axis(node);
        let data = &self.relations.nodes[node];
        match (data.concrete, data.looked_up) {
            (true, false) => AxisRef::Axis(axis),
            (true, true) => AxisRef::Indirect(axis),
            (false, _) => AxisRef::Broadcast(axis),
        }
    }

    /// The axis of a node's class, made on first use.
    fn axis(&mut self, node: Node) -> AxisId {
        let class = self.relations.class(node);
        if let Some(axis) = self.axes.get(&class) {
            return *axis;
        }
        let extent = match (self.extents.get(&class), self.relations.nodes[node].extent) {
            (Some(scalar), _) => self.scalar(*scalar),
            (None, NodeExtent::Const(n)) => Extent::Const(n),
            (None, NodeExtent::Scalar(scalar)) => self.scalar(scalar),
            (None, NodeExtent::Product(a, b)) => Extent::Product(self.axis(a), self.axis(b)),
        };
        let axis = self.frozen.graph.root(format!("d{}", self.frozen.graph.len()), extent);
        self.axes.insert(class, axis);
        axis
    }

    fn scalar(&self, scalar: ScalarId) -> Extent {
        match self.relations.values.fusion.const_scalar(scalar) {
            Some(Value::Int(value)) => Extent::Const(value),
            _ => Extent::Scalar(scalar),
        }
    }

    /// The transforms, each once. What follows from them is a short cut, where axes that are
    /// there lead to another.
    fn xforms(&mut self) {
        let (derived, made): (Vec<&Group>, Vec<&Group>) =
            self.relations.groups.iter().partition(|group| group.origin == Origin::Derived);
        let mut known = BTreeSet::new();
        for group in made {
            let [outer, inner, whole] = [group.outer, group.inner, group.whole].map(|node| self.axis(node));
            self.group(group.origin, [outer, inner, whole], &mut known);
        }
        let mut resizes = BTreeSet::new();
        for resized in &self.relations.resizes {
            let [input, output] = [resized.input, resized.output].map(|node| self.axis(node));
            if input != output && resizes.insert((input, output, &resized.key)) {
                let [left, right] = [&resized.left, &resized.right].map(|by| self.frozen.graph.offset(by.clone()));
                self.frozen.graph.push(Xform::Resize { input, output, left, right });
            }
        }
        for group in derived {
            let axes =
                [group.outer, group.inner, group.whole].map(|node| self.axes.get(&self.relations.class(node)).copied());
            if let [Some(outer), Some(inner), Some(whole)] = axes {
                self.group(group.origin, [outer, inner, whole], &mut known);
            }
        }
    }

    fn group(&mut self, origin: Origin, axes: [AxisId; 3], known: &mut BTreeSet<[AxisId; 3]>) {
        let [outer, inner, whole] = axes;
        if outer == whole || inner == whole || !known.insert(axes) {
            return;
        }
        self.frozen.graph.push(match origin {
            Origin::Split => Xform::Split { input: whole, outer, inner, exact: true },
            Origin::Merge | Origin::Derived => Xform::Merge { outer, inner, output: whole },
        });
    }
}
