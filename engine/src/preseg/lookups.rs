//! Lookups read memory, and what is computed element by element of a table is computed of the elements that
//! are found: `take(f(x, y), i)` is `f(take(x, i), take(y, i))`, and of what is one element along the axis that is looked
//! up nothing is taken. So a table of log-probabilities is never stored for the few of them that a loss
//! asks for. A gather of all that is on the other axes is a `take_along_axis`. What is computed between two lookups of one tensor is
//! computed behind both, which are one then (`places`).
//!
//! In the way of that: a table that is returned, and what lies behind the operations if it is computed by a kernel, since
//! that would have to be stored in place of the table.

use super::make::call as make;
use super::places::may_be_one;
use super::whole::{Change, Changes, Whole, call};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, IndexAxes, Lookup, OpArg};
use crate::fusion::{Op, OpKind, Operand, Rewriter, TensorId};

/// Operations that are moved behind one lookup.
const MOST_MOVED: usize = 16;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(|whole, op| of_gather(whole, op).or_else(|| behind(whole, op)))
}

/// A gather whose index is as long as what it reads on the axes that are not looked up.
fn of_gather<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let OpKind::Call(call) = &op.kind else { return None };
    if call.movement().form != Some(Form::Lookup(IndexAxes::Within)) {
        return None;
    }
    let [Operand::Tensor(x), Operand::Tensor(index)] = *op.inputs.as_slice() else { return None };
    let dim = call.axis("dim");
    let is_same = |axis: usize| {
        whole.sizes(x)[axis] == whole.sizes(index)[axis] && whole.kind(x, axis) == whole.kind(index, axis)
    };
    let all = (0..whole.rank(x)).all(|axis| axis == dim || is_same(axis));
    all.then(|| -> Change<'a> {
        Box::new(move |r| {
            let (x, index) = (r.tensor(x)?, r.tensor(index)?);
            make(&mut r.builder, "take_along_axis", |args| {
                args.value("x", x).value("index", index).with("dim", OpArg::Int(dim as i64))
            })
        })
    })
}

/// A lookup in a table that is computed of what is in memory.
fn behind<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let lookup = op.kind.lookup()?;
    let Some(Operand::Tensor(table)) = op.inputs.get(lookup.table).copied() else { return None };
    let moved = Moved { whole, op, lookup };
    let mut left = MOST_MOVED;
    let is_moved = moved.operands(table).is_some()
        && (moved.is_of_memory(table, &mut left) || moved.is_of_lookup(table).is_some_and(|found| found != table));
    is_moved.then(|| -> Change<'a> { Box::new(move |r| moved.write(r, table)) })
}

/// A lookup that is moved.
struct Moved<'a> {
    whole: &'a Whole<'a>,
    op: &'a Op,
    lookup: Lookup,
}

impl Moved<'_> {
    /// What an elementwise operation makes a table of, if nobody else has its result stored.
    fn operands(&self, table: TensorId) -> Option<Vec<TensorId>> {
        let whole = self.whole;
        let maker = whole.maker(table).filter(|maker| maker.kind.is_elementwise() && maker.outputs.len() == 1)?;
        let tensor = |operand: &Operand| match *operand {
            Operand::Tensor(tensor) => Some(tensor),
            Operand::Scalar(_) => None,
        };
        let read: Vec<TensorId> = maker.inputs.iter().filter_map(tensor).collect();
        // The result of a table of rows has other axes: no operand can stand for itself there.
        let of_rows = self.lookup.axes == IndexAxes::BeforeRow;
        let fits =
            |tensor: &TensorId| whole.rank(*tensor) == whole.rank(table) && !(of_rows && self.is_one(*tensor, table));
        (!whole.is_returned(table) && read.iter().all(fits)).then_some(read)
    }

    /// Whether an operand of a table has one element along the axis, for all of the table.
    fn is_one(&self, operand: TensorId, table: TensorId) -> bool {
        let axis = self.lookup.axis;
        self.whole.is_broadcast(operand, axis) && !self.whole.is_broadcast(table, axis)
    }

    /// Whether a table is in memory whatever is done here, or made of such ones by few operations.
    fn is_of_memory(&self, table: TensorId, left: &mut usize) -> bool {
        let Some(maker) = self.whole.maker(table) else { return true };
        let Some(operands) = self.operands(table) else { return is_stored(maker) };
        if *left == 0 {
            return false;
        }
        *left -= 1;
        operands.into_iter().all(|operand| self.is_one(operand, table) || self.is_of_memory(operand, left))
    }

    /// The lookup that a table is made of by operations of one tensor each, if nobody else needs what lies between, and both could be
    /// one.
    fn is_of_lookup(&self, table: TensorId) -> Option<TensorId> {
        let (whole, mut at) = (self.whole, table);
        for _ in 0..MOST_MOVED {
            if !whole.is_read_once(at) {
                return None;
            }
            match self.operands(at).as_deref() {
                Some(&[operand]) if !self.is_one(operand, at) => at = operand,
                Some(_) => return None,
                None => break,
            }
        }
        let (in_place, first) = (Form::Lookup(IndexAxes::InPlace), whole.maker(at)?);
        let both = [self.op, first].into_iter().all(|op| call(op, in_place).is_some());
        (both && may_be_one(whole, first)).then_some(at)
    }

    /// What the lookup takes of a table.
    fn write(&self, r: &mut Rewriter<'_>, table: TensorId) -> Result<TensorId> {
        let (Some(maker), Some(operands)) = (self.whole.maker(table), self.operands(table)) else {
            let results = r.write_with(self.op, self.lookup.table, table)?;
            return results.first().copied().ok_or_else(|| Diagnostic::bug("a lookup has no result"));
        };
        let mut taken = Vec::with_capacity(operands.len());
        for operand in operands {
            let one = self.is_one(operand, table);
            taken.push(if one { r.tensor(operand)? } else { self.write(r, operand)? });
        }
        r.write_on(maker, &taken)
    }
}

/// Whether a result of an operation is stored since no kernel computes it with others.
pub(super) fn is_stored(maker: &Op) -> bool {
    match &maker.kind {
        OpKind::Call(call) => {
            let by_kernels = call.row.random.is_some()
                || call.lookup().is_some()
                || matches!(call.movement().form, Some(Form::Pad | Form::Cat | Form::Lookup(_)))
                || call.primitive().is_some_and(|primitive| primitive.decompose.is_some());
            !by_kernels
        }
        _ => false,
    }
}
