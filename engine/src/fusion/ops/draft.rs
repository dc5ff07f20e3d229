//! A primitive about to be added to a fusion: what its `build` function starts
//! from the arguments and changes where it normalises.

use super::args::{Arg, Args};
use super::call::{Attr, Call};
use super::row::{OpRow, ParamKind};
use crate::fusion::Src;
use crate::num::Value;

/// Operands and attributes by parameter.
#[derive(Clone, Debug)]
pub struct Draft {
    row: &'static OpRow,
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
enum Item {
    Operands(Vec<Src>),
    Attr(Attr),
}

impl Draft {
    /// As given; what is not given has its default.
    pub fn new(args: &Args) -> Self {
        let row = args.row();
        let items = row
            .params
            .iter()
            .enumerate()
            .map(|(position, param)| match args.at(position) {
                Some(Arg::Value(src)) => Item::Operands(vec![*src]),
                Some(Arg::Values(list)) => Item::Operands(list.clone()),
                Some(Arg::Bool(value)) => Item::Attr(Attr::Bool(*value)),
                Some(Arg::Int(value)) if param.kind == ParamKind::Number => {
                    Item::Attr(Attr::Number(Value::Float(*value as f64)))
                }
                Some(Arg::Int(value)) => Item::Attr(Attr::Int(*value)),
                Some(Arg::Ints(values)) => Item::Attr(Attr::Ints(values.clone())),
                Some(Arg::Bools(values)) => Item::Attr(Attr::Bools(values.clone())),
                Some(Arg::Number(value)) => Item::Attr(Attr::Number(Value::Float(*value))),
                Some(Arg::DType(value)) => Item::Attr(Attr::DType(*value)),
                None if param.kind.is_operand() => Item::Operands(Vec::new()),
                None => Item::Attr(param.need.default_attr()),
            })
            .collect();
        Self { row, items }
    }

    /// Sets an attribute.
    #[must_use]
    pub fn attr(mut self, name: &str, attr: Attr) -> Self {
        if let Some(position) = self.row.position(name) {
            self.items[position] = Item::Attr(attr);
        }
        self
    }

    /// Sets the operands of a parameter.
    #[must_use]
    pub fn operands(mut self, name: &str, operands: Vec<Src>) -> Self {
        if let Some(position) = self.row.position(name) {
            self.items[position] = Item::Operands(operands);
        }
        self
    }

    /// Sets the operand of a parameter.
    #[must_use]
    pub fn operand(self, name: &str, operand: impl Into<Src>) -> Self {
        self.operands(name, vec![operand.into()])
    }

    /// The use of the primitive, and its operands with the kinds of their parameters.
    pub(crate) fn parts(self) -> (Call, Vec<(ParamKind, Src)>) {
        let mut operands = Vec::new();
        let mut attrs = Vec::with_capacity(self.items.len());
        for (item, param) in self.items.into_iter().zip(self.row.params) {
            attrs.push(match item {
                Item::Attr(attr) => attr,
                Item::Operands(list) => {
                    let count = list.len() as u32;
                    operands.extend(list.into_iter().map(|src| (param.kind, src)));
                    Attr::Operands(count)
                }
            });
        }
        (Call { row: self.row, attrs }, operands)
    }
}
