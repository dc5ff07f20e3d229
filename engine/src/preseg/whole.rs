//! What rules may ask of a fusion, and the fusion made again where they found something.
//!
//! A rule looks at one operation of the old fusion and says how its result is made instead, or
//! nothing. It never sees what other rules do in the same sweep: what they leave is seen by the
//! next. So the order of operations decides nothing.

use super::seen::SeenSizes;
use crate::diag::Result;
use crate::fusion::ops::{Call, Form};
use crate::fusion::{
    AxisKind, Bindings, Fusion, Op, OpId, OpKind, Operand, Rewriter, Rewritten, ScalarDef, ScalarId, TensorId,
};
use crate::options::DeviceDesc;
use crate::products::Length;
use crate::util::{PrimaryMap, SecondaryMap};
use std::collections::BTreeMap;

/// Makes the result of an operation otherwise.
pub(super) type Change<'a> = Box<dyn FnOnce(&mut Rewriter<'_>) -> Result<TensorId> + 'a>;
/// Makes all results of an operation otherwise.
pub(super) type ChangeAll<'a> = Box<dyn FnOnce(&mut Rewriter<'_>) -> Result<Vec<TensorId>> + 'a>;
/// What is made otherwise.
pub(super) type Changes<'a> = BTreeMap<OpId, ChangeAll<'a>>;

/// The change of an operation of one result.
pub(super) fn of_one<'a>(change: Change<'a>) -> ChangeAll<'a> {
    Box::new(move |r| Ok(vec![change(r)?]))
}

/// A fusion with its sizes.
pub(super) struct Whole<'a> {
    pub(super) fusion: &'a Fusion,
    bindings: &'a Bindings,
    /// As rules see them ([`SeenSizes`]).
    sizes: PrimaryMap<TensorId, Vec<i64>>,
    seen: &'a SeenSizes,
    device: &'a DeviceDesc,
    readers: SecondaryMap<TensorId, Vec<OpId>>,
    returned: SecondaryMap<TensorId, bool>,
}

impl<'a> Whole<'a> {
    pub(super) fn new(fusion: &'a Fusion, bindings: &'a Bindings, seen: &'a SeenSizes, device: &'a DeviceDesc) -> Self {
        let (mut sizes, mut returned) = (PrimaryMap::new(), SecondaryMap::new());
        let mut readers: SecondaryMap<TensorId, Vec<OpId>> = SecondaryMap::new();
        for tensor in fusion.tensors.ids() {
            sizes.push(seen.of(fusion, bindings, tensor));
        }
        for op in fusion.ops.ids() {
            for tensor in fusion.tensor_inputs(op) {
                readers[tensor].push(op);
            }
        }
        for tensor in fusion.outputs.iter().chain(fusion.updates.iter().map(|update| &update.tensor)) {
            returned.set(*tensor, true);
        }
        Self { fusion, bindings, sizes, seen, device, readers, returned }
    }

    /// What a rule finds. Operations of several results are left alone.
    pub(super) fn each<'w>(&'w self, rule: &dyn Fn(&'w Self, &'w Op) -> Option<Change<'w>>) -> Changes<'w> {
        let single = self.fusion.ops.iter().filter(|(_, op)| op.outputs.len() == 1);
        single.filter_map(|(id, op)| Some((id, of_one(rule(self, op)?)))).collect()
    }

    /// The fusion with the changes made.
    pub(super) fn apply(&self, mut changes: Changes<'_>) -> Result<Rewritten> {
        let fusion = self.fusion;
        let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
        for (id, op) in fusion.ops.iter() {
            let results = match changes.remove(&id) {
                None => rewriter.write_again(op)?,
                Some(change) => change(&mut rewriter)?,
            };
            rewriter.replace(op, &results)?;
        }
        rewriter.finish()
    }

    /// Whether sizes are seen as they are.
    pub(super) fn knows_sizes(&self) -> bool {
        self.seen.is_exact()
    }

    pub(super) fn sizes(&self, tensor: TensorId) -> &[i64] {
        &self.sizes[tensor]
    }

    pub(super) fn is_empty(&self, tensor: TensorId) -> bool {
        self.sizes[tensor].contains(&0)
    }

    pub(super) fn rank(&self, tensor: TensorId) -> usize {
        self.sizes[tensor].len()
    }

    /// The operation that makes a tensor.
    pub(super) fn maker(&self, tensor: TensorId) -> Option<&'a Op> {
        self.fusion.definition(tensor).map(|op| &self.fusion.ops[op])
    }

    /// The kind of an axis, decided by its size.
    pub(super) fn kind(&self, tensor: TensorId, axis: usize) -> AxisKind {
        match self.fusion.tensors[tensor].axes[axis].kind {
            AxisKind::Symbolic if self.sizes[tensor][axis] == 1 => AxisKind::Broadcast,
            AxisKind::Symbolic => AxisKind::Iteration,
            decided => decided,
        }
    }

    pub(super) fn is_broadcast(&self, tensor: TensorId, axis: usize) -> bool {
        self.kind(tensor, axis) == AxisKind::Broadcast
    }

    /// Whether axes that are declared with a tensor's extents are of its kinds.
    pub(super) fn declares(&self, tensor: TensorId) -> bool {
        self.fusion.tensors[tensor].axes.iter().enumerate().all(|(position, axis)| {
            let size = self.sizes[tensor][position];
            let iterates = match self.fusion.scalars[axis.extent].def {
                ScalarDef::Size { .. } => true,
                _ => size != 1,
            };
            iterates == (self.kind(tensor, position) == AxisKind::Iteration)
        })
    }

    /// Whether the axes of a tensor are broadcasts exactly where their size is 1, as a reshape
    /// makes them.
    pub(super) fn regroups(&self, tensor: TensorId) -> bool {
        (0..self.rank(tensor)).all(|axis| self.is_broadcast(tensor, axis) == (self.sizes[tensor][axis] == 1))
    }

    /// The number that a scalar is, if it follows from sizes that are seen.
    pub(super) fn number(&self, scalar: ScalarId) -> Option<i64> {
        (self.seen.is_exact() && self.fusion.depends_on_sizes_alone(scalar))
            .then(|| self.bindings.scalar(scalar).as_i64())
    }

    /// The numbers that belong to a parameter of a call.
    pub(super) fn numbers(&self, op: &Op, call: &Call, param: &str) -> Option<Vec<i64>> {
        let number = |operand: &Operand| match *operand {
            Operand::Scalar(scalar) => self.number(scalar),
            Operand::Tensor(_) => None,
        };
        op.inputs[call.operands(param)].iter().map(number).collect()
    }

    /// Whether the first elements of lines are looked for, and some axis has more elements than an `i32` tells apart.
    pub(super) fn has_long_line(&self) -> bool {
        self.seen.has_long_line()
    }

    /// Whether products may be widened, and it is seen what decides that.
    pub(super) fn knows_lengths(&self) -> bool {
        !self.seen.lengths().is_empty()
    }

    /// About how long axes are of this size, as far as operands of the definition's products have such.
    pub(super) fn length(&self, size: i64) -> Option<Length> {
        self.seen.lengths().get(&size).copied()
    }

    /// The axis along which elements of an input lie side by side, where lengths are known.
    pub(super) fn inner_axis(&self, input: TensorId) -> Option<usize> {
        let position = self.fusion.inputs.iter().position(|own| *own == Operand::Tensor(input))?;
        self.seen.inner_axes().get(position).copied().flatten()
    }

    /// Whether a tensor is an argument that is seen to be row-major.
    pub(super) fn is_row_major(&self, input: TensorId) -> bool {
        let position = self.fusion.inputs.iter().position(|own| *own == Operand::Tensor(input));
        position.is_some_and(|position| self.seen.row_major().get(position) == Some(&true))
    }

    pub(super) fn device(&self) -> &DeviceDesc {
        self.device
    }

    /// The operations that read a tensor.
    pub(super) fn readers(&self, tensor: TensorId) -> impl Iterator<Item = &Op> {
        self.readers[tensor].iter().map(|op| &self.fusion.ops[*op])
    }

    /// Whether nothing but one operation reads a tensor.
    pub(super) fn is_read_once(&self, tensor: TensorId) -> bool {
        self.readers[tensor].len() == 1 && !self.returned[tensor]
    }

    pub(super) fn is_returned(&self, tensor: TensorId) -> bool {
        self.returned[tensor]
    }

    /// Whether two tensors have the same type, sizes and kinds of axes.
    pub(super) fn is_alike(&self, a: TensorId, b: TensorId) -> bool {
        self.fusion.tensors[a].dtype == self.fusion.tensors[b].dtype
            && self.sizes[a] == self.sizes[b]
            && (0..self.rank(a)).all(|axis| self.kind(a, axis) == self.kind(b, axis))
    }

    /// Whether a tensor of equal elements can stand for a result. What is returned needs a
    /// result of its own: that of an operation which nobody else reads.
    pub(super) fn stands_for(&self, result: TensorId, other: TensorId) -> bool {
        let own = || self.fusion.definition(other).is_some() && self.is_read_once(other);
        self.is_alike(result, other) && (!self.returned[result] || own())
    }
}

/// The tensor that an operation only places in memory, axis for axis from the outermost to the innermost.
pub(super) fn placed_row_major(op: &Op) -> Option<TensorId> {
    let OpKind::Call(own) = &op.kind else { return None };
    // The axis of the largest number is the outermost.
    let order = own.ints(own.movement().order?);
    order.iter().rev().copied().eq(0..order.len() as i64).then(|| operand(op))?
}

/// The use of a primitive of this form.
pub(super) fn call(op: &Op, form: Form) -> Option<&Call> {
    match &op.kind {
        OpKind::Call(call) if call.movement().form == Some(form) => Some(call),
        _ => None,
    }
}

/// Whether an operation makes its result of no tensor, by what follows from its indices: positions along an axis.
pub(super) fn is_of_none(op: &Op) -> bool {
    let reads = op.inputs.iter().any(|input| matches!(input, Operand::Tensor(_)));
    matches!(&op.kind, OpKind::Call(call) if call.row.random.is_none()) && !reads && op.outputs.len() == 1
}

/// The first operand, if it is a tensor.
pub(super) fn operand(op: &Op) -> Option<TensorId> {
    match op.inputs.first() {
        Some(Operand::Tensor(tensor)) => Some(*tensor),
        _ => None,
    }
}

/// The tensors that belong to a parameter of a call.
pub(super) fn tensors(op: &Op, call: &Call, param: &str) -> Vec<TensorId> {
    let tensor = |operand: &Operand| match *operand {
        Operand::Tensor(tensor) => Some(tensor),
        Operand::Scalar(_) => None,
    };
    op.inputs[call.operands(param)].iter().filter_map(tensor).collect()
}
