//! What kernels of the positions by place are asked for: an index, how many places there are, and where ends of runs and
//! positions go.

use super::super::Template;
use super::super::share::as_data;
use super::super::walk::{self, Lines, Walk};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{ExprId, KernelBuilder};
use crate::lower::Scalars;
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::schedule::ArgClass;

/// Runs of positions in a kernel.
pub(super) struct Runs {
    /// The index, and the type of its elements.
    pub(super) index: Lines,
    dtype: DType,
    /// How many places there are.
    pub(super) places: ExprId,
    /// Where runs end, and the positions of all, where somebody asks.
    pub(super) ends: Option<Lines>,
    pub(super) order: Option<Lines>,
}

impl Runs {
    pub(super) fn new(b: &mut KernelBuilder, template: &Template, class: &ArgClass) -> Result<Self> {
        let walk = Walk::new(b, template, class)?;
        let result = |number: usize| {
            let at = template.outputs.iter().position(|output| output.result == number)?;
            walk.to.get(at).copied()
        };
        let ends_of = template.fusion.ops.values().next().and_then(|op| op.outputs.first());
        let ends_of = *ends_of.ok_or_else(|| Diagnostic::bug("runs have ends"))?;
        let mut scalars = Scalars::new(&template.fusion, class);
        let places = walk::extents(b, template, &mut scalars, ends_of)?[0];
        let dtype = template.fusion.tensors[template.x].dtype;
        let (ends, order) = (result(0), result(1));
        Ok(Self { index: walk.from, dtype, places, ends, order })
    }

    /// The place of an element of the index, as an `i64`: one from the end is one from the start, and what is none is behind
    /// all.
    pub(super) fn place(&self, b: &mut KernelBuilder, at: ExprId) -> ExprId {
        let element = b.exprs().mul(at, self.index.step);
        let place = b.load("place", self.index.buffer, element);
        let place = b.exprs().cast(place, DType::I64);
        let all = as_data(b, self.places, DType::I64);
        let zero = b.exprs().int(0, DType::I64);
        let mut place = b.let_("place", place);
        // Of a `u64` a number that no `i64` holds is negative now, and none.
        if !self.dtype.is_unsigned() {
            let from_end = b.exprs().binary(BinaryOp::Add, place, all);
            let is_from_end = b.exprs().binary(BinaryOp::Lt, place, zero);
            place = b.exprs().ternary(TernaryOp::Where, is_from_end, from_end, place);
        }
        let is_some = b.exprs().binary(BinaryOp::Ge, place, zero);
        let is_below = b.exprs().binary(BinaryOp::Lt, place, all);
        let is_place = b.exprs().binary(BinaryOp::LogicalAnd, is_some, is_below);
        b.exprs().ternary(TernaryOp::Where, is_place, place, all)
    }
}
