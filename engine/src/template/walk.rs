//! Where the rows of a scan lie: the elements of its operand and its result that differ along one axis only.

use super::Template;
use crate::diag::{Diagnostic, Result};
use crate::fusion::AxisKind;
use crate::kernel::{BufId, ExprId, KernelBuilder, MAX_ACCESS_BYTES};
use crate::schedule::ArgClass;

/// The largest power of two of which something is known to be a multiple.
const MAX_FACT: i64 = 16;

/// The memory of a scan, and the numbers that say where its rows are.
pub(super) struct Walk {
    /// The operand and the result.
    pub(super) from: BufId,
    pub(super) to: BufId,
    /// The elements of a row, and the rows.
    pub(super) length: ExprId,
    pub(super) rows: ExprId,
    /// Steps along a row, in elements.
    pub(super) from_step: ExprId,
    pub(super) to_step: ExprId,
    /// The other axes, outermost first: extent, and steps of the operand and of the result.
    others: Vec<[ExprId; 3]>,
}

/// Elements of a row, which lies along the innermost axis, that one access may move: each vector of them is aligned in
/// the operand and in the result.
pub(super) fn vector(scan: &Template, class: &ArgClass) -> i64 {
    let Some(layout) = class.layout(&scan.fusion, 0) else { return 1 };
    let bytes = scan.fusion.tensors[scan.x].dtype.bytes() as i64;
    let is_whole = |lanes: i64| {
        let steps = layout.order.iter().all(|own| match own.axis == scan.axis {
            true => own.dense && Some(own) == layout.order.last(),
            false => own.stride_fact % lanes == 0,
        });
        let is_in_memory = layout.order.iter().any(|own| own.axis == scan.axis);
        steps
            && is_in_memory
            && layout.size_facts[scan.axis] % lanes == 0
            && i64::from(layout.align) % (lanes * bytes) == 0
    };
    [8, 4, 2].into_iter().find(|lanes| lanes * bytes <= MAX_ACCESS_BYTES && is_whole(*lanes)).unwrap_or(1)
}

impl Walk {
    /// Declares parameters and memory.
    pub(super) fn new(b: &mut KernelBuilder, scan: &Template, class: &ArgClass) -> Result<Self> {
        let data = &scan.fusion.tensors[scan.x];
        let layout = class.layout(&scan.fusion, 0).ok_or_else(|| Diagnostic::bug("a scan reads a tensor"))?;
        let one = b.int(1);
        let sizes: Vec<ExprId> = (0..data.axes.len())
            .map(|axis| match data.axes[axis].kind {
                AxisKind::Broadcast => one,
                _ => {
                    let size = b.size(format!("n{axis}"), 0, axis as u32);
                    b.assume_multiple_of(size, layout.size_facts[axis]);
                    size
                }
            })
            .collect();
        let mut steps = vec![b.int(0); sizes.len()];
        // What an axis of one element steps over says nothing: it is what is inside of it.
        let mut inside: Option<[ExprId; 2]> = None;
        for own in layout.order.iter().rev() {
            let step = match inside {
                _ if !own.dense => b.stride(format!("s{}", own.axis), 0, own.axis as u32),
                None => one,
                Some([step, size]) => match b.exprs().mul(step, size) {
                    product if product == step || product == size => product,
                    product => b.derived(format!("s{}", own.axis), product),
                },
            };
            b.assume_multiple_of(step, own.stride_fact);
            inside = Some([step, sizes[own.axis]]);
            if sizes[own.axis] != one {
                steps[own.axis] = step;
            }
        }
        let (mut inner, mut fact) = (one, 1);
        let mut dense = vec![one; sizes.len()];
        for axis in (0..sizes.len()).rev() {
            dense[axis] = inner;
            let product = b.exprs().mul(inner, sizes[axis]);
            if product != inner {
                inner = b.derived(format!("inner{axis}"), product);
                fact = (fact * layout.size_facts[axis]).min(MAX_FACT);
                b.assume_multiple_of(inner, fact);
            }
        }
        let mut reach = one;
        for (&size, &step) in sizes.iter().zip(&steps) {
            let last = b.exprs().sub(size, one);
            let last = b.exprs().mul(last, step);
            reach = b.exprs().add(reach, last);
        }
        let from = b.input("x", 0, data.dtype, reach, layout.align);
        let to = b.output("y", 0, data.dtype, inner, 16);
        let mut rows = one;
        let mut others = Vec::new();
        for axis in (0..sizes.len()).filter(|axis| *axis != scan.axis && sizes[*axis] != one) {
            rows = b.exprs().mul(rows, sizes[axis]);
            others.push([sizes[axis], steps[axis], dense[axis]]);
        }
        let rows = if rows == one { one } else { b.derived("rows", rows) };
        let (length, from_step, to_step) = (sizes[scan.axis], steps[scan.axis], dense[scan.axis]);
        Ok(Self { from, to, length, rows, from_step, to_step, others })
    }

    /// Where a row starts in the operand and in the result: with `c_a` its place along the other axes, of which the last
    /// is the fastest, `sum c_a step_a`.
    pub(super) fn starts(&self, b: &mut KernelBuilder, row: ExprId) -> [ExprId; 2] {
        let mut rest = row;
        let mut starts = [b.int(0); 2];
        for (at, [size, from, to]) in self.others.iter().enumerate().rev() {
            // The outermost one is what is left.
            let place = if at == 0 { rest } else { b.exprs().rem(rest, *size) };
            rest = b.exprs().div(rest, *size);
            for (start, step) in starts.iter_mut().zip([*from, *to]) {
                let own = b.exprs().mul(place, step);
                *start = b.exprs().add(*start, own);
            }
        }
        let [from, to] = starts;
        [b.let_("from", from), b.let_("to", to)]
    }
}
