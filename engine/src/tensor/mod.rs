//! Host tensors: sizes, strides and bytes. What callers pass to and get from
//! the runtime and the reference evaluator.

use crate::num::{DType, Value};

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

/// A tensor in host memory: a view of `data` that starts at element `offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    /// Type and layout.
    pub meta: TensorMeta,
    /// Storage, little endian, element 0 first.
    pub data: Vec<u8>,
    /// Element of the storage at which the view starts.
    pub offset: usize,
}

/// What is known of an argument before its values are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArgMeta {
    /// A tensor's type and layout.
    Tensor(TensorMeta),
    /// A scalar; values of sizes matter for shapes.
    Scalar(Value),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A tensor.
    Tensor(HostTensor),
    /// A scalar.
    Scalar(Value),
}
