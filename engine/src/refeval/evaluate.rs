//! Evaluates a fusion operation by operation.

use super::data::View;
use super::{elementwise, reduce};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{Bindings, Fusion, Op, OpKind, Operand, TensorDef, TensorId, bind_args};
use crate::num::DType;
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::util::EntityId;

/// The outputs of a fusion for some arguments: dense, row-major.
pub fn evaluate(fusion: &Fusion, args: &[Arg]) -> Result<Vec<HostTensor>> {
    let bindings = bind_args(fusion, args)?;
    check_memory(fusion, &bindings)?;
    let mut state = State { fusion, args, bindings, values: vec![None; fusion.tensors.len()] };
    let last_uses = last_uses(fusion);
    for (id, op) in fusion.ops.iter() {
        let result = state.run(op)?;
        state.values[op.output.index()] = Some(result);
        // Memory of what nothing reads any more.
        for operand in fusion.tensor_inputs(id).chain([op.output]) {
            if last_uses[operand.index()].is_none_or(|last| last <= id.index()) {
                state.values[operand.index()] = None;
            }
        }
    }
    fusion.outputs.iter().map(|&output| state.tensor(output)?.store()).collect()
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
    for output in &fusion.outputs {
        last[output.index()] = Some(usize::MAX);
    }
    last
}

/// Every tensor that will be stored fits the host's limit in the widest
/// representation. Results that are views cost nothing.
fn check_memory(fusion: &Fusion, bindings: &Bindings) -> Result<()> {
    for (tensor, declared) in fusion.tensors.iter() {
        let is_view = match declared.def {
            TensorDef::Input(_) => true,
            TensorDef::Op(op) => matches!(
                fusion.ops[op].kind,
                OpKind::Set | OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. } | OpKind::Full
            ),
        };
        if !is_view || fusion.outputs.contains(&tensor) {
            TensorMeta::contiguous(DType::F64, &bindings.sizes(fusion, tensor)).dense_bytes().map_err(
                |mut error| {
                    error.message = format!("`%{}`: {}", declared.name, error.message);
                    error
                },
            )?;
        }
    }
    Ok(())
}

struct State<'a> {
    fusion: &'a Fusion,
    args: &'a [Arg],
    bindings: Bindings,
    values: Vec<Option<View>>,
}

impl State<'_> {
    /// A tensor's value; inputs are read on first use.
    fn tensor(&mut self, tensor: TensorId) -> Result<View> {
        if let Some(view) = &self.values[tensor.index()] {
            return Ok(view.clone());
        }
        let view = match self.fusion.tensors[tensor].def {
            TensorDef::Input(position) => match self.args.get(position as usize) {
                Some(Arg::Tensor(argument)) => View::load(argument),
                _ => return Err(Diagnostic::bug(format!("input {position} was checked to be a tensor"))),
            },
            TensorDef::Op(op) => return Err(Diagnostic::bug(format!("{tensor} is read before {op} defines it"))),
        };
        self.values[tensor.index()] = Some(view.clone());
        Ok(view)
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

    fn run(&mut self, op: &Op) -> Result<View> {
        let sizes = self.sizes(op.output);
        let mut operands = Vec::with_capacity(op.inputs.len());
        for &operand in &op.inputs {
            operands.push(self.operand(operand, &sizes)?);
        }
        // The binding checked the number of operands and their axes.
        match (&op.kind, &mut operands[..]) {
            (OpKind::Unary(op), [x]) => elementwise::unary(*op, x),
            (OpKind::Binary(op), [a, b]) => elementwise::binary(*op, &sizes, a, b),
            (OpKind::Ternary(op), [a, b, c]) => elementwise::ternary(*op, &sizes, a, b, c),
            (OpKind::Cast(to), [x]) => elementwise::cast(*to, x),
            (OpKind::Set | OpKind::Full, [x]) => Ok(x.clone()),
            (OpKind::Reduce { op, axes }, [x]) => reduce::reduce(*op, axes, x),
            (kind, [x]) => {
                x.strides = moved_strides(kind, &x.strides);
                x.sizes = sizes;
                Ok(x.clone())
            }
            (kind, _) => Err(Diagnostic::bug(format!("{} with {} operands", kind.name(), op.inputs.len()))),
        }
    }
}

/// Strides of the views that insert, drop and reorder axes.
fn moved_strides(kind: &OpKind, strides: &[usize]) -> Vec<usize> {
    match kind {
        OpKind::Broadcast { flags } => {
            let mut old = strides.iter().copied();
            flags.iter().map(|&new| if new { 0 } else { old.next().unwrap_or(0) }).collect()
        }
        OpKind::Squeeze { flags } => {
            strides.iter().zip(flags).filter(|(_, dropped)| !**dropped).map(|(&stride, _)| stride).collect()
        }
        OpKind::Permute { perm } => perm.iter().map(|&axis| strides[axis as usize]).collect(),
        _ => strides.to_vec(),
    }
}
