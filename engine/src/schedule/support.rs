//! What schedules can be made of. Fusions with anything else are refused here,
//! with a code that says what is missing, before any work is done on them.

use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{AxisKind, Fusion, OpKind};

/// Whether every operation, axis and output of a fusion has a kernel form.
pub(super) fn check(fusion: &Fusion) -> Result<()> {
    for op in fusion.ops.values() {
        if let OpKind::Call(call) = &op.kind {
            let name = &fusion.tensors[op.output()].name;
            let message = format!("{}: the operation that defines `%{name}` has no kernel form yet", call.row.name);
            return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message).note("run it on the reference"));
        }
    }
    if let Some(update) = fusion.updates.first() {
        let name = &fusion.tensors[update.tensor].name;
        let message = format!("`%{name}` is written into an input, which kernels do not do yet");
        return Err(Diagnostic::unsupported(code::UPDATE_NOT_LOWERED, message)
            .note("run it on the reference, or return the value and copy it"));
    }
    let undecided = |axis: &crate::fusion::Axis| axis.kind == AxisKind::Symbolic;
    match fusion.tensors.values().find(|tensor| tensor.axes.iter().any(undecided)) {
        Some(tensor) => {
            Err(Diagnostic::bug(format!("`%{}` has undecided axes: concretise the fusion first", tensor.name)))
        }
        None => Ok(()),
    }
}
