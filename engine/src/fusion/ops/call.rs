//! A use of a primitive in a fusion: the row and its attributes in canonical
//! form, one for each parameter, so that equal uses are equal data.

use super::movement::Movement;
use super::row::{Need, OpParam, OpRow, Primitive};
use crate::num::{DType, Value};
use std::hash::{Hash, Hasher};

/// A use of a primitive that is not one of the elementwise, axis-moving and
/// reducing variants of [`super::super::OpKind`].
#[derive(Clone)]
pub struct Call {
    /// The row of the operation.
    pub row: &'static OpRow,
    /// One for each parameter of the row.
    pub attrs: Vec<Attr>,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    /// Not given, which means something of its own.
    None,
    /// An operand parameter: how many of the operation's inputs belong to it.
    Operands(u32),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// Truth values.
    Bools(Vec<bool>),
    /// A number.
    Number(Value),
    /// A data type.
    DType(DType),
}

impl Call {
    /// What the primitive means. Calls are only made of rows that are primitives.
    pub fn primitive(&self) -> Option<&'static Primitive> {
        self.row.primitive.as_ref()
    }

    /// What it does with elements and axes.
    pub fn movement(&self) -> Movement {
        self.primitive().map_or(Movement::NEW, |primitive| primitive.movement)
    }

    /// The value of a parameter.
    pub fn attr(&self, name: &str) -> &Attr {
        self.row.position(name).and_then(|position| self.attrs.get(position)).unwrap_or(&Attr::None)
    }

    /// An integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attr(name) {
            Attr::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// An axis that `build` has counted from the start.
    pub fn axis(&self, name: &str) -> usize {
        self.int(name).and_then(|axis| usize::try_from(axis).ok()).unwrap_or(0)
    }

    /// Integers; empty if not given.
    pub fn ints(&self, name: &str) -> &[i64] {
        match self.attr(name) {
            Attr::Ints(values) => values,
            _ => &[],
        }
    }

    /// Truth values; empty if not given.
    pub fn bools(&self, name: &str) -> &[bool] {
        match self.attr(name) {
            Attr::Bools(values) => values,
            _ => &[],
        }
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        *self.attr(name) == Attr::Bool(true)
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.attr(name) {
            Attr::Number(value) => Some(value.as_f64()),
            Attr::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// A data type.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.attr(name) {
            Attr::DType(value) => Some(*value),
            _ => None,
        }
    }

    /// The operation's inputs that belong to a parameter.
    pub fn operands(&self, name: &str) -> std::ops::Range<usize> {
        let count = |attr: &Attr| match attr {
            Attr::Operands(count) => *count as usize,
            _ => 0,
        };
        let Some(position) = self.row.position(name) else { return 0..0 };
        let start = self.attrs.iter().take(position).map(count).sum();
        start..start + self.attrs.get(position).map_or(0, count)
    }
}

impl Need {
    /// The attribute that stands for a parameter that is not given.
    pub(crate) fn default_attr(self) -> Attr {
        match self {
            Need::Required | Need::Optional => Attr::None,
            Need::Bool(value) => Attr::Bool(value),
            Need::Int(value) => Attr::Int(value),
            Need::Number(value) => Attr::Number(Value::Float(value)),
            Need::DType(value) => Attr::DType(value),
        }
    }
}

impl OpParam {
    /// Whether an attribute says what leaving it out says.
    pub fn is_default(&self, attr: &Attr) -> bool {
        *attr == self.need.default_attr()
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row.name)?;
        f.debug_list().entries(&self.attrs).finish()
    }
}

/// Rows are told apart by their names.
impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.row.name == other.row.name && self.attrs == other.attrs
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.name.hash(state);
        self.attrs.hash(state);
    }
}
