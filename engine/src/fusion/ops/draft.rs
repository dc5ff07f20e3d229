//! A primitive about to be added to a fusion: what its `build` function starts
//! from the arguments and changes where it normalises.

use super::args::{Args, OpArg};
use super::call::{Attr, Call};
use super::row::{OpParamKind, OpRow};
use crate::fusion::Src;
use crate::num::Value;

/// Operands and attributes by parameter.
#[derive(Clone, Debug)]
pub struct CallDraft {
    row: &'static OpRow,
    items: Vec<DraftItem>,
}

#[derive(Clone, Debug)]
enum DraftItem {
    Operands(Vec<Src>),
    Attr(Attr),
}

impl CallDraft {
    /// As given; what is not given has its default.
    pub fn new(args: &Args) -> Self {
        let row = args.row();
        let items = row
            .params
            .iter()
            .enumerate()
            .map(|(position, param)| match args.at(position) {
                Some(OpArg::Value(src)) => DraftItem::Operands(vec![*src]),
                Some(OpArg::Values(list)) => DraftItem::Operands(list.clone()),
                Some(OpArg::Bool(value)) => DraftItem::Attr(Attr::Bool(*value)),
                Some(OpArg::Int(value)) if param.kind == OpParamKind::Number => {
                    DraftItem::Attr(Attr::Number(Value::Float(*value as f64)))
                }
                Some(OpArg::Int(value)) => DraftItem::Attr(Attr::Int(*value)),
                Some(OpArg::Ints(values)) => DraftItem::Attr(Attr::Ints(values.clone())),
                Some(OpArg::Bools(values)) => DraftItem::Attr(Attr::Bools(values.clone())),
                Some(OpArg::Number(value)) => DraftItem::Attr(Attr::Number(Value::Float(*value))),
                Some(OpArg::DType(value)) => DraftItem::Attr(Attr::DType(*value)),
                None if param.kind.is_operand() => DraftItem::Operands(Vec::new()),
                None => DraftItem::Attr(param.need.default_attr()),
            })
            .collect();
        Self { row, items }
    }

    /// Sets an attribute.
    #[must_use]
    pub fn attr(mut self, name: &str, attr: Attr) -> Self {
        if let Some(position) = self.row.position(name) {
            self.items[position] = DraftItem::Attr(attr);
        }
        self
    }

    /// Sets the operands of a parameter.
    #[must_use]
    pub fn operands(mut self, name: &str, operands: Vec<Src>) -> Self {
        if let Some(position) = self.row.position(name) {
            self.items[position] = DraftItem::Operands(operands);
        }
        self
    }

    /// Sets the operand of a parameter.
    #[must_use]
    pub fn operand(self, name: &str, operand: impl Into<Src>) -> Self {
        self.operands(name, vec![operand.into()])
    }

    /// The use of the primitive, and its operands with the kinds of their parameters.
    pub(crate) fn parts(self) -> (Call, Vec<(OpParamKind, Src)>) {
        let mut operands = Vec::new();
        let mut attrs = Vec::with_capacity(self.items.len());
        for (item, param) in self.items.into_iter().zip(self.row.params) {
            attrs.push(match item {
                DraftItem::Attr(attr) => attr,
                DraftItem::Operands(list) => {
                    let count = list.len() as u32;
                    operands.extend(list.into_iter().map(|src| (param.kind, src)));
                    Attr::Operands(count)
                }
            });
        }
        (Call { row: self.row, attrs }, operands)
    }
}
