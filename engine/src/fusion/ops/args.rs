//! The arguments of an operation on their way into a fusion: from the parser,
//! the reader of nvFuser's form, or a caller in Rust. [`Args::check`] holds them
//! against the row, so that all three refuse the same things.

use super::row::{Need, OpParam, OpParamKind, OpRow};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::Src;
use crate::num::{DType, Value};

/// What is given for one parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum OpArg {
    /// A tensor or scalar.
    Value(Src),
    /// Tensors, extents or scalars.
    Values(Vec<Src>),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// Truth values.
    Bools(Vec<bool>),
    /// A number.
    Number(f64),
    /// A data type.
    DType(DType),
}

/// The arguments of one operation, by parameter.
#[derive(Clone, Debug)]
pub struct Args {
    row: &'static OpRow,
    given: Vec<Option<OpArg>>,
}

impl Args {
    /// No argument yet.
    pub fn new(row: &'static OpRow) -> Self {
        Self { row, given: vec![None; row.params.len()] }
    }

    /// The operation.
    pub fn row(&self) -> &'static OpRow {
        self.row
    }

    /// Gives a parameter by position in the row.
    pub fn set(&mut self, position: usize, arg: OpArg) {
        if let Some(place) = self.given.get_mut(position) {
            *place = Some(arg);
        }
    }

    /// Gives a parameter by name; names that the row has not are ignored.
    #[must_use]
    pub fn with(mut self, name: &str, arg: OpArg) -> Self {
        if let Some(position) = self.row.position(name) {
            self.set(position, arg);
        }
        self
    }

    /// Gives an operand by name.
    #[must_use]
    pub fn value(self, name: &str, x: impl Into<Src>) -> Self {
        self.with(name, OpArg::Value(x.into()))
    }

    /// What is given for a parameter by position.
    pub fn at(&self, position: usize) -> Option<&OpArg> {
        self.given.get(position).and_then(Option::as_ref)
    }

    fn get(&self, name: &str) -> Option<&OpArg> {
        self.at(self.row.position(name)?)
    }

    fn need(&self, name: &str) -> Need {
        self.row.position(name).map_or(Need::Optional, |position| self.row.params[position].need)
    }

    /// Everything required is there and everything has its form.
    pub fn check(&self) -> Result<()> {
        for (param, arg) in self.row.params.iter().zip(&self.given) {
            match arg {
                None if param.need == Need::Required => return Err(self.missing(param)),
                None => {}
                Some(arg) if arg.fits(param.kind) => {}
                Some(_) => {
                    let message = format!("{}: `{}` {}", self.row.name, param.name, form(param.kind));
                    return Err(Diagnostic::user(code::ATTRIBUTE, message).note(self.shape_note()));
                }
            }
        }
        Ok(())
    }

    fn missing(&self, param: &OpParam) -> Box<Diagnostic> {
        let row = self.row;
        let error = match param.kind {
            OpParamKind::BareDType => {
                Diagnostic::user(code::ATTRIBUTE, format!("{}: needs a data type after its operands", row.name))
            }
            OpParamKind::Shape => Diagnostic::user(code::ATTRIBUTE, format!("{}: needs extents in brackets", row.name)),
            kind if kind.is_positional() => {
                let positional = row.params.iter().zip(&self.given).filter(|(param, _)| param.kind.is_positional());
                let given = positional.clone().filter(|(_, arg)| arg.is_some()).count();
                let most = positional.clone().count();
                let least = positional.filter(|(param, _)| param.need == Need::Required).count();
                arity_error(row, least, most, given)
            }
            _ => Diagnostic::user(code::ATTRIBUTE, format!("{}: needs `{}(...)`", row.name, param.name)),
        };
        error.note(self.shape_note())
    }

    fn shape_note(&self) -> String {
        format!("its form is: {}", self.row.signature())
    }

    // ---- what `build` functions read ----

    /// A required operand.
    pub fn src(&self, name: &str) -> Result<Src> {
        self.opt(name).ok_or_else(|| Diagnostic::bug(format!("{}: operand `{name}` was checked", self.row.name)))
    }

    /// An optional operand.
    pub fn opt(&self, name: &str) -> Option<Src> {
        match self.get(name) {
            Some(OpArg::Value(src)) => Some(*src),
            _ => None,
        }
    }

    /// A list of operands; empty if it is not given.
    pub fn list(&self, name: &str) -> &[Src] {
        match self.get(name) {
            Some(OpArg::Values(list)) => list,
            _ => &[],
        }
    }

    /// Whether a parameter is given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A flag or truth value.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(OpArg::Bool(value)) => *value,
            _ => self.need(name) == Need::Bool(true),
        }
    }

    /// An integer: as given, or the default.
    pub fn int(&self, name: &str) -> Option<i64> {
        match (self.get(name), self.need(name)) {
            (Some(OpArg::Int(value)), _) => Some(*value),
            (None, Need::Int(value)) => Some(value),
            _ => None,
        }
    }

    /// Integers; empty if they are not given.
    pub fn ints(&self, name: &str) -> &[i64] {
        match self.get(name) {
            Some(OpArg::Ints(values)) => values,
            _ => &[],
        }
    }

    /// Truth values; empty if they are not given.
    pub fn bools(&self, name: &str) -> &[bool] {
        match self.get(name) {
            Some(OpArg::Bools(values)) => values,
            _ => &[],
        }
    }

    /// A number: as given, or the default.
    pub fn number(&self, name: &str) -> Option<f64> {
        match (self.get(name), self.need(name)) {
            (Some(OpArg::Number(value)), _) => Some(*value),
            (Some(OpArg::Int(value)), _) => Some(*value as f64),
            (None, Need::Number(value)) => Some(value),
            _ => None,
        }
    }

    /// A data type: as given, or the default.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        match (self.get(name), self.need(name)) {
            (Some(OpArg::DType(value)), _) => Some(*value),
            (None, Need::DType(value)) => Some(value),
            _ => None,
        }
    }
}

/// The refusal of a wrong number of operands.
pub(crate) fn arity_error(row: &OpRow, least: usize, most: usize, given: usize) -> Box<Diagnostic> {
    let expected = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let plural = if most == 1 { "operand" } else { "operands" };
    let were = if given == 1 { "was" } else { "were" };
    Diagnostic::user(code::ARITY, format!("{}: takes {expected} {plural}, {given} {were} given", row.name))
}

impl OpArg {
    /// Whether it has the form of a kind of parameter.
    fn fits(&self, kind: OpParamKind) -> bool {
        use OpParamKind as K;
        match (self, kind) {
            (OpArg::Value(_), K::Tensor | K::Scalar | K::Value) => true,
            (OpArg::Values(list), K::Tensors) => !list.is_empty(),
            (OpArg::Values(_), K::Shape | K::Scalars) => true,
            (OpArg::Bool(_), K::Flag | K::Bool) => true,
            (OpArg::Int(_), K::Int | K::Number) => true,
            (OpArg::Ints(_), K::Ints) => true,
            (OpArg::Bools(_), K::Bools) => true,
            (OpArg::Number(_), K::Number) => true,
            (OpArg::DType(_), K::DType | K::BareDType) => true,
            _ => false,
        }
    }
}

/// What a parameter of a kind takes, after its name.
pub fn form(kind: OpParamKind) -> &'static str {
    match kind {
        OpParamKind::Tensor => "is a tensor",
        OpParamKind::Scalar => "is a scalar",
        OpParamKind::Value => "is a tensor or a scalar",
        OpParamKind::Tensors => "takes at least one tensor",
        OpParamKind::Shape => "takes extents",
        OpParamKind::Scalars => "takes integers or integer scalars",
        OpParamKind::Flag => "stands alone",
        OpParamKind::Bool => "takes true or false",
        OpParamKind::BareDType => "is a data type",
        OpParamKind::DType => "takes one data type",
        OpParamKind::Int => "takes one integer",
        OpParamKind::Ints => "takes integers",
        OpParamKind::Bools => "takes true and false",
        OpParamKind::Number => "takes one number",
    }
}

impl From<Value> for OpArg {
    fn from(value: Value) -> Self {
        OpArg::Value(value.into())
    }
}
