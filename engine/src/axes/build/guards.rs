//! Whether indices are tested only where they have to be.
//!
//! An index that leaves an axis by way of a resize is tested there, before it leads on. An axis
//! that two values share may be reached by way of an axis that only one of them has: then the
//! other would not be read where the first ends. So of each value, and of all that is computed
//! for its elements, the axes that are tested on the way to an index must be axes of the values
//! on the way from the one to the other.

use super::{FusionAxes, FusionValue, ValueId};
use crate::axes::derive::{Derivation, Source};
use crate::axes::graph::{AxisGraph, AxisId, Xform};
use crate::fusion::{Fusion, OpKind};
use crate::util::map_of;
use std::collections::{BTreeMap, BTreeSet};

/// The axes that may be tested on the way to each axis.
type Guards = BTreeMap<AxisId, BTreeSet<AxisId>>;

/// A value, and one computed for it that would be left out where another one ends.
pub(super) fn misplaced(fusion: &Fusion, axes: &FusionAxes) -> Option<(ValueId, ValueId)> {
    let resizes = axes.graph.xforms().any(|(_, xform)| matches!(xform, Xform::Resize { .. }));
    let mut known: BTreeMap<Vec<AxisId>, Guards> = BTreeMap::new();
    let ids = axes.values.ids().filter(|_| resizes);
    ids.into_iter().find_map(|id| {
        let own: Vec<AxisId> = indexed(&axes.values[id]).collect();
        let guards = known.entry(own).or_insert_with_key(|own| guards(&axes.graph, own));
        Some((id, misplaced_behind(fusion, axes, guards, id)?))
    })
}

fn indexed(value: &FusionValue) -> impl Iterator<Item = AxisId> {
    value.axes.iter().filter_map(|axis| axis.indexed())
}

/// By all ways that are as good as the one that is taken, whatever the order of loops.
fn guards(graph: &AxisGraph, loops: &[AxisId]) -> Guards {
    let derivation = Derivation::new(graph, loops.iter().copied());
    let ways = |axis: AxisId| derivation.alternatives(graph, axis).into_iter().map(move |source| (axis, source));
    let ways: Vec<(AxisId, Source)> = graph.ids().filter(|axis| derivation.is_known(*axis)).flat_map(ways).collect();
    let mut guards = Guards::new();
    loop {
        let mut changed = false;
        for (axis, source) in &ways {
            let from = graph.way(*source).map(|way| way.from).unwrap_or_default();
            let mut all: BTreeSet<AxisId> =
                from.iter().filter_map(|from| guards.get(from)).flatten().copied().collect();
            if graph.may_leave(*source) {
                all.insert(*axis);
            }
            let own = guards.entry(*axis).or_default();
            let before = own.len();
            own.extend(all);
            changed |= own.len() > before;
        }
        if !changed {
            return guards;
        }
    }
}

/// The first value that is read for another one with a test that is not its own.
fn misplaced_behind(fusion: &Fusion, axes: &FusionAxes, guards: &Guards, id: ValueId) -> Option<ValueId> {
    // For each value the axes of all values on each way to it; operands come before results.
    let mut allowed: BTreeMap<ValueId, BTreeSet<AxisId>> = map_of([(id, indexed(&axes.values[id]).collect())]);
    while let Some((reader, on_the_way)) = allowed.pop_last() {
        let value = &axes.values[reader];
        let tested = indexed(value).flat_map(|axis| guards.get(&axis).into_iter().flatten());
        if tested.into_iter().any(|axis| !on_the_way.contains(axis)) {
            return Some(reader);
        }
        // What is reduced is read in loops of its own.
        let is_reduction = |op| matches!(fusion.ops[op].kind, OpKind::Reduce { .. });
        if value.op.is_some_and(is_reduction) {
            continue;
        }
        for operand in value.operands.iter().flatten() {
            let seen = operand.axes.iter().filter_map(|axis| axis.indexed());
            let own = indexed(&axes.values[operand.value]).chain(seen);
            let all: BTreeSet<AxisId> = on_the_way.iter().copied().chain(own).collect();
            match allowed.get_mut(&operand.value) {
                Some(known) => known.retain(|axis| all.contains(axis)),
                None => drop(allowed.insert(operand.value, all)),
            }
        }
    }
    None
}
