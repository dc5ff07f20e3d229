//! The numbers by which a user knows the values of a definition, kept through
//! copies and rewrites.
//!
//! Values are numbered from 0: the inputs in order, then the results of
//! operations in order of definition. The extents of tensor inputs, which a part
//! of a definition may need although nobody named them, have the numbers
//! `-(k + 1)`, counted by input and then by axis.

use super::rewrite::Rewritten;
use super::{Fusion, Operand, ScalarId, TensorDef};

/// Where each number's value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// `None` for what a rewrite dropped.
    values: Vec<Option<Operand>>,
    extents: Vec<ScalarId>,
}

impl UserIds {
    /// The numbers of a definition.
    pub fn new(fusion: &Fusion) -> Self {
        let mut values: Vec<Option<Operand>> = fusion.inputs.iter().copied().map(Some).collect();
        let results = fusion.tensors.iter().filter(|(_, tensor)| matches!(tensor.def, TensorDef::Op(_)));
        values.extend(results.map(|(id, _)| Some(Operand::Tensor(id))));
        Self { values, extents: extents(fusion) }
    }

    /// How many values have numbers from 0 on.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no value has a number.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of a number: of a negative one, an extent.
    pub fn value(&self, id: i64) -> Option<Operand> {
        match usize::try_from(id) {
            Ok(id) => self.values.get(id).copied().flatten(),
            Err(_) => {
                let position = usize::try_from(id.checked_add(1)?.checked_neg()?).ok()?;
                self.extents.get(position).copied().map(Operand::Scalar)
            }
        }
    }

    /// The first number of a value.
    pub fn id(&self, value: Operand) -> Option<i64> {
        let id = self.values.iter().position(|known| *known == Some(value)).map(|id| id as i64);
        id.or_else(|| {
            let Operand::Scalar(scalar) = value else { return None };
            self.extents.iter().position(|extent| *extent == scalar).map(|k| -(k as i64) - 1)
        })
    }

    /// The same numbers in a fusion made from this one.
    pub fn through(&self, rewritten: &Rewritten) -> Self {
        let inputs = rewritten.fusion.inputs.len();
        let moved = |(position, value): (usize, &Option<Operand>)| match value {
            Some(_) if position < inputs => Some(rewritten.fusion.inputs[position]),
            Some(Operand::Tensor(t)) => rewritten.tensors[*t].map(Operand::Tensor),
            _ => None,
        };
        Self { values: self.values.iter().enumerate().map(moved).collect(), extents: extents(&rewritten.fusion) }
    }
}

fn extents(fusion: &Fusion) -> Vec<ScalarId> {
    fusion.input_tensors().flat_map(|(_, t)| fusion.tensors[t].axes.iter().map(|axis| axis.extent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::{bind, concretize, decompose};
    use crate::num::{DType, Value};
    use crate::tensor::{ArgMeta, TensorMeta};
    use crate::text;

    #[test]
    fn numbers_survive_rewrites() {
        let text = "fusion @f(%x: f32[?, 4], %n: i64, %y: f32[?]) {
  %a = full [%n] 1.0 f32
  %b = mul %y, %a
  %c = neg %x
  return %b, %c
}";
        let fusion = text::parse_one(text).unwrap();
        let ids = UserIds::new(&fusion);
        let meta = |sizes: &[i64]| ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, sizes));
        let args = [meta(&[3, 4]), ArgMeta::Scalar(Value::Int(1)), meta(&[5])];
        let facts = concretize::facts(&fusion, &bind(&fusion, &args).unwrap());
        let concrete = concretize::concretize(&fusion, &facts).unwrap();
        let simple = decompose(&concrete.fusion).unwrap();
        let moved = ids.through(&concrete).through(&simple);
        let name = |ids: &UserIds, fusion: &Fusion, id: i64| match ids.value(id).unwrap() {
            Operand::Tensor(t) => fusion.tensors[t].name.clone(),
            Operand::Scalar(s) => format!("{:?}", fusion.scalars[s].def),
        };
        assert_eq!(ids.len(), 6);
        for id in -3..6 {
            assert_eq!(name(&moved, &simple.fusion, id), name(&ids, &fusion, id), "{id}");
            assert!(moved.id(moved.value(id).unwrap()).is_some());
        }
        assert_eq!(name(&ids, &fusion, -2), "Const(Int(4))");
        assert_eq!((ids.value(-4), ids.value(6), ids.value(i64::MIN)), (None, None, None));
    }
}
