//! Lookups: operations whose result holds elements of an operand, the *table*, at positions along
//! one of its axes that another operand, the *index*, holds.
//!
//! In: a use of such a primitive. Out: which operands these are, the axis, and which axes of each of
//! them are axes of the result. Invariant: an axis of the table that is one of the result's is as long,
//! or a broadcast; the axis that is looked up is none of the result's.

use super::call::Call;
use super::movement::{Form, Reads};
use crate::fusion::OpKind;

/// How the axes of an index come to the result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexAxes {
    /// Its only axis, if it has one, takes the place of the axis that is looked up.
    InPlace,
    /// All, in their places.
    Same,
    /// All, in their places; the table may be longer on the others. Kernels have it in simpler operations.
    Within,
    /// All, before the last one of a table of rows.
    BeforeRow,
}

/// A use of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The operand that is looked up.
    pub table: usize,
    /// The operand that says where.
    pub index: usize,
    /// The axis of the table.
    pub axis: usize,
    /// Which axes of the result are the index's.
    pub axes: IndexAxes,
}

impl Lookup {
    /// Which axes of an operand of `rank` axes are axes of the result: pairs of their positions.
    pub fn pairs(&self, operand: usize, rank: usize, output_rank: usize) -> Vec<(usize, usize)> {
        let same = || (0..rank.min(output_rank)).map(|axis| (axis, axis));
        if operand == self.table {
            return match self.axes {
                IndexAxes::BeforeRow => vec![(rank - 1, output_rank - 1)],
                _ => same().filter(|(axis, _)| *axis != self.axis).collect(),
            };
        }
        match self.axes {
            _ if operand != self.index => Vec::new(),
            IndexAxes::InPlace => (0..rank).map(|axis| (axis, self.axis)).collect(),
            _ => same().collect(),
        }
    }
}

impl Call {
    /// The lookup that it is; none of other operations, and of one that changes the table first.
    pub fn lookup(&self) -> Option<Lookup> {
        let movement = self.movement();
        let (Some(Form::Lookup(axes)), Reads::Picked(table)) = (movement.form, movement.reads) else { return None };
        if axes == IndexAxes::Within || !self.operands("max_norm").is_empty() {
            return None;
        }
        let index = self.row.params.iter().map(|param| self.operands(param.name));
        let table = self.operands(table).start;
        // The other one of the first two operands, which are tensors.
        let index = index.map(|operands| operands.start).find(|position| *position != table)?;
        Some(Lookup { table, index, axis: self.axis("dim"), axes })
    }
}

impl OpKind {
    /// The lookup that an operation is, if it is one.
    pub fn lookup(&self) -> Option<Lookup> {
        match self {
            OpKind::Call(call) => call.lookup(),
            _ => None,
        }
    }
}
