//! The axis graph of a program: which axes of which tensors are one loop, and how reshapes,
//! slices, pads and joins relate the others.
//!
//! Input: a concretised and decomposed fusion. Output: [`FusionAxes`], the axes of every value
//! over one [`AxisGraph`]. The parts:
//!
//! 1. `values`: the tensors, some of them several times (*forks*);
//! 2. `operations`, `regroup`, `relations`: what each operation says of axes;
//! 3. `closure`: axes that are the same because transforms of the same axes are;
//! 4. `view`, and [`check`]: whether one loop can serve each class;
//! 5. `freeze`: classes become axes, relations transforms;
//! 6. `guards`: whether the tests of indices are those of the values that are read.
//!
//! A class is well formed when its axes with indices have one extent by operations (so each
//! broadcast meets one dimension), no tensor has two axes in it, and no tensor's axes give it
//! two indices. Where uses of a tensor need different classes (`x + permute(x)`, `cat(x, x)`, two
//! shifted slices), a use is given a copy of the tensor, with copies of what it is computed
//! from: loads, moves, operations on elements, never a reduction. A lookup has a copy of its table
//! whenever others read it too: the axis that is looked up has no index but the one that data say.

mod closure;
mod freeze;
mod guards;
mod operations;
mod pairs;
mod regroup;
mod relations;
mod values;
mod view;

pub use pairs::axis_pairs;

use super::domain::AxisRef;
use super::graph::AxisGraph;
use super::sizes::Sizes;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{AxisKind, Fusion, OpId, Operand, TensorId};
use crate::util::{PrimaryMap, entity_id};
use relations::{Node, Relations};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use values::{DraftId, Use, Values};

entity_id!(
    /// A value: a tensor, or a copy of one.
    pub struct ValueId, "v"
);

/// The axes of a fusion.
#[derive(Clone, Debug)]
pub struct FusionAxes {
    /// The classes of axes, and the transforms of the program.
    pub graph: AxisGraph,
    /// The values that results depend on: inputs that are no copies in their order, then results
    /// in order of operations, each behind the copies that it reads.
    pub values: PrimaryMap<ValueId, FusionValue>,
    /// The outputs of the fusion.
    pub outputs: Vec<ValueId>,
}

/// A value of a fusion.
#[derive(Clone, Debug)]
pub struct FusionValue {
    /// The tensor that it is; several values may be one.
    pub tensor: TensorId,
    /// Whether it is the copy of its tensor that one use has for itself.
    pub is_fork: bool,
    /// The operation; none for inputs.
    pub op: Option<OpId>,
    /// What stands in place of each operand; none for scalars.
    pub operands: Vec<Option<FusionOperand>>,
    /// Its axes, outer to inner.
    pub axes: Vec<AxisRef>,
}

/// A value as an operation reads it.
#[derive(Clone, Debug)]
pub struct FusionOperand {
    /// The value.
    pub value: ValueId,
    /// Its axes as the operation sees them: those of the value, but where a broadcast axis is
    /// padded or joined to others, an axis of one index.
    pub axes: Vec<AxisRef>,
}

/// What may be copied where uses of a tensor need different axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forks {
    /// Inputs alone: each use of each of them, if one has to be.
    Inputs,
    /// Uses that need it, with what they read.
    Uses,
}

/// Forks of a fusion, at most.
pub const MAX_FORKS: usize = 8;
/// Operations that forks copy, at most.
const MAX_COPIES: usize = 64;

/// The axes of a fusion; refuses one that needs several kernels.
pub fn analyze(fusion: &Fusion, forks: Forks) -> Result<FusionAxes> {
    let sizes = sizes(fusion);
    let values = Values::new(fusion);
    // If copies do not help, the first reason is the one that the user can act on.
    let first = match related(&values, &sizes, None).and_then(|relations| frozen(&relations)) {
        Ok(axes) => return Ok(axes),
        Err(first) => first,
    };
    if !fusion.ops.values().any(|op| operations::is_transform(&op.kind)) {
        let by_use = values.clone().with_inputs_by_use();
        if let Ok(relations) = related(&by_use, &sizes, None) {
            return frozen(&relations);
        }
    }
    let forked = match forks {
        Forks::Inputs => None,
        Forks::Uses => with_forks(values.clone(), &sizes).or_else(|| by_move(values, &sizes)),
    };
    match &forked {
        Some(values) => frozen(&related(values, &sizes, None)?),
        None => Err(first),
    }
}

/// The sizes of a fusion, with what operations ask of them.
fn sizes(fusion: &Fusion) -> Sizes {
    let mut sizes = Sizes::new(fusion);
    for op in fusion.ops.values().filter(|op| !operations::is_transform(&op.kind)) {
        let to = &fusion.tensors[op.output()].axes;
        for (position, input) in op.inputs.iter().enumerate() {
            let Operand::Tensor(tensor) = *input else { continue };
            let from = &fusion.tensors[tensor].axes;
            for (a, b) in axis_pairs(&op.kind, position, from.len(), to.len()) {
                if [from[a].kind, to[b].kind] == [AxisKind::Iteration; 2] {
                    sizes.equate(from[a].extent, to[b].extent);
                }
            }
        }
    }
    sizes
}

/// The axis graph of relations, if its indices are tested only where they have to be.
fn frozen(relations: &Relations<'_>) -> Result<FusionAxes> {
    let fusion = relations.values.fusion;
    let axes = freeze::freeze(relations);
    match guards::misplaced(fusion, &axes) {
        None => Ok(axes),
        Some((id, read)) => {
            let [id, read] = [id, read].map(|id| &fusion.tensors[axes.values[id].tensor].name);
            let message = format!("the axes of %{read} are those of %{id} by way of an axis that ends elsewhere");
            Err(refused(message, "parts of tensors that are joined anew need a second kernel"))
        }
    }
}

/// The relations of values, up to some operands of an operation, if each class is well formed.
fn related<'a>(values: &'a Values<'a>, sizes: &'a Sizes, end: Option<(OpId, usize)>) -> Result<Relations<'a>> {
    let mut relations = Relations::new(values, sizes, end);
    relations.close();
    check(&relations)?;
    Ok(relations)
}

/// Gives uses copies of their own until all classes are well formed, if that is possible.
fn with_forks<'a>(mut values: Values<'a>, sizes: &Sizes) -> Option<Values<'a>> {
    let operands = |op: OpId| (1..=values.fusion.ops[op].inputs.len().max(1)).map(move |count| (op, count));
    let ends: Vec<(OpId, usize)> = values.fusion.ops.ids().flat_map(operands).collect();
    // So many ends are well formed: what is more is never better.
    let (mut good, mut copies) = (0, 0);
    for _ in 0..MAX_FORKS {
        let mut bad = ends.len();
        if related(&values, sizes, None).is_ok() {
            return Some(values);
        }
        while good + 1 < bad {
            let middle = good + (bad - good) / 2;
            match related(&values, sizes, Some(ends[middle - 1])) {
                Ok(_) => good = middle,
                Err(_) => bad = middle,
            }
        }
        let end = ends[bad - 1];
        let (forked, more) = candidates(&values, end.0, MAX_COPIES - copies).into_iter().find_map(|own| {
            let mut forked = values.clone();
            let more = forked.fork(own);
            related(&forked, sizes, Some(end)).is_ok().then_some((forked, more))
        })?;
        (values, copies, good) = (forked, copies + more, bad);
    }
    related(&values, sizes, None).is_ok().then_some(values)
}

/// Gives each operand of an operation that moves indices inputs of its own, where that is enough: a window of many
/// positions reads one tensor at each of them, and what is joined may be computed of one.
fn by_move<'a>(values: Values<'a>, sizes: &Sizes) -> Option<Values<'a>> {
    let by_move = values.with_operands_by_move(MAX_COPIES)?;
    related(&by_move, sizes, None).is_ok().then_some(by_move)
}

/// The uses behind an operation for which a copy might help, the cheapest first.
fn candidates(values: &Values<'_>, op: OpId, most: usize) -> Vec<Use> {
    let counts = values.use_counts();
    let results = values.all.iter().filter(|(_, value)| value.op == Some(op)).map(|(id, _)| id);
    let uses: Vec<Use> = results.flat_map(|result| values.uses_behind(result)).collect();
    let cost = |own: Use| {
        let cone = values.cone(values.source(own)?)?;
        // What nobody else reads is not shared by a copy less.
        let operations = values.operations(&cone);
        (cone.iter().any(|value| counts[*value] > 1) && operations <= most).then_some(operations)
    };
    let mut found: Vec<(usize, Reverse<Use>)> =
        uses.into_iter().filter_map(|own| Some((cost(own)?, Reverse(own)))).collect();
    found.sort();
    found.dedup();
    found.into_iter().map(|(_, own)| own.0).collect()
}

fn refused(message: String, note: &str) -> Box<Diagnostic> {
    Diagnostic::unsupported(code::NEEDS_SEGMENTS, message).note(note)
}

/// Whether each class is well formed.
fn check(relations: &Relations<'_>) -> Result<()> {
    let fusion = relations.values.fusion;
    let name = |value| &fusion.tensors[relations.values.all[value].tensor].name;
    if let Some((value, axis)) = two_dimensions(relations) {
        let message = format!("axis {axis} of %{} meets a broadcast that also meets another dimension", name(value));
        return Err(refused(message, "one kernel resolves each broadcast to one dimension; split the fusion"));
    }
    for value in relations.parts() {
        let classes: Vec<Node> = relations.axes(value).map(|node| relations.class(node)).collect();
        for (axis, class) in classes.iter().enumerate() {
            if let Some(other) = classes[..axis].iter().position(|other| other == class) {
                let message = format!("axes {other} and {axis} of %{} are one dimension of the fusion", name(value));
                return Err(refused(message, "a tensor that meets its own transpose needs a second kernel"));
            }
        }
    }
    if let Some((value, _)) = relations.unclear {
        let message = format!("the axes of %{} are moved by sums that are too long to compare", name(value));
        return Err(refused(message, "join fewer tensors at once"));
    }
    match relations.conflict() {
        None => Ok(()),
        Some(conflict) => {
            let owner = relations.nodes.iter().enumerate().find_map(|(node, data)| {
                (relations.class(node) == relations.class(conflict.node)).then_some(data.owner).flatten()
            });
            let axis = owner.map_or("an axis".to_string(), |(value, axis)| format!("axis {axis} of %{}", name(value)));
            let message = format!("{axis} has two positions for one position in %{}", name(conflict.value));
            Err(refused(message, "a tensor that is needed at two places at a time needs a second kernel"))
        }
    }
}

/// An axis with an index whose class has another one, which no operation says to be as long.
fn two_dimensions(relations: &Relations<'_>) -> Option<(DraftId, usize)> {
    let mut exact: BTreeMap<Node, Node> = BTreeMap::new();
    // What lies between axes of tensors is as long as some of them.
    let owned = relations.nodes.iter().enumerate().filter(|(_, data)| data.concrete);
    owned.filter_map(|(node, data)| Some((node, data.owner?))).find_map(|(node, owner)| {
        let own = relations.exact.root(node);
        let known = *exact.entry(relations.class(node)).or_insert(own);
        (known != own).then_some(owner)
    })
}
