//! The data of a fusion. Built only by [`super::FusionBuilder`], which checks
//! and infers; the fields are public for reading.

#![allow(missing_docs, reason = "fields of a variant are described by the variant")]

use super::ops::Call;
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value, eval};
use crate::util::{PrimaryMap, SecondaryMap, entity_id};
use std::collections::BTreeSet;

entity_id!(
    /// A tensor of a fusion.
    pub struct TensorId, "t"
);
entity_id!(
    /// A scalar of a fusion: an input, a constant, a size, or arithmetic on them.
    pub struct ScalarId, "s"
);
entity_id!(
    /// An operation of a fusion.
    pub struct OpId, "op"
);

/// A whole program, in canonical form: inputs come first among the tensors,
/// every operation leads to an output, outputs are distinct results of
/// operations, scalars stand in order of first use. So equality is structural.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// The name after `@`.
    pub name: String,
    /// All tensors, in order of definition.
    pub tensors: PrimaryMap<TensorId, Tensor>,
    /// All scalars; operands come before their users.
    pub scalars: PrimaryMap<ScalarId, Scalar>,
    /// All operations; definitions come before uses.
    pub ops: PrimaryMap<OpId, Op>,
    /// What the caller passes, in order: tensors and scalars.
    pub inputs: Vec<Operand>,
    /// What the caller receives, in order.
    pub outputs: Vec<TensorId>,
    /// What is written into the storage of inputs, in order.
    pub updates: Vec<Update>,
}

/// A tensor that is written into an input's storage when the fusion has run;
/// the caller does not receive it unless it is an output too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The result of an operation.
    pub tensor: TensorId,
    /// `fusion.inputs[n]`, a tensor of the same type and axes.
    pub input: u32,
}

/// A tensor: its type and its logical axes, outer to inner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// The name without `%`; unique among tensors and scalar inputs. Names of
    /// unnamed values are their decimal number in order of definition.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Logical axes.
    pub axes: Vec<Axis>,
    /// Where it comes from.
    pub def: TensorDef,
    /// How an input must lie in memory; `None` for any layout, and for results.
    pub layout: Option<InputLayout>,
}

/// The declared memory layout of an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputLayout {
    /// For each axis in memory order, whether it is dense with the next one
    /// that is not a broadcast; `None` exactly for broadcast and expanded axes.
    pub contiguity: Vec<Option<bool>>,
    /// Axes in memory order, outermost first: a permutation of the axes.
    pub order: Vec<u32>,
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorDef {
    /// `fusion.inputs[n]`.
    Input(u32),
    /// The result of an operation.
    Op(OpId),
}

/// One axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Number of elements, an `i64` scalar. The constant 1 for broadcasts.
    pub extent: ScalarId,
    /// Iteration or broadcast.
    pub kind: AxisKind,
}

/// The kind of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisKind {
    /// Iterates over its extent.
    Iteration,
    /// Size 1, pairs with any axis.
    Broadcast,
    /// Iteration or broadcast: decided when the extent is known, by
    /// [`super::concretize`].
    Symbolic,
}

/// A scalar and its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// The type; sizes are `i64`.
    pub dtype: DType,
    /// Where it comes from.
    pub def: ScalarDef,
}

/// Where a scalar comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScalarDef {
    /// `fusion.inputs[index]`, with its name.
    Input { index: u32, name: String },
    /// A constant.
    Const(Value),
    /// The extent of an axis of the input tensor `fusion.inputs[input]`.
    Size { input: u32, axis: u32 },
    /// Arithmetic on a scalar.
    Unary(UnaryOp, ScalarId),
    /// Arithmetic on scalars.
    Binary(BinaryOp, ScalarId, ScalarId),
    /// Arithmetic on scalars; the first of `where` is a `bool`.
    Ternary(TernaryOp, ScalarId, ScalarId, ScalarId),
    /// Conversion to the type of this scalar.
    Cast(ScalarId),
}

impl ScalarDef {
    /// The same definition from other scalars.
    pub(super) fn map(&self, to: impl Fn(ScalarId) -> ScalarId) -> Self {
        match self {
            ScalarDef::Unary(op, a) => ScalarDef::Unary(*op, to(*a)),
            ScalarDef::Binary(op, a, b) => ScalarDef::Binary(*op, to(*a), to(*b)),
            ScalarDef::Ternary(op, a, b, c) => ScalarDef::Ternary(*op, to(*a), to(*b), to(*c)),
            ScalarDef::Cast(a) => ScalarDef::Cast(to(*a)),
            leaf => leaf.clone(),
        }
    }

    /// The scalars that it is computed from, in order.
    pub fn operands(&self) -> impl DoubleEndedIterator<Item = ScalarId> + use<> {
        let operands = match *self {
            ScalarDef::Unary(_, a) | ScalarDef::Cast(a) => [Some(a), None, None],
            ScalarDef::Binary(_, a, b) => [Some(a), Some(b), None],
            ScalarDef::Ternary(_, a, b, c) => [Some(a), Some(b), Some(c)],
            ScalarDef::Input { .. } | ScalarDef::Const(_) | ScalarDef::Size { .. } => [None, None, None],
        };
        operands.into_iter().flatten()
    }
}

/// A tensor or a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// A tensor.
    Tensor(TensorId),
    /// A scalar.
    Scalar(ScalarId),
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// What it reads.
    pub inputs: Vec<Operand>,
    /// What it defines: one tensor, or several.
    pub outputs: Vec<TensorId>,
}

impl Op {
    /// The first tensor that it defines.
    pub fn output(&self) -> TensorId {
        self.outputs[0]
    }
}

/// What an operation does. Shapes: `x` is the first tensor operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Elementwise on one operand.
    Unary(UnaryOp),
    /// Elementwise on two operands of one type.
    Binary(BinaryOp),
    /// Elementwise on three operands.
    Ternary(TernaryOp),
    /// Elementwise conversion.
    Cast(DType),
    /// Elementwise copy.
    Set,
    /// Inserts size-1 axes: result axis `i` is new where `flags[i]`, the others
    /// are the axes of `x` in order.
    Broadcast { flags: Vec<bool> },
    /// Removes the broadcast axes of `x` where `flags[i]`.
    Squeeze { flags: Vec<bool> },
    /// Result axis `i` is axis `perm[i]` of `x`.
    Permute { perm: Vec<u32> },
    /// Combines over `axes` (ascending, not empty) and drops them.
    Reduce { op: ReduceOp, axes: Vec<u32> },
    /// A tensor of the given extents (the output's axes) filled with the scalar operand.
    Full,
    /// A tensor of the given extents (the output's axes) whose `i64` elements
    /// are their positions along an axis.
    Index { axis: u32 },
    /// Another primitive of the table of operations.
    Call(Call),
}

impl Fusion {
    /// The operation that defines a tensor, if it is not an input.
    pub fn definition(&self, tensor: TensorId) -> Option<OpId> {
        match self.tensors[tensor].def {
            TensorDef::Input(_) => None,
            TensorDef::Op(op) => Some(op),
        }
    }

    /// Whether a tensor is a result of some operations, given in order.
    pub fn is_result_of(&self, tensor: TensorId, ops: &[OpId]) -> bool {
        self.definition(tensor).is_some_and(|op| ops.binary_search(&op).is_ok())
    }

    /// The input tensors with their position among the inputs.
    pub fn input_tensors(&self) -> impl Iterator<Item = (usize, TensorId)> + '_ {
        self.inputs.iter().enumerate().filter_map(|(i, operand)| match operand {
            Operand::Tensor(t) => Some((i, *t)),
            Operand::Scalar(_) => None,
        })
    }

    /// The tensor operands of an operation, in order.
    pub fn tensor_inputs(&self, op: OpId) -> impl Iterator<Item = TensorId> + '_ {
        self.ops[op].inputs.iter().filter_map(|operand| match operand {
            Operand::Tensor(t) => Some(*t),
            Operand::Scalar(_) => None,
        })
    }

    /// The operations that read each tensor, each of them once, in order.
    pub fn readers(&self) -> SecondaryMap<TensorId, Vec<OpId>> {
        let mut readers: SecondaryMap<TensorId, Vec<OpId>> = SecondaryMap::new();
        for op in self.ops.ids() {
            for tensor in self.tensor_inputs(op) {
                if readers[tensor].last() != Some(&op) {
                    readers[tensor].push(op);
                }
            }
        }
        readers
    }

    /// The constant value of a scalar, if it is one.
    pub fn const_scalar(&self, scalar: ScalarId) -> Option<Value> {
        match self.scalars[scalar].def {
            ScalarDef::Const(value) => Some(value),
            _ => None,
        }
    }

    /// The same of a scalar that is a constant, converted or not.
    pub fn constant(&self, scalar: ScalarId) -> Option<Value> {
        let (mut inner, mut types) = (scalar, Vec::new());
        while let ScalarDef::Cast(operand) = self.scalars[inner].def {
            types.push(self.scalars[inner].dtype);
            inner = operand;
        }
        let (mut value, mut from) = (self.const_scalar(inner)?, self.scalars[inner].dtype);
        for to in types.into_iter().rev() {
            (value, from) = (eval::cast(from, to, value), to);
        }
        Some(value)
    }

    /// Whether a scalar follows from the sizes of input tensors, whatever the values of scalar inputs.
    pub fn depends_on_sizes_alone(&self, scalar: ScalarId) -> bool {
        let (mut open, mut seen) = (vec![scalar], BTreeSet::new());
        while let Some(next) = open.pop() {
            if matches!(self.scalars[next].def, ScalarDef::Input { .. }) {
                return false;
            }
            if seen.insert(next) {
                open.extend(self.scalars[next].def.operands());
            }
        }
        true
    }
}
