//! Fusions for tests of this crate's lower rows, made directly from operations
//! without the builder's conveniences.

use super::meta::{AxisMeta, ExtentValue, OperandMeta, Shape, SizeMath, infer};
use super::{Axis, AxisKind, Fusion, Op, OpKind, Operand, Scalar, ScalarDef, ScalarId, Tensor, TensorDef, TensorId};
use crate::num::{BinaryOp, DType, Value};
use crate::util::{EntityId, PrimaryMap};
use std::collections::BTreeMap;

/// A fusion in the making.
pub(crate) struct Sketch {
    pub(crate) fusion: Fusion,
    symbols: BTreeMap<String, ScalarId>,
}

/// Two scalars agree if they are the same one; different ones may still be equal.
struct Symbols(ScalarId);

impl SizeMath for Symbols {
    fn constant(&mut self, _: i64) -> ExtentValue {
        ExtentValue(self.0.index() as i64)
    }
    fn known(&self, _: ExtentValue) -> Option<i64> {
        None
    }
    fn binary(&mut self, _: BinaryOp, a: ExtentValue, _: ExtentValue) -> ExtentValue {
        a
    }
    fn select(&mut self, _: ExtentValue, a: ExtentValue, _: ExtentValue) -> ExtentValue {
        a
    }
    fn unify(&mut self, a: ExtentValue, _: ExtentValue) -> Result<ExtentValue, (String, String)> {
        Ok(a)
    }
}

impl Sketch {
    pub(crate) fn new() -> Self {
        let fusion = Fusion {
            name: "sketch".into(),
            tensors: PrimaryMap::new(),
            scalars: PrimaryMap::new(),
            ops: PrimaryMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            updates: Vec::new(),
        };
        Self { fusion, symbols: BTreeMap::new() }
    }

    pub(crate) fn constant(&mut self, dtype: DType, value: Value) -> ScalarId {
        self.scalar(dtype, ScalarDef::Const(value))
    }

    pub(crate) fn scalar(&mut self, dtype: DType, def: ScalarDef) -> ScalarId {
        self.fusion.scalars.push(Scalar { dtype, def })
    }

    pub(crate) fn scalar_input(&mut self, name: &str, dtype: DType) -> ScalarId {
        let index = self.fusion.inputs.len() as u32;
        let id = self.scalar(dtype, ScalarDef::Input { index, name: name.into() });
        self.fusion.inputs.push(Operand::Scalar(id));
        id
    }

    /// An input; its axes are words: `b` is a broadcast, a number a constant
    /// extent, `?` a new symbol, anything else a symbol shared by name.
    pub(crate) fn input(&mut self, name: &str, dtype: DType, axes: &str) -> TensorId {
        let input = self.fusion.inputs.len() as u32;
        let mut list = Vec::new();
        for (axis, word) in axes.split_whitespace().enumerate() {
            let kind = if word == "b" { AxisKind::Broadcast } else { AxisKind::Iteration };
            let size = ScalarDef::Size { input, axis: axis as u32 };
            let extent = match (word, word.parse::<i64>()) {
                ("b", _) => self.constant(DType::I64, Value::Int(1)),
                (_, Ok(number)) => self.constant(DType::I64, Value::Int(number)),
                ("?", _) => self.scalar(DType::I64, size),
                (symbol, _) => match self.symbols.get(symbol) {
                    Some(&known) => known,
                    None => {
                        let new = self.scalar(DType::I64, size);
                        self.symbols.insert(symbol.into(), new);
                        new
                    }
                },
            };
            list.push(Axis { extent, kind });
        }
        let tensor = Tensor { name: name.into(), dtype, axes: list, def: TensorDef::Input(input), layout: None };
        let id = self.fusion.tensors.push(tensor);
        self.fusion.inputs.push(Operand::Tensor(id));
        id
    }

    /// An operation; its result is an output until another operation uses it.
    pub(crate) fn op(&mut self, kind: OpKind, inputs: &[Operand]) -> TensorId {
        let one = self.constant(DType::I64, Value::Int(1));
        let operands: Vec<_> = inputs.iter().map(|operand| self.operand_meta(*operand)).collect();
        let shape = infer(&kind, &operands, &mut Symbols(one)).unwrap().remove(0);
        let id = |extent: ExtentValue| ScalarId::from_index(extent.0 as usize);
        let axes = shape.axes.iter().map(|a| Axis { extent: id(a.extent), kind: a.kind }).collect();
        self.define(kind, inputs, shape.dtype, axes)
    }

    /// `full` of the given extents.
    pub(crate) fn full(&mut self, value: ScalarId, extents: &[ScalarId]) -> TensorId {
        let axes = extents.iter().map(|&extent| Axis { extent, kind: AxisKind::Iteration }).collect();
        let dtype = self.fusion.scalars[value].dtype;
        self.define(OpKind::Full, &[Operand::Scalar(value)], dtype, axes)
    }

    fn define(&mut self, kind: OpKind, inputs: &[Operand], dtype: DType, axes: Vec<Axis>) -> TensorId {
        let def = TensorDef::Op(self.fusion.ops.next_id());
        let name = self.fusion.ops.len().to_string();
        let output = self.fusion.tensors.push(Tensor { name, dtype, axes, def, layout: None });
        self.fusion.outputs.retain(|t| !inputs.contains(&Operand::Tensor(*t)));
        self.fusion.outputs.push(output);
        self.fusion.ops.push(Op { kind, inputs: inputs.to_vec(), outputs: vec![output] });
        output
    }

    fn operand_meta(&self, operand: Operand) -> OperandMeta {
        match operand {
            Operand::Scalar(scalar) => {
                OperandMeta::Scalar(self.fusion.scalars[scalar].dtype, ExtentValue(scalar.index() as i64))
            }
            Operand::Tensor(tensor) => {
                let tensor = &self.fusion.tensors[tensor];
                let axes = tensor
                    .axes
                    .iter()
                    .map(|a| AxisMeta { extent: ExtentValue(a.extent.index() as i64), kind: a.kind })
                    .collect();
                OperandMeta::Tensor(Shape { dtype: tensor.dtype, axes })
            }
        }
    }
}
