//! Kernels that are written whole: of operations that no loop nest over their axes expresses.
//!
//! In: a fusion of one such operation, and what of its arguments decides about the kernel. Out: the kernel, in the
//! same kernel IR that lowering makes, and so under the same checks. A [`Template`] is found of a fusion once; sizes
//! choose a [`Shape`] of it, and fusions of equal operations with equal shapes and layouts share a kernel.
//!
//! Invariant: a kernel writes each element of its result, and reads nothing else than its operand.

mod scan;
mod walk;

use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::Form;
use crate::fusion::{Bindings, Fusion, OpKind, Operand, TensorId};
use crate::kernel::{self, Kernel};
use crate::num::{DType, ReduceOp};
use crate::schedule::ArgClass;
use crate::util::Hash128;

/// An operation that has a kernel of its own: prefixes along an axis.
#[derive(Clone, Debug)]
pub struct Template {
    fusion: Fusion,
    x: TensorId,
    op: ReduceOp,
    axis: usize,
}

/// How the threads of a kernel share a scan, by sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Lanes of warps lie along the scanned axis: that many warps of a row, rows of a block, and elements of a
    /// thread.
    Along {
        /// Warps that share a row.
        warps: u32,
        /// Rows of a block.
        rows: u32,
        /// Elements of a thread of one tile.
        items: u32,
        /// Elements that are read and written at once.
        vector: u32,
    },
    /// Lanes of a warp lie along other axes, each at a row of its own: that many threads of a row, and elements of
    /// each.
    Across {
        /// Threads that share a row, each in a warp of its own.
        parts: u32,
        /// Elements of a thread of one tile.
        items: u32,
    },
}

impl Template {
    /// The name by which lists know such kernels.
    pub const NAME: &'static str = "scan";

    /// Whether a fusion has a kernel that is written.
    pub fn of(fusion: &Fusion) -> Option<Self> {
        let mut ops = fusion.ops.values();
        let (op, None) = (ops.next()?, ops.next()) else { return None };
        let OpKind::Call(call) = &op.kind else { return None };
        let Some(Form::Scan(combine)) = call.movement().form else { return None };
        let [Operand::Tensor(x)] = op.inputs[..] else { return None };
        // Those of 8 bits are rounded at each step, one after the other.
        let dtype = fusion.tensors[x].dtype;
        if dtype.is_float() && dtype.bits() <= 8 {
            return None;
        }
        let is_plain = fusion.updates.is_empty() && fusion.outputs == op.outputs && fusion.inputs == op.inputs;
        is_plain.then(|| Self { fusion: fusion.clone(), x, op: combine, axis: call.axis("dim") })
    }

    /// The fusion.
    pub fn fusion(&self) -> &Fusion {
        &self.fusion
    }

    /// The shape that sizes ask for, of tensors that lie like this.
    pub fn shape(&self, bindings: &Bindings, class: &ArgClass) -> Result<Shape> {
        if class.has_empty {
            return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, "a scan of no element needs no kernel")
                .note("what has no element is filled"));
        }
        let sizes = bindings.sizes(&self.fusion, self.x);
        let is_innermost = sizes[self.axis + 1..].iter().all(|size| *size == 1);
        Ok(scan::shape(sizes[self.axis], is_innermost.then(|| walk::vector(self, class))))
    }

    /// The kernel of a shape.
    pub fn kernel(&self, shape: Shape, class: &ArgClass) -> Result<Kernel> {
        let mut kernel = scan::kernel(self, shape, class)?;
        kernel::add_reciprocals(&mut kernel);
        let hash = Hash128::of(kernel::print(&kernel).as_bytes());
        kernel.name = format!("{}_{}_{}", Self::NAME, kernel.name, hash.short());
        Ok(kernel)
    }

    /// The type in which elements are combined.
    fn work(&self) -> DType {
        self.fusion.tensors[self.x].dtype.compute()
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Along { warps, rows, items, vector } => {
                write!(f, "along warps {warps} rows {rows} items {items} vector {vector}")
            }
            Self::Across { parts, items } => write!(f, "across parts {parts} items {items}"),
        }
    }
}
