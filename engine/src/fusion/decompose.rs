//! Primitives of the table in terms of simpler operations, where their row says
//! how: what schedules take instead of them.

use super::ops::{BuildFn, Call};
use super::rewrite::{Rewriter, Rewritten};
use super::{Fusion, Op, OpKind, Operand, TensorId};
use crate::diag::{Diagnostic, Result};

/// The same fusion without the primitives that decompose. Repeated until none
/// is left, since one may decompose into others.
pub fn decompose(fusion: &Fusion) -> Result<Rewritten> {
    let mut done = once(fusion)?;
    // A chain of rows that decompose into each other is short.
    for _ in 0..8 {
        if !decomposes(&done.fusion) {
            break;
        }
        let next = once(&done.fusion)?;
        let mut tensors = crate::util::SecondaryMap::new();
        for old in fusion.tensors.ids() {
            tensors.set(old, done.tensors[old].and_then(|middle| next.tensors[middle]));
        }
        done = Rewritten { fusion: next.fusion, tensors };
    }
    Ok(done)
}

/// Whether [`decompose`] changes a fusion.
pub fn decomposes(fusion: &Fusion) -> bool {
    fusion.ops.values().any(|op| rule(fusion, op).is_some())
}

/// How an operation decomposes, if it does.
fn rule<'a>(fusion: &Fusion, op: &'a Op) -> Option<(&'a Call, BuildFn)> {
    let OpKind::Call(call) = &op.kind else { return None };
    let rule = call.primitive()?.decompose?;
    let stays = call.row.stays.is_some_and(|stays| stays(fusion, op, call));
    (!stays).then_some((call, rule))
}

fn once(fusion: &Fusion) -> Result<Rewritten> {
    let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
    for op in fusion.ops.values() {
        let results = match rule(fusion, op) {
            // Conversions that others have in common with what an operation decomposes to are one.
            None if matches!(op.kind, OpKind::Cast(_)) => rewriter.write_again(op)?,
            None => rewriter.keep(op)?,
            Some((call, rule)) => {
                let args = rewriter.arguments(op, call)?;
                tensors(call.row.name, rule(&mut rewriter.builder, &args)?)?
            }
        };
        rewriter.replace(op, &results)?;
    }
    rewriter.finish()
}

fn tensors(name: &str, operands: Vec<Operand>) -> Result<Vec<TensorId>> {
    operands
        .into_iter()
        .map(|operand| match operand {
            Operand::Tensor(t) => Ok(t),
            Operand::Scalar(_) => Err(Diagnostic::bug(format!("{name} decomposes into a scalar"))),
        })
        .collect()
}
