//! Ranks and types as nvFuser has them, where the builder follows PyTorch or
//! leaves the choice to the user.
//!
//! - Elementwise operands of lower rank get axes of size 1 in front.
//! - A tensor without axes does not widen the type, like a scalar.
//! - An integer tensor with a float or complex scalar becomes the scalar's type
//!   (PyTorch: the default float type).
//! - Moments of integers are `f64`.
//! - Some operations on the small floats give their operand's type back.

use super::interp::Interp;
use super::opcall::GivenArgs;
use super::value::Py;
use engine::diag::Result;
use engine::fusion::ops::{Args, OpParam, OpParamKind, PyArgs, PyResult};
use engine::fusion::{Operand, Src};
use engine::num::{DType, DTypeClass, promote, promote_all};

impl<'a> Interp<'a> {
    /// Adds an operation to a definition.
    pub(super) fn build(&mut self, draft: usize, mut given: GivenArgs<'a>) -> Result<Vec<Operand>> {
        let row = given.row;
        if given.params.iter().zip(row.params).filter(|(_, param)| param.kind == OpParamKind::Value).count() > 1 {
            self.align(draft, &mut given)?;
        }
        if row.py.result == PyResult::Moment
            && let Some(Some((value, _))) = given.params.first_mut()
            && let Py::Node(_, x @ Operand::Tensor(_)) = value
            && self.drafts[draft].builder.dtype(*x).class() <= DTypeClass::Int
        {
            *value = Py::Node(draft, self.drafts[draft].builder.cast(*x, DType::F64)?);
        }
        let kept = self.kept(draft, &given);
        let args: Args = self.bound(draft, given)?;
        let args = self.renewed_table(draft, args);
        let before = self.drafts[draft].builder.op_count();
        let mut results = self.drafts[draft].builder.apply(&args)?;
        if row.py.updates_table
            && let Some(&rows) = results.first()
        {
            self.renew_table(draft, &args, rows)?;
        }
        self.added(self.drafts[draft].builder.op_count() - before)?;
        if let Some(dtype) = kept.filter(|_| args.dtype("dtype").is_none()) {
            let builder = &mut self.drafts[draft].builder;
            // Counts keep their own type.
            for result in results.iter_mut().take(2) {
                if matches!(result, Operand::Tensor(_)) && builder.dtype(*result) != dtype {
                    *result = builder.cast(*result, dtype)?;
                }
            }
        }
        Ok(results)
    }

    /// The type that results keep, if it is one that only stores.
    fn kept(&self, draft: usize, given: &GivenArgs<'_>) -> Option<DType> {
        let builder = &self.drafts[draft].builder;
        let dtypes = |skip: usize| {
            let operands = given.params.iter().skip(skip).filter_map(tensor);
            operands.map(|operand| builder.dtype(operand)).collect::<Vec<_>>()
        };
        let result = given.row.py.result;
        let dtype = match result {
            PyResult::First => dtypes(0).first().copied(),
            PyResult::Chosen => promote_all(&dtypes(1), &[]),
            PyResult::Same | PyResult::Moment => None,
        };
        let scalars_raise =
            || result == PyResult::Chosen && self.scalar_types(draft, given).any(|s| s.class() > DTypeClass::Float);
        dtype.filter(|dtype| dtype.is_reduced_float() && !scalars_raise())
    }

    /// The types of the scalar operands that take part in the common type.
    fn scalar_types<'b>(&'b self, draft: usize, given: &'b GivenArgs<'_>) -> impl Iterator<Item = DType> + 'b {
        let row = given.row;
        given.params.iter().zip(row.params).filter(|(_, param)| is_typed(param)).filter_map(move |(place, _)| {
            match place {
                Some((Py::Node(_, operand @ Operand::Scalar(_)), _)) => {
                    Some(self.drafts[draft].builder.dtype(*operand))
                }
                Some((Py::Number(number), _)) => super::draft::value_of(*number).ok().map(|(_, dtype)| dtype),
                _ => None,
            }
        })
    }

    /// Ranks and types of elementwise operands.
    fn align(&mut self, draft: usize, given: &mut GivenArgs<'a>) -> Result<()> {
        let row = given.row;
        let scalars: Vec<DType> = self.scalar_types(draft, given).collect();
        let definition = &mut self.drafts[draft];
        let Some(highest) = given.params.iter().filter_map(|place| definition.rank(tensor(place)?)).max() else {
            return Ok(());
        };
        let typed = |place: &Option<_>, param: &OpParam| if is_typed(param) { tensor(place) } else { None };
        let places = || given.params.iter().zip(row.params);
        let of_rank = |zero: bool| {
            let operands = places().filter_map(|(place, param)| typed(place, param));
            let chosen = operands.filter(|operand| (definition.rank(*operand) == Some(0)) == zero);
            chosen.map(|operand| definition.builder.dtype(operand)).collect::<Vec<_>>()
        };
        let (with_axes, points) = (of_rank(false), of_rank(true));
        let common = promote_all(&with_axes, &[]).or(promote_all(&points, &[]));
        // Bounds follow the type of what they bound.
        let bounded = row.py.args == PyArgs::Bounds;
        let raised = common.filter(|common| common.class() <= DTypeClass::Int && !bounded).and_then(|common| {
            let scalar = scalars.into_iter().reduce(promote)?;
            (scalar.class() > DTypeClass::Int).then(|| promote(common, scalar))
        });
        for (place, param) in given.params.iter_mut().zip(row.params) {
            let Some(mut operand) = tensor(place) else {
                // A bound that is a number of another class is converted.
                if let (true, Some(common), Some((value, _))) = (bounded && param.name != "x", common, place.as_mut()) {
                    *value = converted(definition, draft, value, common)?;
                }
                continue;
            };
            let rank = definition.rank(operand).unwrap_or(highest);
            let own = definition.builder.dtype(operand);
            let target = match (is_typed(param), common, raised) {
                (false, ..) => None,
                (_, _, Some(raised)) => Some(raised),
                (_, Some(common), None) if rank == 0 && highest > 0 && common.class() >= own.class() => Some(common),
                _ => None,
            };
            if let Some(target) = target {
                operand = definition.builder.cast(operand, target)?;
            }
            if rank < highest {
                let flags: Vec<bool> = (0..highest).map(|axis| axis < highest - rank).collect();
                operand = definition.builder.broadcast(operand, &flags)?;
            }
            if let Some((value, _)) = place {
                *value = Py::Node(draft, operand);
            }
        }
        Ok(())
    }
}

/// A scalar as the type of what it bounds, if its class is another one.
fn converted(definition: &mut super::draft::DefinitionDraft, draft: usize, value: &Py, dtype: DType) -> Result<Py> {
    let scalar = match value {
        Py::Number(number) => definition.constant(*number, None)?,
        Py::Node(_, scalar) => *scalar,
        other => return Ok(other.clone()),
    };
    if definition.builder.dtype(scalar).class() <= dtype.class() {
        return Ok(value.clone());
    }
    // Infinities bound integers by their limits: casts saturate.
    Ok(Py::Node(draft, definition.builder.cast(Src::from(scalar), dtype)?))
}

/// Whether an operand takes part in the common type: the condition of `where`
/// and the factor of `addcmul` do not.
fn is_typed(param: &OpParam) -> bool {
    param.kind == OpParamKind::Value && param.typed
}

fn tensor(place: &Option<(Py, engine::diag::Span)>) -> Option<Operand> {
    match place {
        Some((Py::Node(_, operand @ Operand::Tensor(_)), _)) => Some(*operand),
        _ => None,
    }
}
