//! Strides of every tensor of a fusion for arguments of known layout, as the
//! operations of PyTorch's eager mode would give them: what the reference
//! evaluator returns, predicted without evaluating anything.

use super::ops::{LayoutCx, LayoutOperand, ResultLayout, ViewPlace};
use super::{Bindings, Fusion, Op, OpId, OpKind, Operand, TensorDef, TensorId};
use crate::array::{copy_layout, elementwise_layout, row_major_strides};
use crate::diag::{Diagnostic, Result};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::PrimaryMap;

/// Type, sizes and strides of every tensor.
pub fn layouts(fusion: &Fusion, bindings: &Bindings, args: &[ArgMeta]) -> Result<PrimaryMap<TensorId, TensorMeta>> {
    let mut metas: PrimaryMap<TensorId, TensorMeta> = PrimaryMap::new();
    for (id, tensor) in fusion.tensors.iter() {
        let op = match tensor.def {
            TensorDef::Input(position) => {
                metas.push(input(fusion, id, args.get(position as usize))?);
                continue;
            }
            TensorDef::Op(op) => op,
        };
        // Results of one operation stand one after the other.
        let op = &fusion.ops[op];
        if op.output() == id {
            let sizes: Vec<Vec<i64>> = op.outputs.iter().map(|&output| bindings.sizes(fusion, output)).collect();
            let strides = strides(bindings, &metas, op, &sizes)?;
            for ((&output, sizes), strides) in op.outputs.iter().zip(sizes).zip(strides) {
                metas.push(TensorMeta { dtype: fusion.tensors[output].dtype, sizes, strides });
            }
        }
    }
    if metas.len() != fusion.tensors.len() {
        return Err(Diagnostic::bug(format!("layouts of {} of {} tensors", metas.len(), fusion.tensors.len())));
    }
    Ok(metas)
}

/// The layout of the argument of an input.
pub(super) fn input(fusion: &Fusion, id: TensorId, arg: Option<&ArgMeta>) -> Result<TensorMeta> {
    match arg {
        Some(ArgMeta::Tensor(meta)) => Ok(meta.clone()),
        _ => Err(Diagnostic::bug(format!("the argument of `%{}` was checked to be a tensor", fusion.tensors[id].name))),
    }
}

/// Strides of each result of an operation.
pub(super) fn strides(
    bindings: &Bindings,
    metas: &PrimaryMap<TensorId, TensorMeta>,
    op: &Op,
    sizes: &[Vec<i64>],
) -> Result<Vec<Vec<i64>>> {
    let operand = |operand: &Operand| match *operand {
        Operand::Tensor(t) => LayoutOperand::Tensor(metas[t].sizes.clone(), metas[t].strides.clone()),
        Operand::Scalar(s) => LayoutOperand::Scalar(bindings.scalar(s)),
    };
    let operands: Vec<LayoutOperand> = op.inputs.iter().map(operand).collect();
    if let OpKind::Call(call) = &op.kind {
        return match call.primitive().map(|primitive| primitive.layout) {
            Some(ResultLayout::Dense) => Ok(sizes.iter().map(|sizes| row_major_strides(sizes)).collect()),
            Some(ResultLayout::Elementwise) => Ok(sizes.iter().map(|sizes| elementwise(sizes, &operands)).collect()),
            Some(ResultLayout::Custom(rule)) => rule(&LayoutCx { call, operands: &operands, results: sizes }),
            None => Err(Diagnostic::bug(format!("{} is no primitive", call.row.name))),
        };
    }
    let sizes = &sizes[0];
    if let (OpKind::Cast(_) | OpKind::Set, Some(LayoutOperand::Tensor(own, strides))) = (&op.kind, operands.first()) {
        return Ok(vec![copy_layout(own, strides).1]);
    }
    if op.kind.is_elementwise() {
        return Ok(vec![elementwise(sizes, &operands)]);
    }
    Ok(vec![match (&op.kind, operands.first()) {
        (OpKind::Full | OpKind::Index { .. } | OpKind::Reduce { .. }, _) => row_major_strides(sizes),
        (kind, Some(LayoutOperand::Tensor(own, strides))) => moved(kind, own, strides),
        (kind, _) => return Err(Diagnostic::bug(format!("{} without a tensor operand", kind.name()))),
    }])
}

/// A result that lies in memory of its operand, or of a row-major copy of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundView {
    /// Where in it.
    pub place: ViewPlace,
    /// Whether the operand has to be copied first: no strides of its own express the result.
    pub copies: bool,
}

/// Whether the result of an operation may lie in the memory of its only tensor operand: no
/// element of it is another, whatever the sizes.
pub fn may_be_view(fusion: &Fusion, op: &Op) -> bool {
    let Some(&Operand::Tensor(operand)) = op.inputs.first() else { return false };
    match &op.kind {
        OpKind::Set | OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. } => {
            fusion.tensors[operand].dtype == fusion.tensors[op.output()].dtype
        }
        OpKind::Call(call) => call.movement().place.is_some(),
        _ => false,
    }
}

/// Where the result of an operation that moves nothing lies in the memory of its
/// only tensor operand, laid out like this, or of a copy; nothing if it is no view at all.
pub fn find_view(fusion: &Fusion, bindings: &Bindings, op: OpId, operand: &TensorMeta) -> Result<Option<FoundView>> {
    if let Some(place) = view_place(fusion, bindings, op, operand)? {
        return Ok(Some(FoundView { place, copies: false }));
    }
    let copy = TensorMeta::contiguous(operand.dtype, &operand.sizes);
    Ok(view_place(fusion, bindings, op, &copy)?.map(|place| FoundView { place, copies: true }))
}

fn view_place(fusion: &Fusion, bindings: &Bindings, op: OpId, operand: &TensorMeta) -> Result<Option<ViewPlace>> {
    let op = &fusion.ops[op];
    let sizes = bindings.sizes(fusion, op.output());
    // What has no element lies nowhere.
    if sizes.contains(&0) || !may_be_view(fusion, op) {
        return Ok(None);
    }
    let OpKind::Call(call) = &op.kind else {
        let strides = moved(&op.kind, &operand.sizes, &operand.strides);
        return Ok(Some(ViewPlace { strides, offset: 0 }));
    };
    let Some(rule) = call.movement().place else { return Ok(None) };
    let laid = |own: &Operand| match *own {
        Operand::Tensor(_) => LayoutOperand::Tensor(operand.sizes.clone(), operand.strides.clone()),
        Operand::Scalar(scalar) => LayoutOperand::Scalar(bindings.scalar(scalar)),
    };
    let operands: Vec<LayoutOperand> = op.inputs.iter().map(laid).collect();
    rule(&LayoutCx { call, operands: &operands, results: &[sizes] })
}

fn elementwise(sizes: &[i64], operands: &[LayoutOperand]) -> Vec<i64> {
    let mut tensors = Vec::with_capacity(operands.len());
    for operand in operands {
        if let LayoutOperand::Tensor(own, strides) = operand {
            tensors.push((&own[..], &strides[..]));
        }
    }
    elementwise_layout(sizes, &tensors, tensors.len() < operands.len()).1
}

/// Strides of the views that insert, drop and reorder axes of a tensor.
pub(crate) fn moved(kind: &OpKind, sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    match kind {
        OpKind::Broadcast { flags } => {
            let mut old = 0;
            let mut moved = Vec::with_capacity(flags.len());
            for &new in flags {
                // A new axis steps over what is inside of it.
                let step = strides.get(old).map_or(1, |stride| stride.saturating_mul(sizes[old].max(1)));
                moved.push(if new { step } else { strides.get(old).copied().unwrap_or(0) });
                old += usize::from(!new);
            }
            moved
        }
        OpKind::Squeeze { flags } => {
            strides.iter().zip(flags).filter(|(_, dropped)| !**dropped).map(|(&stride, _)| stride).collect()
        }
        OpKind::Permute { perm } => perm.iter().map(|&axis| strides[axis as usize]).collect(),
        _ => strides.to_vec(),
    }
}
