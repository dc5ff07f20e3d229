//! Arguments among what is joined beside what is made of sums: each as a copy.
//!
//! In: a fusion of primitives. Out: the same where operations that join an argument, as a cache, and something that takes a kernel of
//! its own, join a copy of the argument. Where kernels write what is joined in place (`joined`), one copies the argument there, as
//! any kernel writes; else the copy is nothing, in the kernel that joins.

use super::facts::is_join;
use crate::diag::Result;
use crate::fusion::{Fusion, OpId, OpKind, Operand, Rewriter, Rewritten, TensorId};
use crate::util::SecondaryMap;

/// The fusion with such copies; none if it needs none.
pub(super) fn with_copies(fusion: &Fusion) -> Result<Option<Rewritten>> {
    let mut is_of_sums: SecondaryMap<TensorId, bool> = SecondaryMap::new();
    for (id, op) in fusion.ops.iter() {
        let reads_sums = fusion.tensor_inputs(id).any(|tensor| is_of_sums[tensor]);
        let is = matches!(op.kind, OpKind::Reduce { .. }) || reads_sums;
        op.outputs.iter().for_each(|output| is_of_sums.set(*output, is));
    }
    let is_argument = |tensor: TensorId| fusion.definition(tensor).is_none();
    let wants_copies = |id: &OpId| {
        is_join(&fusion.ops[*id].kind)
            && fusion.tensor_inputs(*id).any(is_argument)
            && fusion.tensor_inputs(*id).any(|tensor| is_of_sums[tensor])
    };
    if !fusion.ops.ids().any(|id| wants_copies(&id)) {
        return Ok(None);
    }
    let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
    for (id, op) in fusion.ops.iter() {
        let results = if wants_copies(&id) {
            let operand = |input: &Operand| match *input {
                Operand::Tensor(tensor) => {
                    let own = rewriter.tensor(tensor)?;
                    if is_argument(tensor) { rewriter.builder.set(own) } else { Ok(Operand::Tensor(own)) }
                }
                Operand::Scalar(scalar) => Ok(Operand::Scalar(rewriter.scalar(scalar))),
            };
            let operands = op.inputs.iter().map(operand).collect::<Result<Vec<Operand>>>()?;
            rewriter.keep_on(op, operands)?
        } else {
            rewriter.keep(op)?
        };
        rewriter.replace(op, &results)?;
    }
    rewriter.finish().map(Some)
}
