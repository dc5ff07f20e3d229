//! What segmentation knows of each operation.

use crate::fusion::{Bindings, Fusion, Op, OpId, OpKind, Operand, TensorId};
use crate::util::SecondaryMap;

/// A fusion with decided axes, its sizes, and what follows for each operation.
pub(super) struct OpFacts<'a> {
    pub(super) fusion: &'a Fusion,
    pub(super) bindings: &'a Bindings,
    /// Bytes of each tensor.
    pub(super) bytes: SecondaryMap<TensorId, i64>,
    /// Operations that no kernel computes.
    pub(super) host: SecondaryMap<OpId, bool>,
    /// Operations before which the fusion is cut.
    pub(super) cuts: SecondaryMap<OpId, bool>,
    /// Operations that read each tensor, in order.
    pub(super) readers: SecondaryMap<TensorId, Vec<OpId>>,
    /// Tensors that the fusion returns, or writes into an input.
    pub(super) returned: SecondaryMap<TensorId, bool>,
}

impl<'a> OpFacts<'a> {
    pub(super) fn new(fusion: &'a Fusion, bindings: &'a Bindings, cut_results: &[TensorId]) -> Self {
        let mut bytes = SecondaryMap::new();
        for (id, tensor) in fusion.tensors.iter() {
            let sizes = bindings.sizes(fusion, id);
            let elements = sizes.iter().fold(1i64, |n, size| n.saturating_mul(*size));
            bytes.set(id, elements.saturating_mul(tensor.dtype.bytes() as i64));
        }
        let mut readers: SecondaryMap<TensorId, Vec<OpId>> = SecondaryMap::new();
        let mut host = SecondaryMap::new();
        for (id, op) in fusion.ops.iter() {
            host.set(id, !has_kernel_form(fusion, op));
            for tensor in fusion.tensor_inputs(id) {
                if readers[tensor].last() != Some(&id) {
                    readers[tensor].push(id);
                }
            }
        }
        let mut cuts = SecondaryMap::new();
        for op in cut_results.iter().filter_map(|tensor| fusion.definition(*tensor)) {
            cuts.set(op, true);
        }
        let mut returned = SecondaryMap::new();
        for tensor in fusion.outputs.iter().chain(fusion.updates.iter().map(|update| &update.tensor)) {
            returned.set(*tensor, true);
        }
        Self { fusion, bindings, bytes, host, cuts, readers, returned }
    }

    /// The size of an axis.
    pub(super) fn size(&self, tensor: TensorId, axis: usize) -> i64 {
        self.bindings.scalar(self.fusion.tensors[tensor].axes[axis].extent).as_i64()
    }
}

/// Whether schedules know an operation and the types of its values.
pub(super) fn has_kernel_form(fusion: &Fusion, op: &Op) -> bool {
    let known = match &op.kind {
        OpKind::Call(call) => call.row.random.is_some(),
        _ => true,
    };
    let dtype = |operand: &Operand| match *operand {
        Operand::Tensor(tensor) => fusion.tensors[tensor].dtype,
        Operand::Scalar(scalar) => fusion.scalars[scalar].dtype,
    };
    known
        && op.inputs.iter().all(|operand| dtype(operand).in_kernels())
        && op.outputs.iter().all(|output| fusion.tensors[*output].dtype.in_kernels())
}
