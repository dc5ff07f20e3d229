//! Tensors that a script makes: PyTorch's factories and the methods behind
//! them. Devices, gradients and generators do not matter here.

use super::ast::Operator;
use super::call::Arguments;
use super::interp::{Interp, float_of};
use super::recipe::{Fill, MAX_LISTED, Number, TensorRecipe};
use super::value::Py;
use super::{arith, names};
use crate::diag::{Diagnostic, Result, Span, code};
use crate::num::DType;
use std::sync::Arc;

type Made = Result<Option<TensorRecipe>>;

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
        let like = match (name.strip_suffix("_like"), arguments.get(0, &["input"])) {
            (Some(_), Some(Py::Tensor(tensor))) => Some(tensor.clone()),
            (Some(_), _) => return Ok(None),
            (None, _) => None,
        };
        if let Some(like) = like {
            let dtype = dtype.unwrap_or(like.dtype);
            let fill = match name {
                "randn_like" => Fill::Normal(0.0, 1.0),
                "rand_like" => Fill::Uniform(0.0, 1.0),
                "zeros_like" => Fill::Full(Number::Int(0)),
                "ones_like" => Fill::Full(Number::Int(1)),
                "empty_like" => unspecified(dtype),
                "full_like" => match arguments.get(1, &["fill_value"]) {
                    Some(Py::Number(number)) => Fill::Full(*number),
                    _ => return Ok(None),
                },
                "randint_like" => match randint(arguments, 1) {
                    Some(fill) => fill,
                    None => return Ok(None),
                },
                _ => return Ok(None),
            };
            // Strides are kept where the tensor is dense in some order.
            return Ok(Some(TensorRecipe { dtype, fill, ..(*like).clone() }));
        }
        let default = dtype.unwrap_or(DType::F32);
        let (sizes, fill, dtype) = match name {
            "testing.make_tensor" | "make_tensor" => (sizes(arguments, 0), made(arguments, default), default),
            "randn" => (sizes(arguments, 0), Some(Fill::Normal(0.0, 1.0)), default),
            "rand" => (sizes(arguments, 0), Some(Fill::Uniform(0.0, 1.0)), default),
            "zeros" => (sizes(arguments, 0), Some(Fill::Full(Number::Int(0))), default),
            "ones" => (sizes(arguments, 0), Some(Fill::Full(Number::Int(1))), default),
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

    /// `tensor.name`.
    pub(super) fn tensor_attribute(&mut self, tensor: &Arc<TensorRecipe>, name: &str, span: Span) -> Py {
        match name {
            "shape" => self.numbers(&tensor.sizes, span),
            "dtype" => Py::DType(Some(tensor.dtype)),
            "ndim" => Py::int(tensor.sizes.len() as i64),
            "is_cuda" => Py::bool(!tensor.is_cpu),
            "T" | "mT" => self.tensor_method(
                tensor,
                if name == "T" { "t" } else { "mT" },
                &Arguments { positional: Vec::new(), keywords: Vec::new(), span },
                span,
            ),
            _ => Py::unknown(format!("`.{name}` of a tensor"), span),
        }
    }

    fn numbers(&mut self, values: &[i64], span: Span) -> Py {
        self.list(values.iter().map(|&value| Py::int(value)).collect(), true, span)
    }

    /// `tensor.name(...)`.
    pub(super) fn tensor_method(
        &mut self,
        tensor: &Arc<TensorRecipe>,
        name: &str,
        arguments: &Arguments<'a>,
        span: Span,
    ) -> Py {
        let axis = |position: usize| arguments.get(position, &["dim"]).and_then(Py::as_i64);
        match name {
            "size" | "stride" => {
                let all = if name == "size" { tensor.sizes.clone() } else { tensor.strides.clone() };
                return match axis(0) {
                    None => self.numbers(&all, span),
                    Some(axis) => match wrapped(axis, all.len()) {
                        Ok(axis) => Py::int(all[axis]),
                        Err(error) => self.refuse(error, span),
                    },
                };
            }
            "numel" | "nelement" => return Py::int(tensor.numel()),
            "dim" | "ndimension" => return Py::int(tensor.sizes.len() as i64),
            "is_contiguous" => {
                return Py::bool(super::recipe::dense(&tensor.sizes).as_ref() == Some(&tensor.strides));
            }
            "item" => {
                return match &tensor.fill {
                    Fill::Full(number) => Py::Number(*number),
                    Fill::Listed(values) if values.len() == 1 => Py::Number(values[0]),
                    _ => Py::unknown("an element of a random tensor", span),
                };
            }
            _ => {}
        }
        match changed(tensor, name, arguments) {
            Ok(Some(result)) => Py::Tensor(Arc::new(placed(result, arguments))),
            Ok(None) => match arguments.find_unknown() {
                Some((Py::Poison, _)) => Py::Poison,
                _ => Py::unknown(format!("`.{name}(...)` of a tensor"), span),
            },
            Err(error) => self.refuse(error, span),
        }
    }

    /// `tensor[...]`: ranges of step 1, indices, `None` and `...`.
    pub(super) fn tensor_index(&mut self, tensor: &Arc<TensorRecipe>, parts: &[Py], span: Span) -> Py {
        match sliced(tensor, parts) {
            Ok(Some(result)) => Py::Tensor(Arc::new(result)),
            Ok(None) => Py::unknown("a part of a tensor", span),
            Err(error) => self.refuse(error, span),
        }
    }

    /// `tensor operator number`, or the number first.
    pub(super) fn tensor_scaled(
        &mut self,
        tensor: &Arc<TensorRecipe>,
        operator: Operator,
        number: Number,
        swapped: bool,
        span: Span,
    ) -> Py {
        match scaled(tensor, operator, number, swapped) {
            Some(result) => Py::Tensor(Arc::new(result)),
            None => Py::unknown(format!("`{}` of a tensor", operator.text()), span),
        }
    }
}

/// The message with the function in front.
fn prefixed(mut error: Box<Diagnostic>, name: &str) -> Box<Diagnostic> {
    error.message = format!("{name}: {}", error.message);
    error
}

/// The tensor on the device that the arguments name.
fn placed(mut tensor: TensorRecipe, arguments: &Arguments<'_>) -> TensorRecipe {
    let words = arguments.positional.iter().map(|argument| &argument.0).chain(arguments.named(&["device"]));
    for word in words {
        if let Py::Str(device) = word {
            tensor.is_cpu = device.starts_with("cpu");
        }
    }
    tensor
}

/// Sizes as a list, or one after another.
fn sizes(arguments: &Arguments<'_>, position: usize) -> Option<Vec<i64>> {
    if let Some(named) = arguments.named(&["size", "shape"]) {
        return list(Some(named));
    }
    match arguments.positional.get(position..)? {
        [(only, _)] if only.items().is_some() => list(Some(only)),
        [] => None,
        several => several.iter().map(|(value, _)| value.as_i64()).collect(),
    }
}

fn list(value: Option<&Py>) -> Option<Vec<i64>> {
    let value = value?;
    match value.items() {
        Some(items) => items.iter().map(Py::as_i64).collect(),
        None => value.as_i64().map(|size| vec![size]),
    }
}

fn axes_of(arguments: &Arguments<'_>, rank: usize) -> Option<Result<Vec<usize>>> {
    let axes = match arguments.named(&["dims"]) {
        Some(named) => list(Some(named))?,
        None => sizes(arguments, 0)?,
    };
    Some(axes.into_iter().map(|axis| wrapped(axis, rank)).collect())
}

fn wrapped(axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match from_start.and_then(|axis| usize::try_from(axis).ok()) {
        Some(axis) if axis < rank => Ok(axis),
        _ => Err(Diagnostic::user(code::AXIS, format!("axis {axis} of a tensor of rank {rank}"))),
    }
}

fn dtype_of(number: Number) -> DType {
    match number {
        Number::Bool(_) => DType::Bool,
        Number::Int(_) => DType::I64,
        Number::Float(_) => DType::F32,
        Number::Complex(..) => names::torch_type("complex64").unwrap_or(DType::F32),
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
    let floats = all.iter().flatten().any(|value| matches!(value, Py::Number(Number::Float(_))));
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
fn gather(value: &Py, sizes: &[i64], out: &mut Vec<Number>) -> bool {
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

/// What a method makes of a tensor; `None` for methods that are not read.
fn changed(tensor: &TensorRecipe, name: &str, arguments: &Arguments<'_>) -> Made {
    let rank = tensor.sizes.len();
    let axis = |position: usize, names: &[&str]| {
        arguments.get(position, names).and_then(Py::as_i64).map(|axis| wrapped(axis, rank))
    };
    let swap = |a: usize, b: usize| {
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(a, b);
        tensor.permuted(&order).map(Some)
    };
    let cast = |dtype: DType| Ok(Some(TensorRecipe { dtype, ..tensor.clone() }));
    match name {
        "as_strided" => {
            let both = list(arguments.get(0, &["size"])).zip(list(arguments.get(1, &["stride"])));
            let offset = arguments.get(2, &["storage_offset"]).map_or(Some(tensor.offset), Py::as_i64);
            match both.zip(offset) {
                Some(((sizes, strides), offset)) => tensor.as_strided(sizes, strides, offset).map(Some),
                None => Ok(None),
            }
        }
        "to" | "type" => {
            let dtype = arguments.positional.iter().map(|argument| &argument.0).chain(arguments.named(&["dtype"]));
            let dtype = dtype.filter_map(|value| if let Py::DType(dtype) = value { *dtype } else { None }).next();
            cast(dtype.unwrap_or(tensor.dtype))
        }
        "cuda" => Ok(Some(TensorRecipe { is_cpu: false, ..tensor.clone() })),
        "cpu" => Ok(Some(TensorRecipe { is_cpu: true, ..tensor.clone() })),
        "detach" | "clone" | "requires_grad_" | "requires_grad" | "fill_diagonal_" => {
            if name == "fill_diagonal_" {
                Ok(None)
            } else {
                Ok(Some(tensor.clone()))
            }
        }
        "float" | "double" | "half" | "bfloat16" | "int" | "long" | "short" | "bool" => {
            names::torch_type(name).map_or(Ok(None), cast)
        }
        "contiguous" => tensor.contiguous().map(Some),
        "t" if rank <= 2 => {
            if rank == 2 {
                swap(0, 1)
            } else {
                Ok(Some(tensor.clone()))
            }
        }
        "mT" if rank >= 2 => swap(rank - 1, rank - 2),
        "transpose" | "swapaxes" => match (axis(0, &["dim0"]), axis(1, &["dim1"])) {
            (Some(a), Some(b)) => swap(a?, b?),
            _ => Ok(None),
        },
        "permute" => match axes_of(arguments, rank) {
            Some(axes) => {
                let axes = axes?;
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                if !sorted.iter().copied().eq(0..rank) {
                    let message = format!("permute: {axes:?} does not name each of the {rank} axes once");
                    return Err(Diagnostic::user(code::AXIS, message));
                }
                tensor.permuted(&axes).map(Some)
            }
            None => Ok(None),
        },
        "expand" => match sizes(arguments, 0) {
            Some(sizes) => tensor.expanded(&sizes).map(Some),
            None => Ok(None),
        },
        "reshape" | "view" => match sizes(arguments, 0) {
            Some(sizes) => reshape(tensor, sizes).map(Some),
            None => Ok(None),
        },
        "flatten" if arguments.positional.is_empty() => reshape(tensor, vec![-1]).map(Some),
        "unsqueeze" => match arguments.get(0, &["dim"]).and_then(Py::as_i64) {
            Some(axis) => {
                let axis = wrapped(axis, rank + 1)?;
                let (mut sizes, mut strides) = (tensor.sizes.clone(), tensor.strides.clone());
                // As PyTorch: the stride of the axis that comes to stand behind it.
                let stride = if axis < rank { sizes[axis].saturating_mul(strides[axis]) } else { 1 };
                sizes.insert(axis, 1);
                strides.insert(axis, stride);
                tensor.as_strided(sizes, strides, tensor.offset).map(Some)
            }
            None => Ok(None),
        },
        "squeeze" => {
            let only = axis(0, &["dim"]).transpose()?;
            let keep: Vec<usize> =
                (0..rank).filter(|&i| tensor.sizes[i] != 1 || only.is_some_and(|only| only != i)).collect();
            let sizes = keep.iter().map(|&i| tensor.sizes[i]).collect();
            let strides = keep.iter().map(|&i| tensor.strides[i]).collect();
            tensor.as_strided(sizes, strides, tensor.offset).map(Some)
        }
        "narrow" => match (axis(0, &["dim"]), arguments.get(1, &["start"]), arguments.get(2, &["length"])) {
            (Some(axis), Some(start), Some(length)) => match start.as_i64().zip(length.as_i64()) {
                Some((start, length)) => narrow(tensor, axis?, start, start.saturating_add(length)).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        },
        "abs" => Ok(match tensor.fill {
            Fill::Uniform(low, high) if low < 0.0 => {
                Some(TensorRecipe { fill: Fill::Uniform(0.0, high.abs().max(low.abs())), ..tensor.clone() })
            }
            _ => None,
        }),
        _ => Ok(None),
    }
}

/// Sizes with one -1 filled in; a tensor that is not dense is copied.
fn reshape(tensor: &TensorRecipe, mut sizes: Vec<i64>) -> Result<TensorRecipe> {
    if let Some(free) = sizes.iter().position(|&size| size == -1) {
        let others = sizes.iter().filter(|&&size| size != -1).try_fold(1i64, |n, &size| n.checked_mul(size));
        let all = tensor.numel();
        sizes[free] = match others {
            Some(others) if others > 0 && all % others == 0 => all / others,
            _ => {
                let message = format!("reshape: {all} elements do not fill sizes {sizes:?}");
                return Err(Diagnostic::user(code::EXTENT, message));
            }
        };
    }
    tensor.reshaped(sizes)
}

fn narrow(tensor: &TensorRecipe, axis: usize, start: i64, stop: i64) -> Result<TensorRecipe> {
    let size = tensor.sizes[axis];
    let (start, stop) = (start.clamp(0, size), stop.clamp(0, size));
    let mut sizes = tensor.sizes.clone();
    sizes[axis] = (stop - start).max(0);
    let offset = start.checked_mul(tensor.strides[axis]).and_then(|shift| shift.checked_add(tensor.offset));
    let offset = offset.ok_or_else(|| Diagnostic::user(code::SIZE_OVERFLOW, "the offset of a slice overflows"))?;
    tensor.as_strided(sizes, tensor.strides.clone(), offset)
}

fn sliced(tensor: &TensorRecipe, parts: &[Py]) -> Made {
    let mut result = tensor.clone();
    let used = parts.iter().filter(|part| !matches!(part, Py::None | Py::Ellipsis)).count();
    let mut axis = 0;
    for part in parts {
        match part {
            Py::Ellipsis => axis += tensor.sizes.len().saturating_sub(used),
            Py::None => {
                let stride =
                    if axis < result.sizes.len() { result.sizes[axis].saturating_mul(result.strides[axis]) } else { 1 };
                result.sizes.insert(axis, 1);
                result.strides.insert(axis, stride);
                axis += 1;
            }
            _ if axis >= result.sizes.len() => {
                let message = format!("{} indices into a tensor of rank {}", used, tensor.sizes.len());
                return Err(Diagnostic::user(code::RANK, message));
            }
            Py::Range(bounds) => {
                let size = result.sizes[axis];
                let bound = |part: &Py, default: i64| match part {
                    Py::None => Some(default),
                    _ => part.as_i64().map(|at| if at < 0 { at.saturating_add(size) } else { at }),
                };
                let (start, stop) = (bound(&bounds[0], 0), bound(&bounds[1], size));
                let step = if matches!(bounds[2], Py::None) { Some(1) } else { bounds[2].as_i64() };
                let (Some(start), Some(stop), Some(step @ 1..)) = (start, stop, step) else { return Ok(None) };
                result = narrow(&result, axis, start, stop)?;
                if step > 1 {
                    let (mut sizes, mut strides) = (result.sizes.clone(), result.strides.clone());
                    sizes[axis] = (sizes[axis] + step - 1) / step;
                    strides[axis] = strides[axis].saturating_mul(step);
                    result = result.as_strided(sizes, strides, result.offset)?;
                }
                axis += 1;
            }
            _ => {
                let Some(at) = part.as_i64() else { return Ok(None) };
                let size = result.sizes[axis];
                let start = if at < 0 { at.saturating_add(size) } else { at };
                if !(0..size).contains(&start) {
                    return Err(Diagnostic::user(code::AXIS, format!("index {at} of an axis of size {size}")));
                }
                result = narrow(&result, axis, start, start + 1)?;
                let (mut sizes, mut strides) = (result.sizes.clone(), result.strides.clone());
                sizes.remove(axis);
                strides.remove(axis);
                result = result.as_strided(sizes, strides, result.offset)?;
            }
        }
    }
    Ok(Some(result))
}

/// A tensor whose elements are shifted, scaled or compared.
fn scaled(tensor: &TensorRecipe, operator: Operator, number: Number, swapped: bool) -> Option<TensorRecipe> {
    use Operator as O;
    let k = match number {
        Number::Complex(..) => return None,
        _ => number.as_f64(),
    };
    if matches!(operator, O::Lt | O::Le | O::Gt | O::Ge) && !matches!(tensor.fill, Fill::Full(_) | Fill::Listed(_)) {
        return Some(TensorRecipe { dtype: DType::Bool, fill: Fill::Randint(0, 1), ..tensor.clone() });
    }
    // The elements become `factor * x + shift`.
    let (factor, shift) = match (operator, swapped) {
        (O::Add, _) => (1.0, k),
        (O::Sub, false) => (1.0, -k),
        (O::Sub, true) => (-1.0, k),
        (O::Mul, _) => (k, 0.0),
        (O::Div, false) if k != 0.0 => (1.0 / k, 0.0),
        _ => return None,
    };
    let to_float = !tensor.dtype.is_float() && (operator == O::Div || matches!(number, Number::Float(_)));
    let apply = |x: Number| {
        if swapped { arith::binary(operator, number, x) } else { arith::binary(operator, x, number) }
    };
    let fill = match &tensor.fill {
        Fill::Normal(mean, deviation) => Fill::Normal(factor * mean + shift, (factor * deviation).abs()),
        Fill::Uniform(low, high) => {
            let (a, b) = (factor * low + shift, factor * high + shift);
            Fill::Uniform(a.min(b), a.max(b))
        }
        Fill::Arange(start, step) => Fill::Arange(factor * start + shift, factor * step),
        Fill::Full(value) => Fill::Full(apply(*value)?),
        Fill::Listed(values) => Fill::Listed(values.iter().map(|&value| apply(value)).collect::<Option<_>>()?),
        Fill::Randint(low, high) if factor == 1.0 && shift.fract() == 0.0 && shift.abs() < 1e15 => {
            Fill::Randint(low.checked_add(shift as i64)?, high.checked_add(shift as i64)?)
        }
        Fill::Randint(low, high) => {
            let (a, b) = (factor * *low as f64 + shift, factor * *high as f64 + shift);
            Fill::Uniform(a.min(b), a.max(b))
        }
    };
    let dtype = if to_float { DType::F32 } else { tensor.dtype };
    Some(TensorRecipe { dtype, fill, ..tensor.clone() })
}
