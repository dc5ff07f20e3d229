//! What stands inside of a definition, where a record allows more than one result.

use engine::diag::Result;
use engine::fusion::{Fusion, Op, TensorId};
use engine::refeval::evaluate;
use engine::tensor::{Arg, HostTensor};

/// An output by position, and the operation that defines it.
pub(super) fn definition(fusion: &Fusion, output: usize) -> Option<(TensorId, &Op)> {
    let output = *fusion.outputs.get(output)?;
    Some((output, &fusion.ops[fusion.definition(output)?]))
}

/// The value that a tensor of the definition has.
pub(super) fn value(fusion: &Fusion, args: &[Arg], tensor: TensorId) -> Result<Option<HostTensor>> {
    let mut before = fusion.clone();
    before.outputs = vec![tensor];
    before.updates.clear();
    Ok(evaluate(&before, args)?.pop())
}
