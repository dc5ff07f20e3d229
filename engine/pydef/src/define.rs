//! What is called on `fd`: inputs, constants, outputs and runs.

use super::ast::Name;
use super::call::Arguments;
use super::draft::{Declared, described};
use super::interp::Interp;
use super::recipe::PyNumber;
use super::value::Py;
use engine::diag::{Diagnostic, Result, Span, code};
use engine::fusion::ops::{self, Args, OpArg};
use engine::fusion::{Operand, Src};
use engine::num::DType;
use engine::text::nearest;

/// Methods of `fd` that make a definition.
const METHODS: [&str; 7] =
    ["define_tensor", "define_scalar", "define_constant", "define_vector", "from_pytorch", "add_output", "ops"];
/// Methods of `fd` that run it; the first argument is what is passed.
const RUNS: [&str; 4] = ["execute", "manual_execute", "validate", "manual_validate"];
/// Other methods, which are no part of a definition.
const OTHERS: [&str; 8] = [
    "repro_script_for",
    "last_repro_script",
    "validate_definition",
    "profile",
    "getValTolerances",
    "debug_output",
    "fusion_ir",
    "is_compiled",
];

/// The most scalars of a vector.
const MAX_VECTOR: i64 = 1024;

impl<'a> Interp<'a> {
    /// `fd.name(...)`.
    pub(super) fn definition_method(
        &mut self,
        draft: usize,
        name: &Name,
        arguments: &Arguments<'a>,
        targets: &[String],
        span: Span,
    ) -> Py {
        let method = name.text.as_str();
        if RUNS.contains(&method) {
            if let Some(inputs) = arguments.get(0, &["inputs"]).cloned() {
                self.set_inputs(draft, &inputs, span);
            }
            return Py::unknown("a result of the run", span);
        }
        if OTHERS.contains(&method) {
            return Py::unknown(format!("`fd.{method}(...)`"), span);
        }
        let before = self.active.replace(draft);
        let result = match self.known(arguments, method == "from_pytorch") {
            Err(poison) => poison,
            Ok(()) => {
                let result = match method {
                    "define_tensor" => self.define_tensor(draft, arguments, targets),
                    "define_scalar" | "define_constant" => self.define_scalar(draft, arguments, targets),
                    "define_vector" => self.define_vector(draft, arguments, targets),
                    "from_pytorch" => self.declared_like(draft, arguments, targets),
                    "add_output" => self.add_output(draft, arguments),
                    _ => Err(unknown_method(name)),
                };
                self.settle(result, span)
            }
        };
        self.active = before;
        result
    }

    /// Whether all arguments are known; otherwise says so.
    pub(super) fn known(&mut self, arguments: &Arguments<'a>, _tensors: bool) -> Result<(), Py> {
        let Some((value, span)) = arguments.find_unknown() else { return Ok(()) };
        let value = value.clone();
        if let (Some(draft), Some(Py::Poison)) = (self.active, value.find_unknown()) {
            self.drafts[draft].refused = true;
        }
        Err(self.needs_known(&value, span))
    }

    fn define_tensor(&mut self, draft: usize, arguments: &Arguments<'a>, targets: &[String]) -> Result<Py> {
        let by_strides = arguments.named(&["sizes", "strides"]).is_some()
            || arguments.positional.get(1).is_some_and(|(value, _)| {
                value.items().is_some_and(|items| items.iter().any(|item| matches!(item, Py::Number(PyNumber::Int(_)))))
            });
        let declared = if by_strides {
            check_keywords(arguments, "define_tensor", &["sizes", "strides", "dtype", "static_sizes", "is_cpu"])?;
            let sizes = self.integers(arguments.get(0, &["sizes"]), "sizes")?;
            let strides = self.integers(arguments.get(1, &["strides"]), "strides")?;
            if sizes.len() != strides.len() || strides.iter().any(|stride| *stride < 0) {
                let message =
                    format!("define_tensor: sizes {sizes:?} and strides {strides:?} do not describe a tensor");
                return Err(Diagnostic::user(code::LAYOUT, message).note("one stride for each size, none negative"));
            }
            let dtype = dtype_of(arguments.get(2, &["dtype"]))?.unwrap_or(DType::F32);
            let is_static = flag(arguments.get(3, &["static_sizes"]), "static_sizes")?;
            described(&sizes, &strides, dtype, is_static, flag(arguments.get(4, &["is_cpu"]), "is_cpu")?)
        } else {
            let names = ["shape", "contiguity", "dtype", "is_cpu", "stride_order", "symbolic_sizes", "contiguous"];
            check_keywords(arguments, "define_tensor", &names)?;
            let shape = self.integers(arguments.get(0, &["shape", "symbolic_sizes"]), "shape")?;
            let stride_order = match arguments.get(4, &["stride_order"]) {
                None | Some(Py::None) => Vec::new(),
                given => self.integers(given, "stride_order")?,
            };
            let contiguity = contiguity(arguments.get(1, &["contiguity", "contiguous"]), &shape, &stride_order)?;
            let dtype = dtype_of(arguments.get(2, &["dtype"]))?.unwrap_or(DType::F32);
            let is_cpu = flag(arguments.get(3, &["is_cpu"]), "is_cpu")?;
            Declared { shape, contiguity, stride_order, dtype, is_cpu }
        };
        let operand = self.drafts[draft].tensor(targets.first(), declared)?;
        Ok(Py::Node(draft, operand))
    }

    /// `from_pytorch(tensor)`: an input of the tensor's type and layout.
    fn declared_like(&mut self, draft: usize, arguments: &Arguments<'a>, targets: &[String]) -> Result<Py> {
        let Some(Py::Tensor(tensor)) = arguments.get(0, &["tensor"]) else {
            return Err(Diagnostic::user(code::INPUT_KIND, "from_pytorch: takes a tensor of the script"));
        };
        let is_static = flag(arguments.get(1, &["static_sizes"]), "static_sizes")?;
        let declared = described(&tensor.sizes, &tensor.strides, tensor.dtype, is_static, tensor.is_cpu);
        Ok(Py::Node(draft, self.drafts[draft].tensor(targets.first(), declared)?))
    }

    /// `define_scalar(dtype)`, `define_scalar(None, dtype)`: an input.
    /// `define_scalar(value, dtype)`: a constant.
    fn define_scalar(&mut self, draft: usize, arguments: &Arguments<'a>, targets: &[String]) -> Result<Py> {
        check_keywords(arguments, "define_scalar", &["value", "dtype"])?;
        let (value, dtype) = match arguments.get(0, &["value"]) {
            Some(Py::DType(dtype)) => (None, *dtype),
            value => (value, dtype_of(arguments.get(1, &["dtype"]))?),
        };
        let draft_value = &mut self.drafts[draft];
        let operand = match value {
            None | Some(Py::None) => draft_value.scalar(targets.first(), dtype.unwrap_or(DType::F64))?,
            Some(Py::Number(number)) => draft_value.constant(*number, dtype)?,
            Some(Py::Node(_, operand @ Operand::Scalar(_))) => *operand,
            Some(other) => {
                let message = format!("define_scalar: {} is no number", other.what());
                return Err(Diagnostic::user(code::NOT_SCALAR, message));
            }
        };
        Ok(Py::Node(draft, operand))
    }

    /// `define_vector(3)`: inputs. `define_vector([a, 4])`: these values.
    fn define_vector(&mut self, draft: usize, arguments: &Arguments<'a>, targets: &[String]) -> Result<Py> {
        let given = arguments.get(0, &["values", "size", "value"]);
        if let Some(items) = given.and_then(Py::items) {
            return Ok(self.list(items.to_vec(), false, arguments.span));
        }
        let Some(length @ 0..=MAX_VECTOR) = given.and_then(Py::as_i64) else {
            let message = format!("define_vector: takes a length from 0 to {MAX_VECTOR}, or a list");
            return Err(Diagnostic::user(code::ATTRIBUTE, message));
        };
        let mut items = Vec::new();
        for index in 0..length {
            let name = targets.first().map(|name| format!("{name}_{index}"));
            items.push(Py::Node(draft, self.drafts[draft].scalar(name.as_ref(), DType::I64)?));
        }
        Ok(self.list(items, false, arguments.span))
    }

    /// `add_output(x)`, `add_output(x, input)`: the second is written into the
    /// input's storage and not returned.
    fn add_output(&mut self, draft: usize, arguments: &Arguments<'a>) -> Result<Py> {
        check_keywords(arguments, "add_output", &["output", "alias_input", "stride_order"])?;
        let Some(Py::Node(_, mut output @ Operand::Tensor(_))) = arguments.get(0, &["output"]).cloned() else {
            let what = arguments.get(0, &["output"]).map_or("nothing".into(), Py::what);
            return Err(Diagnostic::user(code::NOT_TENSOR, format!("add_output: a tensor is needed, not {what}")));
        };
        let builder = &mut self.drafts[draft].builder;
        match arguments.get(1, &["alias_input"]) {
            None | Some(Py::None) => {}
            Some(Py::Node(_, input @ Operand::Tensor(_))) => {
                builder.update(output, *input)?;
                return Ok(Py::None);
            }
            Some(other) => {
                let message = format!("add_output: `alias_input` is an input tensor, not {}", other.what());
                return Err(Diagnostic::user(code::NOT_TENSOR, message));
            }
        }
        if let Some(order) = arguments.named(&["stride_order"]).filter(|value| !matches!(value, Py::None)) {
            let order = self.integers(Some(order), "stride_order")?;
            output = self.applied(
                draft,
                "stride_order",
                &[("x", OpArg::Value(output.into())), ("order", OpArg::Ints(order))],
            )?;
        }
        self.drafts[draft].builder.output(output)?;
        Ok(Py::None)
    }

    /// The first result of an operation of the table.
    pub(super) fn applied(&mut self, draft: usize, name: &str, given: &[(&str, OpArg)]) -> Result<Operand> {
        let row = ops::find(name).ok_or_else(|| Diagnostic::bug(format!("the table has no `{name}`")))?;
        let args = given.iter().fold(Args::new(row), |args, (name, arg)| args.with(name, arg.clone()));
        let results = self.drafts[draft].builder.apply(&args)?;
        results.first().copied().ok_or_else(|| Diagnostic::bug(format!("`{name}` has no result")))
    }

    /// A list of integers; constants of the definition count.
    pub(super) fn integers(&self, value: Option<&Py>, what: &str) -> Result<Vec<i64>> {
        let wrong =
            |given: &str| Diagnostic::user(code::ATTRIBUTE, format!("`{what}` is a list of integers, not {given}"));
        let value = value.ok_or_else(|| wrong("left out"))?;
        let one = |item: &Py| self.integer(item).ok_or_else(|| wrong(&item.what()));
        match value.items() {
            Some(items) => items.iter().map(one).collect(),
            None => Ok(vec![one(value)?]),
        }
    }

    /// An integer: a number, or a constant of the definition.
    pub(super) fn integer(&self, value: &Py) -> Option<i64> {
        match value {
            Py::Node(draft, Operand::Scalar(s)) => match self.drafts[*draft].builder.known(Src::Scalar(*s))? {
                engine::num::Value::Int(v) => Some(v),
                _ => None,
            },
            _ => value.as_i64(),
        }
    }
}

fn unknown_method(name: &Name) -> Box<Diagnostic> {
    let message = format!("`fd.{}` is not read", name.text);
    let hint = nearest(&name.text, METHODS.into_iter().chain(RUNS)).map(|near| format!("did you mean `fd.{near}`?"));
    Diagnostic::user(code::PY_CONSTRUCT, message)
        .label(name.span, hint.unwrap_or_default())
        .note(format!("a definition calls fd.{}", METHODS.join(" fd.")))
}

/// Names of arguments that a method does not have.
fn check_keywords(arguments: &Arguments<'_>, method: &str, known: &[&str]) -> Result<()> {
    let unknown = arguments.keywords.iter().find(|(name, ..)| !known.contains(&name.text.as_str()));
    let Some((name, ..)) = unknown else { return Ok(()) };
    let hint = nearest(&name.text, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    Err(Diagnostic::user(code::ATTRIBUTE, format!("{method}: has no argument `{}`", name.text))
        .label(name.span, hint.unwrap_or_default())
        .note(format!("its arguments are {}", known.join(" "))))
}

/// A data type; `None` for one that is left out or `DataType.Null`.
pub(super) fn dtype_of(value: Option<&Py>) -> Result<Option<DType>> {
    match value {
        None | Some(Py::None) => Ok(None),
        Some(Py::DType(dtype)) => Ok(*dtype),
        Some(other) => {
            let message = format!("`dtype` is a data type such as DataType.Float, not {}", other.what());
            Err(Diagnostic::user(code::UNKNOWN_DTYPE, message))
        }
    }
}

pub(super) fn flag(value: Option<&Py>, what: &str) -> Result<bool> {
    match value {
        None => Ok(false),
        Some(Py::Number(PyNumber::Bool(value))) => Ok(*value),
        Some(Py::Number(PyNumber::Int(value @ 0..=1))) => Ok(*value == 1),
        Some(other) => {
            Err(Diagnostic::user(code::ATTRIBUTE, format!("`{what}` is True or False, not {}", other.what())))
        }
    }
}

/// `contiguity` in memory order: a list, or one truth value for all axes that
/// are not of size 1.
fn contiguity(value: Option<&Py>, shape: &[i64], stride_order: &[i64]) -> Result<Vec<Option<bool>>> {
    let wrong = |what: String| {
        let message = format!("define_tensor: `contiguity` is a list of True, False and None, not {what}");
        Diagnostic::user(code::LAYOUT, message)
    };
    if let Some(items) = value.and_then(Py::items) {
        let one = |item: &Py| match item {
            Py::None => Ok(None),
            Py::Number(PyNumber::Bool(flag)) => Ok(Some(*flag)),
            other => Err(wrong(other.what())),
        };
        return items.iter().map(one).collect();
    }
    let all = match value {
        None => false,
        Some(Py::Number(PyNumber::Bool(flag))) => *flag,
        Some(other) => return Err(wrong(other.what())),
    };
    let mut flags = vec![None; shape.len()];
    for (axis, &size) in shape.iter().enumerate() {
        // The place of the axis in memory, outermost first.
        let place = match stride_order.get(axis) {
            Some(&at) => shape.len() as i64 - 1 - if at < 0 { at.saturating_add(shape.len() as i64) } else { at },
            None => axis as i64,
        };
        if let Some(flag) = usize::try_from(place).ok().and_then(|place| flags.get_mut(place)) {
            *flag = (size != 1).then_some(all);
        }
    }
    Ok(flags)
}
