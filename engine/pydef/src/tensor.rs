//! Methods, parts and multiples of the tensors that a script makes.

use super::ast::Operator;
use super::call::Arguments;
use super::interp::Interp;
use super::recipe::{Fill, PyNumber, TensorRecipe};
use super::torch::{Made, list, placed, sizes};
use super::value::Py;
use super::{arith, names};
use engine::diag::{Diagnostic, Result, Span, code};
use engine::num::DType;
use std::sync::Arc;

impl<'a> Interp<'a> {
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
        // Listed elements are copied.
        self.work(64, span);
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
        number: PyNumber,
        swapped: bool,
        span: Span,
    ) -> Py {
        match scaled(tensor, operator, number, swapped) {
            Some(result) => Py::Tensor(Arc::new(result)),
            None => Py::unknown(format!("`{}` of a tensor", operator.text()), span),
        }
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

/// What a method makes of a tensor; `None` for methods that are not read.
fn changed(tensor: &TensorRecipe, name: &str, arguments: &Arguments<'_>) -> Made {
    match converted(tensor, name, arguments)? {
        Some(result) => Ok(Some(result)),
        None => match moved(tensor, name, arguments)? {
            Some(result) => Ok(Some(result)),
            None => resized(tensor, name, arguments),
        },
    }
}

/// Methods that keep sizes and strides.
fn converted(tensor: &TensorRecipe, name: &str, arguments: &Arguments<'_>) -> Made {
    let cast = |dtype: DType| Ok(Some(TensorRecipe { dtype, ..tensor.clone() }));
    match name {
        "to" | "type" => {
            let dtype = arguments.positional.iter().map(|argument| &argument.0).chain(arguments.named(&["dtype"]));
            let dtype = dtype.filter_map(|value| if let Py::DType(dtype) = value { *dtype } else { None }).next();
            cast(dtype.unwrap_or(tensor.dtype))
        }
        "cuda" => Ok(Some(TensorRecipe { is_cpu: false, ..tensor.clone() })),
        "cpu" => Ok(Some(TensorRecipe { is_cpu: true, ..tensor.clone() })),
        "detach" | "clone" | "requires_grad_" => Ok(Some(tensor.clone())),
        "float" | "double" | "half" | "bfloat16" | "int" | "long" | "short" | "bool" => {
            names::torch_type(name).map_or(Ok(None), cast)
        }
        "abs" => Ok(match tensor.fill {
            Fill::Uniform(low, high) if low < 0.0 => {
                Some(TensorRecipe { fill: Fill::Uniform(0.0, high.abs().max(low.abs())), ..tensor.clone() })
            }
            _ => None,
        }),
        _ => Ok(None),
    }
}

/// Methods that see the same elements in another order of axes.
fn moved(tensor: &TensorRecipe, name: &str, arguments: &Arguments<'_>) -> Made {
    let rank = tensor.sizes.len();
    let swap = |a: usize, b: usize| {
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(a, b);
        tensor.permuted(&order).map(Some)
    };
    match name {
        "t" if rank < 2 => Ok(Some(tensor.clone())),
        "t" if rank == 2 => swap(0, 1),
        "mT" if rank >= 2 => swap(rank - 1, rank - 2),
        "transpose" | "swapaxes" => match (axis_of(arguments, 0, "dim0", rank), axis_of(arguments, 1, "dim1", rank)) {
            (Some(a), Some(b)) => swap(a?, b?),
            _ => Ok(None),
        },
        "permute" => {
            let Some(axes) = axes_of(arguments, rank) else { return Ok(None) };
            let axes = axes?;
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..rank) {
                let message = format!("permute: {axes:?} does not name each of the {rank} axes once");
                return Err(Diagnostic::user(code::AXIS, message));
            }
            tensor.permuted(&axes).map(Some)
        }
        _ => Ok(None),
    }
}

/// Methods that change sizes.
fn resized(tensor: &TensorRecipe, name: &str, arguments: &Arguments<'_>) -> Made {
    let rank = tensor.sizes.len();
    match name {
        "as_strided" => {
            let both = list(arguments.get(0, &["size"])).zip(list(arguments.get(1, &["stride"])));
            let offset = arguments.get(2, &["storage_offset"]).map_or(Some(tensor.offset), Py::as_i64);
            match both.zip(offset) {
                Some(((sizes, strides), offset)) => tensor.as_strided(sizes, strides, offset).map(Some),
                None => Ok(None),
            }
        }
        "contiguous" => tensor.contiguous().map(Some),
        "expand" => sizes(arguments, 0).map(|sizes| tensor.expanded(&sizes)).transpose(),
        "reshape" | "view" => sizes(arguments, 0).map(|sizes| reshape(tensor, sizes)).transpose(),
        "flatten" if arguments.positional.is_empty() => reshape(tensor, vec![-1]).map(Some),
        "unsqueeze" => {
            let Some(axis) = axis_of(arguments, 0, "dim", rank + 1) else { return Ok(None) };
            let axis = axis?;
            let (mut sizes, mut strides) = (tensor.sizes.clone(), tensor.strides.clone());
            // As PyTorch: the stride of the axis that comes to stand behind it.
            let stride = if axis < rank { sizes[axis].saturating_mul(strides[axis]) } else { 1 };
            sizes.insert(axis, 1);
            strides.insert(axis, stride);
            tensor.as_strided(sizes, strides, tensor.offset).map(Some)
        }
        "squeeze" => {
            let only = axis_of(arguments, 0, "dim", rank).transpose()?;
            let keep: Vec<usize> =
                (0..rank).filter(|&i| tensor.sizes[i] != 1 || only.is_some_and(|only| only != i)).collect();
            let sizes = keep.iter().map(|&i| tensor.sizes[i]).collect();
            let strides = keep.iter().map(|&i| tensor.strides[i]).collect();
            tensor.as_strided(sizes, strides, tensor.offset).map(Some)
        }
        "narrow" => {
            let number = |position: usize, name: &str| arguments.get(position, &[name]).and_then(Py::as_i64);
            match (axis_of(arguments, 0, "dim", rank), number(1, "start"), number(2, "length")) {
                (Some(axis), Some(start), Some(length)) => {
                    narrow(tensor, axis?, start, start.saturating_add(length)).map(Some)
                }
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// An axis among the arguments, counted from the start.
fn axis_of(arguments: &Arguments<'_>, position: usize, name: &str, rank: usize) -> Option<Result<usize>> {
    arguments.get(position, &[name]).and_then(Py::as_i64).map(|axis| wrapped(axis, rank))
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
fn scaled(tensor: &TensorRecipe, operator: Operator, number: PyNumber, swapped: bool) -> Option<TensorRecipe> {
    use Operator as O;
    let k = match number {
        PyNumber::Complex(..) => return None,
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
    let to_float = !tensor.dtype.is_float() && (operator == O::Div || matches!(number, PyNumber::Float(_)));
    let apply = |x: PyNumber| {
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
