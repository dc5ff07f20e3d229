//! Evaluates a fusion operation by operation.

use super::{elementwise, reduce};
use crate::array::{View, copy_layout, elementwise_layout, permuted};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Call, EvalCx, EvalOperand, Reads};
use crate::fusion::{self, Bindings, Fusion, Op, OpId, OpKind, Operand, TensorDef, TensorId, bind_args};
use crate::num::DType;
use crate::tensor::{Arg, HostTensor, Offsets, TensorMeta};
use crate::util::EntityId;

/// What a fusion gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The outputs in order, with the sizes and strides that PyTorch's eager
    /// operations would give them.
    pub outputs: Vec<HostTensor>,
    /// The inputs that are updated, by position, as they are afterwards. An
    /// output that is an update too has its input's strides.
    pub updates: Vec<(usize, HostTensor)>,
}

/// The outputs of a fusion for some arguments.
pub fn evaluate(fusion: &Fusion, args: &[Arg]) -> Result<Vec<HostTensor>> {
    Ok(evaluate_all(fusion, args)?.outputs)
}

/// Outputs and updated inputs of a fusion for some arguments. Packed arguments
/// are unpacked first; results are not packed again.
pub fn evaluate_all(fusion: &Fusion, args: &[Arg]) -> Result<Evaluation> {
    let unpacked;
    let packed = |arg: &Arg| matches!(arg, Arg::Tensor(tensor) if tensor.dtype().is_packed());
    let args = if args.iter().any(packed) {
        unpacked = args.iter().map(Arg::unpacked).collect::<Result<Vec<_>>>()?;
        &unpacked
    } else {
        args
    };
    let bindings = bind_args(fusion, args)?;
    check_memory(fusion, &bindings)?;
    let (values, last_uses) = (vec![None; fusion.tensors.len()], last_uses(fusion));
    let mut state = Evaluator { fusion, args, bindings, values, last_uses };
    for (id, op) in fusion.ops.iter() {
        let results = state.run(id, op)?;
        for (output, result) in op.outputs.iter().zip(results) {
            state.values[output.index()] = Some(result);
        }
        state.forget(id, op.outputs.iter().copied());
    }
    let mut updates = Vec::with_capacity(fusion.updates.len());
    for update in &fusion.updates {
        let input = update.input as usize;
        let Some(Arg::Tensor(target)) = args.get(input) else {
            return Err(Diagnostic::bug(format!("input {input} was checked to be a tensor")));
        };
        updates.push((input, write_into(target, &state.tensor(update.tensor)?)));
    }
    let mut outputs = Vec::with_capacity(fusion.outputs.len());
    for &output in &fusion.outputs {
        let updated = fusion.updates.iter().position(|update| update.tensor == output);
        outputs.push(match updated {
            Some(position) => updates[position].1.clone(),
            None => state.tensor(output)?.store()?,
        });
    }
    Ok(Evaluation { outputs, updates })
}

/// A tensor of the target's type and sizes, written into the places of the target.
pub fn updated(target: &HostTensor, value: &HostTensor) -> HostTensor {
    write_into(target, &View::load(value))
}

/// A tensor with other elements in the same places of its storage.
fn write_into(target: &HostTensor, value: &View) -> HostTensor {
    let mut target = target.clone();
    let width = target.dtype().bytes();
    let offsets: Vec<usize> = Offsets::new(&target.meta).map(|offset| target.offset + offset).collect();
    for (offset, value) in offsets.into_iter().zip(value.values()) {
        let bytes = crate::num::storage::encode(target.meta.dtype, value);
        if let Some(place) = target.data.get_mut(offset * width..(offset + 1) * width) {
            place.copy_from_slice(&bytes[..width]);
        }
    }
    target
}

/// The position of the last operation that reads each tensor; none if no
/// operation does, the end of time for outputs.
fn last_uses(fusion: &Fusion) -> Vec<Option<usize>> {
    let mut last = vec![None; fusion.tensors.len()];
    for id in fusion.ops.ids() {
        for operand in fusion.tensor_inputs(id) {
            last[operand.index()] = Some(id.index());
        }
    }
    for output in fusion.outputs.iter().chain(fusion.updates.iter().map(|update| &update.tensor)) {
        last[output.index()] = Some(usize::MAX);
    }
    last
}

/// Every tensor that will be stored fits the host's limit in the widest
/// representation, and so does every operand that is read element by element:
/// arguments and views may repeat few elements without end. Results that are
/// views cost nothing.
fn check_memory(fusion: &Fusion, bindings: &Bindings) -> Result<()> {
    let check = |tensor: TensorId, told: &str| {
        let name = &fusion.tensors[tensor].name;
        let sizes = bindings.sizes(fusion, tensor);
        TensorMeta::contiguous(DType::F64, &sizes).dense_bytes().map(drop).map_err(|mut error| {
            error.message = format!("`%{name}`{told}: {}", error.message);
            error
        })
    };
    for (_, op) in fusion.ops.iter() {
        for (position, operand) in op.inputs.iter().enumerate() {
            if let Operand::Tensor(tensor) = *operand
                && reads_whole(&op.kind, position)
            {
                check(tensor, &format!(", of which {} reads every element", op.kind.name()))?;
            }
        }
        for &output in &op.outputs {
            if !is_view(&op.kind) || fusion.outputs.contains(&output) {
                check(output, "")?;
            }
        }
    }
    Ok(())
}

fn is_view(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. })
}

/// Whether an operation may look at every element of an operand, and not only at
/// as many as its results have.
fn reads_whole(kind: &OpKind, position: usize) -> bool {
    let OpKind::Call(call) = kind else { return !is_view(kind) };
    match call.movement().reads {
        Reads::Whole => true,
        Reads::Picked(param) => !call.operands(param).contains(&position),
    }
}

struct Evaluator<'a> {
    fusion: &'a Fusion,
    args: &'a [Arg],
    bindings: Bindings,
    values: Vec<Option<View>>,
    last_uses: Vec<Option<usize>>,
}

impl Evaluator<'_> {
    /// A tensor's value; inputs are read on first use.
    fn tensor(&mut self, tensor: TensorId) -> Result<View> {
        if let Some(view) = &self.values[tensor.index()] {
            return Ok(view.clone());
        }
        let view = match self.fusion.tensors[tensor].def {
            TensorDef::Input(position) => match self.args.get(position as usize) {
                Some(Arg::Tensor(argument)) => {
                    let dense = self.is_computed_with(tensor).then(|| View::load_without_gaps(argument)).flatten();
                    dense.unwrap_or_else(|| View::load(argument))
                }
                _ => return Err(Diagnostic::bug(format!("input {position} was checked to be a tensor"))),
            },
            TensorDef::Op(op) => return Err(Diagnostic::bug(format!("{tensor} is read before {op} defines it"))),
        };
        self.values[tensor.index()] = Some(view.clone());
        Ok(view)
    }

    /// Whether a tensor is read by operations alone whose results have an order of axes, but no strides, of it.
    fn is_computed_with(&self, tensor: TensorId) -> bool {
        let reads = |id: OpId| self.fusion.tensor_inputs(id).any(|operand| operand == tensor);
        let computes = |kind: &OpKind| {
            use OpKind::{Binary, Cast, Reduce, Ternary, Unary};
            matches!(kind, Unary(_) | Binary(_) | Ternary(_) | Cast(_) | Reduce { .. })
        };
        !self.fusion.outputs.contains(&tensor)
            && self.fusion.ops.iter().all(|(id, op)| !reads(id) || computes(&op.kind))
    }

    /// Gives up what no operation after this one reads.
    fn forget(&mut self, id: OpId, tensors: impl Iterator<Item = TensorId>) {
        for tensor in tensors {
            if self.last_uses[tensor.index()].is_none_or(|last| last <= id.index()) {
                self.values[tensor.index()] = None;
            }
        }
    }

    fn sizes(&self, tensor: TensorId) -> Vec<usize> {
        let sizes = self.bindings.sizes(self.fusion, tensor);
        sizes.into_iter().map(|size| usize::try_from(size).unwrap_or(0)).collect()
    }

    /// An operand as a tensor that takes part in a result of `sizes`.
    fn operand(&mut self, operand: Operand, sizes: &[usize]) -> Result<View> {
        match operand {
            Operand::Tensor(tensor) => self.tensor(tensor),
            Operand::Scalar(scalar) => {
                let dtype = self.fusion.scalars[scalar].dtype;
                Ok(View::repeated(dtype, self.bindings.scalar(scalar), sizes.to_vec()))
            }
        }
    }

    /// The results of an operation. Its operands are given up before it runs, so
    /// that what nothing else reads may be overwritten.
    fn run(&mut self, id: OpId, op: &Op) -> Result<Vec<View>> {
        if let OpKind::Call(call) = &op.kind {
            return self.call(id, op, call);
        }
        let sizes = self.sizes(op.output());
        let mut operands = Vec::with_capacity(op.inputs.len());
        for &operand in &op.inputs {
            operands.push(self.operand(operand, &sizes)?);
        }
        self.forget(id, self.fusion.tensor_inputs(id));
        if op.kind.is_elementwise() && !sizes.is_empty() {
            let tensor = |operand: &Operand| matches!(operand, Operand::Tensor(_));
            return Ok(vec![in_order(&op.kind, &sizes, operands, op.inputs.iter().map(tensor))?]);
        }
        core(&op.kind, sizes, &mut operands).map(|view| vec![view])
    }

    /// A primitive with an evaluator of its own.
    fn call(&mut self, id: OpId, op: &Op, call: &Call) -> Result<Vec<View>> {
        let Some(primitive) = call.primitive() else {
            return Err(Diagnostic::bug(format!("{} is no primitive", call.row.name)));
        };
        let mut operands = Vec::with_capacity(op.inputs.len());
        for &operand in &op.inputs {
            operands.push(match operand {
                Operand::Tensor(tensor) => EvalOperand::Tensor(self.tensor(tensor)?),
                Operand::Scalar(scalar) => {
                    EvalOperand::Scalar(self.fusion.scalars[scalar].dtype, self.bindings.scalar(scalar))
                }
            });
        }
        self.forget(id, self.fusion.tensor_inputs(id));
        let results: Vec<_> =
            op.outputs.iter().map(|&output| (self.fusion.tensors[output].dtype, self.sizes(output))).collect();
        let views = (primitive.eval)(&EvalCx::new(call, &operands, &results))?;
        let agrees =
            |(view, (dtype, sizes)): (&View, &(DType, Vec<usize>))| view.dtype == *dtype && view.sizes == *sizes;
        if views.len() != results.len() || !views.iter().zip(&results).all(agrees) {
            let name = call.row.name;
            return Err(Diagnostic::bug(format!("{name}: its values have other types or sizes than its rule says")));
        }
        Ok(views)
    }
}

/// An elementwise operation, visiting axes in the order of the operands'
/// strides and laying out the result so.
fn in_order(kind: &OpKind, sizes: &[usize], operands: Vec<View>, tensors: impl Iterator<Item = bool>) -> Result<View> {
    let tensors: Vec<bool> = tensors.collect();
    let metas: Vec<TensorMeta> = operands.iter().zip(&tensors).filter(|(_, t)| **t).map(|(v, _)| v.meta()).collect();
    let layouts: Vec<_> = metas.iter().map(|meta| (&meta.sizes[..], &meta.strides[..])).collect();
    let signed: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
    let (order, strides) = match (kind, &layouts[..]) {
        (OpKind::Cast(_) | OpKind::Set, [(own, strides)]) => copy_layout(own, strides),
        _ => elementwise_layout(&signed, &layouts, tensors.contains(&false)),
    };
    let mut moved: Vec<View> = operands.into_iter().map(|operand| operand.permuted(&order)).collect();
    let result = core(kind, permuted(sizes, &order), &mut moved)?;
    let strides = strides.into_iter().map(|stride| stride as usize).collect();
    Ok(View { strides, sizes: sizes.to_vec(), ..result })
}

fn core(kind: &OpKind, sizes: Vec<usize>, operands: &mut [View]) -> Result<View> {
    // The binding checked the number of operands and their axes.
    match (kind, operands) {
        (OpKind::Unary(op), [x]) => elementwise::unary(*op, x),
        (OpKind::Binary(op), [a, b]) => elementwise::binary(*op, &sizes, a, b),
        (OpKind::Ternary(op), [a, b, c]) => elementwise::ternary(*op, &sizes, a, b, c),
        (OpKind::Cast(to), [x]) => elementwise::cast(*to, x),
        (OpKind::Set, [x]) => Ok(x.to_dense()),
        (OpKind::Full, [x]) => Ok(x.to_dense()),
        (OpKind::Index { axis }, []) => {
            let axis = *axis as usize;
            let positions = View::from_i64(DType::I64, vec![sizes[axis]], (0..sizes[axis] as i64).collect());
            let strides = (0..sizes.len()).map(|a| usize::from(a == axis)).collect();
            Ok(positions.seen(sizes, strides, 0).to_dense())
        }
        (OpKind::Reduce { op, axes }, [x]) => reduce::reduce(*op, axes, x),
        (kind, [x]) => {
            let meta = x.meta();
            let strides = fusion::moved_strides(kind, &meta.sizes, &meta.strides);
            Ok(x.seen(sizes, strides.into_iter().map(|stride| stride as usize).collect(), 0))
        }
        (kind, operands) => Err(Diagnostic::bug(format!("{} with {} operands", kind.name(), operands.len()))),
    }
}
