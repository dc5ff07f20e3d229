//! Copies of many short rows, which kernels make.
//!
//! A device copies rows of bytes, some of them in one call. Elements that lie apart on either side would take a call for each
//! column, so such a copy becomes the kernel of another fusion, which moves pairs of integers half as large as the elements: only
//! those of 16 bytes are none that kernels compute with. What kernels compute with needs no such help: its copies are segments of kernels from the
//! start. So that other fusion, all of whose types kernels have, has no such copies itself, and this ends.
//!
//! In: a program. Out: the same with launches instead of those copies. Nothing else of it changes.

use super::steps::{self, Copy, Launch, Program, Step, Storage};
use crate::compile::BoundFusion;
use crate::diag::{DiagnosticKind, Result};
use crate::fusion::{self, Fusion};
use crate::num::DType;
use crate::tensor::{ArgMeta, TensorMeta, copy_rows};
use crate::text;
use crate::util::self_check;

/// Bytes below which copies cost little anyway.
const LEAST_BYTES: u64 = 64 << 10;
/// Copies that a device is asked for one by one, at most.
const MOST_CALLS: usize = 16;
/// Bytes of a row that is worth a copy.
const LEAST_ROW: u64 = 512;
/// Bytes to which memory of the program and its results are aligned, and the largest alignment that counts.
const ALIGN: u64 = 16;

impl Program {
    /// Makes kernels of copies that would take many calls, for arguments of such alignments. `kernel` is asked for that of
    /// each; where there is none, the copy stays.
    pub fn with_moves(
        mut self,
        alignments: &[u32],
        kernel: &dyn Fn(&BoundFusion<'_>) -> Result<Option<Launch>>,
    ) -> Result<Self> {
        for step in 0..self.steps.len() {
            let Step::Copy(copy) = &self.steps[step] else { continue };
            let Some((fusion, meta)) = self.as_fusion(copy) else { continue };
            let (root, offset) = steps::root(&self.values, copy.from);
            let aligned = match self.values[root].storage {
                Storage::Input(position) => alignments.get(position as usize).map_or(1, |align| u64::from(*align)),
                Storage::Output(_) | Storage::Arena { .. } | Storage::AliasOf { .. } => ALIGN,
            };
            let alignment = 1 << (aligned | offset | ALIGN).trailing_zeros();
            let args = [ArgMeta::Tensor(meta)];
            let bindings = fusion::bind(&fusion, &args)?;
            let bound = BoundFusion { fusion: &fusion, bindings: &bindings, args: &args, alignments: &[alignment] };
            let found = match kernel(&bound) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) if error.kind == DiagnosticKind::Unsupported => continue,
                Err(error) => return Err(error),
            };
            let (inputs, outputs, frees) = (vec![Some(copy.from)], vec![copy.to], copy.frees.clone());
            self.steps[step] = Step::Launch(Launch { segment: None, inputs, outputs, frees, ..found });
        }
        Ok(self)
    }

    /// A copy as a fusion, with what it reads as that sees it; none if it takes few calls, or no kernel writes so.
    fn as_fusion(&self, copy: &Copy) -> Option<(Fusion, TensorMeta)> {
        let [from, to] = [copy.from, copy.to].map(|value| &self.values[value].meta);
        let is_own = matches!(self.values[copy.to].storage, Storage::Output(_) | Storage::Arena { .. });
        let is_upward = from.strides.iter().all(|stride| *stride >= 0);
        if !is_own || !is_upward || from.dtype.in_kernels() {
            return None;
        }
        let ranks = dense_ranks(to).filter(|_| takes_many_calls(from, to))?;
        if from.dtype.bytes() != 16 {
            return None;
        }
        let (integer, pair) = (DType::I64, 2);
        self_check!(integer.in_kernels(), "a move of {integer} would need one itself");
        let dims = from.sizes.iter().map(|_| "?".to_string()).chain([pair.to_string()]);
        let order = ranks.iter().map(|rank| rank + 1).chain([0]);
        let list = |parts: Vec<String>| parts.join(", ");
        let source = format!(
            "fusion @Move(%x: {}[{}]) {{\n  %0 = stride_order %x order({})\n  return %0\n}}\n",
            integer.name(),
            list(dims.collect()),
            list(order.map(|rank| rank.to_string()).collect()),
        );
        let meta = TensorMeta {
            dtype: integer,
            sizes: from.sizes.iter().copied().chain([pair]).collect(),
            strides: from.strides.iter().map(|stride| stride * pair).chain([1]).collect(),
        };
        // A pair may be one dimension too many.
        text::parse_one(&source).ok().map(|fusion| (fusion, meta))
    }
}

/// Whether a device would be asked for many copies, or for one of many short rows.
fn takes_many_calls(from: &TensorMeta, to: &TensorMeta) -> bool {
    let elements = from.sizes.iter().fold(1u64, |n, size| n.saturating_mul(size.unsigned_abs()));
    if elements.saturating_mul(from.dtype.bytes() as u64) < LEAST_BYTES {
        return false;
    }
    let rows = copy_rows(from, to);
    rows.len() > MOST_CALLS || rows.iter().any(|row| row.rows > 1 && row.bytes < LEAST_ROW)
}

/// The place of each axis among the strides, the smallest first, of a layout without gaps.
fn dense_ranks(meta: &TensorMeta) -> Option<Vec<usize>> {
    let mut axes: Vec<usize> = (0..meta.sizes.len()).rev().collect();
    // Of an axis with one element the stride says nothing: it stays where it is.
    axes.sort_by_key(|axis| if meta.sizes[*axis] > 1 { meta.strides[*axis] } else { 0 });
    let mut expected = 1;
    let mut ranks = vec![0; axes.len()];
    for (rank, axis) in axes.into_iter().enumerate() {
        if meta.sizes[axis] > 1 && meta.strides[axis] != expected {
            return None;
        }
        expected *= meta.sizes[axis];
        ranks[axis] = rank;
    }
    Some(ranks)
}
