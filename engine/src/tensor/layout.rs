//! Layout arithmetic: sizes and strides to element counts and offsets, all of
//! it checked, since both come from outside.

use crate::diag::{Diagnostic, Result, code};
use crate::num::DType;

/// The largest tensor the host will allocate, in bytes.
pub const MAX_BYTES: u64 = 64 << 30;

/// The type and layout of a tensor. Strides are in elements, may be 0 (an
/// expanded axis) and are never negative; the layout need not be dense.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outer to inner.
    pub sizes: Vec<i64>,
    /// Strides in elements, one for each size.
    pub strides: Vec<i64>,
}

impl TensorMeta {
    /// The dense row-major layout: `strides[i] = product of sizes[i + 1 ..]`,
    /// with 0 counted as 1. Sizes whose product overflows give strides at the
    /// end of the range, which [`Self::span`] refuses.
    pub fn contiguous(dtype: DType, sizes: &[i64]) -> Self {
        let mut strides = vec![1i64; sizes.len()];
        for i in (1..sizes.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(sizes[i].max(1));
        }
        Self { dtype, sizes: sizes.to_vec(), strides }
    }

    /// Whether elements lie in the same places as those of a tensor of the same sizes: strides of
    /// axes of size 1 say nothing, nor do any where there is no element.
    pub fn has_places_of(&self, other: &Self) -> bool {
        let strides = self.strides.iter().zip(&other.strides);
        self.sizes.contains(&0) || self.sizes.iter().zip(strides).all(|(size, (a, b))| *size == 1 || a == b)
    }

    /// Bytes of the elements that differ in place: what an axis of stride 0 repeats counts once.
    pub fn distinct_bytes(&self) -> u64 {
        let moving = self.sizes.iter().zip(&self.strides).filter(|(_, stride)| **stride != 0);
        let elements = moving.fold(1u64, |product, (size, _)| product.saturating_mul(size.unsigned_abs()));
        if self.sizes.contains(&0) { 0 } else { elements.saturating_mul(self.dtype.bytes() as u64) }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements; `None` if a size is negative or the product overflows.
    pub fn numel(&self) -> Option<i64> {
        if self.sizes.iter().any(|&size| size < 0) {
            return None;
        }
        if self.sizes.contains(&0) {
            return Some(0);
        }
        self.sizes.iter().try_fold(1i64, |product, &size| product.checked_mul(size))
    }

    /// The number of storage elements from the view's start to its last
    /// element, `1 + sum((size - 1) * stride)`, or 0 if it has no element.
    /// `None` if a size or stride is negative, their numbers differ or the sum overflows.
    pub fn span(&self) -> Option<i64> {
        if self.strides.len() != self.sizes.len() || self.strides.iter().any(|&stride| stride < 0) {
            return None;
        }
        if self.numel()? == 0 {
            return Some(0);
        }
        self.sizes
            .iter()
            .zip(&self.strides)
            .try_fold(1i64, |span, (&size, &stride)| span.checked_add((size - 1).checked_mul(stride)?))
    }

    /// Whether elements lie dense in row-major order. Strides of axes of size 1
    /// do not matter, nor do any if there is no element.
    pub fn is_contiguous(&self) -> bool {
        if self.sizes.contains(&0) {
            return true;
        }
        let mut expected = 1i64;
        self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let dense = size == 1 || stride == expected;
            expected = expected.saturating_mul(size);
            dense
        })
    }

    /// The size in bytes of a dense tensor of these sizes, or why the host
    /// will not allocate it.
    pub fn dense_bytes(&self) -> Result<usize> {
        let elements = self.numel().ok_or_else(|| self.overflow("elements"))?;
        self.bytes_of(elements)
    }

    /// Whether offsets and byte counts of the layout are computable, whatever
    /// the memory of a device; else why not.
    pub fn check(&self) -> Result<()> {
        let bytes = self.span().and_then(|span| span.checked_mul(self.dtype.bytes() as i64));
        bytes.map(drop).ok_or_else(|| self.overflow("bytes"))
    }

    /// The size in bytes of storage that holds the layout from element 0, or
    /// why the host will not allocate it.
    pub fn span_bytes(&self) -> Result<usize> {
        let elements = self.span().ok_or_else(|| self.overflow("storage"))?;
        self.bytes_of(elements)
    }

    fn bytes_of(&self, elements: i64) -> Result<usize> {
        let bytes = u64::try_from(elements).ok().and_then(|n| n.checked_mul(self.dtype.bytes() as u64));
        match bytes {
            Some(bytes) if bytes <= MAX_BYTES => usize::try_from(bytes).map_err(|_| self.overflow("bytes")),
            Some(bytes) => Err(Diagnostic::user(
                code::TENSOR_TOO_LARGE,
                format!("a tensor of {} {:?} takes {bytes} bytes, the limit is {MAX_BYTES}", self.dtype, self.sizes),
            )
            .note("use smaller extents")),
            None => Err(self.overflow("bytes")),
        }
    }

    fn overflow(&self, what: &str) -> Box<Diagnostic> {
        let Self { sizes, strides, .. } = self;
        if let Some(axis) = sizes.iter().position(|&size| size < 0) {
            let message = format!("axis {axis} has the negative size {}", sizes[axis]);
            return Diagnostic::user(code::INPUT_EXTENT, message);
        }
        if strides.len() != sizes.len() {
            let message = format!("{} strides for {} axes", strides.len(), sizes.len());
            return Diagnostic::user(code::INPUT_STRIDE, message);
        }
        if let Some(axis) = strides.iter().position(|&stride| stride < 0) {
            let message = format!("axis {axis} has the negative stride {}", strides[axis]);
            return Diagnostic::user(code::INPUT_STRIDE, message);
        }
        Diagnostic::user(
            code::SIZE_OVERFLOW,
            format!("the number of {what} of sizes {sizes:?} and strides {strides:?} overflows"),
        )
    }
}

/// Element offsets of a layout in logical (row-major) order, from 0. The layout
/// must have passed [`TensorMeta::span`].
#[derive(Clone, Debug)]
pub struct Offsets<'a> {
    meta: &'a TensorMeta,
    index: Vec<i64>,
    offset: usize,
    left: usize,
}

impl<'a> Offsets<'a> {
    /// The offsets of a layout; none if its element count overflows.
    pub fn new(meta: &'a TensorMeta) -> Self {
        let left = meta.numel().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Self { meta, index: vec![0; meta.rank()], offset: 0, left }
    }
    /// The index of the element that `next` will return.
    pub fn index(&self) -> &[i64] {
        &self.index
    }
}

impl Iterator for Offsets<'_> {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let offset = self.offset;
        for axis in (0..self.index.len()).rev() {
            let (size, stride) = (self.meta.sizes[axis], self.meta.strides[axis]);
            self.index[axis] += 1;
            if self.index[axis] < size {
                self.offset += stride as usize;
                break;
            }
            self.index[axis] = 0;
            self.offset -= (size - 1) as usize * stride as usize;
        }
        Some(offset)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Offsets<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[i64], strides: &[i64]) -> TensorMeta {
        TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn dense_strides_are_products_of_inner_sizes() {
        for (sizes, strides) in
            [(&[][..], &[][..]), (&[5], &[1]), (&[2, 3, 4], &[12, 4, 1]), (&[2, 0, 4], &[4, 4, 1]), (&[1, 1], &[1, 1])]
        {
            let meta = TensorMeta::contiguous(DType::F32, sizes);
            assert_eq!(meta.strides, strides);
            assert!(meta.is_contiguous());
            assert_eq!(meta.span(), meta.numel());
        }
    }

    #[test]
    fn spans_and_contiguity_follow_strides() {
        let check = |sizes: &[i64], strides: &[i64], span: Option<i64>, contiguous: bool| {
            let meta = layout(sizes, strides);
            assert_eq!((meta.span(), meta.is_contiguous()), (span, contiguous), "{sizes:?} {strides:?}");
        };
        check(&[2, 3], &[4, 1], Some(7), false);
        check(&[2, 3], &[1, 2], Some(6), false);
        check(&[2, 3], &[0, 1], Some(3), false);
        check(&[1, 3], &[77, 1], Some(3), true);
        check(&[0, 3], &[77, 9], Some(0), true);
        check(&[2], &[-1], None, false);
        check(&[2, i64::MAX], &[i64::MAX, 1], None, true);
        check(&[2], &[i64::MAX], None, false);
    }

    #[test]
    fn sizes_that_no_host_can_hold_are_refused() {
        let check = |meta: TensorMeta, expected| {
            assert_eq!(meta.dense_bytes().unwrap_err().code, expected, "{meta:?}");
        };
        check(TensorMeta::contiguous(DType::F32, &[1 << 40, 1 << 40]), code::SIZE_OVERFLOW);
        check(TensorMeta::contiguous(DType::F64, &[i64::MAX]), code::SIZE_OVERFLOW);
        check(TensorMeta::contiguous(DType::F32, &[1 << 35]), code::TENSOR_TOO_LARGE);
        check(TensorMeta::contiguous(DType::F32, &[-1]), code::INPUT_EXTENT);
        assert_eq!(TensorMeta::contiguous(DType::F16, &[1 << 40, 0]).dense_bytes().unwrap(), 0);
    }

    #[test]
    fn offsets_enumerate_the_layout() {
        let check = |sizes: &[i64], strides: &[i64], expected: &[usize]| {
            assert_eq!(Offsets::new(&layout(sizes, strides)).collect::<Vec<_>>(), expected);
        };
        check(&[], &[], &[0]);
        check(&[2, 3], &[3, 1], &[0, 1, 2, 3, 4, 5]);
        check(&[2, 3], &[1, 2], &[0, 2, 4, 1, 3, 5]);
        check(&[2, 2, 2], &[10, 0, 1], &[0, 1, 0, 1, 10, 11, 10, 11]);
        check(&[2, 0], &[1, 1], &[]);
    }
}
