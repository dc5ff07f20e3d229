//! From what a statement says to the arguments of its operation.

use super::attrs::{self, RawAttr};
use crate::diag::{Diagnostic, Result, Span};
use crate::fusion::Src;
use crate::fusion::ops::{Args, Need, OpArg, OpParamKind, OpRow, arity_error};

/// What a statement gives to its operation, names resolved.
pub(super) struct Written<'a> {
    pub(super) row: &'static OpRow,
    /// The extents in brackets.
    pub(super) shape: Option<Vec<Src>>,
    pub(super) operands: Vec<Src>,
    pub(super) attrs: Vec<RawAttr<'a, Src>>,
    /// From the operation's name to the end.
    pub(super) span: Span,
}

/// The arguments, each with the form that the row asks for.
pub(super) fn arguments(written: Written<'_>) -> Result<Args> {
    let row = written.row;
    let mut args = Args::new(row);
    for attr in &written.attrs {
        let (position, arg) = attrs::argument(row, attr)?;
        if args.at(position).is_some() {
            let message = format!("{}: `{}` is given twice", row.name, attr.name);
            return Err(Diagnostic::user(crate::diag::code::ATTRIBUTE, message).label(attr.span, ""));
        }
        args.set(position, arg);
    }
    if let (Some(shape), Some(position)) =
        (written.shape, row.params.iter().position(|param| param.kind == OpParamKind::Shape))
    {
        args.set(position, OpArg::Values(shape));
    }
    missing_attribute(&args, written.span)?;
    positional(&mut args, written.operands)?;
    Ok(args)
}

/// Operands in the order of the row; a list takes all that are left.
fn positional(args: &mut Args, operands: Vec<Src>) -> Result<()> {
    let row = args.row();
    let given = operands.len();
    let places: Vec<(usize, OpParamKind, Need)> = row
        .params
        .iter()
        .enumerate()
        .filter(|(position, param)| param.kind.is_positional() && args.at(*position).is_none())
        .map(|(position, param)| (position, param.kind, param.need))
        .collect();
    let least = places.iter().filter(|(_, _, need)| *need == Need::Required).count();
    let most = places.len();
    let endless = places.last().is_some_and(|(_, kind, _)| *kind == OpParamKind::Tensors);
    if given < least || (given > most && !endless) {
        return Err(arity_error(row, least, most, given).note(format!("its form is: {}", row.signature())));
    }
    let mut operands = operands.into_iter();
    for (position, kind, _) in places {
        if kind == OpParamKind::Tensors {
            args.set(position, OpArg::Values(operands.by_ref().collect()));
        } else if let Some(operand) = operands.next() {
            args.set(position, OpArg::Value(operand));
        }
    }
    Ok(())
}

/// An attribute that must be given is.
fn missing_attribute(args: &Args, span: Span) -> Result<()> {
    let row = args.row();
    let missing = row.params.iter().enumerate().find(|(position, param)| {
        !param.kind.is_positional() && param.need == Need::Required && args.at(*position).is_none()
    });
    let Some((_, param)) = missing else { return Ok(()) };
    let what = match param.kind {
        OpParamKind::BareDType => "a data type after its operands".to_string(),
        _ => format!("`{}(...)`", param.name),
    };
    Err(Diagnostic::user(crate::diag::code::ATTRIBUTE, format!("{}: needs {what}", row.name))
        .label(span, "")
        .note(format!("its form is: {}", row.signature())))
}
