//! The order in memory of an output that nothing else decides: like that of the
//! input from which most of its axes come, so that kernels read and write in
//! one order.

use super::aliases::Aliases;
use super::axes::{Axes, PlacedKind};
use crate::fusion::{Fusion, OpKind, TensorDef, TensorId};
use std::collections::BTreeSet;

/// The axes of an output, outermost first.
///
/// The reference is the input on which the output depends that has the most
/// axes that are no broadcasts. Its axes are walked from the innermost one of
/// memory outwards, up to the first that the output has not; those that the
/// output has become its innermost ones in that order. Reduced axes are passed over.
pub(super) fn inferred(fusion: &Fusion, axes: &Axes, aliases: &Aliases, output: TensorId) -> Vec<usize> {
    let rank = axes.kinds(output).len();
    let logical: Vec<usize> = (0..rank).collect();
    let classes: Vec<usize> = logical.iter().map(|&axis| axes.class(output, axis)).collect();
    let Some(reference) = reference(fusion, axes, aliases, output).filter(|_| !repeats(&classes)) else {
        return logical;
    };
    let reduced = reduced(fusion, axes, output);
    let mut inner = Vec::new();
    for &axis in aliases.laid(reference).order.iter().rev() {
        let class = axes.class(reference, axis);
        match classes.iter().position(|&other| other == class) {
            Some(axis) => inner.push(axis),
            None if axes.kinds(reference)[axis] != PlacedKind::Iteration || reduced.contains(&class) => {}
            None => break,
        }
    }
    let mut order: Vec<usize> = logical.into_iter().filter(|axis| !inner.contains(axis)).collect();
    order.extend(inner.into_iter().rev());
    order
}

/// The input that gives the order; none if two of as many axes disagree.
fn reference(fusion: &Fusion, axes: &Axes, aliases: &Aliases, output: TensorId) -> Option<TensorId> {
    let seen = dependencies(fusion, output);
    let mut most = 0;
    let mut best: Option<(TensorId, Vec<usize>)> = None;
    for (_, input) in fusion.input_tensors().filter(|(_, input)| seen.contains(input)) {
        let all: Vec<usize> = (0..axes.kinds(input).len()).map(|axis| axes.class(input, axis)).collect();
        if repeats(&all) {
            continue;
        }
        let iterates = |axis: &&usize| axes.kinds(input)[**axis] == PlacedKind::Iteration;
        let classes: Vec<usize> =
            aliases.laid(input).order.iter().filter(iterates).map(|&axis| axes.class(input, axis)).collect();
        if classes.len() > most {
            most = classes.len();
            best = Some((input, classes));
        } else if classes.len() == most && best.as_ref().is_some_and(|(_, other)| *other != classes) {
            best = None;
        }
    }
    best.map(|(input, _)| input)
}

fn dependencies(fusion: &Fusion, output: TensorId) -> BTreeSet<TensorId> {
    let mut seen = BTreeSet::new();
    let mut open = vec![output];
    while let Some(tensor) = open.pop() {
        if seen.insert(tensor)
            && let TensorDef::Op(op) = fusion.tensors[tensor].def
        {
            open.extend(fusion.tensor_inputs(op));
        }
    }
    seen
}

/// The axes that the operation of a tensor sums over.
fn reduced(fusion: &Fusion, axes: &Axes, tensor: TensorId) -> BTreeSet<usize> {
    let Some(op) = fusion.definition(tensor).map(|op| &fusion.ops[op]) else { return BTreeSet::new() };
    let (OpKind::Reduce { axes: reduced, .. }, Some(operand)) =
        (&op.kind, fusion.definition(tensor).and_then(|op| fusion.tensor_inputs(op).next()))
    else {
        return BTreeSet::new();
    };
    reduced.iter().map(|&axis| axes.class(operand, axis as usize)).collect()
}

fn repeats(classes: &[usize]) -> bool {
    let distinct: BTreeSet<usize> = classes.iter().copied().collect();
    distinct.len() != classes.len()
}
