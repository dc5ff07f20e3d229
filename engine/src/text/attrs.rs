//! Attributes of an operation, checked against its row of the table.

use super::suggest::nearest;
use crate::diag::{Diagnostic, Result, Span, code};
use crate::fusion::Src;
use crate::fusion::ops::{OpArg, OpParamKind, OpRow, form};
use crate::num::{DType, Value};

/// An argument as written; values are names before they are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttrArg<'a, V> {
    Word(&'a str),
    Value(V),
}

/// An attribute as written; no arguments means no parentheses.
#[derive(Clone, Debug)]
pub(super) struct RawAttr<'a, V> {
    pub(super) name: &'a str,
    pub(super) args: Option<Vec<AttrArg<'a, V>>>,
    pub(super) span: Span,
}

/// The parameter that an attribute is about, and its argument.
pub(super) fn argument(row: &'static OpRow, attr: &RawAttr<'_, Src>) -> Result<(usize, OpArg)> {
    let position = find(row, attr)?;
    let param = &row.params[position];
    let wrong = || {
        let message = format!("{}: `{}` {}", row.name, param.name, form(param.kind));
        Diagnostic::user(code::ATTRIBUTE, message)
            .label(attr.span, "")
            .note(format!("its form is: {}", row.signature()))
    };
    let args = attr.args.as_deref();
    let arg = match (param.kind, args) {
        (OpParamKind::Flag, None) => Some(OpArg::Bool(true)),
        (OpParamKind::BareDType, None) => return Ok((position, OpArg::DType(dtype(attr.name, attr.span)?))),
        (OpParamKind::DType, Some([AttrArg::Word(word)])) => {
            return Ok((position, OpArg::DType(dtype(word, attr.span)?)));
        }
        // `axes()` would mean all axes to the builder: too easily written by mistake.
        (OpParamKind::Ints, Some([])) if param.name == "axes" => None,
        (_, None) => None,
        (kind, Some(args)) => listed(kind, args),
    };
    Ok((position, arg.ok_or_else(wrong)?))
}

fn listed(kind: OpParamKind, args: &[AttrArg<'_, Src>]) -> Option<OpArg> {
    let values: Vec<Src> = args
        .iter()
        .map(|arg| match arg {
            AttrArg::Value(src) => Some(*src),
            AttrArg::Word(_) => None,
        })
        .collect::<Option<_>>()?;
    let number = |src: &Src| match src {
        Src::Number(value) => Some(*value),
        _ => None,
    };
    let int = |src: &Src| match number(src) {
        Some(Value::Int(v)) => Some(v),
        _ => None,
    };
    let truth = |src: &Src| match number(src) {
        Some(Value::Bool(v)) => Some(v),
        _ => None,
    };
    match (kind, &values[..]) {
        (OpParamKind::Int, [one]) => int(one).map(OpArg::Int),
        (OpParamKind::Bool, [one]) => truth(one).map(OpArg::Bool),
        (OpParamKind::Number, [one]) => match number(one)? {
            value @ (Value::Int(_) | Value::Float(_)) => Some(OpArg::Number(value.as_f64())),
            _ => None,
        },
        (OpParamKind::Ints, all) => all.iter().map(int).collect::<Option<_>>().map(OpArg::Ints),
        (OpParamKind::Bools, all) => all.iter().map(truth).collect::<Option<_>>().map(OpArg::Bools),
        (OpParamKind::Tensor | OpParamKind::Scalar | OpParamKind::Value, [one]) => Some(OpArg::Value(*one)),
        (OpParamKind::Scalars | OpParamKind::Tensors, _) => Some(OpArg::Values(values)),
        _ => None,
    }
}

/// The position of the parameter that an attribute is about. A word alone that
/// is no parameter's name is a bare data type where the operation takes one.
fn find(row: &'static OpRow, attr: &RawAttr<'_, Src>) -> Result<usize> {
    let hidden = [OpParamKind::BareDType, OpParamKind::Shape];
    let named = |param: &&crate::fusion::ops::OpParam| !hidden.contains(&param.kind);
    let position = row.params.iter().position(|param| param.name == attr.name && named(&param));
    if let Some(position) = position {
        return Ok(position);
    }
    let bare = row.params.iter().position(|param| param.kind == OpParamKind::BareDType);
    if let (Some(position), None) = (bare, &attr.args) {
        return Ok(position);
    }
    let attribute = |param: &&crate::fusion::ops::OpParam| {
        named(param) && (!param.kind.is_positional() || param.need != crate::fusion::ops::Need::Required)
    };
    let names = row.params.iter().filter(attribute).map(|param| param.name);
    let mut error = Diagnostic::user(code::ATTRIBUTE, format!("{}: has no attribute `{}`", row.name, attr.name))
        .label(attr.span, "")
        .note(format!("its form is: {}", row.signature()));
    if let Some(name) = nearest(attr.name, names) {
        error = error.note(format!("did you mean `{name}`?"));
    }
    Err(error)
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
