//! Binding: arguments against declarations. From the arguments' types and
//! layouts (not their elements) to the value of every scalar, and so to the
//! size of every tensor.
//!
//! After a successful [`bind`] every size is known, not negative and such that
//! no element count or byte count overflows; all operations' axes agree; nothing
//! downstream checks them again.

use super::meta::{self, AxisMeta, ExtentValue, OperandMeta, Shape, SizeMath};
use super::{
    AxisKind, Fusion, InputLayout, Op, OpKind, Operand, Scalar, ScalarDef, ScalarId, TensorDef, TensorId, Update,
};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{BinaryOp, DType, DTypeClass, TernaryOp, Value, eval};
use crate::tensor::{Arg, ArgMeta, TensorMeta};
use crate::util::PrimaryMap;

/// The value of every scalar of a fusion under some arguments.
#[derive(Clone, Debug)]
pub struct Bindings {
    scalars: PrimaryMap<ScalarId, Value>,
}

impl Bindings {
    /// The value of a scalar.
    pub fn scalar(&self, scalar: ScalarId) -> Value {
        self.scalars[scalar]
    }
    /// The size of every axis of a tensor.
    pub fn sizes(&self, fusion: &Fusion, tensor: TensorId) -> Vec<i64> {
        fusion.tensors[tensor].axes.iter().map(|axis| self.scalar(axis.extent).as_i64()).collect()
    }
    /// The type, sizes and dense strides of a tensor.
    pub fn dense_meta(&self, fusion: &Fusion, tensor: TensorId) -> TensorMeta {
        TensorMeta::contiguous(fusion.tensors[tensor].dtype, &self.sizes(fusion, tensor))
    }
}

/// Binds arguments with their storage: besides what [`bind`] checks, every
/// tensor must lie inside its bytes.
pub fn bind_args(fusion: &Fusion, args: &[Arg]) -> Result<Bindings> {
    let metas: Vec<_> = args.iter().map(Arg::meta).collect();
    let bindings = bind(fusion, &metas)?;
    for (position, arg) in args.iter().enumerate() {
        if let Arg::Tensor(tensor) = arg {
            tensor.check().map_err(|error| named(error, &input_label(fusion, position)))?;
        }
    }
    Ok(bindings)
}

/// Binds arguments by their types and layouts.
pub fn bind(fusion: &Fusion, args: &[ArgMeta]) -> Result<Bindings> {
    check_count(fusion, args.len())?;
    for (position, arg) in args.iter().enumerate() {
        check_kind(fusion, position, arg)?;
    }
    let bindings = Bindings { scalars: evaluate_scalars(fusion, args)? };
    for (position, tensor) in fusion.input_tensors() {
        check_extents(fusion, &bindings, position, tensor, args)?;
    }
    for tensor in fusion.tensors.ids() {
        check_size(fusion, &bindings, tensor)?;
    }
    for op in fusion.ops.values() {
        check_op(fusion, &bindings, op)?;
    }
    for update in &fusion.updates {
        check_update(fusion, &bindings, update, &args[update.input as usize])?;
    }
    Ok(bindings)
}

/// Binds arguments to a fusion that was made of one to which they are bound: they fit, and
/// operations agree. Tensors that only this one has may be too large.
pub fn bind_derived(fusion: &Fusion, args: &[ArgMeta]) -> Result<Bindings> {
    let bindings = Bindings { scalars: evaluate_scalars(fusion, args)? };
    for tensor in fusion.tensors.ids() {
        check_size(fusion, &bindings, tensor)?;
    }
    Ok(bindings)
}

/// How messages name an input: ``input 0 `%x` ``.
fn input_label(fusion: &Fusion, position: usize) -> String {
    match fusion.inputs[position] {
        Operand::Tensor(tensor) => format!("input {position} `%{}`", fusion.tensors[tensor].name),
        Operand::Scalar(scalar) => match &fusion.scalars[scalar].def {
            ScalarDef::Input { name, .. } => format!("input {position} `%{name}`"),
            _ => format!("input {position}"),
        },
    }
}

/// The same error, about the thing that `label` names.
fn named(mut error: Box<Diagnostic>, label: &str) -> Box<Diagnostic> {
    error.message = format!("{label}: {}", error.message);
    error
}

fn check_count(fusion: &Fusion, given: usize) -> Result<()> {
    let declared = fusion.inputs.len();
    let (which, position) = match given.cmp(&declared) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Less => (code::MISSING_INPUT, format!("; {} is missing", input_label(fusion, given))),
        std::cmp::Ordering::Greater => (code::EXTRA_INPUT, String::new()),
    };
    let name = &fusion.name;
    Err(Diagnostic::user(which, format!("fusion `@{name}` takes {declared} arguments, {given} were given{position}"))
        .note("pass one argument for each input, in order"))
}

/// Kind, type, rank and strides of one argument.
fn check_kind(fusion: &Fusion, position: usize, arg: &ArgMeta) -> Result<()> {
    let error = |code, message: String| Err(named(Diagnostic::user(code, message), &input_label(fusion, position)));
    match (fusion.inputs[position], arg) {
        (Operand::Tensor(tensor), ArgMeta::Tensor(given)) => {
            let declared = &fusion.tensors[tensor];
            let (dtype, rank) = (declared.dtype, declared.axes.len());
            if given.dtype != dtype {
                let message = format!("declared as {dtype}, the argument is {}", given.dtype);
                let refused = Diagnostic::user(code::INPUT_DTYPE, message);
                let packed = "unpack the argument first (HostTensor::unpacked): one value per element";
                let refused = if given.dtype.is_packed() { refused.note(packed) } else { refused };
                return Err(named(refused, &input_label(fusion, position)));
            }
            if given.sizes.len() != rank {
                let message = format!("declared with rank {rank}, the argument has rank {}", given.sizes.len());
                return error(code::INPUT_RANK, message);
            }
            given.check().map_err(|e| named(e, &input_label(fusion, position)))?;
            match &declared.layout {
                Some(layout) => check_layout(fusion, position, layout, given),
                None => Ok(()),
            }
        }
        (Operand::Scalar(scalar), ArgMeta::Scalar(value)) => {
            let dtype = fusion.scalars[scalar].dtype;
            if dtype.class() != value.class() {
                return error(code::INPUT_DTYPE, format!("declared as {dtype}, the argument is {value:?}"));
            }
            match value {
                Value::Int(v) if eval::wrap(dtype, *v) != *v => {
                    error(code::INPUT_DTYPE, format!("declared as {dtype}, which cannot hold {v}"))
                }
                _ => Ok(()),
            }
        }
        (Operand::Tensor(_), ArgMeta::Scalar(value)) => {
            error(code::INPUT_KIND, format!("declared as a tensor, the argument is the scalar {value:?}"))
        }
        (Operand::Scalar(scalar), ArgMeta::Tensor(given)) => {
            let (dtype, sizes) = (fusion.scalars[scalar].dtype, &given.sizes);
            error(code::INPUT_KIND, format!("declared as a scalar {dtype}, the argument is a tensor of {sizes:?}"))
        }
    }
}

/// Scalars that decide a size, directly or through arithmetic: these must not
/// overflow, while other scalar arithmetic wraps as on the device.
fn size_scalars(fusion: &Fusion) -> Vec<bool> {
    use crate::util::EntityId;
    let mut marked = vec![false; fusion.scalars.len()];
    for tensor in fusion.tensors.values() {
        for axis in &tensor.axes {
            marked[axis.extent.index()] = true;
        }
    }
    // Operands come before users, so one backward pass reaches all.
    for (id, scalar) in fusion.scalars.iter().rev() {
        if !marked[id.index()] {
            continue;
        }
        for operand in scalar.def.operands() {
            marked[operand.index()] = true;
        }
    }
    marked
}

fn evaluate_scalars(fusion: &Fusion, args: &[ArgMeta]) -> Result<PrimaryMap<ScalarId, Value>> {
    use crate::util::EntityId;
    let sizes = size_scalars(fusion);
    let mut values = PrimaryMap::new();
    for (id, scalar) in fusion.scalars.iter() {
        let value = evaluate_scalar(fusion, args, &values, id, scalar, sizes[id.index()])?;
        values.push(value);
    }
    Ok(values)
}

fn evaluate_scalar(
    fusion: &Fusion,
    args: &[ArgMeta],
    values: &PrimaryMap<ScalarId, Value>,
    id: ScalarId,
    scalar: &Scalar,
    is_size: bool,
) -> Result<Value> {
    let bug = |what: &str| Diagnostic::bug(format!("scalar {id} of fusion `@{}` {what}", fusion.name));
    let operand = |s: ScalarId| {
        values.get(s).copied().map(|v| (fusion.scalars[s].dtype, v)).ok_or_else(|| bug("is used before it is defined"))
    };
    Ok(match &scalar.def {
        ScalarDef::Const(value) => *value,
        ScalarDef::Input { index, .. } => match args.get(*index as usize) {
            Some(ArgMeta::Scalar(value)) => eval::cast(scalar.dtype, scalar.dtype, *value),
            _ => return Err(bug("names no scalar input")),
        },
        ScalarDef::Size { input, axis } => match args.get(*input as usize) {
            Some(ArgMeta::Tensor(meta)) => {
                Value::Int(*meta.sizes.get(*axis as usize).ok_or_else(|| bug("names no axis of its input"))?)
            }
            _ => return Err(bug("names no tensor input")),
        },
        ScalarDef::Unary(op, a) => {
            let (dtype, value) = operand(*a)?;
            eval::unary(*op, dtype, value)
        }
        ScalarDef::Cast(a) => {
            let (dtype, value) = operand(*a)?;
            eval::cast(dtype, scalar.dtype, value)
        }
        ScalarDef::Binary(op, a, b) => {
            let ((dtype, x), (_, y)) = (operand(*a)?, operand(*b)?);
            if is_size && overflows(*op, dtype, x, y) {
                let (x, y) = (x.as_i64(), y.as_i64());
                return Err(Diagnostic::user(
                    code::SIZE_OVERFLOW,
                    format!("the size {op}({x}, {y}) overflows {dtype}"),
                )
                .note("use smaller extents"));
            }
            eval::binary(*op, dtype, x, y)
        }
        ScalarDef::Ternary(TernaryOp::Where, a, b, c) => {
            if operand(*a)?.1.as_bool() {
                operand(*b)?.1
            } else {
                operand(*c)?.1
            }
        }
        ScalarDef::Ternary(op, a, b, c) => {
            let ((dtype, x), (_, y), (_, z)) = (operand(*a)?, operand(*b)?, operand(*c)?);
            eval::ternary(*op, dtype, x, y, z)
        }
    })
}

/// Whether an integer operation has no exact result in its type.
fn overflows(op: BinaryOp, dtype: DType, a: Value, b: Value) -> bool {
    if dtype.class() != DTypeClass::Int {
        return false;
    }
    // As unsigned for `u64`; 128 bits hold every sum, difference and product.
    let wide = |value: Value| match value.as_i64() {
        bits if dtype == DType::U64 => i128::from(bits.cast_unsigned()),
        number => i128::from(number),
    };
    let (a, b) = (wide(a), wide(b));
    let exact = match op {
        BinaryOp::Add => Some(a + b),
        BinaryOp::Sub => Some(a - b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div | BinaryOp::CeilDiv => a.checked_div(b),
        BinaryOp::Mod | BinaryOp::Remainder | BinaryOp::Fmod => a.checked_rem(b),
        BinaryOp::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        _ => return false,
    };
    let range = wide(Value::Int(eval::least_int(dtype)))..=wide(Value::Int(eval::greatest_int(dtype)));
    exact.is_none_or(|value| !range.contains(&value))
}

/// Where an extent's value comes from, for messages.
fn extent_source(fusion: &Fusion, extent: ScalarId) -> Option<String> {
    match &fusion.scalars[extent].def {
        ScalarDef::Size { input, axis } => Some(format!("axis {axis} of {}", input_label(fusion, *input as usize))),
        ScalarDef::Input { name, .. } => Some(format!("the scalar `%{name}`")),
        _ => None,
    }
}

/// An input's extents against its declared ones.
fn check_extents(
    fusion: &Fusion,
    bindings: &Bindings,
    position: usize,
    tensor: TensorId,
    args: &[ArgMeta],
) -> Result<()> {
    let ArgMeta::Tensor(given) = &args[position] else {
        return Err(Diagnostic::bug(format!("input {position} was checked to be a tensor")));
    };
    for (axis, (declared, &size)) in fusion.tensors[tensor].axes.iter().zip(&given.sizes).enumerate() {
        let expected = bindings.scalar(declared.extent).as_i64();
        let expected = if declared.kind == AxisKind::Broadcast { 1 } else { expected };
        if size == expected {
            continue;
        }
        let reason = match (declared.kind, extent_source(fusion, declared.extent)) {
            (AxisKind::Broadcast, _) => "the size 1 that a broadcast axis has".to_owned(),
            (_, Some(source)) => format!("{expected}, which is {source}"),
            (_, None) => format!("the declared {expected}"),
        };
        let label = input_label(fusion, position);
        return Err(Diagnostic::user(code::INPUT_EXTENT, format!("{label}: axis {axis} is {size}, not {reason}"))
            .note("pass tensors whose extents agree with the declaration"));
    }
    Ok(())
}

/// Every tensor of the fusion has a size that arithmetic on it cannot overflow.
fn check_size(fusion: &Fusion, bindings: &Bindings, tensor: TensorId) -> Result<()> {
    let declared = &fusion.tensors[tensor];
    let label = || match declared.def {
        TensorDef::Input(position) => input_label(fusion, position as usize),
        TensorDef::Op(op) => format!("{} `%{}`", fusion.ops[op].kind.name(), declared.name),
    };
    let sizes = || declared.axes.iter().map(|axis| bindings.scalar(axis.extent).as_i64());
    let told = || sizes().collect::<Vec<_>>();
    if let Some((axis, size)) = sizes().enumerate().find(|(_, size)| *size < 0) {
        let message = format!("{}: axis {axis} has the negative size {size}", label());
        return Err(Diagnostic::user(code::INPUT_EXTENT, message));
    }
    let wide = |(axis, size): (&super::Axis, i64)| axis.kind == AxisKind::Broadcast && size != 1;
    if declared.axes.iter().zip(sizes()).any(wide) {
        let message = format!("{}: a broadcast axis of sizes {:?} is not of size 1", label(), told());
        return Err(Diagnostic::bug(message));
    }
    // Counted with 0 as 1, so that strides and partial products do not overflow either.
    let bytes = sizes().try_fold(declared.dtype.bytes() as i64, |n, size| n.checked_mul(size.max(1)));
    if bytes.is_none() {
        let message = format!("{}: the number of bytes of sizes {:?} overflows", label(), told());
        return Err(Diagnostic::user(code::SIZE_OVERFLOW, message).note("use smaller extents"));
    }
    Ok(())
}

/// A tensor fits the input whose storage it is written into, and that input's
/// elements have places of their own.
fn check_update(fusion: &Fusion, bindings: &Bindings, update: &Update, target: &ArgMeta) -> Result<()> {
    let label = input_label(fusion, update.input as usize);
    let ArgMeta::Tensor(target) = target else {
        return Err(Diagnostic::bug(format!("{label}: an update of a scalar")));
    };
    let sizes = bindings.sizes(fusion, update.tensor);
    if sizes != target.sizes {
        let message = format!("{label}: has sizes {:?}, its update has {sizes:?}", target.sizes);
        return Err(Diagnostic::user(code::INPUT_EXTENT, message));
    }
    let mut axes: Vec<(i64, i64)> =
        target.strides.iter().copied().zip(target.sizes.iter().copied()).filter(|(_, size)| *size > 1).collect();
    axes.sort_unstable();
    // Each axis steps over all that is inside of it.
    let mut inside = 0i64;
    for (stride, size) in axes {
        if stride <= inside && !target.sizes.contains(&0) {
            let message = format!("{label}: several elements have one place, and it is updated");
            return Err(Diagnostic::user(code::INPUT_STRIDE, message)
                .note("pass a tensor that is neither expanded nor overlaps itself"));
        }
        inside = inside.saturating_add(stride.saturating_mul(size - 1));
    }
    Ok(())
}

/// An input lies in memory as it is declared. Contiguity and order say nothing
/// of axes of size 1, nor where there is no element.
fn check_layout(fusion: &Fusion, position: usize, layout: &InputLayout, given: &TensorMeta) -> Result<()> {
    let label = input_label(fusion, position);
    let error = |message: String| {
        Err(Diagnostic::user(code::INPUT_STRIDE, format!("{label}: {message}"))
            .note(format!("its strides are {:?}", given.strides)))
    };
    if given.sizes.contains(&0) {
        return Ok(());
    }
    // The next inner axis that has places of its own: its stride and size.
    let mut inner: Option<(i64, i64)> = None;
    for (&axis, flag) in layout.order.iter().zip(&layout.contiguity).rev() {
        let (size, stride) = (given.sizes[axis as usize], given.strides[axis as usize]);
        match flag {
            None if size > 1 && stride != 0 => {
                return error(format!("axis {axis} is declared as expanded, its stride is {stride}"));
            }
            None => {}
            Some(contiguous) if size > 1 => {
                let expected = inner.map_or(1, |(stride, size)| stride.saturating_mul(size));
                if *contiguous && stride != expected {
                    return error(format!(
                        "axis {axis} is declared as contiguous, its stride is {stride}, not {expected}"
                    ));
                }
                if inner.is_some_and(|(inner, _)| stride < inner) {
                    return error(format!("axis {axis} is declared as an outer one, its stride is {stride}"));
                }
                inner = Some((stride, size));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Extents are numbers.
struct Numbers;

impl SizeMath for Numbers {
    fn constant(&mut self, n: i64) -> ExtentValue {
        ExtentValue(n)
    }
    fn known(&self, extent: ExtentValue) -> Option<i64> {
        Some(extent.0)
    }
    fn binary(&mut self, op: BinaryOp, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        // Overflows were refused when the scalars were evaluated.
        ExtentValue(eval::binary(op, DType::I64, Value::Int(a.0), Value::Int(b.0)).as_i64())
    }
    fn select(&mut self, condition: ExtentValue, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        if condition.0 != 0 { a } else { b }
    }
    fn unify(&mut self, a: ExtentValue, b: ExtentValue) -> Result<ExtentValue, (String, String)> {
        if a == b { Ok(a) } else { Err((a.0.to_string(), b.0.to_string())) }
    }
}

/// A tensor's type and axes; undecided axes are decided by their size.
fn bound_shape(fusion: &Fusion, bindings: &Bindings, tensor: TensorId) -> Shape {
    let tensor = &fusion.tensors[tensor];
    let axis = |axis: &super::Axis| {
        let extent = bindings.scalar(axis.extent).as_i64();
        let kind = match axis.kind {
            AxisKind::Symbolic if extent == 1 => AxisKind::Broadcast,
            AxisKind::Symbolic => AxisKind::Iteration,
            decided => decided,
        };
        AxisMeta { extent: ExtentValue(extent), kind }
    };
    Shape { dtype: tensor.dtype, axes: tensor.axes.iter().map(axis).collect() }
}

/// An operation's operands agree, and its results are declared as the rule says.
fn check_op(fusion: &Fusion, bindings: &Bindings, op: &Op) -> Result<()> {
    let operands: Vec<_> = op
        .inputs
        .iter()
        .map(|operand| match operand {
            Operand::Tensor(tensor) => OperandMeta::Tensor(bound_shape(fusion, bindings, *tensor)),
            Operand::Scalar(scalar) => {
                let value = bindings.scalar(*scalar);
                let size = if value.class() == DTypeClass::Int { value.as_i64() } else { 0 };
                OperandMeta::Scalar(fusion.scalars[*scalar].dtype, ExtentValue(size))
            }
        })
        .collect();
    let mut results = meta::infer(&op.kind, &operands, &mut Numbers).map_err(|mut error| {
        if error.code == code::EXTENT {
            error.code = code::INPUT_EXTENT;
            // Other operations do not pair axes by position.
            if op.kind.is_elementwise() {
                error = extent_notes(fusion, op, &operands, error);
            }
        }
        error.message = format!("`%{}` = {}", fusion.tensors[op.output()].name, error.message);
        error
    })?;
    for (result, &output) in results.iter_mut().zip(&op.outputs) {
        let declared = bound_shape(fusion, bindings, output);
        if op.kind.declares_axes() {
            result.axes.clone_from(&declared.axes);
        }
        // Where the declaration is undecided, the rule may have decided; of an
        // axis of size 1 it may have decided otherwise than its symbols did.
        let undecided = |axis: usize| fusion.tensors[output].axes[axis].kind == AxisKind::Symbolic;
        let same = |(i, (a, b)): (usize, (&AxisMeta, &AxisMeta))| {
            let one = a.extent == ExtentValue(1) && matches!(op.kind, OpKind::Call(_));
            a.extent == b.extent && (a.kind == b.kind || undecided(i) || one || a.kind == AxisKind::Symbolic)
        };
        let agrees = result.dtype == declared.dtype
            && result.axes.len() == declared.axes.len()
            && result.axes.iter().zip(&declared.axes).enumerate().all(same);
        if !agrees {
            let (name, op) = (&fusion.tensors[output].name, op.kind.name());
            return Err(Diagnostic::bug(format!("`%{name}` of {op} is declared unlike its operation's result")));
        }
    }
    if results.len() != op.outputs.len() {
        let (rule, declared) = (results.len(), op.outputs.len());
        return Err(Diagnostic::bug(format!("{} has {rule} results, {declared} are declared", op.kind.name())));
    }
    Ok(())
}

/// Says which inputs the extents of a mismatch come from.
fn extent_notes(fusion: &Fusion, op: &Op, operands: &[OperandMeta], mut error: Box<Diagnostic>) -> Box<Diagnostic> {
    let shapes: Vec<_> = operands
        .iter()
        .zip(&op.inputs)
        .filter_map(|(meta, operand)| match (meta, operand) {
            (OperandMeta::Tensor(shape), Operand::Tensor(tensor)) => Some((shape, *tensor)),
            _ => None,
        })
        .collect();
    let rank = shapes.iter().map(|(shape, _)| shape.axes.len()).min().unwrap_or(0);
    let iterates = |axis: &AxisMeta| axis.kind == AxisKind::Iteration;
    let differs = |position: &usize| {
        let mut sizes = shapes.iter().map(|(shape, _)| shape.axes[*position]).filter(iterates).map(|a| a.extent);
        let first = sizes.next();
        sizes.any(|size| Some(size) != first)
    };
    let Some(position) = (0..rank).find(differs) else { return error };
    for (shape, tensor) in shapes {
        let axis = &shape.axes[position];
        if iterates(axis)
            && let Some(source) = extent_source(fusion, fusion.tensors[tensor].axes[position].extent)
        {
            let (size, name) = (axis.extent.0, &fusion.tensors[tensor].name);
            error = error.note(format!("axis {position} of `%{name}` is {size}: {source}"));
        }
    }
    error
}

#[cfg(test)]
mod tests;
