//! Lookups read memory, and what is computed element by element of a table is computed of the elements that
//! are found: `take(f(x, y), i)` is `f(take(x, i), take(y, i))`, and of what is one element along the axis that is looked
//! up nothing is taken. Of positions along that axis, of which a mask is made, the index itself tells what is taken. So a table of
//! log-probabilities is never stored for the few of them that a loss asks for. A gather of all that is on the other axes is a `take_along_axis`, and an
//! `index_select` where the index is the same along these. What is computed between two lookups of one tensor is
//! computed behind both, which are one then (`places`).
//!
//! In the way of that: a table that is returned, and what lies behind the operations if it is computed by a kernel, since
//! that would have to be stored in place of the table.

use super::make::{call as make, squeeze};
use super::places::may_be_one;
use super::scatters::Line;
use super::whole::{Change, Changes, Whole, call, operand};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Call, Form, IndexAxes, Lookup, OpArg};
use crate::fusion::{Op, OpKind, Operand, Rewriter, Src, TensorId, made_tensor};
use crate::num::{BinaryOp, DType};

/// Operations that are moved behind one lookup.
const MOST_MOVED: usize = 16;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&|whole, op| of_rows(whole, op).or_else(|| of_gather(whole, op)).or_else(|| behind(whole, op)))
}

/// What is looked up at the same positions for all of a row, where an index is spread over it: rows are looked up.
fn of_rows<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let OpKind::Call(call) = &op.kind else { return None };
    if !matches!(call.movement().form, Some(Form::Lookup(IndexAxes::Within | IndexAxes::Same))) {
        return None;
    }
    let [Operand::Tensor(x), Operand::Tensor(index)] = *op.inputs.as_slice() else { return None };
    let (dim, output) = (call.axis("dim"), op.output());
    let line = Line::of(whole, index, dim)?;
    let is_all = |axis: usize| {
        whole.sizes(x)[axis] == whole.sizes(output)[axis] && whole.kind(x, axis) == whole.kind(output, axis)
    };
    let is_alike = (0..whole.rank(x)).all(|axis| axis == dim || is_all(axis))
        && whole.kind(line.tensor, line.axis) == whole.kind(output, dim);
    is_alike.then(|| -> Change<'a> {
        Box::new(move |r| {
            let others: Vec<bool> = (0..whole.rank(line.tensor)).map(|axis| axis != line.axis).collect();
            let (x, spread) = (r.tensor(x)?, r.tensor(line.tensor)?);
            let index = squeeze(&mut r.builder, spread, &others)?;
            make(&mut r.builder, "index_select", |args| {
                args.value("x", x).value("index", index).with("dim", OpArg::Int(dim as i64))
            })
        })
    })
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
    let is_moved = moved.operands(table).is_some()
        && (moved.is_of_memory(table) || moved.is_of_lookup(table).is_some_and(|found| found != table));
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

    /// Positions along the axis, and along no other, of which the index tells what is taken.
    fn positions(&self, table: TensorId) -> Option<(&Op, &Call)> {
        let (whole, axis) = (self.whole, self.lookup.axis);
        let placed = whole.maker(table).filter(|maker| matches!(maker.kind, OpKind::Broadcast { .. }));
        let made = placed.map_or(Some(table), operand)?;
        let maker = whole.maker(made)?;
        let OpKind::Call(call) = &maker.kind else { return None };
        let is_along = !whole.is_broadcast(table, axis) && whole.rank(made) == 1;
        let is_progression = call.movement().form == Some(Form::Progression);
        (self.lookup.axes == IndexAxes::Same && is_progression && is_along).then_some((maker, call))
    }

    /// Whether a table is in memory whatever is done here, or made of such ones, at least one, by few operations.
    fn is_of_memory(&self, table: TensorId) -> bool {
        let (mut stack, mut left, mut is_read) = (vec![table], MOST_MOVED, false);
        while let Some(next) = stack.pop() {
            // Whether the index is one of the axis is seen where something is read.
            if self.positions(next).is_some() {
                continue;
            }
            match (self.whole.maker(next), self.operands(next)) {
                (Some(_), Some(operands)) if left > 0 => {
                    left -= 1;
                    stack.extend(operands.into_iter().filter(|operand| !self.is_one(*operand, next)));
                }
                (Some(maker), None) if is_stored(maker) => is_read = true,
                (None, _) => is_read = true,
                (Some(_), _) => return false,
            }
        }
        is_read
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
        if let Some((maker, call)) = self.positions(table) {
            return self.found_positions(r, maker, call);
        }
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

    /// The numbers that positions along the axis have where the index says: as [`iota`](crate::fusion::ops) has them.
    fn found_positions(&self, r: &mut Rewriter<'_>, maker: &Op, call: &Call) -> Result<TensorId> {
        let index = self.op.inputs.get(self.lookup.index).copied();
        let Some(Operand::Tensor(index)) = index else { return Err(Diagnostic::bug("a lookup has no index")) };
        let dtype = self.whole.fusion.tensors[maker.output()].dtype;
        let working = if dtype.is_float() { DType::F64 } else { DType::I64 };
        let own = r.tensor(index)?;
        let mut found: Operand = r.builder.cast(own, working)?;
        for (name, op) in [("step", BinaryOp::Mul), ("start", BinaryOp::Add)] {
            if let [Operand::Scalar(number)] = maker.inputs[call.operands(name)] {
                let number: Src = r.scalar(number).into();
                let number = r.builder.cast(number, working)?;
                found = r.builder.binary(op, found, number)?;
            }
        }
        made_tensor(r.builder.cast(found, dtype)?)
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
