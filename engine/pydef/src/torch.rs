//! Tensors that a script makes: PyTorch's factories. Devices, gradients and
//! generators do not matter here.

use super::call::Arguments;
use super::interp::{Interp, float_of};
use super::names;
use super::recipe::{Fill, MAX_LISTED, PyNumber, TensorRecipe};
use super::value::Py;
use engine::diag::{Diagnostic, Result, Span, code};
use engine::num::DType;
use std::sync::Arc;

/// A tensor, nothing if the way of making it is not read, or what is wrong.
pub(super) type Made = Result<Option<TensorRecipe>>;

impl<'a> Interp<'a> {
    /// `torch.name(...)`.
    pub(super) fn torch_call(&mut self, name: &str, arguments: &Arguments<'a>, span: Span) -> Py {
        match self.factory(name, arguments) {
            Ok(Some(tensor)) => Py::Tensor(Arc::new(placed(tensor, arguments))),
            Ok(None) => match arguments.find_unknown() {
                Some((Py::Poison, _)) => Py::Poison,
                _ => Py::unknown(format!("`torch.{name}(...)`"), span),
            },
            Err(error) => self.refuse(prefixed(error, &format!("torch.{name}")), span),
        }
    }

    fn factory(&mut self, name: &str, arguments: &Arguments<'a>) -> Made {
        let dtype = match arguments.named(&["dtype"]) {
            Some(Py::DType(Some(dtype))) => Some(*dtype),
            Some(Py::None) | None => None,
            _ => return Ok(None),
        };
        if name.ends_with("_like") {
            return like(name, arguments, dtype);
        }
        let default = dtype.unwrap_or(DType::F32);
        let (sizes, fill, dtype) = match name {
            "testing.make_tensor" | "make_tensor" => (sizes(arguments, 0), made(arguments, default), default),
            "randn" => (sizes(arguments, 0), Some(Fill::Normal(0.0, 1.0)), default),
            "rand" => (sizes(arguments, 0), Some(Fill::Uniform(0.0, 1.0)), default),
            "zeros" => (sizes(arguments, 0), Some(Fill::Full(PyNumber::Int(0))), default),
            "ones" => (sizes(arguments, 0), Some(Fill::Full(PyNumber::Int(1))), default),
            "empty" => (sizes(arguments, 0), Some(unspecified(default)), default),
            "full" => match arguments.get(1, &["fill_value"]) {
                Some(Py::Number(number)) => {
                    (list(arguments.get(0, &["size"])), Some(Fill::Full(*number)), dtype.unwrap_or(dtype_of(*number)))
                }
                _ => return Ok(None),
            },
            "randint" => {
                // `randint(high, size)` or `randint(low, high, size)`.
                let two = matches!(arguments.positional.get(1), Some((Py::Tuple(_) | Py::List(_), _)))
                    || (arguments.positional.len() == 1 && arguments.named(&["high"]).is_none())
                    || (arguments.positional.is_empty() && arguments.named(&["low"]).is_none());
                let size = list(arguments.get(if two { 1 } else { 2 }, &["size"]));
                (size, randint(arguments, if two { usize::MAX } else { 0 }), dtype.unwrap_or(DType::I64))
            }
            "normal" => {
                let mean = arguments.get(0, &["mean"]).and_then(float_of);
                let deviation = arguments.get(1, &["std"]).and_then(float_of);
                let fill = mean.zip(deviation).map(|(mean, deviation)| Fill::Normal(mean, deviation));
                (list(arguments.get(2, &["size"])), fill, default)
            }
            "empty_strided" => {
                let Some((sizes, strides)) = list(arguments.get(0, &["size"])).zip(list(arguments.get(1, &["stride"])))
                else {
                    return Ok(None);
                };
                return strided(default, sizes, strides).map(Some);
            }
            "arange" => return arange(arguments, dtype),
            "linspace" => return linspace(arguments, default),
            "tensor" | "as_tensor" | "scalar_tensor" => return literal(arguments.get(0, &["data"]), dtype),
            "Size" => return Ok(None),
            _ => return Ok(None),
        };
        match sizes.zip(fill) {
            Some((sizes, fill)) => TensorRecipe::dense(dtype, sizes, fill).map(Some),
            None => Ok(None),
        }
    }
}

/// `torch.name_like(tensor)`: a tensor of the sizes and strides of another one.
fn like(name: &str, arguments: &Arguments<'_>, dtype: Option<DType>) -> Made {
    let Some(Py::Tensor(tensor)) = arguments.get(0, &["input"]) else { return Ok(None) };
    let dtype = dtype.unwrap_or(tensor.dtype);
    let fill = match name {
        "randn_like" => Some(Fill::Normal(0.0, 1.0)),
        "rand_like" => Some(Fill::Uniform(0.0, 1.0)),
        "zeros_like" => Some(Fill::Full(PyNumber::Int(0))),
        "ones_like" => Some(Fill::Full(PyNumber::Int(1))),
        "empty_like" => Some(unspecified(dtype)),
        "full_like" => match arguments.get(1, &["fill_value"]) {
            Some(Py::Number(number)) => Some(Fill::Full(*number)),
            _ => None,
        },
        "randint_like" => randint(arguments, 1),
        _ => None,
    };
    Ok(fill.map(|fill| TensorRecipe { dtype, fill, ..(**tensor).clone() }))
}

/// The message with the function in front.
fn prefixed(mut error: Box<Diagnostic>, name: &str) -> Box<Diagnostic> {
    error.message = format!("{name}: {}", error.message);
    error
}

/// The tensor on the device that the arguments name.
pub(super) fn placed(mut tensor: TensorRecipe, arguments: &Arguments<'_>) -> TensorRecipe {
    let words = arguments.positional.iter().map(|argument| &argument.0).chain(arguments.named(&["device"]));
    for word in words {
        if let Py::Str(device) = word {
            tensor.is_cpu = device.starts_with("cpu");
        }
    }
    tensor
}

/// Sizes as a list, or one after another.
pub(super) fn sizes(arguments: &Arguments<'_>, position: usize) -> Option<Vec<i64>> {
    if let Some(named) = arguments.named(&["size", "shape"]) {
        return list(Some(named));
    }
    match arguments.positional.get(position..)? {
        [(only, _)] if only.items().is_some() => list(Some(only)),
        [] => None,
        several => several.iter().map(|(value, _)| value.as_i64()).collect(),
    }
}

pub(super) fn list(value: Option<&Py>) -> Option<Vec<i64>> {
    let value = value?;
    match value.items() {
        Some(items) => items.iter().map(Py::as_i64).collect(),
        None => value.as_i64().map(|size| vec![size]),
    }
}

fn dtype_of(number: PyNumber) -> DType {
    match number {
        PyNumber::Bool(_) => DType::Bool,
        PyNumber::Int(_) => DType::I64,
        PyNumber::Float(_) => DType::F32,
        PyNumber::Complex(..) => names::torch_type("complex64").unwrap_or(DType::F32),
    }
}

/// Elements of `torch.empty`: any; these tell right from wrong.
fn unspecified(dtype: DType) -> Fill {
    if dtype == DType::Bool {
        Fill::Randint(0, 1)
    } else if dtype.is_int() {
        Fill::Randint(0, 9)
    } else {
        Fill::Normal(0.0, 1.0)
    }
}

/// The range of `make_tensor`, whose upper end is not included for integers.
fn made(arguments: &Arguments<'_>, dtype: DType) -> Option<Fill> {
    let bound = |name: &str| match arguments.named(&[name]) {
        None | Some(Py::None) => Some(None),
        Some(value) => float_of(value).map(Some),
    };
    let (low, high) = (bound("low")?, bound("high")?);
    if dtype == DType::Bool || dtype.is_int() {
        let least = if dtype == DType::Bool || names::py_name(dtype).starts_with(['U', 'B']) { 0 } else { -9 };
        let above = if dtype == DType::Bool { 2 } else { 10 };
        let low = low.map_or(least, |v| v.ceil() as i64);
        let high = high.map_or(above, |v| v.ceil() as i64).max(low.saturating_add(1));
        return Some(Fill::Randint(low, high - 1));
    }
    let (low, high) = (low.unwrap_or(-9.0), high.unwrap_or(9.0));
    Some(Fill::Uniform(low, high.max(low)))
}

/// `low` and `high` at the given place; a place of `usize::MAX` means `high` alone, first.
fn randint(arguments: &Arguments<'_>, place: usize) -> Option<Fill> {
    let (low, high) = if place == usize::MAX {
        (arguments.named(&["low"]).map_or(Some(0), Py::as_i64)?, arguments.get(0, &["high"])?.as_i64()?)
    } else {
        (arguments.get(place, &["low"])?.as_i64()?, arguments.get(place + 1, &["high"])?.as_i64()?)
    };
    (low < high).then(|| Fill::Randint(low, high - 1))
}

fn strided(dtype: DType, sizes: Vec<i64>, strides: Vec<i64>) -> Result<TensorRecipe> {
    let probe = TensorRecipe {
        dtype,
        sizes: sizes.clone(),
        strides: strides.clone(),
        offset: 0,
        fill: unspecified(dtype),
        is_cpu: false,
    };
    let storage = match strides.len() == sizes.len() {
        true => probe.reach().unwrap_or(i64::MAX),
        false => 0,
    };
    TensorRecipe::dense(dtype, vec![storage], unspecified(dtype))?.as_strided(sizes, strides, 0)
}

fn arange(arguments: &Arguments<'_>, dtype: Option<DType>) -> Made {
    let numbers: Option<Vec<&Py>> = Some(arguments.positional.iter().map(|argument| &argument.0).collect());
    let value = |position: usize| numbers.as_ref().and_then(|n| n.get(position)).copied();
    let (start, end, step) = match (value(0), value(1), value(2)) {
        (Some(end), None, None) => (None, end, None),
        (Some(start), Some(end), step) => (Some(start), end, step),
        _ => return Ok(None),
    };
    let all = [start, Some(end), step];
    let floats = all.iter().flatten().any(|value| matches!(value, Py::Number(PyNumber::Float(_))));
    let read = |value: Option<&Py>, default: f64| value.map_or(Some(default), float_of);
    let (Some(start), Some(end), Some(step)) = (read(start, 0.0), read(Some(end), 0.0), read(step, 1.0)) else {
        return Ok(None);
    };
    let count = ((end - start) / step).ceil();
    if !count.is_finite() || count > super::recipe::MAX_ELEMENTS as f64 {
        return Err(Diagnostic::user(code::TENSOR_TOO_LARGE, "the range is too long"));
    }
    let dtype = dtype.unwrap_or(if floats { DType::F32 } else { DType::I64 });
    TensorRecipe::dense(dtype, vec![count.max(0.0) as i64], Fill::Arange(start, step)).map(Some)
}

fn linspace(arguments: &Arguments<'_>, dtype: DType) -> Made {
    let number = |position: usize, name: &str| arguments.get(position, &[name]).and_then(float_of);
    let steps = arguments.get(2, &["steps"]).and_then(Py::as_i64);
    let (Some(start), Some(end), Some(steps)) = (number(0, "start"), number(1, "end"), steps) else {
        return Ok(None);
    };
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    TensorRecipe::dense(dtype, vec![steps], Fill::Arange(start, step)).map(Some)
}

/// `torch.tensor([[...], ...])`.
fn literal(data: Option<&Py>, dtype: Option<DType>) -> Made {
    let Some(data) = data else { return Ok(None) };
    let (mut sizes, mut values) = (Vec::new(), Vec::new());
    let mut first = data;
    while let Some(items) = first.items() {
        sizes.push(items.len() as i64);
        match items.first() {
            Some(inner) => first = inner,
            None => break,
        }
    }
    if !gather(data, &sizes, &mut values) {
        return Ok(None);
    }
    let widest = values.iter().copied().map(dtype_of).max_by_key(|dtype| match dtype {
        DType::Bool => 0,
        DType::I64 => 1,
        DType::F32 => 2,
        _ => 3,
    });
    let dtype = dtype.or(widest).unwrap_or(DType::F32);
    TensorRecipe::dense(dtype, sizes, Fill::Listed(values)).map(Some)
}

/// Collects the numbers of nested lists; false if they are ragged, too many or no numbers.
fn gather(value: &Py, sizes: &[i64], out: &mut Vec<PyNumber>) -> bool {
    match (value, sizes) {
        (Py::Number(number), []) => {
            out.push(*number);
            out.len() <= MAX_LISTED
        }
        (_, [size, inner @ ..]) => value
            .items()
            .is_some_and(|items| items.len() as i64 == *size && items.iter().all(|item| gather(item, inner, out))),
        _ => false,
    }
}
