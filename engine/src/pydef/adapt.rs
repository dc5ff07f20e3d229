//! Where nvFuser's signature of an operation says the same as the table's row
//! in another way.

use super::interp::Interp;
use super::opcall::Given;
use super::recipe::Number;
use super::value::{Py, Seq};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::Operand;
use crate::fusion::ops::{self, Call, OpRow, Param};

/// nvFuser's names of operations that the table has under another name.
const NAMES: &[(&str, &str)] = &[("ceilDiv", "ceildiv"), ("fmax", "max"), ("fmin", "min")];

/// The row of an operation of nvFuser's form.
pub(super) fn row(name: &str) -> Option<&'static OpRow> {
    let name = NAMES.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours);
    ops::find(name)
}

/// Whether nvFuser lists results that may be None.
pub(super) fn has_optional_results(name: &str) -> bool {
    matches!(name, "grouped_mm" | "scaled_mm")
}

/// The keyword and the text of a parameter whose form differs from the row's.
pub(super) fn printed(_call: &Call, _param: &Param, _operands: &[String]) -> Option<(&'static str, String)> {
    None
}

/// Rewrites arguments to what the row takes.
pub(super) fn arguments(interp: &Interp<'_>, draft: usize, given: &mut Given<'_>) -> Result<()> {
    match given.row.name {
        "sum" | "prod" | "max" | "min" => reduction(given),
        "squeeze" => squeeze(interp, draft, given)?,
        _ => {}
    }
    Ok(())
}

/// `sum(x, DataType.Float)`: the second argument is the type; `dim=1` for one axis.
fn reduction(given: &mut Given<'_>) {
    if let Some(one) = given.take("dim")
        && let Some(place) = given.param("axes")
    {
        *place = Some(one);
    }
    let second = given.param("axes").and_then(|place| place.take_if(|(value, _)| matches!(value, Py::DType(_))));
    if let (Some(dtype), Some(place)) = (second, given.param("dtype")) {
        *place = Some(dtype);
    }
}

/// `dims=[0, 2]` for the flags of the row. Whether the axes are expanded ones is
/// known from the tensor.
fn squeeze(interp: &Interp<'_>, draft: usize, given: &mut Given<'_>) -> Result<()> {
    given.take("squeeze_expanded");
    given.more.clear();
    let dims = match given.take("dims") {
        Some(dims) => Some(dims),
        None => given.param("flags").and_then(Option::take),
    };
    let rank = match given.param("x") {
        Some(Some((Py::Node(_, x @ Operand::Tensor(_)), _))) => interp.drafts[draft].rank(*x).unwrap_or(0),
        _ => return Ok(()),
    };
    let Some((dims, span)) = dims else { return Ok(()) };
    let mut flags = vec![false; rank];
    for axis in interp.integers(Some(&dims), "dims")? {
        let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match from_start.and_then(|axis| usize::try_from(axis).ok()).and_then(|axis| flags.get_mut(axis)) {
            Some(flag) => *flag = true,
            None => {
                let message = format!("squeeze: axis {axis} of an operand of rank {rank}");
                return Err(Diagnostic::user(code::AXIS, message).label(span, ""));
            }
        }
    }
    let flags = flags.into_iter().map(|flag| Py::Number(Number::Bool(flag))).collect();
    if let (Some(seq), Some(place)) = (Seq::new(flags), given.param("flags")) {
        *place = Some((Py::List(seq), span));
    }
    Ok(())
}
