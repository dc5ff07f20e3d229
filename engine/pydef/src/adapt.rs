//! Where nvFuser's signature of an operation says the same as the table's row
//! in another way.

use super::interp::Interp;
use super::opcall::GivenArgs;
use super::recipe::PyNumber;
use super::value::Py;
use engine::diag::Span;
use engine::fusion::ops::{self, OpRow, PyArgs};
use engine::num::{DType, DTypeClass, eval};

/// The row of an operation of nvFuser's form.
pub(super) fn row(name: &str) -> Option<&'static OpRow> {
    ops::all().find(|row| row.py.names.contains(&name)).or_else(|| ops::find(name))
}

/// Rewrites arguments to what the row takes.
pub(super) fn arguments(interp: &mut Interp<'_>, draft: usize, given: &mut GivenArgs<'_>) {
    match given.row.py.args {
        PyArgs::Same => {}
        PyArgs::Reduction => reduction(given),
        PyArgs::Bounds => clamp(interp, draft, given),
        PyArgs::Grouped => grouped(interp, draft, given),
        PyArgs::Generator => generator(interp, draft, given),
    }
}

/// `sum(x, DataType.Float)`: the second argument is the type; `dim=1` for one axis.
fn reduction(given: &mut GivenArgs<'_>) {
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

/// The form with scales gives bfloat16 even where the scales are None; the type
/// Null is that of the first matrix.
fn grouped(interp: &Interp<'_>, draft: usize, given: &mut GivenArgs<'_>) {
    let listed = given.param("scale1").is_some_and(|place| matches!(place, Some((Py::None, _))));
    let own = match given.param("mat1") {
        Some(Some((Py::Node(_, mat1), _))) => interp.drafts[draft].builder.dtype(*mat1),
        _ => return,
    };
    let Some(place) = given.param("dtype") else { return };
    match place {
        None if listed => *place = Some((Py::DType(Some(DType::BF16)), Span::default())),
        Some((Py::DType(dtype @ None), _)) => *dtype = Some(own),
        _ => {}
    }
}

/// `clamp(x, None, 1)`: a bound that is None does not bound.
fn clamp(interp: &Interp<'_>, draft: usize, given: &mut GivenArgs<'_>) {
    let dtype = match given.param("x") {
        Some(Some((Py::Node(_, x), _))) => interp.drafts[draft].builder.dtype(*x),
        _ => return,
    };
    for (name, above) in [("low", false), ("high", true)] {
        let limit = match dtype.class() {
            DTypeClass::Float => PyNumber::Float(if above { f64::INFINITY } else { f64::NEG_INFINITY }),
            DTypeClass::Int => {
                let limit = if above { eval::greatest_int(dtype) } else { eval::least_int(dtype) };
                let unsigned = dtype == DType::U64 && above;
                PyNumber::Int(if unsigned { limit.cast_unsigned().into() } else { limit.into() })
            }
            DTypeClass::Bool => PyNumber::Bool(above),
            DTypeClass::Complex => continue,
        };
        if let Some(place) = given.param(name)
            && place.as_ref().is_none_or(|(value, _)| matches!(value, Py::None))
        {
            let span = place.as_ref().map(|(_, span)| *span).unwrap_or_default();
            *place = Some((Py::Number(limit), span));
        }
    }
}

/// Without a seed and an offset an operation takes them from the generator: its
/// seed, and a quarter of its offset plus the number of such operations before.
fn generator(interp: &mut Interp<'_>, draft: usize, given: &mut GivenArgs<'_>) {
    let left_out = |place: Option<&mut Option<(Py, Span)>>| {
        place.is_some_and(|place| place.as_ref().is_none_or(|(value, _)| matches!(value, Py::None)))
    };
    if !left_out(given.param("rng_seed")) || !left_out(given.param("rng_offset")) {
        return;
    }
    let state = interp.generator;
    let ordinal = &mut interp.drafts[draft].draws;
    let offset = (state.offset / 4).wrapping_add(*ordinal);
    *ordinal += 1;
    for (name, value) in [("rng_seed", state.seed), ("rng_offset", offset)] {
        if let Some(place) = given.param(name) {
            *place = Some((Py::int(value), Span::default()));
        }
    }
}
