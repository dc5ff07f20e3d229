//! Tensors that are views of others: results of operations that only move axes,
//! as far as the elements may stay where they are. Whether they may is decided
//! by what inputs declare of their layouts, not by the strides at hand.

use super::axes::{Axes, PlacedKind, groups, passing};
use super::place;
use crate::fusion::ops::AxisMap;
use crate::fusion::{Fusion, InputLayout, OpKind, TensorDef, TensorId};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{PrimaryMap, order_by_key};

/// How a tensor lies in memory, as far as it is known without sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Laid {
    /// Its axes, outermost first.
    pub(super) order: Vec<usize>,
    /// For each of them in this order, whether it is dense with the next one
    /// inside of it that iterates; `None` for those that do not iterate.
    contiguity: Vec<Option<bool>>,
}

struct Alias {
    source: TensorId,
    laid: Laid,
}

/// What is a view of what.
pub(super) struct Aliases {
    found: Vec<Option<Alias>>,
    /// Layouts of the tensors that are no aliases.
    own: Vec<Laid>,
    /// Orders in memory that are asked for.
    asked: Vec<Option<Vec<usize>>>,
    /// Whether the tensor is a view of the storage of its source.
    views: Vec<bool>,
}

/// Whether an alias by the operation is its operand as it is.
pub(super) fn copies(kind: &OpKind) -> bool {
    match kind {
        OpKind::Set => true,
        OpKind::Call(call) => call.movement().view && call.movement().axes == AxisMap::Same,
        _ => false,
    }
}

impl Aliases {
    /// Follows the layouts through all operations.
    pub(super) fn of(fusion: &Fusion, sizes: &PrimaryMap<TensorId, Vec<i64>>, axes: &Axes, args: &[ArgMeta]) -> Self {
        let mut aliases = Self { found: Vec::new(), own: Vec::new(), asked: Vec::new(), views: Vec::new() };
        for (id, tensor) in fusion.tensors.iter() {
            let asked = asked(fusion, id);
            let own = match tensor.def {
                TensorDef::Input(position) => match (&tensor.layout, args.get(position as usize)) {
                    (Some(layout), _) => declared(layout),
                    (None, Some(ArgMeta::Tensor(meta))) => observed(meta, axes.kinds(id)),
                    _ => dense((0..tensor.axes.len()).collect(), axes.kinds(id)),
                },
                TensorDef::Op(_) => {
                    let logical = (0..tensor.axes.len()).collect();
                    dense(asked.clone().unwrap_or(logical), axes.kinds(id))
                }
            };
            let alias = aliases.alias(fusion, sizes, axes, id).filter(|alias| match &asked {
                Some(_) => alias.laid.complies(&own),
                None => true,
            });
            aliases.found.push(alias);
            aliases.own.push(own);
            aliases.asked.push(asked);
        }
        aliases.views = aliases.views_of(fusion);
        aliases
    }

    /// The layout of a tensor.
    pub(super) fn laid(&self, tensor: TensorId) -> &Laid {
        self.found[place(tensor)].as_ref().map_or(&self.own[place(tensor)], |alias| &alias.laid)
    }

    /// What an alias is a view of.
    pub(super) fn source(&self, tensor: TensorId) -> Option<TensorId> {
        self.found[place(tensor)].as_ref().map(|alias| alias.source)
    }

    /// Whether a tensor is a view of its source, not written anew.
    pub(super) fn is_view(&self, tensor: TensorId) -> bool {
        self.views[place(tensor)]
    }

    /// The order in which a tensor is written, if it is not free: one that is
    /// asked for, or that in which it could have been an alias.
    pub(super) fn order(&self, tensor: TensorId) -> Option<&[usize]> {
        let alias = self.found[place(tensor)].as_ref().map(|alias| &alias.laid.order[..]);
        self.asked[place(tensor)].as_deref().or(alias)
    }

    /// Aliases of inputs are views. Those of written tensors are views unless
    /// they are on the way to something that is written, where a kernel makes them.
    fn views_of(&self, fusion: &Fusion) -> Vec<bool> {
        let updated = |tensor| fusion.updates.iter().any(|update| update.tensor == tensor);
        let is_alias = |tensor: TensorId| self.found[place(tensor)].is_some() && !updated(tensor);
        let mut needed = vec![false; fusion.tensors.len()];
        for (id, op) in fusion.ops.iter().rev() {
            if op.outputs.iter().any(|&output| !is_alias(output) || needed[place(output)]) {
                fusion.tensor_inputs(id).for_each(|operand| needed[place(operand)] = true);
            }
        }
        let of_input = |mut tensor: TensorId| {
            while let Some(alias) = &self.found[place(tensor)] {
                tensor = alias.source;
            }
            fusion.definition(tensor).is_none()
        };
        fusion.tensors.ids().map(|id| is_alias(id) && (!needed[place(id)] || of_input(id))).collect()
    }

    fn alias(
        &self,
        fusion: &Fusion,
        sizes: &PrimaryMap<TensorId, Vec<i64>>,
        axes: &Axes,
        tensor: TensorId,
    ) -> Option<Alias> {
        let id = fusion.definition(tensor)?;
        let op = &fusion.ops[id];
        let source = fusion.tensor_inputs(id).next()?;
        let (from, to) = (&sizes[source], &sizes[tensor]);
        let laid = self.laid(source);
        let passing = passing(fusion, op, source, from, to);
        let kinds = axes.kinds(source);
        let laid = match &op.kind {
            OpKind::Set => laid.clone(),
            OpKind::Permute { .. } | OpKind::Squeeze { .. } => laid.moved(&passing),
            OpKind::Broadcast { .. } => laid.broadcast(&passing),
            OpKind::Call(call) if call.movement().view => match call.movement().axes {
                AxisMap::Same | AxisMap::Repeated => laid.clone(),
                // Along an axis of which all elements are the same.
                AxisMap::Dropped(param) if kinds.get(call.axis(param)) == Some(&PlacedKind::Expanded) => {
                    laid.moved(&passing)
                }
                AxisMap::Between(_) => laid.sliced(&passing, kinds, axes.kinds(tensor))?,
                AxisMap::Regrouped if !from.contains(&0) => laid.reshaped(from, to, kinds)?,
                _ => return None,
            },
            _ => return None,
        };
        Some(Alias { source, laid })
    }
}

/// The order in memory that is asked for by the operation of a tensor.
fn asked(fusion: &Fusion, tensor: TensorId) -> Option<Vec<usize>> {
    let OpKind::Call(call) = &fusion.ops[fusion.definition(tensor)?].kind else { return None };
    let ranks = call.ints(call.movement().order?);
    Some(order_by_key(ranks.len(), |axis| std::cmp::Reverse(ranks[axis])))
}

fn declared(layout: &InputLayout) -> Laid {
    Laid { order: layout.order.iter().map(|&axis| axis as usize).collect(), contiguity: layout.contiguity.clone() }
}

fn dense(order: Vec<usize>, kinds: &[PlacedKind]) -> Laid {
    let contiguity = order.iter().map(|&axis| (kinds[axis] == PlacedKind::Iteration).then_some(true)).collect();
    Laid { order, contiguity }
}

/// The layout of an argument of which nothing is declared.
fn observed(meta: &TensorMeta, kinds: &[PlacedKind]) -> Laid {
    // Axes of size 1 stay before the axis that follows them.
    let order = order_by_key(meta.rank(), |axis| {
        let next = (axis..meta.rank()).find(|&axis| meta.sizes[axis] != 1);
        std::cmp::Reverse(next.map_or(0, |axis| meta.strides[axis]))
    });
    let mut contiguity = vec![None; order.len()];
    let mut step = 1i64;
    for (place, &axis) in order.iter().enumerate().rev() {
        if kinds[axis] == PlacedKind::Iteration {
            contiguity[place] = Some(meta.strides[axis] == step);
            step = meta.strides[axis].saturating_mul(meta.sizes[axis]);
        }
    }
    Laid { order, contiguity }
}

impl Laid {
    /// Whether a tensor so laid may stand where another layout is asked for.
    fn complies(&self, asked: &Self) -> bool {
        self.order == asked.order
            && self
                .contiguity
                .iter()
                .zip(&asked.contiguity)
                .all(|(own, asked)| *asked != Some(true) || *own != Some(false))
    }

    /// Result axis `i` is axis `from[i]`; the others are gone.
    fn moved(&self, from: &[Option<usize>]) -> Self {
        let mut moved = Self { order: Vec::with_capacity(from.len()), contiguity: Vec::with_capacity(from.len()) };
        for (&axis, &contiguity) in self.order.iter().zip(&self.contiguity) {
            if let Some(axis) = from.iter().position(|&from| from == Some(axis)) {
                moved.order.push(axis);
                moved.contiguity.push(contiguity);
            }
        }
        moved
    }

    /// New axes take their logical places among those of memory.
    fn broadcast(&self, from: &[Option<usize>]) -> Self {
        let mut old = self.moved(from);
        for (axis, _) in from.iter().enumerate().filter(|(_, from)| from.is_none()) {
            let place = axis.min(old.order.len());
            old.order.insert(place, axis);
            old.contiguity.insert(place, None);
        }
        old
    }

    /// Where an axis is cut, the next one outside of it has holes.
    fn sliced(&self, passing: &[Option<usize>], old: &[PlacedKind], new: &[PlacedKind]) -> Option<Self> {
        let mut laid = self.clone();
        let mut holes = false;
        for (place, &axis) in self.order.iter().enumerate().rev() {
            if old[axis] == PlacedKind::Expanded && new[axis] == PlacedKind::Iteration {
                return None;
            }
            if new[axis] != PlacedKind::Iteration {
                laid.contiguity[place] = None;
            } else if std::mem::take(&mut holes) {
                laid.contiguity[place] = Some(false);
            }
            holes |= passing[axis].is_none();
        }
        Some(laid)
    }

    /// Merged axes must be neighbours in memory without holes between them;
    /// of the parts of a split axis all but the innermost are without holes.
    fn reshaped(&self, from: &[i64], to: &[i64], kinds: &[PlacedKind]) -> Option<Self> {
        let place = |axis: usize| self.order.iter().position(|&other| other == axis);
        let thick: Vec<usize> = self.order.iter().copied().filter(|&axis| from[axis] != 1).collect();
        let mut groups = groups(from, to);
        for group in &groups {
            let moves = (group.from.len(), group.to.len()) != (1, 1);
            if moves && group.from.iter().any(|&axis| kinds[axis] == PlacedKind::Expanded) {
                return None;
            }
            for pair in group.from.windows(2) {
                let outer = thick.iter().position(|&axis| axis == pair[0])?;
                if thick.get(outer + 1) != Some(&pair[1]) || self.contiguity[place(pair[0])?] != Some(true) {
                    return None;
                }
            }
        }
        groups.sort_by_key(|group| group.from.first().and_then(|&axis| place(axis)));
        let mut laid = Self { order: Vec::with_capacity(to.len()), contiguity: Vec::with_capacity(to.len()) };
        for group in groups {
            let last = self.contiguity[place(*group.from.last()?)?];
            let inner = group.to.len() - 1;
            for (position, axis) in group.to.into_iter().enumerate() {
                laid.order.push(axis);
                laid.contiguity.push(if position < inner { Some(true) } else { last });
            }
        }
        let thin: Vec<usize> = (0..to.len()).filter(|&axis| to[axis] == 1).collect();
        for axis in thin {
            laid.order.insert(axis.min(laid.order.len()), axis);
            laid.contiguity.insert(axis.min(laid.contiguity.len()), None);
        }
        Some(laid)
    }
}
