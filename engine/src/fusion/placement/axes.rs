//! What every axis of a fusion is for known sizes, and which axes are one axis:
//! the axes that pass from operands to results unchanged.

use super::place;
use crate::fusion::ops::{AxisMap, Call};
use crate::fusion::{AxisKind, Fusion, InputLayout, Op, OpKind, Operand, ScalarId, TensorDef, TensorId};
use crate::util::{DisjointSets, PrimaryMap};

/// The kind of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacedKind {
    /// Every position has elements of its own.
    Iteration,
    /// Size 1, and broadcasts.
    Broadcast,
    /// All positions are the same elements: a broadcast axis that is expanded.
    Expanded,
}

/// Kinds and identities of all axes.
pub(super) struct Axes {
    kinds: Vec<Vec<PlacedKind>>,
    /// The first axis among all of each tensor.
    starts: Vec<usize>,
    /// The axes that are one axis.
    classes: DisjointSets,
}

impl Axes {
    /// Follows the axes through all operations.
    pub(super) fn of(fusion: &Fusion, sizes: &PrimaryMap<TensorId, Vec<i64>>) -> Self {
        let mut starts = Vec::with_capacity(fusion.tensors.len());
        let mut count = 0;
        for sizes in sizes.values() {
            starts.push(count);
            count += sizes.len();
        }
        let mut axes =
            Self { kinds: Vec::with_capacity(fusion.tensors.len()), starts, classes: DisjointSets::new(count) };
        for (id, tensor) in fusion.tensors.iter() {
            match tensor.def {
                TensorDef::Input(_) => {
                    let kind = |axis: usize| input_kind(tensor.axes[axis].kind, tensor.layout.as_ref(), axis);
                    axes.kinds.push((0..tensor.axes.len()).map(kind).collect());
                }
                TensorDef::Op(op) => axes.result(fusion, &fusion.ops[op], id, sizes),
            }
        }
        axes
    }

    /// The kinds of the axes of a tensor.
    pub(super) fn kinds(&self, tensor: TensorId) -> &[PlacedKind] {
        &self.kinds[place(tensor)]
    }

    /// A number that all axes have that are the same as this one.
    pub(super) fn class(&self, tensor: TensorId, axis: usize) -> usize {
        self.classes.root(self.starts[place(tensor)] + axis)
    }

    fn result(&mut self, fusion: &Fusion, op: &Op, result: TensorId, sizes: &PrimaryMap<TensorId, Vec<i64>>) {
        let own = &sizes[result];
        let expands = matches!(&op.kind, OpKind::Call(call) if call.movement().axes == AxisMap::Repeated);
        let mut kinds: Vec<Option<PlacedKind>> = vec![None; own.len()];
        let mut passed = Vec::new();
        for operand in op.inputs.iter().filter_map(tensor_of) {
            if sizes[operand].contains(&0) && !own.contains(&0) {
                // What is made of nothing is filled.
                continue;
            }
            for (axis, from) in passing(fusion, op, operand, &sizes[operand], own).into_iter().enumerate() {
                let Some(from) = from else { continue };
                let kind = match self.kinds[place(operand)][from] {
                    PlacedKind::Broadcast if expands && sizes[operand][from] != own[axis] => PlacedKind::Expanded,
                    kind => kind,
                };
                kinds[axis] = Some(kinds[axis].map_or(kind, |other| joined(kind, other)));
                passed.push((axis, operand, from));
            }
        }
        passed.extend(put_back(fusion, op));
        let kinds: Vec<PlacedKind> = kinds
            .into_iter()
            .zip(own)
            .map(|(kind, &size)| kind.unwrap_or(if size == 1 { PlacedKind::Broadcast } else { PlacedKind::Iteration }))
            .collect();
        for (axis, operand, from) in passed {
            let iterates = |kind| kind == PlacedKind::Iteration;
            if iterates(kinds[axis]) == iterates(self.kinds[place(operand)][from]) {
                self.classes.union(self.starts[place(result)] + axis, self.starts[place(operand)] + from);
            }
        }
        self.kinds.push(kinds);
    }
}

/// Axes that a `broadcast` of a `squeeze` puts back where they were: nvFuser cancels the
/// two, so the axes are those that were dropped.
fn put_back(fusion: &Fusion, op: &Op) -> Vec<(usize, TensorId, usize)> {
    let (OpKind::Broadcast { flags }, Some(operand)) = (&op.kind, op.inputs.first().and_then(tensor_of)) else {
        return Vec::new();
    };
    let Some(before) = fusion.definition(operand).map(|before| &fusion.ops[before]) else { return Vec::new() };
    match (&before.kind, before.inputs.first().and_then(tensor_of)) {
        (OpKind::Squeeze { flags: dropped }, Some(whole)) if dropped == flags => {
            (0..flags.len()).filter(|axis| flags[*axis]).map(|axis| (axis, whole, axis)).collect()
        }
        _ => Vec::new(),
    }
}

fn tensor_of(operand: &Operand) -> Option<TensorId> {
    match operand {
        Operand::Tensor(tensor) => Some(*tensor),
        Operand::Scalar(_) => None,
    }
}

fn input_kind(kind: AxisKind, layout: Option<&InputLayout>, axis: usize) -> PlacedKind {
    let contiguity = |layout: &InputLayout| {
        let place = layout.order.iter().position(|&other| other as usize == axis)?;
        layout.contiguity.get(place).copied()
    };
    match (kind, layout.and_then(contiguity)) {
        (AxisKind::Broadcast, _) => PlacedKind::Broadcast,
        (_, Some(None)) => PlacedKind::Expanded,
        _ => PlacedKind::Iteration,
    }
}

/// The kind of an axis at which operands have these.
fn joined(a: PlacedKind, b: PlacedKind) -> PlacedKind {
    match (a, b) {
        (PlacedKind::Iteration, _) | (_, PlacedKind::Iteration) => PlacedKind::Iteration,
        (PlacedKind::Expanded, _) | (_, PlacedKind::Expanded) => PlacedKind::Expanded,
        _ => PlacedKind::Broadcast,
    }
}

/// For each axis of a result of `to` the axis of an operand of `from` that it
/// is: the same elements in the same order, or a broadcast of them.
pub(super) fn passing(fusion: &Fusion, op: &Op, operand: TensorId, from: &[i64], to: &[i64]) -> Vec<Option<usize>> {
    match &op.kind {
        OpKind::Broadcast { flags } => {
            let mut old = 0..from.len();
            flags.iter().map(|&new| if new { None } else { old.next() }).collect()
        }
        OpKind::Squeeze { flags } => (0..from.len()).filter(|&axis| !flags[axis]).map(Some).collect(),
        OpKind::Permute { perm } => perm.iter().map(|&axis| Some(axis as usize)).collect(),
        OpKind::Reduce { axes, .. } => {
            (0..from.len()).filter(|axis| !axes.contains(&(*axis as u32))).map(Some).collect()
        }
        OpKind::Call(call) => passing_through((fusion, op, call), operand, from, to),
        OpKind::Full | OpKind::Index { .. } => vec![None; to.len()],
        _ => (0..to.len()).map(Some).collect(),
    }
}

/// The scalar at a position of an operand parameter.
fn scalar_at(op: &Op, call: &Call, param: &str, position: usize) -> Option<ScalarId> {
    match op.inputs.get(call.operands(param).start + position) {
        Some(Operand::Scalar(scalar)) => Some(*scalar),
        _ => None,
    }
}

type Use<'a> = (&'a Fusion, &'a Op, &'a Call);

/// Whether an axis is from its start to its end. Bounds that only turn out to be
/// those of the axis when sizes are known are none.
fn is_whole((fusion, op, call): Use<'_>, operand: TensorId, axis: usize, [starts, ends]: [&str; 2]) -> bool {
    let is_zero = |scalar| fusion.const_scalar(scalar).is_some_and(|value| value.as_i64() == 0);
    let extent = fusion.tensors[operand].axes[axis].extent;
    scalar_at(op, call, ends, axis) == Some(extent) && scalar_at(op, call, starts, axis).is_some_and(is_zero)
}

/// Whether nothing is added to an axis. Widths are pairs, the innermost axis first.
fn is_as_wide((fusion, op, call): Use<'_>, operand: TensorId, axis: usize, widths: &str) -> bool {
    let is_zero = |scalar| fusion.const_scalar(scalar).is_some_and(|value| value.as_i64() == 0);
    let pair = 2 * (fusion.tensors[operand].axes.len() - 1 - axis);
    let given = call.operands(widths).len();
    let mut widths_of_axis = [pair, pair + 1].into_iter().filter(|&width| width < given);
    widths_of_axis.all(|width| scalar_at(op, call, widths, width).is_some_and(is_zero))
}

fn passing_through(usage: Use<'_>, operand: TensorId, from: &[i64], to: &[i64]) -> Vec<Option<usize>> {
    let call = usage.2;
    let those = |passes: &dyn Fn(usize) -> bool| -> Vec<Option<usize>> {
        (0..to.len()).map(|axis| passes(axis).then_some(axis)).collect()
    };
    match call.movement().axes {
        AxisMap::Between(bounds) => those(&|axis| is_whole(usage, operand, axis, bounds)),
        AxisMap::Widened(widths) => those(&|axis| is_as_wide(usage, operand, axis, widths)),
        AxisMap::Except(dim) if from.len() == to.len() => those(&|axis| axis != call.axis(dim)),
        AxisMap::Dropped(dim) if from.len() == to.len() + 1 => {
            (0..from.len()).filter(|&axis| axis != call.axis(dim)).map(Some).collect()
        }
        AxisMap::Same | AxisMap::Repeated if from.len() == to.len() => those(&|_| true),
        AxisMap::Regrouped => {
            let mut passing = vec![None; to.len()];
            for group in groups(from, to) {
                if let ([old], [new]) = (&group.from[..], &group.to[..]) {
                    passing[*new] = Some(*old);
                }
            }
            passing
        }
        _ => vec![None; to.len()],
    }
}

/// Axes of an operand and those of its new shape that hold the same elements.
/// Axes of size 1 are in no group.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) from: Vec<usize>,
    pub(super) to: Vec<usize>,
}

/// The smallest groups of axes of two shapes of as many elements, not none.
pub(super) fn groups(from: &[i64], to: &[i64]) -> Vec<Group> {
    let thick = |sizes: &[i64]| (0..sizes.len()).filter(|&axis| sizes[axis] != 1).collect::<Vec<_>>();
    let (old, new) = (thick(from), thick(to));
    let (mut old, mut new) = (old.into_iter(), new.into_iter());
    let mut groups = Vec::new();
    while let (Some(first_old), Some(first_new)) = (old.next(), new.next()) {
        let mut group = Group { from: vec![first_old], to: vec![first_new] };
        let (mut a, mut b) = (from[first_old] as i128, to[first_new] as i128);
        while a != b {
            let next = if a < b { old.next() } else { new.next() };
            let Some(axis) = next else { return Vec::new() };
            if a < b {
                a *= from[axis] as i128;
                group.from.push(axis);
            } else {
                b *= to[axis] as i128;
                group.to.push(axis);
            }
        }
        groups.push(group);
    }
    groups
}
