//! What the functions of a primitive see of the operation they work on.

use super::call::Call;
use crate::array::View;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::AxisKind;
use crate::fusion::meta::{AxisMeta, ExtentValue, OperandMeta, Shape, SizeMath, paired};
use crate::num::{BinaryOp, DType, Value};

/// An operation whose results' types and axes are asked for. Extents are
/// symbols while a fusion is built and numbers when arguments are bound.
pub struct MetaCx<'a> {
    /// The operation.
    pub call: &'a Call,
    pub(crate) operands: &'a [OperandMeta],
    /// Arithmetic on extents.
    pub math: &'a mut dyn SizeMath,
}

impl MetaCx<'_> {
    /// The operation's name, for messages.
    pub fn name(&self) -> &'static str {
        self.call.row.name
    }

    /// The shape of a required tensor operand.
    pub fn tensor(&self, name: &str) -> Result<Shape> {
        self.opt_tensor(name)?.ok_or_else(|| {
            Diagnostic::user(
                code::NOT_TENSOR,
                format!("{}: operand `{name}` is a scalar, a tensor is needed", self.name()),
            )
            .note("turn a scalar into a tensor with full")
        })
    }

    /// The shape of an operand if it is given and a tensor.
    pub fn opt_tensor(&self, name: &str) -> Result<Option<Shape>> {
        let range = self.call.operands(name);
        match self.operands.get(range.start).filter(|_| !range.is_empty()) {
            Some(OperandMeta::Tensor(shape)) => Ok(Some(shape.clone())),
            _ => Ok(None),
        }
    }

    /// The shapes of a list of tensor operands.
    pub fn tensors(&self, name: &str) -> Vec<Shape> {
        self.operands[self.call.operands(name)]
            .iter()
            .filter_map(|operand| match operand {
                OperandMeta::Tensor(shape) => Some(shape.clone()),
                OperandMeta::Scalar(..) => None,
            })
            .collect()
    }

    /// The type of an operand.
    pub fn operand_dtype(&self, name: &str) -> Option<DType> {
        let range = self.call.operands(name);
        self.operands.get(range.start).filter(|_| !range.is_empty()).map(|operand| match operand {
            OperandMeta::Tensor(shape) => shape.dtype,
            OperandMeta::Scalar(dtype, _) => *dtype,
        })
    }

    /// The values of scalar operands that are sizes, offsets or counts.
    pub fn extents(&self, name: &str) -> Vec<ExtentValue> {
        self.operands[self.call.operands(name)]
            .iter()
            .filter_map(|operand| match operand {
                OperandMeta::Scalar(_, value) => Some(*value),
                OperandMeta::Tensor(_) => None,
            })
            .collect()
    }

    /// The value of one scalar operand.
    pub fn extent(&self, name: &str) -> Option<ExtentValue> {
        self.extents(name).first().copied()
    }

    /// An axis of an extent: a broadcast if it is known to be 1, iteration if it
    /// is known not to be, else undecided.
    pub fn axis(&self, extent: ExtentValue) -> AxisMeta {
        let kind = match self.math.known(extent) {
            Some(1) => AxisKind::Broadcast,
            Some(_) => AxisKind::Iteration,
            None => AxisKind::Symbolic,
        };
        AxisMeta { extent, kind }
    }

    /// An axis of an extent that is declared, as those of `full`: that of an input's axis iterates.
    pub fn declared_axis(&self, extent: ExtentValue) -> AxisMeta {
        match self.math.is_of_input(extent) {
            true => AxisMeta { extent, kind: AxisKind::Iteration },
            false => self.axis(extent),
        }
    }

    /// A constant extent.
    pub fn constant(&mut self, n: i64) -> ExtentValue {
        self.math.constant(n)
    }

    /// `a + b`.
    pub fn add(&mut self, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        self.math.binary(BinaryOp::Add, a, b)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        self.math.binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        self.math.binary(BinaryOp::Mul, a, b)
    }

    /// `op(a, b)`, or a refusal where it is known to overflow. (What is not known
    /// is checked when arguments are bound.)
    pub fn sized(&mut self, op: BinaryOp, a: ExtentValue, b: ExtentValue) -> Result<ExtentValue> {
        if let (Some(x), Some(y)) = (self.math.known(a), self.math.known(b)) {
            let exact = match op {
                BinaryOp::Add => x.checked_add(y),
                BinaryOp::Sub => x.checked_sub(y),
                BinaryOp::Mul => x.checked_mul(y),
                _ => Some(0),
            };
            if exact.is_none() {
                let message = format!("{}: the size {op}({x}, {y}) overflows i64", self.name());
                return Err(Diagnostic::user(code::SIZE_OVERFLOW, message).note("use smaller extents"));
            }
        }
        Ok(self.math.binary(op, a, b))
    }

    /// The extent that two axes share, or a refusal that names both.
    pub fn same(&mut self, what: &str, a: ExtentValue, b: ExtentValue) -> Result<ExtentValue> {
        let name = self.name();
        self.math
            .unify(a, b)
            .map_err(|(a, b)| Diagnostic::user(code::EXTENT, format!("{name}: {what}: {a} and {b} must be equal")))
    }

    /// The axis of a result at which two operands broadcast against each other,
    /// or a refusal that names both extents.
    pub fn paired(&mut self, what: &str, a: AxisMeta, b: AxisMeta) -> Result<AxisMeta> {
        let name = self.name();
        paired(a, b, self.math)
            .map_err(|(a, b)| Diagnostic::user(code::EXTENT, format!("{name}: {what}: {a} and {b} do not broadcast")))
    }

    /// Refuses what a condition on known extents rules out; nothing while it is unknown.
    pub fn require(&self, holds: Option<bool>, code: crate::diag::Code, message: impl Fn() -> String) -> Result<()> {
        if holds == Some(false) {
            return Err(Diagnostic::user(code, format!("{}: {}", self.name(), message())));
        }
        Ok(())
    }
}

/// An operation whose results' strides are asked for. Everything is a number.
pub struct LayoutCx<'a> {
    /// The operation.
    pub call: &'a Call,
    pub(crate) operands: &'a [LayoutOperand],
    /// Sizes of each result.
    pub results: &'a [Vec<i64>],
}

/// An operand of [`LayoutCx`].
#[derive(Clone, Debug)]
pub enum LayoutOperand {
    /// A tensor's sizes and strides.
    Tensor(Vec<i64>, Vec<i64>),
    /// A scalar's value.
    Scalar(Value),
}

impl LayoutCx<'_> {
    /// Sizes and strides of a tensor operand.
    pub fn tensor(&self, name: &str) -> Result<(&[i64], &[i64])> {
        match self.operands.get(self.call.operands(name).start) {
            Some(LayoutOperand::Tensor(sizes, strides)) => Ok((sizes, strides)),
            _ => Err(Diagnostic::bug(format!("{}: `{name}` is no tensor", self.call.row.name))),
        }
    }

    /// The values of scalar operands.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        self.operands[self.call.operands(name)]
            .iter()
            .filter_map(|operand| match operand {
                LayoutOperand::Scalar(value) => Some(value.as_i64()),
                LayoutOperand::Tensor(..) => None,
            })
            .collect()
    }
}

/// An operation whose results are asked for.
pub struct EvalCx<'a> {
    /// The operation.
    pub call: &'a Call,
    pub(crate) operands: &'a [EvalOperand],
    /// Type and sizes of each result.
    pub results: &'a [(DType, Vec<usize>)],
}

/// An operand of [`EvalCx`].
#[derive(Clone, Debug)]
pub enum EvalOperand {
    /// A tensor.
    Tensor(View),
    /// A scalar.
    Scalar(DType, Value),
}

impl<'a> EvalCx<'a> {
    pub(crate) fn new(call: &'a Call, operands: &'a [EvalOperand], results: &'a [(DType, Vec<usize>)]) -> Self {
        Self { call, operands, results }
    }

    /// A required tensor operand.
    pub fn tensor(&self, name: &str) -> Result<&View> {
        self.opt_tensor(name).ok_or_else(|| Diagnostic::bug(format!("{}: `{name}` is no tensor", self.call.row.name)))
    }

    /// A tensor operand if it is given.
    pub fn opt_tensor(&self, name: &str) -> Option<&View> {
        let range = self.call.operands(name);
        match self.operands.get(range.start).filter(|_| !range.is_empty()) {
            Some(EvalOperand::Tensor(view)) => Some(view),
            _ => None,
        }
    }

    /// A list of tensor operands.
    pub fn tensors(&self, name: &str) -> Vec<&View> {
        self.operands[self.call.operands(name)]
            .iter()
            .filter_map(|operand| match operand {
                EvalOperand::Tensor(view) => Some(view),
                EvalOperand::Scalar(..) => None,
            })
            .collect()
    }

    /// A scalar operand if it is given.
    pub fn scalar(&self, name: &str) -> Option<Value> {
        let range = self.call.operands(name);
        match self.operands.get(range.start).filter(|_| !range.is_empty()) {
            Some(EvalOperand::Scalar(_, value)) => Some(*value),
            _ => None,
        }
    }

    /// The values of a list of integer operands.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        self.operands[self.call.operands(name)]
            .iter()
            .filter_map(|operand| match operand {
                EvalOperand::Scalar(_, value) => Some(value.as_i64()),
                EvalOperand::Tensor(_) => None,
            })
            .collect()
    }
}
