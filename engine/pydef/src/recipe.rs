//! What a script passes to a definition: scalars, and tensors as recipes. The
//! values of random tensors are not those that PyTorch would draw; their
//! distribution, sizes and strides are.

use engine::diag::{Diagnostic, Result, code};
use engine::num::DType;
use std::sync::Arc;

/// The most elements that a tensor of a script may have.
pub(super) const MAX_ELEMENTS: i64 = 1 << 40;
/// The most elements that a script may list.
pub(super) const MAX_LISTED: usize = 4096;

/// An argument of a definition.
#[derive(Clone, Debug, PartialEq)]
pub enum InputRecipe {
    /// A scalar.
    Scalar(PyNumber),
    /// A tensor.
    Tensor(Arc<TensorRecipe>),
}

/// A number as Python has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PyNumber {
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex(f64, f64),
}

impl PyNumber {
    /// The real part as a float.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Bool(v) => f64::from(u8::from(v)),
            Self::Int(v) => v as f64,
            Self::Float(v) | Self::Complex(v, _) => v,
        }
    }
}

/// How a tensor's elements are made, in row-major order of the tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Gaussian: mean and standard deviation.
    Normal(f64, f64),
    /// From, up to.
    Uniform(f64, f64),
    /// Integers from, up to and including.
    Randint(i64, i64),
    /// Start and step.
    Arange(f64, f64),
    /// One value.
    Full(PyNumber),
    /// These values; at most [`MAX_LISTED`].
    Listed(Vec<PyNumber>),
}

/// A tensor that a script makes.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorRecipe {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outer to inner.
    pub sizes: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// Element of the storage at which it starts.
    pub offset: i64,
    /// Its elements.
    pub fill: Fill,
    /// Whether it lies in the host's memory.
    pub is_cpu: bool,
}

/// Row-major strides; a size of 0 counts as 1.
pub(super) fn dense(sizes: &[i64]) -> Option<Vec<i64>> {
    let mut strides = vec![1i64; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i].checked_mul(sizes[i].max(1))?;
    }
    Some(strides)
}

fn product(sizes: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size)).filter(|&n| n <= MAX_ELEMENTS)
}

fn too_large(sizes: &[i64]) -> Box<Diagnostic> {
    Diagnostic::user(
        code::TENSOR_TOO_LARGE,
        format!("a tensor of sizes {sizes:?} has more than {MAX_ELEMENTS} elements"),
    )
}

impl TensorRecipe {
    /// A dense tensor.
    pub(super) fn dense(dtype: DType, sizes: Vec<i64>, fill: Fill) -> Result<Self> {
        if let Some(size) = sizes.iter().find(|size| **size < 0) {
            return Err(Diagnostic::user(code::EXTENT, format!("a tensor has the negative size {size}")));
        }
        if sizes.len() > engine::fusion::MAX_RANK {
            let message =
                format!("a tensor of rank {} is above the limit of {}", sizes.len(), engine::fusion::MAX_RANK);
            return Err(Diagnostic::user(code::TOO_LARGE, message));
        }
        let strides = product(&sizes).and_then(|_| dense(&sizes)).ok_or_else(|| too_large(&sizes))?;
        Ok(Self { dtype, sizes, strides, offset: 0, fill, is_cpu: false })
    }

    /// The number of elements.
    pub fn numel(&self) -> i64 {
        product(&self.sizes).unwrap_or(i64::MAX)
    }

    /// The same storage seen through other sizes and strides. `offset` counts
    /// from the start of the storage.
    pub(super) fn as_strided(&self, sizes: Vec<i64>, strides: Vec<i64>, offset: i64) -> Result<Self> {
        if sizes.len() != strides.len() {
            let message = format!("as_strided: {} sizes and {} strides", sizes.len(), strides.len());
            return Err(Diagnostic::user(code::INPUT_STRIDE, message));
        }
        let view = Self { strides, offset, ..Self::dense(self.dtype, sizes, self.fill.clone())? };
        if offset < 0 || view.strides.iter().any(|stride| *stride < 0) {
            return Err(Diagnostic::user(code::INPUT_STRIDE, "as_strided: strides and offset are not negative"));
        }
        // The storage of this recipe: everything up to its own last element.
        let (reach, have) = (view.reach(), self.reach());
        if reach.is_none_or(|reach| reach > have.unwrap_or(0)) {
            let message = format!(
                "as_strided: sizes {:?} with strides {:?} from element {offset} reach outside of a storage of {} elements",
                view.sizes,
                view.strides,
                have.unwrap_or(0)
            );
            return Err(Diagnostic::user(code::INPUT_STRIDE, message));
        }
        let fill = self.refilled(&view)?;
        Ok(Self { fill, is_cpu: self.is_cpu, ..view })
    }

    /// One past the last element of the storage that the view needs:
    /// `offset + 1 + sum (size - 1) * stride`, or 0 when it is empty.
    pub fn reach(&self) -> Option<i64> {
        if self.sizes.contains(&0) {
            return Some(0);
        }
        self.sizes.iter().zip(&self.strides).try_fold(self.offset.checked_add(1)?, |sum, (size, stride)| {
            sum.checked_add((size - 1).checked_mul(*stride)?)
        })
    }

    /// The elements of another view of this storage. Random elements are as
    /// random in any view; those that depend on their place are listed.
    fn refilled(&self, view: &Self) -> Result<Fill> {
        if !matches!(self.fill, Fill::Arange(..) | Fill::Listed(_)) {
            return Ok(self.fill.clone());
        }
        if view.sizes == self.sizes && view.strides == self.strides && view.offset == self.offset {
            return Ok(self.fill.clone());
        }
        let is_dense = dense(&self.sizes).is_some_and(|strides| strides == self.strides) && self.offset == 0;
        let count = view.numel();
        if !is_dense || count > MAX_LISTED as i64 {
            let message = format!("a view of {count} elements of a tensor with listed elements is not read");
            return Err(Diagnostic::user(code::PY_CONSTRUCT, message)
                .note(format!("views of at most {MAX_LISTED} elements of dense tensors are")));
        }
        let mut values = Vec::with_capacity(count as usize);
        let mut index = vec![0i64; view.sizes.len()];
        for _ in 0..count {
            let place: i64 = view.offset + index.iter().zip(&view.strides).map(|(i, stride)| i * stride).sum::<i64>();
            values.push(self.element(place));
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < view.sizes[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Ok(Fill::Listed(values))
    }

    fn element(&self, place: i64) -> PyNumber {
        match &self.fill {
            Fill::Arange(start, step) => PyNumber::Float(start + step * place as f64),
            Fill::Listed(values) => values.get(place as usize).copied().unwrap_or(PyNumber::Int(0)),
            Fill::Full(value) => *value,
            _ => PyNumber::Int(0),
        }
    }

    /// Axes in another order.
    pub(super) fn permuted(&self, axes: &[usize]) -> Result<Self> {
        let sizes = axes.iter().map(|&axis| self.sizes[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        self.as_strided(sizes, strides, self.offset)
    }

    /// The same elements, dense, in other sizes. Elements of a dense tensor stay in place.
    pub(super) fn reshaped(&self, sizes: Vec<i64>) -> Result<Self> {
        let result = Self::dense(self.dtype, sizes, self.fill.clone())?;
        if result.numel() != self.numel() {
            let message = format!("sizes {:?} cannot be reshaped to {:?}", self.sizes, result.sizes);
            return Err(Diagnostic::user(code::EXTENT, message));
        }
        Ok(Self { is_cpu: self.is_cpu, ..result })
    }

    /// A dense copy.
    pub(super) fn contiguous(&self) -> Result<Self> {
        self.reshaped(self.sizes.clone())
    }

    /// Sizes and strides after expanding axes of size 1; -1 keeps a size.
    pub(super) fn expanded(&self, sizes: &[i64]) -> Result<Self> {
        let added = sizes.len().checked_sub(self.sizes.len());
        let Some(added) = added.filter(|_| sizes.len() <= engine::fusion::MAX_RANK) else {
            let message = format!("sizes {:?} cannot be expanded to {sizes:?}", self.sizes);
            return Err(Diagnostic::user(code::EXTENT, message));
        };
        let (mut new_sizes, mut strides) = (Vec::new(), Vec::new());
        for (axis, &size) in sizes.iter().enumerate() {
            let old = axis.checked_sub(added).map(|axis| (self.sizes[axis], self.strides[axis]));
            match old {
                Some((old, stride)) if size == old || size == -1 => {
                    new_sizes.push(old);
                    strides.push(stride);
                }
                Some((1, _)) | None if size >= 0 => {
                    new_sizes.push(size);
                    strides.push(0);
                }
                _ => {
                    let message = format!("sizes {:?} cannot be expanded to {sizes:?}", self.sizes);
                    return Err(Diagnostic::user(code::EXTENT, message));
                }
            }
        }
        self.as_strided(new_sizes, strides, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arange(n: i64) -> TensorRecipe {
        TensorRecipe::dense(DType::I64, vec![n], Fill::Arange(0.0, 1.0)).unwrap()
    }

    #[test]
    fn views_keep_the_elements_of_their_storage() {
        let view = arange(6).as_strided(vec![2, 3], vec![1, 2], 0).unwrap();
        let values = [0.0, 2.0, 4.0, 1.0, 3.0, 5.0].map(PyNumber::Float).to_vec();
        assert_eq!((view.fill, view.sizes, view.strides), (Fill::Listed(values), vec![2, 3], vec![1, 2]));
        let row = arange(3).expanded(&[2, 3]).unwrap();
        assert_eq!((row.sizes, row.strides), (vec![2, 3], vec![0, 1]));
    }

    #[test]
    fn what_leaves_the_storage_is_refused() {
        let message = |result: Result<TensorRecipe>| result.unwrap_err().to_string();
        assert_eq!(
            message(arange(6).as_strided(vec![2, 3], vec![4, 1], 0)),
            "error[E0305]: as_strided: sizes [2, 3] with strides [4, 1] from element 0 reach outside of a storage of 6 elements"
        );
        assert!(arange(6).as_strided(vec![i64::MAX, i64::MAX], vec![i64::MAX, 1], 0).is_err());
        assert!(arange(6).as_strided(vec![3], vec![1], 4).is_err());
        assert!(arange(6).as_strided(vec![0, 5], vec![9, 9], 0).is_ok());
        assert!(arange(6).reshaped(vec![4]).is_err() && arange(6).expanded(&[7]).is_err());
        assert!(TensorRecipe::dense(DType::F32, vec![-1], Fill::Normal(0.0, 1.0)).is_err());
    }
}
