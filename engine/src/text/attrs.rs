//! Attributes of an operation, checked against its row of the catalog.

use super::suggest::nearest;
use crate::diag::{Diagnostic, Result, Span, code};
use crate::fusion::catalog::{AttrInfo, AttrKind, OpInfo};
use crate::num::{DType, Value};

/// An argument as written.
#[derive(Clone, Debug)]
pub(super) enum AttrArg<'a> {
    Number(Value),
    Word(&'a str),
}

/// An attribute as written; no arguments means no parentheses.
#[derive(Clone, Debug)]
pub(super) struct RawAttr<'a> {
    pub(super) name: &'a str,
    pub(super) args: Option<Vec<AttrArg<'a>>>,
    pub(super) span: Span,
}

/// Attributes that have the forms that the catalog asks for.
#[derive(Debug, Default)]
pub(super) struct Attrs {
    items: Vec<(&'static str, AttrValue)>,
}

#[derive(Clone, Debug)]
enum AttrValue {
    Flag,
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    Number(f64),
    DType(DType),
}

impl Attrs {
    /// Checks names, forms and presence.
    pub(super) fn check(info: &OpInfo, raw: &[RawAttr<'_>], statement: Span) -> Result<Self> {
        let mut attrs = Self::default();
        for attr in raw {
            let row = find_row(info, attr)?;
            if attrs.items.iter().any(|(name, _)| *name == row.name) {
                let message = format!("{}: `{}` is given twice", info.name, attr.name);
                return Err(Diagnostic::user(code::ATTRIBUTE, message).label(attr.span, ""));
            }
            attrs.items.push((row.name, value_of(info, &row, attr)?));
        }
        let missing = info.attrs.iter().find(|row| row.required && attrs.get(row.name).is_none());
        if let Some(row) = missing {
            let what = match row.kind {
                AttrKind::BareDType => "a data type after its operands".to_string(),
                _ => format!("`{}(...)`", row.name),
            };
            return Err(Diagnostic::user(code::ATTRIBUTE, format!("{}: needs {what}", info.name))
                .label(statement, "")
                .note(format!("its form is: {}", info.signature())));
        }
        Ok(attrs)
    }

    fn get(&self, name: &str) -> Option<&AttrValue> {
        self.items.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    pub(super) fn ints(&self, name: &str) -> &[i64] {
        match self.get(name) {
            Some(AttrValue::Ints(values)) => values,
            _ => &[],
        }
    }
    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.ints(name).first().copied()
    }
    pub(super) fn bools(&self, name: &str) -> &[bool] {
        match self.get(name) {
            Some(AttrValue::Bools(values)) => values,
            _ => &[],
        }
    }
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(AttrValue::Number(value)) => Some(*value),
            _ => None,
        }
    }
    pub(super) fn dtype(&self, name: &str) -> Option<DType> {
        match self.get(name) {
            Some(AttrValue::DType(dtype)) => Some(*dtype),
            _ => None,
        }
    }
}

/// The row that an attribute is about. A word alone that is no attribute's name
/// is a bare data type where the operation takes one.
fn find_row(info: &OpInfo, attr: &RawAttr<'_>) -> Result<AttrInfo> {
    let named = info.attrs.iter().find(|row| row.name == attr.name && row.kind != AttrKind::BareDType);
    if let Some(row) = named {
        return Ok(*row);
    }
    let bare = info.attrs.iter().find(|row| row.kind == AttrKind::BareDType);
    if let (Some(row), None) = (bare, &attr.args) {
        return Ok(*row);
    }
    let names = info.attrs.iter().filter(|row| row.kind != AttrKind::BareDType).map(|row| row.name);
    let mut error = Diagnostic::user(code::ATTRIBUTE, format!("{}: has no attribute `{}`", info.name, attr.name))
        .label(attr.span, "")
        .note(format!("its form is: {}", info.signature()));
    if let Some(name) = nearest(attr.name, names) {
        error = error.note(format!("did you mean `{name}`?"));
    }
    Err(error)
}

fn value_of(info: &OpInfo, row: &AttrInfo, attr: &RawAttr<'_>) -> Result<AttrValue> {
    let args = attr.args.as_deref();
    let value = match (row.kind, args) {
        (AttrKind::Flag, None) => Some(AttrValue::Flag),
        (AttrKind::BareDType, None) => return dtype(attr.name, attr.span).map(AttrValue::DType),
        (AttrKind::DType, Some([AttrArg::Word(word)])) => return dtype(word, attr.span).map(AttrValue::DType),
        (AttrKind::Int, Some([AttrArg::Number(Value::Int(v))])) => Some(AttrValue::Ints(vec![*v])),
        // `axes()` would mean all axes to the builder: too easily written by mistake.
        (AttrKind::Ints, Some([])) if row.name == "axes" => None,
        (AttrKind::Ints, Some(args)) => all_ints(args).map(AttrValue::Ints),
        (AttrKind::Bools, Some(args)) => all_bools(args).map(AttrValue::Bools),
        (AttrKind::Number, Some([AttrArg::Number(v @ (Value::Int(_) | Value::Float(_)))])) => {
            Some(AttrValue::Number(v.as_f64()))
        }
        _ => None,
    };
    let form = match row.kind {
        AttrKind::Flag => "stands alone",
        AttrKind::BareDType => "is a data type",
        AttrKind::DType => "takes one data type",
        AttrKind::Int => "takes one integer",
        AttrKind::Ints => "takes integers",
        AttrKind::Bools => "takes true and false",
        AttrKind::Number => "takes one number",
    };
    value.ok_or_else(|| {
        let message = format!("{}: `{}` {form}", info.name, row.name);
        Diagnostic::user(code::ATTRIBUTE, message)
            .label(attr.span, "")
            .note(format!("its form is: {}", info.signature()))
    })
}

fn all_ints(args: &[AttrArg<'_>]) -> Option<Vec<i64>> {
    args.iter()
        .map(|arg| match arg {
            AttrArg::Number(Value::Int(v)) => Some(*v),
            _ => None,
        })
        .collect()
}

fn all_bools(args: &[AttrArg<'_>]) -> Option<Vec<bool>> {
    args.iter()
        .map(|arg| match arg {
            AttrArg::Number(Value::Bool(v)) => Some(*v),
            _ => None,
        })
        .collect()
}

/// The data type of a name, or a refusal with the nearest one.
pub(super) fn dtype(word: &str, span: Span) -> Result<DType> {
    if let Some(dtype) = DType::from_name(word) {
        return Ok(dtype);
    }
    let error = Diagnostic::user(code::UNKNOWN_DTYPE, format!("unknown data type `{word}`"));
    let names: Vec<&str> = DType::FUSION.iter().map(|dtype| dtype.name()).collect();
    let label = nearest(word, names.iter().copied()).map(|name| format!("did you mean `{name}`?"));
    Err(error.label(span, label.unwrap_or_default()).note(format!("data types: {}", names.join(" "))))
}
