//! `fd.ops.name(...)`: arguments by position and keyword, bound to the row of
//! the table of operations. Where nvFuser's signature differs from the row by
//! more than a name, [`super::adapt`] rewrites the arguments first.

use super::adapt;
use super::ast::Name;
use super::call::Arguments;
use super::interp::{Interp, float_of};
use super::recipe::PyNumber;
use super::value::Py;
use engine::diag::{Diagnostic, Result, Span, code};
use engine::fusion::ops::{self, Args, Need, OpArg, OpParam, OpParamKind, OpRow, form};
use engine::fusion::{Operand, Src};
use engine::text::nearest;

/// What is given for the parameters of a row.
pub(super) struct GivenArgs<'a> {
    pub(super) row: &'static OpRow,
    /// By parameter of the row.
    pub(super) params: Vec<Option<(Py, Span)>>,
    /// By position, behind the row's last parameter.
    pub(super) more: Vec<(Py, Span)>,
    /// By keywords that the row does not have.
    pub(super) others: Vec<(&'a str, Py, Span)>,
}

impl GivenArgs<'_> {
    /// Takes what is given for a keyword that the row does not have.
    pub(super) fn take(&mut self, name: &str) -> Option<(Py, Span)> {
        let position = self.others.iter().position(|(other, ..)| *other == name)?;
        let (_, value, span) = self.others.remove(position);
        Some((value, span))
    }

    /// What is given for a parameter of the row.
    pub(super) fn param(&mut self, name: &str) -> Option<&mut Option<(Py, Span)>> {
        let position = self.row.position(name)?;
        self.params.get_mut(position)
    }
}

impl<'a> Interp<'a> {
    /// `fd.ops.name(...)`.
    pub(super) fn operation_call(
        &mut self,
        draft: usize,
        name: &'a Name,
        arguments: &Arguments<'a>,
        targets: &[String],
    ) -> Py {
        let before = self.active.replace(draft);
        let result = match self.known(arguments, false) {
            Err(poison) => poison,
            Ok(()) => {
                let result = self.operation(draft, name, arguments, targets);
                self.settle(result, arguments.span)
            }
        };
        self.active = before;
        result
    }

    fn operation(&mut self, draft: usize, name: &'a Name, arguments: &Arguments<'a>, targets: &[String]) -> Result<Py> {
        if let Some(result) = self.special(draft, &name.text, arguments)? {
            return Ok(result);
        }
        let Some(row) = adapt::row(&name.text) else {
            let message = format!("unknown operation `{}`", name.text);
            let hint =
                nearest(&name.text, ops::all().map(|row| row.name)).map(|near| format!("did you mean `{near}`?"));
            return Err(Diagnostic::user(code::UNKNOWN_OP, message)
                .label(name.span, hint.unwrap_or_default())
                .note("operations are listed in cases/README.md"));
        };
        let mut given = collect(row, arguments)?;
        adapt::arguments(self, draft, &mut given);
        let results = self.build(draft, given)?;
        self.drafts[draft].name_results(targets, &results)?;
        let mut values: Vec<Py> = results.into_iter().map(|result| Py::Node(draft, result)).collect();
        if values.len() == 1 && targets.len() <= 1 {
            return Ok(values.remove(0));
        }
        // Results that nvFuser lists but the call does not ask for are None there.
        while values.len() < targets.len() && row.py.optional_results {
            values.push(Py::None);
        }
        Ok(self.list(values, true, arguments.span))
    }

    /// An operator between values, or a method of one.
    pub(super) fn operator_call(&mut self, draft: usize, name: &'static str, operands: Vec<Py>, span: Span) -> Py {
        let result = self.operator(draft, name, operands, span);
        self.settle(result, span)
    }

    fn operator(&mut self, draft: usize, name: &'static str, operands: Vec<Py>, span: Span) -> Result<Py> {
        let row = ops::find(name).ok_or_else(|| Diagnostic::bug(format!("the table has no `{name}`")))?;
        let params = row.params.iter().zip(operands.into_iter().map(Some).chain(std::iter::repeat(None)));
        let params = params.map(|(_, operand)| operand.map(|value| (value, span))).collect();
        let results = self.build(draft, GivenArgs { row, params, more: Vec::new(), others: Vec::new() })?;
        results.first().map(|result| Py::Node(draft, *result)).ok_or_else(|| Diagnostic::bug("no result"))
    }

    /// The arguments in the form that the row asks for.
    pub(super) fn bound(&mut self, draft: usize, given: GivenArgs<'a>) -> Result<Args> {
        let row = given.row;
        if let Some((name, _, span)) = given.others.first() {
            return Err(unknown_argument(row, name, *span));
        }
        if let Some((_, span)) = given.more.first() {
            let (most, count) = (row.params.len(), row.params.len() + given.more.len());
            let message = format!(
                "{}: takes at most {most} argument{}, {count} were given",
                row.name,
                if most == 1 { "" } else { "s" }
            );
            return Err(Diagnostic::user(code::ARITY, message).label(*span, "").note(py_signature(row)));
        }
        let mut args = Args::new(row);
        for (position, (param, value)) in row.params.iter().zip(given.params).enumerate() {
            let Some((value, span)) = value else {
                if param.need == Need::Required {
                    let message = format!("{}: the argument `{}` is missing", row.name, param.py);
                    return Err(Diagnostic::user(code::ARITY, message).note(py_signature(row)));
                }
                continue;
            };
            let placed = |error: Box<Diagnostic>| if error.labels.is_empty() { error.label(span, "") } else { error };
            if let Some(arg) = self.arg(draft, row, param, &value).map_err(placed)? {
                args.set(position, arg);
            }
        }
        Ok(args)
    }

    /// An argument in the form of its parameter; `None` is what leaving it out is.
    fn arg(&mut self, draft: usize, row: &OpRow, param: &OpParam, value: &Py) -> Result<Option<OpArg>> {
        let wrong = || {
            let message = format!("{}: `{}` {}, not {}", row.name, param.py, form(param.kind), value.what());
            Diagnostic::user(code::ATTRIBUTE, message).note(py_signature(row))
        };
        if matches!(value, Py::None | Py::DType(None)) {
            return if param.need == Need::Required { Err(wrong()) } else { Ok(None) };
        }
        let arg = match param.kind {
            OpParamKind::Tensor => match value {
                Py::Node(_, operand @ Operand::Tensor(_)) => Some(OpArg::Value((*operand).into())),
                Py::Node(..) | Py::Number(_) => {
                    let message = format!("{}: `{}` is a tensor, not {}", row.name, param.py, value.what());
                    return Err(
                        Diagnostic::user(code::NOT_TENSOR, message).note("turn a scalar into a tensor with full")
                    );
                }
                _ => None,
            },
            OpParamKind::Scalar | OpParamKind::Value => match value {
                Py::Node(..) | Py::Number(_) => Some(OpArg::Value(self.src(draft, value)?)),
                _ => None,
            },
            OpParamKind::Tensors | OpParamKind::Shape | OpParamKind::Scalars => {
                self.sources(draft, value)?.map(OpArg::Values)
            }
            OpParamKind::Flag | OpParamKind::Bool => match value {
                Py::Number(PyNumber::Bool(flag)) => Some(OpArg::Bool(*flag)),
                Py::Number(PyNumber::Int(flag @ 0..=1)) => Some(OpArg::Bool(*flag == 1)),
                _ => None,
            },
            OpParamKind::Int => self.integer(value).map(OpArg::Int),
            OpParamKind::Ints => self.integers(Some(value), param.py).ok().map(OpArg::Ints),
            OpParamKind::Bools => value.items().and_then(|items| {
                let flags: Option<Vec<bool>> = items
                    .iter()
                    .map(|item| if let Py::Number(PyNumber::Bool(flag)) = item { Some(*flag) } else { None })
                    .collect();
                flags.map(OpArg::Bools)
            }),
            OpParamKind::Number => float_of(value).or_else(|| self.constant_float(value)).map(OpArg::Number),
            OpParamKind::DType | OpParamKind::BareDType => match value {
                Py::DType(Some(dtype)) => Some(OpArg::DType(*dtype)),
                _ => None,
            },
        };
        arg.map(Some).ok_or_else(wrong)
    }

    /// A value of a definition, or a number with the type that nvFuser gives it.
    fn src(&mut self, draft: usize, value: &Py) -> Result<Src> {
        match value {
            Py::Node(_, operand) => Ok((*operand).into()),
            Py::Number(number) => Ok(self.drafts[draft].constant(*number, None)?.into()),
            other => Err(Diagnostic::user(code::NOT_SCALAR, format!("{} is no value of a definition", other.what()))),
        }
    }

    fn sources(&mut self, draft: usize, value: &Py) -> Result<Option<Vec<Src>>> {
        match value.items() {
            Some(items) => items.iter().map(|item| self.src(draft, item)).collect::<Result<_>>().map(Some),
            None if matches!(value, Py::Node(..) | Py::Number(_)) => Ok(Some(vec![self.src(draft, value)?])),
            None => Ok(None),
        }
    }

    fn constant_float(&self, value: &Py) -> Option<f64> {
        let Py::Node(draft, Operand::Scalar(s)) = value else { return None };
        self.drafts[*draft].builder.known(Src::Scalar(*s)).map(|value| value.as_f64())
    }

    /// Operations of the older form, and those whose result is no tensor.
    fn special(&mut self, draft: usize, name: &str, arguments: &Arguments<'a>) -> Result<Option<Py>> {
        match name {
            "shape" | "tensor_sizes" => {
                let Some(Py::Node(_, operand)) = arguments.get(0, &["arg"]).cloned() else {
                    return Err(Diagnostic::user(code::NOT_TENSOR, format!("{name}: takes a tensor")));
                };
                self.sizes_of(draft, operand, arguments.span).map(Some)
            }
            "at" => {
                let items = arguments.get(0, &["arg"]).and_then(Py::items);
                let index = arguments.get(1, &["index"]).and_then(|index| self.integer(index));
                let item = items.zip(index).and_then(|(items, index)| {
                    let at = if index < 0 { index.checked_add(items.len() as i64)? } else { index };
                    items.get(usize::try_from(at).ok()?).cloned()
                });
                item.map(Some).ok_or_else(|| Diagnostic::user(code::AXIS, "at: takes a vector and an index into it"))
            }
            _ => Ok(None),
        }
    }

    fn sizes_of(&mut self, draft: usize, operand: Operand, span: Span) -> Result<Py> {
        let Some(rank) = self.drafts[draft].rank(operand) else {
            return Err(Diagnostic::user(code::NOT_TENSOR, "a scalar has no sizes"));
        };
        let mut sizes = Vec::with_capacity(rank);
        for axis in 0..rank as i64 {
            sizes.push(Py::Node(draft, self.drafts[draft].builder.size(operand, axis)?));
        }
        Ok(self.list(sizes, false, span))
    }

    /// `value.name(...)`.
    pub(super) fn node_method(
        &mut self,
        draft: usize,
        operand: Operand,
        name: &Name,
        arguments: &Arguments<'a>,
        span: Span,
    ) -> Py {
        let result = match name.text.as_str() {
            "shape" => self.sizes_of(draft, operand, span),
            "size" => match arguments.get(0, &["dim"]).map(|axis| self.integer(axis)) {
                None => self.sizes_of(draft, operand, span),
                Some(Some(axis)) => self.drafts[draft].builder.size(operand, axis).map(|size| Py::Node(draft, size)),
                Some(None) => Err(Diagnostic::user(code::ATTRIBUTE, "size: `dim` takes one integer")),
            },
            "dtype" => Ok(Py::DType(Some(self.drafts[draft].builder.dtype(operand)))),
            "dim" => match self.drafts[draft].rank(operand) {
                Some(rank) => Ok(Py::int(rank as i64)),
                None => Err(Diagnostic::user(code::NOT_TENSOR, "a scalar has no axes")),
            },
            // What is called on a tensor to schedule it says how, not what.
            _ if self.drafts[draft].rank(operand).is_some() && self.active.is_none() => {
                Ok(Py::unknown(format!("`.{}(...)` of a tensor", name.text), span))
            }
            other => Err(Diagnostic::user(code::PY_CONSTRUCT, format!("`.{other}(...)` of a value is not read"))
                .label(name.span, "")
                .note("values have .size(axis), .shape(), .dtype() and .ndim; everything else is fd.ops")),
        };
        self.settle(result, span)
    }

    /// `value[...]`.
    pub(super) fn node_index(&mut self, _draft: usize, _operand: Operand, _parts: &[Py], span: Span) -> Py {
        let error = Diagnostic::user(code::PY_CONSTRUCT, "a part of a value is not read")
            .note("write fd.ops.slice, fd.ops.select or fd.ops.size");
        self.refuse(error, span)
    }
}

/// Arguments by parameter of the row.
fn collect<'a>(row: &'static OpRow, arguments: &Arguments<'a>) -> Result<GivenArgs<'a>> {
    let mut given = GivenArgs { row, params: vec![None; row.params.len()], more: Vec::new(), others: Vec::new() };
    for (position, argument) in arguments.positional.iter().enumerate() {
        match given.params.get_mut(position) {
            Some(place) => *place = Some(argument.clone()),
            None => given.more.push(argument.clone()),
        }
    }
    for (name, value, span) in &arguments.keywords {
        let position = row.params.iter().position(|param| param.py == name.text);
        match position {
            Some(position) if given.params[position].is_some() => {
                let message = format!("{}: the argument `{}` is given twice", row.name, name.text);
                return Err(Diagnostic::user(code::ATTRIBUTE, message).label(name.span, ""));
            }
            Some(position) => given.params[position] = Some((value.clone(), *span)),
            None => given.others.push((name.text.as_str(), value.clone(), name.span)),
        }
    }
    Ok(given)
}

fn unknown_argument(row: &OpRow, name: &str, span: Span) -> Box<Diagnostic> {
    let hint = nearest(name, row.params.iter().map(|param| param.py)).map(|near| format!("did you mean `{near}`?"));
    Diagnostic::user(code::ATTRIBUTE, format!("{}: has no argument `{name}`", row.name))
        .label(span, hint.unwrap_or_default())
        .note(py_signature(row))
}

/// How an operation is written in nvFuser's form.
pub(super) fn py_signature(row: &OpRow) -> String {
    let params: Vec<String> = row
        .params
        .iter()
        .map(|param| match param.need {
            Need::Required => param.py.to_string(),
            Need::Optional => format!("{}=None", param.py),
            Need::Bool(value) => format!("{}={}", param.py, if value { "True" } else { "False" }),
            Need::Int(value) => format!("{}={value}", param.py),
            Need::Number(value) => format!("{}={value:?}", param.py),
            Need::DType(value) => format!("{}=DataType.{}", param.py, super::names::py_name(value)),
        })
        .collect();
    format!("its form is: fd.ops.{}({})", row.name, params.join(", "))
}
