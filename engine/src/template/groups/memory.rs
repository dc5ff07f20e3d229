//! The operands and the result of sums in groups: where their elements lie, and what is known of it.

use super::super::share;
use super::super::walk::{self, Placed};
use super::super::{Output, Template};
use super::{DEPTH, Groups, SIDE, THREADS};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ExprId, IndexOp, KernelBuilder};
use crate::lower::Scalars;
use crate::num::{BinaryOp, DType, TernaryOp};
use crate::schedule::{ArgClass, TensorLayout};

/// Elements that a thread reads at once, at most.
const MAX_LANES: i64 = 4;

/// The memory of a kernel, and the extents of its operation.
pub(super) struct Memory {
    pub(super) left: Factor,
    pub(super) right: Factor,
    pub(super) to: Target,
    pub(super) rows: ExprId,
    pub(super) columns: ExprId,
    /// The length of the summed axis.
    pub(super) terms: ExprId,
    /// How many groups there are.
    pub(super) count: ExprId,
    /// The type of sums.
    pub(super) work: DType,
    /// Where groups end.
    ends: BufId,
    end_step: ExprId,
}

/// An operand that is multiplied: from each element to the next along its axes.
pub(super) struct Factor {
    pub(super) buffer: BufId,
    pub(super) dtype: DType,
    /// From each group to the next; none of a matrix.
    pub(super) group: Option<ExprId>,
    /// Along rows of the left one and columns of the right one.
    pub(super) across: ExprId,
    pub(super) along: ExprId,
    /// Whether elements beside each other in memory are terms of one sum.
    pub(super) is_along: bool,
    /// How many of them one access may read that starts at a multiple of it.
    vector: i64,
}

/// The result.
pub(super) struct Target {
    pub(super) buffer: BufId,
    /// From each group to the next; none if all are in one result.
    pub(super) group: Option<ExprId>,
    pub(super) row: ExprId,
    pub(super) column: ExprId,
    /// Whether four columns from a multiple of 4 on may be written as one.
    pub(super) is_wide: bool,
}

impl Factor {
    /// The elements that a thread reads at once of a tile that is so wide.
    pub(super) fn vector(&self, width: i64) -> i64 {
        self.vector.min(width * DEPTH / THREADS)
    }
}

impl Memory {
    pub(super) fn new(b: &mut KernelBuilder, template: &Template, groups: Groups, class: &ArgClass) -> Result<Self> {
        let Groups { left, right, offsets, splits_sums } = groups;
        let mut scalars = Scalars::new(&template.fusion, class);
        let mut given = |b: &mut KernelBuilder, input: usize| {
            let layout = walk::layout(class, input)?;
            let x = template.tensor(input)?;
            let (sizes, dtype) = (walk::extents(b, template, &mut scalars, x)?, template.fusion.tensors[x].dtype);
            Ok::<_, Box<Diagnostic>>((walk::strided(b, template, input, layout, &sizes, dtype)?, layout))
        };
        let (a, a_layout) = given(b, left)?;
        // A matrix may be multiplied with itself.
        let (c, c_layout) = if left == right { (a.clone(), a_layout) } else { given(b, right)? };
        let (ends, _) = given(b, offsets)?;
        let [output] = &template.outputs[..] else { return Err(Diagnostic::bug("sums of groups have one result")) };
        let rank = c.extents.len();
        let (rows, columns, terms, count) = (a.extents[0], c.extents[rank - 1], a.extents[1], ends.extents[0]);
        let extents = if splits_sums { vec![count, rows, columns] } else { vec![rows, columns] };
        let facts = [a_layout.size_facts[0], c_layout.size_facts[rank - 1]];
        let work = template.fusion.tensors[output.tensor].dtype;
        let factor = |input: usize, placed: Placed, layout: &TensorLayout, [across, along]: [usize; 2]| {
            let dtype = template.fusion.tensors[template.tensor(input)?].dtype;
            Ok::<_, Box<Diagnostic>>(factor(placed, layout, dtype, [across, along]))
        };
        Ok(Self {
            left: factor(left, a, a_layout, [0, 1])?,
            right: factor(right, c, c_layout, [rank - 1, rank - 2])?,
            to: target(b, output, &extents, work, facts),
            rows,
            columns,
            terms,
            count,
            work,
            ends: ends.buffer,
            end_step: ends.steps[0],
        })
    }

    /// Where a group ends of an axis that is so long, whatever is written there.
    pub(super) fn end(&self, b: &mut KernelBuilder, group: ExprId, extent: ExprId) -> ExprId {
        let at = b.exprs().mul(group, self.end_step);
        let end = b.load("end", self.ends, at);
        let end = b.exprs().cast(end, DType::I64);
        let most = b.exprs().cast(extent, DType::I64);
        let (most, least) = (b.exprs().as_data(most), b.exprs().int(0, DType::I64));
        let end = b.exprs().binary(BinaryOp::Minimum, end, most);
        let end = b.exprs().binary(BinaryOp::Maximum, end, least);
        let end = share::as_index(b, end);
        b.let_("stop", end)
    }

    /// Where a group starts and ends; where the last one ends, and any number, of the one behind it.
    pub(super) fn group(&self, b: &mut KernelBuilder, group: ExprId, extent: ExprId) -> (ExprId, ExprId) {
        let (zero, one) = (b.int(0), b.int(1));
        let before = b.exprs().sub(group, one);
        let before = b.exprs().index(IndexOp::Max, before, zero);
        let before = self.end(b, before, extent);
        let is_behind = b.exprs().lt(zero, group);
        let start = b.exprs().ternary(TernaryOp::Where, is_behind, before, zero);
        let last = b.exprs().sub(self.count, one);
        let own = b.exprs().index(IndexOp::Min, group, last);
        (b.let_("first", start), self.end(b, own, extent))
    }
}

fn factor(placed: Placed, layout: &TensorLayout, dtype: DType, [across, along]: [usize; 2]) -> Factor {
    let is_along = layout.order.last().is_some_and(|own| own.axis == along);
    let fast = if is_along { along } else { across };
    // More would be in registers, on the way to shared memory, than sums leave.
    let vector = walk::widest(layout, &[fast], dtype, MAX_LANES);
    Factor {
        buffer: placed.buffer,
        dtype,
        group: (placed.steps.len() == 3).then(|| placed.steps[0]),
        across: placed.steps[across],
        along: placed.steps[along],
        is_along,
        vector,
    }
}

fn target(
    b: &mut KernelBuilder,
    output: &Output,
    extents: &[ExprId],
    dtype: DType,
    [rows, columns]: [i64; 2],
) -> Target {
    let rank = extents.len();
    let fact_of = |axis: usize| match rank - axis {
        1 => columns,
        2 => rows,
        _ => 1,
    };
    let placed = walk::dense(b, output, extents, dtype, fact_of);
    Target {
        buffer: placed.buffer,
        group: (rank == 3).then(|| placed.steps[0]),
        row: placed.steps[rank - 2],
        column: placed.steps[rank - 1],
        is_wide: output.order.last() == Some(&(rank - 1)) && columns % SIDE == 0,
    }
}
