//! What schedules can be made of. Fusions with anything else are refused here,
//! with a code that says what is missing, before any work is done on them.

use super::graph::Author;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::Form;
use crate::fusion::{AxisKind, Fusion, OpKind, Operand};

/// Whether every operation, axis, output and data type of a fusion has a kernel form.
pub(super) fn check(fusion: &Fusion, by: Author) -> Result<()> {
    for op in fusion.ops.values() {
        if let OpKind::Call(call) = &op.kind
            && call.row.random.is_none()
            && call.lookup().is_none()
            && !call.movement().form.is_some_and(|form| is_known(form, by))
        {
            let name = &fusion.tensors[op.output()].name;
            let message = format!("{}: the operation that defines `%{name}` has no kernel form yet", call.row.name);
            return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, message).note("a run computes it on the host"));
        }
    }
    check_tables(fusion)?;
    if let Some(update) = fusion.updates.first() {
        let name = &fusion.tensors[update.tensor].name;
        let message = format!("`%{name}` is written into an input, which kernels do not do yet");
        return Err(Diagnostic::unsupported(code::UPDATE_NOT_LOWERED, message)
            .note("a run writes it elsewhere, and copies it behind all other steps"));
    }
    let undecided = |axis: &crate::fusion::Axis| axis.kind == AxisKind::Symbolic;
    match fusion.tensors.values().find(|tensor| tensor.axes.iter().any(undecided)) {
        Some(tensor) => {
            Err(Diagnostic::bug(format!("`%{}` has undecided axes: concretise the fusion first", tensor.name)))
        }
        None => Ok(()),
    }
}

/// Whether elements of such a result are those of operands, at other indices along other axes.
pub(super) fn is_moved(form: Form) -> bool {
    matches!(form, Form::Slice | Form::Reshape) || is_widened(form)
}

/// Whether such a result has all axes of its operands, some of them with more indices at their ends, or fewer.
fn is_widened(form: Form) -> bool {
    matches!(form, Form::Pad | Form::Cat)
}

/// Whether an operation pads or joins tensors.
pub(crate) fn widens(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Call(call) if call.movement().form.is_some_and(is_widened))
}

/// Whether a scheduler knows such results.
fn is_known(form: Form, by: Author) -> bool {
    match by {
        Author::Caller => is_moved(form),
        Author::Heuristic => is_widened(form),
    }
}

/// Whether what is looked up is in memory: any of its elements may be asked for.
fn check_tables(fusion: &Fusion) -> Result<()> {
    for op in fusion.ops.values() {
        let table = op.kind.lookup().and_then(|lookup| op.inputs.get(lookup.table).copied());
        if let Some(Operand::Tensor(table)) = table
            && fusion.definition(table).is_some()
        {
            let names = [table, op.output()].map(|tensor| &fusion.tensors[tensor].name);
            let message = format!("`%{}` is computed, and read where an index says by `%{}`", names[0], names[1]);
            return Err(Diagnostic::unsupported(code::NEEDS_SEGMENTS, message)
                .note("what is looked up must be in memory of the device; split the fusion before it"));
        }
    }
    Ok(())
}
